"""The lines of a ledger: what one holds, how it is hashed, and how a file of them is read and checked.

The seal: what an artefact is, in one line that its statement names.

    seal = Seal.of(statement, digests={"model.safetensors": ..., "config.json": ...}, first_weights=...)
    sealed = replace(statement, seal=ledger.seal(seal))         # a run: the last line of its ledger
    sealed, line = sealed_alone(statement, {"sums": ...})       # a release: a line that travels with the statement

A statement is words beside a file. The seal binds the two: it repeats the whole statement (less the fields that name
the seal itself) and holds the digest of every file, or of the released sums. Anyone who changes one of them must change
the seal, whose hash stands in the statement, and in a run also in the ledger's chain. What differs is named.

**What it cannot show**: who made it, and whether they told the truth from the start. There is no secret in it;
anyone who rewrites the files, the statement and the seal together has made another artefact, which is whole in itself.
It holds digests of what is released and of settings, and never one of private data.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.files import file_bytes, file_digest
from dpose.privacy.events import SampledGaussian, event_from_dict, merge
from dpose.privacy.statement import PrivacyStatement

GENESIS = "0" * 64
"""What stands as `prev` in the first line."""

FIELDS = ("seq", "prev", "type", "event", "first_step", "steps", "plan_sha256", "key_id")


class EntryType(StrEnum):
    """What a line records."""

    RESERVE = "reserve"
    """Steps that may be taken from now on; spent."""
    COMMIT = "commit"
    """Reserved steps that were taken."""
    QUERY = "query"
    """Something else that was computed from private data."""
    OPEN = "open"
    """A process took up the run; the first line is one and names the run."""
    CANARIES = "canaries"
    """Canaries that were planted, and the commitment to which of them are in: before anything is reserved."""
    SEAL = "seal"
    """What the artefact is, from here on (`dpose.privacy.entries`). The statement names the last one."""


@dataclass(frozen=True)
class Entry:
    """One line.

    Attributes:
        seq: 0 for the first line.
        prev: `sha256` of the line before.
        type: What it records.
        event: A reservation's event as its `to_dict` has it; a query's description; planted canaries; a seal;
            otherwise None.
        first_step: First step reserved or committed.
        steps: How many; 0 for queries and resumptions.
        plan_sha256: Digest of the plan.
        key_id: Public name of the key in use.
        run_id: Name of the run, in the first line only; empty in others.
        nonce: 32 random hexadecimal digits, in lines of type `OPEN` only: two ledgers of one name, and two copies of
            one ledger that are both taken up, have no line in common from there on.
        sha256: Hash of the line without this field.
        torn: The line was not completely written; it stands for the largest reservation that it could be.
    """

    seq: int
    prev: str
    type: EntryType
    event: Mapping[str, Any] | None
    first_step: int
    steps: int
    plan_sha256: str
    key_id: str
    run_id: str = ""
    nonce: str = ""
    sha256: str = ""
    torn: bool = False

    def sealed(self) -> Entry:
        """The same with its hash."""
        return replace(self, sha256=hashlib.sha256(_canonical(self._content())).hexdigest())

    def line(self) -> bytes:
        """The line, with its newline."""
        return _canonical({**self._content(), "sha256": self.sha256}) + b"\n"

    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = {name: getattr(self, name) for name in FIELDS}
        content |= {name: value for name in ("run_id", "nonce") if (value := getattr(self, name))}
        return content


def read_ledger(path: Path) -> list[Entry]:
    """Read a ledger and check every line: its fields, number and hash, and that it follows the one before.

    A last line that does not end (the machine stopped while writing it) is not damage: it comes back as one
    more reservation, `torn`, as large as the largest before it. Nothing can have been sampled under it,
    because `Ledger.reserve` had not returned; it counts all the same.

    Raises:
        DposeError: the file cannot be read or is empty, or a line is wrong; names the line.
    """
    try:
        raw = file_bytes(path)
    except OSError as error:
        raise DposeError(
            "ledger-unreadable", "the ledger cannot be read: " + (error.strerror or str(error)), str(path)
        ) from error
    entries: list[Entry] = []
    *lines, rest = raw.split(b"\n")
    for number, line in enumerate(lines, 1):
        entries.append(read_line(line, entries, f"{path}, line {number}"))
    if rest:
        try:
            entries.append(read_line(rest, entries, str(path)))
        except DposeError:
            if not entries:
                raise DposeError(
                    "ledger-first-line-cut", "the ledger's first line is not complete", str(path)
                ) from None
            entries.append(_torn(entries))
    if not entries:
        raise DposeError("ledger-empty", "the ledger is empty", str(path))
    return entries


def spent(entries: Sequence[Entry]) -> tuple[SampledGaussian, ...]:
    """Every step that was ever reserved, taken or not, as events; equal ones are joined.

    A step that is reserved again under the same key counts once: under one key a step has one sample and one noise, and
    anyone who takes it again gets what is there already (docs/proofs/resume.md). Under another key it counts again.
    """
    events: list[SampledGaussian] = []
    covered: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for entry in entries:
        if entry.type is not EntryType.RESERVE or entry.event is None:
            continue
        event = event_from_dict(entry.event, kind=SampledGaussian)
        # by everything but the number of steps: a replay with other noise would be another mechanism
        kind = json.dumps({**entry.event, "steps": 0}, sort_keys=True)
        known = covered.setdefault((entry.key_id, kind), [])
        span = (entry.first_step, entry.first_step + entry.steps)
        if new := _outside(span, known):
            events.append(replace(event, steps=new))
        known.append(span)
    return merge(events)


def _outside(span: tuple[int, int], known: Sequence[tuple[int, int]]) -> int:
    """How many steps of `span` lie in none of `known`."""
    left = [span]
    for start, end in known:
        pieces = [piece for a, b in left for piece in ((a, min(b, start)), (max(a, end), b))]
        left = [(a, b) for a, b in pieces if a < b]
    return sum(b - a for a, b in left)


def read_line(line: bytes, before: Sequence[Entry], where: str, *, alone: bool = False) -> Entry:
    """Read and check one line.

    Args:
        line: Without its newline.
        before: The lines before it.
        where: For errors.
        alone: It is a seal that is no ledger's: its first line, which names no run.

    Raises:
        DposeError: it is no entry, was altered, or does not follow the one before.
    """
    try:
        values = json.loads(line)
        run_id = values.pop("run_id", "")
        values["type"] = EntryType(values["type"])
        entry = Entry(**values, run_id=run_id)
        written = entry.line()  # JSON has no NaN, which Python reads all the same
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DposeError("ledger-entry-invalid", "is not a ledger entry; the ledger was altered", where) from error
    # the same bytes again: no second spelling of a line, no field twice, no torn flag from outside
    if entry.torn or written != line + b"\n" or entry.sealed().sha256 != entry.sha256:
        raise DposeError("ledger-entry-altered", "does not match its own hash; the ledger was altered", where)
    if entry.seq != len(before) or entry.prev != (before[-1].sha256 if before else GENESIS):
        raise DposeError(
            "ledger-order-broken", "does not follow the line before it; lines were removed or reordered", where
        )
    if not _well_formed(entry, first=not before and not alone) or (alone and entry.type is not EntryType.SEAL):
        raise DposeError("ledger-field-invalid", "has a field of the wrong type or out of range", where)
    if entry.type is EntryType.RESERVE:
        event = event_from_dict(entry.event or {}, where, SampledGaussian)
        if event.steps != entry.steps:
            raise DposeError("ledger-steps-differ", f"reserves {entry.steps} steps of an event of {event.steps}", where)
    return entry


def _well_formed(entry: Entry, first: bool) -> bool:
    counts = (entry.first_step, entry.steps)
    return (
        all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in counts)
        and isinstance(entry.plan_sha256, str)
        and isinstance(entry.key_id, str)
        and isinstance(entry.event, dict)
        == (entry.type in (EntryType.RESERVE, EntryType.QUERY, EntryType.CANARIES, EntryType.SEAL))
        and bool(entry.run_id) == first
        and isinstance(entry.nonce, str)
        and bool(re.fullmatch("[0-9a-f]{32}" if entry.type is EntryType.OPEN else "", entry.nonce))
        # the run's name becomes a file name
        and (not first or (entry.type is EntryType.OPEN and bool(re.fullmatch("[0-9a-f]{32}", entry.run_id))))
    )


def _torn(before: Sequence[Entry]) -> Entry:
    reserved = [entry for entry in before if entry.type is EntryType.RESERVE]
    largest = max(reserved, key=lambda entry: entry.steps, default=None)
    last = before[-1]
    return Entry(
        seq=len(before),
        prev=last.sha256,
        type=EntryType.RESERVE,
        event=largest.event if largest else None,
        first_step=reserved[-1].first_step + reserved[-1].steps if reserved else 0,
        steps=largest.steps if largest else 0,
        plan_sha256=last.plan_sha256,
        key_id=last.key_id,
        torn=True,
    )


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


def plan_digest(plan: Mapping[str, Any], n: int, steps: int, event: Any) -> str:
    """The `plan_sha256` of ledger and statement: of the settings and of what was fixed by them, as JSON values."""
    content = {"plan": dict(plan), "n": n, "steps": steps, "event": event}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


NEEDED = ("model.safetensors", "config.json", "README.md")
"""What a run folder always holds beside its statement and ledger."""
RUN_FILES = (*NEEDED, "log.jsonl")
"""What a run's seal covers besides its checkpoints."""
OUTSIDE = ("ledger_head", "seal")
"""Fields of a statement that name the seal, or the line before it."""


