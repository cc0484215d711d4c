"""How the weights of the learned restoration were made: one command, which goes on where it was stopped.

    python tools/train_restoration.py --lspet DATA/lspet --run runs/restoration

Pictures are LSPET's public split, photographs that come with scikit-image, and rendered people of `studio`: nobody who
needs a guarantee. What the restoration is measured on (scikit-image's astronaut, coffee, chelsea and rocket, LSPET's
other splits) is never opened. Of each picture a piece is shrunk, averaged over cells, and noise as a release has it is
added; the network learns the piece on a grid twice as fine, in squared error, so that it gives a mean over what may
have been there and not one sharp guess.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import lzma
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import cv2
import numpy as np
import torch
import typer
from numpy.typing import NDArray
from rich.console import Console
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from dpose.files import write_atomic
from dpose.pose.data import open_data
from dpose.release.restoration import FROM_RGB, GAIN, MAPS, TO_RGB, WEIGHTS, frame_maps, linear_guess, on_luma
from dpose_scene.films import FILM_ACTIONS, film_labels
from dpose_scene.render import clip, render_person
from dpose_scene.splits import scene_seed

COMMAND = "python tools/train_restoration.py --lspet DATA/lspet --run runs/restoration"
PHOTOGRAPHS = ("camera", "brick", "grass", "gravel", "coins", "moon", "hubble_deep_field", "motorcycle_left")
"""Of scikit-image's own. Astronaut, coffee, chelsea and rocket are what is measured on."""
HELD_OUT = 60
"""The last so many pictures of LSPET's public split are validated on, and never learned from."""
RENDERED, FILMS = 300, 160
WIDTHS = (24, 48, 96, 96)
CELLS = 18432
"""Of a batch."""
SIDES = (24, 32, 48)

Singles = NDArray[np.float32]


class Residual(nn.Module):
    """x + conv(relu(conv(x)))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(width, width, 3, padding=1)
        self.two = nn.Conv2d(width, width, 3, padding=1)
        nn.init.zeros_(self.two.weight)

    def forward(self, x: Tensor) -> Tensor:
        """(N, width, rows, columns) to the same."""
        return x + self.two(torch.relu(self.one(x)))


class RestorationNet(nn.Module):
    """A U-Net on cells: rows and columns must be divisible by 8; what it gives is twice as fine."""

    def __init__(self, widths: tuple[int, ...] = WIDTHS) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(widths))
        self.first = nn.Conv2d(MAPS, widths[0], 3, padding=1)
        self.encoders = nn.ModuleList(Residual(width) for width in widths[:-1])
        self.down = nn.ModuleList(nn.Conv2d(a, b, 2, stride=2) for a, b in pairs)
        self.middle = nn.Sequential(Residual(widths[-1]), Residual(widths[-1]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in pairs)
        self.decoders = nn.ModuleList(Residual(width) for width in widths[:-1])
        self.last = nn.ConvTranspose2d(widths[0], 3, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 19, rows, columns) to (N, 3, 2 rows, 2 columns)."""
        x = self.first(x)
        kept = []
        for encoder, down in zip(self.encoders, self.down, strict=True):
            x = encoder(x)
            kept.append(x)
            x = down(x)
        x = self.middle(x)
        for level in reversed(range(len(kept))):
            x = self.decoders[level](self.up[level](x) + kept[level])
        return self.last(x)


@dataclass(frozen=True)
class Pictures:
    """What is learned from: clips of one or three frames, uint8 (T, H, W, 3)."""

    clips: list[NDArray[np.uint8]]
    held_out: list[NDArray[np.uint8]]


