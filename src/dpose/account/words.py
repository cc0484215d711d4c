"""What pictures have been spent for, as values and sentences that a terminal and a page show alike.

    for dataset in datasets():                     # all that the account holds, by what was read together
        dataset.answers                            # one figure for each neighbouring relation
        [line for answer in dataset.answers for line in answer_lines(answer)]

A figure is of the picture that has given the most: charges that share no picture compose in parallel. It holds for a
plan fixed beforehand; what holds for runs that were chosen after seeing results is a budget's filter
(`dpose.account.budgets`).
"""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from dpose.account.budgets import BudgetState, budget_states, what_fits
from dpose.account.charges import EVALUATION, PIXEL, Charge, State, charges, groups, restated, rollback_count
from dpose.account.composition import Spent, composed_each, spending
from dpose.account.store import VARIABLE, Where, account_exists, opened
from dpose.errors import DposeError, printable
from dpose.privacy.accounting import added_up
from dpose.privacy.events import Gaussian, Laplace
from dpose.privacy.marks import Marks
from dpose.privacy.neighbours import ACCOUNT_UNITS, STAYS_FORM, Neighbours, Relation
from dpose.privacy.ranges import as_given, upper
from dpose.units import Unit

DELTA = 1e-5
"""Delta at which epsilon is computed where nothing names a delta."""
PLANNED = "for a plan fixed beforehand"
"""Qualification of every figure that composes loss distributions."""
CHOSEN = "For runs and releases chosen after seeing earlier ones"
"""Beginning of the line about adaptively chosen charges, beside every figure for a fixed plan."""
SIZES = 3
"""Number of default figures for pixels: the largest numbers of pixels that releases were made for."""


@dataclass(frozen=True)
class DataSpending:
    """Pictures that were read together, by one charge or by several that share some.

    Attributes:
        name: For readers.
        entries: What read them, oldest first.
        answers: One for each neighbouring relation.
        budgets: Those that share a picture with them.
    """

    name: str
    entries: tuple[Charge, ...]
    answers: tuple[Spent, ...]
    budgets: tuple[BudgetState, ...] = ()


def relations_of(entries: Iterable[Charge], budgets: Iterable[BudgetState] = ()) -> tuple[Neighbours, ...]:
    """Default neighbours of an answer: those of the charges themselves and of the budgets.

    Releases are asked for the numbers of pixels that they were made for, the largest of them, and for the whole
    picture; runs for the strongest of their units and the weakest.
    """
    bounded = [entry for entry in entries if entry.events]
    sizes = sorted({one.pixels for e in bounded if e.unit == PIXEL for one in e.events if one.pixels})
    found = [Neighbours.of_pixels(size) for size in sizes[-SIZES:]]
    replaced = any(e.relation is Relation.REPLACE for e in bounded if e.unit in ACCOUNT_UNITS)
    relation = Relation.REPLACE if replaced else Relation.ZERO_OUT
    found += [Neighbours(unit, relation) for unit in ACCOUNT_UNITS if any(e.unit == unit for e in bounded)]
    wholes = {entry.within for entry in bounded if entry.unit == PIXEL}
    found += [Neighbours(Unit(within), Relation.REPLACE) for within in sorted(wholes)]
    counts = {entry.within for entry in bounded if entry.unit == Unit.STAY}
    found += [Neighbours.parse(stays, (STAYS_FORM,)) for stays in sorted(counts)]
    found += [state.budget.neighbours for state in budgets]
    return tuple(dict.fromkeys(found)) or (Neighbours(Unit.IMAGE),)


def answered(
    entries: Sequence[Charge],
    requested: Iterable[Neighbours],
    delta: float | None,
    marks: Marks | None = None,
    where: Where = None,
    *,
    same: bool = False,
) -> tuple[Spent, ...]:
    """What charges of the account have spent, for each of the neighbours asked about; at the largest delta of theirs.

    With `marks` of these pictures alone, `same` if they are digests of one picture.
    """
    at = delta or max((entry.delta for entry in entries if entry.events), default=0.0) or DELTA
    return tuple(spending(one, at, where, of=marks, among=entries, same=same) for one in requested)


def datasets(
    delta: float | None = None, requested: Sequence[Neighbours] = (), where: Where = None
) -> tuple[DataSpending, ...]:
    """All that the account holds, by what was read together; pictures that were only released, by their folders.

    Epsilons are at `delta`, or at the charges' own, for the neighbours `requested`, or what the charges are about.
    """
    states = budget_states(where=where)
    gathered = defaultdict[str, list[Charge]](list)
    for number, group in enumerate(groups(where)):
        alone = all(entry.what == "release" for entry in group)
        folder = PurePath(group[0].data).parent
        gathered[f"releases of {folder}" if alone else f"group {number}"] += group
    found, shown = list[DataSpending](), set[int]()
    for entries in gathered.values():
        entries.sort(key=lambda entry: entry.seq)
        read = frozenset().union(*(entry.read for entry in entries))
        mine = tuple(state for state in states if state.sets & read)
        shown |= set(map(id, mine))
        answers = answered(entries, requested or relations_of(entries, mine), delta, where=where)
        found.append(DataSpending(names_of(entries), tuple(entries), answers, mine))
    for state in states:  # a budget of pictures that nothing has read yet
        if id(state) not in shown:
            nothing = Spent(state.budget.neighbours, delta or state.budget.delta)
            found.append(DataSpending(printable(state.budget.data), (), (nothing,), (state,)))
    return tuple(found)


