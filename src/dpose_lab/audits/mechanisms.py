"""Mechanisms to audit by name: dpose's own noise and sampling through its own engine, and two with few outputs.

`gaussian` and `poisson-gaussian` are one step of `training.step.private_gradient`, with a unit's whole contribution in
one input and nothing in the other. `laplace` (discrete, on the integers) and `randomized-response` are textbook
mechanisms with outputs that can be added up exactly: they check the auditor, which must agree with the sum.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpose.audits.canary_run import PIXEL, ToyTask, ToyUnits
from dpose.audits.faults import FAULTS, UNSEEN, check_fault, planted
from dpose.errors import DposeError
from dpose.privacy.accounting import COARSE
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.privacy.ranges import check_epsilon
from dpose.privacy.tradeoff import Floats, TradeOff, of_events
from dpose.training.canaries import CanaryTask, CanaryUnits, GradientCanaries, add_parameter
from dpose.training.gradients import trainable_params
from dpose.training.loader import Loader
from dpose.training.plan import BoundPlan, TrainingPlan
from dpose.training.step import StepInputs, private_gradient
from dpose.units import View
from dpose_lab.audits.hockey_stick import Distribution, Sampler, Score, negated, value

BLOCK = 1000
"""Number of outputs drawn in one step, each on a coordinate of its own."""
RATE = 0.1
"""Sampling rate of `poisson-gaussian`."""

ENGINE_FAULTS = {
    "noise-missing": "noise-missing",
    "half-noise": "half-noise",
    "double-counting": "double-counting",
    "same-batch": "same-batch",
}
SAMPLING_FAULTS = {**ENGINE_FAULTS, "wrong-sampling": "twice-the-rate"}
SMALLEST, LARGEST = 1e-3, 45.0
"""Between these epsilons the mechanisms' probabilities, and those of their faults, are numbers that differ."""
OF_SAMPLING = frozenset({"wrong-sampling", "twice-the-rate"})
NOT_SAMPLED = ": it draws no sample; poisson-gaussian does"
SMALL_FAULTS = {
    "noise-missing": "the true value is released",
    "half-noise": "the noise is made for twice the claimed epsilon",
    "double-counting": "the unit enters twice",
}
FLOAT_FAULT = {"float-laplace": "noise is drawn and added in floating point, whose gaps show the value"}
ALL_FAULTS = frozenset({*FAULTS, *SAMPLING_FAULTS, *FLOAT_FAULT})


@dataclass(frozen=True)
class Mechanism:
    """A mechanism to audit.

    Attributes:
        name: Name on the command line.
        first: Draws outputs on the input with the unit.
        second: Draws outputs on its neighbour.
        curve: The claimed trade-off curve; None if the claim is epsilon alone.
        fault: The planted fault, in words; "" for none.
        scores: Scores that the adversary uses.
        exact: The two output distributions, if they are known in full.
    """

    name: str
    first: Sampler
    second: Sampler
    curve: TradeOff | None
    fault: str = ""
    scores: Mapping[str, Score] = field(default_factory=lambda: {"output": value, "-output": negated})
    exact: tuple[Distribution, Distribution] | None = None


def build(name: str, epsilon: float, delta: float, plant: str | None = None, seed: int | None = None) -> Mechanism:
    """Make the mechanism called `name`, calibrated to the budget, with a fault if one is given.

    Args:
        name: A key of `MECHANISMS`.
        epsilon: Claimed epsilon.
        delta: Claimed delta; the two textbook mechanisms claim 0.
        plant: A fault that this mechanism can have.
        seed: Makes the outputs reproducible.
    """
    if name not in MECHANISMS:
        raise DposeError(
            "mechanism-unknown", f"no mechanism called {name!r}", fix=f"choose one of {', '.join(MECHANISMS)}"
        )
    check_epsilon(epsilon)
    if not SMALLEST <= epsilon <= LARGEST:
        said = f"audits claims of epsilon {SMALLEST:g} to {LARGEST:g}, whose probabilities are numbers that differ"
        raise DposeError("epsilon-beyond-audit", said, name, "choose one of these")
    make, faults = MECHANISMS[name]
    if plant is not None and plant not in faults:
        if plant not in UNSEEN and plant in ALL_FAULTS:
            why = NOT_SAMPLED if plant in OF_SAMPLING else ""
            choose = f"choose one of {', '.join(faults)}"
            raise DposeError("fault-unsupported", f"{name} cannot have the fault {plant!r}{why}", "--plant", choose)
        check_fault(plant, faults)
    return make(epsilon, delta, plant, Key.fresh() if seed is None else Key.from_seed(seed))


