"""Pictures and videos released as noisy blocks, `dpose pixelize`, and their archives painted, `dpose restore`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpose.cli.options import Settings, option, plain_console
from dpose.cli.release_options import (
    ABOUT_CLASS,
    CountingNoised,
    EngineOptions,
    Hiding,
    OutputOptions,
    about_of,
    release_jobs,
    say_explained,
    say_lines,
)
from dpose.cli.settings import checked
from dpose.errors import DposeError

if TYPE_CHECKING:
    from dpose.release.regions import Regions


@dataclass(frozen=True)
class RegionChoice:
    """How complex blocks are chosen, which are divided into parts.

    Attributes:
        kind: private, public:MASK or, in paper mode, paper:MASK (or paper).
        quantile: Of private regions: a block is complex above this share of the blocks' Sobel energies.
        threshold: Of private regions: a block is complex above this Sobel magnitude in gray levels, instead.
        segmenter: Of private regions: an ONNX model that sees stage one's released picture, instead.
        share: Of private regions: stage one's share of the budget.
    """

    kind: str | None = None
    quantile: float = 0.75
    threshold: float | None = None
    segmenter: Path | None = None
    share: str = "1/2"


PIXELIZE = Settings(
    (("", "dpose.release.config:Pixelization"), ("regions.", "dpose.cli.release:RegionChoice"), ABOUT_CLASS),
    {"epsilon": (), "neighbours": (), "block": (), "delta": (), "restoration": ("--restore",)},
    required=("epsilon",),
    texts=("block", "delta"),
    left_out=("chosen",),
)


def pixelize_files(
    paths: Annotated[list[str], typer.Argument(help="Pictures, videos, folders of them, globs.")],
    output: OutputOptions,
    settings: Annotated[dict[str, Any], PIXELIZE],
    *,
    hiding: Hiding,
    jpeg: Annotated[bool, option("Write JPEG instead of PNG into a folder.", "--jpeg")] = False,
    at: EngineOptions,
    counting: CountingNoised,
) -> None:
    """Release pictures and videos under differential privacy, as blocks of noisy averages.

    Each release is counted by what the picture shows; another release of the same picture needs --again.
    """
    from dpose.media.kinds import left_out
    from dpose.release.config import AUTO, LEARNED, Pixelization
    from dpose.release.items import Work
    from dpose.release.jobs import find_jobs
    from dpose.release.plans import plan_of

    console = plain_console()
    about, spans = about_of(settings), output.spans()
    neighbours = settings.pop("neighbours", None)
    config = Pixelization.of(
        settings.pop("epsilon"),
        hiding.neighbours(neighbours, "pixels:16"),
        _block(str(settings.pop("block", AUTO))),
        regions=_regions(checked(RegionChoice, settings.pop("regions", {}), "regions.")),
        restore=settings.pop("restoration", LEARNED),
        **settings,
    )
    explain = hiding.only_explains(output)
    folder = output.folder(explain=explain)
    jobs = find_jobs(paths, folder, keep_names=output.keep_names, suffix=".jpg" if jpeg else ".png")
    say_lines(left_out(jobs.left), console)
    jobs = jobs.said(about=about)
    hiding.draw(jobs, config, spans, released=False)
    hiding.say_preset(console)
    if explain or hiding.protect is not None:
        say_explained(
            ((job.source, *plan_of(job.source, config, spans)) for job in jobs), console, hiding, alone=explain
        )
    if explain:
        return
    work = Work(config, keep_sound=output.keep_audio, spans=spans, **vars(counting))
    if at.engine is not None and hiding.explain_picture is not None:
        raise DposeError(
            "drawing-with-engine", "an engine's releases are not drawn on", "explain-picture", "leave one of them out"
        )
    if done := release_jobs(work, jobs, output, console, at):
        hiding.draw(done, config, spans, released=True)


def restore_archive(
    archive: Annotated[Path, typer.Argument(help="An archive (.npz) that dpose pixelize wrote.")],
    out: Annotated[Path, typer.Argument(help="The picture: .png (bit for bit) or .jpg.")],
    restore: Annotated[str | None, option("learned, tv or none; by default as it was released.")] = None,
) -> None:
    """Write the picture that an archive holds, with its statement; or restore it another way, at no cost."""
    from dpose.release.archive import restore_file

    method = restore_file(archive, out, restore).release["restoration"]["method"]
    how = "cells painted" if method == "none" else f"restored: {method}"
    plain_console().print(f"Restored into {out} ({how})", soft_wrap=True)


def _block(text: str) -> int | str:
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise DposeError(
            "block-malformed", f"must be auto or a whole number of pixels, not {text!r}", "block"
        ) from None


def _regions(choice: RegionChoice) -> Regions | None:
    from dpose.release.config import exact
    from dpose.release.regions import PaperRegions, PrivateRegions, PublicRegions, onnx_segmenter

    text, segmenter = choice.kind, choice.segmenter
    kind, _, mask = (text or "").partition(":")
    if kind != "private" and (choice.threshold is not None or segmenter is not None):
        raise DposeError("regions-missing", "regions.threshold and regions.segmenter need regions.kind=private")
    if text is None:
        return None
    if text == "private":
        return PrivateRegions(
            quantile=choice.quantile,
            threshold=choice.threshold,
            segmenter=onnx_segmenter(segmenter) if segmenter else None,
            share=exact(choice.share, "regions.share"),
            name=segmenter.name if segmenter else "",
        )
    if kind == "public" and mask:
        return PublicRegions.from_file(mask)
    if text == "paper":
        return PaperRegions()
    if kind == "paper" and mask:
        return PaperRegions(PublicRegions.from_file(mask).pixels)
    raise DposeError("regions-malformed", f"must be private, public:MASK or paper:MASK, not {text!r}", "regions.kind")
