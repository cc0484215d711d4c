"""All four attacks on the public view of feature privacy, with the figures that the reports of runs quote."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from dpose.attacks.attributes import attributes_report
from dpose.attacks.context import AttackConfig, AttackContext, open_context
from dpose.attacks.linkage import linkage_report
from dpose.attacks.reconstruction import reconstruct_report
from dpose.attacks.reid import Search, reid_report
from dpose.attacks.report import AttackReport, write_attack
from dpose.attacks.transforms import RAW, VIEWS, Transform
from dpose.files import folder_beside, write_atomic
from dpose.privacy.statement import software_versions
from dpose.training.public_view import WIDTHS

SUMMARY = "public-view.json"
PICTURES = 3
Attack = Callable[[AttackContext, Sequence[Transform]], AttackReport]
ATTACKS: Mapping[str, Attack] = {
    "reid": lambda bench, shown: reid_report(bench, Search(), shown),
    "attributes": attributes_report,
    "reconstruct": reconstruct_report,
    "linkage": linkage_report,
}


def attack_view(ask: AttackConfig, out: Path, console: Console) -> list[AttackReport]:
    """Run every attack on both kinds of public view, and write a folder for each beside `SUMMARY`.

    Raises:
        DposeError: the data cannot be used, or `out` exists.
        KeyboardInterrupt: it was stopped, and nothing is left.
    """
    ask = replace(ask, releases=tuple(VIEWS))
    shown = ask.shown()
    with folder_beside(out, ask.folder_mode) as folder, open_context(ask, PICTURES, console) as bench:
        reports = {}
        for name, attack in ATTACKS.items():
            reports[name] = attack(bench, shown)
            if reports[name].stopped:
                raise KeyboardInterrupt  # a summary of less than all would be taken for all
        for name, report in reports.items():
            write_attack(report, folder / name)
        write_atomic(folder / SUMMARY, json.dumps(summary(ask, reports), indent=1) + "\n")
    return list(reports.values())


def summary(ask: AttackConfig, reports: Mapping[str, AttackReport]) -> dict[str, Any]:
    """What the reports of runs quote: the stronger attacker on each view, beside raw pictures and guessing."""
    values = {name: report.values for name, report in reports.items()}
    keys = {VIEWS[name]: name.replace(":", "-") for name in VIEWS}

    def best(attack: str, measure: str, key: str) -> dict[str, float]:
        rows = [row[measure] for row in values[attack]["rows"] if row["key"] == key]
        found: dict[str, float] = max(rows, key=lambda value: value["value"])
        return found

    def line(attack: str, measure: str, chance: float) -> dict[str, Any]:
        views = {kind: best(attack, measure, key) for kind, key in keys.items()}
        return {"raw": best(attack, measure, RAW.key), "chance": chance, **views}

    rebuilt = {row["key"]: row for row in values["reconstruct"]["rows"]}
    return {
        "command": ask.command,
        "settings": ask.to_dict(),
        "software": software_versions(),
        "widths": WIDTHS,
        "figures": {
            "rank1": line("reid", "rank1", values["reid"]["chance"]["rank1"]),
            "attributes": line("attributes", "map", values["attributes"]["chance"]["map"]),
            "auc": line("linkage", "auc", 0.5),
        },
        "attributes": {
            kind: max(
                (row for row in values["attributes"]["rows"] if row["key"] == key),
                key=lambda row: row["map"]["value"],
            )["ap"]
            for kind, key in keys.items()
        },
        "share": values["attributes"]["chance"]["share"],
        "reconstruction": {
            kind: {part: rebuilt[key][part] for part in ("released", "reconstructed", "rank1_reconstructed")}
            for kind, key in keys.items()
        },
    }
