"""Scores of groups of private people, and how many each group has, with noise: one release under the budget.

    asked = NoisedEvaluation(Fraction(1), joints=14)
    evaluate_groups_noised(Path("runs/a"), "lspet:/data/lspet:validation", asked, console=console)

Which groups there are is fixed here and public; who is in which, and how many, is private. The mechanism, its
sensitivity and its proof are those of `dpose.privacy.noised_groups`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from dpose.account import committing
from dpose.errors import DposeError
from dpose.privacy.neighbours import Relation
from dpose.privacy.noise import AesNoise, Key, NoiseSource
from dpose.privacy.noised_groups import GroupQuery, ratios_of
from dpose.privacy.noised_ratio import noised_sums
from dpose.privacy.sections import EVERYBODY
from dpose.runs.evaluate import record_score
from dpose.runs.group_scores import SIZES, attributes_of
from dpose.runs.noised_score import NoisedEvaluation, check_kept, price_of, score_statement
from dpose.runs.scored import reserve_noised_score
from dpose.runs.tasks import DEFAULT_TASK, on_device, task_entry, task_of
from dpose.runs.unit_scores import unit_joints
from dpose.training.folder import read_statement
from dpose.units import UnitDataset

GROUPS: Mapping[str, tuple[str, ...]] = {"posture": ("upright", "not upright"), "size": SIZES}
"""The groups that noise is drawn for, by attribute, whether anybody is in them or not."""
NAMES = [f"{attribute}: {value}" for attribute, values in GROUPS.items() for value in values]


@dataclass(frozen=True)
class NoisedGroups:
    """Noised scores of groups as a metric's result (`dpose.units.Result`).

    Attributes:
        metric: What is scored.
        shares: Of everybody and of each group of `NAMES` the share of joints found, noised; nan where unknown.
        units: Of each how many there are, noised.
        price: What it cost, in words.
    """

    metric: str
    shares: Mapping[str, float]
    units: Mapping[str, float]
    price: str

    def to_dict(self) -> dict[str, Any]:
        """The numbers, ready for JSON, shares in percent."""
        told = {name: None if np.isnan(share) else 100 * share for name, share in self.shares.items()}
        return {
            "metric": self.metric,
            "main": EVERYBODY,
            "unit": "%",
            "columns": told,
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


def group_query(relation: Relation, joints: int) -> GroupQuery:
    """What is asked about the groups of `GROUPS`."""
    return GroupQuery(relation, joints, len(GROUPS), len(NAMES))


def members_of(said: Sequence[Mapping[str, str]]) -> NDArray[np.int64]:
    """By each attribute of `GROUPS` the place in `NAMES` of each unit's group, (n, A); -1 for none."""
    places = {name: place for place, name in enumerate(NAMES)}
    rows = [[places.get(f"{attribute}: {one.get(attribute)}", -1) for attribute in GROUPS] for one in said]
    return np.asarray(rows, np.int64).reshape(len(said), len(GROUPS))


def evaluate_groups_noised(
    folder: Path,
    data: str,
    asked: NoisedEvaluation,
    *,
    limit: int | None = None,
    out: Path | None = None,
    console: Console,
    noise: NoiseSource | None = None,
) -> NoisedGroups:
    """Scores and sizes of groups of held-out private people, with noise; recorded with their statement.

    Each call is a release of its own.

    Args:
        folder: A run or model folder.
        data: A data spec; the split defaults to validation.
        asked: What it may cost, with the most joints of a unit that count.
        limit: Use only so many units, a fixed choice by name.
        out: As `dpose.runs.noised_score.evaluate_noised`.
        console: Where progress goes.
        noise: Where the noise comes from; fresh and secret where None.

    Raises:
        DposeError: nobody in the data needs protection, no number of joints is given, the run protects them, or a
            budget leaves too little.
    """
    if asked.joints is None:
        raise DposeError(
            "groups-without-cap",
            "noised groups need a cap on a unit's joints",
            "--groups",
            "give --pooled --joints-per-unit 14",
        )
    entry = task_entry(task_of(folder) or DEFAULT_TASK)
    model, statement = on_device(entry.load(folder)), read_statement(folder)
    scored = entry.scored(folder, model, data, limit=limit, detections=None, console=console)
    if scored.public or scored.task is None:
        raise DposeError(
            "groups-need-no-noise",
            "groups of these data need no noise, or cannot be told",
            scored.name,
            "leave --epsilon out",
        )
    check_kept(folder, out)
    query = group_query(asked.relation, asked.joints)
    event = asked.event_of(query)
    source = noise or AesNoise(Key.fresh())
    protected, reserved = reserve_noised_score(
        folder,
        statement,
        scored.units,
        query,
        event,
        delta=asked.delta or 0.0,
        seeded=source.seeded,
        name=scored.name,
        same=scored.same,
        console=console,
    )
    with committing(reserved):
        units = None if asked.relation is Relation.ADD_REMOVE else len(protected.data)
        quiet = None if units is None else console
        counts = unit_joints(scored.task, model, protected.data, asked.joints, console=quiet)
        members = members_of(_said(protected.data))
        found = ratios_of(query, noised_sums(query, (members, counts), event, source))
        result = _result(found, f"joints found by groups, {asked.joints} a unit, noised")
        result = replace(result, price=price_of(asked, protected.neighbours))
        privacy = score_statement(
            asked, event, protected, units, result.metric, seeded=source.seeded, query=_words(query, asked)
        )
        record_score(
            folder, scored.name, False, units, result, {}, statement, console, privacy=privacy, out=out
        )
    return result


def _said(units: UnitDataset) -> list[dict[str, str]]:
    return [attributes_of(units, index) for index in range(len(units))]


def _words(query: GroupQuery, asked: NoisedEvaluation) -> tuple[str, Fraction]:
    """What was asked, and its sensitivity in L1 norm."""
    return (
        f"of each of {len(NAMES)} fixed groups by {' and '.join(GROUPS)}: joints found, joints missed (at most "
        f"{asked.joints} of a unit together) and units, each noised; released are found / (found + missed) and the "
        "number of units"
    ), Fraction(query.l1)


def _result(found: NDArray[np.float64], metric: str) -> NoisedGroups:
    """Everybody is the first attribute's groups together, by their noised sizes: post-processing, and rough."""
    first = len(next(iter(GROUPS.values())))
    shares, sizes = found[:first].T
    known = ~np.isnan(shares) & (sizes > 0)
    total = float(sizes[known].sum())
    everybody = float((shares[known] * sizes[known]).sum() / total) if total else float("nan")
    return NoisedGroups(
        metric,
        {EVERYBODY: everybody} | {name: float(share) for name, share in zip(NAMES, found[:, 0], strict=True)},
        {EVERYBODY: float(sizes.sum())}
        | {n: float(size) for n, size in zip(NAMES, found[:, 1], strict=True)},
        "",
    )
