"""Measurement of one cell: train on a method's releases, and test action recognition and attribute inference."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from dpose.action.data.units import VideoSet, VideoUnits
from dpose.action.model import ActionConfig, fresh_model
from dpose.action.task import ActionTask, Top1Result
from dpose.training.optim import OptimizerConfig
from dpose.training.options import RunOptions
from dpose.training.plan import TrainingPlan
from dpose.training.trainer import train
from dpose.training.validation import metric_of_views
from dpose_lab.attribute_task import AttributeResult, AttributeTask
from dpose_lab.papers.video.methods import DELTA, VideoMethod, released_videos

ACTION_EPOCHS, ATTRIBUTE_EPOCHS, PRIVATE_EPOCHS = 8.0, 15.0, 15.0
BATCH, PRIVATE_BATCH = 16, 64
STEPS = 3
"""Number of progress steps of a cell: release, learn actions, learn attributes."""


def measure_videos(
    method: VideoMethod,
    train_set: VideoSet,
    test_set: VideoSet,
    seed: int,
    external: Mapping[str, Path],
    folder: Path,
    progress: Callable[[], None],
    witness: VideoSet | None = None,
    public: tuple[bool, bool] = (False, False),
) -> dict[str, Any]:
    """Measure top-1 on raw and on released test videos, and cMAP and F1 of the attributes on both.

    The attributes are learnt from the middle frames of released training videos with their true labels: an
    attacker who knows some of the people and sees releases can do so. Privately trained models release no videos, so
    they have no such measure.

    Args:
        method: Row of the table.
        train_set: Raw videos.
        test_set: Raw videos of other people.
        seed: Seed of weights, order and noise.
        external: Folders of videos that were made elsewhere, by row.
        folder: Folder of released files.
        progress: Called `STEPS` times.
        witness: Pictures or videos of other data to learn the attributes from, released by the method too; None for
            those of `train_set`.
        public: True if the videos and `witness` are public.
    """
    began = time.perf_counter()
    shown, shown_test = (
        released_videos(v, method, seed, external, folder, public=public[0]) for v in (train_set, test_set)
    )
    for videos in (shown, shown_test):
        for video in videos.videos:
            video.source.count()
    measured: dict[str, Any] = {
        "release_seconds": (time.perf_counter() - began) / (len(shown) + len(shown_test)),
        "train": len(shown),
        "test": len(test_set),
    }
    progress()
    model = ActionConfig(train_set.actions)
    task = ActionTask(train_set.actions)
    tests = [VideoUnits(videos, model) for videos in (test_set, shown_test)]
    raw, own = learn(
        task, VideoUnits(shown, model, views=method.views, augment=True), tests, training_plan(method), seed
    )
    assert isinstance(raw, Top1Result)
    assert isinstance(own, Top1Result)
    measured["top1_raw"] = raw.top1
    progress()
    if method.kind != "train":
        measured["top1_released"] = own.top1
        known = shown
        if witness is not None:
            known = released_videos(witness, method, seed, {}, folder, public=public[1])
        if known.attributes:
            measured |= _attributes(known, [test_set, shown_test], seed)
    progress()
    return measured


def _attributes(shown: VideoSet, tests: list[VideoSet], seed: int) -> dict[str, Any]:
    model = ActionConfig(shown.attributes, frames=1)
    task = AttributeTask(shown.attributes)
    units = VideoUnits(shown, model, augment=True, labels="attributes")
    plan = TrainingPlan(method="non-private", epochs=ATTRIBUTE_EPOCHS, expected_batch_size=BATCH, unit="video")
    held_out = [VideoUnits(videos, model, labels="attributes") for videos in tests]
    raw, own = learn(task, units, held_out, plan, seed)
    assert isinstance(raw, AttributeResult)
    assert isinstance(own, AttributeResult)
    return {
        "cmap_raw": raw.cmap,
        "f1_raw": raw.mean_f1,
        "cmap_released": own.cmap,
        "f1_released": own.mean_f1,
        "cmap_chance": raw.chance,
    }


def training_plan(method: VideoMethod) -> TrainingPlan:
    """Training plan of a row's model."""
    if method.kind != "train":
        return TrainingPlan(method="non-private", epochs=ACTION_EPOCHS, expected_batch_size=BATCH, unit="video")
    return TrainingPlan(
        method="dp-sgd",
        epsilon=method.epsilon,
        delta=DELTA,
        epochs=PRIVATE_EPOCHS,
        expected_batch_size=PRIVATE_BATCH,
        clip_norm=0.4,
        unit="video",
    )


def learn(task: Any, units: VideoUnits, tests: list[VideoUnits], plan: TrainingPlan, seed: int) -> list[Any]:
    """Train from scratch in a temporary folder, and score on each of `tests`.

    The run's state is temporary, too: the experiment's own charge covers the private videos and the scores.

    Raises:
        KeyboardInterrupt: the training was stopped.
    """
    quiet = Console(quiet=True)
    model = fresh_model(units.config, seed).to("cuda" if torch.cuda.is_available() else "cpu")
    with tempfile.TemporaryDirectory() as place:
        run = train(
            task,
            model,
            private=units,
            plan=plan,
            out=Path(place) / "run",
            optimizer=OptimizerConfig(lr=2e-3),
            options=RunOptions(
                seed=seed, state_dir=Path(place) / "state", console=quiet, microbatch_size=BATCH * units.views
            ),
        )
    if run.interrupted:
        raise KeyboardInterrupt  # a shorter training is not a cell's result
    return [metric_of_views(task, run.model, test, microbatch_size=BATCH, console=quiet) for test in tests]
