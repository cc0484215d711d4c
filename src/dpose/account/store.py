"""The account's database: SQLite for one user, PostgreSQL for a team; its key, its journal, and how it is opened.

    with opened(where).transaction() as account:
        account.append("charge", name, body)

One transaction at a time writes, on either engine: SQLite's `BEGIN IMMEDIATE`, PostgreSQL's advisory lock. What one
reservation read is therefore still true when it is written.

The journal holds what has happened, in rows that are added and never changed. A MAC binds each row to the row before
it; all other tables (the sets of pictures, the bounds of budgets, compositions) follow from the journal or are checked
by the key. Order is the journal's own number: no clock decides anything.

The key is not stored in the database. A team shares it (`DPOSE_ACCOUNT_KEY`); a single user's key is a file beside the
account that only that user can read. The database holds a check value, so that a wrong key is detected: under a wrong
key no picture would be found, and every budget would look unspent.

**Guarantee.** Without the key the hashes of pictures are those of a random function (AES as a pseudo-random
permutation, cut to 64 bits): the database alone shows how many pictures the charges read and share, and of no picture
whether it is among them. Two pictures with one hash (one pair in 10^7 for a million pictures) count as one: spending is
never understated.

A row of the journal that is changed, added or removed without the key is detected when it is next read; of the tables
of sets, `check_account` finds it. A whole database that is
replaced by an older copy of itself is consistent: every MAC in it holds. It is detected on each machine that has seen
more of it: an account that ends before the last row which this machine has seen, or that holds another row in its
place, is refused (`SetBackError`). The mark of what was seen is written after a transaction, so it may be behind its
account and is never ahead of it. Rows that only other machines have seen are not known here, and a user who can write
to the state folder can remove the mark.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import json
import os
import re
import secrets
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import (
    explain_os_error,
    file_bytes,
    file_text,
    fsync_folder,
    make_folder,
    private_folder,
    write_private,
)
from dpose.privacy.keys import state_folder
from dpose.privacy.marks import Marks

if TYPE_CHECKING:
    from sqlalchemy import Connection, CursorResult, Engine

VARIABLE = "DPOSE_ACCOUNT"
DATABASE = "account.sqlite"
KEY_VARIABLE = "DPOSE_ACCOUNT_KEY"
KEY_FILE = "account.key"
SEEN = "accounts-seen"
"""Folder of the marks of what this machine has seen."""
ACCEPTED = "accept"
"""Kind of the row of an account that was set back and accepted as it was."""
SCHEMA = 1
OTHER_BUILD = (
    "update dpose, or use the one that wrote it; to begin anew, where nothing counts what was spent before: set "
    "XDG_STATE_HOME to another folder, or move the account's folder away"
)
ROWS_AT_ONCE = 1000
"""Number of rows of the journal in memory while it is read."""
_SQLITE = "sqlite:///"
LARGEST_NUMBER = 2**63 - 1
"""Largest number of a row: the largest that a database compares with."""
PATIENCE_S = 120
"""Seconds that a transaction waits for the one before it."""
LOCK = 0x64706F7365
"""PostgreSQL's advisory lock of the account."""

Where: TypeAlias = Path | str | None
"""An account: a URL, a state folder, or the user's own (`DPOSE_ACCOUNT`, otherwise the state folder's)."""
Subjects = NDArray[np.int64]
"""Sorted and unique keyed hashes of pictures, as the account stores them."""

_TABLES = (
    "CREATE TABLE meta (name VARCHAR(40) PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE subjects (subject BIGINT PRIMARY KEY, cell BIGINT NOT NULL)",
    "CREATE TABLE sets (id BIGINT PRIMARY KEY, digest VARCHAR(64) NOT NULL UNIQUE, members BIGINT NOT NULL)",
    "CREATE TABLE cells (id {serial}, parent BIGINT NOT NULL, set_id BIGINT NOT NULL, members BIGINT NOT NULL, "
    "UNIQUE (parent, set_id))",
    "CREATE INDEX cells_of_set ON cells (set_id)",
    "CREATE TABLE meets (one BIGINT NOT NULL, other BIGINT NOT NULL, PRIMARY KEY (one, other))",
    "CREATE TABLE journal (seq BIGINT PRIMARY KEY, kind VARCHAR(16) NOT NULL, name VARCHAR(80) NOT NULL, "
    "body TEXT NOT NULL, mac VARCHAR(64) NOT NULL)",
    "CREATE INDEX journal_by_name ON journal (name, seq)",
    "CREATE INDEX journal_by_kind ON journal (kind, name)",
    "CREATE TABLE budgets (name VARCHAR(80) PRIMARY KEY, set_id BIGINT NOT NULL, "
    "spent VARCHAR(40) NOT NULL, delta VARCHAR(40) NOT NULL, mac VARCHAR(64) NOT NULL)",
    "CREATE TABLE compositions (digest VARCHAR(64) PRIMARY KEY, value TEXT NOT NULL, mac VARCHAR(64) NOT NULL)",
)
"""Schema 1. `cells` is a tree of which pictures were read together: docs/proofs/odometer.md."""


