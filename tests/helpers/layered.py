"""Small models with every known layer in every shape, and a task that trains them: the same for tests and mutants."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from dpose.training.gradients import trainable_params
from dpose.units import UnitBatch, pad_units


@dataclass(frozen=True)
class Mutant:
    """A fault, how it is planted, the check that must reject it, and the model (of `MODELS`) that shows it."""

    fault: str
    plant: Callable
    check: Callable
    model: str


class Task:
    """A loss of whatever a model gives: not symmetric in its outputs, other for every view."""

    name = "any"

    def loss(self, model, params, inputs, targets):
        return self.of(functional_call(model, dict(params), (inputs,)).flatten(1), targets)

    def of(self, out, targets):
        slope = torch.linspace(0.5, 2.0, out.shape[1], dtype=out.dtype)
        return ((out * slope).sin() - targets["wanted"].to(out.dtype)[:, None]).square().mean(1)


class MixedTask(Task):
    """The same loss, of a model that computes in bfloat16."""

    precision = "bf16"

    def loss(self, model, params, inputs, targets):
        with torch.autocast("cpu", torch.bfloat16):
            out = functional_call(model, dict(params), (inputs,)).flatten(1)
        return self.of(out.float(), targets)


class Columns(nn.Module):
    """(N, C, P) to tokens (N, P, C)."""

    def forward(self, x):
        return x.mT


class Windows(nn.Module):
    """Attention in windows with a table of biases, as in TinyViT: windows stand where units stood."""

    def __init__(self, channels=6, heads=2):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)
        self.table = nn.Parameter(torch.randn(heads, 4))
        offsets = (torch.arange(4)[:, None] - torch.arange(4)).abs().flatten()
        self.register_buffer("offsets", offsets)

    def forward(self, x):  # (N, C, 4, 4), windows of 2x2
        n, channels = x.shape[:2]
        tokens = x.permute(0, 2, 3, 1).reshape(n, 2, 2, 2, 2, channels).transpose(2, 3).reshape(-1, 4, channels)
        parts = self.qkv(self.norm(tokens)).view(len(tokens), 4, self.heads, -1).transpose(1, 2)
        query, key, value = parts.chunk(3, -1)
        bias = self.table.index_select(1, self.offsets).view(self.heads, 4, 4)
        mixed = (query @ key.transpose(-1, -2) + bias).softmax(-1) @ value
        return self.proj(mixed.transpose(1, 2).reshape(len(tokens), 4, channels)).reshape(n, -1)


class WindowsFirst(nn.Module):
    """The order of rows that would fool a reshape: windows outermost, then units, then back."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):  # (N, 6, 4, 4)
        rows = x.permute(2, 3, 0, 1).reshape(-1, 6)  # places, then views
        mixed = self.second(self.first(rows).tanh())
        return mixed.view(4, 4, len(x), 3).permute(2, 0, 1, 3).reshape(len(x), -1)


class Shared(nn.Module):
    """One weight used twice, once as a regulariser, and one that the loss never reaches."""

    def __init__(self, channels=6):
        super().__init__()
        self.again = nn.Linear(channels, channels)
        self.unused = nn.Linear(3, 3)

    def forward(self, x):
        tokens = x.flatten(2).mT
        tokens = self.again(self.again(tokens).tanh())
        return tokens.flatten(1) + self.again.weight.pow(2).mean()


class Tied(nn.Module):
    """Two names of one parameter."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
        self.up.weight = self.down.weight

    def forward(self, x):
        return self.up(self.down(x.flatten(2).mT).tanh()).flatten(1)


class Strange(nn.Module):
    """Parameters in functions that no layer knows, in lists, and as an input of a known layer."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(6))
        self.position = nn.Parameter(torch.randn(16, 6))
        self.token = nn.Parameter(torch.randn(1, 1, 6))
        self.linear = nn.Linear(6, 4)
        self.no_bias = nn.Linear(4, 4)
        self.no_bias.bias.requires_grad_(False)
        self.embedding = nn.Parameter(torch.randn(5, 4))

    def forward(self, x):
        tokens = x.flatten(2).mT * self.scale + self.position
        tokens = torch.cat([tokens, self.token.expand(len(x), 1, 6)], 1)
        out = self.linear(tokens) + self.linear(self.position).mean(0)
        more = self.no_bias(out)
        more += out  # in place
        pick = (x.flatten(1).abs().sum(1) * 7).long() % 5  # another entry for each view
        return (more + self.embedding.index_select(0, pick)[:, None]).flatten(1)


class Made(nn.Module):
    """Weights that are computed from a parameter, beside a bias that is one."""

    def __init__(self):
        super().__init__()
        self.small = nn.Parameter(torch.randn(4, 6))
        self.bias = nn.Parameter(torch.randn(4))
        self.kernel = nn.Parameter(torch.randn(4, 6, 1, 1))

    def forward(self, x):
        tokens = F.linear(x.flatten(2).mT, self.small.tanh() * 2, self.bias)
        return torch.cat([tokens.flatten(1), F.conv2d(x, self.kernel.exp(), self.bias).flatten(1)], 1)


