"""Ways to obscure a video that guarantee nothing: what private releases are compared with.

    picture_after = Obfuscator("blur", Shape(frames=1, height=240, width=320, channels=3)).apply(frame)

Seed 004, section 4.2: inverse super-resolution (Ryoo et al. 2017), face blurring, and beside them a plain blur and
pixelation. A reader may recover from such a video much of what it was to hide; the statement is of kind `none`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError, naming
from dpose.media.video import VideoInfo
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.release.api import Asking, shape_of, video_settings, write_video
from dpose.release.counting import Original
from dpose.release.grid import Shape

METHODS = ("isr-32x24", "isr-16x12", "face-blur", "blur", "pixelate")
KERNEL, SIGMA = 21, 10.0
"""Of the Gaussian that faces are blurred with, pixels: seed 004's."""
PLAIN_SIGMA = 10.0
"""Of the plain blur, pixels."""
BLOCK = 16
"""Side of the pixelation's blocks, pixels."""
SHIFT, SCALE, TURN = 0.1, 0.1, 10.0
"""How far a video is shifted (of its sides), scaled (relative to 1) and turned (degrees) at most."""
SMALLEST_FACE = 24
"""Pixels; the detector's own window."""
FACE_MARGIN = 0.1
"""Of a found face's side: how much more is blurred on each side."""

Picture = NDArray[np.uint8]


class Obfuscator:
    """One of `METHODS`, for the frames of one video.

    isr-WxH: means over cells, W x H of them, then a shift, a scale and a rotation drawn once for the video, then
    enlarged to the video's own size without smoothing. face-blur: every face that a cascade of local binary patterns
    finds is blurred. blur: all of the frame. pixelate: means of blocks.

    Args:
        method: One of `METHODS`.
        shape: The video's sizes.
        seed: For isr's transformation; None draws one.

    Raises:
        DposeError: unknown method, a video smaller than isr's grid, or scikit-image is missing.
    """

    def __init__(self, method: str, shape: Shape, seed: int | None = None) -> None:
        check_method(method)
        self.method, self.shape = method, shape
        self.faces = 0
        if method.startswith("isr-"):
            columns, rows = (int(n) for n in method.removeprefix("isr-").split("x"))
            if columns > shape.width or rows > shape.height:
                raise DposeError(
                    f"a video of {shape.width} x {shape.height} is smaller than {method}'s", "method"
                )
            self._grid = (columns, rows)
            self._matrix = random_motion(columns, rows, np.random.default_rng(seed))
        if method == "face-blur":
            face_cascade()

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
            return self._without_faces(frame)
        if self.method == "blur":
            return _like(cv2.GaussianBlur(frame, (0, 0), PLAIN_SIGMA), frame)
        return self._pixelated(frame)

    def caveats(self) -> tuple[str, ...]:
        """What the reader of a statement must know of what was done."""
        if self.method != "face-blur":
            return ()
        return (
            f"{self.faces:,} faces were found in {self.shape.frames:,} frames; faces that the detector missed are "
            "shown as they were, and bodies, clothes and places always are",
        )

    def _inverse_super_resolution(self, frame: Picture) -> Picture:
        small = cv2.resize(frame, self._grid, interpolation=cv2.INTER_AREA)
        moved = cv2.warpAffine(
            small, self._matrix, self._grid, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
        )
        return _like(
            cv2.resize(moved, (self.shape.width, self.shape.height), interpolation=cv2.INTER_NEAREST), frame
        )

    def _without_faces(self, frame: Picture) -> Picture:
        found = find_faces(frame)
        self.faces += len(found)
        if not found:
            return frame
        blurred = _like(cv2.GaussianBlur(frame, (KERNEL, KERNEL), SIGMA), frame)
        shown = frame.copy()
        for top, left, bottom, right in found:
            shown[top:bottom, left:right] = blurred[top:bottom, left:right]
        return shown

    @cached_property
    def _blocks(self) -> tuple[int, int]:
        return max(1, round(self.shape.width / BLOCK)), max(1, round(self.shape.height / BLOCK))

    def _pixelated(self, frame: Picture) -> Picture:
        small = cv2.resize(frame, self._blocks, interpolation=cv2.INTER_AREA)
        return _like(
            cv2.resize(small, (self.shape.width, self.shape.height), interpolation=cv2.INTER_NEAREST), frame
        )


