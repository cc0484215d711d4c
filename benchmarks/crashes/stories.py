"""Work that may be cut off at any moment, and what must be true of it afterwards.

A story is done below one folder, in a process of its own, and begun again until it ends. `mark` tells what has happened
that cannot be undone: a step that has sampled, a reservation that was granted. `check` is asked after every cut: what
was marked, and what could be seen, is counted; nothing is half-written. `over` is asked at the end.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np
import torch
from rich.console import Console

from dots import Dots, DotsTask
from dpose.cli import main
from dpose.errors import DposeError
from dpose.media.images import encode_image
from dpose.privacy.ledger import read_ledger, spent
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.odometer import charge_account, charges, marks_of
from dpose.privacy.verify import verify_run
from dpose.release.verify import verify_release
from dpose.training import loop as loops
from dpose.training.methods import SubspaceConfig
from dpose.training.optim import OptimizerConfig
from dpose.training.options import RunOptions
from dpose.training.plan import TrainingPlan
from dpose.training.public_view import PublicView
from dpose.training.trainer import train
from stored import run_charge

Mark = Callable[[str], None]
METHODS = ("dp-sgd", "pdp-sgd", "fdp-sgd", "fpdp-sgd")


class Story(Protocol):
    """See this module.

    Attributes:
        variants: How many stories of the kind, by number, differ in what they end with.
    """

    variants: int

    def prepare(self, root: Path) -> None:
        """Make what is there at first."""

    def work(self, root: Path, mark: Mark) -> None:
        """Begin, or go on; returns when all is done."""

    def check(self, root: Path, marks: set[str], seen: Mapping[str, set[bytes]]) -> None:
        """Raise an AssertionError where what must be true after a cut is not.

        Args:
            root: As the cut has left it.
            marks: All that were made before it.
            seen: Contents that each file below the root has had so far.
        """

    def over(self, root: Path, marks: set[str]) -> None:
        """The same, when the work has ended."""

    def between(self, root: Path, cuts: int) -> None:
        """What else happens after a kill."""

    def keep(self, root: Path) -> None:
        """Remember what a story that was not cut off ends with."""


class _Plain:
    """A story to which nothing else happens."""

    variants = 1

    def between(self, root: Path, cuts: int) -> None:
        """Nothing."""

    def keep(self, root: Path) -> None:
        """Nothing."""


class Release(_Plain):
    """A folder of pictures released by `dpose pixelize`, by one process or by two at once."""

    def __init__(self, number: int) -> None:
        self.pictures, self.both = 5, number % 3 == 2

    def prepare(self, root: Path) -> None:
        """Pictures of noise."""
        (root / "in").mkdir()
        for k in range(self.pictures):
            picture = np.random.default_rng(k).integers(0, 256, (24, 32, 3), np.uint8)
            (root / "in" / f"{k}.png").write_bytes(encode_image(picture, ".png"))

    def work(self, root: Path, mark: Mark) -> None:
        """The command, given again where it was cut off."""
        other = os.fork() if self.both else 0
        os.environ["XDG_STATE_HOME"] = str(root / "home")
        os.chdir(root)
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = main(["pixelize", "in", "--epsilon", "1", "--block", "8", "--out", "out", "--keep-names"])
        if self.both and not other:
            os._exit(0)
        if self.both:
            os.waitpid(other, 0)  # whichever was second is refused what the first has done
        elif code:
            raise RuntimeError(said.getvalue())

    def check(self, root: Path, marks: set[str], seen: Mapping[str, set[bytes]]) -> None:
        """As many releases counted as were seen, and each file that has its name is whole."""
        counted = charges(root / "home" / "dpose")
        for k in range(self.pictures):
            mine = [one for one in counted if Path(one.data).name == f"{k}.png"]
            archives = [c for path, them in seen.items() if _is_archive(path, k) for c in them if c]
            # what a file held while it was written is a part of what it held then
            whole = [a for a in archives if not any(b != a and b.startswith(a) for b in archives)]
            assert len(mine) >= len(whole), f"picture {k}: {len(whole)} were seen, {len(mine)} are counted"
        out = root / "out"
        for path in sorted(out.iterdir()) if out.is_dir() else []:
            if not path.name.startswith("."):
                verify_release(path)

    def over(self, root: Path, marks: set[str]) -> None:
        """Every picture is there."""
        there = sorted(p.name for p in (root / "out").iterdir() if not p.name.startswith("."))
        wanted = sorted(f"{k}{suffix}" for k in range(self.pictures) for suffix in (".npz", ".png"))
        assert there == wanted or self.both, there
        self.check(root, marks, {f"/out/{p.name}": {p.read_bytes()} for p in (root / "out").iterdir()})


def _is_archive(path: str, k: int) -> bool:
    return path.startswith("/out/") and f"{k}.npz" in path


class Account(_Plain):
    """Reservations by three processes at once."""

    def __init__(self, number: int) -> None:
        self.processes = 1 + number % 3

    def prepare(self, root: Path) -> None:
        """Nothing is there."""

    def work(self, root: Path, mark: Mark) -> None:
        """Twelve more reservations of each process."""
        children = [os.fork() for _ in range(1, self.processes)] if self.processes > 1 else []
        mine = not children or all(children)
        where = root / "home"
        for _ in range(12):
            one = secrets.token_hex(16)
            charge_account(replace(run_charge(0, marks_of([one])), id=one), where)
            mark(one)
        if not mine:
            os._exit(0)
        for child in children:
            os.waitpid(child, 0)

    def check(self, root: Path, marks: set[str], seen: Mapping[str, set[bytes]]) -> None:
        """Whatever was granted is counted."""
        counted = {one.id for one in charges(root / "home")}
        assert marks <= counted, f"{len(marks - counted)} of {len(marks)} reservations are not counted"

    def over(self, root: Path, marks: set[str]) -> None:
        """The same."""
        self.check(root, marks, {})


@contextlib.contextmanager
def finished_or_not() -> Iterator[None]:
    """A run that was cut off after its seal is finished, and says so when it is to go on."""
    try:
        yield
    except DposeError as error:
        if "this run is finished" not in error.line():
            raise


class Training(_Plain):
    """A private run of a linear model, taken up again; every other one loses its key."""

    variants = len(METHODS)
    whole: ClassVar[dict[str, bytes]] = {}
    """Weights of the runs that nobody cut off, by method."""

    def __init__(self, number: int, steps: int = 12) -> None:
        self.method, self.steps, self.loses = METHODS[number % len(METHODS)], steps, number % 8 >= 4
        self.secret = hashlib.sha256(self.method.encode()).digest()

    def prepare(self, root: Path) -> None:
        """Nothing is there."""

    def work(self, root: Path, mark: Mark) -> None:
        """Train, or resume."""
        import dpose.training.gradient as updates

        torch.set_num_threads(1)
        loops.CHECKPOINT_UNITS = 0
        folder = root / "run"
        if not (folder / "config.json").exists() and not (folder / "ledger.jsonl").exists():
            # nothing was begun, and the message that refuses what is left says to remove it
            shutil.rmtree(folder, ignore_errors=True)
        first, key, lost = not (folder / "ledger.jsonl").exists(), Key.kept(self.secret), os.urandom(32)
        Key.fresh = classmethod(lambda cls: key if first else Key.kept(lost))  # type: ignore[method-assign]
        real = updates.private_gradient

        def noted(engine, params, step, chain=b""):  # type: ignore[no-untyped-def]
            mark(f"{engine.noise.key_id} {step}")
            return real(engine, params, step, chain)

        updates.private_gradient = noted
        task = DotsTask()
        plan = TrainingPlan(
            self.method,
            epsilon=8.0,
            delta=1e-4,
            steps=self.steps,
            expected_batch_size=60,
            accountant="rdp",
            ema_decay=0.9,
            subspace=SubspaceConfig(rank=4, units=10, refresh=5),
            public_view=PublicView("pixelize", width=86.0),
        )
        options = RunOptions(
            state_dir=root / "state", views_at_once=16, threads=1, console=Console(quiet=True)
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
                resume=(folder / "config.json").exists(),
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
        if keys == {AesNoise(Key.kept(self.secret)).key_id}:
            counted = sum(event.steps for event in spent(read_ledger(root / "run" / "ledger.jsonl")))
            assert counted == self.steps, f"{counted} steps are counted of {self.steps}"
            found = (root / "run" / "model.safetensors").read_bytes()
            assert found == self.whole.get(self.method, found), (
                "the weights are not those of the run unbroken"
            )

    def between(self, root: Path, cuts: int) -> None:
        """After the second kill its key is lost."""
        if self.loses and cuts == 2:
            shutil.rmtree(root / "state" / "keys", ignore_errors=True)

    def keep(self, root: Path) -> None:
        """Its weights."""
        self.whole[self.method] = (root / "run" / "model.safetensors").read_bytes()


KINDS: Mapping[str, Callable[[int], Story]] = {"release": Release, "account": Account, "training": Training}
