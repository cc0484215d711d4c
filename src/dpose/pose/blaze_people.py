"""BlazePose's detector of people, and a finder that reads each detected person with the landmark network.

A region is a square `Box`: its `turn` brings the person upright. The detector's weights come with dpose, and were
trained on data that are not public (`weights/blazepose/NOTICE`).

The detector was made for one or two people who fill a picture. To find people of any size it also runs on overlapping
square tiles. False detections are rejected by reading each person twice, the second time from the position that the
first reading gives: readings of a person agree, readings of texture do not. Duplicates are removed by joints, not by
boxes: the boxes of two people who embrace overlap as much as two boxes of one person.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpose.errors import DposeError
from dpose.files import SHIPPED, file_digest
from dpose.pose.blaze_codec import BlazePoseCodec
from dpose.pose.blazepose import DETECTOR_SIDE, SIDE, BlazePoseDetector, fold_scales
from dpose.pose.codec import base_of
from dpose.pose.crops import Box, Matrix, crop_transform, invert, transform_points, warp, whole_frame
from dpose.pose.folder import find_model, load_model
from dpose.pose.model import PoseModel
from dpose.pose.people import FoundPerson
from dpose.pose.predict import Pose, for_prediction
from dpose.pose.skeletons import BLAZEPOSE, SKELETONS
from dpose.pose.weights_file import read_tensors

DETECTOR = SHIPPED / "blazepose" / "detector.safetensors"
LEAST = 0.4
"""Least score of a detection."""
ROOM = 1.25
"""Size of the crop relative to the circle about the hips that holds the whole body."""
LOOK, UNSURE = 1.6, 0.7
"""Size of the part that the detector sees relative to the crop of a labelled box, since it was made for whole bodies
with some surroundings (of 200 training pictures of LSPET 58 % of the joints were right at 1, 66 % here); and the score
below which it sees that part turned, too (70 %).
"""
TURNS = (90.0, 180.0, 270.0)
AT_ONCE = 6
"""Crops in one forward pass: the intermediate results of these convolutions then stay in the processor's caches."""


class PersonRegions:
    """Finds the regions of people with BlazePose's detector (`dpose.pose.data.pictures.Regions`).

    Attributes:
        digest: SHA-256 of the weights and of how they are used: two finders with the same digest find the same regions.
    """

    def __init__(self, network: BlazePoseDetector, digest: str) -> None:
        self._network, self._anchors, self.digest = network, network.anchors(), digest

    def __call__(self, image: NDArray[np.uint8], corners: NDArray[np.float32], padding: float) -> Box:
        """Return the region of the person in a labelled box (`turned`)."""
        return self.turned(image, Box(np.asarray(corners, np.float64), 1.0), padding)

    def turned(self, image: NDArray[np.uint8], box: Box, padding: float = ROOM) -> Box:
        """Return the square region of the person that the detector finds in a box, else the square about the box.

        The result depends on the picture and this box alone.

        Args:
            image: uint8, (H, W, 3) RGB.
            box: Box around one person.
            padding: Size of a crop relative to the box: 1 if the box has room in it, as a whole picture.
        """
        around = square_about(box.corners, box.score, LOOK * padding)
        low, high = box.corners[:2], box.corners[2:]
        regions = [r for r in self.detect(image, [around.corners]) if _within(r, low, high)]
        if not regions or regions[0].score < UNSURE:
            # the detector rarely recognises people who stand on their heads
            turned = self.detect(image, [around.corners] * len(TURNS), TURNS)
            regions = sorted([*regions, *(r for r in turned if _within(r, low, high))], key=lambda r: -r.score)
        return replace(regions[0], score=box.score) if regions else square_about(box.corners, box.score, padding)

    @torch.inference_mode()
    def detect(
        self, image: NDArray[np.uint8], tiles: Sequence[NDArray[np.float64]], turns: Sequence[float] = ()
    ) -> list[Box]:
        """Return the regions of the people in square tiles, best score first; one person may have many.

        Args:
            image: uint8, (H, W, 3) RGB.
            tiles: Boxes (x0, y0, x1, y1) in picture pixels.
            turns: Degrees by which the picture is turned about each tile's centre; 0 if empty.
        """
        regions: list[Box] = []
        size = (DETECTOR_SIDE, DETECTOR_SIDE)
        turned = [
            crop_transform(tile, size, padding=1.0, rotation=turn)
            for tile, turn in zip(tiles, turns or [0.0] * len(tiles), strict=True)
        ]
        for start in range(0, len(tiles), AT_ONCE):
            matrices = turned[start : start + AT_ONCE]
            crops = [warp(image, matrix, size) for matrix in matrices]
            if start:
                # preparing a convolution for a new number of crops takes longer than running it
                crops += crops[-1:] * (AT_ONCE - len(crops))
            places, logits = self._network(as_tensor(np.stack(crops)) / 127.5 - 1)
            scores = torch.sigmoid(logits)
            for matrix, place, score in zip(matrices, places, scores, strict=False):
                back = invert(matrix)
                for number in torch.nonzero(score >= LEAST)[:, 0].tolist():
                    points = place[number, 4:8].view(2, 2) + self._anchors[number]
                    # the network counts from the crop's edge, and whole numbers are pixel centres here
                    centre, top = transform_points(back, points.double().numpy() - 0.5)
                    regions.append(region_of(centre, top, float(score[number])))
        return sorted(regions, key=lambda region: -region.score)


