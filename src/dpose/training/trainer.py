"""The training loop: one for every task and every method.

    run = dpose.train(task, model, private=units, plan=plan, out="runs/mpii")
    print(run.statement.paragraph())

What is private flows through `step.private_gradient` and nowhere else. What is printed, logged and saved is settings,
public constants and post-processing of noised sums: loss, norms before noise, the share clipped and the size of a
sample never leave the step where data is private.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from dpose.errors import DposeError
from dpose.files import explain_os_error
from dpose.privacy.ledger import Ledger
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.statement import PrivacyStatement
from dpose.training.checkpoint import (
    Checkpoint,
    apply_checkpoint,
    checkpoints,
    load_checkpoint,
    save_checkpoint,
)
from dpose.training.claims import statement_of
from dpose.training.folder import RunLog, model_card, write_config, write_model_folder
from dpose.training.gradients import Params, trainable_params
from dpose.training.loader import Loader
from dpose.training.memory import fit_views_at_once
from dpose.training.optim import OptimizerConfig, WeightAverage
from dpose.training.plan import BoundPlan, TrainingPlan
from dpose.training.step import Engine, global_norm, plain_batches, plain_gradient, private_gradient
from dpose.units import Task, UnitDataset

BLOCKS = 20
"""A run reserves its steps in this many blocks; a crash spends what is left of one."""
CHECKPOINT_SECONDS = 60.0
"""A block's end is a checkpoint if this long has passed since the last one."""


@dataclass(frozen=True)
class Run:
    """A finished (or interrupted) run.

    Attributes:
        folder: The run folder.
        statement: What is guaranteed.
        model: The released model, in evaluation mode.
        steps: Steps taken.
        interrupted: Whether Ctrl-C ended it early.
    """

    folder: Path
    statement: PrivacyStatement
    model: torch.nn.Module
    steps: int
    interrupted: bool = False


def train(
    task: Task,
    model: torch.nn.Module,
    *,
    private: UnitDataset,
    plan: TrainingPlan,
    out: str | Path,
    resume: bool = False,
    public: UnitDataset | None = None,
    optimizer: OptimizerConfig | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    public_facts: Sequence[str] = (),
    conditional_on: Sequence[str] = (),
    caveats: Sequence[str] = (),
    state_dir: Path | None = None,
    views_at_once: int | None = None,
    threads: int = 2,
    console: Console | None = None,
) -> Run:
    """Train `model` on `private` as `plan` says and write a run folder.

    **Guarantee.** For a private method: (epsilon, delta)-differential privacy of everything in the run folder, for the
    plan's unit and neighbouring relation; `Run.statement` carries it and `docs/proofs/dp-sgd.md` proves it. With `seed`
    there is none, because whoever knows the seed knows the noise; the statement then says so.

    Args:
        task: Gives the loss and collates views.
        model: Trained in place; its parameters that require gradients are trained. Moved by the caller.
        private: The units the plan protects (or, for a method without guarantee, simply the data).
        plan: The method and its budget.
        out: The run folder; must not exist, unless `resume`.
        resume: Go on from the last checkpoint in `out`, with the arguments that the run began with. For methods
            without guarantee.
        public: Extra data nobody needs protected, for the methods that use some; the others leave it unread.
        optimizer: AdamW with a cosine schedule by default.
        seed: Makes the run reproducible and takes its guarantee away.
        settings: Written to `config.json` under "run".
        public_facts: Further lines for the statement's list of what is public (where the first weights are from, ...).
        conditional_on: What the guarantee takes as given, for the statement.
        caveats: Further caveats for the statement.
        state_dir: Where the ledger's head is kept apart; the user's state folder by default.
        views_at_once: The micro-batch in views; fitted to memory when None.
        threads: Threads that decode pictures.
        console: Where progress goes; None for the terminal.

    Raises:
        DposeError: `out` exists (or holds nothing to resume), the plan does not fit the data, a unit cannot be read, or
            the model cannot be trained privately as it is.
    """
    folder = Path(out)
    saved = _resumable(folder, plan) if resume else None
    if folder.exists() and not resume:
        raise DposeError("already exists", str(folder), "choose another --out, or remove it first")
    console = console or Console()
    optimizer = optimizer or OptimizerConfig()
    with console.status("finding the noise that the budget asks for"):
        bound = plan.bind(len(private))
    params = _trainable(model, bound)
    noise = AesNoise(Key.fresh() if seed is None else Key.from_seed(seed))
    digest = hashlib.sha256(bytes.fromhex(bound.sha256) + content_digest(private, threads, console)).digest()
    loader = Loader(task, private, noise, threads)
    model.train()
    if views_at_once is None:
        example = loader.task.collate([loader.unit(0, 0)])
        views_at_once = fit_views_at_once(task, model, example)
    engine = Engine(task, model, loader, bound, noise, digest, views_at_once)
    try:
        folder.mkdir(parents=True, exist_ok=resume)
    except OSError as error:
        raise explain_os_error(error, folder) from error
    described = getattr(model, "config", None)
    config: dict[str, Any] = {
        "task": task.name,
        "model": described.to_dict() if described else {},
        "run": {
            **(settings or {}),
            "plan": plan.to_dict(),
            "optimizer": asdict(optimizer),
            "seed": seed,
            "views_at_once": views_at_once,
        },
    }
    loop = _Loop(engine, params, optimizer, folder, config, console)
    if saved:
        loop.restore(saved)
    else:
        write_config(folder, config)
    with contextlib.closing(loader), RunLog(folder / "log.jsonl") as log:
        head, steps, interrupted = loop.run(log, state_dir)
    loop.load_average()
    model.eval()
    if interrupted:
        caveats = [
            *caveats,
            f"the run was stopped after {steps} of {bound.steps} steps; epsilon is the plan's",
        ]
    statement = statement_of(
        bound,
        seeded=noise.seeded,
        head=head,
        public=public_facts,
        conditional_on=conditional_on,
        caveats=caveats,
    )
    write_model_folder(folder, model, config, statement, model_card(task.name, statement, config))
    return Run(folder, statement, model, steps, interrupted)


