"""Linkage of frames: do two releases from two places show the same person?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
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
from dpose_lab.attacks.report import percent, spread
from dpose_lab.stats import Floats, Interval, Ints, over_people

if TYPE_CHECKING:
    from dpose_lab.attacks.adversary import Embedder
    from dpose_lab.attacks.context import AttackConfig, AttackContext
    from dpose_lab.attacks.identities import Identities, PersonPictures
    from dpose_lab.attacks.transforms import Transform

PLACES = 2
FALSE_POSITIVES = (0.01, 0.001)
LEAST = 1e-4
"""Left end of the logarithmic axis."""
PAIR_RESAMPLES = 200


@dataclass(frozen=True)
class Pairs:
    """Pairs of pictures, from the most to the least similar.

    Attributes:
        score: (P,) similarity, falling.
        same: (P,) True if both show one person.
        one: (P,) person in the first picture, as a number from 0.
        other: (P,) person in the second picture.
        people: Number of people.
    """

    score: Floats
    same: NDArray[np.bool_]
    one: Ints
    other: Ints
    people: int

    @classmethod
    def across(cls, similarity: Floats, first: Ints, second: Ints) -> Pairs:
        """Pair every picture of one place with every picture of another.

        Args:
            similarity: (A, B).
            first: (A,) people shown at the first place.
            second: (B,) people shown at the second place.

        Raises:
            ValueError: all pairs are of one kind.
        """
        _, index = np.unique(np.concatenate([first, second]), return_inverse=True)
        one, other = np.meshgrid(index[: len(first)], index[len(first) :], indexing="ij")
        order = np.argsort(-similarity, axis=None, kind="stable")
        one, other = one.ravel()[order], other.ravel()[order]
        same = one == other
        if same.all() or not same.any():
            raise ValueError("pairs of one person and pairs of two are needed")
        return cls(similarity.ravel()[order], same, one, other, int(index.max()) + 1)

    def roc(self) -> tuple[Floats, Floats]:
        """False and true positive rates at every threshold, rising, from 0 to 1; equal scores share a point."""
        return self._roc(np.ones(self.people))

    def auc(self, seed: int = 0) -> Interval:
        """Area under the ROC curve: the probability that a pair of one person looks more alike than one of two."""
        return over_people(lambda weights: _area(*self._roc(weights)), self.people, seed, PAIR_RESAMPLES)

    def tpr_at(self, false_positives: float, seed: int = 0) -> Interval:
        """True positive rate at the lowest threshold with at most this rate of false positives."""
        return over_people(partial(self._tpr_at, false_positives), self.people, seed, PAIR_RESAMPLES)

    def _tpr_at(self, most: float, weights: Floats) -> float:
        false, true = self._roc(weights)
        return float(true[np.flatnonzero(false <= most)[-1]])

    def _roc(self, weights: Floats) -> tuple[Floats, Floats]:
        """Weights of pairs: a person's own as often as the person was drawn, a pair of two as often as both were."""
        each = np.where(self.same, weights[self.one], weights[self.one] * weights[self.other])
        last = np.append(self.score[1:] != self.score[:-1], True)
        rates = []
        for kind in (~self.same, self.same):
            counted = np.cumsum(each * kind)
            total = counted[-1]
            rates.append(np.append(0.0, counted[last] / total if total else np.full(int(last.sum()), np.nan)))
        return rates[0], rates[1]


def _area(false: Floats, true: Floats) -> float:
    return float((np.diff(false) * (true[1:] + true[:-1]) / 2).sum())


@dataclass(frozen=True)
class Linked(AttackRow):
    """Linkage of people by one attacker on one release.

    Attributes:
        auc: Area under the ROC curve.
        tpr: True positive rate by rate of false positives.
        roc: False and true positive rates.
    """

    auc: Interval
    tpr: dict[float, Interval]
    roc: tuple[Floats, Floats]

    @property
    def strength(self) -> float:
        """Area under the ROC curve."""
        return self.auc.value

    def measures(self) -> dict[str, Any]:
        """The values as JSON."""
        rates = {f"tpr_at_{rate:g}": value.to_dict() for rate, value in self.tpr.items()}
        return {"auc": self.auc.to_dict(), **rates}


