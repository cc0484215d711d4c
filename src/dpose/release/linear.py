"""Any linear operator: project, clip, round, add exact noise; then restore. One group of frames at a time.

plan = LinearPlan.of(config, Shape(frames=280, height=256, width=340, channels=3))
for picture in plan.run(frames, source):
    ...
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.privacy.accounting import Accountant
from dpose.privacy.discrete import MAX_SCALE
from dpose.privacy.events import ExactEvent, Gaussian, Laplace
from dpose.privacy.gaussian import discrete_epsilon, discrete_mu, least_variance
from dpose.privacy.neighbours import BOX, ONE_FRAME, Neighbours
from dpose.privacy.noise import NoiseSource, Purpose
from dpose.privacy.ranges import check_delta
from dpose.release.choosing import choose_grid
from dpose.release.colour import Colour, settle_colour
from dpose.release.colour_planes import make_planes
from dpose.release.config import SEGMENT, Projection
from dpose.release.grid import Shape, blend, edge, is_tensor
from dpose.release.mechanism import NoiseStage, Plan, too_small
from dpose.release.operators import OPERATORS, GridOperator, Values
from dpose.release.projections import rounded_up
from dpose.release.restoration import PAINTED, Restoration, restored_clip

if TYPE_CHECKING:
    import torch
    from torch import Tensor

FINENESS = 256
"""Rounding may cost at most one part in so many of the sensitivity."""
STREAM = b"projection"


@dataclass(frozen=True)
class ReleasedValues:
    """A released picture as an operator's noisy values: public from here on.

    Attributes:
        operator: For one frame.
        values: float64, (outputs,).
    """

    operator: GridOperator
    values: NDArray[np.float64]

    def picture(self, device: torch.device | None = None) -> Any:
        """The picture, uint8, (H, W, C): an array, or a tensor where a device is named."""
        shown = as_levels(self.operator.picture(self.operator.level(self.values, 1)))
        if device is None:
            return shown
        import torch

        return torch.from_numpy(shown).to(device)


@dataclass(frozen=True)
class Clipping:
    """A bound on the L2 norm of projected values.

    Attributes:
        norm: C, in the units of an operator of norm 1: gray levels times the root of pixels.
        groups: How many groups of frames are clipped together.
    """

    norm: float
    groups: int

    def changed(self, neighbours: Neighbours, groups: int) -> float:
        """The most that clipped values change between neighbours: 2 C times the root of the parts that can change."""
        parts = -(-groups // self.groups)
        some = {"clip": neighbours.m, "frame": parts, ONE_FRAME: 1, BOX: neighbours.frames}[neighbours.scope]
        touched = min(some or parts, parts)
        return 2 * self.norm * math.sqrt(touched)

    def apply(self, values: list[Values]) -> list[Values]:
        """Scale groups that are clipped together down to the norm."""
        length = math.sqrt(sum(float(value @ value) for value in values))
        return [value * (self.norm / length) for value in values] if length > self.norm else values


@dataclass(frozen=True)
class LinearPlan(Plan):
    """A `GridOperator`'s values with exact noise.

    Attributes:
        config: The configuration.
        operator: The public operator.
        stage: The noise, and the sensitivity that it was calibrated to, in units of the grid.
        grid: What values are rounded to multiples of: a power of two, or 1 where they are whole.
        clipping: The bound on norms; None for none.
        choice: Public text that a drawn operator follows from; empty for the others.
    """

    config: Projection
    operator: GridOperator
    stage: NoiseStage
    grid: Fraction
    clipping: Clipping | None = None
    choice: str = ""

    @classmethod
    def of(cls, config: Projection, shape: Shape, choice: str = "") -> LinearPlan:
        """The plan for pictures or clips of this shape.

        **Guarantee.** Neighbours: clips of the same size and length that differ in at most m pixels of all frames
        together, of every frame, or of any one frame, or inside a box at any place in each of any T frames, by any
        amount; pictures are clips of one frame. Sensitivity: the
        operator's; with a clipping norm C at most 2 C times the root of how many parts can change; and sqrt(outputs)
        grid steps for rounding. Noise: exact discrete Gaussian on whole numbers, the same for every group of frames,
        calibrated to the Gaussian mechanism's own curve; on a picture's whole values with delta 0 exact discrete
        Laplace of scale L1 / epsilon. All groups are one release: groups do not add up, however long the clip.
        Post-processing: scaling, blending, enlarging or the adjoint, cutting off at black and white. Public: the
        operator, the size, the number of frames. Proved in docs/proofs/video.md.

        Args:
            config: The configuration.
            shape: The picture's or clip's sizes.
            choice: For a drawn operator: public text, drawn without looking at the clip.
        """
        if config.paper:
            raise ValueError("the paper's algorithm has a plan of its own")
        clip_neighbours(config, shape)
        config = replace(config, colour=operator_colour(config, shape))
        config.check_shape(shape)
        text = choice if OPERATORS[config.operator].drawn else ""
        colour = Colour.of(config.colour or "rgb", shape.channels, gaussian=bool(config.delta))
        if config.grid is None:
            best = choose_grid(config, shape)
            config = replace(config, grid=best.grid, chroma=best.factor if colour.chroma else config.chroma)
        assert config.grid is not None
        operator = make_planes(config.operator, shape, config.grid, colour, config.chroma or 1, text)
        return cls.around(operator, config, text)

    @classmethod
    def around(cls, operator: GridOperator, config: Projection, choice: str = "") -> LinearPlan:
        """The plan for an operator that is given; what a config says of operator, grid, k and pool is not used.

        **Guarantee.** As `LinearPlan.of` says.

        Args:
            operator: Public, and chosen without looking at the clip.
            config: The configuration.
            choice: Public text that a drawn operator follows from.
        """
        shape, groups = operator.shape, operator.groups
        config = replace(config, grid=(operator.rows, operator.columns, groups))
        neighbours = clip_neighbours(config, shape)
        clipping = None
        if config.clip_norm is not None:
            together = together_of(shape.frames, groups) if config.clip_segment else 1
            clipping = Clipping(config.clip_norm, together)
        grid = grid_for(operator, clipping, neighbours)
        event = _event(config, operator, clipping, grid, neighbours)
        return cls(config, operator, NoiseStage(event, STREAM), grid, clipping, choice)

    @property
    def shape(self) -> Shape:
        """The picture's or clip's sizes."""
        return self.operator.shape

    @property
    def event(self) -> ExactEvent:
        """What the accountant sees, however many groups there are."""
        return self.stage.event

    @property
    def events(self) -> tuple[ExactEvent, ...]:
        """The events that the accountant composes."""
        return (self.event,)

    @property
    def accountant(self) -> Accountant:
        """Pure where delta is 0, else the Gaussian mechanism's own curve."""
        return Accountant.GAUSSIAN if self.config.delta else Accountant.PURE

    @property
    def sigma(self) -> float:
        """The noise's standard deviation on the operator's values."""
        return math.sqrt(self.stage.variance) * float(self.grid) * (self.operator.unit if self.clipping else 1.0)

    @property
    def noise(self) -> float:
        """Gray levels of noise a pixel, root mean square, before values are cut off at black and white."""
        return self.operator.noise(self.sigma)

    def epsilon_for(self, m: int, scope: str, times: int = 1) -> float:
        """Epsilon, at the same delta and noise, for neighbours that differ in m pixels, in each of so many clips."""
        return self.epsilon_near(Neighbours.of_pixels(m, scope), times)

    def epsilon_near(self, neighbours: Neighbours, times: int = 1) -> float:
        """Epsilon, at the same delta and noise, for neighbours of any scope, in each of so many clips."""
        event = self.event
        if isinstance(event, Laplace):
            bound = self.operator.bound_for(neighbours).in_l1()
            return float(Laplace(event.scale, bound, event.steps * times).pure())
        squared = squared_change(self.operator, self.clipping, self.grid, neighbours)
        return discrete_epsilon(discrete_mu([(squared, event.variance, times)]), self.config.delta)

    def release(self, picture: NDArray[Any] | Tensor, source: NoiseSource) -> ReleasedValues:
        """Release one picture.

        **Guarantee.** As `LinearPlan.of` says, if the picture is released once.

        Args:
            picture: uint8, (H, W) or (H, W, C).
            source: Where the noise comes from.
        """
        array = picture.cpu().numpy() if is_tensor(picture) else picture
        shape = self.shape
        measured = self.measured([array.reshape(shape.height, shape.width, shape.channels)])
        (values,) = self.released(measured, source)
        return ReleasedValues(self.operator, values)

    def run(
        self, frames: Iterable[NDArray[np.uint8]], source: NoiseSource, workers: int = 1
    ) -> Iterator[NDArray[np.uint8]]:
        """Release a clip, frame by frame, by `Plan.run`'s contract."""
        return self.pictures(self.released(self.measured(frames), source))

    def measured(self, frames: Iterable[NDArray[np.uint8]]) -> Iterator[Values]:
        """The operator's values of every group, without noise: not to be published.

        Args:
            frames: uint8, (H, W, C), in order.

        Raises:
            DposeError: there are more or fewer frames than the plan was made for.
            ValueError: the operator gives other values than it announces.
        """
        groups, length = self.operator.groups, self.shape.frames
        group, held, number = 0, 0, 0
        total: Values = np.zeros(0)
        for number, frame in enumerate(frames, 1):
            if group == groups:
                raise DposeError("video-length-differs", f"the video has more frames than the {length} it declares")
            total = frame if held == 0 else np.add(total, frame, dtype=np.int64)
            held += 1
            if number == edge(group + 1, length, groups):
                yield self._checked(self.operator.apply(total, held))
                group, held = group + 1, 0
        if number != length:
            raise DposeError("video-length-differs", f"the video has {number} frames, not the {length} it declares")

    def _checked(self, values: Values) -> Values:
        """Refuse what the operator did not announce: rounding is paid for by number, and not at all for whole ones."""
        operator = self.operator
        if values.shape != (operator.outputs,) or (operator.whole and values.dtype.kind != "i"):
            raise ValueError(
                f"{type(operator).__name__} gave {values.dtype} {values.shape}, and announced {operator.outputs} "
                f"{'whole' if operator.whole else 'real'} numbers"
            )
        return values

    def released(self, measured: Iterable[Values], source: NoiseSource) -> Iterator[Values]:
        """Values with noise: public from here on.

        **Guarantee.** As `LinearPlan.of` says, if each clip is released once.

        Args:
            measured: The operator's values, group by group.
            source: Where the noise comes from.

        Yields:
            float64, (outputs,), a group at a time.
        """
        together = self.clipping.groups if self.clipping else 1
        waiting: list[Values] = []
        first = 0
        for values in measured:
            waiting.append(values)
            if len(waiting) == together:
                yield from self._noised(waiting, first, source)
                first, waiting = first + len(waiting), []
        yield from self._noised(waiting, first, source)

    def _noised(self, waiting: list[Values], first: int, source: NoiseSource) -> Iterator[Values]:
        if not waiting:
            return
        lengths = [self.length(first + n) for n in range(len(waiting))]
        clipping, operator, step = self.clipping, self.operator, float(self.grid)
        if clipping is not None:
            waiting = clipping.apply([operator.centred(values, t) for values, t in zip(waiting, lengths, strict=True)])
        for number, (values, t) in enumerate(zip(waiting, lengths, strict=True), first):
            stream = source.stream(Purpose.RELEASE, number, STREAM)
            shown = self.stage.noised(on_grid(values, self.grid), stream).astype(np.float64) * step
            yield operator.uncentred(shown, t) if clipping is not None else shown

    def pictures(self, released: Iterable[Values]) -> Iterator[NDArray[np.uint8]]:
        """The frames to show, from released values alone: neighbouring groups are blended. Post-processing.

        Args:
            released: Values of every group, in order.

        Yields:
            uint8, (H, W, C), as many as the clip has frames.
        """
        length, groups, operator = self.shape.frames, self.operator.groups, self.operator
        before = here = np.zeros(0)
        frame = 0
        show = operator.picture if self.restoration == PAINTED else np.asarray
        for group, level in enumerate(self._levels(released)):
            before, here = here, level
            if group == 0:
                before = here
            # all frames up to this group's middle have both their groups now
            last = length if group == groups - 1 else edge(group + 1, length, groups)
            while frame < last:
                first, weight = blend(frame, self._group_of(frame), length, groups)
                if first == group and weight > 0:
                    break
                shown = here if first == group else before
                if weight > 0:
                    shown = (1 - weight) * before + weight * here
                yield as_levels(show(shown))
                frame += 1

    @cached_property
    def restoration(self) -> Restoration:
        """The config's, for a clip's cells; other values are restored by their operator alone."""
        if self.shape.still or self.operator.observed(np.zeros(self.operator.outputs), 1, 1.0) is None:
            return PAINTED
        return self.config.restoration

    def _levels(self, released: Iterable[Values]) -> Iterator[Values]:
        """For every group: what `GridOperator.level` gives, or restored frames in gray levels."""
        groups = ((values, self.length(group)) for group, values in enumerate(released))
        if self.restoration == PAINTED:
            return (self.operator.level(values, frames) for values, frames in groups)
        seen = (self.operator.observed(values, frames, self.sigma) for values, frames in groups)
        shown = restored_clip((one for one in seen if one is not None), self.restoration.levels)
        return (one.repeat(self.shape.channels // one.shape[2], axis=2) for one in shown)

    def length(self, group: int) -> int:
        """Frames of a group."""
        frames, groups = self.shape.frames, self.operator.groups
        return edge(group + 1, frames, groups) - edge(group, frames, groups)

    def _group_of(self, frame: int) -> int:
        # the inverse of `edge`: the last group that begins at or before the frame
        return ((frame + 1) * self.operator.groups - 1) // self.shape.frames


def clip_neighbours(config: Projection, shape: Shape) -> Neighbours:
    """The neighbouring relation as operators know it: a picture is a clip of one frame."""
    if not shape.still:
        check_delta(config.delta)
    near = config.neighbours.resolved(shape)
    return replace(near, scope="clip") if shape.still else near


def operator_colour(config: Projection, shape: Shape) -> str:
    """The colours of what an operator releases."""
    apart = OPERATORS[config.operator].colours and config.clip_norm is None
    if not apart and shape.channels > 1 and config.colour not in (None, "rgb"):
        raise DposeError("colour-unsupported", "this takes three values alike", "colour", "say rgb")
    return settle_colour(config.colour, shape.channels, "ycc" if apart else "rgb")


def together_of(frames: int, groups: int) -> int:
    """How many groups of frames make up a segment that is clipped together."""
    return max(1, round(SEGMENT * groups / frames))


def grid_for(operator: GridOperator, clipping: Clipping | None, neighbours: Neighbours) -> Fraction:
    """The grid that values are rounded to: a power of two so fine that rounding costs next to nothing."""
    if operator.whole and clipping is None:
        return Fraction(1)
    change = _change(operator, clipping, neighbours)
    steps = FINENESS * math.sqrt(operator.outputs * operator.groups)
    return Fraction(2) ** math.floor(math.log2(change / steps))


def squared_change(
    operator: GridOperator, clipping: Clipping | None, grid: Fraction, neighbours: Neighbours
) -> Fraction:
    """The square of the most that the rounded values change between neighbours, in L2 norm and units of the grid.

    **Guarantee.** Whole numbers that are not clipped: the operator's own sensitivity. Otherwise rounding a value moves
    it by at most half a step, and floating point computes it within a known distance; so two values differ by at most
    their true distance plus one step plus twice that, and n of them by sqrt(n) times as much.
    """
    if operator.whole and clipping is None:
        return operator.bound_for(neighbours).l2_squared / grid**2
    count = operator.outputs * operator.groups
    longest = -(-operator.shape.frames // operator.groups)
    off = operator.blur(longest)
    if clipping is not None:
        together = operator.outputs * clipping.groups
        # clipping carries errors on without making them larger, and rounds a few times itself
        off = off * math.sqrt(together) + (together + 16) * float(np.finfo(np.float64).eps) * clipping.norm
    step = float(grid)
    change = _change(operator, clipping, neighbours) / step + math.sqrt(count) * (1 + 2 * off / step)
    return rounded_up(change * change)


def on_grid(values: Values, grid: Fraction) -> NDArray[np.int64]:
    """The nearest multiples, in units of the grid."""
    if values.dtype.kind == "i":
        return values
    # division by a power of two is exact
    return np.asarray(np.rint(values / float(grid)).astype(np.int64))


def as_levels(picture: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Rounded to whole gray levels and cut off at black and white."""
    return np.asarray(cv2.convertScaleAbs(np.maximum(picture, 0))).reshape(picture.shape)


def _change(operator: GridOperator, clipping: Clipping | None, neighbours: Neighbours) -> float:
    free = math.sqrt(operator.bound_for(neighbours).l2_squared) / (operator.unit if clipping else 1.0)
    return free if clipping is None else min(free, clipping.changed(neighbours, operator.groups))


def _event(
    config: Projection, operator: GridOperator, clipping: Clipping | None, grid: Fraction, neighbours: Neighbours
) -> ExactEvent:
    if not config.delta:
        if clipping is not None or not operator.whole:
            raise DposeError("delta-missing", "this takes Gaussian noise alone", "delta", "give a delta above 0")
        bound = operator.bound_for(neighbours).in_l1()
        scale = bound / config.epsilon
        if scale > MAX_SCALE:
            raise too_small(config, "numbers")
        return Laplace(scale, bound)
    squared = squared_change(operator, clipping, grid, neighbours)
    variance = Fraction(least_variance(squared, float(config.epsilon), config.delta))
    if variance > MAX_SCALE**2:
        raise too_small(config, "numbers")
    return Gaussian(variance, squared)
