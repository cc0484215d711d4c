"""The run folder: the released model with its statement, and the log of what may be shown.

What a run folder must not hold: where the data lie on this machine, and what was typed.

A run folder travels, and paths name people, wards and projects. So it holds settings with the last part of each path,
and the full ones stand in the user's state folder by the run's name, readable by no other user; they are needed to go
on with the run, to draw its report and to tell its data from others.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml

from dpose.errors import DposeError
from dpose.files import check_place, explain_os_error, file_bytes, file_json, file_text, write_atomic, write_private
from dpose.privacy.entries import Seal, check_sealed, read_ledger, run_digests
from dpose.privacy.keys import state_folder
from dpose.privacy.ledger import Ledger
from dpose.privacy.ranges import upper
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.tensors import weights_file
from dpose.training.trained_on import ENTRY, TrainedOn, card_lines

if TYPE_CHECKING:
    import torch

SCHEMA = 1


@dataclass(frozen=True)
class Places:
    """A run's settings as they were given.

    Attributes:
        settings: As the command that began the run takes them, with every path whole.
        command: What the user typed; "" where nothing was.
    """

    settings: Mapping[str, Any]
    command: str = ""


def keep_places(run_id: str, places: Places, state_dir: Path | None = None) -> None:
    """Write what the folder of the run `run_id` must not hold."""
    content = {"schema": SCHEMA, "settings": dict(places.settings), "command": places.command}
    write_private(_file(run_id, state_dir), json.dumps(content) + "\n")


def kept_places(run_id: str, state_dir: Path | None = None) -> Places | None:
    """The stored settings of the run `run_id`; None if this machine has none that can be read."""
    try:
        content = file_json(_file(run_id, state_dir))
        if content["schema"] != SCHEMA:
            return None
        return Places(dict(content["settings"]), str(content["command"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # a run from another machine


def run_id_of(folder: Path) -> str:
    """The name of the run in `folder`, as its config.json says; "" where it says none."""
    try:
        found = file_json(folder / "config.json").get("run_id", "")
    except (OSError, ValueError, AttributeError):
        return ""
    # it becomes a file name
    named = isinstance(found, str) and len(found) == 32 and set(found) <= set("0123456789abcdef")
    return found if named else ""


def run_name(folder: Path) -> str:
    """The name of the run in `folder`: its ledger's or, without one, its config's; "" where neither has one."""
    ledger = folder / "ledger.jsonl"
    return read_ledger(ledger)[0].run_id if ledger.exists() else run_id_of(folder)


def _file(run_id: str, state_dir: Path | None) -> Path:
    return state_folder(state_dir) / "runs" / f"{run_id}.json"


def read_statement(folder: Path) -> PrivacyStatement | None:
    """The statement of the model in `folder`; None if it has none."""
    path = folder / "privacy.json"
    try:
        content = file_text(path)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise DposeError("statement-unreadable", "there is no readable privacy statement", str(path)) from error
    return PrivacyStatement.from_json(content, str(path))


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write `config.json`: the task, the model and all settings of the run."""
    write_atomic(folder / "config.json", _config_bytes(config))


def write_run_folder(
    folder: Path,
    model: torch.nn.Module,
    config: Mapping[str, Any],
    statement: PrivacyStatement,
    *,
    run_id: str,
    first_weights: str = "",
    state_dir: Path | None = None,
) -> PrivacyStatement:
    """Write the model that a run releases, and seal it with all else that the folder holds.

    A run that claims nothing has no ledger until here; it gets one, to hold the seal.

    `run_id` names the run if it has no ledger yet; `first_weights` is the SHA-256 of the file of weights that training
    began with, "" if there was none.

    Returns:
        The statement as it was written.
    """
    path = folder / "ledger.jsonl"
    files = {"config.json": _config_bytes(config), "model.safetensors": weights_file(model)}
    if path.exists():
        opened = Ledger.append_to(path, state_dir)
    else:
        opened = Ledger.create(path, statement.plan_sha256, "", state_dir, run_id)
        for query in statement.queries:
            opened.query(query.to_dict())
    with opened as ledger:
        return _sealed(folder, ledger, statement, files, first_weights)


