"""Reading what is a file and nothing else, and writing so that nothing is ever half-written: beside, then renamed."""

from __future__ import annotations

import codecs
import contextlib
import csv
import errno
import glob
import hashlib
import io
import json
import os
import re
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from io import BufferedReader
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

from filelock import FileLock, Timeout

from dpose.errors import DposeError

SHIPPED = Path(__file__).parent / "weights"
"""The public weights that come with dpose: model folders."""
LOCK = ".lock"
"""The file in a folder that its lock stands for."""

LONGEST_TEXT = 1 << 28
"""Bytes of the longest text (statements, logs, lists) that is read; a longer file is not what it is taken for."""
LONGEST_SETTINGS = 1 << 20
"""Bytes of the longest settings in YAML, whose reader takes seconds for each megabyte."""
LARGEST_MAPPING = 10_000
"""Keys of the largest mapping in YAML."""


def is_shipped(folder: Path) -> bool:
    """Whether a folder lies among the weights that come with dpose, where nothing is to be written."""
    return folder.resolve().is_relative_to(SHIPPED.resolve())


def is_full(error: OSError) -> bool:
    """Whether `error` says that the disk is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def explain_os_error(error: OSError, path: Path) -> DposeError:
    """The `DposeError` a user should see for `error` on `path`."""
    if is_full(error):
        return DposeError("disk-full", "no space left on the disk", str(path), "free some, or choose another --out")
    import platformdirs

    if path.is_relative_to(platformdirs.user_state_path("dpose")):
        said = f"keys and accounts cannot be written here ({error.strerror or error})"
        return DposeError("state-unwritable", said, str(path), "set XDG_STATE_HOME to a folder that you may write to")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return DposeError("write-denied", "not allowed to write here", str(path), "choose a folder you own")
    return DposeError("file-access-failed", error.strerror or str(error), str(path))


def open_regular(path: str | Path) -> BufferedReader:
    """Open a regular file, or a link to one, to be read. Never waits, as opening a FIFO would.

    Raises:
        OSError: it cannot be opened, or is a FIFO, a device, a socket or a folder.
    """
    # a device may do something when it is opened, so it is not; what is opened may be another file by then
    _check_regular(os.stat(path), path)
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0))
    try:
        _check_regular(os.fstat(descriptor), path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _check_regular(found: os.stat_result, path: str | Path) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def file_bytes(path: str | Path, limit: int | None = None) -> bytes:
    """A regular file's content, read once: digests are to be taken of what is returned, not of the file again.

    Args:
        path: The file.
        limit: Bytes of the longest that is read; any length by default.

    Raises:
        OSError: it cannot be read, is not a regular file (`open_regular`), or is longer.
    """
    with open_regular(path) as file:
        if limit is None:
            return file.read()
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"longer than {limit:,} bytes", str(path))
    return content


def file_text(path: str | Path, *, encoding: str = "utf-8", errors: str = "strict", limit: int = LONGEST_TEXT) -> str:
    """A regular file's text, its lines ended by newlines alone.

    Raises:
        OSError: as `file_bytes`.
        UnicodeDecodeError: it is no such text.
    """
    return io.TextIOWrapper(io.BytesIO(file_bytes(path, limit)), encoding, errors).read()


def edited_text(raw: bytes) -> str:
    """Text as editors and table programs save it: UTF-8, with a mark or without, or UTF-16 with one.

    Raises:
        UnicodeDecodeError: it is no such text.
    """
    return raw.decode("utf-16" if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig")


def file_table(path: str | Path) -> tuple[list[str], list[dict[str, str]]]:
    """The columns and the rows of a CSV file, by commas, semicolons or tabs (`edited_text`); empty rows are left out.

    Raises:
        OSError: as `file_bytes`.
        ValueError: it is no such table.
    """
    text = edited_text(file_bytes(path, LONGEST_TEXT))
    head = text.partition("\n")[0]
    table = csv.DictReader(io.StringIO(text), delimiter=max(",;\t", key=head.count), strict=True)
    try:
        columns = list(table.fieldnames or ())
        return columns, [{name: row[name] or "" for name in columns} for row in table if any(row.values())]
    except csv.Error as error:
        raise ValueError(str(error)) from error


def read_bytes(path: str | Path) -> bytes:
    """A file's content, as `file_bytes`; a file that cannot be read is one line."""
    try:
        return file_bytes(Path(path))
    except OSError as error:
        raise DposeError("file-unreadable", f"cannot be read ({error.strerror})", str(path)) from error


def file_json(path: str | Path, *, limit: int = LONGEST_TEXT) -> Any:
    """What a regular file of JSON, in UTF-8, holds.

    Raises:
        OSError: as `file_bytes`.
        ValueError: as `parsed_json`.
    """
    return parsed_json(file_text(path, limit=limit))


