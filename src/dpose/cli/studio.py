"""`dpose studio`: a page on this machine for whoever does not type commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpose.cli.options import plain_console
from dpose.errors import DposeError


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
            "package-missing", f"the studio needs {error.name}", "dpose studio", "pip install dpose[studio]"
        ) from error

    serve_studio(folder or [], out, port, browser=not no_browser, console=plain_console())
