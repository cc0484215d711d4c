"""Fingerprints of picture files, kept from one run to the next."""

from __future__ import annotations

import contextlib
import hashlib
import io
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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

_PATIENCE = 2.0  # seconds before a progress bar appears


def fingerprint_files(paths: Sequence[Path], title: str) -> NDArray[np.uint8]:
    """Fingerprints of picture files, (N, 16) uint8 in the order of `paths`.

    Read by several threads, with a progress bar on stderr once it takes over two seconds. The result is
    kept in the user's cache folder under a key made of the files' names, sizes and modification times;
    deleting it is harmless. Fingerprints are functions of private pictures without noise, by which a copy of one can be
    recognised: only the user can read them, and none are kept where that cannot be had.

    Args:
        paths: The files; their names must differ.
        title: What the progress bar says.

    Raises:
        DposeError: a file is missing, cut short or not a picture.
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
    """What the cache holds, or None where it holds nothing usable: a damaged cache is made again."""
    try:
        with open_regular(store) as opened, np.load(opened, allow_pickle=False) as archive:
            found = archive["fingerprints"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    if found.dtype != np.uint8 or found.shape != (count, BITS // 8):
        return None
    return np.asarray(found)


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
