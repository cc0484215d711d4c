"""What an attack leaves in its folder: results.json, results.md, its figures, and one page with all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpose.privacy.rounding import between
from dpose.privacy.statement import software_versions
from dpose.report.document import Report
from dpose.report.results import Bullets, Command, Figure, Group, Section, Table, Text
from dpose.stats import Interval


@dataclass(frozen=True)
class AttackValues:
    """What was asked and found, as JSON.

    Attributes:
        settings: What was asked.
        values: What was measured.
        left: Releases that were not attacked, and why.
    """

    settings: Mapping[str, Any]
    values: Mapping[str, Any]
    left: Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class AttackReport:
    """What an attack found.

    Attributes:
        name: As on the command line.
        title: Of the page.
        headline: The result in a sentence.
        threat: Who the attacker is, what they have, and who is public.
        caveats: What the reader must know.
        facts: For the head of the page.
        tables: At least one.
        figures: Charts and pictures.
        measured: The numbers.
        command: As it was typed.
        stopped: Whether Ctrl-C ended it before all were attacked.
    """

    name: str
    title: str
    headline: str
    threat: tuple[str, ...]
    caveats: tuple[str, ...]
    facts: Mapping[str, str]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    measured: AttackValues
    command: str
    stopped: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "attack": self.name,
            "command": self.command,
            "settings": dict(self.measured.settings),
            "software": software_versions(),
            "caveats": list(self.caveats),
            "results": dict(self.measured.values),
            "not_attacked": [dict(one) for one in self.measured.left],
        }

    def write(self, folder: Path) -> None:
        """Write everything into `folder`.

        Raises:
            DposeError: the disk is full or may not be written to.
        """
        versions = ", ".join(f"{name} {version}" for name, version in software_versions().items())
        made = Bullets((f"Seed {self.measured.settings['seed']}", f"Versions: {versions}"))
        Report(
            self.title,
            kind=f"dpose attack {self.name}",
            source=f"the command {self.command}",
            panel=Group((Text((self.headline,), "lead"), *self.caveats), "panel none"),
            facts=self.facts,
            tables=tuple(replace(table, style="numbers tight") for table in self.tables),
            figures=self.figures,
            sections=(
                Section("attacker", "The attacker", (Bullets(self.threat),)),
                Section("made", "How it was made", (Command(self.command), made)),
            ),
            values=self.to_dict(),
        ).write(folder)


def percent(share: float) -> str:
    """As in 12.5 %."""
    return f"{100 * share:.1f} %"


def spread(found: Interval) -> str:
    """A share with its interval."""
    return f"{percent(found.value)} ({between(found.low, found.high, places=1, times=100)})"
