"""Many files released by workers, who may die, for one command, which may, too: each is released once, and counted.

    with engine("ray", workers=8) as at:
        for job, statement in release_corpus(jobs, Work(config), at, out): ...

The command itself is the only one that reads and writes the account. A worker digests a file and says what its release
would cost; the command reserves that, many at a time, and derives the release's key from its own; a worker digests the
file again, releases it under that key, and writes it; the command lists and commits it.

**Guarantee.** docs/proofs/odometer.md, "A release that is taken up again". A release is reserved before any noise of it
is drawn. A reservation's name and key are functions of the command's key, the original's digests, the settings and the
code: where a worker or the command died, the same release goes on under them only if all of these are the same, and
then it is the same release, bit for bit in its noisy sums, for they are whole numbers, and their noise is bound to them
(`NoiseStage.stream`). Where sums are not whole numbers of one picture (videos, private regions, a paper's algorithm)
nothing of that is certain: another attempt is another release, with another key, reserved and counted as one. The
command's key stands in the state folder (0600) until all are complete.
"""

from __future__ import annotations

import glob
import hashlib
import pickle
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from dpose.account import Charge, State, charge_all, conclude
from dpose.engines import ItemEnd, ItemEngine, run_items
from dpose.engines.code import worker_code
from dpose.errors import DposeError, IncompleteError, naming
from dpose.files import explain_os_error, file_digest
from dpose.privacy.keys import StoredKey, forget_key, keep_key, kept_key
from dpose.privacy.marks import marks_of
from dpose.privacy.noise import KEY_BYTES, AesNoise, Key
from dpose.privacy.statement import PrivacyStatement
from dpose.release.batch import (
    Work,
    finished_line,
    item_charge,
    raise_failed,
    read_item,
    same_line,
    write_item,
)
from dpose.release.counting import (
    ReleaseCount,
    ReleaseHistory,
    Reservation,
    alive,
    charged_events,
    release_history,
    settings_digest,
)
from dpose.release.jobs import Job, find_output, known_names, record_names
from dpose.release.manifest import Manifest
from dpose.release.obfuscate import Obfuscator
from dpose.release.pixelization import PixelizationPlan
from dpose.release.regions import PrivateRegions
from dpose.release.statements import AnyPlan

BATCH = 64
"""So many reservations, or commitments, are one transaction of the account."""


@dataclass(frozen=True)
class Digested:
    """A file that a worker has read.

    Attributes:
        job: With its original.
        charge: What its release takes.
        plan: Digest of how it is released, where a second attempt releases the same noisy sums, bit for bit; "" where
            that is not certain.
    """

    job: Job
    charge: Charge
    plan: str


@dataclass(frozen=True)
class Reserved:
    """A file that may be released: a few kilobytes, however long a video it is, so that its key stays in memory.

    Attributes:
        job: With its original, where that is counted; of a video without the digests of its frames (`slight`).
        secret: Bytes of the release's key, which serves this release alone.
        charge: The file's reservation, without marks; None for a public file.
        counted: What its statement says of that.
        plan: The plan's digest, as `Digested` has it.
    """

    job: Job
    secret: bytes = field(repr=False)
    charge: Charge | None = None
    counted: ReleaseCount | None = None
    plan: str = ""


def slight(job: Job) -> Job:
    """A job with what a worker needs of its original: of a video that is the digest of the file."""
    if job.original is None or not job.video:
        return job
    return replace(job, original=replace(job.original, hashes=job.original.hashes[:2]))


@dataclass(frozen=True)
class Written:
    """A released file: its statement, and SHA-256 of all that was written, in the order of `Job.outputs`."""

    statement: PrivacyStatement
    digests: tuple[str, ...]


def digest_item(work: Work, job: Job) -> Digested:
    """At a worker: what a file is and what its release would take.

    Raises:
        DposeError: it cannot be read, or the configuration does not fit it.
    """
    check_folder(work)
    seed = work.seed_of(job)
    read = read_item(work, job, seed=seed)
    charge = item_charge(work, job, read, seed)
    return Digested(replace(job, original=read.original), charge, whole_plan(read.plan))


def whole_plan(plan: AnyPlan | Obfuscator) -> str:
    """Digest of a plan whose sums are whole numbers that follow from one picture's pixels; "" of any other."""
    if not isinstance(plan, PixelizationPlan) or not plan.shape.still:
        return ""
    return "" if isinstance(plan.config.regions, PrivateRegions) else settings_digest(plan)


