"""Runs of dots that are killed and go on, and what all of them together have added noise to."""

import hashlib

import pytest
from rich.console import Console

from dots import train
from dpose.privacy.ledger import Ledger
from dpose.privacy.noise import AesNoise, Purpose
from dpose.training import gradient as updates
from dpose.training import loop as loops
from dpose.training import step as steps
from dpose.training.folder import RunLog
from dpose.training.methods import SubspaceConfig
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from dpose.training.public_view import PublicView

FAST = OptimizerConfig("adam", lr=0.3, schedule="cosine", warmup=0.0)
STEPS, UNITS = 22, 80
SETTINGS = {"epsilon": 8.0, "delta": 1e-4, "steps": STEPS, "expected_batch_size": 20, "accountant": "rdp"}
VIEW = PublicView("pixelize", width=86.0)  # blocks of 2x2 in pictures of 6x6
PLANS = {
    "dp-sgd": {"ema_decay": 0.9},
    "pdp-sgd": {"subspace": {"rank": 4, "units": 10, "refresh": 5}},
    "fdp-sgd": {"private_loss": "residual", "public_view": VIEW},
    "fpdp-sgd": {"subspace": {"rank": 4, "units": 10, "refresh": 5}, "public_view": VIEW},
}


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


@pytest.fixture
def quiet(tmp_path):
    with (tmp_path / "printed.txt").open("w") as file:
        yield Console(file=file, width=200)


@pytest.fixture
def released(monkeypatch):
    """Digests of the sums that noise was added to, by its stream; fails where one noise met two sums."""
    met = {}
    real_stream, real_add = AesNoise.stream, steps.add_gaussian

    def stream(self, purpose, step=0, context=b""):
        got = real_stream(self, purpose, step, context)
        if purpose is Purpose.NOISE:
            got.name = self._subkey(purpose, step, context)
        return got

    def add(sums, stddev, source, *grid):
        content = hashlib.sha256(b"".join(sums[n].numpy().tobytes() for n in sorted(sums))).digest()
        met.setdefault(source.name, set()).add(content)
        return real_add(sums, stddev, source, *grid)

    monkeypatch.setattr(AesNoise, "stream", stream)
    monkeypatch.setattr(steps, "add_gaussian", add)
    yield met
    assert all(len(sums) == 1 for sums in met.values()), "one noise was added to two sums"


def plan_of(method="dp-sgd"):
    extra = dict(PLANS[method])
    if "subspace" in extra:
        extra["subspace"] = SubspaceConfig(**extra["subspace"])
    return TrainingPlan(method=method, **SETTINGS, **extra)


def run(dots, out, console, method="dp-sgd", data=None, **options):
    options = {"optimizer": FAST, "state_dir": out.parent / "state", "microbatch_size": 32, **options}
    return train(
        dots.task,
        dots.task.build_model(),
        private=data or dots.data(UNITS),
        public=dots.data(30, seed=3),
        plan=plan_of(method),
        out=out,
        console=console,
        **options,
    )


def killed(monkeypatch, place, at, *arguments, after=False, **options):
    """A run that is killed at the `at`-th call of `place`, before or after it does its work."""
    owner, name = place
    real, calls = getattr(owner, name), []

    def dying(*given, **named):
        calls.append(1)
        if len(calls) == at and not after:
            raise Killed
        result = real(*given, **named)
        if len(calls) == at:
            raise Killed
        return result

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dying)
        with pytest.raises(Killed):
            run(*arguments, **options)


GRADIENT, SAVE = (updates, "private_gradient"), (loops, "save_checkpoint")
RESERVE, COMMIT, LOG = (Ledger, "reserve"), (Ledger, "commit"), (RunLog, "write")
