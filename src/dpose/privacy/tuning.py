"""Private selection: the best of a random number of trials, at the price of the law of that number.

    law = TrialLaw.parse("geometric:10")                # K, the number of trials: ten in expectation
    law.draw(noise.stream(Purpose.TUNING))              # exactly so distributed, and a secret
    tuning.epsilon(delta=1e-5)                          # of everything: training, scores and the choice

Whoever trains ten times and keeps the best has released something about all ten. If the number of trials K is itself
random and secret, every trial is drawn independently from one mechanism, and nothing but the best is shown, the choice
costs little more than one trial (Papernot and Steinke, ICLR 2022, "Hyperparameter tuning with Renyi differential
privacy", Theorems 2 and 6). The bound is dp-accounting's `RepeatAndSelectDpEvent`; docs/proofs/tuning.md says what
it is applied to.

**Guarantee.** One trial: a setting drawn uniformly from a public grid, training on one side of the data, a noised score
on the other. Unit: one unit of either side. Neighbours: zero-out, with public numbers of units. A unit is on one side
alone, so that a neighbour moves either the training or the score, and each side pays for the selection of its own
mechanism; the claim is the larger of the two. Noise: that of every trial's training and score, and K.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from typing import Any

from dpose.errors import DposeError
from dpose.privacy.accounting import (
    MAX_SIGMA,
    MIN_SIGMA,
    Accountant,
    Event,
    Relation,
    check_delta,
    check_epsilon,
    epsilon,
    library_relation,
    quiet_accountant,
)
from dpose.privacy.calibration import least_noise
from dpose.privacy.coins import exp_bounds
from dpose.privacy.noise import Stream
from dpose.privacy.rounding import as_given

NAMED_SHAPES = {"logarithmic": Fraction(0), "geometric": Fraction(1)}
"""The truncated negative binomial laws that have names of their own, by their shape eta."""
POISSON = "poisson"
NEGATIVE_BINOMIAL = "negative-binomial"
MOST_TRIALS = 10_000
"""No law with a larger mean."""
LAWS = "geometric:MEAN, logarithmic:MEAN, negative-binomial:ETA:MEAN with ETA from 0 to 1, or poisson:MEAN"

Curve = tuple[tuple[float, float], ...]

_GRID = 1 << 48
_ABOVE = 2.0**-28
"""Gamma is rounded up by this share: the bound takes a smaller one (dp-accounting: to 1e-9) and holds for ours."""


@dataclass(frozen=True)
class TrialLaw:
    """The law of K, the number of trials.

    Truncated negative binomial with shape eta and gamma in (0, 1], for k = 1, 2, ...:

        P(K = k) = (1 - gamma)^k / (gamma^-eta - 1) * product over l < k of (l + eta) / (l + 1)

    or (1 - gamma)^k / (k log(1 / gamma)) where eta is 0 (Papernot and Steinke 2022, Definition 1); or Poisson, which
    may draw no trial at all.

    >>> TrialLaw.parse("geometric:10")
    TrialLaw(mean=Fraction(10, 1), shape=Fraction(1, 1))
    >>> str(TrialLaw.parse("negative-binomial:0.5:10")), TrialLaw.parse("poisson:10").shape is None
    ('negative-binomial:0.5:10', True)

    Attributes:
        mean: The expected number of trials, 1 to `MOST_TRIALS`; under the truncated laws the true one lies at most
            1e-8 below.
        shape: eta, from 0 to 1; None for Poisson.

    Raises:
        DposeError: a value is out of range.
    """

    mean: Fraction
    shape: Fraction | None

    def __post_init__(self) -> None:
        if not 1 <= self.mean <= MOST_TRIALS:
            raise DposeError(
                f"the expected number of trials must lie between 1 and {MOST_TRIALS:,}, not {as_given(self.mean)}",
                "--trials",
            )
        if self.shape is not None and not 0 <= self.shape <= 1:
            raise DposeError(f"eta must lie between 0 and 1, not {as_given(self.shape)}", "--trials")

    @classmethod
    def parse(cls, text: str) -> TrialLaw:
        """The law that `text` names; see `LAWS`.

        Raises:
            DposeError: it names none.
        """
        name, *numbers = text.split(":")
        try:
            values = [Fraction(number) for number in numbers]
            if name == NEGATIVE_BINOMIAL:
                shape, mean = values
                return cls(mean, shape)
            (mean,) = values
            return cls(mean, None if name == POISSON else NAMED_SHAPES[name])
        except (ValueError, KeyError, ZeroDivisionError) as error:
            raise DposeError(
                "is no law of the number of trials", f"--trials {text}", f"give {LAWS}"
            ) from error

    def __str__(self) -> str:
        mean = as_given(self.mean)
        if self.shape is None:
            return f"{POISSON}:{mean}"
        named = {shape: name for name, shape in NAMED_SHAPES.items()}.get(self.shape)
        return f"{named}:{mean}" if named else f"{NEGATIVE_BINOMIAL}:{as_given(self.shape)}:{mean}"

    @cached_property
    def gamma(self) -> Fraction:
        """The parameter of a truncated law, a fraction whose law has at most the mean that was asked for.

        Raises:
            ValueError: the law is Poisson.
        """
        if self.shape is None:
            raise ValueError("the Poisson law has no gamma")
        if self.shape == 1:
            return 1 / self.mean
        low, high = math.log(1e-9), 0.0  # of log gamma; the mean falls in it
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if _mean_at(middle, float(self.shape)) > self.mean else (low, middle)
        return min(Fraction(1), Fraction(math.ceil(math.exp(high) * (1 + _ABOVE) * _GRID), _GRID))

    def draw(self, stream: Stream) -> int:
        """K. Every probability is met exactly: nothing is rounded, and no floating point decides.

        Args:
            stream: A stream that nothing else draws from.
        """
        if self.shape is None:
            return _poisson(self.mean, stream)
        while True:
            # geometric with the same gamma, kept with probability c_k / c_1: what eta makes of it falls in k
            count = 1
            while _toss(1 - self.gamma, stream):
                count += 1
            if all(_toss((step + self.shape) / (step + 1), stream) for step in range(1, count)):
                return count

    def to_dict(self) -> dict[str, str]:
        """Ready for JSON, with the parameters that the theorems speak of."""
        found = {"law": str(self)}
        if self.shape is not None:
            found |= {"eta": str(self.shape), "gamma": str(self.gamma)}
        return found

    @classmethod
    def from_dict(cls, values: Any, where: str) -> TrialLaw:
        """The law that `to_dict` wrote.

        Raises:
            DposeError: it is none, or its parameters are not those of its name.
        """
        try:
            law = cls.parse(values["law"])
            gamma = Fraction(values["gamma"]) if law.shape is not None else None
            stated = {key: value for key, value in values.items() if key != "gamma"}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DposeError("is no law of the number of trials", where) from error
        ours = {key: value for key, value in law.to_dict().items() if key != "gamma"}
        # a last bit of gamma may differ between builds; a smaller gamma has a longer tail and costs more
        if stated != ours or (gamma is not None and abs(gamma / law.gamma - 1) > Fraction(1, 10**9)):
            raise DposeError(f"its parameters are not those of {law}", where, "do not rely on it")
        return law


def below(count: int, stream: Stream) -> int:
    """A whole number from 0 to `count` - 1, each exactly as likely.

    Raises:
        ValueError: `count` is below 1.
    """
    if count < 1:
        raise ValueError(f"there is nothing to choose among {count}")
    bits = (count - 1).bit_length()
    while True:
        drawn = int.from_bytes(stream.bytes((bits + 7) // 8), "big") >> (-bits % 8)
        if drawn < count:
            return drawn


def check_choosable(relation: Relation, accountant: StrEnum) -> None:
    """Refuse what private selection has no bound for.

    Raises:
        DposeError: the accountant is not RDP, or the relation not zero-out.
    """
    if accountant != Accountant.RDP:
        raise DposeError(
            f"choosing among trials has no bound by {accountant.upper()}", "accountant", 'use "rdp"'
        )
    if relation is not Relation.ZERO_OUT:
        why = (
            "RDP has none for it under Poisson sampling"
            if relation is Relation.REPLACE
            else "the score divides by a number of units, which it would have to hide"
        )
        raise DposeError(
            f"choosing among trials has no bound for {relation.value}: {why}", "relation", 'use "zero-out"'
        )


@dataclass(frozen=True)
class Tuning:
    """A run that was chosen from a random number of trials: all of it is public.

    Attributes:
        law: Of the number of trials.
        settings: The grid: what is special to each setting, values as text by the names of the configuration.
        events: What training with each of them does to the training side.
        score: What one score does to the other side; its sensitivity is 1 over the number of units there.
        scored: How many units are on that side.

    Raises:
        DposeError: there are no settings, or as many events as settings there are not.
    """

    law: TrialLaw
    settings: tuple[Mapping[str, str], ...]
    events: tuple[Event, ...]
    score: Event
    scored: int

    def __post_init__(self) -> None:
        if not self.settings or len(self.settings) != len(self.events):
            raise DposeError(f"{len(self.settings)} settings and {len(self.events)} events", "tuning")
        if isinstance(self.scored, bool) or not isinstance(self.scored, int) or self.scored < 1:
            raise DposeError(f"must be a whole number of at least 1, not {self.scored!r}", "tuning.scored")
        if (self.score.q, self.score.steps) != (1.0, 1) or self.score.sensitivity < 1 / self.scored:
            raise DposeError(
                f"is not the score of {self.scored:,} units, one release of all of them", "tuning.score"
            )

    def epsilon(self, delta: float, relation: Relation = Relation.ZERO_OUT) -> float:
        """Of everything at `delta`, for any unit: of those that trials train on, or those that they are scored on.

        Raises:
            DposeError: delta is out of range, or there is no bound for the relation.
        """
        return max(self.by_side(delta, relation))

    def curves(self) -> tuple[Curve, Curve]:
        """(order, Renyi divergence) of everything, for a unit of the training side and for one that is scored on."""
        training, scored = (
            self._told(selection_curve(events, self.law)) for events in (self.events, (self.score,))
        )
        return training, scored

    def curve(self) -> Curve:
        """The same for a unit of whichever side costs more at each order."""
        import numpy as np

        return self._told(
            np.maximum(selection_curve(self.events, self.law), selection_curve((self.score,), self.law))
        )

    @staticmethod
    def _told(divergences: Any) -> Curve:
        from dp_accounting.rdp import RdpAccountant

        pairs = zip(map(float, RdpAccountant().orders), map(float, divergences), strict=True)
        return tuple(pair for pair in pairs if math.isfinite(pair[1]))

    def by_side(self, delta: float, relation: Relation = Relation.ZERO_OUT) -> tuple[float, float]:
        """Epsilon of everything for a unit of the training side, and for one that scores are taken of.

        Raises:
            DposeError: as `epsilon`.
        """
        sides = (self.events, (self.score,))
        first, second = (selection_epsilon(events, self.law, delta, relation) for events in sides)
        return first, second

    def of_one_trial(self, delta: float) -> tuple[float, float]:
        """Epsilon of one trial alone, chosen beforehand, for a unit of either side; of the dearest setting.

        Raises:
            DposeError: delta is out of range.
        """
        training, score = (
            max(epsilon([event], delta, accountant=Accountant.RDP) for event in events)
            for events in (self.events, (self.score,))
        )
        return training, score

    def cost(self, events: Sequence[Event], delta: float, relation: Relation) -> float:
        """Epsilon of everything, where the run that was chosen did `events`.

        Args:
            events: Of the run: of one setting of the grid, and no more steps than it has; none where no trial was
                drawn.
            delta: In (0, 1).
            relation: The neighbouring relation.

        Raises:
            DposeError: it did what no setting of the grid does, or as `epsilon`.
        """
        for event in events:
            if len(events) > 1 or not any(_within(event, known) for known in self.events):
                raise DposeError(
                    "did what no setting of its grid does, so that the price of choosing does not cover it",
                    "privacy statement",
                    "do not rely on it",
                )
        return self.epsilon(delta, relation)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        pairs = zip(self.settings, self.events, strict=True)
        return {
            "trials": self.law.to_dict(),
            "grid": [{"setting": dict(setting), "event": event.to_dict()} for setting, event in pairs],
            "score": self.score.to_dict(),
            "scored": self.scored,
        }

    @classmethod
    def from_dict(cls, values: Any, where: str = "tuning") -> Tuning:
        """The tuning that `to_dict` wrote.

        Raises:
            DposeError: it is none; names the field.
        """
        try:
            if set(values) != {"trials", "grid", "score", "scored"}:
                raise KeyError("another field")
            grid = [
                ({str(k): str(v) for k, v in cell["setting"].items()}, cell["event"])
                for cell in values["grid"]
            ]
            return cls(
                law=TrialLaw.from_dict(values["trials"], f"{where}.trials"),
                settings=tuple(setting for setting, _ in grid),
                events=tuple(
                    Event.from_dict(event, f"{where}.grid[{i}]") for i, (_, event) in enumerate(grid)
                ),
                score=Event.from_dict(values["score"], f"{where}.score"),
                scored=values["scored"],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise DposeError("does not say how the run was chosen", where) from error


def calibrated(
    law: TrialLaw, epsilon: float, delta: float, kinds: Sequence[tuple[float, int]]
) -> list[float]:
    """The noise of each kind of trial, so that the choice among all of them costs `epsilon`.

    Each kind alone, chosen from itself, costs the same; a common factor then makes room for what their curves differ
    in. The answer is evaluated and meets the budget.

    Args:
        law: Of the number of trials.
        epsilon: Of everything.
        delta: At which.
        kinds: Sampling rate and number of steps of each.

    Returns:
        Noise multipliers, in the order of `kinds`.

    Raises:
        DposeError: an argument is out of range, or no noise meets the budget.
    """
    check_epsilon(epsilon)
    check_delta(delta)

    def alone(q: float, steps: int) -> float:
        def cost(sigma: float) -> float:
            return selection_epsilon((Event(q, sigma, steps, 1.0),), law, delta)

        guess = 0.4 + 2 * q * math.sqrt(2 * steps * math.log(1.25 / delta)) / epsilon
        return least_noise(cost, epsilon, guess, MIN_SIGMA, MAX_SIGMA)

    single = {kind: alone(*kind) for kind in dict.fromkeys(kinds)}

    def together(factor: float) -> float:
        events = (
            Event(q, min(factor * sigma, MAX_SIGMA), steps, 1.0) for (q, steps), sigma in single.items()
        )
        return selection_epsilon(tuple(events), law, delta)

    factor = least_noise(together, epsilon, 1.0, 1.0, MAX_SIGMA)
    return [min(factor * single[kind], MAX_SIGMA) for kind in kinds]


def selection_epsilon(
    events: Sequence[Event], law: TrialLaw, delta: float, relation: Relation = Relation.ZERO_OUT
) -> float:
    """Epsilon of the best of a random number of trials, each of which does one of `events`, drawn beforehand.

    A trial that draws its setting costs at every Renyi order at most what the dearest setting costs there.

    >>> one = Event(q=1.0, sigma=4.0, steps=1, sensitivity=1.0)
    >>> round(selection_epsilon([one], TrialLaw.parse("geometric:10"), 1e-5), 2)
    2.25

    Args:
        events: What a trial may do; at least one.
        law: Of the number of trials.
        delta: In (0, 1).
        relation: Zero-out; others are refused.

    Raises:
        DposeError: delta is out of range, or there is no bound for the relation.
    """
    check_choosable(Relation(relation), Accountant.RDP)
    return curve_epsilon(selection_curve(events, law), delta)


def selection_curve(events: Sequence[Event], law: TrialLaw) -> Any:
    """Renyi divergences of the best of a random number of trials at dp-accounting's own orders, as `selection_epsilon`.

    Args:
        events: What a trial may do; at least one.
        law: Of the number of trials.
    """
    kinds = {(event.q, event.sigma, event.steps): replace(event, sensitivity=1.0) for event in events}
    return _selection_curve(tuple(kinds.values()), law)


def curve_epsilon(curve: Any, delta: float) -> float:
    """Epsilon at `delta` of Renyi divergences at dp-accounting's own orders; of several mechanisms, of their sum.

    Raises:
        DposeError: delta is out of range.
    """
    from dp_accounting.rdp import RdpAccountant, compute_epsilon

    check_delta(delta)
    return float(compute_epsilon(RdpAccountant().orders, curve, float(delta))[0])


@lru_cache(maxsize=4096)
def _selection_curve(events: tuple[Event, ...], law: TrialLaw) -> Any:
    from dp_accounting import dp_event

    accountant_of, any_of = _library()
    with quiet_accountant():
        repeated = dp_event.RepeatAndSelectDpEvent(
            any_of(events), float(law.mean), math.inf if law.shape is None else float(law.shape)
        )
        return accountant_of().compose(repeated).rdp


@lru_cache(maxsize=4096)
def _curve(event: Event) -> Any:
    """Renyi divergences of one trial's event, at dp-accounting's own orders."""
    from dp_accounting.rdp import RdpAccountant

    with quiet_accountant():
        return (
            RdpAccountant(neighboring_relation=library_relation(Relation.ZERO_OUT))
            .compose(event.dp_event())
            .rdp
        )


@cache
def _library() -> tuple[Any, Any]:
    """dp-accounting's RDP accountant with one event more: one of several, drawn without looking at the data."""
    import numpy as np
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    @dataclass(frozen=True)
    class AnyOf(dp_event.DpEvent):  # type: ignore[misc]
        events: tuple[Event, ...]

    class AnyOfAccountant(RdpAccountant):  # type: ignore[misc]
        def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
            if not isinstance(event, AnyOf):
                return super()._maybe_compose(event, count, do_compose)
            if do_compose:
                self._rdp += count * np.max([_curve(one) for one in event.events], axis=0)
            return None

    return lambda: AnyOfAccountant(neighboring_relation=library_relation(Relation.ZERO_OUT)), AnyOf


def _within(event: Event, known: Event) -> bool:
    """Whether `event` is `known`, or its first steps."""
    return event.steps <= known.steps and replace(event, steps=known.steps) == known


def _mean_at(log_gamma: float, shape: float) -> float:
    """The mean of a truncated negative binomial law."""
    if log_gamma == 0:
        return 1.0
    whole = math.expm1(log_gamma) * math.exp(-log_gamma)
    return whole / log_gamma if shape == 0 else shape * whole / math.expm1(shape * log_gamma)


def _toss(probability: Fraction, stream: Stream) -> bool:
    return below(probability.denominator, stream) < probability.numerator


def _poisson(mean: Fraction, stream: Stream) -> int:
    """A Poisson number: where a uniform one falls among the sums of the law, both known to as many bits as it takes."""
    spare, drawn, bits = 32, 0, 0
    while True:
        drawn, bits = drawn << 64 | int.from_bytes(stream.bytes(8), "big"), bits + 64
        low, high = exp_bounds(mean, bits + spare)
        count, term, total = 0, Fraction(1), Fraction(1)
        while drawn << spare >= high * total:  # at or above the whole sum to here, however its digits go on
            count += 1
            term *= mean / count
            total += term
        if (drawn + 1) << spare <= low * total:
            return count
