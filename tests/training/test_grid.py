"""The integer grid: exact sums, an exact bound, and the same integers by every way there is."""

from fractions import Fraction
from types import SimpleNamespace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as some

from clipped import clipped_sum
from dpose.training.clip import UNITS, Clip, Grid
from dpose.training.gradients import trainable_params
from dpose.training.kernels import BITS, reference
from dpose.units import UnitBatch


class Aligned:
    """The gradient of a unit is its picture: d weights, loss <w, x>."""

    name = "aligned"

    def loss(self, model, params, inputs, targets):
        return inputs @ params["weight"][0]


def exactly(tensor):
    return [Fraction(float(value)) for value in tensor.flatten()]


def moved(whole, without):
    """The squared distance, without rounding."""
    return sum((a - b) ** 2 for a, b in zip(exactly(whole), exactly(without), strict=True))


def units_of(rows):
    return UnitBatch(rows[:, None], {}, torch.ones(len(rows), 1))


def sum_of(rows, clip, way="fast"):
    model = torch.nn.Linear(rows.shape[1], 1, bias=False)
    return clipped_sum(Aligned(), model, trainable_params(model), units_of(rows), Clip(clip), way=way)["weight"]


@pytest.mark.bits
@pytest.mark.parametrize("way", ["fast", "plain"])
@pytest.mark.parametrize("clip", [0.1, 1.0])
def test_two_thousand_units_that_point_one_way_move_the_sum_by_no_more_than_c(clip, way):
    """In float32 sums the last of 2,048 equal units moved the sum by more than the sensitivity."""
    torch.manual_seed(0)
    for _ in range(5):
        rows = torch.rand(1, 4).expand(2048, 4).clone() * 100
        whole, without = sum_of(rows, clip, way), sum_of(rows[1:], clip, way)
        assert 0.999 * clip**2 <= moved(whole, without) <= Fraction(clip) ** 2


@pytest.mark.bits
@pytest.mark.parametrize("way", ["fast", "plain"])
def test_the_sum_does_not_depend_on_order_or_grouping(way):
    torch.manual_seed(1)
    rows = torch.randn(60, 7) * 10
    whole = sum_of(rows, 0.3, way)
    assert torch.equal(sum_of(rows[torch.randperm(60)], 0.3, way), whole)
    for size in (1, 7, 30):
        assert torch.equal(sum(sum_of(part, 0.3, way) for part in rows.split(size)), whole)


@settings(max_examples=60, deadline=None)
@example(1.0, 24)
@example(0.25, 2)
@given(some.floats(1e-30, 1e30), some.integers(2, 24))
def test_the_bound_is_the_largest_that_holds(sensitivity, bits):
    found = Grid.of(sensitivity, bits)
    step, limit = Fraction(found.step), Fraction(sensitivity) ** 2
    assert step**2 * found.most <= limit < step**2 * (found.most + 1)
    assert 2 ** (2 * bits - 2) <= found.most <= 2 ** (2 * bits)
    assert 2 ** (bits - 1) < Fraction(sensitivity) / step <= 2**bits


@pytest.mark.parametrize("sensitivity", [0.0, -1.0, float("nan"), float("inf")])
def test_a_grid_of_nothing_is_refused(sensitivity):
    with pytest.raises(ValueError, match="sensitivity"):
        Grid.of(sensitivity)


def added(add, on, rows, factors):
    totals, squares = (torch.zeros(rows.shape[1], dtype=torch.int64), torch.zeros(len(rows), dtype=torch.float64))
    add(on, rows, factors, totals, squares)
    return totals, squares


def by_torch(on, rows, factors, totals, squares):
    reference.KERNELS.truncate_sum(rows, (factors.double() / on.step).to(rows.dtype), totals, squares)


