"""An action model on disk: a folder with `model.safetensors` and `config.json`. Nothing is ever pickled."""

from __future__ import annotations

from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError

from dpose.action.model import ActionConfig, ActionModel
from dpose.errors import DposeError
from dpose.files import file_bytes, file_json


def load_action_model(folder: Path) -> ActionModel:
    """The model in `folder`, in evaluation mode.

    Raises:
        DposeError: a file is missing, damaged, or of another task or model.
    """
    config = folder / "config.json"
    try:
        values = file_json(config)
        described = values["model"] if values.get("task") == "action" else None
    except (OSError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise DposeError(
            "model-missing", "holds no model", str(folder), "give a folder that dpose train made"
        ) from error
    if not isinstance(described, dict):
        raise DposeError("model-of-other-task", "holds no action model", str(folder))
    model = ActionModel(ActionConfig.from_dict(described, str(config)))
    weights = folder / "model.safetensors"
    try:
        tensors = safetensors.torch.load(file_bytes(weights))
    except OSError as error:
        raise DposeError("file-unreadable", f"cannot be read ({error.strerror})", str(weights)) from error
    except (SafetensorError, ValueError) as error:
        raise DposeError(
            "weights-damaged", "is no safetensors file, or is damaged", str(weights), "copy it again"
        ) from error
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise DposeError(
            "weights-of-other-model", "is of another model than its config.json", str(weights)
        ) from error
    return model.eval()
