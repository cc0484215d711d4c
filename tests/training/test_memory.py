"""The micro-batch: fitted to memory on empty pictures, a power of two, bounded."""

import copy

import numpy as np
import pytest
import torch

import dpose.training.dry_run as memory
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.task import PoseTask
from dpose.units import View


def example(dots):
    return dots.task.collate([dots.data(1).views[0]])


@pytest.mark.parametrize("free", [10, 10**4, 10**5, 10**12])
def test_more_memory_more_views(dots, monkeypatch, free):
    machine = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 2 * free}
    monkeypatch.setattr(memory.os, "sysconf", machine.__getitem__)
    model = dots.task.build_model()
    got = memory.fit_microbatch_size(dots.task, model, example(dots))
    per_view, _ = memory._cpu_cost(dots.task, model, memory._zeros(example(dots), torch.device("cpu")))
    assert got in (1, 2, 4, 8, 16, 32)
    assert got == memory.LARGEST["cpu"] or 2 * got * per_view > memory.SHARE * free
    assert got == 1 or got * per_view <= memory.SHARE * free


def test_the_pictures_do_not_decide(dots, monkeypatch):
    seen = []
    real = dots.task.loss

    def watching(model, params, inputs, targets):
        seen.append(inputs)
        return real(model, params, inputs, targets)

    monkeypatch.setattr(dots.task, "loss", watching)
    memory.fit_microbatch_size(dots.task, dots.task.build_model(), example(dots))
    assert seen
    assert all(not inputs.any() for inputs in seen)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_plain_gradient_is_measured_with_batchnorm_and_leaves_it_as_it_was(monkeypatch, precision):
    """What a GPU's probe does, on a CPU with made-up memory counters."""
    model, task = PoseModel(PoseConfig(preset="nano", norm="batch")).train(), PoseTask(precision=precision)
    unit = task.collate([[View(np.ones((128, 96, 3), np.uint8), {"keypoints": np.ones((16, 2), np.float32),
                                                                   "visible": np.ones(16, np.float32)})]])  # fmt: skip
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert memory.fit_microbatch_size(task, model, unit, clipped=False) >= 1
    measured = []
    for name in ("empty_cache", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda *_: 100)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda *_: measured.append(1) or 100 + 40 * len(measured))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (9_000, 10_000))
    assert memory._cuda_cost(task, copy.deepcopy(model), unit, clipped=False) == (10, 9_000)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_activations_and_gradients_are_counted(dots):
    model = dots.task.build_model()
    cost, free = memory._cpu_cost(dots.task, model, memory._zeros(example(dots), torch.device("cpu")))
    gradient = 4 * sum(p.numel() for p in model.parameters())
    assert cost > 2 * gradient
    assert free > 2**20
