"""Prediction on frames, torch beside ONNX Runtime: frames a second and the ratio, in one run.

    python benchmarks/predict.py                        # nano's public weights, rendered frames
    python benchmarks/predict.py --preset 5m            # fresh weights: speed does not depend on them
    python benchmarks/predict.py --model runs/a --video clip.mp4
    python benchmarks/predict.py --command              # `dpose predict` of a clip of 640x480, read, drawn and written
    python benchmarks/predict.py --people               # BlazePose lite and full: people in a video, in a picture

A frame is cropped to the model's input, predicted and decoded to joints, without the flip test: one at a time, or many
at once as `dpose predict` does with video; the model alone stands beside that. Both use one thread. Rounds alternate
between the ways, so that a machine that slows down slows both; ratios are of the medians. Every joint of every frame is
compared.

With `--people` everybody is looked for in frames of 640x480 that show one rendered person who sways, each frame with
the people of the one before, as `dpose predict` does; by one thread and by two, wall time and the processor's. The
first frame, which is looked at as a picture is, is not in it. Then a photograph of that size, from the command to the
file: OMP_NUM_THREADS=1 is for a machine that is shared.
"""

from __future__ import annotations

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import argparse
import itertools
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import av
import cv2
import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from dpose.media.images import write_image
from dpose.media.video import VideoReader
from dpose.pose.blaze_people import BlazePeople
from dpose.pose.crops import crop_transform, invert, transform_points, warp, whole_frame
from dpose.pose.export import INPUT, export_onnx
from dpose.pose.folder import find_model, load_model
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.predict import Pose, for_prediction, predict_frames, predict_image
from dpose_scene.render import render_person
from dpose_scene.splits import scene_seed

Image = NDArray[np.uint8]


def frames_of(video: str | None, count: int) -> list[Image]:
    if video:
        return [image for (image, _), _ in zip(VideoReader(video), range(count), strict=False)]
    return [render_person("studio", scene_seed("studio", "test", i), size=(256, 192)).image for i in range(count)]


def by_onnx(session: onnxruntime.InferenceSession, model: PoseModel, image: Image) -> NDArray[np.float64]:
    """What `predict_image` does, with the exported model: as its metadata say."""
    size = model.config.input_size
    matrix = crop_transform(whole_frame((image.shape[0], image.shape[1])), size, padding=1.0)
    crop = warp(image, matrix, size).transpose(2, 0, 1)[None].astype(np.float32)
    outputs = tuple(torch.from_numpy(output) for output in session.run(None, {INPUT: crop}))
    points = model.codec.decode(outputs)[0][0].double().numpy()
    return transform_points(invert(matrix), points)


def seconds(way: Callable[[], object]) -> float:
    started = time.perf_counter()
    way()
    return time.perf_counter() - started


def clip(path: Path, count: int) -> Path:
    """A film of 640x480: the same few rendered people, one after the other."""
    people = [render_person("studio", scene_seed("studio", "test", i), size=(480, 640)).image for i in range(12)]
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=30, options={"preset": "veryfast"})
        stream.width, stream.height, stream.pix_fmt = 640, 480, "yuv420p"
        for number in range(count):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(people[number % 12]), format="rgb24")
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return path


