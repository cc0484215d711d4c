"""The `dpose` command: which commands there are. Each is imported and built when it is named.

A package beside dpose has a table like `OWN`, or a function that returns one, as `COMMANDS` in the module of its entry
point (`dpose.extensions`).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pkgutil import resolve_name
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from dpose.cli.options import expand_groups, option
from dpose.cli.remote import on_this_machine, with_stores
from dpose.cli.settings import docstring_of
from dpose.errors import DposeError

READS_STORES = "itself"
PLAIN: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}
"""How Typer writes help and errors: as text."""


@dataclass(frozen=True)
class CommandEntry:
    """A command.

    Attributes:
        place: Its function, as "dpose.cli.train:train_model", whose docstring is its help.
        example: What may be typed behind its words; the last line of its help.
        stores: Parameters that may be places in object stores, beside `out`, which are copied to and from this
            machine; `READS_STORES` if the function does that; empty if it takes none.
        heading: Of the section of the group's help that lists it.
        maker: What makes the function of what is at `place`, as "dpose_lab.cli.attack:command_of"; empty if it is one.
    """

    place: str
    example: str = ""
    stores: str = ""
    heading: str = "Commands"
    maker: str = ""

    @property
    def help(self) -> str:
        """What it does, read without importing it."""
        return docstring_of(self.place)


@dataclass(frozen=True)
class GroupEntry:
    """Commands whose words begin alike.

    Attributes:
        help: What they are for.
        epilog: The last line of the help.
        heading: Of the section of the help above that lists it.
        default: The command that is meant where none is named.
        alone: Options that may stand last without a value, and the values that they have there.
    """

    help: str
    epilog: str = ""
    heading: str = "Commands"
    default: str = ""
    alone: Mapping[str, str] = field(default_factory=dict)


OWN: dict[str, CommandEntry | GroupEntry] = {
    "train": CommandEntry(
        "dpose.cli.train:train_model",
        "--data lspet:/data/lspet:private --epsilon 8 --delta 1e-5 --out runs/a. All settings: dpose train --settings",
        stores=READS_STORES,
    ),
    "tune": CommandEntry(
        "dpose.cli.train:tune", "--config examples/tune.yaml --epsilon 4 --delta 1e-5 --out runs/tuned"
    ),
    "plan": CommandEntry(
        "dpose.cli.plan:plan",
        "--units 22146 --epochs 25 --batch-size 1024 --epsilon 0.8 --delta 4e-6; "
        "dpose plan --corpus 1000000 --size 1920x1080",
    ),
    "evaluate": CommandEntry("dpose.cli.evaluate:evaluate", "runs/a --data lspet:/data/lspet:validation --epsilon 0.1"),
    "compare": CommandEntry("dpose.cli.artefacts:compare", "runs/a runs/b --out comparison.png"),
    "predict": CommandEntry(
        "dpose.cli.predict:predict", "photo.jpg; dpose predict runs/a photo.jpg --out photo-pose.png"
    ),
    "count": CommandEntry(
        "dpose.cli.count:count",
        "corridor.mp4 --query occupancy --window 1h --epsilon 1 --visible 30s --times 4 --out counts/",
    ),
    "export": CommandEntry("dpose.cli.artefacts:export_onnx_file", "runs/a pose.onnx"),
    "studio": CommandEntry("dpose.cli.artefacts:studio", "--folder photos --folder runs"),
    "report": CommandEntry("dpose.cli.artefacts:report", "runs/a"),
    "verify": CommandEntry("dpose.cli.artefacts:verify_artefacts", "runs/a", stores="run"),
    "keys": CommandEntry("dpose.cli.artefacts:keys", "runs/a --discard"),
    "demo": CommandEntry("dpose.cli.train:demo", "--out runs/demo"),
    "pixelize": CommandEntry(
        "dpose.cli.release:pixelize_files", "street/ --epsilon 2 --neighbours pixels:16 --out released/", stores="paths"
    ),
    "restore": CommandEntry("dpose.cli.release:restore_archive", "released/a.npz --restore tv a.png"),
    "release-video": CommandEntry(
        "dpose.cli.clips:release_videos",
        "ward.mp4 --epsilon 8 --delta 1e-5 --neighbours pixels:16 --out private.mp4",
        stores="paths",
    ),
    "obfuscate": CommandEntry(
        "dpose.cli.clips:obfuscate", "ward.mp4 --method face-blur --out blurred.mp4", stores="paths"
    ),
    "data": GroupEntry("Look at data before training on them."),
    "data check": CommandEntry("dpose.cli.data:check_labels", "coco:/data/coco:val"),
    "data convert": CommandEntry("dpose.cli.data:convert", "coco:/data/coco:val --out coco-yolo"),
    "data cache": CommandEntry("dpose.cli.data:cache", "--clear"),
    "audit": GroupEntry("Attack the guarantee: a lower bound on epsilon beside the claim."),
    "audit training": CommandEntry(
        "dpose.cli.audit:training", "--data synthetic:ward --epsilon 4 --delta 1e-5 --out runs/audit"
    ),
    "audit claim": CommandEntry("dpose.cli.audit:claim", "runs/model --opening opening.json --out runs/audit-of-model"),
    "audit opening": CommandEntry("dpose.cli.audit:opening", "runs/model --out opening.json"),
    "account": GroupEntry(
        """What private data have given, by all runs and releases together; and the budgets that they must keep.

