"""Seed 004's tables with our results: a row per method, beside the paper's numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpose.action.data import ActionSpec, VideoSet, open_videos
from dpose.errors import DposeError
from dpose.release.config import SPLIT
from dpose.report.results import Table
from dpose_lab.papers.experiment import Cell, Findings, Outcome, Request, Values
from dpose_lab.papers.reference import Paper, read_paper
from dpose_lab.papers.video.measure import STEPS, measure_videos
from dpose_lab.papers.video.methods import (
    DIMENSIONS,
    EPSILONS,
    FOREIGN,
    METHODS,
    OBSCURED,
    RAW,
    SHARES,
    VideoMethod,
    available,
    parse_external,
)

RUNS = 3
_EPS = [str(e) for e in EPSILONS]
ROWS: dict[str, tuple[str, ...]] = {
    "table1": (
        *OBSCURED,
        *FOREIGN,
        RAW.key,
        *(f"{name}-{e}" for name in ("block", "paper", "dp-sgd", "multiclip") for e in _EPS),
    ),
    "table2": (
        RAW.key,
        *(f"{name}-{e}" for name in ("dp-sgd", "multiclip", "paper", "block") for e in _EPS),
        *(f"block-{e}-3clips" for e in _EPS),
    ),
    "table3": (RAW.key, *("paper-8" if k == 3072 else f"paper-8-k{k}" for k in DIMENSIONS)),
    "table4": (RAW.key, *("paper-8" if b == SPLIT else f"paper-8-b{b:g}" for b in SHARES)),
    "table5": ("isr-32x24", "face-blur", "block-8", "paper-8"),
}
QUICK: dict[str, tuple[str, ...]] = {
    "table1": (RAW.key, "block-8", "paper-8", "isr-16x12", "pixelate", "dp-sgd-8", "multiclip-8"),
    "table2": (RAW.key, "dp-sgd-8", "multiclip-8", "block-8", "block-8-3clips"),
    "table3": (RAW.key, "paper-8", "paper-8-k15360"),
    "table4": (RAW.key, "paper-8", "paper-8-b0.2"),
    "table5": ("isr-32x24", "block-8", "paper-8"),
}
"""Rows that `--quick` runs, once."""
COLUMNS = (
    ("top1_raw", "Top-1, raw test"),
    ("top1_released", "Top-1, released test"),
    ("cmap_raw", "cMAP, raw test"),
    ("f1_raw", "F1, raw test"),
    ("cmap_released", "cMAP, released test"),
    ("f1_released", "F1, released test"),
    ("release_seconds", "s a video"),
)


@dataclass(frozen=True)
class Study:
    """A table bound to its videos.

    Attributes:
        table: Name, such as "table1".
        spec: Spec of the videos.
        train: Videos to learn from.
        test: Videos to test on.
        witness: Other data that attributes are learnt from; None for `train`.
        external: Folders of videos that were made elsewhere, by row.
        folder: Folder of released files.
        seed: Seed of all randomness; each run adds one.
        quick: True to run only `QUICK`.
        public: True if the videos and `witness` are public.
    """

    table: str
    spec: ActionSpec
    train: VideoSet
    test: VideoSet
    witness: VideoSet | None
    external: dict[str, Path]
    folder: Path
    seed: int
    quick: bool
    public: tuple[bool, bool] = (False, False)

    @classmethod
    def of(cls, table: str, request: Request) -> Study:
        """Open the requested videos, or the embedded clips."""
        if len(request.data) > 2:
            raise DposeError(
                "data-given-several",
                "a table takes videos, and perhaps other data to learn attributes from",
                ", ".join(request.data),
            )
        spec = ActionSpec.parse(request.data[0] if request.data else "synthetic-clips")
        own = ActionSpec(spec.name, spec.root, "train")
        train = open_videos(own, purpose="train", limit=request.limit)
        test = open_videos(ActionSpec(spec.name, spec.root, "test"), purpose="evaluate", limit=request.limit)
        if not train.actions:
            raise DposeError("actions-missing", "has no actions to learn", str(spec))
        witness = _witness(request, test)
        specs = (spec, ActionSpec.parse(request.data[1]) if witness else spec)
        return cls(
            table,
            spec,
            train,
            test,
            witness,
            parse_external(request.external),
            request.folder,
            request.noise_seed,
            request.quick,
            (request.data_public or specs[0].public, request.data_public or specs[1].public),
        )

    def hashes(self) -> Iterator[str]:
        """Digests of all videos and pictures that need protection."""
        read = [] if self.public[0] else [*self.train.videos, *self.test.videos]
        if self.witness is not None and not self.public[1]:
            read += self.witness.videos
        for video in read:
            yield from video.source.hashes()

    @property
    def settings(self) -> Values:
        """Settings that the results depend on."""
        return {
            "data": str(self.spec),
            "train": len(self.train),
            "test": len(self.test),
            "seed": self.seed,
            "quick": self.quick,
            "external": {name: str(folder) for name, folder in self.external.items()},
            **({} if self.witness is None else {"attributes": [len(self.witness), *self.witness.attributes]}),
        }

    @property
    def cells(self) -> Sequence[Cell]:
        """Cells, one per method and run, of those that can be run here; the raw one first."""
        keys = QUICK[self.table] if self.quick else ROWS[self.table]
        wanted = {*keys, *(name for name in self.external if name in ROWS[self.table])}
        runs = 1 if self.quick else RUNS
        ordered = sorted((k for k in ROWS[self.table] if k in wanted), key=lambda k: k != RAW.key)
        return [
            Cell(f"{key}-run{run + 1}", {"method": key, "run": run + 1}, STEPS)
            for key in ordered
            if available(METHODS[key], self.external)
            for run in range(runs)
        ]

    def run(self, cell: Cell, progress: Callable[[], None]) -> Values:
        """Train and test a cell."""
        seed = self.seed + int(cell.settings["run"]) - 1
        method = METHODS[cell.settings["method"]]
        folder = self.folder / "released" / cell.key
        return measure_videos(
            method,
            self.train,
            self.test,
            seed,
            self.external,
            folder,
            progress,
            witness=self.witness,
            public=self.public,
        )

    def show(self, outcomes: Sequence[Outcome]) -> Findings:
        """Present the table."""
        self._check_raw(outcomes)
        paper = video_table_of(self.table)
        tables = (Table(f"seed 004, {self.table}", self._head(), self._rows(outcomes)), _printed(paper))
        return Findings(tables, (), self._notes(paper))

    def _check_raw(self, outcomes: Sequence[Outcome]) -> None:
        scores = _values(outcomes, RAW.key, "top1_raw")
        if not scores:
            return
        chance = 1 / len(self.train.actions)
        bar = 100 * (chance + 3 * math.sqrt(chance * (1 - chance) / len(self.test)))
        if statistics.mean(scores) < bar:
            raise DposeError(
                "baseline-learns-nothing",
                f"the model learns nothing from raw videos: top-1 {statistics.mean(scores):.1f} %, and guessing may "
                f"reach {bar:.1f} %",
                self.table,
                "use more videos; a table beside such a row would mean nothing",
            )

    def _head(self) -> tuple[str, ...]:
        return ("method", "guarantee and its neighbours", *(title for _, title in COLUMNS))

    def _rows(self, outcomes: Sequence[Outcome]) -> tuple[tuple[str, ...], ...]:
        rows = []
        for key in ROWS[self.table]:
            method = METHODS[key]
            mine = [o for o in outcomes if o.cell.settings["method"] == key]
            rows.append((method.title, method.guarantee, *(self._text(method, mine, c) for c, _ in COLUMNS)))
        return tuple(rows)

    def _text(self, method: VideoMethod, outcomes: Sequence[Outcome], column: str) -> str:
        if not outcomes:
            return "not run" if available(method, self.external) else "not available"
        done = [o for o in outcomes if o.status == "done"]
        if not done:
            return outcomes[0].status
        scores = [float(o.values[column]) for o in done if o.values.get(column) is not None]
        if not scores:
            return "-"
        digits = 3 if column == "release_seconds" else 2
        mean = f"{statistics.mean(scores):.{digits}f}"
        return f"{mean} ± {statistics.variance(scores):.{digits}f}" if len(scores) > 1 else mean

    def _notes(self, paper: Paper) -> tuple[str, ...]:
        chance = 100 / len(self.train.actions)
        quick = f"--quick: only {', '.join(QUICK[self.table]) or 'nothing'}, one run each"
        return (
            *self.train.notes,
            *self.test.notes,
            *(() if self.witness is None else (*self.witness.notes, "attributes are learnt from the data above")),
            quick if self.quick else f"means and variances over {RUNS} runs",
            f"guessing an action is right in {chance:.1f} %; guessing attributes gives the cMAP of their frequencies",
            "raw test is protocol 1 (train on released, test on raw videos); released test is protocol 2",
            "guarantees differ in what they protect: an epsilon for 16 pixels, for a frame and for a training video "
            "are not comparable numbers",
            "models: nano, trained from nothing; the paper's is MViT-B from Kinetics-400",
            "obfuscations work on frames enlarged to 256 rows; the paper's algorithm keeps the same share of a frame, "
            "k / 230,400",
            "all noise comes from a seed: these results protect no one",
            *paper.notes(),
        )


def _witness(request: Request, test: VideoSet) -> VideoSet | None:
    if len(request.data) < 2:
        return None
    spec = ActionSpec.parse(request.data[1])
    train = open_videos(ActionSpec(spec.name, spec.root, "train"), purpose="train", limit=request.limit)
    if not train.attributes or train.attributes != test.attributes:
        raise DposeError(
            "attributes-differ",
            "has not the attributes that the videos are labelled with",
            str(spec),
            f"they are {', '.join(test.attributes) or 'none'}; vispr goes with pahmdb",
        )
    return train


def video_table_of(table: str) -> Paper:
    """The paper's findings in one of its tables."""
    return read_paper(__package__ or "", "paper.yaml")[table]


def _values(outcomes: Sequence[Outcome], key: str, column: str) -> list[float]:
    return [float(o.values[column]) for o in outcomes if o.cell.settings["method"] == key and o.status == "done"]


def _printed(paper: Paper) -> Table:
    """The paper's numbers, as text."""
    names: list[str] = []
    for reading in paper.readings:
        names += [name for name in reading.values if name not in names]

    def cell(values: Any, name: str) -> str:
        return str(values.get(name, "-"))

    rows = tuple((str(r.settings["row"]), *(cell(r.values, name) for name in names), r.note) for r in paper.readings)
    return Table("the paper's numbers", ("row", *names, "where"), rows)
