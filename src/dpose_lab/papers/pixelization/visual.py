"""Figures 2 and 7: released pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.release.partition import RegionSums
from dpose.report.results import Figure, Table
from dpose_lab.papers.experiment import Cell, Findings, Request, Values
from dpose_lab.papers.pixelization.data import PETS, PORTRAIT, Data, ShownOutcomes, averaged, cell_of, three
from dpose_lab.papers.pixelization.measure import MECHANISMS, Point, measure, painted, release_photo
from dpose_lab.papers.pixelization.points import PointsOnPhotos
from dpose_lab.papers.pixelization.segmenting import Segmenter, open_segmenter
from dpose_lab.photos.photo import Photo
from dpose_lab.plots import pictures

AXES: Mapping[str, tuple[Any, ...]] = {
    "b": (8, 12, 16, 20),
    "m": (16, 32, 64, 128),
    "epsilon": ("0.1", "0.5", "1", "1.5"),
}
FIGURE_7 = Point("", b=32, n=8, m=32)
PANELS = ("original", "reference mask", "blocks divided", "released", "found in original", "found in release")
Grey = NDArray[np.uint8]


@dataclass(frozen=True)
class Gallery(PointsOnPhotos):
    """Points on each photo, one cell a photo and point."""

    @property
    def cells(self) -> Sequence[Cell]:
        """Cells, one per photo and point."""
        return [
            cell_of(number, f"{index + 1}-{point.key}", {"photo": index + 1, **point.to_dict()}, 1)
            for number, photos in enumerate(self.data.sets)
            for index in range(len(photos))
            for point in self.points
        ]

    def run(self, cell: Cell, progress: Callable[[], None]) -> Values:
        """Measure one point on one photo."""
        settings = dict(cell.settings)
        photos = self.data.sets[settings.pop("data") - 1]
        photo = photos.load(settings.pop("photo") - 1)
        averages = averaged([measure(Point(**settings), photo, self.seed, self.segmenter)])
        progress()
        return averages


def figure_2(request: Request) -> Gallery:
    """Open the experiment of one picture under several b, m and epsilon."""
    data = Data.open(replace(request, limit=1), [PETS], 1)
    points = [
        replace(Point(mechanism), **{axis: value})
        for axis, values in AXES.items()
        for mechanism in ("dpose", "paper")
        for value in values
    ]
    return Gallery(data, tuple(dict.fromkeys(points)), request.noise_seed, None, _show_2)


def figure_7(request: Request) -> Gallery:
    """Open the experiment of six panels per portrait: original, masks, release, and segmentations of both."""
    data = Data.open(replace(request, limit=min(request.limit or 5, 5)), [PORTRAIT], 5, masks=True)
    points = tuple(replace(FIGURE_7, mechanism=mechanism) for mechanism in ("private", "paper"))
    return Gallery(data, points, request.noise_seed, open_segmenter(request.segmenter), _show_7)


def _show_2(gallery: Gallery, shown: ShownOutcomes) -> Findings:
    tables, drawings = [], []
    for number, photos in enumerate(gallery.data.sets):
        panels: list[tuple[str, Grey]] = []
        rows = []
        photo = photos.load(0)
        for axis, values in AXES.items():
            for mechanism in ("dpose", "paper"):
                panels.append((f"{axis}: {MECHANISMS[mechanism]}", photo.pixels))
                for value in values:
                    point = replace(Point(mechanism), **{axis: value})
                    key = f"{number + 1}-1-{point.key}"
                    panels.append((f"{axis} = {value}", _picture(shown, key, point, photo, gallery.seed)))
                    rows.append(
                        (
                            f"{axis} = {value}, {MECHANISMS[mechanism]}",
                            shown.text(key, "mse"),
                            shown.text(key, "ssim", three),
                        )
                    )
        name = f"figure2-{number + 1}" if len(gallery.data.sets) > 1 else "figure2"
        caption = f"{photos.title}: b = 16, m = 16, epsilon 0.5 unless a panel says otherwise"
        drawings.append(Figure(name, caption, png=pictures(panels, 5)))
        tables.append(Table(photos.title, ("setting", "MSE", "SSIM"), tuple(rows)))
    return Findings(tuple(tables), tuple(drawings), gallery.notes("figure2"))


def _show_7(gallery: Gallery, shown: ShownOutcomes) -> Findings:
    assert gallery.segmenter is not None
    tables, drawings = [], []
    for number, photos in enumerate(gallery.data.sets):
        panels: list[tuple[str, Grey]] = []
        rows = []
        for index in range(len(photos)):
            photo = photos.load(index)
            for point in gallery.points:
                key = f"{number + 1}-{index + 1}-{point.key}"
                panels += _six(shown, key, point, photo, gallery.seed, gallery.segmenter)
                measured = (shown.text(key, name, three) for name in ("iou", "dice", "mask_iou", "ssim"))
                rows.append((f"{photo.name}, {MECHANISMS[point.mechanism]}", *measured))
        name = f"figure7-{number + 1}" if len(gallery.data.sets) > 1 else "figure7"
        caption = (
            f"{photos.title}: b = 32, n = 8, m = 32, epsilon 0.5. Each picture twice: dpose's private regions, then "
            "the paper's Algorithm 3, whose divided blocks are the raw mask"
        )
        drawings.append(Figure(name, caption, png=pictures(panels, 6)))
        head = ("picture", "IoU", "Dice", "IoU of the partition alone", "SSIM")
        tables.append(Table(photos.title, head, tuple(rows)))
    return Findings(tuple(tables), tuple(drawings), gallery.notes("figure7"))


def _picture(shown: ShownOutcomes, key: str, point: Point, photo: Photo, seed: int) -> Grey:
    if shown.values(key) is None:
        return np.full_like(photo.pixels, 255)
    picture: Grey = release_photo(point, photo, seed)[0].picture()[:, :, 0]
    return picture


def _six(
    shown: ShownOutcomes, key: str, point: Point, photo: Photo, seed: int, segmenter: Segmenter
) -> list[tuple[str, Grey]]:
    blank = np.full_like(photo.pixels, 255)
    panels = [photo.pixels, blank if photo.mask is None else _white(photo.mask), blank, blank]
    panels += [_white(segmenter.find(photo.pixels)), blank]
    if shown.values(key) is not None:
        release, _ = release_photo(point, photo, seed)
        picture = release.picture()[:, :, 0]
        assert isinstance(release.cells, RegionSums)
        panels[2:4] = [_white(painted(release.cells)), picture]
        panels[5] = _white(segmenter.find(picture))
    titles = [f"{title}" for title in PANELS]
    titles[3] = MECHANISMS[point.mechanism]
    return list(zip(titles, panels, strict=True))


def _white(mask: NDArray[np.bool_]) -> Grey:
    return mask.astype(np.uint8) * np.uint8(255)
