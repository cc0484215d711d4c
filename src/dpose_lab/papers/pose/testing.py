"""Tests of finished models: on sharp pictures, on public views, on people who stand upright; and person by person."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from dpose.account import committing
from dpose.errors import DposeError
from dpose.files import file_json, write_atomic
from dpose.pose.backbones import shipped_weights
from dpose.pose.data import DataSpec
from dpose.pose.folder import load_model
from dpose.pose.metrics import SCORED, PCKh, PCKhResult
from dpose.pose.model import PoseModel
from dpose.pose.predict import predict_outputs
from dpose.pose.skeletons import MPII, SKELETONS, joint_map
from dpose.runs.data import scored_units
from dpose.runs.evaluate import RecordedScore, evaluate_run, record_score, score_boxes
from dpose.runs.places import run_config
from dpose.runs.scored import reserve_labels
from dpose.training.folder import read_statement
from dpose.training.public_view import PublicViews
from dpose.units import UnitDataset
from dpose_lab.stats import Counts

QUIET = Console(quiet=True)
AT_ONCE = 64
TILT = 45.0
"""Largest angle of an upright person's line from mid-hip to head top to the vertical, degrees."""
UPRIGHT_RULE = (
    f"upright: people whose labelled head top is above the middle of their labelled hips, within {TILT:g} degrees of "
    "the vertical of the picture, and whose labelled ankles are below it; chosen by labels alone"
)


