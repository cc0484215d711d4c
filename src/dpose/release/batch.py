"""Many files released for one command, each once and counted, by this process or by workers that may die.

    work = Work(Pixelization.of(2, "pixels:16"))
    pending = skip_finished(jobs, work)                   # reads, compares with the account, reserves nothing
    for job, statement in release_all(pending.todo, work): ...             # by this process
    with engine("ray", workers=8) as at:
        for job, statement in release_corpus(jobs, work, at, out): ...     # by workers: listed, and taken up again

Every file goes one way: it is digested (`digest_item`), compared with the account, reserved, released
under a key of its own (`release_item`), committed, and listed. The command alone reads and writes the account. This
process reserves a file when its turn comes; for workers 64 are reserved at a time.

**Guarantee.** docs/proofs/odometer.md, "A release that is taken up again". A release is reserved before any noise of it
is drawn. This process draws each release's noise from a fresh key. For workers, a reservation's name and key are
functions of the command's key, the original's digests, the settings and the code: where a worker or the command died,
the same release goes on under them only if all of these are the same, and then it is the same release, bit for bit in
its noisy sums, for they are whole numbers, and their noise is bound to them (`NoiseStage.stream`). Where sums are not
whole numbers of one picture (videos, private regions, a paper's algorithm) nothing of that is certain: another attempt
is another release, with another key, reserved and counted as one. The command's key stands in the state folder (0600)
until all are complete.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dpose.account import Charge, State, charge_all, conclude
from dpose.engines import AHEAD, ItemEnd, ItemEngine, run_items
from dpose.engines.local import LocalEngine
from dpose.errors import DposeError, IncompleteError
from dpose.media.video_writer import check_writable
from dpose.privacy.marks import marks_of
from dpose.privacy.statement import PrivacyStatement
from dpose.release.archive import carried
from dpose.release.counting import ReleaseHistory, alive, release_history
from dpose.release.items import Digested, Reserved, Work, Written, digest_item, release_item, slight
from dpose.release.jobs import Job, compare_with_account, find_output
from dpose.release.manifest import CorpusFolder

BATCH = 64
"""With workers, so many reservations, or commitments, are one transaction of the account."""
NAMED = 20
"""The number of files that an error names if many could not be released."""


class _Batch:
    """Files that are being released: what is reserved, what is in work, and what failed.

    Args:
        work: How files are released.
        corpus: The folder that workers release into; None where this process releases.
        say: Called with a line for each file of which there is nothing to do.
    """

    def __init__(
        self, work: Work, corpus: CorpusFolder | None = None, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.work, self.corpus, self.say = work, corpus, say
        self.size = 1 if corpus is None else BATCH
        self.session = secrets.token_hex(8)
        self.failed: list[tuple[Job, DposeError]] = []
        self.busy: dict[str, Job] = {}
        self.reserved: dict[str, Charge] = {}
        self.written: list[tuple[Reserved, Written]] = []
        self.ended: list[tuple[Job, PrivacyStatement | None]] = []
        self.left = False
        self._held = ExitStack()

    def __enter__(self) -> _Batch:
        with ExitStack() as held:
            if self.corpus is not None:
                self.work = replace(self.work, sign=held.enter_context(self.corpus.open()))
            if self.corpus is not None or not self.work.public:
                held.enter_context(alive(self.session))
            self._held = held.pop_all()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._held:
            self._settle(self.written)
            self._conclude_failed(self.reserved)  # where a key is stored, the same command goes on under them
            if kind is None and self.corpus is not None:
                self.corpus.end(complete=not self.left)

    def run(
        self, jobs: Iterable[Job], at: ItemEngine, release: Callable[[Work, Reserved], Written], ahead: int
    ) -> Iterator[tuple[Job, PrivacyStatement | None]]:
        """Take files the whole way; each as it ends, with its statement, or None if there is none."""
        digested = run_items(at, digest_item, jobs, shared=self.work, ahead=ahead)
        todo = self._public(jobs) if self.work.public else self._reserved(digested)
        for ended in run_items(at, release, todo, shared=self.work, retry=self._again, ahead=ahead):
            yield from self._notes()
            item = ended.item
            if ended.failure is not None:
                # a reservation that is gone ended with its worker, and the account refused another
                refused = item.charge is not None and item.charge.id not in self.reserved
                self._fail(item.job, ended.failure.error, listed=not refused)
                self._conclude_failed([item.charge.id] if item.charge else [])
                self._free(item.job)
                self.left = True
                continue
            assert ended.result is not None
            if self.corpus is not None:  # this process has committed it when it was written
                self.written.append((item, ended.result))
                if len(self.written) >= self.size:
                    self._settle(self.written)
            yield replace(item.job, notes=ended.result.notes), ended.result.statement
        self._settle(self.written)
        yield from self._notes()

    def release_here(self, work: Work, item: Reserved, **how: Any) -> Written:
        """Release and commit a file in this process, whatever becomes of the command meanwhile."""
        made = release_item(work, item, **how)
        self._settle([(item, made)])
        return made

    def _notes(self) -> Iterator[tuple[Job, PrivacyStatement | None]]:
        while self.ended:
            yield self.ended.pop(0)

    def _public(self, jobs: Iterable[Job]) -> Iterator[Reserved]:
        for job in jobs:
            if self.corpus is not None and self.corpus.resumed and job.target.exists():
                self._skip(job, f"{job.source} is released already, into {job.target}: nothing to do.")
                continue
            try:
                find_output(None, job.target, job.outputs_at)
                yield Reserved(job, self._secret(self._fresh_id()))
            except DposeError as error:
                self._fail(job, error)

    def _reserved(self, digested: Iterator[ItemEnd[Job, Digested]]) -> Iterator[Reserved]:
        """Digested files, reserved `size` at a time; no two of them have a picture or frame in common."""
        batch: list[tuple[Digested, ReleaseHistory]] = []
        hashes: set[str] = set()
        for ended in digested:
            if (one := ended.result) is None:
                assert ended.failure is not None
                self._fail(ended.item, ended.failure.error)
                continue
            own = one.job.original.hashes if one.job.original else ()
            if not hashes.isdisjoint(own):
                yield from self._reserve(batch)
                batch, hashes = [], set()
            if (standing := self._standing(one)) is not None:
                batch.append((one, standing))
                hashes.update(own)
            if len(batch) >= self.size:
                yield from self._reserve(batch)
                batch, hashes = [], set()
        yield from self._reserve(batch)

    def _standing(self, one: Digested) -> ReleaseHistory | None:
        """Where the account stands before a file's release; None if it is not to be released."""
        job = one.job
        charge = replace(one.charge, id=self._id(one), folder=str(job.target.resolve()))
        try:
            found, line, there = compare_with_account(job, charge, self.busy)
            if found is None:
                self._skip(job, line, there)
                return None
            mine = next((entry for entry in found.before if entry.id == charge.id), None)
            if mine is not None and mine.state is State.COMMITTED:
                raise DposeError(
                    "released-file-changed",
                    "was released, and its file is gone or was changed",
                    str(job.source),
                    "say --again",
                )
            if mine is None:
                found.check(again=self.work.again)
        except DposeError as error:
            self._fail(job, error, listed=False)
            return None
        assert job.original is not None
        self.busy |= dict.fromkeys(job.original.own, job)
        return found

    def _reserve(self, batch: Sequence[tuple[Digested, ReleaseHistory]]) -> Iterator[Reserved]:
        new = [found for _, found in batch if all(entry.id != found.charge.id for entry in found.before)]
        refused: dict[str, DposeError] = {}
        try:
            charge_all([found.charge for found in new], known=[found.states for found in new])
        except DposeError:  # what one budget refuses the others may have
            for found in new:
                try:
                    charge_all([found.charge], known=[found.states])
                except DposeError as error:
                    refused[found.charge.id] = error
        for one, found in batch:
            if found.charge.id in refused:
                self._fail(one.job, refused[found.charge.id], listed=False)
                self._free(one.job)
                continue
            self.reserved[found.charge.id] = found.charge
            yield self._item(one, found)

    def _item(self, one: Digested, found: ReleaseHistory) -> Reserved:
        assert one.job.original is not None
        if found.cut_short:
            one.job.sweep()
        others = tuple(entry for entry in found.before if entry.id != found.charge.id)
        counted = replace(found, before=others).counted(linked=one.job.original.linked)
        # what travels with a key is small: Ray keeps large arguments in a store that may be written to disk
        charge, job = replace(found.charge, marks=marks_of(())), replace(one.job, charge=None)
        return Reserved(slight(job), self._secret(charge.id), charge, counted, one.plan)

    def _again(self, item: Reserved) -> Reserved:
        """What is released in the place of a file whose worker died."""
        if item.charge is None or item.plan:
            item.job.sweep()
            return item
        charge = replace(self.reserved[item.charge.id], id=self._fresh_id())
        self._conclude_failed([item.charge.id])
        found = release_history(charge)
        charge_all([charge], known=[found.states])
        self.reserved[charge.id] = charge
        return self._item(Digested(item.job, charge, ""), found)

    def _settle(self, written: list[tuple[Reserved, Written]]) -> None:
        """List and commit what was written, and empty the list: a file that is committed is in the manifest."""
        done = written.copy()
        written.clear()
        if self.corpus is not None and done:
            for item, made in done:
                outputs = dict(zip(item.job.outputs, made.digests, strict=True))
                self.corpus.manifest.add(item.job.target, outputs, made.statement)
            self.corpus.manifest.flush()
        counted = {item.charge.id: made.digests for item, made in done if item.charge is not None}
        if counted:
            conclude(counted)
        for item, _ in done:
            if item.charge is not None:
                self.reserved.pop(item.charge.id)
            self._free(item.job)

    def _conclude_failed(self, names: Iterable[str]) -> None:
        """Record that reservations ended without output: they count."""
        if held := [name for name in names if name in self.reserved]:
            conclude(dict.fromkeys(held, ()), State.FAILED)
        for name in held:
            self.reserved.pop(name)

    def _free(self, job: Job) -> None:
        for name in job.original.own if job.original else ():
            self.busy.pop(name, None)

    def _fail(self, job: Job, error: DposeError, *, listed: bool = True) -> None:
        """Note a failure; the public list names none that the account refused."""
        self.failed.append((job, error))
        if self.corpus is not None and listed:
            self.corpus.manifest.failed(job.target)
        self.ended.append((job, None))

    def _skip(self, job: Job, line: str, there: Path | None = None) -> None:
        self.say(line)
        known = carried(there) if there is not None and self.corpus is None else None
        self.ended.append((job if there is None else replace(job.at(there), standing=True), known))

    def _id(self, one: Digested) -> str:
        """A reservation's name; with a stored key, the same one for the same release by the same code."""
        if self.corpus is None or not one.plan:
            return self._fresh_id()
        assert one.job.original is not None
        pixels = one.job.original.hashes[1]
        return self.corpus.name_of(one.charge.settings, one.plan, pixels)

    def _fresh_id(self) -> str:
        return f"{self.session}-{secrets.token_hex(16)}"

    def _secret(self, name: str) -> bytes:
        """Bytes of the key of a reservation; b"" where the process that releases it draws a fresh one."""
        return b"" if self.corpus is None else self.corpus.secret(name)