@cache
def shipped_detector() -> PersonRegions:
    """Return the detector that comes with dpose."""
    network = BlazePoseDetector()
    network.load_state_dict(read_tensors(DETECTOR))
    fold_scales(network)
    network = network.eval().requires_grad_(False).to(memory_format=torch.channels_last)
    return PersonRegions(network, f"{file_digest(DETECTOR)} {LEAST} {ROOM} {LOOK} {UNSURE} {TURNS}")


def region_of(centre: NDArray[np.float64], top: NDArray[np.float64], score: float) -> Box:
    """Return the square about a person's circle, and the turn that brings the person upright.

    Args:
        centre: (2,), the middle of the hips, picture pixels.
        top: (2,), the point of the circle above the head.
        score: In [0, 1].
    """
    across = top - centre
    half = max(float(np.hypot(*across)) * ROOM, 1.0)
    turn = 90.0 - math.degrees(math.atan2(-across[1], across[0]))
    return Box(np.concatenate([centre - half, centre + half]), score, turn)


def as_tensor(crops: NDArray[np.uint8]) -> Tensor:
    """Convert crops (N, H, W, 3) to float32 (N, 3, H, W), channels last in memory."""
    return torch.from_numpy(crops).permute(0, 3, 1, 2).float()


def square_about(corners: NDArray[np.float64], score: float, room: float = 1.0) -> Box:
    """Return the square about a box, larger by `room`."""
    middle, half = (corners[:2] + corners[2:]) / 2, float((corners[2:] - corners[:2]).max()) / 2 * room
    return Box(np.concatenate([middle - half, middle + half]), score)


def middle(region: Box) -> NDArray[np.float64]:
    """Return the centre of a box, (2,)."""
    return (region.corners[:2] + region.corners[2:]) / 2


def _within(region: Box, low: NDArray[np.float64], high: NDArray[np.float64]) -> bool:
    centre = middle(region)
    return bool(np.all(centre >= low) and np.all(centre <= high))


CENTRE, TOP = 33, 34
"""Points of a landmark network that are not joints: the middle of the hips, and a point above the head on the circle
about it that holds the whole body.
"""
SMALLEST = 32
"""Least side of a tile, pixels: people in smaller ones cannot be read."""

_BODY = np.array([0, *range(11, 17), *range(23, 29)])
"""Nose, shoulders, elbows, wrists, hips, knees, ankles."""
_MIRRORED = np.array(BLAZEPOSE.flip_order)[_BODY]
_LIMBS = np.array(
    [
        *((11, 13), (13, 15), (12, 14), (14, 16), (23, 25), (25, 27), (24, 26), (26, 28), (27, 31), (28, 32)),
        *((11, 12), (11, 23), (12, 24), (23, 24), (11, 24), (12, 23), (0, 11), (0, 12)),
    ]
)
"""Pairs of points with body between them."""
_SEEN = 0.3
"""Least score of a point that is used to decide whether two people are the same."""


