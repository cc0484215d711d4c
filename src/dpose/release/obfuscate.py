"""Ways to obscure a picture or video that guarantee nothing: what private releases are compared with.

    picture_after = Obfuscator("blur", Shape(frames=1, height=240, width=320, channels=3)).apply(frame)

Seed 004, section 4.2: inverse super-resolution (Ryoo et al. 2017), face blurring, and beside them a plain blur and
pixelation. A reader may recover from such a video much of what it was to hide; the statement is of kind `none`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.media.spans import Span
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.release.boxes import FoundBox
from dpose.release.faces import FaceFinder, Picture, Place, face_finder, held
from dpose.release.grid import Shape
from dpose.release.plans import spans_given, spans_record
from dpose.units import Unit

METHODS = ("isr-32x24", "isr-16x12", "face-blur", "blur", "pixelate")
KERNEL, SIGMA = 21, 10.0
"""Size and deviation of the Gaussian that faces are blurred with, pixels: seed 004's."""
PLAIN_SIGMA = 10.0
"""Deviation of the plain blur, pixels."""
BLOCK = 16
"""Side of the pixelation's blocks, pixels."""
SHIFT, SCALE, TURN = 0.1, 0.1, 10.0
"""How far a video is shifted (of its sides), scaled (relative to 1) and turned (degrees) at most."""
MISSED = (
    "faces that the detector missed are shown as they were, what it took for faces is blurred, and bodies, clothes and "
    "places are always shown"
)
FACE_MARGIN = 0.1
"""A share of a found face's side: how much more is blurred on each side."""
HOLD = 14
"""Frames before and after a find where its face is blurred too."""


