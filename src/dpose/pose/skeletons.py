"""Skeletons: joints, the edges between them, and the pairs that swap when a picture is mirrored.

`MPII` (16 joints) is the default; `COCO` (17) is that of COCO and Human-Art. A joint has the same name in every
skeleton that has it, so labels are converted from one to another by names: `JointMap`. A dataset with joints of its own
defines its skeleton (`skeleton_of`), and so does the `config.json` of a model that was trained on it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpose.errors import DposeError

Colour = tuple[int, int, int]

_RIGHT: Colour = (255, 140, 60)
_LEFT: Colour = (60, 150, 255)
_MIDDLE: Colour = (110, 220, 110)


@dataclass(frozen=True)
class Skeleton:
    """One dataset's joints.

    Attributes:
        name: one of `BUILT_IN`, or "joints-" and a digest for a skeleton that a dataset defines.
        joints: Names, in the dataset's order; `r_` and `l_` are the person's own right and left.
        edges: Pairs of joint indices to draw a line between.
        flip_pairs: Pairs of joint indices that change places in a mirrored picture.
        sigmas: The falloff of each joint (OKS), COCO's for its own; empty if people are scored by PCKh.
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
        """The joint at each place after mirroring: `mirrored = keypoints[list(flip_order)]`."""
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

WARD = Skeleton(
    name="ward",
    joints=(*MPII.joints, "r_palm", "l_palm", "footing"),
    edges=(*MPII.edges, (10, 16), (15, 17), (0, 18), (5, 18)),
    flip_pairs=(*MPII.flip_pairs, (16, 17)),
    sigmas=(1 / 19,) * 19,
)
"""MPII's joints, and what a ward wants beside them: where hands hold a rail or an aid, and the middle of the soles of
somebody who stands on the floor. No public labels and no public model have these."""

_BLAZEPOSE_PAIRS = (*((1, 4), (2, 5), (3, 6), (7, 8), (9, 10)), *((left, left + 1) for left in range(11, 33, 2)))
BLAZEPOSE = Skeleton(
    name="blazepose",
    joints=(
        "nose", "l_eye_inner", "l_eye", "l_eye_outer", "r_eye_inner", "r_eye", "r_eye_outer", "l_ear", "r_ear",
        "l_mouth", "r_mouth", "l_shoulder", "r_shoulder", "l_elbow", "r_elbow", "l_wrist", "r_wrist",
        "l_pinky", "r_pinky", "l_index", "r_index", "l_thumb", "r_thumb", "l_hip", "r_hip", "l_knee", "r_knee",
        "l_ankle", "r_ankle", "l_heel", "r_heel", "l_foot_index", "r_foot_index",
    ),
    edges=(
        (0, 1), (1, 2), (2, 3), (3, 7), (0, 4), (4, 5), (5, 6), (6, 8), (0, 9), (0, 10), (9, 10), (7, 11), (8, 12),
        (11, 12), (11, 13), (13, 15),
        (15, 17), (15, 19), (15, 21), (17, 19), (12, 14), (14, 16), (16, 18), (16, 20), (16, 22), (18, 20),
        (11, 23), (12, 24), (23, 24), (23, 25), (24, 26), (25, 27), (26, 28), (27, 29), (28, 30), (29, 31),
        (30, 32), (27, 31), (28, 32),
    ),
    flip_pairs=_BLAZEPOSE_PAIRS,
)  # fmt: skip

SKELETONS = {skeleton.name: skeleton for skeleton in (MPII, COCO, LSP, BLAZEPOSE, WARD)}
"""Built-in skeletons, and those that were defined since (`skeleton_of`)."""

BUILT_IN = frozenset(SKELETONS)

MOST_JOINTS = 1_000

OWN = "own"
"""Name that stands for the skeleton of the model itself."""


def skeleton_named(name: str) -> Skeleton:
    """Return the skeleton with this name."""
    if name not in SKELETONS:
        known = ", ".join(SKELETONS)
        raise DposeError("skeleton-unknown", "there is no such skeleton", name, f"choose from {known}")
    return SKELETONS[name]


