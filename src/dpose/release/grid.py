"""Sizes of pictures and clips, their cells, how groups of frames are blended, and what a box takes of cells.

Arrays or tensors: told apart without loading torch, which takes seconds.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import TypeIs


def is_tensor(value: object) -> TypeIs[Tensor]:
    """Whether `value` is one of torch's tensors: where no one has loaded torch there are none.

    >>> is_tensor([1, 2])
    False
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


@dataclass(frozen=True)
class Shape:
    """The public sizes of a picture or a clip. A picture is a clip of one frame that is shown still.

    Attributes:
        frames: T.
        height: Pixels.
        width: Pixels.
        channels: C, values a pixel has.
        peak: The largest value, 255 or 65535; the smallest is 0.
        still: True if it is a picture.

    Raises:
        ValueError: a number is below 1, or a picture has several frames.
    """

    frames: int
    height: int
    width: int
    channels: int
    peak: int = 255
    still: bool = False

    def __post_init__(self) -> None:
        if min(self.frames, self.height, self.width, self.channels, self.peak) < 1:
            raise ValueError(f"sizes must be at least 1: {self}")
        if self.still and self.frames != 1:
            raise ValueError(f"a picture has one frame: {self}")

    @classmethod
    def of(cls, height: int, width: int, channels: int = 1, peak: int = 255, frames: int | None = None) -> Shape:
        """The shape of a clip, or of a picture where `frames` is None."""
        return cls(frames or 1, height, width, channels, peak, still=frames is None)

    @property
    def pixels(self) -> int:
        """Pixels of a frame."""
        return self.height * self.width

    @property
    def values(self) -> int:
        """d, values of a frame."""
        return self.pixels * self.channels


def even_edges(length: int, parts: int) -> NDArray[np.int64]:
    """Where `parts` pieces of a line begin and end whose lengths differ by at most one, (parts + 1,)."""
    return np.arange(parts + 1, dtype=np.int64) * length // parts


def largest_fill(sizes: Mapping[int, int], m: int) -> int:
    """The largest sum of squares of whole numbers that add up to at most `m`, each at most its cell's size.

    Args:
        sizes: How many cells there are of each size.
        m: Pixels.
    """
    left, squares = m, 0
    for size in sorted(sizes, reverse=True):
        taken = min(sizes[size], left // size)
        squares += taken * size * size
        left -= taken * size
        if left and taken < sizes[size]:
            return squares + left * left
    return squares


def count_lengths(length: int, parts: int) -> Counter[int]:
    """How many of `even_edges`' pieces have each length."""
    longer = length % parts
    return Counter(
        {length // parts + 1: longer, length // parts: parts - longer} if longer else {length // parts: parts}
    )


def products(one: Mapping[int, int], other: Mapping[int, int]) -> Counter[int]:
    """How many products of a size here and a size there are equal to each number."""
    found: Counter[int] = Counter()
    for a, count in one.items():
        for b, times in other.items():
            found[a * b] += count * times
    return found


def squares_of(sizes: Mapping[int, int]) -> int:
    """The sum of all sizes' squares."""
    return sum(size * size * count for size, count in sizes.items())


def inverse_squares(sizes: Mapping[int, int]) -> float:
    """The mean of 1 / size^2."""
    return sum(count / size**2 for size, count in sizes.items()) / sum(sizes.values())


def centre(group: int, frames: int, groups: int) -> float:
    """The middle of a group, in frames from the first."""
    return (edge(group, frames, groups) + edge(group + 1, frames, groups) - 1) / 2


def edge(group: int, frames: int, groups: int) -> int:
    """The first frame of a group."""
    return group * frames // groups


def blend_gain(frames: int, groups: int) -> float:
    """What blending neighbouring groups leaves of the noise's variance, on average over frames."""
    if groups == frames:
        return 1.0
    # one stretch is like another: long clips need not be walked through
    some = min(groups, 64)
    total, count = 0.0, 0
    length = max(some, frames * some // groups)
    for group in range(some):
        for frame in range(edge(group, length, some), edge(group + 1, length, some)):
            _, weight = blend(frame, group, length, some)
            total, count = total + weight**2 + (1 - weight) ** 2, count + 1
    return total / count


def blend(frame: int, group: int, frames: int, groups: int) -> tuple[int, float]:
    """How a frame is made of two groups: the earlier one, and the weight of the later one.

    Args:
        frame: Number of the frame, from 0.
        group: The group that it lies in.
        frames: T.
        groups: How many there are.
    """
    first = group if frame >= centre(group, frames, groups) else group - 1
    if first < 0:
        return 0, 0.0
    if first == groups - 1:
        return first, 0.0
    left, right = centre(first, frames, groups), centre(first + 1, frames, groups)
    return first, (frame - left) / (right - left)


def most_overlap(edges: NDArray[np.int64], length: int) -> int:
    """The largest sum of squares of what a stretch has in common with the pieces of a line, wherever it lies.

    Between two places where one of its ends meets an edge, moving it by s changes two of the overlaps, to a + s and b -
    s: the sum of squares is convex in s. So the most is found where an end meets an edge.

    Args:
        edges: Where pieces begin and end, rising from 0, (pieces + 1,).
        length: Length of the stretch; no more than all of the line counts.
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
