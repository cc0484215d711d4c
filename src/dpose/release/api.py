"""The front door: a picture, clip or video in, a private one and its statement out.

    release = dpose.pixelize(image, epsilon=2, neighbours="pixels:16", block=16)
    release.picture, release.statement.paragraph()
    statement = dpose.release_video("ward.mp4", "ward-private.mp4", epsilon=8, delta=1e-5)

All of them are counted (`counting`): a second release of one picture is refused without `again`.
`release_array` takes a whole configuration, with any operator; `batch.release_one` releases a file by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import write_atomic
from dpose.media.spans import Time, spans_of
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.noise import AesNoise, Key, NoiseSource
from dpose.privacy.sections import NOT_SAID, About
from dpose.privacy.statement import PrivacyStatement
from dpose.release.archive import pack_archive
from dpose.release.batch import release_one
from dpose.release.config import (
    AUTO,
    Number,
    Pixelization,
    PixelizationSettings,
    Projection,
    ProjectionSettings,
    ReleaseConfig,
    refuse_unknown,
)
from dpose.release.counting import release_charge, reserved_release, settings_digest
from dpose.release.embed import stamped_picture
from dpose.release.grid import Shape, is_tensor
from dpose.release.items import Work
from dpose.release.jobs import Job
from dpose.release.linear import LinearPlan, ReleasedValues
from dpose.release.mechanism import claim_noise_key
from dpose.release.objects import either
from dpose.release.originals import array_original
from dpose.release.pixelization import PixelizationPlan
from dpose.release.plans import PEAKS, AnyPlan, bind, release_statement
from dpose.release.published import PublishedPicturePlan
from dpose.release.released import Shown

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Release:
    """A private picture or clip.

    Attributes:
        picture: A picture or clip of the original's shape and type, and on its device if it was a tensor.
        statement: What is guaranteed.
        frames: What was released: one for a picture; for a clip frame by frame, where frames are released one by one.
    """

    picture: Any
    statement: PrivacyStatement
    frames: tuple[Shown | ReleasedValues, ...] = ()

    def save(self, path: str | Path) -> None:
        """Write a picture with its statement, for `dpose verify`.

        Args:
            path: .png (lossless), .jpg or .jpeg; for cells also .npz, the released values.

        Raises:
            DposeError: it is a clip, the suffix is another one, or the file cannot be written.
        """
        path = Path(path)
        if len(self.frames) != 1 or self.statement.neighbours is None:
            raise DposeError("clip-saved-as-picture", "a clip is released to a file by release_video", str(path))
        (released,) = self.frames
        if path.suffix.lower() == ".npz" and not isinstance(released, ReleasedValues):
            write_atomic(path, pack_archive(released, self.statement))
        else:
            write_atomic(path, stamped_picture(released, path.suffix, self.statement))


class ArrayTerms(TypedDict, total=False):
    """Keywords of `release_array`, which `pixelize` takes too."""

    seed: int | None
    source: NoiseSource | None
    caveats: Sequence[str]
    public: bool
    again: bool
    about: About


class FileTerms(TypedDict, total=False):
    """Keywords of `release_video` that are not of its configuration."""

    seed: int | None
    keep_sound: bool
    progress: Callable[[], None] | None
    public: bool
    again: bool
    about: About
    spans: Sequence[tuple[Time, Time | None]]


class PixelizeSettings(PixelizationSettings, ArrayTerms, total=False):
    """The other keywords of `pixelize`."""


class VideoSettings(ProjectionSettings, FileTerms, total=False):
    """The other keywords of `release_video`."""


def pixelize(
    image: NDArray[Any] | Tensor,
    epsilon: Number,
    neighbours: str | int | Neighbours | None = None,
    block: int | str | None = AUTO,
    *,
    protect: str | None = None,
    face_size: str | None = None,
    **settings: Unpack[PixelizeSettings],
) -> Release:
    """Release a picture or clip under differential privacy, as blocks of noisy averages.

    >>> grey = np.full((64, 48), 128, np.uint8)
    >>> released = pixelize(grey, epsilon="1/2", neighbours="pixels:16", block=16)
    >>> released.picture.shape, released.statement.epsilon
    ((64, 48), Fraction(1, 2))
    >>> released.statement.verify() == released.statement.epsilon
    True

    **Guarantee.** Neighbours: pictures of the same size that differ in at most m pixels, of any values (an RGB pixel
    is three); for a clip, m pixels of all frames together, or with "/frame" m pixels in every frame, or those of a
    box at any place in each of any T frames. Sensitivity: in L1 norm over the cells' sums, whatever the cells'
    sizes, 255 * m times what one pixel changes at most: 1 for grey, 3 for rgb, and 12 for luma and chroma, which
    are summed 3, 2 and 1 times (`Colour`). Noise: exact discrete Laplace of scale sensitivity / epsilon on each
    integer sum (with `delta`: exact discrete Gaussian). Post-processing: division by the cell's area, restoration,
    rounding, clipping. Public: size, number of channels and frames, settings, a mask given as array. Seed 002,
    corrected; proved in docs/proofs/pixelization.md.

    Args:
        image: uint8 or uint16; (H, W) grey or (H, W, 3) colour; (T, H, W, C) for a clip, C = 1 or 3. An array, or a
            tensor on any device.
        epsilon: Total for the picture or clip. Text ("0.5", "1/3") is taken exactly.
        neighbours: "pixels:M" or "pixels:M/frame"; for a clip also "box:WxH/frames:T". Default: pixels:16.
        block: Side b of a block, pixels; "auto" for what a public prior on pictures expects most of, by epsilon, delta,
            neighbours, sizes, colour and restoration alone.
        protect: "detail", "face" or "person" in place of neighbours (`dpose.release.objects`).
        face_size: "WxH", pixels of a face, as declared for those. Default: 100x100.
        seed: Makes the noise repeatable and takes the guarantee away.
        source: As for `release_array`.
        caveats: What the statement tells its reader besides.
        public: True if the original is declared public. A public original is not counted.
        again: True to allow a second release of this picture, for what both cost together.
        about: What the statement says of who releases it, to whom and what for.
        settings: The other fields of `Pixelization`: delta (0 for Laplace noise and pure differential privacy; above 0
            for Gaussian noise); colour, "ycc" (luma, and chroma over larger blocks), "rgb" (three values alike) or
            "grey" (luma alone, in all three), by default ycc for colour pictures; chroma (1, 2 or 4: how many times
            as wide its blocks are; chosen with the block by default); regions, "private" or `PrivateRegions` (decided
            from a first noisy release), or a *public* mask (H, W) that was not made from the picture; subdivide (n:
            complex blocks are divided into n x n parts); restore, what is made of the released values, at no cost:
            "learned", "tv" or "none"; and paper (1, 2 or 3 runs seed 002's algorithm of that number as printed, with
            floating-point noise and no guarantee; the statement says what does not hold; 3 takes `PaperRegions`).

    Raises:
        DposeError: a setting is unknown, it or the picture is out of range, the picture was released before, or a
            budget would be passed.
        RuntimeError: the source's key was used for a release before.
    """
    refuse_unknown(settings, PixelizeSettings, pixelize)
    near = either(neighbours, protect, face_size)
    terms, chosen = _parted(settings, ArrayTerms)
    return release_array(image, Pixelization.of(epsilon, near, block, **chosen), **terms)


def _parted(settings: Mapping[str, Any], terms: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings that are among `terms`, and those of a configuration."""
    names = terms.__annotations__
    return (
        {name: value for name, value in settings.items() if name in names},
        {name: value for name, value in settings.items() if name not in names},
    )


