"""Rows of the tables: methods of releasing videos or of training, with their guarantees."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.action.data.sources import Held, StillFile, VideoFile, VideoSource
from dpose.action.data.units import Video, VideoSet
from dpose.errors import DposeError
from dpose.media.images import read_image, write_image
from dpose.media.video import probe
from dpose.release.api import release_array
from dpose.release.batch import release_one
from dpose.release.config import PAPER_K, SPLIT, Projection
from dpose.release.grid import Shape
from dpose.release.items import Work
from dpose.release.jobs import Job
from dpose.release.obfuscate import Obfuscator

DELTA = 1e-4
PAPER_VALUES = 320 * 240 * 3
"""Values of a frame in seed 004, which are projected to k = 3,072."""
ROWS_OF_OBFUSCATION = 256
"""Height to which smaller videos are enlarged before obscuring, since kernels are given in pixels."""
NONE = "none"


@dataclass(frozen=True)
class VideoMethod:
    """A row of the tables.

    Attributes:
        key: Name of the row's cells, and of its videos with `--external`.
        title: Name in tables.
        guarantee: The guarantee and its neighbours, in words.
        kind: "raw", "release", "paper", "obscure", "train" (private training on raw videos) or "foreign".
        epsilon: Budget of a release or a training.
        views: Number of clips of a video in its gradient.
        k: For the paper's algorithm, the dimension at 320 x 240.
        split: For the paper's algorithm, b.
        neighbours: Neighbours of a release.
        colour: Colour mode of a release, as in `dpose release-video`.
        restore: Restoration of a release.
    """

    key: str
    title: str
    guarantee: str = NONE
    kind: str = "raw"
    epsilon: float = 0.0
    views: int = 1
    k: int = PAPER_K
    split: float = SPLIT
    neighbours: str = "pixels:16"
    colour: str | None = "rgb"
    restore: str = "none"


def _dprp(epsilon: int, views: int = 1) -> VideoMethod:
    clips = " (3 clips)" if views > 1 else ""
    return VideoMethod(
        f"block-{epsilon}{'-3clips' if views > 1 else ''}",
        f"dpose release-video, block means{clips}, epsilon {epsilon}",
        f"({epsilon}, 1e-4): videos that differ in at most 16 pixels in all",
        "release",
        epsilon,
        views,
    )


def _paper(epsilon: int, k: int = PAPER_K, split: float = SPLIT) -> VideoMethod:
    suffix = ("" if k == PAPER_K else f"-k{k}") + ("" if split == SPLIT else f"-b{split:g}")
    words = ("" if k == PAPER_K else f", k {k:,}") + ("" if split == SPLIT else f", b {split:g}")
    return VideoMethod(
        f"paper-{epsilon}{suffix}",
        f"Video-DPRP as printed, claimed epsilon {epsilon}{words}",
        "none: its claim for one frame does not hold (docs/proofs/video.md)",
        "paper",
        epsilon,
        k=k,
        split=split,
    )


def trained(name: str, title: str, epsilon: int, views: int) -> VideoMethod:
    """Make a row of private training on raw videos, with so many clips of each."""
    return VideoMethod(
        f"{name}-{epsilon}",
        f"{title}, epsilon {epsilon}",
        f"({epsilon}, 1e-4) of the model, not of any video: one training video left out",
        "train",
        epsilon,
        views,
    )


EPSILONS = (2, 5, 8)
DIMENSIONS = (1200, 2304, PAPER_K, 7500, 15360)
SHARES = (0.2, 0.4, 0.5, 0.6, SPLIT)
RAW = VideoMethod("raw", "Raw data (no privacy)")
OBSCURED = {
    "isr-32x24": "ISR 32x24",
    "isr-16x12": "ISR 16x12",
    "face-blur": "Face blurring",
    "blur": "Blur",
    "pixelate": "Pixelation",
}
FOREIGN = {
    "v-sam": "V-SAM",
    "face-anonymizer": "Face Anonymizer",
    "spact": "SPAct",
    "alf": "ALF",
    "deepprivacy": "Deepprivacy",
    "appearance-free": "Appearance free",
    "selective": "Selective privacy",
}
_ALL = (
    *(VideoMethod(key, title, kind="obscure") for key, title in OBSCURED.items()),
    *(VideoMethod(key, title, kind="foreign") for key, title in FOREIGN.items()),
    RAW,
    *(_dprp(e) for e in EPSILONS),
    *(_dprp(e, 3) for e in EPSILONS),
    *(_paper(e) for e in EPSILONS),
    *(_paper(8, k) for k in DIMENSIONS if k != PAPER_K),
    *(_paper(8, split=b) for b in SHARES if b != SPLIT),
    *(trained("dp-sgd", "DP-SGD", e, 1) for e in EPSILONS),
    *(trained("multiclip", "MultiClip-DP (3 clips)", e, 3) for e in EPSILONS),
)
METHODS: Mapping[str, VideoMethod] = {method.key: method for method in _ALL}
"""Rows by key."""


def released_videos(
    videos: VideoSet,
    method: VideoMethod,
    seed: int,
    external: Mapping[str, Path],
    folder: Path,
    *,
    public: bool = False,
) -> VideoSet:
    """Release videos by `method`; each is released once and stored: rendered ones in memory, files as files.

    Args:
        videos: Originals.
        method: Method; kinds "raw" and "train" return the originals.
        seed: Seed of all noise.
        external: Folders of videos that were made elsewhere, by row.
        folder: Folder of released files; existing ones are used again.
        public: True if the videos are public. Releases of public videos are not charged to the account.
    """
    if method.key in external:
        return videos.through(lambda video: _elsewhere(external[method.key], video))
    if method.kind in ("raw", "train"):
        return videos
    if method.kind == "foreign":
        raise DposeError(
            "method-videos-missing",
            "not available: its videos must be made first",
            method.key,
            f"then give --external {method.key}:DIR",
        )
    return videos.through(lambda video: _shown(video, method, _seed_of(video, seed), folder, public=public))


def available(method: VideoMethod, external: Mapping[str, Path]) -> bool:
    """True if `released_videos` can release videos by the method."""
    return method.key in external or method.kind != "foreign"


def parse_external(given: tuple[str, ...]) -> dict[str, Path]:
    """Parse "NAME:DIR" into folders by row."""
    folders: dict[str, Path] = {}
    for text in given:
        name, _, folder = text.partition(":")
        if name not in METHODS or name == RAW.key:
            raise DposeError(
                "row-unknown", f"no row called {name!r}", f"--external {text}", f"known are {', '.join(METHODS)}"
            )
        if name in folders or not Path(folder).is_dir() or not folder:
            raise DposeError("row-folder-malformed", "must name a folder, and each row once", f"--external {text}")
        folders[name] = Path(folder)
    return folders


def _elsewhere(folder: Path, video: Video) -> VideoSource:
    path = folder / video.name
    path = path if path.suffix else path.with_suffix(".mp4")
    if not path.is_file():
        raise DposeError("video-missing", "this video of the method is missing", str(path))
    return VideoFile(path)


def _shown(video: Video, method: VideoMethod, seed: int, folder: Path, *, public: bool) -> VideoSource:
    source = video.source
    if isinstance(source, VideoFile):
        out = folder / Path(video.name).with_suffix(".mp4")
        if not out.exists():
            out.parent.mkdir(parents=True, exist_ok=True)
            info = probe(source.path)
            if method.kind == "obscure":
                work = Work(method=method.key, seed=seed, public=public, again=True)
            else:
                # every method shows every video: each is charged as unbounded
                setting = release_of(method, info.height * info.width * 3)
                work = Work(setting, seed=seed, public=public, again=True)
            release_one(work, Job(source.path, out))
        return VideoFile(out)
    if isinstance(source, StillFile):
        out = folder / Path(video.name).with_suffix(".png")
        if not out.exists():
            write_image(out, _through(source, method, seed, public=public)[0])
        return StillFile(out)
    return Held(partial(_through, source, method, seed, public=public))


def release_of(method: VideoMethod, values: int) -> Projection:
    """Configuration of a release of frames with so many values; the paper's algorithm projects to the same share."""
    epsilon, delta = str(method.epsilon), str(DELTA)
    if method.kind == "paper":
        k = max(3, round(method.k * values / PAPER_VALUES))
        return Projection.of(epsilon, delta, paper=True, k=k, split=method.split)
    return Projection.of(epsilon, delta, method.neighbours, colour=method.colour, restore=method.restore)


