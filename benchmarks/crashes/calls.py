"""The system calls of a process, recorded by strace, and what they do to a `Disk`.

SQLite's own writes and syncs are made in C, as are those of safetensors: so they are taken where all meet, at the
system. strace is needed to record, not to replay.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from crashes.disk import Disk, Node, truncate, write

TRACED = (
    "openat,open,creat,close,write,pwrite64,writev,pwritev,pwritev2,ftruncate,truncate,fallocate,lseek,rename,renameat,"
    "renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,link,linkat,symlink,symlinkat,fsync,fdatasync,sync,syncfs,"
    "sync_file_range,dup,dup2,dup3,sendfile,copy_file_range"
)
MARKS = "marks"
"""A file below the root: what is written to it is no part of the disk, and tells how far the process was."""


@dataclass(frozen=True)
class Call:
    """A system call that succeeded."""

    process: str
    name: str
    given: tuple[str, ...]
    result: int


def record(work: Callable[[], None], log: Path) -> list[Call]:
    """The calls of `work` in a process that is forked from this one.

    Raises:
        RuntimeError: it failed.
    """
    child = os.fork()
    if not child:
        code = 1
        try:
            os.kill(os.getpid(), signal.SIGSTOP)
            work()
            code = 0
        finally:
            os._exit(code)
    os.waitpid(child, os.WUNTRACED)
    whole = ["-f", "-y", "-xx", "-s", "100000000", "-e", f"trace={TRACED}"]
    command = ["strace", *whole, "-o", str(log), "-p", str(child)]
    tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 20
    while "TracerPid:\t0" in Path(f"/proc/{child}/status").read_text() and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(child, signal.SIGCONT)
    _, status = os.waitpid(child, 0)
    tracer.wait(60)
    if status:
        raise RuntimeError(f"the recorded process ended with {status}")
    return list(parsed(log.read_text().splitlines()))


_LINE = re.compile(r"(\d+)\s+(.*)")
_CALL = re.compile(r"(\w+)\((.*)\)\s+= (-?\d+)")


def parsed(lines: list[str]) -> Iterator[Call]:
    """The calls in a log of strace, those that were interrupted joined; in the order in which they returned."""
    begun: dict[str, str] = {}
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue
        process, rest = match[1], match[2]
        if rest.endswith("<unfinished ...>"):
            begun[process] = rest.removesuffix("<unfinished ...>")
            continue
        if rest.startswith("<... "):
            rest = begun.pop(process, "") + rest.partition(" resumed>")[2]
        call = _CALL.match(rest)
        if call and int(call[3]) >= 0:
            yield Call(process, call[1], tuple(part.strip() for part in _split(call[2])), int(call[3]))


def _split(text: str) -> list[str]:
    out, depth, quoted, start = [], 0, False, 0
    for at, letter in enumerate(text):
        if letter == '"':
            quoted = not quoted
        elif not quoted and letter in "[{<(":
            depth += 1
        elif not quoted and letter in "]}>)":
            depth -= 1
        elif letter == "," and not quoted and not depth:
            out.append(text[start:at])
            start = at + 1
    return [*out, text[start:]]


def _bytes(text: str) -> bytes:
    return bytes.fromhex("".join(re.findall(r'"((?:\\x[0-9a-f]{2})*)"', text)).replace("\\x", ""))


class Replay:
    """A disk to which calls are done one by one.

    Args:
        disk: As it was before, its paths those below `root`.
        root: Calls about other files are passed over; names that are not absolute are taken to be below it.
    """

    def __init__(self, disk: Disk, root: Path) -> None:
        self.disk, self.root, self.marks = disk, str(root), list[str]()
        self._places: dict[tuple[str, str], tuple[int, bool]] = {}

    def _path(self, text: str, folder: str = "") -> str | None:
        """The path below the root that a name means; None where it is elsewhere."""
        path = os.fsdecode(_bytes(text))
        if not path.startswith("/"):
            at = re.search(r"<(.*)>", folder)
            path = os.path.join(_unescaped(at[1]) if at else self.root, path)
        path = os.path.normpath(path)
        return path.removeprefix(self.root) if path.startswith(self.root + "/") else None

    def do(self, call: Call) -> bool:
        """Do a call; whether it changed a file below the root, or made one durable."""
        given, name = call.given, call.name
        match name:
            case "openat" | "open" | "creat":
                at = int(name == "openat")
                told = given[at + 1] if len(given) > at + 1 else "O_CREAT|O_TRUNC"
                return self._opened(call, self._path(given[at], given[0]), told)
            case "mkdir" | "mkdirat":
                path = self._path(given[-2], given[0] if name == "mkdirat" else "")
                if path:
                    self.disk.mkdir(path)
                return path is not None
            case "rename" | "renameat" | "renameat2" | "link" | "linkat":
                apart = name not in ("rename", "link")
                old, new = (
                    self._path(given[2 * k + 1], given[2 * k]) if apart else self._path(given[k]) for k in (0, 1)
                )
                if old and new:
                    (self.disk.link if "link" in name else self.disk.rename)(old, new)
                return bool(old and new)
            case "unlink" | "rmdir" | "unlinkat":
                path = self._path(given[1], given[0]) if name == "unlinkat" else self._path(given[0])
                if path:
                    self.disk.remove(path)
                return path is not None
            case "close" | "dup" | "dup2" | "dup3":
                return False
        found = re.match(r"(\d+)<(.*)>", given[0])
        path = _unescaped(found[2]) if found else ""
        if not found or not path.startswith(self.root):
            return False
        path = path.removeprefix(self.root)
        if path == f"/{MARKS}":
            self.marks += _bytes(given[1]).decode().split("\n")[:-1]
            return False
        node = self.disk.find(path)  # none of a file that was removed, which nobody will find again
        return node is not None and self._written(call, node, (call.process, found[1]))

    def _opened(self, call: Call, path: str | None, told: str) -> bool:
        if path is None or path == f"/{MARKS}":
            return False
        made = self.disk.find(path) is None
        if made and "O_CREAT" not in told:
            return False
        node = self.disk.create(path)
        cut = "O_TRUNC" in told and bool(node.content)
        if cut:
            truncate(node, 0)
        self._places[call.process, str(call.result)] = (0, "O_APPEND" in told)
        return made or cut

    def _written(self, call: Call, node: Node, opened: tuple[str, str]) -> bool:
        # opened by another thread or process: those of this program append
        place, appends = self._places.get(opened, (0, True))
        match call.name:
            case "write" | "writev":
                at = len(node.content) if appends else place
                write(node, at, _bytes(call.given[1])[: call.result])
                self._places[opened] = (at + call.result, appends)
            case "pwrite64" | "pwritev" | "pwritev2":
                at = int(call.given[3 if call.name == "pwrite64" else 2 + (len(call.given) > 3)])
                write(node, at, _bytes(call.given[1])[: call.result])
            case "sendfile":
                source = re.match(r"\d+<(.*)>", call.given[1])
                origin = source and self.disk.find(_unescaped(source[1]).removeprefix(self.root))
                begin = re.match(r"\[(\d+)\]", call.given[2])
                if not origin or not begin:
                    raise NotImplementedError(f"{call.name} of {call.given[1:3]}")
                start = int(begin[1])
                write(node, place, bytes(origin.content[start : start + call.result]))
                self._places[opened] = (place + call.result, appends)
            case "ftruncate":
                truncate(node, int(call.given[1]))
            case "lseek":
                self._places[opened] = (call.result, appends)
                return False
            case "fsync" | "fdatasync":
                node.sync()
            case _:
                raise NotImplementedError(call.name)
        return True


def _unescaped(text: str) -> str:
    if "\\x" not in text:
        return text
    return os.fsdecode(bytes.fromhex("".join(re.findall(r"\\x([0-9a-f]{2})", text))))
