"""People in a picture by BlazePose: its detector over a pyramid of tiles, its landmark network on each person found.

The detector was made for one or two people who fill a picture. People of any size are found by showing it overlapping
square tiles, too; what is found twice is told apart by the joints, since boxes of people who embrace overlap as much as
boxes of one person found twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpose.files import SHIPPED
from dpose.pose.blazepose import DETECTOR_SIDE, SIDE, BlazePose, BlazePoseDetector, fold_scales, refined
from dpose.pose.crops import Matrix, crop_transform, invert, transform_points, warp, whole_frame
from dpose.pose.data.detections import Box
from dpose.pose.people import Person
from dpose.pose.predict import Pose
from dpose.pose.skeletons import BLAZEPOSE

CENTRE, TOP = 33, 34
"""The points that a landmark network gives besides the joints: the middle of the hips, and a point above the head on
the circle about it that holds the whole body."""
ROOM = 1.25
"""How much larger than that circle the crop is."""


@dataclass(frozen=True)
class Settings:
    """How people are looked for.

    Attributes:
        least: Detections with a lower score are left out.
        present: People whose crop shows somebody with a lower probability are left out.
        tiles: Sides of the pyramid's tiles as shares of the picture's shorter side.
        step: From one tile to the next, as a share of the side at most.
    """

    least: float = 0.4
    present: float = 0.5
    support: float = 3.0
    tiles: tuple[float, ...] = (1.0, 0.66, 0.45, 0.3)
    step: float = 0.4


class BlazePeople:
    """Finds people by BlazePose (`dpose.pose.people.PeopleFinder`).

    Args:
        detector: In evaluation mode.
        network: A landmark network.
        settings: How people are looked for.
    """

    skeleton = BLAZEPOSE

    def __init__(
        self, detector: BlazePoseDetector, network: BlazePose, settings: Settings = Settings()
    ) -> None:
        self._detector, self._network, self.settings = detector, network, settings
        self._anchors = detector.anchors()

    @classmethod
    def load(cls, folder: Path, settings: Settings = Settings()) -> BlazePeople:
        """The finder with the landmark network in `folder` and the detector that comes with dpose."""
        detector, network = BlazePoseDetector(), BlazePose(folder.name)
        for module, path in (
            (detector, SHIPPED / "blazepose" / "detector.safetensors"),
            (network, folder / "model.safetensors"),
        ):
            module.load_state_dict(safetensors.torch.load_file(path))
            fold_scales(module)
            module.eval().requires_grad_(False).to(memory_format=torch.channels_last)
        return cls(detector, network, settings)

    def __call__(
        self,
        image: NDArray[np.uint8],
        boxes: Sequence[Box] | None = None,
        before: Sequence[Person] = (),
    ) -> list[Person]:
        """See `PeopleFinder`."""
        if boxes is not None:
            return self._read(image, [self.turned(image, box) for box in boxes])
        found = self._detections(image, [whole_frame(image.shape[:2])])  # type: ignore[arg-type]
        found += self._detections(image, list(_tiles(image.shape[:2], self.settings)))  # type: ignore[arg-type]
        regions = [r for r in _merged(found) if r.score >= self.settings.support]
        first = self._read(image, regions)
        second = self._read(image, [person.following for person in first])
        people = [
            replace(again, score=again.score * _agreement(person, again))
            for person, again in zip(first, second, strict=True)
        ]
        return _distinct([person for person in people if person.score >= self.settings.present])

    def one(self, image: NDArray[np.uint8]) -> Person:
        """The person that a picture is of: the surest detection of the whole picture, also turned by right angles.

        Acrobats stand on their heads, and the detector knows few who do. Where it finds nobody, the whole picture is
        read as it is.
        """
        whole = whole_frame(image.shape[:2])  # type: ignore[arg-type]
        found = self._detections(image, [whole] * 4, (0.0, 90.0, 180.0, 270.0))
        side = max(image.shape[:2])
        middle = (whole[:2] + whole[2:]).astype(np.float64) / 2
        region = found[0] if found else Box(np.concatenate([middle - side / 2, middle + side / 2]), 0.0)
        (first,) = self._read(image, [region])
        (again,) = self._read(image, [first.following])
        sure = first.score >= self.settings.present
        return replace(again, score=again.score * _agreement(first, again)) if sure else first

    def turned(self, image: NDArray[np.uint8], box: Box) -> Box:
        """The region of the person in a box, as the detector finds it there; else the box, upright."""
        x0, y0, x1, y1 = box.corners
        middle, side = (box.corners[:2] + box.corners[2:]) / 2, max(x1 - x0, y1 - y0) * ROOM
        around = np.concatenate([middle - side / 2, middle + side / 2])
        inside = [
            r
            for r in self._detections(image, [around])
            if np.all((r.corners[:2] + r.corners[2:]) / 2 >= (x0, y0))
            and np.all((r.corners[:2] + r.corners[2:]) / 2 <= (x1, y1))
        ]
        if not inside:
            return Box(around, box.score)
        best = max(inside, key=lambda region: region.score)
        return Box(best.corners, box.score, best.turn)

    @torch.inference_mode()
    def _detections(
        self, image: NDArray[np.uint8], tiles: Sequence[NDArray[np.float64]], turns: Sequence[float] = ()
    ) -> list[Box]:
        """The regions of the people that the detector finds in square tiles, each turned by so much, surest first."""
        regions: list[Box] = []
        size = (DETECTOR_SIDE, DETECTOR_SIDE)
        turned = [
            crop_transform(tile, size, padding=1.0, rotation=turn)
            for tile, turn in zip(tiles, turns or [0.0] * len(tiles), strict=True)
        ]
        for start in range(0, len(tiles), 16):
            matrices = turned[start : start + 16]
            crops = np.stack([warp(image, matrix, size) for matrix in matrices])
            places, logits = self._detector(_tensor(crops) / 127.5 - 1)
            scores = torch.sigmoid(logits)
            for matrix, place, score in zip(matrices, places, scores, strict=True):
                back = invert(matrix)
                for number in torch.nonzero(score >= self.settings.least)[:, 0].tolist():
                    points = place[number, 4:8].view(2, 2) + self._anchors[number]
                    # the network counts from the crop's edge, and whole numbers are pixel centres here
                    centre, top = transform_points(back, points.double().numpy() - 0.5)
                    regions.append(region_of(centre, top, float(score[number])))
        return sorted(regions, key=lambda region: -region.score)

    @torch.inference_mode()
    def _read(self, image: NDArray[np.uint8], regions: Sequence[Box]) -> list[Person]:
        """The people in square regions, one each."""
        people: list[Person] = []
        for start in range(0, len(regions), 16):
            part = regions[start : start + 16]
            matrices: list[Matrix] = [
                crop_transform(r.corners, (SIDE, SIDE), padding=1.0, rotation=r.turn) for r in part
            ]
            crops = np.stack([warp(image, matrix, (SIDE, SIDE)) for matrix in matrices])
            coordinates, heat, presence = self._network(_tensor(crops) / 255)
            points = refined(coordinates[..., :2], heat).double().numpy()
            seen = torch.sigmoid(coordinates[..., 3]).double().numpy()
            there = torch.sigmoid(presence).tolist()
            for region, matrix, place, score, sure in zip(part, matrices, points, seen, there, strict=True):
                places = transform_points(invert(matrix), place)
                following = region_of(places[CENTRE], places[TOP], sure)
                pose = Pose(places[: len(BLAZEPOSE)], score[: len(BLAZEPOSE)])
                people.append(Person(pose, sure, region, following))
        return people


def region_of(centre: NDArray[np.float64], top: NDArray[np.float64], score: float) -> Box:
    """The square about a person's circle, and the turn that brings the person upright.

    Args:
        centre: (2,), the middle of the hips, picture pixels.
        top: (2,), the point of the circle above the head.
        score: In [0, 1].
    """
    across = top - centre
    half = max(float(np.hypot(*across)) * ROOM, 1.0)
    turn = 90.0 - math.degrees(math.atan2(-across[1], across[0]))
    return Box(np.concatenate([centre - half, centre + half]), score, turn)


def _tensor(crops: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(crops).permute(0, 3, 1, 2).float()  # channels last in memory, as they come


def _tiles(size: tuple[int, int], settings: Settings) -> Iterator[NDArray[np.float64]]:
    """Square tiles of a picture (H, W), overlapping, from large to small."""
    height, width = size
    shorter = min(height, width)
    for share in settings.tiles:
        side = shorter * share
        counts = [1 + math.ceil((extent - side) / (side * settings.step)) for extent in (width, height)]
        if counts == [1, 1]:
            continue  # the whole picture
        xs, ys = (np.linspace(0, extent - side, count) for extent, count in zip((width, height), counts, strict=True))
        for y in ys:
            for x in xs:
                yield np.array([x, y, x + side, y + side]) - 0.5


def _merged(regions: Sequence[Box]) -> list[Box]:
    """One region for all that agree, most agreed on first: their mean by score; its score is the sum of theirs."""
    left, merged = sorted(regions, key=lambda r: -r.score), []
    while left:
        same = [r for r in left if _same_region(r, left[0])]
        left = [r for r in left if not _same_region(r, same[0])]
        weights = np.array([r.score for r in same])
        corners = np.average([r.corners for r in same], axis=0, weights=weights)
        turns = np.exp(1j * np.radians([r.turn for r in same])) @ weights
        merged.append(Box(corners, float(weights.sum()), float(np.degrees(np.angle(turns)))))
    return sorted(merged, key=lambda r: -r.score)


def _agreement(person: Person, again: Person) -> float:
    """How well two readings of one person agree, in [0, 1]: texture that looks like somebody is read otherwise each time."""
    places = again.pose.keypoints[_BODY]
    apart = np.linalg.norm(person.pose.keypoints[_BODY] - places, axis=-1)
    size = float(np.hypot(*np.ptp(places, axis=0)))
    return float(max(0.0, 1 - np.median(apart) / (0.1 * max(size, 1e-9))))


def _same_region(a: Box, b: Box) -> bool:
    sides = a.corners[2] - a.corners[0], b.corners[2] - b.corners[0]
    middles = [(box.corners[:2] + box.corners[2:]) / 2 for box in (a, b)]
    near = float(np.hypot(*(middles[0] - middles[1]))) < 0.25 * max(sides)
    return near and max(sides) < 2 * min(sides)


def _distinct(people: Sequence[Person]) -> list[Person]:
    """People without those whose joints are another's, surest first."""
    kept: list[Person] = []
    for person in sorted(people, key=lambda p: p.score, reverse=True):
        if not any(_same_person(person, other) for other in kept):
            kept.append(person)
    return kept


