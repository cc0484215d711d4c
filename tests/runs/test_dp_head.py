"""Runs of dp-head: what is fitted is public, the run adds up and verifies, and what does not fit is refused."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from rich.console import Console

from dpose.cli import main
from dpose.pose.folder import load_model
from dpose.pose.task import PoseTask
from dpose.privacy.noise import AesNoise, Key
from dpose.runs import build, pose
from dpose.runs.build import open_units
from dpose.runs.config import RunConfig
from dpose.training import dry_run, step
from dpose.training.closed_form import SecondMoment
from dpose.training.gradients import trainable_params
from dpose.training.loader import Loader
from dpose.training.run import Run
from refusals import refused
from twice import Twice

PLAN = {"method": "dp-head", "epsilon": 2.0, "delta": 1e-4}


def config(plan=None, model=None, **data):
    return RunConfig.from_dict(
        {
            "data": {"private": "synthetic:ward", "limit": 12, **data},
            "plan": {**PLAN, **(plan or {})},
            "model": {"preset": "nano", **(model or {})},
        }
    )


def fitted(limit):
    return pose.prepare(config(limit=limit), Console(quiet=True))


@pytest.fixture(scope="module")
def prepared():
    return fitted(12)


def test_what_is_fitted_knows_public_people_alone(prepared):
    """Other private people leave centre, directions, scale and rates as they are, to the last bit."""
    other = fitted(15)
    for name in ("mean", "basis", "facts"):
        assert torch.equal(getattr(prepared.model.head, name), getattr(other.model.head, name))


def test_the_public_split_is_read_where_nothing_is_said(prepared):
    assert prepared.config.data.public == "synthetic:ward:public"
    assert prepared.public is not None
    assert [name for name, p in prepared.model.named_parameters() if p.requires_grad] == ["head.moves.weight"]


@pytest.mark.parametrize("method", ["dp-head", "adassp-head"])
def test_the_benchmark_solves_from_what_a_run_sums(method, monkeypatch):
    """Results by number of people rest on statistics of joints that were found once and kept."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import dp_head

    found = pose.prepare(config({"method": method}, {"directions": 4}), Console(quiet=True))
    model, noise = found.model, AesNoise(Key.from_seed(1))
    monkeypatch.setattr(step, "add_noise", lambda sums, event, stream=None: sums)
    task = SecondMoment(found.task) if method == "adassp-head" else found.task
    inputs = step.StepInputs(
        task, model, Loader(task, found.units, noise, 1), found.config.plan.bind(12), noise, b"", 4
    )
    summed = step.private_gradient(inputs, trainable_params(model), 0)["head.moves.weight"]

    base = pose.prepare(config({"method": "dp-sgd"}), Console(quiet=True)).model.eval()
    kept = {name: _kept(dp_head, base, units) for name, units in (("public", found.public), ("private", found.units))}
    bench = dp_head.Benchmark(base, kept)
    mean, moment = dp_head.clipped_means(bench.corrected(4), kept["private"])
    expected = (moment if method == "adassp-head" else mean).detach()
    assert expected.abs().max() > 1e-3
    assert torch.allclose(summed, expected, atol=2e-3 * float(expected.abs().max()))


def _kept(dp_head, base, units):
    parts = {}
    with torch.inference_mode():
        for batch in dp_head.batches(units, 0, len(units)):
            places, _ = base.codec.decode(base(batch.pop("crops")))
            for name, value in {"places": places, **batch}.items():
                parts.setdefault(name, []).append(value)
    return {name: torch.cat(values) for name, values in parts.items()}


def test_a_run_adds_up_and_verifies(tmp_path):
    out = tmp_path / "head"
    chosen = ["train", "--method", "dp-head", "--data", "synthetic:ward", "--limit", "12", "--epsilon", "2"]
    assert main([*chosen, "--delta", "1e-4", "--set", "model.directions=3", "--out", str(out)]) == 0
    assert main(["verify", str(out)]) == 0
    statement = json.loads((out / "privacy.json").read_text())
    (event,) = statement["events"]
    assert (float(event["q"]), event["steps"]) == (1.0, 1)
    assert any("that the correction's directions are fitted on" in str(fact) for fact in statement["public"])
    model = load_model(out)
    assert model.config.directions == 3
    with refused("model-corrected-already"):
        pose.prepare(config(model={"init": str(out), "preset": "nano"}), Console(quiet=True))


