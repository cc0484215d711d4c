"""Who pays: how well a model does for each group of people, before and after private training.

Noise and clipping cost those most of whom there are few. The mean over everybody hides that, so the largest loss of any
group stands beside it.

**Guarantee.** Groups are scored here on public data alone. On private data a group's score is a release, and so is its
size: both are noised there (`dpose.runs.noised_score`).

What a model scores on each unit by itself: what every noised score is taken from, and that of a trial.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from dpose.errors import DposeError
from dpose.extensions import rendered_people
from dpose.pose.skeletons import MPII
from dpose.privacy.events import SampledGaussian
from dpose.privacy.ledger import Ledger
from dpose.privacy.noise import AesNoise, Key, Stream
from dpose.privacy.noised_query import Groups, noised_mean
from dpose.privacy.sections import EVERYBODY, GroupResult
from dpose.privacy.selection import smallest
from dpose.privacy.statement import PrivacyStatement
from dpose.runs.config import DEFAULT_TASK
from dpose.runs.reporting import make_report
from dpose.runs.scored import reserve_score
from dpose.runs.tasks import ScoredData, on_device, task_entry, task_of
from dpose.training.folder import read_statement, reseal
from dpose.training.loader import Loader
from dpose.units import MAX_VIEWS, CanonicalUnits, CountedResult, Result, Task, UnitDataset, View, WrappedUnits

T = TypeVar("T")


def unit_scores(
    task: Task, model: torch.nn.Module, dataset: UnitDataset, *, console: Console | None = None
) -> NDArray[np.float64]:
    """The score of each unit by itself, (n,) in [0, 1]: its metric's main number over the unit's views.

    For PCKh the share of the unit's visible joints that are found. A unit where nothing is there to score has score 0.

    **Guarantee.** A unit's score depends on that unit and the model alone: each unit is computed in a batch of its own,
    and what `load` draws is drawn alike for every unit. It is as good as the arithmetic: the same unit must give the
    same score whatever was computed before it (docs/proofs/scores.md).

    Args:
        task: Gives the metric and collates views.
        model: On its device.
        dataset: Units that are not augmented, copies merged (`dpose.privacy.protected.protect`).
        console: Where progress goes, which counts the units; nowhere when None.
    """

    def share(outputs: Any, targets: dict[str, torch.Tensor], _: str) -> float:
        metric = task.metric()
        metric.update(outputs, targets)
        return main_share(metric.compute())

    return np.array(list(_each_unit(task, model, dataset, share, console)), np.float64)


def noised_trial_score(
    task: Task, model: torch.nn.Module, units: UnitDataset, event: SampledGaussian, stream: Stream
) -> float:
    """The mean of `unit_scores` with Gaussian noise (`dpose.privacy.noised_query.noised_mean`): which trial is best.

    Args:
        task: Gives the metric.
        model: On its device.
        units: Private units that the model has not learnt from; their canonical views are scored, where they have some.
        event: One release with q = 1; its sensitivity is at least 1/n.
        stream: A stream that nothing else draws from.
    """
    return noised_mean(unit_scores(task, model, _Canonical(units)), event, stream)


def unit_joints(
    task: Task, model: torch.nn.Module, dataset: UnitDataset, joints: int, *, console: Console | None = None
) -> NDArray[np.int64]:
    """Number of found and of missed joints of each unit, (n, 2); at most `joints` of them together.

    Which of a unit's visible joints count is a fixed order of hashes of the unit's name and the places of view and
    joint, so every joint has the same chance and no other unit plays a part.

    **Guarantee.** As `unit_scores`; a row's sum is at most `joints`.

    Args:
        task: Its results must be `dpose.units.CountedResult`.
        model: On its device.
        dataset: As for `unit_scores`.
        joints: J, at least 1.
        console: As for `unit_scores`.
    """

    def counted(outputs: Any, targets: dict[str, torch.Tensor], name: str) -> tuple[int, int]:
        found: dict[str, bool] = {}
        for view in range(len(next(iter(targets.values())))):
            metric = task.metric()
            metric.update(_rows(outputs, view), {key: t[view : view + 1] for key, t in targets.items()})
            hits = counts_of(metric.compute())
            for joint, (hit, visible) in enumerate(hits):
                if visible:
                    found[f"{name} {view} {joint}"] = bool(hit)
        return capped(found, joints)

    return np.array(list(_each_unit(task, model, dataset, counted, console)), np.int64).reshape(-1, 2)


def capped(found: dict[str, bool], joints: int) -> tuple[int, int]:
    """How many of at most `joints` things were found and how many missed; which count is decided by their names."""
    names = list(found)
    chosen = [found[names[i]] for i in smallest(names, joints)]
    return sum(chosen), len(chosen) - sum(chosen)


def main_share(result: Result) -> float:
    """A result's main number as a share in [0, 1]; 0 where nothing was there to score."""
    values = result.to_dict()
    value = values["columns"][values["main"]]
    if value is None or not np.isfinite(value):
        return 0.0
    return float(min(max(value / (100 if values["unit"] == "%" else 1), 0.0), 1.0))


