"""What a release's statement must say, computed again from the configuration that it records, and compared.

A statement records the configuration and the public sizes. All else follows: neighbours, sensitivities, noise, cost,
what is public, what is taken as given, what larger things cost. So a statement is checked by binding the configuration
again and making the statement again. Numbers are compared exactly; those that floating point computed, within one part
in a million.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dpose.errors import DposeError
from dpose.media.spans import Span, spans_of
from dpose.privacy.events import Laplace
from dpose.privacy.ranges import exact_text
from dpose.privacy.statement import SLACK, Kind, PrivacyStatement
from dpose.release.objects import SoundPlan
from dpose.release.pixelization import PixelizationPlan
from dpose.release.plans import release_statement


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

    Raises:
        DposeError: something differs; names it.
    """
    found, needed = dict(_leaves(statement.release)), dict(_leaves(wanted.release))
    for names in sorted({*found, *needed}):
        if found.get(names) != needed.get(names):
            ours, theirs = found.get(names, "nothing"), needed.get(names, "nothing")
            raise _differs(".".join(names), ours, theirs, where)
    if len(statement.events) != len(wanted.events):
        raise DposeError(
            "record-events-differ",
            f"its statement has {len(statement.events)} events, not {len(wanted.events)}",
            where,
        )
    for event, other in zip(statement.events, wanted.events, strict=True):
        _compare_event(event, other, where)
    said, follows = statement.to_dict(), wanted.to_dict()
    for name in (
        "unit",
        "neighbours",
        "epsilon",
        "delta",
        "accountant",
        "n",
        "queries",
        "plan_sha256",
        "ledger_head",
    ):
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

    Raises:
        DposeError: it does; names the sentence.
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
            raise DposeError(
                "record-sentence-twice", f"its {name} say something twice", where, "do not rely on it"
            )


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
