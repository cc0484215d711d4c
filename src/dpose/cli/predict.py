"""`dpose predict`: joints found and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dpose.cli.options import plain_console
from dpose.errors import DposeError

if TYPE_CHECKING:
    from dpose.pose.boxes import Boxes


def predict(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Pictures, videos, folders or globs; before them a run or model folder, or none: then a public model "
            "that comes with dpose predicts."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The drawn file, or a folder for several. Default: NAME-pose beside the one source."
        ),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Also write the joints as COCO-style JSON.")] = None,
    yolo: Annotated[
        Path | None, typer.Option(help="Also write YOLO-pose labels into this folder, with data.yaml.")
    ] = None,
    label_studio: Annotated[
        Path | None, typer.Option(help="Also write Label Studio's pre-annotations as JSON.")
    ] = None,
    box: Annotated[
        str | None, typer.Option(help="The person's box x0,y0,x1,y1 in pixels; default: the whole picture.")
    ] = None,
    detections: Annotated[
        Path | None,
        typer.Option(
            help="People's boxes: COCO results JSON, by the number a picture is called, or of a frame."
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(help="People's boxes from labels: NAME:ROOT[:SPLIT] of coco, humanart, mpii or yolo."),
    ] = None,
    detector: Annotated[
        bool,
        typer.Option("--detector", help="Find people first, with torchvision's detector (fetched once)."),
    ] = False,
    least: Annotated[
        float, typer.Option(min=0, max=1, help="Leave out detected people with a lower score.")
    ] = 0.5,
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="Do not draw joints with a lower score.")
    ] = 0.0,
    flip: Annotated[
        bool, typer.Option(help="Average with the mirrored picture: a little better, at twice the cost.")
    ] = True,
) -> None:
    """Find people's joints in pictures and video, and draw them. Without boxes, one person fills the picture."""
    console = plain_console()
    given = [
        name for name, value in (("--box", box), ("--detections", detections), ("--labels", labels)) if value
    ]
    given += ["--detector"] if detector else []
    if len(given) > 1:
        raise DposeError(f"{given[0]} and {given[1]} both say where people are", fix="give one of them")
    from dpose.runs.annotate import annotate, find_files, names_several
    from dpose.runs.predict import parse_box, predict_file

    run, sources = _model(sources, console)
    written = json or yolo or label_studio
    if not names_several(sources) and given in ([], ["--box"]) and not written and threshold == 0:
        picture = Path(sources[0])
        target = out or picture.with_name(f"{picture.stem}-pose.png")
        if target.suffix:
            console.print(predict_file(run, picture, target, box))
            console.print(f"Drawn into {target}", highlight=False)
            return
    from dpose.pose.boxes import FixedBox, whole_picture
    from dpose.pose.folder import load_model

    files = find_files(sources)
    model = load_model(run)
    where: Boxes = FixedBox(parse_box(box)) if box else whole_picture
    if detections or labels or detector:
        where = _boxes(detections, labels, least, console)
    done = annotate(
        model,
        files,
        out,
        where,
        results=json,
        yolo=yolo,
        label_studio=label_studio,
        flip_test=flip,
        threshold=threshold,
        console=console,
    )
    for line in done.lines():
        console.print(line, highlight=False)


def _model(paths: list[str], console: Console) -> tuple[Path, list[str]]:
    """The model folder and what it is to look at: the first path is the model where it holds a config.json."""
    from dpose.pose.folder import CONFIG, PREDICTOR, find_model

    if not (Path(paths[0]).expanduser() / CONFIG).exists():
        console.print(f"Model: {PREDICTOR}, which comes with dpose", highlight=False)
        return find_model(PREDICTOR), paths
    if len(paths) == 1:
        raise DposeError("is a model, and no picture is named", paths[0], "name pictures behind it")
    return Path(paths[0]).expanduser(), paths[1:]


def _boxes(detections: Path | None, labels: str | None, least: float, console: Console) -> Boxes:
    """Boxes from a file, from labels, or by detecting people."""
    from dpose.pose.boxes import DetectedBoxes, LabelledBoxes
    from dpose.pose.data import SOURCES, open_labels

    if detections:
        found = DetectedBoxes(detections, least)
        for line in found.problems.summary():
            console.print(line, highlight=False)
        return found
    if labels:
        known = open_labels(labels)
        if known is None:
            having = ", ".join(name for name, source in SOURCES.items() if source.labels)
            raise DposeError("these data have no boxes to give", labels, f"use {having}")
        return LabelledBoxes(known)
    from dpose.pose.detector import PersonDetector

    console.print(
        "Detecting people; the detector's weights are fetched if they are not here yet", highlight=False
    )
    return PersonDetector(least)
