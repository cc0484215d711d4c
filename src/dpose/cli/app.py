"""The `dpose` command: one function a verb. Heavy imports wait until a verb runs: `--help` answers at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpose.cli import account, audit, clips, data, release, statement
from dpose.cli.evaluate import evaluate
from dpose.cli.options import ByPackage, command_line, expand_groups, plain_console
from dpose.cli.plan import plan
from dpose.cli.predict import predict
from dpose.cli.remote import refuse_stores, with_stores
from dpose.cli.run_options import Seed
from dpose.cli.train import stop_if_interrupted, train
from dpose.cli.tune import tune
from dpose.errors import DposeError
from dpose.extensions import extensions

app = typer.Typer(
    name="dpose",
    cls=ByPackage,
    epilog="Start with: dpose demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 120},
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
    epilog="Example: dpose train --data lspet:/data/lspet:private --epsilon 8 --delta 1e-5 --out runs/a. "
    "All settings: dpose train --settings",
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


app.command(epilog="Example: dpose evaluate runs/a --data lspet:/data/lspet:validation --epsilon 0.1")(
    evaluate
)


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


@app.command(epilog="Example: dpose export runs/a pose.onnx")
def export(
    run: Annotated[Path, typer.Argument(help="A run or model folder.")],
    out: Annotated[Path, typer.Argument(help="The file to write, MODEL.onnx.")],
    pictures: Annotated[
        list[Path] | None,
        typer.Option(
            help="Pictures to compare the two models on (may be repeated). Default: parts of a photograph."
        ),
    ] = None,
) -> None:
    """Write a model as ONNX, after checking that it finds every joint where the model does."""
    from dpose.runs.export import export_run

    done = export_run(run, out, pictures or [])
    plain_console().print(
        f"Written: {done.path} ({done.bytes / 2**20:.1f} MiB). The same joints as the model's on {done.pictures} "
        f"picture{'' if done.pictures == 1 else 's'}; logits differ by at most {done.apart:.1e}",
        highlight=False,
        soft_wrap=True,
    )


@app.command(epilog="Example: dpose studio --folder photos --folder runs")
def studio(
    folder: Annotated[
        list[Path] | None,
        typer.Option(help="A folder that it may read: of pictures, clips or runs. May be given again."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where releases are written.")] = Path("released"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="To listen on; 0 for any that is free.")] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and open no browser.")
    ] = False,
) -> None:
    """A page on this machine: release pictures and clips, plan trainings, look at runs and at the account.

    Only this machine can reach it, with the address that is printed. It asks nothing of any other host.
    """
    try:
        from dpose.studio.server import serve_studio
    except ImportError as error:
        raise DposeError(
            "package-missing",
            f"the studio needs {error.name}",
            "dpose studio",
            "pip install starlette uvicorn",
        ) from error

    serve_studio(folder or [], out, port, browser=not no_browser, console=plain_console())


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
    """Train privately on rendered pictures of a ward, from public weights; print the result and write a report."""
    from dpose.runs.demo import run_demo

    console = plain_console()
    stop_if_interrupted(run_demo(out, seed, console, command=command_line()), console)


release.register(app)
clips.register(app)
for added in extensions("commands"):
    added.register(app)


refuse_stores(app)
