"""A task and its metric are entered from outside: trained, scored, compared, verified; nothing else learns of them."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from rich.console import Console

from dpose.account import EVALUATION, State, charges
from dpose.privacy.keys import state_folder
from dpose.privacy.noised_query import NoisedQuery
from dpose.runs import evaluate
from dpose.runs.compare import bar_labels, comparison_table, draw_comparison, read_runs, scores_of
from dpose.runs.config import RunConfig
from dpose.runs.evaluate import evaluate_run
from dpose.runs.reading import read_run, score_of
from dpose.runs.scored import reserve_noised_score
from dpose.runs.tasks import ScoredData, TaskEntry, register_task, task_entry, task_of
from dpose.runs.train import explain_task, train_task
from dpose.runs.verify import verify_run
from dpose.training.folder import read_statement, run_id_of
from dpose.training.validation import metric_of_views
from refusals import refused
from shades import Meter, Shades, ShadeTask, entered, prepare
from small_nano import small_nano  # noqa: F401
from tiers import rest_slow

QUIET = Console(quiet=True)


def scored(folder, model, data, *, limit, detections, console) -> ScoredData:
    units = Shades.opened(data)

    def score(model):
        return metric_of_views(ShadeTask(), model, units, console=console), len(units)

    return ScoredData(units, data, "image", public=False, same=False, score=score)


def load(folder: Path) -> Meter:
    from safetensors.torch import load_file

    model = Meter()
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model.eval()


@pytest.fixture(autouse=True)
def shade(monkeypatch):
    return entered(monkeypatch, scored, load)


def noised(out, data, asked):
    units, statement = Shades.opened(data), read_statement(out)
    price = {"seeded": False, "name": data, "same": False, "console": QUIET}
    return reserve_noised_score(out, statement, units, asked, **price)


def config(**changes):
    plan = {
        "epsilon": 30.0,
        "delta": 1e-4,
        "steps": 30,
        "expected_batch_size": 100,
        "accountant": "rdp",
        "clip_norm": 0.5,
    }
    data = {"private": "shades:600:1", "validation_data": "shades:50:7"}
    optimizer = {"name": "adam", "lr": 0.2, "schedule": "constant", "warmup": 0.0}
    return RunConfig.from_dict({"task": "shade", "data": data, "plan": plan, "optimizer": optimizer, **changes})


def test_a_task_from_outside_is_trained_scored_and_verified(tmp_path):
    out = tmp_path / "run"
    done = train_task(config(), out, QUIET)
    assert task_of(out) == "shade"
    assert done.statement.unit == "image"
    assert verify_run(out).spent == pytest.approx(done.statement.epsilon)
    (result,) = evaluate_run(out, "shades:80:5", console=QUIET)
    assert 0 < result.share <= 1
    # held-out private data: listed in the statement, under the metric's own name
    found = verify_run(out)
    assert [query.what for query in found.statement.queries] == ["Hits"]
    with refused("scored-data-protected"):
        evaluate_run(out, "shades:600:1", console=QUIET)
    assert explain_task(config()) == "shades:600:1, explained"


@pytest.mark.parametrize(("kind", "told"), [("again", "looks like a picture"), ("others", "shows the person")])
def test_copies_and_people_of_protected_units_are_neither_watched_nor_scored(tmp_path, kind, told):
    """`--public` compared copies that were saved again and people; all else compared equal pictures alone."""
    out = tmp_path / "run"
    copies = f"{kind}:40:1"
    with refused("watched-unit-private", where=("1-0", told)):
        train_task(config(data={"private": "shades:600:1", "validation_data": copies}), out, QUIET)
    assert charges() == []
    train_task(config(), out, QUIET)
    charged = charges()
    with refused("scored-data-protected", where=("1-0", told)):
        evaluate_run(out, copies, console=QUIET)
    with refused("scored-data-protected", where=("1-0", told)):
        noised(out, copies, NoisedQuery(Fraction(1)))
    assert charges() == charged


@pytest.mark.parametrize("kind", rest_slow(["again", "others"]))
def test_first_weights_that_learnt_from_copies_or_people_count_as_those_that_learnt_from_the_pictures(tmp_path, kind):
    bare, noised = tmp_path / "bare", tmp_path / "noised"
    plain = {"private": f"{kind}:60:1"}
    train_task(config(data=plain, plan={"method": "non-private", "steps": 2}), bare, QUIET)
    with refused("first-weights-unprotected", where="images"):
        train_task(config(model={"init": str(bare)}), tmp_path / "a", QUIET)
    train_task(config(data=plain), noised, QUIET)
    done = train_task(config(model={"init": str(noised)}), tmp_path / "b", QUIET)
    assert len(done.statement.events) == 2
    assert any("both runs' events count" in line for line in done.statement.public)


def test_where_the_data_of_a_run_are_not_at_hand_a_score_says_what_was_not_looked_for(tmp_path, monkeypatch):
    out, said = tmp_path / "run", io.StringIO()
    train_task(config(), out, QUIET)
    (state_folder() / "runs" / f"{run_id_of(out)}.json").unlink()
    evaluate_run(out, "again:40:1", console=Console(file=said))
    assert "not all at hand" in said.getvalue()
    with refused("scored-data-protected"):
        evaluate_run(out, "shades:40:1", console=QUIET)
    with refused("scored-data-protected"):
        noised(out, "shades:40:1", NoisedQuery(Fraction(1)))


def test_a_score_is_reserved_until_it_is_kept_and_then_committed(tmp_path, monkeypatch):
    out, seen = tmp_path / "run", []
    train_task(config(data={"private": "shades:600:1", "validation_data": "held-out"}), out, QUIET)
    # the scores while it trained, too: nobody says of them any more that they may not have been finished
    assert {entry.what: entry.state for entry in charges()} == {
        "training": State.COMMITTED,
        EVALUATION: State.COMMITTED,
    }

    def recording(*args, **how):
        seen.append(charges()[-1].state)
        raise RuntimeError("a full disk")

    with monkeypatch.context() as patch:
        patch.setattr(evaluate, "record_score", recording)
        with pytest.raises(RuntimeError):
            evaluate_run(out, "shades:80:5", console=QUIET)
    assert seen == [State.RESERVED]
    assert charges()[-1].state is State.FAILED
    for _ in range(2):  # the same score again is the same number
        evaluate_run(out, "shades:80:5", console=QUIET)
    assert [entry.state for entry in charges()] == [State.COMMITTED] * 3


def test_a_metric_from_outside_is_in_evaluation_report_and_comparison(tmp_path):
    out = tmp_path / "run"
    train_task(config(), out, QUIET)
    (result,) = evaluate_run(out, "shades:80:5", console=QUIET)
    (file,) = (out / "evaluations").glob("*.json")
    assert json.loads(file.read_text())["result"] == result.to_dict()

    record = read_run(out)
    (evaluation,), (watched,) = record.evaluations, record.watched
    assert (evaluation.score.main, evaluation.score.unit) == ("within a tenth", "")
    assert watched.moments[-1].score.main_name == "within a tenth Hits"
    page = (out / "report.html").read_text()
    assert "within a tenth Hits" in page
    assert "Reports of shade runs show curves and scores" in page

    (run,) = read_runs([out])
    assert scores_of(run)["shades:80:5, 80 units", "within a tenth Hits"] == pytest.approx(100 * result.share)
    shown = io.StringIO()
    Console(file=shown, width=200).print(comparison_table([run]))
    assert "within a tenth Hits, or the metric named, in percent" in shown.getvalue()
    draw_comparison([run], tmp_path / "both.svg")
    assert bar_labels([run]) == ["run"]
    # of data that differ, and of a run that was stopped after its last score
    (seen,) = run.watched
    other = replace(run, name="other", steps=36, watched=(replace(seen, name="elsewhere"),))
    assert bar_labels([run, other]) == [f"run\n{seen.name}", "other\nelsewhere\nlast score, step 30 of 36"]
    draw_comparison([run, other], tmp_path / "two.svg")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"task": "shades"}, "unknown task 'shades'; choose one of pose, action, shade"),
        ({"recipe": "recommended"}, "recipe recommended: was not chosen for shade"),
        ({"precision": "bf16"}, "precision bf16: is not for shade"),
    ],
)
def test_what_a_task_does_not_do_is_refused(changes, told):
    with refused(("precision-unsupported", "recipe-of-other-task", "task-unknown")) as caught:
        config(**changes)
    assert told in caught.value.line()


def test_names_are_taken_once(shade):
    assert register_task(shade) is shade
    with refused("task-exists"):
        register_task(TaskEntry("pose", "image", prepare, scored, load, explain=str))


@pytest.mark.parametrize("name", ["pose", "action"])
def test_the_tasks_that_come_with_dpose(name):
    entry = task_entry(name)
    assert entry.name == name


@pytest.mark.parametrize(
    ("result", "named", "percent"),
    [
        ({"metric": "PCKh", "threshold": 0.5, "columns": {"Head": 1.0, "Mean": 12.5}}, "mean PCKh@0.5", 12.5),
        ({"metric": "OKS AP", "columns": {"AP": 0.25, "AP50": 0.5}, "predictions": 9}, "OKS AP", 25.0),
        ({"metric": "Top-1", "columns": {"Top-1": 40.0}, "clips": 10}, "Top-1", 40.0),
        ({"accuracy": 0.5}, "accuracy", 50.0),
    ],
)
def test_results_that_were_written_before_they_named_their_main_number(result, named, percent):
    score = score_of(result)
    assert (score.main_name, score.main_percent) == (named, percent)
