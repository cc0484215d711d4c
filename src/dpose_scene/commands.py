"""`dpose scene`: look at the rendered people that need no download."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(help="Rendered people with exact labels: look at them.", no_args_is_help=True)


@app.callback()
def scene() -> None:
    """Rendered people with exact labels: look at them."""


@app.command(epilog="Example: dpose scene sheet --look ward --count 24 --out sheet.png")
def sheet(
    out: Annotated[Path, typer.Option(help="The picture to write: .png or .jpg.")],
    look: Annotated[str, typer.Option(help="studio (public) or ward (private).")] = "ward",
    split: Annotated[str, typer.Option(help="train, val, test, public, large or aids.")] = "val",
    count: Annotated[int, typer.Option(min=1, max=400, help="How many people.")] = 24,
    columns: Annotated[int, typer.Option(min=1, max=40, help="Pictures in a row.")] = 8,
    skeleton: Annotated[bool, typer.Option(help="Draw the true skeletons.")] = True,
) -> None:
    """Draw a contact sheet: the first pictures of a split, with their skeletons."""
    from dpose.media.images import write_image
    from dpose_scene.aids import choose_scene
    from dpose_scene.render import render_person
    from dpose_scene.sheet import contact_sheet

    console = Console()
    with console.status("rendering"):
        chosen = [choose_scene(look, split, index) for index in range(count)]
        scenes = [render_person(look, one.seed, action=one.action, aid=one.aid) for one in chosen]
        write_image(out, contact_sheet(scenes, columns=min(columns, count), skeleton=skeleton))
    console.print(f"Drawn into {out}", highlight=False, soft_wrap=True)


def register(command_line: typer.Typer) -> None:
    """Add `dpose scene`: the entry point of the group `dpose.commands`.

    Args:
        command_line: The command line of dpose.
    """
    command_line.add_typer(app, name="scene", rich_help_panel="Rendered people (dpose_scene)")
