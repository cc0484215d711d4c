"""What leaves a run folder is what may be shown, whatever else stands in it."""

import json

import pytest

from dpose.runs.compare import scores_of
from dpose.runs.reading import read_run
from refusals import refused

PRIVATE = ["dp-sgd", "pdp-sgd", "fdp-sgd", "fpdp-sgd"]
LEAKS = {
    "loss": 987.125,
    "private_loss": 987.125,
    "batch_size": 987.125,
    "gradient_norm": 987.125,
    "clipped": 987.125,
    "seconds": 987.125,
}
"""Functions of private data without noise, as a careless trainer would log them."""


@pytest.mark.parametrize("method", PRIVATE)
def test_nothing_un_noised_leaves_a_private_log(make_run, steps, method):
    run = make_run(method).log(*steps(3, **LEAKS))
    run.log({"type": "epoch", "step": 3, **LEAKS}, {"type": "start", **LEAKS}, {"type": "resume", "step": 3, **LEAKS})
    run.log({"type": "diagnostics", "step": 2, "subspace_rank": 5.0, **LEAKS, "clipped_share": 987.125})
    record = read_run(run.path)
    assert set(record.series) == {"lr", "noisy_gradient_norm"}
    assert set(record.diagnostics) == {"subspace_rank"}
    assert "987.125" not in repr(record)


@pytest.mark.parametrize("kind", ["seeded", "broken off"])
def test_a_run_without_guarantee_that_was_meant_to_have_one_shows_no_more(make_run, steps, kind):
    made = make_run(seed=1) if kind == "seeded" else make_run(statement=False)
    record = read_run(made.log(*steps(3, loss=987.125)).path)
    assert set(record.series) == {"lr", "noisy_gradient_norm"}


def test_a_private_method_with_an_empty_statement_shows_no_loss(make_run, steps):
    private = make_run("dp-sgd", name="a").log(*steps(3, loss=987.125))
    nothing = make_run("non-private", name="b")
    (private.path / "privacy.json").write_bytes((nothing.path / "privacy.json").read_bytes())
    assert "loss" not in read_run(private.path).series


def test_without_a_statement_no_method_is_taken_at_its_word(make_run):
    run = make_run("non-private", statement=False).log({"type": "step", "step": 1, "lr": 0.1, "loss": 987.125})
    run.evaluated("synthetic:ward:train")
    record = read_run(run.path)
    assert set(record.series) == {"lr"}
    assert record.refused == ("synthetic:ward:train",)


def test_the_loss_is_shown_where_nothing_is_guaranteed(make_run):
    run = make_run("non-private").log({"type": "step", "step": 1, "lr": 0.1, "loss": 2.5, "batch_size": 3})
    assert read_run(run.path).series == {"loss": ((1, 2.5),), "lr": ((1, 0.1),)}


@pytest.mark.parametrize("method", ["dp-sgd", "fdp-sgd"])
def test_what_public_views_show_is_shown_for_the_methods_that_use_them(make_run, steps, method):
    run = make_run(method).log(*steps(2, public_loss=3.5, public_gradient_norm=0.5))
    assert ("public_loss" in read_run(run.path).series) == (method == "fdp-sgd")


@pytest.mark.parametrize("method", ["dp-sgd", "public-only", "non-private"])
@pytest.mark.parametrize("data", ["synthetic:ward", "synthetic:ward:train", "lspet:/data/lspet:private"])
def test_scores_of_protected_units_are_left_out(make_run, method, data):
    run = make_run(method, data=data)
    name = {"lspet:/data/lspet:private": "lspet:lspet:private"}.get(data, "synthetic:ward:train")
    run.scored(0, 0.987, data=f"{name}, 200 units").evaluated(name).evaluated("synthetic:studio:val")
    record = read_run(run.path)
    if method == "non-private":
        assert [e.trained_on for e in record.evaluations] == [True, False]
        assert len(record.watched) == 1
        assert record.refused == ()
    else:
        assert [e.data for e in record.evaluations] == ["synthetic:studio:val"]
        assert record.watched == ()
        assert record.refused == (name,)
        assert [data for data, _ in scores_of(record)] == ["synthetic:studio:val, 64 units"]


