"""What a user should hear before a run begins."""

from __future__ import annotations

import torch

from dpose.training.arithmetic import slow_in_bfloat16

FEW = 500
"""Below so many units a private run warns."""


def few_units(count: int) -> str | None:
    """A warning about a private run on `count` units; None if there are enough.

    The noise is as large as one unit's share must be hidden, whatever their number: what many units agree on stands out
    from it, what a few agree on does not.
    """
    if count >= FEW:
        return None
    units = "1 unit is" if count == 1 else f"{count:,} units are"
    return (
        f"{units} few: the noise that hides any one of them hides most of what they all teach. Expect a model hardly "
        "better than the weights it starts from, and take its scores on so few units as chance. Thousands are usual."
    )


def slow_in_bf16(device: torch.device) -> str | None:
    """A warning about a processor that has no instructions for bfloat16; None if it has, or is unknown."""
    if not slow_in_bfloat16(device):
        return None
    return "this processor has neither AMX nor AVX512-BF16: bf16 is slower on it than float32"
