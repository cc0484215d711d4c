"""Cells as jobs, by submitit's local executor: found again by the same command, failures told, nothing run twice."""

import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from dpose.cli import main
from dpose.engines.one_job import JobNote
from dpose.privacy.keys import state_folder
from dpose_lab.papers import slurm
from dpose_lab.papers.experiment import Cell, GridRequest, Request
from dpose_lab.papers.experiment_cell import read_cell, run_cells
from dpose_lab.papers.registry import EXPERIMENTS
from few_cells import NAME, Some
from refusals import refused

LATE = """
import sys, time
from pathlib import Path
time.sleep(0.5)
Path(sys.argv[1], "error").write_text("late and wrong")
Path(sys.argv[1], "exit").write_text("1")
"""


@pytest.fixture
def asked(small):
    request, whole, folder = small
    return replace(request, engine="slurm", partition="local", slurm=("timeout_min=5",)), whole, folder


@pytest.mark.slow
def test_jobs_give_what_one_process_gives_and_failures_are_told(asked, tmp_path):
    request, whole, folder = asked
    first, after = whole.cells[:2]
    lost, needs = Cell("lost", {}), Cell(after.key, after.settings, after.weight, needs="lost")
    moved = []
    some = Some(whole, [first, lost, needs])
    found = {o.cell.key: o for o in slurm.run_on_slurm(NAME, request, some, folder, moved.append, 0.05)}
    assert sum(moved) == first.weight + lost.weight + needs.weight
    assert found[first.key].status == "done", found[first.key].error
    assert "StopIteration" in found["lost"].error
    assert found[needs.key].error == "needs the cell lost, which failed"
    for outcome in run_cells(Some(whole, [first]), tmp_path / "one"):
        assert outcome == found[first.key]
    log = folder.with_name("out.slurm")
    assert log.stat().st_mode & 0o077 == 0
    assert list((state_folder() / "engines").glob("slurm-*")) == []


def test_a_job_that_is_there_is_waited_for_and_not_submitted_again(asked, monkeypatch):
    request, whole, folder = asked
    cell = whole.cells[0]
    place = folder.with_name("out.slurm") / cell.key
    place.mkdir(parents=True)
    running = subprocess.Popen([sys.executable, "-c", LATE, str(place)])
    log = SimpleNamespace(stdout=place / "log.out")
    JobNote.of(SimpleNamespace(job_id=str(running.pid), paths=log), "local").write(place)
    monkeypatch.setattr(slurm, "submit_all", None)
    (outcome,) = slurm.run_on_slurm(NAME, request, Some(whole, [cell]), folder, refresh=0.05)
    assert (outcome.status, outcome.error) == ("failed", "late and wrong")
    running.wait()


def test_a_job_that_ends_without_a_word_has_failed_and_is_submitted_again(asked, monkeypatch):
    request, whole, folder = asked
    cell, submitted = whole.cells[0], []

    def send(jobs, log, *_):
        gone = subprocess.Popen([sys.executable, "-c", ""])
        submitted.append(jobs)
        gone.wait()
        return [SimpleNamespace(job_id=str(gone.pid), paths=SimpleNamespace(stdout=log / "log.out"))]

    monkeypatch.setattr(slurm, "submit_all", send)
    for _ in range(2):
        (outcome,) = slurm.run_on_slurm(NAME, request, Some(whole, [cell]), folder, refresh=0.01)
        assert "ended without a word" in outcome.error
    assert len(submitted) == 2
    assert read_cell(folder, cell).status == "not run"


def test_so_many_jobs_at_once_as_were_asked_for_on_this_machine(asked, monkeypatch):
    request, whole, folder = asked
    sizes = []

    def send(jobs, log, _, settings):
        sizes.append(len(jobs))
        for job in jobs:
            slurm.write_atomic(slurm.Path(job.exit_file), "1\n")
        return [SimpleNamespace(job_id="1", paths=SimpleNamespace(stdout=log / "log.out")) for _ in jobs]

    monkeypatch.setattr(slurm, "submit_all", send)
    cells = [Cell(f"c{k}", {}) for k in range(5)]
    found = list(slurm.run_on_slurm(NAME, request, Some(whole, cells), folder, refresh=0.01))
    assert len(found) == 5
    assert sizes == [2, 2, 1]


def test_a_node_with_another_state_folder_runs_nothing(asked, tmp_path, monkeypatch):
    request, whole, folder = asked
    written = {}
    monkeypatch.setattr(slurm, "_ended", lambda log, keys, *_: [written.update(log=log) or (keys[0], "later")])
    list(slurm.run_on_slurm(NAME, request, Some(whole, whole.cells[:1]), folder))
    log = written["log"]
    key = whole.cells[0].key
    (log / key).mkdir()
    monkeypatch.setattr("dpose_lab.papers.engines.state_folder", lambda: tmp_path / "another")
    assert slurm.run_cell_job(log, key) == 1
    assert "another state folder" in (log / key / "error").read_text()
    assert read_cell(folder, whole.cells[0]).status == "not run"


def test_a_request_goes_to_the_node_as_it_is(tmp_path):
    grid = GridRequest(methods=("dp-sgd",), epsilons=(0.2, 0.8), core=True, lr=0.5)
    request = Request(("a", "b"), 5, seed=7, grid=grid, folder=tmp_path)
    work = slurm.CellWork("ward-dp-1", request, tmp_path, "place", "account")
    (tmp_path / "work.json").write_text(json.dumps(slurm.asdict(work), default=str))
    assert slurm._work(tmp_path / "work.json") == work
    (tmp_path / "work.json").write_text("[]")
    with refused("request-invalid"):
        slurm._work(tmp_path / "work.json")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--engine", "slurm"], "needs a partition"),
        (["--set", "job.partition=night"], "--engine slurm"),
        (["--engine", "slurm", "--set", "job.partition=local", "--set", "job.slurm.hours"], "PATH=VALUE"),
        (["--engine", "ray://127.0.0.1:1"], "no Ray cluster answers"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path, capsys, arguments, named):
    grid = ["reproduce", "ward-dp-1", "--core", "--limit", "40", "--out", str(tmp_path / "grid")]
    assert main([*grid, *arguments]) == 2
    said = capsys.readouterr()
    (line,) = said.err.strip().splitlines()
    assert named in line
    assert said.out.strip() == ""
    assert not (tmp_path / "grid").exists()
    assert "partition" in EXPERIMENTS["ward-dp-1"].options
