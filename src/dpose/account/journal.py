"""The account's journal: what has happened, in rows that are added and never changed; read and written in transactions.

Each row has a MAC that binds it to the row before it. All else (which pictures are in which sets, upper bounds of
budgets, compositions) can be told from the journal or checked by the key. Order is the journal's own number: no clock
decides anything.

**Guarantee.** A row that was changed, added or taken out by somebody without the key is found when it is next read; a
journal that ends before what this machine has seen of it, or went on otherwise, when the account is next opened.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dpose.account.keys import LARGEST_NUMBER, AccountKey, HighWater, SetBackError, seen
from dpose.errors import DposeError

if TYPE_CHECKING:
    from sqlalchemy import Connection

SCHEMA = 1
PAGE = 1000
"""So many rows of the journal are in memory at a time while it is read."""

Where: TypeAlias = Path | str | None
"""Which account: a URL, a state folder, or the user's own (`DPOSE_ACCOUNT`, otherwise the state folder's)."""


class Place:
    """Where an account is, and what is said of one that is not as it was left."""

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
        self, store: Place, connection: Connection, key: AccountKey, before: HighWater | None = None
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
