"""`dpose predict`: a picture in, a drawn picture and a table of joints out."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table

from dpose.errors import DposeError
from dpose.media.images import read_image, write_image
from dpose.pose.folder import load_model
from dpose.pose.predict import draw_prediction, predict_image
from dpose.pose.skeletons import SKELETONS


def predict_file(folder: Path, picture: Path, out: Path, box: str | None = None) -> RenderableType:
    """Draw the joints that the model in `folder` finds in `picture` into `out`.

    Args:
        folder: A run or model folder.
        picture: A picture of one person.
        out: The drawn picture.
        box: "x0,y0,x1,y1" around the person; the whole picture when None.

    Returns:
        Joint, x, y (pixels of the picture) and score, ready to print; with a word where the scores mean nothing.

    Raises:
        DposeError: a file cannot be read or written, or the box is none.
    """
    image = read_image(picture)
    model = load_model(folder)
    skeleton = SKELETONS[model.config.skeleton]
    prediction = predict_image(model, image, parse_box(box) if box else None, flip_test=True)
    # every joint is drawn: the scores stand in the table, and a picture without a skeleton would explain nothing
    write_image(out, draw_prediction(image, prediction, skeleton, threshold=0.0))
    table = Table()
    for name in ("joint", "x", "y", "score"):
        table.add_column(name, justify="left" if name == "joint" else "right")
    for joint, (x, y), score in zip(skeleton.joints, prediction.keypoints, prediction.scores, strict=True):
        table.add_row(joint, f"{x:.1f}", f"{y:.1f}", f"{score:.2f}")
    chance = model.codec.chance()
    if float(np.median(prediction.scores)) > 2 * chance:
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
        raise DposeError("a box is x0,y0,x1,y1 in pixels", text) from error
    if not (x1 > x0 and y1 > y0 and all(map(math.isfinite, (x0, y0, x1, y1)))):
        raise DposeError("the box is empty", text, "x1 must exceed x0, y1 must exceed y0")
    return x0, y0, x1, y1
