"""What the recipe from BlazePose keeps, by the number of people and the budget: the law of `dpose plan --expect`.

    for n in 1000 2000 4000 8000; do
      dpose reproduce ward-dp --core --limit $n --methods non-private,recommended --out runs/ward-$n; done
    dpose reproduce ward-dp --core --methods recommended --epsilons 0.5,2 --out runs/ward-8000
    python benchmarks/recipe_law.py runs/ward-*

Of each folder: what the recipe keeps of (ceiling - start) at the same n, and the sigma of one step over all units at
the budget, which stands for it. The law, 1 - exp(-(n / sigma / c)^b) times what the steps can learn at most, is
fitted to all, and again with each n left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from scipy.optimize import least_squares

from dpose.runs.expect import Law
from dpose.training.plan import TrainingPlan

FULL = 8000
"""People of ward:train."""
Cells = list[tuple[float, float]]
"""n / sigma, and the share that was kept."""


def main() -> None:
    """Print a row for each cell, and the law."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="results of dpose reproduce ward-dp --limit N")
    cells: dict[int, Cells] = {}
    print("people, epsilon: start, ceiling, recipe, PCKh@0.5 / @0.1; share; n / sigma")
    for folder in sorted(parser.parse_args().folders, key=_people):
        people, found = _people(folder), _results(folder)
        means = _means(found)
        start, ceiling = means["start", None], means["non-private", None]
        for (method, epsilon), kept in means.items():
            if method != "recommended" or epsilon is None:
                continue
            share = (kept["Mean"] - start["Mean"]) / (ceiling["Mean"] - start["Mean"])
            plan = TrainingPlan(method="dp-head", epsilon=epsilon, delta=found["settings"]["delta"])
            ratio = people / plan.one_step_noise(people)[1]
            cells.setdefault(people, []).append((ratio, share))
            shown = ", ".join(f"{row['Mean']:.1f} / {row['Mean@0.1']:.1f}" for row in (start, ceiling, kept))
            print(f"{people:,}, {epsilon:g}: {shown}; {100 * share:.0f} %; {ratio:.0f}")
    everything = [each for own in cells.values() for each in own]
    best = fitted(everything)
    low, high = (f(ratio for ratio, _ in everything) for f in (min, max))
    print(f"share = {best.top:.3f} (1 - exp(-(n / sigma / {best.scale:.0f})^{best.power:.3f}))")
    print(f"of n / sigma from {low:.0f} to {high:.0f}")
    print(f"largest error {off(best, everything):.3f}; on an n left out:")
    for left, own in cells.items():
        rest = [each for n, others in cells.items() if n != left for each in others]
        print(f"{left:,}: {off(fitted(rest), own):.3f}")


def fitted(cells: Cells) -> Law:
    """The law by least squares, found from near where it is."""

    def of(parameters: Sequence[float]) -> Law:
        scale, power, top = map(float, parameters)
        return Law(10**scale, power, error=0.0, top=top)

    return of(least_squares(lambda p: [of(p).share(ratio) - share for ratio, share in cells], (3.2, 0.9, 0.6)).x)


def off(law: Law, cells: Cells) -> float:
    """How far the law is from a share, at most."""
    return max(abs(law.share(ratio) - share) for ratio, share in cells)


def _results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


def _people(folder: Path) -> int:
    return int(_results(folder)["settings"]["limit"] or FULL)


def _means(found: dict[str, Any]) -> dict[tuple[str, float | None], dict[str, float]]:
    """Both scores of each setting, the mean over its trainings, by method and budget."""
    scores: dict[tuple[str, float | None], list[dict[str, float]]] = {}
    for cell in found["cells"]:
        if cell["status"] == "done":
            setting = cell["settings"]
            scores.setdefault((setting["method"], setting["epsilon"]), []).append(cell["values"]["columns"])
    return {
        setting: {name: fmean(each[name] for each in several) for name in ("Mean", "Mean@0.1")}
        for setting, several in scores.items()
    }


if __name__ == "__main__":
    main()
