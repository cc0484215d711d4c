"""Before anything of a command is released: which files are one, which are finished, and what second releases cost.

    sifted = skip_finished(jobs, config, again=False)
    for line in sifted.lines: ...
    release_all(sifted.todo, ...)

Files are read and compared with the account; nothing is reserved, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dpose.account import Charge
from dpose.errors import DposeError, naming
from dpose.media.video import probe
from dpose.privacy.noise import AesNoise, Key
from dpose.release.api import bind, bind_video
from dpose.release.config import ReleaseConfig
from dpose.release.counting import ReleaseHistory, release_charge, release_history
from dpose.release.files import job_seed, picture_settings, picture_shape
from dpose.release.jobs import Job
from dpose.release.originals import Original, picture_original, video_original
from dpose.release.places import find_output
from dpose.release.statements import AnyPlan
from dpose.release.videos import video_settings


@dataclass
class PendingJobs:
    """What a command has to do.

    Attributes:
        todo: Files that are to be released.
        lines: What its user must know of the others, and of second releases.
    """

    todo: list[Job] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


def skip_finished(
    jobs: Sequence[Job],
    what: ReleaseConfig | str,
    *,
    seed: int | None = None,
    keep_sound: bool = False,
    public: bool = False,
    again: bool = False,
    workers: int = 1,
    console: Console | None = None,
) -> PendingJobs:
    """Sort out what a command is to release.

    A file that cannot be read stays among them: its release says why.

    Args:
        jobs: Of the command.
        what: How files are released; a method's name where videos are obscured.
        seed: The command's.
        keep_sound: Whether sound is copied.
        public: Whether the files are declared public: then they are not compared with the account.
        again: Whether second releases are wanted.
        workers: Files in work at a time.
        console: Where progress goes; nowhere when None.

    Raises:
        DposeError: a file was released before and `again` is not set, another file is in the way, or the account
            cannot be read.
    """
    found = PendingJobs()
    if public:
        return PendingJobs(list(jobs))
    taken: dict[str, Job] = {}
    second: list[ReleaseHistory] = []
    pending: list[tuple[set[str], Charge]] = []
    for job, read in _each_read(jobs, what, workers, console):
        if read is None:
            found.todo.append(job)
            continue
        original, plan = read
        # a clip's frames make it no copy of another clip
        own = original.hashes[: 2 if original.file else 1]
        same = next((taken[name] for name in own if name in taken), None)
        if same is not None:
            found.lines.append(
                f"{job.source} shows the same as {same.source}: one file, which is released once."
            )
            continue
        taken |= dict.fromkeys(own, job)
        here = release_history(
            job_charge(job, original, plan, what, job_seed(job, 0, seed), keep_sound=keep_sound)
        )
        there = find_output(here, job.target, job.outputs_at, numbered=bool(job.number))
        if there is not None:
            found.lines.append(
                f"{job.source} is released already, into {there}: nothing to do, nothing spent."
            )
            continue
        # clips of one command may share frames without being one clip
        shared = [charge for hashes, charge in pending if hashes & set(original.hashes)]
        pending.append((set(original.hashes), here.charge))
        here = replace(here, before=(*here.before, *shared))
        if here.repeats:
            second.append(here)
            found.lines.append(f"{job.source}: release {here.number} of this {_kind(job)}: {here.words()}.")
        elif here.before:
            found.lines.append(
                f"{job.source}: an earlier release of this {_kind(job)} was cut short; nobody knows what was seen of "
                f"it, so that it counts: {here.words()}."
            )
        found.todo.append(replace(job, original=original))
    if second and not again:
        _refuse(second, len(jobs))
    numbers = [job.number for job in jobs if job.number]
    if numbers:
        found.todo = [
            job.numbered(number) for job, number in zip(found.todo, numbers[: len(found.todo)], strict=True)
        ]
    return found


def _kind(job: Job) -> str:
    return "video" if job.video else "picture"


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


def job_charge(
    job: Job,
    original: Original,
    plan: AnyPlan | None,
    what: ReleaseConfig | str,
    seed: int | None,
    *,
    keep_sound: bool,
) -> Charge:
    """What the release of a file takes from its original.

    Args:
        job: The file.
        original: What it is.
        plan: How it is released; None where nothing is claimed.
        what: As for `skip_finished`.
        seed: Its own.
        keep_sound: Whether sound is copied.
    """
    if job.video or isinstance(what, str):
        settings = video_settings(what, seed, keep_sound=keep_sound, caveats=job.caveats)
    else:
        settings = picture_settings(job, what, seed)
    return release_charge(original, plan, settings, seeded=seed is not None, target=job.target)


def _each_read(
    jobs: Sequence[Job], what: ReleaseConfig | str, workers: int, console: Console | None
) -> Iterator[tuple[Job, tuple[Original, AnyPlan | None] | None]]:
    """Each job with what it is and how it would be released; None where that cannot be told."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = console is not None and console.is_terminal
    with (
        ThreadPoolExecutor(max(1, workers)) as pool,
        Progress(*columns, console=console, disable=not shown, transient=True) as bar,
    ):
        task = bar.add_task("comparing with the account", total=len(jobs))
        for job, read in zip(jobs, pool.map(lambda job: _read(job, what), jobs), strict=True):
            bar.advance(task)
            yield job, read


def _read(job: Job, what: ReleaseConfig | str) -> tuple[Original, AnyPlan | None] | None:
    try:
        return read_job(job, what)
    except DposeError:
        return None


def read_job(job: Job, what: ReleaseConfig | str) -> tuple[Original, AnyPlan | None]:
    """What a file is, and how it would be released.

    Raises:
        DposeError: it cannot be read, or `what` does not fit it.
    """
    with naming(job.source):
        source = AesNoise(Key.fresh())  # for operators that are drawn: what they cost is the same for all
        if not job.video:
            assert isinstance(what, ReleaseConfig)
            original, pixels, _ = picture_original(job.source)
            return original, bind(what, picture_shape(pixels), source)
        info = probe(job.source)
        plan = None if isinstance(what, str) else bind_video(what, info, source)
        return video_original(info), plan
