"""Rendered people with exact labels, for trying everything without private pictures."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.extensions import rendered_people
from dpose.pose.crops import whole_frame
from dpose.pose.data.augment import Augment
from dpose.pose.data.labels import PoseDataset
from dpose.pose.data.pictures import Person, Picture
from dpose.pose.data.units import DEFAULT_CACHE_BYTES, PoseUnits, UnitKind
from dpose.pose.skeletons import MPII, WARD, Skeleton

HEAD_SHARE = 0.6
"""MPII's head length as a share of the head box's diagonal."""
MOST_CACHE_BYTES = 2 * 2**30


def labelled_skeleton(look: str, split: str, joints: str = MPII.name) -> Skeleton:
    """The skeleton that the option `joints` names: mpii, or ward for palms and footing too."""
    if joints not in (MPII.name, WARD.name):
        raise DposeError(
            "skeleton-unknown", "rendered people have no such joints", f"joints={joints}", "say joints=mpii or ward"
        )
    return WARD if joints == WARD.name else MPII


def open_synthetic(
    look: str,
    split: str,
    *,
    input_size: tuple[int, int],
    augment: Augment | None = None,
    unit: UnitKind = "image",
    joints: str = MPII.name,
) -> PoseUnits:
    """Open one split of a synthetic look: a picture a unit, one person a picture (`PoseDataset.open`).

    The skeleton is `labelled_skeleton`'s of `joints`. Scenes are rendered at the input size when they are first loaded,
    and the crop is the whole frame, so an un-augmented view is the rendered picture itself.
    """
    people, skeleton = rendered_people(), labelled_skeleton(look, split, joints)
    pictures = [
        Picture(
            f"{look}-{split}-{index:05d}",
            1,
            partial(_read, look, split, index, input_size, skeleton),
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
        skeleton=skeleton,
        # rendering costs more than memory: a split stays there whole, 1.1 GiB at the most at 128x96
        cache_bytes=max(DEFAULT_CACHE_BYTES, min(len(pictures) * 3 * math.prod(input_size), MOST_CACHE_BYTES)),
    )
    units.report = (f"synthetic:{look}:{split}: {len(pictures):,} rendered pictures, one person in each",)
    return units


def _read(
    look: str, split: str, index: int, size: tuple[int, int], skeleton: Skeleton
) -> tuple[NDArray[np.uint8], tuple[Person, ...]]:
    scene = rendered_people().render_at(look, split, index, size)
    x0, y0, x1, y1 = (float(v) for v in scene.head_box)
    points, seen = scene.of_ward
    person = Person(
        np.concatenate([scene.keypoints, points])[: len(skeleton)].astype(np.float32),
        np.concatenate([scene.visible, seen])[: len(skeleton)].astype(bool),
        whole_frame(size),
        HEAD_SHARE * float(np.hypot(x1 - x0, y1 - y0)),
        float(scene.mask.sum()),
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
    options=("joints",),
    open=open_synthetic,
    own_skeleton=labelled_skeleton,
    preset="nano",
    choosing=("train", "val"),
)
