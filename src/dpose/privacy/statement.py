"""The privacy statement: what an artefact guarantees, to whom, and what it does not.

    statement = PrivacyStatement.from_json(Path("runs/mpii/privacy.json").read_text())
    statement.verify()              # recomputes epsilon from the recorded events
    print(statement.paragraph())

Numbers that the guarantee rests on (epsilon, delta and the events' sampling rates, noise multipliers and
sensitivities) are decimal strings in JSON and read back exactly. A release with exact integer noise has fractions
there ("4080/7"); where its guarantee is pure differential privacy, delta is 0 and epsilon adds up exactly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PlainSerializer, PlainValidator, ValidationInfo, WithJsonSchema, model_validator

from dpose.errors import DposeError
from dpose.files import parsed_json
from dpose.interpreter import version_of
from dpose.privacy.accounting import Accountant, cost
from dpose.privacy.attackers import FALSE_POSITIVES, AttackerBound, bound_attackers, loss_grid, true_positives
from dpose.privacy.events import Event, Gaussian, Laplace, SampledGaussian, StatedEvent, merge
from dpose.privacy.fields import (
    EXACT,
    JSON,
    Decimal,
    Positive,
    StatementPart,
    Text,
    optional,
    schema_of,
    statement_part,
)
from dpose.privacy.neighbours import BEYOND, BOX, Neighbours, StatedNeighbours
from dpose.privacy.ranges import check_delta, check_epsilon, exact_text, not_below, parse_decimal, parse_exact, upper
from dpose.privacy.sections import (
    MOST,
    About,
    AuditResult,
    Deployment,
    GroupEpsilon,
    GroupResult,
    PlantedCanaries,
    PublicInput,
    Query,
    check_groups,
    group_section,
    largest_loss,
)
from dpose.privacy.tuning import Tuning, check_choosable
from dpose.privacy.words import DETAILS_ONLY, StatementWords, without_warnings, worded
from dpose.units import Unit

if TYPE_CHECKING:
    from dpose.privacy.tradeoff import TradeOff

SCHEMA = 3
"""Schema number of statements in JSON."""
WEAK_ODDS = 50
"""A guarantee under which an alarm may raise the odds more often than this is called weak."""
SLACK = 1e-6
"""A claim may lie this far below the recomputed epsilon, relatively: last digits differ between builds."""

FLOATING_POINT_CAVEAT = (
    "the proof is for real numbers and ideal random bits; the noise comes from AES-256, is drawn and added "
    "in 64-bit floating point and rounded once, which makes the known attacks on floating-point noise far "
    "harder, but it is not an exact discrete mechanism"
)


class Kind(StrEnum):
    """What sort of claim a statement makes."""

    PRIVATE = "private"
    """A differential privacy guarantee."""
    SEEDED = "seeded"
    """The mechanism of one, with noise from a seed that can be known: none."""
    PAPER = "paper"
    """A published method repeated for comparison, whose own claim does not hold: none."""
    NONE = "none"
    """No guarantee and no claim of one."""


def software_versions(*more: str) -> dict[str, str]:
    """Versions of the packages that a guarantee depends on, and of `more` that an artefact does."""
    names = ("dpose", "dp-accounting", "cryptography", "torch", "numpy", "scipy", *more)
    return {name: version_of(name) for name in names}


# both are read by `PrivacyStatement._json`, which knows unit and accountant
NeighboursField = Annotated[
    Neighbours, PlainValidator(lambda value: value), PlainSerializer(Neighbours.stated, return_type=StatedNeighbours)
]
EpsilonField = Annotated[
    float | Fraction,
    PlainValidator(lambda value: value),
    PlainSerializer(lambda value: exact_text(value) if isinstance(value, Fraction) else repr(float(value))),
    WithJsonSchema({"type": "string", "pattern": EXACT}),
]


@statement_part
class PrivacyStatement(StatementPart):
    """What is guaranteed about an artefact.

    A statement with events of floating-point Gaussian noise always carries `FLOATING_POINT_CAVEAT`.

    >>> statement = PrivacyStatement(Kind.NONE, unit="image")
    >>> PrivacyStatement.from_json(statement.to_json()) == statement
    True
    >>> statement.verify() is None  # nothing is claimed
    True

    Attributes:
        kind: private, seeded, paper or none; only the first guarantees anything.
        unit: What is protected, a word of `Unit`: image, crop, subject, video; pixel in a release.
        neighbours: The neighbouring relation; None if nothing is claimed.
        epsilon: Total for the whole artefact; None if nothing is claimed. A fraction under the accountant
            "pure".
        delta: As epsilon. 0 under the accountant "pure", and only there.
        accountant: How epsilon was computed; None if nothing is claimed.
        n: Number of units; nominal under add-or-remove. None if units are not counted.
        public: What the guarantee treats as public.
        conditional_on: What it takes as given besides.
        events: The noised releases that epsilon is computed from.
        queries: What else was computed from private data.
        caveats: What the reader must know.
        software: Versions by package.
        ledger_head: The ledger's last hash; empty without a ledger.
        plan_sha256: The plan's digest; empty without a plan.
        release: How a picture or clip was released: its configuration and sizes (`dpose.release.record`), or what
            else there is to say of it by name; empty for anything else.
        odometer: Of a release that was counted: how many `releases` of its original there were with this one, and
            their `epsilon` and `delta` together for `pixels` pixels; empty for anything else.
        artefact_sha256: Digest of the artefact that carries the statement, without the statement; empty if
            the statement is not bound to one.
        seal: Hash of the line that binds this statement to its artefact (`dpose.privacy.entries`); empty if none does.
        tuning: How the run was chosen among a random number of trials; epsilon is then the price of them all and of the
            choice, and `n` counts the units that trials train on. None if it was not.
        deployment: Who releases what.
        attackers: What no attacker can do, by the whole trade-off curve.
        groups: The epsilon of 1, 2, ... units of one person.
        inputs: What is public among what went in.
        audits: What audits showed.
        canaries: Which were planted before training, for anyone who audits the artefact; None if none were.
        results: Scores by groups of people.
        side_channels: Ways around the guarantee that it does not cover.
        signature: The file in which a signature would lie.

    Raises:
        DposeError: the fields contradict each other or are out of range; names the field.
    """

    kind: Kind
    unit: Unit
    neighbours: NeighboursField | None = None
    epsilon: EpsilonField | None = None
    delta: Decimal | None = None
    accountant: Accountant | None = None
    n: Positive | None = None
    public: tuple[Text, ...] = ()
    conditional_on: tuple[Text, ...] = ()
    events: tuple[StatedEvent, ...] = ()
    queries: tuple[Query, ...] = ()
    caveats: tuple[Text, ...] = ()
    software: Mapping[Text, Text] = field(default_factory=software_versions)
    ledger_head: Text = ""
    plan_sha256: Text = ""
    release: Mapping[Text, Any] = optional(default={})
    odometer: Mapping[Text, Text] = optional(default={})
    artefact_sha256: Text = optional(default="")
    seal: Text = optional(default="")
    tuning: Tuning | None = optional(default=None)
    deployment: Deployment | None = optional(default=None)
    attackers: AttackerBound | None = optional(default=None)
    groups: tuple[GroupEpsilon, ...] = optional(default=())
    inputs: tuple[PublicInput, ...] = optional(default=())
    audits: tuple[AuditResult, ...] = optional(default=())
    canaries: PlantedCanaries | None = optional(default=None)
    results: tuple[GroupResult, ...] = optional(default=())
    side_channels: tuple[Text, ...] = optional(default=())
    signature: Text = optional(default="")

    @model_validator(mode="before")
    @classmethod
    def _json(cls, values: Any, info: ValidationInfo) -> Any:
        """Neighbours take their unit from the statement; epsilon is a fraction under the accountant "pure" alone."""
        if info.context != JSON or not isinstance(values, dict):
            return values
        near, claimed, unit = values.get("neighbours"), values.get("epsilon"), str(values.get("unit"))
        if isinstance(near, dict) and unit in tuple(Unit):
            near = Neighbours.read(near, unit)
        if claimed is not None:
            parse = parse_exact if values.get("accountant") == Accountant.PURE else parse_decimal
            claimed = parse(claimed, "epsilon")
        return {**values, "neighbours": near, "epsilon": claimed}

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            check_epsilon(float(self.epsilon))
        pure = self.accountant is Accountant.PURE
        if pure and not (isinstance(self.epsilon, Fraction) and self.delta == 0):
            raise DposeError(
                "delta-not-zero", "pure differential privacy has an exact epsilon and delta 0", "accountant"
            )
        if self.delta is not None and not pure:
            check_delta(self.delta, self.n)
        if self.kind is Kind.NONE and (self.epsilon is not None or self.events):
            raise DposeError(
                "statement-none-claims", "a statement of kind none claims no epsilon and has no events", "kind"
            )
        if self.kind in (Kind.PRIVATE, Kind.SEEDED):
            for name in ("neighbours", "epsilon", "delta", "accountant", "events"):
                if getattr(self, name) in (None, ()):
                    raise DposeError(
                        "statement-field-missing", f"is missing from a statement of kind {self.kind.value}", name
                    )
        for event in self.events:
            if isinstance(event, Laplace | Gaussian) and (event.pixels or event.points):
                raise DposeError(
                    "event-fields-wrong", "is for the statement's own neighbours, and says no pixels", "events"
                )
        if self.tuning is not None:
            if self.kind is not Kind.PRIVATE or self.neighbours is None or self.accountant is None:
                raise DposeError("tuning-of-non-private", "only a private run is chosen at a price", "tuning")
            check_choosable(self.neighbours.relation, self.accountant)
        if self.neighbours is not None:
            _check_neighbours(self)
        if not all(event.rounded for event in self.sampled_events) and FLOATING_POINT_CAVEAT not in self.caveats:
            object.__setattr__(self, "caveats", (*self.caveats, FLOATING_POINT_CAVEAT))

    @property
    def sampled_events(self) -> tuple[SampledGaussian, ...]:
        """The events of a training."""
        return tuple(event for event in self.events if isinstance(event, SampledGaussian))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"schema": SCHEMA, **super().to_dict()}

    def to_json(self) -> str:
        """The statement as JSON, ending in a newline."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str = "privacy statement") -> PrivacyStatement:
        """The statement that `to_json` wrote.

        Args:
            text: JSON.
            where: The file, for error messages.

        Raises:
            DposeError: it is no statement, was made by a newer dpose, or a field is missing, unknown or
                wrong.
        """
        try:
            values = parsed_json(text)
            json.dumps(values, ensure_ascii=False).encode()  # half a pair of surrogates is no text
        except ValueError as error:
            raise DposeError("statement-not-json", f"is not JSON ({error})", where) from error
        schema = values.pop("schema", None) if isinstance(values, dict) else None
        if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
            raise DposeError("statement-without-schema", "is not a privacy statement: it has no schema number", where)
        if schema != SCHEMA:
            newer = "made by a newer dpose" if schema > SCHEMA else "made by a dpose that was never released"
            raise DposeError("statement-newer", f"has schema {schema}: {newer}", where, "use the dpose that made it")
        try:
            statement = cls.read(values)
        except DposeError as error:
            raise DposeError(error.code, error.line(), where) from error
        return statement

    def with_query(self, query: Query) -> PrivacyStatement:
        """The same statement with one query more."""
        return replace(self, queries=(*self.queries, query))

    def deployed(self, about: About, released: str) -> PrivacyStatement:
        """The same of something that is released today, with what its curator says of it.

        What is made from a seed has no date: it can be made again, to the last bit, on any day.

        Args:
            about: What was said.
            released: What leaves the building, where the statement does not say so yet.
        """
        today = "" if self.kind is Kind.SEEDED else datetime.now(UTC).date().isoformat()
        before = self.deployment
        return replace(self, deployment=Deployment.of(about, before.released if before else released, today))

    def several(self) -> tuple[GroupEpsilon, ...]:
        """The epsilon of 1 to 10 times what a release protects; nothing if that is unknown.

        Sensitivities are norms: k times as many pixels move a release by at most k times as far.
        """
        neighbours = self.neighbours
        if self.kind not in (Kind.PRIVATE, Kind.SEEDED) or neighbours is None or self.epsilon is None:
            return ()
        if not self.release or neighbours.scope == BOX:
            return ()
        if not all(isinstance(event, Laplace | Gaussian) for event in self.events):
            return ()
        costs = [self.cost([event.times(k) for event in self.events]) for k in range(2, MOST + 1)]
        return tuple(GroupEpsilon(k, not_below(cost)) for k, cost in enumerate([self.epsilon, *costs], 1))

    def verify(self) -> float | None:
        """Recompute epsilon from the events and compare it with the claim, and what else follows from the events.

        Returns:
            The recomputed epsilon; None for the kinds paper and none, which have nothing to add up.

        Raises:
            DposeError: the events cost more than is claimed, or a part says less than follows from them.
        """
        spent = self.verify_claim()
        self.verify_sections()
        return spent

    def verify_claim(self) -> float | None:
        """`verify` of epsilon alone.

        Raises:
            DposeError: the events cost more than is claimed.
        """
        if self.kind in (Kind.PAPER, Kind.NONE):
            return None
        spent = self.cost(self.events)
        self.check_claim(spent, "the recorded events")
        return float(spent)

    def verify_sections(self) -> None:
        """`verify` of what the statement says about attackers and about several units.

        Raises:
            DposeError: a part says less than follows from the events.
        """
        if self.kind in (Kind.PAPER, Kind.NONE) or not (self.attackers or self.groups):
            return
        if self.release and self.attackers is None:
            check_groups(self.groups, self.several(), SLACK)
            return
        counted, near, delta = self.sampled_events, self.neighbours, self.delta
        if self.tuning or len(counted) < len(self.events) or near is None or not delta:
            raise DposeError(
                "sections-not-computable", "its sections say more than can be computed again", "privacy statement"
            )
        if self.attackers is not None:
            true = bound_attackers(counted, near.relation, delta)
            if true is None:
                raise DposeError("attacker-bound-missing", "have no bound", "attackers", "do not rely on it")
            self.attackers.check(true, SLACK)
        if self.groups:
            spent = float(self.cost(self.events))
            check_groups(self.groups, group_section(counted, delta, near.relation, spent), SLACK)

    def cost(self, events: Sequence[Event]) -> float | Fraction:
        """Epsilon of `events` under the statement's own relation, accountant and delta.

        Raises:
            DposeError: the statement claims nothing, so that there is nothing to compute it by.
        """
        if self.neighbours is None or self.delta is None or self.accountant is None:
            raise DposeError(
                "statement-without-epsilon", f"a statement of kind {self.kind.value} has no epsilon to recompute"
            )
        if self.tuning is None:
            return cost(events, self.delta, self.neighbours.relation, self.accountant)
        counted = [event for event in events if isinstance(event, SampledGaussian)]
        if len(counted) < len(events):
            raise DposeError("accountant-unsuited", "choosing among trials cannot count the events of a release")
        return self.tuning.cost(merge(counted), self.delta, self.neighbours.relation)

    def check_claim(self, spent: float | Fraction, what: str) -> None:
        """Refuse a claim below what was spent. Fractions are compared exactly, other numbers within `SLACK`.

        Raises:
            DposeError: `spent` exceeds the claimed epsilon.
        """
        slack = 0 if isinstance(spent, Fraction) and isinstance(self.epsilon, Fraction) else SLACK
        if self.epsilon is None or not spent <= self.epsilon * (1 + slack):
            raise DposeError(
                "statement-does-not-add-up",
                f"does not add up: it claims epsilon {self.epsilon}, but {what} cost {upper(spent, 6)}",
                "privacy statement",
                "do not rely on it",
            )

    @property
    def tpr_bound(self) -> float:
        """Upper bound on an attacker's true-positive rate at 1 % false alarms, by the run's whole curve if known."""
        if self.attackers is not None:
            return self.attackers.rates[FALSE_POSITIVES]
        return true_positives(float(self.epsilon or 0), self.delta or 0.0)

    @property
    def is_weak(self) -> bool:
        """True if an alarm may raise the odds 50 times: at 1 % false alarms, or at fewer by the whole curve."""
        if self.attackers is None:
            return self.tpr_bound > WEAK_ODDS * FALSE_POSITIVES
        found = self.attackers.rates
        return any(most > WEAK_ODDS * rate for rate, most in found.items() if rate <= FALSE_POSITIVES)

    def attacker_curve(self) -> TradeOff:
        """Upper bound on any attacker at every rate of false alarms, by the recorded events or the claim alone."""
        from dpose.privacy.tradeoff import approximate, of_events

        if self.attackers is None or self.neighbours is None:
            return approximate(float(self.epsilon or 0), self.delta or 0.0)
        events = self.sampled_events
        return of_events(events, self.neighbours.relation, grid=loss_grid(events))

    def words(self) -> StatementWords:
        """The statement in plain English, in parts."""
        near, events, bound, caveats = self.neighbours, self.sampled_events, self.tpr_bound, self.caveats
        if self.tuning is not None:
            events = (*events, self.tuning.score)
            if not self.tuning.score.rounded and FLOATING_POINT_CAVEAT not in caveats:
                caveats = (*caveats, FLOATING_POINT_CAVEAT)  # not among what was sealed in earlier versions
        numbers = {
            "s": self,
            "claims": None not in (near, self.epsilon, self.delta),
            "of_units": near is not None and near.of_units,
            "beyond": near is not None and near.scope == BEYOND,
            "few_pixels": DETAILS_ONLY in self.caveats,
            "given": without_warnings(self.conditional_on),
            "caveats": without_warnings(caveats),
            "tpr_bound": bound,
            "odds": bound / FALSE_POSITIVES,
            "alarms": f"{FALSE_POSITIVES:.0%}",
            "weak": self.epsilon is not None and self.is_weak,
            "exact_noise": any(event.rounded for event in events),
            "floating_noise": not all(event.rounded for event in events),
            "groups": self.groups or self.several(),
            "worst": largest_loss(self.results),
        }
        return worded(numbers, (*self.caveats, *self.conditional_on))

    def paragraph(self) -> str:
        """The statement in plain English, for an ethics board as much as for an engineer."""
        return self.words().text()


def statement_schema() -> dict[str, Any]:
    """The JSON Schema of statements, which follows from `PrivacyStatement`."""
    found = schema_of(PrivacyStatement, "dpose privacy statement")
    found["properties"] = {"schema": {"const": SCHEMA}, **found["properties"]}
    found["required"] = ["schema", *found["required"]]
    return found


def _check_neighbours(statement: PrivacyStatement) -> None:
    near = statement.neighbours
    if not isinstance(near, Neighbours) or not near.settled:
        raise DposeError("neighbours-unresolved", "a statement says how many pixels and frames", "neighbours")
    if near.unit != statement.unit:
        raise DposeError(
            "unit-differs", f"its neighbours differ in one {near.unit}, not in one {statement.unit}", "unit"
        )
    if not near.of_units and statement.sampled_events:
        raise DposeError("scope-not-of-training", f"is none of a training: {near.scope!r}", "neighbours.scope")
