"""From indices to batches: units decoded in threads, grouped by their number of views, in micro-batches."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from itertools import chain, islice
from typing import TypeVar

import numpy as np

from dpose.errors import DposeError
from dpose.privacy.noise import NoiseSource, Purpose
from dpose.training.kept import KeptPictures
from dpose.units import (
    MAX_VIEWS,
    Draw,
    Task,
    UnitBatch,
    UnitDataset,
    UnmadeView,
    View,
    Warps,
    WrappedUnits,
    pad_units,
    some_of,
    view_bucket,
    views_of,
)

T = TypeVar("T")


class Loader:
    """Loads the units of a sample, ahead of their use.

    The randomness of a unit's augmentation depends on the key, the step and the unit, not on which other units were
    drawn: a neighbour's presence changes nothing but its own contribution.

    A `label` keeps the draws of several loaders of one run apart.

    Attributes:
        kept: Pictures of the units, or of those that they are combinations of, on a device, where views are made.
        waited: Seconds that a step has waited for units so far. For the terminal alone: of private data, time tells.
    """

    def __init__(
        self,
        task: Task,
        dataset: UnitDataset,
        noise: NoiseSource,
        threads: int = 2,
        label: bytes = b"",
        kept: KeptPictures | None = None,
    ) -> None:
        self.task, self.dataset, self.noise, self.label, self.kept = task, dataset, noise, label, kept
        self._pool = ThreadPoolExecutor(max(1, threads), thread_name_prefix="dpose-load")
        self.threads, self._ahead = threads, 4 * max(1, threads)
        self.waited = 0.0

    def close(self) -> None:
        """Stop the threads, and let go of pictures."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.kept = None

    def unit(self, index: int, step: int) -> list[View]:
        """The views of one unit as step `step` sees them, at most `MAX_VIEWS` of them."""
        rng = self._generator(index, step)
        return some_of(self.dataset.load(index, rng), lambda: rng)

    def _generator(self, index: int, step: int) -> np.random.Generator:
        context = index.to_bytes(8, "big") + self.label
        return self.noise.stream(Purpose.AUGMENT, step, context).generator()

    def _draw(self, index: int, step: int) -> Draw:
        return cache(partial(self._generator, index, step))

    def units(self, indices: Sequence[int], step: int, ahead: int = 0) -> Iterator[list[View]]:
        """The units in order; a bounded number is decoded ahead, from now on: some a thread, and `ahead` more."""
        jobs = (partial(self.unit, int(index), step) for index in indices)
        return self._done(jobs, self._ahead + ahead)

    def _done(self, jobs: Iterable[Callable[[], T]], ahead: int) -> Iterator[T]:
        """Results in order, so many of them begun ahead, the first ones now."""
        coming = iter(jobs)
        waiting = deque(self._pool.submit(job) for job in islice(coming, ahead))

        def found() -> Iterator[T]:
            for job in coming:
                waiting.append(self._pool.submit(job))
                yield self._next(waiting)
            while waiting:
                yield self._next(waiting)

        return found()

    def _next(self, waiting: deque[Future[T]]) -> T:
        began = time.perf_counter()
        found = waiting.popleft().result()
        self.waited += time.perf_counter() - began
        return found

    def micro_batches(
        self, indices: Sequence[int], step: int, microbatch_size: int, *, padded: bool = False
    ) -> Iterator[UnitBatch]:
        """Every unit of `indices` exactly once, in batches of units with like numbers of views.

        A large sample makes more micro-batches; none is cut short. An empty sample makes none.

        Args:
            indices: The sampled units.
            step: The step, for augmentation.
            microbatch_size: How many (padded) views a micro-batch may hold; at least one unit goes in.
            padded: Fill those that are not full with empty units: whatever was sampled, a unit with so many views is
                computed in a batch of one and the same shape.
        """

        def room(bucket: int) -> int:
            return max(1, microbatch_size // bucket)

        def filled(group: Sequence[Sequence[object]]) -> int:
            """The units of a group's batch."""
            return room(view_bucket(max(map(len, group)))) if padded else len(group)

        kept = self.kept
        if kept is None:  # while a micro-batch is computed the next is decoded, whole
            for group in _grouped(self.units(indices, step, ahead=microbatch_size), len, room):
                batch, units = self.task.collate(group), filled(group)
                yield pad_units(batch, units) if units > len(group) else batch
            return
        ready, others = _parted(indices, kept)
        batches = self._kept_batches(kept, ready, step, room, filled)
        first = list(islice(batches, 1))  # what it takes is planned before others are read
        # while all that are kept are computed, the first others are read
        reads = (partial(kept.brought, self.dataset, index, self._draw(index, step)) for index in others)
        brought = self._done(reads, self._ahead + microbatch_size)
        yield from chain(first, batches)
        for unkept in _grouped(brought, lambda unit: len(unit[0]), room):
            looks = [own for own, _ in unkept]
            there = kept.holding([part for _, parts in unkept for part in parts])
            yield there.batch(looks, there.plan(looks), filled(looks))

    def _kept_batches(
        self,
        kept: KeptPictures,
        indices: Sequence[int],
        step: int,
        room: Callable[[int], int],
        filled: Callable[[Sequence[Sequence[object]]], int],
    ) -> Iterator[UnitBatch]:
        """`micro_batches` of units whose pictures are on the device: what is drawn is drawn ahead, in a thread."""
        looks = (kept.looks(self.dataset, index, self._draw(index, step)) for index in indices)
        found = _grouped(looks, len, room)

        def planned() -> tuple[list[list[UnmadeView]], Warps] | None:
            group = next(found, None)
            return (group, kept.plan(group)) if group else None

        # one job at a time: they go on with one generator
        following = self._pool.submit(planned)
        while ready := self._next(deque([following])):
            following = self._pool.submit(planned)
            group, warps = ready
            yield kept.batch(group, warps, filled(group))


def _grouped(units: Iterable[T], views: Callable[[T], int], room: Callable[[int], int]) -> Iterator[list[T]]:
    """Groups of units with like numbers of views, each as soon as it is full, and then those that are not."""
    pending: dict[int, list[T]] = {}
    for unit in units:
        bucket = view_bucket(views(unit))
        group = pending.setdefault(bucket, [])
        group.append(unit)
        if len(group) >= room(bucket):
            yield pending.pop(bucket)
    yield from pending.values()


def _parted(indices: Sequence[int], kept: KeptPictures) -> tuple[list[int], list[int]]:
    """The units of a sample whose pictures are kept, and all others."""
    ready = [int(i) for i in indices if i in kept.units]
    return ready, [int(i) for i in indices if i not in kept.units]


class Copies(WrappedUnits):
    """The units of `dataset`, each with `count` augmented copies of its views: augmentation multiplicity.

    The unit's gradient is the mean over all of them and is clipped once, so copies cost time and no noise (De et al.
    2022). Of a unit with more than `MAX_VIEWS` of them the loader takes a random `MAX_VIEWS`.
    """

    def __init__(self, dataset: UnitDataset, count: int) -> None:
        if not 1 <= count <= MAX_VIEWS:
            raise DposeError(
                "augmentation-multiplicity-out-of-range", f"a unit has 1 to {MAX_VIEWS} augmented copies, not {count}"
            )
        super().__init__(dataset)
        self.count = count

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """`count` loads of the unit, one after the other."""
        return views_of(self, index, rng)

    def entries(self, index: int, draw: Draw | None = None) -> Sequence[int]:
        """See `dpose.units.CombinedUnits`."""
        return [index] * self.count
