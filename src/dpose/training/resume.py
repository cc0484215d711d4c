"""From a folder to the steps that are left: which key, which checkpoint, what of it is counted again.

A run that was stopped goes on from its last checkpoint. The steps after that have been taken, and perhaps seen. They
may be taken again under their old key if the result is the same to the last bit, since nothing new is then released.
In every other case a new key draws new samples and new noise, and the ledger counts the steps twice. Which case it is
does not rest on trust: every step's update is compared with the digest that the log holds of it, before it is used, and
the account lets one copy of the run go on under a key (`dpose.account.budgets`).
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import torch

from dpose.account import charge, conclude
from dpose.account.budgets import CountedSteps, place_of
from dpose.errors import DposeError
from dpose.privacy.canaries import keep_opening
from dpose.privacy.entries import EntryType
from dpose.privacy.keys import StoredKey, forget_key, keep_key, kept_key
from dpose.privacy.ledger import Ledger, hold_run
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.privacy.protected import DATA
from dpose.training.checkpoint import last_checkpoint
from dpose.training.first_weights import covers, first_weights_of
from dpose.training.folder import RunLog, json_objects, updates_of, write_config
from dpose.training.reproducibility import MICRO_BATCH, digest_of
from dpose.training.run import Ended, Run


def look_back(run: Run) -> None:
    """Read what the folder holds of the run, and the key that this machine keeps of it.

    No other process is at work in the folder.
    """
    run.saved = last_checkpoint(run.folder, run.console) if run.options.resume else None
    if run.ranks.first and run.bound.event and _ledger_path(run).exists():
        _read_ledger(run)
    if run.ranks.first and run.options.resume:
        _check_first_weights(run)
    whole = run.saved is not None and run.saved.step == run.bound.steps
    finished = whole and (run.folder / "model.safetensors").exists() and not run.kept
    # the first process alone knows of a stored key, with which the run is to be ended
    if run.ranks.highest(int(finished and run.ranks.first)):
        raise DposeError(
            "run-finished", "this run is finished", str(run.folder), "to train further: a new run with --init"
        )


def _ledger_path(run: Run) -> Path:
    return run.folder / "ledger.jsonl"


def _read_ledger(run: Run) -> None:
    with Ledger.append_to(_ledger_path(run), run.options.state_dir) as ledger:
        run.run_id = ledger.run_id
        entries = ledger.entries
    known = {entry.sha256 for entry in entries}
    if entries[0].plan_sha256 != run.bound.sha256:
        raise DposeError(
            "run-of-other-plan",
            "this run began with another plan, or another number of units",
            str(run.folder),
            "go on with the settings that it began with, or start a new run",
        )
    if run.saved and run.saved.ledger_head not in known:
        raise DposeError(
            "ledger-of-other-run",
            "the ledger is not the one that the checkpoint was written beside",
            str(_ledger_path(run)),
        )
    if run.options.seed is None:
        run.kept = kept_key(run.run_id, run.options.state_dir)
    if run.kept and run.kept.data != run.data.content.hex():
        raise DposeError(
            "units-differ",
            f"{DATA} are not those that this run began with",
            str(run.folder),
            "bring them back as they were, or start a new run",
        )
    if run.kept:
        key_id = AesNoise(run.kept.key).key_id
        first = run.saved.step if run.saved else 0
        committed = {
            step
            for entry in entries
            if entry.type is EntryType.COMMIT and entry.key_id == key_id
            for step in range(entry.first_step, entry.first_step + entry.steps)
            if step >= first
        }
        run.log_lacks_steps = bool(committed - updates_of(run.folder / "log.jsonl", key_id).keys())


def _check_first_weights(run: Run) -> None:
    """Refuse to go on from other first weights than the log began with, or with an account that knows less of them.

    The checkpoint descends from the weights of the beginning, and what those took of a unit counts, whatever is given
    now and whatever account is asked.
    """
    now, log = run.charges.known.to_dict(), run.folder / "log.jsonl"
    for was in first_weights_of(json_objects(log), log):
        if was["sha256"] != now["sha256"]:
            raise DposeError(
                "first-weights-differ",
                "the first weights are not those that this run began with",
                str(run.folder),
                "bring them back as they were, or start a new run",
            )
        if not covers(now["events"], was["events"]) or (was["beyond"] and not run.charges.known.beyond):
            raise DposeError(
                "first-weights-unknown-here",
                "this account does not know the run that the first weights come from, whose cost this run counts",
                str(run.folder),
                "go on where the account is that it began with",
            )


def stored_microbatch(run: Run) -> int | None:
    """The micro-batch of the stored key: with another one, sums would be taken in another order."""
    return int(run.kept.surroundings.get(MICRO_BATCH, 0)) or None if run.kept else None


def choose_key(run: Run, *, repeatable: bool) -> AesNoise:
    """The noise of this attempt, under the old key if its steps come out as they did."""
    if run.kept:
        old = run.kept.surroundings
        changed = [name for name in {**old, **run.around} if old.get(name) != run.around.get(name)]
        if run.log_lacks_steps:
            # taken again, they could not be compared with what was seen of them: one noise might meet two sums
            forsake_key(run, "the log lacks steps that the ledger has")
        elif changed:
            forsake_key(run, "changed: " + ", ".join(changed))
        elif not repeatable:
            forsake_key(run, "this machine does not give the same bits twice")
    elif run.run_id and run.options.seed is None:
        forsake_key(run, "this machine does not hold its key")
    if run.run_id and not _take_up(run):
        forsake_key(run, "another copy of this run went on under its key, or may be at work")
        _take_up(run)
    key = _key(run)
    return AesNoise(Key.drawn(run.ranks.bytes_from_first(key.secret), seeded=key.seeded))


def _key(run: Run) -> Key:
    return run.kept.key if run.kept else run.fresh_key


def _take_up(run: Run) -> bool:
    """Whether this copy of the run may go on under its key; its ledger then says that it does."""
    _hold(run)
    key_id = _key(run).key_id
    with Ledger.append_to(_ledger_path(run), run.options.state_dir) as ledger:
        logged = updates_of(run.folder / "log.jsonl", key_id)
        first = run.saved.step if run.saved else 0
        return _counted(run, ledger).take_up(key_id, first, logged, begun=True)


def _counted(run: Run, ledger: Ledger) -> CountedSteps:
    state_dir = run.options.state_dir
    return CountedSteps(ledger, run.entry, run.bound.steps, state_dir, place_of(state_dir))


def _hold(run: Run) -> None:
    """Keep other processes with this state folder from the run, in whichever folder a copy of it is."""
    run.held.close()
    run.held.enter_context(hold_run(run.run_id, run.options.state_dir))


def forsake_key(run: Run, why: str) -> None:
    """Go on from the last checkpoint with a new key; the steps after it will be counted again."""
    run.console.print(
        f"The steps since the last checkpoint cannot be repeated to the last bit ({why}): "
        "they are taken under a new key and counted twice.",
        highlight=False,
    )
    if run.run_id:
        forget_key(run.run_id, run.options.state_dir)
    run.kept, run.fresh_key = None, Key.fresh()
    run.saved = last_checkpoint(run.folder, run.console)


def go_on(run: Run, noise: AesNoise) -> Ended:
    """Take the steps that are left, from the last checkpoint or from the start, under the key of `noise`.

    Raises:
        ReplayError: a step came out otherwise than before.
        DposeError: as `Run.take_steps`; or files cannot be written.
    """
    if not noise.seeded:
        start = digest_of(run.params) + json.dumps(run.around, sort_keys=True).encode()
        # under the key, since checkpoints hold the chain and surroundings may be of private data
        run.chain = noise.stream(Purpose.CHAIN, 0, start).bytes(32)
    if run.saved:
        run.restore(run.saved)
    _same_weights(run)
    if not run.ranks.first:
        return run.take_steps()
    with contextlib.ExitStack() as closing:
        # the ledger before all that tells of a step, so that a folder that has any of it has had a ledger
        if not run.saved:
            write_config(run.folder, run.config)
        run.ledger = _open_ledger(run, noise.key_id, closing)
        if not run.options.trial and not run.entry.ledger:
            charge(run.entry, run.options.state_dir)
        run.log = closing.enter_context(RunLog(run.folder / "log.jsonl"))
        if not run.saved:
            run.save()
        if run.ledger and not noise.seeded:
            run.taken = updates_of(run.folder / "log.jsonl", noise.key_id)
        if run.saved:
            run.log.write("resume", step=run.steps, key_id=noise.key_id, replay=bool(run.kept))
        else:
            bound, settings = run.bound, run.config["run"]
            constants = {"n": bound.n, "steps": bound.steps, "plan_sha256": bound.sha256}
            run.log.write("start", **constants, key_id=noise.key_id, **settings)
        return run.take_steps()


@torch.no_grad()
def _same_weights(run: Run) -> None:
    """The first process's weights in every process."""
    floats = {n: t for n, t in run.model.state_dict().items() if t.is_floating_point()}
    for name, value in run.ranks.from_first(floats).items():
        floats[name].copy_(value)


