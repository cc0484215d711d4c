"""Stories that are cut off: by SIGKILL at random moments, and by a power cut after any system call."""

from __future__ import annotations

import contextlib
import os
import random
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from crashes.calls import MARKS, Call, Replay, record
from crashes.disk import Disk
from crashes.stories import KINDS
from crashes.story import Story, end_telling

PATIENCE = 120.0
"""Seconds that work may take which nobody cuts off."""


@dataclass
class Outcome:
    """What came of a story.

    Attributes:
        kind: Of what.
        number: Which one.
        cuts: How often it was cut off.
        wrong: What did not hold; empty where all did.
    """

    kind: str
    number: int
    cuts: int = 0
    wrong: list[str] = field(default_factory=list)


def in_a_process(
    work: Callable[[], None], limit: float | None = None, alone: random.Random | None = None
) -> tuple[bool, str]:
    """Do something in a process forked from this one, killed with all that it has started after `limit` seconds.

    Args:
        work: What to do.
        limit: None kills it only when it does not end.
        alone: Of all that it has started kill a random one, and no other that then ends by itself.

    Returns:
        Whether it ended by itself, and what it raised.
    """
    out, told = os.pipe()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os.close(out)
        sink = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(sink, stream)
        end_telling(work, told)
    os.close(told)
    with contextlib.suppress(OSError):  # whoever is first makes the group, so that it can be killed at once
        os.setpgid(child, child)
    stuck = ""
    ended = bool(select.select([out], [], [], PATIENCE if limit is None else limit)[0])
    with os.fdopen(out, "rb") as pipe:
        one = alone.choice(_children(child) or [0]) if alone and not ended else 0
        if one:
            os.kill(one, signal.SIGKILL)
        if not ended and not (one and select.select([out], [], [], PATIENCE)[0]):
            os.killpg(child, signal.SIGKILL)
            stuck = f"one process was killed, and the others went on for {PATIENCE:.0f} s" if one else ""
        said = pipe.read().decode(errors="replace") or stuck
    _, status = os.waitpid(child, 0)
    if not ended and limit is None:
        said = f"it had not ended after {PATIENCE:.0f} s"
    if ended and status and not said:
        said = f"it ended with status {status}"
    return ended, said


def _children(process: int) -> list[int]:
    """Those that it has started."""
    with contextlib.suppress(FileNotFoundError):
        tasks = Path(f"/proc/{process}/task").glob("*/children")
        return [int(child) for task in tasks for child in task.read_text().split()]
    return []


def marker(root: Path) -> Callable[[str], None]:
    """Writes marks into a file below the root, at once."""

    def mark(text: str) -> None:
        descriptor = os.open(root / MARKS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, text.encode() + b"\n")
        os.close(descriptor)

    return mark


def marks_in(root: Path) -> set[str]:
    """Those in that file."""
    return set((root / MARKS).read_text().splitlines()) if (root / MARKS).exists() else set()


def _files(root: Path) -> dict[str, bytes]:
    found = {}
    for path in root.rglob("*"):
        try:
            if path.is_file() and path.name != MARKS:
                found["/" + path.relative_to(root).as_posix()] = path.read_bytes()
        except OSError:  # of another process that is still at work
            continue
    return found


