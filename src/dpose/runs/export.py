"""From a run folder to an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpose.files import file_text
from dpose.media.images import read_image
from dpose.pose.export import Exported, export_onnx
from dpose.pose.folder import load_model

WINDOWS = 4
"""Where no pictures are given: so many windows across, and as many down, of one photograph."""


def export_run(folder: Path, out: Path, pictures: Sequence[Path]) -> Exported:
    """Export the model in `folder`, with its statement in the file's metadata where it has one.

    Args:
        folder: A run or model folder.
        out: The ONNX file.
        pictures: What the two models are compared on; windows of a photograph of scikit-image where there are none.

    Raises:
        DposeError: as `dpose.pose.export.export_onnx`; or a file cannot be read.
    """
    model = load_model(folder)
    images = [read_image(path) for path in pictures]
    if not images:
        images = _windows(*model.config.input_size)
    statement = folder / "privacy.json"
    facts = {"dpose.privacy": file_text(statement)} if statement.exists() else {}
    return export_onnx(model, out, images, facts)


def _windows(height: int, width: int) -> list[NDArray[np.uint8]]:
    """Windows of a photograph of a person, with the proportions of these sizes: uint8, (H, W, 3)."""
    from skimage.data import astronaut

    photograph = astronaut()
    side = min(photograph.shape[:2]) * 3 // 4
    high, wide = side * height // max(height, width), side * width // max(height, width)
    tops, lefts = (
        np.linspace(0, n - k, WINDOWS).astype(int)
        for n, k in zip(photograph.shape[:2], (high, wide), strict=True)
    )
    return [photograph[top : top + high, left : left + wide] for top in tops for left in lefts]
