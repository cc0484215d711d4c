"""Settings of an attack, and what all attacks share: people, and data that attackers learn from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dpose.account import ATTACK, PIXEL, charge, committing
from dpose.errors import DposeError
from dpose.files import check_free
from dpose.privacy.marks import Marks
from dpose.privacy.neighbours import CELL_FORMS, Neighbours
from dpose.privacy.ranges import upper
from dpose.release.config import AUTO
from dpose.runs.scored import reading_charge
from dpose_lab.attacks.adversary import AttackerEffort, AttackerTraining
from dpose_lab.attacks.attack import ReleaseAttack
from dpose_lab.attacks.identities import Identities, IdentitySpec, PersonPictures, open_identities
from dpose_lab.attacks.transforms import LEARNED, RAW, Transform, all_transforms, epsilon_of_all

ATTACKERS = ("plain", "adaptive")
NO_PROOF = (
    "An attack that fails proves nothing: a better one may succeed tomorrow. What holds is the guarantee, epsilon for "
    "its neighbours, and only that."
)
RESTORED = (
    "Private releases are attacked as their readers see them, restored as their names say, and the adaptive attacker "
    "learns from releases restored alike. A reader of the archive may restore it another way."
)
COUNTED = (
    "The account of these pictures has this attack as something that nothing bounds: its scores are functions of raw "
    "pictures without noise."
)
UNCOUNTED = "These pictures are declared public: the account does not count them."


@dataclass(frozen=True)
class AttackConfig:
    """Settings that all attacks have in common.

    Attributes:
        data: Pictures to attack: `synthetic:LOOK[:SPLIT]`, `folder:ROOT` or `celeba:ROOT`.
        releases: Names in `transforms.RELEASES`.
        blocks: Sides of blocks, pixels, or "auto", as releases choose them.
        subdivisions: Parts along a side of a complex block.
        epsilons: Budgets as text.
        neighbours: Neighbours, "pixels:M".
        restorations: Names in `restoration.METHODS`: how private releases are shown, also to a learning attacker.
        attackers: Names in `ATTACKERS`.
        identities: Number of attacked people.
        size: (height, width) of rendered pictures.
        in_grey: True for grey pictures, as in seed 002.
        public: True if the data are public. Public data are not charged to the account.
        effort: The attacker's data; their seed is the seed of all randomness.
        command: The command line.
        engine: Name of the engine that attacks the releases, see `dpose.engines.engine`; "" for this process.
        workers: Number of the engine's workers.
    """

    data: str
    releases: tuple[str, ...] = ("dp",)
    blocks: tuple[int | str, ...] = (AUTO,)
    subdivisions: tuple[int, ...] = (1,)
    epsilons: tuple[str, ...] = ("5",)
    neighbours: str = "pixels:1"
    restorations: tuple[str, ...] = (LEARNED,)
    attackers: tuple[str, ...] = ATTACKERS
    identities: int = 100
    size: tuple[int, int] = (128, 96)
    in_grey: bool = False
    public: bool = False
    effort: AttackerEffort = field(default_factory=AttackerEffort)
    command: str = ""
    engine: str = ""
    workers: int = 1

    def __post_init__(self) -> None:
        unknown = [name for name in self.attackers if name not in ATTACKERS]
        if unknown or not self.attackers:
            raise DposeError(
                "attacker-unknown",
                f"no attacker called {', '.join(unknown)!r}",
                "--attacker",
                f"choose from {', '.join(ATTACKERS)}",
            )
        if self.identities < 2:
            raise DposeError("identities-too-few", "two people are needed to mistake one for the other", "--identities")
        if not all(64 <= side <= 1024 and side % 8 == 0 for side in self.size):
            raise DposeError("size-out-of-range", "sides must be multiples of 8 between 64 and 1024", "size")
        if Neighbours.parse(self.neighbours, CELL_FORMS).scope == "frame":
            raise DposeError("neighbours-without-frames", "pictures have no frames", "--neighbours", "write pixels:M")

    @property
    def seed(self) -> int:
        """Seed of all randomness."""
        return self.effort.seed

    def transforms(self) -> list[Transform]:
        """Releases to attack, raw pictures first."""
        return all_transforms(
            self.releases,
            blocks=self.blocks,
            subdivisions=self.subdivisions,
            epsilons=self.epsilons,
            neighbours=self.neighbours,
            restorations=self.restorations,
        )

    def attackers_of(self, release: Transform) -> tuple[str, ...]:
        """Attackers of one release: the chosen ones; the plain one alone for raw pictures, the upper limit."""
        if release.key == RAW.key:
            return ("plain",)
        return tuple(name for name in ATTACKERS if name in self.attackers)

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON."""
        return {
            "data": self.data,
            "releases": list(self.releases),
            "blocks": list(self.blocks),
            "subdivisions": list(self.subdivisions),
            "epsilons": list(self.epsilons),
            "neighbours": self.neighbours,
            "restorations": list(self.restorations),
            "identities": self.identities,
            "size": list(self.size),
            "grey": self.in_grey,
            "public": not self.counted,
            "seed": self.seed,
            "learn_from": {"people": self.effort.people, "pictures": self.effort.pictures},
        }

    @property
    def counted(self) -> bool:
        """True if the attacked pictures are charged to the account: all but public ones."""
        return not (self.public or IdentitySpec.parse(self.data).public)

    @property
    def folder_mode(self) -> int:
        """Mode of the report's folder: readable by its owner alone if it shows private pictures."""
        return 0o755 if IdentitySpec.parse(self.data).dataset.rendered else 0o700

    def caveats(self) -> tuple[str, ...]:
        """Caveats of the results."""
        m = Neighbours.parse(self.neighbours, CELL_FORMS).area
        caveats = [NO_PROOF]
        if "dp" in self.releases:
            value = "the value of any single pixel" if m == 1 else f"the values of any {m} pixels"
            whole = " and ".join(
                f"epsilon {epsilon} comes to {upper(epsilon_of_all(self.neighbours, epsilon, self.size))}"
                for epsilon in self.epsilons
            )
            caveats.append(
                f"Neighbours {self.neighbours} hide {value}. They do not promise that a person is not recognised: for "
                f"pictures of {self.size[0]} x {self.size[1]} that differ everywhere, {whole}."
            )
            caveats.append(RESTORED)
        caveats.append(
            f"All noise came from seed {self.seed}, so that the figures can be repeated. Pictures made so protect "
            "no one; dpose pixelize draws its noise from the operating system."
        )
        caveats.append(COUNTED if self.counted else UNCOUNTED)
        if not IdentitySpec.parse(self.data).dataset.rendered:
            caveats.append("This report shows raw pictures of some of the people: keep it where they may be seen.")
        return tuple(caveats)


