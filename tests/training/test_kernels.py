"""Kernels are what their definitions say, and all kinds of them agree: integers exactly, other numbers to rounding."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from dpose.training import kernels
from dpose.training.clip import Grid
from dpose.training.kernels.reference import at_once, in_groups, unfolded
from dpose.training.layers import by_product

KINDS = ("reference", "cpu", "gpu")
EACH = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def interpreter():
    """Triton 3.6 interprets no kernel beside NumPy 2.5: it takes arrays of one number for numbers."""
    try:
        kernels.get("gpu").square_norms(torch.ones(1, 2))
    except Exception as error:
        if "0-dimensional" not in str(error):
            raise
        return "this Triton's interpreter and this NumPy do not go together"
    return ""


@pytest.fixture(autouse=True)
def _interpreted(request):
    called = getattr(request.node, "callspec", None)
    if called and called.params.get("kind") == "gpu" and (why := request.getfixturevalue("interpreter")):
        pytest.skip(why)


def same(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_kinds_are_chosen_by_device():
    assert kernels.for_device(torch.device("cpu")) is kernels.get("cpu")
    assert kernels.for_device(torch.device("cuda")) is kernels.get("gpu")
    for device in ("mps", "meta"):
        assert kernels.for_device(torch.device(device)) is kernels.get("reference")
    with pytest.raises(ValueError, match="'tpu'"):
        kernels.get("tpu")


HOW = [((3, 3), (1, 1), (1, 1), (1, 1)), ((5, 3), (2, 1), (0, 2), (1, 1)), ((3, 2), (1, 3), (4, 1), (2, 3))]


@pytest.mark.parametrize(("kind", "threads"), [("reference", 1), ("cpu", 1), ("cpu", 2), ("gpu", 1)])
@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize(("size", "stride", "padding", "dilation"), HOW)
def test_depthwise_gradients_are_those_of_each_unit_alone(
    size, stride, padding, dilation, multiplier, kind, threads, monkeypatch
):
    torch.manual_seed(0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    if kind == "gpu":
        monkeypatch.setattr(kernels.get("gpu").__class__, "PLACES", 8)  # several parts, one of them not full
    weight = torch.randn(6 * multiplier, 1, *size, dtype=torch.float64, requires_grad=True)
    x = torch.randn(2, 2, 6, 6, 5, dtype=torch.float64)
    outputs = [F.conv2d(one, weight, None, stride, padding, dilation, 6) for one in x]
    gradient = torch.stack([torch.randn_like(out) for out in outputs])
    alone = [torch.autograd.grad(out, weight, g)[0] for out, g in zip(outputs, gradient, strict=True)]
    for laid in (x, x.transpose(3, 4).contiguous().transpose(3, 4))[: 1 if kind == "gpu" else 2]:
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
    for found, each in zip(kernels.get(kind).norm_slopes(*rows, *of_places), zip(*alone, strict=True), strict=True):
        same(found, torch.stack(each).flatten(1), 1e-11)


@EACH
@pytest.mark.parametrize("width", [1, 2047, 2048, 10_000])
def test_squared_norms_err_by_less_than_a_millionth(width, kind):
    torch.manual_seed(0)
    rows = torch.randn(5, width) * torch.logspace(-10, 10, 5)[:, None]
    exact = rows.double().square().sum(1)
    assert ((kernels.get(kind).square_norms(rows).double() - exact).abs() <= 1e-6 * exact).all()


def awkward(units, width, dtype):
    """Rows with units that are left out, not finite or beyond every bound, and their factors."""
    torch.manual_seed(1)
    rows = torch.randn(units, width, dtype=dtype) * torch.logspace(-6, 3, units, dtype=dtype)[:, None]
    rows[3, 5], rows[4, 6], rows[5, 7] = float("nan"), float("inf"), 3e38
    rows[6] = float("nan")
    factors = torch.full((units,), 1.0, dtype=dtype) / torch.tensor(Grid.of(1.0).step, dtype=dtype)
    factors[6] = factors[7] = 0
    return rows, factors


@pytest.mark.filterwarnings("ignore:overflow encountered")  # of numbers above every bound
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("kind", "threads", "units", "width"), [("cpu", 1, 70, 70_001), ("cpu", 2, 70, 70_001), ("gpu", 1, 40, 1_100)]
)
def test_truncated_sums_are_the_same_integers_from_every_kind(kind, threads, units, width, dtype, monkeypatch):
    """And so is what is left of them where units over the bound are taken back; a sum goes on."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rows, factors = awkward(units, width, dtype)
    found = []
    for one in (kernels.get("reference"), kernels.get(kind)):
        totals, squares = torch.arange(width), torch.arange(units, dtype=torch.float64)
        one.truncate_sum(rows, factors, totals, squares)
        kept = totals.clone()
        one.take_back(rows, factors, kept, squares <= Grid.of(1.0).most)
        found.append((totals, squares, kept))
    (totals, squares, kept), (others, of_others, kept_too) = found
    exact = squares <= 2.0**53  # above it sums of squares are rounded, and never smaller
    assert torch.equal(totals, others)
    assert torch.equal(squares[exact], of_others[exact])
    assert torch.equal(exact, of_others <= 2.0**53)
    assert exact.any()
    assert not exact.all()
    assert squares[6] == 6
    assert torch.equal(kept, kept_too)
    held, alone = squares <= Grid.of(1.0).most, torch.arange(width)
    kernels.get("reference").truncate_sum(rows[held], factors[held], alone, torch.zeros(int(held.sum())).double())
    assert torch.equal(kept, alone)