Without a command it shows: of all data, of DATA, or of one --picture.

train, tune, audit, evaluate, pixelize, release-video, obfuscate, attack, reproduce and report --show-pictures
reserve what they take of private pictures before they compute anything. What has no noise, or noise from a seed,
has no bound: a budget refuses it.""",
        "Examples: dpose account | dpose account lspet:/data/lspet:private | dpose account --picture photos/a.png "
        "--neighbours pixels:16 | dpose account --html account.html | dpose account budget set "
        "lspet:/data/lspet:private --epsilon 8 --delta 1e-5. What is no command is for show: see dpose account show "
        "--help",
        default="show",
        alone={"--html": "account.html"},
    ),
    "account show": CommandEntry(
        "dpose.cli.account:show_account", "lspet:/data/lspet:private --neighbours image:replace"
    ),
    "account accept": CommandEntry("dpose.cli.account:accept", "--yes"),
    "account budget": GroupEntry("Set or lift the most that may be taken of some data."),
    "account budget set": CommandEntry(
        "dpose.cli.account:budget_set", "lspet:/data/lspet:private --epsilon 8 --delta 1e-5"
    ),
    "account budget lift": CommandEntry("dpose.cli.account:budget_lift", "lspet:/data/lspet:private"),
    "statement": GroupEntry(
        "What a model, picture or video guarantees: show it, check it, sign it, pass it on.",
        "Examples: dpose statement show runs/a | dpose statement key hospital.pem | dpose statement sign runs/a "
        "--key hospital.pem | dpose statement verify runs/a --key hospital.pem.pub | dpose statement export runs/a "
        "--registry",
    ),
    "statement show": CommandEntry("dpose.cli.statement:show_statement", "runs/a"),
    "statement check": CommandEntry("dpose.cli.statement:check_statement", "runs/a"),
    "statement schema": CommandEntry("dpose.cli.statement:schema", "--out statement.schema.json"),
    "statement key": CommandEntry("dpose.cli.statement:key", "hospital.pem"),
    "statement sign": CommandEntry("dpose.cli.statement:sign_statement", "runs/a --key hospital.pem"),
    "statement verify": CommandEntry("dpose.cli.statement:verify_statement", "runs/a --key hospital.pem.pub"),
    "statement export": CommandEntry("dpose.cli.statement:export_statement", "runs/a --registry --out entry.yaml"),
}
"""The commands of this package by the words that call them, in the order of `--help`."""


@cache
def _beside() -> tuple[Any, ...]:
    """The modules of other packages that have commands."""
    from dpose.extensions import extensions

    return tuple(extensions("commands"))


def table() -> dict[str, CommandEntry | GroupEntry]:
    """All commands, those of other packages behind those of this one."""
    found = dict(OWN)
    for added in _beside():
        commands = added.COMMANDS() if callable(added.COMMANDS) else added.COMMANDS
        found |= {words: command for words, command in commands.items() if words not in OWN}
    return found


class Below(Mapping[str, Any]):
    """The commands below some words by their names, each built when it is looked up."""

    def __init__(self, *words: str) -> None:
        self._words = words

    def __getitem__(self, name: str) -> Any:
        if " " in name:  # else `dpose "data check"` would be two words
            raise KeyError(name)
        return _built(*self._words, name)

    def __contains__(self, name: object) -> bool:
        return name in tuple(self)

    def __iter__(self) -> Iterator[str]:
        return (last for *above, last in map(str.split, table()) if (*above,) == self._words)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class CommandGroup(TyperGroup):
    """A group whose commands are built when they are named; its help lists them without that."""

    words: tuple[str, ...] = ()
    entry = GroupEntry("")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments with the command that they are for in front."""
        return super().parse_args(ctx, self._complete(args))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """As `parse_args`, for callers that need the command alone."""
        args = self._complete(args)
        if self.commands.get(args[0]) is None and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}. {self._meant(args[0]) or f'Say {ctx.command_path} --help'}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """What the command returns; Ctrl-C is told from a command that says itself that it was stopped, and exits."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            raise typer.Abort from stopped

    def _meant(self, word: str) -> str:
        holding = [name for name in self.commands if len(word) > 2 and word in name]
        near = holding or difflib.get_close_matches(word, list(self.commands))
        return f"Did you mean {', '.join(map(repr, near))}?" if near else ""

    def _complete(self, args: list[str]) -> list[str]:
        if args and args[-1] in self.entry.alone:
            args = [*args, self.entry.alone[args[-1]]]
        named = not self.entry.default or (args and (args[0] in self.commands or args[0] == "--help"))
        return args if named else [self.entry.default, *args]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each heading."""
        sections: dict[str, list[tuple[str, str]]] = {}
        width = formatter.width - 6 - max(map(len, self.commands))
        for name in self.commands:
            entry = table()[" ".join((*self.words, name))]
            line = TyperCommand(name, help=entry.help).get_short_help_str(width)
            sections.setdefault(entry.heading, []).append((name, line))
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