def release_item(work: Work, item: Reserved) -> Written:
    """At a worker: release a file that is reserved.

    Raises:
        DposeError: it is no longer the file that was reserved, this machine would release it otherwise than was
            reserved, or it cannot be read or written.
    """
    check_folder(work)
    job, seed = item.job, work.seed_of(item.job)
    noise = AesNoise(Key.kept(item.secret) if seed is None else Key.from_seed(seed))
    count = Reservation(item.counted, job.about)
    with naming(job.source):
        read = read_item(work, job, noise, seed=seed, identify=False)
        _check_plan(read.plan, item, seeded=seed is not None)
        statement = write_item(work, job, read, noise, count.add_to, seeded=seed is not None)
    return Written(statement, tuple(file_digest(path) for path in job.outputs))


def _check_plan(plan: AnyPlan | Obfuscator, item: Reserved, *, seeded: bool) -> None:
    """Refuse a plan that was not reserved: real numbers in its choice may fall otherwise on another machine."""
    if isinstance(plan, Obfuscator) or item.charge is None:
        return
    if item.charge.events != charged_events(plan, seeded=seeded) or (
        item.plan and item.plan != whole_plan(plan)
    ):
        raise DposeError(
            "release-differs-here",
            "this machine would release it otherwise than was reserved",
            fix="run the command again",
        )


def check_folder(work: Work) -> None:
    """At a worker: refuse a folder that is not the command's, where the command would not see what it writes.

    Raises:
        DposeError: it is another one.
    """
    if work.sign is not None and not work.sign.exists():
        raise DposeError(
            "worker-folder-not-shared",
            "a worker does not see this machine's folder under this name",
            str(work.sign.parent),
            "have --out on a disk that all machines share",
        )


def check_portable(work: Work) -> None:
    """Refuse what no other process can be given.

    Raises:
        DposeError: it holds such a thing: a segmenter that is open in this process.
    """
    try:
        pickle.dumps(work)
    except Exception as error:
        raise DposeError(
            "segmenter-not-sendable",
            "a segmenter cannot be sent to workers",
            "engine",
            "leave one of them out",
        ) from error


def release_corpus(
    jobs: Sequence[Job],
    work: Work,
    at: ItemEngine,
    out: Path,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[Job, PrivacyStatement | None]]:
    """Release every file once, in any order.

    Called again after it was cut short, with the same arguments, it goes on: what is complete is left, and what was in
    work goes on under its reservation or is counted as another release (this module's guarantee).

    Args:
        jobs: What to release, into one folder.
        work: How.
        at: Whose workers do it. They must see the same files under the same names.
        out: The folder.
        say: Told, in a line, of each file that is not released, and why.

    Yields:
        Each file as it ends, with its statement; None for one that is released already, or failed.

    Raises:
        IncompleteError: after all others, if files could not be released; names them.
        DposeError: the account cannot be read or written, or another process is at work on the same corpus.
    """
    check_portable(work)
    with _Corpus(work, out.absolute(), say) as corpus:
        yield from corpus.run(jobs, at)
    try:
        raise_failed(corpus.failed, len(jobs))
    except DposeError as error:
        raise IncompleteError(error.code, error.what, error.where, error.fix) from error


