"""What each process of a run reads before its first step: units, files and bytes, with one process and with more.

    python benchmarks/shares.py --units 2000 --copies 20 --processes 1 2 4

JPEG of 640x480 in a folder that all of them see; so many of them are there twice. `protect` alone is measured, from
the moment at which all processes have found each other. Bytes are those of the files that were opened, read by digest
and decoder alike, each time that they were.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scale import draw


def read(folder: Path) -> None:
    """In one process of several: prints what it has read."""
    from dpose.media.images import read_image
    from dpose.pose.data.pictures import Person, Picture
    from dpose.pose.data.units import PoseUnits
    from dpose.privacy.protected import protect
    from dpose.training.distributed import process_group

    place = process_group()
    place.highest(0)
    joints, box = np.zeros((16, 2), np.float32), np.array([100, 100, 300, 400], np.float32)
    people = (Person(joints, np.ones(16, bool), box),)
    decoded: list[Path] = []

    def picture(path: Path) -> Picture:
        def decode() -> tuple[np.ndarray, tuple[Person, ...]]:
            decoded.append(path)
            return read_image(path), people

        return Picture(path.name, 1, decode, path=path)

    units = PoseUnits([picture(path) for path in sorted(folder.glob("*.jpg"))], input_size=(256, 192))
    place.highest(0)
    began = time.perf_counter()
    own = protect(units, threads=1, readers=place)
    took = time.perf_counter() - began
    row = {"units": len(decoded), "bytes": sum(2 * path.stat().st_size for path in decoded), "seconds": took}
    print(json.dumps({**row, "digest": own.identity.digest.hex(), "of": own.identity.units}), flush=True)


def rows(folder: Path, count: int) -> list[dict[str, Any]]:
    """What each of `count` processes has read."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    shared["WORLD_SIZE"] = str(count)
    running = [
        subprocess.Popen(
            [sys.executable, __file__, "--read", str(folder)],
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    return [json.loads(one.communicate()[0].splitlines()[-1]) for one in running]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--units", type=int, default=2000)
    parser.add_argument("--copies", type=int, default=20)
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        read(given.read)
        return
    table = Table(title=f"{given.units:,} pictures of 640x480, {given.copies} of them twice", title_justify="left")
    for column in ("processes", "pictures read by each", "MB read by each", "seconds", "units", "alike"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder), 0, given.units - given.copies, 640, 480)
        for number in range(given.copies):  # spread over the names
            original = Path(folder) / f"{number * 37:06d}.jpg"
            shutil.copy(original, original.with_name(f"{number * 53:06d}a.jpg"))
        first = None
        for count in given.processes:
            found = rows(Path(folder), count)
            first = first or found[0]["digest"]
            table.add_row(
                str(count),
                " + ".join(f"{one['units']:,}" for one in found),
                " + ".join(f"{one['bytes'] / 1e6:.0f}" for one in found),
                f"{max(one['seconds'] for one in found):.1f}",
                f"{found[0]['of']:,}",
                "yes" if all(one["digest"] == first for one in found) else "NO",
            )
    Console().print(table)


if __name__ == "__main__":
    main()
