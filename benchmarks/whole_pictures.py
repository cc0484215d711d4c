"""How well people are found in whole pictures, and how fast: one table, one model a row.

    python benchmarks/whole_pictures.py lspet:ROOT:validation                  # PCKh, whole pictures and true boxes
    python benchmarks/whole_pictures.py lspet:ROOT:validation --heavy FOLDER   # with BlazePose heavy, from its folder
    python benchmarks/whole_pictures.py --people coco:ROOT --heavy FOLDER      # people found, and false ones

The scores are those of `dpose evaluate MODEL --data DATA`, with `--whole-pictures` and without. Milliseconds are of one
thread's processor time, from a decoded picture to the joints of the person whom it is of, the median of pictures.

With `--people`, of data in COCO's format: everybody whom `dpose predict` would find is paired with a labelled person,
so that the sum of their similarities (OKS) is largest. Found are pairs of an OKS above 0.5; whoever else was found is
false. People without a labelled joint and crowds are not counted, and who is found there is false, too.
"""

from __future__ import annotations

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import argparse
import platform
import statistics
import time
from pathlib import Path

import cv2
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy.optimize import linear_sum_assignment

from dpose.pose.blaze_people import BlazePeople
from dpose.pose.data import DataSpec, open_labels
from dpose.pose.evaluate import finder_of
from dpose.pose.folder import find_model, load_model
from dpose.pose.metrics import PCKhResult, oks
from dpose.pose.predict import for_prediction
from dpose.pose.skeletons import joint_map
from dpose.runs.evaluate import pictures_of
from dpose.runs.pose import scored, scored_whole

FOUND = 0.5
"""The OKS above which a person counts as found."""
TIMED = 60
"""Pictures whose time is taken, at most."""
QUIET = Console(quiet=True)


def shares(result: object) -> list[str]:
    """PCKh@0.5 and @0.1."""
    assert isinstance(result, PCKhResult)
    return [f"{result.mean(threshold):.2f}" for threshold in (0.5, 0.1)]


def milliseconds(folder: Path, data: str, limit: int | None) -> str:
    """Of the processor, a picture."""
    model = load_model(folder)
    units = pictures_of(DataSpec.parse(data).for_purpose("evaluate"), model.config.input_size, limit)
    finder, taken = finder_of(for_prediction(model)), []
    for picture in units.pictures[:TIMED]:
        image, _ = picture.read()
        started = time.process_time()
        finder.one(image)
        taken.append(1000 * (time.process_time() - started))
    return f"{statistics.median(taken):.0f}"


def scores(models: dict[str, Path], data: str, limit: int | None, console: Console) -> None:
    """The table of PCKh."""
    head = [f"{where}, PCKh@{t}" for where in ("whole pictures", "true boxes") for t in (0.5, 0.1)]
    table = Table("model", *head, "ms a picture")
    for name, folder in models.items():
        model = load_model(folder)
        whole, count = scored_whole(folder, model, data, limit=limit, console=QUIET).score(model)
        boxes, _ = scored(folder, model, data, limit=limit, detections=None, console=QUIET).score(model)
        table.add_row(name, *shares(whole), *shares(boxes), milliseconds(folder, data, limit))
        assert isinstance(whole, PCKhResult)
        about = f"{whole.people:,} people scored in {count:,} pictures, {whole.left_out:,} without head length"
        console.print(f"{name}: {shares(whole)} {shares(boxes)}. {about}", highlight=False)
    console.print(table)


def people(models: dict[str, Path], data: str, limit: int | None, console: Console) -> None:
    """The table of people found."""
    labels = open_labels(data)
    if labels is None or not labels.skeleton.sigmas:
        raise SystemExit(f"{data} is not in COCO's format")
    labels = labels if limit is None else labels.limit(limit)
    table = Table("model", "people", f"found, OKS > {FOUND}", "false", "mean OKS of found", "s a picture")
    for name, folder in models.items():
        model = load_model(folder)
        if model.config.codec != "blazepose":
            continue  # says nothing of where people are
        finder, way = BlazePeople(model), joint_map(model.config.skeleton, labels.skeleton, predicted=True)
        total, false, good, taken = 0, 0, [], []
        for image in labels.pictures:
            picture = labels.read(image)
            started = time.process_time()
            found = [way.points(person.pose.keypoints) for person in finder(picture)]
            taken.append(time.process_time() - started)
            true = [p for p in image.people if p.labelled and not p.crowd]
            alike = np.array(
                [
                    [float(oks(points, p.keypoints, p.flags, p.area, labels.skeleton.sigmas)) for points in found]
                    for p in true
                ]
            ).reshape(len(true), len(found))
            pairs = alike[linear_sum_assignment(-alike)]
            total += len(true)
            good += [float(value) for value in pairs if value > FOUND]
            false += len(found) - int((pairs > FOUND).sum())
        mean = f"{np.mean(good):.2f}" if good else "-"
        row = (name, str(total), str(len(good)), str(false), mean, f"{statistics.median(taken):.1f}")
        table.add_row(*row)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", help="NAME:ROOT[:SPLIT] of data that are scored by PCKh")
    parser.add_argument("--people", help="NAME:ROOT[:SPLIT] of data in COCO's format")
    parser.add_argument("--heavy", help="the folder that tools/convert_blazepose.py makes of heavy")
    parser.add_argument("--limit", type=int, help="at most so many pictures, chosen by name")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    models = {name: find_model(name) for name in ("lite0", "blazepose:lite", "blazepose:full")}
    if arguments.heavy:
        models["blazepose:heavy"] = find_model(arguments.heavy)
    console = Console(width=140)
    if arguments.data:
        scores(models, arguments.data, arguments.limit, console)
    if arguments.people:
        people(models, arguments.people, arguments.limit, console)
    console.print(
        f"One thread, torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}",
        highlight=False,
    )


if __name__ == "__main__":
    main()