class _Loop:
    """The state of one run between its first and its last step."""

    def __init__(
        self,
        engine: Engine,
        params: Params,
        optimizer: OptimizerConfig,
        folder: Path,
        config: Mapping[str, Any],
        console: Console,
    ) -> None:
        self.engine, self.params, self.folder, self.config, self.console = (
            engine,
            params,
            folder,
            config,
            console,
        )
        self.bound: BoundPlan = engine.bound
        self.leaves = [p for p in engine.model.parameters() if p.requires_grad]
        self.optimizer, self.schedule = optimizer.build(self.leaves, self.bound.steps)
        decay = self.bound.plan.ema_decay
        self.average = WeightAverage(_followed(engine.model, params, self.bound), decay) if decay else None
        self.saved_at = time.monotonic()
        self.done = 0

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take up the state that a checkpoint holds.

        Raises:
            DposeError: it belongs to another plan or another model.
        """
        if checkpoint.plan_sha256 != self.bound.sha256:
            raise DposeError("the checkpoint is of another plan or other data", str(self.folder))
        followed = _followed(self.engine.model, self.params, self.bound)
        average = self.average.values if self.average else {}
        apply_checkpoint(checkpoint, followed, average, self.optimizer, self.schedule)
        if self.average:
            self.average.updates = checkpoint.average_updates
        self.done = checkpoint.step

    def run(self, log: RunLog, state_dir: Path | None) -> tuple[str, int, bool]:
        """All steps, block by block. Returns the ledger's head, the steps taken and whether Ctrl-C ended it."""
        bound, event = self.bound, self.bound.event
        if self.done:
            log.write("resume", step=self.done)
        else:
            log.write("start", n=bound.n, steps=bound.steps, plan_sha256=bound.sha256, **self.config["run"])
        block = math.ceil(bound.steps / BLOCKS)
        ledger = None
        if event is not None:
            ledger = Ledger.create(
                self.folder / "ledger.jsonl", bound.sha256, self.engine.noise.key_id, state_dir=state_dir
            )
        done = self.done
        plain = plain_batches(self.engine, done)
        with ledger or contextlib.nullcontext(), _interruptible() as asked, self._progress() as bar:
            bar.update(bar.task_ids[0], completed=done)
            while done < bound.steps and not asked():
                count = min(block, bound.steps - done)
                if ledger and event is not None:
                    ledger.reserve(event, done, count)  # before anything is sampled
                first = done
                while done < first + count and not asked():
                    self._step(done, plain, log)
                    done += 1
                    bar.update(bar.task_ids[0], completed=done)
                if ledger and done > first:
                    ledger.commit(first, done - first)
                if time.monotonic() - self.saved_at > CHECKPOINT_SECONDS or done == bound.steps or asked():
                    self._save(done, ledger.head if ledger else "")
            return (ledger.head if ledger else ""), done, done < bound.steps

    def _step(self, step: int, plain: Iterator[Any], log: RunLog) -> None:
        shown: dict[str, float] = {"lr": float(self.schedule.get_last_lr()[0])}
        if self.bound.event is not None:
            gradient = private_gradient(self.engine, self.params, step)
            shown["noisy_gradient_norm"] = global_norm(gradient)
        else:
            gradient, shown["loss"] = plain_gradient(self.engine, self.params, next(plain), step)
        if not all(math.isfinite(v) for v in shown.values()):
            raise DposeError(f"training diverged at step {step + 1}", fix="lower the learning rate")
        for leaf, name in zip(self.leaves, self.params, strict=True):
            leaf.grad = gradient[name]
        self.optimizer.step()
        self.schedule.step()
        if self.average:
            self.average.update(_followed(self.engine.model, self.params, self.bound))
        log.write("step", step=step + 1, **shown)

    def _save(self, step: int, head: str) -> None:
        save_checkpoint(
            self.folder,
            Checkpoint(
                step=step,
                weights=_followed(self.engine.model, self.params, self.bound),
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
            live = _followed(self.engine.model, self.params, self.bound)
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


def _resumable(folder: Path, plan: TrainingPlan) -> Checkpoint:
    """The last checkpoint of the run in `folder`."""
    if plan.kind.private:
        # its noise must not be drawn twice, and a fresh key would have to be counted twice
        raise DposeError(
            f"a {plan.method} run cannot be resumed",
            str(folder),
            "start a new run from its weights, with --init",
        )
    found = checkpoints(folder)
    if not found:
        raise DposeError("holds no checkpoint to resume from", str(folder), "start the run again")
    return load_checkpoint(found[-1])


def _trainable(model: torch.nn.Module, bound: BoundPlan) -> Params:
    """The trainable parameters, after the checks that a private run must pass."""
    params = trainable_params(model)
    if not params:
        raise DposeError("the model has no trainable parameters", fix="choose another --strategy")
    if bound.event is None:
        return params
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            raise DposeError(
                "batch normalisation mixes units and stores what it saw",
                name,
                "fold it into its convolution, or build the model with norm='group'",
            )
    return params


def _followed(model: torch.nn.Module, params: Params, bound: BoundPlan) -> dict[str, Tensor]:
    """What training changes: the parameters; without a guarantee also BatchNorm's running statistics."""
    if bound.event is not None:
        return params
    buffers = {n: b for n, b in model.named_buffers() if b.is_floating_point() and n in model.state_dict()}
    return {**params, **buffers}


def content_digest(dataset: UnitDataset, threads: int, console: Console) -> bytes:
    """A digest of every unit's content, in order; reading them all also finds broken files before training starts.

    It goes into the derivation of the run's random streams and is not written anywhere: a digest of private pictures
    is a function of them without noise.

    Raises:
        DposeError: a unit cannot be read.
    """
    total = hashlib.sha256()
    with ThreadPoolExecutor(max(1, threads)) as pool, Progress(console=console, transient=True) as bar:
        task = bar.add_task("reading the data", total=len(dataset))
        for hashes in pool.map(dataset.content_hashes, range(len(dataset))):
            for value in hashes:
                total.update(len(value).to_bytes(4, "big") + value.encode())
            total.update(b"\0unit")
            bar.advance(task)
    return total.digest()


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
