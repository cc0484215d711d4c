"""The folders that the studio may read, and nothing else: requests and links cannot lead out of them.

The private folder for copies of pictures while the studio runs: readable by its owner alone, removed at the end.

A studio that was killed leaves its folder; the next one removes it. A folder whose lock is held belongs to a studio
that runs.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from filelock import FileLock

from dpose.errors import DposeError
from dpose.files import closed_folder, explain_os_error, take_lock
from dpose.privacy.keys import state_folder

LOCK = ".lock"


class Workplace:
    """A private folder, locked for as long as the studio runs."""

    def __init__(self, base: Path | None = None) -> None:
        base = base or state_folder() / "studio"
        closed_folder(base)
        self.swept = _sweep(base)
        self.folder = base / secrets.token_hex(8)
        try:
            self.folder.mkdir(mode=0o700)
        except OSError as error:
            raise explain_os_error(error, self.folder) from error
        lock = take_lock(self.folder / LOCK)
        assert lock is not None  # no other process knows the name
        self._lock: FileLock = lock

    def room(self) -> Path:
        """Make a new folder in the private folder, mode 0700."""
        made = self.folder / secrets.token_hex(8)
        made.mkdir(mode=0o700)
        return made

    def close(self) -> None:
        """Remove the private folder and everything in it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()


def open_private(path: Path) -> int:
    """Open a new file that no other user may read (mode 0600), and return its descriptor.

    Raises:
        OSError: the file exists already, or cannot be made.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _sweep(base: Path) -> int:
    """Remove folders left by studios that were killed; return how many."""
    swept = 0
    for folder in base.iterdir():
        if folder.is_symlink() or not folder.is_dir():
            continue
        lock = take_lock(folder / LOCK)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()
            swept += 1
    return swept


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
        """Make roots from the command line. A folder that does not exist yet is read once it does."""
        for folder in folders:
            if not folder.is_dir() and (folder.exists() or not folder.resolve().parent.is_dir()):
                raise DposeError(
                    "folder-missing", "there is no such folder", str(folder), "give an existing one to --folder"
                )
        return cls(tuple(dict.fromkeys(folder.resolve() for folder in folders)))

    @property
    def absent(self) -> tuple[Path, ...]:
        """Folders that do not exist yet."""
        return tuple(folder for folder in self.folders if not folder.is_dir())

    def find(self, place: Any) -> Path:
        """The file or folder that a page names as "NUMBER/path/below"."""
        root, inner = self._split(place)
        try:
            real = (root / inner).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            raise DposeError("file-missing", "there is no such file or folder", str(inner)) from None
        if not real.is_relative_to(root):
            raise DposeError("file-outside-folders", OUTSIDE, str(inner))
        return real

    def name(self, path: Path) -> str:
        """Name a path returned by `find` as "NUMBER/path/below"."""
        for number, root in enumerate(self.folders):
            if path.is_relative_to(root):
                return f"{number}/{path.relative_to(root).as_posix()}"
        raise DposeError("file-outside-folders", OUTSIDE, path.name)

    def inside(self, folder: Path) -> Iterator[Path]:
        """Entries of a folder by name, without hidden files and links that lead out of the folders."""
        for entry in sorted(_listed(folder))[:MOST]:
            if not entry.name.startswith(".") and self.holds(entry):
                yield entry

    def below(self, folder: Path, depth: int, wanted: Callable[[Path], bool]) -> Iterator[Path]:
        """Folders of one sort in a folder, itself or so deep below; what is in them is not looked at."""
        if wanted(folder):
            yield folder
        elif depth:
            with contextlib.suppress(OSError, DposeError):
                for entry in self.inside(folder):
                    if entry.is_dir() and not entry.is_symlink():
                        yield from self.below(entry, depth - 1, wanted)

    def closed(self, folder: Path) -> Path:
        """Check that nothing in a folder, at any depth, links out of the folders, and return it."""
        left, seen = [folder.resolve()], set[Path]()
        while left:
            seen.add(inside := left.pop())
            for entry in _listed(inside):
                if entry.is_symlink() and not self.holds(entry):
                    raise DposeError(
                        "file-outside-folders", "links out of the folders that were given with --folder", entry.name
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
        raise DposeError("folder-unreadable", f"cannot be read as a folder ({error.strerror})", folder.name) from error
