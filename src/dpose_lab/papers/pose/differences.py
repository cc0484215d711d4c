"""Differences between the methods of a benchmark, with intervals: which are told, and as what."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.report.results import Table
from dpose.stats import PAIRED_RESAMPLES, Counts, Difference, differences
from dpose_lab.papers.experiment import Outcome
from dpose_lab.papers.pose.run import PEOPLE
from dpose_lab.papers.pose.tables import Ours, by_setting, named
from dpose_lab.papers.pose.testing import read_people
from dpose_lab.papers.pose.training_cell import RECOMMENDED, START, Training

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
    """What is told of the differences.

    Attributes:
        told: Each pair that has numbers, with its difference.
        missing: The cells that are done and left out of them: what was found of each person is not there.
    """

    told: tuple[tuple[Pair, Difference], ...]
    missing: tuple[str, ...]

    @property
    def table(self) -> Table:
        """A row a pair."""
        head = ("training", "minus", "difference", "95 % interval", "resamples at or below 0", "runs")
        return Table(
            "differences, mean PCKh@0.5, points", head, tuple(_row(pair, found) for pair, found in self.told)
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What the intervals cover, and what is missing."""
        lines = [COVERS] if self.told else []
        if self.missing:
            lines.append(
                f"left out of the differences, since {PEOPLE}/CELL.json is missing or not of that test: "
                f"{', '.join(self.missing)}; without its file in cells/, a cell is tested again"
            )
        return tuple(lines)

    @property
    def values(self) -> dict[str, Any]:
        """As JSON; {} where there is nothing to tell."""
        if not self.told:
            return {}
        rows = [
            {
                "training": first.values,
                "minus": second.values,
                **found.points.to_dict(),
                "at_or_below_0": found.not_above,
                "runs": list(found.runs),
                "images": found.images,
            }
            for (first, second), found in self.told
        ]
        return {"differences": {"resamples": PAIRED_RESAMPLES, "seed": SEED, "pairs": rows}}


def compared(outcomes: Sequence[Outcome], folder: Path) -> ComparedMethods:
    """The differences between the settings that were run.

    Args:
        outcomes: Of all cells.
        folder: The results', with what was found of each person.
    """
    settings = by_setting(outcomes)
    runs, missing = _read(settings, folder)
    groups = {
        training: [o.cell.key for o in ours.outcomes if o.cell.key in runs]
        for training, ours in settings.items()
    }
    pairs = [pair for pair in chosen(list(settings)) if groups[pair[0]] and groups[pair[1]]]
    sides = [(groups[a], groups[b]) for a, b in pairs]
    found = differences(runs, sides, seed=SEED, resamples=PAIRED_RESAMPLES)
    told = [(pair, one) for pair, one in zip(pairs, found, strict=True) if math.isfinite(one.points.low)]
    return ComparedMethods(tuple(told), missing)


def chosen(settings: Sequence[Training]) -> list[Pair]:
    """Which are subtracted: from the recipe all at its epsilon, `public-only` and the start; from others the start.

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
    """What each run found of each person, by cell; and the cells of which that is not there."""
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


def _row(pair: Pair, found: Difference) -> tuple[str, ...]:
    first, second = map(_named, pair)
    points = found.points
    return (
        first,
        second,
        f"{points.value:+.2f}",
        f"{points.low:+.2f} to {points.high:+.2f}",
        f"{100 * found.not_above:.1f} %",
        "{} and {}".format(*found.runs),
    )


def _named(training: Training) -> str:
    return named(training) + (", tested on sharp pictures" if training.on_views else "")
