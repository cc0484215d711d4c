"""`RunConfig`: everything that makes a run, in one object that YAML and the command line fill in.

Recipes: settings that were chosen on data that no result is reported on; docs/lab/results.md says which, and when.

dpose train --data lspet:ROOT:private --recipe recommended --epsilon 8 --delta 1e-5 --out runs/best
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from dpose.errors import DposeError, did_you_mean
from dpose.extensions import registered
from dpose.files import file_yaml
from dpose.privacy.canaries import FEWEST, CanaryKind
from dpose.privacy.sections import About
from dpose.training.methods import METHODS
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from dpose.training.trained_on import said_by_user
from dpose.units import MAX_VIEWS, Precision

Values = Mapping[str, Any]


@dataclass(frozen=True)
class StepRule:
    """How many steps a private run takes: the more, the further noise stands below what the units agree on.

    Attributes:
        ratio: Of n / sigma to a step, sigma being the noise multiplier of one step over all units at the budget.
        fewest: However few units there are.
        most: However many.
    """

    ratio: float
    fewest: int
    most: int

    def steps(self, ratio: float) -> int:
        """The number of steps at n / sigma."""
        return min(self.most, max(self.fewest, round(ratio / self.ratio)))


@dataclass(frozen=True)
class Recipe:
    """Settings by the names of `dpose.runs.config.RunConfig`; what the user says goes before them.

    Attributes:
        private: Of the private run.
        public: Of a run before it on public data alone, which gives the private run its first weights.
        behind: Of a private run on the same units behind it, both on one budget (`dpose.runs.stages`).
        share: Which part of epsilon that run costs by itself; the one before it has what that leaves.
        steps: Of the private run, whose batches follow from its passes; None for `private`'s own.
        temperature: What the logits of weights from the public run are divided by before the private one: they have
            seen few pictures often, and are too sure of others (`dpose.pose.heads.temper`).
        quiet_epsilon: Below it the learning rate falls with the root of epsilon: what noise alone moves the weights by
            grows with it, and at small budgets that is most of what moves them.
        chosen_on: What was read to choose it, by the kind of data; for the statements of runs on such data.
    """

    private: Values
    public: Values
    temperature: float
    quiet_epsilon: float
    chosen_on: Mapping[str, str] = field(default_factory=dict)
    behind: Values = field(default_factory=dict)
    share: float = 0.3
    steps: StepRule | None = None

    def at(self, epsilon: float | None) -> dict[str, Any]:
        """The private run's settings at a budget; None if the noise is given instead."""
        share = 1.0 if epsilon is None else min(1.0, math.sqrt(max(epsilon, 0.0) / self.quiet_epsilon))
        optimizer = self.private["optimizer"]
        return {**self.private, "optimizer": {**optimizer, "lr": optimizer["lr"] * share}}


RECOMMENDED = Recipe(
    private={
        "model": {"strategy": "light"},
        "plan": {"method": "dp-sgd", "epochs": 12.0, "expected_batch_size": 2048, "ema_decay": 0.9},
        "optimizer": {"name": "adamw", "lr": 3e-3, "options": {"weight_decay": 0.0}},
        "augment": "none",
    },
    public={
        "model": {"strategy": "full"},
        "plan": {"method": "non-private", "steps": 1800, "expected_batch_size": 64, "ema_decay": 0.998},
        "optimizer": {"name": "adamw", "lr": 1e-3},
        "augment": "public",
    },
    temperature=1.5,
    quiet_epsilon=8.0,
    chosen_on={
        "lspet": "the settings of the recipe, which were chosen by the scores of a few dozen trainings on pictures "
        "7001 to 8000 of LSPET's private split, read without noise: what they tell of those is in no epsilon"
    },
)

STRONG = Recipe(
    private={
        "model": {"strategy": "light"},
        "plan": {"method": "scaled-sgd", "epochs": 4.0, "expected_batch_size": 256, "ema_decay": 0.0},
        "optimizer": {"name": "adamw", "lr": 2e-3, "options": {"weight_decay": 0.0}},
        "augment": "none",
    },
    public={},
    temperature=1.0,
    quiet_epsilon=0.5,
    behind={"plan": {"method": "dp-head"}},
    steps=StepRule(ratio=32.0, fewest=8, most=125),
)
"""From BlazePose, which finds people in any photograph: few steps, a correction behind them, and no public stage.

Without public data DP-SGD takes the steps, and nothing is behind them (`dpose.runs.stages`).
"""

RECIPES: Mapping[str, Recipe] = {"recommended": RECOMMENDED}


def recipe_for(name: str, first: str | None) -> Recipe:
    """The recipe of that name, for these first weights: what `init` says, or else the preset."""
    return STRONG if (first or "").partition(":")[0] == "blazepose" else RECIPES[name]


