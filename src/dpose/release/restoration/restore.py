"""Which restoration: none, total variation or the learned one, and how a statement names it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.release.planes import Observed
from dpose.release.restoration.grid import TO_RGB, Singles, enlarged, luma_chroma
from dpose.release.restoration.learned import by_network, restoration_digest

METHODS = ("learned", "tv", "none")
OPENCV = "opencv-python-headless"
RESTORING = (OPENCV, "scikit-image")


@dataclass(frozen=True)
class Restoration:
    """A restoration, as it is recorded.

    Attributes:
        method: One of `METHODS`.
        weights: SHA-256 of the learned one's weights; empty for the others.
        note: Why it is another one than was named; empty otherwise.
    """

    method: str = "none"
    weights: str = ""
    note: str = ""

    @classmethod
    def chosen(cls, method: str) -> Restoration:
        """The restoration of this name; total variation where the learned one's weights are missing or altered.

        Raises:
            DposeError: there is none of this name.
        """
        if method not in METHODS:
            raise DposeError(
                "restoration-unknown", f"must be {', '.join(METHODS)}, not {method!r}", "restore"
            )
        if method != "learned":
            return cls(method)
        try:
            return cls(method, restoration_digest())
        except DposeError as error:
            return cls("tv", note=f"restored by total variation: {error.what}")

    @classmethod
    def read(cls, values: Any, where: str = "") -> Restoration:
        """The restoration that `to_dict` wrote.

        Raises:
            DposeError: it is none.
        """
        for method in METHODS:
            digest = r"[0-9a-f]{64}" if method == "learned" else ""
            weights = values.get("weights", "") if isinstance(values, dict) else None
            if isinstance(weights, str) and re.fullmatch(digest, weights):
                found = cls(method, weights)
                if found.to_dict() == values:
                    return found
        raise DposeError(
            "record-restoration-unknown",
            f"its statement names an unknown restoration {str(values)[:80]}",
            where,
        )

    @property
    def libraries(self) -> tuple[str, ...]:
        """The packages besides dpose and numpy whose version a restored picture depends on."""
        return {"learned": (OPENCV,), "tv": RESTORING}.get(self.method, ())

    def to_dict(self) -> dict[str, str]:
        """What a release's record has of it."""
        return {"method": self.method} | ({"weights": self.weights} if self.weights else {})

    def check_here(self) -> None:
        """Refuse a restoration whose weights are not here.

        Raises:
            DposeError: they are missing, altered or others.
        """
        if self.weights and restoration_digest() != self.weights:
            raise DposeError(
                "restoration-weights-missing",
                "it was restored by weights that are not here",
                fix="use the dpose that made it",
            )

    def apply(
        self, observed: Observed, before: Observed | None = None, after: Observed | None = None
    ) -> NDArray[Any]:
        """The picture, as `restore` makes it.

        Raises:
            DposeError: the weights are missing, altered, or not those of this restoration.
        """
        return as_pixels(self.levels(observed, before, after), observed.peak)

    def levels(
        self, observed: Observed, before: Observed | None = None, after: Observed | None = None
    ) -> Singles:
        """The picture of `apply`, in gray levels that are neither cut off nor rounded: float32, (H, W, C)."""
        self.check_here()
        return restored_levels(observed, self.method, before, after)


PAINTED = Restoration()
"""No restoration: each cell in one colour."""


def restore(
    observed: Observed, method: str, before: Observed | None = None, after: Observed | None = None
) -> NDArray[Any]:
    """The picture. Post-processing: a function of what was released.

    Args:
        observed: A picture, or a group of frames.
        method: "none" paints the cells, "tv" flattens them as far as their noise asks for, "learned" is a network.
        before: For the learned one: the group before, of the same sizes; None if there is none.
        after: The group after.

    Returns:
        uint8, or uint16 where the peak is 65535; (H, W, 3), or (H, W, 1) of one plane.

    Raises:
        DposeError: there is no such method, or the learned one's weights are missing or altered.
    """
    return as_pixels(restored_levels(observed, method, before, after), observed.peak)


def restored_levels(
    observed: Observed, method: str, before: Observed | None = None, after: Observed | None = None
) -> Singles:
    """The picture of `restore`, in gray levels that are neither cut off nor rounded: float32, (H, W, C)."""
    if method not in METHODS:
        raise DposeError("restoration-unknown", f"must be {', '.join(METHODS)}, not {method!r}", "restore")
    if method == "learned":
        return by_network(observed, before, after)
    return by_variation(observed) if method == "tv" else _painted(observed)


def as_pixels(levels: Singles, peak: int) -> NDArray[Any]:
    """Gray levels rounded and cut off at black and white."""
    kind = np.uint8 if peak == 255 else np.uint16
    shown: NDArray[Any] = np.clip(np.floor(levels + 0.5), 0, peak).astype(kind)
    return shown


def _painted(observed: Observed) -> Singles:
    planes = observed.planes
    shown = [
        enlarged(plane.levels, plane.levels.shape, observed, plane.block, cv2.INTER_NEAREST)[:, :, 0]
        for plane in planes
    ]
    stacked: Singles = np.stack(shown, axis=2)
    return stacked @ TO_RGB.T if observed.colour == "ycc" else stacked


Shown = TypeVar("Shown")


def restored_clip(
    groups: Iterable[Observed], apply: Callable[[Observed, Observed | None, Observed | None], Shown]
) -> Iterator[Shown]:
    """Restored groups, one behind what is read: memory holds three, however long the clip.

    Args:
        groups: In order, of equal sizes.
        apply: `Restoration.apply` or `Restoration.levels`.
    """
    before: Observed | None = None
    here: Observed | None = None
    for after in groups:
        if here is not None:
            yield apply(here, before, after)
        before, here = here, after
    if here is not None:
        yield apply(here, before, None)


WEIGHT = 0.45
"""Weight of the total variation, over the noise's deviation; chosen on public photographs."""
STEPS = 60


def by_variation(observed: Observed) -> Singles:
    """Gray levels, (H, W, C), not cut off."""
    from skimage.restoration import denoise_tv_chambolle

    shown = []
    for plane in luma_chroma(observed):
        weight = WEIGHT * float(np.median(plane.deviation)) / observed.peak
        smooth = denoise_tv_chambolle(
            plane.levels / observed.peak, weight=max(weight, 1e-6), max_num_iter=STEPS
        )
        fine = np.asarray(smooth, np.float32) * observed.peak
        shown.append(enlarged(fine, plane.levels.shape, observed, plane.block, cv2.INTER_CUBIC)[:, :, 0])
    stacked: Singles = np.stack(shown, axis=2)
    return stacked @ TO_RGB.T if len(shown) == 3 else stacked
