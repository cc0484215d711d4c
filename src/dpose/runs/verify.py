"""Does a run folder hold what its statement says? Epsilon, ledger, seal, files, and all that follows from its plan.

for line in verify_run("runs/mpii").lines:
    print(line)

Ledger and seal are chains of hashes without a secret: anyone who edits a run folder can write both anew. So whatever
follows from plan, configuration and ledger is computed again here and compared with what stands in statement and card.
docs/threat-model.md says of every field of a statement whether it is computed again, or bound by the seal alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.files import file_json, file_text, leads_outside, unchanged
from dpose.privacy.entries import RUN_FILES, Entry, EntryType, check_sealed, spent
from dpose.privacy.ledger import verify_ledger
from dpose.privacy.ranges import upper
from dpose.privacy.scores import FOLDER, check_scores
from dpose.privacy.statement import Kind, PrivacyStatement, software_versions
from dpose.runs.verify_plan import check_follows
from dpose.training.first_weights import FIRST, covers, first_weights_of
from dpose.training.folder import json_objects, model_card
from dpose.training.plan import BoundPlan


@dataclass(frozen=True)
class Verification:
    """What `verify_run` found; it raises where something does not hold.

    Attributes:
        statement: As read.
        spent: Epsilon of everything reserved; None if nothing is claimed.
        lines: The findings, ready to print.
    """

    statement: PrivacyStatement
    spent: float | None
    lines: tuple[str, ...]


def verify_run(folder: str | Path, state_dir: Path | None = None) -> Verification:
    """Check a run folder: that its statement adds up, and that plan, configuration, ledger and files bear it out.

    >>> verify_run("no/such/run")
    Traceback (most recent call last):
    dpose.errors.DposeError: no/such/run/privacy.json: there is no readable privacy statement; name
    the folder of a run or model

    Args:
        folder: Holds `privacy.json`, `ledger.jsonl` and what the ledger's last line seals.
        state_dir: Where heads are kept apart; the user's state folder by default.

    Raises:
        DposeError: something is missing, altered or does not add up; one line that says what.
    """
    names = ("privacy.json", "ledger.jsonl", "config.json", "README.md")
    with unchanged(*(file for name in names if (file := Path(folder) / name).exists())):
        return _verified(Path(folder), state_dir)


def _verified(folder: Path, state_dir: Path | None) -> Verification:
    file, ledger = folder / "privacy.json", folder / "ledger.jsonl"
    try:
        text = file_text(file)
    except (OSError, UnicodeDecodeError) as error:
        said = "there is no readable privacy statement"
        raise DposeError("statement-missing", said, str(file), "name the folder of a run or model") from error
    statement = PrivacyStatement.from_json(text, str(file))
    if not ledger.exists():
        raise DposeError(
            "ledger-missing", "the ledger is missing: without it nothing binds the statement to this model", str(ledger)
        )
    recomputed = statement.verify()
    _refuse_links_out(folder)
    entries = verify_ledger(ledger, statement.seal or statement.ledger_head, state_dir)
    _check_belongs(statement, entries, ledger)
    seal = check_sealed(folder, statement, entries)
    lines = _findings(statement, recomputed, entries)
    lines += check_scores(folder, statement.queries)
    config, plan = check_follows(folder, statement, seal, entries)
    _check_log(folder / "log.jsonl", plan, entries, config)
    _check_checkpoints(folder, plan, statement.plan_sha256, entries)
    _check_watched(folder, statement)
    _check_card(folder, statement, config)
    here = [name for name in seal.digests if (folder / name).is_file()]
    lines.append(f"the seal holds: statement, plan and {len(here)} files are those that were sealed")
    lines.append("what follows from plan, configuration and ledger stands in statement and card")
    if "data" not in config["run"]:
        lines.append("the configuration names no data, as of a program's run: what they ask for was not checked")
    if gone := sorted(set(seal.digests) - set(here)):
        lines.append(f"not here any more, and not checked: {', '.join(gone)}")
    cost = None if recomputed is None else float(statement.cost(spent(entries)))
    if entries[-1].torn:
        lines.append("the ledger's last line is not complete; it was counted as one more reservation")
    return Verification(statement, cost, tuple(lines))


def _findings(statement: PrivacyStatement, recomputed: float | None, entries: Sequence[Entry]) -> list[str]:
    """What the recorded events and the ledger cost, ready to print."""
    if recomputed is None:
        return [f"nothing is claimed: the statement is of kind {statement.kind.value}"]
    lines = [f"the recorded events cost epsilon {upper(recomputed, 6)}; {upper(statement.epsilon or 0, 6)} is claimed"]
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
    cost = float(statement.cost(spent(entries)))
    statement.check_claim(cost, "the steps reserved in the ledger")
    steps = sum(event.steps for event in spent(entries))
    reserved = "1 reserved step costs" if steps == 1 else f"{steps} reserved steps cost"
    lines.append(f"the ledger's chain of {len(entries)} lines holds; {reserved} {upper(cost, 6)}")
    if planted := statement.canaries:
        lines.append(
            f"{int(planted.count):,} {planted.kind} canaries were committed to before the first step: "
            f"{planted.commitment}"
        )
    return lines


def _refuse_links_out(folder: Path) -> None:
    """Refuse a folder whose files lie elsewhere: a copy of it lacks them, and others may change them."""
    for file in (
        *(folder / name for name in RUN_FILES),
        folder / "privacy.json",
        folder / "ledger.jsonl",
        *sorted((folder / "checkpoints").glob("step-*/*")),
        *sorted((folder / FOLDER).glob("*.json")),
    ):
        if leads_outside(file, folder):
            raise DposeError(
                "file-link-escapes", "is a link out of its folder", str(file), "copy what it links to into its place"
            )


def _check_belongs(statement: PrivacyStatement, entries: Sequence[Entry], ledger: Path) -> None:
    for number, entry in enumerate(entries, 1):
        if entry.plan_sha256 != statement.plan_sha256:
            raise DposeError(
                "ledger-of-other-plan", "belongs to another plan than the statement", f"{ledger}, line {number}"
            )
    _check_canaries(statement, entries, ledger)
    recorded = [entry.event for entry in entries if entry.type is EntryType.QUERY]
    stated = [query.to_dict() for query in statement.queries]
    if recorded != stated:
        raise DposeError(
            "statement-queries-differ",
            f"records {len(recorded)} queries of private data; the statement lists {len(stated)}, or others",
            str(ledger),
        )


def _check_canaries(statement: PrivacyStatement, entries: Sequence[Entry], ledger: Path) -> None:
    """Refuse a commitment that is not the ledger's, or that was made when steps had been reserved already."""
    planted = statement.canaries
    committed = [entry for entry in entries if entry.type is EntryType.CANARIES]
    if [entry.event for entry in committed] != ([planted.to_dict()] if planted else []):
        said = "its canaries are not those that the statement names"
        raise DposeError("statement-canaries-differ", said, str(ledger), "do not rely on it")
    reserved = [entry.seq for entry in entries if entry.type is EntryType.RESERVE]
    if committed and reserved and committed[0].seq > reserved[0]:
        raise DposeError(
            "canaries-committed-late",
            "canaries were committed to after training had begun",
            f"{ledger}, line {committed[0].seq + 1}",
        )


