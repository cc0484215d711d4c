"""Faults of counts: chunks that are missed, ranges not kept, noise for too few, windows that are shown twice."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from mutants.planted.patches import Patches, Planted

MOVES = "measure/test_sensitivity.py::test_no_neighbours_move_further_and_some_as_far"
KNOWN = "measure/test_sensitivity.py::test_no_known_subject_moves_further_than_k_chunks"
CHUNKS = "measure/test_chunks.py"
WINDOWS = "measure/test_windows.py"
COUNTER = "measure/test_counter.py"
LIVE = "measure/test_live.py"


def touched(change: Callable[..., int]) -> Callable[[Patches], None]:
    """Another number of touched chunks."""
    return lambda patch: patch.replace("dpose.privacy.stays:touched_chunks", lambda _: change)


def levels_for_nothing(patch: Patches) -> None:
    """The tree's noise is that of one level."""
    for name in ("in_l1", "in_l2_squared"):
        patch.argument(f"dpose.privacy.stays:Moved.{name}", "levels", lambda _: 1)


def whole_subjects(patch: Patches) -> None:
    """All chunks of known subjects are counted."""
    patch.replace("dpose.measure.subjects:dropped_chunks", lambda _: lambda sightings, config: frozenset())


def leadless_subjects(patch: Patches) -> None:
    """A chunk is not a subject's whose lead-in alone sees the subject."""
    patch.argument(
        "dpose.measure.subjects:dropped_chunks",
        "sightings",
        lambda sightings: [replace(one, end=max(one.begin, one.end - 2)) for one in sightings],
    )


def subjects_take_turns(patch: Patches) -> None:
    """A chunk of several subjects is counted if any of them has room."""
    patch.seen_by("dpose.measure.subjects", "any", lambda _: all)


def cheaper(event: Any, share: int) -> Any:
    """The event with as many times less noise."""
    named = "scale" if hasattr(event, "scale") else "variance"
    return replace(event, **{named: getattr(event, named) / share})


def whole_budget_each(patch: Patches) -> None:
    """Each query gets the whole budget, as if queries cost nothing together."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def mechanism(self: Any, name: str, touched: int) -> Any:
            event = original(self, name, touched).event
            return replace(original(self, name, touched), event=cheaper(event, len(self.config.queries)))

        return mechanism

    patch.replace("dpose.measure.plan:CountPlan._mechanism", make)


def one_stay_a_window(patch: Patches) -> None:
    """Parallel composition within a day: noise for the chunks of one window alone."""
    patch.result("dpose.privacy.stays:Moved.in_l1", lambda l1, self, touched, levels=1: self.l1 * min(touched, 2))


def one_stream(patch: Patches) -> None:
    """All windows have the noise of the first."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def noised(self: Any, sums: Any, source: Any, place: int, level: int) -> Any:
            return original(self, sums, type(source)(source._key), 0, level)

        return noised

    patch.replace("dpose.measure.plan:Mechanism.noised", make)


def one_stream_for_levels(patch: Patches) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def noised(self: Any, sums: Any, source: Any, place: int, level: int) -> Any:
            return original(self, sums, type(source)(source._key), place, 0)

        return noised

    patch.replace("dpose.measure.plan:Mechanism.noised", make)


def unclamped(patch: Patches) -> None:
    """Rows are added as they are."""
    import numpy as np

    def clamped(self: Any, row: Any) -> Any:
        values = row or [0] * self.query.width
        return np.array([sum(values)] if self.frame_most else list(values)[: self.query.width], np.int64)

    patch.replace("dpose.measure.plan:Mechanism.clamped", lambda _: clamped)


def told_failure(patch: Patches) -> None:
    """A chunk that fails ends the count."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def rows(self: Any) -> Any:
            if self._failed:
                raise RuntimeError("a chunk failed")
            return original(self)

        return rows

    patch.replace("dpose.measure.chunks:ChunkWork.rows", make)


def shared_finder(patch: Patches) -> None:
    """One finder for all chunks."""
    patch.seen_by("dpose.measure.chunks", "copy.deepcopy", lambda _: lambda finder: finder)


def shallow_copies(patch: Patches) -> None:
    """What a finder or a posture model keeps in a list is one for all chunks."""
    patch.seen_by("dpose.measure.chunks", "copy.deepcopy", lambda _: copy.copy)


def chunks_by_number(patch: Patches) -> None:
    """Chunks are cut by the number of frames, as if none was ever missing."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def sampled(frames: Any, rate: Any) -> Any:
            for number, frame in enumerate(original(frames, rate)):
                yield replace(frame, time=Fraction(number) / rate)

        return sampled

    patch.replace("dpose.media.timed:sampled", make)


def late_chunks_eat_the_next(patch: Patches) -> None:
    """A deadline that one chunk has used up is used up for the next."""
    spent = [0.0]

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def add(self: Any, frame: Any) -> None:
            self._spent = spent[0]
            original(self, frame)
            spent[0] = self._spent

        return add

    patch.replace("dpose.measure.chunks:ChunkWork.add", make)


def uncharged(patch: Patches) -> None:
    """Footage is counted first and charged after."""
    import contextlib

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @contextlib.contextmanager
        def charged(entry: Any, *, again: bool = False) -> Any:
            outputs: list[str] = []
            yield outputs
            with original(entry, again=again) as found:
                found += outputs

        return charged

    patch.replace("dpose.measure.counter:charged", make)


def claimed_again(patch: Patches) -> None:
    """Any window may be claimed."""
    patch.nothing("dpose.account.budgets:claim_window", returned=True)


