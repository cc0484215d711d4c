"""Presets with honest names: what is to be hidden, by a declared size; nothing is looked for in the picture.

Pixelization.of("2", protected_neighbours("face", "80x80"))
"""

from __future__ import annotations

import re
from fractions import Fraction

from dpose.errors import DposeError
from dpose.privacy.neighbours import Neighbours
from dpose.release.config import DETAIL
from dpose.release.objects import FACE, PERSON

SECONDS = 10
"""For how long a preset's box may be there, in a clip."""
FACE_SIZE = f"{FACE}x{FACE}"
LEFT = {
    "detail": "faces and people stay as recognisable as the noise leaves them",
    "face": "a larger face or a longer stay is protected less, and so are clothes and places",
    "person": "whoever is larger, or stays for longer, is protected less",
}
"""What each preset does not hide, by name."""


def protected_neighbours(protect: str, face_size: str = FACE_SIZE) -> Neighbours:
    """The neighbours that a preset stands for.

    detail: 16 pixels. face: in a picture as many pixels as a face of the declared size has, wherever they lie; in a
    clip a box of that size, for `SECONDS`. person: the same for a person, `PERSON` faces wide and high.

    Raises:
        DposeError: another name, or no size.
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
    """A face's declared width and height, pixels.

    Raises:
        DposeError: it is not of the form WxH.
    """
    found = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", text)
    if found is None:
        raise DposeError(
            "face-size-malformed",
            f"{text!r} is not of the form WxH, in pixels",
            "face-size",
            f"say {FACE_SIZE}",
        )
    return int(found[1]), int(found[2])


def either(
    neighbours: str | int | Neighbours | None,
    protect: str | None,
    face_size: str | None,
    *,
    drawn: bool = False,
) -> str | int | Neighbours | None:
    """The neighbours that a caller gives, by themselves or by a preset; None if neither is given.

    Args:
        neighbours: Neighbours, as `Pixelization.of` takes them.
        protect: A preset's name.
        face_size: The declared size of a face.
        drawn: True if the face is drawn in any case, so that its size may be given alone.

    Raises:
        DposeError: both are given, or a size that nothing asks for.
    """
    if neighbours is not None and protect is not None:
        raise DposeError(
            "protect-with-neighbours",
            "protect and neighbours exclude each other",
            "protect",
            "give one of them",
        )
    if face_size is not None and protect in (None, "detail") and not drawn:
        raise DposeError(
            "face-size-unneeded",
            "only --protect face and person go by a face's size",
            "face-size",
            "leave it out",
        )
    if protect is None:
        return neighbours
    return protected_neighbours(protect, face_size or FACE_SIZE)
