"""Counting, from the charge to the folder: nothing is looked at before the account has the day's epsilon.

    count_footage([file_footage(Path("ward.mp4"), Fraction(0))], CountRequest(config), Path("counts"), finder)

**Guarantee.** The day is charged once, at the noise of its plan, before a frame is counted (docs/proofs/odometer.md,
docs/proofs/counts.md); a window is claimed in the account before its noise is drawn, and so shown once or not at all,
whatever is killed, restarted or set back.
"""

from __future__ import annotations

import contextlib
import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import numpy as np

from dpose.account import Charge, State, charge_all, charges, claim_window, committing, last_window
from dpose.errors import DposeError
from dpose.files import check_place, file_digest, folder_beside
from dpose.measure import NUMBERS
from dpose.measure.chunks import chunk_rows, is_own
from dpose.measure.config import CountConfig
from dpose.measure.folder import Count, write_folder
from dpose.measure.plan import CountPlan, Schedule, bind_count
from dpose.measure.statement import count_statement, drowned
from dpose.measure.subjects import Sighting, dropped_chunks
from dpose.measure.windows import Windows, readings, widest
from dpose.media.timed import TimedFrame
from dpose.media.video import frame_times, probe, read_frames
from dpose.pose.people import PeopleFinder
from dpose.pose.postures import Posture, posture_of
from dpose.privacy.marks import Marks
from dpose.privacy.neighbours import Relation
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.ranges import exact_text, upper
from dpose.privacy.sections import NOT_SAID, About
from dpose.privacy.statement import PrivacyStatement
from dpose.release.counting import UNLINKED, alive, has_died, settings_digest
from dpose.release.originals import video_original
from dpose.units import Unit

COUNT = "count"
"""What the account calls a count."""
RELEASED = "numbers by windows of a day"
"""What leaves the building."""


@dataclass(frozen=True)
class CountRequest:
    """What is to be counted of any source.

    Attributes:
        config: The configuration.
        day: Of files, the calendar day.
        again: True to count once more what was counted before; epsilons add up.
        seed: Of files, makes the noise repeatable and takes the guarantee away.
        about: What the statement says of who counts.
        sightings: Of known subjects, in files: who is seen when.
        posture: What a pose is: the rules on angles, or a model of one's own, of which each chunk has a deep copy.
    """

    config: CountConfig
    day: str = "day"
    again: bool = False
    seed: int | None = None
    about: About = NOT_SAID
    sightings: tuple[Sighting, ...] = ()
    posture: Posture = posture_of


@dataclass(frozen=True)
class Footage:
    """One recorded source of a day.

    Attributes:
        name: For the account's readers.
        digest: Of its content.
        marks: What it is for the account.
        begin: When its first frame is taken, seconds since midnight.
        end: When its last one has ended.
        frames: Reads them, in order.
        linked: Whether the account knows each frame of it.
    """

    name: str
    digest: str
    marks: Marks
    begin: Fraction
    end: Fraction
    frames: Callable[[], Iterator[TimedFrame]]
    linked: bool = True


def file_footage(path: Path, begin: Fraction) -> Footage:
    """A video file whose first frame is taken `begin` seconds after midnight; it is decoded once to identify it."""
    info = probe(path)
    original = video_original(info)
    times = frame_times(info)

    def frames() -> Iterator[TimedFrame]:
        original.check_unchanged(path)
        for frame in read_frames(info):
            pixels = frame.pixels.repeat(3, 2) if info.grey else frame.pixels
            yield TimedFrame(begin + frame.pts * info.time_base, pixels)

    end = begin + times[-1] + 1 / info.rate
    return Footage(str(path), original.own[-1], original.marks, begin, end, frames, original.linked)


def count_charge(
    plan: CountPlan, name: str, marks: Marks, folder: Path, *, seeded: bool = False, own_id: str = ""
) -> Charge:
    """What a day's count takes from its sources: of noise from a seed, more than any bound.

    `own_id` is the name of a charge that goes on; another one by default.
    """
    config = plan.config
    return Charge(
        id=own_id or secrets.token_hex(16),
        what=COUNT,
        data=name,
        folder=str(folder.resolve()),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        unit=Unit.STAY,
        relation=Relation.REPLACE,
        delta=config.delta,
        # the account knows stays: of known subjects what those cost that the settings name
        events=() if seeded else plan.events_at(plan.touched_by(config.times, config.visible)),
        beyond=False,
        marks=marks,
        within=f"stays:{config.times}/seconds:{exact_text(config.visible)}",
        settings=settings_digest(config.to_dict(), plan.schedule.to_dict()),
    )


