"""From a bound plan to the statement that its run carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from dpose.errors import DposeError
from dpose.privacy.accounting import epsilon
from dpose.privacy.attackers import bound_attackers
from dpose.privacy.neighbours import BEYOND, Neighbours
from dpose.privacy.queries import Query
from dpose.privacy.sections import (
    SIGNATURE,
    UNSTATED,
    About,
    Deployment,
    PlantedCanaries,
    PublicInput,
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
    """

    public: Sequence[str] = ()
    conditional_on: Sequence[str] = ()
    caveats: Sequence[str] = ()
    about: About = field(default_factory=About)
    inputs: Sequence[PublicInput] = ()

    def __add__(self, other: StatementFacts) -> StatementFacts:
        return StatementFacts(
            (*self.public, *other.public),
            (*self.conditional_on, *other.conditional_on),
            (*self.caveats, *other.caveats),
            self.about if other.about == About() else other.about,
            (*self.inputs, *other.inputs),
        )


def run_statement(
    bound: BoundPlan,
    facts: StatementFacts,
    *,
    seeded: bool,
    head: str,
    counted: int,
    queries: Sequence[Query] = (),
    start: Inherited | None = None,
    tuning: Tuning | None = None,
    canaries: PlantedCanaries | None = None,
) -> PrivacyStatement:
    """The statement of a run as planned.

    Epsilon is the plan's even where the run stopped early: the steps that ran are post-processing of all the
    planned ones, whatever made it stop (docs/proofs/accounting.md). More is claimed where more was counted: a broken
    ledger line stands for the largest reservation that it could have been.

    `head` is the ledger's last hash, `counted` the steps that count by it; events of the runs that `start` comes from
    count, too. With `tuning` the claim is the price of all trials and of the choice.

    Raises:
        DposeError: the run is one of several trials, and its first weights have learnt from the same units.
    """
    plan, start = bound.plan, start or Inherited()
    public = [*start.facts, *facts.public]
    conditional_on = tuple(sorted({*start.conditions, *facts.conditional_on}))
    caveats = (*start.caveats, *facts.caveats)
    if plan.kind.public_views:
        public = ["of every unit its public view and its labels", *public]
    if bound.event is None or bound.epsilon is None:
        return PrivacyStatement(
            kind=Kind.NONE,
            unit=Unit(str(plan.unit)),
            n=bound.n,
            public=tuple(public) if plan.kind.public_views else (),
            conditional_on=conditional_on,  # for runs that start from these weights
            queries=tuple(queries),
            caveats=(*(PUBLIC_ONLY if plan.kind.public_views and not start.whole else ()), *caveats),
            plan_sha256=bound.sha256,
            **_sections(facts),
        )
    event, claimed = bound.event, bound.epsilon
    if counted > event.steps and plan.delta is not None:
        event = replace(event, steps=counted)
        claimed = epsilon([event], plan.delta, relation=plan.relation, accountant=plan.accountant)
    if start.events and plan.delta is not None:
        both = [event, *start.events]
        claimed = epsilon(both, plan.delta, relation=plan.relation, accountant=plan.accountant)
    if tuning and plan.delta is not None:
        if start.events or start.beyond:
            raise DposeError(
                "tuning-first-weights-learnt",
                "a choice among trials has no price where the first weights learnt from the same units",
                "--init",
                "start from other weights",
            )
        claimed = tuning.cost([event], plan.delta, plan.relation)
        caveats = (*CHOSEN, *caveats)
    beyond = plan.kind.public_views or start.beyond
    events, computed = (event, *start.events), dict[str, Any]()
    if plan.delta is not None and claimed is not None and not tuning:
        computed = {
            "attackers": bound_attackers(events, plan.relation, plan.delta),
            "groups": group_section(events, plan.delta, plan.relation, claimed),
        }
    unit = Unit(str(plan.unit))  # which the data have said
    number = "nominal number of units" if plan.nominal_units else "number of units"
    return PrivacyStatement(
        kind=Kind.SEEDED if seeded else Kind.PRIVATE,
        unit=unit,
        neighbours=Neighbours(unit, plan.relation, scope=BEYOND if beyond else "unit"),
        epsilon=claimed,
        delta=plan.delta,
        accountant=plan.accountant,
        n=bound.n,
        public=(f"the {number}, {bound.n:,}", "all settings of the run", *public),
        conditional_on=conditional_on,
        events=events,
        queries=tuple(queries),
        caveats=(*CAVEATS, *caveats),
        ledger_head=head,
        plan_sha256=bound.sha256,
        tuning=tuning,
        side_channels=SIDE_CHANNELS,
        canaries=canaries,
        **computed,
        **_sections(facts, tuning, RELEASED),
    )


def _sections(
    facts: StatementFacts, tuning: Tuning | None = None, released: str = "the final weights"
) -> dict[str, Any]:
    """What the statement says besides its guarantee: of the weights as they are at the end of the run."""
    today = datetime.now(UTC).date().isoformat()
    about = facts.about
    if tuning and about.settings == UNSTATED:
        about = replace(about, settings=CHOSEN_PRIVATELY)
    return {
        "deployment": Deployment.of(about, released, today),
        "inputs": tuple(facts.inputs),
        "signature": SIGNATURE,
    }
