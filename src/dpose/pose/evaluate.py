"""Scores of a pose model, or of a file of predictions, on labelled pictures: AP by boxes, AP and PCKh without boxes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.pose.ap import APResult, KeypointAP
from dpose.pose.blaze_codec import BlazePoseCodec
from dpose.pose.blaze_people import BlazePeople
from dpose.pose.codec import base_of
from dpose.pose.crops import Box, zoom_of
from dpose.pose.data.label_files import Problems, id_of, numbers, read_json, results_of
from dpose.pose.data.labels import Labels
from dpose.pose.data.matlab import read_mat
from dpose.pose.data.pictures import Picture
from dpose.pose.metrics import PCKh, PCKhResult, oks_nms, person_score
from dpose.pose.model import PoseModel
from dpose.pose.people import FoundPerson, ModelPeople, PeopleFinder
from dpose.pose.predict import predict_people
from dpose.pose.skeletons import COCO, MPII, JointMap, Skeleton, joint_map


def label_boxes(labels: Labels) -> dict[int, list[Box]]:
    """Return the labels' own boxes by picture id, each with score 1: the people that are learnt from."""
    return {
        picture.id: [Box(person.box.astype(np.float64), 1.0) for person in picture.learnt]
        for picture in labels.pictures
        if picture.learnt
    }


def keypoint_ap(
    model: PoseModel,
    labels: Labels,
    boxes: Mapping[int, Sequence[Box]],
    *,
    flip_test: bool = True,
    advance: Callable[[], None] = lambda: None,
) -> APResult:
    """Compute AP and AR on labels in COCO's format: each box's person predicted and scored, near doubles removed.

    A model of another skeleton is scored on the joints it shares with the labels' (`KeypointAP.predicted`). BlazePose's
    detector finds the person's position and turn in each box, as it does when such a model is trained. `boxes` are
    those of a detector by picture id, or `label_boxes`. `flip_test` averages with the mirrored crop; BlazePose has no
    such average.
    """
    way, there, metric = _compared(model.config.skeleton, labels)
    sigmas = [s for s, t in zip(labels.skeleton.sigmas, there, strict=True) if t]
    finder = BlazePeople(model) if isinstance(base_of(model.codec), BlazePoseCodec) else None
    height, width = model.config.input_size
    for image in labels.pictures:
        regions = list(boxes.get(image.id, ()))
        if regions:
            picture = labels.read(image)
            people = (
                [person.pose for person in finder(picture, regions)]
                if finder
                else predict_people(model, picture, [b.corners for b in regions], flip_test=flip_test)
            )
            points = way.points(np.stack([p.keypoints for p in people]))
            sure = way.values(np.stack([p.scores for p in people]))
            scores = person_score([b.score for b in regions], sure)
            areas = [height * width / zoom_of(b.crop((height, width))) ** 2 for b in regions]
            chosen = oks_nms(points[:, there], scores, areas, sigmas)
            metric.update(image.id, points[chosen], sure[chosen], scores[chosen])
        advance()
    return metric.compute()


def whole_picture_ap(finder: PeopleFinder, labels: Labels, *, advance: Callable[[], None] = lambda: None) -> APResult:
    """Compute AP and AR of everybody who is found in whole pictures, on labels in COCO's format, without boxes.

    Each person found is a detection with the finder's score. False detections in pictures without labelled people
    count.
    """
    way, _, metric = _compared(finder.skeleton, labels)
    for image in labels.pictures:
        people = finder(labels.read(image))
        if people:
            points = way.points(np.stack([p.pose.keypoints for p in people]))
            sure = way.values(np.stack([p.pose.scores for p in people]))
            metric.update(image.id, points, sure, [p.score for p in people])
        advance()
    return replace(metric.compute(), whole_pictures=True)


def _compared(skeleton: Skeleton | str, labels: Labels) -> tuple[JointMap, list[bool], KeypointAP]:
    """Return the map from predicted joints to the labels', which of those are predicted, and the metric."""
    way = joint_map(skeleton, labels.skeleton, predicted=True)
    there = [t not in way.missing for t in range(len(labels.skeleton))]
    if not any(there):
        raise DposeError("joints-differ", "the model has none of the labels' joints", labels.name)
    return way, there, KeypointAP(labels.truth(), _groups(labels), there, labels.skeleton)


def _groups(labels: Labels) -> dict[str, list[int]]:
    """Return picture ids by group, for tables."""
    groups: dict[str, list[int]] = {}
    for image in labels.pictures:
        if image.group:
            groups.setdefault(image.group, []).append(image.id)
    return dict(sorted(groups.items()))


