"""Progress of a run, read from its log by another process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

END_BYTES = 1 << 16
"""So much of a log's end is read: many lines."""


def progress_line(folder: Path) -> str:
    """How far the run in `folder` is, "step 12 of 600"; "" if it has taken none, or its log cannot be read."""
    file = folder / "log.jsonl"
    try:
        with file.open("rb") as log:
            first = log.readline()
            log.seek(max(0, file.stat().st_size - END_BYTES))
            last = log.read().splitlines()
    except OSError:
        return ""
    steps = _line(first).get("steps")
    done = next((found for text in reversed(last) if (found := _line(text)).get("type") == "step"), None)
    if done is None or not isinstance(steps, int):
        return ""
    return f"step {done['step']:,} of {steps:,}"


def _line(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
