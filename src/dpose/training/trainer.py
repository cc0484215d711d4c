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
import copy
import hashlib
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from dpose.account import charge, note_weights
from dpose.errors import DposeError
from dpose.files import check_free, explain_os_error, locked_folder, make_folder
from dpose.interpreter import settle_environment
from dpose.known_sets import SetNames, set_names_of
from dpose.privacy.merged import first_entries
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.protected import Protected
from dpose.privacy.shares import is_local
from dpose.training.arithmetic import exact_arithmetic, keep_freed_memory
from dpose.training.charging import RunData, code_of, price_run, read_data
from dpose.training.closed_form import check_solvable
from dpose.training.distributed import process_group
from dpose.training.dry_run import dry_run, fit_microbatch
from dpose.training.first_weights import FIRST, Inherited, digest_of_weights
from dpose.training.folder import keep_places, write_run_folder
from dpose.training.gradients import trainable_params
from dpose.training.graph import recorder
from dpose.training.guards import check_model
from dpose.training.kept import KeptPictures, keep_pictures, room_on
from dpose.training.loader import Loader
from dpose.training.optim import ONE_STEP, OptimizerConfig
from dpose.training.options import RunOptions, RunRequest
from dpose.training.plan import BoundPlan, TrainingPlan
from dpose.training.reproducibility import (
    CALL_BY_CALL,
    HOW,
    KEPT,
    check_alike,
    digest_of,
    environment,
    settings_in_force,
)
from dpose.training.resume import caveats, choose_key, conclude_run, forsake_key, go_on, look_back, stored_microbatch
from dpose.training.run import ReplayError, Run
from dpose.training.statement import LedgerRecord, StatementFacts, run_statement
from dpose.training.step import StepInputs, open_parts, private_task, replayed_sums
from dpose.training.trained_on import ENTRY, TrainedOn, learnt_by_run
from dpose.units import Task, UnitDataset


def train(
    task: Task,
    model: torch.nn.Module,
    *,
    private: UnitDataset | Protected,
    plan: TrainingPlan,
    out: str | Path,
    public: UnitDataset | None = None,
    optimizer: OptimizerConfig | None = None,
    options: RunOptions | None = None,
) -> Run:
    """Train `model` on `private` as `plan` says and write a run folder.

    **Guarantee.** For a private method: (epsilon, delta)-differential privacy of everything in the run folder, for the
    plan's unit and neighbouring relation; `Run.statement` carries it and `docs/proofs/dp-sgd.md` proves it. With
    `options.seed` there is none, because the seed gives the noise away; the statement then says so. What the model's
    first weights learnt from is part of the claim (`options.start`): the account is asked before anything is charged.

    Args:
        task: Gives the loss and collates views.
        model: Trained in place; its parameters that require gradients are trained. Moved by the caller. Where `train`
            raises it has the weights that it came with: what a run was doing goes on from its folder alone.
        private: The units the plan protects (or, for a method without guarantee, simply the data). They are read as
            `protect` has it, unless that was done before: copies of one unit count once.
        plan: The method and its budget.
        out: The run folder; must not exist (or be empty), unless
            `options.resume`. With several processes (`torchrun`) all of
            them must see it.
        public: Extra public data, for the methods that use some; the others leave it unread.
        optimizer: AdamW with a cosine schedule by default.
        options: The seed, whether the run goes on, where the weights are from, what is scored, what the statement says
            besides, threads and memory.

    Raises:
        DposeError: `out` exists (or holds nothing to resume), the plan does not fit the data, a unit cannot be read,
            the model cannot be trained privately as it is, its first weights learnt from the same pictures without a
            guarantee, or `options.validation_data` shows pictures that the run protects.
    """
    ranks = process_group()
    options = options or RunOptions()
    console = (options.console or Console()) if ranks.first else Console(quiet=True)
    chosen = ONE_STEP if plan.kind.solves else optimizer or OptimizerConfig()
    request = RunRequest(task, model, plan, Path(out), chosen, options, ranks, console)
    _check_beginning(request)
    settle_environment()
    keep_freed_memory()
    data = read_data(request, private, public)
    charges = price_run(request, data)
    model.train()
    with contextlib.ExitStack() as held:
        inputs = _step_inputs(request, data)
        held.callback(inputs.loader.close)
        if inputs.device.type == "cuda":  # streams and kernels are of the current one
            held.enter_context(torch.cuda.device(inputs.device))
        if inputs.replayed:
            held.callback(inputs.replayed.close)
        with exact_arithmetic(inputs.device) if plan.kind.private else contextlib.nullcontext():
            dry_run(inputs, data.public, request.optimizer)  # as the steps will be computed
        if ranks.first:
            _make_folder(request)
            held.enter_context(locked_folder(request.folder))
        held.enter_context(_weights_put_back(model))
        run = Run(request, data, charges)
        held.callback(run.close)
        look_back(run)
        if plan.kind.private:
            held.enter_context(exact_arithmetic(inputs.device))
        _take_all_steps(run, inputs)
        _release(run)
    return run


