"""A grid of trainings as an experiment: its cells, and what is shown of those that are done."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpose.errors import DposeError
from dpose.experiments.choices import shown_spec
from dpose.experiments.papers.experiment import Cell, Findings, GridRequest, Outcome, Request, Values
from dpose.experiments.papers.pose.designs import STRATEGIES, Design, Scale
from dpose.experiments.papers.pose.differences import compared
from dpose.experiments.papers.pose.drawing import grid_drawings
from dpose.experiments.papers.pose.pictures import side_by_side
from dpose.experiments.papers.pose.printed import Printed
from dpose.experiments.papers.pose.running import run_training
from dpose.experiments.papers.pose.tables import grid_tables
from dpose.experiments.papers.pose.testing import UPRIGHT_RULE
from dpose.experiments.papers.pose.trainings import RECOMMENDED, START, Setup, Training
from dpose.pose.data import SOURCES, DataSpec
from dpose.pose.folder import find_model
from dpose.training.methods import METHODS


@dataclass(frozen=True)
class Grid:
    """A design with its data named.

    Attributes:
        design: What it is made of.
        asked: What the user asked for.
        scale: What is run of it.
        setup: What all trainings share.
        folder: The results'.
    """

    design: Design
    asked: GridRequest
    scale: Scale
    setup: Setup
    folder: Path

    @classmethod
    def of(cls, design: Design, request: Request) -> Grid:
        """What was asked for, with everything else by default.

        Raises:
            DposeError: no data, several data, or a value that cannot be.
        """
        asked = request.grid
        _check(asked)
        scale = design.scale(asked)
        given = request.data or ((design.data,) if design.data else ())
        if len(given) != 1:
            raise DposeError("trains on one kind of data", design.name, "give one --data NAME[:ROOT][:SPLIT]")
        data = DataSpec.parse(given[0])
        own = data.for_purpose("train")
        if not own.root:
            raise DposeError(f"{own.name} needs {SOURCES[own.name].root}", given[0])
        if SOURCES[own.name].root == "a folder" and not own.folder.is_dir():
            raise DposeError("no such folder", own.root, f"write {own.name}:ROOT")
        splits = SOURCES[own.name].splits
        default = SOURCES[own.name].default["evaluate"]
        held_out = replace(own, split="test" if "test" in splits else default)
        public = asked.public or (str(replace(own, split="public")) if "public" in splits else None)
        if public:
            DataSpec.parse(public)
        evaluate = (
            str(DataSpec.parse(asked.evaluate).for_purpose("evaluate")) if asked.evaluate else str(held_out)
        )
        if asked.init:
            find_model(asked.init)
        pretrain = public if design.pretrain and not asked.init else None
        setup = Setup(
            data=str(own),
            public=public,
            evaluate=evaluate,
            preset=asked.preset or ("nano" if own.name in ("synthetic", "lspet") else "5m"),
            init=asked.init,
            pretrain=pretrain,
            pretrain_epochs=scale.pretrain_epochs if pretrain else 0.0,
            epochs=scale.epochs,
            batch_size=scale.batch_size,
            delta=design.delta,
            accountant=design.accountant,
            # the papers count people; where a picture shows one, they are the same
            unit="crop" if own.name in ("mpii", "coco", "humanart") else "image",
            optimizer=asked.optimizer or "adamw",
            lr=scale.lr,
            ema=scale.ema,
            augment=scale.augment,
            limit=request.limit or scale.limit,
            tested=request.limit or scale.tested,
            seed=request.seed,
        )
        setup.config(
            Training("non-private", "scratch"), request.folder
        )  # a wrong value is told before anything runs
        return cls(design, asked, scale, setup, request.folder)

    @property
    def settings(self) -> Values:
        """All that a cell's result depends on. Not which cells are run: a grid may grow in its folder."""
        return self.setup.values

    @property
    def cells(self) -> Sequence[Cell]:
        """The starting weights, then every setting and repetition, in the order of the table."""
        found = []
        for training, wanted in self.design.trainings(self.asked).items():
            starts = training.method == START
            for repetition in range(1, 2 if starts else self.asked.repeat + 1):
                one = replace(training, repetition=repetition)
                needs = START if self.setup.pretrain and not starts and training.strategy != "scratch" else ""
                found.append(Cell(one.key, one.values, 1, wanted, needs))
        return found

    def run(self, cell: Cell, progress: Callable[[], None]) -> Values:
        """Train and test once.

        Raises:
            DposeError: the setting is not possible.
            KeyboardInterrupt: it was stopped, and is saved.
        """
        values = run_training(self.setup, Training.of(cell.settings), self.folder, self._command())
        progress()
        return values

    def show(self, outcomes: Sequence[Outcome]) -> Findings:
        """Tables, curves, heat maps and pictures.

        Raises:
            DposeError: the data or a model cannot be read any more.
        """
        people = side_by_side(self.design.name, self.setup, self.folder, outcomes, self.asked.show_pictures)
        drawings = (*grid_drawings(self.design, outcomes), *([people] if people else []))
        tables, notes = grid_tables(self.design, outcomes), self._notes(outcomes)
        if self.design.tables:
            return Findings(tables, drawings, notes)
        apart = compared(outcomes, self.folder)
        first, *others = tables
        shown = (first, *([apart.table] if apart.told else []), *others)
        return Findings(shown, drawings, (*notes, *apart.notes), apart.values)

    def _command(self) -> str:
        return f"dpose reproduce {self.design.name}"

    def _notes(self, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
        setup, notes = self.setup, []
        core = "--core: " if self.asked.core else ""
        notes.append(f"{core}{_asked(self.scale, setup)}")
        notes.append(
            f"trained on {_shown(setup.data)}, tested on {_shown(setup.evaluate)}; nothing here was chosen on either"
        )
        notes.append(_start_note(setup))
        if setup.seed is None:
            notes.append(
                f"private cells draw fresh keys: each holds its own epsilon at delta {setup.delta:g} "
                f"({setup.accountant.upper()}), with statement and ledger in runs/. All of them read the same data: "
                "who sees several sees the composition (dpose account)"
            )
        else:
            notes.append(
                f"everything comes from seed {setup.seed}: the cells can be run again and protect nobody, and their "
                "statements say so"
            )
        notes.append(
            "clipped gradients are added as they are, as the papers print it: C weighs them beside a public gradient. "
            f"{setup.optimizer} "
            + (
                "undoes a common scale, so that C hardly scales its step"
                if "adam" in setup.optimizer.lower()
                else "takes a step in proportion to C"
            )
        )
        notes.append(
            "public-only is tested on sharp pictures and on public views; its guarantee and those of fdp-sgd and "
            "fpdp-sgd leave the public views and labels open"
        )
        if setup.public and any(
            method in METHODS and METHODS[method].projects
            for method in self.asked.methods or self.design.methods
        ):
            notes.append(f"subspaces are fitted on {_shown(setup.public)}, taken to be public")
        if self.asked.repeat > 1:
            notes.append(f"means and standard deviations over {self.asked.repeat} trainings")
        if any("upright" in outcome.values for outcome in outcomes):
            notes.append(UPRIGHT_RULE)
        return (*notes, *self.design.notes, *(n for table in self.design.tables for n in _minded(table)))


def _asked(scale: Scale, setup: Setup) -> str:
    def listed(values: Sequence[float]) -> str:
        return ", ".join(f"{value:g}" for value in values)

    def units(most: int | None) -> str:
        return f"at most {most:,} units" if most else "all units"

    return (
        f"strategies {', '.join(scale.strategies)}; epsilon {listed(scale.epsilons)}; C {listed(scale.clip_norms)}; "
        f"{setup.epochs:g} epochs over {units(setup.limit)} in batches of {setup.batch_size}; tested on "
        f"{units(setup.tested)}; preset {setup.preset}, {setup.optimizer}, learning rate {setup.lr:g}"
    )


def told(outcome: Outcome) -> str:
    """One line of a finished cell."""
    if outcome.status != "done":
        return f"{outcome.cell.key}: {outcome.status}{': ' + outcome.error if outcome.error else ''}"
    columns = outcome.values["columns"]
    mean = columns["AP"] if "AP" in columns else columns["Mean"]
    score = "-" if mean is None else f"{mean:.2f}"
    spent = outcome.values["epsilon"]
    epsilon = "" if spent is None else f", epsilon {spent:.4g}"
    return f"{outcome.cell.key}: {score}{epsilon}, {outcome.values['seconds']:.0f} s"


def _check(asked: GridRequest) -> None:
    for name, values, known in (
        ("--methods", asked.methods, (*METHODS, RECOMMENDED)),
        ("--strategies", asked.strategies, tuple(STRATEGIES)),
    ):
        for value in values:
            if value not in known:
                raise DposeError(f"cannot be {value!r}", name, f"choose from {', '.join(known)}")
    for name, numbers in (("--epsilons", asked.epsilons), ("--clip-norms", asked.clip_norms)):
        if not all(math.isfinite(n) and n > 0 for n in numbers) or len(set(numbers)) != len(numbers):
            raise DposeError("must be positive numbers, each once", name, "such as 0.2,0.8")


def _shown(spec: str) -> str:
    return shown_spec(DataSpec.parse(spec))


def _start_note(setup: Setup) -> str:
    if setup.pretrain:
        data = _shown(setup.pretrain)
        return (
            f"finetune and full start from a public model that learnt, from the weights that come with dpose, "
            f"{setup.pretrain_epochs:g} epochs from {data}: the cell called {START}"
        )
    first = (
        Path(setup.init).name if setup.init else f"the public weights of {setup.preset} that come with dpose"
    )
    return f"finetune and full start from {first}, shown as they are in the row of that name; scratch from nothing"


def _minded(table: Printed) -> tuple[str, ...]:
    return tuple(f"seed {table.name[:3]}, {table.name[4:]}: {note}" for note in table.notes)
