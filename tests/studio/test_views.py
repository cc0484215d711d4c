"""The plan page, and the runs page but for what needs a model's libraries."""

import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import ClassVar

import pytest

from clips import write
from dpose.files import file_digest, locked_folder
from dpose.studio import jobs, runs_view
from dpose.studio.jobs import Child, release_memory
from dpose.studio.roots import Roots
from quick import quick  # noqa: F401  (a fixture)
from refusals import refused

PLAN = {"units": "2000", "epochs": "5", "batch": "200", "epsilon": "2", "delta": "1e-5", "accountant": "rdp"}


def test_a_plan_has_the_plans_own_numbers(ask):
    from dpose.training.plan import TrainingPlan

    found = ask("plan", **PLAN)
    numbers = dict(found["numbers"])
    bound = TrainingPlan(epsilon=2, delta=1e-5, epochs=5, expected_batch_size=200, accountant="rdp").bind(2000)
    assert found["sigma"] == bound.event.sigma
    assert numbers["steps"] == "50"
    assert float(numbers["epsilon"]) >= bound.epsilon
    assert float(numbers["noise multiplier"]) <= bound.event.sigma
    reached = [power for _, power in found["attack"]]
    assert reached == sorted(reached)
    assert "--epsilon 2 " in found["commands"][1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"units": "0"}, "units"),
        ({"units": "2.5"}, "units"),
        ({"epochs": "x"}, "epochs"),
        ({"delta": "0.5"}, "delta"),
        ({"epsilon": "nan"}, "epsilon"),
        ({"method": "sgd"}, "unknown method"),
        ({"method": "non-private"}, "no noise"),
        ({"relation": "near"}, "unknown relation"),
        ({"batch": None}, "batch"),
    ],
)
def test_a_plans_mistakes_are_told(ask, change, said):
    found = ask("plan", **PLAN | change)
    assert isinstance(found, str)
    assert said in found


def test_a_curve_of_no_relation_is_told(ask):
    found = ask("curve", sigma="2", steps="50", rate="0.1", delta="1e-5", relation="near")
    assert "relation: must be one of" in found


def test_half_a_pair_of_surrogates_is_told(client):
    found = client.post("/api/run", content=b'{"run": "0/\\ud800"}')
    assert found.status_code == 400
    assert "error" in found.json()


def run_in(folder, name="a"):
    run = folder / name
    run.mkdir(parents=True)
    (run / "config.json").write_text('{"run": {"plan": {"method": "dp-sgd"}}, "task": "pose"}')
    (run / "log.jsonl").write_text("")
    return run


def test_runs_are_found_below_the_folders_and_a_broken_one_hides_none(tmp_path):
    run_in(tmp_path / "runs" / "deep", "a")
    (run_in(tmp_path / "runs", "b") / "privacy.json").write_text("{")
    (tmp_path / "runs" / "door").symlink_to(run_in(tmp_path / "elsewhere"))
    found = runs_view.run_list(Roots.of([tmp_path / "runs"]))
    assert sorted((one["run"], one["method"], one["kind"]) for one in found) == [
        ("0/b", "dp-sgd", "not finished"),
        ("0/deep/a", "dp-sgd", "not finished"),
    ]
    assert not runs_view.verify_lines(tmp_path / "runs" / "b")["holds"]


@pytest.mark.skipif(not runs_view.LOCKS.exists(), reason="who holds a lock cannot be seen on this system")
def test_who_trains_is_who_holds_the_lock(tmp_path):
    run = run_in(tmp_path)
    assert runs_view.trains(run) is None
    with refused("run-not-training"):
        runs_view.stop_run(run)
    with refused("checkpoint-missing"):
        runs_view.Resumed().start(run)
    hold = (
        "import pathlib, signal, sys; from dpose.files import locked_folder\n"
        "with locked_folder(pathlib.Path(sys.argv[1])):\n"
        "    print('holds', flush=True)\n"
        "    sys.exit(signal.sigwait([signal.SIGINT]) if signal.pthread_sigmask(0, [signal.SIGINT]) is not None else 1)"
    )
    with subprocess.Popen([sys.executable, "-c", hold, str(run)], stdout=subprocess.PIPE, text=True) as training:
        assert training.stdout.readline() == "holds\n"
        assert runs_view.trains(run) == training.pid
        (run / "checkpoints").mkdir()
        with refused("run-training"):
            runs_view.Resumed().start(run)
        assert "stops after the step" in runs_view.stop_run(run)["said"]
        assert training.wait(10) == signal.SIGINT
    assert runs_view.trains(run) is None
    with locked_folder(run):  # the lock itself was never touched
        pass


