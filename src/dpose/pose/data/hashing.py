"""Near copies of a picture: the same photograph saved again, resized, recoloured, or taken a moment later.

Files that show the same photograph seldom share a byte, so a cryptographic hash finds none of them. A
fingerprint here has 128 bits, half of each kind, and two pictures are near copies when few bits differ:

* 64 bits of the DCT: is each of the 8x8 lowest frequencies of a 32x32 copy above their median?
* 64 bits of gradients: in a 9x8 copy, is each pixel brighter than its left neighbour?

The two err on different pictures, so their sum separates better than either alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import platformdirs
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from dpose.errors import DposeError
from dpose.files import write_atomic
from dpose.media.images import read_image

BITS = 128
_VERSION = "dct64+gradient64/1"  # part of the cache's key: another fingerprint must not read this one's files
_PATIENCE = 2.0  # seconds before a progress bar appears


def fingerprint(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The 128-bit fingerprint of a uint8 (H, W, 3) RGB picture, packed into (16,) uint8."""
    gray = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    small = cv2.resize(gray, (32, 32), interpolation=cv2.INTER_AREA).astype(np.float32)
    low = cv2.dct(small)[:8, :8].ravel()
    # the first coefficient is the mean brightness; it would pull the median, so it has no say in it
    waves = low > np.median(low[1:])
    tiny = cv2.resize(gray, (9, 8), interpolation=cv2.INTER_AREA).astype(np.int16)
    gradients = (tiny[:, 1:] > tiny[:, :-1]).ravel()
    return np.packbits(np.concatenate([waves, gradients]))


def distances(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.int64]:
    """How many of the 128 bits differ: (N, 16) and (M, 16) packed fingerprints give (N, M)."""
    a, b = (2.0 * np.unpackbits(x, axis=1).astype(np.float32) - 1 for x in (first, second))
    return np.asarray(np.rint((BITS - a @ b.T) / 2), np.int64)


def near_any(pictures: NDArray[np.uint8], others: NDArray[np.uint8], threshold: int) -> NDArray[np.bool_]:
    """(N,), true for each of N fingerprints that at most `threshold` bits separate from one of `others`."""
    if not len(pictures) or not len(others):
        return np.zeros(len(pictures), bool)
    return np.asarray((distances(pictures, others) <= threshold).any(axis=1))


def fingerprint_files(paths: Sequence[Path], title: str) -> NDArray[np.uint8]:
    """Fingerprints of picture files, (N, 16) uint8 in the order of `paths`.

    Read by several threads, with a progress bar on stderr once it takes over two seconds. The result is
    kept in the user's cache folder under a key made of the files' names, sizes and modification times;
    deleting it is harmless.

    Args:
        paths: The files; their names must differ.
        title: What the progress bar says.

    Raises:
        DposeError: a file is missing, cut short or not a picture.
    """
    store = _store(paths)
    known = _cached(store, len(paths))
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
        write_atomic(store, buffer.getvalue())
    return made


def _store(paths: Sequence[Path]) -> Path:
    key = hashlib.sha256(_VERSION.encode())
    for path in paths:
        try:
            stat = path.stat()
        except OSError as error:
            raise DposeError(f"cannot be read ({error.strerror})", str(path)) from error
        key.update(f"{path.name}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return Path(platformdirs.user_cache_dir("dpose")) / "fingerprints" / f"{key.hexdigest()[:32]}.npz"


def _cached(store: Path, count: int) -> NDArray[np.uint8] | None:
    """What the cache holds, or None where it holds nothing usable: a damaged cache is made again."""
    try:
        with np.load(store, allow_pickle=False) as archive:
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