def check_skeleton(name: str) -> None:
    """Refuse a skeleton that is neither built in nor "own"."""
    if name not in {*BUILT_IN, OWN}:
        raise DposeError(
            "skeleton-unknown",
            f"no skeleton is called {name!r}",
            fix=f"give one of {', '.join(sorted(BUILT_IN))} or {OWN}",
        )


def skeleton_of(
    joints: Sequence[str],
    edges: Sequence[Sequence[int]] = (),
    flip_order: Sequence[int] | None = None,
    *,
    where: str = "",
) -> Skeleton:
    """Register the skeleton that a label file describes; returns a built-in one if the joints are its own.

    A new one is named by the digest of its content, so that two files with the same joints have the same skeleton. Its
    falloff in OKS is 1/J for each joint, as in Ultralytics, since no measured value exists.

    Args:
        joints: Names; `left_`, `right_` and the like become `l_` and `r_`.
        edges: Pairs of indices into `joints`, from 0.
        flip_order: The joint at each place of a mirrored picture; derived from the names' sides if None.
        where: The file, for errors.

    Raises:
        DposeError: no joints or two equal ones, an edge to a joint that does not exist, or an order that does not swap
            pairs.
    """
    names = tuple(map(plain_joint, joints))
    if not names or len(set(names)) != len(names) or not all(names):
        raise DposeError(
            "joints-invalid", "names no joints, or one twice", where or "skeleton", "give each joint its own name"
        )
    for known in (SKELETONS[name] for name in sorted(BUILT_IN)):
        if names == known.joints and (flip_order is None or tuple(flip_order) == known.flip_order):
            return known
    count = len(names)
    order = _by_sides(names) if flip_order is None else [int(j) for j in flip_order]
    if len(order) != count or any(not 0 <= j < count or order[j] != i for i, j in enumerate(order)):
        raise DposeError(
            "flip-order-invalid", f"does not swap {count} joints in pairs: {list(order)}", where or "skeleton"
        )
    pairs = tuple((i, j) for i, j in enumerate(order) if i < j)
    lines = tuple((int(a), int(b)) for a, b in edges)
    if any(not (0 <= a < count and 0 <= b < count) for a, b in lines):
        raise DposeError("edges-invalid", f"joins joints that are not among its {count}", where or "skeleton")
    digest = hashlib.sha256(json.dumps([names, lines, pairs]).encode()).hexdigest()
    made = Skeleton(f"joints-{digest[:12]}", names, lines, pairs, (1 / count,) * count)
    return SKELETONS.setdefault(made.name, made)


def declared_skeleton(text: str, where: str = "", *, by_name: bool = False) -> Skeleton:
    """Return the skeleton that somebody declares, for label files that name no joints.

    Labels that have their joints by place need them in the order of the declaration: the k-th joint is its k-th name.

    >>> declared_skeleton("mpii").name, declared_skeleton("2").joints, declared_skeleton("nose,left hand").joints
    ('mpii', ('joint_0', 'joint_1'), ('nose', 'l_hand'))

    Args:
        text: A built-in one's name, a number of joints, or their names with commas between them.
        where: For errors, what declares it.
        by_name: True for labels that name each joint: those of a built-in skeleton are it in any order.

    Raises:
        DposeError: as `skeleton_of`, or more than `MOST_JOINTS`.
    """
    text = text.strip()
    if text in BUILT_IN:
        return SKELETONS[text]
    if re.fullmatch("[0-9]{1,9}", text):
        if int(text) > MOST_JOINTS:
            raise DposeError("joints-invalid", f"are more than {MOST_JOINTS:,}: {text}", where, "declare fewer")
        return skeleton_of([f"joint_{j}" for j in range(int(text))], where=where)
    names = text.split(",")
    return listed_skeleton(names, where) if by_name else skeleton_of(names, where=where)