# the key


@dataclass(frozen=True)
class AccountKey:
    """The secret of an account, 32 bytes; `place` is where it came from, for messages."""

    secret: bytes = field(repr=False)
    place: str = ""

    def derived(self, purpose: str) -> bytes:
        """A key for one purpose alone, 32 bytes."""
        return hmac.digest(self.secret, f"dpose/account/1 {purpose}".encode(), "sha256")

    @property
    def check(self) -> str:
        """The value in the database by which the key is recognized; it reveals nothing about the key."""
        return self.derived("check").hex()

    def subjects(self, marks: Marks) -> Subjects:
        """Keyed hashes of the pictures `marks`, sorted and unique."""
        return np.unique(self.hashes(marks))

    def hashes(self, marks: Marks) -> NDArray[np.int64]:
        """The keyed hash of each of `marks`, in their order: AES-256 of the mark, its first eight bytes."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        blocks = np.zeros((len(marks), 2), "<u8")
        blocks[:, 0] = marks
        # each block by itself: one picture has one hash, which is what makes it a name
        cipher = Cipher(algorithms.AES(self.derived("subjects")), modes.ECB()).encryptor()
        sealed = np.frombuffer(cipher.update(blocks.tobytes()) + cipher.finalize(), "<i8").reshape(-1, 2)
        return sealed[:, 0].astype(np.int64)

    def name_of(self, marks: Marks) -> str:
        """`set_digest` of the pictures `marks`, computed once for the same marks."""
        requested = self, hashlib.sha256(np.ascontiguousarray(marks).data).digest()
        name = _NAMES.get(requested) or self.set_digest(self.subjects(marks))
        if len(_NAMES) >= 64:
            _NAMES.clear()
        _NAMES[requested] = name
        return name

    def set_digest(self, subjects: Subjects) -> str:
        """The name of a set of pictures, by its members."""
        content = np.ascontiguousarray(subjects, "<i8").tobytes()
        return hmac.digest(self.derived("sets"), content, "sha256").hex()

    def owner_hash(self, word: str) -> str:
        """Hash of the word of a budget's owner, slow to guess even with the key; "" for no word."""
        if not word:
            return ""
        return hashlib.scrypt(word.encode(), salt=self.derived("owners"), n=1 << 14, r=8, p=1, dklen=32).hex()

    def mac(self, purpose: str, *parts: str) -> str:
        """A MAC of `parts`, each framed by its length."""
        framed = b"".join(len(part.encode()).to_bytes(8, "big") + part.encode() for part in parts)
        return hmac.digest(self.derived(purpose), framed, "sha256").hex()


_NAMES: dict[tuple[AccountKey, bytes], str] = {}
"""Names of sets by key and digest of the marks: the marks themselves are not held."""


def account_key(folder: Path, *, make: bool) -> AccountKey | None:
    """The key: of `DPOSE_ACCOUNT_KEY`, or of the file in `folder`, which is made if `make`; None without either."""
    if given := os.environ.get(KEY_VARIABLE):
        return AccountKey(_secret(given, KEY_VARIABLE), KEY_VARIABLE)
    file = folder / KEY_FILE
    if make and not file.exists():
        _make_key(file)
    try:
        if file.stat().st_mode & 0o077 and os.name != "nt":
            said, fix = "others may read the key of the account", f"close it: chmod 600 {file}"
            raise DposeError("account-key-exposed", said, str(file), fix)
        return AccountKey(_secret(file_text(file, encoding="ascii"), str(file)), str(file))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        said = f"the key of the account cannot be read ({error})"
        raise DposeError("account-key-unreadable", said, str(file)) from error