@dataclass(frozen=True)
class People:
    """Predictions of a model for every person of some units.

    Attributes:
        names: Names of the units, N.
        predicted: (N, 16, 2), crop pixels, MPII's joints.
        true: (N, 16, 2), labels in the same form.
        labelled: (N, 16), True for labelled joints.
        heads: (N,), PCKh's reference length in crop pixels; nan if unknown.
    """

    names: tuple[str, ...]
    predicted: NDArray[np.float64]
    true: NDArray[np.float64]
    labelled: NDArray[np.bool_]
    heads: NDArray[np.float64]

    def score(self, chosen: NDArray[np.bool_] | None = None) -> PCKhResult:
        """PCKh of everyone, or of the people `chosen`, (N,)."""
        metric = PCKh()
        mask = np.ones(len(self.names), bool) if chosen is None else chosen
        metric.update(self.predicted[mask], self.true[mask], self.labelled[mask], self.heads[mask])
        return metric.compute()

    def upright(self) -> NDArray[np.bool_]:
        """Flags of people who stand upright by the labels (`UPRIGHT_RULE`), (N,)."""
        hips, ankles, head = [2, 3], [0, 5], 9
        middle = self.true[:, hips].mean(1)
        across, up = (self.true[:, head] - middle).T * np.array([[1.0], [-1.0]])
        known = self.labelled[:, [*hips, head]].all(1)
        lean = np.degrees(np.arctan2(np.abs(across), up))
        below = (self.true[:, ankles, 1] > middle[:, 1:]) | ~self.labelled[:, ankles]
        result: NDArray[np.bool_] = known & (lean <= TILT) & below.all(1)
        return result

    def correct_joints(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Counts of correct joints at PCKh@0.5, (N,), and of scored joints, (N,), of each person."""
        scored = self.labelled[:, list(SCORED)] & (self.heads > 0)[:, None]
        apart = np.linalg.norm(self.predicted - self.true, axis=-1)[:, list(SCORED)]
        near = apart <= 0.5 * np.nan_to_num(self.heads)[:, None]
        return (near & scored).sum(1), scored.sum(1)

    def write(self, path: Path) -> None:
        """Write the scores of each person, for intervals and for choosing pictures; `read_people` reads them."""
        correct, scored = self.correct_joints()
        content = {"units": list(self.names), "found": correct.tolist(), "scored": scored.tolist()}
        write_atomic(path, json.dumps(content) + "\n")


def read_people(path: Path) -> Counts:
    """Read the scores of each person that `People.write` wrote."""
    try:
        content = file_json(path)
        names = tuple(map(str, content["units"]))
        correct, scored = (np.array(content[name], np.int64) for name in ("found", "scored"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DposeError(
            "result-unreadable", "cannot be read", str(path), "delete its cell's file, and run again"
        ) from error
    if correct.shape != scored.shape or correct.shape != (len(names),):
        raise DposeError(
            "result-counts-wrong", "does not count each person once", str(path), "delete its cell's file, and run again"
        )
    return Counts(names, correct, scored)


def tested(run: Path, data: str, limit: int | None, *, views: bool) -> tuple[dict[str, Any], People | None]:
    """Score the model in `run`.

    Args:
        run: A run or model folder.
        data: Data with the split.
        limit: At most so many units.
        views: True to test also on the public views that the run learnt from.

    Returns:
        Scores as JSON: "metric", "columns", and for PCKh "people", "upright" and "upright_people"; with `views` also
        "view_columns". And, for PCKh, everyone.
    """
    shipped = run.resolve() in {folder.resolve() for folder in shipped_weights().values()}
    model = load_model(run).to("cuda" if torch.cuda.is_available() else "cpu")
    spec = DataSpec.parse(data).for_purpose("evaluate")
    # the weights that come with dpose belong to no run: there is no folder to record a score in
    reserved = ""
    if shipped and not spec.public:
        read = scored_units(data, model.config, limit)
        reserved = reserve_labels(run, read, name=spec.shown, console=QUIET)
    with committing(reserved):
        return _scores(run, model, spec, data, limit, shipped=shipped, views=views)


def _scores(
    run: Path, model: PoseModel, spec: DataSpec, data: str, limit: int | None, *, shipped: bool, views: bool
) -> tuple[dict[str, Any], People | None]:
    if shipped and spec.dataset.oks:
        boxes = score_boxes(model, spec, limit=limit, console=QUIET)[0]
        return {"metric": "OKS AP", "columns": _percent(boxes.columns())}, None
    if not shipped:
        result = evaluate_run(run, data, limit=limit, console=QUIET)[0]
        if not isinstance(result, PCKhResult):
            return {"metric": "OKS AP", "columns": _percent(result.columns())}, None
    units = scored_units(data, model.config, limit)
    everyone = people(model, units.with_skeleton(MPII))
    upright = everyone.upright()
    scores = {"": everyone.score(), "upright": everyone.score(upright)}
    if views:
        blurred = PublicViews(units.with_skeleton(MPII), run_config(run).plan.public_view)
        scores["public views"] = people(model, blurred).score()
    statement = read_statement(run)
    for name, score in scores.items():
        if name and not shipped:
            title = f"{spec.shown}, {name}"
            record_score(run, RecordedScore(title, spec.public, len(units), score), statement, QUIET)
            statement = read_statement(run)
    values: dict[str, Any] = {
        "metric": "PCKh",
        "columns": _clean(scores[""].columns()),
        "people": scores[""].people,
        "upright": _clean(scores["upright"].columns()),
        "upright_people": scores["upright"].people,
    }
    if views:
        values["view_columns"] = _clean(scores["public views"].columns())
    return values, everyone


def people(model: PoseModel, units: UnitDataset) -> People:
    """Predict everyone in `units`, which are not augmented and have MPII's joints.

    Args:
        model: Model with joints of MPII.
        units: `PoseUnits` or their public views.
    """
    rng = np.random.default_rng(0)
    names: list[str] = []
    views = []
    for index in range(len(units)):
        for view in units.load(index, rng):
            names.append(units.unit_id(index))
            views.append(view)
    guesses = []
    for start in range(0, len(views), AT_ONCE):
        crops = np.stack([view.image for view in views[start : start + AT_ONCE]])
        shown = torch.from_numpy(crops).permute(0, 3, 1, 2).to(next(model.parameters()).device)
        points, _ = model.codec.decode(predict_outputs(model, shown))
        guesses.append(points.double().cpu().numpy())
    known = joint_map(SKELETONS[model.config.skeleton], MPII, predicted=True)
    labelled = np.stack([view.target["labelled"] for view in views]) > 0
    labelled[:, list(known.missing)] = False
    return People(
        tuple(names),
        known.points(np.concatenate(guesses)),
        np.stack([view.target["keypoints"] for view in views]).astype(np.float64),
        labelled,
        np.array([view.target["head_length"] for view in views], np.float64),
    )


def _clean(columns: Mapping[str, float]) -> dict[str, float | None]:
    return {name: float(value) if np.isfinite(value) else None for name, value in columns.items()}


def _percent(columns: Mapping[str, float]) -> dict[str, float | None]:
    return {name: None if value is None else 100 * value for name, value in _clean(columns).items()}
