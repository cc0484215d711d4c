"""BlazePose's detector of people: where in a picture a person is, how large, and how turned.

A region is a square `Box`: its `turn` brings the person upright. The weights come with dpose, and have learnt from data
that are not public (`weights/blazepose/NOTICE`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpose.files import SHIPPED, file_digest
from dpose.pose.blazepose import DETECTOR_SIDE, BlazePoseDetector, fold_scales
from dpose.pose.crops import Box, crop_transform, invert, transform_points, warp
from dpose.pose.weights_file import read_tensors

DETECTOR = SHIPPED / "blazepose" / "detector.safetensors"
LEAST = 0.4
"""Detections with a lower score are left out."""
ROOM = 1.25
"""How much larger the crop is than the circle about the hips that holds the whole body."""
LOOK, UNSURE = 1.6, 0.7
"""How much larger than the crop of a labelled box the part is that the detector is shown: it knows whole bodies with
something about them (of 200 training pictures of LSPET 58 % of the joints were right at 1, 66 % here); and the score
below which that part is shown turned, too (70 %)."""
TURNS = (90.0, 180.0, 270.0)
AT_ONCE = 6
"""Crops in one forward pass: what these convolutions pass on stays in the caches of a processor."""


class PersonRegions:
    """Finds the regions of people with BlazePose's detector (`dpose.pose.data.pictures.Regions`).

    Attributes:
        digest: SHA-256 of the weights and of how they are used: two finders of one digest find the same regions.

    Args:
        network: For prediction.
        digest: See the attribute.
    """

    def __init__(self, network: BlazePoseDetector, digest: str) -> None:
        self._network, self._anchors, self.digest = network, network.anchors(), digest

    def __call__(self, image: NDArray[np.uint8], corners: NDArray[np.float32], padding: float) -> Box:
        """The region of the person in a labelled box (`turned`)."""
        return self.turned(image, Box(np.asarray(corners, np.float64), 1.0), padding)

    def turned(self, image: NDArray[np.uint8], box: Box, padding: float = ROOM) -> Box:
        """The square region of the person in a box, as the detector finds it there; else about the box, upright.

        It depends on the picture and this box alone.

        Args:
            image: uint8, (H, W, 3) RGB.
            box: Around one person.
            padding: How much larger than the box a crop of it is: 1 where the box has room in it, as a whole picture.
        """
        around = square_about(box.corners, box.score, LOOK * padding)
        low, high = box.corners[:2], box.corners[2:]
        found = [r for r in self.found(image, [around.corners]) if _within(r, low, high)]
        if not found or found[0].score < UNSURE:
            # acrobats stand on their heads, and the detector knows few who do
            turned = self.found(image, [around.corners] * len(TURNS), TURNS)
            found = sorted([*found, *(r for r in turned if _within(r, low, high))], key=lambda r: -r.score)
        return replace(found[0], score=box.score) if found else square_about(box.corners, box.score, padding)

    @torch.inference_mode()
    def found(
        self, image: NDArray[np.uint8], tiles: Sequence[NDArray[np.float64]], turns: Sequence[float] = ()
    ) -> list[Box]:
        """The regions of the people in square tiles, surest first; one person may have many.

        Args:
            image: uint8, (H, W, 3) RGB.
            tiles: Boxes (x0, y0, x1, y1) in picture pixels.
            turns: Degrees that the picture is turned by about each tile's centre; 0 where there are none.
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
                # convolutions for a number of crops that they have not met take longer to make than to run
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
    """The detector that comes with dpose."""
    network = BlazePoseDetector()
    network.load_state_dict(read_tensors(DETECTOR))
    fold_scales(network)
    network = network.eval().requires_grad_(False).to(memory_format=torch.channels_last)
    return PersonRegions(network, f"{file_digest(DETECTOR)} {LEAST} {ROOM} {LOOK} {UNSURE} {TURNS}")


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


def as_tensor(crops: NDArray[np.uint8]) -> Tensor:
    """Crops (N, H, W, 3) as float32 (N, 3, H, W), channels last in memory, as they come."""
    return torch.from_numpy(crops).permute(0, 3, 1, 2).float()


def square_about(corners: NDArray[np.float64], score: float, room: float = 1.0) -> Box:
    """The square about a box, larger by `room`."""
    middle, half = (corners[:2] + corners[2:]) / 2, float((corners[2:] - corners[:2]).max()) / 2 * room
    return Box(np.concatenate([middle - half, middle + half]), score)


def middle(region: Box) -> NDArray[np.float64]:
    """(2,): the centre of a box."""
    return (region.corners[:2] + region.corners[2:]) / 2


def _within(region: Box, low: NDArray[np.float64], high: NDArray[np.float64]) -> bool:
    centre = middle(region)
    return bool(np.all(centre >= low) and np.all(centre <= high))
