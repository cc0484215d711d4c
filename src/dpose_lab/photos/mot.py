"""Sequences in MOTChallenge's layout, as PETS09-S2L1 and Venice-2 are: img1/, gt/gt.txt, seqinfo.ini."""

from __future__ import annotations

import configparser
import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import file_text
from dpose_lab.photos.photo import Photo, Photos, folder_of

Box = tuple[float, float, float, float]


def open_mot(root: Path) -> Photos:
    """Open the frames of one sequence; masks are the people's boxes, if there is ground truth.

    Args:
        root: Folder of the sequence. `seqinfo.ini` is optional (older archives lack it); if present, the number of
            frames and their size must match it.
    """
    info = _info(root / "seqinfo.ini")
    folder = folder_of(root, (info.get("imdir", "img1"),), "frames")
    suffix = info.get("imext", "").lower()
    files = sorted(
        file
        for file in folder.iterdir()
        if file.stem.isdigit() and file.suffix.lower() in ((suffix,) if suffix else (".jpg", ".png"))
    )
    if not files:
        raise DposeError("frames-missing", "holds no frames named by number", str(folder))
    declared = info.get("seqlength", "")
    if declared and declared != str(len(files)):
        raise DposeError(
            "frames-count-differs", f"holds {len(files)} frames, but seqinfo.ini says {declared}", str(folder)
        )
    boxes = _boxes(root / "gt" / "gt.txt")
    size = (info.get("imheight", ""), info.get("imwidth", ""))

    def read(index: int) -> Photo:
        photo = Photo.of_file(files[index].stem, files[index])
        shape = tuple(map(str, photo.pixels.shape))
        if all(size) and size != shape:
            raise DposeError(
                "frame-size-differs",
                f"is {shape[1]} x {shape[0]}, but seqinfo.ini says {size[1]} x {size[0]}",
                str(files[index]),
            )
        if boxes is None:
            return photo
        return replace(photo, mask=_filled(boxes.get(int(files[index].stem), []), photo.pixels.shape))

    return Photos(
        title=info.get("name", root.name),
        names=tuple(file.stem for file in files),
        read=read,
        masks="" if boxes is None else "people's boxes",
    )


def _info(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(file_text(path))
        return dict(parser["Sequence"])
    except (OSError, configparser.Error, UnicodeDecodeError, KeyError) as error:
        raise DposeError("sequence-unreadable", "cannot be read as a sequence's description", str(path)) from error


def _boxes(path: Path) -> dict[int, list[Box]] | None:
    """Read boxes by frame: left, top, width, height, counted from 1. Column seven is 0 for boxes not to be scored."""
    if not path.exists():
        return None
    boxes: dict[int, list[Box]] = {}
    try:
        rows = list(csv.reader(io.StringIO(file_text(path))))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DposeError("boxes-unreadable", "cannot be read as a list of boxes", str(path)) from error
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        try:
            frame, (left, top, width, height) = int(float(row[0])), map(float, row[2:6])
            scored = len(row) < 7 or float(row[6]) != 0
            if not all(map(math.isfinite, (left, top, width, height))):
                raise ValueError
        except (ValueError, OverflowError, IndexError) as error:
            raise DposeError("box-line-invalid", f"line {number} is no box", str(path)) from error
        if scored:
            boxes.setdefault(frame, []).append((left, top, width, height))
    return boxes


def _filled(boxes: list[Box], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    mask = np.zeros(shape, np.bool_)
    for left, top, width, height in boxes:
        x, y = max(0, round(left) - 1), max(0, round(top) - 1)
        mask[y : max(0, round(top + height) - 1), x : max(0, round(left + width) - 1)] = True
    return mask