def open_pictures(lspet: Path, console: Console) -> Pictures:
    """All pictures, in memory."""
    import skimage.data

    public = open_data(f"lspet:{lspet}:public").pictures
    photographs = [picture.read()[0] for picture in public]
    clips = [image[None] for image in photographs[:-HELD_OUT]]
    for name in PHOTOGRAPHS:
        image = np.asarray(
            getattr(skimage.data, name)() if name != "motorcycle_left" else skimage.data.stereo_motorcycle()[0]
        )
        image = image if image.ndim == 3 else np.repeat(image[..., None], 3, axis=2)
        clips += [np.ascontiguousarray(image[None, ..., :3])] * 4
    for index in range(RENDERED):
        seed = scene_seed("studio", "train", index)
        clips.append(render_person("studio", seed, size=(384, 288)).image[None])
    for index in range(FILMS):
        labels = film_labels("studio", "train", index)
        step = 1 + index % 3
        frames = clip("studio", labels.seed, FILM_ACTIONS[index % len(FILM_ACTIONS)], 2 * step + 1, (240, 320))
        clips.append(np.stack([scene.image for scene in frames[::step]]))
    console.print(f"{len(clips):,} pictures and films, {HELD_OUT} photographs held out")
    return Pictures(clips, [image[None] for image in photographs[-HELD_OUT:]])


def piece(
    clip: NDArray[np.uint8], side: int, shown: tuple[int, ...], rng: np.random.Generator
) -> tuple[Singles, NDArray[np.bool_]]:
    """Frames of a shrunk piece, (T, 2 side, 2 side, 3) RGB in 0..1, and where there is a picture at all."""
    turn = -1 if rng.random() < 0.5 else 1
    frames = [clip[t][:, ::turn] for t in shown] if len(clip) == 3 else [clip[0][:, ::turn]]
    height, width = frames[0].shape[:2]
    most = max(1.0, min(height, width) / (1.2 * side))
    shrink = float(np.exp(rng.uniform(0, math.log(min(most, 12.0)))))
    move = 8 if len(clip) == 1 and len(shown) > 1 and rng.random() < 0.5 else 0
    drift = rng.integers(-move, move + 1, 2) * (rng.random(2) < 0.8)
    want = 2 * side
    cut = math.ceil((want + 2 * move) * shrink)
    y, x = (int(rng.integers(0, max(0, n - cut) + 1)) for n in (height, width))
    small = []
    for frame in frames:
        part = frame[y : y + cut, x : x + cut]
        size = (max(1, round(part.shape[1] / shrink)), max(1, round(part.shape[0] / shrink)))
        resized = cv2.resize(part, size, interpolation=cv2.INTER_AREA)
        small.append(resized.astype(np.float32) / 255)
    out = []
    real = np.zeros((want, want), np.bool_)
    tall, broad = (min(want, n) for n in small[0].shape[:2])
    top, left = (max(0, min(move, n - want)) for n in small[0].shape[:2])
    for number, t in enumerate(shown):
        dy, dx = (t - 1) * drift
        frame = small[min(number, len(small) - 1)]
        yy, xx = (
            int(np.clip(a + d, 0, n - m))
            for a, d, n, m in zip((top, left), (dy, dx), frame.shape[:2], (tall, broad), strict=True)
        )
        # a cell at the edge has the mean of those of its pixels that there are
        part = np.ascontiguousarray(frame[yy : yy + tall, xx : xx + broad])
        out.append(cv2.copyMakeBorder(part, 0, want - tall, 0, want - broad, cv2.BORDER_REPLICATE))
    real[:tall, :broad] = True
    return _recoloured(np.stack(out), rng), real


def _recoloured(frames: Singles, rng: np.random.Generator) -> Singles:
    if rng.random() < 0.1:
        frames = frames[..., rng.permutation(3)]
    if rng.random() < 0.5:
        frames = frames ** float(np.exp2(rng.uniform(-0.7, 0.7)))
    if rng.random() < 0.4:
        gray = frames.mean(axis=3, keepdims=True)
        frames = gray + (frames - gray) * rng.uniform(0.3, 1.4)
    if rng.random() < 0.4:
        frames = (frames - 0.5) * rng.uniform(0.5, 1.2) + 0.5 + rng.uniform(-0.15, 0.15)
    return np.clip(frames, 0, 1)


def _noise(rng: np.random.Generator, shape: tuple[int, ...], deviation: float, gaussian: bool) -> Singles:
    drawn = rng.standard_normal(shape) if gaussian else rng.laplace(0, math.sqrt(0.5), shape)
    return (deviation * drawn).astype(np.float32)


