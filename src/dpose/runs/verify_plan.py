"""What follows from a run's plan, configuration and ledger, computed again and compared with its statement.

    config = check_follows(folder, statement, seal, entries)

The configuration names the first weights by digest, with what they have learnt from and what a guarantee takes as
given of them. So a condition that is taken out of the statement alone is missed, and weights that come with dpose are
known by their digest, whatever a folder says of them.

docs/threat-model.md says of every field of a statement whether it is computed again, or bound by the seal alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dpose.errors import DposeError
from dpose.files import file_json
from dpose.privacy.attackers import LAST_DIGIT
from dpose.privacy.entries import Entry, EntryType, Seal, plan_digest, spent
from dpose.privacy.events import SampledGaussian, event_from_dict
from dpose.privacy.sections import About, PlantedCanaries, Query
from dpose.privacy.statement import PrivacyStatement, software_versions
from dpose.runs.config import RunConfig, task_facts
from dpose.runs.data import any_spec
from dpose.runs.tune_config import DEFAULTED
from dpose.training.first_weights import FIRST, LICENCE, NAMED, VIEW_READ, Inherited, from_shipped, short_digest
from dpose.training.plan import BoundPlan, TrainingPlan
from dpose.training.public_view import VIEWS_SHOWN
from dpose.training.statement import LedgerRecord, StatementFacts, run_statement
from dpose.training.trained_on import ENTRY, TrainedOn, named_line

DISTRUST = "do not rely on it"
LINES = ("public", "conditional_on", "caveats")
"""Fields of a statement that hold at least the lines that follow; more may be said there."""
ROUNDED = ("epsilon", "attackers", "groups")
"""Fields whose last digits another build may compute otherwise."""
BROKEN = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, ValidationError)
"""What reading a configuration that is none raises."""
SEALED_ONLY = ("software", "inputs", "audits", "results")
"""Fields that follow from nothing in a run folder: the seal alone binds them."""


def check_follows(
    folder: Path, statement: PrivacyStatement, seal: Seal, entries: Sequence[Entry]
) -> tuple[dict[str, Any], BoundPlan]:
    """Compute a run's statement again from its plan, configuration and ledger, and refuse one that says otherwise.

    Returns:
        The content of `config.json`, and the plan.

    Raises:
        DposeError: the configuration holds no plan, or another one, or a field does not follow; names it.
    """
    where, path = str(folder / "privacy.json"), folder / "config.json"
    try:
        content = dict(file_json(path))
        run = dict(content["run"])
        bound, run_id, seed = _bound(run), content["run_id"], run["seed"]
        size = content["model"].get("input_size")
        config = _config(run, content["task"], path)
    except BROKEN as error:
        raise DposeError("plan-missing", "does not hold the run's plan", str(path), DISTRUST) from error
    # of the text as it stands: a plan made again has 2.0 where a program gave 2
    if plan_digest(run["plan"], **run["bound"]) != statement.plan_sha256:
        raise DposeError("plan-differs", "holds another plan than statement and ledger name", str(path), DISTRUST)
    _check_reserved(bound, run_id, entries, folder / "ledger.jsonl")
    first = _check_first(content, bound.plan.unit or "unit", seal.first_weights, path)
    if config:
        _check_own(content, config, path)
    if config and "audit" not in run:  # an audit counts canaries of its own among the units
        _check_chosen(config, bound, statement.canaries, where)
    first = replace(first, conditions=given_of_first(first, statement.unit))
    expected = _expected(statement, bound, config, seed is not None, entries, first)
    tuning = statement.tuning.to_dict() if statement.tuning else None
    if run.get("tuning") != tuning:
        raise DposeError("tuning-differs", "tuning is not what the configuration says", where, DISTRUST)
    ours, theirs = _comparable(statement), _comparable(expected)
    for name in sorted({*ours, *theirs}):
        mine, true = ours.get(name), theirs.get(name)
        if name in LINES:
            missing = [line for line in true or () if line not in (mine or ())]
            if missing:
                raise DposeError("statement-sentence-missing", f"{name} does not say: {missing[0]}", where, DISTRUST)
        elif not (_same(mine, true) if name in ROUNDED else mine == true):
            raise DposeError(
                "statement-section-unfounded",
                f"{name} is not what follows from plan, configuration and ledger",
                where,
                DISTRUST,
            )
    if not set(software_versions()) <= set(statement.software):
        raise DposeError("software-incomplete", "software does not name what the guarantee depends on", where, DISTRUST)
    for name, start, end in _needed(statement, bound, seal, config, size, entries):
        lines = [i.what for i in statement.inputs] if name == "inputs" else getattr(statement, name)
        if not any(line.startswith(start) and line.endswith(end) for line in lines):
            raise DposeError("log-line-missing", f"{name} has no line: {start}...{end}", where, DISTRUST)
    _check_licence(first, statement, where)
    return content, bound


def _bound(run: Mapping[str, Any]) -> BoundPlan:
    """The plan of a configuration, bound again to the number of units and the noise that stand beside it.

    Raises:
        DposeError: rate, steps, noise or budget are not the plan's.
    """
    plan = TypeAdapter(TrainingPlan).validate_python(run["plan"])
    n, event = run["bound"]["n"], run["bound"]["event"]
    if not plan.kind.private:
        again = plan.bind(n, n)
    else:
        sigma = event_from_dict(event, kind=SampledGaussian).sigma
        again = replace(plan, epsilon=None, noise_multiplier=sigma).bind(n, n)
        over = plan.epsilon is not None and not (again.epsilon or math.inf) <= plan.epsilon * (1 + 1e-6)
        if over or plan.noise_multiplier not in (None, sigma):
            raise ValueError("another noise than the plan's")
    if plan.to_dict() != run["plan"] or again.constants() != run["bound"]:
        raise ValueError("not the plan's constants")
    return replace(again, plan=plan)


def _config(run: Mapping[str, Any], task: str, path: Path) -> RunConfig | None:
    """The configuration of a run that a command made; None of one that a program made with `dpose.train`."""
    if "data" not in run:
        return None
    config = RunConfig.from_dict({k: v for k, v in run.items() if k in RunConfig.model_fields}, str(path))
    if config.task != task:
        raise ValueError("two tasks")
    return config


def _check_chosen(config: RunConfig, bound: BoundPlan, planted: PlantedCanaries | None, where: str) -> None:
    """Refuse canaries other than those of the configuration, and more units than it lets in."""
    choice = config.canaries
    if (planted and (planted.kind, planted.count)) != (choice and (choice.kind, str(choice.count))):
        raise DposeError("config-canaries-differ", "canaries are not those of the configuration", where, DISTRUST)
    limit, more = config.data.limit, choice.count if choice else 0
    if limit is not None and bound.n > limit + more:
        raise DposeError("n-above-limit", f"n is above the configuration's limit of {limit:,}", where, DISTRUST)


def _check_reserved(bound: BoundPlan, run_id: str, entries: Sequence[Entry], ledger: Path) -> None:
    """Refuse the ledger of another run, reservations of another event than the plan's, and steps without any."""
    if entries[0].run_id != run_id:
        raise DposeError("ledger-of-other-run", "belongs to another run than the configuration", str(ledger), DISTRUST)
    for event in spent(entries):
        if bound.event is None or event != replace(bound.event, steps=event.steps):
            raise DposeError(
                "ledger-event-differs", "reserves steps of another event than the plan's", str(ledger), DISTRUST
            )
    for taken in (entry for entry in entries if entry.type is EntryType.COMMIT):
        end = taken.first_step + taken.steps
        if not any(
            entry.type is EntryType.RESERVE
            and (entry.seq < taken.seq and entry.key_id == taken.key_id)
            and (entry.first_step <= taken.first_step and end <= entry.first_step + entry.steps)
            for entry in entries
        ):
            raise DposeError(
                "ledger-steps-not-reserved",
                "has steps that were never reserved",
                f"{ledger}, line {taken.seq + 1}",
                DISTRUST,
            )


