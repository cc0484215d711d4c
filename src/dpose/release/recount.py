"""Does what a statement says of its original's releases agree with itself, and with the account that is at hand?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dpose.account import Charge, account_exists, charges
from dpose.errors import DposeError
from dpose.files import file_digest
from dpose.privacy.events import Event, Gaussian, Laplace
from dpose.privacy.statement import SLACK, Kind, PrivacyStatement
from dpose.release.counting import RELEASE, charged_events, repeated_words
from dpose.release.record import recorded_plan

FIELDS = {"releases", "epsilon", "delta", "pixels"}


def check_count(statement: PrivacyStatement, where: str) -> None:
    """Refuse a count of releases that is none, costs less than this release alone, or is not said in words.

    Raises:
        DposeError: it is; nothing where the statement has none: the original was public.
    """
    counted = statement.odometer
    if not counted:
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


def _same(found: Sequence[Event], wanted: Sequence[Event]) -> bool:
    """True if they cost the same for each number of pixels, but for last digits that differ between machines."""
    if [_shape(event) for event in found] != [_shape(event) for event in wanted]:
        return False
    pairs = zip(map(_costs, found), map(_costs, wanted), strict=True)
    return all(
        math.isclose(a, b, rel_tol=SLACK) for ours, theirs in pairs for a, b in zip(ours, theirs, strict=True)
    )


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
