"""The report of an attack: results.json, results.md, figures, and a page with all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpose.privacy.ranges import between
from dpose.privacy.statement import software_versions
from dpose.report.document import Report
from dpose.report.results import Bullets, Command, Figure, Group, Section, Table, Text
from dpose_lab.stats import Interval


@dataclass(frozen=True)
class AttackValues:
    """Settings and measurements as JSON.

    Attributes:
        settings: Settings of the attack.
        values: The measurements.
        left: Releases that were not attacked, each with the reason.
    """

    settings: Mapping[str, Any]
    values: Mapping[str, Any]
    left: Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class AttackReport:
    """The report of an attack.

    Attributes:
        name: Name on the command line.
        title: Title of the page.
        headline: The result in a sentence.
        threat: The attacker, the attacker's data, and who is public.
        caveats: Caveats of the results.
        facts: Facts for the head of the page.
        tables: Tables, at least one.
        figures: Charts and pictures.
        measured: The numbers.
        command: The command line.
        stopped: True if Ctrl-C ended the attack early.
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
        """The report as JSON."""
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
        """Write everything into `folder`."""
        versions = ", ".join(f"{name} {version}" for name, version in software_versions().items())
        made = Bullets((f"Seed {self.measured.settings['seed']}", f"Versions: {versions}"))
        Report(
            self.title,
            kind=f"dpose attack {self.name}",
            source=f"the command {self.command}",
            panel=Group((Text((self.headline,), "lead"), *self.caveats), "panel none"),
            facts=self.facts,
            tables=tuple(replace(table, style="numbers tight wrapped") for table in self.tables),
            figures=self.figures,
            sections=(
                Section("attacker", "The attacker", (Bullets(self.threat),)),
                Section("made", "How it was made", (Command(self.command), made)),
            ),
            values=self.to_dict(),
        ).write(folder)


def percent(share: float) -> str:
    """Format a share as in 12.5 %."""
    return f"{100 * share:.1f} %"


def spread(share: Interval) -> str:
    """Format a share with its interval."""
    return f"{percent(share.value)} ({between(share.low, share.high, places=1, times=100)})"
