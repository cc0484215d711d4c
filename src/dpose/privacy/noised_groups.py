"""Found and missed joints of each group of people, and how many people are in it, with exact integer noise.

    query = GroupQuery(Relation.ZERO_OUT, joints=14, attributes=2, groups=4)
    sums = noised_sums(query, (members, counts), laplace_event(query, Fraction(1)), AesNoise(Key.fresh()))
    ratios_of(query, sums)                                 # of each group: share found, number of people

**Guarantee.** Groups and attributes are fixed and public; who is in which group is private. A unit is in at most one
group of each of A attributes. To each of these it adds how many of its joints were found and missed, at most J
together, and 1. Blanking it out, adding it or leaving it out moves the sums by at most A (J + 1) in L1 norm and
A (J^2 + 1) in squared L2 norm. Exchanging it for another moves both what the one added and what the other adds, which
may be in other groups: twice as much of both. docs/proofs/scores.md has the proof.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.privacy.neighbours import Relation

PARTS = 3
"""Sums of a group: joints found, joints missed, units."""


@dataclass(frozen=True)
class GroupQuery:
    """What is asked of private units about groups of them.

    Attributes:
        relation: The neighbouring relation.
        joints: J, the most joints of a unit that count, found and missed together.
        attributes: A, in how many groups a unit may be.
        groups: How many groups there are.

    Raises:
        DposeError: one of the numbers is below 1.
    """

    relation: Relation
    joints: int
    attributes: int
    groups: int

    def __post_init__(self) -> None:
        if min(self.joints, self.attributes, self.groups) < 1:
            raise DposeError(
                "groups-incomplete", "groups of people need joints, attributes and groups", "--groups"
            )

    @property
    def replaced(self) -> GroupQuery:
        """The same for whoever is replaced by another."""
        return replace(self, relation=Relation.REPLACE)

    @property
    def l1(self) -> int:
        """The most that the sums change between neighbours, in L1 norm."""
        return self._times * self.attributes * (self.joints + 1)

    @property
    def squared_l2(self) -> int:
        """As `l1`, in squared L2 norm."""
        return self._times * self.attributes * (self.joints**2 + 1)

    @property
    def _times(self) -> int:
        return 2 if self.relation is Relation.REPLACE else 1

    def sums(self, values: Any) -> tuple[int, ...]:
        """Of each group joints found, joints missed and units, one group after the other, without noise: private.

        Args:
            values: Two arrays: (n, A) the group that each unit is in by each attribute, -1 for none, those of one
                attribute being no other's; and (n, 2) whole numbers, joints found and missed.

        Raises:
            ValueError: a unit counts more than J joints or is twice in one group, or a group is unknown.
        """
        members, counts = np.asarray(values[0], np.int64), np.asarray(values[1], np.int64).reshape(-1, 2)
        members = members.reshape(len(counts), -1)
        if (counts < 0).any() or (counts.sum(axis=1) > self.joints).any():
            raise ValueError(f"a unit counts 0 to {self.joints} joints, found and missed together")
        if members.shape[1] > self.attributes or (members < -1).any() or (members >= self.groups).any():
            raise ValueError(f"a unit is in at most {self.attributes} of {self.groups} groups")
        totals = np.zeros((self.groups, PARTS), np.int64)
        ones = np.column_stack([counts, np.ones(len(counts), np.int64)])
        for column in members.T:
            there = column >= 0
            np.add.at(totals, column[there], ones[there])
        return tuple(int(total) for total in totals.ravel())


def ratios_of(query: GroupQuery, sums: tuple[int, ...]) -> NDArray[np.float64]:
    """Of each group the share of joints found and the number of units, (groups, 2): post-processing of noised sums.

    The share is nan where the noise left nothing to divide by.
    """
    found, missed, units = np.maximum(np.asarray(sums, np.float64).reshape(query.groups, PARTS), 0).T
    below = found + missed
    share = np.divide(found, below, out=np.full(query.groups, np.nan), where=below > 0)
    return np.column_stack([share, units])
