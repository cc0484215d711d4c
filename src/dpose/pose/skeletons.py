"""Skeletons as data: which joints there are, what joins them, which swap when a picture is mirrored.

`MPII` (16 joints) is the house's own: every dataset of people is brought to it, every model predicts it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Colour = tuple[int, int, int]

_RIGHT: Colour = (255, 140, 60)
_LEFT: Colour = (60, 150, 255)
_MIDDLE: Colour = (110, 220, 110)


@dataclass(frozen=True)
class Skeleton:
    """One dataset's joints.

    Attributes:
        name: "mpii", "coco" or "lsp".
        joints: Names, in the dataset's order; "r_" and "l_" are the person's own right and left.
        edges: Pairs of joint indices to draw a line between.
        flip_pairs: Pairs of joint indices that change places in a mirrored picture.
        sigmas: COCO's falloff of each joint (OKS), or empty where the dataset has none.
    """

    name: str
    joints: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]
    flip_pairs: tuple[tuple[int, int], ...]
    sigmas: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.joints)

    @property
    def flip_order(self) -> tuple[int, ...]:
        """The joint that stands at each place after mirroring: `mirrored = keypoints[list(flip_order)]`."""
        order = list(range(len(self.joints)))
        for a, b in self.flip_pairs:
            order[a], order[b] = b, a
        return tuple(order)

    @property
    def colours(self) -> tuple[Colour, ...]:
        """RGB of each joint: orange on the person's right, blue on the left, green in the middle."""
        side = {"r_": _RIGHT, "l_": _LEFT}
        return tuple(side.get(joint[:2], _MIDDLE) for joint in self.joints)


MPII = Skeleton(
    name="mpii",
    joints=(
        "r_ankle", "r_knee", "r_hip", "l_hip", "l_knee", "l_ankle", "pelvis", "thorax",
        "upper_neck", "head_top", "r_wrist", "r_elbow", "r_shoulder", "l_shoulder", "l_elbow", "l_wrist",
    ),
    edges=(
        (0, 1), (1, 2), (2, 6), (6, 3), (3, 4), (4, 5), (6, 7), (7, 8),
        (8, 9), (7, 12), (12, 11), (11, 10), (7, 13), (13, 14), (14, 15),
    ),
    flip_pairs=((0, 5), (1, 4), (2, 3), (10, 15), (11, 14), (12, 13)),
)  # fmt: skip

COCO = Skeleton(
    name="coco",
    joints=(
        "nose", "l_eye", "r_eye", "l_ear", "r_ear", "l_shoulder", "r_shoulder", "l_elbow", "r_elbow",
        "l_wrist", "r_wrist", "l_hip", "r_hip", "l_knee", "r_knee", "l_ankle", "r_ankle",
    ),
    edges=(
        (0, 1), (0, 2), (1, 3), (2, 4), (5, 6), (5, 7), (7, 9), (6, 8), (8, 10),
        (5, 11), (6, 12), (11, 12), (11, 13), (13, 15), (12, 14), (14, 16),
    ),
    flip_pairs=((1, 2), (3, 4), (5, 6), (7, 8), (9, 10), (11, 12), (13, 14), (15, 16)),
    sigmas=(
        0.026, 0.025, 0.025, 0.035, 0.035, 0.079, 0.079, 0.072, 0.072,
        0.062, 0.062, 0.107, 0.107, 0.087, 0.087, 0.089, 0.089,
    ),
)  # fmt: skip

LSP = Skeleton(
    name="lsp",
    joints=(
        "r_ankle", "r_knee", "r_hip", "l_hip", "l_knee", "l_ankle", "r_wrist", "r_elbow", "r_shoulder",
        "l_shoulder", "l_elbow", "l_wrist", "neck", "head_top",
    ),
    edges=(
        (0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (6, 7), (7, 8), (8, 12), (12, 9),
        (9, 10), (10, 11), (12, 13), (2, 8), (3, 9),
    ),
    flip_pairs=((0, 5), (1, 4), (2, 3), (6, 11), (7, 10), (8, 9)),
)  # fmt: skip

SKELETONS = {skeleton.name: skeleton for skeleton in (MPII, COCO, LSP)}

COCO_TO_MPII: tuple[tuple[int, int], ...] = (
    (16, 0), (14, 1), (12, 2), (11, 3), (13, 4), (15, 5),
    (10, 10), (8, 11), (6, 12), (5, 13), (7, 14), (9, 15),
)  # fmt: skip
"""(COCO joint, MPII joint) for the twelve limb joints; upper neck and head top have no COCO joint."""

LSP_TO_MPII: tuple[tuple[int, int], ...] = (
    (0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 10), (7, 11), (8, 12), (9, 13), (10, 14), (11, 15),
    (12, 8), (13, 9),
)  # fmt: skip
"""(LSP joint, MPII joint): all fourteen; MPII's pelvis and thorax are derived."""

DERIVED: tuple[tuple[int, tuple[int, int]], ...] = ((6, (2, 3)), (7, (12, 13)))
"""MPII joints that others lack: the pelvis is the middle of the hips, the thorax of the shoulders."""


def lsp_to_mpii(joints: ArrayLike, visible: ArrayLike) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """LSP's fourteen joints in MPII's order, with pelvis and thorax derived.

    A derived joint is visible where both its parents are. It is a fair training target (MPII's own thorax
    lies a little above the middle of the shoulders), and it is what a drawn skeleton hangs on; it is never
    scored, since PCKh leaves joints 6 and 7 out for every dataset.

    Args:
        joints: (..., 14, 2), pixels.
        visible: (..., 14), true where labelled.

    Returns:
        Keypoints (..., 16, 2) float32, zero where not visible, and visible (..., 16) bool.
    """
    source = np.asarray(joints, np.float32)
    seen = np.asarray(visible, bool)
    if source.shape != (*seen.shape, 2) or seen.shape[-1] != len(LSP):
        raise ValueError(
            f"expected joints (..., 14, 2) and visible (..., 14), got {source.shape}, {seen.shape}"
        )
    keypoints = np.zeros((*seen.shape[:-1], len(MPII), 2), np.float32)
    out = np.zeros((*seen.shape[:-1], len(MPII)), bool)
    for lsp, mpii in LSP_TO_MPII:
        keypoints[..., mpii, :] = source[..., lsp, :]
        out[..., mpii] = seen[..., lsp]
    for joint, (a, b) in DERIVED:
        keypoints[..., joint, :] = (keypoints[..., a, :] + keypoints[..., b, :]) / 2
        out[..., joint] = out[..., a] & out[..., b]
    return np.where(out[..., None], keypoints, np.float32(0)), out
