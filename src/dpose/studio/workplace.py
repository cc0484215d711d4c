"""The private folder for copies of pictures while the studio runs: readable by its owner alone, removed at the end.

A studio that was killed leaves its folder; the next one removes it. A folder whose lock is held belongs to a studio
that runs.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from filelock import FileLock

from dpose.errors import DposeError
from dpose.files import explain_os_error, private_folder, take_lock
from dpose.privacy.keys import state_folder

LOCK = ".lock"


class Workplace:
    """A private folder, locked for as long as the studio runs.

    Raises:
        DposeError: the folder cannot be made, or cannot be made private.
    """

    def __init__(self, base: Path | None = None) -> None:
        base = base or state_folder() / "studio"
        if not private_folder(base):
            raise DposeError("folder-not-private", "cannot be made a folder of yours alone", str(base))
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
