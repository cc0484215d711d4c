"""Private video by structured projections beside the published dense one: time, picture and memory, all in one run.

    python benchmarks/video_release.py
    python benchmarks/video_release.py --video clip.mp4     # pictures of this video instead of a rendered one
    python benchmarks/video_release.py --no-dense           # without the published algorithm, which takes minutes

One thread; seconds are the processor's, so that other work on the machine counts little. A clip is 64 frames of 320 x
240 x 3, and 3,072 = 32 x 32 x 3 values are kept of each frame, as in seed 004. "Projection and restoration" is all but
the noise: measuring every frame and making its picture. The exact noise is timed apart. The dense algorithm is the one
that `paper=true` runs, timed once. PSNR is of the released frames against the originals, at equal epsilon, delta and
neighbours. Peak memory is that of a process of its own that releases so many synthetic frames, one by one.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
for name in THREADS:
    os.environ[name] = "1"

import cv2
import numpy as np
from rich.console import Console
from rich.table import Table

from dpose.media.video import probe, read_frames
from dpose.privacy.discrete import discrete_gaussian
from dpose.privacy.gaussian import largest_mu
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.privacy.ranges import lower
from dpose.release.config import Projection
from dpose.release.grid import Shape
from dpose.release.linear import LinearPlan
from dpose.release.operators import make_operator
from dpose_lab.baselines.video_dprp import DensePlan

FRAMES, HEIGHT, WIDTH, K, SIDE = 64, 240, 320, 3072, 32
EPSILON, DELTA, M = 8, "1e-5", 16
PAPER_SECONDS = 20.32
OPERATORS = {"block": "block means", "low-pass": "low-pass DCT", "random": "randomised DCT"}


def frames_of(path):
    """64 frames of 320 x 240."""
    if path is not None:
        info = probe(path)
        found = [f.pixels for f in itertools.islice(read_frames(info), FRAMES)]
        return np.stack([cv2.resize(f, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA) for f in found])
    from dpose_scene.render import clip

    return np.stack([made.image for made in clip("studio", 7, "walk", FRAMES, (HEIGHT, WIDTH))])


def paper_sized(operator, shape):
    """A plan with the paper's own k: 32 x 32 cells or cosines of every channel of every frame."""
    setting = Projection.of(EPSILON, DELTA, M, operator, colour="rgb", restore="none")
    return LinearPlan.around(
        make_operator(operator, shape, SIDE, SIDE, shape.frames, "benchmark"), setting, "benchmark"
    )


def psnr(shown, clip):
    return 10 * np.log10(255**2 / np.mean((shown.astype(np.float64) - clip) ** 2))


def both_ways(plan, clip):
    """Measure and restore, without noise."""
    return np.stack(list(plan.pictures(plan.measured(iter(clip)))))


def noise_alone(plan):
    source = AesNoise(Key.fresh())
    for group in range(plan.operator.groups):
        stream = source.stream(Purpose.RELEASE, group, b"projection")
        discrete_gaussian(plan.event.variance, plan.operator.outputs, stream)


def timed(run):
    start = time.process_time()
    run()
    return time.process_time() - start


def time_structured(table, clip, rounds, dense):
    """Seconds a clip, candidates taking turns."""
    shape = Shape(*clip.shape)
    plans = {name: paper_sized(name, shape) for name in OPERATORS}
    taken: dict[str, list[float]] = {name: [] for name in plans}
    noise: dict[str, list[float]] = {name: [] for name in plans}
    for plan in plans.values():
        both_ways(plan, clip)
        noise_alone(plan)
    for _ in range(rounds):
        for name, plan in plans.items():
            taken[name].append(timed(lambda plan=plan: both_ways(plan, clip)))
            noise[name].append(timed(lambda plan=plan: noise_alone(plan)))
    for name, plan in plans.items():
        seconds = statistics.median(taken[name])
        against = f"{dense / seconds:,.0f} x as fast as the dense" if dense else ""
        table.add_row(
            f"{OPERATORS[name]}: projection and restoration", f"{seconds:.3f} s (best {min(taken[name]):.3f})", against
        )
        count = plan.operator.outputs * plan.operator.groups
        spent = statistics.median(noise[name])
        table.add_row(f"  exact noise, {count:,} draws", f"{spent:.3f} s", f"{1e9 * spent / count:.0f} ns a draw")


