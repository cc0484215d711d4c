"""Readers of whole pose models of other libraries: transformers' ViTPose; OpenMMLab's files of ViTPose, HRNet, RTMPose.

    model = read_elsewhere(Path("vitpose-base-simple"))               # a folder of transformers' save_pretrained
    model = read_elsewhere(Path("td-hm_hrnet-w32_...-256x192.pth"))   # a file of mmpose

One table translates the names of tensors to dpose's. Neither library is needed, and no code in a file is run. The
BatchNorm behind a transposed convolution is folded into it, as in evaluation; those of a backbone stay, and are folded
when a run is private.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dpose.errors import DposeError
from dpose.files import file_json
from dpose.known_sets import sets_in
from dpose.pose.backbones import RTMPOSE_SIZES, TIMM, VITPOSE, VITPOSE_SIZES, WEIGHTS
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.skeletons import SKELETONS
from dpose.pose.weights_file import SUFFIXES, fill, read_checkpoint, read_tensors

CONFIG = "config.json"
NORM_EPSILON = 1e-5
"""Epsilon of the BatchNorms behind transposed convolutions: torch's default, which both libraries use."""
SIZE = (256, 192)
"""(H, W) of the pictures if the file's name gives no other."""
OTHER_JOINTS = ("posetrack", "ap10k", "apt36k")
"""Datasets with seventeen joints that are not COCO's."""

_BLOCK = r"backbone\.(?:encoder\.layer|layers|blocks)\.(\d+)\."
RENAMED: tuple[tuple[str, str], ...] = (
    # transformers' VitPoseForPoseEstimation
    (r"backbone\.embeddings\.patch_embeddings\.projection\.", "backbone.patch_embed."),
    (r"backbone\.embeddings\.position_embeddings$", "backbone.pos_embed"),
    (_BLOCK + r"attention\.attention\.(query|key|value)\.", r"backbone.blocks.\1.attn.\2."),
    (_BLOCK + r"attention\.output\.dense\.", r"backbone.blocks.\1.attn.proj."),
    (_BLOCK + r"layernorm_before\.", r"backbone.blocks.\1.norm1."),
    (_BLOCK + r"layernorm_after\.", r"backbone.blocks.\1.norm2."),
    (r"backbone\.layernorm\.", "backbone.last_norm."),
    (r"head\.conv\.", "head.joints."),
    (r"head\.deconv1\.", "head.deconvolutions.0."),
    (r"head\.batchnorm1\.", "head.batchnorms.0."),
    (r"head\.deconv2\.", "head.deconvolutions.2."),
    (r"head\.batchnorm2\.", "head.batchnorms.2."),
    # ViTPose's own files, and mmpose's with mmpretrain's VisionTransformer
    (r"backbone\.patch_embed\.proj(?:ection)?\.", "backbone.patch_embed."),
    (_BLOCK + r"ln([12])\.", r"backbone.blocks.\1.norm\2."),
    (_BLOCK + r"ffn\.layers\.0\.0\.", r"backbone.blocks.\1.mlp.fc1."),
    (_BLOCK + r"ffn\.layers\.1\.", r"backbone.blocks.\1.mlp.fc2."),
    (r"backbone\.ln1\.", "backbone.last_norm."),
    (_BLOCK, r"backbone.blocks.\1."),
    # mmpose's heads of heat maps: "keypoint_head" before its version 1, "head" since
    (r"(?:keypoint_)?head\.final_layer\.", "head.joints."),
    (r"(?:keypoint_)?head\.deconv_layers\.0\.", "head.deconvolutions.0."),
    (r"(?:keypoint_)?head\.deconv_layers\.1\.", "head.batchnorms.0."),
    (r"(?:keypoint_)?head\.deconv_layers\.3\.", "head.deconvolutions.2."),
    (r"(?:keypoint_)?head\.deconv_layers\.4\.", "head.batchnorms.2."),
)
"""Prefixes of other libraries' names as regular expressions, the first match counts, and dpose's prefix for each.
HRNet's backbone has the same names everywhere.
"""