def _expected(
    statement: PrivacyStatement,
    bound: BoundPlan,
    config: RunConfig | None,
    seeded: bool,
    entries: Sequence[Entry],
    first: Inherited,
) -> PrivacyStatement:
    """The statement that plan, configuration and ledger give, with what only the seal binds as it stands there."""
    plan = bound.plan
    view = VIEW_READ.format(unit=plan.unit)
    start = Inherited(
        conditions=first.conditions, events=first.events, beyond=any(line.startswith(view) for line in statement.public)
    )
    about = About()
    if config is not None:
        about = config.about
    elif statement.deployment is not None:
        about = About(**{f.name: getattr(statement.deployment, f.name) for f in fields(About)})
    queries = [entry.event for entry in entries if entry.type is EntryType.QUERY]
    planted = [entry.event for entry in entries if entry.type is EntryType.CANARIES]
    given = task_facts(config.task).conditions(config) if config else ()
    return run_statement(
        bound,
        StatementFacts(conditional_on=given, about=about),
        LedgerRecord(
            counted=sum(event.steps for event in spent(entries)),
            queries=[Query.read(query, "query") for query in queries],
            canaries=PlantedCanaries.read(planted[0], "canaries") if planted else None,
        ),
        seeded=seeded,
        start=start,
        tuning=statement.tuning,
    )


