"""`dpose predict` on pictures, folders, globs and video: drawn files out, and one JSON file of joints."""

from __future__ import annotations

import glob
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from dpose.errors import DposeError
from dpose.files import write_atomic
from dpose.media.images import IMAGE_SUFFIXES, read_image, write_image
from dpose.media.video import VIDEO_SUFFIXES, VideoReader
from dpose.media.video_writer import WRITABLE, video_file
from dpose.pose.boxes import Boxes
from dpose.pose.crops import whole_frame
from dpose.pose.data.detections import Box
from dpose.pose.data.problems import count_problems
from dpose.pose.data.yolo import write_yolo
from dpose.pose.export import run_by_onnx
from dpose.pose.model import PoseModel
from dpose.pose.oks import person_score
from dpose.pose.predict import Pose, draw_prediction, for_prediction, predict_frames
from dpose.pose.skeletons import SKELETONS, Skeleton
from dpose.runs.label_studio import label_studio_tasks
from dpose.runs.tasks import on_device

ANIMATED = (*VIDEO_SUFFIXES, ".gif")
"""What is drawn frame by frame."""
FRAMES, MOST_BYTES = 16, 256 << 20
"""Frames of a video that are predicted at once, and the memory that they may take."""
MANY_FRAMES = 5000
"""Of a video with so many ONNX Runtime predicts, where it is installed: below, an export takes longer than it gains."""


@dataclass
class Annotated:
    """What was made of some files.

    Attributes:
        pictures: Pictures drawn.
        videos: Videos drawn.
        frames: Frames in them.
        people: People predicted, over all pictures and frames.
        problems: A line for every file that was skipped or is not whole.
        document: The COCO-style JSON.
    """

    pictures: int = 0
    videos: int = 0
    frames: int = 0
    people: int = 0
    problems: list[str] = field(default_factory=list)
    document: dict[str, Any] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """What to tell at the end."""
        made = [_many(self.pictures, "picture")] if self.pictures else []
        made += [f"{_many(self.videos, 'video')} of {_many(self.frames, 'frame')}"] if self.videos else []
        people = "1 person" if self.people == 1 else f"{self.people:,} people"
        told = [f"{' and '.join(made) or 'Nothing'} drawn, {people}"]
        if self.problems:
            told += [*self.problems, count_problems(len(self.problems))]
        return told


def _many(count: int, of: str) -> str:
    return f"{count:,} {of}{'' if count == 1 else 's'}"


def find_files(sources: Sequence[str]) -> list[tuple[Path, Path]]:
    """The picture and video files that some sources name, each with its path relative to what named it.

    A source is a file, a folder (everything readable in it, below it too) or a glob. Files keep the order of the
    sources and are sorted within one.

    Raises:
        DposeError: a source names nothing.
    """
    found: dict[Path, Path] = {}
    for source in sources:
        path = Path(source).expanduser()
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in (*IMAGE_SUFFIXES, *ANIMATED))
            if not inside:
                raise DposeError("holds no picture and no video", source)
            for p in inside:
                found.setdefault(p, p.relative_to(path))
        elif path.is_file():
            found.setdefault(path, Path(path.name))
        else:
            matches = [Path(p) for p in sorted(glob.glob(str(path), recursive=True)) if Path(p).is_file()]
            if not matches:
                raise DposeError("no such file or folder, and nothing matches it", source)
            for p in matches:
                found.setdefault(p, Path(p.name))
    return list(found.items())


def annotate(
    model: PoseModel,
    files: Sequence[tuple[Path, Path]],
    out: Path | None,
    boxes: Boxes,
    *,
    results: Path | None = None,
    yolo: Path | None = None,
    label_studio: Path | None = None,
    flip_test: bool = False,
    threshold: float = 0.0,
    console: Console,
) -> Annotated:
    """Draw what a model finds in pictures and videos.

    A file that cannot be read is told and skipped; if none can be, that is an error. A drawn video has the
    frames, times and length of the one it was drawn from, and no sound.

    Args:
        model: On its device.
        files: As `find_files` gives them.
        out: The drawn file where there is one source and this has a suffix, else a folder. Where None, "NAME-pose"
            beside the one source.
        boxes: Where people are.
        results: A COCO-style JSON file to write: images (a frame is one too), annotations with keypoints (x, y, score),
            score and box, and categories with the joints' names.
        yolo: A folder to write YOLO-pose labels into (`dpose.pose.data.yolo.write_yolo`), as of its training split.
        label_studio: A JSON file of Label Studio's tasks to write (`dpose.runs.label_studio`).
        flip_test: Average with the mirrored crop.
        threshold: Joints with a lower score are not drawn.
        console: Where progress goes.

    Raises:
        DposeError: several files and no `out`, or `out` is a source; not one file could be read; or a file cannot be
            written.
    """
    skeleton = SKELETONS[model.config.skeleton]
    work = _Work(model, skeleton, boxes, flip_test, threshold)
    done = work.done
    targets = _targets(files, out)
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("predicting", total=len(files))
        for (path, _), target in zip(files, targets, strict=True):
            try:
                if path.suffix.lower() in ANIMATED:
                    work.video(
                        path, target, lambda n, of: bar.update(task, description=f"frame {n} of {of or '?'}")
                    )
                else:
                    work.picture(path, target)
            except DposeError as error:
                if len(files) == 1:
                    raise
                done.problems.append(f"skipped: {error.line()}")
            bar.advance(task)
    if not done.pictures and not done.videos:
        raise DposeError(f"not one of {len(files):,} files could be used; {done.problems[0]}")
    if results is not None:
        write_atomic(results, json.dumps(done.document, allow_nan=False) + "\n")
    if yolo is not None:
        write_yolo(yolo, done.document, skeleton, "train")
    if label_studio is not None:
        tasks = label_studio_tasks(done.document, f"dpose {model.config.preset}")
        write_atomic(label_studio, json.dumps(tasks, allow_nan=False) + "\n")
    return done


