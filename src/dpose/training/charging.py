"""What a run reads, and what it takes from those pictures as the account of the data has it.

Everything that can be refused is refused here, before anything is charged or written.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from dpose.account import EVALUATION, Charge, charge, charges
from dpose.errors import DposeError
from dpose.known_sets import set_names_of
from dpose.privacy.accounting import epsilon
from dpose.privacy.entries import read_ledger
from dpose.privacy.keys import keys_kept
from dpose.privacy.ledger import head_kept
from dpose.privacy.marks import Marks, marks_of
from dpose.privacy.protected import DATA, Protected, protect, unit_of
from dpose.privacy.ranges import large_delta, upper
from dpose.privacy.sections import PublicInput
from dpose.training.checkpoint import checkpoints
from dpose.training.first_weights import Inherited, first_of, inherited
from dpose.training.folder import run_id_of
from dpose.training.gradients import trainable_params
from dpose.training.guards import check_disjoint, check_not_watched, learnt_again
from dpose.training.options import RunOptions, RunRequest
from dpose.training.plan import BoundPlan, TrainingPlan
from dpose.training.reproducibility import code_digest
from dpose.units import UnitDataset


@dataclass(frozen=True)
class RunData:
    """What a run reads, and the plan bound to it: rate, clipping norm and noise come from nowhere else.

    Attributes:
        own: The units that it trains on, as they are protected.
        public: The public units that its method is fitted on; None for a method that reads none.
        bound: The plan, bound to `own`.
        content: A digest of all units: names, order, contents and labels, private and public.
        opened: Marks of the pictures that are taken to be public and learnt from; None without such pictures.
        inputs: What of it is public, for the statement.
    """

    own: Protected
    public: UnitDataset | None
    bound: BoundPlan
    content: bytes
    opened: Marks | None
    inputs: tuple[PublicInput, ...]


def read_data(request: RunRequest, private: UnitDataset | Protected, public: UnitDataset | None) -> RunData:
    """Read what the run trains on, each process its share, and bind the plan to it."""
    plan, options, ranks, console = request.plan, request.options, request.ranks, request.console
    threads, kind = options.threads, plan.kind
    used = _public_units(plan, public)
    if isinstance(private, Protected):
        own = private
    else:
        plan.check_unit(unit_of(private))  # before everything is read
        own = protect(private, plan.relation, threads=threads, console=console, readers=ranks)
    content, inputs, opened = own.identity.digest, list[PublicInput](), None
    with console.status("finding the noise that the budget asks for"):
        bound = plan.bind_to(own)
    if warning := large_delta(plan.delta if kind.private else None, bound.n):
        console.print(warning, highlight=False)
    for note in plan.notes(bound.n):
        console.print(note, highlight=False)
    if used:
        check_disjoint(used, own, threads, console, ranks)
        of_used = protect(used, threads=threads).identity
        content, opened = hashlib.sha256(content + of_used.digest).digest(), of_used.marks
        fitted_on = f"{len(used):,} units that {plan.method} is fitted on"
        inputs.append(PublicInput(fitted_on, of_used.digest.hex(), options.public_licence))
    if options.data_is_public and not kind.reads_private_data:
        trained_on = f"{len(own.data):,} units that it was trained on"
        inputs.append(PublicInput(trained_on, own.identity.digest.hex(), options.public_licence))
    if options.validation_data and kind.reads_private_data:
        check_not_watched(options.validation_data.units, own, threads, console, ranks)
    data = RunData(own, used, bound, content, opened, tuple(inputs))
    _agree(request, data)
    return data


def _public_units(plan: TrainingPlan, public: UnitDataset | None) -> UnitDataset | None:
    """The public units that the method reads; None if it reads none, whatever was given."""
    plan.check_public(public)
    return public if plan.fits_public else None


def code_of(request: RunRequest, data: RunData) -> tuple[object, ...]:
    """The objects whose code counts besides dpose's own."""
    return (request.task, request.model, data.own.source, request.plan.kind.update)


def _agree(request: RunRequest, data: RunData) -> None:
    """Hold all processes to one run before anything of it is charged or written."""
    params = trainable_params(request.model).items()
    shapes = [(name, tuple(p.shape), str(p.dtype)) for name, p in params]
    settings = (request.options.seed, request.options.resume, request.options.microbatch_size)
    request.ranks.agree(
        {
            DATA: data.content,
            "the plan": bytes.fromhex(data.bound.sha256),
            "the settings": hashlib.sha256(repr((request.optimizer, settings, shapes)).encode()).digest(),
            "the code": code_digest(*code_of(request, data)),
        }
    )


@dataclass(frozen=True)
class RunCharges:
    """What a run takes from the account of its data.

    Attributes:
        entry: For the units that it trains on, with all that its plan allows.
        scored: For pictures that are scored while it trains; None if they are public or there are none.
        known: What its first weights have learnt from.
        inputs: What of that is public, for the statement.
    """

    entry: Charge
    scored: Charge | None
    known: Inherited
    inputs: tuple[PublicInput, ...]