def dataset_of(
    name: str, marks: Marks, delta: float | None = None, requested: Sequence[Neighbours] = (), where: Where = None
) -> DataSpending:
    """What the pictures `marks` have been spent for: `datasets`, of them alone."""
    entries = tuple(charges(where, of=marks))
    states = budget_states(marks, where, exactly=True) or budget_states(marks, where)
    answers = [_answer(entries, one, delta, marks, where) for one in requested or relations_of(entries, states)]
    return DataSpending(printable(name), entries, tuple(answers), tuple(states))


def picture_of(
    name: str, marks: Marks, delta: float | None = None, requested: Sequence[Neighbours] = (), where: Where = None
) -> DataSpending:
    """What one picture or clip, of the digests `marks`, has been spent for, and where people are known, its people.

    The account does not know who is on it. For subjects all that touches any picture of data that were read with it is
    added up: the subject's pictures are among those. By default the answers are for what the charges are about and the
    whole picture, replaced.
    """
    entries = tuple(charges(where, of=marks))
    whole = "video" if any("video" in (entry.unit, entry.within) for entry in entries) else "image"
    wanted = requested or dict.fromkeys((*relations_of(entries), Neighbours(Unit(whole), Relation.REPLACE)))
    answers = [_answer(entries, one, delta, marks, where, same=True) for one in wanted]
    return DataSpending(printable(name), entries, tuple(answers), tuple(budget_states(marks, where)))


def _answer(
    entries: Sequence[Charge], one: Neighbours, delta: float | None, marks: Marks, where: Where, *, same: bool = False
) -> Spent:
    """`answered` for one of the neighbours; for subjects all that touches any picture of a run's data."""
    if one.unit == Unit.SUBJECT:
        ids = {entry.id for entry in entries}
        near = [e for group in groups(where) if any(m.id in ids for m in group) for e in group]
        counted = {e.id: e for e in (*near, *entries)}  # its own say what was taken to be public
        return answered(tuple(counted.values()), [one], delta, where=where)[0]
    return answered(entries, [one], delta, marks, where, same=same)[0]


def names_of(entries: Iterable[Charge]) -> str:
    """The names under which pictures were read, for readers; of many released files their folder."""
    files = {entry.data for entry in entries if entry.what == "release"}
    others = {entry.data for entry in entries if entry.what != "release"}
    released = {f"{PurePath(file).parent}/" for file in files} if len(files) > 3 else files - others
    return ", ".join(map(printable, [*sorted(others), *sorted(released)]))


@dataclass(frozen=True)
class ChargeLine:
    """Charges that one line shows: `count` of them, alike in all that it shows, and `entry` the first of them.

    `epsilon` is their own claim; infinite if nothing bounds it.
    """

    entry: Charge
    count: int
    epsilon: float

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders of the results: of many releases their common one, of a run every folder that it was in."""
        found = (str(PurePath(self.entry.folder).parent),) if self.count > 1 else self.entry.folders
        return tuple(map(printable, found))


def lines_of(entries: Iterable[Charge], where: Where = None) -> tuple[ChargeLine, ...]:
    """`entries` by lines, oldest first: a folder of pictures that was released at once is one line."""
    found: dict[object, list[Charge]] = {}
    for entry in entries:
        key: object = entry.id
        if entry.what == "release":
            place = (PurePath(entry.data).parent, PurePath(entry.folder).parent)
            # without what depends on the picture's size
            claims = tuple(replace(e, points=()) if isinstance(e, Laplace | Gaussian) else e for e in entry.events)
            key = (entry.at[:10], entry.delta, claims, entry.state, entry.within, place)
        found.setdefault(key, []).append(entry)
    own, left = dict[str, float](), list[Charge]()
    for first, *_ in found.values():
        if first.events and first.what != EVALUATION:
            # what a charge of pure losses claims it claims without any delta
            pure = added_up(event.pure() for event in restated(first, own_neighbours(first)))
            if first.delta or math.isinf(pure):
                left.append(first)
            else:
                own[first.id] = pure
    notes = composed_each([([e], e.delta or DELTA, own_neighbours(e)) for e in left], where)
    own |= {e.id: value for e, value in zip(left, notes, strict=True)}
    return tuple(ChargeLine(alike[0], len(alike), own.get(alike[0].id, math.inf)) for alike in found.values())


def own_neighbours(entry: Charge) -> Neighbours:
    """The neighbours of a charge's own claim."""
    if entry.unit == PIXEL:
        size = _size(entry)
        return Neighbours.of_pixels(size) if size else Neighbours(Unit(entry.within), Relation.REPLACE)
    if entry.unit == Unit.STAY:
        return Neighbours.parse(entry.within, (STAYS_FORM,))
    return Neighbours(Unit(entry.unit) if entry.unit in ACCOUNT_UNITS else Unit.IMAGE, entry.relation)


