"""A privacy statement in plain English, as parts: warnings, the guarantee, titled lists.

    words = statement.words()
    words.guarantee                       # one paragraph; empty if nothing is claimed
    print(words.text())                   # all of it, every item of every list

The sentences are in `statement.j2`; the numbers that they name come from `PrivacyStatement.words`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from dpose.privacy.ranges import as_given, upper
from dpose.privacy.sections import UNSTATED

WARNING = "WARNING: "
"""The beginning of a text that stands before the guarantee that it restricts."""
DETAILS_ONLY = "so this hides details of a few pixels, not that a person is there, nor what they broadly look like"
"""A caveat of releases for so few pixels that a face covers many times as many."""


@dataclass(frozen=True)
class StatementWords:
    """What a statement says.

    Attributes:
        warnings: To be read before the guarantee: that there is none, and what restricts it.
        guarantee: One paragraph; empty if nothing is claimed.
        brief: The guarantee in one sentence, what it does not hide, what it takes as given: a line each.
        lists: Titles with their items; none is empty.
        no_guarantee: Why nothing is guaranteed; empty if something is.
        difference: In what neighbours may differ; empty if nothing is claimed.
        method: How epsilon was computed; empty if nothing is claimed.
        limit: Whom a guarantee holds against: noise from a cipher bounds those who cannot break it.
        several: What several units of one person cost together, or several times a release's pixels.
        curve: What no attacker can do, by the whole trade-off curve.
    """

    warnings: tuple[str, ...]
    guarantee: str
    brief: tuple[str, ...]
    lists: tuple[tuple[str, tuple[str, ...]], ...]
    no_guarantee: str
    difference: str
    method: str
    limit: str
    several: tuple[str, ...]
    curve: tuple[str, ...]

    def text(self) -> str:
        """All of it: warnings, the guarantee, and the lists with every item."""
        blocks = [*self.warnings, self.guarantee]
        blocks += ["\n".join([f"{title}:", *(f"* {item}" for item in items)]) for title, items in self.lists]
        return "\n\n".join(block for block in blocks if block)

    def printed(self) -> str:
        """What is printed once the artefact is written: warnings, one sentence, and what is not hidden."""
        return "\n".join((*self.warnings, *self.brief))


def worded(numbers: Mapping[str, Any], texts: Sequence[str]) -> StatementWords:
    """The words that `statement.j2` makes of a statement.

    Args:
        numbers: Variables of the template.
        texts: Caveats and conditions of the statement, warnings among them.
    """
    said: Any = _template().make_module(dict(numbers))
    warnings = [text for text in texts if text.startswith(WARNING)]
    return StatementWords(
        warnings=tuple([said.no_guarantee, *warnings] if said.no_guarantee else warnings),
        guarantee=said.guarantee,
        brief=tuple(said.brief),
        lists=tuple((title, tuple(items)) for title, items in said.lists if items),
        no_guarantee=said.no_guarantee.partition(": ")[2],
        difference=said.difference,
        method=said.method,
        limit=said.limit,
        several=tuple(said.several),
        curve=tuple(said.curve),
    )


def record_lines(release: Mapping[str, Any]) -> list[str]:
    """A release's record, a line a setting; without what the guarantee says itself, and what is not set.

    >>> record_lines({"config": {"epsilon": "2", "block": 12, "regions": None, "chosen": ["block"]}})
    ['block: 12', 'chosen: block']
    """
    lines: dict[str, None] = {}  # in order, each once
    for name, value in release.items():
        if isinstance(value, Mapping):
            before = "" if name in ("config", "shape") else f"{name} "
            lines |= dict.fromkeys(f"{before}{line}" for line in record_lines(value))
        elif name not in ("epsilon", "delta") and value not in (None, [], ""):
            notes = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
            lines[f"{name}: {notes}"] = None
    return [line for line in lines if not line.startswith("neighbours ")]


def without_warnings(texts: Sequence[str]) -> list[str]:
    """The texts that are no warnings."""
    return [text for text in texts if not text.startswith(WARNING)]


@cache
def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(  # noqa: S701: plain text; anyone who shows it on a page escapes it
        loader=PackageLoader("dpose.privacy", "."), undefined=StrictUndefined
    )
    environment.filters |= {"upper": upper, "as_given": as_given, "line": lambda text: " ".join(text.split())}
    environment.globals |= {"record_lines": record_lines, "unstated": UNSTATED}
    return environment.get_template("statement.j2")
