"""The interface of attacks, and how they are run.

    @dataclass(frozen=True)
    class Guess(ReleaseAttack[PersonPictures, GuessRow]):
        ...

    ATTACKS["guess"] = "mine.guess:Guess"

The fields of an attack are its options on the command line. It is registered by one line in `attacks/registry.py`.
Learning code, and torch with it, is imported where an attack runs, so that `--help` is fast.
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

STRONGER = "Of the two attackers the stronger one counts: a real attacker would take the better way."
TOLD_WHERE = "The attacker is told where in the picture the person is, as any detector would."
SAMPLES = 4
"""Number of people in a sheet of pictures."""
STOPPED = "stopped"
Row = TypeVar("Row", bound="AttackRow")
Learnt = TypeVar("Learnt")
T = TypeVar("T")


def option(default: Any, help: str, **limits: Any) -> Any:
    """Declare a field of an attack that is an option on the command line.

    Args:
        default: Value of the option if it is not given.
        help: Line in `--help`.
        limits: `min` and `max`, passed to Typer.
    """
    return field(default=default, metadata={"help": help, **limits})


@dataclass(frozen=True)
class AttackRow(ABC):
    """Result of one attacker on one release.

    Attributes:
        release: The attacked release.
        attacker: "plain", "adaptive", or "" for the only attacker.
    """

    release: Transform
    attacker: str

    @property
    @abstractmethod
    def strength(self) -> float:
        """Success of the attacker: of two on one release the stronger counts."""

    @abstractmethod
    def measures(self) -> dict[str, Any]:
        """The measurements as JSON."""

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON."""
        return {
            "release": self.release.title,
            "key": self.release.key,
            "guarantee": self.release.guarantee,
            **({"attacker": self.attacker} if self.attacker else {}),
            **self.measures(),
        }


@dataclass(frozen=True)
class Attacked(Generic[Row]):
    """An attacked release.

    Attributes:
        release: The attacked release.
        rows: One row per attacker.
        pictures: Titles and pictures of at most `SAMPLES` people, as released.
    """

    release: Transform
    rows: tuple[Row, ...]
    pictures: tuple[tuple[str, Picture], ...] = ()


class Attack(Protocol):
    """Interface of an attack to the command line: a frozen dataclass whose fields are its options."""

    chooses_releases: ClassVar[bool]
    """True if the user chooses the attacked releases."""
    chooses_attackers: ClassVar[bool]
    """True if there are two attackers to choose from."""

    def run(self, config: AttackConfig, out: Path, console: Console) -> list[tuple[Path, AttackReport]]:
        """Attack, write the folder `out`, and return each report with its folder.

        Raises:
            DposeError: the data or a setting cannot be used, or `out` exists.
            KeyboardInterrupt: the attack was stopped, and nothing is written.
        """


