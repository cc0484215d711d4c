"""Releases with exact integer noise: their events, and what they cost.

    event = LaplaceEvent(scale=Fraction(2040), sensitivity=Fraction(4080))
    pure_epsilon([event])                       # Fraction(2, 1), no delta

    event = GaussianEvent(variance=Fraction(10_000**2), sensitivity_squared=Fraction(4080**2))
    zcdp_epsilon(zcdp_rho([event]), 1e-5)

Scales, variances and sensitivities are fractions and stand in JSON as decimal or rational strings, so that whoever
reads a statement recomputes the very same cost. docs/proofs/pixelization.md derives both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from dpose.errors import DposeError
from dpose.privacy.gaussian import discrete_epsilon, discrete_mu
from dpose.privacy.ranges import check_delta, check_steps, exact_text, parse_exact
from dpose.privacy.rounding import as_given

E = TypeVar("E")


class ReleaseAccountant(StrEnum):
    """How the epsilon of a release is computed."""

    PURE = "pure"
    """The epsilons of pure differential privacy, added up exactly; delta is 0."""
    ZCDP = "zcdp"
    """Zero-concentrated differential privacy: rho adds up, and is converted to (epsilon, delta) once."""
    GAUSSIAN = "gaussian"
    """The Gaussian mechanism's own (epsilon, delta) curve: D^2 / sigma^2 adds up (Balle and Wang 2018)."""


@dataclass(frozen=True)
class LaplaceEvent:
    """`steps` releases of integers, each with its own discrete Laplace noise.

    Attributes:
        scale: t; P(noise = x) is proportional to e^(-|x|/t).
        sensitivity: The most that the integers of one release change between neighbours, in L1 norm.
        steps: Number of releases that neighbours may differ in.
        type: "discrete-laplace".

    Raises:
        DposeError: a value is out of range.
    """

    scale: Fraction
    sensitivity: Fraction
    steps: int = 1
    type: str = "discrete-laplace"

    def __post_init__(self) -> None:
        _check_positive(self.scale, "scale")
        _check_positive(self.sensitivity, "sensitivity")
        check_steps(self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "type": self.type,
            "scale": exact_text(self.scale),
            "sensitivity": exact_text(self.sensitivity),
            "steps": self.steps,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str) -> LaplaceEvent:
        """The event that `to_dict` wrote.

        Raises:
            DposeError: a field is missing, unknown, of the wrong type or out of range; names it.
        """
        scale, sensitivity = _numbers(values, ("scale", "sensitivity"), where)
        return _placed(cls, where, scale, sensitivity, values["steps"])


@dataclass(frozen=True)
class GaussianEvent:
    """`steps` releases of integers, each with its own discrete Gaussian noise.

    Attributes:
        variance: sigma^2; P(noise = x) is proportional to e^(-x^2 / (2 sigma^2)).
        sensitivity_squared: The most that the integers of one release change between neighbours, in squared L2
            norm.
        steps: Number of releases that neighbours may differ in.
        type: "discrete-gaussian".

    Raises:
        DposeError: a value is out of range.
    """

    variance: Fraction
    sensitivity_squared: Fraction
    steps: int = 1
    type: str = "discrete-gaussian"

    def __post_init__(self) -> None:
        _check_positive(self.variance, "variance")
        _check_positive(self.sensitivity_squared, "sensitivity_squared")
        check_steps(self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "type": self.type,
            "variance": exact_text(self.variance),
            "sensitivity_squared": exact_text(self.sensitivity_squared),
            "steps": self.steps,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str) -> GaussianEvent:
        """The event that `to_dict` wrote.

        Raises:
            DposeError: a field is missing, unknown, of the wrong type or out of range; names it.
        """
        variance, squared = _numbers(values, ("variance", "sensitivity_squared"), where)
        return _placed(cls, where, variance, squared, values["steps"])


ExactEvent: TypeAlias = LaplaceEvent | GaussianEvent

EXACT_TYPES: Mapping[str, Any] = {"discrete-laplace": LaplaceEvent, "discrete-gaussian": GaussianEvent}


def times_as_sensitive(event: ExactEvent, k: int) -> ExactEvent:
    """The event of a sensitivity k times as large: it costs as k releases, with Gaussian noise as k^2."""
    return replace(event, steps=event.steps * (k if isinstance(event, LaplaceEvent) else k * k))


