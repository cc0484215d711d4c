"""How far a day's counts move between neighbours: chunks that stays touch, and what those change.

    touched = touched_chunks(times=4, visible=30, lead=0, chunk=5)     # 28 chunks that 4 stays of 30 s touch at most
    moved = Moved.of_sums(most=10)                                     # what one chunk changes of one query
    moved.in_l1(touched), moved.in_l2_squared(touched, window=720)

A chunk is a public interval of the clock and one source. Its row is a function of the frames that it sees, and of
nothing else; so neighbours differ in the rows of chunks that see a frame of a stay, and there by anything within the
declared range, whatever the detector does.

**Guarantee.** docs/proofs/counts.md: neighbours, touched chunks and both norms by theorem;
tests/measure/test_sensitivity.py by brute force over all stays of small films.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

DAY = Fraction(86_400)
"""Seconds of a calendar day."""


def touched_chunks(times: int, visible: Fraction, lead: Fraction, chunk: Fraction) -> int:
    """The most chunks of a day that see a frame of any `times` stays of at most `visible` seconds each.

    times * (ceil((visible + lead) / chunk) + 1).

    >>> touched_chunks(4, Fraction(30), Fraction(0), Fraction(5))
    28

    Args:
        times: K, how many stays.
        visible: The longest of them, seconds.
        lead: What a chunk sees before it begins, seconds.
        chunk: Seconds from one chunk to the next.
    """
    return times * (math.ceil((visible + lead) / chunk) + 1)


def fullest(size: int, count: int) -> int:
    """The largest sum of squares of whole numbers, each at most `size`, that add up to `count`: the fullest windows."""
    full, rest = divmod(count, size)
    return full * size**2 + rest**2


@dataclass(frozen=True)
class Moved:
    """What one chunk, replaced by any other, changes of one query.

    Attributes:
        l1: In L1 norm, over the numbers of a window.
        l2_squared: In squared L2 norm.
    """

    l1: int
    l2_squared: int

    @classmethod
    def of_sums(cls, most: int) -> Moved:
        """One whole number from 0 to `most`."""
        return cls(most, most**2)

    @classmethod
    def of_histogram(cls, rows: int) -> Moved:
        """At most `rows` people, each in one bin: the old ones leave their bins, the new ones enter others.

        Old and new together change a bin by at most `rows`, and all bins by at most 2 `rows` in L1 norm; the sum of
        squares is largest with all in one bin before, and all in another after.
        """
        return cls(2 * rows, 2 * rows**2)

    def in_l1(self, touched: int, levels: int = 1) -> int:
        """How far all windows of a day move, in L1 norm: wherever the touched chunks lie.

        Args:
            touched: How many chunks may be replaced.
            levels: Of a binary tree, each of which holds every chunk once; 1 without one.
        """
        return levels * touched * self.l1

    def in_l2_squared(self, touched: int, window: int, levels: int = 1) -> int:
        """The same in squared L2 norm: the fullest windows first, since changes in one window add up.

        Args:
            touched: How many chunks may be replaced.
            window: How many chunks a window holds, over all sources.
            levels: As for `in_l1`; a node of level l holds 2^l windows.
        """
        return self.l2_squared * sum(fullest(window << level, touched) for level in range(levels))
