"""Ablations: the recipe with one thing changed at a time, on a split that no benchmark reports."""

import functools
import json
from dataclasses import replace

import cv2
import numpy as np
import pytest
import scipy.io
from rich.console import Console

import dpose_scene.data as synthetic_module
from dpose.account import EVALUATION, charges
from dpose.media.images import write_image
from dpose.pose.data import SOURCES
from dpose.runs.config import RECIPES, RunConfig
from dpose.runs.evaluate import evaluate_run
from dpose.runs.verify import verify_run
from dpose_lab.papers.experiment import GridRequest, Request
from dpose_lab.papers.pose import ablation
from dpose_lab.papers.pose import grid as grids
from dpose_lab.papers.pose.catalogue import DESIGNS
from dpose_lab.papers.pose.training_cell import RECOMMENDED, START, Training
from dpose_lab.papers.pose.variants import VARIANTS, changes
from dpose_lab.papers.registry import EXPERIMENTS
from dpose_lab.papers.reproduce import reproduce
from refusals import refused
from small_nano import small_nano  # noqa: F401

QUIET = Console(quiet=True)
SMALL = {"train": 40, "val": 16, "test": 16, "public": 8}
SPLITS = {"public": (1, 4), "private": (5, 16), "validation": (17, 18)}
PARTS = {"choosing-train": (5, 11), "choosing-test": (12, 16)}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(synthetic_module, "SPLITS", SMALL)


def bound(data="synthetic:ward", name="ward-dp-1-ablation", **grid):
    return EXPERIMENTS[name].bind(Request(data=(data,), grid=GridRequest(**grid)))


def configs(epsilon=8.0):
    grid = bound()
    setup = replace(grid.setup, temperature=1.5)  # as behind a public stage
    recipe = Training(RECOMMENDED, "finetune", None, epsilon)
    return setup.config(recipe, grid.folder), {
        name: setup.config(replace(recipe, variant=name), grid.folder) for name in VARIANTS
    }


class TestVariants:
    def test_each_changes_what_it_says_and_nothing_else(self):
        recipe, found = configs()
        known = {
            "quarter-passes": {"plan.epochs"},
            "half-passes": {"plan.epochs"},
            "quarter-batch": {"plan.expected_batch_size"},
            "no-averaging": {"plan.ema_decay"},
            "lr-times-3": {"optimizer.lr"},
            "lr-third": {"optimizer.lr"},
            "finetune": {"model.strategy"},
            "full": {"model.strategy"},
            "four-views": {"plan.augmentation_multiplicity", "augment"},
            "tenth-clip": {"plan.clip_norm"},
            "normalise": {"plan.normalise"},
            "untempered": {"model.temperature"},
            "projected": {"plan.method"},
            "scaled": {"plan.method"},
        }
        assert set(known) == set(VARIANTS)
        for name, config in found.items():
            changed = {line.partition(":")[0] for line in changes(recipe, config)}
            assert changed <= known[name]
            assert changed or name == "normalise"  # at C = 1 there is nothing to divide by
        for fitted in ("projected", "scaled"):
            assert found[fitted].data.public == "synthetic:ward:public"
        assert found["full"].data.public is None
        assert (found["full"].recipe, found["full"].plan.epsilon) == (RECOMMENDED, 8.0)

    @pytest.mark.parametrize("epsilon", [0.8, 8.0])
    def test_they_follow_the_recipe_when_it_changes(self, epsilon, monkeypatch):
        other = {
            "model": {"strategy": "full"},
            "plan": {"method": "dp-sgd", "steps": 30, "expected_batch_size": 400, "clip_norm": 0.5},
            "optimizer": {"name": "sgd", "lr": 0.2},
        }
        monkeypatch.setitem(RECIPES, RECOMMENDED, replace(RECIPES[RECOMMENDED], private=other))
        recipe, found = configs(epsilon)
        assert found["half-passes"].plan.steps == 15
        quarter = found["quarter-batch"].plan
        assert (quarter.expected_batch_size, quarter.steps) == (100, 120)
        assert found["lr-third"].optimizer.lr == pytest.approx(recipe.optimizer.lr / 3)
        assert found["tenth-clip"].plan.clip_norm == pytest.approx(0.05)
        assert found["normalise"].plan.normalise != recipe.plan.normalise
        assert found["full"] == recipe
        grid = bound(epsilons=(epsilon,))
        rows = {c.settings.get("variant", "") for c in grid.cells}
        assert "full" not in rows
        assert "no-averaging" not in rows
        assert "normalise" in rows
        (table,) = (t for t in grid.show([]).tables if t.title.startswith("the variants"))
        told = {row[1]: row[3] for row in table.rows}
        assert told["full"].startswith("nothing")
        assert told["half-passes"] == "plan.steps: 30 to 15"

    def test_a_setting_without_a_variant_is_written_as_before(self):
        plain = Training("dp-sgd", "finetune", 1.0, 8.0)
        assert "variant" not in plain.values
        for training in (plain, Training(RECOMMENDED, "finetune", None, 8.0, 2, "full")):
            assert Training.of(training.values) == training


