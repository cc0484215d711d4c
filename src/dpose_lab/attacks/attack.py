"""What an attack is, and the one way that attacks are run.

    @dataclass(frozen=True)
    class Guess(ReleaseAttack[PersonPictures, GuessRow]):
        ...

    ATTACKS["guess"] = "mine.guess:Guess"

Its fields are its options on the command line. Beside its line in `attacks/registry.py` nothing knows it by name.
What learns, and torch with it, is imported where an attack runs: `--help` answers at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from dpose.errors import DposeError
from dpose.files import folder_beside
from dpose.report.results import Figure, Table
from dpose_lab.attacks.engines import attacked_ahead
from dpose_lab.attacks.report import AttackReport, AttackValues

if TYPE_CHECKING:
    from rich.console import Console

    from dpose_lab.attacks.context import AttackConfig, AttackContext
    from dpose_lab.attacks.identities import Identities, PersonPictures, Picture
    from dpose_lab.attacks.transforms import Transform

STRONGER = "Of the two attackers the stronger one counts: whoever attacks in earnest takes the better way."
TOLD_WHERE = "The attacker is told where in the picture the person is, as any detector would."
SAMPLES = 4
"""People in a sheet of pictures."""
STOPPED = "stopped"
Row = TypeVar("Row", bound="AttackRow")
Learnt = TypeVar("Learnt")
T = TypeVar("T")


def option(default: Any, help: str, **limits: Any) -> Any:
    """A field of an attack that is an option on the command line.

    Args:
        default: Its value unless told otherwise.
        help: A line for `--help`.
        limits: `min`, `max`: as Typer has them.
    """
    return field(default=default, metadata={"help": help, **limits})


@dataclass(frozen=True)
class AttackRow(ABC):
    """What one attacker found out from one release.

    Attributes:
        release: Which.
        attacker: "plain", "adaptive", or "" where there is one only.
    """

    release: Transform
    attacker: str

    @property
    @abstractmethod
    def strength(self) -> float:
        """How well the attacker did: of two on one release the stronger counts."""

    @abstractmethod
    def measures(self) -> dict[str, Any]:
        """What was measured, as JSON."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "release": self.release.title,
            "key": self.release.key,
            "guarantee": self.release.guarantee,
            **({"attacker": self.attacker} if self.attacker else {}),
            **self.measures(),
        }


@dataclass(frozen=True)
class Attacked(Generic[Row]):
    """A release after the attack.

    Attributes:
        release: Which.
        rows: One an attacker.
        pictures: Titles and pictures of at most `SAMPLES` people, as somebody sees them.
    """

    release: Transform
    rows: tuple[Row, ...]
    pictures: tuple[tuple[str, Picture], ...] = ()


class Attack(Protocol):
    """What the command line needs to know of an attack: a frozen dataclass whose fields are its options."""

    chooses_releases: ClassVar[bool]
    """Whether the user says which releases are attacked."""
    chooses_attackers: ClassVar[bool]
    """Whether there are two attackers to choose from."""

    def run(self, config: AttackConfig, out: Path, console: Console) -> list[tuple[Path, AttackReport]]:
        """Attack, and write the folder `out`: each report with the folder that it stands in.

        Raises:
            DposeError: the data or a setting cannot be used, or `out` exists.
            KeyboardInterrupt: it was stopped, and nothing is left.
        """


@dataclass(frozen=True)
class ReleaseAttack(ABC, Generic[Learnt, Row]):
    """An attack on release after release: what it learns, how it attacks one, and how that is told."""

    name: ClassVar[str]
    """As on the command line."""
    title: ClassVar[str]
    """Of its report."""
    chooses_releases: ClassVar[bool] = True
    chooses_attackers: ClassVar[bool] = True

    @property
    @abstractmethod
    def pictures(self) -> int:
        """How many pictures of each person it needs."""

    def learns(self, config: AttackConfig) -> bool:
        """Whether an attacker learns from people who are not attacked."""
        return True

    def reads(self, config: AttackConfig, people: Identities) -> list[tuple[int, int]]:
        """Person and number of every picture that it may look at. Of files those are some who teach the attacker, too.

        Raises:
            DposeError: the data cannot be attacked so.
        """
        taught: Sequence[int] = ()
        if self.learns(config):
            people.check_taught()
            taught = () if people.look else people.public[: config.effort.people]
        own = people.first(people.people, 0, self.pictures)
        return [*own, *people.first(taught, 0, config.effort.pictures)]

    def releases(self, config: AttackConfig) -> Sequence[Transform]:
        """All that is attacked.

        Raises:
            DposeError: a setting is out of range.
        """
        return config.transforms()

    @abstractmethod
    def learn(self, context: AttackContext) -> Learnt:
        """All that is there before the first release: pictures with and without names, and attackers.

        Raises:
            DposeError: the data cannot be used.
        """

    @abstractmethod
    def attack(self, context: AttackContext, learnt: Learnt, release: Transform) -> Attacked[Row]:
        """Attack one release.

        Raises:
            DposeError: it cannot be made or attacked.
        """

    @abstractmethod
    def headline(self, learnt: Learnt, rows: Sequence[Row]) -> str:
        """The result in a sentence."""

    @abstractmethod
    def threat(self, context: AttackContext, learnt: Learnt) -> tuple[str, ...]:
        """Who the attacker is, what they have, and who is public."""

    @abstractmethod
    def tables(self, learnt: Learnt, rows: Sequence[Row]) -> tuple[Table, ...]:
        """At least one."""

    def figures(self, learnt: Learnt, rows: Sequence[Row]) -> tuple[Figure, ...]:
        """Charts; the sheet of pictures is drawn for all attacks alike."""
        return ()

    def chance(self, learnt: Learnt) -> Mapping[str, Any]:
        """What guessing finds, and whatever else goes beside the rows, as JSON."""
        return {}

    def settings(self, learnt: Learnt) -> Mapping[str, Any]:
        """The attack's own, as JSON."""
        return asdict(self)

    def facts(self) -> Mapping[str, str]:
        """For the head of the page."""
        return {}

    def sheet(self, done: Sequence[Attacked[Row]]) -> Figure | None:
        """A few people, a row each, as each release shows them."""
        from dpose.report.plots import pictures

        shown = [one for one in done if one.pictures]
        if not shown:
            return None
        panels = [one.pictures[k] for k in range(len(shown[0].pictures)) for one in shown]
        caption = "Pictures that are looked for: " + "; ".join(one.release.title for one in shown)
        return Figure("pictures", caption, png=pictures(panels, len(shown)))

    def run(self, config: AttackConfig, out: Path, console: Console) -> list[tuple[Path, AttackReport]]:
        """See `Attack`."""
        from dpose_lab.attacks.context import open_context

        releases = self.releases(config)
        with (
            open_context(config, [self], out, console) as context,
            folder_beside(out, config.folder_mode) as folder,
        ):
            report = carry_out(self, context, releases)
            report.write(folder)
        return [(out, report)]


