"""Released planes on one grid of cells, as luma and two differences of colours: what every restoration starts from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.release.planes import Observed, Plane

Singles = NDArray[np.float32]

FROM_RGB: Singles = np.array([[0.25, 0.5, 0.25], [1, 0, -1], [-0.5, 1, -0.5]], np.float32)
"""Rows give Y, Co and Cg of R, G and B."""
TO_RGB: Singles = np.array([[1, 0.5, -0.5], [1, 0, 0.5], [1, -0.5, -0.5]], np.float32)
"""The inverse of the matrix before."""


@dataclass(frozen=True)
class CellGrid:
    """Noisy means of luma's cells, in units of the peak.

    Attributes:
        levels: float32, (3, rows, columns): Y, Co, Cg; interpolated where colour has larger cells.
        deviation: float32, (3, rows, columns), of the noise; 0 for the colour of a grey picture.
        coarser: The side of colour's cells over that of luma's.
    """

    levels: Singles
    deviation: Singles
    coarser: float


def luma_chroma(observed: Observed) -> list[Plane]:
    """Y, or Y, Co and Cg; R, G and B are transformed, and their deviations added in quadrature."""
    if observed.colour != "rgb":
        return list(observed.planes)
    levels = np.stack([plane.levels for plane in observed.planes])
    variance = np.stack([plane.deviation for plane in observed.planes]) ** 2
    mixed = np.einsum("ij,jhw->ihw", FROM_RGB, levels)
    noise = np.sqrt(np.einsum("ij,jhw->ihw", FROM_RGB**2, variance))
    return [Plane(a, b, observed.planes[0].block) for a, b in zip(mixed, noise, strict=True)]


def cell_grid(observed: Observed) -> CellGrid:
    """All planes on luma's grid."""
    planes = luma_chroma(observed)
    shape = planes[0].levels.shape
    levels: Singles = np.zeros((3, *shape), np.float32)
    deviation = np.zeros_like(levels)
    coarser = 1.0
    for channel, plane in enumerate(planes):
        coarser = max(1.0, plane.block / planes[0].block)
        levels[channel] = on_luma(plane.levels, coarser, shape, even=observed.even)
        deviation[channel] = on_luma(plane.deviation, coarser, shape, cv2.INTER_NEAREST, even=observed.even)
    peak = np.float32(observed.peak)
    return CellGrid(levels / peak, deviation / peak, coarser)


def on_luma(
    values: Singles, coarser: float, shape: tuple[int, ...], how: int = cv2.INTER_LINEAR, *, even: bool = False
) -> Singles:
    """Values of larger cells on luma's grid, interpolated: float32 of `shape`, (rows, columns)."""
    if even and values.shape != shape:
        return np.asarray(cv2.resize(values, (shape[1], shape[0]), interpolation=how), np.float32)
    if coarser > 1:
        values = cv2.resize(values, None, fx=coarser, fy=coarser, interpolation=how)
    return np.asarray(values[: shape[0], : shape[1]], np.float32)


def enlarged(fine: Singles, cells: tuple[int, int], observed: Observed, block: int, how: int) -> Singles:
    """Maps of a grid (rows, columns, C), however fine, in pixels: float32, (H, W, C).

    Args:
        fine: The maps; they cover all cells, also what of the last ones lies outside of the picture.
        cells: Rows and columns of cells.
        observed: Has the picture's size.
        block: The cells' side, pixels.
        how: OpenCV's interpolation.
    """
    height, width = observed.height, observed.width
    tall, broad = (height, width) if observed.even else (cells[0] * block, cells[1] * block)
    if fine.shape[0] > tall:
        how = cv2.INTER_AREA
    grown = cv2.resize(fine, (broad, tall), interpolation=how)
    return np.asarray(grown.reshape(tall, broad, -1)[:height, :width], np.float32)


def halved(observed: Observed) -> Observed:
    """The same with cells twice as wide, averaged over their areas: half the noise."""
    planes = []
    for plane in observed.planes:
        areas = 1 / plane.deviation
        whole, count = _pairs(areas), _pairs(np.ones_like(areas))
        levels, noise = _pairs(areas * plane.levels) / whole, np.sqrt(count) / whole
        planes.append(Plane(levels, np.asarray(noise, np.float32), 2 * plane.block))
    return replace(observed, planes=tuple(planes))


def _pairs(values: NDArray[Any]) -> Singles:
    rows, columns = (np.arange(0, n, 2) for n in values.shape)
    return np.asarray(np.add.reduceat(np.add.reduceat(values, rows, 0), columns, 1), np.float32)
