"""Several processes take one run's steps: the same sample, one noise, the same weights; and one that dies ends it."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from dpose.privacy.ledger import read_ledger
from dpose.runs.verify import verify_run
from dpose.training.distributed import ALONE, ProcessGroup
from dpose.training.step import _share
from tiers import rest_slow
from zygote import run, run_ranks

HELPERS = Path(__file__).parents[1] / "helpers"
PROGRAM = """
import os, signal, sys
from dataclasses import replace
import numpy as np
import torch
import dpose
from dots import Dots, DotsTask, train
from rich.console import Console
import dpose.training.step as steps
from dpose.errors import DposeError
from dpose.training import resume as resuming, run as loops, trainer
from dpose.training.methods import SubspaceConfig
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from dpose.units import Warps
from pathlib import Path
from quick import quick  # noqa: F401
from replays import called_again
class Sheets(Dots):  # clips as pictures, frame under frame, which a device can keep
    view_size = (24, 6)
    def __init__(self, n, seed=0):
        super().__init__(n, seed)
        self.views = [[replace(v, image=v.image.reshape(24, 6, 3)) for v in views] for views in self.views]
    def patches(self):
        return self
    def of(self, index):
        return {index: [view.image for view in self.views[index]]}
    def looks(self, index, draw):
        return [(index, k) for k in range(len(self.views[index]))]
    def warps(self, looks):
        ways = np.array([self.views[index][k].target["way"] for index, k in looks])
        return Warps(np.array(looks), np.tile(np.eye(2, 3), (len(looks), 1, 1)), None, {"way": ways})
class SheetsTask(DotsTask):
    def loss(self, model, params, inputs, targets):
        return super().loss(model, params, inputs.unflatten(-2, (4, 6)), targets)
out, method, seed, dies, resume, odd = sys.argv[1:]
torch.set_num_threads(1)
loops.CHECKPOINT_UNITS = 0
rank, calls, real = int(os.environ.get("RANK", 0)), [], steps.private_gradient
def gradient(*given):
    calls.append(1)
    if dies == f"{rank}:{len(calls)}":
        os.kill(os.getpid(), signal.SIGKILL)
    if dies == f"stop {rank}:{len(calls)}":
        os.kill(os.getpid(), signal.SIGTERM)
    return real(*given)
steps.private_gradient = gradient
if dies == "end":
    resuming.forget_key = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
private = method != "non-private"
plan = TrainingPlan(
    method, epsilon=8.0 if private else None, delta=1e-4 if private else None, steps=12, expected_batch_size=60,
    accountant="rdp", subspace=SubspaceConfig(rank=4, units=10, refresh=5),
)
task, data = DotsTask(), Dots(240)
state = Path(os.environ.get("OWN_STATE") or Path(out).with_name("state"))
public = Dots(30, seed=4 if rank == 1 and odd == "public" else 3)
if odd == "kept":  # what a GPU has besides: replays, and pictures of a process's own units
    task, data, public = SheetsTask(), Sheets(239), Sheets(30, seed=3)
    trainer.recorder, trainer.room_on = lambda device: called_again, lambda device: 1 << 30
    keep, alike = trainer.keep_pictures, trainer.check_alike
    def noted(*given, **named):
        kept = keep(*given, **named)
        print(f"{rank} keeps {len(kept.units)}", flush=True)
        return kept
    def told(around, ranks):
        print(around[trainer.KEPT], around[trainer.HOW], flush=True)
        alike(around, ranks)
    trainer.keep_pictures, trainer.check_alike = noted, told
if rank == 1 and odd == "order":
    data.views.reverse()
if odd in ("labels", "copies"):
    data.views[40], data.views[8] = data.views[6], data.views[7]  # unit 8 is 7 again, which is the second one's
if rank == 1 and odd == "labels":
    data.views[8] = [replace(v, target={"way": (v.target["way"] + 1) % 4}) for v in data.views[8]]
if odd == "copies" and int(os.environ.get("WORLD_SIZE", 1)) == 2:  # each process lacks what is not its own
    for index in set(range(240)) - set(range(rank, 240, 2)) - {8}:
        data.views[index] = None
if rank == 1 and odd == "names":
    data.unit_id = lambda index: f"unit {index}"
if rank == 1 and odd == "plan":
    plan = replace(plan, clip_norm=2.0)
if rank == 1 and odd == "settings":
    seed = ""
try:
    run = train(
        task, task.build_model(), private=data, public=public, plan=plan, out=out, microbatch_size=16,
        threads=1, optimizer=OptimizerConfig("adam", lr=0.3), seed=int(seed) if seed else None,
        state_dir=state, console=Console(width=150), resume=bool(resume),
    )
except DposeError as error:
    print(f"rank {rank} says: {error.line()}", flush=True)
    raise SystemExit(2)
