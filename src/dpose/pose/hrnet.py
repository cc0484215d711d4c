"""HRNet: timm's trunk up to its branch of the highest resolution, four pixels to a cell.

Sun et al. 2019, "Deep high-resolution representation learning for human pose estimation": heat maps are read from that
branch by one 1x1 convolution, the head of the codec "heatmap". Names of parameters are timm's, which are those of the
published code and of mmpose. What timm adds behind the branches, for a classifier, and what mixes the other branches at
the very end is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import timm
import torch
from torch import Tensor, nn

from dpose.errors import DposeError
from dpose.pose.norms import Norm, replace_batch_norms
from dpose.pose.timm_models import create, make_still, refuse_group

STRIDE = 4
SMALLEST = 32
"""Pixels to a cell of the branch of the lowest resolution."""
BEGINNING = "hrnet_"
FROZEN = (
    *("conv1.", "bn1.", "conv2.", "bn2.", "layer1."),
    *("transition1.", "stage2.", "transition2.", "stage3."),
)
"""Beginnings of the names of what stands before the last stage, and the transition into it."""


class HighestBranch(nn.Module):
    """The trunk of one of timm's HRNets, as if it were a network with one map at its end.

    Args:
        model: As timm makes it with `head=""`.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        for name, child in model.named_children():
            if name not in ("global_pool", "head_drop", "classifier"):
                self.add_module(name, child)
        last = model.stage4[-1]
        last.fuse_layers = last.fuse_layers[:1]

    def forward_features(self, x: Tensor) -> Tensor:
        """(N, 3, H, W), normalised, to (N, C, H / 4, W / 4)."""
        net = cast(Any, self)
        x = net.act1(net.bn1(net.conv1(x)))
        x = net.layer1(net.act2(net.bn2(net.conv2(x))))
        maps = net.stage2([step(x) for step in net.transition1])
        for transition, stage in ((net.transition2, net.stage3), (net.transition3, net.stage4)):
            # a new branch begins at the smallest map, the others go on
            maps = stage([step(maps[min(n, len(maps) - 1)]) for n, step in enumerate(transition)])
        found: Tensor = maps[0]
        return found


def build_hrnet(
    name: str, size: tuple[int, int], norm: Norm, pretrained: bool | Path
) -> tuple[nn.Module, nn.Module, int]:
    """The trunk of the HRNet that timm calls `name`, as `dpose.pose.backbones.Backbone.build` gives it.

    Args:
        name: As timm has it.
        size: (H, W) of the pictures, multiples of 32.
        norm: What stands for BatchNorm.
        pretrained: Whether it starts from ImageNet's weights, or the file that it starts from.

    Raises:
        DposeError: it does not take pictures of this size, or its weights cannot be had.
    """
    if size[0] % SMALLEST or size[1] % SMALLEST:
        raise DposeError(
            "input-size-unsupported",
            f"takes pictures whose sides are multiples of {SMALLEST}",
            f"input_size {size}",
            "choose another",
        )
    if pretrained:
        refuse_group(norm)
    model = create(name, pretrained, head="")
    trunk = HighestBranch(model)
    make_still(name, trunk)
    example = torch.zeros(1, 3, *size)
    replace_batch_norms(trunk, norm, lambda: trunk.forward_features(example))
    return trunk, nn.Identity(), int(model.stage4_cfg["num_channels"][0])


@cache
def _shapes(name: str) -> Mapping[str, tuple[int, ...]]:
    with torch.device("meta"):
        trunk = HighestBranch(timm.create_model(name, num_classes=0, head=""))
    return {key: tuple(tensor.shape) for key, tensor in trunk.state_dict().items()}


def name_of_trunk(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """What timm calls the HRNet whose trunk has tensors of these names and shapes; "" where it has none."""
    width = shapes.get("stage4.0.branches.0.0.conv1.weight", (0,))[0]
    # most are called by the width of this branch
    names = sorted(timm.list_models(f"{BEGINNING}*"), key=lambda name: f"w{width}" != name.split("_")[1])
    return next((name for name in names if _shapes(name) == dict(shapes)), "")
