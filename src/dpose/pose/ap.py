"""Average precision and recall of keypoints by object keypoint similarity, computed by `pycocotools`."""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich import box
from rich.console import Group
from rich.table import Table

from dpose.pose.metrics import bar_panels, for_json, joint_similarity
from dpose.pose.skeletons import BUILT_IN, COCO, Skeleton

COLUMNS = ("AP", "AP50", "AP75", "AP(M)", "AP(L)", "AR", "AR50", "AR75", "AR(M)", "AR(L)")
"""The ten numbers of pycocotools for keypoints, in its order: AP as the mean over OKS .50:.05:.95, at .50, at .75, for
people of medium area (32^2 to 96^2 pixels) and of large area; then the same of recall.
"""


@dataclass(frozen=True)
class APResult:
    """Result of `KeypointAP.compute`. Scores are in [0, 1]; nan if no person was scored.

    Attributes:
        scores: The ten numbers, by `COLUMNS`.
        joints: Mean similarity of each joint's labels; joints of an unmatched person count 0.
        groups: The ten numbers and the number of people for each group of pictures (Human-Art's categories).
        pictures: Number of pictures scored.
        people: Number of people to find: not crowds, and with a labelled joint.
        predictions: Number of people predicted.
        left_out: Joints that the model does not predict and that were not scored.
        whole_pictures: True if people were detected in whole pictures, without boxes.
        guessed: True if the falloffs of the joints are 1/J for each of J, and not measured.
    """

    scores: Mapping[str, float]
    joints: Mapping[str, float]
    groups: Mapping[str, tuple[Mapping[str, float], int]]
    pictures: int
    people: int
    predictions: int
    left_out: tuple[str, ...] = ()
    whole_pictures: bool = False
    guessed: bool = False

    def columns(self) -> dict[str, float]:
        """Return the ten numbers by name."""
        return dict(self.scores)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers, ready for JSON: nan becomes None."""
        return {
            "metric": "OKS AP",
            "main": "AP",
            "unit": "",
            "columns": {k: for_json(v) for k, v in self.scores.items()},
            "joints": {k: for_json(v) for k, v in self.joints.items()},
            "groups": {
                g: {"people": n, **{k: for_json(v) for k, v in scores.items()}}
                for g, (scores, n) in self.groups.items()
            },
            "pictures": self.pictures,
            "people": self.people,
            "predictions": self.predictions,
            "joints_left_out": list(self.left_out),
            **({"whole_pictures": True} if self.whole_pictures else {}),
            **({"falloffs": "1/J"} if self.guessed else {}),
        }

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("", *COLUMNS)] if self.groups else [COLUMNS]
        named = [("all", self.scores), *((g, s) for g, (s, _) in self.groups.items())]
        rows += [((name,) if self.groups else ()) + tuple(_cell(s[c]) for c in COLUMNS) for name, s in named]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [" ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
        return "\n".join([*lines, self._footnote()])

    def __rich__(self) -> Group:
        table = Table(title="Average precision and recall, by OKS", caption=self._footnote(), box=None)
        table.padding, table.pad_edge = (0, 1, 0, 0), False
        if self.groups:
            table.add_column("pictures of (people)")
        for column in COLUMNS:
            table.add_column(column, justify="right", no_wrap=True)
        rows = [("all", self.scores, self.people), *((g, s, n) for g, (s, n) in self.groups.items())]
        for name, scores, count in rows:
            front = (f"{name} ({count})",) if self.groups else ()
            table.add_row(*front, *(_cell(scores[c]) for c in COLUMNS))
        return Group(table, _joint_table("Similarity by joint", self.joints))

    def plot(self) -> Any:
        """Draw each joint's similarity, and each group's AP if there are groups; a matplotlib Figure."""
        panels = [("Similarity by joint", dict(self.joints))]
        if self.groups:
            panels.append(("AP by scenario", {g: s["AP"] for g, (s, _) in self.groups.items()}))
        return bar_panels(panels, top=1.0, title=f"AP {_cell(self.scores['AP'])}")

    def _footnote(self) -> str:
        note = f"{self.people} people in {self.pictures} pictures, {self.predictions} predicted"
        if self.left_out:
            note += f"; not scored, since the model has no such joints: {', '.join(self.left_out)}. "
            note += "Not comparable with published AP"
        if self.whole_pictures:
            note += ". Whole pictures, no boxes used"
        if self.guessed:
            note += f". Falloffs are 1/{len(self.joints) + len(self.left_out)}, guessed: comparable with nothing else"
        return note


@dataclass
class KeypointAP:
    """AP and AR, on COCO's seventeen joints or others: `update(...)` with every picture, then `compute()`.

    The numbers are those of `pycocotools` (`COCOeval`, "keypoints"): nothing is computed again here. Differences from
    what the reference implementations print:

    * The -1 of `pycocotools`, for a set without people, is nan.
    * No predictions at all are an AP of 0; `pycocotools` cannot load them.
    * Predictions may be for some of the joints only (`predicted`): the others are taken out of the labels, and people
      with no joint left are ignored. The result says so; it is not COCO's number.
    * The score that ranks people is bounded (`dpose.pose.metrics.person_score`); `HRNet` and `MMPose` multiply by raw
      maxima. OKS suppression is at 0.9, as theirs.
    * The table by joint has no counterpart there: each labelled person is paired with the prediction that COCOeval
      matches at OKS 0.50, over all areas; a person without one counts 0.

    Args:
        truth: A COCO dictionary with images, annotations of people and categories.
        groups: Picture ids by group; each group has a row of its own.
        predicted: (J,), which joints are predicted; all by default.
        skeleton: Skeleton of the labels; its sigmas are the falloff.
    """

    truth: Mapping[str, Any]
    groups: Mapping[str, Sequence[int]] = field(default_factory=dict)
    predicted: Sequence[bool] | None = None
    skeleton: Skeleton = COCO
    results: list[dict[str, Any]] = field(default_factory=list, init=False)

    def update(self, image: int, keypoints: ArrayLike, joint_scores: ArrayLike, scores: ArrayLike) -> None:
        """Add the N people predicted in one picture.

        Args:
            image: The picture's id.
            keypoints: (N, J, 2), pixels; joints that are not predicted may be nan.
            joint_scores: (N, J).
            scores: (N,), the scores that rank people.
        """
        self.results += coco_results(image, keypoints, joint_scores, scores)

    def add_results(self, results: Sequence[Mapping[str, Any]]) -> None:
        """Add predictions in the form of a COCO results file."""
        self.results += [dict(r) for r in results]

    def compute(self) -> APResult:
        """Return the result over everything added so far; the metric may be updated further."""
        truth, left_out = self._reduced()
        images = [i["id"] for i in truth["images"]]
        scores, evaluation = _evaluate(truth, self.results, images, self.skeleton)
        groups = {}
        for group, ids in self.groups.items():
            groups[group] = (_evaluate(truth, self.results, list(ids), self.skeleton)[0], _count(truth, set(ids)))
        return APResult(
            scores,
            _by_joint(truth, evaluation, self.skeleton),
            groups,
            len(images),
            _count(truth, set(images)),
            len(self.results),
            left_out,
            guessed=self.skeleton.name not in BUILT_IN,
        )

    def _reduced(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the labels without the joints that are not predicted, and the names of those joints."""
        # numbered from 1: COCOeval takes a match with the annotation number 0 for no match
        annotations = [{**a, "id": n} for n, a in enumerate(self.truth["annotations"], 1)]
        truth = {**self.truth, "annotations": annotations}
        if self.predicted is None or all(self.predicted):
            return truth, ()
        for annotation in truth["annotations"]:
            rows = np.asarray(annotation["keypoints"], np.float64).reshape(-1, 3)
            rows[~np.asarray(self.predicted, bool)] = 0
            annotation["keypoints"] = rows.ravel().tolist()
            annotation["num_keypoints"] = int((rows[:, 2] > 0).sum())
        names = tuple(n for n, there in zip(self.skeleton.joints, self.predicted, strict=True) if not there)
        return truth, names