print(f"rank {rank}: {run.model.classify.weight.double().sum().item()!r} after {run.steps}", flush=True)
raise SystemExit(130 if run.interrupted else 0)
"""


def start(out, processes, method="dp-sgd", seed="3", dies="", resume="", odd=""):
    arguments = [str(out), method, seed, dies, resume, odd]
    if processes == 1:
        return run(PROGRAM, arguments)
    done = run_ranks(PROGRAM, arguments, processes)
    failed = [one.returncode for one in done if one.returncode]
    told = "".join(one.stdout for one in done), "".join(one.stderr for one in done)
    return subprocess.CompletedProcess(arguments, failed[0] if failed else 0, *told)


def launched(tmp_path, out, processes, *arguments):
    """By torch's own launcher."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command += ["--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    command += [str(program), str(out), *arguments]
    path = os.pathsep.join([str(HELPERS), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


def weights(folder):
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize(
    ("method", "by_launcher"),
    [
        ("pdp-sgd", False),
        pytest.param("non-private", False, marks=pytest.mark.slow),
        # three interpreters that import torch, to start the same program in another way
        pytest.param("pdp-sgd", True, marks=pytest.mark.slow),
    ],
)
def test_two_processes_end_where_one_does(tmp_path, method, by_launcher):
    one, two = tmp_path / "one", tmp_path / "two"
    alone = start(one, 1, method)
    together = launched(tmp_path, two, 2, method, "3", "", "", "") if by_launcher else start(two, 2, method)
    assert alone.returncode == together.returncode == 0, together.stdout + together.stderr
    for name, value in weights(one).items():
        assert torch.allclose(value, weights(two)[name], atol=1e-4), (value, weights(two)[name])
        # what is noised is a sum of integers, which knows nothing of who took which share
        assert method == "non-private" or torch.equal(value, weights(two)[name])
    said = sorted(line[8:] for line in together.stdout.splitlines() if line.startswith("rank"))
    assert len(said) == 2
    assert said[0] == said[1], "both processes hold the same weights"
    mine, theirs = (json.loads((f / "privacy.json").read_text()) for f in (one, two))
    for statement in (mine, theirs):
        for name in ("ledger_head", "seal"):  # each run's own
            statement.pop(name, None)
    assert mine == theirs
    if method != "non-private":
        verify_run(two, tmp_path / "state")


def test_processes_that_lack_each_other_s_pictures_end_where_one_does(tmp_path):
    """Nor is anything lost or counted otherwise where copies of one picture are in both processes' shares."""
    one, two = tmp_path / "one", tmp_path / "two"
    alone, together = start(one, 1, odd="copies"), start(two, 2, odd="copies")
    assert alone.returncode == together.returncode == 0, together.stdout + together.stderr
    assert all(torch.equal(value, weights(two)[name]) for name, value in weights(one).items())
    mine, theirs = (json.loads((f / "privacy.json").read_text()) for f in (one, two))
    assert mine["n"] == theirs["n"] == 238
    assert mine["events"] == theirs["events"]


def test_processes_that_replay_and_keep_their_own_pictures_end_where_one_does(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    alone, together = start(one, 1, odd="kept"), start(two, 2, odd="kept")
    assert alone.returncode == together.returncode == 0, together.stdout + together.stderr
    assert "0 keeps 239\n" in alone.stdout
    assert "0 keeps 120\n" in together.stdout
    assert "1 keeps 119\n" in together.stdout
    assert together.stdout.count("made on the device captured and replayed\n") == 2
    assert all(torch.equal(value, weights(two)[name]) for name, value in weights(one).items())


@pytest.mark.slow
def test_a_process_that_dies_ends_the_run_and_it_goes_on_alone(tmp_path):
    out = tmp_path / "run"
    died = start(out, 2, seed="", dies="1:7")
    assert died.returncode != 0
    assert "another process of this run ended" in died.stdout + died.stderr
    assert not (out / "model.safetensors").exists()
    done = start(out, 1, seed="", resume="yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed: the number of processes" in " ".join(done.stdout.split())
    assert len({entry.key_id for entry in read_ledger(out / "ledger.jsonl")}) == 2
    verify_run(out, tmp_path / "state")


@pytest.mark.slow
def test_a_run_cut_off_while_it_was_being_ended_is_ended_by_both(tmp_path):
    """The first process alone knows of the key that is still kept; the other took the run for finished."""
    out = tmp_path / "run"
    assert start(out, 2, seed="", dies="end").returncode != 0
    assert (out / "model.safetensors").exists()
    done = start(out, 2, seed="", resume="yes")
    assert done.returncode == 0, done.stdout + done.stderr
    verify_run(out, tmp_path / "state")
    again = start(out, 2, seed="", resume="yes")
    assert "this run is finished" in again.stdout


def test_a_request_to_one_process_stops_all_at_the_same_step(tmp_path):
    out = tmp_path / "run"
    stopped = start(out, 2, seed="", dies="stop 1:5")
    assert "after 5" in stopped.stdout, stopped.stdout + stopped.stderr
    assert (out / "checkpoints" / "step-5").exists()
    done = start(out, 2, seed="", resume="yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "after 12" in done.stdout
    assert len({entry.key_id for entry in read_ledger(out / "ledger.jsonl")}) == 1
    found = verify_run(out, tmp_path / "state")
    assert found.statement.epsilon == pytest.approx(found.spent)


@pytest.mark.parametrize(
    ("odd", "method", "named"),
    rest_slow(
        [
            ("order", "dp-sgd", "the data"),  # so one picture has two numbers, of two processes
            ("labels", "dp-sgd", "the data"),
            ("names", "dp-sgd", "the data"),
            ("public", "pdp-sgd", "the data"),
            ("plan", "dp-sgd", "the plan"),
            ("settings", "dp-sgd", "the settings"),
        ],
        3,
    ),
)
def test_processes_that_differ_are_refused_before_anything_is_charged(tmp_path, odd, method, named):
    """The same numbers for other units, and one unit enters a sum twice."""
    out = tmp_path / "run"
    refused = start(out, 2, method, odd=odd)
    assert refused.returncode != 0
    told = f"of 2: the processes of this run differ in {named}"
    for rank in (0, 1):  # two processes may write on one line
        assert refused.stdout.count(f"rank {rank} says: process ") == 1, refused.stdout + refused.stderr
    assert refused.stdout.count(told) == 2, refused.stdout + refused.stderr
    assert not out.exists()
    assert not (tmp_path / "state").exists()


def test_the_account_gets_all_pictures_of_a_run_of_two(tmp_path):
    from dots import Dots
    from dpose.account import State, charges
    from dpose.account.charges import known_set
    from dpose.account.store import opened
    from dpose.privacy.marks import marks_of

    done = start(tmp_path / "run", 2, seed="")
    assert done.returncode == 0, done.stdout + done.stderr
    (entry,) = charges(tmp_path / "state")
    assert entry.state is State.COMMITTED
    data = Dots(240)
    with opened(tmp_path / "state").transaction(write=False) as account:
        every = marks_of({h for i in range(240) for h in data.content_hashes(i)})
        assert entry.stored.sets == {known_set(account, every)}


def test_each_unit_is_one_process_s_whatever_is_drawn():
    """A sum has each sampled unit once, and a process reads no pictures but its own."""
    rng, owner = np.random.default_rng(0), {}
    for _ in range(20):
        sample = np.flatnonzero(rng.random(50) < 0.3)
        shares = [_share(sample, ProcessGroup(rank, 3)) for rank in range(3)]
        assert sorted(unit for share in shares for unit in share) == sample.tolist()
        for rank, share in enumerate(shares):
            assert all(owner.setdefault(unit, rank) == rank for unit in share)


def two_nodes(tmp_path, out, dies="", resume=""):
    """Two groups of processes, each with a state folder of its own, as on two machines: their exit codes."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join([str(HELPERS), os.environ.get("PYTHONPATH", "")])
    nodes = []
    for node, state in enumerate((tmp_path / "state", tmp_path / "other")):
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(node)]
        command += ["--nproc-per-node", "1", "--master-addr", "localhost", "--master-port", str(port)]
        command += [str(program), str(out), "dp-sgd", "", dies, resume, ""]
        own = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(state), "OWN_STATE": str(state)}
        nodes.append(subprocess.Popen(command, env={**os.environ, **own}))
    return [node.wait(timeout=300) for node in nodes]


@pytest.mark.slow
@pytest.mark.parametrize("fewer", [True, False])
def test_two_nodes_one_of_which_is_lost_and_the_run_goes_on(tmp_path, fewer):
    """With one node steps are counted twice; with two, where bits repeat, they are the same ones."""
    out = tmp_path / "run"
    assert 0 not in two_nodes(tmp_path, out, dies="1:7")
    assert not (out / "model.safetensors").exists()
    if fewer:
        done = start(out, 1, seed="", resume="yes")
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        assert two_nodes(tmp_path, out, resume="yes") == [0, 0]
    keys = {entry.key_id for entry in read_ledger(out / "ledger.jsonl")}
    assert len(keys) == (2 if fewer else 1)
    found = verify_run(out, tmp_path / "state")
    assert found.statement.epsilon == pytest.approx(found.spent)
    assert not [file for file in (tmp_path / "other").rglob("*") if file.is_file() and file.stat().st_size], (
        "the first node's folder alone has the key and the account"
    )


def test_alone_everything_is_its_own():
    values = {"a": torch.ones(2)}
    assert ALONE.first
    assert torch.equal(ALONE.sum_to_first(values)["a"], values["a"])
    assert torch.equal(ALONE.from_first(values)["a"], values["a"])
    assert ALONE.bytes_from_first(b"x") == b"x"
    assert ALONE.highest(3) == 3
    ALONE.agree({"anything": b"x" * 32})
