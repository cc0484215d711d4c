"""Every release is counted: reserved in the account before anything is computed, committed when it is complete.

    with reserved_release(release_charge(original, plan, settings, seeded=False), again=False) as count:
        ...                                          # compute
        statement = count.add_to(statement)
        ...                                          # write
        count.outputs += [digest]

What is counted is the picture, by what it shows (`media.identity`), wherever it lies and whatever it is called.

**Guarantee.** docs/proofs/odometer.md, "Releases": of all releases of one picture that the account knows, the statement
of each says how many there were when it was made and what they cost together. A release that was cut short is one of
them. Pictures that are declared public are not counted.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from dpose.account import PIXEL, Charge, State, charge_all, charges, committing, composed, unbounded
from dpose.account.charges import restated
from dpose.errors import DposeError
from dpose.files import fsync_folder, private_folder, take_lock
from dpose.media.identity import LINKED_FRAMES
from dpose.privacy.accounting import added_up
from dpose.privacy.events import ExactEvent, Gaussian, Laplace
from dpose.privacy.keys import state_folder
from dpose.privacy.marks import marks_of
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.ranges import upper
from dpose.privacy.sections import NOT_SAID, About
from dpose.privacy.statement import PrivacyStatement
from dpose.release.linear import LinearPlan, squared_change
from dpose.release.originals import Original
from dpose.release.pixelization import PixelizationPlan
from dpose.release.plans import AnyPlan

RELEASE = "release"
"""What the account calls a release."""
DELTA = 1e-5
"""The delta of costs if no release has a delta of its own, and not all are pure."""
PUBLIC = "the original was declared public: this release is not counted"
UNLINKED = f"the account knows this clip as a whole: of over {LINKED_FRAMES:,} frames none is counted by itself"


def settings_digest(*settings: Any) -> str:
    """Digest of all that decides an output beside original and key: configs, suffixes, seeds; no paths, no key."""
    return hashlib.sha256(repr([_plain(value) for value in settings]).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [value.shape, str(value.dtype), hashlib.sha256(value.tobytes()).hexdigest()]
    if is_dataclass(value):
        return [type(value).__name__, *((part.name, _plain(getattr(value, part.name))) for part in fields(value))]
    return value.__qualname__ if callable(value) else repr(value)


def charged_events(plan: AnyPlan | None, *, seeded: bool) -> tuple[ExactEvent, ...]:
    """The plan's events as the account holds them: exactly what they cost for any number of pixels of the original.

    Each stage's, at the pixels that the claim is about; its points are the powers of two, and the whole picture or
    clip. Discrete Gaussian noise enters by zCDP. There are none if nothing bounds what the release tells.
    """
    if seeded or not isinstance(plan, PixelizationPlan | LinearPlan):
        return ()
    area = plan.shape.pixels * plan.shape.frames
    sizes = [1 << power for power in range(area.bit_length()) if 1 << power < area]
    claimed = claimed_pixels(plan)
    points = zip(*(_events_for(plan, size) for size in (*sizes, area)), strict=True)
    planned = [stage.event for stage in plan.stages] if isinstance(plan, PixelizationPlan) else [plan.event]
    found: list[ExactEvent] = []
    for own, first, others in zip(_events_for(plan, claimed), planned, points, strict=True):
        # as many pixels anywhere change no less than those of every frame, and more no less than fewer, but each bound
        # is rounded by itself
        bound = max(_bound(own), _bound(first))
        near = tuple(zip((*sizes, 0), accumulate(map(_bound, others), max), strict=True))
        found.append(
            replace(own, sensitivity=bound, pixels=claimed, points=near)
            if isinstance(own, Laplace)
            else replace(own, sensitivity_squared=bound, pixels=claimed, points=near)
        )
    return tuple(found)


def _bound(event: ExactEvent) -> Fraction:
    return event.sensitivity if isinstance(event, Laplace) else event.sensitivity_squared


def claimed_pixels(plan: PixelizationPlan | LinearPlan) -> int:
    """How many pixels of the whole original the claim is about: m, or m of every frame together."""
    near = plan.config.neighbours.resolved(plan.shape)
    return near.count * plan.shape.frames if near.scope == "frame" else near.count


def _events_for(plan: PixelizationPlan | LinearPlan, pixels: int) -> tuple[ExactEvent, ...]:
    """The plan's events for any `pixels` pixels of the whole picture or clip.

    **Guarantee.** Each stage's sensitivity for so many pixels of all frames together, with the noise that the stage
    has (docs/proofs/pixelization.md, docs/proofs/video.md).
    """
    if isinstance(plan, PixelizationPlan):
        near = Neighbours.of_pixels(pixels, "picture" if plan.shape.still else "clip")
        return tuple(
            Laplace(stage.event.scale, bound.in_l1())
            if isinstance(stage.event, Laplace)
            else Gaussian(stage.event.variance, bound.l2_squared)
            for stage in plan.stages
            for bound in [plan.sensitivity(stage.name, near)]
        )
    near = Neighbours.of_pixels(pixels, "clip")
    if isinstance(plan.event, Laplace):
        return (Laplace(plan.event.scale, plan.operator.sensitivity(near).in_l1()),)
    return (Gaussian(plan.event.variance, squared_change(plan.operator, plan.clipping, plan.grid, near)),)


def release_charge(
    original: Original, plan: AnyPlan | None, settings: str, *, seeded: bool, target: Path | None = None
) -> Charge:
    """What a release takes from its original, by a plan (None if nothing is claimed) and `settings_digest`.

    A picture of 16 bits counts as one with its 8-bit twin, and neither's finished output is the other's.
    """
    return Charge(
        id=secrets.token_hex(16),
        what=RELEASE,
        data=original.name,
        folder="" if target is None else str(target.resolve()),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        unit=PIXEL,
        relation=Relation.REPLACE,
        delta=plan.config.delta if isinstance(plan, PixelizationPlan | LinearPlan) else 0.0,
        events=charged_events(plan, seeded=seeded),
        beyond=False,
        marks=original.marks,
        area=original.area,
        within=original.within,
        settings=settings_digest(settings, "16 bits") if original.deep else settings,
    )


@dataclass(frozen=True)
class ReleaseHistory:
    """Where the account stands before a release.

    Attributes:
        charge: What the release would take.
        before: All earlier releases of the picture, oldest first.
        copies: Ids of those of the whole picture or clip; the others have only some frames in common with it.
    """

    charge: Charge
    before: tuple[Charge, ...]
    copies: frozenset[str]

    @property
    def states(self) -> dict[str, State]:
        """The states of the earlier releases, by id."""
        return {entry.id: entry.state for entry in self.before}

    @property
    def finished(self) -> list[Charge]:
        """Earlier ones with the same settings whose output is complete."""
        return [entry for entry in self._alike if entry.state is State.COMMITTED]

    @property
    def cut_short(self) -> list[Charge]:
        """Earlier ones with the same settings that ended without output."""
        return [entry for entry in self._alike if entry.state is State.FAILED or has_died(entry)]

    @property
    def _alike(self) -> list[Charge]:
        settings = self.charge.settings
        return [entry for entry in self.before if entry.settings == settings and entry.id in self.copies]

    @property
    def repeats(self) -> bool:
        """True if it would be a second release, and not the end of those that were cut short."""
        return len(self.cut_short) < len(self.before)

    @property
    def number(self) -> int:
        """How many releases there are with this one."""
        return len(self.before) + 1

    @property
    def pixels(self) -> int:
        """Number of pixels that costs are stated for; 0 if nothing bounds this release."""
        return self.charge.events[0].pixels if self.charge.events else 0

    def cost(self) -> tuple[float, float]:
        """Epsilon of all of them together for `pixels` pixels, and the delta that goes with it."""
        return together((*self.before, self.charge), self.pixels)

    def counted(self, *, linked: bool = True) -> ReleaseCount:
        """What a statement says of it; `linked` if a clip's frames are known to the account."""
        first = self.number == 1 and self.charge.events
        epsilon, delta = (0.0, 0.0) if first else self.cost()  # the first one's is what it claims itself
        return ReleaseCount(self.number, epsilon, delta, self.pixels, bool(self.charge.events), linked)

    def words(self) -> str:
        """What this release costs, and what all cost together."""
        if not self.charge.events:
            return "nothing bounds what this release tells (seeded or without noise), nor what all tell together"
        own, _ = together((self.charge,), self.pixels)
        both, delta = self.cost()
        at = f" (delta {upper(delta)})" if delta else ""
        all_of_them = "both" if self.number == 2 else f"all {self.number}"
        if math.isinf(both):
            return f"this release costs epsilon {upper(own)}, and nothing bounds what {all_of_them} tell together"
        return (
            f"this release costs epsilon {upper(own)}, {all_of_them} together cost epsilon {upper(both)} for "
            f"{self.pixels:,} pixels{at}"
        )

    def check(self, *, again: bool) -> None:
        """Refuse a second release that is not allowed.

        Raises:
            DposeError: it is one; says what it costs.
        """
        if again or not self.repeats:
            return
        said = "was released before"
        if any(entry.state is State.RESERVED and not has_died(entry) for entry in self.before):
            said = "is being released by another process"
        if beside := [entry for entry in self.before if not entry.seq]:
            stills = {entry.within for entry in (*beside, self.charge)} == {"image"}
            shared = "shows in 8 bits the same as" if stills else "has frames in common with"
            said = f"{shared} {beside[0].data}, another file of this command"
        times = f" ({len(self.before)} times)" if len(self.before) > 1 else ""
        raise DposeError(
            "released-before",
            f"{said}{times}: {self.words()}",
            self.charge.data,
            "leave it, or say --again (in Python again=True)",
        )


