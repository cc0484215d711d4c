"""Scores of held-out private data with noise: of everybody, or of groups of people and how many are in each.

    evaluate_noised(Path("runs/a"), "lspet:/data/lspet:validation", NoisedQuery(Fraction("0.1")), console=console)

A score without noise tells of the people in the data and has no epsilon. With noise it is a release of its own
(`dpose.privacy.noised_query`). It is reserved on the account of the data before it is computed, and its file carries
its statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from dpose.account import committing
from dpose.errors import DposeError
from dpose.files import check_place, is_shipped
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.noise import AesNoise, Key, NoiseSource
from dpose.privacy.noised_query import CONFIDENCE, NoisedQuery, NoisedRatio, Sums, noised_sums, ratio_of, shares_of
from dpose.privacy.ranges import as_given, between, upper
from dpose.privacy.scores import score_statement
from dpose.privacy.sections import EVERYBODY
from dpose.runs.config import DEFAULT_TASK
from dpose.runs.evaluate import RecordedScore, check_recorded, record_score
from dpose.runs.group_scores import counts_of, members_of, unit_joints, unit_scores
from dpose.runs.reporting import make_report
from dpose.runs.scored import reserve_noised_score
from dpose.runs.tasks import ScoredData, on_device, task_entry, task_of
from dpose.training.folder import read_statement
from dpose.training.trained_on import seen_line, trained_on
from dpose.units import Result, Task, UnitDataset


@dataclass(frozen=True)
class NoisedResult:
    """A noised score as a metric's result (`dpose.units.Result`): one number, no counts, no columns for joints.

    Attributes:
        metric: As in "PCKh, mean over images, noised".
        main: The column that stands for all; the only one.
        threshold: The metric's; None if it has none.
        ratio: The score, in [0, 1].
        price: What it cost, in words.
    """

    metric: str
    main: str
    threshold: float | None
    ratio: NoisedRatio
    price: str

    def to_dict(self) -> dict[str, Any]:
        """The numbers, ready for JSON, in percent; "interval" is for the noise alone."""
        shown = {} if self.threshold is None else {"threshold": self.threshold}
        interval = {"confidence": CONFIDENCE, "low": 100 * self.ratio.low, "high": 100 * self.ratio.high}
        return {
            "metric": self.metric,
            **shown,
            "main": self.main,
            "unit": "%",
            "columns": {self.main: 100 * self.ratio.value},
            "interval": {**interval, "of": "the noise; which people were scored is not in it"},
        }

    def __rich__(self) -> str:
        at = "" if self.threshold is None else f" at {self.threshold:g}"
        ends = between(self.ratio.low, self.ratio.high, places=2, times=100)
        return (
            f"{self.metric}{at}: {100 * self.ratio.value:.2f} % ({CONFIDENCE:.0%} interval for the noise {ends} %; it "
            f"does not cover which people were scored)\n{self.price}"
        )


@dataclass(frozen=True)
class NoisedGroups:
    """Noised scores of groups as a metric's result (`dpose.units.Result`).

    Attributes:
        metric: What is scored.
        shares: Of everybody and of each group the share of joints found, noised; nan where unknown.
        units: Of each how many there are, noised.
        price: What it cost, in words.
    """

    metric: str
    shares: Mapping[str, float]
    units: Mapping[str, float]
    price: str

    def to_dict(self) -> dict[str, Any]:
        """The numbers, ready for JSON, shares in percent."""
        notes = {name: None if np.isnan(share) else 100 * share for name, share in self.shares.items()}
        return {
            "metric": self.metric,
            "main": EVERYBODY,
            "unit": "%",
            "columns": notes,
            "units_noised": dict(self.units),
        }

    def __rich__(self) -> Table:
        table = Table(title=f"{self.metric}, %", caption=self.price)
        for name in ("group", "units, about", "found, about"):
            table.add_column(name, justify="left" if name == "group" else "right")
        for name, share in self.shares.items():
            found = "-" if np.isnan(share) else f"{100 * share:.1f}"
            table.add_row(name, f"{self.units[name]:,.0f}", found)
        return table


def evaluate_noised(
    folder: Path,
    data: str,
    query: NoisedQuery,
    *,
    limit: int | None = None,
    out: Path | None = None,
    console: Console,
    noise: NoiseSource | None = None,
) -> NoisedResult | NoisedGroups:
    """The score of the model in `folder` on held-out private `data`, with noise; recorded with its statement.

    Each call is a release of its own: the same settings again add up to the sum of both.

    Args:
        folder: A run or model folder.
        data: A data spec; the split defaults to validation.
        query: What is released, and what it may cost.
        limit: Use only so many units, a fixed choice by name.
        out: A file to write the score with its statement to as well; needed of weights that come with dpose, beside
            which nothing is written.
        console: Where progress goes.
        noise: Where the noise comes from; fresh and secret where None. Nothing is guaranteed with one that is seeded.
    """
    entry = task_entry(task_of(folder) or DEFAULT_TASK)
    model = on_device(entry.load(folder))
    statement = read_statement(folder)
    scored = entry.scored(folder, model, data, limit=limit, detections=None, console=console)
    task = _by_unit(scored)
    check_kept(folder, out)
    check_recorded(folder, statement)
    # what can fail for reasons of its own does so before anything is spent
    named = task.metric().compute()
    if query.joints is not None:
        counts_of(named)
    source = noise or AesNoise(Key.fresh())
    protected, reserved = reserve_noised_score(
        folder,
        statement,
        scored.units,
        query,
        seeded=source.seeded,
        name=scored.name,
        same=scored.same,
        console=console,
    )
    with committing(reserved):
        hidden = query.relation is Relation.ADD_REMOVE
        units = None if hidden else len(protected.data)
        values = _values(query, task, model, protected.data, None if hidden else console)
        result = _result(named, query, noised_sums(query, values, source), units, protected.neighbours)
        privacy = score_statement(query, protected.neighbours, units, result.metric, seeded=source.seeded)
        seen = seen_line(trained_on(folder), scored.names.declared)
        if seen:
            console.print(seen, highlight=False, soft_wrap=True)
        score = RecordedScore(scored.name, False, units, result, privacy=privacy, seen=seen)
        record_score(folder, score, statement, console, out)
    if (folder / "report.html").exists():
        make_report(folder, console=console)
    return result


def check_kept(folder: Path, out: Path | None) -> None:
    """Refuse, before it is charged, a score with noise that could not be written: its statement has to be somewhere.

    Args:
        folder: The model's.
        out: A file that the score is written to.

    Raises:
        DposeError: the weights come with dpose, and there is no such file; or what is written to cannot be.
    """
    if out is not None:
        check_place(out, as_file=True)
    if is_shipped(folder) and out is None:
        raise DposeError(
            "score-beside-shipped-model",
            "a score with noise has a statement, and nothing is written beside weights that come with dpose",
            str(folder),
            "give --out FILE, or a copy of that folder",
        )


def _by_unit(scored: ScoredData) -> Task:
    if scored.public:
        raise DposeError(
            "noise-unneeded",
            "these data are public, and a score of them costs nothing",
            scored.name,
            "leave --epsilon out",
        )
    if scored.task is None:
        raise DposeError(
            "unit-scores-missing", "this task has no score for a unit by itself", "--epsilon", "score public data"
        )
    return scored.task


def _values(query: NoisedQuery, task: Task, model: torch.nn.Module, units: UnitDataset, console: Console | None) -> Any:
    """What each unit adds to the sums, as the query takes it: private."""
    if query.joints is None:
        return unit_scores(task, model, units, console=console)
    counts = unit_joints(task, model, units, query.joints, console=console)
    return (members_of(units, query.groups), counts) if query.groups else counts


def _result(
    named: Result, query: NoisedQuery, sums: Sums, units: int | None, near: Neighbours
) -> NoisedResult | NoisedGroups:
    price = price_of(query, near)
    if query.groups:
        return _groups(query, sums, price)
    words = named.to_dict()
    kind = f"mean over {near.unit}s" if query.joints is None else f"pooled, {query.joints} joints a unit"
    return NoisedResult(
        metric=f"{words['metric']}, {kind}, noised",
        main=words["main"],
        threshold=words.get("threshold"),
        ratio=ratio_of(query, sums, units if query.joints is None else None),
        price=price,
    )


def _groups(query: NoisedQuery, sums: Sums, price: str) -> NoisedGroups:
    """Everybody is the first attribute's groups together, by their noised sizes: post-processing, and rough."""
    found = shares_of(query, sums)
    shares, sizes = found[: len(query.groups[0][1])].T
    known = ~np.isnan(shares) & (sizes > 0)
    total = float(sizes[known].sum())
    everybody = float((shares[known] * sizes[known]).sum() / total) if total else float("nan")
    by_name = {name: (float(share), float(size)) for name, (share, size) in zip(query.names, found, strict=True)}
    notes = {EVERYBODY: (everybody, float(sizes.sum()))} | by_name
    return NoisedGroups(
        f"joints found by groups, {query.joints} a unit, noised",
        {name: share for name, (share, _) in notes.items()},
        {name: size for name, (_, size) in notes.items()},
        price,
    )


def price_of(query: NoisedQuery, near: Neighbours) -> str:
    """What a noised score costs, in words."""
    dearer = query.joints is not None and not near.replaces
    return (
        f"It costs epsilon {upper(query.epsilon)} at delta {as_given(query.delta or 0)} for {near} "
        f"({near.relation.words}), which stands in the account of these data"
        + (f", there as the larger price of one {near.unit} exchanged for another" if dearer else "")
        + ". Every further run of the command is another release, and adds as much."
    )
