"""The training loop: one for every task and every method.

    run = dpose.train(task, model, private=units, plan=plan, out="runs/mpii")
    print(run.statement.paragraph())

    plan.bind_to -> sample -> per-unit gradients -> clip -> sum -> noise -> the method's post-processing -> optimizer
    (`plan`)        (`step.private_gradient`, with `gradients`)             (`methods`, `gradient`)         (`loop`)

What is private flows through `step.private_gradient` and nowhere else. What is printed, logged and saved is settings,
public constants and post-processing of noised sums: loss, norms before noise, the share clipped and the size of a
sample never leave the step where data is private.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from dpose.account import charge, charges, conclude, note_weights
from dpose.errors import DposeError
from dpose.files import check_free, explain_os_error, locked_folder, make_folder
from dpose.interpreter import settle_environment
from dpose.known_sets import SetNames, set_names_of
from dpose.privacy.merged import first_entries
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.protected import DATA, Protected, protect, unit_of
from dpose.privacy.ranges import large_delta
from dpose.privacy.sections import PublicInput
from dpose.privacy.statement import PrivacyStatement
from dpose.training.arithmetic import exact_arithmetic, keep_freed_memory
from dpose.training.charging import run_charge, tell_composed, watch_charge
from dpose.training.distributed import ProcessGroup, process_group
from dpose.training.dry_run import dry_run, fit_microbatch
from dpose.training.first_weights import FIRST, Inherited, digest_of_weights, first_of, inherited
from dpose.training.folder import write_run_folder
from dpose.training.gradients import trainable_params
from dpose.training.guards import check_disjoint, check_model, check_not_watched, learnt_again
from dpose.training.loader import Loader
from dpose.training.local_state import keep_places
from dpose.training.loop import Ended, Loop, ReplayError
from dpose.training.optim import OptimizerConfig
from dpose.training.options import RunOptions
from dpose.training.plan import BoundPlan, TrainingPlan
from dpose.training.reproducibility import (
    check_alike,
    code_digest,
    digest_of,
    environment,
    settings_in_force,
)
from dpose.training.session import TrainingSession
from dpose.training.statement import StatementFacts, run_statement
from dpose.training.step import StepInputs, open_parts
from dpose.training.trained_on import ENTRY, TrainedOn, learnt_by_run
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
    private: UnitDataset | Protected,
    plan: TrainingPlan,
    out: str | Path,
    public: UnitDataset | None = None,
    optimizer: OptimizerConfig | None = None,
    seed: int | None = None,
    resume: bool = False,
    options: RunOptions | None = None,
) -> Run:
    """Train `model` on `private` as `plan` says and write a run folder.

    **Guarantee.** For a private method: (epsilon, delta)-differential privacy of everything in the run folder, for the
    plan's unit and neighbouring relation; `Run.statement` carries it and `docs/proofs/dp-sgd.md` proves it. With `seed`
    there is none, because the seed gives the noise away; the statement then says so. What the model's first
    weights learnt from is part of the claim (`options.start`): the account is asked before anything is charged.

    Args:
        task: Gives the loss and collates views.
        model: Trained in place; its parameters that require gradients are trained. Moved by the caller.
        private: The units the plan protects (or, for a method without guarantee, simply the data). They are read as
            `protect` has it, unless that was done before: copies of one unit count once.
        plan: The method and its budget.
        out: The run folder; must not exist (or be empty), unless `resume`. With several processes (`torchrun`) all of
            them must see it.
        public: Extra public data, for the methods that use some; the others leave it unread.
        optimizer: AdamW with a cosine schedule by default.
        seed: Makes the run reproducible and takes its guarantee away.
        resume: Go on from the last checkpoint in `out`, with the arguments that the run began with. Steps that were
            taken after it are taken again: at no cost where they come out the same to the last bit, otherwise with a
            new key and counted twice, and the run ends early enough to keep its epsilon (docs/proofs/resume.md).
        options: Where the weights are from, what is scored, what the statement says besides, threads and memory.

    Raises:
        DposeError: `out` exists (or holds nothing to resume), the plan does not fit the data, a unit cannot be read,
            the model cannot be trained privately as it is, its first weights learnt from the same pictures without a
            guarantee, or `options.validation_data` shows pictures that the run protects.
    """
    folder, place = Path(out), process_group()
    options, optimizer = options or RunOptions(), optimizer or OptimizerConfig()
    if not resume:
        check_free(folder, may_be_empty=True, may_be_locked=True)
    console = (options.console or Console()) if place.first else Console(quiet=True)
    settle_environment()
    keep_freed_memory()
    threads, kind = options.threads, plan.kind
    if not trainable_params(model):
        raise DposeError(
            "trainable-parameters-missing",
            "the model has no trainable parameters",
            fix="choose another --strategy",
        )
    if kind.reads_private_data:
        check_model(model)

    # the plan, bound to the data: nothing below takes its rate, its clipping norm or its noise from elsewhere
    used = _public_units(plan, public)
    own = as_protected(private, plan, threads, console, place)
    content, inputs_read = own.identity.digest, list[PublicInput]()
    with console.status("finding the noise that the budget asks for"):
        bound = plan.bind_to(own)
    if warning := large_delta(plan.delta if kind.private else None, bound.n):
        console.print(warning, highlight=False, soft_wrap=True)
    opened = None
    if used:
        check_disjoint(used, own, threads, console, place)
        of_used = protect(used, threads=threads).identity
        content, opened = hashlib.sha256(content + of_used.digest).digest(), of_used.marks
        fitted_on = f"{len(used):,} units that {plan.method} is fitted on"
        inputs_read.append(PublicInput(fitted_on, of_used.digest.hex(), options.public_licence))
    if options.data_is_public and not kind.reads_private_data:
        trained_on = f"{len(own.data):,} units that it was trained on"
        inputs_read.append(PublicInput(trained_on, own.identity.digest.hex(), options.public_licence))
    if options.validation_data and kind.reads_private_data:
        check_not_watched(options.validation_data.units, own, threads, console, place)
    code = (task, model, own.source, kind.update)
    _agree(place, model, content, bound, optimizer, (seed, resume, options.microbatch_size), code)

    # what it takes from the account of its data; whatever can be refused is refused before it is charged
    trial = options.trial
    account = charges(trial.account if trial else options.state_dir)
    before = account if resume else None
    entry = run_charge(folder, bound, own, options, opened=opened, seeded=seed is not None, known=before)
    if trial:
        entry = replace(entry, id=trial.charge.id)
    first = first_of(options.start, model)
    again = options.learnt_from and learnt_again(own.data, threads, console, options.learnt_from, place)
    names = set_names_of(own.source)
    known = inherited(first, entry, plan, account, again, names)
    entry = replace(entry, start=known.digest)
    if known.digest and not known.events:
        inputs_read.append(PublicInput("the first weights", known.digest, first.licence))
    inputs_read += first.behind
    scored = watch_charge(options, entry, console)
    if place.first and not trial:
        for requested in filter(None, (entry, scored)):
            charge(requested, options.state_dir, dry_run=True)
        tell_composed(known, bound, console)
    model.train()
    nothing = AesNoise(Key.from_seed(0))  # for shapes; the run's own noise comes with its session
    loader = Loader(task, own.data, nothing, threads)
    inputs = StepInputs(
        task, model, loader, bound, nothing, b"", 1, place, numbers=tuple(first_entries(own.data))
    )
    exact = exact_arithmetic(inputs.device) if kind.private else contextlib.nullcontext()
    with exact:  # as the steps will be computed, and what that refuses is refused here too
        dry_run(inputs, used, optimizer)

    with contextlib.ExitStack() as held:
        if place.first:
            _make(folder, resume)
            held.enter_context(locked_folder(folder))
        held.callback(loader.close)
        session = TrainingSession(folder, bound, entry, content, seed, place, resume, options, console)
        held.callback(session.close)
        if kind.private:
            held.enter_context(exact_arithmetic(inputs.device))
        fitted, repeats = fit_microbatch(inputs, options.microbatch_size or session.micro_batch, console)
        learnt = learnt_by(known, plan, names, used, seeded=seed is not None)
        config = describe_run(
            entry.id, task, model, bound, optimizer, fitted, seed, options.settings, known, learnt
        )
        around = environment(inputs.device, fitted, place.count, *code)
        around |= settings_in_force(config, (task, own.source, used))
        check_alike(around, place)
        around["the first weights"] = place.bytes_from_first(digest_of(model.state_dict())).hex()
        context = hashlib.sha256(bytes.fromhex(bound.sha256) + content).digest()
        inputs = replace(inputs, context=context, microbatch_size=fitted)
        ended = None
        while ended is None:
            noise = session.noise(around, repeats)
            with open_parts(replace(inputs, noise=noise), used) as parts:
                loop = Loop(
                    parts,
                    optimizer,
                    folder,
                    config,
                    console,
                    options.validation_data,
                    known.events,
                    priced=not trial,
                )
                if place.first and scored:
                    charge(scored, options.state_dir)
                if place.first and options.places:
                    keep_places(entry.id, options.places, options.state_dir)
                try:
                    ended = session.run(loop, noise)
                except ReplayError as error:
                    session.forsake_key(str(error))
        console.print(loop.pace, highlight=False)
        loop.load_average()
        model.eval()
        statement = run_statement(
            bound,
            options.facts
            + StatementFacts(
                parts.facts, parts.conditions, tuple(session.caveats(loop.done, ended)), inputs=inputs_read
            ),
            seeded=noise.seeded,
            head=session.head,
            counted=session.counted,
            queries=[session.query] if session.query else [],
            start=known,
            tuning=trial.tuning if trial else None,
            canaries=options.canaries.committed if options.canaries else None,
        )
        if place.first and not trial:
            note_weights(entry.id, digest_of_weights(model), options.state_dir)
        if place.first:
            statement = write_run_folder(
                folder,
                model,
                config,
                statement,
                run_id=entry.id,
                first_weights=known.digest,
                state_dir=options.state_dir,
            )
            if ended is not Ended.ASKED:
                session.finish()
                if scored:
                    conclude({scored.id: ()}, where=options.state_dir)
    return Run(folder, statement, model, loop.done, ended is Ended.ASKED)


def _make(folder: Path, resume: bool) -> None:
    if resume and not folder.is_dir():
        raise DposeError(
            "run-missing", "there is no such run", str(folder), "name the folder of a run that was stopped"
        )
    try:
        make_folder(folder)
    except OSError as error:
        raise explain_os_error(error, folder) from error


def describe_run(
    run_id: str,
    task: Task,
    model: torch.nn.Module,
    bound: BoundPlan,
    optimizer: OptimizerConfig,
    microbatch_size: int,
    seed: int | None,
    settings: Mapping[str, Any],
    known: Inherited,
    learnt: TrainedOn,
) -> dict[str, Any]:
    """What `config.json` of a run says: its name, task and model, what it has learnt from, and all settings."""
    described = getattr(model, "config", None)
    return {
        "task": task.name,
        "run_id": run_id,
        "model": described.to_dict() if described else {},
        ENTRY: learnt.to_dict(),
        "run": {
            **settings,
            FIRST: known.to_dict(),
            "plan": bound.plan.to_dict(),
            "bound": bound.constants(),
            "optimizer": asdict(optimizer),
            "seed": seed,
            "microbatch_size": microbatch_size,
        },
    }


def learnt_by(
    known: Inherited, plan: TrainingPlan, names: SetNames, used: UnitDataset | None, *, seeded: bool
) -> TrainedOn:
    """What the released weights have learnt from: the first weights' data, the run's, and what it is fitted on."""
    guaranteed = plan.kind.reads_private_data and not (seeded and plan.kind.private)
    fitted_on = SetNames(whole=True) if used is None else set_names_of(used)
    return learnt_by_run(known.learnt, names, guaranteed=guaranteed, fitted_on=fitted_on)


def _public_units(plan: TrainingPlan, public: UnitDataset | None) -> UnitDataset | None:
    """The public units that the method reads; None if it reads none, whatever was given."""
    plan.check_public(public)
    return public if plan.fits_public else None


def as_protected(
    private: UnitDataset | Protected, plan: TrainingPlan, threads: int, console: Console, place: ProcessGroup
) -> Protected:
    """What `plan` protects of `private`: read now, each process its share, unless that was done before.

    Raises:
        DposeError: as `protect`; or a unit is another than the plan names.
    """
    if isinstance(private, Protected):
        return private
    plan.check_unit(unit_of(private))  # before everything is read
    return protect(private, plan.relation, threads=threads, console=console, readers=place)


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
            DATA: content,
            "the plan": bytes.fromhex(bound.sha256),
            "the settings": hashlib.sha256(repr((optimizer, settings, shapes)).encode()).digest(),
            "the code": code_digest(*parts),
        }
    )
