"""Restoration: from what was released to a picture that one can use. Post-processing, so it costs no privacy.

    picture = Restoration.chosen("learned").apply(released.observed())

Nothing here sees an original: a restoration takes an `Observed`, which is public. It is none, total variation or the
learned one: a small network that knows the noise, as FFDNet does (Zhang, Zuo and Zhang 2018); without torch.

Its weights are an ONNX file that OpenCV runs, in tiles where a grid is large, so that memory stays bounded. What it
gives was learned in squared error: where it cannot know it is blurred. `weights/restoration/README.md` says what it was
made from, and where it invents.

All start from the released planes on one grid of cells, as luma and two differences of colours. To the network one
frame is six maps: the released levels, divided by the deviation that they have of all causes, and how little noise
there is on a logarithmic scale. Zeros mean that nothing is known, which is what lies outside of a picture and what a
clip's first frame has before it. The network gives what to add to a linear guess, on a grid twice as fine.
"""

from __future__ import annotations

import hashlib
import lzma
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
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


SPREAD: Singles = np.array([0.25, 0.15, 0.1], np.float32)[:, None, None]
"""About how much Y, Co and Cg of a cell vary over natural pictures, in units of the peak."""
NOTHING, LEAST = 8.0, 0.001
"""Deviations of noise, in units of the peak, above and below which nothing changes."""
MAPS = 19
"""Number of input maps: six of this frame, six of the one before, six of the one after, and how coarse colour is."""
GAIN = 0.25
"""The network's output is multiplied by this."""
MIDDLE: Singles = np.array([0.5, 0, 0], np.float32)[:, None, None]


def frame_maps(levels: Singles, deviation: Singles) -> Singles:
    """Six maps of a frame, (6, rows, columns), from levels and deviations (3, rows, columns) in units of the peak."""
    known = np.maximum(deviation, LEAST)
    scaled = (levels - MIDDLE) / np.sqrt(SPREAD**2 + known**2)
    trust = np.maximum(np.log2(NOTHING / known) / 8, 0)
    return np.concatenate([np.where(trust > 0, scaled, 0), trust]).astype(np.float32)


def linear_guess(levels: Singles, deviation: Singles) -> Singles:
    """Levels drawn to the middle as far as noise asks for, on a grid twice as fine: (3, 2 rows, 2 columns)."""
    shrunk = MIDDLE + (levels - MIDDLE) * (SPREAD**2 / (SPREAD**2 + deviation**2))
    rows, columns = levels.shape[1:]
    finer = [cv2.resize(plane, (2 * columns, 2 * rows), interpolation=cv2.INTER_LINEAR) for plane in shrunk]
    return np.stack(finer).astype(np.float32)


WEIGHTS = Path(__file__).parents[1] / "weights" / "restoration" / "cells.onnx.xz"
SHA256 = "9459e644c491f8840ac44e524a92e5ade681bb2529ccc5322ee12040a4094801"
"""SHA-256 of `WEIGHTS`."""
STRIDE = 8
"""The network halves its grid three times."""
MOST = 250.0
"""Gray levels of noise: where a cell has more, cells are taken together first, as nothing is lost by it."""
TILE, HALO = 512, 72
"""Cells of a tile's side, and how far around it the network looks."""

_held = threading.local()


def restoration_digest() -> str:
    """SHA-256 of the weights, in hexadecimal."""
    try:
        found = hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()
    except OSError:
        raise DposeError("restoration-weights-missing", "the restoration's weights are missing", str(WEIGHTS)) from None
    if found != SHA256:
        raise DposeError(
            "restoration-weights-altered", "the restoration's weights are altered", str(WEIGHTS), "install dpose again"
        )
    return found


def by_network(observed: Observed, before: Observed | None = None, after: Observed | None = None) -> Singles:
    """Gray levels, (H, W, C), not cut off.

    Args:
        observed: A picture, or a group of frames.
        before: The group before, of the same sizes; None if there is none.
        after: The group after.
    """
    seen = [observed, before, after]
    while _too_noisy(observed):
        seen = [None if one is None else halved(one) for one in seen]
        observed = halved(observed)
    frames = [None if one is None else cell_grid(one) for one in seen]
    here = frames[0]
    assert here is not None
    block = observed.planes[0].block
    fine = _fine(here, frames, twice=block > 1)
    shown = np.einsum("ij,jhw->hwi", TO_RGB, fine) if len(observed.planes) == 3 else fine[0][:, :, None]
    levels = np.ascontiguousarray(shown * observed.peak)
    return enlarged(levels, observed.planes[0].levels.shape, observed, block, cv2.INTER_CUBIC)


