"""Auditing in one run: from guesses about many canaries to a lower bound on epsilon.

    made = guess(scores, included, 100)                      # the 50 highest as in, the 50 lowest as out
    epsilon_bound(made, delta=1e-5, alpha=0.05)              # Steinke, Nasr and Jagielski 2023
    refuted(made, claimed_curve, alpha=0.05)                 # Mahloujifar, Melis and Chaudhuri 2024

Each of m canaries goes into the data on the toss of its own fair coin, before training. The adversary sees what the
mechanism released, guesses `made` of the coins and leaves the others. Under a guarantee about each single canary the
number of right guesses is unlikely to be large; where it is, the guarantee is refuted. The number of guesses must be
fixed beforehand, or each number tried must pay for itself (`TrialPlan`): the adversary may choose *which* canaries to
guess by looking, not how many. Derivations: docs/proofs/auditing.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom

from dpose.privacy.tradeoff import Floats, TradeOff

LARGEST = 20.0
"""Bounds are looked for up to this epsilon; no number of guesses here could show a larger one."""
STEP = 0.01
"""Bounds are rounded down to a multiple of this."""
TINY = 1e-12
"""p-values below this are reported as this."""


@dataclass(frozen=True)
class Guesses:
    """What the adversary staked and how it came out.

    Attributes:
        canaries: m, all canaries, guessed or not.
        made: Guesses made.
        correct: How many of them were right.
    """

    canaries: int
    made: int
    correct: int

    def __post_init__(self) -> None:
        if not 0 <= self.correct <= self.made <= self.canaries:
            raise ValueError(f"{self.correct} of {self.made} guesses on {self.canaries} canaries cannot be")


def guess(scores: Floats, included: NDArray[np.bool_], made: int) -> Guesses:
    """Guess the highest scores as in and the lowest as out, half and half.

    Args:
        scores: (m,), higher where the adversary believes more that the canary was in.
        included: (m,), the coins.
        made: How many guesses; an odd one goes to the highest.

    Raises:
        ValueError: the two arrays differ in shape, or there are fewer canaries than guesses.
    """
    if scores.shape != included.shape or scores.ndim != 1 or made > len(scores):
        raise ValueError(f"cannot make {made} guesses from scores {scores.shape} of coins {included.shape}")
    # ties go by position, which says nothing about a coin
    order = np.argsort(-scores, kind="stable")
    top = made - made // 2
    right = int(included[order[:top]].sum()) + int((~included[order[len(order) - made // 2 :]]).sum())
    return Guesses(len(scores), made, right)


def p_value(guesses: Guesses, epsilon: float, delta: float) -> float:
    """The largest probability that an (epsilon, delta)-DP mechanism allows of so many right guesses.

    With W ~ Binomial(made, e^epsilon / (1 + e^epsilon)) and v right guesses,

        P[right >= v]  <=  P[W >= v] + 2 m delta max_{1 <= i <= v} P[v > W >= v - i] / i

    (Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training run", Theorem 5.2).
    """
    return float(_p_values(guesses, np.array([epsilon]), delta)[0])


def _p_values(guesses: Guesses, epsilons: Floats, delta: float) -> Floats:
    v = guesses.correct
    if v == 0:
        return np.ones_like(epsilons)
    rate = expit(epsilons)[:, None]
    tail = np.asarray(binom.sf(v - 1, guesses.made, rate))[:, 0]
    below = np.cumsum(binom.pmf(np.arange(v - 1, -1, -1)[None], guesses.made, rate), axis=1)
    worst = (below / np.arange(1, v + 1)).max(axis=1)
    return np.asarray(np.minimum(1.0, tail + 2 * guesses.canaries * delta * worst))


def epsilon_bound(guesses: Guesses, delta: float, alpha: float) -> float:
    """A lower bound on epsilon at `delta`, wrong with probability at most `alpha`.

    Epsilons are tried from 0 upwards, and the bound stops at the first that is not refuted: it can exceed the true
    epsilon only where the true epsilon itself was refuted.
    """
    low = 0.0
    for width in (20 * STEP, STEP):
        epsilons = low + width * np.arange(LARGEST / (20 * STEP) if width > STEP else 20)
        stands = _p_values(guesses, epsilons, delta) > alpha
        first = int(np.argmax(stands)) if stands.any() else len(epsilons)
        low = float(epsilons[max(first - 1, 0)])
    return low


def refuted(guesses: Guesses, curve: TradeOff, alpha: float) -> bool:
    """Whether so many right guesses have a probability below `alpha` under every mechanism within `curve`."""
    return _least_mass(guesses, curve, alpha) > 1 + 1e-9


def p_value_curve(guesses: Guesses, curve: TradeOff) -> float:
    """The largest probability of so many right guesses under any mechanism within `curve`, at least `TINY`."""
    low, high = math.log(TINY), 0.0
    if refuted(guesses, curve, TINY):
        return TINY
    if not refuted(guesses, curve, 1.0):
        return 1.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        if refuted(guesses, curve, math.exp(middle)):
            high = middle
        else:
            low = middle
    return math.exp(high)


def _least_mass(guesses: Guesses, curve: TradeOff, tail: float) -> float:
    """The least total probability of all outcomes, given that the right guesses reach `correct` with `tail`.

    A total above one cannot be, so the tail is refuted. With p_i the probability of exactly i right guesses, c of them
    made and f the curve, one-run auditing gives for every i (Mahloujifar, Melis and Chaudhuri 2024, "Auditing
    f-differential privacy in one run", Theorem 9 for k = 2)

        sum_{j > i} (j/m) p_j   <=   power( sum_{j >= i} ((c - j)/m) p_j ) .

    The two sums are `right` and `wrong` below. Going down from the tail, each p_i is the least that the inequality
    allows, and never negative; docs/proofs/auditing.md proves that this greedy choice gives the least total.
    """
    m, made = guesses.canaries, guesses.made
    right = tail * guesses.correct / m
    wrong = tail * (made - guesses.correct) / m
    for i in range(guesses.correct - 1, -1, -1):
        needed = curve.least_false_positive(right)
        mass = max(0.0, (needed - wrong) * m / (made - i))
        right = right + mass * i / m
        wrong = wrong + mass * (made - i) / m
    return (right + wrong) * m / made
