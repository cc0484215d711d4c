"""Recipes: what they fill in, their stage on public data, and two private runs on one budget."""

import io
import json
import shutil

import pytest
from rich.console import Console

import dpose_scene.data as synthetic
from dpose import files
from dpose.runs.build import first_weights
from dpose.runs.config import RECOMMENDED, STRONG, RunConfig, filled_in, recipe_for
from dpose.runs.stages import _of_public_data, public_stage, stage_data, take_stages
from dpose.runs.train import explain_task, train_task
from dpose.training.checkpoint import is_whole
from dpose.training.run import Ended, Run
from dpose_scene.aids import SceneChoice
from refusals import refused
from small_nano import small_nano  # noqa: F401

SMALL = {"train": 40, "val": 16, "test": 16, "public": 8}
GIVEN = {
    "recipe": "recommended",
    "data": {"private": "synthetic:ward"},
    "plan": {"epsilon": 8, "delta": 1e-3, "accountant": "rdp", "epochs": 1, "expected_batch_size": 20},
}


@pytest.fixture(autouse=True)
def _small(monkeypatch, tmp_path):
    monkeypatch.setattr(synthetic, "SPLITS", SMALL)
    monkeypatch.setitem(RECOMMENDED.public["plan"], "steps", 2)
    monkeypatch.setitem(RECOMMENDED.public["plan"], "expected_batch_size", 4)
    monkeypatch.chdir(tmp_path)


def quiet() -> Console:
    return Console(quiet=True)


def test_what_the_user_says_goes_first():
    assert filled_in({"a": {"b": 1}, "c": None}, {"a": {"b": 2, "d": 3}, "c": 4}) == {"a": {"b": 1, "d": 3}, "c": 4}
    config = RunConfig.from_dict({**GIVEN, "optimizer": {"lr": 5e-4}})
    assert config.plan.expected_batch_size == 20
    assert config.plan.ema_decay == RECOMMENDED.private["plan"]["ema_decay"]
    assert config.optimizer.lr == 5e-4
    assert config.optimizer.options == RECOMMENDED.private["optimizer"]["options"]
    assert RunConfig.from_dict(config.to_dict()) == config


def test_the_learning_rate_falls_with_the_budget():
    rates = [
        RunConfig.from_dict({**GIVEN, "plan": {**GIVEN["plan"], "epsilon": e}}).optimizer.lr for e in (20, 8, 2, 0.8)
    ]
    full = RECOMMENDED.private["optimizer"]["lr"]
    assert rates == pytest.approx([full, full, full / 2, full * 0.1**0.5])
    assert RECOMMENDED.at(None)["optimizer"]["lr"] == full


@pytest.mark.parametrize("first", [{"init": "blazepose:lite"}, {"init": "blazepose"}, {"preset": "blazepose:full"}])
def test_from_blazepose_the_recipe_is_another_without_a_public_stage(first):
    config = RunConfig.from_dict({**GIVEN, "model": first, "plan": {"epsilon": 0.125, "delta": 1e-3}})
    assert config.optimizer.lr == STRONG.private["optimizer"]["lr"] / 2
    assert (config.plan.epochs, config.plan.ema_decay) == (STRONG.private["plan"]["epochs"], 0.0)
    assert stage_data(config) is None
    assert config.optimizer.options == STRONG.private["optimizer"]["options"]
    assert recipe_for("recommended", "runs/blazepose") is recipe_for("recommended", None) is RECOMMENDED


def test_a_recipe_for_poses_is_refused_for_actions():
    with refused("recipe-of-other-task", where="action"):
        RunConfig.from_dict({**GIVEN, "task": "action", "data": {"private": "synthetic-clips"}})
    with refused("setting-invalid", where="recipe"):
        RunConfig.from_dict({**GIVEN, "recipe": "secret"})


@pytest.mark.parametrize("preset", ["nano", "lite0"])
def test_the_public_stage_starts_from_what_comes_with_dpose_of_the_same_backbone(preset, tmp_path, monkeypatch):
    for name in ("nano", "lite0"):
        shutil.copytree(files.SHIPPED / "nano", tmp_path / name)
    monkeypatch.setattr(files, "SHIPPED", tmp_path)
    config = RunConfig.from_dict({**GIVEN, "model": {"preset": preset}})
    assert first_weights(_of_public_data(config, stage_data(config))) == tmp_path / preset


