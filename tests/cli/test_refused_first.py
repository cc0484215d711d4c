"""Mistakes that settings alone show are refused before torch is loaded, a model is made or data are opened."""

import subprocess
import sys

import pytest
from rich.console import Console

from dpose.runs import pose, stages
from dpose.runs.config import RunConfig
from refusals import refused

WITHOUT = "import sys; sys.modules |= {'torch': None, 'timm': None}; from dpose.cli import run; run()"
DATA = ("--data", "synthetic:ward", "--out", "new")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train", "--backbone", "timm:resnet18", "--strategy", "full", *DATA), "starts from trained weights"),
        (("train", "--backbone", "timm:resnet18", "--strategy", "light", *DATA), "starts from trained weights"),
        (("train", "--strategy", "scratch", "--init", "nano", *DATA), "takes no --init"),
        (("train", "--strategy", "scratch", "--set", "model.temperature=2", *DATA), "no first weights"),
        (("train", "--resume", "full", "--explain"), "has its own settings"),
        (("train", "--resume", "full", "--config", "x.yaml"), "has its own settings"),
        (("train", "--out", "new"), "needs data"),
        (("train", "--data", "synthetic:ward"), "needs a folder"),
        (("train", "--data", "synthetic:ward", "--out", "full"), "full"),
        (("evaluate", "run", "--data", "synthetic:ward", "--predictions", "x"), "give one of them"),
        (("evaluate", "--whole-pictures", "--data", "coco:x", "--detections", "x"), "uses no boxes"),
        (("evaluate", "--whole-pictures", "--data", "synthetic:ward", "--epsilon", "1"), "without noise"),
        (("evaluate", "--predictions", "x", "--data", "coco:x", "--out", "y"), "a score of a model"),
        (("evaluate", "--predictions", "x", "--data", "coco:x", "--limit", "1"), "scored on all labels"),
        (("evaluate", "--predictions", "x", "--data", "coco:x", "--detections", "y"), "scored on all labels"),
        (("evaluate", "run", "--data", "synthetic:ward", "--before", "run"), "groups are of"),
        (("evaluate", "run", "--data", "coco:x", "--epsilon", "1", "--detections", "x"), "noise goes on"),
        (("evaluate", "run", "--data", "coco:x", "--epsilon", "1", "--pooled"), "go together"),
        (("predict", "x.jpg", "--box", "0,0,1,1", "--detector", "torchvision"), "both say where"),
        (("predict", "x.jpg", "--skeleton", "ape"), "no skeleton is called 'ape'"),
        (("predict", "x.jpg", "--canvas", "red"), "no canvas is called 'red'"),
        (("predict", "x.jpg", "--canvas", "blank", "--hide-faces"), "a blank canvas shows no face"),
        (("predict", "x.jpg", "--detector-kind", "ssd"), "is of an ONNX file"),
        (("compare", "run", "--out", "x.gif"), "no kind of picture"),
        (("tune", "--out", "new"), "needs a grid"),
        (("keys", "--discard"), "what shall be done"),
    ],
)
def test_mistakes_in_what_is_typed_load_no_network(words, said, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert said in done.stderr


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"data": {"validation_data": "synthetic:ward:train"}}, "watched-data-protected"),
        ({"data": {"public": "synthetic:ward:train"}}, "public-data-private"),
        ({"plan": {"unit": "video"}}, "unit-unsupported"),
        ({"plan": {"method": "pdp-sgd"}}, "public-data-missing"),
        ({"model": {"strategy": "full", "preset": "timm:resnet18"}}, "init-missing"),
        ({"model": {"temperature": 2.0, "init": "imagenet"}}, "temperature-without-init"),
    ],
)
def test_settings_are_refused_before_a_model_is_made_or_data_are_opened(values, code, monkeypatch):
    def opened(*given, **named):
        raise AssertionError("too late")

    for name in ("open_units", "open_public", "open_data", "PoseModel", "load_model"):
        for module in (pose, sys.modules["dpose.runs.build"]):
            monkeypatch.setattr(module, name, opened, raising=False)
    settings = {
        "data": {"private": "synthetic:ward", **values.get("data", {})},
        "plan": {"epsilon": 2.0, "delta": 1e-5, **values.get("plan", {})},
        "model": values.get("model", {}),
    }
    with refused(code):
        pose.prepare(RunConfig.from_dict(settings), Console(quiet=True))


def test_a_recipe_trains_on_nothing_public_before_its_settings_are_right(tmp_path, monkeypatch):
    def trained(*given, **named):
        raise AssertionError("too late")

    monkeypatch.setattr(stages, "train_run", trained)
    monkeypatch.setattr(stages, "open_units", trained)
    settings = RunConfig.from_dict(
        {
            "data": {"private": "synthetic:ward", "validation_data": "synthetic:ward:train"},
            "plan": {"epsilon": 2.0, "delta": 1e-5},
            "recipe": "recommended",
        }
    )
    with refused("watched-data-protected"):
        stages.public_stage(settings, tmp_path / "run", Console(quiet=True), "")
