"""The mechanism: exact sums, exact noise, and post-processing of what they give; one frame at a time.

plan = Plan.of(setting, height=1080, width=1920, channels=1, peak=255)
cells = plan.release(picture, source, frame=0)
picture = cells.picture()
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.privacy.discrete import MAX_SCALE, discrete_gaussian, discrete_laplace
from dpose.privacy.exact import (
    ExactEvent,
    GaussianEvent,
    LaplaceEvent,
    pure_epsilon,
    zcdp_budget,
    zcdp_epsilon,
    zcdp_rho,
)
from dpose.privacy.noise import NoiseSource, Purpose, Stream
from dpose.privacy.rounding import as_given
from dpose.privacy.statement import Neighbours
from dpose.release.config import Setting
from dpose.release.operators import BlockSums, Cells, Mask, RegionSums, Sensitivity
from dpose.release.regions import PrivateRegions, PublicRegions
from dpose.release.wiener import Noisy, shrunk
from dpose.tensors import is_tensor

if TYPE_CHECKING:
    import torch
    from torch import Tensor

TYPES = {255: np.uint8, 65535: np.uint16}


@dataclass(frozen=True)
class Released:
    """One released picture: public from here on.

    Attributes:
        cells: The partition.
        values: The cells' gray levels, uint8 or uint16, (cells, C).
    """

    cells: Cells
    values: NDArray[Any]

    def picture(self, device: torch.device | None = None) -> Any:
        """The picture, (H, W, C): an array, or a tensor where a device is named."""
        if device is None:
            return self.cells.adjoint(self.values)
        import torch

        # few operators know 16 bits without a sign; the values fit into more
        wide = torch.from_numpy(self.values.astype(np.int64)).to(device)
        kind = torch.uint8 if self.values.dtype == np.uint8 else torch.uint16
        return self.cells.adjoint(wide).to(kind)


@dataclass(frozen=True)
class NoiseStage:
    """Noise for one set of sums.

    Attributes:
        event: Its parameter and the sensitivity that it was calibrated to.
        name: Tells the stage's stream from the others'.
    """

    event: ExactEvent
    name: bytes

    def noised(self, sums: NDArray[np.int64], stream: Stream) -> NDArray[np.int64]:
        """Integer sums plus exact integer noise, one draw for each."""
        if isinstance(self.event, LaplaceEvent):
            noise = discrete_laplace(self.event.scale, sums.size, stream)
        else:
            noise = discrete_gaussian(self.event.variance, sums.size, stream)
        noisy: NDArray[np.int64] = sums + noise.reshape(sums.shape)
        return noisy

    @property
    def variance(self) -> float:
        """Of the noise; for discrete Laplace noise 2 t^2, which is a little more than it has."""
        if isinstance(self.event, LaplaceEvent):
            return 2 * float(self.event.scale) ** 2
        return float(self.event.variance)


@dataclass(frozen=True)
class Plan:
    """A setting bound to a picture's size: the operators, the noise and the cost.

    Attributes:
        setting: What was asked for.
        blocks: The partition into blocks.
        frames: Number of frames; None for a single picture.
        stages: One, or two where the mask is private.
        mask: The public mask, by blocks.
    """

    setting: Setting
    blocks: BlockSums
    frames: int | None
    stages: tuple[NoiseStage, ...]
    mask: Mask | None = None

    @classmethod
    def of(
        cls,
        setting: Setting,
        height: int,
        width: int,
        channels: int,
        peak: int,
        frames: int | None = None,
    ) -> Plan:
        """The plan for pictures of this size.

        **Guarantee.** Neighbours: pictures (clips) that differ in at most m pixels, of any values; the size and the
        number of frames are public. Sensitivity: that of the partition (`BlockSums.sensitivity`). Noise: discrete
        Laplace of scale L1 / epsilon on every sum, or discrete Gaussian calibrated in zCDP. With a public mask it is
        calibrated to undivided blocks, which no mask exceeds: it does not depend on the mask and can be checked without
        it. With a private mask, stage one takes `share` of the budget for all blocks; stage two takes the rest for the
        parts of those blocks that stage one's output marks; its noise is calibrated to the partition in which every
        block is divided, which no mask exceeds. With m pixels in every frame, the budget is divided by the number of
        frames. Post-processing: division by the cell's area, rounding, clipping, tiling, the choice of regions, and how
        much of the parts' differences from their blocks is shown (`shrunk`).

        Args:
            setting: What was asked for.
            height: Pixels.
            width: Pixels.
            channels: Values a pixel has.
            peak: 255 or 65535.
            frames: Number of frames of a clip.

        Raises:
            DposeError: the picture is too small, a mask has another size, or no noise meets the budget.
        """
        if setting.paper is not None:
            raise ValueError("the paper's algorithms have a plan of their own")
        setting.check_picture(height, width, frames or 1)
        neighbours = setting.neighbours(clip=frames is not None)
        blocks = BlockSums(height, width, setting.block, channels, peak)
        fine = BlockSums(height, width, setting.block // setting.subdivide, channels, peak)
        mask = None
        shares: list[tuple[bytes, Cells, Fraction]]
        if isinstance(setting.regions, PrivateRegions):
            share = setting.regions.share
            shares = [(b"coarse", blocks, share), (b"fine", fine, 1 - share)]
        elif isinstance(setting.regions, PublicRegions):
            mask = setting.regions.blocks(height, width, setting.block)
            shares = [(b"coarse", blocks, Fraction(1))]
        else:
            shares = [(b"coarse", blocks, Fraction(1))]
        steps = frames if frames is not None and setting.per_frame else 1
        stages = tuple(
            NoiseStage(_event(setting, cells.sensitivity(neighbours), share, steps), name)
            for name, cells, share in shares
        )
        return cls(setting, blocks, frames, stages, mask)

    @property
    def events(self) -> tuple[ExactEvent, ...]:
        """What the accountant sees."""
        return tuple(stage.event for stage in self.stages)

    def calibrated_to(self, cells: Cells) -> tuple[ExactEvent, ...]:
        """The one event of a release whose noise was made for the partition of its own public mask.

        So earlier versions calibrated Gaussian noise: less of it where no cell holds m pixels.
        """
        bound = cells.sensitivity(self.setting.neighbours(self.frames is not None))
        return (_event(self.setting, bound, Fraction(1), self.stages[0].event.steps),)

    def release(self, picture: NDArray[Any] | Tensor, source: NoiseSource, frame: int = 0) -> Released:
        """Release one picture or frame.

        **Guarantee.** As `Plan.of` says, provided that each picture or frame is released once under its own number.

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
        if not isinstance(self.setting.regions, PrivateRegions):
            return coarse
        mask = self.setting.regions.blocks(coarse.values, self.blocks)
        regions, second, divided = self._regions(mask), self.stages[1], mask.reshape(-1)
        parts = second.noised(_exact_sums(regions, picture)[regions.simple :], stream(second))
        fine = shrunk(regions, Noisy(parts, second.variance), Noisy(noisy[divided], first.variance))
        return _joined(regions, coarse.values[~divided], fine)

    def _regions(self, mask: Mask) -> RegionSums:
        b = self.blocks
        return RegionSums(b.height, b.width, b.block, self.setting.subdivide, mask, b.channels, b.peak)

    def object_epsilon(self, area: int, frames: int = 1) -> float:
        """Epsilon for an object that covers `area` pixels in each of `frames` frames, at the same delta.

        Laplace noise: epsilon grows with the number of pixels. Gaussian noise: the sensitivity is computed again for
        so many pixels, and converted again.
        """
        blocks, fine = self.blocks, self.setting.block // self.setting.subdivide
        parts = BlockSums(blocks.height, blocks.width, fine, blocks.channels, blocks.peak)
        here = Neighbours(self.setting.neighbours(False).relation, area, "picture")
        events: list[ExactEvent] = []
        for stage in self.stages:
            cells = parts if stage.name == b"fine" else self.blocks
            bound = cells.sensitivity(here)
            if isinstance(stage.event, LaplaceEvent):
                events.append(LaplaceEvent(stage.event.scale, Fraction(bound.l1), frames))
            else:
                events.append(GaussianEvent(stage.event.variance, Fraction(bound.l2_squared), frames))
        if isinstance(events[0], LaplaceEvent):
            return float(pure_epsilon(events))
        return zcdp_epsilon(zcdp_rho(events), self.setting.delta)


def _event(setting: Setting, bound: Sensitivity, share: Fraction, steps: int) -> ExactEvent:
    if not setting.delta:
        scale = Fraction(bound.l1) * steps / (setting.epsilon * share)
        if scale > MAX_SCALE:
            raise _too_small(setting.epsilon)
        return LaplaceEvent(scale, Fraction(bound.l1), steps)
    rho = Fraction(zcdp_budget(float(setting.epsilon), setting.delta)) * share
    wanted = Fraction(bound.l2_squared) * steps / (2 * rho)
    sigma = math.isqrt(math.ceil(wanted) - 1) + 1  # rounded up to a whole number, which is fastest to draw
    if sigma > MAX_SCALE:
        raise _too_small(setting.epsilon)
    return GaussianEvent(Fraction(sigma * sigma), Fraction(bound.l2_squared), steps)


def _too_small(epsilon: Fraction) -> DposeError:
    return DposeError(
        f"epsilon {as_given(epsilon)} asks for more noise than 64-bit sums can hold",
        fix="choose a larger epsilon",
    )


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
