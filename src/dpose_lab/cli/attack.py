"""`dpose attack`: attacks on released pictures. Each registered attack is a command, made by `command_of`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from dpose.cli.options import Settings, command_line, option, plain_console
from dpose.cli.release_options import EngineName, EngineWorkers, Public
from dpose.cli.settings import checked
from dpose.errors import DposeError

if TYPE_CHECKING:
    from rich.console import Console

    from dpose_lab.attacks.attack import Attack
    from dpose_lab.attacks.context import AttackConfig
    from dpose_lab.attacks.report import AttackReport

Data = Annotated[str, option("synthetic:LOOK[:SPLIT], folder:ROOT (a folder for each person) or celeba:ROOT.")]
Out = Annotated[Path, option("The folder to make; must not exist.")]
Releases = Annotated[
    list[str] | None,
    option("dp (default), none, gaussian-blur, pixelate, ldp-slicing[-unpruned], view:gaussian-blur or :pixelization."),
]
Blocks = Annotated[
    list[str] | None,
    option("Sides of blocks, pixels, as in 8,16. Default: auto, as in dpose pixelize; 16 for pixelate."),
]
Parts = Annotated[
    list[str] | None, option("Parts along a side of complex blocks, as in 1,4; above 1 with private regions.")
]
Epsilons = Annotated[list[str] | None, option("Epsilon of a picture, as in 0.5,5.")]
Neighbours = Annotated[str, option("pixels:M, for pictures that differ in at most M pixels.")]
Restores = Annotated[list[str] | None, option("How private releases are restored: learned (default), tv or none.")]
Attackers = Annotated[
    list[str] | None, option("plain (learnt from raw pictures) or adaptive (from released ones). Default: both.")
]
Identities = Annotated[int, option("How many people are attacked, at most.", min=2)]
LearnFrom = Annotated[int, option("How many other people the attacker has pictures of.", min=2)]
Seed = Annotated[int, option("Seed of all noise and learning; pictures made with a seed protect no one.", min=0)]


@dataclass(frozen=True)
class Where:
    """Options of the attacked data and of the report."""

    data: Data
    out: Out
    public: Public = False


@dataclass(frozen=True)
class Released:
    """Options of the releases."""

    release: Releases = None
    block: Blocks = None
    subdivide: Parts = None
    epsilon: Epsilons = None
    neighbours: Neighbours = "pixels:1"
    restore: Restores = None


@dataclass(frozen=True)
class Chosen:
    """Options of the attackers."""

    attacker: Attackers = None


@dataclass(frozen=True)
class People:
    """Options of the number of attacked people."""

    identities: Identities = 100


@dataclass(frozen=True)
class Learning:
    """Options of the attacker's data, of the seed and of the engine."""

    learn_from: LearnFrom = 500
    seed: Seed = 0
    engine: EngineName = None
    workers: EngineWorkers = 1


@dataclass(frozen=True)
class Pictures:
    """Options of the pictures.

    Attributes:
        learn_pictures: Number of pictures of each person that the attacker learns from.
        size: HEIGHTxWIDTH of rendered pictures; files keep their own size.
        grey: Grey pictures, as in the pixelization paper.
    """

    learn_pictures: int = 5
    size: str = "128x96"
    grey: bool = False


PICTURES = Settings((("", "dpose_lab.cli.attack:Pictures"),))


def command_of(kind: type[Attack]) -> Callable[..., None]:
    """The command of an attack: shared options, and one for each of its fields."""
    own = make_dataclass("Own", _options(kind))
    groups = {
        "where": Where,
        **({"released": Released} if kind.chooses_releases else {}),
        **({"chosen": Chosen} if kind.chooses_attackers else {}),
        "people": People,
        "own": own,
        "learning": Learning,
        "settings": Annotated[dict[str, Any], PICTURES],
    }

    def command(**given: Any) -> None:
        where, console = given["where"], plain_console()
        config = _config(**{key: value for key, value in given.items() if key != "own"})
        attack = kind(**vars(given["own"]))
        for folder, report in attack.run(config, where.out, console):
            _show(report, folder, console)

    command.__doc__ = kind.__doc__
    command.__annotations__ = groups
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, annotation=group) for key, group in groups.items()]
    )
    return command


def _options(kind: type[Attack]) -> list[tuple[str, Any, Any]]:
    """The fields of an attack as Typer's options: name, type, default."""
    hints = get_type_hints(kind)
    return [
        (one.name, Annotated[hints[one.name], typer.Option(**one.metadata)], one.default)
        for one in fields(kind)  # type: ignore[arg-type]
    ]


def _config(
    where: Where,
    people: People,
    learning: Learning,
    settings: dict[str, Any],
    released: Released | None = None,
    chosen: Chosen | None = None,
) -> AttackConfig:
    from dpose.release.config import AUTO
    from dpose_lab.attacks.adversary import AttackerEffort
    from dpose_lab.attacks.context import ATTACKERS, AttackConfig, parse_size

    pictures = checked(Pictures, settings)
    released, chosen = released or Released(), chosen or Chosen()
    return AttackConfig(
        data=where.data,
        releases=tuple(_listed(released.release, ("dp",))),
        blocks=tuple(
            AUTO if text == AUTO else _whole([text], "--block")[0] for text in _listed(released.block, (AUTO,))
        ),
        subdivisions=_whole(_listed(released.subdivide, ("1",)), "--subdivide"),
        epsilons=tuple(_listed(released.epsilon, ("5",))),
        neighbours=released.neighbours,
        restorations=tuple(_listed(released.restore, ("learned",))),
        attackers=tuple(_listed(chosen.attacker, ATTACKERS)),
        identities=people.identities,
        size=parse_size(pictures.size),
        in_grey=pictures.grey,
        public=where.public,
        effort=AttackerEffort(learning.learn_from, pictures.learn_pictures, learning.seed),
        command=command_line(),
        engine=learning.engine or "",
        workers=learning.workers,
    )


def _listed(given: list[str] | None, default: tuple[str, ...]) -> list[str]:
    parts = [part.strip() for text in given or () for part in text.split(",") if part.strip()]
    return list(dict.fromkeys(parts)) or list(default)


def _whole(texts: list[str], option: str) -> tuple[int, ...]:
    for text in texts:
        if not (text.isascii() and text.isdigit() and 0 < int(text) < 10**6):
            raise DposeError("blocks-malformed", f"must be whole numbers of pixels, not {text!r}", option, "as in 8,16")
    return tuple(map(int, texts))


def _show(report: AttackReport, out: Path, console: Console) -> None:
    """Print the results; exit with 130 if Ctrl-C left releases out, with 1 if a release could not be made."""
    from dpose_lab.terminal import print_table

    for table in report.tables:
        print_table(table, console)
    console.print(report.headline)
    for line in report.caveats:
        console.print(f"* {line}")
    console.print(f"\nThe report is {out}/index.html; beside it results.md and results.json", soft_wrap=True)
    if report.stopped:
        raise KeyboardInterrupt
    if report.measured.left:
        raise typer.Exit(1)