def check_sealable(folder: Path, statement: PrivacyStatement) -> None:
    """Refuse a run folder that could not be sealed again.

    Raises:
        DposeError: it has no ledger, was changed since it was sealed, or cannot be written.
    """
    if not (folder / "ledger.jsonl").exists():
        raise DposeError("ledger-missing", "has no ledger, so that nothing can be recorded in it", str(folder))
    check_sealed(folder, statement, read_ledger(folder / "ledger.jsonl"))
    check_place(folder / "privacy.json", as_file=True)


def reseal(
    folder: Path,
    change: Callable[[Ledger, PrivacyStatement], PrivacyStatement],
    files: Mapping[str, bytes] | None = None,
    state_dir: Path | None = None,
) -> PrivacyStatement:
    """Change a finished run's statement or files, and seal it again with a new model card.

    What stands there is checked against the seal that it has: a changed folder is not sealed anew.

    Returns:
        The statement as it was written.
    """
    statement = read_statement(folder)
    if statement is None:
        raise DposeError("statement-missing", "there is no privacy statement", str(folder / "privacy.json"))
    check_sealable(folder, statement)
    with Ledger.append_to(folder / "ledger.jsonl", state_dir) as ledger:
        seal = check_sealed(folder, statement, ledger.entries)
        return _sealed(folder, ledger, change(ledger, statement), dict(files or {}), seal.first_weights)


def _sealed(
    folder: Path, ledger: Ledger, statement: PrivacyStatement, files: Mapping[str, bytes], first_weights: str
) -> PrivacyStatement:
    """Write a run's files, with the card that follows from statement and configuration, and the seal over all of it.

    The weights come last: a folder with weights always has its statement.
    """
    found = replace(statement, ledger_head=ledger.head, seal="")
    config = json.loads(files["config.json"]) if "config.json" in files else file_json(folder / "config.json")
    content = {"README.md": model_card(found, config).encode(), **files}
    digests = {name: hashlib.sha256(each).hexdigest() for name, each in content.items()}
    seal = Seal.of(found, {**run_digests(folder), **digests}, first_weights)
    found = replace(found, seal=ledger.seal(seal))
    write_atomic(folder / "privacy.json", found.to_json())
    for name, each in content.items():
        write_atomic(folder / name, each)
    return found


def _config_bytes(config: Mapping[str, Any]) -> bytes:
    return (json.dumps(config, indent=2) + "\n").encode()


PIPELINE_TAGS = {"pose": "keypoint-detection", "action": "video-classification"}
"""The Hugging Face Hub's words for tasks, by their names here; a task of another name has none."""


def front_matter(task: str, statement: PrivacyStatement | None, method: str = "") -> str:
    """A card's metadata as the Hugging Face Hub reads them: what the model is for, and what protects its data.

    Only a statement that guarantees something gives the tag "differential_privacy", and the mapping of that name its
    numbers; seeds, repeated papers and public training give none.
    """
    found: dict[str, Any] = {"library_name": "dpose"}
    if task in PIPELINE_TAGS:
        found["pipeline_tag"] = PIPELINE_TAGS[task]
    found["tags"] = [task]
    if statement is not None and statement.kind is Kind.PRIVATE and statement.neighbours is not None:
        found["tags"] += ["differential_privacy", *([method] if method else [])]
        found["differential_privacy"] = {
            "epsilon": float(upper(cast("float", statement.epsilon))),
            "delta": float(cast("float", statement.delta)),
            "unit": str(statement.unit),
            "relation": statement.neighbours.relation.value,
            "scope": statement.neighbours.scope,
        }
    return f"---\n{yaml.safe_dump(found, sort_keys=False)}---\n"