def release_history(charge: Charge, own: Sequence[str] | None = None) -> ReleaseHistory:
    """Where the account stands before `charge`; nothing is recorded.

    Args:
        charge: What the release would take.
        own: The digests that name all of the original (`Original.own`); None if each of its marks does.
    """
    before = tuple(entry for entry in charges(of=charge.marks) if entry.what == RELEASE)
    copies = frozenset(map(attrgetter("id"), before))
    if own is not None and len(own) < len(charge.marks) and any(e.settings == charge.settings for e in before):
        copies &= {entry.id for entry in charges(of=marks_of(own))}
    return ReleaseHistory(charge, before, copies)


def together(entries: Sequence[Charge], pixels: int) -> tuple[float, float]:
    """Epsilon of some releases of one picture together, and the delta that goes with it.

    Pure epsilons add up, and need no delta. Otherwise delta is the largest of the releases' own, and they are composed
    as the odometer composes.

    Args:
        entries: Charges of one picture.
        pixels: How many of its pixels may change.
    """
    if any(unbounded(entry, PIXEL) for entry in entries) or not pixels:
        return math.inf, 0.0
    near = Neighbours.of_pixels(pixels)
    pure = added_up(event.pure() for entry in entries for event in restated(entry, near))
    if math.isfinite(pure):
        return pure, 0.0
    delta = max(entry.delta for entry in entries) or DELTA
    return composed(entries, delta, near), delta


