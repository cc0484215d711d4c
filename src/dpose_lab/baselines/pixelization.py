"""Seed 002's Algorithms 1, 2 and 3 as printed, for comparison. They do not guarantee what they claim.

Floating-point Laplace noise on averages, mirror padding, noise for whole blocks on partial ones, a raw mask. The
statement is of kind `paper` and says in words what does not hold, with the true multiplier of epsilon for this size and
block (docs/proofs/pixelization.md, "What the papers' algorithms do instead").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpose.privacy.noise import NoiseSource, Purpose
from dpose.privacy.ranges import as_given, upper
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.release.config import Pixelization
from dpose.release.grid import Shape, is_tensor
from dpose.release.mechanism import TYPES, Released
from dpose.release.partition import BlockSums, Cells, RegionSums
from dpose.release.pixelization import blocks_of, released_frames
from dpose.release.record import config_record, shape_record
from dpose.release.regions import PaperRegions, mirrored
from dpose.units import Unit

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class PaperPlan:
    """One of the paper's algorithms bound to a picture's size.

    Attributes:
        config: The release's configuration; `paper` is 1, 2 or 3.
        shape: The picture's or clip's sizes.
    """

    config: Pixelization
    shape: Shape

    @classmethod
    def of(cls, config: Pixelization, shape: Shape) -> PaperPlan:
        """Make the plan for pictures or clips of this shape."""
        config.check_shape(shape)
        if isinstance(config.regions, PaperRegions) and config.regions.pixels is not None:
            config.regions.blocks(np.zeros((shape.height, shape.width, 1), np.uint8), config.side)
        return cls(config, shape)

    @property
    def blocks(self) -> BlockSums:
        """The partition into blocks."""
        return blocks_of(self.shape, self.config.side)

    @property
    def frames(self) -> int | None:
        """Number of frames; None for a picture."""
        return None if self.shape.still else self.shape.frames

    def run(
        self, frames: Iterable[NDArray[np.uint8]], source: NoiseSource, workers: int = 1
    ) -> Iterator[NDArray[np.uint8]]:
        """The algorithm on every frame of a clip; nothing is guaranteed.

        Args:
            frames: uint8, (H, W, C), in order.
            source: Source of the generators' seeds.
            workers: Number of frames processed at a time.
        """
        return released_frames(frames, self, source, workers)

    def release(self, picture: NDArray[Any] | Tensor, source: NoiseSource, frame: int = 0) -> Released:
        """Run the algorithm on one picture; nothing is guaranteed.

        Args:
            picture: uint8 or uint16, (H, W) or (H, W, C).
            source: Source of the generator's seed.
            frame: Number of the frame.
        """
        array = picture.cpu().numpy() if is_tensor(picture) else picture
        pixels = array.reshape(self.blocks.height, self.blocks.width, self.blocks.channels)
        rng = source.stream(Purpose.RELEASE, frame, b"paper").generator()
        run = {1: algorithm_1, 2: algorithm_2, 3: algorithm_3}[self.config.paper or 0]
        cells, means = run(pixels, self.config, self.blocks, rng)
        return Released(cells, np.rint(means).astype(TYPES[self.blocks.peak]))

    def statement(self) -> PrivacyStatement:
        """Summarise the claim, and why it does not hold."""
        config = self.config
        return PrivacyStatement(
            kind=Kind.PAPER,
            unit=Unit.PIXEL,
            neighbours=config.neighbours.resolved(self.shape),
            caveats=tuple(self._faults()),
            release={
                "mechanism": f"pixelization as in Liu's Algorithm {config.paper}",
                "config": config_record(config, self.shape),
                "shape": shape_record(self.shape),
            },
        )

    def explained(self) -> list[str]:
        """The statement's own lines."""
        return self.statement().paragraph().splitlines()

    def _faults(self) -> list[str]:
        config, blocks = self.config, self.blocks
        claim, m = float(config.epsilon), config.neighbours.count
        one, many = multiplier(config, blocks, 1), multiplier(config, blocks, m)
        lines = [
            f"Algorithm {config.paper} of Liu, 'A Parallel Region-Adaptive Differential Privacy Framework for Image "
            f"Pixelization', claims epsilon {as_given(claim)} for any {m} pixels of a picture"
        ]
        if config.paper == 3:
            lines.append(
                "the mask of complex regions is stored without noise; unless it was made without the picture, no "
                "(epsilon, delta) guarantee holds at all. What follows is for a public mask"
            )
        cause = (
            "the last cells are smaller than a block but get a whole block's noise"
            if config.paper == 1
            else "pixels are mirrored to fill the last cells, so some are counted 2 or 4 times"
        )
        if max(one, many) > blocks.channels:
            lines.append(f"{cause}: {upper(one / blocks.channels, 3)} times the claim for the worst pixel")
        if blocks.channels > 1:
            lines.append(
                f"a pixel has {blocks.channels} values, the noise is for one: {blocks.channels} times the claim"
            )
        lines.append(
            f"together, at this size and block, the true epsilon for {m} pixels is {upper(many)} times the "
            f"claim, {upper(many * config.epsilon)}"
        )
        if self.frames is not None:
            lines.append(
                f"every frame is released with that; m pixels in each of {self.frames} frames cost {self.frames} times"
            )
        lines.append(
            "Laplace noise in floating point leaks through its low bits, and its generator is not cryptographic"
        )
        area = min(10_000, blocks.height * blocks.width)
        face = multiplier(config, blocks, area) * config.epsilon * area / m
        lines.append(f"an object of {area:,} pixels (100 x 100 is a face) has an epsilon of up to {upper(face)}")
        return lines