@EACH
def test_where_no_unit_is_over_the_bound_nothing_is_taken_back_or_read(kind):
    rows, factors = torch.full((3, 5), float("nan")), torch.ones(3)
    totals = torch.arange(5)
    kernels.get(kind).take_back(rows, factors, totals, torch.ones(3, dtype=torch.bool))
    assert totals.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered")
def test_a_units_bits_depend_neither_on_its_place_nor_on_its_neighbours(kind, monkeypatch):
    one = kernels.get(kind)
    if kind == "gpu":
        monkeypatch.setattr(one.__class__, "PLACES", 8)
    torch.manual_seed(2)
    x, gradient = torch.randn(3, 2, 3, 5, 4), torch.randn(3, 2, 3, 5, 4)
    mean, rstd = torch.randn(3, 20), torch.rand(3, 20)

    def measured(order, x=x, gradient=gradient):
        x, gradient = x[order].contiguous(), gradient[order].contiguous()
        rows, given = (t.flatten(2).transpose(1, 2).reshape(len(order), 20, -1) for t in (x, gradient))
        depthwise = one.depthwise(x, gradient, (3, 3), (1, 1), (1, 1), (1, 1))
        found = [depthwise.flatten(1), *one.norm_slopes(rows, given, mean[order], rstd[order])]
        return torch.cat([*found, one.square_norms(x.flatten(1))[:, None]], 1)

    first = measured([0, 1, 2])
    assert torch.equal(measured([2, 0, 1]), first[[2, 0, 1]])
    assert torch.equal(measured([0, 1, 2], x * torch.tensor([1, 1e30, 1]).view(3, 1, 1, 1, 1))[[0, 2]], first[[0, 2]])


@pytest.mark.parametrize(
    ("shape", "groups", "space"),
    [((4, 3, 3, 3), 1, (7, 6)), ((6, 2, 3, 2), 2, (6, 7)), ((4, 2, 3), 1, (9,)), ((4, 1, 2, 2, 2), 2, (4, 5, 4))],
)
def test_unfolded_convolutions_have_the_gradients_of_each_unit_alone(shape, groups, space):
    torch.manual_seed(0)
    n = len(space)
    how = ((2, 1, 1)[:n], (1, 0, 2)[:n], (1, 2, 1)[:n])
    weight = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 2, shape[1] * groups, *space, dtype=torch.float64)
    outputs = [getattr(F, f"conv{n}d")(one, weight, None, *how, groups) for one in x]
    gradient = torch.stack([torch.randn_like(out) for out in outputs])
    alone = [torch.autograd.grad(out, weight, g)[0] for out, g in zip(outputs, gradient, strict=True)]
    same(unfolded(x, gradient, weight.shape, how, groups), torch.stack(alone))


def test_a_gpu_never_takes_a_convolution_with_a_group_a_unit():
    assert [at_once("cuda", groups, 8) for groups in (1, 2, 8)] == [unfolded] * 3
    assert [at_once("cpu", groups, 8) for groups in (1, 2, 8)] == [None, None, in_groups]


@pytest.mark.parametrize("dim", [0, 1])
def test_entries_read_by_index_are_summed_by_a_product(dim):
    gradient = torch.randint(-9, 9, (3, 5, 6)).double()
    index = torch.randint(0, 4, (gradient.shape[dim + 1],))
    size = list(gradient.shape)
    size[dim + 1] = 4
    added = torch.zeros(size).double().index_add_(dim + 1, index, gradient)
    assert torch.equal(by_product(gradient, index, dim, 4), added)


def test_without_triton_a_gpu_has_the_reference_and_says_so_once(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    kernels._compiles.cache_clear()
    with pytest.warns(UserWarning, match="triton") as said:
        chosen = [kernels.for_device(torch.device("cuda")) for _ in range(2)]
    assert chosen == [kernels.get("reference")] * 2
    assert len(said) == 1
    kernels._compiles.cache_clear()


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_short_type_is_summed_in_float32(kind):
    torch.manual_seed(0)
    x, gradient = (torch.randn(2, 1, 4, 6, 6).bfloat16() for _ in range(2))
    found = kernels.get(kind).depthwise(x, gradient, (3, 3), (1, 1), (1, 1), (1, 1))
    long = kernels.get("reference").depthwise(x.float(), gradient.float(), (3, 3), (1, 1), (1, 1), (1, 1))
    assert found.dtype == torch.float32
    same(found, long, 1e-5)


@pytest.mark.slow
def test_every_kernel_compiles_for_a_gpu_and_adds_no_number_with_a_fraction_atomically(tmp_path):
    program = Path(__file__).parents[1] / "helpers" / "compile_for_gpu.py"
    around = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, program], env=around, capture_output=True, text=True, check=True)
    atomics = json.loads(done.stdout)
    assert atomics.pop("_truncated") == ["atom.global.gpu.relaxed.add.u64"]
    assert len(atomics) == 4
    assert not any(atomics.values())