def release_array(
    image: NDArray[Any] | Tensor,
    config: ReleaseConfig,
    *,
    seed: int | None = None,
    source: NoiseSource | None = None,
    caveats: Sequence[str] = (),
    public: bool = False,
    again: bool = False,
    about: About = NOT_SAID,
) -> Release:
    """Release a picture or clip that is held as an array or tensor.

    **Guarantee.** As for `pixelize` or `release_video`, by the config's operator, if the array is released once.

    Args:
        image: As for `pixelize`; uint8 alone for operators other than cells.
        config: What to release.
        seed: Makes the noise repeatable and takes the guarantee away.
        source: Where the noise comes from; a fresh key from the operating system by default. Any other key, and any
            source but `AesNoise`, takes the guarantee away; a fresh key serves one release.
        caveats: What the statement tells its reader besides.
        public: As for `pixelize`.
        again: As for `pixelize`.
        about: As for `pixelize`.

    Raises:
        DposeError: it is no picture or clip, the config does not fit it, it was released before, or a budget would be
            passed.
        RuntimeError: the source's key was used for a release before.
    """
    if seed is not None and source is not None:
        raise DposeError("seed-with-noise", "a seed and a source of noise exclude each other", "seed")
    noise = source or AesNoise(Key.fresh() if seed is None else Key.from_seed(seed))
    clip, frames = split_frames(image)
    height, width = frames[0].shape[:2]
    channels = frames[0].shape[2] if frames[0].ndim == 3 else 1
    peak = PEAKS[str(image.dtype).removeprefix("torch.")]
    plan = bind(config, Shape.of(height, width, channels, peak, len(frames) if clip else None), noise)
    charge = original = None
    seeded, notes = claim_noise_key(noise)
    if not public:
        original = array_original(frames, clip=clip)
        charge = release_charge(original, plan, settings_digest(config, seed), seeded=seeded)
    with reserved_release(charge, original, again=again, about=about) as count:
        picture, released = noised(plan, image, frames, noise)
        statement = release_statement(plan, seeded=seeded, caveats=(*notes, *caveats))
        return Release(picture, count.add_to(statement), released)


