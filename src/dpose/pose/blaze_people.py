"""People in a picture by BlazePose: its detector over a pyramid of tiles, its landmark network on each person found.

The detector was made for one or two people who fill a picture. People of any size are found by showing it overlapping
square tiles, too. What looks like a person and is none is told by reading it twice, each time from where the reading
before says that the person is: people are read alike, texture is not. What is found twice is told by the joints: boxes
of people who embrace overlap as much as boxes of one person.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.pose.blaze_codec import BlazePoseCodec
from dpose.pose.blaze_detector import TURNS, as_tensor, middle, region_of, shipped_detector, square_about
from dpose.pose.blazepose import SIDE
from dpose.pose.crops import Box, Matrix, invert, transform_points, warp, whole_frame
from dpose.pose.folder import find_model, load_model
from dpose.pose.model import PoseModel
from dpose.pose.people import FoundPerson
from dpose.pose.predict import Pose, for_prediction
from dpose.pose.skeletons import BLAZEPOSE, SKELETONS

CENTRE, TOP = 33, 34
"""The points that a landmark network gives besides the joints: the middle of the hips, and a point above the head on
the circle about it that holds the whole body."""
SMALLEST = 32
"""Pixels of a tile's side: people in smaller ones cannot be read."""
AT_ONCE = 6
"""Crops in one forward pass."""

_BODY = np.array([0, *range(11, 17), *range(23, 29)])
"""Nose, shoulders, elbows, wrists, hips, knees, ankles."""
_MIRRORED = np.array(BLAZEPOSE.flip_order)[_BODY]
_LIMBS = np.array(
    [
        *((11, 13), (13, 15), (12, 14), (14, 16), (23, 25), (25, 27), (24, 26), (26, 28), (27, 31), (28, 32)),
        *((11, 12), (11, 23), (12, 24), (23, 24), (11, 24), (12, 23), (0, 11), (0, 12)),
    ]
)
"""Pairs of points that body lies between."""
_SEEN = 0.3
"""Points with a lower score say nothing about whether two people are one."""


@dataclass(frozen=True)
class Settings:
    """How people are looked for.

    Attributes:
        support: Detections that agree and whose scores make less than this together are left out.
        present: People with a lower score are left out (`FoundPerson.score`): the probability that somebody is there,
            times how well two readings agree.
        tiles: Sides of the pyramid's tiles as shares of the picture's shorter side.
        step: From one tile to the next, as a share of the side at most.
    """

    support: float = 3.0
    present: float = 0.5
    tiles: tuple[float, ...] = (1.0, 0.66, 0.45, 0.3)
    step: float = 0.5


@dataclass(frozen=True)
class _Reading(FoundPerson):
    """A person with BlazePose's points of them: (39, 2) pixels of the picture, and (39,) whether they can be seen."""

    points: NDArray[np.float64]
    seen: NDArray[np.float64]


