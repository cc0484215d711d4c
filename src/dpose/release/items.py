"""What is done with one file of a command, in this process or by a worker: it is digested, and released.

    digested = digest_item(work, job)                     # what it is, and what its release would take
    written = release_item(work, Reserved(job, ...))      # once `dpose.release.batch` has reserved it

Nothing here reads or writes the account.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.account import Charge
from dpose.errors import DposeError, naming
from dpose.files import file_digest, same_file_check, write_atomic
from dpose.media.identity import eight_bits
from dpose.media.images import picture_notes
from dpose.media.spans import Span, cut
from dpose.media.video import VideoInfo, probe, read_frames
from dpose.media.video_writer import open_writer, settle
from dpose.privacy.noise import AesNoise, Key, NoiseSource
from dpose.privacy.statement import PrivacyStatement
from dpose.release.archive import pack_archive
from dpose.release.boxes import FoundBox
from dpose.release.config import Pixelization, ReleaseConfig
from dpose.release.counting import ReleaseCount, Reservation, charged_events, release_charge, settings_digest
from dpose.release.embed import stamped_picture, stamped_pixels, write_sidecar
from dpose.release.faces import FaceFinder, face_finder
from dpose.release.grid import Shape
from dpose.release.jobs import Job
from dpose.release.linear import LinearPlan
from dpose.release.mechanism import claim_noise_key
from dpose.release.obfuscate import HOLD, Obfuscator
from dpose.release.originals import Original, picture_original, video_original
from dpose.release.pixelization import PixelizationPlan
from dpose.release.plans import (
    DECODED,
    DECODED_VIDEO,
    SOUND,
    AnyPlan,
    bind,
    bind_video,
    picture_shape,
    release_statement,
    video_shape,
)
from dpose.release.published import PublishedPicturePlan
from dpose.release.regions import PrivateRegions
from dpose.release.released import Shown

AddCount = Callable[[PrivacyStatement], PrivacyStatement]
"""Adds to a statement what is counted of its original."""


@dataclass(frozen=True)
class Work:
    """How every file of a command is released.

    Attributes:
        config: The configuration; None to obscure files instead.
        method: The method of obscuring, one of `obfuscate.METHODS`; "" with a configuration.
        boxes: For obscuring, of each file by its absolute path, all that is obscured; None for what the method finds.
        detector: For face-blur: an ONNX face detector, or a finder; None for the bundled cascade.
        hold: For face-blur: frames around a find.
        seed: Makes the noise repeatable and takes the guarantee away; each file has another seed.
        keep_sound: True to copy the sound of videos.
        public: True if the files are declared public. Public files are not counted.
        again: True to allow second releases of an original.
        spans: Of a film, what is released; empty for all of it. What is released is counted for the whole film.
        sign: With workers: a file that the command has put beside the released ones, by which a worker sees that it
            has the same folder.
    """

    config: ReleaseConfig | None = None
    method: str = ""
    detector: Path | FaceFinder | None = None
    hold: int = HOLD
    seed: int | None = None
    keep_sound: bool = False
    public: bool = False
    again: bool = False
    spans: tuple[Span, ...] = ()
    boxes: Mapping[str, tuple[FoundBox, ...]] | None = None
    sign: Path | None = None

    @property
    def finder(self) -> FaceFinder | None:
        """The face finder of face-blur; None for other methods."""
        if self.method != "face-blur" or self.boxes is not None:
            return None
        return self.detector if isinstance(self.detector, FaceFinder) else face_finder(self.detector)

    def seed_of(self, job: Job) -> int | None:
        """The seed of one file, whichever other files are left out; None without a seed."""
        return None if self.seed is None else self.seed + (job.place or 0)

    def boxes_of(self, job: Job) -> tuple[FoundBox, ...] | None:
        """The boxes that were given for a file; None where none were given for any."""
        return None if self.boxes is None else self.boxes.get(str(job.source.absolute()), ())

    def obscurer(self, job: Job, shape: Shape, seed: int | None) -> Obfuscator:
        """What obscures a file of a shape."""
        return Obfuscator(self.method, shape, seed, self.finder, self.hold, self.boxes_of(job))

    def settings(self, job: Job, seed: int | None) -> str:
        """The digest of all that decides a released file, beside the original and the key."""
        finder, boxes = self.finder, self.boxes_of(job)
        face = "" if finder is None else f" {finder.digest} {self.hold}"
        given = "" if boxes is None else f" {[replace(box, file='', number=0) for box in boxes]}"
        what = self.config or self.method + face + given
        if job.video:
            return settings_digest("video", what, seed, self.keep_sound, *self.spans, *job.caveats)
        written = (job.target.suffix.lower(), job.archive is not None)
        return settings_digest("picture", what, seed, *written, *job.caveats)


@dataclass(frozen=True)
class Reading:
    """A file that was read.

    Attributes:
        plan: How it is released or obscured.
        shown: A picture's pixels, or a video that was probed.
        original: What it is for the account; None for a file that was not identified.
        lossy: True for a picture whose compression was lossy.
        notes: What of the file is left out or changed.
        check: Refuses a video that has changed since.
    """

    plan: AnyPlan | Obfuscator
    shown: NDArray[Any] | VideoInfo
    original: Original | None = None
    lossy: bool = False
    notes: tuple[str, ...] = ()
    check: Callable[[], None] = lambda: None


def read_item(
    work: Work, job: Job, noise: NoiseSource | None = None, *, seed: int | None = None, identify: bool = True
) -> Reading:
    """Read a file, and say what it is and how it is released.

    Args:
        work: How files are released.
        job: The file. If it has an original, the file must still be that one.
        noise: The noise of the release; by default another one, for a plan that is only looked at.
        seed: The file's own, for obscuring.
        identify: False for a video that is not counted: it is not decoded then.
    """
    with naming(job.source):
        source = job.choice or noise or AesNoise(Key.fresh())
        if job.video:
            info, check = probe(job.source), same_file_check(job.source)
            original = job.original
            if original is not None:
                original.check_unchanged(job.source)
            elif identify:
                original = video_original(info)
            info = cut(info, work.spans)  # once the whole film is identified, so that its spans' costs add up
            if work.config is not None:
                plan = bind_video(work.config, info, source)
                return Reading(plan, info, original, notes=info.notes, check=check)
            obscured = work.obscurer(job, video_shape(info), seed)
            return Reading(obscured, info, original, notes=info.notes, check=check)
        if work.config is not None and not isinstance(work.config, Pixelization):
            raise DposeError(
                "operator-not-for-pictures", "pictures are released to files by pixelization", str(job.source)
            )
        if work.spans:
            raise DposeError("span-of-picture", "is a picture, which has no time spans", str(job.source))
        original, pixels, header = picture_original(job.source)
        if job.original is not None and job.original.hashes != original.hashes:
            raise DposeError(
                "file-changed", "was changed while it was to be released", str(job.source), "run the command again"
            )
        notes = picture_notes(header)
        if work.config is None:
            shown = eight_bits(pixels)
            obscured = work.obscurer(job, picture_shape(shown), seed)
            return Reading(obscured, shown, original, notes=notes)
        plan = bind(work.config, picture_shape(pixels), source)
        return Reading(plan, pixels, original, header.lossy, notes)


def item_charge(work: Work, job: Job, read: Reading, seed: int | None) -> Charge:
    """What the release of a file, read and identified, takes from its original."""
    assert read.original is not None
    plan = None if isinstance(read.plan, Obfuscator) else read.plan
    return release_charge(read.original, plan, work.settings(job, seed), seeded=seed is not None, target=job.target)


def write_item(
    work: Work,
    job: Job,
    read: Reading,
    noise: NoiseSource,
    add_count: AddCount,
    *,
    seeded: bool,
    workers: int = 1,
    progress: Callable[[], None] | None = None,
) -> PrivacyStatement:
    """Release a file that was read, and that the caller has counted: all its outputs, or none.

    A picture is encoded anew from the released cells, so that no metadata (EXIF, thumbnails, profiles) is copied.
    `add_count` adds what is counted to the statement; `seeded` says that the noise is not secret.
    """
    plan, shown = read.plan, read.shown
    if isinstance(shown, np.ndarray) and isinstance(plan, Obfuscator):
        (picture,) = plan.run(iter([shown]))
        statement = add_count(plan.statement(job.caveats))
        grey = picture.shape[2] == 1
        data = stamped_pixels(picture[:, :, 0] if grey else picture, job.target.suffix, statement)
        write_atomic(job.target, data)
        return statement
    if isinstance(shown, np.ndarray):
        assert isinstance(plan, PixelizationPlan | PublishedPicturePlan)
        released = plan.release(shown, noise)
        caveats = (DECODED,) if read.lossy else ()
        statement = add_count(release_statement(plan, seeded=seeded, caveats=(*caveats, *job.caveats)))
        _write(job, released, statement)
        return statement

    def state(caveats: tuple[str, ...], given: tuple[str, ...]) -> PrivacyStatement:
        if isinstance(plan, Obfuscator):
            return add_count(plan.statement(given, work.spans))
        said = (*caveats, *job.caveats)
        return add_count(release_statement(plan, seeded=seeded, caveats=said, conditional_on=given, spans=work.spans))

    def run(frames: Iterator[NDArray[np.uint8]]) -> Iterator[NDArray[np.uint8]]:
        return plan.run(frames) if isinstance(plan, Obfuscator) else plan.run(frames, noise, workers)

    return encode_video(shown, job.target, run, state, keep_sound=work.keep_sound, progress=progress, check=read.check)


def _write(job: Job, released: Shown, statement: PrivacyStatement) -> None:
    """Write a picture and its archive, or neither."""
    archive, picture = pack_archive(released, statement), b""
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


def encode_video(
    info: VideoInfo,
    out: Path,
    run: Callable[[Iterator[NDArray[np.uint8]]], Iterator[NDArray[np.uint8]]],
    state: Callable[[tuple[str, ...], tuple[str, ...]], PrivacyStatement],
    *,
    keep_sound: bool,
    progress: Callable[[], None] | None = None,
    check: Callable[[], None] = lambda: None,
) -> PrivacyStatement:
    """Read a video, run its frames through something, and write the result with its statement beside it.

    Duration, frame rate and time stamps are kept; metadata, and sound unless it is to be kept, are dropped. Nothing is
    left there where the video cannot be read to its end or written.

    Args:
        info: The original.
        out: The new video.
        run: From frames to as many frames.
        state: Makes the statement, from caveats and from what is taken as given.
        keep_sound: True to copy the original's sound.
        progress: Called after each frame.
        check: Refuses an original that is no longer the one that was counted.
    """
    with open_writer(out, info, keep_sound=keep_sound) as (writer, temporary):
        kept = writer.keeps_sound
        stamps: deque[tuple[int, int]] = deque()

        def frames() -> Iterator[NDArray[np.uint8]]:
            for frame in read_frames(info, writer.add_sound if kept else None):
                stamps.append((frame.pts, frame.duration))
                yield frame.pixels

        for picture in run(frames()):
            writer.add(picture, *stamps.popleft())
            if progress is not None:
                progress()
        check()
    # the statement first: a video without one must never stand there
    statement = write_sidecar(out, temporary, state((DECODED_VIDEO,), (SOUND,) if kept else ()))
    settle(temporary, out)
    return statement


@dataclass(frozen=True)
class Digested:
    """A file that was read.

    Attributes:
        job: With its original.
        charge: What its release takes.
        plan: Digest of how it is released, where a second attempt releases the same noisy sums, bit for bit; "" where
            that is not certain.
    """

    job: Job
    charge: Charge
    plan: str


@dataclass(frozen=True)
class Reserved:
    """A file that may be released: a few kilobytes, however long a video it is, so that its key stays in memory.

    Attributes:
        job: With its original, where that is counted; of a video without the digests of its frames (`slight`).
        secret: Bytes of the release's key, which serves this release alone; b"" for a fresh key where it is released.
        charge: The file's reservation, without marks; None for a public file.
        counted: What its statement says of that.
        plan: The plan's digest, as `Digested` has it.
    """

    job: Job
    secret: bytes = field(default=b"", repr=False)
    charge: Charge | None = None
    counted: ReleaseCount | None = None
    plan: str = ""


@dataclass(frozen=True)
class Written:
    """A released file.

    Attributes:
        statement: Its statement.
        digests: SHA-256 of all that was written, in the order of `Job.outputs`.
        notes: What of the original was left out or changed.
    """

    statement: PrivacyStatement
    digests: tuple[str, ...]
    notes: tuple[str, ...] = ()


def slight(job: Job) -> Job:
    """A job with what a worker needs of its original: of a video that is the digest of the file."""
    if job.original is None or not job.video:
        return job
    return replace(job, original=replace(job.original, hashes=job.original.hashes[:2]))


def digest_item(work: Work, job: Job) -> Digested:
    """Read a file: what it is, and what its release would take. With a charge it must only be the same file."""
    check_folder(work)
    if job.charge is not None and job.original is not None:
        job.original.check_unchanged(job.source)
        return Digested(job, job.charge, "")
    seed = work.seed_of(job)
    read = read_item(work, job, seed=seed)
    charge = item_charge(work, job, read, seed)
    # what a drawn operator costs depends on the draw: of a seed it is drawn again, of none it is kept
    choice = read.plan.choice if seed is None and isinstance(read.plan, LinearPlan) else ""
    return Digested(replace(job, original=read.original, choice=choice), charge, whole_plan(read.plan))


def whole_plan(plan: AnyPlan | Obfuscator) -> str:
    """Digest of a plan whose sums are whole numbers that follow from one picture's pixels; "" of any other."""
    if not isinstance(plan, PixelizationPlan) or not plan.shape.still:
        return ""
    return "" if isinstance(plan.config.regions, PrivateRegions) else settings_digest(plan)