@contextlib.contextmanager
def _weights_put_back(model: torch.nn.Module) -> Iterator[None]:
    """Give `model` the weights that it came with where the body fails.

    The account hears of a run's weights when they are released. What an unfinished run has learnt would be weights that
    no account knows, and the next run from them would claim that its units had no influence on them.
    """
    first = copy.deepcopy(model.state_dict())
    try:
        yield
    except BaseException:
        model.load_state_dict(first)
        raise


def check_trial(request: RunRequest, private: Protected, public: UnitDataset | None) -> None:
    """Refuse what `train` would refuse of this before the first step; nothing is written, and nothing charged."""
    _check_beginning(request)
    request.model.train()
    data = read_data(request, private, public)
    inputs = _step_inputs(request, data)
    with contextlib.closing(inputs.loader), exact_arithmetic(inputs.device):
        dry_run(inputs, data.public, request.optimizer)


def _check_beginning(request: RunRequest) -> None:
    if not request.options.resume:
        check_free(request.folder, may_be_empty=True, may_be_locked=True)
    if not trainable_params(request.model):
        raise DposeError(
            "trainable-parameters-missing", "the model has no trainable parameters", fix="choose another --strategy"
        )
    if request.plan.kind.reads_private_data:
        check_model(request.model)
    if request.plan.kind.solves:
        check_solvable(request.model, trainable_params(request.model))


def _make_folder(request: RunRequest) -> None:
    folder = request.folder
    if request.options.resume and not folder.is_dir():
        raise DposeError(
            "run-missing", "there is no such run", str(folder), "name the folder of a run that was stopped"
        )
    try:
        make_folder(folder)
    except OSError as error:
        raise explain_os_error(error, folder) from error


def _step_inputs(request: RunRequest, data: RunData) -> StepInputs:
    """What steps may not change, but for the key, which is for shapes only, and the micro-batch, of one view."""
    nothing = AesNoise(Key.from_seed(0))
    loader = Loader(request.task, data.own.data, nothing, request.options.threads)
    context = hashlib.sha256(bytes.fromhex(data.bound.sha256) + data.content).digest()
    numbers = tuple(first_entries(data.own.data))
    engine = (request.task, request.model, loader, data.bound, nothing, context)
    inputs = StepInputs(*engine, microbatch_size=1, ranks=request.ranks, numbers=numbers)
    record = recorder(inputs.device) if request.plan.kind.private else None
    if record is None:
        return inputs
    return replace(inputs, replayed=replayed_sums(replace(inputs, task=private_task(inputs)), record))


