"""How an artefact is altered: what a forger can do who has the file and no secret, as dpose writes such a file.

With `doors.py` the only module of the goldens that names what is inside dpose.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archives import edited
from dpose.files import file_digest
from dpose.media.images import decode_pixels, encode_image
from dpose.media.tags import extract_text
from dpose.privacy.entries import EntryType, read_ledger, sealed_alone
from dpose.privacy.statement import PrivacyStatement
from dpose.release.embed import FILE, NAME, SEAL, SUMS, bound_to, sealed_file, sidecar_of, stamp
from run_folders import sealed_again

Change = Callable[[dict[str, Any]], object]


def as_it_is(values: dict[str, Any]) -> None:
    """No change."""


def statement_of_run(folder: Path, change: Change, *, resealed: bool = True) -> None:
    """Edit a run's statement; with a new chain, card and seal unless told otherwise."""
    path = folder / "privacy.json"
    values = json.loads(path.read_text())
    change(values)
    if resealed:
        sealed_again(folder, PrivacyStatement.from_json(json.dumps(values)))
    else:
        path.write_text(json.dumps(values))


def config_of_run(folder: Path, change: Change) -> None:
    """Edit a run's configuration and seal it again."""
    path = folder / "config.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    sealed_again(folder)


def card_of_run(folder: Path, old: str, new: str) -> None:
    """Rewrite words of a model card and seal it again."""
    card = (folder / "README.md").read_text()
    assert old in card
    sealed_again(folder, card=card.replace(old, new))


def ledger_of_run(folder: Path, without: str) -> None:
    """Leave out a ledger's lines of one type and seal the rest again."""
    kept = [each for each in read_ledger(folder / "ledger.jsonl") if each.type is not EntryType(without)]
    sealed_again(folder, entries=kept)


def config_of(statement: dict[str, Any]) -> dict[str, Any]:
    """The configuration that a release's statement records."""
    found: dict[str, Any] = statement["release"]["config"]
    return found


def shape_of(statement: dict[str, Any]) -> dict[str, Any]:
    """The sizes that a release's statement records."""
    found: dict[str, Any] = statement["release"]["shape"]
    return found


def neighbours_of(statement: dict[str, Any]) -> list[dict[str, Any]]:
    """Whom a release's statement says it protects: in the claim, and in the configuration."""
    return [statement["neighbours"], config_of(statement)["neighbours"]]


def pixels(path: Path) -> NDArray[Any]:
    """A picture's pixels, as they are decoded."""
    return np.array(decode_pixels(path.read_bytes(), str(path))[...])


def picture(
    path: Path, change: Change = as_it_is, other: NDArray[Any] | None = None, *, resealed: bool = False
) -> None:
    """Edit the statement of a PNG or JPEG file, or put other pixels under it."""
    line, rest = extract_text(path.read_bytes(), SEAL)
    text, rest = extract_text(rest, NAME)
    assert text is not None
    values = json.loads(text)
    change(values)
    made = PrivacyStatement.from_json(json.dumps(values))
    data = rest if other is None else encode_image(other, path.suffix)
    if resealed:
        before = json.loads(line or "{}").get("event", {}).get("digests", {})
        digests = {SUMS: before.get(SUMS, "00" * 32), FILE: hashlib.sha256(data).hexdigest()}
        made, raw = sealed_alone(replace(made, seal="", artefact_sha256=""), digests)
        line = raw.decode()
    path.write_bytes(stamp(data, made, line or ""))


def stripped(path: Path) -> None:
    """A picture saved again without its metadata."""
    path.write_bytes(encode_image(pixels(path), path.suffix))


def archive(path: Path, change: Change) -> None:
    """Edit what an archive says of itself, its statement among it."""
    path.write_bytes(edited(path.read_bytes(), change))


def sidecar(video: Path, change: Change, *, resealed: bool = False) -> None:
    """Edit the statement beside a video."""
    path = sidecar_of(video)
    values = json.loads(path.read_text())
    change(values)
    if resealed:
        del values["sealed"]
        digest = file_digest(video)
        bare = replace(PrivacyStatement.from_json(json.dumps(values)), seal="", artefact_sha256="")
        made, line = sealed_file(digest, bare)
        values = json.loads(bound_to(digest, made).to_json()) | {"sealed": line}
    path.write_text(json.dumps(values))
