"""Private selection: the best of a random number of trials, at the price of the law of that number.

    law = TrialLaw.parse("geometric:10")                # K, the number of trials: ten in expectation (`trial_law`)
    tuning.epsilon(delta=1e-5)                          # of everything: training, scores and the choice

Anyone who trains ten times and keeps the best has released something about all ten. If the number of trials K is itself
random and secret, every trial is drawn independently from one mechanism, and nothing but the best is shown, the choice
costs little more than one trial (Papernot and Steinke, ICLR 2022, "Hyperparameter tuning with Renyi differential
privacy", Theorems 2 and 6). The bound is dp-accounting's `RepeatAndSelectDpEvent`; docs/proofs/tuning.md says what
it is applied to.

**Guarantee.** One trial: a setting drawn uniformly from a public grid, training on one side of the data, a noised score
on the other. Unit: one unit of either side. Neighbours: zero-out, with public numbers of units. A unit is on one side
alone, so that a neighbour moves either the training or the score, and each side pays for the selection of its own
mechanism; the claim is the larger of the two. Noise: that of every trial's training and score, and K.

Two sides of private data: what trials learn from, and what they are scored on.

    sides = split_sides(protect(units), share=0.2)
    sides.training, sides.scored               # no unit, no copy of one and no known person is on both

**Guarantee.** Which unit is on which side is a function of names alone (of units, and of people where they are known):
public, fixed beforehand, and the same for neighbours by zero-out, who have the same names. So a unit's neighbours
differ on one side, and mechanisms on the two sides compose in parallel (docs/proofs/tuning.md).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any

from rich.console import Console

from dpose.errors import DposeError
from dpose.privacy.accounting import Accountant, epsilon, library_relation
from dpose.privacy.calibration import least_noise
from dpose.privacy.events import SampledGaussian
from dpose.privacy.fields import Count, StatementPart, Text, statement_part
from dpose.privacy.merged import groups_of, merge_units
from dpose.privacy.neighbours import Relation
from dpose.privacy.protected import Protected, protect
from dpose.privacy.ranges import MAX_SIGMA, MIN_SIGMA, check_delta, check_epsilon
from dpose.privacy.renyi import quiet_accountant
from dpose.privacy.trial_law import StatedLaw, TrialLaw
from dpose.units import KnownPictures


@dataclass(frozen=True)
class Sides:
    """Units in two parts. Made by `split_sides`.

    Attributes:
        training: What trials learn from.
        scored: What they are scored on.
    """

    training: Protected
    scored: Protected


def split_sides(whole: Protected, share: float, *, threads: int = 2, console: Console | None = None) -> Sides:
    """Set about a `share` of the units apart, whole people at a time.

    Groups of units (those that show one person, where that is known) are taken in a fixed order by their names until
    there are enough; so the share may be passed by less than the last group.

    Args:
        whole: The units, for neighbours by zero-out.
        share: Of the units, to be scored on; in (0, 1).
        threads: Threads that read.
        console: Where progress goes.

    Raises:
        DposeError: the relation is another, the share is out of range, or nothing is left on a side.
    """
    relation = whole.neighbours.relation
    if relation is not Relation.ZERO_OUT:
        raise DposeError(
            "sides-relation-unsupported", f"sides of data are fixed for zero-out, not for {relation.value}"
        )
    if not 0 < share < 1:
        raise DposeError("score-share-out-of-range", f"must lie between 0 and 1, not {share}", "score_share")
    data = whole.data
    ids = [data.unit_id(index) for index in range(len(data))]
    known = data if isinstance(data, KnownPictures) else None
    people = [known.subjects(index) if known else () for index in range(len(data))]
    together = groups_of(
        [(f"unit {name}", *(f"person {who}" for who in shown)) for name, shown in zip(ids, people, strict=True)]
    )
    apart: list[int] = []
    for group in sorted(together, key=lambda group: _place(ids[group[0]])):
        if len(apart) >= share * len(data):
            break
        apart += group
    chosen = set(apart)
    rest = [index for index in range(len(data)) if index not in chosen]
    if not rest:
        raise DposeError(
            "units-left-none",
            f"nothing is left to learn from: {len(data):,} units show people who belong together",
            "score_share",
            "use a smaller share, or more data",
        )

    def side(indices: Sequence[int]) -> Protected:
        part = merge_units(data, [[index] for index in indices])
        return protect(part, relation, threads=threads, console=console)

    return Sides(side(rest), side(sorted(chosen)))


def _place(name: str) -> bytes:
    return hashlib.sha256(f"dpose/sides/1 {name}".encode()).digest()


Curve = tuple[tuple[float, float], ...]


def check_choosable(relation: Relation, accountant: StrEnum) -> None:
    """Refuse what private selection has no bound for.

    Raises:
        DposeError: the accountant is not RDP, or the relation not zero-out.
    """
    if accountant != Accountant.RDP:
        raise DposeError(
            "tuning-accountant-unbounded",
            f"choosing among trials has no bound by {accountant.upper()}",
            "accountant",
            'use "rdp"',
        )
    if relation is not Relation.ZERO_OUT:
        why = (
            "RDP has none for it under Poisson sampling"
            if relation is Relation.REPLACE
            else "the score divides by a number of units, which it would have to hide"
        )
        raise DposeError(
            "tuning-relation-unbounded",
            f"choosing among trials has no bound for {relation.value}: {why}",
            "relation",
            'use "zero-out"',
        )


@statement_part
class Tuning(StatementPart):
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

    law: StatedLaw
    settings: tuple[Mapping[Text, Text], ...]
    events: tuple[SampledGaussian, ...]
    score: SampledGaussian
    scored: Count

    def __post_init__(self) -> None:
        if not self.settings or len(self.settings) != len(self.events):
            raise DposeError(
                "tuning-events-differ", f"{len(self.settings)} settings and {len(self.events)} events", "tuning"
            )
        if self.scored < 1:
            raise DposeError("scored-not-positive", f"must be at least 1, not {self.scored}", "tuning.scored")
        if (self.score.q, self.score.steps) != (1.0, 1) or self.score.sensitivity < 1 / self.scored:
            raise DposeError(
                "tuning-score-invalid",
                f"is not the score of {self.scored:,} units, one release of all of them",
                "tuning.score",
            )

    def epsilon(self, delta: float, relation: Relation = Relation.ZERO_OUT) -> float:
        """Cost of everything at `delta`, for any unit: those that trials train on, or those that they are scored on.

        Raises:
            DposeError: delta is out of range, or there is no bound for the relation.
        """
        return max(self.by_side(delta, relation))

    def curves(self) -> tuple[Curve, Curve]:
        """(order, Renyi divergence) of everything, for a unit of the training side and for one that is scored on."""
        training, scored = (self._notes(selection_curve(events, self.law)) for events in (self.events, (self.score,)))
        return training, scored

    def curve(self) -> Curve:
        """The same for a unit of whichever side costs more at each order."""
        import numpy as np

        return self._notes(np.maximum(selection_curve(self.events, self.law), selection_curve((self.score,), self.law)))

    @staticmethod
    def _notes(divergences: Any) -> Curve:
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

    def cost(self, events: Sequence[SampledGaussian], delta: float, relation: Relation) -> float:
        """Epsilon of everything, where the run that was chosen did `events`.

        Args:
            events: Of the run: of one setting of the grid, and no more steps than it has; none if no trial was
                drawn.
            delta: In (0, 1).
            relation: The neighbouring relation.

        Raises:
            DposeError: it did what no setting of the grid does, or as `epsilon`.
        """
        for event in events:
            if len(events) > 1 or not any(_within(event, known) for known in self.events):
                raise DposeError(
                    "tuning-events-outside-grid",
                    "did what no setting of its grid does, so that the price of choosing does not cover it",
                    "privacy statement",
                    "do not rely on it",
                )
        return self.epsilon(delta, relation)


def calibrated(law: TrialLaw, epsilon: float, delta: float, kinds: Sequence[tuple[float, int]]) -> list[float]:
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
            return selection_epsilon((SampledGaussian(q, sigma, steps, 1.0),), law, delta)

        guess = 0.4 + 2 * q * math.sqrt(2 * steps * math.log(1.25 / delta)) / epsilon
        return least_noise(cost, epsilon, guess, MIN_SIGMA, MAX_SIGMA)

    single = {kind: alone(*kind) for kind in dict.fromkeys(kinds)}

    def together(factor: float) -> float:
        events = (
            SampledGaussian(q, min(factor * sigma, MAX_SIGMA), steps, 1.0) for (q, steps), sigma in single.items()
        )
        return selection_epsilon(tuple(events), law, delta)

    factor = least_noise(together, epsilon, 1.0, 1.0, MAX_SIGMA)
    return [min(factor * single[kind], MAX_SIGMA) for kind in kinds]


def selection_epsilon(
    events: Sequence[SampledGaussian], law: TrialLaw, delta: float, relation: Relation = Relation.ZERO_OUT
) -> float:
    """Epsilon of the best of a random number of trials, each of which does one of `events`, drawn beforehand.

    A trial that draws its setting costs at every Renyi order at most what the dearest setting costs there.

    >>> one = SampledGaussian(q=1.0, sigma=4.0, steps=1, sensitivity=1.0)
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


