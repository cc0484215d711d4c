"""Cells of a grid of trainings: settings of a cell, settings that all share, and the configuration of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.pose.backbones import shipped_for
from dpose.privacy.ranges import as_given
from dpose.runs.config import RECIPES, Recipe, RunConfig, filled_in, recipe_for
from dpose.training.methods import METHODS
from dpose_lab.papers.pose.settings import CEILING, own_settings
from dpose_lab.papers.pose.variants import VARIANTS

START = "start"
"""The cell of the public model that the others start from."""
RENDERED = "synthetic:studio"
"""Public data for a start without shipped weights."""
RECOMMENDED = "recommended"
"""Name of the recipe as a row of its own, with its own settings."""
OWN_SETTINGS = "own"
"""The strategy of methods with settings of their own (`dpose_lab.papers.pose.settings`), what trains among them."""
RUNS = "runs"
"""The folder of the run folders, in the results' folder."""


@dataclass(frozen=True, order=True)
class Training:
    """Settings of one training of a grid; trainings that differ in `repetition` alone are repetitions.

    Attributes:
        method: A name in `METHODS`, `RECOMMENDED`, or `START`.
        strategy: "finetune", "full" or "scratch"; or `OWN_SETTINGS`.
        clip_norm: C; None for methods without clipping, and for a recipe, which has its own.
        epsilon: None for methods without a guarantee.
        repetition: Number of the repetition, from 1.
        variant: A name in `VARIANTS`, of the recipe with one thing changed; "" for everything else. What it changes may
            be the strategy, too.
    """

    method: str
    strategy: str
    clip_norm: float | None = None
    epsilon: float | None = None
    repetition: int = 1
    variant: str = ""

    @property
    def key(self) -> str:
        """Name of the training's files."""
        if self.method == START:
            return START
        parts = [self.variant] if self.variant else [self.method, self.strategy]
        if self.clip_norm is not None:
            parts.append(f"C{self.clip_norm:g}")
        if self.epsilon is not None:
            parts.append(f"eps{as_given(self.epsilon)}")
        return "-".join([*parts, f"run{self.repetition}"])

    @property
    def setting(self) -> Training:
        """The training without its repetition."""
        return replace(self, repetition=1)

    @property
    def private(self) -> bool:
        """True if the training clips and adds noise."""
        return self.method == RECOMMENDED or (self.method != START and METHODS[self.method].private)

    @property
    def on_views(self) -> bool:
        """True if it learns from public views alone: then it is tested on two kinds of pictures."""
        method = METHODS.get(self.method)
        return method is not None and method.public_views and not method.private

    @property
    def values(self) -> dict[str, Any]:
        """The settings as JSON, without the variant if there is none."""
        values = asdict(self)
        return values if self.variant else {k: v for k, v in values.items() if k != "variant"}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Training:
        """Make a training from a cell's values; further values are ignored."""
        return cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values})


def shipped(preset: str) -> Path:
    """Shipped weights of `preset`."""
    weights = shipped_for(preset)
    if weights is None:
        raise DposeError(
            "public-weights-missing",
            f"there are no public weights of preset {preset}",
            "--preset",
            "give --init FOLDER",
        )
    return weights


