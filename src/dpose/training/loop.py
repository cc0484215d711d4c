"""The steps of one run, from the first to the last: reserved, taken, committed, logged, scored and saved."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dpose.errors import DposeError
from dpose.privacy.ledger import Ledger
from dpose.privacy.statement import Query
from dpose.training.assembly import Assembly
from dpose.training.checkpoint import Checkpoint, apply_checkpoint, save_checkpoint
from dpose.training.folder import RunLog
from dpose.training.gradients import Params
from dpose.training.optim import OptimizerConfig, WeightAverage
from dpose.training.plan import BoundPlan
from dpose.training.score import score
from dpose.training.watching import Watch, moments, spent_by

BLOCKS = 20
"""A run reserves its steps in this many blocks; a crash spends what is left of one."""
CHECKPOINT_SECONDS = 60.0
"""A block's end is a checkpoint if this long has passed since the last one."""


class Loop:
    """The state of one run between its first and its last step."""

    def __init__(
        self,
        assembly: Assembly,
        model: torch.nn.Module,
        params: Params,
        optimizer: OptimizerConfig,
        folder: Path,
        config: Mapping[str, Any],
        console: Console,
        watch: Watch | None = None,
    ) -> None:
        self.assembly, self.model, self.params = assembly, model, params
        self.folder, self.config, self.console, self.watch = folder, config, console, watch
        self.bound: BoundPlan = assembly.bound
        self.updates = assembly.updates(0)
        self.leaves = [p for p in model.parameters() if p.requires_grad]
        self.optimizer, self.schedule = optimizer.build(self.leaves, self.bound.steps)
        decay = self.bound.plan.ema_decay
        self.average = WeightAverage(self._followed(), decay) if decay else None
        self.saved_at = time.monotonic()
        self.done = 0

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take up the state that a checkpoint holds.

        Raises:
            DposeError: it belongs to another plan or another model.
        """
        if checkpoint.plan_sha256 != self.bound.sha256:
            raise DposeError("the checkpoint is of another plan or other data", str(self.folder))
        followed = self._followed()
        average = self.average.values if self.average else {}
        apply_checkpoint(checkpoint, followed, average, self.optimizer, self.schedule)
        if self.average:
            self.average.updates = checkpoint.average_updates
        self.done = checkpoint.step
        self.updates = self.assembly.updates(self.done)

    def run(self, log: RunLog, state_dir: Path | None, query: Query | None) -> tuple[str, int, bool]:
        """All steps, block by block.

        Args:
            log: Gets a line a step.
            state_dir: Where the ledger's head is kept apart.
            query: What watching asks of private data, for the ledger.

        Returns:
            The ledger's head, the steps taken, and whether Ctrl-C ended it.
        """
        bound, event = self.bound, self.bound.event
        if self.done:
            log.write("resume", step=self.done)
        else:
            log.write("start", n=bound.n, steps=bound.steps, plan_sha256=bound.sha256, **self.config["run"])
        block = math.ceil(bound.steps / BLOCKS)
        ledger = None
        if event is not None:
            ledger = Ledger.create(
                self.folder / "ledger.jsonl", bound.sha256, self.assembly.noise.key_id, state_dir=state_dir
            )
            if query:
                ledger.query(query.to_dict())
        done = self.done
        ends = [min(end, bound.steps) for end in range(block, bound.steps + block, block)]
        scored = moments(ends) if self.watch else []
        spent = spent_by(bound, scored)
        if self.watch and not self.done:
            self._score(0, 0.0 if event else None, log)
        with ledger or contextlib.nullcontext(), _interruptible() as asked, self._progress() as bar:
            bar.update(bar.task_ids[0], completed=done)
            while done < bound.steps and not asked():
                count = min(block, bound.steps - done)
                if ledger and event is not None:
                    ledger.reserve(event, done, count)  # before anything is sampled
                first = done
                while done < first + count and not asked():
                    self._step(done, log)
                    done += 1
                    bar.update(bar.task_ids[0], completed=done)
                if ledger and done > first:
                    ledger.commit(first, done - first)
                if done in spent:
                    self._score(done, spent[done], log)
                if time.monotonic() - self.saved_at > CHECKPOINT_SECONDS or done == bound.steps or asked():
                    self._save(done, ledger.head if ledger else "")
            return (ledger.head if ledger else ""), done, done < bound.steps

    def _step(self, step: int, log: RunLog) -> None:
        gradient, found = self.updates.gradient(self.params, step)
        shown = {"lr": float(self.schedule.get_last_lr()[0]), **found.shown}
        if not all(math.isfinite(v) for v in shown.values()):
            raise DposeError(f"training diverged at step {step + 1}", fix="lower the learning rate")
        for leaf, name in zip(self.leaves, self.params, strict=True):
            leaf.grad = gradient[name]
        self.optimizer.step()
        self.schedule.step()
        if self.average:
            self.average.update(self._followed())
        log.write("step", step=step + 1, **shown)
        if found.diagnostics:
            log.write("diagnostics", step=step + 1, **found.diagnostics)

    def _score(self, step: int, spent: float | None, log: RunLog) -> None:
        """Score the watched data with the weights that would be released now."""
        assert self.watch
        live = {name: p.detach().clone() for name, p in self._followed().items()} if self.average else {}
        self.load_average()
        task = self.watch.task or self.assembly.task
        result = score(task, self.model, self.watch.units, console=Console(quiet=True))
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

    def _save(self, step: int, head: str) -> None:
        save_checkpoint(
            self.folder,
            Checkpoint(
                step=step,
                weights=self._followed(),
                average=self.average.values if self.average else {},
                average_updates=self.average.updates if self.average else 0,
                optimizer=self.optimizer.state_dict(),
                schedule=self.schedule.state_dict(),
                ledger_head=head,
                plan_sha256=self.bound.sha256,
            ),
        )
        self.saved_at = time.monotonic()

    @torch.no_grad()
    def load_average(self) -> None:
        """Put the averaged weights, where there are some, into the model."""
        if self.average:
            live = self._followed()
            for name, value in self.average.values.items():
                live[name].copy_(value)

    def _progress(self) -> Progress:
        plan = self.bound.plan
        claim = f" epsilon {self.bound.epsilon:.3g}" if self.bound.epsilon is not None else ""
        bar = Progress(
            TextColumn(f"{plan.method}{claim}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self.console,
            expand=False,
        )
        bar.add_task("steps", total=self.bound.steps)
        return bar


@contextlib.contextmanager
def _interruptible() -> Iterator[Any]:
    """Turns the first Ctrl-C into a request, seen at the next step boundary; a second one stops at once."""
    asked = threading.Event()

    def note(signum: int, frame: FrameType | None) -> None:
        asked.set()
        signal.signal(signal.SIGINT, previous)

    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    previous = signal.signal(signal.SIGINT, note)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, previous)
