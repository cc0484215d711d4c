"""People of pictures and videos, found, followed, drawn and collected."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path, PurePath
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.media.drawing import draw_number, draw_skeleton
from dpose.media.images import picture_header, picture_notes, read_image, write_image
from dpose.media.video import VideoReader
from dpose.media.video_writer import video_file
from dpose.pose.boxes import Boxes
from dpose.pose.crops import Box
from dpose.pose.data.label_files import count_problems
from dpose.pose.people import FoundPerson, FramesFinder, PeopleFinder, hide_faces
from dpose.pose.predict import Pose
from dpose.pose.skeletons import JointMap, Skeleton
from dpose.pose.tracks import Smoother, Tracker
from dpose.runs.found_people import Document, Found, mapped, person_box

FRAMES, MOST_BYTES = 16, 256 << 20
"""Frames of a video that are predicted at once, and the memory that they may take."""
LEAST_SIDE = 24
"""Pixels; nothing is looked for in smaller pictures."""
GROUND = 255
"""Grey value of the canvas without the picture."""
GAIT = "Skeletons alone: a way of walking can identify a person, and nothing is guaranteed"


@dataclass(frozen=True)
class Look:
    """How what was found is drawn.

    Attributes:
        threshold: Joints with a lower score are not drawn.
        blank: Whether the skeletons are drawn alone, without the picture.
        hide_faces: Whether the face of everybody who was found is filled (`dpose.pose.people`).
    """

    threshold: float = 0.0
    blank: bool = False
    hide_faces: bool = False


@dataclass
class Annotated:
    """What was made of some files.

    Attributes:
        pictures: Pictures drawn.
        videos: Videos drawn.
        frames: Frames in them.
        people: People found, over all pictures; in a video everybody who has a number is one.
        faces: Faces hidden, over all pictures and frames.
        notes: What of a file was left out or changed.
        problems: A line for every file that was skipped or is not whole.
        look: How they were drawn.
        document: The COCO-style JSON.
    """

    pictures: int = 0
    videos: int = 0
    frames: int = 0
    people: int = 0
    faces: int = 0
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    look: Look = field(default_factory=Look)
    document: dict[str, Any] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """What to tell at the end."""
        made = [_many(self.pictures, "picture")] if self.pictures else []
        made += [f"{_many(self.videos, 'video')} of {_many(self.frames, 'frame')}"] if self.videos else []
        people = "1 person" if self.people == 1 else f"{self.people:,} people"
        several = self.pictures + self.videos > 1
        drawn = " and ".join(made)
        lines = [f"{drawn} drawn, {people}"]
        if not self.people:
            lines = [f"No people were found: {drawn} {'are' if several else 'is'} written undrawn"]
        if self.look.hide_faces:
            lines.append(
                f"{_many(self.faces, 'face')} hidden in {people}; people who were not found keep their faces, and "
                "bodies, clothes and places are always shown: nothing is guaranteed"
            )
        if self.look.blank:
            lines.append(GAIT)
        lines += self.notes
        if self.problems:
            lines += [*self.problems, count_problems(len(self.problems))]
        return lines


def _many(count: int, of: str) -> str:
    return f"{count:,} {of}{'' if count == 1 else 's'}"


@dataclass(frozen=True)
class _Frame:
    """A picture, or a frame of a video with its number and time."""

    number: int
    image: NDArray[np.uint8]
    facts: dict[str, Any]
    time: Fraction = Fraction(0)


@dataclass(frozen=True)
class _Seen:
    """A frame, where people were looked for, who was found, and their numbers in a video."""

    frame: _Frame
    where: Sequence[Box] | None
    people: Sequence[FoundPerson]
    tracks: Sequence[int | None]


class _Film:
    """What is kept from one frame of a video to the next."""

    def __init__(self, skeleton: Skeleton, smooth: bool, frames: int) -> None:
        self.tracker = Tracker(skeleton)
        self.smoother = Smoother() if smooth else None
        self.frames = frames
        self.numbers: set[int] = set()


class DrawnPeople:
    """Finds, draws and collects, picture by picture.

    Attributes:
        done: What was made so far.
        way: From the finder's joints to those drawn and written.

    Args:
        finder: Of people and their joints.
        way: See above.
        boxes: Where people are.
        look: How they are drawn.
        smooth: Smooth the joints of videos.
    """

    def __init__(self, finder: PeopleFinder, way: JointMap, boxes: Boxes, look: Look, smooth: bool) -> None:
        self.finder, self.way, self.boxes, self.look, self.smooth = finder, way, boxes, look, smooth
        self._document = Document(way)
        self.done = Annotated(look=look, document=self._document.values)

    def picture(self, path: Path, name: PurePath, target: Path) -> None:
        """Find the people of a picture, which is written down as `name`, and draw them into `target`.

        Raises:
            DposeError: it cannot be read, is too small, or `target` cannot be written.
        """
        image = read_image(path)
        self.done.notes += [f"{path}: {note}" for note in picture_notes(picture_header(path))]
        _check_size(path, image.shape[1], image.shape[0])
        frame = _Frame(-1, image, {})
        (seen,) = self._found(path, [frame], None)
        write_image(target, self._drawn(name, seen, None))
        self.done.pictures += 1
        self.done.people += len(seen.people)

    def video(self, path: Path, name: PurePath, target: Path, shown: Callable[[int, int], None]) -> None:
        """Find and follow the people of a video and draw them into `target`, as far as it can be read.

        Args:
            path: The video.
            name: What it is written down as.
            target: The drawn one.
            shown: Called with the number of frames that are done, and of all, 0 where it is not known.

        Raises:
            DposeError: as `picture`.
        """
        reader = VideoReader(path)
        info = reader.info
        self.done.notes += [f"{path}: {note}" for note in info.notes]
        _check_size(path, info.width, info.height)
        at_once = max(1, min(FRAMES, MOST_BYTES // (3 * info.width * info.height)))
        numbered = enumerate(reader)
        film = _Film(self.finder.skeleton, self.smooth, info.frames)
        with video_file(target, info) as writer:
            while frames := [
                _Frame(number, image, {"frame": number, "time": float(time)}, time)
                for number, (image, time) in itertools.islice(numbered, at_once)
            ]:
                for seen in self._found(path, frames, film):
                    writer.add(self._drawn(name, seen, film), round(seen.frame.time / info.time_base))
                shown(frames[-1].number + 1, info.frames)
        self.done.videos += 1
        self.done.frames += reader.read
        self.done.people += len(film.numbers)
        if not reader.whole:
            of = f" of {info.frames:,}" if info.frames else ""
            self.done.problems.append(f"not whole: {path}: {reader.read:,}{of} frames could be read")

    def _found(self, path: Path, frames: Sequence[_Frame], film: _Film | None) -> list[_Seen]:
        """Where people were looked for in each frame, who was found, and their numbers."""
        where = [self.boxes(path.name, frame.number, frame.image) for frame in frames]
        at_once = None
        if isinstance(self.finder, FramesFinder):
            images = [frame.image for frame in frames]
            at_once = self.finder.frames(images, where, film.frames if film else 0)
        seen = []
        for n, (frame, boxes) in enumerate(zip(frames, where, strict=True)):
            followed = film.tracker.followed if film and boxes is None else None
            people = self.finder(frame.image, boxes, followed) if at_once is None else at_once[n]
            tracks: Sequence[int | None] = film.tracker(people) if film else [None] * len(people)
            seen.append(_Seen(frame, boxes, people, tracks))
        return seen

    def _drawn(self, name: PurePath, seen: _Seen, film: _Film | None) -> NDArray[np.uint8]:
        """The frame with its people drawn, who are collected."""
        frame, where, people, tracks = seen.frame, seen.where, seen.people, seen.tracks
        size = cast(tuple[int, int], frame.image.shape[:2])
        poses = [person.pose for person in people]
        if film:
            numbers = [number for number in tracks if number is not None]
            film.numbers.update(numbers)
            if film.smoother:
                smooth, time = film.smoother, float(frame.time)
                poses = [smooth(n, pose, time) for n, pose in zip(numbers, poses, strict=True)]
        given: Sequence[Box | None] = [None] * len(people) if where is None else where
        found = [
            Found(mapped(pose, self.way), person.score, person_box(pose, size, box, person.region), track)
            for person, pose, box, track in zip(people, poses, given, tracks, strict=True)
        ]
        self._document.add(name, size, frame.facts, found)
        image = frame.image
        if self.look.blank:
            image = np.full_like(image, GROUND)
        elif self.look.hide_faces:
            # both as found and as smoothed: a filter lags behind a quick head
            image, hidden = hide_faces(image, poses, self.finder.skeleton)
            if self.smooth:
                image, _ = hide_faces(image, [person.pose for person in people], self.finder.skeleton)
            self.done.faces += hidden
        for person in found:
            image = self._skeleton(image, person.pose)
        for person in found:
            if person.track is not None:
                image = draw_number(image, _above(person), person.track)
        return image

    def _skeleton(self, image: NDArray[np.uint8], pose: Pose) -> NDArray[np.uint8]:
        skeleton, places = self.way.target, pose.keypoints[np.isfinite(pose.keypoints).all(axis=1)]
        size = float(np.hypot(*np.ptp(places, axis=0))) if len(places) else 0.0
        # lines as thick as suits the picture would cover people who are small in it
        thickness = max(1, round(min(min(image.shape[:2]) / 110, size / 40)))
        return draw_skeleton(
            image,
            pose.keypoints,
            pose.scores,
            skeleton.edges,
            skeleton.colours,
            thickness,
            self.look.threshold,
        )


def _above(person: Found) -> tuple[float, float]:
    """Where a person's number is written: above the highest joint, or the box."""
    points = person.pose.keypoints[np.isfinite(person.pose.keypoints).all(axis=1)]
    if not len(points):
        return float(person.box[0]), float(person.box[1])
    x, y = points[points[:, 1].argmin()]
    return float(x), float(y) - 0.06 * float(np.ptp(points[:, 1]))


def _check_size(path: Path, width: int, height: int) -> None:
    if min(width, height) < LEAST_SIDE:
        raise DposeError(
            "picture-too-small",
            f"{width} x {height} pixels are too few to tell joints in",
            str(path),
            f"give at least {LEAST_SIDE} a side",
        )