def _targets(files: Sequence[tuple[Path, Path]], out: Path | None) -> list[Path]:
    """Where each drawn file goes; two never go to one place."""
    if len(files) > 1 and out is None:
        raise DposeError(f"{len(files):,} files are to be drawn", fix="give a folder with --out")
    if len(files) == 1 and out is not None and out.suffix and not out.is_dir():
        if out.resolve() == files[0][0].resolve():
            raise DposeError("the drawn file would replace its source", str(out), "choose another --out")
        return [out]
    targets: list[Path] = []
    for path, relative in files:
        video = path.suffix.lower() in ANIMATED
        kept = path.suffix.lower() in (tuple(WRITABLE) if video else (".jpg", ".jpeg", ".png"))
        name = f"{path.stem}-pose{path.suffix if kept else '.mp4' if video else '.png'}"
        folder = path.parent if out is None else out / relative.parent
        target, count = folder / name, 1
        while target in targets:
            count += 1
            target = folder / f"{Path(name).stem}-{count}{Path(name).suffix}"
        targets.append(target)
    return targets


@dataclass(frozen=True)
class _Frame:
    """A picture, or a frame of a video with its number and time."""

    number: int
    image: NDArray[np.uint8]
    facts: dict[str, Any]
    time: Fraction = Fraction(0)


class _Work:
    """Predicts, draws and collects, picture by picture."""

    def __init__(
        self, model: PoseModel, skeleton: Skeleton, boxes: Boxes, flip_test: bool, threshold: float
    ) -> None:
        self.model = cast(PoseModel, on_device(for_prediction(model)))
        self.skeleton, self.boxes = skeleton, boxes
        self.flip_test, self.threshold = flip_test, threshold
        self._exported: PoseModel | None = None
        self._taken: set[int] = set()
        self._next = 1
        category = {
            "id": 1,
            "name": "person",
            "keypoints": list(skeleton.joints),
            "skeleton": [[a + 1, b + 1] for a, b in skeleton.edges],
        }
        self.done = Annotated(document={"images": [], "annotations": [], "categories": [category]})

    def picture(self, path: Path, target: Path) -> None:
        (drawn,) = self._drawn(path, [_Frame(-1, read_image(path), {})])
        write_image(target, drawn)
        self.done.pictures += 1

    def video(self, path: Path, target: Path, shown: Callable[[int, int], None]) -> None:
        reader = VideoReader(path)
        info = reader.info
        at_once = max(1, min(FRAMES, MOST_BYTES // (3 * info.width * info.height)))
        numbered = enumerate(reader)
        with video_file(target, info, pad=True) as writer:
            while frames := [
                _Frame(number, image, {"frame": number, "time": float(time)}, time)
                for number, (image, time) in itertools.islice(numbered, at_once)
            ]:
                if (
                    info.frames >= MANY_FRAMES
                    and self._exported is None
                    and self.model.mean.device.type == "cpu"
                ):
                    self._exported = run_by_onnx(self.model, [frame.image for frame in frames]) or self.model
                    self.model = self._exported
                for frame, drawn in zip(frames, self._drawn(path, frames), strict=True):
                    writer.add(drawn, round(frame.time / info.time_base))
                shown(frames[-1].number + 1, info.frames)
        self.done.videos += 1
        self.done.frames += reader.read
        if not reader.whole:
            of = f" of {info.frames:,}" if info.frames else ""
            self.done.problems.append(f"not whole: {path}: {reader.read:,}{of} frames could be read")

    def _drawn(self, path: Path, frames: Sequence[_Frame]) -> list[NDArray[np.uint8]]:
        where = [self.boxes(path.name, frame.number, frame.image) for frame in frames]
        corners = [None if found is None else [box.corners for box in found] for found in where]
        images = [frame.image for frame in frames]
        predicted = predict_frames(self.model, images, corners, flip_test=self.flip_test)
        drawn = []
        for frame, image, found, people in zip(frames, images, where, predicted, strict=True):
            size = cast(tuple[int, int], image.shape[:2])
            boxes = [Box(whole_frame(size).astype(np.float64), 1.0)] if found is None else found
            self._collect(path, size, frame.facts, list(zip(people, boxes, strict=True)))
            for person in people:
                image = draw_prediction(image, person, self.skeleton, self.threshold)
            drawn.append(image)
        return drawn

    def _collect(
        self, path: Path, size: tuple[int, int], facts: dict[str, Any], people: list[tuple[Pose, Box]]
    ) -> None:
        document = self.done.document
        # a picture called by a number keeps it, as COCO's are; all others get the next that is free
        number = int(path.stem) if path.stem.isdecimal() and not facts else self._next
        while number in self._taken:
            self._next += 1
            number = self._next
        self._taken.add(number)
        document["images"].append(
            {"id": number, "file_name": path.name, "height": size[0], "width": size[1], **facts}
        )
        for person, box in people:
            x0, y0, x1, y1 = (float(v) for v in box.corners)
            document["annotations"].append(
                {
                    "id": len(document["annotations"]) + 1,
                    "image_id": number,
                    "category_id": 1,
                    "keypoints": np.column_stack([person.keypoints, person.scores]).round(3).ravel().tolist(),
                    "score": float(person_score([box.score], [person.scores])[0]),
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                }
            )
        self.done.people += len(people)


def names_several(sources: Sequence[str]) -> bool:
    """Whether sources may name more than one picture, or a video."""
    paths = [Path(s).expanduser() for s in sources]
    return len(paths) != 1 or not paths[0].is_file() or paths[0].suffix.lower() in ANIMATED