@dataclass(frozen=True)
class ReleaseCount:
    """What a statement says of its original's releases, in plain values.

    Attributes:
        number: How many there are with this one.
        epsilon: Epsilon of all together, infinite if nothing bounds them.
        delta: The delta that goes with it.
        pixels: How many pixels may change for that.
        bounded: True if something bounds this release.
        linked: True if a clip's frames are known to the account.
    """

    number: int
    epsilon: float
    delta: float
    pixels: int
    bounded: bool
    linked: bool = True

    def add_to(self, statement: PrivacyStatement) -> PrivacyStatement:
        """The statement, with how many releases of its original there were and what they cost together."""
        said, found, delta = statement.caveats, self.epsilon, self.delta
        if self.number == 1 and self.bounded:
            # what it claims itself, to the last digit
            assert statement.epsilon is not None
            found, delta = float(statement.epsilon), statement.delta or 0.0
        elif statement.epsilon is not None:
            found = max(found, float(statement.epsilon))
        if self.number > 1:
            said = (*said, repeated_words(self.number, found, delta, self.pixels))
        if not self.linked:
            said = (*said, UNLINKED)
        counted = {
            "releases": str(self.number),
            "epsilon": repr(found),
            "delta": repr(float(delta)),
            "pixels": str(self.pixels),
        }
        return replace(statement, caveats=said, odometer=counted)


