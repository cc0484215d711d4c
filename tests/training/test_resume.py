"""Runs that are killed, and go on: they end where an unbroken run does, or they count what they did twice.

The property behind all of it is checked by `streams`: over all attempts at a run, one stream of noise is never added to
two different sums. Twice the same noise on two sums gives away their difference.
"""

import errno
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from dpose.errors import DposeError
from dpose.files import locked_folder
from dpose.privacy.accounting import epsilon
from dpose.privacy.keys import kept_key, keys_kept
from dpose.privacy.ledger import read_ledger, spent
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.runs.keys import discard_key, list_keys
from dpose.runs.verify import verify_run
from dpose.training import arithmetic, reproducibility, resume, trainer
from dpose.training import run as loops
from dpose.training import step as steps
from dpose.training.first_weights import FirstWeights
from dpose.training.folder import RunLog
from dpose.training.reproducibility import digest_of
from quick import quick  # noqa: F401
from refusals import refused
from resumed import COMMIT, GRADIENT, LOG, PLANS, RESERVE, SAVE, SETTINGS, STEPS, UNITS, killed, plan_of, run
from resumed import quiet as quiet
from resumed import released as released
from tiers import rest_slow

KEY, WHOLE = Key.fresh(), {}


@pytest.fixture
def same_key(monkeypatch):
    """Every run of the test begins with the same key, so that runs can be compared; a second key is a new one."""
    fresh, forsake = Key.fresh, resume.forsake_key
    monkeypatch.setattr(Key, "fresh", classmethod(lambda cls: KEY))

    def forsaking(run, why):
        with monkeypatch.context() as patch:
            patch.setattr(Key, "fresh", fresh)
            forsake(run, why)

    for module in (resume, trainer):
        monkeypatch.setattr(module, "forsake_key", forsaking)


@pytest.fixture
def unbroken(dots, tmp_path, quiet, same_key):
    """A run of a method under that key that nothing disturbs; made once."""

    def of(method="dp-sgd"):
        if method not in WHOLE:
            WHOLE[method] = run(dots, tmp_path / "unbroken" / method, quiet, method)
        return WHOLE[method]

    return of


@pytest.fixture
def streams(monkeypatch, unbroken, request):
    """What was added to which stream of noise, over all attempts; fails where a stream met two sums."""
    for method in PLANS:
        unbroken(method)  # its streams are those of the run that is killed, with the same sums
    return request.getfixturevalue("released")


@pytest.mark.parametrize("often", rest_slow([True, False]), ids=["checkpoints", "only the first checkpoint"])
@pytest.mark.parametrize(
    ("place", "at", "after"),
    [
        (GRADIENT, 1, False),
        (GRADIENT, 8, True),
        (GRADIENT, 22, True),
        pytest.param(RESERVE, 1, False, marks=pytest.mark.slow),
        (RESERVE, 1, True),
        (RESERVE, 5, True),
        pytest.param(COMMIT, 1, False, marks=pytest.mark.slow),
        (COMMIT, 4, True),
        pytest.param(LOG, 1, True, marks=pytest.mark.slow),
        (LOG, 12, False),
        pytest.param(SAVE, 1, True, marks=pytest.mark.slow),
        (SAVE, 2, False),
        (SAVE, 2, True),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else str(value),
)
def test_with_its_key_a_killed_run_ends_where_an_unbroken_one_does(
    dots, tmp_path, quiet, monkeypatch, unbroken, streams, place, at, after, often
):
    monkeypatch.setattr(loops, "CHECKPOINT_UNITS", 0 if often else 10**9)
    whole = unbroken()
    killed(monkeypatch, place, at, dots, tmp_path / "run", quiet, after=after)
    done = run(dots, tmp_path / "run", quiet, resume=True)
    assert torch.equal(done.model.classify.weight, whole.model.classify.weight)
    assert done.steps == STEPS
    found = verify_run(tmp_path / "run", tmp_path / "state")
    assert found.spent == pytest.approx(whole.statement.epsilon, rel=1e-9)
    assert done.statement.caveats == whole.statement.caveats
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").open()]
    assert [line["step"] for line in lines if line["type"] == "step"] == list(range(1, STEPS + 1))
    assert not list((tmp_path / "state" / "keys").iterdir()), "a finished run's key is gone"


@pytest.mark.bits
def test_in_bfloat16_a_killed_run_goes_on_to_the_last_bit(dots, tmp_path, quiet, monkeypatch, same_key):
    monkeypatch.setattr(loops, "CHECKPOINT_UNITS", 0)

    class Short(type(dots.task)):
        precision = "bf16"

        def loss(self, *arguments):
            with torch.autocast("cpu", torch.bfloat16):
                return super().loss(*arguments).float()

    float32 = run(dots, tmp_path / "float32", quiet)
    monkeypatch.setattr(dots, "task", Short())  # for this test: the dots are every test's
    whole = run(dots, tmp_path / "whole", quiet)
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet)
    done = run(dots, tmp_path / "run", quiet, resume=True)
    assert torch.equal(done.model.classify.weight, whole.model.classify.weight)
    assert not torch.equal(done.model.classify.weight, float32.model.classify.weight)
    found = verify_run(tmp_path / "run", tmp_path / "state")
    assert found.spent == pytest.approx(whole.statement.epsilon, rel=1e-9)


