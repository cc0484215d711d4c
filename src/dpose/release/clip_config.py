"""What a user asks of a released video, checked: epsilon and delta, neighbours, operator, clipping."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from dpose.errors import DposeError
from dpose.privacy.accounting import Relation, check_delta
from dpose.privacy.rounding import as_given
from dpose.privacy.statement import Neighbours
from dpose.release.clip_cells import ClipShape
from dpose.release.config import MAX_BUDGET, Number, exact
from dpose.release.projections import ONE_FRAME

OPERATORS = ("block", "low-pass", "random")
PAPER_K = 32 * 32 * 3
"""k in seed 004."""
SPLIT = 0.8
"""b in seed 004: the share of the budget that goes to the projection."""
SEGMENT = 64
"""Frames that are clipped together where a norm of a whole clip is clipped."""


@dataclass(frozen=True)
class ClipSetting:
    """What to release of a video, and for which budget.

    Attributes:
        epsilon: The total for the whole video.
        delta: As epsilon.
        scope: "clip" for m pixels of the whole video, "frame" for m pixels of every frame, "one frame" for m pixels of
            any one frame.
        m: How many pixels; None for all there are.
        operator: One of `OPERATORS`.
        k: The most values kept of a group of frames; None to have it chosen.
        pool: Frames of a group; None to have it chosen.
        clip_norm: Bound on the L2 norm of the projected values; None for no clipping.
        clip_segment: Whether the bound is on all values of `SEGMENT` frames together, rather than on each group's.
        paper: Whether to run seed 004's algorithm as printed, which guarantees nothing.
        split: b, the share of the budget that the paper's algorithm gives to the projection.

    Raises:
        DposeError: a value is out of range.
    """

    epsilon: Fraction
    delta: float
    scope: str = "clip"
    m: int | None = 16
    operator: str = "block"
    k: int | None = None
    pool: int | None = None
    clip_norm: float | None = None
    clip_segment: bool = False
    paper: bool = False
    split: float = SPLIT

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= MAX_BUDGET:
            raise DposeError(
                f"epsilon must lie between 0 and {MAX_BUDGET:,}, not {as_given(self.epsilon)}",
                fix="1 is strong; above 10 little is protected",
            )
        check_delta(self.delta)
        if self.m is not None and self.m < 1:
            raise DposeError(f"m must be at least 1 pixel, not {self.m}", "neighbours")
        if self.operator not in OPERATORS:
            raise DposeError(f"must be {', '.join(OPERATORS)}, not {self.operator!r}", "operator")
        for name in ("k", "pool"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise DposeError(f"must be a whole number of at least 1, not {value!r}", name)
        if self.clip_norm is not None and not 0 < self.clip_norm < 1e9:
            raise DposeError(f"must be a positive number, not {self.clip_norm:g}", "clip-norm")
        if self.clip_segment and self.clip_norm is None:
            raise DposeError("there is no norm to clip to", "clip-norm", "give one")
        if self.paper and (self.scope, self.m) != (ONE_FRAME, None):
            raise DposeError(
                "the paper's algorithm claims to protect one frame",
                "neighbours",
                "leave them out, or say frame",
            )
        if not 0 < self.split < 1:
            raise DposeError(f"b must lie between 0 and 1, not {self.split:g}", "split")
        if self.split != SPLIT and not self.paper:
            raise DposeError("only the paper's algorithm splits its budget", "split", "leave it out")
        if self.paper and (self.pool is not None or self.clip_norm is not None or self.operator != "block"):
            raise DposeError("the paper's algorithm has its own operator, and no clipping", "paper")

    @classmethod
    def of(
        cls,
        epsilon: Number,
        delta: Number,
        neighbours: str | int | None = None,
        operator: str = "block",
        *,
        k: int | None = None,
        pool: int | None = None,
        clip_norm: Number | None = None,
        clip_segment: bool = False,
        paper: bool = False,
        split: float = SPLIT,
    ) -> ClipSetting:
        """A setting from what a caller or the command line gives.

        Args:
            epsilon: A number, or text with a decimal or rational number, which is taken exactly.
            delta: As epsilon.
            neighbours: "pixels:16", "pixels:16/frame", 16, "frame" or "clip". Default: pixels:16, or for the paper's
                algorithm what it claims, a frame.
            operator: One of `OPERATORS`.
            k: The most values kept of a group.
            pool: Frames of a group.
            clip_norm: Bound on the norm of projected values.
            clip_segment: Whether it is one of `SEGMENT` frames together.
            paper: Whether to run seed 004's algorithm.
            split: b of that algorithm.

        Raises:
            DposeError: a value is out of range or not a number.
        """
        scope, m = parse_clip_neighbours(neighbours or ("frame" if paper else "pixels:16"))
        norm = None if clip_norm is None else float(exact(clip_norm, "clip-norm"))
        small = float(exact(delta, "delta"))
        return cls(
            exact(epsilon, "epsilon"), small, scope, m, operator, k, pool, norm, clip_segment, paper, split
        )

    def neighbours(self, shape: ClipShape) -> Neighbours:
        """The neighbouring relation for a clip of this shape.

        Raises:
            DposeError: m is larger than the clip.
        """
        most = shape.pixels * (shape.frames if self.scope == "clip" else 1)
        m = most if self.m is None else self.m
        if m > most:
            raise DposeError(
                f"m is {m:,}, but there are only {most:,} pixels", "neighbours", "choose a smaller m"
            )
        return Neighbours(Relation.REPLACE, m, self.scope)

    def check_k(self, shape: ClipShape) -> None:
        """Refuse a k that no clip of this shape has.

        Raises:
            DposeError: it is larger than d, or smaller than one value a channel.
        """
        k = PAPER_K if self.paper and self.k is None else self.k
        if k is not None and k > shape.values:
            raise DposeError(
                f"{k:,} values cannot be kept of a frame that has {shape.values:,} ({shape.width} x {shape.height} x "
                f"{shape.channels})",
                "k",
                f"choose at most {shape.values:,}",
            )
        if k is not None and k < shape.channels:
            raise DposeError(f"must be at least {shape.channels}, one value a channel, not {k}", "k")


def parse_clip_neighbours(value: str | int) -> tuple[str, int | None]:
    """The scope, and m, None for all there are.

    Raises:
        DposeError: it is none of "pixels:M", "pixels:M/frame", M, "frame", "clip".
    """
    if value == "frame":
        return ONE_FRAME, None
    if value == "clip":
        return "clip", None
    found = re.fullmatch(r"(?:pixels:)?(-?\d{1,12})(/frame)?", str(value))
    if not found or isinstance(value, bool):
        raise DposeError(
            f"{value!r} is not of the form pixels:M, pixels:M/frame, frame or clip", "neighbours"
        )
    return "frame" if found[2] else "clip", int(found[1])
