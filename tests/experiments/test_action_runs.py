"""Runs of the action task: a run folder like any other, whose statement protects videos whatever their clips."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from dpose.errors import DposeError
from dpose.experiments.config import RunConfig
from dpose.experiments.tasks import evaluate_task, explain_task, task_of, train_task
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.privacy.verify import verify_run
from dpose.report import read_run

QUIET = Console(quiet=True)
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "action-multiclip.yaml"


def config(**changes):
    plan = {"method": "dp-sgd", "epsilon": 8, "delta": 1e-3, "steps": 2, "expected_batch_size": 4}
    values = {
        "task": "action",
        "data": {"private": "synthetic-clips", "limit": 12, "views": 3, "watch": "none"},
        "plan": plan | changes.pop("plan", {}),
    }
    return RunConfig.from_dict(values | changes)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    import os

    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    folder = tmp_path_factory.mktemp("runs") / "multiclip"
    return train_task(config(), folder, QUIET)


def test_a_run_protects_videos_and_adds_up(run):
    assert run.statement.kind is Kind.PRIVATE
    assert run.statement.unit == "video"
    assert run.statement.n == 12
    assert run.statement.epsilon == pytest.approx(8, rel=0.01)
    stated = PrivacyStatement.from_json((run.folder / "privacy.json").read_text())
    assert stated.verify() <= 8.01
    assert verify_run(run.folder).lines
    assert "Top-1" not in (run.folder / "log.jsonl").read_text()
    assert "no pictures" in (run.folder / "report.html").read_text()


def test_its_score_is_top1_and_the_data_it_protects_are_refused(run):
    assert task_of(run.folder) == "action"
    result = evaluate_task(run.folder, "synthetic-clips:test", limit=6, console=QUIET)
    assert 0 <= result.top1 <= 100
    kept = json.loads(next((run.folder / "evaluations").glob("*.json")).read_text())
    assert kept["data"] == "synthetic-clips:studio:test"
    assert kept["result"]["metric"] == "Top-1"
    record = read_run(run.folder)
    assert record.data == "synthetic-clips:studio:train"
    assert record.evaluations[0].score.columns == {"Top-1": result.top1}
    with pytest.raises(DposeError, match="the run protects"):
        evaluate_task(run.folder, "synthetic-clips:train", console=QUIET)
    with pytest.raises(DposeError, match="no videos called"):
        evaluate_task(run.folder, "mpii:x", console=QUIET)


def test_a_score_on_private_looking_data_is_listed(run):
    before = len(PrivacyStatement.from_json((run.folder / "privacy.json").read_text()).queries)
    evaluate_task(run.folder, "synthetic-clips:ward:test", limit=6, console=QUIET)
    after = PrivacyStatement.from_json((run.folder / "privacy.json").read_text()).queries
    assert len(after) == before + 1
    assert after[-1].what == "Top-1"


def test_mistakes_are_told(tmp_path):
    for changes, message in (
        ({"plan": {"unit": "image"}}, "no unit 'image'"),
        ({"model": {"preset": "5m"}}, "a pose model's"),
        ({"model": {"strategy": "finetune"}}, "starts from trained weights"),
        ({"data": {"private": "vispr:x"}}, "no such folder"),
    ):
        with pytest.raises(DposeError, match=message):
            train_task(config(**changes), tmp_path / "run", QUIET)
        assert not (tmp_path / "run").exists()
    with pytest.raises(DposeError, match="views"):
        config(data={"private": "synthetic-clips", "views": 9})


def test_the_papers_settings_can_be_planned_without_its_data():
    settings = RunConfig.from_yaml(EXAMPLE)
    assert (settings.plan.clip_norm, settings.plan.expected_batch_size, settings.plan.epochs) == (0.4, 8, 50)
    assert (settings.optimizer.name, settings.optimizer.lr) == ("sgd", 0.01)
    assert settings.plan.unit == "video"
    console = Console(record=True, width=200, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(explain_task(settings))
    assert "9,537 videos" in console.export_text()