@pytest.mark.bits
@pytest.mark.parametrize("method", PLANS)
def test_every_method_goes_on_to_the_last_bit(dots, tmp_path, quiet, monkeypatch, unbroken, streams, method):
    monkeypatch.setattr(loops, "CHECKPOINT_UNITS", 0)
    whole = unbroken(method)
    # step 13: inside a block, and inside the life of the subspace fitted at step 10
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet, method)
    done = run(dots, tmp_path / "run", quiet, method, resume=True)
    assert torch.equal(done.model.classify.weight, whole.model.classify.weight)


def test_a_run_killed_many_times_goes_on(dots, tmp_path, quiet, monkeypatch, unbroken, streams):
    monkeypatch.setattr(loops, "CHECKPOINT_UNITS", 0)
    whole = unbroken()
    killed(monkeypatch, GRADIENT, 5, dots, tmp_path / "run", quiet)
    for at in (1, 3, 8, 2, 6):
        killed(monkeypatch, GRADIENT, at, dots, tmp_path / "run", quiet, resume=True)
    done = run(dots, tmp_path / "run", quiet, resume=True)
    assert torch.equal(done.model.classify.weight, whole.model.classify.weight)
    assert verify_run(tmp_path / "run", tmp_path / "state").spent == pytest.approx(whole.statement.epsilon)


def lost_key(folder):
    shutil.rmtree(folder.parent / "state" / "keys")


def other_threads(folder):
    torch.set_num_threads(torch.get_num_threads() + 1)


@pytest.mark.parametrize("change", [lost_key, other_threads])
def test_without_its_key_a_run_counts_steps_twice_and_keeps_its_epsilon(
    dots, tmp_path, quiet, monkeypatch, streams, change
):
    threads = torch.get_num_threads()
    monkeypatch.setattr(loops, "CHECKPOINT_UNITS", 10**9)  # steps 0 to 12 must be taken again
    try:
        killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet)
        before = read_ledger(tmp_path / "run" / "ledger.jsonl")
        change(tmp_path / "run")
        done = run(dots, tmp_path / "run", quiet, resume=True)
    finally:
        torch.set_num_threads(threads)
    entries = read_ledger(tmp_path / "run" / "ledger.jsonl")
    assert entries[-1].key_id != before[-1].key_id
    assert sum(event.steps for event in spent(entries)) == STEPS
    assert sum(event.steps for event in spent(before)) == 14
    assert done.steps == STEPS - 14
    assert not done.interrupted
    assert done.statement.epsilon == plan_of().bind(UNITS).epsilon
    assert any("14 steps count that were lost or taken twice" in c for c in done.statement.caveats)
    # a score while training names what was spent by then
    bound, nothing = plan_of().bind(UNITS), SimpleNamespace(known=SimpleNamespace(events=()))
    again = SimpleNamespace(bound=bound, steps=4, ledger=SimpleNamespace(total=18), charges=nothing)
    by_then = epsilon([replace(bound.event, steps=18)], 1e-4, accountant="rdp")
    assert loops.Run._spent(again, 1.0) == pytest.approx(by_then)
    verify_run(tmp_path / "run", tmp_path / "state")
    quiet.file.flush()
    assert "taken under a new key" in Path(quiet.file.name).read_text()