def parsed_json(text: str | bytes) -> Any:
    """What JSON says, and says once: of a key twice, readers take the first or the last, and what is read differs.

    Raises:
        ValueError: it is no JSON, is nested too deeply, or has a key twice.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r:.40} stands there twice")
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def json_text(value: Any, indent: int | None = None) -> str:
    """`value` as JSON that people can read and any file can hold.

    Letters beyond ASCII stay as they are, but for names of files that are no UTF-8: such bytes have no letters, and are
    escaped.
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent)
    return text


def file_yaml(path: str | Path) -> Any:
    """What a regular file of YAML holds, by its plain types; no longer than `LONGEST_SETTINGS`.

    Mappings that merge others ("<<") into ever more keys, of which a few lines make a billion, are refused.

    Raises:
        OSError: as `file_bytes`.
        ValueError: it is no such YAML.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def flatten_mapping(self, node: Any) -> None:
            super().flatten_mapping(node)
            if len(node.value) > LARGEST_MAPPING:
                raise yaml.YAMLError(f"a mapping of more than {LARGEST_MAPPING:,} keys")

    try:
        return yaml.load(file_bytes(path, LONGEST_SETTINGS), Loader)  # noqa: S506  (a safe loader)
    # a date that does not exist is a ValueError, a list in a list in a list ... a RecursionError
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from error


def file_digest(path: Path) -> str:
    """SHA-256 of a regular file of any length, in hexadecimal.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def leads_out(name: str) -> bool:
    """Whether a file name from a label file is impossible, absolute, or climbs out of its folder."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:  # half a surrogate pair: no file is called that
        return True
    parts = PurePosixPath(name.replace("\\", "/"))
    drive = os.name == "nt" and name[1:2] == ":"
    return not name or "\0" in name or parts.is_absolute() or ".." in parts.parts or drive


def leads_outside(file: Path, folder: Path) -> bool:
    """Whether a file in a folder is a link, or lies behind one, to what is not in that folder."""
    return not file.resolve().is_relative_to(folder.resolve())


def same_file_check(path: Path) -> Callable[[], None]:
    """A check for code that reads a file by name more than once: it refuses a file that changed since this was called.

    A change is seen by the file's node, size and times, of which the system sets the last; so two changes within one
    tick of its clock (some milliseconds) may be taken for one.

    Returns:
        The check, which raises a `DposeError` where the file was changed, exchanged or removed.
    """

    def state() -> tuple[int, ...]:
        try:
            found = os.stat(path)
        except OSError as error:
            raise DposeError("file-unreadable", f"cannot be read ({error.strerror})", str(path)) from error
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    before = state()

    def check() -> None:
        if state() != before:
            raise DposeError("file-changed", "was changed while it was read", str(path), "run the command again")

    return check


@contextlib.contextmanager
def unchanged(*paths: Path) -> Iterator[None]:
    """A block throughout which files are as they were (`same_file_check`)."""
    checks = [same_file_check(path) for path in paths]
    yield
    for check in checks:
        check()


def fsync_folder(folder: Path) -> None:
    """Make renames and new files in `folder` durable."""
    if os.name == "nt":  # Windows opens no folders, and its renames need none of this
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make the folder `path` and those above it, so that a power cut does not take away what is written there next.

    Args:
        path: It may be there.
        mode: Of the folder; of those above it, the usual one.

    Raises:
        OSError: it cannot be made, or is no folder.
    """
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode, exist_ok=True)
    with contextlib.suppress(PermissionError):  # of a folder that may be written to and not be read
        fsync_folder(path.parent)


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
        wait: Wait for anyone who holds it.

    Returns:
        The lock, taken, to be released; None if it is held and `wait` is not set.
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
        wait: Wait for anyone who is at work there.
    """
    if not path.is_dir():
        raise explain_os_error(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)), path)
    lock = take_lock(path / LOCK, wait=wait)
    if lock is None:
        raise DposeError(
            "folder-busy", "another process is at work in this folder", str(path), "wait for it, or end it"
        )
    try:
        yield
    finally:
        lock.release()


_UMASK = threading.Lock()


def umask() -> int:
    """What is taken from everybody's rights of a new file. A process has one, which is read by setting it."""
    with _UMASK:
        found = os.umask(0o077)
        os.umask(found)
    return found


def write_atomic(path: Path, data: bytes | str, mode: int = 0o666) -> None:
    """Write `data` to `path` so that a reader sees the old file or the new one, never a part; `mode` less the umask."""
    raw = data.encode() if isinstance(data, str) else data
    temporary = ""
    try:
        make_folder(path.parent)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode & ~umask())
        os.replace(temporary, path)
        fsync_folder(path.parent)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise explain_os_error(error, path) from error


def closed_folder(path: Path) -> None:
    """`private_folder`, refused where it is not ours alone: for what would give others the data, or run as us."""
    if not private_folder(path):
        said = "is a link or another user's, and cannot be closed to others"
        raise DposeError("folder-not-private", said, str(path), "remove it, or choose another place")


