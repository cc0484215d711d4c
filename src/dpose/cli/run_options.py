"""The settings of `dpose.runs.config.RunConfig` that commands have options for."""

from __future__ import annotations

from typing import Annotated, Any

from dpose.cli.options import Settings, option
from dpose.errors import DposeError

RUN = ("", "dpose.runs.config:RunConfig")
Limit = Annotated[
    int | None, option("Use only so many units: a fixed choice by name, always the same.", min=1)
]
Seed = Annotated[int | None, option("Makes the run reproducible and takes its guarantee away.", min=0)]

TRAIN = Settings(
    (RUN, ("", "dpose.cli.cluster:Carrying")),
    {
        "data.private": ("--data",),
        "data.public": (),
        "data.limit": (),
        "task": (),
        "model.preset": ("--preset", "--backbone"),
        "model.init": (),
        "model.strategy": (),
        "plan.method": (),
        "plan.epsilon": (),
        "plan.delta": (),
        "plan.epochs": (),
        "plan.expected_batch_size": ("--batch-size",),
        "recipe": (),
    },
)
"""The settings of `dpose train`."""


def check_given(settings: dict[str, Any]) -> None:
    """Refuse settings of a pose run that no others can mend, before torch and timm are loaded, which takes seconds.

    Raises:
        DposeError: no data are named; or the strategy does not go with the first weights.
    """
    from dpose.pose.backbones import check_strategy, shipped_for

    if not settings.get("data", {}).get("private"):
        raise DposeError(
            "data-missing", "training needs data", fix="give --data, or --config; see dpose train --help"
        )
    model = settings.get("model", {})
    # the recipe's public stage makes first weights
    if settings.get("recipe") is None and settings.get("task") in (None, "pose"):
        started = model.get("init") is not None or (
            model.get("strategy") != "scratch" and shipped_for(model.get("preset") or "nano") is not None
        )
        strategy = model.get("strategy") or ("finetune" if started else "scratch")
        degrees = model.get("temperature")
        degrees = degrees if isinstance(degrees, int | float) else None  # others are refused with the rest
        check_strategy(strategy, degrees, started=started, model=started)
