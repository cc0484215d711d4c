"""What a setting means before anything is released: noise in gray levels, epsilon for a face, a picture, a minute."""

from __future__ import annotations

import math
from fractions import Fraction

from dpose.privacy.exact import GaussianEvent, LaplaceEvent, exact_text
from dpose.privacy.rounding import as_given, lower, upper
from dpose.release.mechanism import Plan
from dpose.release.published_pixelization import PaperPlan
from dpose.release.regions import PrivateRegions
from dpose.release.statements import FACE, face_in


def explain_picture(plan: Plan | PaperPlan, rate: Fraction | None = None) -> list[str]:
    """Lines of text, for a person.

    Args:
        plan: A setting bound to a size.
        rate: Frames a second, for a clip.
    """
    if isinstance(plan, PaperPlan):
        return plan.statement().paragraph().splitlines()
    setting, blocks = plan.setting, plan.blocks
    what = f"clip of {plan.frames} frames" if plan.frames else "picture"
    colour = "grey" if blocks.channels == 1 else "colour"
    delta = f" and delta {as_given(setting.delta)}" if setting.delta else ""
    each = " in every frame" if setting.per_frame and plan.frames else ""
    cells = f"{blocks.rows * blocks.columns:,} cells" + _a_frame(plan)
    lines = [
        f"{what}, {blocks.width} x {blocks.height}, {colour}, blocks of {blocks.block}: {cells}",
        f"epsilon {exact_text(setting.epsilon)}{delta} for any {setting.m:,} pixels{each}",
    ]
    for stage in plan.stages:
        side = setting.block if stage.name == b"coarse" else setting.block // setting.subdivide
        lines.append(_noise_line(stage.event, side, blocks.peak, _stage_name(plan, stage.name)))
        if plan.mask is not None and setting.subdivide > 1:
            side = setting.block // setting.subdivide
            lines.append(_noise_line(stage.event, side, blocks.peak, f"in complex regions ({side} x {side})"))
    face, size = face_in(blocks.height, blocks.width)
    thing = "a face" if face == FACE * FACE else "an object"
    whole = blocks.height * blocks.width
    lines.append(f"epsilon for {thing} of {size}: {upper(plan.object_epsilon(face))}" + _a_frame(plan))
    lines.append(f"epsilon for the whole picture: {upper(plan.object_epsilon(whole))}" + _a_frame(plan))
    if plan.frames and rate:
        minute = min(plan.frames, math.ceil(60 * rate))
        length = "a minute" if minute >= 60 * rate else f"all {float(minute / rate):.1f} seconds"
        lines.append(f"epsilon for {thing} seen for {length}: {upper(plan.object_epsilon(face, minute))}")
        lines.append(f"epsilon for {length} of the clip: {upper(plan.object_epsilon(whole, minute))}")
    return lines


def _noise_line(event: LaplaceEvent | GaussianEvent, side: int, peak: int, name: str) -> str:
    if isinstance(event, LaplaceEvent):
        spread = math.sqrt(2) * float(event.scale)
        law = f"discrete Laplace of scale {exact_text(event.scale)}"
    else:
        spread = math.sqrt(event.variance)
        law = f"discrete Gaussian of sigma {lower(spread, 6)}"
    levels = spread / side**2
    lost = "; little but noise is left" if levels > peak / 4 else ""
    return f"noise {name}: {law} on each sum, {lower(levels, 3)} gray levels on a cell's average{lost}"


def _stage_name(plan: Plan, name: bytes) -> str:
    setting = plan.setting
    if not isinstance(setting.regions, PrivateRegions):
        return f"in blocks of {setting.block} x {setting.block}"
    if name == b"coarse":
        return f"of stage one, all blocks of {setting.block} x {setting.block}"
    side = setting.block // setting.subdivide
    return f"of stage two, complex parts of {side} x {side}"


def _a_frame(plan: Plan) -> str:
    return " a frame" if plan.frames else ""
