"""Can an archive's sums hold the noise that its statement records? A verdict from released sums and public numbers.

    said = noise_verdict(released, statement.events, "a.npz")     # words for `dpose verify`; DposeError: refuted

Two kinds of test, for each set of sums that a stage released (docs/proofs/noise-refuted.md):

* Multiples. Luma and chroma are summed a whole number q of times, so that their sums without noise are multiples of
  q; a noised one is a multiple just where its noise is.
* Differences. Neighbouring cells of one area are paired by their places alone. The difference of two noised sums is
  that of two draws of noise, moved by what the picture has there; being moved makes it no smaller. So the sum over
  pairs of min(|difference|, cap) is too small no more often than for noise alone.

It is a reader's look at what was published, and no part of releasing: who draws again after a look at the noise
releases by another law than the one that is proved. It is no proof of noise either: anyone can add noise that passes.

Does a picture follow from released values? What is shown must be what the cells restore to, within one gray level.

A statement that adds up says nothing about the pixels beside it. These checks need no secret: a released picture is a
public function of its cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.media.container import opened_video
from dpose.media.images import decode_pixels
from dpose.privacy.events import ExactEvent, Laplace
from dpose.release.embed import encoded
from dpose.release.partition import BlockSums, RegionSums
from dpose.release.released import Layers, ReleasedSums, Shown

PIXEL_LEVEL = 1
"""Gray levels that a picture may differ from what its cells restore to: decoders round differently."""
TINT = 2
"""Levels of chroma that a grey picture may have after lossy coding."""


def check_restored(pixels: NDArray[Any], released: Shown, suffix: str, where: str) -> None:
    """Refuse a picture that is not what its archive restores to, encoded the same way.

    Args:
        pixels: As decoded, (H, W) or (H, W, C).
        released: The archive's.
        suffix: Suffix of the picture's file: how it was encoded.
        where: The file, for errors.

    Raises:
        DposeError: some pixel differs by more than a gray level.
    """
    restored = decode_pixels(encoded(released, suffix), where)
    if restored.shape != pixels.shape or restored.dtype != pixels.dtype:
        raise DposeError(
            "archive-of-other-picture", "is another picture than its archive holds", where, "do not rely on it"
        )
    off = np.abs(restored.astype(np.int32) - pixels.astype(np.int32)).max(initial=0)
    if off > PIXEL_LEVEL:
        raise DposeError(
            "archive-does-not-follow",
            f"does not follow from its archive: pixels differ by up to {off} gray levels",
            where,
            "do not rely on it",
        )


def check_cells(pixels: NDArray[Any], side: int, where: str) -> None:
    """Refuse a lossless picture that is not of one colour within each cell.

    Args:
        pixels: (H, W) or (H, W, C).
        side: Side of the smallest cells that the record allows, pixels.
        where: The file, for errors.

    Raises:
        DposeError: a cell has several colours.
    """
    wide = pixels.reshape(*pixels.shape[:2], -1)
    tall, across = (np.arange(0, length, side) for length in wide.shape[:2])
    highest = np.maximum.reduceat(np.maximum.reduceat(wide, tall, axis=0), across, axis=1)
    lowest = np.minimum.reduceat(np.minimum.reduceat(wide, tall, axis=0), across, axis=1)
    if (highest.astype(np.int32) - lowest.astype(np.int32)).max(initial=0) > PIXEL_LEVEL:
        raise DposeError(
            "cells-differ",
            f"is no picture of cells of {side} x {side} pixels, as its statement says",
            where,
            "do not rely on it",
        )


def check_grey(path: Path) -> None:
    """Refuse a video with colours in it, whose statement is about one channel.

    Raises:
        DposeError: it has some, or cannot be decoded.
    """
    with opened_video(path) as container:
        for frame in container.decode(video=0):
            if frame.format.name.startswith("gray"):
                continue
            chroma = frame.to_ndarray(format="yuv444p")[1:].astype(np.int32)
            if np.abs(chroma - 128).max(initial=0) > TINT:
                raise DposeError(
                    "channels-differ",
                    "has channels 3: there are colours in it, but its statement is about 1",
                    str(path),
                )


LEVEL = 1e-9
"""A genuine release is refuted with at most this probability, whatever its picture is."""
CAPS = (Fraction(1, 64), Fraction(1, 16), Fraction(1, 4), Fraction(1), Fraction(4))
"""Caps of differences, in scales of the noise (of Gaussian noise: its sigma)."""
STEPS = 16
"""Differences are counted in steps of one part in so many of their cap."""
TESTS = 40
"""More than the 34 that luma and chroma in two stages have: two directions and all caps for each of three sets of sums,
and four combinations. Fixed, since whether a second stage has any follows from what the first released; the rest is
room for what floating point rounds."""
ROUNDING = 1e-12
"""More than floating point takes off a probability, or off the logarithm of a mean."""
_RATES = np.geomspace(1e-4, 50, 400)
_TINY = 1e-300


@dataclass(frozen=True)
class NoiseTest:
    """One test of released sums.

    Attributes:
        found: What was found.
        p: Upper bound on the probability that noise as recorded gives this, or what speaks as much against it.
        least: The smallest `p` that any sums in these cells could have.
    """

    found: str
    p: float
    least: float


def noise_verdict(released: Shown | None, events: Sequence[Any], where: str) -> str:
    """Hold released sums to the noise that their statement records.

    **Guarantee.** Of the verdict, not of the release: a genuine release is refuted with probability at most `LEVEL`,
    whatever its picture is. Each of at most `TESTS` tests refutes with probability at most `LEVEL / TESTS`; which they
    are follows from sizes, for a second stage from the first one's output, of which its noise is independent.

    Args:
        released: What an archive holds; None of a picture or a video.
        events: The statement's, one for each stage; they must be those that follow from its record.
        where: The file, for errors.

    Returns:
        That the noise is not refuted, or why there is no verdict.
    """
    if not isinstance(released, ReleasedSums):
        return "no verdict on the noise, as this file holds no sums"
    tests = list(noise_tests(released, events))
    if all(test.least > LEVEL / TESTS for test in tests):
        return "no verdict on the noise, as there are too few cells"
    worst = min(tests, key=lambda test: test.p)
    if worst.p <= LEVEL / TESTS:
        raise DposeError(
            "noise-refuted",
            f"the noise is refuted: {worst.found}; whatever the picture is, noise as recorded does that with "
            f"probability {max(worst.p, _TINY):.0e} or less",
            where,
            "do not rely on it",
        )
    return "the noise is not refuted (nor is any that somebody else adds)"


def noise_tests(released: ReleasedSums, events: Sequence[ExactEvent]) -> Iterator[NoiseTest]:
    """All tests of released sums, against the noise of each stage's event."""
    layers, colour = released.layers, released.layers.colour
    for name, sums in released.sums.items():
        event = events[1] if name == "parts" else events[0]
        for column, row in enumerate(colour.chroma if name == "chroma" else colour.luma):
            if (q := math.gcd(*row)) > 1:
                yield _multiples(sums[:, column], q, event, name)
        grids = list(_grids(layers, name))
        for axis, way in enumerate(("down", "across")):
            first, second = np.concatenate([_pairs(*grid, axis) for grid in grids], axis=1)
            # all combinations have noise of one law: one test of all of them sees more than one of each
            far = np.abs(sums[first] - sums[second]).ravel()
            if far.size:
                yield from _differences(far, event, f"neighbours {way} ({name})")


