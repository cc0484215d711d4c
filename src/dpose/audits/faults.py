"""Faults, planted into the real functions for as long as a context lasts: what an audit must be able to see.

    with planted("double-counting"):
        ...                            # every step of every run in here is faulty

Nothing in the engine knows of them. Each one has been seen in published code (docs/sharp-edges.md).

What an audit cannot see, why, and the test that can: passing an audit proves nothing by itself.

An audit looks at what came out. These faults change what comes out too little, in a way that only a rarer event or
another adversary than the one at work would show, or not at all, because what is wrong is the claim or the data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import grad, vmap

import dpose.training.step
from dpose.audits.canary_run import order_of_turns
from dpose.errors import DposeError
from dpose.privacy.noise import Stream
from dpose.training.clip import Clip, PreClipping
from dpose.training.grad_sample import Params, UnitLoss, Units

_TRAINING = "tests/mutants/test_training.py::test_fault_is_rejected"


@dataclass(frozen=True)
class UndetectedFault:
    """A fault that no audit here sees.

    Attributes:
        summary: What is wrong, in one clause.
        why: Why it cannot be seen.
        check: The test that rejects it, as pytest names it.
    """

    summary: str
    why: str
    check: str


UNSEEN: Mapping[str, UndetectedFault] = {
    "shuffled-batches": UndetectedFault(
        "batches are cut from a secret shuffle at every epoch, accounted as sampled",
        "a unit comes exactly once an epoch instead of once on average, which at usual noise moves the scores of some "
        "hundred canaries too little; what is lost shows at small noise and rare events (Chua et al. 2024)",
        f"{_TRAINING}[06 shuffled batches counted as Poisson]",
    ),
    "realised-size": UndetectedFault(
        "the noised sum is divided by the batch's own size",
        "it rescales a whole step, noise and all, by a few percent; one unit moves the size by one",
        f"{_TRAINING}[07 division by the realised batch size]",
    ),
    "accountant-ignored": UndetectedFault(
        "the printed epsilon is not that of the steps",
        "an audit tests the mechanism that ran; a wrong sum stands out only where it is below the audit's own bound, "
        "which lies far below the truth",
        f"{_TRAINING}[05 accountant's history ignored]",
    ),
    "floored-batch": UndetectedFault(
        "the sampler works with one over a whole number of batches, the accountant with the true rate",
        "the rate is off by about a tenth at most at usual sizes; some hundred canaries cannot tell such rates apart",
        f"{_TRAINING}[10 floored expected batch size]",
    ),
    "best-epoch": UndetectedFault(
        "the weights released are those of the best score on private data",
        "canaries do not take part in the score, so their trace is the same in every epoch's weights",
        f"{_TRAINING}[09 best epoch by test score released]",
    ),
    "batch-norm": UndetectedFault(
        "running statistics store private batches without noise",
        "the adversaries here read the optimizer's gradients or the losses, and buffers are neither",
        f"{_TRAINING}[08 BatchNorm in training mode]",
    ),
    "public-from-private": UndetectedFault(
        "the public units are taken from the private ones",
        "canaries are in no public set; the units that lose their protection are the real ones",
        f"{_TRAINING}[01 public subset taken from the private data]",
    ),
    "batch-subspace": UndetectedFault(
        "the subspace is fitted on gradients of batches",
        "it costs accuracy and no privacy: nothing leaks that could be found",
        f"{_TRAINING}[02 subspace from gradients of batches]",
    ),
    "float-view": UndetectedFault(
        "the public view is not rounded, so that the blur can be undone",
        "the claim is about what the view leaves out; that the view leaves nothing out is no property of the training",
        f"{_TRAINING}[11 public view in floating point]",
    ),
    "augmented-view": UndetectedFault(
        "public views are made after augmentation, a new one each time",
        "as above: what is published without noise is not what an audit of the noised part looks at",
        f"{_TRAINING}[12 public view after augmentation]",
    ),
    "shared-stream": UndetectedFault(
        "sampler and noise draw from one stream",
        "the adversaries here know no key; what repeats is visible to an observer who compares streams",
        f"{_TRAINING}[13 a shared random stream]",
    ),
    "logged-loss": UndetectedFault(
        "the log holds a loss of private data",
        "the adversaries here see updates or weights, and do not read logs",
        f"{_TRAINING}[14 a logged private loss]",
    ),
}
"""Faults by their names in `--plant`; the first two can be planted, to show that audits do not detect them."""


def undetected_words(name: str | None) -> str:
    """A sentence that no audit detects the fault, why, and what does; "" if one detects it, or for None."""
    if name is None or name not in UNSEEN:
        return ""
    return f"No audit sees this fault: {UNSEEN[name].why}. {UNSEEN[name].check} rejects it."


Replacements = Mapping[str, Callable[..., Any]]

_step: Any = dpose.training.step


@dataclass(frozen=True)
class Fault:
    """A way to break the guarantee.

    Attributes:
        summary: What is wrong, in one clause.
        replacements: Makes, at the moment of planting, functions to put in the place of those of `training.step`.
    """

    summary: str
    replacements: Callable[[], Replacements]


def _scaled_noise(factor: float) -> Replacements:
    real = _step.add_gaussian

    def add(sums: Params, stddev: float, *rest: Any) -> Params:
        if factor == 0:
            return dict(sums)
        noisy: Params = real(sums, factor * stddev, *rest)
        return noisy

    return {"add_gaussian": add}


def _same_batch() -> Replacements:
    noised = _step.add_gaussian
    clipped = _step.clipped_sum
    public: Params = {}

    def clip(loss: UnitLoss, params: Params, units: Units, *args: Any, **kwargs: Any) -> Params:
        for name, gradient in _plain_sums(loss, params, units, kwargs.get("transform")).items():
            public[name] = public.get(name, 0) + gradient
        protected: Params = clipped(loss, params, units, *args, **kwargs)
        return protected

    def add(sums: Params, *rest: Any) -> Params:
        noisy = noised(sums, *rest)
        unprotected = {name: public.pop(name, torch.zeros_like(value)) for name, value in noisy.items()}
        return {name: value + unprotected[name] for name, value in noisy.items()}

    return {"clipped_sum": clip, "add_gaussian": add}


def _double_counting() -> Replacements:
    real = _step.clipped_sum

    def twice(*args: Any, **kwargs: Any) -> Params:
        return {name: 2 * value for name, value in real(*args, **kwargs).items()}

    return {"clipped_sum": twice}


def _batches_in_turn(shuffle: bool) -> Replacements:
    step = 0
    order: NDArray[np.int64] = np.empty(0, np.int64)

    def turn(n: int, rate: float, stream: Stream) -> NDArray[np.int64]:
        nonlocal step, order
        turns = order_of_turns(n, round(rate * n))
        now = step % (int(turns.max()) + 1)
        if now == 0:
            order = stream.generator().permutation(n) if shuffle else np.arange(n)
        step += 1
        return np.sort(order[turns == now])

    return {"poisson_batch": turn}


def _twice_the_rate() -> Replacements:
    real = _step.poisson_batch

    def drawn(n: int, rate: float, stream: Stream) -> NDArray[np.int64]:
        batch: NDArray[np.int64] = real(n, min(1.0, 2 * rate), stream)
        return batch

    return {"poisson_batch": drawn}


def _not_clipped() -> Replacements:
    def summed(
        loss: UnitLoss, params: Params, units: Units, clip: Clip, *, transform: PreClipping | None = None, **more: Any
    ) -> Params:
        scale = clip.bound / clip.norm  # divided by C where the clip divides
        return {name: scale * total for name, total in _plain_sums(loss, params, units, transform).items()}

    return {"clipped_sum": summed}


def _plain_sums(loss: UnitLoss, params: Params, units: Units, transform: PreClipping | None = None) -> Params:
    """Sums of gradients as they are, or transformed; of the empty units that fill a batch up there are none."""
    weights = units[2]
    assert isinstance(weights, torch.Tensor)
    gradients = vmap(grad(loss), in_dims=(None, 0, 0, 0))(params, *units)
    each = transform.each(gradients) if transform else gradients
    there = (weights > 0).any(1)
    return {name: g[there].sum(0) for name, g in each.items()}


def _realised_size() -> Replacements:
    sample = _step.poisson_batch
    noised = _step.add_gaussian
    expected = realised = 1.0

    def drawn(n: int, rate: float, stream: Stream) -> NDArray[np.int64]:
        nonlocal expected, realised
        batch: NDArray[np.int64] = sample(n, rate, stream)
        expected, realised = rate * n, max(1.0, float(len(batch)))
        return batch

    def add(sums: Params, *rest: Any) -> Params:
        return {name: value * expected / realised for name, value in noised(sums, *rest).items()}

    return {"poisson_batch": drawn, "add_gaussian": add}


FAULTS: Mapping[str, Fault] = {
    "noise-missing": Fault("no noise is added to the clipped sum", lambda: _scaled_noise(0.0)),
    "half-noise": Fault("the noise has half the claimed deviation", lambda: _scaled_noise(0.5)),
    "same-batch": Fault(
        "a gradient that is taken to be public is computed on the private batch, and added without clip or noise",
        _same_batch,
    ),
    "double-counting": Fault("each unit's clipped gradient enters the sum twice", _double_counting),
    "wrong-sampling": Fault(
        "batches go through the units in a fixed order, accounted as sampled", lambda: _batches_in_turn(shuffle=False)
    ),
    "twice-the-rate": Fault("units are drawn twice as often as accounted", _twice_the_rate),
    "not-clipped": Fault("gradients enter the sum without a clip", _not_clipped),
    "shuffled-batches": Fault(UNSEEN["shuffled-batches"].summary, lambda: _batches_in_turn(shuffle=True)),
    "realised-size": Fault(UNSEEN["realised-size"].summary, _realised_size),
}
"""Every fault by name that can be planted; those of `UNSEEN` are there to show that they are not seen."""


def check_fault(name: str, plantable: Iterable[str]) -> None:
    """Refuse a fault that cannot be planted here, and say where it is seen.

    Args:
        name: As the user gave it.
        plantable: The faults that can be.

    Raises:
        DposeError: it is not among them.
    """
    if name in plantable:
        return
    choose = f"choose one of {', '.join(plantable)}"
    if name in UNSEEN:
        raise DposeError(
            "fault-unseen",
            f"no audit sees {name} ({UNSEEN[name].summary}): {UNSEEN[name].why}",
            "--plant",
            f"{UNSEEN[name].check} rejects it; {choose}",
        )
    raise DposeError("fault-unknown", f"no fault called {name!r}", "--plant", choose)


@contextlib.contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Run the block with a fault in the engine; with None as it is. Not for several threads at once."""
    if name is None:
        yield
        return
    check_fault(name, FAULTS)
    replacements = FAULTS[name].replacements()
    real = {function: getattr(_step, function) for function in replacements}
    try:
        for function, fake in replacements.items():
            setattr(_step, function, fake)
        yield
    finally:
        for function, original in real.items():
            setattr(_step, function, original)
