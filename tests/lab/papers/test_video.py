"""Seed 004's tables: rows and guarantees, released once, and no table beside a raw row at chance."""

import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from clips import write
from dpose.account import EXPERIMENT, State, charges
from dpose.action.data.sources import Held, VideoFile
from dpose.action.data.units import Video, VideoSet
from dpose.errors import DposeError
from dpose.media.images import write_image
from dpose.privacy.selection import Selection
from dpose_lab.papers.experiment import Outcome, Request
from dpose_lab.papers.registry import EXPERIMENTS
from dpose_lab.papers.reproduce import reproduce
from dpose_lab.papers.video import measure, tables
from dpose_lab.papers.video.methods import METHODS, parse_external, released_videos, whole_clip
from dpose_lab.papers.video.tables import COLUMNS, QUICK, ROWS, Study, video_table_of
from refusals import refused

QUIET = Console(quiet=True)


def study(table="table1", **options):
    return Study.of(table, Request(limit=12, **options))


def outcomes(bound, raw=90.0):
    values = {name: 40.0 for name, _ in COLUMNS}
    return [
        Outcome(cell, "done", values | ({"top1_raw": raw} if cell.settings["method"] == "raw" else {}))
        for cell in bound.cells
    ]


def row(findings, title):
    return next(r for r in findings.tables[0].rows if r[0].startswith(title))


def test_every_table_is_there_with_the_papers_numbers():
    for name in ("table1", "table2", "table3", "table4", "table5"):
        assert f"004/{name}" in EXPERIMENTS
        assert set(QUICK[name]) <= set(ROWS[name]) <= set(METHODS)
        assert video_table_of(name).readings
    raw = next(r for r in video_table_of("table1").readings if r.settings["row"].startswith("Raw"))
    assert raw.values["UCF101 Top-1, raw"] == "85.77±0.18"


def test_a_raw_row_at_chance_is_refused():
    bound = study(quick=True)
    assert bound.cells[0].settings["method"] == "raw"
    with refused("baseline-learns-nothing"):
        bound.show(outcomes(bound, raw=20.0))
    assert bound.show(outcomes(bound)).tables


def test_rows_say_what_they_guarantee_and_what_was_not_run():
    bound = study(quick=True)
    found = bound.show(outcomes(bound))
    assert "16 pixels" in row(found, "dpose release-video, block means, epsilon 8")[1]
    assert row(found, "Video-DPRP as printed, claimed epsilon 8")[1].startswith("none")
    assert row(found, "Pixelation")[1] == "none"
    assert "of the model, not of any video" in row(found, "MultiClip-DP (3 clips), epsilon 8")[1]
    assert row(found, "Deepprivacy")[2] == "not available"
    assert row(found, "DP-SGD, epsilon 2")[2] == "not run"
    assert row(found, "Raw data")[2] == "90.00"


def test_three_runs_give_mean_and_variance():
    bound = study()
    cells = [c for c in bound.cells if c.settings["method"] == "raw"]
    assert [c.settings["run"] for c in cells] == [1, 2, 3]
    done = [
        Outcome(c, "done", {"top1_raw": v, "release_seconds": 0.5})
        for c, v in zip(cells, (90.0, 92.0, 94.0), strict=True)
    ]
    assert row(bound.show(done), "Raw data")[2] == "92.00 ± 4.00"


@pytest.mark.parametrize("key", ["block-8", "paper-8", "isr-16x12", "pixelate"])
def test_a_video_is_released_once_and_otherwise_for_another_seed(key, tmp_path):
    videos = study().train.limit(Selection(1))
    first, again, other = (
        whole_clip(released_videos(videos, METHODS[key], seed, {}, tmp_path).videos[0].source) for seed in (0, 0, 1)
    )
    raw = whole_clip(videos.videos[0].source)
    assert first.shape == raw.shape
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, raw)
    assert np.array_equal(first, other) == (key == "pixelate")


def test_external_videos_fill_their_row(tmp_path):
    assert parse_external((f"deepprivacy:{tmp_path}",)) == {"deepprivacy": tmp_path}
    for wrong in ("nothing", f"raw:{tmp_path}", "deepprivacy:/nowhere"):
        with refused(("row-folder-malformed", "row-unknown")):
            parse_external((wrong,))
    bound = study(quick=True, external=(f"deepprivacy:{tmp_path}",))
    assert "deepprivacy" in {c.settings["method"] for c in bound.cells}
    with refused("video-missing"):
        released_videos(bound.train, METHODS["deepprivacy"], 0, bound.external, tmp_path)


@pytest.mark.parametrize("key", ["block-8", "paper-8-b0.2", "pixelate"])
def test_files_are_released_to_files_with_their_statements(key, tmp_path):
    path = write(tmp_path / "clap.avi", size=(64, 48))
    videos = VideoSet((Video("wave/clap.avi", VideoFile(path)),), ("wave",))
    shown = released_videos(videos, METHODS[key], 3, {}, tmp_path / "released").videos[0].source
    out = tmp_path / "released" / "wave" / "clap.mp4"
    assert shown == VideoFile(out)
    assert shown.count() == videos.videos[0].source.count()
    statement = json.loads((tmp_path / "released" / "wave" / "clap.mp4.privacy.json").read_text())
    assert statement["kind"] == {"block-8": "seeded", "paper-8-b0.2": "paper", "pixelate": "none"}[key]
    if key == "paper-8-b0.2":
        assert "0.2" in json.dumps(statement)
    before = out.stat().st_mtime_ns
    released_videos(videos, METHODS[key], 3, {}, tmp_path / "released")
    assert out.stat().st_mtime_ns == before


