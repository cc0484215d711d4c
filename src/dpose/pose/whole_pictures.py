"""What finds people for a model, and the score of people who are found in whole pictures, without anybody's boxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.pose.blaze_codec import BlazePoseCodec
from dpose.pose.blaze_people import BlazePeople
from dpose.pose.data.pictures import Picture, Regions
from dpose.pose.metrics import PCKh, PCKhResult
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.people import FoundPerson, ModelPeople, PeopleFinder
from dpose.pose.skeletons import MPII, Skeleton, joint_map


class WholePictures(PeopleFinder, Protocol):
    """Finds the people of whole pictures, or the one whom a picture is of."""

    def one(self, image: NDArray[np.uint8]) -> FoundPerson:
        """The person that a picture is of; there always is one."""


def finder_of(model: PoseModel, *, flip_test: bool = False) -> WholePictures:
    """What finds people in whole pictures with a model.

    BlazePose's detector looks for everybody. A model of another codec says nothing of where people are: it takes the
    picture for a crop of one person.

    Args:
        model: On its device.
        flip_test: Average with the mirrored picture; BlazePose reads everybody twice instead.
    """
    if isinstance(model.codec, BlazePoseCodec):
        return BlazePeople(model)
    return ModelPeople(model, flip_test=flip_test)


def whole_picture_pckh(
    finder: WholePictures,
    pictures: Sequence[Picture],
    labels: Skeleton,
    *,
    advance: Callable[[], None] = lambda: None,
) -> PCKhResult:
    """PCKh of people who are found without boxes, on MPII's joints: every labelled person counts, found or not.

    In a picture of one labelled person it is the one whom the picture is of (`WholePictures.one`) who is scored. In a
    picture of several everybody is looked for, and each labelled person is scored on the found person whom `nearest`
    gives; where there is none, all of the joints are missed. Whoever is found and not labelled costs nothing.

    The joints that the finder does not have are not scored; neck and head top follow from shoulders and ears
    (`joint_map`, of a prediction). Pictures in which nobody's head length is known are not looked at: PCKh leaves those
    people out.

    Args:
        finder: Of people in whole pictures.
        pictures: With their labelled people.
        labels: Their skeleton.
        advance: Called after every picture.

    Raises:
        DposeError: the labels are not of PCKh's joints.
    """
    if labels.sigmas:
        raise DposeError(
            "skeleton-unsupported",
            f"labels of the skeleton {labels.name} are not scored in whole pictures",
            "--whole-pictures",
            "leave it out, or take data in COCO's format",
        )
    predicted, known = joint_map(finder.skeleton, MPII, predicted=True), joint_map(labels, MPII)
    there = np.array([t not in predicted.missing for t in range(len(MPII))])
    metric, not_found = PCKh(), 0
    for picture in pictures:
        image, people = picture.read()
        true = known.points(np.stack([person.keypoints for person in people]))
        seen = (known.values(np.stack([person.visible for person in people])) > 0) & there
        lengths = np.array([person.head_length for person in people])
        usable = np.isfinite(lengths) & (lengths > 0)
        points = np.full(true.shape, np.nan)
        if usable.any():
            found = [finder.one(image)] if len(people) == 1 else finder(image)
            candidates = predicted.points(
                np.stack([person.pose.keypoints for person in found])
                if found
                else np.zeros((0, len(finder.skeleton), 2))
            )
            for person, number in enumerate(nearest(candidates, true, seen)):
                if number is not None:
                    points[person] = candidates[number]
                elif usable[person]:
                    not_found += 1
        metric.update(points, true, seen, lengths)
        advance()
    return replace(metric.compute(), whole_pictures=True, not_found=not_found)


def nearest(
    found: NDArray[np.float64], true: NDArray[np.float64], seen: NDArray[np.bool_]
) -> list[int | None]:
    """For each labelled person which found one is taken to be the same, each for one person at most.

    How far apart a labelled and a found person are is the mean distance, in pixels of the picture, of the joints that
    are labelled and that the finder has. Of all pairs the one least apart is taken, then the one least apart of whoever
    is left, and so on until either side has nobody left. No distance is too far: joints that lie far away are missed.

    Args:
        found: (F, J, 2), pixels.
        true: (P, J, 2), the same pixels.
        seen: (P, J), where a joint is labelled, and the finder has it.

    Returns:
        P places among the found; None for whoever is left over or has no such joint.
    """
    chosen: list[int | None] = [None] * len(true)
    if not len(found):
        return chosen
    apart = np.linalg.norm(true[:, None] - found[None], axis=-1)
    there = seen[:, None] & np.isfinite(apart)
    total = np.where(there, apart, 0.0).sum(-1)
    means = np.where(there.any(-1), total / np.maximum(there.sum(-1), 1), np.inf)
    for pair in np.argsort(means, axis=None, kind="stable"):
        person, number = divmod(int(pair), len(found))
        if np.isfinite(means[person, number]) and chosen[person] is None and number not in chosen:
            chosen[person] = number
    return chosen


def regions_for(model: PoseConfig) -> Regions | None:
    """What finds where to crop people for a model; None where it takes the boxes as they are given.

    BlazePose has learnt from upright people alone: its detector says how they are turned.
    """
    if model.codec != "blazepose":
        return None
    from dpose.pose.blaze_detector import shipped_detector

    return shipped_detector()
