"""What training begins with: which weights, what they have learnt from, and what that means for the new run's claim.

    start = FirstWeights.of(Path("runs/public"))            # whoever builds the model says where its weights are from
    found = inherited(start, entry, plan, charges())        # the trainer asks the account, before anything is charged

Noise protects what a run reads, and not what its first weights have read before. So there is one door: weights that
learnt from the same pictures without a guarantee are refused; where there was one, the events of both runs count; what
nothing is known of is said to be taken as given.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch

from dpose import files
from dpose.errors import DposeError
from dpose.files import file_digest
from dpose.privacy.accounting import Event, Relation
from dpose.privacy.entries import read_ledger
from dpose.privacy.neighbours import BEYOND
from dpose.privacy.odometer import EVALUATION, TUNING, UNKNOWN, Charge, lineage, names_of_run, touching
from dpose.privacy.rounding import upper
from dpose.privacy.sections import UNSTATED, PublicInput
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.training.folder import read_statement, weights_file
from dpose.training.plan import TrainingPlan

WEIGHTS = "model.safetensors"
LICENCE = "Apache-2.0"
"""Of dpose, and of the weights that come with it."""
BEHIND = "behind the first weights, as their statement says: "
NAMED = "the first weights, "
"""Beginning of the public fact that names a run's first weights."""
VIEW_READ = "of every {unit} also the public view that the first weights learnt from"
"""Beginning of the public fact that names the public views which first weights learnt from."""
NO_STATEMENT = "the first weights carry no statement; whoever is in them is not covered here"