def _open_ledger(run: Run, key_id: str, closing: contextlib.ExitStack) -> CountedSteps | None:
    """The run's ledger, charged to the account, in `closing`; the key is on disk when this returns."""
    if run.bound.event is None:
        return None
    path, state_dir, trial = _ledger_path(run), run.options.state_dir, run.options.trial
    begun, secret = bool(run.run_id), run.options.seed is None
    if begun:
        ledger = Ledger.append_to(path, state_dir)
    else:
        ledger = Ledger.create(path, run.bound.sha256, key_id, state_dir, run.entry.id)
    closing.enter_context(ledger)
    closing.callback(_note_ledger, run, ledger)
    if not begun:
        run.run_id = ledger.run_id
        _hold(run)
        if secret and not trial:
            run.entry = replace(run.entry, ledger=ledger.identity)
        for query in run.queries:
            ledger.query(query.to_dict())
    _commit_to_canaries(run, ledger)
    if secret and not run.kept:
        keep_key(run.run_id, StoredKey(run.fresh_key, run.data.content.hex(), run.around), state_dir)
    counted = _counted(run, ledger)
    closing.callback(_note_total, run, counted)
    if not begun:
        counted.take_up(key_id, 0, (), begun=False)
    return counted


def _note_ledger(run: Run, ledger: Ledger) -> None:
    run.head, run.ledger_steps = ledger.head, ledger.spent_steps


