"""Convert BlazePose, as MediaPipe publishes it on npm (Apache-2.0), to the weights that come with dpose.

    npm pack @mediapipe/pose@0.5.1675469404
    python tools/convert_blazepose.py mediapipe-pose-0.5.1675469404.tgz                      # lite, full, detector
    python tools/convert_blazepose.py mediapipe-pose-0.5.1675469404.tgz --heavy FOLDER       # heavy, into a folder

Needs `pip install tflite`, which reads the files' structure. Weights stay in half precision, as they were published:
each output channel is divided by a power of two, which changes no digit (`set_scales`). The networks'
outputs for segmentation and world coordinates are left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray

from dpose.files import SHIPPED, write_atomic
from dpose.pose.blazepose import POINTS, BlazePoseDetector, BlazePoseHead, BlazePoseTrunk, ScaledConv

PACKAGE = "@mediapipe/pose 0.5.1675469404"
CHECKSUM = "8bb349a7b3a3ba699df23be804ddd3b3eab810b50b15406894be257859388a84"
"""SHA-256 of the archive that `npm pack` gives."""
FILES = {
    "lite": "package/pose_landmark_lite.tflite",
    "full": "package/pose_landmark_full.tflite",
    "heavy": "package/pose_landmark_heavy.tflite",
    "detector": "package/pose_solution_packed_assets.data",
}
NOTICE = f"""BlazePose
Copyright The MediaPipe Authors. Licensed under the Apache License, Version 2.0 (LICENSE, in this folder).

The weights in this folder were converted from the npm package {PACKAGE}
(pose_landmark_lite.tflite, pose_landmark_full.tflite, pose_solution_packed_assets.data) by
tools/convert_blazepose.py: from TFLite to safetensors, each output channel divided by a power of two that is
stored beside it, the outputs for segmentation and world coordinates left out. They are otherwise unchanged.
What they were trained on is not public.
"""


class BlazePose(torch.nn.Module):
    """Landmark network as it was published: trunk and head.

    Args:
        kind: A name in `SIZES`.
    """

    def __init__(self, kind: str = "full") -> None:
        super().__init__()
        self.backbone = BlazePoseTrunk(kind)
        self.head = BlazePoseHead(self.backbone.channels)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(N, 3, 256, 256) of 0 to 1 to the outputs of `BlazePoseHead`."""
        made: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = self.head(self.backbone.forward_features(x))
        return made


