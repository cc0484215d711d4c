"""The public weights that come with dpose, and the command that made them."""

import json

import pytest
import safetensors.torch
import torch
from rich.console import Console

import dpose_scene.data as synthetic_module
import small_nano
from dpose.pose.backbones import shipped_weights
from dpose.pose.data import open_data
from dpose.pose.folder import PREDICTOR, load_model
from dpose.pose.predict import predict_outputs
from dpose.pose.weights_file import imagenet_file
from dpose.privacy.selection import Selection
from dpose.privacy.statement import PrivacyStatement
from dpose.runs.data import NOBODY_IN_IMAGENET
from refusals import refused
from train_public_weights import COMMAND, PRESETS, make, recipe

SMALL = {"train": 8, "val": 8, "test": 8, "public": 8, "large": 64}


class TestShipped:
    def test_the_predictor_is_one_of_them(self):
        assert PREDICTOR in shipped_weights()
        # those of BlazePose are converted (tests/pose/test_blazepose.py)
        assert set(shipped_weights()) == {*PRESETS, "blazepose:lite", "blazepose:full"}

    @pytest.mark.parametrize("preset", PRESETS)
    def test_they_are_small_halves_with_a_statement_that_says_what_they_saw(self, preset):
        folder = shipped_weights()[preset]
        assert (folder / "model.safetensors").stat().st_size < 8e6
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        assert {t.dtype for t in tensors.values() if t.is_floating_point()} == {torch.float16}
        statement = PrivacyStatement.from_json((folder / "privacy.json").read_text())
        assert statement.kind == "none"
        assert statement.conditional_on == ((NOBODY_IN_IMAGENET,) if preset == "lite0" else ())
        run = json.loads((folder / "config.json").read_text())["run"]
        assert run["data"]["private"] == "synthetic:studio:large"
        asked = recipe(preset).to_dict()
        assert all(asked["model"][name] == value for name, value in run["model"].items())
        asked = asked["plan"]
        assert all(asked[name] == value for name, value in run["plan"].items())
        card = (folder / "README.md").read_text()
        assert f"{COMMAND} --preset {preset}" in card
        assert ("ImageNet" in card) == (preset == "lite0")
        assert "synthetic:studio:test" in card

    @pytest.mark.parametrize("preset", PRESETS)
    def test_they_find_people_in_the_studio(self, preset):
        model = load_model(shipped_weights()[preset])
        units = open_data("synthetic:studio:val", purpose="evaluate", input_size=model.config.input_size)
        from dpose.pose.task import PoseTask
        from dpose.training.validation import metric_of_views

        result = metric_of_views(PoseTask(), model, units.limit(Selection(60)), console=Console(quiet=True))
        assert result.columns()["Mean"] > 75


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setattr(synthetic_module, "SPLITS", SMALL)
    small_nano.use(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_preset_that_is_not_shipped_is_one_line():
    with refused("preset-unknown"):
        recipe("5m")
    assert [recipe(preset, epochs=0.5).plan.epochs for preset in PRESETS] == [0.5, 0.5]


LITE0 = pytest.param(
    "lite0", marks=pytest.mark.skipif(imagenet_file("efficientnet_lite0") is None, reason="dpose[imagenet]")
)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["nano", LITE0])
def test_the_command_makes_a_model_folder_that_scores_like_the_run(small, preset):
    asked = recipe(preset, epochs=1)
    size = asked.model.model_copy(update={"input_size": (64, 48)})
    make(asked.model_copy(update={"model": size}), small / "run", small / "out", Console(quiet=True))
    statement = PrivacyStatement.from_json((small / "out" / "privacy.json").read_text())
    assert statement.conditional_on == ((NOBODY_IN_IMAGENET,) if preset == "lite0" else ())
    assert f"# {preset}: public weights" in (small / "out" / "README.md").read_text()
    assert statement.queries == ()
    assert {p.name for p in (small / "out").iterdir()} == {
        "model.safetensors",
        "config.json",
        "privacy.json",
        "README.md",
    }
    own, halved = load_model(small / "run"), load_model(small / "out")
    assert (own.config.norm, halved.config.norm) == ("batch", "folded")
    crops = torch.randint(0, 256, (2, 3, *own.config.input_size), dtype=torch.uint8)
    for a, b in zip(predict_outputs(own, crops), predict_outputs(halved, crops), strict=True):
        assert torch.allclose(a, b, atol=0.05 * float(a.abs().max()))


@pytest.mark.slow
def test_the_command_goes_on_where_it_was_stopped(small, monkeypatch):
    import os
    import signal

    import dpose.training.step as step

    real = step.plain_gradient

    def stopping(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(step, "plain_gradient", stopping)
        with refused("run-stopped"):
            make(recipe(), small / "run", small / "out", Console(quiet=True))
    assert not (small / "out").exists()
    make(recipe(), small / "run", small / "out", Console(quiet=True), unfinished=True)
    assert "1 steps of 64 pictures, seed 0; stopped there, 10 were planned" in (small / "out" / "README.md").read_text()
    make(recipe(), small / "run", small / "out", Console(quiet=True))
    log = [json.loads(line) for line in (small / "run" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log if line["type"] == "step"] == list(range(1, 11))
    assert [line["step"] for line in log if line["type"] == "resume"] == [1]
