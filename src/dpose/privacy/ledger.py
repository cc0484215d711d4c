"""The append-only record of what has been spent: a JSON object a line, each with the hash of the last one.

    with Ledger.create(folder / "ledger.jsonl", plan.sha256, noise.key_id) as ledger:
        ledger.reserve(event, first_step=0, steps=50)      # before anything is sampled
        ...                                                # 50 steps
        ledger.commit(0, 50)

Steps are reserved before they sample, and a reservation is spent whether or not its steps were finished: a
process that dies may have shown its last step to somebody. The hash of the last line (the head) also stands
in the statement and in the user's state folder, because a chain alone does not show that its end was cut off.

When the run's files are written, a seal binds them (`dpose.privacy.entries`); every later line is followed by a new
one.

A ledger holds against accidents and against quiet editing of a run folder. It does not hold against an owner
who also edits the statement and the state folder; those who run the training cannot be kept from lying about
it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from dpose.errors import DposeError
from dpose.files import explain_os_error, file_json, private_folder, take_lock, write_atomic, write_private
from dpose.privacy.entries import GENESIS, Entry, EntryType, Seal, read_ledger, spent
from dpose.privacy.events import SampledGaussian
from dpose.privacy.keys import state_folder
from dpose.privacy.sections import PlantedCanaries

__all__ = ["Entry", "EntryType", "Ledger", "read_ledger", "spent", "verify_ledger"]


class Ledger:
    """The one writer of a ledger file. Open it with `create` or `append_to`; it stays locked until closed."""

    def __init__(self, path: Path, state_dir: Path | None, first: Entry | None = None) -> None:
        self.path = path
        self._descriptor, self._lock = _open_locked(path) if first is None else _make_locked(path, first)
        self._entries: list[Entry] = [] if first is None else [first]
        self._state_dir = state_dir

    @classmethod
    def create(
        cls, path: Path, plan_sha256: str, key_id: str, state_dir: Path | None = None, run_id: str | None = None
    ) -> Ledger:
        """Start a ledger: it is there with its first line, or not at all.

        Args:
            path: A file that does not exist.
            plan_sha256: Digest of the plan.
            key_id: Public name of the key.
            state_dir: Where the head is kept apart; the user's state folder by default.
            run_id: The run's name, 32 hexadecimal digits; a new one by default.

        Raises:
            DposeError: the file exists or cannot be written, or the head of another ledger of that name is kept.
        """
        run_id = run_id or secrets.token_hex(16)
        if head_kept(run_id, state_dir):
            raise DposeError(
                "ledger-head-differs",
                "this machine keeps the head of another ledger of this run",
                str(path),
                "bring that ledger back, or start a new run",
            )
        first = Entry(
            0, GENESIS, EntryType.OPEN, None, 0, 0, plan_sha256, key_id, run_id, secrets.token_hex(16)
        ).sealed()
        ledger = cls(path, state_dir, first)
        with ledger._closing_on_error():
            _keep_head_apart([first], state_dir)
        return ledger

    @classmethod
    def append_to(cls, path: Path, state_dir: Path | None = None) -> Ledger:
        """Open an existing ledger to add to it, after checking it.

        A last line that was not completely written is replaced by a whole one that counts for it.

        Raises:
            DposeError: the file is missing, damaged, shorter than the head kept apart says, or in use.
        """
        ledger = cls(path, state_dir)
        with ledger._closing_on_error():
            entries = read_ledger(path)
            whole = [entry for entry in entries if not entry.torn]
            _check_head_apart(path, whole, state_dir)
            ledger._entries = whole
            ledger._mend(sum(len(entry.line()) for entry in whole))
            torn = entries[-1]
            if torn.torn and torn.steps:
                ledger._append(
                    EntryType.RESERVE, torn.plan_sha256, torn.key_id, torn.event, torn.first_step, torn.steps
                )
        return ledger

    @property
    def head(self) -> str:
        """Hash of the last line."""
        return self._entries[-1].sha256

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return self._entries[0].run_id

    @property
    def identity(self) -> str:
        """Hash of the first line, which is random: copies of this ledger have it, and no other one."""
        return self._entries[0].sha256

    @property
    def heads(self) -> frozenset[str]:
        """Hashes of all lines."""
        return frozenset(entry.sha256 for entry in self._entries)

    @property
    def spent_steps(self) -> int:
        """How many steps count, each key's apart (`entries.spent`)."""
        return sum(event.steps for event in spent(self._entries))

    def new_steps(self, event: SampledGaussian, first_step: int, steps: int) -> int:
        """How many more steps would count if these were reserved now."""
        plan, key = self._plan_and_key()
        values = replace(event, steps=steps).to_dict()
        entry = Entry(len(self._entries), self.head, EntryType.RESERVE, values, first_step, steps, plan, key)
        return sum(e.steps for e in spent([*self._entries, entry])) - self.spent_steps

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All lines so far."""
        return tuple(self._entries)

    def reserve(self, event: SampledGaussian, first_step: int, steps: int) -> None:
        """Record that `steps` steps may be taken. On disk when this returns; only then may they sample.

        Raises:
            DposeError: it could not be written. Nothing may be sampled then.
        """
        reserved = replace(event, steps=steps)
        self._append(EntryType.RESERVE, *self._plan_and_key(), reserved.to_dict(), first_step, steps)

    def commit(self, first_step: int, steps: int) -> None:
        """Record that reserved steps were taken.

        Raises:
            ValueError: some of them were not reserved.
            DposeError: it could not be written.
        """
        if not any(
            entry.type is EntryType.RESERVE
            and entry.first_step <= first_step
            and first_step + steps <= entry.first_step + entry.steps
            for entry in self._entries
        ):
            raise ValueError(f"steps {first_step} to {first_step + steps} were never reserved")
        self._append(EntryType.COMMIT, *self._plan_and_key(), None, first_step, steps)

    def query(self, description: Mapping[str, Any]) -> None:
        """Record something else that was computed from private data (`statement.Query.to_dict()`).

        Raises:
            DposeError: it could not be written.
        """
        self._append(EntryType.QUERY, *self._plan_and_key(), dict(description))

    def canaries(self, planted: PlantedCanaries) -> None:
        """Record which canaries were planted, and the commitment to their coins. On disk when this returns.

        Raises:
            ValueError: steps were reserved before, so that the coins could have been chosen by what they showed.
            DposeError: it could not be written.
        """
        if any(entry.type is EntryType.RESERVE for entry in self._entries):
            raise ValueError("canaries are committed to before the first step")
        self._append(EntryType.CANARIES, *self._plan_and_key(), planted.to_dict())

    def seal(self, seal: Seal) -> str:
        """Record what the artefact is from here on.

        Returns:
            The line's hash, which the statement must name.

        Raises:
            DposeError: it could not be written.
        """
        self._append(EntryType.SEAL, *self._plan_and_key(), seal.to_dict())
        return self.head

    def resume(self, key_id: str, first_step: int) -> None:
        """Record that a process takes up the run at `first_step` with the key `key_id`.

        Raises:
            DposeError: it could not be written.
        """
        plan = self._entries[-1].plan_sha256
        self._append(EntryType.OPEN, plan, key_id, None, first_step, nonce=secrets.token_hex(16))

    def close(self) -> None:
        """Release the file and its lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._lock.release()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _plan_and_key(self) -> tuple[str, str]:
        return self._entries[-1].plan_sha256, self._entries[-1].key_id

    def _append(
        self,
        kind: EntryType,
        plan_sha256: str,
        key_id: str,
        event: Mapping[str, Any] | None = None,
        first_step: int = 0,
        steps: int = 0,
        nonce: str = "",
    ) -> None:
        if self._descriptor < 0:
            raise ValueError(f"the ledger {self.path} is closed")
        entry = Entry(
            len(self._entries), self.head, kind, event, first_step, steps, plan_sha256, key_id, nonce=nonce
        ).sealed()
        line = entry.line()
        try:
            with _explained(self.path):
                if os.write(self._descriptor, line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(self._descriptor)
        except DposeError:
            self.close()  # what comes after half a line could not be read; `append_to` mends it
            raise
        self._entries.append(entry)
        _keep_head_apart(self._entries, self._state_dir)

    def _mend(self, size: int) -> None:
        """Cut a torn line off, or end a whole last line that lacks only its newline."""
        with _explained(self.path):
            if os.fstat(self._descriptor).st_size < size:
                os.write(self._descriptor, b"\n")
            else:
                os.ftruncate(self._descriptor, size)
            os.fsync(self._descriptor)

    @contextlib.contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise


def verify_ledger(path: Path, expected_head: str, state_dir: Path | None = None) -> list[Entry]:
    """Check a ledger against itself, the head in its statement and the head kept on this machine.

    Args:
        path: The ledger.
        expected_head: The head that the statement carries.
        state_dir: Where heads are kept apart; the user's state folder by default.

    Returns:
        The lines; a torn last one is among them.

    Raises:
        DposeError: a line was altered, removed, reordered or added, or the ledger belongs to another run.
    """
    entries = read_ledger(path)
    whole = [entry for entry in entries if not entry.torn]
    _check_head_apart(path, whole, state_dir)
    hashes = [entry.sha256 for entry in whole]
    if expected_head not in hashes:
        raise DposeError(
            "ledger-end-missing",
            "the line that the statement names as the last is not there; the end was cut off, or the ledger "
            "belongs to another run",
            f"{path}, after line {len(hashes)}",
        )
    if hashes[-1] != expected_head:
        raise DposeError(
            "ledger-longer-than-statement",
            "the ledger goes on after the statement was written",
            f"{path}, line {hashes.index(expected_head) + 2}",
            "the statement does not cover these lines",
        )
    return entries


def keep_head(path: Path, state_dir: Path | None = None) -> None:
    """Keep the head of a whole ledger apart on this machine: of one that was written under another state folder.

    Raises:
        DposeError: the ledger cannot be read, or the state folder not be written.
    """
    _keep_head_apart(read_ledger(path), state_dir)


def head_kept(run_id: str, state_dir: Path | None = None) -> bool:
    """Whether this machine keeps the head of a ledger of the run `run_id`."""
    return _head_file(run_id, state_dir).exists()


@contextlib.contextmanager
def hold_run(run_id: str, state_dir: Path | None = None) -> Iterator[None]:
    """The only process with this state folder that goes on with the run `run_id`, in whichever folder a copy of it is.

    Raises:
        DposeError: another one does, or the state folder cannot be written.
    """
    heads = _head_file(run_id, state_dir).parent
    private_folder(heads)
    lock = take_lock(heads / f".{run_id}.lock")
    if lock is None:
        raise DposeError(
            "run-busy", "another process is at work on this run, in another folder", run_id, "wait for it, or end it"
        )
    try:
        yield
    finally:
        lock.release()


def _make_locked(path: Path, first: Entry) -> tuple[int, FileLock]:
    """A new ledger. One that was made first and written to afterwards would be left empty by a kill between the two."""
    lock = _lock(path)
    try:
        with _explained(path):
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        write_atomic(path, first.line())
        return _open(path), lock
    except BaseException:
        lock.release()
        raise


def _open_locked(path: Path) -> tuple[int, FileLock]:
    descriptor = _open(path)
    try:
        return descriptor, _lock(path)
    except DposeError:
        os.close(descriptor)
        raise


def _open(path: Path) -> int:
    with _explained(path):
        flags = os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DposeError("ledger-not-regular", "the ledger is not a regular file", str(path))
    return descriptor


def _lock(path: Path) -> FileLock:
    # not the ledger itself: where locks bind, as on Windows, a locked file cannot be read
    lock = take_lock(path.with_name(f".{path.name}.lock"))
    if lock is None:
        raise DposeError("ledger-busy", "another process is writing this ledger", str(path), "wait for it, or end it")
    return lock


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise DposeError("ledger-exists", "there is a ledger already", str(path), "choose another folder") from error
    except OSError as error:
        raise explain_os_error(error, path) from error


def _head_file(run_id: str, state_dir: Path | None) -> Path:
    return state_folder(state_dir) / "heads" / f"{run_id}.json"


def _keep_head_apart(entries: Sequence[Entry], state_dir: Path | None) -> None:
    last = entries[-1]
    content = {"run_id": entries[0].run_id, "seq": last.seq, "sha256": last.sha256}
    write_private(_head_file(entries[0].run_id, state_dir), json.dumps(content) + "\n")


def _check_head_apart(path: Path, whole: Sequence[Entry], state_dir: Path | None) -> None:
    file = _head_file(whole[0].run_id, state_dir)
    try:
        kept = file_json(file)
        seq, sha256 = int(kept["seq"]), str(kept["sha256"])
    except FileNotFoundError:
        return  # a run from another machine
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise DposeError("ledger-head-unreadable", "the head kept for this ledger cannot be read", str(file)) from error
    # the ledger may be ahead by the line after which a process died, never behind
    if seq >= len(whole):
        raise DposeError(
            "ledger-cut",
            f"the ledger was cut off: {seq + 1} lines were written on this machine",
            f"{path}, after line {len(whole)}",
        )
    if whole[seq].sha256 != sha256:
        raise DposeError(
            "ledger-line-replaced", "is not the line that was written on this machine", f"{path}, line {seq + 1}"
        )
