"""Pictures released and reservations made: what was granted, or could be seen, is counted, and every file is whole."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import secrets
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crashes.story import Mark, Plain
from dpose.account import charge, charges
from dpose.cli import main
from dpose.engines import local
from dpose.media.images import encode_image
from dpose.privacy.marks import marks_of
from dpose.release.manifest import MANIFEST, verify_manifest
from dpose.release.verify import verify_release
from stored import run_charge


class Release(Plain):
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
        code, said = _pixelized(root)
        if self.both and not other:
            os._exit(0)
        if self.both:
            os.waitpid(other, 0)  # whichever was second is refused what the first has done
        elif code:
            raise RuntimeError(said)

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
            if not path.name.startswith(".") and path.name != MANIFEST:
                verify_release(path)

    def over(self, root: Path, marks: set[str]) -> None:
        """Every picture is there."""
        there = sorted(p.name for p in (root / "out").iterdir() if not p.name.startswith("."))
        wanted = sorted(f"{k}{suffix}" for k in range(self.pictures) for suffix in (".npz", ".png"))
        assert there == wanted or self.both, there
        # what a power cut tore of a file that was being written, under a hidden name, is no other release
        files = [p for p in (root / "out").iterdir() if not p.name.startswith(".")]
        self.check(root, marks, {f"/out/{p.name}": {p.read_bytes()} for p in files})


def _pixelized(root: Path, *options: str) -> tuple[int, str]:
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(root / "home"))
        patch.chdir(root)
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            asked = ["--epsilon", "1", "--block", "8", "--out", "out", "--keep-names", *options]
            code = main(["pixelize", "in", *asked])
    return code, said.getvalue()


def _is_archive(path: str, k: int) -> bool:
    return path.startswith("/out/") and f"{k}.npz" in path


class Corpus(Release):
    """A folder of pictures released by `dpose pixelize --engine local` with two workers, of which one may be killed."""

    apart = True

    def __init__(self, number: int) -> None:
        super().__init__(0)

    def work(self, root: Path, mark: Mark) -> None:
        """The command, given again where it was cut off."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(local, "_process", _forked)
            code, said = _pixelized(root, "--engine", "local", "--workers", "2")
        if code:
            raise RuntimeError(said)

    def check(self, root: Path, marks: set[str], seen: Mapping[str, set[bytes]]) -> None:
        """What is taken up again is the same release, under the same reservation."""
        super().check(root, marks, seen)
        for k in range(self.pictures):
            mine = [one for one in charges(root / "home" / "dpose") if Path(one.data).name == f"{k}.png"]
            assert len(mine) <= 1, f"picture {k}: reserved {len(mine)} times"

    def over(self, root: Path, marks: set[str]) -> None:
        """Every picture is there, and on the list."""
        assert verify_manifest(root / "out")
        (root / "out" / MANIFEST).rename(root / MANIFEST)
        super().over(root, marks)


def _forked(workers: int) -> ProcessPoolExecutor:
    """A worker that need not import anything: there are no threads here but those of such pools."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("fork"))


class Account(Plain):
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
            charge(replace(run_charge(0, marks_of([one])), id=one), where)
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
