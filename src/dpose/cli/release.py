"""The commands that release pictures and videos: `dpose pixelize`, `dpose restore`, and `verify` for what they made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dpose.cli.options import expand_groups
from dpose.cli.release_options import (
    ABOUT,
    Again,
    Chroma,
    Colours,
    EngineName,
    Explain,
    ExplainPicture,
    FaceSize,
    OutputOptions,
    Protect,
    Public,
    Restore,
    Seed,
    about_of,
    asked_neighbours,
    draw_hidden,
    release_with,
    say_lines,
    say_preset,
    say_sum,
    tell_each,
)
from dpose.cli.remote import with_stores
from dpose.errors import DposeError

if TYPE_CHECKING:
    from dpose.release.regions import Regions


def register(app: typer.Typer) -> None:
    """Add this module's commands to the command line."""
    app.command(epilog="Example: dpose pixelize street/ --epsilon 2 --neighbours pixels:16 --out released/")(
        with_stores(expand_groups(pixelize), "paths")
    )
    app.command("restore", epilog="Example: dpose restore released/a.npz --restore tv a.png")(restore_archive)


def pixelize(
    paths: Annotated[list[str], typer.Argument(help="Pictures, videos, folders of them, globs.")],
    epsilon: Annotated[
        str,
        typer.Option(
            help="Privacy budget of each picture or clip, as a whole. 0.5, 2 or 1/3: taken exactly."
        ),
    ],
    output: OutputOptions,
    settings: Annotated[dict[str, Any], ABOUT],
    neighbours: Annotated[
        str | None,
        typer.Option(
            help="What is hidden: pixels:M of a picture or whole clip (default pixels:16); pixels:M/frame of every "
            "frame; box:WxH/frames:T (or /seconds:S) of any T frames of a clip, wherever the box lies."
        ),
    ] = None,
    protect: Protect = None,
    face_size: FaceSize = None,
    block: Annotated[
        str,
        typer.Option(
            help="Side of a block, pixels, or auto: chosen by budget, size and colour, never by the picture."
        ),
    ] = "auto",
    colour: Colours = None,
    chroma: Chroma = None,
    delta: Annotated[
        str, typer.Option(help="0: Laplace noise and pure differential privacy. Above 0: Gaussian noise.")
    ] = "0",
    subdivide: Annotated[
        int, typer.Option(help="Divide complex blocks into N x N parts; needs --regions.")
    ] = 1,
    regions: Annotated[
        str | None,
        typer.Option(
            help="Which blocks are complex: private, public:MASK or, in paper mode, paper:MASK (or paper)."
        ),
    ] = None,
    quantile: Annotated[
        float, typer.Option(help="private: above this share of the blocks' Sobel energies.")
    ] = 0.75,
    threshold: Annotated[
        float | None, typer.Option(help="private: above this Sobel magnitude in gray levels, instead.")
    ] = None,
    segmenter: Annotated[
        Path | None,
        typer.Option(help="private: an ONNX model that sees stage one's released picture, instead."),
    ] = None,
    stage_one: Annotated[str, typer.Option(help="private: stage one's share of the budget.")] = "1/2",
    paper: Annotated[
        int | None, typer.Option(help="Run the paper's Algorithm 1, 2 or 3 as printed. Guarantees nothing.")
    ] = None,
    restore: Restore = "learned",
    explain: Explain = False,
    explain_picture: ExplainPicture = None,
    jpeg: Annotated[bool, typer.Option("--jpeg", help="Write JPEG instead of PNG into a folder.")] = False,
    workers: Annotated[
        int, typer.Option(min=1, help="Pictures or frames in work at a time; an engine's processes.")
    ] = 1,
    engine: EngineName = None,
    public: Public = False,
    again: Again = False,
    seed: Seed = None,
) -> None:
    """Release pictures and videos under differential privacy, as blocks of noisy averages.

    Each release is counted, by what the picture shows: the same command again releases nothing twice, and another
    release of a picture says what both cost together and needs --again.
    """
    from dpose.release.batch import Work, release_all, skip_finished
    from dpose.release.config import Pixelization
    from dpose.release.explain import explain_release
    from dpose.release.jobs import find_jobs, record_names
    from dpose.release.plans import plan_of

    console = Console()
    config = Pixelization.of(
        epsilon,
        asked_neighbours(neighbours, protect, face_size, explain_picture, "pixels:16"),
        _block(block),
        delta=delta,
        subdivide=subdivide,
        regions=_regions(regions, quantile, threshold, segmenter, stage_one),
        paper=paper,
        colour=colour,
        chroma=chroma,
        restore=restore,
    )
    explain = explain or (explain_picture is not None and output.out is None)
    folder = output.folder(explain=explain)
    jobs = find_jobs(paths, folder, keep_names=output.keep_names, suffix=".jpg" if jpeg else ".png")
    jobs = jobs.said(about=about_of(settings))
    if explain_picture is not None:
        draw_hidden(jobs, config, explain_picture, face_size, released=False)
    say_preset(protect, face_size, console)
    if explain or protect is not None:
        for job in jobs:
            console.print(f"{job.source}:", highlight=False, soft_wrap=True)
            for line in explain_release(*plan_of(job.source, config), curve=explain):
                console.print(f"  {line}", highlight=False)
    if explain:
        return
    work = Work(config, seed=seed, keep_sound=output.keep_audio, public=public, again=again)
    if engine is not None:
        if explain_picture is not None:
            raise DposeError(
                "drawing-with-engine",
                "an engine's releases are not drawn on",
                "explain-picture",
                "leave one of them out",
            )
        release_with(engine, workers, jobs, work, output, console)
        return
    sifted = skip_finished(jobs, work, workers=workers, console=console)
    say_lines(sifted.lines, console)
    if not (todo := sifted.todo):
        return
    names = record_names(todo, folder)
    tell_each(
        lambda advance: release_all(todo, work, workers=workers, progress=advance),
        len(todo),
        None if any(job.video for job in todo) else 0,
        console,
    )
    if explain_picture is not None:
        draw_hidden(todo, config, explain_picture, face_size, released=True)
    say_sum(len(todo), console)
    output.say_names(names, console)