def release_item(
    work: Work, item: Reserved, *, workers: int = 1, progress: Callable[[], None] | None = None
) -> Written:
    """Release a file that is reserved.

    **Guarantee.** As for `pixelize` or `release_video`, by the configuration, for the decoded picture or frames. With
    cells each frame's noise has a key of its own, derived from the release's key in the order of the frames, so that
    the number of workers changes nothing. Encoding is post-processing. Public: size, number of frames and their time
    stamps. Sound that is kept is not protected, and the statement says so.

    Args:
        work: How files are released.
        item: The file.
        workers: Frames in work at a time, of pixelization.
        progress: Called after each frame of a video.
    """
    check_folder(work)
    job, seed = item.job, work.seed_of(item.job)
    own = Key.kept(item.secret) if item.secret else Key.fresh()
    noise = AesNoise(own if seed is None else Key.from_seed(seed))
    count = Reservation(item.counted, job.about)
    with naming(job.source):
        if not item.secret:
            claim_noise_key(noise)
        read = read_item(work, job, noise, seed=seed, identify=False)
        _check_plan(read.plan, item, seeded=seed is not None)
        statement = write_item(
            work, job, read, noise, count.add_to, seeded=seed is not None, workers=workers, progress=progress
        )
    return Written(statement, tuple(file_digest(path) for path in job.outputs), read.notes)


def _check_plan(plan: AnyPlan | Obfuscator, item: Reserved, *, seeded: bool) -> None:
    """Refuse a plan that was not reserved: real numbers in its choice may fall otherwise on another machine."""
    if isinstance(plan, Obfuscator) or item.charge is None:
        return
    if item.charge.events != charged_events(plan, seeded=seeded) or (item.plan and item.plan != whole_plan(plan)):
        raise DposeError(
            "release-differs-here",
            "this machine would release it otherwise than was reserved",
            fix="run the command again",
        )


def check_folder(work: Work) -> None:
    """At a worker: refuse a folder that is not the command's, where the command would not see what it writes."""
    if work.sign is not None and not work.sign.exists():
        raise DposeError(
            "worker-folder-not-shared",
            "a worker does not see this machine's folder under this name",
            str(work.sign.parent),
            "have --out on a disk that all machines share",
        )
