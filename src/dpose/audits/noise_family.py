"""Reading a refuted curve as an epsilon: what is the least noise that is refuted too?

(epsilon, delta) is one point of a curve, and an attack that breaks the curve need not break it there. What it shows is
put into one number within the mechanism's own family: the same sampling and steps with another noise multiplier. All
curves with at least as much noise as the bound are refuted, so the family's true member has less noise and a larger
epsilon. The bound exceeds the claim exactly where the claimed curve itself is refuted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dpose.privacy.accounting import COARSE, FINE, epsilon
from dpose.privacy.events import SampledGaussian
from dpose.privacy.neighbours import Relation
from dpose.privacy.ranges import MIN_SIGMA
from dpose.privacy.tradeoff import TradeOff, of_events

ENOUGH = 30.0
"""The search ends where epsilon is this large; a bound there reads "at least"."""
NONE_AT_ALL = 0.02
"""It ends where epsilon is this small."""
PRECISION = 1.02
"""Noise multipliers closer than this are not told apart."""


@dataclass(frozen=True)
class NoiseBound:
    """The least noise that is refuted.

    Attributes:
        epsilon: Its epsilon at the claim's delta: the lower bound; 0 if nothing is refuted.
        sigma: Its noise multiplier; infinity where nothing is refuted.
    """

    epsilon: float
    sigma: float


@dataclass
class Family:
    """The curves of one event under other noise multipliers, each computed once.

    Attributes:
        event: The claimed event.
        delta: Of the claim.
        relation: The neighbouring relation.
    """

    event: SampledGaussian
    delta: float
    relation: Relation = Relation.ZERO_OUT
    _curves: dict[float, TradeOff] = field(default_factory=dict, repr=False)
    _epsilons: dict[float, float] = field(default_factory=dict, repr=False)

    def curve(self, sigma: float) -> TradeOff:
        """The curve with noise multiplier `sigma`; on the fine grid for the claimed one."""
        if sigma not in self._curves:
            grid = FINE if sigma == self.event.sigma else COARSE
            self._curves[sigma] = of_events([replace(self.event, sigma=sigma)], self.relation, grid=grid)
        return self._curves[sigma]

    def epsilon(self, sigma: float) -> float:
        """Epsilon with noise multiplier `sigma`."""
        if sigma not in self._epsilons:
            event = replace(self.event, sigma=sigma)
            self._epsilons[sigma] = epsilon([event], self.delta, self.relation)
        return self._epsilons[sigma]

    @property
    def claimed(self) -> TradeOff:
        """The claimed curve."""
        return self.curve(self.event.sigma)

    def bound(self, refuted: Callable[[TradeOff], bool]) -> NoiseBound:
        """The least noise multiplier whose curve is refuted, to within 2 %, and its epsilon.

        Args:
            refuted: Says of a curve whether it is refuted. Where it refutes one, it refutes every stricter one.
        """
        stands = falls = self.event.sigma
        if refuted(self.claimed):
            while refuted(self.curve(stands)):
                falls = stands
                if self.curve(falls).epsilon(self.delta) >= ENOUGH or falls <= MIN_SIGMA:
                    return self._found(falls)
                stands = max(falls / 1.3, MIN_SIGMA)
        else:
            while not refuted(self.curve(falls)):
                stands = falls
                if self.curve(stands).epsilon(self.delta) <= NONE_AT_ALL:
                    return NoiseBound(0.0, math.inf)
                falls = stands * 1.5
        while falls / stands > PRECISION:
            middle = math.sqrt(falls * stands)
            if refuted(self.curve(middle)):
                falls = middle
            else:
                stands = middle
        return self._found(falls)

    def _found(self, sigma: float) -> NoiseBound:
        return NoiseBound(self.epsilon(sigma), sigma)
