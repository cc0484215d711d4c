"""From a plan to the statement that its picture or clip carries."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dpose.privacy.exact import ReleaseAccountant
from dpose.privacy.rounding import upper
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.release.mechanism import Plan
from dpose.release.regions import PrivateRegions, PublicRegions
from dpose.release.sealing import mask_digest

FACE = 100
"""Side of the square that stands for a face wherever a cost is explained, pixels."""
HEADER = (
    "what the original's header says besides: format, bits, orientation; the size is that of what is shown"
)


def release_statement(
    plan: Plan, *, seeded: bool, caveats: Sequence[str] = (), conditional_on: Sequence[str] = ()
) -> PrivacyStatement:
    """The statement of what `plan` releases.

    Args:
        plan: What is released.
        seeded: Whether the noise comes from a seed.
        caveats: What the reader must know besides.
        conditional_on: What the guarantee takes as given besides.
    """
    setting, blocks = plan.setting, plan.blocks
    clip = plan.frames is not None
    public = [
        f"the size, {blocks.width} x {blocks.height} pixels, and the number of channels, {blocks.channels}"
    ]
    if clip:
        public.append(f"the number of frames, {plan.frames}, and when each is shown")
    public.append(HEADER)
    public.append("all settings of the release")
    given = list(conditional_on)
    if isinstance(setting.regions, PublicRegions):
        public.append(f"the mask of complex regions (sha256 {setting.regions.sha256[:16]})")
        given.append("the mask of complex regions was not made from this picture or clip")
    pure = not setting.delta
    return PrivacyStatement(
        kind=Kind.SEEDED if seeded else Kind.PRIVATE,
        unit="pixel",
        neighbours=setting.neighbours(clip),
        epsilon=setting.epsilon if pure else float(setting.epsilon),
        delta=0.0 if pure else setting.delta,
        accountant=ReleaseAccountant.PURE if pure else ReleaseAccountant.ZCDP,
        public=tuple(public),
        conditional_on=tuple(given),
        events=plan.events,
        caveats=(*object_lines(plan), *caveats),
        release=description(plan),
    )


def description(plan: Plan) -> dict[str, str]:
    """How the picture was released, by name: what `dpose verify` computes sensitivities from."""
    setting, blocks = plan.setting, plan.blocks
    found = {
        "mechanism": "pixelization",
        "size": f"{blocks.width}x{blocks.height}",
        "channels": str(blocks.channels),
        "levels": str(blocks.peak),
        "block": str(blocks.block),
        "subdivide": str(setting.subdivide),
        "regions": "none",
    }
    if plan.frames is not None:
        found["frames"] = str(plan.frames)
    if isinstance(setting.regions, PublicRegions):
        found |= {"regions": "public", "mask_sha256": setting.regions.sha256}
        if plan.mask is not None:
            found["blocks_sha256"] = mask_digest(plan.mask)
    if isinstance(setting.regions, PrivateRegions):
        found |= {
            "regions": "private",
            "complex": setting.regions.rule,
            "stage one": f"{_share(setting.regions.share)} of the budget",
        }
    return found


def object_lines(plan: Plan) -> tuple[str, ...]:
    """What the guarantee means for things larger than m pixels. Never left out of a statement."""
    blocks, frames = plan.blocks, plan.frames or 1
    pixels = blocks.height * blocks.width
    face, size = face_in(blocks.height, blocks.width)
    name = f"an object of {size} pixels" + (" (a face)" if face == FACE * FACE else "")
    where = " for each frame it appears in" if plan.frames else ""
    grows = "" if plan.setting.delta or not plan.frames else "; frames add up"
    lines = [f"{name} is protected with epsilon {upper(plan.object_epsilon(face))}{where}{grows}"]
    if plan.frames:
        lines.append(
            f"in all {frames} frames that object has epsilon {upper(plan.object_epsilon(face, frames))}"
        )
    whole = "clip" if plan.frames else "picture"
    lines.append(f"the {whole} as a whole has epsilon {upper(plan.object_epsilon(pixels, frames))}")
    if plan.setting.m * 4 < face:
        lines.append(
            "so this hides details of a few pixels, not that a person is there, nor what they broadly look like"
        )
    return tuple(lines)


def face_in(height: int, width: int) -> tuple[int, str]:
    """What stands for a face in a picture of this size, cut to it: its pixels, and its size in words."""
    tall, wide = min(FACE, height), min(FACE, width)
    return tall * wide, f"{wide} x {tall}"


def _share(share: Fraction) -> str:
    return f"{share.numerator}/{share.denominator}"
