"""From light to numbers: exposure, lens blur, tone curve and noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose_scene.draws import Draws
from dpose_scene.jit import scene_kernel

Singles = NDArray[np.float32]


@dataclass(frozen=True)
class Sensor:
    """From light to numbers.

    Attributes:
        exposure: Gain on linear light.
        tint: Gain of each channel.
        contrast: Slope about mid-grey after gamma.
        black: Lift of black, in [0, 1].
        saturation: 1 leaves colours, 0 is grey.
        vignette: Darkening of the corners.
        blur: Standard deviation of the lens's blur, as a share of the picture's height.
        noise: Standard deviation of noise in grey levels over 255.
    """

    exposure: float
    tint: tuple[float, float, float]
    contrast: float
    black: float
    saturation: float
    vignette: float
    blur: float
    noise: float


def draw_sensor(draws: Draws, look: str) -> Sensor:
    """The camera's electronics and lens."""
    if look == "studio":
        tint = (draws.uniform(0.97, 1.03), 1.0, draws.uniform(0.97, 1.03))
        return Sensor(
            draws.uniform(0.9, 1.12),
            tint,
            draws.uniform(0.98, 1.1),
            0.0,
            draws.uniform(0.92, 1.08),
            0.08,
            draws.uniform(0.0, 0.0022),
            draws.uniform(0.004, 0.012),
        )
    tint = (draws.uniform(0.78, 1.18), draws.uniform(0.92, 1.06), draws.uniform(0.78, 1.22))
    return Sensor(
        draws.uniform(1.0, 1.7),
        tint,
        draws.uniform(0.70, 0.95),
        draws.uniform(0.01, 0.09),
        draws.uniform(0.4, 0.9),
        draws.uniform(0.1, 0.45),
        draws.uniform(0.0015, 0.0060),
        draws.uniform(0.012, 0.034),
    )


@scene_kernel
def _expose_row(pixels: Singles, settings: Singles, y: float, row: Singles) -> None:
    """Gain, tint, saturation and vignette of a picture row (W, 3), into (3 W,)."""
    width = pixels.shape[0]
    saturation, vignette, gain = settings[6], np.float32(0.5) * settings[7], settings[0]
    red, green, blue = settings[1], settings[2], settings[3]
    one, step = np.float32(1.0), np.float32(2.0 / width)
    edge = one - vignette * np.float32(y * y)
    for j in range(width):
        x = (np.float32(j) + np.float32(0.5)) * step - one
        local = gain * (edge - vignette * x * x)
        r, g, b = pixels[j, 0] * red, pixels[j, 1] * green, pixels[j, 2] * blue
        grey = np.float32(0.3) * r + np.float32(0.59) * g + np.float32(0.11) * b
        row[3 * j] = local * (grey + saturation * (r - grey))
        row[3 * j + 1] = local * (grey + saturation * (g - grey))
        row[3 * j + 2] = local * (grey + saturation * (b - grey))


@scene_kernel
def _tone_row(row: Singles, settings: Singles, grains: Singles, out: NDArray[np.uint8]) -> None:
    """Highlight roll-off, the sRGB curve, contrast and noise: one value at a time, no branches."""
    contrast, black, noise = settings[4], settings[5], settings[8]
    one, zero, full, half = np.float32(1.0), np.float32(0.0), np.float32(255.0), np.float32(0.5)
    low, a, b, c = (np.float32(0.0008), np.float32(0.585122381), np.float32(0.783140355), np.float32(0.368262736))
    offset = black + (one - black) * (half - half * contrast - np.float32(0.175) * (one - contrast))
    slope = (one - black) * contrast
    for n in range(row.shape[0]):
        value = row[n]
        value = np.float32(1.12) * value / (one + np.float32(0.18) * value)
        root = np.sqrt(min(max(value, low), one))  # the sRGB curve is three square roots, within a grey level
        fourth = np.sqrt(root)
        tone = offset + slope * (a * root + b * fourth - c * np.sqrt(fourth))
        tone += noise * grains[n] * (np.float32(1.4) - np.float32(0.8) * tone)
        out[n] = np.uint8(np.int32(min(max(tone * full + half, zero), full)))


@scene_kernel
def _develop(image: Singles, settings: Singles, seed: int, grains: Singles, out: NDArray[np.uint8]) -> None:
    height, width, _ = image.shape
    row = np.empty(3 * width, np.float32)
    count = grains.shape[0] - 3 * width
    for i in range(height):
        start = ((seed + i * 40503) * 2654435761 >> 7) % count
        _expose_row(image[i], settings, (i + 0.5) / height * 2.0 - 1.0, row)
        _tone_row(row, settings, grains[start : start + 3 * width], out[i])


_GRAINS: Singles = np.random.default_rng(21).standard_normal(1 << 17).astype(np.float32)


def develop(image: Singles, sensor: Sensor, seed: int) -> NDArray[np.uint8]:
    """uint8 sRGB (H, W, 3) from linear light (H, W, 3) float32; `seed` picks the noise."""
    height, width, _ = image.shape
    sigma = sensor.blur * height
    if sigma > 0.2:
        side = 2 * math.ceil(2.5 * sigma) + 1  # OpenCV's own choice for floats reaches 4 sigma
        image = cv2.GaussianBlur(image, (side, side), sigma)
    settings = np.array(
        [
            sensor.exposure,
            *sensor.tint,
            sensor.contrast,
            sensor.black,
            sensor.saturation,
            sensor.vignette,
            sensor.noise,
        ],
        np.float32,
    )
    out = np.empty((height, 3 * width), np.uint8)
    _develop(image, settings, seed & 0xFFFFFFFF, _GRAINS, out)
    return out.reshape(height, width, 3)