def is_elsewhere(place: Path) -> bool:
    """True if `place` is a whole pose model of another library, judged by the names of files and tensors."""
    if place.is_dir():
        return _settings(place).get("model_type") == "vitpose"
    try:
        stat = place.stat()
        return place.suffix in SUFFIXES and _is_pose_file(place, stat.st_mtime_ns, stat.st_size)
    except (OSError, DposeError):
        return False  # the reader reports what is wrong


@cache
def _is_pose_file(file: Path, changed: int, size: int) -> bool:
    names = read_checkpoint(file)[0]
    return any(map(re.compile(r"(keypoint_)?head\.").match, names)) and any(
        name.startswith("backbone.") for name in names
    )


def read_elsewhere(place: Path) -> PoseModel:
    """Read the model at a path for which `is_elsewhere` is true, in float32 and evaluation mode."""
    if place.is_dir():
        model = _of_transformers(place)
        model.source = place
    else:
        model = _of_mmpose(place)
    return model.eval()


def _of_transformers(folder: Path) -> PoseModel:
    settings, where = _settings(folder), str(folder / CONFIG)
    trunk = settings.get("backbone_config")
    trunk = trunk if isinstance(trunk, dict) else {}
    wanted: dict[str, tuple[object, object]] = {  # a missing key stands for the library's default
        "scale_factor": (settings.get("scale_factor", 4), 4),
        "patch_size": (_pair(trunk.get("patch_size", 16)), (16, 16)),
        "mlp_ratio": (trunk.get("mlp_ratio", 4), 4),
        "hidden_act": (trunk.get("hidden_act", "gelu"), "gelu"),
        "num_channels": (trunk.get("num_channels", 3), 3),
        "layer_norm_eps": (trunk.get("layer_norm_eps", 0) <= 1e-5, True),
    }
    for name, (actual, known) in wanted.items():
        if actual != known:
            raise DposeError(
                "tensor-unknown", f"has a {name} that ViTPose does not have", where, "choose another model"
            )
    if not (folder / WEIGHTS).exists():
        raise DposeError(
            "weights-missing",
            f"has no {WEIGHTS}",
            str(folder),
            "write it with transformers: model.save_pretrained(FOLDER, max_shard_size='10GB')",
        )
    tensors = _renamed(read_tensors(folder / WEIGHTS))
    size, heads = _pair(trunk.get("image_size", SIZE)), trunk.get("num_attention_heads", 12)
    last = (trunk.get("out_indices") or [None])[-1]
    depth = trunk.get("num_hidden_layers", 12)
    if last not in (None, -1, depth):
        raise DposeError(
            "block-unsupported", f"reads the map of block {last} of {depth}", where, "choose another model"
        )
    return _vitpose(tensors, size, heads, str(folder))


def _of_mmpose(file: Path) -> PoseModel:
    tensors, settings = read_checkpoint(file)
    if "head.gau.gamma" not in tensors:  # RTMPose's names are dpose's
        tensors = _renamed(tensors)
    if "backbone.pos_embed" in tensors:
        return _vitpose(tensors, _size(file.name), 0, str(file))
    if any(name.startswith("backbone.stage4.0.branches.") for name in tensors):
        return _hrnet(tensors, file, settings)
    if "backbone.stem.2.conv.weight" in tensors and "head.gau.gamma" in tensors:
        return _rtmpose(tensors, file)
    raise DposeError(
        "model-unknown", "holds another pose model than ViTPose, HRNet and RTMPose", str(file), "choose one of these"
    )