def _comparable(statement: PrivacyStatement) -> dict[str, Any]:
    """The fields of a statement that follow from something else and were not looked at yet."""
    found = replace(statement, seal="", ledger_head="", plan_sha256="").to_dict()
    deployment = found.get("deployment")
    if deployment:
        found["deployment"] = {name: value for name, value in deployment.items() if name != "date"}
    return {name: value for name, value in found.items() if name not in SEALED_ONLY}


def _needed(
    statement: PrivacyStatement,
    bound: BoundPlan,
    seal: Seal,
    config: RunConfig | None,
    size: Sequence[int] | None,
    entries: Sequence[Entry],
) -> Iterator[tuple[str, str, str]]:
    """Lines that must be there though not all of their words follow: the field, how one begins and how it ends."""
    kind, known = bound.plan.kind, from_shipped(seal.first_weights, bound.plan.unit or "unit")
    facts = bound.event is not None or kind.public_views
    if kind.public_views:
        yield "conditional_on", VIEWS_SHOWN + (bound.plan.public_view.describe(size) if size else ""), ""
    if bound.plan.fits_public:
        yield "public", "", kind.fitted_on
        yield "inputs", "", f"units that {bound.plan.method} is fitted on"
    if facts and known:
        yield "public", known.facts[0], ""
    elif facts and seal.first_weights:
        yield "public", NAMED, short_digest(seal.first_weights)
    elif facts and config and config.model.strategy not in (None, "scratch"):
        yield "public", NAMED, ""
    if bound.event is None:
        return
    taken = max((e.first_step + e.steps for e in entries if e.type is EntryType.COMMIT), default=0)
    counted = sum(event.steps for event in spent(entries))
    if statement.tuning and not counted:
        yield "caveats", DEFAULTED.caveats[0], ""
    elif taken < bound.steps or counted > taken:
        yield "caveats", "the run was stopped", ""


def _same(mine: Any, true: Any) -> bool:
    """Whether two JSON values are equal up to the last digit of decimal strings."""
    if isinstance(mine, dict) and isinstance(true, dict):
        return mine.keys() == true.keys() and all(_same(mine[name], true[name]) for name in mine)
    if isinstance(mine, list) and isinstance(true, list):
        return len(mine) == len(true) and all(map(_same, mine, true))
    if isinstance(mine, str) and isinstance(true, str):
        return math.isclose(float(mine), float(true), rel_tol=2 * LAST_DIGIT, abs_tol=1e-9)
    return bool(mine == true)


