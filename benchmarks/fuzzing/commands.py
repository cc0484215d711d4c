"""Whole commands that are given a bad file: exit code 0 or 1, or 2 with one line on standard error."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import yaml

from dpose.cli import main
from dpose.errors import DposeError
from dpose.files import SHIPPED
from fuzzing import labels, samples
from fuzzing.mutations import Mutate, any_bytes, any_json, any_jsonl, any_mat, any_png, any_sqlite, any_yaml, any_zip
from fuzzing.reader import Reader
from fuzzing.readers import ROOT, RUN_PARTS, SETTINGS, put_run


def ran(*commands: list[str]) -> str:
    """Run commands one after another.

    Raises:
        DposeError: one ended with code 2 and one line.
        AssertionError: one ended otherwise than it may.
    """
    for arguments in commands:
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = main(arguments)
        lines = said.getvalue().strip().splitlines()
        assert code in (0, 1, 2), f"exit code {code}: {lines}"
        if code:
            told = [line for line in lines if line.startswith("dpose: ")]
            assert told == lines[-1:], f"not one line: {lines}"
            raise DposeError("command-refused", told[0])
    return ""


def _of(files: samples.Files, mutate: Mutate | Mapping[str, Mutate], *commands: Callable[[str], list[str]]) -> Reader:
    """Commands that take one file, by what they are given for its name."""

    def read(path: Path) -> str:
        with at_home(path.parent):
            return ran(*(command(path.name) for command in commands))

    return Reader(files, mutate, read)


@contextlib.contextmanager
def at_home(folder: Path) -> Iterator[None]:
    """In this folder, with a state folder in it."""
    os.environ["XDG_STATE_HOME"] = str(folder / "home")
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


NANO = str(SHIPPED / "nano")
PICTURES = {".png": any_png, ".jpg": any_bytes, ".webp": any_bytes, ".bmp": any_bytes}


def _predict() -> Reader:
    return _of(samples.pictures(), PICTURES, lambda f: ["predict", NANO, f, "--out", "drawn.png", "--json", "a.json"])


def _pixelize() -> Reader:
    asked = ["--epsilon", "1", "--block", "8", "--out", "out"]
    return _of(
        samples.pictures(),
        PICTURES,
        lambda f: ["pixelize", f, *asked],
        lambda f: ["verify", "out"],
        lambda f: ["account", "show", "--picture", f],
    )


def _video() -> Reader:
    files = samples.clips()
    return _of(
        {s: files[s] for s in (".mp4", ".mkv")},
        any_bytes,
        lambda f: ["release-video", f, "--epsilon", "8", "--delta", "1e-5", "--out", "out.mp4"],
        lambda f: ["verify", "out.mp4"],
    )


def _obfuscate() -> Reader:
    files = samples.clips()
    return _of(
        {s: files[s] for s in (".mp4", ".avi")},
        any_bytes,
        lambda f: ["obfuscate", f, "--method", "pixelate", "--out", "out.mp4"],
    )


def _verify() -> Reader:
    made = samples.released()
    files = {".png": made["a.png"], ".npz": samples.archives()[".0.npz"]}
    return _of(
        files,
        {".png": any_png, ".npz": any_zip},
        lambda f: ["verify", f],
        lambda f: ["statement", "show", f],
        lambda f: ["statement", "check", f],
    )


def _restore() -> Reader:
    return _of(
        {".npz": samples.archives()[".0.npz"]}, any_zip, lambda f: ["restore", f, "out.png", "--restore", "none"]
    )


def _run_folder() -> Reader:
    """A run's folder to what reads one."""

    def read(path: Path) -> str:
        folder = put_run(path)
        os.rename(folder.parent / "state", folder.parent / "home-state")
        (folder.parent / "home").mkdir()
        os.rename(folder.parent / "home-state", folder.parent / "home" / "dpose")
        with at_home(folder.parent):
            return ran(["verify", "run"], ["statement", "show", "run"], ["statement", "check", "run"])

    made = samples.run()
    files = {suffix: made[name] for suffix, (name, _) in RUN_PARTS.items()}
    return Reader(files, {suffix: mutate for suffix, (_, mutate) in RUN_PARTS.items()}, read)


