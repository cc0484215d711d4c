"""The public weights that come with dpose, and the command that made them."""

import json

import pytest
import safetensors.torch
import torch
from rich.console import Console

import dpose.pose.data.synthetic as synthetic_module
import small_nano
from dpose.pose.data import open_data
from dpose.pose.folder import load_model, shipped_weights
from dpose.pose.predict import predict_logits
from dpose.privacy.selection import Selection
from dpose.privacy.statement import PrivacyStatement
from train_public_weights import COMMAND, make, recipe

SMALL = {"train": 8, "val": 8, "test": 8, "public": 8, "large": 64}


class TestShipped:
    def test_they_are_small_halves_and_owe_nobody_anything(self):
        folder = shipped_weights()["nano"]
        assert (folder / "model.safetensors").stat().st_size < 4e6
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        assert {t.dtype for t in tensors.values() if t.is_floating_point()} == {torch.float16}
        assert PrivacyStatement.from_json((folder / "privacy.json").read_text()).kind == "none"
        run = json.loads((folder / "config.json").read_text())["run"]
        assert run["data"]["private"] == "synthetic:studio:large"
        asked = recipe().to_dict()
        assert all(asked["model"][name] == value for name, value in run["model"].items())
        asked = asked["plan"]
        assert all(asked[name] == value for name, value in run["plan"].items())
        card = (folder / "README.md").read_text()
        assert COMMAND in card
        assert "synthetic:studio:test" in card

    def test_they_find_people_in_the_studio(self):
        model = load_model(shipped_weights()["nano"])
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


@pytest.mark.slow
def test_the_command_makes_a_model_folder_that_scores_like_the_run(small):
    make(small / "run", small / "out", Console(quiet=True))
    assert {p.name for p in (small / "out").iterdir()} >= {
        "model.safetensors",
        "config.json",
        "privacy.json",
        "README.md",
    }
    own, halved = load_model(small / "run"), load_model(small / "out")
    assert (own.config.norm, halved.config.norm) == ("batch", "folded")
    crops = torch.randint(0, 256, (2, 3, *own.config.input_size), dtype=torch.uint8)
    for a, b in zip(predict_logits(own, crops), predict_logits(halved, crops), strict=True):
        assert torch.allclose(a, b, atol=0.05 * float(a.abs().max()))


@pytest.mark.slow
def test_the_command_goes_on_where_it_was_stopped(small, monkeypatch):
    import os
    import signal

    import dpose.training.gradient as update
    from dpose.errors import DposeError

    real = update.plain_gradient

    def stopping(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(update, "plain_gradient", stopping)
        with pytest.raises(DposeError, match="the same command goes on"):
            make(small / "run", small / "out", Console(quiet=True))
    assert not (small / "out").exists()
    make(small / "run", small / "out", Console(quiet=True))
    log = [json.loads(line) for line in (small / "run" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log if line["type"] == "step"] == list(range(1, 11))
    assert [line["step"] for line in log if line["type"] == "resume"] == [1]
