"""The mechanism for training loops of one's own: the same numbers as a plan's, exact bounds, keys of the system."""

import ast
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

import dpose
from dpose.privacy.events import ROUNDED
from dpose.training.clip import Clip, Grid
from refusals import refused

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "own_training_loop.py"
BUDGET = {"epsilon": 2.0, "delta": 1e-4, "units": 2_000, "expected_batch_size": 200, "steps": 60}


def aligned(params, row):
    """Its gradient is the row."""
    return params["w"] @ row


def rows_of(count, width=50):
    return 10 * torch.randn(count, width, generator=torch.Generator().manual_seed(0))


def plan(clip=1.0, **changes):
    settings = {name: value for name, value in BUDGET.items() if name != "units"}
    return dpose.TrainingPlan(**settings, clip_norm=clip, normalise=False, **changes).bind(BUDGET["units"])


def test_the_example_trains_and_its_epsilon_is_the_plans():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=True)
    right, epsilon = re.search(r"^(\d+)% .* epsilon ([0-9.]+) at delta 0.0001$", done.stdout).groups()
    assert int(right) > 60  # by guessing: 25
    assert epsilon == f"{plan().epsilon:.4f}"


def test_the_example_is_short_and_imports_nothing_from_within():
    text = EXAMPLE.read_text()
    assert len(text.splitlines()) <= 60
    tree = ast.parse(text)
    names = [a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names]
    names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert sorted(name for name in names if name.startswith("dpose")) == ["dpose"]


@pytest.mark.parametrize("relation", ["zero-out", "replace"])
@pytest.mark.parametrize("clip", [1.0, 0.25])
def test_calibration_gives_the_event_of_the_plan(relation, clip):
    event, epsilon = dpose.calibrate(**BUDGET, clip=clip, relation=relation)
    bound = plan(clip, relation=relation)
    assert (event, epsilon) == (bound.event, bound.epsilon)
    assert event.type == ROUNDED
    assert (event.q, event.steps, event.sensitivity) == (0.1, 60, clip)
    normalised, same = dpose.calibrate(**BUDGET, clip=Clip(clip, normalised=True), relation=relation)
    assert (normalised.sensitivity, same) == (1.0, epsilon)


def test_a_delta_that_is_too_large_for_the_units_is_refused():
    with refused("delta-above-one-in-n"):
        dpose.calibrate(**{**BUDGET, "delta": 1e-3})


@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        ({"expected_batch_size": float("nan")}, "setting-not-positive", "expected_batch_size"),
        ({"units": 0}, "setting-not-positive", "units"),
        ({"units": -1}, "setting-not-positive", "units"),
        ({"units": "9"}, "setting-not-number", "units must be a number, not '9'"),
        ({"units": 2000.5}, "setting-not-whole", "units must be a whole number, not 2000.5"),
        ({"epsilon": "2"}, "setting-not-number", "epsilon must be a number, not '2'"),
        ({"delta": "1e-4"}, "setting-not-number", "delta must be a number, not '1e-4'"),
        ({"clip": "1"}, "setting-not-number", "clip must be a number, not '1'"),
        ({"steps": 2.5}, "steps-not-positive", "2.5"),
        ({"steps": True}, "steps-not-positive", "True"),
        ({"relation": "zero_out"}, "choice-unknown", ("zero_out", "choose one of zero-out")),
        ({"accountant": "prv"}, "choice-unknown", ("prv", "choose one of pld, rdp")),
    ],
)
def test_what_cannot_be_calibrated_for_is_refused_in_one_line(changes, code, named):
    with refused(code, where=named):
        dpose.calibrate(**{**BUDGET, **changes})


def test_numpys_numbers_calibrate_as_pythons():
    numbers = {"units": np.int64(2_000), "expected_batch_size": np.float32(200), "steps": np.int64(60)}
    assert dpose.calibrate(**{**BUDGET, **numbers}) == dpose.calibrate(**BUDGET)


