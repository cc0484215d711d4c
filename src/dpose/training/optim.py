"""Any torch optimizer and schedule, named in a configuration; and weight averaging.

The optimizer sees noisy gradients only, so all of this is post-processing of what the plan accounts for. torch is
imported where one is built: reading the configuration of a run, as `dpose verify` does, needs none.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from dpose.errors import DposeError
from dpose.privacy.ranges import plain_number

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.optim.lr_scheduler import LRScheduler

SCHEDULES = ("constant", "cosine", "linear")
USUAL = ("adam", "adamw", "rmsprop", "sgd")
"""Names that `torch.optim` has for certain."""

T = TypeVar("T")


@dataclass(frozen=True)
class OptimizerConfig:
    """An optimizer by the name of its class in `torch.optim`, and the learning rate over the run.

    Attributes:
        name: Case does not matter: "sgd", "adam", "adamw", "rmsprop", ...
        lr: The highest learning rate.
        schedule: "constant", "cosine" (to zero) or "linear" (to zero), after the warm-up; or the name of a class in
            `torch.optim.lr_scheduler`, stepped once a training step.
        warmup: Share of the steps over which the learning rate rises linearly, in [0, 1). Not with torch's schedules.
        options: Further arguments of the optimizer's class (`weight_decay`, `momentum`, `betas`, ...).
        schedule_options: Arguments of torch's schedule.
    """

    name: str = "adamw"
    lr: float = 1e-3
    schedule: str = "cosine"
    warmup: float = 0.05
    options: dict[str, Any] = field(default_factory=dict)
    schedule_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("lr", "warmup"):
            object.__setattr__(self, name, plain_number(getattr(self, name), name))
        if self.schedule not in SCHEDULES and self._torch_schedule() is None:
            raise DposeError(
                "schedule-unknown",
                f"unknown schedule {self.schedule!r}",
                fix=f"choose one of {', '.join(SCHEDULES)}, or a class of torch.optim.lr_scheduler",
            )
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise DposeError("lr-not-positive", f"the learning rate must be positive, not {self.lr:g}")
        if not 0 <= self.warmup < 1:
            raise DposeError("warmup-out-of-range", f"warmup is a share of the steps, in [0, 1), not {self.warmup:g}")
        if self.name.lower() not in USUAL:
            self._class()

    def _class(self) -> type[torch.optim.Optimizer]:
        import torch

        found = _named(torch.optim, self.name, torch.optim.Optimizer)
        # LBFGS evaluates the loss again, on data that the step's sample did not draw
        if found is None or found is torch.optim.LBFGS:
            raise DposeError(
                "optimizer-unknown", f"unknown optimizer {self.name!r}", fix="name a first-order class of torch.optim"
            )
        return found

    def _torch_schedule(self) -> type[LRScheduler] | None:
        from torch.optim import lr_scheduler

        found = _named(lr_scheduler, self.schedule, lr_scheduler.LRScheduler)
        # it follows a validation score: of private data that is a release, of public data not this engine's business
        return None if found is lr_scheduler.ReduceLROnPlateau else found

    def build(self, params: Iterable[Tensor], steps: int) -> tuple[torch.optim.Optimizer, LRScheduler]:
        """The optimizer over `params` and its schedule over `steps`.

        Raises:
            DposeError: the optimizer or the schedule refuses an option.
        """
        from torch.optim import lr_scheduler

        try:
            optimizer = self._class()(params, lr=self.lr, **self.options)  # type: ignore[call-arg]
        except (TypeError, ValueError) as error:
            raise DposeError("optimizer-option-refused", f"{self.name} refuses its options: {error}") from error
        torchs = self._torch_schedule()
        if torchs is None:
            return optimizer, lr_scheduler.LambdaLR(optimizer, lambda step: self.factor(step, steps))
        try:
            return optimizer, torchs(optimizer, **self.schedule_options)
        except (TypeError, ValueError) as error:
            raise DposeError("schedule-option-refused", f"{self.schedule} refuses its options: {error}") from error

    def factor(self, step: int, steps: int) -> float:
        """The learning rate of `step` (from 0) relative to `lr`."""
        rise = math.ceil(self.warmup * steps)
        if step < rise:
            return (step + 1) / (rise + 1)
        done = min(1.0, (step - rise) / max(1, steps - rise))
        if self.schedule == "cosine":
            return 0.5 * (1 + math.cos(math.pi * done))
        return 1 - done if self.schedule == "linear" else 1.0


ONE_STEP = OptimizerConfig("sgd", lr=1.0, schedule="constant", warmup=0.0)
"""Subtracts the one gradient of a method that solves for weights."""


def _named(module: ModuleType, name: str, base: type[T]) -> type[T] | None:
    """The subclass of `base` in `module` of that name, whatever its case."""
    for known, value in vars(module).items():
        if inspect.isclass(value) and issubclass(value, base) and value is not base and known.lower() == name.lower():
            return value
    return None


class WeightAverage:
    """Moving average of the trainable weights: exponential, or the plain mean of the last ones.

    An exponential one has a decay that rises from 0.1 to its value: the rise, (1 + t) / (10 + t), keeps the first, poor
    weights from lingering in short runs. The mean of a tail weighs the weights after each of the last steps alike
    (Polyak and Juditsky 1992, of the tail alone); before them it is the last weights.

    A decay of 0 makes the average equal to the last weights.
    """

    def __init__(self, params: dict[str, Tensor], decay: float, tail: int = 0, steps: int = 0) -> None:
        self.decay = decay
        self.before = steps - tail if tail else None
        self.updates = 0
        self.values = {name: p.clone() for name, p in params.items()}

    def update(self, params: dict[str, Tensor]) -> None:
        """Take in the weights after an optimizer step."""
        import torch

        if self.before is None:
            decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        else:
            held = max(0, self.updates - self.before)
            decay = held / (held + 1)
        self.updates += 1
        with torch.no_grad():
            for name, value in self.values.items():
                value.lerp_(params[name], 1 - decay)


def weight_average(params: dict[str, Tensor], decay: float, tail: float, steps: int) -> WeightAverage | None:
    """The average that a plan asks for; None if the last weights are released."""
    last = math.ceil(tail * steps)
    return WeightAverage(params, decay, last, steps) if decay or last else None
