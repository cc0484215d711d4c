"""What commands print and write as JSON: the names of all fields, the types, and all values that stay.

Sentences are told by their type alone, and so are times, versions, digests, places and whatever noise decides.
"""

import json
import re

import pytest

import dpose_scene.data as synthetic_module
from goldens import doors
from goldens.held import hold, hold_cases
from small_nano import small_nano  # noqa: F401

DRAWN = {"software", "commitment", "date", "at", "seal", "sealed", "plan_sha256", "ledger_head", "sha256"}
DRAWN |= {
    "artefact_sha256",
    "score",
    "columns",
    "interval",
    "data",
    "command",
    "odometer",
    "scores",
    "joints",
    "units_noised",
}
"""Fields whose values time, noise or this machine decide."""
CLOSE = 1e-5
"""Of numbers that were rounded up to six digits."""
SENTENCE = re.compile(r"\S+\s+\S+")
CORPUS = ("plan", "--corpus", "1000", "--json", "--workers", "1,8")
PRINTED = {
    "plan of pictures": CORPUS,
    "plan of videos": (*CORPUS, "--mechanism", "release-video", "--frames", "40", "--price-hour", "0.5"),
}
RUNS, RELEASES = ("dp-sgd", "non-private"), ("grey.png", "alone.npz", "projected.mp4")
SCORES = ("mean", "groups")


def shape(value, drawn=False):
    """A JSON value without what does not stay: such values are their types' names (a score may be none)."""
    if isinstance(value, dict):
        return {name: shape(each, drawn or name in DRAWN) for name, each in value.items()}
    if isinstance(value, list):
        return sorted({"text" for _ in value}) if sentences(value) else [shape(each, drawn) for each in value]
    if isinstance(value, str) and (drawn or SENTENCE.search(value)):
        return "text"
    if drawn and (value is None or (isinstance(value, int | float) and not isinstance(value, bool))):
        return "number"
    return value


def sentences(values):
    return bool(values) and all(isinstance(each, str) and SENTENCE.search(each) for each in values)


def test_only_what_stays_is_kept():
    value = {"at": "2026", "n": 3, "caveats": ["one two", "three four"], "score": {"a": 0.5}, "kind": "none"}
    kept = {"at": "text", "n": 3, "caveats": ["text"], "score": {"a": "number"}, "kind": "none"}
    assert shape(value) == kept


@pytest.mark.parametrize("name", PRINTED)
def test_what_is_printed_as_json(name):
    hold("printed", name, shape(json.loads(doors.done(*PRINTED[name]).out)), close=1e-9)


@pytest.mark.parametrize("name", RUNS)
def test_the_statement_of_a_run(name, dots_run):
    printed = doors.statement(dots_run(name, method=name).folder)
    hold("printed", f"statement of a run: {name}", shape(printed), close=CLOSE)


def test_the_statement_of_a_run_by_command(pose_run):
    hold("printed", "statement of a run by command", shape(doors.statement(pose_run / "run")), close=CLOSE)


@pytest.mark.parametrize("name", RELEASES)
def test_the_statement_of_a_release(name, released):
    hold("printed", f"statement of a release: {name}", shape(doors.statement(released / name)), close=1e-9)


@pytest.mark.parametrize("name", SCORES)
def test_a_score_that_is_written(name, pose_run):
    written = json.loads((pose_run / f"{name}.json").read_text())
    hold("printed", f"score: {name}", shape(written), close=CLOSE)


def test_a_score_without_noise_that_is_written(pose_run, small_nano, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(synthetic_module, "SPLITS", {"train": 40, "val": 6, "test": 6, "public": 6})
    words = ("evaluate", "nano", "--data", "synthetic:ward:public", "--limit", "2")
    doors.done(*words, "--out", tmp_path / "score.json")
    written = json.loads((tmp_path / "score.json").read_text())
    hold("printed", "score: without noise", shape(written), close=CLOSE)


def test_what_opens_a_commitment(pose_run):
    opening = json.loads((pose_run / "opening.json").read_text())
    hold("printed", "audit opening", shape({name: type(each).__name__ for name, each in opening.items()}))


def test_the_schema_of_statements():
    schema = json.loads(doors.done("statement", "schema").out)
    hold("printed", "schema of statements", {name: sorted(schema[name]) for name in ("required", "properties")})


def test_nothing_printed_is_lost():
    names = [f"statement of a run: {n}" for n in RUNS] + [f"statement of a release: {n}" for n in RELEASES]
    names += [f"score: {n}" for n in (*SCORES, "without noise")]
    more = ["statement of a run by command", "audit opening", "schema of statements"]
    hold_cases("printed", [*PRINTED, *names, *more])
