"""A private step on a GPU beside a plain one, whole trainings, fits, noise and memory: one JSON file, and its page.

    python benchmarks/gpu.py measure gpu.json             # within eight minutes; goes on where it was stopped
    python benchmarks/gpu.py page gpu.json                # the tables of docs/performance.md, "On a GPU"

Plain and private steps do the same work on the same pictures, one view a unit, float32 with TF32 off, or bfloat16.
Both are timed call by call and in a CUDA graph: the fair reference of a step in a graph is a plain step in a graph.
Replayed private steps include the copies of weights and pictures into their buffers. Nothing else may run on the GPU.
"""

from __future__ import annotations

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import argparse
import atexit
import contextlib
import functools
import importlib.metadata
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from private_step import Case, noise_draw, private_step, projection, setup

from dpose.pose.model import Strategy
from dpose.training.arithmetic import arithmetic_in_force, exact_arithmetic
from dpose.training.gradients import mean_gradient
from dpose.training.graph import Captures, Record
from dpose.training.methods import SubspaceConfig
from dpose.training.plan import TrainingPlan
from dpose.training.step import StepInputs, clipped_part, replayed_sums

ROWS: tuple[tuple[str, Strategy, int], ...] = (
    *(("nano", "light", 256), ("nano", "full", 256), ("lite0", "light", 256)),
    *(("lite0", "full", 256), ("5m", "light", 128), ("5m", "full", 128)),
)
LATER: tuple[tuple[str, Strategy, int], ...] = (
    *(("nano", "finetune", 256), ("lite0", "finetune", 256), ("5m", "finetune", 128)),
    *(("timm:vit_tiny_patch16_224", "light", 128), ("blazepose:full", "light", 128)),
)
PLAN = TrainingPlan(noise_multiplier=1.0, delta=1e-5, steps=10, expected_batch_size=256, clip_norm=1.0).bind(7000)
TRAININGS = {
    "dp-sgd, lite0, light, two passes": (
        *("--backbone", "lite0", "--strategy", "light", "--epochs", "2", "--batch-size", "512"),
        *("--method", "dp-sgd"),
    ),
    "recipe, nano, twelve passes": ("--preset", "nano", "--recipe", "recommended", "--epochs", "12"),
}
SECONDS = 480.0
"""After the first part's begin: none begins later, and a training or Opacus has no more than what is left of it."""


def timed(run: Callable[[], object], rounds: int, wait: Callable[[], None]) -> float:
    """The median of some rounds, in milliseconds."""
    found = []
    for number in range(rounds + 2):
        wait()
        began = time.perf_counter()
        run()
        wait()
        if number > 1:
            found.append(1000 * (time.perf_counter() - began))
    return statistics.median(found)


def steps(preset: str, strategy: Strategy, units: int, device: str, rounds: int) -> dict[str, Any]:
    """One row: milliseconds of each kind of step, how far replayed sums are from eager ones, MiB, and seconds."""
    case = Case(preset, strategy, 1, units, device)
    on_gpu = device == "cuda"
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    record: Record = Captures() if on_gpu else lambda run: run() or run  # type: ignore[func-returns-value]
    row: dict[str, Any] = {"model": preset, "strategy": strategy, "units": units}
    with exact_arithmetic(torch.device(device)):
        for precision in ("float32", "bf16"):
            task, model, params, batch = setup(case, True, precision)
            inputs = StepInputs(task, model, None, PLAN, None, b"", units)  # type: ignore[arg-type]
            replayed = replayed_sums(inputs, record)

            def private(replayed=replayed, params=params, batch=batch) -> None:
                replayed.begin(params, None)
                replayed.add(batch)

            def plain(task=task, model=model, params=params, batch=batch) -> None:
                mean_gradient(task, model, params, batch)

            ways = {
                "plain": plain,
                "plain, graph": record(plain),
                "private": private_step(case, precision),
                "private, graph": private,
            }
            for name, run in ways.items():
                if on_gpu:
                    torch.cuda.reset_peak_memory_stats()
                row[f"{name}, {precision}"] = timed(run, rounds, wait)
                if on_gpu:
                    row[f"MiB, {name}, {precision}"] = torch.cuda.max_memory_allocated() / 2**20
            row[f"how, {precision}"] = replayed.how
            grid = PLAN.plan.clip.grid
            private()
            eager = {n: grid.steps(v) for n, v in clipped_part(inputs, params, batch).items()}
            apart = [(replayed.totals()[n] - v).abs().max() * grid.step for n, v in eager.items()]
            row[f"largest difference, {precision}"] = float(max(apart))
            row["numbers"] = sum(p.numel() for p in params.values())
            replayed.close()
            del ways, inputs
            if on_gpu:
                torch.cuda.empty_cache()
        draw = noise_draw(replace(case, device="cpu"))
        row["noise, ms"] = timed(draw, 3, wait)
        row["projection, s"], row["fit, s"] = projection(case, SubspaceConfig(rank=50, units=100), "wall")
    return row