class _Corpus:
    """A corpus that is being released: its key, its reservations, its list, and what is in work."""

    def __init__(self, work: Work, out: Path, say: Callable[[str], None]) -> None:
        self.work, self.out, self.say = work, out, say
        parts = (work.config, work.method, work.detector, work.hold, work.seed, work.keep_sound)
        settings = settings_digest(str(out.resolve()), *parts, work.public, work.again)
        self.name = f"corpus{settings[:16]}"
        self.session = secrets.token_hex(8)
        self.failed: list[tuple[Job, DposeError]] = []
        self.busy: dict[str, Path] = {}
        self.reserved: dict[str, Charge] = {}
        self.written: list[tuple[Reserved, Written]] = []
        self.skipped: list[Job] = []
        self.left = False
        self._held = ExitStack()

    def __enter__(self) -> _Corpus:
        with ExitStack() as held:
            held.enter_context(alive(self.name))
            kept = kept_key(self.name)
            self.resumed = kept is not None and kept.surroundings.get("code") == worker_code()
            if kept is None or not self.resumed:
                kept = StoredKey(Key.fresh(), "", {"code": worker_code()})
                keep_key(self.name, kept)
            self.key = kept.key
            held.enter_context(alive(self.key.key_id))
            held.enter_context(alive(self.session))
            self.manifest = held.enter_context(Manifest(self.out))
            self.work = replace(
                self.work, sign=held.enter_context(_sign(self.out / f".engine-{self.key.key_id}"))
            )
            self._held = held.pop_all()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._held:
            self._settle()
            if self.reserved:  # they count; the same command goes on under the same reservations
                conclude(dict.fromkeys(list(self.reserved), ()), State.FAILED)
            if kind is None:
                self.manifest.end()
                if not self.left:
                    forget_key(self.name)

    def run(self, jobs: Sequence[Job], at: ItemEngine) -> Iterator[tuple[Job, PrivacyStatement | None]]:
        known = known_names(self.out)
        old = self._old_numbers(jobs, known)
        record_names((job for job in _placed(jobs, old) if job.number not in known), self.out)
        del known
        placed = _placed(jobs, old)
        todo = (
            self._public(placed)
            if self.work.public
            else self._reserved(run_items(at, digest_item, placed, shared=self.work))
        )
        for ended in run_items(at, release_item, todo, shared=self.work, retry=self._again):
            yield from self._notes()
            item = ended.item
            if ended.failure is not None:
                self._fail(item.job, ended.failure.error)
                self._drop(item)
                self.left = True
            else:
                assert ended.result is not None
                self.written.append((item, ended.result))
                if len(self.written) >= BATCH:
                    self._settle()
                yield item.job, ended.result.statement
        self._settle()
        yield from self._notes()

    def _notes(self) -> Iterator[tuple[Job, None]]:
        while self.skipped:
            yield self.skipped.pop(), None

    def _old_numbers(self, jobs: Sequence[Job], known: Mapping[str, str]) -> dict[int, str]:
        """By place: the number that an original has had, unless that is another release's."""
        numbers = {source: number for number, source in known.items()}
        kept: dict[int, str] = {}
        for place, job in enumerate(jobs if numbers else ()):
            old = numbers.get(str(job.source.resolve())) if job.number else None
            if old is not None and (
                self.resumed or not self.work.again or not job.numbered(old).target.exists()
            ):
                kept[place] = old
        return kept

    def _public(self, jobs: Iterable[Job]) -> Iterator[Reserved]:
        for job in jobs:
            if self.resumed and job.target.exists():
                self._skip(job, f"{job.source} is released already, into {job.target}: nothing to do.")
                continue
            try:
                find_output(None, job.target, job.outputs_at)
            except DposeError as error:
                self._fail(job, error)
                continue
            yield Reserved(job, secrets.token_bytes(KEY_BYTES))

    def _reserved(self, digested: Iterator[ItemEnd[Job, Digested]]) -> Iterator[Reserved]:
        """Digested files, reserved `BATCH` at a time; no two of a batch have a picture or frame in common."""
        batch: list[tuple[Digested, ReleaseHistory]] = []
        hashes: set[str] = set()
        for ended in digested:
            if ended.failure is not None or ended.result is None:
                assert ended.failure is not None
                self._fail(ended.item, ended.failure.error)
                continue
            one = ended.result
            own = one.job.original.hashes if one.job.original else ()
            if len(batch) >= BATCH or hashes & set(own):
                yield from self._reserve(batch)
                batch, hashes = [], set()
            if (standing := self._standing(one)) is not None:
                batch.append((one, standing))
                hashes |= set(own)
        yield from self._reserve(batch)

    def _standing(self, one: Digested) -> ReleaseHistory | None:
        """Where the account stands before a file's release; None if it is not to be released."""
        job, original = one.job, one.job.original
        assert original is not None
        same = next((self.busy[name] for name in original.hashes[:2] if name in self.busy), None)
        if same is not None:
            self._skip(job, same_line(job.source, same))
            return None
        charge = replace(one.charge, id=self._id(one))
        found = release_history(charge)
        mine = next((entry for entry in found.before if entry.id == charge.id), None)
        if mine is not None and mine.state is State.RESERVED:  # by this command, before it died
            found = replace(found, before=tuple(_ended(entry, charge.id) for entry in found.before))
        try:
            there = find_output(found, job.target, job.outputs_at, numbered=bool(job.number))
            if there is not None:
                self._skip(job, finished_line(job.source, there))
                return None
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
            self._fail(job, error)
            return None
        self.busy |= dict.fromkeys(original.hashes[:2], job.source)
        return found

    def _reserve(self, batch: Sequence[tuple[Digested, ReleaseHistory]]) -> Iterator[Reserved]:
        new = [(one, found) for one, found in batch if all(e.id != found.charge.id for e in found.before)]
        refused = set[str]()
        try:
            charge_all([found.charge for _, found in new], known=[_states(found) for _, found in new])
        except DposeError:  # what one budget refuses the others may have
            for one, found in new:
                try:
                    charge_all([found.charge], known=[_states(found)])
                except DposeError as error:
                    refused.add(found.charge.id)
                    self._fail(one.job, error)
        for one, found in batch:
            if found.charge.id in refused:
                self._free(one.job)
                continue
            self.reserved[found.charge.id] = found.charge
            yield self._item(one, found)

    def _item(self, one: Digested, found: ReleaseHistory) -> Reserved:
        assert one.job.original is not None
        if found.cut_short:
            _sweep(one.job)
        others = tuple(entry for entry in found.before if entry.id != found.charge.id)
        counted = replace(found, before=others).counted(linked=one.job.original.linked)
        # what travels with a key is small: Ray keeps large arguments in a store that may be written to disk
        charge = replace(found.charge, marks=marks_of(()))
        return Reserved(slight(one.job), self._secret(charge.id), charge, counted, one.plan)

    def _again(self, item: Reserved) -> Reserved:
        """What is released in the place of a file whose worker died."""
        if item.charge is None or item.plan:
            _sweep(item.job)
            return item
        charge = replace(self.reserved[item.charge.id], id=self._fresh_id())
        conclude({item.charge.id: ()}, State.FAILED)
        self.reserved.pop(item.charge.id)
        found = release_history(charge)
        charge_all([charge], known=[_states(found)])
        self.reserved[charge.id] = charge
        return self._item(Digested(item.job, charge, ""), found)

    def _settle(self) -> None:
        """List and commit what was written: a file that is committed is in the list."""
        done, self.written = self.written, []
        for item, made in done:
            self.manifest.add(
                item.job.target, dict(zip(item.job.outputs, made.digests, strict=True)), made.statement
            )
        if done:
            self.manifest.flush()
        conclude({item.charge.id: made.digests for item, made in done if item.charge is not None})
        for item, _ in done:
            if item.charge is not None:
                self.reserved.pop(item.charge.id)
            self._free(item.job)

    def _drop(self, item: Reserved) -> None:
        if item.charge is not None and item.charge.id in self.reserved:
            conclude({item.charge.id: ()}, State.FAILED)
            self.reserved.pop(item.charge.id)
        self._free(item.job)

    def _free(self, job: Job) -> None:
        for name in job.original.hashes[:2] if job.original else ():
            self.busy.pop(name, None)

    def _fail(self, job: Job, error: DposeError) -> None:
        self.failed.append((job, error))
        self.manifest.failed(job.target)
        self.skipped.append(job)

    def _skip(self, job: Job, line: str) -> None:
        self.say(line)
        self.skipped.append(job)

    def _id(self, one: Digested) -> str:
        """A reservation's name: for the same release of the same original by the same code the same one."""
        if not one.plan:
            return self._fresh_id()
        assert one.job.original is not None
        pixels = one.job.original.hashes[1]
        parts = (one.charge.settings, one.plan, worker_code(), pixels)
        said = "\n".join(parts).encode()
        digest = hashlib.blake2b(said, key=self.key.secret, digest_size=16, person=b"dpose/corpus/id")
        return f"{self.key.key_id}-{digest.hexdigest()}"

    def _fresh_id(self) -> str:
        return f"{self.session}-{secrets.token_hex(16)}"

    def _secret(self, name: str) -> bytes:
        return hashlib.blake2b(
            name.encode(), key=self.key.secret, digest_size=KEY_BYTES, person=b"dpose/corpus/key"
        ).digest()


@contextmanager
def _sign(path: Path) -> Iterator[Path]:
    """A file that is there for as long as the block lasts."""
    try:
        path.touch()
    except OSError as error:
        raise explain_os_error(error, path) from error
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _sweep(job: Job) -> None:
    """Remove what a killed worker has left of files that it had begun to write."""
    for path in job.outputs:
        for left in path.parent.glob(f".{glob.escape(path.name)}.*"):
            left.unlink(missing_ok=True)


def _placed(jobs: Sequence[Job], numbers: Mapping[int, str]) -> Iterator[Job]:
    """Jobs as they are taken, those that have had a number with that one."""
    for place, job in enumerate(jobs):
        yield _absolute(job.numbered(numbers[place]) if place in numbers else job)


def _absolute(job: Job) -> Job:
    """A job that a worker in another folder understands."""
    archive = None if job.archive is None else job.archive.absolute()
    return replace(job, source=job.source.absolute(), target=job.target.absolute(), archive=archive)


def _ended(entry: Charge, name: str) -> Charge:
    return replace(entry, state=State.FAILED) if entry.id == name else entry


def _states(found: ReleaseHistory) -> dict[str, State]:
    return {entry.id: entry.state for entry in found.before}
