"""What a release means for things larger than its neighbours, and presets that hide a thing of a declared size.

Sizes are declared, never found in a picture: a face is a square of `FACE` pixels unless its size is given, a person as
many faces wide and high as `PERSON` says. Both are cut to the picture.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import TypeAlias

from dpose.errors import DposeError
from dpose.privacy.accounting import cost
from dpose.privacy.neighbours import ONE_FRAME, Neighbours
from dpose.privacy.ranges import upper
from dpose.privacy.words import DETAILS_ONLY, WARNING
from dpose.release.config import DETAIL
from dpose.release.grid import Shape
from dpose.release.linear import LinearPlan
from dpose.release.pixelization import PixelizationPlan

SoundPlan: TypeAlias = PixelizationPlan | LinearPlan

OUTSIDE = (
    "what the people or things in the box change outside it is not covered: shadows, reflections, light, the camera's "
    "own exposure and focus, and compression made before this"
)
FACE = 100
"""Side of the square that stands for a face wherever a cost is explained, pixels."""
PERSON = (3, 8)
"""Width and height of who stands upright, in faces."""
RECOGNISABLE = 20
"""Above this epsilon for a face nothing worth a word is guaranteed about it: an attacker's odds may grow e^20 times."""
Face: TypeAlias = tuple[int, int]
"""A face's declared width and height, pixels."""
ANY_FACE: Face = (FACE, FACE)
TIMES = 10
"""A statement says what so many pictures of one person cost together."""


def object_lines(plan: SoundPlan, face: Face = ANY_FACE) -> tuple[str, ...]:
    """What the guarantee means for things larger than m pixels. Never left out of a statement."""
    shape = plan.shape
    near = plan.config.neighbours.resolved(shape)
    lines = _of_cells(plan, face) if isinstance(plan, PixelizationPlan) else _of_operator(plan, face)
    outside = () if near.box is None else (OUTSIDE,)
    return (
        *lines,
        *((DETAILS_ONLY,) if near.area * 4 < math.prod(face_in(shape, face)) else ()),
        *outside,
        *person_lines(plan, face),
        repeated_line(plan, face),
        *warning_lines(plan, face),
    )


def _of_cells(plan: PixelizationPlan, declared: Face) -> list[str]:
    shape, clip = plan.shape, not plan.shape.still
    face, name = face_in(shape, declared), _named_face(shape, declared)
    where = " for each frame it appears in" if clip else ""
    grows = "; frames add up" if clip and not plan.config.delta else ""
    lines = [f"{name} is protected with epsilon {upper(box_epsilon(plan, face))}{where}{grows}"]
    if clip:
        cost = upper(box_epsilon(plan, face, frames=shape.frames))
        lines.append(f"in all {shape.frames} frames that object has epsilon {cost}")
    whole = upper(plan.object_epsilon(shape.pixels, shape.frames))
    lines.append(f"the {'clip' if clip else 'picture'} as a whole has epsilon {whole}")
    return lines


def _of_operator(plan: LinearPlan, declared: Face) -> list[str]:
    shape = plan.shape
    face, name = face_in(shape, declared), _named_face(shape, declared)
    one = upper(box_epsilon(plan, face))
    whole = upper(plan.epsilon_for(shape.pixels * shape.frames, "clip"))
    if shape.still:
        return [f"{name} is protected with epsilon {one}", f"the picture as a whole has epsilon {whole}"]
    return [
        f"{name} is protected with epsilon {one} in one frame, and with "
        f"{upper(box_epsilon(plan, face, frames=shape.frames))} if it is there in all {shape.frames:,}",
        f"a whole frame has epsilon {upper(plan.epsilon_for(shape.pixels, ONE_FRAME))}, the clip as a whole {whole}",
    ]


def person_lines(plan: SoundPlan, face: Face = ANY_FACE) -> tuple[str, ...]:
    """What a person keeps; nothing where the picture is too small to tell one from a face."""
    shape = plan.shape
    wide, tall = person_in(shape, face)
    if (wide, tall) == face_in(shape, face):
        return ()
    line = f"a person of {wide} x {tall} pixels keeps epsilon {upper(box_epsilon(plan, (wide, tall)))}"
    if not shape.still:
        always = upper(box_epsilon(plan, (wide, tall), frames=shape.frames))
        line += f" in one frame, and {always} in all {shape.frames:,}"
    return (line,)


def repeated_line(plan: SoundPlan, face: Face = ANY_FACE) -> str:
    """What several pictures or clips of one person, each released like this one, cost together."""
    shape = plan.shape
    name = _named_face(shape, face)
    own = upper(repeated_epsilon(plan))
    kind, always = ("pictures", "") if shape.still else ("clips", ", in all its frames")
    of_face = upper(box_epsilon(plan, face_in(shape, face), frames=shape.frames, times=TIMES))
    what = plan.config.neighbours.resolved(shape).describe()
    return (
        f"{TIMES} {kind} of one person, each released like this, add up: epsilon {own} for {what}, in each of them; "
        f"{of_face} for {name} in each{always}"
    )


