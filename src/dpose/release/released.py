"""One released picture as its exact noisy sums: public from here on. What is shown, and what a restoration sees.

    released = plan.release(picture, source)
    released.picture(), released.observed()

Everything here is a function of the sums and of public numbers: post-processing. That includes how complex regions are
shown (`shrunk`): the noise's variance is public, so the released values themselves tell how much a block's parts really
differ, and what is only noise is drawn to the block's level (docs/proofs/pixelization.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpose.release.colour import Colour, as_rgb
from dpose.release.mechanism import TYPES, Released
from dpose.release.partition import BlockSums, Cells, Mask, RegionSums, paint_blocks
from dpose.release.planes import Observed, Plane
from dpose.release.restoration import PAINTED, Restoration

if TYPE_CHECKING:
    import torch

SIZES = ("height", "width", "channels", "peak", "block", "subdivide")
Sums = NDArray[np.int64]
Levels = NDArray[np.float64]


@dataclass(frozen=True)
class Layers:
    """The public partitions of a picture: luma's (or all colours') cells, and chroma's, each a union of some of those.

    Attributes:
        blocks: Luma's blocks; their `channels` are the picture's.
        colour: What is summed.
        factor: How many times as wide chroma's blocks are.
        subdivide: n, parts along each side of a complex block.
        mask: Which blocks are complex; None if all have one size.
        staged: True if all blocks were released first, and the parts of the complex ones with noise of their own.
    """

    blocks: BlockSums
    colour: Colour
    factor: int = 1
    subdivide: int = 1
    mask: Mask | None = None
    staged: bool = False

    @cached_property
    def coarse(self) -> BlockSums:
        """Chroma's blocks."""
        return widened(self.blocks, self.factor)

    @cached_property
    def cells(self) -> Cells:
        """The cells that luma is shown in."""
        b = self.blocks
        if self.mask is None:
            return b
        return RegionSums(b.height, b.width, b.block, self.subdivide, self.mask, b.channels, b.peak)

    @property
    def sizes(self) -> dict[str, int | str]:
        """All of it but the mask, as whole numbers and words."""
        found: dict[str, int | str] = {name: getattr(self.blocks, name) for name in SIZES[:-1]}
        return found | {
            "subdivide": self.subdivide,
            "colour": self.colour.name,
            "combinations": self.colour.text,
            "chroma": self.factor,
            "stages": 1 + self.staged,
        }

    def shapes(self) -> dict[str, tuple[int, int]]:
        """What is released, in this order, and how large: luma's sums, chroma's, and a second stage's."""
        luma, chroma = len(self.colour.luma), len(self.colour.chroma)
        cells = self.cells
        found = {"luma": ((self.blocks if self.staged else cells).areas.size, luma)}
        if chroma:
            found["chroma"] = (self.coarse.areas.size, chroma)
        if self.staged and isinstance(cells, RegionSums):
            found["parts"] = (cells.areas.size - cells.simple, luma)
        return found


