"""What statements of every sort of artefact mean: who is protected against what, at which price, by which events."""

import json

import pytest

from goldens import doors
from goldens.held import hold, hold_cases
from goldens.meaning import meaning
from goldens.test_weights import RUNS

MORE = {
    "dp-sgd, a fresh key": {"method": "dp-sgd", "seed": None},
    "dp-sgd, replace": {"method": "dp-sgd", "relation": "replace", "accountant": "pld", "noise_multiplier": 4.0},
}
METHODS = [name for name, settings in RUNS.items() if name == settings["method"]]
TRAINED = {name: RUNS[name] for name in (*METHODS, "dp-sgd, add-or-remove")} | MORE
SCORES = ("mean", "mean, gaussian", "pooled", "groups")
FILES = ("grey.png", "grey.jpg", "alone.npz", "regions.npz", "colour.png", "seeded.png")
VIDEOS = ("projected.mp4", "pixelized.mp4", "blurred.mp4")


def said(case, statement):
    pure = statement["accountant"] == "pure"
    hold("statements", case, meaning(statement), close=0.0 if pure else 1e-9)


@pytest.mark.parametrize("name", TRAINED)
def test_a_run(name, dots_run):
    said(f"run: {name}", doors.statement(dots_run(name, **TRAINED[name]).folder))


def test_a_run_by_command_with_canaries_and_scores(pose_run):
    said("run by command", doors.statement(pose_run / "run"))


def test_a_run_that_was_chosen(tmp_path):
    with doors.tuned(tmp_path / "tuned") as folder:
        said("run that was chosen", doors.statement(folder))


@pytest.mark.parametrize("name", SCORES)
def test_a_noised_score(name, pose_run):
    said(f"score: {name}", json.loads((pose_run / f"{name}.json").read_text())["privacy"])


@pytest.mark.parametrize("name", [*FILES, *VIDEOS])
def test_a_release(name, released):
    said(f"release: {name}", doors.statement(released / name))


def test_no_statement_is_lost():
    names = [f"run: {n}" for n in TRAINED] + [f"score: {n}" for n in SCORES]
    releases = [f"release: {n}" for n in (*FILES, *VIDEOS)]
    hold_cases("statements", [*names, *releases, "run by command", "run that was chosen"])
