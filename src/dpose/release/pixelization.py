"""Pixelization: exact sums of cells, exact noise, and post-processing of what they give; one frame at a time.

plan = PixelizationPlan.of(ReleaseConfig.of("0.5", "pixels:16"), Shape.of(1080, 1920))
cells = plan.release(picture, source, frame=0)
picture = cells.picture()
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.privacy.accounting import Relation
from dpose.privacy.discrete import MAX_SCALE
from dpose.privacy.exact import (
    ExactEvent,
    GaussianEvent,
    LaplaceEvent,
    ReleaseAccountant,
    pure_epsilon,
    zcdp_budget,
    zcdp_epsilon,
    zcdp_rho,
)
from dpose.privacy.noise import KEY_BYTES, AesNoise, Key, NoiseSource, Purpose, Stream
from dpose.privacy.statement import BOX, Neighbours
from dpose.release.config import ReleaseConfig
from dpose.release.grid import Shape
from dpose.release.mechanism import TYPES, NoiseStage, Plan, Released, too_small
from dpose.release.operators import BlockSums, Cells, Mask, RegionSums, Sensitivity
from dpose.release.regions import PrivateRegions, PublicRegions
from dpose.release.wiener import Noisy, shrunk
from dpose.tensors import is_tensor

if TYPE_CHECKING:
    from torch import Tensor

    from dpose.release.published_pixelization import PaperPlan


@dataclass(frozen=True)
class PixelizationPlan(Plan):
    """Sums of cells of each frame, with exact noise.

    Attributes:
        config: What was asked for.
        shape: The picture's or clip's sizes.
        stages: One, or two where the mask is private.
        mask: The public mask, by blocks.
    """

    config: ReleaseConfig
    shape: Shape
    stages: tuple[NoiseStage, ...]
    mask: Mask | None = None

    @classmethod
    def of(cls, config: ReleaseConfig, shape: Shape) -> PixelizationPlan:
        """The plan for pictures or clips of this shape.

        **Guarantee.** Neighbours: pictures (clips) that differ in at most m pixels, of any values; the size and the
        number of frames are public. Sensitivity: that of the partition (`BlockSums.sensitivity`). Noise: discrete
        Laplace of scale L1 / epsilon on every sum, or discrete Gaussian calibrated in zCDP. With a public mask it is
        calibrated to undivided blocks, which no mask exceeds: it does not depend on the mask and can be checked without
        it. With a private mask, stage one takes `share` of the budget for all blocks; stage two takes the rest for the
        parts of those blocks that stage one's output marks; its noise is calibrated to the partition in which every
        block is divided, which no mask exceeds. With m pixels in every frame, the budget is divided by the number of
        frames; with a box in any T frames, by T. Post-processing: division by the cell's area, rounding, clipping,
        tiling, the choice of regions, and how much of the parts' differences from their blocks is shown (`shrunk`).

        Args:
            config: What was asked for.
            shape: The picture's or clip's sizes.

        Raises:
            DposeError: the picture is too small, a mask has another size, or no noise meets the budget.
        """
        if config.paper is not None:
            raise ValueError("the paper's algorithms have a plan of their own")
        config.check_shape(shape)
        neighbours = config.neighbours(shape)
        blocks = blocks_of(shape, config.block)
        mask = None
        shares: list[tuple[bytes, Cells, Fraction]] = [(b"coarse", blocks, Fraction(1))]
        if isinstance(config.regions, PrivateRegions):
            share = config.regions.share
            fine = blocks_of(shape, config.block // config.subdivide)
            shares = [(b"coarse", blocks, share), (b"fine", fine, 1 - share)]
        elif isinstance(config.regions, PublicRegions):
            mask = config.regions.blocks(shape.height, shape.width, config.block)
        steps = {"frame": shape.frames, BOX: neighbours.frames or 1}.get(neighbours.scope, 1)
        stages = tuple(
            NoiseStage(_event(config, cells.sensitivity(neighbours), share, steps), name)
            for name, cells, share in shares
        )
        return cls(config, shape, stages, mask)

    @cached_property
    def blocks(self) -> BlockSums:
        """The partition into blocks."""
        return blocks_of(self.shape, self.config.block)

    @property
    def accountant(self) -> ReleaseAccountant:
        """Pure where delta is 0, else zCDP."""
        return ReleaseAccountant.ZCDP if self.config.delta else ReleaseAccountant.PURE

    @property
    def events(self) -> tuple[ExactEvent, ...]:
        """What the accountant sees."""
        return tuple(stage.event for stage in self.stages)

    def calibrated_to(self, cells: Cells) -> tuple[ExactEvent, ...]:
        """The one event of a release whose noise was made for the partition of its own public mask.

        So earlier versions calibrated Gaussian noise: less of it where no cell holds m pixels.
        """
        bound = cells.sensitivity(self.config.neighbours(self.shape))
        return (_event(self.config, bound, Fraction(1), self.stages[0].event.steps),)

    def release(self, picture: NDArray[Any] | Tensor, source: NoiseSource, frame: int = 0) -> Released:
        """Release one picture or frame.

        **Guarantee.** As `PixelizationPlan.of` says, provided that each picture or frame is released once under its
        own number.

        Args:
            picture: uint8 or uint16, (H, W) or (H, W, C); a tensor's sums are taken on its device.
            source: Where the noise comes from.
            frame: Number of the frame: each has streams of its own.

        Returns:
            What may be published.
        """

        def stream(stage: NoiseStage) -> Stream:
            return source.stream(Purpose.RELEASE, frame, stage.name)

        first = self.stages[0]
        if self.mask is not None:
            regions = self._regions(self.mask)
            noisy = first.noised(_exact_sums(regions, picture), stream(first))
            whole, parts = noisy[: regions.simple], noisy[regions.simple :]
            simple = _levels(whole, regions.areas[: regions.simple], regions.peak)
            return _joined(regions, simple, shrunk(regions, Noisy(parts, first.variance)))
        noisy = first.noised(_exact_sums(self.blocks, picture), stream(first))
        coarse = Released(self.blocks, _levels(noisy, self.blocks.areas, self.blocks.peak))
        if not isinstance(self.config.regions, PrivateRegions):
            return coarse
        mask = self.config.regions.blocks(coarse.values, self.blocks)
        regions, second, divided = self._regions(mask), self.stages[1], mask.reshape(-1)
        parts = second.noised(_exact_sums(regions, picture)[regions.simple :], stream(second))
        fine = shrunk(regions, Noisy(parts, second.variance), Noisy(noisy[divided], first.variance))
        return _joined(regions, coarse.values[~divided], fine)

    def run(
        self, frames: Iterable[NDArray[np.uint8]], source: NoiseSource, workers: int = 1
    ) -> Iterator[NDArray[np.uint8]]:
        """As `Plan.run` says; each frame's noise has a key of its own, so that `workers` changes nothing."""
        return released_frames(frames, self, source, workers)

    def _regions(self, mask: Mask) -> RegionSums:
        b = self.blocks
        return RegionSums(b.height, b.width, b.block, self.config.subdivide, mask, b.channels, b.peak)

    def object_epsilon(self, area: int, frames: int = 1) -> float:
        """Epsilon for an object that covers `area` pixels in each of `frames` frames, at the same delta.

        Laplace noise: epsilon grows with the number of pixels. Gaussian noise: the sensitivity is computed again for
        so many pixels, and converted again.
        """
        parts = blocks_of(self.shape, self.config.block // self.config.subdivide)
        here = Neighbours(Relation.REPLACE, area, "picture")
        events: list[ExactEvent] = []
        for stage in self.stages:
            bound = (parts if stage.name == b"fine" else self.blocks).sensitivity(here)
            if isinstance(stage.event, LaplaceEvent):
                events.append(LaplaceEvent(stage.event.scale, bound.in_l1(), frames))
            else:
                events.append(GaussianEvent(stage.event.variance, bound.l2_squared, frames))
        if isinstance(events[0], LaplaceEvent):
            return float(pure_epsilon(events))
        return zcdp_epsilon(zcdp_rho(events), self.config.delta)


def released_frames(
    frames: Iterable[NDArray[np.uint8]],
    plan: PixelizationPlan | PaperPlan,
    source: NoiseSource,
    workers: int,
) -> Iterator[NDArray[np.uint8]]:
    """Released frames in order, `workers` of them in work at a time. Memory does not grow with the clip.

    Each frame has a key of its own: the next 32 bytes of one stream of `source`, drawn in the order of the frames.

    Raises:
        DposeError: there are more frames than the plan was made for.
    """
    keys = source.stream(Purpose.RELEASE, 0, b"frames")

    def work(number: int, frame: NDArray[np.uint8], key: Key) -> NDArray[np.uint8]:
        shown: NDArray[np.uint8] = plan.release(frame, AesNoise(key), number).picture()
        return shown

    with ThreadPoolExecutor(max(1, workers)) as pool:
        waiting: deque[Future[NDArray[np.uint8]]] = deque()
        try:
            for number, frame in enumerate(frames):
                if plan.frames is not None and number >= plan.frames:
                    raise DposeError(f"the video has more frames than the {plan.frames} it declares")
                key = Key.drawn(keys.bytes(KEY_BYTES), seeded=source.seeded)
                waiting.append(pool.submit(work, number, frame, key))
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def blocks_of(shape: Shape, block: int) -> BlockSums:
    """A frame's blocks of this side."""
    return BlockSums(shape.height, shape.width, block, shape.channels, shape.peak)


def _event(config: ReleaseConfig, bound: Sensitivity, share: Fraction, steps: int) -> ExactEvent:
    if not config.delta:
        scale = bound.in_l1() * steps / (config.epsilon * share)
        if scale > MAX_SCALE:
            raise too_small(config, "sums")
        return LaplaceEvent(scale, bound.in_l1(), steps)
    rho = Fraction(zcdp_budget(float(config.epsilon), config.delta)) * share
    wanted = bound.l2_squared * steps / (2 * rho)
    sigma = math.isqrt(math.ceil(wanted) - 1) + 1  # rounded up to a whole number, which is fastest to draw
    if sigma > MAX_SCALE:
        raise too_small(config, "sums")
    return GaussianEvent(Fraction(sigma * sigma), bound.l2_squared, steps)


def _exact_sums(cells: Cells, picture: NDArray[Any] | Tensor) -> NDArray[np.int64]:
    if is_tensor(picture):
        sums: NDArray[np.int64] = cells.apply(picture).cpu().numpy()
        return sums
    return cells.apply(picture)


def _joined(cells: RegionSums, simple: NDArray[Any], parts: NDArray[np.float64]) -> Released:
    levels = np.clip(np.rint(parts), 0, cells.peak).astype(TYPES[cells.peak])
    return Released(cells, np.concatenate([simple, levels]))


def _levels(noisy: NDArray[np.int64], areas: NDArray[np.int64], peak: int) -> NDArray[Any]:
    """Noisy sums to gray levels: divided by the cells' true areas, rounded half up, clipped. Post-processing."""
    wide = areas[:, None]
    levels: NDArray[Any] = np.clip((2 * noisy + wide) // (2 * wide), 0, peak).astype(TYPES[peak])
    return levels