class BlazePeople:
    """Finds people by BlazePose (`dpose.pose.people.PeopleFinder`).

    Attributes:
        skeleton: The model's.

    Args:
        model: A pose model with BlazePose's codec: the published one, or one that was trained from it.
        settings: How people are looked for.

    Raises:
        DposeError: the model has another codec.
    """

    def __init__(self, model: PoseModel, settings: Settings = Settings()) -> None:
        codec = model.codec
        if not isinstance(codec, BlazePoseCodec):
            raise DposeError(
                "codec-finds-no-people",
                "does not say where in a picture people are",
                f"codec {model.config.codec}",
            )
        # a copy, where the detector is
        self._codec, self._model, self.settings = codec, for_prediction(model).to("cpu"), settings
        self._detector = shipped_detector()
        self._frame = 0  # of videos: which tile comes next
        self.skeleton = SKELETONS[model.config.skeleton]

    @classmethod
    def load(cls, name: str = "blazepose") -> BlazePeople:
        """The finder with the model of that name or folder (`dpose.pose.folder.find_model`)."""
        return cls(load_model(find_model(name)))

    def __call__(
        self,
        image: NDArray[np.uint8],
        boxes: Sequence[Box] | None = None,
        before: Sequence[FoundPerson] | None = None,
    ) -> list[FoundPerson]:
        """See `PeopleFinder`.

        In a box the detector is asked, and the upright box is read where it finds nobody. In a video every other frame
        is looked at whole, and those between in one tile of the pyramid, each in the next one: a picture's pyramid
        takes a second.
        """
        if boxes is not None:
            return list(self._read(image, [self._detector.turned(image, box) for box in boxes]))
        tiles = list(_tiles(image.shape[:2], self.settings))
        if before is None:
            return self._new(image, [_whole(image), *tiles], [])
        turn, whole = divmod(self._frame, 2)
        self._frame += 1
        tile = _whole(image) if whole or not tiles else tiles[turn % len(tiles)]
        return self._new(image, [tile], self._followed(image, before))

    def one(self, image: NDArray[np.uint8]) -> FoundPerson:
        """The person that a picture is of: the surest detection of the whole picture, also turned by right angles.

        Acrobats stand on their heads, and the detector knows few who do. Where it finds nobody, the whole picture is
        read as it is.
        """
        whole = _whole(image)
        found = self._detector.found(image, [whole] * 4, (0.0, *TURNS))
        (first,) = self._read(image, [found[0] if found else square_about(whole, 0.0)])
        (again,) = self._read(image, [first.following])
        return _agreed(first, again) if first.score >= self.settings.present else first

    def _followed(self, image: NDArray[np.uint8], before: Sequence[FoundPerson]) -> list[_Reading]:
        """The people of the frame before who are still there.

        They are read from where they were, and once more where that is far from how they were read before: somebody has
        moved, or nobody was there.
        """
        kept = []
        for person, reading in zip(before, self._read(image, [p.following for p in before]), strict=True):
            agreed = _agreed(person, reading) if isinstance(person, _Reading) else reading
            if agreed.score < self.settings.present:
                agreed = _agreed(reading, *self._read(image, [reading.following]))
            if agreed.score >= self.settings.present:
                kept.append(agreed)
        return kept

    def _new(
        self, image: NDArray[np.uint8], tiles: Sequence[NDArray[np.float64]], known: list[_Reading]
    ) -> list[FoundPerson]:
        """Those who are known, and those whom two readings of a region agree on, each once, surest first."""
        found = self._detector.found(image, tiles)
        regions = [r for r in _merged(found) if r.score >= self.settings.support]
        regions = [r for r in regions if not any(_same_region(r, person.following) for person in known)]
        first = self._read(image, regions)
        second = self._read(image, [reading.following for reading in first])
        people = known + [_agreed(reading, again) for reading, again in zip(first, second, strict=True)]
        kept: list[_Reading] = []
        for person in sorted(people, key=lambda p: -p.score):
            if person.score >= self.settings.present and not any(
                _same_person(person, other) for other in kept
            ):
                kept.append(person)
        return list(kept)

    @torch.inference_mode()
    def _read(self, image: NDArray[np.uint8], regions: Sequence[Box]) -> list[_Reading]:
        """The people in square regions, one each."""
        readings: list[_Reading] = []
        for start in range(0, len(regions), AT_ONCE):
            part = regions[start : start + AT_ONCE]
            matrices: list[Matrix] = [r.crop((SIDE, SIDE), padding=1.0) for r in part]
            crops = np.stack([warp(image, matrix, (SIDE, SIDE)) for matrix in matrices])
            outputs = self._model(as_tensor(crops))
            points, (joints, scores) = self._codec.points(outputs), self._codec.decode(outputs)
            seen, there = torch.sigmoid(outputs[0][..., 3]), torch.sigmoid(outputs[2]).tolist()
            arrays = (each.double().numpy() for each in (points, seen, joints, scores))
            for region, matrix, sure, place, visible, joint, score in zip(
                part, matrices, there, *arrays, strict=True
            ):
                back = invert(matrix)
                places = transform_points(back, place)
                following = region_of(places[CENTRE], places[TOP], sure)
                pose = Pose(transform_points(back, joint), score)
                readings.append(_Reading(pose, sure, region, following, places, visible))
        return readings


