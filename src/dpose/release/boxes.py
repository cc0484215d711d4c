"""The most that a box takes of a line's pieces, wherever it lies: what an operator's bound for a box rests on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def most_overlap(edges: NDArray[np.int64], length: int) -> int:
    """The largest sum of squares of what a stretch has in common with the pieces of a line, wherever it lies.

    Between two places where one of its ends meets an edge, moving it by s changes two of the overlaps, to a + s and b -
    s: the sum of squares is convex in s. So the most is found where an end meets an edge.

    Args:
        edges: Where pieces begin and end, rising from 0, (pieces + 1,).
        length: Of the stretch; no more than all of the line counts.
    """
    length = min(length, int(edges[-1]))
    starts = np.clip(np.concatenate([edges, edges - length]), 0, edges[-1] - length)
    ends = starts + length
    # the pieces that hold what lies just before either end; at an edge, the one that ends there
    first, last = np.searchsorted(edges, starts) - 1, np.searchsorted(edges, ends) - 1
    whole = np.concatenate([[0], np.cumsum(np.diff(edges) ** 2)])
    apart = (edges[first + 1] - starts) ** 2 + (ends - edges[last]) ** 2 + whole[last] - whole[first + 1]
    return int(np.where(first == last, length**2, apart).max())


def most_weight(weights: NDArray[np.float64], length: int) -> float:
    """The largest sum of so many neighbouring weights, none of them negative."""
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    length = min(length, len(weights))
    return float((sums[length:] - sums[:-length]).max())
