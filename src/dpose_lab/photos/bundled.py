"""Photographs that come with scikit-image, in colour: no download is needed, and they are public."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from dpose_lab.photos.photo import Photo, Photos

FILES = {"astronaut": "astronaut.png", "coffee": "coffee.png", "chelsea": "chelsea.png", "rocket": "rocket.jpg"}
ALL = "all"
"""Root that stands for all four photographs."""


def open_bundled(root: str) -> Photos:
    """Open one of `FILES`, or all. Neither the learned restoration nor the prior of `--block auto` was fitted to them.

    Args:
        root: A name of `FILES`, or `ALL`.
    """
    module = find_spec("skimage")  # the path alone: importing the module is slow
    assert module is not None
    assert module.origin is not None
    folder = Path(module.origin).parent / "data"
    names = tuple(FILES) if root == ALL else (root,)
    return Photos(
        title="photographs of scikit-image",
        names=names,
        read=lambda index: Photo.of_file(names[index], folder / FILES[names[index]]),
    )
