"""Arrays or tensors: told apart without loading torch, which takes seconds."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import TypeIs


def is_tensor(value: object) -> TypeIs[Tensor]:
    """Whether `value` is one of torch's tensors: where no one has loaded torch there are none.

    >>> is_tensor([1, 2])
    False
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)
