"""Neighbours: who or what a guarantee protects, and against which difference. One value from a command to a statement.

    Neighbours.parse("pixels:16")                 # of a release: 16 pixels of the picture, or of all frames of a clip
    Neighbours.parse("box:120x300/seconds:4")     # whatever one box shows, which may move, for four seconds
    Neighbours("video", Relation.REPLACE)         # of a training: any one video, exchanged for any other

What a user asks for may still depend on the picture: how many pixels it has, how many frames four seconds are.
`Neighbours.timed` and `Neighbours.resolved` settle that from public sizes and time stamps alone. What a person who
walks through a picture changes lies in a box that moves, as long as neither shadow nor mirror nor the camera's own
exposure carries the change out of it; docs/proofs/video.md derives how much that moves an operator's values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, Protocol

from dpose.errors import DposeError, did_you_mean
from dpose.privacy.fields import Count, Exact, Positive, StatementPart, Text, optional, statement_part
from dpose.privacy.ranges import exact_text, most_frames, parse_exact
from dpose.units import Unit

BEYOND = "beyond-public-view"
"""The scope of feature privacy: neighbours have the same public views and labels."""
BOX = "box"
"""The scope of a clip's neighbours that differ in some frames, in each of them inside one box that lies anywhere."""
ONE_FRAME = "one frame"
"""The scope of a clip's neighbours that differ in m pixels of any one frame."""
DAY = "day"
"""The scope of stays: one calendar day of all sources that are counted together."""
UNIT_SCOPES = ("unit", BEYOND)
"""The scopes of what protects whole units: all of a unit, or a unit less its public view and labels."""
PIXEL_SCOPES = {
    "picture": "of the picture",
    "clip": "of the clip, counted over all its frames",
    "frame": "in every frame of the clip at once",
    ONE_FRAME: "of any one frame of the clip",
}
"""The scopes of what protects some pixels, but for `BOX`, and which pixels they are, in words."""

BOX_FORM = "box:WxH/frames:T or box:WxH/seconds:S"
CELL_FORMS = ("pixels:M", "pixels:M/frame", BOX_FORM)
"""Forms that pixelization takes."""
RELEASE_FORMS = ("pixels:M", "pixels:M/frame", "frame", "clip", BOX_FORM)
"""Forms that other releases take: also any one frame, and the whole clip."""
ACCOUNT_UNITS = (Unit.CROP, Unit.IMAGE, Unit.VIDEO, Unit.SUBJECT)
"""Units of the account, the weaker before the stronger: what hides a whole video hides each of its pictures."""
STAYS_FORM = "stays:K/seconds:S"
"""The form that counts take: K stays of at most S seconds each on one day."""
ACCOUNT_FORMS = ("pixels:M", *ACCOUNT_UNITS, "UNIT:replace", STAYS_FORM)
"""Forms that the account takes: some pixels of a picture, a unit, or the stays of a day."""


class Relation(StrEnum):
    """When two datasets are neighbours."""

    ZERO_OUT = "zero-out"
    """One unit's contribution is replaced by nothing; the number of units stays, and is public."""
    ADD_REMOVE = "add-or-remove"
    """One unit is there or not; the number of units is not published."""
    REPLACE = "replace"
    """One unit is exchanged for any other; the number of units is public."""

    @property
    def words(self) -> str:
        """What happens to a unit, as a participle."""
        return _WORDS[self]

    @property
    def rule(self) -> str:
        """What happens to a unit, and whether the number of units is public."""
        count = "really are is protected too" if self is Relation.ADD_REMOVE else "are is public"
        return f"one unit is {self.words}; how many units there {count}"


_WORDS = {
    Relation.ZERO_OUT: "left blank",
    Relation.ADD_REMOVE: "added or left out",
    Relation.REPLACE: "exchanged for any other",
}


class PublicSizes(Protocol):
    """The public sizes of a picture or clip, as `dpose.release.grid.Shape` has them."""

    @property
    def frames(self) -> int:
        """1 for a picture."""

    @property
    def height(self) -> int:
        """Pixels."""

    @property
    def width(self) -> int:
        """Pixels."""

    @property
    def still(self) -> bool:
        """True for a picture."""


