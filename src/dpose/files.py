"""Writing to disk so that nothing is ever half-written: beside, flushed, then renamed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from dpose.errors import DposeError

SHIPPED = Path(__file__).parent / "weights"
"""The public weights that come with dpose: model folders."""
LOCK = ".lock"
"""The file in a folder that its lock stands for."""


def is_full(error: OSError) -> bool:
    """Whether `error` says that the disk is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def explain_os_error(error: OSError, path: Path) -> DposeError:
    """The `DposeError` a user should see for `error` on `path`."""
    if is_full(error):
        return DposeError("no space left on the disk", str(path), "free some, or choose another --out")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return DposeError("not allowed to write here", str(path), "choose a folder you own")
    return DposeError(error.strerror or str(error), str(path))


def file_digest(path: Path) -> str:
    """SHA-256 of a file of any length, in hexadecimal.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fsync_folder(folder: Path) -> None:
    """Make renames and new files in `folder` durable."""
    if os.name == "nt":  # Windows opens no folders, and its renames need none of this
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_file(path: Path) -> None:
    """Make what was written to `path` durable."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def take_lock(path: Path, *, wait: bool = False) -> FileLock | None:
    """The lock that the file `path` stands for: one process holds it, and its end lets it go, however it ends.

    The file is made where it is missing and stays: nothing is ever read from it, and to remove it would let two
    processes hold two locks of one name.

    Args:
        path: The lock's file, not the file that it guards.
        wait: Wait for whoever holds it.

    Returns:
        The lock, taken, to be released; None where it is held and `wait` is not set.

    Raises:
        DposeError: the file cannot be made.
    """
    # taken and released by whichever thread: a trainer may be closed by another one
    lock = FileLock(path, mode=0o600, thread_local=False)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        return None
    except OSError as error:
        raise explain_os_error(error, path) from error
    return lock


@contextlib.contextmanager
def locked_folder(path: Path, *, wait: bool = False) -> Iterator[None]:
    """The only process at work in the folder `path`, for as long as the block lasts.

    Args:
        path: The folder; a file ".lock" is left in it.
        wait: Wait for whoever is at work there.

    Raises:
        DposeError: another one is at work and `wait` is not set, or the folder is missing or may not be written to.
    """
    if not path.is_dir():
        raise explain_os_error(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)), path)
    lock = take_lock(path / LOCK, wait=wait)
    if lock is None:
        raise DposeError("another process is at work in this folder", str(path), "wait for it, or end it")
    try:
        yield
    finally:
        lock.release()


def write_atomic(path: Path, data: bytes | str, mode: int = 0o644) -> None:
    """Write `data` to `path` so that a reader sees the old file or the new one, never a part.

    Raises:
        DposeError: the disk is full, or the folder may not be written to.
    """
    raw = data.encode() if isinstance(data, str) else data
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
        fsync_folder(path.parent)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise explain_os_error(error, path) from error


def private_folder(path: Path) -> bool:
    """Make the folder `path` and keep everybody but its owner out of it (0700), and out of the files in it (0600).

    For what says something about private pictures and stands outside a run folder: fingerprints, decoded pictures,
    keys, accounts. A folder that was open before, and what lies in it, is closed.

    Returns:
        Whether it is ours alone. Not where it is a link or somebody else's, or cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != getattr(os, "getuid", lambda: found.st_uid)():
            return False
        if stat.S_IMODE(found.st_mode) & 0o077:
            path.chmod(0o700)
            for inside in path.rglob("*"):
                # others may be deleting here; nobody else comes in any more
                with contextlib.suppress(OSError):
                    if not inside.is_symlink():
                        inside.chmod(0o700 if inside.is_dir() else 0o600)
    except OSError:
        return False
    return True


def write_private(path: Path, data: bytes | str) -> None:
    """`write_atomic`, readable by nobody else (0600), in a folder that nobody else may enter (0700).

    Raises:
        DposeError: the disk is full, or the folder may not be written to.
    """
    private_folder(
        path.parent
    )  # one that cannot be closed is told by the write, or is its administrator's business
    write_atomic(path, data, mode=0o600)


def check_free(out: Path, *, may_be_empty: bool = False, may_be_locked: bool = False) -> None:
    """Refuse to write where something is already.

    Args:
        out: Where a folder shall be made.
        may_be_empty: Whether a folder with nothing in it will do.
        may_be_locked: Whether one will do, too, that `locked_folder` has left its file in and nobody anything else.

    Raises:
        DposeError: there is something.
    """
    left = {LOCK} if may_be_locked else set()
    free = may_be_empty and out.is_dir() and all(path.name in left for path in out.iterdir())
    if out.exists() and not free:
        raise DposeError("already exists", str(out), "choose another --out, or remove it first")


@contextlib.contextmanager
def folder_beside(path: Path, mode: int = 0o755) -> Iterator[Path]:
    """A new folder that becomes `path` when the block ends well, and vanishes when it does not.

    Args:
        path: Does not exist.
        mode: Who may look into it in the end; until then its owner alone.

    Raises:
        DposeError: `path` exists, the disk is full, or the parent may not be written to.
    """
    if path.exists():
        raise DposeError("already exists", str(path), "choose another name, or remove it first")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    except OSError as error:
        raise explain_os_error(error, path) from error
    try:
        yield temporary
        os.chmod(temporary, mode)
        os.replace(temporary, path)
        fsync_folder(path.parent)
    except OSError as error:
        raise explain_os_error(error, path) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
