"""A task from outside: how bright is a picture of one grey? A few weights, trained in a moment."""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch.func import functional_call

from dpose.runs import config, tasks
from dpose.runs.tasks import PreparedRun, TaskEntry, register_task
from dpose.training.first_weights import FirstWeights
from dpose.training.validation import Validation
from dpose.units import View, pad_views


class Shades:
    """`count` pictures of one grey each, three of each person.

    Of `kind` "shades"; of those "again", saved again, without names; or "others", other pictures of the same people.
    """

    unit = "image"

    def __init__(self, count, seed=0, kind="shades"):
        self.greys = np.random.default_rng(seed).integers(256, size=count)
        self.seed, self.kind = seed, kind

    @classmethod
    def opened(cls, spec):
        """`KIND:COUNT:SEED`."""
        kind, count, seed = spec.split(":")
        return cls(int(count), int(seed), kind)

    def __len__(self):
        return len(self.greys)

    def unit_id(self, index):
        return f"{self.seed}-{index}"

    def content_hashes(self, index):
        kind = "" if self.kind == "shades" else self.kind
        return (hashlib.sha256(f"{kind}{self.unit_id(index)}".encode()).hexdigest(),)

    def fingerprints(self, index):
        kind = "others" if self.kind == "others" else ""
        digest = hashlib.sha256(f"{kind}{self.unit_id(index)}".encode()).digest()
        bits = np.frombuffer(digest[:16], np.uint8)[None].copy()
        bits[0, 0] ^= 7 * (self.kind == "again")
        return bits

    def subjects(self, index):
        return () if self.kind == "again" else (f"{self.seed}-person-{index // 3}",)

    def load(self, index, rng):
        grey = self.greys[index]
        return [View(np.full((2, 2, 3), grey, np.uint8), {"bright": np.float32(grey / 255)})]


class Meter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1)
        for parameter in self.parameters():
            torch.nn.init.zeros_(parameter)

    def forward(self, inputs):
        return self.line(inputs.float().mean((1, 2, 3))[:, None] / 255)[:, 0]


@dataclass(frozen=True)
class Hits:
    """What a metric found that nobody has heard of."""

    share: float

    def to_dict(self):
        columns = {"worst": 0.0, "within a tenth": self.share}
        return {"metric": "Hits", "main": "within a tenth", "unit": "", "columns": columns}


class HitsMetric:
    def __init__(self):
        self.hits = []

    def update(self, outputs, targets):
        self.hits += ((outputs - targets["bright"]).abs() < 0.1).tolist()

    def compute(self):
        return Hits(float(np.mean(self.hits)))


class ShadeTask:
    name = "shade"

    def build_model(self, config=None):
        return Meter()

    def loss(self, model, params, inputs, targets):
        return (functional_call(model, dict(params), (inputs,)) - targets["bright"]) ** 2

    def collate(self, units):
        return pad_views(units)

    def metric(self):
        return HitsMetric()


def prepare(config, console):
    """What is watched is public, but for data called "held-out"."""
    watch = None
    if config.data.validation_data:
        public = config.data.validation_data != "held-out"
        units = Shades.opened(config.data.validation_data) if public else Shades(20, 99)
        watch = Validation(units, config.data.validation_data, public=public)
    init = config.model.init
    return PreparedRun(
        config=config,
        task=ShadeTask(),
        model=Meter(),
        units=Shades.opened(config.data.private),
        data_name=config.data.private,
        title=config.data.private,
        start=FirstWeights.of(init) if init else FirstWeights.drawn(),
        public=config.data.public and Shades.opened(config.data.public),
        validation_data=watch,
    )


def learns(config):
    """What a run learnt from, opened again."""
    return (Shades.opened(config.data.private),)


def entered(monkeypatch, scored=None, load=None):
    """The task, entered for as long as the test lasts."""
    known = dict(config.TASKS)
    monkeypatch.setattr(config, "TASKS", known)
    monkeypatch.setattr(tasks, "TASKS", known)
    explained = "{}, explained".format
    return register_task(
        TaskEntry(
            "shade",
            "image",
            prepare,
            scored,
            load,
            explain=lambda config: explained(config.data.private),
            learns=learns,
        )
    )
