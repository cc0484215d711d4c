"""Canaries of a training run: planted among its units before the first step, and scored in the model that it released.

    planted = plant(found, choice, out, resume=False, console=console)
    train(planted.task, model, private=planted.units, ..., options=RunOptions(canaries=planted.opening))
    canary_scores(load(folder), opening, task) - opening.before

What canaries are made from has randomness of its own, from the operating system: no coin and no private picture has a
part in it.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from dpose.errors import DposeError
from dpose.privacy.canaries import CanaryKind, Opening, kept_opening
from dpose.privacy.entries import EntryType, read_ledger
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.privacy.protected import digest_of_targets
from dpose.privacy.tradeoff import Floats
from dpose.runs.config import CanaryChoice
from dpose.runs.tasks import PreparedRun, TaskEntry, task_entry
from dpose.training.canaries import (
    NEVER_USED,
    CanaryTask,
    CanaryUnits,
    GradientCanaries,
    InputCanaries,
    blank_like,
    view_losses,
)
from dpose.training.distributed import ProcessGroup, process_group
from dpose.training.gradients import trainable_params
from dpose.units import Task, UnitDataset, View

SPARSE = 20
"""Gradient canaries push at most one in so many weights of a parameter, where there is one that is large enough."""


@dataclass(frozen=True)
class PlantedRun:
    """What a run with canaries trains.

    Attributes:
        task: Knows the canaries' loss.
        units: The real units, then the canaries.
        opening: Of the commitment to which of them are in.
    """

    task: Task
    units: UnitDataset
    opening: Opening


def plant(found: PreparedRun, choice: CanaryChoice, folder: Path, *, resume: bool, console: Console) -> PlantedRun:
    """Put canaries among the units of a prepared run.

    **Guarantee.** Canaries are fixed by randomness that no private picture has a part in, and a run's guarantee holds
    for each unit whatever the other units are: for the real ones it is the same with canaries
    (docs/proofs/auditing.md).

    Args:
        found: The run.
        choice: Which canaries.
        folder: The run folder; a run that goes on keeps the canaries that it began with.
        resume: Whether the folder holds a run to go on with.
        console: Where the commitment is printed: the auditor should have it before the model is trained.
    """
    place = process_group()
    opening = None
    if place.first:
        opening = _begun(folder) if resume else None
        opening = opening or _drawn(found, choice)
    opening = _shared(opening, place)
    console.print(
        f"{choice.count:,} {choice.kind} canaries among the units. The commitment to which of them are in: "
        f"{opening.commitment}\nGive it to the auditor of the model now, before it is trained.",
        highlight=False,
        soft_wrap=True,
    )
    plan, included = found.config.plan, np.array(opening.coins)
    name = f"{opening.commitment} "
    if opening.kind == "gradient":
        blank = _blank(found.units)
        parameter, coordinates = _coordinates(opening.made_from)
        canaries = GradientCanaries(included, blank, plan.clip, plan.relation, coordinates)
        return PlantedRun(CanaryTask(found.task, parameter), CanaryUnits(found.units, canaries, name=name), opening)
    views = _views(task_entry(found.config.task), found.model, opening.made_from, len(included))
    shown = InputCanaries(included, views[: len(included)])
    return PlantedRun(CanaryTask(found.task), CanaryUnits(found.units, shown, name=name), opening)


def canary_scores(
    model: torch.nn.Module, entry: TaskEntry, kind: CanaryKind, made_from: Mapping[str, Any], count: int
) -> Floats:
    """What the weights say of every canary, and of others that are never in; it falls where one was learnt.

    Args:
        model: The first weights or the released ones.
        entry: Its task.
        kind: Of the canaries.
        made_from: `Opening.made_from`.
        count: How many canaries there are.

    Returns:
        (N,) float64, the `count` canaries first: of gradient canaries the weights that they push, of input canaries the
        task's loss.
    """
    if kind == "input":
        views = _views(entry, model, made_from, count)
        assert entry.canary_views is not None
        task, _ = entry.canary_views(model, np.random.default_rng(0), 0)
        return np.asarray(view_losses(task, model, views))
    name, coordinates = _coordinates(made_from)
    weights = dict(model.named_parameters()).get(name)
    if weights is None or max(coordinates) >= weights.numel():
        raise DposeError("canary-weights-missing", f"has no weights {name} that canaries could push", "the model")
    return np.asarray(weights.detach().flatten()[coordinates].double().cpu().numpy(), np.float64)


def _drawn(found: PreparedRun, choice: CanaryChoice) -> Opening:
    entry = task_entry(found.config.task)
    made_from = (
        _room(trainable_params(found.model), choice.count)
        if choice.kind == "gradient"
        else _pictures(entry, found.model, choice.count)
    )
    before = canary_scores(found.model, entry, choice.kind, made_from, choice.count)
    return Opening.drawn(choice.kind, choice.count, made_from, before.tolist())


def _room(params: Mapping[str, torch.Tensor], count: int) -> dict[str, Any]:
    """The weights that gradient canaries push, and as many again and more that none does."""
    sizes = sorted((p.numel(), name) for name, p in params.items())
    size, name = next((one for one in sizes if one[0] >= SPARSE * count), sizes[-1])
    if size < 2 * count:
        raise DposeError(
            "canary-weights-too-few",
            f"the largest trainable parameter has {size:,} weights, too few for {count:,} gradient canaries",
            "canaries.count",
            f"plant at most {size // 2:,}",
        )
    rng = np.random.default_rng(secrets.randbits(256))
    drawn = rng.permutation(size)[: min(size, count + max(count, NEVER_USED))]
    return {"parameter": name, "coordinates": drawn.tolist()}


def _coordinates(made_from: Mapping[str, Any]) -> tuple[str, list[int]]:
    try:
        name, coordinates = str(made_from["parameter"]), [int(one) for one in made_from["coordinates"]]
    except (KeyError, TypeError, ValueError) as error:
        raise DposeError(
            "opening-without-weights", "does not say which weights its canaries push", "the opening"
        ) from error
    if not coordinates or min(coordinates) < 0 or len(set(coordinates)) < len(coordinates):
        raise DposeError("opening-weights-invalid", "names weights that are none, or one twice", "the opening")
    return name, coordinates


def _pictures(entry: TaskEntry, model: torch.nn.Module, count: int) -> dict[str, Any]:
    made_from = {"seed": secrets.token_hex(16)}
    views = _rendered(entry, model, made_from, count)
    return {**made_from, "sha256": _digest(views)}


def _views(entry: TaskEntry, model: torch.nn.Module, made_from: Mapping[str, Any], count: int) -> list[View]:
    views = _rendered(entry, model, made_from, count)
    if _digest(views) != made_from.get("sha256"):
        raise DposeError(
            "canary-pictures-differ",
            "the canaries' pictures are not rendered as they were before training",
            "the opening",
            "audit with the version of dpose that trained the model",
        )
    return views


def _rendered(entry: TaskEntry, model: torch.nn.Module, made_from: Mapping[str, Any], count: int) -> list[View]:
    """The canaries' pictures with their labels, and as many that are never in."""
    if entry.canary_views is None:
        raise DposeError(
            "canary-kind-unsupported",
            f"no pictures are made for canaries of {entry.name}",
            "canaries.kind",
            "use gradient",
        )
    key = Key.from_seed(int(str(made_from["seed"]), 16))
    rng = AesNoise(key).stream(Purpose.INIT, 0, b"canaries").generator()
    _, views = entry.canary_views(model, rng, 2 * count)
    if len(views) < 2 * count:
        raise DposeError(
            "canaries-too-many",
            f"there are {len(views):,} pictures for canaries, and as many that stay out are needed",
            "canaries.count",
            f"plant at most {len(views) // 2:,}, or use canaries.kind=gradient",
        )
    return views


