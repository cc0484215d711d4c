"""`dpose data`: look at data before training on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from dpose.cli.options import option, plain_console
from dpose.cli.release_options import EngineName, EngineWorkers
from dpose.errors import DposeError

Annotations = Annotated[str | None, option("The label file, relative to ROOT, where it has another name.")]


def with_annotations(data: str, annotations: str | None) -> str:
    """The data spec `data` with its labels from the file that --annotations names."""
    from dpose.pose.data.spec import DataSpec

    return str(DataSpec.parse(data).with_option("annotations", annotations)) if annotations else data


def check_labels(
    data: Annotated[str, typer.Argument(help="NAME:ROOT[:SPLIT]; the split defaults to the training one.")],
    out: Annotated[Path | None, option("The contact sheet; default: check-NAME.png in this folder.")] = None,
    annotations: Annotations = None,
    limit: Annotated[int | None, option("Read only so many pictures, chosen by name.", min=1)] = None,
    engine: EngineName = None,
    workers: EngineWorkers = 1,
) -> None:
    """Count pictures, people and joints, decode every picture, tell what is wrong, draw a contact sheet.

    What it prints and draws are the data themselves: only those who may see the pictures may see them.
    """
    from dpose.engines import engine as opened
    from dpose.files import write_atomic
    from dpose.media.images import encode_image
    from dpose.pose.data.check import CheckWork, check_data, check_on_engine
    from dpose.pose.data.spec import DataSpec, open_data

    console = plain_console()
    spec = DataSpec.parse(with_annotations(data, annotations))
    units = open_data(spec, purpose="train", input_size=(256, 192), limit=limit)
    with Progress(console=console, transient=True) as bar:
        shown = bar.add_task("reading", total=len(units.pictures))
        checked = None
        if engine is not None:
            with opened(engine, workers=workers) as at:
                work = CheckWork(str(spec), limit)
                checked = check_on_engine(units, work, at, lambda: bar.advance(shown))
        report, sheet = check_data(units, lambda: bar.advance(shown), checked)
    console.print(report)
    if not report.pictures:
        raise DposeError(
            "pictures-all-unreadable", f"not one of {len(units.pictures):,} pictures can be used", str(spec)
        )
    if sheet is not None:
        target = out or Path(f"check-{spec.name}.png")
        # readable by its owner alone: it shows people
        write_atomic(target, encode_image(sheet, target.suffix, quality=90), mode=0o600)
        console.print(f"Contact sheet: {target}")


def convert(
    data: Annotated[str, typer.Argument(help="NAME:ROOT[:SPLIT]; the split defaults to the training one.")],
    out: Annotated[Path, option("The YOLO-pose folder.")],
    to: Annotated[str, option("The split that it becomes: train, val or test.")] = "train",
    annotations: Annotations = None,
    limit: Annotated[int | None, option("Take only so many pictures, chosen by name.", min=1)] = None,
) -> None:
    """Write pose data as a YOLO-pose folder: labels, data.yaml, and links to the pictures.

    Nothing is protected by it: the labels and pictures are the data themselves.
    """
    from dpose.pose.data.spec import SOURCES, DataSpec, open_data
    from dpose.pose.data.yolo import convert_data

    if to not in SOURCES["yolo"].splits:
        raise DposeError(
            "split-unknown", "no such split", f"--to {to}", f"choose from {', '.join(SOURCES['yolo'].splits)}"
        )
    console = plain_console()
    spec = DataSpec.parse(with_annotations(data, annotations))
    units = open_data(spec, purpose="train", input_size=(256, 192), limit=limit)
    with Progress(console=console, transient=True) as bar:
        shown = bar.add_task("writing", total=len(units.pictures))
        count = convert_data(units, out, to, lambda: bar.advance(shown))
    console.print(f"{count:,} pictures, as yolo:{out}:{to}")


def cache(clear: Annotated[bool, option("Delete it.", "--clear")] = False) -> None:
    """What dpose keeps on this disk: decoded pictures, data from object stores; and how to be rid of them."""
    from dpose.fetched import fetched_folder, forget_stored, stored_size, unpacked_folder
    from dpose.pose.data.cache import SWITCH, picture_cache

    console = plain_console()
    for folder, how in ((fetched_folder(), "fetched from stores"), (unpacked_folder(), "unpacked")):
        if folder.exists():
            files, size = stored_size(folder)
            if clear:
                forget_stored(folder)
            console.print(
                f"{folder}: {files:,} files {how}, {size / 2**20:,.0f} MiB"
                f"{' deleted' if clear else ''}. Readable by you alone; not encrypted.",
                soft_wrap=True,
            )
    store = picture_cache()
    if store is None:
        console.print(f"Off ({SWITCH})")
        return
    files, size = store.clear() if clear else store.size()
    deleted = " deleted" if clear else ""
    console.print(
        f"{store.folder}: {files:,} pictures, {size / 2**20:,.0f} MiB{deleted} (bound {store.limit / 2**20:,.0f} MiB; "
        f"{SWITCH}=off or a size changes it). Readable by you alone; not encrypted."
    )
