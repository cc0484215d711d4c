"""Measures of one setting on one photo: fidelity, and people still segmented in the release."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.privacy.noise import AesNoise, Key
from dpose.release.config import Pixelization, PixelizationSettings
from dpose.release.grid import Shape
from dpose.release.partition import RegionSums
from dpose.release.pixelization import PixelizationPlan
from dpose.release.plans import bind
from dpose.release.regions import PaperRegions, PrivateRegions, PublicRegions, Regions
from dpose.release.released import Shown
from dpose_lab.baselines.pixelization import PaperPlan, multiplier
from dpose_lab.papers.pixelization.segmenting import Segmenter
from dpose_lab.photos.photo import Photo

MECHANISMS = {
    "paper": "paper mode",
    "dpose": "dpose",
    "public": "dpose, mask taken as public",
    "private": "dpose, private regions",
}
"""Mechanisms by key, with names in tables. `paper` guarantees nothing, nor does `public` unless
 the mask was not made from the picture."""
ORIGINAL = "original"


@dataclass(frozen=True)
class Point:
    """One setting of one mechanism.

    Attributes:
        mechanism: A key of `MECHANISMS`.
        b: Side of a block, pixels.
        n: Parts along a side of a block in complex regions; 1 for blocks of one size.
        m: Pixels that neighbours may differ in.
        epsilon: Budget as exact text; in paper mode the paper's claim.
    """

    mechanism: str
    b: int = 16
    n: int = 1
    m: int = 16
    epsilon: str = "0.5"

    @property
    def key(self) -> str:
        """Name of the point, of letters, digits, dots and hyphens."""
        return f"{self.mechanism}-b{self.b}-n{self.n}-m{self.m}-e{self.epsilon}"

    def to_dict(self) -> dict[str, Any]:
        """The point as JSON."""
        return asdict(self)

    def setting(self, mask: NDArray[np.bool_] | None) -> Pixelization:
        """Configuration of the release; without parts the paper's Algorithm 3 is its Algorithm 2.

        Args:
            mask: Mask of people; needed for `paper` and `public` with parts.
        """
        regions: Regions | None = None
        if self.n > 1 and self.mechanism == "private":
            regions = PrivateRegions()
        elif self.n > 1:
            assert mask is not None
            regions = PaperRegions(mask) if self.mechanism == "paper" else PublicRegions(mask)
        paper = None if self.mechanism != "paper" else 2 if self.n == 1 else 3
        settings = PixelizationSettings(subdivide=self.n, regions=regions, paper=paper, colour="rgb", restore="none")
        return Pixelization.of(self.epsilon, self.m, self.b, **settings)


def photo_plan(point: Point, photo: Photo) -> PixelizationPlan | PaperPlan:
    """Bind the setting to a photo's size."""
    height, width = photo.pixels.shape
    plan = bind(point.setting(photo.mask), Shape.of(height, width))
    assert isinstance(plan, PixelizationPlan | PaperPlan)
    return plan


def release_photo(point: Point, photo: Photo, seed: int) -> tuple[Shown, PixelizationPlan | PaperPlan]:
    """Release a photo; noise follows from the arguments, so the release is repeatable and protects no one."""
    plan = photo_plan(point, photo)
    digest = hashlib.sha256(f"{seed} {point.key} {photo.name}".encode()).digest()
    source = AesNoise(Key.from_seed(int.from_bytes(digest[:8], "big")))
    return plan.release(photo.pixels, source), plan


def true_epsilon(point: Point, plan: PixelizationPlan | PaperPlan) -> float | None:
    """True epsilon of `point.m` pixels: the claim, its true multiple in paper mode, None without a guarantee."""
    if isinstance(plan, PixelizationPlan):
        return float(Fraction(point.epsilon))
    if point.n > 1:
        return None
    return float(Fraction(point.epsilon) * multiplier(plan.config, plan.blocks, point.m))


def measure(point: Point, photo: Photo, seed: int, segmenter: Segmenter | None) -> dict[str, float | None]:
    """Compute every measure of one release.

    Args:
        point: The setting, or one with mechanism `ORIGINAL`: the photo itself.
        photo: The original.
        seed: Seed of the noise.
        segmenter: Segmenter; None to leave out its measures.

    Returns:
        mse (squared gray levels), ssim; with a segmenter and a reference mask iou and dice of its mask; with
        regions mask_iou, of the published partition itself; true_epsilon.
    """
    if point.mechanism == ORIGINAL:
        values: dict[str, float | None] = {}
        shown = photo.pixels
    else:
        release, plan = release_photo(point, photo, seed)
        shown = release.picture()[:, :, 0]
        values = {
            "mse": mse(photo.pixels, shown),
            "ssim": grey_ssim(photo.pixels, shown),
            "true_epsilon": true_epsilon(point, plan),
        }
        if photo.mask is not None and isinstance(release.cells, RegionSums):
            values["mask_iou"] = iou(painted(release.cells), photo.mask)
    if segmenter is not None and photo.mask is not None:
        mask = segmenter.find(shown)
        values |= {"iou": iou(mask, photo.mask), "dice": dice(mask, photo.mask)}
    return values


def painted(cells: RegionSums) -> NDArray[np.bool_]:
    """Divided blocks as a mask of the picture's size, which is public and needs no segmenter."""
    shown: NDArray[np.bool_] = cells.coarse.adjoint(cells.mask.reshape(-1, 1).astype(np.uint8))[:, :, 0] > 0
    return shown


def mse(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Mean squared error, squared gray levels."""
    return float(np.mean((one.astype(np.float64) - other) ** 2))


def grey_ssim(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Structural similarity (Wang et al. 2004), scikit-image's with its default 7 x 7 window."""
    from skimage.metrics import structural_similarity

    window = min(7, *(side - (side + 1) % 2 for side in one.shape))
    return float(
        structural_similarity(one.astype(np.float32), other.astype(np.float32), data_range=255, win_size=window)
    )


def iou(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """Intersection over union; 1 if both are empty."""
    union = int((one | other).sum())
    return int((one & other).sum()) / union if union else 1.0


def dice(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """Twice the intersection over the sum of areas; 1 if both are empty."""
    total = int(one.sum()) + int(other.sum())
    return 2 * int((one & other).sum()) / total if total else 1.0
