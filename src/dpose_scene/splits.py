"""Seeds: which pictures belong to which split, and which people may appear in them."""

from __future__ import annotations

from collections.abc import Mapping

from dpose.errors import DposeError
from dpose_scene.looks import LOOKS, look_index

SPLITS: dict[str, int] = {
    "train": 8000,
    "val": 1000,
    "test": 1000,
    "public": 200,
    "large": 32000,
    "larger": 24000,
    "aids": 1000,
}
"""Number of pictures in each split of a synthetic look. `large` and `larger` are more of what `train` is, with the
same people: 64,000 together; `aids` shows people of `public` with and without walking aids (`dpose_scene.aids`)."""

IDENTITIES: dict[str, range] = {
    "train": range(0, 1400),
    "val": range(1400, 1600),
    "test": range(1600, 1800),
    "public": range(1800, 2000),
}
"""Groups of people by split: no person is in two of them."""

_ORDER = tuple(IDENTITIES)
_PLACES = {name: (name, 0) for name in IDENTITIES} | {
    "large": ("train", SPLITS["train"]),
    "larger": ("train", SPLITS["train"] + SPLITS["large"]),
    "aids": ("public", SPLITS["public"]),
}
_LOOK_STRIDE = 1 << 20


def scene_seed(look: str, split: str, index: int) -> int:
    """The seed of picture `index` of a split; no two looks, splits or pictures share one.

    A seed's remainder modulo four determines which people it may show.
    """
    number = look_index(look)
    check_place("picture", SPLITS, split, index)
    people, first = _PLACES[split]
    return 4 * (number * _LOOK_STRIDE + first + index) + _ORDER.index(people)


def check_place(what: str, splits: Mapping[str, int], split: str, index: int) -> None:
    """Refuse an unknown split, or an index outside it.

    Args:
        what: Word for an item, such as "picture".
        splits: Number of items of each split.
        split: Name of the split.
        index: Index of the item.

    Raises:
        DposeError: unknown split, or an index outside it.
    """
    if split not in splits:
        raise DposeError("split-unknown", f"unknown split {split!r}", "split", f"choose one of {', '.join(splits)}")
    if not 0 <= index < splits[split]:
        raise DposeError(
            "index-out-of-range", f"there is no {what} {index} in {split}", "index", f"choose 0 to {splits[split] - 1}"
        )


def people_of(seed: int) -> range:
    """The identities a seed may draw."""
    return IDENTITIES[_ORDER[seed % 4]]


__all__ = ["IDENTITIES", "LOOKS", "SPLITS", "people_of", "scene_seed"]
