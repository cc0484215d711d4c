"""Losses in bfloat16: where they are worth it. What must hold of a private step is in `dpose.training.apart`."""

from __future__ import annotations

import torch


def slow_in_bfloat16(device: torch.device) -> bool:
    """Whether the device is a processor that is known to compute slower in bfloat16 than in float32."""
    known = getattr(torch.cpu, "get_capabilities", None)  # since torch 2.10 or so
    if device.type != "cpu" or known is None:
        return False
    found = known()
    return not any(found.get(name) for name in ("amx_bf16", "avx512_bf16", "bf16"))
