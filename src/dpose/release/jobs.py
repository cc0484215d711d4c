"""Which files a command releases, and where each of them goes."""

from __future__ import annotations

import glob
import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

from dpose.errors import DposeError
from dpose.media.images import IMAGE_SUFFIXES
from dpose.media.video import VIDEO_SUFFIXES, VideoInfo, probe
from dpose.media.video_writer import WRITABLE
from dpose.privacy.sections import NOT_SAID, About
from dpose.release.embed import sidecar_of
from dpose.release.names import first_number, numbered
from dpose.release.originals import Original
from dpose.release.verify import PICTURES

READABLE = (*IMAGE_SUFFIXES, *VIDEO_SUFFIXES)


@dataclass(frozen=True)
class Job:
    """One file to release.

    Attributes:
        source: The original.
        target: The released picture, archive or video.
        archive: Where a picture's archive goes besides; None for none.
        number: The number that stands for the original's name; empty where the file has another name.
        place: Which file of the command it is, from 0; None where nobody counts.
        original: What it is, where that is known.
        caveats: What its statement tells the reader besides.
        about: What it says of who releases the file, to whom and what for.
    """

    source: Path
    target: Path
    archive: Path | None = None
    number: str = ""
    place: int | None = None
    original: Original | None = None
    caveats: tuple[str, ...] = ()
    about: About = NOT_SAID

    @property
    def video(self) -> bool:
        """Whether it is a video."""
        return bool({self.source.suffix.lower(), self.target.suffix.lower()} & set(VIDEO_SUFFIXES))

    @property
    def outputs(self) -> list[Path]:
        """All that is written."""
        return self.outputs_at(self.target)

    def outputs_at(self, target: Path) -> list[Path]:
        """All that is written where the picture, archive or video has this name."""
        beside = [sidecar_of(target)] if self.video else []
        return [target, *beside, *([target.with_suffix(".npz")] if self.archive else [])]

    def numbered(self, number: str) -> Job:
        """The same with another number."""
        target = self.target.with_name(number + self.target.suffix)
        archive = None if self.archive is None else target.with_suffix(".npz")
        return replace(self, target=target, archive=archive, number=number)


@dataclass(frozen=True)
class JobList(Sequence[Job]):
    """Files to release, each made into a job when it is asked for: a million of them are a list of names.

    Attributes:
        sources: The originals.
        starts: Of each, where in its name the path begins that it keeps below an output folder.
        out: The folder, or the one file's name.
        single: Whether `out` is that.
        suffix: Of released pictures.
        first: The first number; 0 where files keep their names.
        caveats: As each job's.
        about: As each job's.
    """

    sources: Sequence[str]
    starts: array[int]
    out: Path
    single: bool
    suffix: str
    first: int
    caveats: tuple[str, ...] = ()
    about: About = NOT_SAID

    def said(self, *, about: About = NOT_SAID, caveats: tuple[str, ...] = ()) -> JobList:
        """The same, with what statements say besides."""
        return replace(self, about=about, caveats=caveats)

    @overload
    def __getitem__(self, place: int) -> Job: ...
    @overload
    def __getitem__(self, place: slice) -> list[Job]: ...
    def __getitem__(self, place: int | slice) -> Job | list[Job]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        source, number = Path(self.sources[place]), numbered(self.first + place) if self.first else ""
        below = Path(self.sources[place][self.starts[place] :])
        job = (
            Job(source, self.out) if self.single else _in_folder(source, below, self.out, self.suffix, number)
        )
        return replace(job, place=place, caveats=self.caveats, about=self.about)

    def __len__(self) -> int:
        return len(self.sources)


