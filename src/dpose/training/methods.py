"""The methods: what each reads, how it makes a step's gradient, and what that protects.

    gradient = noised(coefficients or scales, where the method has some)     # `private`, `pre_clipping`
    gradient = projected(gradient)                                          # `projects`
    gradient = gradient + weight * plain()                                  # `public_views`

A method is one value in `METHODS`, and nothing else knows it by name; `register_method` enters one from elsewhere. Its
fields say what is put together (`dpose.training.step.GradientSources`); one with mechanics of its own brings a function
of the same sources, which hand out nothing private: a clipped and noised sum, a projection of it, a gradient of public
data. dp-sgd: Abadi et al. 2016. pdp-sgd, fdp-sgd and fpdp-sgd: seeds 000 and 003, equations 8 to 11; the two parts draw
their batches independently and meet after the noise and the projection. subspace-sgd: Yu et al. 2021, without the
residual. scaled-sgd: after Li et al. 2022, "AdaDPS".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dpose.errors import DposeError
from dpose.privacy.neighbours import Relation
from dpose.training.closed_form import solved

if TYPE_CHECKING:
    from dpose.training.clip import Params

Update: TypeAlias = "Callable[[Any], Params]"
"""How a method makes a step's gradient of its sources (`dpose.training.step.GradientSources`)."""


@dataclass(frozen=True)
class Method:
    """One way to train.

    Attributes:
        name: As on the command line.
        summary: One sentence: what it does.
        update: Makes a step's gradient of `GradientSources`; None for what the fields below say, put together. The
            digest of the file that it stands in is part of what a step depends on.
        private: Whether gradients of the data are clipped, summed over a Poisson sample and noised.
        projects: Whether the noised sum is projected onto a subspace that public units span.
        pre_clipping: What per-unit gradients are transformed with before they are clipped: coefficients in a "subspace"
            that public units span, or multiplication by "scales" that they give; "" for nothing.
        public_views: Whether gradients of the units' public views are used as they are.
        solves: Number of noised sums over all units that a linear layer is solved from, a step each
            (`dpose.training.closed_form`), in directions that are fitted on public units; 0 for training.
        protects: What the guarantee covers; for people who are not privacy experts.
        leaves_open: What it does not cover.
        costs: What it needs beyond plain training.
        relations: The neighbouring relations it can be stated for; none for a method without a guarantee.
        auditable: Whether the update carries the noised sum as it is, which audits' canaries push: in others a canary
            would have to know the method.

    Raises:
        DposeError: it is private and can be stated for no relation, or the other way round.
    """

    name: str
    summary: str
    update: Update | None = None
    private: bool = False
    projects: bool = False
    pre_clipping: Literal["", "subspace", "scales"] = ""
    public_views: bool = False
    solves: int = 0
    protects: tuple[str, ...] = ()
    leaves_open: tuple[str, ...] = ()
    costs: tuple[str, ...] = ()
    relations: tuple[Relation, ...] = ()
    auditable: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "relations", tuple(map(Relation, self.relations)))
        if self.private != bool(self.relations):
            raise DposeError(
                "method-relations-inconsistent",
                "names relations if, and only if, it is private",
                f"the method {self.name}",
            )

    @property
    def fitted(self) -> bool:
        """Whether something is fitted on gradients of public units."""
        return bool(self.projects or self.solves or self.pre_clipping)

    @property
    def fitted_on(self) -> str:
        """What a statement calls public units that something is fitted on, after their number."""
        if self.solves:
            return "units that the correction's directions are fitted on"
        return f"units that the {'scales are' if self.pre_clipping == 'scales' else 'subspace is'} fitted on"

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
    "a person who appears in several units (their epsilons at least add up; the statement says to what)",
    "the number of units, which is public, and the settings of the run",
    "scores measured on other private data afterwards, each listed in the statement",
)
_VIEWS = (
    "what the public view shows: coarse shapes, colours, where people are and often what they do",
    "all labels, which are used without noise",
    "whether a unit was in the data: its public view tells",
)
_BEYOND = "of each unit, what its picture holds beyond its public view: faces, text, fine detail"
_CLIPS = "per-unit gradients: 0.6 to 1.8 times a plain step, by model and strategy"
_PROJECTS = (
    "public units for the subspace, which get no protection and may be in no private unit",
    "a refit of the subspace every few steps, and memory for its directions",
)
_WHOLE = ("each unit as a whole: its pixels, its labels and whether it was used", _ANYONE)
_BESIDE_PUBLIC = (*_POPULATION, "the public units")
_DIRECTIONS = "public units for the directions, which get no protection and may be in no private unit"
_DOUBLES = "a second batch a step, of public views"
_EVERY = (Relation.ZERO_OUT, Relation.ADD_REMOVE, Relation.REPLACE)
_FIXED_VIEW = (Relation.ZERO_OUT, Relation.REPLACE)


