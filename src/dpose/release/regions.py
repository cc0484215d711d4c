"""Which blocks are complex and get finer cells: from a public mask, or from what was already released.

A mask that is computed from the original picture is itself a release without noise, and no noise on the sums makes up
for it. So there are two honest ways. A *public* mask comes from elsewhere (a floor plan, the last frame's release). A
*private* mask is a function of stage one's released sums, and of nothing else; then it is post-processing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.release.partition import BlockSums, Mask, block_sums

Segmenter = Callable[[NDArray[Any]], NDArray[Any]]
"""From a released picture, (H, W, C), to a mask (H, W): above 0.5 (or above half of 255) is complex."""


@dataclass(frozen=True)
class PublicRegions:
    """Complex regions as a mask that was not made from the picture.

    Attributes:
        pixels: bool, (H, W); True where complex. A block is complex where at least half of it is.
    """

    pixels: Mask

    @classmethod
    def from_array(cls, mask: NDArray[Any]) -> PublicRegions:
        """Regions from a mask of bools, of numbers up to 1, or of gray levels up to 255; the upper half is complex."""
        array = np.asarray(mask)
        if array.ndim != 2 or 0 in array.shape:
            raise DposeError("mask-of-wrong-shape", f"must have the shape (height, width), not {array.shape}", "mask")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DposeError("mask-not-finite", "holds values that are not finite", "mask")
        if array.dtype == np.bool_:
            return cls(array)
        middle = 0.5 if array.dtype.kind == "f" or array.max(initial=0) <= 1 else 127.5
        return cls(array > middle)

    @classmethod
    def from_file(cls, path: str | Path) -> PublicRegions:
        """Regions from a picture file: light is complex, dark is simple."""
        from dpose.media.images import picture_header, read_image

        if picture_header(path).alpha:
            raise DposeError(
                "mask-transparent", "a mask has no transparent parts", str(path), "save it without transparency"
            )
        return cls.from_array(read_image(path).max(axis=2))

    @property
    def sha256(self) -> str:
        """Digest of the mask: names it in the statement."""
        return hashlib.sha256(f"{self.pixels.shape}".encode() + np.packbits(self.pixels).tobytes()).hexdigest()

    def blocks(self, height: int, width: int, block: int) -> Mask:
        """Which blocks are complex: those of which at least half is."""
        if self.pixels.shape != (height, width):
            raise DposeError(
                "mask-size-differs",
                f"the mask has {self.pixels.shape[1]} x {self.pixels.shape[0]} pixels, the picture {width} x {height}",
                "regions",
                "give a mask of the picture's size",
            )
        partition = BlockSums(height, width, block)
        inside = block_sums(self.pixels.astype(np.uint8)[:, :, None], block)[:, :, 0]
        mask: Mask = 2 * inside >= partition.areas.reshape(inside.shape)
        return mask


@dataclass(frozen=True)
class PrivateRegions:
    """Complex regions as a function of stage one's released picture.

    Attributes:
        quantile: A block is complex if its Sobel energy is above this share of the blocks'. Ignored where a threshold
            or a segmenter is given.
        threshold: A block is complex if its Sobel magnitude is above this many gray levels.
        segmenter: Decides instead, from the released coarse picture.
        share: The part of epsilon (of rho, for Gaussian noise) that stage one spends.
        name: How the statement names the segmenter.
    """

    quantile: float = 0.75
    threshold: float | None = None
    segmenter: Segmenter | None = None
    share: Fraction = Fraction(1, 2)
    name: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise DposeError("share-out-of-range", f"must lie between 0 and 1, not {self.share}", "share")
        if not 0 <= self.quantile < 1:
            raise DposeError("quantile-out-of-range", f"must lie in [0, 1), not {self.quantile}", "quantile")
        if self.threshold is not None and not self.threshold >= 0:
            raise DposeError("threshold-negative", f"must be at least 0 gray levels, not {self.threshold}", "threshold")

    def blocks(self, released: NDArray[Any], partition: BlockSums) -> Mask:
        """Which blocks are complex. Post-processing: it sees what was released, and nothing else.

        Args:
            released: Stage one's block values, (rows * columns, C).
            partition: The blocks.
        """
        grid = released.reshape(partition.rows, partition.columns, partition.channels)
        if self.segmenter is not None:
            picture = partition.adjoint(released)
            return PublicRegions.from_array(self.segmenter(picture)).blocks(
                partition.height, partition.width, partition.block
            )
        energy = sobel_energy(grid)
        if self.threshold is not None:
            # the Sobel weights add up to 8 for a slope of one gray level a block
            above: Mask = energy > (8 * self.threshold) ** 2 * partition.channels
        else:
            above = energy > np.quantile(energy, self.quantile)
        return above


@dataclass(frozen=True)
class PaperRegions:
    """Complex regions as seed 002 has them, for paper mode alone: from a mask that may come from the picture itself.

    Attributes:
        pixels: bool, (H, W), True where complex; None for Sobel energy of the original picture's blocks.
    """

    pixels: Mask | None = None

    def blocks(self, picture: NDArray[Any], block: int) -> Mask:
        """Algorithm 3, lines 3 to 6: the mask is mirrored to whole blocks; a block is complex where half of it is.

        Args:
            picture: The original, (H, W, C).
            block: b, pixels.
        """
        height, width = picture.shape[:2]
        if self.pixels is None:
            padded = mirrored(picture, block)
            means = block_sums(padded, block) // block**2
            energy = sobel_energy(means)
            above: Mask = energy > np.quantile(energy, PrivateRegions.quantile)
            return above
        PublicRegions(self.pixels).blocks(height, width, block)  # refuses another size
        inside = block_sums(mirrored(self.pixels[:, :, None].astype(np.uint8), block), block)[:, :, 0]
        mask: Mask = 2 * inside >= block**2
        return mask


Regions = PublicRegions | PrivateRegions | PaperRegions


def as_regions(regions: Regions | NDArray[Any] | str) -> Regions:
    """Regions from what a caller gives."""
    if isinstance(regions, PublicRegions | PrivateRegions | PaperRegions):
        return regions
    if isinstance(regions, str):
        if regions != "private":
            raise DposeError("regions-unknown", f"must be private or a mask, not {regions!r}", "regions")
        return PrivateRegions()
    return PublicRegions.from_array(regions)


def mirrored(picture: NDArray[Any], block: int) -> NDArray[Any]:
    """The picture with its border mirrored to a whole number of blocks, (H', W', C): the papers' padding."""
    height, width = picture.shape[:2]
    return np.pad(picture, ((0, -height % block), (0, -width % block), (0, 0)), mode="symmetric")