@pytest.mark.parametrize("size", [1, 4, 7, 32, None])
@pytest.mark.parametrize("count", [1, 7, 9])
def test_the_sum_is_the_same_in_micro_batches_of_any_size(size, count):
    rows, params = rows_of(count), {"w": torch.zeros(50)}
    seen = []

    def loss(params, row):
        seen.append(1)
        return aligned(params, row)

    got = dpose.clipped_sum(loss, params, (rows,), 0.5, microbatch_size=size)
    whole = dpose.clipped_sum(aligned, params, (rows,), Clip(0.5), microbatch_size=None)
    assert torch.equal(got["w"], whole["w"])
    assert len(seen) == -(-count // (size or count))
    clipped = rows * (0.5 / rows.norm(dim=1))[:, None]
    torch.testing.assert_close(got["w"].float(), clipped.sum(0), rtol=1e-4, atol=1e-5)


def test_one_unit_moves_the_sum_by_no_more_than_c_exactly():
    rows, params = rows_of(9), {"w": torch.zeros(50)}
    whole = dpose.clipped_sum(aligned, params, (rows,), 0.3)["w"]
    for unit in range(9):
        rest = dpose.clipped_sum(aligned, params, (torch.cat([rows[:unit], rows[unit + 1 :]]),), 0.3)["w"]
        moved = sum(Fraction(float(a - b)) ** 2 for a, b in zip(whole, rest, strict=True))
        assert 0.99 * 0.3**2 < moved <= Fraction(0.3) ** 2


def test_an_empty_sample_and_units_that_are_not_finite_give_nothing():
    params = {"w": torch.zeros(50)}
    assert not dpose.clipped_sum(aligned, params, (rows_of(0),), 0.3)["w"].any()
    rows = rows_of(3)
    rows[1] = float("nan")
    got = dpose.clipped_sum(aligned, params, (rows,), 0.3, microbatch_size=2)["w"]
    assert torch.equal(got, dpose.clipped_sum(aligned, params, (rows[[0, 2]],), 0.3, microbatch_size=2)["w"])


def test_units_may_be_dictionaries_and_several_tensors():
    rows, params = rows_of(5), {"w": torch.ones(50)}

    def loss(params, images, labels):
        return params["w"] @ images["row"] * labels

    signs = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0])
    got = dpose.clipped_sum(loss, params, ({"row": rows}, signs), 0.3, microbatch_size=2)["w"]
    expected = dpose.clipped_sum(aligned, params, (rows * signs[:, None],), 0.3)["w"]
    torch.testing.assert_close(got, expected, rtol=0, atol=5 * Grid.of(0.3).step)


def test_noise_has_the_events_scale_and_a_key_of_the_system():
    event, _ = dpose.calibrate(**BUDGET, clip=0.25)
    sums = {"w": torch.zeros(40_000, dtype=torch.float64)}
    one, other = (dpose.add_noise(sums, event)["w"] for _ in range(2))
    assert not torch.equal(one, other)
    steps = one / Grid.of(0.25).step
    assert torch.equal(steps, steps.round())
    scale = event.sigma * event.sensitivity
    for drawn in (one, other):
        assert float(drawn.std()) == pytest.approx(scale, rel=0.03)
        assert abs(float(drawn.mean())) < 5 * scale / 200
    assert abs(float((one * other).mean())) < 5 * scale**2 / 200


def test_sums_off_the_grid_are_refused():
    """As they come from a mean, or from another clip: the noise would not be exact."""
    event, _ = dpose.calibrate(**BUDGET)
    with pytest.raises(ValueError, match="off the grid"):
        dpose.add_noise({"w": torch.full((3,), 1 / 3, dtype=torch.float64)}, event)


def test_what_calibrate_returns_is_no_event():
    with refused("event-of-no-kind", where="give the first of the two values"):
        dpose.add_noise({"w": torch.zeros(3, dtype=torch.float64)}, dpose.calibrate(**BUDGET))


def test_a_mistake_in_shapes_stays_torchs_own():
    """Its traceback names the line; that units cannot be told apart would mislead."""

    def loss(params, row):
        kept = torch.zeros(1, 2)
        kept += torch.ones(3, 2)
        return aligned(params, row) + kept.sum()

    with pytest.raises(RuntimeError, match="broadcast shape") as told:
        dpose.clipped_sum(loss, {"w": torch.zeros(50)}, (rows_of(3),), 0.3)
    assert not isinstance(told.value, dpose.DposeError)


def test_samples_are_drawn_anew_at_the_rate():
    drawn = [dpose.poisson_batch(2_000, 0.1) for _ in range(20)]
    assert len({sample.tobytes() for sample in drawn}) == 20
    sizes = [len(sample) for sample in drawn]
    assert len(set(sizes)) > 1
    assert sum(sizes) == pytest.approx(20 * 200, rel=0.15)
