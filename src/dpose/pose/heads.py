"""Changes of a trained model's head: another skeleton, picture size or codec, a softer head, or a corrected one."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpose.errors import DposeError
from dpose.pose.codec import codec_of
from dpose.pose.correction import FAR, CorrectedCodec, CorrectedHead
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.skeletons import joint_map, skeleton_named

FLOOR = 1e-3
"""Share of the mean variance of all directions that is added to each before it is whitened."""
TYPICAL = 0.7
"""Quantile of public people's statistics that the scale c brings to a norm of 1."""


def adapt_head(model: PoseModel, skeleton: str, generator: torch.Generator | None = None) -> PoseModel:
    """Return a copy of a model that predicts another skeleton's joints.

    The head's last layer that tells joints apart (SimCC's 1x1 convolution, `Codec.joint_layers`) has rows of
    weights and biases of each joint. Joints with the same name in both skeletons keep theirs: twelve from COCO to MPII,
    the limbs. All others are initialised as in a new model: MPII's upper neck and head top have no COCO joint, and
    pelvis and thorax are rows of their own, not the middle of others. What is shared by all joints, as SimCC's layers
    from a joint's map to bins, stays.

    `generator` draws the new rows, torch's own by default. Every parameter that trained still does.
    """
    joints = len(skeleton_named(skeleton))
    adapted = copy.deepcopy(model)
    if skeleton == model.config.skeleton:
        return adapted
    codec = model.codec
    if codec.joint_layers is None:
        adapted.config = replace(model.config, skeleton=skeleton)
        codec_of(adapted.config)  # refuses joints that the codec does not support
        return adapted
    if not codec.joint_layers:
        raise DposeError(
            "skeleton-unsupported",
            f"has a head for {model.config.skeleton}'s joints alone",
            f"codec {model.config.codec}",
        )
    shared = joint_map(model.config.skeleton, skeleton).shared
    for name, rows in codec.joint_layers.items():
        old = adapted.head.get_submodule(name)
        new = _with_rows(old, rows * joints, codec.fresh, generator)
        with torch.no_grad():
            for source, target in shared:
                mine, theirs = (slice(joint * rows, (joint + 1) * rows) for joint in (target, source))
                for kind, parameter in new.named_parameters():
                    parameter[mine] = old.get_parameter(kind)[theirs]
        adapted.head.set_submodule(name, new)
    adapted.config = replace(adapted.config, skeleton=skeleton)
    return adapted


def _with_rows(old: nn.Module, rows: int, fresh: float, generator: torch.Generator | None) -> nn.Module:
    """Return a new layer like `old` with so many rows: torch's uniform initialisation, scaled by `fresh`."""
    bias = cast(Any, old).bias is not None
    if isinstance(old, nn.Conv2d):
        shape: dict[str, Any] = {"stride": old.stride, "padding": old.padding, "bias": bias}
        new: nn.Conv2d | nn.Linear = nn.Conv2d(old.in_channels, rows, cast(Any, old.kernel_size), **shape)
    else:
        assert isinstance(old, nn.Linear), f"no rule for the rows of {type(old).__name__}"
        new = nn.Linear(old.in_features, rows, bias=bias)
    reach = fresh * new.weight[0].numel() ** -0.5  # torch's own reach: the root of a row's inputs
    with torch.no_grad():
        for parameter in new.parameters():
            parameter.uniform_(-reach, reach, generator=generator)
    new = new.to(old.weight.device, old.weight.dtype)
    new.train(old.training)
    new.requires_grad_(old.weight.requires_grad)
    return new


def resize(model: PoseModel, input_size: tuple[int, int], stride: int) -> PoseModel:
    """Return a copy of a model for pictures of another size, or with another stride.

    The backbone keeps its weights. SimCC's two layers that turn a joint's map into bins are resampled, linearly over
    rows, columns and bins, each sum over cells scaled to their new number: a share of the picture's height and width
    stays the same share. Heads without such layers fit any map and stay as they are. Features of larger people differ
    from those the model was trained on: train the copy.

    `input_size` is (H, W), multiples of the stride, which is one of the backbone's.
    """
    config = replace(model.config, input_size=input_size, stride=stride, sigma=0.0)
    made = PoseModel(config).to(next(model.parameters()).device).train(model.training)
    wanted, tensors = made.state_dict(), dict(model.state_dict())
    for layer in model.codec.bin_layers:
        for name in (f"head.{layer}.weight", f"head.{layer}.bias"):
            tensors[name] = _resampled(tensors[name], model.config, config, len(wanted[name]))
    other = [n for n, t in wanted.items() if n not in tensors or tensors[n].shape != t.shape]
    if other:
        raise DposeError(
            "input-size-fixed",
            f"has weights for pictures of {model.config.input_size[0]}x{model.config.input_size[1]} alone ({other[0]})",
            model.config.preset,
            "leave model.input_size and model.stride out, or start from others: --init imagenet, --strategy scratch",
        )
    made.load_state_dict({name: tensors[name] for name in wanted})
    return made


