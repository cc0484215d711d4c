"""Linkage of frames: do two releases from two places show the same person?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from dpose.attacks.adversary import Embedder, adaptive_embedder, plain_embedder
from dpose.attacks.context import STRONGER, TOLD_WHERE, AttackConfig, AttackContext, open_context, strongest
from dpose.attacks.drawing import curves, samples
from dpose.attacks.identities import FRAME, PersonPictures
from dpose.attacks.pairs import Pairs
from dpose.attacks.reid import percent, spread
from dpose.attacks.report import AttackReport, write_attack
from dpose.attacks.sweep import attack_each
from dpose.attacks.transforms import Transform, private_grid
from dpose.errors import DposeError
from dpose.files import folder_beside
from dpose.report.results import Drawing, Table
from dpose.stats import Floats, Interval

PLACES = 2
FALSE_POSITIVES = (0.01, 0.001)
LEAST = 1e-4
"""Where the logarithmic axis begins."""


@dataclass(frozen=True)
class Linked:
    """One attacker on one release.

    Attributes:
        shown: How each frame is shown.
        attacker: "plain" or "adaptive".
        auc: Area under the ROC curve.
        found: True positive rate by rate of false positives.
        roc: False and true positive rates.
    """

    shown: Transform
    attacker: str
    auc: Interval
    found: dict[float, Interval]
    roc: tuple[Floats, Floats]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "release": self.shown.title,
            "key": self.shown.key,
            "guarantee": self.shown.guarantee,
            "attacker": self.attacker,
            "auc": self.auc.to_dict(),
            **{f"tpr_at_{rate:g}": value.to_dict() for rate, value in self.found.items()},
        }


def attack_linkage(ask: AttackConfig, frames: int, out: Path, console: Console) -> AttackReport:
    """Link everybody's releases from two places, and write the report.

    Args:
        ask: What is asked.
        frames: Of each person at each place; several are released as a clip.
        out: The folder to make.
        console: For progress.

    Raises:
        DposeError: the data or a setting cannot be used, or `out` exists.
    """
    if not 1 <= frames <= 64:
        raise DposeError(f"cannot link clips of {frames} frames", "--frames", "use 1 to 64")
    shown = ask.shown()
    with folder_beside(out, ask.folder_mode) as folder, open_context(ask, PLACES, console) as bench:
        report = linkage_report(bench, shown, frames)
        write_attack(report, folder)
    return report


def linkage_report(bench: AttackContext, shown: Sequence[Transform], frames: int = 1) -> AttackReport:
    """The attack on an opened bench."""
    ask, crowd = bench.ask, bench.crowd
    if frames > 1 and not crowd.look:
        raise DposeError("has no clips", ask.data, "leave --frames at 1, or use synthetic:LOOK")
    places = [_place(bench, place, frames) for place in range(PLACES)]
    plain = plain_embedder(bench.school)

    def attack(one: Transform) -> tuple[PersonPictures, list[Linked]]:
        seen, rows = [one.album(album, ask.seed, "place") for album in places], []
        for attacker in ask.attackers_of(one):
            embedder = plain if attacker == "plain" else adaptive_embedder(bench.school, one)
            rows.append(_linked(one, attacker, embedder, seen, frames, ask.seed))
        return seen[0], rows

    attacked = attack_each(_clips(ask, shown, frames), attack)
    rows = [row for _, (_, found) in attacked.done for row in found]
    pictures = [(one, seen) for one, (seen, _) in attacked.done]
    count = len(crowd.people)
    clip = f"{frames} frames" if frames > 1 else "one picture"
    return bench.report(
        attacked,
        name="linkage",
        title="Is it the same person? Linkage of released pictures",
        headline=_headline(rows),
        threat=(
            f"The attacker gets a release ({clip}) of each of {count:,} people at each of two places, has no name "
            f"and no raw picture of any of them, and says of pairs whether they show one person: {count:,} pairs do, "
            f"{count * (count - 1):,} do not.",
            "Plain: an embedder learnt from raw pictures. Adaptive: one learnt from pictures that went through the "
            "mechanism. Of a clip the embeddings of its frames are averaged.",
            STRONGER,
            f"Public: {min(ask.effort.people, len(crowd.public)):,} other people.",
            TOLD_WHERE,
            "Guessing has an area of 50 %, and finds as many as it raises false alarms.",
        ),
        facts={"At each place": clip},
        tables=(_table(rows, count),),
        drawings=(_figure(rows), samples(places[0], pictures)),
        settings={"frames": frames},
        values={"rows": [row.to_dict() for row in rows], "chance": {"auc": 0.5}},
    )


def _place(bench: AttackContext, place: int, frames: int) -> PersonPictures:
    crowd = bench.crowd
    note = bench.note(f"place {place + 1}", len(crowd.people) * frames)
    return crowd.load([(who, place + FRAME * f) for who in crowd.people for f in range(frames)], note)


def _clips(ask: AttackConfig, shown: Sequence[Transform], frames: int) -> list[Transform]:
    """The releases; of clips both ways to count the pixels that neighbours differ in."""
    if frames == 1:
        return list(shown)
    found = [
        replace(one, title=f"{one.title}, {frames} frames") for one in shown if not one.key.startswith("dp-")
    ]
    if "dp" not in ask.releases:
        return found
    # m pixels in every frame: the frames' epsilons add up to the clip's
    shares = [str(Fraction(epsilon) / frames) for epsilon in ask.epsilons]
    whole, each = (
        private_grid(epsilons, ask.neighbours, ask.blocks, ask.subdivisions)
        for epsilons in (ask.epsilons, shares)
    )
    for one, other in zip(whole, each, strict=True):
        release, epsilon = one.title.split(", epsilon ")
        title = f"{release}, {frames} frames, epsilon {epsilon} for the clip, {ask.neighbours}"
        found += [replace(one, title=f"{title} in all"), replace(other, title=f"{title} in every frame")]
    return found


def _linked(
    shown: Transform,
    attacker: str,
    embedder: Embedder,
    seen: Sequence[PersonPictures],
    frames: int,
    seed: int,
) -> Linked:
    one, other = (embedder.embed(album).reshape(len(album) // frames, frames, -1).mean(1) for album in seen)
    people = [album.people[::frames] for album in seen]
    lengths = [np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12) for v in (one, other)]
    pairs = Pairs.across((one / lengths[0]) @ (other / lengths[1]).T, people[0], people[1])
    found = {rate: pairs.found_at(rate, seed) for rate in FALSE_POSITIVES}
    return Linked(shown, attacker, pairs.auc(seed), found, pairs.roc())


def _best(rows: Sequence[Linked]) -> list[Linked]:
    return strongest(rows, lambda row: row.shown.title, lambda row: row.auc.value)


def _headline(rows: Sequence[Linked]) -> str:
    said = "Area under the ROC curve: guessing 50 %"
    for row in _best(rows)[:4]:
        said += f"; {row.shown.title} {percent(row.auc.value)}"
    return said + "."


def _table(rows: Sequence[Linked], count: int) -> Table:
    head = (
        "Release",
        "Attacker",
        "AUC",
        *(f"found at {100 * rate:g} % false alarms" for rate in FALSE_POSITIVES),
    )
    lines = [
        (row.shown.title, row.attacker, spread(row.auc), *(spread(value) for value in row.found.values()))
        for row in rows
    ]
    lines.append(("guessing", "", percent(0.5), *(percent(rate) for rate in FALSE_POSITIVES)))
    title = f"{count:,} pairs of one person, {count * (count - 1):,} of two; 95 % intervals by a bootstrap over people"
    return Table(title, head, tuple(lines))


def _figure(rows: Sequence[Linked]) -> Drawing:
    drawn = [
        (row.shown.title, row.attacker, (np.maximum(row.roc[0], LEAST).tolist(), row.roc[1].tolist()))
        for row in rows
    ]
    guess = np.geomspace(LEAST, 1, 50).tolist()
    caption = "True against false positives, on a logarithmic axis: a threat lies where false alarms are rare"
    titles = ("pairs of two people, taken for one", "pairs of one person, found")
    return curves("roc", "Is it the same person?", drawn, (guess, guess), titles, caption, log_x=True)
