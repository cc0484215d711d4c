"""Experiments that are run once, gone on with, and never mixed; and seed 002's own, each on small data."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
import pytest
from rich.console import Console

from dpose.account import EXPERIMENT, Budget, State, charges, set_budget
from dpose.files import file_digest
from dpose.media.identity import pixel_hash
from dpose.media.images import read_image
from dpose.privacy.marks import marks_of
from dpose.report.results import Figure, Table
from dpose_lab.papers import reproduce
from dpose_lab.papers.experiment import Cell, Experiment, Findings, Request
from dpose_lab.papers.experiment_cell import claim_folder, run_cells
from dpose_lab.papers.pixelization import sweep
from dpose_lab.papers.pixelization.measure import Point, dice, grey_ssim, iou, mse, release_photo, true_epsilon
from dpose_lab.papers.pixelization.segmenting import grabcut, open_segmenter
from dpose_lab.papers.reference import read_paper
from dpose_lab.papers.registry import EXPERIMENTS
from dpose_lab.photos import photo
from dpose_lab.photos.photo import Photo
from refusals import refused
from run_folders import Page
from tiers import rest_slow

PIXELIZATION = [name for name in EXPERIMENTS if name.startswith("002/")]


QUIET = Console(quiet=True)


@dataclass
class Squares:
    """Squares of numbers; some fail, and one stops everything."""

    count: int = 4
    failing: tuple[int, ...] = ()
    stop: int = -1
    ran: list = field(default_factory=list)

    @property
    def settings(self):
        return {"count": self.count}

    @property
    def cells(self):
        return [Cell(f"n{n}", {"n": n}) for n in range(self.count)]

    def run(self, cell, progress):
        n = cell.settings["n"]
        self.ran.append(n)
        if n == self.stop:
            raise KeyboardInterrupt
        if n in self.failing:
            raise ZeroDivisionError("no such\nnumber")
        progress()
        return {"square": n * n}

    def show(self, outcomes):
        rows = tuple((o.cell.key, str(o.values.get("square", o.status))) for o in outcomes)
        return Findings((Table("squares", ("n", "square"), rows),), (), ("a note",))


@pytest.fixture
def squares(monkeypatch):
    made = Squares()
    experiment = Experiment("test/squares", "squares of numbers", lambda request: made)
    monkeypatch.setattr(reproduce, "EXPERIMENTS", {"test/squares": experiment})
    return made


def run(out):
    return reproduce.reproduce("test/squares", Request(), out, QUIET)


class TestCells:
    def test_results_table_and_page(self, squares, tmp_path):
        out = tmp_path / "out"
        assert [o.status for o in run(out)] == ["done"] * 4
        content = json.loads((out / "results.json").read_text())
        assert [cell["values"]["square"] for cell in content["cells"]] == [0, 1, 4, 9]
        assert "| n3 | 9 |" in (out / "results.md").read_text()
        assert "a note" in (out / "index.html").read_text()

    def test_a_killed_run_is_gone_on_with(self, squares, tmp_path):
        squares.stop = 2
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "out")
        text = (tmp_path / "out" / "results.md").read_text()
        assert "| n1 | 1 |" in text
        assert "| n2 | not run |" in text
        squares.stop, squares.ran = -1, []
        assert [o.status for o in run(tmp_path / "out")] == ["done"] * 4
        assert squares.ran == [2, 3]

    def test_a_failing_cell_costs_no_other_and_is_tried_again(self, squares, tmp_path):
        squares.failing = (1,)
        outcomes = run(tmp_path / "out")
        assert [o.status for o in outcomes] == ["done", "failed", "done", "done"]
        assert outcomes[1].error == "ZeroDivisionError: no such number"
        assert "| n1 | failed |" in (tmp_path / "out" / "results.md").read_text()
        squares.failing, squares.ran = (), []
        assert run(tmp_path / "out")[1].values == {"square": 1}
        assert squares.ran == [1]

    def test_progress_reaches_the_end_whatever_fails(self, squares, tmp_path):
        squares.failing = (1,)
        claim_folder(tmp_path / "out", squares.settings)
        counted = []
        list(run_cells(squares, tmp_path / "out", counted.append))
        assert sum(counted) == 4

    def test_other_settings_are_refused(self, squares, tmp_path):
        run(tmp_path / "out")
        squares.count = 5
        with refused("results-of-other-settings", where="count"):
            run(tmp_path / "out")

    @pytest.mark.parametrize("kind", ["file", "folder"])
    def test_other_peoples_files_are_left_alone(self, squares, tmp_path, kind):
        out = tmp_path / "out"
        if kind == "folder":
            out.mkdir()
            (out / "thesis.txt").write_text("x")
        else:
            out.write_text("x")
        with refused("results-folder-unknown"):
            run(out)
        assert squares.ran == []

    def test_a_damaged_cell_names_its_file(self, squares, tmp_path):
        run(tmp_path / "out")
        (tmp_path / "out" / "cells" / "n1.json").write_text('{"settings": {"n": 2}, "values": {"square": 4}}')
        with refused("result-of-other-cell", where="n1.json"):
            run(tmp_path / "out")
        (tmp_path / "out" / "cells" / "n1.json").write_text("{")
        with refused("result-unreadable", where="n1.json"):
            run(tmp_path / "out")

    def test_unknown_experiments(self):
        with refused("experiment-unknown", where="002/figure1"):
            reproduce.experiment_named("002/figure99")


def draw(path, size, seed):
    rng = np.random.default_rng(seed)
    picture = cv2.GaussianBlur(rng.integers(0, 256, size).astype(np.uint8), (0, 0), 6)
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), cv2.normalize(picture, None, 0, 255, cv2.NORM_MINMAX))


@pytest.fixture(scope="module")
def portraits(tmp_path_factory):
    """PPM-100's layout, large enough for blocks of 128."""
    root = tmp_path_factory.mktemp("ppm")
    for seed in range(2):
        draw(root / "image" / f"{seed}.png", (140, 130), seed)
        matte = np.zeros((140, 130), np.uint8)
        cv2.ellipse(matte, (65, 70), (30, 50), 0, 0, 360, 255, -1)
        cv2.imwrite(str(root / "image" / ".." / f"m{seed}.png"), matte)
        (root / "matte").mkdir(exist_ok=True)
        (root / f"m{seed}.png").rename(root / "matte" / f"{seed}.png")
    return f"ppm100:{root}"


