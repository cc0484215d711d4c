"""The account page: what private data have given, what is left of budgets, and one picture's history.

Cost of a planned release with all earlier ones of the same picture, from the account; nothing is reserved.
"""

from __future__ import annotations

from typing import Any

from dpose.account import words
from dpose.privacy.marks import marks_of
from dpose.privacy.ranges import as_given, lower, upper
from dpose.release.counting import release_charge, release_history
from dpose.release.originals import Original
from dpose.studio.opened import OpenedFile
from dpose.studio.preview import plan_for
from dpose.studio.settings import Wanted

HEAD = ("when", "what", "neighbours", "epsilon", "delta", "state")


def whole_account() -> dict[str, Any]:
    """All datasets that the account knows of."""
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
    """
    words.check_there()
    return spending_json(words.picture_of(name, marks_of(hashes)))


def spending_json(one: words.DataSpending) -> dict[str, Any]:
    """Spending on one dataset or picture, as JSON for the page."""
    lines = words.lines_of(one.entries)
    return {
        "name": one.name,
        "said": [text for answer in one.answers for text in words.answer_lines(answer)] if one.entries else [],
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


def stands(opened: OpenedFile, wanted: Wanted) -> dict[str, Any]:
    """Cost of the release with all earlier ones of this picture, and what is left of the picture's budgets.

    Args:
        opened: A picture. A clip is compared when its job begins: all of it has to be decoded for that.
        wanted: The settings.
    """
    if opened.clip:
        return {"before": 0, "words": "A clip is compared with the account when its release begins.", "budgets": []}
    hashes, (height, width) = tuple(opened.facts["hashes"]), opened.size
    original = Original(opened.source.name, hashes, height * width, file=hashes[0])
    history = release_history(release_charge(original, plan_for(opened, wanted.config), "", seeded=False))
    spending = picture_history(opened.source.name, list(hashes))
    count = len(history.before)
    words = history.words() if count else "the account knows of no earlier release of this picture"
    return {"before": count, "words": words[:1].upper() + words[1:] + ".", "budgets": spending["budgets"]}
