"""The same people under every method: where models agree best with the labels, and where worst."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from dpose.account import committing
from dpose.media.drawing import draw_skeleton, picture_grid
from dpose.media.images import encode_image
from dpose.pose.data import DataSpec, PoseUnits
from dpose.pose.folder import WEIGHTS, load_model
from dpose.pose.model import PoseModel
from dpose.pose.predict import predict_image
from dpose.pose.skeletons import SKELETONS
from dpose.report.results import Figure
from dpose.runs.data import scored_units
from dpose.runs.scored import reserve_shown
from dpose.units import View
from dpose_lab.papers.experiment import Outcome
from dpose_lab.papers.pose.run import PEOPLE, model_of
from dpose_lab.papers.pose.tables import Ours, by_setting, named
from dpose_lab.papers.pose.testing import read_people
from dpose_lab.papers.pose.training_cell import START, Setup, Training

EACH = 3
"""Number of pictures at each end."""
LEAST = 8
"""Smallest number of scored joints of a chosen person."""
HEIGHT = 256
"""Side of a picture on the sheet, pixels."""


def side_by_side(name: str, setup: Setup, folder: Path, outcomes: Sequence[Outcome], show: bool) -> Figure | None:
    """Tested people with predictions drawn in, a column per method; None if there is nothing to compare.

    The setting of each method with the largest epsilon is shown, with the C of the highest mean. Pictures are
    releases: those of data that are neither public nor rendered are shown only if the user allows it, and are charged
    as unbounded.

    Args:
        name: Name of the experiment.
        setup: Settings that the trainings share.
        folder: Folder of the results.
        outcomes: Outcomes of all cells.
        show: True if pictures may be shown whatever the data are.
    """
    spec = DataSpec.parse(setup.evaluate)
    if not (show or spec.may_be_shown):
        return None
    chosen = _chosen(by_setting(outcomes))
    chosen = [t for t in chosen if (folder / PEOPLE / f"{t.key}.json").exists()]
    chosen = [t for t in chosen if (model_of(setup, t, folder) / WEIGHTS).exists()]
    if sum(t.private for t in chosen) < 1 or len(chosen) < 2:
        return None
    models = [load_model(model_of(setup, t, folder)) for t in chosen]
    units = scored_units(setup.evaluate, models[0].config, setup.tested)
    order = _ranked([folder / PEOPLE / f"{t.key}.json" for t in chosen], units)
    if len(order) < 2 * EACH:
        return None
    picked = [*order[:EACH], *order[-EACH:]]
    reserved = ""
    if not spec.may_be_shown:
        quiet = Console(quiet=True)
        reserved = reserve_shown(folder, units.subset(picked), name=spec.shown, console=quiet)
    titles = ["labels", *(t.method if t.method != START else "start" for t in chosen)]
    panels, labels = [], []
    with committing(reserved):
        for index in picked:
            view = units.load(index, np.random.default_rng(0))[0]
            panels += [_labelled(units, view), *(_predicted(model, view) for model in models)]
            labels += [*titles]
        sheet = picture_grid(panels, len(titles), pad=6, labels=labels)
    caption = (
        f"{spec.shown}: of the people with at least {LEAST} scored joints, the {EACH} of whom these models find "
        f"the largest share of joints on average (above) and the {EACH} with the smallest (below), ties by name. "
        "Columns: labels; "
        + "; ".join(map(named, chosen))
        + ". Of each method the largest epsilon that was run, and there the best C"
    )
    return Figure(f"{name.replace('/', '-')}-people", caption, png=encode_image(sheet, ".png"))


def _chosen(ours: Mapping[Training, Ours]) -> list[Training]:
    """One training per method, of the most frequent strategy; the first repetition."""
    done = {t: o for t, o in ours.items() if o.numbers("Mean")}
    strategies = [t.strategy for t in done if t.method != START]
    if not strategies:
        return []
    strategy = max(dict.fromkeys(strategies), key=strategies.count)
    best: dict[str, Training] = {}
    for training, outcome in done.items():
        if training.method != START and training.strategy != strategy:
            continue
        known = best.get(training.method)
        if known is None or _rank(training, outcome) > _rank(known, done[known]):
            best[training.method] = training
    return list(best.values())


def _rank(training: Training, ours: Ours) -> tuple[float, float]:
    return training.epsilon or 0.0, statistics.mean(ours.numbers("Mean"))


def _ranked(files: Sequence[Path], units: PoseUnits) -> list[int]:
    """Units with one person and enough scored joints, the best predicted first."""
    shares: dict[str, list[float]] = {}
    for file in files:
        people = read_people(file)
        counts = Counter(people.names)
        for name, correct, scored in zip(people.names, people.found, people.scored, strict=True):
            if scored >= LEAST and counts[name] == 1:
                shares.setdefault(name, []).append(float(correct / scored))
    places = {units.unit_id(i): i for i in range(len(units))}
    known = [n for n, values in shares.items() if len(values) == len(files) and n in places]
    return [places[n] for n in sorted(known, key=lambda n: (-statistics.mean(shares[n]), n))]


def _labelled(units: PoseUnits, view: View) -> NDArray[np.uint8]:
    points = view.target["keypoints"].astype(np.float64)
    return _drawn(view.image, points, view.target["labelled"].astype(np.float64), units.skeleton.name)


def _predicted(model: PoseModel, view: View) -> NDArray[np.uint8]:
    points = predict_image(model, view.image).keypoints
    return _drawn(view.image, points, np.ones(len(points)), model.config.skeleton)


def _drawn(
    image: NDArray[np.uint8], points: NDArray[np.float64], shown: NDArray[np.float64], joints: str
) -> NDArray[np.uint8]:
    zoom = HEIGHT / image.shape[0]
    size = (round(image.shape[1] * zoom), HEIGHT)
    large = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_CUBIC), np.uint8)
    skeleton = SKELETONS[joints]
    # pixel centres are whole numbers
    return draw_skeleton(large, (points + 0.5) * zoom - 0.5, shown, skeleton.edges, skeleton.colours)
