"""`synthetic-clips`: rendered films of a few actions by imaginary people, with their attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial

from dpose.action.data.sources import Held
from dpose.action.data.units import Video, VideoSet
from dpose.extensions import rendered_people

SKIRTS = ("skirt", "dress", "gown")
WITNESS: Mapping[str, Callable[[Mapping[str, str]], bool]] = {
    "dark skin": lambda a: a["skin"] in ("brown", "deep", "ebony"),
    "fair skin": lambda a: a["skin"] in ("porcelain", "fair", "beige"),
    "dark hair": lambda a: a["hair"].startswith(("black", "dark brown")),
    "child": lambda a: a["age"] == "child",
    "elderly": lambda a: a["age"] == "elderly",
    "stout": lambda a: a["build"] == "stout",
    "skirt or dress": lambda a: a["bottom"].endswith(SKIRTS),
    "shorts": lambda a: a["bottom"].endswith("shorts"),
}
"""Attributes of a person by name, each true or not."""


@lru_cache(maxsize=16)
def open_clips(look: str, split: str, size: tuple[int, int] | None = None) -> VideoSet:
    """Open one split of the films of a look; each is rendered on first use, and stays in memory.

    Args:
        look: `studio` or `ward`.
        split: One of the look's splits.
        size: (height, width) in pixels; None for the default size.
    """
    people = rendered_people()
    videos = []
    for index in range(people.FILM_SPLITS[split]):
        labels = people.film_labels(look, split, index)
        videos.append(
            Video(
                f"{split}/{labels.name}",
                Held(partial(people.film, look, split, index, size or people.FILM_SIZE)),
                people.FILM_ACTIONS.index(labels.action),
                tuple(int(true_of(labels.attributes)) for true_of in WITNESS.values()),
                f"rendered-{labels.identity}",
            )
        )
    note = f"synthetic-clips:{look}:{split}: {len(videos):,} rendered films, one imaginary person in each"
    return VideoSet(tuple(videos), people.FILM_ACTIONS, tuple(WITNESS), (note,))
