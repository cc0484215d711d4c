"""Re-identification in seed 002's protocol: the gallery raw, the queries released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from dpose.attacks.adversary import Embedder, adaptive_embedder, plain_embedder
from dpose.attacks.context import STRONGER, TOLD_WHERE, AttackConfig, AttackContext, open_context, strongest
from dpose.attacks.drawing import curves, samples
from dpose.attacks.identities import PersonPictures
from dpose.attacks.ranking import SearchResult, chance_precision, chance_within, search
from dpose.attacks.report import AttackReport, write_attack
from dpose.attacks.sweep import attack_each
from dpose.attacks.transforms import Transform
from dpose.errors import DposeError
from dpose.files import folder_beside
from dpose.privacy.rounding import between
from dpose.report.results import Table
from dpose.stats import Interval, Ints, mean_over_people

RANKS = (1, 5, 10)
DRAWN = 20
"""Places in the CMC figure."""


@dataclass(frozen=True)
class Search:
    """How many pictures of each person there are.

    Attributes:
        gallery: Raw, with names.
        queries: Released.
        embedder: An ONNX file for the plain attacker; "" for the own one.
    """

    gallery: int = 1
    queries: int = 2
    embedder: str = ""

    def __post_init__(self) -> None:
        if self.gallery < 1 or self.queries < 1:
            raise DposeError("one picture of each person is needed", "--gallery, --queries", "use 1 or more")


@dataclass(frozen=True)
class Row:
    """One attacker on one release.

    Attributes:
        shown: The release.
        attacker: "plain" or "adaptive".
        title: What the attacker learnt from.
        within: Rank-k accuracy by k.
        precision: Mean average precision.
        cmc: The share found within 1, 2, ... places.
    """

    shown: Transform
    attacker: str
    title: str
    within: dict[int, Interval]
    precision: Interval
    cmc: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "release": self.shown.title,
            "key": self.shown.key,
            "guarantee": self.shown.guarantee,
            "attacker": self.attacker,
            "embedder": self.title,
            **{f"rank{k}": value.to_dict() for k, value in self.within.items()},
            "map": self.precision.to_dict(),
            "cmc": list(self.cmc),
        }


def attack_reid(ask: AttackConfig, how: Search, out: Path, console: Console) -> AttackReport:
    """Look for everybody in every release, and write the report.

    Raises:
        DposeError: the data or a setting cannot be used, or `out` exists.
    """
    shown = ask.shown()
    with (
        folder_beside(out, ask.folder_mode) as folder,
        open_context(ask, how.gallery + how.queries, console) as bench,
    ):
        report = reid_report(bench, how, shown)
        write_attack(report, folder)
    return report


def reid_report(bench: AttackContext, how: Search, shown: Sequence[Transform]) -> AttackReport:
    """The attack on an opened bench."""
    ask, crowd = bench.ask, bench.crowd
    gallery = crowd.album(0, how.gallery, bench.note("the gallery", len(crowd.people) * how.gallery))
    queries = crowd.album(
        how.gallery, how.queries, bench.note("the queries", len(crowd.people) * how.queries)
    )
    plain = plain_embedder(bench.school, how.embedder)

    def attack(one: Transform) -> tuple[PersonPictures, list[Row]]:
        seen, rows = one.album(queries, ask.seed, "query"), []
        for attacker in ask.attackers_of(one):
            embedder, known = plain, gallery
            if attacker == "adaptive":
                # who knows the mechanism passes the gallery through it too: like is compared with like
                known = one.album(gallery, ask.seed, "gallery")
                embedder = adaptive_embedder(bench.school, one)
            rows.append(searched(one, attacker, embedder, known, seen, ask.seed))
        return seen, rows

    attacked = attack_each(shown, attack)
    rows = [row for _, (_, found) in attacked.done for row in found]
    released = [(one, seen) for one, (seen, _) in attacked.done]
    chance = Chance.of(gallery.people, queries.people)
    return bench.report(
        attacked,
        name="reid",
        title="Who is it? Re-identification of released pictures",
        headline=_headline(rows, chance),
        threat=_threat(bench, how, plain, len(queries)),
        tables=(_table(rows, chance, len(queries), len(gallery)),),
        drawings=(_figure(rows, chance), samples(queries, released)),
        settings={"gallery": how.gallery, "queries": how.queries, "embedder": plain.title},
        values={"rows": [row.to_dict() for row in rows], "chance": chance.to_dict(), "queries": len(queries)},
    )


def searched(
    shown: Transform,
    attacker: str,
    embedder: Embedder,
    gallery: PersonPictures,
    queries: PersonPictures,
    seed: int,
) -> Row:
    """One attacker on one release."""
    likeness = embedder.embed(queries) @ embedder.embed(gallery).T
    found: SearchResult = search(likeness, gallery.people, queries.people, seed)
    within = {k: mean_over_people((found.rank <= k).astype(np.float64), queries.people, seed) for k in RANKS}
    precision = mean_over_people(found.precision, queries.people, seed)
    cmc = tuple(found.cmc(min(DRAWN, len(gallery))).tolist())
    return Row(shown, attacker, embedder.title, within, precision, cmc)


@dataclass(frozen=True)
class Chance:
    """What guessing finds, averaged over the queries.

    Attributes:
        cmc: Within 1, 2, ... places.
        precision: Mean average precision.
    """

    cmc: tuple[float, ...]
    precision: float

    @classmethod
    def of(cls, gallery: Ints, queries: Ints) -> Chance:
        """For these people."""
        right = [(gallery == who).sum() for who in queries]
        size = len(gallery)
        cmc = [
            float(np.mean([chance_within(k, size, n) for n in right])) for k in range(1, min(DRAWN, size) + 1)
        ]
        return cls(tuple(cmc), float(np.mean([chance_precision(size, n) for n in right])))

    def within(self, k: int) -> float:
        """Rank-k accuracy; 1 where the gallery has no more than k pictures."""
        return self.cmc[k - 1] if k <= len(self.cmc) else 1.0

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {**{f"rank{k}": self.within(k) for k in RANKS}, "map": self.precision, "cmc": list(self.cmc)}


def _best(rows: Sequence[Row]) -> list[Row]:
    return strongest(rows, lambda row: row.shown.key, lambda row: row.within[1].value)


def _headline(rows: Sequence[Row], chance: Chance) -> str:
    raw, *rest = _best(rows)
    said = (
        f"Of raw pictures {percent(raw.within[1].value)} are recognised at the first guess; guessing finds "
    )
    said += f"{percent(chance.cmc[0])}."
    for row in rest[:3]:
        said += f" {row.shown.title}: {percent(row.within[1].value)}."
    return said


def _threat(bench: AttackContext, how: Search, plain: Embedder, queries: int) -> tuple[str, ...]:
    return (
        f"The attacker has {how.gallery} raw picture{'s' * (how.gallery > 1)} with a name of each of "
        f"{len(bench.crowd.people):,} people, gets {queries:,} released pictures of them in other places, and ranks "
        "the names for each (seed 002, section VII-C; there with one query a person, in grey, parts of a block chosen "
        "by a mask of the face, and ArcFace).",
        f"Plain: knows nothing of the mechanism. Its embedder: {plain.title}.",
        "Adaptive: knows the mechanism and its settings, learnt from releases of other people's pictures, and passes "
        "the gallery through the mechanism as well.",
        STRONGER,
        f"Public: {min(bench.ask.effort.people, len(bench.crowd.public)):,} people of whom the attacker has pictures; "
        "none of them is in the gallery. Descriptors are colours by place, compared by Fisher's discriminant; a larger "
        "network, better data or patience would find more.",
        TOLD_WHERE,
    )


def _table(rows: Sequence[Row], chance: Chance, queries: int, gallery: int) -> Table:
    head = ("Release", "Attacker", *(f"rank-{k}" for k in RANKS), "mAP")
    counted = {id(row) for row in _best(rows)}
    lines = [
        (
            row.shown.title,
            row.attacker + (" *" if id(row) in counted and len(rows) > len(counted) else ""),
            *(spread(row.within[k]) for k in RANKS),
            spread(row.precision),
        )
        for row in rows
    ]
    guess = tuple(percent(chance.within(k)) for k in RANKS)
    lines.append(("guessing", "", *guess, percent(chance.precision)))
    title = (
        f"{queries:,} queries against {gallery:,} raw pictures; 95 % intervals by a bootstrap over people. "
        f"* counts: the stronger attacker"
    )
    return Table(title, head, tuple(lines))


def _figure(rows: Sequence[Row], chance: Chance) -> Any:
    drawn = [(row.shown.title, row.attacker, (range(1, len(row.cmc) + 1), row.cmc)) for row in rows]
    caption = "Cumulative match characteristic: the share of queries whose person is among the first k names"
    guess = (range(1, len(chance.cmc) + 1), chance.cmc)
    return curves("cmc", "Who is it?", drawn, guess, ("first k names", "share found"), caption)


def percent(share: float) -> str:
    """As in 12.5 %."""
    return f"{100 * share:.1f} %"


def spread(found: Interval) -> str:
    """A share with its interval."""
    return f"{percent(found.value)} ({between(found.low, found.high, places=1, times=100)})"
