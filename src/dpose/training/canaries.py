"""Canaries: units that are put into the data to be looked for afterwards, through the same path as every other unit.

Each canary is in on the toss of its own coin, before training. One that is not in stays in the dataset and contributes
nothing: that is the zero-out relation, word for word, and n does not change.

* A **gradient canary** pushes one parameter of its own that no other unit's loss depends on. Its loss is linear in that
  parameter and steep, so its clipped gradient is the clipping norm times a unit vector: the largest contribution that
  the mechanism allows. The adversary sees every noisy update (white box).
* An **input canary** is a picture without people, with wrong labels, trained on by the task's own loss. The adversary
sees
  the final weights (black box).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpose.errors import DposeError
from dpose.privacy.neighbours import Relation
from dpose.privacy.protected import declared_copies, digest_of_targets, label_digest
from dpose.training.clip import Clip
from dpose.training.gradients import trainable_params
from dpose.training.methods import METHODS
from dpose.training.plan import TrainingPlan
from dpose.units import (
    FiledUnits,
    KnownPictures,
    Precision,
    Task,
    Tensors,
    UnitDataset,
    View,
    WrappedTask,
    fingerprints_of,
    is_mixed,
    most_views,
)

PARAMETER = "audit_canaries"
"""Name of the parameter that gradient canaries push; (canaries + never used,) float32, zero at first."""
STEEPNESS = 10.0
"""A gradient canary's norm before clipping, in clipping norms: without the clip it would stand out."""
NEVER_USED = 10_000
"""Coordinates that no canary pushes. To the adversary they look like canaries that are not in."""

Coins = NDArray[np.bool_]


def check_plantable(plan: TrainingPlan, seed: int | None) -> None:
    """Refuse canaries in a run whose claim they could not test.

    Raises:
        DposeError: the plan claims nothing, hands the noised sum on in another form, or counts units that must stay
            uncounted; or the run is seeded.
    """
    known = ", ".join(name for name, method in METHODS.items() if method.auditable)
    if not plan.kind.auditable:
        raise DposeError(
            "method-without-canaries", f"canaries show nothing of {plan.method}", "canaries.count", f"choose {known}"
        )
    if plan.relation is Relation.ADD_REMOVE:
        raise DposeError(
            "canaries-of-secret-number",
            "canaries are zeroed out or replaced, so their number is public",
            "canaries.count",
            "use zero-out",
        )
    if seed is not None:
        raise DposeError(
            "canaries-with-seed",
            "a seeded run claims nothing that an audit could test",
            "canaries.count",
            "leave seed out",
        )


def toss_coins(count: int, rng: np.random.Generator) -> Coins:
    """`count` independent fair coins, true where a canary is in."""
    return np.asarray(rng.integers(2, size=count), bool)


class CanaryTask(WrappedTask):
    """A task that also knows canaries (`dpose.units.Task`).

    A view's target holds three more scalars: "presence", by which the task's own loss is multiplied; "canary", the
    coordinate of `PARAMETER` that the view pushes, -1 for none; and "push", by how much.

    Args:
        task: The task itself.
        parameter: Whose coordinates gradient canaries push: one that nothing else depends on, or one of the model's.
    """

    def __init__(self, task: Task, parameter: str = PARAMETER) -> None:
        super().__init__(task)
        self.parameter = parameter
        self.precision: Precision = "bf16" if is_mixed(task) else "float32"

    def loss(self, model: torch.nn.Module, params: Tensors, inputs: Tensor, targets: Tensors) -> Tensor:
        """(V,): the task's own loss times presence, or for a gradient canary push times its coordinate."""
        own = self.task.loss(model, params, inputs, targets) * targets["presence"]
        if self.parameter not in params:
            return own
        coordinate = targets["canary"]
        pushed = params[self.parameter].flatten()[coordinate.clamp_min(0)] * targets["push"]
        return torch.where(coordinate < 0, own, pushed.to(own.dtype))


@dataclass(frozen=True)
class GradientCanaries:
    """Canaries that push a coordinate each.

    Attributes:
        included: (m,), the coins.
        blank: What a canary shows: a view of the data's shape without content.
        clip: The plan's.
        relation: Under replacement a canary that is not in is replaced by its opposite, which moves the sum by twice
            the clipping norm; otherwise by nothing.
        coordinates: (m,), which coordinate of the task's parameter each pushes; the first m when None.
    """

    included: Coins
    blank: View
    clip: Clip
    relation: Relation = Relation.ZERO_OUT
    coordinates: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.included)

    def view(self, index: int) -> View:
        """Canary `index` as the loader sees it."""
        absent = -1.0 if self.relation is Relation.REPLACE else 0.0
        push = STEEPNESS * self.clip.norm * (1.0 if self.included[index] else absent)
        coordinate = index if self.coordinates is None else self.coordinates[index]
        return marked_view(self.blank, canary=coordinate, push=push)


@dataclass(frozen=True)
class InputCanaries:
    """Canaries that show a picture with wrong labels.

    Attributes:
        included: (m,), the coins.
        views: One a canary.
    """

    included: Coins
    views: Sequence[View]

    def __len__(self) -> int:
        return len(self.included)

    def view(self, index: int) -> View:
        """Canary `index` as the loader sees it."""
        return marked_view(self.views[index], presence=float(self.included[index]))


