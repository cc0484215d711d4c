"""Files that a page has opened: dropped on it, or chosen in a folder. Each was decoded by a process with limits."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from dpose.errors import DposeError
from dpose.files import explain_os_error
from dpose.studio.jobs import DECODE_SECONDS, answer
from dpose.studio.roots import Roots, Workplace, open_private

MOST_BYTES = 2 << 30
"""Largest size of a dropped file, bytes."""
KEPT = 6
"""Largest number of opened files; the least recently used one is closed first."""
DIGESTED = 100 << 20
"""Bytes of a file that can be hashed within a second."""
DROPPED = "dropped"
"""The folder in a room that a dropped file lies in, whatever its name."""
CLOSED = ("the file is not open any more", "", "choose it again")
LONGEST_NAME = 100
"""Longest stored name of a dropped file, bytes."""


@dataclass
class OpenedFile:
    """An opened picture or clip.

    Attributes:
        id: Names it in requests.
        source: The file.
        roots: Folders that the file must be in whenever it is read.
        room: A private folder that the studio alone writes into: "pixels.npy", "shown.jpg", "predicted.jpg". A file
            that was dropped lies in a folder below it.
        facts: The decoder's answer, with the digest of the bytes that it decoded.
        caches: Arrays that previews reuse.
        lock: Held while a preview is computed.
    """

    id: str
    source: Path
    roots: Roots
    room: Path
    facts: dict[str, Any]
    caches: dict[Any, Any] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    @property
    def dropped(self) -> bool:
        """True for a copy of a file that a browser sent."""
        return self.source.is_relative_to(self.room)

    def task(self, **more: Any) -> dict[str, Any]:
        """Input of a worker that reads the file again: it refuses other bytes, and files outside the roots."""
        roots = [str(folder) for folder in self.roots.folders]
        return {"source": str(self.source), "roots": roots, "digest": self.facts["digest"], **more}

    @property
    def clip(self) -> bool:
        """True for a clip, False for a picture."""
        return bool(self.facts["kind"] == "clip")

    @property
    def size(self) -> tuple[int, int]:
        """Height and width, pixels."""
        return self.facts["height"], self.facts["width"]

    @cached_property
    def pixels(self) -> Any:
        """A picture's pixels, or a clip's first frames; on disk until they are looked at."""
        import numpy as np

        try:
            return np.load(self.room / "pixels.npy", mmap_mode="c", allow_pickle=False)
        except OSError as error:
            raise DposeError("file-not-open", *CLOSED) from error

    @cached_property
    def times(self) -> list[Fraction]:
        """A clip's time stamps, seconds."""
        return [Fraction(text) for text in self.facts.get("times", ())]

    def as_json(self) -> dict[str, Any]:
        """The opened file as JSON for the page."""
        names = ("kind", "height", "width", "channels", "frames", "seconds")
        return {"id": self.id, "name": self.source.name} | {k: self.facts[k] for k in names if k in self.facts}


class OpenedFiles:
    """All opened files."""

    def __init__(self, workplace: Workplace) -> None:
        self._workplace, self._files = workplace, OrderedDict[str, OpenedFile]()
        self._busy = Counter[str]()
        self._lock = Lock()

    async def receive(self, name: str, body: AsyncIterator[bytes]) -> Path:
        """Write an upload into a private folder below the one that the studio writes into."""
        room = self._workplace.room()
        path, size = room / DROPPED / safe_name(name), 0
        try:
            path.parent.mkdir(mode=0o700)
            with os.fdopen(open_private(path), "wb") as file:
                async for chunk in body:
                    size += len(chunk)
                    if size > MOST_BYTES:
                        raise DposeError(
                            "file-too-large",
                            f"is larger than the {MOST_BYTES >> 20:,} MB that may be dropped",
                            path.name,
                        )
                    file.write(chunk)
        except BaseException as error:
            shutil.rmtree(room, ignore_errors=True)
            if isinstance(error, OSError):
                raise explain_os_error(error, path) from error
            raise
        return path

    def open(self, source: Path, roots: Roots | None = None) -> OpenedFile:
        """Decode a file.

        Args:
            source: The file.
            roots: Folders that it must be in; None for a file that was received.

        Raises:
            DposeError: it is no picture or clip, is broken, or passes a limit; then nothing is left of it.
        """
        room = self._workplace.room() if roots else source.parent.parent
        roots = roots or Roots((source.parent,))
        folders = [str(folder) for folder in roots.folders]
        try:
            # the whole file is read for its digest
            seconds = DECODE_SECONDS + source.stat().st_size / DIGESTED
            facts = answer("decode", {"source": str(source), "roots": folders, "room": str(room)}, seconds=seconds)
        except OSError as error:
            shutil.rmtree(room, ignore_errors=True)
            raise DposeError("file-unreadable", f"cannot be read ({error.strerror})", source.name) from error
        except DposeError as error:
            shutil.rmtree(room, ignore_errors=True)
            # the folder of a copy means nothing to the user who dropped the file
            raise DposeError(error.code, error.line().replace(str(source), source.name)) from error
        made = OpenedFile(secrets.token_hex(8), source, roots, room, facts)
        with self._lock:
            self._files[made.id] = made
            for old in [one for one in self._files if not self._busy[one]][: max(0, len(self._files) - KEPT)]:
                shutil.rmtree(self._files.pop(old).room, ignore_errors=True)
        return made

    def get(self, name: Any) -> OpenedFile:
        """The opened file with this id."""
        with self._lock:
            if str(name) not in self._files:
                raise DposeError("file-not-open", *CLOSED)
            self._files.move_to_end(str(name))
            return self._files[str(name)]

    def hold(self, name: str, *, busy: bool) -> None:
        """Count the jobs that will read a file: it stays open until the last of them has ended.

        Raises:
            DposeError: it is not open any more.
        """
        with self._lock:
            if busy and name not in self._files:
                raise DposeError("file-not-open", *CLOSED)
            self._busy[name] += 1 if busy else -1


def safe_name(name: str) -> str:
    """The last part of a path as a safe file name: no folders, no unusual characters, not hidden.

    >>> safe_name("../../etc/pass<wd>.png"), safe_name(".png")
    ('pass_wd_.png', 'file.png')
    """
    letters = re.sub(r"[^\w. ()+-]", "_", re.split(r"[/\\]", name)[-1]).strip()
    letters = letters.encode()[-LONGEST_NAME:].decode(errors="ignore")
    return f"file{letters}" if not letters or letters.startswith(".") else letters