def test_the_chain_that_checkpoints_hold_is_under_the_key(dots, tmp_path, quiet, monkeypatch):
    """Surroundings are of private data, too: a hash of them that anybody can compute would tell what they are."""
    seen = []

    def taken(self):
        seen.append((self.chain, digest_of(self.params) + json.dumps(self.around, sort_keys=True).encode()))
        return loops.Ended.INTERRUPTED

    monkeypatch.setattr(loops.Run, "take_steps", taken)
    run(dots, tmp_path / "run", quiet)
    ((chain, start),) = seen
    (state,) = (tmp_path / "run" / "checkpoints").glob("step-0/state.json")
    assert json.loads(state.read_text())["chain"] == chain.hex()
    kept = kept_key(*keys_kept(tmp_path / "state"), tmp_path / "state").key
    under = [AesNoise(key).stream(Purpose.CHAIN, 0, start).bytes(32) for key in (kept, Key.fresh())]
    assert [one == chain for one in under] == [True, False]
    assert hashlib.sha256(start).digest() != chain


def test_where_bits_do_not_repeat_steps_count_twice_and_it_is_said_before(dots, tmp_path, quiet, monkeypatch, streams):
    """MKL off its reproducible mode, as on an AMD processor: products differ by where in memory they begin."""
    monkeypatch.setattr(loops, "CHECKPOINT_UNITS", 10**9)
    monkeypatch.setattr(reproducibility, "products_repeat", lambda: False)
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet)
    before = read_ledger(tmp_path / "run" / "ledger.jsonl")
    quiet.file.flush()
    assert reproducibility.NO_REPEAT in Path(quiet.file.name).read_text()
    done = run(dots, tmp_path / "run", quiet, resume=True)
    assert read_ledger(tmp_path / "run" / "ledger.jsonl")[-1].key_id != before[-1].key_id
    assert done.steps == STEPS - 14
    quiet.file.flush()
    assert "this machine does not give the same bits twice" in Path(quiet.file.name).read_text()


def other_environment(monkeypatch):
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")


def other_branch(monkeypatch):
    monkeypatch.setattr(arithmetic, "mkl_branch", lambda: 3)


def one_that_is_gone(monkeypatch):
    real = trainer.environment
    monkeypatch.setattr(
        trainer, "environment", lambda *given: {k: v for k, v in real(*given).items() if k != "the processor"}
    )


@pytest.mark.parametrize("change", [other_environment, other_branch, one_that_is_gone])
def test_under_another_arithmetic_steps_count_twice(dots, tmp_path, quiet, monkeypatch, streams, change):
    monkeypatch.setattr(loops, "CHECKPOINT_UNITS", 10**9)
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet)
    change(monkeypatch)
    assert run(dots, tmp_path / "run", quiet, resume=True).steps == STEPS - 14


def rounding(monkeypatch, by=1e-6):
    """Gradients that come out a little otherwise, as on another machine."""
    real = steps.clipped_sum

    def other(*given, **named):
        return {name: value * (1 + by) for name, value in real(*given, **named).items()}

    monkeypatch.setattr(steps, "clipped_sum", other)


def test_a_step_that_comes_out_otherwise_is_never_used(dots, tmp_path, quiet, monkeypatch, streams):
    """The surroundings look the same and are not: the log's digests tell, before anything is released."""
    monkeypatch.setattr(loops, "CHECKPOINT_UNITS", 10**9)
    killed(monkeypatch, LOG, 12, dots, tmp_path / "run", quiet)
    shown = (tmp_path / "run" / "log.jsonl").read_text()
    replayed = []
    real = loops.Run._step

    def step(self, number):
        try:
            real(self, number)
        except loops.ReplayError:
            replayed.append(number)
            # the one stream that met two sums was not released twice; it is taken out of the account
            streams.clear()
            raise

    monkeypatch.setattr(loops.Run, "_step", step)
    rounding(monkeypatch)
    done = run(dots, tmp_path / "run", quiet, resume=True)
    assert replayed == [0]
    text = (tmp_path / "run" / "log.jsonl").read_text()
    assert text.startswith(shown)
    resumed = [json.loads(line) for line in text[len(shown) :].splitlines()]
    assert [line["replay"] for line in resumed if line["type"] == "resume"] == [True, False]
    assert done.steps < STEPS
    verify_run(tmp_path / "run", tmp_path / "state")