def whole_clip(source: VideoSource) -> NDArray[np.uint8]:
    """Return every frame of a source, at its own size."""
    if isinstance(source, Held):
        return source.frames
    if isinstance(source, StillFile):
        return read_image(source.path)[None]
    assert isinstance(source, VideoFile)
    info = probe(source.path)
    return source.read(range(source.count()), (info.height, info.width))


def _through(source: VideoSource, method: VideoMethod, seed: int, *, public: bool) -> NDArray[np.uint8]:
    frames = whole_clip(source)
    if method.kind == "obscure":
        return _obscured(frames, method.key, seed)
    setting = release_of(method, frames[0].size)
    released = release_array(frames, setting, seed=seed, public=public, again=True)
    return np.asarray(released.picture)


def _obscured(frames: NDArray[np.uint8], method: str, seed: int) -> NDArray[np.uint8]:
    count, height, width, channels = frames.shape
    scale = max(1, round(ROWS_OF_OBFUSCATION / height))
    large = (width * scale, height * scale)
    work = Obfuscator(method, Shape(count, large[1], large[0], channels), seed)
    shown = work.run(cv2.resize(f, large, interpolation=cv2.INTER_LINEAR).astype(np.uint8) for f in frames)
    small = [cv2.resize(f, (width, height), interpolation=cv2.INTER_AREA) for f in shown]
    return np.stack(small).astype(np.uint8)


def _seed_of(video: Video, seed: int) -> int:
    digest = hashlib.sha256(f"{seed} {video.name}".encode()).digest()
    return int.from_bytes(digest[:6], "big")
