"""Videos as units: what a unit is, and which clips of it are its views."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dpose.action.data.sources import Source
from dpose.action.model import ActionConfig
from dpose.errors import DposeError
from dpose.units import MAX_VIEWS, View


@dataclass(frozen=True)
class Video:
    """One video with its labels.

    Attributes:
        name: Unique in its dataset; with "/" between folders.
        source: Its frames.
        action: The number of its class; -1 where there is none.
        attributes: (A,) int8 of what else it tells: 1, 0, or -1 where not known; () where nothing is.
        subject: Who is in it, where known.
    """

    name: str
    source: Source = field(repr=False)
    action: int = -1
    attributes: tuple[int, ...] = ()
    subject: str = ""


@dataclass(frozen=True)
class VideoSet:
    """Videos of one split.

    Attributes:
        videos: In a fixed order.
        actions: The classes' names, by number.
        attributes: The attributes' names.
        notes: What was read and what was left out.
    """

    videos: tuple[Video, ...]
    actions: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.videos)

    def limit(self, count: int) -> VideoSet:
        """At most `count` videos, a fixed choice by name, in the old order.

        Raises:
            DposeError: `count` is below 1.
        """
        if count < 1:
            raise DposeError(f"a limit of {count} leaves nothing", fix="use 1 or more")
        ranked = sorted(self.videos, key=lambda v: hashlib.sha256(v.name.encode()).digest())
        kept = {video.name for video in ranked[:count]}
        return replace(self, videos=tuple(v for v in self.videos if v.name in kept))

    def through(self, change: Callable[[Video], Source]) -> VideoSet:
        """The same videos with other frames: `change` gives each its new source."""
        return replace(self, videos=tuple(replace(v, source=change(v)) for v in self.videos))


class VideoUnits:
    """A set of videos as units of `views` clips each (`dpose.units.CanonicalUnits`).

    A clip is `frames` frames, every `stride`-th; where a video is too short for that the stride shrinks, and the last
    frame is repeated if need be. When loaded, clips begin at random places and are mirrored by chance; canonical clips
    are spread evenly and never mirrored.

    Args:
        videos: Which.
        config: The model's: frames, stride and size of a clip.
        views: Clips of a unit, 1 to `MAX_VIEWS`.
        augment: Whether loading is random.
        labels: "action" or "attributes": what the views' target holds.

    Raises:
        DposeError: `views` is out of range, or a video lacks the labels.
    """

    def __init__(
        self,
        videos: VideoSet,
        config: ActionConfig,
        *,
        views: int = 1,
        augment: bool = False,
        labels: str = "action",
    ) -> None:
        if not 1 <= views <= MAX_VIEWS:
            raise DposeError(f"a video has 1 to {MAX_VIEWS} clips, not {views}", f"--views {views}")
        for video in videos.videos:
            if video.action < 0 if labels == "action" else not video.attributes:
                raise DposeError(f"has no {labels} labels", video.name)
        self.videos, self.config, self.views, self.augment, self.labels = (
            videos,
            config,
            views,
            augment,
            labels,
        )
        self.report = list(videos.notes)

    @property
    def most_views(self) -> int:
        """Clips of a unit: the same for all."""
        return self.views

    def __len__(self) -> int:
        return len(self.videos)

    def unit_id(self, index: int) -> str:
        """The video's name."""
        return self.videos.videos[index].name

    def content_hashes(self, index: int) -> tuple[str, ...]:
        """Of the video."""
        return (self.videos.videos[index].source.digest(),)

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """`views` clips: at random where units are augmented, else the canonical ones."""
        if not self.augment:
            return self.canonical(index)
        span, stride = self._span(index)
        free = self.videos.videos[index].source.count() - span
        clips = self._read(index, [int(rng.integers(free + 1)) for _ in range(self.views)], stride)
        return [self.augmented(clip, rng) for clip in clips]

    def canonical(self, index: int) -> list[View]:
        """`views` clips spread evenly: one is in the middle."""
        span, stride = self._span(index)
        free = self.videos.videos[index].source.count() - span
        starts = [round(free * (v + 1) / (self.views + 1)) for v in range(self.views)]
        if self.views > 1:
            starts = [round(free * v / (self.views - 1)) for v in range(self.views)]
        return self._read(index, starts, stride)

    def augmented(self, view: View, rng: np.random.Generator) -> View:
        """A clip, or its mirror image."""
        if rng.random() < 0.5:
            return view
        return View(np.ascontiguousarray(view.image[:, :, ::-1]), view.target, view.weight)

    def _span(self, index: int) -> tuple[int, int]:
        """How many frames of the video a clip covers, and every how manieth it takes."""
        count, frames = self.videos.videos[index].source.count(), self.config.frames
        stride = max(1, min(self.config.stride, (count - 1) // max(1, frames - 1)))
        return min(count, (frames - 1) * stride + 1), stride

    def _read(self, index: int, starts: Sequence[int], stride: int) -> list[View]:
        video = self.videos.videos[index]
        last = video.source.count() - 1
        picks = [[min(s + stride * i, last) for i in range(self.config.frames)] for s in starts]
        needed = sorted({n for clip in picks for n in clip})
        frames = video.source.read(needed, self.config.input_size)
        place = {number: i for i, number in enumerate(needed)}
        return [View(frames[[place[n] for n in clip]], self._target(video)) for clip in picks]

    def _target(self, video: Video) -> dict[str, NDArray[np.int64]]:
        value = video.action if self.labels == "action" else video.attributes
        return {self.labels: np.asarray(value, np.int64)}