def filled_in(values: dict[str, Any], below: Values) -> dict[str, Any]:
    """`values`, with what `below` has where they say nothing, part by part."""
    both = dict(values)
    for key, value in below.items():
        given = both.get(key)
        if given is None:
            both[key] = value
        elif isinstance(value, Mapping) and isinstance(given, dict):
            both[key] = filled_in(given, value)
    return both


@dataclass(frozen=True)
class TaskFacts:
    """What a configuration means for its task; to read one, neither data nor models are needed.

    Attributes:
        name: The name on the command line and in `config.json`; the `Task`'s own.
        unit: The default unit of its data (`dpose.units.Unit`).
        recipes: Whether recipes were chosen for it.
        precisions: The precisions in which its losses can be computed.
        conditions: What a guarantee takes as given because of a configuration alone.
        entry: MODULE:NAME of the `dpose.runs.tasks.TaskEntry`; "" for one that is an entry itself.
    """

    name: str
    unit: str
    recipes: bool = field(default=False, kw_only=True)
    precisions: tuple[str, ...] = field(default=("float32",), kw_only=True)
    conditions: Callable[[RunConfig], Sequence[str]] = field(default=lambda _: (), kw_only=True)
    entry: str = field(default="", kw_only=True)


DEFAULT_TASK = "pose"
"""The task of configurations and model folders that name none."""
TASKS: dict[str, TaskFacts | str] = {"pose": "dpose.runs.data:POSE", "action": "dpose.runs.action:ENTRY"}
"""Every task by name: its facts, or MODULE:NAME of them, imported when they are first needed."""


def task_facts(name: str) -> TaskFacts:
    """The task called `name`."""
    if not registered(name, TASKS):
        raise DposeError("task-unknown", f"unknown task {name!r}", fix=f"choose one of {', '.join(TASKS)}")
    found = TASKS[name]
    return cast("TaskFacts", resolve_name(found)) if isinstance(found, str) else found


class DataChoice(BaseModel):
    """Which data.

    Attributes:
        private: The data to train on, `NAME[:ROOT][:SPLIT][,annotations=FILE]`, such as lspet:/data/lspet:private.
            Several are one, with labels brought to the joints of the first.
        public: Public data, for subspaces and scales. They are not protected.
        validation_data: Public or held-out data to score while training; by default the data's public split, where it
            has one, and "none" for none.
        limit: Use only so many units: a fixed choice by name, always the same.
        units: How many units there are: what a run is explained for where the data are not at hand.
        views: For actions, the clips of a video in its gradient; more than one is MultiClip-DP.
        public_licence: The licence of the public data, for the statement; that of rendered people is known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    private: str | tuple[str, ...]
    public: str | None = None
    validation_data: str | None = None
    limit: int | None = Field(default=None, ge=1)
    units: int | None = Field(default=None, ge=1)
    views: int | None = Field(default=None, ge=1, le=MAX_VIEWS)
    public_licence: str | None = None

    @field_validator("private")
    @classmethod
    def _at_least_one(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if not value:
            raise ValueError("names no data")
        return value[0] if isinstance(value, tuple) and len(value) == 1 else value

    @property
    def sources(self) -> tuple[str, ...]:
        """The data specs to train on, at least one."""
        return (self.private,) if isinstance(self.private, str) else self.private


class ModelChoice(BaseModel):
    """Which model, and which of its parameters train.

    Attributes:
        preset: The backbone: nano, lite0, 5m, 11m, 21m or timm:NAME; for actions nano or mvit-b. Or a registered one
            (`dpose.pose.backbones`). Ignored where `init` names a model.
        init: First weights: a model folder, a file, hf:OWNER/NAME, or public weights of dpose. Folders and files may be
            transformers' ViTPose and mmpose's, too. "imagenet" is timm's weights of the preset's backbone; a file may
            hold weights of that backbone by timm's names, .safetensors or .pth, for mvit-b torchvision's. By default
            those of the preset that come with dpose, where there are some.
        strategy: What learns: light or head (for poses), finetune, full or scratch (from nothing). "light" trains small
            convolutions, norms and biases, and bears noise best; "head" the head alone; "finetune" the last stage and
            the head. By default finetune where there are first weights, else scratch; for one step head.
        directions: For dp-head, the directions of its correction; by default from the number of units and the noise.
        input_size: (H, W) pixels, also as "HxW"; the preset's own by default.
        stride: Picture pixels a cell of the backbone's map; the preset's own by default.
        codec: How the head says where joints are: simcc, heatmap, heatmap-deconv or regression. Or one that was
            registered (`dpose.pose.codec`). By default that of the model that `init` names, else the preset's
            own. A model of another codec keeps its backbone and gets a fresh head.
        temperature: What the logits of first weights for poses are divided by before the first step (`temper` in
            `dpose.pose.heads`); None for 1, as they are.
        init_data: Data sets that these first weights have learnt from, names with commas between them, or "unknown";
            added to what they say themselves (`dpose.training.trained_on`). Private data of such a set are refused.
        init_licence: The licence of the first weights, for the statement; that of weights of dpose is known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    preset: str = "nano"
    init: str | None = None
    strategy: Literal["light", "finetune", "full", "scratch", "head"] | None = None
    directions: int | None = Field(default=None, ge=1)
    input_size: tuple[int, int] | None = None
    stride: int | None = Field(default=None, ge=1)
    codec: str | None = None
    temperature: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    init_data: str | None = None
    init_licence: str | None = None

    @field_validator("init_data")
    @classmethod
    def _names(cls, value: str | None) -> str | None:
        if value is not None:
            said_by_user(value)
        return value

    @field_validator("input_size", mode="before")
    @classmethod
    def _written_out(cls, value: Any) -> Any:
        return value.lower().split("x") if isinstance(value, str) else value


