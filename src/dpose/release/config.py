"""What a user asks of a release, checked: a budget, neighbours, an operator and its numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import TypedDict

from dpose.errors import DposeError
from dpose.privacy.neighbours import CELL_FORMS, ONE_FRAME, RELEASE_FORMS, Neighbours
from dpose.privacy.ranges import check_delta, parse_exact
from dpose.privacy.rounding import as_given
from dpose.release import projections
from dpose.release.colour import COLOURS, FACTORS
from dpose.release.grid import Shape
from dpose.release.operators import OPERATORS
from dpose.release.regions import PaperRegions, PrivateRegions, PublicRegions
from dpose.release.restoration import PAINTED, Restoration

MAX_BUDGET = 10**6
"""Nothing is released for a larger epsilon: it would protect nobody."""
CELLS = "pixelization"
"""The operator of pixelization: sums of blocks, of one size or finer in regions. No `GridOperator`: its second stage
may follow from what the first released."""
AUTO = "auto"
DETAIL = Neighbours.of_pixels(16)
"""What is hidden where nothing else is asked for."""
CHOOSABLE = ("block", "chroma")
"""What is chosen of pixelization's cells where nobody fixes it."""
PAPER_BLOCK = 16
"""b for the paper's algorithms where none is given, pixels."""
PAPER_K = 32 * 32 * 3
"""k in seed 004."""
SPLIT = 0.8
"""b in seed 004: the share of the budget that goes to the projection."""
SEGMENT = 64
"""Frames that are clipped together where a norm of a whole clip is clipped."""

Number = str | int | float | Fraction | Decimal
Regions = PublicRegions | PrivateRegions | PaperRegions


class CellOptions(TypedDict, total=False):
    """What pixelization takes besides epsilon, neighbours, block, colour and regions; `ReleaseConfig` says what."""

    delta: Number
    subdivide: int
    paper: int | None
    chroma: int | None


class GridOptions(TypedDict, total=False):
    """What a named operator takes besides epsilon, delta and neighbours; `ReleaseConfig` says what each is."""

    colour: str | None
    chroma: int | None
    k: int | None
    pool: int | None
    clip_norm: Number | None
    clip_segment: bool
    paper: bool
    split: float