def _rtmpose(tensors: dict[str, Tensor], file: Path) -> PoseModel:
    blocks = re.compile(r"backbone\.stage2\.1\.blocks\.(\d+)\.")
    depth = 1 + max((int(m[1]) for name in tensors if (m := blocks.match(name))), default=-1)
    width = tensors["backbone.stem.2.conv.weight"].shape[0]
    known = {(int(64 * w), max(round(6 * d), 1)): name for name, (d, w) in RTMPOSE_SIZES.items()}
    if (width, depth) not in known:
        raise DposeError(
            "rtmpose-size-unknown", "is an RTMPose of another size", str(file), f"known: {', '.join(RTMPOSE_SIZES)}"
        )
    from dpose.pose.rtmpose import BETA

    for axis in ("x", "y"):
        name = f"head.cls_{axis}.weight"
        tensors[name] = _needed(tensors, name, str(file)) * BETA
    return _filled(f"rtmpose:{known[width, depth]}", _size(file.name), "rtmpose", tensors, str(file))


def _vitpose(tensors: dict[str, Tensor], size: tuple[int, int], heads: int, where: str) -> PoseModel:
    """Build ViTPose from renamed tensors; 0 heads stands for the number in the published network of these sizes."""
    width = _needed(tensors, "backbone.patch_embed.weight", where).shape[0]
    depth = 1 + max((int(m[1]) for name in tensors if (m := re.match(r"backbone\.blocks\.(\d+)\.", name))), default=-1)
    known = {sizes[:2]: (name, sizes[2]) for name, sizes in VITPOSE_SIZES.items()}
    name, own = known.get((width, depth), ("", 0))
    heads = heads or own
    if not (depth and heads):
        raise DposeError(
            "vitpose-size-unknown", f"is a ViTPose of {width} channels and {depth} blocks, which is none", where
        )
    preset = VITPOSE + (name if name and heads == own else f"{width}x{depth}x{heads}")
    _one_position_a_token(tensors, size)
    for block in range(depth):
        _one_matrix(tensors, f"backbone.blocks.{block}.attn.")
        _one_expert(tensors, f"backbone.blocks.{block}.mlp.")
    classic = "head.deconvolutions.0.weight" in tensors
    for layer in (0, 2):
        _fold(tensors, layer)
    codec = "vitpose-classic" if classic else "vitpose"
    return _filled(preset, size, codec, tensors, where)


def _hrnet(tensors: dict[str, Tensor], file: Path, settings: str) -> PoseModel:
    from dpose.pose.timm_models import name_of_trunk

    trunk = {
        name.removeprefix("backbone."): tuple(tensor.shape)
        for name, tensor in tensors.items()
        if name.startswith("backbone.")
    }
    name = name_of_trunk(trunk)
    if not name:
        raise DposeError("hrnet-size-unknown", "is an HRNet that timm does not have", str(file), "choose another model")
    # the positions of cells in pixels are settings, and not in the tensors
    unbiased = "udp" in re.split(r"[^a-z0-9]+", file.name.lower()) or "UDPHeatmap" in settings
    codec = "heatmap-udp" if unbiased or re.search(r"use_udp\s*=\s*True", settings) else "heatmap-msra"
    return _filled(TIMM + name, _size(file.name), codec, tensors, str(file))


def _filled(preset: str, size: tuple[int, int], codec: str, tensors: Mapping[str, Tensor], where: str) -> PoseModel:
    """Build the model with exactly these tensors."""
    last = "head.final_layer.weight" if codec == "rtmpose" else "head.joints.weight"
    joints = _needed(tensors, last, where).shape[0]
    skeleton = {17: "coco", 16: "mpii"}.get(joints, "")
    other = next((key for key in sets_in(Path(where).name) if key in OTHER_JOINTS), "")
    if not skeleton or other:
        names = f"{other}'s" if other else f"{joints}"
        raise DposeError(
            "joints-unknown",
            f"is a model of {names} joints: COCO's {len(SKELETONS['coco'])} and MPII's "
            f"{len(SKELETONS['mpii'])} are known",
            where,
            "choose another model",
        )
    model = PoseModel(PoseConfig(preset, size, skeleton, codec=codec))
    fill(model, tensors, where, "choose another model")
    return model


