"""Procedural pictures of people with exact labels: two looks, still and moving, no downloads."""

from dpose.scene.aids import AIDS, SceneChoice, choose_scene
from dpose.scene.films import FILM_ACTIONS, FILM_FRAMES, FILM_SIZE, FILM_SPLITS, film, film_labels
from dpose.scene.looks import LOOKS
from dpose.scene.motion import ACTIONS
from dpose.scene.render import Scene, clip, render_person
from dpose.scene.sheet import contact_sheet
from dpose.scene.splits import SPLITS, scene_seed
from dpose.scene.stage import identity_of

__all__ = [
    "ACTIONS",
    "AIDS",
    "FILM_ACTIONS",
    "FILM_FRAMES",
    "FILM_SIZE",
    "FILM_SPLITS",
    "LOOKS",
    "SPLITS",
    "Scene",
    "SceneChoice",
    "choose_scene",
    "clip",
    "contact_sheet",
    "film",
    "film_labels",
    "identity_of",
    "render_person",
    "scene_seed",
]
