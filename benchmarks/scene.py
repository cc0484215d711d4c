"""Rendered pictures a second on one core, by look, at the size of the `nano` preset.

python benchmarks/scene.py
"""

from __future__ import annotations

import os
import platform
import time

os.environ["NUMBA_NUM_THREADS"] = "1"

import cv2
import numba
from rich.console import Console
from rich.table import Table

from dpose_scene.looks import LOOKS
from dpose_scene.render import render_person
from dpose_scene.splits import scene_seed

COUNT, SIZE = 2000, (128, 96)


def main() -> None:
    cv2.setNumThreads(1)
    table = Table(title=f"{COUNT:,} pictures of {SIZE[0]}x{SIZE[1]} a round, one thread, CPU time")
    table.add_column("look")
    rounds = ("first, most people new", "second", "third")
    for name in rounds:
        table.add_column(f"{name}, pictures/s", justify="right")
    for look in LOOKS:
        for i in range(50):  # compiles
            render_person(look, scene_seed(look, "val", i), SIZE)
        row = []
        for number in range(len(rounds)):
            started = time.process_time()
            for i in range(number * COUNT, (number + 1) * COUNT):
                render_person(look, scene_seed(look, "train", i), SIZE)
            row.append(f"{COUNT / (time.process_time() - started):.0f}")
        table.add_row(look, *row)
    console = Console(width=110)
    console.print(table)
    console.print(f"Python {platform.python_version()}, numba {numba.__version__}", highlight=False)


if __name__ == "__main__":
    main()
