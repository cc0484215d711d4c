"""The accounts of before, a JSON file for each charge and budget of one user: taken over once, then put aside."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpose.errors import DposeError
from dpose.files import explain_os_error, file_json, locked_folder
from dpose.privacy.events import SampledGaussian, event_from_dict
from dpose.privacy.neighbours import Relation
from dpose.privacy.odometer.records import UNKNOWN, Budget, Charge, Marks

if TYPE_CHECKING:
    from dpose.privacy.odometer.store import Store

JSON_SCHEMA = 1
ASIDE = ".imported"
_TEXTS = ("id", "what", "data", "folder", "at", "unit", "views", "start")


def import_old_accounts(store: Store) -> None:
    """Take over what stands in JSON files of the state folder, and rename their folders.

    What is there twice, because a process died between the two, is joined with itself and costs nothing more. A budget
    is taken over as it stands, even where more than it is spent: the next charge is then refused.

    Raises:
        DposeError: a file cannot be read: passed over, it would let runs be forgotten.
    """
    from dpose.privacy.odometer.filters import adopt_budget
    from dpose.privacy.odometer.reservations import charge

    folder = store.folder
    if not old_accounts(folder):
        return
    places = [folder / "account", folder / "budgets"]
    try:
        with locked_folder(folder, wait=True):
            kept = [_charge_from(path) for path in sorted(places[0].glob("*.json"))]
            limits = [_budget_from(path) for path in sorted(places[1].glob("*.json"))]
            for entry in sorted(kept, key=lambda one: (one.at, one.id)):
                charge(entry, store.where)
            for budget in limits:
                adopt_budget(budget, store.where)
            for place in places:
                if place.exists():
                    os.replace(place, _free(place))
    except OSError as error:
        raise explain_os_error(error, folder) from error


def old_accounts(folder: Path) -> bool:
    """Whether there are accounts of before in a state folder."""
    return any(any((folder / name).glob("*.json")) for name in ("account", "budgets"))


def _free(place: Path) -> Path:
    number = 1
    while (aside := place.with_name(f"{place.name}{ASIDE}{number}")).exists():
        number += 1
    return aside


def _charge_from(path: Path) -> Charge:
    # what older files do not say is taken for the worst that it can be
    values = {"views": "", "start": UNKNOWN, "weights": [], "opened": "", **_read(path)}
    try:
        texts: dict[str, Any] = {name: str(values[name]) for name in _TEXTS}
        events = tuple(event_from_dict(event, str(path), SampledGaussian) for event in values["events"])
        return Charge(
            **texts,
            relation=Relation(values["relation"]),
            delta=float(values["delta"]),
            events=events,
            beyond=values["beyond"] is True and (bool(events) or values["start"] != UNKNOWN),
            weights=tuple(map(str, values["weights"])),
            marks=_unpacked(values["marks"]),
            opened=_unpacked(values["opened"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _broken(path, error) from error


def _budget_from(path: Path) -> Budget:
    values = _read(path)
    try:
        return Budget(
            float(values["epsilon"]),
            float(values["delta"]),
            str(values["data"]),
            _unpacked(values["marks"]),
            str(values.get("unit", "image")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _broken(path, error) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        values = file_json(path)
        if not isinstance(values, dict) or values.get("schema") != JSON_SCHEMA:
            raise ValueError("another dpose wrote it")
        return values
    except (OSError, ValueError) as error:
        raise _broken(path, error) from error


def _broken(path: Path, error: Exception) -> DposeError:
    return DposeError(
        "account-file-unreadable",
        f"a file of the account cannot be read ({error})",
        str(path),
        "mend or remove it",
    )


def _unpacked(text: Any) -> Marks:
    return np.frombuffer(base64.b64decode(str(text), validate=True), dtype="<u8").astype(np.uint64)