@pytest.mark.parametrize(
    ("counted", "taken", "ended", "told"),
    [
        (9, 9, loops.Ended.FINISHED, ""),
        (10, 9, loops.Ended.FINISHED, "1 steps count that were lost or taken twice"),
        (9, 6, loops.Ended.BUDGET, "3 steps count that were lost or taken twice, and it ended after 6 of 9 steps"),
    ],
)
def test_the_statement_says_of_steps_that_count_twice_and_of_nothing_else(counted, taken, ended, told):
    bound = SimpleNamespace(event="noise", steps=9)
    ran = SimpleNamespace(bound=bound, interrupted=False, counted_steps=counted, steps=taken, ended=ended)
    said = resume.caveats(ran)
    assert len(said) == bool(told)
    assert told in "".join(said)
    ran.bound.event = None  # which protects nobody, and has no ledger
    assert resume.caveats(ran) == []
    ran.interrupted = True
    assert resume.caveats(ran) == [f"the run was stopped after {taken} of 9 steps; epsilon is the plan's"]


def test_changed_data_are_refused(dots, tmp_path, quiet, monkeypatch):
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet)
    before = (tmp_path / "run" / "ledger.jsonl").read_bytes()
    with refused("units-differ"):
        run(dots, tmp_path / "run", quiet, data=dots.data(UNITS, seed=1), resume=True)
    assert (tmp_path / "run" / "ledger.jsonl").read_bytes() == before


def other_labels(data):
    data.views = [[replace(v, target={"way": (v.target["way"] + 1) % 4}) for v in views] for views in data.views]


def other_weights(data):
    data.views[3] = [replace(v, weight=v.weight + 1) for v in data.views[3]]


def other_names(data):
    data.unit_id = lambda index: f"unit {index}"


def other_order(data):
    data.views.reverse()


@pytest.mark.parametrize("change", [other_labels, other_weights, other_names, other_order])
def test_all_that_training_reads_is_part_of_the_data(dots, tmp_path, quiet, monkeypatch, change):
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet)
    before = (tmp_path / "run" / "ledger.jsonl").read_bytes()
    data = dots.data(UNITS)
    change(data)
    with refused("units-differ"):
        run(dots, tmp_path / "run", quiet, data=data, resume=True)
    assert (tmp_path / "run" / "ledger.jsonl").read_bytes() == before


@pytest.fixture
def began_with_a_run(dots, tmp_path, quiet, monkeypatch):
    """A killed run that began with the weights of a private run on the same units, both in one account."""
    first = run(dots, tmp_path / "first", quiet)
    killed(monkeypatch, GRADIENT, 9, dots, tmp_path / "run", quiet, start=first.folder)
    return first.folder


def test_another_account_does_not_forget_what_first_weights_learnt_from(dots, tmp_path, quiet, began_with_a_run):
    moved = tmp_path / "moved"
    shutil.copytree(tmp_path / "run", moved)
    with refused("first-weights-unknown-here", "moved"):
        run(dots, moved, quiet, start=began_with_a_run, resume=True, state_dir=tmp_path / "elsewhere")
    done = run(dots, tmp_path / "run", quiet, start=began_with_a_run, resume=True)
    assert len(done.statement.events) > 1
    assert verify_run(tmp_path / "run").statement == done.statement


def test_a_run_does_not_go_on_from_other_first_weights(dots, tmp_path, quiet, began_with_a_run):
    moved = tmp_path / "moved"
    shutil.copytree(tmp_path / "run", moved)
    given = {"start": FirstWeights.drawn(), "resume": True, "state_dir": tmp_path / "elsewhere"}
    with refused("first-weights-differ", "moved"):
        run(dots, moved, quiet, **given)


