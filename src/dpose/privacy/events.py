"""What was released, as accountants see it: one family of events for statements, plans of releases and the account.

    SampledGaussian(q=1024 / 22146, sigma=0.8, steps=541, sensitivity=1.0)       # a run
    Laplace(scale=Fraction(2040), sensitivity=Fraction(4080)).pure()              # Fraction(2, 1), no delta
    Gaussian(variance=Fraction(10_000**2), sensitivity_squared=Fraction(4080**2)).rho()

A `SampledGaussian` and a `Renyi` bound one unit. The others bound a change of `pixels` pixels of one picture, or of one
unit or whole picture where `pixels` is 0; for more pixels they are restated by group privacy, or by points that their
mechanism knows to be tighter. Scales, variances and sensitivities of exact noise are fractions and stand in JSON as
decimal or rational strings, so that everyone who reads them recomputes the very same cost. Proofs:
docs/proofs/accounting.md, docs/proofs/pixelization.md, docs/proofs/odometer.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import Field

from dpose.errors import DposeError
from dpose.privacy.fields import Cost, Decimal, Exact, Pixels, StatementPart, Steps, optional, read, statement_part
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.ranges import check_rate, check_sigma, not_below
from dpose.privacy.renyi import in_two_steps, library_event, step_divergence

SampledNoise: TypeAlias = Literal["poisson-gaussian", "poisson-rounded-gaussian"]
FLOATING: SampledNoise = "poisson-gaussian"
ROUNDED: SampledNoise = "poisson-rounded-gaussian"
"""Noise drawn and added in floating point; or whole numbers, each with exactly the probability of a rounded Gaussian:
post-processing, which costs the same (docs/proofs/exact-noise.md)."""

E = TypeVar("E", bound="Event")


class Event(StatementPart):
    """What one mechanism has released. Its subclasses are all that there is; each is a frozen value."""

    type: str
    """What it is called in JSON."""
    pixels: int = 0
    """How many pixels of one picture may change for what it says; 0 for all of them, or where it is about a unit."""

    def pure(self) -> Fraction | float:
        """An epsilon of pure differential privacy; infinite if none is known."""
        return math.inf

    def rho(self) -> Fraction | float:
        """A rho of zero-concentrated differential privacy; infinite if none is known."""
        return math.inf

    def renyi(self, order: float, *, replaces: bool) -> float:
        """A bound on the Renyi divergence of `order`, above 1.

        Args:
            order: Above 1.
            replaces: Whether a unit is replaced by another; zeroed out, added or removed otherwise. Exact noise and
                `Approximate` bound both.
        """
        raise NotImplementedError

    def dp_event(self) -> Any:
        """The same as a `dp_accounting.DpEvent`; one that its accountants refuse where dp-accounting has none."""
        from dp_accounting import dp_event

        return dp_event.UnsupportedDpEvent()

    def for_neighbours(self, requested: Neighbours, area: int) -> Event:
        """What it is for these neighbours in a picture of `area` pixels (0: unknown); its cost may be infinite."""
        return self

    def times(self, k: int) -> Event:
        """The same of a sensitivity `k` times as large, of which no points are known."""
        raise NotImplementedError


def _check_cost(cost: float) -> None:
    if not cost >= 0:
        raise DposeError("cost-negative", f"a cost must not be negative, not {cost}")


@statement_part
class SampledGaussian(Event):
    """`steps` releases of a Poisson-subsampled Gaussian: what the accountant sees of a run.

    Attributes:
        q: Sampling rate, in (0, 1].
        sigma: Noise multiplier: the noise's standard deviation is sigma * sensitivity.
        steps: Number of releases, >= 1.
        sensitivity: L2 bound on one unit's contribution to the noised sum, in the sum's units. Under
            replacement the sum moves by up to twice that; the accountant doubles it, the event does not.
        type: `FLOATING` or `ROUNDED`.

    Raises:
        DposeError: a value is out of range.
    """

    type: SampledNoise = field(default=FLOATING, kw_only=True)
    q: Decimal
    sigma: Decimal
    steps: Steps
    sensitivity: Decimal

    def __post_init__(self) -> None:
        check_rate(self.q)
        check_sigma(self.sigma)
        if not (math.isfinite(self.sensitivity) and self.sensitivity > 0):
            raise DposeError(
                "sensitivity-not-positive", f"sensitivity must be positive and finite, not {self.sensitivity}"
            )

    @property
    def rounded(self) -> bool:
        """Whether the noise is that of whole numbers, exactly."""
        return self.type == ROUNDED

    def renyi(self, order: float, *, replaces: bool) -> float:
        """As `Event.renyi`."""
        return self.steps * step_divergence(self.q, self.sigma, order, replaces)

    def dp_event(self) -> Any:
        """As `Event.dp_event`."""
        return library_event(self.q, self.sigma, self.steps)


@statement_part
class Laplace(Event):
    """`steps` releases of whole numbers, each with its own discrete Laplace noise.

    Attributes:
        scale: t; P(noise = x) is proportional to e^(-|x|/t).
        sensitivity: The most that the numbers of one release change between neighbours, in L1 norm.
        steps: Number of releases that neighbours may differ in.
        pixels: How many pixels of one picture may change for that; 0 for all of them, or one unit.
        points: Sensitivities that the mechanism knows for other numbers of pixels; 0 for all of them.

    Raises:
        DposeError: a value is out of range.
    """

    type: Literal["discrete-laplace"] = field(default="discrete-laplace", kw_only=True)
    scale: Exact
    sensitivity: Exact
    steps: Steps = 1
    pixels: Pixels = optional(default=0)
    points: tuple[tuple[Pixels, Exact], ...] = optional(default=())

    def __post_init__(self) -> None:
        _check_exact(self, "scale", "sensitivity")

    def pure(self) -> Fraction:
        """As `Event.pure`: steps * sensitivity / scale, exactly."""
        return self.steps * self.sensitivity / self.scale

    def renyi(self, order: float, *, replaces: bool) -> float:
        """As `Event.renyi`: of each step, added up."""
        return self.steps * _renyi_of_pure(not_below(self.sensitivity / self.scale), order)

    def for_neighbours(self, requested: Neighbours, area: int) -> Event:
        """As `Event.for_neighbours`: k times the sensitivity over k neighbours."""
        return _restated(self, "sensitivity", 1, requested, area)

    def times(self, k: int) -> Laplace:
        """As `Event.times`."""
        return replace(self, sensitivity=k * self.sensitivity, points=())


@statement_part
class Gaussian(Event):
    """`steps` releases of whole numbers, each with its own discrete Gaussian noise.

    Attributes:
        variance: sigma^2; P(noise = x) is proportional to e^(-x^2 / (2 sigma^2)).
        sensitivity_squared: The most that the numbers of one release change between neighbours, in squared L2
            norm.
        steps: Number of releases that neighbours may differ in.
        pixels: How many pixels of one picture may change for that; 0 for all of them, or one unit.
        points: Squared sensitivities that the mechanism knows for other numbers of pixels; 0 for all of them.

    Raises:
        DposeError: a value is out of range.
    """

    type: Literal["discrete-gaussian"] = field(default="discrete-gaussian", kw_only=True)
    variance: Exact
    sensitivity_squared: Exact
    steps: Steps = 1
    pixels: Pixels = optional(default=0)
    points: tuple[tuple[Pixels, Exact], ...] = optional(default=())

    def __post_init__(self) -> None:
        _check_exact(self, "variance", "sensitivity_squared")

    def rho(self) -> Fraction:
        """As `Event.rho`: steps * D^2 / (2 sigma^2), exactly (Canonne, Kamath and Steinke 2020)."""
        return self.steps * self.sensitivity_squared / (2 * self.variance)

    def renyi(self, order: float, *, replaces: bool) -> float:
        """As `Event.renyi`: order * rho, by definition."""
        return order * not_below(self.rho())

    def dp_event(self) -> Any:
        """As `Event.dp_event`."""
        from dp_accounting import dp_event

        return dp_event.ZCDpEvent(not_below(self.rho()))

    def for_neighbours(self, requested: Neighbours, area: int) -> Event:
        """As `Event.for_neighbours`: k^2 times the squared sensitivity over k neighbours."""
        return _restated(self, "sensitivity_squared", 2, requested, area)

    def times(self, k: int) -> Gaussian:
        """As `Event.times`."""
        return replace(self, sensitivity_squared=k * k * self.sensitivity_squared, points=())


@statement_part
class Approximate(Event):
    """A mechanism of which only (epsilon, delta) is known, for `pixels` pixels of one picture, replaced by any others.

    Attributes:
        epsilon: For that many pixels; may be infinite.
        delta: In [0, 1].
        pixels: How many of one picture may change; 0 for all of them.

    Raises:
        DposeError: a value is out of range.
    """

    type: Literal["approximate"] = field(default="approximate", kw_only=True)
    epsilon: Cost
    delta: Decimal
    pixels: Pixels = 0

    def __post_init__(self) -> None:
        _check_cost(self.epsilon)
        if not 0 <= self.delta <= 1:
            raise DposeError("delta-out-of-range", f"delta must lie between 0 and 1, not {self.delta}")

    def pure(self) -> float:
        """As `Event.pure`."""
        return math.inf if self.delta else self.epsilon

    def renyi(self, order: float, *, replaces: bool) -> float:
        """As `Event.renyi`, but for an event of probability delta."""
        return _renyi_of_pure(self.epsilon, order)

    def for_neighbours(self, requested: Neighbours, area: int) -> Approximate:
        """As `Event.for_neighbours`.

        k (epsilon, delta)-neighbours one after another: (k epsilon, delta (1 + e^epsilon + ... + e^((k-1) epsilon))).
        """
        k = _neighbours_between(self.pixels, _pixels_of(requested), area)
        if k is None or k * self.epsilon > 700:
            return BOUNDLESS
        grown = sum(math.exp(i * self.epsilon) for i in range(k)) if k < 1000 else math.inf
        if grown * self.delta >= 1 or (math.isinf(grown) and self.delta):
            return BOUNDLESS
        return Approximate(k * self.epsilon, self.delta * grown if self.delta else 0.0, _pixels_of(requested))


@statement_part
class Renyi(Event):
    """A mechanism of which a curve of Renyi divergences is known, for one unit zeroed out: private selection.

    Attributes:
        curve: (order, divergence), orders > 1 and rising; between orders the next larger one's value bounds.

    Raises:
        DposeError: a value is out of range.
    """

    type: Literal["renyi"] = field(default="renyi", kw_only=True)
    curve: tuple[tuple[Decimal, Cost], ...]

    def __post_init__(self) -> None:
        orders = [order for order, _ in self.curve]
        if not orders or orders != sorted(set(orders)) or orders[0] <= 1:
            raise DposeError("renyi-orders-invalid", "a Renyi curve needs rising orders above 1")
        for _, value in self.curve:
            _check_cost(value)

    def at(self, order: float) -> float:
        """A bound on the divergence of that order, for a unit zeroed out; infinite above the last one."""
        return min((value for known, value in self.curve if known >= order), default=math.inf)

    def renyi(self, order: float, *, replaces: bool) -> float:
        """As `Event.renyi`."""
        return in_two_steps(self.at, order) if replaces else self.at(order)


BOUNDLESS = Approximate(math.inf, 1.0)
"""What an event is for neighbours for which nothing bounds it."""
StatedEvent = Annotated[SampledGaussian | Laplace | Gaussian, Field(discriminator="type")]
"""What a statement records: steps of a training, or exact noise for the statement's own neighbours."""
AnyEvent = Annotated[SampledGaussian | Laplace | Gaussian | Approximate | Renyi, Field(discriminator="type")]
"""Any event, by its type."""