def test_attributes_may_be_learnt_from_other_data(tmp_path, monkeypatch):
    """VISPR's pictures teach what is asked of PA-HMDB's videos, both as the method shows them."""
    root, other = tmp_path / "hmdb", tmp_path / "vispr"
    for action, uses in (("clap", (1, 2, 0)), ("jump", (1, 1, 2))):
        names = [f"{action}_{i}.avi" for i in range(3)]
        for name in names:
            (root / action).mkdir(parents=True, exist_ok=True)
            write(root / action / name, size=(64, 48), frames=6)
        lines = "".join(f"{name} {use} \n" for name, use in zip(names, uses, strict=True))
        (root / f"{action}_test_split1.txt").write_text(lines)
    marks = {"skin_color": 1, "gender": 1, "face": 1, "nudity": 1, "relationship": 1}
    entry = {name: [[0, 5, value]] for name, value in marks.items()} | {"review": True}
    (root / "PrivacyAttributes").mkdir()
    (root / "PrivacyAttributes" / "clap.json").write_text(json.dumps({"clap_1.avi": entry}))
    for number in range(4):
        write_image(other / "images" / "train2017" / f"{number}.jpg", np.full((48, 64, 3), 40 * number, np.uint8))
        notes = other / "annotations" / "train2017" / f"{number}.json"
        notes.parent.mkdir(parents=True, exist_ok=True)
        notes.write_text(json.dumps({"labels": ["a4_gender"] if number % 2 else ["a0_safe"]}))
    for name in ("ACTION_EPOCHS", "ATTRIBUTE_EPOCHS"):
        monkeypatch.setattr(measure, name, 1.0)
    monkeypatch.setattr(Study, "_check_raw", lambda self, outcomes: None)
    monkeypatch.setitem(tables.QUICK, "table3", ("raw", "paper-8"))
    data = (f"pahmdb:{root}", f"vispr:{other}")
    found = reproduce("004/table3", Request(data=data, quick=True), tmp_path / "out", QUIET)
    assert [o.status for o in found] == ["done", "done"], [o.error for o in found]
    assert all("cmap_released" in o.values for o in found)
    made = tmp_path / "out" / "released" / "paper-8-run1"
    assert {p.suffix for p in made.rglob("*") if p.is_file()} == {".mp4", ".json", ".png"}
    with refused("attributes-differ"):
        Study.of("table1", Request(data=("synthetic-clips", f"vispr:{other}")))


def test_what_needs_protection_is_counted_and_nothing_else(tmp_path, monkeypatch):
    """Rows train on raw videos and are scored on them: a charge of the whole table. Releases are charged besides."""
    frames = np.random.default_rng(0).integers(0, 256, (4, 24, 32, 3), np.uint8)
    videos = VideoSet((Video("a", Held(lambda: frames), 0),), ("wave",))
    monkeypatch.setattr(tables, "open_videos", lambda *given, **how: videos)
    private, public = (Request(data=(f"synthetic-clips:{look}",)) for look in ("ward", "studio"))
    bound = Study.of("table2", private)
    own = Held(lambda: frames).hashes()
    assert (bound.public, set(bound.hashes())) == ((False, False), set(own))
    for request in (public, replace(private, data_public=True)):
        open_to_all = Study.of("table2", request)
        assert (open_to_all.public, list(open_to_all.hashes())) == ((True, True), [])

    seen = []

    def learning(self, cell, progress):
        seen.extend(charges())
        whole_clip(released_videos(videos, METHODS["block-8"], 0, {}, tmp_path).videos[0].source)
        raise DposeError("enough-seen", "enough")

    monkeypatch.setattr(Study, "run", learning)
    monkeypatch.setitem(tables.QUICK, "table2", ("raw",))
    reproduce("004/table2", replace(private, quick=True), tmp_path / "out", QUIET)
    assert [(entry.what, entry.state) for entry in seen] == [(EXPERIMENT, State.RESERVED)]
    assert [(entry.what, entry.state) for entry in charges()] == [
        (EXPERIMENT, State.COMMITTED),
        ("release", State.COMMITTED),
    ]
    shown = released_videos(videos, METHODS["block-8"], 1, {}, tmp_path, public=True).videos[0].source
    whole_clip(shown)
    assert len(charges()) == 2


@pytest.mark.slow
def test_a_table_is_run_from_end_to_end(tmp_path, monkeypatch):
    monkeypatch.setitem(tables.QUICK, "table2", ("raw", "multiclip-8"))
    monkeypatch.setattr(Study, "_check_raw", lambda self, outcomes: None)
    for name in ("ACTION_EPOCHS", "PRIVATE_EPOCHS", "ATTRIBUTE_EPOCHS"):
        monkeypatch.setattr(measure, name, 1.0)
    found = reproduce("004/table2", Request(limit=12, quick=True), tmp_path / "out", QUIET)
    assert [o.status for o in found] == ["done", "done"], [o.error for o in found]
    assert charges() == []  # no person in the studio needs protection
    raw, private = (o.values for o in found)
    assert {"top1_raw", "top1_released", "cmap_raw", "f1_released"} <= set(raw)
    assert raw["top1_raw"] == raw["top1_released"]
    assert "cmap_raw" not in private
    kept = json.loads((tmp_path / "out" / "results.json").read_text())
    assert kept["settings"]["quick"] is True
    assert "not run" in (tmp_path / "out" / "results.md").read_text()
