"""The keys of runs that may still go on: in the user's state folder, readable only by the user, never in a run folder.

    keep_key(ledger.run_id, StoredKey(key, data, surroundings))
    ...
    forget_key(ledger.run_id)                       # the run is finished

Anyone who holds a run's key can remove its noise, so a key lives no longer than its run. Deleting a file is best
effort: a journal or a backup may still hold it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from dpose.errors import DposeError
from dpose.files import file_json, fsync_folder, write_private
from dpose.privacy.noise import Key

SCHEMA = 1


@dataclass(frozen=True)
class StoredKey:
    """A key and what it belongs to.

    Attributes:
        key: The secret.
        data: Hexadecimal digest of the private data. It is a function of them without noise: it stands here only.
        surroundings: What the bits of a step depend on besides (versions, device, threads, ...), by name.
    """

    key: Key
    data: str = field(repr=False)
    surroundings: dict[str, str]


def state_folder(state_dir: Path | None = None) -> Path:
    """The folder of keys, heads of ledgers and accounts: `state_dir`, or the user's state folder."""
    return platformdirs.user_state_path("dpose") if state_dir is None else state_dir


def keep_key(run_id: str, kept: StoredKey, state_dir: Path | None = None) -> None:
    """Write the key of the run `run_id`; on disk when this returns.

    Raises:
        DposeError: the state folder cannot be written.
    """
    content = {"schema": SCHEMA, "key": kept.key.secret.hex(), "data": kept.data, "surroundings": kept.surroundings}
    write_private(_file(run_id, state_dir), json.dumps(content) + "\n")


def kept_key(run_id: str, state_dir: Path | None = None) -> StoredKey | None:
    """The key of the run `run_id`; None if this machine holds none, or none that can be read."""
    try:
        content = file_json(_file(run_id, state_dir))
        if content["schema"] != SCHEMA:
            return None
        surroundings = {str(k): str(v) for k, v in content["surroundings"].items()}
        return StoredKey(Key.kept(bytes.fromhex(content["key"])), str(content["data"]), surroundings)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # a run without its key takes a new one and counts its steps again


def forget_key(run_id: str, state_dir: Path | None = None) -> None:
    """Delete the key of the run `run_id`, overwritten first; nothing happens where there is none.

    What a process left that died while it wrote the key goes with it.

    Raises:
        DposeError: it is there and cannot be deleted.
    """
    kept = _file(run_id, state_dir)
    for file in (kept, *kept.parent.glob(f".{kept.name}.*")):
        try:
            with file.open("r+b") as opened:
                opened.write(bytes(file.stat().st_size))
                opened.flush()
                os.fsync(opened.fileno())
            file.unlink()
            fsync_folder(file.parent)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise DposeError(
                "key-not-deletable",
                "the key of a run cannot be deleted; anyone who holds it can take the noise away",
                str(file),
                "delete it",
            ) from error


def keys_kept(state_dir: Path | None = None) -> list[str]:
    """Names of the runs whose key this machine holds, readable or not; in the order of their names."""
    files = (state_folder(state_dir) / "keys").glob("*.json")
    whole = {file.stem for file in files if not file.name.startswith(".")}
    parts = (state_folder(state_dir) / "keys").glob(".*.json.*")
    return sorted(whole | {file.name[1:].split(".json.")[0] for file in parts})


def _file(run_id: str, state_dir: Path | None) -> Path:
    return state_folder(state_dir) / "keys" / f"{run_id}.json"