@dataclass(frozen=True)
class ReleasedSums:
    """One released picture.

    Attributes:
        layers: The picture's partitions.
        sums: By name, as `Layers.shapes`: int64, (cells, combinations), noise and all.
        variances: Variance of the noise on each sum, stage by stage.
        restoration: How the picture is made of them.
    """

    layers: Layers
    sums: dict[str, Sums]
    variances: tuple[float, ...]
    restoration: Restoration = PAINTED

    @property
    def cells(self) -> Cells:
        """The cells that luma is shown in."""
        return self.layers.cells

    @cached_property
    def values(self) -> NDArray[Any]:
        """Gray levels of luma or of all colours in each of `cells`, whole and cut off at black and white."""
        peak = self.layers.blocks.peak
        if self.layers.mask is None:
            return _whole(self.sums["luma"], self.cells.areas, self._luma_scale, peak)
        parts = np.clip(np.rint(self._parts()), 0, peak).astype(TYPES[peak])
        return np.concatenate([_whole(*self._simple(), self._luma_scale, peak), parts])

    def block_colours(self) -> NDArray[Any]:
        """Gray levels of each of luma's blocks as the first stage released them, (blocks, C); all of it is public."""
        blocks = self.layers.blocks
        if "chroma" not in self.sums:
            found = _whole(self.sums["luma"], blocks.areas, self._luma_scale, blocks.peak)
            return found.repeat(blocks.channels // found.shape[1], axis=1)
        return self._colours(blocks, self.sums["luma"] / (blocks.areas[:, None] * self._luma_scale))

    def picture(self, device: torch.device | None = None) -> Any:
        """The picture, (H, W, C): an array, or a tensor where a device is named."""
        if self.restoration != PAINTED:
            if device is None:
                return self._made
            import torch

            return torch.from_numpy(self._made).to(device)
        channels, cells = self.layers.blocks.channels, self.cells
        if "chroma" in self.sums:
            fine = cells.fine if isinstance(cells, RegionSums) else cells
            painted = Released(fine, self._colours(fine, self._shown()[self._order()]))
        else:
            painted = Released(cells, self.values.repeat(channels // self.values.shape[1], axis=1))
        return painted.picture(device)

    @cached_property
    def _made(self) -> NDArray[Any]:
        shown = self.restoration.apply(self.observed())
        return shown.repeat(self.layers.blocks.channels // shown.shape[2], axis=2)

    def observed(self) -> Observed:
        """The same as planes of means and their noise, neither rounded nor cut off; for `restoration`."""
        blocks, colour = self.layers.blocks, self.layers.colour
        first = self.variances[0] ** 0.5
        planes = self._luma_planes(first)
        for number, scale in enumerate(colour.scales[len(colour.luma) :]):
            cells = self.layers.coarse
            grid = self._chroma()[:, :, number]
            noise = (first / (cells.areas * scale)).reshape(grid.shape)
            planes.append(Plane(grid.astype(np.float32), noise.astype(np.float32), cells.block))
        return Observed(tuple(planes), colour.name, blocks.height, blocks.width, blocks.peak)

    def _luma_planes(self, first: float) -> list[Plane]:
        cells, scale = self.cells, self._luma_scale
        levels = self._shown(shrink=False)
        spread = np.full(cells.areas.size, first)
        fine: BlockSums = cells.fine if isinstance(cells, RegionSums) else cells
        if isinstance(cells, RegionSums):
            spread[cells.simple :] = self.variances[-1] ** 0.5
        shape, order = (fine.rows, fine.columns), self._order()
        noise = (spread / (cells.areas * scale))[order].reshape(shape).astype(np.float32)
        grids = levels[order].reshape(*shape, -1).astype(np.float32)
        return [Plane(grids[:, :, k], noise, fine.block) for k in range(grids.shape[2])]

    def _colours(self, cells: BlockSums, luma: Levels) -> NDArray[Any]:
        """R, G and B of each cell from its luma and the chroma that it lies in, whole and cut off, (cells, 3)."""
        times = self.layers.coarse.block // cells.block
        chroma = paint_blocks(self._chroma(), cells.rows, cells.columns, times).reshape(-1, 2)
        shown = as_rgb(np.concatenate([luma, chroma], axis=1))
        levels: NDArray[Any] = np.clip(np.rint(shown), 0, cells.peak).astype(TYPES[cells.peak])
        return levels

    def _order(self) -> NDArray[np.int64]:
        """Which of `cells` each place of the finest grid shows."""
        return self.cells.places() if isinstance(self.cells, RegionSums) else np.arange(self.cells.areas.size)

    @property
    def _luma_scale(self) -> int:
        return self.layers.colour.scales[0]

    def _shown(self, *, shrink: bool = True) -> Levels:
        """Gray levels in each of `cells`, not rounded."""
        if self.layers.mask is None:
            found: Levels = self.sums["luma"] / (self.cells.areas[:, None] * self._luma_scale)
            return found
        whole, areas = self._simple()
        return np.concatenate([whole / (areas[:, None] * self._luma_scale), self._parts(shrink=shrink)])

    def _simple(self) -> tuple[Sums, NDArray[np.int64]]:
        """Sums and areas of the blocks that are not divided."""
        cells, luma = self.cells, self.sums["luma"]
        assert isinstance(cells, RegionSums)
        whole = luma[~cells.mask.reshape(-1)] if self.layers.staged else luma[: cells.simple]
        return whole, cells.areas[: cells.simple]

    def _parts(self, *, shrink: bool = True) -> Levels:
        cells, luma = self.cells, self.sums["luma"]
        assert isinstance(cells, RegionSums)
        divided, scale = cells.mask.reshape(-1), self._luma_scale
        variances = [variance / scale**2 for variance in self.variances]
        if not self.layers.staged:
            return shrunk(cells, Noisy(luma[cells.simple :] / scale, variances[0]), shrink=shrink)
        return shrunk(
            cells,
            Noisy(self.sums["parts"] / scale, variances[1]),
            Noisy(luma[divided] / scale, variances[0]),
            shrink=shrink,
        )

    def _chroma(self) -> Levels:
        """Gray levels of chroma, (rows, columns, 2)."""
        cells = self.layers.coarse
        scales = np.array(self.layers.colour.scales[1:])
        found: Levels = self.sums["chroma"] / (cells.areas[:, None] * scales)
        return found.reshape(cells.rows, cells.columns, -1)


Shown = ReleasedSums | Released
"""A released picture of cells."""


def widened(blocks: BlockSums, factor: int) -> BlockSums:
    """Blocks so many times as wide, each a union of the given ones."""
    return BlockSums(blocks.height, blocks.width, blocks.block * factor, blocks.channels, blocks.peak)


def _whole(noisy: Sums, areas: NDArray[np.int64], scale: int, peak: int) -> NDArray[Any]:
    """Noisy sums to gray levels: divided by the cells' true areas, rounded half up, clipped, without floating point."""
    wide = areas[:, None] * scale
    levels: NDArray[Any] = np.clip((2 * noisy + wide) // (2 * wide), 0, peak).astype(TYPES[peak])
    return levels


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Noisy:
    """Released sums.

    Attributes:
        sums: Sums of values up to the peak, (cells, C).
        variance: Variance of the noise on each sum, > 0.
    """

    sums: NDArray[Any]
    variance: float


def shrunk(cells: RegionSums, parts: Noisy, blocks: Noisy | None = None, *, shrink: bool = True) -> Floats:
    """Gray levels of the parts of complex blocks, from released sums.

    A block's level is the average of its parts' sums and, where stage one released it too, of its own sum, weighted by
    the inverse of their variances. A part's difference from its block is multiplied by tau^2 / (tau^2 + its noise's
    variance): the best linear guess where differences have variance tau^2. tau^2 is estimated from the parts of all
    blocks, a channel at a time: what their differences vary more than the noise does, but at most the square of a
    quarter of the range, which no picture of any detail exceeds by much.

    Args:
        cells: The partition.
        parts: Sums of the parts of the complex blocks, in the order of `RegionSums.apply`.
        blocks: Stage one's sums of the complex blocks, in order; None if the mask is public and there is one stage.
        shrink: False leaves the differences as they are, for a restoration that knows their noise.

    Returns:
        (parts, C), not clipped.
    """
    owner, areas = _owners(cells), cells.areas[cells.simple :].astype(np.float64)
    if not owner.size:
        return np.empty(parts.sums.shape)
    count = np.bincount(owner)[:, None]
    whole = np.bincount(owner, areas)[:, None]
    total = np.stack([np.bincount(owner, column) for column in parts.sums.T.astype(np.float64)], axis=1)
    apart = total / whole
    level = apart
    if blocks is not None:
        trust = count * parts.variance / (count * parts.variance + blocks.variance)
        level = trust * blocks.sums / whole + (1 - trust) * apart
    difference = parts.sums / areas[:, None] - apart[owner]
    if not shrink:
        return np.asarray(level[owner] + difference)
    noise = parts.variance / areas[:, None] ** 2
    # a part's own noise is in its block's average too, by its share of the area
    seen = noise * (1 - 1 / count[owner])
    most = areas == areas.max()
    excess = (difference[most] ** 2 - seen[most]).mean(axis=0)
    spread = np.clip(excess, 0, (cells.peak / 4) ** 2)
    found: Floats = level[owner] + spread / (spread + noise) * difference
    return found


def _owners(cells: RegionSums) -> NDArray[np.int64]:
    """Which complex block each part lies in, counted in order."""
    n = cells.subdivide
    number: NDArray[Any] = np.full(cells.mask.shape, -1, np.int64)
    number[cells.mask] = np.arange(int(cells.mask.sum()))
    spread = number.repeat(n, 0).repeat(n, 1)[: cells.fine.rows, : cells.fine.columns].reshape(-1)
    return spread[spread >= 0]
