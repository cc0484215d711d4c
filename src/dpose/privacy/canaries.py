"""Canaries of a run that its owner commits to before training, and shows afterwards to anyone who audits the model.

    opening = Opening.drawn("gradient", 500, {...}, before)     # coins from the operating system
    ledger.canaries(opening.committed)                          # before the first step is reserved
    keep_opening(run_id, opening)                               # the owner's alone, until it is handed over
    ...
    opening.check(statement.canaries, "opening.json")  # by anyone who audits the released model

The commitment is HMAC-SHA256 under a random salt. It hides: without the salt it tells nothing of the coins that could
be computed. It binds: a second opening would be a collision of SHA-256. Both hold against attackers bounded by the
cryptography, as the noise does. What it is for stands in docs/proofs/auditing.md.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, StrictFloat

from dpose.errors import DposeError
from dpose.files import file_json, write_private
from dpose.privacy.fields import StatementPart, Text, statement_part
from dpose.privacy.keys import state_folder
from dpose.privacy.sections import PlantedCanaries

SCHEMA: Literal[1] = 1
SALT_BYTES = 32
"""All salts are of this length: HMAC pads shorter keys, and two that are padded alike would open alike."""

CanaryKind = Literal["gradient", "input"]
FEWEST = 20
"""Fewer canaries show nothing."""


@dataclass(frozen=True)
class Opening:
    """All that a commitment to canaries is opened with. A secret until the model is released.

    Attributes:
        kind: "gradient" or "input".
        coins: (m,), true where a canary is in.
        made_from: What the canaries are made from again, as JSON: no function of the coins or of private data.
        before: Scores at the first weights, of the m canaries and then of others that are never in: what scores at the
            final weights are compared with.
        salt: `SALT_BYTES` random bytes.

    Raises:
        DposeError: the fields contradict each other.
    """

    kind: CanaryKind
    coins: tuple[bool, ...] = field(repr=False)
    made_from: Mapping[str, Any] = field(repr=False)
    before: tuple[float, ...] = field(repr=False)
    salt: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if self.kind not in get_args(CanaryKind):
            raise DposeError("canary-kind-unknown", f"there are no canaries of kind {self.kind!r}", "kind")
        if len(self.salt) != SALT_BYTES:
            raise DposeError("opening-salt-invalid", f"has {len(self.salt)} bytes, not {SALT_BYTES}", "salt")
        if not self.coins or len(self.before) < len(self.coins):
            raise DposeError(
                "opening-scores-incomplete", f"are {len(self.before)} of {len(self.coins)} canaries", "before"
            )
        if not all(map(math.isfinite, self.before)):
            raise DposeError("opening-scores-not-finite", "are not finite", "before")

    @classmethod
    def drawn(cls, kind: CanaryKind, count: int, made_from: Mapping[str, Any], before: Sequence[float]) -> Opening:
        """An opening with fair, independent coins and a salt from the operating system."""
        words = secrets.token_bytes(count)
        coins = tuple(bool(word & 1) for word in words)
        return cls(kind, coins, made_from, tuple(map(float, before)), secrets.token_bytes(SALT_BYTES))

    @property
    def commitment(self) -> str:
        """What is published before training, 64 hexadecimal digits."""
        content = {name: value for name, value in self._content().items() if name != "salt"}
        message = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hmac.new(self.salt, message.encode(), hashlib.sha256).hexdigest()

    @property
    def committed(self) -> PlantedCanaries:
        """What ledger and statement hold of it."""
        return PlantedCanaries(self.kind, str(len(self.coins)), self.commitment)

    def check(self, committed: PlantedCanaries, where: str) -> None:
        """Refuse to open another commitment than this one's.

        Raises:
            DposeError: it is another's.
        """
        if not hmac.compare_digest(self.commitment, committed.commitment) or self.committed != committed:
            raise DposeError(
                "opening-does-not-fit",
                "does not open the commitment of this model: its coins are not those that were drawn before training",
                where,
                "ask those who trained it for the opening of this run",
            )

    def to_json(self) -> str:
        """The opening as JSON, ending in a newline."""
        return json.dumps(self._content(), allow_nan=False) + "\n"

    @classmethod
    def of(cls, values: Any, where: str) -> Opening:
        """What `to_json` wrote, parsed.

        Raises:
            DposeError: it is no opening.
        """
        try:
            found = _StoredOpening.read(values)
            coins = tuple(coin == "1" for coin in found.coins)
            return cls(found.kind, coins, found.made_from, found.before, bytes.fromhex(found.salt))
        except (DposeError, ValueError) as error:
            notes = error.line() if isinstance(error, DposeError) else str(error)
            raise DposeError(
                "opening-invalid", f"is no opening of a commitment to canaries ({notes})", where
            ) from error

    @classmethod
    def read(cls, path: Path) -> Opening:
        """The opening in a file.

        Raises:
            DposeError: it cannot be read, or is none.
        """
        try:
            values = file_json(path)
        except FileNotFoundError as error:
            raise DposeError("file-missing", "there is no such file", str(path)) from error
        except (OSError, ValueError) as error:
            raise DposeError("opening-unreadable", "is no opening of a commitment to canaries", str(path)) from error
        return cls.of(values, str(path))

    def _content(self) -> dict[str, Any]:
        coins = "".join("1" if coin else "0" for coin in self.coins)
        return _StoredOpening(SCHEMA, self.kind, coins, dict(self.made_from), self.before, self.salt.hex()).to_dict()


@statement_part
class _StoredOpening(StatementPart):
    schema: Literal[1]
    kind: CanaryKind
    coins: Annotated[Text, Field(pattern="^[01]*$")]
    made_from: dict[str, Any]
    before: tuple[StrictFloat, ...]
    salt: Text


def keep_opening(run_id: str, opening: Opening, state_dir: Path | None = None) -> None:
    """Write the opening of the run `run_id` where only its owner can read it; on disk when this returns.

    Raises:
        DposeError: the state folder cannot be written.
    """
    write_private(_file(run_id, state_dir), opening.to_json())


def kept_opening(run_id: str, state_dir: Path | None = None) -> Opening | None:
    """The opening of the run `run_id`; None if this machine keeps none.

    Raises:
        DposeError: it keeps one that cannot be read.
    """
    file = _file(run_id, state_dir)
    return Opening.read(file) if file.exists() else None


def _file(run_id: str, state_dir: Path | None) -> Path:
    return state_folder(state_dir) / "canaries" / f"{run_id}.json"
