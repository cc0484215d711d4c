"""Private runs that are taken up again: no step under-counted, no run lost, the same weights where the key is kept."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
from rich.console import Console

from crashes.story import Mark, Plain, end_telling
from dots import Dots, DotsTask
from dpose.errors import DposeError
from dpose.privacy.accounting import Accountant
from dpose.privacy.ledger import read_ledger, spent
from dpose.privacy.noise import AesNoise, Key
from dpose.runs.verify import verify_run
from dpose.training import run as loops
from dpose.training import step as steps
from dpose.training.methods import SubspaceConfig
from dpose.training.optim import OptimizerConfig
from dpose.training.options import RunOptions
from dpose.training.plan import TrainingPlan
from dpose.training.public_view import PublicView
from dpose.training.trainer import train

GRACE = 5.0
"""Seconds that the other processes of a run have where one has failed."""
FEWER = "fewer"
"""Where it is said that a run goes on with one process."""
LOST = "lost"
"""Where it is said that its key was taken away: it may then end before its last step, to keep its epsilon."""
METHODS = ("dp-sgd", "pdp-sgd", "fdp-sgd", "fpdp-sgd")


@contextlib.contextmanager
def finished_or_not() -> Iterator[None]:
    """A run that was cut off after its seal is finished, and says so when it is to go on."""
    try:
        yield
    except DposeError as error:
        if "this run is finished" not in error.line():
            raise


class Training(Plain):
    """A private run of a linear model, taken up again; every other one loses its key."""

    variants = len(METHODS)
    whole: ClassVar[dict[str, bytes]] = {}
    """Weights of the runs that nobody cut off, by `end`."""

    def __init__(self, number: int, steps: int = 12) -> None:
        self.method, self.steps, self.loses = METHODS[number % len(METHODS)], steps, number % 8 >= 4
        self.secret = hashlib.sha256(self.method.encode()).digest()
        self.end = self.method

    def prepare(self, root: Path) -> None:
        """Nothing is there."""

    def work(self, root: Path, mark: Mark) -> None:
        """Train, or resume."""
        with pytest.MonkeyPatch.context() as patch:
            self._train(root, mark, patch)

    def _train(self, root: Path, mark: Mark, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(loops, "CHECKPOINT_UNITS", 0)
        folder = root / "run"
        if not (folder / "config.json").exists() and not (folder / "ledger.jsonl").exists():
            # nothing was begun, and the message that refuses what is left says to remove it
            shutil.rmtree(folder, ignore_errors=True)
        first, key, lost = not (folder / "ledger.jsonl").exists(), Key.kept(self.secret), os.urandom(32)
        patch.setattr(Key, "fresh", classmethod(lambda cls: key if first else Key.kept(lost)))
        real = steps.private_gradient

        def noted(engine, params, step, chain=b""):
            mark(f"{engine.noise.key_id} {step}")
            return real(engine, params, step, chain)

        patch.setattr(steps, "private_gradient", noted)
        task = DotsTask()
        plan = TrainingPlan(
            self.method,
            epsilon=8.0,
            delta=1e-4,
            steps=self.steps,
            expected_batch_size=60,
            accountant=Accountant.RDP,
            ema_decay=0.9,
            subspace=SubspaceConfig(rank=4, units=10, refresh=5),
            public_view=PublicView("pixelize", width=86.0),
        )
        options = RunOptions(
            resume=(folder / "config.json").exists(),
            state_dir=root / "state",
            microbatch_size=16,
            threads=1,
            console=Console(quiet=True),
        )
        with finished_or_not():
            train(
                task,
                task.build_model(),
                private=Dots(240),
                public=Dots(30, seed=3),
                plan=plan,
                out=folder,
                optimizer=OptimizerConfig("adam", lr=0.3),
                options=options,
            )

    def check(self, root: Path, marks: set[str], seen: Mapping[str, set[bytes]]) -> None:
        """Every step that was begun is reserved."""
        ledger = root / "run" / "ledger.jsonl"
        if not marks and not ledger.exists():
            return
        counted = sum(event.steps for event in spent(read_ledger(ledger)))
        assert counted >= len(marks), f"{len(marks)} steps were begun, {counted} are counted"

    def over(self, root: Path, marks: set[str]) -> None:
        """It verifies, and with its key it is the run that was never cut off."""
        self.check(root, marks, {})
        verify_run(root / "run", root / "state")
        keys = {mark.split()[0] for mark in marks}
        # killed before its key was kept, it goes on under another one
        if keys == {AesNoise(Key.kept(self.secret)).key_id} and not (root / LOST).exists():
            counted = sum(event.steps for event in spent(read_ledger(root / "run" / "ledger.jsonl")))
            assert counted == self.steps, f"{counted} steps are counted of {self.steps}"
            found = (root / "run" / "model.safetensors").read_bytes()
            assert found == self.whole.get(self.end, found), "the weights are not those of the run unbroken"

    def between(self, root: Path, cuts: int) -> None:
        """After the second kill its key is lost."""
        if self.loses and cuts == 2:
            shutil.rmtree(root / "state" / "keys", ignore_errors=True)
            (root / LOST).touch()

    def keep(self, root: Path) -> None:
        """Its weights."""
        self.whole[self.end] = (root / "run" / "model.safetensors").read_bytes()


class Ranks(Training):
    """The same run by two processes, of which one or both are killed; every other one goes on with one process."""

    variants = 1
    apart = True

    def __init__(self, number: int) -> None:
        super().__init__(0)
        self.fewer, self.loses = number % 2 == 1, False
        # noise hangs on how many processes there are; with fewer it ends with weights of its own
        self.end = f"{number} of fewer" if self.fewer else "of two"

    def work(self, root: Path, mark: Mark) -> None:
        """Both, as `torchrun` has it: where one ends badly the other is ended, too."""
        count = 1 if (root / FEWER).exists() else 2
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        ranks = dict(_forked(partial(self._rank, root, mark, rank, count, port)) for rank in range(count))
        left, ended = dict(ranks), dict[int, int]()
        until = math.inf
        while left:
            for process in list(left):
                found, status = os.waitpid(process, os.WNOHANG)
                if found:
                    ended[process] = os.waitstatus_to_exitcode(status)
                    left.pop(process)
            if any(ended.values()):
                until = min(until, time.monotonic() + GRACE)
            if time.monotonic() > until:
                for process in left:
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.005)
        said = "".join(os.read(pipe, 1 << 16).decode() for pipe in ranks.values())
        # a run that is finished is told by the first process, and ended by it for the others
        if ended[next(iter(ranks))] and not any(code < 0 for code in ended.values()):
            raise RuntimeError(said)

    def _rank(self, root: Path, mark: Mark, rank: int, count: int, port: int) -> None:
        told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "MASTER_PORT": port}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MASTER_ADDR", "localhost")
            for name, value in told.items():
                patch.setenv(name, str(value))
            self._train(root, mark if rank == 0 else lambda text: None, patch)

    def between(self, root: Path, cuts: int) -> None:
        """It may go on with fewer."""
        if self.fewer:
            (root / FEWER).touch()


def _forked(work: Callable[[], None]) -> tuple[int, int]:
    """A process, and where it tells what it raised."""
    out, told = os.pipe()
    child = os.fork()
    if child:
        os.close(told)
        return child, out
    end_telling(work, told)
