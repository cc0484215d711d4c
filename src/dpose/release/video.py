"""Whole videos: decoded, released frame by frame, encoded again, with a statement beside the file."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.media.video import Frame, VideoInfo, open_writer, probe, read_frames, settle
from dpose.privacy.noise import KEY_BYTES, AesNoise, Key, NoiseSource, Purpose
from dpose.privacy.statement import PrivacyStatement
from dpose.release.api import bind, claim_picture
from dpose.release.config import Setting
from dpose.release.embed import write_sidecar
from dpose.release.mechanism import Plan
from dpose.release.once import spend
from dpose.release.published_pixelization import PaperPlan

DECODED = (
    "pixels are those of the decoded frames: a change before compression, or to a frame that others are predicted "
    "from, may touch more of them"
)
SOUND = "the sound was copied unchanged and is not protected at all"


def pixelize_video(
    path: Path,
    out: Path,
    setting: Setting,
    *,
    seed: int | None = None,
    workers: int = 1,
    keep_sound: bool = False,
    progress: Callable[[], None] | None = None,
) -> PrivacyStatement:
    """Release a video: duration, frame rate and time stamps kept, sound and metadata dropped.

    **Guarantee.** As `Plan.of` says, for the clip's decoded frames; each frame's noise has a key of its own, derived
    from one fresh key in the order of the frames, so that the number of workers changes nothing. Encoding is
    post-processing. Public: size, number of frames and their time stamps. Sound that is kept is not protected, and
    the statement says so.

    Args:
        path: The original.
        out: The released video; its statement goes to FILE.privacy.json beside it.
        setting: What to release.
        seed: Makes the noise repeatable and takes the guarantee away.
        workers: Frames in work at a time.
        keep_sound: Copy the original's sound.
        progress: Called after each frame.

    Returns:
        The statement.

    Raises:
        DposeError: the video cannot be read, ends early, or cannot be written; then nothing is left under `out`.
    """
    info = probe(path)
    plan = bind(setting, info.height, info.width, info.channels, 255, info.frames)
    source = AesNoise(Key.fresh() if seed is None else Key.from_seed(seed))
    seeded, _ = spend(source)
    with open_writer(out, info, keep_sound=keep_sound) as (writer, temporary):
        kept = writer.keeps_sound
        for frame, pixels in released_frames(read_frames(info, writer), plan, source, workers):
            writer.add(pixels, frame.pts, frame.duration)
            if progress is not None:
                progress()
    statement = claim_picture(
        plan, seeded=seeded, caveats=(DECODED,), conditional_on=(SOUND,) if kept else ()
    )
    # the statement first: a video without one must never stand there
    statement = write_sidecar(out, temporary, statement)
    settle(temporary, out)
    return statement


def released_frames(
    frames: Iterator[Frame], plan: Plan | PaperPlan, source: NoiseSource, workers: int
) -> Iterator[tuple[Frame, NDArray[np.uint8]]]:
    """Released frames in order, `workers` of them in work at a time. Memory does not grow with the clip.

    Each frame has a key of its own: the next 32 bytes of one stream of `source`, drawn in the order of the frames.

    Raises:
        DposeError: there are more frames than the plan was made for.
    """
    keys = source.stream(Purpose.RELEASE, 0, b"frames")

    def work(number: int, frame: Frame, key: Key) -> tuple[Frame, NDArray[np.uint8]]:
        return replace(frame, pixels=frame.pixels[:0]), plan.release(
            frame.pixels, AesNoise(key), number
        ).picture()

    with ThreadPoolExecutor(max(1, workers)) as pool:
        waiting: deque[Future[tuple[Frame, NDArray[np.uint8]]]] = deque()
        try:
            for number, frame in enumerate(frames):
                if plan.frames is not None and number >= plan.frames:
                    raise DposeError(f"the video has more frames than the {plan.frames} it declares")
                key = Key.drawn(keys.bytes(KEY_BYTES), seeded=source.seeded)
                waiting.append(pool.submit(work, number, frame, key))
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def video_plan(path: Path, setting: Setting) -> tuple[VideoInfo, Plan | PaperPlan]:
    """What a video is and what releasing it would cost; releases nothing.

    Raises:
        DposeError: the video cannot be read, or the setting does not fit it.
    """
    info = probe(path)
    return info, bind(setting, info.height, info.width, info.channels, 255, info.frames)