def _digest(views: Sequence[View]) -> str:
    total = hashlib.sha256(digest_of_targets(views).encode())
    for view in views:
        total.update(hashlib.sha256(np.ascontiguousarray(view.image).tobytes()).digest())
    return total.hexdigest()


def _blank(units: UnitDataset) -> View:
    """A view of the units' shapes without content; of a unit nothing but shapes is taken."""
    return blank_like(units.load(0, np.random.default_rng(0))[0])


def _begun(folder: Path) -> Opening | None:
    """The opening of a run that goes on; None if it died before its commitment."""
    ledger = folder / "ledger.jsonl"
    if not ledger.exists():
        return None
    entries = read_ledger(ledger)
    if not any(entry.type is EntryType.CANARIES for entry in entries):
        return None
    opening = kept_opening(entries[0].run_id)
    if opening is None:
        raise DposeError(
            "opening-missing",
            "the opening of its commitment to canaries is not on this machine",
            str(folder),
            "go on where it began",
        )
    return opening


def _shared(opening: Opening | None, place: ProcessGroup) -> Opening:
    """The first process's opening, in every process."""
    content = opening.to_json().encode() if opening else b""
    size = place.highest(len(content))
    received = place.bytes_from_first(content.ljust(size))
    return Opening.of(json.loads(received), "the first process's canaries")
