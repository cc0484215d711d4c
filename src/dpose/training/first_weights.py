"""What training begins with: which weights, what they have learnt from, and what that means for the new run's claim.

    start = FirstWeights.of(Path("runs/public"))            # the model's builder says where its weights are from
    found = inherited(start, entry, plan, charges())        # from the account, before anything is charged

Noise protects what a run reads, and not what its first weights have read before. So there is one door: weights that
learnt from the same pictures without a guarantee are refused; where there was one, the events of both runs count; what
nothing is known of is said to be taken as given.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpose import files
from dpose.account import EVALUATION, TUNING, Charge, lineage, names_of_run, overlapping
from dpose.errors import DposeError
from dpose.files import file_digest
from dpose.known_sets import NO_NAMES, SetNames, shared, title_of
from dpose.privacy.entries import last_seal, read_ledger
from dpose.privacy.events import SampledGaussian
from dpose.privacy.neighbours import BEYOND, Relation
from dpose.privacy.ranges import upper
from dpose.privacy.sections import UNSTATED, PublicInput
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.tensors import digest_of_tensors, weights_file
from dpose.training.folder import read_statement
from dpose.training.plan import TrainingPlan
from dpose.training.trained_on import (
    NOT_SAID,
    NOTHING,
    TrainedOn,
    check_unseen,
    conditions_of,
    declared,
    named_line,
    said_by_user,
    trained_on,
)

if TYPE_CHECKING:
    import torch

WEIGHTS = "model.safetensors"
LICENCE = "Apache-2.0"
"""The licence of dpose and of the weights that come with it."""
FIRST = "first_weights"
"""In the settings of a run's `config.json`: what is known of its first weights (`Inherited.to_dict`)."""
BEHIND = "behind the first weights, as their statement says: "
NAMED = "the first weights, "
"""Beginning of the public fact that names a run's first weights."""
VIEW_READ = "of every {unit} also the public view that the first weights learnt from"
"""Beginning of the public fact that names the public views which first weights learnt from."""
NO_STATEMENT = "the first weights carry no statement; the data that they learnt from are not covered here"


