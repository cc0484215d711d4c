"""The methods: which parts a training step is made of, and what that protects.

A method is data. The trainer composes the same few parts from its fields: a clipped and noised sum, a projection of
it, a gradient of public views beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpose.errors import DposeError
from dpose.privacy.accounting import Relation


@dataclass(frozen=True)
class Method:
    """One way to train.

    Attributes:
        name: As on the command line.
        private: Whether gradients of the data are clipped, summed over a Poisson sample and noised.
        projects: Whether the noised sum is projected onto a public subspace.
        public_views: Whether gradients of the units' public views are used as they are.
        summary: One sentence: what it does.
        protects: What the guarantee covers; for people who are not privacy experts.
        leaves_open: What it does not cover.
        costs: What it needs beyond plain training.
        relations: The neighbouring relations it can be stated for.
    """

    name: str
    summary: str
    private: bool = False
    projects: bool = False
    public_views: bool = False
    protects: tuple[str, ...] = ()
    leaves_open: tuple[str, ...] = ()
    costs: tuple[str, ...] = ()
    relations: tuple[Relation, ...] = ()

    @property
    def reads_private_data(self) -> bool:
        """Whether its data are taken to need protection, wholly or beyond their public views."""
        return self.private or self.public_views


_ANYONE = (
    "against anyone who sees the weights, every checkpoint and every noisy update, whatever else they know, as long "
    "as they cannot break AES-256, which the noise is drawn from"
)
_POPULATION = (
    "facts about the population that would be learnt without any one unit",
    "a person who appears in several units (their epsilons add up, roughly)",
    "the number of units, which is public, and the settings of the run",
    "scores measured on other private data afterwards, each listed in the statement",
)
_VIEWS = (
    "what the public view shows: coarse shapes, colours, where people are and often what they do",
    "all labels, which are used without noise",
    "whether a unit was in the data: its public view tells",
)
_BEYOND = "of each unit, what its picture holds beyond its public view: faces, text, fine detail"
_CLIPS = "per-unit gradients: about 1.1 to 1.6 times a plain step"
_PROJECTS = (
    "public units for the subspace, which get no protection and may be in no private unit",
    "a refit of the subspace every few steps, and memory for its directions",
)
_DOUBLES = "a second batch a step, of public views"
_EVERY = (Relation.ZERO_OUT, Relation.ADD_REMOVE, Relation.REPLACE)
_FIXED_VIEW = (Relation.ZERO_OUT, Relation.REPLACE)

METHODS = {
    m.name: m
    for m in (
        Method(
            name="non-private",
            summary="ordinary training on shuffled batches; for public data and as the upper reference",
            leaves_open=("everything: the weights may hold the training pictures",),
        ),
        Method(
            name="public-only",
            summary="ordinary training on the public views of the data and their labels, and on nothing else of them; "
            "what any feature-private method must beat",
            public_views=True,
            protects=(_BEYOND + "; none of it is read", "without noise, and so without an epsilon"),
            leaves_open=_VIEWS,
        ),
        Method(
            name="dp-sgd",
            summary="every unit's gradient is clipped, a Poisson sample of them is summed, Gaussian noise is added",
            private=True,
            protects=("each unit as a whole: its pixels, its labels and whether it was used", _ANYONE),
            leaves_open=_POPULATION,
            costs=(_CLIPS,),
            relations=_EVERY,
        ),
        Method(
            name="pdp-sgd",
            summary="dp-sgd, whose noised sum is projected onto the directions in which gradients of public units are "
            "largest: most of the noise lies elsewhere and is dropped",
            private=True,
            projects=True,
            protects=("each unit as a whole: its pixels, its labels and whether it was used", _ANYONE),
            leaves_open=(*_POPULATION, "the public units"),
            costs=(_CLIPS, *_PROJECTS),
            relations=_EVERY,
        ),
        Method(
            name="fdp-sgd",
            summary="dp-sgd for what a public view leaves out, beside ordinary gradients of the public views; the two "
            "batches are drawn independently",
            private=True,
            public_views=True,
            protects=(_BEYOND, _ANYONE),
            leaves_open=(*_VIEWS, *_POPULATION),
            costs=(_CLIPS, _DOUBLES),
            relations=_FIXED_VIEW,
        ),
        Method(
            name="fpdp-sgd",
            summary="fdp-sgd, whose noised sum is projected as in pdp-sgd",
            private=True,
            projects=True,
            public_views=True,
            protects=(_BEYOND, _ANYONE),
            leaves_open=(*_VIEWS, *_POPULATION, "the public units"),
            costs=(_CLIPS, _DOUBLES, *_PROJECTS),
            relations=_FIXED_VIEW,
        ),
    )
}
"""Every method by name."""

SUBSPACES = ("public", "random", "identity")


@dataclass(frozen=True)
class SubspaceConfig:
    """What noised sums are projected onto, for the methods that project.

    Attributes:
        kind: "public": where gradients of public units are largest. Controls: "random" directions; "identity", none, so
            that nothing is projected.
        rank: Directions, k.
        units: Public units that it is fitted on, m; at least `rank`.
        refresh: Steps after which it is fitted again, on other units.

    Raises:
        DposeError: a value is out of range.
    """

    kind: str = "public"
    rank: int = 50
    units: int = 100
    refresh: int = 20

    def __post_init__(self) -> None:
        if self.kind not in SUBSPACES:
            raise DposeError(f"unknown subspace {self.kind!r}", fix=f"choose one of {', '.join(SUBSPACES)}")
        for name in ("rank", "units", "refresh"):
            if getattr(self, name) < 1:
                raise DposeError(f"subspace.{name} must be at least 1, not {getattr(self, name)}")
        if self.kind == "public" and self.units < self.rank:
            raise DposeError(
                f"a subspace of {self.rank} directions needs at least {self.rank} public units, not {self.units}",
                fix="raise subspace.units or lower subspace.rank",
            )


def sensitivity(clip_norm: float, normalise: bool) -> float:
    """The L2 bound on one unit's contribution to a sum of gradients that are clipped to C."""
    return 1.0 if normalise else clip_norm
