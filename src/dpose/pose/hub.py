"""Pose models to and from the Hugging Face Hub. Nothing is sent or fetched unless a function here is called by name.

A model on the Hub is named `hf:OWNER/NAME`. The prefix is needed: a folder's name that is mistyped must never become a
question to a server.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from dpose.errors import DposeError
from dpose.files import file_bytes, write_atomic
from dpose.pose.folder import CONFIG, WEIGHTS, load_model, save_model
from dpose.privacy.sections import SIGNATURE

if TYPE_CHECKING:
    from dpose.pose.model import PoseModel

PREFIX = "hf:"
STATEMENT, CARD = "privacy.json", "README.md"
_OF_A_RUN = (CONFIG, STATEMENT, SIGNATURE, CARD, "ledger.jsonl", WEIGHTS)
"""What a model takes along of the run that made it: all that `dpose verify` needs."""
_EXTRA = "pip install 'dpose[hub]'"


def save_pretrained(model: PoseModel, folder: str | Path) -> Path:
    """Write a model folder that stands alone: weights, `config.json`, the statement and the card.

    Of a run whose weights are still exactly those, configuration, statement, signature, card and ledger go along word
    for word, so that `dpose verify` can check the copy; log and checkpoints do not. A model that was changed since
    carries none: what they guarantee is not known to hold for it, and the card written for it says so.

    Args:
        model: Any pose model.
        folder: Made where it is missing; may not hold another model.

    Raises:
        DposeError: the folder holds another model, or cannot be written to.
    """
    folder = Path(folder)
    save_model(model, folder)
    source = model.source
    if source is not None and _unchanged(model, source):
        for name in _OF_A_RUN:
            if (source / name).exists() and source.resolve() != folder.resolve():
                write_atomic(folder / name, file_bytes(source / name))
    elif not (source is not None and source.resolve() == folder.resolve()):
        write_atomic(folder / CARD, _plain_card(model))
        (folder / STATEMENT).unlink(missing_ok=True)
    if not (folder / CARD).exists():
        write_atomic(folder / CARD, _plain_card(model))
    return folder


def push_to_hub(model: PoseModel, name: str, *, private: bool = True, token: str | None = None) -> str:
    """Upload the folder that `save_pretrained` writes; the repository is private unless asked otherwise.

    Args:
        model: Any pose model.
        name: "OWNER/NAME", with or without `hf:`.
        private: Of a repository that does not exist yet.
        token: Of an account; by default the one that `hf auth login` keeps.

    Returns:
        The upload's address.

    Raises:
        DposeError: huggingface_hub is not installed, or the upload fails.
    """
    mixin = _mixin()

    class Adapter(mixin):  # type: ignore[misc, valid-type]
        """Hands the model to the mixin."""

        def _save_pretrained(self, save_directory: Path) -> None:
            save_pretrained(model, save_directory)

    try:
        return str(Adapter().push_to_hub(name.removeprefix(PREFIX), private=private, token=token))
    except DposeError:
        raise
    except Exception as error:  # the client raises its own, its transport's and the system's
        raise DposeError("hub-upload-failed", f"cannot be uploaded ({_short(error)})", name) from error


def from_hub(name: str, device: str = "cpu", revision: str | None = None) -> PoseModel:
    """The model called `hf:OWNER/NAME`, fetched once and kept in the Hub client's cache.

    Raises:
        DposeError: huggingface_hub is not installed, the name is none, it cannot be fetched, or it is no model that
            `load_model` reads.
    """
    return load_model(fetched(name, revision), device)


def fetched(name: str, revision: str | None = None) -> Path:
    """The folder of the model called `hf:OWNER/NAME`, fetched once and kept in the Hub client's cache.

    Raises:
        DposeError: huggingface_hub is not installed, the name is none, or it cannot be fetched and is not in the cache.
    """
    if name.count("/") != 1 or not name.startswith(PREFIX):
        raise DposeError("hub-name-malformed", "is no name on the Hub", name, "write hf:OWNER/NAME")
    _mixin()
    from huggingface_hub import snapshot_download

    own = name.removeprefix(PREFIX)
    try:
        return Path(snapshot_download(own, revision=revision, allow_patterns=[*_OF_A_RUN]))
    except Exception as error:  # the client raises its own, its transport's and the system's
        raise DposeError(
            "hub-fetch-failed",
            f"cannot be fetched ({_short(error)})",
            name,
            f"check the name and the network; without one, fetch it elsewhere (hf download {own} --local-dir "
            f"{own.rpartition('/')[2]}) and give the folder",
        ) from error


def _mixin() -> Any:
    """huggingface_hub's mixin, which is loaded here and nowhere else."""
    try:
        from huggingface_hub import ModelHubMixin
    except ImportError as error:
        raise DposeError("package-missing", "the Hub needs huggingface_hub", fix=_EXTRA) from error
    return ModelHubMixin


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


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]
