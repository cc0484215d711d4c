"""Budgets: the most that may be spent on some pictures, and the filter that refuses what would pass it.

    set_budget(Budget(8.0, 1e-5, "ward", marks))
    budget_states()                                # what is spent, what is left, at 50 and at 80 per cent

A budget's filter adds up Renyi divergences at an order that is fixed with the budget (`order_of_budget`), so that it
holds for runs and releases that were chosen after seeing the results of earlier ones (Feldman and Zrnic 2021; Lecuyer
2021). The account stores an upper bound of what the worst picture has spent: a charge that fits above it is accepted at
once; otherwise what every picture has spent is added up anew. A picture's first charge may also fit by its own epsilon
for a fixed plan; the picture is then closed. docs/proofs/odometer.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dpose.account.charges import (
    EVALUATION,
    PIXEL,
    SHOWN,
    Charge,
    History,
    cells_within,
    chains_of,
    history,
    known_set,
    numbers_of,
    register_set,
    restated,
    sets_meeting,
    sets_of,
    touching_sets,
    unbounded,
    worst_case,
)
from dpose.account.composition import Compositions, composed, renyi_cost
from dpose.account.store import JournalRow, Transaction, Where, opened
from dpose.errors import DposeError
from dpose.privacy.events import Event, Gaussian, Laplace, SampledGaussian
from dpose.privacy.marks import NO_MARKS, Marks
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.ranges import as_given, lower, upper
from dpose.privacy.renyi import APPROXIMATE_SHARE, converted, order_of_budget
from dpose.units import Unit

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


def budget_to_dict(budget: Budget, digest: str, owner: str) -> dict[str, Any]:
    """The journal's record of a budget."""
    return {
        "epsilon": repr(float(budget.epsilon)),
        "delta": repr(float(budget.delta)),
        "data": budget.data,
        "unit": budget.neighbours.unit.value,
        "neighbours": budget.neighbours.stated().to_dict(),
        "owner": owner,
        "set": budget.set_id,
        "digest": digest,
    }


def budget_from(row: JournalRow) -> Budget:
    """The budget in a row of the journal."""
    values = row.body
    near = Neighbours.read(values["neighbours"], values["unit"])
    assert near is not None
    return Budget(
        float(values["epsilon"]), float(values["delta"]), str(values["data"]), NO_MARKS, near, set_id=int(values["set"])
    )


