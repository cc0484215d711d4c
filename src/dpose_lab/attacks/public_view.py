"""All four attacks on the public view of feature privacy, with the figures that the reports of runs quote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpose.files import folder_beside, write_atomic
from dpose.privacy.statement import software_versions
from dpose_lab.attacks.attack import ReleaseAttack, carry_out, option
from dpose_lab.attacks.attributes import AttributeInference
from dpose_lab.attacks.linkage import Linkage
from dpose_lab.attacks.reconstruction import Reconstruction
from dpose_lab.attacks.reid import Reidentification
from dpose_lab.attacks.report import AttackReport

if TYPE_CHECKING:
    from rich.console import Console

    from dpose_lab.attacks.context import AttackConfig

SUMMARY = "public-view.json"


@dataclass(frozen=True)
class PublicViewAttacks:
    """What does the public view of feature privacy reveal? All four attacks on both kinds of public views."""

    chooses_releases: ClassVar[bool] = False
    chooses_attackers: ClassVar[bool] = False

    epochs: int = option(3, "Passes over the attacker's pictures, of what learns to reconstruct.", min=1)

    def run(self, config: AttackConfig, out: Path, console: Console) -> list[tuple[Path, AttackReport]]:
        """Run every attack on both kinds of public view, and write a folder for each beside `SUMMARY`.

        Raises:
            DposeError: the data cannot be used, or `out` exists.
            KeyboardInterrupt: the attack was stopped, and nothing is written.
        """
        from dpose_lab.attacks.context import open_context
        from dpose_lab.attacks.transforms import VIEWS

        attacks: list[ReleaseAttack[Any, Any]] = [
            Reidentification(),
            AttributeInference(),
            Reconstruction(self.epochs),
            Linkage(),
        ]
        config = replace(config, releases=tuple(VIEWS))
        releases = {attack.name: attack.releases(config) for attack in attacks}
        with open_context(config, attacks, out, console) as context, folder_beside(out, config.folder_mode) as folder:
            reports = {}
            for attack in attacks:
                report = reports[attack.name] = carry_out(attack, context, releases[attack.name])
                if report.stopped:
                    raise KeyboardInterrupt  # a partial summary would be mistaken for a whole one
            for name, report in reports.items():
                report.write(folder / name)
            write_atomic(folder / SUMMARY, json.dumps(summary(config, reports), indent=1) + "\n")
        return [(out / name, report) for name, report in reports.items()]


def summary(config: AttackConfig, reports: Mapping[str, AttackReport]) -> dict[str, Any]:
    """Summary that the reports of runs quote: the stronger attacker on each view, raw pictures and guessing."""
    from dpose.training.public_view import WIDTHS
    from dpose_lab.attacks.transforms import RAW, VIEWS

    values = {name: report.measured.values for name, report in reports.items()}
    keys = {VIEWS[name]: name.replace(":", "-") for name in VIEWS}

    def best(attack: str, measure: str, key: str) -> dict[str, float]:
        rows = [row[measure] for row in values[attack]["rows"] if row["key"] == key]
        best: dict[str, float] = max(rows, key=lambda value: value["value"])
        return best

    def line(attack: str, measure: str, chance: float) -> dict[str, Any]:
        views = {kind: best(attack, measure, key) for kind, key in keys.items()}
        return {"raw": best(attack, measure, RAW.key), "chance": chance, **views}

    rebuilt = {row["key"]: row for row in values["reconstruct"]["rows"]}
    return {
        "command": config.command,
        "settings": config.to_dict(),
        "software": software_versions(),
        "widths": WIDTHS,
        "figures": {
            "rank1": line("reid", "rank1", values["reid"]["chance"]["rank1"]),
            "attributes": line("attributes", "map", values["attributes"]["chance"]["map"]),
            "auc": line("linkage", "auc", 0.5),
        },
        "attributes": {
            kind: max(
                (row for row in values["attributes"]["rows"] if row["key"] == key), key=lambda row: row["map"]["value"]
            )["ap"]
            for kind, key in keys.items()
        },
        "share": values["attributes"]["chance"]["share"],
        "reconstruction": {
            kind: {part: rebuilt[key][part] for part in ("released", "reconstructed", "rank1_reconstructed")}
            for kind, key in keys.items()
        },
    }
