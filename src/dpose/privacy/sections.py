"""What a statement says besides its guarantee: optional sections, which NIST SP 800-226 asks a deployment for.

None of them changes what is guaranteed. What follows from the recorded events (`attackers`, `groups`) is computed and
checked with the statement; the rest is what somebody said, and where nobody did it says so: nothing is made up here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import repeat
from typing import Any, TypeVar

from dpose.errors import DposeError
from dpose.privacy.attackers import AttackerBound, bound_attackers
from dpose.privacy.events import SampledGaussian
from dpose.privacy.group_privacy import group_epsilons
from dpose.privacy.json_fields import list_of, object_with, text_of, texts_of
from dpose.privacy.neighbours import Relation
from dpose.privacy.ranges import parse_decimal

UNSTATED = "not stated"
EVERYBODY = "everybody"
"""The group of all units, in results by group."""
SIGNATURE = "privacy.json.sig"
"""The file beside a statement that holds its signature, where somebody signed it (`dpose.privacy.signing`)."""
S = TypeVar("S", bound="Texts")


@dataclass(frozen=True)
class Texts:
    """A section of texts alone: an object of strings in JSON.

    Raises:
        DposeError: one is no text: bytes of a command line, say, that are no UTF-8.
    """

    def __post_init__(self) -> None:
        for name, value in self.to_dict().items():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise DposeError(
                    "text-not-utf8", "is no text in UTF-8", name, "write it with letters"
                ) from error

    def to_dict(self) -> dict[str, str]:
        """Ready for JSON."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_dict(cls: type[S], values: Any, where: str) -> S:
        """The section that `to_dict` wrote.

        Raises:
            DposeError: a field is missing, unknown or no string.
        """
        found = object_with(values, {f.name for f in fields(cls)}, where)
        return cls(**{name: text_of(value, f"{where}.{name}") for name, value in found.items()})


@dataclass(frozen=True)
class About(Texts):
    """Who releases something, to whom, what for and why so: what the user says of it.

    Attributes:
        curator: Who sees the data as they are.
        access: Who may have what is released.
        intended_use: What it is for.
        contact: Whom to ask.
        why_epsilon: Why this epsilon.
        why_delta: Why this delta.
        why_unit: Why this unit.
        settings: How all other settings were chosen, and whether private data had a part in that.
    """

    curator: str = "unknown"
    access: str = UNSTATED
    intended_use: str = UNSTATED
    contact: str = UNSTATED
    why_epsilon: str = UNSTATED
    why_delta: str = UNSTATED
    why_unit: str = UNSTATED
    settings: str = UNSTATED


NOT_SAID = About()


@dataclass(frozen=True)
class Deployment(About):
    """The same, of what.

    Attributes:
        released: What leaves the building: the final weights, every iterate, a picture, a clip.
        date: Of the release, YYYY-MM-DD; empty where it is not told.
        model: The deployment model: central, where a curator sees the data as they are and adds the noise.
    """

    released: str = UNSTATED
    date: str = ""
    model: str = "central"

    @classmethod
    def of(cls, about: About, released: str, date: str = "") -> Deployment:
        """What was said, of what is released."""
        return cls(**about.to_dict(), released=released, date=date)


@dataclass(frozen=True)
class PublicInput(Texts):
    """Something public that the artefact was made from.

    Attributes:
        what: What it is.
        sha256: Digest of its file, or of its units.
        licence: Under which it may be used; an SPDX identifier where there is one.
    """

    what: str
    sha256: str
    licence: str = UNSTATED


@dataclass(frozen=True)
class AuditResult(Texts):
    """A lower bound on epsilon that an audit reached.

    Attributes:
        what: Which audit, of what.
        epsilon: That holds at least; a decimal string, rounded down.
        confidence: Of the bound; a decimal string in (0, 1).
    """

    what: str
    epsilon: str
    confidence: str

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_decimal(self.epsilon, "audits.epsilon")
        if not 0 < parse_decimal(self.confidence, "audits.confidence") < 1:
            raise DposeError("confidence-out-of-range", "must lie between 0 and 1", "audits.confidence")


@dataclass(frozen=True)
class PlantedCanaries(Texts):
    """Canaries that were put among the units before training, and the commitment to which of them are in.

    Attributes:
        kind: "gradient" or "input".
        count: How many there are, in or not; they count among the units.
        commitment: `dpose.privacy.canaries.Opening.commitment`.
    """

    kind: str
    count: str
    commitment: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch("[1-9][0-9]*", self.count):
            raise DposeError(
                "count-not-whole", f"must be a whole number, not {self.count!r}", "canaries.count"
            )
        if not re.fullmatch("[0-9a-f]{64}", self.commitment):
            raise DposeError("commitment-malformed", "must be 64 hexadecimal digits", "canaries.commitment")


@dataclass(frozen=True)
class GroupResult(Texts):
    """How well the artefact does for one group of people, where that was measured: on public data, or by a query.

    Attributes:
        group: Whom it is about ("aid: wheelchair").
        units: How many there were.
        metric: Of which score.
        before: Without private training; empty where it was not measured.
        after: With it.
    """

    group: str
    units: str
    metric: str
    before: str
    after: str


