"""Reconstruction: a small network from released pictures to raw ones, and whether people are known in its pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from dpose.attacks.adversary import plain_embedder
from dpose.attacks.context import AttackConfig, AttackContext, open_context
from dpose.attacks.drawing import SAMPLES, short_title
from dpose.attacks.identities import PersonPictures, Picture
from dpose.attacks.learners import each, psnr, resized, restored, ssim
from dpose.attacks.reid import Chance, Row, percent, searched, spread
from dpose.attacks.report import AttackReport, write_attack
from dpose.attacks.sweep import attack_each
from dpose.attacks.transforms import RAW, Transform
from dpose.files import folder_beside
from dpose.report.plots import pictures
from dpose.report.results import Drawing, Table
from dpose.stats import Interval, mean_over_people

GALLERY, QUERIES = 1, 1


@dataclass(frozen=True)
class Restored:
    """What was made of one release.

    Attributes:
        shown: The release.
        before: PSNR and SSIM of the released pictures themselves.
        after: Of the reconstructions.
        found_before: Re-identification of released pictures by the plain attacker.
        found: Of the reconstructions, by the same.
    """

    shown: Transform
    before: tuple[Interval, Interval]
    after: tuple[Interval, Interval]
    found_before: Row
    found: Row

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "release": self.shown.title,
            "key": self.shown.key,
            "guarantee": self.shown.guarantee,
            "released": {"psnr": self.before[0].to_dict(), "ssim": self.before[1].to_dict()},
            "reconstructed": {"psnr": self.after[0].to_dict(), "ssim": self.after[1].to_dict()},
            "rank1_released": self.found_before.within[1].to_dict(),
            "rank1_reconstructed": self.found.within[1].to_dict(),
        }


def attack_reconstruct(ask: AttackConfig, out: Path, console: Console) -> AttackReport:
    """Reconstruct every release, and write the report.

    Raises:
        DposeError: the data or a setting cannot be used, or `out` exists.
    """
    shown = ask.shown()
    with (
        folder_beside(out, ask.folder_mode) as folder,
        open_context(ask, GALLERY + QUERIES, console) as bench,
    ):
        report = reconstruct_report(bench, shown)
        write_attack(report, folder)
    return report


def reconstruct_report(bench: AttackContext, shown: Sequence[Transform]) -> AttackReport:
    """The attack on an opened bench."""
    ask, crowd = bench.ask, bench.crowd
    gallery = crowd.album(0, GALLERY, bench.note("the gallery", len(crowd.people)))
    queries = crowd.album(GALLERY, QUERIES, bench.note("the queries", len(crowd.people)))
    plain = plain_embedder(bench.school)
    raw = resized(queries.pictures, ask.size)
    ceiling = searched(RAW, "plain", plain, gallery, queries, ask.seed)

    def attack(one: Transform) -> tuple[list[tuple[str, Picture]], Restored]:
        seen = one.album(queries, ask.seed, "query")
        given = resized(seen.pictures, ask.size)
        made = restored(bench.school.restorer(one, ask.size), given)
        as_album = _album(queries, made, ask.size)
        panels = list[tuple[str, Picture]]()
        for k in range(min(SAMPLES, len(raw))):
            panels += [("raw", raw[k]), (short_title(one), given[k]), ("reconstructed", made[k])]
        return panels, Restored(
            one,
            _quality(given, raw, queries, ask.seed),
            _quality(made, raw, queries, ask.seed),
            searched(one, "plain", plain, gallery, seen, ask.seed),
            searched(one, "plain", plain, gallery, as_album, ask.seed),
        )

    attacked = attack_each([one for one in shown if one.key != RAW.key], attack)
    rows = [found for _, (_, found) in attacked.done]
    panels = [panel for _, (own, _) in attacked.done for panel in own]
    chance = Chance.of(gallery.people, queries.people)
    first = rows[0] if rows else None
    headline = "No release was attacked."
    if first:
        headline = (
            f"{first.shown.title}: {first.before[0].value:.1f} dB as released, {first.after[0].value:.1f} dB "
            f"reconstructed. Of raw pictures {percent(ceiling.within[1].value)} are recognised, of reconstructions "
            f"{percent(first.found.within[1].value)}; guessing finds {percent(chance.within(1))}."
        )
    drawn = Drawing(
        "pictures", pictures(panels, 6), "Raw, released, reconstructed, of people nobody learnt from"
    )
    return bench.report(
        attacked,
        name="reconstruct",
        title="What was the picture? Reconstruction of released pictures",
        headline=headline,
        threat=(
            "The attacker knows the mechanism, releases pictures of other people with it, and trains a small U-Net "
            f"from released to raw, {ask.effort.epochs} passes. It is tested on people it never saw.",
            f"Public: {min(ask.effort.people, len(crowd.public)):,} people, {ask.effort.pictures} pictures each.",
            "A reconstruction shows what is likely, not what was there: detail beyond the release is made up. Whether "
            "somebody is known again is tested with the plain attacker of dpose attack reid.",
        ),
        tables=(_table(rows, ceiling, chance, len(raw)),),
        drawings=(drawn,) if panels else (),
        settings={"epochs": ask.effort.epochs},
        values={
            "rows": [row.to_dict() for row in rows],
            "rank1_raw": ceiling.within[1].to_dict(),
            "chance": chance.to_dict(),
        },
    )


def _album(queries: PersonPictures, made: Sequence[Picture], size: tuple[int, int]) -> PersonPictures:
    """Reconstructions with the boxes moved to their size."""
    height, width = size
    scale = np.asarray([(width / p.shape[1], height / p.shape[0]) for p in queries.pictures])
    boxes = np.round(queries.boxes * np.tile(scale, 2)).astype(np.int64)
    boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 1)
    return replace(queries.instead(made), boxes=boxes)


def _quality(
    given: Sequence[Picture], raw: Sequence[Picture], queries: PersonPictures, seed: int
) -> tuple[Interval, Interval]:
    return (
        mean_over_people(each(psnr, given, raw), queries.people, seed),
        mean_over_people(each(ssim, given, raw), queries.people, seed),
    )


def _table(rows: Sequence[Restored], ceiling: Row, chance: Chance, count: int) -> Table:
    head = (
        "Release", "PSNR released", "PSNR rebuilt", "SSIM released", "SSIM rebuilt", "rank-1 released",
        "rank-1 rebuilt",
    )  # fmt: skip
    lines = [
        (
            row.shown.title,
            *(f"{found[0].value:.2f} dB" for found in (row.before, row.after)),
            *(f"{found[1].value:.3f}" for found in (row.before, row.after)),
            *(spread(found.within[1]) for found in (row.found_before, row.found)),
        )
        for row in rows
    ]
    lines.append(("raw pictures", "", "", "1.000", "", spread(ceiling.within[1]), ""))
    lines.append(("guessing", "", "", "", "", percent(chance.within(1)), ""))
    return Table(
        f"{count:,} pictures of people nobody learnt from; rank-1 with 95 % intervals", head, tuple(lines)
    )
