"""What a release's statement must say, computed again from the configuration that it records, and compared.

A statement records the configuration and the public sizes. All else follows: neighbours, sensitivities, noise, cost,
what is public, what is taken as given, what larger things cost. So a statement is checked by binding the configuration
again and making the statement again. Numbers are compared exactly; those that floating point computed, within one part
in a million.

Does what a statement says of its original's releases agree with itself, and with the account that is at hand?
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpose.account import Charge, account_exists, charges
from dpose.errors import DposeError
from dpose.files import file_digest
from dpose.media.spans import Span, spans_of
from dpose.privacy.events import Event, Gaussian, Laplace
from dpose.privacy.ranges import exact_text
from dpose.privacy.statement import SLACK, Kind, PrivacyStatement
from dpose.release.counting import PUBLIC, RELEASE, charged_events, repeated_words
from dpose.release.objects import SoundPlan
from dpose.release.pixelization import PixelizationPlan
from dpose.release.plans import release_statement
from dpose.release.record import recorded_plan

FIELDS = {"releases", "epsilon", "delta", "pixels"}


def check_count(statement: PrivacyStatement, where: str) -> None:
    """Refuse a count of releases that is none, costs less than this release alone, or is not said in words.

    Raises:
        DposeError: it is; or the statement of a release that protects something has none, and no original that was
            declared public.
    """
    counted = statement.odometer
    if not counted:
        if statement.kind in (Kind.PRIVATE, Kind.SEEDED) and PUBLIC not in statement.caveats:
            raise DposeError(
                "release-count-missing",
                "its releases are not counted, and its original is not public",
                where,
                "do not rely on it",
            )
        return
    try:
        if set(counted) != FIELDS:
            raise ValueError("other fields")
        number, pixels = int(counted["releases"]), int(counted["pixels"])
        epsilon, delta = float(counted["epsilon"]), float(counted["delta"])
        if number < 1 or pixels < 0 or not epsilon >= 0 or not 0 <= delta < 1:
            raise ValueError("out of range")
    except ValueError as error:
        raise DposeError("release-count-unreadable", "its count of releases cannot be read", where) from error
    if statement.epsilon is not None and epsilon < float(statement.epsilon):
        raise DposeError(
            "releases-cost-too-little", "its releases together cost less than it does alone", where, "do not rely on it"
        )
    if number > 1 and repeated_words(number, epsilon, delta, pixels) not in statement.caveats:
        raise DposeError(
            "earlier-releases-left-out", "leaves out what its earlier releases cost", where, "do not rely on it"
        )


def ask_account(statement: PrivacyStatement, path: Path) -> list[str]:
    """Compare a released file with the account that is at hand.

    Returns:
        What could not be checked.
    """
    if not statement.odometer:
        return []
    if not account_exists():
        return ["that it was counted, as there is no account here"]
    try:
        entries = [entry for entry in charges() if entry.what == RELEASE]
    except DposeError as error:
        return [f"that it was counted, as the account cannot be read ({error.what})"]
    digest = file_digest(path)
    own = next((entry for entry in entries if digest in entry.outputs), None)
    if own is None:
        return ["that it was counted: the account that is here does not know this file"]
    _compare(statement, own, entries, str(path))
    return []


def _compare(statement: PrivacyStatement, own: Charge, entries: list[Charge], where: str) -> None:
    wanted: Sequence[Event] = ()
    if statement.kind is Kind.PRIVATE:
        wanted = charged_events(recorded_plan(statement.release, where), seeded=False)
    if not _same(own.events, wanted):
        raise DposeError(
            "account-cost-differs",
            "statement and account disagree: the account has another cost for this release",
            where,
            "do not rely on either before you know why",
        )
    before = sum(entry.seq < own.seq and bool(entry.stored.sets & own.stored.sets) for entry in entries)
    if int(statement.odometer["releases"]) < before + 1:
        raise DposeError(
            "account-count-differs",
            f"statement and account disagree: it says that there were {statement.odometer['releases']} releases, the "
            f"account knows of {before + 1}",
            where,
            "do not rely on it",
        )


def _same(found: Sequence[Event], wanted: Sequence[Event]) -> bool:
    """True if they cost the same for each number of pixels, but for last digits that differ between machines."""
    if [_shape(event) for event in found] != [_shape(event) for event in wanted]:
        return False
    pairs = zip(map(_costs, found), map(_costs, wanted), strict=True)
    return all(math.isclose(a, b, rel_tol=SLACK) for ours, theirs in pairs for a, b in zip(ours, theirs, strict=True))


def _shape(event: Event) -> tuple[object, ...]:
    """What must be equal of two events of one release."""
    sizes = [size for size, _ in event.points] if isinstance(event, Laplace | Gaussian) else None
    return event.type, event.pixels, sizes


def _costs(event: Event) -> list[float]:
    """What an event of a release costs, at its own pixels and at each of its points."""
    if isinstance(event, Laplace):
        at = [event, *(replace(event, sensitivity=bound) for _, bound in event.points)]
        return [float(one.pure()) for one in at]
    if isinstance(event, Gaussian):
        near = [event, *(replace(event, sensitivity_squared=bound) for _, bound in event.points)]
        return [float(one.rho()) for one in near]
    return [math.inf]


def expected(statement: PrivacyStatement, plan: SoundPlan) -> PrivacyStatement:
    """The statement that dpose makes for a release by `plan`.

    Args:
        statement: As it stands in the artefact, of kind private or seeded.
        plan: Which its record is of.
    """
    spans = () if plan.shape.still else recorded_spans(statement.release)
    made = release_statement(plan, seeded=statement.kind is Kind.SEEDED, spans=spans)
    # which blocks a public mask divides, and how the values of a picture's archive were restored once more, follows
    # from no configuration: each is compared with the picture and its archive
    again = isinstance(plan, PixelizationPlan) and plan.shape.still
    kept = [name for name in ("blocks_sha256", *("restoration",) * again) if name in made.release]
    return replace(made, release={**made.release, **{n: statement.release.get(n) for n in kept}})


def recorded_spans(record: Mapping[str, Any]) -> tuple[Span, ...]:
    """The spans of a film that a record names; none where it names none, or nothing that spans are read from."""
    try:
        return spans_of((first, last) for first, last in record.get("spans", ()))
    except (DposeError, TypeError, ValueError):
        return ()  # which the record then differs from


def compare_numbers(statement: PrivacyStatement, wanted: PrivacyStatement, where: str) -> None:
    """Refuse a statement whose numbers or record differ from the recomputed ones. For its words see `compare_words`.

    Args:
        statement: As it stands in the artefact.
        wanted: The recomputed one.
        where: The file, for errors.
    """
    found, needed = dict(_leaves(statement.release)), dict(_leaves(wanted.release))
    for names in sorted({*found, *needed}):
        if found.get(names) != needed.get(names):
            ours, theirs = found.get(names, "nothing"), needed.get(names, "nothing")
            raise _differs(".".join(names), ours, theirs, where)
    if len(statement.events) != len(wanted.events):
        raise DposeError(
            "record-events-differ", f"its statement has {len(statement.events)} events, not {len(wanted.events)}", where
        )
    for event, other in zip(statement.events, wanted.events, strict=True):
        _compare_event(event, other, where)
    said, follows = statement.to_dict(), wanted.to_dict()
    for name in ("unit", "neighbours", "epsilon", "delta", "accountant", "n", "queries", "plan_sha256", "ledger_head"):
        if said[name] != follows[name]:
            raise _differs(name, said[name], follows[name], where)


def compare_words(
    statement: PrivacyStatement,
    wanted: PrivacyStatement,
    where: str,
    *,
    caveats: tuple[str, ...] = (),
    given: tuple[str, ...] = (),
    rough: bool = False,
) -> None:
    """Refuse a statement that leaves out, adds or rewrites what it must say.

    Args:
        statement: As it stands in the artefact.
        wanted: The recomputed one.
        where: The file, for errors.
        caveats: What the statement must say besides; more caveats than that are the maker's own.
        given: What the statement must take as given besides.
        rough: Numbers in words may differ: they come from cosines, whose last digits differ between machines.
    """

    def same(lines: tuple[str, ...]) -> list[str]:
        return [re.sub(r"\d[\d.,e+-]*", "#", line) if rough else line for line in lines]

    for name, found, needed, more in (
        ("public", statement.public, wanted.public, False),
        ("conditional_on", statement.conditional_on, (*wanted.conditional_on, *given), False),
        ("caveats", statement.caveats, (*wanted.caveats, *caveats), True),
    ):
        here, there = same(found), same(needed)
        for line, plain in zip(needed, there, strict=True):
            if plain not in here:
                raise DposeError(
                    "record-sentence-left-out", f"its {name} leave out: {line}", where, "do not rely on it"
                )
        for line, plain in zip(found, here, strict=True):
            if plain not in there and not more:
                raise DposeError(
                    "record-sentence-unfounded",
                    f"its {name} hold what does not follow: {line}",
                    where,
                    "do not rely on it",
                )
        if not more and len(here) != len(there):
            raise DposeError("record-sentence-twice", f"its {name} say something twice", where, "do not rely on it")


def _leaves(values: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each value of a record as JSON, by the names that lead to it: 1, 1.0 and true are three values."""
    if isinstance(values, Mapping) and values:
        for own, value in values.items():
            yield from _leaves(value, (*names, own))
    else:
        yield names, json.dumps(values, sort_keys=True)