def _secret(text: str, where: str) -> bytes:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text.strip()):
        raise DposeError("account-key-malformed", "a key of an account has 64 hexadecimal digits", where)
    return bytes.fromhex(text.strip())


def _make_key(file: Path) -> None:
    """Write a new key, whole or not at all; of several processes the first one's key stays."""
    mine = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    write_private(mine, secrets.token_hex(32) + "\n")
    try:
        with contextlib.suppress(FileExistsError):
            os.link(mine, file)
        fsync_folder(file.parent)
    except OSError as error:
        raise explain_os_error(error, file) from error
    finally:
        mine.unlink()


# how far this machine has seen it


class SetBackError(DposeError):
    """An account holds less than this machine has seen of it."""


class HighWater(NamedTuple):
    """The last row that was seen of a journal: its number, 0 for none, and its MAC."""

    seq: int = 0
    mac: str = ""


def seen(folder: Path, account: str) -> HighWater:
    """The last row that this machine has seen of the account of that name; refused if the mark cannot be read."""
    file = seen_file(folder, account)
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
        said = f"how far the account was seen cannot be read ({error})"
        raise DposeError("high-water-unreadable", said, str(file), "remove it, and it is kept anew") from error


def note_seen(folder: Path, account: str, water: HighWater) -> None:
    """Store how far an account was seen; if that cannot be written, the older mark stays.

    Nothing waits for the disk: after a power cut an older mark is as good as a crash before this one.
    """
    file = seen_file(folder, account)
    with contextlib.suppress(OSError):
        if not file.parent.exists():
            private_folder(folder)
            private_folder(file.parent)
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=".")  # 0600
        with os.fdopen(descriptor, "w") as opened:
            json.dump({"account": account, "seq": water.seq, "mac": water.mac}, opened)
        os.replace(name, file)


def seen_file(folder: Path, account: str) -> Path:
    """The file of an account's mark."""
    return folder / SEEN / f"{hashlib.sha256(account.encode()).hexdigest()[:32]}.json"


# transactions and the journal


@dataclass(frozen=True)
class JournalRow:
    """Event number `seq` of the account (1, 2, 3, ...); its MAC binds it to the one before.

    Of `kind` "charge", "budget", "lift", "window", "ledger" or `ACCEPTED`; about the charge, budget or ledger `name`.
    """

    seq: int
    kind: str
    name: str
    body: dict[str, Any] = field(repr=False)
    mac: str = field(repr=False)