def release_corpus(
    jobs: Sequence[Job], work: Work, at: ItemEngine, out: Path, say: Callable[[str], None] | None = None
) -> Iterator[tuple[Job, PrivacyStatement | None]]:
    """Release every file once, by an engine's workers, in any order; called again after it was cut short, go on.

    What is complete is left, and what was in work goes on under its reservation or is counted as another release (this
    module's guarantee).

    Args:
        jobs: What to release, into one folder.
        work: How files are released.
        at: The engine. Its workers must see the same files under the same names.
        out: The folder.
        say: Called with a line for each file that is not released, and why.

    Yields:
        Each file as it ends, with its statement; None for one that is released already, or failed.

    Raises:
        IncompleteError: after all others, if files could not be released; names them.
        DposeError: the account cannot be read or written, another process is at work on the same corpus, or a
            segmenter is open in this process and cannot be sent to others.
    """
    try:
        pickle.dumps(work)
    except Exception as error:
        raise DposeError(
            "segmenter-not-sendable", "a segmenter cannot be sent to workers", "engine", "leave one of them out"
        ) from error
    parts = (work.config, work.method, work.detector, work.hold, work.seed, work.keep_sound)
    corpus = CorpusFolder(out.absolute(), *parts, work.public, work.again, *work.spans, work.boxes)
    with _Batch(work, corpus, say or (lambda _: None)) as batch:
        yield from batch.run(corpus.placed(jobs, again=work.again), at, release_item, AHEAD)
    try:
        raise_failed(batch.failed, len(jobs), say)
    except DposeError as error:
        raise IncompleteError(error.code, error.what, error.where, error.fix) from error