def _multiples(sums: NDArray[np.int64], q: int, event: ExactEvent, name: str) -> NoiseTest:
    chance, hits = multiple_chance(event, q), int((sums % q == 0).sum())
    return NoiseTest(
        f"{hits:,} of {sums.size:,} sums ({name}) are multiples of {q}",
        binomial_tail(hits, sums.size, chance),
        binomial_tail(sums.size, sums.size, chance),
    )


def _differences(far: NDArray[np.int64], event: ExactEvent, name: str) -> Iterator[NoiseTest]:
    scale = event.scale if isinstance(event, Laplace) else Fraction(math.sqrt(event.variance))
    for cap in CAPS:
        ends = [max(1, math.ceil(cap * scale * step / STEPS)) for step in range(1, STEPS + 1)]
        below = np.array([within(event, end - 1) for end in ends])
        total = int(np.searchsorted(np.array(ends), far, "right").sum())
        mean = float(cap) * total / STEPS / far.size
        yield NoiseTest(
            f"{far.size:,} differences of {name} are {mean:.3g} scales on average, cut off at {float(cap):g}",
            chernoff_bound(total, far.size, below),
            chernoff_bound(0, far.size, below),
        )


def binomial_tail(hits: int, count: int, chance: float) -> float:
    """The probability of `hits` or more among `count` independent tries of this chance; 1 up to the expected number."""
    if hits <= count * chance:
        return 1.0
    ways = math.lgamma(count + 1) - math.lgamma(hits + 1) - math.lgamma(count - hits + 1)
    first = math.exp(ways + hits * math.log(chance) + (count - hits) * math.log1p(-chance))
    more = np.arange(hits, count)
    return first * (1 + float(np.cumprod((count - more) / (more + 1) * (chance / (1 - chance))).sum()))


