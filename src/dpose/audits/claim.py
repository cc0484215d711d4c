"""Audits of a released model: by anyone who holds its folder and the opening of what was committed to before training.

The auditor scores every canary by the final weights, guesses which were in, opens the coins and counts. Nothing is
trained, and no private picture is read.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dpose.audits.findings import Adversary, AuditReport, weigh
from dpose.audits.noise_family import Family
from dpose.errors import DposeError
from dpose.files import check_free, file_json
from dpose.privacy.canaries import Opening, kept_opening
from dpose.privacy.entries import read_ledger
from dpose.privacy.events import SampledGaussian, event_from_dict
from dpose.privacy.ranges import lower, upper
from dpose.privacy.sections import PlantedCanaries
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.runs.canaries import canary_scores
from dpose.runs.tasks import task_entry, task_of
from dpose.runs.verify import verify_run

NO_MARKS = "a model cannot be audited if its canaries were not committed to before it was trained"
EVERY_COIN = "somebody who was told every coin"
"""The control: the most that so many canaries can show."""
THREAT_MODEL = {
    "gradient": (
        "has the released folder alone: final weights, statement and ledger, no update on the way to them; knows which "
        "weight every canary pushes, and what it was before training"
    ),
    "input": (
        "has the released model alone and asks it for losses; knows the canaries' pictures and labels, and what their "
        "losses were before training"
    ),
}
SUPPOSES = {
    "gradient": "supposes that a weight that was pushed has fallen further",
    "input": "supposes that the loss of a canary that is in fell further",
}


def audit_claim(
    folder: Path, opening: Path | None, *, alpha: float = 0.05, commitment: str | None = None
) -> AuditReport:
    """Test what the statement of a released model claims by the canaries that were planted before training.

    Args:
        folder: The run folder, with its ledger, as it was sealed.
        opening: The file that opens the commitment in its statement.
        alpha: Probability that a true claim is refuted.
        commitment: What the auditor was given before training; None to take the folder's word that it is this one.
    """
    if not 0 < alpha < 1:
        raise DposeError("level-out-of-range", f"the level must lie between 0 and 1, not {alpha}", "--alpha")
    statement = verify_run(folder).statement
    planted = _planted(statement, folder)
    if commitment is not None and commitment.lower() != planted.commitment:
        raise DposeError(
            "commitment-differs",
            "its statement holds another commitment than the one given: coins may have been chosen after training",
            str(folder),
            "do not rely on it",
        )
    if opening is None:
        raise DposeError(
            "opening-not-published",
            f"{NO_MARKS}, and these are not opened yet",
            "--opening",
            "ask those who trained it: dpose audit opening",
        )
    opened = Opening.read(opening)
    opened.check(planted, str(opening))
    event = _event(statement, folder)
    assert statement.epsilon is not None
    assert statement.delta is not None
    assert statement.neighbours is not None
    family = Family(event, statement.delta, statement.neighbours.relation)
    included, adversary = np.array(opened.coins), _adversary(folder, opened)
    found = weigh([adversary], included, family, float(statement.epsilon), alpha)
    spare = None if adversary.absent is None else np.zeros_like(adversary.absent)
    informed = Adversary(EVERY_COIN, included.astype(float), calibration=spare, absent=spare)
    control = weigh([informed], included, family, float(statement.epsilon), alpha)
    return AuditReport(
        title=f"Audit of the claim of {folder.resolve().name}, epsilon {upper(float(statement.epsilon))}",
        claim=_claim(statement, event, folder),
        threat_model=THREAT_MODEL[opened.kind],
        canaries={
            "kind": f"{opened.kind} canaries",
            "count": len(included),
            "included": int(included.sum()),
            "coins": "independent, fair, committed to before training",
            "commitment": planted.commitment,
        },
        seed=None,
        alpha=alpha,
        planted="",
        findings=found,
        controls={EVERY_COIN: control},
        family=family,
        notes=_notes(opened, control.bound, commitment is not None, alpha),
    )


def hand_over(folder: Path, out: Path) -> Opening:
    """Read what this machine keeps to open the commitment of the run in `folder`, checked against its statement.

    Args:
        folder: The run folder.
        out: Where it is to be written; must not exist.
    """
    check_free(out)
    statement = verify_run(folder).statement
    planted = _planted(statement, folder)
    opening = kept_opening(read_ledger(folder / "ledger.jsonl")[0].run_id)
    if opening is None:
        raise DposeError(
            "opening-missing",
            "its opening is not on this machine",
            str(folder),
            "it lies in the state folder of the user who trained it",
        )
    opening.check(planted, str(folder))
    return opening


def _planted(statement: PrivacyStatement, folder: Path) -> PlantedCanaries:
    planted = statement.canaries
    if planted is None:
        raise DposeError("commitment-missing", NO_MARKS, str(folder), "train with canaries.count")
    if statement.kind is not Kind.PRIVATE:
        raise DposeError(
            "claim-missing",
            f"a statement of kind {statement.kind.value} claims nothing that could be refuted",
            str(folder),
        )
    if not (folder / "ledger.jsonl").exists():  # a published model: `verify_run` refuses it where one was sealed
        raise DposeError("ledger-missing", "has no ledger, so that nothing binds its canaries to it", str(folder))
    return planted


def _event(statement: PrivacyStatement, folder: Path) -> SampledGaussian:
    """The event that a canary was in: this run's, of all that the statement counts."""
    own = file_json(folder / "config.json")["run"]["bound"]["event"]  # `verify_run` has checked it
    event = event_from_dict(own, kind=SampledGaussian)
    events = [one for one in statement.events if isinstance(one, SampledGaussian)]
    return next(one for one in events if replace(one, steps=event.steps) == event)


