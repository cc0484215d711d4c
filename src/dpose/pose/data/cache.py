"""Decoded pictures on disk, memory-mapped: a picture is decoded once, not once an epoch.

Whole decoded pictures are stored, not crops: a crop depends on the augmentation that was drawn, and one made from an
already resampled picture is not the same crop. So views are the same to the last bit with the cache and without.

**Where.** `dpose/pictures` in the user's cache folder (`platformdirs`), one `.npy` file a picture. Deleting it is
harmless: `dpose data cache --clear`.

**Privacy.** The cache holds the pictures themselves, private ones too, unencrypted, after the run has ended. The
folder is readable by its owner alone (0700, files 0600) and is not used if those permissions cannot be set. Turn the
cache off if copies of the pictures may not remain on this disk.

**Off, or smaller.** `DPOSE_PICTURE_CACHE=off`, or a number of bytes (`2G`). The default is `DEFAULT_BYTES`, and never
more than a quarter of the disk's free space.

**Stale.** An entry's name is a hash of the file's real path, inode, size, and times of modification and of change
(which a user cannot set), and of how it was decoded. A picture that was replaced has another name.

**Concurrent writers.** An entry is written to a temporary file and renamed; two processes that decode one picture write
the same bytes, and the last rename wins. A file that is damaged, or of another shape than its header, is decoded again.

**Full.** Entries unused for a day make room, oldest first. Otherwise nothing more is written: with pictures drawn at
random from a set larger than the cache, replacing any of them would only replace hits by other hits.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shutil
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import platformdirs
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from dpose.errors import DposeError
from dpose.files import open_regular, private_folder, write_private
from dpose.media.fingerprint import BITS, VERSION, fingerprint
from dpose.media.images import read_image

DEFAULT_BYTES = 4 * 2**30
SWITCH = "DPOSE_PICTURE_CACHE"

_VERSION = "pictures/1"
_DAY = 86_400.0
_RESCAN = 256 * 2**20  # other processes write too: after so many bytes of its own a writer looks again
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass
class _Room:
    """The folder's free size as far as this process knows."""

    left: int = 0
    since_scan: int = _RESCAN
    scanned: bool = False


