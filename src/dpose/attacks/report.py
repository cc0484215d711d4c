"""What an attack leaves in its folder: results.json, results.md, its figures, and one page with all of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpose.files import write_atomic
from dpose.privacy.statement import software_versions
from dpose.report.document import document, facts
from dpose.report.markup import bullets, paragraphs, scrolling_table, tag, together
from dpose.report.results import Drawing, Table, drawing_html, markdown_table


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
        drawings: Figures and pictures.
        settings: What was asked, as JSON.
        values: What was measured, as JSON.
        command: As it was typed.
        left: Releases that were not attacked, and why.
        stopped: Whether Ctrl-C ended it before all were.
    """

    name: str
    title: str
    headline: str
    threat: tuple[str, ...]
    caveats: tuple[str, ...]
    facts: Mapping[str, str]
    tables: tuple[Table, ...]
    drawings: tuple[Drawing, ...]
    settings: Mapping[str, Any]
    values: Mapping[str, Any]
    command: str
    left: Sequence[Mapping[str, str]] = ()
    stopped: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "attack": self.name,
            "command": self.command,
            "settings": dict(self.settings),
            "software": software_versions(),
            "caveats": list(self.caveats),
            "results": dict(self.values),
            "not_attacked": [dict(one) for one in self.left],
        }


def write_attack(report: AttackReport, folder: Path) -> None:
    """Write everything into `folder`.

    Raises:
        DposeError: the disk is full or may not be written to.
    """
    write_atomic(folder / "results.json", json.dumps(report.to_dict(), indent=1, allow_nan=False) + "\n")
    write_atomic(folder / "results.md", markdown(report))
    for drawing in report.drawings:
        write_atomic(folder / f"{drawing.name}.png", drawing.png)
    write_atomic(folder / "index.html", page(report, datetime.now(UTC)))


def markdown(report: AttackReport) -> str:
    """Tables and notes as Markdown."""
    parts = [f"# {report.title}", "", report.headline, "", *(f"* {line}" for line in report.caveats)]
    for table in report.tables:
        parts += markdown_table(table)
    for drawing in report.drawings:
        parts.append(f"\n![{drawing.caption}]({drawing.name}.png)")
    parts += ["", "## The attacker", "", *(f"* {line}" for line in report.threat)]
    parts += [
        "",
        "## How it was made",
        "",
        f"    {report.command}",
        "",
        *(f"* {line}" for line in _made(report)),
    ]
    return "\n".join(parts) + "\n"


def page(report: AttackReport, now: datetime) -> str:
    """One HTML file that needs no other and loads nothing."""
    header = tag(
        "header",
        tag("p", f"dpose attack {report.name}", class_="eyebrow"),
        tag("h1", report.title),
        tag(
            "div", tag("p", report.headline, class_="lead"), paragraphs(*report.caveats), class_="panel none"
        ),
        facts(report.facts.items()),
    )
    tables = [
        together(
            [tag("h3", table.title), scrolling_table("", table.head, table.rows, class_="numbers tight")]
        )
        for table in report.tables
    ]
    made = together([tag("pre", report.command, class_="command"), bullets(_made(report))])
    sections = [
        ("found", "What was found", together(tables)),
        (
            "figures",
            "Figures",
            together(tag("div", drawing_html(d), class_="beside") for d in report.drawings),
        ),
        ("attacker", "The attacker", bullets(report.threat)),
        ("made", "How it was made", made),
    ]
    return document(report.title, header, sections, now, f"the command {report.command}")


def _made(report: AttackReport) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in software_versions().items())
    return [f"Seed {report.settings['seed']}", f"Versions: {versions}"]