def test_another_plan_is_refused_even_without_checkpoints(dots, tmp_path, quiet, monkeypatch):
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    before = (tmp_path / "run" / "ledger.jsonl").read_bytes()
    monkeypatch.setitem(SETTINGS, "clip_norm", 2.0)
    with refused("run-of-other-plan"):
        run(dots, tmp_path / "run", quiet, resume=True)
    assert (tmp_path / "run" / "ledger.jsonl").read_bytes() == before


@pytest.mark.parametrize("left", [1, 10], ids=["all of it", "its end"])
def test_with_the_log_lost_steps_are_counted_twice(dots, tmp_path, quiet, monkeypatch, unbroken, streams, left):
    """What was seen of a step cannot be compared with what it gives now: one noise might meet two sums."""
    monkeypatch.setattr(loops, "CHECKPOINT_UNITS", 10**9)
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet)
    log = tmp_path / "run" / "log.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:left]))
    before = read_ledger(tmp_path / "run" / "ledger.jsonl")
    rounding(monkeypatch)
    done = run(dots, tmp_path / "run", quiet, resume=True)
    entries = read_ledger(tmp_path / "run" / "ledger.jsonl")
    assert entries[-1].key_id != before[-1].key_id
    assert sum(event.steps for event in spent(entries)) == STEPS
    assert done.steps == STEPS - 14
    verify_run(tmp_path / "run", tmp_path / "state")
    quiet.file.flush()
    assert "the log lacks steps that the ledger has" in Path(quiet.file.name).read_text()


def test_another_number_of_units_is_refused(dots, tmp_path, quiet, monkeypatch):
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet)
    lost_key(tmp_path / "run")
    with refused("run-of-other-plan"):
        run(dots, tmp_path / "run", quiet, data=dots.data(239), resume=True)


@pytest.mark.parametrize("seconds", [0.0, 1e3], ids=["in no time", "minutes a call"])
def test_the_plan_and_no_clock_decides_which_checkpoints_survive(dots, tmp_path, quiet, monkeypatch, seconds):
    """A step over many units takes longer: a checkpoint that lies where the time was up tells how many there were."""
    now = iter(range(10**9))
    monkeypatch.setattr(time, "monotonic", lambda: seconds * next(now))
    monkeypatch.setattr(loops, "CHECKPOINT_UNITS", 340)
    killed(monkeypatch, GRADIENT, 21, dots, tmp_path / "run", quiet)
    # blocks of two steps of 20 units: step 18 is the first end of one with 340 units behind it
    assert {p.name for p in (tmp_path / "run" / "checkpoints").iterdir()} == {"step-0", "step-18"}


def test_checkpoints_lie_so_much_work_apart_and_the_last_step_is_one():
    assert loops.checkpoint_steps([10, 20, 30, 35], 10**4) == {10, 20, 30, 35}
    assert loops.checkpoint_steps([10, 20, 30, 35], loops.CHECKPOINT_UNITS / 20) == {20, 35}
    assert loops.checkpoint_steps([10, 20, 30, 35], 1) == {35}


@pytest.mark.parametrize("file", ["state.safetensors", "state.json"])
def test_a_broken_checkpoint_is_passed_over(dots, tmp_path, quiet, monkeypatch, unbroken, streams, file):
    monkeypatch.setattr(loops, "CHECKPOINT_UNITS", 0)
    whole = unbroken()
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet)
    last = tmp_path / "run" / "checkpoints" / "step-12" / file
    last.write_bytes(last.read_bytes()[:-7])
    done = run(dots, tmp_path / "run", quiet, resume=True)
    assert torch.equal(done.model.classify.weight, whole.model.classify.weight)
    quiet.file.flush()
    assert f"Passed over: {last.parent}" in Path(quiet.file.name).read_text()


def test_a_flipped_bit_in_a_checkpoint_is_noticed(dots, tmp_path, quiet, monkeypatch):
    monkeypatch.setattr(loops, "CHECKPOINT_UNITS", 0)
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet)
    for folder in (tmp_path / "run" / "checkpoints").iterdir():
        raw = bytearray((folder / "state.safetensors").read_bytes())
        raw[-1] ^= 1
        (folder / "state.safetensors").write_bytes(raw)
    with refused("checkpoint-broken"):
        run(dots, tmp_path / "run", quiet, resume=True)


