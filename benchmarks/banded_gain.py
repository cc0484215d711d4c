"""What noise that is correlated between steps could gain over DP-SGD, by arithmetic: no data are read.

    python benchmarks/banded_gain.py --epsilons 8,0.8

Banded matrix factorisation (Choquette-Choo et al. 2023, "(Amplified) Banded Matrix Factorization", theorem 4) releases
C x + z, for the sums x of T steps and a lower triangular C with b diagonals whose columns have norm 1; the optimizer
gets x + C^-1 z. The units are cut into b fixed parts of n / b, and step t draws from part t mod b: a batch of B is a
Poisson sample at rate b B / n, and the whole is accounted as ceil(T / b) steps at that rate, since the columns of one
part's steps do not overlap. With b = 1 it is DP-SGD. b is at most n / B.

Two errors of the noise, C^-1 times sigma, in units of the clipping norm, relative to DP-SGD with the first batch:

* of the last weights under a constant learning rate, a sum over all steps. Its least value over all C is
  sigma sqrt(ceil(T / b)): of any b steps that follow each other the column norms leave one whole number of noise;
* the root mean square over the weights after every step, for the best C that a search from two first ones finds.

"floor": one Gaussian on the sum over the whole run of all units, at C times the passes: what full batches reach.
"""

from __future__ import annotations

import argparse
import math

import torch
from rich.console import Console
from rich.table import Table

from dpose.privacy.accounting import noise_multiplier


def every_iterate(steps: int, band: int) -> float:
    """The least root mean square over prefix sums of the noise C^-1 z, by search over banded C of unit columns."""
    if band == 1:
        return math.sqrt((steps + 1) / 2)
    distance = torch.arange(steps)[:, None] - torch.arange(steps)
    inside = (distance >= 0) & (distance < band)
    prefix = torch.ones(steps, steps, dtype=torch.float64).tril()
    best = math.inf
    for power in (0.5, 0.1):
        # of the square root of the prefix sums, or nearly alike
        first = (1.0 / (distance.clamp(min=0) + 1.0) ** power).double() * inside
        free = first.clone().requires_grad_()
        search = torch.optim.LBFGS([free], max_iter=300, line_search_fn="strong_wolfe")

        def error(free: torch.Tensor = free) -> torch.Tensor:
            c = free * inside
            c = c / c.norm(dim=0)
            return torch.linalg.solve_triangular(c, prefix, upper=False, left=False).square().sum() / steps

        def closure(search: torch.optim.LBFGS = search) -> torch.Tensor:
            search.zero_grad()
            value = error()
            value.backward()
            return value

        search.step(closure)
        best = min(best, math.sqrt(error().item()))
    return best


def main() -> None:
    """One table a budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=7000)
    parser.add_argument("--passes", type=float, default=12.0)
    parser.add_argument("--batches", default="2048,1024")
    parser.add_argument("--epsilons", default="8,0.8")
    parser.add_argument("--delta", type=float, default=1e-5)
    asked = parser.parse_args()
    for epsilon in map(float, asked.epsilons.split(",")):
        head = ("batch", "steps", "b", "rate", "accounted steps", "sigma", "last weights", "all weights")
        table = Table(*head, title=f"epsilon {epsilon:g}, {asked.passes:g} passes of {asked.units:,}")
        plain = None
        for batch in map(int, asked.batches.split(",")):
            steps = math.ceil(asked.passes * asked.units / batch)
            most = asked.units // batch
            for band in sorted({b for b in (1, 2, 3, 4, 6, 9, 13) if b <= most}):
                rate, counted = band * batch / asked.units, math.ceil(steps / band)
                sigma = noise_multiplier(epsilon, asked.delta, rate, counted)
                # a run of other batches has the same passes: what its sums hold of the units is as much
                found = sigma * math.sqrt(counted), sigma * every_iterate(steps, band)
                plain = plain or found
                row = (str(batch), str(steps), str(band), f"{rate:.3f}", str(counted), f"{sigma:.3f}")
                table.add_row(*row, *(f"{x / one:.3f}" for x, one in zip(found, plain, strict=True)))
        assert plain
        whole = noise_multiplier(epsilon, asked.delta, 1.0, 1) * asked.passes
        table.add_row("floor", "", "", "1", "1", "", f"{whole / plain[0]:.3f}", "")
        Console(width=110).print(table)


if __name__ == "__main__":
    main()
