"""How artefacts carry their statements: inside PNG and JPEG, beside a video, and bound to the content by a digest.

The digest is of content and statement together. It tells a picture from another one that a statement was moved to, and
shows that either was changed. It is no signature: whoever can forge a picture can compute a new digest. The statement's
arithmetic is what `verify` rests on.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.media.images import encode_image
from dpose.media.tags import embed_text, extract_text
from dpose.privacy.statement import PrivacyStatement

NAME = "dpose-privacy"
PNG_LEVEL = 6
"""Of released PNGs: flat blocks shrink to a tenth of what the fast level leaves."""
SIDECAR = ".privacy.json"


def stamped_picture(picture: NDArray[Any], suffix: str, statement: PrivacyStatement) -> bytes:
    """A released picture's file with its statement.

    Args:
        picture: uint8 or uint16, (H, W), (H, W, 1) or (H, W, 3).
        suffix: ".png", ".jpg" or ".jpeg".
        statement: What is guaranteed about it.

    Raises:
        DposeError: another suffix.
    """
    shown = picture[:, :, 0] if picture.shape[2:] == (1,) else picture
    return stamp(encode_image(shown, suffix, compression=PNG_LEVEL), statement)


def stamp(data: bytes, statement: PrivacyStatement) -> bytes:
    """A PNG or JPEG file that carries `statement`, bound to the file's own bytes.

    Args:
        data: The file as its encoder wrote it.
        statement: What is guaranteed about it.
    """
    return embed_text(data, NAME, bound_to(hashlib.sha256(data).hexdigest(), statement).to_json())


def read_stamp(data: bytes, where: str) -> PrivacyStatement:
    """The statement in a PNG or JPEG file.

    Raises:
        DposeError: there is none, it is damaged, or the file was changed since.
    """
    try:
        text, rest = extract_text(data, NAME)
    except ValueError as error:
        raise DposeError(f"its privacy statement cannot be read: {error}", where) from error
    if text is None:
        raise DposeError("carries no privacy statement", where)
    statement = PrivacyStatement.from_json(text, where)
    check_digest(statement, hashlib.sha256(rest).hexdigest(), where)
    return statement


def sidecar_of(video: Path) -> Path:
    """Where a video's statement stands: FILE.privacy.json."""
    return video.with_name(video.name + SIDECAR)


def bound_to(content: str, statement: PrivacyStatement) -> PrivacyStatement:
    """The statement with its `artefact_sha256`: the digest of content and statement together.

    Args:
        content: Digest of the content alone.
        statement: Of which any earlier binding is ignored.
    """
    bare = replace(statement, artefact_sha256="")
    return replace(
        bare, artefact_sha256=hashlib.sha256((content + "\n" + bare.to_json()).encode()).hexdigest()
    )


def check_digest(statement: PrivacyStatement, content: str, where: str) -> None:
    """Refuse a statement that belongs to other content, or that was edited.

    Raises:
        DposeError: it does, or was.
    """
    if bound_to(content, statement) != statement:
        raise DposeError(
            "was changed since its privacy statement was written, or carries another file's", where
        )