def charge_count(entry: Charge, *, again: bool = False) -> None:
    """Charge a count, unless its footage was counted before.

    Raises:
        DposeError: it was and `again` is not set, a budget would be passed, or the account cannot be read or written.
    """
    seen = [other for other in charges(of=entry.marks) if other.what == COUNT]
    before = [other for other in seen if other.id != entry.id and _may_have_shown(other)]
    if before and not again:
        both = sum(float(event.pure()) for other in (*before, entry) for event in other.events)
        said = f": all together cost epsilon {upper(both)}" if entry.events and math.isfinite(both) else ""
        raise DposeError("counted-before", f"was counted before{said}", entry.data, "leave it, or say --again")
    charge_all([entry], known=[{other.id: other.state for other in seen}])


@contextlib.contextmanager
def charged(entry: Charge, *, again: bool = False) -> Iterator[list[str]]:
    """Charge a count for as long as the block lasts, and commit it at the end; the block adds digests of its output.

    Raises:
        DposeError: as `charge_count`.
    """
    outputs: list[str] = []
    with alive(entry.id):
        charge_count(entry, again=again)
        with committing(entry.id, outputs):
            yield outputs


def _may_have_shown(entry: Charge) -> bool:
    """False for a count that ended without output: each window is shown once it is claimed."""
    return not (entry.state is State.FAILED or has_died(entry)) or last_window(entry.id) >= 0


def count_footage(
    footage: Sequence[Footage],
    request: CountRequest,
    out: Path,
    finder: PeopleFinder,
    progress: Callable[[Fraction], None] = lambda done: None,
    tell: Callable[[str], None] = lambda line: None,
) -> PrivacyStatement:
    """Count recorded footage of one day, and write the folder: all of it, or nothing.

    **Guarantee.** As `dpose.measure.plan`, if the folder alone is shown.

    `progress` receives the seconds of footage that were counted so far, `tell` lines for the terminal. The statement is
    returned sealed.
    """
    check_place(out)
    config, seeded, own = request.config, request.seed is not None, is_own(finder, request.posture)
    if bool(config.subject_chunks) != bool(request.sightings):
        raise DposeError(
            "subjects-missing",
            "known subjects are hidden by labels",
            "--subjects",
            "say --protect subject:K and --subjects FILE",
        )
    if request.sightings and not any(
        one.begin <= footage[one.source].end and one.end >= footage[one.source].begin for one in request.sightings
    ):
        raise DposeError(
            "subjects-outside-footage",
            "no label lies in the footage that it names",
            "--subjects",
            "times are of the day: say with --start when the footage begins, or as seconds after midnight",
        )
    if len({one.digest for one in footage}) < len(footage):
        raise DposeError("source-named-twice", "names the same footage twice", footage[0].name, "name each source once")
    begin, end = min(one.begin for one in footage), max(one.end for one in footage)
    plan = bind_count(config, Schedule(request.day, len(footage), begin, end))
    for line in drowned(plan):
        tell(f"Warning: {line}")
    names = footage[0].name if len(footage) == 1 else f"{footage[0].name} and {len(footage) - 1} more"
    marks = np.unique(np.concatenate([one.marks for one in footage]))
    entry = count_charge(plan, names, marks, out, seeded=seeded)
    with charged(entry, again=request.again) as outputs:
        key = Key.fresh() if request.seed is None else Key.from_seed(request.seed)
        windows, done = Windows(plan, AesNoise(key)), Fraction(0)
        dropped = dropped_chunks(request.sightings, config)
        for number, one in enumerate(footage):
            for chunk, rows in chunk_rows(one.frames(), config, finder, request.posture):
                windows.add(number, chunk, None if (number, chunk) in dropped else rows)
                progress(done + (chunk + 1) * config.chunk - one.begin)
            done += one.end - one.begin
        shown = tuple(windows.release(window) for window in plan.windows)
        statement = count_statement(plan, seeded=seeded, own=own).deployed(request.about, RELEASED)
        if not all(one.linked for one in footage):
            statement = replace(statement, caveats=(*statement.caveats, UNLINKED))
        with folder_beside(out) as folder:
            sealed = write_folder(folder, Count(plan, statement, shown))
            outputs.append(file_digest(folder / NUMBERS))
            claim_window(entry.id, plan.windows[-1])  # from the next moment on it may have been seen
    for line in widest(readings(plan, shown)):
        tell(line)
    return replace(statement, seal=sealed.seal)
