"""What was computed from private data besides training: a list that every statement has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpose.errors import DposeError
from dpose.privacy.json_fields import object_with, text_of


@dataclass(frozen=True)
class Query:
    """One thing that was computed from private data besides the training itself.

    Attributes:
        what: What was computed ("mean PCKh@0.5").
        data: Of which data ("mpii:val, 2,958 images").
        purpose: What it was used for ("reported only").
        covered: Whether the statement's epsilon covers it; an evaluation on held-out private data is not
            covered.
        cost: What noise of its own makes it cost those data, in words; empty where nothing bounds it, or epsilon covers
            it.
        score: Of a noised score, SHA-256 and name of the file that holds it (`dpose.privacy.scores`).
    """

    what: str
    data: str
    purpose: str = "reported only"
    covered: bool = False
    cost: str = ""
    score: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        told = {"what": self.what, "data": self.data, "purpose": self.purpose, "covered": self.covered}
        return told | {name: value for name in ("cost", "score") if (value := getattr(self, name))}

    @classmethod
    def from_dict(cls, values: Any, where: str = "query") -> Query:
        """The query that `to_dict` wrote.

        Raises:
            DposeError: a field is missing, unknown or of the wrong type.
        """
        known = {"what", "data", "purpose", "covered", "cost", "score"}
        values = object_with(
            {"cost": "", "score": ""} | values if isinstance(values, dict) else values, known, where
        )
        if not isinstance(values["covered"], bool):
            raise DposeError("covered-not-boolean", "must be true or false", f"{where}.covered")
        what, data, purpose, cost, score = (
            text_of(values[name], f"{where}.{name}") for name in ("what", "data", "purpose", "cost", "score")
        )
        return cls(what, data, purpose, values["covered"], cost, score)
