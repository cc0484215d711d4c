"""People of pictures and videos, found, followed, drawn and collected.

The people found in pictures and frames, in COCO's fields and with the requested joints.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path, PurePath
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.media.drawing import draw_number, draw_skeleton
from dpose.media.images import picture_header, picture_notes, read_image, write_image
from dpose.media.kinds import named
from dpose.media.video import VideoReader
from dpose.media.video_writer import video_file
from dpose.pose.boxes import Boxes
from dpose.pose.crops import Box
from dpose.pose.data.label_files import count_problems
from dpose.pose.people import FoundPerson, FramesFinder, PeopleFinder, hide_faces
from dpose.pose.predict import Pose
from dpose.pose.skeletons import COCO, OWN, SKELETONS, JointMap, Skeleton, check_skeleton, joint_map
from dpose.pose.tracks import Smoother, Tracker

ROOM = 0.08
"""Share of the sides of the box around somebody's joints: how much wider it is on each side. It is then
likest to the boxes that people draw (of eight people in COCO's pictures 0.77 of the union is common, without 0.68)."""


@dataclass(frozen=True)
class Found:
    """One person of a picture or frame, ready to be drawn and written.

    Attributes:
        pose: Joints of the requested skeleton; nan, with score 0, where the finder has no such joint.
        score: In [0, 1], of the person.
        box: (4,), x0, y0, x1, y1 around the person, pixels.
        track: The person's number in a video; None in a picture.
    """

    pose: Pose
    score: float
    box: NDArray[np.float64]
    track: int | None = None


def requested_joints(own: Skeleton, name: str | None = None) -> JointMap:
    """The map from a finder's joints to those that are drawn and written.

    Args:
        own: The finder's.
        name: A built-in skeleton's, or "own". Where None: COCO's if the finder has all of its joints, else its own.
    """
    if name is None:
        to_coco = joint_map(own, COCO, predicted=True)
        return joint_map(own, own) if to_coco.missing else to_coco
    check_skeleton(name)
    way = joint_map(own, own if name == OWN else SKELETONS[name], predicted=True)
    if len(way.missing) == len(way.target):
        raise DposeError(
            "model-joints-missing",
            f"the model finds none of these joints ({', '.join(own.joints[:4])}, ...)",
            f"--skeleton {name}",
            f"give {OWN}",
        )
    return way


def mapped(pose: Pose, way: JointMap) -> Pose:
    """A finder's joints as those of the requested skeleton; scores are held to [0, 1]."""
    return Pose(way.points(pose.keypoints), np.clip(np.nan_to_num(way.values(pose.scores)), 0, 1))


def person_box(pose: Pose, size: tuple[int, int], given: Box | None, region: Box) -> NDArray[np.float64]:
    """A person's box, (4,): the one that was given, else one around the joints, as far as it lies in the picture.

    Args:
        pose: All joints of the finder.
        size: (H, W) of the picture.
        given: Where the person was looked for, if somebody said so.
        region: Where the joints were read from, for people without a joint in the picture.
    """
    if given is not None:
        return np.asarray(given.corners, np.float64)
    edge = np.array([size[1], size[0]], np.float64)
    points = pose.keypoints[np.isfinite(pose.keypoints).all(axis=1)]
    if len(points):
        low, high = points.min(axis=0), points.max(axis=0)
        room = ROOM * (high - low)
        low, high = np.clip(low - room, 0, edge), np.clip(high + room, 0, edge)
        if (high > low).all():
            return np.concatenate([low, high])
    return np.clip(np.asarray(region.corners, np.float64), 0, np.tile(edge, 2))


class Document:
    """COCO's form of what was found: images (a frame is one, too), annotations, and one category.

    Attributes:
        values: Ready for JSON.

    Args:
        way: From the finder's joints to those that are written; derived ones are listed in the category.
    """

    def __init__(self, way: JointMap) -> None:
        skeleton = way.target
        category: dict[str, Any] = {
            "id": 1,
            "name": "person",
            "keypoints": list(skeleton.joints),
            "skeleton": [[a + 1, b + 1] for a, b in skeleton.edges],
        }
        if way.derived:
            category["derived"] = [skeleton.joints[t] for t in sorted(t for t, _ in way.derived)]
        if way.missing:
            category["missing"] = [skeleton.joints[t] for t in way.missing]
        self.values: dict[str, Any] = {"images": [], "annotations": [], "categories": [category]}
        self._taken: set[int] = set()
        self._next = 1

    def add(self, name: PurePath, size: tuple[int, int], facts: Mapping[str, Any], people: Sequence[Found]) -> None:
        """Add a picture or frame and its people.

        Args:
            name: Of the picture or video, below what the command named.
            size: (H, W), pixels.
            facts: Of a frame: its number and time; empty for a picture.
            people: In it; may be none.
        """
        # a picture called by a number keeps it, as COCO's are; all others get the next that is free
        number = int(name.stem) if name.stem.isdecimal() and not facts else self._next
        while number in self._taken:
            self._next += 1
            number = self._next
        self._taken.add(number)
        self.values["images"].append(
            {"id": number, "file_name": name.as_posix(), "height": size[0], "width": size[1], **facts}
        )
        annotations = self.values["annotations"]
        for person in people:
            x0, y0, x1, y1 = (round(float(v), 3) for v in person.box)
            points = np.column_stack([person.pose.keypoints, person.pose.scores])
            there = np.asarray(np.isfinite(points).all(axis=1))
            annotation = {
                "id": len(annotations) + 1,
                "image_id": number,
                "category_id": 1,
                "keypoints": np.where(there[:, None], points, 0.0).round(3).ravel().tolist(),
                "num_keypoints": int((there & (person.pose.scores > 0)).sum()),
                "score": float(np.clip(person.score, 0, 1)),
                "bbox": [x0, y0, round(x1 - x0, 3), round(y1 - y0, 3)],
                "area": round((x1 - x0) * (y1 - y0), 3),
                "iscrowd": 0,
                "segmentation": [],
            }
            if person.track is not None:
                annotation["track_id"] = person.track
            annotations.append(annotation)


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
        skeleton: Of the joints that are drawn and written (`dpose.runs.drawn_people.requested_joints`).
        smooth: Smooth the joints of videos (`dpose.pose.tracks`).
    """

    threshold: float = 0.0
    blank: bool = False
    hide_faces: bool = False
    skeleton: str | None = None
    smooth: bool = False


@dataclass
class Annotated:
    """What was made of some files.

    Attributes:
        pictures: Pictures drawn.
        videos: Videos drawn.
        frames: Frames in them.
        people: People found, over all pictures; in a video everybody who has a number is one.
        empty: Pictures and videos in which no person was found.
        place: The file that was drawn, or the folder of several.
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
    empty: list[Path] = field(default_factory=list)
    place: str = ""
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
        into = f" into {self.place}" if self.place else ""
        lines = [f"{drawn} drawn{into}, {people}"]
        if not self.people:
            lines = [f"No people were found: {drawn} {'are' if several else 'is'} written{into} undrawn"]
        elif self.empty:
            lines.append(f"no people were found in {len(self.empty):,}: {named(list(map(str, self.empty)))}")
        if self.look.smooth and not self.videos:
            lines.append("nothing was smoothed: --smooth is for videos")
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
        boxes: Where people are.
        look: How they are drawn.
    """

    def __init__(self, finder: PeopleFinder, boxes: Boxes, look: Look) -> None:
        self.finder, self.boxes, self.look = finder, boxes, look
        self.way: JointMap = requested_joints(finder.skeleton, look.skeleton)
        self._document = Document(self.way)
        self.done = Annotated(look=look, document=self._document.values)

    def picture(self, path: Path, name: PurePath, target: Path) -> None:
        """Find the people of a picture, which is written down as `name`, and draw them into `target`."""
        image = read_image(path)
        self.done.notes += [f"{path}: {note}" for note in picture_notes(picture_header(path))]
        _check_size(path, image.shape[1], image.shape[0])
        frame = _Frame(-1, image, {})
        (seen,) = self._found(path, [frame], None)
        write_image(target, self._drawn(name, seen, None))
        self.done.pictures += 1
        self.done.people += len(seen.people)
        self.done.empty += [] if seen.people else [path]

    def video(self, path: Path, name: PurePath, target: Path, shown: Callable[[int, int], None]) -> None:
        """Find and follow the people of a video and draw them into `target`, as far as it can be read.

        Args:
            path: The video.
            name: What it is written down as.
            target: The drawn one.
            shown: Called with the number of frames that are done, and of all, 0 where it is not known.
        """
        reader = VideoReader(path)
        info = reader.info
        self.done.notes += [f"{path}: {note}" for note in info.notes]
        _check_size(path, info.width, info.height)
        at_once = max(1, min(FRAMES, MOST_BYTES // (3 * info.width * info.height)))
        numbered = enumerate(reader)
        film = _Film(self.finder.skeleton, self.look.smooth, info.frames)
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
        self.done.empty += [] if film.numbers else [path]
        if not reader.whole:
            of = f" of {info.frames:,}" if info.frames else ""
            self.done.problems.append(f"not whole: {path}: {reader.read:,}{of} frames could be read")

    def _found(self, path: Path, frames: Sequence[_Frame], film: _Film | None) -> list[_Seen]:
        """Where people were looked for in each frame, who was found, and their numbers."""
        where = [self.boxes(path, frame.number, frame.image) for frame in frames]
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
        size = cast("tuple[int, int]", frame.image.shape[:2])
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
            if self.look.smooth:
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
            image, pose.keypoints, pose.scores, skeleton.edges, skeleton.colours, thickness, self.look.threshold
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
