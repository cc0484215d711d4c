"""Cells in processes of their own: the same results, failures reported, no process left behind."""

import multiprocessing

import pytest
from rich.console import Console

from dpose.runs.verify import verify_run
from dpose_lab.papers import parallel
from dpose_lab.papers.engines import run_on_engine
from dpose_lab.papers.experiment import Cell, GridRequest, Request
from dpose_lab.papers.experiment_cell import claim_folder, read_cells, run_cells
from dpose_lab.papers.parallel import run_parallel
from dpose_lab.papers.reproduce import reproduce
from dying import Dying
from few_cells import NAME, Some
from quick import quick  # noqa: F401


@pytest.mark.slow
def test_processes_give_what_one_gives_and_failures_are_told(small, tmp_path):
    request, whole, folder = small
    first, after = whole.cells[:2]
    # one that a process cannot find, one that needs it, and one that is not wanted
    lost, needs = Cell("lost", {}), Cell(after.key, after.settings, after.weight, needs="lost")
    unwanted = Cell(whole.cells[2].key, whole.cells[2].settings, wanted=False)
    some = Some(whole, [first, lost, needs, unwanted])
    moved = []
    found = {o.cell.key: o for o in run_parallel(NAME, request, some, folder, moved.append)}
    assert sum(moved) == sum(cell.weight for cell in some.cells if cell.wanted)
    assert found["lost"].error == "its process ended with code 1"
    assert found[needs.key].error == "needs the cell lost, which failed"
    assert found[unwanted.key].status == "not run"
    claim_folder(tmp_path / "one", whole.settings)
    for outcome in run_cells(Some(whole, [first]), tmp_path / "one"):
        assert outcome.status == "done"
        assert found[outcome.cell.key] == outcome


def test_an_engine_gives_the_same_a_killed_workers_cell_is_run_again(small, tmp_path, monkeypatch):
    request, whole, folder = small
    first, after = whole.cells[:2]
    lost, needs = Cell("lost", {}), Cell(after.key, after.settings, after.weight, needs="lost")
    moved, at = [], Dying({0})
    some = Some(whole, [first, lost, needs])
    found = {o.cell.key: o for o in run_on_engine(NAME, request, some, folder, at, moved.append)}
    assert sum(moved) == first.weight + lost.weight + needs.weight
    assert found[first.key].status == "done"
    assert found["lost"].error
    assert found[needs.key].error == "needs the cell lost, which failed"
    assert [o.status for o in run_on_engine(NAME, request, Some(whole, [first]), folder, Dying(range(9)))] == ["done"]
    folders = iter([tmp_path / "a", tmp_path / "a", tmp_path / "b"])  # the command's, and a worker's
    monkeypatch.setattr("dpose_lab.papers.engines.state_folder", folders.__next__)
    (outcome,) = run_on_engine(NAME, request, Some(whole, [whole.cells[2]]), folder, Dying())
    assert "another state folder" in outcome.error


@pytest.mark.slow
def test_trainings_in_processes_are_those_of_one(tmp_path):
    """Seeded, so that they may be compared."""
    asked = GridRequest(core=True, methods=("dp-sgd",), epsilons=(0.8,), clip_norms=(0.1,), epochs=1.0, batch_size=8)
    found = []
    for processes in (2, 1):
        request = Request(("synthetic:ward",), limit=16, seed=3, processes=processes, grid=asked)
        folder = tmp_path / str(processes)
        outcomes = reproduce("000/table2", request, folder, Console(quiet=True))
        found.append({o.cell.key: o.values["columns"] for o in outcomes if o.status == "done"})
        assert verify_run(folder / "runs" / "dp-sgd-finetune-C0.1-eps0.8-run1")
    assert set(found[0]) == {"start", "dp-sgd-finetune-C0.1-eps0.8-run1"}
    assert found[0] == found[1]


def test_who_is_stopped_leaves_no_process_behind(small, monkeypatch):
    request, whole, folder = small
    some = Some(whole, list(whole.cells[:2]))

    def stopped(processes):
        assert len(multiprocessing.active_children()) == 2
        raise KeyboardInterrupt

    monkeypatch.setattr(parallel, "wait", stopped)
    with pytest.raises(KeyboardInterrupt):
        list(run_parallel(NAME, request, some, folder))
    assert not multiprocessing.active_children()
    assert {o.status for o in read_cells(folder, some.cells)} == {"not run"}
