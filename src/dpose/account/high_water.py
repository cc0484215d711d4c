"""How far this machine has seen an account: the last row of its journal, kept apart from it in the state folder.

    seen(folder, "postgresql://team/account")      # HighWater(seq=1204, mac="9f3c...")

A database that is exchanged for an older copy of itself is consistent: every MAC in it holds. What it lacks is told by
whoever has seen more. The mark is written after a transaction, so that it may be behind its account and is never ahead
of it; a crash between the two loses nothing but that transaction's mark.

**Guarantee.** An account that ends before the row that this machine has seen last, or that holds another row in its
place, is refused (`SetBackError`). What only other machines have seen is not known here, and who may write to the state
folder may take the mark away.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dpose.errors import DposeError
from dpose.files import file_bytes, private_folder

FOLDER = "accounts-seen"
LARGEST_NUMBER = 2**63 - 1
"""Of a row: what a database can compare with."""


class SetBackError(DposeError):
    """An account holds less than this machine has seen of it."""


@dataclass(frozen=True)
class HighWater:
    """The last row that was seen of a journal.

    Attributes:
        seq: Its number; 0 for none.
        mac: Its MAC.
    """

    seq: int = 0
    mac: str = ""


def seen(folder: Path, account: str) -> HighWater:
    """What this machine has seen of the account of that name.

    Raises:
        DposeError: the mark cannot be read.
    """
    file = _file(folder, account)
    try:
        content = file_bytes(file).rstrip(b"\0")
        # not whole: power was cut before it was on the disk
        values = json.loads(content if content.endswith(b"}") else b"{}")
        found = HighWater(int(values.get("seq", 0)), str(values.get("mac", "")))
        if not 0 <= found.seq <= LARGEST_NUMBER:
            raise ValueError("there is no such row")
        return found
    except FileNotFoundError:
        return HighWater()
    except (OSError, ValueError, OverflowError, AttributeError, TypeError, RecursionError) as error:
        raise DposeError(
            "high-water-unreadable",
            f"how far the account was seen cannot be read ({error})",
            str(file),
            "remove it, and it is kept anew",
        ) from error


def any_seen(folder: Path) -> bool:
    """Whether an account was ever seen with this state folder."""
    return any((folder / FOLDER).glob("*.json"))


def note_seen(folder: Path, account: str, water: HighWater) -> None:
    """Keep how far an account was seen; where it cannot be kept, the older mark stands.

    Nothing waits for the disk: after a power cut an older mark is as good as a crash before this one.
    """
    file = _file(folder, account)
    with contextlib.suppress(OSError):
        if not file.parent.exists():
            private_folder(folder)
            private_folder(file.parent)
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=".")  # 0600
        with os.fdopen(descriptor, "w") as opened:
            json.dump({"account": account, "seq": water.seq, "mac": water.mac}, opened)
        os.replace(name, file)


def _file(folder: Path, account: str) -> Path:
    return folder / FOLDER / f"{hashlib.sha256(account.encode()).hexdigest()[:32]}.json"