@dataclass
class Reservation:
    """A release that is under way.

    Attributes:
        counted: What its statement says; None if the original is public.
        about: What the statement says of who releases it, to whom and what for.
        outputs: SHA-256 of every complete file that it wrote: to be filled in.
    """

    counted: ReleaseCount | None
    about: About = NOT_SAID
    outputs: list[str] = field(default_factory=list)

    def add_to(self, statement: PrivacyStatement) -> PrivacyStatement:
        """The statement, dated, with what is counted; a public original's says that it is not counted."""
        clip = "frames" in statement.release
        statement = statement.deployed(self.about, f"the {'clip' if clip else 'picture'} alone")
        if self.counted is None:
            return replace(statement, caveats=(*statement.caveats, PUBLIC))
        return self.counted.add_to(statement)


def repeated_words(number: int, epsilon: float, delta: float, pixels: int) -> str:
    """What a statement says where the original was released before."""
    head = f"{number} releases of this original are known, with this one; that they show the same is public with this"
    if math.isinf(epsilon):
        return f"{head}: nothing bounds what they tell together"
    at = f" at delta {upper(delta)}" if delta else ""
    return f"{head}: epsilon {upper(epsilon)} together for {pixels:,} pixels{at}"


@contextlib.contextmanager
def reserved_release(
    charge: Charge | None, original: Original | None = None, *, again: bool = False, about: About = NOT_SAID
) -> Iterator[Reservation]:
    """Reserve a release for as long as the block lasts, and commit it at the end.

    If the block ends otherwise, the release stays counted: what had been seen of it by then is unknown.

    Args:
        charge: What it takes (`release_charge`); None if its original is declared public: nothing is counted then.
        original: What is released; None for a picture.
        again: True to allow a second release.
        about: What its statement says of who releases it.

    Yields:
        What there was before.
    """
    if charge is None:
        yield Reservation(None, about)
        return
    found = release_history(charge, original.own if original else None)
    found.check(again=again)
    with alive(charge.id):
        charge_all([charge], known=[found.states])
        count = Reservation(found.counted(linked=original is None or original.linked), about)
        with committing(charge.id, count.outputs):
            yield count


def _lock_of(name: str) -> Path:
    return state_folder() / "releases" / f"{name.partition('-')[0]}.lock"


@contextlib.contextmanager
def alive(name: str) -> Iterator[None]:
    """Tell other processes of this machine that releases are under way; a process that dies tells no more.

    Args:
        name: A charge's id; or what the ids of many begin with, before a hyphen.
    """
    file = _lock_of(name)
    private_folder(file.parent)
    lock = take_lock(file)
    if lock is None:
        raise DposeError("release-busy", "another process is at work on the same release", fix="wait for it, or end it")
    try:
        # durable before the reservation is: without it a reservation whose process died would look alive
        fsync_folder(file.parent)
        yield
    finally:
        # the account says how it ended before the file goes: a file without a holder is one that died
        lock.release()
        with contextlib.suppress(OSError):
            file.unlink()


def has_died(entry: Charge) -> bool:
    """True if a reservation's process has died. One of another machine is taken to live."""
    if entry.state is not State.RESERVED or not (file := _lock_of(entry.id)).exists():
        return False
    lock = take_lock(file)
    if lock is None:
        return False
    lock.release()
    return True
