"""The public view psi of a picture: what feature privacy gives away, and nothing more.

    view = PublicView()                       # Gaussian blur; or PublicView("pixelize")
    low = view.low(image)                     # the release: a small uint8 grid
    public = view.restore(low, image.shape)   # post-processing: back to (H, W, 3)

Feature privacy (seed 003, "FDP-SGD"; Mahloujifar et al. 2025) takes psi(x) and the labels as public and protects what
the picture holds beyond them. So psi must lose information for good. A Gaussian blur in floating point does not: it can
be inverted exactly, and the guarantee would be about nothing. Here the blur is taken at one point a sigma only and
rounded to 8 bits there, and all else is computed from that grid: 26x19 cells of a crop of 256x192 or of 128x96.

psi is computed once for each canonical (un-augmented) crop and augmented then, never the other way round:
psi(augment(x)) would give away a new view at every step, and many blurred views of one picture are a sharp one.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.units import MAX_VIEWS, CanonicalUnits, Tensors, UnitBatch, View, WrappedTask, WrappedUnits

if TYPE_CHECKING:
    import torch

Kind = Literal["blur", "pixelize"]
Grid = NDArray[np.uint8]

REFERENCE_HEIGHT = 256
"""The height, in pixels, of the pictures that `PublicView.width` is given for."""
WIDTHS: dict[str, float] = {"blur": 10.0, "pixelize": 16.0}
"""Default widths. With 10 the blur's kernel is 25 pixels wide."""
REACH = 1.25
"""The kernel ends this many sigmas from its centre."""
LEAST_SPACING = 2.0
"""A grid must be coarser than this many pixels, or the public view would be the picture."""
PUBLIC = "public_view"
"""The target under which a view of `ResidualViews` holds its public view."""

_ONE = 1 << 16

VIEWS_SHOWN = "the public view and the labels of every unit: "
"""Beginning of the condition that says what public views show."""


