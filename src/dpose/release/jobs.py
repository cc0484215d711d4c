"""Which files a command releases, where each goes, under which name, and what stands there already.

A file's name may say who is in it, so released files are numbered, in the order of the originals' names: a function of
names and of no pixel. Which number stands for which original is kept in the user's state folder, readable by its user
alone, and never beside what is released. Numbering goes on from command to command in one output folder, so that
nothing is overwritten. A complete output is one whose files have the digests that the account recorded when they were
finished.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

from dpose.account import Charge, State
from dpose.errors import DposeError
from dpose.files import (
    check_place,
    file_bytes,
    file_digest,
    file_json,
    fixed_folder,
    json_text,
    locked_folder,
    matching,
    place_inside,
    private_folder,
    write_private,
)
from dpose.media.kinds import kind_of, kind_of_name, unknown_kind
from dpose.media.video import VideoInfo, probe
from dpose.media.video_writer import check_writable
from dpose.privacy.keys import state_folder
from dpose.privacy.sections import NOT_SAID, About
from dpose.release.archive import unpack
from dpose.release.counting import ReleaseHistory, release_history
from dpose.release.embed import SIDECAR, read_sidecar, read_stamp, sidecar_of
from dpose.release.originals import Original
from dpose.release.verify import PICTURES


@dataclass(frozen=True)
class Job:
    """One file to release.

    Attributes:
        source: The original.
        target: The released picture, archive or video.
        archive: Where a picture's archive goes besides; None for none.
        number: The number that stands for the original's name; empty where the file has another name.
        place: Which file of the command it is, from 0; None for a file by itself.
        original: The original, if it was read.
        charge: What its release takes from the account, if that was compared.
        choice: Public text of a drawn operator, if it was drawn.
        caveats: What its statement tells the reader besides.
        about: What its statement says of who releases the file, to whom and what for.
        notes: What of the original was left out or changed, once it was released; for the terminal.
        standing: True if nothing was to do: the outputs, under these names, stood there complete before.
    """

    source: Path
    target: Path
    archive: Path | None = None
    number: str = ""
    place: int | None = None
    original: Original | None = None
    charge: Charge | None = None
    choice: str = ""
    caveats: tuple[str, ...] = ()
    about: About = NOT_SAID
    notes: tuple[str, ...] = ()
    standing: bool = False

    @property
    def video(self) -> bool:
        """True if it is a video, which then has a video's name; what the original is its content has said."""
        return kind_of_name(self.target) == "video"

    @property
    def outputs(self) -> list[Path]:
        """All that is written."""
        return self.outputs_at(self.target)

    def outputs_at(self, target: Path) -> list[Path]:
        """All that is written where the picture, archive or video has this name."""
        beside = [sidecar_of(target)] if self.video else []
        return [target, *beside, *([target.with_suffix(".npz")] if self.archive else [])]

    def absolute(self) -> Job:
        """The same for a process in another folder."""
        archive = None if self.archive is None else self.archive.absolute()
        return replace(self, source=self.source.absolute(), target=self.target.absolute(), archive=archive)

    def sweep(self) -> None:
        """Remove what a killed worker has left of outputs that it had begun to write."""
        for path in self.outputs:
            for left in path.parent.glob(f".{glob.escape(path.name)}.*"):
                left.unlink(missing_ok=True)

    def numbered(self, number: str) -> Job:
        """The same with another number."""
        return replace(self.at(self.target.with_name(number + self.target.suffix)), number=number)

    def at(self, target: Path) -> Job:
        """The same with outputs of another name."""
        return replace(self, target=target, archive=None if self.archive is None else target.with_suffix(".npz"))


