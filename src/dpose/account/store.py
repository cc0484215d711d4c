"""The account's database: SQLite for one user, PostgreSQL for a team; its tables, and how it is opened.

    with opened(where).transaction() as account:
        account.append("charge", name, body)

One transaction at a time writes, on either engine: SQLite's `BEGIN IMMEDIATE`, PostgreSQL's advisory lock. So what one
reservation read is still true when it is written, whoever else is at work.

**Guarantee.** A whole database that is exchanged for an older copy of itself is found by whoever has seen more of it
(`keys`), a row that was changed by its journal (`journal`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sqlite3
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpose.account.journal import SCHEMA, Place, Transaction, Where
from dpose.account.keys import (
    FILE,
    AccountKey,
    HighWater,
    SetBackError,
    account_key,
    any_seen,
    note_seen,
)
from dpose.errors import DposeError
from dpose.files import explain_os_error, make_folder, private_folder
from dpose.privacy.keys import state_folder

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

VARIABLE = "DPOSE_ACCOUNT"
DATABASE = "account.sqlite"
ACCEPTED = "accept"
"""The kind of a journal's row that says that the account was set back and taken as it was."""
PATIENCE_S = 120
"""How long a transaction waits for the one before it."""
LOCK = 0x64706F7365
"""PostgreSQL's advisory lock of the account."""


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


class Store(Place):
    """An account's database. Made by `opened`."""

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
