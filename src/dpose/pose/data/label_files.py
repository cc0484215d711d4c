"""Files of labels: where they and their pictures lie, reading them, and the problems in them."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import edited_text, leads_out, open_regular, read_bytes
from dpose.media.images import shown_size


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

    def all_unusable(self, path: Path, what: str, otherwise: str = "", code: str = "labels-all-unusable") -> DposeError:
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


def label_text(path: Path, problems: Problems | None = None) -> str:
    """Read a text file: UTF-8, or UTF-16 with its byte order mark; otherwise Latin-1, which is added to `problems`."""
    raw = read_bytes(path)
    try:
        return edited_text(raw)
    except UnicodeDecodeError as error:
        if problems is not None:
            line = raw.count(b"\n", 0, error.start) + 1
            problems.add("not UTF-8", f"{path.name} line {line}", "kept", "read as Latin-1")
        return raw.decode("latin-1")


def read_json(path: Path, problems: Problems | None = None) -> Any:
    """Read a JSON file of labels (`label_text`)."""
    text = label_text(path, problems)
    try:
        return json.loads(text)
    except RecursionError as error:
        raise DposeError("json-nested-too-deeply", "nested too deeply to be labels", str(path)) from error
    except ValueError as error:
        detail = f"line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise DposeError(
            "json-invalid", f"is no JSON ({detail or error})", str(path), "download or write it again"
        ) from error


def whole(value: Any) -> int | None:
    """Convert a whole number, also one written as 1.0 or "1", to int; None for everything else."""
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"-?[0-9]{1,18}", value.strip()) else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if type(value) is int else None


def id_of(value: Any) -> int | str | None:
    """Return an id as labels may write it, so that equal ids are equal: a whole number, or text; None for others."""
    number = whole(value)
    return number if number is not None else value if isinstance(value, str) and value else None


def as_number(value: Any) -> Any:
    """Convert text that is a number, "41.5", to that number; everything else stays."""
    if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]{1,18}(\.[0-9]{0,18})?([eE][-+]?[0-9]{1,3})?\s*", value):
        return float(value)
    return value


def joint_rows(value: Any, joints: int) -> NDArray[np.float64] | None:
    """Convert joints, flat or in rows, to (J, 3) float64: x, y, and 0 not labelled, 1 hidden, 2 seen.

    Without the third number a joint at 0, 0 is not labelled. null is nan. None if `value` is something else.
    """
    rows = [v for row in value for v in (row if isinstance(row, list) else [row])] if isinstance(value, list) else []
    rows = [as_number(v) for v in rows]
    if not all(v is None or type(v) in (int, float) for v in rows):
        return None
    try:
        array = np.array([np.nan if v is None else v for v in rows], np.float64)
    except OverflowError:
        return None
    if len(array) == 3 * joints:
        return array.reshape(-1, 3)
    if len(array) != 2 * joints:
        return None
    points = array.reshape(-1, 2)
    return np.column_stack([points, np.where((points != 0).any(axis=1), 2.0, 0.0)])


def edges_between(pairs: Any, joints: int, first: int) -> list[tuple[int, int]] | None:
    """Convert a skeleton's pairs of joints, counted from 0 or from 1, to pairs counted from 0.

    A 0 among them says that they count from 0, the number of joints that they count from 1; `first` decides where
    neither does. A pair of joints that do not exist is left out. None if the pairs are no pairs of whole numbers.
    """
    if not isinstance(pairs, list | tuple) or not all(isinstance(p, list | tuple) and len(p) == 2 for p in pairs):
        return None
    numbered = [(whole(a), whole(b)) for a, b in pairs]
    ends = {end for pair in numbered for end in pair}
    if None in ends:
        return None
    start = 0 if 0 in ends else 1 if joints in ends else first
    found = [(a - start, b - start) for a, b in numbered if a is not None and b is not None]
    return [pair for pair in found if all(0 <= end < joints for end in pair)]


def results_of(content: list[Any], path: Path, what: str, problems: Problems) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the entries of COCO's results format that are of people (category 1), each with its place for `problems`.

    An entry without the whole number of a picture is a problem, and so is a file without entries of people; `what` is
    an entry's name there. Other categories are passed over: a detector finds dogs too.
    """
    others: set[str] = set()
    of_people = 0
    for number, entry in enumerate(content, 1):
        where = f"{path.name} entry {number}"
        image = whole(entry.get("image_id")) if isinstance(entry, dict) else None
        if image is None:
            problems.add(f"a {what} without the number of its picture", where)
        elif whole(entry.get("category_id", 1)) == 1:
            of_people += 1
            yield where, {**entry, "image_id": image}
        else:
            others.add(str(entry["category_id"]))
    if others and not of_people:
        detail = f"its categories: {', '.join(sorted(others)[:9])}; people are 1"
        problems.add(f"no {what} of a person", path.name, "not used", detail)


def holds_something(box: NDArray[Any]) -> bool:
    """True if a box, (4,) x0, y0, x1, y1, has a width and a height, which rounding may remove far from the origin."""
    return bool(np.isfinite(box).all() and (box[2:] > box[:2]).all())


