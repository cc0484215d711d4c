"""Scores stand where they belong, with what may be said of them."""

import pytest

from dpose.pose.metrics import GROUPS, SCORED
from dpose.runs.reading import ORDER


def test_before_and_after_of_the_watched_data(make_run, report):
    run = make_run().scored(0, 0.2, 0.0).scored(10, 0.4, 3.0).scored(20, 0.8, 5.0)
    page = report(run.path)
    table = page.table("scores")
    assert table[0] == ["PCKh@0.5, %", "Before training", "After step 20", "Change"]
    assert [row[0] for row in table[1:]] == [*GROUPS, "Mean", "Mean@0.1"]
    for _, before, after, change in table[1:]:
        assert float(change.replace("\u2212", "-")) == pytest.approx(float(after) - float(before), abs=0.01)
    assert "public data" in page.words("scores")


def test_one_score_has_no_before_and_after(make_run, report):
    page = report(make_run().scored(20, 0.8).path)
    assert "Before and after" not in page.text
    assert "No scores were taken" in page.words("scores")


@pytest.mark.parametrize("beside", [0, 1, 3])
def test_an_evaluation_has_a_column_a_model(make_run, report, make_result, beside):
    others = [{"name": f"model {k}", "result": make_result(0.3 + 0.1 * k)} for k in range(beside)]
    table = report(make_run().evaluated(beside=others).path).table("scores")
    assert table[0] == ["PCKh@0.5, %", "This model", *(f"Model {k}" for k in range(beside))]
    assert {len(row) for row in table} == {2 + beside}


@pytest.mark.parametrize(("own", "people", "bold"), [(0.9, 400, 1), (0.52, 400, 0), (0.9, 4, 0), (0.2, 400, 2)])
def test_the_best_is_set_in_bold_only_where_it_is_best_beyond_chance(make_run, report, make_result, own, people, bold):
    run = make_run().evaluated(
        result=make_result(own, people), beside=[{"name": "other", "result": make_result(0.5, people)}]
    )
    page = report(run.path)
    rows = list(next(page.sections()["scores"].iter("table")).iter("tr"))
    strong = [[bool(list(cell.iter("strong"))) for cell in row] for row in rows]
    assert sum(map(sum, strong)) == (bold > 0)
    if bold:
        mean = next(k for k, row in enumerate(rows) if "".join(row[0].itertext()) == "Mean")
        assert strong[mean][bold]


def test_every_score_says_whose_data_it_is_of(make_run, report):
    private = report(make_run(name="a").evaluated().evaluated("synthetic:studio:val").path).words("scores")
    assert private.count("held-out private data: not covered by epsilon") == 1
    assert private.count("public data") == 1
    plain = report(make_run("non-private", name="b").evaluated("synthetic:ward:train").evaluated().path).words("scores")
    assert "the training data themselves" in plain
    assert "epsilon" not in plain


def test_a_watched_private_split_is_marked(make_run, report):
    run = make_run()
    for step in (0, 20):
        run.scored(step, 0.5, 1.0, data="synthetic:ward:val, 200 units", public=False)
    page = report(run.path)
    assert "not covered by epsilon" in page.words("scores")
    assert "not covered by epsilon" in page.words("curves")


def test_a_left_out_score_leaves_a_sentence(make_run, report):
    page = report(make_run().evaluated("synthetic:ward:train", result={"accuracy": 98.7}).path)
    assert "synthetic:ward:train" in page.words("scores")
    assert "outside any guarantee" in page.words("scores")
    assert "98.7" not in page.text


def test_another_tasks_metric_is_shown_as_it_is(make_run, report):
    page = report(make_run("non-private").evaluated(result={"accuracy": 0.25, "loss": None, "names": ["a"]}).path)
    assert page.table("scores")[1:] == [["accuracy", "0.2"]]
    assert "joints" not in page.sections()


def test_joint_by_joint(make_run, report):
    page = report(make_run().scored(0, 0.2).scored(20, 0.8).evaluated().path)
    table = page.table("joints")
    assert table[0] == ["Joint", "@0.5 before", "@0.5 after", "@0.1 before", "@0.1 after"]
    assert len(table) == 1 + 14
    assert table[1][0] == "Head top"
    assert not {"Pelvis", "Thorax"} & {row[0] for row in table}
    (chart,) = page.sections()["joints"].iter("svg")
    drawn = ["".join(t.itertext()) for t in chart.iter("text")]
    names = [row[0] for row in table[1:]]
    assert [text for text in drawn if text in names] == names


def test_joints_of_an_evaluation_where_nothing_was_watched(make_run, report, make_result):
    run = make_run().evaluated("synthetic:ward:val")
    alone = report(run.path).table("joints")
    assert alone[0] == ["Joint", "@0.5 this model", "@0.1 this model"]
    run.evaluated("synthetic:ward:test", beside=[{"name": "public weights", "result": make_result(0.1)}])
    page = report(run.path)
    assert page.table("joints")[0][1:3] == ["@0.5 public weights", "@0.5 this model"]
    assert "synthetic:ward:test" in page.words("joints")


def test_every_scored_joint_has_a_row():
    assert sorted(ORDER) == sorted(SCORED)
