"""`dpose predict`: which model finds people, where they are looked for, and the table of one person's joints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table

from dpose.errors import DposeError
from dpose.pose import folder
from dpose.pose.blaze_codec import BlazePoseCodec
from dpose.pose.blaze_people import BlazePeople
from dpose.pose.codec import base_of
from dpose.pose.folder import find_model, load_model
from dpose.pose.model import PoseModel
from dpose.pose.people import ModelPeople, PeopleFinder
from dpose.pose.predict import for_prediction
from dpose.runs.tasks import on_device


@dataclass(frozen=True)
class Predictor:
    """What finds people, and what the command prints of it.

    Attributes:
        finder: On the device where there is one.
        called: Its name.
        chance: About what the joints' scores of an untrained model are; None if unknown.
    """

    finder: PeopleFinder
    called: str
    chance: float | None = None


def bundled_predictor(*, flip_test: bool) -> Predictor:
    """The finder of people that comes with dpose."""
    name = folder.PREDICTOR
    return model_predictor(find_model(name), flip_test=flip_test, called=name)


def model_predictor(run: Path, *, flip_test: bool, called: str = "") -> Predictor:
    """What finds people with the pose model of a run or model folder.

    A model that was made from BlazePose looks for everybody; any other for one person in each box, or in the whole
    picture.

    Args:
        run: The folder.
        flip_test: Average with the mirrored crop; BlazePose reads everybody twice instead.
        called: Its name; the backbone's where "".

    Raises:
        DposeError: the folder holds none that can be read.
    """
    model = load_model(run)
    called = called or model.config.preset
    if isinstance(base_of(model.codec), BlazePoseCodec):
        return Predictor(BlazePeople(model), called)
    ready = cast(PoseModel, on_device(for_prediction(model)))
    return Predictor(ModelPeople(ready, flip_test=flip_test), called, model.codec.chance())


def joint_table(document: Mapping[str, Any], chance: float | None = None) -> RenderableType | None:
    """Joint, x, y (pixels of the picture) and score of the one person of a document, ready to print.

    Args:
        document: As `dpose.runs.found_people.Document` makes it.
        chance: `Predictor.chance`: where most scores are near it, that is said.

    Returns:
        None unless there is exactly one person.
    """
    if len(document["annotations"]) != 1:
        return None
    joints = document["categories"][0]["keypoints"]
    rows = np.asarray(document["annotations"][0]["keypoints"]).reshape(-1, 3)
    table = Table()
    for name in ("joint", "x", "y", "score"):
        table.add_column(name, justify="left" if name == "joint" else "right")
    for joint, (x, y, score) in zip(joints, rows, strict=True):
        table.add_row(joint, f"{x:.1f}", f"{y:.1f}", f"{score:.2f}")
    if chance is None or float(np.median(rows[:, 2])) > 2 * chance:
        return table
    return Group(
        table, f"Most scores are near {chance:.2f}, what a model gives that knows nothing: train it longer."
    )


def parse_box(text: str) -> tuple[float, float, float, float]:
    """A box from "x0,y0,x1,y1".

    Raises:
        DposeError: it is none.
    """
    try:
        x0, y0, x1, y1 = (float(part) for part in text.split(","))
    except ValueError as error:
        raise DposeError("box-malformed", "a box is x0,y0,x1,y1 in pixels", text) from error
    if not (x1 > x0 and y1 > y0 and all(map(math.isfinite, (x0, y0, x1, y1)))):
        raise DposeError("box-empty", "the box is empty", text, "x1 must exceed x0, y1 must exceed y0")
    return x0, y0, x1, y1
