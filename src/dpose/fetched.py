"""Data in object stores, fetched once into this user's cache: `coco:s3://bucket/root` is read from a folder.

Each object is fetched whole, beside, then renamed. A record keeps, for each, the store's own tag and size and SHA-256
of what was fetched: an object is used again only where the store still has the same and the file is the one that was
fetched; anything else is fetched anew, and what the store no longer has is removed.

**Privacy.** What lies there are the data themselves, unencrypted, after the command has ended: folders 0700, files
0600. `dpose data cache --clear` removes them.

Zip files of data, unpacked once into this user's cache: `coco:export.zip` is read from a folder.

A file is unpacked again only if it is another one, which its SHA-256 says. Nothing but regular files is taken, below
the folder, and no more of them or of their bytes than the file declares.

**Privacy.** What is unpacked are the data themselves, unencrypted, after the command has ended: folders 0700, files
0600. `dpose data cache --clear` removes them.
"""

from __future__ import annotations

import json
import shutil
import stat
import tempfile
import zipfile
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import platformdirs
from rich.console import Console
from rich.progress import Progress

from dpose.errors import DposeError
from dpose.files import closed_folder, explain_os_error, file_digest, leads_out, take_lock, write_private
from dpose.remote import opened_store, staged, store_errors

MOST_FILES, MOST_BYTES = 2_000_000, 1 << 40
PARTS = ("annotations", "images", "labels", "train", "val", "valid", "test", "train2017", "val2017")
"""Folders of a data set; one alone in a zip file is no data set by itself."""
_AT_ONCE = 1 << 20


def unpacked_folder() -> Path:
    """Folder of data that were unpacked."""
    return platformdirs.user_cache_path("dpose") / "unpacked"


def unpacked(path: Path) -> Path:
    """Return the folder that a zip file's content stands in; unpack it if it is not there."""
    found = path.stat()
    folder = _unpacked(path.resolve(), found.st_mtime_ns, found.st_size)
    # who packs a folder gets a file that holds the folder, and with macOS another one beside it
    inside = [entry for entry in folder.iterdir() if entry.name != "__MACOSX" and entry.name[0] != "."]
    whole = len(inside) == 1 and inside[0].is_dir() and inside[0].name.lower() not in PARTS
    return inside[0] if whole else folder


@lru_cache(16)
def _unpacked(path: Path, changed: int, size: int) -> Path:
    top = unpacked_folder()
    closed_folder(top)
    try:
        folder = top / file_digest(path)
        if not folder.is_dir():
            beside = Path(tempfile.mkdtemp(dir=top, prefix=".unpacking-"))
            try:
                _unpack(path, beside)
                beside.replace(folder)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
    except OSError as error:
        if isinstance(error, FileExistsError) or folder.is_dir():  # another process was first
            return folder
        raise explain_os_error(error, path) from error
    return folder


def _unpack(path: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(path) as packed:
            entries = [entry for entry in packed.infolist() if not entry.is_dir()]
            if len(entries) > MOST_FILES or sum(entry.file_size for entry in entries) > MOST_BYTES:
                raise DposeError("zip-too-large", "holds more than is unpacked", str(path), "unpack it by hand")
            for entry in entries:
                mode = entry.external_attr >> 16
                odd = bool(stat.S_IFMT(mode)) and not stat.S_ISREG(mode)
                if odd or leads_out(entry.filename) or entry.flag_bits & 1:
                    raise DposeError(
                        "zip-entry-unusable",
                        f"{entry.filename!r} is encrypted, a link, or leads out of its folder",
                        str(path),
                        "unpack it by hand",
                    )
                _write(packed, entry, folder / entry.filename.replace("\\", "/"), path)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError) as error:
        raise DposeError("zip-invalid", f"is no zip file that can be read ({error})", str(path)) from error


