"""What each grid is made of: the trainings of a paper's table, or of a benchmark, and how they are run by default."""

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
"""What stands beside every private result of the same strategy."""
STRATEGIES = {
    "finetune": "Finetuning",
    "full": "Finetuning from scratch",
    "scratch": "Training from scratch",
    OWN_SETTINGS: "Each method at its own settings",
}
"""As the papers call them; "finetuning from scratch" trains all layers from pretrained weights."""


@dataclass(frozen=True)
class Scale:
    """How much is run; what the user gives overrides it.

    Attributes:
        strategies: Those that are run.
        epsilons: Those that are run.
        clip_norms: Those that are run.
        epochs: Passes over the private data.
        batch_size: Units in a batch on average.
        lr: The highest learning rate.
        ema: Decay of the weights' average.
        augment: As `RunConfig`.
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
    """One experiment of trainings.

    Attributes:
        name: As on the command line.
        title: One line.
        methods: In the order of rows.
        prints: The papers' tables by name; () for a benchmark.
        data: The data without `--data`; "" where they must be given.
        delta: Of every private cell.
        accountant: "pld" or "rdp".
        whole: Everything.
        core: The named subset.
        pretrain: Whether the weights learn from the public split of the private data beforehand.
        notes: What the reader must know.
        variants: For an ablation, the recipe's variants that are its rows, by name; () for every other grid.
        repeats: Trainings of one setting at least, by method; of `non-private` at its own settings alone.
        sparse: Budgets at which only `dp-sgd` and the recipe are run where nobody asks for others.
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

    @property
    def tables(self) -> tuple[Printed, ...]:
        """What the papers print; read when it is first asked for."""
        return tuple(map(printed, self.prints))

    def scale(self, asked: GridRequest) -> Scale:
        """What is run of it, with what the user gave in place of the defaults."""
        scale = self.core if asked.core else self.whole
        return replace(
            scale,
            strategies=asked.strategies or scale.strategies,
            epsilons=asked.epsilons or scale.epsilons,
            clip_norms=asked.clip_norms or scale.clip_norms,
            epochs=scale.epochs if asked.epochs is None else asked.epochs,
            batch_size=scale.batch_size if asked.batch_size is None else asked.batch_size,
            lr=scale.lr if asked.lr is None else asked.lr,
        )

    def trainings(self, asked: GridRequest) -> dict[Training, bool]:
        """Every setting of the grid and of what was asked for, and whether it is to be run, in the order of rows.

        References come first within their strategy; the starting weights before everything.
        """
        if self.variants:
            return self._ablated(asked)
        scale = self.scale(asked)
        methods = asked.methods or self.methods
        lines = [line for table in self.tables for line in table.lines]
        strategies = _union([line.strategy for line in lines], scale.strategies)
        if not lines:
            strategies = _union(self.whole.strategies, scale.strategies)
        clip_norms = _union([line.clip_norm for line in lines], self.whole.clip_norms, scale.clip_norms)
        epsilons = sorted(_union([line.epsilon for line in lines], self.whole.epsilons, scale.epsilons))
        known = set(map(_key, lines))
        found = {Training(START, START): True}
        references = references_of({line.method for line in lines})
        for strategy in strategies:
            chosen = strategy in scale.strategies
            for method in references:
                wanted = chosen and (method in methods or not asked.methods)
                found[Training(method, strategy)] = wanted
            rows = _union(self.methods, methods)
            private = [m for m in rows if m != RECOMMENDED and METHODS[m].private]
            for clip_norm, method, epsilon in product(clip_norms, private, epsilons):
                wanted = (
                    chosen
                    and clip_norm in scale.clip_norms
                    and epsilon in scale.epsilons
                    and method in methods
                    and (method == "dp-sgd" or not self._left_out(epsilon, asked))
                )
                training = Training(method, strategy, clip_norm, epsilon)
                if wanted or not lines or _key(training) in known:
                    found[training] = wanted
            # what the recipe trains is its own: it stands once, by the name that its cells have
            for epsilon in epsilons if RECOMMENDED in rows and strategy == "finetune" else ():
                wanted = epsilon in scale.epsilons and RECOMMENDED in methods
                found[Training(RECOMMENDED, strategy, None, epsilon)] = wanted and bool(
                    {"finetune", OWN_SETTINGS} & set(scale.strategies)
                )
        return found

    def runs(self, training: Training, asked: GridRequest) -> int:
        """Trainings of one setting."""
        if training.method == START:
            return 1
        own = training.strategy == OWN_SETTINGS or training.method == RECOMMENDED
        least = self.repeats.get(training.method, 1) if own and training.epsilon not in self.sparse else 1
        return max(asked.repeat, least)

    def _left_out(self, epsilon: float, asked: GridRequest) -> bool:
        return epsilon in self.sparse and not (asked.epsilons or asked.methods)

    def _ablated(self, asked: GridRequest) -> dict[Training, bool]:
        """The start, and at each epsilon the recipe, which is always run, and its variants."""
        scale = self.scale(asked)
        chosen = ("", *(asked.variants or self.variants))
        epsilons = sorted(_union(self.whole.epsilons, scale.epsilons))
        return {Training(START, START): True} | {
            Training(RECOMMENDED, "finetune", None, epsilon, variant=variant): epsilon in scale.epsilons
            and variant in chosen
            for epsilon in epsilons
            for variant in ("", *self.variants)
        }


def references_of(printed: Collection[str]) -> list[str]:
    """The references beside the methods that are printed: both, but in a table of references alone those it prints."""
    alone = bool(printed) and set(printed) <= set(REFERENCES)
    return [method for method in REFERENCES if not alone or method in printed]


def _key(one: Line | Training) -> tuple[str, str, float | None, float | None]:
    return one.method, one.strategy, one.clip_norm, one.epsilon


def _union(*several: Sequence[T | None]) -> list[T]:
    return list(dict.fromkeys(value for values in several for value in values if value is not None))
