"""The front doors for private video by projection: a file or an array in, a private one and its statement out.

statement = dpose.release_video("ward.mp4", "ward-private.mp4", epsilon=8, delta=1e-5)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError, naming
from dpose.media.video import VIDEO_SUFFIXES, VideoInfo, open_writer, probe, read_frames, settle
from dpose.privacy.noise import AesNoise, Key, NoiseSource, Purpose
from dpose.privacy.statement import PrivacyStatement
from dpose.release.clip_cells import ClipShape
from dpose.release.clip_config import SPLIT, ClipSetting
from dpose.release.clip_plan import ClipPlan
from dpose.release.clip_statements import clip_statement
from dpose.release.config import Number
from dpose.release.embed import write_sidecar
from dpose.release.files import Job, find_jobs
from dpose.release.once import spend
from dpose.release.published_dprp import DensePlan
from dpose.release.video import DECODED, SOUND


@dataclass(frozen=True)
class ClipRelease:
    """A private clip.

    Attributes:
        frames: uint8, (T, H, W, C).
        statement: What is guaranteed.
    """

    frames: NDArray[np.uint8]
    statement: PrivacyStatement


def release_video(
    path: str | Path,
    out: str | Path,
    epsilon: Number,
    delta: Number,
    neighbours: str | int | None = None,
    operator: str = "block",
    *,
    k: int | None = None,
    pool: int | None = None,
    clip_norm: Number | None = None,
    clip_segment: bool = False,
    paper: bool = False,
    split: float = SPLIT,
    seed: int | None = None,
    keep_sound: bool = False,
    progress: Callable[[], None] | None = None,
) -> PrivacyStatement:
    """Release a video under differential privacy, by a public projection with exact Gaussian noise.

    **Guarantee.** Neighbours: videos of the same size and length whose decoded frames differ in at most m pixels, of
    any values (an RGB pixel is three): of the whole video together ("pixels:16"), of every frame ("pixels:16/frame"),
    of any one frame ("frame"), or all of them ("clip"). Sensitivity: the operator's; with `clip_norm` C at most 2 C
    for each part that can change. Noise: exact discrete Gaussian, calibrated analytically. Post-processing:
    restoration, encoding. Public: size, number of frames, time stamps, operator. Sound is dropped unless asked for.
    Seed 004, corrected; proved in docs/proofs/video.md. Memory does not depend on the video's length.

    Args:
        path: The original.
        out: The released video (.mp4, .m4v, .mov, .mkv); its statement goes to FILE.privacy.json beside it.
        epsilon: Total for the video. Text ("0.5", "1/3") is taken exactly.
        delta: As epsilon, in (0, 1).
        neighbours: What is hidden; by default pixels:16.
        operator: "block" (means of cells in height, width and time), "low-pass" (cosines) or "random" (the statistics
            of seed 004's random projection, with orthonormal rows).
        k: The most values to keep of a group of frames; chosen by the noise where None.
        pool: Frames of a group; chosen by the noise where None.
        clip_norm: Bound on the L2 norm of a group's projected values, in gray levels times the root of pixels.
        clip_segment: The bound is on 64 frames' values together instead.
        paper: Run seed 004's algorithm as printed, which guarantees nothing; the statement says what does not hold.
        split: b of that algorithm, the share of its budget that goes to the projection.
        seed: Makes the noise repeatable and takes the guarantee away.
        keep_sound: Copy the original's sound, unprotected.
        progress: Called after each frame.

    Returns:
        The statement.

    Raises:
        DposeError: a setting is out of range or does not fit the video, or the video cannot be read, ends early, or
            cannot be written; then nothing is left under `out`.
    """
    setting = ClipSetting.of(
        epsilon,
        delta,
        neighbours,
        operator,
        k=k,
        pool=pool,
        clip_norm=clip_norm,
        clip_segment=clip_segment,
        paper=paper,
        split=split,
    )
    return release_file(probe(path), Path(out), setting, seed=seed, keep_sound=keep_sound, progress=progress)


def release_file(
    info: VideoInfo,
    out: Path,
    setting: ClipSetting,
    *,
    seed: int | None = None,
    keep_sound: bool = False,
    progress: Callable[[], None] | None = None,
) -> PrivacyStatement:
    """As `release_video`, for a setting and a video that was probed."""
    source = AesNoise(Key.fresh() if seed is None else Key.from_seed(seed))
    with naming(info.path):
        plan = bind_clip(setting, shape_of(info), source)
        seeded, _ = spend(source)
        return write_video(
            info,
            out,
            lambda frames: plan.run(frames, source),
            lambda caveats, given: clip_statement(plan, seeded=seeded, caveats=caveats, conditional_on=given),
            keep_sound=keep_sound,
            progress=progress,
        )


def write_video(
    info: VideoInfo,
    out: Path,
    run: Callable[[Iterator[NDArray[np.uint8]]], Iterator[NDArray[np.uint8]]],
    state: Callable[[tuple[str, ...], tuple[str, ...]], PrivacyStatement],
    *,
    keep_sound: bool = False,
    progress: Callable[[], None] | None = None,
) -> PrivacyStatement:
    """Read a video, run its frames through something, and write the result with its statement beside it.

    Args:
        info: The original.
        out: The new video.
        run: From frames to as many frames.
        state: Makes the statement, from caveats and from what is taken as given.
        keep_sound: Copy the original's sound.
        progress: Called after each frame.

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
    statement = state((DECODED,), (SOUND,) if kept else ())
    # the statement first: a video without one must never stand there
    statement = write_sidecar(out, temporary, statement)
    settle(temporary, out)
    return statement


def release_clip(
    frames: NDArray[np.uint8],
    setting: ClipSetting,
    *,
    seed: int | None = None,
    source: NoiseSource | None = None,
) -> ClipRelease:
    """Release a clip that is held as an array.

    **Guarantee.** As for `release_video`, if the array is released once.

    Args:
        frames: uint8, (T, H, W, C), C = 1 or 3.
        setting: What to release.
        seed: Makes the noise repeatable and takes the guarantee away.
        source: Where the noise comes from; a fresh key from the operating system by default. Any other key, and any
            source but `AesNoise`, takes the guarantee away; a fresh key serves one release.

    Raises:
        DposeError: it is no clip, or the setting does not fit it.
        RuntimeError: the source's key was used for a release before.
    """
    if frames.ndim != 4 or frames.shape[3] not in (1, 3) or 0 in frames.shape or frames.dtype != np.uint8:
        raise DposeError(f"must be uint8, (T, H, W, 1 or 3), not {frames.dtype} {frames.shape}", "frames")
    if seed is not None and source is not None:
        raise DposeError("a seed and a source of noise exclude each other", "seed")
    noise = source or AesNoise(Key.fresh() if seed is None else Key.from_seed(seed))
    plan = bind_clip(setting, ClipShape(*frames.shape), noise)
    seeded, told = spend(noise)
    shown = np.stack(list(plan.run(iter(frames), noise)))
    return ClipRelease(shown, clip_statement(plan, seeded=seeded, caveats=told))


def bind_clip(setting: ClipSetting, shape: ClipShape, source: NoiseSource) -> ClipPlan | DensePlan:
    """The plan for clips of this shape: the mechanism's, or paper mode's.

    Args:
        setting: What to release.
        shape: The clip's sizes.
        source: Of the public choice that a random operator needs.

    Raises:
        DposeError: the setting does not fit the shape.
    """
    if setting.paper:
        return DensePlan.of(setting, shape)
    # published with the clip, and so from a stream that no noise is drawn from
    return ClipPlan.of(setting, shape, source.stream(Purpose.INIT, 0, b"projection").bytes(16).hex())


def shape_of(info: VideoInfo) -> ClipShape:
    """The sizes of a video."""
    return ClipShape(info.frames, info.height, info.width, info.channels)


def find_videos(paths: Sequence[str], out: Path, *, keep_names: bool = False) -> list[tuple[Job, VideoInfo]]:
    """Which videos to release, and where to. Each is opened, so that a broken one is told before the first is released.

    Args:
        paths: Videos, folders (with what is below them; files that are no videos are passed over) and globs.
        out: A folder; for one video also its name.
        keep_names: Give them their originals' names instead of numbers.

    Raises:
        DposeError: nothing is found, a file is no video, two would get one name, or an original would be overwritten.
    """
    jobs = find_jobs(paths, out, keep_names=keep_names, readable=VIDEO_SUFFIXES)
    return [(job, probe(job.source)) for job in jobs]