@dataclass(frozen=True)
class PublicView:
    """A public feature map psi, by its kind and its strength.

    * "blur": a Gaussian of standard deviation `width`, cut off at `REACH` sigmas (at 256x192: sigma 10, 25 pixels),
      sampled at a spacing of about one sigma and restored by cubic interpolation. Beyond the Nyquist frequency of that
      spacing the blur itself leaves at most 12 % of any amplitude, so the grid keeps what the blur keeps.
    * "pixelize": means of square blocks with sides of `width` pixels (the last ones smaller), restored as blocks.

    **Guarantee.** None by itself: psi(x) is public. It is a function of `low` alone and takes at most
    256^(3 rows columns) values; what pictures with equal grids differ in stays protected (docs/proofs/feature-dp.md).

    Attributes:
        kind: "blur" or "pixelize".
        width: Sigma of the blur or side of a block, in pixels of a picture `REFERENCE_HEIGHT` high; other
            pictures are treated in proportion to their height. None for the kind's own of `WIDTHS`.
    """

    kind: Kind = "blur"
    width: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise DposeError(
                "public-view-unknown",
                f"unknown public view {self.kind!r}",
                fix=f"choose one of {', '.join(get_args(Kind))}",
            )
        if self.width is None:
            object.__setattr__(self, "width", WIDTHS[self.kind])
        elif not (math.isfinite(self.width) and self.width > 0):
            raise DposeError(
                "public-view-width-not-positive", f"the width of a public view must be positive, not {self.width:g}"
            )

    def grid(self, size: Sequence[int]) -> tuple[int, int]:
        """Rows and columns of the grid for pictures of `size` (H, W)."""
        height, width = size
        spacing = self._width(height)
        if spacing < LEAST_SPACING or min(size) < 2 * spacing:
            raise DposeError(
                "public-view-width-unsuitable",
                f"a public view of width {self.width:g} does not suit pictures of {height}x{width}",
                fix="it is meant for a height of 256, and must come to 2 pixels or more and to half a side at the most",
            )
        return _cells(self.kind, height, spacing), _cells(self.kind, width, spacing)

    def low(self, image: NDArray[np.uint8]) -> Grid:
        """What is given away of a picture: its grid, uint8 (rows, columns, 3), or (T, rows, columns, 3) of a clip.

        Exact integer arithmetic, so that threads, machines and libraries agree on every bit. Frames of a clip
        are treated one by one; the grids of all of them are public.

        Raises:
            ValueError: not uint8, or not (H, W, 3) or (T, H, W, 3).
            DposeError: see `grid`.
        """
        _check_image(image)
        height, width = image.shape[-3:-1]
        self.grid((height, width))
        spacing = self._width(height)
        return _transform(_sampling(self.kind, height, spacing), _sampling(self.kind, width, spacing), image)

    def restore(self, low: Grid, size: Sequence[int]) -> NDArray[np.uint8]:
        """A picture of `size` (H, W) from its grid: post-processing of `low`, the same everywhere.

        Returns:
            uint8, (H, W, 3), or (T, H, W, 3) for the grids of a clip.

        Raises:
            ValueError: the grid is not one of a picture of that size.
        """
        _check_image(low)
        height, width = size
        if low.shape[-3:-1] != self.grid((height, width)):
            raise ValueError(f"a grid of {low.shape} is not of a picture of {height}x{width}")
        spacing = self._width(height)
        return _transform(_restoring(self.kind, height, spacing), _restoring(self.kind, width, spacing), low)

    def __call__(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """psi(x): uint8, of the picture's own shape; `restore` of `low`."""
        return self.restore(self.low(image), image.shape[-3:-1])

    def describe(self, size: Sequence[int]) -> str:
        """One line for the statement: what is taken as public of a picture of `size` (H, W)."""
        rows, columns = self.grid(size)
        width = self._width(size[0])
        how = (
            f"a Gaussian blur with sigma {width:g} pixels, sampled at"
            if self.kind == "blur"
            else f"means of blocks with sides of {width:g} pixels,"
        )
        return f"of each {size[0]}x{size[1]} crop {how} {rows}x{columns} points in 3 channels of 8 bits"

    def _width(self, height: int) -> float:
        """Sigma, or a block's side, in pixels of a picture of that height."""
        assert self.width is not None
        width = self.width * height / REFERENCE_HEIGHT
        return width if self.kind == "blur" else float(round(width))


class PublicViews(WrappedUnits):
    """The public views of a dataset's units, as a `UnitDataset`: what `public-only` trains on.

    The grids are computed when a unit is first asked for and kept (1.5 kB a crop); nothing is ever computed from
    another look at the unit. Augmentation acts on the restored picture. May be used from several threads.

    **Guarantee.** Everything here is a function of the grids, the labels and public randomness. A guarantee for the
    private part of the units is conditional on them.
    """

    dataset: CanonicalUnits

    def __init__(self, dataset: CanonicalUnits, view: PublicView | None = None) -> None:
        super().__init__(dataset)
        self.view = view or PublicView()
        self._held: dict[int, tuple[tuple[View, tuple[int, ...]], ...]] = {}
        self._lock = threading.Lock()

    def canonical(self, index: int) -> list[View]:
        """The public view of every canonical view, restored to its size, with its labels and weight."""
        held = self._held.get(index)
        if held is None:
            # outside the lock: no thread waits for another's decoding, and both find the same grids
            computed = tuple(
                (replace(view, image=self.view.low(view.image)), view.image.shape[-3:-1])
                for view in self.dataset.canonical(index)
            )
            with self._lock:
                held = self._held.setdefault(index, computed)
        return [replace(low, image=self.view.restore(low.image, size)) for low, size in held]

    def augmented(self, view: View, rng: np.random.Generator) -> View:
        """As the dataset does it."""
        return self.dataset.augmented(view, rng)

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """The unit's public views under random draws, at most `MAX_VIEWS` of them."""
        views = self.canonical(index)
        return [self.augmented(views[v], np.random.default_rng(seed)) for v, seed in _draws(len(views), rng)]


class ResidualViews(WrappedUnits):
    """Pictures beside their public views, under the same draws: what the private term of the residual loss needs.

    `load` gives the views of the dataset itself. Besides the labels each target holds `PUBLIC`, its public view: a
    uint8 picture of the same shape under the same random draw. `Residual` knows what to do with it.
    """

    def __init__(self, public: PublicViews) -> None:
        super().__init__(public)
        self.public = public

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """The unit's views and public views under equal draws, at most `MAX_VIEWS` of them."""
        dataset = self.public.dataset
        views, public = dataset.canonical(index), self.public.canonical(index)
        if len(views) != len(public):
            raise ValueError(f"unit {index} had {len(public)} canonical views and now has {len(views)}")
        both = []
        for v, seed in _draws(len(views), rng):
            # the same bits twice: the two pictures must differ in content alone
            shown = dataset.augmented(public[v], np.random.default_rng(seed))
            view = dataset.augmented(views[v], np.random.default_rng(seed))
            both.append(replace(view, target={**view.target, PUBLIC: shown.image}))
        return both


class Residual(WrappedTask):
    """A task whose loss is l(x, y) - l(psi(x), y), for views made by `ResidualViews`.

    Its gradient and that of l(psi(x), y) sum to that of l(x, y). It is the smaller the more the public view says, so
    that clipping takes less of it, and zero for a picture that is its own public view. The loss of a view depends on
    that view alone, as the clipping of units needs.
    """

    def loss(self, model: torch.nn.Module, params: Tensors, inputs: torch.Tensor, targets: Tensors) -> torch.Tensor:
        """l(x, y) - l(psi(x), y) of each of V views, (V,)."""
        labels = {name: value for name, value in targets.items() if name != PUBLIC}
        private = self.task.loss(model, params, inputs, labels)
        return private - self.task.loss(model, params, targets[PUBLIC], labels)

    def collate(self, units: Sequence[Sequence[View]]) -> UnitBatch:
        """The task's own batch; `PUBLIC` among the targets is what it makes inputs of public views."""
        labels = [
            [replace(v, target={n: t for n, t in v.target.items() if n != PUBLIC}) for v in views] for views in units
        ]
        public = [
            [replace(bare, image=np.asarray(v.target[PUBLIC])) for bare, v in zip(a, b, strict=True)]
            for a, b in zip(labels, units, strict=True)
        ]
        batch = self.task.collate(labels)
        targets = {**batch.targets, PUBLIC: self.task.collate(public).inputs}
        return UnitBatch(batch.inputs, targets, batch.weights)


def _draws(count: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Which of `count` views to show, each with a seed of its own."""
    chosen = range(count) if count <= MAX_VIEWS else sorted(rng.choice(count, MAX_VIEWS, replace=False))
    return [(int(v), int(rng.integers(2**63))) for v in chosen]


def _check_image(image: NDArray[Any]) -> None:
    if image.dtype != np.uint8 or image.ndim not in (3, 4) or image.shape[-1] != 3:
        raise ValueError(f"expected uint8 (H, W, 3) or (T, H, W, 3), got {image.dtype} {image.shape}")


def _cells(kind: Kind, extent: int, spacing: float) -> int:
    return round(extent / spacing) if kind == "blur" else math.ceil(extent / spacing)


def _transform(rows: NDArray[np.float64], columns: NDArray[np.float64], image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Weighted means along both axes, rounded half up to uint8.

    The weights are whole numbers, and no sum passes 2^53: float64 holds every one exactly, in whatever order it
    is added up. Dividing rounds once, and the exact quotient is either whole or farther than that from it.
    """
    *lead, height, _, channels = image.shape
    enlarges = len(rows) > height
    sums = image.astype(np.float64)
    # the other axis is many small products: taken where there are fewest
    if enlarges:
        sums = columns @ sums
    sums = (rows @ sums.reshape(*lead, height, -1)).reshape(*lead, len(rows), -1, channels)
    if not enlarges:
        sums = columns @ sums
    total = (rows.sum(1)[:, None] * columns.sum(1))[..., None]
    rounded: NDArray[np.uint8] = np.clip(np.floor((sums + total / 2) / total), 0, 255).astype(np.uint8)
    return rounded


@functools.lru_cache(maxsize=64)
def _sampling(kind: Kind, extent: int, spacing: float) -> NDArray[np.float64]:
    """Whole weights (cells, extent) of each pixel in each cell."""
    cells = _cells(kind, extent, spacing)
    at = np.arange(extent)
    if kind == "pixelize":
        return _frozen((at // int(spacing) == np.arange(cells)[:, None]).astype(np.float64))
    centres = (np.arange(cells) + 0.5) * extent / cells - 0.5
    distance = np.abs(at - centres[:, None]) / spacing
    return _frozen(_whole(np.where(distance <= REACH, np.exp(-(distance**2) / 2), 0.0)))


@functools.lru_cache(maxsize=64)
def _restoring(kind: Kind, extent: int, spacing: float) -> NDArray[np.float64]:
    """Whole weights (extent, cells) of each cell in each pixel: its own, or four around by a cubic (Keys 1981)."""
    cells = _cells(kind, extent, spacing)
    if kind == "pixelize":
        return _frozen(_sampling(kind, extent, spacing).T.copy())
    at = (np.arange(extent) + 0.5) * cells / extent - 0.5
    weights = np.zeros((extent, cells))
    for k in range(-1, 3):
        cell = np.floor(at).astype(int) + k
        t = np.abs(at - cell)
        near, far = (1.5 * t - 2.5) * t**2 + 1, ((2.5 - 0.5 * t) * t - 4) * t + 2
        weight = np.where(t <= 1, near, far)
        np.add.at(weights, (np.arange(extent), np.clip(cell, 0, cells - 1)), weight)
    return _frozen(_whole(weights))


def _whole(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Whole numbers in proportion to each row's weights that sum to `_ONE`; the largest takes what rounding leaves."""
    whole: NDArray[np.float64] = np.rint(weights / weights.sum(1, keepdims=True) * _ONE)
    whole[np.arange(len(whole)), weights.argmax(1)] += _ONE - whole.sum(1)
    return whole


def _frozen(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    weights.setflags(write=False)  # shared by every picture of that size
    return weights
