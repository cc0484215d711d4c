"""Files that a page has opened: dropped on it, or chosen in a folder. Each was decoded by a process with limits."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from dpose.errors import DposeError
from dpose.files import explain_os_error
from dpose.studio.children import answer
from dpose.studio.workplace import Workplace, open_private

MOST_BYTES = 2 << 30
"""Of a file that is dropped."""
KEPT = 6
"""Opened files that are kept; the one that was longest unused goes first."""


@dataclass
class OpenedFile:
    """A picture or clip.

    Attributes:
        id: Names it in requests.
        source: The file.
        room: A private folder of its own, with "pixels.npy" and "shown.jpg".
        facts: What the decoder found.
        caches: What previews keep.
        lock: Held by the preview at work.
    """

    id: str
    source: Path
    room: Path
    facts: dict[str, Any]
    caches: dict[Any, Any] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    @property
    def clip(self) -> bool:
        """Whether it is one."""
        return bool(self.facts["kind"] == "clip")

    @property
    def size(self) -> tuple[int, int]:
        """Height and width, pixels."""
        return self.facts["height"], self.facts["width"]

    @cached_property
    def pixels(self) -> Any:
        """A picture's pixels, or a clip's first frames; on disk until they are looked at."""
        import numpy as np

        return np.load(self.room / "pixels.npy", mmap_mode="c", allow_pickle=False)

    @cached_property
    def times(self) -> list[Fraction]:
        """A clip's time stamps, seconds."""
        return [Fraction(text) for text in self.facts.get("times", ())]

    def told(self) -> dict[str, Any]:
        """What a page is told of it."""
        names = ("kind", "height", "width", "channels", "frames", "seconds")
        return {"id": self.id, "name": self.source.name} | {
            k: self.facts[k] for k in names if k in self.facts
        }


class OpenedFiles:
    """All that are open."""

    def __init__(self, workplace: Workplace) -> None:
        self._workplace, self._files = workplace, OrderedDict[str, OpenedFile]()
        self._busy: set[str] = set()
        self._lock = Lock()

    async def receive(self, name: str, body: AsyncIterator[bytes]) -> Path:
        """Write what a browser sends into a private folder.

        Raises:
            DposeError: it is larger than allowed, or the disk is full.
        """
        room = self._workplace.room()
        path, size = room / safe_name(name), 0
        try:
            with os.fdopen(open_private(path), "wb") as file:
                async for chunk in body:
                    size += len(chunk)
                    if size > MOST_BYTES:
                        raise DposeError(
                            f"is larger than the {MOST_BYTES >> 20:,} MB that may be dropped", path.name
                        )
                    file.write(chunk)
        except BaseException as error:
            shutil.rmtree(room, ignore_errors=True)
            if isinstance(error, OSError):
                raise explain_os_error(error, path) from error
            raise
        return path

    def open(self, source: Path, room: Path | None = None) -> OpenedFile:
        """Decode a file.

        Args:
            source: It.
            room: The private folder that it lies in; a new one where it lies elsewhere.

        Raises:
            DposeError: it is no picture or clip, is broken, or passes a limit; then nothing is left of it.
        """
        room = room or self._workplace.room()
        try:
            facts = answer("decode", {"source": str(source), "room": str(room)})
        except DposeError as error:
            shutil.rmtree(room, ignore_errors=True)
            # a copy's own folder says nothing to whoever dropped it
            raise DposeError(error.line().replace(str(source), source.name)) from error
        made = OpenedFile(secrets.token_hex(8), source, room, facts)
        with self._lock:
            self._files[made.id] = made
            for old in [one for one in self._files if one not in self._busy][
                : max(0, len(self._files) - KEPT)
            ]:
                shutil.rmtree(self._files.pop(old).room, ignore_errors=True)
        return made

    def get(self, name: Any) -> OpenedFile:
        """The file of this id.

        Raises:
            DposeError: it is not open any more.
        """
        with self._lock:
            if str(name) not in self._files:
                raise DposeError("the file is not open any more", fix="choose it again")
            self._files.move_to_end(str(name))
            return self._files[str(name)]

    def hold(self, name: str, *, busy: bool) -> None:
        """Keep a file open for as long as a job reads it."""
        with self._lock:
            (self._busy.add if busy else self._busy.discard)(name)


def safe_name(name: str) -> str:
    """A file's own name, of the letters that names have; its folders and whatever hides in it are left out.

    >>> safe_name("../../etc/pass<wd>.png"), safe_name(".png")
    ('pass_wd_.png', 'file.png')
    """
    kept = re.sub(r"[^\w. ()+-]", "_", re.split(r"[/\\]", name)[-1]).strip()[-100:]
    return f"file{kept}" if not kept or kept.startswith(".") else kept
