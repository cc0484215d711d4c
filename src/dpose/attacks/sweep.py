"""Release after release under attack: what was done, and what was left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from dpose.attacks.transforms import RAW, Transform
from dpose.errors import DposeError
from dpose.report.results import Table

T = TypeVar("T")
STOPPED = "stopped"


@dataclass(frozen=True)
class AttackSweep(Generic[T]):
    """What came of a grid of releases.

    Attributes:
        done: What was found of each release.
        left: Releases that could not be made or attacked, and those a stop left out, each with why.
        stopped: Whether Ctrl-C ended it.
    """

    done: tuple[tuple[Transform, T], ...]
    left: tuple[tuple[Transform, str], ...]
    stopped: bool

    def caveats(self) -> tuple[str, ...]:
        """A line of what was left out, if anything was."""
        names = "; ".join(f"{one.title} ({why})" for one, why in self.left)
        return (f"Not attacked: {names}.",) if names else ()

    def guarantees(self) -> Table:
        """What is guaranteed of each release."""
        lines = [(one.title, one.guarantee) for one, _ in self.done]
        lines += [(one.title, f"not attacked: {why}") for one, why in self.left]
        return Table("What is guaranteed", ("Release", "Guarantee"), tuple(lines))

    def to_dict(self) -> list[dict[str, str]]:
        """What was left out, as JSON."""
        return [{"release": one.title, "key": one.key, "why": why} for one, why in self.left]


def attack_each(shown: Sequence[Transform], attack: Callable[[Transform], T]) -> AttackSweep[T]:
    """Attack release after release: one that cannot be made or attacked is left out and the others go on.

    Args:
        shown: The releases.
        attack: Finds what one of them gives away.

    Raises:
        DposeError: raw pictures, or every release, cannot be attacked.
        KeyboardInterrupt: before anything but raw pictures was done; later ones keep what there is.
    """
    done, left = list[tuple[Transform, T]](), list[tuple[Transform, str]]()
    refused: DposeError | None = None
    stopped = False
    for k, one in enumerate(shown):
        try:
            done.append((one, attack(one)))
        except DposeError as error:
            if one.key == RAW.key:
                raise
            refused = refused or error
            left.append((one, error.line()))
        except KeyboardInterrupt:
            if not _any_release(done):
                raise
            stopped = True
            left += [(rest, STOPPED) for rest in shown[k:]]
            break
    if refused and not _any_release(done):
        raise refused
    return AttackSweep(tuple(done), tuple(left), stopped)


def _any_release(done: Sequence[tuple[Transform, T]]) -> bool:
    return any(one.key != RAW.key for one, _ in done)
