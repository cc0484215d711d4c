"""A trained head for another skeleton: the joints that both have keep their weights."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import nn

from dpose.errors import DposeError
from dpose.pose.model import PoseModel
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
