"""`dpose reproduce release-actions`: the model sees what users release, at the budget that its row says."""

import numpy as np
import pytest

from dpose.release.api import release_array
from dpose.release.grid import Shape
from dpose.release.plans import bind
from dpose_lab.papers.experiment import Outcome, Request
from dpose_lab.papers.registry import EXPERIMENTS
from dpose_lab.papers.video import actions
from dpose_lab.papers.video.methods import released_videos, whole_clip
from plain_configs import plain_projection

OURS = EXPERIMENTS["release-actions"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Films of 64 x 48, one pass over them."""
    monkeypatch.setattr(actions, "SIZE", (48, 64))
    monkeypatch.setattr(actions, "EPOCHS", 1.0)


@pytest.mark.parametrize("key", ["pixels-16-4-restored", "pixels-16-1-painted", "box-12x16-frames-24-16-restored"])
def test_the_model_sees_releases_that_users_make(key, monkeypatch, tmp_path):
    study, method = OURS.bind(Request(limit=1)), actions.METHODS[key]
    monkeypatch.setattr("dpose_lab.papers.video.methods._seed_of", lambda video, seed: 7)
    shown = whole_clip(released_videos(study.train, method, 0, {}, tmp_path, public=True).videos[0].source)
    raw = whole_clip(study.train.videos[0].source)
    way = {"painted": "none", "restored": "learned"}[key.rsplit("-", 1)[1]]
    asked = plain_projection(str(method.epsilon), "1e-4", method.neighbours, colour=None, restore=way)
    np.testing.assert_array_equal(shown, release_array(raw, asked, seed=7, public=True).picture)
    plan = bind(asked, Shape.of(48, 64, 3, frames=24))
    assert str(plan.config.epsilon) == key.split("-")[-2]
    assert method.neighbours in ("pixels:16", "box:12x16/frames:24")


def test_every_budget_is_measured_both_ways_and_beside_private_training():
    keys = set(actions.METHODS)
    for epsilon in (1, 2, 4, 8, 16):
        assert {f"pixels-16-{epsilon}-{how}" for how in ("painted", "restored")} | {f"dp-sgd-{epsilon}"} <= keys
    assert all("of the model" in m.guarantee for m in actions.METHODS.values() if m.kind == "train")


def test_cells_are_measured_and_shown(tmp_path):
    study = OURS.bind(Request(limit=6, quick=True, folder=tmp_path))
    raw, released = study.cells
    steps = []
    done = [Outcome(cell, "done", study.run(cell, lambda: steps.append(1))) for cell in study.cells]
    assert len(steps) == raw.weight + released.weight
    for outcome in done:
        for name in ("raw", "released"):
            found = outcome.values[name]
            assert 0 <= found["low"] <= found["value"] <= found["high"] <= 1
    assert "noise" not in done[0].values
    assert done[1].values["noise"] > 0
    (table,) = study.show(done).tables
    assert [len(row) for row in table.rows] == [len(table.head)] * 2
    findings = study.show([done[0], Outcome(released)])
    assert findings.tables[0].rows[1][-1] == "not run"
    assert findings.figures[0].png.startswith(b"\x89PNG")


def test_an_interval_is_of_films():
    wide, narrow = (actions._interval(actions.Top1Result(n // 2, n), 0) for n in (12, 1200))
    assert wide["value"] == narrow["value"] == 0.5
    assert 0.4 < wide["high"] - wide["low"] < 0.7
    assert 0.04 < narrow["high"] - narrow["low"] < 0.07
