"""The release of files: of one, and of all that a command names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dpose.errors import DposeError, naming
from dpose.files import file_digest, write_atomic
from dpose.media.images import IMAGE_SUFFIXES, read_bytes, read_pixels
from dpose.media.video import VIDEO_SUFFIXES, probe
from dpose.privacy.noise import AesNoise, Key, NoiseSource
from dpose.privacy.statement import PrivacyStatement, software_versions
from dpose.release.api import PEAKS, bind, bind_video, noised, release_file
from dpose.release.archive import pack_archive, unpack
from dpose.release.claim import claim_noise_key
from dpose.release.config import CELLS, ReleaseConfig
from dpose.release.counting import release_charge, release_history, reserved_release, settings_digest
from dpose.release.embed import read_sidecar, read_stamp, stamped_picture
from dpose.release.grid import Shape
from dpose.release.jobs import Job
from dpose.release.linear import ReleasedValues
from dpose.release.names import remember_names
from dpose.release.originals import picture_original
from dpose.release.places import find_output
from dpose.release.released import Shown
from dpose.release.restoration import Restoration
from dpose.release.statements import DECODED, AnyPlan, release_statement
from dpose.release.verify import PICTURES

TOLD = 20
"""Of files that could not be released, so many are named."""
READABLE = (*IMAGE_SUFFIXES, *VIDEO_SUFFIXES)


def record_names(jobs: Iterable[Job], out: Path) -> Path | None:
    """Write down, in the user's state folder, which original each number stands for: before they are released.

    Returns:
        The file that it stands in; None where no job has a number.

    Raises:
        DposeError: it cannot be written, or another command took one of the numbers meanwhile.
    """
    names = {job.number: str(job.source.resolve()) for job in jobs if job.number}
    return remember_names(out, names) if names else None


def release_picture(
    job: Job, config: ReleaseConfig, seed: int | None = None, *, public: bool = False, again: bool = False
) -> PrivacyStatement:
    """Release one picture file: the picture with its statement, and the archive.

    Metadata (EXIF, thumbnails, profiles) is not copied: the file is encoded anew from the released cells.

    Returns:
        The statement; of the file that is there, where that is just this release of just this picture.

    Raises:
        DposeError: the file cannot be read or written, or the config is not of pixelization or does not fit it; it was
            released before, another file is in the way, or a budget would be passed.
    """
    if config.operator != CELLS:
        raise DposeError(
            "operator-not-for-pictures", "pictures are released to files by pixelization", str(job.source)
        )
    original, pixels, lossy = picture_original(job.source)
    if job.original is not None and job.original.file != original.file:
        raise DposeError(
            "file-changed",
            "was changed while it was to be released",
            str(job.source),
            "run the command again",
        )
    with naming(job.source):
        noise = AesNoise(Key.fresh() if seed is None else Key.from_seed(seed))
        plan = bind(config, picture_shape(pixels), noise)
        seeded, _ = claim_noise_key(noise)
        settings = picture_settings(job, config, seed)
        charge = (
            None if public else release_charge(original, plan, settings, seeded=seeded, target=job.target)
        )
        there = find_output(
            release_history(charge) if charge else None,
            job.target,
            job.outputs_at,
            numbered=bool(job.number),
        )
        if there is not None:
            return carried(there)
        with reserved_release(charge, again=again, about=job.about) as count:
            statement = write_picture(job, plan, pixels, noise, count.told, seeded=seeded, lossy=lossy)
            count.outputs += [file_digest(path) for path in job.outputs]
    return statement


def write_picture(
    job: Job,
    plan: AnyPlan,
    pixels: NDArray[Any],
    noise: NoiseSource,
    told: Callable[[PrivacyStatement], PrivacyStatement],
    *,
    seeded: bool,
    lossy: bool,
) -> PrivacyStatement:
    """`release_picture`, for whoever has counted it.

    Args:
        job: What is released.
        plan: For its shape.
        pixels: Of the original.
        noise: Serves this release alone.
        told: Adds what is counted to the statement.
        seeded: Whether the noise is not secret.
        lossy: Whether the original's compression was lossy.

    Raises:
        DposeError: a file cannot be written.
    """
    _, (released,) = noised(plan, pixels, [pixels], noise)
    assert not isinstance(released, ReleasedValues)
    caveats = (DECODED,) if lossy else ()
    statement = told(release_statement(plan, seeded=seeded, caveats=(*caveats, *job.caveats)))
    _write(job, released, statement)
    return statement


def picture_shape(pixels: NDArray[Any]) -> Shape:
    """The sizes of a decoded picture."""
    height, width = pixels.shape[:2]
    return Shape.of(height, width, 1 if pixels.ndim == 2 else pixels.shape[2], PEAKS[str(pixels.dtype)])


def picture_settings(job: Job, config: ReleaseConfig, seed: int | None) -> str:
    """Digest of all that decides a released picture's files."""
    return settings_digest(
        "picture", config, seed, job.target.suffix.lower(), job.archive is not None, *job.caveats
    )


def carried(path: Path) -> PrivacyStatement:
    """The statement that a released file carries.

    Raises:
        DposeError: it carries none, or another file's.
    """
    if path.suffix.lower() == ".npz":
        return unpack(read_bytes(path), str(path))[1]
    if path.suffix.lower() in VIDEO_SUFFIXES:
        return read_sidecar(path)[0]
    return read_stamp(read_bytes(path), str(path))[0]


