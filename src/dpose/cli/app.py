"""The `dpose` command: one function a verb. Heavy imports wait until a verb runs: `--help` answers at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dpose.cli import account, audit, clips, data, release, statement
from dpose.cli.data import Annotations, with_annotations
from dpose.cli.export import export
from dpose.cli.noised_score import NoisedScore
from dpose.cli.options import command_line, expand_groups, plain_console
from dpose.cli.plan import plan
from dpose.cli.predict import predict
from dpose.cli.remote import refuse_stores, with_stores
from dpose.cli.run_options import Limit, Seed
from dpose.cli.studio import studio
from dpose.cli.train import stop_if_interrupted, train
from dpose.cli.tune import tune
from dpose.errors import DposeError
from dpose.extensions import extensions

app = typer.Typer(
    name="dpose",
    epilog="Start with: dpose demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from dpose.interpreter import version_of

        print(version_of("dpose"))
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which dpose this is.")
    ] = False,
) -> None:
    """Differentially private human vision: train pose models privately, and prove it."""


app.add_typer(data.app, name="data")
app.add_typer(audit.app, name="audit")
app.add_typer(account.app, name="account")
app.add_typer(statement.app, name="statement")

app.command(
    "train",
    epilog="Example: dpose train --data lspet:/data/lspet:private --epsilon 8 --delta 1e-5 --out runs/a",
)(train)
app.command(
    "tune",
    epilog="Example: dpose tune --config examples/tune.yaml --epsilon 4 --delta 1e-5 --out runs/tuned",
)(tune)


app.command(
    "plan",
    epilog="Example: dpose plan --units 22146 --epochs 25 --batch-size 1024 --epsilon 0.8 --delta 4e-5; "
    "dpose plan --corpus 1000000 --size 1920x1080",
)(plan)


@app.command(epilog="Example: dpose evaluate runs/a --data lspet:/data/lspet:validation --epsilon 0.1")
@expand_groups
def evaluate(
    data: Annotated[str, typer.Option(help="NAME[:ROOT][:SPLIT]; the split defaults to validation.")],
    run: Annotated[
        Path | None,
        typer.Argument(
            help="A run or model folder, or the name of a model that comes with dpose. Default: that of predict."
        ),
    ] = None,
    annotations: Annotations = None,
    whole_pictures: Annotated[
        bool,
        typer.Option("--whole-pictures", help="Look for people in whole pictures; use no boxes."),
    ] = False,
    detections: Annotated[
        str | None,
        typer.Option(
            help="For AP: a detector's boxes (COCO results JSON), relative to ROOT. Default: the labels' own."
        ),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(help="Score this file instead of a model: COCO results JSON, or MPII's .mat or JSON."),
    ] = None,
    limit: Limit = None,
    out: Annotated[
        Path | None, typer.Option(help="A JSON file to write the score to, besides evaluations/ of the run.")
    ] = None,
    groups: Annotated[
        bool,
        typer.Option(
            "--groups",
            help="By groups of people: who pays for privacy. Of private data with --epsilon.",
        ),
    ] = False,
    before: Annotated[
        Path | None,
        typer.Option(help="With --groups: a model to compare with, as one trained without privacy."),
    ] = None,
    noised: NoisedScore = NoisedScore(),  # noqa: B008  (frozen)
) -> None:
    """Score a model: PCKh, OKS AP on COCO and Human-Art, top-1 of actions.

    Where none is named, the model that dpose predict takes. People are scored in the labels' boxes; with
    --whole-pictures they have to be found first, and whoever is not found counts as missed.

    The model's statement lists scores on held-out private data, and the account has them: as scores without noise,
    which a budget refuses. With --epsilon the score has noise and a price: the mean over units, or with --pooled all
    their joints.
    """
    console = plain_console()
    spec = with_annotations(data, annotations)
    if run is not None and predictions is not None:
        raise DposeError(
            "score-source-unclear", "a model is scored, or a file", "--predictions", "give one of them"
        )
    with_noise = noised.epsilon is not None
    if whole_pictures and (predictions or detections or with_noise or groups):
        raise DposeError(
            "whole-pictures-conflict",
            "a score of whole pictures uses no boxes, is without noise and of everybody",
            "--whole-pictures",
            "leave out the other option",
        )
    if out is not None and (predictions or (groups and not with_noise)):
        raise DposeError("out-with-predictions", "holds a score of a model", f"--out {out}", "leave it out")
    if groups or before:
        if predictions is not None or not groups or detections is not None or (with_noise and before):
            raise DposeError(
                "groups-conflict",
                "groups are of a model's own scores, with noise of one model by itself",
                "--groups",
            )
    elif with_noise and (predictions is not None or detections is not None):
        raise DposeError(
            "epsilon-with-predictions",
            "noise goes on scores of a model, of each unit by itself",
            "--epsilon",
            "leave out the other file",
        )
    asked = noised.asked()
    if predictions is not None:
        from dpose.runs.scoring import score_file

        console.print(score_file(predictions, spec, console))
        return
    model = _model(run, console)
    if asked is not None:
        from dpose.runs.group_scores import GROUPS
        from dpose.runs.noised_score import evaluate_noised

        asked = replace(asked, groups=GROUPS) if groups else asked
        found: object = evaluate_noised(model, spec, asked, limit=limit, out=out, console=console)
        console.print(found, highlight=False)
        return
    if groups:
        from dpose.runs.group_scores import evaluate_groups, group_table

        console.print(group_table(evaluate_groups(model, spec, before, limit=limit, console=console)))
        return
    from dpose.runs.evaluate import evaluate_run

    scores = evaluate_run(
        model,
        spec,
        limit=limit,
        detections=detections,
        whole_pictures=whole_pictures,
        out=out,
        console=console,
    )
    console.print(scores[0])


def _model(run: Path | None, console: Console) -> Path:
    """The model folder that is scored: of a path, of a name that comes with dpose, or what `dpose predict` takes."""
    from dpose.pose.folder import PREDICTOR, find_model

    if run is not None:
        return find_model(str(run))
    console.print(f"Model: {PREDICTOR}, which comes with dpose", highlight=False)
    return find_model(PREDICTOR)


@app.command(epilog="Example: dpose compare runs/a runs/b --out comparison.png")
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[Path, typer.Option(help="The picture to draw: .png, .svg or .pdf.")] = Path(
        "comparison.png"
    ),
) -> None:
    """Several runs in one table and one picture: what each guarantees beside how well it does."""
    if out.suffix not in (".png", ".svg", ".pdf"):
        raise DposeError(
            "drawing-suffix-unknown",
            "is no kind of picture that can be drawn",
            str(out),
            "name it .png, .svg or .pdf",
        )
    from dpose.runs.compare import comparison_table, draw_comparison, read_runs

    console = plain_console()
    found = read_runs(runs)
    console.print(comparison_table(found))
    draw_comparison(found, out)
    console.print(f"Drawn into {out}", highlight=False, soft_wrap=True)


app.command(epilog="Example: dpose predict photo.jpg; dpose predict runs/a photo.jpg --out photo-pose.png")(
    predict
)


app.command(epilog="Example: dpose export runs/a pose.onnx")(export)


app.command(epilog="Example: dpose studio --folder photos --folder runs")(studio)


@app.command(epilog="Example: dpose report runs/a")
def report(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    pictures: Annotated[
        str | None,
        typer.Option(help="Data to show pictures of: NAME[:ROOT][:SPLIT]. Default: what the run watched."),
    ] = None,
    show_pictures: Annotated[
        bool,
        typer.Option(
            "--show-pictures",
            help="Show pictures of data that are not declared public, too; the account counts them.",
        ),
    ] = False,
) -> None:
    """Write the run's report.html again: one file for a researcher as much as for an ethics board."""
    from dpose.runs.reporting import make_report

    console = plain_console()
    path = make_report(run, pictures=pictures, show_pictures=show_pictures, console=console)
    console.print(f"Written: {path}", highlight=False, soft_wrap=True)


