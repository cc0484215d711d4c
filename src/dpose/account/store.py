"""The account's database: SQLite for one user, PostgreSQL for a team; its tables, and how it is opened.

    with opened(where).transaction() as account:
        account.append("charge", name, body)

One transaction at a time writes, on either engine: SQLite's `BEGIN IMMEDIATE`, PostgreSQL's advisory lock. So what one
reservation read is still true when it is written, whoever else is at work. The journal is what has happened: rows are
added and never changed, each with a MAC that binds it to the row before it. All else (which pictures are in which sets,
upper bounds of budgets, compositions) can be told from it or checked by the key. Order is the journal's own number: no
clock decides anything.

**Guarantee.** A whole database that is exchanged for an older copy of itself is found by whoever has seen more of it
(`keys`); a row of the journal that was changed, added or taken out without the key, when it is next read.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dpose.account.keys import (
    FILE,
    LARGEST_NUMBER,
    AccountKey,
    HighWater,
    SetBackError,
    account_key,
    any_seen,
    note_seen,
    seen,
)
from dpose.errors import DposeError
from dpose.files import explain_os_error, make_folder, private_folder
from dpose.privacy.keys import state_folder

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

SCHEMA = 1
VARIABLE = "DPOSE_ACCOUNT"
DATABASE = "account.sqlite"
ACCEPTED = "accept"
"""The kind of a journal's row that says that the account was set back and taken as it was."""
PATIENCE_S = 120
"""How long a transaction waits for the one before it."""
PAGE = 1000
"""So many rows of the journal are in memory at a time while it is read."""
LOCK = 0x64706F7365
"""PostgreSQL's advisory lock of the account."""

Where: TypeAlias = Path | str | None
"""Which account: a URL, a state folder, or the user's own (`DPOSE_ACCOUNT`, otherwise the state folder's)."""

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
    "CREATE TABLE budgets (name VARCHAR(80) PRIMARY KEY, set_id BIGINT NOT NULL, "
    "spent VARCHAR(40) NOT NULL, delta VARCHAR(40) NOT NULL, mac VARCHAR(64) NOT NULL)",
    "CREATE INDEX budgets_of_set ON budgets (set_id)",
    "CREATE TABLE compositions (digest VARCHAR(64) PRIMARY KEY, value TEXT NOT NULL, mac VARCHAR(64) NOT NULL)",
)
"""Schema 1. `cells` is a tree of which pictures were read together: docs/proofs/odometer.md."""


