"""What a run's course shows, and what it must not."""

import pytest


def charts(page, section="curves"):
    return [svg.get("aria-label") for svg in page.sections().get(section, ()) and page.sections()[section].iter("svg")]


def test_a_private_run_shows_its_scores_its_noisy_norm_and_its_learning_rate(make_run, steps, report):
    run = make_run().log(*steps(20)).scored(0, 0.2, 0.0).scored(10, 0.5, 3.25).scored(20, 0.6, 7.5)
    page = report(run.path)
    found = charts(page)
    assert [label.split(" ")[:2] for label in found] == [["mean", "PCKh@0.5"], ["The", "norm"], ["The", "learning"]]
    words = page.words("curves")
    assert "3.25" in words
    assert "7.5" in words
    assert "epsilon spent" in words
    assert "All 20 planned steps were taken" in words
    assert "loss" not in words


def test_a_planted_loss_never_reaches_the_page(make_run, steps, report):
    run = make_run().log(*steps(20, loss=987.125, batch_size=987.125, gradient_norm=987.125))
    page = report(run.path)
    assert "987" not in page.text
    assert "training loss" not in page.text


def test_a_run_without_guarantee_shows_its_loss_and_no_epsilon(make_run, report):
    run = make_run("non-private").scored(0, 0.2).scored(10, 0.5)
    run.log(*({"type": "step", "step": k, "lr": 0.1, "loss": 9.0 / k} for k in range(1, 11)))
    page = report(run.path)
    assert [label for label in charts(page) if "training loss" in label]
    assert "epsilon spent" not in page.text


@pytest.mark.parametrize(("method", "says"), [("dp-sgd", True), ("non-private", False)])
def test_a_stopped_run_says_so(make_run, steps, report, method, says):
    words = report(make_run(method).log(*steps(7)).path).words("curves")
    assert "stopped after 7 of 20 planned steps" in words
    assert ("Epsilon is still the whole plan's" in words) == says


def test_without_a_log_there_is_a_sentence(make_run, report):
    run = make_run()
    (run.path / "log.jsonl").unlink()
    assert "holds no steps" in report(run.path).words("curves")


def test_diagnostics_have_a_chart_and_a_last_value_each(make_run, report):
    run = make_run("pdp-sgd")
    for step in (1, 2, 3):
        run.log({"type": "diagnostics", "step": step, "subspace_rank": 90.0 + step, "surviving_norm": 0.25})
    page = report(run.path)
    assert len(charts(page, "diagnostics")) == 2
    rows = page.table("diagnostics")[1:]
    assert [row[1:] for row in rows] == [["3", "93"], ["3", "0.25"]]
    assert rows[0][0] == "Numerical rank of the public gradients"


def test_without_diagnostics_there_is_no_section(make_run, report):
    assert "diagnostics" not in report(make_run().path).sections()


def test_one_step_is_enough(make_run, steps, report):
    assert len(charts(report(make_run().log(*steps(1)).path))) == 2
