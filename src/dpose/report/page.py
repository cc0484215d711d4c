"""The report of a run: its sections in their order, and those on how it was made and how to check its claim.

Pictures of a report: the true and the predicted skeleton side by side, within a budget of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.media.images import encode_image
from dpose.privacy.events import SampledGaussian
from dpose.privacy.ranges import as_given, lower, upper
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.report.document import Report
from dpose.report.inline import Code, day, tidy
from dpose.report.results import Block, Card, Command, Group, PictureBlock, Section, Table, Tile
from dpose.report.run import RunRecord, mapping
from dpose.report.scores import joints_section, scores_section
from dpose.report.sections import curves_section, diagnostics_section, given_away_section, guarantee_section, plain_fact

LARGEST = 384
"""Longer sides are scaled down to this: pictures are shown in columns of some 150 pixels."""
BUDGET = 2_000_000
"""Bytes that all pictures of a page may take together."""
QUALITIES = (88, 75, 60, 40, 20)


@dataclass(frozen=True)
class PosePair:
    """One person, drawn twice.

    Attributes:
        title: The unit's name.
        true: uint8, (H, W, 3) RGB, with the labels drawn in.
        predicted: The same picture with the prediction drawn in.
    """

    title: str
    true: NDArray[np.uint8]
    predicted: NDArray[np.uint8]


def tiles_of(pairs: Sequence[PosePair]) -> tuple[Tile, ...]:
    """A tile for each pair, all of them within `BUDGET` bytes.

    Raises:
        ValueError: a picture is not uint8 (H, W, 3), or there are far too many.
    """
    small = [(pair.title, _fitted(pair.true), _fitted(pair.predicted)) for pair in pairs]
    for quality in QUALITIES:
        tiles = tuple(
            Tile(
                title,
                (
                    _encoded(true, quality, f"{title}: the labelled skeleton"),
                    _encoded(predicted, quality, f"{title}: the predicted skeleton"),
                ),
            )
            for title, true, predicted in small
        )
        if sum(len(picture.uri) for tile in tiles for picture in tile.pictures) <= BUDGET:
            return tiles
    raise ValueError(f"{len(pairs)} pictures do not fit on a page")


def _fitted(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    ratio = LARGEST / max(image.shape[:2])
    if ratio >= 1:
        return image
    size = (max(1, round(image.shape[1] * ratio)), max(1, round(image.shape[0] * ratio)))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)


def _encoded(image: NDArray[np.uint8], quality: int, alt: str) -> PictureBlock:
    height, width = image.shape[:2]
    return PictureBlock(encode_image(image, ".jpg", quality), "jpeg", (width, height), alt)


GROUPS = {"data": "Data", "model": "Model", "plan": "Plan", "optimizer": "Optimizer"}
PLAIN = ("version", "task", "command", *GROUPS)
"""Keys of the settings that are shown elsewhere than among the run's single values."""


def run_report(run: RunRecord, pictures: tuple[Block, ...], recomputed: float | None, now: datetime) -> Report:
    """What is shown of a run.

    Args:
        run: What was read of its folder.
        pictures: The content of the section of pictures.
        recomputed: Epsilon recomputed from the statement's events; None without a statement.
        now: The report's date.
    """
    model = run.model.get("preset")
    size = run.model.get("input_size")
    if isinstance(size, list) and len(size) == 2:
        model = f"{model}, {size[0]} x {size[1]} pixels"
    units = "" if run.units is None else f"{run.units:,} {run.statement.unit if run.statement else 'unit'}s"
    return Report(
        _title(run),
        kind="dpose training report",
        source=f"the run folder {run.name}",
        subject=run.name,
        summary=run.facts.sentence if run.facts else "",
        panel=plain_fact(run),
        facts={
            "Run": run.name,
            "Model": str(model or ""),
            "Data": ", ".join(part for part in (run.data, units) if part),
            "Steps": f"{run.steps:,}" if run.steps else "",
            "Report of": day(now),
        },
        sections=(
            Section("guarantee", "What is guaranteed", guarantee_section(run)),
            Section("given-away", "What the public view gives away", given_away_section(run)),
            Section("scores", "Scores", scores_section(run)),
            Section("curves", "While it trained", curves_section(run)),
            Section("joints", "Joint by joint", joints_section(run)),
            Section("pictures", "Pictures", pictures),
            Section("diagnostics", "Diagnostics", diagnostics_section(run)),
            Section("settings", "How it was made", settings_section(run)),
            Section("check", "How to check the claim", check_section(run, recomputed)),
        ),
        now=now,
    )


