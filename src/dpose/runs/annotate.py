"""`dpose predict` on pictures, folders, globs and video: drawn files out, and one JSON file of joints."""

from __future__ import annotations

import glob
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from dpose.errors import DposeError
from dpose.files import write_atomic
from dpose.media.images import IMAGE_SUFFIXES
from dpose.media.video import VIDEO_SUFFIXES
from dpose.media.video_writer import WRITABLE
from dpose.pose.boxes import Boxes, whole_picture
from dpose.pose.data.yolo import write_yolo
from dpose.pose.people import PeopleFinder, has_head
from dpose.runs.drawn_people import Annotated, DrawnPeople, Look
from dpose.runs.found_people import joints_asked
from dpose.runs.label_studio import label_studio_tasks

ANIMATED = (*VIDEO_SUFFIXES, ".gif")
"""What is drawn frame by frame."""


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
                raise DposeError("inputs-missing", "holds no picture and no video", source)
            for p in inside:
                found.setdefault(p, p.relative_to(path))
        elif path.is_file():
            found.setdefault(path, Path(path.name))
        else:
            matches = [Path(p) for p in sorted(glob.glob(str(path), recursive=True)) if Path(p).is_file()]
            if not matches:
                raise DposeError("file-missing", "no such file or folder, and nothing matches it", source)
            for p in matches:
                found.setdefault(p, Path(p.name))
    return list(found.items())


def annotate(
    finder: PeopleFinder,
    files: Sequence[tuple[Path, Path]],
    out: Path | None,
    boxes: Boxes = whole_picture,
    *,
    skeleton: str | None = None,
    results: Path | None = None,
    yolo: Path | None = None,
    label_studio: Path | None = None,
    look: Look | None = None,
    smooth: bool = False,
    called: str = "",
    console: Console,
) -> Annotated:
    """Draw the people found in pictures and videos.

    A file that cannot be read is reported and skipped; if none can be, that is an error. A drawn video has the
    frames, times and length of the one it was drawn from, and no sound; a person in it keeps a number
    (`dpose.pose.tracks`). A picture without people is written as it is.

    Args:
        finder: Of people and their joints.
        files: As `find_files` gives them.
        out: The drawn file where there is one source and this has a suffix, else a folder. Where None, "NAME-pose"
            beside the one source.
        boxes: Where people are; None for a picture leaves it to the finder.
        skeleton: Of the joints that are drawn and written (`dpose.runs.found_people.joints_asked`).
        results: A COCO-style JSON file to write: images (a frame is one too), annotations with keypoints (x, y, score),
            score, box and, in videos, track, and a category with the joints' names.
        yolo: A folder to write YOLO-pose labels into (`dpose.pose.data.yolo.write_yolo`), as of its training split.
        label_studio: A JSON file of Label Studio's tasks to write (`dpose.runs.label_studio`).
        look: How they are drawn.
        smooth: Smooth the joints of videos (`dpose.pose.tracks`).
        called: The model's name, for Label Studio.
        console: Where progress goes.

    Raises:
        DposeError: several files and no `out`, or `out` is a source; not one file could be read; the skeleton is none,
            or has nothing of the finder's; faces are to be hidden by a finder that knows no head; or a file cannot be
            written.
    """
    look = look or Look()
    if look.hide_faces and not has_head(finder.skeleton):
        raise DposeError("head-joints-missing", "the model finds no joint of a head", "--hide-faces")
    work = DrawnPeople(finder, joints_asked(finder.skeleton, skeleton), boxes, look, smooth)
    done = work.done
    targets = _targets(files, out)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
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
        raise DposeError(
            "files-all-unusable", f"not one of {len(files):,} files could be used; {done.problems[0]}"
        )
    if results is not None:
        write_atomic(results, json.dumps(done.document, allow_nan=False) + "\n")
    if yolo is not None:
        write_yolo(yolo, done.document, work.way.target, "train")
    if label_studio is not None:
        tasks = label_studio_tasks(done.document, f"dpose {called}".strip())
        write_atomic(label_studio, json.dumps(tasks, allow_nan=False) + "\n")
    return done


def _targets(files: Sequence[tuple[Path, Path]], out: Path | None) -> list[Path]:
    """Where each drawn file goes; two never go to one place."""
    if len(files) > 1 and out is None:
        raise DposeError(
            "out-not-folder", f"{len(files):,} files are to be drawn", fix="give a folder with --out"
        )
    if len(files) == 1 and out is not None and out.suffix and not out.is_dir():
        if out.resolve() == files[0][0].resolve():
            raise DposeError(
                "original-overwritten",
                "the drawn file would replace its source",
                str(out),
                "choose another --out",
            )
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


def names_several(sources: Sequence[str]) -> bool:
    """Whether sources may name more than one picture, or a video."""
    paths = [Path(s).expanduser() for s in sources]
    return len(paths) != 1 or not paths[0].is_file() or paths[0].suffix.lower() in ANIMATED
