"""How artefacts carry their statements: inside PNG and JPEG, beside a video, and bound to the content by a digest.

The digest is of content and statement together. It tells a picture from another one that a statement was moved to, and
shows that either was changed. A seal travels along: the statement word for word and digests of what was released, on
one line. A picture's line and its archive's hold the digest of the same released values, so each shows that it belongs
to the other. A picture's also holds the digest of its file as the encoder wrote it: every byte but the statement's and
the seal's own segments, so that nothing can be put in, taken out or encoded anew; and those two are written in one way
alone. The line holds digests of what is
released only. Neither is a signature: a forger of a picture can compute a new digest and seal it. The statement's
arithmetic is what `verify` rests on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import file_digest, file_text, parsed_json, write_atomic
from dpose.media.images import encode_image
from dpose.media.tags import embed_text, extract_text
from dpose.privacy.entries import Seal, open_seal, sealed_alone
from dpose.privacy.statement import PrivacyStatement
from dpose.release.linear import ReleasedValues
from dpose.release.partition import Mask, RegionSums
from dpose.release.released import SIZES, ReleasedSums, Shown

NAME, SEAL = "dpose-privacy", "dpose-seal"
PNG_LEVEL = 6
"""Compression level of released PNGs: flat blocks shrink to a tenth of what the fast level leaves."""
SIDECAR = ".privacy.json"
SPELLING = "its privacy statement is not written as dpose writes it: something may be hidden between its words"
LINE = "sealed"
"""The seal's name in a sidecar and in an archive."""


def stamped_picture(released: Shown | ReleasedValues, suffix: str, statement: PrivacyStatement) -> bytes:
    """A released picture's file with its statement and its seal.

    Args:
        released: The picture, as its values.
        suffix: ".png", ".jpg" or ".jpeg".
        statement: What is guaranteed about it.
    """
    data = encoded(released, suffix)
    made, line = sealed(released, statement, data)
    return stamp(data, made, line)


def stamped_pixels(pixels: NDArray[np.uint8], suffix: str, statement: PrivacyStatement) -> bytes:
    """A picture's file with its statement and its seal, which is of the file alone: it holds no released values."""
    data = encode_image(pixels, suffix, compression=PNG_LEVEL)
    made, line = sealed_file(hashlib.sha256(data).hexdigest(), statement)
    return stamp(data, made, line)


def encoded(released: Shown | ReleasedValues, suffix: str) -> bytes:
    """A released picture's file, without statement."""
    picture = released.picture()
    shown = picture[:, :, 0] if picture.shape[2:] == (1,) else picture
    return encode_image(shown, suffix, compression=PNG_LEVEL)


def stamp(data: bytes, statement: PrivacyStatement, seal: str) -> bytes:
    """A PNG or JPEG file that carries `statement`, bound to the file's own bytes.

    Args:
        data: The file as its encoder wrote it.
        statement: What is guaranteed about it.
        seal: The line that the statement names.
    """
    text = bound_to(hashlib.sha256(data).hexdigest(), statement).to_json()
    return embed_text(embed_text(data, NAME, text), SEAL, seal)


def read_stamp(data: bytes, where: str) -> tuple[PrivacyStatement, Seal]:
    """The statement in a PNG or JPEG file and its seal, both checked against all other bytes of the file.

    Raises:
        DposeError: there is no statement or no seal, one is damaged, or the file is not the one that was sealed.
    """
    try:
        seal, rest = extract_text(data, SEAL)
        text, rest = extract_text(rest, NAME)
    except ValueError as error:
        raise DposeError("statement-unreadable", f"its privacy statement cannot be read: {error}", where) from error
    if text is None:
        raise DposeError("statement-missing", "carries no privacy statement", where)
    statement, digest = PrivacyStatement.from_json(text, where), hashlib.sha256(rest).hexdigest()
    check_digest(statement, digest, where)
    if text != statement.to_json():
        raise DposeError("statement-respelled", SPELLING, where)
    return statement, check_seal(statement, seal or "", {FILE: digest}, where)


def write_sidecar(video: Path, temporary: Path, statement: PrivacyStatement) -> PrivacyStatement:
    """Write the statement of a video, with its seal, beside where the video will be.

    Args:
        video: The video's final name.
        temporary: The finished file.
        statement: What is guaranteed about it.

    Returns:
        The statement, sealed and bound to the file.
    """
    digest = file_digest(temporary)
    made, line = sealed_file(digest, statement)
    made = bound_to(digest, made)
    write_atomic(sidecar_of(video), _sidecar(made, line))
    return made


def read_sidecar(video: Path) -> tuple[PrivacyStatement, str]:
    """The statement beside a video, and its seal; empty if there is none. That it is this video's is not checked."""
    sidecar = sidecar_of(video)
    if not sidecar.exists():
        raise DposeError("statement-missing", "carries no privacy statement", str(video), f"{sidecar.name} is missing")
    try:
        text = file_text(sidecar)
        content = parsed_json(text)
        line = content.pop(LINE, "") if isinstance(content, dict) else ""
        text = json.dumps(content, ensure_ascii=False)
    except OSError as error:
        raise DposeError("file-unreadable", f"cannot be read ({error.strerror})", str(sidecar)) from error
    except ValueError as error:
        raise DposeError("statement-malformed", f"is no privacy statement ({error})", str(sidecar)) from error
    if not isinstance(line, str):
        raise DposeError("seal-unreadable", "its seal cannot be read", str(sidecar))
    return PrivacyStatement.from_json(text, str(sidecar)), line