@dataclass(frozen=True)
class JobList(Sequence[Job]):
    """Files to release, each made into a job when it is used: a million of them are a list of names.

    Attributes:
        sources: The originals.
        starts: For each original, where in its name the path begins that it keeps below an output folder.
        videos: For each original, 1 for a video and 0 for a picture.
        out: The folder, or the one file's name.
        single: True if `out` is that.
        suffix: Suffix of released pictures.
        first: The first number; 0 where files keep their names.
        left: Files of the folders that are neither picture nor video, and are left out.
        caveats: As each job's.
        about: As each job's.
        archives: True if pictures have archives.
    """

    sources: Sequence[str]
    starts: array[int]
    videos: bytes
    out: Path
    single: bool
    suffix: str
    first: int
    left: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    about: About = NOT_SAID
    archives: bool = True

    def names(self) -> list[str]:
        """What each original is called: below the folder that was named, or below that of all where names are alike."""
        below = [source[start:] for source, start in zip(self.sources, self.starts, strict=True)]
        if len(set(below)) < len(below):
            base = os.path.commonpath([Path(source).absolute().parent for source in self.sources])
            below = [os.path.relpath(Path(source).absolute(), base) for source in self.sources]
        return [Path(name).as_posix() for name in below]

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
        suffix = ".mp4" if self.videos[place] else self.suffix
        job = Job(source, self.out) if self.single else _in_folder(source, below, self.out, suffix, number)
        archive = job.archive if self.archives else None
        return replace(job, archive=archive, place=place, caveats=self.caveats, about=self.about)

    def __len__(self) -> int:
        return len(self.sources)


def find_jobs(
    paths: Sequence[str],
    out: Path,
    *,
    keep_names: bool = False,
    suffix: str = ".png",
    videos_alone: bool = False,
    archives: bool = True,
) -> JobList:
    """Which files to release, and where to.

    In a folder they are numbered, on from what is there, in the order of their names; `record_names` writes down which
    is which.

    Args:
        paths: Files, folders (with what is below them) and globs.
        out: A folder; for one file also the name of a picture, archive or video.
        keep_names: Give them their originals' names instead of numbers, and folders below.
        suffix: Suffix of released pictures in a folder: .png or .jpg.
        videos_alone: Take no pictures; those in a folder are left out.
        archives: True if pictures have archives.
    """
    found, left = _found(paths, out, videos_alone)
    if not found:
        kind = "video" if videos_alone else "picture or video"
        raise DposeError("inputs-missing", f"there is no {kind}", ", ".join(paths))
    if not out.is_dir() and _is_no_folder(out, archives):
        raise DposeError("out-suffix-unknown", "cannot be written", str(out), "use .png or .jpg, or name a folder")
    single = out.suffix.lower() in (*PICTURES, *((".npz",) if archives else ())) or kind_of_name(out) == "video"
    single = single and not out.is_dir()
    if not single and out.exists() and not out.is_dir():
        raise DposeError(
            "output-below-file", "is a file, and no folder to release into", str(out), "name another --out"
        )
    check_place(out, as_file=single, may_stand=True)  # before anything is charged
    first = 0 if keep_names or single else first_number(out)
    starts, videos = array("L", (start for start, _ in found.values())), bytes(v for _, v in found.values())
    jobs = JobList(list(found), starts, videos, out, single, suffix, first, tuple(left), archives=archives)
    if single:
        if len(jobs) > 1:
            raise DposeError("out-not-folder", f"cannot hold {len(jobs)} files", str(out), "name a folder")
        if bool(videos[0]) != (kind_of_name(out) == "video"):
            what = "a picture cannot become a video, nor a video a picture"
            fix = f"name it {out.with_suffix('.mp4' if videos[0] else suffix).name}, or a folder"
            raise DposeError("out-of-other-kind", what, str(out), fix)
    for job in jobs:
        if job.video:
            check_writable(job.target)
    _refuse_collisions(jobs)
    if keep_names and not single:
        for below in {job.target.parent for job in jobs} - {out}:
            check_place(below, may_stand=True)
    return jobs


def _is_no_folder(out: Path, archives: bool) -> bool:
    """True for the name of a picture or archive of a kind that is not written, which is no folder's name."""
    suffix = out.suffix.lower()
    return (kind_of_name(out) == "picture" and suffix not in PICTURES) or (suffix == ".npz" and not archives)


