"""What was computed from private data besides training: a list that every statement has."""

from __future__ import annotations

from pydantic import StrictBool

from dpose.privacy.fields import StatementPart, Text, optional, statement_part


@statement_part
class Query(StatementPart):
    """One thing that was computed from private data besides the training itself.

    Attributes:
        what: What was computed ("mean PCKh@0.5").
        data: Of which data ("mpii:val, 2,958 images").
        purpose: What it was used for ("reported only").
        covered: Whether the statement's epsilon covers it; an evaluation on held-out private data is not
            covered.
        cost: What noise of its own makes it cost those data, in words; empty if nothing bounds it, or epsilon covers
            it.
        score: Of a noised score, SHA-256 and name of the file that holds it (`dpose.privacy.scores`).
    """

    what: Text
    data: Text
    purpose: Text = "reported only"
    covered: StrictBool = False
    cost: Text = optional(default="")
    score: Text = optional(default="")

    @property
    def coverage(self) -> str:
        """Whether epsilon covers the query; if not, its cost by noise of its own."""
        if self.covered:
            return "covered by epsilon"
        return f"not part of epsilon: it costs {self.cost}" if self.cost else "NOT covered by epsilon"
