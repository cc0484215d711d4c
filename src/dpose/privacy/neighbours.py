"""What a guarantee hides the difference between."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dpose.errors import DposeError
from dpose.privacy.accounting import Relation
from dpose.privacy.json_fields import list_of, member_of, object_with, text_of

BEYOND = "beyond-public-view"
"""The scope of feature privacy: neighbours have the same public views and labels."""
BOX = "box"
"""The scope of a clip's neighbours that differ in some frames, in each of them inside one box that lies anywhere."""


@dataclass(frozen=True)
class Neighbours:
    """What the guarantee hides the difference between.

    Attributes:
        relation: How one dataset becomes its neighbour.
        m: How many things may differ: 1 unit; pixels in a release.
        scope: What is counted by `m`: "unit"; "beyond-public-view", a unit less its public view and labels; or in a
            release the whole picture, frame or clip that holds the pixels, or `BOX`.
        box: Of scope `BOX` alone: its width and height, pixels.
        frames: Of scope `BOX` alone: in how many frames; `m` is the pixels of the box in all of them.

    Raises:
        DposeError: a field is out of range, or a box's fields contradict each other.
    """

    relation: Relation
    m: int = 1
    scope: str = "unit"
    box: tuple[int, int] | None = None
    frames: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", member_of(Relation, self.relation, "neighbours.relation"))
        if isinstance(self.m, bool) or not isinstance(self.m, int) or self.m < 1:
            raise DposeError(
                "m-not-positive", f"must be a whole number of at least 1, not {self.m!r}", "neighbours.m"
            )
        sides = (*(self.box or ()), self.frames)
        if self.scope == BOX:
            if len(sides) != 3 or any(type(side) is not int or side < 1 for side in sides):
                raise DposeError(
                    "box-malformed", "a box has a width, a height and a number of frames", "neighbours.box"
                )
            if math.prod(sides) != self.m:
                raise DposeError(
                    "m-not-of-box", "m is not the pixels of the box in all its frames", "neighbours.m"
                )
        elif sides != (None,):
            raise DposeError(
                "box-not-allowed", f"neighbours of scope {self.scope!r} have no box", "neighbours.box"
            )

    @classmethod
    def of_box(cls, width: int, height: int, frames: int) -> Neighbours:
        """Clips that differ in any `frames` frames, in each of them inside a box at any place."""
        return cls(Relation.REPLACE, width * height * frames, BOX, (width, height), frames)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        told = {"relation": self.relation.value, "m": self.m, "scope": self.scope}
        return told if self.box is None else told | {"box": list(self.box), "frames": self.frames}

    @classmethod
    def read(cls, value: Any) -> Neighbours | None:
        """The neighbours that `to_dict` wrote; None stays None.

        Raises:
            DposeError: a field is missing, unknown or of the wrong type.
        """
        if value is None:
            return None
        boxed = isinstance(value, dict) and value.get("scope") == BOX
        value = object_with(
            value, {"relation", "m", "scope", *(("box", "frames") if boxed else ())}, "neighbours"
        )
        return cls(
            member_of(Relation, value["relation"], "neighbours.relation"),
            value["m"],
            text_of(value["scope"], "neighbours.scope"),
            tuple(list_of(value["box"], "neighbours.box")) if boxed else None,
            value.get("frames"),
        )
