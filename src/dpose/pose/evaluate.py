"""From a model, labelled pictures and boxes to average precision; and from somebody's predictions to a score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.pose.ap import APResult, KeypointAP
from dpose.pose.blaze_codec import BlazePoseCodec
from dpose.pose.blaze_people import BlazePeople
from dpose.pose.crops import Box, zoom_of
from dpose.pose.data.labels import Labels
from dpose.pose.data.matlab import read_mat
from dpose.pose.data.problems import Problems, numbers, read_json, results_of
from dpose.pose.metrics import PCKh, PCKhResult
from dpose.pose.model import PoseModel
from dpose.pose.oks import oks_nms, person_score
from dpose.pose.people import PeopleFinder
from dpose.pose.predict import predict_people
from dpose.pose.skeletons import COCO, MPII, JointMap, Skeleton, joint_map


def label_boxes(labels: Labels) -> dict[int, list[Box]]:
    """The labels' own boxes by picture id, each with score 1: the people that are learnt from."""
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
    """AP and AR of a model on labels in COCO's format: each box's person predicted, scored, near doubles removed.

    A model of another skeleton is scored on the joints it shares with the labels' (`KeypointAP.predicted`). BlazePose's
    detector says where in a box the person is and how turned, as it does when such a model is trained.

    Args:
        model: On its device.
        labels: What is true.
        boxes: Where to look, by picture id: a detector's, or `label_boxes`.
        flip_test: Average with the mirrored crop; of BlazePose there is no such average.
        advance: Called after every picture.

    Raises:
        DposeError: a picture is damaged or of another size than its labels say, or model and labels share no joint.
    """
    way, there, metric = _compared(model.config.skeleton, labels)
    sigmas = [s for s, t in zip(labels.skeleton.sigmas, there, strict=True) if t]
    finder = BlazePeople(model) if isinstance(model.codec, BlazePoseCodec) else None
    height, width = model.config.input_size
    for image in labels.pictures:
        found = list(boxes.get(image.id, ()))
        if found:
            picture = labels.read(image)
            people = (
                [person.pose for person in finder(picture, found)]
                if finder
                else predict_people(model, picture, [b.corners for b in found], flip_test=flip_test)
            )
            points = way.points(np.stack([p.keypoints for p in people]))
            sure = way.values(np.stack([p.scores for p in people]))
            scores = person_score([b.score for b in found], sure)
            areas = [height * width / zoom_of(b.crop((height, width))) ** 2 for b in found]
            kept = oks_nms(points[:, there], scores, areas, sigmas)
            metric.update(image.id, points[kept], sure[kept], scores[kept])
        advance()
    return metric.compute()


def whole_picture_ap(
    finder: PeopleFinder, labels: Labels, *, advance: Callable[[], None] = lambda: None
) -> APResult:
    """AP and AR of everybody who is found in whole pictures, on labels in COCO's format: no boxes are used.

    Each person found is a detection with the score that the finder gives. Pictures without labelled people count for
    what is wrongly found there.

    Args:
        finder: Of people in whole pictures (`dpose.pose.whole_pictures.finder_of`).
        labels: What is true.
        advance: Called after every picture.

    Raises:
        DposeError: as `keypoint_ap`.
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
    """From predicted joints to the labels', which of those there are, and the metric.

    Raises:
        DposeError: they share none.
    """
    way = joint_map(skeleton, labels.skeleton, predicted=True)
    there = [t not in way.missing for t in range(len(labels.skeleton))]
    if not any(there):
        raise DposeError("joints-differ", "the model has none of the labels' joints", labels.name)
    return way, there, KeypointAP(labels.truth(), _groups(labels), there, labels.skeleton)


def _groups(labels: Labels) -> dict[str, list[int]]:
    """Pictures' ids by group, for tables."""
    groups: dict[str, list[int]] = {}
    for image in labels.pictures:
        if image.group:
            groups.setdefault(image.group, []).append(image.id)
    return dict(sorted(groups.items()))


