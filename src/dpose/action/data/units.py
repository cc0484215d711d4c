"""Videos as units: the clips of a video are its views."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dpose.action.data.sources import VideoSource
from dpose.action.model import ActionConfig
from dpose.errors import DposeError
from dpose.known_sets import NO_NAMES, SetNames
from dpose.media.fingerprint import fingerprint
from dpose.privacy.selection import Selection
from dpose.units import MAX_VIEWS, Unit, View

PRINTED = 5
"""Number of frames of a video that are compared with those of others."""
FLAT = 3.0
"""Least standard deviation, in gray levels, of a frame that is compared."""
PRINT_SIZE = (120, 160)
"""(H, W) of compared frames; a fingerprint uses 32 x 32 points."""


@dataclass(frozen=True)
class Video:
    """One video with its labels.

    Attributes:
        name: Unique in its dataset; with "/" between folders.
        source: Source of its frames.
        action: The number of its class; -1 for none.
        attributes: (A,) int8 attributes: 1, 0, or -1 for unknown; () if none are labelled.
        subject: Identity of the person in it, if known.
    """

    name: str
    source: VideoSource = field(repr=False)
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
        notes: Lines on what was read and what was left out.
        selection: How the videos were selected; None for all.
        set_names: Public sets to which they belong.
    """

    videos: tuple[Video, ...]
    actions: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    selection: Selection | None = None
    set_names: SetNames = NO_NAMES

    def __len__(self) -> int:
        return len(self.videos)

    def limit(self, selection: Selection) -> VideoSet:
        """Return at most so many videos, chosen by name (`Selection.chosen`), in the old order."""
        chosen = selection.chosen([video.name for video in self.videos])
        if selection.nominal is None and len(chosen) == len(self):
            return self
        return replace(self, videos=tuple(self.videos[i] for i in chosen), selection=selection)

    def through(self, change: Callable[[Video], VideoSource]) -> VideoSet:
        """Return the same videos with other frames: `change` returns each video's new source."""
        return replace(self, videos=tuple(replace(v, source=change(v)) for v in self.videos))


class VideoUnits:
    """A set of videos as units of `views` clips each (`dpose.units.CanonicalUnits`).

    A clip is `frames` frames, every `stride`-th; in a video too short for that the stride shrinks, and the last
    frame is repeated if need be. When loaded, clips begin at random places and are mirrored by chance; canonical clips
    are spread evenly and never mirrored.

    Args:
        videos: The videos.
        config: The model's: frames, stride and size of a clip.
        views: Clips of a unit, 1 to `MAX_VIEWS`.
        augment: True for random loading.
        labels: Content of the views' target, "action" or "attributes".
    """

    unit = Unit.VIDEO

    def __init__(
        self, videos: VideoSet, config: ActionConfig, *, views: int = 1, augment: bool = False, labels: str = "action"
    ) -> None:
        if not 1 <= views <= MAX_VIEWS:
            raise DposeError(
                "views-out-of-range", f"a video has 1 to {MAX_VIEWS} clips, not {views}", f"data.views={views}"
            )
        for video in videos.videos:
            if video.action < 0 if labels == "action" else not video.attributes:
                raise DposeError("labels-missing", f"has no {labels} labels", video.name)
        self.videos, self.config, self.views, self.augment, self.labels = (videos, config, views, augment, labels)
        self.report = list(videos.notes)
        self.selection, self.set_names = videos.selection, videos.set_names

    @property
    def most_views(self) -> int:
        """Number of clips of a unit: the same for all."""
        return self.views

    def __len__(self) -> int:
        return len(self.videos)

    def unit_id(self, index: int) -> str:
        """Return the video's name."""
        return self.videos.videos[index].name

    def content_hashes(self, index: int) -> tuple[str, ...]:
        """Return a digest of the decoded video."""
        return (self.videos.videos[index].source.digest(),)

    def file_hashes(self, index: int) -> tuple[str, ...]:
        """Return digests of the file, of the decoded frames together and of each: the account adds up all uses."""
        return self.videos.videos[index].source.hashes()

    def label_digest(self, index: int) -> str:
        """Return a digest of the video's labels."""
        video = self.videos.videos[index]
        return hashlib.sha256(f"{self.labels} {video.action} {video.attributes}".encode()).hexdigest()

    def fingerprints(self, index: int) -> NDArray[np.uint8]:
        """Return `dpose.media.fingerprint` of `PRINTED` frames spread evenly, (frames, 16).

        Frames of one shade are left out: black frames identify no video.
        """
        source = self.videos.videos[index].source
        count = source.count()
        picks = sorted({(2 * i + 1) * count // (2 * PRINTED) for i in range(PRINTED)})
        distinct = [frame for frame in source.read(picks, PRINT_SIZE) if frame.std() > FLAT]
        return np.stack([fingerprint(frame) for frame in distinct]) if distinct else np.zeros((0, 16), np.uint8)

    def subjects(self, index: int) -> tuple[str, ...]:
        """Return the person in the video, if known."""
        subject = self.videos.videos[index].subject
        return (subject,) if subject else ()

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """Load `views` clips: random ones if units are augmented, else the canonical ones."""
        if not self.augment:
            return self.canonical(index)
        span, stride = self._span(index)
        free = self.videos.videos[index].source.count() - span
        clips = self._read(index, [int(rng.integers(free + 1)) for _ in range(self.views)], stride)
        return [self.augmented(clip, rng) for clip in clips]

    def canonical(self, index: int) -> list[View]:
        """Load `views` clips spread evenly: a single one is in the middle."""
        span, stride = self._span(index)
        free = self.videos.videos[index].source.count() - span
        starts = [round(free * (v + 1) / (self.views + 1)) for v in range(self.views)]
        if self.views > 1:
            starts = [round(free * v / (self.views - 1)) for v in range(self.views)]
        return self._read(index, starts, stride)

    def augmented(self, view: View, rng: np.random.Generator) -> View:
        """Return a clip, or its mirror image."""
        if rng.random() < 0.5:
            return view
        return View(np.ascontiguousarray(view.image[:, :, ::-1]), view.target, view.weight)

    def _span(self, index: int) -> tuple[int, int]:
        """Return the number of frames that a clip covers, and the step between its frames."""
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
