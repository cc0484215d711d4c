"""The options of a score with noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from dpose.cli.options import option, unset
from dpose.errors import DposeError

if TYPE_CHECKING:
    from dpose.privacy.noised_query import NoisedQuery

PANEL = "Scores of private data with noise"


@dataclass(frozen=True)
class NoisedScore:
    """What a noised score may cost; without `epsilon` there is no noise, and nothing else may be given."""

    epsilon: Annotated[
        str | None,
        option("Adds noise: the price for each unit, such as 0.1 or 1/3."),
    ] = unset("no noise, not covered")
    delta: Annotated[float | None, option("Above 0: Gaussian noise. Default: Laplace noise.")] = None
    relation: Annotated[
        str | None,
        option("zero-out, add-or-remove or replace."),
    ] = unset("zero-out")
    pooled: Annotated[bool, option("All joints of all units together, found and missed noised apart.")] = (
        False
    )
    joints_per_unit: Annotated[
        int | None, option("With --pooled: at most so many joints of a unit count.", min=1)
    ] = None

    def asked(self) -> NoisedQuery | None:
        """What is asked; None for a score without noise.

        Raises:
            DposeError: options do not go together, or a value is out of range.
        """
        if self.epsilon is None:
            if self != NoisedScore():
                raise DposeError(
                    "epsilon-missing",
                    "a score with noise needs a price",
                    fix="give --epsilon, as in --epsilon 0.1",
                )
            return None
        if self.pooled != (self.joints_per_unit is not None):
            raise DposeError(
                "pooled-without-joints",
                "go together: the cap is what bounds a unit's part",
                "--pooled and --joints-per-unit",
                "give both, as in --pooled --joints-per-unit 14",
            )
        from dpose.privacy.neighbours import Relation

        relations = [relation.value for relation in Relation]
        if self.relation is not None and self.relation not in relations:
            raise DposeError(
                "relation-unknown",
                "there is no such relation",
                f"--relation {self.relation}",
                f"choose one of {', '.join(relations)}",
            )
        from dpose.privacy.noised_query import NoisedQuery
        from dpose.privacy.ranges import parse_exact

        return NoisedQuery(
            parse_exact(self.epsilon, "--epsilon"),
            self.delta,
            Relation(self.relation or Relation.ZERO_OUT),
            self.joints_per_unit,
        )