def listed_skeleton(names: Sequence[str], where: str = "") -> Skeleton:
    """Return the built-in skeleton of just these joints, or else their own (`skeleton_of`).

    Their order does not count, so it is for labels that name each joint, never for those that have them by place.
    """
    plain = sorted(map(plain_joint, names))
    known = next((one for name in sorted(BUILT_IN) if sorted((one := SKELETONS[name]).joints) == plain), None)
    return known or skeleton_of(names, where=where)


def skeleton_to_dict(name: str) -> str | dict[str, Any]:
    """Write a skeleton for a model's configuration: the name of a built-in one, any other in full."""
    if name in BUILT_IN:
        return name
    skeleton = SKELETONS[name]
    return {
        "joints": list(skeleton.joints),
        "edges": [list(e) for e in skeleton.edges],
        "flip_order": list(skeleton.flip_order),
    }


def skeleton_from_dict(values: Mapping[str, Any], where: str) -> str:
    """Return the name of the skeleton that `skeleton_to_dict` wrote in full."""
    try:
        return skeleton_of(values["joints"], values["edges"], values["flip_order"], where=where).name
    except (KeyError, TypeError, ValueError) as error:
        raise DposeError("skeleton-malformed", "a skeleton has joints, edges and flip_order", where) from error


def plain_joint(name: str) -> str:
    """Normalise a joint's name, its side in front: "LeftEye", "LEye", "left-eye" and "eye_l" are all "l_eye"."""
    # a capital in front of a capitalised word is a side; "LEFT_EYE", "LEG" and "Lip" begin with none
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=^[LR])(?=[A-Z][a-z])", "_", str(name).strip()).lower()
    parts = [part for part in re.split(r"[^a-z0-9]+", words) if part]
    sides = {"left": "l", "l": "l", "right": "r", "r": "r"}
    for place in (0, -1):
        if len(parts) > 1 and parts[place] in sides:
            side = sides[parts.pop(place)]
            return "_".join([side, *parts])
    return "_".join(parts)


def _by_sides(names: Sequence[str]) -> list[int]:
    """Return for each joint the index of its counterpart on the other side; its own if it has none.

    "lwrist" and "rwrist" are a pair as "l_wrist" and "r_wrist" are: whether a letter is a side, the other one says.
    """
    other = {"l": "r", "r": "l"}
    turned = [other.get(name[:1], name[:1]) + name[1:] for name in names]
    return [names.index(t) if t in names else i for i, t in enumerate(turned)]


_ALIASES = {"neck": "upper_neck"}  # LSP's name for MPII's joint
# joints that datasets without them can derive: the middle of hips, the middle of shoulders
_MIDDLES = {"pelvis": ("r_hip", "l_hip"), "thorax": ("r_shoulder", "l_shoulder")}
# joints of a prediction alone, from shoulders and ears: the share of the way from the shoulders' middle to the ears'
_ALONG_THE_HEAD = {"upper_neck": 0.25, "head_top": 1.9}
# joints of a prediction that no public model knows: where training starts from
_NEAREST = {"r_palm": ("r_wrist",), "l_palm": ("l_wrist",), "footing": ("r_ankle", "l_ankle")}

Weights = tuple[tuple[int, float], ...]
"""(source joint, its weight) of a weighted sum of joints."""


@dataclass(frozen=True)
class JointMap:
    """Conversion of labels from one skeleton to another.

    Attributes:
        target: The skeleton to convert to.
        shared: (source joint, target joint) of those that both have.
        derived: (target joint, the source joints that it is a weighted sum of).
    """

    target: Skeleton
    shared: tuple[tuple[int, int], ...]
    derived: tuple[tuple[int, Weights], ...]

    @property
    def missing(self) -> tuple[int, ...]:
        """Target joints that neither exist in the source nor can be derived."""
        known = {t for _, t in self.shared} | {t for t, _ in self.derived}
        return tuple(t for t in range(len(self.target)) if t not in known)

    def points(self, keypoints: ArrayLike) -> NDArray[np.float64]:
        """Return keypoints (..., J, 2) in the target's order, (..., K, 2) float64; nan for missing joints."""
        source = np.asarray(keypoints, np.float64)
        out = np.full((*source.shape[:-2], len(self.target), 2), np.nan)
        for s, t in self.shared:
            out[..., t, :] = source[..., s, :]
        for t, parents in self.derived:
            out[..., t, :] = sum(weight * source[..., s, :] for s, weight in parents)
        return out

    def values(self, values: ArrayLike) -> NDArray[np.float64]:
        """Return flags or scores (..., J) in the target's order: the least parent's if derived, 0 if missing."""
        source = np.asarray(values, np.float64)
        out = np.zeros((*source.shape[:-1], len(self.target)))
        for s, t in self.shared:
            out[..., t] = source[..., s]
        for t, parents in self.derived:
            out[..., t] = np.min(source[..., [s for s, _ in parents]], axis=-1)
        return out


