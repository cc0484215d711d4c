"""Private pixelization beside the paper's loop, a copy of the frame, OpenDP's sampler and PNG; all in one run.

    python benchmarks/pixelize.py
    python benchmarks/pixelize.py --video clip.mp4      # and the video pipeline, a second at a time

One thread. Frames of 1920 x 1080 gray pixels, block 16, m 16, epsilon 0.5. A pool of frames larger than any cache is
walked through, so that each call finds its frame in memory only. Rounds alternate between the candidates and the table
shows medians over all calls, so that a machine that slows down slows all. Times are the thread's own on the processor:
a long call that others interrupt is not made longer by it (a video's are by the clock, since its codecs have threads of
their own). The paper's Algorithm 1 is the loop that it prints, in NumPy. OpenDP's sampler is timed where `opendp` is
installed.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import statistics
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
from rich.console import Console
from rich.table import Table

from dpose.media.video import probe, read_frames
from dpose.media.video_writer import open_writer
from dpose.privacy.discrete import discrete_gaussian, discrete_laplace
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.release.api import pixelize
from dpose.release.archive import pack_archive
from dpose.release.config import Pixelization
from dpose.release.embed import stamped_picture
from dpose.release.grid import Shape
from dpose.release.partition import BlockSums
from dpose.release.pixelization import PixelizationPlan

HEIGHT, WIDTH, BLOCK, M, EPSILON = 1080, 1920, 16, 16, Fraction(1, 2)
SCALE = 255 * M / EPSILON


def algorithm_1(image, block, epsilon, m, rng):
    """Algorithm 1 of the paper, line by line."""
    height, width = image.shape
    restored = np.zeros((height, width))
    sigma = 255 * m / block**2 / epsilon
    for r in range(0, height, block):
        for c in range(0, width, block):
            h, w = min(block, height - r), min(block, width - c)
            mean = np.mean(image[r : r + h, c : c + w])
            noisy = np.clip(mean + rng.laplace(0, sigma), 0, 255)
            restored[r : r + h, c : c + w] = noisy
    return restored


def algorithm_2(image, block, epsilon, m, rng):
    """Algorithm 2 of the paper, in NumPy as it is in CuPy there."""
    height, width = image.shape
    padded = np.pad(image, ((0, -height % block), (0, -width % block)), mode="symmetric")
    rows, columns = padded.shape[0] // block, padded.shape[1] // block
    means = padded.reshape(rows, block, columns, block).mean(axis=(1, 3))
    noisy = np.clip(means + rng.laplace(0, 255 * m / block**2 / epsilon, means.shape), 0, 255)
    return noisy.repeat(block, 0).repeat(block, 1)[:height, :width]


def frames_beyond_the_cache(count):
    """Pictures with the statistics of a photograph, more than a cache holds."""
    rng = np.random.default_rng(0)
    base = cv2.GaussianBlur(rng.integers(0, 256, (HEIGHT, WIDTH)).astype(np.float32), (0, 0), 6)
    base = cv2.normalize(base, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)
    return [np.roll(base, 37 * n, (0, 1)).copy() for n in range(count)]


def medians(candidates: dict[str, Callable[..., object]], frames, rounds, slow):
    """Milliseconds a call; candidates take turns, and the slow ones one call a round."""
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for run in candidates.values():
        run(frames[0])
    for number in range(rounds):
        for name, run in candidates.items():
            for frame in frames[number % len(frames) :][:1] if name in slow else frames:
                start = time.thread_time()
                run(frame)
                taken[name].append(1000 * (time.thread_time() - start))
    return {name: statistics.median(values) for name, values in taken.items()}


def time_frames(table, arguments):
    frames = frames_beyond_the_cache(arguments.frames)
    operator = BlockSums(HEIGHT, WIDTH, BLOCK)
    plan = PixelizationPlan.of(
        Pixelization.of(EPSILON, M, BLOCK, colour="rgb", restore="none"), Shape.of(HEIGHT, WIDTH, 1, 255)
    )
    source, number, rng = AesNoise(Key.fresh()), itertools.count(), np.random.default_rng(0)
    levels = (operator.apply(frames[0]) // operator.areas[:, None]).astype(np.uint8)

    def both(frame):
        operator.apply(frame)
        operator.adjoint(levels)

    candidates = {
        "the paper's Algorithm 1, a loop": lambda f: algorithm_1(f, BLOCK, float(EPSILON), M, rng),
        "the paper's Algorithm 2, NumPy": lambda f: algorithm_2(f, BLOCK, float(EPSILON), M, rng),
        "copy of the frame": lambda f: f.copy(),
        "dpose: sums and restoration": both,
        "dpose: exact noise, 8,160 cells": lambda f: discrete_laplace(
            SCALE, 8160, source.stream(Purpose.NOISE, next(number))
        ),
        "dpose: all of it": lambda f: plan.release(f, source, next(number)).picture(),
    }
    slow = {name for name in candidates if name.startswith("the paper's")}
    found = medians(candidates, frames, arguments.rounds, slow)
    loop, copy = found["the paper's Algorithm 1, a loop"], found["copy of the frame"]
    for name, value in found.items():
        table.add_row(name, f"{value:.3f} ms", f"{loop / value:.1f} x the loop's speed, {value / copy:.2f} x a copy")


def time_noise(table, arguments):
    source, number = AesNoise(Key.fresh()), itertools.count()
    candidates = {
        "discrete Laplace": lambda n: discrete_laplace(SCALE, n, source.stream(Purpose.NOISE, next(number))),
        "discrete Gaussian": lambda n: discrete_gaussian(
            Fraction(int(SCALE) ** 2), n, source.stream(Purpose.NOISE, next(number))
        ),
    }
    try:
        import opendp.prelude as dp

        dp.enable_features("contrib")
        space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
        theirs = dp.m.make_laplace(*space, scale=float(SCALE))
        candidates["OpenDP's discrete Laplace"] = lambda n: theirs([0] * n)
    except ImportError:
        table.add_row("OpenDP's discrete Laplace", "not installed", "pip install opendp")
    for n in (8160, 129_600):
        taken: dict[str, list[float]] = {name: [] for name in candidates}
        for draw in candidates.values():
            draw(64)
        for _ in range(arguments.rounds):
            for name, draw in candidates.items():
                start = time.thread_time()
                draw(n)
                taken[name].append(time.thread_time() - start)
        for name, values in taken.items():
            value = statistics.median(values)
            table.add_row(f"{name}, {n:,} draws", f"{1000 * value:.2f} ms", f"{1e9 * value / n:.0f} ns a draw")


def compare_storage(table):
    frame = frames_beyond_the_cache(1)[0]
    for block in (1, 2, 4, 8, 16, 32, 64, 128):
        made = pixelize(frame, EPSILON, M, block, public=True)
        png = len(stamped_picture(made.frames[0], ".png", made.statement))
        archive = len(pack_archive(made.frames[0], made.statement))  # type: ignore[arg-type]  # it is no published one
        table.add_row(f"archive, b = {block}", f"{archive:,} bytes", f"PNG {png:,}: {png / archive:.2f} times as large")


def time_video(table, path):
    info = probe(path)
    start = time.perf_counter()
    frames = [frame for frame, _ in zip(read_frames(info), range(120), strict=False)]
    decoding = time.perf_counter() - start
    plan = PixelizationPlan.of(
        Pixelization.of(EPSILON, M, BLOCK, colour="rgb", restore="none"),
        Shape.of(info.height, info.width, info.channels, 255, len(frames)),
    )
    source = AesNoise(Key.fresh())
    start = time.perf_counter()
    shown = [plan.release(frame.pixels, source, n).picture() for n, frame in enumerate(frames)]
    releasing = time.perf_counter() - start
    target = Path(f".{path.stem}.benchmark.mp4")
    start = time.perf_counter()
    with open_writer(target, info) as (writer, temporary):
        for frame, pixels in zip(frames, shown, strict=True):
            writer.add(pixels, frame.pts, frame.duration)
    encoding = time.perf_counter() - start
    temporary.unlink()
    what = f"{path.name}, {info.width} x {info.height} x {info.channels}"
    for name, taken in (("decoding", decoding), ("releasing", releasing), ("encoding", encoding)):
        table.add_row(f"{what}: {name}", f"{len(frames) / taken:.0f} frames/s", f"{1000 * taken / len(frames):.1f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--frames", type=int, default=60, help="frames in the pool, 2 MB each")
    parser.add_argument("--video", type=Path, help="also time the pipeline on this video's first 120 frames")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    title = f"1920 x 1080, b = {BLOCK}, m = {M}, epsilon = {EPSILON}; {platform.machine()}, one thread"
    table = Table("what", "median", "compared", title=title)
    time_frames(table, arguments)
    table.add_section()
    time_noise(table, arguments)
    table.add_section()
    compare_storage(table)
    if arguments.video:
        table.add_section()
        time_video(table, arguments.video)
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