@cache
def _built(*words: str) -> Any:
    """The command or group that some words call.

    Raises:
        KeyError: there is none.
    """
    called = " ".join(words)
    entry = OWN.get(called) or table()[called]
    if isinstance(entry, GroupEntry):
        group = typer.Typer(
            name=words[-1],
            cls=CommandGroup,
            help=entry.help,
            epilog=entry.epilog,
            no_args_is_help=not entry.default,
            **PLAIN,
        )
        return _group(group, *words, entry=entry)
    place = resolve_name(entry.place)
    function = expand_groups(resolve_name(entry.maker)(place) if entry.maker else place)
    if entry.stores != READS_STORES:
        function = with_stores(function, entry.stores) if entry.stores else on_this_machine(function)
    alone = typer.Typer(**PLAIN)
    alone.command(words[-1], epilog=f"Example: dpose {called} {entry.example}")(function)
    command = typer.main.get_command(alone)
    paths = {name for name, kind in get_type_hints(function).items() if "Path" in str(kind)}
    for parameter in command.params:
        if parameter.param_type_name == "argument" or parameter.name in paths:
            parameter.handle_parse_result = _not_empty(parameter)  # type: ignore[method-assign]
    return command


def _not_empty(parameter: Any) -> Callable[..., Any]:
    """How `parameter` is read, with an empty text refused: as a path it would be the folder that one is in."""
    read = parameter.handle_parse_result

    def reading(ctx: Any, opts: Mapping[str, Any], args: list[str]) -> Any:
        given = opts.get(parameter.name)
        if "" in (given if isinstance(given, list | tuple) else (given,)):
            raise DposeError("name-empty", "is empty", parameter.opts[0], "give a name, or . for this folder")
        return read(ctx, opts, args)

    return reading


def _group(app: typer.Typer, *words: str, entry: GroupEntry = CommandGroup.entry) -> Any:
    group: Any = typer.main.get_group(app)
    group.commands, group.words, group.entry = Below(*words), words, entry
    return group


def _version(wanted: bool) -> None:
    if wanted:
        from dpose.interpreter import version_of

        print(version_of("dpose"))
        raise typer.Exit


def about(
    version: Annotated[bool, option("Say which dpose this is.", "--version", callback=_version, is_eager=True)] = False,
) -> None:
    """Differentially private human vision: train pose models privately, and prove it."""


@cache
def root() -> Any:
    """The whole command. It is made once: a notebook, or a test, calls `main` again and again."""
    app = typer.Typer(
        name="dpose",
        cls=CommandGroup,
        epilog="Start with: dpose demo",
        no_args_is_help=True,
        context_settings={"max_content_width": 120},
        **PLAIN,
    )
    app.callback()(about)
    return _group(app)
