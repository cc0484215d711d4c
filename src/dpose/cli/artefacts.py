"""Commands on runs and releases that are there: compare, export, report, verify, keys; and the studio."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from dpose.cli.options import hanging, option, plain_console
from dpose.errors import DposeError, printable


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[
        Path | None, option("The picture to draw: .png, .svg or .pdf. Default: comparison.png, if scores were watched.")
    ] = None,
) -> None:
    """Several runs in one table and one picture: what each guarantees beside how well it does."""
    if out is not None and out.suffix not in (".png", ".svg", ".pdf"):
        raise DposeError(
            "drawing-suffix-unknown", "is no kind of picture that can be drawn", str(out), "name it .png, .svg or .pdf"
        )
    from dpose.runs.compare import comparison_table, curve_of, draw_comparison, read_runs

    console = plain_console()
    found = read_runs(runs)
    console.print(comparison_table(found))
    if out is None and not any(map(curve_of, found)):
        console.print("No picture is drawn: no run watched a score (data.validation_data).", soft_wrap=True)
        return
    out = out or Path("comparison.png")
    draw_comparison(found, out)
    console.print(f"Drawn into {out}", soft_wrap=True)


def export_onnx_file(
    run: Annotated[Path, typer.Argument(help="A run or model folder, or a model that comes with dpose.")],
    out: Annotated[Path, typer.Argument(help="The file to write, MODEL.onnx.")],
    pictures: Annotated[
        list[Path] | None,
        option("Pictures to compare the two models on (may be repeated). Default: parts of a photograph."),
    ] = None,
) -> None:
    """Write a model as ONNX, after checking that it finds every joint where the model does."""
    from dpose.pose.export import export_run

    console = plain_console()
    with console.status("exporting, and comparing with the model"):
        done = export_run(run, out, pictures or [])
    console.print(
        f"Written: {done.path} ({done.bytes / 2**20:.1f} MiB). The same joints as the model's on {done.pictures} "
        f"picture{'' if done.pictures == 1 else 's'}; logits differ by at most {done.apart:.1e}",
        soft_wrap=True,
    )


def studio(
    folder: Annotated[
        list[Path] | None, option("A folder that it may read: of pictures, clips or runs. May be given again.")
    ] = None,
    out: Annotated[Path, option("Where releases are written.")] = Path("released"),
    port: Annotated[int, option("To listen on; 0 for any that is free.", min=0, max=65535)] = 0,
    no_browser: Annotated[bool, option("Print the address, and open no browser.", "--no-browser")] = False,
) -> None:
    """A page on this machine: release pictures and clips, plan trainings, look at runs and at the account.

    Only this machine can reach it, with the address that is printed. It asks nothing of any other host.
    """
    try:
        from dpose.studio.server import serve_studio
    except ImportError as error:
        raise DposeError(
            "package-missing", f"the studio needs {error.name}", "dpose studio", "pip install starlette uvicorn"
        ) from error

    serve_studio(folder or [], out, port, browser=not no_browser, console=plain_console())


def report(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    pictures: Annotated[
        str | None, option("Data to show pictures of: NAME[:ROOT][:SPLIT]. Default: what the run watched.")
    ] = None,
    show_pictures: Annotated[
        bool,
        option("Show pictures of data that are not declared public, too; the account counts them.", "--show-pictures"),
    ] = False,
) -> None:
    """Write the run's report.html again: one file for a researcher as much as for an ethics board."""
    from dpose.runs.reporting import make_report

    console = plain_console()
    path = make_report(run, pictures=pictures, show_pictures=show_pictures, console=console)
    console.print(f"Written: {path}", soft_wrap=True)


def verify_artefacts(
    run: Annotated[
        list[Path], typer.Argument(help="Run folders; released pictures, archives or videos; folders of those.")
    ],
) -> None:
    """Recompute epsilon from the ledger or the statements; refuse what was altered, reordered or shortened."""
    console, failed = plain_console(), []
    paths = [Path(path) for path in run]  # text, of copies from a store
    for path in paths:
        try:
            for line in check_artefact(path):
                whose = "" if len(paths) == 1 or line.startswith(str(path)) else f"{path}: "
                console.print(hanging([printable(whose + line)], console), soft_wrap=True)
        except DposeError as error:
            if len(paths) == 1:
                raise
            failed.append(path)
            console.print(hanging([_failure(error)], console), soft_wrap=True)
    _refuse(failed, len(paths), "artefacts")


def _failure(error: DposeError) -> str:
    return f"does not hold: {error.line()} [{error.code}]"


def _refuse(failed: Sequence[Path], count: int, what: str, where: str = "") -> None:
    """Refuse several artefacts of which some do not hold, and of which each has been told of."""
    if failed:
        said = f"{len(failed)} of {count} {what} do not hold"
        raise DposeError("artefacts-not-verified", said, where, "the lines above say which, and why")


def check_artefact(path: Path) -> Iterator[str]:
    """Check a run or model folder, a count, a live source's days, or released files; say what was found, line by line.

    Raises:
        DposeError: something is missing, altered or does not add up; a folder holds what its own seal says nothing of
            and another's would, or a picture or video without a statement. All of several released files are checked
            first.
    """
    from dpose.measure import count_folders
    from dpose.media.kinds import named
    from dpose.release.manifest import MANIFEST, verify_manifest
    from dpose.release.verify import released_files, verify_release

    if not path.exists():
        raise DposeError("artefact-missing", "there is no such file or folder", str(path))
    if path.is_dir() and not any(path.iterdir()):
        raise DposeError("folder-empty", "is an empty folder", str(path))
    if days := count_folders(path):
        from dpose.measure.folder import verify_folder

        for day in days:
            yield from (line if day == path else f"{day.name}: {line}" for line in verify_folder(day))
        return
    files, failed = released_files(path), []
    for file in files.released:
        try:
            yield verify_release(file)[1]
        except DposeError as error:
            if len(files.released) == 1:
                raise
            failed.append(file)
            yield _failure(error)
    if line := verify_manifest(path):
        yield line
    if others := [file for file in files.others if file.name != MANIFEST]:
        names = named([str(file.relative_to(path)) for file in others])
        yield f"{path}: not looked at, as neither picture nor video: {len(others):,} ({names})"
    _refuse(failed, len(files.released), "released files", str(path))
    if files.released:
        return
    from dpose.runs.verify import verify_run  # here, since it imports what trains

    yield from verify_run(path).lines


def keys(
    run: Annotated[str | None, typer.Argument(help="A run folder, or a name from the list. Default: list all.")] = None,
    discard: Annotated[bool, option("Overwrite and delete the key: the run is given up.", "--discard")] = False,
) -> None:
    """The keys of private runs that were stopped and may go on; and how to be rid of one."""
    if (run is None) == discard:
        fix = "dpose keys lists them, dpose keys RUN --discard deletes one"
        raise DposeError("command-incomplete", "what shall be done?", fix=fix)
    from dpose.runs.keys import discard_key, list_keys

    console = plain_console()
    if run is None:
        console.print(list_keys())
        return
    console.print(discard_key(run), soft_wrap=True)
