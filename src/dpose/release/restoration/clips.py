"""Restoration of clips: each group of frames is seen together with the ones before and after it, as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from dpose.release.planes import Observed

Shown = TypeVar("Shown")


def restored_clip(
    groups: Iterable[Observed], apply: Callable[[Observed, Observed | None, Observed | None], Shown]
) -> Iterator[Shown]:
    """Restored groups, one behind what is read: memory holds three, however long the clip.

    Args:
        groups: In order, of equal sizes.
        apply: `Restoration.apply` or `Restoration.levels`.
    """
    before: Observed | None = None
    here: Observed | None = None
    for after in groups:
        if here is not None:
            yield apply(here, before, after)
        before, here = here, after
    if here is not None:
        yield apply(here, before, None)
