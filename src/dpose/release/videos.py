"""A video file from another one: its frames run through something, counted, and its statement beside it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import file_digest, same_file_check
from dpose.media.video import VideoInfo, read_frames
from dpose.media.video_writer import WRITABLE, open_writer, settle
from dpose.privacy.sections import NOT_SAID, About
from dpose.privacy.statement import PrivacyStatement
from dpose.release.config import ReleaseConfig
from dpose.release.counting import release_charge, release_history, reserved_release, settings_digest
from dpose.release.embed import read_sidecar, sidecar_of, write_sidecar
from dpose.release.originals import Original, video_original
from dpose.release.places import find_output
from dpose.release.statements import DECODED_VIDEO, SOUND, AnyPlan

FramePass = Callable[[Iterator[NDArray[np.uint8]]], Iterator[NDArray[np.uint8]]]
"""From a video's frames to as many frames."""
StatementMaker = Callable[[tuple[str, ...], tuple[str, ...]], PrivacyStatement]
"""Makes a video's statement, from caveats and from what is taken as given."""


def video_settings(
    what: ReleaseConfig | str, seed: int | None, *, keep_sound: bool, caveats: tuple[str, ...] = ()
) -> str:
    """Digest of all that decides a released video."""
    return settings_digest("video", what, seed, keep_sound, *caveats)


@dataclass(frozen=True)
class VideoReleaseRequest:
    """What a video's release is counted as.

    Attributes:
        settings: Digest of all that decides it.
        plan: How it is made; None where nothing is claimed.
        seeded: Whether the noise is not secret.
        public: Whether the video is declared public.
        again: Whether it may be a second release.
        original: What the video is, where that is known.
        about: What its statement says of who releases it.
    """

    settings: str
    plan: AnyPlan | None = None
    seeded: bool = False
    public: bool = False
    again: bool = False
    original: Original | None = None
    about: About = NOT_SAID


def write_video(
    info: VideoInfo,
    out: Path,
    run: FramePass,
    state: StatementMaker,
    asking: VideoReleaseRequest,
    *,
    keep_sound: bool,
    progress: Callable[[], None] | None = None,
) -> PrivacyStatement:
    """Read a video, run its frames through something, and write the result with its statement beside it.

    Args:
        info: The original.
        out: The new video.
        run: From frames to as many frames.
        state: Makes the statement, from caveats and from what is taken as given.
        asking: What it is counted as.
        keep_sound: Copy the original's sound.
        progress: Called after each frame.

    Returns:
        The statement; of the video that is there, where that is just this release of just this video.

    Raises:
        DposeError: the video cannot be read, ends early, or cannot be written; then nothing is left under `out`. Or it
            was released before, another file is in the way, or a budget would be passed.
    """
    if out.suffix.lower() not in WRITABLE:
        raise DposeError(
            "video-suffix-unknown", "cannot write videos of this kind", str(out), f"use {', '.join(WRITABLE)}"
        )
    charge, linked = None, True
    check = same_file_check(info.path)  # its digest is counted, then it is read again
    if not asking.public:
        original = asking.original or video_original(info)
        original.check_unchanged(info.path)
        charge = release_charge(original, asking.plan, asking.settings, seeded=asking.seeded, target=out)
        linked = original.linked
    there = find_output(release_history(charge) if charge else None, out, video_outputs)
    if there is not None:
        return read_sidecar(there)[0]
    with reserved_release(charge, again=asking.again, linked=linked, about=asking.about) as count:
        statement = encode_video(
            info,
            out,
            run,
            lambda told, given: count.told(state(told, given)),
            keep_sound=keep_sound,
            progress=progress,
            check=check,
        )
        count.outputs += [file_digest(path) for path in video_outputs(out)]
    return statement


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
    """`write_video`, for whoever has counted it; `check` refuses an original that is no longer the one counted.

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


def video_outputs(out: Path) -> list[Path]:
    """All files of a released video."""
    return [out, sidecar_of(out)]
