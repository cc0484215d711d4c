"""The Hugging Face Hub: what is fetched from it. Nothing is fetched unless a function here is called by name.

A model on the Hub is named `hf:OWNER/NAME`. The prefix is needed: a mistyped folder name must never become a request to
a server.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.privacy.sections import SIGNATURE

PREFIX = "hf:"
MODEL_FILES = ("config.json", "privacy.json", SIGNATURE, "README.md", "ledger.jsonl", "model.safetensors")
"""What a model takes along of the run that made it: all that `dpose verify` needs."""


def fetched(name: str, revision: str | None = None) -> Path:
    """The folder of the model called `hf:OWNER/NAME`, fetched once and kept in the Hub client's cache.

    Raises:
        DposeError: huggingface_hub is not installed, the name is none, or it cannot be fetched and is not in the cache.
    """
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
    """huggingface_hub's mixin, which is loaded here and nowhere else."""
    try:
        from huggingface_hub import ModelHubMixin
    except ImportError as error:
        raise DposeError(
            "package-missing", "the Hub needs huggingface_hub", fix="pip install 'dpose[hub]'"
        ) from error
    return ModelHubMixin


def first_line(error: Exception) -> str:
    """The error's kind and the first line of its message."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]
