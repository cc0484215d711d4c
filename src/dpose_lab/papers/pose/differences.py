"""Differences between the methods of a benchmark, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.report.results import Table
from dpose_lab.papers.experiment import Outcome
from dpose_lab.papers.pose.run import PEOPLE
from dpose_lab.papers.pose.tables import Ours, by_setting, named
from dpose_lab.papers.pose.testing import read_people
from dpose_lab.papers.pose.training_cell import RECOMMENDED, START, Training
from dpose_lab.stats import PAIRED_RESAMPLES, Counts, Difference, differences

SEED = 0
COVERS = (
    "differences are of the means over repetitions, in points of PCKh@0.5, with 95 % intervals of "
    f"{PAIRED_RESAMPLES:,} paired resamples of the test images (percentiles, seed {SEED}); a side of several runs has "
    "its runs resampled too, a side of one run stands for that run alone, and the randomness of training is not in its "
    "interval. No interval is widened for there being several; all are read off the tested people without noise, as "
    "scores are"
)

Pair = tuple[Training, Training]


@dataclass(frozen=True)
class ComparedMethods:
    """Differences to report.

    Attributes:
        pairs: Each pair that has numbers, with its difference.
        missing: Finished cells that are left out, since their scores of each person are missing.
    """

    pairs: tuple[tuple[Pair, Difference], ...]
    missing: tuple[str, ...]

    @property
    def table(self) -> Table:
        """Table with a row per pair."""
        head = ("training", "minus", "difference", "95 % interval", "resamples at or below 0", "runs")
        return Table(
            "differences, mean PCKh@0.5, points", head, tuple(_row(pair, difference) for pair, difference in self.pairs)
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the coverage of the intervals, and on missing cells."""
        lines = [COVERS] if self.pairs else []
        if self.missing:
            lines.append(
                f"left out of the differences, since {PEOPLE}/CELL.json is missing or not of that test: "
                f"{', '.join(self.missing)}; without its file in cells/, a cell is tested again"
            )
        return tuple(lines)

    @property
    def values(self) -> dict[str, Any]:
        """The differences as JSON; {} if there are none."""
        if not self.pairs:
            return {}
        rows = [
            {
                "training": first.values,
                "minus": second.values,
                **difference.points.to_dict(),
                "at_or_below_0": difference.not_above,
                "runs": list(difference.runs),
                "images": difference.images,
            }
            for (first, second), difference in self.pairs
        ]
        return {"differences": {"resamples": PAIRED_RESAMPLES, "seed": SEED, "pairs": rows}}


def compared(outcomes: Sequence[Outcome], folder: Path) -> ComparedMethods:
    """Compute the differences between the settings that were run.

    Args:
        outcomes: Outcomes of all cells.
        folder: Folder of the results, with the scores of each person.
    """
    settings = by_setting(outcomes)
    runs, missing = _read(settings, folder)
    groups = {
        training: [o.cell.key for o in ours.outcomes if o.cell.key in runs] for training, ours in settings.items()
    }
    pairs = [pair for pair in chosen(list(settings)) if groups[pair[0]] and groups[pair[1]]]
    sides = [(groups[a], groups[b]) for a, b in pairs]
    results = differences(runs, sides, seed=SEED, resamples=PAIRED_RESAMPLES)
    known = [(pair, one) for pair, one in zip(pairs, results, strict=True) if math.isfinite(one.points.low)]
    return ComparedMethods(tuple(known), missing)


def chosen(settings: Sequence[Training]) -> list[Pair]:
    """Pairs to subtract: from the recipe all at its epsilon, `public-only` and the start; from others the start.

    From a variant of the recipe, the recipe.
    """
    start = [t for t in settings if t.method == START]
    free = [t for t in settings if t.on_views]
    pairs = []
    for recipe in (t for t in settings if t.method == RECOMMENDED and not t.variant):
        same = [t for t in settings if t.private and t.epsilon == recipe.epsilon and t != recipe]
        pairs += [(recipe, other) for other in (*same, *free, *start) if not other.variant]
        pairs += [(other, recipe) for other in same if other.variant]
    others = [t for t in settings if t.private and t.method != RECOMMENDED]
    return [*pairs, *((other, first) for other in others for first in start)]


def _read(settings: Mapping[Training, Ours], folder: Path) -> tuple[dict[str, Counts], tuple[str, ...]]:
    """Scores of each person by cell, and the cells without such scores."""
    runs: dict[str, Counts] = {}
    missing = []
    for ours in settings.values():
        for outcome in ours.outcomes:
            key, mean = outcome.cell.key, outcome.values.get("columns", {}).get("Mean")
            if outcome.values.get("metric") != "PCKh" or mean is None:
                continue
            try:
                tested = read_people(folder / PEOPLE / f"{key}.json")
            except DposeError:
                missing.append(key)
                continue
            first = next(iter(runs.values()), tested)
            if tested.names == first.names and math.isclose(tested.mean, mean, rel_tol=1e-9):
                runs[key] = tested
            else:
                missing.append(key)
    return runs, tuple(missing)


def _row(pair: Pair, difference: Difference) -> tuple[str, ...]:
    first, second = map(_named, pair)
    points = difference.points
    return (
        first,
        second,
        f"{points.value:+.2f}",
        f"{points.low:+.2f} to {points.high:+.2f}",
        f"{100 * difference.not_above:.1f} %",
        "{} and {}".format(*difference.runs),
    )


def _named(training: Training) -> str:
    return named(training) + (", tested on sharp pictures" if training.on_views else "")