def _means(values: Singles, side: int) -> Singles:
    """Of side x side values each, for sides that are 1 or even; the last ones may reach over the edge."""
    while side > 1:
        tall, broad = (n % 2 for n in values.shape)
        if tall or broad:
            values = cv2.copyMakeBorder(values, 0, tall, 0, broad, cv2.BORDER_REPLICATE)
        rows = values[::2] + values[1::2]
        values, side = (rows[:, ::2] + rows[:, 1::2]) / 4, side // 2  # type: ignore[assignment]
    return values


def observe(
    frame: Singles,
    real: NDArray[np.bool_],
    kind: str,
    coarser: int,
    devs: Singles,
    gaussian: bool,
    rng: np.random.Generator,
    coarse: NDArray[np.bool_] | None = None,
) -> tuple[Singles, Singles]:
    """Levels and deviations (3, side, side) of a release of one frame (2 side, 2 side, 3)."""
    side = len(frame) // 2
    ycc = np.einsum("ij,hwj->ihw", FROM_RGB, frame)
    levels: Singles = np.stack([_means(plane, 2) for plane in ycc])
    deviation = np.broadcast_to(devs[:, None, None], levels.shape).copy()
    if kind == "rgb":
        noise = np.stack([_noise(rng, (side, side), float(devs[0]) / 0.6124, gaussian) for _ in range(3)])
        levels = levels + np.einsum("ij,jhw->ihw", FROM_RGB, noise)
    else:
        levels[0] += _noise(rng, (side, side), float(devs[0]), gaussian)
        for channel in (1, 2):
            if kind == "grey":
                levels[channel] = 0
                continue
            cells = _means(levels[channel], coarser)
            cells = cells + _noise(rng, cells.shape, float(devs[channel]), gaussian)
            levels[channel] = on_luma(cells, coarser, (side, side))
    if coarse is not None:
        n = side // len(coarse)
        whole = _means(np.einsum("j,hwj->hw", FROM_RGB[0], frame), 2 * n)
        whole = whole + _noise(rng, whole.shape, float(devs[0]) / n**1.5, gaussian)
        where = coarse.repeat(n, 0).repeat(n, 1)
        levels[0][where] = whole.repeat(n, 0).repeat(n, 1)[where]
        deviation[0][where] /= n**1.5
    absent = ~real[::2, ::2]
    deviation[:, absent] = 1e3
    return levels, deviation


