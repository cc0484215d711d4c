"""The report of a run, with pictures of people who need no protection."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from dpose.account import committing
from dpose.errors import DposeError
from dpose.pose.data import DataSpec
from dpose.pose.data.units import PoseUnits
from dpose.pose.folder import load_model
from dpose.pose.model import PoseModel
from dpose.pose.skeletons import SKELETONS
from dpose.privacy.selection import Selection
from dpose.runs.data import scored_units, watched
from dpose.runs.places import data_recorded, in_a_folder, places_known, run_config
from dpose.runs.tasks import task_entry, task_of

if TYPE_CHECKING:
    from dpose.report.page import PosePair

ZOOM = 2
PICTURES = 12
WATCHED = 200
"""Units that are scored while training: few enough to cost little, a fixed choice by name."""


def make_report(folder: Path, *, pictures: str | None = None, show_pictures: bool = False, console: Console) -> Path:
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
    """

    def written(**how: Any) -> Path:
        with console.status("writing the report"):
            return write_run_report(folder, **how)

    config = run_config(folder) if data_recorded(folder) else None
    if config is None and not pictures:
        why = "The run was made from Python, which records no data; of a pose model --pictures names some."
        return written(no_pictures=why)
    task = config.task if config else task_of(folder)
    if not task_entry(task).pictures:
        if pictures:
            raise DposeError(
                "pictures-unsupported", f"reports of {task} runs show no pictures", pictures, "leave --pictures out"
            )
        return written(no_pictures=f"Reports of {task} runs show curves and scores, and no pictures.")
    spec = watched(config) if config and not pictures else None
    if pictures:
        spec = DataSpec.parse(pictures).for_purpose("evaluate")
    may_be_shown = spec is not None and spec.may_be_shown
    if pictures and not may_be_shown and not show_pictures:
        raise DposeError(
            "pictures-not-public",
            "a report shows no picture of data that are not declared public",
            pictures,
            "give --show-pictures if all readers of the report may see these",
        )
    tiles: list[PosePair] = []
    reserved = ""
    if spec is None:
        why = "The run watched no data whose pictures could be shown; --pictures names some."
    elif not pictures and not places_known(folder) and in_a_folder(str(spec)):
        why = f"Where {spec.shown} lies is not known on this machine; --pictures names it."
    elif not (may_be_shown or show_pictures):
        why = f"{spec.shown} is not declared public; --show-pictures shows its pictures all the same."
    else:
        why = ""
        model = load_model(folder)
        units = scored_units(spec, model.config, WATCHED)
        units = units.with_skeleton(SKELETONS[model.config.skeleton]).limit(Selection(PICTURES))
        if not may_be_shown:
            from dpose.runs.scored import reserve_shown

            reserved = reserve_shown(folder, units, name=spec.shown, console=console)
        with console.status("drawing the report"):
            tiles = pose_tiles(model, units, PICTURES)
    with committing(reserved):
        return written(
            tiles=tiles, pictures_of=spec.shown if spec else "", no_pictures=why, mode=0o600 if reserved else 0o644
        )


def write_run_report(
    folder: Path, *, tiles: Sequence[PosePair] = (), pictures_of: str = "", no_pictures: str = "", mode: int = 0o644
) -> Path:
    """Write `report.html` into a run folder: one file that needs no other and loads nothing.

    Args:
        folder: A run folder; log, scores and statement may be missing.
        tiles: Pictures of people who need no protection, or who agreed: they are shown as they are.
        pictures_of: The data that the pictures are of.
        no_pictures: Why there are none.
        mode: Who may read the file.

    Returns:
        The file.

    Raises:
        DposeError: `folder` holds no run, its statement is none or claims less than its events cost, or the file cannot
            be written.
        ValueError: a picture is not uint8 (H, W, 3).
    """
    # charts take most of a second to load, and a training does not wait for them to begin
    from dpose.report.page import pictures_section, run_report
    from dpose.runs.reading import read_run

    run = read_run(folder)
    # a page that says "epsilon 8" in large letters must not take a file's word for it
    recomputed = run.statement.verify() if run.statement else None
    pictures = pictures_section(tiles, pictures_of, no_pictures)
    report = run_report(run, pictures, recomputed, datetime.now(UTC))
    (path,) = report.write(folder, page="report.html", text="", mode=mode)
    return path


def pose_tiles(model: PoseModel, units: PoseUnits, count: int = 12) -> list[PosePair]:
    """The first view of `count` units, chosen by name and not by how well they come out.

    **Guarantee.** None: a picture is a release. The units must be public, or held out with everyone's consent.

    Args:
        model: Predicts; on any device, its mode is left as it is.
        units: Not augmented.
        count: How many at most.
    """
    import cv2

    from dpose.media.drawing import draw_skeleton
    from dpose.pose.predict import predict_image
    from dpose.report.page import PosePair

    skeleton = SKELETONS[model.config.skeleton]
    chosen = units.limit(Selection(count))

    def drawn(image: NDArray[np.uint8], points: NDArray[np.float64], shown: NDArray[np.float64]) -> NDArray[np.uint8]:
        large = np.asarray(cv2.resize(image, None, fx=ZOOM, fy=ZOOM, interpolation=cv2.INTER_CUBIC), np.uint8)
        # pixel centres are whole numbers: the first pixel's centre moves from 0 to (ZOOM - 1) / 2
        return draw_skeleton(large, (points + 0.5) * ZOOM - 0.5, shown, skeleton.edges, skeleton.colours)

    tiles = []
    for index in range(len(chosen)):
        view = chosen.load(index, np.random.default_rng(0))[0]
        found = predict_image(model, view.image).keypoints
        tiles.append(
            PosePair(
                title=chosen.unit_id(index),
                true=drawn(
                    view.image, view.target["keypoints"].astype(np.float64), view.target["labelled"].astype(np.float64)
                ),
                predicted=drawn(view.image, found, np.ones(len(found))),
            )
        )
    return tiles


def show_report(lines: Sequence[str], console: Console) -> None:
    """Print what a dataset says of itself."""
    for line in lines:
        console.print(line, highlight=False)
