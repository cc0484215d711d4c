"""The command line: whole runs on small data, and every mistake told in one line with exit code 2."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest
import scipy.io
from rich.console import Console

import dpose.pose.folder as pose_folder
import dpose.runs.annotate
import dpose_scene.data as synthetic_module
from dpose import files
from dpose.account import PAGE, Budget, State, charges, set_budget
from dpose.cli import main
from dpose.pose.data import SOURCES
from dpose.runs.account import identity_of_data
from dpose_scene.splits import scene_seed
from dpose_scene.stage import identity_of
from quick import drawn, fine  # noqa: F401
from small_nano import PREAMBLE, small_nano  # noqa: F401
from zygote import run as run_program

SMALL = {"train": 40, "val": 16, "test": 16, "public": 8}
TRAIN = ["train", "--data", "synthetic:ward", "--epochs", "1", "--batch-size", "20", "--preset", "nano"]
BUDGET = ["--epsilon", "8", "--delta", "1e-3", "--set", "plan.accountant=rdp"]


@pytest.fixture(autouse=True)
def _small_and_local(monkeypatch, tmp_path):
    monkeypatch.setattr(synthetic_module, "SPLITS", SMALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def told(capsys, arguments):
    """The exit code and the error line, which is the only line on standard error."""
    code = main([str(a) for a in arguments])
    lines = capsys.readouterr().err.strip().splitlines()
    return code, lines


def command_refused(capsys, arguments, *words):
    code, lines = told(capsys, arguments)
    assert code == 2, lines
    assert len(lines) == 1, lines
    for word in words:
        assert word in lines[0]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A private run that later tests only read."""
    folder = tmp_path_factory.mktemp("cli")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic_module, "SPLITS", SMALL)
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        assert main([*TRAIN, *BUDGET, "--strategy", "scratch", "--out", str(folder / "run")]) == 0
    return folder