def batch(clips: list[NDArray[np.uint8]], rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs (N, 19, s, s), linear guesses and targets (N, 3, 2s, 2s), and weights (N, 1, 2s, 2s)."""
    side = int(rng.choice(SIDES))
    inputs, guesses, targets, weights = [], [], [], []
    for _ in range(CELLS // side**2):
        chance = rng.random()
        shown = (1,) if chance < 0.55 else (0, 1, 2) if chance < 0.92 else (0, 1) if chance < 0.96 else (1, 2)
        frames, real = piece(clips[rng.integers(len(clips))], side, shown, rng)
        luma = (
            float(np.exp(rng.uniform(math.log(0.5), math.log(300))))
            if rng.random() < 0.3
            else float(np.exp(rng.uniform(math.log(5), math.log(150))))
        )
        kind = str(rng.choice(["ycc", "rgb", "grey"], p=[0.7, 0.2, 0.1]))
        coarser = int(rng.choice([1, 2, 4], p=[0.2, 0.4, 0.4])) if kind == "ycc" else 1
        if kind == "grey":
            frames = np.repeat(np.einsum("j,thwj->thw", FROM_RGB[0], frames)[..., None], 3, axis=3)
            devs = np.array([luma, 0, 0], np.float32)
        elif kind == "rgb":
            devs = luma / 0.6124 * np.array([0.6124, 1.4142, 1.2247], np.float32)
        else:
            co = luma * 8 / coarser**2 * float(np.exp(rng.uniform(-0.8, 0.5)))
            devs = np.array([luma, co, co * 0.5 * float(np.exp(rng.uniform(-0.2, 0.8)))], np.float32)
        devs = (devs / 255).astype(np.float32)
        gaussian = rng.random() < 0.35
        coarse = None
        if rng.random() < 0.08:
            n = int(rng.choice([2, 4]))
            coarse = cv2.resize(rng.random((3, 3)).astype(np.float32), (side // n, side // n)) > 0.5
        maps = [np.zeros((6, side, side), np.float32)] * 3
        for frame, t in zip(frames, shown, strict=True):
            levels, deviation = observe(frame, real, kind, coarser, devs, gaussian, rng, coarse)
            maps[t] = frame_maps(levels, deviation)
            if t == 1:
                guesses.append(linear_guess(levels, deviation))
        also = np.full((1, side, side), math.log2(coarser) / 2, np.float32)
        inputs.append(np.concatenate([maps[1], maps[0], maps[2], also]))
        targets.append(np.einsum("ij,hwj->ihw", FROM_RGB, frames[shown.index(1)]))
        weights.append(real[None].astype(np.float32) / (40 + 9 * luma))
    arrays = (np.stack(inputs), np.stack(guesses), np.stack(targets), np.stack(weights))
    found = [torch.from_numpy(a.astype(np.float32)) for a in arrays]
    return found[0], found[1], found[2], found[3]


def loss_of(net: nn.Module, parts: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tensor:
    """Squared error of R, G and B in gray levels, divided by about what is to be expected."""
    inputs, guess, target, weight = parts
    with torch.autocast("cpu", torch.bfloat16, enabled=net.training):
        out = net(inputs.contiguous(memory_format=torch.channels_last))
    error = guess + GAIN * out.float() - target
    rgb = torch.einsum("ij,njhw->nihw", torch.from_numpy(TO_RGB), error) * 255
    return (rgb.square().mean(1, keepdim=True) * weight).sum() / weight.gt(0).sum()


def train(lspet: Path, run: Path, steps: int, console: Console) -> RestorationNet:
    """Train in `run`, or go on there; gives the averaged weights."""
    torch.manual_seed(0)
    net = RestorationNet().to(memory_format=torch.channels_last)
    mean = RestorationNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, betas=(0.9, 0.99))
    names = [name for name, _ in net.named_parameters()]
    file, first = run / "state.safetensors", 0
    mean.load_state_dict(net.state_dict())
    if file.exists():
        first = _resume(file, net, mean, optimizer, names)
        console.print(f"goes on at step {first:,}")
    if first >= steps:
        return mean
    pictures = open_pictures(lspet, console)
    fixed = [batch(pictures.held_out, np.random.default_rng([9, i])) for i in range(12)]
    began, seen = time.time(), []
    for step in range(first, steps):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1, (step + 1) / 500) * (0.5 + 0.5 * math.cos(math.pi * step / steps)) + 1e-6
        net.train()
        loss = loss_of(net, batch(pictures.clips, np.random.default_rng([1, step])))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        seen.append(float(loss.detach()))
        keep = min(0.999, (step + 1) / (step + 20))
        with torch.no_grad():
            for a, b in zip(mean.parameters(), net.parameters(), strict=True):
                a.lerp_(b, 1 - keep)
        if (step + 1) % 1000 == 0 or step + 1 == steps:
            _save(file, step + 1, net, mean, optimizer, names)
            mean.eval()
            with torch.no_grad():
                held = float(np.mean([float(loss_of(mean, one)) for one in fixed]))
            line = {"step": step + 1, "loss": round(float(np.mean(seen)), 5), "held_out": round(held, 5)}
            seen, minutes = [], (time.time() - began) / 60
            console.print(json.dumps(line | {"minutes": round(minutes, 1)}), soft_wrap=True)
            with (run / "log.jsonl").open("a") as log:
                log.write(json.dumps(line) + "\n")
    return mean


def _save(
    file: Path, step: int, net: nn.Module, mean: nn.Module, optimizer: torch.optim.Adam, names: list[str]
) -> None:
    tensors = {f"net.{n}": p for n, p in net.state_dict().items()}
    tensors |= {f"mean.{n}": p for n, p in mean.state_dict().items()}
    for name, parameter in zip(names, net.parameters(), strict=True):
        for part in ("exp_avg", "exp_avg_sq"):
            tensors[f"{part}.{name}"] = optimizer.state[parameter][part]
    temporary = file.with_suffix(".part")
    save_file({n: t.detach().contiguous() for n, t in tensors.items()}, temporary, {"step": str(step)})
    temporary.replace(file)


def _resume(file: Path, net: nn.Module, mean: nn.Module, optimizer: torch.optim.Adam, names: list[str]) -> int:
    from safetensors import safe_open

    tensors = load_file(file)
    with safe_open(file, "pt") as opened:
        step = int(opened.metadata()["step"])
    for prefix, model in (("net.", net), ("mean.", mean)):
        model.load_state_dict({n: tensors[prefix + n] for n in model.state_dict()})
    for name, parameter in zip(names, net.parameters(), strict=True):
        moments = {part: tensors[f"{part}.{name}"].clone() for part in ("exp_avg", "exp_avg_sq")}
        optimizer.state[parameter] = {"step": torch.tensor(float(step)), **moments}
    return step


def write_weights(net: RestorationNet, file: Path) -> str:
    """Write the network as compressed ONNX, its weights rounded to half precision; gives the file's SHA-256."""
    for parameter in net.parameters():
        parameter.data = parameter.data.half().float()
    axes = {"maps": {2: "rows", 3: "columns"}, "fine": {2: "rows2", 3: "columns2"}}
    raw = io.BytesIO()
    torch.onnx.export(
        net.eval(),
        (torch.zeros(1, MAPS, 40, 64),),
        raw,  # type: ignore[arg-type]  # it takes a file, too
        input_names=["maps"],
        output_names=["fine"],
        dynamic_axes=axes,
        dynamo=False,
        opset_version=13,
    )
    content = lzma.compress(raw.getvalue(), preset=9 | lzma.PRESET_EXTREME)
    write_atomic(file, content)
    return hashlib.sha256(content).hexdigest()


def card(run: Path, digest: str, steps: int) -> str:
    """The model card of the shipped weights."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    first, last = lines[0], lines[-1]
    return f"""# restoration: public weights

A small U-Net that makes a picture of what a release shows: noisy means of cells, and how noisy they are. It sees
nothing else, so it costs no privacy. OpenCV runs it (`cells.onnx.xz`, ONNX, half precision); torch only trained it.

## What it learnt from

* photographs of LSPET's public split, but for the last {HELD_OUT}, which it was validated on (pictures that are near
  copies of private or validation ones are in none of them);
