"""From indices to batches: units decoded in threads, grouped by their number of views, in micro-batches."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from dpose.errors import DposeError
from dpose.privacy.noise import NoiseSource, Purpose
from dpose.units import MAX_VIEWS, Task, UnitBatch, UnitDataset, View, WrappedUnits, pad_units, view_bucket


class Loader:
    """Loads the units of a sample, ahead of their use.

    The randomness of a unit's augmentation depends on the key, the step and the unit, not on which other units were
    drawn: a neighbour's presence changes nothing but its own contribution.

    A `label` keeps the draws of several loaders of one run apart.

    Attributes:
        waited: Seconds that a step has waited for units so far. For the terminal alone: of private data, time tells.
    """

    def __init__(
        self, task: Task, dataset: UnitDataset, noise: NoiseSource, threads: int = 2, label: bytes = b""
    ) -> None:
        self.task, self.dataset, self.noise, self.label = task, dataset, noise, label
        self._pool = ThreadPoolExecutor(max(1, threads), thread_name_prefix="dpose-load")
        self.threads, self._ahead = threads, 4 * max(1, threads)
        self.waited = 0.0

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def unit(self, index: int, step: int) -> list[View]:
        """The views of one unit as step `step` sees them, at most `MAX_VIEWS` of them."""
        context = index.to_bytes(8, "big") + self.label
        rng = self.noise.stream(Purpose.AUGMENT, step, context).generator()
        views = self.dataset.load(index, rng)
        if len(views) > MAX_VIEWS:
            views = [views[i] for i in sorted(rng.choice(len(views), MAX_VIEWS, replace=False))]
        return views

    def units(self, indices: Sequence[int], step: int, ahead: int = 0) -> Iterator[list[View]]:
        """The units in order; a bounded number is decoded ahead: some a thread, and `ahead` more."""
        waiting: deque[Future[list[View]]] = deque()
        for index in indices:
            waiting.append(self._pool.submit(self.unit, int(index), step))
            if len(waiting) > self._ahead + ahead:
                yield self._next(waiting)
        while waiting:
            yield self._next(waiting)

    def _next(self, waiting: deque[Future[list[View]]]) -> list[View]:
        began = time.perf_counter()
        views = waiting.popleft().result()
        self.waited += time.perf_counter() - began
        return views

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

        pending: dict[int, list[list[View]]] = {}
        # while one micro-batch is computed the next is decoded, whole
        for views in self.units(indices, step, ahead=microbatch_size):
            bucket = view_bucket(len(views))
            group = pending.setdefault(bucket, [])
            group.append(views)
            if len(group) >= room(bucket):
                yield self.task.collate(pending.pop(bucket))
        for bucket, group in pending.items():
            batch = self.task.collate(group)
            yield pad_units(batch, room(bucket)) if padded else batch


class Copies(WrappedUnits):
    """The units of `dataset`, each with `count` augmented copies of its views: augmentation multiplicity.

    The unit's gradient is the mean over all of them and is clipped once, so copies cost time and no noise (De et al.
    2022). Of a unit with more than `MAX_VIEWS` of them the loader takes a random `MAX_VIEWS`.

    Raises:
        DposeError: `count` is out of range.
    """

    def __init__(self, dataset: UnitDataset, count: int) -> None:
        if not 1 <= count <= MAX_VIEWS:
            raise DposeError(
                "augmentation-multiplicity-out-of-range",
                f"a unit has 1 to {MAX_VIEWS} augmented copies, not {count}",
            )
        super().__init__(dataset)
        self.count = count

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """`count` loads of the unit, one after the other."""
        return [view for _ in range(self.count) for view in self.dataset.load(index, rng)]
