"""`RunConfig`: everything that makes a run, in one object that YAML and the command line fill in."""

from __future__ import annotations

import difflib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dpose.errors import DposeError
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan


class DataChoice(BaseModel):
    """Which data.

    Attributes:
        private: The data spec to train on, `NAME[:ROOT][:SPLIT]`.
        public: Extra data nobody needs protected.
        limit: Use only so many units, a fixed choice by name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    private: str
    public: str | None = None
    limit: int | None = Field(default=None, ge=1)


class ModelChoice(BaseModel):
    """Which model, and which of its parameters train.

    Attributes:
        preset: "nano", "5m", "11m" or "21m"; ignored where `init` names a model.
        init: A model folder to start from.
        strategy: "finetune", "full" or "scratch"; by default finetune with `init`, else scratch.
        input_size: (H, W) pixels; the preset's own by default.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    preset: Literal["nano", "5m", "11m", "21m"] = "nano"
    init: str | None = None
    strategy: Literal["finetune", "full", "scratch"] | None = None
    input_size: tuple[int, int] | None = None


class RunConfig(BaseModel):
    """A whole run.

    Attributes:
        version: Of this format.
        task: What is learnt.
        data: Which data.
        model: Which model.
        plan: Method, budget, sampling, clipping.
        optimizer: Optimizer and schedule.
        augment: "none", "private" (mild) or "public" (strong); by the method's kind when None.
        seed: Reproducible and without guarantee; None draws from the operating system.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    task: Literal["pose"] = "pose"
    data: DataChoice
    model: ModelChoice = ModelChoice()
    plan: TrainingPlan
    optimizer: OptimizerConfig = OptimizerConfig()
    augment: Literal["none", "private", "public"] | None = None
    seed: int | None = Field(default=None, ge=0)

    @staticmethod
    def from_dict(values: Any, where: str = "config") -> RunConfig:
        """A configuration from plain values.

        Raises:
            DposeError: a key is unknown (the nearest known one is named) or a value is wrong.
        """
        unknown = _unknown_key(RunConfig, values)
        if unknown:
            raise DposeError(unknown, where)
        try:
            return RunConfig.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            raise DposeError(f"{name}: {first['msg']}", where) from error

    @staticmethod
    def from_yaml(path: Path) -> RunConfig:
        """A configuration from a YAML file.

        Raises:
            DposeError: the file cannot be read, or is not a configuration.
        """
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise DposeError(error.strerror or "cannot be read", str(path)) from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise DposeError(f"not YAML ({error})", str(path)) from error
        return RunConfig.from_dict(values, str(path))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `from_dict` takes them."""
        return {**self.model_dump(mode="json"), "plan": self.plan.to_dict()}


def _unknown_key(kind: Any, values: Any, path: str = "") -> str | None:
    """A message about the first key that `kind` does not know, with the nearest that it does."""
    if not isinstance(values, dict):
        return None
    nested: dict[str, Any]
    if is_dataclass(kind):
        nested = {f.name: None for f in fields(kind)}
    else:
        nested = {name: f.annotation for name, f in kind.model_fields.items()}
    for key, value in values.items():
        if key not in nested:
            near = difflib.get_close_matches(str(key), nested, 1)
            hint = f"did you mean {path}{near[0]}?" if near else f"known: {', '.join(nested)}"
            return f"unknown key {path}{key}; {hint}"
        inner = nested[key]
        if isinstance(inner, type) and (is_dataclass(inner) or issubclass(inner, BaseModel)):
            message = _unknown_key(inner, value, f"{path}{key}.")
            if message:
                return message
    return None
