"""Measures of one way on one picture or film: mean fidelity of a few releases."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from numpy.typing import NDArray

from dpose.media.images import Image
from dpose.privacy.noise import AesNoise, Key
from dpose.release.choosing import SIDES, decibels
from dpose.release.colour import Colour
from dpose.release.colour_planes import make_planes
from dpose.release.config import Pixelization, Projection
from dpose.release.grid import Shape
from dpose.release.linear import LinearPlan
from dpose.release.pixelization import PixelizationPlan
from dpose_lab.papers.pixelization.measure import grey_ssim, mse
from dpose_lab.photos.photo import grey

FORMER, ORACLE, TV, LEARNED = "former", "oracle", "tv", "learned"
WAYS: Mapping[str, str] = {FORMER: "former default", ORACLE: "best rgb block", TV: "tv", LEARNED: "learned"}
"""Ways by key, with their names in tables."""
EPSILONS = ("0.5", "1", "2", "5", "8")
M, DRAWS = 16, 3
FORMER_BLOCK, LEAST_BLOCK = 16, 6
FILMS = ("walk", "wave")
FILM_SHAPE = Shape(64, 240, 320, 3)
FILM_WAYS = (FORMER, TV, LEARNED)
FILM_BUDGET = (8, "1e-5")
FORMER_GRID = (27, 36, 16)
"""Rows, columns and groups that the former default chose for `FILM_SHAPE` at `FILM_BUDGET`."""


def way_plan(way: str, epsilon: str, shape: Shape, block: int = FORMER_BLOCK) -> PixelizationPlan:
    """Configuration of a way's release of a picture; `block` is the side of rgb's cells."""
    if way in (FORMER, ORACLE):
        return PixelizationPlan.of(Pixelization.of(epsilon, M, block, colour="rgb", restore="none"), shape)
    return PixelizationPlan.of(Pixelization.of(epsilon, M, restore=way), shape)


def noise_of(*parts: object) -> AesNoise:
    """Noise of one release: it follows from the arguments, so it is repeatable and protects no one."""
    digest = hashlib.sha256(" ".join(map(str, parts)).encode()).digest()
    return AesNoise(Key.from_seed(int.from_bytes(digest[:8], "big")))


def shown_picture(way: str, epsilon: str, block: int, name: str, image: Image, seed: int, draw: int = 0) -> Image:
    """Release a picture and restore it: uint8, (H, W, 3)."""
    plan = way_plan(way, epsilon, Shape.of(*image.shape), block)
    shown: Image = plan.release(image, noise_of(seed, way, epsilon, block, name, draw)).picture()
    return shown


def measured_picture(way: str, epsilon: str, name: str, image: Image, seed: int) -> dict[str, Any]:
    """Average measures over `DRAWS` releases of one picture.

    Args:
        way: A key of `WAYS`; the oracle uses the block of least error on this picture, which could not be released.
        epsilon: Budget as exact text.
        name: Name of the picture.
        image: uint8, (H, W, 3).
        seed: Seed of the noise.

    Returns:
        mse (over R, G, B), psnr and psnr_sd (over draws), ssim (of luma), block (of luma or rgb), chroma (how many
        times as wide chroma's are), by_block (psnr of every block that was tried).
    """
    shape = Shape.of(*image.shape)
    least = min(image.shape[:2])
    sides = [s for s in SIDES if LEAST_BLOCK <= s <= least] if way == ORACLE else [FORMER_BLOCK]

    def drawn(side: int) -> tuple[float, list[Image]]:
        releases = [shown_picture(way, epsilon, side, name, image, seed, draw) for draw in range(DRAWS)]
        return statistics.mean(decibels(mse(image, shown)) for shown in releases), releases

    tried = {side: drawn(side)[0] for side in sides}
    block = max(tried, key=lambda side: tried[side])
    pictures = drawn(block)[1]
    config = way_plan(way, epsilon, shape, block).config
    errors = [mse(image, shown) for shown in pictures]
    levels = [decibels(error) for error in errors]
    luma = grey(image)
    return {
        "mse": statistics.mean(errors),
        "psnr": statistics.mean(levels),
        "psnr_sd": statistics.pstdev(levels),
        "ssim": statistics.mean(grey_ssim(luma, grey(shown)) for shown in pictures),
        "block": config.side,
        "chroma": config.chroma or 1,
        "by_block": {str(side): level for side, level in tried.items()},
    }


def measured_film(way: str, action: str, seed: int) -> dict[str, float]:
    """Measure PSNR and MSE of one release of a rendered film.

    Args:
        way: One of `FILM_WAYS`.
        action: A key of `FILMS`.
        seed: Of the noise.
    """
    film = _film(action)
    epsilon, delta = FILM_BUDGET
    if way == FORMER:
        rgb = Projection.of(epsilon, delta, M, colour="rgb", restore="none")
        colour = Colour.of("rgb", FILM_SHAPE.channels, gaussian=True)
        plan = LinearPlan.around(make_planes("block", FILM_SHAPE, FORMER_GRID, colour, 1), rgb)
    else:
        new = Projection.of(epsilon, delta, M, restore=way)
        plan = LinearPlan.of(new, FILM_SHAPE)
    shown = plan.run(iter(film), noise_of(seed, way, action))
    error = statistics.mean(mse(one, other) for one, other in zip(film, shown, strict=True))
    return {"mse": error, "psnr": decibels(error)}


@lru_cache(maxsize=1)
def _film(action: str) -> tuple[NDArray[Any], ...]:
    from dpose_scene.render import clip

    size = (FILM_SHAPE.height, FILM_SHAPE.width)
    return tuple(made.image for made in clip("studio", 7, action, FILM_SHAPE.frames, size))
