"""What the user asks of an attack, and the bench that every attack stands on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dpose.attacks.adversary import AttackerEffort, AttackerTraining
from dpose.attacks.identities import Identities, open_identities
from dpose.attacks.report import AttackReport
from dpose.attacks.sweep import AttackSweep
from dpose.attacks.transforms import RAW, Transform, all_transforms, epsilon_of_all
from dpose.errors import DposeError
from dpose.privacy.rounding import upper
from dpose.release.config import ReleaseConfig, parse_neighbours
from dpose.report.results import Drawing, Table

R = TypeVar("R")

ATTACKERS = ("plain", "adaptive")
NO_PROOF = (
    "An attack that fails proves nothing: a better one may succeed tomorrow. What holds is the guarantee, epsilon for "
    "its neighbours, and only that."
)
STRONGER = "Of the two attackers the stronger one counts: whoever attacks in earnest takes the better way."
TOLD_WHERE = "The attacker is told where in the picture the person is, as any detector would."


@dataclass(frozen=True)
class AttackConfig:
    """What all attacks have in common.

    Attributes:
        data: Whose pictures: `synthetic:LOOK[:SPLIT]`, `folder:ROOT` or `celeba:ROOT`.
        releases: Of `shown.RELEASES`.
        blocks: Sides of blocks, pixels.
        subdivisions: Parts along a side of a complex block.
        epsilons: As text.
        neighbours: "pixels:M".
        attackers: Of `ATTACKERS`.
        identities: How many people are attacked.
        size: (height, width) of rendered pictures.
        in_grey: Whether pictures are grey, as in seed 002.
        effort: The attacker's; its seed is that of everything.
        command: As it was typed.
    """

    data: str
    releases: tuple[str, ...] = ("dp",)
    blocks: tuple[int, ...] = (16,)
    subdivisions: tuple[int, ...] = (1,)
    epsilons: tuple[str, ...] = ("5",)
    neighbours: str = "pixels:1"
    attackers: tuple[str, ...] = ATTACKERS
    identities: int = 100
    size: tuple[int, int] = (128, 96)
    in_grey: bool = False
    effort: AttackerEffort = field(default_factory=AttackerEffort)
    command: str = ""

    def __post_init__(self) -> None:
        unknown = [name for name in self.attackers if name not in ATTACKERS]
        if unknown or not self.attackers:
            raise DposeError(
                f"no attacker called {', '.join(unknown)!r}",
                "--attacker",
                f"choose from {', '.join(ATTACKERS)}",
            )
        if self.identities < 2:
            raise DposeError("two people are needed to mistake one for the other", "--identities")
        if not all(64 <= side <= 1024 and side % 8 == 0 for side in self.size):
            raise DposeError("sides must be multiples of 8 between 64 and 1024", "--size")
        if parse_neighbours(self.neighbours)[0] == "frame":
            raise DposeError("pictures have no frames", "--neighbours", "write pixels:M")

    @property
    def seed(self) -> int:
        """Of everything."""
        return self.effort.seed

    def shown(self) -> list[Transform]:
        """All that is attacked, raw pictures first.

        Raises:
            DposeError: a setting is out of range.
        """
        return all_transforms(
            self.releases,
            blocks=self.blocks,
            subdivisions=self.subdivisions,
            epsilons=self.epsilons,
            neighbours=self.neighbours,
        )

    def attackers_of(self, shown: Transform) -> tuple[str, ...]:
        """Who attacks one release: as asked, and raw pictures the plain one always: they are the ceiling."""
        if shown.key == RAW.key:
            return ("plain",)
        return tuple(name for name in ATTACKERS if name in self.attackers)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "data": self.data,
            "releases": list(self.releases),
            "blocks": list(self.blocks),
            "subdivisions": list(self.subdivisions),
            "epsilons": list(self.epsilons),
            "neighbours": self.neighbours,
            "identities": self.identities,
            "size": list(self.size),
            "grey": self.in_grey,
            "seed": self.seed,
            "learn_from": {"people": self.effort.people, "pictures": self.effort.pictures},
        }

    @property
    def folder_mode(self) -> int:
        """Who may look into the report's folder: its owner alone where it shows somebody's pictures."""
        return 0o755 if self.data.startswith("synthetic:") else 0o700

    def caveats(self) -> tuple[str, ...]:
        """What a reader of the results must know."""
        m = ReleaseConfig.of(self.epsilons[0], self.neighbours, 1).m
        said = [NO_PROOF]
        if "dp" in self.releases:
            value = "the value of any single pixel" if m == 1 else f"the values of any {m} pixels"
            whole = " and ".join(
                f"epsilon {epsilon} comes to {upper(epsilon_of_all(self.neighbours, epsilon, self.size))}"
                for epsilon in self.epsilons
            )
            said.append(
                f"Neighbours {self.neighbours} hide {value}. They do not promise that a person is not recognised: for "
                f"pictures of {self.size[0]} x {self.size[1]} that differ everywhere, {whole}."
            )
        said.append(
            f"All noise came from seed {self.seed}, so that the figures can be repeated. Pictures made so protect "
            "nobody; dpose pixelize draws its noise from the operating system."
        )
        if not self.data.startswith("synthetic:"):
            said.append(
                "This report shows raw pictures of some of the people: keep it where they may be seen."
            )
        return tuple(said)


@dataclass(frozen=True)
class AttackContext:
    """An opened crowd with the attackers' school.

    Attributes:
        ask: What was asked.
        crowd: Whom.
        school: Where the attackers learn.
        note: Begins a line of the progress bar.
    """

    ask: AttackConfig
    crowd: Identities
    school: AttackerTraining
    note: Callable[[str, int], Callable[[], None]]

    def report(
        self,
        attacked: AttackSweep[Any],
        *,
        name: str,
        title: str,
        headline: str,
        threat: tuple[str, ...],
        tables: tuple[Table, ...],
        drawings: tuple[Drawing, ...],
        values: Mapping[str, Any],
        settings: Mapping[str, Any] | None = None,
        facts: Mapping[str, str] | None = None,
    ) -> AttackReport:
        """What was found, with what all attacks say: the arguments are those of `AttackReport`."""
        return AttackReport(
            name=name,
            title=title,
            headline=headline,
            threat=threat,
            caveats=self.ask.caveats() + attacked.caveats(),
            facts={**self._facts(), **(facts or {})},
            tables=(*tables, attacked.guarantees()),
            drawings=drawings,
            settings={**self.ask.to_dict(), **(settings or {})},
            values=values,
            command=self.ask.command,
            left=attacked.to_dict(),
            stopped=attacked.stopped,
        )

    def _facts(self) -> Mapping[str, str]:
        effort = self.ask.effort
        return {
            "Attacked": self.crowd.title,
            "People": f"{len(self.crowd.people):,}",
            "The attacker's own": f"{min(effort.people, len(self.crowd.public)):,} other people, {effort.pictures} "
            "pictures each",
            "Seed": str(self.ask.seed),
        }


@contextmanager
def open_context(ask: AttackConfig, pictures: int, console: Console) -> Iterator[AttackContext]:
    """The bench, with a progress bar while it is in use.

    Args:
        ask: What is asked.
        pictures: How many of each person are attacked.
        console: For the bar.

    Raises:
        DposeError: data that cannot be attacked.
    """
    crowd = open_identities(ask.data, ask.size, in_grey=ask.in_grey).chosen(ask.identities, pictures)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:

        def note(text: str, steps: int) -> Callable[[], None]:
            task = bar.add_task(text, total=steps)
            return lambda: bar.advance(task)

        yield AttackContext(ask, crowd, AttackerTraining(crowd, ask.effort, note), note)


def strongest(rows: Sequence[R], release: Callable[[R], str], strength: Callable[[R], float]) -> list[R]:
    """Of the rows on each release the one of the stronger attacker, in the order of the releases.

    Args:
        rows: One an attacker and release.
        release: Names a row's release.
        strength: How well a row's attacker did; of equals the first counts.
    """
    best: dict[str, R] = {}
    for row in rows:
        held = best.get(release(row))
        if held is None or strength(row) > strength(held):
            best[release(row)] = row
    return list(best.values())


def parse_size(text: str) -> tuple[int, int]:
    """(height, width) from "HEIGHTxWIDTH".

    Raises:
        DposeError: it is no size.
    """
    found = re.fullmatch(r"(\d{1,5})x(\d{1,5})", text)
    if not found:
        raise DposeError(f"must be HEIGHTxWIDTH, not {text!r}", "--size", "as in 128x96")
    return int(found[1]), int(found[2])
