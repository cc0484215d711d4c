"""A command as a job: begun once, stopped before its time is up, gone on with, and its end told in plain text."""

import os
import signal
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpose.cli import main
from dpose.cli.cluster import progress_line
from dpose.engines.one_job import NOTE, JobNote, began, check_no_job
from dpose.engines.slurm import CommandJob, exit_code, submit, wait_for
from dpose.files import check_free
from dpose.privacy.ledger import read_ledger
from dpose_lab.papers.slurm import parsed_settings
from refusals import refused

WAITS = """
import signal, sys, time
from pathlib import Path
def stop(*_):
    sys.exit(130)
signal.signal(signal.SIGTERM, stop)
Path(sys.argv[1]).write_text("begun")
time.sleep(60)
"""
ENDS = """
import sys
from pathlib import Path
Path(sys.argv[1]).write_text("gone on")
sys.exit(int(sys.argv[2]))
"""


def command_job(folder, code=0, **changed):
    given = {
        "begin": (sys.executable, "-c", WAITS, str(folder / "begun")),
        "go_on": (sys.executable, "-c", ENDS, str(folder / "done"), str(code)),
        "begun": str(folder / "begun"),
        "exit_file": str(folder / "exit"),
        "version": metadata.version("dpose"),
    }
    return CommandJob(**given | changed)


BARE = """
import sys, time
from pathlib import Path
again = Path(sys.argv[1]).exists()
Path(sys.argv[1]).write_text("here")
if again:
    sys.exit(4)
time.sleep(60)
"""


def until(found, seconds=120):
    """What `found` gives once it gives something."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, "never came"
        time.sleep(0.05)
    return value


def children(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def warn(job):
    """As Slurm does before the time limit: every process of the job, so the command's too."""
    (task,) = children(job.job_id)
    for pid in (*children(task), task):
        os.kill(pid, signal.SIGUSR2)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_job_that_is_warned_stops_its_command_and_goes_on(tmp_path):
    job = submit(command_job(tmp_path, code=3), tmp_path / "log", "local", {"timeout_min": 2})
    until((tmp_path / "begun").exists)
    warn(job)
    assert wait_for(JobNote.of(job, "local"), tmp_path / "exit", 0.05) == 3
    assert (tmp_path / "done").read_text() == "gone on"
    assert "Requeued job" in Path(job.paths.stderr).read_text() + Path(job.paths.stdout).read_text()
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_command_that_is_stopped_before_it_listens_is_begun_again(tmp_path):
    bare = command_job(tmp_path, begin=(sys.executable, "-c", BARE, str(tmp_path / "here")))
    job = submit(bare, tmp_path / "log", "local", {"timeout_min": 2})
    until((tmp_path / "here").exists)
    warn(job)
    assert wait_for(JobNote.of(job, "local"), tmp_path / "exit", 0.05) == 4
    assert "Requeued job" in Path(job.paths.stderr).read_text() + Path(job.paths.stdout).read_text()


def test_what_ended_while_it_was_stopped_is_not_begun_again(tmp_path):
    (tmp_path / "exit").write_text("0\n")
    job = command_job(tmp_path)
    object.__setattr__(job, "_environment", lambda: True)
    with pytest.raises(SystemExit) as ended:
        job()
    assert ended.value.code == 0
    assert not (tmp_path / "begun").exists()


def test_a_node_with_another_dpose_is_refused(tmp_path, capsys):
    job = command_job(tmp_path, version="0.0.1")
    object.__setattr__(job, "_environment", lambda: True)
    with pytest.raises(SystemExit):
        job()
    assert exit_code(tmp_path / "exit") == 2
    assert "was submitted by 0.0.1" in capsys.readouterr().err


