"""Reservations: what is counted before anything is computed, and committed when its output is complete.

    charge_account(Charge(...))                    # reserved; refused where a budget would be passed
    with committing(charge.id):                       # committed at the end, or marked as failed
        ...                                        # computed and written

A reservation counts from the moment that `charge_account` returns, whatever becomes of it: a process that dies between
may have shown what it computed. Reservations are serialisable transactions of the account, so that any number of
processes that race for the last of a budget never spend more than it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dpose.account.budgets import admit, forget_bounds
from dpose.account.history import charge_from, charge_to_dict, history
from dpose.account.journal import Transaction
from dpose.account.questions import touching_sets
from dpose.account.records import (
    Charge,
    State,
    Stored,
    joined,
    names_of_run,
)
from dpose.account.sets import (
    register_set,
    sets_of,
    without,
)
from dpose.account.store import Where, opened
from dpose.errors import DposeError


class _DryRunError(Exception):
    """Ends a transaction that was only to be tried."""


def charge_account(entry: Charge, where: Where = None) -> Charge:
    """Check the budgets and reserve `entry`, with no other process in between; on disk when this returns.

    Returns:
        It, as the account has it: joined with what was charged under its name before.

    Raises:
        DposeError: a budget would be passed, the run began with other first weights, or the account cannot be written.
    """
    return reserve_all([entry], where)[0]


def reserve_all(entries: Sequence[Charge], where: Where = None) -> list[Charge]:
    """`charge_account` for all of `entries` in one transaction: all are reserved, or none.

    Raises:
        DposeError: as `charge_account`.
    """
    with opened(where).transaction() as account:
        return [charge_within(account, entry) for entry in entries]


def reserve_after(entry: Charge, known: Mapping[str, State], where: Where = None) -> Charge:
    """`charge_account`, provided that of all charges of its kind (`what`) on its pictures only `known` ones are there.

    Whoever has looked at an account and decides by what it saw decides by what is still so: of processes that race for
    one picture, all but the first are told.

    Args:
        entry: What is reserved.
        known: The states of the charges that were seen, by id.
        where: The account.

    Raises:
        DposeError: as `charge_account`, or another process has read the pictures, or finished with them, meanwhile.
    """
    return reserve_all_after([(entry, known)], where)[0]


def reserve_all_after(
    asked: Sequence[tuple[Charge, Mapping[str, State]]], where: Where = None
) -> list[Charge]:
    """`reserve_after` for many charges in one transaction: all are reserved, or none.

    Args:
        asked: What is reserved, and of each which charges were seen on its pictures. No two share a picture.
        where: The account.

    Raises:
        DposeError: as `reserve_after`.
    """
    with opened(where).transaction() as account:
        before = history(account)
        made = []
        for entry, known in asked:
            sets = sets_of(account, entry.marks)
            found = touching_sets(before.among(sets), sets)
            now = {other.id: other.state for other in found if other.what == entry.what}
            if now != dict(known):
                raise DposeError(
                    "charge-made-meanwhile",
                    f"another process has just made or begun a {entry.what} of this",
                    entry.data,
                    "run this again",
                )
            made.append(charge_within(account, entry))
        return made


def charge(entry: Charge, where: Where = None) -> Charge:
    """Record what has been spent already, whatever budgets say; on disk when this returns.

    Of an earlier charge of that name the pictures and the released weights stay: what was read and shown once remains
    read and shown.

    Raises:
        DposeError: the account cannot be written, or the run began with other first weights.
    """
    with opened(where).transaction() as account:
        return charge_within(account, entry, checked=False)


def check_budgets(entry: Charge, where: Where = None) -> None:
    """Refuse `entry` if it would take more than a budget leaves, or if what it takes is bounded by nothing.

    Raises:
        DposeError: it would; says what is spent and what would be.
    """
    try:
        with opened(where).transaction(make=False) as account:
            charge_within(account, entry)
            raise _DryRunError
    except _DryRunError:
        pass


def charge_within(account: Transaction, entry: Charge, *, checked: bool = True) -> Charge:
    """`charge_account` within a transaction; `charge` where budgets are not `checked`.

    Raises:
        DposeError: as these.
    """
    before = _of_name(account, entry.id)
    sets, public = set[int](), set[int]()
    if before:
        assert before.stored is not None
        entry = joined(before, entry)
        sets |= before.stored.sets
        public |= before.stored.opened
    # pictures that it has read before are in its sets already: no picture is in two of them
    for marks, into in ((entry.marks, sets), (entry.opened, public)):
        left = without(account, marks, into) if into else marks
        if len(left):
            into.add(register_set(account, left))
    if checked:
        admit(account, entry, sets, public, before)
    else:
        forget_bounds(account, sets | public)
    return _written(account, entry, sets, public)


def _written(account: Transaction, entry: Charge, sets: Iterable[int], public: Iterable[int]) -> Charge:
    sets, public = frozenset(sets), frozenset(public)
    found = account.rows(
        "SELECT id, digest, members FROM sets WHERE id IN ({each})", numbers=",".join(map(str, sets | public))
    )
    digests = {int(name): str(digest) for name, digest, _ in found}
    marks = sum(int(members) for name, _, members in found if int(name) in sets)
    body = charge_to_dict(
        entry, {s: digests[s] for s in sorted(sets)}, {s: digests[s] for s in sorted(public)}, marks
    )
    seq = account.append("charge", entry.id, body)
    first = entry.stored.seq if entry.stored else seq
    return replace(entry, stored=Stored(first, sets, public, marks, account.store.where))


def _of_name(account: Transaction, name: str) -> Charge | None:
    row = account.last_of(name)
    return charge_from(row, account.store.where) if row else None


def commit(name: str | Sequence[str], outputs: Iterable[str] = (), where: Where = None) -> None:
    """Record that the output of a charge is complete, or of several in one transaction.

    Args:
        name: Its id, or theirs.
        outputs: SHA-256 of every file of the output.
        where: The account.

    Raises:
        DposeError: the account knows no such charge, or cannot be written.
    """
    _settle(name, State.COMMITTED, tuple(outputs), where)


def commit_each(outputs: Mapping[str, Iterable[str]], where: Where = None) -> None:
    """`commit` for many charges in one transaction, each with its own output.

    Args:
        outputs: SHA-256 of every file of the output, by the charge's id.
        where: The account.

    Raises:
        DposeError: as `commit`.
    """
    _settle_each({name: tuple(files) for name, files in outputs.items()}, State.COMMITTED, where)


def fail(name: str | Sequence[str], where: Where = None) -> None:
    """Record that a charge ended without output. It counts all the same: what it computed by then nobody knows.

    Raises:
        DposeError: the account knows no such charge, or cannot be written.
    """
    _settle(name, State.FAILED, (), where)


@contextlib.contextmanager
def committing(name: str, outputs: Iterable[str] = (), where: Where = None) -> Iterator[None]:
    """Commit a charge at the end of the block; whatever ends it otherwise, record that the charge failed: it counts.

    Args:
        name: The charge's id; "" where nothing was charged, and nothing is done then.
        outputs: SHA-256 of every file of the output: looked at when the block has ended.
        where: The account.

    Raises:
        DposeError: as `commit`.
    """
    try:
        yield
    except BaseException:
        if name:
            with contextlib.suppress(DposeError):  # it is counted already; the first error is the one to tell
                fail(name, where)
        raise
    if name:
        commit(name, outputs, where)


def _settle(names: str | Sequence[str], state: State, outputs: tuple[str, ...], where: Where) -> None:
    _settle_each(dict.fromkeys([names] if isinstance(names, str) else names, outputs), state, where)


def _settle_each(outputs: Mapping[str, tuple[str, ...]], state: State, where: Where) -> None:
    with opened(where).transaction() as account:
        for name, files in outputs.items():
            entry = _of_name(account, name)
            if entry is None:
                raise DposeError(
                    "charge-unknown", "the account knows no such charge", name, "reserve it first"
                )
            if entry.state is State.COMMITTED and state is State.FAILED:
                raise DposeError("charge-complete", "is complete already, and cannot have failed", name)
            every = tuple(dict.fromkeys((*entry.outputs, *files)))
            _noted(account, replace(entry, state=state, outputs=every))


def note_weights(run_id: str, digest: str, where: Where = None) -> None:
    """Record that the run `run_id` released a file of weights; to be called before the file is seen.

    Nothing happens where the account does not know the run.

    Raises:
        DposeError: the account cannot be read or written.
    """
    with opened(where).transaction() as account:
        for name in names_of_run(run_id):
            entry = _of_name(account, name)
            if entry is not None and digest not in entry.weights:
                _noted(account, replace(entry, weights=(*entry.weights, digest)))


def _noted(account: Transaction, entry: Charge) -> None:
    """Write a charge that the account holds anew, of the pictures that it has read."""
    assert entry.stored is not None
    _written(account, entry, entry.stored.sets, entry.stored.opened)
