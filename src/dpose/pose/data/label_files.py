"""Files of labels: where they and their pictures lie, reading them, and the problems in them."""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import file_bytes, leads_out, open_regular


@dataclass(frozen=True)
class Problem:
    """One problem in a label file.

    Attributes:
        kind: Kind, without particulars: equal kinds are counted together.
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
    """Collects problems, in order."""

    def __init__(self, entries: Iterable[Problem] = ()) -> None:
        self.entries = list(entries)

    def add(self, kind: str, where: str, action: str = "skipped", detail: str = "") -> None:
        """Add one."""
        self.entries.append(Problem(kind, where, action, detail))

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def all_unusable(
        self, path: Path, what: str, otherwise: str = "", code: str = "labels-all-unusable"
    ) -> DposeError:
        """Return the error for a file without usable entries; `otherwise` is the reason if there is no problem."""
        reason = self.entries[0] if self.entries else otherwise
        return DposeError(code, f"not one of its {what} can be used; {reason}", str(path))

    def summary(self) -> list[str]:
        """Return a line for each kind: its count, the action, and the first problem."""
        kinds: dict[tuple[str, str], list[Problem]] = {}
        for problem in self.entries:
            kinds.setdefault((problem.action, problem.kind), []).append(problem)
        lines = []
        for (action, kind), those in kinds.items():
            first = those[0]
            where = f"{first.where}{f' ({first.detail})' if first.detail else ''}"
            lines.append(f"{len(those):,} {action}: {kind}; first {where}")
        return lines


def count_problems(problems: int) -> str:
    """Return the last line of a list of problems: their number."""
    return f"{problems:,} problem{'' if problems == 1 else 's'}" if problems else "No problems found"


def label_bytes(path: Path) -> bytes:
    """Read a file."""
    try:
        return file_bytes(path)
    except OSError as error:
        raise DposeError("file-unreadable", f"cannot be read ({error.strerror})", str(path)) from error


def read_json(path: Path, problems: Problems | None = None) -> Any:
    """Read a JSON file: UTF-8, with or without a byte order mark; otherwise Latin-1, which is added to `problems`."""
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
    """Yield the entries of COCO's results format that are of people (category 1), each with its place for `problems`.

    An entry without the whole number of a picture is a problem; `what` is its name there.
    """
    for number, entry in enumerate(content, 1):
        where = f"{path.name} entry {number}"
        if not isinstance(entry, dict) or type(entry.get("image_id")) is not int:
            problems.add(f"a {what} without the number of its picture", where)
        elif entry.get("category_id", 1) == 1:
            yield where, entry


def holds_something(box: NDArray[Any]) -> bool:
    """True if a box, (4,) x0, y0, x1, y1, has a width and a height, which rounding may remove far from the origin."""
    return bool(np.isfinite(box).all() and (box[2:] > box[:2]).all())


def numbers(value: Any, count: int | None = None) -> NDArray[np.float64] | None:
    """Convert a flat list of finite numbers to float64; None if `value` is something else or of another length."""
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    if array.ndim != 1 or (count is not None and len(array) != count) or not np.isfinite(array).all():
        return None
    # strings that look like numbers convert silently; booleans do too: neither is a coordinate
    return array if all(type(v) in (int, float) for v in value) else None


@dataclass(frozen=True)
class LabelFile:
    """Usual places of a dataset's label files.

    Attributes:
        usual: Paths relative to the dataset's folder by split, in order of preference.
        opens_with: The first character of such a file's JSON: without a usual or a given file, the only JSON file
            directly in the folder that begins with it is taken.
        get_it: Advice of the message if it is missing.
    """

    usual: Mapping[str, tuple[str, ...]]
    opens_with: bytes
    get_it: str

    def find(self, root: Path, split: str, annotations: str = "") -> tuple[Path, str]:
        """Return the label file of a split, and a note if its name is not one of the usual ones.

        `annotations`, relative to `root` or absolute, replaces the usual names. Several possible files are refused.
        """
        if not root.is_dir():
            raise DposeError("folder-missing", "no such folder", str(root), self.get_it)
        if annotations:
            path = root / Path(annotations).expanduser()
            if not path.is_file():
                raise DposeError(
                    "file-missing",
                    "no such file",
                    str(path),
                    "an annotations file is named relative to the dataset's folder",
                )
            return path, ""
        for name in self.usual[split]:
            if (root / name).is_file():
                return root / name, ""
        candidates = [p for p in sorted(root.glob("*.json")) if _begins(p, self.opens_with)]
        if len(candidates) == 1:
            (only,) = candidates
            return only, f"labels are those of {only.name}, the only label file there: all splits share it"
        if candidates:
            names = ", ".join(p.name for p in candidates)
            raise DposeError(
                "labels-ambiguous",
                f"several files could hold the labels: {names}",
                str(root),
                "say which, as in NAME:ROOT,annotations=FILE",
            )
        raise DposeError(
            "labels-missing",
            f"holds no {self.usual[split][0]}",
            str(root),
            f"{self.get_it}, or name the file, as in NAME:ROOT,annotations=FILE",
        )


def _begins(path: Path, wanted: bytes) -> bool:
    try:
        with open_regular(path) as file:
            return file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == wanted
    except OSError:
        return False


class PictureFinder:
    """Finds picture files by the names in labels.

    A name is looked for below each base in turn. Files whose names are the same text in another normal form, or
    Latin-1 where the system expects UTF-8, are found too. Each folder is listed once, so that finding a hundred
    thousand pictures needs only a few system calls.

    Args:
        bases: (folder, prefix): a name is taken without its prefix, and below the folder; names without the prefix are
            not looked for there. An empty prefix matches every name.
    """

    def __init__(self, bases: Sequence[tuple[Path, str]]) -> None:
        self._bases = tuple(bases)
        self._listed: dict[Path, dict[str, str]] = {}

    def find(self, name: str) -> Path | None:
        """Return the file, or None."""
        for base, prefix in self._bases:
            if name.startswith(prefix):
                path = self._below(base, PurePosixPath(name[len(prefix) :]))
                if path is not None:
                    return path
        return None

    def place(
        self, name: Any, where: str, problems: Problems, absent: bool = False
    ) -> tuple[str, Path | None] | None:
        """Return the name and file of a picture in labels; None, with an entry in `problems`, if it cannot be used.

        A name that is no text or leads out of the folder cannot be used, nor a missing file, unless `absent`: its file
        is None.
        """
        if not isinstance(name, str) or leads_out(name):
            problems.add("no usable file name", where, detail=repr(name)[:80])
            return None
        path = self.find(name)
        if path is None and not absent:
            problems.add("the picture is missing", where, detail=name)
            return None
        return name, path

    def _below(self, base: Path, name: PurePosixPath) -> Path | None:
        folder = base
        for part in name.parts:
            entry = self._entries(folder).get(_plain(part))
            if entry is None:
                return None
            folder = folder / entry
        return folder if name.parts else None

    def _entries(self, folder: Path) -> dict[str, str]:
        if folder not in self._listed:
            try:
                self._listed[folder] = {_plain(name): name for name in os.listdir(folder)}
            except OSError:
                self._listed[folder] = {}
        return self._listed[folder]


def _plain(name: str) -> str:
    """Decode a file name and normalise it, whatever bytes it has on the disk."""
    raw = os.fsencode(name)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    return unicodedata.normalize("NFC", text)
