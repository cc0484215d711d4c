"""`dpose predict`: people found, and their joints drawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpose.cli.options import option, plain_console
from dpose.errors import DposeError, IncompleteError

if TYPE_CHECKING:
    from rich.console import Console

    from dpose.pose.boxes import Boxes
    from dpose.runs.annotate import Predictor

TORCHVISION = "torchvision"


@dataclass(frozen=True)
class People:
    """Options for where people are."""

    box: Annotated[str | None, option("One person's box x0,y0,x1,y1 in pixels.")] = None
    labels: Annotated[
        str | None, option("People's boxes from labels: NAME:ROOT[:SPLIT] of coco, humanart, lspet, mpii or yolo.")
    ] = None
    detections: Annotated[
        Path | None, option("From COCO's results JSON, by the number a picture is called, or of a frame.")
    ] = None
    detector: Annotated[
        str | None, option("An ONNX file that finds people (YOLOX, RTMDet, YOLOv8 to 11, SSD), or torchvision.")
    ] = None
    detector_kind: Annotated[str | None, option("yolox, rtmdet, yolov8 or ssd. Default: by the file's outputs.")] = None
    least: Annotated[float, option("Leave out detected people with a lower score.", min=0, max=1)] = 0.5

    def check(self) -> None:
        """Refuse two ways to say where people are, and a kind of no file."""
        ways = {
            "--box": self.box,
            "--detections": self.detections,
            "--labels": self.labels,
            "--detector": self.detector,
        }
        given = [name for name, value in ways.items() if value]
        if len(given) > 1:
            raise DposeError(
                "boxes-given-twice", f"{given[0]} and {given[1]} both say where people are", fix="give one of them"
            )
        if self.detector_kind and self.detector in (None, TORCHVISION):
            raise DposeError(
                "detector-kind-without-file", "is of an ONNX file", "--detector-kind", "give --detector FILE.onnx"
            )

    def boxes(self, console: Console) -> Boxes:
        """Where people are: what was typed, a file's, labels', a detector's, or for the model to find."""
        from dpose.pose.boxes import DetectedBoxes, FixedBox, LabelledBoxes, whole_picture
        from dpose.runs.annotate import parse_box

        if self.box:
            return FixedBox(parse_box(self.box))
        if self.detections:
            found = DetectedBoxes(self.detections, self.least)
            for line in found.problems.summary():
                console.print(line)
            return found
        if self.labels:
            from dpose.pose.data import SOURCES, open_labels

            known = open_labels(self.labels)
            if known is None:
                having = ", ".join(name for name, source in SOURCES.items() if source.labels)
                raise DposeError("boxes-missing", "these data have no boxes to give", self.labels, f"use {having}")
            return LabelledBoxes(known)
        if self.detector == TORCHVISION:
            from dpose.pose.boxes import PersonDetector

            console.print("Detecting people; the detector's weights are fetched if they are not here yet")
            return PersonDetector(self.least)
        if self.detector:
            from dpose.pose.onnx_detector import OnnxDetector

            found_by = OnnxDetector(Path(self.detector).expanduser(), self.least, self.detector_kind)
            console.print(f"Detector: {Path(self.detector).name}, read as {found_by.way.kind}")
            return found_by
        return whole_picture


@dataclass(frozen=True)
class Drawing:
    """Options for what is drawn."""

    skeleton: Annotated[
        str | None, option("coco, mpii, lsp, blazepose or own. Default: coco if the model has its joints, else own.")
    ] = None
    threshold: Annotated[float, option("Do not draw joints with a lower score.", min=0, max=1)] = 0.0
    canvas: Annotated[str, option("picture, or blank: the skeletons alone.")] = "picture"
    hide_faces: Annotated[
        bool, option("Fill the face of everybody who is found. Guarantees nothing.", "--hide-faces")
    ] = False
    smooth: Annotated[bool, option("Smooth the joints of videos (one-euro filter).", "--smooth")] = False
    flip: Annotated[bool, option("Of a model folder: average with the mirrored picture, at twice the cost.")] = True

    def check(self) -> None:
        """Refuse what the words alone show to be wrong."""
        if self.canvas not in ("picture", "blank"):
            raise DposeError(
                "canvas-unknown", f"no canvas is called {self.canvas!r}", "--canvas", "give picture or blank"
            )
        if self.canvas == "blank" and self.hide_faces:
            raise DposeError("canvas-without-faces", "a blank canvas shows no face", "--hide-faces", "leave it out")
        if self.skeleton:
            from dpose.pose.skeletons import check_skeleton

            check_skeleton(self.skeleton)


