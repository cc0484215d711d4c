"""How a run was made, and how its claim is checked."""

import pytest


def cards(page):
    tables = page.sections()["settings"].iter("table")
    return {
        table.find("caption").text: {row[0].text: "".join(row[1].itertext()) for row in table.iter("tr")}
        for table in tables
    }


def test_settings_are_told_in_groups(make_run, report):
    found = cards(report(make_run(run={"microbatch_size": 32, "augment": None}).path))
    assert found["Data"] == {"private": "synthetic:ward"}
    assert found["Model"] == {"preset": "nano", "strategy": "full", "input size": "128, 96", "skeleton": "mpii"}
    assert found["Plan"]["expected batch size"] == "100"
    assert found["Plan"]["delta"] == "1e-5"
    assert found["Plan"]["normalise"] == "yes"
    assert found["Optimizer"] == {"name": "adamw", "lr": "0.001", "options": "weight_decay 0.02"}
    assert found["Run"] == {"microbatch size": "32"}
    assert "torch" in found["Software"]


@pytest.mark.parametrize(
    ("method", "seed", "says"),
    [
        ("dp-sgd", None, "a fresh key from the operating system, which is not in this folder"),
        ("dp-sgd", 7, "7: anyone who knows it can repeat every draw"),
        ("non-private", 7, "7: anyone who knows it can repeat every draw"),
        ("non-private", None, "none: drawn from the operating system"),
    ],
)
def test_the_seed(make_run, report, method, seed, says):
    assert says in cards(report(make_run(method, seed=seed).path))["Randomness"]["seed"]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("dpose train --data 'a b'", ["dpose train --data 'a b'"]),
        (["dpose train", "dpose evaluate"], ["dpose train", "dpose evaluate"]),
        ("", []),
        (None, []),
        (3, []),
    ],
)
def test_the_command_can_be_copied(make_run, report, command, shown):
    page = report(make_run(run={"command": command}).path)
    assert ["".join(pre.itertext()) for pre in page.sections()["settings"].iter("pre")] == shown


def test_the_claim_can_be_checked(make_run, report):
    run = make_run()
    page = report(run.path)
    words = page.words("check")
    assert "dpose verify run" in words
    assert "abc123" in words
    assert "Recomputed from the events when this report was written" in words
    assert page.table("check")[1][:4] == ["poisson-rounded-gaussian", "0.1", "1", "1"]


def test_without_a_claim_there_is_nothing_to_check(make_run, report):
    for number, made in enumerate(({"method": "non-private"}, {"statement": False})):
        words = report(make_run(name=str(number), **made).path).words("check")
        assert "No epsilon is claimed" in words
        assert "Recomputed" not in words
