"""Choosing settings privately: the best of a random number of trials becomes one run folder, at one price.

A trial is an ordinary run (`dpose.training.trainer.train`) on one side of the data, with a setting drawn from the grid,
and a noised score on the other side. Trials lie in the user's state folder and are gone at the end; only the best is
published. What the price depends on is proved in docs/proofs/tuning.md.

**Secret.** The number of trials K, which settings they had, their scores and how long they took: nothing here prints or
logs them, no progress counts them, and the account holds one charge for the law of K.

**Resumed.** Everything is drawn from one key, which is kept until the end. A tuning that was stopped goes on when it is
started again with the same settings and data: same K, same settings, and an unfinished trial is begun again under its
own key. Nothing of it was published, so that nothing is charged twice.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import math
import re
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dpose.account import Charge, charge_all, charges, conclude, names_of_run, note_weights
from dpose.errors import DposeError
from dpose.files import (
    check_free,
    closed_folder,
    explain_os_error,
    file_digest,
    file_json,
    file_text,
    folder_beside,
    locked_folder,
    make_folder,
    write_private,
)
from dpose.known_sets import set_names_of
from dpose.privacy.keys import StoredKey, forget_key, keep_key, kept_key, state_folder
from dpose.privacy.ledger import keep_head
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.privacy.ranges import as_given, large_delta, lower, upper
from dpose.privacy.statement import PrivacyStatement, software_versions
from dpose.privacy.trial_law import TrialLaw, below
from dpose.privacy.tuning import Tuning
from dpose.runs.group_scores import noised_trial_score
from dpose.runs.places import places_of, shown_settings
from dpose.runs.reporting import make_report
from dpose.runs.tasks import task_entry
from dpose.runs.tune_config import DEFAULTED, TuningConfig
from dpose.runs.tune_problem import TuningProblem, facts_of_tuning, open_problem, origin_of_tuning, priced_trials
from dpose.training.distributed import process_group
from dpose.training.first_weights import Inherited
from dpose.training.folder import keep_places, read_statement, run_name, write_run_folder
from dpose.training.options import RunOptions, RunRequest, TuningTrial
from dpose.training.run import TrainingDivergedError
from dpose.training.statement import LedgerRecord, StatementFacts, run_statement
from dpose.training.trainer import check_trial, describe_run, learnt_by, train

SCHEMA = 1
CHOOSING = "choosing: how many trials there are, and how far it is, stay secret"


@dataclass(frozen=True)
class TunedRun:
    """A run that was chosen.

    Attributes:
        folder: The run folder.
        statement: What is guaranteed, for all trials and the choice.
    """

    folder: Path
    statement: PrivacyStatement


@dataclass(frozen=True)
class _State:
    """How far a tuning is: a secret, and kept as one.

    Attributes:
        id: Of the charge, of the kept key and of the run that comes out.
        settings: `TuningProblem.digest`.
        following: The trial to take next.
        best: The best trial so far; None if none came to an end.
        setting: The setting of that trial; the first one, whose plan a default carries, where there is none.
        score: Its noised score, as `float.hex`.
        microbatch_size: The micro-batch of the first trial, and so of all.
        date: When the first command began, which all trials' statements have: their own would tell which was chosen.
        command: The first command, so too.
        software: What it ran with.
    """

    id: str
    settings: str
    following: int = 0
    best: int | None = None
    setting: int = 0
    score: str = "-inf"
    microbatch_size: int | None = None
    date: str = ""
    command: str = ""
    software: Mapping[str, str] = field(default_factory=dict)

    def write(self, work: Path) -> None:
        write_private(_state_file(work), json.dumps({"schema": SCHEMA, **asdict(self)}) + "\n")

    @classmethod
    def read(cls, work: Path) -> _State | None:
        file = _state_file(work)
        try:
            values = file_json(file)
            if values.pop("schema") != SCHEMA:
                raise ValueError("another dpose wrote it")
            return cls(**values)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DposeError(
                "tuning-state-unreadable",
                f"what is kept of an unfinished choice cannot be read ({error})",
                str(file),
                "give it up: dpose tune --discard --out OUT",
            ) from error


def tune_runs(
    config: TuningConfig,
    law: TrialLaw,
    out: Path,
    console: Console,
    *,
    command: str = "",
    microbatch_size: int | None = None,
    state_dir: Path | None = None,
) -> TunedRun:
    """Choose a setting by training a random number of times, and write the run folder of the best trial.

    **Guarantee.** (epsilon, delta)-differential privacy of the run folder, for zero-out of one unit, whether it is
    learnt from or scored on: `Tuning.epsilon`, charged once before anything is trained.

    Args:
        config: The grid.
        law: Of the number of trials.
        out: The run folder; must not exist. Of an unfinished tuning for that folder, with the same settings and data,
            the rest is done.
        console: Where it is said what happens; how far it is, is not.
        command: What the user typed, for the report.
        microbatch_size: The micro-batch in views; fitted to memory when None.
        state_dir: The user's state folder by default.

    Raises:
        DposeError: as `train`; a budget would be passed; or an unfinished tuning for `out` has other settings or data.
        KeyboardInterrupt: it was stopped; started again, it goes on.
    """
    if process_group().count > 1:
        raise DposeError(
            "tuning-with-processes", "choosing among trials takes one process", fix="start it without torchrun"
        )
    work = _work_folder(out, state_dir)
    closed_folder(work.parent)
    closed_folder(work)
    with locked_folder(work):
        state = _State.read(work)
        if state and out.is_dir() and run_name(out) == state.id:  # published, and then it was stopped
            return _finish(out, state, work, state_dir, console)
        check_free(out, may_be_empty=True)
        kept = kept_key(state.id, state_dir) if state else None
        key = kept.key if kept else Key.fresh()
        problem = open_problem(config, law, out, key, console)
        if state is None or kept is None:
            _remove_trials(work)
            state = _State(
                secrets.token_hex(16),
                problem.digest,
                microbatch_size=microbatch_size,
                date=datetime.now(UTC).date().isoformat(),
                command=command,
                software=software_versions(),
            )
        else:
            _check_same(state, kept.data, problem, out)
        entry = replace(problem.whole, id=state.id)
        known = origin_of_tuning(problem, entry, state_dir)
        entry = replace(entry, start=known.digest)
        console.print(_price(problem.tuning, config.delta), highlight=False)
        if warning := large_delta(config.delta, problem.whole.units):
            console.print(warning, highlight=False, soft_wrap=True)
        if kept is None:
            _check_trials(problem, work, console)
        # the key last: cut off between the two, it would be kept for a choice that no command finds again
        state.write(work)
        if kept is None:
            keep_key(state.id, StoredKey(key, problem.data, {}), state_dir)
        # of the same names again where it goes on: no second charge
        charge_all(problem.charges(entry), state_dir)
        with console.status(CHOOSING):
            state = _trials(problem, state, entry, key, work, state_dir)
            _publish(problem, state, known, work, out, state_dir)
        return _finish(out, state, work, state_dir, console)


def _check_same(state: _State, data: str, problem: TuningProblem, out: Path) -> None:
    """Refuse to go on with other settings, data or software than those that it began with."""
    give_up = f"give it up: dpose tune --discard --out {out}"
    began = "an unfinished choice for this folder began with"
    if (state.settings, data) != (problem.digest, problem.data):
        said = f"{began} other settings or data"
        raise DposeError("tuning-of-other-settings", said, str(out), f"give those, or {give_up}")
    here = software_versions()
    if other := [f"{name} {version}" for name, version in state.software.items() if here[name] != version]:
        said = f"{began} {', '.join(other)}: it would show which trial is chosen"
        raise DposeError("tuning-of-other-software", said, str(out), f"install that, or {give_up}")


def discard_tuning(out: Path, state_dir: Path | None = None) -> str:
    """Give an unfinished tuning up: its key and its trials are deleted, and what it took stays taken.

    It returns what was done, for the user.
    """
    work = _work_folder(out, state_dir)
    if not work.is_dir():
        return f"{out}: no unfinished choice is kept on this machine."
    name = ""
    with locked_folder(work):
        try:
            state = _State.read(work)
            name = state.id if state else ""
        except DposeError:  # that it cannot be read is why it is given up; its key goes all the same
            with contextlib.suppress(OSError):
                text = file_text(_state_file(work), errors="replace")
                name = next(iter(re.findall(r'"id": "([0-9a-f]{32})"', text)), "")
        if name:
            forget_key(name, state_dir)
        _clear(work)
    gone = "the trials and their key are deleted" if name else "the trials are deleted; dpose keys lists what is kept"
    return f"{out}: {gone}. What they took from the account stays taken."


def explain_tuning(config: TuningConfig, law: TrialLaw, console: Console) -> RenderableType:
    """What a tuning would do and cost; nothing is trained, and nothing charged."""
    base = config.runs[0]
    try:
        count = len(task_entry(base.task).prepare(base, console).units)
    except DposeError:
        if base.data.units is None:
            raise
        count = base.data.units
    scored = max(1, math.ceil(count * config.score_share))
    bounds, tuning = priced_trials(config, law, count - scored, scored)
    table = Table(title=f"{len(bounds)} settings, each as likely as any other", title_justify="left")
    for column in ("settings", "sampling rate", "steps", "noise multiplier"):
        table.add_column(column, justify="right")
    for event in dict.fromkeys(tuning.events):
        like = f"{tuning.events.count(event)}"
        table.add_row(like, f"{event.q:.4g}", f"{event.steps:,}", lower(event.sigma))
    choices: dict[str, dict[str, None]] = {}
    for setting in tuning.settings:
        for name, value in setting.items():
            choices.setdefault(name, {})[value] = None
    few = " (no trial at all is possible: then the first weights are returned)" if law.shape is None else ""
    lines = [
        *(f"{name}: one of {', '.join(values)}" for name, values in choices.items()),
        f"Trials: {law}, {as_given(law.mean)} in expectation{few}. The number, the losing trials and all scores stay "
        "secret.",
        f"Each learns from about {count - scored:,} units and is scored on about {scored:,} others, with noise of "
        f"standard deviation {lower(tuning.score.sigma * tuning.score.sensitivity, 2)} on a mean share in [0, 1].",
        _price(tuning, config.delta),
        *filter(None, [large_delta(config.delta, count)]),
    ]
    return Group(table, Text("\n".join(lines)))


def _price(tuning: Tuning, delta: float) -> str:
    one, score = tuning.of_one_trial(delta)
    return (
        f"One trial alone would cost epsilon {upper(one)} for a unit that it learns from and {upper(score)} for one "
        f"that it is scored on; all trials and the choice together cost {upper(tuning.epsilon(delta))} "
        f"(delta {as_given(delta)})."
    )


def _check_trials(problem: TuningProblem, work: Path, console: Console) -> None:
    """Refuse settings that no trial could be taken with, in their order: which one is drawn is a secret."""
    found = problem.found
    with console.status("looking whether every setting can be trained"):
        for run in problem.runs:
            request = RunRequest(found.task, copy.deepcopy(found.model), run.plan, work / "trial", run.optimizer)
            check_trial(request, problem.sides.training, found.public)


def _trials(
    problem: TuningProblem, state: _State, entry: Charge, key: Key, work: Path, state_dir: Path | None
) -> _State:
    """All trials that are left; only the best so far is kept."""
    noise = AesNoise(key)
    count = problem.tuning.law.draw(noise.stream(Purpose.TUNING, 0, b"number"))
    _remove_trials(work, besides=state.best)
    while state.following < count:
        index = state.following
        setting = below(len(problem.runs), noise.stream(Purpose.TUNING, index, b"setting"))
        place = work / f"trial-{index}"
        score, views = _trial(problem, setting, state, entry, noise, place, state_dir)
        better = score > float.fromhex(state.score)
        state = replace(
            state,
            following=index + 1,
            best=index if better else state.best,
            setting=setting if better else state.setting,
            score=score.hex() if better else state.score,
            microbatch_size=state.microbatch_size or views,
        )
        state.write(work)
        _remove_trials(work, besides=state.best)
    return state


def _trial(
    problem: TuningProblem,
    setting: int,
    state: _State,
    entry: Charge,
    noise: AesNoise,
    place: Path,
    state_dir: Path | None,
) -> tuple[float, int | None]:
    """One trial, begun from nothing: its noised score and its micro-batch. Whatever diverges is worse than all else."""
    found, index = problem.found, state.following
    secret = noise.stream(Purpose.TUNING, index, b"key").bytes(32)
    run = problem.runs[setting]
    options = RunOptions(
        start=found.start,
        validation_data=found.validation_data,
        facts=found.facts + facts_of_tuning(problem) + StatementFacts(date=state.date),
        settings={**shown_settings(run, state.command), "tuning": problem.tuning.to_dict()},
        data_name=found.data_name,
        state_dir=place / "state",
        microbatch_size=state.microbatch_size,
        console=Console(quiet=True),
        trial=TuningTrial(problem.tuning, entry, Key.drawn(secret, seeded=noise.seeded), state_dir),
    )
    try:
        done = train(
            found.task,
            copy.deepcopy(found.model),
            private=problem.sides.training,
            plan=run.plan,
            out=place / "run",
            public=found.public,
            optimizer=run.optimizer,
            options=options,
        )
    except TrainingDivergedError:
        return -math.inf, None
    except DposeError as error:  # where it was would tell how far it is
        raise DposeError(
            error.code, f"a trial could not be finished: {error.what}", fix=error.fix or "start again, and it goes on"
        ) from error
    except OSError as error:  # whose file's name would
        raise DposeError(
            "trial-not-finished",
            f"a trial could not be finished: {error.strerror or 'a file failed'}",
            fix="start again, and it goes on",
        ) from None
    if done.interrupted:
        raise KeyboardInterrupt
    score = noised_trial_score(
        found.task, done.model, problem.sides.scored.data, problem.tuning.score, noise.stream(Purpose.SCORE, index)
    )
    taken = file_json(place / "run" / "config.json")["run"]["microbatch_size"]
    return score, int(taken)


def _publish(
    problem: TuningProblem, state: _State, known: Inherited, work: Path, out: Path, state_dir: Path | None
) -> None:
    """The best trial's folder as `out`, or first weights where there is none.

    Every file is written anew at one moment: when a trial was taken does not show.
    """
    if out.is_dir():
        out.rmdir()  # empty, as was checked
    with folder_beside(out) as folder:
        if state.best is None:
            with tempfile.TemporaryDirectory(
                dir=work
            ) as own:  # as a trial's head, it belongs to no run until it is chosen
                _write_default(problem, state, known, folder, Path(own))
        else:
            _copy(work / f"trial-{state.best}" / "run", folder)
        keep_head(folder / "ledger.jsonl", state_dir)
        keep_places(state.id, places_of(problem.runs[state.setting], state.command), state_dir)
        note_weights(state.id, _weights_digest(folder), state_dir)


def _copy(source: Path, folder: Path) -> None:
    """The files of `source` in `folder`, with the times of now, of folders too: the old ones are a trial's."""
    try:
        for file in sorted(source.rglob("*")):
            if file.is_file() and not file.name.endswith(".lock"):
                place = folder / file.relative_to(source)
                make_folder(place.parent)
                shutil.copyfile(file, place)
    except OSError as error:
        raise explain_os_error(error, folder) from error


