"""Values are compared as they should be: exactly, or numbers within a tolerance, and nothing is lost in silence."""

import json

import pytest

from goldens import held


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A file of one case, in a folder of its own."""
    monkeypatch.setattr(held, "VALUES", tmp_path)
    value = {"epsilon": "1.5", "exact": "1/3", "steps": 20, "kind": "private", "found": [0.25, None]}
    (tmp_path / "some.json").write_text(json.dumps({"case": value}))
    return value


def refused(found, **how):
    try:
        held.hold("some", "case", found, writing=False, **how)
    except AssertionError as error:
        return str(error).splitlines()[1:]
    return []


def test_every_difference_is_told_old_and_new(kept):
    assert refused(kept) == []
    assert refused({**kept, "steps": 21}) == ["some: case.steps: 20 -> 21"]
    assert refused({**kept, "kind": "none", "found": [0.25]}) == [
        "some: case.found.1: null -> (absent)",
        'some: case.kind: "private" -> "none"',
    ]
    assert refused({**kept, "more": []}) == ["some: case.more: (absent) -> []"]
    assert refused({**kept, "exact": "333/1000"}) == ['some: case.exact: "1/3" -> "333/1000"']


def test_only_numbers_that_are_not_whole_have_a_tolerance(kept):
    near = {**kept, "epsilon": "1.50001", "found": [0.250001, None]}
    assert len(refused(near)) == 2
    assert refused(near, close=1e-5) == []
    assert len(refused({**kept, "epsilon": "1.6", "steps": 21, "kind": "privat"}, close=1e-2)) == 3
    assert len(refused({**kept, "steps": 20.0001}, close=1e-2)) == 1
    assert len(refused({**kept, "steps": 21}, close=1.0)) == 1


def test_what_is_written_is_compared_next_time(kept, tmp_path, capsys):
    held.hold("some", "case", {**kept, "steps": 21}, writing=True)
    assert capsys.readouterr().out == "some: case.steps: 20 -> 21\n"
    assert refused({**kept, "steps": 21}) == []
    assert refused(kept) == ["some: case.steps: 21 -> 20"]


def test_a_lost_case_is_seen(kept, monkeypatch):
    monkeypatch.setattr(held, "WRITING", False)
    held.hold_cases("some", ["case"])
    for cases in ([], ["case", "another"]):
        with pytest.raises(AssertionError):
            held.hold_cases("some", cases)