@functools.cache
def photographs(count: int) -> Path:
    """A folder of `count` JPEG pictures of one person each, of noise and as large as LSPET's, with COCO's labels."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    numbers = np.random.default_rng(0)
    (folder / "train2017").mkdir()
    (folder / "annotations").mkdir()
    pictures, people = [], []
    for k in range(count):
        height, width = (int(side) for side in numbers.integers((180, 120), (260, 220)))
        rough = numbers.integers(0, 256, (height // 8, width // 8, 3), np.uint8)
        picture = cv2.resize(rough, (width, height), interpolation=cv2.INTER_CUBIC)
        cv2.imwrite(str(folder / "train2017" / f"{k:012}.jpg"), picture)
        pictures.append({"id": k, "file_name": f"{k:012}.jpg", "height": height, "width": width})
        x, y = width * 0.2, height * 0.15
        joints = numbers.uniform((x, y), (width - x, height - y), (17, 2)).round(1)
        keypoints = [value for joint in joints.tolist() for value in (*joint, 2)]
        box = [x, y, width - 2 * x, height - 2 * y]
        about = {"id": k, "image_id": k, "category_id": 1, "iscrowd": 0, "area": box[2] * box[3]}
        people.append(about | {"bbox": box, "keypoints": keypoints, "num_keypoints": 17})
    labels = {"images": pictures, "annotations": people, "categories": [{"id": 1, "name": "person"}]}
    (folder / "annotations" / "person_keypoints_train2017.json").write_text(json.dumps(labels))
    return folder


def training(options: tuple[str, ...], limit: int, seconds: float) -> dict[str, Any]:
    """A whole command: its seconds, and what it says of its steps."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "dpose", "train", "--data", f"coco:{photographs(limit)}:train"]
        command += [*options, "--epsilon", "8", "--delta", "1e-5", "--out", f"{folder}/run"]
        around = {**os.environ, "XDG_STATE_HOME": f"{folder}/state"}
        began = time.perf_counter()
        done = subprocess.run(
            command, env=around, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds
        )
        taken = time.perf_counter() - began
    said = re.search(r"Steps took ([\d,]+) s, of which (\d+)% was waiting", done.stdout)
    found: dict[str, Any] = {"command": " ".join(command[2:]), "seconds": taken, "code": done.returncode}
    if said:
        found |= {"steps": int(said[1].replace(",", "")), "waiting": int(said[2]) / 100}
    return found if said else found | {"printed": done.stdout[-2000:]}


def opacus(device: str, seconds: float) -> dict[str, Any]:
    """Beside Opacus, on the model that it takes, where it is installed."""
    here = Path(__file__).parent / "opacus_step.py"
    command = [sys.executable, str(here), "--batch", "64", "--device", device]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds)
    return {"code": done.returncode, "printed": done.stdout[-2000:]}


def parts(given: argparse.Namespace) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """What is measured, by name, what matters most first."""
    end = time.perf_counter() + given.seconds

    def left(most: float) -> float:
        return max(1.0, min(most, end - time.perf_counter()))

    def row(preset: str, strategy: Strategy, units: int) -> tuple[str, Callable[[], dict[str, Any]]]:
        size = given.batch or units
        return f"step: {preset}, {strategy}", functools.partial(
            steps, preset, strategy, size, given.device, given.rounds
        )

    for one in ROWS[: given.rows]:
        yield row(*one)
    for name, options in TRAININGS.items():
        if given.limit:
            # what is left is asked when the part before it has been measured
            yield f"training: {name}", functools.partial(training, options, given.limit, left(given.seconds / 3))
    if importlib.util.find_spec("opacus"):
        yield "opacus", lambda: opacus(given.device, left(120))
    for one in LATER[: max(0, given.rows - len(ROWS))]:
        yield row(*one)


