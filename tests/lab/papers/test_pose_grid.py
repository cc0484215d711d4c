"""Grids of trainings: real cells with real statements, gone on with after a kill, shown beside the paper's numbers."""

import errno
import json
import re
import shutil
import statistics
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import dpose_scene.data as synthetic_module
from dpose import files
from dpose.errors import DposeError
from dpose.media.images import decode_image
from dpose.report.results import Figure
from dpose.runs.build import resolved
from dpose.runs.config import RECIPES, RunConfig
from dpose.runs.stages import in_steps
from dpose.runs.train import train_run
from dpose.runs.verify import verify_run
from dpose.training import step
from dpose.training.methods import METHODS
from dpose.training.public_view import PublicViews
from dpose_lab.papers.experiment import Cell, GridRequest, Outcome, Request
from dpose_lab.papers.pose import figures, testing
from dpose_lab.papers.pose import grid as grids
from dpose_lab.papers.pose import run as running
from dpose_lab.papers.pose.catalogue import DESIGNS
from dpose_lab.papers.pose.grid import TrainingGrid, cell_line
from dpose_lab.papers.pose.settings import OWN, RATES
from dpose_lab.papers.pose.tables import by_setting
from dpose_lab.papers.pose.testing import People
from dpose_lab.papers.pose.training_cell import RECOMMENDED, START, Training
from dpose_lab.papers.registry import EXPERIMENTS
from dpose_lab.papers.reproduce import reproduce
from dpose_lab.stats import differences
from quick import drawn  # noqa: F401
from refusals import refused
from small_nano import small_nano  # noqa: F401

QUIET = Console(quiet=True)
REAL_PEOPLE = testing.people
SMALL = {"train": 40, "val": 16, "test": 16, "public": 8}
DESIGN = {design.name: design for design in DESIGNS}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(synthetic_module, "SPLITS", SMALL)


def request(seed=None, **grid):
    few = {"epochs": 1.0, "batch_size": 20, "core": True}
    return Request(data=("synthetic:ward",), seed=seed, grid=GridRequest(**few | grid))


def only(method="dp-sgd", epsilons=(0.8,), **grid):
    return request(methods=(method,), epsilons=epsilons, clip_norms=(0.1,), **grid)


def bound(name, asked=None):
    return EXPERIMENTS[name].bind(asked or request())


def fake(cell, mean=50.0, **more):
    columns = dict.fromkeys(("Head", "Shoulder", "Elbow", "Wrist", "Hip", "Knee", "Ankle", "Mean", "Mean@0.1"), mean)
    values = {"metric": "PCKh", "columns": columns, "people": 9, "epsilon": cell.settings["epsilon"]}
    values |= {"kind": "private", "steps": 3, "seconds": 2.0, **more}
    if cell.settings["method"] == "public-only":
        values["view_columns"] = dict.fromkeys(columns, mean - 9)
    return Outcome(cell, "done", values)