def find_videos(
    paths: Sequence[str], out: Path, *, keep_names: bool = False, left: list[str] | None = None
) -> list[tuple[Job, VideoInfo | DposeError]]:
    """Which videos to release, where to, and what each says of itself; of one that cannot be opened, why not.

    Args:
        paths: Videos, folders (with what is below them; files that are no videos are passed over) and globs.
        out: A folder; for one video also its name.
        keep_names: Give them their originals' names instead of numbers.
        left: Receives the names of files that are no videos.
    """
    jobs = find_jobs(paths, out, keep_names=keep_names, videos_alone=True)
    if left is not None:
        left += jobs.left
    return [(job, _probed(job.source)) for job in jobs]


def _probed(path: Path) -> VideoInfo | DposeError:
    try:
        return probe(path)
    except DposeError as error:
        return error


def _found(paths: Sequence[str], out: Path, videos_alone: bool) -> tuple[dict[str, tuple[int, bool]], list[str]]:
    """Return what to release and what is left out.

    What stands in `out` is neither. Each file to release has the place in its name where the path begins that it keeps
    below an output folder, and whether it is a video.
    """
    found: dict[str, tuple[int, bool]] = {}
    left: list[str] = []
    wanted = ("video",) if videos_alone else ("picture", "video")
    for text in paths:
        path = Path(text)
        typed = path.exists()
        matches = [path] if typed else matching(text, out)
        if not matches:
            raise DposeError("file-missing", "there is no such file or folder", text)
        if not typed and fixed_folder(text).resolve() == out.resolve():
            raise _among_originals(out)
        for match in matches:
            if match.is_dir():
                if match.resolve() == out.resolve():
                    raise _among_originals(out)
                written = place_inside(match, out)
                for inner in _below(str(match), ""):
                    if written and Path(inner).is_relative_to(written):
                        continue
                    if (match / inner).is_file():
                        file = str(match / inner)
                        if (kind := kind_of(file)) in wanted:
                            found.setdefault(file, (len(file) - len(inner), kind == "video"))
                        else:
                            left.append(inner)
            elif (kind := kind_of(match)) in wanted:
                found.setdefault(str(match), (len(str(match)) - len(match.name), kind == "video"))
            elif match == path:
                fix = "dpose pixelize takes pictures"
                raise DposeError("file-kind-unknown", "is no video", text, fix) if kind else unknown_kind(text)
    return found, left


def _among_originals(out: Path) -> DposeError:
    said = "holds the originals, and what is released into it would be taken for one of them"
    return DposeError("out-among-originals", said, str(out), "name another --out")


