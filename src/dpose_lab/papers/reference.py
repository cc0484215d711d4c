"""What the papers say: numbers and claims read from their text, kept as data beside the code that runs it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@dataclass(frozen=True)
class Reading:
    """One place of a paper where numbers stand.

    Attributes:
        settings: For which setting they hold.
        values: The numbers.
        note: Where they stand, and what to mind.
    """

    settings: Mapping[str, Any]
    values: Mapping[str, Any]
    note: str


@dataclass(frozen=True)
class Paper:
    """What a paper says about one table or figure.

    Attributes:
        data: What it measured on.
        says: Its findings, in words.
        readings: Its numbers, where the text gives any.
    """

    data: str
    says: tuple[str, ...]
    readings: tuple[Reading, ...]

    def reading(self, settings: Mapping[str, Any]) -> Reading | None:
        """The numbers for `settings`: the first whose own settings are all among them."""
        for reading in self.readings:
            if reading.settings.items() <= settings.items():
                return reading
        return None

    def notes(self) -> tuple[str, ...]:
        """Its data and its findings, as a report tells them."""
        return (f"the paper: {self.data}", *(f"the paper finds: {line}" for line in self.says))


@cache
def read_paper(package: str, file: str) -> Mapping[str, Paper]:
    """All tables and figures of one paper by name.

    Args:
        package: Where the file is.
        file: YAML.
    """
    content = yaml.safe_load((files(package) / file).read_text(encoding="utf-8"))
    return {
        name: Paper(
            data=entry["data"],
            says=tuple(entry.get("says", ())),
            readings=tuple(
                Reading(one["settings"], one["values"], one["note"]) for one in entry.get("readings", ())
            ),
        )
        for name, entry in content["experiments"].items()
    }
