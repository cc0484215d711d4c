"""Cells in processes of their own: the same results, failures told, nobody left behind."""

import multiprocessing
from dataclasses import dataclass

import cv2
import numpy as np
import pytest

from dpose.experiments.papers import parallel
from dpose.experiments.papers.cells import claim_folder, read_cells, run_cells
from dpose.experiments.papers.experiment import Cell, Request
from dpose.experiments.papers.parallel import run_parallel
from dpose.experiments.papers.registry import EXPERIMENTS

NAME = "002/figure1"


@dataclass
class Some:
    """An experiment with some of its cells."""

    whole: object
    cells: list

    def run(self, cell, progress):
        return self.whole.run(cell, progress)


@pytest.fixture
def small(tmp_path):
    (tmp_path / "seq" / "img1").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for frame in (1, 2):
        picture = rng.integers(0, 256, (20, 40)).astype(np.uint8)
        cv2.imwrite(str(tmp_path / "seq" / "img1" / f"{frame:06d}.png"), picture)
    request = Request(data=(f"mot:{tmp_path / 'seq'}",), limit=1, processes=2)
    whole = EXPERIMENTS[NAME].bind(request)
    claim_folder(tmp_path / "out", whole.settings)
    return request, whole, tmp_path / "out"


def test_processes_give_what_one_gives_and_failures_are_told(small, tmp_path):
    request, whole, folder = small
    first, after = whole.cells[:2]
    # one that a process cannot find, one that needs it, and one that nobody wants
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
