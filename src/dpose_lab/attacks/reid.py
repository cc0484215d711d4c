"""Re-identification in seed 002's protocol: the gallery raw, the queries released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpose.errors import DposeError
from dpose.privacy.ranges import lower
from dpose.report.results import Figure, Table
from dpose_lab.attacks.attack import (
    STRONGER,
    TOLD_WHERE,
    Attacked,
    AttackRow,
    ReleaseAttack,
    option,
    samples,
    strongest,
)
from dpose_lab.attacks.ranking import SearchResult, chance_precision, chance_within, epsilon_named, search
from dpose_lab.attacks.report import percent, spread
from dpose_lab.stats import Interval, Ints, mean_over_people

if TYPE_CHECKING:
    from dpose_lab.attacks.adversary import Embedder
    from dpose_lab.attacks.context import AttackConfig, AttackContext
    from dpose_lab.attacks.identities import PersonPictures
    from dpose_lab.attacks.transforms import Transform

RANKS = (1, 5, 10)
DRAWN = 20
"""Number of places in the CMC figure."""
ORIGINALS = "originals"
"""The attacker whom epsilon bounds: the pictures are known, and which of them was released is not."""
EPSILON = (
    "Epsilon of a person, for pictures that differ everywhere, is at least what rank-1 shows (confidence 95 %, by "
    "Clopper and Pearson's bound). It may be far more."
)
LEVEL = 0.05 / 3
"""At which a lower bound on epsilon is wrong; three attackers of one release together at 0.05."""


@dataclass(frozen=True)
class Row(AttackRow):
    """Re-identification by one attacker on one release.

    Attributes:
        title: The attacker's training data, in words.
        within: Rank-k accuracy, by k.
        precision: Mean average precision.
        cmc: Share of queries answered within 1, 2, ... places.
        epsilon: Lower bound on that between some two people's pictures.
    """

    title: str
    within: dict[int, Interval]
    precision: Interval
    cmc: tuple[float, ...]
    epsilon: float

    @property
    def strength(self) -> float:
        """Rank-1 accuracy."""
        return self.within[1].value

    def measures(self) -> dict[str, Any]:
        """The values as JSON."""
        return {
            "embedder": self.title,
            **{f"rank{k}": value.to_dict() for k, value in self.within.items()},
            "map": self.precision.to_dict(),
            "cmc": list(self.cmc),
            "epsilon_at_least": self.epsilon,
        }


@dataclass(frozen=True)
class Chance:
    """Success of guessing, averaged over the queries.

    Attributes:
        cmc: Share of queries answered within 1, 2, ... places.
        precision: Mean average precision.
    """

    cmc: tuple[float, ...]
    precision: float

    @classmethod
    def of(cls, gallery: Ints, queries: Ints) -> Chance:
        """Compute the success of guessing for these people."""
        right = [(gallery == who).sum() for who in queries]
        size = len(gallery)
        cmc = [float(np.mean([chance_within(k, size, n) for n in right])) for k in range(1, min(DRAWN, size) + 1)]
        return cls(tuple(cmc), float(np.mean([chance_precision(size, n) for n in right])))

    def within(self, k: int) -> float:
        """Rank-k accuracy; 1 if the gallery has at most k pictures."""
        return self.cmc[k - 1] if k <= len(self.cmc) else 1.0

    def to_dict(self) -> dict[str, Any]:
        """The values as JSON."""
        return {**{f"rank{k}": self.within(k) for k in RANKS}, "map": self.precision, "cmc": list(self.cmc)}


@dataclass(frozen=True)
class GalleryAndQueries:
    """The gallery that the attacker has, and the queries.

    Attributes:
        gallery: Raw pictures with names.
        queries: The originals of what is released.
        plain: The embedder that never saw a release.
        chance: Success of guessing.
    """

    gallery: PersonPictures
    queries: PersonPictures
    plain: Embedder
    chance: Chance


@dataclass(frozen=True)
class Reidentification(ReleaseAttack[GalleryAndQueries, Row]):
    """Who is it? Released pictures are matched with raw ones: CMC and mAP, beside raw pictures and guessing."""

    name: ClassVar[str] = "reid"
    title: ClassVar[str] = "Who is it? Re-identification of released pictures"

    gallery: int = option(1, "Raw pictures of each person.", min=1)
    queries: int = option(2, "Released pictures of each person.", min=1)
    embedder: str = option(
        "", 'The plain attacker\'s: an ONNX file, ",imagenet" behind it if normalised so; default: learnt from people.'
    )
    originals: bool = option(False, "One more attacker, who has the originals.")

    def __post_init__(self) -> None:
        if self.gallery < 1 or self.queries < 1:
            raise DposeError(
                "pictures-of-people-too-few",
                "one picture of each person is needed",
                "--gallery, --queries",
                "use 1 or more",
            )

    @property
    def pictures(self) -> int:
        """Number of pictures of each person."""
        return self.gallery + self.queries

    def learns(self, config: AttackConfig) -> bool:
        """True unless the only attacker is an embedder given by the user."""
        return not self.embedder or "adaptive" in config.attackers

    def learn(self, context: AttackContext) -> GalleryAndQueries:
        """Load the gallery, the queries and the plain attacker."""
        from dpose_lab.attacks.adversary import plain_embedder

        gallery = context.pictures(0, self.gallery, "the gallery")
        queries = context.pictures(self.gallery, self.queries, "the queries")
        plain = plain_embedder(context.training, self.embedder)
        return GalleryAndQueries(gallery, queries, plain, Chance.of(gallery.people, queries.people))

    def attack(self, context: AttackContext, learnt: GalleryAndQueries, release: Transform) -> Attacked[Row]:
        """Search for all people in one release."""
        from dpose_lab.attacks.adversary import adaptive_embedder, with_originals
        from dpose_lab.attacks.transforms import RAW

        seed = context.config.seed
        seen, rows = release.album(learnt.queries, seed, "query"), []
        for attacker in context.config.attackers_of(release):
            embedder, known = learnt.plain, learnt.gallery
            if attacker == "adaptive":
                # an attacker who knows the mechanism applies it to the gallery too
                known = release.album(known, seed, "gallery")
                embedder = adaptive_embedder(context.training, release)
            rows.append(searched(release, attacker, embedder, known, seen, seed))
        if self.originals and release.key != RAW.key:
            rows.append(searched(release, ORIGINALS, *with_originals(release, learnt.queries, seen, seed), seed))
        return Attacked(release, tuple(rows), samples(release, learnt.queries, seen))

    def headline(self, learnt: GalleryAndQueries, rows: Sequence[Row]) -> str:
        """Report rank-1 of raw pictures, of guessing and of the first releases."""
        raw, *rest = strongest([row for row in rows if row.attacker != ORIGINALS])
        start = (
            f"Of raw pictures {percent(raw.strength)} are recognised at the first guess; guessing finds "
            f"{percent(learnt.chance.cmc[0])}."
        )
        return start + "".join(f" {row.release.title}: {percent(row.strength)}." for row in rest[:3])

    def threat(self, context: AttackContext, learnt: GalleryAndQueries) -> tuple[str, ...]:
        """Describe the attacker of seed 002 and the adaptive one."""
        return (
            f"The attacker has {self.gallery} raw picture{'s' * (self.gallery > 1)} with a name of each of "
            f"{len(context.identities.people):,} people, gets {len(learnt.queries):,} released pictures of them in "
            "other places, and ranks the names for each (seed 002, section VII-C; there with one query a person, in "
            "grey, parts of a block chosen by a mask of the face, and ArcFace).",
            f"Plain: knows nothing of the mechanism. Its embedder: {learnt.plain.title}.",
            "Adaptive: knows the mechanism and its settings, learnt from releases of other people's pictures, and "
            "passes the gallery through the mechanism as well.",
            *(
                ["Originals: has the originals of all queries, and says which was released; not compared."]
                * self.originals
            ),
            STRONGER,
            EPSILON,
            f"Public: {context.teachers:,} people of whom the attacker has pictures; none of them is in the gallery. "
            "Descriptors are colours by place, compared by Fisher's discriminant; a larger network, better data or "
            "patience would find more.",
            TOLD_WHERE,
        )

    def tables(self, learnt: GalleryAndQueries, rows: Sequence[Row]) -> tuple[Table, ...]:
        """Table of rank-k accuracy and mAP."""
        compared = [row for row in rows if row.attacker != ORIGINALS]
        counted = {id(row) for row in strongest(compared)}
        lines = [
            (
                row.release.title,
                row.attacker + (" *" if id(row) in counted and len(compared) > len(counted) else ""),
                *(spread(row.within[k]) for k in RANKS),
                spread(row.precision),
                lower(row.epsilon, places=1),
            )
            for row in rows
        ]
        chance = learnt.chance
        guess = (percent(chance.within(k)) for k in RANKS)
        lines.append(("guessing", "", *guess, percent(chance.precision), "0"))
        title = (
            f"{len(learnt.queries):,} queries against {len(learnt.gallery):,} raw pictures; 95 % intervals by a "
            "bootstrap over people. * counts: the stronger attacker"
        )
        columns = ("Release", "Attacker", *(f"rank-{k}" for k in RANKS), "mAP", "a person's epsilon, at least")
        return (Table(title, columns, tuple(lines)),)

    def figures(self, learnt: GalleryAndQueries, rows: Sequence[Row]) -> tuple[Figure, ...]:
        """Chart of the cumulative match characteristic."""
        from dpose_lab.plots import curves

        def curve(shares: Sequence[float]) -> list[tuple[float, float]]:
            return list(enumerate(shares, start=1))

        drawn = [(row.release.title, row.attacker, curve(row.cmc)) for row in rows]
        caption = "Cumulative match characteristic: the share of queries whose person is among the first k names"
        titles = ("first k names", "share found")
        return (curves("cmc", "Who is it?", drawn, curve(learnt.chance.cmc), titles, caption),)

    def chance(self, learnt: GalleryAndQueries) -> dict[str, Any]:
        """The values as JSON."""
        return {"chance": learnt.chance.to_dict(), "queries": len(learnt.queries)}

    def settings(self, learnt: GalleryAndQueries) -> dict[str, Any]:
        """Settings as JSON: the embedder's name, not its path."""
        return {**asdict(self), "embedder": learnt.plain.title}


def searched(
    release: Transform, attacker: str, embedder: Embedder, gallery: PersonPictures, queries: PersonPictures, seed: int
) -> Row:
    """Measure one attacker on one release."""
    likeness = embedder.embed(queries) @ embedder.embed(gallery).T
    result: SearchResult = search(likeness, gallery.people, queries.people, seed)
    within = {k: mean_over_people((result.rank <= k).astype(np.float64), queries.people, seed) for k in RANKS}
    precision = mean_over_people(result.precision, queries.people, seed)
    cmc = tuple(result.cmc(min(DRAWN, len(gallery))).tolist())
    right, among = int((result.rank == 1).sum()), len(np.unique(gallery.people))
    epsilon = epsilon_named(right, len(queries), among, LEVEL)
    return Row(release, attacker, embedder.title, within, precision, cmc, epsilon)
