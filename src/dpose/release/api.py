"""The front door for arrays and tensors: one picture or clip in, one private picture or clip and its statement out.

release = dpose.pixelize(image, epsilon=2, neighbours="pixels:16", block=16)
release.picture, release.statement.paragraph()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.privacy.noise import AesNoise, Key, NoiseSource
from dpose.privacy.statement import Neighbours, PrivacyStatement
from dpose.release.config import Number, Regions, Setting
from dpose.release.mechanism import Plan, Released
from dpose.release.once import spend
from dpose.release.published_pixelization import PaperPlan
from dpose.release.regions import PaperRegions, PrivateRegions, PublicRegions
from dpose.release.statements import release_statement
from dpose.tensors import is_tensor

if TYPE_CHECKING:
    from torch import Tensor

PEAKS = {"uint8": 255, "uint16": 65535}


@dataclass(frozen=True)
class Release:
    """A private picture or clip.

    Attributes:
        picture: Of the original's shape and type, and on its device if it was a tensor.
        statement: What is guaranteed.
        frames: What was released, frame by frame; one for a picture.
    """

    picture: Any
    statement: PrivacyStatement
    frames: tuple[Released, ...]


def pixelize(
    image: NDArray[Any] | Tensor,
    epsilon: Number,
    neighbours: str | int | Neighbours = "pixels:16",
    block: int = 16,
    *,
    delta: Number = 0,
    subdivide: int = 1,
    regions: Regions | NDArray[Any] | str | None = None,
    paper: int | None = None,
    seed: int | None = None,
    source: NoiseSource | None = None,
    caveats: Sequence[str] = (),
) -> Release:
    """Release a picture or clip under differential privacy, as blocks of noisy averages.

    >>> grey = np.full((64, 48), 128, np.uint8)
    >>> released = pixelize(grey, epsilon="1/2", neighbours="pixels:16", block=16)
    >>> released.picture.shape, released.statement.epsilon
    ((64, 48), Fraction(1, 2))
    >>> released.statement.verify() == released.statement.epsilon
    True

    **Guarantee.** Neighbours: pictures of the same size that differ in at most m pixels, of any values (an RGB pixel
    is three); for a clip, m pixels of all frames together, or with "/frame" m pixels in every frame. Sensitivity:
    255 * C * m in L1 norm over the cells' sums, whatever the cells' sizes. Noise: exact discrete Laplace of scale 255 *
    C * m / epsilon on each integer sum (with `delta`: exact discrete Gaussian). Post-processing: division by the
    cell's area, rounding, clipping, tiling. Public: size, number of channels and frames, settings, a mask given as
    array. Seed 002, corrected; proved in docs/proofs/pixelization.md.

    Args:
        image: uint8 or uint16; (H, W) grey or (H, W, 3) colour; (T, H, W, C) for a clip, C = 1 or 3. An array, or a
            tensor on any device.
        epsilon: Total for the picture or clip. Text ("0.5", "1/3") is taken exactly.
        neighbours: "pixels:M" or "pixels:M/frame".
        block: Side b of a block, pixels.
        delta: 0 for Laplace noise and pure differential privacy; above 0 for Gaussian noise.
        subdivide: n: complex blocks are divided into n x n parts.
        regions: Which blocks are complex: "private" or `PrivateRegions` (decided from a first noisy release), or a
            *public* mask (H, W) that was not made from the picture. With `paper=3`: `PaperRegions`.
        paper: 1, 2 or 3 runs seed 002's algorithm of that number as printed, with floating-point noise and no
            guarantee; the statement says what does not hold.
        seed: Makes the noise repeatable and takes the guarantee away.
        source: Where the noise comes from; a fresh key from the operating system by default. Any other key, and any
            source but `AesNoise`, takes the guarantee away; a fresh key serves one release.
        caveats: What the statement tells its reader besides.

    Raises:
        DposeError: the picture or a setting is out of range.
        RuntimeError: the source's key was used for a release before.
    """
    setting = Setting.of(epsilon, neighbours, block, delta, subdivide, as_regions(regions), paper)
    if seed is not None and source is not None:
        raise DposeError("a seed and a source of noise exclude each other", "seed")
    noise = source or AesNoise(Key.fresh() if seed is None else Key.from_seed(seed))
    clip, frames = split_frames(image)
    height, width = frames[0].shape[:2]
    channels = frames[0].shape[2] if frames[0].ndim == 3 else 1
    peak = PEAKS[str(image.dtype).removeprefix("torch.")]
    plan = bind(setting, height, width, channels, peak, len(frames) if clip else None)
    seeded, told = spend(noise)
    released = tuple(plan.release(frame, noise, number) for number, frame in enumerate(frames))
    if is_tensor(image):
        import torch

        shown: Any = torch.stack([one.picture(image.device) for one in released])
    else:
        shown = np.stack([one.picture() for one in released])
    picture = shown.reshape(tuple(image.shape))
    return Release(picture, claim_picture(plan, seeded=seeded, caveats=(*told, *caveats)), released)


def bind(
    setting: Setting, height: int, width: int, channels: int, peak: int, frames: int | None = None
) -> Plan | PaperPlan:
    """The plan for pictures of this size: the mechanism's, or paper mode's.

    Raises:
        DposeError: the picture is too small, or a mask has another size.
    """
    kind = Plan if setting.paper is None else PaperPlan
    return kind.of(setting, height, width, channels, peak, frames)


def claim_picture(
    plan: Plan | PaperPlan, *, seeded: bool, caveats: Sequence[str] = (), conditional_on: Sequence[str] = ()
) -> PrivacyStatement:
    """The statement of what `plan` releases."""
    if isinstance(plan, PaperPlan):
        made = plan.statement()
        return replace(made, caveats=(*made.caveats, *caveats), conditional_on=tuple(conditional_on))
    return release_statement(plan, seeded=seeded, caveats=caveats, conditional_on=conditional_on)


def as_regions(regions: Regions | NDArray[Any] | str | None) -> Regions | None:
    """Regions from what a caller gives.

    Raises:
        DposeError: it is another word than "private", or no mask.
    """
    if regions is None or isinstance(regions, PublicRegions | PrivateRegions | PaperRegions):
        return regions
    if isinstance(regions, str):
        if regions != "private":
            raise DposeError(f"must be private or a mask, not {regions!r}", "regions")
        return PrivateRegions()
    return PublicRegions.from_array(regions)


def split_frames(image: NDArray[Any] | Tensor) -> tuple[bool, list[Any]]:
    """Whether this is a clip, and its frames; a picture is one frame.

    Raises:
        DposeError: not a picture or clip of uint8 or uint16.
    """
    if not (isinstance(image, np.ndarray) or is_tensor(image)):
        raise DposeError(f"must be an array or tensor, not {type(image).__name__}", "image")
    kind = str(image.dtype).removeprefix("torch.")
    if kind not in PEAKS:
        raise DposeError(
            f"must hold uint8 or uint16 values, not {kind}", "image", "scale it to 0..255 and round before"
        )
    shape = tuple(image.shape)
    if 0 in shape:
        raise DposeError(f"is empty: shape {shape}", "image")
    if len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3)):
        return False, [image]
    if len(shape) == 4 and shape[3] in (1, 3):
        return True, list(image)
    raise DposeError(
        f"must have the shape (H, W), (H, W, 3) or (T, H, W, 3), not {shape}",
        "image",
        "put channels last, drop an alpha channel, and give a grey clip as (T, H, W, 1)",
    )