def algorithm_1(
    pixels: NDArray[Any], config: Pixelization, blocks: BlockSums, rng: np.random.Generator
) -> tuple[Cells, NDArray[np.float64]]:
    """Algorithm 1: the loop over cells; partial cells are averaged over fewer pixels with the same noise."""
    b, scale = config.side, _scale(config, blocks.peak, config.side)
    means = np.empty((blocks.rows, blocks.columns, blocks.channels))
    for row in range(blocks.rows):
        for column in range(blocks.columns):
            cell = pixels[row * b : (row + 1) * b, column * b : (column + 1) * b]
            noisy = cell.mean(axis=(0, 1)) + rng.laplace(0, scale, blocks.channels)
            means[row, column] = np.clip(noisy, 0, blocks.peak)
    return blocks, means.reshape(-1, blocks.channels)


def algorithm_2(
    pixels: NDArray[Any], config: Pixelization, blocks: BlockSums, rng: np.random.Generator
) -> tuple[Cells, NDArray[np.float64]]:
    """Algorithm 2: mirror padding, then all cells at once."""
    means = _cell_means(mirrored(pixels, config.side), config.side)
    noisy = means + rng.laplace(0, _scale(config, blocks.peak, config.side), means.shape)
    return blocks, np.clip(noisy, 0, blocks.peak).reshape(-1, blocks.channels)


def algorithm_3(
    pixels: NDArray[Any], config: Pixelization, blocks: BlockSums, rng: np.random.Generator
) -> tuple[Cells, NDArray[np.float64]]:
    """Algorithm 3: mirror padding; blocks where the mask says simple, n x n parts of them where it says complex."""
    assert isinstance(config.regions, PaperRegions)
    mask = config.regions.blocks(pixels, config.side)
    padded, part = mirrored(pixels, config.side), config.side // config.subdivide
    coarse, fine = _cell_means(padded, config.side), _cell_means(padded, part)
    coarse = coarse + rng.laplace(0, _scale(config, blocks.peak, config.side), coarse.shape)
    fine = fine + rng.laplace(0, _scale(config, blocks.peak, part), fine.shape)
    n = config.subdivide
    cells = RegionSums(blocks.height, blocks.width, config.side, n, mask, blocks.channels, blocks.peak)
    # parts that lie in the padding alone are cropped away
    shown = fine[: cells.fine.rows, : cells.fine.columns]
    complex_ = mask.repeat(n, 0).repeat(n, 1)[: cells.fine.rows, : cells.fine.columns]
    means = np.concatenate([coarse[~mask], shown[complex_]])
    return cells, np.clip(means, 0, blocks.peak)


def multiplier(config: Pixelization, blocks: BlockSums, m: int) -> Fraction:
    """The exact ratio of the true epsilon of m pixels to the claimed one, at this size.

    The influence of a pixel on the L1 norm of averages over noise scale, relative to what the algorithm assumes, is a
    product of one factor for its row and one for its column. The m most influential pixels are added up.

    Args:
        config: The release's configuration; `paper` is 1, 2 or 3.
        blocks: The partition.
        m: Number of pixels.
    """
    rows = _factors(blocks.height, config.side, config.paper == 1)
    columns = _factors(blocks.width, config.side, config.paper == 1)
    kinds = sorted(((f * g, count * times) for f, count in rows for g, times in columns), key=lambda kind: -kind[0])
    left, total = m, Fraction(0)
    for factor, count in kinds:
        taken = min(left, count)
        total, left = total + factor * taken, left - taken
    return total * blocks.channels / m


def _factors(length: int, block: int, partial: bool) -> list[tuple[Fraction, int]]:
    """Factors of influence along one axis, and the number of pixels with each."""
    rest = length % block
    if rest == 0:
        return [(Fraction(1), length)]
    if partial:
        return [(Fraction(block, rest), rest), (Fraction(1), length - rest)]
    twice = block - rest
    return [(Fraction(2), twice), (Fraction(1), length - twice)]


def _scale(config: Pixelization, peak: int, side: int) -> float:
    return float(Fraction(peak * config.neighbours.count, side * side) / config.epsilon)


def _cell_means(padded: NDArray[Any], side: int) -> NDArray[np.float64]:
    height, width, channels = padded.shape
    grid = padded.reshape(height // side, side, width // side, side, channels)
    means: NDArray[np.float64] = grid.mean(axis=(1, 3))
    return means
