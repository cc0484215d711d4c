"""Attacks by an engine's workers, each of which trains the attackers' models itself."""

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
    """An attack for workers to run. It is a function of its seed, so that a repetition gives the same result.

    Attributes:
        attack: The attack.
        config: The settings.
        charged: Marks of the pictures that were charged.
    """

    attack: ReleaseAttack[Any, Any]
    config: AttackConfig
    charged: frozenset[int]


def attack_item(work: AttackWork, number: int) -> Attacked[Any]:
    """Attack release `number` at a worker. The command has charged the attack before."""
    context, learnt, releases = _learnt(work)
    return _bare(work.attack.attack(context, learnt, releases[number]))


@contextmanager
def attacked_ahead(
    attack: ReleaseAttack[Any, Any], context: AttackContext, releases: Sequence[Transform]
) -> Iterator[Callable[[Transform], Attacked[Any]]]:
    """Yield a function that attacks a release by an engine's workers: they run in any order, results come in turn.

    **Guarantee.** `open_context` has reserved all pictures that the attack may read; workers read the
    same pictures and no others.

    Args:
        attack: The attack.
        context: The command's, which names the engine.
        releases: All releases to attack, in order.
    """
    config = context.config
    work = AttackWork(attack, replace(config, engine="", workers=1), context.charged)
    progress = context.note(f"attacking, {config.engine}", len(releases))
    with engine(config.engine, workers=config.workers) as at:
        stream = run_items(at, attack_item, range(len(releases)), shared=work)
        results = {}

        def attacked(release: Transform) -> Attacked[Any]:
            number = releases.index(release)
            while number not in results:
                ended = next(stream)
                results[ended.item] = ended
                progress()
            ended = results.pop(number)
            if ended.failure is not None:
                raise ended.failure.error
            assert ended.result is not None
            return _shown_as(ended.result, release)

        yield attacked


@lru_cache(1)
def _learnt(work: AttackWork) -> tuple[AttackContext, Any, Sequence[Transform]]:
    from dpose_lab.attacks.context import counted_context

    context = counted_context(work.config, [work.attack], work.charged)
    return context, work.attack.learn(context), work.attack.releases(work.config)


def _bare(done: Attacked[Any]) -> Attacked[Any]:
    """Drop the function that shows pictures, which cannot be pickled."""
    return _shown_as(done, replace(done.release, apply=_nothing))


def _shown_as(done: Attacked[Any], release: Transform) -> Attacked[Any]:
    return replace(done, release=release, rows=tuple(replace(row, release=release) for row in done.rows))


def _nothing(picture: Picture, seed: int) -> Picture:
    raise DposeError("release-without-pictures", "a release from another process shows no pictures")