def coco_results(image: int, keypoints: ArrayLike, joint_scores: ArrayLike, scores: ArrayLike) -> list[dict[str, Any]]:
    """Convert N people to entries of a COCO results file; joints that are not finite become 0, 0 with score 0."""
    points, sure = np.asarray(keypoints, np.float64), np.asarray(joint_scores, np.float64)
    there: NDArray[np.bool_] = np.asarray(np.isfinite(points).all(axis=-1))
    rows = np.dstack([np.where(there[..., None], points, 0), np.where(there, sure, 0)]) if len(points) else points
    return [
        {"image_id": int(image), "category_id": 1, "keypoints": row.ravel().tolist(), "score": float(score)}
        for row, score in zip(rows, np.asarray(scores, np.float64), strict=True)
    ]


def _joint_table(title: str, joints: Mapping[str, float]) -> Table:
    """Tabulate joints as rows, the person's right and left beside each other."""
    table = Table(title=title, box=box.SIMPLE_HEAD)
    for column in ("joint", "right", "left"):
        table.add_column(column, justify="left" if column == "joint" else "right")
    for name, value in joints.items():
        if name.startswith("r_"):
            table.add_row(name[2:], _cell(value), _cell(joints[f"l_{name[2:]}"]))
        elif not name.startswith("l_"):
            table.add_row(name, _cell(value), "")
    return table