def price_run(request: RunRequest, data: RunData) -> RunCharges:
    """What the run will take; nothing is charged, but what the account would refuse is refused."""
    options, plan, seeded = request.options, request.plan, request.options.seed is not None
    trial = options.trial
    account = charges(trial.account if trial else options.state_dir)
    before = account if options.resume else None
    entry = run_charge(request.folder, data.bound, data.own, options, opened=data.opened, seeded=seeded, known=before)
    if trial:
        entry = replace(entry, id=trial.charge.id)
    first = first_of(options.start, request.model, account)
    again = options.learnt_from and learnt_again(
        data.own.data, options.threads, request.console, options.learnt_from, request.ranks
    )
    known = inherited(first, entry, plan, account, again, set_names_of(data.own.source), seeded=seeded)
    entry = replace(entry, start=known.digest)
    inputs = list[PublicInput]()
    if known.digest and not known.events:
        inputs.append(PublicInput("the first weights", known.digest, first.licence))
    scored = watch_charge(options, entry, request.console)
    if request.ranks.first and not trial:
        for requested in filter(None, (entry, scored)):
            charge(requested, options.state_dir, dry_run=True)
        tell_composed(known, data.bound, request.console)
    return RunCharges(entry, scored, known, (*inputs, *first.behind))


def run_charge(
    folder: Path,
    bound: BoundPlan,
    own: Protected,
    options: RunOptions,
    *,
    opened: Marks | None,
    seeded: bool,
    known: Sequence[Charge] | None,
) -> Charge:
    """What the run will take from its pictures: all that its plan allows, however it ends.

    A run is told by its ledger. A folder without one begins a run of its own, whatever its settings call it, and is
    refused where there has been one.

    `known` is what the account holds, if the run goes on from what the folder holds; None for one that begins. `opened`
    are pictures that are taken to be public and learnt from.
    """
    plan, ledger = bound.plan, folder / "ledger.jsonl"
    run_id = identity = ""
    if known is not None and ledger.exists():
        first = read_ledger(ledger)[0]
        run_id, identity = first.run_id, first.sha256
    elif known is not None:
        _check_had_none(folder, known, options.state_dir, private=bound.event is not None)
        run_id = run_id_of(folder) if checkpoints(folder) else ""
    return Charge(
        id=run_id or secrets.token_hex(16),
        # without a guarantee the ledger holds a seal and counts no steps
        ledger=identity if bound.event and not seeded else "",
        what=options.what,
        data=options.data_name or type(own.source).__name__,
        folder=str(folder.resolve()),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        unit=own.neighbours.unit.value,
        relation=own.neighbours.relation,
        delta=plan.delta or 0.0,
        events=(bound.event,) if bound.event and not seeded else (),
        # a seeded run with public views protects nothing, beyond them or not
        beyond=plan.kind.public_views and not (seeded and plan.kind.private),
        marks=own.identity.marks,
        units=own.identity.units,
        views=f"{plan.public_view.kind}, width {plan.public_view.width:g}" if plan.kind.public_views else "",
        opened=marks_of(()) if opened is None else opened,
    )


def _check_had_none(folder: Path, known: Sequence[Charge], state_dir: Path | None, *, private: bool) -> None:
    """Refuse a run folder without a ledger where anything shows that it had one: what it has spent would be unknown.

    Settings that were copied from another run's folder tell of none: under them a run of its own begins.

    Raises:
        DposeError: it had one; says what tells it.
    """
    name, here = run_id_of(folder), str(folder.resolve())
    named = [entry for entry in known if entry.id == name]
    copied = bool(named) and not any(here in entry.folders for entry in named)
    notes = [file for file in ("model.safetensors", "privacy.json") if (folder / file).exists()]
    if private:
        notes += ["its checkpoints"] if checkpoints(folder) else []
        notes += ["log.jsonl"] if (folder / "log.jsonl").exists() else []
        if any(entry.ledger and here in entry.folders and name in ("", entry.id) for entry in known):
            notes.append("the account")
    if name and not copied:
        notes += ["its head, which this machine keeps"] if head_kept(name, state_dir) else []
        notes += ["its key, which this machine keeps"] if name in keys_kept(state_dir) else []
    if notes:
        raise DposeError(
            "ledger-missing",
            "the ledger of this run is missing, and what it has spent cannot be told without it (that there was one is "
            f"told by {notes[0]})",
            str(folder / "ledger.jsonl"),
            "bring it back, or start a new run in another folder",
        )


def watch_charge(options: RunOptions, entry: Charge, console: Console) -> Charge | None:
    """What scoring while training takes from the pictures that are scored; None if they are public."""
    watch = options.validation_data
    if watch is None or watch.public:
        return None
    return replace(
        entry,
        id=hashlib.sha256(f"{EVALUATION} {entry.id}".encode()).hexdigest()[:32],
        what=EVALUATION,
        data=watch.name,
        delta=0.0,
        events=(),
        beyond=False,
        marks=protect(watch.units, threads=options.threads, console=console).identity.marks,
        views="",
        start="",
        opened=marks_of(()),
    )


def tell_composed(known: Inherited, bound: BoundPlan, console: Console) -> None:
    """Say beforehand where a run's statement will claim more than its plan does."""
    plan = bound.plan
    if known.events and bound.event and plan.delta is not None:
        both = epsilon([bound.event, *known.events], plan.delta, plan.relation, plan.accountant)
        console.print(
            f"The first weights learnt from some of these {plan.unit}s too: the statement counts both runs, "
            f"epsilon {upper(both)} together.",
            highlight=False,
        )