class CanaryChoice(BaseModel):
    """Canaries to plant among the private units, so that the released model can be audited (`dpose audit claim`).

    Attributes:
        count: How many; each is in on the toss of a coin.
        kind: "gradient": each pushes one weight of the model. "input": a picture with wrong labels, for those who can
            only query it; a far weaker audit.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: int = Field(ge=FEWEST)
    kind: CanaryKind = "gradient"


class RunConfig(BaseModel):
    """A whole run.

    Attributes:
        version: The version of this format.
        task: What is learnt: pose, action, or a registered task (`dpose.runs.config.TASKS`).
        data: Which data.
        model: Which model.
        plan: Method, budget, sampling, clipping.
        optimizer: Optimizer and schedule.
        augment: "none", "private" (mild) or "public" (strong); by the method's kind when None.
        precision: "float32", or "bf16" for forward and backward passes in bfloat16. Gradients are clipped, summed and
            noised in float32 all the same. None: bf16 for `non-private` on a GPU, else float32.
        seed: A seed makes the run reproducible and takes its guarantee away; by default the operating system draws.
        canaries: Planted among the units, and committed to before the first step; None for none.
        about: What the statement says of who releases the model, to whom, what for and why so.
        recipe: recommended: settings chosen beforehand, where nothing else is said. See `dpose.runs.config`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    task: str = DEFAULT_TASK
    data: DataChoice
    model: ModelChoice = ModelChoice()
    plan: TrainingPlan
    optimizer: OptimizerConfig = OptimizerConfig()
    augment: Literal["none", "private", "public"] | None = None
    precision: Precision | None = None
    seed: int | None = Field(default=None, ge=0)
    canaries: CanaryChoice | None = None
    about: About = About()
    recipe: Literal["recommended"] | None = None

    @property
    def whole_recipe(self) -> Recipe | None:
        """All that `recipe` says, for the weights that the run starts from; None without one."""
        return recipe_for(self.recipe, self.model.init or self.model.preset) if self.recipe else None

    @model_validator(mode="before")
    @classmethod
    def _recipe(cls, values: Any) -> Any:
        """What the recipe says, where nothing else is said."""
        name = values.get("recipe") if isinstance(values, dict) else None
        if not isinstance(name, str) or name not in RECIPES:
            return values
        task = _task(values)
        if not task.recipes:
            raise DposeError(
                "recipe-of-other-task",
                f"was not chosen for {task.name}",
                f"recipe {values['recipe']}",
                "leave --recipe out",
            )
        plan, model = values.get("plan"), values.get("model")
        epsilon = plan.get("epsilon") if isinstance(plan, dict) else None
        named = str(plan.get("method")) if isinstance(plan, dict) else ""
        method = METHODS[named] if registered(named, METHODS) else None
        if method is not None and method.solves:
            raise DposeError(
                "recipe-of-many-steps",
                f"is settings of many steps, of which {method.name} has none",
                f"recipe {name}",
                "leave --recipe out",
            )
        first = model.get("init") or model.get("preset") if isinstance(model, dict) else None
        recipe = recipe_for(name, first if isinstance(first, str) else None)
        # anything but a number is refused by the plan
        return filled_in(values, recipe.at(epsilon if isinstance(epsilon, (int, float)) else None))

    @model_validator(mode="before")
    @classmethod
    def _unit(cls, values: Any) -> Any:
        """The unit of the task, unless the plan names one."""
        if not isinstance(values, dict):
            return values
        plan, unit = values.get("plan"), _task(values).unit
        if isinstance(plan, TrainingPlan) and plan.unit is None:
            return {**values, "plan": replace(plan, unit=unit)}
        if isinstance(plan, dict) and plan.get("unit") is None:
            return {**values, "plan": {**plan, "unit": unit}}
        return values

    @model_validator(mode="after")
    def _precisions(self) -> RunConfig:
        if self.precision and self.precision not in task_facts(self.task).precisions:
            raise DposeError(
                "precision-unsupported", f"is not for {self.task}", f"precision {self.precision}", "leave precision out"
            )
        return self

    @model_validator(mode="after")
    def _canaries(self) -> RunConfig:
        if self.canaries is not None:
            from dpose.training.canaries import check_plantable

            check_plantable(self.plan, self.seed)
        return self

    @staticmethod
    def from_dict(values: Any, where: str = "config", file: str = "") -> RunConfig:
        """A configuration from plain values.

        >>> config = RunConfig.from_dict({"data": {"private": "synthetic:ward"}, "plan": {"epsilon": 2, "delta": 1e-5}})
        >>> config.plan.method, config.plan.unit, config.model.preset
        ('dp-sgd', 'image', 'nano')

        Args:
            values: As from JSON or YAML.
            where: What an error names as the place of the mistake.
            file: The same for an unknown key, where only a file can have brought one.
        """
        try:
            return RunConfig.model_validate(values)
        except ValidationError as error:
            found = error.errors()
            unknown = next((e for e in found if e["type"] in _UNKNOWN), None)
            if unknown:
                raise DposeError("setting-unknown", _unknown_key(*unknown["loc"]), file or where) from error
            if found[0]["loc"] == ("plan",) and found[0]["type"] == "missing":
                raise DposeError(
                    "plan-missing",
                    "nothing says how private the run is to be",
                    where,
                    "give --epsilon and --delta, or --method non-private",
                ) from error
            first, name = found[0], ".".join(str(part) for part in found[0]["loc"])
            given = f", not {first['input']!r:.40}" if isinstance(first["input"], str | int | float) else ""
            said = first["msg"].replace("Input should be", "must be")
            raise DposeError("setting-invalid", f"{said}{given}", f"{where}: {name}") from error

    @staticmethod
    def from_yaml(path: Path) -> RunConfig:
        """A configuration from a YAML file."""
        return RunConfig.from_dict(read_yaml(path), str(path))

    @staticmethod
    def from_options(given: dict[str, Any], file: Path | None = None) -> RunConfig:
        """A configuration from options, over a YAML file where there is one.

        Args:
            given: As `from_dict` takes them; None for an option that was not given.
            file: What the options override.
        """
        options = without_none(given)
        if file is None:
            if not options.get("data", {}).get("private"):
                raise DposeError(
                    "data-missing", "training needs data", fix="give --data, or --config; see dpose train --help"
                )
            return RunConfig.from_dict(options, "options")
        both = f"{file} and options" if options else str(file)
        return RunConfig.from_dict(filled_in(options, read_yaml(file)), both, str(file))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `from_dict` takes them."""
        return {**self.model_dump(mode="json"), "plan": self.plan.to_dict()}


def _task(values: dict[str, Any]) -> TaskFacts:
    return task_facts(str(values.get("task", DEFAULT_TASK)))


def read_yaml(path: Path) -> dict[str, Any]:
    """Keys and values of a YAML file."""
    try:
        values = file_yaml(path)
    except OSError as error:
        raise DposeError("file-unreadable", error.strerror or "cannot be read", str(path)) from error
    except ValueError as error:
        raise DposeError("yaml-invalid", f"not YAML ({' '.join(str(error).split())})", str(path)) from error
    if not isinstance(values, dict):
        raise DposeError("config-empty", "holds no settings", str(path), "write keys and values, as examples/ does")
    return values


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same without what is None or an empty list, and without parts that are empty then."""
    kept = {key: without_none(v) if isinstance(v, Mapping) else v for key, v in values.items()}
    return {key: v for key, v in kept.items() if v is not None and v not in ({}, [])}


_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
"""Pydantic's names for a key that a model or a dataclass does not know."""


def _unknown_key(*path: str | int) -> str:
    """A message about the key at the end of `path`, with the nearest that is known there."""
    known: Any = RunConfig
    *parts, key = map(str, path)
    for part in parts:
        known = _parts(known)[part]
    names = _parts(known)
    before = "".join(f"{part}." for part in parts)
    hint = did_you_mean(key, names, before) or f"known: {', '.join(names)}"
    return f"unknown key {before}{key}; {hint}"


def _parts(kind: Any) -> dict[str, Any]:
    """What a model or a dataclass consists of, by name."""
    if is_dataclass(kind):
        return {name: kept for name, kept in get_type_hints(kind).items() if name in kind.__dataclass_fields__}
    return {name: field.annotation for name, field in kind.model_fields.items()}