def test_torn_and_foreign_lines_are_passed_over(make_run, steps):
    run = make_run().log(
        *steps(2),
        "",
        '{"type": "step", "step": 3, "lr": 0.',
        "[1, 2]",
        "\x00\xff",
        "[" * 100_000,
        '{"type": "step", "step": "4", "lr": 1}',
        '{"type": "step", "step": true, "lr": 1}',
        '{"type": "step", "step": -1, "lr": 1}',
        '{"type": "step", "step": 5, "lr": "1"}',
        '{"type": "step", "step": 6, "lr": NaN, "noisy_gradient_norm": Infinity}',
        '{"type": "step", "step": 6, "lr": 1e308, "noisy_gradient_norm": -1e308}',
        '{"type": "step", "step": 7, "lr": 1' + "0" * 400 + "}",
        '{"type": "score", "step": 7, "data": 3, "result": [1]}',
        '{"step": 8, "lr": 1}',
    )
    with (run.path / "log.jsonl").open("ab") as file:
        file.write(b'\xff\xfe\n{"type": "step", "st')
    record = read_run(run.path)
    assert record.series["lr"] == ((1, 1e-3), (2, 1e-3))
    assert record.steps == 2
    assert record.watched == ()


def test_the_last_of_two_lines_counts_and_steps_that_led_nowhere_go(make_run):
    run = make_run("non-private")
    run.log(*({"type": "step", "step": k, "lr": 0.1, "loss": 1.0} for k in range(1, 7)))
    run.log({"type": "diagnostics", "step": 6, "anything": 1}).scored(0, 0.2).scored(4, 0.5).scored(6, 0.9)
    run.log({"type": "resume", "step": 4}, {"type": "step", "step": 5, "lr": 0.1, "loss": 2.0})
    record = read_run(run.path)
    assert record.series["loss"] == ((1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0), (5, 2.0))
    assert record.steps == 5
    assert [m.step for m in record.watched[0].moments] == [0, 4]
    assert record.diagnostics == {}


def test_scores_are_read_as_they_were_written(make_run):
    run = make_run().scored(0, 0.2, 0.0).scored(10, 0.6, 3.5).evaluated(share=0.5, beside="nonsense")
    run.evaluated("synthetic:ward:test", beside=[{"name": "other", "result": {"accuracy": 0.5}}, {"name": "x"}, 3])
    record = read_run(run.path)
    (watched,) = record.watched
    assert (watched.name, watched.public) == ("synthetic:ward:public, 200 units", True)
    assert [(m.step, m.epsilon) for m in watched.moments] == [(0, 0.0), (10, 3.5)]
    assert watched.moments[1].score.title == "PCKh@0.5"
    assert watched.moments[1].score.people == 40
    assert watched.moments[1].score.joints_seen == 40 * 14
    first, second = record.evaluations
    assert (first.data, first.units, first.public, first.beside) == ("synthetic:ward:val", 64, False, ())
    assert first.at.year == 2026
    assert [name for name, _ in second.beside] == ["other"]
    assert second.beside[0][1].main == "accuracy"


def test_data_without_a_spec_are_public_only_where_the_evaluation_says_so(make_run):
    run = make_run().evaluated("our own").evaluated("our own", public=True).evaluated("our own", public="yes")
    assert [e.public for e in read_run(run.path).evaluations] == [False, True, False]
    # a flag in the file does not make a private split public
    assert not read_run(make_run(name="b").evaluated(public=True).path).evaluations[0].public


def test_everything_but_the_configuration_may_be_missing(make_run):
    run = make_run(statement=False)
    (run.path / "log.jsonl").unlink()
    record = read_run(run.path)
    assert (record.statement, record.steps, record.units, record.planned_steps) == (None, 0, None, None)
    assert (record.watched, record.evaluations, dict(record.series)) == ((), (), {})
    assert record.data == "synthetic:ward:train"


@pytest.mark.parametrize("content", [None, "", "no json"])
def test_a_folder_without_a_run_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with refused("run-missing"):
        read_run(tmp_path)


@pytest.mark.parametrize("config", [[], {}, {"run": []}, {"run": {"plan": 3, "data": "x"}, "model": 1, "task": 2}])
def test_a_strange_configuration_gives_an_empty_record(tmp_path, config):
    (tmp_path / "config.json").write_text(json.dumps(config))
    record = read_run(tmp_path)
    assert (record.task, record.method, record.data) == ("", "", "")


def test_a_damaged_statement_is_refused(make_run):
    run = make_run()
    (run.path / "privacy.json").write_text('{"schema": 1}')
    with refused("statement-newer", where="privacy.json"):
        read_run(run.path)
