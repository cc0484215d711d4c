"""Cost of a planned release with all earlier ones of the same picture, from the account; nothing is reserved."""

from __future__ import annotations

from typing import Any

from dpose.release.counting import release_charge, release_history
from dpose.release.originals import Original
from dpose.studio.account_view import picture_history
from dpose.studio.opened import OpenedFile
from dpose.studio.preview import plan_for
from dpose.studio.settings import Wanted


def stands(opened: OpenedFile, wanted: Wanted) -> dict[str, Any]:
    """Cost of the release with all earlier ones of this picture, and what is left of the picture's budgets.

    Args:
        opened: A picture. A clip is compared when its job begins: all of it has to be decoded for that.
        wanted: The settings.

    Raises:
        DposeError: the account cannot be read.
    """
    if opened.clip:
        return {
            "before": 0,
            "words": "A clip is compared with the account when its release begins.",
            "budgets": [],
        }
    hashes, (height, width) = tuple(opened.facts["hashes"]), opened.size
    original = Original(opened.source.name, hashes, height * width, file=hashes[0])
    history = release_history(release_charge(original, plan_for(opened, wanted.config), "", seeded=False))
    spending = picture_history(opened.source.name, list(hashes))
    count = len(history.before)
    words = history.words() if count else "the account knows of no earlier release of this picture"
    return {"before": count, "words": words[:1].upper() + words[1:] + ".", "budgets": spending["budgets"]}