def model_card(statement: PrivacyStatement, config: Mapping[str, Any]) -> str:
    """A model card in Markdown: its metadata, what it is, what is guaranteed, how it was made.

    It is a function of statement and configuration alone, so that verification can make it again.
    """
    run, task = config.get("run", {}), str(config.get("task", ""))
    settings = json.dumps(run, indent=2)
    return (
        f"{front_matter(task, statement, run.get('plan', {}).get('method', ''))}\n"
        f"# A {task} model trained with dpose\n\n"
        f"## What is guaranteed\n\n{statement.paragraph()}\n\n"
        "The same in machine-readable form: `privacy.json`. `dpose verify FOLDER` recomputes epsilon from the "
        "recorded events.\n\n"
        f"{_learnt_section(config)}"
        "## How it was made\n\n"
        f"```json\n{settings}\n```\n\n"
        "## Software\n\n" + "\n".join(f"* {k} {v}" for k, v in statement.software.items()) + "\n"
    )


def _learnt_section(config: Mapping[str, Any]) -> str:
    """What the model learnt from, as its configuration says; "" where that says nothing."""
    entry = config.get(ENTRY)
    if entry is None:
        return ""
    lines = card_lines(TrainedOn.from_dict(entry, "config.json"))
    return "## What it learnt from\n\n" + "\n".join(f"* {line}" for line in lines) + "\n\n" if lines else ""


def json_objects(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file, one for all of it or one a line; none of a file that is missing or has others."""
    try:
        raw = file_bytes(path)
    except OSError:
        return []
    found = []
    for text in [raw] if path.suffix == ".json" else raw.splitlines():
        try:
            found.append(json.loads(text))
        except (ValueError, RecursionError):
            continue
    return [each for each in found if isinstance(each, dict)]


def updates_of(path: Path, key_id: str) -> dict[int, str]:
    """Digests of the updates that the log `path` holds of steps taken under the key `key_id`, by step from 0.

    What cannot be read, as a last line that was not completely written, says nothing, and may have named another key:
    what stands between it and the next line that names one belongs to no key. Steps that are committed and have no
    digest are counted again.
    """
    found: dict[int, str] = {}
    under = ""
    try:
        written = file_text(path, errors="replace") if path.exists() else ""
    except OSError as error:
        raise DposeError("file-unreadable", f"cannot be read ({error.strerror})", str(path)) from error
    for line in written[: written.rfind("\n") + 1].split("\n")[:-1]:
        try:
            values = json.loads(line)
            under = values.get("key_id", under)
            if values["type"] == "step" and under == key_id and "update" in values:
                found[values["step"] - 1] = str(values["update"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            under = ""
    return found


class NoLog:
    """The log of a process that writes none."""

    def write(self, kind: str, **values: Any) -> None:
        """Nothing."""

    def flush(self) -> None:
        """Nothing."""


class RunLog(NoLog):
    """`log.jsonl`: one JSON object a line, flushed line by line.

    For a private run its lines hold post-processing of noised sums, settings and public constants, and no time of a
    step: how long a step took tells how many units were in it.

    Args:
        path: The file; appended to, after what a last line without an end left there was cut off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("a+", encoding="utf-8")
            written = file_bytes(path)
            self._file.truncate(written.rfind(b"\n") + 1)
        except OSError as error:
            raise explain_os_error(error, path) from error

    def write(self, kind: str, **values: Any) -> None:
        """Append a line of type `kind`."""
        try:
            self._file.write(json.dumps({"type": kind, **values}) + "\n")
            self._file.flush()
        except OSError as error:
            raise explain_os_error(error, self.path) from error

    def flush(self) -> None:
        """Make the lines durable."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise explain_os_error(error, self.path) from error

    def close(self) -> None:
        """Make the lines durable, and end."""
        self.flush()
        try:
            self._file.close()
        except OSError as error:
            raise explain_os_error(error, self.path) from error

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
