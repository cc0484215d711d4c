"""Copies of runs: whoever goes on with one, in whichever folder, all that was released is what the account counts.

`released` holds every noised sum of all attempts and copies, by the stream of its noise: two sums under one stream give
their difference away, and more streams than steps of the plan are more than was charged.
"""

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dpose.account import charges, composed, unbounded
from dpose.account.budgets import CountedSteps
from dpose.errors import DposeError
from dpose.privacy.entries import read_ledger
from dpose.privacy.events import SampledGaussian
from dpose.privacy.keys import kept_key
from dpose.privacy.ledger import Ledger
from dpose.privacy.noise import Key
from dpose.runs.verify import verify_run
from dpose.training import run as loops
from dpose.training import step as steps
from dpose.training import trainer
from dpose.training.arithmetic import arithmetic_in_force
from dpose.training.distributed import ALONE
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from dpose.training.reproducibility import KEPT
from dpose.training.run import Run
from quick import quick  # noqa: F401
from refusals import refused
from resumed import COMMIT, FAST, GRADIENT, STEPS, UNITS, killed, plan_of, run
from resumed import quiet as quiet
from resumed import released as released
from tiers import rest_slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=["sqlite", "postgresql"])
def team(request, tmp_path, monkeypatch):
    """One account for all state folders."""
    url = f"sqlite:///{tmp_path}/team.sqlite" if request.param == "sqlite" else request.getfixturevalue("postgres")
    monkeypatch.setenv("DPOSE_ACCOUNT", url)
    monkeypatch.setenv("DPOSE_ACCOUNT_KEY", "ab" * 32)
    return url


def keys_of(folder):
    return {entry.key_id for entry in read_ledger(folder / "ledger.jsonl")}


def copied(tmp_path, *what):
    """`what` of one/ in two/."""
    for name in what:
        shutil.copytree(tmp_path / "one" / name, tmp_path / "two" / name)
    return tmp_path / "one" / "run", tmp_path / "two" / "run"


def check_together(released, folders, where=None):
    """What one charge says is what all copies released."""
    (entry,) = charges(where)
    assert len(released) <= entry.events[0].steps == STEPS
    assert set(entry.folders) == {str(folder) for folder in folders}
    for folder in folders:
        verify_run(folder, folder.parent / "state")


