"""Boxes that `dpose obfuscate` obscures, as a file that a person can correct: found, written, and given back.

    write_boxes(Path("boxes.csv"), boxes)                     # or .json; left, top, width and height in pixels
    boxes = leave_open(read_boxes(Path("boxes.csv")), "2,5")  # numbers 2 and 5 stay open
    given, left = matched(boxes, jobs)                        # by file, of the files that are obscured

A box is in pixels of the picture as it is shown.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.files import LONGEST_TEXT, edited_text, file_bytes, file_table, json_text, parsed_json, write_atomic
from dpose.release.jobs import JobList

SUFFIXES = (".json", ".csv")
"""What a file of boxes may be."""
_NUMBERS = ("left", "top", "width", "height")


@dataclass(frozen=True)
class FoundBox:
    """A box in a picture or in a frame of a film.

    Attributes:
        file: The picture or film, below the folder that was named.
        number: The box's number, which no other box has.
        frame: The frame's number from 0 on; 0 for a picture.
        left: Pixels from the left to the box.
        top: Pixels from the top to the box.
        width: Pixels.
        height: Pixels.
    """

    file: str
    number: int
    frame: int
    left: int
    top: int
    width: int
    height: int

    @property
    def rows(self) -> slice:
        """The rows that it covers, from the picture's first on."""
        return slice(max(0, self.top), max(0, self.top + self.height))

    @property
    def columns(self) -> slice:
        """The columns that it covers, from the picture's first on."""
        return slice(max(0, self.left), max(0, self.left + self.width))


def check_boxes_name(path: Path) -> None:
    """Refuse a name for a file of boxes.

    Raises:
        DposeError: it ends in none of `SUFFIXES`.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise DposeError("boxes-suffix-unknown", f"must end in {' or '.join(SUFFIXES)}", str(path))


def write_boxes(path: Path, boxes: Sequence[FoundBox]) -> None:
    """Write boxes for a person to correct, readable by their owner alone."""
    check_boxes_name(path)
    rows = [asdict(box) for box in boxes]
    if path.suffix.lower() == ".json":
        text = json_text({"boxes": rows}, 1) + "\n"
    else:
        out = io.StringIO()
        table = csv.DictWriter(out, [field.name for field in fields(FoundBox)], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        text = out.getvalue()
    write_atomic(path, text, mode=0o600)


def read_boxes(path: Path) -> tuple[FoundBox, ...]:
    """The boxes of a file that `write_boxes` wrote, or that a person did: `number` and `frame` may be left out."""
    check_boxes_name(path)
    try:
        rows = _json_rows(path) if path.suffix.lower() == ".json" else _csv_rows(path)
    except FileNotFoundError as error:
        raise DposeError("file-missing", "there is no such file", str(path)) from error
    except (OSError, ValueError) as error:
        raise DposeError("boxes-malformed", "holds no boxes that can be read", str(path)) from error
    found = [_box(row, f"{path}, box {place}") for place, row in enumerate(rows, 1)]
    taken = {box.number for box in found if box.number}
    if len(taken) < sum(box.number > 0 for box in found):
        raise DposeError("box-number-twice", "two boxes have one number", str(path), "number them 1, 2, 3 ...")
    free = (number for number in range(1, 2 * len(found) + 1) if number not in taken)
    return tuple(box if box.number else replace(box, number=next(free)) for box in found)


def _json_rows(path: Path) -> list[Mapping[str, Any]]:
    content = parsed_json(edited_text(file_bytes(path, LONGEST_TEXT)))
    rows = content.get("boxes") if isinstance(content, dict) else content
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("no list of boxes")
    return rows


def _csv_rows(path: Path) -> list[Mapping[str, Any]]:
    columns, rows = file_table(path)
    if not {"file", *_NUMBERS} <= set(columns):
        raise ValueError("columns are missing")
    return list(rows)


def _box(row: Mapping[str, Any], where: str) -> FoundBox:
    try:
        file = str(row["file"]).strip().replace("\\", "/")
        left, top, width, height = (float(str(row[name]).strip().replace(",", ".")) for name in _NUMBERS)
        number, frame = (float(str(row.get(name) or 0).strip()) for name in ("number", "frame"))
        sizes = (left, top, width, height, number, frame)
        sound = all(math.isfinite(size) and abs(size) < 1e9 for size in sizes)
        if not (sound and file and min(width, height) > 0 and min(number, frame) >= 0):
            raise ValueError("out of range")
    except (KeyError, ValueError) as error:
        raise DposeError(
            "box-malformed",
            "a box needs file, left, top, and a width and height above 0, in pixels",
            where,
            "mend it or take it out",
        ) from error
    x, y = math.floor(left), math.floor(top)
    return FoundBox(file, int(number), int(frame), x, y, math.ceil(left + width) - x, math.ceil(top + height) - y)


def leave_open(boxes: Sequence[FoundBox], kept: str) -> tuple[FoundBox, ...]:
    """The boxes but for those whose numbers are kept open, "2,5"."""
    words = [word for word in re.split(r"[,\s]+", kept) if word]
    numbers = {int(word) for word in words if word.isascii() and word.isdigit()}
    if len(numbers) < len(set(words)) or not numbers <= {box.number for box in boxes}:
        raise DposeError(
            "box-number-unknown", "names a number that no box has", f"keep {kept}", "numbers stand in --boxes"
        )
    return tuple(box for box in boxes if box.number not in numbers)


def matched(boxes: Sequence[FoundBox], jobs: JobList) -> tuple[dict[str, tuple[FoundBox, ...]], tuple[str, ...]]:
    """The boxes of each file that is obscured, by its absolute path, and the files of other boxes.

    A file is found by its name below the folder that was named, else by the end of its path.
    """
    names, paths = jobs.names(), [Path(source).absolute() for source in jobs.sources]
    by_name = dict(zip(names, paths, strict=True))
    ends: dict[str, list[tuple[str, Path]]] = {}
    for name, path in zip(names, paths, strict=True):
        ends.setdefault(path.name, []).append((name, path))
    given: dict[str, tuple[FoundBox, ...]] = {str(path): () for path in paths}
    left: dict[str, None] = {}
    for file in dict.fromkeys(box.file for box in boxes):
        found = [by_name[file]] if file in by_name else _ending(file, ends)
        if len(found) > 1:
            raise DposeError("box-file-ambiguous", f"{len(found)} files are called so", file, "write more of its path")
        if not found:
            left[file] = None
            continue
        given[str(found[0])] += tuple(box for box in boxes if box.file == file)
    if boxes and len(left) == len({box.file for box in boxes}):
        raise DposeError("box-files-unknown", "boxes are of other files than those named", next(iter(left)))
    return given, tuple(left)


def _ending(file: str, ends: Mapping[str, Sequence[tuple[str, Path]]]) -> list[Path]:
    alike = ends.get(file.rpartition("/")[2], ())
    return [path for name, path in alike if f"/{file}".endswith(f"/{name}") or path.as_posix().endswith(f"/{file}")]
