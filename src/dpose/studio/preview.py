"""Fast previews of a release. A preview is no release: nothing is saved or charged, its noise is discarded.

The exact sums of a picture's cells are cached, and noise of the plan's own size is drawn on them by a generator that no
release has. They are restored at the size that a screen has: cells that are smaller than its dots are taken together.
A clip's preview is its first frame, by the mechanism itself under a key of its own that is thrown away.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.media.images import encode_image
from dpose.privacy.events import Laplace
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.ranges import lower, upper
from dpose.release.choosing import grid_choices
from dpose.release.config import Pixelization, ReleaseConfig
from dpose.release.explain import MOSTLY_NOISE
from dpose.release.grid import Shape
from dpose.release.linear import LinearPlan
from dpose.release.objects import box_epsilon, face_in, object_lines, warning_lines
from dpose.release.partition import block_sums
from dpose.release.pixelization import PixelizationPlan, blocks_of, cell_choices
from dpose.release.planes import Observed, Plane
from dpose.release.plans import bind
from dpose.release.released import Layers, ReleasedSums
from dpose.release.restoration import Restoration
from dpose.studio.opened import OpenedFile
from dpose.studio.settings import Wanted

SCREEN = 900
"""The longer side of a preview, dots, at most."""
SUMS = 4
"""Number of partitions whose sums are cached for an opened picture."""
LEARNED_CELLS = 40_000
"""Largest number of cells that are restored by the network: more take too long for a preview."""
QUICK = "This preview is smoothed in a quicker way than the release will be, which may look a little better."


def previewed(opened: OpenedFile, wanted: Wanted) -> dict[str, Any]:
    """A preview and what is known of the release beforehand.

    Args:
        opened: The picture or clip.
        wanted: The settings.
    """
    plan = plan_for(opened, wanted.config)
    with opened.lock:
        picture, note = _of_clip(opened, plan) if opened.clip else _of_picture(opened, plan)
    return facts(opened, plan, wanted) | {
        "picture": "data:image/jpeg;base64," + base64.b64encode(encode_image(picture, ".jpg", quality=86)).decode(),
        "note": note,
    }


def plan_for(opened: OpenedFile, config: ReleaseConfig) -> PixelizationPlan | LinearPlan:
    """The plan of an opened file's release."""
    (height, width), known = opened.size, opened.facts
    if opened.clip:
        config = replace(config, neighbours=config.neighbours.timed(opened.times))
    shape = Shape.of(height, width, known["channels"], known["peak"], known["frames"] if opened.clip else None)
    plan = bind(config, shape)
    assert isinstance(plan, PixelizationPlan | LinearPlan)
    return plan


def facts(opened: OpenedFile, plan: PixelizationPlan | LinearPlan, wanted: Wanted) -> dict[str, Any]:
    """Facts about a release before it is made: every number from the plan, none from the picture."""
    config, shape, block = plan.config, plan.shape, None
    if isinstance(config, Pixelization):
        expected = [c for c in cell_choices(config, shape) if c.factor == (config.chroma or 1)]
        block, cells = config.block, f"cells of {config.side} pixels"
    else:
        assert isinstance(plan, LinearPlan)
        grid = (plan.operator.rows, plan.operator.columns, plan.operator.groups)
        expected = [c for c in grid_choices(replace(config, chroma=None), shape) if c.grid == grid]
        cells = f"{grid[1]} x {grid[0]} cells, {shape.frames / grid[2]:.3g} frames long"
    face = face_in(shape)
    epsilons = [("what is hidden", upper(config.epsilon), "")]
    if wanted.drawn:
        drawn = upper(box_epsilon(plan, wanted.drawn))
        epsilons.append(("the box you drew", drawn, " in one frame" if opened.clip else ""))
    epsilons.append(
        (
            f"a face of {face[0]} x {face[1]} pixels",
            upper(box_epsilon(plan, face)),
            " in one frame" if opened.clip else "",
        )
    )
    return {
        "psnr": f"{expected[0].psnr:.1f}" if expected else None,
        "cells": cells,
        "block": block,
        "hidden": wanted.hidden,
        "open": wanted.left_open,
        "epsilons": epsilons,
        "visible": visible_words(plan),
        "larger": [line for line in object_lines(plan) if line not in warning_lines(plan)],
        "warnings": warning_lines(plan),
    }