def _adversary(folder: Path, opened: Opening) -> Adversary:
    entry = task_entry(task_of(folder))
    m = len(opened.coins)
    after = canary_scores(entry.load(folder), entry, opened.kind, opened.made_from, m)
    if len(after) != len(opened.before):
        raise DposeError("opening-of-other-canaries", "has scores of other canaries", "the opening")
    fallen = np.array(opened.before) - after
    spare = fallen[m:] if opened.kind == "input" or len(fallen) > m else fallen[:0]
    return Adversary(
        SUPPOSES[opened.kind],
        fallen[:m],
        calibration=spare[::2] if len(spare) > 1 else None,
        absent=spare[1::2] if len(spare) > 1 else None,
    )


def _claim(statement: PrivacyStatement, event: SampledGaussian, folder: Path) -> dict[str, Any]:
    """The claim of a released statement, in the form of `claim_of`."""
    plan = file_json(folder / "config.json")["run"]["plan"]
    assert statement.neighbours is not None
    return {
        "method": plan["method"],
        "epsilon": float(statement.epsilon or 0),
        "delta": statement.delta,
        "relation": statement.neighbours.relation.value,
        "accountant": statement.accountant.value if statement.accountant else "",
        "unit": statement.unit.value,
        "n": statement.n,
        "event": event.to_dict(),
        "plan_sha256": statement.plan_sha256,
    }


def _notes(opened: Opening, most: float, known_before: bool, alpha: float) -> list[str]:
    count = f"{len(opened.coins):,}"
    when = (
        "The commitment is the one that the auditor was given before training."
        if known_before
        else "That the commitment was made before training rests on the folder's own ledger. An auditor who does not "
        "trust those who trained it must have been given the commitment before (--commitment)."
    )
    return [
        "An audit shows a lower bound. A claim that is not refuted is not proved by that.",
        f"With {count} canaries this audit shows no more than epsilon {lower(most, places=2)}, not even to somebody "
        "who knows every coin: the control. A claim above that cannot be refuted by it. It guesses as many in as out, "
        "so that very uneven coins show less.",
        when,
        "Those who train can leave canaries out, or train something else: an audit finds accidents, not lies.",
        "Canaries are not real people; their coins are open now. The guarantee of all others holds with coins known.",
        "Both tests assume nothing but the guarantee and fair coins. Rates at false alarms describe and prove nothing: "
        "canaries may depend on each other through the weights.",
        f"All bounds hold together, with confidence {lower(1 - alpha)}.",
    ]
