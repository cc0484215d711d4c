"""The commands that dpose_lab adds to `dpose`: the entry point of the group `dpose.commands`."""

from __future__ import annotations

from collections.abc import Callable

import typer

from dpose.cli.audit import app as audit
from dpose_lab.cli.attack import app as attack
from dpose_lab.cli.audit import mechanism, membership, release
from dpose_lab.cli.reproduce import reproduce

PANEL = "Research (dpose_lab)"


def register(app: typer.Typer) -> None:
    """Add the commands.

    Args:
        app: The command line of dpose.
    """
    app.add_typer(attack, name="attack", rich_help_panel=PANEL)
    app.command(
        rich_help_panel=PANEL,
        epilog="Example: dpose reproduce 002/figure1 --data synthetic:ward:test --limit 50 --out runs/002-figure1",
    )(reproduce)
    examples: dict[Callable[..., None], str] = {
        membership: "membership --data synthetic:ward --epsilon 8 --delta 1e-5 --out runs/lira",
        mechanism: "mechanism gaussian --epsilon 1 --delta 1e-5",
        release: "release release-video --epsilon 4 --delta 1e-5 --plant half-noise",
    }
    for command, example in examples.items():
        audit.command(epilog=f"Example: dpose audit {example}", rich_help_panel=PANEL)(command)
