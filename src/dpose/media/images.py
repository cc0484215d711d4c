"""Pictures from and to files, always as uint8 (H, W, 3) RGB."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import read_bytes, write_atomic
from dpose.media.headers import Header, HeaderError, orientation, read_header, without_profile

Image = NDArray[np.uint8]

MAX_PIXELS = 200_000_000
"""Larger pictures are refused before they are decoded: a small file can declare a huge one."""

BACKGROUND = "white"
"""What shows through transparent pixels, wherever a picture is read: a constant, so that it tells nothing."""

_TWICE = ("png", "webp", "bmp")
"""Formats whose transparent pictures are decoded in two ways that must agree which way up they are."""

_OPAQUE = "save it without transparency"


def read_image(path: str | Path, *, orient: bool = True) -> Image:
    """Decode a JPEG, PNG, WebP, BMP, TIFF, GIF, AVIF or (with the extra `heic`) HEIC file; of several pages the first.

    EXIF orientation is applied. Grey becomes three equal channels, 16-bit keeps its high byte, a palette is
    looked up, CMYK is converted by the decoder, and what is transparent is laid on `BACKGROUND`: the colours that
    transparency hides are not shown. The list of formats is closed on purpose, since pictures come from
    strangers and rare decoders are little tested.

    Args:
        path: The file.
        orient: Apply EXIF orientation; False gives the pixels as stored, but for TIFF and HEIC.

    Returns:
        uint8, (H, W, 3), RGB, contiguous.
    """
    return decode_image(read_bytes(path), str(path), orient=orient)


def read_pixels(path: str | Path) -> NDArray[Any]:
    """Decode a picture file as it is: grey stays one channel, 16 bits stay 16.

    EXIF orientation is applied and what is transparent laid on `BACKGROUND`, as by `read_image`. Channels and bits
    are those that the file's header declares, never a function of pixels or of a palette's colours (a palette always
    gives three channels): pictures that differ in pixels alone have the same shape and type.

    Args:
        path: The file.

    Returns:
        uint8 or uint16, (H, W) grey or (H, W, 3) RGB, contiguous.
    """
    return decode_pixels(read_bytes(path), str(path))


def decode_pixels(data: bytes, name: str) -> NDArray[Any]:
    """`read_pixels` for bytes already in memory; `name` stands in the error."""
    header = _checked_header(data, name)
    colour = cv2.IMREAD_GRAYSCALE if header.channels == 1 else cv2.IMREAD_COLOR
    pixels = _decoded(data, name, colour | (cv2.IMREAD_ANYDEPTH if header.depth == 16 else 0))
    found = (sorted(pixels.shape[:2]), 1 if pixels.ndim == 2 else 3, pixels.dtype.itemsize * 8)
    if found != (sorted((header.height, header.width)), header.channels, header.depth):
        raise DposeError(
            "picture-differs-from-header",
            f"the {header.format} file holds another picture than its header declares",
            name,
        )
    return pixels


def picture_header(path: str | Path) -> Header:
    """What a picture file declares about itself; nothing is decoded."""
    return _checked_header(read_bytes(path), str(path))


def picture_notes(header: Header) -> tuple[str, ...]:
    """What of a picture file is left out or changed when it is read, by its header alone."""
    notes = [f"its transparent parts are laid on {BACKGROUND}"] if header.alpha else []
    if header.images > 1:
        notes.append(f"of {header.images:,} pictures in the file the first is taken")
    return tuple(notes)


def image_size(path: str | Path) -> tuple[int, int]:
    """(H, W) of a picture file as stored, without decoding it; EXIF orientation is not applied."""
    header = picture_header(path)
    return header.height, header.width


def shown_size(path: str | Path) -> tuple[int, int]:
    """(H, W) of a picture file as `read_image` gives it, EXIF orientation applied; decoded only if it may be turned."""
    data = read_bytes(path)
    header = _checked_header(data, str(path))
    stored = header.height, header.width
    if header.format in ("tiff", "heic"):
        return stored[::-1] if header.turned else stored
    if b"Exif" not in data[: 2**16] or stored[0] == stored[1]:
        return stored
    # an eighth of the size tells which way up it is, unless it is nearly square
    small = cv2.IMREAD_REDUCED_GRAYSCALE_8 if abs(stored[0] - stored[1]) > 16 else cv2.IMREAD_GRAYSCALE
    height, width = _imdecode(data, str(path), small).shape
    return stored if (height > width) == (stored[0] > stored[1]) else stored[::-1]


def decode_image(data: bytes, name: str, *, orient: bool = True) -> Image:
    """`read_image` for bytes already in memory; `name` stands in the error."""
    turned = 0 if orient else cv2.IMREAD_IGNORE_ORIENTATION
    image: Image = _decoded(data, name, cv2.IMREAD_COLOR | turned)
    return image


def _decoded(data: bytes, name: str, flags: int) -> NDArray[Any]:
    """Decode, and lay what is transparent on the background.

    Each value becomes a function of its own pixel's colour and alpha alone, in whole numbers and in the file's own
    bits: one pixel of the file is still one pixel of the picture. Whether this is done follows from the header.
    """
    header = _checked_header(data, name)
    decode = _heic if header.format == "heic" else _imdecode
    pixels = decode(data, name, flags)
    if not header.alpha:
        return pixels
    whole = decode(data, name, cv2.IMREAD_UNCHANGED)
    colours = whole[:, :, :3] if whole.ndim == 3 else whole[:, :, None]
    peak = np.iinfo(whole.dtype).max
    if header.key:
        alpha = np.where((colours == np.array(header.key)).all(axis=2), 0, peak)
    elif whole.shape[2:] == (4,):
        alpha = whole[:, :, 3]
    else:
        raise DposeError("transparency-undecodable", "the transparent parts cannot be decoded", name, _OPAQUE)
    mixed = on_white(colours, alpha)

    def requested(values: NDArray[Any]) -> NDArray[Any]:
        if not flags & cv2.IMREAD_IGNORE_ORIENTATION:
            values = _turned(values, orientation(data))
        values = values >> 8 if peak > np.iinfo(pixels.dtype).max else values
        wide = values[:, :, 0] if pixels.ndim == 2 else np.broadcast_to(values, (*values.shape[:2], 3))
        return np.ascontiguousarray(wide, dtype=pixels.dtype)

    # two decodings of one file: they differ where the decoder turned it another way
    if header.format in _TWICE and not (header.lossy or np.array_equal(requested(colours), pixels)):
        raise DposeError(
            "transparency-orientation-unknown",
            "it cannot be told which way up its transparent parts are",
            name,
            _OPAQUE,
        )
    return requested(mixed)


def on_white(colours: NDArray[Any], alpha: NDArray[Any]) -> NDArray[np.uint32]:
    """Lay colours, (H, W, C) of 8 or 16 bits, on white by their opacity, (H, W); what it hides is not shown."""
    peak, level = np.iinfo(colours.dtype).max, alpha[:, :, None].astype(np.uint32)
    mixed: NDArray[np.uint32] = (colours * level + peak * (peak - level) + peak // 2) // peak
    return mixed  # of values of at most 65,535^2 + 32,767 < 2^32


def _turned(values: NDArray[Any], how: int) -> NDArray[Any]:
    """Apply an EXIF orientation, 1 to 8, to (H, W, C)."""
    if how in (5, 6, 7, 8):
        values = values.transpose(1, 0, 2)
    down, right = how in (3, 4, 7, 8), how in (2, 3, 6, 7)
    return values[:: -1 if down else 1, :: -1 if right else 1]


def _imdecode(data: bytes, name: str, flags: int) -> NDArray[Any]:
    """The picture as the decoder returns it, in RGB or RGBA; transparent pixels are as they were stored."""
    try:
        decoded = cv2.imdecode(np.frombuffer(without_profile(data), np.uint8), flags)
    except cv2.error as error:
        if error.code == cv2.Error.StsNoMem:
            raise MemoryError from error
        raise DposeError("picture-undecodable", "the picture cannot be decoded", name) from error
    if decoded is None:
        raise DposeError(
            "picture-undecodable", "the picture cannot be decoded", name, "it is damaged; copy or download it again"
        )
    if decoded.ndim == 2:
        return np.asarray(decoded)
    return np.asarray(cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB if decoded.shape[2] == 3 else cv2.COLOR_BGRA2RGBA))


def _heic(data: bytes, name: str, flags: int) -> NDArray[Any]:
    """Decode a HEIC picture as `_imdecode` does, 8 bits of RGB, or RGBA where transparency is declared."""
    try:
        import pillow_heif
    except ImportError as error:
        raise DposeError(
            "package-missing", "a HEIC picture needs pillow-heif", name, "pip install pillow-heif, or save it as JPEG"
        ) from error
    wanted = "RGBA" if flags == cv2.IMREAD_UNCHANGED else "RGB"
    try:
        picture = pillow_heif.open_heif(io.BytesIO(data), convert_hdr_to_8bit=True).to_pillow()
        return np.ascontiguousarray(np.asarray(picture.convert(wanted)))
    except (ValueError, OSError, RuntimeError, SyntaxError) as error:
        raise DposeError("picture-undecodable", "the picture cannot be decoded", name) from error


def _checked_header(data: bytes, name: str) -> Header:
    if not data:
        raise DposeError("picture-empty", "the picture file is empty", name)
    try:
        header = read_header(data)
    except HeaderError as error:
        raise DposeError("picture-unreadable", f"not a readable picture: {error}", name) from error
    if not header.width * header.height:
        size = f"{header.width} x {header.height}"
        raise DposeError(
            "picture-without-pixels", f"its header says {size} pixels", name, "it is damaged; copy or download it again"
        )
    if header.width * header.height > MAX_PIXELS:
        raise DposeError(
            "picture-too-large",
            f"{header.width} x {header.height} pixels, more than the {MAX_PIXELS:,} allowed",
            name,
            "make the picture smaller",
        )
    if not header.complete:
        raise DposeError(
            "picture-cut-short", f"the {header.format} file is cut short", name, "copy or download it again"
        )
    return header


def encode_image(image: NDArray[Any], suffix: str, quality: int = 95, compression: int | None = None) -> bytes:
    """A picture's file content.

    Args:
        image: uint8, (H, W, 3) RGB or (H, W) grey; uint16 too, of which a JPEG keeps the high byte.
        suffix: ".png" (lossless), ".jpg" or ".jpeg".
        quality: JPEG quality, 1 to 100; PNG ignores it.
        compression: PNG's zlib level, 0 to 9; None is fast, and good enough for photographs. JPEG ignores it.

    Raises:
        DposeError: another suffix.
        ValueError: the array is not such a picture.
    """
    if image.dtype not in (np.uint8, np.uint16) or image.ndim not in (2, 3) or image.shape[2:] not in ((), (3,)):
        raise ValueError(f"expected uint8 or uint16, (H, W, 3) or (H, W), got {image.dtype} {image.shape}")
    if image.size == 0:
        raise ValueError("an empty picture cannot be written")
    suffix = suffix.lower()
    if suffix not in (".png", ".jpg", ".jpeg"):
        raise DposeError(
            "picture-suffix-unknown",
            f"cannot write pictures as {suffix or 'a file without suffix'!r}",
            fix="use .png or .jpg",
        )
    options = [cv2.IMWRITE_JPEG_QUALITY, quality]
    if suffix == ".png":
        options = [] if compression is None else [cv2.IMWRITE_PNG_COMPRESSION, compression]
    if image.dtype == np.uint16 and suffix != ".png":
        image = (image >> 8).astype(np.uint8)
    shown = image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    done, encoded = cv2.imencode(suffix, shown, options)
    if not done:
        raise ValueError(f"the picture of shape {image.shape} could not be encoded as {suffix}")
    return bytes(encoded.tobytes())


def write_image(path: str | Path, image: Image, quality: int = 95) -> None:
    """Write a picture so that a reader sees all of it or none; the folder is made where it is missing.

    Args:
        path: Ends in .png, .jpg or .jpeg.
        image: uint8, (H, W, 3) RGB or (H, W) grey.
        quality: JPEG quality, 1 to 100.

    Raises:
        DposeError: another suffix, a full disk, a folder that may not be written to.
        ValueError: the array is not a uint8 picture.
    """
    path = Path(path)
    try:
        data = encode_image(image, path.suffix, quality)
    except DposeError as error:
        raise DposeError(error.code, error.what, str(path), error.fix) from error
    write_atomic(path, data)
