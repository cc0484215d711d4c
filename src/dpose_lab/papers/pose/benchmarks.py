"""Designs of grids: the trainings of a paper's table, or of a benchmark, and their default scale."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TypeVar

from dpose.training.methods import METHODS
from dpose_lab.papers.experiment import GridRequest
from dpose_lab.papers.pose.printed import Line, Printed, printed
from dpose_lab.papers.pose.training_cell import OWN_SETTINGS, RECOMMENDED, START, Training

T = TypeVar("T")

REFERENCES = ("non-private", "public-only")
"""Reference methods beside every private result of the same strategy."""
STRATEGIES = {
    "finetune": "Finetuning",
    "full": "Finetuning from scratch",
    "scratch": "Training from scratch",
    OWN_SETTINGS: "Each method at its own settings",
}
"""Strategies by the papers' names; "finetuning from scratch" trains all layers from pretrained weights."""


@dataclass(frozen=True)
class Scale:
    """Scale of a grid; the user's options override it.

    Attributes:
        strategies: Strategies that are run.
        epsilons: Budgets that are run.
        clip_norms: Clipping norms that are run.
        epochs: Passes over the private data.
        batch_size: Units in a batch on average.
        lr: The highest learning rate.
        ema: Decay of the weights' average.
        augment: As in `RunConfig`.
        limit: At most so many units to train on.
        tested: At most so many units to test on.
    """

    strategies: tuple[str, ...]
    epsilons: tuple[float, ...]
    clip_norms: tuple[float, ...]
    epochs: float
    batch_size: int
    lr: float
    ema: float
    augment: str
    limit: int | None = None
    tested: int | None = None


@dataclass(frozen=True)
class Design:
    """Design of an experiment of trainings.

    Attributes:
        name: Name on the command line.
        title: Title, one line.
        methods: Methods in the order of rows.
        prints: The papers' tables by name; () for a benchmark.
        data: Default data; "" if `--data` must be given.
        delta: Delta of every private cell.
        accountant: "pld" or "rdp".
        whole: Scale of the whole grid.
        core: Scale of the named subset.
        pretrain: True if the weights learn from the public split of the private data beforehand.
        notes: Notes for the reader.
        variants: For an ablation, the recipe's variants that are its rows, by name; () for every other grid.
        repeats: Smallest number of trainings of a setting, by method; of `non-private` at its own settings alone.
        sparse: Budgets at which only `dp-sgd` and the recipe are run by default.
        preset: Default backbone; "" for the data's.
        references: Rows without privacy beside the methods.
    """

    name: str
    title: str
    methods: tuple[str, ...]
    prints: tuple[str, ...]
    data: str
    delta: float
    accountant: str
    whole: Scale
    core: Scale
    pretrain: bool = False
    notes: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    repeats: Mapping[str, int] = field(default_factory=dict)
    sparse: tuple[float, ...] = ()
    preset: str = ""
    references: tuple[str, ...] = REFERENCES

    @property
    def tables(self) -> tuple[Printed, ...]:
        """Tables that the papers print, read on first use."""
        return tuple(map(printed, self.prints))

    def scale(self, request: GridRequest) -> Scale:
        """Scale of the grid with the user's options in place of the defaults."""
        scale = self.core if request.core else self.whole
        return replace(
            scale,
            strategies=request.strategies or scale.strategies,
            epsilons=request.epsilons or scale.epsilons,
            clip_norms=request.clip_norms or scale.clip_norms,
            epochs=scale.epochs if request.epochs is None else request.epochs,
            batch_size=scale.batch_size if request.batch_size is None else request.batch_size,
            lr=scale.lr if request.lr is None else request.lr,
        )

    def trainings(self, request: GridRequest) -> dict[Training, bool]:
        """Every setting of the grid and of the request, and True if it is to be run, in the order of rows.

        References come first within their strategy; the starting weights before everything.
        """
        if self.variants:
            return self._ablated(request)
        scale = self.scale(request)
        methods = request.methods or self.methods
        lines = [line for table in self.tables for line in table.lines]
        strategies = _union([line.strategy for line in lines], scale.strategies)
        if not lines:
            strategies = _union(self.whole.strategies, scale.strategies)
        clip_norms = _union([line.clip_norm for line in lines], self.whole.clip_norms, scale.clip_norms)
        epsilons = sorted(_union([line.epsilon for line in lines], self.whole.epsilons, scale.epsilons))
        known = set(map(_key, lines))
        trainings = {Training(START, START): True}
        references = [one for one in references_of({line.method for line in lines}) if one in self.references]
        for strategy in strategies:
            chosen = strategy in scale.strategies
            for method in references:
                wanted = chosen and (method in methods or not request.methods)
                trainings[Training(method, strategy)] = wanted
            rows = _union(self.methods, methods)
            private = [m for m in rows if m != RECOMMENDED and METHODS[m].private]
            for clip_norm, method, epsilon in product(clip_norms, private, epsilons):
                wanted = (
                    chosen
                    and clip_norm in scale.clip_norms
                    and epsilon in scale.epsilons
                    and method in methods
                    and (method == "dp-sgd" or not self._left_out(epsilon, request))
                )
                training = Training(method, strategy, clip_norm, epsilon)
                if wanted or not lines or _key(training) in known:
                    trainings[training] = wanted
            # the recipe trains its own settings: it is listed once, under the name of its cells
            under = "finetune" if "finetune" in strategies else strategies[0]
            for epsilon in epsilons if RECOMMENDED in rows and strategy == under else ():
                wanted = epsilon in scale.epsilons and RECOMMENDED in methods
                trainings[Training(RECOMMENDED, "finetune", None, epsilon)] = wanted and bool(
                    {"finetune", OWN_SETTINGS} & set(scale.strategies)
                )
        return trainings

    def runs(self, training: Training, request: GridRequest) -> int:
        """Number of trainings of a setting."""
        if training.method == START:
            return 1
        own = training.strategy == OWN_SETTINGS or training.method == RECOMMENDED
        least = self.repeats.get(training.method, 1) if own and training.epsilon not in self.sparse else 1
        return max(request.repeat, least)

    def _left_out(self, epsilon: float, request: GridRequest) -> bool:
        return epsilon in self.sparse and not (request.epsilons or request.methods)

    def _ablated(self, request: GridRequest) -> dict[Training, bool]:
        """The start, the recipe at each epsilon, which is always run, and its variants."""
        scale = self.scale(request)
        chosen = ("", *(request.variants or self.variants))
        epsilons = sorted(_union(self.whole.epsilons, scale.epsilons))
        return {Training(START, START): True} | {
            Training(RECOMMENDED, "finetune", None, epsilon, variant=variant): epsilon in scale.epsilons
            and variant in chosen
            for epsilon in epsilons
            for variant in ("", *self.variants)
        }


def references_of(printed: Collection[str]) -> list[str]:
    """References beside the printed methods: both, or the printed ones in a table of references alone."""
    alone = bool(printed) and set(printed) <= set(REFERENCES)
    return [method for method in REFERENCES if not alone or method in printed]


def _key(one: Line | Training) -> tuple[str, str, float | None, float | None]:
    return one.method, one.strategy, one.clip_norm, one.epsilon


def _union(*several: Sequence[T | None]) -> list[T]:
    return list(dict.fromkeys(value for values in several for value in values if value is not None))
