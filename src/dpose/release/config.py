"""What a user asks of a pixelization, checked: epsilon, neighbours, block, regions."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from dpose.errors import DposeError
from dpose.privacy.accounting import Relation, check_delta
from dpose.privacy.exact import parse_exact
from dpose.privacy.rounding import as_given
from dpose.privacy.statement import Neighbours
from dpose.release.regions import PaperRegions, PrivateRegions, PublicRegions

MAX_BUDGET = 10**6
"""No picture is released for a larger epsilon: it would protect nobody."""

Number = str | int | float | Fraction | Decimal
Regions = PublicRegions | PrivateRegions | PaperRegions


@dataclass(frozen=True)
class Setting:
    """What to release, and for which budget.

    Attributes:
        epsilon: The total for the whole picture or clip.
        m: How many pixels neighbours may differ in.
        per_frame: Whether m pixels may differ in every frame of a clip, rather than in the whole clip.
        block: b, pixels.
        delta: 0 for discrete Laplace noise and pure differential privacy; above 0 for discrete Gaussian noise.
        subdivide: n, parts along each side of a block in a complex region.
        regions: Where regions are complex; None for blocks of one size.
        paper: 1, 2 or 3 for seed 002's algorithm of that number as printed, which guarantees nothing; None for the
            mechanism that does.

    Raises:
        DposeError: a value is out of range, or two do not go together.
    """

    epsilon: Fraction
    m: int
    per_frame: bool
    block: int
    delta: float = 0.0
    subdivide: int = 1
    regions: Regions | None = None
    paper: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= MAX_BUDGET:
            raise DposeError(
                f"epsilon must lie between 0 and {MAX_BUDGET:,}, not {as_given(self.epsilon)}",
                fix="1 is strong; above 10 little is protected",
            )
        if self.m < 1:
            raise DposeError(f"m must be at least 1 pixel, not {self.m}", "neighbours")
        if self.block < 1:
            raise DposeError(f"the block must be at least 1 pixel, not {self.block}", "block")
        if self.subdivide < 1:
            raise DposeError(f"must be at least 1, not {self.subdivide}", "subdivide")
        if self.block % self.subdivide:
            raise DposeError(
                f"a block of {self.block} pixels cannot be divided into {self.subdivide} equal parts",
                "subdivide",
                f"choose one of {', '.join(str(n) for n in _divisors(self.block))}",
            )
        if (self.regions is None) != (self.subdivide == 1):
            raise DposeError(
                "regions and a subdivision of at least 2 go together", "subdivide", "give both or neither"
            )
        if self.delta:
            check_delta(self.delta)
        self._check_paper()

    def _check_paper(self) -> None:
        if self.paper not in (None, 1, 2, 3):
            raise DposeError(f"must be 1, 2 or 3, not {self.paper}", "paper")
        own = isinstance(self.regions, PaperRegions)
        if (self.paper == 3) != own or (self.paper is not None and self.regions is not None and not own):
            raise DposeError(
                "the paper's Algorithm 3 and the paper's regions go together",
                "paper",
                "give paper 3 with regions paper:MASK, or neither",
            )
        if self.paper is not None and self.delta:
            raise DposeError("the paper's algorithms have no delta", "delta")

    @classmethod
    def of(
        cls,
        epsilon: Number,
        neighbours: str | int | Neighbours,
        block: int,
        delta: Number = 0,
        subdivide: int = 1,
        regions: Regions | None = None,
        paper: int | None = None,
    ) -> Setting:
        """A setting from what a caller or the command line gives.

        Args:
            epsilon: A number, or a string with a decimal or rational number ("0.5", "1/3"), which is taken exactly. A
                float stands for the decimal that it prints as.
            neighbours: "pixels:16", "pixels:16/frame", 16, or `Neighbours`.
            block: b, pixels.
            delta: As epsilon.
            subdivide: n.
            regions: Where regions are complex.
            paper: 1, 2, 3 or None.

        Raises:
            DposeError: a value is out of range or not a number.
        """
        m, per_frame = parse_neighbours(neighbours)
        for name, value in (("block", block), ("subdivide", subdivide)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise DposeError(f"must be a whole number of pixels, not {value!r}", name)
        return cls(
            exact(epsilon, "epsilon"),
            m,
            per_frame,
            block,
            float(exact(delta, "delta")),
            subdivide,
            regions,
            paper,
        )

    def check_picture(self, height: int, width: int, frames: int = 1) -> None:
        """Refuse a picture that is too small for the block or for m.

        Raises:
            DposeError: it is.
        """
        if self.block > min(height, width):
            raise DposeError(
                f"a block of {self.block} is larger than the picture of {width} x {height} pixels",
                "block",
                f"choose at most {min(height, width)}",
            )
        pixels = height * width * (1 if self.per_frame else frames)
        if self.m > pixels:
            raise DposeError(
                f"m is {self.m:,}, but there are only {pixels:,} pixels", "neighbours", "choose a smaller m"
            )

    def neighbours(self, clip: bool) -> Neighbours:
        """The neighbouring relation, for a clip or for a picture."""
        scope = ("frame" if self.per_frame else "clip") if clip else "picture"
        return Neighbours(Relation.REPLACE, self.m, scope)


def parse_neighbours(value: str | int | Neighbours) -> tuple[int, bool]:
    """m, and whether it is counted in every frame.

    >>> parse_neighbours("pixels:16"), parse_neighbours("pixels:16/frame"), parse_neighbours(9)
    ((16, False), (16, True), (9, False))

    Raises:
        DposeError: it is none of "pixels:M", "pixels:M/frame", M.
    """
    if isinstance(value, Neighbours):
        if value.relation is not Relation.REPLACE or value.scope not in ("picture", "clip", "frame"):
            raise DposeError("a release protects pixels that are replaced", "neighbours", 'say "pixels:16"')
        return value.m, value.scope == "frame"
    found = re.fullmatch(r"(?:pixels:)?(-?\d{1,12})(/frame)?", str(value))
    if not found or isinstance(value, bool):
        raise DposeError(f"{value!r} is not of the form pixels:M or pixels:M/frame", "neighbours")
    return int(found[1]), bool(found[2])


def exact(value: Number, name: str) -> Fraction:
    """The fraction that `value` stands for.

    Raises:
        DposeError: it is no finite number.
    """
    if isinstance(value, bool):
        raise DposeError(f"must be a number, not {value}", name)
    if isinstance(value, float) and not math.isfinite(value):
        raise DposeError(f"must be a finite number, not {value}", name)
    return Fraction(value) if isinstance(value, Fraction) else parse_exact(str(value).strip(), name)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, min(number, 4096) + 1) if number % n == 0]
