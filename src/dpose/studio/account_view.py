"""The account page: what private data have given, what is left of budgets, and one picture's history."""

from __future__ import annotations

from typing import Any

from dpose.account import words
from dpose.privacy.marks import marks_of
from dpose.privacy.rounding import as_given, lower, upper

HEAD = ("when", "what", "neighbours", "epsilon", "delta", "state")


def whole_account() -> dict[str, Any]:
    """All datasets that the account knows of.

    Raises:
        DposeError: the account cannot be read.
    """
    words.check_there()
    return {
        "datasets": [spending_json(one) for one in words.datasets()],
        "notes": [
            f"Figures are {words.PLANNED}. A budget is kept by a filter, whose count is larger and holds for what was "
            "chosen after seeing results, too.",
            *filter(None, [words.set_back_line()]),
        ],
    }


def picture_history(name: str, hashes: list[str]) -> dict[str, Any]:
    """History and budgets of one picture or clip.

    Args:
        name: For readers.
        hashes: Digests of the picture or clip, as computed by the worker.

    Raises:
        DposeError: the account cannot be read.
    """
    words.check_there()
    return spending_json(words.picture_of(name, marks_of(hashes)))


def spending_json(one: words.DataSpending) -> dict[str, Any]:
    """Spending on one dataset or picture, as JSON for the page."""
    lines = words.lines_of(one.entries)
    return {
        "name": one.name,
        "said": [text for answer in one.answers for text in words.answer_lines(answer)]
        if one.entries
        else [],
        "head": HEAD,
        "rows": [list(words.row_of(line)) for line in lines],
        "budgets": [_budget(state) for state in one.budgets],
        "notes": words.notes_of(lines),
    }


def _budget(state: Any) -> dict[str, Any]:
    limit, first = state.budget, words.budget_lines(state)
    left = 0.0 if state.closed else max(0.0, limit.epsilon - state.epsilon)
    return {
        "for": limit.neighbours.describe(),
        "epsilon": as_given(limit.epsilon),
        "spent": "no bound" if state.unbounded else upper(state.epsilon),
        "left": "0" if state.unbounded else lower(left),
        "used": 1.0 if state.unbounded else min(1.0, float(state.used)),
        "lines": first,
    }