def _gaussian(epsilon: float, delta: float, plant: str | None, key: Key) -> Mechanism:
    return _one_step("gaussian", 1.0, epsilon, delta, ENGINE_FAULTS[plant] if plant else None, key)


def _poisson_gaussian(epsilon: float, delta: float, plant: str | None, key: Key) -> Mechanism:
    return _one_step("poisson-gaussian", RATE, epsilon, delta, SAMPLING_FAULTS[plant] if plant else None, key)


def _one_step(name: str, rate: float, epsilon: float, delta: float, fault: str | None, key: Key) -> Mechanism:
    bound, curve = _calibrated(rate, epsilon, delta)
    noise = AesNoise(key)
    calls = iter(range(2**62))

    def sampler(present: bool) -> Sampler:
        def draw(count: int) -> Floats:
            with planted(fault):
                blocks = [_step(bound, present, noise, next(calls)) for _ in range(math.ceil(count / BLOCK))]
            return np.concatenate(blocks)[:count]

        return draw

    summary = FAULTS[fault].summary if fault else ""
    return Mechanism(name, sampler(True), sampler(False), curve, summary)


@cache
def _calibrated(rate: float, epsilon: float, delta: float) -> tuple[BoundPlan, TradeOff]:
    plan = TrainingPlan(epsilon=epsilon, delta=delta, steps=1, expected_batch_size=round(rate * BLOCK))
    bound = plan.bind(BLOCK)
    assert bound.event is not None
    return bound, of_events([bound.event], plan.relation, grid=COARSE)


class InlineLoader(Loader):
    """Loads units where it is called: handing a pixel to another thread takes longer than making it."""

    def units(self, indices: Sequence[int], step: int, ahead: int = 0) -> Iterator[list[View]]:
        """The units in order."""
        return (self.unit(int(index), step) for index in indices)


def _step(bound: BoundPlan, present: bool, noise: AesNoise, call: int) -> Floats:
    """Run one step over `BLOCK` units, each on its own coordinate: `BLOCK` independent outputs, in units of C."""
    task = CanaryTask(ToyTask())
    model = task.build_model(None)
    add_parameter(model, BLOCK, never_used=0)
    canaries = GradientCanaries(np.full(BLOCK, present), PIXEL, bound.plan.clip)
    loader = InlineLoader(task, CanaryUnits(ToyUnits(0), canaries), noise)
    engine = StepInputs(task, model, loader, bound, noise, b"audit" + bytes([present]), microbatch_size=100)
    with contextlib.closing(loader), torch.no_grad():
        gradient = private_gradient(engine, trainable_params(model), call)
    assert bound.event is not None
    own = max(gradient.values(), key=torch.numel)
    return np.asarray(own.double().numpy() * bound.divisor / bound.event.sensitivity)


def _laplace(epsilon: float, delta: float, plant: str | None, key: Key) -> Mechanism:
    rng = AesNoise(key).stream(Purpose.INIT).generator()
    sensitivity = 2 if plant == "double-counting" else 1
    made_for = {"half-noise": 2 * epsilon, "noise-missing": math.inf}.get(plant or "", epsilon)
    ratio = math.exp(-made_for)

    def sampler(true: int) -> Sampler:
        def integers(count: int) -> NDArray[np.int64]:
            # the difference of two geometric variables is discrete Laplace
            return true + rng.geometric(1 - ratio, count) - rng.geometric(1 - ratio, count)

        def floats(count: int) -> Floats:
            sign = rng.choice([-1.0, 1.0], count)
            return float(true) + sign * _logarithms(rng.integers(1, 2**53, count)) / epsilon

        return floats if plant == "float-laplace" else integers

    if plant == "float-laplace":
        scores = {f"cannot come from {true}": _unreachable_from(true, epsilon) for true in (0, 1)}
        return Mechanism("laplace", sampler(1), sampler(0), None, FLOAT_FAULT[plant], scores)
    fault = SMALL_FAULTS[plant] if plant else ""
    exact = _discrete_laplace(sensitivity, ratio), _discrete_laplace(0, ratio)
    return Mechanism("laplace", sampler(sensitivity), sampler(0), None, fault, exact=exact)


