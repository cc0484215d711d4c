"""Data, notes and number formats that all experiments of this paper share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

from dpose.errors import DposeError
from dpose_lab.papers.experiment import Cell, Outcome, Request
from dpose_lab.papers.reference import Paper, read_paper
from dpose_lab.photos.photo import Photos
from dpose_lab.photos.spec import PhotoSpec, open_photos

PETS, VENICE, PORTRAIT = (576, 768), (1080, 1920), (512, 384)
"""Sizes at which people are rendered in place of a dataset, (height, width); the first two are the datasets' own."""
DEFAULT = "synthetic:ward:test"

ORIGINALS = (
    "figures and numbers are made from unprotected originals, with noise that can be drawn again: make them of "
    "pictures that need no protection"
)
PAPER_MODE = (
    "paper mode runs the paper's algorithms as printed; the epsilon it claims is not what it costs "
    "(docs/proofs/pixelization.md)"
)


@dataclass(frozen=True)
class Data:
    """Photos that an experiment is run on.

    Attributes:
        specs: Specs given by the user.
        sets: Photos of each spec, or of each size of rendered people.
        private: For each of `sets`, True if a person in it needs protection.
    """

    specs: tuple[str, ...]
    sets: tuple[Photos, ...]
    private: tuple[bool, ...] = ()

    @classmethod
    def open(cls, request: Request, sizes: Sequence[tuple[int, int]], few: int, *, masks: bool = False) -> Data:
        """Open the requested data, or rendered people.

        Args:
            request: The user's request.
            sizes: Sizes at which people are rendered.
            few: Number of rendered people without a limit; all files are used.
            masks: True to refuse pictures without masks.
        """
        specs = request.data or (DEFAULT,)
        if len(set(specs)) < len(specs):
            raise DposeError("data-given-twice", "the same data twice", ", ".join(specs))
        sets: list[Photos] = []
        private: list[bool] = []
        for spec in specs:
            parsed = PhotoSpec.parse(spec)
            rendered = parsed.dataset.rendered
            limit = few if rendered and request.limit is None else request.limit
            sets += [open_photos(spec, size, limit) for size in (sizes if rendered else sizes[:1])]
            if masks and not sets[-1].masks:
                raise DposeError("masks-missing", "has no masks, which this experiment needs", spec)
            private += [not parsed.for_purpose("evaluate").public] * (len(sets) - len(private))
        return cls(specs, tuple(sets), tuple(private))

    def hashes(self) -> Iterator[str]:
        """Digests of all originals that need protection."""
        for photos in compress(self.sets, self.private):
            for index in range(len(photos)):
                yield from photos.load(index).hashes

    def to_dict(self) -> dict[str, Any]:
        """Names of the data as JSON, stored with the results."""
        return {"data": list(self.specs), "photos": [[one.title, len(one)] for one in self.sets]}

    def notes(self) -> list[str]:
        """Describe the photos."""
        lines = []
        for one in self.sets:
            kind = "; rendered, no real people" if one.rendered else ""
            masks = f"; {one.masks}" if one.masks else "; no masks"
            lines.append(f"data: {one.title}, {with_count(len(one), 'picture')}{masks}{kind}")
        return lines


@dataclass(frozen=True)
class ShownOutcomes:
    """Outcomes by cell, for tables.

    Attributes:
        outcomes: Outcomes of all cells.
    """

    outcomes: Sequence[Outcome]
    by_key: Mapping[str, Outcome] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_key", {outcome.cell.key: outcome for outcome in self.outcomes})

    def values(self, key: str) -> Mapping[str, Any] | None:
        """Measurements of a cell; None unless it is done."""
        outcome = self.by_key.get(key)
        return outcome.values if outcome is not None and outcome.status == "done" else None

    def text(self, key: str, name: str, write: Callable[[float], str] | None = None) -> str:
        """Format one number of a cell, or the reason why there is none."""
        outcome = self.by_key[key]
        if outcome.status != "done":
            return outcome.status
        value = outcome.values.get(name)
        return "-" if value is None else (write or four_digits)(value)

    def curve(self, keys: Iterable[tuple[float, str]], name: str) -> list[tuple[float, float]]:
        """Points of the finished cells, for a line."""
        points = []
        for x, key in keys:
            values = self.values(key)
            if values is not None and values.get(name) is not None:
                points.append((x, float(values[name])))
        return points


def printed_of(name: str) -> Paper:
    """The paper's findings on one of its tables or figures."""
    return read_paper(__package__ or "", "paper.yaml")[name]


def cell_of(number: int, key: str, settings: Mapping[str, Any], weight: int) -> Cell:
    """Make a cell of data set `number`, counted from 0."""
    return Cell(f"{number + 1}-{key}", {"data": number + 1, **settings}, weight)


def averaged(measured: Sequence[Mapping[str, float | None]]) -> dict[str, Any]:
    """Means over photos, and deviations of those that vary; None stays None."""
    out: dict[str, Any] = {"photos": len(measured)}
    for name in measured[0]:
        values = [value for one in measured if (value := one[name]) is not None]
        if not values:
            out[name] = None
            continue
        mean = sum(values) / len(values)
        out[name] = mean
        if any(value != values[0] for value in values):
            out[f"{name}_sd"] = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
    return out


def four_digits(value: float) -> str:
    """Format a number with four digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def three(value: float) -> str:
    """Format a share with three decimals."""
    return f"{value:.3f}"


def with_count(count: int, what: str) -> str:
    """Format a count, as in "1 picture", "2 pictures"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