def _evaluate(
    truth: Mapping[str, Any], results: Sequence[Mapping[str, Any]], images: list[int], skeleton: Skeleton
) -> tuple[dict[str, float], Any]:
    """Return the ten numbers over some of the pictures, and the COCOeval object if one was run."""
    from pycocotools import coco
    from pycocotools.cocoeval import COCOeval

    if not _count(truth, set(images)):
        return dict.fromkeys(COLUMNS, float("nan")), None
    known = set(images)
    chosen = [copy.deepcopy(dict(r)) for r in results if r["image_id"] in known]
    if not chosen:
        return dict.fromkeys(COLUMNS, 0.0), None
    with contextlib.redirect_stdout(io.StringIO()):  # it prints; the result here prints itself
        labels = coco.COCO()
        labels.dataset = copy.deepcopy(dict(truth))
        labels.createIndex()
        evaluation = COCOeval(labels, labels.loadRes(chosen), "keypoints")
        evaluation.params.imgIds = images
        evaluation.params.kpt_oks_sigmas = np.array(skeleton.sigmas)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    stats = (float(v) for v in evaluation.stats)
    return {c: float("nan") if v == -1 else v for c, v in zip(COLUMNS, stats, strict=True)}, evaluation


def _by_joint(truth: Mapping[str, Any], evaluation: Any, skeleton: Skeleton) -> dict[str, float]:
    """Return each joint's mean similarity over its labels, with people paired as COCOeval pairs them at OKS 0.50."""
    people = {a["id"]: a for a in truth["annotations"] if _wanted(a)}
    matched: dict[int, NDArray[np.float64]] = {}
    if evaluation is not None:
        predictions = evaluation.cocoDt.anns
        everywhere = list(evaluation.params.areaRng[0])
        for entry in evaluation.evalImgs:
            if entry is None or list(entry["aRng"]) != everywhere:
                continue
            for person, match in zip(entry["gtIds"], entry["gtMatches"][0], strict=True):
                if match:
                    matched[person] = np.asarray(predictions[int(match)]["keypoints"], np.float64).reshape(-1, 3)
    total, count = np.zeros(len(skeleton)), np.zeros(len(skeleton))
    for key, person in people.items():
        rows = np.asarray(person["keypoints"], np.float64).reshape(-1, 3)
        seen = rows[:, 2] > 0
        count += seen
        if key in matched:
            total += seen * joint_similarity(
                matched[key][:, :2], rows[:, :2], np.array(person["area"]), skeleton.sigmas
            )
    with np.errstate(invalid="ignore"):
        return dict(zip(skeleton.joints, (total / count).tolist(), strict=True))


def _wanted(annotation: Mapping[str, Any]) -> bool:
    return not annotation["iscrowd"] and annotation["num_keypoints"] > 0


def _count(truth: Mapping[str, Any], images: set[int]) -> int:
    return sum(a["image_id"] in images and _wanted(a) for a in truth["annotations"])


def _cell(value: float) -> str:
    return f"{value:.3f}" if np.isfinite(value) else "-"