def _note_total(run: Run, counted: CountedSteps) -> None:
    run.counted_steps = counted.total


def _commit_to_canaries(run: Run, ledger: Ledger) -> None:
    """Have the commitment in the ledger before anything is reserved; a run that goes on has it already."""
    opening = run.options.canaries
    planted = opening.committed if opening else None
    recorded = [entry.event for entry in ledger.entries if entry.type is EntryType.CANARIES]
    begun = any(entry.type is EntryType.RESERVE for entry in ledger.entries)
    if opening and planted and not recorded and not begun:
        keep_opening(ledger.run_id, opening, run.options.state_dir)
        ledger.canaries(planted)
    elif recorded != ([planted.to_dict()] if planted else []):
        raise DposeError(
            "canaries-differ",
            "this run began with other canaries",
            str(run.folder),
            "go on with those that it began with",
        )


def caveats(run: Run) -> list[str]:
    """What the statement must say of how the run went."""
    bound = run.bound
    if run.interrupted:
        return [f"the run was stopped after {run.steps} of {bound.steps} steps; epsilon is the plan's"]
    again = run.counted_steps - run.steps
    if bound.event is None or again <= 0:
        return []
    notes = f"the run was stopped and taken up again; {again} steps count that were lost or taken twice"
    if run.ended is Ended.BUDGET:
        notes += f", and it ended after {run.steps} of {bound.steps} steps to keep its epsilon"
    return [notes]


def conclude_run(run: Run) -> None:
    """The run needs its key no more, and has taken what its ledger counts."""
    state_dir = run.options.state_dir
    if not run.options.trial:
        conclude({run.entry.id: ()}, where=state_dir)
    if run.run_id and run.options.seed is None:
        forget_key(run.run_id, state_dir)
    if run.charges.scored:
        conclude({run.charges.scored.id: ()}, where=state_dir)
