"""Downloads from the Hugging Face Hub. Nothing is downloaded unless a function here is called by name.

A model on the Hub is named `hf:OWNER/NAME`. The prefix is needed: a mistyped folder name must never become a request to
a server. A module of its own, so that names of models are understood without torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.privacy.sections import SIGNATURE

PREFIX = "hf:"
MODEL_FILES = ("config.json", "privacy.json", SIGNATURE, "README.md", "ledger.jsonl", "model.safetensors")
"""Files of a run that are copied with its model: all that `dpose verify` needs."""


def fetched(name: str, revision: str | None = None) -> Path:
    """Return the folder of the model called `hf:OWNER/NAME`, downloaded once to the Hub client's cache."""
    if name.count("/") != 1 or not name.startswith(PREFIX):
        raise DposeError("hub-name-malformed", "is no name on the Hub", name, "write hf:OWNER/NAME")
    hub_mixin()
    from huggingface_hub import snapshot_download

    own = name.removeprefix(PREFIX)
    try:
        return Path(snapshot_download(own, revision=revision, allow_patterns=[*MODEL_FILES]))
    except Exception as error:  # the client raises its own, its transport's and the system's
        raise DposeError(
            "hub-fetch-failed",
            f"cannot be fetched ({first_line(error)})",
            name,
            f"check the name and the network; without one, fetch it elsewhere (hf download {own} --local-dir "
            f"{own.rpartition('/')[2]}) and give the folder",
        ) from error


def hub_mixin() -> Any:
    """Import huggingface_hub's mixin, here and nowhere else."""
    try:
        from huggingface_hub import ModelHubMixin
    except ImportError as error:
        raise DposeError(
            "package-missing", "the Hub needs huggingface_hub", fix="pip install huggingface_hub"
        ) from error
    return ModelHubMixin


def first_line(error: Exception) -> str:
    """Return the error's kind and the first line of its message."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]
