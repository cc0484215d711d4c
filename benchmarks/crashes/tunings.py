"""Choices of a setting: one price whatever is cut off, and nothing said or left that tells of how many trials."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from crashes.story import Mark, Plain
from dpose.account import State, charges
from dpose.errors import DposeError
from dpose.privacy.keys import keys_kept
from dpose.privacy.ledger import read_ledger
from dpose.privacy.noise import Key
from dpose.privacy.trial_law import TrialLaw
from dpose.runs import tune
from dpose.runs.tune_config import TuningConfig
from dpose.runs.verify import verify_run
from dpose.training import step as steps
from quick import texts_alone
from shades import entered

LAW = TrialLaw.parse("geometric:3")
KEYS = (4, 0, 1, 7)
"""Of keys under which this law draws 1, 2, 3 and 5 trials."""
GRID = {
    "task": "shade",
    "data": {"private": "shades:300:1"},
    "plan": {"expected_batch_size": 50, "clip_norm": 0.5, "accountant": "rdp"},
    "optimizer": {"name": "adam", "schedule": "constant", "warmup": 0.0},
    "grid": {"optimizer": {"lr": [0.2, 0.1]}, "plan": {"steps": [3, 5]}},
}
LEFT = "tuning"
"""Where it is kept how far a choice is, below the state folder."""


_TEMPORARY = re.compile(r"(^|/)\.(?!lock$)[^/]*$")


class Tuning(Plain):
    """`dpose tune` of a few trials of a few steps, given again where it was cut off."""

    variants = len(KEYS)
    whole: ClassVar[dict[int, dict[str, Any]]] = {}
    """What those that nobody cut off have ended with, by variant."""

    def __init__(self, number: int) -> None:
        self.variant = number % len(KEYS)
        self.secret = hashlib.sha256(f"tuning {KEYS[self.variant]}".encode()).digest()

    def prepare(self, root: Path) -> None:
        """Nothing is there."""

    def work(self, root: Path, mark: Mark) -> None:
        """The choice, or the rest of it."""
        real = steps.private_gradient

        def noted(engine, params, step, chain=b""):
            mark(f"{engine.noise.key_id} {step}")
            return real(engine, params, step, chain)

        said = root / f"said-{len(list(root.glob('said-*')))}"
        with pytest.MonkeyPatch.context() as patch, said.open("w", buffering=1) as words:
            entered(patch)
            patch.setattr(steps, "private_gradient", noted)
            patch.setattr(Figure, "savefig", texts_alone)
            patch.setattr(Key, "fresh", classmethod(lambda cls: Key.kept(self.secret)))
            config = TuningConfig.from_dict(GRID, epsilon=8.0, delta=1e-4)
            console = Console(file=words, force_terminal=False, width=200)
            with _ended_or_not(root):
                tune.tune_runs(config, LAW, root / "tuned", console, state_dir=root / "state")

    def check(self, root: Path, marks: set[str], seen: Mapping[str, set[bytes]]) -> None:
        """All of it is charged before a step is begun, and once; what is said and what is there tells nothing."""
        found = charges(root / "state")
        assert len(found) == 2 or not (found or marks), f"{len(found)} charges, {len(marks)} steps begun"
        whole = self.whole.get(self.variant)
        if whole and found:
            assert [one.events for one in found] == whole["events"], "another price"
        if whole:
            for file in root.glob("said-*"):
                # after a power cut lines are torn, and filled up with zeros
                more = [t for t in _told(root, file.read_text()) if not any(s.startswith(t) for s in whole["said"])]
                assert not more, f"said besides: {more}"
        there = {path.name for path in root.iterdir()} - {"state", "marks"}
        odd = [n for n in there if n != "tuned" and not n.startswith(("said-", ".tuned."))]
        assert not odd, f"left: {odd}"
        if (root / "tuned").exists():
            _verify(root)

    def over(self, root: Path, marks: set[str]) -> None:
        """As many charges, files and words as of the choice that nobody cut off, and its weights."""
        self.check(root, marks, {})
        _verify(root)
        assert [one.state for one in charges(root / "state")] == [State.COMMITTED] * 2
        assert keys_kept(root / "state") == [], "a key is kept"
        whole = self.whole.get(self.variant)
        for name, value in self._ended(root).items():
            if whole and name != "said":  # what was said after the first time may be less
                assert value == whole[name], f"another end: {name}: {value} and not {whole[name]}"

    def keep(self, root: Path) -> None:
        """What it ended with, and was said."""
        self.whole[self.variant] = self._ended(root)
        first = next(iter(self.whole.values()))
        for name, value in self.whole[self.variant].items():
            if name != "weights":
                assert value == first[name], f"the number of trials shows: {name}"

    def _ended(self, root: Path) -> dict[str, Any]:
        state, out = root / "state", root / "tuned"
        files = sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file())
        kept = sorted(re.sub(r"[0-9a-f]{32}", "ID", p.relative_to(state).as_posix()) for p in state.rglob("*"))
        return {
            "weights": hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest(),
            "events": [one.events for one in charges(state)],
            "files": [n for n in files if not n.startswith("checkpoints") and not _TEMPORARY.search(n)],
            "kinds": sorted({entry.type for entry in read_ledger(out / "ledger.jsonl")}),
            # whatever was cut off may leave a file that had no name yet
            "kept": [name for name in kept if "sqlite" not in name and not _TEMPORARY.search(name)],
            "said": [line for p in sorted(root.glob("said-*")) for line in _told(root, p.read_text())],
        }


@contextlib.contextmanager
def _ended_or_not(root: Path) -> Iterator[None]:
    """One that was cut off when nothing was left to do says that its folder exists."""
    try:
        yield
    except DposeError as error:
        if "already exists" not in error.line() or list((root / "state" / LEFT).rglob("tuning.json")):
            raise


def _verify(root: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        entered(patch)  # what follows from a configuration is its task's to say
        verify_run(root / "tuned", root / "state")


def _told(root: Path, text: str) -> list[str]:
    return [line for line in re.split("[\n\0]+", text.replace(str(root), "")) if line]
