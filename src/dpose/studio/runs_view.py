"""The runs page: run folders, verified on demand, followed while they train, stopped and resumed.

Of a log only what `dpose.runs.reading` lets through is shown: nothing without noise if the run is private.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.files import file_json, file_text
from dpose.interpreter import child_environment, python
from dpose.privacy.ranges import upper
from dpose.privacy.statement import PrivacyStatement
from dpose.studio.roots import Roots

DEPTH = 3
"""Depth below a folder to which runs are searched."""
RECORDS = ("log.jsonl", "ledger.jsonl", "privacy.json")
LOCKS = Path("/proc/locks")


@dataclass
class Resumed:
    """Runs that were resumed from here. They belong to the user and outlive the studio."""

    processes: dict[Path, subprocess.Popen[str]] = field(default_factory=dict)

    def start(self, folder: Path) -> None:
        """Start `dpose train --resume` in a session of its own."""
        if trains(folder) is not None:
            raise DposeError("run-training", "is training already", folder.name)
        if not (folder / "checkpoints").is_dir():
            raise DposeError(
                "checkpoint-missing", "has no checkpoint to go on from", folder.name, "start it again with dpose train"
            )
        self.processes[folder] = subprocess.Popen(
            python("dpose", "train", "--resume", str(folder)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=child_environment(),
            start_new_session=True,
        )

    def complaint(self, folder: Path) -> str:
        """Why a run that was started from here failed; "" if it still trains or ended well."""
        process = self.processes.get(folder)
        if process is None or process.poll() in (None, 0, 130):
            return ""
        assert process.stderr is not None
        if not process.stderr.closed:
            with process.stderr as stderr:
                process.args = stderr.read().strip().splitlines()[-1:]
        return " ".join(map(str, process.args)) if isinstance(process.args, list) else ""

    def starting(self, folder: Path) -> bool:
        """True if the run was started from here and has not ended."""
        process = self.processes.get(folder)
        return process is not None and process.poll() is None


def run_list(roots: Roots) -> list[dict[str, Any]]:
    """All runs below the folders, the last changed first. Opens no model."""
    pairs = [(folder, _brief(folder, roots)) for root in roots.folders for folder in roots.below(root, DEPTH, _is_run)]
    return [details for _, details in sorted(pairs, key=lambda one: _changed(one[0]), reverse=True)]


def _is_run(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any((folder / name).is_file() for name in RECORDS)


def _changed(folder: Path) -> float:
    return max((path.stat().st_mtime for name in RECORDS if (path := folder / name).exists()), default=0.0)


def _brief(folder: Path, roots: Roots) -> dict[str, Any]:
    details = {"run": roots.name(folder), "name": folder.name, "method": "", "kind": "not finished", "epsilon": ""}
    with contextlib.suppress(OSError, ValueError, DposeError, AttributeError):
        roots.closed(folder)
        config = file_json(folder / "config.json")
        details["method"] = str((config.get("run") or {}).get("plan", {}).get("method", ""))
        details["task"] = str(config.get("task", ""))
        if (folder / "privacy.json").is_file():
            statement = PrivacyStatement.from_json(file_text(folder / "privacy.json"))
            details["kind"] = statement.kind.value
            details["epsilon"] = "" if statement.epsilon is None else upper(statement.epsilon)
    if trains(folder) is not None:
        details["kind"] = "training"
    return details


def run_detail(folder: Path, resumed: Resumed) -> dict[str, Any]:
    """Details of a run that may be shown.

    Args:
        folder: The run folder.
        resumed: The runs that were resumed from here.
    """
    # imported here: it needs torch, which the other pages do without
    from dpose.runs.reading import read_run

    run = read_run(folder)
    if run.statement is not None:
        run.statement.verify()
    pid = trains(folder)
    kind = "not finished" if run.statement is None else run.statement.kind.value
    return {
        "name": run.name,
        "method": run.method,
        "task": run.task,
        "data": run.data,
        "kind": "training" if pid is not None else kind,
        "training": pid is not None or resumed.starting(folder),
        "complaint": resumed.complaint(folder),
        "resumable": pid is None and (folder / "checkpoints").is_dir() and _unfinished(run),
        "steps": run.steps,
        "planned": run.planned_steps,
        "epsilon": "" if run.statement is None or run.statement.epsilon is None else upper(run.statement.epsilon),
        "statement": run.statement.paragraph() if run.statement else "",
        "series": {name: _thin(points) for name, points in run.series.items()},
        "watched": [
            {
                "name": one.name,
                "metric": one.moments[-1].score.main_name,
                "points": [[m.step, v] for m in one.moments if (v := m.score.main_percent) is not None],
            }
            for one in run.watched
        ],
        "scores": [
            [
                one.data,
                one.score.main_name,
                "" if one.score.main_percent is None else f"{one.score.main_percent:.1f} %",
                "held out" if not one.trained_on else "trained on",
            ]
            for one in run.evaluations
        ],
        "report": (folder / "report.html").is_file(),
        "model": (folder / "model.safetensors").is_file() and run.task == "pose",
    }


def _unfinished(run: Any) -> bool:
    return bool(run.planned_steps is None or run.steps < run.planned_steps)


def _thin(points: tuple[tuple[int, float], ...], most: int = 300) -> list[tuple[int, float]]:
    step = -(-len(points) // most) or 1
    return [*points[::step], *points[-1:]]


def verify_lines(folder: Path) -> dict[str, Any]:
    """Lines of `dpose verify` for a run; a run that does not verify is not an error of the page.

    Args:
        folder: The run folder.
    """
    from dpose.runs.verify import verify_run  # imported here, since it imports the training code

    try:
        return {"holds": True, "lines": list(verify_run(folder).lines)}
    except DposeError as error:
        return {"holds": False, "lines": [error.line()]}


def stop_run(folder: Path) -> dict[str, Any]:
    """Ask a training run to stop at its next step: it saves its state and can be resumed."""
    pid = trains(folder)
    if pid is None:
        raise DposeError("run-not-training", "is not training", folder.name)
    if pid == 0:
        raise DposeError(
            "run-out-of-reach",
            "is training in a process that cannot be reached from here",
            folder.name,
            "stop it there",
        )
    try:
        os.kill(pid, signal.SIGINT)
    except OSError as error:
        raise DposeError(
            "run-not-stoppable", f"cannot be stopped ({error.strerror})", folder.name, "stop it where it was started"
        ) from error
    return {"said": "It stops after the step that it is at; what is saved then is complete."}


def trains(folder: Path) -> int | None:
    """The process that holds the lock of a run folder, by the system's own list of locks; the lock is not touched.

    Args:
        folder: A run folder.

    Returns:
        None if no process holds it, or the system has no such list; 0 for a process that is not visible from here.
    """
    try:
        lock = (folder / ".lock").stat()
        held = LOCKS.read_text()
    except OSError:
        return None
    for line in held.splitlines():
        parts = line.split()
        if "->" not in parts and len(parts) >= 6 and parts[5].split(":")[-1] == str(lock.st_ino):
            pid = int(parts[4])
            if pid > 0 and _has_open(pid, folder / ".lock"):
                return pid
            if pid <= 0:
                return 0
    return None


def _has_open(pid: int, path: Path) -> bool:
    """True if the process has the file open: inode numbers repeat on other disks."""
    try:
        return any(os.path.samefile(entry, path) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.exists())
    except OSError:
        return False


def folder_entries(roots: Roots, place: Mapping[str, Any]) -> dict[str, Any]:
    """Entries of a folder to choose files from, as JSON for the page.

    Args:
        roots: The folders.
        place: "place", as `Roots.find` takes it; empty for the folders themselves.
    """
    from dpose.media.kinds import kind_of

    if not place.get("place"):
        return {
            "folders": [
                {"place": f"{n}/", "name": root.name or "/"}
                for n, root in enumerate(roots.folders)
                if root not in roots.absent
            ],
            "files": [],
        }
    here = roots.find(place["place"])
    entries = list(roots.inside(here))
    inside = [entry for entry in entries if entry.is_dir() and not entry.is_symlink()]
    files = [entry for entry in entries if entry.is_file() and kind_of(entry)]
    return {
        "folders": [{"place": roots.name(entry), "name": entry.name} for entry in inside],
        "files": [{"place": f"{roots.name(here)}/{entry.name}", "name": entry.name} for entry in files],
        "place": str(place["place"]),
    }
