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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from dpose.errors import DposeError
from dpose.files import check_free, explain_os_error, locked_folder
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.odometer import charge_account, charges, check_budgets, note_weights
from dpose.privacy.protected import Protected, protect, unit_of
from dpose.privacy.statement import PrivacyStatement
from dpose.training.apart import check_units_apart
from dpose.training.arithmetic import exact_arithmetic
from dpose.training.assembly import assembled
from dpose.training.charging import run_charge, tell_composed, watch_charge
from dpose.training.distributed import ProcessGroup, process_group
from dpose.training.first_weights import FirstWeights, digest_of_weights, first_of, inherited
from dpose.training.folder import model_card, write_run_folder
from dpose.training.gradients import trainable_params
from dpose.training.guards import check_disjoint, check_model, check_not_watched
from dpose.training.kept import Places, keep_places
from dpose.training.loader import Loader
from dpose.training.loop import Ended, Loop, ReplayError
from dpose.training.memory import fit_views_at_once
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import BoundPlan, TrainingPlan
from dpose.training.rehearsal import rehearse
from dpose.training.reproducibility import NO_REPEAT, check_alike, code_digest, environment, repeatable
from dpose.training.session import TrainingSession
from dpose.training.statement import run_statement
from dpose.training.validation import Validation
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
    private: UnitDataset | Protected,
    plan: TrainingPlan,
    out: str | Path,
    resume: bool = False,
    public: UnitDataset | None = None,
    watch: Validation | None = None,
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
    start: FirstWeights | str | Path | None = None,
    places: Places | None = None,
) -> Run:
    """Train `model` on `private` as `plan` says and write a run folder.

    **Guarantee.** For a private method: (epsilon, delta)-differential privacy of everything in the run folder, for the
    plan's unit and neighbouring relation; `Run.statement` carries it and `docs/proofs/dp-sgd.md` proves it. With `seed`
    there is none, because whoever knows the seed knows the noise; the statement then says so. What the model's first
    weights learnt from is part of the claim (`start`): the account is asked before anything is charged.

    Args:
        task: Gives the loss and collates views.
        model: Trained in place; its parameters that require gradients are trained. Moved by the caller.
        private: The units the plan protects (or, for a method without guarantee, simply the data). They are read as
            `protect` has it, unless that was done before: copies of one unit count once.
        plan: The method and its budget.
        out: The run folder; must not exist (or be empty), unless `resume`. With several processes (`torchrun`) all of
            them must see it.
        resume: Go on from the last checkpoint in `out`, with the arguments that the run began with. Steps that were
            taken after it are taken again: at no cost where they come out the same to the last bit, otherwise with a
            new key and counted twice, and the run ends early enough to keep its epsilon (docs/proofs/resume.md).
        public: Extra data nobody needs protected, for the methods that use some; the others leave it unread.
        watch: Scored before the first step and some ten times after; see `Validation` for what that means.
        optimizer: AdamW with a cosine schedule by default.
        seed: Makes the run reproducible and takes its guarantee away.
        settings: Written to `config.json` under "run", and so into a folder that travels: without paths.
        public_facts: Further lines for the statement's list of what is public (where the first weights are from, ...).
        conditional_on: What the guarantee takes as given, for the statement.
        caveats: Further caveats for the statement.
        state_dir: Where the ledger's head is kept apart; the user's state folder by default.
        views_at_once: The micro-batch in views; fitted to memory when None.
        threads: Threads that decode pictures.
        console: Where progress goes; None for the terminal.
        data_name: What the account calls the data (`dpose account`).
        what: What the account calls the run: "training" or "audit".
        start: Where the model's weights are from: a model folder or a file of weights, or as `FirstWeights` says;
            `FirstWeights.drawn()` for weights drawn at random. None: the account is searched for just these weights,
            and where no run released them the statement takes as given that no unit had influence on them.
        places: The settings with their paths, kept in the state folder by the run's name (`kept_places`).

    Raises:
        DposeError: `out` exists (or holds nothing to resume), the plan does not fit the data, a unit cannot be read,
            the model cannot be trained privately as it is, its first weights learnt from the same pictures without a
            guarantee, or `watch` shows pictures that the run protects.
    """
    folder, place = Path(out), process_group()
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
    own = as_protected(private, plan, threads, console)
    data, content = own.data, own.identity.digest
    with console.status("finding the noise that the budget asks for"):
        bound = plan.bind_to(own)
    opened = None
    if used:
        check_disjoint(used, own, threads, console)
        of_used = protect(used, threads=threads).identity
        content, opened = hashlib.sha256(content + of_used.digest).digest(), of_used.marks
    if watch and plan.kind.reads_private_data:
        check_not_watched(watch.units, own, threads, console)
    _agree(place, model, content, bound, optimizer, (seed, resume, views_at_once), (task, model, own.source))
    entry = run_charge(
        folder,
        bound,
        own,
        what,
        data_name or type(own.source).__name__,
        opened=opened,
        seeded=seed is not None,
        resume=resume,
    )
    known = inherited(first_of(start, model), entry, plan, charges(state_dir))
    entry = replace(entry, start=known.digest)
    scored = watch_charge(watch, entry, threads, console)
    if place.first:
        for asked in filter(None, (entry, scored)):
            check_budgets(asked, state_dir)
        tell_composed(known, bound, console)
    model.train()
    rehearse(task, model, data, used, bound, optimizer, threads)
    query = watch.query() if watch else None
    with contextlib.ExitStack() as held:
        if place.first:
            _make(folder, resume)
            held.enter_context(locked_folder(folder))
        attempt = TrainingSession(
            folder, bound, entry, content, seed, query, place, resume, state_dir, console
        )
        device = next(iter(params.values())).device
        if plan.kind.private:
            held.enter_context(exact_arithmetic(device))
        fitted = (
            views_at_once
            or attempt.micro_batch
            or fit_views_at_once(task, model, _example(task, data, threads), clipped=plan.kind.private)
        )
        fitted = -place.highest(-fitted)  # the least of all processes'
        repeats = repeatable(device)
        if plan.kind.private:
            most = plan.copies * most_views(data)
            with console.status("looking whether units stay apart on this machine"):
                like = _example(task, data, threads).to(device)
                repeats = check_units_apart(task, model, like, fitted, most) and repeats
        repeats = not place.highest(int(not repeats))
        around = environment(device, fitted, place.count, task, model, own.source)
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
                data,
                used,
                bound,
                noise,
                context,
                views_at_once=fitted,
                threads=threads,
                ranks=place,
            ) as assembly:
                config = _config(entry.id, task, model, bound, optimizer, fitted, seed, settings)
                loop = Loop(
                    assembly, model, params, optimizer, folder, config, console, watch, before=known.events
                )
                if place.first and scored:
                    charge_account(scored, state_dir)
                if place.first and places:
                    keep_places(entry.id, places, state_dir)
                try:
                    ended = attempt.run(loop, noise)
                except ReplayError:
                    attempt.forsake_key("an update came out otherwise")
        loop.load_average()
        model.eval()
        statement = run_statement(
            bound,
            seeded=noise.seeded,
            head=attempt.head,
            counted=attempt.counted,
            public=[*public_facts, *assembly.facts],
            conditional_on=[*conditional_on, *assembly.conditions],
            caveats=[*caveats, *attempt.caveats(loop.done, ended)],
            queries=[query] if query else [],
            start=known,
        )
        if place.first:
            note_weights(entry.id, digest_of_weights(model), state_dir)
            statement = write_run_folder(
                folder,
                model,
                config,
                statement,
                model_card(task.name, statement, config),
                run_id=entry.id,
                first_weights=known.digest,
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
    run_id: str,
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
        "run_id": run_id,
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


def as_protected(
    private: UnitDataset | Protected, plan: TrainingPlan, threads: int, console: Console
) -> Protected:
    """What `plan` protects of `private`: read now, unless that was done before.

    Raises:
        DposeError: as `protect`; or a unit is another than the plan names.
    """
    if isinstance(private, Protected):
        return private
    plan.check_unit(unit_of(private))  # before everything is read
    return protect(private, plan.relation, threads=threads, console=console)


def _agree(
    place: ProcessGroup,
    model: torch.nn.Module,
    content: bytes,
    bound: BoundPlan,
    optimizer: OptimizerConfig,
    settings: tuple[object, ...],
    parts: tuple[object, ...],
) -> None:
    """Hold all processes to one run before anything of it is charged or written.

    Raises:
        DposeError: they differ; in every process.
    """
    shapes = [(name, tuple(p.shape), str(p.dtype)) for name, p in trainable_params(model).items()]
    place.agree(
        {
            "the data (units, their order, pictures or labels)": content,
            "the plan": bytes.fromhex(bound.sha256),
            "the settings": hashlib.sha256(repr((optimizer, settings, shapes)).encode()).digest(),
            "the code": code_digest(*parts),
        }
    )
