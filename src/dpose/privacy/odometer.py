"""What private pictures have been spent for, over all runs: epsilon belongs to the data, not to a run.

    claim(Charge(...))                                     # every run does so before its first step
    found = touching(charges(), marks)                     # those that read any of these pictures
    composed(found, delta=1e-5)                            # epsilon of all of them together

Tuning runs, audits and the run that is published have all read the same people. Their mechanisms compose, whoever ran
them and whatever was published. The account stands in the user's state folder and knows the runs of this machine alone.

**Guarantee.** `composed` is the epsilon of the adaptive composition of all recorded mechanisms, for a neighbour of the
weakest of their units that any of them read. Data are told by the contents of pictures, so that a subset, a second
copy or another order of the same pictures is the same data.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import explain_os_error, locked_folder, write_private
from dpose.privacy.accounting import Event, Relation, epsilon
from dpose.privacy.keys import state_folder
from dpose.privacy.rounding import as_given, upper
from dpose.privacy.tuning import Tuning, curve_epsilon, event_curve

SCHEMA = 1
EVALUATION = "evaluation"
"""A score without noise: no epsilon, and no part of what is composed."""

UNKNOWN = "unknown"
"""What stands as the first weights of a charge that was written before these were recorded."""
STRENGTH = ("crop", "image", "video", "subject")
"""Units, the weaker before the stronger: who hides a whole video hides each of its pictures."""

_SIDES_APART = 6
"""Of so many choices every combination of sides is looked at; of more the worse side counts at every order."""

Marks = NDArray[np.uint64]
"""Sorted, one for each picture: the first eight bytes of a hash of its content hash."""


def _none() -> Marks:
    return np.empty(0, np.uint64)


@dataclass(frozen=True)
class Charge:
    """What one run, audit or evaluation took from some pictures.

    Attributes:
        id: 32 hexadecimal digits; a second charge of that name replaces the first.
        what: "training", "audit" or `EVALUATION`.
        data: The data, for readers.
        folder: Where its results are.
        at: When, in ISO 8601.
        unit: What it protects.
        relation: Its neighbouring relation.
        delta: Of its own claim.
        events: What it did; empty where nothing bounds what it tells.
        beyond: Whether it protects only what pictures hold beyond their public views. With no events: it read those
            views and the labels and nothing else.
        marks: The pictures.
        views: With `beyond`, which public views those are, for readers.
        start: SHA-256 of the file of weights that it began with; "" for none, `UNKNOWN` where it was not recorded.
        weights: SHA-256 of every file of weights that it released.
        opened: Pictures that it took to be public and learnt from: of these it protects nothing.
        tuning: Of a choice among a random number of trials, which has a price and no events.
    """

    id: str
    what: str
    data: str
    folder: str
    at: str
    unit: str
    relation: Relation
    delta: float
    events: tuple[Event, ...]
    beyond: bool
    marks: Marks = field(repr=False, compare=False)
    views: str = ""
    start: str = ""
    weights: tuple[str, ...] = ()
    opened: Marks = field(default_factory=_none, repr=False, compare=False)
    tuning: Tuning | None = None

    @property
    def bounded(self) -> bool:
        """Whether anything bounds what it tells."""
        return bool(self.events) or self.tuning is not None


@dataclass(frozen=True)
class Budget:
    """The most that may be spent on some pictures.

    Attributes:
        epsilon: Of everything together.
        delta: At which it is counted.
        data: The data, for readers.
        marks: The pictures.
        unit: What it protects. What protects a weaker unit, or only what pictures hold beyond their public views, is
            bounded by nothing here.
    """

    epsilon: float
    delta: float
    data: str
    marks: Marks = field(repr=False, compare=False)
    unit: str = "image"


def marks_of(content_hashes: Iterable[str]) -> Marks:
    """Marks of the pictures with these content hashes."""
    digests = (hashlib.blake2b(h.encode(), digest_size=8, person=b"dpose/account/1") for h in content_hashes)
    return np.unique(np.frombuffer(b"".join(d.digest() for d in digests), dtype="<u8").astype(np.uint64))


def charge(entry: Charge, state_dir: Path | None = None) -> None:
    """Record `entry`; on disk when this returns.

    Of an earlier charge of that name the pictures and the released weights stay: what was read and shown once remains
    read and shown.

    Raises:
        DposeError: the state folder cannot be written, or the run began with other first weights.
    """
    path = state_folder(state_dir) / "account" / f"{entry.id}.json"
    if path.exists():
        entry = _joined(_charge_from(path), entry)
    content = {
        "schema": SCHEMA,
        **{name: getattr(entry, name) for name in (*_TEXTS, "delta")},
        "relation": entry.relation.value,
        "events": [event.to_dict() for event in entry.events],
        "beyond": entry.beyond,
        "tuning": entry.tuning.to_dict() if entry.tuning else None,
        "weights": list(entry.weights),
        "marks": _packed(entry.marks),
        "opened": _packed(entry.opened),
    }
    _write(path, content)


def _joined(before: Charge, entry: Charge) -> Charge:
    if before.start not in (UNKNOWN, entry.start):
        raise DposeError(
            "the first weights are not those that this run began with",
            entry.folder,
            "bring them back as they were, or start a new run",
        )
    return replace(
        entry,
        weights=tuple(dict.fromkeys((*before.weights, *entry.weights))),
        marks=np.union1d(before.marks, entry.marks),
        opened=np.union1d(before.opened, entry.opened),
    )


def note_weights(run_id: str, digest: str, state_dir: Path | None = None) -> None:
    """Record that the run `run_id` released a file of weights; to be called before the file is seen.

    Nothing happens where the account does not know the run.

    Raises:
        DposeError: the account cannot be read or written.
    """
    with _locked(state_dir):
        path = state_folder(state_dir) / "account" / f"{run_id}.json"
        if path.exists():
            charge(replace(_charge_from(path), weights=(digest,)), state_dir)


def charges(state_dir: Path | None = None) -> list[Charge]:
    """All that is recorded, oldest first.

    Raises:
        DposeError: a file of the account cannot be read.
    """
    found = [_charge_from(path) for path in sorted((state_folder(state_dir) / "account").glob("*.json"))]
    return sorted(found, key=lambda entry: (entry.at, entry.id))


_TEXTS = ("id", "what", "data", "folder", "at", "unit", "views", "start")


def _charge_from(path: Path) -> Charge:
    # what older files do not say is taken for the worst that it can be
    values = {"views": "", "start": UNKNOWN, "weights": [], "opened": "", "tuning": None, **_read(path)}
    try:
        events = tuple(Event.from_dict(event, str(path)) for event in values["events"])
        return Charge(
            **{name: str(values[name]) for name in _TEXTS},
            relation=Relation(values["relation"]),
            delta=float(values["delta"]),
            events=events,
            beyond=values["beyond"] is True and (bool(events) or values["start"] != UNKNOWN),
            weights=tuple(map(str, values["weights"])),
            marks=_unpacked(values["marks"]),
            opened=_unpacked(values["opened"]),
            tuning=None if values["tuning"] is None else Tuning.from_dict(values["tuning"], str(path)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _broken(path, error) from error


def set_budget(budget: Budget, state_dir: Path | None = None) -> None:
    """Set the budget of exactly these pictures, in place of an earlier one.

    Raises:
        DposeError: epsilon or delta is out of range, or the state folder cannot be written.
    """
    if not (0 < budget.epsilon < float("inf") and 0 < budget.delta < 1):
        raise DposeError(
            f"a budget needs epsilon > 0 and 0 < delta < 1, not {as_given(budget.epsilon)}, {as_given(budget.delta)}"
        )
    if budget.unit not in STRENGTH:
        raise DposeError(
            f"a budget cannot be for a unit {budget.unit!r}", fix=f"choose one of {', '.join(STRENGTH)}"
        )
    content = {
        "schema": SCHEMA,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "data": budget.data,
        "unit": budget.unit,
        "marks": _packed(budget.marks),
    }
    _write(_budget_file(budget.marks, state_dir), content)


def lift_budget(marks: Marks, state_dir: Path | None = None) -> bool:
    """Remove the budget of exactly these pictures; whether there was one."""
    file = _budget_file(marks, state_dir)
    existed = file.exists()
    file.unlink(missing_ok=True)
    return existed


def budgets(state_dir: Path | None = None) -> list[Budget]:
    """All budgets.

    Raises:
        DposeError: a file of the account cannot be read.
    """
    found = []
    for path in sorted((state_folder(state_dir) / "budgets").glob("*.json")):
        values = _read(path)
        try:
            found.append(
                Budget(
                    float(values["epsilon"]),
                    float(values["delta"]),
                    str(values["data"]),
                    _unpacked(values["marks"]),
                    str(values.get("unit", "image")),
                )
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _broken(path, error) from error
    return found


def touching(entries: Iterable[Charge], marks: Marks) -> list[Charge]:
    """Those of `entries` that read any of the pictures `marks`.

    One that took some of them to be public comes without its events: nothing bounds what it tells of those.
    """
    found = []
    for entry in entries:
        if _any(entry.opened, marks):
            found.append(replace(entry, events=(), beyond=False, tuning=None))
        elif _any(entry.marks, marks):
            found.append(entry)
    return found


def _any(some: Marks, marks: Marks) -> bool:
    return bool(np.isin(some, marks, assume_unique=True).any())


def lineage(digests: Iterable[str], entries: Sequence[Charge]) -> tuple[list[Charge], list[str]]:
    """The runs that weights come from: the one that released them, the one that released its first weights, and so on.

    Args:
        digests: SHA-256 of files of weights.
        entries: Of the account.

    Returns:
        The runs, each once; and the digests (or `UNKNOWN`) that no run of the account released.
    """
    found: dict[str, Charge] = {}
    left, seen, unknown = list(digests), set[str](), []
    while left:
        digest = left.pop()
        if not digest or digest in seen:
            continue
        seen.add(digest)
        by = [entry for entry in entries if digest in entry.weights]
        if not by:
            unknown.append(digest)
        found |= {entry.id: entry for entry in by}
        left += [entry.start for entry in by]
    return list(found.values()), unknown


def unbounded(entry: Charge, unit: str) -> str:
    """Why nothing bounds what `entry` tells of a `unit`; "" where its events do."""
    if entry.what == EVALUATION:
        return "a score without noise"
    if not entry.bounded:
        return "no noise, noise from a seed, or pictures taken to be public"
    if entry.beyond:
        return "only what pictures hold beyond their public views is protected"
    if entry.unit == unit:
        return ""
    known = entry.unit in STRENGTH and unit in STRENGTH
    if known and STRENGTH.index(entry.unit) > STRENGTH.index(unit):
        return ""
    return f"only each {entry.unit} is protected, and not each {unit}"


def composed(entries: Sequence[Charge], delta: float) -> float:
    """Epsilon at `delta` of everything in `entries` together; infinite where one of them is bounded by nothing.

    Scores without noise (`what` "evaluation") have no epsilon and are left out; whoever shows the sum names them.
    For neighbours by replacement where one of them claims that, otherwise by zeroing out. A choice among trials has no
    loss distribution to compose: the smaller of two bounds counts, all by Renyi divergences, or the choices so and the
    events by theirs at half of delta each. For replacement it has none.

    Raises:
        DposeError: delta is out of range.
    """
    entries = [entry for entry in entries if entry.what != EVALUATION]
    if not entries:
        return 0.0
    if not all(entry.bounded for entry in entries):
        return float("inf")
    replaced = any(entry.relation is Relation.REPLACE for entry in entries)
    events = [event for entry in entries for event in entry.events]
    choices = [entry.tuning for entry in entries if entry.tuning]
    if replaced and choices:
        return float("inf")
    relation = Relation.REPLACE if replaced else Relation.ZERO_OUT
    if not choices:
        return epsilon(events, delta, relation=relation)
    chosen = _by_sides(choices)
    rest = sum(event_curve(event) for event in events)
    whole = max(curve_epsilon(curve + rest, delta) for curve in chosen)
    if not events:
        return whole
    apart = max(curve_epsilon(curve, delta / 2) for curve in chosen)
    return min(whole, apart + epsilon(events, delta / 2, relation=relation))


def _by_sides(choices: Sequence[Tuning]) -> list[Any]:
    """The divergences of all `choices` together, for a unit that is on whichever side of each of them."""
    sides = [choice.curves() for choice in choices]
    if len(sides) > _SIDES_APART:
        return [sum(np.maximum(*pair) for pair in sides)]
    return [sum(curves) for curves in itertools.product(*sides)]


def check_budgets(entry: Charge, state_dir: Path | None = None) -> None:
    """Refuse `entry` if it would take more than a budget leaves, or if what it takes is bounded by nothing.

    Raises:
        DposeError: it would; says what is spent and what would be.
    """
    for budget in budgets(state_dir):
        asked = touching([entry], budget.marks)
        if not asked:
            continue
        limit = f"the budget of epsilon {as_given(budget.epsilon)} (delta {as_given(budget.delta)}, each {budget.unit})"
        if why := unbounded(asked[0], budget.unit):
            lift = f"dpose account {budget.data} --no-budget"
            raise DposeError(
                f"{limit} would be passed, because nothing bounds this: {why}",
                budget.data,
                f"lift the budget first ({lift}); it is then listed in dpose account"
                if entry.what == EVALUATION
                else f"protect each {budget.unit} with noise, or lift the budget ({lift})",
            )
        before = [other for other in touching(charges(state_dir), budget.marks) if other.id != entry.id]
        for other in before:
            if why := unbounded(other, budget.unit):
                raise DposeError(
                    f"{limit} does not hold: nothing bounds what was read of them on {other.at[:10]} ({why})",
                    budget.data,
                    f"see dpose account {budget.data}; --no-budget lifts the budget",
                )
        after = composed([*before, *asked], budget.delta)
        if after > budget.epsilon * (1 + 1e-9):
            spent = composed(before, budget.delta)
            raise DposeError(
                f"{limit} would be passed: {upper(spent)} is spent, with this run {upper(after)}",
                budget.data,
                "lower --epsilon, or see dpose account",
            )


def charge_account(entry: Charge, state_dir: Path | None = None) -> None:
    """Check the budgets and record `entry`, with no other process in between.

    Raises:
        DposeError: a budget would be passed, or the state folder cannot be written.
    """
    with _locked(state_dir):
        check_budgets(entry, state_dir)
        charge(entry, state_dir)


@contextmanager
def _locked(state_dir: Path | None) -> Iterator[None]:
    folder = state_folder(state_dir) / "account"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explain_os_error(error, folder) from error
    with locked_folder(folder, wait=True):
        yield


def groups(entries: Sequence[Charge]) -> list[list[Charge]]:
    """`entries` in groups that have pictures in common, directly or by way of others; order is kept."""
    left, found = list(entries), []
    while left:
        group = [left.pop(0)]
        marks = group[0].marks
        while more := [entry for entry in left if _any(entry.marks, marks)]:
            group += more
            left = [entry for entry in left if all(entry is not taken for taken in more)]
            marks = np.unique(np.concatenate([marks, *(entry.marks for entry in more)]))
        found.append(sorted(group, key=lambda entry: (entry.at, entry.id)))
    return found


def _budget_file(marks: Marks, state_dir: Path | None) -> Path:
    name = hashlib.sha256(marks.tobytes()).hexdigest()[:32]
    return state_folder(state_dir) / "budgets" / f"{name}.json"


def _write(path: Path, content: dict[str, Any]) -> None:
    write_private(path, json.dumps(content) + "\n")


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict) or values.get("schema") != SCHEMA:
            raise ValueError("another dpose wrote it")
        return values
    except (OSError, ValueError) as error:
        raise _broken(path, error) from error


def _broken(path: Path, error: Exception) -> DposeError:
    # passed over, it would let runs be forgotten
    return DposeError(f"a file of the account cannot be read ({error})", str(path), "mend or remove it")


def _packed(marks: Marks) -> str:
    return base64.b64encode(marks.astype("<u8").tobytes()).decode()


def _unpacked(text: Any) -> Marks:
    return np.frombuffer(base64.b64decode(str(text), validate=True), dtype="<u8").astype(np.uint64)
