"""The one loop that exact noise spends its time in: coins tossed into the bits of whole numbers. Integers only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpose.jit import kernel, without_numba


def compare_bits(
    words: NDArray[np.uint16], digits: NDArray[np.uint16]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Whole numbers whose bit i tells whether the word of row i is below that row's digits.

    Args:
        words: (rows, N), rows at most 62.
        digits: (rows,).

    Returns:
        The numbers, (N,), and which rows have a word that equals its digits, (rows,): their bits are 0 and undecided.
    """
    if without_numba(words.size):
        limits = digits[:, None]
        places = np.arange(words.shape[0], dtype=np.int64)[:, None]
        below = (words < limits).astype(np.int64) << places
        return np.bitwise_or.reduce(below, axis=0), (words == limits).any(axis=1)
    values = np.empty(words.shape[1], np.int64)
    tied = np.empty(words.shape[0], np.bool_)
    _compare(words, digits, values, tied)
    return values, tied


@kernel
def _compare(
    words: NDArray[np.uint16],
    digits: NDArray[np.uint16],
    values: NDArray[np.int64],
    tied: NDArray[np.bool_],
) -> None:
    values[:] = 0
    for row in range(words.shape[0]):
        line, limit, equal = words[row], digits[row], False
        for i in range(values.size):
            values[i] |= np.int64(line[i] < limit) << row
            equal |= line[i] == limit
        tied[row] = equal
