"""What is claimed in large letters is what the statement says, and no more."""

import json
from dataclasses import replace

import pytest

from dpose.privacy.attackers import true_positives
from dpose.privacy.ranges import upper
from dpose.privacy.sections import Query
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.training.methods import METHODS
from refusals import refused


def statement_in(folder):
    return PrivacyStatement.from_json((folder / "privacy.json").read_text())


def test_a_private_run_states_its_guarantee_first(make_run, report):
    run = make_run(caveats=("something to know",), conditional_on=("something given",))
    page, statement = report(run.path), statement_in(run.path)
    header = page.words()
    assert f"epsilon {upper(statement.epsilon)} delta 1e-5 for each image" in header
    found = statement.tpr_bound
    assert found < 0.5 * true_positives(statement.epsilon, statement.delta)  # the curve says more than its one point
    assert f"finds at most {upper(found, times=100)}% of those that were" in header
    assert "No guarantee" not in page.text
    words = page.words("guarantee")
    lead, *_ = statement.paragraph().split("\n\n")
    assert " ".join(lead.split()) in words
    for line in (*METHODS["dp-sgd"].protects, *METHODS["dp-sgd"].leaves_open, *statement.public):
        assert line in words
    for line in (*statement.caveats, "something given", "something to know"):
        assert line in words
    assert "PCKh of synthetic:ward:val, 64 units (reported only): not covered by epsilon" in words


@pytest.mark.parametrize(("sigma", "weak"), [(0.4, True), (20.0, False)])
def test_a_weak_guarantee_is_called_weak(make_run, report, sigma, weak):
    page = report(make_run(plan={"noise_multiplier": sigma}).path)
    assert ("weak guarantee" in page.words()) == weak


def test_the_attack_is_drawn_beside_what_it_means(make_run, report):
    page = report(make_run().path)
    (chart,) = page.sections()["guarantee"].iter("svg")
    assert "rate of false alarms" in chart.get("aria-label")
    words = page.words("guarantee")
    assert "learns nothing" in words
    assert "No attacker can get above the curve" in words


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"method": "non-private"}, "made without differential privacy"),
        ({"method": "public-only"}, "made without differential privacy"),
        ({"seed": 3}, "The noise came from a seed"),
        ({"statement": False}, "left no privacy statement"),
    ],
)
def test_where_nothing_is_guaranteed_nothing_looks_as_if_it_were(make_run, report, made, reason):
    page = report(make_run(**made).path)
    header = page.words()
    assert "No guarantee" in header
    assert reason in header
    assert "epsilon" not in header
    assert "No attacker" not in page.text
    assert not list(page.sections()["guarantee"].iter("svg"))
    if made.get("method") != "public-only":
        assert "Protected" not in [h.text for h in page.sections()["guarantee"].iter("h3")]


def test_a_repeated_paper_guarantees_nothing(make_run, report):
    run = make_run("non-private")
    paper = replace(statement_in(run.path), kind=Kind.PAPER, caveats=("its proof divides by the wrong number",))
    (run.path / "privacy.json").write_text(paper.to_json())
    page = report(run.path)
    assert "No guarantee" in page.words()
    assert "its proof divides by the wrong number" in page.words("guarantee")


def test_feature_privacy_says_beyond_what_it_protects(make_run, report):
    header = report(make_run("fdp-sgd", name="f").path).words()
    assert "for each image beyond its public view" in header
    assert "labels, and whose images were used are not protected" in header
    assert "beyond" not in report(make_run("dp-sgd", name="d").path).words()


def test_public_training_data_are_named_so(make_run, report):
    assert (
        "synthetic:studio:train, which are declared public"
        in report(make_run("non-private", data="synthetic:studio", name="a").path).words()
    )
    assert "declared public" not in report(make_run("non-private", name="b").path).words()


def test_a_covered_query_is_not_listed_as_open(make_run, report):
    words = report(make_run(queries=(Query("a count", "the data", covered=True),)).path).words("guarantee")
    assert "a count, of the data, reported only (covered by epsilon)" in words
    assert "a count of the data" not in words


def test_a_claim_that_does_not_add_up_is_not_repeated(make_run, report):
    run = make_run()
    values = json.loads((run.path / "privacy.json").read_text())
    (run.path / "privacy.json").write_text(json.dumps(values | {"epsilon": "0.1"}))
    with refused("statement-does-not-add-up"):
        report(run.path)
    assert not (run.path / "report.html").exists()
