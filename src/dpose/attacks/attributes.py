"""Attribute inference: what a released picture tells of somebody besides who it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from dpose.action.metrics import average_precision, f1_score
from dpose.attacks.context import STRONGER, TOLD_WHERE, AttackConfig, AttackContext, open_context, strongest
from dpose.attacks.drawing import attack_bars, samples
from dpose.attacks.identities import PersonPictures
from dpose.attacks.reid import percent, spread
from dpose.attacks.report import AttackReport, write_attack
from dpose.attacks.sweep import attack_each
from dpose.attacks.transforms import RAW, Transform
from dpose.attacks.witness import ATTRIBUTES, labels_of
from dpose.files import folder_beside
from dpose.report.results import Table
from dpose.stats import Floats, Interval, Ints, over_people

PICTURES = 2
"""Of each person who is attacked."""
RESAMPLES = 100


@dataclass(frozen=True)
class InferredAttributes:
    """What one attacker told from one release.

    Attributes:
        shown: The release.
        attacker: "plain" or "adaptive".
        precision: Mean over the attributes of the average precision.
        f1: Mean over the attributes of F1.
        each: Average precision by attribute.
        each_f1: F1 by attribute.
    """

    shown: Transform
    attacker: str
    precision: Interval
    f1: float
    each: dict[str, float]
    each_f1: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "release": self.shown.title,
            "key": self.shown.key,
            "guarantee": self.shown.guarantee,
            "attacker": self.attacker,
            "map": self.precision.to_dict(),
            "f1": self.f1,
            "ap": self.each,
            "f1_each": self.each_f1,
        }


def attack_attributes(ask: AttackConfig, out: Path, console: Console) -> AttackReport:
    """Tell what everybody looks like from every release, and write the report.

    Raises:
        DposeError: the data have no attributes, a setting cannot be used, or `out` exists.
    """
    shown = ask.shown()
    with folder_beside(out, ask.folder_mode) as folder, open_context(ask, PICTURES, console) as bench:
        report = attributes_report(bench, shown)
        write_attack(report, folder)
    return report


def attributes_report(bench: AttackContext, shown: Sequence[Transform]) -> AttackReport:
    """The attack on an opened bench."""
    ask, crowd = bench.ask, bench.crowd
    album = crowd.album(0, PICTURES, bench.note("the pictures", len(crowd.people) * PICTURES))
    truth = labels_of(album)
    known = {n: k for k, n in enumerate(ATTRIBUTES) if truth[:, k].any() and not truth[:, k].all()}

    def attack(one: Transform) -> tuple[PersonPictures, list[InferredAttributes]]:
        seen, rows = one.album(album, ask.seed, "query"), []
        descriptors = seen.described()
        for attacker in ask.attackers_of(one):
            scorer = bench.school.scorer(RAW if attacker == "plain" else one, labels_of, tuple(ATTRIBUTES))
            rows.append(_told(one, attacker, scorer(descriptors), truth, known, album.people, ask.seed))
        return seen, rows

    attacked = attack_each(shown, attack)
    rows = [row for _, (_, found) in attacked.done for row in found]
    released = [(one, seen) for one, (seen, _) in attacked.done]
    share = {name: float(truth[:, k].mean()) for name, k in known.items()}
    chance = {"map": float(np.mean(list(share.values()))), "f1": _always(share)}
    return bench.report(
        attacked,
        name="attributes",
        title="What do they look like? Attributes told from released pictures",
        headline=_headline(rows, chance["map"]),
        threat=(
            f"The attacker gets {len(album):,} released pictures of {len(crowd.people):,} people and says of each "
            f"which of {len(known)} attributes it has.",
            "Plain: learnt from raw pictures. Adaptive: learnt from pictures that went through the mechanism.",
            STRONGER,
            f"Public: {min(ask.effort.people, len(crowd.public)):,} other people, whose attributes the attacker knows. "
            "Descriptors are colours by place, weighed by ridge regression; thresholds are chosen on a quarter of the "
            "public people who were not learnt from.",
            TOLD_WHERE,
            "Guessing: the share of pictures with the attribute is the average precision of a random order; always "
            "saying yes has the F1 shown.",
        ),
        tables=(_summary(rows, chance, len(album)), _by_attribute(rows, share)),
        drawings=(_figure(rows, share), samples(album, released)),
        values={"rows": [row.to_dict() for row in rows], "chance": {**chance, "share": share}},
    )


def _told(
    shown: Transform,
    attacker: str,
    scores: Floats,
    truth: NDArray[np.bool_],
    known: dict[str, int],
    people: Ints,
    seed: int,
) -> InferredAttributes:
    each = {n: average_precision(scores[:, k], truth[:, k]) for n, k in known.items()}
    f1 = {n: f1_score(scores[:, k] > 0, truth[:, k]) for n, k in known.items()}
    _, index = np.unique(people, return_inverse=True)

    def mean(weights: Floats) -> float:
        drawn = np.repeat(np.arange(len(index)), weights[index].astype(int))
        found = [
            average_precision(scores[drawn, k], truth[drawn, k])
            for k in known.values()
            if truth[drawn, k].any()
        ]
        return float(np.mean(found))

    interval = over_people(mean, int(index.max()) + 1, seed, RESAMPLES)
    return InferredAttributes(shown, attacker, interval, float(np.mean(list(f1.values()))), each, f1)


def _best(rows: Sequence[InferredAttributes]) -> list[InferredAttributes]:
    return strongest(rows, lambda row: row.shown.key, lambda row: row.precision.value)


def _always(share: dict[str, float]) -> float:
    return float(np.mean([2 * p / (1 + p) for p in share.values()]))


def _headline(rows: Sequence[InferredAttributes], chance: float) -> str:
    said = f"Mean average precision over the attributes: guessing {percent(chance)}"
    for row in _best(rows)[:4]:
        said += f"; {row.shown.title} {percent(row.precision.value)}"
    return said + "."


def _summary(rows: Sequence[InferredAttributes], chance: dict[str, float], count: int) -> Table:
    lines = [(row.shown.title, row.attacker, spread(row.precision), percent(row.f1)) for row in rows]
    lines.append(("guessing", "", percent(chance["map"]), percent(chance["f1"])))
    title = f"Means over the attributes, {count:,} pictures; 95 % intervals by a bootstrap over people"
    return Table(title, ("Release", "Attacker", "mAP", "F1"), tuple(lines))


def _by_attribute(rows: Sequence[InferredAttributes], share: dict[str, float]) -> Table:
    best = _best(rows)
    lines = [
        (
            name,
            percent(chance),
            percent(2 * chance / (1 + chance)),
            *(f"{percent(row.each[name])} / {percent(row.each_f1[name])}" for row in best),
        )
        for name, chance in share.items()
    ]
    head = ("Attribute", "AP of guessing", "F1 of always yes", *(row.shown.title for row in best))
    return Table("Average precision / F1 of the stronger attacker, by attribute", head, tuple(lines))


def _figure(rows: Sequence[InferredAttributes], share: dict[str, float]) -> Any:
    best = _best(rows)
    drawn = [(row.shown.title, list(row.each.values())) for row in best]
    drawn.append(("guessing", list(share.values())))
    caption = "Average precision of the stronger attacker on each attribute"
    return attack_bars(
        "attributes", "What do they look like?", list(share), drawn, "average precision", caption
    )
