"""Procedural pictures of people with exact labels: two looks, still and moving, no downloads."""

from dpose.scene.looks import LOOKS
from dpose.scene.motion import ACTIONS
from dpose.scene.render import Scene, clip, render
from dpose.scene.sheet import contact_sheet
from dpose.scene.splits import SPLITS, scene_seed
from dpose.scene.stage import identity_of

__all__ = [
    "ACTIONS",
    "LOOKS",
    "SPLITS",
    "Scene",
    "clip",
    "contact_sheet",
    "identity_of",
    "render",
    "scene_seed",
]
