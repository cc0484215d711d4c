"""How noisy labels of LSPET are: of photographs that are in it twice, and beside two models that agree.

    python benchmarks/label_noise.py ROOT --cache FOLDER

Joints of BlazePose lite and full on the public split are found once and kept in FOLDER, as `benchmarks/dp_head.py`
keeps them. Distances are in head lengths, of joints that are scored. Copies are pictures whose fingerprints differ in
at most 10 of 128 bits and whose sides have one ratio.
"""

from __future__ import annotations

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import argparse
from pathlib import Path

import numpy as np
from dp_head import found_joints
from numpy.typing import NDArray

from dpose.media.images import image_size
from dpose.pose.data.cache import fingerprint_files
from dpose.pose.data.matlab import read_mat
from dpose.pose.folder import find_model, load_model
from dpose.pose.heads import adapt_head
from dpose.pose.skeletons import LSP, MPII

PICTURES, BITS = 9000, 10
NEAR = 0.25
"""Head lengths within which two models agree."""


def said(name: str, distances: NDArray[np.float64]) -> None:
    """Print the shares of distances within 0.5 and 0.1, and their median."""
    half, tenth = (100 * np.mean(distances <= reach) for reach in (0.5, 0.1))
    print(f"{name}: {half:.1f} % within 0.5, {tenth:.1f} % within 0.1, median {np.median(distances):.3f}")


def copies(root: Path) -> None:
    """Two labellings of each photograph that is in the dataset twice."""
    paths = [root / "images" / f"im{number:05d}.jpg" for number in range(1, PICTURES + 1)]
    bits = np.unpackbits(fingerprint_files(paths, "comparing pictures"), axis=1) * np.float32(2) - 1
    rows = read_mat(root / "joints.mat", ("joints",))["joints"].transpose(2, 0, 1).astype(np.float64)
    neck, top, partner = LSP.joints.index("neck"), LSP.joints.index("head_top"), list(LSP.flip_order)
    found, exchanged, pairs = [], 0, 0
    for first in range(0, PICTURES, 500):
        differing = (128 - bits[first : first + 500] @ bits.T) / 2
        for row, other in zip(*np.nonzero(differing <= BITS), strict=True):
            one = first + row
            sizes = [np.array(image_size(paths[number])[::-1], np.float64) for number in (one, other)]
            if one >= other or np.ptp(np.log(sizes[0] / sizes[1])) > 0.02:
                continue
            a, b = rows[one, :, :2], rows[other, :, :2] * (sizes[0] / sizes[1])
            both = (rows[one, :, 2] == 1) & (rows[other, :, 2] == 1)
            length = np.linalg.norm(a[neck] - a[top])
            if not (both[neck] and both[top] and length >= 1):
                continue
            pairs += 1
            apart = np.linalg.norm(a - b, axis=1) / length
            crossed = np.linalg.norm(a - b[partner], axis=1) / length
            sided = both & both[partner]
            exchanged += bool(crossed[sided].sum() < 0.8 * apart[sided].sum())
            found.append(apart[both])
    said(f"{pairs} photographs labelled twice, {exchanged} of them with exchanged sides", np.concatenate(found))


def beside_models(root: Path, cache: Path) -> None:
    """Labels of the public split, and two models' joints."""
    made = {}
    for size in ("lite", "full"):
        base = adapt_head(load_model(find_model(f"blazepose:{size}")), MPII.name).eval()
        made[size] = {k: v.numpy() for k, v in found_joints(f"lspet:{root}:public", base, PICTURES, cache).items()}
    own = made["full"]
    labels, partner = own["keypoints"], list(MPII.flip_order)
    length = own["head_length"][:, None]
    scored = (own["labelled"] > 0) & (length > 0)

    def apart(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.asarray(np.linalg.norm(a - b, axis=-1) / length, np.float64)

    lite, full = (made[size]["places"] for size in ("lite", "full"))
    for name, a, b in (("lite, label", lite, labels), ("full, label", full, labels), ("lite, full", lite, full)):
        said(name, apart(a, b)[scored])
    agreed = (apart(lite, full) <= NEAR) & scored
    middle = (lite + full) / 2
    off, crossed = apart(labels, middle), apart(labels[:, partner], middle)
    wrong = agreed & (off > 0.5)
    sided = wrong & scored[:, partner] & (np.arange(len(partner)) != partner)
    print(
        f"models agree within {NEAR} on {100 * agreed.sum() / scored.sum():.1f} % of joints; there labels are "
        f"farther than 0.5 in {100 * wrong.sum() / agreed.sum():.1f} %, "
        f"{100 * wrong.sum() / scored.sum():.1f} % of all; "
        f"of {sided.sum()} of these that have two sides the label of the other side is within 0.5 in "
        f"{100 * np.mean(crossed[sided] <= 0.5):.1f} %"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    chosen = parser.parse_args()
    copies(chosen.root)
    beside_models(chosen.root, chosen.cache)
