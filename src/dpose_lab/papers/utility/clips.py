"""The public model on frames of released clips: rendered films of people in action."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from dpose.pose.data import Person, Picture, PoseUnits
from dpose.pose.data.synthetic import HEAD_SHARE
from dpose.release.config import Projection
from dpose.release.grid import Shape
from dpose.release.plans import bind
from dpose_lab.papers.experiment import Values
from dpose_lab.papers.quality.measure import noise_of
from dpose_lab.papers.utility.evaluated import pckh_by_group, public_model
from dpose_scene.films import film_labels
from dpose_scene.render import Scene, clip

LOOK, SPLIT, FILMS = "ward", "val", 12
SHAPE = Shape(24, 240, 320, 3)
"""Frames, height, width and channels of a film; twelve frames a second."""
M, DELTA = 16, "1e-5"

Frame = NDArray[np.uint8]


def on_clips(settings: Values, films: int, seed: int) -> Values:
    """Test the public model on every frame that shows the person, of the first `films` films.

    Args:
        settings: `epsilon` and `restore` of `dpose release-video`; {} for the originals.
        films: Number of films.
        seed: Seed of the noise.
    """
    model = public_model()
    pictures = []
    for index in range(films):
        scenes = _film(index)
        frames = [one.image for one in scenes]
        if settings:
            config = Projection.of(settings["epsilon"], DELTA, M, restore=settings["restore"])
            plan = bind(config, SHAPE)
            frames = list(plan.run(iter(frames), noise_of(seed, "clip", index)))
        pictures += [
            Picture(f"{index} {place}", 1, partial(_labelled, frame, one))
            for place, (frame, one) in enumerate(zip(frames, scenes, strict=True))
            if one.mask.any()
        ]
    units = PoseUnits(pictures, input_size=model.config.input_size)
    return pckh_by_group(model, units, seed, lambda name: name.partition(" ")[0])


@lru_cache(maxsize=FILMS)
def _film(index: int) -> list[Scene]:
    labels = film_labels(LOOK, SPLIT, index)
    return clip(LOOK, labels.seed, labels.action, SHAPE.frames, (SHAPE.height, SHAPE.width))


def _labelled(frame: Frame, shown: Scene) -> tuple[Frame, tuple[Person, ...]]:
    rows, columns = (np.flatnonzero(shown.mask.any(axis)) for axis in (1, 0))
    box = np.array([columns[0] - 0.5, rows[0] - 0.5, columns[-1] + 0.5, rows[-1] + 0.5], np.float32)
    head = HEAD_SHARE * float(np.hypot(*(shown.head_box[2:] - shown.head_box[:2])))
    return frame, (Person(shown.keypoints, shown.visible, box, head),)