class Transaction:
    """Reads and writes while no other process writes. Made by `Store.transaction`."""

    def __init__(self, store: Store, connection: Connection, key: AccountKey, before: HighWater | None = None) -> None:
        self.store, self.key, self.before = store, key, before
        self.appended = False
        """Whether rows were added to the journal: they may still be rolled back."""
        self.last: HighWater | None = None
        """The journal's last row, once `head` was read."""
        self.known = store.known
        """What this process had read of the journal before: what other threads read since is not in view."""
        self._connection = connection

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """The rows that a query selects; {each} in it is the parameter `numbers` as a column `one`."""
        return [tuple(row) for row in self._executed(statement, values)]

    def numbers(self, statement: str, **values: Any) -> list[tuple[int, ...]]:
        """`rows` of integers alone: a column of SQLite holds whatever was put there."""
        return [tuple(map(int, row)) for row in self.rows(statement, **values)]

    def run(self, statement: str, *many: dict[str, Any], **values: Any) -> int:
        """Execute a statement, once or for each of `many`; the number of rows that it changed."""
        return self._executed(statement, list(many) or values).rowcount

    def _executed(self, statement: str, values: Any) -> CursorResult[Any]:
        from sqlalchemy import text

        if "{each}" in statement:
            given = values["numbers"]
            listed = ",".join(map(str, given.tolist() if isinstance(given, np.ndarray) else given))
            lite = "SELECT value AS one FROM json_each('[' || :numbers || ']')"
            full = "SELECT one FROM unnest(CAST('{' || :numbers || '}' AS BIGINT[])) AS given(one)"
            statement = statement.replace("{each}", lite if self.store.lite else full)
            values = {**values, "numbers": listed}
        return self._connection.execute(text(statement), values)

    def meta(self, name: str) -> str | None:
        """A value of the account as a whole."""
        found = self.rows("SELECT value FROM meta WHERE name = :name", name=name)
        return str(found[0][0]) if found else None

    def set_meta(self, name: str, value: str) -> None:
        """Write a value of the account as a whole."""
        # not ON CONFLICT: a role that may charge may update this table and not insert into it
        if not self.run("UPDATE meta SET value = :value WHERE name = :name", name=name, value=value):
            self.run("INSERT INTO meta (name, value) VALUES (:name, :value)", name=name, value=value)

    @property
    def head(self) -> HighWater:
        """The last row of the journal.

        Refused if it is not what was last written, if this machine has seen more, or if the schema is another by now.
        """
        if self.last is None:
            store = self.store
            meta = dict(self.rows("SELECT name, value FROM meta WHERE name IN ('head', 'schema')"))
            store.check_schema(meta.get("schema"))
            seq, _, mac = str(meta.get("head", "0 ")).partition(" ")
            found = HighWater(store.number_in(seq), mac)
            rows = self.rows("SELECT seq, mac FROM journal ORDER BY seq DESC LIMIT 1")
            if found != (HighWater(*rows[0]) if rows else HighWater()):
                raise store.altered("rows are missing at the end of its journal, or were added")
            before = store.seen if self.before is None else self.before
            if before.seq > found.seq:
                raise store.set_back(f"it ends at row {found.seq}", before)
            if before.seq and self._mac_at(before.seq) != before.mac:
                raise store.set_back("it has another one there", before)
            self.last = found
        return self.last

    def _mac_at(self, seq: int) -> str | None:
        """The MAC of a row as it stands; None if there is no such row."""
        found = self.rows("SELECT mac FROM journal WHERE seq = :seq", seq=seq)
        return found[0][0] if found else None

    def append(self, kind: str, name: str, body: dict[str, Any]) -> int:
        """Add a row to the journal; its number."""
        seq = self.head.seq + 1
        text = json.dumps(body, sort_keys=True)
        mac = self.key.mac("journal", self.head.mac, str(seq), kind, name, text)
        row = {"seq": seq, "kind": kind, "name": name, "body": text, "mac": mac}
        self.run("INSERT INTO journal (seq, kind, name, body, mac) VALUES (:seq, :kind, :name, :body, :mac)", row)
        self.set_meta("head", f"{seq} {mac}")
        self.appended, self.last = True, HighWater(seq, mac)
        return seq

    def journal(self, after: int = 0, mac: str = "") -> Iterator[list[JournalRow]]:
        """The rows after number `after`, whose MAC is `mac`, each checked, as that one is; `ROWS_AT_ONCE` at a time."""
        head, last = self.head.seq, after
        if after and self._mac_at(after) != mac:
            raise self.store.altered(f"row {after} of its journal is not the one that was read before")
        while found := self.rows(
            "SELECT seq, kind, name, body, mac FROM journal WHERE seq > :last ORDER BY seq LIMIT :page",
            last=last,
            page=ROWS_AT_ONCE,
        ):
            rows = []
            for values in found:
                rows.append(row := self._row(values, mac, last + 1))
                last, mac = row.seq, row.mac
            yield rows
        if last != head:
            raise self.store.altered("rows of its journal are missing")

    def last_of(self, name: str) -> JournalRow | None:
        """The newest row about `name`, checked; None if there is none."""
        found = self.rows(
            "SELECT seq, kind, name, body, mac FROM journal WHERE name = :name ORDER BY seq DESC LIMIT 1", name=name
        )
        if not found:
            return None
        seq = self.store.number_in(found[0][0])
        return self._row(found[0], str(self._mac_at(seq - 1) or ""), seq)

    def _row(self, values: tuple[Any, ...], before: str, expected: int) -> JournalRow:
        """Row number `expected`, from what stands there and the MAC of the row before it."""
        seq, kind, name, body, own = values
        # a column of SQLite holds whatever was put there
        texts = all(isinstance(value, str) for value in values[1:])
        if seq != expected or not texts or own != self.key.mac("journal", before, str(seq), kind, name, body):
            raise self.store.altered(f"row {expected} of its journal is not as it was written")
        return JournalRow(seq, kind, name, json.loads(body), own)


