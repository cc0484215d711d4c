"""`dpose attack`: what can still be found out from pictures that were released."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpose.cli.options import plain_console, typed, unfolded
from dpose.errors import DposeError

if TYPE_CHECKING:
    from rich.console import Console

    from dpose.attacks.context import AttackConfig
    from dpose.attacks.report import AttackReport

app = typer.Typer(
    help="Attack what is released: who is it, what was it, what do they look like. A failed attack proves nothing.",
    no_args_is_help=True,
)

Data = Annotated[
    str,
    typer.Option(
        help="Whose pictures: synthetic:LOOK[:SPLIT], folder:ROOT (a folder in it for each person) or celeba:ROOT."
    ),
]
Out = Annotated[Path, typer.Option(help="The folder to make; must not exist.")]
Releases = Annotated[
    list[str] | None,
    typer.Option(
        help="none, gaussian-blur, pixelate, dp, view:gaussian-blur or view:pixelization; may be given again, or "
        "several with commas. Raw pictures are always there. Default: dp."
    ),
]
Blocks = Annotated[
    list[str] | None, typer.Option(help="Sides of blocks, pixels, as in 8,16; may be given again.")
]
Parts = Annotated[
    list[str] | None,
    typer.Option(help="Parts n along a side of complex blocks; above 1 with private regions. As in 1,4."),
]
Epsilons = Annotated[
    list[str] | None, typer.Option(help="Epsilon of a picture, as in 0.5,5; may be given again.")
]
Neighbours = Annotated[str, typer.Option(help="pixels:M, for pictures that differ in at most M pixels.")]
Attackers = Annotated[
    list[str] | None,
    typer.Option(
        help="plain (learnt from raw pictures), adaptive (learnt from released ones). Default: both."
    ),
]
Identities = Annotated[int, typer.Option(min=2, help="How many people are attacked, at most.")]
LearnFrom = Annotated[int, typer.Option(min=2, help="How many other people the attacker has pictures of.")]
Pictures = Annotated[int, typer.Option(min=2, help="How many of each of those.")]
Size = Annotated[str, typer.Option(help="HEIGHTxWIDTH of rendered pictures; files keep their own size.")]
Epochs = Annotated[int, typer.Option(min=1, help="Passes over them, of what learns to reconstruct.")]
Grey = Annotated[bool, typer.Option("--grey", help="Grey pictures, as in the pixelization paper.")]
Seed = Annotated[int, typer.Option(min=0, help="Of all noise and learning; pictures made so protect nobody.")]


@dataclass(frozen=True)
class Released:
    """Whose pictures are attacked, how they are released, and where the report goes."""

    data: Data
    out: Out
    release: Releases = None
    block: Blocks = None
    subdivide: Parts = None
    epsilon: Epsilons = None
    neighbours: Neighbours = "pixels:1"


@dataclass(frozen=True)
class Learning:
    """What the attacker learns from, and how all pictures are made."""

    learn_from: LearnFrom = 500
    learn_pictures: Pictures = 5
    size: Size = "128x96"
    grey: Grey = False
    seed: Seed = 0


@app.command(epilog="Example: dpose attack reid --data synthetic:ward --block 16 --epsilon 5 --out runs/reid")
@unfolded
def reid(
    released: Released,
    *,
    attacker: Attackers = None,
    identities: Identities = 100,
    gallery: Annotated[int, typer.Option(min=1, help="Raw pictures of each person.")] = 1,
    queries: Annotated[int, typer.Option(min=1, help="Released pictures of each person.")] = 2,
    embedder: Annotated[
        str,
        typer.Option(
            help='The plain attacker\'s: an ONNX file, with ",imagenet" behind it where its input is normalised so. '
            "Default: one learnt from public people."
        ),
    ] = "",
    learning: Learning,
) -> None:
    """Who is it? Released pictures are matched with raw ones: CMC and mAP, beside raw pictures and guessing."""
    from dpose.attacks.reid import Search, attack_reid

    console = plain_console()
    ask = _ask(released, learning, identities, attacker=attacker)
    _show(attack_reid(ask, Search(gallery, queries, embedder), released.out, console), released.out, console)


@app.command(
    epilog="Example: dpose attack reconstruct --data synthetic:ward --block 16 --epsilon 5 --out runs/rebuilt"
)
@unfolded
def reconstruct(
    released: Released,
    *,
    identities: Identities = 100,
    epochs: Epochs = 3,
    learning: Learning,
) -> None:
    """What was the picture? A small network from released to raw, tested on people it never saw."""
    from dpose.attacks.reconstruction import attack_reconstruct

    console = plain_console()
    ask = _ask(released, learning, identities, epochs=epochs)
    _show(attack_reconstruct(ask, released.out, console), released.out, console)


@app.command(
    epilog="Example: dpose attack attributes --data synthetic:ward --block 16 --epsilon 5 --out runs/told"
)
@unfolded
def attributes(
    released: Released,
    *,
    attacker: Attackers = None,
    identities: Identities = 100,
    learning: Learning,
) -> None:
    """What do they look like? Age, build, clothes, hair, glasses, told from released pictures."""
    from dpose.attacks.attributes import attack_attributes

    console = plain_console()
    ask = _ask(released, learning, identities, attacker=attacker)
    _show(attack_attributes(ask, released.out, console), released.out, console)


@app.command(
    epilog="Example: dpose attack linkage --data synthetic:ward --block 16 --epsilon 5 --frames 8 --out runs/linked"
)
@unfolded
def linkage(
    released: Released,
    *,
    attacker: Attackers = None,
    identities: Identities = 100,
    frames: Annotated[
        int, typer.Option(min=1, help="Of each person at each place; several are released as a clip.")
    ] = 1,
    learning: Learning,
) -> None:
    """Is it the same person? Pairs of releases from two places: ROC, and what is found at few false alarms."""
    from dpose.attacks.linkage import attack_linkage

    console = plain_console()
    ask = _ask(released, learning, identities, attacker=attacker)
    _show(attack_linkage(ask, frames, released.out, console), released.out, console)


@app.command(epilog="Example: dpose attack view --data synthetic:ward --out runs/view")
def view(
    data: Data,
    out: Out,
    identities: Identities = 100,
    learn_from: LearnFrom = 500,
    learn_pictures: Pictures = 5,
    epochs: Epochs = 3,
    size: Size = "128x96",
    seed: Seed = 0,
) -> None:
    """What does the public view of feature privacy give away? All four attacks on both kinds of it."""
    from dpose.attacks.public_view import attack_view

    console = plain_console()
    ask = _ask(
        Released(data, out), Learning(learn_from, learn_pictures, size, seed=seed), identities, epochs=epochs
    )
    for report in attack_view(ask, out, console):
        _show(report, out / report.name, console)


def _ask(
    released: Released,
    learning: Learning,
    identities: int,
    *,
    attacker: list[str] | None = None,
    epochs: int = 3,
) -> AttackConfig:
    from dpose.attacks.adversary import AttackerEffort
    from dpose.attacks.context import ATTACKERS, AttackConfig, parse_size

    return AttackConfig(
        data=released.data,
        releases=tuple(_listed(released.release, ("dp",))),
        blocks=_whole(_listed(released.block, ("16",)), "--block"),
        subdivisions=_whole(_listed(released.subdivide, ("1",)), "--subdivide"),
        epsilons=tuple(_listed(released.epsilon, ("5",))),
        neighbours=released.neighbours,
        attackers=tuple(_listed(attacker, ATTACKERS)),
        identities=identities,
        size=parse_size(learning.size),
        in_grey=learning.grey,
        effort=AttackerEffort(learning.learn_from, learning.learn_pictures, epochs, learning.seed),
        command=typed(),
    )


def _listed(given: list[str] | None, default: tuple[str, ...]) -> list[str]:
    found = [part.strip() for text in given or () for part in text.split(",") if part.strip()]
    return list(dict.fromkeys(found)) or list(default)


def _whole(texts: list[str], option: str) -> tuple[int, ...]:
    for text in texts:
        if not (text.isascii() and text.isdigit() and 0 < int(text) < 10**6):
            raise DposeError(f"must be whole numbers of pixels, not {text!r}", option, "as in 8,16")
    return tuple(map(int, texts))


def _show(report: AttackReport, out: Path, console: Console) -> None:
    """Print what was found; then end with 130 where Ctrl-C left releases out, with 1 where one could not be made."""
    from dpose.report.terminal import print_table

    for found in report.tables:
        print_table(found, console)
    console.print(report.headline)
    for line in report.caveats:
        console.print(f"* {line}")
    console.print(f"\nThe report is {out}/index.html; beside it results.md and results.json", soft_wrap=True)
    if report.stopped:
        raise KeyboardInterrupt
    if report.left:
        raise typer.Exit(1)
