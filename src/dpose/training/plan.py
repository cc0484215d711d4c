"""The training plan: method, sampling, clipping, noise and the accountant's event, bound together.

    plan = TrainingPlan(method="dp-sgd", epsilon=0.8, delta=4e-5, epochs=25, expected_batch_size=1024)
    bound = plan.bind(22146)      # sampling rate, steps, noise multiplier: fixed before any data is read
    bound.event                   # what the accountant sees
    bound.noise_stddev            # what the trainer adds to every clipped sum

The trainer takes its sampling rate, clipping norm and noise from the `BoundPlan` and from nowhere else, so the event
that is accounted for is the event that runs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dpose.errors import DposeError
from dpose.extensions import YOUR_OWN, registered
from dpose.privacy.accounting import OF_RUNS, Accountant, epsilon, noise_multiplier
from dpose.privacy.calibration import least_noise
from dpose.privacy.entries import plan_digest
from dpose.privacy.events import FLOATING, ROUNDED, SampledGaussian, SampledNoise
from dpose.privacy.neighbours import ACCOUNT_UNITS, Relation
from dpose.privacy.ranges import (
    MAX_CLIP,
    MAX_SIGMA,
    MIN_CLIP,
    MIN_SIGMA,
    as_given,
    check_delta,
    check_epsilon,
    check_sigma,
    check_steps,
    plain_number,
    upper,
)
from dpose.training.clip import UNITS, Clip
from dpose.training.methods import METHODS, Method, SubspaceConfig
from dpose.training.public_view import PublicView
from dpose.units import MAX_VIEWS, Unit

if TYPE_CHECKING:
    from dpose.privacy.protected import Protected

PRIVATE_LOSSES = ("plain", "residual")
WHOLE = ("steps", "nominal_units", "augmentation_multiplicity")
NUMBERS = (
    *("epsilon", "delta", "epochs", "expected_batch_size", "clip_norm", "noise_multiplier"),
    *("ema_decay", "public_weight", "average_last", *WHOLE),
)
"""The fields of a plan that hold a number, `WHOLE` a whole one; or None where that is the default."""
NOISES: Mapping[str, SampledNoise] = {"exact": ROUNDED, "float": FLOATING}


@dataclass(frozen=True)
class TrainingPlan:
    """What will be done to the data and what it may cost, before anything is read.

    >>> plan = TrainingPlan(epsilon=2.0, delta=1e-5, epochs=2, expected_batch_size=100, accountant="rdp")
    >>> bound = plan.bind(1000)
    >>> bound.steps, bound.sampling_rate, bound.divisor
    (20, 0.1, 100.0)
    >>> 1.998 <= bound.epsilon <= 2.0
    True

    Attributes:
        method: dp-sgd, scaled-sgd, subspace-sgd, dp-head, adassp-head, pdp-sgd, fdp-sgd, fpdp-sgd, public-only or
            non-private; scaled-sgd scales and subspace-sgd projects before the clip, pdp-sgd projects after it;
            dp-head and adassp-head solve a linear correction; fdp-sgd and fpdp-sgd protect features; public-only reads
            no private data. A key of `METHODS`, which `register_method` adds to.
        epsilon: The privacy budget of the whole run: 1 is strong, 8 is common. Or give `noise_multiplier`.
        delta: By how much a probability may exceed the bound of e^epsilon, below 1 / number of units.
        epochs: Passes over the data, in expectation. steps = ceil(epochs * n / expected_batch_size). dp-head takes one
            pass in one step, adassp-head two in two, whatever this and `expected_batch_size` are.
        steps: Overrides `epochs`.
        expected_batch_size: Units in a Poisson batch on average. The divisor of every noised sum.
        clip_norm: The clipping norm C, the bound on a unit's gradient.
        normalise: Divide clipped gradients by C, so that C does not scale the optimizer's step.
        noise_multiplier: sigma, the noise's standard deviation over the sensitivity; calibrated when None.
        noise: "exact", whole numbers with exactly the probabilities of a rounded Gaussian; or "float", drawn and added
            in 64-bit floating point, for which the proof holds up to rounding.
        relation: The neighbouring relation: "zero-out" (n is public), "add-or-remove" or "replace".
        accountant: "pld", or "rdp" to match the papers.
        nominal_units: The constant that stands for the number of units where that number is itself protected:
            needed for (and only for) add-or-remove. Chosen beforehand, not counted.
        unit: What a unit is: a word of `dpose.units.Unit`, which the data must confirm; None for whatever they say.
        ema_decay: Weight averaging; 0 turns it off. The averaged weights are the released ones.
        average_last: Share of the last steps whose averaged weights are released, in place of `ema_decay`.
        augmentation_multiplicity: Augmented copies of each unit in one gradient; they cost time and no noise.
        subspace: For the methods that project or scale.
        public_view: For the methods that use public views.
        private_loss: With public views, the loss whose gradients are clipped and noised: "plain", l(x, y), or
            "residual", l(x, y) - l(psi(x), y), whose gradients are smaller.
        public_weight: With public views, the weight of their gradient beside the noised one.

    Raises:
        DposeError: a value is out of range, or the method does not allow the relation.
    """

    method: str = "dp-sgd"
    epsilon: float | None = None
    delta: float | None = None
    epochs: float = 10.0
    steps: int | None = None
    expected_batch_size: int = 256
    clip_norm: float = 1.0
    normalise: bool = True
    noise_multiplier: float | None = None
    noise: str = "exact"
    relation: Relation = Relation.ZERO_OUT
    accountant: Accountant = Accountant.PLD
    nominal_units: int | None = None
    unit: str | None = None
    ema_decay: float = 0.0
    augmentation_multiplicity: int = 1
    subspace: SubspaceConfig = field(default_factory=SubspaceConfig)
    public_view: PublicView = field(default_factory=PublicView)
    private_loss: str = "plain"
    public_weight: float = 1.0
    average_last: float = 0.0

    def __post_init__(self) -> None:
        if not registered(self.method, METHODS):
            fix = f"choose one of {', '.join(METHODS)}, {YOUR_OWN}"
            raise DposeError("method-unknown", f"unknown method {self.method!r}", fix=fix)
        for name in NUMBERS:
            value = getattr(self, name)
            if value is not None or getattr(TrainingPlan, name) is not None:
                object.__setattr__(self, name, plain_number(value, name, whole=name in WHOLE))
        _positive("expected_batch_size", self.expected_batch_size)
        _positive("epochs", self.epochs)
        if self.steps is not None:
            _positive("steps", self.steps)
        _positive("clip_norm", self.clip_norm)
        if not 0 <= self.ema_decay < 1:
            raise DposeError("ema-out-of-range", f"ema_decay must be in [0, 1), not {self.ema_decay}")
        if not 0 <= self.average_last <= 1 or (self.average_last and self.ema_decay):
            raise DposeError(
                "average-last-out-of-range",
                f"average_last is a share of the steps, in [0, 1], and not beside ema_decay, not {self.average_last:g}",
                fix="leave one of them out, or give plan.ema_decay=0",
            )
        object.__setattr__(self, "relation", _choice(Relation, self.relation, "relation"))
        object.__setattr__(self, "accountant", _choice(Accountant, self.accountant, "accountant", OF_RUNS))
        if self.unit is not None:
            object.__setattr__(
                self, "unit", _choice(Unit, self.unit, "unit", [unit for unit in Unit if unit in ACCOUNT_UNITS]).value
            )
        if self.private_loss not in PRIVATE_LOSSES:
            raise DposeError(
                "private-loss-unknown",
                f"unknown private_loss {self.private_loss!r}",
                fix=f"choose one of {', '.join(PRIVATE_LOSSES)}",
            )
        if self.noise not in NOISES:
            raise DposeError("noise-unknown", f"unknown noise {self.noise!r}", fix=f"choose one of {', '.join(NOISES)}")
        if not 1 <= self.augmentation_multiplicity <= MAX_VIEWS:
            raise DposeError(
                "augmentation-multiplicity-out-of-range",
                f"a unit has 1 to {MAX_VIEWS} augmented copies, not {self.augmentation_multiplicity}",
            )
        _positive("public_weight", self.public_weight)
        if self.kind.pre_clipping == "scales" and self.subspace.kind == "random":
            raise DposeError(
                "scales-without-random",
                f"{self.method} has no random scales",
                "subspace.kind",
                "choose public, or identity as a control",
            )
        if self.kind.solves and self.subspace.kind != "public":
            # its directions read the public units whatever this says: checks and statement must not leave them out
            raise DposeError(
                "subspace-of-one-step-method",
                f"{self.method} finds its directions in public units and has no control",
                f"plan.subspace.kind={self.subspace.kind}",
                "leave it out",
            )
        if self.kind.solves and (self.ema_decay or self.average_last):
            raise DposeError(
                "average-of-one-step-method",
                f"{self.method} solves for its weights in one step, and an average would hold the start's, too",
                f"plan.{'ema_decay' if self.ema_decay else 'average_last'}",
                "leave it out",
            )
        if self.kind.solves and self.steps not in (None, self.kind.solves):
            raise DposeError(
                "steps-of-one-step-method",
                f"{self.method} takes {self.kind.solves} step{'s' * (self.kind.solves > 1)} over all units",
                f"plan.steps={self.steps}",
                "leave it out",
            )
        if self.kind.private:
            self._check_private()
            if not MIN_CLIP <= self.clip_norm <= MAX_CLIP:
                raise DposeError(
                    "clip-norm-out-of-range",
                    f"clip_norm must lie between {as_given(MIN_CLIP)} and {as_given(MAX_CLIP)}, not {self.clip_norm:g}",
                )

    def _check_private(self) -> None:
        if self.relation not in self.kind.relations:
            why = "; a unit that is added brings its public view" if self.kind.public_views else ""
            allowed = ", ".join(relation.value for relation in self.kind.relations)
            raise DposeError(
                "relation-unsupported",
                f"{self.method} cannot be stated for the relation {self.relation.value}{why}",
                fix=f"choose one of {allowed}",
            )
        if (self.relation is Relation.ADD_REMOVE) != (self.nominal_units is not None):
            raise DposeError(
                "nominal-units-inconsistent",
                "add-or-remove needs a nominal number of units, chosen beforehand; other relations use the true one",
                fix="give nominal_units with add-or-remove, and only there",
            )
        if self.delta is None:
            both = "an epsilon and " * (self.epsilon is None and self.noise_multiplier is None)
            fix = f"give {'--epsilon and ' * bool(both)}--delta, well below 1 / number of units"
            raise DposeError("delta-missing", f"{self.method} needs {both}a delta", fix=fix)
        check_delta(self.delta)
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise DposeError(
                "budget-inconsistent",
                f"{self.method} needs either an epsilon or a noise multiplier",
                fix="give exactly one of them",
            )
        if self.epsilon is not None:
            check_epsilon(self.epsilon)
        if self.noise_multiplier is not None:
            check_sigma(self.noise_multiplier)

    @property
    def kind(self) -> Method:
        """The method's entry in `METHODS`."""
        return METHODS[self.method]

    @property
    def clip(self) -> Clip:
        """`clip_norm` and `normalise` as one value."""
        return Clip(self.clip_norm, self.normalise)

    @property
    def fits_public(self) -> bool:
        """Whether public units are read: for a subspace or scales that are no control."""
        return self.kind.fitted and self.subspace.kind == "public"

    def check_public(self, public: object) -> None:
        """Refuse a method that is fitted on public units where there are none.

        Args:
            public: The public units, or what names them; None if there are none.

        Raises:
            DposeError: the method needs them.
        """
        if self.fits_public and public is None:
            raise DposeError(
                "public-data-missing",
                f"{self.method} is fitted on public units and has no public data",
                fix="give --public"
                + ("" if self.kind.solves else ", or subspace.kind random or identity for a control"),
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON or YAML."""
        return {**asdict(self), "relation": self.relation.value, "accountant": self.accountant.value}

    def bind_to(self, protected: Protected) -> BoundPlan:
        """Fix everything that depends on the data: what a unit is, and the number of units.

        Raises:
            DposeError: the plan names another unit, relation or nominal number than the data have; or as `bind`.
        """
        near = protected.neighbours
        self.check_unit(near.unit)
        if not protected.identity.units:
            raise DposeError("units-missing", "there are no units to train on", fix="check the data and --limit")
        if near.relation is not self.relation:
            raise DposeError(
                "relation-differs",
                f"the units were read for {near.relation.value} and the plan says {self.relation.value}",
                "plan.relation",
                "give protect() the plan's relation",
            )
        chosen = protected.selection
        limit = chosen.count if chosen is not None and chosen.nominal is not None else None
        if limit is not None and chosen is not None and chosen.nominal != self.nominal_units:
            raise DposeError(
                "nominal-units-differ",
                f"the units were limited as some of {chosen.nominal:,}, not of the plan's nominal number",
                "plan.nominal_units",
                "give the selection and the plan the same nominal number of units",
            )
        return replace(self, unit=near.unit.value).bind(protected.identity.units, limit)

    def check_unit(self, unit: Unit) -> None:
        """Refuse data of another unit than the plan names.

        Raises:
            DposeError: they are.
        """
        if self.unit is not None and self.unit != unit:
            raise DposeError(
                "unit-differs",
                f"the plan protects one {self.unit}, and a unit of these data is one {unit.value}",
                "plan.unit",
                "open the data with that unit, or leave the plan's out",
            )

    def one_step_noise(self, n: int) -> tuple[int, float]:
        """What the budget means, whatever the method: the published number of units, and one step's noise multiplier.

        Of a step over all units, so that their ratio says how far noise stands below what they agree on.

        Raises:
            DposeError: the plan has no epsilon, or as `bind`.
        """
        budget = self.epsilon or self.bind(n, n).epsilon
        if budget is None:
            raise DposeError("budget-missing", f"{self.method} has no epsilon", fix="give --epsilon and --delta")
        plain = replace(self, steps=None, ema_decay=0.0, average_last=0.0, subspace=SubspaceConfig())
        one = replace(plain, method="dp-head", epsilon=budget, noise_multiplier=None).bind(n, n)
        assert one.event is not None
        return one.n, float(one.event.sigma)

    def notes(self, n: int) -> Iterator[str]:
        """Lines for a batch that is larger than the data, and for a budget that the method does not use."""
        if self.kind.private and self.expected_batch_size > n and not self.kind.solves:
            yield (
                f"The batch size {self.expected_batch_size:,} is larger than the {n:,} units: every step takes all of "
                "them. A smaller --batch-size samples, which needs less noise."
            )
        budget = (("epsilon", self.epsilon), ("delta", self.delta), ("noise_multiplier", self.noise_multiplier))
        if not self.kind.private and (given := [name for name, value in budget if value is not None]):
            yield f"{self.method} adds no noise, so that {' and '.join(given)} {'are' if given[1:] else 'is'} not used."

    def bind(self, n: int, limit: int | None = None) -> BoundPlan:
        """Fix everything that depends on the number of units.

        Args:
            n: The number of units. Under add-or-remove it is not used: `nominal_units` stands in its place, so that
                nothing of the plan depends on the number there really is.
            limit: Under add-or-remove, how many of the nominal number are kept in expectation; None for all.

        Raises:
            DposeError: n < 1, n is above `UNITS` for a method with noise, delta >= 1/n, or the budget cannot be met.
        """
        if self.nominal_units is not None and self.kind.private:
            n = min(self.nominal_units, limit or self.nominal_units)
        if n < 1:
            raise DposeError("units-missing", "there are no units to train on", fix="check the data and --limit")
        batch = n if self.kind.solves else self.expected_batch_size
        rate = min(1.0, batch / n)
        steps = self.kind.solves or self.steps or math.ceil(self.epochs * n / min(batch, n))
        if not self.kind.private:
            return BoundPlan(self, n, rate, steps, None, None)
        if n > UNITS:
            raise DposeError(
                "units-too-many",
                f"sums are exact for up to {UNITS:,} units, not for {n:,}",
                fix="use fewer, by --limit",
            )
        assert self.delta is not None
        if self.noise_multiplier is None:
            assert self.epsilon is not None
            event, claimed = calibrate(
                self.epsilon,
                self.delta,
                units=n,
                expected_batch_size=batch,
                steps=steps,
                clip=self.clip,
                relation=self.relation,
                accountant=self.accountant,
            )
        else:
            check_delta(self.delta, n)
            event = SampledGaussian(rate, self.noise_multiplier, steps, self.clip.bound, type=ROUNDED)
            claimed = _cost(event, self.delta, self.relation, self.accountant)
        return BoundPlan(self, n, rate, steps, replace(event, type=NOISES[self.noise]), claimed)


def calibrate(
    epsilon: float,
    delta: float,
    *,
    units: int,
    expected_batch_size: float,
    steps: int,
    clip: Clip | float = 1.0,
    relation: Relation = Relation.ZERO_OUT,
    accountant: Accountant = Accountant.PLD,
) -> tuple[SampledGaussian, float]:
    """The event that a training of some steps must run to cost no more than `epsilon`, and what it costs.

    >>> event, spent = calibrate(2.0, 1e-5, units=1000, expected_batch_size=100, steps=20, accountant="rdp")
    >>> event.q, event.steps, 1.998 <= spent <= 2.0
    (0.1, 20, True)

    **Guarantee.** Unit: one of `units`. Neighbours: `relation`. If every one of the event's steps takes a Poisson
    sample at rate `event.q` (`poisson_batch`), sums gradients of norm at most `event.sensitivity` (`clipped_sum` with
    this clip) and adds Gaussian noise of standard deviation `event.sigma * event.sensitivity` (`add_noise`), then all
    sums together are (the returned epsilon, delta)-differentially private. The epsilon is recomputed from the event
    itself.
    Sensitivity: C, or 1 for a clip that normalises. Public: all arguments; under add-or-remove `units` is a number
    chosen beforehand, not counted.

    Args:
        epsilon: The budget of all steps together.
        delta: Below 1 / `units`.
        units: The number of units, above 0.
        expected_batch_size: Units in a Poisson sample on average, above 0.
        steps: Steps, each of which takes one noised sum.
        clip: The bound on each unit's gradient; a number C stands for `Clip(C)`.
        relation: The neighbouring relation.
        accountant: "pld", or "rdp" to match papers.

    Raises:
        DposeError: a value is out of range, or no noise meets the budget.
    """
    units, expected_batch_size = (
        plain_number(units, "units", whole=True),
        plain_number(expected_batch_size, "expected_batch_size"),
    )
    _positive("units", units)
    _positive("expected_batch_size", expected_batch_size)
    check_delta(delta, units)
    check_steps(steps)
    steps = int(steps)
    rate = min(1.0, expected_batch_size / units)
    relation = _choice(Relation, relation, "relation")
    accountant = _choice(Accountant, accountant, "accountant", OF_RUNS)
    sigma = noise_multiplier(epsilon, delta, rate, steps, relation=relation, accountant=accountant)
    bound = clip.bound if isinstance(clip, Clip) else Clip(plain_number(clip, "clip")).bound
    event = SampledGaussian(rate, sigma, steps, bound, type=ROUNDED)
    # recomputed from the event itself: neither a rounding nor a stale cache can understate the claim
    claimed = _cost(event, delta, relation, accountant)
    if claimed > epsilon * (1 + 1e-6):
        raise DposeError(
            "calibration-failed",
            f"calibration gave epsilon {upper(claimed, 6)} for a budget of {as_given(epsilon)}",
            fix="remove dpose's cache folder and try again",
        )
    return event, claimed


def shared_budget(plan: TrainingPlan, behind: TrainingPlan, units: int) -> TrainingPlan:
    """`plan` with noise such that it and the plan `behind` it, on the same units, cost at most `plan.epsilon` together.

    >>> plan = TrainingPlan(epsilon=2.0, delta=1e-5, epochs=2, expected_batch_size=100, accountant="rdp")
    >>> first = shared_budget(plan, replace(plan, epsilon=1.0), 1000)
    >>> events = [one.bind(1000).event for one in (first, replace(plan, epsilon=1.0))]
    >>> 1.998 <= epsilon(events, 1e-5, accountant="rdp") <= 2.0
    True

    **Guarantee.** Unit, neighbours, delta and accountant are those of both plans. Both events are fixed beforehand, and
    their composition, which is computed as a statement computes it, is at most the budget.

    Args:
        plan: Its epsilon is the budget of both.
        behind: The other, with a budget or noise of its own.
        units: The published number of units, of which both runs are.

    Raises:
        DposeError: the plans differ in what they protect, or no noise meets what `behind` leaves.
    """
    same = ("delta", "relation", "accountant", "nominal_units", "unit")
    if any(getattr(plan, name) != getattr(behind, name) for name in same) or plan.epsilon is None or plan.delta is None:
        raise DposeError("budgets-differ", f"two runs share a budget only with the same {', '.join(same)}")
    one, last = plan.bind(units, units).event, behind.bind(units, units)
    assert one is not None
    assert last.event is not None
    other, budget, delta = last.event, plan.epsilon, plan.delta

    def of_both(sigma: float) -> float:
        return epsilon([replace(one, sigma=sigma), other], delta, plan.relation, plan.accountant)

    left = 1 - ((last.epsilon or 0) / budget) ** 2  # epsilon is nearly linear in mu, whose squares add up
    guess = one.sigma / math.sqrt(left) if left > 0 else MAX_SIGMA
    sigma = least_noise(of_both, budget, guess, MIN_SIGMA, MAX_SIGMA, growth=0.02)
    return replace(plan, epsilon=None, noise_multiplier=sigma)


@dataclass(frozen=True)
class BoundPlan:
    """A plan with its constants; what the trainer runs and what the accountant counts.

    Attributes:
        plan: The settings.
        n: The number of units (nominal under add-or-remove).
        sampling_rate: q, the probability that a unit is in a batch.
        steps: Optimizer steps.
        event: What the accountant sees; None without a guarantee.
        epsilon: Of all `steps`, recomputed from `event`; None without a guarantee.
    """

    plan: TrainingPlan
    n: int
    sampling_rate: float
    steps: int
    event: SampledGaussian | None = field(repr=False)
    epsilon: float | None

    @property
    def divisor(self) -> float:
        """The expected batch size q*n: the constant by which noised sums are divided."""
        return self.sampling_rate * self.n

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on every coordinate of the clipped sum.

        Raises:
            ValueError: the method adds none.
        """
        if self.event is None:
            raise ValueError(f"{self.plan.method} adds no noise")
        return self.event.sigma * self.event.sensitivity

    @property
    def sha256(self) -> str:
        """A digest of the settings and constants, as it stands in ledger and statement."""
        return plan_digest(self.plan.to_dict(), **self.constants())

    def constants(self) -> dict[str, Any]:
        """What was fixed from plan and number of units, as JSON values: the digest covers it."""
        return {"n": self.n, "steps": self.steps, "event": self.event.to_dict() if self.event else None}


def _cost(event: SampledGaussian, delta: float, relation: Relation, accountant: Accountant) -> float:
    return epsilon([event], delta, relation=relation, accountant=accountant)


def _positive(name: str, value: float) -> None:
    # compared as they are: a whole number may be too large for a float
    if not 0 < value <= sys.float_info.max:
        raise DposeError("setting-not-positive", f"{name} must be positive, and a number that a float holds")


def _choice(kind: Any, value: Any, name: str, among: Sequence[Any] = ()) -> Any:
    choices = among or tuple(kind)
    if value not in choices:
        raise DposeError(
            "choice-unknown",
            f"unknown {name} {value!r}",
            fix=f"choose one of {', '.join(one.value for one in choices)}",
        )
    return kind(value)
