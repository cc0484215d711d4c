"""Leeds Sports Pose Extended (Johnson and Everingham, CVPR 2011): one labelled person a picture, from Flickr.

The folder is the dataset's own: `images/im00001.jpg ...` and `joints.mat`. dpose splits it by image number,
since the dataset has no split: public 1-1000, private 1001-8000, validation 8001-9000. Later pictures,
where present, are unused. For choosing settings the private split has two parts, `choosing-train` 1001-7000 and
`choosing-test` 7001-8000: both are private, and what is scored on the second is a use of private pictures.

**Near copies.** The same photograph is in the dataset more than once, saved again, sometimes recoloured. A
public picture that is also private would not be protected, and a validation picture that was
trained on measures nothing. So public pictures near a private one are left out, and validation pictures
near a private or a remaining public one. A private picture is never left out for its copies: the number of
private pictures is public and must not depend on what they show. What is left of the public and validation
splits does depend on the private pictures, so a guarantee for the private ones is conditional on that choice. Of
`choosing-test`, pictures near one of `choosing-train` are left out in the same way.

`NEAR` was chosen on the real pictures. All 40 million pairs of the 9,000 were compared, and as a control
every picture with every *mirrored* other: the dataset holds no mirrored copy (none was seen, and those
would differ in few bits), so every pair of the control is a coincidence. Up to 21 of the 128 bits the control
has no pair, up to 24 it has 5, against 76 unmirrored pairs; seen side by side nearly all of those are
the same photograph or the next shot of a series. At 27 about half of the pairs are coincidences (11 mirrored
pairs, 23 unmirrored). A false positive costs one public or validation picture, a miss costs the guarantee:
hence 24, not less.

Across the splits there are 29 such pairs, 28 of them rightly: 17 public and 11 validation pictures are left out.
Within the private split 45 pairs stay. A photograph that is private twice counts as two units, so its
guarantee is that of a group of two.

Other moments at the same place are not detected. Matching local features (SIFT, at least 8 matches
that agree on one similarity) finds 353 pairs across the splits, 25 of them among the near copies; those
others that were looked at are other moments of a competition or a jump, often of another person, sometimes
of the same. No second crop of one photograph was among them. The dataset does not say who is who, so the
guarantee is about pictures, not about people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.media.fingerprint import near_any
from dpose.media.images import image_size
from dpose.pose.data.cache import fingerprint_files
from dpose.pose.data.labels import LabelledPerson, LabelledPicture, Labels, PoseDataset
from dpose.pose.data.matlab import read_mat
from dpose.pose.skeletons import LSP, MPII, lsp_to_mpii

SPLITS: Mapping[str, tuple[int, int]] = {"public": (1, 1000), "private": (1001, 8000), "validation": (8001, 9000)}
"""First and last image number of each split."""

CHOOSING_TRAIN, CHOOSING_TEST = "choosing-train", "choosing-test"
PARTS: Mapping[str, tuple[int, int]] = {CHOOSING_TRAIN: (1001, 7000), CHOOSING_TEST: (7001, 8000)}
"""First and last image number of the parts of the private split for choosing settings."""

NEAR = 24
"""Two pictures are near copies when at most this many of their fingerprints' 128 bits differ."""

FAR_OUTSIDE = 10.0
"""Distance outside the picture, in pixels, above which a joint marked visible is taken for an annotation error."""

MIN_SIDE = 20.0
"""Least width and height of a box, pixels; people are about 150 pixels long."""

_NECK, _HEAD_TOP = LSP.joints.index("neck"), LSP.joints.index("head_top")
_GET_IT = "give the folder that holds images/ and joints.mat of lspet_dataset.zip"


@dataclass(frozen=True)
class _Labels:
    """joints.mat in rows: (N, 14, 2) pixels and (N, 14) visible; row 0 is image 1."""

    joints: NDArray[np.float64]
    visible: NDArray[np.bool_]


def read_lspet(
    root: Path,
    split: str,
    pictures: bool = True,
    splits: Mapping[str, tuple[int, int]] = SPLITS,
    parts: Mapping[str, tuple[int, int]] = PARTS,
) -> Labels:
    """Read the labels of one split of LSPET: a picture a unit, one person a picture (`PoseDataset.labels`).

    A person's box is the extent of the visible joints. PCKh's reference length is the segment from neck to
    head top, and unknown if one of them is not visible. Pelvis and thorax are derived (`lsp_to_mpii`).

    Left out, and counted in `notes`: near copies (see the module), people without a visible joint, and
    single joints that are marked visible but not finite or more than `FAR_OUTSIDE` pixels outside the
    picture. The notes describe the private pictures and labels themselves and are not for publication.

    All pictures must be there, whatever `pictures` says, since near copies are found by them. `splits` and `parts` are
    the first and last image numbers of each split, and of the two parts of the private one.
    """
    if not root.is_dir():
        raise DposeError("folder-missing", "no such folder", str(root), _GET_IT)
    labels = _read_labels(root / "joints.mat", splits)
    paths = _image_paths(root / "images", splits)
    first, last = {**splits, **parts}[split]
    numbers = np.arange(first, last + 1)
    if split in ("private", CHOOSING_TRAIN):
        copies = np.zeros(len(numbers), bool)
    elif split == CHOOSING_TEST:
        prints = _fingerprints(paths, parts)
        copies = near_any(prints[CHOOSING_TEST], prints[CHOOSING_TRAIN], NEAR)
    else:
        copies = _near_copies(paths, splits)[split]

    labelled, unused, unseen, headless = [], 0, 0, 0
    for number in numbers[~copies]:
        path = paths[number]
        joints, visible = labels.joints[number - 1], labels.visible[number - 1]
        usable = visible & _within(joints, image_size(path))
        unused += int((visible & ~usable).sum())
        if not usable.any():
            unseen += 1
            continue
        person = _person(int(number), joints, usable)
        headless += int(np.isnan(person.head_length))
        labelled.append(LabelledPicture(path.name, path, (person,)))

    notes = [
        f"{count:,} {what}"
        for count, what in (
            (int(copies.sum()), "left out: pictures that are near copies of one in another split"),
            (unseen, "left out: people without a visible joint"),
            (unused, f"not used: joints marked visible over {FAR_OUTSIDE:g} pixels outside the picture"),
            (headless, "not in PCKh: people without a labelled length from neck to head top"),
        )
        if count
    ]
    # no cache on disk: the pictures are so small that memory holds them all
    return Labels(f"lspet:{split}", root / "joints.mat", MPII, tuple(labelled), notes=tuple(notes), cache=None)