@dataclass(frozen=True)
class FirstWeights:
    """Where first weights are from, as far as the model's builder can tell.

    Attributes:
        digest: SHA-256 of their file; "" where there is none.
        tensors: SHA-256 of the file that a run would write of the same tensors; "" where that is not known.
        name: For readers; "" for weights drawn at random.
        statement: That lies beside them; None without.
        given: Of weights that were fetched, what a guarantee takes as given; "" for the general condition.
        run_id: The run that released them, as its ledger says; "" where none does.
        folder: Where they lie. It stands in no artefact.
        notes: Whether anyone has said where they are from. Weights of which nothing was said are looked up by their
            content alone.
        stated: The licence that they may be used under, where somebody said it.
        learnt: What they have learnt from, by the names of public sets.
    """

    digest: str = ""
    tensors: str = ""
    name: str = ""
    statement: PrivacyStatement | None = None
    given: str = ""
    run_id: str = ""
    folder: str = ""
    notes: bool = True
    stated: str = ""
    learnt: TrainedOn = NOT_SAID

    @classmethod
    def drawn(cls) -> FirstWeights:
        """Weights drawn at random: they have learnt from no data."""
        return cls(learnt=NOTHING)

    @classmethod
    def of(
        cls,
        path: str | Path,
        given: str = "",
        *,
        learnt: TrainedOn | None = None,
        said: str | None = None,
        called: str = "",
    ) -> FirstWeights:
        """Those in a model folder, or in a file of weights.

        Args:
            path: The folder or the file.
            given: What is taken as given of them in particular.
            learnt: What they have learnt from, if the model's builder knows it; else what they say themselves.
            said: What the user says of that (`model.init_data`).
            called: What they are called besides, such as their name on a hub: readers are told this name.

        Raises:
            DposeError: there are none that can be read, or their statement or what they say of their data is none.
        """
        place = Path(path)
        found = trained_on(place, said, called) if learnt is None else learnt
        if learnt is not None and said is not None:
            found = learnt + said_by_user(said)
        file = place / WEIGHTS if place.is_dir() else place
        try:
            digest = file_digest(file)
        except OSError as error:
            raise DposeError("weights-missing", "there are no weights to start from", str(file)) from error
        tensors = "" if digest in _shipped(files.SHIPPED) else digest_of_tensors(file)
        if not place.is_dir():
            return cls(digest, tensors, called or place.name, given=given, learnt=found)
        run_id, sealed = "", digest
        with contextlib.suppress(DposeError):  # a folder of a model alone, or a ledger that `verify` refuses
            entries = read_ledger(place / "ledger.jsonl")
            run_id, seal = entries[0].run_id, last_seal(entries, str(place / "ledger.jsonl"))
            sealed = seal.digests.get(WEIGHTS, "") if seal else digest
        if sealed != digest:
            raise DposeError(
                "first-weights-exchanged",
                "are not the weights that the run beside them released",
                str(file),
                "bring those back, or move these to a folder of their own",
            )
        folder = str(place.resolve())
        name = called or place.name
        return cls(digest, tensors, name, read_statement(place), given, run_id, folder, learnt=found)

    @classmethod
    def within(cls, model: torch.nn.Module) -> FirstWeights:
        """The weights of a model of which nothing is said: found in the account if a run released just these."""
        return cls(digest_of_weights(model), name="the model given", notes=False)

    @property
    def licence(self) -> str:
        """The licence of weights that come with dpose, as they say; of others as stated, or as they say."""
        if (known := _shipped(files.SHIPPED).get(self.digest)) is not None:
            return known.learnt.licence or LICENCE
        return self.stated or self.learnt.licence or UNSTATED

    @property
    def behind(self) -> tuple[PublicInput, ...]:
        """What is public among what went into them, as their own statement says."""
        inputs = self.statement.inputs if self.statement else ()
        return tuple(
            each if each.what.startswith(BEHIND) else replace(each, what=BEHIND + each.what) for each in inputs
        )

    @property
    def short(self) -> str:
        """For sentences."""
        return short_digest(self.digest)


@dataclass(frozen=True)
class Inherited:
    """What first weights mean for a run.

    Attributes:
        digest: Of their file, as account and seal record it; "" where there is none.
        facts: What the run's statement must call public.
        conditions: What its guarantee takes as given.
        caveats: What its reader must know.
        events: Of the runs that the weights come from and that read some of the same units: they count, too.
        beyond: Whether those protect only what units hold beyond their public views.
        whole: Whether some of the units' pictures themselves were read, and not their public views alone.
        learnt: What they have learnt from, by the names of public sets.
        charged: Whether the account knows the run that released them: it then knows by content whom that learnt from.
    """

    digest: str = ""
    facts: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    events: tuple[SampledGaussian, ...] = ()
    beyond: bool = False
    whole: bool = False
    learnt: TrainedOn = NOT_SAID
    charged: bool = False

    def to_dict(self) -> dict[str, Any]:
        """What `config.json` says of them, from which `dpose verify` makes the statement's lines again."""
        return {
            "sha256": self.digest,
            "trained_on": {**self.learnt.to_dict(), "how": self.learnt.how},
            "charged": self.charged,
            "conditional_on": list(self.conditions),
            "events": [event.to_dict() for event in self.events],
            **({"beyond": True} if self.beyond else {}),
        }


def first_weights_of(lines: Iterable[Mapping[str, Any]], log: Path) -> list[dict[str, Any]]:
    """What the lines of a log say of the weights that its run began with (`Inherited.to_dict`), for each beginning.

    Raises:
        DposeError: a beginning in it cannot be read.
    """
    found = []
    beginnings: list[Any] = [line.get(FIRST) for line in lines if line.get("type") == "start"]
    for said in beginnings:
        try:
            scope = bool(said.get("beyond", False))
            found.append({"sha256": said["sha256"], "events": list(said["events"]), "beyond": scope})
        except (TypeError, KeyError, AttributeError) as error:
            raise DposeError("log-damaged", "its beginning cannot be read", str(log), "start a new run") from error
    return found