def chernoff_bound(total: int, count: int, below: NDArray[np.float64]) -> float:
    """Upper bound, Chernoff's, on the probability that independent whole numbers add up to at most `total`.

    Args:
        total: The sum.
        count: How many there are, each from 0 to len(below).
        below: Upper bounds on the probabilities that one of them is at most 0, 1, ..., len(below) - 1.
    """
    powers = np.exp(-_RATES[:, None] * np.arange(len(below) + 1))
    means = (powers[:, :-1] - powers[:, 1:]) @ below + powers[:, -1]
    bounds = count * (np.log(means) + ROUNDING) + total * _RATES
    return math.exp(min(0.0, float(bounds.min())))


def multiple_chance(event: ExactEvent, q: int) -> float:
    """P(X = 0 mod q) for a draw X of the noise."""
    if isinstance(event, Laplace):
        half = 0.5 / max(_TINY, float(event.scale))
        return min(1.0, math.tanh(half) / math.tanh(q * half) + ROUNDING)
    # sums over multiples of q, and over all whole numbers, as cosine series at 0 (Poisson): they fall quickly
    sigma = math.sqrt(event.variance)
    waves = math.pi * sigma * np.arange(1, 2 * math.ceil(q / sigma) + 2)
    multiples, all_of_them = (1 + 2 * np.exp(-2 * (waves / n) ** 2).sum() for n in (q, 1))
    return min(1.0, float(multiples / all_of_them) / q + ROUNDING)


def within(event: ExactEvent, far: int) -> float:
    """Upper bound on P(|X - X'| <= far), far >= 0, for two independent draws of the noise."""
    if isinstance(event, Laplace):
        rate = 1 / max(_TINY, float(event.scale))
        a, gap = math.exp(-rate), -math.expm1(-rate)
        beyond = math.exp(-(far + 1) * rate) * ((far + 1) * gap + (1 + a * a) / (1 + a) + a)
        return min(1.0, 1 - 2 * beyond / (1 + a) ** 2 + ROUNDING)
    sigma = math.sqrt(event.variance)
    wave = math.exp(-((math.pi * sigma) ** 2))
    bulk = math.erf((far + 0.5) / (2 * sigma)) + (2 * far + 1) / (96 * math.sqrt(math.pi) * sigma**3)
    return min(1.0, (1 + wave) / (1 - wave) * bulk + ROUNDING)


def _grids(layers: Layers, name: str) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The rows of sums that lie at each place of a grid, -1 where there is none; and the cells' areas."""
    cells = layers.coarse if name == "chroma" else layers.blocks
    if layers.mask is None or name == "chroma" or (layers.staged and name == "luma"):
        yield _on_grid(np.arange(cells.areas.size), cells), _on_grid(cells.areas, cells)
        return
    regions = layers.cells
    assert isinstance(regions, RegionSums)
    places = regions.places() - (regions.simple if name == "parts" else 0)
    parts = np.where(regions.places() < regions.simple, -1, places)
    yield _on_grid(parts, regions.fine), _on_grid(regions.fine.areas, regions.fine)
    if name == "luma":
        blocks = np.where(regions.mask, -1, np.cumsum(~regions.mask).reshape(regions.mask.shape) - 1)
        yield blocks, _on_grid(cells.areas, cells)


def _on_grid(values: NDArray[np.int64], cells: BlockSums) -> NDArray[np.int64]:
    return values.reshape(cells.rows, cells.columns)


def _pairs(rows: NDArray[np.int64], areas: NDArray[np.int64], axis: int) -> NDArray[np.int64]:
    """Rows of sums in pairs, (2, pairs), of equal areas: first and second place along an axis, third and fourth, ..."""
    first = np.arange(0, rows.shape[axis] - 1, 2)
    one, other = rows.take(first, axis), rows.take(first + 1, axis)
    kept = (np.minimum(one, other) >= 0) & (areas.take(first, axis) == areas.take(first + 1, axis))
    return np.stack([one[kept], other[kept]])
