"""Audits of the commands that release files: pictures and videos go in, released files come out.

    with file_mechanism("pixelize", main, "1") as mechanism:             # `main` runs one command line
        audit_mechanism(mechanism.first, mechanism.second, epsilon=1.0, delta=0.0, samples=2560)

Two inputs differ in every second cell by what the claim hides: m pixels. Under the claimed mechanism a cell's value is
of its own pixels and of noise of its own, and what stands in its middle is hardly anything else (a video's cells are
enlarged smoothly, but next to a cell that differs stands none that does). So each of these cells of each file is one
output on two neighbouring inputs. Like the test of independent canaries this refutes "the claimed mechanism ran": a
release whose cells shared their noise could be flagged and still be private. Every file is another original (a strip
that is not looked at differs), released once, with a key of its own, and counted by an account in a folder that is made
for the audit.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.media.images import encode_image, read_pixels
from dpose.media.video import VideoInfo, probe, read_frames
from dpose.media.video_writer import open_writer, settle
from dpose.privacy.events import Gaussian, Laplace
from dpose.privacy.gaussian import discrete_mu
from dpose.privacy.tradeoff import Floats, TradeOff, gaussian
from dpose.release.mechanism import NoiseStage
from dpose.release.verify import verify_release
from dpose_lab.audits.mechanisms import Mechanism

Command = Callable[[list[str]], int]
"""Function that runs a command line of dpose, without the program's name, and returns its exit code."""

SIDE = 128
"""Side of the square part of a picture that is measured, pixels; the strip below it differs in every file."""
BLOCK = 8
CELLS = (SIDE // BLOCK // 2) ** 2
"""Number of outputs of a file."""
GREY = 128
AT_ONCE = 20
"""Number of files of one command."""
FRAMES = 4

FAULTS = {
    "half-noise": "the noise is half of what the budget asks for",
    "noise-missing": "what is released has no noise",
}


@dataclass(frozen=True)
class ReleaseCommand:
    """A command, and how its files are written and read.

    Attributes:
        suffix: Suffix of originals and released files.
        pixels: Number of pixels of a cell of one frame that differ between the two inputs: over all frames the
            number that the claim hides.
        options: Options of the command, besides budget, input and output.
        write: Writes an original: its pixels (H, W, 3), uint8, in a file.
        read: Reads the pixels of a released file, (H, W) float64; of a video the mean of its frames.
    """

    suffix: str
    pixels: int
    options: tuple[str, ...]
    write: Callable[[Path, NDArray[np.uint8]], None]
    read: Callable[[Path], Floats]


def _write_picture(path: Path, pixels: NDArray[np.uint8]) -> None:
    path.write_bytes(encode_image(pixels, ".png"))


def _read_picture(path: Path) -> Floats:
    return np.asarray(np.atleast_3d(read_pixels(path)).mean(axis=2), np.float64)


def _write_video(path: Path, pixels: NDArray[np.uint8]) -> None:
    height, width = pixels.shape[:2]
    info = VideoInfo(path, width, height, 0, Fraction(25), Fraction(1, 25), False, False, True)
    with open_writer(path, info, quality=0) as (writer, temporary):
        for index in range(FRAMES):
            writer.add(pixels, index)
    settle(temporary, path)


def _read_video(path: Path) -> Floats:
    frames = [frame.pixels for frame in read_frames(probe(path))]
    return np.asarray(np.mean(frames, axis=(0, 3)), np.float64)


COMMANDS: Mapping[str, ReleaseCommand] = {
    "pixelize": ReleaseCommand(
        ".png",
        1,
        ("--neighbours", "pixels:1", "--block", str(BLOCK), "--set", "colour=grey", "--restore", "none"),
        _write_picture,
        _read_picture,
    ),
    "release-video": ReleaseCommand(
        ".mp4",
        16 // FRAMES,
        (
            *("--neighbours", "pixels:16", "--set", "colour=grey", "--restore", "none"),
            *("--set", f"pool={FRAMES}", "--set", f"k={SIDE // BLOCK * (SIDE // BLOCK + 1)}"),
        ),
        _write_video,
        _read_video,
    ),
}


@contextlib.contextmanager
def file_mechanism(
    name: str, run: Command, epsilon: str, delta: str = "0", plant: str | None = None
) -> Iterator[Mechanism]:
    """Open a releasing command as a mechanism to audit, until the block ends.

    Args:
        name: A key of `COMMANDS`.
        run: Runs a command line of dpose.
        epsilon: Claimed epsilon of each file.
        delta: Claimed delta of each file; release-video needs one above 0.
        plant: A fault of `FAULTS` to plant.
    """
    if name not in COMMANDS:
        raise DposeError(
            "command-unknown", f"no command called {name!r} is audited", fix=f"choose one of {', '.join(COMMANDS)}"
        )
    if plant is not None and plant not in FAULTS:
        raise DposeError(
            "fault-unsupported",
            f"{name} cannot have the fault {plant!r}",
            "--plant",
            f"choose one of {', '.join(FAULTS)}",
        )
    command, numbers = COMMANDS[name], iter(range(2**62))
    with tempfile.TemporaryDirectory(prefix="dpose-audit-") as made, _state(Path(made) / "state"):

        def released(present: bool, files: int) -> tuple[list[Path], Floats]:
            place = Path(made) / str(next(numbers))
            place.mkdir()
            for index in range(files):
                command.write(place / f"{index:05d}{command.suffix}", _original(command.pixels, present))
            output, out = io.StringIO(), place / "released"
            line = [name, str(place), "--epsilon", epsilon, "--delta", delta, *command.options]
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), _planted(plant):
                code = run([*line, "--out", str(out)])
            released = sorted(out.glob(f"*{command.suffix}")) if code == 0 else []
            if len(released) < files:
                last_line = output.getvalue().strip().rpartition("\n")[2]
                raise DposeError(
                    "release-incomplete",
                    f"{name} released {len(released)} of {files} files ({last_line})",
                    fix="see there",
                )
            return released, np.concatenate([_outputs(command.read(file)) for file in released])

        def draw(present: bool, count: int) -> Floats:
            whole = math.ceil(count / CELLS)
            parts = [released(present, min(AT_ONCE, whole - k))[1] for k in range(0, whole, AT_ONCE)]
            return np.concatenate(parts)[:count]

        (first,), _ = released(False, 1)
        yield Mechanism(
            name, partial(draw, True), partial(draw, False), _claimed(first), FAULTS[plant] if plant else ""
        )


