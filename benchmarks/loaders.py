"""Loading pose data beside decoding the same JPEG files and nothing else: CPU time, as a ratio, in one run.

    python benchmarks/loaders.py                       # 640 x 480 JPEG files that it makes, one person in each
    python benchmarks/loaders.py --data coco:/data/coco:val --limit 500
    python benchmarks/loaders.py --step lspet:/data/lspet:public synthetic:studio   # does a training wait for pictures?

Bare decoding is OpenCV's, of files that the system has in memory. The loader does what training does: it reads and
checks the file, decodes it, crops every person with strong augmentation, and makes batches. It is measured with no
cache, with the cache on disk that is on by default, and with the pictures in memory. Rounds alternate between the ways,
so that a machine that slows down slows all; ratios are of the medians.

Another version is measured on the same machine, in turn with this one, from a work tree of its own:
ratios are compared, not pictures a second:

    git worktree add /tmp/before COMMIT
    PYTHONPATH=/tmp/before/src python /tmp/before/benchmarks/loaders.py --limit 150
    python benchmarks/loaders.py --limit 150

With `--step` the loader stands beside the private step that it feeds (`nano`, strategy `light`, 128x96): pictures a
second of the loader alone, the first time (read or rendered, with one thread) and then with one and two threads, of the
step alone, and of both together as a training has them, with the share of that time that the step waited. Wall time.
"""

from __future__ import annotations

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import argparse
import contextlib
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from dpose.media.images import read_image
from dpose.pose.data import Augment, DataSpec, PoseUnits, open_data, open_labels
from dpose.pose.data.labels import units_of
from dpose.pose.model import PoseConfig, apply_strategy, fold_batchnorm
from dpose.pose.skeletons import COCO
from dpose.pose.task import PoseTask
from dpose.privacy.noise import AesNoise, Key
from dpose.training.clip import Clip
from dpose.training.gradients import clipped_sum, trainable_params, unit_loss
from dpose.training.loader import Loader
from dpose.units import UnitBatch

SIZE, AT_ONCE = (256, 192), 32
STEP_SIZE = (128, 96)


def made(folder: Path, count: int) -> DataSpec:
    """JPEG files of smooth noise at COCO's usual size, and labels of one person in each."""
    rng = np.random.default_rng(0)
    images, annotations = [], []
    for number in range(1, count + 1):
        scene = cv2.resize(rng.integers(0, 256, (60, 80, 3), np.uint8), (640, 480), interpolation=cv2.INTER_CUBIC)
        noisy = np.clip(scene + rng.normal(0, 6, scene.shape), 0, 255).astype(np.uint8)
        cv2.imwrite(str(folder / f"{number}.jpg"), noisy, [cv2.IMWRITE_JPEG_QUALITY, 92])
        box = [*rng.uniform(20, 200, 2), *rng.uniform(100, 260, 2)]
        points = np.array(box[:2]) + rng.random((17, 2)) * box[2:]
        images.append({"id": number, "file_name": f"{number}.jpg", "width": 640, "height": 480})
        annotations.append(
            {"id": number, "image_id": number, "category_id": 1, "iscrowd": 0, "area": box[2] * box[3], "bbox": box,
             "num_keypoints": 17, "keypoints": np.column_stack([points, np.full(17, 2)]).ravel().tolist()}
        )  # fmt: skip
    labels = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "person"}]}
    (folder / "labels.json").write_text(json.dumps(labels))
    return DataSpec("coco", str(folder), "val")


def loaded(units: PoseUnits) -> None:
    """All units once, in batches."""
    with contextlib.closing(Loader(PoseTask("coco"), units, AesNoise(Key.from_seed(0)), threads=1)) as loader:
        for _ in loader.micro_batches(range(len(units)), 0, AT_ONCE):
            pass


def cpu_seconds(way: Callable[[], object]) -> float:
    started = time.process_time()
    way()
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="coco:ROOT[:SPLIT] or humanart:ROOT[:SPLIT]")
    parser.add_argument("--step", nargs="*", metavar="SPEC", help="beside a private step; made files, and these data")
    parser.add_argument("--limit", type=int, default=200, help="pictures")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = str(Path(name) / "cache")
        (Path(name) / "made").mkdir()
        if arguments.step is not None:
            show_waiting([made(Path(name) / "made", arguments.limit), *arguments.step], arguments.limit)
            return
        spec = (
            DataSpec.parse(arguments.data).for_purpose("evaluate")
            if arguments.data
            else made(Path(name) / "made", arguments.limit)
        )
        measure(spec, arguments.limit, arguments.rounds)