def _write(packed: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, path: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    left = entry.file_size
    with packed.open(entry) as source, target.open("xb") as out:
        target.chmod(0o600)
        while chunk := source.read(_AT_ONCE):
            left -= len(chunk)
            if left < 0:  # zipfile stops there too; a declared size is no promise
                raise DposeError("zip-invalid", f"{entry.filename!r} is longer than it declares", str(path))
            out.write(chunk)


RECORD = ".fetched.json"


def fetched_folder() -> Path:
    """Folder of data that were fetched from stores."""
    return platformdirs.user_cache_path("dpose") / "stores"


def data_folder(url: str) -> Path:
    """Where the data at `url` (`dpose.remote.url_of`) stand, once they are fetched."""
    return staged(url, fetched_folder())


def fetch(url: str) -> Path:
    """Have all objects below `url` in `data_folder(url)`, as the store has them now.

    Args:
        url: As `dpose.remote.url_of` gives it.

    Returns:
        The folder.
    """
    folder = data_folder(url)
    top = fetched_folder()
    closed_folder(top)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = take_lock(folder.with_name(f".{folder.name}.lock"), wait=True)  # processes of one run fetch once
    assert lock is not None
    try:
        with store_errors(url):
            _fetch(url, folder)
    finally:
        lock.release()
    return folder


def _fetch(url: str, folder: Path) -> None:
    store, root = opened_store(url)
    there = {name[len(root) :].strip("/"): facts for name, facts in store.find(root, detail=True).items()}
    # a record says what is removed here: none is an object, where the store was filled from a fetched folder
    there = {name: facts for name, facts in there.items() if name and PurePosixPath(name).name != RECORD}
    if not there:
        raise FileNotFoundError(url)
    for name in there:
        if leads_out(name):
            raise DposeError(
                "object-name-escapes", f"{name!r:.80} is no name that an object may have", url, "rename it"
            )
    known = _record(folder)
    for name in known.keys() - there.keys():
        (folder / name).unlink(missing_ok=True)
    held: dict[str, dict[str, Any]] = {}
    console = Console(stderr=True)
    columns = Progress.get_default_columns()
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        shown = bar.add_task("fetching the data", total=sum(int(facts["size"]) for facts in there.values()))
        try:
            for name, facts in sorted(there.items()):
                held[name] = _one(store, root, folder / name, known.get(name), facts)
                bar.advance(shown, int(facts["size"]))
        finally:
            write_private(folder / RECORD, json.dumps({**known, **held}) + "\n")
    write_private(folder / RECORD, json.dumps(held) + "\n")


def _one(store: Any, root: str, file: Path, known: dict[str, Any] | None, facts: dict[str, Any]) -> dict[str, Any]:
    """One object as a file: the one that is there, where it is still the same."""
    tag = {"tag": str(_tag(facts)), "size": int(facts["size"])}
    same = known and tag["tag"] and {key: known.get(key) for key in tag} == tag
    if known and same and file.is_file() and file_digest(file) == known.get("sha256"):
        return known
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = file.with_name(f".{file.name}.part")
    store.get_file(facts["name"], str(part))
    part.chmod(0o600)
    if part.stat().st_size != tag["size"]:
        part.unlink()
        raise DposeError("object-changed", "was changed while it was fetched", facts["name"], "run the command again")
    digest = file_digest(part)
    part.replace(file)
    return {**tag, "sha256": digest}


def _tag(facts: dict[str, Any]) -> object:
    """What the store says of an object's content: S3's and Azure's ETag, Google's generation; else its time."""
    for key in ("ETag", "etag", "generation", "md5Hash", "LastModified", "last_modified", "mtime"):
        if facts.get(key):
            return facts[key]
    return ""


def _record(folder: Path) -> dict[str, dict[str, Any]]:
    """What was fetched before; {} where nothing can be read or it is not ours, and all is fetched anew."""
    try:
        found = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    whole = isinstance(found, dict) and all(isinstance(v, dict) and not leads_out(name) for name, v in found.items())
    return found if whole else {}


def stored_size(folder: Path) -> tuple[int, int]:
    """Return how many files a folder of data holds that were fetched or unpacked, and their bytes."""
    files = [f for f in folder.rglob("*") if f.is_file() and not f.name.startswith(".")]
    return len(files), sum(f.stat().st_size for f in files)


def forget_stored(folder: Path) -> None:
    """Remove all that was fetched or unpacked into a folder."""
    shutil.rmtree(folder, ignore_errors=True)
