"""The faults of all rooms: each module beside this one that plants any has them under its own name, `STUDIO`."""

from __future__ import annotations

import importlib
from pathlib import Path

from mutants.planted.patches import Planted

NO_ROOMS = ("__init__", "objects", "patches", "rooms", "undone")


def planted_faults() -> dict[str, tuple[Planted, ...]]:
    """By the room's name."""
    rooms = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in NO_ROOMS)
    return {room: getattr(importlib.import_module(f"mutants.planted.{room}"), room.upper()) for room in rooms}