def release_all(
    jobs: Sequence[Job],
    work: Work,
    *,
    workers: int = 1,
    progress: Callable[[], None] | None = None,
    say: Callable[[str], None] | None = None,
    named: int = 0,
) -> Iterator[tuple[Job, PrivacyStatement]]:
    """Release every file by this process, in order: pictures `workers` at a time, a video's frames `workers` at a time.

    A file is reserved when its turn comes and committed when it is written: what ends the command costs no other file.

    Args:
        jobs: What to release.
        work: How files are released.
        workers: How many pictures or frames are in work at a time.
        progress: Called after each frame of a video.
        say: Called with a line for each file that is not released, and why.
        named: How many files the command named, where some of them were done before.

    Yields:
        Each file with its statement, once it is written; of one that stands there complete (`Job.standing`), its own.
    """
    workers = max(1, workers)
    batch = _Batch(work, say=say or (lambda _: None))
    release = partial(batch.release_here, workers=workers, progress=progress)
    placed = (job if job.place is not None else replace(job, place=place) for place, job in enumerate(jobs))
    with batch, LocalEngine(workers, threads=_beside_others) as at:
        for job, statement in batch.run(placed, at, release, 1):
            if statement is not None:
                yield job, statement
    raise_failed(batch.failed, max(named, len(jobs)), say)