def test_a_node_with_another_account_is_refused(tmp_path, capsys, monkeypatch):
    """A cluster need not pass the environment on, and a command without it would charge the user's own account."""
    monkeypatch.setenv("DPOSE_ACCOUNT", "postgresql+psycopg://ward:s3cret@db/account")
    job = command_job(tmp_path)
    assert "s3cret" not in repr(job)
    monkeypatch.delenv("DPOSE_ACCOUNT")
    object.__setattr__(job, "_environment", lambda: True)
    with pytest.raises(SystemExit):
        job()
    assert exit_code(tmp_path / "exit") == 2
    assert not (tmp_path / "begun").exists()
    assert "another account" in capsys.readouterr().err
    assert not (tmp_path / "begun").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--engine", "slurm"], "needs a partition"),
        (["--engine", "mesos"], "mesos"),
        (["--engine", "slurm", "--set", "job.partition=local", "--set", "job.slurm.nodes"], "PATH=VALUE"),
        (["--engine", "slurm", "--set", "job.partition=local", "--set", "job.slurm.hours=3"], "hours"),
        (["--engine", "slurm", "--set", "job.partition=night"], "night"),
        (["--set", "job.partition=night"], "--engine slurm"),
        (["--set", "job.wait=false"], "--engine slurm"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path, capsys, arguments, named):
    run = ["train", "--data", "synthetic:ward", "--method", "non-private", "--out", str(tmp_path / "run")]
    assert main([*run, *arguments]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert named in line
    assert not (tmp_path / "run").exists()


def test_settings_are_numbers_where_they_are():
    assert parsed_settings(["timeout_min=0.5", "nodes=2"]) == {"timeout_min": 0.5, "nodes": 2}
    with refused("slurm-setting-malformed"):
        parsed_settings(["=2"])


class Submitted:
    """A job as submitit has it: this process."""

    def __init__(self, folder, job_id=None):
        self.job_id = str(job_id or os.getpid())
        self.paths = SimpleNamespace(stdout=folder / "1_0_log.out", stderr=folder / "1_0_log.err")


def train_command(out):
    run = ["train", "--data", "synthetic:ward", "--method", "non-private", "--out", str(out)]
    return [*run, "--engine", "slurm", "--set", "job.partition=local"]


def test_a_second_job_for_a_run_is_refused_while_the_first_one_goes(tmp_path, capsys, monkeypatch):
    log, submitted = tmp_path / "run.slurm", []

    def send(job, folder, *_):
        submitted.append(job)
        return Submitted(folder)

    monkeypatch.setattr("dpose.engines.slurm.submit", send)
    assert main([*train_command(tmp_path / "run"), "--set", "job.wait=false"]) == 0
    told = capsys.readouterr().out
    assert f"tail -f {log / '1_0_log.out'}" in told
    assert f"kill {os.getpid()}" in told
    assert main(train_command(tmp_path / "run")) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"job {os.getpid()} is still at work" in line
    assert len(submitted) == 1
    (log / "exit").write_text("0\n")  # as the job leaves it
    assert main([*train_command(tmp_path / "run"), "--set", "job.wait=false"]) == 0
    assert len(submitted) == 2


def test_a_choice_among_settings_is_one_job(tmp_path, capsys, monkeypatch):
    """Its trials are not dealt out: how many there are is secret, and a queue would show it."""
    jobs = []
    monkeypatch.setattr("dpose.engines.slurm.submit", lambda job, f, *_: jobs.append(job) or Submitted(f))
    grid = Path(__file__).parents[2] / "examples" / "tune.yaml"
    tune = ["tune", "--config", str(grid), "--epsilon", "4", "--delta", "1e-5", "--out", str(tmp_path / "best")]
    assert main([*tune, "--engine", "slurm", "--set", "job.partition=local", "--set", "job.wait=false"]) == 0
    (job,) = jobs
    assert job.begin == job.go_on, "the same command goes on, at no further cost"
    assert job.begin[3:6] == ("dpose", "tune", "--config")
    assert job.begin[-6:] == ("--trials", "geometric:10", "--epsilon", "4.0", "--delta", "1e-05")
    assert (tmp_path / "best.slurm" / "config.yaml").read_bytes() == grid.read_bytes()
    assert main([*tune, "--engine", "ray"]) == 2
    assert "[engine-unsupported]" in capsys.readouterr().err


def test_a_note_of_a_job_that_is_gone_refuses_nothing(tmp_path):
    note = JobNote.of(Submitted(tmp_path), "local")
    note.write(tmp_path)
    assert (tmp_path / NOTE).stat().st_mode & 0o077 == 0
    with refused("job-running"):
        check_no_job(tmp_path, tmp_path / "exit")
    replace(note, started="another process had this number").write(tmp_path)
    check_no_job(tmp_path, tmp_path / "exit")
    replace(note, host="another").write(tmp_path)
    with refused("job-maybe-running", where="another"):
        check_no_job(tmp_path, tmp_path / "exit")
    (tmp_path / "exit").write_text("0")
    check_no_job(tmp_path, tmp_path / "exit")
    (tmp_path / "exit").unlink()
    (tmp_path / NOTE).write_text('["no note"]')
    with refused("job-note-invalid"):
        check_no_job(tmp_path, tmp_path / "exit")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert began(ended.pid) is None, "one that nobody has fetched yet is over all the same"
    ended.wait()


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("echo PENDING", "job-running"),
        ("true", None),
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", None),
        ("echo 'Unable to contact slurm controller' >&2; exit 1", "job-state-unknown"),
    ],
)
def test_slurm_is_asked_whether_a_job_is_going(tmp_path, monkeypatch, answer, code):
    fake = tmp_path / "bin" / "squeue"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\n{answer}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    # its answers are kept for a while, by the job's number
    JobNote.of(Submitted(tmp_path, 10**6 + zlib.crc32(answer.encode())), "night").write(tmp_path)
    if code is None:
        check_no_job(tmp_path, tmp_path / "exit")
        return
    with refused(code):
        check_no_job(tmp_path, tmp_path / "exit")


