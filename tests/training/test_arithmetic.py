"""What a processor makes of the same numbers: asked for, written down, looked at."""

import os
import subprocess
import sys

import pytest
import torch
from rich.console import Console

from dots import train
from dpose.training import arithmetic
from dpose.training import step as steps
from dpose.training.arithmetic import (
    PRECISIONS,
    SETTINGS,
    arithmetic_in_force,
    exact_arithmetic,
    products_repeat,
    same_bits,
    shifted,
)
from dpose.training.distributed import ProcessGroup
from dpose.training.gradients import clipped_sum, trainable_params, unit_loss
from dpose.training.plan import TrainingPlan
from dpose.training.reproducibility import (
    MKL_MISSING,
    NO_REPEAT,
    check_alike,
    digest_of,
    environment,
    no_repeat,
    repeatable,
)
from dpose.training.subspace import fit_subspace
from refusals import refused
from tiers import rest_slow

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def looked_again():
    products_repeat.cache_clear()
    yield
    products_repeat.cache_clear()


@pytest.mark.bits
def test_products_on_this_machine_repeat():
    assert products_repeat()
    assert repeatable(CPU)


@pytest.mark.parametrize("number", range(8))
def test_a_product_that_depends_on_where_memory_begins_is_found(number, monkeypatch, looked_again):
    """As MKL's matrix times vector does on an AMD processor: eight numbers at a time from where a line begins."""
    real = arithmetic._products

    def unlike(a, b):
        found = real(a, b)
        if a.data_ptr() % 32:
            found[number] = found[number] * (1 + torch.finfo(a.dtype).eps)
        return found

    monkeypatch.setattr(arithmetic, "_products", unlike)
    assert not products_repeat()
    assert not repeatable(CPU)


SETTLED = (
    "import os, dpose\n"
    f"{MKL_MISSING.split('`')[1]}\n"  # as a run advises
    "print(repr(os.environ['MKL_CBWR']))\n"
    "import torch; torch.ones(9, 9) @ torch.ones(9, 9)\n"
)