def selection_curve(events: Sequence[SampledGaussian], law: TrialLaw) -> Any:
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
def _selection_curve(events: tuple[SampledGaussian, ...], law: TrialLaw) -> Any:
    from dp_accounting import dp_event

    accountant_of, any_of = _library()
    with quiet_accountant():
        repeated = dp_event.RepeatAndSelectDpEvent(
            any_of(events), float(law.mean), math.inf if law.shape is None else float(law.shape)
        )
        return accountant_of().compose(repeated).rdp


@lru_cache(maxsize=4096)
def _curve(event: SampledGaussian) -> Any:
    """Renyi divergences of one trial's event, at dp-accounting's own orders."""
    from dp_accounting.rdp import RdpAccountant

    with quiet_accountant():
        return RdpAccountant(neighboring_relation=library_relation(Relation.ZERO_OUT)).compose(event.dp_event()).rdp


@cache
def _library() -> tuple[Any, Any]:
    """dp-accounting's RDP accountant with one event more: one of several, drawn without looking at the data."""
    import numpy as np
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    @dataclass(frozen=True)
    class AnyOf(dp_event.DpEvent):  # type: ignore[misc]
        events: tuple[SampledGaussian, ...]

    class AnyOfAccountant(RdpAccountant):  # type: ignore[misc]
        def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
            if not isinstance(event, AnyOf):
                return super()._maybe_compose(event, count, do_compose)
            if do_compose:
                self._rdp += count * np.max([_curve(one) for one in event.events], axis=0)
            return None

    return lambda: AnyOfAccountant(neighboring_relation=library_relation(Relation.ZERO_OUT)), AnyOf


def _within(event: SampledGaussian, known: SampledGaussian) -> bool:
    """Whether `event` is `known`, or its first steps."""
    return event.steps <= known.steps and replace(event, steps=known.steps) == known
