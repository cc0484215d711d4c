"""A task and its metric are entered from outside: trained, scored, compared, verified; nothing else learns of them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from dpose.errors import DposeError
from dpose.privacy.odometer import EVALUATION, State, charges
from dpose.runs import evaluate
from dpose.runs.compare import comparison_table, draw_comparison, read_runs
from dpose.runs.config import RunConfig
from dpose.runs.evaluate import evaluate_run
from dpose.runs.report.reading import read_run, score_of
from dpose.runs.tasks import ScoredData, TaskEntry, register_task, task_entry, task_of
from dpose.runs.train import explain_task, train_task
from dpose.runs.verify import verify_run
from dpose.training.validation import metric_of_views
from shades import Meter, Shades, ShadeTask, entered, prepare
from small_nano import small_nano  # noqa: F401

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


def config(**changes):
    plan = {
        "epsilon": 30.0,
        "delta": 1e-4,
        "steps": 30,
        "expected_batch_size": 100,
        "accountant": "rdp",
        "clip_norm": 0.5,
    }
    data = {"private": "shades:600:1", "watch": "shades:50:7"}
    optimizer = {"name": "adam", "lr": 0.2, "schedule": "constant", "warmup": 0.0}
    return RunConfig.from_dict(
        {"task": "shade", "data": data, "plan": plan, "optimizer": optimizer, **changes}
    )


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
    with pytest.raises(DposeError, match="the units the run protects"):
        evaluate_run(out, "shades:600:1", console=QUIET)
    assert explain_task(config()) == "shades:600:1, explained"


def test_a_score_is_reserved_until_it_is_kept_and_then_committed(tmp_path, monkeypatch):
    out, seen = tmp_path / "run", []
    train_task(config(data={"private": "shades:600:1", "watch": "held-out"}), out, QUIET)
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
    assert run.metric == "within a tenth Hits"
    assert run.scores["shades:80:5, 80 units", run.metric] == pytest.approx(100 * result.share)
    shown = io.StringIO()
    Console(file=shown, width=200).print(comparison_table([run]))
    assert "within a tenth Hits, or the metric named, in percent" in shown.getvalue()
    draw_comparison([run], tmp_path / "both.svg")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"task": "shades"}, "unknown task 'shades'; choose one of pose, action, shade"),
        ({"recipe": "recommended"}, "recipe recommended: was not chosen for shade"),
        ({"precision": "bf16"}, "precision bf16: is not for shade"),
    ],
)
def test_what_a_task_does_not_do_is_refused(changes, told):
    with pytest.raises(DposeError) as refused:
        config(**changes)
    assert told in refused.value.line()


def test_names_are_taken_once(shade):
    assert register_task(shade) is shade
    with pytest.raises(DposeError, match="another task of that name"):
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
