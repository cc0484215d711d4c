"""From a plan to the statement that its picture or clip carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from dpose.media.images import BACKGROUND
from dpose.privacy.accounting import Accountant
from dpose.privacy.ranges import exact_text
from dpose.privacy.sections import Deployment, Sections
from dpose.privacy.statement import Kind, PrivacyStatement, software_versions
from dpose.privacy.wording import WARNING
from dpose.release.colour import Colour
from dpose.release.colour_planes import ColourPlanes
from dpose.release.config import CELLS
from dpose.release.grid import Shape
from dpose.release.linear import LinearPlan
from dpose.release.objects import SoundPlan, object_lines
from dpose.release.pixelization import PixelizationPlan
from dpose.release.published import PublishedPlan
from dpose.release.regions import PrivateRegions, PublicRegions
from dpose.release.restoration import OPENCV, Restoration
from dpose.release.sealing import mask_digest

AnyPlan = SoundPlan | PublishedPlan

PROJECTION = "projection"
"""The recorded mechanism of every `GridOperator`; the record names the operator beside it."""
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
CHOSEN = "from epsilon, delta, neighbours, sizes, colour and restoration alone, by a public prior"
"""How cells were chosen that nobody fixed: behind what was chosen, and for which restoration."""
SOUND = f"{WARNING}the sound was copied unchanged and is not protected at all"


def release_statement(
    plan: AnyPlan, *, seeded: bool, caveats: Sequence[str] = (), conditional_on: Sequence[str] = ()
) -> PrivacyStatement:
    """The statement of what `plan` releases.

    Args:
        plan: What is released.
        seeded: Whether the noise comes from a seed.
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
    if isinstance(config.regions, PublicRegions):
        given.append("the mask of complex regions was not made from this picture or clip")
    made = PrivacyStatement(
        kind=Kind.SEEDED if seeded else Kind.PRIVATE,
        unit="pixel",
        neighbours=config.neighbours.resolved(plan.shape),
        epsilon=config.epsilon if pure else float(config.epsilon),
        delta=0.0 if pure else config.delta,
        accountant=plan.accountant,
        public=public_facts(plan),
        conditional_on=tuple(given),
        events=plan.events,
        caveats=(*object_lines(plan), *notes, *restored, *caveats),
        software=software_versions(*_libraries(plan)),
        release=description(plan),
        sections=Sections(Deployment(released=f"the {'picture' if plan.shape.still else 'clip'} alone")),
    )
    return replace(made, sections=replace(made.sections, groups=made.several()))


def public_facts(plan: SoundPlan) -> tuple[str, ...]:
    """What the guarantee does not hide."""
    shape, regions = plan.shape, plan.config.regions
    told = [f"the size, {shape.width} x {shape.height} pixels, and the number of channels, {shape.channels}"]
    if not shape.still:
        told.append(f"the number of frames, {shape.frames}, and when each is shown")
    told.append(HEADER)
    if shape.still:
        told.append(TRANSPARENT)
    operator = ", and the operator" if isinstance(plan, LinearPlan) else ""
    told.append(f"all settings of the release{operator}")
    if isinstance(regions, PublicRegions):
        told.append(f"the mask of complex regions (sha256 {regions.sha256[:16]})")
    return tuple(told)


def description(plan: SoundPlan) -> dict[str, str]:
    """How the picture or clip was released, by name: what `dpose verify` computes sensitivities from."""
    found = _of_operator(plan) if isinstance(plan, LinearPlan) else _of_cells(plan)
    found |= {"background": BACKGROUND} if plan.shape.still else {}
    return found | _restoration_of(plan).record


def _libraries(plan: SoundPlan) -> tuple[str, ...]:
    """Packages besides dpose's own that the picture depends on: planned operators are enlarged by OpenCV, cells not."""
    return _restoration_of(plan).libraries or ((OPENCV,) if isinstance(plan, LinearPlan) else ())


def _restoration_of(plan: SoundPlan) -> Restoration:
    """How a plan's values are restored: some operators are painted whatever was asked for."""
    return plan.restoration if isinstance(plan, LinearPlan) else plan.config.restoration


def _of_sizes(shape: Shape) -> dict[str, str]:
    return {"size": f"{shape.width}x{shape.height}", "channels": str(shape.channels)}


def _of_colour(colour: Colour, factor: int) -> dict[str, str]:
    """What is said of colours: nothing where values are taken as they are."""
    found = {"colour": colour.name, "combinations": colour.text} if colour.times else {}
    return found | ({"chroma": f"cells {factor} times as wide"} if colour.chroma else {})


def _of_operator(plan: LinearPlan) -> dict[str, str]:
    operator, shape = plan.operator, plan.shape
    found = {"mechanism": PROJECTION, "operator": plan.config.operator, **_of_sizes(shape)}
    found |= {"levels": str(shape.peak)} if shape.still else {"frames": str(shape.frames)}
    found["grid"] = f"{operator.columns}x{operator.rows}x{operator.groups}"
    if isinstance(operator, ColourPlanes):
        found |= _of_colour(operator.colour, operator.factor)
    found["step"] = exact_text(plan.grid)
    if plan.choice:
        found["choice"] = plan.choice
    if plan.clipping is not None:
        found["clip norm"] = repr(plan.clipping.norm)
        found["clipped together"] = str(plan.clipping.groups)
    return found


def _of_cells(plan: PixelizationPlan) -> dict[str, str]:
    config, regions = plan.config, plan.config.regions
    found = {"mechanism": CELLS, **_of_sizes(plan.shape), "levels": str(plan.shape.peak)}
    found |= {"block": str(config.side), "subdivide": str(config.subdivide), "regions": "none"}
    found |= _of_colour(plan.colour, config.chroma or 1)
    if config.chosen:
        found["chosen"] = (
            f"{' and '.join(config.chosen)} for restoration {config.restoration.method}, {CHOSEN}"
        )
    if not plan.shape.still:
        found["frames"] = str(plan.shape.frames)
    if isinstance(regions, PublicRegions):
        found |= {"regions": "public", "mask_sha256": regions.sha256}
        if plan.mask is not None:
            found["blocks_sha256"] = mask_digest(plan.mask)
    if isinstance(regions, PrivateRegions):
        found |= {
            "regions": "private",
            "complex": regions.rule,
            "stage one": f"{_share(regions.share)} of the budget",
        }
    return found


def _share(share: Fraction) -> str:
    return f"{share.numerator}/{share.denominator}"