@pytest.mark.parametrize("name", rest_slow(PIXELIZATION, 0, 1))
def test_every_experiment_of_the_paper_runs(name, portraits, tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "POWERS", (1, 8, 32))  # of 36 pairs of b and n, 6
    out = tmp_path / "out"
    outcomes = reproduce.reproduce(name, Request(data=(portraits,), limit=1), out, QUIET)
    assert {o.status for o in outcomes} == {"done"}, [o.error for o in outcomes if o.error]
    assert [(entry.what, entry.state) for entry in charges()] == [(EXPERIMENT, State.COMMITTED)]
    text = (out / "results.md").read_text()
    assert "PPM-100, 1 picture" in text
    assert "the paper: " in text
    for drawing in out.glob("*.png"):
        assert cv2.imread(str(drawing)).std() > 10
    assert bool(list(out.glob("*.png"))) == ("figure" in name)
    page = Page((out / "index.html").read_text())
    assert bool(list(page.root.iter("figure"))) == ("figure" in name)


class TestCounted:
    """Numbers without noise and pictures from a seed: on the account before anything is computed, or not made."""

    def marks_of_files(self, portraits):
        files = sorted((Path(portraits.partition(":")[2]) / "image").iterdir())
        return {path: marks_of([file_digest(path)]) for path in files}

    @pytest.mark.parametrize("name", ["002/figure2", "002/figure4", "002/figure6", "002/table5"])
    def test_originals_are_reserved_first_and_committed_when_all_is_written(
        self, name, portraits, tmp_path, monkeypatch
    ):
        out, seen = tmp_path / "out", []

        def claiming(*given):
            seen.append((charges()[0].state, out.exists()))
            claim_folder(*given)

        monkeypatch.setattr(reproduce, "claim_folder", claiming)
        monkeypatch.setattr(reproduce, "run_cells", lambda *given: seen.append(charges()[0].state) or [])
        reproduce.reproduce(name, Request(data=(portraits,)), out, QUIET)
        assert seen == [(State.RESERVED, False), State.RESERVED]
        (entry,) = charges()
        assert (entry.what, entry.events, entry.state) == (EXPERIMENT, (), State.COMMITTED)
        assert (entry.folder, entry.data) == (str(out), portraits)
        read = {path for path, marks in self.marks_of_files(portraits).items() if charges(of=marks)}
        assert len(read) == (1 if name == "002/figure2" else 2)
        assert {path for path in read if not charges(of=marks_of([pixel_hash(read_image(path))]))} == set()
        reproduce.reproduce(name, Request(data=(portraits,)), out, QUIET)  # gone on with: no second charge
        assert [other.id for other in charges()] == [entry.id]

    def test_a_budget_refuses_them_and_what_is_public_costs_nothing(self, portraits, tmp_path, monkeypatch):
        marks = list(self.marks_of_files(portraits).values())
        set_budget(Budget(3.0, 1e-5, "portraits", marks[1]))
        with monkeypatch.context() as patch:
            patch.setattr(reproduce, "run_cells", None)
            with refused("budget-charge-unbounded", where=("public", "--data-public")):
                reproduce.reproduce("002/figure3", Request(data=(portraits,)), tmp_path / "out", QUIET)
        assert not (tmp_path / "out").exists()
        asked = Request(data=(portraits,), limit=1, data_public=True)
        reproduce.reproduce("002/figure3", asked, tmp_path / "out", QUIET)
        assert charges() == []

    @pytest.mark.parametrize(("spec", "counted"), [("studio:test", 0), ("ward:test", 1), ("ward:public", 0)])
    def test_rendered_people_who_stand_for_private_ones_are_read(self, spec, counted, monkeypatch):
        bound = EXPERIMENTS["002/figure2"].bind(Request(data=(f"synthetic:{spec}",)))
        monkeypatch.setattr("dpose_lab.papers.pixelization.data.PETS", (16, 16))
        assert len(list(EXPERIMENTS["002/figure2"].reads(bound))) == counted

    def test_a_mistake_costs_nothing(self, portraits, tmp_path):
        (tmp_path / "thesis.txt").write_text("x")
        with refused("results-folder-unknown"):
            reproduce.reproduce("002/figure3", Request(data=(portraits,)), tmp_path, QUIET)
        assert charges() == []

    def test_a_picture_that_changes_while_it_is_in_use_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr(photo, "KEPT", 0)
        file = tmp_path / "seq" / "img1" / "000001.png"
        draw(file, (40, 40), 0)
        bound = EXPERIMENTS["002/figure3"].bind(Request(data=(f"mot:{tmp_path / 'seq'}",)))
        assert len(marks_of(bound.data.hashes())) == 2
        draw(file, (40, 40), 1)
        with refused("file-changed"):
            bound.run(bound.cells[0], lambda: None)

    def test_trainings_charge_what_they_read_themselves(self):
        silent = {name for name, one in EXPERIMENTS.items() if one.reads is None}
        assert silent == {name for name, one in EXPERIMENTS.items() if one.trains}