METHODS: dict[str, Method] = {
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
            protects=_WHOLE,
            leaves_open=_POPULATION,
            costs=(_CLIPS,),
            relations=_EVERY,
            auditable=True,
        ),
        Method(
            name="pdp-sgd",
            summary="dp-sgd, whose noised sum is projected onto the directions in which gradients of public units are "
            "largest: most of the noise lies elsewhere and is dropped",
            private=True,
            projects=True,
            protects=_WHOLE,
            leaves_open=_BESIDE_PUBLIC,
            costs=(_CLIPS, *_PROJECTS),
            relations=_EVERY,
        ),
        Method(
            name="subspace-sgd",
            summary="every unit's gradient is projected onto the directions in which gradients of public units are "
            "largest; its coefficients there are clipped, summed over a Poisson sample and noised, and nothing else is",
            private=True,
            pre_clipping="subspace",
            protects=_WHOLE,
            leaves_open=_BESIDE_PUBLIC,
            costs=(_CLIPS, *_PROJECTS),
            relations=_EVERY,
        ),
        Method(
            name="scaled-sgd",
            summary="dp-sgd, each coordinate of whose gradients is divided before the clip, and multiplied behind the "
            "noise, by the root of its scale in gradients of public units",
            private=True,
            pre_clipping="scales",
            protects=_WHOLE,
            leaves_open=_BESIDE_PUBLIC,
            costs=(_CLIPS, "public units for the scales, which get no protection and may be in no private unit"),
            relations=_EVERY,
        ),
        Method(
            name="dp-head",
            summary="one step: of every unit the product of what a frozen model is wrong by and a few numbers that it "
            "finds is clipped, summed and noised once, and a linear correction of the joints is solved from the sum",
            update=solved,
            private=True,
            solves=1,
            protects=_WHOLE,
            leaves_open=_BESIDE_PUBLIC,
            costs=("one pass over the data, forward only", _DIRECTIONS),
            relations=_EVERY,
        ),
        Method(
            name="adassp-head",
            summary="two steps: dp-head, for which the products of what the frozen model finds are clipped, summed and "
            "noised first, so that people who differ from the public ones are not corrected as if they were these",
            update=solved,
            private=True,
            solves=2,
            protects=_WHOLE,
            leaves_open=_BESIDE_PUBLIC,
            costs=("two passes over the data, forward only", "half of the budget", _DIRECTIONS),
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


def register_method(method: Method) -> Method:
    """Enter a method, so that plans may name it.

    Raises:
        DposeError: there is another of that name.
    """
    if METHODS.get(method.name, method) != method:
        raise DposeError("method-exists", "there is another method of that name", method.name, "choose another name")
    METHODS[method.name] = method
    return method


SUBSPACES = ("public", "random", "identity")


@dataclass(frozen=True)
class SubspaceConfig:
    """What is fitted on gradients of public units: a subspace, or scales, which have no rank.

    Attributes:
        kind: "public": where gradients of public units are largest. Controls: "random" directions; "identity", none, so
            that nothing is projected or scaled.
        rank: Directions, k.
        units: Public units that it is fitted on, m; at least `rank`.
        refresh: Steps after which it is fitted again, on other units.
    """

    kind: str = "public"
    rank: int = 50
    units: int = 100
    refresh: int = 20

    def __post_init__(self) -> None:
        if self.kind not in SUBSPACES:
            raise DposeError(
                "subspace-unknown", f"unknown subspace {self.kind!r}", fix=f"choose one of {', '.join(SUBSPACES)}"
            )
        for name in ("rank", "units", "refresh"):
            if getattr(self, name) < 1:
                raise DposeError(
                    "subspace-setting-not-positive", f"subspace.{name} must be at least 1, not {getattr(self, name)}"
                )
        if self.kind == "public" and self.units < self.rank:
            raise DposeError(
                "public-units-too-few",
                f"a subspace of {self.rank} directions needs at least {self.rank} public units, not {self.units}",
                fix="raise subspace.units or lower subspace.rank",
            )