def event_from_dict(values: Any, where: str = "event", kind: type[E] | tuple[type[E], ...] = Event) -> E:  # type: ignore[assignment]
    """The event that `to_dict` wrote.

    Args:
        values: As it stands in JSON.
        where: For messages.
        kind: What it may be.

    Raises:
        DposeError: it is of another kind, or a field is missing, unknown, of the wrong type or out of range; names it.
    """
    event = read(AnyEvent, values, where)
    if not isinstance(event, kind):
        raise DposeError("event-type-wrong", f"is no event of a kind that can stand here: {event.type}", where)
    return event


ExactEvent: TypeAlias = Laplace | Gaussian
"""Exact noise on whole numbers: what releases have."""


def merge(events: Sequence[E]) -> tuple[E, ...]:
    """The same events with equal ones that have steps joined into one of more steps, in order of first appearance.

    >>> (both,) = merge([SampledGaussian(0.01, 2.0, 30, 1.0), SampledGaussian(0.01, 2.0, 12, 1.0)])
    >>> both.steps
    42
    """
    counted: dict[Event, int] = {}
    found: list[Event] = []
    for event in events:
        if isinstance(event, SampledGaussian | Laplace | Gaussian):
            kind = replace(event, steps=1)
            if kind not in counted:
                found.append(kind)
            counted[kind] = counted.get(kind, 0) + event.steps
        else:
            found.append(event)
    return tuple(replace(one, steps=counted[one]) if one in counted else one for one in found)  # type: ignore


