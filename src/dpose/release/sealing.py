"""The seal of a release: the statement word for word and digests of what was released, on a line that travels along.

A picture's line and its archive's hold the digest of the same released values, so each shows that it belongs to the
other. A picture's also holds the digest of its file as the encoder wrote it: every byte but the statement's and the
seal's own segments, so that nothing can be put in, taken out or encoded anew. The line holds digests of what is
released only. Like every seal it is no signature: whoever makes another release can seal it too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.privacy.seal import Seal, open_seal, sealed_alone
from dpose.privacy.statement import PrivacyStatement
from dpose.release.linear import ReleasedValues
from dpose.release.partition import Mask, RegionSums
from dpose.release.released import SIZES, ReleasedSums, Shown

SUMS, FILE = "released values", "file"
"""What a seal has digests of: cells' values and mask; a video's file, or a picture's without its statement and seal."""


def sealed(
    released: Shown | ReleasedValues, statement: PrivacyStatement, file: bytes = b""
) -> tuple[PrivacyStatement, str]:
    """The statement with its seal's hash, and the seal as one line.

    Args:
        released: The picture, as its values.
        statement: Of which an earlier seal is ignored.
        file: The picture's file as its encoder wrote it; empty for an archive, whose values are all that it holds.
    """
    digests = {SUMS: sums_digest(released)}
    return _sealed(statement, digests | ({FILE: hashlib.sha256(file).hexdigest()} if file else {}))


def sealed_video(file_sha256: str, statement: PrivacyStatement) -> tuple[PrivacyStatement, str]:
    """As `sealed`, for a video's file, which is lossy and holds no released values."""
    return _sealed(statement, {FILE: file_sha256})


def check_seal(statement: PrivacyStatement, line: str, digests: Mapping[str, str], where: str) -> Seal:
    """Check a release against its seal.

    Args:
        statement: As it stands in the artefact.
        line: The seal that travels with it; empty where there is none.
        digests: Of what is there.
        where: The file, for errors.

    Returns:
        The seal.

    Raises:
        DposeError: the seal is missing, altered, or of another statement or content; names what differs.
    """
    if not statement.seal:
        lost = (
            "carries a seal that its statement does not name"
            if line
            else "has no seal: every release has one"
        )
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