def restore_archive(
    archive: Annotated[Path, typer.Argument(help="An archive (.npz) that dpose pixelize wrote.")],
    out: Annotated[Path, typer.Argument(help="The picture: .png (bit for bit) or .jpg.")],
    restore: Annotated[
        str | None, typer.Option(help="learned, tv or none; by default as it was released.")
    ] = None,
) -> None:
    """Write the picture that an archive holds, with its statement; or restore it another way, at no cost."""
    from dpose.release.archive import restore_file

    method = restore_file(archive, out, restore).release["restoration"]["method"]
    how = "cells painted" if method == "none" else f"restored: {method}"
    Console().print(f"Restored into {out} ({how})", highlight=False, soft_wrap=True)


def verified(path: Path, console: Console) -> bool:
    """Verify released files at `path`; False where there are none, so that it may be a run.

    Raises:
        DposeError: a file has no statement, another file's, or one that does not add up.
    """
    from dpose.release.manifest import verify_manifest
    from dpose.release.verify import released_files, verify_release

    files = released_files(path)
    for file in files:
        _, line = verify_release(file)
        console.print(line, highlight=False)
    if line := verify_manifest(path):
        console.print(line, highlight=False, soft_wrap=True)
    return bool(files)


def _block(text: str) -> int | str:
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise DposeError(
            "block-malformed", f"must be auto or a whole number of pixels, not {text!r}", "block"
        ) from None


def _regions(
    text: str | None, quantile: float, threshold: float | None, segmenter: Path | None, share: str
) -> Regions | None:
    from dpose.release.config import exact
    from dpose.release.regions import PaperRegions, PrivateRegions, PublicRegions, onnx_segmenter

    kind, _, mask = (text or "").partition(":")
    if kind != "private" and (threshold is not None or segmenter is not None):
        raise DposeError("regions-missing", "--threshold and --segmenter need --regions private")
    if text is None:
        return None
    if text == "private":
        return PrivateRegions(
            quantile=quantile,
            threshold=threshold,
            segmenter=onnx_segmenter(segmenter) if segmenter else None,
            share=exact(share, "stage-one"),
            name=segmenter.name if segmenter else "",
        )
    if kind == "public" and mask:
        return PublicRegions.from_file(mask)
    if text == "paper":
        return PaperRegions()
    if kind == "paper" and mask:
        return PaperRegions(PublicRegions.from_file(mask).pixels)
    raise DposeError(
        "regions-malformed", f"must be private, public:MASK or paper:MASK, not {text!r}", "regions"
    )
