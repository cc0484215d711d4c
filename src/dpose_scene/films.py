"""Films: short rendered recordings of a few actions, with identity and description of the person shown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpose_scene.body import body_of
from dpose_scene.looks import look_index
from dpose_scene.render import clip
from dpose_scene.splits import IDENTITIES, check_place
from dpose_scene.stage import identity_of, wears_gown

FILM_ACTIONS = ("walk", "wave", "bend", "squat", "star_jump", "kick")
"""Actions in films; film i of a split shows action i modulo their number."""

FILM_SPLITS: dict[str, int] = {"train": 480, "val": 120, "test": 120}
"""Number of films in each split of a look. No person is in two of them."""

FILM_FRAMES = 24
FILM_SIZE = (64, 64)
"""Frames of a film and their (height, width) in pixels."""

_LOOK_STRIDE = 1 << 20
_FIRST = 1 << 19
"""Films take the upper half of a look's seeds; pictures are far from it."""


@dataclass(frozen=True)
class FilmLabels:
    """Labels of a film, known without rendering it.

    Attributes:
        name: Name, as in "ward-train-0007".
        seed: Seed of the scene.
        action: One of `FILM_ACTIONS`.
        identity: Number of the person shown.
        attributes: Description of that person.
    """

    name: str
    seed: int
    action: str
    identity: int
    attributes: dict[str, str]


def film_labels(look: str, split: str, index: int) -> FilmLabels:
    """The labels of film `index` of a split; the same arguments always give the same film."""
    number = look_index(look)
    check_place("film", FILM_SPLITS, split, index)
    # the remainder modulo four determines which people a scene may show (`splits.people_of`)
    seed = 4 * (number * _LOOK_STRIDE + _FIRST + index) + tuple(IDENTITIES).index(split)
    who = identity_of(look, seed)
    return FilmLabels(
        f"{look}-{split}-{index:04d}",
        seed,
        FILM_ACTIONS[index % len(FILM_ACTIONS)],
        who,
        dict(body_of(who, wears_gown(look, who)).attributes),
    )


def film(look: str, split: str, index: int, size: tuple[int, int] = FILM_SIZE) -> NDArray[np.uint8]:
    """The frames of film `index` of a split, uint8 (24, height, width, 3) RGB, as large as `size` says."""
    labels = film_labels(look, split, index)
    scenes = clip(look, labels.seed, labels.action, FILM_FRAMES, size)
    return np.stack([scene.image for scene in scenes])
