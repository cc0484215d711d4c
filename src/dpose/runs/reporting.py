"""The report of a run, with pictures of people who need no protection."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from dpose.account import committing
from dpose.errors import DposeError
from dpose.pose.data import Augment, DataSpec, open_data
from dpose.pose.folder import load_model
from dpose.pose.skeletons import SKELETONS
from dpose.pose.whole_pictures import regions_for
from dpose.privacy.selection import Selection
from dpose.runs.build import shown_spec, watched
from dpose.runs.places import in_a_folder, places_known, run_config
from dpose.runs.scored import reserve_shown
from dpose.runs.tasks import task_entry

PICTURES = 12
WATCHED = 200
"""Units that are scored while training: few enough to cost little, a fixed choice by name."""


def make_report(
    folder: Path, *, pictures: str | None = None, show_pictures: bool = False, console: Console
) -> Path:
    """Write `report.html` into the run folder `folder`, from what stands there.

    Pictures in a report are releases. Without `show_pictures` only those of data declared public, or rendered, are
    shown; others are charged as what nothing bounds, and the file is readable by its owner alone (0600).

    Args:
        folder: A run folder.
        pictures: The data to show pictures of; by default what the run watched.
        show_pictures: Show them whatever they are.
        console: Where progress goes.

    Returns:
        The report.

    Raises:
        DposeError: there is no run, `pictures` names data that need protection and `show_pictures` is not given, or a
            budget stands for some of these.
    """
    # charts take most of a second to load, and a training does not wait for them to begin
    from dpose.runs.report.page import write_run_report
    from dpose.runs.report.pictures import PosePair, pose_tiles

    config = run_config(folder)
    if not task_entry(config.task).pictures:
        if pictures:
            raise DposeError(
                "pictures-unsupported",
                f"reports of {config.task} runs show no pictures",
                pictures,
                "leave --pictures out",
            )
        return write_run_report(
            folder, no_pictures=f"Reports of {config.task} runs show curves and scores, and no pictures."
        )
    spec = DataSpec.parse(pictures).for_purpose("evaluate") if pictures else watched(config)
    may_be_shown = spec is not None and spec.may_be_shown
    if pictures and not may_be_shown and not show_pictures:
        raise DposeError(
            "pictures-not-public",
            "a report shows no picture of data that are not declared public",
            pictures,
            "give --show-pictures if these may be seen by whoever reads the report",
        )
    tiles, reserved = list[PosePair](), ""
    if spec is None:
        why = "The run watched no data whose pictures could be shown; --pictures names some."
    elif not pictures and not places_known(folder) and in_a_folder(str(spec)):
        why = f"Where {shown_spec(spec)} lies is not known on this machine; --pictures names it."
    elif not (may_be_shown or show_pictures):
        why = f"{shown_spec(spec)} is not declared public; --show-pictures shows its pictures all the same."
    else:
        why = ""
        model = load_model(folder)
        units = open_data(
            spec,
            purpose="evaluate",
            input_size=model.config.input_size,
            augment=Augment.none(),
            limit=WATCHED,
            regions=regions_for(model.config),
        )
        units = units.with_skeleton(SKELETONS[model.config.skeleton]).limit(Selection(PICTURES))
        if not may_be_shown:
            reserved = reserve_shown(folder, units, name=shown_spec(spec), console=console)
        with console.status("drawing the report"):
            tiles = pose_tiles(model, units, PICTURES)
    with committing(reserved):
        return write_run_report(
            folder,
            tiles=tiles,
            pictures_of=shown_spec(spec) if spec else "",
            no_pictures=why,
            mode=0o600 if reserved else 0o644,
        )


def show_report(lines: Sequence[str], console: Console) -> None:
    """Print what a dataset says of itself."""
    for line in lines:
        console.print(line, highlight=False)