@pytest.mark.parametrize("kept", rest_slow([False, True], 1), ids=["run", "run and state"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_copies_of_a_killed_run_take_no_more_steps_than_one(
    dots, tmp_path, quiet, monkeypatch, released, team, kept, order
):
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "one" / "run", quiet)
    folders = copied(tmp_path, "run", *(["state"] if kept else []))
    for place in order:
        run(dots, folders[place], quiet, resume=True)
    assert len(keys_of(folders[0]) | keys_of(folders[1])) == 2
    assert len(keys_of(folders[1])) == 2, "what was at work elsewhere when it was copied may be so still"
    check_together(released, folders)


@pytest.mark.parametrize("order", rest_slow([pytest.param((0, 1)), pytest.param((1, 0))], 1))
def test_of_copies_of_a_run_at_rest_the_first_has_its_key(dots, tmp_path, quiet, monkeypatch, released, team, order):
    killed(monkeypatch, COMMIT, 4, dots, tmp_path / "one" / "run", quiet, after=True)
    folders = copied(tmp_path, "run", "state")
    for place in order:
        run(dots, folders[place], quiet, resume=True)
    assert [len(keys_of(folders[place])) for place in order] == [1, 2]
    check_together(released, folders)


def test_a_copy_of_a_run_at_work_takes_a_key_of_its_own(dots, tmp_path, quiet, monkeypatch, released, team):
    real, calls = steps.private_gradient, []

    def copying(*given, **named):
        calls.append(1)
        if len(calls) == 8:
            folders = copied(tmp_path, "run", "state")
            run(dots, folders[1], quiet, resume=True)
        return real(*given, **named)

    monkeypatch.setattr(GRADIENT[0], "private_gradient", copying)
    done = run(dots, tmp_path / "one" / "run", quiet)
    folders = tmp_path / "one" / "run", tmp_path / "two" / "run"
    assert keys_of(folders[1]) > keys_of(folders[0])
    assert done.steps < STEPS, "the copy has taken the rest"
    assert any("it ended after" in caveat for caveat in done.statement.caveats)
    check_together(released, folders)


def test_a_copy_with_the_same_state_folder_waits_for_the_run_at_work(dots, tmp_path, quiet, monkeypatch):
    real, said = steps.private_gradient, []

    def copying(*given, **named):
        if not said:
            said.append("")
            shutil.copytree(tmp_path / "run", tmp_path / "copy")
            with refused("run-busy") as caught:
                run(dots, tmp_path / "copy", quiet, resume=True)
            said.append(str(caught.value))
        return real(*given, **named)

    monkeypatch.setattr(GRADIENT[0], "private_gradient", copying)
    assert run(dots, tmp_path / "run", quiet).steps == STEPS
    assert "\n" not in said[1]


def test_a_run_whose_key_another_copy_took_goes_on_under_a_new_one(dots, tmp_path, quiet, monkeypatch, released, team):
    """A process that was thought dead: at its next reservation the account tells it."""
    killed(monkeypatch, COMMIT, 4, dots, tmp_path / "one" / "run", quiet, after=True)
    folders = copied(tmp_path, "run", "state")
    real, calls = steps.private_gradient, []

    def copying(*given, **named):
        calls.append(1)
        if len(calls) == 9:  # eight steps again, and the first new one: all in the log of the copy before it
            monkeypatch.setattr(GRADIENT[0], "private_gradient", real)
            killed(monkeypatch, GRADIENT, 11, dots, folders[1], quiet, resume=True)
            monkeypatch.setattr(GRADIENT[0], "private_gradient", copying)
        return real(*given, **named)

    monkeypatch.setattr(GRADIENT[0], "private_gradient", copying)
    run(dots, folders[0], quiet, resume=True)
    assert len(keys_of(folders[0]) | keys_of(folders[1])) == 2
    run(dots, folders[1], quiet, resume=True)
    check_together(released, folders)


def test_without_the_account_no_step_is_taken(dots, tmp_path, quiet, monkeypatch):
    ledgers = sys.modules[CountedSteps.__module__]  # not by its path: the package has a function of the module's name
    real, taken = ledgers.opened, []
    calls, gradient = [], steps.private_gradient

    def out_of_reach(where):
        calls.append(1)
        if len(calls) > 6:
            raise DposeError("account-unusable", "the account cannot be used", "elsewhere")
        return real(where)

    def noting(*given, **named):
        taken.append(len(calls))
        return gradient(*given, **named)

    monkeypatch.setattr(ledgers, "opened", out_of_reach)
    monkeypatch.setattr(GRADIENT[0], "private_gradient", noting)
    with refused("account-unusable"):
        run(dots, tmp_path / "run", quiet)
    # tried, taken up, then twice reserved and committed: two blocks of two steps
    assert taken == [3, 3, 5, 5]
    with refused("account-unusable"):
        run(dots, tmp_path / "run", quiet, resume=True)
    assert len(taken) == 4


def test_another_account_does_not_know_what_a_key_has_drawn(dots, tmp_path, quiet, monkeypatch, released):
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet)
    monkeypatch.setenv("DPOSE_ACCOUNT", f"sqlite:///{tmp_path}/another.sqlite")
    done = run(dots, tmp_path / "run", quiet, resume=True)
    assert len(keys_of(tmp_path / "run")) == 2
    assert done.steps == STEPS - 14
    check_together(released, [tmp_path / "run"], tmp_path / "state")


def test_settings_of_another_run_begin_a_run_of_their_own(dots, tmp_path, quiet, released):
    run(dots, tmp_path / "A", quiet)
    (tmp_path / "B").mkdir()
    shutil.copy(tmp_path / "A" / "config.json", tmp_path / "B")
    run(dots, tmp_path / "B", quiet, resume=True)
    first, second = charges(tmp_path / "state")
    assert (first.folder, second.folder) == (str(tmp_path / "A"), str(tmp_path / "B"))
    assert len({first.id, second.id}) == len({first.ledger, second.ledger}) == 2
    assert len(released) == 2 * STEPS == sum(entry.events[0].steps for entry in (first, second))
    assert composed([first, second], 1e-4) > composed([first], 1e-4)
    assert json.loads((tmp_path / "B" / "config.json").read_text())["run_id"] == second.id
    for name in ("A", "B"):
        verify_run(tmp_path / name, tmp_path / "state")