def _discrete_laplace(true: int, ratio: float) -> dict[int, float]:
    """Probability by output, clamped to [-reach, reach]; this keeps all losses, which are constant beyond."""
    # no further than probabilities are numbers: one that is 0 of one input alone is an infinite loss
    reach = max(3, min(60, int(600 / -math.log(ratio)) - 2)) if ratio else 3
    scale = (1 - ratio) / (1 + ratio)
    inside = {k: scale * ratio ** abs(k - true) for k in range(1 - reach, reach)}
    tails = {end: ratio ** (reach - true * side) / (1 + ratio) for end, side in ((reach, 1), (-reach, -1))}
    return {**inside, **tails}


def _logarithms(words: NDArray[np.int64]) -> Floats:
    """-log u for u = words / 2^53: exponential draws as floating point makes them."""
    return np.asarray(-np.log(words * 2.0**-53))


def _unreachable_from(true: int, epsilon: float) -> Score:
    """A score of 1 for outputs that the floating-point mechanism cannot make from `true`, else 0.

    Follows Mironov 2012, "On significance of the least significant bits for differential privacy": invert the noise and
    try the few words around it.
    """

    def score(outputs: NDArray[Any]) -> Floats:
        noise = outputs - float(true)
        near = np.rint(np.exp(-np.abs(noise) * epsilon) * 2.0**53).astype(np.int64)
        reached = np.zeros(len(outputs), bool)
        for offset in range(-4, 5):
            words = np.clip(near + offset, 1, 2**53 - 1)
            reached |= float(true) + np.sign(noise) * _logarithms(words) / epsilon == outputs
        return np.asarray(~reached, np.float64)

    return score


def _randomized_response(epsilon: float, delta: float, plant: str | None, key: Key) -> Mechanism:
    rng = AesNoise(key).stream(Purpose.INIT).generator()
    made_for = {"half-noise": 2 * epsilon, "noise-missing": math.inf}.get(plant or "", epsilon)
    honest = 1 / (1 + math.exp(-made_for))
    wrong = math.exp(-made_for) * honest  # 1 - honest cancels
    answers = 2 if plant == "double-counting" else 1

    def sampler(bit: int) -> Sampler:
        def draw(count: int) -> NDArray[np.int64]:
            truthful = rng.random((count, answers)) < honest
            return np.asarray(np.where(truthful, bit, 1 - bit).sum(axis=1))

        return draw

    def distribution(bit: int) -> dict[int, float]:
        yes, no = (honest, wrong) if bit else (wrong, honest)
        if answers == 1:
            return {0: no, 1: yes}
        return {0: no**2, 1: 2 * yes * no, 2: yes**2}

    exact = distribution(1), distribution(0)
    fault = SMALL_FAULTS[plant] if plant else ""
    return Mechanism("randomized-response", sampler(1), sampler(0), None, fault, exact=exact)


Maker = Callable[[float, float, str | None, Key], Mechanism]

MECHANISMS: Mapping[str, tuple[Maker, tuple[str, ...]]] = {
    "gaussian": (_gaussian, tuple(ENGINE_FAULTS)),
    "poisson-gaussian": (_poisson_gaussian, tuple(SAMPLING_FAULTS)),
    "laplace": (_laplace, (*SMALL_FAULTS, *FLOAT_FAULT)),
    "randomized-response": (_randomized_response, tuple(SMALL_FAULTS)),
}
"""Mechanisms by name: the function that makes each, and its possible faults."""
