"""Does a run folder hold what its statement says? Epsilon, ledger, seal and every file that the seal covers.

for line in verify_run("runs/mpii").lines:
    print(line)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dpose.errors import DposeError
from dpose.files import file_json, file_text, leads_outside, unchanged
from dpose.privacy.entries import Entry, EntryType, plan_digest, spent
from dpose.privacy.ledger import verify_ledger
from dpose.privacy.rounding import upper
from dpose.privacy.scores import FOLDER, check_scores
from dpose.privacy.seal import RUN_FILES, last_seal, run_digests
from dpose.privacy.statement import Kind, PrivacyStatement

UNSEALED = (
    "it has no seal, as runs had none before: that weights, config, card, log and checkpoints are those of this run, "
    "and that the statement's words were not changed, was not checked"
)


@dataclass(frozen=True)
class Verification:
    """What `verify_run` found; it raises where something does not hold.

    Attributes:
        statement: As read.
        spent: Epsilon of everything reserved; None where nothing is claimed or no ledger was read.
        lines: The findings, ready to print.
    """

    statement: PrivacyStatement
    spent: float | None
    lines: tuple[str, ...]


def verify_run(
    folder: str | Path, state_dir: Path | None = None, statement_only: bool = False
) -> Verification:
    """Check a run folder: that its statement adds up, and that its ledger bears the statement out.

    >>> verify_run("no/such/run")
    Traceback (most recent call last):
    dpose.errors.DposeError: no/such/run/privacy.json: there is no readable privacy statement; name
    the folder of a run or model

    Args:
        folder: Holds `privacy.json` and, unless nothing is claimed, `ledger.jsonl`.
        state_dir: Where heads are kept apart; the user's state folder by default.
        statement_only: Accept a folder without its ledger (a published model) and check the arithmetic alone.

    Raises:
        DposeError: something is missing, altered or does not add up; one line that says what.
    """
    names = ("privacy.json", "ledger.jsonl", "config.json")
    with unchanged(*(file for name in names if (file := Path(folder) / name).exists())):
        return _verified(Path(folder), state_dir, statement_only)


def _verified(folder: Path, state_dir: Path | None, statement_only: bool) -> Verification:
    file, ledger = folder / "privacy.json", folder / "ledger.jsonl"
    try:
        text = file_text(file)
    except (OSError, UnicodeDecodeError) as error:
        raise DposeError(
            "there is no readable privacy statement", str(file), "name the folder of a run or model"
        ) from error
    statement = PrivacyStatement.from_json(text, str(file))
    recomputed = statement.verify()
    lines = []
    if recomputed is None:
        lines.append(f"nothing is claimed: the statement is of kind {statement.kind.value}")
    else:
        lines.append(
            f"the recorded events cost epsilon {upper(recomputed, 6)}; {upper(statement.epsilon or 0, 6)} is claimed"
        )
    lines += check_scores(folder, statement.queries, ledger=ledger.exists())
    if statement.tuning and statement.delta is not None:
        sides = statement.tuning.by_side(statement.delta)
        lines.append(
            f"chosen among {len(statement.tuning.settings)} settings from a secret number of trials "
            f"({statement.tuning.law}): the cost is that of all trials and of the choice, "
            f"{upper(sides[0])} for each {statement.unit} that was learnt from and {upper(sides[1])} for each that was "
            "scored, of which the larger is claimed"
        )
    if statement.kind is Kind.SEEDED:
        lines.append("nothing is guaranteed: the noise came from a seed")
    if not ledger.exists():
        if (statement.ledger_head or statement.seal) and not statement_only:
            raise DposeError("the ledger that the statement names is missing", str(ledger))
        if recomputed is not None:
            lines.append("without a ledger: what was really spent was not checked")
        lines.append("without its ledger: its seal was not checked" if statement.seal else UNSEALED)
        return Verification(statement, None, tuple(lines))
    _refuse_links_out(folder)
    entries = verify_ledger(ledger, statement.seal or statement.ledger_head, state_dir)
    _check_belongs(statement, entries, ledger)
    lines += check_sealed(folder, statement, entries)
    cost = None
    if recomputed is not None:
        cost = float(statement.cost(spent(entries)))
        statement.check_claim(cost, "the steps reserved in the ledger")
        steps = sum(event.steps for event in spent(entries))
        lines.append(
            f"the ledger's chain of {len(entries)} lines holds; {steps} reserved steps cost {upper(cost, 6)}"
        )
    if planted := statement.sections.canaries:
        lines.append(
            f"{int(planted.count):,} {planted.kind} canaries were committed to before the first step: "
            f"{planted.commitment}"
        )
    if entries[-1].torn:
        lines.append("the ledger's last line is not complete; it was counted as one more reservation")
    return Verification(statement, cost, tuple(lines))


def check_sealed(folder: Path, statement: PrivacyStatement, entries: Sequence[Entry]) -> list[str]:
    """Refuse a folder whose statement or files are not those that its ledger's last line seals.

    Args:
        folder: The run folder.
        statement: As it stands there.
        entries: Its ledger's lines, checked.

    Returns:
        What was found, ready to print; what could not be checked is among it.

    Raises:
        DposeError: something differs; names it.
    """
    where, ledger = str(folder / "privacy.json"), str(folder / "ledger.jsonl")
    seal = last_seal(entries, ledger)
    if not statement.seal:
        if seal:
            raise DposeError("its ledger has a seal that it does not name", where, "do not rely on it")
        return [UNSEALED]
    last = next(entry for entry in entries if entry.sha256 == statement.seal)
    if seal is None or last.type is not EntryType.SEAL or last.prev != statement.ledger_head:
        raise DposeError("names a line as its seal that is none", where, "do not rely on it")
    seal.check_statement(statement, where)
    found = run_digests(folder)
    seal.check_digests(found, str(folder))
    missing = sorted(set(seal.digests) - set(found))
    needed = [name for name in missing if name in RUN_FILES and name != "log.jsonl"]
    if needed:
        raise DposeError("was sealed and is missing", str(folder / needed[0]))
    _check_plan(folder, statement)
    lines = [f"the seal holds: statement, plan and {len(found)} files are those that were sealed"]
    if missing:
        lines.append(f"not here any more, and not checked: {', '.join(missing)}")
    return lines


def _refuse_links_out(folder: Path) -> None:
    """Refuse a folder whose files lie elsewhere: whoever is given it does not get them, or others change them."""
    for file in (
        *(folder / name for name in RUN_FILES),
        folder / "privacy.json",
        folder / "ledger.jsonl",
        *sorted((folder / "checkpoints").glob("step-*/*")),
        *sorted((folder / FOLDER).glob("*.json")),
    ):
        if leads_outside(file, folder):
            raise DposeError("is a link out of its folder", str(file), "copy what it links to into its place")


def _check_plan(folder: Path, statement: PrivacyStatement) -> None:
    """Refuse a config whose plan is not the one that ledger and statement name, or not the one that was counted."""
    path = folder / "config.json"
    try:
        run = file_json(path)["run"]
        plan, bound = run["plan"], run["bound"]
        digest = plan_digest(plan, bound["n"], bound["steps"], bound["event"])
        n, event, unit = bound["n"], bound["event"], plan["unit"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DposeError("does not hold the run's plan", str(path), "do not rely on it") from error
    if digest != statement.plan_sha256:
        raise DposeError("holds another plan than statement and ledger name", str(path), "do not rely on it")
    stated = [{**one.to_dict(), "steps": 0} for one in statement.events]
    if n != statement.n or unit != statement.unit or (event and {**event, "steps": 0} not in stated):
        raise DposeError("its plan is not what the statement counts", str(path), "do not rely on it")


def _check_belongs(statement: PrivacyStatement, entries: Sequence[Entry], ledger: Path) -> None:
    for number, entry in enumerate(entries, 1):
        if entry.plan_sha256 != statement.plan_sha256:
            raise DposeError("belongs to another plan than the statement", f"{ledger}, line {number}")
    _check_canaries(statement, entries, ledger)
    recorded = [entry.event for entry in entries if entry.type is EntryType.QUERY]
    stated = [query.to_dict() for query in statement.queries]
    if recorded != stated:
        raise DposeError(
            f"records {len(recorded)} queries of private data; the statement lists {len(stated)}, or others",
            str(ledger),
        )


def _check_canaries(statement: PrivacyStatement, entries: Sequence[Entry], ledger: Path) -> None:
    """Refuse a commitment that is not the ledger's, or that was made when steps had been reserved already."""
    planted = statement.sections.canaries
    committed = [entry for entry in entries if entry.type is EntryType.CANARIES]
    if [entry.event for entry in committed] != ([planted.to_dict()] if planted else []):
        raise DposeError(
            "its canaries are not those that the statement names", str(ledger), "do not rely on it"
        )
    reserved = [entry.seq for entry in entries if entry.type is EntryType.RESERVE]
    if committed and reserved and committed[0].seq > reserved[0]:
        raise DposeError(
            "canaries were committed to after training had begun", f"{ledger}, line {committed[0].seq + 1}"
        )
