"""From a run folder to an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpose.files import file_text
from dpose.media.images import read_image
from dpose.pose.export import Exported, export_onnx
from dpose.pose.folder import load_model

COMPARED = 16
"""Rendered pictures to compare on where none are given."""


def export_run(folder: Path, out: Path, pictures: Sequence[Path]) -> Exported:
    """Export the model in `folder`, with its statement in the file's metadata where it has one.

    Args:
        folder: A run or model folder.
        out: The ONNX file.
        pictures: What the two models are compared on; rendered people where there are none.

    Raises:
        DposeError: as `dpose.pose.export.export_onnx`; or a file cannot be read.
    """
    model = load_model(folder)
    images = [read_image(path) for path in pictures]
    if not images:
        from dpose.scene import render_person, scene_seed

        images = [
            render_person("studio", scene_seed("studio", "test", i), size=model.config.input_size).image
            for i in range(COMPARED)
        ]
    statement = folder / "privacy.json"
    facts = {"dpose.privacy": file_text(statement)} if statement.exists() else {}
    return export_onnx(model, out, images, facts)
