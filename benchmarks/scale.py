"""Releases of a corpus by several workers: what an engine costs, what two workers gain, and what kills cost.

    python benchmarks/scale.py                     # 2,000 pictures of 640x480; then 10,000 small ones and 50 kills
    python benchmarks/scale.py --items 300 --kills 8 --small-items 800
    python benchmarks/scale.py --folder DIR        # goes on in DIR with what is not done yet
    python benchmarks/scale.py --folder DIR --minutes 9 --memory --kills 0      # ratios, as many parts as fit
    python benchmarks/scale.py --folder DIR --minutes 9 --items 0 --memory      # kills; again, until all are done

The ways are measured in one run, each part of the pictures by one after the other: a machine that is busy with other
things is so for all of them. Each picture is released to files by `dpose pixelize`'s own functions, with a state folder
of its own for each way. "One process" is `dpose pixelize` without an engine.

Of kills: workers are killed at random moments with SIGKILL, and at a few of them the command itself, which is started
again. Lost is a picture without its files in the end; released twice one of which two archives were seen that differ in
their sums under one reservation, or that has two archives; under-counted one of which more releases were seen than the
account has.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

SEED, PART = 7, 100
WAYS = {"one process": (None, 1), "ray, 1 worker": ("ray", 1), "ray, 2 workers": ("ray", 2)}


def draw(folder: Path, first: int, count: int, width: int, height: int) -> None:
    """Pictures as a camera's: smooth, with some noise; JPEG."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        file = folder / f"{number:06d}.jpg"
        if file.exists():
            continue
        rng = np.random.default_rng([SEED, number])
        small = rng.integers(0, 256, (height // 16 + 1, width // 16 + 1, 3)).astype(np.uint8)
        seen = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC).astype(np.int16)
        seen += rng.integers(-4, 5, seen.shape, dtype=np.int16)
        beside = file.with_suffix(".part.jpg")
        cv2.imwrite(str(beside), seen.clip(0, 255).astype(np.uint8))
        beside.rename(file)


def config(restore: str) -> Any:
    from dpose.release.config import Pixelization

    return Pixelization.of(2, "pixels:16", 16, colour="rgb", restore=restore)


def release_part(source: Path, out: Path, way: str, restore: str) -> None:
    """One part by one way, in a process of its own: prints seconds of work, and the peak memory of the driver."""
    from dpose.release.batch import release_all, skip_finished
    from dpose.release.items import Work
    from dpose.release.jobs import find_jobs, record_names

    name, workers = WAYS[way]
    what = config(restore)
    if name is None:
        warm(what)
        used, began = processor_seconds(), time.perf_counter()
        work = Work(what)
        todo = skip_finished(find_jobs([str(source)], out), work).todo
        record_names(todo, out)
        done = len(list(release_all(todo, work)))
        used = processor_seconds() - used
        took = time.perf_counter() - began
    else:
        from dpose.engines import engine, run_items
        from dpose.release.batch import release_corpus

        with engine(name, workers=workers) as at:
            list(run_items(at, warm_worker, range(4 * workers), shared=what))
            used, began = processor_seconds(), time.perf_counter()
            jobs = find_jobs([str(source)], out)
            done = sum(made is not None for _, made in release_corpus(jobs, Work(what), at, out))
            took = time.perf_counter() - began
            used = processor_seconds() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"items": done, "seconds": took, "used": used, "megabytes": peak}))


def processor_seconds() -> float:
    """Of this process and all below it: Ray's own and its workers. Other programs on the machine are not in it."""
    ticks = 0
    for pid in [os.getpid(), *children(os.getpid())]:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def warm(what: Any) -> None:
    """What every process pays once: imports, weights, compiled code."""
    from dpose.privacy.noise import AesNoise, Key
    from dpose.release.pixelization import PixelizationPlan
    from dpose.release.plans import picture_shape

    picture = np.zeros((480, 640, 3), np.uint8)
    PixelizationPlan.of(what, picture_shape(picture)).release(picture, AesNoise(Key.fresh())).picture()


def warm_worker(what: Any, _: int) -> None:
    """The same at a worker: by its source, as this file is no module there."""
    import numpy as np

    from dpose.privacy.noise import AesNoise, Key
    from dpose.release.pixelization import PixelizationPlan
    from dpose.release.plans import picture_shape

    picture = np.zeros((480, 640, 3), np.uint8)
    PixelizationPlan.of(what, picture_shape(picture)).release(picture, AesNoise(Key.fresh())).picture()


