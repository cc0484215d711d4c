"""Two private runs of a recipe on one budget."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

import dpose_scene.data as synthetic
from dpose.account import Budget, charges, set_budget
from dpose.cli import main
from dpose.privacy.accounting import epsilon
from dpose.privacy.keys import keys_kept
from dpose.privacy.protected import protect
from dpose.privacy.ranges import upper
from dpose.runs import stages
from dpose.runs.build import described_model, open_units
from dpose.runs.config import RunConfig
from dpose.runs.expect import where_head_is_enough
from dpose.runs.stages import in_steps, run_behind, settled, take_stages
from dpose.runs.train import explain_task, train_task
from dpose.runs.verify import verify_run
from dpose.training.checkpoint import is_whole
from dpose.training.folder import read_statement, run_id_of
from dpose.training.plan import TrainingPlan
from dpose.training.run import Ended, Run
from refusals import refused
from twice import Twice

SMALL = {"train": 12, "val": 4, "test": 4, "public": 8}


@pytest.fixture(autouse=True)
def _small(monkeypatch, tmp_path):
    monkeypatch.setattr(synthetic, "SPLITS", SMALL)
    monkeypatch.chdir(tmp_path)


def quiet() -> Console:
    return Console(quiet=True)


BLAZE = {
    "recipe": "recommended",
    "data": {"private": "synthetic:ward", "public": "synthetic:ward:public", "validation_data": "none"},
    "model": {"init": "blazepose:lite"},
    "plan": {
        **{"epsilon": 2, "delta": 1e-3, "accountant": "rdp", "epochs": 1, "expected_batch_size": 6},
        "subspace": {"rank": 4, "units": 8},
    },
}


def test_a_recipe_that_was_stopped_goes_on_by_the_same_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Run, "take_steps", lambda self: Ended.INTERRUPTED)
    (tmp_path / "recipe.yaml").write_text(json.dumps(BLAZE))
    assert main(["train", "--config", "recipe.yaml", "--out", "best"]) == 130
    shown = " ".join(capsys.readouterr().out.split())
    assert "To go on: the same command again" in shown
    assert "dpose keys best-first --discard" in shown


def test_two_private_runs_share_one_budget(tmp_path, monkeypatch):
    config = RunConfig.from_dict(BLAZE)
    with monkeypatch.context() as stopping:
        stopping.setattr(Run, "take_steps", lambda self: Ended.INTERRUPTED)
        train_task(config, tmp_path / "best", quiet())
    assert not (tmp_path / "best").exists()
    train_task(config, tmp_path / "best", quiet())
    first, last = (read_statement(tmp_path / name) for name in ("best-first", "best"))
    assert [event.steps for event in first.events] == [2]
    assert sorted(event.steps for event in last.events) == [1, 2]
    assert first.events[0] in last.events
    assert epsilon(last.events, 1e-3, accountant="rdp") == last.epsilon
    assert 0.99 * 2 < last.epsilon <= 2
    assert first.epsilon < 2
    for name in ("best-first", "best"):
        verify_run(tmp_path / name)
    methods = [
        json.loads((tmp_path / name / "config.json").read_text())["run"]["plan"]["method"]
        for name in ("best-first", "best")
    ]
    assert methods == ["scaled-sgd", "dp-head"]


def test_a_budget_that_lets_in_the_first_run_alone_lets_in_none(tmp_path, monkeypatch):
    config = RunConfig.from_dict(BLAZE)
    units = open_units(config, described_model(config))
    marks = protect(units, config.plan.relation, console=quiet()).identity.marks
    set_budget(Budget(2.0, 1e-3, "ward", marks))
    with refused("budget-exceeded", where="ward"):
        take_stages(config, tmp_path / "best", quiet(), "")
    assert not charges()
    assert not (tmp_path / "best-first").exists()
    set_budget(Budget(2.6, 1e-3, "ward", marks))
    assert isinstance(take_stages(config, tmp_path / "best", quiet(), ""), RunConfig)
    assert len(charges()) == 1
    assert isinstance(take_stages(config, tmp_path / "best", quiet(), ""), RunConfig)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    with refused("first-run-not-charged", where="best-first"):
        take_stages(config, tmp_path / "best", quiet(), "")


def test_a_first_run_that_was_killed_before_it_forgot_its_key_is_ended(tmp_path, monkeypatch):
    config = RunConfig.from_dict(BLAZE)

    def killed(run):
        raise KeyboardInterrupt

    with monkeypatch.context() as killing:
        killing.setattr("dpose.training.trainer.conclude_run", killed)
        with pytest.raises(KeyboardInterrupt):
            take_stages(config, tmp_path / "best", quiet(), "")
    assert is_whole(tmp_path / "best-first")
    assert keys_kept() == [run_id_of(tmp_path / "best-first")]
    assert isinstance(take_stages(config, tmp_path / "best", quiet(), ""), RunConfig)
    assert not keys_kept()
    verify_run(tmp_path / "best-first")


def test_both_runs_keep_the_budget_where_pictures_have_copies(tmp_path, monkeypatch):
    """Copies of a unit are one, so that a batch is a larger share of the units than of the entries."""
    monkeypatch.setattr(stages, "open_units", lambda *given: Twice(open_units(*given)))
    monkeypatch.setattr(stages, "_check_charged", lambda folder: None)
    taken = []
    monkeypatch.setattr(stages, "_taken", lambda stage, *rest: taken.append((stage, rest[-1])))
    last = take_stages(RunConfig.from_dict(BLAZE), tmp_path / "best", quiet(), "", 3)
    ((first, microbatch_size),) = taken
    assert microbatch_size == 3
    events = [one.plan.bind(SMALL["train"]).event for one in (first, last)]
    assert [event.q for event in events] == [0.5, 1.0]
    assert 0.99 * 2 < epsilon(events, 1e-3, accountant="rdp") <= 2


def test_both_runs_keep_the_budget_where_a_limit_stands_below_the_nominal_number(tmp_path, monkeypatch):
    """Under add-or-remove a unit is in a batch of the limited number, of which the noise has to be."""
    monkeypatch.setattr(stages, "_check_charged", lambda folder: None)
    taken, said = [], io.StringIO()
    monkeypatch.setattr(stages, "_taken", lambda stage, *rest: taken.append(stage))
    plan = {**BLAZE["plan"], "relation": "add-or-remove", "nominal_units": 12, "expected_batch_size": 3}
    config = RunConfig.from_dict({**BLAZE, "data": {**BLAZE["data"], "limit": 6}, "plan": plan})
    last = take_stages(config, tmp_path / "best", Console(file=said, width=500), "")
    own = protect(open_units(config, described_model(config)), config.plan.relation, console=quiet())
    first, behind = (one.plan.bind_to(own) for one in (taken[0], last))
    assert [one.event.q for one in (first, behind)] == [0.5, 1.0]
    assert 0.99 * 2 < epsilon([first.event, behind.event], 1e-3, "add-or-remove", "rdp") <= 2
    assert f"in {first.steps} steps of 3 units, alone epsilon {upper(first.epsilon)}" in said.getvalue()


@pytest.mark.parametrize(
    "change",
    [
        {"plan": {**BLAZE["plan"], "epsilon": None, "noise_multiplier": 1.0}},
        {"plan": {**BLAZE["plan"], "method": "dp-sgd"}},
        {"recipe": None},
        {"model": {"init": "nano"}},
        {"data": {"private": "humanart:ROOT"}},
    ],
)
def test_one_private_run_where_there_is_nothing_to_share(change, tmp_path):
    assert run_behind(RunConfig.from_dict(BLAZE), tmp_path / "best") is not None
    assert run_behind(RunConfig.from_dict({**BLAZE, **change}), tmp_path / "best") is None


def test_public_data_are_the_datas_own_or_dp_sgd_takes_the_steps(tmp_path):
    config = RunConfig.from_dict({**BLAZE, "data": {"private": "synthetic:ward"}})
    assert settled(config).data.public == "synthetic:ward:public"
    assert settled(config).plan == config.plan
    without = settled(RunConfig.from_dict({**BLAZE, "data": {"private": "humanart:ROOT"}}))
    assert (without.plan.method, without.data.public) == ("dp-sgd", None)
    assert run_behind(without, tmp_path / "best") is None
    named = {"private": "humanart:ROOT"}, {**BLAZE["plan"], "method": "pdp-sgd"}
    assert settled(RunConfig.from_dict({**BLAZE, "data": named[0], "plan": named[1]})).plan.method == "pdp-sgd"
    for own in (RunConfig.from_dict(BLAZE), RunConfig.from_dict({**BLAZE, "recipe": None, "model": {"init": "nano"}})):
        assert settled(own) == own


@pytest.mark.parametrize("public", [None, "synthetic:ward:public"])
@pytest.mark.parametrize(
    ("epsilon", "units", "steps"), [(8, 8000, 125), (1, 8000, 67), (0.5, 8000, 36), (8, 1000, 52), (1, 1000, 8)]
)
def test_steps_follow_from_units_and_noise(public, epsilon, units, steps):
    own = {**BLAZE, "data": {"private": "synthetic:ward", "public": public, "validation_data": "none"}}
    plan = in_steps(RunConfig.from_dict({**own, "plan": {"epsilon": epsilon, "delta": 1e-5}}), units).plan
    assert (plan.bind(units).steps, plan.epochs) == (steps, 4)


@pytest.mark.parametrize(
    "change",
    [
        {"plan": {"epsilon": 1, "delta": 1e-5, "expected_batch_size": 900}},
        {"plan": {"epsilon": 1, "delta": 1e-5, "steps": 9}},
        {"plan": {"noise_multiplier": 1, "delta": 1e-5}},
        {"model": {"init": "nano"}},
    ],
)
def test_steps_that_were_given_are_kept(change):
    config = RunConfig.from_dict({**BLAZE, "plan": {"epsilon": 1, "delta": 1e-5}, **change})
    assert in_steps(config, 2000) == config


def test_steps_follow_where_dp_sgd_takes_them(tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "public_split", lambda config: None)
    config = {**BLAZE, "data": {"private": "synthetic:ward", "validation_data": "none"}}
    left = take_stages(
        RunConfig.from_dict({**config, "plan": {"epsilon": 1, "delta": 1e-3}}), tmp_path / "best", quiet(), ""
    )
    assert isinstance(left, RunConfig)
    assert (left.plan.method, left.plan.expected_batch_size) == ("dp-sgd", 6)


def test_two_private_runs_are_told_beforehand():
    console = Console(width=200, record=True, quiet=False, file=io.StringIO())
    console.print(explain_task(RunConfig.from_dict({**BLAZE, "plan": {"epsilon": 1, "delta": 1e-5}})))
    text = " ".join(console.export_text().split())
    assert "Two private runs on one budget of epsilon 1: scaled-sgd in 8 steps of 6 units, alone epsilon 0.9" in text
    assert "then dp-head, alone 0.2" in text
    assert "dp-head alone does no worse: --method dp-head, without --recipe." in text
    assert "No public data" not in text


def test_dp_head_alone_is_named_where_units_are_too_few_for_the_rest():
    """1,000 were measured to be enough at epsilon 1, and 500 not."""
    plan = TrainingPlan(method="scaled-sgd", epsilon=1, delta=1e-5)
    assert not where_head_is_enough(plan, 1000)
    assert "dp-head alone does no worse" in where_head_is_enough(plan, 500)
    assert not where_head_is_enough(replace(plan, epsilon=8), 500)


def test_a_recipe_without_public_data_says_so(monkeypatch):
    monkeypatch.setattr(stages, "public_split", lambda config: None)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(explain_task(RunConfig.from_dict({**BLAZE, "data": {"private": "synthetic:ward"}})))
    assert "No public data: the recipe is DP-SGD alone; --public names some." in console.export_text()


def test_a_recipe_of_many_steps_has_no_method_of_one():
    with refused("recipe-of-many-steps"):
        RunConfig.from_dict({**BLAZE, "plan": {"epsilon": 2, "delta": 1e-3, "method": "dp-head"}})
