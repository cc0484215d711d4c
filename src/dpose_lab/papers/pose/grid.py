"""A grid of trainings as an experiment: its cells, and the presentation of finished ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dpose.errors import DposeError
from dpose.files import file_digest
from dpose.pose.backbones import backbone_named
from dpose.pose.data import DataSpec
from dpose.pose.folder import WEIGHTS, find_model
from dpose.privacy.ranges import upper
from dpose.report.results import Figure, Table
from dpose.runs.config import RECIPES
from dpose.training.methods import METHODS
from dpose_lab.papers.experiment import Cell, Findings, GridRequest, Outcome, Request, Values
from dpose_lab.papers.pose.ablation import ablation_settings, check_options, choosing_splits, is_idle, variants_table
from dpose_lab.papers.pose.benchmarks import STRATEGIES, Design, Scale
from dpose_lab.papers.pose.differences import compared
from dpose_lab.papers.pose.figures import grid_figures
from dpose_lab.papers.pose.notes import grid_notes
from dpose_lab.papers.pose.pictures import side_by_side
from dpose_lab.papers.pose.run import run_training
from dpose_lab.papers.pose.settings import own_settings
from dpose_lab.papers.pose.tables import grid_tables
from dpose_lab.papers.pose.training_cell import OWN_SETTINGS, RECOMMENDED, START, Setup, Training


@dataclass(frozen=True)
class TrainingGrid:
    """A design bound to its data.

    Attributes:
        design: Design of the grid.
        options: The user's options.
        scale: Scale at which the grid is run.
        setup: Settings that all trainings share.
        folder: Folder of the results.
    """

    design: Design
    options: GridRequest
    scale: Scale
    setup: Setup
    folder: Path

    @classmethod
    def of(cls, design: Design, request: Request) -> TrainingGrid:
        """Make the grid from a request, with defaults for everything else."""
        options = request.grid
        _check(design, options)
        scale = design.scale(options)
        given = request.data or ((design.data,) if design.data else ())
        if len(given) != 1:
            raise DposeError(
                "data-given-several", "trains on one kind of data", design.name, "give one --data NAME[:ROOT][:SPLIT]"
            )
        data = DataSpec.parse(given[0])
        own, held_out = choosing_splits(data) if design.variants else _splits(data)
        own.located("train")
        splits = own.dataset.splits
        public = options.public or (str(replace(own, split="public")) if "public" in splits else None)
        if public:
            DataSpec.parse(public)
        evaluate = str(DataSpec.parse(options.evaluate).for_purpose("evaluate")) if options.evaluate else str(held_out)
        if options.init:
            find_model(options.init)
        pretrain = public if design.pretrain and not options.init else None
        setup = Setup(
            data=str(own),
            public=public,
            evaluate=evaluate,
            preset=backbone_named(options.preset or design.preset or own.dataset.preset).name,
            init=options.init,
            pretrain=pretrain,
            epochs=scale.epochs,
            batch_size=scale.batch_size,
            delta=design.delta,
            accountant=design.accountant,
            # the papers count people; where a picture shows one, they are the same
            unit="crop" if own.dataset.several else "image",
            optimizer=options.optimizer or "adamw",
            lr=scale.lr,
            ema=scale.ema,
            augment=scale.augment,
            limit=request.limit or scale.limit,
            tested=request.limit or scale.tested,
            seed=request.seed,
            # a start that has seen few public pictures often: by the public stage, or by a model made in the same way
            temperature=RECIPES[RECOMMENDED].temperature if design.pretrain else None,
        )
        setup.config(
            Training("non-private", "scratch"), request.folder
        )  # wrong values are refused before anything runs
        return cls(design, options, scale, setup, request.folder)

    @property
    def settings(self) -> Values:
        """Settings that a cell's result depends on, but not the list of cells: a grid may grow in its folder."""
        setup = self.setup
        # different weights under the same name give different results
        first = {"init_sha256": _weights_digest(find_model(setup.init))} if setup.init else {}
        if self.design.variants:
            return {**ablation_settings(setup), **first}
        stage = {"public_stage": RECIPES[RECOMMENDED].public} if setup.pretrain else {}
        return {**setup.values, **first, **stage}

    @property
    def cells(self) -> Sequence[Cell]:
        """The starting weights, then every setting and repetition, in the order of the table."""
        cells = []
        for training, wanted in self.design.trainings(self.options).items():
            if is_idle(self.setup, training, self.folder):
                continue
            starts = training.method == START
            for repetition in range(1, self.design.runs(training, self.options) + 1):
                one = replace(training, repetition=repetition)
                needs = START if self.setup.pretrain and not starts and training.strategy != "scratch" else ""
                cells.append(Cell(one.key, self._settings_of(one), 1, wanted, needs))
        return cells

    def run(self, cell: Cell, progress: Callable[[], None]) -> Values:
        """Train and test a cell.

        Raises:
            DposeError: the setting is not possible.
            KeyboardInterrupt: the training was stopped, and is saved.
        """
        values = run_training(self.setup, Training.of(cell.settings), self.folder, self._command())
        progress()
        return values

    def show(self, outcomes: Sequence[Outcome]) -> Findings:
        """Present tables, curves, heat maps and pictures."""
        ablates = bool(self.design.variants)
        tables = grid_tables(self.design, outcomes)
        notes = grid_notes(self.design, self.options, self.scale, self.setup, outcomes)
        # the curves would draw all variants as one
        figures = () if ablates else self._figures(outcomes)
        if self.design.tables:
            return Findings(tables, figures, notes)
        apart = compared(outcomes, self.folder)
        first, *others = tables
        more = [*([apart.table] if apart.pairs else []), *([self._variants()] if ablates else [])]
        return Findings((first, *more, *others), figures, (*notes, *apart.notes), apart.values)

    def _settings_of(self, training: Training) -> Values:
        if training.strategy == OWN_SETTINGS:
            own = own_settings(training.method, training.epsilon, self.setup.preset)
            return {**training.values, "own": own}
        if training.method != RECOMMENDED or training.variant:
            return training.values
        # the recipe may change: a result of an older recipe is then no result of this cell
        recipe, epsilon = self.setup.recipe, training.epsilon
        behind = {"behind": {**recipe.behind, "share": recipe.share}} if recipe.behind else {}
        steps = {"steps": asdict(recipe.steps)} if recipe.steps else {}
        return {**training.values, "recipe": recipe.at(epsilon), **behind, **steps}

    def _figures(self, outcomes: Sequence[Outcome]) -> tuple[Figure, ...]:
        people = side_by_side(self.design.name, self.setup, self.folder, outcomes, self.options.show_pictures)
        return (*grid_figures(self.design, outcomes), *([people] if people else []))

    def _variants(self) -> Table:
        return variants_table(self.setup, self.design.variants, max(self.scale.epsilons), self.folder)

    def _command(self) -> str:
        return f"dpose reproduce {self.design.name}"


