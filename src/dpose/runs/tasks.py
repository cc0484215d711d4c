"""The tasks that commands train and score, one entry each; nothing else knows them by name.

    register_task(TaskEntry("count", unit="image", prepare=..., scored=..., load=..., explain=...))

`dpose.units.Task` is what the training engine knows of a task; an entry is what commands know besides: how its data are
opened and its model is built, scored and read from a folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import torch
from rich.console import Console, RenderableType

from dpose.errors import DposeError
from dpose.files import file_json
from dpose.known_sets import NO_NAMES, SetNames
from dpose.privacy.protected import Protected
from dpose.runs.config import TASKS, RunConfig, TaskFacts, task_facts
from dpose.training.first_weights import FirstWeights
from dpose.training.statement import StatementFacts
from dpose.training.validation import Validation
from dpose.units import Result, Task, UnitDataset, View

if TYPE_CHECKING:
    from dpose.training.run import Run


@dataclass(frozen=True)
class PreparedRun:
    """A configuration with its data opened and its model built: what `dpose.train` is given.

    Attributes:
        config: As it stands in the run folder.
        task: The task.
        model: On its device.
        units: What the run trains on.
        own: The same as they are protected, where preparing had to read them.
        data_name: Of these data, as readers elsewhere may see it.
        title: The name of these data, for the user who starts the run.
        start: Where the model's weights are from.
        report: Counts of labels and people, if the data are public.
        public: Extra public data.
        validation_data: Scored while training.
        facts: For the statement.
    """

    config: RunConfig
    task: Task
    model: torch.nn.Module
    units: UnitDataset
    data_name: str
    title: str
    start: FirstWeights
    report: tuple[str, ...] = ()
    own: Protected | None = None
    public: UnitDataset | None = None
    validation_data: Validation | None = None
    facts: StatementFacts = field(default_factory=StatementFacts)


@dataclass(frozen=True)
class ScoredData:
    """Data that models are scored on.

    Attributes:
        units: Not augmented.
        name: As readers elsewhere may see it.
        unit: What a unit is.
        public: True if the data are public.
        same: Whether they have the name of those that the run was trained on.
        score: A model's result on them, and the number of units that were scored.
        report: What the data say of themselves.
        task: Scores a unit by itself, for scores with noise; None without such a score.
        names: Which public sets they are.
    """

    units: UnitDataset
    name: str
    unit: str
    public: bool
    same: bool
    score: Callable[[torch.nn.Module], tuple[Result, int]]
    report: tuple[str, ...] = ()
    task: Task | None = None
    names: SetNames = NO_NAMES


class OpenScored(Protocol):
    """How a task opens data to score."""

    def __call__(
        self,
        folder: Path,
        model: torch.nn.Module,
        data: str,
        *,
        limit: int | None,
        detections: str | None,
        console: Console,
    ) -> ScoredData:
        """The data `data` for the model in `folder`, at most `limit` units; `detections` are a detector's boxes."""


class OpenPictures(Protocol):
    """How a task opens data whose pictures a model is to look at as they are."""

    def __call__(
        self, folder: Path, model: torch.nn.Module, data: str, *, limit: int | None, console: Console
    ) -> ScoredData:
        """The data `data` for the model in `folder`, at most `limit` units; the score uses no boxes."""


@dataclass(frozen=True)
class TaskEntry(TaskFacts):
    """A task as commands know it: `TaskFacts`, and how its data and models are opened.

    Attributes:
        prepare: Data and model of a configuration.
        scored: Data to score a model on.
        load: The model in a folder, in evaluation mode.
        explain: What a run would do, protect and cost.
        stage: What comes before the run itself: the configuration to go on with, or a run that was stopped.
        pictures: Whether a report can show its pictures.
        canary_views: The task and so many views of rendered people with random labels, for input canaries of a model
            (fewer if there are not so many); None without them.
        learns: What a run of a configuration learns from: its units, then the public ones that its method reads. None
            where that cannot be opened again: whether other data hold copies of it is then decided by content alone.
        whole_pictures: As `scored`, of scores in whole pictures and without the labels' boxes; None where there are
            none.
    """

    prepare: Callable[[RunConfig, Console], PreparedRun]
    scored: OpenScored
    load: Callable[[Path], torch.nn.Module]
    explain: Callable[[RunConfig], RenderableType]
    stage: Callable[[RunConfig, Path, Console, str, int | None], RunConfig | Run] | None = None
    pictures: bool = False
    canary_views: Callable[[torch.nn.Module, np.random.Generator, int], tuple[Task, list[View]]] | None = None
    learns: Callable[[RunConfig], tuple[UnitDataset, ...]] | None = None
    whole_pictures: OpenPictures | None = None


def register_task(entry: TaskEntry) -> TaskEntry:
    """Enter a task, so that configurations may name it.

    Raises:
        DposeError: there is another of that name.
    """
    if TASKS.setdefault(entry.name, entry) != entry:
        raise DposeError("task-exists", "there is another task of that name", entry.name, "choose another name")
    return entry


def task_entry(name: str) -> TaskEntry:
    """The task called `name`."""
    found = task_facts(name)
    return found if isinstance(found, TaskEntry) else cast(TaskEntry, resolve_name(found.entry))


def task_of(folder: Path) -> str:
    """The task of the model in `folder`; "" where it does not say."""
    try:
        return str(file_json(folder / "config.json").get("task", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def on_device(model: torch.nn.Module) -> torch.nn.Module:
    """The model on the GPU, where there is one."""
    return model.to("cuda" if torch.cuda.is_available() else "cpu")
