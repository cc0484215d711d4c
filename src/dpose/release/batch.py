"""The files of a command: what each is, what is finished already, and the release of one, counted.

    work = Work(Pixelization.of(2, "pixels:16"))
    pending = skip_finished(jobs, work)          # reads, compares with the account, reserves nothing
    for job, statement in release_all(pending.todo, work): ...

`release_one` counts a file in the account and writes it. `write_item` writes a file that was counted elsewhere: the
workers of `corpus` call it for the command that reserved it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dpose.account import Charge
from dpose.errors import DposeError, naming
from dpose.files import file_digest, same_file_check, write_atomic
from dpose.media.video import VideoInfo, probe
from dpose.media.video_writer import check_writable
from dpose.privacy.noise import AesNoise, Key, NoiseSource
from dpose.privacy.statement import PrivacyStatement
from dpose.release.archive import carried, pack_archive
from dpose.release.claim import claim_noise_key
from dpose.release.config import Pixelization, ReleaseConfig
from dpose.release.counting import (
    ReleaseHistory,
    release_charge,
    release_history,
    reserved_release,
    settings_digest,
)
from dpose.release.embed import stamped_picture
from dpose.release.faces import FaceFinder, face_finder
from dpose.release.jobs import Job, find_output
from dpose.release.obfuscate import HOLD, Obfuscator
from dpose.release.originals import Original, picture_original, video_original
from dpose.release.pixelization import PixelizationPlan
from dpose.release.plans import bind, bind_video, picture_shape, video_shape
from dpose.release.published import PublishedPicturePlan
from dpose.release.released import Shown
from dpose.release.statements import DECODED, AnyPlan, release_statement
from dpose.release.videos import encode_video

NAMED = 20
"""The number of files that an error names if many could not be released."""
AddCount = Callable[[PrivacyStatement], PrivacyStatement]
"""Adds to a statement what is counted of its original."""


@dataclass(frozen=True)
class Work:
    """How every file of a command is released.

    Attributes:
        config: The configuration; None to obscure videos instead.
        method: The method of obscuring, one of `obfuscate.METHODS`; "" with a configuration.
        detector: For face-blur: an ONNX face detector, or a finder; None for the bundled cascade.
        hold: For face-blur: frames around a find.
        seed: Makes the noise repeatable and takes the guarantee away; each file has another seed.
        keep_sound: True to copy the sound of videos.
        public: True if the files are declared public. Public files are not counted.
        again: True to allow second releases of an original.
        sign: With workers: a file that the command has put beside the released ones, by which a worker sees that it
            has the same folder.
    """

    config: ReleaseConfig | None = None
    method: str = ""
    detector: Path | FaceFinder | None = None
    hold: int = HOLD
    seed: int | None = None
    keep_sound: bool = False
    public: bool = False
    again: bool = False
    sign: Path | None = None

    @property
    def finder(self) -> FaceFinder | None:
        """The face finder of face-blur; None for other methods.

        Raises:
            DposeError: the detector cannot be read.
        """
        if self.method != "face-blur":
            return None
        return self.detector if isinstance(self.detector, FaceFinder) else face_finder(self.detector)

    def seed_of(self, job: Job, number: int = 0) -> int | None:
        """The seed of one file, whichever other files are left out; None without a seed.

        Args:
            job: The file.
            number: Which file it is, if its job does not say.
        """
        return None if self.seed is None else self.seed + (number if job.place is None else job.place)

    def settings(self, job: Job, seed: int | None) -> str:
        """The digest of all that decides a released file, beside the original and the key."""
        if job.video:
            finder = self.finder
            face = "" if finder is None else f" {finder.digest} {self.hold}"
            what = self.config or self.method + face
            return settings_digest("video", what, seed, self.keep_sound, *job.caveats)
        written = (job.target.suffix.lower(), job.archive is not None)
        return settings_digest("picture", self.config, seed, *written, *job.caveats)


@dataclass(frozen=True)
class Reading:
    """A file that was read.

    Attributes:
        plan: How it is released or obscured.
        shown: A picture's pixels, or a video that was probed.
        original: What it is for the account; None for a file that was not identified.
        lossy: True for a picture whose compression was lossy.
        check: Refuses a video that has changed since.
    """

    plan: AnyPlan | Obfuscator
    shown: NDArray[Any] | VideoInfo
    original: Original | None = None
    lossy: bool = False
    check: Callable[[], None] = lambda: None


def read_item(
    work: Work, job: Job, noise: NoiseSource | None = None, *, seed: int | None = None, identify: bool = True
) -> Reading:
    """Read a file, and say what it is and how it is released.

    Args:
        work: How files are released.
        job: The file. If it has an original, the file must still be that one.
        noise: The noise of the release; by default another one, for a plan that is only looked at.
        seed: The file's own, for obscuring.
        identify: False for a video that is not counted: it is not decoded then.

    Raises:
        DposeError: it cannot be read, it has changed, or the configuration does not fit it.
    """
    with naming(job.source):
        noise = noise or AesNoise(Key.fresh())  # what a drawn operator costs is the same for all draws
        if job.video:
            info, check = probe(job.source), same_file_check(job.source)
            original = job.original
            if original is not None:
                original.check_unchanged(job.source)
            elif identify:
                original = video_original(info)
            if work.config is not None:
                return Reading(bind_video(work.config, info, noise), info, original, check=check)
            obscured = Obfuscator(work.method, video_shape(info), seed, work.finder, work.hold)
            return Reading(obscured, info, original, check=check)
        if not isinstance(work.config, Pixelization):
            raise DposeError(
                "operator-not-for-pictures",
                "pictures are released to files by pixelization",
                str(job.source),
            )
        original, pixels, lossy = picture_original(job.source)
        if job.original is not None and job.original.hashes != original.hashes:
            raise DposeError(
                "file-changed",
                "was changed while it was to be released",
                str(job.source),
                "run the command again",
            )
        return Reading(bind(work.config, picture_shape(pixels), noise), pixels, original, lossy)


def item_charge(work: Work, job: Job, read: Reading, seed: int | None) -> Charge:
    """What the release of a file takes from its original.

    Args:
        work: How files are released.
        job: The file.
        read: The file, identified.
        seed: The file's own.
    """
    assert read.original is not None
    plan = None if isinstance(read.plan, Obfuscator) else read.plan
    return release_charge(
        read.original, plan, work.settings(job, seed), seeded=seed is not None, target=job.target
    )


def write_item(
    work: Work,
    job: Job,
    read: Reading,
    noise: NoiseSource,
    add_count: AddCount,
    *,
    seeded: bool,
    workers: int = 1,
    progress: Callable[[], None] | None = None,
) -> PrivacyStatement:
    """Release a file that was read, and that the caller has counted: all its outputs, or none.

    A picture is encoded anew from the released cells, so that no metadata (EXIF, thumbnails, profiles) is copied.

    Args:
        work: How files are released.
        job: The file.
        read: The file.
        noise: Serves this release alone.
        add_count: Adds what is counted to the statement.
        seeded: True if the noise is not secret.
        workers: Frames in work at a time, of pixelization.
        progress: Called after each frame of a video.

    Raises:
        DposeError: a video ends early or has changed, or a file cannot be written.
    """
    plan, shown = read.plan, read.shown
    if isinstance(shown, np.ndarray):
        assert isinstance(plan, PixelizationPlan | PublishedPicturePlan)
        released = plan.release(shown, noise)
        caveats = (DECODED,) if read.lossy else ()
        statement = add_count(release_statement(plan, seeded=seeded, caveats=(*caveats, *job.caveats)))
        _write(job, released, statement)
        return statement

    def state(caveats: tuple[str, ...], given: tuple[str, ...]) -> PrivacyStatement:
        if isinstance(plan, Obfuscator):
            return add_count(plan.statement(given))
        said = (*caveats, *job.caveats)
        return add_count(release_statement(plan, seeded=seeded, caveats=said, conditional_on=given))

    def run(frames: Iterator[NDArray[np.uint8]]) -> Iterator[NDArray[np.uint8]]:
        return plan.run(frames) if isinstance(plan, Obfuscator) else plan.run(frames, noise, workers)

    return encode_video(
        shown, job.target, run, state, keep_sound=work.keep_sound, progress=progress, check=read.check
    )


def _write(job: Job, released: Shown, statement: PrivacyStatement) -> None:
    """Write a picture and its archive, or neither."""
    archive, picture = pack_archive(released, statement), b""
    if job.target.suffix.lower() != ".npz":
        picture = stamped_picture(released, job.target.suffix, statement)
    if job.archive is not None:
        write_atomic(job.archive, archive)
    try:
        write_atomic(job.target, picture or archive)
    except DposeError:
        if job.archive is not None:
            job.archive.unlink(missing_ok=True)
        raise


def release_one(
    work: Work,
    job: Job,
    number: int = 0,
    *,
    workers: int = 1,
    progress: Callable[[], None] | None = None,
) -> PrivacyStatement:
    """Release one file: counted in the account, then written with its statement.

    **Guarantee.** As for `pixelize` or `release_video`, by the configuration, for the decoded picture or frames. With
    cells each frame's noise has a key of its own, derived from one fresh key in the order of the frames, so that the
    number of workers changes nothing. Encoding is post-processing. Public: size, number of frames and their time
    stamps. Sound that is kept is not protected, and the statement says so.

    Args:
        work: How files are released.
        job: The file.
        number: Which file of the command it is, if the job does not say.
        workers: Frames in work at a time, of pixelization.
        progress: Called after each frame of a video.

    Returns:
        The statement; of the file that is there, if that is just this release of just this original.

    Raises:
        DposeError: the file cannot be read or written, or the configuration does not fit it; it was released before,
            another file is in the way, or a budget would be passed. Nothing is left under its names then.
    """
    if job.video:
        check_writable(job.target)
    seed, charge, linked = work.seed_of(job, number), None, True
    noise = AesNoise(Key.fresh() if seed is None else Key.from_seed(seed))
    with naming(job.source):
        read = read_item(work, job, noise, seed=seed, identify=not work.public)
        seeded, _ = claim_noise_key(noise)
        if not work.public:
            assert read.original is not None
            charge, linked = item_charge(work, job, read, seed), read.original.linked
        found = release_history(charge) if charge else None
        # an earlier clip of other numbers may only share frames with this one
        numbered = bool(job.number) and not job.video
        there = find_output(found, job.target, job.outputs_at, numbered=numbered)
        if there is not None:
            return carried(there)
        with reserved_release(charge, again=work.again, linked=linked, about=job.about) as count:
            statement = write_item(
                work, job, read, noise, count.add_to, seeded=seeded, workers=workers, progress=progress
            )
            count.outputs += [file_digest(path) for path in job.outputs]
    return statement


def release_all(
    jobs: Sequence[Job],
    work: Work,
    *,
    workers: int = 1,
    progress: Callable[[], None] | None = None,
) -> Iterator[tuple[Job, PrivacyStatement]]:
    """Release every file, in order: pictures `workers` at a time, a video's frames `workers` at a time.

    Args:
        jobs: What to release.
        work: How files are released.
        workers: How many pictures or frames are in work at a time.
        progress: Called after each frame of a video.

    Yields:
        Each file with its statement, once it is written.

    Raises:
        DposeError: after all others, if files cannot be released; names them. Nothing stands under their names.
    """
    failed: list[tuple[Job, DposeError]] = []
    pictures = [(number, job) for number, job in enumerate(jobs) if not job.video]
    with ThreadPoolExecutor(max(1, workers)) as pool:
        futures = {number: pool.submit(release_one, work, job, number) for number, job in pictures}
        try:
            for number, job in enumerate(jobs):
                try:
                    if number in futures:
                        statement = futures.pop(number).result()
                    else:
                        statement = release_one(work, job, number, workers=workers, progress=progress)
                except DposeError as error:
                    # others are in work, or written already: no statement is left out for this one
                    failed.append((job, error))
                else:
                    yield job, statement
        finally:
            for future in futures.values():
                future.cancel()
    raise_failed(failed, len(jobs))


def raise_failed(failed: Sequence[tuple[Job, DposeError]], total: int) -> None:
    """Raise one line for all files that could not be released, if there are some.

    Raises:
        DposeError: there are some.
    """
    if not failed:
        return
    (job, error), *more = failed
    if total == 1:
        raise error
    left = f"{len(failed)} of {total} files were not released"
    if more:
        names = [str(other.source) for other, _ in more[:NAMED]]
        left += f"; besides this one {', '.join(names)}" + (", ..." if len(more) > NAMED else "")
    raise DposeError(
        error.code, f"{error.line()}; {left}", "" if str(job.source) in error.line() else str(job.source)
    )


@dataclass
class PendingJobs:
    """What a command has to do.

    Attributes:
        todo: The files that are to be released.
        lines: What its user must know of the others, and of second releases.
    """

    todo: list[Job] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


def skip_finished(
    jobs: Sequence[Job], work: Work, *, workers: int = 1, console: Console | None = None
) -> PendingJobs:
    """Leave out files that are finished or twice there, and say what second releases cost, before any is released.

    Files are read and compared with the account; nothing is reserved or written. A file that cannot be read stays
    among them: its release says why. Public files are not compared.

    Args:
        jobs: The files of the command.
        work: How files are released.
        workers: Files in work at a time.
        console: Shows progress; None for no progress.

    Raises:
        DposeError: a file was released before and `work.again` is not set, another file is in the way, or the account
            cannot be read.
    """
    found = PendingJobs()
    if work.public:
        return PendingJobs(list(jobs))
    taken: dict[str, Job] = {}
    second: list[ReleaseHistory] = []
    pending: list[tuple[set[str], Charge]] = []
    for job, read in _each_read(jobs, work, workers, console):
        if read is None or read.original is None:
            found.todo.append(job)
            continue
        original, seed = read.original, work.seed_of(job)
        # a clip's frames make it no copy of another clip
        own = original.hashes[: 2 if original.file else 1]
        same = next((taken[name] for name in own if name in taken), None)
        if same is not None:
            found.lines.append(same_line(job.source, same.source))
            continue
        taken |= dict.fromkeys(own, job)
        here = release_history(item_charge(work, job, read, seed))
        there = find_output(here, job.target, job.outputs_at, numbered=bool(job.number))
        if there is not None:
            found.lines.append(finished_line(job.source, there))
            continue
        # clips of one command may share frames without being one clip
        shared = [charge for hashes, charge in pending if hashes & set(original.hashes)]
        pending.append((set(original.hashes), here.charge))
        here = replace(here, before=(*here.before, *shared))
        kind = "video" if job.video else "picture"
        if here.repeats:
            second.append(here)
            found.lines.append(f"{job.source}: release {here.number} of this {kind}: {here.words()}.")
        elif here.before:
            found.lines.append(
                f"{job.source}: an earlier release of this {kind} was cut short; what was seen of it is "
                f"unknown, so that it counts: {here.words()}."
            )
        found.todo.append(replace(job, original=original))
    if second and not work.again:
        _refuse(second, len(jobs))
    numbers = [job.number for job in jobs if job.number]
    if numbers:
        found.todo = [
            job.numbered(number) for job, number in zip(found.todo, numbers[: len(found.todo)], strict=True)
        ]
    return found


def same_line(source: Path, same: Path) -> str:
    """The line that two files of a command show the same."""
    return f"{source} shows the same as {same}: one file, which is released once."


def finished_line(source: Path, there: Path) -> str:
    """The line that a file is released already."""
    return f"{source} is released already, into {there}: nothing to do, nothing spent."


def _refuse(second: Sequence[ReleaseHistory], total: int) -> None:
    try:
        second[0].check(again=False)
    except DposeError as error:
        if len(second) == 1:
            raise
        raise DposeError(
            error.code,
            f"{error.what}; {len(second)} of {total} files are such, and none was released",
            error.where,
            error.fix,
        ) from error


def _each_read(
    jobs: Sequence[Job], work: Work, workers: int, console: Console | None
) -> Iterator[tuple[Job, Reading | None]]:
    """Each job with its file, read, but for a picture's pixels; None for a file that cannot be read."""

    def read(job: Job) -> Reading | None:
        try:
            found = read_item(work, job)
        except DposeError:
            return None
        return found if job.video else replace(found, shown=np.zeros(0, np.uint8))

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = console is not None and console.is_terminal
    with (
        ThreadPoolExecutor(max(1, workers)) as pool,
        Progress(*columns, console=console, disable=not shown, transient=True) as bar,
    ):
        task = bar.add_task("comparing with the account", total=len(jobs))
        for job, found in zip(jobs, pool.map(read, jobs), strict=True):
            bar.advance(task)
            yield job, found
