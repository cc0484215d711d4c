"""`dpose export`: a model for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpose.cli.options import plain_console


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
