"""The plan that a configuration gives for a picture or clip of known sizes, and the statement of what it releases.

A plan is made before anything private is looked at.

plan = bind(Pixelization.of("0.5", "pixels:16", block=16), Shape.of(1080, 1920, 3))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dpose.errors import naming
from dpose.media.images import BACKGROUND, read_pixels
from dpose.media.kinds import kind_of
from dpose.media.spans import Span, and_words, cut
from dpose.media.video import VideoInfo, frame_times, probe
from dpose.privacy.accounting import Accountant
from dpose.privacy.noise import NoiseSource, Purpose
from dpose.privacy.sections import Deployment
from dpose.privacy.statement import Kind, PrivacyStatement, software_versions
from dpose.privacy.words import WARNING
from dpose.release.config import Pixelization, ReleaseConfig
from dpose.release.grid import Shape
from dpose.release.linear import LinearPlan
from dpose.release.objects import SoundPlan, object_lines
from dpose.release.operators import OPERATORS
from dpose.release.pixelization import PixelizationPlan
from dpose.release.published import PublishedPlan, published_plan
from dpose.release.record import plan_record, shown_by
from dpose.release.regions import PublicRegions
from dpose.release.restoration import OPENCV
from dpose.units import Unit

AnyPlan = SoundPlan | PublishedPlan

HEADER = (
    "what the original's header says besides: format, bits, orientation, whether pixels can be transparent; the size "
    "is that of what is shown"
)
ONCE = (
    "which files of one command show exactly the same, of which one is released, and which show what the account knows "
    "already and refuses: the others' numbers may be missing"
)
TRANSPARENT = f"transparent parts of the original are laid on {BACKGROUND}: what they hide is not shown"
DECODED = "pixels are those of the decoded picture: a change before its compression may touch more of them"
DECODED_VIDEO = (
    "pixels are those of the decoded frames: a change before compression, or to a frame that others are predicted "
    "from, may touch more of them"
)
SOUND = f"{WARNING}the sound was copied unchanged and is not protected at all"
CHOSEN_SPANS = (
    "a person chose which spans of the film are released, {spans}; the rest is left out, and what that choice tells of "
    "the film is not protected"
)

PEAKS = {"uint8": 255, "uint16": 65535}
"""The largest gray level of each type of pixels."""


def bind(config: ReleaseConfig, shape: Shape, source: NoiseSource | str | None = None) -> AnyPlan:
    """The plan for pictures or clips of a shape: the mechanism's, or a published algorithm's.

    Args:
        config: What to release.
        shape: The picture's or clip's sizes.
        source: Draws the public text of an operator that is drawn anew for every release; or that text.

    Raises:
        DposeError: the config does not fit the shape.
        ValueError: such an operator has no source.
    """
    if config.paper:
        return published_plan(config, shape)
    if isinstance(config, Pixelization):
        return PixelizationPlan.of(config, shape)
    if not OPERATORS[config.operator].drawn:
        return LinearPlan.of(config, shape)
    if source is None:
        raise ValueError(f"the operator {config.operator} is drawn anew for every release: give a source")
    if not isinstance(source, str):  # published with the clip, and so from a stream that no noise is drawn from
        source = source.stream(Purpose.INIT, 0, b"projection").bytes(16).hex()
    return LinearPlan.of(config, shape, source)


def bind_video(config: ReleaseConfig, info: VideoInfo, source: NoiseSource | str | None = None) -> AnyPlan:
    """The plan for a video, by `bind`: seconds become as many frames as its time stamps say.

    Raises:
        DposeError: as `bind`, and as `frame_times`.
    """
    with naming(info.path):
        if config.neighbours.seconds is not None:
            config = replace(config, neighbours=config.neighbours.timed(frame_times(info)))
        return bind(config, video_shape(info), source)


def video_shape(info: VideoInfo) -> Shape:
    """The sizes of a video."""
    return Shape(info.frames, info.height, info.width, info.channels)


def picture_shape(pixels: NDArray[Any]) -> Shape:
    """The sizes of a decoded picture, (H, W) or (H, W, C)."""
    height, width = pixels.shape[:2]
    return Shape.of(height, width, 1 if pixels.ndim == 2 else pixels.shape[2], PEAKS[str(pixels.dtype)])


def plan_of(path: Path, config: ReleaseConfig, spans: Sequence[Span] = ()) -> tuple[AnyPlan, Fraction | None]:
    """What releasing a picture or video, or spans of it, would cost, and its frames a second; releases nothing."""
    if kind_of(path) == "video":
        info = cut(probe(path), spans)
        return bind_video(config, info), info.rate
    pixels = read_pixels(path)
    with naming(path):
        return bind(config, picture_shape(pixels)), None


def release_statement(
    plan: AnyPlan,
    *,
    seeded: bool,
    caveats: Sequence[str] = (),
    conditional_on: Sequence[str] = (),
    spans: Sequence[Span] = (),
) -> PrivacyStatement:
    """The statement of what `plan` releases.

    Args:
        plan: What is released.
        seeded: True if the noise comes from a seed.
        caveats: What the reader must know besides.
        conditional_on: What the guarantee takes as given besides.
        spans: Of the film, all that is released; empty for all of it.

    Raises:
        ValueError: a published algorithm's statement is of another kind than `paper`.
    """
    given, cuts = [*spans_given(spans), *conditional_on], spans_record(spans)
    if not isinstance(plan, PixelizationPlan | LinearPlan):
        made = plan.statement()
        if made.kind is not Kind.PAPER:  # its plan may come from another package
            raise ValueError(f"a published algorithm guarantees nothing, but says {made.kind.value}")
        said = (*made.caveats, *caveats)
        return replace(made, caveats=said, conditional_on=tuple(given), release={**made.release, **cuts})
    config, pure = plan.config, plan.accountant is Accountant.PURE
    notes = config.neighbours.notes(plan.shape)
    # planned operators are enlarged by OpenCV, cells are not
    enlarged = (OPENCV,) if isinstance(plan, LinearPlan) else ()
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
        software=software_versions(*(shown_by(plan).libraries or enlarged)),
        release={**plan_record(plan), **cuts},
        deployment=Deployment(released=f"the {'picture' if plan.shape.still else 'clip'} alone"),
    )
    return replace(made, groups=made.several())


def spans_given(spans: Sequence[Span]) -> tuple[str, ...]:
    """What the statement of spans of a film takes as given: nothing for a whole film."""
    return (CHOSEN_SPANS.format(spans=and_words(spans)),) if spans else ()


def spans_record(spans: Sequence[Span]) -> dict[str, Any]:
    """What the statement of spans of a film records of them, ready for JSON: nothing for a whole film."""
    return {"spans": [list(span.stated()) for span in spans]} if spans else {}


def public_facts(plan: SoundPlan) -> tuple[str, ...]:
    """What the guarantee does not hide."""
    shape = plan.shape
    facts = [f"the size, {shape.width} x {shape.height} pixels, and the number of channels, {shape.channels}"]
    if not shape.still:
        facts.append(f"the number of frames, {shape.frames}, and when each is shown")
    facts += [HEADER, ONCE]
    if shape.still:
        facts.append(TRANSPARENT)
    operator = ", and the operator" if isinstance(plan, LinearPlan) else ""
    facts.append(f"all settings of the release{operator}")
    if isinstance(plan, PixelizationPlan) and isinstance(plan.config.regions, PublicRegions):
        facts.append(f"the mask of complex regions (sha256 {plan.config.regions.sha256[:16]})")
    return tuple(facts)
