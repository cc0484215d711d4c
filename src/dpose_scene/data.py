"""Rendered people as data: the entry point of the group `dpose.data`, as `dpose.extensions.RenderedPeople` says."""

from __future__ import annotations

from dpose_scene.aids import choose_scene
from dpose_scene.body import body_of
from dpose_scene.days import day_frames, day_scenes
from dpose_scene.films import FILM_ACTIONS, FILM_SIZE, FILM_SPLITS, film, film_labels
from dpose_scene.render import Scene, render_person
from dpose_scene.splits import SPLITS
from dpose_scene.stage import identity_of, wears_gown

__all__ = [
    "FILM_ACTIONS",
    "FILM_SIZE",
    "FILM_SPLITS",
    "SPLITS",
    "day_frames",
    "day_scenes",
    "film",
    "film_labels",
    "groups_at",
    "identity_at",
    "render_at",
]

REPORTED = ("age", "build", "skin", "bottom", "glasses")
"""Attributes of people by which scores are reported separately."""


def identity_at(look: str, split: str, index: int) -> int:
    """Identity of the person in picture `index` of a split."""
    return identity_of(look, choose_scene(look, split, index).seed)


def render_at(look: str, split: str, index: int, size: tuple[int, int]) -> Scene:
    """Picture `index` of a split, `size` (height, width) pixels."""
    chosen = choose_scene(look, split, index)
    return render_person(look, chosen.seed, size, action=chosen.action, aid=chosen.aid)


def groups_at(look: str, split: str, index: int) -> dict[str, str]:
    """Description of the person in picture `index`, with the aid in the split `aids`."""
    chosen = choose_scene(look, split, index)
    who = identity_of(look, chosen.seed)
    attributes = body_of(who, wears_gown(look, who)).attributes
    reported = {key: attributes[key] for key in REPORTED}
    return {**reported, "aid": chosen.words} if split == "aids" else reported