@pytest.mark.parametrize("given", rest_slow([None, "COMPATIBLE", ""]))
def test_the_mode_is_asked_for_unless_the_user_did(given):
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    if given is not None:
        environment["MKL_CBWR"] = given
    told = subprocess.run([sys.executable, "-c", SETTLED], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == repr("AUTO" if given is None else given)


def around():
    return environment(CPU, 8, 1)


@pytest.mark.parametrize("name", SETTINGS)
def test_whatever_chooses_kernels_is_a_surrounding(name, monkeypatch):
    before = around()
    monkeypatch.setenv(name, "another")
    assert around() != before


def test_what_is_in_force_is_a_surrounding(monkeypatch):
    before = around()
    monkeypatch.setattr(arithmetic, "mkl_branch", lambda: 99)
    assert around() != before
    monkeypatch.undo()
    monkeypatch.setattr(arithmetic, "_processor", lambda: "another")
    assert around() != before
    monkeypatch.undo()
    with exact_arithmetic(CPU):
        assert around() != before
    assert around() == before


@pytest.fixture
def tf32():
    before = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    torch.backends.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("high")
    yield
    torch.backends.cudnn.allow_tf32 = before[0]
    torch.set_float32_matmul_precision(before[1])


def in_force():
    return (
        torch.backends.cudnn.allow_tf32,
        torch.backends.cuda.matmul.allow_tf32,
        torch.get_float32_matmul_precision(),
        arithmetic_in_force(CPU)["float32 products"],
    )


def test_a_private_step_computes_in_float32(dots, tmp_path, monkeypatch, tf32):
    """Convolutions on a GPU would take TF32 by default; what was set is set again behind the run."""
    seen, real, before = [], steps.clipped_sum, in_force()
    assert before[:3] == (True, True, "high")

    def noted(*given, **named):
        seen.append(in_force())
        return real(*given, **named)

    monkeypatch.setattr(steps, "clipped_sum", noted)
    plan = TrainingPlan(epsilon=8.0, delta=1e-4, steps=2, expected_batch_size=20)
    with (tmp_path / "printed").open("w") as file:
        train(
            dots.task,
            dots.task.build_model(),
            private=dots.data(60),
            plan=plan,
            out=tmp_path / "run",
            console=Console(file=file),
            state_dir=tmp_path / "state",
        )
    exact = ", ".join(f"{name} ieee" for name in PRECISIONS)
    assert seen
    assert set(seen) == {(False, False, "highest", exact)}
    assert in_force() == before


@pytest.mark.parametrize("given", [False, True])
def test_on_a_gpu_kernels_are_deterministic_and_are_not_taken_to_be(given):
    """Those that cannot be only warn: a step may be taken again only where torch refuses them."""
    torch.use_deterministic_algorithms(given)
    try:
        with exact_arithmetic(GPU):
            assert torch.are_deterministic_algorithms_enabled()
            assert repeatable(GPU) is given
        assert torch.are_deterministic_algorithms_enabled() is given
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("given", [False, True])
def test_no_memory_is_filled_and_no_kernel_chosen_by_its_speed(given, monkeypatch):
    """torch fills whatever is new beside deterministic kernels, per-unit gradients among it."""
    settings = (torch.utils.deterministic, "fill_uninitialized_memory"), (torch.backends.cudnn, "benchmark")
    for where, name in settings:
        monkeypatch.setattr(where, name, given)
    with exact_arithmetic(GPU):
        assert not any(getattr(where, name) for where, name in settings)
    assert all(getattr(where, name) is given for where, name in settings)


def test_a_step_reads_no_memory_that_it_has_not_written(dots):
    """Filled with NaN or not, the clipped sum and a fit are the same."""
    model = dots.task.build_model()
    params, data = trainable_params(model), dots.data(12)
    batch = dots.task.collate([data.load(i, None) for i in range(12)])

    def computed():
        sums = clipped_sum(unit_loss(dots.task, model), params, batch.parts, 0.1, microbatch_size=5)
        fitted = fit_subspace(dots.task, model, params, [batch], 3, hold_bytes=0, slice_bytes=400)
        return [*sums.values(), *fitted.basis.values()]

    plain = computed()
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(9).isnan().all()
        filled = computed()
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(same_bits(a, b) for a, b in zip(plain, filled, strict=True))


class Second(ProcessGroup):
    """The second of two processes, of which the first tells `told`."""

    told = b""

    def bytes_from_first(self, content):
        return self.told

    def highest(self, value):
        return value


def test_processes_that_compute_differently_are_refused(monkeypatch):
    first = ProcessGroup(0, 1)
    sent = []
    monkeypatch.setattr(ProcessGroup, "bytes_from_first", lambda self, content: sent.append(content) or content)
    check_alike(around(), first)
    monkeypatch.undo()
    other = Second(1, 2)
    monkeypatch.setattr(Second, "told", sent[0])
    check_alike(around(), other)
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    with refused("processes-compute-differently") as raised:
        check_alike(around(), other)
    assert "\n" not in raised.value.line()


def test_shifted_is_the_same_elsewhere():
    values = torch.randn(5, 7)
    for by in (1, 3):
        moved = shifted(values, by)
        assert torch.equal(moved, values)
        assert moved.data_ptr() % 64 == 4 * by


ODD = torch.arange(64.0).as_strided((16, 4, 1, 1), (4, 1, 64, 64))
"""Weights of a 1x1 convolution in channels last: the last dimension, of one number, has a stride never taken."""
SINGLE = torch.ones(64).as_strided((1, 1, 1), (64, 64, 64))


@pytest.mark.parametrize(
    "values",
    [
        torch.randn(8, 3, 3, 3).to(memory_format=torch.channels_last),
        torch.randn(4, 5).t(),
        torch.randn(4, 10)[:, ::2],
        torch.randn(5).expand(3, 5),
        torch.randn(0, 3),
        torch.tensor(1.5),
        ODD,
        SINGLE,
    ],
    ids=["channels last", "transposed", "gaps", "expanded", "empty", "a number", "odd", "single"],
)
def test_shifted_keeps_the_strides_and_begins_elsewhere(values):
    """In another layout another kernel is taken, and the difference is that of two kernels."""
    moved = shifted(values)
    assert moved.stride() == values.stride()
    assert same_bits(moved, values)
    assert moved.data_ptr() % 64 == values.element_size() or not values.numel()


@pytest.mark.parametrize("values", [ODD, SINGLE, torch.tensor(2.0), torch.randn(3, 4).bfloat16().t()])
def test_bits_are_compared_and_digested_whatever_the_strides(values):
    plain = values.clone(memory_format=torch.contiguous_format)
    other = plain.clone()
    other.view(-1)[-1] = -0.0
    assert same_bits(values, plain)
    assert not same_bits(values, other)
    assert not same_bits(torch.tensor(0.0), torch.tensor(-0.0))
    assert digest_of({"w": values}) == digest_of({"w": plain}) != digest_of({"w": other})


def test_the_message_names_what_differs():
    assert no_repeat(CPU, []) == NO_REPEAT
    told = no_repeat(CPU, ["stem.weight (Conv2d)", "head.weight (Linear)", "head.bias (Linear)"])
    assert told == f"{NO_REPEAT} Elsewhere in memory, other bits: the gradient of stem.weight (Conv2d) and of 2 more."
    assert "deterministic" in no_repeat(GPU, [])


UNTOUCHED = (
    "import os; before = dict(os.environ)\n"
    "import dpose; dpose.__all__; dpose.TrainingPlan\n"
    "assert dict(os.environ) == before\n"
    "import torch, dpose.training.trainer, dpose.cli\n"
    "ours = ('OMP_WAIT_POLICY', 'GOMP_SPINCOUNT', 'MKL_CBWR', 'CUBLAS_WORKSPACE_CONFIG')\n"  # OpenCV sets another
    "assert not set(ours) & set(os.environ)\n"
)


def bare():
    """The environment without anything that dpose would set."""
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "MKL_CBWR", "CUBLAS_WORKSPACE_CONFIG")
    return {name: value for name, value in os.environ.items() if name not in names}


