"""A command as a job: begun once, stopped before its time is up, gone on with, and its end told in plain text."""

import os
import signal
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest

from dpose.cli import main
from dpose.engines.slurm import CommandJob, exit_code, parsed_settings, submit, wait_for
from dpose.errors import DposeError
from dpose.privacy.ledger import read_ledger

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
        "told": str(folder / "exit"),
        "version": metadata.version("dpose"),
    }
    return CommandJob(**given | changed)


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
    assert wait_for(job, tmp_path / "exit", 0.05) == 3
    assert (tmp_path / "done").read_text() == "gone on"
    assert "Requeued job" in Path(job.paths.stderr).read_text() + Path(job.paths.stdout).read_text()
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0


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
    assert not (tmp_path / "begun").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--engine", "slurm"], "needs a partition"),
        (["--engine", "mesos"], "mesos"),
        (["--engine", "slurm", "--partition", "local", "--slurm", "nodes"], "KEY=VALUE"),
        (["--engine", "slurm", "--partition", "local", "--slurm", "hours=3"], "hours"),
        (["--engine", "slurm", "--partition", "night"], "night"),
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
    with pytest.raises(DposeError, match="KEY=VALUE"):
        parsed_settings(["=2"])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_training_is_requeued_and_counts_no_step_twice(tmp_path):
    out, log = tmp_path / "run", tmp_path / "run.slurm"
    dpose = (sys.executable, "-m", "dpose")
    train = "--data synthetic:ward --limit 60 --epochs 10 --batch-size 20 --preset nano --strategy scratch"
    budget = "--epsilon 8 --delta 1e-3 --accountant rdp"
    job = submit(
        CommandJob(
            begin=(*dpose, "train", *train.split(), *budget.split(), "--out", str(out)),
            go_on=(*dpose, "train", "--resume", str(out)),
            begun=str(out / "config.json"),
            told=str(log / "exit"),
            version=metadata.version("dpose"),
        ),
        log,
        "local",
        {"timeout_min": 5},
    )
    until(
        lambda: len((out / "log.jsonl").read_text().splitlines()) > 4 if (out / "log.jsonl").exists() else 0
    )
    warn(job)
    assert wait_for(job, log / "exit") == 0, Path(job.paths.stdout).read_text()
    log_text = Path(job.paths.stdout).read_text()
    assert "Stopped after step" in log_text
    assert "Requeued job" in log_text
    committed = [e.first_step for e in read_ledger(out / "ledger.jsonl") if e.type == "commit"]
    assert sorted(set(committed)) == committed, "no step was taken twice"
    assert "was stopped" not in (out / "privacy.json").read_text()
    assert main(["verify", str(out)]) == 0