@dataclass(frozen=True)
class Seal:
    """What an artefact is.

    Attributes:
        statement: The statement's fields as JSON, less `OUTSIDE`.
        digests: SHA-256, hexadecimal, by name: of a run folder's files, by their paths in it; of a release's sums.
        first_weights: SHA-256 of the file of weights that training began with; "" if there was none.
    """

    statement: Mapping[str, Any] = field(repr=False)
    digests: Mapping[str, str]
    first_weights: str = ""

    @classmethod
    def of(cls, statement: PrivacyStatement, digests: Mapping[str, str], first_weights: str = "") -> Seal:
        """The seal of `statement` and of what it lies beside."""
        return cls(_fields(statement), dict(sorted(digests.items())), first_weights)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"statement": dict(self.statement), "digests": dict(self.digests), "first_weights": self.first_weights}

    @classmethod
    def from_dict(cls, values: Any, where: str) -> Seal:
        """The seal that `to_dict` wrote.

        Raises:
            DposeError: it is none.
        """
        try:
            digests = {str(name): str(digest) for name, digest in values["digests"].items()}
            if set(values) != {"statement", "digests", "first_weights"}:
                raise KeyError("another field")
            return cls(dict(values["statement"]), digests, str(values["first_weights"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DposeError("seal-malformed", "is not a seal", where) from error

    def check_statement(self, statement: PrivacyStatement, where: str) -> None:
        """Refuse a statement that differs from the sealed one in any field.

        Raises:
            DposeError: it does; names the field.
        """
        found = _fields(statement)
        for name in sorted({*found, *self.statement}):
            ours, sealed = found.get(name), self.statement.get(name)
            if ours != sealed:
                raise DposeError(
                    "seal-value-differs",
                    f"{name} is not what was sealed: {_short(ours)} stands there, {_short(sealed)} was sealed",
                    where,
                    "do not rely on it",
                )

    def check_digests(self, digests: Mapping[str, str], where: str) -> None:
        """Refuse an artefact whose files or sums are not those that were sealed.

        Args:
            digests: Of what is there; sealed ones that are not among them are not compared.
            where: The artefact, for the error.

        Raises:
            DposeError: one differs or was not sealed; names it.
        """
        for name, digest in digests.items():
            if name not in self.digests:
                raise DposeError(
                    "seal-item-added", f"{name} was not there when this was sealed", where, "do not rely on it"
                )
            if digest != self.digests[name]:
                raise DposeError(
                    "seal-file-altered",
                    f"{name} is not the one that was sealed; it was altered or exchanged",
                    where,
                    "do not rely on it",
                )


def sealed_alone(statement: PrivacyStatement, digests: Mapping[str, str]) -> tuple[PrivacyStatement, bytes]:
    """Seal an artefact that has no ledger: a release.

    Args:
        statement: What it carries.
        digests: Of what is released, by name.

    Returns:
        The statement with its seal's hash, and the seal as a ledger's first line, with its newline. Both must travel
        with the artefact.
    """
    seal = Seal.of(statement, digests)
    entry = Entry(0, GENESIS, EntryType.SEAL, seal.to_dict(), 0, 0, statement.plan_sha256, "").sealed()
    return replace(statement, seal=entry.sha256), entry.line()


def open_seal(statement: PrivacyStatement, line: bytes | str, where: str) -> Seal:
    """The seal of a release, checked against the statement that names it.

    Args:
        statement: As it stands in the artefact.
        line: As `sealed_alone` gave it; empty if the artefact has none.
        where: The artefact, for errors.

    Raises:
        DposeError: the seal is missing, altered, another one's, or the statement is not the sealed one.
    """
    data = line.encode() if isinstance(line, str) else line
    if not data.strip():
        raise DposeError("seal-missing", "the seal that its statement names is missing", where, "do not rely on it")
    entry = read_line(data.removesuffix(b"\n"), (), f"{where}, its seal", alone=True)
    if entry.sha256 != statement.seal:
        raise DposeError(
            "seal-of-other-statement", "carries another seal than its statement names", where, "do not rely on it"
        )
    seal = Seal.from_dict(entry.event, f"{where}, its seal")
    seal.check_statement(statement, where)
    return seal


def last_seal(entries: Sequence[Entry], where: str) -> Seal | None:
    """The last seal among a ledger's lines; None if there is none.

    Raises:
        DposeError: a line of that type holds no seal.
    """
    found = [entry for entry in entries if entry.type is EntryType.SEAL]
    return Seal.from_dict(found[-1].event, f"{where}, line {found[-1].seq + 1}") if found else None


def check_stated(folder: Path) -> None:
    """Refuse a run's folder whose statement is gone: what is made of its model would say nothing of it.

    Raises:
        DposeError: it holds a ledger and no statement.
    """
    if (folder / "ledger.jsonl").exists() and not (folder / "privacy.json").exists():
        raise DposeError(
            "statement-gone", "holds a run's ledger and no statement", str(folder), "bring its privacy.json back"
        )


def check_sealed(folder: Path, statement: PrivacyStatement, entries: Sequence[Entry]) -> Seal:
    """Refuse a run folder whose statement or files are not those that its ledger's last line seals.

    Args:
        folder: The run folder.
        statement: As it stands there.
        entries: Its ledger's lines, checked.

    Returns:
        The seal. Log and checkpoints that it covers may have been removed since.

    Raises:
        DposeError: there is no seal, or something differs from it or is missing; names it.
    """
    where, ledger = str(folder / "privacy.json"), str(folder / "ledger.jsonl")
    seal = last_seal(entries, ledger)
    if seal is None or not statement.seal:
        which = "its ledger has no seal" if statement.seal else "it names no seal"
        code = "ledger-without-seal" if statement.seal else "statement-without-seal"
        raise DposeError(code, f"nothing binds the statement to its run: {which}", where, "do not rely on it")
    last = [entry for entry in entries if not entry.torn][-1]
    if (last.type, last.sha256, last.prev) != (EntryType.SEAL, statement.seal, statement.ledger_head):
        raise DposeError("seal-not-last", "the seal that it names does not end its ledger", where, "do not rely on it")
    seal.check_statement(statement, where)
    found = run_digests(folder)
    seal.check_digests(found, str(folder))
    for name in NEEDED:
        if name not in found:
            raise DposeError("sealed-file-missing", "was sealed and is missing", str(folder / name))
    return seal


def run_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of the files of a run folder that a seal covers, by their paths in it: those of them that are there.

    The report and the evaluations are not among them: both are made again at any time.

    Raises:
        DposeError: one of them cannot be read.
    """
    files = [folder / name for name in RUN_FILES]
    files += sorted((folder / "checkpoints").glob("step-*/*"))
    found = {}
    for file in files:
        try:
            if file.is_file():
                found[file.relative_to(folder).as_posix()] = file_digest(file)
        except OSError as error:
            raise DposeError("file-unreadable", f"cannot be read ({error.strerror})", str(file)) from error
    return found


def _fields(statement: PrivacyStatement) -> dict[str, Any]:
    return {name: value for name, value in statement.to_dict().items() if name not in OUTSIDE}


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