def covers(now: Sequence[Any], was: Sequence[Any]) -> bool:
    """Whether all events of `was` are among those of `now`, as `Inherited.to_dict` writes them, each as often."""
    left = list(now)
    for event in was:
        if event not in left:
            return False
        left.remove(event)
    return True


def short_digest(digest: str) -> str:
    """A file's digest as statements show it, in brackets after a space; "" where there is none."""
    return f" (sha256 {digest[:16]}...)" if digest else ""


@dataclass(frozen=True)
class _Shipped:
    """Weights that come with dpose: their name, what their statement takes as given, what they say of their data."""

    name: str
    given: tuple[str, ...]
    learnt: TrainedOn


def from_shipped(digest: str, unit: str = "unit") -> Inherited | None:
    """What weights that come with dpose mean for a run; None for other weights."""
    found = _shipped(files.SHIPPED).get(digest)
    if found is None:
        return None
    given = found.given
    if found.learnt.known:
        began = "; what they began with is taken as given" if given else ""
        learnt = f"they learnt from rendered people, who are not real{began}"
    else:
        learnt = found.learnt.note or "what they learnt from is not known"
        given = (*given, *conditions_of(found.learnt, unit, f"the first weights{short_digest(digest)}"))
    fact = f"{NAMED}{found.name}{short_digest(digest)}, which come with dpose: {learnt}"
    return Inherited(digest, (fact,), given, learnt=found.learnt)


def first_of(
    start: FirstWeights | str | Path | None, model: torch.nn.Module, entries: Sequence[Charge]
) -> FirstWeights:
    """What `train` knows of the weights of `model`: where they are from, a place, or nothing.

    Of a file that was saved again, by whatever program, the digest is that of the run's file with the same tensors, if
    one of `entries` released it.
    """
    if start is None:
        return FirstWeights.within(model)
    first = start if isinstance(start, FirstWeights) else FirstWeights.of(start)
    released = {digest for entry in entries for digest in entry.weights}
    return replace(first, digest=first.tensors) if first.tensors in released - {first.digest} else first


def digest_of_weights(model: torch.nn.Module) -> str:
    """SHA-256 of the file of weights that `model` would be written to."""
    return hashlib.sha256(weights_file(model)).hexdigest()


