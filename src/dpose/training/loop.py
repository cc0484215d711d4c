"""The steps of one run, from the first to the last: reserved, taken, committed, logged, scored and saved."""

from __future__ import annotations

import contextlib
import hashlib
import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dpose.account.reservations import CountedSteps, LedgerTakenError
from dpose.errors import DposeError
from dpose.privacy.events import SampledGaussian
from dpose.privacy.rounding import upper
from dpose.training.checkpoint import Checkpoint, apply_checkpoint, save_checkpoint
from dpose.training.folder import NoLog
from dpose.training.gradients import Params, trainable_params
from dpose.training.optim import OptimizerConfig, weight_average
from dpose.training.reproducibility import digest_of
from dpose.training.step import GradientSources
from dpose.training.subspace import Subspace
from dpose.training.validation import Validation, metric_of_views, moments, spent_by

BLOCKS = 20
"""A run reserves its steps in this many blocks; a crash spends what is left of one."""
CHECKPOINT_UNITS = 2_048
"""A block's end is a checkpoint if so many units are expected to have been sampled since the last one: a crash costs
this much work at the most, or a block. The plan decides and no clock does: a step over many units takes longer, so that
a checkpoint that lay where the time was up would tell how many there were."""


def checkpoint_steps(ends: Sequence[int], expected_batch_size: float) -> set[int]:
    """The steps after which a run is saved: the last one, and before it those that lie `CHECKPOINT_UNITS` apart.

    **Guarantee.** A function of the plan: neither time nor data decide which checkpoint survives.
    """
    saved, last = {ends[-1]}, 0
    for end in ends:
        if (end - last) * expected_batch_size >= CHECKPOINT_UNITS:
            saved.add(end)
            last = end
    return saved


TAKEN = -1
"""In place of how many steps were reserved: another copy of the run goes on under its key."""


class Ended(IntEnum):
    """Why a run's steps ended; where processes differ, the highest holds for all."""

    FINISHED = 0
    BUDGET = 1
    """Steps were counted twice, and one more would pass what the plan claims."""
    ASKED = 2
    """By Ctrl-C, or by the system."""


class TrainingDivergedError(DposeError):
    """What may be shown of a step is not finite any more: the noised gradients say so, and nothing private does."""


class ReplayError(Exception):
    """Under this key the run cannot go on.

    A step that was taken before came out otherwise, and nothing of the new one was shown; or another copy of the run
    has gone on.
    """


