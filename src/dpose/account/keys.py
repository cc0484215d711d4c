"""What stands apart from an account's database: its key, and how far this machine has seen its journal.

    key = account_key(state_folder(), make=True)
    key.subjects(marks)                            # (n,) int64, sorted: AES-256 of each mark, its first eight bytes
    seen(folder, "postgresql://team/account")      # HighWater(seq=1204, mac="9f3c...")

The key never stands in the account's database. A team shares it (`DPOSE_ACCOUNT_KEY`); one user's lies beside the
account in a file that nobody else can read. The database holds a check value, so that a wrong key is told from the
right one: under a wrong key no picture would be found, and all budgets would look unspent.

**Guarantee.** Without the key the hashes are those of a random function (AES as a pseudo-random permutation, cut to 64
bits): whoever reads the database alone learns how many pictures the charges read and share, and of no picture whether
it is among them. Two pictures with one hash (one in 10^7 for a million) are counted as one: never less is spent.

A database that is exchanged for an older copy of itself is consistent: every MAC in it holds. What it lacks is told by
whoever has seen more: an account that ends before the row that this machine has seen last, or that holds another row in
its place, is refused (`SetBackError`). The mark is written after a transaction, so that it may be behind its account
and is never ahead of it. What only other machines have seen is not known here, and who may write to the state folder
may take the mark away.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import explain_os_error, file_bytes, file_text, fsync_folder, private_folder
from dpose.privacy.marks import Marks

VARIABLE = "DPOSE_ACCOUNT_KEY"
FILE = "account.key"
FOLDER = "accounts-seen"
LARGEST_NUMBER = 2**63 - 1
"""Of a row: what a database can compare with."""

Subjects = NDArray[np.int64]
"""Sorted and each once: keyed hashes of pictures, as they stand in the account."""


@dataclass(frozen=True)
class AccountKey:
    """The secret of an account.

    Attributes:
        secret: 32 bytes.
        place: Where it was found, for messages.
    """

    secret: bytes = field(repr=False)
    place: str = ""

    def derived(self, purpose: str) -> bytes:
        """A key for one purpose alone, 32 bytes."""
        return hmac.digest(self.secret, f"dpose/account/1 {purpose}".encode(), "sha256")

    @property
    def check(self) -> str:
        """What stands in the database for the key; it tells nothing of it."""
        return self.derived("check").hex()

    def subjects(self, marks: Marks) -> Subjects:
        """Keyed hashes of the pictures `marks`, sorted."""
        return np.unique(self.hashes(marks))

    def hashes(self, marks: Marks) -> NDArray[np.int64]:
        """The keyed hash of each of `marks`, in their order."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        blocks = np.zeros((len(marks), 2), "<u8")
        blocks[:, 0] = marks
        # each block by itself: one picture has one hash, which is what makes it a name
        cipher = Cipher(algorithms.AES(self.derived("subjects")), modes.ECB()).encryptor()
        sealed = np.frombuffer(cipher.update(blocks.tobytes()) + cipher.finalize(), "<i8").reshape(-1, 2)
        return sealed[:, 0].astype(np.int64)

    def name_of(self, marks: Marks) -> str:
        """`set_digest` of the pictures `marks`, computed once for the same marks."""
        return _name_of(self, hashlib.sha256(np.ascontiguousarray(marks).data).digest(), _Unhashed(marks))

    def set_digest(self, subjects: Subjects) -> str:
        """The name of a set of pictures, by its members."""
        return hmac.digest(
            self.derived("sets"), np.ascontiguousarray(subjects, "<i8").tobytes(), "sha256"
        ).hex()

    def mac(self, purpose: str, *parts: str) -> str:
        """What only a holder of the key can write beside `parts`."""
        framed = b"".join(len(part.encode()).to_bytes(8, "big") + part.encode() for part in parts)
        return hmac.digest(self.derived(purpose), framed, "sha256").hex()


class _Unhashed:
    """An array that goes along with the digest that stands for it in a cache."""

    def __init__(self, marks: Marks) -> None:
        self.marks: Marks | None = marks

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unhashed)


@lru_cache(maxsize=64)
def _name_of(key: AccountKey, digest: bytes, of: _Unhashed) -> str:
    marks, of.marks = of.marks, None  # the cache keeps digests and no arrays
    assert marks is not None
    return key.set_digest(key.subjects(marks))


def account_key(folder: Path, *, make: bool) -> AccountKey | None:
    """The key: from `DPOSE_ACCOUNT_KEY`, or from the file in `folder`.

    Args:
        folder: The state folder.
        make: Make a key where there is none; of processes that do so at once all get the same.

    Returns:
        The key; None where there is none and `make` is not set.

    Raises:
        DposeError: it is no key, others could read its file, or the file cannot be read or made.
    """
    if given := os.environ.get(VARIABLE):
        return AccountKey(_secret(given, VARIABLE), VARIABLE)
    file = folder / FILE
    if make and not file.exists():
        _make(file)
    try:
        if file.stat().st_mode & 0o077 and os.name != "nt":
            raise DposeError(
                "account-key-exposed",
                "others may read the key of the account",
                str(file),
                f"close it: chmod 600 {file}",
            )
        return AccountKey(_secret(file_text(file, encoding="ascii"), str(file)), str(file))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise DposeError(
            "account-key-unreadable", f"the key of the account cannot be read ({error})", str(file)
        ) from error


def _secret(text: str, where: str) -> bytes:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text.strip()):
        raise DposeError("account-key-malformed", "a key of an account has 64 hexadecimal digits", where)
    return bytes.fromhex(text.strip())


def _make(file: Path) -> None:
    """Write a new key; whoever was first wins."""
    private_folder(file.parent)
    try:
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(descriptor, "w") as opened:
                opened.write(secrets.token_hex(32) + "\n")
                opened.flush()
                os.fsync(opened.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(name, file)
            fsync_folder(file.parent)
        finally:
            os.unlink(name)
    except OSError as error:
        raise explain_os_error(error, file) from error


def owner_hash(key: AccountKey, word: str) -> str:
    """What stands in the account for the word of a budget's owner: slow to guess even with the key; "" for none."""
    if not word:
        return ""
    return hashlib.scrypt(word.encode(), salt=key.derived("owners"), n=1 << 14, r=8, p=1, dklen=32).hex()


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