@dataclass(frozen=True)
class Neighbours:
    """What a guarantee hides the difference between.

    Attributes:
        unit: What is protected: a unit of data, or `Unit.PIXEL` in a release.
        relation: How one dataset becomes its neighbour. Pixels are always replaced.
        m: How many units or pixels may differ; None for all pixels that the scope has, before `resolved`.
        scope: Which part of a unit is protected ("unit", or `BEYOND`: all but its public view and labels). Of pixels,
            where they lie: "picture" (before `resolved` also a clip, all its frames together), "clip" (all frames
            together), "frame" (m of every frame), `ONE_FRAME` or `BOX`. Of stays `DAY`.
        box: Of scope `BOX` alone: its width and height, pixels.
        frames: Of scope `BOX` alone: in how many frames, any ones, in one piece or in many; None if `seconds` are
            not counted yet. `m` is the pixels of the box in all of them.
        seconds: Of scope `BOX`: the duration that was asked for in place of frames, of which a statement has none. Of
            scope `DAY`: the longest that one stay lasts.

    Raises:
        DposeError: a field is out of range, or fields contradict each other.
    """

    unit: Unit
    relation: Relation = Relation.ZERO_OUT
    m: int | None = 1
    scope: str = "unit"
    box: tuple[int, int] | None = None
    frames: int | None = None
    seconds: Fraction | None = None

    def __post_init__(self) -> None:
        if self.unit not in tuple(Unit):
            known = ", ".join(Unit)
            raise DposeError("unit-unknown", f"no unit is called {self.unit!r}", fix=f"choose one of {known}")
        object.__setattr__(self, "unit", Unit(self.unit))
        if self.relation not in tuple(Relation):
            raise DposeError(
                "field-choice-unknown",
                f"must be one of {', '.join(Relation)}, not {self.relation!r}",
                "neighbours.relation",
            )
        object.__setattr__(self, "relation", Relation(self.relation))
        if self.of_units and self.scope not in UNIT_SCOPES:
            raise DposeError("scope-not-of-training", f"is none of a training: {self.scope[:80]!r}", "neighbours.scope")
        if self.unit is Unit.PIXEL:
            self._check_pixels()
        if self.unit is Unit.STAY:
            self._check_stays()
        elif self.scope == BOX:
            self._check_box()
        elif (self.box, self.frames, self.seconds) != (None, None, None):
            raise DposeError("box-not-allowed", f"neighbours of scope {self.scope!r} have no box", "neighbours.box")
        unsettled = self.m is None and self.unit is Unit.PIXEL and (self.scope != BOX or self.frames is None)
        if not unsettled and (type(self.m) is not int or self.m < 1):
            raise DposeError("m-not-positive", f"must be a whole number of at least 1, not {self.m!r}", "neighbours.m")

    def _check_pixels(self) -> None:
        if self.relation is not Relation.REPLACE:
            raise DposeError(
                "neighbours-not-pixels",
                f"pixels are replaced: their relation cannot be {self.relation.value}",
                "neighbours.relation",
                'say "pixels:16"',
            )
        if self.scope not in (*PIXEL_SCOPES, BOX):
            choices = ", ".join((*PIXEL_SCOPES, BOX))
            raise DposeError(
                "field-choice-unknown", f"must be one of {choices}, not {self.scope[:80]!r}", "neighbours.scope"
            )

    def _check_stays(self) -> None:
        given = (self.relation, self.scope, self.box, self.frames)
        if given != (Relation.REPLACE, DAY, None, None) or self.seconds is None or self.seconds <= 0:
            raise DposeError("stays-malformed", "stays of a day are replaced, and last some time", "neighbours")

    def _check_box(self) -> None:
        sides = (*(self.box or ()), 1 if self.frames is None and self.seconds is not None else self.frames)
        if len(sides) != 3 or any(type(side) is not int or side < 1 for side in sides):
            raise DposeError("box-malformed", "a box has a width, a height and a number of frames", "neighbours.box")
        if self.seconds is not None and self.seconds < 0:
            raise DposeError(
                "seconds-negative", f"seconds are at least 0, not {exact_text(self.seconds)}", "neighbours"
            )
        if self.m != (None if self.frames is None else math.prod(sides)):
            raise DposeError("m-not-of-box", "m is not the pixels of the box in all its frames", "neighbours.m")

    @classmethod
    def of_pixels(cls, m: int | None, scope: str = "picture") -> Neighbours:
        """Pictures or clips that differ in any `m` pixels of a scope; None for all that it has."""
        return cls(Unit.PIXEL, Relation.REPLACE, m, scope)

    @classmethod
    def of_box(cls, width: int, height: int, frames: int | None = None, seconds: Fraction | None = None) -> Neighbours:
        """Clips that differ in any `frames` frames, in each of them inside a box at any place.

        Args:
            width: Pixels.
            height: Pixels.
            frames: In how many frames; None if seconds are not counted yet.
            seconds: The duration that was asked for; None for frames.
        """
        m = None if frames is None else width * height * frames
        return cls(Unit.PIXEL, Relation.REPLACE, m, BOX, (width, height), frames, seconds)

    @classmethod
    def of_stays(cls, times: int, seconds: Fraction) -> Neighbours:
        """Days of footage that differ in what any `times` stays of at most `seconds` each show."""
        return cls(Unit.STAY, Relation.REPLACE, times, DAY, seconds=Fraction(seconds))

    @classmethod
    def parse(
        cls, value: str | int | Neighbours, forms: Sequence[str] = RELEASE_FORMS, where: str = "neighbours"
    ) -> Neighbours:
        """The neighbours that a value of a command line, a file of settings or a caller names.

        >>> str(Neighbours.parse("pixels:16")), str(Neighbours.parse("subject", ACCOUNT_FORMS))
        ('any 16 pixels of the picture', 'each subject')
        >>> Neighbours.parse("box:120x300/frames:25").m
        900000

        Args:
            value: In one of `forms`; a number for so many pixels; or `Neighbours`, which are only checked.
            forms: `CELL_FORMS`, `RELEASE_FORMS` or `ACCOUNT_FORMS`.
            where: What the value was given as, for errors.

        Raises:
            DposeError: it names none, or none of these forms.
        """
        if isinstance(value, Neighbours):
            return _of_release(value, forms, where)
        text = "" if isinstance(value, bool) else str(value)
        if BOX_FORM in forms and text.startswith("box:"):
            return _parse_box(text, where)
        if text in ("frame", "clip") and text in forms:
            return cls.of_pixels(None, ONE_FRAME if text == "frame" else "clip")
        found = re.fullmatch(r"(?:pixels:)?(-?\d{1,12})(/frame)?", text)
        if found and (not found[2] or "pixels:M/frame" in forms):
            if int(found[1]) < 1:
                raise DposeError("m-not-positive", f"m must be at least 1 pixel, not {found[1]}", where)
            return cls.of_pixels(int(found[1]), "frame" if found[2] else "picture")
        stays = re.fullmatch(r"stays:(\d{1,9})/seconds:(.{1,40})", text)
        if stays and STAYS_FORM in forms:
            return cls.of_stays(int(stays[1]), parse_exact(stays[2], where))
        unit, _, how = text.partition(":")
        if unit in forms and unit in ACCOUNT_UNITS and how in ("", "replace"):
            return cls(Unit(unit), Relation.REPLACE if how else Relation.ZERO_OUT)
        if "UNIT:replace" in forms:
            known = ", ".join(ACCOUNT_UNITS)
            raise DposeError(
                "neighbours-unknown",
                f"{value!r} names no neighbours",
                where,
                did_you_mean(text, ACCOUNT_UNITS) or f"say pixels:M, one of {known}, or one of these with :replace",
            )
        raise DposeError("neighbours-malformed", f"{value!r} is not of the form {', '.join(forms)}", where)

    @property
    def of_units(self) -> bool:
        """True if whole units are protected, as by a training; False for pixels of a release and stays of a count."""
        return self.unit not in (Unit.PIXEL, Unit.STAY)

    @property
    def settled(self) -> bool:
        """True if they depend on no picture or clip any more, as in a statement."""
        return self.m is not None and (self.seconds is None or self.unit is Unit.STAY)

    @property
    def replaces(self) -> bool:
        """True if what is protected is exchanged for any other; False if it is left blank, added or left out."""
        return self.relation is Relation.REPLACE

    @property
    def together(self) -> bool:
        """True if charges that share no picture may still share a unit: a person is in more than one picture."""
        return self.unit in (Unit.VIDEO, Unit.SUBJECT, Unit.STAY)

    @property
    def count(self) -> int:
        """m, a number once neighbours are `resolved`, as in every statement."""
        assert self.m is not None
        return self.m

    @property
    def longest(self) -> Fraction:
        """Seconds of the longest stay, or of the time that a box is there."""
        assert self.seconds is not None
        return self.seconds

    @property
    def area(self) -> int:
        """Pixels of the box in one frame, or m."""
        return self.count if self.box is None else math.prod(self.box)

    def __str__(self) -> str:
        """What is protected, in words."""
        if self.scope == BOX and self.box is not None:
            long = f"{exact_text(self.seconds)} seconds" if self.seconds is not None else ""
            frames = long if self.frames is None else f"any {self.frames:,} frames"
            return (
                f"whatever one box of {self.box[0]:,} x {self.box[1]:,} pixels shows, which may lie anywhere in each "
                f"frame, in {frames} of the clip"
            )
        if self.unit is Unit.STAY:
            return (
                f"what any {self.count:,} stay{'s' * (self.count > 1)} of at most {exact_text(self.longest)} seconds "
                "each show on one calendar day, in all sources counted together"
            )
        if self.of_units:
            some = f"each {self.unit}" if self.m == 1 else f"any {self.m:,} {self.unit}s"
            return f"what {some} holds beyond its public view" if self.scope == BEYOND else some
        where = PIXEL_SCOPES[self.scope]
        return f"all pixels {where}" if self.m is None else f"any {self.m:,} pixel{'s' * (self.m > 1)} {where}"

    def describe(self) -> str:
        """What is protected against which difference, in words.

        >>> Neighbours("image", Relation.REPLACE).describe()
        'each image, exchanged for any other'
        >>> Neighbours.of_pixels(16, "clip").describe()
        'any 16 pixels of the clip, counted over all its frames'
        """
        return f"{self}, {self.relation.words}" if self.of_units else str(self)

    def change(self) -> str:
        """How one dataset becomes its neighbour, as the clause of a condition.

        >>> Neighbours("image").change()
        'any one image were left blank and contributed nothing, the number of them staying as it is'
        """
        if not self.of_units:
            return f"{self} took any other values"
        one = f"any one {self.unit}"
        if self.scope == BEYOND and self.relation is Relation.ZERO_OUT:
            return f"{one} contributed nothing but its public view and labels"
        if self.scope == BEYOND:
            return f"{one} were {self.relation.words} with the same public view and labels"
        blank = self.relation is Relation.ZERO_OUT
        rest = " and contributed nothing, the number of them staying as it is" if blank else ""
        return f"{one if self.m == 1 else f'any {self.m} of them'} were {self.relation.words}{rest}"

    def timed(self, times: Sequence[Fraction]) -> Neighbours:
        """The same with seconds counted in frames of a clip whose frames have these time stamps, in order."""
        if self.seconds is None or self.box is None:
            return self
        return Neighbours.of_box(*self.box, most_frames(times, self.seconds), self.seconds)

    def resolved(self, sizes: PublicSizes) -> Neighbours:
        """The neighbours for a picture or clip of these sizes, as its statement says them.

        A box is cut to the picture; of a picture it is as many pixels as the box has, wherever they lie.

        Raises:
            DposeError: m is larger than the picture or clip, or seconds have not been counted in frames.
        """
        pixels = sizes.width * sizes.height
        if self.box is not None:
            width, height = min(self.box[0], sizes.width), min(self.box[1], sizes.height)
            if sizes.still:
                return Neighbours.of_pixels(width * height)
            if self.frames is None:
                raise DposeError(
                    "frames-without-times",
                    "seconds can be counted where frames have time stamps",
                    "neighbours",
                    "say frames:T",
                )
            return Neighbours.of_box(width, height, min(self.frames, sizes.frames))
        scope = "clip" if self.scope == "picture" else self.scope
        most = pixels * (sizes.frames if scope == "clip" else 1)
        m = most if self.m is None else self.m
        if m > most:
            there = "is only 1 pixel" if most == 1 else f"are only {most:,} pixels"
            raise DposeError("m-above-pixels", f"m is {m:,}, but there {there}", "neighbours", "choose a smaller m")
        return Neighbours.of_pixels(m, "picture" if sizes.still else scope)

    def notes(self, sizes: PublicSizes) -> tuple[str, ...]:
        """What `resolved` made of a box, where it is not just what was asked for."""
        if self.box is None:
            return ()
        near, notes = self.resolved(sizes), []
        sides = f"{self.box[0]:,} x {self.box[1]:,}"
        if sizes.still:
            cut = f"as many pixels as {sides} has were asked for: cut to the picture's size"
            return () if near.m == self.area else (cut,)
        if self.seconds is not None:
            notes.append(
                f"{exact_text(self.seconds)} seconds in one piece are at most {self.frames:,} frames of this clip; "
                "several shorter stays count by their frames"
            )
        if near.box != self.box:
            notes.append(f"the box that was asked for, {sides}, is cut to the frame's size")
        if near.frames != self.frames:
            notes.append(f"the box may be there in all {sizes.frames:,} frames: more than that were asked for")
        return tuple(notes)

    def stated(self) -> StatedNeighbours:
        """Resolved neighbours as a statement holds them: all but the unit, which the statement says itself.

        Raises:
            ValueError: they are not resolved.
        """
        if self.m is None or not self.settled:
            raise ValueError("a statement says how many pixels and frames")
        return StatedNeighbours(self.relation, self.m, self.scope, self.box, self.frames, self.seconds)

    @classmethod
    def read(cls, value: Any, unit: str) -> Neighbours:
        """The neighbours that a statement about units of this kind holds.

        Raises:
            DposeError: a field is missing, unknown, of the wrong type or out of range.
        """
        return StatedNeighbours.read(value, "neighbours").of(unit)


