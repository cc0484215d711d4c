"""What the pose papers print: a table as data, row by row, with what must be minded about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

SEEDS = {"000": "paper000.yaml", "003": "paper003.yaml"}


@dataclass(frozen=True)
class Line:
    """One printed row.

    Attributes:
        method: Of training.
        strategy: "finetune", "full" (the papers' "finetuning from scratch") or "scratch".
        clip_norm: C; None without privacy.
        epsilon: None without privacy.
        values: By column, in percent.
        sure: False where the row looks misprinted.
    """

    method: str
    strategy: str
    clip_norm: float | None
    epsilon: float | None
    values: Mapping[str, float]
    sure: bool = True


@dataclass(frozen=True)
class Printed:
    """One printed table.

    Attributes:
        name: As in "000/table2".
        title: What it shows.
        where: Its place in the paper.
        columns: In order.
        lines: In order.
        notes: What must be minded.
    """

    name: str
    title: str
    where: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    @property
    def scored_by(self) -> str:
        """The metric of its numbers, as results name it."""
        return "OKS AP" if "AP" in self.columns else "PCKh"


@cache
def printed(name: str) -> Printed:
    """The table of that name, such as "000/table2".

    Raises:
        KeyError: no such table.
    """
    seed, _, table = name.partition("/")
    return _read(name, _content(seed)[table])


def tables_of(seed: str) -> tuple[str, ...]:
    """The names of all tables of a paper."""
    return tuple(f"{seed}/{table}" for table in _content(seed))


@cache
def _content(seed: str) -> Mapping[str, Any]:
    text = (files(__package__ or "") / SEEDS[seed]).read_text(encoding="utf-8")
    tables: Mapping[str, Any] = yaml.safe_load(text)["tables"]
    return tables


def _read(name: str, entry: Mapping[str, Any]) -> Printed:
    columns = tuple(str(column) for column in entry["columns"])
    unsure = [(u["strategy"], u["clip_norm"], u["epsilon"]) for u in entry.get("unsure", ())]
    lines = tuple(
        Line(
            method=block.get("method", entry["method"]),
            strategy=block["strategy"],
            clip_norm=block.get("clip_norm"),
            epsilon=epsilon or None,
            values=dict(zip(columns, values, strict=True)),
            sure=(block["strategy"], block.get("clip_norm"), epsilon) not in unsure,
        )
        for block in entry["blocks"]
        for epsilon, values in block["rows"].items()
    )
    return Printed(name, entry["title"], entry["where"], columns, lines, tuple(entry.get("notes", ())))
