"""The folders that the studio may read, and nothing else: requests and links cannot lead out of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from dpose.errors import DposeError

MOST = 2_000
"""Largest number of entries listed of a folder."""
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
        """Make roots from the command line. A folder that does not exist yet is read once it does.

        Raises:
            DposeError: one is not a folder, or neither it nor its parent exists.
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
        """Folders that do not exist yet."""
        return tuple(folder for folder in self.folders if not folder.is_dir())

    def find(self, place: Any) -> Path:
        """The file or folder that a page names as "NUMBER/path/below".

        Raises:
            DposeError: it is not there, or lies outside the folder, by its name or by a link.
        """
        root, inner = self._split(place)
        try:
            real = (root / inner).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            raise DposeError("file-missing", "there is no such file or folder", str(inner)) from None
        if not real.is_relative_to(root):
            raise DposeError("file-outside-folders", OUTSIDE, str(inner))
        return real

    def name(self, path: Path) -> str:
        """Name a path returned by `find` as "NUMBER/path/below".

        Raises:
            DposeError: the path is below none of the folders.
        """
        for number, root in enumerate(self.folders):
            if path.is_relative_to(root):
                return f"{number}/{path.relative_to(root).as_posix()}"
        raise DposeError("file-outside-folders", OUTSIDE, path.name)

    def inside(self, folder: Path) -> Iterator[Path]:
        """Entries of a folder by name, without hidden files and links that lead out of the folders.

        Raises:
            DposeError: it is no folder, or may not be read.
        """
        for entry in sorted(_listed(folder))[:MOST]:
            if not entry.name.startswith(".") and self.holds(entry):
                yield entry

    def closed(self, folder: Path) -> Path:
        """Check that nothing in a folder, at any depth, links out of the folders, and return it.

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
                if entry.is_dir() and (real := entry.resolve()) not in seen:
                    left.append(real)
        return folder

    def holds(self, path: Path) -> bool:
        """True if the path exists and lies in one of the folders after following links."""
        try:
            real = path.resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            return False
        return any(real.is_relative_to(root) for root in self.folders)

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