# the database


class Store:
    """An account's database, made by `opened`: SQLite's `file`, or PostgreSQL's `url`.

    `ready` is the key, once it and the schema were found to be right; `known` is what this process has read of the
    journal so far (`charges.History`).
    """

    def __init__(self, url: str, folder: Path, where: Where) -> None:
        self.url, self.folder, self.where = url, folder, where
        self.lite = url.startswith("sqlite")
        self.file = Path(url.removeprefix(_SQLITE)) if self.lite else None
        self.ready: AccountKey | None = None
        self.known: Any = None

    @property
    def name(self) -> str:
        """The place, for messages: without a password."""
        if self.file:
            return str(self.file)
        from sqlalchemy import make_url
        from sqlalchemy.exc import ArgumentError

        try:
            url = make_url(self.url)
        except (ArgumentError, ValueError):
            kind, named, _ = self.url.partition("://")
            return f"{kind}://..." if named else "..."  # whatever stands there may be a password
        shown = url.set(query={key: "***" if "pass" in key.lower() else value for key, value in url.query.items()})
        return re.sub(r":\*\*\*@.*@", ":***@", shown.render_as_string(hide_password=True))  # a password with an @

    @property
    def seen(self) -> HighWater:
        """The last row that this machine has seen."""
        return seen(self.folder, self.name)

    @contextlib.contextmanager
    def transaction(self, *, write: bool = True, make: bool | None = None) -> Iterator[Transaction]:
        """A transaction: the only one that writes, or a view of one moment.

        If there is no account one is made if `make`, as `write` by default. Otherwise an empty one is read, and nothing
        stays of what is written.

        Raises:
            DposeError: the account cannot be reached, is of a newer dpose or of another key, or the disk is full.
        """
        from sqlalchemy import create_engine
        from sqlalchemy.exc import SQLAlchemyError

        try:
            if not (write if make is None else make) and self._absent():
                nothing = create_engine("sqlite://", isolation_level="AUTOCOMMIT")
                with nothing.connect() as connection, self._begun(connection, write):
                    empty = Store("sqlite:///", self.folder, self.where)
                    yield empty._created(connection, Transaction(empty, connection, AccountKey(bytes(32))))
                return
            key = self.ready or self._prepared()
            # a view holds what was seen before it; what others write and see meanwhile it does not
            before = None if write else self.seen
            with _engine(self.url, os.getpid()).connect() as connection, self._begun(connection, write):
                account = Transaction(self, connection, key, before)
                yield account
            if account.last and account.last.seq > self.seen.seq:
                note_seen(self.folder, self.name, account.last)
        except SQLAlchemyError as error:
            raise self._explained(error) from error

    @contextlib.contextmanager
    def _begun(self, connection: Connection, write: bool) -> Iterator[None]:
        if self.lite:
            connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
        else:
            level = "READ COMMITTED" if write else "REPEATABLE READ"
            connection.exec_driver_sql(f"BEGIN ISOLATION LEVEL {level}")
            if write:  # read committed: what is read after the lock is what the one before has left
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{PATIENCE_S}s'")
                connection.exec_driver_sql(  # on disk when a charge returns, however the server is set
                    "SELECT set_config('synchronous_commit', 'on', true) "
                    "WHERE current_setting('synchronous_commit') = 'off'"
                )
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK})")
        try:
            yield
            connection.exec_driver_sql("COMMIT")
        except BaseException:
            with contextlib.suppress(Exception):
                connection.exec_driver_sql("ROLLBACK")
            raise

    def _prepared(self) -> AccountKey:
        """The key; the schema is there and of this dpose when this returns."""
        from sqlalchemy import inspect

        if self.file:
            self._absent()
            try:  # its owner's alone, before anything is written to it; a folder that the user named holds more
                make_folder(self.file.parent, 0o700)
                if self.file.parent == self.folder.absolute():
                    private_folder(self.folder)
                os.close(os.open(self.file, os.O_CREAT | os.O_RDWR, 0o600))
                for end in ("", "-wal", "-shm"):
                    with contextlib.suppress(FileNotFoundError, PermissionError):  # another user's, or gone just now
                        os.chmod(f"{self.file}{end}", 0o600)
            except OSError as error:
                raise explain_os_error(error, self.file) from error
        with _engine(self.url, os.getpid()).connect() as connection, self._begun(connection, write=True):
            account = Transaction(self, connection, AccountKey(b""))
            made = inspect(connection).has_table("meta")
            if made:
                self.check_schema(account.meta("schema"))
            elif self.seen.seq:
                raise self.set_back("it is empty", self.seen)
            key = account_key(self.folder, make=not made)
            if key is None:
                raise DposeError(
                    "account-key-missing",
                    "the key of this account is missing: without it what was spent cannot be determined",
                    self.name,
                    f"bring back {self.folder / KEY_FILE}, or set DPOSE_ACCOUNT_KEY",
                )
            account.key = key
            if not made:
                self._created(connection, account)
            elif account.meta("key") != key.check:
                raise DposeError(
                    "account-key-wrong",
                    "this is not the key of this account: with it, nothing would seem to be spent",
                    key.place,
                    f"bring back the key that {self.name} was made with",
                )
        self.ready = key
        return key

    def _absent(self) -> bool:
        """Whether there is no account yet; one that is gone is refused: what was spent would be forgotten.

        One key may serve several accounts, so that the key stands for none of them alone: what was seen of this one
        does. A key of a folder in which nothing was ever seen stands for the account beside it.
        """
        if self.file is None or self.file.exists():
            return False
        if self.seen.seq:
            raise self.set_back("it is not here any more", self.seen)
        key = self.folder / KEY_FILE
        any_seen = any((self.folder / SEEN).glob("*.json"))
        if key.exists() and not any_seen and not (self.folder / DATABASE).exists():
            raise DposeError(
                "account-missing",
                "the key of an account is here, and its account is not",
                str(self.file),
                f"bring it back, set {VARIABLE} if it is elsewhere, or remove {key} to begin anew",
            )
        return True

    def _created(self, connection: Connection, account: Transaction) -> Transaction:
        serial = "INTEGER PRIMARY KEY" if self.lite else "BIGSERIAL PRIMARY KEY"
        for statement in _TABLES:
            connection.exec_driver_sql(statement.format(serial=serial))
        account.set_meta("schema", str(SCHEMA))
        account.set_meta("key", account.key.check)
        return account

    def check_schema(self, value: Any) -> None:
        """Refuse an account of a newer dpose, or of a build before the first release, whose numbers were higher."""
        version = self.number_in(value)
        if version < 1:
            raise self.altered("it is of no schema that there was")
        if version > SCHEMA:
            said = f"the account is of another dpose (schema {version}, this one knows {SCHEMA})"
            raise DposeError("account-newer", said, self.name, OTHER_BUILD)

    def number_in(self, value: Any) -> int:
        """A number of a row or a schema that the account holds; refused where it is none."""
        try:
            found = int(value)
        except (TypeError, ValueError, OverflowError):  # the last for infinity
            found = -1
        if not 0 <= found <= LARGEST_NUMBER:
            raise self.altered("there is no number where one was written")
        return found

    def altered(self, what: str) -> DposeError:
        """The error of an account that is not as dpose wrote it."""
        fix = "bring back a copy of it from before; what was spent since cannot be told"
        return DposeError("account-altered", f"the account was altered: {what}", self.name, fix)

    def set_back(self, what: str, before: HighWater) -> SetBackError:
        """The error of an account that holds less than this machine has seen."""
        return SetBackError(
            "account-set-back",
            f"the account was set back: this machine has seen its row {before.seq:,}, and {what}",
            self.name,
            "bring back its newest copy; to go on without what is missing, which then counts as never spent: "
            "dpose account accept",
        )

    def _explained(self, error: Exception) -> DposeError:
        said = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        if "disk is full" in said or "No space left" in said:
            return explain_os_error(OSError(errno.ENOSPC, said), Path(self.name))
        if "readonly" in said:
            return explain_os_error(OSError(errno.EACCES, said), Path(self.name))
        if "not a database" in said or "malformed" in said:
            return self.altered(f"it is no database any more ({said})")
        if "no such column" in said or "no such table" in said:
            said, fix = f"it is of another dpose: {said}", OTHER_BUILD
        else:
            fix = "see that it can be reached, then run this again"
        said = f"the account cannot be used ({said}), and nothing private is read without it"
        return DposeError("account-unusable", said, self.name, fix)


