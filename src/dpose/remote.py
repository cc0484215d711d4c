"""Files in object stores, `s3://`, `gs://` and `az://` (by fsspec), as folders of this machine while a command works.

What is read is copied into a folder of the user's state, which no other user may enter, and removed in the end. What is
written is made there, whole, and then put into the store under a name that nothing has: with S3's `If-None-Match: *`,
and what other stores have for it. A store shows an object once it is complete, so nothing there is ever half-written.
Only lists are replaced, by what they have grown to. What was put is written down beside it; an interrupted command that
is given again puts the rest.

Credentials come from the environment alone, as each store's own client reads them, and are never passed on.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Collection, Iterator
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

from dpose.errors import DposeError
from dpose.files import file_digest, file_text, fsync_file, private_folder

# a Path has one slash where its URL had two
_URL = re.compile(r"(s3|gs|az|file):/{1,2}(.*)", re.DOTALL)
_PUT = ".put"
_LIST = ".jsonl"
_CLIENTS = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs"}
_SINCE = (2024, 12)  # clients of before take `mode="create"` and replace what is there


def url_of(place: str | Path) -> str | None:
    """The URL that `place` is, with both its slashes; None for a path of this machine.

    >>> url_of(Path("s3://ward/released")), url_of("released")
    ('s3://ward/released', None)
    """
    match = _URL.fullmatch(str(place))
    if match is None or match[1] == "file":
        return None
    store, rest = match.groups()
    bucket, _, key = rest.partition("/")
    if "@" in bucket or ":" in bucket or "?" in rest:  # never told: it may be a secret
        raise DposeError(
            "url-with-credentials",
            "holds credentials or a query",
            f"{store}://...",
            "name bucket and key; credentials: environment",
        )
    if not bucket or ".." in PurePosixPath(rest).parts:
        raise DposeError(
            "url-without-bucket", "names no place in a bucket", f"{store}://{rest}", f"say {store}://BUCKET/KEY"
        )
    return f"{store}://{bucket}/{key}".rstrip("/")


def local_path(place: str | Path) -> Path:
    """`place` without `file://`."""
    match = _URL.fullmatch(str(place))
    return Path("/", match[2]) if match and match[1] == "file" else Path(place)


@contextlib.contextmanager
def store_errors(url: str) -> Iterator[None]:
    """A store's errors in one line, without the words of its client, which may quote what it was given."""
    try:
        yield
    except DposeError:
        raise
    except FileNotFoundError as error:
        raise DposeError("object-missing", "does not exist, or not for you", url) from error
    except PermissionError as error:
        raise DposeError("store-denied", "the store refused", url, "give its credentials in the environment") from error
    except ImportError as error:
        raise DposeError("package-missing", "needs the store's client", url, f"pip install {_client(url)}") from error
    except Exception as error:  # each client has its own
        raise DposeError("store-failed", f"the store failed ({type(error).__name__})", url) from None


def copy_here(url: str, below: Path, *, missing_ok: bool = False) -> Path:
    """Copy what is at `url`, an object or all below it, into the folder `below`, for its owner alone.

    Args:
        url: As `url_of` gives it.
        below: Of this machine.
        missing_ok: Whether nothing may be there; the bucket must be.

    Returns:
        Where it is now: a path that ends like the URL. Files that were there already stay.
    """
    target = staged(url, below)
    private_folder(below)
    with store_errors(url):
        store, root = opened_store(url)
        found = store.find(root)
        if not found:
            store.ls(root.partition("/")[0], refresh=True)  # a bucket that is missing or refuses says so
            if not missing_ok:
                raise FileNotFoundError(url)
        for name in found:
            below_root = name[len(root) :].strip("/")
            if ".." in PurePosixPath(below_root).parts:
                raise DposeError("object-name-escapes", "an object's name leaves its folder", url, "rename it")
            file = target / below_root if below_root else target
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                part = file.with_name(f".{file.name}.part")
                store.get_file(name, str(part))
                part.replace(file)
    return target


def staged(url: str, below: Path) -> Path:
    """The place of `url` in the folder `below`."""
    return below / url.replace("://", "/", 1)


def put_all(path: Path, url: str, but: Collection[str] = ()) -> int:
    """Put the files at `path` into the store; those that a record beside them names were put before.

    Args:
        path: A folder with all below it, or a file with what has its name and another suffix. Names that begin with a
            dot are the folder's own.
        url: What `path` is there.
        but: Names of folders in `path` that stay here.

    Returns:
        How many were put now.
    """
    whole = path.is_dir()
    root, base = (path, url) if whole else (path.parent, url.rpartition("/")[0])
    found = root.rglob("*") if whole else root.glob(f"{path.stem}.*")
    files = [f for f in sorted(found) if f.is_file() and not f.name.startswith(".")]
    files = [f for f in files if f.relative_to(root).parts[0] not in but]
    record = root / _PUT
    known = set(file_text(record).splitlines()) if record.exists() else set()
    count = 0
    for file in files:
        name = file.relative_to(root).as_posix()
        line = f"{file_digest(file)} {base}/{name}"
        if line in known:
            continue
        put_new(file, f"{base}/{name}")
        with record.open("a", encoding="utf-8") as lines:
            lines.write(line + "\n")
        fsync_file(record)
        count += 1
    return count


def put_new(file: Path, url: str) -> None:
    """Put a file where nothing is; that it is there already, to the last bit, is as good.

    A list (`.jsonl`) only grows: a longer one takes the place of its own beginning, which a command has put that was
    cut short, or in which a file failed, and that was given again.
    """
    check_puts(url)
    with store_errors(url):
        store, name = opened_store(url)
        try:
            store.put_file(str(file), name, mode="create")
        except Exception as error:
            # an answer may be lost after the object was made: it is looked at before anything is said
            try:
                there = store.cat_file(name)
            except Exception:
                raise error from None
            if hashlib.sha256(there).hexdigest() == file_digest(file):
                return
            if file.suffix != _LIST or not file.read_bytes().startswith(there):
                raise DposeError("object-exists", "another object is there", url, "choose another --out") from None
            store.put_file(str(file), name)


def check_puts(url: str) -> None:
    """Refuse a client that would replace what is there.

    Raises:
        DposeError: it is too old.
    """
    with store_errors(url):
        try:
            version = metadata.version(_CLIENTS[url.partition("://")[0]])
        except metadata.PackageNotFoundError as error:
            raise ImportError from error
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < _SINCE:
        raise DposeError(
            "package-too-old",
            f"its client {version} is too old to leave alone what is there",
            url,
            f"pip install --upgrade {_client(url)}",
        )


def _client(url: str) -> str:
    client = _CLIENTS[url.partition("://")[0]]
    return "'fsspec>=2024.12' 's3fs>=2024.12'" if client == "s3fs" else f"'{client}>={_SINCE[0]}.{_SINCE[1]}'"


def check_nothing_at(url: str) -> None:
    """Refuse to write where objects are already.

    Raises:
        DposeError: there are, the bucket is missing, or the store refuses.
    """
    check_puts(url)
    with store_errors(url):
        store, root = opened_store(url)
        if store.find(root):
            raise DposeError("object-exists", "is there already", url, "choose another --out")
        store.ls(root.partition("/")[0], refresh=True)  # a bucket that is missing or refuses says so


def opened_store(url: str) -> tuple[Any, str]:
    """The store's client, which remembers no listing, and the name of `url` there."""
    import fsspec

    store, name = fsspec.core.url_to_fs(url, use_listings_cache=False)
    return store, name
