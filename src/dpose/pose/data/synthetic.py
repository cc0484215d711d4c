"""Rendered people with exact labels, for trying everything without private pictures."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dpose.extensions import rendered_people
from dpose.pose.crops import whole_frame
from dpose.pose.data.augment import Augment
from dpose.pose.data.labels import PoseDataset
from dpose.pose.data.pictures import Person, Picture
from dpose.pose.data.units import DEFAULT_CACHE_BYTES, PoseUnits, UnitKind

HEAD_SHARE = 0.6
"""MPII's head length as a share of the head box's diagonal."""
MOST_CACHE_BYTES = 2 * 2**30


def open_synthetic(
    look: str, split: str, *, input_size: tuple[int, int], augment: Augment | None = None, unit: UnitKind = "image"
) -> PoseUnits:
    """Open one split of a synthetic look: a picture a unit, one person a picture (`PoseDataset.open`).

    Scenes are rendered at the input size when they are first loaded, and the crop is the whole frame, so an
    un-augmented view is the rendered picture itself.
    """
    people = rendered_people()
    pictures = [
        Picture(
            f"{look}-{split}-{index:05d}",
            1,
            partial(_read, look, split, index, input_size),
            f"rendered-{people.identity_at(look, split, index)}",
        )
        for index in range(people.SPLITS[split])
    ]
    units = PoseUnits(
        pictures,
        input_size=input_size,
        augment=augment,
        unit=unit,
        padding=1.0,
        # rendering costs more than memory: a split stays there whole, 1.1 GiB at the most at 128x96
        cache_bytes=max(DEFAULT_CACHE_BYTES, min(len(pictures) * 3 * math.prod(input_size), MOST_CACHE_BYTES)),
    )
    units.report = (f"synthetic:{look}:{split}: {len(pictures):,} rendered pictures, one person in each",)
    return units


def _read(look: str, split: str, index: int, size: tuple[int, int]) -> tuple[NDArray[np.uint8], tuple[Person, ...]]:
    scene = rendered_people().render_at(look, split, index, size)
    x0, y0, x1, y1 = (float(v) for v in scene.head_box)
    person = Person(
        np.asarray(scene.keypoints, np.float32),
        np.asarray(scene.visible, bool),
        whole_frame(size),
        HEAD_SHARE * float(np.hypot(x1 - x0, y1 - y0)),
    )
    return scene.image, (person,)


DATASET = PoseDataset(
    root="look",
    roots=("studio", "ward"),
    public_roots=("studio",),
    rendered=True,
    splits=("train", "val", "test", "public", "large", "larger", "aids"),
    public_splits=("public", "aids"),
    default={"train": "train", "evaluate": "val"},
    open=open_synthetic,
    preset="nano",
    choosing=("train", "val"),
)