def _compare_event(event: Any, wanted: Any, where: str) -> None:
    if type(event) is not type(wanted):
        raise _differs("event", getattr(event, "type", "?"), wanted.type, where)
    if event.steps != wanted.steps:
        raise _differs("steps", event.steps, wanted.steps, where)
    exact = isinstance(wanted, Laplace)
    bound = "sensitivity" if exact else "sensitivity_squared"
    noise = "scale" if exact else "variance"
    ours, theirs = getattr(event, bound), getattr(wanted, bound)
    if not _near(ours, theirs):
        if ours < theirs:
            raise DposeError(
                "record-sensitivity-smaller",
                f"its noise was made for a smaller sensitivity ({bound} {_short(ours)}) than such a release has "
                f"({_short(theirs)})",
                where,
                "do not rely on it",
            )
        raise _differs(bound, _short(ours), _short(theirs), where)
    ours, theirs = getattr(event, noise), getattr(wanted, noise)
    if ours != theirs if exact else not _near(ours, theirs):
        raise _differs(noise, _short(ours), _short(theirs), where)


def _near(found: Fraction, wanted: Fraction) -> bool:
    # whole numbers are exact; only a bound from cosines is none
    if wanted.denominator == 1 and wanted < 10**15 and found.denominator == 1:
        return found == wanted
    return abs(found - wanted) <= wanted * Fraction(SLACK)


def _short(value: Fraction) -> str:
    text = exact_text(value)
    return text if len(text) <= 24 else f"{float(value):.9g}"


def _differs(name: str, found: Any, wanted: Any, where: str) -> DposeError:
    return DposeError(
        "record-value-differs",
        f"its statement says {name} {found}, but {wanted} follows from the rest of it",
        where,
        "do not rely on it",
    )
