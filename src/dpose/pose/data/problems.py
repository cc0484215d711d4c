"""What is wrong with a label file, told by file and annotation, and counted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import file_bytes


@dataclass(frozen=True)
class Problem:
    """One thing found wrong.

    Attributes:
        kind: What, without particulars: equal kinds are counted together.
        where: The annotation, picture or file.
        action: What was done about it: "skipped", "kept" or "not used".
        detail: The particulars; may be empty.
    """

    kind: str
    where: str
    action: str = "skipped"
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.kind}{f' ({self.detail})' if self.detail else ''}; {self.action}"


class Problems:
    """Collects problems in the order they are found."""

    def __init__(self, found: Iterable[Problem] = ()) -> None:
        self.found = list(found)

    def add(self, kind: str, where: str, action: str = "skipped", detail: str = "") -> None:
        """Add one."""
        self.found.append(Problem(kind, where, action, detail))

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def all_unusable(self, path: Path, what: str) -> DposeError:
        """That a label file has nothing to learn from; `what` is what it has instead, such as "12 people"."""
        first = self.found[0] if self.found else ""
        return DposeError("labels-all-unusable", f"not one of its {what} can be used; {first}", str(path))

    def summary(self) -> list[str]:
        """A line a kind: how many, what, what was done, and the first."""
        kinds: dict[tuple[str, str], list[Problem]] = {}
        for problem in self.found:
            kinds.setdefault((problem.action, problem.kind), []).append(problem)
        lines = []
        for (action, kind), those in kinds.items():
            first = those[0]
            told = f"{first.where}{f' ({first.detail})' if first.detail else ''}"
            lines.append(f"{len(those):,} {action}: {kind}; first {told}")
        return lines


def count_problems(problems: int) -> str:
    """The last line about problems: how many there were."""
    return f"{problems:,} problem{'' if problems == 1 else 's'}" if problems else "No problems found"


def label_bytes(path: Path) -> bytes:
    """What a file holds.

    Raises:
        DposeError: it is missing or cannot be read.
    """
    try:
        return file_bytes(path)
    except OSError as error:
        raise DposeError("file-unreadable", f"cannot be read ({error.strerror})", str(path)) from error


def read_json(path: Path, problems: Problems | None = None) -> Any:
    """The content of a JSON file.

    UTF-8 is expected, with or without a byte order mark. A file that is not is read as Latin-1, and `problems` told.

    Raises:
        DposeError: the file is missing or not JSON; the line and column are named.
    """
    raw = label_bytes(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        text = raw.decode("latin-1")
        if problems is not None:
            line = raw.count(b"\n", 0, error.start) + 1
            problems.add("not UTF-8", f"{path.name} line {line}", "kept", "read as Latin-1")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise DposeError("json-nested-too-deeply", "nested too deeply to be labels", str(path)) from error
    except ValueError as error:
        detail = (
            f"line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        )
        raise DposeError(
            "json-invalid", f"is no JSON ({detail or error})", str(path), "download or write it again"
        ) from error


def results_of(
    content: list[Any], path: Path, what: str, problems: Problems
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The entries of COCO's results format that are of people (category 1), each with its place for `problems`.

    Args:
        content: Of the file: `{image_id, category_id, ...}` each.
        path: The file.
        what: What an entry is, for `problems`, which are told of one without the whole number of its picture.
        problems: Told.
    """
    for number, entry in enumerate(content, 1):
        where = f"{path.name} entry {number}"
        if not isinstance(entry, dict) or type(entry.get("image_id")) is not int:
            problems.add(f"a {what} without the number of its picture", where)
        elif entry.get("category_id", 1) == 1:
            yield where, entry


def holds_something(box: NDArray[Any]) -> bool:
    """Whether a box, (4,) x0, y0, x1, y1, has a width and a height: as numbers, very far out it may have none."""
    return bool(np.isfinite(box).all() and (box[2:] > box[:2]).all())


def numbers(value: Any, count: int | None = None) -> NDArray[np.float64] | None:
    """A flat list of finite numbers as float64, or None where `value` is something else or of another length."""
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    if array.ndim != 1 or (count is not None and len(array) != count) or not np.isfinite(array).all():
        return None
    # strings that look like numbers convert silently; booleans do too: neither is a coordinate
    return array if all(type(v) in (int, float) for v in value) else None