def _room() -> Path:
    return Path(tempfile.mkdtemp(prefix="crash-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))


def killed(kind: str, number: int, rng: random.Random, most: int) -> Outcome:
    """One story, killed up to `most` times before it may end."""
    outcome, story, root = Outcome(kind, number), KINDS[kind](number), _room()
    try:
        story.prepare(root)
        seen: dict[str, set[bytes]] = {}
        begun = time.monotonic()
        while True:
            limit = rng.uniform(0, _LENGTHS.get(kind, 1.0)) if outcome.cuts < most else None
            alone = rng if story.apart and rng.random() < 0.5 else None
            ended, said = in_a_process(lambda: story.work(root, marker(root)), limit, alone)
            outcome.cuts += not ended
            for path, content in _files(root).items():
                seen.setdefault(path, set()).add(content)
            if said:
                outcome.wrong.append(f"lost: {said}")
            if said or (ended and limit is None) or time.monotonic() - begun > 4 * PATIENCE:
                break
            if not ended:
                _, said = in_a_process(lambda: story.check(root, marks_in(root), seen))
                outcome.wrong += [said] if said else []
                story.between(root, outcome.cuts)
            elif kind != "account":
                break
        if not outcome.wrong:
            _, said = in_a_process(lambda: story.over(root, marks_in(root)))
            outcome.wrong += [said] if said else []
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return outcome


_LENGTHS: dict[str, float] = {}
"""How long a kind takes that nobody cuts off, in seconds: so that it is cut off in the middle of what matters."""


def measure(kind: str) -> None:
    """Take the time of a story that nobody cuts off; what the others are compared with is kept.

    It is done once in this process, so that those that are forked from it find all loaded: most of a second would go
    to that, and most kills would fall into it.

    Raises:
        RuntimeError: it does not end well.
    """
    first, root = KINDS[kind](0), _room()
    try:
        if not first.apart:
            first.prepare(root)
            first.work(root, marker(root))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    for number in range(KINDS[kind](0).variants):
        story, root = KINDS[kind](number), _room()
        try:
            story.prepare(root)
            began = time.monotonic()
            _, said = in_a_process(lambda: story.work(root, marker(root)))  # noqa: B023
            _LENGTHS[kind] = time.monotonic() - began
            said = said or in_a_process(lambda: story.over(root, marks_in(root)))[1]  # noqa: B023
            if said:
                raise RuntimeError(said)
            story.keep(root)
        finally:
            shutil.rmtree(root, ignore_errors=True)


def power_cut(kind: str, number: int, rng: random.Random, cuts: int) -> Outcome:
    """One story, recorded once; after some of its calls the disk as a power cut may leave it, and on from there."""
    outcome, story, root = Outcome(kind, number), KINDS[kind](number), _room()
    log = root.with_name(f"{root.name}.calls")
    try:
        story.prepare(root)
        first = _files(root)
        calls = record(lambda: story.work(root, marker(root)), log)
        moments = _moments(first, calls, root)
        for moment in sorted(rng.sample(range(len(moments)), min(cuts, len(moments)))):
            replay = Replay(Disk(first), root)
            for call in calls[: moments[moment] + 1]:
                replay.do(call)
            wrong = _goes_on(story, root, replay, rng)
            outcome.cuts += 1
            outcome.wrong += [f"after call {moments[moment]}, {calls[moments[moment]].name}: {wrong}"] if wrong else []
    finally:
        shutil.rmtree(root, ignore_errors=True)
        log.unlink(missing_ok=True)
    return outcome


def _moments(first: dict[str, bytes], calls: list[Call], root: Path) -> list[int]:
    """Which of the calls change something below the root."""
    replay = Replay(Disk(first), root)
    return [at for at, call in enumerate(calls) if replay.do(call)]


def _goes_on(story: Story, root: Path, replay: Replay, rng: random.Random) -> str:
    """Put the disk there as it may be, check it, go on from it and check the end; what was wrong."""
    seen = {path: {content} for path, content in replay.disk.now().items()}
    marks = set(replay.marks)
    files, folders = replay.disk.after_power_cut(rng)
    shutil.rmtree(root)
    root.mkdir()
    for folder in folders:
        (root / folder.strip("/")).mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        (root / path.strip("/")).write_bytes(content)
        (root / path.strip("/")).chmod(0o600)
    _, said = in_a_process(lambda: story.check(root, marks, seen))
    if said:
        return said
    for mark in marks:
        marker(root)(mark)
    _, said = in_a_process(lambda: story.work(root, marker(root)))
    if said:
        return f"lost: {said}"
    return in_a_process(lambda: story.over(root, marks_in(root)))[1]
