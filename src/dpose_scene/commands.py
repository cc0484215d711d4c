"""`dpose scene`: look at the rendered people that need no download."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpose.cli.app import CommandEntry, GroupEntry

COMMANDS: dict[str, CommandEntry | GroupEntry] = {
    "scene": GroupEntry("Rendered people with exact labels: look at them.", heading="Rendered people (dpose_scene)"),
    "scene sheet": CommandEntry("dpose_scene.commands:sheet", "--look ward --count 24 --out sheet.png"),
}
"""The commands by the words that call them: for the entry point of the group `dpose.commands`."""


def sheet(
    out: Annotated[Path, typer.Option(help="The picture to write: .png or .jpg.")],
    look: Annotated[str, typer.Option(help="studio (public) or ward (private).")] = "ward",
    split: Annotated[str, typer.Option(help="train, val, test, public, large, larger or aids.")] = "val",
    count: Annotated[int, typer.Option(min=1, max=400, help="How many people.")] = 24,
    columns: Annotated[int, typer.Option(min=1, max=40, help="Pictures in a row.")] = 8,
    skeleton: Annotated[bool, typer.Option(help="Draw the true skeletons.")] = True,
) -> None:
    """Draw a contact sheet: the first pictures of a split, with their skeletons."""
    from rich.console import Console

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
