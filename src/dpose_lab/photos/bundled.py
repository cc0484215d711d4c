"""Public pictures without a download: photographs of scikit-image in colour, and rendered people with exact masks."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from dpose.media.identity import pixel_hash
from dpose_lab.photos.photo import Photo, Photos, grey

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


def open_rendered(look: str, split: str, size: tuple[int, int]) -> Photos:
    """Open one split of a look.

    Args:
        look: `studio` or `ward`.
        split: One of the scene's splits.
        size: (height, width) to render at.
    """
    from dpose_scene.data import SPLITS, render_at

    def read(index: int) -> Photo:
        scene = render_at(look, split, index, size)
        hashes = (pixel_hash(scene.image),)
        return Photo(f"{split} {index}", grey(scene.image), scene.mask, scene.identity, hashes, scene.image)

    return Photos(
        title=f"rendered people, {look}:{split}, {size[1]} x {size[0]}",
        names=tuple(f"{split} {index}" for index in range(SPLITS[split])),
        read=read,
        masks="exact masks",
        rendered=True,
    )