@dataclass(frozen=True)
class SearchSettings:
    """Settings of the search for people.

    Attributes:
        support: Least sum of the scores of detections that agree.
        present: Least score of a person (`FoundPerson.score`): the probability that somebody is there, times how well
            two readings agree.
        tiles: Sides of the pyramid's tiles as shares of the picture's shorter side.
        step: Largest step from one tile to the next, as a share of the side.
    """

    support: float = 3.0
    present: float = 0.5
    tiles: tuple[float, ...] = (1.0, 0.66, 0.45, 0.3)
    step: float = 0.5


@dataclass(frozen=True)
class _Reading(FoundPerson):
    """A person with BlazePose's points: (39, 2) pixels of the picture, and (39,) whether they can be seen."""

    points: NDArray[np.float64]
    seen: NDArray[np.float64]


class BlazePeople:
    """Finds people with a model of BlazePose's codec (`dpose.pose.people.PeopleFinder`); refuses others."""

    def __init__(self, model: PoseModel, settings: SearchSettings = SearchSettings()) -> None:
        codec = model.codec
        base = base_of(codec)
        if not isinstance(base, BlazePoseCodec):
            raise DposeError(
                "codec-finds-no-people", "does not say where in a picture people are", f"codec {model.config.codec}"
            )
        # a copy on the detector's device
        self._codec, self._base = codec, base
        self._model, self.settings = for_prediction(model).to("cpu"), settings
        self._detector = shipped_detector()
        self._frame = 0  # of videos: which tile comes next
        self.skeleton = SKELETONS[model.config.skeleton]

    def __deepcopy__(self, memo: dict[int, Any]) -> BlazePeople:
        """A finder with a place in the film of its own; the networks, which keep nothing, are shared."""
        return copy.copy(self)

    @classmethod
    def load(cls, name: str = "blazepose") -> BlazePeople:
        """Load the model of a name or folder (`dpose.pose.folder.find_model`) as a finder."""
        return cls(load_model(find_model(name)))

    def __call__(
        self, image: NDArray[np.uint8], boxes: Sequence[Box] | None = None, before: Sequence[FoundPerson] | None = None
    ) -> list[FoundPerson]:
        """See `PeopleFinder`.

        In a box the detector looks for the person, and the upright box is read if it finds nothing. In a video every
        other frame is searched whole, and those between in one tile of the pyramid, each in the next one: a picture's
        pyramid takes a second.
        """
        if boxes is not None:
            return list(self._read(image, [self._detector.turned(image, box) for box in boxes]))
        tiles = list(_tiles(image.shape[:2], self.settings))
        if before is None:
            self._frame = 0  # a picture, or a video's first frame: what was searched before makes no difference
            return self._new(image, [_whole(image), *tiles], [])
        turn, whole = divmod(self._frame, 2)
        self._frame += 1
        tile = _whole(image) if whole or not tiles else tiles[turn % len(tiles)]
        return self._new(image, [tile], self._followed(image, before))

    def one(self, image: NDArray[np.uint8]) -> FoundPerson:
        """Return the person of a picture of one: the best detection of the whole picture, also turned by right angles.

        The detector rarely recognises people who stand on their heads. If it finds nothing, the whole picture is read
        as it is.
        """
        whole = _whole(image)
        detections = self._detector.detect(image, [whole] * 4, (0.0, *TURNS))
        (first,) = self._read(image, [detections[0] if detections else square_about(whole, 0.0)])
        (again,) = self._read(image, [first.following])
        return _agreed(first, again) if first.score >= self.settings.present else first

    def _followed(self, image: NDArray[np.uint8], before: Sequence[FoundPerson]) -> list[_Reading]:
        """Return the people of the frame before who are still there.

        They are read from where they were, and once more if that is far from the reading before: either somebody has
        moved, or no person was there.
        """
        present = []
        for person, reading in zip(before, self._read(image, [p.following for p in before]), strict=True):
            agreed = _agreed(person, reading) if isinstance(person, _Reading) else reading
            if agreed.score < self.settings.present:
                agreed = _agreed(reading, *self._read(image, [reading.following]))
            if agreed.score >= self.settings.present:
                present.append(agreed)
        return present

    def _new(
        self, image: NDArray[np.uint8], tiles: Sequence[NDArray[np.float64]], known: list[_Reading]
    ) -> list[FoundPerson]:
        """Return known people and those on whom two readings of a region agree, without duplicates, best first."""
        detections = self._detector.detect(image, tiles)
        regions = [r for r in _merged(detections) if r.score >= self.settings.support]
        regions = [r for r in regions if not any(_same_region(r, person.following) for person in known)]
        first = self._read(image, regions)
        second = self._read(image, [reading.following for reading in first])
        people = known + [_agreed(reading, again) for reading, again in zip(first, second, strict=True)]
        chosen: list[_Reading] = []
        for person in sorted(people, key=lambda p: -p.score):
            if person.score >= self.settings.present and not any(_same_person(person, other) for other in chosen):
                chosen.append(person)
        return list(chosen)

    @torch.inference_mode()
    def _read(self, image: NDArray[np.uint8], regions: Sequence[Box]) -> list[_Reading]:
        """Read the people in square regions, one each."""
        readings: list[_Reading] = []
        for start in range(0, len(regions), AT_ONCE):
            part = regions[start : start + AT_ONCE]
            matrices: list[Matrix] = [r.crop((SIDE, SIDE), padding=1.0) for r in part]
            crops = np.stack([warp(image, matrix, (SIDE, SIDE)) for matrix in matrices])
            outputs = self._model(as_tensor(crops))
            points, (joints, scores) = self._base.points(outputs[:3]), self._codec.decode(outputs)
            seen, there = torch.sigmoid(outputs[0][..., 3]), torch.sigmoid(outputs[2]).tolist()
            arrays = (each.double().numpy() for each in (points, seen, joints, scores))
            for region, matrix, sure, place, visible, joint, score in zip(part, matrices, there, *arrays, strict=True):
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


