"""What a dataset holds, what is wrong with it, and what it looks like: read before anything is trained on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from dpose.errors import DposeError
from dpose.media.drawing import draw_skeleton, picture_grid
from dpose.pose.crops import crop_transform, transform_points, warp
from dpose.pose.data.problems import Problem, Problems, count_problems
from dpose.pose.data.units import Person, PoseUnits
from dpose.pose.skeletons import Skeleton

TILE = (256, 192)
_TILES = 24
_TOLD = 20


@dataclass(frozen=True)
class DataReport:
    """What `check_data` found.

    Attributes:
        lines: What the dataset says of itself.
        skeleton: Of the labels.
        pictures: Decoded without complaint.
        people: Labelled people in them.
        visible: (J,), how many of them have each joint labelled.
        crowds: How many pictures show how many people.
        heights: (3,), the 5th, 50th and 95th percentile of the people's box heights, picture pixels.
        problems: Of the label file, and pictures that cannot be decoded.
    """

    lines: tuple[str, ...]
    skeleton: Skeleton
    pictures: int
    people: int
    visible: NDArray[np.int64]
    crowds: tuple[tuple[int, int], ...]
    heights: NDArray[np.float64]
    problems: tuple[Problem, ...]

    def __rich__(self) -> Group:
        parts: list[Text | Table] = [Text(line) for line in self.lines]
        people = ", ".join(f"{n} {'people' if n > 1 else 'person'}: {count:,}" for n, count in self.crowds)
        low, middle, high = self.heights
        parts.append(
            Text(f"{self.pictures:,} pictures decoded, {self.people:,} people. Pictures with {people}")
        )
        parts.append(
            Text(f"Boxes are {middle:.0f} pixels high in the middle, nine in ten {low:.0f} to {high:.0f}")
        )
        table = Table(box=box.SIMPLE_HEAD, title="Labelled joints")
        for name in ("joint", "people", "share"):
            table.add_column(name, justify="left" if name == "joint" else "right")
        for joint, count in zip(self.skeleton.joints, self.visible, strict=True):
            table.add_row(joint, f"{count:,}", f"{count / max(self.people, 1):.0%}")
        parts.append(table)
        parts += [Text(str(problem)) for problem in self.problems[:_TOLD]]
        if len(self.problems) > _TOLD:
            parts.append(Text(f"... and {len(self.problems) - _TOLD:,} more"))
        parts.append(Text(count_problems(len(self.problems))))
        return Group(*parts)


def check_data(
    units: PoseUnits, advance: Callable[[], None] = lambda: None
) -> tuple[DataReport, NDArray[np.uint8] | None]:
    """Decode every picture of a dataset, count what is labelled, and draw some of it.

    Args:
        units: The data.
        advance: Called after every picture.

    Returns:
        The report, and a contact sheet: people spread evenly over the dataset, each cropped as for training with the
        labelled joints drawn; None where there is nobody. Both show the data themselves: for whoever holds them.
    """
    problems = Problems(units.problems)
    visible = np.zeros(len(units.skeleton), np.int64)
    crowds: Counter[int] = Counter()
    heights: list[float] = []
    tiles: list[NDArray[np.uint8]] = []
    names: list[str] = []
    pictures = units.pictures
    shown = {int(i) for i in np.linspace(0, max(len(pictures) - 1, 0), _TILES)}
    for index, picture in enumerate(pictures):
        try:
            image, people = picture.read()
        except DposeError as error:
            problems.add(error.what, picture.name)
        else:
            crowds[len(people)] += 1
            visible += sum((p.visible.astype(np.int64) for p in people), np.zeros_like(visible))
            heights += [float(p.box[3] - p.box[1]) for p in people]
            if index in shown or len(pictures) * 2 <= _TILES:
                for person in people[: max(1, _TILES // len(pictures))]:
                    tiles.append(_tile(image, person, units))
                    names.append(picture.name.rpartition("/")[2])
        advance()
    spread = np.percentile(heights, [5, 50, 95]) if heights else np.full(3, np.nan)
    report = DataReport(
        units.report,
        units.skeleton,
        sum(crowds.values()),
        sum(n * count for n, count in crowds.items()),
        visible,
        tuple(sorted(crowds.items())),
        np.asarray(spread, np.float64),
        tuple(problems),
    )
    return report, picture_grid(tiles[:_TILES], 8, labels=names[:_TILES]) if tiles else None


def _tile(image: NDArray[np.uint8], person: Person, units: PoseUnits) -> NDArray[np.uint8]:
    matrix = crop_transform(person.box, TILE, units.padding)
    crop = draw_skeleton(
        warp(image, matrix, TILE),
        transform_points(matrix, person.keypoints),
        person.visible,
        units.skeleton.edges,
        units.skeleton.colours,
        thickness=2,
    )
    corners = np.round(transform_points(matrix, person.box.reshape(2, 2))).astype(int)
    cv2.rectangle(crop, corners[0].tolist(), corners[1].tolist(), (255, 255, 255), 1)
    return crop
