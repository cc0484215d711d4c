"""The Gaussian mechanism's own epsilon and delta, exactly as they trade, for releases with Gaussian noise.

    mu = largest_mu(epsilon=8, delta=1e-5)          # sensitivity / sigma
    gaussian_epsilon(mu, 1e-5)                      # 8

Balle and Wang 2018, "Improving the Gaussian mechanism for differential privacy", Theorem 8: noise N(0, sigma^2) on a
query of L2 sensitivity D is (epsilon, delta)-private if and only if, with mu = D / sigma,

    Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)  <=  delta.

Gaussian mechanisms compose into one: the squares of their mu add up. docs/proofs/video.md derives both, and what
discrete Gaussian noise on whole numbers adds to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from dpose.errors import DposeError
from dpose.privacy.ranges import as_given, check_delta, check_epsilon, lower

SMOOTHING = 4
"""Taken off the variance of discrete Gaussian noise, in squared units of its grid, before it counts as Gaussian."""
LEAST_VARIANCE = 100
"""Discrete Gaussian noise of a smaller variance is not counted as Gaussian."""
MARGIN = 1e-12
"""More than what the step from discrete to Gaussian noise can cost in epsilon, and relatively in delta."""
FARTHEST = 38.0
"""Phi(-38) is the smallest that a 64-bit number holds well."""


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The least delta of a Gaussian mechanism at `epsilon`.

    Args:
        mu: Sensitivity over standard deviation, > 0.
        epsilon: >= 0.
    """
    return _delta_at(epsilon / mu - mu / 2, mu)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least epsilon of a Gaussian mechanism at `delta`, from above and to twelve digits.

    >>> round(gaussian_epsilon(mu=0.5, delta=1e-5), 4)
    1.9931

    Args:
        mu: Sensitivity over standard deviation, >= 0.
        delta: In (0, 1).

    Raises:
        DposeError: delta is out of range.
    """
    check_delta(delta)
    if mu == 0:
        return 0.0
    if not math.isfinite(mu):
        return math.inf
    # epsilon = mu (u + mu/2): solved for u, which stays small however large epsilon gets
    low, high = -mu / 2, FARTHEST
    if _delta_at(low, mu) <= delta:
        return 0.0
    low, high = _bisect(lambda u: _delta_at(u, mu) <= delta, low, high)
    return max(0.0, mu * (high + mu / 2))


def largest_mu(epsilon: float, delta: float) -> float:
    """The largest mu whose `gaussian_epsilon` at `delta` is at most `epsilon`, to twelve digits and never above.

    Raises:
        DposeError: epsilon or delta is out of range.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    high = 1.0
    while gaussian_epsilon(high, delta) <= epsilon:
        high *= 2
    low, _ = _bisect(lambda mu: gaussian_epsilon(mu, delta) > epsilon, 0.0, high)
    if low == 0:
        raise DposeError(
            "epsilon-unreachable",
            f"no noise meets epsilon {as_given(epsilon)} at delta {as_given(delta)}",
            fix="choose a larger epsilon",
        )
    return low


def discrete_mu(ratios: Sequence[tuple[Fraction, Fraction, int]]) -> float:
    """The mu of several releases of whole numbers with discrete Gaussian noise.

    Args:
        ratios: For each release, squared L2 sensitivity, variance, and how often it is repeated.

    Raises:
        DposeError: a variance is below `LEAST_VARIANCE`.
    """
    total = Fraction(0)
    for squared, variance, steps in ratios:
        if variance < LEAST_VARIANCE:
            raise DposeError(
                "noise-too-coarse",
                f"discrete Gaussian noise of variance {lower(variance, 6)} is too coarse to count as Gaussian",
                fix='use accountant "zcdp"',
            )
        total += steps * squared / (variance - SMOOTHING)
    # a ratio beyond floating point costs more than anyone can claim
    return math.sqrt(total) if total < Fraction(10) ** 300 else math.inf


def discrete_epsilon(mu: float, delta: float) -> float:
    """The epsilon of releases of whole numbers whose `discrete_mu` is `mu`, at `delta`.

    Raises:
        DposeError: delta is out of range.
    """
    check_delta(delta)
    return gaussian_epsilon(mu, delta * (1 - MARGIN)) + MARGIN


def least_variance(squared: Fraction, epsilon: float, delta: float) -> int:
    """The smallest square of a whole number that is variance enough for one release of whole numbers.

    Args:
        squared: The squared L2 sensitivity.
        epsilon: The budget.
        delta: In (0, 1).

    Raises:
        DposeError: epsilon or delta is out of range.
    """
    mu = Fraction(largest_mu(epsilon - 2 * MARGIN, delta * (1 - MARGIN)))
    wanted = max(Fraction(LEAST_VARIANCE), squared / mu**2 + SMOOTHING)
    return (math.isqrt(math.ceil(wanted) - 1) + 1) ** 2


def _delta_at(u: float, mu: float) -> float:
    """Delta at epsilon = mu (u + mu/2): Phi(-u) - e^epsilon Phi(-u - mu), in a form that never overflows."""
    # scipy takes a while to import; anyone who reads a statement without Gaussian noise need not wait for it
    from scipy.special import erfcx, ndtr

    tail = math.exp(-u * u / 2) / 2 if abs(u) < FARTHEST else 0.0
    upper = float(erfcx((u + mu) / math.sqrt(2)))
    if u > 0:
        return max(0.0, tail * (float(erfcx(u / math.sqrt(2))) - upper))
    return max(0.0, float(ndtr(-u)) - tail * upper)


def _bisect(beyond: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """The ends of the interval in which `beyond` turns true, as narrow as floating point allows."""
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if beyond(middle):
            high = middle
        else:
            low = middle
    return low, high