@dataclass(frozen=True)
class ReleaseAttack(ABC, Generic[Learnt, Row]):
    """An attack on a list of releases: how it prepares, attacks one release, and reports the results."""

    name: ClassVar[str]
    """Name on the command line."""
    title: ClassVar[str]
    """Title of the report."""
    chooses_releases: ClassVar[bool] = True
    chooses_attackers: ClassVar[bool] = True

    @property
    @abstractmethod
    def pictures(self) -> int:
        """Number of pictures of each person that the attack needs."""

    def learns(self, config: AttackConfig) -> bool:
        """True if an attacker learns from people who are not attacked."""
        return True

    def reads(self, config: AttackConfig, people: Identities) -> list[tuple[int, int]]:
        """(person, number) of every picture that the attack may read, with the public people's if they are files."""
        taught: Sequence[int] = ()
        if self.learns(config):
            people.check_taught()
            taught = () if people.look else people.public[: config.effort.people]
        own = people.first(people.people, 0, self.pictures)
        return [*own, *people.first(taught, 0, config.effort.pictures)]

    def releases(self, config: AttackConfig) -> Sequence[Transform]:
        """Releases to attack."""
        return config.transforms()

    @abstractmethod
    def learn(self, context: AttackContext) -> Learnt:
        """Prepare pictures with and without names, and the attackers."""

    @abstractmethod
    def attack(self, context: AttackContext, learnt: Learnt, release: Transform) -> Attacked[Row]:
        """Attack one release."""

    @abstractmethod
    def headline(self, learnt: Learnt, rows: Sequence[Row]) -> str:
        """Summarise the result in a sentence."""

    @abstractmethod
    def threat(self, context: AttackContext, learnt: Learnt) -> tuple[str, ...]:
        """Describe the attacker, the attacker's data, and who is public."""

    @abstractmethod
    def tables(self, learnt: Learnt, rows: Sequence[Row]) -> tuple[Table, ...]:
        """Tables of the report, at least one."""

    def figures(self, learnt: Learnt, rows: Sequence[Row]) -> tuple[Figure, ...]:
        """Charts of the report; the sheet of pictures is added for every attack."""
        return ()

    def chance(self, learnt: Learnt) -> Mapping[str, Any]:
        """Success of guessing, and further values of the report, as JSON."""
        return {}

    def settings(self, learnt: Learnt) -> Mapping[str, Any]:
        """Settings of this attack, as JSON."""
        return asdict(self)

    def facts(self) -> Mapping[str, str]:
        """Facts for the head of the page."""
        return {}

    def sheet(self, done: Sequence[Attacked[Row]]) -> Figure | None:
        """Sheet of a few people, a row each, as each release shows them."""
        from dpose_lab.plots import pictures

        shown = [one for one in done if one.pictures]
        if not shown:
            return None
        panels = [one.pictures[k] for k in range(len(shown[0].pictures)) for one in shown]
        caption = "Pictures that are looked for: " + "; ".join(one.release.title for one in shown)
        return Figure("pictures", caption, png=pictures(panels, len(shown)))

    def run(self, config: AttackConfig, out: Path, console: Console) -> list[tuple[Path, AttackReport]]:
        """Attack every release and write the report (`Attack.run`)."""
        from dpose_lab.attacks.context import open_context

        releases = self.releases(config)
        with open_context(config, [self], out, console) as context, folder_beside(out, config.folder_mode) as folder:
            report = carry_out(self, context, releases)
            report.write(folder)
        return [(out, report)]


def carry_out(
    attack: ReleaseAttack[Learnt, Row], context: AttackContext, releases: Sequence[Transform]
) -> AttackReport:
    """Attack release after release and assemble the report.

    Raises:
        DposeError: the data cannot be used, or raw pictures, or every release, cannot be attacked.
        KeyboardInterrupt: Ctrl-C before any release was attacked; later, results so far are returned.
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
        tables=(*attack.tables(learnt, rows), Table("What is guaranteed", ("Release", "Guarantee"), tuple(guarantees))),
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
    """Attack release after release, leaving out those that cannot be made or attacked.

    Args:
        releases: The releases, raw pictures first if they are attacked.
        attack: Attacks one release.

    Returns:
        Results; releases that could not be attacked or were left out by a stop, each with the reason; and whether
        Ctrl-C ended it.

    Raises:
        DposeError: raw pictures, or every release, cannot be attacked.
        KeyboardInterrupt: Ctrl-C before any release was attacked; later, results so far are returned.
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
    """The row of the stronger attacker for each release, in order; the first of equal ones."""
    best: dict[str, Row] = {}
    for row in rows:
        held = best.get(row.release.title)
        if held is None or row.strength > held.strength:
            best[row.release.title] = row
    return list(best.values())


def samples(release: Transform, originals: PersonPictures, seen: PersonPictures) -> tuple[tuple[str, Picture], ...]:
    """Pictures of the first people, one each, as the release shows them."""
    first: dict[int, int] = {}
    for k, who in enumerate(originals.people.tolist()):
        first.setdefault(who, k)
    chosen = sorted(first.values())[:SAMPLES]
    return tuple((release.short_title, seen.pictures[k]) for k in chosen)
