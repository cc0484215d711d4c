"""What a guarantee protects, and what a task must offer: the two protocols every room speaks.

A *unit* is what the guarantee protects: one image, one person's images, one video. A unit has one or more
*views*: the crops of its people, augmented copies, clips of the video. The engine never looks inside a view;
it asks a `Task` for a batch and for a loss per view, and bounds what each *unit* contributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
Tensors = Mapping[str, "torch.Tensor"]
"""Tensors by name."""

MAX_VIEWS = 8
"""A unit with more views than this gives a random `MAX_VIEWS` of them (DESIGN.md's bound on padding)."""


class Unit(StrEnum):
    """What one unit of some data is, in the words of statements."""

    IMAGE = "image"
    """A picture with everybody in it."""
    CROP = "crop"
    """One person in one picture."""
    SUBJECT = "subject"
    """All pictures of one person."""
    VIDEO = "video"
    """One recording."""
    PIXEL = "pixel"
    """Pixels of a picture or a clip: what releases protect."""
    STAY = "stay"
    """What one person shows while in view without a break: what counts protect, some a day."""


@dataclass(frozen=True)
class View:
    """One look at a unit.

    Attributes:
        image: uint8, (H, W, 3) RGB, or (T, H, W, 3) for a clip.
        target: The labels, each an array; the task that made them reads them.
        weight: Relative weight in the unit's mean, > 0.
    """

    image: NDArray[np.uint8]
    target: Mapping[str, NDArray[Any]]
    weight: float = 1.0


@runtime_checkable
class UnitDataset(Protocol):
    """Private or public data, unit by unit. Indices run from 0 to `len(self) - 1`.

    Data that were selected from more (`limit`) say how in an attribute `selection` (`dpose.privacy.selection`).
    """

    @property
    def unit(self) -> str:
        """What a unit is, a word of `Unit`: a property of the data, which a plan can only repeat."""

    def __len__(self) -> int:
        """Number of units."""

    def unit_id(self, index: int) -> str:
        """A name for the unit, unique in the dataset (a file name, a subject)."""

    def content_hashes(self, index: int) -> tuple[str, ...]:
        """One hash for each image of the unit; equal content gives equal hashes across datasets."""

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """The unit's views, at least one. All randomness (augmentation, choice of views) comes from `rng`."""


@runtime_checkable
class KnownPictures(UnitDataset, Protocol):
    """Units that tell more of their pictures, so that copies and people are found across datasets."""

    def fingerprints(self, index: int) -> NDArray[np.uint8]:
        """`dpose.media.fingerprint` of each image of the unit, (images, 16)."""

    def subjects(self, index: int) -> tuple[str, ...]:
        """Names of the people in the unit, where they are known; equal names are the same person across datasets."""


@runtime_checkable
class FiledUnits(UnitDataset, Protocol):
    """Units that the account knows by more than their contents: by their files, since decoders differ."""

    def file_hashes(self, index: int) -> tuple[str, ...]:
        """SHA-256 of each file that holds pictures of the unit, and of a video also its frames', hex."""


@runtime_checkable
class LabelledUnits(UnitDataset, Protocol):
    """Units that can digest their labels without making views of them."""

    def label_digest(self, index: int) -> str:
        """A digest of all that the unit's labels, boxes and weights hold and training may read."""


@runtime_checkable
class CopiedUnits(UnitDataset, Protocol):
    """Units that declare their identity: which others are the same unit again."""

    def copies(self, index: int) -> tuple[str, ...]:
        """Names of what the unit is; units that share one are one unit. Fixed before any data are seen."""


@runtime_checkable
class CanonicalUnits(UnitDataset, Protocol):
    """Units that can tell their content from its augmentation: what a public view is made from."""

    def canonical(self, index: int) -> list[View]:
        """All views of the unit without augmentation: always the same, as many as there are."""

    def augmented(self, view: View, rng: np.random.Generator) -> View:
        """A canonical view (its picture or another of the same size, its labels) under one random draw.

        What is drawn may depend on `rng` alone, never on the picture.
        """


Draw = Callable[[], np.random.Generator]
"""Gives a unit's generator, the same at every call, and makes it at the first."""


@dataclass(frozen=True)
class UnmadeView:
    """A view that is not made yet.

    Attributes:
        person: Whose, by a number that `Patches` gave.
        numbers: What was drawn for it, float64; None for nothing.
    """

    person: int
    numbers: NDArray[np.float64] | None


@dataclass(frozen=True)
class Warps:
    """How to make V views of patches, which are parts of pictures.

    Attributes:
        patches: (V, 2) int64, a person's number, and which of that person's patches.
        matrices: (V, 2, 3) float64, from the view to the patch; bilinear, black outside.
        colours: (V, 3, 4) float32, a matrix of colours with the shift last, for the rounded view; or None.
        targets: Each (V, ...): the views' labels.
    """

    patches: NDArray[np.int64]
    matrices: NDArray[np.float64]
    colours: NDArray[np.float32] | None
    targets: Mapping[str, NDArray[Any]]


class Patches(Protocol):
    """The pictures of some units, cut to what their views may reach, and views as warps of them.

    The views of `looks` are those of `load` with the same generator, but for rounding of colours.

    Attributes:
        view_size: (H, W) of every view.
    """

    view_size: tuple[int, int]

    def of(self, index: int) -> dict[int, list[NDArray[np.uint8]]]:
        """The patches, (h, w, 3), of each person of a unit, by number. Read once; safe to share between threads."""

    def looks(self, index: int, draw: Draw) -> list[UnmadeView]:
        """What `load` would draw of a unit."""

    def warps(self, looks: Sequence[UnmadeView]) -> Warps:
        """How the views are made, of units whose patches were read."""


@runtime_checkable
class PatchedUnits(UnitDataset, Protocol):
    """Units whose views are warps of their pictures, so that a device which holds those can make views itself."""

    def patches(self) -> Patches:
        """These units' patches, none of them read yet."""


@runtime_checkable
class CombinedUnits(UnitDataset, Protocol):
    """Units whose views are all those of some units of other data, as `views_of` says."""

    @property
    def dataset(self) -> UnitDataset:
        """The other data."""

    def entries(self, index: int, draw: Draw | None = None) -> Sequence[int]:
        """The units whose views a unit has at one load, in order; without `draw` all that it may have."""


def some_of(items: Sequence[T], draw: Draw) -> list[T]:
    """All items, or a random `MAX_VIEWS` of them, in order."""
    if len(items) <= MAX_VIEWS:
        return list(items)
    return [items[int(i)] for i in sorted(draw().choice(len(items), MAX_VIEWS, replace=False))]


def views_of(data: CombinedUnits, index: int, rng: np.random.Generator) -> list[View]:
    """`load` of combined units."""
    return [view for i in data.entries(index, lambda: rng) for view in data.dataset.load(i, rng)]


def fingerprints_of(data: UnitDataset, index: int) -> NDArray[np.uint8]:
    """The fingerprints of a unit, (images, 16); (0, 16) where the data tell none."""
    return data.fingerprints(index) if isinstance(data, KnownPictures) else np.zeros((0, 16), np.uint8)


class WrappedUnits:
    """The units of another dataset with other views: what and how many they are, their names and contents are its own.

    Args:
        dataset: The units.
    """

    def __init__(self, dataset: UnitDataset) -> None:
        self.dataset = dataset

    @property
    def unit(self) -> str:
        """What a unit is."""
        return self.dataset.unit

    def __len__(self) -> int:
        return len(self.dataset)

    def unit_id(self, index: int) -> str:
        """The unit's own name."""
        return self.dataset.unit_id(index)

    def content_hashes(self, index: int) -> tuple[str, ...]:
        """The unit's own."""
        return self.dataset.content_hashes(index)

    def file_hashes(self, index: int) -> tuple[str, ...]:
        """The unit's own; nothing where the dataset knows no files."""
        return self.dataset.file_hashes(index) if isinstance(self.dataset, FiledUnits) else ()

    def fingerprints(self, index: int) -> NDArray[np.uint8]:
        """The unit's own; none if the dataset tells none."""
        return fingerprints_of(self.dataset, index)

    def subjects(self, index: int) -> tuple[str, ...]:
        """People in the unit; none if the dataset names none."""
        return self.dataset.subjects(index) if isinstance(self.dataset, KnownPictures) else ()


@dataclass(frozen=True)
class UnitBatch:
    """U units of V views each, padded; a padded view has weight 0.

    Attributes:
        inputs: (U, V, C, H, W) or (U, V, C, T, H, W); uint8 or float.
        targets: Each (U, V, ...).
        weights: (U, V) float32, >= 0; every unit has at least one positive weight, or is empty (`pad_units`).
    """

    inputs: torch.Tensor
    targets: dict[str, torch.Tensor]
    weights: torch.Tensor

    def __len__(self) -> int:
        return int(self.inputs.shape[0])

    @property
    def present(self) -> torch.Tensor:
        """(U,) bool, which units are not empty."""
        return self.weights.sum(1) > 0

    @property
    def parts(self) -> tuple[torch.Tensor, dict[str, torch.Tensor], torch.Tensor]:
        """Inputs, targets and weights: what a unit's loss takes besides parameters."""
        return self.inputs, self.targets, self.weights

    def to(self, device: torch.device) -> UnitBatch:
        """The same batch on `device`."""
        return UnitBatch(
            self.inputs.to(device, non_blocking=True),
            {k: v.to(device, non_blocking=True) for k, v in self.targets.items()},
            self.weights.to(device, non_blocking=True),
        )


class Result(Protocol):
    """What a metric computed: prints itself, and becomes JSON."""

    def to_dict(self) -> dict[str, Any]:
        """The numbers, ready for JSON, nan as None.

        "metric" is its name and "columns" its numbers by name; "main" names the column that stands for all, and "unit"
        is theirs: "%", or "" for shares of one. So code that shows scores knows no metric by name. A "threshold", where
        there is one, is part of the metric's name; more keys may stand beside these.
        """


@runtime_checkable
class CountedResult(Protocol):
    """A result that counts things found among things there, so that they can be pooled over units."""

    def to_dict(self) -> dict[str, Any]:
        """As `Result`'s."""

    def hits(self) -> NDArray[np.int64]:
        """(K, 2), for each of K kinds of thing how many were found and how many were there to be found."""


class Metric(Protocol):
    """Accumulates predictions, then computes a result."""

    def update(self, outputs: Any, targets: Mapping[str, torch.Tensor]) -> None:
        """Add N views: `outputs` is `model(inputs)` on (N, C, H, W), `targets` each (N, ...)."""

    def compute(self) -> Result:
        """The result over everything seen."""


Precision = Literal["float32", "bf16"]
"""What a loss is computed in. "bf16": bfloat16 (autocast), with weights and gradients in float32."""


class Task(Protocol):
    """What the engine needs to know of a task, and all that it knows.

    A task whose loss runs under autocast has an attribute `precision`, "bf16"; without one it is "float32".
    """

    name: str

    def build_model(self, config: Any) -> torch.nn.Module:
        """A fresh model. Its `forward` takes (N, C, H, W) inputs as `collate` makes them."""

    def loss(self, model: torch.nn.Module, params: Tensors, inputs: torch.Tensor, targets: Tensors) -> torch.Tensor:
        """The loss of each of V views, (V,), at `params`.

        `params` and `targets` are mappings of names to tensors. `params` holds the trainable parameters; the rest stay
        as they are in `model` (`torch.func.functional_call`). A view's loss must not depend on any other view: the
        engine's clipping bounds units only because nothing mixes them. Called under `vmap(grad(...))`.
        """

    def collate(self, units: Sequence[Sequence[View]]) -> UnitBatch:
        """Stack units into a batch (`pad_views` does the common case).

        What it makes of one unit must not depend on the others: no mean over the batch, no type or size of the first.
        """

    def metric(self) -> Metric:
        """A fresh metric."""


class WrappedTask:
    """Another task with another loss: its models, batches and metric are the task's own.

    Args:
        task: The task.
    """

    def __init__(self, task: Task) -> None:
        self.task, self.name = task, task.name

    def build_model(self, config: Any) -> torch.nn.Module:
        """A fresh model."""
        return self.task.build_model(config)

    def collate(self, units: Sequence[Sequence[View]]) -> UnitBatch:
        """Stack units into a batch."""
        return self.task.collate(units)

    def metric(self) -> Metric:
        """A fresh metric."""
        return self.task.metric()


def most_views(dataset: UnitDataset) -> int:
    """The most views that a unit of `dataset` can have: what its attribute `most_views` says, else `MAX_VIEWS`."""
    return min(MAX_VIEWS, int(getattr(dataset, "most_views", MAX_VIEWS)))


def is_mixed(task: Task) -> bool:
    """Whether the task's loss is computed in a shorter type than its gradients."""
    return getattr(task, "precision", "float32") != "float32"


def pad_units(batch: UnitBatch, units: int) -> UnitBatch:
    """The batch with empty units at its end, `units` in all. They have no weight, so their gradients count as zero."""
    import torch

    def padded(t: torch.Tensor) -> torch.Tensor:
        return torch.cat([t, t.new_zeros((units - len(batch), *t.shape[1:]))])

    targets = {name: padded(t) for name, t in batch.targets.items()}
    return UnitBatch(padded(batch.inputs), targets, padded(batch.weights))


def view_bucket(count: int) -> int:
    """The padded number of views for a unit with `count` of them: 1, 2, 4 or 8."""
    return next(b for b in (1, 2, 4, MAX_VIEWS) if count <= b)


Form = dict[str, tuple[Any, ...]]
"""What arrays are, by their names: types and shapes, no values."""


def form_of(arrays: Mapping[str, Any]) -> Form:
    """Type and shape of each array; a number or a list counts as the array that NumPy makes of it."""
    return {name: (a.dtype, a.shape) for name, value in arrays.items() for a in (np.asarray(value),)}


def unlike(one: Form, other: Form) -> str:
    """The first name under which two forms differ, and what each has there."""
    name = next(n for n in sorted({*one, *other}) if one.get(n) != other.get(n))
    return f"{name}: " + ", ".join(" ".join(map(str, form.get(name, ("none",)))) for form in (one, other))


def pad_views(units: Sequence[Sequence[View]]) -> UnitBatch:
    """Stack units, padding each with copies of its first view, of weight 0, to the largest bucket among them.

    All views have pictures of one size and the same labels, of the same types and shapes: an array of another type
    would be rounded or cut to that of the first view, so that one unit would change what others say.

    Raises:
        ValueError: `units` is empty, a unit has no view or more than `MAX_VIEWS`, or weights are not positive.
        DposeError: Views differ in a type or a shape, or a picture is not of uint8.
    """
    if not units:
        raise ValueError("no units to collate")
    for views in units:
        if not 1 <= len(views) <= MAX_VIEWS:
            raise ValueError(f"a unit has {len(views)} views; 1 to {MAX_VIEWS} are allowed")
        if not all(v.weight > 0 for v in views):
            raise ValueError("a view's weight must be positive")
    width = view_bucket(max(len(views) for views in units))
    pictures, labels = (form_of(part) for part in ({"image": units[0][0].image}, units[0][0].target))
    for view in (view for views in units for view in views):
        for known, arrays in ((pictures, {"image": view.image}), (labels, view.target)):
            if (form := form_of(arrays)) != known:
                what = f"views of one batch differ in {unlike(known, form)}"
                raise DposeError("views-not-alike", what, fix="give those of all units one type and shape")
    kind, shape = pictures["image"]
    if kind != np.uint8:
        raise DposeError("image-not-uint8", f"image holds {kind}, not uint8", fix="scale it to 0..255 and round")
    # channels before time and space: ([T,] H, W, C) -> (C, [T,] H, W), picture by picture, which is six times as fast
    images = np.zeros((len(units), width, shape[-1], *shape[:-1]), np.uint8)
    targets = {k: np.zeros((len(units), width, *size), of) for k, (of, size) in labels.items()}
    weights = np.zeros((len(units), width), np.float32)
    for u, views in enumerate(units):
        for v, view in enumerate(views):
            images[u, v] = np.moveaxis(np.asarray(view.image), -1, 0)
            weights[u, v] = view.weight
            for k, value in view.target.items():
                targets[k][u, v] = value
        # copies and not zeros: a mean over no joint at all is not finite, and no weight would take that back
        for array in (images, *targets.values()):
            array[u, len(views) :] = array[u, 0]
    import torch

    inputs = torch.from_numpy(images)
    return UnitBatch(inputs, {k: torch.from_numpy(v) for k, v in targets.items()}, torch.from_numpy(weights))