class CanaryUnits:
    """The real units, then the canaries (`dpose.units.UnitDataset`).

    Args:
        real: The units of the audited run, copies merged (`dpose.privacy.protected.protect`).
        canaries: What is added to them.
        name: Tells the canaries of one run from another's.
        blank: Stands in for every real unit, with presence 0, where the real ones must not be read: in controls and
            under planted faults, which have no guarantee.
    """

    def __init__(
        self, real: UnitDataset, canaries: GradientCanaries | InputCanaries, blank: View | None = None, name: str = ""
    ) -> None:
        self.real, self.canaries, self.blank, self.name = real, canaries, blank, name
        self.selection = getattr(real, "selection", None)
        self.most_views = most_views(real)

    @property
    def unit(self) -> str:
        """The real units'."""
        return self.real.unit

    def copies(self, index: int) -> tuple[str, ...]:
        """The real unit's own; a canary and a blank unit are no copies."""
        if index < len(self.real) and self.blank is None:
            return declared_copies(self.real, index)
        return (self.unit_id(index),)

    def label_digest(self, index: int) -> str:
        """The real unit's own, or of the marks."""
        own = index - len(self.real)
        if own >= 0:
            return digest_of_targets([self.canaries.view(own)])
        return label_digest(self.real, index) if self.blank is None else "blank"

    def __len__(self) -> int:
        return len(self.real) + len(self.canaries)

    def unit_id(self, index: int) -> str:
        """The real unit's own name, or "canary-N"."""
        own = index - len(self.real)
        return self.real.unit_id(index) if own < 0 else f"canary-{own:05d}"

    def content_hashes(self, index: int) -> tuple[str, ...]:
        """The real unit's own, or of the canary's name and coin: the other coin is another dataset."""
        own = index - len(self.real)
        if own >= 0:
            word = f"canary {self.name}{own} {bool(self.canaries.included[own])}"
            return (hashlib.sha256(word.encode()).hexdigest(),)
        if self.blank is not None:
            return (hashlib.sha256(b"blank").hexdigest(),)
        return self.real.content_hashes(index)

    def file_hashes(self, index: int) -> tuple[str, ...]:
        """The real unit's own; a canary has no file."""
        if index >= len(self.real) or self.blank is not None or not isinstance(self.real, FiledUnits):
            return ()
        return self.real.file_hashes(index)

    def fingerprints(self, index: int) -> NDArray[np.uint8]:
        """The real unit's own; a canary has none, and neither has a blank unit."""
        known = index < len(self.real) and self.blank is None
        return fingerprints_of(self.real, index) if known else np.zeros((0, 16), np.uint8)

    def subjects(self, index: int) -> tuple[str, ...]:
        """The people on the real unit; a canary shows none."""
        known = index < len(self.real) and self.blank is None and isinstance(self.real, KnownPictures)
        return cast(KnownPictures, self.real).subjects(index) if known else ()

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """The unit's views with the marks that `CanaryTask` reads."""
        own = index - len(self.real)
        if own >= 0:
            return [self.canaries.view(own)]
        if self.blank is not None:
            return [marked_view(self.blank, presence=0.0)]
        return [marked_view(view) for view in self.real.load(index, rng)]


def marked_view(view: View, *, presence: float = 1.0, canary: int = -1, push: float = 0.0) -> View:
    """`view` with the marks that `CanaryTask` reads."""
    marks: dict[str, NDArray[Any]] = {
        "presence": np.array(presence, np.float32),
        "canary": np.array(canary, np.int64),
        "push": np.array(push, np.float32),
    }
    return replace(view, target={**view.target, **marks})


def add_parameter(model: torch.nn.Module, canaries: int, never_used: int = NEVER_USED) -> torch.nn.Parameter:
    """Give `model` the parameter that gradient canaries push, zero, on the device of the others."""
    like = next(model.parameters())
    parameter = torch.nn.Parameter(torch.zeros(canaries + never_used, device=like.device))
    model.register_parameter(PARAMETER, parameter)
    return parameter


def blank_like(view: View) -> View:
    """A view of the same shapes and labels without content: all zero."""
    target = {name: np.zeros_like(value) for name, value in view.target.items()}
    return View(np.zeros_like(view.image), target)


def wrong_labels(view: View, key: str, high: float, rng: np.random.Generator) -> View:
    """The view with `target[key]` replaced by uniform draws from [0, high), of the same shape and type."""
    old = view.target[key]
    drawn = rng.uniform(0, high, np.shape(old)).astype(old.dtype)
    return replace(view, target={**view.target, key: drawn})


@torch.no_grad()
def view_losses(task: Task, model: torch.nn.Module, views: Sequence[View], at_once: int = 32) -> NDArray[np.float64]:
    """The task's loss of each view in evaluation mode, (N,) float64."""
    training = model.training
    # out of and into training mode: some backbones cache tensors in evaluation mode
    model.train()
    model.eval()
    device = next(model.parameters()).device
    losses = []
    try:
        params = {name: p for name, p in trainable_params(model).items() if name != PARAMETER}
        for start in range(0, len(views), at_once):
            batch = task.collate([[view] for view in views[start : start + at_once]]).to(device)
            targets: Mapping[str, torch.Tensor] = {name: t[:, 0] for name, t in batch.targets.items()}
            losses.append(task.loss(model, params, batch.inputs[:, 0], targets).double().cpu().numpy())
    finally:
        model.train(training)
    return np.concatenate(losses)