def _below(folder: str, inner: str) -> Iterator[str]:
    """All that is below a folder and not hidden, in the order of its parts' names; of links only the links."""
    try:
        with os.scandir(folder) as entries:
            here = sorted(
                (entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries if not entry.name.startswith(".")
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
    if suffix == ".mp4":
        return Job(source, target.with_name(name + suffix), number=number)
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
                what = f"both {other} and {job.source} would be written here"
                raise DposeError("output-names-collide", what, str(output), "leave out --keep-names")


DIGITS = 6
_NUMBERED = re.compile(rf"(\d{{{DIGITS},{DIGITS + 1}}})\.")


def first_number(out: Path) -> int:
    """The first number that is free in an output folder: after all that stand there, and all that were given away."""
    taken = [int(number) for number in known_names(out)]
    with contextlib.suppress(OSError):
        found = (_NUMBERED.match(entry.name) for entry in out.iterdir())
        taken += [int(match[1]) for match in found if match]
    return max(taken, default=0) + 1


def numbered(number: int) -> str:
    """The name of a released file, without suffix."""
    return f"{number:0{DIGITS}d}"


def known_names(out: Path) -> dict[str, str]:
    """The originals of an output folder's files, by number, as this user's state folder knows them."""
    try:
        content = file_json(names_file(out))
        return {str(number): str(source) for number, source in content["names"].items() if str(number).isdigit()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def remember_names(out: Path, names: Mapping[str, str]) -> Path:
    """Write down which original each number stands for, before anything is released under it.

    Args:
        out: The output folder.
        names: Originals by number: paths that begin at the root, without links.

    Returns:
        The file that it stands in.
    """
    file = names_file(out)
    private_folder(file.parent)
    with locked_folder(file.parent, wait=True):
        known = known_names(out)
        if taken := sorted(set(known) & set(names)):
            what = f"another command has just begun to release here, from number {taken[0]} on"
            raise DposeError("release-number-taken", what, str(out), "try again")
        content = {"folder": str(out.resolve()), "names": {**known, **names}}
        write_private(file, json_text(content, 1) + "\n")
    return file


def names_file(out: Path) -> Path:
    """Where the names of an output folder's originals stand."""
    digest = hashlib.sha256(str(out.resolve()).encode(errors="surrogateescape")).hexdigest()
    return state_folder() / "names" / f"{digest[:32]}.json"


Outputs = Callable[[Path], Sequence[Path]]
"""All files of a release, from the first one's name."""


def find_output(found: ReleaseHistory | None, target: Path, outputs: Outputs, *, numbered: bool = False) -> Path | None:
    """The first file of the same release of the same original, if that stands complete where this one is to go.

    Of numbered files each command makes new ones: an earlier one is looked for under the name that the account knows.

    Args:
        found: The release and the earlier ones; None for a release that is not counted.
        target: The first file of its output.
        outputs: All files of it.
        numbered: True if the target's name is a number that this command has chosen.

    Returns:
        None if it is still to be made, and there is room for it.
    """
    for entry in reversed(found.finished if found else []):
        place = target.parent / Path(entry.folder).name if numbered else target
        if entry.outputs and _digests(outputs(place)) == sorted(entry.outputs):
            return place
    standing_there = [path for path in outputs(target) if path.exists()]
    left = found is not None and any(Path(e.folder) == target.resolve() for e in found.cut_short)
    for path in standing_there:
        if not (left and _is_release(path, target)):
            raise DposeError(
                "output-exists", "another file is in the way", str(path), "choose another --out, or remove it first"
            )
    return None


def compare_with_account(
    job: Job, charge: Charge, taken: Mapping[str, Job]
) -> tuple[ReleaseHistory | None, str, Path | None]:
    """Compare a file that was read with the account, and with others of its command (by the digests that name them).

    Returns:
        Where the account stands before the file's release; or None, a line that says why there is nothing to do, and
        the complete file that stands there already, if there is one.
    """
    assert job.original is not None
    own = job.original.own
    if (same := next((taken[name] for name in own if name in taken), None)) is not None:
        line = f"{job.source} shows the same as {same.source}: one file, which is released once."
        return None, line, None
    found = release_history(charge, own)
    if found.states.get(charge.id) is State.RESERVED:  # by this command, before it died
        failed = (replace(entry, state=State.FAILED) if entry.id == charge.id else entry for entry in found.before)
        found = replace(found, before=tuple(failed))
    there = find_output(found, job.target, job.outputs_at, numbered=bool(job.number))
    if there is not None:
        return None, f"{job.source} is released already, into {there}: nothing to do, nothing spent.", there
    return found, "", None


def _digests(paths: Sequence[Path]) -> list[str]:
    try:
        return sorted(file_digest(path) for path in paths)
    except OSError:
        return []


def _is_release(path: Path, target: Path) -> bool:
    """True if a file carries a statement of ours, so that it may be what a release that was cut short has left."""
    try:
        if path.suffix == ".npz":
            unpack(file_bytes(path), str(path))
        elif path.name.endswith(SIDECAR) or kind_of_name(path) == "video":
            read_sidecar(target)
        else:
            read_stamp(file_bytes(path), str(path))
    except (DposeError, OSError):
        return False
    return True


def record_names(jobs: Iterable[Job], out: Path) -> Path | None:
    """Write down, in the user's state folder, which original each number stands for: before they are released.

    Returns:
        The file that it stands in; None if no job has a number.
    """
    names = {job.number: str(job.source.resolve()) for job in jobs if job.number}
    return remember_names(out, names) if names else None
