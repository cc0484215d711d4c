"""Compiled kernels: what code for any processor costs beside code for this one, and whether it gives the same bits.

    python benchmarks/kernels.py

Each kind in processes of its own, alternating, with a cache of its own: numba keeps code by the processor's model and
features (`dpose.jit`). One thread, processor time; the least of three processes, each with the least of 15 calls.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from dpose import jit
from dpose.privacy.gaussian_noise import rounded_gaussian
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.training.kernels import cpu
from dpose_scene.data import render_at

UNITS = 32


def tasks() -> dict[str, Callable[[], Any]]:
    """What is timed; each gives arrays."""
    numbers = torch.Generator().manual_seed(0)
    maps, slopes = (torch.randn(UNITS, 1, 128, 32, 24, generator=numbers) for _ in range(2))
    cells, rises = (torch.randn(UNITS, 768, 64, generator=numbers) for _ in range(2))
    mean, rstd = cells.mean(-1), 1 / cells.std(-1)
    rows = 1000 * torch.randn(UNITS, 100_000, generator=numbers).numpy()
    factors = np.full(UNITS, 0.7, np.float32)

    def truncated() -> list[Any]:
        totals, squares = np.zeros(rows.shape[1], np.int64), np.zeros(UNITS)
        cpu.add_truncated(rows, factors, totals, squares, 0, rows.shape[1])
        return [totals, squares]

    def noise() -> list[Any]:
        stream = AesNoise(Key.from_seed(0)).stream(Purpose.NOISE, 0, b"")
        return [rounded_gaussian(1e6, 200_000, stream)]

    def pictures() -> list[Any]:
        return [render_at(look, "train", i, (128, 96)).image for look in ("studio", "ward") for i in range(20)]

    return {
        "40 rendered pictures of 128x96": pictures,
        "depthwise gradients, 32 units of 32x24x128": lambda: [
            cpu.KERNELS.depthwise(maps, slopes, (3, 3), (1, 1), (1, 1), (1, 1))
        ],
        "LayerNorm's gradients, 32 units of 768x64": lambda: cpu.KERNELS.norm_slopes(cells, rises, mean, rstd),
        "the truncated sum, 32 units of 100,000": truncated,
        "200,000 numbers of exact noise": noise,
    }


def once() -> dict[str, list[Any]]:
    """Of each task: seconds of the first call, the least of the others, and a digest of what it gives."""
    torch.set_num_threads(1)
    jit._spared = jit.WORTH  # whatever little there is to do
    found = {}
    for name, task in tasks().items():
        seconds = []
        for _ in range(16):
            began = time.process_time()
            given = task()
            seconds.append(time.process_time() - began)
        total = hashlib.sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in given))
        found[name] = [seconds[0], min(seconds[1:]), total.hexdigest()]
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        own = {"NUMBA_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
        kinds: dict[str, list[dict[str, list[Any]]]] = {"": [], "generic": []}
        for _ in range(3):
            for kind, found in kinds.items():
                named = {"NUMBA_CPU_NAME": kind} if kind else {}
                child = subprocess.run(
                    [sys.executable, __file__, "once"],
                    env={**os.environ, **own, **named},
                    stdout=subprocess.PIPE,
                    check=True,
                )
                found.append(json.loads(child.stdout))
    table = Table("", "first call, compiling, s", "this processor, ms", "any processor, ms", "ratio", "same bits")
    for name in kinds[""][0]:
        here, anywhere = (min(one[name][1] for one in found) for found in kinds.values())
        bits = {one[name][2] for found in kinds.values() for one in found}
        row = (kinds[""][0][name][0], 1000 * here, 1000 * anywhere, anywhere / here)
        table.add_row(name, *(f"{value:.2f}" for value in row), "yes" if len(bits) == 1 else "no")
    Console(width=140).print(table)


if __name__ == "__main__":
    if sys.argv[1:] == ["once"]:
        print(json.dumps(once()))
    else:
        main()