@dataclass(frozen=True)
class FirstWeights:
    """Where first weights are from, as far as whoever builds the model can tell.

    Attributes:
        digest: SHA-256 of their file; "" where there is none.
        name: For readers; "" for weights drawn at random.
        statement: That lies beside them; None without.
        given: Of weights that were fetched, what a guarantee takes as given; "" for the general condition.
        run_id: The run that released them, as its ledger says; "" where none does.
        folder: Where they lie. It stands in no artefact.
        told: Whether anyone has said where they are from. Weights of which nothing was said are looked up by their
            content alone.
        stated: The licence that they may be used under, where somebody said it.
    """

    digest: str = ""
    name: str = ""
    statement: PrivacyStatement | None = None
    given: str = ""
    run_id: str = ""
    folder: str = ""
    told: bool = True
    stated: str = ""

    @classmethod
    def drawn(cls) -> FirstWeights:
        """Weights drawn at random: they have learnt from nobody."""
        return cls()

    @classmethod
    def of(cls, path: str | Path, given: str = "") -> FirstWeights:
        """Those in a model folder, or in a file of weights.

        Args:
            path: The folder or the file.
            given: What is taken as given of them in particular.

        Raises:
            DposeError: there are none that can be read, or their statement is none.
        """
        place = Path(path)
        file = place / WEIGHTS if place.is_dir() else place
        try:
            digest = file_digest(file)
        except OSError as error:
            raise DposeError("there are no weights to start from", str(file)) from error
        if not place.is_dir():
            return cls(digest, place.name, given=given)
        run_id = ""
        with contextlib.suppress(DposeError):  # a folder of a model alone, or a ledger that `verify` refuses
            run_id = read_ledger(place / "ledger.jsonl")[0].run_id
        return cls(digest, place.name, read_statement(place), given, run_id, str(place.resolve()))

    @classmethod
    def fetched(cls, name: str, given: str) -> FirstWeights:
        """Weights from elsewhere that lie in no file here: what a guarantee takes as given of them."""
        return cls(name=name, given=given)

    @classmethod
    def within(cls, model: torch.nn.Module) -> FirstWeights:
        """Those of a model of which nothing is said: found in the account if a run released just these."""
        return cls(digest_of_weights(model), "the model given", told=False)

    @property
    def licence(self) -> str:
        """Of weights that come with dpose, its own; of others as stated, for it is not known."""
        own = self.folder and files.SHIPPED.resolve() in Path(self.folder).parents
        return LICENCE if own else self.stated or UNSTATED

    @property
    def behind(self) -> tuple[PublicInput, ...]:
        """What is public among what went into them, as their own statement says."""
        inputs = self.statement.sections.inputs if self.statement else ()
        return tuple(
            each if each.what.startswith(BEHIND) else replace(each, what=BEHIND + each.what)
            for each in inputs
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
    """

    digest: str = ""
    facts: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    beyond: bool = False
    whole: bool = False


def short_digest(digest: str) -> str:
    """A file's digest as statements show it, in brackets after a space; "" where there is none."""
    return f" (sha256 {digest[:16]}...)" if digest else ""


def from_shipped(digest: str) -> Inherited | None:
    """What weights that come with dpose mean for a run; None for other weights.

    Args:
        digest: SHA-256 of the file of weights.
    """
    found = _shipped(files.SHIPPED).get(digest)
    if found is None:
        return None
    name, began_with = found
    began = "; what they began with is taken as given" if began_with else ""
    learnt = f"they learnt from rendered people, who are nobody{began}"
    return Inherited(
        digest, (f"{NAMED}{name}{short_digest(digest)}, which come with dpose: {learnt}",), began_with
    )


def first_of(start: FirstWeights | str | Path | None, model: torch.nn.Module) -> FirstWeights:
    """What `train` was told of the weights of `model`: where they are from, a place, or nothing.

    Raises:
        DposeError: as `FirstWeights.of`.
    """
    if start is None:
        return FirstWeights.within(model)
    return start if isinstance(start, FirstWeights) else FirstWeights.of(start)


def digest_of_weights(model: torch.nn.Module) -> str:
    """SHA-256 of the file of weights that `model` would be written to."""
    return hashlib.sha256(weights_file(model)).hexdigest()


def inherited(
    first: FirstWeights,
    entry: Charge,
    plan: TrainingPlan,
    entries: Sequence[Charge],
    again: Callable[[Sequence[Charge]], Sequence[Charge]] | None = None,
) -> Inherited:
    """What `first` means for the run that `entry` will charge.

    **Guarantee.** With `events` counted beside the run's own and `beyond` as its scope, the run's claim holds for every
    unit, whatever part of it the first weights have learnt from, as far as the account knows their origin; the rest is
    in `conditions`. Whether pictures are the same is told by content; copies that were saved again and people are found
    where the data behind the weights are at hand (`again`).

    Args:
        first: Where the weights are from.
        entry: What the run will take, with the pictures' marks.
        plan: The run's.
        entries: Of the account.
        again: Of runs, those that learnt from near copies or people of the run's units (`guards.learnt_again`).

    Raises:
        DposeError: the weights learnt from some of the run's units without a guarantee, or with one that cannot be
            composed with the run's.
    """
    if not first.name:
        return Inherited()
    if known := from_shipped(first.digest):
        return known
    shipped = _shipped(files.SHIPPED)
    runs, unknown = _origin(first, [e for e in entries if e.id != entry.id and e.what != EVALUATION])
    near = again(runs) if again else []  # of several processes all must ask, whatever account they have
    if not first.told and not runs:
        return Inherited(
            conditions=(f"the {entry.unit}s had no influence on the weights that training began with",)
        )
    read = touching(runs, entry.marks)
    exact = {run.id for run in read}
    read += [run for run in near if run.id not in exact]
    if plan.kind.private:
        _check(read, entry, first)
    facts = [f"{NAMED}from {first.name}{first.short}"]
    if runs:
        facts.append(_overlap(read, entry.unit))
    beyond = [run for run in read if run.beyond]
    for views in sorted({f" ({run.views})" if run.views else "" for run in beyond}):
        facts.append(f"{VIEW_READ.format(unit=entry.unit)}{views}, and its labels")
    earlier = first.statement
    # weights that come with dpose end a chain, too: of them only what their own statement takes as given is unknown
    given = {_given(first, digest, entry.unit) for digest in unknown if digest not in shipped}
    given |= {condition for digest in unknown if digest in shipped for condition in shipped[digest][1]}
    return Inherited(
        digest=first.digest,
        facts=tuple(facts),
        conditions=tuple(sorted({*given, *(earlier.conditional_on if earlier else ())})),
        caveats=_told(first, bool(runs)),
        events=_events_of(read) if plan.kind.private else (),
        beyond=bool(beyond),
        whole=any(run.events or not run.beyond for run in read),
    )


def _origin(first: FirstWeights, entries: Sequence[Charge]) -> tuple[list[Charge], list[str]]:
    """The runs that the weights come from, and the digests of those whose origin is not known."""
    named = names_of_run(first.run_id) if first.run_id else ()
    released = [e for e in entries if first.digest in e.weights or e.id in named]
    if not released and first.folder:  # charged before weights were recorded
        released = [e for e in entries if first.folder in e.folders and not e.weights]
    if not released:
        return [], [first.digest]
    earlier, unknown = lineage([e.start for e in released], entries)
    return list({e.id: e for e in (*released, *earlier)}.values()), unknown


def _check(read: Sequence[Charge], entry: Charge, first: FirstWeights) -> None:
    """Refuse what cannot be composed with the run's own guarantee."""
    for run in read:
        when = f"the run of {run.at[:10]} that they come from"
        if not run.events and not run.beyond:
            raise DposeError(
                f"the first weights learnt from some of these {entry.unit}s without a guarantee ({when}): "
                "no noise that is added now protects them",
                first.name,
                "start from other weights, or train on other data",
            )
        if run.what in TUNING:
            raise DposeError(
                f"the first weights were chosen among trials on some of these {entry.unit}s ({when}), and the price of "
                "that does not add up with a run's events",
                first.name,
                "start from other weights, or train on other data",
            )
        if run.events and (run.unit, run.relation) != (entry.unit, entry.relation):
            raise DposeError(
                f"the first weights learnt from some of these pictures under another guarantee ({when}: each "
                f"{run.unit}, {run.relation.value}), which cannot be added to this one (each {entry.unit}, "
                f"{entry.relation.value})",
                first.name,
                "give the same --unit and --relation, or start from other weights",
            )
        if run.beyond and entry.relation is Relation.ADD_REMOVE:
            raise DposeError(
                f"the first weights learnt from the public views of some of these {entry.unit}s ({when}): a unit that "
                "is added would bring its public view, so that add-or-remove cannot be claimed",
                first.name,
                "use --relation zero-out or replace, or start from other weights",
            )


def _events_of(read: Sequence[Charge]) -> tuple[Event, ...]:
    """The events of runs, which alone release weights; of another kind none can be composed with a run's.

    Raises:
        DposeError: there is one.
    """
    events = [event for run in read for event in run.events]
    if any(not isinstance(event, Event) for event in events):
        raise DposeError(
            "the first weights come from a run whose guarantee cannot be added to this one's",
            fix="start from other weights",
        )
    return tuple(event for event in events if isinstance(event, Event))


def _overlap(read: Sequence[Charge], unit: str) -> str:
    if not read:
        return f"that the first weights learnt from none of the {unit}s"
    if any(run.events for run in read):
        return (
            f"that the first weights learnt from some of the {unit}s with noise, too: both runs' events count"
        )
    if all(run.beyond for run in read):
        return f"that the first weights learnt from the public views and labels of some of the {unit}s"
    return f"that the first weights learnt from some of the {unit}s, without a guarantee"


def _given(first: FirstWeights, digest: str, unit: str) -> str:
    if digest == first.digest and first.given:
        return first.given
    if digest == UNKNOWN:
        which = "that the first weights' own training began with"
    elif digest == first.digest:
        which = f"that the first weights{first.short}"
    else:
        which = f"that weights they come from (sha256 {digest[:16]}...)"
    covered = ", beyond what their own statement covers" if first.statement and digest == first.digest else ""
    return f"none of these {unit}s were among those {which} learnt from{covered}"


def _told(first: FirstWeights, known: bool) -> tuple[str, ...]:
    """What the statement beside the weights says, in a sentence; of whom the account knows, the facts tell."""
    statement, whose = first.statement, "nobody that they learnt from is protected"
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
def _shipped(folder: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Weights that come with dpose, by their digest: the name, and what their statement takes as given."""
    found = {}
    for file in sorted(folder.glob(f"*/{WEIGHTS}")):
        statement = read_statement(file.parent)
        if statement is not None:
            found[file_digest(file)] = (file.parent.name, statement.conditional_on)
    return found