def private_folder(path: Path) -> bool:
    """Make the folder `path` and keep everybody but its owner out of it (0700), and out of the files in it (0600).

    For what says something about private pictures and stands outside a run folder: fingerprints, decoded pictures,
    keys, accounts. A folder that was open before, and what lies in it, is closed.

    Returns:
        Whether it is ours alone. Not where it is a link or somebody else's, or cannot be made.
    """
    try:
        make_folder(path, 0o700)
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != getattr(os, "getuid", lambda: found.st_uid)():
            return False
        if stat.S_IMODE(found.st_mode) & 0o077:
            path.chmod(0o700)
            for inside in path.rglob("*"):
                # others may be deleting here; no other user can enter any more
                with contextlib.suppress(OSError):
                    if not inside.is_symlink():
                        inside.chmod(0o700 if inside.is_dir() else 0o600)
    except OSError:
        return False
    return True


def write_private(path: Path, data: bytes | str) -> None:
    """Write a file as `write_atomic` does, readable by its owner alone (0600), in a folder closed to others (0700)."""
    private_folder(path.parent)  # one that cannot be closed is told by the write, or is its administrator's business
    write_atomic(path, data, mode=0o600)


def check_free(out: Path, *, may_be_empty: bool = False, may_be_locked: bool = False) -> Path:
    """Refuse to write where something is already; the nearest folder above that is there.

    Args:
        out: Where a folder shall be made.
        may_be_empty: Whether a folder with nothing in it will do.
        may_be_locked: Whether a folder will do, too, that holds only the file that `locked_folder` leaves.

    Raises:
        DposeError: there is something.
    """
    left = {LOCK} if may_be_locked else set()
    free = may_be_empty and out.is_dir() and all(path.name in left for path in out.iterdir())
    if os.path.lexists(out) and not free:
        what = "already exists" if out.exists() else "is a link to nothing"
        raise DposeError("output-exists", what, str(out), "choose another name, or remove it first")
    above = next(path for path in out.absolute().parents if os.path.lexists(path))
    if not above.is_dir():
        what = "file" if above.exists() else "link to nothing"
        raise DposeError(
            "output-below-file", f"cannot be made, since {above} is a {what}", str(out), "choose another name"
        )
    return above


def place_inside(folder: Path, out: Path | None) -> Path | None:
    """Where in `folder` an output stands, so that it is not read as an input there; None where it stands elsewhere."""
    root, target = folder.resolve(), out and out.resolve()
    return target.relative_to(root) if target and root in target.parents else None


def fixed_folder(pattern: str) -> Path:
    """The folder of a glob that it names without a wildcard."""
    return Path(*takewhile(lambda part: not re.search(r"[*?[]", part), Path(pattern).parent.parts))


def matching(pattern: str, out: Path | None) -> list[Path]:
    """The files and folders that a glob matches, sorted, but for what stands in `out` below the glob's fixed folder."""
    root = fixed_folder(pattern)
    written = place_inside(root, out)
    found = map(Path, sorted(glob.glob(pattern, recursive=True)))
    return [path for path in found if not (written and path.is_relative_to(root / written))]


def check_place(out: Path, *, as_file: bool = False, may_stand: bool = False) -> None:
    """Refuse, before anything is spent on it, a place where a folder, or a file, could not be made in the end.

    Args:
        out: The place.
        as_file: Whether it is to be a file, which may be replaced.
        may_stand: Whether it may be a folder already, into which is written.

    Raises:
        DposeError: something else is there, or nothing can be written there.
    """
    above = out if may_stand and out.is_dir() else out.parent if as_file and out.is_file() else check_free(out)
    try:
        with tempfile.NamedTemporaryFile(dir=above, prefix=f".{out.name}."):
            pass
    except OSError as error:
        raise explain_os_error(error, out) from error


@contextlib.contextmanager
def folder_beside(path: Path, mode: int = 0o777) -> Iterator[Path]:
    """A new folder that becomes `path` when the block ends well, and vanishes when it does not.

    All that was written into it is durable before it has its name: what has one is whole, after a power cut too.

    Args:
        path: Does not exist.
        mode: Who may look into it in the end, less the umask; until then its owner alone.
    """
    if path.exists():
        raise DposeError("output-exists", "already exists", str(path), "choose another name, or remove it first")
    try:
        make_folder(path.parent)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    except OSError as error:
        raise explain_os_error(error, path) from error
    try:
        yield temporary
        for place, _, names in os.walk(temporary, topdown=False):
            for name in names:
                fsync_file(Path(place, name))
            fsync_folder(Path(place))
        os.chmod(temporary, mode & ~umask())
        os.replace(temporary, path)
        fsync_folder(path.parent)
    except OSError as error:
        raise explain_os_error(error, path) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
