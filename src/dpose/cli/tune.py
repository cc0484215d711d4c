"""`dpose tune`: choose settings by training a random number of times, and pay for the choice."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dpose.cli.cluster import CARRYING, Carrying, Cluster, Engine
from dpose.cli.options import command_line, expand_groups, plain_console
from dpose.errors import DposeError

LAWS_HELP = (
    "The law of the number of trials K and its mean. geometric:10 is a good start; logarithmic:10 costs less and "
    "often draws only one or two; negative-binomial:0.5:10 lies between; poisson:10 seldom draws few, costs about the "
    "same at 10 and several times as much from 30 on, and may draw none. K is drawn once and never shown."
)


@expand_groups
def tune(
    *,
    out: Annotated[Path, typer.Option(help="The run folder of the best trial; must not exist.")],
    config: Annotated[
        Path | None,
        typer.Option(
            help="A YAML file: a run's settings, and under `grid` lists over keys of plan and optimizer; see "
            "examples/tune.yaml."
        ),
    ] = None,
    trials: Annotated[str, typer.Option(metavar="LAW:MEAN", help=LAWS_HELP)] = "geometric:10",
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Of everything: every trial, every score and the choice. Default: plan.epsilon of the file."
        ),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Of everything, well below 1 / number of units. Default: the file's.")
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Say what one trial and all of them would cost; train and charge nothing.",
        ),
    ] = False,
    discard: Annotated[
        bool,
        typer.Option(
            "--discard", help="Give an unfinished choice for OUT up: delete its key and its trials."
        ),
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
        raise DposeError(
            "grid-missing", "choosing needs a grid", fix="give --config FILE, such as examples/tune.yaml"
        )
    from dpose.files import check_free
    from dpose.privacy.trial_law import TrialLaw
    from dpose.runs.tune import discard_tuning, explain_tuning, tune_runs
    from dpose.runs.tune_config import TuningConfig

    if discard:
        console.print(discard_tuning(out), highlight=False, soft_wrap=True)
        return
    assert config is not None
    law, grid = TrialLaw.parse(trials), TuningConfig.from_yaml(config, epsilon, delta)
    if explain:
        console.print(explain_tuning(grid, law, console), highlight=False)
        return
    views = carrying.microbatch_size
    if engine is not None:
        check_free(out, may_be_empty=True)
        memory = None if views is None else f"microbatch_size={views}"
        given = {"--trials": trials, "--epsilon": epsilon, "--delta": delta, "--set": memory}
        words = [word for name, value in given.items() if value is not None for word in (name, str(value))]
        raise typer.Exit(Cluster(engine, carrying.job).tune(config, out, words, console))
    try:
        done = tune_runs(grid, law, out, console, command=command_line(), microbatch_size=views)
    except KeyboardInterrupt:
        console.print(
            f"Stopped. The same command goes on, at no further cost; to give it up: dpose tune --discard --out {out}",
            highlight=False,
            soft_wrap=True,
        )
        raise
    console.print()
    console.print(done.statement.words().printed(), highlight=False)
    console.print(
        f"\nModel, statement and ledger are in {done.folder}\n"
        f"The whole statement: dpose statement show {done.folder}\n"
        f"The report: {done.folder / 'report.html'}",
        highlight=False,
        soft_wrap=True,
    )
