"""Commands that train: `dpose train`, `dpose tune` and `dpose demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpose.cli.cluster import CARRYING, Carrying, Cluster, Engine, places_in
from dpose.cli.options import TRAIN, Seed, check_given, command_line, option, plain_console
from dpose.cli.remote import stored_run
from dpose.errors import DposeError

if TYPE_CHECKING:
    from rich.console import Console

    from dpose.runs.tune import TunedRun
    from dpose.training.run import Run


def train_model(
    settings: Annotated[dict[str, Any], TRAIN],
    *,
    out: Annotated[Path | None, option("The run folder to make; must not exist.")] = None,
    config: Annotated[Path | None, option("A YAML file with the run's settings; what is typed overrides it.")] = None,
    explain: Annotated[bool, option("Say what the run would do, protect and cost, and stop.", "--explain")] = False,
    resume: Annotated[
        Path | None,
        option("A stopped run to go on with, with its own settings; on another machine give its data again."),
    ] = None,
    engine: Engine = None,
) -> None:
    """Train a pose or action model; with a private method, under a guarantee that its statement carries."""
    from dpose.files import check_free, check_place
    from dpose.remote import url_of

    console = plain_console()
    carrying = Carrying.taken_from(settings, engine)
    if resume is not None and (explain or config):
        said = "--explain" if explain else "--config"
        raise DposeError("option-beside-resume", "a stopped run has its own settings", said, "leave it out")
    if resume is None:
        if out is None and not explain and engine is None:
            raise DposeError("out-missing", "training needs a folder for the run", fix="give --out, or --explain alone")
        if out is not None and not explain and not url_of(out):
            check_free(out, may_be_empty=True, may_be_locked=True)
            check_place(out, may_stand=True)
        if config is None:
            check_given(settings)
    if engine is not None and not explain:
        if url_of(resume or out or ""):
            raise DposeError("out-in-store", "a job trains into a folder", "--out", "copy it into the store when done")
        cluster = Cluster(engine, carrying.job)
        raise typer.Exit(cluster.train(settings, config, out, resume, carrying.microbatch_size, console))
    from dpose.runs.config import RunConfig
    from dpose.runs.train import explain_task, resume_task, train_task

    run = None if resume is not None else RunConfig.from_options(settings, config)
    if explain and run is not None:
        with console.status("calibrating"):
            text = explain_task(run)
        console.print(text)
        return
    with stored_run(out, resume, console) as (here, stopped):
        if stopped is not None:
            _print_result(resume_task(stopped, console, places_in(settings)), console, stopped)
            return
        assert here is not None
        assert run is not None
        _print_result(train_task(run, here, console, carrying.microbatch_size, command=command_line()), console, here)


LAWS_HELP = (
    "The law of the number of trials K and its mean. geometric:10 is a good start; logarithmic:10 costs less and "
    "often draws only one or two; negative-binomial:0.5:10 lies between; poisson:10 seldom draws few, costs about the "
    "same at 10 and several times as much from 30 on, and may draw none. K is drawn once and never shown."
)


@dataclass(frozen=True)
class TuningBudget:
    """What a choice of settings may cost."""

    epsilon: Annotated[
        float | None,
        option("Of everything: every trial, every score and the choice. Default: plan.epsilon of the file."),
    ] = None
    delta: Annotated[float | None, option("Of everything, well below 1 / number of units. Default: the file's.")] = None


def tune(
    *,
    out: Annotated[Path, option("The run folder of the best trial; must not exist.")],
    config: Annotated[
        Path | None,
        option(
            "A YAML file: a run's settings, and under `grid` lists over keys of plan and optimizer; see "
            "examples/tune.yaml."
        ),
    ] = None,
    trials: Annotated[str, option(LAWS_HELP, metavar="LAW:MEAN")] = "geometric:10",
    budget: TuningBudget = TuningBudget(),
    explain: Annotated[
        bool, option("Say what one trial and all of them would cost; train and charge nothing.", "--explain")
    ] = False,
    discard: Annotated[
        bool, option("Give an unfinished choice for OUT up: delete its key and its trials.", "--discard")
    ] = False,
    engine: Engine = None,
    settings: Annotated[dict[str, Any], CARRYING],
) -> None:
    """Choose settings privately: train a random number of times, keep the best, and claim what all of it costs.

    Choosing by looking at scores has a price, too, that no statement names. Here it has one: about 1.3 to 2.7 times
    that of a single run (Papernot and Steinke 2022). Each trial draws its setting from the grid, learns from one part
    of the data and gets a noised score on the rest. How many trials there are, which lost and by how much stay secret,
    so nothing counts them while it runs. Stopped, the same command goes on where it was, at no further cost.
    """
    console = plain_console()
    carrying = Carrying.taken_from(settings, engine)
    if config is None and not discard:
        raise DposeError("grid-missing", "choosing needs a grid", fix="give --config FILE, such as examples/tune.yaml")
    from dpose.files import check_free
    from dpose.privacy.trial_law import TrialLaw
    from dpose.runs.tune import discard_tuning, explain_tuning, tune_runs
    from dpose.runs.tune_config import TuningConfig

    if discard:
        console.print(discard_tuning(out), soft_wrap=True)
        return
    assert config is not None
    law, grid = TrialLaw.parse(trials), TuningConfig.from_yaml(config, budget.epsilon, budget.delta)
    if explain:
        console.print(explain_tuning(grid, law, console))
        return
    views = carrying.microbatch_size
    if engine is not None:
        check_free(out, may_be_empty=True)
        memory = None if views is None else f"microbatch_size={views}"
        given = {"--trials": trials, "--epsilon": budget.epsilon, "--delta": budget.delta, "--set": memory}
        words = [word for name, value in given.items() if value is not None for word in (name, str(value))]
        raise typer.Exit(Cluster(engine, carrying.job).tune(config, out, words, console))
    try:
        done = tune_runs(grid, law, out, console, command=command_line(), microbatch_size=views)
    except KeyboardInterrupt:
        console.print(
            f"Stopped. The same command goes on, at no further cost; to give it up: dpose tune --discard --out {out}",
            soft_wrap=True,
        )
        raise
    _print_statement(done, console)


def demo(
    out: Annotated[Path | None, option("The run folder; default: runs/demo, runs/demo-2, ...")] = None,
    seed: Seed = None,
) -> None:
    """Train privately on rendered pictures of a ward, from public weights; print the result and write a report."""
    from dpose.runs.demo import run_demo

    console = plain_console()
    run = run_demo(out, seed, console, command=command_line())
    _stop_if_interrupted(run, console, run.folder)


def _print_result(run: Run, console: Console, out: Path) -> None:
    """Print what came of a run, in its first process; exit with 130 if it was stopped."""
    from dpose.training.distributed import process_group

    console.quiet = not process_group().first
    _print_statement(run, console)
    _stop_if_interrupted(run, console, out)


def _print_statement(run: Run | TunedRun, console: Console) -> None:
    console.print()
    console.print(run.statement.words().printed())
    console.print(
        f"\nModel, statement and ledger are in {run.folder}\n"
        f"The whole statement: dpose statement show {run.folder}\n"
        f"The report: {run.folder / 'report.html'}",
        soft_wrap=True,
    )


def _stop_if_interrupted(run: Run, console: Console, out: Path) -> None:
    """Exit with 130 if the run was stopped, after saying how to go on; `out` is that of the last run of a recipe."""
    if run.interrupted:
        how = f"dpose train --resume {run.folder}" if run.folder == out else "the same command again"
        console.print(
            f"Stopped after step {run.steps}; what is saved is complete and its statement true. "
            f"To go on: {how}"
            + (
                f". To give it up and delete its key: dpose keys {run.folder} --discard"
                if run.statement.kind == "private"
                else ""
            )
        )
        raise typer.Exit(130)
