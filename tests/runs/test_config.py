"""A run's configuration: what goes in comes out, and a misspelt key is named with its neighbour."""

import pytest
import yaml

from dpose.privacy.neighbours import Relation
from dpose.runs.config import RunConfig
from refusals import refused

VALUES = {
    "data": {"private": "synthetic:ward", "limit": 100},
    "model": {"preset": "nano"},
    "plan": {"method": "dp-sgd", "epsilon": 2.0, "delta": 1e-5, "relation": "replace"},
    "optimizer": {"name": "sgd", "lr": 0.1, "options": {"momentum": 0.9}},
    "seed": 4,
}


def changed(path, value):
    import copy

    values = copy.deepcopy(VALUES)
    *parents, last = path.split(".")
    place = values
    for key in parents:
        place = place[key]
    place[last] = value
    return values


def test_round_trip_through_yaml(tmp_path):
    config = RunConfig.from_dict(VALUES)
    assert config.plan.relation is Relation.REPLACE
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(config.to_dict()))
    assert RunConfig.from_yaml(path) == config


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("plan.epsilonn", 1, "plan.epsilonn; did you mean plan.epsilon?"),
        ("modle", {}, "modle; did you mean model?"),
        ("optimizer.momentumm", 1, "unknown key optimizer.momentumm"),
        ("data.limit", 0, "data.limit"),
        ("plan.epsilon", "much", "plan.epsilon"),
        ("plan.epsilon", -1.0, "epsilon must be"),
        ("model.preset", 3, "model.preset"),
        ("version", 2, "version"),
        ("seed", -1, "seed"),
    ],
)
def test_mistakes_are_one_line(path, value, words):
    with refused(("epsilon-not-positive", "setting-invalid", "setting-unknown")) as raised:
        RunConfig.from_dict(changed(path, value), "run.yaml")
    assert words in raised.value.line()
    assert "\n" not in raised.value.line()


def test_files_that_are_no_configuration(tmp_path):
    with refused("file-unreadable", where="absent.yaml"):
        RunConfig.from_yaml(tmp_path / "absent.yaml")
    (tmp_path / "broken.yaml").write_text("data: [")
    with refused("yaml-invalid", where="broken.yaml"):
        RunConfig.from_yaml(tmp_path / "broken.yaml")
    (tmp_path / "code.yaml").write_text("!!python/object/apply:os.system [echo]")
    with refused("yaml-invalid", where="code.yaml"):
        RunConfig.from_yaml(tmp_path / "code.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with refused("config-empty", where="list.yaml"):
        RunConfig.from_yaml(tmp_path / "list.yaml")
