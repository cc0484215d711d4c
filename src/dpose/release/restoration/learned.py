"""Restoration by a small network that knows the noise, as FFDNet does (Zhang, Zuo and Zhang 2018); without torch.

Its weights are an ONNX file that OpenCV runs, in tiles where a grid is large, so that memory stays bounded. What it
gives was learned in squared error: where it cannot know it is blurred. `weights/restoration/README.md` says what it was
made from, and where it invents.
"""

from __future__ import annotations

import hashlib
import lzma
import threading
from functools import cache
from pathlib import Path

import cv2
import numpy as np

from dpose.errors import DposeError
from dpose.release.planes import Observed
from dpose.release.restoration.grid import TO_RGB, CellGrid, Singles, cell_grid, enlarged, halved
from dpose.release.restoration.network import GAIN, frame_maps, linear_guess

WEIGHTS = Path(__file__).parents[2] / "weights" / "restoration" / "cells.onnx.xz"
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
    """SHA-256 of the weights, in hexadecimal.

    Raises:
        DposeError: they are missing or altered.
    """
    try:
        found = hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()
    except OSError:
        raise DposeError(
            "restoration-weights-missing", "the restoration's weights are missing", str(WEIGHTS)
        ) from None
    if found != SHA256:
        raise DposeError(
            "restoration-weights-altered",
            "the restoration's weights are altered",
            str(WEIGHTS),
            "install dpose again",
        )
    return found


def by_network(observed: Observed, before: Observed | None = None, after: Observed | None = None) -> Singles:
    """Gray levels, (H, W, C), not cut off.

    Args:
        observed: A picture, or a group of frames.
        before: The group before, of the same sizes; None if there is none.
        after: The group after.

    Raises:
        DposeError: the weights are missing or altered.
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
