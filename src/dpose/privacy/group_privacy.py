"""What several units of one person cost together: group privacy of Poisson-sampled Gaussian noise.

    group_epsilons(events, 1e-5, Relation.ZERO_OUT)     # of 2, 3, ... 10 units, beside the epsilon of one

**Guarantee.** Neighbours: k units are blanked out (or added, or left out) together. Each of them is in a batch with
probability q, independently, and moves the noised sum by at most the sensitivity, so that the sum moves by at most j
sensitivities where j of them were drawn, Binomial(k, q). Against N(0, sigma^2) that mixture of N(j, sigma^2) dominates
every run (Choquette-Choo et al. 2023, "Privacy amplification for matrix mechanisms", Corollary 4.7), and dominating
pairs compose. Exchanging k units is blanking k out and putting k others in their place. docs/proofs/groups.md has the
proof, and what the grid adds.

dp-accounting has the same pair (`from_mixture_gaussian_mechanism`) and inverts its loss one point after the other, in
seconds for each k; here all points at once are, by Newton's method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from dpose.privacy.accounting import MAX_BUDGET, MIN_DELTA, beyond_use
from dpose.privacy.attackers import loss_grid
from dpose.privacy.events import SampledGaussian, merge
from dpose.privacy.neighbours import Relation

MOST = 10
"""Units that a statement says the epsilon of, at most."""
POINTS = 6000
"""Losses that the distribution of one step is told at, about; between them it is rounded to what costs more."""
TAIL = 10.0
"""Noise beyond so many standard deviations (2e-23) counts as a breach."""


def group_epsilons(
    events: Sequence[SampledGaussian], delta: float, relation: Relation, most: int = MOST
) -> tuple[float | None, ...]:
    """Epsilon of 2, 3, ... `most` units together at `delta`; None from where it is above 100.

    >>> once = SampledGaussian(q=1.0, sigma=10.0, steps=1, sensitivity=1.0)
    >>> two, three = group_epsilons([once], 1e-5, Relation.ZERO_OUT, 3)
    >>> round(two, 2), round(three, 2)
    (0.76, 1.19)

    Args:
        events: What was released.
        delta: In (0, 1).
        relation: The neighbouring relation, with k units in place of one.
        most: Of how many units, at least 2.
    """
    counted = tuple(merge(events))
    if delta < MIN_DELTA or beyond_use(counted, delta, relation):
        return (None,) * (most - 1)
    found: list[float | None] = []
    for k in range(2, most + 1):
        known = not found or found[-1] is not None
        spent = _epsilon_of(counted, delta, Relation(relation), k) if known else math.inf
        found.append(spent if spent <= MAX_BUDGET else None)
    return tuple(found)


@lru_cache(maxsize=1024)
def _epsilon_of(events: tuple[SampledGaussian, ...], delta: float, relation: Relation, k: int) -> float:
    grid = max(loss_grid(events), *(_span(event, k) / POINTS for event in events))
    total: Any = None
    for event in events:
        losses = _losses(event, k, grid).self_compose(event.steps)
        total = losses if total is None else total.compose(losses)
    if relation is not Relation.REPLACE:
        return float(total.get_epsilon_for_delta(delta))
    return _in_two_steps(total, delta)


def _in_two_steps(blanked: Any, delta: float) -> float:
    """Epsilon of exchanging units, from the losses of blanking them out.

    A to B and B to C, each (e, d), is A to C with (2 e, (1 + e^e) d). A delta below what convolutions resolve is taken
    for that.
    """
    import numpy as np

    steps = np.linspace(0.0, math.log(max(delta / MIN_DELTA, 2.0)), 1000)
    deltas = np.maximum(blanked.get_delta_for_epsilon(steps), MIN_DELTA)
    enough = np.flatnonzero((1 + np.exp(steps)) * deltas <= delta)
    return 2 * float(steps[enough[0]]) if len(enough) else math.inf


def _losses(event: SampledGaussian, k: int, grid: float) -> Any:
    """The loss distribution of one step, in both directions, on the grid and rounded to what costs more."""
    import numpy as np
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution
    from scipy.special import ndtr

    counts, weights = _drawn(event.q, k)
    xs = np.linspace(-TAIL * event.sigma, k + TAIL * event.sigma, 4 * POINTS)
    losses, _ = _loss(xs, counts, weights, event.sigma)

    def thresholds(wanted: Any) -> Any:
        at = np.interp(wanted, losses, xs)
        for _ in range(2):
            loss, slope = _loss(at, counts, weights, event.sigma)
            at = np.clip(at - (loss - wanted) / np.maximum(slope, 1e-6), xs[0], xs[-1])
        return at

    def above(at: Any, sign: int) -> tuple[Any, Any]:
        """The mass of the mixture and of the noise alone on one side of each point."""
        mixed = weights @ ndtr(sign * (counts[:, None] - at) / event.sigma)
        return mixed, ndtr(-sign * at / event.sigma)

    def notes(first: int, last: int, sign: int) -> Any:
        steps = np.arange(first, last + 1)
        mixed, alone = above(thresholds(sign * steps * grid), sign)
        upper, lower = (mixed, alone) if sign > 0 else (alone, mixed)
        deltas = np.clip(upper - np.exp(steps * grid) * lower, 0.0, 1.0)
        return pld_pmf.create_pmf_pessimistic_connect_dots(grid, steps, np.minimum.accumulate(deltas))

    low, high = math.floor(losses[0] / grid), math.ceil(losses[-1] / grid)
    return privacy_loss_distribution.PrivacyLossDistribution(notes(low, high, 1), notes(-high, -low, -1))


def _drawn(q: float, k: int) -> tuple[Any, Any]:
    """How many of k units a batch may hold, and how likely each number is."""
    import numpy as np
    from scipy.stats import binom

    counts = np.array([k]) if q == 1 else np.arange(k + 1)
    return counts.astype(np.float64), binom.pmf(counts, k, q)


def _loss(at: Any, counts: Any, weights: Any, sigma: float) -> tuple[Any, Any]:
    """ln(mixture / noise alone) and its slope at each point: the slope is the expected number drawn, over sigma^2."""
    import numpy as np

    terms = np.log(weights)[:, None] + (counts[:, None] * at - counts[:, None] ** 2 / 2) / sigma**2
    top = terms.max(axis=0)
    shares = np.exp(terms - top)
    total = shares.sum(axis=0)
    return top + np.log(total), (counts @ shares) / total / sigma**2


def _span(event: SampledGaussian, k: int) -> float:
    """About the width of the losses of one step."""
    counts, weights = _drawn(event.q, k)
    ends, _ = _loss([-TAIL * event.sigma, k + TAIL * event.sigma], counts, weights, event.sigma)
    return float(ends[1] - ends[0])
