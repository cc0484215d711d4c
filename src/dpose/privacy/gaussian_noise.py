"""Gaussian noise on tensors: exactly rounded on sums of whole numbers, in floating point on others.

noisy = add_gaussian(sums, stddev, noise.stream(Purpose.NOISE, step), grid_step=2.0**-23)

Gaussian noise rounded to whole numbers, exactly: round(scale Z) with Z standard normal, from a cryptographic stream.

    noise = rounded_gaussian(1.4 * 2**24, 101_000, stream)        # int64

Added to a whole number it is the Gaussian mechanism's result, rounded: post-processing. So accounting for continuous
Gaussian noise holds as it is, and on a computer, not only for real numbers (docs/proofs/exact-noise.md).

How: the half-line is cut into strips of width 1/32. A strip is chosen, with weights that are the density at its left
end; a point in it, uniformly; and the point is kept with what is left of the density (von Neumann 1951; by comparing
digits as far as is needed: Karney 2016, "Sampling exactly from the normal distribution"). Uniform numbers are digits
that never end, of which 128 bits are drawn first. Where they do not decide, for some draws in a million, the next are
drawn (`_slowly`, whole numbers only). The loop's floating-point numbers come with bounds on their error, and decide
only where they must be right: nothing depends on how one of them was rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpose.jit import kernel
from dpose.privacy.discrete import Integers, draw_until, exp_bounds
from dpose.privacy.noise import Stream

if TYPE_CHECKING:
    from torch import Tensor

Words = NDArray[np.uint64]

MOST = 2.0**40
"""Larger scales are refused: what is rounded must be known to a fraction of one in 53 bits."""
STRIPS = 32
"""In a unit."""
X_BITS, V_BITS = 44, 19
"""Of a word, drawn first: the place in a strip, and what is compared with the density; one bit is the sign."""
_CHOICE = 64
_GUIDE = 12
_MORE = 64


def rounded_gaussian(scale: float, count: int, stream: Stream) -> Integers:
    """Independent integers round(scale Z), Z standard normal, each with exactly its probability.

    The time it takes tells how many draws were rejected or needed more digits, which is independent of what the
    accepted ones are but for some in a million.

    Args:
        scale: > 0, at most `MOST`.
        count: How many, >= 0.
        stream: A stream that nothing else draws from.

    Returns:
        int64, (count,).

    Raises:
        ValueError: the scale is out of range.
    """
    if not 0 < scale <= MOST:
        raise ValueError(f"a scale must lie between 0 and 2^40, not {scale}")
    return draw_until(
        count, lambda left: left * 65 // 64 + 8, lambda wanted: _draws(scale, stream.uint64((wanted, 2)), stream)
    )


def _draws(scale: float, words: Words, stream: Stream) -> Integers:
    """What is kept of the draws that begin with `words`, (N, 2), in their order."""
    bounds, guide = _table()
    values, unsure = np.empty(len(words), np.int64), np.empty(len(words), np.int64)
    kept, open_ones = _fast(words, bounds, guide, scale, values, unsure)
    values = values[:kept]
    if open_ones == 0:
        return values
    places = np.flatnonzero(values == _OPEN)
    rejected = []
    for place, draw in zip(places, unsure[:open_ones], strict=True):
        value = _slowly(Fraction(scale), *_parts(words[draw]), stream)
        if value is None:
            rejected.append(place)
        else:
            values[place] = value
    return np.delete(values, rejected)


_OPEN = np.iinfo(np.int64).min
_WIDTH = 1.0 / STRIPS
_X_UNIT = _WIDTH * 2.0**-X_BITS
_V_UNIT = 2.0**-V_BITS
_ERROR = 2.0**-36
"""Error of the series for e^-t with nine terms, t < 0.31: 2e-12 is cut off, 1e-15 rounded, 2^-44 is t's own."""


@kernel
def _fast(
    words: Words, bounds: Words, guide: NDArray[np.int16], scale: float, values: Integers, unsure: Integers
) -> tuple[int, int]:
    """Values of the draws that are kept, and those that 128 bits do not decide: `_OPEN` among the values.

    Returns:
        How many values there are, and how many of them are open; their indices are in `unsure`.
    """
    kept = open_ones = 0
    for i in range(words.shape[0]):
        choice, word = words[i, 0], words[i, 1]
        strip = np.int64(guide[choice >> np.uint64(_CHOICE - _GUIDE)])
        while choice > bounds[strip + 1]:  # none is beyond the last, the largest word
            strip += 1
        # the unit in which a boundary lies belongs to two strips; the last one to all from there on
        decided = choice != bounds[strip + 1]
        if decided:
            x = np.float64(word & np.uint64((1 << X_BITS) - 1)) * _X_UNIT
            v = np.float64(word >> np.uint64(64 - V_BITS)) * _V_UNIT
            left = np.float64(strip) * _WIDTH
            y = left + x  # exact: 53 bits hold it
            t = x * (left + 0.5 * x)
            if v + _V_UNIT > 1.0 - t - _ERROR:  # 1 - t is below e^-t: most are kept without the series
                p = 1.0
                for n in range(9, 0, -1):
                    p = 1.0 - t * p / n
                if v >= p + _ERROR:
                    continue
                decided = v + _V_UNIT <= p - _ERROR
            if decided:
                z = scale * y
                error = z * 2.0**-50 + scale * 2.0**-47
                low, high = math.floor(z - error + 0.5), math.floor(z + error + 0.5)
                if low == high:
                    negative = (word >> np.uint64(X_BITS)) & np.uint64(1)
                    values[kept] = -np.int64(low) if negative else np.int64(low)
                    kept += 1
                    continue
        values[kept] = _OPEN
        unsure[open_ones] = i
        kept += 1
        open_ones += 1
    return kept, open_ones


