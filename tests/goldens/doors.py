"""The doors of dpose that goldens are taken through: whatever is no public name, command or file stands here alone.

A module or name that moves changes a line here, and no value. `forging.py` is the same for whoever alters an artefact.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rich.console import Console

import dpose
import dpose.training.step as step_module
import dpose.training.trainer as trainer_module
from dots import Dots, DotsTask
from dpose.cli import main
from dpose.cli.app import root
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.trial_law import TrialLaw
from dpose.release.grid import Shape
from dpose.release.plans import bind
from dpose.runs.tune import tune_runs
from dpose.runs.tune_config import TuningConfig
from dpose.training.methods import SubspaceConfig
from dpose.training.public_view import PublicView
from plain_configs import plain_projection
from shades import entered

VIEW = PublicView("pixelize", width=86.0)
"""Blocks of 2x2 in pictures of 6x6."""
SUBSPACE = SubspaceConfig(rank=3, units=20, refresh=2)
UNITS, PUBLIC_UNITS = 120, 30


@dataclass(frozen=True)
class Answer:
    """What a command did: its exit code and what it printed."""

    code: int
    out: str
    err: str


def command(*words: object) -> Answer:
    """`dpose WORDS`, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return Answer(code, out.getvalue(), err.getvalue())


def done(*words: object) -> Answer:
    """As `command`, of one that must succeed."""
    answer = command(*words)
    assert answer.code == 0, answer.err
    return answer


def commands() -> dict[str, list[str]]:
    """The names of all options and arguments of every command, by the words that call it."""

    def walk(node: Any, words: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
        names = {name for each in node.params for name in (*each.opts, *each.secondary_opts)}
        yield " ".join(words), sorted(names)
        for name, each in getattr(node, "commands", {}).items():
            yield from walk(each, (*words, name))

    return dict(walk(root(), ("dpose",)))


def planned(units: int, **settings: Any) -> dict[str, Any]:
    """What a training plan costs for so many units: sampling rate, steps, noise and epsilon."""
    bound = dpose.TrainingPlan(**settings).bind(units)
    if bound.event is None:
        return {"rate": repr(bound.sampling_rate), "steps": bound.steps, "epsilon": None}
    return {
        "rate": repr(bound.sampling_rate),
        "steps": bound.steps,
        "sigma": repr(bound.event.sigma),
        "noise": repr(bound.noise_stddev),
        "sensitivity": repr(bound.event.sensitivity),
        "type": bound.event.type,
        "divisor": repr(bound.divisor),
        "epsilon": repr(bound.epsilon),
    }


def train_on_dots(method: str, out: Path, seed: int | None = 7, lr: float = 0.5, **plan: Any) -> Any:
    """A run of three steps on moving dots (or as `plan` says), by `dpose.train`."""
    task = DotsTask()
    private = {"delta": 1e-4, "noise_multiplier": 1.0, "accountant": "rdp", "clip_norm": 0.25}
    if method in ("non-private", "public-only"):
        private = {}
    settings = {"steps": 3, "expected_batch_size": 40, "public_view": VIEW, "subspace": SUBSPACE, **private}
    return dpose.train(
        task,
        task.build_model(),
        private=Dots(UNITS),
        public=Dots(PUBLIC_UNITS, seed=5),
        plan=dpose.TrainingPlan(method, **{**settings, **plan}),
        out=out,
        optimizer=dpose.OptimizerConfig("sgd", lr=lr, schedule="constant", warmup=0.0),
        options=dpose.RunOptions(seed=seed, console=Console(quiet=True)),
    )


def first_weights() -> dict[str, torch.Tensor]:
    """Of the model that `train_on_dots` trains."""
    return dict(DotsTask().build_model().state_dict())


@contextlib.contextmanager
def same_draws() -> Iterator[None]:
    """Sample and noise of a seeded run that do not depend on the names of its settings, as the digests of plans do."""
    real = trainer_module.open_parts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            trainer_module, "open_parts", lambda inputs, public: real(replace(inputs, context=b"golden"), public)
        )
        yield


@contextlib.contextmanager
def doubled_clip() -> Iterator[None]:
    """A planted fault: gradients are clipped at twice the bound that the noise was made for."""
    real = step_module.clipped_sum
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            step_module,
            "clipped_sum",
            lambda *given, **more: real(*given[:3], replace(given[3], norm=2 * given[3].norm), **more),
        )
        yield


@contextlib.contextmanager
def without_noise() -> Iterator[None]:
    """A planted fault: nothing is added to the clipped sums."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_module, "add_gaussian", lambda sums, *_: sums)
        yield


def projected(clip: NDArray[np.uint8], seed: int, epsilon: str, delta: str, **options: Any) -> list[Any]:
    """The released values of a clip (T, H, W, C) by a projection, one array for each group of frames."""
    config = plain_projection(epsilon, delta, **options)
    noise = AesNoise(Key.from_seed(seed))
    frames, height, width, channels = clip.shape
    plan = bind(config, Shape(frames, height, width, channels), noise)
    return list(plan.released(plan.measured(iter(clip)), noise))  # type: ignore[union-attr]


@contextlib.contextmanager
def tuned(out: Path) -> Iterator[Path]:
    """The folder of a run that was chosen among trials of two settings; one trial was drawn."""
    values = {
        "task": "shade",
        "data": {"private": "shades:600:1"},
        "plan": {"steps": 3, "expected_batch_size": 100, "clip_norm": 0.5},
        "optimizer": {"name": "adam", "schedule": "constant", "warmup": 0.0},
        "grid": {"optimizer": {"lr": [0.2, 1e-6]}},
    }
    with pytest.MonkeyPatch.context() as patch:
        entered(patch)
        patch.setattr(TrialLaw, "draw", lambda self, stream: 1)
        config = TuningConfig.from_dict(values, epsilon=8.0, delta=1e-4)
        tune_runs(config, TrialLaw.parse("geometric:3"), out, Console(quiet=True))
        yield out


def statement(artefact: Path) -> dict[str, Any]:
    """What an artefact guarantees, as `dpose statement show --json` gives it."""
    return dict(json.loads(done("statement", "show", artefact, "--json").out))


pixelize = partial(dpose.pixelize, public=True)
release_video = partial(dpose.release_video, public=True)


def verdict(artefact: Path, *words: object) -> dict[str, Any]:
    """What `dpose verify` (or a command given by words) says of an artefact, and the code of its refusal."""
    answer = command(*(words or ("verify",)), artefact)
    if answer.code:
        (line,) = answer.err.strip().splitlines()
        return {"verdict": "refused", "code": line.rpartition(" [")[2].removesuffix("]")}
    return {"verdict": "holds", "all checked": "not checked" not in " ".join(answer.out.split())}
