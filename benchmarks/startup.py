"""Start-up: what each command takes from the shell's Enter, before and after, in one run.

    python benchmarks/startup.py                    # against the commit before commands learnt to import what they use
    python benchmarks/startup.py --before v0.2 --rounds 9

Both sources run in the same environment, in turn, round by round, each with folders for state and cache of its own that
one untimed round has filled. Seconds are medians: as a clock counts them (what a user waits), and of the processor
(which other work disturbs less). `train` is timed to the first line of its log: the first step is done.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from dpose.media.video import VideoInfo
from dpose.media.video_writer import open_writer, settle

BEFORE = "83468e2"
ROOT = Path(__file__).parents[1]
PIXELS = ("--epsilon", "1", "--neighbours", "pixels:16", "--again")
PLAN = ("--units", "2000", "--epsilon", "2", "--delta", "1e-5", "--epochs", "5", "--batch-size", "64")
COMMANDS = {
    "--version": ("--version",),
    "--help": ("--help",),
    "train --help": ("train", "--help"),
    "plan (seen before)": ("plan", *PLAN),
    "pixelize, a picture": ("pixelize", "picture.png", *PIXELS, "--out", "released"),
    "verify, a release": ("verify", "released"),
    "release-video, a clip": ("release-video", "clip.mp4", *PIXELS, "--delta", "1e-9", "--out", "clips/released.mp4"),
    "train, to its first step": (
        *("train", "--data", "synthetic:studio", "--limit", "64", "--epochs", "2", "--batch-size", "16"),
        *("--method", "dp-sgd", "--strategy", "light", "--epsilon", "8", "--delta", "1e-4"),
        *("--out", "run"),
    ),
}
"""What is timed, in a folder that holds a picture and a clip of 640x480."""
MADE_ANEW = ("clips", "run", "released")
"""What a command writes, removed before it runs again; `verify` reads what `pixelize` left."""


@dataclass
class Source:
    """One side: where its source lies, its folder, and what was measured."""

    name: str
    source: Path
    folder: Path
    wall: dict[str, list[float]] = field(default_factory=dict)
    processor: dict[str, list[float]] = field(default_factory=dict)
    modules: dict[str, int] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """Of its commands: its source, state and cache of its own, and its bytecode, as an installed package has it."""
        there = {f"XDG_{kind}_HOME": str(self.folder / kind.lower()) for kind in ("CACHE", "STATE", "DATA")}
        there |= {"PYTHONPYCACHEPREFIX": str(self.folder / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
        return {**os.environ, **there, "PYTHONPATH": str(self.source), "OMP_NUM_THREADS": "1"}

    def run(self, name: str, arguments: tuple[str, ...], *, count: bool = False) -> None:
        """Run a command once: timed, or counting the modules that it imports."""
        for written in MADE_ANEW if arguments[0] != "verify" else ():
            if any(Path(word).parts[:1] == (written,) for word in arguments):
                shutil.rmtree(self.folder / written, ignore_errors=True)
        trains = arguments[:2] == ("train", "--data")
        python = [sys.executable, *(("-X", "importtime") if count else ()), "-m", "dpose"]
        began, used = time.perf_counter(), _processor()
        with (self.folder / "stderr").open("w") as told:
            child = subprocess.Popen(
                [*python, *arguments], cwd=self.folder, env=self.environment, stdout=subprocess.DEVNULL, stderr=told
            )
            if trains:
                seconds = self._first_step(child, began)
            else:
                child.wait()
                seconds = time.perf_counter() - began
        text = (self.folder / "stderr").read_text()
        if child.returncode and not trains:
            sys.exit(f"{self.name}: dpose {' '.join(arguments)}: {text.splitlines()[-1:]}")
        if count:
            self.modules[name] = sum(line.startswith("import time:") for line in text.splitlines()) - 1
        else:
            self.wall.setdefault(name, []).append(seconds)
            self.processor.setdefault(name, []).append(_processor() - used)

    def _first_step(self, child: subprocess.Popen[bytes], began: float) -> float:
        log = self.folder / "run" / "log.jsonl"
        while child.poll() is None and not (log.is_file() and log.stat().st_size):
            time.sleep(0.01)
        seconds = time.perf_counter() - began
        if not log.is_file():
            sys.exit(f"{self.name}: train wrote no log: {(self.folder / 'stderr').read_text()[-300:]}")
        child.kill()
        child.wait()
        return seconds


def _processor() -> float:
    """Seconds of the processor that children have used so far, user and system."""
    used = os.times()
    return used.children_user + used.children_system


@contextlib.contextmanager
def checkout(revision: str) -> Iterator[Path | None]:
    """The source as it was at a revision; None where this copy of the repository does not have it."""
    with tempfile.TemporaryDirectory() as folder:
        git = ["git", "-C", str(ROOT), "worktree"]
        added = subprocess.run([*git, "add", "--detach", f"{folder}/tree", revision], capture_output=True)
        try:
            yield Path(folder) / "tree" / "src" if added.returncode == 0 else None
        finally:
            subprocess.run([*git, "remove", "--force", f"{folder}/tree"], capture_output=True)


def fill(folder: Path) -> None:
    """A picture and a clip of 640x480, two seconds."""
    generator = np.random.default_rng(0)
    small = generator.integers(0, 256, (30, 40, 3), np.uint8)
    picture = cv2.resize(small, (640, 480), interpolation=cv2.INTER_CUBIC)
    cv2.imwrite(str(folder / "picture.png"), picture)
    path = folder / "clip.mp4"
    info = VideoInfo(path, 640, 480, 50, Fraction(25), Fraction(1, 25), False, False, True)
    with open_writer(path, info) as (writer, temporary):
        for frame in range(50):
            writer.add(np.roll(picture, frame, axis=1), frame, 1)
    settle(temporary, path)


def report(sides: list[Source], console: Console) -> None:
    table = Table(title=f"Python {platform.python_version()}, medians of {len(sides[0].wall['--help'])}")
    table.add_column("command")
    for side in sides:
        for what in ("modules", "seconds", "processor"):
            table.add_column(f"{what}, {side.name}", justify="right")
    if len(sides) == 2:
        table.add_column("ratio", justify="right")
    for name in COMMANDS:
        row = [name]
        for side in sides:
            row += [str(side.modules[name])]
            row += [f"{statistics.median(found[name]):.2f}" for found in (side.wall, side.processor) if found[name]]
        if len(sides) == 2:
            first, last = (statistics.median(side.wall[name]) for side in sides)
            row.append(f"{last / first:.2f}")
        table.add_row(*row)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default=BEFORE, help="a revision; '' for none")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    console = Console(width=140)  # ten columns
    with contextlib.ExitStack() as held:
        root = Path(held.enter_context(tempfile.TemporaryDirectory()))
        sides = []
        source = held.enter_context(checkout(arguments.before)) if arguments.before else None
        if source is not None:
            sides.append(Source("before", source, root / "before"))
        elif arguments.before:
            console.print(f"no revision {arguments.before} here: measured alone")
        sides.append(Source("after", ROOT / "src", root / "after"))
        for side in sides:
            side.folder.mkdir()
            fill(side.folder)
            for name, words in COMMANDS.items():
                side.run(name, words)
                side.run(name, words, count=True)
            side.wall.clear()
            side.processor.clear()
        rounds = [(name, words) for _ in range(arguments.rounds) for name, words in COMMANDS.items()]
        for name, words in track(rounds, "starting", console=console):
            for side in sides:
                side.run(name, words)
        report(sides, console)


if __name__ == "__main__":
    main()
