"""A second, tiny task: which way does a dot move? A linear classifier on clips; a unit is a recording of some clips.

It trains through the same engine as pose and shares no line with it: the protocols are not pose in disguise.
"""

import hashlib
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.func import functional_call
from torch.nn import functional as F

from dpose.training.options import RunOptions
from dpose.training.statement import StatementFacts
from dpose.training.trainer import train as dpose_train
from dpose.units import View, pad_views

FRAMES, SIDE, WAYS = 4, 6, 4
STEPS = ((0, 1), (0, -1), (1, 0), (-1, 0))


def clip(way, rng):
    frames = np.zeros((FRAMES, SIDE, SIDE, 3), np.uint8)
    row, column = rng.integers(SIDE, size=2)
    for t in range(FRAMES):
        frames[t, row % SIDE, column % SIDE] = rng.integers(180, 256)
        row, column = row + STEPS[way][0], column + STEPS[way][1]
    return frames


class Dots:
    """n units, unit i with 1 + i % most clips of random directions."""

    unit = "video"

    def __init__(self, n, seed=0, most=3):
        rng = np.random.default_rng(seed)
        self.views = []
        for i in range(n):
            ways = rng.integers(WAYS, size=1 + i % most)
            self.views.append([View(clip(w, rng), {"way": np.int64(w)}, 1.0 + (j % 2)) for j, w in enumerate(ways)])

    def __len__(self):
        return len(self.views)

    def unit_id(self, index):
        return f"recording-{index}"

    def content_hashes(self, index):
        return tuple(hashlib.sha256(v.image.tobytes()).hexdigest() for v in self.views[index])

    def load(self, index, rng):
        return self.views[index]

    def canonical(self, index):
        return self.views[index]

    def augmented(self, view, rng):
        """Brighter or darker, by what is drawn."""
        change = int(rng.integers(-20, 21))
        return View(np.clip(view.image.astype(int) + change, 0, 255).astype(np.uint8), view.target, view.weight)


class LinearMotion(torch.nn.Module):
    """Pairs of successive frames, multiplied at every shift by one pixel, then a linear classifier."""

    def __init__(self):
        super().__init__()
        self.classify = torch.nn.Linear(len(STEPS), WAYS)

    def forward(self, inputs):  # (N, 3, T, H, W)
        grey = inputs.to(self.classify.weight.dtype).mean(1) / 255
        before, after = grey[:, :-1], grey[:, 1:]
        shifts = [torch.roll(before, s, dims=(2, 3)) * after for s in STEPS]
        return self.classify(torch.stack([s.sum((1, 2, 3)) for s in shifts], 1))


class Accuracy:
    def __init__(self):
        self.right = self.seen = 0

    def update(self, outputs, targets):
        self.right += int((outputs.argmax(1) == targets["way"]).sum())
        self.seen += len(outputs)

    def compute(self):
        accuracy = self.right / self.seen
        return SimpleNamespace(accuracy=accuracy, to_dict=lambda: {"accuracy": accuracy})


class DotsTask:
    name = "dots"

    def build_model(self, config=None):
        torch.manual_seed(0)
        return LinearMotion()

    def loss(self, model, params, inputs, targets):
        outputs = functional_call(model, dict(params), (inputs,))
        return F.cross_entropy(outputs, targets["way"], reduction="none")

    def collate(self, units):
        return pad_views(units)

    def metric(self):
        return Accuracy()


def train(task, model, **given):
    """`dpose.train`, which takes the fields of `RunOptions` and `StatementFacts` by their names."""

    def taken(kind):
        return {f.name: given.pop(f.name) for f in fields(kind) if f.name in given and f.name != "public"}

    return dpose_train(
        task, model, options=RunOptions(facts=StatementFacts(**taken(StatementFacts)), **taken(RunOptions)), **given
    )


@pytest.fixture(scope="session")
def dots():
    """The task and its data."""
    return SimpleNamespace(task=DotsTask(), data=Dots)
