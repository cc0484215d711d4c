"""Runs of the action task: a run folder like any other, whose statement protects videos whatever their clips."""

import json
import shutil
from fractions import Fraction
from pathlib import Path

import pytest
from rich.console import Console

from clips import write
from dpose.account import EVALUATION, State, budgets, charges
from dpose.media.video import probe
from dpose.media.video_identity import video_hashes
from dpose.privacy.marks import marks_of
from dpose.privacy.noised_query import NoisedQuery
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.runs.account import set_budget_of
from dpose.runs.config import RunConfig
from dpose.runs.evaluate import evaluate_run
from dpose.runs.noised_score import evaluate_noised
from dpose.runs.reading import read_run
from dpose.runs.tasks import task_of
from dpose.runs.train import explain_task, train_task
from dpose.runs.verify import verify_run
from quick import quick  # noqa: F401
from refusals import refused
from run_folders import sealed_again

QUIET = Console(quiet=True)
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "action-multiclip.yaml"


def config(**changes):
    plan = {"method": "dp-sgd", "epsilon": 2, "delta": 1e-3, "steps": 2, "expected_batch_size": 4}
    values = {
        "task": "action",
        "data": {"private": "synthetic-clips", "limit": 12, "views": 3, "validation_data": "none"},
        "plan": plan | changes.pop("plan", {}),
    }
    return RunConfig.from_dict({"model": {"input_size": [24, 24]}} | values | changes)


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
    assert run.statement.epsilon == pytest.approx(2, rel=0.01)
    stated = PrivacyStatement.from_json((run.folder / "privacy.json").read_text())
    assert stated.verify() <= 2.001
    assert verify_run(run.folder).lines
    assert "Top-1" not in (run.folder / "log.jsonl").read_text()
    assert "no pictures" in (run.folder / "report.html").read_text()


def test_its_score_is_top1_and_the_data_it_protects_are_refused(run):
    assert task_of(run.folder) == "action"
    (result,) = evaluate_run(run.folder, "synthetic-clips:test", limit=6, console=QUIET)
    assert 0 <= result.top1 <= 100
    kept = json.loads(next((run.folder / "evaluations").glob("*.json")).read_text())
    assert kept["data"] == "synthetic-clips:studio:test"
    assert kept["result"]["metric"] == "Top-1"
    record = read_run(run.folder)
    assert record.data == "synthetic-clips:studio:train"
    assert record.evaluations[0].score.columns == {"Top-1": result.top1}
    with refused("scored-data-protected"):
        evaluate_run(run.folder, "synthetic-clips:train", console=QUIET)
    with refused("data-unknown", where="videos"):
        evaluate_run(run.folder, "mpii:x", console=QUIET)


def test_a_score_on_private_looking_data_is_listed(run):
    before = len(PrivacyStatement.from_json((run.folder / "privacy.json").read_text()).queries)
    evaluate_run(run.folder, "synthetic-clips:ward:test", limit=6, console=QUIET)
    after = PrivacyStatement.from_json((run.folder / "privacy.json").read_text()).queries
    assert len(after) == before + 1
    assert after[-1].what == "Top-1"


def test_a_noised_score_is_of_videos_each_right_or_wrong(run):
    asked = NoisedQuery(Fraction(10_000))
    result = evaluate_noised(run.folder, "synthetic-clips:ward:test", asked, limit=6, console=QUIET)
    assert result.metric == "Top-1, mean over videos, noised"
    # noise of a ten-thousandth: a whole number of the six videos shows through
    assert abs(6 * result.ratio.value - round(6 * result.ratio.value)) < 0.01
    assert PrivacyStatement.from_json((run.folder / "privacy.json").read_text()).queries[-1].cost
    pooled = NoisedQuery(Fraction(1), joints=1)
    with refused("joints-to-pool-missing"):
        evaluate_noised(run.folder, "synthetic-clips:ward:test", pooled, limit=6, console=QUIET)


def test_mistakes_are_told(tmp_path):
    for changes, message in (
        ({"plan": {"unit": "image"}}, ("unit-unsupported", "image")),
        ({"model": {"preset": "5m"}}, ("preset-unknown",)),
        ({"model": {"strategy": "finetune"}}, ("init-strategy-conflict",)),
        ({"data": {"private": "vispr:x"}}, ("folder-missing",)),
    ):
        with refused(*message):
            train_task(config(**changes), tmp_path / "run", QUIET)
        assert not (tmp_path / "run").exists()
    with refused("setting-invalid", where="views"):
        config(data={"private": "synthetic-clips", "views": 9})


def test_what_a_run_would_refuse_is_no_plan():
    for changes, code in (
        ({"model": {"strategy": "finetune"}}, "init-strategy-conflict"),
        ({"model": {"codec": "heatmap"}}, "codec-of-poses"),
    ):
        with refused(code):
            explain_task(config(**changes))