def score_results(path: Path, labels: Labels) -> tuple[APResult, Problems]:
    """Compute AP and AR of a COCO results file (`read_results`); also returns what is wrong with its entries."""
    usable, problems = read_results(path, labels)
    metric = KeypointAP(labels.truth(), _groups(labels), skeleton=labels.skeleton)
    metric.add_results(usable)
    return metric.compute(), problems


def read_results(path: Path, labels: Labels) -> tuple[list[dict[str, Any]], Problems]:
    """Read a COCO results file: `{image_id, category_id, keypoints, score}`, unchanged.

    The file that `dpose predict --json` writes is accepted too: its pictures are found by their file names. Invalid
    entries are left out and reported by their position in the file.
    """
    problems = Problems()
    content = read_json(path, problems)
    if isinstance(content, dict):
        content = _own_results(content, path, labels)
    if not isinstance(content, list):
        raise DposeError(
            "predictions-malformed",
            "should be a JSON list of people",
            str(path),
            "give a file of COCO's results format",
        )
    known, values = {image.id for image in labels.pictures}, 3 * len(labels.skeleton)
    usable: list[dict[str, Any]] = []
    for where, entry in results_of(content, path, "person", problems):
        flat, score = numbers(entry.get("keypoints"), values), numbers([entry.get("score")], 1)
        if flat is None:
            problems.add(f"keypoints are not {values} finite numbers", where)
        elif score is None:
            problems.add("no finite score", where)
        elif entry["image_id"] not in known:
            problems.add("a person in a picture that is not among the labels", where, detail=f"{entry['image_id']}")
        else:
            usable.append(
                {"image_id": entry["image_id"], "category_id": 1, "keypoints": flat.tolist(), "score": float(score[0])}
            )
    if content and not usable:
        why = "none is of category 1, a person"
        raise problems.all_unusable(path, f"{len(content):,} people", why, "predictions-all-unusable")
    return usable, problems


def _own_results(content: dict[str, Any], path: Path, labels: Labels) -> list[Any]:
    """Return the entries of `dpose predict --json`, with the labels' numbers of the pictures."""
    try:
        joints = tuple(content["categories"][0]["keypoints"])
        names = {id_of(image["id"]): str(image["file_name"]) for image in content["images"]}
        entries = [dict(entry) for entry in content["annotations"]]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DposeError(
            "predictions-malformed", "should be a list of people, or what dpose predict --json writes", str(path)
        ) from error
    if joints != labels.skeleton.joints:
        whose = "COCO's" if labels.skeleton == COCO else "the labels'"
        message = f"holds {len(joints)} joints that are not {whose} {len(labels.skeleton)}"
        raise DposeError("joints-differ", message, str(path), f"use a model of {whose} joints")
    places: dict[Any, int] = {None: -1}
    named: dict[int, str] = {}
    for entry in entries:
        image = id_of(entry.get("image_id"))
        if image not in places:
            name = names.get(image, "")
            found = labels.picture_of(PurePath(name))
            places[image] = found.id if found else -1
            if found and named.setdefault(found.id, name) != name:
                said = f"names {named[found.id]} and {name}, and both would be {found.name} of the labels"
                raise DposeError("picture-name-ambiguous", said, str(path), "predict on the labels' own folder")
        entry["image_id"] = places[image]
    return entries


def score_mpii_predictions(path: Path, labels: Labels) -> PCKhResult:
    """Compute PCKh of predictions in the order of MPII's label file (`read_mpii_predictions`)."""
    points = read_mpii_predictions(path, labels)
    metric = PCKh()
    for p in labels.people:
        keypoints, visible = p.keypoints[None].astype(np.float32), p.flags[None] > 0
        metric.update(points[p.id][None] - 1, keypoints, visible, np.array([p.head_length]))
    return metric.compute()


def read_mpii_predictions(path: Path, labels: Labels) -> NDArray[np.float64]:
    """Read predictions in the order of MPII's label file, which counts pixels from one: (N, 16, 2).

    A `.mat` file holds `preds`, (N, 16, 2), as HRNet writes it; a JSON file a list of N people, each 16 pairs (or
    triples, with a score), or an object with them under "joints" or "keypoints".
    """
    points = _mat_points(path) if path.suffix.lower() == ".mat" else _json_points(path)
    if points.shape != (labels.entries, len(MPII), 2):
        raise DposeError(
            "predictions-of-wrong-shape",
            f"holds predictions of shape {points.shape}, the labels are of {labels.entries:,} people, 16 joints",
            str(path),
            "one prediction for each entry of the label file, in its order",
        )
    return points


