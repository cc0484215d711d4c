"""Kernels are what their definitions say, and all kinds of them agree: integers exactly, other numbers to rounding."""

import pytest
import torch
import torch.nn.functional as F

from dpose.training import kernels
from dpose.training.clip import Grid

KINDS = ("reference", "cpu")
EACH = pytest.mark.parametrize("kind", KINDS)


def same(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_kinds_are_chosen_by_device():
    assert kernels.for_device(torch.device("cpu")) is kernels.get("cpu")
    for device in ("cuda", "mps", "meta"):
        assert kernels.for_device(torch.device(device)) is kernels.get("reference")
    with pytest.raises(ValueError, match="'gpu'"):
        kernels.get("gpu")


@EACH
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize(
    ("size", "stride", "padding", "dilation"),
    [((3, 3), (1, 1), (1, 1), (1, 1)), ((5, 3), (2, 1), (0, 2), (1, 1)), ((3, 2), (1, 3), (4, 1), (2, 3))],
)
def test_depthwise_gradients_are_those_of_each_unit_alone(
    size, stride, padding, dilation, multiplier, threads, kind, monkeypatch
):
    torch.manual_seed(0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    weight = torch.randn(6 * multiplier, 1, *size, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 2, 6, 9, 8, dtype=torch.float64)
    outputs = [F.conv2d(one, weight, None, stride, padding, dilation, 6) for one in x]
    gradient = torch.stack([torch.randn_like(out) for out in outputs])
    alone = [torch.autograd.grad(out, weight, g)[0] for out, g in zip(outputs, gradient, strict=True)]
    for laid in (x, x.transpose(3, 4).contiguous().transpose(3, 4)):
        same(kernels.get(kind).depthwise(laid, gradient, size, stride, padding, dilation), torch.stack(alone))


@EACH
@pytest.mark.parametrize("shape", [(6,), (5, 6)])
def test_slopes_of_a_norm_are_those_of_each_unit_alone(shape, kind):
    torch.manual_seed(0)
    x = torch.randn(3, 2, 4, 5, 6, dtype=torch.float64) + 3
    weight, bias = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(2))
    output, mean, rstd = torch.native_layer_norm(x, shape, weight, bias, 1e-5)
    gradient = torch.randn_like(x)
    alone = [torch.autograd.grad(output[u], (weight, bias), gradient[u], retain_graph=True) for u in range(3)]
    rows = (t.reshape(3, -1, weight.numel()) for t in (x, gradient))
    of_places = (t.detach().reshape(3, -1) for t in (mean, rstd))
    for found, each in zip(
        kernels.get(kind).norm_slopes(*rows, *of_places), zip(*alone, strict=True), strict=True
    ):
        same(found, torch.stack(each).flatten(1), 1e-11)


@EACH
@pytest.mark.parametrize("width", [1, 2047, 2048, 10_000])
def test_squared_norms_err_by_less_than_a_millionth(width, kind):
    torch.manual_seed(0)
    rows = torch.randn(5, width) * torch.logspace(-10, 10, 5)[:, None]
    exact = rows.double().square().sum(1)
    assert ((kernels.get(kind).square_norms(rows).double() - exact).abs() <= 1e-6 * exact).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("threads", [1, 2])
def test_truncated_sums_are_the_same_integers_from_every_kind(dtype, threads, monkeypatch):
    """With units that are left out, not finite, beyond every bound, and with a sum that goes on."""
    torch.manual_seed(1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rows = torch.randn(70, 70_001, dtype=dtype) * torch.logspace(-6, 3, 70, dtype=dtype)[:, None]
    rows[3, 5], rows[4, 6], rows[5, 7] = float("nan"), float("inf"), 3e38
    rows[6] = float("nan")
    factors = torch.full((70,), 1.0, dtype=dtype) / torch.tensor(Grid.of(1.0).step, dtype=dtype)
    factors[6] = factors[7] = 0
    found = []
    for kind in KINDS:
        totals = torch.arange(rows.shape[1])
        squares = torch.arange(70, dtype=torch.float64)
        kernels.get(kind).truncate_sum(rows, factors, totals, squares)
        found.append((totals, squares))
    within = found[0][1] <= 2.0**53  # above it sums of squares are rounded, and never smaller
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1][within], found[1][1][within])
    assert torch.equal(within, found[1][1] <= 2.0**53)
    assert within.any()
    assert not within.all()
    assert found[0][1][6] == 6


def test_a_short_type_is_summed_in_float32():
    torch.manual_seed(0)
    x, gradient = (torch.randn(2, 1, 4, 8, 8).bfloat16() for _ in range(2))
    found = kernels.get("cpu").depthwise(x, gradient, (3, 3), (1, 1), (1, 1), (1, 1))
    long = kernels.get("reference").depthwise(x.float(), gradient.float(), (3, 3), (1, 1), (1, 1), (1, 1))
    assert found.dtype == torch.float32
    same(found, long, 1e-5)