def _check_log(log: Path, bound: BoundPlan, entries: Sequence[Entry], config: Mapping[str, Any]) -> None:
    """Refuse the log of another run or of other first weights, or one with steps not reserved under their key."""
    first, lines = config["run"][FIRST], json_objects(log)
    for was in first_weights_of(lines, log):
        if was["sha256"] != first["sha256"] or not covers(first["events"], was["events"]):
            raise DposeError(
                "log-of-other-weights",
                "began with other first weights than the run says",
                str(log),
                "do not rely on it",
            )
    reserved = [(e.key_id, e.first_step, e.first_step + e.steps) for e in entries if e.type is EntryType.RESERVE]
    under = None
    for line in lines:
        under, step = line.get("key_id", under), line.get("step")
        begun = {name: line.get(name) for name in ("n", "steps")}
        other = line.get("type") == "start" and begun != {"n": bound.n, "steps": bound.steps}
        if line.get("type") == "step" and bound.event is not None:
            other = not (isinstance(step, int) and any(k == under and a < step <= b for k, a, b in reserved))
        if other:
            raise DposeError(
                "log-of-other-run", "is not the log of this plan and ledger", str(log), "do not rely on it"
            )


def _check_checkpoints(folder: Path, bound: BoundPlan, plan_sha256: str, entries: Sequence[Entry]) -> None:
    """Refuse the checkpoint of another run: of another plan or step, or written beside another ledger."""
    heads = [entry.sha256 for entry in entries] if bound.event is not None else [""]
    for path in sorted((folder / "checkpoints").glob("step-*/state.json")):
        state: Any = None
        with contextlib.suppress(OSError, ValueError):
            state = file_json(path)
        said = [state.get(name) for name in ("step", "plan_sha256")] if isinstance(state, dict) else []
        own = [int(path.parent.name[5:]), plan_sha256] if path.parent.name[5:].isdigit() else None
        if said != own or state.get("ledger_head") not in heads:
            raise DposeError(
                "checkpoint-of-other-run", "is not a checkpoint of this run", str(path), "do not rely on it"
            )


def _check_watched(folder: Path, statement: PrivacyStatement) -> None:
    """Refuse a run whose log or evaluations hold scores of private data that its statement does not list."""
    log, listed = folder / "log.jsonl", [query.data for query in statement.queries]
    scores = [line for line in json_objects(log) if line.get("type") == "score"]
    files = [(path, each) for path in sorted((folder / FOLDER).glob("*.json")) for each in json_objects(path)]
    for path, score in [*((log, score) for score in scores), *files]:
        private, name = score.get("public") is False, str(score.get("data"))
        if private and not any(data == name or data.startswith(f"{name}, ") for data in listed):
            raise DposeError(
                "score-not-in-statement",
                f"holds a score of private data that the statement does not list: {name}",
                str(path),
                "do not rely on it",
            )


def _check_card(folder: Path, statement: PrivacyStatement, config: Mapping[str, Any]) -> None:
    """Refuse a model card that is not the one that statement and configuration give."""
    path = folder / "README.md"
    try:
        found = file_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise DposeError("file-unreadable", "cannot be read", str(path), "do not rely on it") from error
    if found != model_card(replace(statement, seal=""), config):
        wrote, own = statement.software.get("dpose", ""), software_versions()["dpose"]
        other = f": dpose {wrote} wrote it, check it with that" if wrote != own else ""
        raise DposeError(
            "card-differs",
            f"is not the card that follows from statement and configuration{other}",
            str(path),
            "do not rely on it",
        )