def _renamed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    renamed = {}
    for name, tensor in tensors.items():
        fits = (re.sub(f"^{old}", new, name) for old, new in RENAMED if re.match(old, name))
        renamed[next(fits, name)] = tensor
    return renamed


def _needed(tensors: Mapping[str, Tensor], name: str, where: str) -> Tensor:
    if name not in tensors:
        raise DposeError("tensor-missing", f"has no tensor that stands for {name}", where, "choose another model")
    return tensors[name]


def _one_position_a_token(tensors: dict[str, Tensor], size: tuple[int, int]) -> None:
    """Add the position of a class token, which these networks lack, to all others: the same function."""
    from dpose.pose.vitpose import PATCH

    name = "backbone.pos_embed"
    positions = tensors.get(name)
    tokens = (size[0] // PATCH) * (size[1] // PATCH)
    if positions is not None and positions.ndim == 3 and positions.shape[1] == tokens + 1:
        tensors[name] = positions[:, 1:] + positions[:, :1]


def _one_matrix(tensors: dict[str, Tensor], block: str) -> None:
    """Join query, key and value under one name, with zeros for missing biases."""
    parts = [f"{block}{part}." for part in ("query", "key", "value")]
    if all(f"{part}weight" in tensors for part in parts):
        weights = [tensors.pop(f"{part}weight") for part in parts]
        biases = [tensors.pop(f"{p}bias", w.new_zeros(len(w))) for p, w in zip(parts, weights, strict=True)]
        tensors[f"{block}qkv.weight"], tensors[f"{block}qkv.bias"] = torch.cat(weights), torch.cat(biases)


def _one_expert(tensors: dict[str, Tensor], block: str) -> None:
    """Take the first expert of ViTPose+, COCO's: append its rows to the shared ones."""
    experts = [name for name in tensors if name.startswith(f"{block}experts.")]
    if not experts:
        return
    for kind in ("weight", "bias"):
        first = tensors.get(f"{block}experts.0.{kind}")
        if first is not None and f"{block}fc2.{kind}" in tensors:
            tensors[f"{block}fc2.{kind}"] = torch.cat([tensors[f"{block}fc2.{kind}"], first])
    for name in experts:
        del tensors[name]


def _fold(tensors: dict[str, Tensor], layer: int) -> None:
    """Fold the BatchNorm behind a transposed convolution, as in evaluation, into it."""
    conv, norm = f"head.deconvolutions.{layer}.", f"head.batchnorms.{layer}."
    names = ("weight", "bias", "running_mean", "running_var")
    if f"{conv}weight" not in tensors or any(norm + name not in tensors for name in names):
        return
    weight, bias, mean, variance = (tensors.pop(norm + name).double() for name in names)
    tensors.pop(f"{norm}num_batches_tracked", None)
    scale = weight * (variance + NORM_EPSILON).rsqrt()
    kernel = tensors[f"{conv}weight"]  # (in, out, height, width)
    tensors[f"{conv}weight"] = (kernel.double() * scale[:, None, None]).to(kernel.dtype)
    tensors[f"{conv}bias"] = (bias - mean * scale).to(kernel.dtype)


def _size(name: str) -> tuple[int, int]:
    """Parse (H, W) from a file's name, "...-384x288-...": both multiples of 32."""
    sizes = [(int(h), int(w)) for h, w in re.findall(r"(?<!\d)(\d{2,3})x(\d{2,3})(?!\d)", name)]
    return next((size for size in sizes if not (size[0] % 32 or size[1] % 32)), SIZE)


def _pair(value: Any) -> tuple[int, int]:
    return (value[0], value[1]) if isinstance(value, list | tuple) and len(value) == 2 else (value, value)


def _settings(folder: Path) -> Mapping[str, Any]:
    try:
        values = file_json(folder / CONFIG)
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
