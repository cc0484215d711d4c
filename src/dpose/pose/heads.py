"""A trained head for another skeleton, whose joints keep their weights, for pictures of another size, or less sure."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpose.errors import DposeError
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.skeletons import SKELETONS, joint_map


def adapt_head(model: PoseModel, skeleton: str, generator: torch.Generator | None = None) -> PoseModel:
    """A copy of a model that predicts another skeleton's joints.

    The head's 1x1 convolution has a row of weights and a bias a joint. Joints of one name in both skeletons keep
    theirs: twelve from COCO to MPII, the limbs. All others are fresh, as in a new model: MPII's upper neck and head
    top have no COCO joint, and pelvis and thorax are a row of their own, not the middle of others. The layers that turn
    a joint's map into bins are shared by all joints and stay.

    Args:
        model: Any pose model; not changed.
        skeleton: A name in `dpose.pose.skeletons.SKELETONS`.
        generator: Draws the fresh rows; torch's own where None.

    Returns:
        The copy, in the same mode and on the same device; every parameter that trained still does.

    Raises:
        DposeError: there is no such skeleton.
    """
    if skeleton not in SKELETONS:
        raise DposeError("there is no such skeleton", skeleton, f"choose from {', '.join(SKELETONS)}")
    adapted = copy.deepcopy(model)
    if skeleton == model.config.skeleton:
        return adapted
    old = adapted.head.joints
    new = nn.Conv2d(old.in_channels, len(SKELETONS[skeleton]), 1)
    reach = (
        old.in_channels**-0.5
    )  # torch's own start of a 1x1 convolution: uniform within the root of its inputs
    with torch.no_grad():
        for parameter in (new.weight, new.bias):
            if parameter is not None:
                parameter.uniform_(-reach, reach, generator=generator)
        new = new.to(old.weight.device, old.weight.dtype)
        for source, target in joint_map(model.config.skeleton, skeleton).shared:
            new.weight[target] = old.weight[source]
            if new.bias is not None and old.bias is not None:
                new.bias[target] = old.bias[source]
    new.train(old.training)
    new.requires_grad_(old.weight.requires_grad)
    adapted.head.joints = new
    adapted.config = replace(adapted.config, skeleton=skeleton)
    return adapted


def resize(model: PoseModel, input_size: tuple[int, int], stride: int) -> PoseModel:
    """A copy of a model for pictures of another size, or with another stride.

    The backbone keeps its weights. The two layers that turn a joint's map into bins are resampled, linearly over rows,
    columns and bins, each sum over cells scaled to their new number: what stood at a share of the picture's height and
    width is found at that share. Features of larger people are others than those it learnt from: train the copy.

    Args:
        model: Any pose model; not changed.
        input_size: (H, W), multiples of the stride.
        stride: One of the backbone's.

    Raises:
        DposeError: the backbone has no such stride, or weights that belong to one size.
    """
    config = replace(model.config, input_size=input_size, stride=stride, sigma=0.0)
    made = PoseModel(config).to(next(model.parameters()).device).train(model.training)
    wanted, tensors = made.state_dict(), dict(model.state_dict())
    for name in ("head.x", "head.y"):
        for part in ("weight", "bias"):
            tensors[f"{name}.{part}"] = _resampled(
                tensors[f"{name}.{part}"], model.config, config, len(wanted[f"{name}.{part}"])
            )
    other = [n for n, t in wanted.items() if n not in tensors or tensors[n].shape != t.shape]
    if other:
        raise DposeError(
            f"has weights for pictures of {model.config.input_size[0]}x{model.config.input_size[1]} alone ({other[0]})",
            model.config.preset,
            "leave --input-size and --stride out, or start from others: --init imagenet, --strategy scratch",
        )
    made.load_state_dict({name: tensors[name] for name in wanted})
    return made


def temper(model: PoseModel, temperature: float) -> PoseModel:
    """A copy of a model whose logits are divided by `temperature`: as right as before, and above 1 less sure.

    Guo et al. 2017, "On calibration of modern neural networks", section 4.2: temperature scaling, of the last two
    layers' weights and biases. A model that has seen its public pictures many times is too sure of other people's, and
    most of what their gradients say at first is that. Clipped to a norm, they say little else, and noise is added to
    that little: whoever divides before the first private step spends the budget on where joints are (docs/results.md).

    Args:
        model: Any pose model; not changed.
        temperature: A number that no private data was read for, or that is told of.

    Returns:
        The copy, in the same mode and on the same device. No joint moves: `decode` finds the same places in it.

    Raises:
        DposeError: `temperature` is not a positive number.
    """
    if not 0 < temperature < math.inf:
        raise DposeError("a temperature is a positive number", str(temperature))
    tempered = copy.deepcopy(model)
    with torch.no_grad():
        for layer in (tempered.head.x, tempered.head.y):
            for parameter in layer.parameters(recurse=False):
                parameter.div_(temperature)
    return tempered


def _resampled(values: Tensor, old: PoseConfig, new: PoseConfig, bins: int) -> Tensor:
    """A layer's weights (bins, cells) or bias (bins,) between the same shares of other numbers of cells and bins."""
    if values.ndim == 1:
        return F.interpolate(values[None, None], size=bins, mode="linear")[0, 0]
    (h, w), (rows, columns) = (
        tuple(n * config.upsample for n in config.backbone.map_size(config.input_size))
        for config in (old, new)
    )
    cube = values.view(1, 1, -1, h, w)
    cube = F.interpolate(cube, size=(bins, rows, columns), mode="trilinear")
    return cube.view(bins, -1) * (h * w / (rows * columns))
