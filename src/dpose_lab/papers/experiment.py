"""The interface of experiments and of their results. `registry.py` lists all experiments.

An experiment is a list of cells, each run alone and stored in a file of its own, and a way to show finished cells.
The runner (`experiment_cell.py`) and the writer (`output.py`) do not depend on what a cell does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field

from dpose.report.results import Figure, Table

Values = Mapping[str, Any]
Status = Literal["done", "failed", "not run"]


@dataclass(frozen=True)
class GridRequest:
    """Which trainings of a grid the user asked for, and how; None and () stand for the experiment's own.

    Attributes:
        core: A named subset, small enough for a small machine.
        methods: Methods of training, with commas between them.
        strategies: own (each method's), finetune, full or scratch.
        variants: Rows of an ablation, beside the recipe as it is.
        epsilons: Budgets, as in 0.2,0.8; also ones that the paper has not.
        clip_norms: Clipping norms C, as in 0.1,1.0.
        repeat: Trainings of each setting, for means and standard deviations.
        preset: The backbone: nano, lite0, 5m, 11m or 21m.
        init: A public model folder that finetune and full start from.
        public: Public data, for the subspaces of pdp-sgd and fpdp-sgd. By default the data's own public split.
        evaluate: The data that models are tested on. By default the data's test split, or its validation split.
        epochs: Passes over the data.
        batch_size: Units in a batch on average.
        optimizer: A class of `torch.optim`.
        lr: The highest learning rate.
        show_pictures: Show pictures of the test data even if they are not declared public; the account counts them.
    """

    core: bool = False
    methods: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    epsilons: tuple[float, ...] = ()
    clip_norms: tuple[float, ...] = ()
    repeat: Annotated[int, Field(ge=1)] = 1
    preset: str | None = None
    init: str | None = None
    public: str | None = None
    evaluate: str | None = None
    epochs: float | None = None
    batch_size: int | None = None
    optimizer: str | None = None
    lr: float | None = None
    show_pictures: bool = False


@dataclass(frozen=True)
class Request:
    """A user's request for an experiment.

    Attributes:
        data: Data specs; () for the experiment's own.
        limit: At most so many pictures (units) of each.
        segmenter: An ONNX file, with ",imagenet" appended if its input is normalised so; "" for the classical one.
        seed: Seed of all noise, which makes figures repeatable, without protection. None: trainings draw fresh
            keys, which protect; everything else uses seed 0.
        quick: Run a named subset of the cells, once.
        external: "NAME:DIR", videos made by an external method, for the row of that name.
        grid: Options of trainings, for experiments that train.
        processes: Number of cells run at once; with an engine, its workers.
        engine: Name of the engine, see `dpose.engines.engine`, or "slurm"; "" for this machine.
        partition: The cluster's partition, for slurm; "local" for this machine.
        slurm: Settings of jobs, KEY=VALUE.
        data_public: True if the data are public; for experiments whose cells are not trainings.
        folder: Folder of the results, filled in by the runner.
    """

    data: tuple[str, ...] = ()
    limit: int | None = None
    segmenter: str = ""
    seed: int | None = None
    quick: bool = False
    external: tuple[str, ...] = ()
    grid: GridRequest = GridRequest()
    processes: int = 1
    engine: str = ""
    partition: str = ""
    slurm: tuple[str, ...] = ()
    data_public: bool = False
    folder: Path = Path()

    @property
    def noise_seed(self) -> int:
        """Seed of everything that is never private."""
        return self.seed or 0


@dataclass(frozen=True)
class Cell:
    """One setting of an experiment, run alone.

    Attributes:
        key: Name of the result's file: letters, digits, dots and hyphens.
        settings: Settings of the cell, as JSON.
        weight: Share of the progress bar.
        wanted: True if the cell is to be run. An unwanted cell with a result is shown all the same.
        needs: Key of a cell that must be done before; "" for none.
    """

    key: str
    settings: Values
    weight: int = 1
    wanted: bool = True
    needs: str = ""


@dataclass(frozen=True)
class Outcome:
    """A cell and its state.

    Attributes:
        cell: The cell.
        status: Done, failed or not run.
        values: Measurements as JSON; {} unless done.
        error: One line; "" unless failed.
    """

    cell: Cell
    status: Status = "not run"
    values: Values = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Findings:
    """Presentation of the cells that have results.

    Attributes:
        tables: Tables, at least one.
        figures: Figures, if enough cells are done.
        notes: Notes for the reader: the data, the segmenter, the paper's findings.
        values: Values computed from several cells together, as JSON by name; names differ from those in results.json.
        files: Further files, by name.
    """

    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    notes: tuple[str, ...]
    values: Values = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)


class Bound(Protocol):
    """An experiment with its data opened."""

    @property
    def settings(self) -> Values:
        """Settings that the results depend on, as JSON: a folder with other settings is refused."""

    @property
    def cells(self) -> Sequence[Cell]:
        """Cells in the order in which they are run and shown."""

    def run(self, cell: Cell, progress: Callable[[], None]) -> Values:
        """Run one cell; `progress` is called `cell.weight` times."""

    def show(self, outcomes: Sequence[Outcome]) -> Findings:
        """Present the cells that are done."""


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a paper.

    Attributes:
        name: Name on the command line, such as "002/figure1".
        title: One line.
        bind: Opens the data; raises `DposeError` if they cannot be used.
        tell: Line printed when a cell has finished, for long cells; None for none.
        reads: Digests of the originals in opened data that need protection and whose numbers and pictures are shown
            without noise: charged before anything is computed. None if cells charge the data that they read themselves.
        options: Fields of a request that are read; others are refused.
    """

    name: str
    title: str
    bind: Callable[[Request], Bound]
    tell: Callable[[Outcome], str] | None = None
    reads: Callable[[Any], Iterable[str]] | None = None
    options: tuple[str, ...] = ("data", "limit", "seed", "data_public")

    @property
    def trains(self) -> bool:
        """True if cells are trainings, of minutes or hours, reported one by one."""
        return self.tell is not None

    @property
    def folder(self) -> Path:
        """Default folder of the results."""
        return Path("runs") / self.name.replace("/", "-")