class TestCells:
    def test_keys_tell_cells_apart_and_repetitions_share_a_setting(self):
        for name in DESIGN:
            asked = Request(data=("synthetic:ward",), grid=GridRequest(repeat=2))
            cells = bound(name, asked).cells
            assert len({c.key for c in cells}) == len(cells)
            settings = by_setting(Outcome(c) for c in cells)
            repeats = DESIGN[name].repeats
            for t, o in settings.items():
                more = repeats.get(t.method, 2) if t.strategy == "own" or t.method == RECOMMENDED else 2
                assert len(o.outcomes) == (1 if t.method == START else 2 if t.epsilon in (0.2, 3.0) else more)

    @pytest.mark.parametrize(
        ("name", "whole", "core"),
        [("000/table1", 3, 1), ("000/table2", 78, 8), ("000/figure1", 150, 14), ("003/figure2", 150, 26)],
    )
    def test_a_grid_and_its_core(self, name, whole, core):
        for asked, count in ((GridRequest(), whole), (GridRequest(core=True), core)):
            cells = bound(name, Request(data=("synthetic:ward",), grid=asked)).cells
            assert sum(c.wanted for c in cells) == count + 1  # the starting weights
            assert len(cells) == whole + 1

    def test_settings_that_the_paper_has_not_are_rows_too(self):
        cells = bound("000/table2", request(epsilons=(0.2, 9.0), clip_norms=(0.1,))).cells
        wanted = {c.key for c in cells if c.wanted}
        assert wanted == {
            "start",
            "non-private-finetune-run1",
            "public-only-finetune-run1",
            "dp-sgd-finetune-C0.1-eps0.2-run1",
            "dp-sgd-finetune-C0.1-eps9-run1",
        }

    def test_a_grid_may_grow_in_its_folder_but_not_change(self):
        first, grown, other = (
            bound("000/table2", asked).settings for asked in (only(), only(epsilons=(0.2, 0.4)), only(epochs=2.0))
        )
        assert first == grown
        assert first != other

    def test_seeds_are_given_or_fresh(self):
        training = Training("dp-sgd", "finetune", 0.1, 0.8, repetition=3)
        for seed, expected in ((None, None), (7, 9)):
            grid = bound("000/table2", only(seed=seed) if seed is None else request(seed=seed))
            assert grid.setup.config(training, grid.folder).seed == expected

    def test_what_a_training_is(self):
        grid = bound("000/table2", only())
        config = grid.setup.config(Training("fpdp-sgd", "scratch", 0.1, 0.8), grid.folder)
        assert (config.plan.epsilon, config.plan.clip_norm, config.plan.delta) == (0.8, 0.1, 4e-5)
        assert config.plan.accountant.value == "rdp"
        assert config.model.init is None
        assert config.data.public == "synthetic:ward:public"
        assert grid.setup.evaluate == "synthetic:ward:test"
        assert grid.setup.config(Training("non-private", "full"), grid.folder).plan.epsilon is None

    def test_people_are_the_units_where_the_papers_count_them(self, pose_fixtures):
        asked = Request(data=(f"humanart:{pose_fixtures / 'humanart'}",))
        grid = bound("003/humanart-dp", asked)
        assert (grid.setup.unit, grid.setup.preset, grid.setup.public) == ("crop", "5m", None)

    def test_the_benchmark_learns_from_public_data_first(self, tmp_path):
        (tmp_path / "lspet").mkdir()
        asked = Request(data=(f"lspet:{tmp_path / 'lspet'}",), folder=tmp_path)
        grid = bound("lspet-dp", asked)
        start = grid.setup.config(Training(START, START), tmp_path)
        assert start.plan.method == "non-private"
        assert start.data.sources == (f"lspet:{tmp_path / 'lspet'}:public",)
        bare = replace(grid.setup, preset="5m").config(Training(START, START), tmp_path)
        assert bare.data.sources == ("synthetic:studio", *start.data.sources)
        assert bare.model.strategy == "scratch"
        assert grid.setup.config(Training("dp-sgd", "finetune", 1.0, 8.0), tmp_path).model.init == str(
            tmp_path / "runs" / "start"
        )
        assert grid.setup.data.endswith(":private")
        assert grid.setup.evaluate.endswith(":validation")
        assert {c.needs for c in grid.cells if c.key != "start"} == {"start"}
        recipe = grid.setup.config(Training(RECOMMENDED, "finetune", None, 8.0), tmp_path)
        assert (recipe.recipe, recipe.plan.epsilon, recipe.plan.delta) == (RECOMMENDED, 8.0, 1e-5)
        assert recipe.model.init == str(tmp_path / "runs" / "start")
        assert {c.settings["epsilon"] for c in grid.cells if c.settings["method"] == RECOMMENDED} == {
            0.2,
            0.8,
            3.0,
            8.0,
        }
        given = bound("lspet-dp", Request(data=asked.data, grid=GridRequest(init="nano")))
        assert {c.needs for c in given.cells} == {""}

    @pytest.mark.parametrize("name", ["000/table2", "ward-dp-1", "ward-dp-1-ablation"])
    def test_other_weights_under_the_same_name_are_another_grid(self, name, tmp_path):
        weights = tmp_path / "model" / "model.safetensors"
        weights.parent.mkdir()
        asked = Request(data=("synthetic:ward",), grid=GridRequest(init=str(weights.parent)))
        with refused("weights-missing"):
            _ = bound(name, asked).settings
        weights.write_bytes(b"one")
        before = bound(name, asked).settings
        assert bound(name, asked).settings == before
        weights.write_bytes(b"two")
        assert bound(name, asked).settings != before

    @pytest.mark.parametrize(
        ("grid", "words"),
        [
            ({"epsilons": (0.0,)}, ("values-malformed", "--epsilons")),
            ({"epsilons": (1.0, 1.0)}, ("values-malformed",)),
            ({"clip_norms": (float("nan"),)}, ("values-malformed", "--clip-norms")),
            ({"methods": ("sgd",)}, ("setting-unknown",)),
            ({"strategies": ("freeze",)}, ("setting-unknown",)),
            ({"init": "nowhere"}, ("model-unknown", "nowhere")),
            ({"preset": "huge"}, ("preset-unknown", "preset")),
            ({"epochs": -1.0}, ("setting-not-positive", "epochs")),
            ({"optimizer": "newton"}, ("optimizer-unknown", "newton")),
            ({"public": "nothing:x"}, ("data-unknown", "nothing")),
        ],
    )
    def test_impossible_grids_are_refused_before_anything_runs(self, grid, words):
        with refused(*words):
            bound("000/table2", Request(data=("synthetic:ward",), grid=GridRequest(**grid)))

    @pytest.mark.parametrize("data", [(), ("lspet:absent",), ("synthetic:ward", "synthetic:studio"), ("lspet",)])
    def test_data_must_be_one_and_there(self, data):
        with refused(("data-given-several", "data-root-missing", "folder-missing")):
            bound("lspet-dp", Request(data=data))


