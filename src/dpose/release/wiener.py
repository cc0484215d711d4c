"""Complex regions shown as well as their noise allows: fine detail where it stands out of the noise, blocks where not.

A part of a block is small, so its noisy average is often nothing but noise, and showing it as it came makes the picture
worse than an undivided block. What is known afterwards is better than that: the noise's variance is public, so the
released values themselves tell how much the parts really differ. Everything here is a function of released sums and
public numbers: post-processing, at no cost (docs/proofs/pixelization.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.release.partition import RegionSums

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Noisy:
    """Released sums.

    Attributes:
        sums: Of values up to the peak, (cells, C).
        variance: Of the noise on each of them, > 0.
    """

    sums: NDArray[Any]
    variance: float


def shrunk(cells: RegionSums, parts: Noisy, blocks: Noisy | None = None, *, shrink: bool = True) -> Floats:
    """Gray levels of the parts of complex blocks, from released sums.

    A block's level is the average of its parts' sums and, where stage one released it too, of its own sum, weighted by
    the inverse of their variances. A part's difference from its block is multiplied by tau^2 / (tau^2 + its noise's
    variance): the best linear guess where differences have variance tau^2. tau^2 is estimated from the parts of all
    blocks, a channel at a time: what their differences vary more than the noise does, but at most the square of a
    quarter of the range, which no picture of any detail exceeds by much.

    Args:
        cells: The partition.
        parts: Sums of the parts of the complex blocks, in the order of `RegionSums.apply`.
        blocks: Stage one's sums of the complex blocks, in order; None where the mask is public and there is one stage.
        shrink: False leaves the differences as they are, for a restoration that knows their noise.

    Returns:
        (parts, C), not clipped.
    """
    owner, areas = _owners(cells), cells.areas[cells.simple :].astype(np.float64)
    if not owner.size:
        return np.empty(parts.sums.shape)
    count = np.bincount(owner)[:, None]
    whole = np.bincount(owner, areas)[:, None]
    total = np.stack([np.bincount(owner, column) for column in parts.sums.T.astype(np.float64)], axis=1)
    apart = total / whole
    level = apart
    if blocks is not None:
        trust = count * parts.variance / (count * parts.variance + blocks.variance)
        level = trust * blocks.sums / whole + (1 - trust) * apart
    difference = parts.sums / areas[:, None] - apart[owner]
    if not shrink:
        return np.asarray(level[owner] + difference)
    noise = parts.variance / areas[:, None] ** 2
    # a part's own noise is in its block's average too, by its share of the area
    seen = noise * (1 - 1 / count[owner])
    most = areas == areas.max()
    excess = (difference[most] ** 2 - seen[most]).mean(axis=0)
    spread = np.clip(excess, 0, (cells.peak / 4) ** 2)
    found: Floats = level[owner] + spread / (spread + noise) * difference
    return found


def _owners(cells: RegionSums) -> NDArray[np.int64]:
    """Which complex block each part lies in, counted in order."""
    n = cells.subdivide
    number: NDArray[Any] = np.full(cells.mask.shape, -1, np.int64)
    number[cells.mask] = np.arange(int(cells.mask.sum()))
    spread = number.repeat(n, 0).repeat(n, 1)[: cells.fine.rows, : cells.fine.columns].reshape(-1)
    return spread[spread >= 0]
