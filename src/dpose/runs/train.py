"""Which task a run is of: one door for the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from dpose.runs.action import evaluate_action, explain_action_run, train_action
from dpose.runs.build import shown_spec
from dpose.runs.config import RunConfig
from dpose.runs.evaluate import evaluate_run
from dpose.runs.places import typed_command, whole_config
from dpose.runs.pose import explain_run, train_pose
from dpose.runs.pretraining import public_stage, stage_data
from dpose.training.trainer import Run


def train_task(
    config: RunConfig,
    out: Path,
    console: Console,
    views_at_once: int | None = None,
    resume: bool = False,
    command: str = "",
) -> Run:
    """Train as `config` says; see `train_pose` and `train_action`. A recipe may begin with a run on public data."""
    if config.task == "action":
        return train_action(config, out, console, views_at_once, resume, command)
    staged = config if resume else public_stage(config, out, console, command)
    if isinstance(staged, Run):
        return staged
    return train_pose(staged, out, console, views_at_once, resume, command)


def resume_task(folder: Path, console: Console, given: Mapping[str, Any] | None = None) -> Run:
    """Go on with the run in `folder` from its last checkpoint, with the settings it began with.

    Args:
        folder: The run folder.
        console: Where progress goes.
        given: Where data and first weights are now, as `RunConfig` takes them; for a folder from another machine.

    Raises:
        DposeError: there is no run to go on with, or it is not known where its data are.
    """
    config = whole_config(folder, given)
    return train_task(config, folder, console, resume=True, command=typed_command(folder))


def explain_task(config: RunConfig) -> RenderableType:
    """What a run would do, protect and cost."""
    if config.task == "action":
        return explain_action_run(config)
    spec = stage_data(config)
    if spec is None:
        return explain_run(config)
    first = f"First its weights learn from {shown_spec(spec)}, taken to be public, without privacy."
    return Group(explain_run(config), Text(first))


def evaluate_task(
    folder: Path, data: str, *, limit: int | None = None, detections: str | None = None, console: Console
) -> object:
    """The score of the model in `folder` on `data`, which prints itself.

    Raises:
        DposeError: as `evaluate_run` and `evaluate_action`.
    """
    if task_of(folder) == "action":
        return evaluate_action(folder, data, limit=limit, console=console)
    return evaluate_run(folder, data, limit=limit, detections=detections, console=console)[0]


def task_of(folder: Path) -> str:
    """The task of the model in `folder`; "" where it does not say."""
    try:
        return str(json.loads((folder / "config.json").read_text(encoding="utf-8")).get("task", ""))
    except (OSError, ValueError, AttributeError):
        return ""