def _check_first(content: Mapping[str, Any], unit: str, sealed: str, path: Path) -> Inherited:
    """What the configuration says of the first weights, held to the sealed digest, and to what the model learnt from.

    Args:
        content: Of `config.json`.
        unit: What the run protects.
        sealed: The digest of the first weights in the seal; "" where there were none.
        path: Of `config.json`, for messages.

    Raises:
        DposeError: it says nothing, speaks of others, or leaves out of the model's own entry what they learnt from.
    """
    try:
        said = content["run"][FIRST]
        said_of = dict(said["trained_on"])
        how = str(said_of.pop("how"))
        start = TrainedOn.from_dict(said_of, str(path), how)
        charged, given = bool(said["charged"]), tuple(map(str, said["conditional_on"]))
        events = tuple(event_from_dict(event, str(path), SampledGaussian) for event in said["events"])
        digest = str(said["sha256"])
        own = TrainedOn.from_dict(content[ENTRY], str(path))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DposeError(
            "trained-on-missing", "does not say what model and first weights have learnt from", str(path), DISTRUST
        ) from error
    if digest != sealed:
        raise DposeError(
            "first-weights-altered", "the first weights are not those that were sealed", str(path), DISTRUST
        )
    _check_passed_on(start, own, path)
    known = from_shipped(digest, unit)
    if known is None:
        return Inherited(digest, conditions=given, events=events, learnt=start, charged=charged)
    if (known.learnt.datasets, known.learnt.known) != (start.datasets, start.known):
        raise DposeError(
            "first-weights-shipped-differ",
            "the first weights come with dpose and have learnt from other data",
            str(path),
            DISTRUST,
        )
    return replace(known, conditions=tuple(dict.fromkeys((*known.conditions, *given))), events=events)


def _check_passed_on(start: TrainedOn, own: TrainedOn, path: Path) -> None:
    """Refuse a model that does not say of itself what its first weights say of themselves."""
    for name in ("datasets", "protected"):
        left_out = [each for each in getattr(start, name) if each not in getattr(own, name)]
        if left_out:
            what = f"{ENTRY}.{name} leaves out what the first weights learnt from: {left_out[0]}"
            raise DposeError("first-weights-left-out", what, str(path), DISTRUST)
    if own.known and not start.known:
        raise DposeError(
            "first-weights-called-known",
            f"{ENTRY} calls known what is not known of the first weights",
            str(path),
            DISTRUST,
        )
    if (start.licence, start.note) != (own.licence, own.note):
        raise DposeError(
            "first-weights-licence-differs",
            f"{ENTRY} has another licence or note than the first weights",
            str(path),
            DISTRUST,
        )


def _check_own(content: Mapping[str, Any], config: RunConfig, path: Path) -> None:
    """Refuse a model that does not say of itself which sets its configuration names.

    Data in a common format are not checked: which set they are is known from their folder, which is elsewhere.

    Raises:
        DposeError: one is left out.
    """
    own = TrainedOn.from_dict(content[ENTRY], str(path))
    there = {name.partition(":")[0] for name in (*own.datasets, *own.protected)}
    public = [config.data.public] if config.data.public and config.plan.fits_public else []
    for spec in map(any_spec, (*config.data.sources, *public)):
        if spec is None or spec.dataset.holds is not None:
            continue
        for name in spec.for_purpose("train").set_names.notes:
            if name.partition(":")[0] not in there:
                raise DposeError(
                    "run-data-left-out", f"{ENTRY} leaves out {name}, which the run learnt from", str(path), DISTRUST
                )


def given_of_first(first: Inherited, unit: str) -> tuple[str, ...]:
    """What a statement must take as given of the first weights, word for word.

    Args:
        first: As `_check_first` gives them.
        unit: What the run protects.
    """
    # whom a run that the account has charged learnt from is known by content; of other weights by names
    named = first.digest and first.learnt.people and first.learnt.how and not (first.charged or first.facts)
    which = f"the first weights{short_digest(first.digest)}"
    return (*first.conditions, *([named_line(first.learnt, unit, which)] if named else []))


def _check_licence(first: Inherited, statement: PrivacyStatement, where: str) -> None:
    """Refuse a statement that has another licence of weights that come with dpose than theirs, or none.

    Raises:
        DposeError: it has.
    """
    if not first.facts or (statement.tuning is not None and not statement.inputs):
        return  # other weights; or a choice of no trial, which has no inputs
    licence = first.learnt.licence or LICENCE
    said_of = [i.licence for i in statement.inputs if i.sha256 == first.digest]
    if not said_of or any(each != licence for each in said_of):
        raise DposeError(
            "inputs-licence-missing", f"inputs do not say the licence of the first weights, {licence}", where, DISTRUST
        )
