"""Rendered people with exact masks, in place of a dataset."""

from __future__ import annotations

from dpose.media.identity import pixel_hash
from dpose_lab.photos.photo import Photo, Photos, grey


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