class Graph:
    """The convolutions of a TFLite file that lead to its outputs, in the file's order, with their weights."""

    def __init__(self, content: bytes, outputs: int) -> None:
        import tflite

        self._tflite = tflite
        self._model = tflite.Model.GetRootAsModel(content, 0)
        self._graph = self._model.Subgraphs(0)
        names = {v: k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}
        self._made: dict[int, tuple[str, list[int]]] = {}
        order = []
        for number in range(self._graph.OperatorsLength()):
            operator = self._graph.Operators(number)
            code = self._model.OperatorCodes(operator.OpcodeIndex())
            name = names[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())]
            out = int(operator.Outputs(0))
            self._made[out] = (name, [int(i) for i in operator.InputsAsNumpy()])
            order.append(out)
        ends = [int(self._graph.Outputs(i)) for i in range(self._graph.OutputsLength())]
        wanted = set(self._ending(ends, outputs))
        waiting = list(wanted)
        while waiting:
            for source in self._made.get(waiting.pop(), ("", []))[1]:
                if source not in wanted:
                    wanted.add(source)
                    waiting.append(source)
        self.convs = [self._conv(out) for out in order if out in wanted and "CONV" in self._made[out][0]]

    def _ending(self, ends: list[int], outputs: int) -> list[int]:
        """Kept outputs: of a landmark network coordinates, presence and heat maps; of the detector both."""
        if outputs == len(ends):
            return ends
        shapes = {end: self._graph.Tensors(end).ShapeAsNumpy().tolist() for end in ends}
        return [end for end, shape in shapes.items() if shape in ([1, 195], [1, 1], [1, 64, 64, 39])]

    def _conv(self, out: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        name, (_, weight, bias) = self._made[out]
        values = self._values(weight)
        order = (3, 0, 1, 2) if name == "DEPTHWISE_CONV_2D" else (0, 3, 1, 2)
        return np.ascontiguousarray(values.transpose(order)), self._values(bias)

    def _values(self, number: int) -> NDArray[np.float32]:
        if number in self._made:  # made from constants: stored in half precision, or sparsely
            return self._values(self._made[number][1][0])
        tensor = self._graph.Tensors(number)
        kind = {0: np.float32, 1: np.float16}[tensor.Type()]
        flat = np.frombuffer(self._model.Buffers(tensor.Buffer()).DataAsNumpy().tobytes(), kind)
        shape = tuple(tensor.ShapeAsNumpy())
        sparsity = tensor.Sparsity()
        return (flat if sparsity is None else self._dense(sparsity, flat, shape)).reshape(shape).astype(np.float32)

    def _dense(self, sparsity: Any, stored: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """A tensor from its stored numbers, level by level (TFLite's format of sparse tensors, without blocks)."""
        order = sparsity.TraversalOrderAsNumpy().tolist()
        if order != sorted(order) or sparsity.BlockMapLength():
            raise SystemExit(f"a sparse tensor in an order that is not read here: {order}")
        places: list[tuple[int, ...]] = [()]
        for level in range(sparsity.DimMetadataLength()):
            about = sparsity.DimMetadata(level)
            if about.Format() == self._tflite.DimensionType.DENSE:
                places = [(*place, i) for place in places for i in range(about.DenseSize())]
            else:
                ends, indices = self._integers(about, "Segments"), self._integers(about, "Indices")
                places = [(*place, int(i)) for n, place in enumerate(places) for i in indices[ends[n] : ends[n + 1]]]
        if len(places) != len(stored):
            raise SystemExit(f"a sparse tensor of {len(stored)} numbers has {len(places)} places")
        dense = np.zeros(shape, stored.dtype)
        dense[tuple(np.array(places).T)] = stored
        return dense

    def _integers(self, about: Any, which: str) -> NDArray[Any]:
        kinds = {1: self._tflite.Int32Vector, 2: self._tflite.Uint16Vector, 3: self._tflite.Uint8Vector}
        vector = kinds[getattr(about, f"Array{which}Type")()]()
        table = getattr(about, f"Array{which}")()
        vector.Init(table.Bytes, table.Pos)
        return vector.ValuesAsNumpy()


def landmark_order(network: BlazePose, coordinates: ScaledConv) -> Iterator[ScaledConv]:
    """The convolutions of a landmark network in the file's order; `coordinates` are the head's places and facts."""
    trunk, head = network.backbone, network.head
    yield from (trunk.stem, trunk.stem_depthwise, trunk.stem_project)
    laterals: list[torch.nn.Module] = []
    level = 0
    for number, stage in enumerate(trunk.stages):
        yield from _blocks(stage, laterals)
        laterals = []
        if number in (0, 1, 3):
            laterals = [trunk.lateral[level]]
            if trunk.from_pyramid and level:
                laterals.append(trunk.entries[level - 1])
            level += 1
    yield trunk.top_expand
    yield trunk.top_depthwise
    yield from _convs(trunk.lateral[3])
    before = len(trunk.entries) if trunk.from_pyramid else 0
    yield from _convs(trunk.tower[:before])
    yield head.heat
    yield from _convs(trunk.entries[-1])
    yield from _convs(trunk.tower[before:])
    yield coordinates
    yield head.presence


def detector_order(network: BlazePoseDetector) -> Iterator[ScaledConv]:
    """The convolutions of the detector in the file's order."""
    yield from (network.stem, network.stem_depthwise, network.stem_project)
    laterals: list[torch.nn.Module] = []
    for number, stage in enumerate(network.stages):
        yield from _blocks(stage, laterals)
        laterals = [network.lateral[number // 2]] if number in (1, 3) else []
    yield network.top_expand
    yield network.top_depthwise
    for up, refine in zip(network.up, network.refine, strict=True):
        yield from _convs(up)
        yield from _convs(refine)
    for score, place in zip(network.scores, network.places, strict=True):
        yield from _convs(score)
        yield from _convs(place)


def _blocks(stage: torch.nn.Module, laterals: list[torch.nn.Module]) -> Iterator[ScaledConv]:
    """A stage's blocks; what branches off before it stands behind its first convolution."""
    first, *others = _convs(stage)
    yield first
    for lateral in laterals:
        yield from _convs(lateral)
    yield from others


def _convs(module: torch.nn.Module) -> Iterator[ScaledConv]:
    return (layer for layer in module.modules() if isinstance(layer, ScaledConv))


def load(network: BlazePose | BlazePoseDetector, content: bytes) -> None:
    """Give a network the weights of a TFLite file.

    Raises:
        SystemExit: the file has other convolutions than the network.
    """
    whole = None
    if isinstance(network, BlazePose):
        whole = ScaledConv(network.backbone.channels[1], 5 * POINTS, 2, padding=0)
        order, convs = list(landmark_order(network, whole)), Graph(content, 3).convs
    else:
        order, convs = list(detector_order(network)), Graph(content, 2).convs
    if len(order) != len(convs) or len(order) != len(list(_convs(network))) - (whole is not None):
        raise SystemExit(f"the file has {len(convs)} convolutions, the network {len(order)}")
    for layer, (weight, bias) in zip(order, convs, strict=True):
        if tuple(layer.conv.weight.shape) != weight.shape:
            raise SystemExit(f"a convolution of {weight.shape} where {tuple(layer.conv.weight.shape)} belongs")
        layer.conv.weight.data = torch.from_numpy(weight.copy())
        layer.conv.bias.data = torch.from_numpy(bias.copy())  # type: ignore[union-attr]
    if isinstance(network, BlazePose) and whole is not None:
        for conv, values in ((network.head.places, slice(0, 2)), (network.head.facts, slice(2, 5))):
            for mine, theirs in zip(conv.conv.parameters(), whole.conv.parameters(), strict=True):
                mine.data = theirs.data.unflatten(0, (POINTS, 5))[:, values].flatten(0, 1).clone()
    set_scales(list(_convs(network)))


def set_scales(convs: Sequence[ScaledConv], least: float = 2.0**-12) -> None:
    """Give each output channel the power of two nearest to its size as scale, and divide weight and bias by it.

    A channel's size is the root of the mean square of its weights; a power of two changes no digit of them.

    Args:
        convs: Layers, changed in place; their function stays.
        least: Smallest scale, for channels of zeros.
    """
    with torch.no_grad():
        for layer in convs:
            assert layer.conv.bias is not None
            whole = layer.conv.weight * layer.scale.view(-1, 1, 1, 1)
            bias = layer.conv.bias * layer.scale
            size = whole.flatten(1).square().mean(1).sqrt().clamp_min(least)
            layer.scale.copy_(torch.exp2(size.log2().round()))
            layer.conv.weight.copy_(whole / layer.scale.view(-1, 1, 1, 1))
            layer.conv.bias.copy_(bias / layer.scale)


def write(network: torch.nn.Module, path: Path) -> None:
    """Write weights in half precision where that changes nothing, else in single precision."""
    tensors = {}
    for name, tensor in network.state_dict().items():
        half = tensor.half()
        tensors[name] = half if torch.equal(half.float(), tensor) else tensor
    write_atomic(path, safetensors.torch.save(tensors, {"format": "pt"}))
    wide = [name for name, tensor in tensors.items() if tensor.dtype == torch.float32]
    print(f"{path}: {path.stat().st_size:,} bytes, {len(wide)} of {len(tensors)} tensors in single precision")


def main() -> int:
    """The conversion; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("archive", type=Path, help="what `npm pack` gave")
    parser.add_argument("--out", type=Path, default=SHIPPED / "blazepose")
    parser.add_argument("--heavy", type=Path, help="a folder for the largest network, which does not come with dpose")
    options = parser.parse_args()
    found = hashlib.sha256(options.archive.read_bytes()).hexdigest()
    if found != CHECKSUM:
        raise SystemExit(f"{options.archive} is not {PACKAGE}: its SHA-256 is {found}, not {CHECKSUM}")
    with tarfile.open(options.archive) as opened:
        contents = {name: opened.extractfile(path).read() for name, path in FILES.items()}  # type: ignore[union-attr]
    folders = {"heavy": options.heavy} if options.heavy else {n: options.out / n for n in ("lite", "full")}
    for kind, folder in folders.items():
        network = BlazePose(kind)
        load(network, contents[kind])
        write(network, folder / "model.safetensors")
        write_atomic(folder / "config.json", json.dumps(config(kind), indent=2) + "\n")
    if not options.heavy:
        detector = BlazePoseDetector()
        load(detector, contents["detector"])
        write(detector, options.out / "detector.safetensors")
        write_atomic(options.out / "NOTICE", NOTICE)
    return 0


def config(kind: str) -> dict[str, Any]:
    """A model folder's config.json."""
    return {
        "task": "pose",
        "model": {"preset": f"blazepose:{kind}", "skeleton": "blazepose", "norm": "folded", "codec": "blazepose"},
        "trained_on": {
            "datasets": [],
            "known": False,
            "licence": "Apache-2.0",
            "note": f"BlazePose {kind} of The MediaPipe Authors; trained on data that are not public",
        },
    }


if __name__ == "__main__":
    sys.exit(main())