def divisible(config: PoseConfig, temperature: float) -> tuple[str, ...]:
    """Return the layers of a model's head that `temper` divides."""
    layers = codec_of(config).bin_layers
    if not layers:
        raise DposeError(
            "temperature-without-bins",
            f"divides logits of bins, which {config.codec} does not have",
            f"model.temperature={temperature:g}",
            "leave it out",
        )
    return layers


def change_codec(model: PoseModel, codec: str) -> PoseModel:
    """Return a copy of a model with an untrained head of another codec, drawn by torch's generator."""
    made = PoseModel(replace(model.config, codec=codec, sigma=0.0))
    backbone = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("head.")}
    made.load_state_dict({**made.state_dict(), **backbone})
    return made.to(next(model.parameters()).device).train(model.training)


def temper(model: PoseModel, temperature: float) -> PoseModel:
    """Return a copy of a model whose logits are divided by `temperature`: same predictions, less confident above 1.

    Guo et al. 2017, "On calibration of modern neural networks", section 4.2: temperature scaling, of the last two
    layers' weights and biases. A model that has seen its public pictures many times is overconfident on other people's,
    and their first gradients say little else. Clipped to a norm and noised, they carry little of where joints are:
    dividing before the first private step spends the budget on that instead (docs/lab/results.md).

    The temperature is one that was chosen without private data, or whose choice is declared. No joint moves.
    """
    if not 0 < temperature < math.inf:
        raise DposeError("temperature-not-positive", "a temperature is a positive number", str(temperature))
    layers = divisible(model.config, temperature)
    tempered = copy.deepcopy(model)
    with torch.no_grad():
        for layer in layers:
            for parameter in tempered.head.get_submodule(layer).parameters(recurse=False):
                parameter.div_(temperature)
    return tempered


def _resampled(values: Tensor, old: PoseConfig, new: PoseConfig, bins: int) -> Tensor:
    """Resample a layer's weights (bins, cells) or bias (bins,) to other numbers of cells and bins, share by share."""
    if values.ndim == 1:
        return F.interpolate(values[None, None], size=bins, mode="linear")[0, 0]
    (h, w), (rows, columns) = (
        tuple(n * config.upsample for n in config.backbone.map_size(config.input_size)) for config in (old, new)
    )
    cube = values.view(1, 1, -1, h, w)
    cube = F.interpolate(cube, size=(bins, rows, columns), mode="trilinear")
    return cube.view(bins, -1) * (h * w / (rows * columns))


def with_correction(model: PoseModel, directions: int) -> PoseModel:
    """A copy of a model whose joints are corrected linearly; the correction is 0 until it is fitted and solved."""
    if model.config.directions:
        raise DposeError(
            "model-corrected-already",
            "has a linear correction, which a second one would start from as if it were none",
            model.config.preset,
            "start from weights without one, or train these by another method",
        )
    made = type(model)(replace(model.config, directions=directions))
    wanted = made.state_dict()
    before = model.state_dict()
    kept = {f"head.base.{name[5:]}" if name.startswith("head.") else name: t for name, t in before.items()}
    made.load_state_dict({**wanted, **kept})
    return made.to(next(model.parameters()).device).train(model.training)


@torch.no_grad()
def fit_directions(model: PoseModel, people: Iterable[tuple[Tensor, Tensor, Tensor]]) -> int:
    """Fit the correction's centre, directions, scale and rates to public people, and set its weights to 0.

    Returns their number. They are batches of crops (N, 3, H, W), keypoints (N, J, 2) in pixels of the crop, and visible
    (N, J).
    """
    head, codec = model.head, model.codec
    assert isinstance(head, CorrectedHead)
    assert isinstance(codec, CorrectedCodec)
    found = []
    nn.init.zeros_(head.moves.weight)
    for crops, keypoints, visible in people:
        outputs = model(crops)
        residual = codec.residuals(outputs, keypoints, visible)
        length = residual.norm(dim=-1, keepdim=True)
        found.append((codec.features(outputs[:-1]), residual * (FAR / length.clamp_min(FAR)), (visible > 0).double()))
    x, r, seen = (torch.cat(part).double() for part in zip(*found, strict=True))
    mean = x.mean(0)
    variances, vectors = torch.linalg.eigh((x - mean).T @ (x - mean) / len(x))
    order = variances.argsort(descending=True)[: codec.directions]
    basis = vectors[:, order] / (variances[order] + FLOOR * variances.mean()).clamp_min(1e-12).sqrt()
    z = torch.cat([(x - mean) @ basis, torch.ones_like(x[:, :1])], 1)
    r = r.flatten(1) / codec.joints
    scale = torch.quantile(z.norm(dim=1) * r.norm(dim=1), TYPICAL).clamp_min(1e-9)
    spread = torch.einsum("ni,nj->nij", z / scale, r).var(0).mean()
    # a joint that few public people show would be magnified by one over its share
    rates = seen.mean(0).clamp_min(1 / 8)
    head.mean.copy_(mean)
    head.basis.copy_(basis)
    head.facts.copy_(torch.cat([torch.stack([scale, spread]), rates]))
    return len(x)
