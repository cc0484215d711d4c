"""Attribute inference: what a released picture tells of somebody besides who it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.report.results import Figure, Table
from dpose_lab.attacks.attack import STRONGER, TOLD_WHERE, Attacked, AttackRow, ReleaseAttack, samples, strongest
from dpose_lab.attacks.report import percent, spread
from dpose_lab.stats import Floats, Interval, Ints, over_people

if TYPE_CHECKING:
    from dpose_lab.attacks.context import AttackConfig, AttackContext
    from dpose_lab.attacks.identities import Identities, PersonPictures
    from dpose_lab.attacks.transforms import Transform

PICTURES = 2
"""Number of pictures of each attacked person."""
RESAMPLES = 100

ATTRIBUTES: Mapping[str, Callable[[Mapping[str, str]], bool]] = {
    "hospital gown": lambda a: a["bottom"] == "gown",
    "skirt or dress": lambda a: a["bottom"].endswith(("skirt", "dress")),
    "barefoot": lambda a: a["shoes"] == "barefoot",
    "child": lambda a: a["age"] == "child",
    "elderly": lambda a: a["age"] == "elderly",
    "stout": lambda a: a["build"] == "stout",
    "slim": lambda a: a["build"] == "slim",
    "dark skin": lambda a: a["skin"] in ("brown", "deep", "ebony"),
    "fair skin": lambda a: a["skin"] in ("porcelain", "fair", "beige"),
    "dark hair": lambda a: a["hair"].startswith(("black", "dark brown")),
    "bald": lambda a: a["hair"] == "bald",
    "beard": lambda a: a["beard"] == "yes",
    "glasses": lambda a: a["glasses"] == "yes",
}
"""Attributes that a witness might report, by name: functions of a rendered person's description."""


def labels_of(album: PersonPictures) -> NDArray[np.bool_]:
    """Attributes of the people in an album, (N, A), in the order of `ATTRIBUTES`."""
    if not album.attributes:
        raise _unlabelled()
    return np.asarray([[true_of(words) for true_of in ATTRIBUTES.values()] for words in album.attributes], np.bool_)


def _unlabelled() -> DposeError:
    return DposeError(
        "attributes-missing",
        "nothing says what its people look like",
        "--data",
        "only rendered people carry attributes: synthetic:ward",
    )


@dataclass(frozen=True)
class InferredAttributes(AttackRow):
    """Attributes inferred by one attacker from one release.

    Attributes:
        precision: Mean over the attributes of the average precision.
        f1: Mean over the attributes of F1.
        each: Average precision by attribute.
        each_f1: F1 by attribute.
    """

    precision: Interval
    f1: float
    each: dict[str, float]
    each_f1: dict[str, float]

    @property
    def strength(self) -> float:
        """Mean average precision."""
        return self.precision.value

    def measures(self) -> dict[str, Any]:
        """The values as JSON."""
        return {"map": self.precision.to_dict(), "f1": self.f1, "ap": self.each, "f1_each": self.each_f1}


@dataclass(frozen=True)
class Looks:
    """The attacked people and their attributes.

    Attributes:
        album: The originals.
        truth: (N, A), in the order of `ATTRIBUTES`.
        known: Columns of the attributes that some people have and others not, by name.
        share: Share of the pictures that show each of those.
    """

    album: PersonPictures
    truth: NDArray[np.bool_]
    known: dict[str, int]
    share: dict[str, float]

    @property
    def guessed(self) -> dict[str, float]:
        """Success of guessing: a random order, and always answering yes."""
        shares = list(self.share.values())
        return {"map": float(np.mean(shares)), "f1": float(np.mean([2 * p / (1 + p) for p in shares]))}