@dataclass(frozen=True)
class Setup:
    """Settings that all trainings of a grid share; a folder belongs to one setup.

    Attributes:
        data: The private data, with their split.
        public: Public data; None for none.
        evaluate: Data that models are tested on, with the split.
        preset: Backbone of the model.
        init: Start of "finetune" and "full": a model folder, or the name of public weights.
        pretrain: Public data that `init` learns from first, in a cell of its own; None for none.
        epochs: Passes over the private data.
        batch_size: Units in a batch on average.
        delta: Delta of every private cell.
        accountant: "pld" or "rdp".
        unit: Unit of protection.
        optimizer: A class of `torch.optim`.
        lr: The highest learning rate.
        ema: Decay of the weights' average.
        augment: As in `RunConfig`.
        limit: At most so many units to train on.
        tested: At most so many units to test on.
        seed: None for fresh keys.
        temperature: Divisor of the start's logits before the recipe, and before private methods at their own
            settings; None for no division.
    """

    data: str
    public: str | None
    evaluate: str
    preset: str
    init: str | None
    pretrain: str | None
    epochs: float
    batch_size: int
    delta: float
    accountant: str
    unit: str
    optimizer: str
    lr: float
    ema: float
    augment: str
    limit: int | None
    tested: int | None
    seed: int | None
    temperature: float | None = None

    @property
    def values(self) -> dict[str, Any]:
        """The setup as JSON."""
        return asdict(self)

    @property
    def recipe(self) -> Recipe:
        """The recipe for the weights that all start from."""
        return recipe_for(RECOMMENDED, self.init or self.preset)

    @property
    def bare(self) -> bool:
        """True if the preset has no shipped weights, so that the start is trained from scratch."""
        return shipped_for(self.preset) is None

    def first(self, folder: Path) -> str | None:
        """Weights that a finetuned training starts from; None for the preset's own weights.

        Args:
            folder: Folder of the results.
        """
        return str(folder / RUNS / START) if self.pretrain else self.init

    def config(self, training: Training, folder: Path) -> RunConfig:
        """The configuration of a training; of `START`, of the public training that comes before all others.

        Args:
            training: The training.
            folder: Folder of the results.
        """
        seed = None if self.seed is None else self.seed + training.repetition - 1
        if training.method == START:
            return RunConfig.from_dict(self._pretraining(seed))
        if training.method == RECOMMENDED:
            return self._varied(training.variant, self._recommended(training, folder, seed))
        private = {
            "epsilon": training.epsilon,
            "delta": self.delta,
            "clip_norm": training.clip_norm,
            "accountant": self.accountant,
        }
        scratch = training.strategy == "scratch"
        own: Mapping[str, Any] = {}
        if training.strategy == OWN_SETTINGS:
            own = own_settings(training.method, training.epsilon, self.preset)
            if training.method != CEILING:
                own = filled_in({"model": {"temperature": self.temperature}}, own)
        strategy = "finetune" if training.strategy == OWN_SETTINGS else training.strategy
        return RunConfig.from_dict(
            filled_in(
                dict(own),
                {
                    "data": {
                        "private": self.data,
                        "public": self.public,
                        "validation_data": "none",
                        "limit": self.limit,
                    },
                    "model": {
                        "preset": self.preset,
                        "init": None if scratch else self.first(folder),
                        "strategy": strategy,
                    },
                    "plan": {
                        "method": training.method,
                        "epochs": self.epochs,
                        "expected_batch_size": self.batch_size,
                        "unit": self.unit,
                        "ema_decay": self.ema,
                        # as the papers print it: clipped gradients keep their length C beside a public gradient
                        "normalise": False,
                        **(private if training.private else {}),
                    },
                    "optimizer": {"name": self.optimizer, "lr": self.lr, "options": self._options()},
                    "augment": self.augment,
                    "seed": seed,
                },
            )
        )

    def _varied(self, variant: str, values: dict[str, Any]) -> RunConfig:
        recipe = RunConfig.from_dict(values)
        if not variant:
            return recipe
        changed = filled_in(VARIANTS[variant].change(recipe), values)
        config = RunConfig.from_dict(changed)
        if not config.plan.kind.fitted:
            return config
        return RunConfig.from_dict(filled_in({"data": {"public": self.public}}, changed))

    def _recommended(self, training: Training, folder: Path, seed: int | None) -> dict[str, Any]:
        return {
            "recipe": RECOMMENDED,
            "data": {"private": self.data, "validation_data": "none", "limit": self.limit},
            # from the start of the others: a public stage of its own would be another start
            "model": {
                "preset": self.preset,
                "init": self.first(folder) or (str(shipped(self.preset)) if self.recipe.public else None),
                "temperature": self.temperature,
            },
            "plan": {
                "epsilon": training.epsilon,
                "delta": self.delta,
                "accountant": self.accountant,
                "unit": self.unit,
            },
            "seed": seed,
        }

    def _pretraining(self, seed: int | None) -> dict[str, Any]:
        own = {
            # shipped weights were trained on rendered people; others are trained on them here
            "data": {"private": [RENDERED, self.pretrain] if self.bare else self.pretrain, "validation_data": "none"},
            "model": {"preset": self.preset, **({"strategy": "scratch"} if self.bare else {})},
            "seed": seed,
        }
        # the recipe's, so that no other method starts from a weaker model
        return filled_in(own, RECIPES[RECOMMENDED].public)

    def _options(self) -> dict[str, Any]:
        # decay pulls weights towards zero whatever the data say: with few noisy steps it would be all there is
        return {"weight_decay": 0.0} if self.optimizer.lower() == "adamw" else {}