def test_a_ledger_of_another_run_in_its_place_is_refused(dots, tmp_path, quiet, monkeypatch):
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "one", quiet)
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "two", quiet)
    shutil.copy(tmp_path / "two" / "ledger.jsonl", tmp_path / "one")
    with refused("ledger-of-other-run"):
        run(dots, tmp_path / "one", quiet, resume=True)


def test_a_checkpoint_that_names_no_ledger_is_refused(dots, tmp_path, quiet, monkeypatch):
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet)
    state = tmp_path / "run" / "checkpoints" / "step-0" / "state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "ledger_head": ""}))
    with refused("ledger-of-other-run"):
        run(dots, tmp_path / "run", quiet, resume=True)


def without(*names):
    def change(folder, monkeypatch):
        for name in ("ledger.jsonl", *names):
            shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()

    return change


ALL = ("checkpoints", "log.jsonl")


def with_weights(folder, monkeypatch):
    without(*ALL)(folder, monkeypatch)
    (folder / "model.safetensors").write_bytes(b"")


def with_kept(name):
    def change(folder, monkeypatch):
        without(*ALL)(folder, monkeypatch)
        shutil.rmtree(folder.parent / "state" / {"heads": "keys", "keys": "heads"}[name])
        monkeypatch.setenv("DPOSE_ACCOUNT", f"sqlite:///{folder.parent}/another.sqlite")

    return change


def with_the_account(folder, monkeypatch):
    without(*ALL)(folder, monkeypatch)
    shutil.rmtree(folder.parent / "state" / "keys")
    shutil.rmtree(folder.parent / "state" / "heads")


def with_the_account_and_no_name(folder, monkeypatch):
    with_the_account(folder, monkeypatch)
    (folder / "config.json").unlink()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (without(), "checkpoints"),
        (without("log.jsonl"), "checkpoints"),
        (without("checkpoints"), "log.jsonl"),
        (with_weights, "model.safetensors"),
        (with_kept("heads"), "its head"),
        (with_kept("keys"), "its key"),
        (with_the_account, "the account"),
        (with_the_account_and_no_name, "the account"),
    ],
    ids=["all else", "checkpoints", "log", "weights", "head", "key", "account", "account, no name"],
)
def test_a_missing_ledger_is_refused(dots, tmp_path, quiet, monkeypatch, change, told):
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet)
    change(tmp_path / "run", monkeypatch)
    with refused("ledger-missing") as caught:
        run(dots, tmp_path / "run", quiet, resume=True)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


def test_a_run_that_protects_nobody_goes_on_without_a_ledger(dots, tmp_path, quiet, monkeypatch):
    """Its ledger comes with its weights, to hold the seal."""
    plan = TrainingPlan(method="non-private", steps=STEPS, expected_batch_size=20)
    monkeypatch.setattr("resumed.plan_of", lambda method: plan)
    killed(monkeypatch, (Run, "_step"), 14, dots, tmp_path / "run", quiet)
    assert not (tmp_path / "run" / "ledger.jsonl").exists()
    assert run(dots, tmp_path / "run", quiet, resume=True).steps == STEPS
    (entry,) = charges(tmp_path / "state")
    (tmp_path / "B").mkdir()
    shutil.copy(tmp_path / "run" / "config.json", tmp_path / "B")
    run(dots, tmp_path / "B", quiet, resume=True)
    assert [e.folder for e in charges(tmp_path / "state")] == [entry.folder, str(tmp_path / "B")]
    (tmp_path / "run" / "ledger.jsonl").unlink()
    with refused("ledger-missing"):
        run(dots, tmp_path / "run", quiet, resume=True)


