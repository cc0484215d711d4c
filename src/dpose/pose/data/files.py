"""Where a dataset's files are: label files under their usual names, pictures under the names that labels give them."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from dpose.errors import DposeError
from dpose.files import leads_out, open_regular
from dpose.pose.data.problems import Problems


@dataclass(frozen=True)
class LabelFile:
    """Where a dataset's label files are looked for.

    Attributes:
        usual: By split, paths relative to the dataset's folder, in order.
        opens_with: The first character of such a file's JSON: without a usual or a given file, the only JSON file
            directly in the folder that begins with it is taken.
        get_it: What a message asks the user for.
    """

    usual: Mapping[str, tuple[str, ...]]
    opens_with: bytes
    get_it: str

    def find(self, root: Path, split: str, annotations: str = "") -> tuple[Path, str]:
        """The label file of a split, and a note where it is not one of the usual names.

        Args:
            root: The dataset's folder.
            split: A key of `usual`.
            annotations: Relative to `root` (or absolute); wins over the usual ones. "" where not given.

        Raises:
            DposeError: there is no such folder or file, or several could be meant.
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
    """Finds picture files by the names that labels give them.

    A name is looked for below each base in turn. Files whose names are the same text in another normal form, or
    Latin-1 where the system expects UTF-8, are found too. Each folder is listed once, so that finding a hundred
    thousand pictures asks the disk only a few times.

    Args:
        bases: (folder, prefix): a name is taken without its prefix, and below the folder; names without the prefix are
            not looked for there. An empty prefix takes every name.
    """

    def __init__(self, bases: Sequence[tuple[Path, str]]) -> None:
        self._bases = tuple(bases)
        self._listed: dict[Path, dict[str, str]] = {}

    def find(self, name: str) -> Path | None:
        """The file, or None where there is none."""
        for base, prefix in self._bases:
            if name.startswith(prefix):
                found = self._below(base, PurePosixPath(name[len(prefix) :]))
                if found is not None:
                    return found
        return None

    def place(
        self, name: Any, where: str, problems: Problems, absent: bool = False
    ) -> tuple[str, Path | None] | None:
        """The name and file of a picture that labels name; None, told in `problems`, where it cannot be used.

        Args:
            name: What the labels have for a file name.
            where: The entry that names it, for `problems`.
            problems: Told of a name that is none, that leads out of the folder, or of a missing file.
            absent: Whether a picture may be missing: its file is then None.
        """
        if not isinstance(name, str) or leads_out(name):
            problems.add("no usable file name", where, detail=repr(name)[:80])
            return None
        found = self.find(name)
        if found is None and not absent:
            problems.add("the picture is missing", where, detail=name)
            return None
        return name, found

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
    """A file name as text in one normal form, whatever bytes it has on the disk."""
    raw = os.fsencode(name)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    return unicodedata.normalize("NFC", text)
