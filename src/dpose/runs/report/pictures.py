"""Pictures for a report: the true and the predicted skeleton side by side."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.media.drawing import draw_skeleton
from dpose.media.images import encode_image
from dpose.pose.data.units import PoseUnits
from dpose.pose.model import PoseModel
from dpose.pose.predict import predict_image
from dpose.pose.skeletons import SKELETONS
from dpose.privacy.selection import Selection
from dpose.report.markup import Html, tag

ZOOM = 2
LARGEST = 384
"""Longer sides are scaled down to this: pictures are shown in columns of some 150 pixels."""
BUDGET = 2_000_000
"""Bytes that all pictures of a page may take together."""
QUALITIES = (88, 75, 60, 40, 20)


@dataclass(frozen=True)
class Tile:
    """One person, drawn twice.

    Attributes:
        title: The unit's name.
        true: uint8, (H, W, 3) RGB, with the labels drawn in.
        predicted: The same picture with the prediction drawn in.
    """

    title: str
    true: NDArray[np.uint8]
    predicted: NDArray[np.uint8]


def pose_tiles(model: PoseModel, units: PoseUnits, count: int = 12) -> list[Tile]:
    """The first view of `count` units, chosen by name and not by how well they come out.

    **Guarantee.** None: a picture is a release. The units must be public, or held out with everyone's consent.

    Args:
        model: Predicts; on any device, its mode is left as it is.
        units: Not augmented.
        count: How many at most.

    Raises:
        DposeError: `count` is below 1.
    """
    skeleton = SKELETONS[model.config.skeleton]
    chosen = units.limit(Selection(count))

    def drawn(
        image: NDArray[np.uint8], points: NDArray[np.float64], shown: NDArray[np.float64]
    ) -> NDArray[np.uint8]:
        large = np.asarray(cv2.resize(image, None, fx=ZOOM, fy=ZOOM, interpolation=cv2.INTER_CUBIC), np.uint8)
        # pixel centres are whole numbers: the first pixel's centre moves from 0 to (ZOOM - 1) / 2
        return draw_skeleton(large, (points + 0.5) * ZOOM - 0.5, shown, skeleton.edges, skeleton.colours)

    tiles = []
    for index in range(len(chosen)):
        view = chosen.load(index, np.random.default_rng(0))[0]
        found = predict_image(model, view.image).keypoints
        tiles.append(
            Tile(
                title=chosen.unit_id(index),
                true=drawn(
                    view.image,
                    view.target["keypoints"].astype(np.float64),
                    view.target["labelled"].astype(np.float64),
                ),
                predicted=drawn(view.image, found, np.ones(len(found))),
            )
        )
    return tiles


def tile_figures(tiles: Sequence[Tile]) -> list[Html]:
    """A figure for each tile, its pictures inside it, all of them within `BUDGET` bytes.

    Raises:
        ValueError: a picture is not uint8 (H, W, 3), or there are far too many.
    """
    small = [(tile.title, _fitted(tile.true), _fitted(tile.predicted)) for tile in tiles]
    for quality in QUALITIES:
        encoded = [(title, *(_data_uri(image, quality) for image in pair)) for title, *pair in small]
        if sum(len(uri) for _, *uris in encoded for uri in uris) <= BUDGET:
            break
    else:
        raise ValueError(f"{len(tiles)} pictures do not fit on a page")
    figures = []
    for (title, true, predicted), (_, true_uri, predicted_uri) in zip(small, encoded, strict=True):
        pair = tag(
            "div",
            _image(true_uri, true, f"{title}: the labelled skeleton"),
            _image(predicted_uri, predicted, f"{title}: the predicted skeleton"),
            class_="pair",
        )
        figures.append(tag("figure", pair, tag("figcaption", title), class_="tile"))
    return figures


def _fitted(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    ratio = LARGEST / max(image.shape[:2])
    if ratio >= 1:
        return image
    size = (max(1, round(image.shape[1] * ratio)), max(1, round(image.shape[0] * ratio)))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)


def _data_uri(image: NDArray[np.uint8], quality: int) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(encode_image(image, ".jpg", quality)).decode("ascii")


def _image(uri: str, image: NDArray[np.uint8], alt: str) -> Html:
    height, width = image.shape[:2]
    return tag("img", src=uri, alt=alt, width=width, height=height)
