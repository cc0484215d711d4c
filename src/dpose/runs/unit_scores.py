"""What a model scores on each unit by itself: what every noised score is taken from, and that of a trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from dpose.errors import DposeError
from dpose.privacy.events import SampledGaussian
from dpose.privacy.noise import AesNoise, Key, Stream
from dpose.privacy.noised_query import noised_mean
from dpose.privacy.selection import smallest
from dpose.training.loader import Loader
from dpose.units import (
    MAX_VIEWS,
    CanonicalUnits,
    CountedResult,
    Result,
    Task,
    UnitDataset,
    View,
    WrappedUnits,
)

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

    Raises:
        DposeError: the task's results count nothing.
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
    """A result's counts of things found and things there, (K, 2).

    Raises:
        DposeError: it counts nothing.
    """
    if not isinstance(result, CountedResult):
        raise DposeError(
            "joints-to-pool-missing",
            "has no joints to pool",
            "--pooled",
            "leave it out: the mean over units has a price too",
        )
    return result.hits()
