"""`dpose reproduce release-utility`: the model sees just what would be released, and what must be counted is."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dpose import pixelize
from dpose.privacy.noise import Key
from dpose.release.grid import Shape
from dpose.training.trainer import train
from dpose.units import View
from dpose_lab.papers.experiment import Outcome, Request
from dpose_lab.papers.registry import EXPERIMENTS
from dpose_lab.papers.utility import clips, trained
from dpose_lab.papers.utility.evaluated import ReleasedCrops
from dpose_lab.papers.utility.study import RAW
from plain_configs import plain_cells
from refusals import refused
from small_nano import small_nano  # noqa: F401

KEY = Key.from_seed
OURS = EXPERIMENTS["release-utility"]


def bound(**settings):
    return OURS.bind(Request(data=("synthetic:ward",), limit=3, **settings))


@pytest.mark.parametrize("how", ["none", "learned"])
def test_the_model_sees_releases_that_users_make(monkeypatch, how):
    keys = []
    units = bound().units
    config = plain_cells(8, 16, None, colour=None, restore=how)
    shown = ReleasedCrops(units, config, 5)
    monkeypatch.setattr("dpose.privacy.noise.Key.from_seed", lambda seed: keys.append(seed) or KEY(seed))
    rng = np.random.default_rng(0)
    (one,), (other,) = shown.load(0, rng), shown.load(1, rng)
    assert isinstance(one, View)
    monkeypatch.undo()
    (raw,) = units.load(0, rng)
    theirs = pixelize(raw.image, 8, 16, restore=how, seed=keys[0], public=True).picture
    np.testing.assert_array_equal(one.image, theirs)
    assert keys[0] != keys[1]
    assert (raw.image != one.image).any()
    assert (one.image.shape, one.target.keys()) == (raw.image.shape, raw.target.keys())
    assert (ReleasedCrops(units, config, 6).load(0, rng)[0].image != one.image).any()
    assert (other.image != one.image).any()


def test_a_crop_is_released_once_however_often_it_is_learnt_from(monkeypatch):
    shown = ReleasedCrops(bound().units, plain_cells(8, 16, None, colour=None), 5)
    rng = np.random.default_rng(0)
    (one,) = shown.load(0, rng)
    monkeypatch.setattr("dpose.privacy.noise.Key.from_seed", None)
    np.testing.assert_array_equal(shown.load(0, rng)[0].image, one.image)


@pytest.mark.parametrize(
    ("on", "shown", "method"),
    [("raw", False, "non-private"), ("releases", True, "non-private"), ("dp-sgd", False, "dp-sgd")],
)
def test_what_is_trained_on_and_what_is_tested_on(monkeypatch, on, shown, method):
    own, seen = bound(), []

    def watched(task, model, *, private, plan, options, **rest):
        seen.append((private, plan, options))
        if not shown:
            return SimpleNamespace(steps=0, interrupted=False)
        return train(task, model, private=private, plan=plan, options=options, **rest)

    monkeypatch.setattr(trained, "train", watched)
    monkeypatch.setitem(trained.PLAIN["plan"], "epochs", 1.0)
    settings = {"on": on, "epsilon": 8, "restore": "learned"}
    values = trained.score(settings, own.learners, own.units, 0)
    ((units, plan, options),) = seen
    assert isinstance(units, ReleasedCrops) == shown
    assert (units.dataset if shown else units) is own.learners
    assert (plan.method, plan.epsilon) == (method, 8 if method == "dp-sgd" else None)
    assert options.state_dir is not None  # what private units give is charged once, by the experiment
    assert values["people"] == len(own.units)


def test_a_training_that_was_stopped_is_no_result(monkeypatch):
    own = bound()
    monkeypatch.setattr(trained, "train", lambda *a, **k: SimpleNamespace(steps=1, interrupted=True))
    with pytest.raises(KeyboardInterrupt):
        trained.score({"on": "raw"}, own.learners, own.units, 0)


@pytest.mark.slow
def test_nothing_is_tested_on_that_was_trained_on():
    own = bound()
    ids = [{units.unit_id(index) for index in range(3)} for units in (own.units, own.learners)]
    assert not ids[0] & ids[1]
    with refused("test-shares-units"):
        OURS.bind(Request(data=("synthetic:ward:train",), limit=3))


def test_frames_of_released_clips_have_the_labels_of_the_originals(monkeypatch):
    monkeypatch.setattr(clips, "SHAPE", Shape(4, 96, 128, 3))
    clips._film.cache_clear()
    kept = []
    monkeypatch.setattr(
        clips, "pckh_by_group", lambda model, units, seed, group: kept.append(units) or {"n": len(units)}
    )
    raw = clips.on_clips({}, 1, 0)
    assert clips.on_clips({"epsilon": 8, "restore": "none"}, 1, 0) == raw
    rng = np.random.default_rng(0)
    for index in range(raw["n"]):
        (one,), (other,) = (units.load(index, rng) for units in kept)
        assert (one.image != other.image).any()
        np.testing.assert_array_equal(one.target["keypoints"], other.target["keypoints"])
    clips._film.cache_clear()


def test_cells_are_measured_and_shown():
    own = bound(quick=True)
    assert [cell.key for cell in own.cells] == [
        "raw", "m16-e8-painted", "m16-e8-restored", "m16-e32-painted", "m16-e32-restored",
        "clips-raw", "clips-e8-painted", "clips-e8-restored",
        "trained-raw", "trained-e8-painted", "trained-e8-restored", "trained-e8-dp-sgd",
    ]  # fmt: skip
    done = [Outcome(cell, "done", own.run(cell, lambda: None)) for cell in (RAW, own.cells[1], own.cells[2])]
    for outcome in done:
        found = outcome.values["pckh"]
        assert 0 <= found["low"] <= found["value"] <= found["high"] <= 1
        assert outcome.values["people"] == 3
    assert done[0].values["block"] == 0 < done[1].values["block"]
    findings = own.show([*done, *(Outcome(cell) for cell in own.cells[3:])])
    table, films, learnt = findings.tables
    assert [row[0] for row in films.rows] == ["raw", "8"]
    assert learnt.rows[0][3] == table.rows[0][3]
    assert [row[2] for row in learnt.rows[2:]] == [
        "any 16 pixels of a crop; labels are public", "any 16 pixels of a crop; labels are public",
        "a whole unit, pixels and labels",
    ]  # fmt: skip
    assert [row[:2] for row in table.rows] == [("raw", ""), ("16", "8"), ("16", "32")]
    assert table.rows[2][3:] == ("-", "-")
    assert any("differ in at most m pixels" in note for note in findings.notes)


def test_what_needs_protection_is_read_before():
    own = bound()
    asked = set(OURS.reads(own))
    for units in (own.units, own.learners):
        assert all(set(units.content_hashes(index)) <= asked for index in range(3))
    assert not set(OURS.reads(bound(data_public=True)))
    assert not set(OURS.reads(replace(own, public=True)))
