"""What the release of a clip means: its statement, and what it says before anything is released."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpose.privacy.exact import ReleaseAccountant, exact_text
from dpose.privacy.rounding import as_given, lower, upper
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.release.clip_plan import ClipPlan
from dpose.release.projections import ONE_FRAME, PEAK
from dpose.release.published_dprp import DensePlan
from dpose.release.statements import FACE, HEADER, face_in

MECHANISM = "projection"
MOSTLY_NOISE = PEAK / 4
"""Gray levels a pixel; above, little but noise is left."""
NAMES = {
    "block": "block means, enlarged smoothly",
    "low-pass": "the lowest frequencies",
    "random": "random signs, then random frequencies",
}


def clip_statement(
    plan: ClipPlan | DensePlan,
    *,
    seeded: bool,
    caveats: Sequence[str] = (),
    conditional_on: Sequence[str] = (),
) -> PrivacyStatement:
    """The statement of what `plan` releases.

    Args:
        plan: What is released.
        seeded: Whether the noise comes from a seed.
        caveats: What the reader must know besides.
        conditional_on: What the guarantee takes as given besides.
    """
    if isinstance(plan, DensePlan):
        made = plan.statement()
        return PrivacyStatement(
            made.kind,
            made.unit,
            made.neighbours,
            caveats=(*made.caveats, *caveats),
            conditional_on=tuple(conditional_on),
            release=made.release,
        )
    setting, shape = plan.setting, plan.shape
    return PrivacyStatement(
        kind=Kind.SEEDED if seeded else Kind.PRIVATE,
        unit="pixel",
        neighbours=setting.neighbours(shape),
        epsilon=float(setting.epsilon),
        delta=setting.delta,
        accountant=ReleaseAccountant.GAUSSIAN,
        public=(
            f"the size, {shape.width} x {shape.height} pixels, and the number of channels, {shape.channels}",
            f"the number of frames, {shape.frames}, and when each is shown",
            HEADER,
            "all settings of the release, and the operator",
        ),
        conditional_on=tuple(conditional_on),
        events=(plan.event,),
        caveats=(*clip_object_lines(plan), *caveats),
        release=clip_description(plan),
    )


def clip_description(plan: ClipPlan) -> dict[str, str]:
    """How the clip was released, by name: what `dpose verify` computes the sensitivity from."""
    shape, operator = plan.shape, plan.operator
    found = {
        "mechanism": MECHANISM,
        "operator": plan.setting.operator,
        "size": f"{shape.width}x{shape.height}",
        "channels": str(shape.channels),
        "frames": str(shape.frames),
        "grid": f"{operator.columns}x{operator.rows}x{operator.groups}",
        "step": exact_text(plan.grid),
    }
    if plan.choice:
        found["choice"] = plan.choice
    if plan.clipping is not None:
        found["clip norm"] = repr(plan.clipping.norm)
        found["clipped together"] = str(plan.clipping.groups)
    return found


def clip_object_lines(plan: ClipPlan) -> tuple[str, ...]:
    """What the guarantee means for things larger than m pixels. Never left out of a statement."""
    shape = plan.shape
    face, size = face_in(shape.height, shape.width)
    name = f"an object of {size} pixels" + (" (a face)" if face == FACE * FACE else "")
    lines = [
        f"{name} is protected with epsilon {upper(plan.epsilon_for(face, ONE_FRAME))} in one frame, and with "
        f"{upper(plan.epsilon_for(face, 'frame'))} if it is there in all {shape.frames:,}",
        f"a whole frame has epsilon {upper(plan.epsilon_for(shape.pixels, ONE_FRAME))}, the clip as a whole "
        f"{upper(plan.epsilon_for(shape.pixels * shape.frames, 'clip'))}",
    ]
    m = plan.setting.m
    if m is not None and m * 4 < face:
        lines.append(
            "so this hides details of a few pixels, not that a person is there, nor what they broadly look like"
        )
    return tuple(lines)


def explain_clip(plan: ClipPlan | DensePlan) -> list[str]:
    """What a setting will do, before a frame is looked at: lines of text, for a person."""
    if isinstance(plan, DensePlan):
        return [
            f"clip of {plan.shape.frames:,} frames, {plan.shape.width} x {plan.shape.height}",
            f"Video-DPRP as published, k = {plan.k:,}: takes minutes, and guarantees nothing",
            *plan.faults(),
        ]
    setting, shape, operator = plan.setting, plan.shape, plan.operator
    colour = "grey" if shape.channels == 1 else "colour"
    m = setting.neighbours(shape).m
    where = {"clip": "of the clip", "frame": "of every frame at once", ONE_FRAME: "of any one frame"}[
        setting.scope
    ]
    lines = [
        f"clip of {shape.frames:,} frames, {shape.width} x {shape.height}, {colour}",
        f"epsilon {exact_text(setting.epsilon)} and delta {as_given(setting.delta)} for any {m:,} pixels {where}",
        f"operator: {NAMES[setting.operator]}; {operator.columns} x {operator.rows} for {operator.groups:,} groups of "
        f"{shape.frames / operator.groups:.3g} frames",
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
    return [*lines, *clip_object_lines(plan)]


def noise_psnr(noise: float) -> float:
    """PSNR in dB of a picture that noise of so many gray levels is added to."""
    return 20 * math.log10(PEAK / noise)