class _FixedDraws(WrappedUnits):
    """Units whose load draws the same for each of them: a draw by place would move where a unit before it goes."""

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        own = np.random.default_rng(0)
        views = self.dataset.load(index, own)
        if len(views) > MAX_VIEWS:
            views = [views[i] for i in sorted(own.choice(len(views), MAX_VIEWS, replace=False))]
        return views


class _Canonical(WrappedUnits):
    """The same units with canonical views, where they have some."""

    def load(self, index: int, rng: Any) -> list[View]:
        if isinstance(self.dataset, CanonicalUnits):
            return self.dataset.canonical(index)
        return self.dataset.load(index, rng)


@torch.no_grad()
def _each_unit(
    task: Task,
    model: torch.nn.Module,
    dataset: UnitDataset,
    of: Callable[[Any, dict[str, torch.Tensor], str], T],
    console: Console | None,
) -> Iterator[T]:
    """`of` each unit's outputs, targets and name, in order; every unit in a batch of its own."""
    device = next(model.parameters()).device
    loader = Loader(task, _FixedDraws(dataset), AesNoise(Key.from_seed(0)))
    training = model.training
    # out of and into training mode, as `metric_of_views` does it
    model.train()
    model.eval()
    console = console or Console(quiet=True)
    try:
        with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
            shown = bar.add_task("evaluating", total=len(dataset))
            for index, views in enumerate(loader.units(range(len(dataset)), 0)):
                batch = task.collate([views])
                there = (batch.weights > 0).flatten()
                inputs = batch.inputs.flatten(0, 1)[there].to(device)
                targets = {name: t.flatten(0, 1)[there] for name, t in batch.targets.items()}
                yield of(model(inputs), targets, dataset.unit_id(index))
                bar.advance(shown)
    finally:
        model.train(training)
        loader.close()


def _rows(outputs: Any, view: int) -> Any:
    if isinstance(outputs, torch.Tensor):
        return outputs[view : view + 1]
    return tuple(part[view : view + 1] for part in outputs)


def counts_of(result: Result) -> NDArray[np.int64]:
    """A result's counts of things found and things there, (K, 2)."""
    if not isinstance(result, CountedResult):
        raise DposeError(
            "joints-to-pool-missing",
            "has no joints to pool",
            "--pooled",
            "leave it out: the mean over units has a price too",
        )
    return result.hits()


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
    reserve_score(
        folder,
        read_statement(folder),
        scored.units,
        name=scored.name,
        public=True,
        same=scored.same,
        unit=scored.unit,
        console=console,
    )
    groups = dict(_groups(scored.units))
    if len(groups) < 2:
        raise DposeError(
            "groups-missing", "nothing in these data tells groups of people apart", data, "take rendered people"
        )
    after = _found(scored, entry.load(folder), console)
    old = None if before is None else _found(scored, entry.load(before), console)
    found = [
        GroupScore(name, int(there.sum()), None if old is None else _percent(old[there]), _percent(after[there]))
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
        numbers = ["-" if value is None else f"{value:.1f}" for value in (group.before, group.after, group.loss)]
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
