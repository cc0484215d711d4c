"""What a worker does with one file of a corpus: digest it, and release it under the key that it was reserved with.

Nothing here reads or writes the account: that is `corpus`'s, in the command alone.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from pathlib import Path

from dpose.account import Charge
from dpose.errors import DposeError, naming
from dpose.files import file_digest, same_file_check
from dpose.media.video import probe
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.statement import PrivacyStatement
from dpose.release.api import bind, bind_video, video_work
from dpose.release.config import ReleaseConfig
from dpose.release.counting import ReleaseCount, Reservation, charged_events, settings_digest
from dpose.release.faces import face_finder
from dpose.release.files import job_seed, picture_shape, write_picture
from dpose.release.jobs import Job
from dpose.release.obfuscate import HOLD, asked_of, obfuscation
from dpose.release.originals import picture_original
from dpose.release.pixelization import PixelizationPlan
from dpose.release.regions import PrivateRegions
from dpose.release.sifting import job_charge, read_job
from dpose.release.statements import AnyPlan
from dpose.release.videos import encode_video


@dataclass(frozen=True)
class Work:
    """What is done with every file of a corpus.

    Attributes:
        config: How files are released; None where videos are obscured.
        method: How those are; "" where files are released.
        detector: An ONNX face detector, for that.
        hold: Frames around a find, for that.
        seed: Makes the noise repeatable and takes the guarantee away.
        keep_sound: Copy the sound of videos.
        public: Whether nobody in them needs protection: then they are not counted.
        again: Whether they may be second releases of their originals.
        sign: A file that the command has put beside the released ones; who does not see it has another folder.
    """

    config: ReleaseConfig | None = None
    method: str = ""
    detector: Path | None = None
    hold: int = HOLD
    seed: int | None = None
    keep_sound: bool = False
    public: bool = False
    again: bool = False
    sign: Path | None = None

    @property
    def what(self) -> ReleaseConfig | str:
        """As `skip_finished` takes it."""
        if self.config is not None:
            return self.config
        finder = face_finder(self.detector) if self.method == "face-blur" else None
        return asked_of(self.method, finder, self.hold)

    def check_folder(self) -> None:
        """At a worker: refuse a folder that is not the command's. What it wrote there nobody would find.

        Raises:
            DposeError: it is another one.
        """
        if self.sign is not None and not self.sign.exists():
            raise DposeError(
                "worker-folder-not-shared",
                "a worker does not see this machine's folder under this name",
                str(self.sign.parent),
                "have --out on a disk that all machines share",
            )

    def check_portable(self) -> None:
        """Refuse what no other process can be given.

        Raises:
            DposeError: it holds such a thing: a segmenter that is open in this process.
        """
        try:
            pickle.dumps(self)
        except Exception as error:
            raise DposeError(
                "segmenter-not-sendable",
                "a segmenter cannot be sent to workers",
                "engine",
                "leave one of them out",
            ) from error


@dataclass(frozen=True)
class Digested:
    """A file that a worker has read.

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
        secret: Of its key; it serves this release alone.
        charge: Its reservation, without marks; None where it is not counted.
        counted: What its statement says of that.
        plan: As `Digested.plan`.
    """

    job: Job
    secret: bytes = field(repr=False)
    charge: Charge | None = None
    counted: ReleaseCount | None = None
    plan: str = ""


def slight(job: Job) -> Job:
    """A job with what a worker needs of its original: of a video that is the digest of the file."""
    if job.original is None or not job.video:
        return job
    return replace(job, original=replace(job.original, hashes=job.original.hashes[:2]))


@dataclass(frozen=True)
class Written:
    """A released file: its statement, and SHA-256 of all that was written, in the order of `Job.outputs`."""

    statement: PrivacyStatement
    digests: tuple[str, ...]


def digest_item(work: Work, job: Job) -> Digested:
    """At a worker: what a file is and what its release would take.

    Raises:
        DposeError: it cannot be read, or the config does not fit it.
    """
    work.check_folder()
    original, plan = read_job(job, work.what)
    seed = job_seed(job, 0, work.seed)
    charge = job_charge(job, original, plan, work.what, seed, keep_sound=work.keep_sound)
    return Digested(replace(job, original=original), charge, whole_plan(plan))


def whole_plan(plan: AnyPlan | None) -> str:
    """Digest of a plan whose sums are whole numbers that follow from one picture's pixels; "" of any other."""
    if not isinstance(plan, PixelizationPlan) or not plan.shape.still:
        return ""
    return "" if isinstance(plan.config.regions, PrivateRegions) else settings_digest(plan)


def release_item(work: Work, item: Reserved) -> Written:
    """At a worker: release a file that is reserved.

    Raises:
        DposeError: it is no longer the file that was reserved, this machine would release it otherwise than was
            reserved, or it cannot be read or written.
    """
    work.check_folder()
    job, seed = item.job, job_seed(item.job, 0, work.seed)
    noise = AesNoise(Key.kept(item.secret) if seed is None else Key.from_seed(seed))
    seeded, told = seed is not None, Reservation(item.counted, job.about).told
    with naming(job.source):
        if job.video:
            info, check = probe(job.source), same_file_check(job.source)
            if job.original is not None:
                job.original.check_unchanged(info.path)
            if work.config is None:
                finder = face_finder(work.detector) if work.method == "face-blur" else None
                run, state = obfuscation(info, work.method, seed, finder, work.hold)
            else:
                plan = bind_video(work.config, info, noise)
                _check_plan(plan, item, seeded=seeded)
                run, state = video_work(plan, noise, seeded=seeded, caveats=job.caveats)
            statement = encode_video(
                info,
                job.target,
                run,
                lambda *parts: told(state(*parts)),
                keep_sound=work.keep_sound,
                check=check,
            )
        else:
            assert work.config is not None
            original, pixels, lossy = picture_original(job.source)
            if job.original is not None and job.original.hashes != original.hashes:
                raise DposeError(
                    "file-changed",
                    "was changed while it was to be released",
                    str(job.source),
                    "run the command again",
                )
            plan = bind(work.config, picture_shape(pixels), noise)
            _check_plan(plan, item, seeded=seeded)
            statement = write_picture(job, plan, pixels, noise, told, seeded=seeded, lossy=lossy)
    return Written(statement, tuple(file_digest(path) for path in job.outputs))


def _check_plan(plan: AnyPlan, item: Reserved, *, seeded: bool) -> None:
    """Refuse a plan that was not reserved: real numbers in its choice may fall otherwise on another machine."""
    if item.charge is not None and (
        item.charge.events != charged_events(plan, seeded=seeded)
        or (item.plan and item.plan != whole_plan(plan))
    ):
        raise DposeError(
            "release-differs-here",
            "this machine would release it otherwise than was reserved",
            fix="run the command again",
        )