@dataclass(frozen=True)
class Share:
    """Pictures that have spent the same.

    Attributes:
        sets: That they are in; empty if all pictures count together.
        charges: That read them, oldest first.
        cost: Of all those.
    """

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
        DposeError: epsilon or delta is out of range, more is spent already, an earlier one is another owner's, or the
            account cannot be written.
    """
    if not (0 < budget.epsilon < math.inf and 0 < budget.delta < 1):
        raise DposeError(
            "budget-out-of-range",
            f"a budget needs epsilon > 0 and 0 < delta < 1, not {as_given(budget.epsilon)}, {as_given(budget.delta)}",
        )
    if budget.cap <= 0:
        raise DposeError(
            "budget-too-small",
            f"no filter keeps a budget as small as {as_given(budget.epsilon)} at delta {as_given(budget.delta)}",
            fix="choose a larger epsilon or delta",
        )
    with opened(where).transaction() as account:
        budget = replace(budget, set_id=register_set(account, budget.marks))
        _check_owner(account, budget.name, budget.owner)
        owner = account.key.owner_hash(budget.owner)
        digest = str(account.rows("SELECT digest FROM sets WHERE id = :id", id=budget.set_id)[0][0])
        known = history(account)
        account.append("budget", budget.name, budget_to_dict(budget, digest, owner))
        reasons, shares = _shares(account, budget, known)
        for share in shares:
            if not _fits(budget, share):
                raise DposeError(
                    "budget-already-passed",
                    f"more than a budget of epsilon {as_given(budget.epsilon)} is spent already: "
                    f"{_notes(budget, share)}",
                    budget.data,
                    "set a larger one, or see dpose account",
                )
        _write_bound(account, budget, UNKNOWN if reasons else _highest(budget, shares))


def lift_budget(marks: Marks, where: Where = None, owner: str = "") -> bool:
    """Remove the budget of exactly these pictures; whether there was one.

    Raises:
        DposeError: it is another owner's, or the account cannot be written.
    """
    with opened(where).transaction() as account:
        known = known_set(account, marks)
        row = account.last_of(f"budget {known}")
        if row is None or row.kind != "budget":
            return False
        _check_owner(account, row.name, owner)
        account.append("lift", row.name, {})
        account.run("DELETE FROM budgets WHERE name = :name", name=row.name)
        return True


def budgets(where: Where = None) -> list[Budget]:
    """All budgets, without their pictures.

    Raises:
        DposeError: the account cannot be read.
    """
    with opened(where).transaction(write=False) as account:
        return [budget_from(row) for row in history(account).budgets.values()]


def budget_states(marks: Marks | None = None, where: Where = None, *, exactly: bool = False) -> list[BudgetState]:
    """How all budgets stand, or those that share a picture with `marks`.

    Args:
        marks: Some pictures; None for all.
        where: The account.
        exactly: Only the budget of exactly the pictures `marks`.

    Raises:
        DposeError: the account cannot be read.
    """
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
    return BudgetState(
        budget=budget,
        spent=worst.cost[0],
        epsilon=fixed if closed else filter_epsilon(worst.cost, budget.epsilon, budget.delta),
        fixed=fixed,
        unbounded=Counter(),
        closed=closed,
        charges=worst.charges,
        sets=sets,
    )


def admit(
    account: Transaction, entry: Charge, sets: Iterable[int], public: Iterable[int], before: Charge | None
) -> None:
    """Let `entry` past all budgets of its pictures and raise what they have spent.

    Args:
        account: The transaction in which it is charged.
        entry: What would be taken.
        sets: That it reads.
        public: Those of which it takes the pictures to be public.
        before: What it was before, if it was charged already.

    Raises:
        DposeError: a budget would be passed, or nothing bounds what is taken.
    """
    read, public = frozenset(sets) | frozenset(public), frozenset(public)
    for budget in _touched(account, read):
        _admit(account, budget, entry, read, public, before)


def forget_bounds(account: Transaction, sets: Iterable[int]) -> None:
    """Forget the stored bounds of the budgets that share a picture with `sets`: the next charge adds up anew."""
    for budget in _touched(account, sets):
        _write_bound(account, budget, UNKNOWN)


def _touched(account: Transaction, sets: Iterable[int]) -> list[Budget]:
    """The budgets that share a picture with `sets`."""
    found = account.rows(
        "SELECT DISTINCT budgets.name FROM budgets JOIN meets ON budgets.set_id = meets.other "
        "WHERE meets.one IN ({each})",
        numbers=numbers_of(sorted(sets)),
    )
    made = []
    for (name,) in sorted(found):
        row = account.last_of(str(name))
        if row is None or row.kind != "budget":
            raise account.store.altered(f"the {name} stands in no row of its journal")
        made.append(budget_from(row))
    return made


def _admit(
    account: Transaction,
    budget: Budget,
    entry: Charge,
    read: frozenset[int],
    public: frozenset[int],
    before: Charge | None,
) -> None:
    limit = f"the budget of epsilon {as_given(budget.epsilon)} (delta {as_given(budget.delta)}, {budget.neighbours})"
    taken = worst_case(entry) if public & sets_meeting(account, [budget.set_id]) else entry
    if why := unbounded(taken, budget.neighbours.unit):
        lift = f"dpose account {budget.data} --no-budget"
        fix = f"protect {budget.neighbours} with noise, or lift the budget ({lift})"
        if entry.what == EVALUATION:
            fix = f"lift the budget first ({lift}); it is then listed in dpose account"
        elif entry.what in SHOWN:
            fix = f"lift the budget first ({lift}), or {SHOWN[entry.what]}"
        raise DposeError(
            "budget-charge-unbounded", f"{limit} would be passed, because nothing bounds this: {why}", budget.data, fix
        )
    cost = _cost([taken], budget.neighbours, budget.order)
    stored = _read_bound(account, budget)
    if before is None:
        after = (stored[0] + cost[0], stored[1] + cost[1])
        if _within(budget, after):
            _write_bound(account, budget, after)
            return
    # the bound refuses: what has every picture spent?
    reasons, shares = _shares(account, budget, history(account), without=entry.id)
    if reasons:
        at, why = reasons[0]
        raise DposeError(
            "budget-read-unbounded",
            f"{limit} does not hold: nothing bounds what was read of them on {at[:10]} ({why})",
            budget.data,
            f"see dpose account {budget.data}; --no-budget lifts the budget",
        )
    ahead: list[Share] = []
    for share in shares:
        then = share
        if not share.sets or share.sets & read:
            both = (share.cost[0] + cost[0], share.cost[1] + cost[1])
            then = Share(share.sets, (*share.charges, taken), both)
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
    account: Transaction, budget: Budget, known: History, without: str = ""
) -> tuple[list[tuple[str, str]], list[Share]]:
    """What each part of the budget's pictures has spent; or when, and why, something was read that has no bound."""
    touched = sets_meeting(account, [budget.set_id])
    order, requested = budget.order, budget.neighbours
    reasons: list[tuple[str, str]] = []
    of_set: dict[int, list[Charge]] = {}
    for charge in touching_sets(known.among(touched), touched):
        assert charge.stored is not None
        if charge.id == without:
            continue
        if why := unbounded(charge, requested.unit):
            reasons.append((charge.at, why))
        for set_id in charge.stored.sets & touched:
            of_set.setdefault(set_id, []).append(charge)
    if reasons:
        return reasons, []
    if requested.together:
        # a person may be in pictures of different cells: nothing is parallel
        every = {charge.id: charge for found in of_set.values() for charge in found}
        return reasons, [Share(frozenset(), tuple(every.values()), _cost(every.values(), requested, order))]
    own = {set_id: _cost(found, requested, order) for set_id, found in of_set.items()}
    shares = []
    for sets in _signatures(account, budget.set_id, touched):
        spending = sorted(sets & of_set.keys())
        cost = (math.fsum(own[s][0] for s in spending), math.fsum(own[s][1] for s in spending))
        shares.append(Share(sets, tuple(charge for s in spending for charge in of_set[s]), cost))
    return reasons, shares