def check_spelling(video: Path) -> None:
    """Refuse a sidecar that holds more than its statement and seal, or spells them otherwise."""
    if file_text(sidecar_of(video)) != _sidecar(*read_sidecar(video)):
        raise DposeError("statement-respelled", SPELLING, str(sidecar_of(video)))


def _sidecar(statement: PrivacyStatement, line: str) -> str:
    content = json.loads(statement.to_json()) | {LINE: line}
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def sidecar_of(video: Path) -> Path:
    """Where a video's statement stands: FILE.privacy.json."""
    return video.with_name(video.name + SIDECAR)


def bound_to(content: str, statement: PrivacyStatement) -> PrivacyStatement:
    """The statement with its `artefact_sha256`: the digest of content and statement together.

    Args:
        content: Digest of the content alone.
        statement: The statement. An earlier binding of it is ignored.
    """
    bare = replace(statement, artefact_sha256="")
    return replace(bare, artefact_sha256=hashlib.sha256((content + "\n" + bare.to_json()).encode()).hexdigest())


def check_digest(statement: PrivacyStatement, content: str, where: str) -> None:
    """Refuse a statement that belongs to other content, or that was edited.

    Raises:
        DposeError: it does, or was.
    """
    if bound_to(content, statement) != statement:
        raise DposeError(
            "file-of-other-statement",
            "was changed since its privacy statement was written, or carries another file's",
            where,
        )


SUMS, FILE = "released values", "file"
"""What a seal has digests of: cells' values and mask; a video's file, or a picture's without its statement and seal."""


def sealed(
    released: Shown | ReleasedValues, statement: PrivacyStatement, file: bytes = b""
) -> tuple[PrivacyStatement, str]:
    """The statement with its seal's hash, and the seal as one line.

    Args:
        released: The picture, as its values.
        statement: The statement. An earlier seal of it is ignored.
        file: The picture's file as its encoder wrote it; empty for an archive, whose values are all that it holds.
    """
    digests = {SUMS: sums_digest(released)}
    return _sealed(statement, digests | ({FILE: hashlib.sha256(file).hexdigest()} if file else {}))


def sealed_file(file_sha256: str, statement: PrivacyStatement) -> tuple[PrivacyStatement, str]:
    """The statement of a file with its seal's hash, and the seal as one line.

    The seal is of the file alone: a video is lossy and holds no released values, as does a picture that was obscured.
    """
    return _sealed(statement, {FILE: file_sha256})


def check_seal(statement: PrivacyStatement, line: str, digests: Mapping[str, str], where: str) -> Seal:
    """Check a release against its seal.

    Args:
        statement: As it stands in the artefact.
        line: The seal that travels with it; empty if there is none.
        digests: Digests of what is there, by name.
        where: The file, for errors.

    Returns:
        The seal.

    Raises:
        DposeError: the seal is missing, altered, or of another statement or content; names what differs.
    """
    if not statement.seal:
        lost = "carries a seal that its statement does not name" if line else "has no seal: every release has one"
        raise DposeError("seal-unnamed" if line else "seal-missing", lost, where, "do not rely on it")
    # which file it lies in was settled after the seal
    seal = open_seal(replace(statement, artefact_sha256=""), line, where)
    seal.check_digests(digests, where)
    return seal


def sums_digest(released: Shown | ReleasedValues) -> str:
    """SHA-256 of the released values, with the sizes, mask or grid that they belong to."""
    if isinstance(released, ReleasedValues):
        operator = released.operator
        grid = repr((operator.shape, operator.rows, operator.columns, operator.groups))
        return hashlib.sha256(grid.encode() + b"\0" + _little(released.values)).hexdigest()
    cells = released.cells
    if isinstance(released, ReleasedSums):
        digest = hashlib.sha256(json.dumps(released.layers.sizes, sort_keys=True).encode())
        for name in released.layers.shapes():
            digest.update(b"\0" + _little(released.sums[name]))
        if isinstance(cells, RegionSums):
            digest.update(b"\0" + np.packbits(cells.mask).tobytes())
        return digest.hexdigest()
    values = released.values
    sizes = json.dumps({name: getattr(cells, name, 1) for name in SIZES}, sort_keys=True)
    digest = hashlib.sha256(sizes.encode() + b"\0" + _little(values))
    if isinstance(cells, RegionSums):
        digest.update(b"\0" + np.packbits(cells.mask).tobytes())
    return digest.hexdigest()


def mask_digest(mask: Mask) -> str:
    """SHA-256 of which blocks are complex, bool, (rows, columns)."""
    return hashlib.sha256(f"{mask.shape}".encode() + np.packbits(mask).tobytes()).hexdigest()


def _little(values: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<")).tobytes()


def _sealed(statement: PrivacyStatement, digests: Mapping[str, str]) -> tuple[PrivacyStatement, str]:
    bare = replace(statement, artefact_sha256="", seal="")
    made, line = sealed_alone(bare, digests)
    return made, line.decode()
