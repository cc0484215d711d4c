"""Reconstruction: a small network from released pictures to raw ones, and recognition in its pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpose.errors import DposeError
from dpose.report.results import Figure, Table
from dpose_lab.attacks.attack import SAMPLES, Attacked, AttackRow, ReleaseAttack, option
from dpose_lab.attacks.reid import Chance, Row, searched
from dpose_lab.attacks.report import percent, spread
from dpose_lab.stats import Interval, mean_over_people

if TYPE_CHECKING:
    from dpose_lab.attacks.adversary import Embedder
    from dpose_lab.attacks.context import AttackConfig, AttackContext
    from dpose_lab.attacks.identities import PersonPictures, Picture
    from dpose_lab.attacks.transforms import Transform

GALLERY, QUERIES = 1, 1


@dataclass(frozen=True)
class Restored(AttackRow):
    """Reconstruction from one release.

    Attributes:
        before: PSNR and SSIM of the released pictures themselves.
        after: PSNR and SSIM of the reconstructions.
        reid_before: Re-identification of released pictures by the plain attacker.
        reid_after: Re-identification of the reconstructions by the same attacker.
    """

    before: tuple[Interval, Interval]
    after: tuple[Interval, Interval]
    reid_before: Row
    reid_after: Row

    @property
    def strength(self) -> float:
        """Rank-1 accuracy on the reconstructions."""
        return self.reid_after.strength

    def measures(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "released": {"psnr": self.before[0].to_dict(), "ssim": self.before[1].to_dict()},
            "reconstructed": {"psnr": self.after[0].to_dict(), "ssim": self.after[1].to_dict()},
            "rank1_released": self.reid_before.within[1].to_dict(),
            "rank1_reconstructed": self.reid_after.within[1].to_dict(),
        }


@dataclass(frozen=True)
class Originals:
    """Pictures and models that reconstructions are compared with.

    Attributes:
        gallery: Raw pictures with names.
        queries: The originals of what is released.
        raw: The originals in colour, at one size.
        plain: The attacker who recognises people.
        ceiling: Result of the attacker on raw pictures.
        chance: Result of guessing.
    """

    gallery: PersonPictures
    queries: PersonPictures
    raw: list[Picture]
    plain: Embedder
    ceiling: Row
    chance: Chance


@dataclass(frozen=True)
class Reconstruction(ReleaseAttack[Originals, Restored]):
    """What was the picture? A small network from released to raw, tested on people it never saw."""

    name: ClassVar[str] = "reconstruct"
    title: ClassVar[str] = "What was the picture? Reconstruction of released pictures"
    chooses_attackers: ClassVar[bool] = False

    epochs: int = option(3, "Passes over the attacker's pictures, of what learns to reconstruct.", min=1)

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise DposeError(
                "epochs-too-few", "the attacker needs one pass over its pictures", "--epochs", "use 1 or more"
            )

    @property
    def pictures(self) -> int:
        """Number of pictures of each person."""
        return GALLERY + QUERIES

    def releases(self, config: AttackConfig) -> Sequence[Transform]:
        """Releases to attack: all but raw pictures, which need no reconstruction."""
        from dpose_lab.attacks.transforms import RAW

        return [release for release in config.transforms() if release.key != RAW.key]

    def learn(self, context: AttackContext) -> Originals:
        """Load the originals and measure re-identification in them."""
        from dpose_lab.attacks.adversary import plain_embedder
        from dpose_lab.attacks.learners import resized
        from dpose_lab.attacks.transforms import RAW

        config = context.config
        gallery = context.pictures(0, GALLERY, "the gallery")
        queries = context.pictures(GALLERY, QUERIES, "the queries")
        plain = plain_embedder(context.training)
        return Originals(
            gallery,
            queries,
            resized(queries.pictures, config.size),
            plain,
            searched(RAW, "plain", plain, gallery, queries, config.seed),
            Chance.of(gallery.people, queries.people),
        )

    def attack(self, context: AttackContext, learnt: Originals, release: Transform) -> Attacked[Restored]:
        """Reconstruct one release."""
        from dpose_lab.attacks.learners import each, psnr, resized, restored, ssim

        size, seed = context.config.size, context.config.seed
        seen = release.album(learnt.queries, seed, "query")
        given = resized(seen.pictures, size)
        made = restored(context.training.restorer(release, size, self.epochs), given)
        panels: list[tuple[str, Picture]] = []
        for k in range(min(SAMPLES, len(given))):
            panels += [("raw", learnt.raw[k]), (release.short_title, given[k]), ("reconstructed", made[k])]

        def quality(shown: Sequence[Picture]) -> tuple[Interval, Interval]:
            people = learnt.queries.people
            return (
                mean_over_people(each(psnr, shown, learnt.raw), people, seed),
                mean_over_people(each(ssim, shown, learnt.raw), people, seed),
            )

        def recognised(shown: PersonPictures) -> Row:
            return searched(release, "plain", learnt.plain, learnt.gallery, shown, seed)

        rebuilt = _album(learnt.queries, made, size)
        row = Restored(release, "", quality(given), quality(made), recognised(seen), recognised(rebuilt))
        return Attacked(release, (row,), tuple(panels))

    def headline(self, learnt: Originals, rows: Sequence[Restored]) -> str:
        """Summarise the result for the first release."""
        if not rows:
            return "No release was attacked."
        first = rows[0]
        return (
            f"{first.release.title}: {first.before[0].value:.1f} dB as released, {first.after[0].value:.1f} dB "
            f"reconstructed. Of raw pictures {percent(learnt.ceiling.strength)} are recognised, of reconstructions "
            f"{percent(first.strength)}; guessing finds {percent(learnt.chance.within(1))}."
        )

    def threat(self, context: AttackContext, learnt: Originals) -> tuple[str, ...]:
        """Describe the attacker."""
        return (
            "The attacker knows the mechanism, releases pictures of other people with it, and trains a small U-Net "
            f"from released to raw, {self.epochs} passes. It is tested on people it never saw.",
            f"Public: {context.teachers:,} people, {context.config.effort.pictures} pictures each.",
            "A reconstruction shows what is likely, not what was there: detail beyond the release is made up. Whether "
            "somebody is known again is tested with the plain attacker of dpose attack reid.",
        )

    def tables(self, learnt: Originals, rows: Sequence[Restored]) -> tuple[Table, ...]:
        """Table of fidelity and recognition, before and after reconstruction."""
        head = (
            "Release", "PSNR released", "PSNR rebuilt", "SSIM released", "SSIM rebuilt", "rank-1 released",
            "rank-1 rebuilt",
        )  # fmt: skip
        lines = [
            (
                row.release.title,
                *(f"{each[0].value:.2f} dB" for each in (row.before, row.after)),
                *(f"{each[1].value:.3f}" for each in (row.before, row.after)),
                *(spread(each.within[1]) for each in (row.reid_before, row.reid_after)),
            )
            for row in rows
        ]
        lines.append(("raw pictures", "", "", "1.000", "", spread(learnt.ceiling.within[1]), ""))
        lines.append(("guessing", "", "", "", "", percent(learnt.chance.within(1)), ""))
        title = f"{len(learnt.raw):,} pictures of people not learnt from; rank-1 with 95 % intervals"
        return (Table(title, head, tuple(lines)),)

    def sheet(self, done: Sequence[Attacked[Restored]]) -> Figure | None:
        """Sheet of a few people of each release, before and after."""
        from dpose_lab.plots import pictures

        panels = [panel for one in done for panel in one.pictures]
        caption = "Raw, released, reconstructed, of people not learnt from"
        return Figure("pictures", caption, png=pictures(panels, 6)) if panels else None

    def chance(self, learnt: Originals) -> dict[str, Any]:
        """The result as JSON."""
        return {"rank1_raw": learnt.ceiling.within[1].to_dict(), "chance": learnt.chance.to_dict()}


def _album(queries: PersonPictures, made: Sequence[Picture], size: tuple[int, int]) -> PersonPictures:
    """Reconstructions as an album, with boxes scaled to their size."""
    height, width = size
    scale = np.asarray([(width / p.shape[1], height / p.shape[0]) for p in queries.pictures])
    boxes = np.round(queries.boxes * np.tile(scale, 2)).astype(np.int64)
    boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 1)
    return replace(queries.instead(made), boxes=boxes)
