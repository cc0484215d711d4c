"""Noised scores in a run folder, each bound to the query that the run's ledger records of it.

    query = query_of(content, score_name(raw, "lspet-2000-noised-1a2b3c4d.json"))      # what ledger and statement list
    check_scores(folder, statement.queries)                                            # what `verify` says of all

A query names the SHA-256 of the file's bytes and the file. What a query says (metric, data, price) follows from what
the file holds, so that neither can be changed without the other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.files import file_bytes
from dpose.privacy.queries import Query
from dpose.privacy.rounding import as_given, upper
from dpose.privacy.statement import Kind, PrivacyStatement

FOLDER = "evaluations"


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
        DposeError: its statement cannot be read, or does not add up.
    """
    privacy = PrivacyStatement.from_json(json.dumps(content["privacy"]), where)
    privacy.verify()
    try:
        size = "" if content["units"] is None else f", {content['units']:,} units"
        metric, data = content["result"]["metric"], content["data"]
    except (KeyError, TypeError, ValueError) as error:
        raise DposeError("score-invalid", f"is no score ({error})", where, "do not rely on it") from error
    # noise from a seed bounds nothing: the score is then listed like one without noise
    spent = f"epsilon {upper(privacy.epsilon or 0)} at delta {as_given(privacy.delta or 0)}"
    cost = f"{spent} for each {privacy.unit} of those data" if privacy.kind is Kind.PRIVATE else ""
    return Query(str(metric), f"{data}{size}", cost=cost, score=score)


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
    return lines + [
        f"not here any more, and not checked: the noised score {FOLDER}/{name}" for name in sorted(known)
    ]
