"""A disk that loses what was not made durable: replayed from the system calls of a process (`calls`).

    disk = Disk({"/a": b"old"})
    disk.write("/b", 0, b"new"); disk.rename("/b", "/a")
    disk.after_power_cut(rng)           # {"/a": b"old"}, {"/a": b""}, {"/a": b"new"}, ...

What a file holds is durable when it was synced, what a folder lists when the folder was. Of all writes since, a power
cut keeps any part, in any order, the last one torn; of a folder's entries that were changed since, those up to any
moment, each folder for itself. That is less than ext4 or XFS keep, and what POSIX promises.
"""

from __future__ import annotations

import itertools
import posixpath
import random
from dataclasses import dataclass, field

Entries = dict[str, "Node"]


@dataclass
class Node:
    """A file or a folder.

    Attributes:
        content: A file's, as readers see it.
        safe: What of it is durable.
        pending: Writes since: offset and bytes, or a length that it was cut to.
        entries: A folder's, as readers see them; None of a file.
        safe_entries: Those that are durable.
        changed: What became of its entries since: name and node, or None where it was removed.
    """

    content: bytearray = field(default_factory=bytearray)
    safe: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    entries: Entries | None = None
    safe_entries: Entries = field(default_factory=dict)
    changed: list[list[tuple[str, Node | None]]] = field(default_factory=list)

    @classmethod
    def folder(cls) -> Node:
        """An empty folder."""
        return cls(entries={})

    def sync(self) -> None:
        """Make it durable."""
        if self.entries is None:
            self.safe, self.pending = bytes(self.content), []
        else:
            self.safe_entries, self.changed = dict(self.entries), []

    def after_power_cut(self, rng: random.Random, kept: float) -> bytes:
        """A content that a file may have after a power cut."""
        out = bytearray(self.safe)
        for offset, data in self.pending:
            if rng.random() >= kept:
                continue
            if data is None:
                _cut(out, offset)
            else:
                torn = rng.randrange(len(data) + 1) if kept < 1 and rng.random() < 0.3 else len(data)
                _put(out, offset, data[:torn])
        return bytes(out)


class Disk:
    """Folders and files below the root, which is durable from the beginning; so is what is there at first."""

    def __init__(self, files: dict[str, bytes] | None = None, folders: tuple[str, ...] = ()) -> None:
        self.root = Node.folder()
        for path in folders:
            self.mkdir(path, parents=True)
        for path, content in (files or {}).items():
            self.mkdir(posixpath.dirname(path), parents=True)
            self.write(path, 0, content)
        for node in self._all():
            node.sync()

    def _all(self) -> list[Node]:
        found, left = [], [self.root]
        while left:
            node = left.pop()
            found.append(node)
            left += (node.entries or {}).values()
        return found

    def find(self, path: str) -> Node | None:
        """What is at a path."""
        node: Node | None = self.root
        for part in path.strip("/").split("/"):
            if part:
                node = None if node is None or node.entries is None else node.entries.get(part)
        return node

    def _place(self, path: str) -> tuple[Node, str]:
        folder, name = posixpath.split(path)
        node = self.find(folder)
        if node is None or node.entries is None:
            raise FileNotFoundError(path)
        return node, name

    def _change(self, *changes: tuple[str, Node | None]) -> None:
        """Entries that change at once: those of one folder are kept or lost together."""
        by_folder: dict[int, tuple[Node, list[tuple[str, Node | None]]]] = {}
        for path, node in changes:
            folder, name = self._place(path)
            by_folder.setdefault(id(folder), (folder, []))[1].append((name, node))
        for folder, those in by_folder.values():
            assert folder.entries is not None
            _apply(folder.entries, those)
            folder.changed.append(those)

    def mkdir(self, path: str, *, parents: bool = False) -> None:
        """Make a folder."""
        if parents and path.strip("/"):
            self.mkdir(posixpath.dirname(path), parents=True)
        if path.strip("/") and self.find(path) is None:
            self._change((path, Node.folder()))

    def create(self, path: str) -> Node:
        """The file at a path, made where it is missing."""
        found = self.find(path)
        if found is None:
            found = Node()
            self._change((path, found))
        return found

    def write(self, path: str, offset: int, data: bytes) -> None:
        """Write to the file at a path."""
        write(self.create(path), offset, data)

    def rename(self, old: str, new: str) -> None:
        """Rename; what had the new name is gone."""
        node = self.find(old)
        if node is None:
            raise FileNotFoundError(old)
        self._change((old, None), (new, node))

    def link(self, old: str, new: str) -> None:
        """Give a file another name."""
        self._change((new, self.find(old)))

    def remove(self, path: str) -> None:
        """Remove a file or a folder."""
        self._change((path, None))

    def now(self) -> dict[str, bytes]:
        """All files as readers see them."""
        return {path: bytes(node.content) for path, node in _files(self.root, lambda node: node.entries or {})}

    def after_power_cut(self, rng: random.Random) -> tuple[dict[str, bytes], list[str]]:
        """Files and folders as they may be after a power cut."""
        kept = rng.choice((0.0, 0.0, 1.0, rng.random(), rng.random()))
        chosen: dict[int, Entries] = {}

        def entries(node: Node) -> Entries:
            if id(node) not in chosen:
                out = dict(node.safe_entries)
                last = {0.0: 0, 1.0: len(node.changed)}.get(kept, rng.randrange(len(node.changed) + 1))
                for change in itertools.islice(node.changed, last):
                    _apply(out, change)
                chosen[id(node)] = out
            return chosen[id(node)]

        contents: dict[int, bytes] = {}
        files = {}
        folders = [path for path, _ in _folders(self.root, entries)]
        for path, node in _files(self.root, entries):
            if id(node) not in contents:
                contents[id(node)] = node.after_power_cut(rng, kept)
            files[path] = contents[id(node)]
        return files, folders


def write(node: Node, offset: int, data: bytes) -> None:
    """Write to a file."""
    _put(node.content, offset, data)
    node.pending.append((offset, data))


def truncate(node: Node, length: int) -> None:
    """Cut a file, or fill it up with zeros."""
    _cut(node.content, length)
    node.pending.append((length, None))


def _put(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _cut(content: bytearray, length: int) -> None:
    del content[length:]
    content.extend(bytes(length - len(content)))


def _apply(entries: Entries, changes: list[tuple[str, Node | None]]) -> None:
    for name, node in changes:
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _folders(node, entries, path=""):
    yield path or "/", node
    for name, found in entries(node).items():
        if found.entries is not None:
            yield from _folders(found, entries, f"{path}/{name}")


def _files(node, entries, path=""):
    for name, found in entries(node).items():
        if found.entries is None:
            yield f"{path}/{name}", found
        else:
            yield from _files(found, entries, f"{path}/{name}")
