"""Private runs that start from BlazePose: trained, verified, scored, and honest about what it has learnt from."""

import json

import pytest
from rich.console import Console

from dpose.pose.blaze_people import BlazePeople
from dpose.pose.folder import find_model, load_model
from dpose.runs.config import RunConfig
from dpose.runs.evaluate import evaluate_run
from dpose.runs.train import train_run
from dpose.runs.verify import verify_run
from dpose.training.folder import read_statement
from refusals import refused

QUIET = Console(quiet=True)


def settings(method="dp-sgd", **more):
    return RunConfig.from_dict(
        {
            "task": "pose",
            "data": {"private": "synthetic:ward", "limit": 8, "validation_data": "none"},
            "model": {"init": "blazepose:lite", "strategy": "light"},
            "plan": {"method": method, "epsilon": 8.0, "delta": 1e-3, "steps": 2, "expected_batch_size": 4, **more},
        }
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("blaze") / "run"
    train_run(settings(), folder, QUIET)
    return folder


def test_a_run_from_blazepose_is_verified_and_says_what_is_taken_as_given(run):
    assert any("seal holds" in line for line in verify_run(run).lines)
    statement = read_statement(run)
    given = " ".join(statement.conditional_on)
    assert "no protected image was among" in given
    assert "not public" in given
    assert "Apache-2.0" in statement.paragraph() or "Apache-2.0" in (run / "README.md").read_text()
    config = json.loads((run / "config.json").read_text())
    assert config["model"]["skeleton"] == "mpii"
    assert config["model"]["codec"] == "blazepose"


def test_the_trained_model_finds_people_and_is_scored(run):
    model = load_model(run)
    (result,) = evaluate_run(run, "synthetic:ward:test", limit=4, console=QUIET)
    assert 0 <= result.to_dict()["columns"]["Mean"] <= 100
    assert BlazePeople(model).skeleton.name == "mpii"


@pytest.mark.parametrize("method", ["fdp-sgd", "public-only"])
def test_methods_with_public_views_are_refused_where_crops_depend_on_the_sharp_picture(method, tmp_path):
    with refused("detector-without-public-view"):
        train_run(settings(method), tmp_path / "run", QUIET)
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


def test_ordinary_training_from_blazepose(tmp_path):
    """Its presence is not taught: parameters that the loss does not reach stay as they are."""
    config = settings("non-private", epsilon=None, delta=None)
    train_run(config, tmp_path / "run", QUIET)
    before, after = load_model(find_model("blazepose:lite")), load_model(tmp_path / "run")
    name = "head.presence.conv.weight"
    assert (before.state_dict()[name] == after.state_dict()[name]).all()