def _write(job: Job, released: Shown, statement: PrivacyStatement) -> None:
    archive = pack_archive(released, statement)
    picture = b""
    if job.target.suffix.lower() != ".npz":
        picture = stamped_picture(released, job.target.suffix, statement)
    if job.archive is not None:
        write_atomic(job.archive, archive)
    try:
        write_atomic(job.target, picture or archive)
    except DposeError:
        if job.archive is not None:
            job.archive.unlink(missing_ok=True)
        raise


def release_all(
    jobs: Sequence[Job],
    config: ReleaseConfig,
    *,
    seed: int | None = None,
    workers: int = 1,
    keep_sound: bool = False,
    progress: Callable[[], None] | None = None,
    public: bool = False,
    again: bool = False,
) -> Iterator[tuple[Job, PrivacyStatement]]:
    """Release every file, in order: pictures `workers` at a time, a video's frames `workers` at a time.

    Args:
        jobs: What to release.
        config: How.
        seed: Makes the noise repeatable and takes the guarantee away; each file has another seed.
        workers: How many pictures or frames are in work at a time.
        keep_sound: Copy the sound of videos.
        progress: Called after each frame of a video.
        public: Whether nobody in them needs protection: then they are not counted.
        again: Whether they may be second releases of their originals.

    Yields:
        Each file with its statement, once it is written.

    Raises:
        DposeError: after all others, if files cannot be released; names them. Nothing stands under their names.
    """
    failed: list[tuple[Job, DposeError]] = []
    counting = {"public": public, "again": again}

    def own_seed(number: int, job: Job) -> int | None:
        return job_seed(job, number, seed)

    pictures = [(number, job) for number, job in enumerate(jobs) if not job.video]
    with ThreadPoolExecutor(max(1, workers)) as pool:
        futures = {
            number: pool.submit(release_picture, job, config, own_seed(number, job), **counting)
            for number, job in pictures
        }
        try:
            for number, job in enumerate(jobs):
                try:
                    if number in futures:
                        statement = futures.pop(number).result()
                    else:
                        with naming(job.source):
                            statement = release_file(
                                probe(job.source),
                                job.target,
                                config,
                                seed=own_seed(number, job),
                                workers=workers,
                                keep_sound=keep_sound,
                                progress=progress,
                                original=job.original,
                                caveats=job.caveats,
                                about=job.about,
                                **counting,
                            )
                except DposeError as error:
                    # others are in work, or written already: those are told, and none is left out for this one
                    failed.append((job, error))
                else:
                    yield job, statement
        finally:
            for future in futures.values():
                future.cancel()
    raise_failed(failed, len(jobs))


def job_seed(job: Job, number: int, seed: int | None) -> int | None:
    """The seed of one file of a command: the same whichever other files are left out; None for none."""
    return None if seed is None else seed + (number if job.place is None else job.place)


def raise_failed(failed: Sequence[tuple[Job, DposeError]], total: int) -> None:
    """One line for all files that could not be released; nothing where there are none.

    Raises:
        DposeError: there are some.
    """
    if not failed:
        return
    (job, error), *more = failed
    if total == 1:
        raise error
    left = f"{len(failed)} of {total} files were not released"
    if more:
        names = [str(other.source) for other, _ in more[:TOLD]]
        left += f"; besides this one {', '.join(names)}" + (", ..." if len(more) > TOLD else "")
    raise DposeError(
        error.code, f"{error.line()}; {left}", "" if str(job.source) in error.line() else str(job.source)
    )


def plan_of(path: Path, config: ReleaseConfig) -> tuple[AnyPlan, Fraction | None]:
    """What releasing a picture or video would cost, and a video's frames a second; releases nothing.

    Raises:
        DposeError: the file cannot be read, or the config does not fit it.
    """
    if path.suffix.lower() in VIDEO_SUFFIXES:
        info = probe(path)
        return bind_video(config, info), info.rate
    pixels = read_pixels(path)
    with naming(path):
        return bind(config, picture_shape(pixels)), None


def restore_file(archive: Path, out: Path, method: str | None = None) -> PrivacyStatement:
    """Write the picture that an archive holds, with its statement. Costs nothing: the archive is public.

    Args:
        archive: As `dpose pixelize` wrote it.
        out: The picture.
        method: Another restoration, one of `restoration.METHODS`, which the statement then names; None for the
            picture as it was released, bit for bit on a machine of the same kind.

    Raises:
        DposeError: the archive is damaged, altered or newer, `out` is no picture's name, or the restoration is unknown
            or was made by weights that are not here.
    """
    released, statement = unpack(read_bytes(archive), str(archive))
    if out.suffix.lower() not in PICTURES:
        raise DposeError("picture-suffix-unknown", "a picture is restored to .png or .jpg", str(out))
    if method is not None:
        other = Restoration.chosen(method)
        released = replace(released, restoration=other)
        versions = {**software_versions(*other.libraries), **statement.software}
        record = {**statement.release, "restoration": other.to_dict()}
        statement = replace(statement, release=record, software=versions)
    write_atomic(out, stamped_picture(released, out.suffix, statement))
    return statement
