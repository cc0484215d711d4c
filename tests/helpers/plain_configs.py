"""Configurations of releases with one block for all, three values alike and cells that are painted as they are."""

from typing import Any

from dpose.release.config import Pixelization, Projection


def plain_cells(
    epsilon: Any,
    neighbours: Any,
    block: Any = 16,
    delta: Any = 0,
    subdivide: int = 1,
    regions: Any = None,
    **others: Any,
) -> Pixelization:
    """Pixelization; the other fields of `Pixelization.of` by name."""
    others = {"colour": "rgb", "restore": "none", **others}
    return Pixelization.of(epsilon, neighbours, block, delta=delta, subdivide=subdivide, regions=regions, **others)


def plain_projection(
    epsilon: Any, delta: Any, neighbours: Any = None, operator: str = "block", **others: Any
) -> Projection:
    """A projection; the other fields of `Projection.of` by name."""
    return Projection.of(epsilon, delta, neighbours, operator, **{"colour": "rgb", "restore": "none", **others})