def _mat_points(path: Path) -> NDArray[np.float64]:
    if not path.is_file():
        raise DposeError("file-missing", "no such file", str(path))
    values = read_mat(path, ("preds",)).get("preds")
    if values is None or values.dtype.kind not in "fiu":
        raise DposeError("predictions-missing", "holds no variable 'preds' of numbers", str(path))
    return np.asarray(values, np.float64)[..., :2]


def _json_points(path: Path) -> NDArray[np.float64]:
    content = read_json(path)
    if not isinstance(content, list):
        raise DposeError("predictions-malformed", "should be a JSON list of people", str(path))
    people = []
    for number, entry in enumerate(content, 1):
        rows = entry.get("joints", entry.get("keypoints")) if isinstance(entry, dict) else entry
        pairs = [numbers(row) for row in rows] if isinstance(rows, list) else []
        if len(pairs) != len(MPII) or any(p is None or len(p) not in (2, 3) for p in pairs):
            raise DposeError("prediction-entry-invalid", f"entry {number} is not 16 pairs of finite numbers", str(path))
        people.append([p[:2] for p in pairs if p is not None])
    return np.array(people).reshape(-1, len(MPII), 2)


class WholePictures(PeopleFinder, Protocol):
    """Finds the people of whole pictures, or the person of a picture of one."""

    def one(self, image: NDArray[np.uint8]) -> FoundPerson:
        """Return the person of a picture of one; there always is one."""


def finder_of(model: PoseModel, *, flip_test: bool = False) -> WholePictures:
    """Return a finder of people in whole pictures with a model.

    BlazePose's detector looks for everybody. A model of another codec has no detector: it takes the picture for a crop
    of one person, and `flip_test` averages with the mirrored picture.
    """
    if isinstance(base_of(model.codec), BlazePoseCodec):
        return BlazePeople(model)
    return ModelPeople(model, flip_test=flip_test)


def whole_picture_pckh(
    finder: WholePictures, pictures: Sequence[Picture], labels: Skeleton, *, advance: Callable[[], None] = lambda: None
) -> PCKhResult:
    """Compute PCKh of people who are found without boxes, on MPII's joints: every labelled person counts, found or not.

    In a picture of one labelled person, the person of `WholePictures.one` is scored. In a picture of several everybody
    is looked for, and each labelled person is scored on the found person that `nearest` assigns; without one, all of
    the joints are missed. Found people who are not labelled cost nothing.

    Joints that the finder does not have are not scored; neck and head top follow from shoulders and ears (`joint_map`,
    of a prediction). Pictures without any known head length are not searched: PCKh leaves those people out.

    Args:
        finder: Finder of people in whole pictures.
        pictures: Pictures with their labelled people.
        labels: Skeleton of the labels.
        advance: Called after every picture.
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
            detected = [finder.one(image)] if len(people) == 1 else finder(image)
            candidates = predicted.points(
                np.stack([person.pose.keypoints for person in detected])
                if detected
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


def nearest(detected: NDArray[np.float64], true: NDArray[np.float64], seen: NDArray[np.bool_]) -> list[int | None]:
    """Assign to each labelled person a found one, each for one person at most.

    The distance between a labelled and a found person is the mean distance, in pixels of the picture, of the joints
    that are labelled and that the finder has. The closest pair is assigned first, then the closest of the remaining
    people, and so on until either side is used up. No distance is too far: joints that lie far away are missed.

    Args:
        detected: (F, J, 2), pixels.
        true: (P, J, 2), the same pixels.
        seen: (P, J), true where a joint is labelled and the finder has it.

    Returns:
        P indices into the found people; None for a person without one, or without such a joint.
    """
    chosen: list[int | None] = [None] * len(true)
    if not len(detected):
        return chosen
    apart = np.linalg.norm(true[:, None] - detected[None], axis=-1)
    there = seen[:, None] & np.isfinite(apart)
    total = np.where(there, apart, 0.0).sum(-1)
    means = np.where(there.any(-1), total / np.maximum(there.sum(-1), 1), np.inf)
    for pair in np.argsort(means, axis=None, kind="stable"):
        person, number = divmod(int(pair), len(detected))
        if np.isfinite(means[person, number]) and chosen[person] is None and number not in chosen:
            chosen[person] = number
    return chosen
