"""What the public view gives away: attacks on it, measured once and kept beside this module with their command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from dpose.privacy.rounding import between
from dpose.report.results import Block, Command, Table, Text
from dpose.report.run import RunRecord, mapping

FILE = "public_view.json"
NAMES = {"blur": "Gaussian blur", "pixelize": "pixelization"}
LINES = {
    "rank1": "Recognised, first guess of {identities} names",
    "attributes": "Looks told (mean average precision)",
    "auc": "Same person or two (area under ROC)",
}
TELLING = 4
"""Attributes that are named: those most above guessing."""


@cache
def measured() -> Mapping[str, Any]:
    """What `dpose attack view` left: figures, settings, versions, and the command that makes them again."""
    found: Mapping[str, Any] = json.loads((files("dpose.report") / FILE).read_text(encoding="utf-8"))
    return found


def given_away_section(run: RunRecord) -> tuple[Block, ...]:
    """Figures of attacks on the public view; nothing for methods that have none."""
    method = run.facts
    if method is None or not method.public_views:
        return ()
    found = measured()
    view = mapping(run.plan.get("public_view"))
    kind = str(view.get("kind") if view.get("kind") in NAMES else "blur")
    return (
        Text((_lead(kind, found),), "lead"),
        _table(kind, found),
        _notes(kind, found),
        _width(kind, view.get("width"), found),
        PROVES,
        Command(found["command"]),
        _origin(found),
    )


PROVES = (
    "These attackers are small and learnt quickly; better ones find more. Where they fail, that proves nothing. What "
    "a guarantee of feature privacy covers is what a picture holds beyond its public view, and nothing in this section."
)


def _lead(kind: str, found: Mapping[str, Any]) -> str:
    rank = found["figures"]["rank1"]
    return (
        f"Every unit's public view ({NAMES[kind]}) is taken as public, and it still shows people: of "
        f"{found['settings']['identities']} rendered people {_percent(rank[kind]['value'])} were recognised in it at "
        f"the first guess, where raw pictures gave {_percent(rank['raw']['value'])} and guessing gives "
        f"{_percent(rank['chance'])}."
    )


def _table(kind: str, found: Mapping[str, Any]) -> Table:
    other = next(name for name in NAMES if name != kind)
    rows: list[tuple[str, ...]] = [
        (
            title.format(**found["settings"]),
            _spread(line[kind]),
            _spread(line[other]),
            _spread(line["raw"]),
            _percent(line["chance"]),
        )
        for title, line in ((LINES[name], found["figures"][name]) for name in LINES)
    ]
    rebuilt = found["reconstruction"]
    quality = (f"{rebuilt[name]['reconstructed']['psnr']['value']:.1f} dB" for name in (kind, other))
    rows.append(("Rebuilt by a small network (PSNR)", *quality, "", ""))
    head = ("The stronger attacker", f"{NAMES[kind]} (this run)", NAMES[other], "Raw pictures", "Guessing")
    return Table("", head, tuple(rows), "numbers tight")


def _notes(kind: str, found: Mapping[str, Any]) -> str:
    precision, share = found["attributes"][kind], found["share"]
    best = sorted(share, key=lambda name: share[name] - precision[name])[:TELLING]
    said = ", ".join(f"{n} ({_percent(precision[n])} against {_percent(share[n])} by guessing)" for n in best)
    return f"Told best from it, by average precision: {said}."


def _width(kind: str, width: Any, found: Mapping[str, Any]) -> str:
    own = float(found["widths"][kind] if width is None else width)
    if own == found["widths"][kind]:
        return ""
    less = "less" if own > found["widths"][kind] else "more"
    measured_at = f"Measured at width {found['widths'][kind]:g}."
    return f"{measured_at} This run's view has width {own:g}: expect it to give away {less}."


def _origin(found: Mapping[str, Any]) -> str:
    settings, versions = found["settings"], found["software"]
    learnt = settings["learn_from"]
    return (
        f"Measured on rendered people ({settings['data']}), by attackers who know {learnt['people']} other people with "
        f"{learnt['pictures']} pictures each; seed {settings['seed']}, dpose {versions['dpose']}, torch "
        f"{versions['torch']}. Real pictures may give away more or less."
    )


def _spread(value: Mapping[str, float]) -> str:
    return f"{_percent(value['value'])} ({between(value['low'], value['high'], places=1, times=100)})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
