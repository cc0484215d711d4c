"""A pose model as an ONNX file, checked against the torch model before it is written.

From a run folder to an ONNX file.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import check_free, file_bytes, file_text, write_atomic
from dpose.media.images import read_image
from dpose.pose.codec import codec_of
from dpose.pose.crops import crop_transform, warp, whole_frame
from dpose.pose.folder import load_model
from dpose.pose.model import PoseConfig, PoseModel, fold_batchnorm
from dpose.pose.outputs import Outputs
from dpose.pose.predict import predict_outputs
from dpose.pose.skeletons import SKELETONS
from dpose.privacy.entries import check_sealed, check_stated, read_ledger
from dpose.privacy.statement import PrivacyStatement

INPUT = "images"
ELSEWHERE = 0.1
"""Largest difference, in pixels of the crop, between the positions of two models that count as equal. SimCC's positions
are whole bins; those of other codecs differ in their last digits.
"""

_EXTRA = "pip install onnx onnxruntime onnxscript"


@dataclass(frozen=True)
class Exported:
    """Result of `export_onnx`.

    Attributes:
        path: The file.
        pictures: Number of pictures on which both models were compared.
        apart: The largest difference of an output.
        bytes: Size of the file.
    """

    path: Path
    pictures: int
    apart: float
    bytes: int


def export_onnx(
    model: PoseModel, path: Path, pictures: Sequence[NDArray[np.uint8]], facts: Mapping[str, str] | None = None
) -> Exported:
    """Write a model as ONNX.

    The file takes "images" (N, 3, H, W) float32 of 0 to 255, RGB, with any N, and returns the codec's outputs under the
    codec's names, for SimCC "x_logits" (N, J, W * k) and "y_logits" (N, J, H * k): the normalisation of colours is
    inside, as it is in the model. BatchNorm is folded. Its metadata hold what `preprocessing` returns, and `facts`.

    Args:
        model: Any pose model; not changed.
        path: Ends in ".onnx".
        pictures: uint8 (H, W, 3) RGB, of any size: the two models are compared on them, as whole-picture crops.
        facts: More metadata, text by name: the statement of what is guaranteed, above all.

    Raises:
        DposeError: onnx or onnxruntime are not installed, there is no picture to compare on, or the two models differ
            in the place of a joint; nothing is written then.
    """
    _require("onnx", "onnxscript", "onnxruntime")
    if path.suffix.lower() != ".onnx":
        raise DposeError("onnx-suffix-missing", "an exported model's name ends in .onnx", str(path))
    if not pictures:
        raise DposeError(
            "export-pictures-missing", "an export is compared with the model on pictures, and there are none"
        )
    folded = fold_batchnorm(model).cpu().eval()
    crops = torch.from_numpy(np.stack([_crop(p, model.config.input_size) for p in pictures])).float()
    data = _with_metadata(_onnx_bytes(folded, crops), {**preprocessing(model), **(facts or {})})
    apart = _compare(data, folded, crops, str(path))
    write_atomic(path, data)
    return Exported(path, len(pictures), apart, len(data))


def preprocessing(model: PoseModel) -> dict[str, str]:
    """Describe input and decoding of a model, as the metadata of an exported file: text by name."""
    config = model.config
    height, width = config.input_size
    return {
        "dpose.input": json.dumps(
            {"name": INPUT, "height": height, "width": width, "colour": "RGB", "range": [0, 255]}
        ),
        "dpose.normalisation": "inside the model",
        "dpose.crop": "box widened or heightened to the input's aspect about its centre, enlarged by 1.25 (a whole "
        "picture by 1), resampled bilinearly, black outside; whole numbers are pixel centres",
        "dpose.decode": codec_of(config).explain(),
        "dpose.joints": json.dumps(list(SKELETONS[config.skeleton].joints)),
        "dpose.config": json.dumps(config.to_dict()),
    }


class OnnxModel(torch.nn.Module):
    """A pose model whose outputs ONNX Runtime computes from its export: for `dpose.pose.predict`, on a processor.

    Attributes:
        config: The model's.
        mean: The model's, for its device.
    """

    def __init__(self, model: PoseModel, session: Any) -> None:
        super().__init__()
        self.config, self._session = model.config, session
        self.register_buffer("mean", model.mean)

    def forward(self, crops: torch.Tensor) -> Outputs:
        """Return outputs of crops (N, 3, H, W), as `PoseModel` does."""
        return _run(self._session, self.config, np.ascontiguousarray(crops.float().numpy()))


def run_by_onnx(model: PoseModel, pictures: Sequence[NDArray[np.uint8]]) -> PoseModel | None:
    """Return the model run by ONNX Runtime, or None if that is unavailable or would put a joint elsewhere.

    It takes seconds to make, and predicts 1.4 times as fast as torch with many crops at once (docs/lab/results.md).

    Args:
        model: Result of `dpose.pose.predict.for_prediction`, on a processor.
        pictures: uint8 (H, W, 3) RGB, on which the two are compared.
    """
    crops = torch.from_numpy(np.stack([_crop(p, model.config.input_size) for p in pictures])).float()
    try:
        _require("onnx", "onnxscript", "onnxruntime")
        data = _onnx_bytes(model, crops)
        _compare(data, model, crops, "")
    except DposeError:
        return None
    return cast(PoseModel, OnnxModel(model, _session(data)))


def _crop(picture: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    whole = whole_frame((picture.shape[0], picture.shape[1]))
    return np.ascontiguousarray(warp(picture, crop_transform(whole, size, 1.0), size).transpose(2, 0, 1))


def _onnx_bytes(model: PoseModel, crops: torch.Tensor) -> bytes:
    # torch exports a batch of size 0 or 1, and some others, as a constant: an example of five stands for any number
    example = crops[torch.arange(5) % len(crops)]
    descriptor, name = tempfile.mkstemp(suffix=".onnx")
    os.close(descriptor)
    quiet = logging.getLogger("torch.onnx")
    before = quiet.level
    quiet.setLevel(logging.ERROR)
    try:
        # the exporter talks on stdout and warns about its own insides
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                model,
                (example,),
                name,
                input_names=[INPUT],
                output_names=list(codec_of(model.config).export_names),
                dynamic_shapes={"images": {0: torch.export.Dim("pictures")}},
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        return file_bytes(Path(name))
    except Exception as error:  # the exporter raises exceptions of any kind, with messages of any length
        raise DposeError(
            "export-failed", f"torch {torch.__version__} cannot export the model ({type(error).__name__})"
        ) from error
    finally:
        quiet.setLevel(before)
        os.unlink(name)


def _with_metadata(data: bytes, values: dict[str, str]) -> bytes:
    import onnx

    made = onnx.load_from_string(data)
    onnx.helper.set_model_props(made, values)
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())


def _session(data: bytes) -> Any:
    import onnxruntime

    options: Any = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _compare(data: bytes, model: PoseModel, crops: torch.Tensor, where: str) -> float:
    """Return the largest difference of an output; refuse a file that puts one joint elsewhere."""
    ours = predict_outputs(model, crops)
    theirs = _run(_session(data), model.config, crops.numpy())
    codec = codec_of(model.config)
    (places, _), (others, _) = codec.decode(ours), codec.decode(theirs)
    # written so that a position that is nan differs, too
    if not bool(((places - others).abs() <= ELSEWHERE).all()):
        raise DposeError("export-differs", "the exported model finds a joint elsewhere than the model does", where)
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))


def _run(session: Any, config: PoseConfig, images: NDArray[np.float32]) -> Outputs:
    outputs = session.run(list(codec_of(config).export_names), {INPUT: images})
    return tuple(torch.from_numpy(output) for output in outputs)


def _require(*names: str) -> None:
    import importlib.util

    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise DposeError("package-missing", f"export needs {', '.join(missing)}", fix=_EXTRA)


WINDOWS = 4
"""Where no pictures are given: so many windows across, and as many down, of one photograph."""


def export_run(folder: Path, out: Path, pictures: Sequence[Path]) -> Exported:
    """Export the model in `folder`, with its statement in the file's metadata where it has one.

    Args:
        folder: A run or model folder.
        out: The ONNX file; must not exist.
        pictures: What the two models are compared on; windows of a photograph of scikit-image where there are none.

    Raises:
        DposeError: `out` exists, the models differ, or the folder's statement is not about its weights, or is gone.
    """
    check_free(out)
    check_stated(folder)
    model = load_model(folder)
    images = [read_image(path) for path in pictures]
    if not images:
        images = _windows(*model.config.input_size)
    facts = {}
    if (path := folder / "privacy.json").exists():
        facts = {"dpose.privacy": file_text(path)}
        statement = PrivacyStatement.from_json(facts["dpose.privacy"], str(path))
        check_sealed(folder, statement, read_ledger(folder / "ledger.jsonl"))  # the file has no ledger to look it up in
    return export_onnx(model, out, images, facts)


def _windows(height: int, width: int) -> list[NDArray[np.uint8]]:
    """Windows of a photograph of a person, with the proportions of these sizes: uint8, (H, W, 3)."""
    from skimage.data import astronaut

    photograph = astronaut()
    side = min(photograph.shape[:2]) * 3 // 4
    high, wide = side * height // max(height, width), side * width // max(height, width)
    tops, lefts = (
        np.linspace(0, n - k, WINDOWS).astype(int) for n, k in zip(photograph.shape[:2], (high, wide), strict=True)
    )
    return [photograph[top : top + high, left : left + wide] for top in tops for left in lefts]
