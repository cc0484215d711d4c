"""Gradients of convolutions in every layout beside those in float64: `test_convolution_memory.py` runs it by itself.

Each case is printed before it is computed, so that the last one printed is the one that ended the process.
"""

import random

import torch
from torch import nn

from dpose.training.gradients import mean_gradient, per_unit_gradients, trainable_params
from dpose.units import UnitBatch
from layered import Task, distance

LAYOUTS = ("contiguous", "channels last", "columns first", "every other")
KERNELS = (((1, 1), (2, 2), 0), ((1, 1), (1, 2), 0), ((1, 1), (2, 2), 1), ((1, 1), (1, 1), 0))
KERNELS += (((3, 3), (2, 2), 1), ((3, 3), (1, 1), 1), ((2, 2), (2, 2), 0), ((4, 4), (4, 4), 0), ((5, 3), (1, 2), 2))
CHANNELS = ((3, 48, 1), (8, 16, 1), (12, 8, 1), (16, 16, 1), (1, 4, 1), (8, 8, 8), (6, 12, 6), (8, 12, 2))


def cases():
    """Kernel, stride, padding, dilation; channels; pictures; units and views; layouts of weights and pictures."""
    numbers = random.Random(0)
    pairs = ((0, 0), (1, 1), (0, 1), (1, 0), (2, 1), (3, 3))
    for kernel, stride, padding in KERNELS:
        for channels in CHANNELS:
            # where oneDNN's own kernel writes too far: only of large pictures is it seen
            large = kernel == (1, 1) and stride != (1, 1) and channels[0] < 16 and not padding
            for weights, pictures in pairs if large and channels[0] == 3 else (numbers.choice(pairs),):
                size = (128, 96) if large else numbers.choice(((9, 8), (16, 12)))
                dilation = numbers.choice((1, 1, 2))
                batch = numbers.choice(((1, 1), (1, 2), (2, 1), (3, 1)))
                yield (kernel, stride, padding, dilation, channels, size, batch, LAYOUTS[weights], LAYOUTS[pictures])


def laid(tensor, layout):
    """The same numbers in a layout, with strides of dimensions of size 1 as odd as they may be."""
    if layout == "contiguous":
        return tensor.clone(memory_format=torch.contiguous_format)
    n, c, h, w = tensor.shape
    place, strides = {
        "channels last": ((n, h, w, c), (c * h * w, 1, w * c, c)),
        "columns first": ((n, c, w, h), (c * h * w, h * w, 1, h)),
        "every other": ((n, c, h, w, 2), (2 * c * h * w, 2 * h * w, 2 * w, 2)),
    }[layout]
    return tensor.new_empty(place).as_strided(tensor.shape, strides).copy_(tensor)


def model_of(kernel, stride, padding, dilation, channels):
    """A convolution behind one that scales, whose gradient is that of the convolution's input."""
    inputs, outputs, groups = channels
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(inputs, inputs, 1, groups=inputs, bias=False),
        nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups),
    )


def main():
    """Compare every way with float64."""
    for case in cases():
        *how, size, (units, views), weights, pictures = case
        print(case, flush=True)
        model, task = model_of(*how), Task()
        exact = model_of(*how).double()
        inputs = torch.randn(units * views, how[-1][0], *size)
        targets = {"wanted": torch.randn(units, views)}

        def batch(inputs, units=units, views=views, targets=targets):
            return UnitBatch(inputs.view(units, views, *inputs.shape[1:]), targets, torch.ones(units, views))

        wanted = {}
        for unit in range(units):
            leaves = dict(exact.named_parameters())
            here = batch(inputs.double())
            loss = task.loss(exact, leaves, here.inputs[unit], {"wanted": targets["wanted"][unit]}).mean()
            for name, gradient in zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True):
                wanted.setdefault(name, []).append(gradient)
        wanted = {name: torch.stack(each) for name, each in wanted.items()}
        for parameter in model.parameters():
            if parameter.ndim == 4:
                parameter.data = laid(parameter.data, weights)
        params, here = trainable_params(model), batch(laid(inputs, pictures))
        for way in ("fast", "plain"):
            found = per_unit_gradients(task, model, params, here, way)
            assert distance(found, wanted) < 1e-4, way
            del found  # what was written behind it is seen when it is freed
        mean = mean_gradient(task, model, params, here)[0]
        assert distance(mean, {name: each.mean(0) for name, each in wanted.items()}) < 1e-4, "mean"
        del mean
    print("done", flush=True)


if __name__ == "__main__":
    main()