def show_waiting(specs: Sequence[DataSpec | str], limit: int) -> None:
    table = Table(title=f"Pictures a second at {STEP_SIZE[0]}x{STEP_SIZE[1]}, private step of nano, light")
    for column in ("data", "first time", "threads", "loader alone", "step alone", "together", "step waits"):
        table.add_column(column, justify="left" if column == "data" else "right")
    for spec in specs:
        units = open_data(spec, input_size=STEP_SIZE, augment=Augment.public(), limit=limit)
        task = PoseTask(units.skeleton.name)
        model = fold_batchnorm(task.build_model(PoseConfig("nano", STEP_SIZE, skeleton=units.skeleton.name)))
        apply_strategy(model, "light")
        model.train()
        params = trainable_params(model)

        def step(batch: UnitBatch, task: PoseTask = task, model: torch.nn.Module = model) -> None:
            clipped_sum(unit_loss(task, model), params, batch.parts, Clip(1.0))  # noqa: B023

        first, _, batches = passed(task, units, 1, lambda _: None)
        step(batches[0])
        began = time.perf_counter()
        for batch in batches:
            step(batch)
        alone = len(units) / (time.perf_counter() - began)
        name = "made JPEG files of 640x480" if isinstance(spec, DataSpec) else DataSpec.parse(spec).shown
        for threads in (1, 2):
            loads, _, _ = passed(task, units, threads, lambda _: None)
            both, waited, _ = passed(task, units, threads, step)
            numbers = (first, loads, alone, both)
            told = [f"{number:.0f}" for number in numbers]
            table.add_row(name, told[0], str(threads), *told[1:], f"{waited:.1%}")
    console = Console(width=100)
    console.print(table)
    versions = f"OpenCV {cv2.__version__}, torch {torch.__version__}, {torch.get_num_threads()} threads of torch"
    console.print(f"{versions}, at most {limit:,} pictures, seed 0", highlight=False)


def passed(
    task: PoseTask, units: PoseUnits, threads: int, use: Callable[[UnitBatch], None]
) -> tuple[float, float, list[UnitBatch]]:
    """All units once through `use`: pictures a second, the share of the time that it waited, and the batches."""
    batches = []
    with contextlib.closing(Loader(task, units, AesNoise(Key.from_seed(0)), threads)) as loader:
        began = time.perf_counter()
        for batch in loader.micro_batches(range(len(units)), 0, AT_ONCE):
            use(batch)
            batches.append(batch)
        seconds = time.perf_counter() - began
    return len(units) / seconds, loader.waited / seconds, batches


def measure(spec: DataSpec, limit: int, rounds: int) -> None:
    labels = open_labels(spec)
    if labels is None:
        raise SystemExit(f"{spec.name} is not in COCO's format")
    labels = labels.limit(limit)

    def units(cache: str, held: int) -> PoseUnits:
        os.environ["DPOSE_PICTURE_CACHE"] = cache
        again = open_labels(spec)
        assert again is not None
        pictures = units_of(again.limit(limit), input_size=SIZE).pictures
        return PoseUnits(pictures, input_size=SIZE, augment=Augment.public(), skeleton=COCO, cache_bytes=held)

    nothing, disk, memory = units("off", 0), units("4G", 0), units("off", 4 * 2**30)
    wanted = {picture.name for picture in nothing.pictures}
    paths = [image.path for image in labels.pictures if image.path and image.name in wanted]
    people = sum(picture.count for picture in nothing.pictures)
    ways: dict[str, Callable[[], object]] = {
        "bare decoding": lambda: [
            cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR) for path in paths
        ],
        "read and checked": lambda: [read_image(path) for path in paths],
        "loader, no cache": lambda: loaded(nothing),
        "loader, cache on disk": lambda: loaded(disk),
        "loader, in memory": lambda: loaded(memory),
    }
    for way in ways.values():
        way()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            times[name].append(cpu_seconds(way))
    medians = {name: statistics.median(found) for name, found in times.items()}
    bare = "bare decoding"
    table = Table(title=f"{len(paths):,} JPEG files, {people:,} people, crops of {SIZE[0]}x{SIZE[1]}, CPU time")
    for column in ("way", "pictures/s", "time to bare decoding", "span"):
        table.add_column(column, justify="left" if column == "way" else "right")
    for name, found in times.items():
        ratios = [a / b for a, b in zip(found, times[bare], strict=True)]
        table.add_row(
            name,
            f"{len(paths) / medians[name]:.0f}",
            f"{medians[name] / medians[bare]:.2f}",
            f"{min(ratios):.2f} to {max(ratios):.2f}",
        )
    console = Console(width=100)
    console.print(table)
    console.print(f"OpenCV {cv2.__version__}, Python {platform.python_version()}, {rounds} rounds", highlight=False)


if __name__ == "__main__":
    main()