class Store:
    """An account's database. Made by `opened`."""

    def __init__(self, url: str, folder: Path, where: Where) -> None:
        self.url, self.folder, self.where = url, folder, where
        self.lite = url.startswith("sqlite")
        self.file = Path(url.removeprefix("sqlite:///")) if self.lite else None
        self.ready: AccountKey | None = None
        """The key, once the schema and it were found to be right."""
        self.known: Any = None
        """What this process has read of the journal so far (`history.History`)."""

    @property
    def name(self) -> str:
        """For messages: without a password."""
        return str(self.file) if self.file else re.sub(r"//([^:@/]*):[^@/]*@", r"//\1:***@", self.url)

    def altered(self, what: str) -> DposeError:
        """That the account is not as dpose wrote it."""
        return DposeError(
            "account-altered",
            f"the account was altered: {what}",
            self.name,
            "bring back a copy of it from before; what was spent since cannot be told",
        )

    def number_in(self, value: Any) -> int:
        """A number of a row or a schema that the account holds.

        Raises:
            DposeError: it is none.
        """
        try:
            found = int(value)
        except (TypeError, ValueError, OverflowError):  # the last for infinity
            found = -1
        if not 0 <= found <= LARGEST_NUMBER:
            raise self.altered("there is no number where one was written")
        return found

    @property
    def seen(self) -> HighWater:
        """What this machine has seen of it."""
        return seen(self.folder, self.name)

    def set_back(self, what: str, before: HighWater) -> SetBackError:
        """That the account holds less than this machine has seen."""
        return SetBackError(
            "account-set-back",
            f"the account was set back: this machine has seen its row {before.seq:,}, and {what}",
            self.name,
            "bring back its newest copy; to go on without what is missing, which then counts as never spent: "
            "dpose account accept",
        )

    def check_schema(self, version: int) -> None:
        """Refuse an account of a newer dpose.

        Raises:
            DposeError: it is of one, or says that it is of none.
        """
        if version < 1:
            raise self.altered("it is of no schema that there was")
        if version > SCHEMA:
            raise DposeError(
                "account-newer",
                f"the account is of a newer dpose (schema {version}, this one knows {SCHEMA})",
                self.name,
                "update dpose",
            )

    @contextlib.contextmanager
    def transaction(self, *, write: bool = True, make: bool | None = None) -> Iterator[Transaction]:
        """A transaction: the only one that writes, or a view of one moment.

        Args:
            write: Whether it may write.
            make: Whether an account is made where there is none; as `write` by default. Otherwise an empty one is
                read, and nothing stays of what is written.

        Raises:
            DposeError: the account cannot be reached, is of a newer dpose or of another key, or the disk is full.
        """
        from sqlalchemy.exc import SQLAlchemyError

        try:
            if not (write if make is None else make) and self._absent():
                with _nothing().connect() as connection, self._begun(connection, write):
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
        if self.file and not self._orphan():
            self._closed_to_others()
        engine = _engine(self.url, os.getpid())
        with engine.connect() as connection, self._begun(connection, write=True):
            version = self._version(connection)
            self.check_schema(version or SCHEMA)
            if version is None and self.seen.seq:
                raise self.set_back("it is empty", self.seen)
            key = account_key(self.folder, make=version is None)
            if key is None:
                raise DposeError(
                    "account-key-missing",
                    "the key of this account is missing: without it nobody can tell what was spent",
                    self.name,
                    f"bring back {self.folder / FILE}, or set DPOSE_ACCOUNT_KEY",
                )
            account = Transaction(self, connection, key)
            if version is None:
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
        """Whether there is no account yet."""
        return self.file is not None and not self.file.exists() and not self._orphan()

    def _orphan(self) -> bool:
        """Whether there was an account here, and there is none.

        One key may serve several accounts, so that it stands for none of them alone: what was seen of this one does. A
        key from before this was kept stands for the account beside it.

        Raises:
            DposeError: there was: what was spent would be forgotten.
        """
        if self.file is None or self.file.exists():
            return False
        if self.seen.seq:
            raise self.set_back("it is not here any more", self.seen)
        key = self.folder / FILE
        if key.exists() and not any_seen(self.folder) and not (self.folder / DATABASE).exists():
            raise DposeError(
                "account-missing",
                "the key of an account is here, and its account is not",
                str(self.file),
                f"bring it back, set {VARIABLE} if it is elsewhere, or remove {key} to begin anew",
            )
        return False

    def _created(self, connection: Connection, account: Transaction) -> Transaction:
        serial = "INTEGER PRIMARY KEY" if self.lite else "BIGSERIAL PRIMARY KEY"
        for statement in _TABLES:
            connection.exec_driver_sql(statement.format(serial=serial))
        account.set_meta("schema", str(SCHEMA))
        account.set_meta("key", account.key.check)
        return account

    def _version(self, connection: Connection) -> int | None:
        from sqlalchemy import inspect

        if not inspect(connection).has_table("meta"):
            return None
        found = connection.exec_driver_sql("SELECT value FROM meta WHERE name = 'schema'").fetchone()
        if found is None:
            raise self.altered("it does not say of which schema it is")
        return self.number_in(found[0])

    def _closed_to_others(self) -> None:
        """The file is there, and its owner's alone, before anything is written to it."""
        assert self.file is not None
        try:
            private_folder(self.file.parent)
            make_folder(self.file.parent)
            os.close(os.open(self.file, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise explain_os_error(error, self.file) from error

    def _explained(self, error: Exception) -> DposeError:
        said = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        if "disk is full" in said or "No space left" in said:
            return explain_os_error(OSError(errno.ENOSPC, said), Path(self.name))
        if "readonly" in said:
            return explain_os_error(OSError(errno.EACCES, said), Path(self.name))
        if "not a database" in said or "malformed" in said:
            return self.altered(f"it is no database any more ({said})")
        return DposeError(
            "account-unusable",
            f"the account cannot be used ({said}), and nothing private is read without it",
            self.name,
            "see that it can be reached, then run this again",
        )


@dataclass(frozen=True)
class JournalRow:
    """One thing that happened.

    Attributes:
        seq: 1, 2, 3, ...
        kind: "charge", "budget", "lift" or `ACCEPTED`.
        name: What it is about.
        body: What it says.
        mac: Binds it to the row before it.
    """

    seq: int
    kind: str
    name: str
    body: dict[str, Any] = field(repr=False)
    mac: str = field(repr=False)


class Transaction:
    """What may be read and written while nobody else writes. Made by `Store.transaction`."""

    def __init__(
        self, store: Store, connection: Connection, key: AccountKey, before: HighWater | None = None
    ) -> None:
        self.store, self.key, self.before = store, key, before
        self.appended = False
        """Whether it has added to the journal: what it has read is then not yet certain to stay."""
        self.last: HighWater | None = None
        """The journal's last row, once it was asked for."""
        self.known = store.known
        """What this process had read of the journal before this began: what other threads read since is not in view."""
        self._connection = connection

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """What a query finds."""
        from sqlalchemy import text

        return [tuple(row) for row in self._connection.execute(text(self._spoken(statement)), values)]

    def run(self, statement: str, *many: dict[str, Any], **values: Any) -> int:
        """Execute a statement, once or for each of `many`; how many rows it changed."""
        from sqlalchemy import text

        return self._connection.execute(text(self._spoken(statement)), list(many) or values).rowcount

    def _spoken(self, statement: str) -> str:
        """`statement` with {each}, the numbers of the parameter `numbers` as a column `one`, in the engine's words."""
        if "{each}" not in statement:
            return statement
        lite = "SELECT value AS one FROM json_each('[' || :numbers || ']')"
        full = "SELECT one FROM unnest(CAST('{' || :numbers || '}' AS BIGINT[])) AS given(one)"
        return statement.replace("{each}", lite if self.store.lite else full)

    def meta(self, name: str) -> str | None:
        """A value of the account as a whole."""
        found = self.rows("SELECT value FROM meta WHERE name = :name", name=name)
        return str(found[0][0]) if found else None

    def set_meta(self, name: str, value: str) -> None:
        """Write one."""
        if not self.run("UPDATE meta SET value = :value WHERE name = :name", name=name, value=value):
            self.run("INSERT INTO meta (name, value) VALUES (:name, :value)", name=name, value=value)

    @property
    def head(self) -> HighWater:
        """The last row of the journal.

        Raises:
            DposeError: what stands there is not what was last written, or this machine has seen more of it, or a newer
                dpose has brought the account to another schema.
        """
        if self.last is None:
            meta = dict(self.rows("SELECT name, value FROM meta WHERE name IN ('head', 'schema')"))
            self.store.check_schema(self.store.number_in(meta.get("schema")))
            seq, _, mac = str(meta.get("head", "0 ")).partition(" ")
            found = HighWater(self.store.number_in(seq), mac)
            rows = self.rows("SELECT seq, mac FROM journal ORDER BY seq DESC LIMIT 1")
            if found != (HighWater(*rows[0]) if rows else HighWater()):
                raise self.store.altered("rows are missing at the end of its journal, or were added")
            before = self.store.seen if self.before is None else self.before
            if before.seq > found.seq:
                raise self.store.set_back(f"it ends at row {found.seq}", before)
            if before.seq and self.rows("SELECT mac FROM journal WHERE seq = :seq", seq=before.seq) != [
                (before.mac,)
            ]:
                raise self.store.set_back("it has another one there", before)
            self.last = found
        return self.last

    def append(self, kind: str, name: str, body: dict[str, Any]) -> int:
        """Add a row to the journal; its number."""
        seq = self.head.seq + 1
        text = json.dumps(body, sort_keys=True)
        mac = self.key.mac("journal", self.head.mac, str(seq), kind, name, text)
        self.run(
            "INSERT INTO journal (seq, kind, name, body, mac) VALUES (:seq, :kind, :name, :body, :mac)",
            seq=seq,
            kind=kind,
            name=name,
            body=text,
            mac=mac,
        )
        self.set_meta("head", f"{seq} {mac}")
        self.appended, self.last = True, HighWater(seq, mac)
        return seq

    def journal(self, after: int = 0, mac: str = "") -> Iterator[JournalRow]:
        """The rows after number `after`, whose MAC is `mac`, each checked.

        Raises:
            DposeError: a row is not as it was written.
        """
        head, last = self.head.seq, after
        while found := self.rows(
            "SELECT seq, kind, name, body, mac FROM journal WHERE seq > :last ORDER BY seq LIMIT :page",
            last=last,
            page=PAGE,
        ):
            for values in found:
                row = self._row(values, mac, last + 1)
                last, mac = row.seq, row.mac
                yield row
        if last != head:
            raise self.store.altered("rows of its journal are missing")

    def last_of(self, name: str) -> JournalRow | None:
        """The newest row about `name`, checked; None without.

        Raises:
            DposeError: it is not as it was written.
        """
        found = self.rows(
            "SELECT seq, kind, name, body, mac FROM journal WHERE name = :name ORDER BY seq DESC LIMIT 1",
            name=name,
        )
        if not found:
            return None
        seq = self.store.number_in(found[0][0])
        before = self.rows("SELECT mac FROM journal WHERE seq = :seq", seq=seq - 1)
        return self._row(found[0], str(before[0][0]) if before else "", seq)

    def _row(self, values: tuple[Any, ...], before: str, expected: int) -> JournalRow:
        """Row number `expected`, from what stands there and the MAC of the row before it."""
        seq, kind, name, body, own = values
        # a column of SQLite holds whatever was put there
        texts = all(isinstance(value, str) for value in values[1:])
        if seq != expected or not texts or own != self.key.mac("journal", before, str(seq), kind, name, body):
            raise self.store.altered(f"row {expected} of its journal is not as it was written")
        return JournalRow(seq, kind, name, json.loads(body), own)


def opened(where: Where = None) -> Store:
    """The account at `where`; nothing is opened or made yet.

    Raises:
        DposeError: the URL is neither of SQLite nor of PostgreSQL, or what it needs is not installed.
    """
    folder = state_folder(where if isinstance(where, Path) else None)
    url = where if isinstance(where, str) else os.environ.get(VARIABLE, "")
    if not url:
        url = f"sqlite:///{(folder / DATABASE).absolute()}"
    return _store(url, folder, where, os.getpid())


def accept_account(where: Where = None, *, yes: bool = False) -> str:
    """Take an account that was set back as it is: what it lacks counts as never spent, and its journal says so.

    Args:
        where: The account.
        yes: Whether that is wanted.

    Returns:
        What was done, for the user.

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
            raise DposeError(
                error.code,
                error.what,
                store.name,
                "bring back its newest copy; to go on with less than was spent, say --yes",
            ) from error
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
    if not re.match(r"(sqlite:///.|postgresql\+psycopg://)", url):
        raise DposeError(
            "account-place-malformed",
            "is no place for an account",
            Store(url, folder, where).name,
            "say postgresql+psycopg://USER@HOST/NAME, or sqlite:///FILE",
        )
    if url.startswith("postgresql"):
        try:
            import psycopg  # noqa: F401
        except ImportError as error:
            raise DposeError(
                "package-missing",
                "an account in PostgreSQL needs psycopg",
                fix="pip install 'dpose[postgres]'",
            ) from error
    return Store(url, folder, where)


def _nothing() -> Engine:
    """An empty database that vanishes."""
    from sqlalchemy import create_engine

    return create_engine("sqlite://", isolation_level="AUTOCOMMIT")


def close_connections(url: str) -> None:
    """Close what this process keeps open of the account at `url`; the next transaction opens it again."""
    _engine(url, os.getpid()).dispose()


@lru_cache(maxsize=16)
def _engine(url: str, process: int) -> Engine:
    """One for each process: a connection does not outlive a fork."""
    from sqlalchemy import create_engine, event

    if not url.startswith("sqlite"):
        return create_engine(
            url,
            isolation_level="AUTOCOMMIT",  # `_begun` begins and ends
            pool_pre_ping=True,
            connect_args={"connect_timeout": 10},
        )
    engine = create_engine(
        url, isolation_level="AUTOCOMMIT", connect_args={"timeout": PATIENCE_S, "check_same_thread": False}
    )

    @event.listens_for(engine, "connect")
    def _settled(connection: Any, _: Any) -> None:
        # full: what was reserved is on the disk before anything is computed, power cut or not
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            try:
                connection.execute(f"PRAGMA {pragma}").close()
            except UnicodeDecodeError as error:  # SQLite's own message, with what it has found, is no text
                raise sqlite3.DatabaseError("malformed: what it says of its tables is no text") from error

    return engine