@statement_part
class StatedNeighbours(StatementPart):
    """Neighbours in the JSON of a statement; `Neighbours` says what the fields are."""

    relation: Relation
    m: Count
    scope: Text
    box: tuple[Positive, Positive] | None = optional(default=None)
    frames: Positive | None = optional(default=None)
    seconds: Exact | None = optional(default=None)

    def of(self, unit: str) -> Neighbours:
        """The neighbours, of units of this kind."""
        return Neighbours(Unit(unit), self.relation, self.m, self.scope, self.box, self.frames, self.seconds)


def _of_release(value: Neighbours, forms: Sequence[str], where: str) -> Neighbours:
    if "UNIT:replace" in forms:
        return value
    if value.unit is not Unit.PIXEL or (value.scope == ONE_FRAME and "frame" not in forms):
        raise DposeError(
            "neighbours-not-pixels", "a release protects pixels that are replaced", where, 'say "pixels:16"'
        )
    return value


def _parse_box(text: str, where: str) -> Neighbours:
    found = re.fullmatch(r"box:(\d{1,6})x(\d{1,6})(?:/(frames|seconds):(.{1,40}))?", text)
    if found is None or (found[3] == "frames" and not re.fullmatch(r"\d{1,9}", found[4])):
        raise DposeError("box-malformed", f"{text!r} is not of the form {BOX_FORM}", where)
    width, height = int(found[1]), int(found[2])
    frames = int(found[4]) if found[3] == "frames" else None
    if min(width, height, 1 if frames is None else frames) < 1:
        raise DposeError("box-empty", "a box has at least 1 pixel, and lasts for at least 1 frame", where)
    if found[3] is None:
        raise DposeError("box-without-duration", "how long the box may be there is missing", where, f"say {BOX_FORM}")
    return Neighbours.of_box(width, height, frames, parse_exact(found[4], where) if found[3] == "seconds" else None)