def _read_labels(path: Path, splits: Mapping[str, tuple[int, int]]) -> _Labels:
    """Read joints.mat as plain arrays: nothing in it is executed."""
    if not path.is_file():
        raise DposeError("file-missing", "no such file", str(path), _GET_IT)
    joints = read_mat(path, ("joints",)).get("joints")
    needed = max(last for _, last in splits.values())
    if joints is None:
        raise DposeError("joints-missing", "holds no variable 'joints'", str(path), _GET_IT)
    if joints.dtype.kind not in "fiu" or joints.ndim != 3 or joints.shape[:2] != (len(LSP), 3):
        actual = f"{joints.dtype} {joints.shape}"
        raise DposeError(
            "joints-of-wrong-shape", f"'joints' should be numbers of shape (14, 3, N), not {actual}", str(path), _GET_IT
        )
    if joints.shape[2] < needed:
        raise DposeError(
            "labels-too-few", f"labels {joints.shape[2]:,} pictures where {needed:,} are needed", str(path), _GET_IT
        )
    rows = joints.transpose(2, 0, 1).astype(np.float64)
    flags = rows[:, :, 2]
    if not np.isin(flags, (0, 1)).all():
        raise DposeError("visibility-invalid", "visibility flags other than 0 and 1", str(path), _GET_IT)
    broken = np.flatnonzero(((flags == 1) & ~np.isfinite(rows[:, :, :2]).all(axis=2)).any(axis=1))
    if len(broken):
        raise DposeError(
            "joint-not-number",
            f"a visible joint of im{broken[0] + 1:05d}.jpg is not a number",
            str(path),
            "mend the label, or mark the joint invisible",
        )
    return _Labels(rows[:, :, :2], flags == 1)


def _image_paths(folder: Path, splits: Mapping[str, tuple[int, int]]) -> dict[int, Path]:
    """Return the file of every image number that a split names."""
    numbers = [n for first, last in splits.values() for n in range(first, last + 1)]
    present = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
    paths = {n: folder / f"im{n:05d}.jpg" for n in sorted(numbers)}
    missing = [path.name for path in paths.values() if path.name not in present]
    if missing:
        raise DposeError(
            "pictures-missing",
            f"{len(missing):,} of {len(paths):,} pictures are missing, first {missing[0]}",
            str(folder),
            _GET_IT,
        )
    return paths


def _near_copies(paths: Mapping[int, Path], splits: Mapping[str, tuple[int, int]]) -> dict[str, NDArray[np.bool_]]:
    """Return, for the public and the validation split, which of its pictures are near copies of another split's."""
    prints = _fingerprints(paths, splits)
    public = near_any(prints["public"], prints["private"], NEAR)
    seen = np.concatenate([prints["private"], prints["public"][~public]])
    return {"public": public, "validation": near_any(prints["validation"], seen, NEAR)}


def _fingerprints(paths: Mapping[int, Path], splits: Mapping[str, tuple[int, int]]) -> dict[str, NDArray[np.uint8]]:
    """Return fingerprints of each split's pictures, (N, 16)."""
    numbers = sorted(paths)  # all of them, whatever the split: they are cached together
    rows = dict(zip(numbers, fingerprint_files([paths[n] for n in numbers], "comparing pictures"), strict=True))
    return {split: np.stack([rows[n] for n in range(first, last + 1)]) for split, (first, last) in splits.items()}


def _within(joints: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.bool_]:
    """Return (14,), true for joints that are finite and inside the picture or near it."""
    height, width = size
    low, high = -FAR_OUTSIDE, np.array([width, height]) - 1 + FAR_OUTSIDE
    return np.asarray((np.isfinite(joints) & (joints >= low) & (joints <= high)).all(axis=1))


def _person(number: int, joints: NDArray[np.float64], visible: NDArray[np.bool_]) -> LabelledPerson:
    shown = joints[visible]
    low, high = shown.min(axis=0), shown.max(axis=0)
    grow = np.maximum(MIN_SIDE - (high - low), 0) / 2
    corners = np.concatenate([low - grow, high + grow]).astype(np.float32)
    length = float("nan")
    if visible[_NECK] and visible[_HEAD_TOP]:
        length = float(np.linalg.norm(joints[_HEAD_TOP] - joints[_NECK])) or length
    keypoints, seen = lsp_to_mpii(joints, visible)
    return LabelledPerson(number, keypoints.astype(np.float64), seen.astype(np.float64), corners, head_length=length)


DATASET = PoseDataset(
    splits=(*SPLITS, *PARTS),
    default={"train": "private", "evaluate": "validation"},
    within=dict.fromkeys(PARTS, "private"),
    conditions={"public": "which public pictures of LSPET were left out as near copies of private ones"},
    labels=read_lspet,
    preset="nano",
    choosing=(CHOOSING_TRAIN, CHOOSING_TEST),
)
