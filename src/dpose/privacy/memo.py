"""What was computed before, in the user's cache folder: a convenience, and no authority.

Answers are remembered by their question, the version of dpose and that of dp-accounting. What claims an epsilon
computes it; so a wrong entry can waste a run, or show a wrong plan, and cannot weaken a claim.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs

from dpose.errors import DposeError
from dpose.files import file_json, write_atomic
from dpose.interpreter import version_of

FORMAT = 3


def recall(kind: str, requested: Mapping[str, Any]) -> Any:
    """The remembered answer to a question, as JSON has it, or None. Never raises.

    Args:
        kind: What sort of question; a word, the name of the folder.
        requested: The question: all that the answer depends on, as JSON values.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        entry = file_json(_path(kind, requested))
        if entry == _entry(requested, entry["answer"]):
            return entry["answer"]
    return None


def remember(kind: str, requested: Mapping[str, Any], answer: Any) -> None:
    """Store an answer, of JSON values; a cache that cannot be written is no error."""
    with contextlib.suppress(DposeError, OSError):
        write_atomic(_path(kind, requested), json.dumps(_entry(requested, answer)))


def _question(requested: Mapping[str, Any]) -> dict[str, Any]:
    versions = {name: version_of(name) for name in ("dpose", "dp-accounting")}
    return {**requested, "format": FORMAT, **versions}


def _entry(requested: Mapping[str, Any], answer: Any) -> dict[str, Any]:
    entry = {"asked": _question(requested), "answer": answer}
    return {**entry, "sha256": _digest(entry)}


def _path(kind: str, requested: Mapping[str, Any]) -> Path:
    folder = platformdirs.user_cache_path("dpose") / kind
    return folder / f"{_digest(_question(requested))[:32]}.json"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