@dataclass(frozen=True)
class ReleaseConfig:
    """What to release, and for which budget. `of` makes one for pixelization, `of_grid` one for any other operator.

    A release says what it protects by its neighbours (`neighbours`), and takes no `privacy.protected.Protected`. That
    is for data of many units, where a selection can make one unit count for several, copies of one can count twice, and
    a digest of contents says later which data an odometer has charged. Here the unit is always a pixel of the one
    artefact at hand; all of its pixels go in, each in one place, so that the stability is 1 by the operator's own
    sensitivity; and the number of pixels is public. A digest of an original would be a function of private pixels
    without noise, and stands in no statement (the account has one, under its key, and counts releases by it:
    `counting`); two pictures of one person have different ones anyhow: whoever is in several releases is told that
    epsilons add up. So `neighbours` alone, by which pixels are always replaced, carries all that a `Protected`
    would.

    Attributes:
        epsilon: The total for the whole picture or clip.
        delta: 0 for discrete Laplace noise and pure differential privacy; above 0 for discrete Gaussian noise.
        neighbours: Which pixels are hidden, as they were asked for: what they are for a picture or clip,
            `Neighbours.resolved` says. Seconds of a box are counted in frames by `Neighbours.timed`.
        operator: `CELLS`, or one of `OPERATORS`.
        block: Cells: b, pixels; None to have it chosen.
        colour: One of `COLOURS`: "ycc" for luma and chroma apart, "rgb" for three values alike, "grey" for luma alone;
            None for ycc where there are colours.
        chroma: With ycc: how many times as wide as luma's the cells of chroma are; None to have it chosen.
        chosen: Which of `CHOOSABLE` were chosen, from public numbers alone.
        subdivide: Cells: n, parts along each side of a block in a complex region.
        regions: Cells: where regions are complex; None for blocks of one size.
        grid: Others: rows, columns and groups of frames, luma's where there are colours; None to have them chosen by k
            and pool.
        k: Others: the most values kept of a group of frames; None to have it chosen.
        pool: Others: frames of a group; None to have it chosen.
        clip_norm: Others: bound on the L2 norm of the values; None for no clipping.
        clip_segment: Others: whether the bound is on all values of `SEGMENT` frames together, not on each group's.
        paper: The number of a published algorithm to run as printed, which guarantees nothing: with cells 1, 2 or 3 of
            seed 002, else 1 of seed 004. None for the mechanism that guarantees.
        split: b of seed 004's algorithm, the share of its budget that goes to the projection.
        restoration: How pictures are made of what was released; costs nothing.

    Raises:
        DposeError: a value is out of range, or two do not go together.
    """

    epsilon: Fraction
    delta: float = 0.0
    neighbours: Neighbours = DETAIL
    operator: str = CELLS
    block: int | None = 16
    subdivide: int = 1
    regions: Regions | None = None
    colour: str | None = "rgb"
    chroma: int | None = None
    chosen: tuple[str, ...] = ()
    grid: tuple[int, int, int] | None = None
    k: int | None = None
    pool: int | None = None
    clip_norm: float | None = None
    clip_segment: bool = False
    paper: int | None = None
    split: float = SPLIT
    restoration: Restoration = PAINTED

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= MAX_BUDGET:
            raise DposeError(
                "epsilon-out-of-range",
                f"epsilon must lie between 0 and {MAX_BUDGET:,}, not {as_given(self.epsilon)}",
                fix="1 is strong; above 10 little is protected",
            )
        if self.delta:
            check_delta(self.delta)
        Neighbours.parse(self.neighbours, CELL_FORMS if self.operator == CELLS else RELEASE_FORMS)
        if self.colour not in (None, *COLOURS):
            raise DposeError("colour-unknown", f"must be {', '.join(COLOURS)}, not {self.colour!r}", "colour")
        if self.chroma is not None and (self.colour not in (None, "ycc") or self.chroma not in FACTORS):
            raise DposeError(
                "chroma-unknown",
                f"is how many times as wide as luma's chroma's cells are: {', '.join(map(str, FACTORS))}, with ycc",
                "chroma",
            )
        if self.operator == CELLS:
            self._check_cells()
        else:
            self._check_grid()

    def _check_cells(self) -> None:
        if self.neighbours.m is None and self.neighbours.box is None:
            raise DposeError(
                "neighbours-not-pixels",
                "pixelization hides a number of pixels",
                "neighbours",
                "say pixels:16",
            )
        if self.block is not None and self.block < 1:
            raise DposeError(
                "block-not-positive", f"the block must be at least 1 pixel, not {self.block}", "block"
            )
        if self.subdivide < 1:
            raise DposeError(
                "subdivide-not-positive", f"must be at least 1, not {self.subdivide}", "subdivide"
            )
        if self.block is not None and self.block % self.subdivide:
            raise DposeError(
                "subdivide-not-divisor",
                f"a block of {self.block} pixels cannot be divided into {self.subdivide} equal parts",
                "subdivide",
                f"choose one of {', '.join(str(n) for n in _divisors(self.block))}",
            )
        if (self.regions is None) != (self.subdivide == 1):
            raise DposeError(
                "regions-with-subdivide",
                "regions and a subdivision of at least 2 go together",
                "subdivide",
                "give both or neither",
            )
        if self.paper not in (None, 1, 2, 3):
            raise DposeError("paper-unknown", f"must be 1, 2 or 3, not {self.paper}", "paper")
        own = isinstance(self.regions, PaperRegions)
        if (self.paper == 3) != own or (self.paper is not None and self.regions is not None and not own):
            raise DposeError(
                "paper-without-regions",
                "the paper's Algorithm 3 and the paper's regions go together",
                "paper",
                "give paper 3 with regions paper:MASK, or neither",
            )
        if self.paper is not None and self.neighbours.box is not None:
            raise DposeError(
                "paper-with-box", "the paper's algorithms know no box", "neighbours", "say pixels:16"
            )
        if self.paper is not None and (self.colour != "rgb" or self.block is None):
            raise DposeError(
                "paper-colour-fixed",
                "the paper's algorithms have a block, and three values alike",
                "colour",
                "say rgb",
            )
        if self.paper is not None and self.delta:
            raise DposeError("paper-delta-given", "the paper's algorithms have no delta", "delta")

    def _check_grid(self) -> None:
        if self.operator not in OPERATORS:
            raise DposeError(
                "operator-unknown", f"must be {', '.join(OPERATORS)}, not {self.operator!r}", "operator"
            )
        for name in ("k", "pool"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise DposeError(
                    "setting-not-positive", f"must be a whole number of at least 1, not {value!r}", name
                )
        if self.clip_norm is not None and not 0 < self.clip_norm < 1e9:
            raise DposeError(
                "clip-norm-not-positive", f"must be a positive number, not {self.clip_norm:g}", "clip-norm"
            )
        if self.clip_segment and self.clip_norm is None:
            raise DposeError("clip-norm-missing", "there is no norm to clip to", "clip-norm", "give one")
        if self.paper and self.neighbours != Neighbours.of_pixels(None, ONE_FRAME):
            raise DposeError(
                "neighbours-not-frame",
                "the paper's algorithm claims to protect one frame",
                "neighbours",
                "leave them out, or say frame",
            )
        if (self.paper or self.clip_norm is not None) and self.colour not in ("rgb", "grey"):
            raise DposeError(
                "colour-unsupported",
                "what is clipped, or a paper's, has three values alike",
                "colour",
                "say rgb",
            )
        if not 0 < self.split < 1:
            raise DposeError("split-out-of-range", f"b must lie between 0 and 1, not {self.split:g}", "split")
        if self.split != SPLIT and not self.paper:
            raise DposeError(
                "split-without-paper", "only the paper's algorithm splits its budget", "split", "leave it out"
            )
        if self.paper and (self.pool is not None or self.clip_norm is not None or self.operator != "block"):
            raise DposeError(
                "paper-with-operator", "the paper's algorithm has its own operator, and no clipping", "paper"
            )

    @classmethod
    def of(
        cls,
        epsilon: Number,
        neighbours: str | int | Neighbours,
        block: int | str | None = 16,
        delta: Number = 0,
        subdivide: int = 1,
        regions: Regions | None = None,
        paper: int | None = None,
        colour: str | None = "rgb",
        chroma: int | None = None,
    ) -> ReleaseConfig:
        """Pixelization, from what a caller or the command line gives.

        Args:
            epsilon: A number, or a string with a decimal or rational number ("0.5", "1/3"), which is taken exactly. A
                float stands for the decimal that it prints as.
            neighbours: "pixels:16", "pixels:16/frame", 16, for a clip "box:100x200/frames:25", or `Neighbours`.
            block: b, pixels; "auto" or None to have it chosen.
            delta: As epsilon.
            subdivide: n.
            regions: Where regions are complex.
            paper: 1, 2, 3 or None.
            colour: One of `COLOURS`; None for ycc where there are colours, but for the paper's algorithms.
            chroma: How many times as wide the cells of chroma are; None to have it chosen.

        Raises:
            DposeError: a value is out of range or not a number.
        """
        side = None if block in (None, AUTO) else block
        if paper is not None:
            side, colour = PAPER_BLOCK if side is None else side, colour or "rgb"
        for name, value in (("block", side), ("subdivide", subdivide), ("chroma", chroma)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise DposeError("setting-not-whole", f"must be a whole number, not {value!r}", name)
        given, small = exact(epsilon, "epsilon"), float(exact(delta, "delta"))
        assert not isinstance(side, str)
        return cls(
            given,
            small,
            Neighbours.parse(neighbours, CELL_FORMS),
            block=side,
            subdivide=subdivide,
            regions=regions,
            colour=colour,
            chroma=chroma,
            paper=paper,
        )

    @classmethod
    def of_grid(
        cls,
        epsilon: Number,
        delta: Number,
        neighbours: str | int | Neighbours | None = None,
        operator: str = "block",
        *,
        colour: str | None = "rgb",
        chroma: int | None = None,
        k: int | None = None,
        pool: int | None = None,
        clip_norm: Number | None = None,
        clip_segment: bool = False,
        paper: bool = False,
        split: float = SPLIT,
    ) -> ReleaseConfig:
        """One of `OPERATORS`, from what a caller or the command line gives.

        Args:
            epsilon: A number, or text with a decimal or rational number, which is taken exactly.
            delta: As epsilon. 0 for Laplace noise, which an operator must have bounded its L1 norm for.
            neighbours: "pixels:16", "pixels:16/frame", 16, "box:100x200/frames:25" (or "/seconds:4" of a video's
                time stamps), `Neighbours`, "frame" (any one) or "clip" (all of it). Default: pixels:16, or for the
                paper's algorithm what it claims, a frame.
            operator: One of `OPERATORS`.
            colour: One of `COLOURS`; None for ycc where there are colours, but rgb for what clips or is a paper's.
            chroma: How many times as wide the cells of chroma are; None to have it chosen.
            k: The most values kept of a group.
            pool: Frames of a group.
            clip_norm: Bound on the norm of the values.
            clip_segment: Whether it is one of `SEGMENT` frames together.
            paper: Whether to run seed 004's algorithm.
            split: b of that algorithm.

        Raises:
            DposeError: a value is out of range or not a number.
        """
        norm = None if clip_norm is None else float(exact(clip_norm, "clip-norm"))
        if colour is None and (paper or norm is not None):
            colour = "rgb"
        small = float(exact(delta, "delta"))
        return cls(
            exact(epsilon, "epsilon"),
            small,
            Neighbours.parse(neighbours or ("frame" if paper else DETAIL)),
            operator,
            colour=colour,
            chroma=chroma,
            k=k,
            pool=pool,
            clip_norm=norm,
            clip_segment=clip_segment,
            paper=1 if paper else None,
            split=split,
        )

    def restored(self, method: str) -> ReleaseConfig:
        """The same with a restoration, one of `restoration.METHODS`; what the papers print is shown as it is.

        Raises:
            DposeError: there is none of this name.
        """
        found = Restoration.chosen(method)
        return replace(self, restoration=PAINTED if self.paper else found)

    @property
    def resolved(self) -> bool:
        """Whether nothing is left to be chosen."""
        if self.colour is None or (self.colour == "ycc" and self.chroma is None):
            return False
        return self.operator != CELLS or self.block is not None

    @property
    def side(self) -> int:
        """b, once it is chosen."""
        assert self.block is not None
        return self.block

    @property
    def part(self) -> int:
        """The side of a complex block's parts."""
        return self.side // self.subdivide

    def check_shape(self, shape: Shape) -> None:
        """Refuse a picture or clip that is too small for the block, for m or for k, or that has too many bits.

        Raises:
            DposeError: it is, or has.
        """
        if self.colour == "ycc" and shape.channels == 1:
            raise DposeError(
                "chroma-of-grey", "a grey picture has no chroma", "colour", "leave it out, or say grey"
            )
        if self.operator == CELLS:
            side = min(shape.height, shape.width)
            if self.side > side:
                raise DposeError(
                    "block-larger-than-picture",
                    f"a block of {self.side} is larger than the picture of {shape.width} x {shape.height} pixels",
                    "block",
                    f"choose at most {side}",
                )
            self.neighbours.resolved(shape)
            return
        if shape.peak != projections.PEAK:
            raise DposeError(
                "depth-unsupported",
                "only pixelization takes 16-bit values",
                "image",
                "scale it to 0..255 before",
            )
        k = PAPER_K if self.paper and self.k is None else self.k
        if k is not None and k > shape.values:
            raise DposeError(
                "k-above-values",
                f"{k:,} values cannot be kept of a frame that has {shape.values:,} ({shape.width} x {shape.height} x "
                f"{shape.channels})",
                "k",
                f"choose at most {shape.values:,}",
            )
        if k is not None and k < shape.channels:
            raise DposeError(
                "k-below-channels", f"must be at least {shape.channels}, one value a channel, not {k}", "k"
            )


def exact(value: Number, name: str) -> Fraction:
    """The fraction that `value` stands for.

    Raises:
        DposeError: it is no finite number.
    """
    if isinstance(value, bool):
        raise DposeError("setting-not-number", f"must be a number, not {value}", name)
    if isinstance(value, float) and not math.isfinite(value):
        raise DposeError("setting-not-finite", f"must be a finite number, not {value}", name)
    return Fraction(value) if isinstance(value, Fraction) else parse_exact(str(value).strip(), name)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, min(number, 4096) + 1) if number % n == 0]