def _take_all_steps(run: Run, inputs: StepInputs) -> None:
    """All steps that are left, under as many keys as it takes; `run.config` and `run.around` say how."""
    request, data, options, known = run.request, run.data, run.options, run.charges.known
    fitted, repeats = fit_microbatch(inputs, options.microbatch_size or stored_microbatch(run), run.console)
    inputs = replace(inputs, microbatch_size=fitted)
    # behind the micro-batch, which is published and fitted to what is free
    kept = inputs.loader.kept = _pictures_ready(inputs, run.console)
    names = set_names_of(data.own.source)
    learnt = learnt_by(known, request.plan, names, data.public, seeded=request.options.seed is not None)
    run.config = describe_run(request, data.bound, run.entry.id, fitted, known, learnt)
    run.around = environment(inputs.device, fitted, run.ranks.count, *code_of(request, data))
    run.around |= settings_in_force(run.config, (request.task, data.own.source, data.public))
    run.around[HOW] = inputs.replayed.how if inputs.replayed else CALL_BY_CALL
    if kept is not None:
        run.around[KEPT] = "made on the device"
    check_alike(run.around, run.ranks)
    run.around["the first weights"] = run.ranks.bytes_from_first(digest_of(run.model.state_dict())).hex()
    while run.ended is None:
        noise = choose_key(run, repeatable=repeats)
        with open_parts(replace(inputs, noise=noise), data.public) as sources:
            run.start(sources)
            if run.ranks.first and run.charges.scored:
                charge(run.charges.scored, options.state_dir)
            if run.ranks.first and options.places:
                keep_places(run.entry.id, options.places, options.state_dir)
            try:
                run.ended = go_on(run, noise)
            except ReplayError as error:
                forsake_key(run, str(error))


def _pictures_ready(inputs: StepInputs, console: Console) -> KeptPictures | None:
    """The pictures of the units that this process takes, on its device, as far as that has room for them."""
    room, ranks = room_on(inputs.device), inputs.ranks
    if not room:
        return None
    numbers = inputs.numbers or ()
    own = [unit for unit, number in enumerate(numbers) if is_local(number, ranks)]
    threads = inputs.loader.threads
    return keep_pictures(inputs.loader.dataset, inputs.device, room, own, threads=threads, console=console)


def _release(run: Run) -> None:
    """The statement of the run, its model, and its folder, sealed."""
    options, sources, known = run.options, run.sources, run.charges.known
    run.console.print(run.pace, highlight=False)
    run.load_average()
    run.model.eval()
    own = StatementFacts(
        sources.facts, sources.conditions, tuple(caveats(run)), inputs=(*run.data.inputs, *run.charges.inputs)
    )
    run.statement = run_statement(
        run.bound,
        options.facts + own,
        LedgerRecord(run.head, run.ledger_steps, run.queries, options.canaries.committed if options.canaries else None),
        seeded=sources.inputs.noise.seeded,
        start=known,
        tuning=options.trial.tuning if options.trial else None,
    )
    if not run.ranks.first:
        return
    if not options.trial:
        note_weights(run.entry.id, digest_of_weights(run.model), options.state_dir)
    run.statement = write_run_folder(
        run.folder,
        run.model,
        run.config,
        run.statement,
        run_id=run.entry.id,
        first_weights=known.digest,
        state_dir=options.state_dir,
    )
    if not run.interrupted:
        conclude_run(run)


def describe_run(
    request: RunRequest, bound: BoundPlan, run_id: str, microbatch_size: int, known: Inherited, learnt: TrainedOn
) -> dict[str, Any]:
    """What `config.json` of a run says: its name, task and model, what it has learnt from, and all settings."""
    described = getattr(request.model, "config", None)
    return {
        "task": request.task.name,
        "run_id": run_id,
        "model": described.to_dict() if described else {},
        ENTRY: learnt.to_dict(),
        "run": {
            **request.options.settings,
            FIRST: known.to_dict(),
            "plan": bound.plan.to_dict(),
            "bound": bound.constants(),
            "optimizer": asdict(request.optimizer),
            "seed": request.options.seed,
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