def visible_words(plan: PixelizationPlan | LinearPlan) -> str:
    """Describe what stays visible, from the sizes of cells and noise alone; no picture is read."""
    if isinstance(plan, PixelizationPlan):
        side = plan.config.side
        noise = plan.stages[0].variance ** 0.5 / (side**2 * plan.colour.scales[0]) * 255 / plan.shape.peak
        cell = "a pixel" if side == 1 else f"a cell of {side} pixels"
    else:
        noise, cell = plan.noise, "a cell"
    noise_words = f"{lower(noise, 2)} gray levels of noise on {cell}"
    if noise > MOSTLY_NOISE:
        return f"Little but noise: {noise_words}."
    if noise > MOSTLY_NOISE / 4:
        return f"Broad light and dark, wider than several cells: {noise_words}."
    return f"Whatever is wider than a cell, such as colours, postures and places: only {noise_words}."


def _of_picture(opened: OpenedFile, plan: PixelizationPlan | LinearPlan) -> tuple[NDArray[Any], str]:
    assert isinstance(plan, PixelizationPlan)
    shape, block, factor = plan.shape, plan.config.side, plan.config.chroma or 1
    scale = min(1.0, SCREEN / max(shape.height, shape.width))
    times = 1
    while block * times * scale < 1:
        times *= 2
    side, coarse = block * times, max(1, factor // times)
    dots = max(1, round(side * scale))
    layers = Layers(blocks_of(shape, side), plan.colour, coarse)
    first, rng = plan.stages[0], np.random.default_rng()
    sums = {}
    for name, width, rows in (("luma", side, plan.colour.luma), ("chroma", side * coarse, plan.colour.chroma)):
        if rows:
            exact = _sums(opened, width) @ np.array(rows, np.int64).T
            exact = exact.reshape(-1, len(rows))
            # as many cells of the release as this one is wide, along each side
            merged = width // (block if name == "luma" else block * factor) or 1
            sums[name] = exact + _noise(first.event, merged, exact.shape, rng)
    released = ReleasedSums(layers, sums, (first.variance * times**2,), plan.config.restoration)
    seen = released.observed()
    # chroma's cells may take fewer of the release's together than luma's do
    shares = (1.0, *[max(1, times // factor) / times] * 2) if plan.colour.chroma else (1.0,) * len(seen.planes)
    planes = tuple(
        Plane(plane.levels, plane.deviation * np.float32(share), plane.block // side * dots)
        for plane, share in zip(seen.planes, shares, strict=True)
    )
    height, width = (-(-length * dots // side) for length in (shape.height, shape.width))
    restoration, note = plan.config.restoration, ""
    if restoration.method == "learned" and planes[0].levels.size > LEARNED_CELLS:
        restoration, note = Restoration("tv"), QUICK
    made = restoration.apply(Observed(planes, seen.colour, height, width, seen.peak))
    return _eight_bits(made, seen.peak), note


def _noise(event: Any, merged: int, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.int64]:
    """Noise of the release's size for display: not exact, and not from a secret key."""
    if isinstance(event, Laplace) and merged == 1:
        drawn = rng.laplace(scale=float(event.scale), size=shape)
    else:
        spread = 2 * float(event.scale) ** 2 if isinstance(event, Laplace) else float(event.variance)
        drawn = rng.normal(scale=merged * spread**0.5, size=shape)
    return np.rint(drawn).astype(np.int64)


def _sums(opened: OpenedFile, side: int) -> NDArray[np.int64]:
    """Exact sums over cells of this side, cached: (rows, columns, C)."""
    cached: OrderedDict[int, NDArray[np.int64]] = opened.caches.setdefault("sums", OrderedDict())
    if side not in cached:
        pixels = opened.pixels
        cached[side] = block_sums(pixels if pixels.ndim == 3 else pixels[:, :, None], side)
        while len(cached) > SUMS:
            cached.popitem(last=False)
    cached.move_to_end(side)
    return cached[side]


def _of_clip(opened: OpenedFile, plan: PixelizationPlan | LinearPlan) -> tuple[NDArray[Any], str]:
    if isinstance(plan, LinearPlan) and len(opened.pixels) < min(
        plan.shape.frames, 2 * -(-plan.shape.frames // plan.operator.groups)
    ):
        raise DposeError(
            "preview-too-large",
            "frames as large as these have no preview",
            opened.source.name,
            "they can be released all the same",
        )
    made = plan.run((np.asarray(frame) for frame in opened.pixels), AesNoise(Key.fresh()))
    return np.asarray(
        next(iter(made))
    ), "This is the clip's first frame, of one preview. Noise differs from frame to frame."


def _eight_bits(picture: NDArray[Any], peak: int) -> NDArray[Any]:
    shown = picture if peak == 255 else (picture >> 8).astype(np.uint8)
    return shown[:, :, 0] if shown.shape[2] == 1 else shown