def _statement() -> Reader:
    made = samples.run()
    return _of(
        {".json": made["run/privacy.json"]},
        any_json,
        lambda f: ["statement", "show", f],
        lambda f: ["statement", "check", f],
        lambda f: ["statement", "export", f, "--registry"],
    )


def _train() -> Reader:
    return _of({".yaml": yaml.safe_dump(SETTINGS).encode()}, any_yaml, lambda f: ["train", "--config", f, "--explain"])


def _tune() -> Reader:
    values = yaml.safe_load((ROOT / "examples" / "tune.yaml").read_text())
    return _of(
        {".yaml": yaml.safe_dump(values).encode()},
        any_yaml,
        lambda f: ["tune", "--config", f, "--epsilon", "4", "--delta", "1e-5", "--explain", "--out", "out"],
    )


def _evaluate() -> Reader:
    """A file of predictions, for labels of COCO and of MPII."""
    results = labels.DETECTIONS.replace(b'"bbox"', b'"keypoints": ' + str([1.0, 2.0, 1] * 17).encode() + b', "bbox"')
    people = labels.READERS["predictions"]().files

    def read(path: Path) -> str:
        with at_home(path.parent):
            if path.suffix == ".coco":
                labels.put_coco(path.parent / "data", samples.coco())
                return ran(["evaluate", "--predictions", path.name, "--data", "coco:data:val"])
            labels.put_mpii(path.parent / "data", samples.mpii(), labels.mpii_boxes())
            return ran(["evaluate", "--predictions", path.name, "--data", "mpii:data:val"])

    return Reader(
        {".coco": results, ".mat": people[".mat"], ".json": people[".json"]},
        {".coco": any_json, ".mat": any_mat, ".json": any_json},
        read,
    )


def _detections() -> Reader:
    def read(path: Path) -> str:
        labels.put_coco(path.parent / "data", samples.coco())
        with at_home(path.parent):
            return ran(["predict", NANO, "data/val2017", "--detections", path.name, "--out", "o"])

    return Reader({".json": labels.DETECTIONS}, any_json, read)


def _check() -> Reader:
    """Labels to `data check` and `data convert`."""
    kinds = {".coco": samples.coco(), ".mpii": samples.mpii(), ".yolo": labels.YOLO_FILE}

    def read(path: Path) -> str:
        own, kind, root = path.read_bytes(), path.suffix[1:], path.parent / "data"
        if kind == "coco":
            labels.put_coco(root, own)
        elif kind == "mpii":
            labels.put_mpii(root, own, labels.mpii_boxes())
        else:
            labels.put_yolo(root, own)
        with at_home(path.parent):
            return ran(["data", "check", f"{kind}:data", "--out", "sheet.png"])

    return Reader(kinds, {".coco": any_json, ".mpii": any_json, ".yolo": any_yaml}, read)


def _account() -> Reader:
    made = samples.account()

    def read(path: Path) -> str:
        samples.put(path.parent / "home" / "dpose", {name: data for name, data in made.items() if "seen" not in name})
        path.rename(path.parent / "home" / "dpose" / next(name for name in made if name.endswith(".sqlite")))
        with at_home(path.parent):
            return ran(["account", "show"], ["account", "show", "--html", "page.html"])

    return Reader({".sqlite": next(d for n, d in made.items() if n.endswith(".sqlite"))}, any_sqlite, read)


def _list() -> Reader:
    made = samples.released()

    def read(path: Path) -> str:
        samples.put(path.parent / "out", {name: made[name] for name in ("a.png", "a.jpg")})
        path.rename(path.parent / "out" / "corpus.jsonl")
        with at_home(path.parent):
            return ran(["verify", "out"])

    return Reader({".jsonl": made["corpus.jsonl"]}, any_jsonl, read)


READERS: Mapping[str, Callable[[], Reader]] = {
    "dpose predict": _predict, "dpose predict --detections": _detections, "dpose pixelize": _pixelize,
    "dpose release-video": _video, "dpose obfuscate": _obfuscate, "dpose verify FILE": _verify,
    "dpose verify LIST": _list, "dpose restore": _restore, "dpose verify RUN": _run_folder,
    "dpose statement": _statement, "dpose train --config": _train, "dpose tune --config": _tune,
    "dpose evaluate --predictions": _evaluate, "dpose data check": _check, "dpose account": _account,
}  # fmt: skip