class Obfuscator:
    """One of `METHODS`, for the frames of one video or for one picture.

    isr-WxH: means over cells, W x H of them, then a shift, a scale and a rotation drawn once for the video, then
    enlarged to the video's own size without smoothing. face-blur: every face that a detector finds is blurred, in the
    frames around it too. blur: all of the frame. pixelate: means of blocks. Where boxes are given these alone are
    obscured, by any method but isr.

    Args:
        method: One of `METHODS`.
        shape: The video's or picture's sizes.
        seed: For isr's transformation; None draws one.
        finder: For face-blur; the bundled cascade by default.
        hold: For face-blur: for how many frames before and after a find its face is blurred where none is found.
        boxes: What is obscured and nothing else; None for the whole frame, or the faces that are found.
    """

    def __init__(
        self,
        method: str,
        shape: Shape,
        seed: int | None = None,
        finder: FaceFinder | None = None,
        hold: int = HOLD,
        boxes: Sequence[FoundBox] | None = None,
    ) -> None:
        check_method(method)
        self.method, self.shape, self.hold, self.boxes = method, shape, hold, boxes
        self._checked(boxes or ())
        self.faces = self.without = self.open = 0
        if method.startswith("isr-"):
            columns, rows = (int(n) for n in method.removeprefix("isr-").split("x"))
            if columns > shape.width or rows > shape.height:
                raise DposeError(
                    "video-too-small", f"a video of {shape.width} x {shape.height} is smaller than {method}'s", "method"
                )
            self._grid = (columns, rows)
            self._matrix = random_motion(columns, rows, np.random.default_rng(seed))
        if method == "face-blur" and boxes is None:
            self.finder = finder or face_finder()

    def run(self, frames: Iterable[Picture]) -> Iterator[Picture]:
        """Frames, obscured; of face-blur each is held back for `hold` frames.

        Args:
            frames: uint8, (H, W, C), in order.

        Yields:
            uint8, (H, W, C), as many.
        """
        if self.method != "face-blur" and self.boxes is None:
            yield from map(self.apply, frames)
            return
        for frame, boxes in self.located(frames):
            yield self._within(frame, boxes)

    def located(self, frames: Iterable[Picture]) -> Iterator[tuple[Picture, Sequence[FoundBox]]]:
        """Each frame with the boxes that are obscured in it: those given, or those of faces that are found."""
        if self.boxes is not None:
            by_frame: dict[int, list[FoundBox]] = {}
            for box in self.boxes:
                by_frame.setdefault(box.frame, []).append(box)
            for number, frame in enumerate(frames):
                yield frame, by_frame.get(number, ())
            return
        frames, seen = itertools.tee(frames)
        for number, (places, frame) in enumerate(zip(held(map(self._found, seen), self.hold), frames, strict=True)):
            self.open += not places
            yield frame, self._faces(places, number)

    def apply(self, frame: Picture) -> Picture:
        """One frame, obscured.

        Args:
            frame: uint8, (H, W, C).

        Returns:
            uint8, (H, W, C).
        """
        if self.method.startswith("isr-"):
            return self._inverse_super_resolution(frame)
        if self.method == "face-blur":
            return self._within(frame, self._faces(self._found(frame)))
        return self._whole(frame)

    def _whole(self, frame: Picture) -> Picture:
        """One frame, all of it obscured."""
        if self.method == "face-blur":
            return _like(cv2.GaussianBlur(frame, (KERNEL, KERNEL), SIGMA), frame)
        if self.method == "blur":
            return _like(cv2.GaussianBlur(frame, (0, 0), PLAIN_SIGMA), frame)
        return self._pixelated(frame)

    def caveats(self) -> tuple[str, ...]:
        """What the reader of a statement must know of what was done."""
        shape = self.shape
        if self.boxes is not None:
            where = f" in {len({box.frame for box in self.boxes}):,} of {shape.frames:,} frames"
            return (
                f"{len(self.boxes):,} boxes are obscured{'' if shape.still else where}, as they were given; "
                "all else is shown as it was",
            )
        if self.method != "face-blur":
            return ()
        if shape.still:
            return (f"{self.faces:,} faces were found by {self.finder.about}", MISSED)
        return (
            f"{self.faces:,} faces were found in {self.shape.frames:,} frames by {self.finder.about}; it found none in "
            f"{self.without:,} frames, and in {self.open:,} nothing is blurred, where no find was within {self.hold} "
            "frames",
            MISSED,
        )

    def record(self) -> dict[str, str]:
        """What was found and how, by name, for the statement."""
        if self.boxes is not None:
            return {"boxes": str(len(self.boxes))}
        if self.method != "face-blur":
            return {}
        finds = {"finds": self.faces, "frames without a find": self.without, "frames without a blur": self.open}
        return {
            "detector": self.finder.about,
            "hold": f"{self.hold} frames",
            **{name: str(count) for name, count in finds.items()},
        }

    def statement(self, conditional_on: tuple[str, ...] = (), spans: Sequence[Span] = ()) -> PrivacyStatement:
        """The statement of a video that was run through, of kind none.

        Args:
            conditional_on: What else its reader must know.
            spans: Of the film, all that was run through; empty for all of it.
        """
        shape = self.shape
        return PrivacyStatement(
            kind=Kind.NONE,
            unit=Unit.PIXEL,
            caveats=self.caveats() + spans_given(spans) + conditional_on,
            release={
                "mechanism": f"obfuscation: {self.method}",
                "shape": {
                    "frames": None if shape.still else shape.frames,
                    "height": shape.height,
                    "width": shape.width,
                },
                **self.record(),
                **spans_record(spans),
            },
        )

    def _inverse_super_resolution(self, frame: Picture) -> Picture:
        small = cv2.resize(frame, self._grid, interpolation=cv2.INTER_AREA)
        moved = cv2.warpAffine(small, self._matrix, self._grid, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        return _like(cv2.resize(moved, (self.shape.width, self.shape.height), interpolation=cv2.INTER_NEAREST), frame)

    def _found(self, frame: Picture) -> list[Place]:
        found = self.finder.find(frame)
        self.faces += len(found)
        self.without += not found
        return found

    def _faces(self, places: Sequence[Place], frame: int = 0) -> list[FoundBox]:
        """The boxes of found faces, a little larger, cut to the picture."""
        height, width = self.shape.height, self.shape.width
        found = []
        for top, left, bottom, right in places:
            more = math.ceil(FACE_MARGIN * (right - left))
            y, x = max(0, math.floor(top) - more), max(0, math.floor(left) - more)
            tall = min(height, math.ceil(bottom) + more) - y
            wide = min(width, math.ceil(right) + more) - x
            if min(tall, wide) > 0:
                found.append(FoundBox("", 0, frame, x, y, wide, tall))
        return found

    def _within(self, frame: Picture, boxes: Sequence[FoundBox]) -> Picture:
        if not boxes:
            return frame
        obscured, shown = self._whole(frame), frame.copy()
        for box in boxes:
            shown[box.rows, box.columns] = obscured[box.rows, box.columns]
        return shown

    def _checked(self, boxes: Sequence[FoundBox]) -> None:
        if boxes and self.method.startswith("isr-"):
            raise DposeError("boxes-without-place", f"{self.method} moves all of a picture, and has no boxes", "method")
        for box in boxes:
            across, down = range(self.shape.width)[box.columns], range(self.shape.height)[box.rows]
            if not (across and down and box.frame < self.shape.frames):
                raise DposeError(
                    "box-outside-picture",
                    f"box {box.number} lies outside {self.shape.width} x {self.shape.height} pixels and "
                    f"{self.shape.frames:,} frames",
                    fix="mend it or take it out of --boxes",
                )

    @cached_property
    def _blocks(self) -> tuple[int, int]:
        return max(1, round(self.shape.width / BLOCK)), max(1, round(self.shape.height / BLOCK))

    def _pixelated(self, frame: Picture) -> Picture:
        small = cv2.resize(frame, self._blocks, interpolation=cv2.INTER_AREA)
        return _like(cv2.resize(small, (self.shape.width, self.shape.height), interpolation=cv2.INTER_NEAREST), frame)


def check_method(method: str) -> None:
    """Refuse a method that is none.

    Raises:
        DposeError: it is none of `METHODS`.
    """
    if method not in METHODS:
        raise DposeError("method-unknown", f"must be one of {', '.join(METHODS)}, not {method!r}", "method")


def random_motion(width: int, height: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A shift, scale and rotation about the middle, drawn evenly, (2, 3), for `cv2.warpAffine`."""
    angle, scale = rng.uniform(-TURN, TURN), 1 + rng.uniform(-SCALE, SCALE)
    matrix: NDArray[np.float64] = np.asarray(
        cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), angle, scale), np.float64
    )
    matrix[:, 2] += rng.uniform(-SHIFT, SHIFT, 2) * (width, height)
    return matrix


def _like(changed: Any, frame: Picture) -> Picture:
    return np.asarray(changed).reshape(frame.shape)
