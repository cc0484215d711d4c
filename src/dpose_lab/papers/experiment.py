"""What an experiment is, and what it hands over. `registry.py` lists them all.

An experiment is a list of cells, each run alone and kept in a file of its own, and a way to show the cells that are
there. The runner (`cells.py`) and the writer (`output.py`) know nothing of what a cell does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

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
    repeat: int = 1
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
    """What the user asked for.

    Attributes:
        data: Data specs; () for the experiment's own.
        limit: At most so many pictures (units) of each.
        segmenter: An ONNX file, with ",imagenet" behind it where its input is normalised so; "" for the classical one.
        seed: Of all noise: an experiment's figures can be made again, and protect nobody. None: of trainings fresh
            keys, which do protect; of everything else 0.
        quick: Run a named subset of the cells, once.
        external: "NAME:DIR", videos that somebody else's method made, for the row of that name.
        grid: Which trainings, and how; for experiments that train.
        processes: Cells that are run at once; an engine's workers.
        engine: Who runs them, as `dpose.engines.engine` has it, or "slurm"; "" for this machine.
        partition: The cluster's, for slurm; "local" for this machine.
        slurm: Settings of its jobs, KEY=VALUE.
        data_public: Whether nobody in the data needs protection; for experiments whose cells are no trainings.
        folder: Where the results go; the runner fills it in.
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
        """The seed of what is never private."""
        return self.seed or 0


@dataclass(frozen=True)
class Cell:
    """One setting.

    Attributes:
        key: Names its file; letters, digits, dots and hyphens.
        settings: What tells it from the others, as JSON.
        weight: Its share of the progress bar.
        wanted: Whether it is to be run. One that is not is shown all the same, where it was run before.
        needs: The key of a cell that must be done before; "" where there is none.
    """

    key: str
    settings: Values
    weight: int = 1
    wanted: bool = True
    needs: str = ""


@dataclass(frozen=True)
class Outcome:
    """A cell and what became of it.

    Attributes:
        cell: Which one.
        status: Done, failed or not run.
        values: What was measured, as JSON; {} unless done.
        error: One line; "" unless failed.
    """

    cell: Cell
    status: Status = "not run"
    values: Values = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Findings:
    """What is shown of the cells that are there.

    Attributes:
        tables: At least one.
        figures: Where enough cells are done to draw.
        notes: What the reader must know: what the data are, who segmented, what the paper says.
        values: What was computed of several cells together, as JSON by name; none of the names of results.json.
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
        """All that the results depend on, as JSON: a folder of other settings is refused."""

    @property
    def cells(self) -> Sequence[Cell]:
        """In the order in which they are run and shown."""

    def run(self, cell: Cell, progress: Callable[[], None]) -> Values:
        """Run one cell; `progress` is called `cell.weight` times.

        Raises:
            DposeError: the setting does not fit the data.
        """

    def show(self, outcomes: Sequence[Outcome]) -> Findings:
        """Tables and figures of whatever cells are done."""


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a paper.

    Attributes:
        name: As on the command line, "002/figure1".
        title: One line.
        bind: Opens the data; raises `DposeError` where they cannot be used.
        tell: What is printed of a finished cell at once, for cells that take long; None for nothing.
        reads: Digests of the originals in opened data that need protection and whose numbers and pictures are shown
            without noise: charged before anything is computed. None where cells charge what they read themselves.
        options: Which of a request's fields it reads; others are refused.
    """

    name: str
    title: str
    bind: Callable[[Request], Bound]
    tell: Callable[[Outcome], str] | None = None
    reads: Callable[[Any], Iterable[str]] | None = None
    options: tuple[str, ...] = ("data", "limit", "seed", "data_public")

    @property
    def trains(self) -> bool:
        """Whether its cells are trainings: minutes or hours each, told one by one."""
        return self.tell is not None

    @property
    def folder(self) -> Path:
        """Where its results go unless told otherwise."""
        return Path("runs") / self.name.replace("/", "-")
