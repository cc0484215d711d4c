"""Releases that attackers see: private releases, obscured pictures, public views; all from seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product

import cv2
import numpy as np

from dpose.errors import DposeError
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.ranges import upper
from dpose.release.config import PAPER_BLOCK, Pixelization
from dpose.release.grid import Shape
from dpose.release.obfuscate import PLAIN_SIGMA
from dpose.release.pixelization import PixelizationPlan
from dpose.release.plans import bind
from dpose.release.regions import PrivateRegions
from dpose.release.restoration import PAINTED, Restoration
from dpose.training.public_view import PublicView
from dpose_lab.attacks.identities import PersonPictures, Picture, Progress
from dpose_lab.baselines.slicing import LdpSlicing

REFERENCE_HEIGHT = 256
"""Picture height for which the sigma of the blur is given, as for public views."""
VIEWS = {"view:gaussian-blur": "blur", "view:pixelization": "pixelize"}
SLICED = {"ldp-slicing": True, "ldp-slicing-unpruned": False}
RELEASES = ("none", "gaussian-blur", "pixelate", "dp", *SLICED, *VIEWS)
NOTHING = "none"
LEARNED = "learned"
"""Restoration of private releases by default."""


@dataclass(frozen=True)
class Transform:
    """A way to release a picture.

    Attributes:
        key: Name, also in files.
        title: Name in tables.
        guarantee: The guarantee and its neighbours, in words.
        apply: Function from a picture and a seed to a released picture of the same shape.
        noise: Name of the noise, shared by two restorations of one release; "" for the key.
        slicing: The mechanism, where an attacker can compute its odds.
    """

    key: str
    title: str
    guarantee: str
    apply: Callable[[Picture, int], Picture] = field(repr=False)
    noise: str = ""
    slicing: LdpSlicing | None = None

    @property
    def short_title(self) -> str:
        """Caption above a small picture."""
        short = self.title.replace("dpose pixelize, ", "dp ").replace("public view, ", "")
        return short.replace("Gaussian blur of", "blur of").split(", sigma")[0]

    def album(
        self, album: PersonPictures, seed: int, purpose: str, progress: Progress = lambda: None
    ) -> PersonPictures:
        """Release all pictures of an album.

        Args:
            album: The originals.
            seed: Seed of the noise.
            purpose: Pictures shown for another purpose have other noise.
            progress: Called after each picture.
        """
        pictures = []
        for picture, name in zip(album.pictures, album.names, strict=True):
            pictures.append(self.apply(picture, _seed(f"{seed} {self.noise or self.key} {purpose} {name}")))
            progress()
        return album.instead(pictures)


RAW = Transform("raw", "raw pictures", NOTHING, lambda picture, _: picture)


def all_transforms(
    names: Sequence[str],
    *,
    blocks: Sequence[int | str],
    subdivisions: Sequence[int],
    epsilons: Sequence[str],
    neighbours: str,
    restorations: Sequence[str] = (LEARNED,),
) -> list[Transform]:
    """All releases to attack, raw pictures first: they are the upper limit.

    Args:
        names: Names in `RELEASES`.
        blocks: Sides of blocks, pixels, for pixelate and dp; "auto" as in a private release, and for pixelate
            `PAPER_BLOCK`.
        subdivisions: Parts along a side of a complex block; above 1 the regions are private (two stages).
        epsilons: Totals for a picture, as text.
        neighbours: Neighbours, "pixels:M".
        restorations: Names in `restoration.METHODS`; for dp.
    """
    releases = [RAW]
    for name in names:
        if name not in RELEASES:
            raise DposeError(
                "release-unknown", f"no release called {name!r}", "--release", f"choose from {', '.join(RELEASES)}"
            )
        if name == "gaussian-blur":
            title = f"Gaussian blur, sigma {PLAIN_SIGMA:g} at a height of {REFERENCE_HEIGHT}"
            releases.append(Transform("gaussian-blur", title, NOTHING, _blurred))
        elif name == "pixelate":
            releases += [pixelated(PAPER_BLOCK if isinstance(block, str) else block) for block in blocks]
        elif name == "dp":
            releases += private_grid(epsilons, neighbours, blocks, subdivisions, restorations)
        elif name in SLICED:
            releases += [sliced(name, epsilon) for epsilon in epsilons]
        elif name in VIEWS:
            releases.append(public_view(name))
    return list({shown.key: shown for shown in releases}.values())


def private_grid(
    epsilons: Sequence[str],
    neighbours: str,
    blocks: Sequence[int | str],
    subdivisions: Sequence[int],
    restorations: Sequence[str] = (LEARNED,),
) -> list[Transform]:
    """`private` for every combination; one that cannot be made raises its error when it is applied."""
    for epsilon, block in product(epsilons, blocks):
        Pixelization.of(epsilon, neighbours, block)
    for method in restorations:
        Restoration.chosen(method)
    releases, refused = list[Transform](), list[DposeError]()
    for block, parts, epsilon, method in product(blocks, subdivisions, epsilons, restorations):
        try:
            releases.append(private(epsilon, neighbours, block, parts, method))
        except DposeError as error:
            refused.append(error)
            releases.append(_impossible(epsilon, neighbours, block, parts, method, error))
    if len(refused) == len(releases):
        raise refused[0]
    return releases


def private(epsilon: str, neighbours: str, block: int | str, parts: int = 1, restore: str = LEARNED) -> Transform:
    """`dpose pixelize` from a seed, as shown to a reader: restored, or painted for "none"."""
    regions = PrivateRegions() if parts > 1 else None
    config = Pixelization.of(epsilon, neighbours, block, subdivide=parts, regions=regions, restore=restore)

    @lru_cache(maxsize=8)
    def plan(height: int, width: int, channels: int) -> PixelizationPlan:
        bound = bind(config, Shape.of(height, width, channels))
        assert isinstance(bound, PixelizationPlan)
        return bound

    def apply(picture: Picture, seed: int) -> Picture:
        channels = picture.shape[2] if picture.ndim == 3 else 1
        source = AesNoise(Key.from_seed(seed))
        released = plan(picture.shape[0], picture.shape[1], channels).release(picture, source).picture()
        return np.asarray(released, np.uint8).reshape(picture.shape)

    return _as_private(epsilon, neighbours, block, parts, config.restoration, apply)


def _impossible(
    epsilon: str, neighbours: str, block: int | str, parts: int, restore: str, why: DposeError
) -> Transform:
    def apply(_: Picture, __: int) -> Picture:
        raise why

    return _as_private(epsilon, neighbours, block, parts, Restoration.chosen(restore), apply)


def _as_private(
    epsilon: str,
    neighbours: str,
    block: int | str,
    parts: int,
    restoration: Restoration,
    apply: Callable[[Picture, int], Picture],
) -> Transform:
    m, _, scope = neighbours.removeprefix("pixels:").partition("/")
    pixels = "one pixel" if m == "1" else f"{m} pixels"
    key = f"dp-b{block}-n{parts}-e{epsilon.replace('/', '_')}-{neighbours.replace(':', '').replace('/', '-')}"
    shown = "painted" if restoration == PAINTED else restoration.method
    title = f"dpose pixelize, b {block}" + (f", n {parts}" if parts > 1 else "") + f", {shown}"
    return Transform(
        key if restoration == PAINTED else f"{key}-{shown}",
        f"{title}, epsilon {epsilon}",
        f"epsilon {epsilon} for pictures that differ in at most {pixels}"
        + (f" of each {scope}" if scope else "")
        + (f"; {restoration.note}" if restoration.note else ""),
        apply,
        noise=key,
    )


def sliced(name: str, epsilon: str) -> Transform:
    """LDP-Slicing with this total for the bits of a pixel, whatever the neighbours of other releases are."""
    slicing = LdpSlicing(float(Pixelization.of(epsilon, "pixels:1", 1).epsilon), pruned=SLICED[name])
    counted = f"; the paper counts {epsilon}, for one pixel of the pruned picture" if slicing.pruned else ""
    return Transform(
        f"{name}-e{epsilon.replace('/', '_')}",
        f"LDP-Slicing, {'' if slicing.pruned else 'not pruned, '}epsilon {epsilon}",
        f"epsilon {upper(slicing.true_epsilon())} for pictures that differ in at most one pixel{counted}",
        lambda picture, seed: slicing.release(picture, AesNoise(Key.from_seed(seed))),
        slicing=slicing,
    )


def pixelated(block: int) -> Transform:
    """Release means of blocks without noise."""

    def apply(picture: Picture, _: int) -> Picture:
        height, width = picture.shape[:2]
        down, across = np.arange(0, height, block), np.arange(0, width, block)
        sums = np.add.reduceat(np.add.reduceat(picture.astype(np.int64), down, 0), across, 1)
        rows, columns = (np.diff(np.append(edges, side)) for edges, side in ((down, height), (across, width)))
        area = np.outer(rows, columns).reshape(len(rows), len(columns), *[1] * (picture.ndim - 2))
        means = (sums + area // 2) // area
        return np.asarray(means.repeat(rows, 0).repeat(columns, 1), np.uint8)

    return Transform(f"pixelate-b{block}", f"pixelation, b {block}", NOTHING, apply)


def public_view(name: str) -> Transform:
    """The public view of feature privacy at its default settings, by the trainer's own map."""
    view = PublicView(VIEWS[name])  # type: ignore[arg-type]

    def apply(picture: Picture, _: int) -> Picture:
        if picture.ndim == 3:
            return view(picture)
        return view(np.repeat(picture[:, :, None], 3, axis=2))[:, :, 0]

    title = f"public view, {'Gaussian blur' if view.kind == 'blur' else 'pixelization'} of width {view.width:g}"
    return Transform(name.replace(":", "-"), title, "none: the public view is public", apply)


def _blurred(picture: Picture, _: int) -> Picture:
    return np.asarray(cv2.GaussianBlur(picture, (0, 0), PLAIN_SIGMA * picture.shape[0] / REFERENCE_HEIGHT), np.uint8)


def _seed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def epsilon_of_all(neighbours: str, epsilon: str, size: tuple[int, int]) -> float:
    """Epsilon of the guarantee for pictures of `size` that differ everywhere."""
    config = Pixelization.of(epsilon, neighbours, 1)
    return float(config.epsilon) * size[0] * size[1] / config.neighbours.area