def check_method(method: str) -> None:
    """Refuse a method that is none.

    Raises:
        DposeError: it is none of `METHODS`.
    """
    if method not in METHODS:
        raise DposeError(f"must be one of {', '.join(METHODS)}, not {method!r}", "method")


def obfuscate_file(
    info: VideoInfo,
    out: Path,
    method: str,
    *,
    seed: int | None = None,
    keep_sound: bool = False,
    progress: Callable[[], None] | None = None,
    public: bool = False,
    again: bool = False,
    original: Original | None = None,
) -> PrivacyStatement:
    """Obscure a video. Nothing is guaranteed, and its statement, beside it, says so.

    It is counted as a release that nothing bounds, and refused where a budget stands.

    Args:
        info: The original, probed.
        out: The new video.
        method: One of `METHODS`.
        seed: For isr's transformation.
        keep_sound: Copy the original's sound.
        progress: Called after each frame.
        public: Whether nobody in it needs protection: then it is not counted.
        again: Whether it may be a second release.
        original: What the video is, where that is known.

    Returns:
        The statement, of kind none.

    Raises:
        DposeError: the method does not fit, or the video cannot be read or written; then nothing is left under `out`.
    """
    with naming(info.path):
        work = Obfuscator(method, shape_of(info), seed)

        def run(frames: Iterator[Picture]) -> Iterator[Picture]:
            return map(work.apply, frames)

        return write_video(
            info,
            out,
            run,
            lambda caveats, given: PrivacyStatement(
                kind=Kind.NONE,
                unit="pixel",
                caveats=work.caveats() + given,
                release={
                    "mechanism": f"obfuscation: {method}",
                    "size": f"{info.width}x{info.height}",
                    "frames": str(info.frames),
                },
            ),
            Asking(
                video_settings(method, seed, keep_sound=keep_sound),
                public=public,
                again=again,
                original=original,
            ),
            keep_sound=keep_sound,
            progress=progress,
        )


def random_motion(width: int, height: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A shift, scale and rotation about the middle, drawn evenly, (2, 3), for `cv2.warpAffine`."""
    angle, scale = rng.uniform(-TURN, TURN), 1 + rng.uniform(-SCALE, SCALE)
    matrix: NDArray[np.float64] = np.asarray(
        cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), angle, scale), np.float64
    )
    matrix[:, 2] += rng.uniform(-SHIFT, SHIFT, 2) * (width, height)
    return matrix


def find_faces(frame: Picture) -> list[tuple[int, int, int, int]]:
    """Frontal faces, as (top, left, bottom, right), with a margin, cut to the frame.

    Args:
        frame: uint8, (H, W, C).
    """
    height, width = frame.shape[:2]
    if min(height, width) <= SMALLEST_FACE:
        return []
    colour = np.ascontiguousarray(frame.repeat(3, 2) if frame.shape[2] == 1 else frame)
    side = min(height, width)
    found = face_cascade().detect_multi_scale(
        img=colour,
        scale_factor=1.2,
        step_ratio=1,
        min_size=(SMALLEST_FACE, SMALLEST_FACE),
        max_size=(side, side),
    )
    boxes = []
    for face in found:
        more = math.ceil(FACE_MARGIN * face["width"])
        top, left = max(0, face["r"] - more), max(0, face["c"] - more)
        bottom, right = face["r"] + face["height"] + more, face["c"] + face["width"] + more
        boxes.append((top, left, min(height, bottom), min(width, right)))
    return boxes


@lru_cache(maxsize=1)
def face_cascade() -> Any:
    """scikit-image's cascade of local binary patterns for frontal faces.

    Raises:
        DposeError: scikit-image is not installed.
    """
    try:
        from skimage.data import lbp_frontal_face_cascade_filename
        from skimage.feature import Cascade
    except ImportError as error:
        raise DposeError(
            "finding faces needs scikit-image", "face-blur", "pip install 'dpose[faces]'"
        ) from error
    return Cascade(lbp_frontal_face_cascade_filename())


def _like(changed: Any, frame: Picture) -> Picture:
    return np.asarray(changed).reshape(frame.shape)