def repeated_epsilon(plan: SoundPlan) -> float:
    """Epsilon of `TIMES` releases like this one together, for what each of them hides; at the same delta."""
    events = [event for event in plan.events for _ in range(TIMES)]
    return float(cost(events, plan.config.delta, accountant=plan.accountant))


def warning_lines(plan: SoundPlan, face: Face = ANY_FACE) -> tuple[str, ...]:
    """The warning that epsilon no longer limits recognition of a face, if it does not; printed and stated."""
    shape = plan.shape
    sides, name = face_in(shape, face), _named_face(shape, face)
    cost, where = box_epsilon(plan, sides), "" if shape.still else " in one frame"
    if cost <= RECOGNISABLE and not shape.still:
        cost, where = box_epsilon(plan, sides, frames=shape.frames), f" in all {shape.frames:,} frames"
    if cost <= RECOGNISABLE:
        return ()
    return (f"{WARNING}{name} keeps epsilon {upper(cost)}{where}: epsilon no longer limits recognition of a face",)


def box_epsilon(plan: SoundPlan, sides: tuple[int, int], *, frames: int = 1, times: int = 1) -> float:
    """Epsilon, at the same delta, for whatever a box of so many pixels across and down holds, wherever it lies.

    Args:
        plan: How pictures or clips are released.
        sides: Width and height.
        frames: In how many frames of each the box is.
        times: In how many pictures or clips, each released by such a plan with noise of its own.
    """
    if isinstance(plan, PixelizationPlan):
        return plan.object_epsilon(sides[0] * sides[1], frames * times)
    return plan.epsilon_near(Neighbours.of_box(*sides, frames), times)


def face_in(shape: Shape, face: Face = ANY_FACE) -> tuple[int, int]:
    """Width and height of what stands for a face in a picture of this size, cut to it."""
    return min(face[0], shape.width), min(face[1], shape.height)


def person_in(shape: Shape, face: Face = ANY_FACE) -> tuple[int, int]:
    """Width and height of what stands for a person whose face is of this size, cut to the picture, pixels."""
    return min(PERSON[0] * face[0], shape.width), min(PERSON[1] * face[1], shape.height)


def _named_face(shape: Shape, face: Face) -> str:
    wide, tall = face_in(shape, face)
    return f"an object of {wide} x {tall} pixels" + (" (a face)" if (wide, tall) == face else "")


SECONDS = 10
"""For how long a preset's box may be there, in a clip."""
FACE_SIZE = f"{FACE}x{FACE}"
LEFT = {
    "detail": "faces and people stay as recognisable as the noise leaves them",
    "face": "a larger face or a longer stay is protected less, and so are clothes and places",
    "person": "a person who is larger, or stays for longer, is protected less",
}
"""What each preset does not hide, by name."""


def protected_neighbours(protect: str, face_size: str = FACE_SIZE) -> Neighbours:
    """The neighbours that a preset stands for.

    detail: 16 pixels. face: in a picture as many pixels as a face of the declared size has, wherever they lie; in a
    clip a box of that size, for `SECONDS`. person: the same for a person, `PERSON` faces wide and high.
    """
    if protect not in LEFT:
        raise DposeError("protect-unknown", f"must be {', '.join(LEFT)}, not {protect!r}", "protect")
    wide, tall = parse_face(face_size)
    if protect == "detail":
        return DETAIL
    times = PERSON if protect == "person" else (1, 1)
    return Neighbours.of_box(wide * times[0], tall * times[1], seconds=Fraction(SECONDS))


def preset_line(protect: str, face_size: str = FACE_SIZE) -> str:
    """What a preset protects and what it does not, in words."""
    near = protected_neighbours(protect, face_size)
    if near.box is None:
        return f"protect {protect}: any {near.m} pixels; {LEFT[protect]}"
    return (
        f"protect {protect}: as many pixels as {near.box[0]} x {near.box[1]} has, in a clip one box of that size for "
        f"{SECONDS} seconds; a declared size, nothing is looked for; {LEFT[protect]}"
    )


def parse_face(text: str) -> tuple[int, int]:
    """A face's declared width and height, pixels."""
    found = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", text)
    if found is None:
        raise DposeError(
            "face-size-malformed", f"{text!r} is not of the form WxH, in pixels", "face-size", f"say {FACE_SIZE}"
        )
    return int(found[1]), int(found[2])


def either(
    neighbours: str | int | Neighbours | None, protect: str | None, face_size: str | None, *, drawn: bool = False
) -> str | int | Neighbours | None:
    """The neighbours that a caller gives, by themselves or by a preset; None if neither is given.

    Args:
        neighbours: Neighbours, as `Pixelization.of` takes them.
        protect: A preset's name.
        face_size: The declared size of a face.
        drawn: True if the face is drawn in any case, so that its size may be given alone.
    """
    if neighbours is not None and protect is not None:
        raise DposeError(
            "protect-with-neighbours", "protect and neighbours exclude each other", "protect", "give one of them"
        )
    if face_size is not None and protect in (None, "detail") and not drawn:
        raise DposeError(
            "face-size-unneeded", "only --protect face and person go by a face's size", "face-size", "leave it out"
        )
    if protect is None:
        return neighbours
    return protected_neighbours(protect, face_size or FACE_SIZE)
