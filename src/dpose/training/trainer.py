"""The training loop: one for every task and every method.

    run = dpose.train(task, model, private=units, plan=plan, out="runs/mpii")
    print(run.statement.paragraph())

What is private flows through `step.private_gradient` and nowhere else. What is printed, logged and saved is settings,
public constants and post-processing of noised sums: loss, norms before noise, the share clipped and the size of a
sample never leave the step where data is private.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from dpose.errors import DposeError
from dpose.files import explain_os_error
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.statement import PrivacyStatement
from dpose.training.assembly import assembled
from dpose.training.checkpoint import Checkpoint, checkpoints, load_checkpoint
from dpose.training.claims import statement_of
from dpose.training.folder import RunLog, model_card, write_config, write_model_folder
from dpose.training.gradients import trainable_params
from dpose.training.guards import check_disjoint, check_model
from dpose.training.loop import Loop
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from dpose.training.watching import Watch
from dpose.units import Task, UnitDataset


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
    watch: Watch | None = None,
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
        watch: Scored before the first step and some ten times after; see `Watch` for what that means.
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
    params = trainable_params(model)
    if not params:
        raise DposeError("the model has no trainable parameters", fix="choose another --strategy")
    if plan.kind.reads_private_data:
        check_model(model)
    used = _public_units(plan, public)
    with console.status("finding the noise that the budget asks for"):
        bound = plan.bind(len(private))
    digest = hashlib.sha256(bytes.fromhex(bound.sha256) + content_digest(private, threads, console))
    if used:
        check_disjoint(used, private, threads, console)
        digest.update(content_digest(used, threads, console))
    noise = AesNoise(Key.fresh() if seed is None else Key.from_seed(seed))
    model.train()
    parts = assembled(
        task,
        model,
        private,
        used,
        bound,
        noise,
        digest.digest(),
        views_at_once=views_at_once,
        threads=threads,
    )
    with parts as assembly:
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
                "views_at_once": assembly.views_at_once,
            },
        }
        query = watch.query() if watch and plan.kind.reads_private_data else None
        loop = Loop(assembly, model, params, optimizer, folder, config, console, watch)
        if saved:
            loop.restore(saved)
        else:
            write_config(folder, config)
        with RunLog(folder / "log.jsonl") as log:
            head, steps, interrupted = loop.run(log, state_dir, query)
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
        public=[*public_facts, *assembly.facts],
        conditional_on=[*conditional_on, *assembly.conditions],
        caveats=caveats,
        queries=[query] if query else [],
    )
    write_model_folder(folder, model, config, statement, model_card(task.name, statement, config))
    return Run(folder, statement, model, steps, interrupted)


def _public_units(plan: TrainingPlan, public: UnitDataset | None) -> UnitDataset | None:
    """The public units that the method reads; None where it reads none, whatever was given."""
    if not (plan.kind.projects and plan.subspace.kind == "public"):
        return None
    if public is None:
        raise DposeError(
            f"{plan.method} projects onto a subspace of public gradients and has no public data",
            fix="give --public, or subspace.kind random or identity for a control",
        )
    return public


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


def content_digest(dataset: UnitDataset, threads: int, console: Console) -> bytes:
    """A digest of every unit's content, in order; reading them all also finds broken files before training starts.

    It goes into the derivation of the run's random streams and is not written anywhere: a digest of private pictures
    is a function of them without noise.

    Raises:
        DposeError: a unit cannot be read.
    """
    total = hashlib.sha256()
    with (
        ThreadPoolExecutor(max(1, threads)) as pool,
        Progress(console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("reading the data", total=len(dataset))
        for hashes in pool.map(dataset.content_hashes, range(len(dataset))):
            for value in hashes:
                total.update(len(value).to_bytes(4, "big") + value.encode())
            total.update(b"\0unit")
            bar.advance(task)
    return total.digest()
