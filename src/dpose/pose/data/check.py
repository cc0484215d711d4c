"""Check of a dataset before training: its content, its problems, and a contact sheet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from dpose.engines import ItemEngine, run_items
from dpose.errors import DposeError
from dpose.media.drawing import draw_skeleton, picture_grid
from dpose.pose.crops import crop_transform, transform_points, warp
from dpose.pose.data.label_files import Problem, Problems, count_problems
from dpose.pose.data.pictures import Person
from dpose.pose.data.units import PoseUnits
from dpose.pose.skeletons import Skeleton

TILE = (256, 192)
_TILES = 24
_PROBLEMS_SHOWN = 20
_AT_ONCE = 16
"""Pictures that a worker checks in one task."""


@dataclass(frozen=True)
class DataReport:
    """Result of `check_data`.

    Attributes:
        lines: Lines of the dataset's own report.
        skeleton: Skeleton of the labels.
        pictures: Number of pictures decoded without error.
        people: Number of labelled people in them.
        visible: (J,), number of people with each joint labelled.
        crowds: (people in a picture, number of such pictures).
        heights: (3,), the 5th, 50th and 95th percentile of the people's box heights, picture pixels.
        problems: Problems of the label file, and pictures that cannot be decoded.
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
        parts.append(Text(f"{self.pictures:,} pictures decoded, {self.people:,} people. Pictures with {people}"))
        parts.append(Text(f"Boxes are {middle:.0f} pixels high in the middle, nine in ten {low:.0f} to {high:.0f}"))
        table = Table(box=box.SIMPLE_HEAD, title="Labelled joints")
        for name in ("joint", "people", "share"):
            table.add_column(name, justify="left" if name == "joint" else "right")
        for joint, count in zip(self.skeleton.joints, self.visible, strict=True):
            table.add_row(joint, f"{count:,}", f"{count / max(self.people, 1):.0%}")
        parts.append(table)
        # what was read all the same is said once a kind; what was lost, each by itself
        parts += [Text(line) for line in Problems(p for p in self.problems if p.action == "kept").summary()]
        lost = [p for p in self.problems if p.action != "kept"]
        parts += [Text(str(problem)) for problem in lost[:_PROBLEMS_SHOWN]]
        if len(lost) > _PROBLEMS_SHOWN:
            parts.append(Text(f"... and {len(lost) - _PROBLEMS_SHOWN:,} more"))
        parts.append(Text(count_problems(len(self.problems))))
        return Group(*parts)


@dataclass(frozen=True)
class PictureCheck:
    """Content of one picture.

    Attributes:
        name: The picture's name.
        people: Number of labelled people.
        visible: (J,), number of them with each joint labelled.
        heights: Heights of their boxes, picture pixels.
        tiles: Some of them, drawn.
        problem: Why it cannot be decoded; "" if it can.
    """

    name: str
    people: int = 0
    visible: NDArray[np.int64] | None = None
    heights: tuple[float, ...] = ()
    tiles: tuple[NDArray[np.uint8], ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class CheckWork:
    """Data that workers check.

    Attributes:
        data: The data spec.
        limit: Number of pictures, chosen by name.
    """

    data: str
    limit: int | None = None


def check_picture(units: PoseUnits, index: int) -> PictureCheck:
    """Decode picture `index` of a dataset, and count its labels."""
    pictures = units.pictures
    picture = pictures[index]
    try:
        image, people = picture.read()
    except DposeError as error:
        return PictureCheck(picture.name, problem=error.what)
    spread = np.linspace(0, max(len(pictures) - 1, 0), _TILES).astype(int)
    shown = index in spread or len(pictures) * 2 <= _TILES
    drawn = people[: max(1, _TILES // len(pictures))] if shown else []
    return PictureCheck(
        picture.name,
        len(people),
        sum((p.visible.astype(np.int64) for p in people), np.zeros(len(units.skeleton), np.int64)),
        tuple(float(p.box[3] - p.box[1]) for p in people),
        tuple(_tile(image, person, units) for person in drawn),
    )


def check_item(work: CheckWork, indices: range) -> list[PictureCheck]:
    """Run `check_picture` for some pictures, in a worker."""
    units = _opened(work)
    return [check_picture(units, index) for index in indices]


@lru_cache(1)
def _opened(work: CheckWork) -> PoseUnits:
    from dpose.pose.data.spec import DataSpec, open_data

    return open_data(DataSpec.parse(work.data), purpose="train", input_size=(256, 192), limit=work.limit)


def check_on_engine(
    units: PoseUnits, work: CheckWork, at: ItemEngine, advance: Callable[[], None] = lambda: None
) -> list[PictureCheck]:
    """Run `check_picture` for every picture of a dataset by an engine's workers, which open the same data."""
    total = len(units.pictures)
    items = [range(first, min(first + _AT_ONCE, total)) for first in range(0, total, _AT_ONCE)]
    results: dict[int, list[PictureCheck]] = {}
    for ended in run_items(at, check_item, items, shared=work):
        if ended.failure is not None:
            raise ended.failure.error
        results[ended.item.start] = ended.result or []
        for _ in ended.item:
            advance()
    return [one for first in sorted(results) for one in results[first]]


def check_data(
    units: PoseUnits, advance: Callable[[], None] = lambda: None, checked: Iterable[PictureCheck] | None = None
) -> tuple[DataReport, NDArray[np.uint8] | None]:
    """Decode every picture of a dataset, unless `checked` is given, count its labels, and draw some of them.

    Returns:
        The report, and a contact sheet: people spread evenly over the dataset, each cropped as for training with the
        labelled joints drawn; None for data without people. Both show the private data themselves.
    """
    problems = Problems(units.problems)
    visible = np.zeros(len(units.skeleton), np.int64)
    crowds: Counter[int] = Counter()
    heights: list[float] = []
    tiles: list[NDArray[np.uint8]] = []
    names: list[str] = []
    for one in checked if checked is not None else (check_picture(units, k) for k in range(len(units.pictures))):
        if one.visible is None:
            problems.add(one.problem, one.name)
        else:
            crowds[one.people] += 1
            visible += one.visible
            heights += one.heights
            tiles += one.tiles
            names += [one.name.rpartition("/")[2]] * len(one.tiles)
        if checked is None:
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
