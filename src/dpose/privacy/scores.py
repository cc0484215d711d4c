"""Noised scores in a run folder: the statement of each, and the query that binds it to the run's ledger.

    privacy = score_statement(query, neighbours, 2000, metric, seeded=False)           # goes into the score's file
    query = query_of(content, score_name(raw, "lspet-2000-noised-1a2b3c4d.json"))      # what ledger and statement list
    check_scores(folder, statement.queries)                                            # what `verify` says of all

A query names the SHA-256 of the file's bytes and the file. What a query says (metric, data, price) follows from what
the file holds, so that neither can be changed without the other; and its statement is that of a query that was asked,
with noise for how far that query moves.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.files import file_bytes
from dpose.privacy.accounting import Accountant
from dpose.privacy.events import Gaussian, Laplace
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.noised_query import CONFIDENCE, NoisedQuery
from dpose.privacy.ranges import as_given, exact_text, upper
from dpose.privacy.sections import Query
from dpose.privacy.statement import Kind, PrivacyStatement

FOLDER = "evaluations"
INTERVAL = f"the {CONFIDENCE:.0%} interval is for the noise; it does not cover which people were scored"


def score_statement(
    query: NoisedQuery, near: Neighbours, units: int | None, metric: str, *, seeded: bool
) -> PrivacyStatement:
    """What a noised score guarantees to the units that it was taken of; `verify` recomputes its epsilon.

    Args:
        query: What was released.
        near: What a unit is, and the query's relation.
        units: How many, where that is public.
        metric: Its name.
        seeded: Whether the noise came from a seed.
    """
    exact, unit = query.delta is None, near.unit.value
    return PrivacyStatement(
        kind=Kind.SEEDED if seeded else Kind.PRIVATE,
        unit=near.unit,
        neighbours=near,
        epsilon=query.epsilon if exact else float(query.epsilon),
        delta=query.delta or 0.0,
        accountant=Accountant.PURE if exact else Accountant.GAUSSIAN,
        n=units,
        public=query.public(unit, units),
        events=(query.event,),
        caveats=(
            "this is the price of this one score; what else was released of the same data adds up in their account",
            *(() if query.groups else (INTERVAL,)),
            "noise is exact on whole numbers; that a unit's score does not depend on other units rests on a model that "
            "computes each unit alone and gives the same numbers every time",
        ),
        release=_release(query, unit, metric),
    )


def _release(query: NoisedQuery, unit: str, metric: str) -> dict[str, str]:
    moved = exact_text(Fraction(query.l1, query.grid))
    return {
        "score": metric,
        "query": query.describe(unit),
        "sensitivity": f"{moved} in L1 norm, {query.relation.value}",
        **({} if query.groups else {"grid": f"1/{query.grid}"}),
        "noise": f"{query.event.type}, exact",
    }


def score_name(raw: bytes, file: str) -> str:
    """What a query names a score by: its file's SHA-256 and name, as sha256sum writes them."""
    return f"{hashlib.sha256(raw).hexdigest()}  {file}"


def query_of(content: Mapping[str, Any], score: str, where: str = "") -> Query:
    """The query that a noised score is.

    Args:
        content: Of its file.
        score: `score_name` of the file.
        where: The file, for messages.

    Raises:
        DposeError: its statement cannot be read, does not add up, or has the noise of another query than it says.
    """
    privacy = PrivacyStatement.from_json(json.dumps(content["privacy"]), where)
    privacy.verify()
    try:
        size = "" if content["units"] is None else f", {content['units']:,} units"
        metric, data = content["result"]["metric"], content["data"]
        requested = noised_query_of(content, privacy)
    except (KeyError, TypeError, ValueError) as error:
        raise DposeError("score-invalid", f"is no score ({error})", where, "do not rely on it") from error
    if requested is None:
        raise DposeError(
            "score-of-another-query", "says one query, and has the noise of another", where, "do not rely on it"
        )
    # noise from a seed bounds nothing: the score is then listed like one without noise
    spent = f"epsilon {upper(privacy.epsilon or 0)} at delta {as_given(privacy.delta or 0)}"
    cost = f"{spent} for each {privacy.unit} of those data" if privacy.kind is Kind.PRIVATE else ""
    return Query(str(metric), f"{data}{size}", cost=cost, score=score)


def noised_query_of(content: Mapping[str, Any], privacy: PrivacyStatement) -> NoisedQuery | None:
    """The query of which a score's statement is; None if what it says and the noise that it has are of no query.

    The relation, the price and the noise are read. How many joints of a unit may count follows from the sensitivity of
    the noise; what the query with that number says of itself must be what the statement says.
    """
    event, moves = next(iter(privacy.events), None), privacy.neighbours
    if not isinstance(event, Laplace | Gaussian) or moves is None or privacy.epsilon is None:
        return None
    delta = None if isinstance(event, Laplace) else privacy.delta
    price = NoisedQuery(Fraction(privacy.epsilon), delta, moves.relation)
    groups: dict[str, tuple[str, ...]] = {}
    for name in content["result"]["columns"] if "units_noised" in content["result"] else ():
        attribute, notes, group = name.partition(": ")
        if notes:  # everybody is in no group
            groups[attribute] = (*groups.get(attribute, ()), group)
    one = replace(price, joints=1, groups=tuple(groups.items()))
    most = _most_joints(one, event)
    for query in (price, replace(one, joints=most) if most else price):
        said = _release(query, privacy.unit, content["result"]["metric"])
        if privacy.release == said and privacy.n == content["units"] and query.is_noised_by(*privacy.events):
            return query
    return None


def _most_joints(one: NoisedQuery, event: Laplace | Gaussian) -> int:
    """How many joints of a unit count where a query of one joint a unit gets the noise of `event`."""
    if isinstance(event, Laplace):
        return int(event.sensitivity * (2 if one.groups else 1) / one.l1) - bool(one.groups)
    if one.groups:
        return math.isqrt(max(0, int(2 * event.sensitivity_squared / one.squared_l2) - 1))
    return math.isqrt(int(event.sensitivity_squared / one.squared_l2))


def check_scores(folder: Path, queries: Sequence[Query]) -> list[str]:
    """Refuse a noised score whose statement does not add up, or that is not the one that its query was recorded for.

    Args:
        folder: The run folder.
        queries: Those that its ledger records.

    Returns:
        What was found, ready to print; what could not be checked is among it.

    Raises:
        DposeError: a score was altered, or no line of the ledger is about it; names the file.
    """
    known = {query.score.partition("  ")[2]: query for query in queries if query.score}
    count = 0
    for path in sorted((folder / FOLDER).glob("*.json")):
        try:
            raw = file_bytes(path)
            content = json.loads(raw)
        except (OSError, ValueError) as error:
            raise DposeError("score-unreadable", "is no readable score", str(path), "remove it") from error
        recorded = known.pop(path.name, None)
        noised = isinstance(content, dict) and "privacy" in content
        if not noised and not recorded:
            continue
        query = query_of(content, score_name(raw, path.name), str(path)) if noised else None
        if query is None or (recorded and recorded.score != query.score):
            raise DposeError(
                "score-altered",
                "was altered: it is not the noised score that the ledger records",
                str(path),
                "do not rely on it",
            )
        if recorded != query:
            raise DposeError(
                "score-not-in-ledger",
                "is a noised score that no line of the ledger is about",
                str(path),
                "do not rely on it",
            )
        count += 1
    lines = [f"noised scores: {count}, each costs its data what it says"] if count else []
    return lines + [f"not here any more, and not checked: the noised score {FOLDER}/{name}" for name in sorted(known)]
