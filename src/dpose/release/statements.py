"""From a plan to the statement that its picture or clip carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpose.media.images import BACKGROUND
from dpose.privacy.accounting import Accountant
from dpose.privacy.sections import Deployment
from dpose.privacy.statement import Kind, PrivacyStatement, software_versions
from dpose.privacy.words import WARNING
from dpose.release.linear import LinearPlan
from dpose.release.objects import SoundPlan, object_lines
from dpose.release.pixelization import PixelizationPlan
from dpose.release.published import PublishedPlan
from dpose.release.record import plan_record, shown_by
from dpose.release.regions import PublicRegions
from dpose.release.restoration import OPENCV
from dpose.units import Unit

AnyPlan = SoundPlan | PublishedPlan

HEADER = (
    "what the original's header says besides: format, bits, orientation, whether pixels can be transparent; the size "
    "is that of what is shown"
)
TRANSPARENT = f"transparent parts of the original are laid on {BACKGROUND}: what they hide is not shown"
DECODED = "pixels are those of the decoded picture: a change before its compression may touch more of them"
DECODED_VIDEO = (
    "pixels are those of the decoded frames: a change before compression, or to a frame that others are predicted "
    "from, may touch more of them"
)
SOUND = f"{WARNING}the sound was copied unchanged and is not protected at all"


def release_statement(
    plan: AnyPlan, *, seeded: bool, caveats: Sequence[str] = (), conditional_on: Sequence[str] = ()
) -> PrivacyStatement:
    """The statement of what `plan` releases.

    Args:
        plan: What is released.
        seeded: True if the noise comes from a seed.
        caveats: What the reader must know besides.
        conditional_on: What the guarantee takes as given besides.

    Raises:
        ValueError: a published algorithm's statement is of another kind than `paper`.
    """
    if not isinstance(plan, PixelizationPlan | LinearPlan):
        made = plan.statement()
        if made.kind is not Kind.PAPER:  # its plan may come from another package
            raise ValueError(f"a published algorithm guarantees nothing, but says {made.kind.value}")
        return replace(made, caveats=(*made.caveats, *caveats), conditional_on=tuple(conditional_on))
    config, pure = plan.config, plan.accountant is Accountant.PURE
    given = list(conditional_on)
    notes = config.neighbours.notes(plan.shape)
    restored = (config.restoration.note,) if config.restoration.note else ()
    if isinstance(plan, PixelizationPlan) and isinstance(plan.config.regions, PublicRegions):
        given.append("the mask of complex regions was not made from this picture or clip")
    made = PrivacyStatement(
        kind=Kind.SEEDED if seeded else Kind.PRIVATE,
        unit=Unit.PIXEL,
        neighbours=config.neighbours.resolved(plan.shape),
        epsilon=config.epsilon if pure else float(config.epsilon),
        delta=0.0 if pure else config.delta,
        accountant=plan.accountant,
        public=public_facts(plan),
        conditional_on=tuple(given),
        events=plan.events,
        caveats=(*object_lines(plan), *notes, *restored, *caveats),
        software=software_versions(*_libraries(plan)),
        release=plan_record(plan),
        deployment=Deployment(released=f"the {'picture' if plan.shape.still else 'clip'} alone"),
    )
    return replace(made, groups=made.several())


def public_facts(plan: SoundPlan) -> tuple[str, ...]:
    """What the guarantee does not hide."""
    shape = plan.shape
    facts = [f"the size, {shape.width} x {shape.height} pixels, and the number of channels, {shape.channels}"]
    if not shape.still:
        facts.append(f"the number of frames, {shape.frames}, and when each is shown")
    facts.append(HEADER)
    if shape.still:
        facts.append(TRANSPARENT)
    operator = ", and the operator" if isinstance(plan, LinearPlan) else ""
    facts.append(f"all settings of the release{operator}")
    if isinstance(plan, PixelizationPlan) and isinstance(plan.config.regions, PublicRegions):
        facts.append(f"the mask of complex regions (sha256 {plan.config.regions.sha256[:16]})")
    return tuple(facts)


def _libraries(plan: SoundPlan) -> tuple[str, ...]:
    """Packages besides dpose's own that the picture depends on: planned operators are enlarged by OpenCV, cells not."""
    return shown_by(plan).libraries or ((OPENCV,) if isinstance(plan, LinearPlan) else ())