def verify(
    run: Annotated[Path, typer.Argument(help="A run folder; or released pictures, archives, videos.")],
) -> None:
    """Recompute epsilon from the ledger or the statements; refuse what was altered, reordered or shortened."""
    console = plain_console()
    if release.verified(run, console):
        return
    from dpose.runs.verify import verify_run  # here, since it imports what trains

    for line in verify_run(run).lines:
        console.print(line, highlight=False)


app.command(epilog="Example: dpose verify runs/a")(with_stores(expand_groups(verify), "run"))


@app.command(epilog="Example: dpose keys runs/a --discard")
def keys(
    run: Annotated[
        str | None, typer.Argument(help="A run folder, or a name from the list. Default: list all.")
    ] = None,
    discard: Annotated[
        bool, typer.Option("--discard", help="Overwrite and delete the key: the run is given up.")
    ] = False,
) -> None:
    """The keys of private runs that were stopped and may go on; and how to be rid of one."""
    if (run is None) == discard:
        raise DposeError(
            "command-incomplete",
            "what shall be done?",
            fix="dpose keys lists them, dpose keys RUN --discard deletes one",
        )
    from dpose.runs.keys import discard_key, list_keys

    console = plain_console()
    if run is None:
        console.print(list_keys(), highlight=False)
        return
    console.print(discard_key(run), highlight=False, markup=False, soft_wrap=True)


@app.command(epilog="Example: dpose demo --out runs/demo")
def demo(
    out: Annotated[
        Path | None, typer.Option(help="The run folder; default: runs/demo, runs/demo-2, ...")
    ] = None,
    seed: Seed = None,
) -> None:
    """Train privately on a ward nobody may see, from public weights; print what it bought, and write a report."""
    from dpose.runs.demo import run_demo

    console = plain_console()
    stop_if_interrupted(run_demo(out, seed, console, command=command_line()), console)


release.register(app)
clips.register(app)
for added in extensions("commands"):
    added.register(app)


refuse_stores(app)