_BODY = np.array([0, *range(11, 17), *range(23, 29)])
"""Nose, shoulders, elbows, wrists, hips, knees, ankles."""
_MIRRORED = np.array(BLAZEPOSE.flip_order)[_BODY]
_SEEN = 0.3


def _same_person(person: Person, other: Person) -> bool:
    """Whether the joints of a person are those of a surer one: as they are, left for right, or along its limbs."""
    seen = person.pose.scores[_BODY] >= _SEEN
    if not seen.any():
        return True
    extent = np.ptp(other.pose.keypoints[_BODY], axis=0)
    near = 0.12 * float(np.hypot(*extent))
    places = person.pose.keypoints[_BODY]
    for order in (_BODY, _MIRRORED):
        apart = np.linalg.norm(places - other.pose.keypoints[order], axis=-1)
        if (apart[seen] < near).mean() >= 0.5:
            return True
    return _inside(person, other) >= 0.8


def _inside(person: Person, other: Person) -> float:
    """The share of a person's seen joints that lie on limbs or trunk of another, who is larger."""
    mine, theirs = person.pose.keypoints[_BODY], other.pose.keypoints
    extent = float(np.hypot(*np.ptp(theirs[_BODY], axis=0)))
    if float(np.hypot(*np.ptp(mine, axis=0))) > 0.75 * extent:
        return 0.0
    starts, ends = theirs[[a for a, _ in _LIMBS]], theirs[[b for _, b in _LIMBS]]
    along = ends - starts
    share = ((mine[:, None] - starts) * along).sum(-1) / np.maximum((along**2).sum(-1), 1e-9)
    nearest = starts + np.clip(share, 0, 1)[..., None] * along
    apart = np.linalg.norm(mine[:, None] - nearest, axis=-1).min(-1)
    seen = person.pose.scores[_BODY] >= _SEEN
    return float((apart[seen] < 0.06 * extent).mean())


_LIMBS = (
    *((11, 13), (13, 15), (12, 14), (14, 16), (23, 25), (25, 27), (24, 26), (26, 28), (27, 31), (28, 32)),
    *((11, 12), (11, 23), (12, 24), (23, 24), (11, 24), (12, 23), (0, 11), (0, 12)),
)