def test_both_mechanisms_are_in_every_sweep(portraits):
    for name in ("figure1", "figure2", "figure5", "figure6", "figure7"):
        bound = EXPERIMENTS[f"002/{name}"].bind(Request(data=(portraits,), limit=1))
        mechanisms = {cell.settings["mechanism"] for cell in bound.cells}
        assert "paper" in mechanisms
        assert mechanisms & {"dpose", "private"}


def test_results_do_not_depend_on_when_a_cell_is_run(portraits):
    bound = EXPERIMENTS["002/figure1"].bind(Request(data=(portraits,), limit=2))
    cell = bound.cells[5]
    assert bound.run(cell, lambda: None) == bound.run(cell, lambda: None)


def test_a_cell_that_does_not_fit_is_reported_and_the_rest_is_run(tmp_path):
    draw(tmp_path / "seq" / "img1" / "000001.png", (15, 40), 0)
    spec = f"mot:{tmp_path / 'seq'}"
    outcomes = reproduce.reproduce("002/figure3", Request(data=(spec,)), tmp_path / "out", QUIET)
    assert [o.status for o in outcomes] == ["done"] * 7 + ["failed"] * 3
    assert "larger than the picture" in outcomes[-1].error
    assert "failed" in (tmp_path / "out" / "results.md").read_text()


def test_masks_are_needed_where_regions_are(tmp_path):
    draw(tmp_path / "seq" / "img1" / "000001.png", (140, 130), 0)
    with refused("masks-missing"):
        EXPERIMENTS["002/figure5"].bind(Request(data=(f"mot:{tmp_path / 'seq'}",)))


