"""Zip files of data, unpacked once into this user's cache: `coco:export.zip` is read from a folder.

A file is unpacked again only if it is another one, which its SHA-256 says. Nothing but regular files is taken, below
the folder, and no more of them or of their bytes than the file declares.

**Privacy.** What is unpacked are the data themselves, unencrypted, after the command has ended: folders 0700, files
0600. `dpose data cache --clear` removes them.
"""

from __future__ import annotations

import shutil
import stat
import tempfile
import zipfile
from functools import lru_cache
from pathlib import Path

import platformdirs

from dpose.errors import DposeError
from dpose.files import explain_os_error, file_digest, leads_out, private_folder

MOST_FILES, MOST_BYTES = 2_000_000, 1 << 40
PARTS = ("annotations", "images", "labels", "train", "val", "valid", "test", "train2017", "val2017")
"""Folders of a data set; one alone in a zip file is no data set by itself."""
_AT_ONCE = 1 << 20


def unpacked_folder() -> Path:
    """Folder of data that were unpacked."""
    return platformdirs.user_cache_path("dpose") / "unpacked"


def unpacked(path: Path) -> Path:
    """Return the folder that a zip file's content stands in; unpack it if it is not there.

    Raises:
        DposeError: it is no zip file, holds what is no regular file or lies outside, or cannot be unpacked.
    """
    found = path.stat()
    folder = _unpacked(path.resolve(), found.st_mtime_ns, found.st_size)
    # who packs a folder gets a file that holds the folder, and with macOS another one beside it
    inside = [entry for entry in folder.iterdir() if entry.name != "__MACOSX" and entry.name[0] != "."]
    whole = len(inside) == 1 and inside[0].is_dir() and inside[0].name.lower() not in PARTS
    return inside[0] if whole else folder


@lru_cache(16)
def _unpacked(path: Path, changed: int, size: int) -> Path:
    top = unpacked_folder()
    if not private_folder(top):
        raise DposeError(
            "folder-not-private", "cannot be closed to others, and would hold private data", str(top)
        )
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
                raise DposeError(
                    "zip-too-large", "holds more than is unpacked", str(path), "unpack it by hand"
                )
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
