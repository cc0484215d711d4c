"""The options that say how released files are named."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dpose.errors import DposeError

KeepNames = Annotated[
    bool,
    typer.Option(
        "--keep-names", help="Keep the files' names. They are numbered otherwise: names may tell something."
    ),
]
Rename = Annotated[bool, typer.Option("--rename", hidden=True, help="What is done anyhow: number the files.")]


def check_names(keep_names: bool, rename: bool) -> None:
    """Refuse to both keep and replace names.

    Raises:
        DposeError: both are asked for.
    """
    if keep_names and rename:
        raise DposeError("--keep-names and --rename exclude each other")


def say_names(names: Path | None, keep_names: bool, console: Console) -> None:
    """Say where the originals' names are written down, or that they travel."""
    if names is not None:
        console.print(
            f"The files are numbered in the order of their names; which is which stands in {names}, for you alone.",
            highlight=False,
            soft_wrap=True,
        )
    if keep_names:
        console.print("File names were kept; they are public with the files.", highlight=False)
