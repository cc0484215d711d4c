"""Running cells as jobs of a cluster: each a command of its own, saved and requeued before its time is up.

A job reads its cell and the user's request as JSON from a private folder beside the results. It writes the cell's
result into the results' folder, and an exit code and an error as text.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from dpose.engines.one_job import LOCAL, JobNote
from dpose.engines.slurm import CommandJob, exit_code, is_over, submit_all
from dpose.errors import DposeError
from dpose.files import closed_folder, locked_folder, write_atomic, write_private
from dpose.interpreter import python, version_of
from dpose.privacy.keys import state_folder
from dpose_lab.papers.engines import CellWork, account_digest, work_cell
from dpose_lab.papers.experiment import Bound, GridRequest, Outcome, Request
from dpose_lab.papers.experiment_cell import read_cell
from dpose_lab.papers.schedule import Schedule

FULL = 28
"""Exit code of a cell's command if the disk is full."""
_CODES = {"done": 0, "failed": 1, "full": FULL, "stopped": 130}


def parsed_settings(words: Sequence[str]) -> dict[str, Any]:
    """Settings written KEY=VALUE.

    >>> parsed_settings(["nodes=2", "slurm_account=ward"])
    {'nodes': 2, 'slurm_account': 'ward'}
    """
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not (key and equals and value):
            raise DposeError(
                "slurm-setting-malformed", "must be KEY=VALUE", f"job.slurm: {word}", "write timeout_min=240"
            )
        try:
            found[key] = int(value) if value.isdecimal() else float(value)
        except ValueError:
            found[key] = value
    return found


def run_on_slurm(
    name: str,
    request: Request,
    bound: Bound,
    folder: Path,
    progress: Callable[[int], None] = lambda _: None,
    refresh: float = 1.0,
) -> Iterator[Outcome]:
    """Run the wanted cells that have no result yet as jobs: on a cluster as job arrays.

    The guarantee of `run_on_engine` holds: every job must have the state folder and the account of the command. Jobs
    that wait or run continue when the command ends, and the same command waits for them again.

    Args:
        name: Name of the experiment.
        request: The request with partition and settings of jobs; `processes` is the number that run at once on this
            machine, or of an array if above one.
        bound: The experiment with its data.
        folder: Folder claimed for the settings, under the same path at every node.
        progress: Called with the weight of finished work.
        refresh: Seconds between checks of the jobs.

    Yields:
        Each cell's outcome, as they end.
    """
    settings = job_settings(request)
    schedule = Schedule(bound, folder, progress)
    yield from schedule.settled()
    if not schedule.left:
        return
    here = folder.absolute()
    log = here.with_name(f"{here.name}.slurm")
    closed_folder(log)
    token = state_folder() / "engines" / f"slurm-{account_digest(str(here))[:16]}"
    with locked_folder(log):
        write_private(token, "")
        work = CellWork(
            name,
            replace(request, folder=here, engine="", partition="", slurm=(), processes=1),
            here,
            str(token.relative_to(state_folder())),
            account_digest(),
        )
        write_private(log / "work.json", json.dumps(asdict(work), default=str) + "\n")
        while schedule.left:
            yield from schedule.hopeless()
            ready = {cell.key: cell for cell in schedule.ready()}
            schedule.left = [cell for cell in schedule.left if cell.key not in ready]
            for key, error in _ended(log, list(ready), request, settings, refresh):
                cell = ready[key]
                outcome = Outcome(cell, "failed", error=error) if error else read_cell(folder, cell)
                yield schedule.ended(outcome if outcome.status == "done" else replace(outcome, status="failed"))
        token.unlink(missing_ok=True)


def job_settings(request: Request) -> dict[str, Any]:
    """Parse settings of jobs, by submitit's names."""
    if not request.partition:
        raise DposeError(
            "partition-missing",
            "needs a partition",
            "--engine slurm",
            "give --set job.partition=NAME; local is this machine",
        )
    settings = parsed_settings(request.slurm)
    if request.processes > 1:
        settings.setdefault("slurm_array_parallelism", request.processes)
    return settings