def _renyi_of_pure(epsilon: float, order: float) -> float:
    """Bun and Steinke 2016, Proposition 3.3; a divergence of any order is at most that of infinite order."""
    return min(epsilon, order * epsilon**2 / 2)


def _pixels_of(requested: Neighbours) -> int:
    """How many pixels of a picture may change; 0 for all of them, where whole units may."""
    return 0 if requested.of_units else requested.count


def _neighbours_between(own: int, wanted: int, area: int) -> int | None:
    """Over how many neighbours of `own` pixels one of `wanted` is reached; 0 pixels stand for the whole picture.

    None if that is not known.
    """
    if own == 0:
        return 1
    if wanted and area:
        wanted = min(wanted, area)
    reach = wanted or area
    return -(-reach // own) if reach else None


def _restated(event: ExactEvent, name: str, power: int, requested: Neighbours, area: int) -> Event:
    """`Event.for_neighbours`: the least of what each known point gives by group privacy over several neighbours.

    Args:
        event: Exact noise.
        name: Of its bound on the sensitivity, or on a power of it.
        power: Which power.
        requested: The neighbours.
        area: Of the picture, pixels; 0 if unknown.
    """
    wanted = _pixels_of(requested)
    found = [
        k**power * bound
        for pixels, bound in ((event.pixels, getattr(event, name)), *event.points)
        if (k := _neighbours_between(pixels, wanted, area)) is not None
    ]
    if not found:
        return BOUNDLESS
    return replace(event, **{name: min(found), "pixels": wanted, "points": ()})


def _check_exact(event: ExactEvent, name: str, bound: str) -> None:
    known = [(name, getattr(event, name)), (bound, getattr(event, bound))]
    for what, value in [*known, *(("points", other) for _, other in event.points)]:
        if value <= 0:
            raise DposeError("fraction-not-positive", f"{what} must be a positive fraction, not {value}")
