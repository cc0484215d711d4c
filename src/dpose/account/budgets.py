"""Charging, past budgets: what runs and releases take is reserved before it is computed, and refused past a budget.

    set_budget(Budget(8.0, 1e-5, "ward", marks))
    budget_states()                                # what is spent, what is left, at 50 and at 80 per cent

    made = charge(Charge(...))                     # reserved; refused where a budget would be passed
    with committing(made.id):                      # committed at the end, or marked as failed
        ...                                        # computed and written

    steps = CountedSteps(ledger, made, planned, where, place)
    steps.take_up(key_id, first_step=0, logged=(), begun=False)      # False: under this key another copy goes on
    steps.reserve(event, first_step=0, count=50)                     # how many of them may be taken

A budget's filter adds up Renyi divergences at an order that is fixed with the budget, so that it holds for runs and
releases that were chosen after seeing the results of earlier ones (Feldman and Zrnic 2021; Lecuyer 2021). The account
stores an upper bound of what the worst picture has spent: a charge that fits above it is accepted at once; otherwise
what every picture has spent is added up anew.

A reservation counts from the moment that `charge` returns, whatever becomes of it: a process that dies in between may
have shown what it computed. A run folder can be copied, and the state folder with its key too, but there is one
account: for each ledger, by the hash of its first line, it holds under each key how far the one copy that goes on has
come (`KeyUse`), which changes in the transaction in which the ledger gets its line.

**Guarantee.** docs/proofs/odometer.md, and docs/proofs/resume.md, "Copies": of all copies of a ledger one at a time
draws under a key, all that one key has drawn stands before it, and the copies together reserve no more steps than the
plan has.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import platform
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from dpose.account.charges import (
    EVALUATION,
    PIXEL,
    SHOWN,
    Charge,
    History,
    State,
    Stored,
    cells_within,
    chains_of,
    charge_from,
    charge_to_dict,
    history,
    joined,
    known_set,
    names_of_run,
    register_set,
    restated,
    sets_meeting,
    sets_of,
    sets_of_people,
    unbounded,
    without,
    worst_case,
)
from dpose.account.composition import Compositions, composed, renyi_cost
from dpose.account.store import JournalRow, Transaction, Where, opened
from dpose.errors import DposeError
from dpose.files import private_folder
from dpose.privacy.entries import EntryType, spent
from dpose.privacy.events import Event, Gaussian, Laplace, SampledGaussian
from dpose.privacy.keys import state_folder
from dpose.privacy.ledger import Ledger
from dpose.privacy.marks import NO_MARKS, Marks
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.ranges import as_given, lower, upper
from dpose.privacy.renyi import APPROXIMATE_SHARE, converted, order_of_budget
from dpose.units import Unit

WINDOW = "window"
"""What the journal calls a row about a count's window; its name is that of the count's charge, and this."""
KIND = "ledger"
"""What the journal calls a row about a ledger; its name is the hash of the ledger's first line."""
SLACK = 1e-9
"""Room for rounding, relative: of an epsilon or a divergence that is computed twice."""
LEVELS = (50, 80, 100)
"""Shares of a budget, in per cent, at which a warning is printed."""
EXAMPLES = 3
"""Number of examples of what would still fit: the newest kinds of charges."""
Cost = tuple[float, float]
"""Renyi divergence at the budget's order, and the probability that it does not hold."""
UNKNOWN: Cost = (math.inf, math.inf)
"""The stored bound of a budget of which the next charge must add up what every picture has spent."""