def test_importing_dpose_sets_nothing_of_the_process():
    subprocess.run([sys.executable, "-c", UNTOUCHED], env=bare(), check=True)


COMMAND = (
    "import os, dpose.cli\n"
    "assert dpose.cli.main(['--version']) == 0\n"
    "print(os.environ['OMP_WAIT_POLICY'], os.environ['MKL_CBWR'])\n"
)


def test_a_command_settles_the_process_before_torch_is_there():
    done = subprocess.run([sys.executable, "-c", COMMAND], env=bare(), check=True, capture_output=True, text=True)
    assert done.stdout.split()[-2:] == ["PASSIVE", "AUTO"]


LATE = (
    "import torch; torch.ones(9, 9) @ torch.ones(9, 9)\n"
    "from dpose.interpreter import settle_environment\n"
    "from dpose.training.reproducibility import no_repeat\n"
    "settle_environment()\n"
    "print(no_repeat(torch.device('cpu'), []))\n"
)


@pytest.mark.skipif(arithmetic.mkl_branch() is None, reason="torch was built without MKL")
@pytest.mark.parametrize("late", rest_slow([False, True], 1))
def test_a_run_that_comes_too_late_says_what_is_missing(late):
    program = LATE if late else LATE.partition("\n")[2].replace("print", "import torch; print")
    done = subprocess.run([sys.executable, "-c", program], env=bare(), check=True, capture_output=True, text=True)
    assert ("MKL_CBWR=AUTO" in done.stdout) == late