def _title(run: RunRecord) -> str:
    task = f"{run.task[:1].upper()}{run.task[1:]} model" if run.task else "Model"
    return f"{task}, {run.method} training" if run.method else task


def pictures_section(pairs: Sequence[PosePair], pictures_of: str, no_pictures: str) -> tuple[Block, ...]:
    """The pictures, and how they were chosen; or why there are none.

    Args:
        pairs: Pictures that may be shown.
        pictures_of: The data that they are of.
        no_pictures: Why there are none.
    """
    if not pairs:
        why = "No pictures were given to this report: a picture of private data is never shown."
        return (no_pictures or why,)
    named = f" of {pictures_of}" if pictures_of else ""
    says = (
        f"{len(pairs)} units{named}, chosen by name and not by how well they came out. Left: as labelled. Right: as "
        "the model finds it. Orange is the person's own right side, blue the left, green the middle."
    )
    return says, Group(tiles_of(pairs), "tiles")


def settings_section(run: RunRecord) -> tuple[Block, ...]:
    """Commands, settings and seed; after them versions and what it takes to check the claim."""
    groups = {title: dict(mapping(run.settings.get(key))) for key, title in GROUPS.items()}
    # the model's own values include defaults that the settings leave out
    groups["Model"] = {**groups["Model"], **run.model}
    groups["Run"] = {key: value for key, value in run.settings.items() if key not in PLAIN and key != "seed"}
    cards = [Card(title, rows) for title, values in groups.items() if (rows := _notes(values))]
    if "seed" in run.settings:
        cards.append(Card("Randomness", (("seed", _seed(run)),)))
    if run.statement and run.statement.software:
        cards.append(Card("Software", tuple(run.statement.software.items())))
    return *_commands(run.settings.get("command")), Group(tuple(cards), "cards")


def check_section(run: RunRecord, recomputed: float | None) -> tuple[Block, ...]:
    """The events, the ledger's head, and the command that checks both.

    Args:
        run: The run.
        recomputed: Epsilon as recomputed from the statement's events just now; None without a statement.
    """
    statement = run.statement
    if statement is None or not statement.events:
        return ("No epsilon is claimed, so there is none to verify.",)
    says = (
        "This recomputes epsilon from the events below and once more from the steps that the ledger reserved, and "
        "refuses a ledger that was altered, reordered or cut off. It cannot detect whether those who trained the model "
        "lied from the start; no software can."
    )
    again = ""
    if recomputed is not None:
        again = f"Recomputed from the events when this report was written: epsilon {upper(recomputed, places=6)}."
    rows = [
        ("kind of statement", statement.kind.value),
        ("epsilon, all digits", _exact(None if statement.epsilon is None else float(statement.epsilon))),
        ("delta", _exact(statement.delta)),
        ("accountant", statement.accountant.value if statement.accountant else ""),
        ("neighbours", statement.neighbours.relation.value if statement.neighbours else ""),
        ("ledger's head", Code(statement.ledger_head) if statement.ledger_head else ""),
        ("plan's digest", Code(statement.plan_sha256) if statement.plan_sha256 else ""),
    ]
    claim = Card("The claim", tuple((name, value) for name, value in rows if value))
    return Command(f"dpose verify {_quoted(run.name)}"), says, again, _events(statement), claim


def _events(statement: PrivacyStatement) -> Table:
    rows = [
        (event.type, upper(event.q, 6), lower(event.sigma, 6), upper(event.sensitivity, 6), f"{event.steps:,}")
        for event in statement.events
        if isinstance(event, SampledGaussian)  # a run has no others
    ]
    head = ("Event", "Sampling rate", "Noise multiplier", "Sensitivity", "Steps")
    return Table("What epsilon is computed from", head, tuple(rows))


def _commands(value: Any) -> list[Command]:
    commands = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [Command(command) for command in commands if command and isinstance(command, str)]


def _seed(run: RunRecord) -> str:
    seed = run.settings.get("seed")
    if seed is not None:
        return f"{seed}: anyone who knows it can repeat every draw"
    if run.statement is not None and run.statement.kind is Kind.PRIVATE:
        return "none: a fresh key from the operating system, which is not in this folder"
    return "none: drawn from the operating system"


def _notes(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((key.replace("_", " "), _value(value)) for key, value in values.items() if value is not None)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return tidy(as_given(value))
    if isinstance(value, list):
        return ", ".join(_value(item) for item in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value(item)}" for key, item in value.items()) or "none"
    return str(value)


def _quoted(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").replace(".", "").isalnum() else f"'{name}'"


def _exact(value: float | None) -> str:
    return "" if value is None else repr(float(value))