@pytest.mark.slow
def test_the_papers_settings_can_be_planned_without_its_data():
    settings = RunConfig.from_yaml(EXAMPLE)
    assert (settings.plan.clip_norm, settings.plan.expected_batch_size, settings.plan.epochs) == (0.4, 8, 50)
    assert (settings.optimizer.name, settings.optimizer.lr) == ("sgd", 0.01)
    assert settings.plan.unit == "video"
    console = Console(record=True, width=200, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(explain_task(settings))
    explained = " ".join(console.export_text().split())
    assert "9,537 videos" in explained
    assert "Starts from mvit.safetensors, which is not there yet" in explained


@pytest.fixture
def films(tmp_path):
    """UCF-101's layout: two classes, three films of each to train on and one to test on."""
    root = tmp_path / "films"
    lists = root / "ucfTrainTestlist"
    lists.mkdir(parents=True)
    lists.joinpath("classInd.txt").write_text("1 Walk\n2 Run\n")
    train, test = [], []
    for number, action in enumerate(("Walk", "Run"), 1):
        (root / "UCF-101" / action).mkdir(parents=True)
        for k in range(1, 5):
            name = f"{action}/v_{action}_g{k:02d}_c01.avi"
            # held-out films are of other frames: one that is shared would be a protected picture
            size = (64, 48) if k == 4 else (48, 32)
            write(root / "UCF-101" / name, frames=8 + 4 * number + k, size=size)
            (test if k == 4 else train).append((name, number))
    lists.joinpath("trainlist01.txt").write_text("".join(f"{n} {a}\n" for n, a in train))
    lists.joinpath("testlist01.txt").write_text("".join(f"{n}\n" for n, _ in test))
    return root


def on(films, out, **changes):
    data = {"private": f"ucf101:{films}:train", "validation_data": "none"}
    plan = {"expected_batch_size": 3, "delta": 0.01}
    return train_task(config(data=data, plan=plan, **changes), out, QUIET)


def test_protected_videos_are_refused_under_any_spelling_of_their_path(films, tmp_path, monkeypatch):
    """Only the same text was refused."""
    on(films, tmp_path / "run")
    (tmp_path / "link").symlink_to(films)
    shutil.copytree(films, tmp_path / "copy")
    monkeypatch.chdir(tmp_path)
    for root in ("films", "films/", "./copy", "link", f"{tmp_path}/films/../films", "copy"):
        with refused("scored-data-protected"):
            evaluate_run(tmp_path / "run", f"ucf101:{root}:train", console=QUIET)
        watched = {"private": f"ucf101:{films}:train", "validation_data": f"ucf101:{root}:train"}
        with refused(("watched-data-protected", "watched-unit-private")):
            train_task(config(data=watched, plan={"delta": 0.01}), tmp_path / "watching", QUIET)
        shutil.rmtree(tmp_path / "watching", ignore_errors=True)
    assert [entry.what for entry in charges()] == ["training"]


def test_where_the_account_does_not_know_the_run_names_decide(films, tmp_path, monkeypatch):
    on(films, tmp_path / "run")
    (tmp_path / "link").symlink_to(films)
    for file in (tmp_path / "run").glob("config.json"):  # as runs were written before
        values = json.loads(file.read_text())
        values["run"]["data"]["private"] = f"ucf101:{films}:train"
        del values["run_id"]
        file.write_text(json.dumps(values))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    sealed_again(tmp_path / "run")
    for root in (films, f"{films}/", tmp_path / "link"):
        with refused("scored-data-protected"):
            evaluate_run(tmp_path / "run", f"ucf101:{root}:train", console=QUIET)


def test_a_score_of_held_out_videos_is_charged_and_a_budget_refuses_it(films, tmp_path):
    on(films, tmp_path / "run")
    held_out = f"ucf101:{films}:test"
    evaluate_run(tmp_path / "run", held_out, console=QUIET)
    trained, scored = charges()
    assert (scored.what, scored.unit, scored.state) == (EVALUATION, "video", State.COMMITTED)
    for entry, held in ((trained, False), (scored, True)):  # files and frames: together, and each of them
        read = [path for path in films.rglob("*.avi") if ("_g04_" in path.name) == held]
        hashes = [digest for path in read for digest in video_hashes(probe(path))]
        assert entry.stored.marks == len(marks_of(hashes)) > 2 * len(read)
    assert set_budget_of(f"{held_out}", 3.0, 1e-5, QUIET)
    assert budgets()[0].neighbours.unit == "video"
    with refused("budget-charge-unbounded", where="score without"):
        evaluate_run(tmp_path / "run", held_out, console=QUIET)
    assert verify_run(tmp_path / "run").lines


def test_a_film_that_shares_a_frame_with_protected_ones_is_no_held_out_one(films, tmp_path):
    on(films, tmp_path / "run")
    held_out = films / "UCF-101" / "Walk" / "v_Walk_g04_c01.avi"
    write(held_out, frames=16)  # begins as the others do, and goes on for longer
    with refused("scored-data-protected"):
        evaluate_run(tmp_path / "run", f"ucf101:{films}:test", console=QUIET)


def test_videos_that_first_weights_learnt_from_are_refused(films, tmp_path):
    plain = {"method": "non-private", "epochs": 1, "steps": None, "epsilon": None, "delta": None}
    data = {"private": f"ucf101:{films}:train", "validation_data": "none"}
    train_task(config(data=data, plan=plain), tmp_path / "plain", QUIET)
    with refused("first-weights-unprotected", where="videos"):
        on(films, tmp_path / "run", model={"init": str(tmp_path / "plain")})


def test_watched_videos_that_are_held_out_are_charged(films, tmp_path):
    data = {"private": f"ucf101:{films}:train", "validation_data": f"ucf101:{films}:test"}
    done = train_task(config(data=data, plan={"expected_batch_size": 3, "delta": 0.01}), tmp_path / "run", QUIET)
    assert len(done.statement.queries) == 1
    assert sorted(entry.what for entry in charges()) == [EVALUATION, "training"]
