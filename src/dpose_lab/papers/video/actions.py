"""Utility of released films: an action model trained and tested on them, by epsilon."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dpose.action.data.spec import open_clips
from dpose.action.data.units import VideoSet, VideoUnits
from dpose.action.model import ActionConfig
from dpose.action.task import ActionTask, Top1Result
from dpose.media.images import encode_image
from dpose.privacy.ranges import between, lower, upper
from dpose.release.grid import Shape
from dpose.release.linear import LinearPlan
from dpose.release.plans import bind
from dpose.report.results import Figure, Table
from dpose_lab.papers.experiment import Bound, Cell, Experiment, Findings, Outcome, Request, Values
from dpose_lab.papers.video.measure import learn, training_plan
from dpose_lab.papers.video.methods import DELTA, RAW, VideoMethod, release_of, released_videos, trained, whole_clip
from dpose_lab.stats import Floats, Interval, over_people
from dpose_scene.films import FILM_FRAMES

LOOK, SIZE = "studio", (120, 160)
TRAIN, TEST = 240, 120
SEEN, FRAMES, STRIDE = (48, 64), 8, 3
"""Input of the model: height and width of shrunk frames, and the step between frames."""
EPOCHS, PRIVATE_EPOCHS = 12.0, 20.0
EPSILONS = (1, 2, 4, 8, 16)
SHOWN = {"learned": "restored", "none": "painted"}
PIXELS, HEAD = "pixels:16", "box:12x16/frames:24"
PERSON_ONCE, PERSON = "box:40x100/frames:1", "box:40x100/frames:24"
SAID = {
    PIXELS: "16 pixels of the clip",
    HEAD: "a box of 12x16, a head, in all 24 frames",
    PERSON_ONCE: "a box of 40x100, a person, in 1 frame",
    PERSON: "a box of 40x100, a person, in all 24 frames",
}
RESAMPLES = 2000
DRAWN = 4


def _released(epsilon: int, neighbours: str, restore: str) -> VideoMethod:
    where = neighbours.translate(str.maketrans(":/", "--"))
    return VideoMethod(
        f"{where}-{epsilon}-{SHOWN[restore]}",
        f"dpose release-video, {SHOWN[restore]}",
        SAID[neighbours],
        "release",
        epsilon,
        neighbours=neighbours,
        colour=None,
        restore=restore,
    )


METHODS = {
    method.key: method
    for method in (
        RAW,
        *(_released(e, PIXELS, "learned") for e in reversed(EPSILONS)),
        *(_released(16, box, "learned") for box in (HEAD, PERSON_ONCE, PERSON)),
        *(_released(e, PIXELS, "none") for e in reversed(EPSILONS)),
        *(trained("dp-sgd", "DP-SGD on raw films", e, 1) for e in reversed(EPSILONS)),
        trained("multiclip", "MultiClip-DP on raw films", 16, 3),
    )
}
"""Rows by key, in the order in which they are run."""
QUICK = (RAW.key, "pixels-16-16-restored")
NOTES = (
    f"Films: rendered, {SIZE[1]} x {SIZE[0]}, {FILM_FRAMES} frames at 12 a second, one person in each. "
    f"Each is released whole, delta {DELTA:g}, cells, colour and frames chosen as `dpose release-video` chooses them; "
    f"what is released is then shrunk to {SEEN[1]} x {SEEN[0]} for the model, raw films alike.",
    "Models: nano, from nothing; one run each. Trained on what the row shows; raw test is what such a model finds in "
    "raw films, released test in films shown alike. Test films have other people.",
    "Intervals: 95 %, a bootstrap over the test films. How another training would end is in none of them.",
    "An epsilon of a release covers what its neighbours say, of each film for itself, test films too; labels are "
    "public. An epsilon of DP-SGD covers a whole training film with its label, of the model alone, and shows no film. "
    "They cannot be compared.",
    "All noise came from a seed: these results protect no one.",
)


@dataclass(frozen=True)
class ActionStudy:
    """The experiment bound to its films.

    Attributes:
        train: Films to learn from.
        test: Films of other people, to test on.
        seed: Seed of all randomness.
        quick: True to run only `QUICK`.
        folder: Folder of the results.
    """

    train: VideoSet
    test: VideoSet
    seed: int
    quick: bool
    folder: Path

    @classmethod
    def of(cls, request: Request) -> Bound:
        """Open the films, which are rendered on first use."""
        # cut in their order: actions follow one another, so that all have as many films
        train, test = (
            replace(films, videos=films.videos[: min(count, request.limit or count)])
            for films, count in ((open_clips(LOOK, "train", SIZE), TRAIN), (open_clips(LOOK, "test", SIZE), TEST))
        )
        return cls(train, test, request.noise_seed, request.quick, request.folder)

    @property
    def settings(self) -> Values:
        """Settings that the results depend on."""
        return {"train": len(self.train), "test": len(self.test), "seed": self.seed, "quick": self.quick}

    @property
    def cells(self) -> Sequence[Cell]:
        """Cells, one per row."""
        return [Cell(key, {"method": key}, 2) for key in (QUICK if self.quick else METHODS)]

    def run(self, cell: Cell, progress: Callable[[], None]) -> Values:
        """Release the films, train on them once, and test on raw and on released ones."""
        method = METHODS[cell.settings["method"]]
        began = time.monotonic()
        shown, shown_test = (
            released_videos(films, method, self.seed, {}, self.folder, public=True) for films in (self.train, self.test)
        )
        for video in (*shown.videos, *shown_test.videos):
            whole_clip(video.source)
        released, began = time.monotonic() - began, time.monotonic()
        progress()
        model = ActionConfig(self.train.actions, frames=FRAMES, stride=STRIDE, input_size=SEEN)
        plan = training_plan(method)
        plan = replace(plan, epochs=PRIVATE_EPOCHS if method.kind == "train" else EPOCHS)
        units = VideoUnits(shown, model, views=method.views, augment=True)
        tests = [VideoUnits(films, model) for films in (self.test, shown_test)]
        raw, own = learn(ActionTask(self.train.actions), units, tests, plan, self.seed)
        progress()
        return {
            "raw": _interval(raw, self.seed),
            "released": None if method.kind == "train" else _interval(own, self.seed),
            "seconds": [released, time.monotonic() - began],
            **_noise(method),
        }

    def show(self, outcomes: Sequence[Outcome]) -> Findings:
        """Present top-1 by row."""
        rows = tuple(_row(METHODS[o.cell.settings["method"]], o) for o in outcomes)
        head = ("", "guarantee covers", "epsilon", "cells, frames", "noise, grays", "raw test", "released test")
        title = f"Top-1 in percent; {len(self.train)} films to learn from, {len(self.test)} to test on"
        chance = f"An action is guessed right in {100 / len(self.train.actions):.1f} %."
        return Findings((Table(title, head, rows),), (self._drawn(outcomes),), (chance, *NOTES))

    def _drawn(self, outcomes: Sequence[Outcome]) -> Figure:
        """Frames of one film as each row releases it; private training releases none."""
        film = replace(self.train, videos=self.train.videos[DRAWN : DRAWN + 1] or self.train.videos[:1])
        methods = [METHODS[o.cell.settings["method"]] for o in outcomes if o.status == "done"]
        methods = [method for method in methods if method.kind != "train"] or [RAW]
        strips = []
        for method in methods:
            shown = released_videos(film, method, self.seed, {}, self.folder, public=True)
            strips.append(np.concatenate(list(whole_clip(shown.videos[0].source)[::4]), axis=1))
        rows = "; ".join(f"{m.title} {m.guarantee} {m.epsilon or ''}".strip() for m in methods)
        caption = f"Every fourth frame of one film, from above: {rows}"
        return Figure("frames", caption, png=encode_image(np.concatenate(strips), ".png"))


def _interval(result: object, seed: int) -> Values:
    """Compute top-1 with a bootstrap over films, each of one clip."""
    assert isinstance(result, Top1Result)
    right = (np.arange(result.count) < result.correct).astype(np.float64)

    def share(weights: Floats) -> float:
        return float((right * weights).sum() / weights.sum())

    return over_people(share, result.count, seed, RESAMPLES).to_dict()


def _noise(method: VideoMethod) -> Values:
    """Describe cells and noise of a release, from its plan alone."""
    if method.kind != "release":
        return {}
    shape = Shape.of(*SIZE, 3, frames=FILM_FRAMES)
    plan = bind(release_of(method, shape.values), shape)
    assert isinstance(plan, LinearPlan)
    grid = plan.operator
    return {"cells": [grid.columns, grid.rows, shape.frames / grid.groups], "noise": plan.noise}


def _row(method: VideoMethod, outcome: Outcome) -> tuple[str, ...]:
    epsilon = upper(method.epsilon) if method.epsilon else ""
    values, cells, noise = outcome.values, "", ""
    if outcome.status != "done":
        return (method.title, method.guarantee, epsilon, "", "", outcome.status, outcome.status)
    if "noise" in values:
        columns, rows, frames = values["cells"]
        cells, noise = f"{columns} x {rows}, {frames:.3g}", lower(values["noise"], digits=3)
    scores = (_top1(values[name]) for name in ("raw", "released"))
    return (method.title, method.guarantee, epsilon, cells, noise, *scores)


def _top1(values: Mapping[str, float] | None) -> str:
    if values is None:
        return ""
    interval = Interval(**values)
    return f"{100 * interval.value:.1f} ({between(interval.low, interval.high, places=1, times=100)})"


EXPERIMENTS = (
    Experiment(
        "release-actions",
        "what an action model learns of released films, and finds in them",
        ActionStudy.of,
        reads=lambda _: iter(()),  # films are rendered: no real person is in them
        options=("limit", "seed", "quick"),
    ),
)