def whole_command(model: str, rounds: int, counts: tuple[int, int] = (60, 360)) -> None:
    """Frames a second of `dpose predict`: what 300 more of them take, so that its start is in none of them."""
    table = Table("dpose predict CLIP, 640x480, one person", "frames/s, median", "span")
    found: dict[str, list[float]] = {"--no-flip": [], "--flip": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        films = [clip(folder / f"{count}.mp4", count) for count in counts]
        for _, (flip, rates) in itertools.product(range(rounds), found.items()):
            command, drawn = [sys.executable, "-m", "dpose", "predict", model], ["--out", str(folder / "drawn.mp4")]
            takes = [
                seconds(partial(subprocess.run, [*command, str(film), flip, *drawn], check=True, capture_output=True))
                for film in films
            ]
            rates.append((counts[1] - counts[0]) / (takes[1] - takes[0]))
    for flip, rates in found.items():
        table.add_row(f"{model}, {flip}", f"{statistics.median(rates):.1f}", f"{min(rates):.1f} to {max(rates):.1f}")
    Console(width=100).print(table, f"{rounds} rounds, {counts[0]} and {counts[1]} frames", highlight=False)


def swaying(count: int) -> list[Image]:
    """Frames of 640x480 of one person who moves by at most three pixels from one to the next."""
    person = render_person("studio", scene_seed("studio", "test", 0), size=(480, 640)).image
    moved = []
    for number in range(count):
        x, y = 30 * np.sin(number / 10), 10 * np.cos(number / 10)
        by = np.array([[1, 0, x], [0, 1, y]], np.float64)
        moved.append(np.asarray(cv2.warpAffine(person, by, (640, 480), borderMode=cv2.BORDER_REPLICATE), np.uint8))
    return moved


def children() -> float:
    """Seconds of the processor that commands have used so far."""
    used = os.times()
    return used.children_user + used.children_system


def people_found(video: str | None, count: int, rounds: int) -> None:
    """Frames a second of BlazePose on a video's frames, and seconds of `dpose predict PHOTO`."""
    frames = frames_of(video, count) if video else swaying(count)
    finders = {name: BlazePeople(load_model(find_model(f"blazepose:{name}"))) for name in ("lite", "full")}
    ways = list(itertools.product(finders, (1, 2)))
    wall: dict[tuple[str, int], list[float]] = {way: [] for way in ways}
    processor: dict[tuple[str, int], list[float]] = {way: [] for way in ways}
    found = dict.fromkeys(finders, 0)
    for round_, (name, threads) in itertools.product(range(rounds + 1), ways):
        torch.set_num_threads(threads)
        cv2.setNumThreads(threads)
        people = finders[name](frames[0])
        found[name] = 0
        started, used = time.perf_counter(), time.process_time()
        for frame in frames[1:]:
            people = finders[name](frame, None, people)
            found[name] += len(people)
        if round_:  # the first is to warm up
            wall[name, threads].append((len(frames) - 1) / (time.perf_counter() - started))
            processor[name, threads].append(1000 * (time.process_time() - used) / (len(frames) - 1))
    size = f"{frames[0].shape[1]}x{frames[0].shape[0]}"
    table = Table("BlazePose", "threads", "frames/s", "span", "processor, ms a frame", "people a frame")
    for name, threads in ways:
        rates = wall[name, threads]
        table.add_row(
            name,
            str(threads),
            f"{statistics.median(rates):.1f}",
            f"{min(rates):.1f} to {max(rates):.1f}",
            f"{statistics.median(processor[name, threads]):.1f}",
            f"{found[name] / (len(frames) - 1):.2f}",
        )
    console = Console(width=100)
    console.print(table, f"{len(frames)} frames of {size}, {rounds} rounds", highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        photo = Path(folder) / "photo.png"
        write_image(photo, frames[0])
        command = [sys.executable, "-m", "dpose", "predict", str(photo)]
        takes, spent = [], [children()]
        for _ in range(rounds + 1):
            takes.append(seconds(lambda: subprocess.run(command, check=True, capture_output=True)))
            spent.append(children())
    costs = [after - before for before, after in itertools.pairwise(spent)]
    console.print(
        f"dpose predict PHOTO of {size}: {statistics.median(takes[1:]):.2f} s ({min(takes[1:]):.2f} to "
        f"{max(takes[1:]):.2f}) from the command to the file, {statistics.median(costs[1:]):.2f} s of the processor; "
        f"{rounds} rounds after one to warm up. "
        f"torch {torch.__version__}, Python {platform.python_version()}",
        highlight=False,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="nano")
    parser.add_argument("--model", help="a model folder, instead of --preset")
    parser.add_argument("--video")
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--at-once", type=int, default=16, help="frames, where many are predicted at once")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--command", action="store_true", help="the whole command, and nothing else")
    parser.add_argument("--people", action="store_true", help="BlazePose, which finds people, and nothing else")
    arguments = parser.parse_args()
    if arguments.people:
        return people_found(arguments.video, arguments.frames, arguments.rounds)
    if arguments.command:
        chosen = arguments.model or str(find_model(arguments.preset))
        return whole_command(chosen, arguments.rounds)
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    torch.manual_seed(0)
    if arguments.model or arguments.preset == "nano":
        model = load_model(find_model(arguments.model or "nano"))
    else:
        model = PoseModel(PoseConfig(preset=arguments.preset))
    model.eval()
    frames = frames_of(arguments.video, arguments.frames)
    with tempfile.TemporaryDirectory() as name:
        path = export_onnx(model, Path(name) / "model.onnx", frames[:8]).path
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    same = all(np.allclose(by_onnx(session, model, f), predict_image(model, f).keypoints) for f in frames)
    height, width = model.config.input_size
    crop = torch.rand(1, 3, height, width) * 255
    inputs = {INPUT: crop.numpy()}

    @torch.no_grad()
    def alone() -> None:
        for _ in frames:
            model(crop)

    fast = for_prediction(model)
    many = torch.rand(arguments.at_once, 3, height, width).to(memory_format=torch.channels_last) * 255

    def together() -> list[Pose]:
        found = []
        for start in range(0, len(frames), arguments.at_once):
            part = frames[start : start + arguments.at_once]
            found += [people[0] for people in predict_frames(fast, part, [None] * len(part))]
        return found

    @torch.no_grad()
    def alone_together() -> None:
        for _ in range(0, len(frames), arguments.at_once):
            fast(many)

    same &= all(
        np.allclose(a.keypoints, predict_image(model, f).keypoints) for a, f in zip(together(), frames, strict=True)
    )
    ways: dict[str, Callable[[], object]] = {
        "torch, frame to joints": lambda: [predict_image(model, f) for f in frames],
        "torch, frame to joints, many at once": together,
        "ONNX, frame to joints": lambda: [by_onnx(session, model, f) for f in frames],
        "torch, model alone": alone,
        "torch, model alone, many at once": alone_together,
        "ONNX, model alone": lambda: [session.run(None, inputs) for _ in frames],
        "ONNX, model alone, many at once": lambda: [
            session.run(None, {INPUT: many.numpy()}) for _ in range(0, len(frames), arguments.at_once)
        ],
    }
    for way in ways.values():
        way()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        for name, way in ways.items():
            times[name].append(seconds(way))
    title = f"{arguments.model or arguments.preset}, {height}x{width}, {len(frames)} frames of {frames[0].shape[1]}x"
    table = Table(title=f"{title}{frames[0].shape[0]}")
    for column in ("way", "frames/s", "speed to torch", "span"):
        table.add_column(column, justify="left" if column == "way" else "right")
    for name, found in times.items():
        reference = times["torch," + name.split(",")[1]]
        ratios = [b / a for a, b in zip(found, reference, strict=True)]
        table.add_row(
            name,
            f"{len(frames) / statistics.median(found):.1f}",
            f"{statistics.median(reference) / statistics.median(found):.2f}",
            f"{min(ratios):.2f} to {max(ratios):.2f}",
        )
    console = Console(width=100)
    console.print(table)
    console.print(
        f"The same joints in every frame: {'yes' if same else 'NO'}. One thread, torch {torch.__version__}, "
        f"ONNX Runtime {onnxruntime.__version__}, Python {platform.python_version()}, {arguments.rounds} rounds",
        highlight=False,
    )
    return None


if __name__ == "__main__":
    main()