def _too_noisy(observed: Observed) -> bool:
    """True if cells have more noise than the network has seen; cells of two sizes are left as they are."""
    noise = observed.planes[0].deviation
    inner = noise[: max(1, noise.shape[0] - 1), : max(1, noise.shape[1] - 1)]
    alike = bool(np.ptp(inner) <= 1e-3 * inner.max())
    return alike and not observed.even and noise.size > 1 and float(inner.max()) * 255 > MOST * observed.peak


def _fine(here: CellGrid, frames: list[CellGrid | None], *, twice: bool) -> Singles:
    """Y, Co and Cg in units of the peak, on a grid twice as fine or on the cells' own."""
    _, rows, columns = here.levels.shape
    scale = 2 if twice else 1
    out: Singles = np.empty((3, scale * rows, scale * columns), np.float32)
    for top in range(0, rows, TILE):
        for left in range(0, columns, TILE):
            bottom, right = min(rows, top + TILE), min(columns, left + TILE)
            y, x = max(0, top - HALO), max(0, left - HALO)
            tile = _tile(frames, slice(y, min(rows, bottom + HALO)), slice(x, min(columns, right + HALO)))
            part = tile[:, 2 * (top - y) : 2 * (bottom - y), 2 * (left - x) : 2 * (right - x)]
            if not twice:
                part = part.reshape(3, bottom - top, 2, right - left, 2).mean((2, 4))
            out[:, scale * top : scale * bottom, scale * left : scale * right] = part
    return out