def _parts(words: Words) -> tuple[int, int, int, bool]:
    """The choice, the place in the strip, what is compared, and the sign, of one draw's two words."""
    choice, word = (int(w) for w in words)
    return choice, word & ((1 << X_BITS) - 1), word >> (64 - V_BITS), bool(word >> X_BITS & 1)


def _slowly(scale: Fraction, choice: int, x: int, v: int, negative: bool, stream: Stream) -> int | None:
    """The draw that begins with these digits, with as many more as it takes; None if it is rejected."""

    def more(digits: int) -> int:
        return digits << _MORE | int.from_bytes(stream.bytes(_MORE // 8), "little")

    bits = _CHOICE
    while (strip := _strip(choice, bits)) is None:
        choice, bits = more(choice), bits + _MORE
    left, x_bits, v_bits = Fraction(strip, STRIPS), X_BITS, V_BITS

    def place(digits: int) -> Fraction:
        return Fraction(digits, STRIPS << x_bits)

    while True:
        width = v_bits + 8
        least = exp_bounds(place(x + 1) * (left + place(x + 1) / 2), width)[0]
        largest = exp_bounds(place(x) * (left + place(x) / 2), width)[1]
        if (v + 1) << 8 <= least:
            break
        if v << 8 >= largest:
            return None
        x, x_bits = more(x), x_bits + _MORE
        v, v_bits = more(v), v_bits + _MORE
    half = Fraction(1, 2)
    while (value := math.floor(scale * (left + place(x)) + half)) != math.floor(scale * (left + place(x + 1)) + half):
        x, x_bits = more(x), x_bits + _MORE
    return -value if negative else value


def _strip(choice: int, bits: int) -> int | None:
    """The strip in whose share of [0, 1) all of [choice, choice + 1) / 2^bits lies; None if there is none."""
    bounds = _bounds(bits)
    strip = int(np.searchsorted(np.array(bounds, object), choice, side="right")) - 1
    if strip + 1 == len(bounds) or (strip > 0 and bounds[strip] == choice):
        return None
    return strip


@lru_cache(maxsize=1)
def _table() -> tuple[Words, NDArray[np.int16]]:
    """`_bounds` of the digits drawn first, and for each of their first `_GUIDE` bits the strip to begin with."""
    bounds = np.array(_bounds(_CHOICE), np.uint64)
    starts = np.arange(1 << _GUIDE, dtype=np.uint64) << np.uint64(_CHOICE - _GUIDE)
    guide = np.searchsorted(bounds, starts, side="left") - 1
    return bounds, guide.clip(0).astype(np.int16)


@lru_cache(maxsize=8)
def _bounds(bits: int) -> tuple[int, ...]:
    """floor(2^bits c_j) for j = 0, 1, ..., c_j the share of the strips before j, as far as they differ from the last.

    The weight of strip j is e^-(j/32)^2/2. Beyond the first J of them their sum is less than 2^-(bits + spare) by the
    geometric series; c_j is irrational for j > 0 as far as anyone knows, and digits are added until floors are sure.
    """
    spare = 16
    while True:
        width = bits + spare
        # (J / 32)^2 / 2 > (width + 32) ln 2: what is beyond is below 2^-width
        last = math.ceil(STRIPS * math.sqrt(2 * (width + 32) * math.log(2)))
        weights = [exp_bounds(Fraction(j * j, 2 * STRIPS**2), width + 16) for j in range(last)]
        low, high = sum(w[0] for w in weights), sum(w[1] for w in weights) + (1 << 16)
        found, below, above = [0], 0, 0
        for lowest, highest in weights:
            below, above = below + lowest, above + highest
            floors = (below << bits) // high, (above << bits) // low
            if floors[0] != floors[1]:
                break
            found.append(floors[0])
            if floors[0] == (1 << bits) - 1:
                return tuple(found)
        spare *= 2


Shape = tuple[int, ...]


class DrawnAhead:
    """The noise that `add_gaussian` would draw from `stream`, drawn in a thread while its sums are still computed.

    **Guarantee.** As in `add_gaussian`: the same numbers from the same stream, handed out once, for sums of the shapes
    and with the standard deviation and the grid that they were drawn for. A stream is that of one step, and is fixed
    before the step's sums are known; so noise of a later step is never drawn here.
    """

    def __init__(
        self, like: Mapping[str, Tensor], stddev: float, stream: Stream, grid_step: float | None = None
    ) -> None:
        shapes = {name: tuple(value.shape) for name, value in like.items()}
        self._drawn_for: object = (shapes, stddev, grid_step)
        thread = ThreadPoolExecutor(1, thread_name_prefix="dpose-noise")
        self._drawn = thread.submit(lambda: list(_noise_of(shapes, stddev, stream, grid_step)))
        thread.shutdown(wait=False)

    def take(self, shapes: Mapping[str, Shape], stddev: float, grid_step: float | None) -> Iterator[Tensor]:
        """The noise, tensor by tensor in the order of their names.

        Raises:
            ValueError: it was drawn for others, or taken before.
        """
        if self._drawn_for != (dict(shapes), stddev, grid_step):
            raise ValueError("noise is for the sums alone that it was drawn for, and for one time")
        self._drawn_for = None
        return iter(self._drawn.result())


def add_gaussian(
    sums: Mapping[str, Tensor], stddev: float, stream: Stream | DrawnAhead, grid_step: float | None = None
) -> dict[str, Tensor]:
    """Add independent Gaussian noise to every coordinate of some tensors.

    **Guarantee.** Neighbours: whatever `sums` was computed for. Sensitivity: if neighbouring data move all
    tensors together by at most D in L2 norm, this is one Gaussian mechanism with noise multiplier `stddev` /
    D; the division by D is the caller's. Noise: N(0, stddev^2) on each coordinate, tensors in the order of
    their names. Post-processing: rounding.

    With `grid_step` all of it is exact: sums are whole multiples of the step, and get noise that is rounded to whole
    multiples, with exactly the probabilities of a rounded Gaussian (docs/proofs/exact-noise.md). As the sum lies on the
    grid, this is the Gaussian mechanism's result, rounded to it.

    Without, noise is drawn and added in float64 and the result is rounded once. Float32 noise takes few values, and
    its sum with a float32 number leaves holes among the possible results; where they lie depends on the
    private sum and shows it. In float64 the holes are 2^29 times finer, and the rounding to float32 covers
    them except for results that happen to lie closer to zero than about 2^-29 of the sum itself. That is a
    strong defence and no proof: the guarantee is proved for real numbers, and the statement says so
    (`FLOATING_POINT_CAVEAT`).

    Args:
        sums: Floating-point tensors by name, any device.
        stddev: Standard deviation of the noise, in the units of the sums, > 0.
        stream: A stream that nothing else draws from, or what was drawn ahead from one.
        grid_step: A power of two of which all sums are whole multiples, at most 2^53 of them.

    Returns:
        New tensors, each with the shape, type and device of its original.

    Raises:
        ValueError: `stddev` is not positive and finite, a tensor is not floating-point, or is off the grid, or noise
            was drawn ahead for others.
    """
    if not (math.isfinite(stddev) and stddev > 0):
        raise ValueError(f"noise needs a positive, finite standard deviation, not {stddev}")
    import torch

    shapes = {name: tuple(value.shape) for name, value in sums.items()}
    if isinstance(stream, DrawnAhead):
        drawn = stream.take(shapes, stddev, grid_step)
    else:
        drawn = _noise_of(shapes, stddev, stream, grid_step)
    noisy = {}
    for name in sorted(sums):
        value = sums[name]
        if not value.is_floating_point():
            raise ValueError(f"{name} is {value.dtype}; noise goes on floating-point tensors")
        # on the CPU, because some accelerators have no float64
        exact = value.detach().to(device="cpu", dtype=torch.float64)
        if grid_step is not None:
            noise = _added_whole(exact / grid_step, drawn).mul_(grid_step)
        else:
            noise = next(drawn).add_(exact)
        noisy[name] = noise.to(device=value.device, dtype=value.dtype)
    return noisy


def _noise_of(shapes: Mapping[str, Shape], stddev: float, stream: Stream, grid_step: float | None) -> Iterator[Tensor]:
    """Noise of these shapes, in the order of their names: whole numbers of steps where there is a grid."""
    import torch

    for _, shape in sorted(shapes.items()):
        if grid_step is None:
            yield stream.gaussian(shape, stddev)
        else:
            drawn = rounded_gaussian(stddev / grid_step, math.prod(shape), stream)
            yield torch.from_numpy(drawn).view(shape)


def _added_whole(whole: Tensor, drawn: Iterator[Tensor]) -> Tensor:
    import torch

    numbers = whole.long()
    if not torch.equal(numbers.double(), whole):
        raise ValueError("a sum is off the grid that its noise lies on")
    return numbers.add_(next(drawn)).double()