@dataclass(frozen=True)
class OutputFiles:
    """Options for what is written besides."""

    json: Annotated[Path | None, option("COCO's form: joints, scores, boxes, tracks.")] = None
    yolo: Annotated[Path | None, option("A folder of YOLO-pose labels, with data.yaml.")] = None
    label_studio: Annotated[Path | None, option("Label Studio's pre-annotations.")] = None


def predict(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Pictures, videos, folders or globs; before them a run or model folder, hf:OWNER/NAME, or none."
        ),
    ],
    out: Annotated[
        Path | None, option("The drawn file, or a folder for several. Default: NAME-pose beside one.")
    ] = None,
    *,
    people: People,
    drawing: Drawing,
    written: OutputFiles,
) -> None:
    """Find people in pictures and video, and draw their joints.

    With nothing but a picture, a folder or a video, a model that comes with dpose looks for everybody. A model folder
    named first takes the whole picture for one person, unless boxes are given. People in a video are numbered.
    """
    console = plain_console()
    people.check()
    drawing.check()
    from dpose.media.kinds import left_out
    from dpose.runs.annotate import LabelFiles, annotate, find_files, joint_table, names_several
    from dpose.runs.drawn_people import Look

    run, sources = _split(sources)
    left: list[Path] = []
    files = find_files(sources, left, out)
    boxes = people.boxes(console)
    chosen = _predictor(run, drawing.flip, console)
    done = annotate(
        chosen.finder,
        files,
        out,
        boxes,
        labels=LabelFiles(**vars(written)),
        look=Look(drawing.threshold, drawing.canvas == "blank", drawing.hide_faces, drawing.skeleton, drawing.smooth),
        called=chosen.called,
        console=console,
    )
    if not (names_several(sources) or any(vars(written).values())):
        table = joint_table(done.document, chosen.chance)
        if table is not None:
            console.print(table)
    for line in [*done.lines(), *left_out([file.name for file in left])]:
        console.print(line, soft_wrap=True)
    if skipped := len(files) - done.pictures - done.videos:
        said = f"{skipped:,} of {len(files):,} files could not be used and are named above; the others are done"
        raise IncompleteError("files-skipped", said)


def _split(paths: list[str]) -> tuple[Path | None, list[str]]:
    """The model and what it is to look at.

    The first is a model where it holds a config.json, is a file of weights, a name on the Hub, or the name of weights
    that come with dpose, unless a file or folder is called so.
    """
    from dpose.pose.backbones import ALIASES, BACKBONES, shipped_weights
    from dpose.pose.folder import CONFIG, find_model
    from dpose.pose.hub import PREFIX
    from dpose.pose.weights_file import SUFFIXES

    first, on_hub = Path(paths[0]).expanduser(), paths[0].startswith(PREFIX)
    named = not first.exists() and paths[0] in {*shipped_weights(), *ALIASES, *BACKBONES}
    if not (on_hub or named or first.suffix in SUFFIXES or (first / CONFIG).exists()):
        return None, paths
    if len(paths) == 1:
        raise DposeError("pictures-missing", "is a model, and no picture is named", paths[0], "name pictures behind it")
    return find_model(paths[0]) if on_hub or named else first, paths[1:]


def _predictor(run: Path | None, flip: bool, console: Console) -> Predictor:
    from dpose.runs.annotate import bundled_predictor, model_predictor

    if run is not None:
        return model_predictor(run, flip_test=flip)
    chosen = bundled_predictor(flip_test=flip)
    console.print(f"Model: {chosen.called}, which comes with dpose")
    return chosen
