"""The seal: what an artefact is, in one line that its statement names.

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

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.files import file_digest
from dpose.privacy.entries import GENESIS, Entry, EntryType, read_line
from dpose.privacy.statement import PrivacyStatement

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
        return {
            "statement": dict(self.statement),
            "digests": dict(self.digests),
            "first_weights": self.first_weights,
        }

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
                    "seal-item-added",
                    f"{name} was not there when this was sealed",
                    where,
                    "do not rely on it",
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
        raise DposeError(
            "seal-missing", "the seal that its statement names is missing", where, "do not rely on it"
        )
    entry = read_line(data.removesuffix(b"\n"), (), f"{where}, its seal", alone=True)
    if entry.sha256 != statement.seal:
        raise DposeError(
            "seal-of-other-statement",
            "carries another seal than its statement names",
            where,
            "do not rely on it",
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
        raise DposeError(
            "seal-not-last", "the seal that it names does not end its ledger", where, "do not rely on it"
        )
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