def test_the_private_run_starts_from_weights_that_saw_the_public_split(tmp_path):
    config = RunConfig.from_dict(GIVEN)
    train_task(config, tmp_path / "best", quiet())
    first, private = (
        json.loads((tmp_path / name / "config.json").read_text())["run"] for name in ("best-public", "best")
    )
    assert first["plan"]["method"] == "non-private"
    assert first["data"]["private"] == "synthetic:ward:public"
    assert first["data"]["public_licence"] is None
    assert private["model"]["init"] == "best-public"
    assert (first["model"]["temperature"], private["model"]["temperature"]) == (None, 1.5)
    assert private["data"]["validation_data"] == "none"
    ledger = (tmp_path / "best" / "ledger.jsonl").read_text()
    assert "reserve" in ledger
    assert "reserve" not in (tmp_path / "best-public" / "ledger.jsonl").read_text()
    statement = json.loads((tmp_path / "best" / "privacy.json").read_text())
    assert "that the first weights learnt from none of the images" in statement["public"]
    assert any("trained without a guarantee: the data" in caveat for caveat in statement["caveats"])
    assert "the logits of the first weights were divided by 1.5" in statement["caveats"]
    said = {each["what"]: each["licence"] for each in statement["inputs"]}
    behind = "behind the first weights, as their statement says: "
    assert said == {
        "the first weights": "not stated",
        f"{behind}8 units that it was trained on": "Apache-2.0, rendered by dpose",
        f"{behind}the first weights": "Apache-2.0",
    }

    # the same again into another folder of the same name's stage: what is whole is used as it is
    (tmp_path / "best").rename(tmp_path / "moved")
    before = (tmp_path / "best-public" / "model.safetensors").stat().st_mtime_ns
    staged = public_stage(config, tmp_path / "best", quiet(), "")
    assert isinstance(staged, RunConfig)
    assert staged.model.temperature == 1.5
    asked = config.model.model_copy(update={"temperature": 2.0})
    own = public_stage(config.model_copy(update={"model": asked}), tmp_path / "best", quiet(), "")
    assert isinstance(own, RunConfig)
    assert own.model.temperature == 2.0
    assert (tmp_path / "best-public" / "model.safetensors").stat().st_mtime_ns == before
    with refused("run-of-other-settings"):
        public_stage(config.model_copy(update={"seed": 3}), tmp_path / "best", quiet(), "")


def test_a_public_stage_that_was_stopped_is_gone_on_with(tmp_path, monkeypatch):
    config = RunConfig.from_dict(GIVEN)
    with monkeypatch.context() as stopping:
        stopping.setattr(Run, "take_steps", lambda self: Ended.INTERRUPTED)
        stopped = take_stages(config, tmp_path / "best", quiet(), "")
    assert isinstance(stopped, Run)
    assert (tmp_path / "best-public" / "model.safetensors").exists()
    assert not is_whole(tmp_path / "best-public")
    assert isinstance(take_stages(config, tmp_path / "best", quiet(), ""), RunConfig)
    assert is_whole(tmp_path / "best-public")


def test_a_recipe_starts_from_no_weights_that_learnt_from_the_private_pictures(tmp_path):
    plain = {"data": {"private": "synthetic:ward"}, "plan": {"method": "non-private", "steps": 1}}
    train_task(RunConfig.from_dict(plain), tmp_path / "plain", quiet())
    config = RunConfig.from_dict({**GIVEN, "model": {"init": str(tmp_path / "plain")}})
    with refused("first-weights-unprotected", where="images"):
        train_task(config, tmp_path / "best", quiet())
    assert not (tmp_path / "best").exists()


def test_public_data_of_the_users_own_are_taken_and_copies_of_private_pictures_refused(tmp_path, monkeypatch):
    config = RunConfig.from_dict({**GIVEN, "data": {"private": "synthetic:ward", "public": "synthetic:ward:val"}})
    # splits that share their pictures
    monkeypatch.setattr(synthetic, "choose_scene", lambda look, split, index: SceneChoice(index))
    with refused("public-unit-private", where="picture"):
        public_stage(config, tmp_path / "best", quiet(), "")
    assert not (tmp_path / "best-public").exists()


@pytest.mark.parametrize("change", [{"init": "nano"}, {"strategy": "scratch"}])
def test_no_stage_where_the_first_weights_are_settled(tmp_path, change):
    config = RunConfig.from_dict({**GIVEN, "model": change})
    assert public_stage(config, tmp_path / "best", quiet(), "") is config


def test_what_the_stage_would_learn_from_is_told_beforehand():
    console = Console(width=200, record=True, quiet=False, file=io.StringIO())
    console.print(explain_task(RunConfig.from_dict(GIVEN)))
    assert "First its weights learn from synthetic:ward:public" in console.export_text()
