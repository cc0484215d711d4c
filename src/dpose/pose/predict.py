"""Prediction: from a picture and a person's box to keypoints in the picture's pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from dpose.errors import DposeError
from dpose.pose.blazepose import fold_scales
from dpose.pose.codec import codec_of
from dpose.pose.crops import Matrix, crop_transform, invert, transform_points, warp, whole_frame
from dpose.pose.model import PoseModel, fold_batchnorm
from dpose.pose.outputs import Outputs
from dpose.pose.skeletons import SKELETONS

if TYPE_CHECKING:
    from supervision import KeyPoints


@dataclass(frozen=True)
class Pose:
    """One person's joints.

    Attributes:
        keypoints: (J, 2) float64, x and y in pixels of the picture; pixel centres are whole numbers.
        scores: (J,) float64 in [0, 1] (the codec's, `dpose.pose.outputs.Codec.decode`).
    """

    keypoints: NDArray[np.float64]
    scores: NDArray[np.float64]

    def to_supervision(self) -> KeyPoints:
        """Convert this person to `supervision.KeyPoints`, for its annotators; needs the extra `supervision`."""
        return to_supervision([self])


def predict_image(
    model: PoseModel, image: NDArray[np.uint8], box: ArrayLike | None = None, *, flip_test: bool = False
) -> Pose:
    """Predict the joints of the person in a box, in pixels of the picture.

    Args:
        model: Any pose model; its mode is left as it was.
        image: uint8, (H, W, 3) RGB.
        box: (x0, y0, x1, y1) around one person, picture pixels; the whole picture where None. A given box is
            enlarged by a quarter, as in training; the whole picture is not.
        flip_test: Average with the prediction on the mirrored crop: a little better, at twice the cost.

    Raises:
        DposeError: the picture is not a uint8 (H, W, 3) array, or the box is empty or not four numbers.
    """
    return predict_frames(model, [image], [None if box is None else [box]], flip_test=flip_test)[0][0]


def predict_people(
    model: PoseModel,
    image: NDArray[np.uint8],
    boxes: Sequence[ArrayLike],
    *,
    flip_test: bool = False,
    at_once: int = 32,
) -> list[Pose]:
    """Predict the joints of the person in each box (`predict_image`), several at once.

    Args:
        model: Any pose model.
        image: uint8, (H, W, 3) RGB.
        boxes: Each (x0, y0, x1, y1) around one person, picture pixels; may be empty.
        flip_test: Average with the predictions on mirrored crops.
        at_once: Crops in one forward pass.

    Raises:
        DposeError: as `predict_frames`.
        ValueError: likewise.
    """
    return predict_frames(model, [image], [boxes], flip_test=flip_test, at_once=at_once)[0]


def predict_frames(
    model: PoseModel,
    images: Sequence[NDArray[np.uint8]],
    boxes: Sequence[Sequence[ArrayLike] | None],
    *,
    flip_test: bool = False,
    at_once: int = 32,
) -> list[list[Pose]]:
    """Predict the joints of the people in each of several pictures, as `predict_image` does, several crops at once.

    A model is two to five times as fast on many crops as on one after the other; see `for_prediction`, too.

    Args:
        model: Any pose model.
        images: Each uint8, (H, W, 3) RGB, of any size.
        boxes: The people of each picture (`predict_people`); None for one person that fills it.
        flip_test: Average with the predictions on mirrored crops.
        at_once: Crops in one forward pass, at least 1.

    Raises:
        DposeError: a picture is not a uint8 (H, W, 3) array, or a box is empty or not four numbers.
        ValueError: at_once is below 1.
    """
    if at_once < 1:
        raise ValueError(f"at_once must be at least 1, not {at_once}")
    size = model.config.input_size
    wanted: list[tuple[int, Matrix]] = []
    for number, (image, people) in enumerate(zip(images, boxes, strict=True)):
        _check_picture(image)
        if people is None:
            whole = whole_frame(cast(tuple[int, int], image.shape[:2]))
            wanted.append((number, crop_transform(whole, size, padding=1.0)))
        else:
            wanted += [(number, crop_transform(_corners(box), size)) for box in people]
    poses_of: list[list[Pose]] = [[] for _ in images]
    for start in range(0, len(wanted), at_once):
        part = wanted[start : start + at_once]
        crops = np.stack([warp(images[number], matrix, size) for number, matrix in part])
        poses = _predict(model, crops, [matrix for _, matrix in part], flip_test)
        for (number, _), pose in zip(part, poses, strict=True):
            poses_of[number].append(pose)
    return poses_of


def _check_picture(image: Any) -> None:
    """Refuse what is no picture, with the codes of `dpose.pixelize`."""
    wanted = "a picture is a uint8 (H, W, 3) RGB array, not"
    if not isinstance(image, np.ndarray):
        given, fix = type(image).__name__, "dpose.media.images.read_image reads a file as one"
        raise DposeError("image-not-array", f"{wanted} {given}", fix=fix)
    given = f"{image.dtype} {image.shape}"
    if image.dtype != np.uint8:
        raise DposeError("image-type-unsupported", f"{wanted} {given}", fix="scale it to 0..255 and round before")
    if image.ndim != 3 or image.shape[2] != 3:
        raise DposeError("image-of-wrong-shape", f"{wanted} {given}", fix="put channels last, red, green and blue")
    if image.size == 0:
        raise DposeError("image-empty", f"{wanted} {given}")


def _corners(box: Any) -> NDArray[np.float64]:
    """Return a box as (4,) float64; refuse one that is malformed, or holds nothing."""
    try:
        corners = np.asarray(box, np.float64)
        given = str(corners.shape)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # what libraries of arrays raise for what is none
        corners, given = np.empty(0), repr(box)[:80]
    if corners.shape != (4,):
        raise DposeError("box-malformed", f"a box is x0, y0, x1, y1, of shape (4,), not {given}")
    x0, y0, x1, y1 = corners.tolist()
    if not (np.isfinite(x0 + y0 + x1 + y1) and x1 > x0 and y1 > y0):
        fix = "x1 must exceed x0, y1 must exceed y0"
        raise DposeError("box-empty", f"the box ({x0:g}, {y0:g}, {x1:g}, {y1:g}) holds nothing", fix=fix)
    return corners


def for_prediction(model: PoseModel) -> PoseModel:
    """Return a copy that predicts the same, up to rounding, faster: norms and scales folded, a fast memory layout."""
    folded = fold_batchnorm(model)
    fold_scales(folded)
    return folded.eval().requires_grad_(False).to(memory_format=torch.channels_last)


def to_supervision(people: Sequence[Pose]) -> KeyPoints:
    """Convert the people of a picture to `supervision.KeyPoints`: xy (N, J, 2) and keypoint_confidence (N, J), float32.

    Raises:
        DposeError: supervision is not installed.
    """
    try:
        from supervision import KeyPoints
    except ImportError as error:
        raise DposeError("package-missing", "needs supervision", fix="pip install supervision") from error
    if not people:
        return KeyPoints.empty()
    return KeyPoints(
        xy=np.stack([person.keypoints for person in people]).astype(np.float32),
        keypoint_confidence=np.stack([person.scores for person in people]).astype(np.float32),
    )


def _predict(model: PoseModel, crops: NDArray[np.uint8], matrices: Sequence[Matrix], flip_test: bool) -> list[Pose]:
    inputs = torch.from_numpy(crops).permute(0, 3, 1, 2)  # channels last in memory, without a copy
    outputs = predict_outputs(model, inputs.to(model.mean.device), flip_test=flip_test)
    keypoints, scores = codec_of(model.config).decode(outputs)
    return [
        Pose(transform_points(invert(m), k), s)
        for m, k, s in zip(matrices, keypoints.double().cpu().numpy(), scores.double().cpu().numpy(), strict=True)
    ]


def predict_outputs(model: PoseModel, crops: Tensor, *, flip_test: bool = False) -> Outputs:
    """Compute the model's outputs in evaluation mode, without gradients; its mode is left as it was.

    Args:
        model: Any pose model.
        crops: (N, 3, H, W) of 0 to 255, uint8 or float, on the model's device.
        flip_test: Average them with those of the mirrored crops, as the codec does.

    Returns:
        The input of the codec's `decode`, (N, ...) each.
    """
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            outputs: Outputs = model(crops)
            if not flip_test:
                return outputs
            partner = torch.tensor(SKELETONS[model.config.skeleton].flip_order, device=crops.device)
            return codec_of(model.config).mirror(outputs, model(crops.flip(-1)), partner)
    finally:
        model.train(training)