@pytest.fixture
def run(trained, tmp_path, monkeypatch):
    """A copy of the run that a test may change, with the state folder that goes with it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shutil.copytree(trained / "state", tmp_path / "state")
    return shutil.copytree(trained / "run", tmp_path / "run")


class TestRun:
    def test_train_evaluate_verify_predict(self, run, capsys):
        capsys.readouterr()
        assert main(["verify", str(run)]) == 0
        assert "is claimed" in capsys.readouterr().out

        assert main(["evaluate", str(run), "--data", "synthetic:ward:val"]) == 0
        assert "Mean" in capsys.readouterr().out
        (written,) = (run / "evaluations").iterdir()
        assert json.loads(written.read_text())["units"] == SMALL["val"]
        # the score on held-out private data is in the statement, the card and the ledger, and all still verifies
        statement = json.loads((run / "privacy.json").read_text())
        assert statement["queries"][0]["data"].startswith("synthetic:ward:val")
        assert statement["queries"][0]["covered"] is False
        assert "NOT covered by epsilon" in (run / "README.md").read_text()
        assert main(["verify", str(run)]) == 0

        cv2.imwrite("person.png", np.full((60, 40, 3), 90, np.uint8))
        capsys.readouterr()
        assert main(["predict", str(run), "person.png", "--box", "2,3,38,57"]) == 0
        shown = capsys.readouterr().out
        assert "r_wrist" in shown
        assert "knows nothing" in shown  # two steps of training
        assert cv2.imread("person-pose.png").shape == (60, 40, 3)

    @pytest.mark.parametrize("default", ["nano", "other"])
    def test_without_a_model_what_comes_with_dpose_predicts(self, default, capsys, monkeypatch, tmp_path):
        shutil.copytree(files.SHIPPED, tmp_path / "shipped")
        shutil.copytree(files.SHIPPED / "nano", tmp_path / "shipped" / "other")
        monkeypatch.setattr(files, "SHIPPED", tmp_path / "shipped")
        monkeypatch.setattr(pose_folder, "PREDICTOR", default)
        used, real = [], dpose.runs.annotate.load_model
        monkeypatch.setattr(dpose.runs.annotate, "load_model", lambda folder: used.append(folder) or real(folder))
        for name in ("one.png", "two.png"):
            cv2.imwrite(name, np.full((60, 40, 3), 90, np.uint8))
        boxes = [{"image_id": 1, "category_id": 1, "bbox": [2, 3, 20, 50], "score": 0.9}]
        Path("boxes.json").write_text(json.dumps([*boxes, {**boxes[0], "bbox": [20, 3, 18, 50]}]))
        capsys.readouterr()
        assert main(["predict", "one.png"]) == 0
        shown = capsys.readouterr().out
        assert f"Model: {default}, which comes with dpose" in shown
        assert "r_wrist" in shown
        assert cv2.imread("one-pose.png").shape == (60, 40, 3)
        assert main(["predict", "one.png", "two.png", "--out", "drawn"]) == 0
        Path("one.png").rename("1.png")
        assert main(["predict", "1.png", "--detections", "boxes.json", "--out", "both.png"]) == 0
        assert "2 people" in capsys.readouterr().out  # of each person where boxes are given
        assert used == [tmp_path / "shipped" / default] * 3

    def test_without_a_model_what_comes_with_dpose_is_scored(self, capsys):
        asked = ["--data", "synthetic:ward:val", "--limit", "4"]
        before = sorted(files.SHIPPED.rglob("*"))
        capsys.readouterr()
        assert main(["evaluate", *asked, "--whole-pictures", "--out", "score.json"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "Model: nano, which comes with dpose" in shown
        assert "no boxes used; 0 people not found" in shown
        assert json.loads(Path("score.json").read_text())["result"]["whole_pictures"]
        assert main(["evaluate", "nano", *asked]) == 0
        assert "no boxes used" not in capsys.readouterr().out
        command_refused(capsys, ["evaluate", "nono", *asked], "[model-unknown]", "nano")
        # a score with noise has a statement, which has to be somewhere
        noised = ["evaluate", "nano", *asked[:2], "--epsilon", "1"]
        command_refused(capsys, noised, "[score-beside-shipped-model]", "--out")
        assert [charge.what for charge in charges()] == ["evaluation"]
        assert main([*noised, "--out", "noised.json"]) == 0
        assert json.loads(Path("noised.json").read_text())["privacy"]["epsilon"] == "1"
        assert sorted(files.SHIPPED.rglob("*")) == before

    def test_a_score_with_a_price(self, run, capsys):
        """Told on the screen, in the run's statement and card, in the score's file and in the report."""
        asked = ["evaluate", str(run), "--data", "synthetic:ward:val", "--epsilon", "1/2"]
        capsys.readouterr()
        for more in ([], ["--pooled", "--joints-per-unit", "9"], ["--relation", "add-or-remove", "--delta", "1e-3"]):
            assert main([*asked, *more]) == 0
            shown = " ".join(capsys.readouterr().out.split())
            assert "It costs epsilon 0.5 at delta" in shown
            assert "interval for the noise" in shown
            assert "another release" in shown
            assert "Shoulder" not in shown
        statement = json.loads((run / "privacy.json").read_text())
        assert [query["cost"][:11] for query in statement["queries"]] == ["epsilon 0.5"] * 3
        assert "NOT covered" not in (run / "README.md").read_text()
        assert main(["verify", str(run)]) == 0
        assert "noised scores: 3, each costs its data what it says" in capsys.readouterr().out
        assert main(["report", str(run)]) == 0
        page = (run / "report.html").read_text()
        assert "with noise: epsilon 0.5 for each image" in page
        assert "Without its noise the score lies between" in page
        assert "not covered by epsilon" not in page.lower()
        assert main(["compare", str(run)]) == 0
        # a file that claims less than its noise costs is found, and so is any other change
        path = next((run / "evaluations").glob("*.json"))
        text = path.read_text()
        path.write_text(text.replace('"Mean": ', '"Mean": 1'))
        command_refused(capsys, ["verify", run], "[score-altered]")
        kept = path.rename(path.with_suffix(".kept"))
        assert main(["verify", str(run)]) == 0
        shown = "".join(capsys.readouterr().out.split())
        assert f"notchecked:thenoisedscoreevaluations/{path.name}" in shown
        kept.rename(path)
        path.write_text(text.replace('"epsilon": "0.5"', '"epsilon": "0.25"'))
        assert path.read_text() != text
        command_refused(capsys, ["verify", run], "[statement-does-not-add-up]")

    def test_options_of_a_noised_score_that_do_not_go_together(self, run, capsys):
        asked = ["evaluate", run, "--data", "synthetic:ward:val"]
        for more, told in (
            (["--pooled"], "needs a price"),
            (["--epsilon", "1", "--pooled"], "go together"),
            (["--epsilon", "1", "--joints-per-unit", "3"], "go together"),
            (["--epsilon", "1", "--relation", "swap"], "no such relation"),
            (["--epsilon", "nan"], "--epsilon"),
            (["--epsilon", "0"], "positive"),
            (["--epsilon", "1", "--detections", "boxes.json"], "each unit by itself"),
            (["--epsilon", "1", "--relation", "add-or-remove", "--limit", "3"], "would change 2"),
        ):
            command_refused(capsys, [*asked, *more], told)
        command_refused(capsys, [*asked[:2], "--data", "synthetic:studio:val", "--epsilon", "1"], "leave --epsilon out")
        command_refused(
            capsys, [*asked[:2], "--data", "synthetic:ward:train", "--epsilon", "1"], "[scored-data-protected]"
        )
        assert not (run / "evaluations").exists()

    def test_scores_on_public_data_are_no_query(self, run):
        assert main(["evaluate", str(run), "--data", "synthetic:studio:val", "--limit", "4"]) == 0
        assert json.loads((run / "privacy.json").read_text())["queries"] == []
        assert main(["verify", str(run)]) == 0

    def test_a_score_on_the_protected_units_is_refused(self, run, capsys):
        before = (run / "privacy.json").read_text()
        command_refused(
            capsys, ["evaluate", run, "--data", "synthetic:ward:train"], "[scored-data-protected]", "held-out"
        )
        assert (run / "privacy.json").read_text() == before

    def test_a_copy_without_its_statement_is_refused_too(self, run, tmp_path, capsys):
        copy = tmp_path / "copy"
        copy.mkdir()
        for name in ("model.safetensors", "config.json"):
            shutil.copy(run / name, copy / name)
        command_refused(capsys, ["evaluate", copy, "--data", "synthetic:ward:train"], "[scored-data-protected]")

    def test_nor_is_it_scored_through_a_run_without_a_guarantee_that_began_with_it(self, run, capsys):
        later = ["train", "--data", "synthetic:studio", *TRAIN[3:], "--method", "non-private", "--init", str(run)]
        assert main([*later, "--out", "later"]) == 0
        command_refused(capsys, ["evaluate", "later", "--data", "synthetic:ward:train"], "[scored-data-protected]")

    def test_scores_of_groups_of_the_protected_units_are_refused(self, tmp_path, capsys):
        data = ["--data", "synthetic:studio:train", "--limit", "8"]
        assert main(["train", *data, *TRAIN[3:], *BUDGET, "--out", "s"]) == 0
        command_refused(capsys, ["evaluate", "s", *data], "[scored-data-protected]")
        command_refused(capsys, ["evaluate", "s", "--groups", *data], "[scored-data-protected]")

    def test_a_private_run_can_start_from_a_public_one(self, tmp_path, capsys):
        public = ["train", "--data", "synthetic:studio", *TRAIN[3:], "--method", "non-private"]
        assert main([*public, "--out", "public"]) == 0
        assert main([*TRAIN, *BUDGET, "--init", "public", "--out", "private"]) == 0
        config = json.loads((tmp_path / "private" / "config.json").read_text())
        assert config["model"]["norm"] == "folded"
        assert "public" in (tmp_path / "private" / "README.md").read_text()
        assert main(["verify", "private"]) == 0
        capsys.readouterr()
        assert main(["verify", "public"]) == 0
        assert "nothing is claimed" in capsys.readouterr().out

    def test_a_run_watches_its_public_split_and_reports_it(self, run):
        lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        scores = [line for line in lines if line["type"] == "score"]
        assert {line["data"] for line in scores} == {"synthetic:ward:public, 8 units"}
        assert scores[0]["step"] == 0
        report = (run / "report.html").read_text()
        assert "synthetic:ward:public" in report
        assert "data:image/" in report
        assert "dpose" in json.loads((run / "config.json").read_text())["run"]["command"]

    def test_a_report_shows_no_pictures_that_were_not_declared_public(self, run, capsys, pictures):
        root, _ = pictures
        held_out = f"lspet:{root}:validation"
        command_refused(capsys, ["report", run, "--pictures", held_out], "--show-pictures")
        assert main(["report", str(run), "--pictures", held_out, "--show-pictures"]) == 0
        assert "lspet:validation" in (run / "report.html").read_text()
        assert (run / "report.html").stat().st_mode & 0o077 == 0, "raw pictures are for the owner alone"
        shown = charges()[-1]
        assert (shown.what, shown.events, shown.state) == (PAGE, (), State.COMMITTED)
        set_budget(Budget(3.0, 1e-5, "lspet", identity_of_data(held_out, Console(quiet=True)).marks))
        before = (run / "report.html").read_bytes()
        command_refused(capsys, ["report", run, "--pictures", held_out, "--show-pictures"], "leave --show-pictures out")
        assert (run / "report.html").read_bytes() == before

    def test_a_config_file_and_options_over_it(self, tmp_path, capsys):
        (tmp_path / "run.yaml").write_text(
            "data: {private: synthetic:ward}\n"
            "plan: {method: dp-sgd, epsilon: 2, delta: 1.0e-3, accountant: rdp, epochs: 1,\n"
            "  expected_batch_size: 20}\n"
        )
        assert main(["train", "--config", "run.yaml", "--epsilon", "8", "--explain"]) == 0
        shown = capsys.readouterr().out
        for word in ("40 units", "7.99", "Protected", "Not protected"):
            assert word in shown
        assert not (tmp_path / "runs").exists()
        assert main(["train", "--config", "run.yaml", "--epsilon", "8", "--out", "run"]) == 0
        saved = json.loads((tmp_path / "run" / "config.json").read_text())["run"]["plan"]
        assert (saved["epsilon"], saved["delta"], saved["expected_batch_size"]) == (8.0, 1e-3, 20)

    def test_a_misspelt_key_is_named_with_its_file(self, tmp_path, capsys):
        (tmp_path / "run.yaml").write_text("data: {private: synthetic:ward}\nplan: {subspace: {rnak: 9}}\n")
        command_refused(capsys, ["train", "--config", "run.yaml", "--out", "run"], "run.yaml", "plan.subspace.rank")

    def test_explain_where_the_data_are_not_at_hand(self, capsys, tmp_path):
        arguments = ["train", "--data", "lspet:/nowhere:private", *BUDGET, "--explain"]
        command_refused(capsys, arguments, "/nowhere")
        (tmp_path / "run.yaml").write_text("data: {units: 700}\n")
        assert main([*arguments, "--config", "run.yaml"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "700 units" in shown
        assert "not at hand" in shown

    @pytest.mark.usefixtures("drawn")
    def test_compare_prints_a_table_and_draws_a_picture(self, run, capsys):
        assert main(["compare", str(run), str(run), "--out", "both.png"]) == 0
        assert "dp-sgd" in capsys.readouterr().out
        assert min(cv2.imread("both.png").shape[:2]) > 300
        command_refused(capsys, ["compare", run, "--out", "both.gif"], "both.gif")
        command_refused(capsys, ["compare", "nowhere"], "nowhere")

    @pytest.mark.slow
    def test_a_stopped_run_without_guarantee_goes_on(self, tmp_path):
        script = (
            "import os, signal, sys\n"
            "import dpose_scene.data as s, dpose.training.step as update\n"
            f"s.SPLITS = {SMALL!r}\n"
            "real = update.plain_gradient\n"
            "def stop(*a):\n"
            "    os.kill(os.getpid(), signal.SIGINT)\n"
            "    return real(*a)\n"
            "update.plain_gradient = stop\n"
            "from dpose.cli import main\n"
            f"sys.exit(main({[*TRAIN, '--method', 'non-private', '--epochs', '2', '--out', 'part']!r}))\n"
        )
        done = run_program(PREAMBLE + script, cwd=tmp_path)
        assert done.returncode == 130, done.stderr
        assert "dpose train --resume part" in " ".join(done.stdout.split())
        assert main(["train", "--resume", "part"]) == 0
        log = [json.loads(line) for line in (tmp_path / "part" / "log.jsonl").read_text().splitlines()]
        assert [line["step"] for line in log if line["type"] == "step"] == [1, 2, 3, 4]

    def test_a_killed_private_run_goes_on_at_no_cost(self, tmp_path, capsys):
        script = (
            "import os, signal, sys\n"
            "import dpose_scene.data as s, dpose.training.step as update\n"
            f"s.SPLITS = {SMALL!r}\n"
            "real, calls = update.private_gradient, []\n"
            "def die(*a):\n"
            "    calls.append(1)\n"
            "    if len(calls) == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
            "    return real(*a)\n"
            "update.private_gradient = die\n"
            "from dpose.cli import main\n"
            f"sys.exit(main({[*TRAIN, *BUDGET, '--epochs', '2', '--out', 'part']!r}))\n"
        )
        done = run_program(PREAMBLE + script, cwd=tmp_path)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert main(["train", "--resume", "part"]) == 0
        assert "taken up again" not in (tmp_path / "part" / "privacy.json").read_text()
        assert main(["verify", "part"]) == 0
        command_refused(capsys, ["train", "--resume", "part"], "finished")
        command_refused(capsys, ["train", "--resume", "nowhere"], "nowhere")
        # settings of it begin a run of their own, which is charged as any other
        (tmp_path / "own").mkdir()
        shutil.copy(tmp_path / "part" / "config.json", tmp_path / "own")
        assert main(["train", "--resume", "own"]) == 0
        assert [(e.folder, e.state) for e in charges()] == [
            (str(tmp_path / name), State.COMMITTED) for name in ("part", "own")
        ]
        (tmp_path / "part" / "ledger.jsonl").unlink()
        command_refused(capsys, ["train", "--resume", "part"], "the ledger of this run is missing")

    def test_the_account_adds_runs_up_and_a_budget_refuses(self, tmp_path, capsys):
        data = TRAIN[TRAIN.index("--data") + 1]
        assert main(["account"]) == 0
        assert "Nothing" in capsys.readouterr().out
        assert main([*TRAIN, *BUDGET, "--out", "mine"]) == 0
        capsys.readouterr()
        command_refused(capsys, ["account", data, "--budget", "8.5"], "[budget-already-passed]")  # at delta 1e-5
        assert main(["account", data, "--budget", "8.5", "--delta", "1e-3"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "training" in shown
        assert "epsilon 8.5" in shown
        assert main(["evaluate", "mine", "--data", "synthetic:ward:val", "--limit", "4"]) == 0
        assert main(["account"]) == 0
        assert "1 score without noise" in " ".join(capsys.readouterr().out.split())
        command_refused(capsys, [*TRAIN, *BUDGET, "--out", "more"], "the budget of epsilon 8.5")
        assert not Path("more").exists()
        command_refused(capsys, [*TRAIN, "--method", "non-private", "--out", "more"], "budget")
        command_refused(
            capsys, [*TRAIN, *BUDGET, "--set", "plan.unit=crop", "--out", "more"], "only each crop is protected"
        )
        assert main(["account", data, "--no-budget"]) == 0
        command_refused(capsys, ["account", "--budget", "3"], "[budget-incomplete]")

    def test_a_score_is_refused_while_a_budget_stands_and_never_counts_as_nothing(self, run, capsys):
        held_out = "synthetic:ward:val"
        assert main(["account", held_out, "--budget", "8"]) == 0
        command_refused(capsys, ["evaluate", run, "--data", held_out], "a score without noise", "--no-budget")
        assert not (run / "evaluations").exists()
        assert main(["account", held_out, "--no-budget"]) == 0
        assert main(["evaluate", str(run), "--data", held_out, "--limit", "4"]) == 0
        capsys.readouterr()
        assert main(["account", held_out, "--budget", "8"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "what is spent has no bound: 1 x a score without noise" in shown
        assert "0 is spent" not in shown
        assert "epsilon 0 " not in shown

    @pytest.mark.parametrize("method", ["non-private", "public-only"])
    def test_a_score_on_private_pictures_is_listed_whatever_the_method(self, method, tmp_path):
        assert main([*TRAIN, "--method", method, "--out", "run"]) == 0
        assert main(["evaluate", "run", "--data", "synthetic:ward:train", "--limit", "4"]) == 0
        (query,) = json.loads((tmp_path / "run" / "privacy.json").read_text())["queries"]
        assert query["data"] == "synthetic:ward:train, 4 units"
        assert not query["covered"]
        assert main(["verify", "run"]) == 0

    def test_people_as_units(self, tmp_path):
        arguments = [
            *TRAIN,
            *BUDGET,
            "--set",
            "plan.unit=subject",
            "--set",
            "plan.augmentation_multiplicity=2",
            "--batch-size",
            "8",
            "--out",
            "run",
        ]
        assert main(arguments) == 0
        statement = json.loads((tmp_path / "run" / "privacy.json").read_text())
        assert statement["unit"] == "subject"
        people = {identity_of("ward", scene_seed("ward", "train", i)) for i in range(SMALL["train"])}
        assert statement["n"] == len(people)

    def test_a_seed_says_so(self, tmp_path, capsys):
        assert main([*TRAIN, *BUDGET, "--set", "seed=3", "--out", "a"]) == 0
        assert main([*TRAIN, *BUDGET, "--set", "seed=3", "--out", "b"]) == 0
        assert "NOTHING IS GUARANTEED" in capsys.readouterr().out
        a, b = ((tmp_path / n / "model.safetensors").read_bytes() for n in "ab")
        assert a == b

    @pytest.mark.usefixtures("fine")
    def test_plan_explains(self, capsys):
        arguments = "plan --units 22146 --epochs 25 --batch-size 1024 --epsilon 0.8 --delta 4e-5"
        assert main(arguments.split()) == 0
        shown = capsys.readouterr().out
        for word in ("pld (used)", "rdp", "541", "4.59", "5.03", "Protected", "Not protected", "zero-out"):
            assert word in shown

    def test_ctrl_c_saves_and_exits_130(self, tmp_path):
        """A real process, a real signal: the step is finished, the model saved, the statement true."""
        script = (
            "import os, signal, sys\n"
            "import dpose_scene.data as s, dpose.training.step as step\n"
            f"s.SPLITS = {SMALL!r}\n"
            "real = step.poisson_batch\n"
            "def stop(*a):\n"
            "    os.kill(os.getpid(), signal.SIGINT)\n"
            "    return real(*a)\n"
            "step.poisson_batch = stop\n"
            "from dpose.cli import main\n"
            f"sys.exit(main({[*TRAIN, *BUDGET, '--epochs', '9', '--out', 'stopped']!r}))\n"
        )
        done = run_program(PREAMBLE + script, cwd=tmp_path)
        assert done.returncode == 130, done.stderr
        assert "Stopped after step 1" in done.stdout
        assert "To go on: dpose train --resume stopped" in " ".join(done.stdout.split())
        assert "Traceback" not in done.stderr
        assert main(["verify", str(tmp_path / "stopped")]) == 0


class TestVerifyRefuses:
    def ledger(self, run):
        return (run / "ledger.jsonl").read_text().splitlines(keepends=True)

    def test_an_altered_ledger(self, run, capsys):
        lines = self.ledger(run)
        (run / "ledger.jsonl").write_text("".join(lines).replace('"steps":1', '"steps":2', 1))
        command_refused(capsys, ["verify", run], "ledger.jsonl")

    def test_a_reordered_ledger(self, run, capsys):
        lines = self.ledger(run)
        lines[1], lines[2] = lines[2], lines[1]
        (run / "ledger.jsonl").write_text("".join(lines))
        command_refused(capsys, ["verify", run], "ledger.jsonl, line 2")

    def test_a_shortened_ledger(self, run, capsys):
        (run / "ledger.jsonl").write_text("".join(self.ledger(run)[:-1]))
        command_refused(capsys, ["verify", run], "[ledger-cut]")

    def test_a_shortened_ledger_on_another_machine(self, run, capsys, monkeypatch, tmp_path):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
        (run / "ledger.jsonl").write_text("".join(self.ledger(run)[:-1]))
        command_refused(capsys, ["verify", run], "[ledger-end-missing]")

    def test_a_smaller_claim(self, run, capsys):
        text = (run / "privacy.json").read_text()
        epsilon = json.loads(text)["epsilon"]
        (run / "privacy.json").write_text(text.replace(f'"{epsilon}"', '"0.5"'))
        command_refused(capsys, ["verify", run], "[statement-does-not-add-up]")

    def test_a_folder_that_is_no_run(self, tmp_path, capsys):
        command_refused(capsys, ["verify", tmp_path], "is an empty folder")
        (tmp_path / "notes.txt").write_text("x")
        command_refused(capsys, ["verify", tmp_path], "privacy.json")


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """Twelve small pictures in LSPET's own layout, split 4 / 5 / 3."""
    splits = {"public": (1, 4), "private": (5, 9), "validation": (10, 12)}
    lspet = SOURCES["lspet"]
    monkeypatch.setitem(SOURCES, "lspet", replace(lspet, labels=partial(lspet.labels, splits=splits)))
    root = tmp_path / "lspet"
    (root / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number in range(1, 13):
        blob = cv2.GaussianBlur(rng.integers(0, 256, (120, 100, 3), np.uint8), (0, 0), 5)
        cv2.imwrite(str(root / "images" / f"im{number:05d}.jpg"), blob)
    labels = np.ones((14, 3, 12))
    labels[:, 0] = rng.uniform(20, 80, (14, 12))
    labels[:, 1] = rng.uniform(20, 100, (14, 12))
    scipy.io.savemat(root / "joints.mat", {"joints": labels})
    return root, labels


class TestPlaces:
    """A run folder travels; paths name wards and people, and stand in the state folder alone."""

    def trained(self, pictures, out="run", **more):
        root, _ = pictures
        ward = root.parent / "ward of Ms Ito"
        ward.mkdir()
        root.rename(ward / "lspet")
        spec = f"lspet:{ward / 'lspet'}"
        first = ["train", "--data", "synthetic:studio", "--limit", "8", "--method", "non-private", "--epochs", "1"]
        assert main([*first, "--batch-size", "8", "--out", str(ward / "first")]) == 0
        arguments = [
            "train",
            "--data",
            f"{spec}:private",
            "--set",
            f"data.validation_data={spec}:public",
            "--batch-size",
            "3",
        ]
        arguments += ["--epochs", "1", "--epsilon", "8", "--delta", "0.01", "--set", "plan.accountant=rdp"]
        assert main([*arguments, "--init", str(ward / "first"), "--out", out]) == 0
        return ward

    def test_no_file_of_a_run_folder_says_where_data_lie(self, pictures, tmp_path, monkeypatch, capsys):
        typed = ["dpose", "train", "--data", "lspet:/srv/ward of Ms Ito/lspet:private", "--out", "/srv/runs/run"]
        monkeypatch.setattr(sys, "argv", typed)
        ward = self.trained(pictures)
        spec = f"lspet:{ward / 'lspet'}"
        assert main(["evaluate", "run", "--data", f"{spec}:validation"]) == 0
        assert main(["report", "run", "--pictures", f"{spec}:public"]) == 0
        assert main(["verify", "run"]) == 0
        for file in [file for file in (tmp_path / "run").rglob("*") if file.is_file()]:
            found = file.read_bytes()
            for secret in (str(tmp_path), "Ms Ito", "/srv/"):
                assert secret.encode() not in found, file
        shown = json.loads((tmp_path / "run" / "config.json").read_text())["run"]
        assert shown["data"]["private"] == "lspet:lspet:private"
        assert shown["model"]["init"] == "first"
        (kept,) = [f for f in Path(os.environ["XDG_STATE_HOME"]).rglob("runs/*.json") if spec in f.read_text()]
        assert kept.stat().st_mode & 0o777 == 0o600
        assert "Ms Ito" in json.loads(kept.read_text())["command"]

    def test_a_folder_from_another_machine_asks_for_its_data(self, pictures, tmp_path, monkeypatch, capsys):
        ward = self.trained(pictures)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
        steps = tmp_path / "run" / "checkpoints"
        for folder in steps.iterdir():  # as a run that was stopped at its beginning
            if folder.name != "step-0":
                shutil.rmtree(folder)
        (tmp_path / "run" / "model.safetensors").unlink()
        command_refused(capsys, ["train", "--resume", "run"], "--data and --set data.validation_data and --init again")
        spec = f"lspet:{ward / 'lspet'}"
        again = ["--data", f"{spec}:private", "--set", f"data.validation_data={spec}:public"]
        command_refused(capsys, ["train", "--resume", "run", *again], "--init again")
        assert main(["train", "--resume", "run", *again, "--init", str(ward / "first")]) == 0
        assert main(["verify", "run"]) == 0
        assert main(["report", "run"]) == 0

    def test_a_copy_of_the_protected_pictures_is_refused_as_they_are(self, pictures, tmp_path, capsys):
        ward = self.trained(pictures)
        shutil.copytree(ward / "lspet", tmp_path / "copied")
        command_refused(capsys, ["evaluate", "run", "--data", "lspet:copied:private"], "[scored-data-protected]")
        assert not Path("run/evaluations").exists()

    def test_a_report_elsewhere_shows_no_pictures(self, pictures, tmp_path, monkeypatch):
        self.trained(pictures)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
        assert main(["report", "run"]) == 0
        assert "not known on this machine" in (tmp_path / "run" / "report.html").read_text()


class TestFirstWeights:
    LIMITED = ("--limit", "40")

    def test_ordinary_training_and_then_noise_is_refused(self, capsys, tmp_path):
        assert main([*TRAIN, "--method", "non-private", *self.LIMITED, "--out", "plain"]) == 0
        private = [*TRAIN, *BUDGET, *self.LIMITED, "--init", "plain", "--out", "private"]
        command_refused(capsys, private, "learnt from some of these images without a guarantee")
        assert not (tmp_path / "private").exists()
        audit = ["audit", "training", "--data", "synthetic:ward", *BUDGET[:4], "--canaries", "20"]
        command_refused(capsys, [*audit, "--init", "plain", "--out", "audit"], "[first-weights-unprotected]")

    def test_a_private_start_counts_too(self, tmp_path):
        assert main([*TRAIN, *BUDGET, "--out", "one"]) == 0
        assert main([*TRAIN, *BUDGET, "--init", "one", "--out", "two"]) == 0
        one, two = (json.loads((tmp_path / n / "privacy.json").read_text()) for n in ("one", "two"))
        assert float(two["epsilon"]) > 1.2 * float(one["epsilon"])
        assert len(two["events"]) == 2
        assert main(["verify", "two"]) == 0

    def test_shipped_weights_are_known_to_be_public(self, tmp_path):
        assert main([*TRAIN, *BUDGET, "--init", "nano", "--out", "run"]) == 0
        statement = json.loads((tmp_path / "run" / "privacy.json").read_text())
        assert statement["conditional_on"] == []
        assert any("rendered people, who are not real" in fact for fact in statement["public"])
        assert not any("first weights" in caveat for caveat in statement["caveats"])


class TestBadInput:
    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            (["--data", "lspte:/data"], ["lspte", "lspet"]),
            (["--data", "lspet:/nowhere:private"], ["/nowhere"]),
            (["--data", "synthetic:night"], ["night", "studio"]),
            (["--epsilon", "0"], ["epsilon"]),
            (["--epsilon", "-3"], ["epsilon"]),
            (["--epsilon", "nan"], ["epsilon"]),
            (["--delta", "0"], ["delta"]),
            (["--delta", "1.5"], ["delta"]),
            (["--delta", "0.1"], ["delta above 1/n", "40 units"]),
            (["--method", "dpsgd"], ["dpsgd", "dp-sgd"]),
            (["--preset", "6m"], ["preset"]),
            (["--strategy", "finetune", "--preset", "5m"], ["--init"]),
            (["--strategy", "scratch", "--init", "nano"], ["scratch"]),
            (["--init", "nowhere"], ["nowhere"]),
            (["--set", "optimizer.name=adamm"], ["adamm"]),
            (["--set", "plan.unit=frame"], ["frame", "image, crop, subject"]),
            (["--set", "data.validation_data=synthetic:ward:train"], ["data.validation_data", "the run protects"]),
            (["--method", "pdp-sgd"], ["--public"]),
            (
                ["--method", "pdp-sgd", "--set", "plan.subspace.rank=9", "--set", "plan.subspace.units=8"],
                ["9 public units, not 8"],
            ),
            (
                ["--method", "fdp-sgd", "--set", "plan.relation=add-or-remove", "--set", "plan.nominal_units=50"],
                ["public view"],
            ),
            (["--set", "plan.augmentation_multiplicity=9"], ["1 to 8"]),
            (["--set", "plan.noise_multiplier=0.01", "--epsilon", "8"], ["exactly one"]),
            (["--config", "absent.yaml"], ["absent.yaml"]),
            (["--batch-size", "0"], ["expected_batch_size"]),
            (["--set", "augment=wild"], ["augment"]),
            (["--set", "plan.relation=add-or-remove"], ["nominal"]),
            (["--limit", "0"], ["limit"]),
        ],
    )
    def test_options(self, capsys, tmp_path, changed, words):
        command_refused(capsys, [*TRAIN, *BUDGET, "--out", "run", *changed], *words)
        assert not (tmp_path / "run").exists()

    def test_no_budget(self, capsys):
        command_refused(capsys, [*TRAIN, "--out", "run"], "[delta-missing]")

    @pytest.mark.parametrize(
        ("words", "meant"),
        [
            (["train", "-epsilon", "8", "--data", "synthetic:ward"], "-epsilon. Did you mean --epsilon?"),
            (["train", "-lr=1", "--data", "synthetic:ward"], "-lr=1. Did you mean --lr=1?"),
            (["predict", "-photo.jpg"], "-photo.jpg. Did you mean ./-photo.jpg?"),
            (["pixelize", "--epsilon", "2", "-photo.jpg"], "-photo.jpg. Did you mean ./-photo.jpg?"),
        ],
    )
    def test_a_word_with_one_dash_is_a_long_option_or_a_file(self, words, meant, capsys, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "-photo.jpg").write_bytes(b"x")
        assert main(words) == 2
        assert capsys.readouterr().err == f"dpose: No such option: {meant}\n"

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--set", "plan.unit=pixel"], "choose one of image, crop, subject, video"),
            (["--limit", "0"], "options: data.limit: must be greater than or equal to 1, not 0"),
            (["--strategy", "foo"], "options: model.strategy: must be 'light'"),
        ],
    )
    def test_what_no_training_takes_is_told_with_what_it_takes(self, words, said, capsys):
        command_refused(capsys, [*TRAIN, *BUDGET, "--out", "run", *words], said)

    def test_plan_takes_units_of_trainings_warns_of_few_and_asks_for_all_that_is_missing(self, capsys):
        command_refused(capsys, ["plan", "--units", "40", *BUDGET, "--set", "plan.unit=pixel"], "unknown unit 'pixel'")
        command_refused(capsys, ["plan", "--units", "40"], "needs an epsilon and a delta; give --epsilon and --delta")
        assert main(["plan", "--units", "40", "--batch-size", "20", *BUDGET]) == 0
        assert "Warning: 40 units are few" in capsys.readouterr().out

    def test_an_option_that_does_not_exist(self, capsys):
        command_refused(capsys, [*TRAIN, *BUDGET, "--out", "run", "--epsilonn", "1"], "--epsilonn")

    def test_an_output_folder_that_exists(self, capsys, tmp_path):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "notes.txt").write_text("mine")
        command_refused(capsys, [*TRAIN, *BUDGET, "--out", "run"], "run: already exists; choose another name")

    def test_a_folder_that_may_not_be_written(self, capsys, tmp_path):
        (tmp_path / "file").write_text("")
        command_refused(capsys, [*TRAIN, *BUDGET, "--out", "file/run"], "file/run")

    def lspet(self, capsys, pictures, *words):
        root, _ = pictures
        code = ["train", "--data", f"lspet:{root}:private", "--epochs", "1", "--batch-size", "3"]
        command_refused(
            capsys, [*code, "--epsilon", "8", "--delta", "0.01", "--set", "plan.accountant=rdp", "--out", "run"], *words
        )
        assert not os.path.exists("run")

    def test_weights_from_public_pictures_chosen_by_private_ones_are_a_condition(self, capsys, pictures):
        root, _ = pictures
        assert main(["train", "--data", f"lspet:{root}:public", "--method", "non-private", "--epochs", "1",
                     "--batch-size", "4", "--out", "first"]) == 0  # fmt: skip
        assert main([*TRAIN, *BUDGET, "--init", "first", "--out", "second"]) == 0
        statement = json.loads((root.parent / "second" / "privacy.json").read_text())
        assert any("near copies of private ones" in given for given in statement["conditional_on"])
        assert "Taken as given:" in capsys.readouterr().out

    def test_truncated_image(self, capsys, pictures):
        path = pictures[0] / "images" / "im00007.jpg"
        path.write_bytes(path.read_bytes()[:-200])
        self.lspet(capsys, pictures, "im00007.jpg")

    def test_unreadable_image(self, capsys, pictures):
        (pictures[0] / "images" / "im00006.jpg").write_text("no picture")
        self.lspet(capsys, pictures, "im00006.jpg")

    def test_missing_image(self, capsys, pictures):
        (pictures[0] / "images" / "im00006.jpg").unlink()
        self.lspet(capsys, pictures, "im00006.jpg")

    def test_missing_labels(self, capsys, pictures):
        (pictures[0] / "joints.mat").unlink()
        self.lspet(capsys, pictures, "joints.mat")

    def test_labels_of_another_shape(self, capsys, pictures):
        scipy.io.savemat(pictures[0] / "joints.mat", {"joints": np.zeros((14, 2, 12))})
        self.lspet(capsys, pictures, "joints.mat")

    def test_labels_that_are_nan(self, capsys, pictures):
        root, labels = pictures
        labels[3, 0, 6] = np.nan
        scipy.io.savemat(root / "joints.mat", {"joints": labels})
        self.lspet(capsys, pictures, "joints.mat", "im00007.jpg is not a number")

    def test_a_split_without_a_visible_joint(self, capsys, pictures):
        root, labels = pictures
        labels[:, 2, 4:9] = 0
        scipy.io.savemat(root / "joints.mat", {"joints": labels})
        self.lspet(capsys, pictures, "no labelled person")

    def test_prediction(self, capsys, trained, tmp_path):
        run = trained / "run"
        command_refused(capsys, ["predict", run, "absent.jpg"], "absent.jpg")
        (tmp_path / "text.jpg").write_text("no picture")
        command_refused(capsys, ["predict", run, "text.jpg"], "text.jpg")
        cv2.imwrite("person.png", np.zeros((60, 40, 3), np.uint8))
        command_refused(capsys, ["predict", run, "person.png", "--box", "1,2,3"], "box")
        command_refused(capsys, ["predict", run, "person.png", "--box", "9,9,1,1"], "[box-empty]")
        command_refused(capsys, ["predict", tmp_path / "no-run", "person.png"], "no-run")
        command_refused(capsys, ["predict", run], "[pictures-missing]")
        command_refused(capsys, ["predict", run, "person.png", "--out", "drawn.gif"], "gif")
        assert not (tmp_path / "person-pose.png").exists()

    def test_evaluation(self, capsys, trained, tmp_path):
        command_refused(capsys, ["evaluate", tmp_path, "--data", "synthetic:ward"], "config.json")
        command_refused(capsys, ["evaluate", trained / "run", "--data", "lspet:/nowhere"], "/nowhere")

    def test_no_space_left_leaves_no_model(self, capsys, tmp_path, monkeypatch):
        import errno

        import dpose.training.folder as folder
        from dpose.errors import DposeError

        def full(path, data):
            raise DposeError("disk-full", "no space left on the disk", str(path), os.strerror(errno.ENOSPC))

        monkeypatch.setattr(folder, "write_atomic", full)
        command_refused(capsys, [*TRAIN, *BUDGET, "--out", "run"], "[disk-full]")
        assert not (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.slow
def test_output_to_a_pipe_and_a_narrow_terminal(trained, tmp_path):
    """No colour codes, no broken bars, sixty columns."""
    done = subprocess.run(
        [sys.executable, "-m", "dpose", "verify", str(trained / "run")],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "60", "XDG_STATE_HOME": str(trained / "state")},
    )
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 60


@pytest.mark.parametrize(("words", "code"), [("account >&-", 0), ("--help >&-", 0), ("acount <&- >&- 2>&-", 2)])
def test_a_stream_may_be_closed(words, code, tmp_path):
    line = f'"$0" -m dpose {words}'
    done = subprocess.run(["sh", "-c", line, sys.executable], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")