def _size(entry: Charge) -> int:
    return max((event.pixels for event in entry.events), default=0)


def row_of(line: ChargeLine) -> tuple[str, ...]:
    """Date, kind, neighbours, epsilon, delta and state of the charges of one line."""
    entry, size = line.entry, _size(line.entry)
    near = f"{entry.unit}, {entry.relation.value}"
    if entry.unit == Unit.STAY:
        near = entry.within
    elif entry.unit == PIXEL:
        near = f"{size:,} pixels" if size else f"whole {entry.within}"
    epsilon = "no noise" if entry.what == EVALUATION else "unbounded"
    return (
        entry.at[:10],
        entry.what if line.count == 1 else f"{line.count:,} x {entry.what}",
        near + (" *" if entry.beyond else ""),
        upper(line.epsilon) if math.isfinite(line.epsilon) else epsilon,
        as_given(entry.delta) if entry.events else "",
        entry.state.value,
    )


def answer_lines(answer: Spent) -> list[str]:
    """A figure in words; where something has no bound, which, and the sum of the rest."""
    of = answer.requested.describe()
    of, at = f"{of[:1].upper()}{of[1:]}", f"delta {as_given(answer.delta)}"
    together, epsilon = upper(answer.together), upper(answer.epsilon)
    if answer.unbounded:
        rest = f" What has a bound, added up: epsilon {together} at {at}." if answer.together else ""
        lines = [f"{of}: no bound ({_counted(answer.unbounded)}).{rest}"]
    elif answer.together:
        said = f" of the picture that gave most; {together} if all had read the same one"
        lines = [f"{of}: epsilon {epsilon} at {at}{said if together != epsilon else ''}."]
    else:
        lines = [f"{of}: nothing with a bound has read them."]
    if answer.together or answer.unbounded or answer.scores:
        notes = f"epsilon {upper(answer.chosen)} at {at}" if math.isfinite(answer.chosen) else "no bound is known"
        lines.append(f"{CHOSEN}: {notes}.")
    if answer.scores:
        lines.append(f"Besides, {answer.scores} score{'' if answer.scores == 1 else 's'} without noise.")
    return lines


def _counted(reasons: Counter[str]) -> str:
    return "; ".join(f"{n} x {why}" for why, n in reasons.items())


def budget_lines(state: BudgetState, like: tuple[Charge, ...] = ()) -> list[str]:
    """How a budget stands: what is spent and left, a warning from 50 per cent on, and what of `like` would still fit.

    Where something has no bound, that and no number. By default, what would fit is told of what was charged.
    """
    limit, data = state.budget, printable(state.budget.data)
    of = f"epsilon {as_given(limit.epsilon)} at delta {as_given(limit.delta)}"
    said = f"Budget of {data}: {of} for {limit.neighbours.describe()}; "
    if state.unbounded:
        said += f"what is spent has no bound: {_counted(state.unbounded)}."
        return [said, "Nothing more is let in until it is lifted."]
    said += f"{upper(state.epsilon)} is spent by the count of its filter, {upper(state.fixed)} {PLANNED}"
    if state.closed:
        return [f"{said}, by one charge that it was just large enough for: nothing more is let in."]
    lines = [f"{said} ({upper(state.used, places=0, times=100)} % of what it lets in is used)."]
    if state.level >= 100:
        lines.append("WARNING: all of it is used; what comes next is refused.")
    elif state.level:
        lines.append(f"WARNING: more than {state.level} % of it is used.")
    if fits := what_fits(state, like or state.charges):
        lines.append(f"What would fit, {fits}.")
    return lines


def notes_of(lines: Sequence[ChargeLine]) -> list[str]:
    """Remarks that a reader of these lines needs."""
    beyond = any(line.entry.beyond for line in lines)
    said = ["* protects only what a picture holds beyond its public view and labels."] if beyond else []
    if any(line.entry.state is State.FAILED for line in lines):
        said.append("What failed counts: what it had computed by then is unknown.")
    elif any(line.entry.state is State.RESERVED for line in lines):
        said.append("What is reserved counts from the moment that it was: it may have been computed.")
    return said


def set_back_line(where: Where = None) -> str:
    """A warning that the account was once set back and accepted; "" if it never was."""
    times = rollback_count(where)
    how = "once" if times == 1 else f"{times} times"
    return f"The account was set back {how}: more may have been spent than it says." if times else ""


def check_there(where: Where = None) -> None:
    """Refuse to answer for an account that is named and does not exist: that nothing is spent would be wrong."""
    if (where is not None or VARIABLE in os.environ) and not account_exists(where):
        place = opened(where).name
        raise DposeError("account-missing", "there is no account here", place, "see that its name is right")