def time_dense(table, clip):
    """The published algorithm once, by its parts: its seconds, and the pictures that its projection gives."""
    shape = Shape(*clip.shape)
    plan = DensePlan.of(Projection.of(EPSILON, "1e-4", paper=True, k=K), shape)
    source = AesNoise(Key.fresh())
    matrix = plan.projection(source)
    rng = source.stream(Purpose.RELEASE, 0, b"paper noise").generator()
    flat = clip.reshape(len(clip), -1)
    parts = {}
    parts["drawing R, once"] = timed(lambda: [None for _ in matrix.rows()])
    kept: dict[str, Any] = {}
    parts["P = X R"] = timed(lambda: kept.update(p=matrix.apply(flat)))
    parts["R^T R"] = timed(lambda: matrix.gram)
    parts["noise, SVD, (R V)^+"] = timed(lambda: kept.update(w=plan.weights(kept["p"], matrix.gram, rng)))
    parts["restoration"] = timed(lambda: kept.update(x=matrix.adjoint(kept["w"])))
    again = parts.pop("drawing R, once")
    # P, R^T R and the restoration each drew R; a program that holds it draws it once
    total = sum(parts.values()) - 2 * again
    for name, seconds in parts.items():
        table.add_row(
            f"  dense: {name}", f"{seconds:.1f} s", f"of that drawing R {again:.1f} s" if "SVD" not in name else ""
        )
    table.add_row(
        "the paper's dense algorithm, R drawn once", f"{total:.1f} s", f"the paper, on a GPU: {PAPER_SECONDS} s a video"
    )
    shown = np.clip(np.rint(kept["x"]), 0, 255)
    # the same projection, centred, with noise for 16 pixels of the clip: equal epsilon, equal neighbours
    near = Neighbours.of_pixels(M, "clip")
    sigma = float(matrix.sensitivity(near).l2_squared) ** 0.5 / largest_mu(EPSILON, float(DELTA))
    middle = matrix.apply(np.full((1, flat.shape[1]), 127, np.uint8)) * np.float32(127.5 / 127)
    noisy = kept["p"] - middle + np.random.default_rng(0).normal(0, sigma, kept["p"].shape).astype(np.float32)
    free = kept["p"] - middle
    solve = np.linalg.inv(matrix.gram.astype(np.float64)).astype(np.float32)
    sound = np.clip(matrix.adjoint(noisy @ solve) + 127.5, 0, 255)
    quiet = np.clip(matrix.adjoint(free @ solve) + 127.5, 0, 255)
    return total, {
        "as published (epsilon 8 claimed for a frame; not true)": psnr(shown, flat),
        "centred, sound noise": psnr(sound, flat),
        "centred, no noise": psnr(quiet, flat),
    }


def compare_pictures(table, clip, dense):
    shape = Shape(*clip.shape)
    candidates = {f"{label}, 32 x 32 a frame": paper_sized(name, shape) for name, label in OPERATORS.items()}
    for name, label in OPERATORS.items():
        setting = Projection.of(EPSILON, DELTA, M, name, colour="rgb", restore="none")
        candidates[f"{label}, dpose's own grid"] = LinearPlan.of(setting, shape, "benchmark")
    for name, plan in candidates.items():
        shown = np.stack(list(plan.run(iter(clip), AesNoise(Key.fresh()))))
        quiet = both_ways(plan, clip)
        size = f"{plan.operator.columns} x {plan.operator.rows} x {plan.operator.groups}"
        table.add_row(
            name,
            f"{psnr(shown, clip):.2f} dB",
            f"{psnr(quiet, clip):.2f} dB without noise; {lower(plan.noise, places=1)} gray levels; {size}",
        )
    for name, value in dense.items():
        table.add_row(f"dense projection, {name}", f"{value:.2f} dB", "")


def peak_memory():
    """MiB. Not getrusage's, which remembers the process that started this one."""
    status = Path("/proc/self/status").read_text().split("VmHWM:")[1]
    return int(status.split()[0]) / 1024


def release_synthetic(count):
    """Release so many frames, one by one; print the peak memory before and after."""
    before = peak_memory()
    base = np.random.default_rng(0).integers(0, 256, (HEIGHT + 64, WIDTH, 3), dtype=np.uint8)
    plan = LinearPlan.of(Projection.of(EPSILON, DELTA, M, colour="rgb", restore="none"), Shape(count, HEIGHT, WIDTH, 3))
    frames = (base[n % 64 : n % 64 + HEIGHT] for n in range(count))
    for _ in plan.run(frames, AesNoise(Key.fresh())):
        pass
    print(before, peak_memory())


def compare_memory(table, counts):
    first = None
    for count in counts:
        command = [sys.executable, str(Path(__file__)), "--synthetic", str(count)]
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds = time.perf_counter() - start
        imports, peak = map(float, done.stdout.split())
        first = first or peak
        table.add_row(
            f"peak memory, {count:,} frames",
            f"{peak:.0f} MiB",
            f"{peak / first:.3f} x the first; {imports:.0f} for imports alone; {seconds:.0f} s",
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--video", type=Path, help="take the pictures from this video")
    parser.add_argument("--no-dense", action="store_true", help="leave the published algorithm out")
    parser.add_argument("--synthetic", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    if arguments.synthetic:
        release_synthetic(arguments.synthetic)
        return
    clip = frames_of(arguments.video)
    title = f"{len(clip)} frames of {WIDTH} x {HEIGHT} x 3; {platform.machine()}, one thread"
    table = Table("what", "result", "compared", title=title)
    dense, pictures = (None, {}) if arguments.no_dense else time_dense(table, clip)
    table.add_section()
    time_structured(table, clip, arguments.rounds, dense)
    table.add_section()
    table.add_row(f"PSNR, epsilon {EPSILON}, delta {DELTA}, pixels:{M}", "", "")
    compare_pictures(table, clip, pictures)
    table.add_section()
    compare_memory(table, (64, 640, 6400))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
