"""The micro-batch: fitted to memory on empty pictures, a power of two, bounded."""

import pytest
import torch

import dpose.training.memory as memory


def example(dots):
    return dots.task.collate([dots.data(1).views[0]])


@pytest.mark.parametrize("free", [10, 10**4, 10**5, 10**12])
def test_more_memory_more_views(dots, monkeypatch, free):
    monkeypatch.setattr(memory, "_free_memory", lambda: free)
    model = dots.task.build_model()
    got = memory.fit_views_at_once(dots.task, model, example(dots))
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
    memory.fit_views_at_once(dots.task, dots.task.build_model(), example(dots))
    assert seen
    assert all(not inputs.any() for inputs in seen)


def test_activations_and_gradients_are_counted(dots):
    model = dots.task.build_model()
    cost, free = memory._cpu_cost(dots.task, model, memory._zeros(example(dots), torch.device("cpu")))
    gradient = 4 * sum(p.numel() for p in model.parameters())
    assert cost > 2 * gradient
    assert free > 2**20