def numbers(value: Any, count: int | None = None) -> NDArray[np.float64] | None:
    """Convert a flat list of finite numbers to float64; None if `value` is something else or of another length."""
    value = [as_number(v) for v in value] if isinstance(value, list) else value
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    if array.ndim != 1 or (count is not None and len(array) != count) or not np.isfinite(array).all():
        return None
    # booleans convert silently: they are no coordinates
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
        kind = "*.xml" if self.opens_with == b"<" else "*.json"
        candidates = [p for p in sorted(root.glob(kind)) if _begins(p, self.opens_with)]
        if not candidates:  # as CVAT writes them; never the usual file of another split
            usual = {root / name for names in self.usual.values() for name in names}
            inside = sorted(set((root / "annotations").glob(kind)) - usual)
            candidates = [p for p in inside if _begins(p, self.opens_with)]
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
        fix = f"{self.get_it}, or name the file, as in NAME:ROOT,annotations=FILE"
        for other, theirs in self.usual.items():
            if any((root / name).is_file() for name in theirs):
                fix = f"it holds the split {other}: say NAME:ROOT:{other}"
        raise DposeError("labels-missing", f"holds no {self.usual[split][0]}", str(root), fix)


def _begins(path: Path, wanted: bytes) -> bool:
    try:
        with open_regular(path) as file:
            first = file.read(64).lstrip(codecs.BOM_UTF8 + codecs.BOM_UTF16 + codecs.BOM_UTF16_BE)
            return first.replace(b"\0", b"").lstrip()[:1] == wanted
    except OSError:
        return False


class PictureFinder:
    """Finds picture files by the names in labels.

    A name is looked for below each base in turn, and if it is not there, its end is: a name with the folders of another
    machine, with backslashes, or an address as labelling tools write it ("/data/local-files/?d=a.jpg"). Files whose
    names are the same text in another normal form, or Latin-1 where the system expects UTF-8, are found too. Each
    folder is listed once, so that finding a hundred thousand pictures needs only a few system calls.

    **Guarantee.** No file outside the bases is found, whatever the name.

    Args:
        bases: (folder, prefix): a name is taken without its prefix, and below the folder; names without the prefix are
            not looked for there. An empty prefix matches every name.
    """

    def __init__(self, bases: Sequence[tuple[Path, str]]) -> None:
        self._bases = tuple(bases)
        self._listed: dict[Path, dict[str, str]] = {}
        self._taken: set[Path] = set()

    def find(self, name: str) -> Path | None:
        """Return the file or folder, or None."""
        found = self._named(name)
        return None if found is None else found[1]

    def _named(self, name: str) -> tuple[str, Path] | None:
        """Return the file, and the name that it was found by: `name` or its end."""
        if not leads_out(name):
            for base, prefix in self._bases:
                if name.startswith(prefix):
                    path = self._below(base, PurePosixPath(name[len(prefix) :]))
                    if path is not None:
                        return name, path
        parts = _parts_of(name)
        for first in range(len(parts)):
            end = PurePosixPath(*parts[first:])
            for base, prefix in self._bases:
                path = None if prefix else self._below(base, end)
                if path is not None:
                    return str(end), path
        return None

    def place(self, name: Any, where: str, problems: Problems, absent: bool = False) -> tuple[str, Path | None] | None:
        """Return the name and file of a picture in labels; None, with an entry in `problems`, if it cannot be used.

        A name that is no text cannot be used, nor a missing file, unless `absent`: its file is None.
        """
        if not isinstance(name, str) or "\0" in name or not _parts_of(name):
            problems.add("no usable file name", where, detail=repr(name)[:80])
            return None
        found = self._named(name)
        if found is not None:
            return found
        if absent:
            return str(PurePosixPath(*_parts_of(name))), None
        problems.add("the picture is missing", where, detail=name)
        return None

    def place_once(
        self, name: Any, size: tuple[int, int] | None, where: str, problems: Problems, absent: bool = False
    ) -> tuple[str, Path | None, tuple[int, int]] | None:
        """As `place`, with (H, W): the labels', or else the file's as it is shown. A picture is placed once only."""
        placed = self.place(name, where, problems, absent)
        if placed is None:
            return None
        file, path = placed
        if size is None and path is not None:
            with contextlib.suppress(DposeError):
                size = shown_size(path)
        if size is None:
            problems.add("no width and height", where, detail=file)
        elif (path or Path(file)) in self._taken:
            problems.add("two ids for one picture", where, detail=file)
        else:
            self._taken.add(path or Path(file))
            return file, path, size
        return None

    def _below(self, base: Path, name: PurePosixPath) -> Path | None:
        folder = base
        for part in name.parts:
            names = self._entries(folder)
            entry = names.get(_plain(part))
            if entry is None:  # other systems take A.JPG for a.jpg
                alike = [own for name, own in names.items() if name.casefold() == _plain(part).casefold()]
                entry = alike[0] if len(alike) == 1 else None
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


def _parts_of(name: str) -> tuple[str, ...]:
    """Split a name that another machine or tool wrote: backslashes, drives, addresses; nothing that climbs is left."""
    if "://" in name or name.startswith("/data/"):
        address = urlsplit(name)
        name = parse_qs(address.query).get("d", [unquote(address.path)])[0]
    try:
        os.fsencode(name)
    except UnicodeEncodeError:  # half a surrogate pair: no file is called that
        return ()
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    climbs = [place for place, part in enumerate(parts) if part == ".." or part[1:] == ":"]
    return tuple(parts[climbs[-1] + 1 :] if climbs else parts)


def _plain(name: str) -> str:
    """Decode a file name and normalise it, whatever bytes it has on the disk."""
    raw = os.fsencode(name)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    return unicodedata.normalize("NFC", text)
