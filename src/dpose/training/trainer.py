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
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from dpose.errors import DposeError
from dpose.files import check_free, explain_os_error, locked_folder
from dpose.privacy.account import Charge, Marks, check_budgets, marks_of
from dpose.privacy.entries import read_ledger
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.statement import PrivacyStatement
from dpose.training.apart import check_units_apart
from dpose.training.arithmetic import exact_arithmetic
from dpose.training.assembly import assembled
from dpose.training.attempt import Attempt
from dpose.training.claims import statement_of
from dpose.training.folder import model_card, write_run_folder
from dpose.training.gradients import trainable_params
from dpose.training.guards import check_disjoint, check_model
from dpose.training.loader import Loader
from dpose.training.loop import Ended, Loop, ReplayError
from dpose.training.memory import fit_views_at_once
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import BoundPlan, TrainingPlan
from dpose.training.ranks import ranks
from dpose.training.surroundings import NO_REPEAT, check_alike, repeatable, surroundings
from dpose.training.watching import Watch
from dpose.units import Task, UnitBatch, UnitDataset, most_views


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
    data_name: str | None = None,
    what: str = "training",
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
        out: The run folder; must not exist (or be empty), unless `resume`. With several processes (`torchrun`) all of
            them must see it.
        resume: Go on from the last checkpoint in `out`, with the arguments that the run began with. Steps that were
            taken after it are taken again: at no cost where they come out the same to the last bit, otherwise with a
            new key and counted twice, and the run ends early enough to keep its epsilon (docs/proofs/resume.md).
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
        data_name: What the account calls the data (`dpose account`).
        what: What the account calls the run: "training" or "audit".

    Raises:
        DposeError: `out` exists (or holds nothing to resume), the plan does not fit the data, a unit cannot be read, or
            the model cannot be trained privately as it is.
    """
    folder, place = Path(out), ranks()
    if not resume:
        check_free(folder, may_be_empty=True)
    console = (console or Console()) if place.first else Console(quiet=True)
    optimizer = optimizer or OptimizerConfig()
    params = trainable_params(model)
    if not params:
        raise DposeError("the model has no trainable parameters", fix="choose another --strategy")
    if plan.kind.reads_private_data:
        check_model(model)
    used = _public_units(plan, public)
    with console.status("finding the noise that the budget asks for"):
        bound = plan.bind(len(private))
    content, marks = read_contents(private, threads, console)
    if used:
        check_disjoint(used, private, threads, console)
        content = hashlib.sha256(content + read_contents(used, threads, console)[0]).digest()
    entry = _charge(folder, bound, marks, what, data_name or type(private).__name__, seed)
    if place.first:
        check_budgets(entry, state_dir)
    model.train()
    query = watch.query() if watch and plan.kind.reads_private_data else None
    with contextlib.ExitStack() as held:
        if place.first:
            _make(folder, resume)
            held.enter_context(locked_folder(folder))
        attempt = Attempt(folder, bound, entry, content, seed, query, place, resume, state_dir, console)
        device = next(iter(params.values())).device
        if plan.kind.private:
            held.enter_context(exact_arithmetic(device))
        fitted = (
            views_at_once
            or attempt.micro_batch
            or fit_views_at_once(task, model, _example(task, private, threads), clipped=plan.kind.private)
        )
        fitted = -place.highest(-fitted)  # the least of all processes'
        repeats = repeatable(device)
        if plan.kind.private:
            most = plan.copies * most_views(private)
            with console.status("looking whether units stay apart on this machine"):
                like = _example(task, private, threads).to(device)
                repeats = check_units_apart(task, model, like, fitted, most) and repeats
        repeats = not place.highest(int(not repeats))
        around = surroundings(device, fitted, place.count, task, model, private)
        check_alike(around, place)
        if plan.kind.private and not repeats:
            console.print(NO_REPEAT, highlight=False)
        context = hashlib.sha256(bytes.fromhex(bound.sha256) + content).digest()
        ended = None
        while ended is None:
            noise = attempt.noise(around, repeats)
            with assembled(
                task,
                model,
                private,
                used,
                bound,
                noise,
                context,
                views_at_once=fitted,
                threads=threads,
                ranks=place,
            ) as assembly:
                config = _config(task, model, bound, optimizer, fitted, seed, settings)
                loop = Loop(assembly, model, params, optimizer, folder, config, console, watch)
                try:
                    ended = attempt.run(loop, noise)
                except ReplayError:
                    attempt.forsake_key("an update came out otherwise")
        loop.load_average()
        model.eval()
        statement = statement_of(
            bound,
            seeded=noise.seeded,
            head=attempt.head,
            counted=attempt.counted,
            public=[*public_facts, *assembly.facts],
            conditional_on=[*conditional_on, *assembly.conditions],
            caveats=[*caveats, *attempt.caveats(loop.done, ended)],
            queries=[query] if query else [],
        )
        if place.first:
            statement = write_run_folder(
                folder,
                model,
                config,
                statement,
                model_card(task.name, statement, config),
                run_id=entry.id,
                state_dir=state_dir,
            )
            if ended is not Ended.ASKED:
                attempt.finish()
    return Run(folder, statement, model, loop.done, ended is Ended.ASKED)


def _make(folder: Path, resume: bool) -> None:
    if resume and not folder.is_dir():
        raise DposeError("there is no such run", str(folder), "name the folder of a run that was stopped")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explain_os_error(error, folder) from error


def _example(task: Task, data: UnitDataset, threads: int) -> UnitBatch:
    """One unit, for its shape only."""
    with contextlib.closing(Loader(task, data, AesNoise(Key.from_seed(0)), threads)) as loader:
        return task.collate([loader.unit(0, 0)])


def _config(
    task: Task,
    model: torch.nn.Module,
    bound: BoundPlan,
    optimizer: OptimizerConfig,
    views_at_once: int,
    seed: int | None,
    settings: Mapping[str, Any] | None,
) -> dict[str, Any]:
    described = getattr(model, "config", None)
    return {
        "task": task.name,
        "model": described.to_dict() if described else {},
        "run": {
            **(settings or {}),
            "plan": bound.plan.to_dict(),
            "bound": bound.constants(),
            "optimizer": asdict(optimizer),
            "seed": seed,
            "views_at_once": views_at_once,
        },
    }


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


def _charge(folder: Path, bound: BoundPlan, marks: Marks, what: str, data: str, seed: int | None) -> Charge:
    """What the run will take from its pictures: all that its plan allows, however it ends."""
    plan, ledger = bound.plan, folder / "ledger.jsonl"
    if bound.event is None:  # without a ledger to name it, the same folder and plan are the same run
        name = hashlib.sha256(f"{folder.resolve()} {bound.sha256}".encode()).hexdigest()[:32]
    else:
        name = read_ledger(ledger)[0].run_id if ledger.exists() else secrets.token_hex(16)
    return Charge(
        id=name,
        what=what,
        data=data,
        folder=str(folder.resolve()),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        unit=plan.unit,
        relation=plan.relation,
        delta=plan.delta or 0.0,
        events=(bound.event,) if bound.event and seed is None else (),
        beyond=plan.kind.public_views,
        marks=marks,
    )


def read_contents(dataset: UnitDataset, threads: int, console: Console) -> tuple[bytes, Marks]:
    """A digest of every unit's content, in order, and the pictures' marks for the account.

    Reading them all also finds broken files before training starts. The digest goes into the derivation of the run's
    random streams; both are functions of private pictures without noise, and stand nowhere but in the state folder.

    Raises:
        DposeError: a unit cannot be read.
    """
    total = hashlib.sha256()
    pictures: set[str] = set()
    with (
        ThreadPoolExecutor(max(1, threads)) as pool,
        Progress(console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("reading the data", total=len(dataset))
        for hashes in pool.map(dataset.content_hashes, range(len(dataset))):
            pictures.update(hashes)
            for value in hashes:
                total.update(len(value).to_bytes(4, "big") + value.encode())
            total.update(b"\0unit")
            bar.advance(task)
    return total.digest(), marks_of(pictures)
