"""`TuningConfig`: a run's configuration with a grid over some of its keys, as `dpose tune --config` reads it.

data: {private: synthetic:ward}
plan: {epochs: 4, expected_batch_size: 256}
grid:                                # lists in the place of values; a trial draws one of all combinations
  optimizer: {lr: [0.001, 0.003]}
  plan: {clip_norm: [0.3, 1.0]}
score_share: 0.2                     # of the units, set apart to score trials on
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.privacy.accounting import Accountant
from dpose.privacy.tuning import check_choosable
from dpose.runs.config import RunConfig, filled_in, read_yaml
from dpose.training.plan import TrainingPlan
from dpose.training.statement import StatementFacts

SCORE_SHARE = 0.2
MOST_SETTINGS = 1_000
PARTS = ("plan", "optimizer")
"""What a grid may reach into: the data, the model and its first weights are those of every trial."""
FIXED = ("epsilon", "delta", "noise_multiplier", "relation", "accountant", "nominal_units", "unit")
"""Keys of the plan that are the same for every trial: what is promised, and the noise, which follows from it."""
DEFAULTED = StatementFacts(
    caveats=("no trial was drawn, or none came to an end: these are the first weights, untrained",)
)
"""What a statement says where there was no trial to choose from."""


@dataclass(frozen=True)
class TuningConfig:
    """What to choose from.

    Attributes:
        settings: What is special to each setting of the grid, values as text by their names ("optimizer.lr").
        runs: The whole configuration of each, in the same order; epsilon and delta are those of everything.
        score_share: About this share of the units is set apart to score trials on.
    """

    settings: tuple[Mapping[str, str], ...]
    runs: tuple[RunConfig, ...]
    score_share: float = SCORE_SHARE

    @property
    def plan(self) -> TrainingPlan:
        """What all settings have in common stands in the first."""
        return self.runs[0].plan

    @property
    def epsilon(self) -> float:
        """Of everything."""
        return float(self.plan.epsilon or 0)

    @property
    def delta(self) -> float:
        """Of everything."""
        return float(self.plan.delta or 0)

    @staticmethod
    def from_yaml(path: Path, epsilon: float | None = None, delta: float | None = None) -> TuningConfig:
        """The grid in a YAML file.

        Args:
            path: The file.
            epsilon: Of everything, in place of what the file says.
            delta: The same.
        """
        return TuningConfig.from_dict(read_yaml(path), str(path), epsilon=epsilon, delta=delta)

    @staticmethod
    def from_dict(
        values: Mapping[str, Any], where: str = "config", *, epsilon: float | None = None, delta: float | None = None
    ) -> TuningConfig:
        """A grid from plain values; see `from_yaml`."""
        base = dict(values)
        grid, share = base.pop("grid", None), base.pop("score_share", SCORE_SHARE)
        if not isinstance(share, float) or not 0 < share < 1:
            raise DposeError("score-share-out-of-range", f"score_share must lie between 0 and 1, not {share!r}", where)
        axes = list(_axes(grid, where))
        if base.get("recipe"):
            raise DposeError(
                "tuning-with-recipe",
                "a recipe was chosen already",
                where,
                "leave recipe out and name first weights by model.init",
            )
        if base.get("seed") is not None:
            raise DposeError(
                "tuning-with-seed", "with a seed, the number of trials would be no secret", where, "leave seed out"
            )
        if base.get("canaries") is not None:
            raise DposeError(
                "tuning-with-canaries",
                "canaries would count among the units of every trial",
                where,
                "leave canaries out",
            )
        typed = {"epsilon": epsilon, "delta": delta, "accountant": Accountant.RDP.value}
        given = base.get("plan") or {}
        if not isinstance(given, Mapping):
            raise DposeError("section-not-mapping", "plan holds no keys and values", where)
        overridden = {key: value for key, value in typed.items() if value is not None and key != "accountant"}
        base["plan"] = filled_in({**given, **overridden}, typed)
        settings, runs = [], []
        for values_ in itertools.product(*(choices for _, choices in axes)):
            chosen = {path: value for (path, _), value in zip(axes, values_, strict=True)}
            settings.append({".".join(path): _text(value) for path, value in chosen.items()})
            runs.append(RunConfig.from_dict(_put(base, chosen, where), where))
        found = TuningConfig(tuple(settings), tuple(runs), share)
        for run in runs:
            _check(run.plan)
        return found

    def plans(self, sigmas: list[float]) -> tuple[TrainingPlan, ...]:
        """Every setting's plan with the noise that the price of everything gives it."""
        pairs = zip(self.runs, sigmas, strict=True)
        return tuple(replace(run.plan, epsilon=None, noise_multiplier=sigma) for run, sigma in pairs)


def _axes(grid: Any, where: str) -> Iterator[tuple[tuple[str, str], list[Any]]]:
    """The keys that a grid reaches, with what it has for them."""
    if not isinstance(grid, Mapping) or not grid:
        raise DposeError(
            "grid-missing", "has no grid to choose from", where, "give lists: grid: {optimizer: {lr: [0.001, 0.003]}}"
        )
    count = 1
    for part, keys in grid.items():
        if part not in PARTS or not isinstance(keys, Mapping):
            raise DposeError("grid-part-unknown", f"a grid reaches into {' and '.join(PARTS)}, not {part}", where)
        for key, choices in keys.items():
            name = f"grid.{part}.{key}"
            if part == "plan" and key in FIXED:
                raise DposeError("grid-setting-fixed", f"{name}: is the same for every trial", where)
            if not isinstance(choices, list) or not choices:
                raise DposeError("grid-values-missing", f"{name}: needs a list of values", where)
            if not all(_plain(value) for value in choices):
                raise DposeError("grid-value-unusable", f"{name}: has a value that is neither text nor number", where)
            if len({_text(value) for value in choices}) < len(choices):
                raise DposeError(
                    "grid-value-twice", f"{name}: names a value twice", where, "every setting is as likely as any other"
                )
            count *= len(choices)
            if count > MOST_SETTINGS:
                raise DposeError("grid-too-large", f"a grid has at most {MOST_SETTINGS:,} settings", where)
            yield (part, str(key)), choices


def _put(base: Mapping[str, Any], chosen: Mapping[tuple[str, str], Any], where: str) -> dict[str, Any]:
    values = dict(base)
    for (part, key), value in chosen.items():
        before = values.get(part) or {}
        if not isinstance(before, Mapping):
            raise DposeError("section-not-mapping", f"{part} holds no keys and values", where)
        values[part] = {**before, key: value}
    return values


def _plain(value: Any) -> bool:
    """Whether YAML has read a value as JSON has them: not as a date, a set or bytes."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _plain(one) for key, one in value.items())
    if isinstance(value, list):
        return all(map(_plain, value))
    return value is None or isinstance(value, str | int | float)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _check(plan: TrainingPlan) -> None:
    """Refuse what choosing among trials has no price for.

    Raises:
        DposeError: it has none.
    """
    if not plan.kind.private or plan.kind.public_views:
        raise DposeError(
            "method-without-tuning-price",
            f"{plan.method} does not protect whole units, so that the price of choosing would not cover it",
            "method",
            "choose among dp-sgd and pdp-sgd",
        )
    check_choosable(plan.relation, plan.accountant)
    if plan.epsilon is None:
        raise DposeError(
            "epsilon-missing",
            "choosing needs the epsilon of everything",
            fix="give --epsilon; the noise follows from it",
        )