def score_results(path: Path, labels: Labels) -> tuple[APResult, Problems]:
    """AP and AR of a COCO results file, by itself: `{image_id, category_id, keypoints, score}`, as it stands there.

    The file that `dpose predict --json` writes is understood too: its pictures are found by their file names.

    Entries that make no sense are left out and told by their place in the file.

    Raises:
        DposeError: the file is unreadable, or not one of its entries can be used.
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
            problems.add(
                "a person in a picture that is not among the labels", where, detail=f"{entry['image_id']}"
            )
        else:
            usable.append(
                {
                    "image_id": entry["image_id"],
                    "category_id": 1,
                    "keypoints": flat.tolist(),
                    "score": float(score[0]),
                }
            )
    if content and not usable:
        why = problems.found[0] if problems else "none is of category 1, a person"
        raise DposeError(
            "predictions-all-unusable",
            f"not one of its {len(content):,} people can be used; {why}",
            str(path),
        )
    metric = KeypointAP(labels.truth(), _groups(labels), skeleton=labels.skeleton)
    metric.add_results(usable)
    return metric.compute(), problems


def _own_results(content: dict[str, Any], path: Path, labels: Labels) -> list[Any]:
    """The entries of `dpose predict --json`, with the labels' numbers of the pictures."""
    try:
        joints = tuple(content["categories"][0]["keypoints"])
        names = {image["id"]: image["file_name"] for image in content["images"]}
        entries = [dict(entry) for entry in content["annotations"]]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DposeError(
            "predictions-malformed",
            "should be a list of people, or what dpose predict --json writes",
            str(path),
        ) from error
    if joints != labels.skeleton.joints:
        whose = "COCO's" if labels.skeleton == COCO else "the labels'"
        told = f"holds {len(joints)} joints that are not {whose} {len(labels.skeleton)}"
        raise DposeError("joints-differ", told, str(path), f"use a model of {whose} joints")
    numbers_of = {Path(image.name).name: image.id for image in labels.pictures}
    for entry in entries:
        entry["image_id"] = numbers_of.get(names.get(entry.get("image_id"), ""), -1)
    return entries


def score_mpii_predictions(path: Path, labels: Labels) -> PCKhResult:
    """PCKh of predictions that stand in the order of MPII's label file, counting pixels from one as it does.

    A `.mat` file holds `preds`, (N, 16, 2), as HRNet writes it; a JSON file a list of N people, each 16 pairs (or
    triples, with a score), or an object with them under "joints" or "keypoints".

    Raises:
        DposeError: the file is unreadable, or holds another number of people or joints.
    """
    points = _mat_points(path) if path.suffix.lower() == ".mat" else _json_points(path)
    if points.shape != (labels.entries, len(MPII), 2):
        raise DposeError(
            "predictions-of-wrong-shape",
            f"holds predictions of shape {points.shape}, the labels are of {labels.entries:,} people, 16 joints",
            str(path),
            "one prediction for each entry of the label file, in its order",
        )
    metric = PCKh()
    for p in labels.people:
        keypoints, visible = p.keypoints[None].astype(np.float32), p.flags[None] > 0
        metric.update(points[p.id][None] - 1, keypoints, visible, np.array([p.head_length]))
    return metric.compute()


def _mat_points(path: Path) -> NDArray[np.float64]:
    if not path.is_file():
        raise DposeError("file-missing", "no such file", str(path))
    found = read_mat(path, ("preds",)).get("preds")
    if found is None or found.dtype.kind not in "fiu":
        raise DposeError("predictions-missing", "holds no variable 'preds' of numbers", str(path))
    return np.asarray(found, np.float64)[..., :2]


def _json_points(path: Path) -> NDArray[np.float64]:
    content = read_json(path)
    if not isinstance(content, list):
        raise DposeError("predictions-malformed", "should be a JSON list of people", str(path))
    people = []
    for number, entry in enumerate(content, 1):
        rows = entry.get("joints", entry.get("keypoints")) if isinstance(entry, dict) else entry
        pairs = [numbers(row) for row in rows] if isinstance(rows, list) else []
        if len(pairs) != len(MPII) or any(p is None or len(p) not in (2, 3) for p in pairs):
            raise DposeError(
                "prediction-entry-invalid", f"entry {number} is not 16 pairs of finite numbers", str(path)
            )
        people.append([p[:2] for p in pairs if p is not None])
    return np.array(people).reshape(-1, len(MPII), 2)
