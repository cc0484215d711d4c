"""Printed tables of the pose papers as data, row by row, with notes."""

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
    """A printed row.

    Attributes:
        method: Training method.
        strategy: "finetune", "full" (the papers' "finetuning from scratch") or "scratch".
        clip_norm: C; None without privacy.
        epsilon: None without privacy.
        values: Values by column, in percent.
        sure: False if the row looks misprinted.
    """

    method: str
    strategy: str
    clip_norm: float | None
    epsilon: float | None
    values: Mapping[str, float]
    sure: bool = True


@dataclass(frozen=True)
class Printed:
    """A printed table.

    Attributes:
        name: Name, as in "000/table2".
        title: Title of the table.
        where: Place in the paper.
        columns: Columns in order.
        lines: Rows in order.
        notes: Notes for the reader.
    """

    name: str
    title: str
    where: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    @property
    def scored_by(self) -> str:
        """Metric of the numbers, by its name in results."""
        return "OKS AP" if "AP" in self.columns else "PCKh"


@cache
def printed(name: str) -> Printed:
    """Read the table of a name such as "000/table2".

    Raises:
        KeyError: no such table.
    """
    seed, _, table = name.partition("/")
    return _read(name, _content(seed)[table])


def tables_of(seed: str) -> tuple[str, ...]:
    """Names of all tables of a paper."""
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