class TestMeasures:
    def test_by_hand(self):
        one, other = np.zeros((2, 2), bool), np.zeros((2, 2), bool)
        one[0], other[:, 0] = True, True
        assert iou(one, other) == pytest.approx(1 / 3)
        assert dice(one, other) == pytest.approx(1 / 2)
        empty = np.zeros((2, 2), bool)
        assert (iou(empty, empty), dice(empty, empty), iou(one, empty)) == (1, 1, 0)
        black, grey = np.zeros((9, 9), np.uint8), np.full((9, 9), 16, np.uint8)
        assert mse(black, grey) == 256
        assert grey_ssim(grey, grey) == pytest.approx(1)
        assert grey_ssim(black, grey) < 0.1

    def test_what_the_paper_mode_really_costs(self):
        photo = Photo("x", np.zeros((576, 768), np.uint8), np.zeros((576, 768), bool))
        costs = {}
        for point in (Point("paper", b=20), Point("paper", b=16), Point("dpose", b=20), Point("paper", b=32, n=4)):
            costs[point.key] = true_epsilon(point, release_photo(point, photo, 0)[1])
        assert list(costs.values()) == [2, 0.5, 0.5, None]

    def test_a_release_is_the_same_when_it_is_drawn_again(self):
        photo = Photo("x", np.zeros((40, 40), np.uint8))
        first, again = (release_photo(Point("dpose"), photo, 1)[0].values for _ in range(2))
        assert np.array_equal(first, again)
        assert not np.array_equal(first, release_photo(Point("dpose"), photo, 2)[0].values)
        assert not np.array_equal(first, release_photo(Point("dpose"), Photo("y", photo.pixels), 1)[0].values)


class TestSegmenters:
    def test_the_classical_one_finds_a_bright_person_in_the_middle(self):
        picture = np.full((200, 150), 60, np.uint8)
        truth = cv2.ellipse(np.zeros_like(picture), (75, 100), (35, 60), 0, 0, 360, 1, -1) > 0
        picture[truth] = 190
        noisy = np.clip(picture + np.random.default_rng(0).normal(0, 8, picture.shape), 0, 255).astype(np.uint8)
        assert iou(grabcut(noisy), truth) > 0.7
        assert not grabcut(np.full((40, 40), 9, np.uint8)).all()

    def test_finer_cells_alone_give_the_person_away(self):
        """Nothing of the picture is left but which cells are fine, and the person is found."""
        truth = cv2.ellipse(np.zeros((256, 192), np.uint8), (96, 128), (45, 80), 0, 0, 360, 1, -1) > 0
        flat = Photo("flat", np.full((256, 192), 128, np.uint8), truth)
        shown = release_photo(Point("paper", b=32, n=8, m=32), flat, 0)[0].picture()[:, :, 0]
        assert iou(grabcut(shown), truth) > 0.5

    def test_an_onnx_file(self, tmp_path):
        onnx = pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
        helper, kind = onnx.helper, onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            [helper.make_node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=1)],
            "mean",
            [helper.make_tensor_value_info("x", kind, [1, 3, "h", "w"])],
            [helper.make_tensor_value_info("y", kind, [1, 1, "h", "w"])],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.save(model, str(tmp_path / "mean.onnx"))
        picture = np.tile(np.array([[100, 120, 140, 250]], np.uint8), (8, 2))
        plain = open_segmenter(str(tmp_path / "mean.onnx"))
        assert plain.name.startswith("mean.onnx (sha256 ")
        assert np.array_equal(plain.find(picture), picture > 127)
        normalised = open_segmenter(f"{tmp_path / 'mean.onnx'},imagenet")
        assert "mean.onnx,imagenet" in normalised.name
        assert np.array_equal(normalised.find(picture), picture > 115)  # logits now: above the mean


class TestReadings:
    def test_the_papers_numbers_are_found_by_setting(self):
        paper = read_paper("dpose_lab.papers.pixelization", "paper.yaml")
        assert {f"002/{name}" for name in paper} == set(PIXELIZATION)
        found = paper["figure5"].reading({"mechanism": "paper", "b": 32, "n": 8, "m": 32, "epsilon": "0.5"})
        assert found.values["mse"] == 6449.0
        assert paper["figure5"].reading({"mechanism": "paper", "b": 16}) is None
        for one in paper.values():
            assert all(reading.note for reading in one.readings)


def test_names_and_folders():
    assert str(EXPERIMENTS["002/figure1"].folder) == "runs/002-figure1"
    assert set(PIXELIZATION) == {f"002/figure{n}" for n in range(1, 9)} | {"002/table5"}


def test_a_drawing_is_part_of_the_page(tmp_path):
    from dpose.media.images import encode_image
    from dpose_lab.papers.output import results_report

    png = encode_image(np.zeros((4, 6, 3), np.uint8), ".png")
    drawing = Figure("one", "a <caption>", png=png)
    findings = Findings((Table("t", ("a|b",), (("c",),)),), (drawing,), ())
    experiment = Experiment("x/y", "title", lambda request: Squares())
    report = results_report(experiment, {}, (), findings)
    text = report.html()
    assert 'width="6"' in text
    assert "a &lt;caption&gt;" in text
    assert "| a\\|b |" in report.markdown()
