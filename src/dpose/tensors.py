"""Files of weights: what is written of a model, and which run's weights a file holds, by its tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from dpose.files import file_bytes

if TYPE_CHECKING:
    import torch


def weights_file(model: torch.nn.Module, without: Collection[str] = ()) -> bytes:
    """The file of weights that `model` is written to."""
    import torch  # here, since verifying needs none
    from safetensors.torch import save as save_tensors

    state = model.state_dict()
    # clones, since a file holds weights that two layers share once under each of their names
    kept = {
        name: t.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, t in state.items()
        if name not in without
    }
    content: bytes = save_tensors(kept)
    return content


def digest_of_tensors(file: Path) -> str:
    """SHA-256 of what `weights_file` makes of a safetensors file's tensors; "" of other files."""
    from safetensors import SafetensorError
    from safetensors.torch import load, save

    try:
        return hashlib.sha256(save(load(file_bytes(file)))).hexdigest()
    except (OSError, SafetensorError, KeyError, ValueError):
        return ""
