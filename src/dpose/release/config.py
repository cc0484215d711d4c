"""The two configurations of a release, checked: `Pixelization` and `Projection`. Binding one to a shape gives a plan.

    plan = bind(Pixelization.of("0.5", "pixels:16", block=16), Shape.of(1080, 1920, 3))      # dpose.release.plans
    plan = bind(Projection.of(8, "1e-5", operator="block"), Shape(280, 480, 640, 3))

The line of a field under "Attributes:" reads as a line of `--help`. `of` takes each field as an option or a caller
gives it: numbers as text, neighbours and restorations by name.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias, TypedDict, Unpack

from numpy.typing import NDArray

from dpose.errors import DposeError, did_you_mean
from dpose.privacy.neighbours import CELL_FORMS, ONE_FRAME, RELEASE_FORMS, Neighbours
from dpose.privacy.ranges import as_given, check_released_delta, parse_exact
from dpose.release import projections
from dpose.release.colour import COLOURS, FACTORS
from dpose.release.grid import Shape
from dpose.release.operators import OPERATORS
from dpose.release.regions import PaperRegions, Regions, as_regions
from dpose.release.restoration import PAINTED, Restoration

MAX_BUDGET = 10**6
"""The largest epsilon of a release. A larger one would protect nothing."""
CELLS = "pixelization"
"""The name of pixelization in a record, where a projection has its operator's name."""
AUTO = "auto"
LEARNED = "learned"
"""The restoration of a release unless another one is named."""
DETAIL = Neighbours.of_pixels(16)
"""The neighbours of a release unless others are named."""
CHOOSABLE = ("block", "chroma")
"""The fields of `Pixelization` that are chosen from public numbers unless they are given."""
PAPER_BLOCK = 16
"""b of the published pixelization unless it is given, pixels."""
PAPER_K = 32 * 32 * 3
"""k in seed 004."""
SPLIT = 0.8
"""b in seed 004: the share of the budget that goes to the projection."""
SEGMENT = 64
"""Number of frames whose values are clipped together if `Projection.clip_segment` is set."""

Number = str | int | float | Fraction | Decimal


class PixelizationSettings(TypedDict, total=False):
    """The settings of `Pixelization.of` besides epsilon, neighbours and block, by the names of the fields."""

    delta: Number
    subdivide: int
    regions: Regions | NDArray[Any] | str | None
    colour: str | None
    chroma: int | None
    paper: int | None
    restore: str


class ProjectionSettings(TypedDict, total=False):
    """The settings of `Projection.of` besides epsilon, delta, neighbours and operator, by the names of the fields."""

    colour: str | None
    chroma: int | None
    k: int | None
    pool: int | None
    clip_norm: Number | None
    clip_segment: bool
    paper: bool
    split: float
    restore: str