def _splits(data: DataSpec) -> tuple[DataSpec, DataSpec]:
    """The data to train on, and those that are held out to test on."""
    own, source = data.for_purpose("train"), data.dataset
    split = "test" if "test" in source.splits else source.default["evaluate"]
    return own, replace(own, split=split)


def cell_line(outcome: Outcome) -> str:
    """Format one line about a finished cell."""
    if outcome.status != "done":
        return f"{outcome.cell.key}: {outcome.status}{': ' + outcome.error if outcome.error else ''}"
    columns = outcome.values["columns"]
    mean = columns["AP"] if "AP" in columns else columns["Mean"]
    score = "-" if mean is None else f"{mean:.2f}"
    spent = outcome.values["epsilon"]
    epsilon = "" if spent is None else f", epsilon {upper(spent)}"
    return f"{outcome.cell.key}: {score}{epsilon}, {outcome.values['seconds']:.0f} s"


def _check(design: Design, options: GridRequest) -> None:
    if design.variants:
        check_options(design.name, options)
    elif options.variants:
        raise DposeError(
            "option-needs-ablation", "are the rows of an ablation", f"{design.name} --variants", "leave it out"
        )
    for name, values, known in (
        ("--methods", options.methods, (*METHODS, RECOMMENDED)),
        ("--strategies", options.strategies, tuple(STRATEGIES)),
    ):
        for value in values:
            if value not in known:
                raise DposeError("setting-unknown", f"cannot be {value!r}", name, f"choose from {', '.join(known)}")
    for name, numbers in (("--epsilons", options.epsilons), ("--clip-norms", options.clip_norms)):
        if not all(math.isfinite(n) and n > 0 for n in numbers) or len(set(numbers)) != len(numbers):
            raise DposeError("values-malformed", "must be positive numbers, each once", name, "such as 0.2,0.8")


def _weights_digest(folder: Path) -> str:
    """Return the SHA-256 of the weights in `folder`, in hexadecimal."""
    try:
        return file_digest(folder / WEIGHTS)
    except OSError as error:
        raise DposeError(
            "weights-missing", "there are no weights", str(folder), "give the folder of a finished run"
        ) from error