def _signatures(account: Transaction, set_id: int, of: frozenset[int]) -> set[frozenset[int]]:
    """The sets among `of` that each picture of a set is in: each combination that there is."""
    cells = cells_within(account, set_id)
    inside = {cell.id for cell in cells}
    chains = dict(chains_of(account, {cell.parent for cell in cells} - inside))
    found = set()
    for cell in cells:
        chains[cell.id] = chains[cell.parent] | {cell.set_id}
        if cell.members:
            found.add(chains[cell.id] & of)
    return found


def _cost(charges: Iterable[Charge], requested: Neighbours, order: float) -> Cost:
    events = [event for charge in charges for event in restated(charge, requested)]
    return renyi_cost(events, order, replaces=requested.replaces)


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
    """The stored upper bound of the worst picture.

    Raises:
        DposeError: it is not as it was written.
    """
    found = account.rows("SELECT spent, delta, mac FROM budgets WHERE name = :name", name=budget.name)
    if not found:
        raise account.store.altered(f"the {budget.name} is missing")
    spent, delta, mac = found[0]
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


def _check_owner(account: Transaction, name: str, word: str) -> None:
    row = account.last_of(name)
    if row is None or row.kind != "budget" or not row.body["owner"]:
        return
    if account.key.owner_hash(word) != row.body["owner"]:
        raise DposeError(
            "budget-of-other-owner",
            "this budget is somebody else's to change",
            row.body["data"],
            "give its owner's word",
        )
