"""LDP-Slicing (Cao, Li and He, CVPR 2026, arXiv 2603.03711): randomised response on the bits of Y, Cb and Cr.

    LdpSlicing(20.0).release(picture, source)

**As published**, by the abstract, public summaries and the authors' code (HideTheDandi/LDP-Slicing, f48fd86; the text
of the paper was not at hand): full-range YCbCr; one level of Haar wavelets a channel, whose low band is set to zero;
values cut to 0..255 and to whole numbers; bit b of channel c kept with probability e^eps / (1 + e^eps), where eps is
epsilon sqrt(W) / sum sqrt(W), W = w_c 2^b, w = 4 for Y and 1 for Cb and Cr; RGB of what comes out.

**Chosen here**: whole numbers of millionths in place of float32 before the noise; probabilities of n / 2^32, rounded
towards more noise, by AES in place of torch.rand; odd sides repeat their last row or column (the code's picture
grows); 8-bit values of what comes out, in place of fractions.

**Guarantee** (docs/proofs/slicing.md). Neighbours: pictures of one size that differ in one pixel of what goes in.
Without pruning epsilon is the sum over bits, as claimed. With it a pixel moves all four pixels of its 2 x 2 block, and
epsilon is four times that sum, which is reached. The claim holds for a pixel of the pruned picture. For a person no
factor stays: every released pixel counts once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.privacy.noise import NoiseSource, Purpose, Stream

SETTINGS = (1.0, 2.4, 5.2, 12.0, 20.0, 32.0, 58.0)
"""Epsilons that the authors tabulate; faces are recognised at 20."""
CHANNEL_WEIGHTS = (4, 1, 1)
UNIT = 1_000_000
TO_YCBCR = np.array([[299_000, 587_000, 114_000], [-168_736, -331_264, 500_000], [500_000, -418_688, -81_312]])
"""Rows give Y, Cb and Cr of R, G and B, in millionths."""
TO_RGB = np.array([[1, 0, 1.402], [1, -0.344136, -0.714136], [1, 1.772, 0]])
ZERO_CHROMA = np.array([0, 127.5, 127.5])
WORDS = 1 << 32


@dataclass(frozen=True)
class LdpSlicing:
    """The mechanism at one budget.

    Attributes:
        epsilon: Total of a pixel's 24 bits, as the paper counts.
        pruned: Whether the low band is set to zero, as in the paper but for one ablation.
    """

    epsilon: float
    pruned: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < math.inf:
            raise DposeError("slicing-epsilon-invalid", f"epsilon cannot be {self.epsilon}", "--epsilon")

    @cached_property
    def budgets(self) -> NDArray[np.float64]:
        """(3, 8) epsilon allotted to each bit of Y, Cb and Cr, the lowest bit first."""
        root = np.sqrt(np.outer(CHANNEL_WEIGHTS, 2.0 ** np.arange(8)))
        return np.asarray(self.epsilon * root / root.sum(), np.float64)

    @cached_property
    def flips(self) -> NDArray[np.uint32]:
        """(3, 8) of 2^32 draws those that turn a bit over: at most half, and more than 2^32 / (1 + e^budget)."""
        with np.errstate(over="ignore"):  # e^inf turns none over, and one is added
            exact = WORDS / (1 + np.exp(self.budgets))
        return np.asarray(np.minimum(np.floor(exact) + 1, WORDS // 2), np.uint32)

    @cached_property
    def spent(self) -> NDArray[np.float64]:
        """(3, 8) epsilon of each bit as it is drawn, ln((2^32 - n) / n); not above its budget."""
        flips = self.flips.astype(np.float64)
        return np.log((WORDS - flips) / flips)

    def true_epsilon(self, changed: NDArray[np.bool_] | None = None) -> float:
        """Epsilon between pictures that differ in these pixels alone; for None in any one.

        Args:
            changed: (H, W).
        """
        if changed is None:
            reached = 4 if self.pruned else 1
        else:
            reached = int((over_blocks(changed, np.any) if self.pruned else changed).sum())
        return reached * float(self.spent.sum())

    def values(self, picture: NDArray[Any]) -> NDArray[np.uint8]:
        """Y, Cb and Cr whose bits are released, (H, W, 3): a pixel changes its 2 x 2 block, or itself alone."""
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise DposeError("slicing-without-colour", "LDP-Slicing takes pictures of 8-bit R, G and B")
        exact = picture.astype(np.int64) @ TO_YCBCR.T + (ZERO_CHROMA * UNIT).astype(np.int64)
        if self.pruned:
            exact = (4 * exact - over_blocks(exact, np.sum)) // 4 + 128 * UNIT
        return np.asarray(np.clip(exact // UNIT, 0, 255), np.uint8)

    def noised(self, values: NDArray[np.uint8], stream: Stream) -> NDArray[np.uint8]:
        """Turn over each bit of (..., 3) values with its own probability."""
        words = np.frombuffer(stream.bytes(32 * values.size), "<u4").reshape(*values.shape, 8)
        return np.asarray(values ^ np.packbits(words < self.flips, axis=-1, bitorder="little")[..., 0], np.uint8)

    def release(self, picture: NDArray[Any], source: NoiseSource) -> NDArray[np.uint8]:
        """Release one picture of (H, W, 3); the module says what is guaranteed."""
        shown = self.noised(self.values(picture), source.stream(Purpose.RELEASE, 0, b"slicing"))
        return np.asarray(np.clip(np.rint((shown - ZERO_CHROMA) @ TO_RGB.T), 0, 255), np.uint8)

    def read(self, released: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Y, Cb and Cr of a release; not always those that were noised, as RGB cuts them off."""
        exact = released @ np.linalg.inv(TO_RGB).T + ZERO_CHROMA
        return np.asarray(np.clip(np.rint(exact), 0, 255), np.uint8)

    def evidence(self, values: NDArray[np.uint8]) -> NDArray[np.float32]:
        """A vector of length 1: its product with another's grows with the log odds that one was noised to the other."""
        bits = np.unpackbits(values[..., None], axis=-1, bitorder="little").astype(np.float32)
        signed = (2 * bits - 1) * np.sqrt(self.spent / self.spent.sum()).astype(np.float32)
        return np.asarray(signed.reshape(-1) / math.sqrt(values.size / 3), np.float32)


def over_blocks(array: NDArray[Any], combine: Callable[..., Any]) -> NDArray[Any]:
    """What `combine` makes of each 2 x 2 block of (H, W, ...), at each of its places; odd sides repeat their last."""
    high, wide, *rest = array.shape
    padded = np.pad(array, ((0, high % 2), (0, wide % 2), *[(0, 0)] * len(rest)), "edge")
    blocks = combine(padded.reshape(len(padded) // 2, 2, -1, 2, *rest), axis=(1, 3))
    return np.asarray(blocks.repeat(2, 0).repeat(2, 1)[:high, :wide])