class TestGrid:
    def test_the_recipe_is_always_run_and_variants_as_asked(self):
        cells = bound(core=True, variants=("lr-third",), repeat=2).cells
        wanted = [c.key for c in cells if c.wanted]
        recipe = [f"recommended-finetune-eps8-run{k}" for k in (1, 2)]
        assert wanted == ["start", *recipe, *(f"lr-third-eps8-run{k}" for k in (1, 2))]
        assert len({c.key for c in cells}) == len(cells)
        everything = {c.settings["epsilon"] for c in bound().cells if c.wanted and c.key != START}
        assert everything == {0.8, 8.0}

    def test_it_trains_and_tests_on_the_splits_for_choosing(self, tmp_path):
        assert (bound().setup.data, bound().setup.evaluate) == ("synthetic:ward:train", "synthetic:ward:val")
        grid = bound(f"lspet:{tmp_path}", "lspet-dp-ablation")
        assert grid.setup.data.endswith(":choosing-train")
        assert grid.setup.evaluate.endswith(":choosing-test")
        assert grid.setup.pretrain.endswith(":public")
        reported = {d.name: EXPERIMENTS[d.name] for d in DESIGNS if d.name in ("lspet-dp", "ward-dp-1")}
        for name, data in (("lspet-dp", f"lspet:{tmp_path}"), ("ward-dp-1", "synthetic:ward")):
            benchmark = reported[name].bind(Request(data=(data,)))
            assert benchmark.setup.evaluate != bound(data, f"{name}-ablation").setup.evaluate

    @pytest.mark.parametrize(
        ("data", "grid", "words"),
        [
            ("synthetic:ward:test", {}, ("ablation-split-given",)),
            ("lspet:{0}:private", {}, ("ablation-split-given", "choosing-train")),
            ("mpii:{0}", {}, ("split-for-choosing-missing",)),
            ("synthetic:ward", {"evaluate": "synthetic:ward:test"}, ("ablation-setting-fixed", "evaluate")),
            ("synthetic:ward", {"methods": ("dp-sgd",)}, ("ablation-setting-fixed", "methods")),
            ("synthetic:ward", {"lr": 0.1}, ("ablation-setting-fixed", "lr")),
            ("synthetic:ward", {"epochs": 3.0}, ("ablation-setting-fixed", "epochs")),
            ("synthetic:ward", {"variants": ("none",)}, ("variant-unknown", "lr-third")),
        ],
    )
    def test_other_splits_and_settings_are_refused(self, data, grid, words, tmp_path):
        with refused(*words):
            bound(data.format(tmp_path), **grid)

    def test_other_grids_have_no_variants(self):
        with refused("option-needs-ablation"):
            bound(name="ward-dp-1", variants=("full",))

    def test_another_recipe_is_another_table(self, monkeypatch):
        before = bound().settings
        assert "lr" not in before  # a setting of the other grids, which no cell here reads
        other = replace(RECIPES[RECOMMENDED], quiet_epsilon=1.0)
        monkeypatch.setitem(RECIPES, RECOMMENDED, other)
        assert bound().settings != before