def check_in_common(source: Skeleton, target: Skeleton, way: JointMap) -> None:
    """Refuse two skeletons where `way`, from one to the other, gives none of the other's joints.

    Raises:
        DposeError: no joint is in common.
    """
    if len(way.missing) == len(target):
        raise DposeError(
            "joints-none-in-common",
            f"has {', '.join(source.joints[:3])} ... and none of the joints that are wanted: "
            f"{', '.join(target.joints[:3])} ...",
            fix="train on one of them, or name joints alike",
        )


def joint_map(source: str | Skeleton, target: str | Skeleton, *, predicted: bool = False) -> JointMap:
    """Return the map from one skeleton to another, by the joints' names; LSP's "neck" is MPII's "upper_neck".

    Pelvis and thorax, if the source lacks them, are the middles of hips and shoulders: good enough to learn from
    (MPII's own thorax lies a little above), never scored.

    Args:
        source: The source skeleton.
        target: The target skeleton.
        predicted: True for a model's keypoints, which are no labels: upper neck and head top, if the source lacks them
            and has shoulders and ears, lie on the line from the middle of the shoulders through that of the ears, at
            0.25 and 1.9 of that way; palms at the wrists, the footing between the ankles.

    Raises:
        KeyError: a name that is not in `SKELETONS`.
    """
    from_ = SKELETONS[source] if isinstance(source, str) else source
    to = SKELETONS[target] if isinstance(target, str) else target
    names = [_ALIASES.get(name, name) for name in to.joints]
    known = [_ALIASES.get(name, name) for name in from_.joints]
    shared = tuple((s, names.index(name)) for s, name in enumerate(known) if name in names)
    derived: list[tuple[int, Weights]] = []
    for t, name in enumerate(names):
        parents: dict[str, float] = dict.fromkeys(_MIDDLES.get(name, ()), 0.5)
        if predicted and name in _ALONG_THE_HEAD:
            along = _ALONG_THE_HEAD[name] / 2
            parents = {"r_shoulder": 0.5 - along, "l_shoulder": 0.5 - along, "r_ear": along, "l_ear": along}
        elif predicted and name in _NEAREST:
            parents = dict.fromkeys(_NEAREST[name], 1 / len(_NEAREST[name]))
        if parents and name not in known and set(parents) <= set(known):
            derived.append((t, tuple((known.index(parent), weight) for parent, weight in parents.items())))
    return JointMap(to, shared, tuple(derived))


def lsp_to_mpii(joints: ArrayLike, visible: ArrayLike) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Convert LSP's fourteen joints to MPII's order, with pelvis and thorax derived (`joint_map`).

    Args:
        joints: (..., 14, 2), pixels.
        visible: (..., 14), true where labelled.

    Returns:
        Keypoints (..., 16, 2) float32, zero where not visible, and visible (..., 16) bool.
    """
    source = np.asarray(joints, np.float32)
    seen = np.asarray(visible, bool)
    if source.shape != (*seen.shape, 2) or seen.shape[-1] != len(LSP):
        raise ValueError(f"expected joints (..., 14, 2) and visible (..., 14), got {source.shape}, {seen.shape}")
    way = joint_map(LSP, MPII)
    out = way.values(seen) > 0
    return np.where(out[..., None], way.points(source), 0).astype(np.float32), out