@dataclass(frozen=True)
class AttackContext:
    """Data and settings that every attack uses.

    Attributes:
        config: The settings.
        identities: The attacked people.
        training: Public people, and the models learnt from them.
        note: Starts a line of the progress bar.
        charged: Marks of the pictures that were charged; empty where none are.
    """

    config: AttackConfig
    identities: Identities
    training: AttackerTraining
    note: Callable[[str, int], Callable[[], None]]
    charged: frozenset[int] = frozenset()

    def pictures(self, first: int, count: int, what: str) -> PersonPictures:
        """Pictures `first` to `first + count` of every attacked person; `what` names them in the progress bar."""
        people = self.identities
        return people.album(first, count, self.note(what, len(people.people) * count))

    @property
    def teachers(self) -> int:
        """Number of other people whose pictures the attacker has."""
        return min(self.config.effort.people, len(self.identities.public))

    def facts(self) -> Mapping[str, str]:
        """Facts for the head of a report."""
        pictures = self.config.effort.pictures
        return {
            "Attacked": self.identities.title,
            "People": f"{len(self.identities.people):,}",
            "The attacker's own": f"{self.teachers:,} other people, {pictures} pictures each",
            "Seed": str(self.config.seed),
        }


@contextmanager
def open_context(
    config: AttackConfig, attacks: Sequence[ReleaseAttack[Any, Any]], out: Path, console: Console
) -> Iterator[AttackContext]:
    """Open the context, with a progress bar; its charge in the account is reserved until the block ends.

    **Guarantee.** All pictures that the attacks may read are read and reserved, in one charge, before anything is
    computed from them; no other files can be read afterwards. Nothing bounds what the results show, so that a
    budget refuses it. Pictures that are declared public are not counted.

    Args:
        config: The settings.
        attacks: The attacks to run.
        out: Folder of the reports.
        console: Console of the progress bar.
    """
    check_free(out)
    people, wanted = _chosen(config, attacks)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:

        def note(text: str, steps: int) -> Callable[[], None]:
            task = bar.add_task(text, total=steps)
            return lambda: bar.advance(task)

        name, charged = "", frozenset[int]()
        if config.counted:
            people, marks = people.read(wanted, note("reading the pictures", len(set(wanted))))
            name, charged = _reserved(config, marks, out), frozenset(marks.tolist())
        with committing(name):
            yield AttackContext(config, people, AttackerTraining(people, config.effort, note), note, charged)


def counted_context(
    config: AttackConfig, attacks: Sequence[ReleaseAttack[Any, Any]], charged: frozenset[int]
) -> AttackContext:
    """Open the context of a worker, whose command has charged the pictures: the same pictures, and no others.

    Args:
        config: The command's settings.
        attacks: The command's attacks.
        charged: Marks of the pictures that the command has charged.

    Raises:
        DposeError: other pictures stand there now, or at this machine.
    """

    def note(text: str, steps: int) -> Callable[[], None]:
        return lambda: None

    people, wanted = _chosen(config, attacks)
    if config.counted:
        people, marks = people.read(wanted, lambda: None)
        if not charged.issuperset(marks.tolist()):
            raise DposeError("pictures-changed", "holds other pictures than were charged", config.data, "run it again")
    return AttackContext(config, people, AttackerTraining(people, config.effort, note), note, charged)


def _chosen(
    config: AttackConfig, attacks: Sequence[ReleaseAttack[Any, Any]]
) -> tuple[Identities, list[tuple[int, int]]]:
    """The attacked people, and all pictures that may be read."""
    people = open_identities(config.data, config.size, in_grey=config.in_grey)
    people = people.chosen(config.identities, max(attack.pictures for attack in attacks))
    return people, [pair for attack in attacks for pair in attack.reads(config, people)]


def _reserved(config: AttackConfig, marks: Marks, out: Path) -> str:
    """The name of the charge for all pictures that may be read."""
    data = IdentitySpec.parse(config.data).for_purpose("evaluate").shown
    return charge(reading_charge(out, data, marks, PIXEL, ATTACK)).id


def parse_size(text: str) -> tuple[int, int]:
    """Parse "HEIGHTxWIDTH" as (height, width)."""
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})", text)
    if not match:
        raise DposeError("size-malformed", f"must be HEIGHTxWIDTH, not {text!r}", "size", "as in 128x96")
    return int(match[1]), int(match[2])