class TestRun:
    @pytest.mark.slow
    def test_a_small_one_and_one_row_more_later(self, tmp_path, monkeypatch):
        def run(*variants):
            asked = GridRequest(core=True, variants=variants)
            data = ("synthetic:ward",)
            outcomes = reproduce("ward-dp-1-ablation", Request(data=data, grid=asked), tmp_path / "out", QUIET)
            return {o.cell.key: o.values for o in outcomes if o.status == "done"}

        one = run("quarter-passes")
        assert set(one) == {"start", "recommended-finetune-eps8-run1", "quarter-passes-eps8-run1"}
        steps = [one[key]["steps"] for key in ("recommended-finetune-eps8-run1", "quarter-passes-eps8-run1")]
        assert steps[0] == 4 * steps[1]
        assert verify_run(tmp_path / "out" / "runs" / "quarter-passes-eps8-run1")
        told = (tmp_path / "out" / "results.md").read_text()
        assert "a quarter of the passes, epsilon = 8 | the recipe, epsilon = 8 |" in told
        assert "which no benchmark reports" in told
        passes = RECIPES[RECOMMENDED].private["plan"]["epochs"]
        assert f"plan.epochs: {passes:g} to {passes / 4:g}" in told
        assert "rendered and stand for private ones" in told
        pairs = json.loads((tmp_path / "out" / "results.json").read_text())["differences"]["pairs"]
        assert [(p["training"].get("variant"), p["minus"]["method"]) for p in pairs] == [
            (None, START),
            ("quarter-passes", RECOMMENDED),
        ]
        real, ran = grids.run_training, []

        def watched(setup, training, *others):
            ran.append(training.key)
            return real(setup, training, *others)

        monkeypatch.setattr(grids, "run_training", watched)
        both = run("quarter-passes", "lr-third")
        assert ran == ["lr-third-eps8-run1"]
        assert {key: both[key] for key in one} == one

    def test_a_score_on_private_pictures_is_listed_charged_and_told(self, tmp_path, monkeypatch):
        root = lspet_at(tmp_path)
        small = functools.partial(SOURCES["lspet"].labels, splits=SPLITS, parts=PARTS)
        monkeypatch.setitem(SOURCES, "lspet", replace(SOURCES["lspet"], labels=small))
        asked = GridRequest(core=True, variants=("quarter-passes",), init="nano")
        out = tmp_path / "out"
        reproduce("lspet-dp-ablation", Request(data=(f"lspet:{root}",), grid=asked), out, QUIET)
        run = out / "runs" / "quarter-passes-eps8-run1"
        statement = json.loads((run / "privacy.json").read_text())
        assert statement["n"] == 7
        assert {q["data"].partition(",")[0] for q in statement["queries"]} == {"lspet:lspet:choosing-test"}
        assert not any(q["covered"] for q in statement["queries"])
        assert {c.data for c in charges() if c.what == EVALUATION} == {"lspet:lspet:choosing-test"}
        told = (out / "results.md").read_text()
        assert "are private, a part of the private split: every score and interval here is a use of them" in told
        assert "no setting was chosen" not in told
        # the whole split holds what this run protects
        with refused("scored-data-protected"):
            evaluate_run(run, f"lspet:{root}:private", console=QUIET)


def lspet_at(folder):
    rng = np.random.default_rng(0)
    labels = np.ones((14, 3, 18))
    labels[:, 0], labels[:, 1] = rng.uniform(20, 80, (14, 18)), rng.uniform(20, 100, (14, 18))
    for number in range(1, 19):
        noise = rng.integers(0, 256, (120, 100, 3), np.uint8).astype(np.float32)
        image = cv2.normalize(cv2.GaussianBlur(noise, (0, 0), 9), None, 0, 255, cv2.NORM_MINMAX)
        write_image(folder / "lspet" / "images" / f"im{number:05d}.jpg", image.astype(np.uint8))
    scipy.io.savemat(folder / "lspet" / "joints.mat", {"joints": labels})
    return folder / "lspet"


def test_the_settings_table_hides_where_data_are():
    one = RunConfig.from_dict({"data": {"private": "synthetic:ward"}, "plan": {"method": "non-private"}})
    other = RunConfig.from_dict({"data": {"private": "lspet:/home/me"}, "plan": {"method": "non-private"}})
    assert changes(one, other) == []
    assert ablation.is_idle(bound().setup, Training(RECOMMENDED, "finetune", None, 8.0), bound().folder) is False