class Loop:
    """The state of one run between its first and its last step.

    The model of `parts` is trained in place. `before` are events that count beside the run's own: those of runs that
    its first weights come from. A trial is not `priced`: it costs what all trials do, so no epsilon stands beside its
    scores.

    Attributes:
        chain: Digest of all that the next step's draws depend on besides key, plan, data and what it is computed at:
            first weights, surroundings, and of every step before what it was computed at and its update. None for draws
            that depend on nothing else, which is for seeded keys.
        taken: Digests of the updates of steps that were taken under this key before, by step.
        seconds: That steps have taken in this process.
    """

    def __init__(
        self,
        parts: GradientSources,
        optimizer: OptimizerConfig,
        folder: Path,
        config: Mapping[str, Any],
        console: Console,
        watch: Validation | None = None,
        before: Sequence[SampledGaussian] = (),
        priced: bool = True,
    ) -> None:
        self.priced = priced
        self.parts, self.folder, self.config, self.console = parts, folder, config, console
        self.watch, self.before = watch, tuple(before)
        self.model, self.bound, self.ranks = parts.inputs.model, parts.bound, parts.inputs.ranks
        self.params = trainable_params(self.model)
        self.leaves = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer, self.schedule = optimizer.build(self.leaves, self.bound.steps)
        plan = self.bound.plan
        self.average = weight_average(self._followed(), plan.ema_decay, plan.average_last, self.bound.steps)
        self.chain: bytes | None = None
        self._basis: tuple[Subspace | None, bytes] = (None, b"")
        self.taken: Mapping[int, str] = {}
        self.done = 0
        self.seconds = 0.0

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take up the state that a checkpoint holds.

        Raises:
            DposeError: it belongs to another plan or another model.
        """
        if checkpoint.plan_sha256 != self.bound.sha256:
            raise DposeError(
                "checkpoint-of-other-plan",
                "the checkpoint is of another plan, or of another number of units",
                str(self.folder),
            )
        followed = self._followed()
        average = self.average.values if self.average else {}
        apply_checkpoint(checkpoint, followed, average, self.optimizer, self.schedule)
        if self.average:
            self.average.updates = checkpoint.average_updates
        self.done = checkpoint.step
        if self.chain is not None and checkpoint.chain:
            self.chain = checkpoint.chain
        device = self.parts.inputs.device
        subspace = checkpoint.subspace and checkpoint.subspace.to(device)
        state = {name: value.to(device) for name, value in checkpoint.method.items()}
        self.parts.resume_at(self.done, subspace, checkpoint.fitted, state)

    def run(self, log: NoLog, counted: CountedSteps | None) -> Ended:
        """All steps that are left, block by block.

        Returns:
            Why it ended.

        Raises:
            ReplayError: see there; the state is that of a step which must not be used.
        """
        bound = self.bound
        block = math.ceil(bound.steps / BLOCKS)
        ends = [min(end, bound.steps) for end in range(block, bound.steps + block, block)]
        saved = checkpoint_steps(ends, bound.divisor)
        scored = moments(ends) if self.watch else []
        spent: dict[int, float | None] = dict.fromkeys([0, *scored])
        if self.watch and self.priced:
            spent = spent_by(bound, [0, *scored], self.before)
        if self.watch and not self.done:
            self._score(0, spent[0], log)
        with _interruptible() as requested, self._progress() as bar:
            while self.done < bound.steps:
                count = min(block - self.done % block, bound.steps - self.done)
                if counted:
                    count = self._reserve(counted, count)  # before anything is sampled
                count = -self.ranks.highest(-count if self.ranks.first else -bound.steps)
                if count == TAKEN:
                    raise ReplayError("another copy of this run goes on under its key")
                if not count:
                    return Ended.BUDGET
                first, ended = self.done, Ended.FINISHED
                while self.done < first + count and not ended:
                    began = time.perf_counter()
                    self._step(self.done, log)
                    self.seconds += time.perf_counter() - began
                    self.done += 1
                    bar.update(bar.task_ids[0], completed=self.done)
                    ended = Ended(self.ranks.highest(Ended.ASKED if requested() else Ended.FINISHED))
                if counted and self.done > first:
                    log.flush()  # a committed step whose line is lost could not be compared when it is taken again
                    counted.commit(first, self.done - first)
                if self.done in scored:
                    self._score(self.done, spent[self.done], log)
                if self.done in saved or ended:
                    self.save(counted.head if counted else "", log)
                if ended and self.done < bound.steps:
                    return ended
        return Ended.FINISHED

    @property
    def pace(self) -> str:
        """How long steps took and waited for data: for the terminal alone, since of private data time tells."""
        share = self.parts.waited / self.seconds if self.seconds else 0.0
        return f"Steps took {self.seconds:,.0f} s, of which {share:.0%} was waiting for units to be read."

    def _reserve(self, counted: CountedSteps, count: int) -> int:
        """Reserve the next `count` steps, or as many as the plan's claim has room for; how many, or `TAKEN`."""
        assert self.bound.event is not None
        try:
            return counted.reserve(self.bound.event, self.done, count)
        except LedgerTakenError:
            return TAKEN

    def _drawn_at(self) -> bytes:
        """What sample and noise of the next step depend on besides key, plan and data, the same in every process.

        The chain, and what the step's sum is computed at: weights, what the method keeps, the subspace. After another
        past, or at other weights after the same past, a step has draws that were never used.
        """
        if self.chain is None or self.bound.event is None or not self.ranks.first:
            return self.ranks.bytes_from_first(self.chain or b"")
        projection = self.parts.projection
        subspace = projection.subspace if projection else None
        if subspace is not self._basis[0]:
            self._basis = (subspace, digest_of(subspace.basis) if subspace else b"")
        kept = {f"the method's {name}": value for name, value in self.parts.state.items()}
        at = hashlib.sha256(self.chain + digest_of({**self.params, **kept}) + self._basis[1])
        return self.ranks.bytes_from_first(at.digest())

    def _step(self, step: int, log: NoLog) -> None:
        drawn_at = self._drawn_at()
        gradient, found = self.parts.gradient(self.params, step, drawn_at)
        update = digest_of(gradient).hex() if self.bound.event else ""
        if self.ranks.highest(int(self.taken.get(step, update) != update)):
            raise ReplayError("an update came out otherwise")
        shown = {"lr": float(self.schedule.get_last_lr()[0]), **found.shown}
        if not all(math.isfinite(v) for v in shown.values()):
            raise TrainingDivergedError(
                "training-diverged", f"training diverged at step {step + 1}", fix="lower the learning rate"
            )
        for leaf, name in zip(self.leaves, self.params, strict=True):
            leaf.grad = gradient[name]
        self.optimizer.step()
        self.schedule.step()
        if self.average:
            self.average.update(self._followed())
        if self.chain is not None:
            self.chain = hashlib.sha256(drawn_at + bytes.fromhex(update)).digest()
        if step in self.taken:
            return  # its lines are in the log
        log.write("step", step=step + 1, **shown, **({"update": update} if update else {}))
        if found.diagnostics:
            log.write("diagnostics", step=step + 1, **found.diagnostics)

    def _score(self, step: int, spent: float | None, log: NoLog) -> None:
        """Score the watched data with the weights that would be released now."""
        if not (self.watch and self.ranks.first):
            return
        live = {name: p.detach().clone() for name, p in self._followed().items()} if self.average else {}
        self.load_average()
        task = self.watch.task or self.parts.inputs.task
        result = metric_of_views(task, self.model, self.watch.units, console=Console(quiet=True))
        with torch.no_grad():
            for name, value in self._followed().items():
                if name in live:
                    value.copy_(live[name])
        log.write(
            "score",
            step=step,
            data=self.watch.name,
            public=self.watch.public,
            epsilon=spent,
            result=result.to_dict(),
        )

    def _followed(self) -> Params:
        """What training changes: the parameters; without a guarantee also BatchNorm's running statistics."""
        if self.bound.event is not None:
            return self.params
        saved = self.model.state_dict()
        buffers = {n: b for n, b in self.model.named_buffers() if b.is_floating_point() and n in saved}
        return {**self.params, **buffers}

    def save(self, head: str, log: NoLog | None = None) -> None:
        """Write a checkpoint, and make the log as durable as it."""
        if not self.ranks.first:
            return
        if log:
            log.flush()
        projection = self.parts.projection
        save_checkpoint(
            self.folder,
            Checkpoint(
                step=self.done,
                weights=self._followed(),
                average=self.average.values if self.average else {},
                average_updates=self.average.updates if self.average else 0,
                optimizer=self.optimizer.state_dict(),
                schedule=self.schedule.state_dict(),
                ledger_head=head,
                plan_sha256=self.bound.sha256,
                chain=self.chain or b"",
                subspace=projection.subspace if projection else None,
                fitted=projection.fitted if projection else 0,
                method=self.parts.state,
            ),
        )

    @torch.no_grad()
    def load_average(self) -> None:
        """Put the averaged weights, where there are some, into the model."""
        if self.average:
            live = self._followed()
            for name, value in self.average.values.items():
                live[name].copy_(value)

    def _progress(self) -> Progress:
        plan = self.bound.plan
        claim = f" epsilon {upper(self.bound.epsilon)}" if self.bound.epsilon is not None else ""
        bar = Progress(
            TextColumn(f"{plan.method}{claim}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self.console,
            expand=False,
            disable=not self.ranks.first,
        )
        bar.add_task("steps", total=self.bound.steps, completed=self.done)
        return bar


@contextlib.contextmanager
def _interruptible() -> Iterator[Any]:
    """Turns the first Ctrl-C, SIGTERM or SIGUSR2 into a request, seen at the next step boundary; a second one stops."""
    requested = threading.Event()
    # a cluster warns of a job's time limit by a signal of the user's choice: SIGUSR2 by custom, which Windows lacks
    signals = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGUSR2", signal.SIGTERM))

    def note(signum: int, frame: FrameType | None) -> None:
        requested.set()
        signal.signal(signum, previous[signal.Signals(signum)])

    if threading.current_thread() is not threading.main_thread():
        yield requested.is_set
        return
    previous = {signum: signal.signal(signum, note) for signum in signals}
    try:
        yield requested.is_set
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