def carry_out(
    attack: ReleaseAttack[Learnt, Row], context: AttackContext, releases: Sequence[Transform]
) -> AttackReport:
    """Attack release after release, and put together what is told of it.

    Raises:
        DposeError: the data cannot be used, or raw pictures, or every release, cannot be attacked.
        KeyboardInterrupt: before anything but raw pictures was done; later ones keep what there is.
    """
    learnt = attack.learn(context)
    with ExitStack() as held:
        attack_one: Callable[[Transform], Attacked[Row]] = partial(attack.attack, context, learnt)
        if context.config.engine:
            attack_one = held.enter_context(attacked_ahead(attack, context, releases))
        done, left, stopped = attack_each(releases, attack_one)
    rows = [row for one in done for row in one.rows]
    names = "; ".join(f"{release.title} ({why})" for release, why in left)
    sheet = attack.sheet(done)
    config = context.config
    guarantees = [(one.release.title, one.release.guarantee) for one in done]
    guarantees += [(release.title, f"not attacked: {why}") for release, why in left]
    return AttackReport(
        name=attack.name,
        title=attack.title,
        headline=attack.headline(learnt, rows),
        threat=attack.threat(context, learnt),
        caveats=(*config.caveats(), *([f"Not attacked: {names}."] if names else [])),
        facts={**context.facts(), **attack.facts()},
        tables=(
            *attack.tables(learnt, rows),
            Table("What is guaranteed", ("Release", "Guarantee"), tuple(guarantees)),
        ),
        figures=(*attack.figures(learnt, rows), *([sheet] if sheet else [])),
        measured=AttackValues(
            settings={**config.to_dict(), **attack.settings(learnt)},
            values={"rows": [row.to_dict() for row in rows], **attack.chance(learnt)},
            left=[{"release": one.title, "key": one.key, "why": why} for one, why in left],
        ),
        command=config.command,
        stopped=stopped,
    )


def attack_each(
    releases: Sequence[Transform], attack: Callable[[Transform], T]
) -> tuple[list[T], list[tuple[Transform, str]], bool]:
    """Attack release after release: one that cannot be made or attacked is left out and the others go on.

    Args:
        releases: Raw pictures first, where they are attacked at all.
        attack: Finds what one of them gives away.

    Returns:
        What was found; releases that could not be attacked and those a stop left out, each with why; and whether
        Ctrl-C ended it.

    Raises:
        DposeError: raw pictures, or every release, cannot be attacked.
        KeyboardInterrupt: before anything but raw pictures was done; later ones keep what there is.
    """
    from dpose_lab.attacks.transforms import RAW

    done: list[T] = []
    left: list[tuple[Transform, str]] = []
    refused: DposeError | None = None
    any_release = False
    for k, release in enumerate(releases):
        try:
            done.append(attack(release))
        except DposeError as error:
            if release.key == RAW.key:
                raise
            refused = refused or error
            left.append((release, error.line()))
        except KeyboardInterrupt:
            if not any_release:
                raise
            return done, [*left, *((rest, STOPPED) for rest in releases[k:])], True
        else:
            any_release |= release.key != RAW.key
    if refused and not any_release:
        raise refused
    return done, left, False


def strongest(rows: Sequence[Row]) -> list[Row]:
    """Of each release the row of the stronger attacker, in the order of the releases; of equals the first."""
    best: dict[str, Row] = {}
    for row in rows:
        held = best.get(row.release.title)
        if held is None or row.strength > held.strength:
            best[row.release.title] = row
    return list(best.values())


def samples(
    release: Transform, originals: PersonPictures, seen: PersonPictures
) -> tuple[tuple[str, Picture], ...]:
    """One picture of each of the first people, as the release shows it."""
    first: dict[int, int] = {}
    for k, who in enumerate(originals.people.tolist()):
        first.setdefault(who, k)
    chosen = sorted(first.values())[:SAMPLES]
    return tuple((release.short_title, seen.pictures[k]) for k in chosen)
