"""The optional parts of a statement, which NIST SP 800-226 asks a deployment for.

None of them changes what is guaranteed. What follows from the recorded events (`attackers`, `groups`) is computed and
checked with the statement; the rest is stated by a person, and is "not stated" otherwise.

What was computed from private data besides training: a list that every statement has.

What several units of one person cost together: group privacy of Poisson-sampled Gaussian noise.

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
import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from itertools import repeat
from typing import Any

from pydantic import StrictBool

from dpose.errors import DposeError
from dpose.privacy.accounting import MAX_BUDGET, MIN_DELTA, beyond_use
from dpose.privacy.attackers import loss_grid
from dpose.privacy.events import SampledGaussian, merge
from dpose.privacy.fields import Decimal, DecimalText, Positive, StatementPart, Text, optional, statement_part
from dpose.privacy.neighbours import Relation
from dpose.privacy.ranges import parse_decimal

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


@statement_part
class Query(StatementPart):
    """One thing that was computed from private data besides the training itself.

    Attributes:
        what: What was computed ("mean PCKh@0.5").
        data: Of which data ("mpii:val, 2,958 images").
        purpose: What it was used for ("reported only").
        covered: Whether the statement's epsilon covers it; an evaluation on held-out private data is not
            covered.
        cost: What noise of its own makes it cost those data, in words; empty if nothing bounds it, or epsilon covers
            it.
        score: Of a noised score, SHA-256 and name of the file that holds it (`dpose.privacy.scores`).
    """

    what: Text
    data: Text
    purpose: Text = "reported only"
    covered: StrictBool = False
    cost: Text = optional(default="")
    score: Text = optional(default="")

    @property
    def coverage(self) -> str:
        """Whether epsilon covers the query; if not, its cost by noise of its own."""
        if self.covered:
            return "covered by epsilon"
        return f"not part of epsilon: it costs {self.cost}" if self.cost else "NOT covered by epsilon"


UNSTATED = "not stated"
EVERYBODY = "everybody"
"""The group of all units, in results by group."""
SIGNATURE = "privacy.json.sig"
"""The file beside a statement that holds its signature, where somebody signed it (`dpose.privacy.signing`)."""


@statement_part
class About(StatementPart):
    """Who releases something, to whom, what for and why so: what the user says of it.

    Attributes:
        curator: Who sees the data as they are.
        access: Who may have what is released.
        intended_use: What it is for.
        contact: Whom to ask.
        why_epsilon: Why this epsilon.
        why_delta: Why this delta.
        why_unit: Why this unit.
        settings: How all other settings were chosen, and whether private data had a part in that.
    """

    curator: Text = "unknown"
    access: Text = UNSTATED
    intended_use: Text = UNSTATED
    contact: Text = UNSTATED
    why_epsilon: Text = UNSTATED
    why_delta: Text = UNSTATED
    why_unit: Text = UNSTATED
    settings: Text = UNSTATED


NOT_SAID = About()


@statement_part
class Deployment(About):
    """The same, of what.

    Attributes:
        released: What leaves the building: the final weights, every iterate, a picture, a clip.
        date: Of the release, YYYY-MM-DD; empty if it is not told.
        model: The deployment model: central, where a curator sees the data as they are and adds the noise.
    """

    released: Text = UNSTATED
    date: Text = ""
    model: Text = "central"

    @classmethod
    def of(cls, about: About, released: str, date: str = "") -> Deployment:
        """What was said, of what is released."""
        return cls(**asdict(about), released=released, date=date)


@statement_part
class PublicInput(StatementPart):
    """Something public that the artefact was made from.

    Attributes:
        what: What it is.
        sha256: Digest of its file, or of its units.
        licence: Under which it may be used; an SPDX identifier where there is one.
    """

    what: Text
    sha256: Text
    licence: Text = UNSTATED


@statement_part
class AuditResult(StatementPart):
    """A lower bound on epsilon that an audit reached.

    Attributes:
        what: Which audit, of what.
        epsilon: That holds at least; a decimal string, rounded down.
        confidence: Of the bound; a decimal string in (0, 1).
    """

    what: Text
    epsilon: DecimalText
    confidence: DecimalText

    def __post_init__(self) -> None:
        if not 0 < parse_decimal(self.confidence, "audits.confidence") < 1:
            raise DposeError("confidence-out-of-range", "must lie between 0 and 1", "audits.confidence")


@statement_part
class PlantedCanaries(StatementPart):
    """Canaries that were put among the units before training, and the commitment to which of them are in.

    Attributes:
        kind: "gradient" or "input".
        count: Their number, in or not; they count among the units.
        commitment: `dpose.privacy.canaries.Opening.commitment`.
    """

    kind: Text
    count: Text
    commitment: Text

    def __post_init__(self) -> None:
        if not re.fullmatch("[1-9][0-9]*", self.count):
            raise DposeError("count-not-whole", f"must be a whole number, not {self.count!r}", "canaries.count")
        if not re.fullmatch("[0-9a-f]{64}", self.commitment):
            raise DposeError("commitment-malformed", "must be 64 hexadecimal digits", "canaries.commitment")


@statement_part
class GroupResult(StatementPart):
    """How well the artefact does for one group of people, where that was measured: on public data, or by a query.

    Attributes:
        group: Whom it is about ("aid: wheelchair").
        units: How many there were.
        metric: Of which score.
        before: Without private training; empty if it was not measured.
        after: With it.
    """

    group: Text
    units: Text
    metric: Text
    before: Text
    after: Text


@statement_part
class GroupEpsilon(StatementPart):
    """What several units of one person cost together, at the statement's delta; of a release, several times its pixels.

    Attributes:
        units: How many, or how many times as much.
        epsilon: Of them all; None of units above 100, or where there is no bound.
    """

    units: Positive
    epsilon: Decimal | None


def largest_loss(results: Sequence[GroupResult]) -> tuple[str, float, float] | None:
    """The group that loses most by private training, its loss and everybody's, in points; None if unknown."""
    try:
        losses = {r.group: float(r.before) - float(r.after) for r in results if r.before}
    except ValueError:  # texts that somebody else wrote
        return None
    mean = losses.pop(EVERYBODY, None)
    if mean is None or not losses:
        return None
    worst = max(losses, key=lambda group: losses[group])
    return worst, losses[worst], mean


def group_section(
    events: Sequence[SampledGaussian], delta: float, relation: Relation, claimed: float
) -> tuple[GroupEpsilon, ...]:
    """The epsilon of 1 to 10 units of one person: that of one as claimed."""
    more = enumerate(group_epsilons(events, delta, relation), 2)
    return (GroupEpsilon(1, claimed), *(GroupEpsilon(k, spent) for k, spent in more))


def check_groups(ours: Sequence[GroupEpsilon], true: Sequence[GroupEpsilon], slack: float) -> None:
    """Refuse groups that are not those of `true`, or cost less.

    Raises:
        DposeError: they do.
    """
    if len(ours) != len(true) or not all(map(_enough, ours, true, repeat(slack))):
        raise DposeError("groups-understated", "says less than the recorded events cost", "groups", "do not rely on it")


def _enough(ours: GroupEpsilon, true: GroupEpsilon, slack: float) -> bool:
    if ours.units != true.units or ours.epsilon is None:
        return ours.units == true.units
    return true.epsilon is not None and ours.epsilon >= true.epsilon * (1 - slack)