def inherited(
    first: FirstWeights,
    entry: Charge,
    plan: TrainingPlan,
    entries: Sequence[Charge],
    again: Callable[[Sequence[Charge]], Sequence[Charge]] | None = None,
    names: SetNames = NO_NAMES,
    *,
    seeded: bool = False,
) -> Inherited:
    """What `first` means for the run that `entry` will charge.

    **Guarantee.** With `events` counted beside the run's own and `beyond` as its scope, the run's claim holds for every
    unit, whatever part of it the first weights have learnt from, as far as the account knows their origin; the rest is
    in `conditions`. Whether pictures are the same is told by content; copies that were saved again and people are found
    where the data behind the weights are at hand (`again`).

    `again` names runs that learnt from near copies or people of the run's units (`guards.learnt_again`); `names` says
    which public sets the units are.
    """
    if not first.name:
        return Inherited(learnt=first.learnt)
    if known := from_shipped(first.digest, entry.unit):
        if plan.kind.private:
            check_unseen(known.learnt, names, first.name, entry.unit)
        return known
    shipped = _shipped(files.SHIPPED)
    runs, unknown = _origin(first, [e for e in entries if e.id != entry.id and e.what != EVALUATION])
    recorded = first.digest not in unknown
    near = again(runs) if again else []  # of several processes all must ask, whatever account they have
    if not first.notes and not runs:
        return Inherited(
            conditions=(f"the {entry.unit}s had no influence on the weights that training began with",),
            learnt=first.learnt,
        )
    read = overlapping(runs, entry.marks)
    exact = {run.id for run in read}
    read += [run for run in near if run.id not in exact]
    if plan.kind.private:
        if not seeded:  # which claims nothing, whatever its noise is added to
            _check(read, entry, first)
            _check_known(runs, first, names, entry.unit)
        check_unseen(first.learnt, names, first.name, entry.unit)
    facts = [f"{NAMED}from {first.name}{first.short}"]
    if runs:
        facts.append(_overlap(read, entry.unit))
    beyond = [run for run in read if run.beyond]
    for views in sorted({f" ({run.views})" if run.views else "" for run in beyond}):
        facts.append(f"{VIEW_READ.format(unit=entry.unit)}{views}, and its labels")
    earlier = first.statement
    # weights that come with dpose end a chain, too: of them only what their own statement takes as given is unknown
    given = {each for digest in unknown if digest not in shipped for each in _given(first, digest, entry.unit)}
    of_shipped = [known for digest in unknown if (known := from_shipped(digest, entry.unit))]
    given |= {condition for known in of_shipped for condition in known.conditions}
    return Inherited(
        digest=first.digest,
        facts=tuple(facts),
        conditions=tuple(sorted({*given, *(earlier.conditional_on if earlier else ())})),
        caveats=_notes(first, recorded),
        events=_events_of(read) if plan.kind.private else (),
        beyond=bool(beyond),
        whole=any(run.events or not run.beyond for run in read)
        or shared(first.learnt.datasets, names.sets) is not None,
        learnt=first.learnt,
        charged=recorded,
    )


def _origin(first: FirstWeights, entries: Sequence[Charge]) -> tuple[list[Charge], list[str]]:
    """The runs that the weights come from or lie beside, and the digests of those that no known run has released."""
    named = names_of_run(first.run_id) if first.run_id else ()
    recorded = any(first.digest in e.weights for e in entries)
    released = [e for e in entries if first.digest in e.weights or e.id in named]
    if not released and first.folder:  # charged before weights were recorded
        released = [e for e in entries if first.folder in e.folders and not e.weights]
    if not released:
        return [], [first.digest]
    earlier, unknown = lineage([e.start for e in released], entries)
    runs = list({e.id: e for e in (*released, *earlier)}.values())
    return runs, unknown if recorded else [first.digest, *unknown]


def _check(read: Sequence[Charge], entry: Charge, first: FirstWeights) -> None:
    """Refuse what cannot be composed with the run's own guarantee."""
    for run in read:
        when = f"the run of {run.at[:10]} that they come from"
        if not run.events and not run.beyond:
            raise DposeError(
                "first-weights-unprotected",
                f"the first weights learnt from some of these {entry.unit}s without a guarantee ({when}): "
                "no noise that is added now protects them",
                first.name,
                "start from other weights, or train on other data",
            )
        if run.what in TUNING:
            raise DposeError(
                "first-weights-chosen-on-units",
                f"the first weights were chosen among trials on some of these {entry.unit}s ({when}), and the price of "
                "that does not add up with a run's events",
                first.name,
                "start from other weights, or train on other data",
            )
        if run.events and (run.unit, run.relation) != (entry.unit, entry.relation):
            raise DposeError(
                "first-weights-other-guarantee",
                f"the first weights learnt from some of these pictures under another guarantee ({when}: each "
                f"{run.unit}, {run.relation.value}), which cannot be added to this one (each {entry.unit}, "
                f"{entry.relation.value})",
                first.name,
                "give the same plan.unit and plan.relation, or start from other weights",
            )
        if run.beyond and entry.relation is Relation.ADD_REMOVE:
            raise DposeError(
                "first-weights-from-public-views",
                f"the first weights learnt from the public views of some of these {entry.unit}s ({when}): a unit that "
                "is added would bring its public view, so that add-or-remove cannot be claimed",
                first.name,
                "use plan.relation=zero-out or replace, or start from other weights",
            )


