"""Pose models on disk, folders with `model.safetensors` and `config.json`, and on the Hub. Nothing is ever pickled."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch

from dpose.errors import DposeError
from dpose.files import file_bytes, file_json, write_atomic
from dpose.pose.backbones import ALIASES, BACKBONES, shipped_weights
from dpose.pose.backbones import WEIGHTS as WEIGHTS
from dpose.pose.elsewhere import is_elsewhere, read_elsewhere
from dpose.pose.hub import MODEL_FILES, PREFIX, fetched, first_line, hub_mixin
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.weights_file import fill, read_tensors
from dpose.privacy.entries import check_stated
from dpose.tensors import weights_file

CONFIG = "config.json"
STATEMENT, CARD = "privacy.json", "README.md"

PREDICTOR = "blazepose:full"
"""Default weights for prediction: the best of those that come with dpose."""


def find_model(name: str) -> Path:
    """Return the model folder `name`: a path, a name on the Hub ("hf:OWNER/NAME"), or the name of shipped weights.

    A model on the Hub is downloaded. A path may be a file that holds a whole pose model (`dpose.pose.elsewhere`).
    """
    if name.startswith(PREFIX):
        return _on_hub(name)
    if Path(name).exists():
        return Path(name)
    shipped = shipped_weights()
    known = ALIASES.get(name, name)
    if known not in shipped and known in BACKBONES and known.startswith("blazepose:"):
        raise DposeError(
            "model-not-shipped",
            "does not come with dpose",
            name,
            "tools/convert_blazepose.py makes its folder: give that",
        )
    folder = shipped.get(known) or shipped.get(name)
    if folder is None:
        names = f"give a model folder, or one of: {', '.join(shipped)}" if shipped else "give a model folder"
        raise DposeError("model-unknown", "no such model", name, names)
    return folder


_on_hub = cache(fetched)


def save_model(model: PoseModel, folder: Path) -> None:
    """Write the weights to `folder/model.safetensors`, and `folder/config.json` if there is none.

    An existing config.json (a run's, with more in it than the model) is left as it is, and must be of the same model.
    """
    if (folder / CONFIG).exists():
        if _read_config(folder / CONFIG) != model.config:
            raise DposeError(
                "model-of-other-kind", "describes another model", str(folder / CONFIG), "choose another folder"
            )
    else:
        values = {"task": "pose", "model": model.config.to_dict()}
        write_atomic(folder / CONFIG, json.dumps(values, indent=2) + "\n")
    write_atomic(folder / WEIGHTS, weights_file(model))  # as a run writes it: the account knows weights by the file


def load_model(folder: str | Path, device: str = "cpu") -> PoseModel:
    """Load the model that `find_model` finds, in float32 and evaluation mode: of a folder, the Hub, or shipped weights.

    Weights of another floating-point type (half precision) are converted. A folder of transformers' ViTPose and a file
    of OpenMMLab's are read, too (`dpose.pose.elsewhere`).

    Raises:
        DposeError: a file is missing, cut off, not what it should be, or of another task; a tensor is
            missing, unknown, of another shape or not finite; or there is no such device.
    """
    folder = fetched(str(folder)) if str(folder).startswith(PREFIX) else find_model(str(folder))
    model = read_elsewhere(folder) if is_elsewhere(folder) else _read_folder(folder)
    path = folder / WEIGHTS if folder.is_dir() else folder
    for name, tensor in model.state_dict().items():
        if not tensor.isfinite().all():
            raise DposeError("tensor-not-finite", f"{name} holds numbers that are not finite", str(path))
    try:
        return model.to(torch.device(device))
    except (AssertionError, RuntimeError, TypeError) as error:  # as the build of torch and the driver have it
        raise DposeError(
            "device-unavailable",
            f"cannot be used ({first_line(error)})",
            f"device {device}",
            "leave it out, or say cpu",
        ) from error


def _read_folder(folder: Path) -> PoseModel:
    config = _read_config(folder / CONFIG)
    try:
        model = PoseModel(config)
    except (TypeError, ValueError, OverflowError, RuntimeError, MemoryError) as error:
        raise DposeError("config-invalid", "describes no model that can be made", str(folder / CONFIG)) from error
    path = folder / WEIGHTS
    tensors = read_tensors(path)
    fill(model, tensors, str(path), "its config.json is of another model")
    model.source = folder
    return model.eval()


def _read_config(path: Path) -> PoseConfig:
    try:
        values: Any = file_json(path)
    except OSError as error:
        raise DposeError(
            "file-unreadable", f"cannot be read ({error.strerror})", str(path), "is this a model folder?"
        ) from error
    except (ValueError, RecursionError) as error:
        raise DposeError("json-invalid", "is no JSON", str(path)) from error
    if not isinstance(values, dict) or not isinstance(values.get("model"), dict):
        raise DposeError("config-without-model", 'has no "model" section', str(path), "is this a model folder?")
    if values.get("task") != "pose":
        raise DposeError("model-of-other-task", f"is of the task {values.get('task')!r}, not 'pose'", str(path))
    return PoseConfig.from_dict(values["model"], str(path))


def save_pretrained(model: PoseModel, folder: str | Path) -> Path:
    """Write a model folder that stands alone: weights, `config.json`, the statement and the card.

    For a run whose weights are still exactly those, configuration, statement, signature, card and ledger are copied
    word for word, so that `dpose verify` can check the copy; log and checkpoints are not. A model that was changed
    since carries none: what they guarantee is not known to hold for it, and the card written for it says so.

    Args:
        model: Any pose model.
        folder: Created if missing; may not hold another model, or other weights beside a statement.

    Raises:
        DposeError: the folder holds another model, a statement of other weights, or cannot be written to; or the
            statement of the run that the model comes from is gone.
    """
    folder = Path(folder)
    if (folder / STATEMENT).exists() and not _unchanged(model, folder):
        raise DposeError(
            "statement-of-other-weights", "holds a statement that is of other weights", str(folder), "name a new folder"
        )
    source = model.source
    if source is not None and source.is_dir():
        check_stated(source)
    save_model(model, folder)
    if source is not None and _unchanged(model, source):
        for name in MODEL_FILES:
            if (source / name).exists() and source.resolve() != folder.resolve():
                write_atomic(folder / name, file_bytes(source / name))
    else:
        write_atomic(folder / CARD, _plain_card(model))
    if not (folder / CARD).exists():
        write_atomic(folder / CARD, _plain_card(model))
    return folder


def push_to_hub(model: PoseModel, name: str, *, private: bool = True, token: str | None = None) -> str:
    """Upload the folder that `save_pretrained` writes; the repository is private by default.

    Args:
        model: Any pose model.
        name: "OWNER/NAME", with or without `hf:`.
        private: True to create a missing repository as private.
        token: An account's token; by default the one stored by `hf auth login`.

    Returns:
        The upload's address.

    Raises:
        DposeError: huggingface_hub is not installed, or the upload fails.
    """
    mixin = hub_mixin()

    class Adapter(mixin):  # type: ignore[misc, valid-type]
        """Hands the model to the mixin."""

        def _save_pretrained(self, save_directory: Path) -> None:
            save_pretrained(model, save_directory)

    try:
        return str(Adapter().push_to_hub(name.removeprefix(PREFIX), private=private, token=token))
    except DposeError:
        raise
    except Exception as error:  # the client raises its own, its transport's and the system's
        raise DposeError("hub-upload-failed", f"cannot be uploaded ({first_line(error)})", name) from error


def _unchanged(model: PoseModel, source: Path) -> bool:
    try:
        before = load_model(source).state_dict()
    except DposeError:
        return False
    now = model.state_dict()
    return before.keys() == now.keys() and all(torch.equal(before[k], now[k].detach().cpu()) for k in before)


def _plain_card(model: PoseModel) -> str:
    return (
        "---\nlibrary_name: dpose\npipeline_tag: keypoint-detection\ntags: [pose]\n---\n\n"
        "# A pose model\n\n"
        "It carries no statement of privacy: whether anyone in its training data is protected is not recorded here. A "
        "statement that its first weights had does not speak for these.\n\n"
        f"```json\n{json.dumps(model.config.to_dict(), indent=2)}\n```\n"
    )