def test_a_seeded_run_goes_on_and_is_charged_as_bounded_by_nothing(dots, tmp_path, quiet, monkeypatch):
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet, seed=4)
    assert run(dots, tmp_path / "run", quiet, seed=4, resume=True).steps == STEPS
    (entry,) = charges(tmp_path / "state")
    assert entry.events == ()
    assert unbounded(entry, "video")
    (tmp_path / "run" / "ledger.jsonl").unlink()
    with refused("ledger-missing"):
        run(dots, tmp_path / "run", quiet, seed=4, resume=True)


def test_a_ledger_that_begins_anew_leaves_the_head_that_is_kept(tmp_path):
    with Ledger.create(tmp_path / "one.jsonl", "ab" * 32, "key", tmp_path) as ledger:
        pass
    (head,) = (tmp_path / "heads").glob("*.json")
    before = head.read_bytes()
    with refused("ledger-head-differs"):
        Ledger.create(tmp_path / "two.jsonl", "ab" * 32, "key", tmp_path, ledger.run_id)
    assert head.read_bytes() == before
    assert not (tmp_path / "two.jsonl").exists()
    with Ledger.create(tmp_path / "two.jsonl", "ab" * 32, "key", tmp_path / "other", ledger.run_id) as other:
        assert other.identity != ledger.identity, "two ledgers of one name, plan and key"


def test_steps_past_the_plan_are_charged_at_once(dots, tmp_path, quiet, monkeypatch):
    """A line that was torn stands for the largest reservation that it could have been."""
    killed(monkeypatch, COMMIT, 11, dots, tmp_path / "run", quiet)
    with (tmp_path / "run" / "ledger.jsonl").open("ab") as file:
        file.write(b'{"seq":')
    killed(monkeypatch, (Run, "take_steps"), 1, dots, tmp_path / "run", quiet, resume=True)
    (entry,) = charges(tmp_path / "state")
    assert entry.events[0].steps == STEPS + 2
    done = run(dots, tmp_path / "run", quiet, resume=True)
    (entry,) = charges(tmp_path / "state")
    assert entry.events == (replace(plan_of().bind(UNITS).event, steps=STEPS + 2),) == done.statement.events


CONSTANT = replace(FAST, schedule="constant")


def lost_tail(dots, monkeypatch, folder, quiet, **options):
    """A run that was cut off while steps 12 and 13 were in no line that the ledger vouches for."""
    monkeypatch.setattr(loops, "CHECKPOINT_UNITS", 0)
    killed(monkeypatch, COMMIT, 7, dots, folder, quiet, **options)
    log = folder / "log.jsonl"
    lines = [line for line in log.read_text().splitlines(keepends=True) if json.loads(line).get("step", 0) <= 12]
    log.write_text("".join(lines))


def test_another_schedule_draws_no_noise_again(dots, tmp_path, quiet, monkeypatch, released):
    lost_tail(dots, monkeypatch, tmp_path / "run", quiet, optimizer=CONSTANT)
    run(dots, tmp_path / "run", quiet, optimizer=FAST, resume=True)
    assert len(keys_of(tmp_path / "run")) == 2
    quiet.file.flush()
    assert "changed: the optimizer and its schedule" in Path(quiet.file.name).read_text()


def test_weights_that_come_out_otherwise_have_draws_of_their_own(dots, tmp_path, quiet, monkeypatch, released):
    """All that is compared beforehand is the same, and the log has nothing to compare the step with."""
    lost_tail(dots, monkeypatch, tmp_path / "run", quiet)
    real = torch.optim.Adam.step

    def other(self, *given, **named):
        real(self, *given, **named)
        with torch.no_grad():
            self.param_groups[0]["params"][0].mul_(1 + 1e-6)

    monkeypatch.setattr(torch.optim.Adam, "step", other)
    run(dots, tmp_path / "run", quiet, resume=True)


def other_rate(dots, options, monkeypatch):
    options["optimizer"] = replace(FAST, lr=0.2)


def other_settings(dots, options, monkeypatch):
    options["settings"] = {"augment": "public"}


def other_task(dots, options, monkeypatch):
    task = type(dots.task)()
    task.smoothing = 0.1
    monkeypatch.setattr(dots, "task", task)