@dataclass(frozen=True)
class CameraPlaces:
    """Pictures of all people at each of two places, and the embedder that never saw a release."""

    albums: tuple[PersonPictures, ...]
    people: int
    plain: Embedder


@dataclass(frozen=True)
class Linkage(ReleaseAttack[CameraPlaces, Linked]):
    """Is it the same person? Pairs of releases from two places: ROC, and true positives at few false alarms."""

    name: ClassVar[str] = "linkage"
    title: ClassVar[str] = "Is it the same person? Linkage of released pictures"

    frames: int = option(1, "Of each person at each place; several are released as a clip.", min=1)

    def __post_init__(self) -> None:
        if not 1 <= self.frames <= 64:
            raise DposeError(
                "frames-out-of-range", f"cannot link clips of {self.frames} frames", "--frames", "use 1 to 64"
            )

    @property
    def pictures(self) -> int:
        """Number of pictures of each person."""
        return PLACES

    def releases(self, config: AttackConfig) -> Sequence[Transform]:
        """Releases to attack; clips are released with both counts of the pixels in which neighbours differ."""
        from dpose_lab.attacks.transforms import private_grid

        shown, frames = config.transforms(), self.frames
        if frames == 1:
            return shown
        releases = [
            replace(one, title=f"{one.title}, {frames} frames") for one in shown if not one.key.startswith("dp-")
        ]
        if "dp" not in config.releases:
            return releases
        # m pixels in every frame: the frames' epsilons add up to the clip's
        shares = [str(Fraction(epsilon) / frames) for epsilon in config.epsilons]
        whole, each = (
            private_grid(epsilons, config.neighbours, config.blocks, config.subdivisions, config.restorations)
            for epsilons in (config.epsilons, shares)
        )
        for one, other in zip(whole, each, strict=True):
            release, epsilon = one.title.split(", epsilon ")
            title = f"{release}, {frames} frames, epsilon {epsilon} for the clip, {config.neighbours}"
            releases += [replace(one, title=f"{title} in all"), replace(other, title=f"{title} in every frame")]
        return releases

    def reads(self, config: AttackConfig, people: Identities) -> list[tuple[int, int]]:
        """(person, number) of all frames at all places."""
        from dpose_lab.attacks.identities import FRAME

        if self.frames > 1 and not people.look:
            raise DposeError("clips-missing", "has no clips", config.data, "leave --frames at 1, or use synthetic:LOOK")
        places = super().reads(config, people)
        return [(who, place + FRAME * f) for who, place in places for f in range(self.frames)]

    def learn(self, context: AttackContext) -> CameraPlaces:
        """Load both places and the plain attacker."""
        from dpose_lab.attacks.adversary import plain_embedder
        from dpose_lab.attacks.identities import FRAME

        people = context.identities
        albums = []
        for place in range(PLACES):
            wanted = [(who, place + FRAME * f) for who in people.people for f in range(self.frames)]
            albums.append(people.load(wanted, context.note(f"place {place + 1}", len(wanted))))
        return CameraPlaces(tuple(albums), len(people.people), plain_embedder(context.training))

    def attack(self, context: AttackContext, learnt: CameraPlaces, release: Transform) -> Attacked[Linked]:
        """Link all people's releases from two places."""
        from dpose_lab.attacks.adversary import adaptive_embedder

        seed = context.config.seed
        seen, rows = [release.album(album, seed, "place") for album in learnt.albums], []
        for attacker in context.config.attackers_of(release):
            adaptive = attacker == "adaptive"
            embedder = adaptive_embedder(context.training, release) if adaptive else learnt.plain
            rows.append(self._linked(release, attacker, embedder, seen, seed))
        return Attacked(release, tuple(rows), samples(release, learnt.albums[0], seen[0]))

    def _linked(
        self, release: Transform, attacker: str, embedder: Embedder, seen: Sequence[PersonPictures], seed: int
    ) -> Linked:
        frames = self.frames
        one, other = (embedder.embed(album).reshape(len(album) // frames, frames, -1).mean(1) for album in seen)
        people = [album.people[::frames] for album in seen]
        lengths = [np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12) for v in (one, other)]
        pairs = Pairs.across((one / lengths[0]) @ (other / lengths[1]).T, people[0], people[1])
        tpr = {rate: pairs.tpr_at(rate, seed) for rate in FALSE_POSITIVES}
        return Linked(release, attacker, pairs.auc(seed), tpr, pairs.roc())

    def headline(self, learnt: CameraPlaces, rows: Sequence[Linked]) -> str:
        """Report the area under the curve of guessing and of the first releases."""
        parts = (f"; {row.release.title} {percent(row.strength)}" for row in strongest(rows)[:4])
        return "Area under the ROC curve: guessing 50 %" + "".join(parts) + "."

    @property
    def _clip(self) -> str:
        return f"{self.frames} frames" if self.frames > 1 else "one picture"

    def threat(self, context: AttackContext, learnt: CameraPlaces) -> tuple[str, ...]:
        """Describe the attacker."""
        count = learnt.people
        return (
            f"The attacker gets a release ({self._clip}) of each of {count:,} people at each of two places, has no "
            f"name and no raw picture of any of them, and says of pairs whether they show one person: {count:,} pairs "
            f"do, {count * (count - 1):,} do not.",
            "Plain: an embedder learnt from raw pictures. Adaptive: one learnt from pictures that went through the "
            "mechanism. Of a clip the embeddings of its frames are averaged.",
            STRONGER,
            f"Public: {context.teachers:,} other people.",
            TOLD_WHERE,
            "Guessing has an area of 50 %, and finds as many as it raises false alarms.",
        )

    def facts(self) -> dict[str, str]:
        """Number of frames of each person."""
        return {"At each place": self._clip}

    def tables(self, learnt: CameraPlaces, rows: Sequence[Linked]) -> tuple[Table, ...]:
        """Table of areas, and of true positives at few false alarms."""
        rates = (f"found at {100 * rate:g} % false alarms" for rate in FALSE_POSITIVES)
        lines = [
            (row.release.title, row.attacker, spread(row.auc), *(spread(value) for value in row.tpr.values()))
            for row in rows
        ]
        lines.append(("guessing", "", percent(0.5), *(percent(rate) for rate in FALSE_POSITIVES)))
        count = learnt.people
        others = count * (count - 1)
        title = f"{count:,} pairs of one person, {others:,} of two; 95 % intervals by a bootstrap over people"
        return (Table(title, ("Release", "Attacker", "AUC", *rates), tuple(lines)),)

    def figures(self, learnt: CameraPlaces, rows: Sequence[Linked]) -> tuple[Figure, ...]:
        """Chart of the ROC curves."""
        from dpose_lab.plots import curves

        drawn = [
            (
                row.release.title,
                row.attacker,
                list(zip(np.maximum(row.roc[0], LEAST).tolist(), row.roc[1].tolist(), strict=True)),
            )
            for row in rows
        ]
        guess = [(rate, rate) for rate in np.geomspace(LEAST, 1, 50).tolist()]
        caption = "True against false positives, on a logarithmic axis: a threat lies where false alarms are rare"
        titles = ("pairs of two people, taken for one", "pairs of one person, found")
        return (curves("roc", "Is it the same person?", drawn, guess, titles, caption, log_x=True),)

    def chance(self, learnt: CameraPlaces) -> dict[str, Any]:
        """The values as JSON."""
        return {"chance": {"auc": 0.5}}