def opened(where: Where = None) -> Store:
    """The account at `where`; nothing is opened or made yet.

    Raises:
        DposeError: the URL is neither of SQLite nor of PostgreSQL, names a file by a relative path in the environment,
            or what it needs is not installed.
    """
    folder = state_folder(where if isinstance(where, Path) else None)
    url = where if isinstance(where, str) else os.environ.get(VARIABLE, "")
    file = Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) and url != _SQLITE else None
    if file and not file.is_absolute() and url is not where:  # jobs run elsewhere, and would each have their own
        said = "names another file in each folder that a job runs in"
        raise DposeError("account-place-relative", said, f"{VARIABLE}={url}", f"say {_SQLITE}{file.absolute()}")
    if not url or file:
        url = f"{_SQLITE}{(file or folder / DATABASE).absolute()}"
    return _store(url, folder, where, os.getpid())


def accept_account(where: Where = None, *, yes: bool = False) -> str:
    """Take an account that was set back as it is: what it lacks counts as never spent, and its journal says so.

    Returns what was done, for the user.

    Raises:
        DposeError: it was set back and `yes` is not set, or it cannot be read or written.
    """
    store = opened(where)
    before = store.seen
    try:
        with store.transaction(write=False) as account:
            return f"{store.name}: nothing is missing that this machine has seen ({account.head.seq:,} rows)."
    except SetBackError as error:
        if not yes:
            fix = "bring back its newest copy; to go on with less than was spent, say --yes"
            raise DposeError(error.code, error.what, store.name, fix) from error
    note_seen(store.folder, store.name, HighWater())
    store.ready = store.known = None
    if account_exists(where):
        try:
            with store.transaction() as account:
                account.append(ACCEPTED, "account", {"seen": before.seq, "held": account.head.seq})
        except BaseException:
            note_seen(store.folder, store.name, before)
            raise
    return f"{store.name}: taken as it is. What is missing of {before.seq:,} rows counts as never spent."


