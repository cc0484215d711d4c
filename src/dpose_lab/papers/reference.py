"""Numbers and claims from the papers' text, as data beside the code that reproduces them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@dataclass(frozen=True)
class Reading:
    """Numbers from one place of a paper.

    Attributes:
        settings: Setting for which the numbers hold.
        values: The numbers.
        note: Place in the paper, and remarks.
    """

    settings: Mapping[str, Any]
    values: Mapping[str, Any]
    note: str


@dataclass(frozen=True)
class Paper:
    """A paper's findings on one table or figure.

    Attributes:
        data: Data that the paper measured on.
        says: Findings, in words.
        readings: Numbers that the text gives, if any.
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
        """Data and findings as lines of a report."""
        return (f"the paper: {self.data}", *(f"the paper finds: {line}" for line in self.says))


@cache
def read_paper(package: str, file: str) -> Mapping[str, Paper]:
    """Read all tables and figures of one paper, by name.

    Args:
        package: Package that contains the file.
        file: Name of the YAML file.
    """
    content = yaml.safe_load((files(package) / file).read_text(encoding="utf-8"))
    return {
        name: Paper(
            data=entry["data"],
            says=tuple(entry.get("says", ())),
            readings=tuple(Reading(one["settings"], one["values"], one["note"]) for one in entry.get("readings", ())),
        )
        for name, entry in content["experiments"].items()
    }