def _ended(
    log: Path, keys: Sequence[str], request: Request, settings: Mapping[str, Any], refresh: float
) -> Iterator[tuple[str, str]]:
    """Yield cells whose jobs have ended, each with its error; earlier jobs are waited for, too."""
    going: dict[str, JobNote] = {}
    waiting: list[str] = []
    for key in keys:
        note = JobNote.read(log / key)
        if note is not None and not is_over(note, _code_file(log, key)):
            going[key] = note
        else:
            waiting.append(key)
    while waiting or going:
        # submitit would start all of them at once on this machine
        free = request.processes - len(going) if request.partition == LOCAL else len(waiting)
        now, waiting = waiting[: max(0, free)], waiting[max(0, free) :]
        if now:
            going |= _submitted(log, now, request.partition, settings)
        for key, note in list(going.items()):
            if is_over(note, _code_file(log, key)):
                del going[key]
                yield key, _error(log, key, note)
        if going:
            time.sleep(refresh)


def _submitted(log: Path, keys: Sequence[str], partition: str, settings: Mapping[str, Any]) -> dict[str, JobNote]:
    jobs = []
    for key in keys:
        closed_folder(log / key)
        for old in (_code_file(log, key), log / key / "error"):
            old.unlink(missing_ok=True)
        command = python("dpose_lab.papers.slurm", str(log), key)
        version = version_of("dpose")
        jobs.append(CommandJob(command, command, str(log / "work.json"), str(_code_file(log, key)), version))
    notes = {}
    for key, job in zip(keys, submit_all(jobs, log, partition, settings), strict=True):
        notes[key] = JobNote.of(job, partition)
        notes[key].write(log / key)
    return notes


def _code_file(log: Path, key: str) -> Path:
    return log / key / "exit"


def _error(log: Path, key: str, note: JobNote) -> str:
    """The reason why a cell's job failed; "" if it succeeded."""
    code_file, error = _code_file(log, key), log / key / "error"
    code = exit_code(code_file) if code_file.exists() else None
    if code == 0:
        return ""
    text = error.read_text(encoding="utf-8").strip() if error.exists() else ""
    if code == FULL:
        raise DposeError("disk-full", text or "no space left on the disk")
    how = "ended without a word" if code is None else f"ended with code {code}"
    return text or f"its job {note.id} {how}: {note.log}"


def run_cell_job(log: Path, key: str) -> int:
    """Run a cell at a node.

    Args:
        log: Folder with `work.json`, written by the command.
        key: Key of the cell.

    Returns:
        The exit code of the job; an error is written as text.
    """
    try:
        kind, text = work_cell(_work(log / "work.json"), key)
    except DposeError as error:
        kind, text = "failed", error.line()
    except Exception as error:  # reported in one line, as other errors are
        kind, text = "failed", " ".join(f"{type(error).__name__}: {error}".split())
    if text:
        print(text, file=sys.stderr)
        write_atomic(log / key / "error", text + "\n", mode=0o600)
    return _CODES[kind]


def _work(file: Path) -> CellWork:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        options = values["request"]
        grid = GridRequest(**_tuples(options.pop("grid"), GridRequest))
        folder = Path(options.pop("folder"))
        request = Request(**_tuples(options, Request), grid=grid, folder=folder)
        return CellWork(values["name"], request, Path(values["folder"]), values["place"], values["account"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DposeError("request-invalid", "is no request", str(file), "run the command again") from error


def _tuples(values: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    """Convert lists from JSON to tuples where the fields of `kind` are tuples."""
    many = {one.name for one in fields(kind) if isinstance(one.default, tuple)}
    return {name: tuple(value) if name in many else value for name, value in values.items()}


if __name__ == "__main__":
    sys.exit(run_cell_job(Path(sys.argv[1]), sys.argv[2]))
