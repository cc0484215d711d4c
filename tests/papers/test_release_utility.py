"""`dpose reproduce release-utility`: the model sees just what would be released, and what must be counted is."""

from dataclasses import replace

import numpy as np
import pytest

from dpose import pixelize
from dpose.papers.experiment import Outcome, Request
from dpose.papers.registry import EXPERIMENTS
from dpose.papers.release_utility import RAW, ReleasedCrops
from dpose.privacy.noise import Key
from dpose.release.config import ReleaseConfig
from dpose.units import View
from small_nano import small_nano  # noqa: F401

KEY = Key.from_seed
OURS = EXPERIMENTS["release-utility"]


def bound(**settings):
    return OURS.bind(Request(data=("synthetic:ward",), limit=3, **settings))


@pytest.mark.parametrize("how", ["none", "learned"])
def test_the_model_sees_releases_that_users_make(monkeypatch, how):
    keys = []
    units = bound().units
    config = ReleaseConfig.of(8, 16, None, colour=None).restored(how)
    shown = ReleasedCrops(units, config, 5)
    monkeypatch.setattr(
        "dpose.papers.release_utility.Key.from_seed", lambda seed: keys.append(seed) or KEY(seed)
    )
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


def test_cells_are_measured_and_shown():
    own = bound(quick=True)
    assert [cell.key for cell in own.cells] == [
        "raw", "m16-e8-painted", "m16-e8-restored", "m16-e32-painted", "m16-e32-restored"
    ]  # fmt: skip
    done = [Outcome(cell, "done", own.run(cell, lambda: None)) for cell in (RAW, own.cells[1], own.cells[2])]
    for outcome in done:
        found = outcome.values["pckh"]
        assert 0 <= found["low"] <= found["value"] <= found["high"] <= 1
        assert outcome.values["people"] == 3
    assert done[0].values["block"] == 0 < done[1].values["block"]
    findings = own.show([*done, *(Outcome(cell) for cell in own.cells[3:])])
    (table,) = findings.tables
    assert [row[:2] for row in table.rows] == [("raw", ""), ("16", "8"), ("16", "32")]
    assert table.rows[2][3:] == ("-", "-")
    assert any("differ in at most m pixels" in note for note in findings.notes)


def test_what_needs_protection_is_read_before():
    own = bound()
    asked = set(OURS.reads(own))
    assert all(set(own.units.content_hashes(index)) <= asked for index in range(3))
    assert not set(OURS.reads(bound(data_public=True)))
    assert not set(OURS.reads(replace(own, public=True)))
