"""Who pays: groups are those of the people, the largest loss is found, and private data are refused."""

import json
import shutil
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from rich.console import Console

from dpose import files
from dpose.account import State, charges
from dpose.pose.data import Augment, DataSpec, open_data
from dpose.privacy.noised_query import NoisedQuery
from dpose.privacy.scores import noised_query_of, score_statement
from dpose.privacy.statement import PrivacyStatement
from dpose.runs import group_scores
from dpose.runs.group_scores import EVERYBODY, GROUPS, GroupScore, evaluate_groups, group_table, members_of
from dpose.runs.noised_score import evaluate_noised
from dpose_scene.data import REPORTED
from refusals import refused

NANO, QUIET = files.SHIPPED / "nano", Console(quiet=True)


def words(table):
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    return " ".join(console.export_text().split())


@pytest.fixture(scope="module")
def found():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(group_scores, "FEWEST", 4)
        return evaluate_groups(NANO, "synthetic:studio:test", NANO, limit=16, console=QUIET)


def test_groups_are_of_everybody_and_add_up(found):
    everybody, *groups = found
    assert (everybody.group, everybody.units) == (EVERYBODY, 16)
    assert {group.group.split(":")[0] for group in groups} <= {*REPORTED, "posture", "size"}
    assert all(4 <= group.units <= 16 for group in groups)
    assert sum(group.units for group in groups if group.group.startswith("glasses")) in (16, *range(12, 16))
    # the same model before and after
    assert all(group.loss == 0.0 and 0 < group.after <= 100 for group in found)


def test_everybodys_score_is_the_usual_one(found):
    from dpose.pose.folder import load_model
    from dpose.pose.task import PoseTask
    from dpose.training.validation import metric_of_views

    model = load_model(NANO)
    units = open_data(
        DataSpec.parse("synthetic:studio:test"),
        purpose="evaluate",
        input_size=model.config.input_size,
        augment=Augment.none(),
        limit=16,
    )
    usual = metric_of_views(PoseTask(model.config.skeleton), model, units, console=QUIET)
    assert found[0].after == pytest.approx(usual.mean(0.5), abs=0.5)


def test_the_largest_loss_of_any_group_stands_beside_the_mean():
    scores = [
        GroupScore(EVERYBODY, 300, 80.0, 75.0),
        GroupScore("age: child", 40, 70.0, 55.5),
        GroupScore("age: young", 260, 82.0, 79.0),
    ]
    assert "Largest loss: age: child, 14.5 points; everybody: 5.0" in words(group_table(scores))
    alone = [GroupScore(s.group, s.units, None, s.after) for s in scores]
    assert "Largest loss" not in words(group_table(alone))


def test_private_data_are_refused():
    with refused("groups-without-noise"):
        evaluate_groups(NANO, "synthetic:ward:test", None, limit=2, console=QUIET)


def test_one_group_is_enough_and_none_is_refused(monkeypatch):
    monkeypatch.setattr(group_scores, "FEWEST", 2)
    monkeypatch.setattr(group_scores, "attributes_of", lambda units, index: {"size": "small"})
    everybody, small = evaluate_groups(NANO, "synthetic:studio:test", None, limit=2, console=QUIET)
    assert (small.group, small.units, small.after) == ("size: small", 2, everybody.after)
    monkeypatch.setattr(group_scores, "attributes_of", lambda units, index: {})
    with refused("groups-missing"):
        evaluate_groups(NANO, "synthetic:studio:test", None, limit=2, console=QUIET)


def test_postures_are_those_of_the_labels(monkeypatch):
    class Lying:
        def __len__(self):
            return 2

        def unit_id(self, index):
            return f"photo-{index}"

        def load(self, index, rng):
            keypoints = np.zeros((16, 2), np.float32)
            keypoints[7] = [(0, -50), (50, -5)][index]
            # a picture that was enlarged twice and half as much for the crop
            inverse = np.array([[[0.5, 0, 3], [0, 0.5, 9]], [[2.0, 0, 3], [0, 2.0, 9]]][index])
            target = {"keypoints": keypoints, "labelled": np.ones(16), "inverse": inverse}
            return [type("V", (), {"target": target})]

    small, large = "trunk below 40 pixels", "trunk of 40 pixels or more"
    assert group_scores.attributes_of(Lying(), 0) == {"posture": "upright", "size": small}
    assert group_scores.attributes_of(Lying(), 1) == {"posture": "not upright", "size": large}


@pytest.mark.slow
def test_real_pictures_have_groups_by_their_labels(lspet, monkeypatch):
    monkeypatch.setattr(group_scores, "FEWEST", 1)
    found = evaluate_groups(NANO, f"lspet:{lspet}:public", None, limit=40, console=QUIET)
    kinds = {group.group.split(":")[0] for group in found}
    assert kinds == {EVERYBODY, "posture", "size"}


def test_private_groups_are_noised_charged_and_recorded(tmp_path):
    model = tmp_path / "model"
    shutil.copytree(NANO, model)
    asked = NoisedQuery(Fraction(8), joints=14, groups=GROUPS)
    before = len(charges())
    found = evaluate_noised(model, "synthetic:ward:test", asked, limit=12, console=QUIET)
    (charge,) = charges()[before:]
    assert charge.state == State.COMMITTED
    # whoever is replaced costs twice as much as whoever is left blank
    assert charge.events[0].pure() == 16
    assert set(found.shares) == {EVERYBODY, *asked.names}
    (file,) = (model / "evaluations").glob("*.json")
    content = json.loads(file.read_text())
    statement = PrivacyStatement.from_json(json.dumps(content["privacy"]))
    assert statement.verify() == 8
    assert statement.release["sensitivity"].startswith("30 in L1 norm")
    for delta in (None, 1e-5):
        one = replace(asked, delta=delta)
        privacy = score_statement(one, statement.neighbours, 12, content["result"]["metric"], seeded=False)
        assert noised_query_of(content, privacy) == one
        # of other groups, or without any
        columns = {name: 0.0 for name in content["result"]["columns"] if "upright" not in name}
        assert noised_query_of({**content, "result": content["result"] | {"columns": columns}}, privacy) is None
        lied = {name: value for name, value in content["result"].items() if name != "units_noised"}
        assert noised_query_of({**content, "result": lied}, privacy) is None
    assert "interval" not in " ".join(statement.caveats)
    # two sizes of one attribute are noised by themselves and do not add up to the public number
    again = evaluate_noised(model, "synthetic:ward:test", asked, limit=12, console=QUIET)
    assert again.units != found.units
    assert len(charges()) == before + 2


def test_private_groups_need_a_cap_and_private_data():
    with refused("groups-without-cap"):
        NoisedQuery(Fraction(1), groups=GROUPS)
    asked = NoisedQuery(Fraction(1), joints=14, groups=GROUPS)
    with refused("noise-unneeded"):
        evaluate_noised(NANO, "synthetic:studio:test", asked, limit=2, console=QUIET)


def test_an_unknown_group_is_none(monkeypatch):
    said = [{"posture": "upright", "size": group_scores.SIZES[1]}, {"posture": "flying"}, {}]
    monkeypatch.setattr(group_scores, "attributes_of", lambda units, index: units[index])
    assert members_of(said, GROUPS).tolist() == [[0, 3], [-1, -1], [-1, -1]]
