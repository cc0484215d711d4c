"""Options in groups, which a command takes whole.

A group is a frozen dataclass whose fields are options, `Annotated[TYPE, option(HELP)] = DEFAULT`; where the default
stands elsewhere, `= unset("TEXT")` says it in the help and gives None. Or it is `Annotated[dict, Settings(...)]`:
settings of a configuration, some with options of their own and all others by `--set PATH=VALUE`.

The settings of `dpose.runs.config.RunConfig` that commands have options for.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from dpose.cli.settings import Setting, parsed, put, settings_of
from dpose.errors import DposeError

if TYPE_CHECKING:
    from rich.console import Console


def option(help: str, *names: str, **rules: Any) -> Any:
    """An option for `Annotated`.

    Args:
        help: What it does.
        names: Such as "--data", where it is not called as its field or parameter.
        rules: Others of `typer.Option`: min, max.
    """
    return typer.Option(..., *names, help=help, **rules)


def unset(default: str) -> Any:
    """The default of a field whose option may be left out: None, shown in the help as `default`."""
    return field(default=None, metadata={"default": default})


@dataclass(frozen=True)
class Settings:
    """The settings of a command, for `Annotated[dict[str, Any], Settings(...)]`: nested values, where some were given.

    Attributes:
        classes: Configuration classes, as `settings_of` takes them.
        named: Settings with options of their own, and their names, such as "--batch-size"; empty for the last part of
            the path.
        defaults: Values of this command where none is given, by path.
        required: Settings that must be given.
        texts: Settings whose options take text, whatever they become.
        left_out: Settings that the command fills in itself.
    """

    classes: tuple[tuple[str, str], ...]
    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @functools.cached_property
    def known(self) -> Mapping[str, Setting]:
        """All settings, by path."""
        found = settings_of(*self.classes)
        return {path: setting for path, setting in found.items() if path not in self.left_out}

    def options(self) -> Iterator[inspect.Parameter]:
        """The options, as parameters of a command."""
        known = settings_of(*self.classes, only=tuple(self.named)) if self.named else {}
        kinds = {"int": int, "float": float, "bool": bool, "list": list[str]}
        for path, names in self.named.items():
            setting, default = known[path], self.defaults.get(path)
            text = setting.help
            if default is not None:
                text = f"{text.partition(' Default: ')[0]} Default: {default}."
            names = names or ("--" + path.rpartition(".")[2].replace("_", "-"),)
            kind = str if path in self.texts else kinds.get(setting.kind, str)
            if path in self.required:
                yield _parameter(_key(path), kind, option(text, *names), inspect.Parameter.empty)
            else:
                yield _parameter(_key(path), kind | None, option(text, *names))
        yield _parameter(
            "other_settings",
            list[str] | None,
            option("Any other setting of --settings; may be repeated.", "--set", metavar="PATH=VALUE"),
        )
        listing = option(
            "List all settings with their types and defaults.", "--settings", callback=self._listed, is_eager=True
        )
        yield _parameter("list_settings", bool, listing, False)

    def fold(self, given: dict[str, Any]) -> dict[str, Any]:
        """Nested values of what was given, which is taken out of `given`."""
        values: dict[str, Any] = {}
        given.pop("list_settings")
        for path in self.named:
            value = given.pop(_key(path))
            if value is not None and value != []:
                put(values, path, value)
        for text in given.pop("other_settings") or ():
            put(values, *parsed(self.known, text))
        for path, value in self.defaults.items():
            with contextlib.suppress(DposeError):
                put(values, path, value)
        return values

    def _listed(self, wanted: bool) -> None:
        if wanted:
            for setting in self.known.values():
                kind = "|".join(setting.choices) or {"values": "mapping"}.get(setting.kind, setting.kind)
                default = f" = {setting.default}" if setting.default else ""
                print(f"{setting.path}: {kind}{default}")
                print(textwrap.indent(textwrap.fill(setting.text.replace("`", ""), 96), "    "))
            raise typer.Exit


def _key(path: str) -> str:
    return f"setting__{path.replace('.', '__')}"


def _parameter(name: str, kind: Any, info: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """`command` as Typer takes it: a parameter that is a group of options becomes its fields, in its place."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    chosen = {name: s for name, kind in hints.items() for s in get_args(kind)[1:] if isinstance(s, Settings)}
    options: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            options += _fields(groups[name])
        elif name in chosen:
            options += chosen[name].options()
        else:
            options.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))

    @functools.wraps(command)
    def unfolding(**given: Any) -> None:
        folded = {name: _fold(kind, given) for name, kind in groups.items()}
        folded |= {name: settings.fold(given) for name, settings in chosen.items()}
        command(**folded, **given)

    unfolding.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    unfolding.__annotations__ = {option.name: option.annotation for option in options}
    unfolding.settings = next(iter(chosen.values()), None)  # type: ignore[attr-defined]
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
    """The annotation of a field with its option's name, which may differ from the parameter's."""
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
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False)


def hanging(lines: Iterable[str], console: Console, indent: int | None = None) -> str:
    """Wrap lines to the console's width: each goes on at `indent`, or else below its first word, past a star."""
    wrapper, wrapped = textwrap.TextWrapper(break_long_words=False, break_on_hyphens=False), []
    wrapper.width = max(1, console.width)
    for line in lines:
        wrapper.subsequent_indent = " " * (len(line) - len(line.lstrip(" *")) if indent is None else indent)
        wrapped.append(wrapper.fill(line))
    return "\n".join(wrapped)


def command_line() -> str:
    """The command line as it was typed, for the report."""
    return shlex.join(["dpose", *sys.argv[1:]])


RUN = ("", "dpose.runs.config:RunConfig")
Limit = Annotated[int | None, option("Use only so many units: a fixed choice by name, always the same.", min=1)]
Seed = Annotated[int | None, option("Makes the run reproducible and takes its guarantee away.", min=0)]

TRAIN = Settings(
    (RUN, ("", "dpose.cli.cluster:Carrying")),
    {
        "data.private": ("--data",),
        "data.public": (),
        "data.limit": (),
        "task": (),
        "model.preset": ("--preset", "--backbone"),
        "model.init": (),
        "model.strategy": (),
        "plan.method": (),
        "plan.epsilon": (),
        "plan.delta": (),
        "plan.epochs": (),
        "plan.expected_batch_size": ("--batch-size",),
        "recipe": (),
    },
)
"""The settings of `dpose train`."""


def check_given(settings: dict[str, Any]) -> None:
    """Refuse settings of a pose run that no others can mend, before torch and timm are loaded, which takes seconds.

    Raises:
        DposeError: no data are named; or the strategy does not go with the first weights.
    """
    from dpose.pose.backbones import check_strategy, shipped_for

    if not settings.get("data", {}).get("private"):
        raise DposeError("data-missing", "training needs data", fix="give --data, or --config; see dpose train --help")
    model = settings.get("model", {})
    # the recipe's public stage makes first weights
    if settings.get("recipe") is None and settings.get("task") in (None, "pose"):
        started = model.get("init") is not None or (
            model.get("strategy") != "scratch" and shipped_for(model.get("preset") or "nano") is not None
        )
        strategy = model.get("strategy") or ("finetune" if started else "scratch")
        degrees = model.get("temperature")
        degrees = degrees if isinstance(degrees, int | float) else None  # others are refused with the rest
        check_strategy(strategy, degrees, started=started, model=started)
