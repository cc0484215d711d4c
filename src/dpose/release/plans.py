"""The plan that a configuration gives for a picture or clip of known sizes, before anything private is looked at.

plan = bind(Pixelization.of("0.5", "pixels:16", block=16), Shape.of(1080, 1920, 3))
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dpose.errors import naming
from dpose.media.images import read_pixels
from dpose.media.video import VIDEO_SUFFIXES, VideoInfo, frame_times, probe
from dpose.privacy.noise import NoiseSource, Purpose
from dpose.release.config import Pixelization, ReleaseConfig
from dpose.release.grid import Shape
from dpose.release.linear import LinearPlan
from dpose.release.operators import OPERATORS
from dpose.release.pixelization import PixelizationPlan
from dpose.release.published import published_plan
from dpose.release.statements import AnyPlan

PEAKS = {"uint8": 255, "uint16": 65535}
"""The largest gray level of each type of pixels."""


def bind(config: ReleaseConfig, shape: Shape, source: NoiseSource | None = None) -> AnyPlan:
    """The plan for pictures or clips of a shape: the mechanism's, or a published algorithm's.

    Args:
        config: What to release.
        shape: The picture's or clip's sizes.
        source: Draws the public text of an operator that is drawn anew for every release.

    Raises:
        DposeError: the config does not fit the shape.
        ValueError: such an operator has no source.
    """
    if config.paper:
        return published_plan(config, shape)
    if isinstance(config, Pixelization):
        return PixelizationPlan.of(config, shape)
    if not OPERATORS[config.operator].drawn:
        return LinearPlan.of(config, shape)
    if source is None:
        raise ValueError(f"the operator {config.operator} is drawn anew for every release: give a source")
    # published with the clip, and so from a stream that no noise is drawn from
    return LinearPlan.of(config, shape, source.stream(Purpose.INIT, 0, b"projection").bytes(16).hex())


def bind_video(config: ReleaseConfig, info: VideoInfo, source: NoiseSource | None = None) -> AnyPlan:
    """The plan for a video, by `bind`: seconds become as many frames as its time stamps say.

    Raises:
        DposeError: as `bind`, and as `frame_times`.
    """
    if config.neighbours.seconds is not None:
        config = replace(config, neighbours=config.neighbours.timed(frame_times(info)))
    return bind(config, video_shape(info), source)


def video_shape(info: VideoInfo) -> Shape:
    """The sizes of a video."""
    return Shape(info.frames, info.height, info.width, info.channels)


def picture_shape(pixels: NDArray[Any]) -> Shape:
    """The sizes of a decoded picture, (H, W) or (H, W, C)."""
    height, width = pixels.shape[:2]
    return Shape.of(height, width, 1 if pixels.ndim == 2 else pixels.shape[2], PEAKS[str(pixels.dtype)])


def plan_of(path: Path, config: ReleaseConfig) -> tuple[AnyPlan, Fraction | None]:
    """What releasing a picture or video would cost, and a video's frames a second; releases nothing.

    Raises:
        DposeError: the file cannot be read, or the config does not fit it.
    """
    if path.suffix.lower() in VIDEO_SUFFIXES:
        info = probe(path)
        return bind_video(config, info), info.rate
    pixels = read_pixels(path)
    with naming(path):
        return bind(config, picture_shape(pixels)), None