def test_a_worker_that_is_stopped_says_so_and_leaves_no_file(tmp_path):
    """A process of its own, told to stop while it decodes a clip that has a minute to go."""
    clip = write(tmp_path / "a.mp4", frames=700, size=(64, 48))
    settings = {"hide": "detail", "epsilon": "8", "delta": "1e-5"}
    task = {"kind": "clip", "height": 48, "width": 64, "source": str(clip), "settings": settings}
    task |= {"roots": [str(tmp_path)], "digest": file_digest(clip), "memory": release_memory(48 * 64, clip=True)}
    child = Child("release", task | {"out": str(tmp_path / "out")})
    lines = child.lines()
    assert next(lines)["say"] == "comparing with the account"
    child.stop()
    assert [line for line in lines if "stopped" in line] == [{"stopped": True}]
    assert list((tmp_path / "out").glob("*.mp4*")) == []


class Endless:
    """Stands for a worker: it never ends by itself, so that stopping it is all that ends it."""

    begun: ClassVar[list] = []

    def __init__(self, work, task, cwd):
        self.stopped = threading.Event()
        self.begun.append(self)

    def lines(self):
        assert self.stopped.wait(10)
        yield {"stopped": True}

    def stop(self, after=0.0):
        self.stopped.set()


def test_a_job_is_stopped_and_what_waits_never_begins(ask, opened, studio, monkeypatch):

    class Begun(Endless):
        def lines(self):
            yield {"at": 1, "of": 9, "files": [str(studio.out / "1.png")]}
            yield from super().lines()

    monkeypatch.setattr(jobs, "Child", Begun)
    first, second = (ask("release", file=opened["id"], epsilon="2") for _ in range(2))
    for _ in range(500):
        state = {one["id"]: one for one in ask("jobs")["jobs"]}
        if state[first["id"]]["at"] == 1:
            break
    assert state[second["id"]]["state"] == "waiting"
    assert ask("stop_job", job=second["id"])["state"] == "stopped"
    ask("stop_job", job=first["id"])
    for _ in range(500):
        (found,) = [one for one in ask("jobs")["jobs"] if one["id"] == first["id"]]
        if found["state"] == "stopped":
            break
    assert found["files"] == ["1.png"]  # what was finished stays, and is told
    assert "what was begun is counted" in found["said"]


def test_the_end_of_the_studio_ends_its_jobs(monkeypatch):
    monkeypatch.setattr(jobs, "Child", Endless)
    monkeypatch.setattr(Endless, "begun", [])
    some, told = jobs.Jobs(), []
    first, second = (some.add(name, {}, None, lambda name=name: told.append(name)) for name in ("a", "b"))
    while not Endless.begun:
        time.sleep(0.01)
    some.close()
    assert [first.state, second.state] == ["stopped", "stopped"]
    assert len(Endless.begun) == 1
    assert told == ["a", "b"]
    assert not some._thread.is_alive()


def test_a_job_that_is_stopped_while_it_starts_ends(monkeypatch):
    """Between its place in the queue and its process."""
    some, gate = jobs.Jobs(), threading.Event()

    class Late(Endless):
        def __init__(self, work, task, cwd):
            assert gate.wait(10)
            super().__init__(work, task, cwd)

    monkeypatch.setattr(jobs, "Child", Late)
    job = some.add("a", {}, None)
    while job.state == "waiting":
        time.sleep(0.01)
    some.stop(job.id)
    gate.set()
    some.close()
    assert job.state == "stopped"


def test_a_process_that_cannot_be_started_is_told(monkeypatch):
    def none(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(jobs, "Child", none)
    some, told = jobs.Jobs(), []
    job = some.add("a", {}, None, lambda: told.append(1))
    while not told:
        time.sleep(0.01)
    some.close()
    assert job.state == "failed"
    assert "no process could be started for it (Cannot allocate memory)" in job.message
    assert told == [1]


def test_a_worker_that_is_stopped_before_it_can_say_so_was_stopped(tmp_path):
    child = Child("release", {"memory": 1 << 30})
    child.stop()
    assert list(child.lines())[-1] == {"stopped": True}


def test_a_report_runs_nothing_whatever_it_holds(client, ask, folder):
    run = run_in(folder / "runs")
    (run / "report.html").write_text("<script>document.title = 'ran'</script>")
    found = client.get("/report/0/runs/a")
    assert found.status_code == 200
    assert "<script>" in found.text
    policy = [part.strip() for part in found.headers["content-security-policy"].split(";")]
    assert "sandbox" in policy  # with nothing that it allows
    assert "default-src 'none'" in policy
    assert not any(part.startswith(("script-src", "connect-src", "form-action")) for part in policy)
    assert found.headers["x-frame-options"] == "SAMEORIGIN"
    assert found.headers["x-content-type-options"] == "nosniff"
    (run / "report.html").unlink()
    assert client.get("/report/0/runs/a").json()["code"] == "report-missing"
    (folder / "runs" / "b").mkdir()
    (folder / "runs" / "b" / "report.html").symlink_to(sys.executable)
    assert client.get("/report/0/runs/b").json()["code"] == "file-outside-folders"
    shutil.rmtree(folder / "runs")
