"""The run folder: the released model with its statement, and the log of what may be shown."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors.torch import save as save_tensors

from dpose.files import explain_os_error, write_atomic
from dpose.privacy.statement import PrivacyStatement


def read_statement(folder: Path) -> PrivacyStatement | None:
    """The statement of the model in `folder`; None where it has none.

    Raises:
        DposeError: what stands there is no statement.
    """
    path = folder / "privacy.json"
    return PrivacyStatement.from_json(path.read_text(), str(path)) if path.exists() else None


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write `config.json`: the task, the model and all settings of the run.

    Raises:
        DposeError: the disk is full or may not be written to.
    """
    write_atomic(folder / "config.json", json.dumps(config, indent=2) + "\n")


def write_model_folder(
    folder: Path, model: torch.nn.Module, config: Mapping[str, Any], statement: PrivacyStatement, card: str
) -> None:
    """Write the released model: `model.safetensors`, `config.json`, `privacy.json` and the card `README.md`.

    The weights come last: a folder with weights always has its statement.

    Raises:
        DposeError: the disk is full or may not be written to.
    """
    weights = {name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()}
    write_atomic(folder / "privacy.json", statement.to_json())
    write_config(folder, config)
    write_atomic(folder / "README.md", card)
    write_atomic(folder / "model.safetensors", save_tensors(weights))


def model_card(task: str, statement: PrivacyStatement, config: Mapping[str, Any]) -> str:
    """A model card in Markdown: what it is, what is guaranteed, how it was made."""
    settings = json.dumps(config.get("run", {}), indent=2)
    return (
        f"# A {task} model trained with dpose\n\n"
        f"## What is guaranteed\n\n{statement.paragraph()}\n\n"
        "The same in machine-readable form: `privacy.json`. `dpose verify FOLDER` recomputes epsilon from the "
        "recorded events.\n\n"
        "## How it was made\n\n"
        f"```json\n{settings}\n```\n\n"
        "## Software\n\n" + "\n".join(f"* {k} {v}" for k, v in statement.software.items()) + "\n"
    )


def updates_of(path: Path, key_id: str) -> dict[int, str]:
    """Digests of the updates that the log `path` holds of steps taken under the key `key_id`, by step from 0.

    A last line that was not completely written is none.
    """
    found: dict[int, str] = {}
    under = ""
    written = path.read_text(encoding="utf-8") if path.exists() else ""
    for line in written[: written.rfind("\n") + 1].splitlines():
        values = json.loads(line)
        under = values.get("key_id", under)
        if values["type"] == "step" and under == key_id and "update" in values:
            found[values["step"] - 1] = values["update"]
    return found


class NoLog:
    """The log of a process that writes none."""

    def taken(self, key_id: str) -> dict[int, str]:
        """None."""
        return {}

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
            written = path.read_bytes()
            self._file.truncate(written.rfind(b"\n") + 1)
        except OSError as error:
            raise explain_os_error(error, path) from error

    def taken(self, key_id: str) -> dict[int, str]:
        """Digests of the updates of all steps taken under the key `key_id`, by step from 0."""
        return updates_of(self.path, key_id)

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