@dataclass(frozen=True)
class Pixelization:
    """What pixelization releases, and for which budget: noisy sums of blocks, of one size or finer in regions.

    `neighbours` alone say what is protected, without a `privacy.protected.Protected`: the unit is a pixel of one
    artefact, all of its pixels go in, each in one place, so that the stability is 1 by the operator's own sensitivity,
    and the number of pixels is public. A digest of an original is a function of private pixels without noise, and
    stands in no statement; the account holds one under its key, and counts releases by it.

    Attributes:
        epsilon: Privacy budget of each picture or clip, as a whole. 0.5, 2 or 1/3: taken exactly.
        neighbours: What is hidden: pixels:M of a picture or whole clip (default pixels:16); pixels:M/frame of
            every frame; box:WxH/frames:T (or /seconds:S) of any T frames of a clip, wherever the box lies.
        block: Side of a block, pixels, or auto: chosen by budget, size and colour, never by the picture.
        delta: 0: Laplace noise and pure differential privacy. Above 0: Gaussian noise.
        subdivide: Divide complex blocks into N x N parts; needs regions.
        regions: Which blocks are complex: private, public:MASK or, in paper mode, paper:MASK (or paper).
        colour: ycc: luma, and chroma over larger cells. rgb: three values alike. grey: luma alone. Default: ycc
            for what has colours.
        chroma: 1, 2 or 4: how many times as wide chroma's cells are. Default: chosen.
        paper: Run the paper's Algorithm 1, 2 or 3 as printed. Guarantees nothing.
        restoration: What is made of released cells, at no cost: learned, tv or none.
        chosen: The fields among `CHOOSABLE` that were chosen, from public numbers alone
            (`pixelization.choose_cells`).

    Raises:
        DposeError: a value is out of range, or two contradict each other.
    """

    epsilon: Fraction
    neighbours: Neighbours = DETAIL
    block: int | None = None
    delta: float = 0.0
    subdivide: int = 1
    regions: Regions | None = None
    colour: str | None = None
    chroma: int | None = None
    paper: int | None = None
    restoration: Restoration = field(default_factory=lambda: Restoration.chosen(LEARNED))
    chosen: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_common(self, CELL_FORMS)
        if self.neighbours.m is None and self.neighbours.box is None:
            raise DposeError(
                "neighbours-not-pixels", "pixelization hides a number of pixels", "neighbours", "say pixels:16"
            )
        if self.block is not None and self.block < 1:
            raise DposeError("block-not-positive", f"the block must be at least 1 pixel, not {self.block}", "block")
        if self.subdivide < 1:
            raise DposeError("subdivide-not-positive", f"must be at least 1, not {self.subdivide}", "subdivide")
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
        self._check_paper()

    def _check_paper(self) -> None:
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
            raise DposeError("paper-with-box", "the paper's algorithms know no box", "neighbours", "say pixels:16")
        if self.paper is not None and (self.colour != "rgb" or self.block is None):
            raise DposeError(
                "paper-colour-fixed", "the paper's algorithms have a block, and three values alike", "colour", "say rgb"
            )
        if self.paper is not None and self.delta:
            raise DposeError("paper-delta-given", "the paper's algorithms have no delta", "delta")

    @classmethod
    def of(
        cls,
        epsilon: Number,
        neighbours: str | int | Neighbours | None = None,
        block: int | str | None = AUTO,
        **settings: Unpack[PixelizationSettings],
    ) -> Pixelization:
        """The configuration from what a caller or the command line gives.

        Args:
            epsilon: A number, or text with a decimal or rational number ("0.5", "1/3"), which is taken exactly. A
                float stands for the decimal that it prints as.
            neighbours: "pixels:16", "pixels:16/frame", 16, for a clip "box:100x200/frames:25", or `Neighbours`.
            block: Pixels; "auto" or None to have it chosen.
            settings: The other fields; regions also "private" or an array for a public mask; and `restore`, the name
                of a restoration: the published algorithms are shown as they are.

        Raises:
            DposeError: a setting is unknown, or a value is out of range or not a number.
        """
        refuse_unknown(settings, PixelizationSettings, cls.of)
        paper, colour = settings.get("paper"), settings.get("colour")
        restoration = Restoration.chosen(settings.get("restore", LEARNED))
        regions, side = settings.get("regions"), None if block in (None, AUTO) else block
        if paper is not None:
            side, colour = PAPER_BLOCK if side is None else side, colour or "rgb"
        subdivide, chroma = settings.get("subdivide", 1), settings.get("chroma")
        for name, value in (("block", side), ("subdivide", subdivide), ("chroma", chroma)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise DposeError("setting-not-whole", f"must be a whole number, not {value!r}", name)
        assert not isinstance(side, str)
        return cls(
            exact(epsilon, "epsilon"),
            Neighbours.parse(DETAIL if neighbours is None else neighbours, CELL_FORMS),
            side,
            float(exact(settings.get("delta", 0), "delta")),
            subdivide,
            None if regions is None else as_regions(regions),
            colour,
            chroma,
            paper,
            PAINTED if paper is not None else restoration,
        )

    @property
    def resolved(self) -> bool:
        """True if nothing is left to be chosen."""
        open_chroma = self.colour == "ycc" and self.chroma is None
        return self.block is not None and self.colour is not None and not open_chroma

    @property
    def side(self) -> int:
        """b, once it is chosen, pixels."""
        assert self.block is not None
        return self.block

    @property
    def part(self) -> int:
        """The side of a complex block's parts, pixels."""
        return self.side // self.subdivide

    def check_shape(self, shape: Shape) -> None:
        """Refuse a picture or clip that is too small for the block or for m.

        Raises:
            DposeError: it is.
        """
        if self.colour == "ycc" and shape.channels == 1:
            raise DposeError("chroma-of-grey", "a grey picture has no chroma", "colour", "leave it out, or say grey")
        side = min(shape.height, shape.width)
        if self.side > side:
            raise DposeError(
                "block-larger-than-picture",
                f"a block of {self.side} is larger than the picture of {shape.width} x {shape.height} pixels",
                "block",
                f"choose at most {side}",
            )
        self.neighbours.resolved(shape)


@dataclass(frozen=True)
class Projection:
    """What a linear operator releases, and for which budget: few noisy values of each group of frames.

    `neighbours` alone say what is protected, as for `Pixelization`.

    Attributes:
        epsilon: Privacy budget of each video, as a whole. 0.5, 2 or 1/3: taken exactly.
        delta: By how much a probability may exceed the bound of e^epsilon, above 0. Say 1e-5.
        neighbours: What is hidden: pixels:M of the whole video (default pixels:16), pixels:M/frame of every
            frame, one frame, the whole clip, or box:WxH/frames:T (or /seconds:S): any T frames, in each of them
            inside one box, wherever it lies.
        operator: block: means of cells in space and time. low-pass: cosines. random: a random projection.
        colour: ycc: luma, and chroma over larger cells. rgb: three values alike. grey: luma alone. Default: ycc
            for what has colours.
        chroma: 1, 2 or 4: how many times as wide chroma's cells are. Default: chosen.
        k: The most values kept of a group of frames. Default: what the noise allows.
        pool: Frames taken together. Default: what the noise allows.
        clip_norm: Clip the projected values' norm: less noise for frame and clip, less contrast.
        clip_segment: Clip 64 frames' values together, not each group's.
        paper: Run Video-DPRP as published (slow). Guarantees nothing.
        split: With paper: b, the budget's share for the projection. Default: 0.8.
        restoration: What is made of released cells, at no cost: learned, tv or none.
        grid: Rows, columns and groups of frames, luma's if there are colours; None to have them chosen by `k`
            and `pool`.

    Raises:
        DposeError: a value is out of range, or two contradict each other.
    """

    epsilon: Fraction
    delta: float
    neighbours: Neighbours = DETAIL
    operator: str = "block"
    colour: str | None = None
    chroma: int | None = None
    k: int | None = None
    pool: int | None = None
    clip_norm: float | None = None
    clip_segment: bool = False
    paper: bool = False
    split: float = SPLIT
    restoration: Restoration = field(default_factory=lambda: Restoration.chosen(LEARNED))
    grid: tuple[int, int, int] | None = None

    def __post_init__(self) -> None:
        _check_common(self, RELEASE_FORMS)
        if self.operator not in OPERATORS:
            raise DposeError("operator-unknown", f"must be {', '.join(OPERATORS)}, not {self.operator!r}", "operator")
        for name in ("k", "pool"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise DposeError("setting-not-positive", f"must be a whole number of at least 1, not {value!r}", name)
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
                "colour-unsupported", "what is clipped, or a paper's, has three values alike", "colour", "say rgb"
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
        delta: Number,
        neighbours: str | int | Neighbours | None = None,
        operator: str = "block",
        **settings: Unpack[ProjectionSettings],
    ) -> Projection:
        """The configuration from what a caller or the command line gives.

        Args:
            epsilon: A number, or text with a decimal or rational number, which is taken exactly.
            delta: As epsilon. 0 for Laplace noise, which an operator must have bounded its L1 norm for.
            neighbours: "pixels:16", "pixels:16/frame", 16, "box:100x200/frames:25" (or "/seconds:4" of a video's
                time stamps), `Neighbours`, "frame" (any one) or "clip" (all of it). Default: pixels:16, or for the
                paper's algorithm what it claims, a frame.
            operator: One of `OPERATORS`.
            settings: The other fields, and `restore`, the name of a restoration: the published algorithm is shown
                as it is. Without a colour, what is clipped or a paper's has rgb.

        Raises:
            DposeError: a setting is unknown, or a value is out of range or not a number.
        """
        refuse_unknown(settings, ProjectionSettings, cls.of)
        clip, paper = settings.get("clip_norm"), settings.get("paper", False)
        restoration = Restoration.chosen(settings.get("restore", LEARNED))
        norm = None if clip is None else float(exact(clip, "clip-norm"))
        colour = settings.get("colour")
        if colour is None and (paper or norm is not None):
            colour = "rgb"
        small = float(exact(delta, "delta"))
        return cls(
            exact(epsilon, "epsilon"),
            small,
            Neighbours.parse(neighbours or ("frame" if paper else DETAIL)),
            operator,
            colour,
            settings.get("chroma"),
            settings.get("k"),
            settings.get("pool"),
            norm,
            settings.get("clip_segment", False),
            paper,
            settings.get("split", SPLIT),
            PAINTED if paper else restoration,
        )

    @property
    def resolved(self) -> bool:
        """True if nothing is left to be chosen but the grid."""
        return self.colour is not None and not (self.colour == "ycc" and self.chroma is None)

    def check_shape(self, shape: Shape) -> None:
        """Refuse a picture or clip that is too small for k, or that has too many bits.

        Raises:
            DposeError: it is, or has.
        """
        if shape.peak != projections.PEAK:
            raise DposeError(
                "depth-unsupported", "only pixelization takes 16-bit values", "image", "scale it to 0..255 before"
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


ReleaseConfig: TypeAlias = Pixelization | Projection


def refuse_unknown(settings: Iterable[str], known: type, call: Callable[..., Any]) -> None:
    """Refuse a misspelt keyword: passed over, it would leave the default in force, which may hide less.

    Args:
        settings: Names that were given.
        known: The `TypedDict` of those that `call` takes besides its own parameters.
        call: What they were given to.

    Raises:
        DposeError: one is not known.
    """
    names = [*known.__annotations__, *list(inspect.signature(call).parameters)[:-1]]
    for name in settings:
        if name not in names:
            hint = did_you_mean(name, names) or f"known are {', '.join(names)}"
            raise DposeError("setting-unknown", f"no setting is called {name!r}", fix=hint)


def exact(value: Number, name: str) -> Fraction:
    """The fraction that `value` stands for."""
    if isinstance(value, bool):
        raise DposeError("setting-not-number", f"must be a number, not {value}", name)
    if isinstance(value, float) and not math.isfinite(value):
        raise DposeError("setting-not-finite", f"must be a finite number, not {value}", name)
    return Fraction(value) if isinstance(value, Fraction) else parse_exact(str(value).strip(), name)


def _check_common(config: ReleaseConfig, forms: Sequence[str]) -> None:
    if not 0 < config.epsilon <= MAX_BUDGET:
        raise DposeError(
            "epsilon-out-of-range",
            f"epsilon must lie between 0 and {MAX_BUDGET:,}, not {as_given(config.epsilon)}",
            fix="1 is strong; above 10 little is protected",
        )
    if config.delta:
        check_released_delta(config.delta, "picture")
    Neighbours.parse(config.neighbours, forms)
    if config.colour not in (None, *COLOURS):
        raise DposeError("colour-unknown", f"must be {', '.join(COLOURS)}, not {config.colour!r}", "colour")
    if config.chroma is not None and (config.colour not in (None, "ycc") or config.chroma not in FACTORS):
        raise DposeError(
            "chroma-unknown",
            f"is how many times as wide as luma's chroma's cells are: {', '.join(map(str, FACTORS))}, with ycc",
            "chroma",
        )


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, min(number, 4096) + 1) if number % n == 0]
