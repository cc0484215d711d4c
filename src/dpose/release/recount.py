"""Does what a statement says of its original's releases agree with itself, and with the account that is at hand?"""

from __future__ import annotations

import math
from pathlib import Path

from dpose.errors import DposeError
from dpose.files import file_digest
from dpose.privacy.odometer import Charge, PureLoss, ZcdpLoss, account_exists, charges
from dpose.privacy.statement import SLACK, Kind, PrivacyStatement
from dpose.release.counting import RELEASE, losses, repeated_words
from dpose.release.record import recorded_plan

FIELDS = {"releases", "epsilon", "delta", "pixels"}


def check_count(statement: PrivacyStatement, where: str) -> None:
    """Refuse a count of releases that is none, costs less than this release alone, or is not told in words.

    Raises:
        DposeError: it is; nothing where the statement has none: the original was public.
    """
    told = statement.odometer
    if not told:
        return
    try:
        if set(told) != FIELDS:
            raise ValueError("other fields")
        number, pixels = int(told["releases"]), int(told["pixels"])
        epsilon, delta = float(told["epsilon"]), float(told["delta"])
        if number < 1 or pixels < 0 or not epsilon >= 0 or not 0 <= delta < 1:
            raise ValueError("out of range")
    except ValueError as error:
        raise DposeError("release-count-unreadable", "its count of releases cannot be read", where) from error
    if statement.epsilon is not None and epsilon < float(statement.epsilon):
        raise DposeError(
            "releases-cost-too-little",
            "its releases together cost less than it does alone",
            where,
            "do not rely on it",
        )
    if number > 1 and repeated_words(number, epsilon, delta, pixels) not in statement.caveats:
        raise DposeError(
            "earlier-releases-left-out",
            "leaves out what its earlier releases cost",
            where,
            "do not rely on it",
        )


def ask_account(statement: PrivacyStatement, path: Path) -> list[str]:
    """Compare a released file with the account that is at hand.

    Returns:
        What could not be checked.

    Raises:
        DposeError: statement and account disagree: on what the release cost, or on how many there were before it.
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
    wanted: tuple[PureLoss | ZcdpLoss, ...] = ()
    if statement.kind is Kind.PRIVATE:
        wanted = losses(recorded_plan(statement.release, where), seeded=False)
    if not _same(own.events, wanted):
        raise DposeError(
            "account-cost-differs",
            "statement and account disagree: the account has another cost for this release",
            where,
            "do not rely on either before you know why",
        )
    assert own.stored is not None
    before = sum(
        entry.stored is not None
        and entry.stored.seq < own.stored.seq
        and bool(entry.stored.sets & own.stored.sets)
        for entry in entries
    )
    if int(statement.odometer["releases"]) < before + 1:
        raise DposeError(
            "account-count-differs",
            f"statement and account disagree: it says that there were {statement.odometer['releases']} releases, the "
            f"account knows of {before + 1}",
            where,
            "do not rely on it",
        )


def _same(found: tuple[object, ...], wanted: tuple[PureLoss | ZcdpLoss, ...]) -> bool:
    """Whether they cost the same for each number of pixels, but for last digits that differ between machines."""
    if len(found) != len(wanted):
        return False
    for event, other in zip(found, wanted, strict=True):
        if not isinstance(event, PureLoss | ZcdpLoss) or type(event) is not type(other):
            return False
        pairs = [(_cost(event), _cost(other))]
        pairs += [(a, b) for (_, a), (_, b) in zip(event.points, other.points, strict=False)]
        places = [
            [event.pixels, *(m for m, _ in event.points)],
            [other.pixels, *(m for m, _ in other.points)],
        ]
        if places[0] != places[1] or not all(math.isclose(a, b, rel_tol=SLACK) for a, b in pairs):
            return False
    return True


def _cost(event: PureLoss | ZcdpLoss) -> float:
    return event.epsilon if isinstance(event, PureLoss) else event.rho
