"""From a folder to the steps that are left: which key, which checkpoint, what of it is counted again.

A run that was stopped goes on from its last checkpoint. The steps after that have been taken, and perhaps seen. They
may be taken again under their old key if the result is the same to the last bit, since nothing new is then released.
In every other case a new key draws new samples and new noise, and the ledger counts the steps twice. Which case it is
does not rest on trust: every step's update is compared with the digest that the log holds of it, before it is used, and
the account lets one copy of the run go on under a key (`dpose.account.reservations`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from dpose.account import Charge, charge, conclude
from dpose.account.reservations import CountedSteps, place_of
from dpose.errors import DposeError
from dpose.privacy.canaries import keep_opening
from dpose.privacy.entries import EntryType
from dpose.privacy.keys import StoredKey, forget_key, keep_key, kept_key
from dpose.privacy.ledger import Ledger, hold_run
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.protected import DATA
from dpose.privacy.queries import Query
from dpose.training.checkpoint import last_checkpoint
from dpose.training.distributed import ProcessGroup
from dpose.training.folder import NoLog, RunLog, updates_of, write_config
from dpose.training.loop import Ended, Loop
from dpose.training.options import RunOptions
from dpose.training.plan import BoundPlan
from dpose.training.reproducibility import MICRO_BATCH, digest_of


class TrainingSession:
    """One process's try at finishing the run in a folder.

    No other process is at work in `folder`. `content` is a digest of the data: ids, order, contents and labels of
    private and public units.

    Raises:
        DposeError: the run is finished, its checkpoints or its ledger are broken, or the data are not those that it
            began with.
    """

    def __init__(
        self,
        folder: Path,
        bound: BoundPlan,
        entry: Charge,
        content: bytes,
        seed: int | None,
        ranks: ProcessGroup,
        resume: bool,
        options: RunOptions,
        console: Console,
    ) -> None:
        self.folder, self.bound, self.entry, self.content, self.seed = folder, bound, entry, content, seed
        self.ranks, self.state_dir, self.console = ranks, options.state_dir, console
        self.query: Query | None = options.validation_data.query() if options.validation_data else None
        self.saved = last_checkpoint(folder, console) if resume else None
        self.head, self.counted, self.run_id = "", 0, ""
        self.total = 0
        self._alone = contextlib.ExitStack()
        self.around: dict[str, str] = {}
        self.kept: StoredKey | None = None
        self._lost = False
        self._path = folder / "ledger.jsonl"
        self.trial, self.opening = options.trial, options.canaries
        self._key = Key.fresh() if seed is None else Key.from_seed(seed)
        if self.trial:
            self._key = self.trial.key
        if ranks.first and bound.event and self._path.exists():
            self._look_back()
        whole = self.saved is not None and self.saved.step == bound.steps
        finished = whole and (folder / "model.safetensors").exists() and not self.kept
        # the first process alone knows of a stored key, with which the run is to be ended
        if ranks.highest(int(finished and ranks.first)):
            raise DposeError(
                "run-finished", "this run is finished", str(folder), "to train further: a new run with --init"
            )

    def _look_back(self) -> None:
        with Ledger.append_to(self._path, self.state_dir) as ledger:
            self.run_id = ledger.run_id
            entries = ledger.entries
        known = {entry.sha256 for entry in entries}
        if entries[0].plan_sha256 != self.bound.sha256:
            raise DposeError(
                "run-of-other-plan",
                "this run began with another plan, or another number of units",
                str(self.folder),
                "go on with the settings that it began with, or start a new run",
            )
        if self.saved and self.saved.ledger_head not in known:
            raise DposeError(
                "ledger-of-other-run",
                "the ledger is not the one that the checkpoint was written beside",
                str(self._path),
            )
        if self.seed is None:
            self.kept = kept_key(self.run_id, self.state_dir)
        if self.kept and self.kept.data != self.content.hex():
            raise DposeError(
                "units-differ",
                f"{DATA} are not those that this run began with",
                str(self.folder),
                "bring them back as they were, or start a new run",
            )
        if self.kept:
            key_id = AesNoise(self.kept.key).key_id
            first = self.saved.step if self.saved else 0
            committed = {
                step
                for entry in entries
                if entry.type is EntryType.COMMIT and entry.key_id == key_id
                for step in range(entry.first_step, entry.first_step + entry.steps)
                if step >= first
            }
            self._lost = bool(committed - updates_of(self.folder / "log.jsonl", key_id).keys())

    @property
    def micro_batch(self) -> int | None:
        """The micro-batch of the stored key: with another one, sums would be taken in another order."""
        return int(self.kept.surroundings.get(MICRO_BATCH, 0)) or None if self.kept else None

    def noise(self, surroundings: Mapping[str, str], repeatable: bool) -> AesNoise:
        """The noise of this attempt, under the old key if its steps come out as they did."""
        self.around = dict(surroundings)
        if self.kept:
            old = self.kept.surroundings
            changed = [name for name, value in self.around.items() if old.get(name) != value]
            if self._lost:
                # taken again, they could not be compared with what was seen of them: one noise might meet two sums
                self.forsake_key("the log lacks steps that the ledger has")
            elif changed or not repeatable:
                self.forsake_key(
                    "changed: " + ", ".join(changed)
                    if changed
                    else "this machine does not give the same bits twice"
                )
        elif self.run_id and self.seed is None:
            self.forsake_key("this machine does not hold its key")
        if self.run_id and not self._take_up():
            self.forsake_key("another copy of this run went on under its key, or may be at work")
            self._take_up()
        key = self.kept.key if self.kept else self._key
        return AesNoise(Key.drawn(self.ranks.bytes_from_first(key.secret), seeded=key.seeded))

    def _take_up(self) -> bool:
        """Whether this copy of the run may go on under its key; its ledger then says that it does."""
        self._hold()
        key_id = (self.kept.key if self.kept else self._key).key_id
        with Ledger.append_to(self._path, self.state_dir) as ledger:
            logged = updates_of(self.folder / "log.jsonl", key_id)
            first = self.saved.step if self.saved else 0
            return self._steps(ledger).take_up(key_id, first, logged, begun=True)

    def _steps(self, ledger: Ledger) -> CountedSteps:
        return CountedSteps(ledger, self.entry, self.bound.steps, self.state_dir, place_of(self.state_dir))

    def _hold(self) -> None:
        """Keep other processes with this state folder from the run, in whichever folder a copy of it is."""
        self._alone.close()
        self._alone.enter_context(hold_run(self.run_id, self.state_dir))

    def close(self) -> None:
        """Let other processes go on with the run."""
        self._alone.close()

    def forsake_key(self, why: str) -> None:
        """Go on from the last checkpoint with a new key; the steps after it will be counted again."""
        self.console.print(
            f"The steps since the last checkpoint cannot be repeated to the last bit ({why}): "
            "they are taken under a new key and counted twice.",
            highlight=False,
        )
        if self.run_id:
            forget_key(self.run_id, self.state_dir)
        self.kept, self._key = None, Key.fresh()
        self.saved = last_checkpoint(self.folder, self.console)

    def run(self, loop: Loop, noise: AesNoise) -> Ended:
        """Take the steps that are left.

        Raises:
            ReplayError: a step came out otherwise than before.
            DposeError: as `Loop.run`; or files cannot be written.
        """
        if not noise.seeded:
            start = digest_of(loop.params) + json.dumps(self.around, sort_keys=True).encode()
            loop.chain = hashlib.sha256(start).digest()
        if self.saved:
            loop.restore(self.saved)
        self._agree(loop.model)
        if not self.ranks.first:
            return loop.run(NoLog(), None)
        goes_on = self.saved is not None
        with contextlib.ExitStack() as closing:
            # the ledger before all that tells of a step, so that a folder that has any of it has had a ledger
            if not goes_on:
                write_config(self.folder, loop.config)
            counted = self._ledger(noise.key_id, closing)
            if not self.trial and not self.entry.ledger:
                charge(self.entry, self.state_dir)
            log = closing.enter_context(RunLog(self.folder / "log.jsonl"))
            if not goes_on:
                loop.save(counted.head if counted else "")
            if counted and not noise.seeded:
                loop.taken = log.taken(noise.key_id)
            if goes_on:
                log.write("resume", step=loop.done, key_id=noise.key_id, replay=bool(self.kept))
            else:
                bound, settings = self.bound, loop.config["run"]
                log.write(
                    "start",
                    n=bound.n,
                    steps=bound.steps,
                    plan_sha256=bound.sha256,
                    key_id=noise.key_id,
                    **settings,
                )
            return loop.run(log, counted)

    def _ledger(self, key_id: str, closing: contextlib.ExitStack) -> CountedSteps | None:
        """The run's ledger, charged to the account, in `closing`; the key is on disk when this returns."""
        if self.bound.event is None:
            return None
        begun = bool(self.run_id)
        if begun:
            ledger = Ledger.append_to(self._path, self.state_dir)
        else:
            ledger = Ledger.create(self._path, self.bound.sha256, key_id, self.state_dir, self.entry.id)
        closing.enter_context(ledger)
        closing.callback(self._note, ledger)
        if not begun:
            self.run_id = ledger.run_id
            self._hold()
            if self.seed is None and not self.trial:
                self.entry = replace(self.entry, ledger=ledger.identity)
            if self.query:
                ledger.query(self.query.to_dict())
        self._commit_to_canaries(ledger)
        if self.seed is None and not self.kept:
            kept = StoredKey(self._key, self.content.hex(), self.around)
            keep_key(self.run_id, kept, self.state_dir)
        counted = self._steps(ledger)
        closing.callback(self._note_total, counted)
        if not begun:
            counted.take_up(key_id, 0, (), begun=False)
        return counted

    def _commit_to_canaries(self, ledger: Ledger) -> None:
        """Have the commitment in the ledger before anything is reserved; a run that goes on has it already."""
        planted = self.opening.committed if self.opening else None
        recorded = [entry.event for entry in ledger.entries if entry.type is EntryType.CANARIES]
        begun = any(entry.type is EntryType.RESERVE for entry in ledger.entries)
        if self.opening and planted and not recorded and not begun:
            keep_opening(ledger.run_id, self.opening, self.state_dir)
            ledger.canaries(planted)
        elif recorded != ([planted.to_dict()] if planted else []):
            raise DposeError(
                "canaries-differ",
                "this run began with other canaries",
                str(self.folder),
                "go on with those that it began with",
            )

    def _note(self, ledger: Ledger) -> None:
        self.head, self.counted = ledger.head, ledger.spent_steps

    def _note_total(self, counted: CountedSteps) -> None:
        self.total = counted.total

    @torch.no_grad()
    def _agree(self, model: torch.nn.Module) -> None:
        """The first process's weights in every process."""
        floats = {n: t for n, t in model.state_dict().items() if t.is_floating_point()}
        for name, value in self.ranks.from_first(floats).items():
            floats[name].copy_(value)

    def caveats(self, done: int, ended: Ended) -> list[str]:
        """What the statement must say of how the run went."""
        bound = self.bound
        if ended is Ended.ASKED:
            return [f"the run was stopped after {done} of {bound.steps} steps; epsilon is the plan's"]
        again = self.total - done
        if bound.event is None or again <= 0:
            return []
        notes = f"the run was stopped and taken up again; {again} steps count that were lost or taken twice"
        if ended is Ended.BUDGET:
            notes += f", and it ended after {done} of {bound.steps} steps to keep its epsilon"
        return [notes]

    def finish(self) -> None:
        """The run needs its key no more, and has taken what its ledger counts."""
        if not self.trial:
            conclude({self.entry.id: ()}, where=self.state_dir)
        if self.run_id and self.seed is None:
            forget_key(self.run_id, self.state_dir)
