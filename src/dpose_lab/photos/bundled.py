"""Photographs that come with scikit-image, in colour: nobody has to fetch them, and nobody in them needs protection."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from dpose_lab.photos.photo import Photo, Photos

FILES = {
    "astronaut": "astronaut.png",
    "coffee": "coffee.png",
    "chelsea": "chelsea.png",
    "rocket": "rocket.jpg",
}
ALL = "all"
"""The root that stands for the four of them."""


def open_bundled(root: str) -> Photos:
    """One of `FILES`, or all. Neither the learned restoration nor the prior of `--block auto` has seen them.

    Args:
        root: A name of `FILES`, or `ALL`.
    """
    found = find_spec("skimage")  # where it is, and not the module: that takes a while
    assert found is not None
    assert found.origin is not None
    folder = Path(found.origin).parent / "data"
    names = tuple(FILES) if root == ALL else (root,)
    return Photos(
        title="photographs of scikit-image",
        names=names,
        read=lambda index: Photo.of_file(names[index], folder / FILES[names[index]]),
    )
