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
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from fractions import Fraction
from typing import Any

from dpose.errors import DposeError
from dpose.interpreter import version_of
from dpose.privacy.accounting import Accountant, cost
from dpose.privacy.events import Event, Gaussian, Laplace, SampledGaussian, event_from_dict, merge
from dpose.privacy.group_privacy import MOST
from dpose.privacy.json_fields import (
    list_of,
    member_of,
    named_texts_of,
    object_of,
    object_with,
    text_of,
    texts_of,
)
from dpose.privacy.neighbours import BOX, Neighbours
from dpose.privacy.queries import Query
from dpose.privacy.ranges import check_delta, check_epsilon, exact_text, parse_decimal, parse_exact
from dpose.privacy.rounding import not_below, upper
from dpose.privacy.sections import About, Deployment, GroupEpsilon, Sections
from dpose.privacy.tuning import Tuning, check_choosable
from dpose.units import Unit

SCHEMA = 2
"""Of statements in JSON."""
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


@dataclass(frozen=True)
class PrivacyStatement:
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
        neighbours: The neighbouring relation; None where nothing is claimed.
        epsilon: Total for the whole artefact; None where nothing is claimed. A fraction under the accountant
            "pure".
        delta: As epsilon. 0 under the accountant "pure", and only there.
        accountant: How epsilon was computed; None where nothing is claimed.
        n: Number of units; nominal under add-or-remove. None where units are not counted.
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
        artefact_sha256: Digest of the artefact that carries the statement, without the statement; empty where
            the statement is not bound to one.
        seal: Hash of the line that binds this statement to its artefact (`dpose.privacy.seal`); empty where none does.
        tuning: How the run was chosen among a random number of trials; epsilon is then the price of them all and of the
            choice, and `n` counts the units that trials train on. None where it was not.
        sections: What it says besides (`dpose.privacy.sections`): in JSON fields of the statement itself.

    Raises:
        DposeError: the fields contradict each other or are out of range; names the field.
    """

    kind: Kind
    unit: str
    neighbours: Neighbours | None = None
    epsilon: float | Fraction | None = None
    delta: float | None = None
    accountant: Accountant | None = None
    n: int | None = None
    public: tuple[str, ...] = ()
    conditional_on: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    queries: tuple[Query, ...] = ()
    caveats: tuple[str, ...] = ()
    software: Mapping[str, str] = field(default_factory=software_versions)
    ledger_head: str = ""
    plan_sha256: str = ""
    release: Mapping[str, Any] = field(default_factory=dict)
    odometer: Mapping[str, str] = field(default_factory=dict)
    artefact_sha256: str = ""
    seal: str = ""
    tuning: Tuning | None = None
    sections: Sections = field(default_factory=Sections)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", member_of(Kind, self.kind, "kind"))
        if self.accountant is not None:
            object.__setattr__(self, "accountant", member_of(Accountant, self.accountant, "accountant"))
        if self.n is not None and (isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1):
            raise DposeError("n-not-positive", f"must be a whole number of at least 1, not {self.n!r}", "n")
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
                "statement-none-claims",
                "a statement of kind none claims no epsilon and has no events",
                "kind",
            )
        if self.kind in (Kind.PRIVATE, Kind.SEEDED):
            for name in ("neighbours", "epsilon", "delta", "accountant", "events"):
                if getattr(self, name) in (None, ()):
                    raise DposeError(
                        "statement-field-missing",
                        f"is missing from a statement of kind {self.kind.value}",
                        name,
                    )
        if self.tuning is not None:
            if self.kind is not Kind.PRIVATE or self.neighbours is None or self.accountant is None:
                raise DposeError("tuning-of-non-private", "only a private run is chosen at a price", "tuning")
            check_choosable(self.neighbours.relation, self.accountant)
        if self.neighbours is not None:
            _check_neighbours(self)
        inexact = any(isinstance(event, SampledGaussian) and not event.rounded for event in self.events)
        if inexact and FLOATING_POINT_CAVEAT not in self.caveats:
            object.__setattr__(self, "caveats", (*self.caveats, FLOATING_POINT_CAVEAT))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        content = {
            "schema": SCHEMA,
            "kind": self.kind.value,
            "unit": self.unit,
            "neighbours": None if self.neighbours is None else self.neighbours.to_dict(),
            "epsilon": _decimal(self.epsilon),
            "delta": _decimal(self.delta),
            "accountant": None if self.accountant is None else self.accountant.value,
            "n": self.n,
            "public": list(self.public),
            "conditional_on": list(self.conditional_on),
            "events": [event.to_dict() for event in self.events],
            "queries": [query.to_dict() for query in self.queries],
            "caveats": list(self.caveats),
            "software": dict(self.software),
            "ledger_head": self.ledger_head,
            "plan_sha256": self.plan_sha256,
        }
        optional = {
            "release": dict(self.release),
            "odometer": dict(self.odometer),
            "artefact_sha256": self.artefact_sha256,
            "seal": self.seal,
            "tuning": self.tuning.to_dict() if self.tuning else None,
        }
        return content | {name: value for name, value in optional.items() if value} | self.sections.to_dict()

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
            values = json.loads(text)
            json.dumps(values, ensure_ascii=False).encode()  # half a pair of surrogates is no text
        except (ValueError, RecursionError) as error:
            raise DposeError("statement-not-json", f"is not JSON ({error})", where) from error
        schema = values.get("schema") if isinstance(values, dict) else None
        if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
            raise DposeError(
                "statement-without-schema", "is not a privacy statement: it has no schema number", where
            )
        if schema != SCHEMA:
            newer = "made by a newer dpose" if schema > SCHEMA else "made by a dpose that was never released"
            raise DposeError(
                "statement-newer", f"has schema {schema}: {newer}", where, "use the dpose that made it"
            )
        told = {name: values.pop(name) for name in Sections.__dataclass_fields__ if name in values}
        values = object_with(
            {"release": {}, "odometer": {}, "artefact_sha256": "", "seal": "", "tuning": None} | values,
            {"schema", *cls.__dataclass_fields__} - {"sections"},
            where,
        )
        try:
            accountant = (
                None
                if values["accountant"] is None
                else member_of(Accountant, values["accountant"], "accountant")
            )
            exact = accountant is Accountant.PURE
            return cls(
                kind=member_of(Kind, values["kind"], "kind"),
                unit=member_of(Unit, values["unit"], "unit").value,
                neighbours=Neighbours.read(values["neighbours"], member_of(Unit, values["unit"], "unit")),
                epsilon=parse_exact(values["epsilon"], "epsilon")
                if exact
                else _optional_decimal(values["epsilon"], "epsilon"),
                delta=_optional_decimal(values["delta"], "delta"),
                accountant=accountant,
                n=values["n"],
                public=texts_of(values["public"], "public"),
                conditional_on=texts_of(values["conditional_on"], "conditional_on"),
                events=tuple(
                    _event(event, f"events[{i}]")
                    for i, event in enumerate(list_of(values["events"], "events"))
                ),
                queries=tuple(
                    Query.from_dict(query, f"queries[{i}]")
                    for i, query in enumerate(list_of(values["queries"], "queries"))
                ),
                caveats=texts_of(values["caveats"], "caveats"),
                software=named_texts_of(values["software"], "software"),
                ledger_head=text_of(values["ledger_head"], "ledger_head"),
                plan_sha256=text_of(values["plan_sha256"], "plan_sha256"),
                release=object_of(values["release"], "release"),
                odometer=named_texts_of(values["odometer"], "odometer"),
                artefact_sha256=text_of(values["artefact_sha256"], "artefact_sha256"),
                seal=text_of(values["seal"], "seal"),
                tuning=None if values["tuning"] is None else Tuning.from_dict(values["tuning"]),
                sections=Sections.read(told),
            )
        except DposeError as error:
            raise DposeError(error.code, error.line(), where) from error

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
        before = self.sections.deployment
        deployment = Deployment.of(about, before.released if before else released, today)
        return replace(self, sections=replace(self.sections, deployment=deployment))

    def several(self) -> tuple[GroupEpsilon, ...]:
        """Of a release, the epsilon of 1 to 10 times what it protects; nothing where that is not known.

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
        """Recompute epsilon from the events and compare it with the claim, and what sections say with what follows.

        Returns:
            The recomputed epsilon; None for the kinds paper and none, which have nothing to add up.

        Raises:
            DposeError: the events cost more than is claimed, or a section says less than follows from them.
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
        """`verify` of the sections alone.

        Raises:
            DposeError: one says less than follows from the events.
        """
        if self.kind in (Kind.PAPER, Kind.NONE) or not self.sections.computed:
            return
        if self.release and self.sections.attackers is None:
            self.sections.check_groups(self.several(), SLACK)
            return
        counted = [event for event in self.events if isinstance(event, SampledGaussian)]
        if self.tuning or len(counted) < len(self.events) or not (self.neighbours and self.delta):
            raise DposeError(
                "sections-not-computable",
                "its sections say more than can be computed again",
                "privacy statement",
            )
        spent = float(self.cost(self.events))
        self.sections.check(counted, self.delta, self.neighbours.relation, spent, SLACK)

    def cost(self, events: Sequence[Event]) -> float | Fraction:
        """Epsilon of `events` under the statement's own relation, accountant and delta.

        Raises:
            DposeError: the statement claims nothing, so that there is nothing to compute it by.
        """
        if self.neighbours is None or self.delta is None or self.accountant is None:
            raise DposeError(
                "statement-without-epsilon",
                f"a statement of kind {self.kind.value} has no epsilon to recompute",
            )
        if self.tuning is None:
            return cost(events, self.delta, self.neighbours.relation, self.accountant)
        counted = [event for event in events if isinstance(event, SampledGaussian)]
        if len(counted) < len(events):
            raise DposeError(
                "accountant-unsuited", "choosing among trials cannot count the events of a release"
            )
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

    def paragraph(self) -> str:
        """The statement in plain English, for an ethics board as much as for an engineer."""
        from dpose.privacy.wording import paragraph

        return paragraph(self)


def _decimal(value: float | Fraction | None) -> str | None:
    if isinstance(value, Fraction):
        return exact_text(value)
    return None if value is None else repr(float(value))


def _optional_decimal(value: Any, where: str) -> float | None:
    return None if value is None else parse_decimal(value, where)


def _check_neighbours(statement: PrivacyStatement) -> None:
    near = statement.neighbours
    if near is None or near.m is None or near.seconds is not None:
        raise DposeError("neighbours-unresolved", "a statement says how many pixels and frames", "neighbours")
    if near.unit != statement.unit:
        raise DposeError(
            "unit-differs", f"its neighbours differ in one {near.unit}, not in one {statement.unit}", "unit"
        )
    if not near.of_units and any(isinstance(event, SampledGaussian) for event in statement.events):
        raise DposeError(
            "scope-not-of-training", f"is none of a training: {near.scope!r}", "neighbours.scope"
        )


def _event(values: Any, where: str) -> Event:
    found: Event = event_from_dict(values, where, (SampledGaussian, Laplace, Gaussian))
    if isinstance(found, Laplace | Gaussian) and (found.pixels or found.points):
        raise DposeError(
            "event-fields-wrong", "is for the statement's own neighbours, and says no pixels", where
        )
    return found
