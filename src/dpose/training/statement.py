"""From a bound plan to the statement that its run carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from dpose.errors import DposeError
from dpose.privacy.accounting import epsilon
from dpose.privacy.attackers import bound_attackers
from dpose.privacy.events import SampledGaussian
from dpose.privacy.neighbours import BEYOND, Neighbours
from dpose.privacy.sections import (
    SIGNATURE,
    UNSTATED,
    About,
    Deployment,
    PlantedCanaries,
    PublicInput,
    Query,
    group_section,
)
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.privacy.tuning import Tuning
from dpose.training.first_weights import Inherited
from dpose.training.plan import BoundPlan
from dpose.units import Unit

CAVEATS = (
    "copies count as one unit where their contents are equal to the last bit; one that was saved again, resized or "
    "cropped is a unit of its own, and what is stated for one does not hold for both together",
    "settings chosen by looking at earlier runs on the same units cost extra; those runs' epsilons add up",
)


CHOSEN_PRIVATELY = "by private selection: epsilon covers the grid's trials, however many, and the choice"
RELEASED = "the final weights (epsilon covers every iterate, checkpoints and noised updates too)"
SIDE_CHANNELS = (
    "how long a step takes depends on how many units were drawn; timing is not covered",
    "anyone who reads the memory or the disk of the machine that trains reads the private data; this is not covered",
)
"""Ways around the guarantee of a run."""
CHOSEN = (
    "how long choosing took tells how many trials there were, and so does what a disk still holds of them; neither is "
    "covered",
)
"""What a reader of the statement of a run that was chosen must know besides."""


PUBLIC_ONLY = (
    "only the public views of the units and their labels were read: the rest of the pictures had no influence",
)
"""What a reader of a statement without a claim must know where the data had public views."""


@dataclass(frozen=True)
class StatementFacts:
    """Lines for a run's statement.

    Attributes:
        public: Facts that the guarantee treats as public (where the first weights are from, ...).
        conditional_on: What the guarantee takes as given.
        caveats: What the reader must know besides `CAVEATS`.
        about: Who releases the model, and why so.
        inputs: What is public among what went in.
        date: Of the statement, YYYY-MM-DD; "" for the day on which it is made.
    """

    public: Sequence[str] = ()
    conditional_on: Sequence[str] = ()
    caveats: Sequence[str] = ()
    about: About = field(default_factory=About)
    inputs: Sequence[PublicInput] = ()
    date: str = ""

    def __add__(self, other: StatementFacts) -> StatementFacts:
        return StatementFacts(
            (*self.public, *other.public),
            (*self.conditional_on, *other.conditional_on),
            (*self.caveats, *other.caveats),
            self.about if other.about == About() else other.about,
            (*self.inputs, *other.inputs),
            self.date or other.date,
        )


@dataclass(frozen=True)
class LedgerRecord:
    """What a run's ledger says at its end.

    Attributes:
        head: Its last hash; empty without a ledger.
        counted: How many steps count by it.
        queries: What was measured on private data without noise.
        canaries: What was planted among the units.
    """

    head: str = ""
    counted: int = 0
    queries: Sequence[Query] = ()
    canaries: PlantedCanaries | None = None


def run_statement(
    bound: BoundPlan,
    facts: StatementFacts,
    record: LedgerRecord,
    *,
    seeded: bool,
    start: Inherited | None = None,
    tuning: Tuning | None = None,
) -> PrivacyStatement:
    """The statement of a run as planned.

    Epsilon is the plan's even where the run stopped early: the steps that ran are post-processing of all the
    planned ones, whatever made it stop (docs/proofs/accounting.md). More is claimed where more was counted: a broken
    ledger line stands for the largest reservation that it could have been.

    Events of the runs that `start` comes from count, too. With `tuning` the claim is the price of all trials and of the
    choice.
    """
    plan, start, unit = (bound.plan, start or Inherited(), Unit(str(bound.plan.unit)))  # which the data have said
    views = plan.kind.public_views
    public = [*(["of every unit its public view and its labels"] if views else []), *start.facts, *facts.public]
    common: dict[str, Any] = {
        "unit": unit,
        "n": bound.n,
        "conditional_on": tuple(sorted({*start.conditions, *facts.conditional_on})),
        "queries": tuple(record.queries),
        "plan_sha256": bound.sha256,
    }
    caveats = (*start.caveats, *facts.caveats)
    if bound.event is None or bound.epsilon is None:
        return PrivacyStatement(
            kind=Kind.NONE,
            public=tuple(public) if views else (),
            caveats=(*(PUBLIC_ONLY if views and not start.whole else ()), *caveats),
            **common,  # conditions too, for runs that start from these weights
            **_sections(facts),
        )
    assert plan.delta is not None
    events, claimed = _claimed(bound, record, start, tuning)
    computed = dict[str, Any]()
    if not tuning:
        computed = {
            "attackers": bound_attackers(events, plan.relation, plan.delta),
            "groups": group_section(events, plan.delta, plan.relation, claimed),
        }
    number = "nominal number of units" if plan.nominal_units else "number of units"
    beyond = views or start.beyond
    return PrivacyStatement(
        kind=Kind.SEEDED if seeded else Kind.PRIVATE,
        neighbours=Neighbours(unit, plan.relation, scope=BEYOND if beyond else "unit"),
        epsilon=claimed,
        delta=plan.delta,
        accountant=plan.accountant,
        public=(f"the {number}, {bound.n:,}", "all settings of the run", *public),
        events=events,
        caveats=(*CAVEATS, *(CHOSEN if tuning else ()), *caveats),
        ledger_head=record.head,
        tuning=tuning,
        side_channels=SIDE_CHANNELS,
        canaries=record.canaries,
        **common,
        **computed,
        **_sections(facts, tuning, RELEASED),
    )


def _claimed(
    bound: BoundPlan, record: LedgerRecord, start: Inherited, tuning: Tuning | None
) -> tuple[tuple[SampledGaussian, ...], float]:
    """The events of a run and of those that its first weights come from, and the epsilon of all together."""
    plan, event, claimed = bound.plan, bound.event, bound.epsilon
    assert event is not None
    assert claimed is not None
    assert plan.delta is not None
    if record.counted > event.steps:
        event = replace(event, steps=record.counted)
    events = (event, *start.events)
    if tuning:
        if start.events or start.beyond:
            raise DposeError(
                "tuning-first-weights-learnt",
                "a choice among trials has no price where the first weights learnt from the same units",
                "--init",
                "start from other weights",
            )
        return events, tuning.cost(events, plan.delta, plan.relation)
    if events != (bound.event,):
        claimed = epsilon(events, plan.delta, relation=plan.relation, accountant=plan.accountant)
    return events, claimed


def _sections(
    facts: StatementFacts, tuning: Tuning | None = None, released: str = "the final weights"
) -> dict[str, Any]:
    """What the statement says besides its guarantee: of the weights as they are at the end of the run."""
    today = facts.date or datetime.now(UTC).date().isoformat()
    about = facts.about
    if tuning and about.settings == UNSTATED:
        about = replace(about, settings=CHOSEN_PRIVATELY)
    return {"deployment": Deployment.of(about, released, today), "inputs": tuple(facts.inputs), "signature": SIGNATURE}