def _check_known(runs: Sequence[Charge], first: FirstWeights, names: SetNames, unit: str) -> None:
    """Refuse weights that a run which the account does not know taught on the same set, as they say themselves."""
    found = None if runs else shared(first.learnt.protected, names.sets)
    if found is not None:
        raise DposeError(
            "first-weights-run-unknown",
            f"the first weights say that they learnt from {title_of(found[0])} with noise, in a run that this account "
            f"does not know: what both take of one {unit} could not be added up",
            first.name,
            "train where the account is that knows that run, or start from other weights",
        )


def _events_of(read: Sequence[Charge]) -> tuple[SampledGaussian, ...]:
    """The events of runs, which alone release weights; of another kind none can be composed with a run's."""
    events = [event for run in read for event in run.events]
    if any(not isinstance(event, SampledGaussian) for event in events):
        raise DposeError(
            "first-weights-guarantee-unaddable",
            "the first weights come from a run whose guarantee cannot be added to this one's",
            fix="start from other weights",
        )
    return tuple(event for event in events if isinstance(event, SampledGaussian))


def _overlap(read: Sequence[Charge], unit: str) -> str:
    if not read:
        return f"that the first weights learnt from none of the {unit}s"
    if any(run.events for run in read):
        return f"that the first weights learnt from some of the {unit}s with noise, too: both runs' events count"
    if all(run.beyond for run in read):
        return f"that the first weights learnt from the public views and labels of some of the {unit}s"
    return f"that the first weights learnt from some of the {unit}s, without a guarantee"


def _given(first: FirstWeights, digest: str, unit: str) -> tuple[str, ...]:
    """What is taken as given of weights whose origin the account does not know."""
    own = digest == first.digest
    notes = f"the first weights{first.short}"
    if own and first.given:
        return (first.given, *(conditions_of(first.learnt, unit, notes) if first.learnt.how else ()))
    if own and first.statement is None:
        return conditions_of(first.learnt, unit, notes)
    which = notes if own else f"weights they come from (sha256 {digest[:16]}...)"
    covered = ", beyond what their own statement covers" if first.statement and own else ""
    named = [named_line(first.learnt, unit, notes)] if own and first.learnt.people else []
    return (*named, f"none of these {unit}s were among those that {which} learnt from{covered}")


def _notes(first: FirstWeights, known: bool) -> tuple[str, ...]:
    """What the statement beside the weights says, in a sentence; of whom the account knows, the facts tell."""
    statement, whose = first.statement, "the data that they learnt from are not protected"
    if statement is None:
        # of fetched weights the condition says what is known
        return () if known or first.given else (NO_STATEMENT,)
    if statement.kind is Kind.SEEDED:
        return (f"the first weights were trained with noise from a seed: {whose}",)
    if statement.kind is not Kind.PRIVATE:
        return (f"the first weights were trained without a guarantee: {whose}",)
    cost = f"epsilon {upper(statement.epsilon or 0)}, delta {upper(statement.delta or 0)}"
    if statement.neighbours is not None and statement.neighbours.scope == BEYOND:
        cost += ", for what pictures hold beyond their public views alone"
    added = "" if known else "; for a unit that was in their data too, the two epsilons add up"
    return (f"the first weights were trained privately ({cost}){added}",)


@cache
def _shipped(folder: Path) -> dict[str, _Shipped]:
    """Weights that come with dpose, by their digest: those with a statement, and those that say their data."""
    found = {}
    for file in sorted(folder.glob("*/*.safetensors")):
        statement, learnt = read_statement(file.parent), declared(file.parent)
        if learnt is None and (statement is None or file.name != WEIGHTS):
            continue
        name = file.parent.name if file.name == WEIGHTS else f"{file.parent.name}/{file.stem}"
        given = statement.conditional_on if statement else ()
        found[file_digest(file)] = _Shipped(name, given, learnt or NOTHING)
    return found