def pure_epsilon(events: Sequence[Any]) -> Fraction:
    """The epsilon of discrete Laplace releases, exactly: the sum of steps * sensitivity / scale.

    Raises:
        DposeError: another event is among them.
    """
    for event in events:
        if not isinstance(event, LaplaceEvent):
            raise DposeError(
                "event-unsupported", f'accountant "pure" cannot count events of type {event.type!r}'
            )
    return sum((event.steps * event.sensitivity / event.scale for event in events), Fraction(0))


def zcdp_rho(events: Sequence[Any]) -> Fraction:
    """The rho of discrete Gaussian releases, exactly: the sum of steps * D^2 / (2 sigma^2).

    Raises:
        DposeError: another event is among them.
    """
    for event in events:
        if not isinstance(event, GaussianEvent):
            raise DposeError(
                "event-unsupported", f'accountant "zcdp" cannot count events of type {event.type!r}'
            )
    return sum(
        (event.steps * event.sensitivity_squared / (2 * event.variance) for event in events), Fraction(0)
    )


def zcdp_epsilon(rho: Fraction | float, delta: float) -> float:
    """The epsilon that rho-zCDP implies at `delta`.

    For every order a > 1: epsilon = a rho + log(1 - 1/a) - (log(delta) + log(a)) / (a - 1) (Canonne, Kamath and
    Steinke 2020, Proposition 12). Any order gives a valid bound; this takes the best, found by golden section
    search on log(a - 1).

    Args:
        rho: >= 0.
        delta: In (0, 1).

    Raises:
        DposeError: delta is out of range.
    """
    check_delta(delta)
    cost = float(rho)
    if cost == 0:
        return 0.0
    if not math.isfinite(cost):
        return math.inf

    def at(log_excess: float) -> float:
        excess = math.exp(log_excess)
        order = 1 + excess
        bound = order * cost + math.log(excess) - math.log(order)
        return bound - (math.log(delta) + math.log(order)) / excess

    return max(0.0, at(_lowest(at, -30.0, 60.0)))


@lru_cache(maxsize=64)
def zcdp_budget(epsilon: float, delta: float) -> float:
    """The largest rho whose `zcdp_epsilon` at `delta` is at most `epsilon`, to twelve digits and never above.

    Raises:
        DposeError: no rho is small enough.
    """
    low, high = 0.0, max(1.0, epsilon)
    while zcdp_epsilon(high, delta) < epsilon:
        high *= 2
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if zcdp_epsilon(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
        if high < 1e-30:
            raise DposeError(
                "epsilon-unreachable",
                f"no noise meets epsilon {as_given(epsilon)} at delta {as_given(delta)}",
                fix="choose a larger epsilon",
            )
    return low


def gaussian_cost(events: Sequence[Any], delta: float) -> float:
    """The epsilon of discrete Gaussian releases at `delta`, by the Gaussian mechanism's own curve.

    Raises:
        DposeError: another event is among them, a variance is too small, or delta is out of range.
    """
    for event in events:
        if not isinstance(event, GaussianEvent):
            raise DposeError(
                "event-unsupported", f'accountant "gaussian" cannot count events of type {event.type!r}'
            )
    mu = discrete_mu([(event.sensitivity_squared, event.variance, event.steps) for event in events])
    return discrete_epsilon(mu, delta)


def _lowest(function: Any, left: float, right: float) -> float:
    ratio = (math.sqrt(5) - 1) / 2
    a, b = right - ratio * (right - left), left + ratio * (right - left)
    at_a, at_b = function(a), function(b)
    for _ in range(120):
        if at_a < at_b:
            right, b, at_b = b, a, at_a
            a = right - ratio * (right - left)
            at_a = function(a)
        else:
            left, a, at_a = a, b, at_b
            b = left + ratio * (right - left)
            at_b = function(b)
    return (left + right) / 2


def _check_positive(value: Fraction, name: str) -> None:
    if not isinstance(value, Fraction) or value <= 0:
        raise DposeError("fraction-not-positive", f"{name} must be a positive fraction, not {value!r}")


def _numbers(values: Any, names: tuple[str, str], where: str) -> tuple[Fraction, Fraction]:
    expected = {"type", "steps", *names}
    if not isinstance(values, Mapping) or set(values) != expected:
        raise DposeError(
            "event-fields-wrong",
            f"such an event has the fields {', '.join(sorted(expected))} and no others",
            where,
        )
    first, second = (parse_exact(values[name], f"{where}.{name}") for name in names)
    return first, second


def _placed(make: Callable[..., E], where: str, *values: Any) -> E:
    try:
        return make(*values)
    except DposeError as error:
        raise DposeError(error.code, error.what, where, error.fix) from error
