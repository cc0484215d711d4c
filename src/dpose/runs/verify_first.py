"""What a run folder says of its first weights, held to its seal and to its statement.

The configuration names the weights by digest, with what they have learnt from and what a guarantee takes as given of
them. So a condition that is taken out of the statement alone is missed, and weights that come with dpose are known by
their digest, whatever a folder says of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.privacy.statement import PrivacyStatement
from dpose.runs.config import RunConfig
from dpose.runs.specs import any_spec
from dpose.training.first_weights import FIRST, LICENCE, Inherited, from_shipped, short_digest
from dpose.training.trained_on import ENTRY, TrainedOn, named_line

DO = "do not rely on it"


def check_first(content: Mapping[str, Any], unit: str, sealed: str, path: Path) -> Inherited:
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
        digest = str(said["sha256"])
        own = TrainedOn.from_dict(content[ENTRY], str(path))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DposeError(
            "trained-on-missing", "does not say what model and first weights have learnt from", str(path), DO
        ) from error
    if digest != sealed:
        raise DposeError(
            "first-weights-altered", "the first weights are not those that were sealed", str(path), DO
        )
    _check_passed_on(start, own, path)
    known = from_shipped(digest, unit)
    if known is None:
        return Inherited(digest, conditions=given, learnt=start, charged=charged)
    if (known.learnt.datasets, known.learnt.known) != (start.datasets, start.known):
        raise DposeError(
            "first-weights-shipped-differ",
            "the first weights come with dpose and have learnt from other data",
            str(path),
            DO,
        )
    return replace(known, conditions=tuple(dict.fromkeys((*known.conditions, *given))))


def _check_passed_on(start: TrainedOn, own: TrainedOn, path: Path) -> None:
    """Refuse a model that does not say of itself what its first weights say of themselves."""
    for name in ("datasets", "protected"):
        left_out = [each for each in getattr(start, name) if each not in getattr(own, name)]
        if left_out:
            what = f"{ENTRY}.{name} leaves out what the first weights learnt from: {left_out[0]}"
            raise DposeError("first-weights-left-out", what, str(path), DO)
    if own.known and not start.known:
        raise DposeError(
            "first-weights-called-known",
            f"{ENTRY} calls known what is not known of the first weights",
            str(path),
            DO,
        )
    if (start.licence, start.note) != (own.licence, own.note):
        raise DposeError(
            "first-weights-licence-differs",
            f"{ENTRY} has another licence or note than the first weights",
            str(path),
            DO,
        )


def check_own(content: Mapping[str, Any], config: RunConfig, path: Path) -> None:
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
                    "run-data-left-out",
                    f"{ENTRY} leaves out {name}, which the run learnt from",
                    str(path),
                    DO,
                )


def given_of_first(first: Inherited, unit: str) -> tuple[str, ...]:
    """What a statement must take as given of the first weights, word for word.

    Args:
        first: As `check_first` gives them.
        unit: What the run protects.
    """
    # whom a run that the account has charged learnt from is known by content; of other weights by names
    named = first.digest and first.learnt.people and first.learnt.how and not (first.charged or first.facts)
    which = f"the first weights{short_digest(first.digest)}"
    return (*first.conditions, *([named_line(first.learnt, unit, which)] if named else []))


def check_licence(first: Inherited, statement: PrivacyStatement, where: str) -> None:
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
            "inputs-licence-missing",
            f"inputs do not say the licence of the first weights, {licence}",
            where,
            DO,
        )
