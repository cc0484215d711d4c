"""Settings of the release page as a release's configuration; sizes are rounded up to public ladders."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpose.errors import DposeError
from dpose.release.config import Pixelization, Projection, ReleaseConfig
from dpose.release.objects import LEFT, parse_face, preset_line, protected_neighbours

SIDES = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
"""Sides of a clip's box, pixels."""
SECONDS = 10
"""Time for which a box drawn on a clip is protected, seconds."""
BOX_LEFT = "what is larger is protected less, and whatever the rest of the picture tells of it stays"
SEEN = (
    "the settings were chosen by somebody who saw the picture: what the choice itself tells of it is outside this "
    "guarantee; sizes went up a public ladder"
)
"""Caveat in the statement of every release by the studio."""


@dataclass(frozen=True)
class Wanted:
    """A requested release: its configuration and what it hides.

    Attributes:
        config: The settings.
        hidden: What the release hides, in words.
        left_open: What the release does not hide, in words.
        drawn: Width and height of the drawn box, before rounding up; None without a box.
    """

    config: ReleaseConfig
    hidden: str
    left_open: str
    drawn: tuple[int, int] | None = None


def up_the_ladder(pixels: int, most: int) -> int:
    """The next power of two, at most the picture's pixels, so that m shows a box's size only within a factor of two.

    >>> up_the_ladder(1000, 10**6), up_the_ladder(1024, 10**6), up_the_ladder(1000, 1010)
    (1024, 1024, 1010)
    """
    return min(1 << max(0, pixels - 1).bit_length(), most)


def wanted(body: Mapping[str, Any], height: int, width: int, *, clip: bool) -> Wanted:
    """Parse the release that a page requests.

    Args:
        body: hide ("detail", "face", "person" or "box"), box [x, y, width, height], face "WxH", epsilon, delta, block,
            restore.
        height: Height of the picture, pixels.
        width: Width of the picture, pixels.
        clip: True for a clip.
    """
    hide, face, drawn = str(body.get("hide", "detail")), str(body.get("face") or "100x100"), None
    if hide == "box":
        left, top, right, bottom = drawn_box(body.get("box"), height, width)
        wide, tall = right - left, bottom - top
        pixels, drawn = wide * tall, (wide, tall)
        if clip:
            wide, tall = (next((s for s in SIDES if s >= side), side) for side in (wide, tall))
            near: Any = f"box:{min(wide, width)}x{min(tall, height)}/seconds:{SECONDS}"
            hidden = f"whatever lies in a box of {min(wide, width)} x {min(tall, height)} pixels for {SECONDS} seconds"
        else:
            m = up_the_ladder(pixels, height * width)
            near, hidden = (
                f"pixels:{m}",
                f"any {m:,} pixels: the box has {pixels:,}, and the ladder's next step is taken",
            )
        left_open = BOX_LEFT
    elif hide in LEFT:
        parse_face(face)
        near, left_open = protected_neighbours(hide, face), LEFT[hide]
        hidden = preset_line(hide, face).partition(": ")[2].removesuffix(f"; {left_open}")
    else:
        raise DposeError("hide-unknown", f"must be box, {', '.join(LEFT)}, not {hide[:40]!r}", "hide")
    epsilon, delta = (_number(body, name, usual) for name, usual in (("epsilon", "2"), ("delta", "0")))
    restore = str(body.get("restore", "learned"))
    config: ReleaseConfig
    if clip:
        config = Projection.of(epsilon, delta, near, restore=restore)
    else:
        block = body.get("block", "auto")
        side = block if block == "auto" else _whole(block, "block")
        config = Pixelization.of(epsilon, near, side, delta=delta, restore=restore)
    return Wanted(config, hidden, left_open, drawn)


def drawn_box(box: Any, height: int, width: int) -> tuple[int, int, int, int]:
    """The corners of a box [x, y, width, height], cut to the picture: left, top, right, bottom."""
    if not isinstance(box, list) or len(box) != 4:
        raise DposeError(
            "box-missing",
            "there is no box yet",
            fix="draw one over what must be hidden, or choose detail, face or person",
        )
    x, y, wide, tall = (_whole(side, "box") for side in box)
    left, top, right, bottom = max(x, 0), max(y, 0), min(x + wide, width), min(y + tall, height)
    if right <= left or bottom <= top:
        raise DposeError("box-outside-picture", "the box lies outside the picture", "box", "draw it on the picture")
    return left, top, right, bottom


def _number(body: Mapping[str, Any], name: str, usual: str) -> str:
    value = body.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DposeError("setting-not-number", "must be a number", name)
    return str(value)[:40]


def _whole(value: Any, name: str) -> int:
    try:
        if isinstance(value, bool) or not math.isfinite(float(value)):
            raise ValueError
        return round(float(value))
    except (TypeError, ValueError, OverflowError):
        raise DposeError("setting-not-whole", f"must be a whole number, not {str(value)[:40]!r}", name) from None
