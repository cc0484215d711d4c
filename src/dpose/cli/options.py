"""Options that several commands share."""

from __future__ import annotations

import functools
import inspect
import shlex
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

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


def unfolded(command: Callable[..., None]) -> Callable[..., None]:
    """`command` as Typer takes it: a parameter that is a dataclass of options becomes its fields, in its place."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    options: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            options += _fields(groups[name])
        else:
            options.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))

    @functools.wraps(command)
    def unfolding(**given: Any) -> None:
        folded = {
            name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()
        }
        command(**folded, **given)

    unfolding.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    unfolding.__annotations__ = {option.name: option.annotation for option in options}
    return unfolding


def _fields(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(kind)
    ]


def plain_console() -> Console:
    """A console that prints text as it stands: "coco:train:" is no emoji, and a bracket in a file's name no style."""
    return Console(markup=False, emoji=False, highlight=False)


def typed() -> str:
    """The command line as it was typed, for the report."""
    return shlex.join(["dpose", *sys.argv[1:]])
