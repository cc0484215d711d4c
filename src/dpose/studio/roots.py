"""The folders that the studio may read: nothing else, whatever a request says and wherever a link points."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from dpose.errors import DposeError

MOST = 2_000
"""Entries of a folder that are listed."""
OUTSIDE = "lies outside the folders that were given with --folder"


@dataclass(frozen=True)
class Roots:
    """The folders given with --folder.

    Attributes:
        folders: Resolved, in the order that they were given in.
    """

    folders: tuple[Path, ...] = ()

    @classmethod
    def of(cls, folders: Sequence[Path]) -> Roots:
        """From the command line. A folder that is not there yet, `runs` before the first run, is read once it is.

        Raises:
            DposeError: one is no folder, or not even what it would lie in is there.
        """
        for folder in folders:
            if not folder.is_dir() and (folder.exists() or not folder.resolve().parent.is_dir()):
                raise DposeError(
                    "folder-missing",
                    "there is no such folder",
                    str(folder),
                    "give an existing one to --folder",
                )
        return cls(tuple(dict.fromkeys(folder.resolve() for folder in folders)))

    @property
    def absent(self) -> tuple[Path, ...]:
        """Those that are not there yet."""
        return tuple(folder for folder in self.folders if not folder.is_dir())

    def find(self, place: Any) -> Path:
        """The file or folder that a page names as "NUMBER/path/below".

        Raises:
            DposeError: it is not there, or lies outside the folder, by its name or by a link.
        """
        root, inner = self._split(place)
        try:
            found = (root / inner).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            raise DposeError("file-missing", "there is no such file or folder", str(inner)) from None
        if not found.is_relative_to(root):
            raise DposeError("file-outside-folders", OUTSIDE, str(inner))
        return found

    def name(self, path: Path) -> str:
        """As `find` takes it, of a path below one of the folders as `find` gave it.

        Raises:
            DposeError: it is below none.
        """
        for number, root in enumerate(self.folders):
            if path.is_relative_to(root):
                return f"{number}/{path.relative_to(root).as_posix()}"
        raise DposeError("file-outside-folders", OUTSIDE, path.name)

    def inside(self, folder: Path) -> Iterator[Path]:
        """What a folder holds, by name: nothing hidden, and no link that leads out of the folders.

        Raises:
            DposeError: it is no folder, or may not be read.
        """
        for entry in sorted(_listed(folder))[:MOST]:
            if not entry.name.startswith(".") and self.holds(entry):
                yield entry

    def closed(self, folder: Path) -> Path:
        """A folder of which nothing, at any depth, links out of the folders.

        Raises:
            DposeError: something does, or it is no folder, or may not be read.
        """
        left, seen = [folder.resolve()], set[Path]()
        while left:
            seen.add(inside := left.pop())
            for entry in _listed(inside):
                if entry.is_symlink() and not self.holds(entry):
                    raise DposeError(
                        "file-outside-folders",
                        "links out of the folders that were given with --folder",
                        entry.name,
                    )
                if entry.is_dir() and (found := entry.resolve()) not in seen:
                    left.append(found)
        return folder

    def holds(self, path: Path) -> bool:
        """Whether a path is there and lies in one of the folders, links followed."""
        try:
            found = path.resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            return False
        return any(found.is_relative_to(root) for root in self.folders)

    def _split(self, place: Any) -> tuple[Path, PurePosixPath]:
        number, _, inner = str(place).partition("/")
        parts = PurePosixPath(inner)
        if not re.fullmatch("[0-9]{1,4}", number) or int(number) >= len(self.folders) or "\0" in inner:
            raise DposeError("folder-not-offered", "no such folder was given with --folder", str(place)[:80])
        if parts.is_absolute() or ".." in parts.parts:
            raise DposeError("file-outside-folders", OUTSIDE, inner[:80])
        return self.folders[int(number)], parts


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise DposeError(
            "folder-unreadable", f"cannot be read as a folder ({error.strerror})", folder.name
        ) from error