def _original(changed: int, present: bool) -> NDArray[np.uint8]:
    """A grey picture whose every second cell has `changed` pixels of one extreme or the other, above a strip."""
    four = np.full((2 * BLOCK, 2 * BLOCK), GREY, np.uint8)
    four[0, :changed] = 255 if present else 0
    shown = np.tile(four, (SIDE // BLOCK // 2, SIDE // BLOCK // 2))
    strip = np.frombuffer(os.urandom(BLOCK * SIDE), np.uint8).reshape(BLOCK, SIDE)
    return np.repeat(np.concatenate([shown, strip])[..., None], 3, axis=2)


def _outputs(pixels: Floats) -> Floats:
    """Values in the middle of the measured cells, (CELLS,)."""
    middle = BLOCK // 2 - 1
    own = [pixels[middle + i : SIDE : 2 * BLOCK, middle + j : SIDE : 2 * BLOCK] for i in (0, 1) for j in (0, 1)]
    return np.asarray(np.mean(own, axis=0).ravel())


def _claimed(file: Path) -> TradeOff | None:
    """The curve that the statement of a released file claims; None for pure differential privacy."""
    statement, _ = verify_release(file)
    if all(isinstance(event, Laplace) for event in statement.events):
        return None
    ratios = [(e.sensitivity_squared, e.variance, e.steps) for e in statement.events if isinstance(e, Gaussian)]
    if len(ratios) < len(statement.events):
        raise DposeError("noise-curve-unknown", "counts noise whose curve is not known", str(file))
    return gaussian(discrete_mu(ratios))


@contextlib.contextmanager
def _state(folder: Path) -> Iterator[None]:
    """Use a temporary folder for the account and the other state of commands."""
    with mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(folder)}):
        for name in ("DPOSE_ACCOUNT", "DPOSE_ACCOUNT_KEY"):
            os.environ.pop(name, None)
        yield


@contextlib.contextmanager
def _planted(fault: str | None) -> Iterator[None]:
    if fault is None:
        yield
        return
    real = NoiseStage.noised

    def noised(self: NoiseStage, sums: NDArray[np.int64], stream: Any) -> NDArray[np.int64]:
        if fault == "noise-missing":
            return sums.copy()
        # toward zero, or the mean would move by half a level
        noise = np.trunc((real(self, sums, stream) - sums) / 2).astype(np.int64)
        return np.asarray(sums + noise, np.int64)

    with mock.patch.object(NoiseStage, "noised", noised):
        yield
