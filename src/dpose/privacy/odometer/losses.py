"""What releases may tell, as the account keeps it: losses, restated for more pixels, and how events are written down.

A training event bounds one unit of its charge; a *loss* (`PureLoss`, `ZcdpLoss`, `ApproximateLoss`) a change of
`pixels` pixels of one picture, of all of them where `pixels` is 0. A loss is restated for more pixels by group privacy,
or by points that its mechanism knows to be tighter (docs/proofs/odometer.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from dpose.errors import DposeError
from dpose.privacy.accounting import Event
from dpose.privacy.ranges import parse_decimal

Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class PureLoss:
    """A mechanism with pure epsilon-differential privacy for `pixels` pixels of one picture, replaced by any others.

    Attributes:
        epsilon: For that many pixels.
        pixels: How many of one picture may change; 0 for all of them.
        points: (pixels, epsilon) that the mechanism knows besides, tighter than group privacy; 0 for all pixels.
        type: "pure".

    Raises:
        DposeError: a value is out of range.
    """

    epsilon: float
    pixels: int = 0
    points: Points = ()
    type: str = "pure"

    def __post_init__(self) -> None:
        _check(self.epsilon, self.pixels, self.points)

    def restated(self, pixels: int, area: int) -> PureLoss:
        """The same for `pixels` pixels (0 for all) of a picture of `area`; its epsilon may be infinite."""
        return PureLoss(_at(self.epsilon, self.pixels, self.points, pixels, area, lambda k, e: k * e), pixels)


@dataclass(frozen=True)
class ZcdpLoss:
    """A mechanism with rho-zCDP for `pixels` pixels of one picture, replaced by any others: discrete Gaussians.

    Attributes:
        rho: For that many pixels.
        pixels: How many of one picture may change; 0 for all of them.
        points: (pixels, rho) that the mechanism knows besides; 0 for all pixels.
        type: "zcdp".

    Raises:
        DposeError: a value is out of range.
    """

    rho: float
    pixels: int = 0
    points: Points = ()
    type: str = "zcdp"

    def __post_init__(self) -> None:
        _check(self.rho, self.pixels, self.points)

    def restated(self, pixels: int, area: int) -> ZcdpLoss:
        """The same for `pixels` pixels (0 for all) of a picture of `area`; its rho may be infinite."""
        return ZcdpLoss(_at(self.rho, self.pixels, self.points, pixels, area, lambda k, r: k * k * r), pixels)


@dataclass(frozen=True)
class ApproximateLoss:
    """A mechanism of which only (epsilon, delta) is known, for `pixels` pixels of one picture, replaced by any others.

    Attributes:
        epsilon: For that many pixels.
        delta: In [0, 1).
        pixels: How many of one picture may change; 0 for all of them.
        type: "approximate".

    Raises:
        DposeError: a value is out of range.
    """

    epsilon: float
    delta: float
    pixels: int = 0
    type: str = "approximate"

    def __post_init__(self) -> None:
        _check(self.epsilon, self.pixels, ())
        if not 0 <= self.delta <= 1:
            raise DposeError("delta-out-of-range", f"delta must lie between 0 and 1, not {self.delta}")

    def restated(self, pixels: int, area: int) -> ApproximateLoss:
        """The same for `pixels` pixels (0 for all) of a picture of `area`; its epsilon may be infinite.

        k (epsilon, delta)-neighbours one after another: (k epsilon, delta (1 + e^epsilon + ... + e^((k-1) epsilon))).
        """
        k = _steps(self.pixels, pixels, area)
        if math.isinf(k) or k * self.epsilon > 700:
            return ApproximateLoss(math.inf, 1.0, pixels)
        grown = sum(math.exp(i * self.epsilon) for i in range(int(k))) if k < 1000 else math.inf
        if grown * self.delta >= 1 or (math.isinf(grown) and self.delta):
            return ApproximateLoss(math.inf, 1.0, pixels)
        return ApproximateLoss(k * self.epsilon, self.delta * grown if self.delta else 0.0, pixels)


@dataclass(frozen=True)
class RenyiLoss:
    """A mechanism of which a curve of Renyi divergences is known, for one unit of its charge: private selection.

    Attributes:
        curve: (order, divergence), orders > 1 and rising; between orders the next larger one's value bounds.
        type: "renyi".

    Raises:
        DposeError: a value is out of range.
    """

    curve: tuple[tuple[float, float], ...]
    type: str = "renyi"

    def __post_init__(self) -> None:
        orders = [order for order, _ in self.curve]
        if not orders or orders != sorted(set(orders)) or orders[0] <= 1:
            raise DposeError("renyi-orders-invalid", "a Renyi curve needs rising orders above 1")
        for _, value in self.curve:
            _check(value, 0, ())

    def at(self, order: float) -> float:
        """A bound on the divergence of that order; infinite above the last one."""
        return min((value for known, value in self.curve if known >= order), default=math.inf)


Loss: TypeAlias = PureLoss | ZcdpLoss | ApproximateLoss
ChargedEvent: TypeAlias = Event | Loss | RenyiLoss


def event_to_dict(event: ChargedEvent) -> dict[str, Any]:
    """Ready for JSON; numbers as decimal strings that read back exactly."""
    if isinstance(event, Event):
        return event.to_dict()
    if isinstance(event, RenyiLoss):
        return {"type": event.type, "curve": [[repr(float(a)), repr(float(v))] for a, v in event.curve]}
    found: dict[str, Any] = {"type": event.type, "pixels": event.pixels}
    for name in ("epsilon", "rho", "delta"):
        if hasattr(event, name):
            found[name] = repr(float(getattr(event, name)))
    if not isinstance(event, ApproximateLoss):
        found["points"] = [[pixels, repr(float(value))] for pixels, value in event.points]
    return found


def event_from_dict(values: Mapping[str, Any], where: str = "event") -> ChargedEvent:
    """The event that `event_to_dict` wrote.

    Raises:
        DposeError: a field is missing or of the wrong type, or the event is of another kind.
    """
    kind = values.get("type")
    try:
        if kind == "renyi":
            return RenyiLoss(tuple((_number(a, where), _number(v, where)) for a, v in values["curve"]))
        if kind == "approximate":
            return ApproximateLoss(
                _number(values["epsilon"], where), _number(values["delta"], where), int(values["pixels"])
            )
        if kind in ("pure", "zcdp"):
            points = tuple((int(m), _number(v, where)) for m, v in values["points"])
            if kind == "pure":
                return PureLoss(_number(values["epsilon"], where), int(values["pixels"]), points)
            return ZcdpLoss(_number(values["rho"], where), int(values["pixels"]), points)
    except (KeyError, TypeError, ValueError) as error:
        raise DposeError("event-invalid", f"is no event ({error})", where) from error
    return Event.from_dict(values, where)


def _check(cost: float, pixels: int, points: Points) -> None:
    if not cost >= 0:
        raise DposeError("cost-negative", f"a cost must not be negative, not {cost}")
    if pixels < 0 or any(m < 0 or not value >= 0 for m, value in points):
        raise DposeError("pixels-negative", "a number of pixels must not be negative")


def _steps(own: int, wanted: int, area: int) -> float:
    """Over how many neighbours of `own` pixels one of `wanted` is reached; 0 pixels stand for the whole picture."""
    if own == 0:
        return 1
    if wanted and area:
        wanted = min(wanted, area)
    reach = wanted or area
    return math.ceil(reach / own) if reach else math.inf


def _at(
    cost: float, own: int, points: Points, wanted: int, area: int, grown: Callable[[float, float], float]
) -> float:
    """The least bound for `wanted` pixels: of each known point, group privacy over as many steps as it takes."""
    found = math.inf
    for pixels, value in ((own, cost), *points):
        steps = _steps(pixels, wanted, area)
        found = min(found, math.inf if math.isinf(steps) else grown(steps, value))
    return found


def _number(text: Any, where: str) -> float:
    return math.inf if text == "inf" else parse_decimal(text, where)
