"""Options that several commands share."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer
from rich.console import Console

GUARANTEE, METHOD, DATA, MODEL, LEARNING, RUNNING = (
    "The guarantee",
    "The method",
    "The data",
    "The model",
    "Learning",
    "The run",
)
"""Headings of a long `--help`."""

METHODS = "dp-sgd, pdp-sgd (projected), fdp-sgd (feature), fpdp-sgd (both), public-only or non-private"

Epsilon = Annotated[
    float | None,
    typer.Option(
        help="Privacy budget of the whole run. 1 is strong, 8 is common; smaller means more noise.",
        rich_help_panel=GUARANTEE,
    ),
]
Delta = Annotated[
    float | None,
    typer.Option(
        help="Probability that the epsilon bound may fail. Well below 1 / units.", rich_help_panel=GUARANTEE
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Use only so many units: a fixed choice by name, always the same.",
        rich_help_panel=DATA,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Makes the run reproducible and takes its guarantee away.",
        rich_help_panel=RUNNING,
    ),
]


def plain_console() -> Console:
    """A console that prints text as it stands: "coco:train:" is no emoji, and a bracket in a file's name no style."""
    return Console(markup=False, emoji=False, highlight=False)


def typed() -> str:
    """The command line as it was typed, for the report."""
    return shlex.join(["dpose", *sys.argv[1:]])