def _tiles(size: tuple[int, ...], settings: SearchSettings) -> Iterator[NDArray[np.float64]]:
    """Square tiles of a picture (H, W), overlapping, from large to small."""
    height, width = size
    for share in settings.tiles:
        side = min(height, width) * share
        counts = [1 + math.ceil((extent - side) / (side * settings.step)) for extent in (width, height)]
        if counts == [1, 1] or side < SMALLEST:
            continue  # the whole picture, or too small to read
        xs, ys = (np.linspace(0, extent - side, count) for extent, count in zip((width, height), counts, strict=True))
        for y in ys:
            for x in xs:
                yield np.array([x, y, x + side, y + side]) - 0.5


def _merged(regions: Sequence[Box]) -> list[Box]:
    """Merge regions that agree into their mean weighted by score, with the sum of their scores; highest sum first."""
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
    """True if two regions overlap and are of about the same size."""
    larger, smaller = max(_side(a), _side(b)), min(_side(a), _side(b))
    return float(np.hypot(*(middle(a) - middle(b)))) < 0.25 * larger and larger < 2 * smaller


def _extent(points: NDArray[np.float64]) -> float:
    """Diagonal of the box about some points."""
    return max(float(np.hypot(*np.ptp(points, axis=0))), 1e-9)


def _agreed(reading: _Reading, again: _Reading) -> _Reading:
    """Return the second reading of a person, its score times how well the two agree.

    They do not agree at all if the median joint of the body has moved by a tenth of the body's extent.
    """
    places = again.points[_BODY]
    apart = np.linalg.norm(reading.points[_BODY] - places, axis=-1)
    alike = max(0.0, 1 - float(np.median(apart)) / (0.1 * _extent(places)))
    return replace(again, score=again.score * alike)


def _same_person(person: _Reading, other: _Reading) -> bool:
    """True if a person's joints are those of a better scored one: as they are, mirrored, or along its limbs."""
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
