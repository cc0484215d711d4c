"""One run and its steps: reserved, sampled, summed, noised, taken, logged, committed, scored and saved.

    reserve (`Run.take_steps`) -> sample -> sum -> noise (`step.private_gradient`) -> update -> log (`Run._step`)
    -> commit, score, save (`Run.take_steps`)

Which key the steps are taken under, and which of them are left, is settled in `dpose.training.resume`.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from types import FrameType
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dpose.account.budgets import CountedSteps, LedgerTakenError
from dpose.errors import DposeError
from dpose.privacy.keys import StoredKey
from dpose.privacy.noise import Key
from dpose.privacy.ranges import upper
from dpose.privacy.sections import Query
from dpose.privacy.statement import PrivacyStatement
from dpose.training.charging import RunCharges, RunData
from dpose.training.checkpoint import Checkpoint, apply_checkpoint, save_checkpoint
from dpose.training.folder import NoLog
from dpose.training.gradients import Params, trainable_params
from dpose.training.optim import weight_average
from dpose.training.options import RunRequest
from dpose.training.reproducibility import digest_of
from dpose.training.step import GradientSources
from dpose.training.subspace import Subspace
from dpose.training.validation import metric_of_views, moments, spent_by

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
    INTERRUPTED = 2
    """By Ctrl-C, or by the system."""


class TrainingDivergedError(DposeError):
    """What may be shown of a step is not finite any more: the noised gradients say so, or the weights made of them."""


class ReplayError(Exception):
    """Under this key the run cannot go on.

    A step that was taken before came out otherwise, and nothing of the new one was shown; or another copy of the run
    has gone on.
    """


PUBLIC = ("folder", "model", "statement", "steps", "ended")
"""What is left of a run that has ended."""


class Run:
    """A run of `dpose.train`: what is returned has ended, or was interrupted.

    What it is returned with may be shown. Its data, its key and its optimizer's state are let go before.

    Attributes:
        folder: The run folder.
        statement: What is guaranteed; set when the run ends.
        model: The model; when the run has ended the released one, in evaluation mode.
        steps: Steps taken.
        ended: Why the steps ended; None before.
    """

    # of an attempt to take the steps, under one key
    sources: GradientSources
    ledger: CountedSteps | None
    """The ledger's counted steps; None in a run without a guarantee, and in all processes but the first."""
    log: NoLog
    chain: bytes | None
    """Digest of all that the next step's draws depend on besides key, plan, data and what it is computed at: first
    weights, surroundings, and of every step before what it was computed at and its update. None for draws that depend
    on nothing else, which is for seeded keys."""
    taken: Mapping[int, str]
    """Digests of the updates of steps that were taken under this key before, by step."""
    # of the whole run
    statement: PrivacyStatement
    config: dict[str, Any]
    """As in `config.json`."""

    def __init__(self, request: RunRequest, data: RunData, charges: RunCharges) -> None:
        self.folder, self.model = request.folder, request.model
        self.steps = 0
        self.ended: Ended | None = None
        self.request, self.data, self.charges = request, data, charges
        self.options, self.bound, self.entry = request.options, data.bound, charges.entry
        self.ranks, self.console = request.ranks, request.console
        self.held = contextlib.ExitStack()
        # what the folder holds of it (dpose.training.resume)
        self.run_id = ""
        self.saved: Checkpoint | None = None
        self.kept: StoredKey | None = None
        self.log_lacks_steps = False
        self.around: dict[str, str] = {}
        trial = request.options.trial
        self.fresh_key = Key.fresh() if request.options.seed is None else Key.from_seed(request.options.seed)
        if trial:
            self.fresh_key = trial.key
        # what the ledger says in the end: its last hash, how many steps count by it, and how many by the account
        self.head, self.ledger_steps, self.counted_steps = "", 0, 0

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C or the system ended it early."""
        return self.ended is Ended.INTERRUPTED

    @property
    def queries(self) -> list[Query]:
        """What the statement must list of scores while training."""
        validation = self.options.validation_data
        query = validation.query() if validation else None
        return [query] if query else []

    def close(self) -> None:
        """Let other processes go on with the run, and let go of all of it but `PUBLIC`."""
        self.held.close()
        for name in vars(self).keys() - PUBLIC:
            delattr(self, name)

    def start(self, sources: GradientSources) -> None:
        """Begin an attempt, with the gradients of `sources`; the state is that before the first step."""
        self.sources, self.ledger, self.log = sources, None, NoLog()
        self.params = trainable_params(self.model)
        self.leaves = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer, self.schedule = self.request.optimizer.build(self.leaves, self.bound.steps)
        plan = self.bound.plan
        self.average = weight_average(self._followed(), plan.ema_decay, plan.average_last, self.bound.steps)
        self.chain, self.taken, self.steps, self.seconds = None, {}, 0, 0.0
        self._basis: tuple[Subspace | None, bytes] = (None, b"")

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
        self.steps = checkpoint.step
        if self.chain is not None and checkpoint.chain:
            self.chain = checkpoint.chain
        device = self.sources.inputs.device
        subspace = checkpoint.subspace and checkpoint.subspace.to(device)
        state = {name: value.to(device) for name, value in checkpoint.method.items()}
        self.sources.resume_at(self.steps, subspace, checkpoint.fitted, state)

    def take_steps(self) -> Ended:
        """All steps that are left, block by block.

        Returns:
            Why it ended.

        Raises:
            ReplayError: see there; the state is that of a step which must not be used.
        """
        bound, ledger = self.bound, self.ledger
        block = math.ceil(bound.steps / BLOCKS)
        ends = [min(end, bound.steps) for end in range(block, bound.steps + block, block)]
        saved, scored = checkpoint_steps(ends, bound.divisor), self._scores_due(ends)
        if not self.steps:
            self._score(scored)
        with _interruptible() as requested, _progress(self) as bar:
            while self.steps < bound.steps:
                count = self._reserve(min(block - self.steps % block, bound.steps - self.steps))
                if not count:
                    return Ended.BUDGET
                first, ended = self.steps, Ended.FINISHED
                while self.steps < first + count and not ended:
                    began = time.perf_counter()
                    self._step(self.steps)
                    self.seconds += time.perf_counter() - began
                    self.steps += 1
                    bar.update(bar.task_ids[0], completed=self.steps)
                    wish = Ended.INTERRUPTED if requested() else Ended.FINISHED
                    ended = Ended(self.ranks.highest(wish))
                if ledger and self.steps > first:
                    # a committed step whose line is lost could not be compared when it is taken again
                    self.log.flush()
                    ledger.commit(first, self.steps - first)
                self._score(scored)
                if self.steps in saved or ended:
                    self.save()
                if ended and self.steps < bound.steps:
                    return ended
        return Ended.FINISHED

    def _reserve(self, count: int) -> int:
        """Reserve the next `count` steps before anything is sampled, or as many as the plan's claim has room for.

        Returns:
            How many, in every process.

        Raises:
            ReplayError: another copy of the run goes on under its key.
        """
        if self.ledger:
            assert self.bound.event is not None
            try:
                count = self.ledger.reserve(self.bound.event, self.steps, count)
            except LedgerTakenError:
                count = TAKEN
        count = -self.ranks.highest(-count if self.ranks.first else -self.bound.steps)
        if count == TAKEN:
            raise ReplayError("another copy of this run goes on under its key")
        return count

    def _step(self, step: int) -> None:
        """Step `step`: its gradient, noised where the method is private, compared, taken and logged."""
        drawn_at = self._drawn_at()
        gradient, found = self.sources.gradient(self.params, step, drawn_at)
        # a method may keep a noised sum and change nothing by it yet
        update = digest_of({**gradient, **self._method_state()}).hex() if self.bound.event else ""
        if self.ranks.highest(int(self.taken.get(step, update) != update)):
            raise ReplayError("an update came out otherwise")
        shown = {"lr": float(self.schedule.get_last_lr()[0]), **found.shown}
        if not all(math.isfinite(v) for v in shown.values()):
            raise _diverged(step)
        for leaf, name in zip(self.leaves, self.params, strict=True):
            leaf.grad = gradient[name]
        self.optimizer.step()
        # made of noised sums alone: looking tells nothing; one kernel's work on a GPU, and one wait
        if not torch.nn.utils.get_total_norm([p for p in self.leaves if p.numel()], math.inf).isfinite():
            raise _diverged(step)
        self.schedule.step()
        if self.average:
            self.average.update(self._followed())
        if self.chain is not None:
            self.chain = hashlib.sha256(drawn_at + bytes.fromhex(update)).digest()
        if step in self.taken:
            return  # its lines are in the log
        self.log.write("step", step=step + 1, **shown, **({"update": update} if update else {}))
        if found.diagnostics:
            self.log.write("diagnostics", step=step + 1, **found.diagnostics)

    def _method_state(self) -> Params:
        return {f"the method's {name}": value for name, value in self.sources.state.items()}

    def _drawn_at(self) -> bytes:
        """What sample and noise of the next step depend on besides key, plan and data, the same in every process.

        The chain, and what the step's sum is computed at: weights, what the method keeps, the subspace. After another
        past, or at other weights after the same past, a step has draws that were never used.
        """
        if self.chain is None or self.bound.event is None or not self.ranks.first:
            return self.ranks.bytes_from_first(self.chain or b"")
        projection = self.sources.projection
        subspace = projection.subspace if projection else None
        if subspace is not self._basis[0]:
            self._basis = (subspace, digest_of(subspace.basis) if subspace else b"")
        at = hashlib.sha256(self.chain + digest_of({**self.params, **self._method_state()}) + self._basis[1])
        return self.ranks.bytes_from_first(at.digest())

    def _scores_due(self, ends: Sequence[int]) -> dict[int, float | None]:
        """After which steps data are scored, with the epsilon spent by then.

        A trial has no epsilon of its own to show: it costs what all trials do.
        """
        if not self.options.validation_data:
            return {}
        due = [0, *moments(ends)]
        if self.options.trial:
            return dict.fromkeys(due)
        return spent_by(self.bound, due, self.charges.known.events)

    def _score(self, due: Mapping[int, float | None]) -> None:
        """Score the validation data with the weights that would be released now, if it is due."""
        validation = self.options.validation_data
        if not (validation and self.ranks.first and self.steps in due):
            return
        live = {name: p.detach().clone() for name, p in self._followed().items()} if self.average else {}
        self.load_average()
        task = validation.task or self.request.task
        result = metric_of_views(task, self.model, validation.units, console=Console(quiet=True))
        with torch.no_grad():
            for name, value in self._followed().items():
                if name in live:
                    value.copy_(live[name])
        self.log.write(
            "score",
            step=self.steps,
            data=validation.name,
            public=validation.public,
            epsilon=self._spent(due[self.steps]),
            result=result.to_dict(),
        )

    def _spent(self, planned: float | None) -> float | None:
        """Epsilon by now: `planned`, or more where steps have counted twice."""
        counted = self.ledger.total if self.ledger else 0
        if planned is None or counted <= self.steps:
            return planned
        return spent_by(self.bound, [counted], self.charges.known.events)[counted]

    def _followed(self) -> Params:
        """What training changes: the parameters; without a guarantee also BatchNorm's running statistics."""
        if self.bound.event is not None:
            return self.params
        saved = self.model.state_dict()
        buffers = {n: b for n, b in self.model.named_buffers() if b.is_floating_point() and n in saved}
        return {**self.params, **buffers}

    def save(self) -> None:
        """Write a checkpoint, and make the log as durable as it."""
        if not self.ranks.first:
            return
        self.log.flush()
        projection = self.sources.projection
        save_checkpoint(
            self.folder,
            Checkpoint(
                step=self.steps,
                weights=self._followed(),
                average=self.average.values if self.average else {},
                average_updates=self.average.updates if self.average else 0,
                optimizer=self.optimizer.state_dict(),
                schedule=self.schedule.state_dict(),
                ledger_head=self.ledger.head if self.ledger else "",
                plan_sha256=self.bound.sha256,
                chain=self.chain or b"",
                subspace=projection.subspace if projection else None,
                fitted=projection.fitted if projection else 0,
                method=self.sources.state,
            ),
        )

    @torch.no_grad()
    def load_average(self) -> None:
        """Put the averaged weights, where there are some, into the model."""
        if self.average:
            live = self._followed()
            for name, value in self.average.values.items():
                live[name].copy_(value)

    @property
    def pace(self) -> str:
        """How long steps took and waited for data: for the terminal alone, since of private data time tells."""
        share = self.sources.waited / self.seconds if self.seconds else 0.0
        return f"Steps took {self.seconds:,.0f} s, of which {share:.0%} was waiting for units to be read."


def _diverged(step: int) -> TrainingDivergedError:
    fix = "lower the learning rate"
    return TrainingDivergedError("training-diverged", f"training diverged at step {step + 1}", fix=fix)


def _progress(run: Run) -> Progress:
    plan, epsilon = run.bound.plan, run.bound.epsilon
    bar = Progress(
        TextColumn(plan.method + (f" epsilon {upper(epsilon)}" if epsilon is not None else "")),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=run.console,
        expand=False,
        disable=not run.ranks.first,
    )
    bar.add_task("steps", total=run.bound.steps, completed=run.steps)
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