@dataclass(frozen=True)
class Budget:
    """The most that may be spent on some pictures.

    Attributes:
        epsilon: Limit for everything together.
        delta: Delta at which epsilon is counted.
        data: Name of the data, for readers.
        marks: The pictures; empty if the budget comes from the account.
        neighbours: The protected difference. A charge for a weaker unit, or for what pictures hold beyond their public
            views alone, has no bound here.
        owner: A word that is needed to change or lift it; "" if none is. It is stored as a keyed hash.
        set_id: The account's name of the set of these pictures; 0 if the account does not hold the budget.
    """

    epsilon: float
    delta: float
    data: str
    marks: Marks = field(repr=False, compare=False)
    neighbours: Neighbours = field(default_factory=lambda: Neighbours(Unit.IMAGE))
    owner: str = field(default="", repr=False, compare=False)
    set_id: int = field(default=0, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The account's name of it: a set of pictures has one budget."""
        return f"budget {self.set_id}"

    @property
    def order(self) -> float:
        """Renyi order of its filter."""
        return order_of_budget(self.epsilon, self.delta)[0]

    @property
    def cap(self) -> float:
        """The Renyi divergence of that order that may be spent."""
        return order_of_budget(self.epsilon, self.delta)[1]


def budget_from(row: JournalRow) -> Budget:
    """The budget in a row of the journal."""
    values = row.body
    near = Neighbours.read(values["neighbours"], values["unit"])
    assert near is not None
    epsilon, delta = float(values["epsilon"]), float(values["delta"])
    return Budget(epsilon, delta, str(values["data"]), NO_MARKS, near, set_id=int(values["set"]))


@dataclass(frozen=True)
class Share:
    """Pictures that have spent the same: the sets that they are in (none if all count together), what read them."""

    sets: frozenset[int]
    charges: tuple[Charge, ...]
    cost: Cost


@dataclass(frozen=True)
class BudgetState:
    """How a budget stands.

    Attributes:
        budget: It, without its pictures.
        spent: Of the worst picture, as its filter counts.
        epsilon: The same as an epsilon at the budget's delta; infinite if something has no bound.
        fixed: Epsilon of the worst picture as if all had been planned beforehand.
        unbounded: Why nothing bounds it, and of how many charges each is true.
        closed: Whether the worst picture's one charge fits by its own epsilon alone: nothing more is let in.
        charges: Of the worst picture.
        sets: The account's names of the sets of pictures that share one with it.
    """

    budget: Budget
    spent: float
    epsilon: float
    fixed: float
    unbounded: Counter[str]
    closed: bool
    charges: tuple[Charge, ...] = field(repr=False)
    sets: frozenset[int] = field(repr=False)

    @property
    def used(self) -> float:
        """The share of the budget that is used, of what the filter counts; infinite if something has no bound."""
        if self.unbounded:
            return math.inf
        return 1.0 if self.closed else self.spent / self.budget.cap

    @property
    def level(self) -> int:
        """The highest of `LEVELS` that is reached; 0 for none."""
        return max((level for level in LEVELS if 100 * self.used >= level * (1 - SLACK)), default=0)


def set_budget(budget: Budget, where: Where = None) -> None:
    """Set the budget of exactly these pictures, in place of an earlier one.

    Raises:
        DposeError: epsilon or delta is out of range, more is spent already, or an earlier one is another owner's.
    """
    epsilon, delta = as_given(budget.epsilon), as_given(budget.delta)
    if not (0 < budget.epsilon < math.inf and 0 < budget.delta < 1):
        raise DposeError("budget-out-of-range", f"a budget needs epsilon > 0 and 0 < delta < 1, not {epsilon}, {delta}")
    if budget.cap <= 0:
        said = f"no filter keeps a budget as small as {epsilon} at delta {delta}"
        raise DposeError("budget-too-small", said, fix="choose a larger epsilon or delta")
    with opened(where).transaction() as account:
        budget = replace(budget, set_id=register_set(account, budget.marks))
        _standing(account, budget.name, budget.owner)
        body = {
            "epsilon": repr(float(budget.epsilon)),
            "delta": repr(float(budget.delta)),
            "data": budget.data,
            "unit": budget.neighbours.unit.value,
            "neighbours": budget.neighbours.stated().to_dict(),
            "owner": account.key.owner_hash(budget.owner),
            "set": budget.set_id,
            "digest": account.key.name_of(budget.marks),
        }
        known = history(account)
        account.append("budget", budget.name, body)
        reasons, shares = _shares(account, budget, known)
        if passed := [share for share in shares if not _fits(budget, share)]:
            said = f"more than a budget of epsilon {epsilon} is spent already: {_notes(budget, passed[0])}"
            raise DposeError("budget-already-passed", said, budget.data, "set a larger one, or see dpose account")
        _write_bound(account, budget, UNKNOWN if reasons else _highest(budget, shares))


def lift_budget(marks: Marks, where: Where = None, owner: str = "") -> bool:
    """Remove the budget of exactly these pictures, refused if it is another owner's; whether there was one."""
    with opened(where).transaction() as account:
        row = _standing(account, f"budget {known_set(account, marks)}", owner)
        if row:
            account.append("lift", row.name, {})
            account.run("DELETE FROM budgets WHERE name = :name", name=row.name)
        return row is not None


def _standing(account: Transaction, name: str, owner: str | None = None) -> JournalRow | None:
    """The row of a budget; None if it was never set or was lifted. `owner`: the word of who would change it."""
    row = account.last_of(name)
    if row is None or row.kind != "budget":
        return None
    if owner is not None and row.body["owner"] and account.key.owner_hash(owner) != row.body["owner"]:
        said = "this budget is somebody else's to change"
        raise DposeError("budget-of-other-owner", said, row.body["data"], "give the --owner that it was set with")
    return row


def budgets(where: Where = None) -> list[Budget]:
    """All budgets, without their pictures."""
    with opened(where).transaction(write=False) as account:
        return [budget_from(row) for row in history(account).budgets.values()]


def budget_states(marks: Marks | None = None, where: Where = None, *, exactly: bool = False) -> list[BudgetState]:
    """How all budgets stand, or those that share a picture with `marks`; `exactly`: that of these pictures alone."""
    with opened(where).transaction(write=False) as account:
        known, computed = history(account), Compositions(account)
        found = [budget_from(row) for row in known.budgets.values()]
        if marks is not None:
            sets = {known_set(account, marks)} if exactly else sets_of(account, marks)
            found = [one for one in found if one.set_id in sets]
        states = [_state(account, one, known, computed) for one in found]
    computed.keep(where)
    return states


def _state(account: Transaction, budget: Budget, known: History, computed: Compositions) -> BudgetState:
    reasons, shares = _shares(account, budget, known)
    sets = sets_meeting(account, [budget.set_id])
    if reasons:
        counted, none = Counter(why for _, why in reasons), math.inf
        return BudgetState(budget, none, none, none, counted, closed=False, charges=(), sets=sets)
    worst = max(shares, key=lambda share: share.cost, default=Share(frozenset(), (), (0.0, 0.0)))
    # each kind of events once
    kinds = {tuple(sorted(repr((c.events, c.unit, c.area)) for c in s.charges)): s.charges for s in shares}
    fixed = max((computed.of(one, budget.delta, budget.neighbours) for one in kinds.values()), default=0.0)
    closed = not _within(budget, worst.cost)
    epsilon = fixed if closed else filter_epsilon(worst.cost, budget.epsilon, budget.delta)
    return BudgetState(budget, worst.cost[0], epsilon, fixed, Counter(), closed, worst.charges, sets)


def _touched(account: Transaction, sets: Iterable[int]) -> list[Budget]:
    """The budgets that share a picture with `sets`, or for subjects may share a person.

    The journal says which stand, read as a whole: a row of it that was taken away, or called something else, switches
    no budget off.
    """
    known, touched = history(account), sets_meeting(account, sets)
    standing = list(map(budget_from, known.budgets.values()))
    people = any(one.neighbours.unit == Unit.SUBJECT for one in standing)
    of_people = sets_of_people(account, known, sets) if people else touched
    return [one for one in standing if one.set_id in (of_people if one.neighbours.unit == Unit.SUBJECT else touched)]


def _admit(account: Transaction, budget: Budget, entry: Charge, place: Stored, before: Charge | None) -> None:
    """Let `entry`, of the pictures of `place`, past a budget and raise what these have spent; refuse it otherwise.

    `before` is what it was if it was charged already.
    """
    limit = f"the budget of epsilon {as_given(budget.epsilon)} (delta {as_given(budget.delta)}, {budget.neighbours})"
    taken = worst_case(entry) if place.opened & sets_meeting(account, [budget.set_id]) else entry
    if why := unbounded(taken, budget.neighbours.unit):
        lift = f"dpose account {budget.data} --no-budget"
        fix = f"protect {budget.neighbours} with noise, or lift the budget ({lift})"
        if entry.what == EVALUATION:
            fix = f"lift the budget first ({lift}); it is then listed in dpose account"
        elif entry.what in SHOWN:
            fix = f"lift the budget first ({lift}), or {SHOWN[entry.what]}"
        said = f"{limit} would be passed, because nothing bounds this: {why}"
        raise DposeError("budget-charge-unbounded", said, budget.data, fix)
    cost = _cost([taken], budget.neighbours, budget.order)
    after = _added([_read_bound(account, budget), cost])
    # for subjects it may connect what was read before with the budget's pictures, which the bound does not have
    if before is None and _within(budget, after) and budget.neighbours.unit != Unit.SUBJECT:
        _write_bound(account, budget, after)
        return
    # the bound refuses: what has every picture spent?
    reasons, shares = _shares(account, budget, history(account), without=entry.id, place=place)
    if reasons:
        at, why = reasons[0]
        said = f"{limit} does not hold: nothing bounds what was read of them on {at[:10]} ({why})"
        fix = f"see dpose account {budget.data}; --no-budget lifts the budget"
        raise DposeError("budget-read-unbounded", said, budget.data, fix)
    ahead: list[Share] = []
    for share in shares:
        then = share
        if not share.sets or share.sets & (place.sets | place.opened):
            then = Share(share.sets, (*share.charges, taken), _added([share.cost, cost]))
            if not _fits(budget, then):
                raise DposeError(
                    "budget-exceeded",
                    f"{limit} would be passed: {_notes(budget, share)} is spent, with this run {_notes(budget, then)} "
                    "(what holds for runs chosen after seeing results: Renyi divergence of order "
                    f"{budget.order:.4g})",
                    budget.data,
                    _fitting_words(budget, share.cost, [taken]) or "see dpose account",
                )
        ahead.append(then)
    _write_bound(account, budget, _highest(budget, ahead))


def _shares(
    account: Transaction, budget: Budget, known: History, without: str = "", place: Stored | None = None
) -> tuple[list[tuple[str, str]], list[Share]]:
    """What each part of the budget's pictures has spent; or when, and why, something was read that has no bound.

    A charge that is to be made at `place` connects people, as those do that are made (`sets_of_people`).
    """
    touched = sets_meeting(account, [budget.set_id])
    if budget.neighbours.unit == Unit.SUBJECT:
        more = place.sets | place.opened if place else frozenset[int]()
        touched = sets_of_people(account, known, touched | more)
    order, requested = budget.order, budget.neighbours
    found = [charge for charge in known.among(touched) if charge.id != without]
    if reasons := [(charge.at, why) for charge in found if (why := unbounded(charge, requested.unit))]:
        return reasons, []
    if requested.together:
        # a person may be in pictures of different cells: nothing is parallel
        return [], [Share(frozenset(), tuple(found), _cost(found, requested, order))]
    of_set = defaultdict[int, list[Charge]](list)
    for charge in found:
        for set_id in charge.stored.sets & touched:
            of_set[set_id].append(charge)
    own = {set_id: _cost(read, requested, order) for set_id, read in of_set.items()}
    shares = []
    # each combination of the sets that a picture is in
    cells = chains_of(account, cells_within(account, [budget.set_id]))
    for sets in {chain & touched for chain in cells.values()}:
        spending = sorted(sets & own.keys())
        charges = tuple(charge for set_id in spending for charge in of_set[set_id])
        shares.append(Share(sets, charges, _added([own[set_id] for set_id in spending])))
    return [], shares


def _cost(charges: Iterable[Charge], requested: Neighbours, order: float) -> Cost:
    events = [event for charge in charges for event in restated(charge, requested)]
    return renyi_cost(events, order, replaces=requested.replaces)


def _added(costs: Sequence[Cost]) -> Cost:
    return math.fsum(divergence for divergence, _ in costs), math.fsum(failing for _, failing in costs)


def _within(budget: Budget, cost: Cost) -> bool:
    """Whether the filter lets so much be spent."""
    return cost[0] <= budget.cap * (1 + SLACK) and cost[1] <= APPROXIMATE_SHARE * budget.delta * (1 + SLACK)


def _fits(budget: Budget, share: Share) -> bool:
    """Whether a picture may have been read by so much: by the filter, or the only charge by its own epsilon."""
    if _within(budget, share.cost):
        return True
    # no choice lies between the parts of one charge
    return len(share.charges) == 1 and _planned(budget, share) <= budget.epsilon * (1 + SLACK)


def _planned(budget: Budget, share: Share) -> float:
    return composed(share.charges, budget.delta, budget.neighbours)


def _highest(budget: Budget, shares: Iterable[Share]) -> Cost:
    """The bound of what the worst picture has spent; infinite if one of them is closed."""
    costs = [share.cost if _within(budget, share.cost) else UNKNOWN for share in shares]
    return max((c[0] for c in costs), default=0.0), max((c[1] for c in costs), default=0.0)


def _notes(budget: Budget, share: Share) -> str:
    by_filter = filter_epsilon(share.cost, budget.epsilon, budget.delta) if share.charges else 0.0
    return upper(min(by_filter, _planned(budget, share)) if len(share.charges) == 1 else by_filter)


def filter_epsilon(spent: tuple[float, float], budget_epsilon: float, delta: float) -> float:
    """What a budget's filter has spent, as an epsilon at the budget's delta: 0 for nothing."""
    if spent == (0.0, 0.0):
        return 0.0
    if spent[1] > delta * APPROXIMATE_SHARE * (1 + 1e-9):
        return math.inf
    order, _ = order_of_budget(budget_epsilon, delta)
    return max(0.0, spent[0] + converted(order, delta * (1 - APPROXIMATE_SHARE)))


def what_fits(state: BudgetState, like: Sequence[Charge]) -> str:
    """What of the kinds of `like` a budget would still let in, in words; "" for nothing.

    These are alternatives: each is computed as if nothing else came after it.
    """
    if state.unbounded or state.closed:
        return ""
    return _fitting_words(state.budget, (state.spent, 0.0), like)


def _fitting_words(budget: Budget, spent: Cost, like: Sequence[Charge]) -> str:
    """What of the newest kinds of `like` a budget would still let in after `spent`; "" for nothing."""
    left = max(0.0, budget.cap - spent[0])
    each = [_fitting(budget, left, charge, event) for charge in like for event in charge.events]
    said = list(dict.fromkeys(filter(None, each)))[-EXAMPLES:]
    rest = lower(max(0.0, budget.epsilon - filter_epsilon(spent, budget.epsilon, budget.delta)), 3)
    return f"at epsilon {rest} left: {', or '.join(said)}" if said else ""


def _fitting(budget: Budget, left: float, charge: Charge, event: Event) -> str:
    """How much of an event's kind fits into what is `left` of a budget's divergence, in words; "" for nothing."""
    requested, order = budget.neighbours, budget.order
    if unbounded(charge, requested.unit):
        return ""
    if isinstance(event, SampledGaussian):
        one = renyi_cost([replace(event, steps=1)], order, replaces=requested.replaces)[0]
        steps = min(int(left / one), 10**9) if one else 10**9
        batch = f"of {round(event.q * charge.units):,}" if charge.units else ""
        size = batch or f"at sampling rate {as_given(float(f'{event.q:.3g}'))}"
        return f"{steps:,} steps {size} at sigma {lower(event.sigma, 3)}" if steps else ""
    if charge.unit != PIXEL:
        return ""
    (wide,) = restated(replace(charge, events=(event,)), requested)
    if isinstance(event, Laplace) and isinstance(wide, Laplace):
        room = max(left, math.sqrt(2 * left / order)) / float(wide.pure() / event.pure())
        what = f"at {lower(room, 2)}"
    elif isinstance(event, Gaussian) and isinstance(wide, Gaussian):
        room = left / order / float(wide.rho() / event.rho())
        what = f"at rho {lower(room, 2)} of zCDP"
    else:
        return ""
    pixels = f" for {event.pixels} pixels" if event.pixels else ""
    return f"one release of each {charge.within} {what}{pixels}" if room >= 1e-6 else ""


def _read_bound(account: Transaction, budget: Budget) -> Cost:
    """The stored upper bound of the worst picture; refused if it is not as it was written."""
    found = account.rows("SELECT spent, delta, mac FROM budgets WHERE name = :name", name=budget.name)
    spent, delta, mac = found[0] if found else ("", "", "")
    if mac != account.key.mac("bound", budget.name, str(budget.set_id), spent, delta):
        raise account.store.altered(f"what the {budget.name} says is spent is not what was written")
    return float(spent), float(delta)


def _write_bound(account: Transaction, budget: Budget, cost: Cost) -> None:
    spent, delta = (repr(value) for value in cost)
    account.run("DELETE FROM budgets WHERE name = :name", name=budget.name)
    account.run(
        "INSERT INTO budgets (name, set_id, spent, delta, mac) VALUES (:name, :set, :spent, :delta, :mac)",
        name=budget.name,
        set=budget.set_id,
        spent=spent,
        delta=delta,
        mac=account.key.mac("bound", budget.name, str(budget.set_id), spent, delta),
    )


def charge(entry: Charge, where: Where = None, *, checked: bool = True, dry_run: bool = False) -> Charge:
    """`charge_all` of one."""
    return charge_all([entry], where, checked=checked, dry_run=dry_run)[0]


def charge_all(
    entries: Sequence[Charge],
    where: Where = None,
    *,
    known: Sequence[Mapping[str, State]] | None = None,
    checked: bool = True,
    dry_run: bool = False,
) -> list[Charge]:
    """Check the budgets and reserve `entries`, all or none, no other process in between; on disk when this returns.

    Of an earlier charge of a name the pictures and the released weights stay (`joined`).

    Args:
        entries: What is reserved.
        where: The account.
        known: Of each entry, the states of the charges of its kind (`what`) that were seen on its pictures, by id: what
            was decided by them is then still so, and of processes that race for one picture all but the first are
            refused. No two entries share a picture then. None not to ask.
        checked: False to record what has been spent already, whatever budgets say.
        dry_run: Refuse what would be refused, and write nothing.

    Returns:
        They, as the account has them.

    Raises:
        DposeError: a budget would be passed, an entry claims another thing than it did, or another process has read the
            pictures meanwhile.
    """
    with contextlib.suppress(_DryRunError), opened(where).transaction(make=not dry_run) as account:
        for entry, seen in zip(entries, known or (), strict=False):
            found = [c for c in history(account).among(sets_of(account, entry.marks)) if c.what == entry.what]
            if {other.id: other.state for other in found} != dict(seen):
                said = f"another process has just made or begun a {entry.what} of this"
                raise DposeError("charge-made-meanwhile", said, entry.data, "run this again")
        made = [charge_within(account, entry, checked=checked) for entry in entries]
        if dry_run:
            raise _DryRunError
        return made
    return list(entries)


class _DryRunError(Exception):
    """Ends a transaction that was only to be tried."""


def charge_within(account: Transaction, entry: Charge, *, checked: bool = True) -> Charge:
    """`charge` within a transaction."""
    before = _of_name(account, entry.id)
    if before:
        entry = joined(before, entry)
    was = before.stored if before else Stored()
    sets, public = set(was.sets), set(was.opened)
    # pictures that it has read before are in its sets already: no picture is in two of them
    for marks, into in ((entry.marks, sets), (entry.opened, public)):
        left = without(account, marks, into)
        if len(left):
            into.add(register_set(account, left))
    place = Stored(entry.seq or was.seq, frozenset(sets), frozenset(public))
    for budget in _touched(account, place.sets | place.opened):
        if checked:
            _admit(account, budget, entry, place, before)
        else:
            _write_bound(account, budget, UNKNOWN)
    return _written(account, replace(entry, stored=place))


def _written(account: Transaction, entry: Charge) -> Charge:
    """Write `entry`, of the pictures of its sets; as it then stands in the account."""
    found = account.rows("SELECT id, digest, members FROM sets WHERE id IN ({each})", numbers=entry.read)
    marks = sum(int(members) for name, _, members in found if int(name) in entry.stored.sets)
    entry = replace(entry, stored=replace(entry.stored, marks=marks, where=account.store.where))
    digests = {int(name): str(digest) for name, digest, _ in found}
    seq = account.append("charge", entry.id, charge_to_dict(entry, digests))
    return replace(entry, stored=replace(entry.stored, seq=entry.seq or seq))


def _of_name(account: Transaction, name: str) -> Charge | None:
    row = account.last_of(name)
    return charge_from(row, account.store.where) if row else None


def conclude(outputs: Mapping[str, Iterable[str]], state: State = State.COMMITTED, where: Where = None) -> None:
    """Record how charges ended, all in one transaction: their output is complete, or they ended without.

    `outputs` has the SHA-256 of every file of the output, by the charge's id. A charge that failed counts all the same:
    what it had computed by then is unknown.

    Raises:
        DposeError: the account knows no such charge, or one that is said to have failed was complete.
    """
    with opened(where).transaction() as account:
        for name, files in outputs.items():
            entry = _of_name(account, name)
            if entry is None:
                raise DposeError("charge-unknown", "the account knows no such charge", name, "reserve it first")
            if entry.state is State.COMMITTED and state is State.FAILED:
                raise DposeError("charge-complete", "is complete already, and cannot have failed", name)
            every = tuple(dict.fromkeys((*entry.outputs, *files)))
            _written(account, replace(entry, state=state, outputs=every))


def claim_window(name: str, number: int, where: Where = None) -> bool:
    """Claim the right to show window `number` (from 0 on in order of time) of the count that is charged as `name`.

    It is on disk when this returns, and given once for ever. False if this window or a later one was claimed before, by
    any process and whatever its clock said. After an error nothing may be shown.
    """
    with opened(where).transaction() as account:
        if number <= _last_window(account, name):
            return False
        account.append(WINDOW, f"{name} {WINDOW}", {"number": number})
    return True


def last_window(name: str, where: Where = None) -> int:
    """The last window of a count that was claimed; -1 for none."""
    with opened(where).transaction(write=False) as account:
        return _last_window(account, name)


def _last_window(account: Transaction, name: str) -> int:
    row = account.last_of(f"{name} {WINDOW}")
    return -1 if row is None else int(row.body["number"])


@contextlib.contextmanager
def committing(name: str, outputs: Iterable[str] = (), where: Where = None) -> Iterator[None]:
    """Commit a charge at the end of the block; whatever ends it otherwise, record that the charge failed: it counts.

    Nothing is done for the name "": nothing was charged. `outputs`, the SHA-256 of every file of the output, are looked
    at when the block has ended.
    """
    try:
        yield
    except BaseException:
        if name:
            with contextlib.suppress(DposeError):  # it is counted already; the first error is the one to tell
                conclude({name: ()}, State.FAILED, where)
        raise
    if name:
        conclude({name: outputs}, where=where)


def note_weights(run_id: str, digest: str, where: Where = None) -> None:
    """Record that the run `run_id` released a file of weights; to be called before the file is seen.

    Nothing happens where the account does not know the run.
    """
    with opened(where).transaction() as account:
        for name in names_of_run(run_id):
            entry = _of_name(account, name)
            if entry is not None and digest not in entry.weights:
                _written(account, replace(entry, weights=(*entry.weights, digest)))


class LedgerTakenError(Exception):
    """Another copy of the ledger has gone on under this key; nothing was reserved."""


@dataclass(frozen=True)
class KeyUse:
    """How far a ledger has come under one key: the first step that was never reserved, and how many steps count.

    `head` is the hash of a line of the one copy that goes on: what it wrote behind that line reserved nothing. `place`
    is `place_of` the process that reserved last.
    """

    head: str
    following: int
    steps: int
    place: str


def place_of(state_dir: Path | None = None) -> str:
    """A name of the state folder on this machine, which a copy of it does not have."""
    folder = state_folder(state_dir)
    private_folder(folder)
    number = folder.stat().st_ino if folder.exists() else 0
    return hashlib.sha256(f"{platform.node()}\n{folder.resolve()}\n{number}".encode()).hexdigest()


class CountedSteps:
    """The steps of one process of a run: reserved in its open ledger, and let in by the account.

    `entry` is the run's charge, with the event of its plan; steps count in the account if it names this ledger, else in
    the ledger alone. `place` is `place_of` the state folder, and `total` counts the steps of all copies of the ledger.
    """

    def __init__(self, ledger: Ledger, entry: Charge, planned: int, where: Where, place: str) -> None:
        self.ledger, self.entry, self.planned = ledger, entry, planned
        self._where, self._place = where, place
        self._counted = entry.ledger == ledger.identity
        self.total = ledger.spent_steps

    @property
    def head(self) -> str:
        """Hash of the ledger's last line."""
        return self.ledger.head

    def take_up(self, key_id: str, first_step: int, logged: Container[int], *, begun: bool) -> bool:
        """Charge the run, and go on with it at `first_step` under the key `key_id`, if no other copy does.

        `logged` are the steps whose updates under that key this copy can compare with. Where the ledger was `begun` by
        another process, it gets a line that says who goes on.

        Returns:
            Whether it may; nothing is written otherwise.

        Raises:
            DposeError: a budget would be passed, or the account knows the run by another ledger.
        """
        if not self._counted:
            if begun:
                self.ledger.resume(key_id, first_step)
            return True
        with opened(self._where).transaction() as account:
            if not self._may(_keys(account, self.ledger).get(key_id), key_id, first_step, logged):
                return False
            charge_within(account, self.entry)
            if begun:
                self.ledger.resume(key_id, first_step)
            self._note(account)
        return True

    def reserve(self, event: SampledGaussian, first_step: int, count: int) -> int:
        """Reserve the next `count` steps, or as many as the plan's claim has room for: how many.

        Raises:
            LedgerTakenError: another copy goes on under the key.
            DposeError: ledger or account cannot be written. Nothing may be sampled then.
        """
        with self._moving() as room:
            while count and self.ledger.new_steps(event, first_step, count) > room:
                count -= 1
            if count:
                self.ledger.reserve(event, first_step, count)
        return count

    def commit(self, first_step: int, steps: int) -> None:
        """Record that reserved steps were taken."""
        try:
            with self._moving():
                self.ledger.commit(first_step, steps)
        except LedgerTakenError:
            self.ledger.commit(first_step, steps)  # they were reserved before the other copy went on

    @contextlib.contextmanager
    def _moving(self) -> Iterator[int]:
        """The account's transaction in which the ledger gets a line; for how many more steps there is room."""
        if not self._counted:
            yield self.planned - self.ledger.spent_steps
            self.total = self.ledger.spent_steps
            return
        with opened(self._where).transaction() as account:
            mine = _keys(account, self.ledger).get(self.ledger.entries[-1].key_id)
            if mine is None or mine.head not in self.ledger.heads:
                raise LedgerTakenError
            yield self.planned - _total(_known(account, self.ledger))
            self._note(account)

    def _may(self, use: KeyUse | None, key_id: str, first_step: int, logged: Container[int]) -> bool:
        reserved = [e for e in self.ledger.entries if e.type is EntryType.RESERVE and e.key_id == key_id]
        if use is None:  # as the account knows, nothing was drawn under it
            return not reserved
        if use.head not in self.ledger.heads:
            return False
        # an earlier step would be drawn after another past than the key's own
        if reserved and first_step < min(entry.first_step for entry in reserved):
            return False
        # what is not in this copy's log may be drawn at this moment by a process that lives elsewhere
        return use.place == self._place or all(step in logged for step in range(first_step, use.following))

    def _note(self, account: Transaction) -> None:
        keys = _known(account, self.ledger)
        own = self.ledger.entries[-1].key_id
        keys[own] = replace(keys[own], head=self.ledger.head, place=self._place)
        self.total = _total(keys)
        if self.total > self.planned and self.entry.events:
            events = tuple(replace(e, steps=self.total) for e in self.entry.events if isinstance(e, SampledGaussian))
            charge_within(account, replace(self.entry, events=events), checked=False)
        body = {"charge": self.entry.id, "keys": {name: asdict(use) for name, use in keys.items()}}
        account.append(KIND, self.ledger.identity, body)


def _keys(account: Transaction, ledger: Ledger) -> dict[str, KeyUse]:
    """How far the account has seen the ledger come, by keys."""
    row = account.last_of(ledger.identity)
    return {name: KeyUse(**use) for name, use in row.body["keys"].items()} if row else {}


def _known(account: Transaction, ledger: Ledger) -> dict[str, KeyUse]:
    """The same with what this copy has reserved besides, under its last line's key among them."""
    keys = _keys(account, ledger)
    for key_id in {entry.key_id for entry in ledger.entries}:
        under = [e for e in ledger.entries if e.type is EntryType.RESERVE and e.key_id == key_id]
        use = keys.get(key_id, KeyUse("", 0, 0, ""))
        keys[key_id] = replace(
            use,
            following=max([use.following, *(entry.first_step + entry.steps for entry in under)]),
            steps=max(use.steps, sum(event.steps for event in spent(under))),
        )
    return keys


def _total(keys: Mapping[str, KeyUse]) -> int:
    return sum(use.steps for use in keys.values())