def test_a_second_process_is_refused(dots, tmp_path, quiet, monkeypatch):
    """Another program holds the folder while this one wants to go on with it."""
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet)
    hold = (
        "import sys; from pathlib import Path; from dpose.files import locked_folder\n"
        "with locked_folder(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", hold, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with refused("folder-busy"):
            run(dots, tmp_path / "run", quiet, resume=True)
        other.stdin.close()
    run(dots, tmp_path / "run", quiet, resume=True)


@pytest.mark.parametrize("place", ["ledger", "checkpoint", "log"])
def test_a_full_disk_loses_nothing(dots, tmp_path, quiet, monkeypatch, unbroken, streams, place):
    monkeypatch.setattr(loops, "CHECKPOINT_UNITS", 0)
    whole = unbroken()
    full, calls = OSError(errno.ENOSPC, "No space left on device"), []
    with monkeypatch.context() as patch:
        if place == "ledger":
            real = os.write

            def write(descriptor, content):
                calls.append(1)
                # the disk takes half of a line
                return real(descriptor, content[: len(content) // 2] if len(calls) == 12 else content)

            patch.setattr(os, "write", write)
        elif place == "checkpoint":
            real = os.fsync

            def fsync(descriptor):
                calls.append(1)
                if len(calls) == 30:
                    raise full
                real(descriptor)

            patch.setattr(os, "fsync", fsync)
        else:
            real = RunLog.write

            def line(self, kind, **values):
                calls.append(1)
                if len(calls) == 12:
                    self._file.write('{"type": "st')
                    self._file.flush()
                    raise DposeError("disk-full", "no space left on the disk", str(self.path))
                real(self, kind, **values)

            patch.setattr(RunLog, "write", line)
        with refused("disk-full"):
            run(dots, tmp_path / "run", quiet)
    done = run(dots, tmp_path / "run", quiet, resume=True)
    assert torch.equal(done.model.classify.weight, whole.model.classify.weight)
    verify_run(tmp_path / "run", tmp_path / "state")


def test_a_torn_last_reservation_is_claimed_if_it_passes_the_plan(dots, tmp_path, quiet, monkeypatch):
    killed(monkeypatch, COMMIT, 11, dots, tmp_path / "run", quiet)
    path = tmp_path / "run" / "ledger.jsonl"
    with path.open("ab") as file:
        file.write(b'{"seq":')  # a line nobody knows the meaning of
    done = run(dots, tmp_path / "run", quiet, resume=True)
    assert done.statement.epsilon > plan_of().bind(UNITS).epsilon
    assert verify_run(tmp_path / "run", tmp_path / "state").spent == pytest.approx(done.statement.epsilon)


def test_a_clock_that_jumps_changes_nothing(dots, tmp_path, quiet, monkeypatch, unbroken, streams):
    whole = unbroken()
    hours = itertools.cycle([0, 1e9, -1e9, 5, 1e6])
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: next(hours))
        patch.setattr(time, "time", lambda: next(hours))
        killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet)
        done = run(dots, tmp_path / "run", quiet, resume=True)
    assert torch.equal(done.model.classify.weight, whole.model.classify.weight)


def test_the_key_stands_in_the_state_folder_alone(dots, tmp_path, quiet, monkeypatch, same_key):
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet)
    (file,) = (tmp_path / "state" / "keys").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    secret = json.loads(file.read_text())["key"]
    assert len(secret) == 64
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file():
            raw = path.read_bytes()
            assert secret.encode() not in raw
            assert bytes.fromhex(secret) not in raw


def shown(renderable):
    console = Console(width=1000)
    with console.capture() as told:
        console.print(renderable)
    return told.get()