class Hidden(nn.Module):
    """A use that torch functions do not show, as inside compiled code."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(6, 1, 1))
        self.conv = nn.Conv2d(6, 4, 1)

    def forward(self, x):
        with torch._C.DisableTorchFunction():
            x = x * self.scale
        return self.conv(x).flatten(1)


def flat(*layers):
    return nn.Sequential(*layers, nn.Flatten())


MODELS = {
    "linear, ghost": lambda: flat(nn.Flatten(), nn.Linear(96, 40), nn.Tanh(), nn.Linear(40, 24)),
    "linear, whole": lambda: flat(nn.Flatten(2), nn.Linear(16, 3), nn.Tanh(), nn.Linear(3, 4, bias=False)),
    "tokens": lambda: flat(nn.Flatten(2), Columns(), nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)),
    "conv": lambda: flat(nn.Conv2d(6, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 4, 3, stride=2, padding=1)),
    "conv, uneven": lambda: flat(nn.Conv2d(6, 4, (3, 2), (2, 1), (1, 0), (1, 2), bias=False)),
    "conv, same": lambda: flat(nn.Conv2d(6, 4, 3, padding="same")),
    "conv, reflected": lambda: flat(nn.Conv2d(6, 4, 3, padding=1, padding_mode="reflect")),
    "pointwise, ghost": lambda: flat(nn.AvgPool2d(4), nn.Conv2d(6, 32, 1), nn.Tanh(), nn.Conv2d(32, 32, 1)),
    "pointwise, strided": lambda: flat(nn.Conv2d(6, 4, 1, stride=2), nn.Conv2d(4, 4, 1, padding=1)),
    "depthwise": lambda: flat(nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.Tanh(), nn.Conv2d(6, 12, 3, 2, 1, groups=6)),
    "depthwise, wide": lambda: flat(nn.Conv2d(6, 6, 5, padding=2, groups=6), nn.Tanh()),
    "grouped": lambda: flat(nn.Conv2d(6, 9, 3, padding=1, groups=3)),
    "conv1d": lambda: flat(nn.Flatten(2), nn.Conv1d(6, 4, 5, 2, 2), nn.Tanh(), nn.Conv1d(4, 4, 3, groups=4)),
    "conv3d": lambda: flat(nn.Unflatten(1, (2, 3)), nn.Conv3d(2, 3, 3, padding=1)),
    "layer norm": lambda: flat(nn.LayerNorm([4, 4]), nn.Tanh(), nn.LayerNorm(4, bias=False)),
    "group norm": lambda: flat(nn.GroupNorm(3, 6), nn.Tanh(), nn.Flatten(2), nn.GroupNorm(2, 6)),
    "norms without weights": lambda: flat(
        nn.LayerNorm(4, elementwise_affine=False), nn.Conv2d(6, 4, 1), nn.GroupNorm(2, 4, affine=False)
    ),
    "windows": Windows,
    "windows first": WindowsFirst,
    "shared": Shared,
    "tied": Tied,
    "strange": Strange,
    "made": Made,
    "hidden": Hidden,
}


def setup(model, dtype=torch.float64, views=1, units=5, shape=(6, 4, 4)):
    torch.manual_seed(1)
    model = model.to(dtype)
    for p in model.parameters():
        p.data = torch.randn_like(p) * 0.5
    inputs = torch.randn(units, views, *shape, dtype=dtype)
    weights = torch.rand(units, views) + 0.2
    if views > 2:
        weights[1, 2:] = 0  # padding
    batch = UnitBatch(inputs, {"wanted": torch.randn(units, views)}, weights)
    return Task(), model, trainable_params(model), batch


def distance(a, b):
    """The largest relative difference of any tensor; exact where the plain way has zeros."""
    found = 0.0
    for name, value in b.items():
        scale = float(value.norm())
        found = max(found, float((a[name] - value).norm()) / scale if scale else float(a[name].abs().max()))
    return found


def without(batch, unit):
    keep = [u for u in range(len(batch)) if u != unit]
    return UnitBatch(batch.inputs[keep], {n: t[keep] for n, t in batch.targets.items()}, batch.weights[keep])


def only(batch, unit):
    part = slice(unit, unit + 1)
    return UnitBatch(batch.inputs[part], {n: t[part] for n, t in batch.targets.items()}, batch.weights[part])


def norm(gradient):
    return float(torch.stack([g.double().square().sum() for g in gradient.values()]).sum().sqrt())


def emptied(batch, units):
    """With empty units (`dpose.units.pad_units`) in their places."""
    padded = pad_units(batch, 2 * len(batch))
    keep = [len(batch) + u if u in units else u for u in range(len(batch))]
    return UnitBatch(padded.inputs[keep], {n: t[keep] for n, t in padded.targets.items()}, padded.weights[keep])