def made_up_of_views(model, units):
    found = REAL_PEOPLE(model, units)
    if isinstance(units, PublicViews):
        found = replace(found, predicted=found.true)
    return found


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A small grid that later tests only read; the scores of public views are made up."""
    folder = tmp_path_factory.mktemp("grid")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic_module, "SPLITS", SMALL)
        patch.setattr(testing, "people", made_up_of_views)
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        asked = request(epsilons=(0.8,), clip_norms=(0.1,))
        outcomes = reproduce("000/table2", asked, folder / "out", QUIET)
        verified = verify_run(folder / "out" / "runs" / "dp-sgd-finetune-C0.1-eps0.8-run1")
    return folder / "out", outcomes, verified


class TestRun:
    @pytest.mark.slow
    def test_every_cell_is_a_run_with_its_own_statement(self, ran):
        out, outcomes, verified = ran
        done = {o.cell.key: o.values for o in outcomes if o.status == "done"}
        private = "dp-sgd-finetune-C0.1-eps0.8-run1"
        assert set(done) == {"start", "non-private-finetune-run1", "public-only-finetune-run1", private}
        statement = json.loads((out / "runs" / private / "privacy.json").read_text())
        assert statement["kind"] == done[private]["kind"] == "private"
        assert float(statement["epsilon"]) == done[private]["epsilon"] <= 0.8
        assert verified
        assert done["non-private-finetune-run1"]["epsilon"] is None
        # every score on held-out private data is listed, and outside the guarantee
        queries = [q["data"] for q in statement["queries"]]
        assert any("upright" in q for q in queries)
        assert len(queries) == 2
        assert not any(q["covered"] for q in statement["queries"])

    def test_scores_are_those_of_the_ordinary_evaluation(self, ran):
        out, outcomes, _ = ran
        for outcome in outcomes:
            if outcome.status == "done" and outcome.cell.key != "start":
                folder = out / "runs" / outcome.cell.key / "evaluations"
                kept = json.loads((folder / "synthetic_ward_test-16.json").read_text())
                assert kept["result"]["columns"] == pytest.approx(outcome.values["columns"])
                assert outcome.values["upright_people"] <= outcome.values["people"] == SMALL["test"]

    def test_public_only_is_tested_on_both_kinds_of_pictures(self, ran):
        out, outcomes, _ = ran
        (values,) = (o.values for o in outcomes if o.cell.key == "public-only-finetune-run1")
        assert values["view_columns"]["Mean"] == 100 > values["columns"]["Mean"]
        told = (out / "results.md").read_text()
        assert "public-only, tested on sharp pictures" in told
        assert "public-only, tested on public views" in told

    def test_the_page_has_the_papers_number_ours_and_the_difference(self, ran):
        out, outcomes, _ = ran
        (ours,) = (o.values["columns"]["Mean"] for o in outcomes if o.status == "done" and o.cell.settings["epsilon"])
        table = (out / "results.md").read_text()
        assert f"49.93 / {ours:.2f} / {ours - 49.93:+.2f}" in table
        assert "5.94 / not run" in table
        assert "protect no one" not in table
        assert (out / "000-table2-curves.png").exists()
        # what was found of single people of private data stays out of the run folders, which travel
        assert (out / "people").is_dir()
        assert not list((out / "runs").rglob("people*"))

    def test_done_cells_are_kept_and_another_grid_is_refused(self, ran, monkeypatch):
        out, before, _ = ran
        monkeypatch.setattr(grids, "run_training", lambda *_: pytest.fail("was done"))
        again = reproduce("000/table2", request(epsilons=(0.8,), clip_norms=(0.1,)), out, QUIET)
        assert [o.values for o in again] == [o.values for o in before]
        with refused("results-of-other-settings", where="epochs"):
            reproduce("000/table2", request(epochs=3.0), out, QUIET)


class TestStopped:
    def test_the_cell_in_the_middle_is_gone_on_with_at_no_cost(self, tmp_path, monkeypatch):
        real, calls = step.private_gradient, []

        def die(*arguments, **named):
            calls.append(1)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return real(*arguments, **named)

        monkeypatch.setattr(step, "private_gradient", die)
        asked = only(epochs=2.0)
        with pytest.raises(KeyboardInterrupt):
            reproduce("000/table2", asked, tmp_path / "out", QUIET)
        run = tmp_path / "out" / "runs" / "dp-sgd-finetune-C0.1-eps0.8-run1"
        assert (run / "ledger.jsonl").exists()
        assert not (run / "model.safetensors").exists()
        assert "not run" in (tmp_path / "out" / "results.md").read_text()
        outcomes = reproduce("000/table2", asked, tmp_path / "out", QUIET)
        (values,) = (o.values for o in outcomes if o.status == "done" and o.cell.settings["epsilon"])
        assert values["steps"] == 4
        assert "open" in [json.loads(x)["type"] for x in (run / "ledger.jsonl").read_text().splitlines()]
        assert "taken up again" not in (run / "privacy.json").read_text()
        assert verify_run(run)

    def test_a_run_that_saved_nothing_begins_anew_but_never_past_a_ledger(self, tmp_path, monkeypatch):
        grid = bound("000/table2", only())
        training = Training("dp-sgd", "finetune", 0.1, 0.8)
        run = tmp_path / "runs" / training.key
        called = []

        class Ended:
            interrupted = False

        def train(config, folder, console, command):
            assert not folder.exists()
            called.append("anew")
            return Ended()

        def resume(folder, console):
            called.append("resume")
            return Ended()

        monkeypatch.setattr(running, "train_run", train)
        monkeypatch.setattr(running, "resume_task", resume)
        run.mkdir(parents=True)
        (run / "config.json").write_text("{")
        running._train(grid.setup, training, run, tmp_path, "")
        run.mkdir(parents=True)
        (run / "ledger.jsonl").write_text("")
        running._train(grid.setup, training, run, tmp_path, "")
        assert called == ["anew", "resume"]
        assert (run / "ledger.jsonl").exists()

    def test_a_run_of_another_recipe_is_not_taken_for_this_one(self, tmp_path, monkeypatch):
        grid = bound("ward-dp-1", only())
        training = Training("recommended", "finetune", None, 0.8)
        run = tmp_path / "runs" / training.key
        run.mkdir(parents=True)
        before = resolved(grid.setup.config(training, tmp_path))
        content = {"run": before.to_dict(), "task": "pose", "model": {}}
        (run / "config.json").write_text(json.dumps(content))
        (run / "ledger.jsonl").write_text("")
        resumed = []

        class Ended:
            interrupted = False

        monkeypatch.setattr(running, "resume_task", lambda *_: resumed.append(1) or Ended())
        running._train(grid.setup, training, run, tmp_path, "")
        assert resumed
        recipe = RECIPES[RECOMMENDED].private
        lr = {**recipe["optimizer"], "lr": 0.5}
        monkeypatch.setitem(recipe, "optimizer", lr)
        with refused("run-of-other-settings"):
            running._train(grid.setup, training, run, tmp_path, "")
        cells = {cell.key: cell.settings for cell in grid.cells}
        assert cells[training.key]["recipe"]["optimizer"]["lr"] == pytest.approx(0.5 * 0.1**0.5)

    def test_a_stopped_training_stops_the_grid(self, tmp_path, monkeypatch):
        class Ended:
            interrupted = True

        monkeypatch.setattr(running, "train_run", lambda *_, **__: Ended())
        with pytest.raises(KeyboardInterrupt):
            reproduce("000/table2", only(), tmp_path / "out", QUIET)

    def test_an_impossible_cell_costs_no_other(self, tmp_path):
        # eight public units cannot span fifty directions
        asked = request(methods=("dp-sgd", "pdp-sgd"), epsilons=(0.8,), clip_norms=(0.1,))
        outcomes = reproduce("000/figure1", asked, tmp_path / "out", QUIET)
        found = {o.cell.settings["method"]: o for o in outcomes if o.cell.wanted}
        assert found["dp-sgd"].status == "done"
        assert found["pdp-sgd"].status == "failed"
        assert "public units" in found["pdp-sgd"].error
        assert "77.41 / failed" in (tmp_path / "out" / "results.md").read_text()

    def test_a_cell_starts_from_no_weights_that_learnt_from_the_private_pictures(self, tmp_path):
        plain = {"data": {"private": "synthetic:ward"}, "plan": {"method": "non-private", "steps": 1}}
        train_run(RunConfig.from_dict(plain), tmp_path / "plain", QUIET)
        outcomes = reproduce("000/table2", only(init=str(tmp_path / "plain")), tmp_path / "out", QUIET)
        (found,) = (o for o in outcomes if o.cell.wanted and o.cell.settings["method"] == "dp-sgd")
        assert found.status == "failed"
        assert "without a guarantee" in found.error

    @pytest.mark.slow
    def test_a_budget_that_no_noise_meets_costs_no_other(self, tmp_path):
        asked = request(methods=("dp-sgd",), epsilons=(1e-7, 0.8), clip_norms=(0.1,))
        outcomes = reproduce("000/table2", asked, tmp_path / "out", QUIET)
        found = {o.cell.settings["epsilon"]: o for o in outcomes if o.cell.wanted}
        assert found[0.8].status == "done"
        assert found[1e-7].status == "failed"
        assert "epsilon" in found[1e-7].error
        assert len(found[1e-7].error.splitlines()) == 1

    def test_a_full_disk_stops_whichever_call_finds_it(self, tmp_path, monkeypatch):
        def run(*_):
            raise OSError(errno.ENOSPC, "No space left on device", "runs")

        monkeypatch.setattr(grids, "run_training", run)
        with refused("disk-full"):
            reproduce("000/table2", only(), tmp_path / "out", QUIET)

    def test_a_preset_without_weights_is_told_in_a_line(self, tmp_path):
        grid = bound("ward-dp-1", only(preset="5m"))
        with refused("public-weights-missing", where="5m"):
            grid.setup.config(Training(RECOMMENDED, "finetune", None, 8.0), tmp_path)

    def test_a_failed_start_fails_what_needs_it_and_nothing_else(self, tmp_path, monkeypatch):
        (tmp_path / "lspet").mkdir()

        def run(setup, training, folder, command):
            if training.method == START:
                raise DposeError("file-missing", "no such file", "joints.mat")
            return {**fake(Cell(training.key, training.values)).values}

        monkeypatch.setattr(grids, "run_training", run)
        asked = Request(
            data=(f"lspet:{tmp_path / 'lspet'}",), grid=GridRequest(core=True, strategies=("finetune", "scratch"))
        )
        outcomes = {o.cell.key: o for o in reproduce("lspet-dp", asked, tmp_path / "out", QUIET)}
        assert outcomes["start"].error.startswith("joints.mat")
        assert outcomes["dp-sgd-finetune-C1-eps8-run1"].error == "needs the cell start, which failed"
        assert outcomes["dp-sgd-scratch-C1-eps8-run1"].status == "done"

    def test_a_full_disk_stops_with_what_is_done(self, tmp_path, monkeypatch):
        calls = []

        def run(setup, training, folder, command):
            calls.append(training.method)
            if training.method == "public-only":
                try:
                    raise OSError(errno.ENOSPC, "No space left on device")
                except OSError as error:
                    raise DposeError("disk-full", "no space left on the disk", "x") from error
            return fake(Cell(training.key, training.values)).values

        monkeypatch.setattr(grids, "run_training", run)
        with refused("disk-full"):
            reproduce("000/table2", request(), tmp_path / "out", QUIET)
        assert calls == [START, "non-private", "public-only"]
        assert {p.stem for p in (tmp_path / "out" / "cells").iterdir()} == {"start", "non-private-finetune-run1"}
        assert "89.36" not in (tmp_path / "out" / "results.md").read_text()


class TestShown:
    def shown(self, name, asked=None, mean=lambda cell: 50.0):
        grid = bound(name, asked)
        return grid.show([fake(c, mean(c)) if c.wanted else Outcome(c) for c in grid.cells])

    def row(self, findings, title, table=0):
        return next(r for r in findings.tables[table].rows if r[0].startswith(title))

    def test_the_papers_layout(self):
        found = self.shown("000/table2")
        head = found.tables[0].head
        assert head[1:] == ("Head", "Shoulder", "Elbow", "Wrist", "Hip", "Knee", "Ankle", "Mean", "Mean@0.1")
        titles = [row[0] for row in found.tables[0].rows]
        assert [t for t in titles if t.startswith("C =")] == ["C = 1", "C = 0.1", "C = 0.01"] * 3
        assert titles.count("epsilon = 0.2") == 9
        strategies = ["Finetuning", "Finetuning from scratch", "Training from scratch"]
        assert [t for t in titles if t in strategies] == strategies
        assert self.row(found, "epsilon = 0.2")[8] == "5.94 / 50.00 / +44.06"

    def test_repetitions_are_means_with_deviations_and_error_bars(self):
        found = self.shown("000/table2", request(repeat=2), lambda c: 40.0 + 2 * c.settings["repetition"])
        assert self.row(found, "epsilon = 0.2")[8] == "5.94 / 43.00 ± 1.41 / +37.06"
        assert "standard deviations" in found.figures[0].caption

    def test_rows_that_look_misprinted_get_no_difference(self, tmp_path):
        asked = request(strategies=("scratch",), clip_norms=(0.1,), epsilons=(0.2, 0.4))
        grid = bound("003/humanart-pdp", asked)
        outcomes = [
            fake(c, metric="OKS AP", columns={"AP": 9.0, "AR75": 8.0}) if c.wanted else Outcome(c) for c in grid.cells
        ]
        found = grid.show(outcomes)
        assert any("need PCKh" in note for note in found.notes)
        rows = [r for r in found.tables[0].rows if r[1].endswith("9.00") or "9.00 /" in r[1]]
        assert "0.1 / 9.00" in [r[1] for r in rows]
        assert "0.1 / 9.00 / +8.88" in [r[1] for r in rows]

    def test_numbers_of_another_metric_are_not_compared(self):
        found = self.shown("003/humanart-dp", request())
        assert self.row(found, "epsilon = 0.2")[1].endswith("/ -")
        assert "in the metric of these data" in found.tables[1].title

    @pytest.mark.parametrize(
        ("name", "kinds"),
        [
            ("000/figure1", ["curves", "heat"]),
            ("003/humanart-fpdp", ["curves", "heat"]),
            ("ward-dp-1", ["curves"]),  # one C by epsilon is a curve
        ],
    )
    @pytest.mark.usefixtures("drawn")
    def test_curves_and_heat_maps_are_drawn(self, name, kinds):
        asked = request(epsilons=(0.2, 0.8))
        found = self.shown(name, asked, lambda c: 30 + 9 * (c.settings["epsilon"] or 0))
        assert [d.name.rsplit("-", 1)[1] for d in found.figures] == kinds
        for drawing in found.figures:
            assert decode_image(drawing.png, drawing.name).std() > 5

    def test_curves_of_the_recipe_alone_need_no_clipping_norm(self):
        asked = request(methods=(RECOMMENDED,), epsilons=(0.8, 8.0))
        found = self.shown("ward-dp-1", asked)
        assert [d.name.rsplit("-", 1)[1] for d in found.figures] == ["curves"]

    @pytest.fixture
    def sheets(self, monkeypatch):
        """Figures as they are drawn."""
        kept = []

        def keep(name, figure, caption):
            kept.append(figure)
            return Figure(name, b"", caption)

        monkeypatch.setattr(figures, "rendered", keep)
        return kept

    def test_a_panel_of_common_settings_has_the_ceiling_and_the_two_epochs_too(self, sheets):
        def mean(cell):
            ceiling = cell.settings["strategy"] == "own" and cell.settings["method"] == "non-private"
            return {START: 40.0, "non-private": 48.0 if ceiling else 43.0}.get(cell.settings["method"], 42.0)

        grid = bound("ward-dp-1", Request(data=("synthetic:ward",)))
        common = [c for c in grid.cells if c.settings["strategy"] == "finetune" or c.key == START]
        ceiling = [c for c in grid.cells if c.key == "non-private-own-run1"]
        for cells, flat in (
            ([*common, *ceiling], {"ceiling": 48.0, "non-private": 43.0}),
            (common, {"non-private": 43.0}),
        ):
            grid.show([fake(c, mean(c)) for c in cells])
            (panel,) = sheets.pop().axes
            lines = dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
            assert {k: lines[k].get_ydata()[0] for k in ("ceiling", "non-private") if k in lines} == flat

    @pytest.mark.parametrize(("slope", "told"), [(2.0, "public-only, public views"), (0.2, "12.0, below")])
    def test_the_recipe_and_own_settings_share_a_panel_and_its_scale(self, slope, told, sheets):
        def mean(cell):
            return 21.0 + slope * (cell.settings["epsilon"] or 0.0)  # public views: 12

        self.shown("ward-dp-1", Request(data=("synthetic:ward",), grid=GridRequest(core=True)), mean)
        (panel,) = sheets[0].axes
        labels = panel.get_legend_handles_labels()[1]
        assert {"recommended", "dp-sgd"} <= set(labels)
        assert any(label.endswith(told) for label in labels)

    def test_notes_say_the_oddities_and_who_is_protected(self):
        notes = " ".join(self.shown("003/appendix-fpdp", request()).notes)
        assert "82.62" in notes
        assert "fresh keys" in notes
        assert "protect no one" in " ".join(self.shown("003/appendix-fpdp", request(seed=1)).notes)

    def test_a_benchmark_has_a_row_a_training(self):
        found = self.shown("ward-dp-1", Request(data=("synthetic:ward",), grid=GridRequest(core=True)))
        titles = [row[0] for row in found.tables[0].rows]
        assert titles[:4] == [
            "the starting model, as it is",
            "the ceiling: non-private, own settings",
            "public-only, own, tested on sharp pictures",
            "public-only, own, tested on public views",
        ]
        assert "fpdp-sgd, own, C = 1, epsilon = 8" in titles
        assert self.row(found, "pdp-sgd, own, C = 1, epsilon = 0.2, 3")[1] == "not run"
        assert not any("finetune" in title for title in titles)
        # what was run before methods had settings of their own still has its rows
        grid = bound("ward-dp-1", Request(data=("synthetic:ward",), grid=GridRequest(core=True)))
        before = "dp-sgd-finetune-C1-eps8-run1"
        known = grid.show([fake(c) if c.wanted or c.key == before else Outcome(c) for c in grid.cells])
        assert self.row(known, "dp-sgd, finetune, C = 1, epsilon = 8")[1] == "50.00"
        assert self.row(known, "dp-sgd, finetune, C = 1, epsilon = 0.2, 0.8, 3")[1] == "not run"
        assert self.row(known, "fdp-sgd, finetune, C = 1, epsilon = 0.2, 0.8, 3, 8")[1] == "not run"

    def test_the_recovered_share_is_of_the_way_from_start_to_ceiling(self):
        def mean(cell):
            way = {START: 40.0, "non-private": 48.0, "dp-sgd": 42.0, "fdp-sgd": 38.0}
            return way.get(cell.settings["method"], 44.0)

        found = self.shown("ward-dp-1", Request(data=("synthetic:ward",), grid=GridRequest(core=True)), mean)
        assert found.tables[0].head[-1] == "recovered share"
        for title, share in {
            "the starting": "0 %",
            "the ceiling": "100 %",
            "dp-sgd, own, C = 1, epsilon = 8": "25 %",
            "fdp-sgd, own, C = 1, epsilon = 8": "-25 %",
            "the recipe, epsilon = 8": "50 %",
            "pdp-sgd, own, C = 1, epsilon = 0.2, 3": "not run",
        }.items():
            assert self.row(found, title)[-1] == share
        # without a ceiling, or with one below the start, there is no such column
        flat = self.shown("ward-dp-1", Request(data=("synthetic:ward",), grid=GridRequest(core=True)))
        assert flat.tables[0].head[-1] == "Mean@0.1"
        own = "dp-sgd: sgd 0.1, adamw 0.002 from epsilon 3 on, sgd 0.5 from epsilon 8 on"
        assert any(own in note for note in found.notes)

    def test_which_settings_a_benchmark_runs_and_how_often(self):
        cells = bound("ward-dp-1", Request(data=("synthetic:ward",), grid=GridRequest(core=True))).cells
        wanted = Counter((c.settings["method"], c.settings["epsilon"]) for c in cells if c.wanted)
        assert wanted["non-private", None] == wanted[RECOMMENDED, 8.0] == wanted[RECOMMENDED, 0.8] == 3
        assert wanted[RECOMMENDED, 0.2] == wanted["dp-sgd", 0.2] == wanted["pdp-sgd", 8.0] == 1
        assert wanted["pdp-sgd", 0.2] == 0
        assert {c.settings["strategy"] for c in cells if c.wanted} == {START, "own", "finetune"}

    def test_own_settings_are_a_methods_alone_and_by_budget(self):
        grid = bound("ward-dp-1", Request(data=("synthetic:ward",)))
        loud, quiet = (grid.setup.config(Training("dp-sgd", "own", 1.0, e), grid.folder) for e in (8.0, 0.8))
        ceiling = grid.setup.config(Training("non-private", "own"), grid.folder)
        assert loud.optimizer.lr > quiet.optimizer.lr
        assert loud.plan.epsilon == 8.0
        assert (loud.optimizer.name, loud.model.strategy, loud.augment) == ("sgd", "light", "private")
        assert (ceiling.plan.epochs, ceiling.model.strategy, ceiling.plan.epsilon) == (25.0, "full", None)
        assert set(OWN) <= set(METHODS)
        told = {c.key: c.settings for c in grid.cells}["dp-sgd-own-C1-eps8-run1"]
        assert told["own"] == OWN["dp-sgd"][8.0]  # other settings are another cell's

    @pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 8.0])
    def test_from_a_strong_start_methods_take_the_recipes_steps(self, epsilon):
        grid = bound("ward-dp", Request(data=("synthetic:ward",)))
        recipe = in_steps(grid.setup.config(Training(RECOMMENDED, "finetune", None, epsilon), grid.folder), 8000)
        own = grid.setup.config(Training("scaled-sgd", "own", 1.0, epsilon), grid.folder)
        for name in ("epochs", "expected_batch_size", "ema_decay"):
            assert getattr(own.plan, name) == getattr(recipe.plan, name)
        assert (own.optimizer, own.model.strategy) == (recipe.optimizer, recipe.model.strategy)

    def test_rates_are_a_backbones_but_for_the_ceiling_and_the_recipe(self):
        first = str(files.SHIPPED / "nano")
        asked = Request(data=("synthetic:ward",), grid=GridRequest(core=True, preset="lite0", init=first))
        grid, rate = bound("ward-dp-1", asked), RATES["lite0"]
        loud = grid.setup.config(Training("dp-sgd", "own", 1.0, 8.0), grid.folder)
        ceiling = grid.setup.config(Training("non-private", "own"), grid.folder)
        recipe = grid.setup.config(Training(RECOMMENDED, "finetune", None, 8.0), grid.folder)
        assert loud.optimizer.lr == pytest.approx(rate * OWN["dp-sgd"][8.0]["optimizer"]["lr"])
        assert ceiling.optimizer.lr == OWN["non-private"][0.0]["optimizer"]["lr"]
        assert recipe.optimizer.lr == RECIPES[RECOMMENDED].private["optimizer"]["lr"]
        told = {c.key: c.settings for c in grid.cells}["dp-sgd-own-C1-eps8-run1"]
        assert told["own"]["optimizer"]["lr"] == loud.optimizer.lr
        assert any("lite0 rates are multiplied by 0.2" in note for note in grid.show([]).notes)

    @pytest.mark.parametrize("preset", ["nano", "lite0"])
    @pytest.mark.parametrize("method", ["dp-head", "adassp-head"])
    def test_a_correction_trains_the_head_alone_from_weak_starts_too(self, method, preset):
        grid = bound("ward-dp-1", Request(data=("synthetic:ward",), grid=GridRequest(core=True, preset=preset)))
        own = grid.setup.config(Training(method, "own", 1.0, 1.0), grid.folder)
        assert (own.plan.method, own.model.strategy) == (method, "head")

    def test_a_cell_is_told_when_it_ends(self):
        cell = Cell("dp-sgd-finetune-C0.1-eps0.8-run1", Training("dp-sgd", "finetune", 0.1, 0.8).values)
        assert cell_line(fake(cell)) == "dp-sgd-finetune-C0.1-eps0.8-run1: 50.00, epsilon 0.8, 2 s"
        assert cell_line(Outcome(cell, "failed", error="why")).endswith("failed: why")


@pytest.fixture(scope="module")
def repeated(tmp_path_factory):
    """A small benchmark, two runs of each setting and three of the recipe, that later tests only read."""
    folder = tmp_path_factory.mktemp("repeated") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic_module, "SPLITS", SMALL)
        patch.setenv("XDG_STATE_HOME", str(folder.parent / "state"))
        chosen = {"methods": ("public-only", "dp-sgd", RECOMMENDED), "strategies": ("finetune",)}
        asked = request(**chosen, epsilons=(8.0,), repeat=2)
        return folder, asked, reproduce("ward-dp-1", asked, folder, QUIET)


@pytest.mark.slow
class TestDifferences:
    def pairs(self, folder):
        return json.loads((folder / "results.json").read_text())["differences"]["pairs"]

    def test_each_is_the_difference_of_the_published_means(self, repeated):
        folder, _, outcomes = repeated
        means = {t: o.numbers("Mean") for t, o in by_setting(outcomes).items() if o.numbers("Mean")}
        found = {(Training.of(one["training"]), Training.of(one["minus"])): one for one in self.pairs(folder)}
        start = Training(START, START)
        recipe = Training(RECOMMENDED, "finetune", None, 8.0)
        plain, free = Training("dp-sgd", "finetune", 1.0, 8.0), Training("public-only", "finetune")
        assert set(found) == {(recipe, plain), (recipe, free), (recipe, start), (plain, start)}
        for (first, second), one in found.items():
            assert one["value"] == statistics.mean(means[first]) - statistics.mean(means[second])
            assert one["low"] <= one["value"] <= one["high"]
            assert one["images"] == SMALL["test"]
            assert one["runs"] == [3 if first == recipe else 2, 1 if second == start else 2]

    def test_they_stand_in_the_tables_with_the_number_of_runs(self, repeated):
        folder, *_ = repeated
        (one,) = (x for x in self.pairs(folder) if x["minus"]["method"] == "public-only")
        row = (
            "| the recipe, epsilon = 8 | public-only, finetune, tested on sharp pictures | "
            f"{one['value']:+.2f} | {one['low']:+.2f} to {one['high']:+.2f} | {100 * one['at_or_below_0']:.1f} % | "
            "3 and 2 |"
        )
        told = (folder / "results.md").read_text()
        assert row in told
        assert "the randomness of training is not in its interval" in told
        assert f"{one['low']:+.2f} to {one['high']:+.2f}" in (folder / "index.html").read_text()
        assert re.search(r"dp-sgd, finetune, C = 1, epsilon = 8 \|.* ± ", told)

    def test_the_intervals_are_of_as_many_resamples_as_is_told(self, repeated):
        folder, *_ = repeated
        told = json.loads((folder / "results.json").read_text())["differences"]
        (one,) = (x for x in told["pairs"] if x["training"]["method"] == "dp-sgd")
        groups = [f"dp-sgd-finetune-C1-eps8-run{i}" for i in (1, 2)], [START]
        people = folder / "people"
        runs = {key: testing.read_people(people / f"{key}.json") for group in groups for key in group}
        (again,) = differences(runs, [groups], seed=told["seed"], resamples=told["resamples"])
        assert (one["low"], one["high"]) == (again.points.low, again.points.high)
        assert f"{told['resamples']:,} paired resamples" in (folder / "results.md").read_text()

    def test_what_is_not_there_is_told_and_costs_no_other(self, repeated, tmp_path):
        folder, asked, _ = repeated
        copy = tmp_path / "out"
        shutil.copytree(folder, copy)
        lost, odd = "recommended-finetune-eps8-run1", "dp-sgd-finetune-C1-eps8-run1"
        (copy / "people" / f"{lost}.json").unlink()
        (copy / "people" / f"{odd}.json").write_text('{"units": ["a"], "found": [1], "scored": [2]}')
        (copy / "people" / "public-only-finetune-run2.json").write_text("{")
        reproduce("ward-dp-1", asked, copy, QUIET)
        told = (copy / "results.md").read_text()
        (line,) = (x for x in told.splitlines() if "left out of the differences" in x)
        assert all(key in line for key in (lost, odd, "public-only-finetune-run2"))
        assert {tuple(one["runs"]) for one in self.pairs(copy)} == {(2, 1), (1, 1)}

    def test_the_papers_tables_have_none(self, ran):
        out, *_ = ran
        assert "differences" not in json.loads((out / "results.json").read_text())
        assert "differences" not in (out / "results.md").read_text()


def person(head=(0, -10), ankle=(0, 10), labelled=None):
    points = np.zeros((16, 2))
    points[9] = head
    points[[0, 5]] = ankle
    mask = np.ones(16, bool)
    mask[list(labelled or ())] = False
    return points, mask


@pytest.mark.parametrize(
    ("someone", "upright"),
    [
        (person(), True),
        (person(head=(9, -10)), True),
        (person(head=(11, -10)), False),
        (person(head=(0, 10)), False),
        (person(ankle=(0, -1)), False),
        (person(ankle=(0, -1), labelled=(0, 5)), True),
        (person(labelled=(9,)), False),
        (person(labelled=(2,)), False),
    ],
)
def test_upright_is_a_matter_of_labels(someone, upright):
    points, mask = someone
    people = People(("a",), points[None] + 99, points[None], mask[None], np.array([5.0]))
    assert people.upright().tolist() == [upright]


def test_joints_found_are_counted_person_by_person():
    points, mask = person(labelled=(0,))
    guess = points.copy()
    guess[1] += (2.5, 0.0)
    guess[2] += (2.6, 0.0)
    people = People(
        ("a", "b"), np.stack([guess, guess]), np.stack([points] * 2), np.stack([mask] * 2), np.array([5.0, np.nan])
    )
    found, scored = people.correct_joints()
    assert scored.tolist() == [13, 0]
    assert found.tolist() == [12, 0]
    assert people.score().mean(0.5) == pytest.approx(100 * 12 / 13)


def test_a_grid_is_bound_without_opening_pictures(monkeypatch):
    monkeypatch.setattr(synthetic_module, "render_person", lambda *_, **__: pytest.fail("rendered"))
    assert isinstance(bound("000/table2"), TrainingGrid)
