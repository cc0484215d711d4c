"""Who pays: how well a model does for each group of people, before and after private training.

Noise and clipping cost those most of whom there are few. The mean over everybody hides that, so the largest loss of any
group stands beside it.

**Guarantee.** Groups are scored here on public data alone. On private data a group's score is a release, and so is its
size: both are noised there (`dpose.runs.noised_score`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from dpose.errors import DposeError
from dpose.extensions import rendered_people
from dpose.pose.skeletons import MPII
from dpose.privacy.ledger import Ledger
from dpose.privacy.noised_query import Groups
from dpose.privacy.sections import EVERYBODY, GroupResult
from dpose.privacy.statement import PrivacyStatement
from dpose.runs.config import DEFAULT_TASK
from dpose.runs.reporting import make_report
from dpose.runs.tasks import ScoredData, on_device, task_entry, task_of
from dpose.runs.unit_scores import unit_joints
from dpose.training.folder import read_statement, reseal
from dpose.units import UnitDataset

FEWEST = 30
"""A group with fewer units is left out: its score is chance."""
UPRIGHT = 45.0
"""Degrees from the vertical that a trunk may lean and count as upright."""
SMALL = 40.0
"""Pixels of the picture as it was taken, from pelvis to thorax, below which somebody counts as small."""
SIZES = (f"trunk below {SMALL:g} pixels", f"trunk of {SMALL:g} pixels or more")
GROUPS: Groups = (("posture", ("upright", "not upright")), ("size", SIZES))
"""The groups that noise is drawn for, by attribute, whether anybody is in them or not."""


@dataclass(frozen=True)
class GroupScore:
    """How well two models do for one group.

    Attributes:
        group: Whom it is about, as in "age: child".
        units: How many.
        before: Share of visible joints found by the model before, %; None without such a model.
        after: By this one.
    """

    group: str
    units: int
    before: float | None
    after: float

    @property
    def loss(self) -> float | None:
        """Points lost."""
        return None if self.before is None else self.before - self.after


def evaluate_groups(
    folder: Path, data: str, before: Path | None, *, limit: int | None, console: Console
) -> list[GroupScore]:
    """The scores of the model in `folder` by groups of people, recorded in its statement, report and card.

    Args:
        folder: A run or model folder.
        data: A data spec of public data.
        before: A model to compare with: one trained without privacy, or the first weights.
        limit: Use only so many units, a fixed choice by name.
        console: Where progress goes.

    Returns:
        Everybody, then each group of at least `FEWEST` units.

    Raises:
        DposeError: the data are not public, or nothing in them tells people apart; or a model cannot score them.
    """
    entry = task_entry(task_of(folder) or DEFAULT_TASK)
    scored = entry.scored(folder, entry.load(folder), data, limit=limit, detections=None, console=console)
    if not scored.public or scored.task is None:
        raise DposeError(
            "groups-without-noise",
            "scores and sizes of groups are releases of their own, without noise here",
            f"--groups --data {scored.name}",
            "take public data, as synthetic:studio:test, or add noise: --epsilon",
        )
    groups = dict(_groups(scored.units))
    if len(groups) < 2:
        raise DposeError(
            "groups-missing",
            "nothing in these data tells groups of people apart",
            data,
            "take rendered people",
        )
    after = _found(scored, entry.load(folder), console)
    old = None if before is None else _found(scored, entry.load(before), console)
    found = [
        GroupScore(
            name, int(there.sum()), None if old is None else _percent(old[there]), _percent(after[there])
        )
        for name, there in groups.items()
    ]
    _record(folder, scored.name, found, console)
    return found


def group_table(found: Sequence[GroupScore]) -> Table:
    """The groups, and who loses most."""
    mean, *groups = found
    worst = max(groups, key=lambda group: group.loss or 0.0)
    caption = (
        f"Largest loss: {worst.group}, {worst.loss:.1f} points; everybody: {mean.loss:.1f}"
        if mean.loss is not None and worst.loss is not None
        else None
    )
    table = Table(title="Visible joints found, %", caption=caption)
    table.add_column("group")
    for name in ("units", "before", "after", "loss"):
        table.add_column(name, justify="right")
    for group in found:
        numbers = [
            "-" if value is None else f"{value:.1f}" for value in (group.before, group.after, group.loss)
        ]
        table.add_row(group.group, f"{group.units:,}", *numbers)
    return table


def _found(scored: ScoredData, model: torch.nn.Module, console: Console) -> NDArray[np.int64]:
    assert scored.task is not None
    return unit_joints(scored.task, on_device(model), scored.units, 10**9, console=console)


def _percent(counts: NDArray[np.int64]) -> float:
    return 100 * float(counts[:, 0].sum()) / max(1, int(counts.sum()))


def _groups(units: UnitDataset) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Who is in which group: by what is known of rendered people, by posture and by size."""
    said = [attributes_of(units, index) for index in range(len(units))]
    yield EVERYBODY, np.ones(len(units), np.bool_)
    for key in sorted({key for one in said for key in one}):
        for value in sorted({one[key] for one in said if key in one}):
            there = np.array([one.get(key) == value for one in said], np.bool_)
            if there.sum() >= FEWEST:
                yield f"{key}: {value}", there


def attributes_of(units: UnitDataset, index: int) -> dict[str, str]:
    """Which groups a unit is in, by attribute: a function of that unit alone."""
    target = units.load(index, np.random.default_rng(0))[0].target
    found = {}
    places = [MPII.joints.index(name) for name in ("pelvis", "thorax")]
    if len(target["keypoints"]) == len(MPII.joints) and (target["labelled"][places] > 0).all():
        x, y = np.diff(np.asarray(target["keypoints"], np.float64)[places], axis=0)[0]
        leans = np.degrees(np.arctan2(abs(x), -y))
        found["posture"] = "upright" if leans <= UPRIGHT else "not upright"
        taken = np.hypot(x, y) * np.sqrt(abs(np.linalg.det(np.asarray(target["inverse"])[:2, :2])))
        found["size"] = SIZES[int(taken >= SMALL)]
    rendered = re.match(r"(studio|ward)-(\w+)-(\d{5})", units.unit_id(index))
    if rendered:
        look, split, number = rendered.groups()
        found |= rendered_people().groups_at(look, split, int(number))
    return found


def members_of(units: UnitDataset, groups: Groups) -> NDArray[np.int64]:
    """By each attribute the place of each unit's group among all groups, (n, A); -1 for none."""
    rows = []
    for index in range(len(units)):
        said, row, at = attributes_of(units, index), [], 0
        for attribute, values in groups:
            value = said.get(attribute)
            row.append(at + values.index(value) if value in values else -1)
            at += len(values)
        rows.append(row)
    return np.asarray(rows, np.int64).reshape(len(units), len(groups))


def _record(folder: Path, data: str, found: Sequence[GroupScore], console: Console) -> None:
    """Put the results into statement and card, in place of earlier ones, and seal the folder again."""
    statement = read_statement(folder)
    if statement is None or not (folder / "ledger.jsonl").exists():
        console.print("Not recorded: the folder has no statement, or no ledger", highlight=False)
        return
    results = tuple(
        GroupResult(
            group.group,
            str(group.units),
            f"visible joints found on {data}, %",
            "" if group.before is None else f"{group.before:.1f}",
            f"{group.after:.1f}",
        )
        for group in found
    )

    def restated(_: Ledger, before: PrivacyStatement) -> PrivacyStatement:
        return replace(before, results=results)

    reseal(folder, restated)
    if (folder / "report.html").exists():
        make_report(folder, console=console)