def sobel_energy(grid: NDArray[Any]) -> NDArray[np.int64]:
    """Squared Sobel gradient of each block, summed over channels; edges are repeated.

    Args:
        grid: Gray levels, (rows, columns, C).

    Returns:
        int64, (rows, columns).
    """
    near = np.pad(grid.astype(np.int64), ((1, 1), (1, 1), (0, 0)), mode="edge")
    down = near[:, :-2] + 2 * near[:, 1:-1] + near[:, 2:]
    across = near[:-2] + 2 * near[1:-1] + near[2:]
    gradient = (down[2:] - down[:-2]) ** 2 + (across[:, 2:] - across[:, :-2]) ** 2
    energy: NDArray[np.int64] = gradient.sum(axis=2)
    return energy


IMAGENET = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], np.float32)
"""Mean and deviation of ImageNet's channels, by which many networks' inputs are normalised."""


LARGEST_SIDE = 8192
"""The largest side of the pictures that a segmenter takes, pixels."""


def onnx_segmenter(path: str | Path, imagenet: bool = False) -> Segmenter:
    """A segmenter from an ONNX file, run with onnxruntime (an optional dependency).

    The model takes one picture, float32 (1, 3, H, W), values 0 to 1; where it fixes H and W the picture is resized. It
    gives (1, K, h, w) or (1, h, w): one map is taken as the chance of being complex (as logits if it leaves [0, 1]), of
    several the first is the background.

    Args:
        path: The file.
        imagenet: Normalise each channel by ImageNet's mean and deviation.
    """
    try:
        import onnxruntime
    except ImportError:
        raise DposeError(
            "package-missing", "a segmenter needs onnxruntime", str(path), "pip install onnxruntime"
        ) from None
    if not Path(path).is_file():
        raise DposeError("file-missing", "there is no such file", str(path))
    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (entry, *others) = session.get_inputs()
    except Exception as error:  # onnxruntime's own classes share no base but this
        raise DposeError("onnx-unreadable", "is not a readable ONNX model", str(path)) from error
    if (
        others
        or len(entry.shape) != 4
        or not all(1 <= side <= LARGEST_SIDE for side in entry.shape[2:] if isinstance(side, int))
    ):
        raise DposeError("onnx-input-wrong", "must take one picture, (1, 3, H, W)", str(path))

    def segment(picture: NDArray[Any]) -> NDArray[Any]:
        import cv2

        height, width = picture.shape[:2]
        tall, wide = (
            side if isinstance(side, int) else own for side, own in zip(entry.shape[2:], (height, width), strict=True)
        )
        colour = np.broadcast_to(picture, (height, width, 3)).astype(np.float32) / np.iinfo(picture.dtype).max
        resized = cv2.resize(colour, (wide, tall), interpolation=cv2.INTER_AREA)
        if imagenet:
            resized = (resized - IMAGENET[0]) / IMAGENET[1]
        try:
            output = np.asarray(session.run(None, {entry.name: resized.transpose(2, 0, 1)[None]})[0], np.float32)
        except Exception as error:
            raise DposeError("onnx-run-failed", "the model cannot be run on a picture", str(path)) from error
        maps = output.reshape(-1, *output.shape[-2:])
        if len(maps) > 1:
            chance = (maps.argmax(axis=0) > 0).astype(np.float32)
        else:
            logits = maps[0].min() < 0 or maps[0].max() > 1
            chance = (maps[0] > 0).astype(np.float32) if logits else maps[0]
        return np.asarray(cv2.resize(chance, (width, height), interpolation=cv2.INTER_LINEAR))

    return segment