def test_a_run_that_is_given_up_leaves_no_key(dots, tmp_path, quiet, monkeypatch):
    state, place = tmp_path / "state", tmp_path / "run"
    assert "No key is kept" in shown(list_keys(state))
    killed(monkeypatch, GRADIENT, 14, dots, place, quiet)
    (file,) = (state / "keys").iterdir()
    whole = file.read_bytes()
    # a process that died while it wrote the key leaves it under another name
    (file.parent / f".{file.name}.x7b2").write_bytes(whole)
    overwritten = []
    unlink = Path.unlink

    def noted(self, *arguments, **options):
        if self.parent == file.parent:
            overwritten.append(self.read_bytes())
        unlink(self, *arguments, **options)

    monkeypatch.setattr(Path, "unlink", noted)
    listed = shown(list_keys(state))
    assert str(place) in listed
    assert "Dots" in listed
    assert "counted once more" in discard_key(str(place), state)
    assert list(file.parent.iterdir()) == []
    assert overwritten == [bytes(len(whole))] * 2
    assert "No key is kept" in shown(list_keys(state))
    assert "no key of this run is kept" in discard_key(str(place), state)

    before = read_ledger(place / "ledger.jsonl")
    done = run(dots, place, quiet, resume=True)
    entries = read_ledger(place / "ledger.jsonl")
    assert entries[-1].key_id != before[-1].key_id
    assert sum(event.steps for event in spent(entries)) == STEPS > done.steps


def test_the_key_of_a_run_whose_folder_is_gone_is_discarded_by_its_name(dots, tmp_path, quiet, monkeypatch):
    state, place = tmp_path / "state", tmp_path / "run"
    killed(monkeypatch, GRADIENT, 14, dots, place, quiet)
    name = read_ledger(place / "ledger.jsonl")[0].run_id
    shutil.rmtree(place)
    assert f"{name} (its folder is gone)" in shown(list_keys(state))
    discard_key(name, state)
    assert list((state / "keys").iterdir()) == []


def test_no_key_is_discarded_under_a_run_that_is_at_work(dots, tmp_path, quiet, monkeypatch):
    state, place = tmp_path / "state", tmp_path / "run"
    killed(monkeypatch, GRADIENT, 14, dots, place, quiet)
    with locked_folder(place), refused("folder-busy"):
        discard_key(str(place), state)
    for other in (tmp_path / "nothing", tmp_path):
        with refused(("ledger-missing", "run-missing")):
            discard_key(str(other), state)
    assert len(list((state / "keys").iterdir())) == 1


def test_a_ledger_that_lost_lines_is_refused(dots, tmp_path, quiet, monkeypatch):
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet)
    path = tmp_path / "run" / "ledger.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:5]))
    with refused("ledger-cut"):
        run(dots, tmp_path / "run", quiet, resume=True)


def test_a_seeded_run_goes_on_too(dots, tmp_path, quiet, monkeypatch):
    whole = run(dots, tmp_path / "whole", quiet, seed=4)
    killed(monkeypatch, GRADIENT, 14, dots, tmp_path / "run", quiet, seed=4)
    done = run(dots, tmp_path / "run", quiet, seed=4, resume=True)
    assert torch.equal(done.model.classify.weight, whole.model.classify.weight)
    assert not (tmp_path / "state" / "keys").exists()


def test_a_read_only_folder_is_one_line(dots, tmp_path, quiet, monkeypatch):
    """As a read-only disk answers; the administrator, too, gets this answer."""

    def refusing(self, *arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refusing)
    with refused("write-denied") as caught:
        run(dots, tmp_path / "closed" / "run", quiet, state_dir=tmp_path / "state")
    assert str(tmp_path / "closed" / "run") in str(caught.value)


def test_a_run_folder_that_becomes_read_only_stops_the_run(dots, tmp_path, quiet, monkeypatch, unbroken, streams):
    """And it goes on when the folder can be written again."""
    real, calls = os.open, []

    def refusing(path, flags, *rest, **options):
        if flags & os.O_CREAT and str(tmp_path / "run") in str(path):
            calls.append(1)
            if len(calls) > 8:
                raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, *rest, **options)

    monkeypatch.setattr(loops, "CHECKPOINT_UNITS", 0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refusing)
        with refused("write-denied"):
            run(dots, tmp_path / "run", quiet)
    done = run(dots, tmp_path / "run", quiet, resume=True)
    assert torch.equal(done.model.classify.weight, unbroken().model.classify.weight)
