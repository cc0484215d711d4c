"""Segmentation of the person in a picture: by an ONNX file, or a classical segmenter that needs none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.files import file_digest

SIDE, PASSES, SPREAD = 128, 3, 1.5
FIRST_GUESS = (0.42, 0.36)
"""Half axes of the middle ellipse, as shares of height and width."""

Grey = NDArray[np.uint8]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Segmenter:
    """A segmenter of people in grey pictures.

    Attributes:
        name: Name in tables; contains the digest of an ONNX file.
        find: Function from a picture, uint8 (H, W), to a mask, bool (H, W).
    """

    name: str
    find: Callable[[Grey], Mask] = field(repr=False)


def open_segmenter(text: str) -> Segmenter:
    """Make the segmenter that `text` names.

    Args:
        text: An ONNX file, with ",imagenet" behind it if its input is normalised by ImageNet's mean and deviation (as
            rembg's models are); "" for GrabCut.
    """
    from dpose.release.regions import onnx_segmenter

    if not text:
        return Segmenter("GrabCut (OpenCV) from the picture's middle; a classical segmenter, not a network", grabcut)
    file = text.removesuffix(",imagenet")
    run = onnx_segmenter(file, imagenet=file != text)
    digest = file_digest(Path(file))

    def find(picture: Grey) -> Mask:
        mask: Mask = run(picture[:, :, None]) > 0.5
        return mask

    return Segmenter(f"{Path(file).name}{text[len(file) :]} (sha256 {digest[:16]})", find)


def grabcut(picture: Grey) -> Mask:
    """Segment by GrabCut (Rother, Kolmogorov and Blake 2004) on brightness, local average and local contrast.

    It starts from an ellipse in the middle and has no model of people. On a picture whose cells are finer where the
    person is, the contrast alone gives the person away.

    Args:
        picture: uint8, (H, W).
    """
    height, width = picture.shape
    scale = SIDE / max(height, width)
    size = (max(8, round(width * scale)), max(8, round(height * scale)))
    small = np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.float32)
    middle = cv2.GaussianBlur(small, (0, 0), SPREAD)
    contrast = np.sqrt(np.maximum(cv2.GaussianBlur(small * small, (0, 0), SPREAD) - middle * middle, 0))
    features = np.stack([small, middle, np.minimum(contrast, 255)], axis=2).astype(np.uint8)
    labels = _first_guess(*small.shape)
    cv2.setRNGSeed(0)
    try:
        models = np.zeros((1, 65)), np.zeros((1, 65))
        cv2.grabCut(features, labels, (0, 0, 0, 0), *models, PASSES, cv2.GC_INIT_WITH_MASK)
    except cv2.error:  # one side is empty: no person is found
        return np.zeros(picture.shape, np.bool_)
    person = ((labels == cv2.GC_FGD) | (labels == cv2.GC_PR_FGD)).astype(np.uint8)
    grown: Mask = cv2.resize(person, (width, height), interpolation=cv2.INTER_NEAREST) > 0
    return grown


def _first_guess(height: int, width: int) -> Grey:
    """Initial mask of GrabCut: probably a person in the middle, surely none at the border."""
    y, x = np.mgrid[:height, :width]
    tall, wide = FIRST_GUESS
    inside = ((y - height / 2) / (tall * height)) ** 2 + ((x - width / 2) / (wide * width)) ** 2 < 1
    labels = np.where(inside, cv2.GC_PR_FGD, cv2.GC_PR_BGD).astype(np.uint8)
    border = max(1, height // 24)
    labels[:border] = labels[-border:] = cv2.GC_BGD
    labels[:, :border] = labels[:, -border:] = cv2.GC_BGD
    return labels
