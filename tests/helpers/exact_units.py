"""Per-unit gradients held to a backward pass of each unit alone.

check_exact(model, units(size, joints), "light")
"""

import torch
from torch.func import grad, vmap

from dpose.pose.model import apply_strategy
from dpose.pose.task import PoseTask
from dpose.training.grad_sample import track
from dpose.training.gradients import trainable_params, unit_loss
from dpose.training.guards import check_model, only_gradients
from dpose.units import UnitBatch


def shake(model):
    """Move every tensor away from where it starts, and count in float64: zeros hide what stands before them."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
                tensor += (0.05 * (noise.abs() if name.endswith("running_var") else noise)).to(tensor.dtype)
    return model.double().eval()


def units(size, joints=16):
    """Three units of two views each, one of which has no weight."""
    generator = torch.Generator().manual_seed(1)
    return UnitBatch(
        torch.randint(0, 256, (3, 2, 3, *size), generator=generator, dtype=torch.uint8),
        {
            "keypoints": torch.rand(3, 2, joints, 2, generator=generator) * torch.tensor([size[1], size[0]]),
            "visible": torch.ones(3, 2, joints),
        },
        torch.tensor([[1.0, 1.0], [1.0, 0.5], [1.0, 0.0]]),
    )


def check_exact(model, batch, strategy, *, plain=False):
    """The fast way, and `vmap(grad)` if `plain`, against each unit alone, 1e-10 in float64; nothing is written."""
    apply_strategy(model, strategy)
    model.train()
    check_model(model)
    params = trainable_params(model)
    loss = unit_loss(PoseTask(model.config.skeleton, codec=model.codec), model)
    with only_gradients(model):
        book = track(loss, params, batch.parts, products=False)
    assert book is not None, "a parameter's use escaped"
    found = [book.gradients(params)]
    if plain:
        alike = vmap(grad(loss), in_dims=(None, 0, 0, 0))
        found.append(alike(params, batch.inputs, batch.targets, batch.weights))
    for unit in range(len(batch)):
        leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
        targets = {name: t[unit] for name, t in batch.targets.items()}
        alone = torch.autograd.grad(
            loss(leaves, batch.inputs[unit], targets, batch.weights[unit]), list(leaves.values())
        )
        for name, gradient in zip(leaves, alone, strict=True):
            scale = max(1.0, float(gradient.abs().max()))
            for gradients in found:
                assert (gradients[name][unit] - gradient).abs().max() <= 1e-10 * scale, name
