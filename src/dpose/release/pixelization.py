"""Pixelization: exact sums of cells, exact noise, and post-processing of what they give; one frame at a time.

plan = PixelizationPlan.of(Pixelization.of("0.5", "pixels:16"), Shape.of(1080, 1920))
cells = plan.release(picture, source, frame=0)
picture = cells.picture()
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.privacy.accounting import Accountant, cost
from dpose.privacy.discrete import MAX_SCALE
from dpose.privacy.events import ExactEvent, Gaussian, Laplace
from dpose.privacy.neighbours import BOX, Neighbours
from dpose.privacy.noise import KEY_BYTES, AesNoise, Key, NoiseSource, Purpose
from dpose.privacy.renyi import zcdp_budget
from dpose.release.choosing import AS_GOOD, PEAK, SIDES, Choice, best_choice, expected_choice, factors
from dpose.release.colour import Colour, settle_colour
from dpose.release.config import CHOOSABLE, Pixelization
from dpose.release.grid import Shape, is_tensor
from dpose.release.mechanism import NoiseStage, Plan, too_small
from dpose.release.operators import Sensitivity
from dpose.release.partition import BlockSums, Cells, Mask, RegionSums
from dpose.release.regions import PrivateRegions, PublicRegions
from dpose.release.released import Layers, ReleasedSums, Shown, widened
from dpose.release.restoration import PAINTED, restored_clip

if TYPE_CHECKING:
    from torch import Tensor

    from dpose.release.published import PublishedPicturePlan

GUIDED = 4
"""How many times as wide chroma's cells of a picture are where the learned restoration shows it. That sees luma where
it guesses chroma, which the best linear guess, a channel at a time, does not: on public pictures that it did not learn
from this is better at every budget from 0.5 to 8 than what the linear error would take (benchmarks/chroma_cells.py)."""
LAST_DIGITS = 1e-9


@dataclass(frozen=True)
class PixelizationPlan(Plan):
    """Sums of cells of each frame, with exact noise.

    Attributes:
        config: The configuration, with all that was left to be chosen.
        shape: The picture's or clip's sizes.
        stages: One, or two where the mask is private.
        colour: Which combinations of R, G and B are summed.
        mask: The public mask, by blocks.
    """

    config: Pixelization
    shape: Shape
    stages: tuple[NoiseStage, ...]
    colour: Colour
    mask: Mask | None = None

    @classmethod
    def of(cls, config: Pixelization, shape: Shape) -> PixelizationPlan:
        """The plan for pictures or clips of this shape.

        **Guarantee.** Neighbours: pictures (clips) that differ in at most m pixels, of any values; the size and the
        number of frames are public. Sensitivity: that of the partition (`BlockSums.sensitivity`). Noise: discrete
        Laplace of scale L1 / epsilon on every sum, or discrete Gaussian calibrated in zCDP. Of colours, luma and chroma
        are summed over cells of their own (`Colour.joint`); a second stage takes luma alone. With a public mask it is
        calibrated to undivided blocks, which no mask exceeds: it does not depend on the mask and can be checked without
        it. With a private mask, stage one takes `share` of the budget for all blocks; stage two takes the rest for the
        parts of those blocks that stage one's output marks; its noise is calibrated to the partition in which every
        block is divided, which no mask exceeds. With m pixels in every frame, the budget is divided by the number of
        frames; with a box in any T frames, by T. Post-processing: division by the cell's area, rounding, clipping,
        tiling, the choice of regions, and how much of the parts' differences from their blocks is shown (`shrunk`).

        Args:
            config: The configuration.
            shape: The picture's or clip's sizes.
        """
        if config.paper is not None:
            raise ValueError("the paper's algorithms have a plan of their own")
        config = choose_cells(config, shape)
        config.check_shape(shape)
        colour = Colour.of(config.colour or "rgb", shape.channels, gaussian=bool(config.delta))
        mask, shares = None, [(b"coarse", Fraction(1))]
        if isinstance(config.regions, PrivateRegions):
            share = config.regions.share
            shares = [(b"coarse", share), (b"fine", 1 - share)]
        elif isinstance(config.regions, PublicRegions):
            mask = config.regions.blocks(shape.height, shape.width, config.side)
        bare = cls(config, shape, (), colour, mask)
        neighbours = config.neighbours.resolved(shape)
        steps = {"frame": shape.frames, BOX: neighbours.frames or 1}.get(neighbours.scope, 1)
        stages = tuple(
            NoiseStage(_event(config, bare.sensitivity(name, neighbours), share, steps), name) for name, share in shares
        )
        return cls(config, shape, stages, colour, mask)

    @cached_property
    def blocks(self) -> BlockSums:
        """The partition into blocks."""
        return blocks_of(self.shape, self.config.side)

    @cached_property
    def layers(self) -> Layers:
        """The partitions, but for a mask that is to follow from the first stage."""
        config = self.config
        staged = isinstance(config.regions, PrivateRegions)
        return Layers(self.blocks, self.colour, config.chroma or 1, config.subdivide, self.mask, staged)

    def sensitivity(self, stage: bytes, neighbours: Neighbours, cells: Cells | None = None) -> Sensitivity:
        """The most that a stage's sums change between neighbours.

        **Guarantee.** As `Colour.joint` and `BlockSums.sensitivity` say: of all blocks in the first stage; in the
        second, luma of all parts of all blocks.

        Args:
            stage: Name of the stage.
            neighbours: Neighbours of a picture or clip, resolved.
            cells: Luma's cells where they are others than all blocks.
        """
        config, fine = self.config, stage == b"fine"
        luma = cells or blocks_of(self.shape, config.part if fine else config.side)
        colour = self.colour.without_chroma() if fine else self.colour
        near, far = (
            replace(one, channels=1).sensitivity(neighbours) for one in (luma, widened(self.blocks, config.chroma or 1))
        )
        return colour.joint(near, far)

    @property
    def accountant(self) -> Accountant:
        """Pure where delta is 0, else zCDP."""
        return Accountant.ZCDP if self.config.delta else Accountant.PURE

    @property
    def events(self) -> tuple[ExactEvent, ...]:
        """The events that the accountant composes."""
        return tuple(stage.event for stage in self.stages)

    def release(self, picture: NDArray[Any] | Tensor, source: NoiseSource, frame: int = 0) -> ReleasedSums:
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

        def noised(stage: NoiseStage, exact: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
            flat = np.concatenate([sums.reshape(-1) for sums in exact])
            noisy = stage.noised(flat, stage.stream(source, frame, flat))
            ends = np.cumsum([sums.size for sums in exact])[:-1]
            return [part.reshape(sums.shape) for part, sums in zip(np.split(noisy, ends), exact, strict=True)]

        layers, colour, first = self.layers, self.colour, self.stages[0]
        exact = [_combined(layers.cells, picture, colour.luma)]
        if colour.chroma:
            exact.append(_combined(layers.coarse, picture, colour.chroma))
        sums = dict(zip(("luma", "chroma"), noised(first, exact), strict=False))
        variances = tuple(stage.variance for stage in self.stages)
        released = ReleasedSums(layers, sums, variances, self.config.restoration)
        if not isinstance(self.config.regions, PrivateRegions):
            return released
        mask = self.config.regions.blocks(released.block_colours(), self.blocks)
        layers = replace(layers, mask=mask)
        regions = layers.cells
        assert isinstance(regions, RegionSums)
        parts = _combined(regions, picture, colour.luma)[regions.simple :]
        (sums["parts"],) = noised(self.stages[1], [parts])
        return replace(released, layers=layers, sums=sums)

    def run(
        self, frames: Iterable[NDArray[np.uint8]], source: NoiseSource, workers: int = 1
    ) -> Iterator[NDArray[np.uint8]]:
        """Release a clip by `Plan.run`'s contract.

        Each frame's noise has a key of its own, so that `workers` changes nothing.
        """
        return released_frames(frames, self, source, workers)

    def object_epsilon(self, area: int, frames: int = 1) -> float:
        """Epsilon for an object that covers `area` pixels in each of `frames` frames, at the same delta.

        Laplace noise: epsilon grows with the number of pixels. Gaussian noise: the sensitivity is computed again for
        so many pixels, and converted again.
        """
        here = Neighbours.of_pixels(area, "picture")
        events: list[ExactEvent] = []
        for stage in self.stages:
            bound = self.sensitivity(stage.name, here)
            if isinstance(stage.event, Laplace):
                events.append(Laplace(stage.event.scale, bound.in_l1(), frames))
            else:
                events.append(Gaussian(stage.event.variance, bound.l2_squared, frames))
        return float(cost(events, self.config.delta, accountant=self.accountant))


def released_frames(
    frames: Iterable[NDArray[np.uint8]],
    plan: PixelizationPlan | PublishedPicturePlan,
    source: NoiseSource,
    workers: int,
) -> Iterator[NDArray[np.uint8]]:
    """Released frames in order, `workers` of them in work at a time. Memory does not grow with the clip.

    A restoration sees each frame with the one before and the one after. Each frame has a key of its own: the next 32
    bytes of one stream of `source`, drawn in the order of the frames.
    """
    restoration, released = plan.config.restoration, _frames(frames, plan, source, workers)
    if restoration == PAINTED:
        return (one.picture() for one in released)
    return restored_clip((one.observed() for one in released), restoration.apply)


def _frames(
    frames: Iterable[NDArray[np.uint8]],
    plan: PixelizationPlan | PublishedPicturePlan,
    source: NoiseSource,
    workers: int,
) -> Iterator[Shown]:
    keys = source.stream(Purpose.RELEASE, 0, b"frames")

    def work(number: int, frame: NDArray[np.uint8], key: Key) -> Shown:
        return plan.release(frame, AesNoise(key), number)

    with ThreadPoolExecutor(max(1, workers)) as pool:
        waiting: deque[Future[Shown]] = deque()
        try:
            for number, frame in enumerate(frames):
                if plan.frames is not None and number >= plan.frames:
                    raise DposeError(
                        "video-length-differs", f"the video has more frames than the {plan.frames} it declares"
                    )
                key = Key.drawn(keys.bytes(KEY_BYTES), seeded=source.seeded)
                waiting.append(pool.submit(work, number, frame, key))
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def choose_cells(config: Pixelization, shape: Shape, as_good: float = AS_GOOD) -> Pixelization:
    """The config with colour, block and chroma's cells settled.

    Args:
        config: The configuration.
        shape: The picture's or clip's sizes.
        as_good: As for `best_choice`.
    """
    colour = settle_colour(config.colour, shape.channels)
    open_config = replace(config, colour=colour, chroma=config.chroma if colour == "ycc" else None)
    if open_config.resolved:
        return open_config
    best = best_choice(cell_choices(open_config, shape), restored=config.restoration != PAINTED, as_good=as_good)
    chroma = best.factor if colour == "ycc" else None
    made = replace(open_config, block=int(best.block), chroma=chroma)
    return replace(made, chosen=tuple(n for n in CHOOSABLE if getattr(open_config, n) != getattr(made, n)))


def is_chosen(config: Pixelization, shape: Shape) -> bool:
    """True if the config's cells are those that are chosen if what it says was chosen is left open.

    Expected errors are floating-point numbers, whose last digits differ between machines: where two choices are as good
    but for those, either will do.
    """
    block = None if "block" in config.chosen else config.block
    chroma = None if "chroma" in config.chosen else config.chroma
    open_config = replace(config, block=block, chroma=chroma, chosen=())
    found = (choose_cells(open_config, shape, AS_GOOD * (1 + by)) for by in (0, -LAST_DIGITS, LAST_DIGITS))
    wanted = (config.block, config.chroma, config.chosen)
    return any((one.block, one.chroma, one.chosen) == wanted for one in found)


def cell_choices(config: Pixelization, shape: Shape) -> tuple[Choice, ...]:
    """All blocks and chroma cells that could be taken, and what is expected of them."""
    share = config.regions.share if isinstance(config.regions, PrivateRegions) else Fraction(1)
    bare = replace(
        config,
        epsilon=config.epsilon * share,
        block=None,
        regions=None,
        subdivide=1,
        colour=settle_colour(config.colour, shape.channels),
        chosen=(),
    )
    least = min(shape.height, shape.width)
    sides = [side for side in SIDES if side <= least and side % config.subdivide == 0]
    if config.block is not None:
        sides = [config.block]
    if not sides:
        raise DposeError(
            "subdivide-without-block",
            f"no block of at most {least} pixels can be divided into {config.subdivide} parts",
            "subdivide",
        )
    return _cell_choices(bare, shape, tuple(sides))


@lru_cache(maxsize=256)
def _cell_choices(config: Pixelization, shape: Shape, sides: tuple[int, ...]) -> tuple[Choice, ...]:
    found = []
    for side in sides:
        guided = config.restoration.method == "learned" and config.colour == "ycc" and not config.chroma
        for factor in (GUIDED,) if guided else factors(config):
            plan = PixelizationPlan.of(
                replace(config, block=side, chroma=factor if config.colour == "ycc" else None), shape
            )
            noise = math.sqrt(plan.stages[0].variance) * PEAK / shape.peak
            found.append(expected_choice(plan.colour, shape, side, factor, 1, noise))
    return tuple(found)


def blocks_of(shape: Shape, block: int) -> BlockSums:
    """A frame's blocks of this side."""
    return BlockSums(shape.height, shape.width, block, shape.channels, shape.peak)


def _event(config: Pixelization, bound: Sensitivity, share: Fraction, steps: int) -> ExactEvent:
    if not config.delta:
        scale = bound.in_l1() * steps / (config.epsilon * share)
        if scale > MAX_SCALE:
            raise too_small(config, "sums")
        return Laplace(scale, bound.in_l1(), steps)
    rho = Fraction(zcdp_budget(float(config.epsilon), config.delta)) * share
    wanted = bound.l2_squared * steps / (2 * rho)
    sigma = math.isqrt(math.ceil(wanted) - 1) + 1  # rounded up to a whole number, which is fastest to draw
    if sigma > MAX_SCALE:
        raise too_small(config, "sums")
    return Gaussian(Fraction(sigma * sigma), bound.l2_squared, steps)


def _combined(cells: Cells, picture: NDArray[Any] | Tensor, rows: tuple[tuple[int, ...], ...]) -> NDArray[np.int64]:
    """Exact sums over cells of the combinations: (cells, combinations). Sums first: both are linear and whole."""
    sums: NDArray[np.int64] = cells.apply(picture).cpu().numpy() if is_tensor(picture) else cells.apply(picture)
    return sums @ np.array(rows, np.int64).T