def find_jobs(
    paths: Sequence[str],
    out: Path,
    *,
    keep_names: bool = False,
    suffix: str = ".png",
    readable: Sequence[str] = READABLE,
) -> JobList:
    """Which files to release, and where to.

    In a folder they are numbered, on from what is there, in the order of their names; `record_names` writes down which
    is which.

    Args:
        paths: Files, folders (with what is below them) and globs.
        out: A folder; for one file also the name of a picture, archive or video.
        keep_names: Give them their originals' names instead of numbers, and folders below.
        suffix: Of released pictures in a folder: .png or .jpg.
        readable: Suffixes of the files to release; others in a folder are passed over.

    Raises:
        DposeError: nothing is found, two files would get one name, or an original would be overwritten.
    """
    found = _found(paths, readable)
    if not found:
        kind = "picture or video" if readable is READABLE else "video"
        raise DposeError("inputs-missing", f"there is no {kind}", ", ".join(paths))
    single = out.suffix.lower() in (*PICTURES, ".npz", *VIDEO_SUFFIXES) and not out.is_dir()
    first = 0 if keep_names or single else first_number(out)
    jobs = JobList(list(found), array("L", found.values()), out, single, suffix, first)
    if single:
        if len(jobs) > 1:
            raise DposeError("out-not-folder", f"cannot hold {len(jobs)} files", str(out), "name a folder")
        if (jobs[0].source.suffix.lower() in VIDEO_SUFFIXES) != (out.suffix.lower() in VIDEO_SUFFIXES):
            raise DposeError(
                "out-of-other-kind", "a picture cannot become a video, nor a video a picture", str(out)
            )
    for job in jobs:
        if job.video and job.target.suffix.lower() not in WRITABLE:
            raise DposeError(
                "video-suffix-unknown",
                "cannot write videos of this kind",
                str(job.target),
                f"use {', '.join(WRITABLE)}",
            )
    _refuse_collisions(jobs)
    return jobs


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


def _found(paths: Sequence[str], readable: Sequence[str]) -> dict[str, int]:
    """Files, each with the place in its name where the path begins that it keeps below an output folder."""
    found: dict[str, int] = {}
    for text in paths:
        path = Path(text)
        matches = (
            [path] if path.exists() else [Path(match) for match in sorted(glob.glob(text, recursive=True))]
        )
        if not matches:
            raise DposeError("file-missing", "there is no such file or folder", text)
        for match in matches:
            if match.is_dir():
                for inner in _below(str(match), ""):
                    if os.path.splitext(inner)[1].lower() in readable and (match / inner).is_file():
                        file = str(match / inner)
                        found.setdefault(file, len(file) - len(inner))
            elif match.suffix.lower() in readable:
                found.setdefault(str(match), len(str(match)) - len(match.name))
            elif match == path:
                kind = "is neither picture nor video" if readable is READABLE else "is no video"
                raise DposeError("file-kind-unknown", kind, text, f"known are {', '.join(readable)}")
    return found


def _below(folder: str, inner: str) -> Iterator[str]:
    """All that is below a folder and not hidden, in the order of its parts' names; of links only the links."""
    try:
        with os.scandir(folder) as entries:
            here = sorted(
                (entry.name, entry.is_dir(follow_symlinks=False))
                for entry in entries
                if not entry.name.startswith(".")
            )
    except PermissionError:
        return
    for name, is_folder in here:
        yield inner + name
        if is_folder:
            yield from _below(os.path.join(folder, name), f"{inner}{name}{os.sep}")


def _in_folder(source: Path, below: Path, out: Path, suffix: str, number: str) -> Job:
    target = out / (Path(number) if number else below.with_suffix(""))
    name = target.name
    if source.suffix.lower() in VIDEO_SUFFIXES:
        return Job(source, target.with_name(f"{name}.mp4"), number=number)
    return Job(source, target.with_name(name + suffix), target.with_name(f"{name}.npz"), number)


def _refuse_collisions(jobs: JobList) -> None:
    folders = {output.parent.resolve() for job in jobs for output in job.outputs}
    # an original in no folder that is written into cannot be overwritten
    originals = {file for job in jobs if (file := job.source.resolve()).parent in folders}
    taken: dict[str, str] = {}
    for job in jobs:
        for output in job.outputs:
            if originals and output.resolve() in originals:
                raise DposeError(
                    "original-overwritten", "would overwrite an original", str(output), "choose another --out"
                )
            # one number is one file's
            other = str(job.source) if jobs.first else taken.setdefault(str(output), str(job.source))
            if other != str(job.source):
                raise DposeError(
                    "output-names-collide",
                    f"both {other} and {job.source} would be written here",
                    str(output),
                    "leave out --keep-names",
                )