def measured(folder: Path, items: int, restore: str, console: Console, until: float) -> Table:
    """Items a second by each way, part by part, as many as end by then."""
    store = folder / f"ratios-{restore}.json"
    found: list[dict[str, dict[str, float]]] = json.loads(store.read_text()) if store.exists() else []
    part = min(PART, items)
    took = 0.0
    for number in track(range(len(found), items // part), "ratios", console=console):
        if time.monotonic() + took > until and found:
            break
        began = time.monotonic()
        source = folder / "pictures" / f"{number:03d}"
        draw(source, number * part, part, 640, 480)
        row = {}
        # each way comes first, second and last equally often
        ways = list(WAYS)[number % 3 :] + list(WAYS)[: number % 3]
        for way in ways:
            out = folder / "out" / secrets.token_hex(4)
            # one state for all parts of a way: an account that grows is part of what is measured
            state = folder / "state" / restore / way.replace(" ", "-").replace(",", "")
            state.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, __file__, "--part", str(source), str(out), way, restore]
            done = subprocess.run(command, env=environment(state), stdout=subprocess.PIPE, text=True, check=True)
            row[way] = json.loads(done.stdout.splitlines()[-1])
            shutil.rmtree(out)
        found.append(row)
        store.write_text(json.dumps(found))
        took = time.monotonic() - began
    table = Table(title=f"{len(found) * part:,} pictures of 640x480, restored by {restore}", title_justify="left")
    for column in ("way", "items a second", "ratio", "ms an item", "processor ms", "ratio", "MiB"):
        table.add_column(column, justify="right" if column != "way" else "left")
    first = next(iter(WAYS))
    sums = {way: {name: sum(row[way][name] for row in found) for name in ("items", "seconds", "used")} for way in WAYS}
    each = {way: sums[way]["seconds"] / sums[way]["items"] for way in WAYS}
    used = {way: sums[way]["used"] / sums[way]["items"] for way in WAYS}
    for way in WAYS:
        table.add_row(
            way,
            f"{1 / each[way]:.2f}",
            f"{each[first] / each[way]:.2f}",
            f"{1e3 * each[way]:.1f}",
            f"{1e3 * used[way]:.1f}",
            f"{used[way] / used[first]:.2f}",
            f"{max(row[way]['megabytes'] for row in found):.0f}",
        )
    return table


def environment(state: Path) -> dict[str, str]:
    return os.environ | {"XDG_STATE_HOME": str(state), "OMP_NUM_THREADS": "1"}


def memory(folder: Path, counts: list[int], console: Console) -> Table:
    """The driver's peak memory by the number of items."""
    table = Table(title="the command's own memory, Ray, 2 workers, pictures of 64x48", title_justify="left")
    for column in ("items", "MiB", "items a second"):
        table.add_column(column, justify="right")
    for count in counts:
        source, out, state = (folder / f"small-{count}", folder / f"memory-{count}", folder / f"memory-state-{count}")
        draw(source, 0, count, 64, 48)
        state.mkdir(exist_ok=True)
        command = [sys.executable, __file__, "--part", str(source), str(out), "ray, 2 workers", "none"]
        with console.status(f"{count:,} items"):
            done = subprocess.run(command, env=environment(state), stdout=subprocess.PIPE, text=True, check=True)
        row = json.loads(done.stdout.splitlines()[-1])
        table.add_row(f"{count:,}", f"{row['megabytes']:.0f}", f"{row['items'] / row['seconds']:.1f}")
        shutil.rmtree(out)
    return table


def killed(folder: Path, items: int, kills: int, console: Console, until: float) -> Table:
    """Kills of workers, one in ten of the command: what is lost, released twice, under-counted."""
    source, out, state = folder / "kill-pictures", folder / "kill-out", folder / "kill-state"
    draw(source, 0, items, 64, 48)
    state.mkdir(exist_ok=True)
    seen: dict[str, list[str]] = defaultdict(list)
    tally, looked = folder / "kills.json", folder / "kills-seen.json"
    if looked.exists():
        seen.update(json.loads(looked.read_text()))
    done = json.loads(tally.read_text()) if tally.exists() else {"workers": 0, "command": 0}
    rng, stop = random.Random(SEED), threading.Event()
    watcher = threading.Thread(target=watch, args=(out, seen, stop))
    watcher.start()
    command = [sys.executable, "-m", "dpose", "pixelize", str(source), "--epsilon", "2", "--block", "8"]
    command += ["--restore", "none", "--engine", "ray", "--workers", "2", "--out", str(out)]
    runs = 0
    while True:
        runs += 1
        running = subprocess.Popen(
            command, env=environment(state), stdout=subprocess.DEVNULL, stderr=(folder / "errors").open("a")
        )
        written = count_of(out)
        while running.poll() is None:
            if time.monotonic() > until:
                running.send_signal(signal.SIGINT)
                running.wait()
                break
            time.sleep(rng.uniform(0.3, 2.5))
            sum_of = done["workers"] + done["command"]
            if sum_of >= kills or count_of(out) == written:  # it has not begun, or not again
                continue
            written = count_of(out)
            if (sum_of + 1) % 10 == 0:
                running.kill()
                done["command"] += 1
                tally.write_text(json.dumps(done))
                running.wait()
                break
            workers = [pid for pid in children(running.pid) if "ray::Worker" in name_of(pid)]
            if workers:
                with_pid = rng.choice(workers)
                try:
                    os.kill(with_pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                done["workers"] += 1
                tally.write_text(json.dumps(done))
        if running.returncode == 0 or runs > kills or time.monotonic() > until:
            break
    stop.set()
    watcher.join()
    looked.write_text(json.dumps(seen))
    if running.returncode and time.monotonic() > until:
        console.print("The time is up, and not all is released: what is lost below is not yet done. Run it again.")
    os.environ["XDG_STATE_HOME"] = str(state)
    table = Table(title=f"{items:,} pictures of 64x48", title_justify="left")
    for column in ("", "count"):
        table.add_column(column, justify="right" if column else "left")
    for name, value in told(source, out, seen, done, runs, running.returncode).items():
        table.add_row(name, f"{value:,}")
    return table


def count_of(out: Path) -> int:
    return len(os.listdir(out)) if out.is_dir() else 0


def told(
    source: Path, out: Path, seen: dict[str, list[str]], done: dict[str, int], runs: int, code: int
) -> dict[str, int]:
    """What became of every picture, by the files and by the account."""
    from dpose.account import State, charges
    from dpose.release.jobs import known_names

    counted: dict[str, int] = defaultdict(int)
    for entry in charges():
        counted[entry.data] += 1
    whole = {str((source / name).resolve()) for name in os.listdir(source) if name.endswith(".jpg")}
    names = known_names(out)
    files: dict[str, list[str]] = defaultdict(list)
    for number, original in names.items():
        if (out / f"{number}.npz").exists() and (out / f"{number}.png").exists():
            files[original].append(number)
    releases = {
        original: len({digest for number in numbers for digest in seen[number]}) for original, numbers in files.items()
    }
    return {
        "workers killed": done["workers"],
        "commands killed": done["command"],
        "commands run": runs,
        "exit code of the last": code,
        "lost": len(whole - set(files)),
        "released twice": sum(len(numbers) > 1 for numbers in files.values())
        + sum(count > 1 for count in releases.values()),
        "under-counted": sum(releases.get(o, 0) > counted[o] for o in whole),
        "counted twice": sum(counted[o] > 1 for o in whole),
        "not committed": sum(entry.state is not State.COMMITTED for entry in charges()),
        "archives looked at": sum(len(times) for times in seen.values()),
    }


def watch(out: Path, seen: dict[str, list[str]], stop: threading.Event) -> None:
    """Look at every archive as often as it is written, as somebody who may see the folder does."""
    from dpose.errors import DposeError
    from dpose.release.archive import unpack
    from dpose.release.embed import sums_digest

    times: dict[str, int] = {}
    while True:
        last = stop.is_set()
        for entry in os.scandir(out) if out.is_dir() else ():
            if not entry.name.endswith(".npz") or entry.name.startswith("."):
                continue
            at = entry.stat().st_mtime_ns
            if times.get(entry.name) == at:
                continue
            try:
                released, _ = unpack(Path(entry.path).read_bytes(), entry.name)
            except (DposeError, OSError):
                continue
            times[entry.name] = at
            seen[entry.name.removesuffix(".npz")].append(sums_digest(released))
        if last:
            return
        time.sleep(0.2)


def children(pid: int) -> list[int]:
    """All processes below one."""
    parents: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(fields[1])].append(int(entry.name))
    found, left = [], [pid]
    while left:
        below = parents[left.pop()]
        found += below
        left += below
    return found


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--items", type=int, default=2000, help="pictures of 640x480, for ratios")
    parser.add_argument("--restore", default="learned", help="as dpose pixelize takes it")
    parser.add_argument("--small-items", type=int, default=10000, help="pictures of 64x48, for kills")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--memory", type=int, nargs="*", default=[500, 2000], help="numbers of items")
    parser.add_argument("--minutes", type=float, default=math.inf, help="then stop; with --folder it goes on")
    parser.add_argument("--folder", type=Path, help="where it works, and goes on; default: a temporary one")
    parser.add_argument("--part", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        source, out, way, restore = given.part
        release_part(Path(source), Path(out), way, restore)
        return
    console, until = Console(), time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if given.items:
            console.print(measured(folder, given.items, given.restore, console, until))
        if given.memory:
            console.print(memory(folder, given.memory, console))
        if given.kills:
            console.print(killed(folder, given.small_items, given.kills, console, until))


if __name__ == "__main__":
    main()
