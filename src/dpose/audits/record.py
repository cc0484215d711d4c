"""What a report shows of an audit, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Curve = tuple[tuple[float, float], ...]
"""False- and true-positive rates, both rising."""


@dataclass(frozen=True)
class Share:
    """A rate with its 95 % interval.

    Attributes:
        rate: In [0, 1].
        low: The interval's lower end.
        high: Its upper end.
        total: How many were counted.
    """

    rate: float
    low: float
    high: float
    total: int


@dataclass(frozen=True)
class Rates:
    """What an attack finds at one threshold.

    Attributes:
        target: The false-positive rate that the threshold was set for.
        true: Of those that were in, found.
        false: Of those that were not, taken to be in.
        epsilon: The lower bound on epsilon that these two imply, where those counted fare independently.
    """

    target: float
    true: Share
    false: Share
    epsilon: float


@dataclass(frozen=True)
class AttackedRun:
    """One attacked run.

    Attributes:
        name: As in "this run".
        what: What was done to it, in one sentence.
        flagged: Whether the claim is refuted.
        refuted_by: The tests that refute it.
        bounds: Lower bounds on epsilon by test; None where a test does not apply.
        rates: At each threshold.
        curve: True against false positives, as found.
    """

    name: str
    what: str
    flagged: bool
    refuted_by: tuple[str, ...]
    bounds: Mapping[str, float | None]
    rates: tuple[Rates, ...]
    curve: Curve

    @property
    def bound(self) -> float:
        """The largest of the bounds."""
        return max((value for value in self.bounds.values() if value is not None), default=0.0)


@dataclass(frozen=True)
class Blind:
    """A fault that the audit cannot see: its name, what it is, why it is not seen, and the test that rejects it."""

    name: str
    summary: str
    why: str
    check: str


@dataclass(frozen=True)
class AuditRecord:
    """All that a report shows of an audit.

    Attributes:
        name: Of the folder.
        title: What was audited.
        epsilon: As claimed.
        delta: As claimed.
        confidence: Of all bounds together.
        claim: What is claimed, by name.
        threat_model: What the adversary knows, does and sees.
        canaries: Whom it looks for: kind, count and so on, by name.
        origin: Seed, code version, command, by name.
        run: The audited run.
        controls: Runs that leak on purpose.
        allowed: The most true positives that the claimed mechanism allows.
        pair: The most that the claimed epsilon and delta allow.
        planted: The fault that was planted; "" for none.
        unseen: Why the planted fault is not seen, and where it is; "" where an audit sees it, or nothing is planted.
        blind: What this audit cannot see.
        notes: What the reader must know.
    """

    name: str
    title: str
    epsilon: float
    delta: float
    confidence: float
    claim: Mapping[str, str]
    threat_model: str
    canaries: Mapping[str, str]
    origin: Mapping[str, str]
    run: AttackedRun
    controls: tuple[AttackedRun, ...]
    allowed: Curve
    pair: Curve
    planted: str = ""
    unseen: str = ""
    blind: Sequence[Blind] = field(default=())
    notes: Sequence[str] = field(default=())