def measure(given: argparse.Namespace) -> None:
    """Measure what is missing in the file; a part that fails says so there and stops no other."""
    path = Path(given.file)
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    device = torch.device(given.device)
    with contextlib.suppress(OSError):
        found["revision"] = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True
        ).stdout.strip()
    found["card"] = torch.cuda.get_device_name() if given.device == "cuda" else "none"
    found["around"] = arithmetic_in_force(device) | {"torch": torch.__version__, "Python": platform.python_version()}
    found.setdefault("parts", {})
    began = time.perf_counter()
    for name, run in parts(given):
        if "error" not in found["parts"].get(name, {"error": ""}):
            continue
        if time.perf_counter() - began > given.seconds:
            print(f"{name}: no time left; run again with the same file")
            continue
        at = time.perf_counter()
        try:
            part = run()
        except Exception as error:  # whatever a card does, the other parts are measured
            part = {"error": f"{type(error).__name__}: {error}"[:2000]}
        found["parts"][name] = part | {"measured in": time.perf_counter() - at}
        beside = path.with_suffix(".part")
        beside.write_text(json.dumps(found, indent=1) + "\n")
        os.replace(beside, path)
        print(f"{name}: {part}", flush=True)


def page(given: argparse.Namespace) -> None:
    """Print the tables."""
    found = json.loads(Path(given.file).read_text())
    around = found["around"]
    told = ", ".join(f"{name} {around[name]}" for name in ("torch", "Python", "CUDA", "Triton") if name in around)
    print(f"One {found['card']}, {told}, commit {found['revision']}; float32 with TF32 off, milliseconds, medians:\n")
    rows = [part for name, part in found["parts"].items() if name.startswith("step: ") and "error" not in part]
    titles = ("plain", "plain, graph", "private", "private, graph")
    print("| units, model, strategy | " + " | ".join(titles), end=" | ")
    print("to plain in a graph | bf16: plain, private | ratio | noise, ms | fit, s | MiB: private, plain |")
    print("|---" * 11 + "|")
    for row in rows:
        ms = [row[f"{name}, float32"] for name in titles]
        short = [row[f"{name}, bf16"] for name in ("plain, graph", "private, graph")]
        memory = [row.get(f"MiB, {name}, float32") for name in ("private, graph", "plain, graph")]
        cells = [
            f"{row['units']} `{row['model']}` {row['strategy']}",
            *(f"{value:.1f}" for value in ms),
            f"**{ms[3] / ms[1]:.2f}**",
            ", ".join(f"{value:.1f}" for value in short),
            f"{short[1] / short[0]:.2f}",
            f"{row['noise, ms']:.0f}",
            f"{row['fit, s']:.2f}",
            ", ".join("-" if value is None else f"{value:,.0f}" for value in memory),
        ]
        print("| " + " | ".join(cells) + " |")
    print("\n| training | command, s | steps, s | waiting for pictures |\n|---|---|---|---|")
    for name, part in found["parts"].items():
        if name.startswith("training: ") and "steps" in part:
            print(f"| {name[10:]} | {part['seconds']:.0f} | {part['steps']} | {part['waiting']:.0%} |")
    for name, part in found["parts"].items():
        if "error" in part or part.get("code"):
            print(f"\n{name}: not measured, {part.get('error', part.get('printed', ''))[-300:]}")


def main() -> None:
    """Measure, or print the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("measure", "page"))
    parser.add_argument("file")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--rows", type=int, default=len(ROWS + LATER), help="steps of so many rows")
    parser.add_argument("--batch", type=int, help="units in every row")
    parser.add_argument("--limit", type=int, default=7000, help="pictures of a training; 0 for none")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    given = parser.parse_args()
    (measure if given.what == "measure" else page)(given)


if __name__ == "__main__":
    main()