def test_a_run_with_a_private_moment_adds_up_and_goes_on_between_its_sums(tmp_path, monkeypatch):
    """Two noised sums, one event of two steps; what the first has released is kept."""
    chosen = ["train", "--method", "adassp-head", "--data", "synthetic:ward", "--limit", "12", "--epsilon", "2"]
    chosen += ["--delta", "1e-4", "--set", "model.directions=3", "--set", "seed=1"]
    looked_at, check = [], dry_run.check_units_apart
    with monkeypatch.context() as looking:
        looking.setattr(
            dry_run, "check_units_apart", lambda task, *given: looked_at.append(type(task)) or check(task, *given)
        )
        assert main([*chosen, "--out", str(tmp_path / "whole")]) == 0
    assert looked_at == [PoseTask, SecondMoment]  # of both sums' losses units are looked at
    assert main(["verify", str(tmp_path / "whole")]) == 0
    (event,) = json.loads((tmp_path / "whole" / "privacy.json").read_text())["events"]
    assert (float(event["q"]), event["steps"]) == (1.0, 2)
    step = Run._step

    def stopped(run, number):
        os.kill(os.getpid(), signal.SIGINT)
        step(run, number)

    with monkeypatch.context() as stopping:
        stopping.setattr(Run, "_step", stopped)
        assert main([*chosen, "--out", str(tmp_path / "stopped")]) == 130
    assert main(["train", "--resume", str(tmp_path / "stopped")]) == 0  # the noised moment is of before
    whole, resumed = (load_model(tmp_path / name).head.moves.weight for name in ("whole", "stopped"))
    assert torch.equal(whole, resumed)
    assert whole.any()


def test_directions_that_come_out_otherwise_when_it_goes_on_are_those_of_the_first_sum(tmp_path, monkeypatch):
    """As on another machine: both sums are of the same features, or their solution is of none."""
    chosen = ["train", "--method", "adassp-head", "--data", "synthetic:ward", "--limit", "12", "--epsilon", "90"]
    chosen += ["--delta", "1e-4", "--set", "model.directions=3", "--set", "seed=1"]
    assert main([*chosen, "--out", str(tmp_path / "whole")]) == 0
    step_of, fit = Run._step, build.fit_directions

    def stopped(run, number):
        os.kill(os.getpid(), signal.SIGINT)
        step_of(run, number)

    def turned(model, batches):
        fit(model, batches)
        model.head.basis[:, 0] *= -1

    with monkeypatch.context() as stopping:
        stopping.setattr(Run, "_step", stopped)
        assert main([*chosen, "--out", str(tmp_path / "stopped")]) == 130
    monkeypatch.setattr(build, "fit_directions", turned)
    assert main(["train", "--resume", str(tmp_path / "stopped")]) == 0
    whole, resumed = (load_model(tmp_path / name) for name in ("whole", "stopped"))
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_how_often_a_picture_was_copied_shapes_nothing(monkeypatch):
    monkeypatch.setattr(pose, "open_units", lambda *given: Twice(open_units(*given)))
    counts = []
    monkeypatch.setattr(pose, "corrected", lambda config, model, units, public: counts.append(units) or model)
    found = fitted(12)
    assert (len(found.units), len(found.own.data), counts) == (24, 12, [12])


@pytest.mark.parametrize("method", ["dp-head", "adassp-head"])
@pytest.mark.parametrize("kind", ["identity", "random"])
def test_directions_without_public_units_are_refused(method, kind):
    """They would be read all the same, unchecked and unsaid."""
    with refused("subspace-of-one-step-method"):
        config({"method": method, "subspace": {"kind": kind}})


@pytest.mark.parametrize("average", [{"ema_decay": 0.9}, {"average_last": 1.0}])
def test_an_average_with_the_start_is_refused(average):
    """It would release a part of the solution. What a budget means is asked of plans that have one all the same."""
    with refused("average-of-one-step-method"):
        config(average)
    assert config({"method": "dp-sgd", **average}).plan.one_step_noise(100)[1] > 0


def test_a_plan_says_what_is_fitted(capsys):
    assert main(["plan", "--units", "8000", "--epsilon", "1", "--delta", "1e-5", "--method", "dp-head"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "the directions, 4 to 32, of joints" in shown
    assert "gradients of" not in shown


def test_what_a_run_refuses_its_explanation_does():
    with refused("strategy-unsupported"):
        pose.explain(config(model={"strategy": "light"}))
    with refused("public-data-missing"):
        pose.explain(config(private="coco:nowhere:train"))


def test_what_does_not_fit_is_refused():
    for code, changed in (
        ("strategy-unsupported", config(model={"strategy": "light"})),
        ("strategy-unsupported", config(model={"preset": "lite0", "init": "imagenet"})),
        ("codec-of-one-step-method", config(model={"codec": "heatmap"})),
        ("directions-unsupported", config({"method": "dp-sgd"}, {"directions": 4})),
        ("directions-out-of-range", config(model={"directions": 99})),
        ("directions-out-of-range", config({"method": "adassp-head"}, {"directions": 32})),
    ):
        with refused(code):
            pose.prepare(changed, Console(quiet=True))