def _write_default(problem: TuningProblem, state: _State, known: Inherited, folder: Path, state_dir: Path) -> None:
    """A run of no trial: the first weights, which say nothing of the data, under the same statement."""
    found, bound, run = problem.found, problem.bounds[0], problem.runs[0]
    model = copy.deepcopy(found.model).eval()
    used = found.public if run.plan.fits_public else None
    settings = {**shown_settings(run, state.command), "tuning": problem.tuning.to_dict()}
    request = RunRequest(found.task, model, run.plan, folder, run.optimizer, options=RunOptions(settings=settings))
    learnt = learnt_by(known, run.plan, set_names_of(found.units), used, seeded=False)
    config = describe_run(request, bound, state.id, state.microbatch_size or 1, known, learnt)
    statement = run_statement(
        bound,
        found.facts + facts_of_tuning(problem) + DEFAULTED + StatementFacts(date=state.date),
        LedgerRecord(),
        seeded=False,
        start=known,
        tuning=problem.tuning,
    )
    write_run_folder(folder, model, config, statement, run_id=state.id, first_weights=known.digest, state_dir=state_dir)


def _finish(out: Path, state: _State, work: Path, state_dir: Path | None, console: Console) -> TunedRun:
    """Delete the key and everything that was not chosen; then the report; last what says that there is more to do."""
    names = names_of_run(state.id)
    conclude(dict.fromkeys([e.id for e in charges(state_dir) if e.id in names] or [state.id], ()), where=state_dir)
    forget_key(state.id, state_dir)
    _remove_trials(work)
    make_report(out, console=console)
    _clear(work)
    statement = read_statement(out)
    assert statement is not None
    return TunedRun(out, statement)


def _work_folder(out: Path, state_dir: Path | None) -> Path:
    name = hashlib.sha256(str(out.resolve()).encode()).hexdigest()[:32]
    return state_folder(state_dir) / "tuning" / name


def _state_file(work: Path) -> Path:
    return work / "tuning.json"


def _weights_digest(folder: Path) -> str:
    return file_digest(folder / "model.safetensors")


def _remove_trials(work: Path, besides: int | None = None) -> None:
    for place in work.glob("trial-*"):
        if besides is None or place.name != f"trial-{besides}":
            shutil.rmtree(place, ignore_errors=True)


def _clear(work: Path) -> None:
    """Everything but the lock: the state last, so that what is left can be found."""
    _remove_trials(work)
    _state_file(work).unlink(missing_ok=True)
