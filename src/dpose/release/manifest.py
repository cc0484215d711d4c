"""A folder that workers release into: the key of its command, and one list of all that was released, `corpus.jsonl`.

The list names released files and nothing of their originals. `verify_manifest` sees whether each is there and is the
one that was written, and whether the list is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dpose.engines import worker_code
from dpose.errors import DposeError
from dpose.files import explain_os_error, file_digest, json_text, leads_out, leads_outside, make_folder
from dpose.privacy.keys import StoredKey, forget_key, keep_key, kept_key
from dpose.privacy.noise import KEY_BYTES, Key
from dpose.privacy.ranges import as_given
from dpose.privacy.statement import PrivacyStatement, software_versions
from dpose.release.counting import alive, settings_digest
from dpose.release.jobs import Job, known_names, record_names

MANIFEST = "corpus.jsonl"
SCHEMA = 1


class Manifest:
    """The list of a folder, open for more. What a process that died has left of a line is cut off.

    Args:
        folder: Folder of the released files.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / MANIFEST
        try:
            make_folder(folder)
            self._file = self.path.open("a+b")
            _cut(self._file)
        except OSError as error:
            raise explain_os_error(error, self.path) from error
        if not self._file.tell():
            self._write({"type": "corpus", "schema": SCHEMA, "dpose": software_versions()["dpose"]})

    def __enter__(self) -> Manifest:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, target: Path, outputs: Mapping[Path, str], statement: PrivacyStatement) -> None:
        """A released file: all that was written for it, with SHA-256, and what its statement claims."""
        self._write(
            {
                "type": "file",
                "file": self._inside(target),
                "sha256": {self._inside(path): digest for path, digest in outputs.items()},
                "kind": statement.kind.value,
                "epsilon": None if statement.epsilon is None else as_given(float(statement.epsilon)),
                "delta": None if statement.delta is None else as_given(statement.delta),
                "releases": statement.odometer.get("releases", ""),
            }
        )

    def failed(self, target: Path) -> None:
        """A file that could not be read or written, by the name that it would have had; none that the account refused.

        What the account knows of a file is a function of its pixels, without noise.
        """
        self._write({"type": "failed", "file": self._inside(target)})

    def flush(self) -> None:
        """On disk when this returns."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise explain_os_error(error, self.path) from error

    def end(self) -> None:
        """Say that it is whole: digest of all lines so far."""
        self.flush()
        self._write({"type": "end", "sha256": file_digest(self.path)})
        self.flush()

    def _inside(self, path: Path) -> str:
        return path.relative_to(self.path.parent).as_posix()

    def _write(self, line: dict[str, Any]) -> None:
        try:
            self._file.write((json_text(line) + "\n").encode())
        except OSError as error:
            raise explain_os_error(error, self.path) from error


class CorpusFolder:
    """A folder of released files, taken by one command until all of them are complete.

    Args:
        out: The folder, absolute.
        settings: All that makes another command one that goes on with it.
    """

    def __init__(self, out: Path, *settings: object) -> None:
        self.out = out
        self.name = f"corpus{settings_digest(str(out.resolve()), *settings)[:16]}"

    @contextmanager
    def open(self) -> Iterator[Path]:
        """Take the folder: its list is open, and the command's key is stored or, with the same code, taken up again.

        Yields:
            A file that stands there meanwhile: by it a worker sees that it has the same folder.

        Raises:
            DposeError: another process is at work on it, or something cannot be written.
        """
        with ExitStack() as held:
            held.enter_context(alive(self.name))
            kept = kept_key(self.name)
            self.resumed = kept is not None and kept.surroundings.get("code") == worker_code()
            if kept is None or not self.resumed:
                kept = StoredKey(Key.fresh(), "", {"code": worker_code()})
                keep_key(self.name, kept)
            self.key = kept.key
            held.enter_context(alive(self.key.key_id))
            self.manifest = held.enter_context(Manifest(self.out))
            sign = self.out / f".engine-{self.key.key_id}"
            try:
                sign.touch()
            except OSError as error:
                raise explain_os_error(error, sign) from error
            held.callback(sign.unlink, missing_ok=True)
            yield sign

    def end(self, *, complete: bool) -> None:
        """Say that the list is whole; forget the key if nothing is left to go on with."""
        self.manifest.end()
        if complete:
            forget_key(self.name)

    def placed(self, jobs: Sequence[Job], *, again: bool) -> Iterator[Job]:
        """Jobs as a worker in another folder understands them; an original keeps its number, if that is free for it."""
        known = known_names(self.out)
        numbers = {source: number for number, source in known.items()}
        fresh = again and not self.resumed
        old = {
            place: number
            for place, job in enumerate(jobs if numbers else ())
            if job.number and (number := numbers.get(str(job.source.resolve())))
            if not fresh or not job.numbered(number).target.exists()
        }

        def each() -> Iterator[Job]:
            for place, job in enumerate(jobs):
                yield (job.numbered(old[place]) if place in old else job).absolute()

        record_names((job for job in each() if job.number not in known), self.out)
        return each()

    def name_of(self, settings: str, plan: str, pixels: str) -> str:
        """The name of a reservation: a function of the key, the code and what else decides the released sums."""
        said = "\n".join((settings, plan, worker_code(), pixels)).encode()
        digest = hashlib.blake2b(said, key=self.key.secret, digest_size=16, person=b"dpose/corpus/id")
        return f"{self.key.key_id}-{digest.hexdigest()}"

    def secret(self, name: str) -> bytes:
        """Bytes of the key of a reservation: a function of its name."""
        return hashlib.blake2b(
            name.encode(), key=self.key.secret, digest_size=KEY_BYTES, person=b"dpose/corpus/key"
        ).digest()


def verify_manifest(folder: Path) -> str:
    """Check a folder's list against its files; one line that says what was found, "" where there is no list.

    Raises:
        DposeError: it cannot be read, is not whole, or a file of it is missing or another one.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return ""
    files: dict[str, dict[str, Any]] = {}
    failed: set[str] = set()
    whole, digest = False, hashlib.sha256()
    try:
        with path.open("rb") as opened:
            for raw in opened:
                line = json.loads(raw)
                whole = line["type"] == "end"
                if whole and line["sha256"] != digest.hexdigest():
                    raise DposeError(
                        "manifest-altered", "was altered: its lines are not those that its end names", str(path)
                    )
                if line["type"] == "file":
                    files[line["file"]] = line
                    failed.discard(line["file"])
                elif line["type"] == "failed" and line["file"] not in files:
                    failed.add(line["file"])
                digest.update(raw)
        outputs = [(name, digest) for line in files.values() for name, digest in line["sha256"].items()]
        claims = sorted({_claim(line["epsilon"]) for line in files.values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DposeError("manifest-unreadable", "cannot be read as a list of released files", str(path)) from error
    if not whole:
        raise DposeError(
            "manifest-incomplete", "has no end: the command that wrote it was cut short", str(path), "run it again"
        )
    for name, recorded in outputs:
        found = folder / name
        try:
            digest_there = None if leads_out(name) or leads_outside(found, folder) else file_digest(found)
        except OSError:
            digest_there = None
        if digest_there is None:
            raise DposeError("manifest-file-missing", "is in the list of released files, and not here", str(found))
        if digest_there != recorded:
            raise DposeError(
                "manifest-file-differs", "is another file than the list of released files names", str(found)
            )
    tail = f", {len(failed):,} that failed" if failed else ""
    each = f", each claims {' or '.join(claims)}" if claims else ""
    return f"{path}: {len(files):,} files, all as they were released{each}{tail}"


def _claim(epsilon: str | None) -> str:
    """What a file claims, in words.

    Raises:
        ValueError: it is no number.
    """
    if epsilon is None:
        return "nothing"
    float(epsilon.replace(",", ""))
    return f"epsilon {epsilon}"


def _cut(file: Any) -> None:
    """Cut off the part of a line at the end, and go there."""
    size = file.seek(0, os.SEEK_END)
    back = 0
    while back < size:
        file.seek(size - back - 1)
        if file.read(1) == b"\n":
            break
        back += 1
    file.truncate(size - back)
    file.seek(0, os.SEEK_END)