* photographs that come with scikit-image: {", ".join(PHOTOGRAPHS)};
* {RENDERED} rendered people and {FILMS} rendered films of `studio`: nobody.

Nobody in them needs a guarantee. It has not seen scikit-image's astronaut, coffee, chelsea and rocket, which it is
measured on, nor LSPET's private or validation pictures, nor anything that was to be released.

## What it does, and where it invents

It was trained in squared error, which is least for the mean of all pictures that may have been: where it cannot know
it is blurred. `docs/restoration.md` has what was measured: how close it comes, and how much of what it shows is not
there. Single details may still be wrong, above all in pictures unlike those it has seen: text, drawings, scans. A face
that it shows is a guess from a few numbers, not evidence of who is there.

## How it was made

    {COMMAND}

{steps:,} steps of Adam on batches of {CELLS:,} cells, seed 0; the mean of the last weights. In units of about what is
to be expected, the error on pictures held out fell from {first["held_out"]:.3f} at step {first["step"]:,} to
{last["held_out"]:.3f}. Two machines do not get the same last digits.

sha256 of `cells.onnx.xz`: {digest}
"""


def main(
    lspet: Annotated[Path, typer.Option(help="The folder of LSPET; only its public split is opened.")],
    run: Annotated[Path, typer.Option(help="Where the training's state is kept.")],
    out: Annotated[Path, typer.Option(help="The file of weights to write.")] = WEIGHTS,
    steps: Annotated[int, typer.Option(help="Of the optimizer.")] = 16_000,
) -> None:
    """Train the learned restoration and write what dpose ships."""
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    console = Console()
    run.mkdir(parents=True, exist_ok=True)
    digest = write_weights(train(lspet, run, steps, console), out)
    write_atomic(out.with_name("README.md"), card(run, digest, steps))
    console.print(
        f"{out}: {out.stat().st_size:,} bytes, sha256 {digest}: set it in release/restoration.py", soft_wrap=True
    )


if __name__ == "__main__":
    typer.run(main)