def noised(
    plan: AnyPlan, image: NDArray[Any] | Tensor, frames: Sequence[Any], noise: NoiseSource
) -> tuple[Any, tuple[Shown | ReleasedValues, ...]]:
    """Release a picture or clip that the caller has counted.

    Args:
        plan: For its shape.
        image: As for `pixelize`.
        frames: The frames of the picture or clip.
        noise: Serves this release alone.
    """
    released: tuple[Shown | ReleasedValues, ...] = ()
    if isinstance(plan, PixelizationPlan | PublishedPicturePlan):
        released = tuple(plan.release(frame, noise, number) for number, frame in enumerate(frames))
    elif isinstance(plan, LinearPlan) and plan.shape.still:
        released = (plan.release(frames[0], noise),)
    if is_tensor(image):
        import torch

        pictures = [one.picture(image.device) for one in released] or [
            torch.from_numpy(one).to(image.device) for one in plan.run((frame.cpu().numpy() for frame in frames), noise)
        ]
        shown: Any = torch.stack(pictures)
    else:
        shown = np.stack([one.picture() for one in released] or list(plan.run(iter(frames), noise)))
    return shown.reshape(tuple(image.shape)), released


def release_video(
    path: str | Path,
    out: str | Path,
    epsilon: Number,
    delta: Number,
    neighbours: str | int | None = None,
    operator: str = "block",
    *,
    protect: str | None = None,
    face_size: str | None = None,
    **settings: Unpack[VideoSettings],
) -> PrivacyStatement:
    """Release a video under differential privacy, by a public projection with exact Gaussian noise.

    **Guarantee.** Neighbours: videos of the same size and length whose decoded frames differ in at most m pixels, of
    any values (an RGB pixel is three): of the whole video together ("pixels:16"), of every frame ("pixels:16/frame"),
    of any one frame ("frame"), all of them ("clip"), or those inside a box at any place in each of any T frames
    ("box:WxH/frames:T"). Sensitivity: the operator's; with `clip_norm` C at most 2 C
    for each part that can change. Noise: exact discrete Gaussian, calibrated analytically. Post-processing:
    restoration, encoding. Public: size, number of frames, time stamps, operator. Sound is dropped by default.
    Seed 004, corrected; proved in docs/proofs/video.md. Memory does not depend on the video's length.

    Args:
        path: The original.
        out: The released video (.mp4, .m4v, .mov, .mkv); its statement goes to FILE.privacy.json beside it.
        epsilon: Total for the video. Text ("0.5", "1/3") is taken exactly.
        delta: As epsilon, in (0, 1).
        neighbours: What is hidden; by default pixels:16.
        protect: As for `pixelize`: a box of a face's or person's declared size, for 10 seconds by the time stamps.
        face_size: As for `pixelize`.
        operator: "block" (means of cells in height, width and time), "low-pass" (cosines), "random" (the statistics
            of seed 004's random projection, with orthonormal rows), or another one of `OPERATORS`.
        seed: Makes the noise repeatable and takes the guarantee away.
        keep_sound: Copy the original's sound, unprotected.
        progress: Called after each frame.
        public: True if the original is declared public. A public original is not counted.
        again: True to allow a second release of this video, for what both cost together.
        about: As for `pixelize`.
        spans: Beginning and end of each part to release, in seconds or as "1:02.5", an end of None for the film's; the
            rest is left out. Neighbours are those of all of them together, and the cost is the whole film's: another
            span of it is a second release. The spans are public.
        settings: The other fields of `Projection`: restore, colour and chroma (as for `pixelize`; what is clipped, and
            a paper's, has rgb); k (the most values to keep of a group of frames) and pool (frames of a group), each
            chosen by the noise where it is left out; clip_norm (bound on the L2 norm of a group's projected values,
            in gray levels times the root of pixels) and clip_segment (the bound is on 64 frames' values together
            instead); paper (run seed 004's algorithm as printed, which guarantees nothing; the statement says what
            does not hold) and split (b of that algorithm, the share of its budget that goes to the projection).

    Returns:
        The statement. Where `out` holds just this release of just this video already, its own: nothing is done then.

    Raises:
        DposeError: a setting is unknown, out of range or does not fit the video, it was released before, a budget
            would be passed, or the video cannot be read, ends early, or cannot be written; then nothing is left under
            `out`.
    """
    refuse_unknown(settings, VideoSettings, release_video)
    near = either(neighbours, protect, face_size)
    terms, chosen = _parted(settings, FileTerms)
    progress, about = terms.pop("progress", None), terms.pop("about", NOT_SAID)
    spans = spans_of(terms.pop("spans", ()))
    work = Work(Projection.of(epsilon, delta, near, operator, **chosen), spans=spans, **terms)
    return release_one(work, Job(Path(path), Path(out), about=about), progress=progress)


def split_frames(image: NDArray[Any] | Tensor) -> tuple[bool, list[Any]]:
    """True if this is a clip, and its frames; a picture is one frame."""
    if not (isinstance(image, np.ndarray) or is_tensor(image)):
        raise DposeError("image-not-array", f"must be an array or tensor, not {type(image).__name__}", "image")
    kind = str(image.dtype).removeprefix("torch.")
    if kind not in PEAKS:
        raise DposeError(
            "image-type-unsupported",
            f"must hold uint8 or uint16 values, not {kind}",
            "image",
            "scale it to 0..255 and round before",
        )
    shape = tuple(image.shape)
    if 0 in shape:
        raise DposeError("image-empty", f"is empty: shape {shape}", "image")
    if len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3)):
        return False, [image]
    if len(shape) == 4 and shape[3] in (1, 3):
        return True, list(image)
    raise DposeError(
        "image-of-wrong-shape",
        f"must have the shape (H, W), (H, W, 3) or (T, H, W, 3), not {shape}",
        "image",
        "put channels last, lay what an alpha channel hides on a colour, and give a grey clip as (T, H, W, 1)",
    )
