"""What private selection costs beside choosing by looking: epsilon of one trial, and of all trials with the choice.

python benchmarks/tuning.py                                              # seconds: accounting alone, no data
python benchmarks/tuning.py --rate 0.05 --steps 400 --epsilon 1 4 --markdown

For each budget the noise is that with which one trial costs so much by RDP at the sampling rate and the steps that
are given. Beside the price of the choice stands what as many trials as are expected cost if each of them is simply
published and paid for (composed by RDP; their scores, which are read without noise, are in no epsilon), and between how
many trials nine of ten draws lie. Whoever chooses by looking and claims one run's epsilon claims the third column.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from rich.console import Console
from rich.table import Table

from dpose.privacy.accounting import Accountant, epsilon, noise_multiplier
from dpose.privacy.events import SampledGaussian
from dpose.privacy.ranges import as_given, upper
from dpose.privacy.trial_law import TrialLaw
from dpose.privacy.tuning import selection_epsilon

FAMILIES = ("logarithmic", "negative-binomial:0.5", "geometric", "poisson")
MEANS = (3, 10, 30, 100)


def row(law: TrialLaw, event: SampledGaussian, delta: float, spread: tuple[int, int]) -> tuple[str, ...]:
    """What one law costs."""
    one = epsilon([event], delta, accountant=Accountant.RDP)
    every = selection_epsilon([event], law, delta)
    count = math.ceil(law.mean)
    composed = epsilon([event] * count, delta, accountant=Accountant.RDP)
    return (
        str(law),
        f"{spread[0]} to {spread[1]}",
        upper(one, 3),
        upper(every, 3),
        upper(every / one, places=2),
        upper(composed, 3),
    )


def spread(law: TrialLaw) -> tuple[int, int]:
    """Between how many trials nine of ten draws lie."""
    mean = float(law.mean)
    k = np.arange(1, int(100 * mean))
    if law.shape is None:
        count, ratios = 0, mean / k  # from no trial on
    else:
        count, ratios = 1, (1 - float(law.gamma)) * (k + float(law.shape)) / (k + 1)
    masses = np.concatenate([[1.0], np.cumprod(ratios)])
    reached = np.cumsum(masses) / masses.sum()
    low, high = np.searchsorted(reached, (0.05, 0.95))
    return count + int(low), count + int(high)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=2048 / 7000, help="sampling rate q (default: 2,048 of 7,000)")
    parser.add_argument("--steps", type=int, default=42)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.8, 2.0, 8.0], help="of one trial")
    parser.add_argument("--markdown", action="store_true")
    asked = parser.parse_args()
    laws = [TrialLaw.parse(f"{family}:{mean}") for family in FAMILIES for mean in MEANS]
    spreads = {law: spread(law) for law in laws}
    heads = ("law", "trials, 9 in 10", "one trial", "all and the choice", "times", "as many runs, composed")
    console = Console(width=120)
    for budget in asked.epsilon:
        sigma = noise_multiplier(budget, asked.delta, asked.rate, asked.steps, accountant=Accountant.RDP)
        event = SampledGaussian(asked.rate, sigma, asked.steps, 1.0)
        title = f"one trial: q {asked.rate:.3g}, {asked.steps} steps, sigma {sigma:.3f}; delta {as_given(asked.delta)}"
        rows = [row(law, event, asked.delta, spreads[law]) for law in laws]
        if asked.markdown:
            print(f"\n{title}\n")
            for line in (heads, ("---",) * len(heads), *rows):
                print(f"| {' | '.join(line)} |")
            continue
        table = Table(*heads, title=title, title_justify="left")
        for cells in rows:
            table.add_row(*cells)
        console.print(table)


if __name__ == "__main__":
    main()
