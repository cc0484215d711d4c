"""`dpose reproduce`: open the data, run the missing cells, write and show the results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dpose.account import EXPERIMENT, PIXEL, charge, committing
from dpose.engines import ItemEngine, engine
from dpose.errors import DposeError
from dpose.privacy.marks import marks_of
from dpose.runs.scored import reading_charge
from dpose_lab.papers.engines import run_on_engine
from dpose_lab.papers.experiment import Bound, Experiment, GridRequest, Outcome, Request, Values
from dpose_lab.papers.experiment_cell import CELLS, check_claim, claim_folder, read_cells, run_cells
from dpose_lab.papers.output import write_results
from dpose_lab.papers.parallel import run_parallel
from dpose_lab.papers.registry import EXPERIMENTS
from dpose_lab.papers.slurm import job_settings, run_on_slurm
from dpose_lab.terminal import print_table


def experiment_named(name: str) -> Experiment:
    """Look up an experiment by name."""
    if name not in EXPERIMENTS:
        raise DposeError(
            "experiment-unknown", f"no experiment called {name!r}", fix=f"known are {', '.join(EXPERIMENTS)}"
        )
    return EXPERIMENTS[name]


def reproduce(name: str, request: Request, out: Path | None, console: Console) -> list[Outcome]:
    """Run an experiment, or its missing cells, and write the results; after Ctrl-C, write the results so far.

    Args:
        name: A key of `EXPERIMENTS`.
        request: Data and options.
        out: Folder of the results; by default the experiment's own. A folder with some results is completed.
        console: Console for progress, tables and notes.

    Returns:
        The outcome of each cell.

    Raises:
        DposeError: unknown name, unusable data, a folder of other results, or a budget stands for some of the data.
        KeyboardInterrupt: the run was stopped; results so far are written.
    """
    experiment = experiment_named(name)
    _check_options(experiment, request)
    folder = out or experiment.folder
    request = replace(request, folder=folder)
    with console.status("opening the data"):
        bound = experiment.bind(request)
    settings = {"experiment": name, **bound.settings}
    check_claim(folder, settings)
    # an unusable engine is refused before anything is charged or written
    with _workers(request) as at, committing(_reserved(experiment, request, bound, console)):
        claim_folder(folder, settings)
        return _results(experiment, request, bound, settings, console, at)


def _workers(request: Request) -> AbstractContextManager[ItemEngine | None]:
    """Open the requested engine; None if cells are run here, or as jobs."""
    if request.engine == "slurm":
        job_settings(request)
    if request.engine in ("", "slurm"):
        return nullcontext()
    return engine(request.engine, workers=request.processes)


def _reserved(experiment: Experiment, request: Request, bound: Bound, console: Console) -> str:
    """Charge what an experiment shows of protected originals, and name the charge; "" if it shows none.

    **Guarantee.** All such originals are read and reserved, in one charge, before anything is computed or written.
    Nothing bounds what numbers without noise and pictures with noise from a seed tell, so that a budget refuses it.
    """
    if experiment.reads is None or request.data_public:
        return ""
    with console.status("reading the pictures"):
        marks = marks_of(experiment.reads(bound))
    if not len(marks):
        return ""
    data = ", ".join(request.data) or experiment.name
    return charge(reading_charge(request.folder, data, marks, PIXEL, EXPERIMENT)).id


def _results(
    experiment: Experiment, request: Request, bound: Bound, settings: Values, console: Console, at: ItemEngine | None
) -> list[Outcome]:
    folder, failed = request.folder, dict[str, Outcome]()
    try:
        _run(experiment, request, bound, console, failed, at)
    finally:
        outcomes = [
            failed.get(outcome.cell.key, outcome) if outcome.status != "done" else outcome
            for outcome in read_cells(folder, bound.cells)
        ]
        with console.status("drawing"), _as_written(folder):
            findings = bound.show(outcomes)
            written = write_results(folder, experiment, settings, outcomes, findings)
        for table in findings.tables:
            print_table(table, console)
        for note in findings.notes:
            console.print(f"* {note}", highlight=False)
        console.print(f"\nWritten: {', '.join(map(str, written))}", highlight=False, soft_wrap=True)
        for outcome in failed.values():
            console.print(f"[bold red]failed[/]: {outcome.cell.key}: {outcome.error}", highlight=False, soft_wrap=True)
    return outcomes


@contextmanager
def _as_written(folder: Path) -> Iterator[None]:
    """Refuse cells whose files were edited so that they cannot be shown."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DposeError(
            "result-unshowable",
            f"holds a result that cannot be shown ({reason})",
            str(folder / CELLS),
            "delete what was changed there, and run again",
        ) from error


def _run(
    experiment: Experiment,
    request: Request,
    bound: Bound,
    console: Console,
    failed: dict[str, Outcome],
    at: ItemEngine | None,
) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    wanted = [cell for cell in bound.cells if cell.wanted]
    reported = {cell.key for cell in wanted}
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("trainings" if experiment.trains else "pictures", total=sum(cell.weight for cell in wanted))

        def advance(count: int) -> None:
            bar.advance(task, count)

        if request.engine == "slurm":
            outcomes = run_on_slurm(experiment.name, request, bound, request.folder, advance)
        elif at is not None:
            outcomes = run_on_engine(experiment.name, request, bound, request.folder, at, advance)
        elif request.processes > 1:
            outcomes = run_parallel(experiment.name, request, bound, request.folder, advance)
        else:
            outcomes = run_cells(bound, request.folder, advance)
        for outcome in outcomes:
            if outcome.status == "failed":
                failed[outcome.cell.key] = outcome
            if experiment.tell and outcome.cell.key in reported:
                console.print(experiment.tell(outcome), highlight=False, markup=False, soft_wrap=True)


def _check_options(experiment: Experiment, request: Request) -> None:
    """Refuse options that this experiment does not read."""
    odd: list[str] = []
    for one in fields(request):
        unread = one.name not in (*experiment.options, "folder")
        if unread and getattr(request, one.name) != one.default:
            odd += _flags(request.grid) if one.name == "grid" else [_flag(one.name)]
    if odd:
        read = ", ".join(_flag(name) for name in experiment.options if name != "grid")
        more = ", --core and the other options of trainings" if "grid" in experiment.options else ""
        raise DposeError("option-unknown", f"takes no {', '.join(odd)}", experiment.name, f"it takes {read}{more}")


def _flags(grid: GridRequest) -> list[str]:
    """Names of the given options of trainings."""
    return [_flag(one.name) for one in fields(grid) if getattr(grid, one.name) != one.default]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