class PictureCache:
    """Decoded pictures in a folder of the user's. Safe to use from several threads and processes.

    Args:
        folder: Created when first written to.
        limit: Bound on all files in it together, bytes. Processes that start at the same moment may together exceed it
            by at most 256 MiB each.
    """

    def __init__(self, folder: Path, limit: int = DEFAULT_BYTES) -> None:
        self.folder, self.limit = folder, limit
        self._room = _Room()
        self._lock = threading.Lock()
        self._usable: bool | None = None

    def read(self, path: Path, decode: Callable[[], NDArray[np.uint8]], how: str = "") -> NDArray[np.uint8]:
        """Return the decoded picture from the cache, or from `decode`, whose result is then stored.

        Args:
            path: The picture file.
            decode: Decodes it to uint8 (H, W, 3); its errors pass through.
            how: Anything that changes the result of `decode`.

        Returns:
            The picture; a read-only `np.memmap` if it came from the cache.
        """
        entry = self._entry(path, how)
        if entry is None or not self._private():
            return decode()
        held = _open(entry)
        if held is not None:
            return held
        image = decode()
        self._keep(entry, image)
        return image

    def size(self) -> tuple[int, int]:
        """Return the number of files and their total bytes."""
        sizes = [s.st_size for _, s in self._files()]
        return len(sizes), sum(sizes)

    def clear(self) -> tuple[int, int]:
        """Delete everything; return the number of files and their total bytes before."""
        before = self.size()
        try:
            shutil.rmtree(self.folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise DposeError(
                "folder-not-deletable", f"cannot be deleted ({error.strerror})", str(self.folder)
            ) from error
        with self._lock:
            self._room, self._usable = _Room(), None
        return before

    def _entry(self, path: Path, how: str) -> Path | None:
        try:
            real = path.resolve(strict=True)
            s = real.stat()
        except OSError:
            return None
        facts = (_VERSION, os.fsencode(real), s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns, how)
        key = hashlib.sha256(repr(facts).encode()).hexdigest()[:40]
        return self.folder / key[:2] / f"{key}.npy"

    def _private(self) -> bool:
        """Restrict the folder to its owner if possible; return whether it is."""
        with self._lock:
            if self._usable is None:
                self._usable = private_folder(self.folder)
            return self._usable

    def _keep(self, entry: Path, image: NDArray[np.uint8]) -> None:
        buffer = io.BytesIO()
        np.save(buffer, image, allow_pickle=False)
        data = buffer.getvalue()
        with self._lock:
            if self._room.since_scan >= _RESCAN or not self._room.scanned:
                try:
                    self._scan()
                except OSError:  # another process is clearing it; a cache only saves time
                    return
            if len(data) > self._room.left:
                return
            self._room.left -= len(data)
            self._room.since_scan += len(data)
        # a cache that cannot be written only costs time
        with contextlib.suppress(DposeError, OSError):
            write_private(entry, data)

    def _scan(self) -> None:
        """Compute the folder's size, and delete entries unused for a day if room is short."""
        entries = sorted(self._files(), key=lambda e: e[1].st_mtime)
        total = sum(s.st_size for _, s in entries)
        free = shutil.disk_usage(self.folder).free
        limit = min(self.limit, total + free // 4)
        old = time.time() - _DAY
        for path, s in entries:
            if total <= 0.9 * limit or s.st_mtime > old:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                total -= s.st_size
        self._room = _Room(limit - total, 0, True)

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        entries = []
        for number in range(256):
            paths: list[Path] = []
            with contextlib.suppress(OSError):  # another process may have deleted it, or may while we look
                paths = list((self.folder / f"{number:02x}").iterdir())
            for path in paths:
                with contextlib.suppress(OSError):
                    entries.append((path, path.stat()))
        return entries


def picture_cache() -> PictureCache | None:
    """Return the user's cache, or None if `DPOSE_PICTURE_CACHE` turns it off."""
    setting = os.environ.get(SWITCH, "").strip()
    limit = DEFAULT_BYTES
    if setting.lower() in ("off", "0", "no", "false"):
        return None
    if setting:
        match = re.fullmatch(r"(\d+)\s*([KMGT]?)(i?B)?", setting, re.IGNORECASE)
        if match is None:
            raise DposeError(
                "cache-size-malformed", "is no size", f"{SWITCH}={setting}", "write off, or bytes such as 500M or 8G"
            )
        limit = int(match[1]) * _UNITS[match[2].upper()]
    return PictureCache(Path(platformdirs.user_cache_dir("dpose")) / "pictures", limit)


def _open(entry: Path) -> NDArray[np.uint8] | None:
    try:
        image = np.load(entry, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if not isinstance(image, np.memmap) or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        return None
    with contextlib.suppress(OSError):
        if time.time() - entry.stat().st_mtime > _DAY:
            os.utime(entry)  # still in use: the next scan leaves it
    return image


_PATIENCE = 2.0  # seconds before a progress bar appears


def fingerprint_files(paths: Sequence[Path], title: str) -> NDArray[np.uint8]:
    """Return fingerprints of picture files, (N, 16) uint8 in the order of `paths`.

    Several threads read, with a progress bar on stderr once it takes over two seconds. The result is stored
    in the user's cache folder under a key made of the files' names, sizes and modification times;
    deleting it is harmless. Fingerprints are functions of private pictures without noise, by which a copy of one can be
    recognised: only the user can read them, and none are stored if those permissions cannot be set.

    Args:
        paths: The files; their names must differ.
        title: Title of the progress bar.
    """
    store = _store(paths)
    ours = private_folder(store.parent)
    known = _cached(store, len(paths)) if ours else None
    if known is not None:
        return known
    made = np.zeros((len(paths), BITS // 8), np.uint8)
    with _late_progress(title, len(paths)) as advance:
        pool = ThreadPoolExecutor()
        try:
            for row, bits in enumerate(pool.map(lambda path: fingerprint(read_image(path)), paths)):
                made[row] = bits
                advance()
        finally:
            pool.shutdown(cancel_futures=True)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, fingerprints=made)
    # a cache that cannot be written only costs the next run its time
    with contextlib.suppress(DposeError):
        if ours:
            write_private(store, buffer.getvalue())
    return made


def _store(paths: Sequence[Path]) -> Path:
    key = hashlib.sha256(VERSION.encode())
    for path in paths:
        try:
            stat = path.stat()
        except OSError as error:
            raise DposeError("file-unreadable", f"cannot be read ({error.strerror})", str(path)) from error
        key.update(f"{path.name}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return Path(platformdirs.user_cache_dir("dpose")) / "fingerprints" / f"{key.hexdigest()[:32]}.npz"


def _cached(store: Path, count: int) -> NDArray[np.uint8] | None:
    """Return the stored fingerprints, or None if they are unusable: a damaged cache is made again."""
    try:
        with open_regular(store) as opened, np.load(opened, allow_pickle=False) as archive:
            prints = archive["fingerprints"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    if prints.dtype != np.uint8 or prints.shape != (count, BITS // 8):
        return None
    return np.asarray(prints)


@contextlib.contextmanager
def _late_progress(title: str, total: int) -> Iterator[Callable[[], None]]:
    progress = Progress(console=Console(stderr=True), transient=True)
    task = progress.add_task(title, total=total)
    began, shown = time.monotonic(), False

    def advance() -> None:
        nonlocal shown
        progress.advance(task)
        if not shown and time.monotonic() - began > _PATIENCE:
            progress.start()
            shown = True

    try:
        yield advance
    finally:
        if shown:
            progress.stop()
