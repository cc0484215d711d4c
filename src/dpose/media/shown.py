"""How a container says that its frames are shown: turned or mirrored, in which colours, how bright.

All of it follows from fields of the container or of the stream's header, never from pixels: each value shown is a fixed
function of its own pixel alone. HDR is mapped to ordinary brightness by one curve for all pictures; no peak of a scene
and no dynamic metadata is looked at, since those would let one pixel move all others.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.media.images import on_white

BT709, UNSPECIFIED, BT601_625, BT601_525, BT2020 = 1, 2, 5, 6, 9
"""Numbers of colour matrices (ITU-T H.273)."""
PQ, HLG = 16, 18
"""Numbers of HDR transfer functions (ITU-T H.273): SMPTE ST 2084, and ARIB STD-B67."""
HD_HEIGHT = 576
"""Where a stream names no colour matrix, players take BT.709 for pictures higher than this, else BT.601."""
WHITE = 203.0
"""Brightness of white, candela per square metre (ITU-R BT.2408); brighter light is compressed."""
PEAK = 1_000.0
"""Brightness that the brightest value shown stands for: a constant, whatever a file declares."""
KNEE = 0.75
"""Values up to here are kept as they are; brighter ones are compressed into what is left."""
_TO_709 = np.array([[1.6605, -0.5876, -0.0728], [-0.1246, 1.1329, -0.0083], [-0.0182, -0.1006, 1.1187]], np.float32)


@dataclass(frozen=True)
class Display:
    """How frames are shown.

    Attributes:
        exchanged: True if rows and columns are exchanged.
        down: True if the rows are shown from the last to the first, after that.
        right: True if the columns are shown from the last to the first, after that.
        matrix: Number of the colour matrix.
        hdr: Number of the HDR transfer function; 0 for ordinary brightness.
    """

    exchanged: bool = False
    down: bool = False
    right: bool = False
    matrix: int = BT709
    hdr: int = 0

    @property
    def upright(self) -> bool:
        """True if frames are shown as they are stored."""
        return not (self.exchanged or self.down or self.right)


UPRIGHT = Display()
"""As frames are stored, in BT.709's colours."""


def display_of(frame: Any) -> Display:
    """Return how the frames of a video are shown, by its first frame (PyAV), whose fields come from the headers."""
    exchanged, down, right = _turns(frame)
    matrix = int(frame.colorspace)
    if matrix == UNSPECIFIED:
        matrix = BT709 if frame.height > HD_HEIGHT else BT601_525
    transfer = int(getattr(frame, "color_trc", 0) or 0)
    return Display(exchanged, down, right, matrix, transfer if transfer in (PQ, HLG) else 0)


def _turns(frame: Any) -> tuple[bool, bool, bool]:
    """Return what a display matrix does: nine numbers, of which the first of each column and row decide.

    A point (x, y) is shown at (a x + c y, b x + d y). What is no quarter turn is shown by the nearest one.
    """
    from av.sidedata.sidedata import Type  # PyAV is loaded where there is a frame, and only there

    side = frame.side_data.get(Type.DISPLAYMATRIX)
    found = b"" if side is None else bytes(side)
    if len(found) < 36:
        return False, False, False
    a, b, _, c, d = struct.unpack_from("=5i", found)
    if abs(b) + abs(c) > abs(a) + abs(d):
        return True, b < 0, c < 0
    return False, d < 0, a < 0


def shown_array(frame: Any, display: Display, grey: bool) -> NDArray[np.uint8]:
    """Return a frame (PyAV) as it is shown, uint8 (H, W, 1) or (H, W, 3) RGB, contiguous.

    **Guarantee.** Each pixel is a fixed function of one pixel of the decoded frame (chroma is stored for several at
    once in most videos, and the decoder spreads it).
    """
    if grey:
        array = frame.to_ndarray(format="gray")[:, :, None]
    elif display.hdr:
        deep = frame.reformat(format="rgb48le", src_colorspace=_swscale(display.matrix)).to_ndarray()
        array = tone_mapped(deep, display.hdr)
    elif any(part.is_alpha for part in frame.format.components):
        pixels = frame.to_ndarray(format="rgba")
        array = on_white(pixels[:, :, :3], pixels[:, :, 3]).astype(np.uint8)
    else:
        array = frame.reformat(format="rgb24", src_colorspace=_swscale(display.matrix)).to_ndarray()
    if display.exchanged:
        array = array.swapaxes(0, 1)
    return np.ascontiguousarray(array[:: -1 if display.down else 1, :: -1 if display.right else 1])


def _swscale(matrix: int) -> int:
    """Return swscale's number of a colour matrix; BT.601's for one that it does not know."""
    return matrix if matrix in (BT709, 4, BT601_625, BT601_525, 7, BT2020) else BT601_525


def tone_mapped(pixels: NDArray[np.uint16], transfer: int) -> NDArray[np.uint8]:
    """Map HDR values to ordinary ones, pixel by pixel: uint16 (H, W, 3), BT.2020, to uint8 RGB, BT.709.

    The light of each value is converted to BT.709's primaries, and a pixel whose strongest colour is above `KNEE` of
    white is dimmed as a whole, so that its hue stays.

    Args:
        pixels: Full range.
        transfer: `PQ` or `HLG`.
    """
    light: NDArray[np.floating[Any]] = _light(transfer)[pixels]
    if transfer == HLG:  # its system gamma brightens by the pixel's own luminance (ITU-R BT.2100, 1,000 cd/m2)
        luminance = light @ np.array([0.2627, 0.678, 0.0593], np.float32)
        light = light * (np.maximum(luminance, 1e-6) ** 0.2)[:, :, None] * np.float32(PEAK / WHITE)
    light = np.maximum(light @ _TO_709.T, 0)
    strongest = light.max(axis=2, keepdims=True)
    # from a slope of 1 at the knee to the peak, which becomes 1 (Reinhard et al. 2002, eq. 4)
    most = (PEAK / WHITE - KNEE) / (1 - KNEE)
    above = np.clip((strongest - KNEE) / (1 - KNEE), 0, most)
    bent = KNEE + (1 - KNEE) * above * (1 + above / most**2) / (1 + above)
    light = light * np.where(strongest > KNEE, bent / np.maximum(strongest, KNEE), 1)
    coded = np.where(light < 0.018, 4.5 * light, 1.099 * np.maximum(light, 0.018) ** 0.45 - 0.099)
    shown: NDArray[np.uint8] = np.rint(np.clip(coded, 0, 1) * 255).astype(np.uint8)
    return shown


@lru_cache(2)
def _light(transfer: int) -> NDArray[np.float32]:
    """Return the light of each 16-bit value: 1 is white for PQ, the scene's peak for HLG."""
    value = np.arange(65_536) / 65_535
    if transfer == PQ:
        m1, m2, c1, c2, c3 = 2610 / 16384, 2523 / 32, 3424 / 4096, 2413 / 128, 2392 / 128
        power = value ** (1 / m2)
        light = 10_000 * (np.maximum(power - c1, 0) / (c2 - c3 * power)) ** (1 / m1) / WHITE
    else:
        a, b, c = 0.17883277, 0.28466892, 0.55991073
        light = np.where(value <= 0.5, value**2 / 3, (np.exp((value - c) / a) + b) / 12)
    return light.astype(np.float32)