@dataclass(frozen=True)
class AttributeInference(ReleaseAttack[Looks, InferredAttributes]):
    """What do they look like? Age, build, clothes, hair and glasses, inferred from released pictures."""

    name: ClassVar[str] = "attributes"
    title: ClassVar[str] = "What do they look like? Attributes told from released pictures"

    @property
    def pictures(self) -> int:
        """Number of pictures of each person."""
        return PICTURES

    def reads(self, config: AttackConfig, people: Identities) -> list[tuple[int, int]]:
        """Pictures of people whose attributes are known."""
        if not people.look:
            raise _unlabelled()
        return super().reads(config, people)

    def learn(self, context: AttackContext) -> Looks:
        """Load the pictures and their true attributes."""
        album = context.pictures(0, PICTURES, "the pictures")
        truth = labels_of(album)
        known = {n: k for k, n in enumerate(ATTRIBUTES) if truth[:, k].any() and not truth[:, k].all()}
        return Looks(album, truth, known, {n: float(truth[:, k].mean()) for n, k in known.items()})

    def attack(self, context: AttackContext, learnt: Looks, release: Transform) -> Attacked[InferredAttributes]:
        """Infer everybody's attributes from one release."""
        from dpose_lab.attacks.transforms import RAW

        seed = context.config.seed
        seen, rows = release.album(learnt.album, seed, "query"), []
        descriptors = seen.described()
        for attacker in context.config.attackers_of(release):
            taught = RAW if attacker == "plain" else release
            scorer = context.training.scorer(taught, labels_of, tuple(ATTRIBUTES))
            rows.append(_inferred(release, attacker, scorer(descriptors), learnt, seed))
        return Attacked(release, tuple(rows), samples(release, learnt.album, seen))

    def headline(self, learnt: Looks, rows: Sequence[InferredAttributes]) -> str:
        """Report the mean average precision of guessing and of the first releases."""
        start = f"Mean average precision over the attributes: guessing {percent(learnt.guessed['map'])}"
        parts = (f"; {row.release.title} {percent(row.strength)}" for row in strongest(rows)[:4])
        return start + "".join(parts) + "."

    def threat(self, context: AttackContext, learnt: Looks) -> tuple[str, ...]:
        """Describe the attacker."""
        return (
            f"The attacker gets {len(learnt.album):,} released pictures of {len(context.identities.people):,} people "
            f"and says of each which of {len(learnt.known)} attributes it has.",
            "Plain: learnt from raw pictures. Adaptive: learnt from pictures that went through the mechanism.",
            STRONGER,
            f"Public: {context.teachers:,} other people, whose attributes the attacker knows. Descriptors are colours "
            "by place, weighed by ridge regression; thresholds are chosen on a quarter of the public people who were "
            "not learnt from.",
            TOLD_WHERE,
            "Guessing: the share of pictures with the attribute is the average precision of a random order; always "
            "saying yes has the F1 shown.",
        )

    def tables(self, learnt: Looks, rows: Sequence[InferredAttributes]) -> tuple[Table, ...]:
        """Tables of means over the attributes, and of each attribute."""
        guessed, best = learnt.guessed, strongest(rows)
        means = [(row.release.title, row.attacker, spread(row.precision), percent(row.f1)) for row in rows]
        means.append(("guessing", "", percent(guessed["map"]), percent(guessed["f1"])))
        title = f"Means over the attributes, {len(learnt.album):,} pictures; 95 % intervals by a bootstrap over people"
        each = [
            (
                name,
                percent(chance),
                percent(2 * chance / (1 + chance)),
                *(f"{percent(row.each[name])} / {percent(row.each_f1[name])}" for row in best),
            )
            for name, chance in learnt.share.items()
        ]
        head = ("Attribute", "AP of guessing", "F1 of always yes", *(row.release.title for row in best))
        return (
            Table(title, ("Release", "Attacker", "mAP", "F1"), tuple(means)),
            Table("Average precision / F1 of the stronger attacker, by attribute", head, tuple(each)),
        )

    def figures(self, learnt: Looks, rows: Sequence[InferredAttributes]) -> tuple[Figure, ...]:
        """Chart of average precision by attribute."""
        from dpose_lab.plots import bars

        drawn = [(row.release.title, list(row.each.values())) for row in strongest(rows)]
        drawn.append(("guessing", list(learnt.share.values())))
        caption = "Average precision of the stronger attacker on each attribute"
        title = "What do they look like?"
        return (bars("attributes", title, list(learnt.share), drawn, "average precision", caption),)

    def chance(self, learnt: Looks) -> dict[str, Any]:
        """The values as JSON."""
        return {"chance": {**learnt.guessed, "share": learnt.share}}


def _inferred(release: Transform, attacker: str, scores: Floats, learnt: Looks, seed: int) -> InferredAttributes:
    from dpose_lab.attribute_task import average_precision, f1_score

    truth, known = learnt.truth, learnt.known
    each = {n: average_precision(scores[:, k], truth[:, k]) for n, k in known.items()}
    f1 = {n: f1_score(scores[:, k] > 0, truth[:, k]) for n, k in known.items()}
    index: Ints = np.unique(learnt.album.people, return_inverse=True)[1]

    def mean(weights: Floats) -> float:
        drawn = np.repeat(np.arange(len(index)), weights[index].astype(int))
        precisions = [
            average_precision(scores[drawn, k], truth[drawn, k]) for k in known.values() if truth[drawn, k].any()
        ]
        return float(np.mean(precisions))

    interval = over_people(mean, int(index.max()) + 1, seed, RESAMPLES)
    return InferredAttributes(release, attacker, interval, float(np.mean(list(f1.values()))), each, f1)