def _beside_others(item: Job | Reserved) -> bool:
    """True for what one thread does; a video's frames have all of them."""
    return isinstance(item, Job) or not item.job.video


def release_one(work: Work, job: Job, *, progress: Callable[[], None] | None = None) -> PrivacyStatement:
    """Release one file, as `release_all` does; its statement."""
    if job.video:
        check_writable(job.target)
    ((_, statement),) = release_all([job], work, progress=progress)
    return statement


def raise_failed(
    failed: Sequence[tuple[Job, DposeError]], total: int, say: Callable[[str], None] | None = None
) -> None:
    """Raise one line for all files that could not be released, if there are some; the one file's error for one.

    Args:
        failed: They, with the reasons.
        total: The number of files of the command.
        say: Called with a line for each of several, which the raised one then only counts.
    """
    if not failed:
        return
    (job, error), *more = failed
    if total == 1:
        raise error
    kind = IncompleteError if len(failed) < total else DposeError
    left = f"{len(failed)} of {total} files {'were' if more else 'was'} not released"
    if say is not None and more:
        for other, reason in failed:
            say(f"not released: {_with_name(other, reason)}")
        others = "the others are done" if len(failed) < total else "nothing was released"
        raise kind(error.code, f"{left}, as named above; {others}")
    besides = f"; besides this one {_named([other for other, _ in more])}" if more else ""
    raise kind(error.code, f"{_with_name(job, error)}; {left}{besides}")


def _with_name(job: Job, error: DposeError) -> str:
    line = error.line()
    return line if str(job.source) in line else f"{job.source}: {line}"


def _named(jobs: Sequence[Job]) -> str:
    """The names of files, of many the first."""
    return ", ".join(str(job.source) for job in jobs[:NAMED]) + (", ..." if len(jobs) > NAMED else "")


@dataclass
class PendingJobs:
    """What a command has to do.

    Attributes:
        todo: The files that are to be released.
        lines: What its user must know of the others, and of second releases.
    """

    todo: list[Job] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


def skip_finished(jobs: Sequence[Job], work: Work, *, workers: int = 1, console: Console | None = None) -> PendingJobs:
    """Leave out files that are finished or twice there, and say what second releases cost, before any is released.

    Files are read and compared with the account; nothing is reserved or written. A file that cannot be read stays
    among them: its release says why. Public files are not compared.

    Args:
        jobs: The files of the command.
        work: How files are released.
        workers: Files in work at a time.
        console: Shows progress; None for no progress.
    """
    found = PendingJobs()
    if work.public:
        return PendingJobs(list(jobs))
    taken: dict[str, Job] = {}
    second: list[tuple[Job, ReleaseHistory]] = []
    pending: list[tuple[set[str], Charge]] = []
    for ended in _digested(jobs, work, workers, console):
        if (one := ended.result) is None:
            found.todo.append(ended.item)
            continue
        job, original = one.job, one.job.original
        assert original is not None
        here, line, _ = compare_with_account(job, one.charge, taken)
        taken |= {name: job for name in original.own if name not in taken}
        if here is None:
            found.lines.append(line)
            continue
        # clips of one command may share frames without being one clip
        shared = [charge for hashes, charge in pending if hashes & set(original.hashes)]
        pending.append((set(original.hashes), one.charge))
        here = replace(here, before=(*here.before, *shared))
        kind = "video" if job.video else "picture"
        if here.repeats:
            second.append((job, here))
            found.lines.append(f"{job.source}: release {here.number} of this {kind}: {here.words()}.")
        elif here.before:
            found.lines.append(
                f"{job.source}: an earlier release of this {kind} was cut short; what was seen of it is "
                f"unknown, so that it counts: {here.words()}."
            )
        found.todo.append(replace(job, charge=one.charge))
    if second and not work.again:
        try:
            second[0][1].check(again=False)
        except DposeError as error:
            if len(second) == 1:
                raise
            others = _named([job for job, _ in second[1:]])
            what = f"{error.what}; {len(second)} of {len(jobs)} files are such ({others}, too), and none was released"
            raise DposeError(error.code, what, error.where, error.fix) from error
    numbers = [job.number for job in jobs if job.number]
    if numbers:
        found.todo = [job.numbered(number) for job, number in zip(found.todo, numbers[: len(found.todo)], strict=True)]
    return found


def _digested(
    jobs: Sequence[Job], work: Work, workers: int, console: Console | None
) -> Iterator[ItemEnd[Job, Digested]]:
    """Each job's file, read by this process, in order."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = console is not None and console.is_terminal
    with (
        LocalEngine(workers, threads=_beside_others) as at,
        Progress(*columns, console=console, disable=not shown, transient=True) as bar,
    ):
        read = run_items(at, digest_item, jobs, shared=work, ahead=1)
        yield from bar.track(read, len(jobs), description="comparing with the account")