def _whole(image: NDArray[np.uint8]) -> NDArray[np.float64]:
    return whole_frame((image.shape[0], image.shape[1])).astype(np.float64)


def _side(region: Box) -> float:
    return float(region.corners[2] - region.corners[0])


def _tiles(size: tuple[int, ...], settings: Settings) -> Iterator[NDArray[np.float64]]:
    """Square tiles of a picture (H, W), overlapping, from large to small."""
    height, width = size
    for share in settings.tiles:
        side = min(height, width) * share
        counts = [1 + math.ceil((extent - side) / (side * settings.step)) for extent in (width, height)]
        if counts == [1, 1] or side < SMALLEST:
            continue  # the whole picture, or nothing that could be read
        xs, ys = (
            np.linspace(0, extent - side, count)
            for extent, count in zip((width, height), counts, strict=True)
        )
        for y in ys:
            for x in xs:
                yield np.array([x, y, x + side, y + side]) - 0.5


def _merged(regions: Sequence[Box]) -> list[Box]:
    """One region for all that agree, most agreed on first: their mean by score; its score is the sum of theirs."""
    left, merged = sorted(regions, key=lambda r: -r.score), []
    while left:
        alike = [_same_region(region, left[0]) for region in left]
        same = [region for region, agrees in zip(left, alike, strict=True) if agrees]
        left = [region for region, agrees in zip(left, alike, strict=True) if not agrees]
        weights = np.array([r.score for r in same])
        corners = np.average([r.corners for r in same], axis=0, weights=weights)
        turns = np.exp(1j * np.radians([r.turn for r in same])) @ weights
        merged.append(Box(corners, float(weights.sum()), float(np.degrees(np.angle(turns)))))
    return sorted(merged, key=lambda r: -r.score)


def _same_region(a: Box, b: Box) -> bool:
    """Whether two regions lie on one another and are of about the same size."""
    larger, smaller = max(_side(a), _side(b)), min(_side(a), _side(b))
    return float(np.hypot(*(middle(a) - middle(b)))) < 0.25 * larger and larger < 2 * smaller


def _extent(points: NDArray[np.float64]) -> float:
    """The diagonal of the box about some points."""
    return max(float(np.hypot(*np.ptp(points, axis=0))), 1e-9)


def _agreed(reading: _Reading, again: _Reading) -> _Reading:
    """The second reading of a person, its score times how well the two agree.

    They do not agree at all where the median joint of the body has moved by a tenth of the body's extent.
    """
    places = again.points[_BODY]
    apart = np.linalg.norm(reading.points[_BODY] - places, axis=-1)
    alike = max(0.0, 1 - float(np.median(apart)) / (0.1 * _extent(places)))
    return replace(again, score=again.score * alike)


def _same_person(person: _Reading, other: _Reading) -> bool:
    """Whether somebody's joints are those of a surer one: as they are, left for right, or along the other's limbs."""
    seen = person.seen[_BODY] >= _SEEN
    if not seen.any():
        return True
    places, size = person.points[_BODY], _extent(other.points[_BODY])
    for order in (_BODY, _MIRRORED):
        apart = np.linalg.norm(places - other.points[order], axis=-1)
        if (apart[seen] < 0.12 * size).mean() >= 0.5:
            return True
    if _extent(places) > 0.75 * size:
        return False
    starts, ends = other.points[_LIMBS[:, 0]], other.points[_LIMBS[:, 1]]
    along = ends - starts
    share = ((places[:, None] - starts) * along).sum(-1) / np.maximum((along**2).sum(-1), 1e-9)
    nearest = starts + np.clip(share, 0, 1)[..., None] * along
    apart = np.linalg.norm(places[:, None] - nearest, axis=-1).min(-1)
    return bool((apart[seen] < 0.06 * size).mean() >= 0.8)