@pytest.mark.bits
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 5, 4096, 4099, 140_001])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_kernel_and_torch_give_the_integers_of_the_definition(dtype, width, threads):
    torch.manual_seed(2)
    rows = torch.randn(70, width, dtype=dtype)
    factors = 0.7 / rows.norm(dim=1)
    factors[3] = 0
    rows[3] = float("nan")
    on, before = Grid.of(0.7), torch.get_num_threads()
    scaled = rows * (factors / on.step)[:, None]
    steps = torch.where(factors[:, None] == 0, 0, scaled).trunc().long()
    try:
        torch.set_num_threads(threads)
        found = added(Grid.add, on, rows, factors)
    finally:
        torch.set_num_threads(before)
    for totals, squares in (found, added(by_torch, on, rows, factors)):
        assert torch.equal(totals, steps.sum(0))
        assert torch.equal(squares.long(), steps.square().sum(1))


@pytest.mark.parametrize("add", [Grid.add, by_torch])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1.0 + 2.0**-22, 3e38, 100.0])
def test_what_is_too_large_is_not_within(add, value):
    """A norm that was wrong, or not a number: whatever it is, it is seen. Many of them do not overflow."""
    on = Grid.of(1.0)
    rows = torch.zeros(3, 100_000)
    rows[0, 0] = 1.0
    rows[1] = value
    _, squares = added(add, on, rows, torch.ones(3))
    assert on.within(squares).tolist() == [True, False, True]
    assert not on.within(torch.tensor([float("nan")], dtype=torch.float64)).any()


@pytest.mark.parametrize("add", [Grid.add, by_torch])
@pytest.mark.parametrize("value", [1.0 + 2.0**-25, 1.5, 2.0, float("inf"), float("nan")])
def test_one_coordinate_that_is_too_large_is_enough(add, value):
    """In the smallest way, and on either side of zero; truncated to the largest that is allowed it would pass."""
    rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [value, 0.0], [-value, 0.0]], dtype=torch.float64)
    on = Grid.of(1.0)
    _, squares = added(add, on, rows, torch.ones(4, dtype=torch.float64))
    assert on.within(squares).tolist() == [True, True, False, False]


def test_what_lies_on_another_device_is_added_by_torch(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "dpose.training.kernels.reference.Reference.truncate_sum", lambda self, *given: asked.append(given)
    )
    on, rows, factors = Grid.of(1.0), torch.ones(3, 5), torch.full((3,), 0.5)
    added(Grid.add, on, rows, factors)
    assert not asked
    given = [part.to("meta") for part in (rows, factors, torch.zeros(5), torch.zeros(3))]
    on.add(*given)
    ((found, scaled, totals, squares),) = asked
    assert (found is given[0], totals is given[2], squares is given[3]) == (True, True, True)
    assert scaled.shape == factors.shape


def test_totals_are_made_real_numbers_where_there_is_float64():
    """An Apple accelerator has none."""

    class There:
        device = SimpleNamespace(type="mps")

        def cpu(self):
            return torch.tensor([3])

    on = Grid.of(1.0)
    assert on.values(There()).tolist() == [3 * on.step]


def test_a_unit_that_is_not_within_is_dropped_whole(monkeypatch):
    """Scales that are too large for one unit leave the sum of the others, in every parameter."""
    from dpose.training import gradients

    rows, real = torch.eye(4) + 0.5, gradients.clip_scales
    clean = sum_of(rows[[0, 2, 3]], 0.5)

    def wrong(*given):
        scales = real(*given)
        return scales * torch.where(torch.arange(len(scales)) == 1, 1.1, 1.0)

    monkeypatch.setattr(gradients, "clip_scales", wrong)
    assert torch.equal(sum_of(rows, 0.5), clean)


def test_values_and_steps_are_inverse():
    on, totals = Grid.of(0.05), torch.tensor([0, 1, -7, 2**52, -(2**53)])
    assert torch.equal(on.steps(on.values(totals)), totals)
    assert on.steps(torch.tensor([1.4]) * on.step).tolist() == [1]
    assert BITS == 24
    assert UNITS << BITS == 2**53
    assert Clip(0.05).grid == on
    assert Clip(0.05, True).grid == Grid.of(1.0)
