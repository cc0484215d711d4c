"""Releases attacked by an engine's workers, each of whom learns for itself what the attackers know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dpose.engines import engine, run_items
from dpose.errors import DposeError

if TYPE_CHECKING:
    from dpose_lab.attacks.attack import Attacked, ReleaseAttack
    from dpose_lab.attacks.context import AttackConfig, AttackContext
    from dpose_lab.attacks.identities import Picture
    from dpose_lab.attacks.transforms import Transform


@dataclass(frozen=True)
class AttackWork:
    """An attack that workers carry out. All that it does follows from its seed: to do it twice is to do it once.

    Attributes:
        attack: It.
        config: What was asked.
    """

    attack: ReleaseAttack[Any, Any]
    config: AttackConfig


def attack_item(work: AttackWork, number: int) -> Attacked[Any]:
    """At a worker: attack release `number`. The command has counted the attack before.

    Raises:
        DposeError: the release cannot be made or attacked.
    """
    context, learnt, releases = _learnt(work)
    return _bare(work.attack.attack(context, learnt, releases[number]))


@contextmanager
def attacked_ahead(
    attack: ReleaseAttack[Any, Any], context: AttackContext, releases: Sequence[Transform]
) -> Iterator[Callable[[Transform], Attacked[Any]]]:
    """What attacks a release, where an engine's workers are to do it: in any order, and waited for in turn.

    **Guarantee.** `open_context` has reserved all that the attack may look at; workers read the same pictures and no
    others.

    Args:
        attack: The attack.
        context: The command's, which names the engine.
        releases: All that will be asked for, in that order.
    """
    config = context.config
    work = AttackWork(attack, replace(config, engine="", workers=1))
    progress = context.note(f"attacking, {config.engine}", len(releases))
    with engine(config.engine, workers=config.workers) as at:
        stream = run_items(at, attack_item, range(len(releases)), shared=work)
        found = {}

        def asked(release: Transform) -> Attacked[Any]:
            number = releases.index(release)
            while number not in found:
                ended = next(stream)
                found[ended.item] = ended
                progress()
            ended = found.pop(number)
            if ended.failure is not None:
                raise ended.failure.error
            assert ended.result is not None
            return _shown_as(ended.result, release)

        yield asked


@lru_cache(1)
def _learnt(work: AttackWork) -> tuple[AttackContext, Any, Sequence[Transform]]:
    from dpose_lab.attacks.context import counted_context

    context = counted_context(work.config, [work.attack])
    return context, work.attack.learn(context), work.attack.releases(work.config)


def _bare(done: Attacked[Any]) -> Attacked[Any]:
    """Without the function that shows pictures, which crosses no process."""
    return _shown_as(done, replace(done.release, apply=_nothing))


def _shown_as(done: Attacked[Any], release: Transform) -> Attacked[Any]:
    return replace(done, release=release, rows=tuple(replace(row, release=release) for row in done.rows))


def _nothing(picture: Picture, seed: int) -> Picture:
    raise DposeError("release-without-pictures", "a release from another process shows no pictures")