def account_exists(where: Where = None) -> bool:
    """Whether there is an account at `where` that anything was written to; one elsewhere is taken to be there."""
    store = opened(where)
    return store.file is None or store.file.exists()


@lru_cache(maxsize=16)
def _store(url: str, folder: Path, where: Where, process: int) -> Store:
    if url.startswith("postgresql://"):
        url = "postgresql+psycopg" + url.removeprefix("postgresql")
    if not re.match(r"(sqlite:///.|postgresql\+psycopg://([^@]*@)?[^@]*$)", url):
        raise DposeError(
            "account-place-malformed",
            "is no place for an account",
            Store(url, folder, where).name,
            "say postgresql+psycopg://USER@HOST/NAME, with an @ in a password as %40, or sqlite:///FILE",
        )
    if url.startswith("postgresql"):
        try:
            import psycopg  # noqa: F401
        except ImportError as error:
            raise DposeError(
                "package-missing", "an account in PostgreSQL needs psycopg", fix="pip install 'psycopg[binary]'"
            ) from error
    return Store(url, folder, where)


def close_connections(url: str) -> None:
    """Close what this process keeps open of the account at `url`; the next transaction opens it again."""
    _engine(url, os.getpid()).dispose()


@lru_cache(maxsize=16)
def _engine(url: str, process: int) -> Engine:
    """One for each process: a connection does not outlive a fork."""
    from sqlalchemy import create_engine, event

    lite = url.startswith("sqlite")
    own = {"timeout": PATIENCE_S, "check_same_thread": False} if lite else {"connect_timeout": 10}
    # autocommit: `_begun` begins and ends
    engine = create_engine(url, isolation_level="AUTOCOMMIT", pool_pre_ping=not lite, connect_args=own)
    if not lite:
        return engine

    @event.listens_for(engine, "connect")
    def _settled(connection: Any, _: Any) -> None:
        # full: what was reserved is on the disk before anything is computed, power cut or not
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            try:
                connection.execute(f"PRAGMA {pragma}").close()
            except UnicodeDecodeError as error:  # SQLite's own message, with what it has found, is no text
                raise sqlite3.DatabaseError("malformed: what it says of its tables is no text") from error

    return engine
