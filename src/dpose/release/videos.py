"""A video file from another one: its frames run through something, and its statement beside it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpose.media.video import VideoInfo, read_frames
from dpose.media.video_writer import open_writer, settle
from dpose.privacy.statement import PrivacyStatement
from dpose.release.embed import write_sidecar
from dpose.release.statements import DECODED_VIDEO, SOUND

FramePass = Callable[[Iterator[NDArray[np.uint8]]], Iterator[NDArray[np.uint8]]]
"""From a video's frames to as many frames."""
StatementMaker = Callable[[tuple[str, ...], tuple[str, ...]], PrivacyStatement]
"""Makes a video's statement, from caveats and from what is taken as given."""


def encode_video(
    info: VideoInfo,
    out: Path,
    run: FramePass,
    state: StatementMaker,
    *,
    keep_sound: bool,
    progress: Callable[[], None] | None = None,
    check: Callable[[], None] = lambda: None,
) -> PrivacyStatement:
    """Read a video, run its frames through something, and write the result with its statement beside it.

    Duration, frame rate and time stamps are kept; metadata, and sound unless it is to be kept, are dropped.

    Args:
        info: The original.
        out: The new video.
        run: From frames to as many frames.
        state: Makes the statement, from caveats and from what is taken as given.
        keep_sound: True to copy the original's sound.
        progress: Called after each frame.
        check: Refuses an original that is no longer the one that was counted.

    Raises:
        DposeError: the video cannot be read, ends early, or cannot be written; then nothing is left under `out`.
    """
    with open_writer(out, info, keep_sound=keep_sound) as (writer, temporary):
        kept = writer.keeps_sound
        stamps: deque[tuple[int, int]] = deque()

        def frames() -> Iterator[NDArray[np.uint8]]:
            for frame in read_frames(info, writer):
                stamps.append((frame.pts, frame.duration))
                yield frame.pixels

        for picture in run(frames()):
            writer.add(picture, *stamps.popleft())
            if progress is not None:
                progress()
        check()
    # the statement first: a video without one must never stand there
    statement = write_sidecar(out, temporary, state((DECODED_VIDEO,), (SOUND,) if kept else ()))
    settle(temporary, out)
    return statement
