"""What a config means before anything is released: noise in gray levels, epsilon for a face, a picture, a minute."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from dpose.privacy.events import Gaussian, Laplace
from dpose.privacy.ranges import as_given, exact_text, lower, upper
from dpose.release.choosing import curve_lines, grid_choices
from dpose.release.colour import Colour
from dpose.release.linear import LinearPlan
from dpose.release.objects import (
    ANY_FACE,
    Face,
    box_epsilon,
    face_in,
    object_lines,
    person_lines,
    repeated_line,
    warning_lines,
)
from dpose.release.operators import OPERATORS
from dpose.release.pixelization import PixelizationPlan, cell_choices
from dpose.release.plans import AnyPlan
from dpose.release.projections import PEAK
from dpose.release.regions import PrivateRegions

MOSTLY_NOISE = PEAK / 4
"""Gray levels a pixel; above, little but noise is left."""


def explain_release(
    plan: AnyPlan, rate: Fraction | None = None, *, alone: bool = True, face: Face = ANY_FACE
) -> list[str]:
    """What a config will do, before a pixel is looked at: lines of text, for a person.

    Args:
        plan: A config bound to a shape.
        rate: Frames a second, for a clip.
        alone: True for what was expected of other cells, where they were chosen, and the statement's warnings, too.
        face: A face's declared width and height, pixels.
    """
    if not isinstance(plan, PixelizationPlan | LinearPlan):
        return plan.explained()
    lines = _operator_lines(plan, rate, face) if isinstance(plan, LinearPlan) else _cell_lines(plan, rate, face)
    return [*lines, *_curve(plan)] if alone else [line for line in lines if line not in warning_lines(plan, face)]


def _curve(plan: LinearPlan | PixelizationPlan) -> list[str]:
    """What was expected of all cells that could have been taken; nothing where they were not chosen."""
    if isinstance(plan, PixelizationPlan):
        cells = plan.config
        choices = cell_choices(replace(cells, block=None, chroma=None), plan.shape) if cells.chosen else ()
        return curve_lines(choices, (cells.side, cells.chroma or 1, 1)) if choices else []
    config, operator = plan.config, plan.operator
    if config.k is not None and config.pool is not None:
        return []
    grid = (operator.rows, operator.columns, operator.groups)
    choices = grid_choices(replace(config, chroma=None), plan.shape)
    taken = [c for c in choices if c.grid == grid and c.factor == (config.chroma or 1)]
    return curve_lines(choices, (taken[0].block, taken[0].factor, taken[0].frames)) if taken else []


def _cell_lines(plan: PixelizationPlan, rate: Fraction | None, declared: Face) -> list[str]:
    config, blocks = plan.config, plan.blocks
    what = f"clip of {_several(plan.frames, 'frame')}" if plan.frames else "picture"
    colour = _colour_words(plan.colour.name, blocks.channels)
    delta = f" and delta {as_given(config.delta)}" if config.delta else ""
    cells = f"{blocks.rows * blocks.columns:,} cells" + _a_frame(plan)
    lines = [
        f"{what}, {blocks.width} x {blocks.height}, {colour}, blocks of {blocks.block}: {cells}",
        f"epsilon {exact_text(config.epsilon)}{delta} for {config.neighbours.resolved(plan.shape).describe()}",
    ]
    for stage in plan.stages:
        side = config.side if stage.name == b"coarse" else config.part
        lines.append(_noise_line(stage.event, side, blocks.peak, _stage_name(plan, stage.name), plan.colour))
        if plan.mask is not None and config.subdivide > 1:
            side = config.part
            name = f"in complex regions ({side} x {side})"
            lines.append(_noise_line(stage.event, side, blocks.peak, name, plan.colour))
    if plan.colour.chroma:
        wide = plan.layers.coarse.block
        lines.append(f"chroma: blocks of {wide} x {wide}, with the same noise, at no further cost")
    face = face_in(plan.shape, declared)
    thing, size = "a face" if face == declared else "an object", f"{face[0]} x {face[1]}"
    whole = blocks.height * blocks.width
    lines.append(f"epsilon for {thing} of {size}: {upper(box_epsilon(plan, face))}" + _a_frame(plan))
    lines.append(f"epsilon for the whole picture: {upper(plan.object_epsilon(whole))}" + _a_frame(plan))
    if plan.frames and rate:
        minute = min(plan.frames, math.ceil(60 * rate))
        length = "a minute" if minute >= 60 * rate else f"all {float(minute / rate):.1f} seconds"
        lines.append(f"epsilon for {thing} seen for {length}: {upper(box_epsilon(plan, face, frames=minute))}")
        lines.append(f"epsilon for {length} of the clip: {upper(plan.object_epsilon(whole, minute))}")
    return [*lines, *person_lines(plan, declared), repeated_line(plan, declared), *warning_lines(plan, declared)]


def _operator_lines(plan: LinearPlan, rate: Fraction | None, face: Face) -> list[str]:
    config, shape, operator = plan.config, plan.shape, plan.operator
    colour = _colour_words(config.colour or "rgb", shape.channels)
    what = "picture" if shape.still else f"clip of {_several(shape.frames, 'frame')}"
    delta = f" and delta {as_given(config.delta)}" if config.delta else ""
    each = f"{shape.frames / operator.groups:.3g}"
    groups = f" for {_several(operator.groups, 'group')} of {each} {'frame' if each == '1' else 'frames'}"
    lines = [
        f"{what}, {shape.width} x {shape.height}, {colour}",
        f"epsilon {exact_text(config.epsilon)}{delta} for {config.neighbours.resolved(shape).describe()}",
        f"operator: {OPERATORS[config.operator].about}; {operator.columns} x {operator.rows}"
        f"{'' if shape.still else groups}",
        f"noise: {lower(plan.noise, 3)} gray levels a pixel; from noise alone a PSNR of "
        f"{noise_psnr(plan.noise):.1f} dB",
    ]
    if plan.clipping is not None:
        lines.append(
            f"clipping: norms above {plan.clipping.norm:g} lose contrast (a frame of contrast s has a norm of up to "
            f"{math.sqrt(shape.values):.0f} s)"
        )
    if plan.noise > MOSTLY_NOISE:
        lines.append(
            "WARNING: this will be mostly noise. A larger epsilon, fewer pixels m, a smaller k or a larger pool help"
        )
    if rate and not shape.still:
        minute = min(shape.frames, math.ceil(60 * rate))
        length = "a minute" if minute >= 60 * rate else f"all {float(minute / rate):.1f} seconds"
        for what, sides in (("a face seen for ", face_in(shape, face)), ("", (shape.width, shape.height))):
            cost = box_epsilon(plan, sides, frames=minute)
            lines.append(f"epsilon for {what}{length}{'' if what else ' of the clip'}: {upper(cost)}")
    return [*lines, *object_lines(plan, face)]


def _several(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def noise_psnr(noise: float) -> float:
    """PSNR in dB of a picture that noise of so many gray levels is added to."""
    return 20 * math.log10(PEAK / noise)


def _noise_line(event: Laplace | Gaussian, side: int, peak: int, name: str, colour: Colour) -> str:
    if isinstance(event, Laplace):
        spread = math.sqrt(2) * float(event.scale)
        law = f"discrete Laplace of scale {exact_text(event.scale)}"
    else:
        spread = math.sqrt(event.variance)
        law = f"discrete Gaussian of sigma {lower(spread, 6)}"
    levels = spread / (side**2 * colour.scales[0])
    mean = "average luma" if colour.times else "average"
    lost = f"; {'nothing' if levels > peak else 'little'} but noise is left" if levels > peak / 4 else ""
    return f"noise {name}: {law} on each sum, {lower(levels, 3)} gray levels on a cell's {mean}{lost}"


def _colour_words(name: str, channels: int) -> str:
    if channels == 1:
        return "grey"
    return {"grey": "luma alone", "ycc": "luma and chroma"}.get(name, "colour")


def _stage_name(plan: PixelizationPlan, name: bytes) -> str:
    config = plan.config
    if not isinstance(config.regions, PrivateRegions):
        return f"in blocks of {config.side} x {config.side}"
    if name == b"coarse":
        return f"of stage one, all blocks of {config.side} x {config.side}"
    side = config.part
    return f"of stage two, complex parts of {side} x {side}"


def _a_frame(plan: PixelizationPlan) -> str:
    return " a frame" if plan.frames else ""
