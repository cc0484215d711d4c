"""What one item costs on this machine, for `dpose plan --corpus`: processor time, files, memory; and what engines add.

    python benchmarks/figures.py FILE              # some minutes; FILE is then what --measured takes

Every size and mechanism is measured in a process of its own, on one thread, by the functions that `--engine` releases
with. Times are processor time, which what else the machine does changes little.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from rich.console import Console
from rich.progress import track

SEED = 7
PICTURES = ((320, 240, 16), (640, 480, 16), (1280, 960, 8))
VIDEOS = ((320, 240, 48, 4), (640, 480, 48, 3), (320, 240, 192, 3))
SMALL = 200
"""Pictures of 64x48, for what an engine costs besides."""


def draw(file: Path, number: int, width: int, height: int, frames: int) -> None:
    """A picture or clip as a camera's: smooth, with some noise."""
    rng = np.random.default_rng([SEED, number])
    small = rng.integers(0, 256, (height // 16 + 1, width // 16 + 1, 3)).astype(np.uint8)
    seen = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC).astype(np.int16)

    def frame() -> np.ndarray:
        return (seen + rng.integers(-4, 5, seen.shape, dtype=np.int16)).clip(0, 255).astype(np.uint8)

    if not frames:
        cv2.imwrite(str(file), frame())
        return
    writer = cv2.VideoWriter(str(file), cv2.VideoWriter.fourcc(*"mp4v"), 24.0, (width, height))
    for _ in range(frames):
        writer.write(frame())
    writer.release()


def work(mechanism: str) -> Any:
    from dpose.release.config import Pixelization, Projection
    from dpose.release.items import Work

    if mechanism == "obfuscate":
        return Work(None, "blur")
    if mechanism == "release-video":
        return Work(Projection.of(8, "1e-5", "pixels:16", colour="rgb", restore="none"))
    return Work(Pixelization.of(2, "pixels:16", 16, colour="rgb"))


def jobs(source: Path, out: Path, mechanism: str) -> Sequence[Any]:
    from dpose.release.jobs import find_jobs, find_videos

    if mechanism == "pixelize":
        return find_jobs([str(source)], out)
    return [job for job, _ in find_videos([str(source)], out)]


def sample(folder: Path, mechanism: str, width: int, height: int, frames: int, items: int) -> dict[str, Any]:
    """Items one after the other in this process: what a worker's part of each takes, and what is written."""
    from dpose.engines.local import LocalEngine
    from dpose.release.batch import release_corpus

    class Timed(LocalEngine):
        used = 0.0

        def result(self, task: Any) -> Any:
            began = time.process_time()
            done = super().result(task)
            self.used += time.process_time() - began
            return done

    kind = ".jpg" if not frames else ".mp4"
    warm, source = folder / "warm", folder / "in"
    for place, count in ((warm, 1), (source, items)):
        place.mkdir()
        for number in range(count):
            draw(place / f"{number:05d}{kind}", number + 1000 * (place == warm), width, height, frames)
    list(release_corpus(jobs(warm, folder / "warm-out", mechanism), work(mechanism), Timed(), folder / "warm-out"))
    out, at = folder / "out", Timed()
    began = time.process_time()
    made = list(release_corpus(jobs(source, out, mechanism), work(mechanism), at, out))
    used = time.process_time() - began
    assert len(made) == items
    written = sum(f.stat().st_size for f in out.iterdir() if f.suffix != ".jsonl")
    return {
        "mechanism": mechanism,
        "width": width,
        "height": height,
        "frames": frames,
        "items": items,
        "worker_seconds": at.used / items,
        "command_seconds": (used - at.used) / items,
        "bytes_in": sum(f.stat().st_size for f in source.iterdir()) / items,
        "bytes_out": written / items,
        "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def engine_sample(name: str, items: int, folder: Path) -> dict[str, Any]:
    """Small pictures by two workers: what the command itself, and the engine besides it, take for an item."""
    from scale import children, name_of, warm_worker

    from dpose.account.store import DATABASE
    from dpose.engines import engine, run_items
    from dpose.release.batch import release_corpus

    source, out = folder / "in", folder / "out"
    source.mkdir()
    for number in range(items):
        draw(source / f"{number:05d}.png", number, 64, 48, 0)
    began = time.perf_counter()
    with engine(name, workers=2) as at:
        list(run_items(at, warm_worker, range(8), shared=work("pixelize").config))
        start = time.perf_counter() - began
        below = children(os.getpid())
        before, own = seconds(below), time.process_time()
        made = list(release_corpus(jobs(source, out, "pixelize"), work("pixelize"), at, out))
        own, used = time.process_time() - own, seconds(below) - before
        others = [pid for pid in below if "ray::" not in name_of(pid)] if name == "ray" else []
        held = sum(map(resident, others))
    assert len(made) == items
    account = Path(os.environ["XDG_STATE_HOME"], "dpose", DATABASE)
    with contextlib.closing(sqlite3.connect(account)) as opened:
        opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # what is written beside it for a while is not to be counted
    listed = sum(f.stat().st_size for f in out.glob("*.jsonl"))
    return {
        "engine": name,
        "items": items,
        "start_seconds": start,
        "command_seconds": own / items,
        "worker_seconds": used / items,
        "command_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "engine_mib": held,
        "account_bytes": account.stat().st_size / items,
        "list_bytes": listed / items,
    }


def seconds(pids: list[int]) -> float:
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    """MiB of a process, what it shares divided among those who share it."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def measure(file: Path, console: Console) -> None:
    """Everything, into `file`."""
    wanted: list[list[Any]] = [["pixelize", w, h, 0, n] for w, h, n in PICTURES]
    wanted += [[name, *video] for name in ("release-video", "obfuscate") for video in VIDEOS]
    wanted += [["pixelize", 64, 48, 0, 50]]
    samples: list[Any] = []
    engines: list[Any] = []
    for asked in track([*wanted, ["local"], ["ray"]], "measuring", console=console):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "--one", json.dumps(asked), folder]
            state = Path(folder, "state")
            state.mkdir()
            own = os.environ | {"XDG_STATE_HOME": str(state), "OMP_NUM_THREADS": "1"}
            done = subprocess.run(command, env=own, stdout=subprocess.PIPE, text=True, check=True)
            (engines if len(asked) == 1 else samples).append(json.loads(done.stdout.splitlines()[-1]))
    figures = {
        "schema": 1,
        "command": "python benchmarks/figures.py FILE",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[1], 1),
        "dpose": metadata.version("dpose"),
        "seed": SEED,
        "samples": samples,
        "engines": engines,
    }
    file.write_text(json.dumps(rounded(figures), indent=1) + "\n")


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, nargs="?", help="where the figures are written, as JSON")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        asked, folder = json.loads(given.one[0]), Path(given.one[1])
        found = engine_sample(asked[0], SMALL, folder) if len(asked) == 1 else sample(folder, *asked)
        print(json.dumps(found))
        return
    if given.file is None:
        parser.error("name a FILE")
    measure(given.file, Console())


if __name__ == "__main__":
    main()
