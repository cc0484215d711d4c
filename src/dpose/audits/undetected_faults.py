"""What an audit cannot see, why, and the test that can: passing an audit proves nothing by itself.

An audit looks at what came out. These faults change what comes out too little, in a way that only a rarer event or
another adversary than the one at work would show, or not at all, because what is wrong is the claim or the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
