"""Seeds: which pictures belong to which split, and which people may appear in them."""

from __future__ import annotations

from dpose.errors import DposeError
from dpose.scene.looks import LOOKS, look_index

SPLITS: dict[str, int] = {"train": 8000, "val": 1000, "test": 1000, "public": 200}
"""Number of pictures in each split of a synthetic look."""

IDENTITIES: dict[str, range] = {
    "train": range(0, 1400),
    "val": range(1400, 1600),
    "test": range(1600, 1800),
    "public": range(1800, 2000),
}
"""Who may appear in each split: no person is in two."""

_ORDER = tuple(SPLITS)
_LOOK_STRIDE = 1 << 20


def scene_seed(look: str, split: str, index: int) -> int:
    """The seed of picture `index` of a split; no two looks, splits or pictures share one.

    A seed's remainder modulo four tells its split, and with it the people it may show.

    Raises:
        DposeError: unknown look or split, or an index outside the split.
    """
    number = look_index(look)
    if split not in SPLITS:
        raise DposeError(f"unknown split {split!r}", "split", f"choose one of {', '.join(SPLITS)}")
    if not 0 <= index < SPLITS[split]:
        raise DposeError(
            f"there is no picture {index} in {split}", "index", f"choose 0 to {SPLITS[split] - 1}"
        )
    return 4 * (number * _LOOK_STRIDE + index) + _ORDER.index(split)


def people_of(seed: int) -> range:
    """The identities a seed may draw."""
    return IDENTITIES[_ORDER[seed % 4]]


__all__ = ["IDENTITIES", "LOOKS", "SPLITS", "people_of", "scene_seed"]
