"""Options in groups: a group is a frozen dataclass whose fields are options, and a command takes it whole.

A field is `Annotated[TYPE, option(HELP, PANEL)] = DEFAULT`; where the default stands elsewhere, `= unset("TEXT")` says
it in the help and gives None. A field may be a group again, so that the options of a command can have the form of the
configuration that they fill in.
"""

from __future__ import annotations

import copy
import functools
import inspect
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, field, fields, is_dataclass
from typing import Annotated, Any, get_args, get_type_hints

import typer
from rich.console import Console


def option(help: str, panel: str | None = None, *names: str, **rules: Any) -> Any:
    """An option for `Annotated`.

    Args:
        help: What it does.
        panel: The heading in `--help` that it stands under.
        names: Such as "--data", where it is not called as its field or parameter.
        rules: Others of `typer.Option`: min, max.
    """
    return typer.Option(..., *names, help=help, rich_help_panel=panel, **rules)


def unset(default: str) -> Any:
    """The default of a group's field that is None where the option is not given; `default` says what that means."""
    return field(default=None, metadata={"default": default})


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """`command` as Typer takes it: a parameter that is a group of options becomes its fields, in its place."""
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
        folded = {name: _fold(kind, given) for name, kind in groups.items()}
        command(**folded, **given)

    unfolding.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    unfolding.__annotations__ = {option.name: option.annotation for option in options}
    return unfolding


def _fold(kind: Any, given: dict[str, Any], before: str = "") -> Any:
    """The group `kind` of what was given for its fields, which are taken out of `given`."""
    hints = get_type_hints(kind)
    return kind(
        **{
            f.name: _fold(hints[f.name], given, f"{before}{f.name}__")
            if is_dataclass(hints[f.name])
            else given.pop(before + f.name)
            for f in fields(kind)
        }
    )


def _fields(kind: Any, before: str = "") -> Iterator[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    for f in fields(kind):
        if is_dataclass(hints[f.name]):
            yield from _fields(hints[f.name], f"{before}{f.name}__")
            continue
        yield inspect.Parameter(
            before + f.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if f.default is MISSING else f.default,
            annotation=_named(f, hints[f.name]),
        )


def _named(f: Field[Any], annotation: Any) -> Any:
    """The annotation of a field with its option's name, which the parameter's may differ from, and its default told."""
    kind, info = get_args(annotation)
    info = copy.copy(info)
    # Typer's own way to write a name, `Option("--name")`, leaves it where a default would stand
    if not info.param_decls and not isinstance(info.default, str):
        name = f.name.replace("_", "-")
        flag = kind is bool or bool in get_args(kind)
        info.param_decls = (f"--{name}/--no-{name}" if flag else f"--{name}",)
    if "default" in f.metadata:
        info.help = f"{info.help} Default: {f.metadata['default']}."
    return Annotated[kind, info]


def plain_console() -> Console:
    """A console that prints text as it stands: "coco:train:" is no emoji, and a bracket in a file's name no style."""
    return Console(markup=False, emoji=False, highlight=False)


def command_line() -> str:
    """The command line as it was typed, for the report."""
    return shlex.join(["dpose", *sys.argv[1:]])