def other_first_weights(dots, options, monkeypatch):
    real = type(dots.task).build_model

    def frozen(self, config=None):
        model = real(self, config)
        model.register_buffer("scale", torch.ones(1))
        return model

    monkeypatch.setattr(type(dots.task), "build_model", frozen)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (other_rate, "the optimizer and its schedule"),
        (other_settings, "the run's settings"),
        (other_task, "what task and data are set to"),
        (other_first_weights, "the first weights"),
    ],
)
def test_whatever_a_step_depends_on_takes_a_new_key_when_it_changes(
    dots, tmp_path, quiet, monkeypatch, released, change, name
):
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet)
    options = {}
    change(dots, options, monkeypatch)
    done = run(dots, tmp_path / "run", quiet, resume=True, **options)
    assert len(keys_of(tmp_path / "run")) == 2
    assert done.steps == STEPS - 14
    quiet.file.flush()
    assert f"(changed: {name})" in Path(quiet.file.name).read_text()


def test_the_settings_of_a_task_are_its_plain_attributes_and_not_its_data(dots):
    def told(*parts):
        config = {"task": "dots", "model": {}, "run": {"optimizer": {}}}
        return trainer.settings_in_force(config, parts)["what task and data are set to"]

    part = SimpleNamespace(width=3, names=["a"], mild=OptimizerConfig(), pictures=list(range(100)), _cache=1)
    for name, value in (("width", 4), ("names", ["b"]), ("mild", OptimizerConfig(lr=1.0))):
        assert told(part) != told(SimpleNamespace(**{**vars(part), name: value})), name
    for name, value in (("pictures", list(range(200))), ("_cache", 2)):
        assert told(part) == told(SimpleNamespace(**{**vars(part), name: value})), name


def test_draws_depend_on_the_surroundings(dots, tmp_path, quiet, monkeypatch, released):
    key = Key.fresh()
    monkeypatch.setattr(Key, "fresh", classmethod(lambda cls: key))
    run(dots, tmp_path / "one", quiet)
    real = trainer.environment
    monkeypatch.setattr(trainer, "environment", lambda *given: {**real(*given), "the moon": "full"})
    run(dots, tmp_path / "two", quiet)
    assert len(released) == 2 * STEPS


def test_draws_depend_on_all_that_a_sum_is_computed_at():
    drawn = object.__new__(Run)
    basis = SimpleNamespace(basis={"w": torch.eye(2)})
    drawn.chain, drawn.ranks, drawn._basis = bytes(32), ALONE, (None, b"")
    drawn.bound = SimpleNamespace(event=SampledGaussian(q=0.1, sigma=1.0, steps=1, sensitivity=1.0))
    seen = set()
    for params, state, subspace, chain in (
        (torch.zeros(2), {}, None, bytes(32)),
        (torch.ones(2), {}, None, bytes(32)),
        (torch.zeros(2), {"w": torch.zeros(2)}, None, bytes(32)),
        (torch.zeros(2), {}, basis, bytes(32)),
        (torch.zeros(2), {}, None, b"1" * 32),
    ):
        drawn.params, drawn.chain = {"w": params}, chain
        drawn.sources = SimpleNamespace(state=state, projection=SimpleNamespace(subspace=subspace))
        seen.add(drawn._drawn_at())
    assert len(seen) == 5
    drawn.chain = None
    assert drawn._drawn_at() == b"", "a seeded run has the same draws on every machine"


def test_the_proof_lists_what_a_reused_key_depends_on(dots, tmp_path, quiet, monkeypatch):
    killed(monkeypatch, GRADIENT, 1, dots, tmp_path / "run", quiet)
    name = read_ledger(tmp_path / "run" / "ledger.jsonl")[0].run_id
    known = {*kept_key(name, tmp_path / "state").surroundings, KEPT, *arithmetic_in_force(torch.device("cuda"))}
    text = (ROOT / "docs" / "proofs" / "resume.md").read_text()
    (section,) = re.findall(r"\n## What a key is bound to\n(.*?)\n## ", text, re.S)
    assert set(re.findall(r"^\| `([^`]+)` \|", section, re.M)) == known