@dataclass(frozen=True)
class GroupEpsilon:
    """What several units of one person cost together, at the statement's delta; of a release, several times its pixels.

    Attributes:
        units: How many, or how many times as much.
        epsilon: Of them all; None of units above 100, or where there is no bound.
    """

    units: int
    epsilon: float | None

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"units": self.units, "epsilon": None if self.epsilon is None else repr(self.epsilon)}

    @classmethod
    def from_dict(cls, values: Any, where: str) -> GroupEpsilon:
        """What `to_dict` wrote.

        Raises:
            DposeError: a field is missing, unknown or wrong.
        """
        found = object_with(values, {"units", "epsilon"}, where)
        units, told = found["units"], found["epsilon"]
        if isinstance(units, bool) or not isinstance(units, int) or units < 1:
            raise DposeError(
                "units-not-positive", f"must be a whole number of at least 1, not {units!r}", f"{where}.units"
            )
        return cls(units, None if told is None else parse_decimal(told, f"{where}.epsilon"))


@dataclass(frozen=True)
class Sections:
    """The optional sections of a statement.

    Attributes:
        deployment: Who releases what.
        attackers: What no attacker can do, by the whole trade-off curve.
        groups: The epsilon of 1, 2, ... units of one person.
        inputs: What is public among what went in.
        audits: What audits showed.
        canaries: Which were planted before training, for whoever audits the artefact; None where none were.
        results: Scores by groups of people.
        side_channels: Ways around the guarantee that it does not cover.
        signature: The file in which a signature would lie.
    """

    deployment: Deployment | None = None
    attackers: AttackerBound | None = None
    groups: tuple[GroupEpsilon, ...] = ()
    inputs: tuple[PublicInput, ...] = ()
    audits: tuple[AuditResult, ...] = ()
    canaries: PlantedCanaries | None = None
    results: tuple[GroupResult, ...] = ()
    side_channels: tuple[str, ...] = ()
    signature: str = ""

    @property
    def computed(self) -> bool:
        """Whether something is there that follows from the events."""
        return self.attackers is not None or bool(self.groups)

    def to_dict(self) -> dict[str, Any]:
        """Those that are there, ready for JSON."""
        found: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, tuple):
                value = [each if isinstance(each, str) else each.to_dict() for each in value]
            elif value is not None and not isinstance(value, str):
                value = value.to_dict()
            found[f.name] = value
        return {name: value for name, value in found.items() if value}

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Sections:
        """The sections that `to_dict` wrote, from among the fields of a statement.

        Raises:
            DposeError: a field of one is missing, unknown or wrong.
        """
        given = {f.name: values[f.name] for f in fields(cls) if f.name in values}
        singles: dict[str, Any] = {
            "deployment": Deployment,
            "attackers": AttackerBound,
            "canaries": PlantedCanaries,
        }
        lists: dict[str, Any] = {
            "groups": GroupEpsilon,
            "inputs": PublicInput,
            "audits": AuditResult,
            "results": GroupResult,
        }
        found: dict[str, Any] = {}
        for name, value in given.items():
            if name in singles:
                found[name] = singles[name].from_dict(value, name)
            elif name in lists:
                items = enumerate(list_of(value, name))
                found[name] = tuple(lists[name].from_dict(item, f"{name}[{i}]") for i, item in items)
            else:
                found[name] = texts_of(value, name) if name == "side_channels" else text_of(value, name)
        return cls(**found)

    def check(
        self,
        events: Sequence[SampledGaussian],
        delta: float,
        relation: Relation,
        claimed: float,
        slack: float,
    ) -> None:
        """Refuse what follows from the events and says that they cost less than they do.

        Raises:
            DposeError: it does.
        """
        if self.attackers is not None:
            true = bound_attackers(events, relation, delta)
            if true is None:
                raise DposeError("attacker-bound-missing", "have no bound", "attackers", "do not rely on it")
            self.attackers.check(true, slack)
        if self.groups:
            self.check_groups(group_section(events, delta, relation, claimed), slack)

    def check_groups(self, true: Sequence[GroupEpsilon], slack: float) -> None:
        """Refuse groups that are not those of `true`, or cost less.

        Raises:
            DposeError: they do.
        """
        if len(self.groups) != len(true) or not all(map(_enough, self.groups, true, repeat(slack))):
            raise DposeError(
                "groups-understated", "says less than the recorded events cost", "groups", "do not rely on it"
            )


def group_section(
    events: Sequence[SampledGaussian], delta: float, relation: Relation, claimed: float
) -> tuple[GroupEpsilon, ...]:
    """The epsilon of 1 to 10 units of one person: that of one as claimed."""
    more = enumerate(group_epsilons(events, delta, relation), 2)
    return (GroupEpsilon(1, claimed), *(GroupEpsilon(k, spent) for k, spent in more))


def _enough(ours: GroupEpsilon, true: GroupEpsilon, slack: float) -> bool:
    if ours.units != true.units or ours.epsilon is None:
        return ours.units == true.units
    return true.epsilon is not None and ours.epsilon >= true.epsilon * (1 - slack)