def every_frame(patch: Patches) -> None:
    """All frames are looked at, of which a range for the rate's frames knows nothing."""
    patch.replace("dpose.media.timed:sampled", lambda _: lambda frames, rate: iter(frames))


def lead_from_yesterday(patch: Patches) -> None:
    """A chunk is counted in the chunk before it, too."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def add(self: Any, source: int, chunk: int, rows: Any) -> None:
            last = self._last.get(source, -1)
            original(self, source, chunk, rows)
            if last < chunk - 1 and chunk:
                self._last[source] = last
                original(self, source, chunk - 1, rows)
                self._last[source] = chunk

        return add

    patch.replace("dpose.measure.windows:Windows.add", make)


def told_load(patch: Patches) -> None:
    """Gaps are told where the detector is slow."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def gaps(self: Any, begin: Any, end: Any) -> Any:
            return (*original(self, begin, end), (0.0, float(self.frames.qsize() + 3)))

        return gaps

    patch.replace("dpose.media.live:Transport.gaps", make)


def no_deadline(patch: Patches) -> None:
    """A live chunk may take as long as it likes, so that the next ones are late."""
    patch.replace("dpose.measure.config:CountConfig.live_deadline", lambda _: property(lambda config: Fraction(3600)))


def looked_at_early(patch: Patches) -> None:
    """Frames of a day are looked at before it is charged."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda one, **given: original(one, **{name: v for name, v in given.items() if name != "pixels"})

    patch.replace("dpose.measure.live:replace", make)


def unchecked_statement(patch: Patches) -> None:
    """A statement is believed."""

    def believed(statement: Any, where: str) -> Any:
        config = patch.get("dpose.measure.config:CountConfig").read(statement.release["count"], where)
        schedule = patch.get("dpose.measure.plan:Schedule").read(statement.release["schedule"], where)
        return patch.get("dpose.measure.plan:bind_count")(config, schedule)

    patch.replace("dpose.measure.statement:check_recorded_count", lambda _: believed)


def halved_relation(patch: Patches) -> None:
    """In the account, stays that are twice as long cost the same."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def restated(entry: Any, requested: Any) -> Any:
            return entry.events if entry.unit == "stay" else original(entry, requested)

        return restated

    patch.replace("dpose.account.charges:restated", make)


MEASURE = (
    Planted(
        "a stay touches no chunk but those that it fills",
        touched(lambda times, visible, lead, chunk: times * -(-(visible + lead) // chunk)),
        (MOVES, "measure/test_sensitivity.py::test_chunks_that_one_stay_touches"),
    ),
    Planted(
        "a lead-in sees no stay",
        touched(lambda times, visible, lead, chunk: times * (-(-visible // chunk) + 1)),
        (MOVES,),
    ),
    Planted(
        "one stay for all", touched(lambda times, visible, lead, chunk: -(-(visible + lead) // chunk) + 1), (MOVES,)
    ),
    Planted("all of a known subject is counted", whole_subjects, (KNOWN, COUNTER)),
    Planted("a known subject is not seen in lead-ins", leadless_subjects, (KNOWN,)),
    Planted("a chunk of two subjects counts for one", subjects_take_turns, (KNOWN,)),
    Planted("windows of a day compose in parallel", one_stay_a_window, (MOVES,)),
    Planted(
        "a histogram only loses",
        lambda patch: patch.replace(
            "dpose.privacy.stays:Moved.of_histogram", lambda _: lambda cls, rows: cls(rows, rows**2)
        ),
        (MOVES, "measure/test_sensitivity.py::test_a_histogram_loses_and_gains"),
    ),
    Planted(
        "changes in one window do not add up",
        lambda patch: patch.replace("dpose.privacy.stays:fullest", lambda _: lambda size, count: count),
        (MOVES, "measure/test_sensitivity.py::test_fullest_windows"),
    ),
    Planted("a tree costs one level", levels_for_nothing, (MOVES,)),
    Planted(
        "queries share no budget",
        whole_budget_each,
        ("measure/test_sensitivity.py::test_the_day_costs_its_epsilon_once",),
    ),
    Planted("a row is not clamped", unclamped, (MOVES, WINDOWS)),
    Planted("all windows have one noise", one_stream, (WINDOWS,)),
    Planted("all levels of the tree have one noise", one_stream_for_levels, (WINDOWS,)),
    Planted(
        "a window may be noised twice",
        lambda patch: patch.seen_by("dpose.privacy.noise", "ONCE", lambda once: once - {"count"}),
        (WINDOWS,),
    ),
    Planted("a chunk that fails is told", told_failure, (CHUNKS,)),
    Planted("a finder goes on from chunk to chunk", shared_finder, (CHUNKS,)),
    Planted("a posture model's memory goes on from chunk to chunk", shallow_copies, (CHUNKS,)),
    Planted("chunks are cut by the number of frames", chunks_by_number, (CHUNKS,)),
    Planted("every frame is looked at", every_frame, (CHUNKS,)),
    Planted("one chunk is late for another", late_chunks_eat_the_next, (CHUNKS,)),
    Planted("a chunk is counted twice", lead_from_yesterday, (WINDOWS,)),
    Planted("a count is charged after", uncharged, (COUNTER,)),
    Planted("a window is claimed again", claimed_again, (LIVE,)),
    Planted("a gap is told for load", told_load, (LIVE,)),
    Planted("a live chunk has no deadline", no_deadline, (LIVE,)),
    Planted("a day is looked at before its charge", looked_at_early, (LIVE,)),
    Planted("a count's statement is believed", unchecked_statement, (COUNTER,)),
    Planted("longer stays cost the same in the account", halved_relation, (COUNTER,)),
)