def test_how_far_a_run_is_by_its_log(tmp_path):
    assert progress_line(tmp_path) == ""
    (tmp_path / "log.jsonl").write_text('{"type": "start", "steps": 1200}\n')
    assert progress_line(tmp_path) == ""
    with (tmp_path / "log.jsonl").open("a") as log:
        log.write('{"type": "step", "step": 3}\n{"type": "score", "step": 3}\n{"type": "st')
    assert progress_line(tmp_path) == "step 3 of 1,200"


def test_a_folder_with_a_lock_alone_is_free_for_a_run_that_is_begun_again(tmp_path):
    (tmp_path / ".lock").touch()
    check_free(tmp_path, may_be_empty=True, may_be_locked=True)
    with refused("output-exists"):
        check_free(tmp_path, may_be_empty=True)
    (tmp_path / "ledger.jsonl").touch()
    with refused("output-exists"):
        check_free(tmp_path, may_be_empty=True, may_be_locked=True)


@pytest.mark.parametrize(
    ("ends", "warned", "requeued"), [(130, True, True), (143, True, True), (1, True, False), (1, False, False)]
)
def test_the_sbatch_of_the_guide_queues_again_only_what_was_stopped(tmp_path, ends, warned, requeued):
    page = (Path(__file__).parents[2] / "docs" / "guide" / "cluster.md").read_text()
    script = page.partition("```bash\n")[2].partition("```")[0]
    python = f"trap 'exit {ends}' TERM; touch here; " + ("while :; do sleep 0.02; done" if warned else f"exit {ends}")
    for name, body in {"python": python, "scontrol": 'echo "$@" >> asked'}.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    job = subprocess.Popen(["bash", "-c", script], env=path, cwd=tmp_path)
    if warned:
        until((tmp_path / "here").exists)
        job.send_signal(signal.SIGUSR2)
    assert job.wait(60) == ends
    assert (tmp_path / "asked").exists() == requeued


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_training_is_requeued_and_counts_no_step_twice(tmp_path):
    out, log = tmp_path / "run", tmp_path / "run.slurm"
    dpose = (sys.executable, "-m", "dpose")
    train = "--data synthetic:ward --limit 60 --epochs 10 --batch-size 20 --preset nano --strategy scratch"
    budget = "--epsilon 8 --delta 1e-3 --set plan.accountant=rdp"
    job = submit(
        CommandJob(
            begin=(*dpose, "train", *train.split(), *budget.split(), "--out", str(out)),
            go_on=(*dpose, "train", "--resume", str(out)),
            begun=str(out / "config.json"),
            exit_file=str(log / "exit"),
            version=metadata.version("dpose"),
        ),
        log,
        "local",
        {"timeout_min": 5},
    )
    until(lambda: len((out / "log.jsonl").read_text().splitlines()) > 4 if (out / "log.jsonl").exists() else 0)
    warn(job)
    assert wait_for(JobNote.of(job, "local"), log / "exit") == 0, Path(job.paths.stdout).read_text()
    log_text = Path(job.paths.stdout).read_text()
    assert "Stopped after step" in log_text
    assert "Requeued job" in log_text
    committed = [e.first_step for e in read_ledger(out / "ledger.jsonl") if e.type == "commit"]
    assert sorted(set(committed)) == committed, "no step was taken twice"
    assert "was stopped" not in (out / "privacy.json").read_text()
    assert main(["verify", str(out)]) == 0
