"""Renyi divergences: of a step of sampled Gaussian noise, of replacement, and what they mean as an epsilon.

    step_divergence(q=0.05, sigma=1.5, order=8.0, replaces=False)
    converted(order=8.0, delta=1e-5)           # what is added to a divergence of that order to have an epsilon
    zcdp_epsilon(Fraction(1, 50), delta=1e-5)  # of a curve that rises with the order

dp-accounting knows a sampled Gaussian under zeroing out, adding and removing. docs/proofs/odometer.md derives the
bound for replacement.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dpose.errors import DposeError
from dpose.privacy.ranges import as_given, check_delta

ORDERS = tuple([1 + 2 ** (k / 4) for k in range(-12, 13)] + [float(round(2 ** (k / 4))) for k in range(13, 57)])
"""Orders that a budget or a bound is taken from: 1.125 to 16,384, whole above 9."""
HIGHEST_SAMPLED = 1024
"""The highest order that a step of a replacement is asked for, which takes the longer the higher it is: beyond it, no
more is known of a replacement than without sampling."""
APPROXIMATE_SHARE = 0.1
"""The share of a budget's delta that is kept for events that have a delta of their own."""
SPLITS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 9.0)


@lru_cache(maxsize=65536)
def step_divergence(q: float, sigma: float, order: float, replaces: bool) -> float:
    """A bound on the Renyi divergence of one step of Poisson-sampled Gaussian noise.

    Args:
        q: Sampling rate.
        sigma: Noise multiplier.
        order: Above 1.
        replaces: Whether a unit is replaced by another; zeroed out, added or removed otherwise.
    """
    if not replaces:
        return _sampled(q, sigma, order)
    unsampled = 2 * order / sigma**2  # the sum moves by 2 C, and who was sampled is told besides
    known = in_two_steps(lambda a: _sampled(q, sigma, a) if a <= HIGHEST_SAMPLED else math.inf, order)
    return min(unsampled, known)


def _sampled(q: float, sigma: float, order: float) -> float:
    """A bound on the divergence of a sampled Gaussian: that of the next whole order; of a small one itself if less.

    Divergences rise with the order. Between whole orders the accountant sums a slow series; near 1 it knows none.
    """
    whole = rdp_at(q, sigma, float(max(2, math.ceil(order))))
    return whole if order > 9 else min(whole, rdp_at(q, sigma, order))


@lru_cache(maxsize=65536)
def rdp_at(q: float, sigma: float, order: float) -> float:
    """dp-accounting's Renyi divergence of one step, for a unit zeroed out, added or removed; infinite if unknown."""
    return float(rdp_of_step(q, sigma, (order,))[0])


@lru_cache(maxsize=4096)
def rdp_of_step(q: float, sigma: float, orders: tuple[float, ...]) -> Any:
    """The same at several orders, or at dp-accounting's own where `orders` is empty; not to be written to."""
    from dp_accounting.privacy_accountant import NeighboringRelation
    from dp_accounting.rdp import rdp_privacy_accountant

    with quiet_accountant():
        counting = rdp_privacy_accountant.RdpAccountant(
            orders or None, neighboring_relation=NeighboringRelation.REPLACE_SPECIAL
        )
        return counting.compose(library_event(q, sigma, 1)).rdp


def in_two_steps(curve: Callable[[float], float], order: float) -> float:
    """Replacement as two steps, out and in, by the weak triangle inequality of Renyi divergences (Mironov 2017).

    For 1/p + 1/q = 1: D_a(P | R) <= (a - 1/p) / (a - 1) D_(p a)(P | Q) + D_(q (a - 1/p))(Q | R).
    """
    found = math.inf
    for p in SPLITS:
        q = p / (p - 1)
        first, second = p * order, q * (order - 1 / p)
        found = min(found, (order - 1 / p) / (order - 1) * curve(first) + curve(second))
    return found


def converted(order: float, delta: float) -> float:
    """What is added to a Renyi divergence of `order` to have an epsilon at `delta` (Canonne et al. 2020, Prop. 12)."""
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


@lru_cache(maxsize=1024)
def order_of_budget(budget_epsilon: float, delta: float) -> tuple[float, float]:
    """The order of a budget's filter and the most Renyi divergence that it may spend: a public rule.

    Of `ORDERS` the one at which the most rho of zCDP fits; the delta of the conversion is (1 - `APPROXIMATE_SHARE`)
    of the budget's.
    """
    rest = delta * (1 - APPROXIMATE_SHARE)
    caps = [(order, budget_epsilon - converted(order, rest)) for order in ORDERS]
    return max(caps, key=lambda pair: pair[1] / pair[0])


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


def library_event(q: float, sigma: float, steps: int) -> Any:
    """Steps of a Poisson-sampled Gaussian as a `dp_accounting.DpEvent`."""
    from dp_accounting import dp_event

    gaussian = dp_event.GaussianDpEvent(sigma)
    # at q = 1 the plain Gaussian: dp-accounting then composes in closed form
    once = gaussian if q == 1 else dp_event.PoissonSampledDpEvent(q, gaussian)
    return dp_event.SelfComposedDpEvent(once, steps)


@contextlib.contextmanager
def quiet_accountant() -> Iterator[None]:
    """Silence the warning about an RDP order left out: the minimum over the other orders is still a bound."""
    log = logging.getLogger("absl")

    def wanted(record: logging.LogRecord) -> bool:
        return "Excluding this order" not in record.getMessage()

    log.addFilter(wanted)
    try:
        yield
    finally:
        log.removeFilter(wanted)


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
