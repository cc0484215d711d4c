"""Which units a step sees: Poisson batches for private training, shuffled ones for the rest."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpose.privacy.noise import AesNoise, Key, Purpose, Stream

WORDS_AT_ONCE = 1 << 20


def poisson_batch(n: int, rate: float, stream: Stream | None = None) -> NDArray[np.int64]:
    """Draw every unit independently with probability `rate`.

    **Guarantee.** Unit: one of the `n` indices. Neighbours: one unit differs; the sample of the others has the same law
    for both. Each is drawn with probability floor(rate * 2^64) / 2^64, never more than the `rate` that the accountant
    counts and less by under 6e-20, whatever others do. The batch may be empty, is never cut and never drawn again.
    Public: n (a nominal number under add-or-remove) and the rate; the sample and its size are private.

    Args:
        n: Number of units, a whole number.
        rate: Sampling rate q, in (0, 1].
        stream: A stream for this step's batch alone; None for one under a fresh key of the operating system.

    Returns:
        Indices in ascending order, int64, (size,). Empty if no unit was drawn.

    Raises:
        ValueError: n is below 0 or no whole number, or the rate is not in (0, 1].
    """
    try:
        units, share = operator.index(n), rate if isinstance(rate, Fraction) else Fraction(float(rate))
    except (TypeError, ValueError, OverflowError):
        units, share = -1, Fraction(0)
    if units < 0 or not 0 < share <= 1:
        raise ValueError(f"cannot sample from {n} units with rate {rate}")
    stream = stream or AesNoise(Key.fresh()).stream(Purpose.PRIVATE_SAMPLER)
    threshold = int(share * 2**64)
    if threshold == 2**64:
        return np.arange(units, dtype=np.int64)
    drawn = []
    for start in range(0, units, WORDS_AT_ONCE):
        words = stream.uint64(min(WORDS_AT_ONCE, units - start))
        drawn.append(np.flatnonzero(words < np.uint64(threshold)).astype(np.int64) + start)
    return np.concatenate(drawn) if drawn else np.empty(0, np.int64)


def shuffled_batches(n: int, batch_size: int, stream: Stream) -> Iterator[NDArray[np.int64]]:
    """One epoch of batches in random order, the last one as small as it comes.

    For data that need no protection. A shuffled batch has a fixed size and excludes units that others
    took, so it is no Poisson sample; accounting for it as one understates epsilon.

    Args:
        n: Number of units.
        batch_size: Units in a batch, >= 1.
        stream: Gives the order.

    Yields:
        Indices, int64, (at most `batch_size`,).

    Raises:
        ValueError: n < 0 or batch_size < 1.
    """
    if n < 0 or batch_size < 1:
        raise ValueError(f"cannot make batches of {batch_size} from {n} units")
    order = stream.generator().permutation(n)
    for start in range(0, n, batch_size):
        yield order[start : start + batch_size]