def _tile(frames: list[CellGrid | None], tall: slice, broad: slice) -> Singles:
    here = frames[0]
    assert here is not None
    levels, deviation = here.levels[:, tall, broad], here.deviation[:, tall, broad]
    _, rows, columns = levels.shape
    maps: Singles = np.zeros((1, 19, -(-rows // STRIDE) * STRIDE, -(-columns // STRIDE) * STRIDE), np.float32)
    for number, frame in enumerate(frames):
        if frame is not None:
            known = frame_maps(frame.levels[:, tall, broad], frame.deviation[:, tall, broad])
            maps[0, 6 * number : 6 * number + 6, :rows, :columns] = known
    maps[0, 18] = np.log2(here.coarser) / 2
    net = _network()
    net.setInput(maps)
    found = net.forward()[0, :, : 2 * rows, : 2 * columns]
    return np.asarray(linear_guess(levels, deviation) + GAIN * found, np.float32)


def _network() -> cv2.dnn.Net:
    """This thread's own: it holds what lies between input and output."""
    if not hasattr(_held, "net"):
        _held.net = cv2.dnn.readNetFromONNX(np.frombuffer(_content(), np.uint8))
    net: cv2.dnn.Net = _held.net
    return net


@cache
def _content() -> bytes:
    restoration_digest()
    return lzma.decompress(WEIGHTS.read_bytes())


METHODS = ("learned", "tv", "none")
OPENCV = "opencv-python-headless"
RESTORING = (OPENCV, "scikit-image")


@dataclass(frozen=True)
class Restoration:
    """A restoration, as it is recorded.

    Attributes:
        method: One of `METHODS`: "none" paints the cells, "tv" flattens them as far as their noise asks for, "learned"
            is a network.
        weights: SHA-256 of the learned one's weights; empty for the others.
        note: Why it is another one than was named; empty otherwise.
    """

    method: str = "none"
    weights: str = ""
    note: str = ""

    @classmethod
    def chosen(cls, method: str) -> Restoration:
        """The restoration of this name; total variation where the learned one's weights are missing or altered."""
        if method not in METHODS:
            raise _unknown(method)
        if method != "learned":
            return cls(method)
        try:
            return cls(method, restoration_digest())
        except DposeError as error:
            return cls("tv", note=f"restored by total variation: {error.what}")

    @classmethod
    def read(cls, values: Any, where: str = "") -> Restoration:
        """The restoration that `to_dict` wrote."""
        for method in METHODS:
            digest = r"[0-9a-f]{64}" if method == "learned" else ""
            weights = values.get("weights", "") if isinstance(values, dict) else None
            if isinstance(weights, str) and re.fullmatch(digest, weights):
                found = cls(method, weights)
                if found.to_dict() == values:
                    return found
        raise DposeError(
            "record-restoration-unknown", f"its statement names an unknown restoration {str(values)[:80]}", where
        )

    @property
    def libraries(self) -> tuple[str, ...]:
        """The packages besides dpose and numpy whose version a restored picture depends on."""
        return {"learned": (OPENCV,), "tv": RESTORING}.get(self.method, ())

    def to_dict(self) -> dict[str, str]:
        """What a release's record has of it."""
        return {"method": self.method} | ({"weights": self.weights} if self.weights else {})

    def check_here(self) -> None:
        """Refuse a restoration whose weights are not here.

        Raises:
            DposeError: they are missing, altered or others.
        """
        if self.weights and restoration_digest() != self.weights:
            raise DposeError(
                "restoration-weights-missing",
                "it was restored by weights that are not here",
                fix="use the dpose that made it",
            )

    def apply(self, observed: Observed, before: Observed | None = None, after: Observed | None = None) -> NDArray[Any]:
        """The picture. Post-processing: a function of what was released.

        Args:
            observed: A picture, or a group of frames.
            before: For the learned one: the group before, of the same sizes; None if there is none.
            after: The group after.

        Returns:
            uint8, or uint16 where the peak is 65535; (H, W, 3), or (H, W, 1) of one plane.
        """
        return as_pixels(self.levels(observed, before, after), observed.peak)

    def levels(self, observed: Observed, before: Observed | None = None, after: Observed | None = None) -> Singles:
        """The picture of `apply`, in gray levels that are neither cut off nor rounded: float32, (H, W, C)."""
        self.check_here()
        if self.method not in METHODS:
            raise _unknown(self.method)
        if self.method == "learned":
            return by_network(observed, before, after)
        return by_variation(observed) if self.method == "tv" else _painted(observed)


PAINTED = Restoration()
"""No restoration: each cell in one colour."""


def _unknown(method: str) -> DposeError:
    return DposeError("restoration-unknown", f"must be {', '.join(METHODS)}, not {method!r}", "restore")


def as_pixels(levels: Singles, peak: int) -> NDArray[Any]:
    """Gray levels rounded and cut off at black and white."""
    kind = np.uint8 if peak == 255 else np.uint16
    shown: NDArray[Any] = np.clip(np.floor(levels + 0.5), 0, peak).astype(kind)
    return shown


def _painted(observed: Observed) -> Singles:
    planes = observed.planes
    shown = [
        enlarged(plane.levels, plane.levels.shape, observed, plane.block, cv2.INTER_NEAREST)[:, :, 0]
        for plane in planes
    ]
    stacked: Singles = np.stack(shown, axis=2)
    return stacked @ TO_RGB.T if observed.colour == "ycc" else stacked


Shown = TypeVar("Shown")


def restored_clip(
    groups: Iterable[Observed], apply: Callable[[Observed, Observed | None, Observed | None], Shown]
) -> Iterator[Shown]:
    """Restored groups, one behind what is read: memory holds three, however long the clip.

    Args:
        groups: In order, of equal sizes.
        apply: `Restoration.apply` or `Restoration.levels`.
    """
    before: Observed | None = None
    here: Observed | None = None
    for after in groups:
        if here is not None:
            yield apply(here, before, after)
        before, here = here, after
    if here is not None:
        yield apply(here, before, None)


WEIGHT = 0.45
"""Weight of the total variation, over the noise's deviation; chosen on public photographs."""
STEPS = 60


def by_variation(observed: Observed) -> Singles:
    """Gray levels, (H, W, C), not cut off."""
    from skimage.restoration import denoise_tv_chambolle

    shown = []
    for plane in luma_chroma(observed):
        weight = WEIGHT * float(np.median(plane.deviation)) / observed.peak
        smooth = denoise_tv_chambolle(plane.levels / observed.peak, weight=max(weight, 1e-6), max_num_iter=STEPS)
        fine = np.asarray(smooth, np.float32) * observed.peak
        shown.append(enlarged(fine, plane.levels.shape, observed, plane.block, cv2.INTER_CUBIC)[:, :, 0])
    stacked: Singles = np.stack(shown, axis=2)
    return stacked @ TO_RGB.T if len(shown) == 3 else stacked
