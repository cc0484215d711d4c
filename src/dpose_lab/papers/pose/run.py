"""Running one training of a grid: into a run folder, resumed where it was stopped, then tested."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from dpose.files import file_text
from dpose.pose.folder import find_model
from dpose.runs.places import check_begun
from dpose.runs.stages import private_stage
from dpose.runs.train import resume_task, train_run
from dpose.training.checkpoint import is_whole
from dpose.training.folder import read_statement
from dpose.training.run import Run
from dpose_lab.papers.pose.testing import tested
from dpose_lab.papers.pose.training_cell import RUNS, START, Setup, Training, shipped

QUIET = Console(quiet=True)
PEOPLE = "people"
"""Subfolder of the results for the scores of each tested person; never in a run folder, which may be shared."""


def run_training(setup: Setup, training: Training, folder: Path, command: str = "") -> dict[str, Any]:
    """Run one training and test its model.

    **Guarantee.** A private training is the trainer's own: its run folder has statement and ledger, and an account is
    kept of the data. A run with a ledger is resumed and never begun anew, so that no step goes uncounted. The
    scores on data that are not public are listed in the statement, outside its guarantee.

    Args:
        setup: Settings that the trainings share.
        training: The training.
        folder: Folder of the results; the run is written to `runs/KEY` in it.
        command: The user's command line, for the run's report.

    Returns:
        The result of `tested`, and "epsilon" (spent, at the setup's delta), "kind" (of the statement), "steps" and
        "seconds" (of training, in the process that finished it), as JSON.

    Raises:
        DposeError: data, model or plan are invalid.
        KeyboardInterrupt: the training was stopped, and is saved.
    """
    began = time.perf_counter()
    run = _start(setup, folder) if training.method == START and not setup.pretrain else None
    if run is None:
        run = folder / RUNS / training.key
        _train(setup, training, run, folder, command)
    seconds = time.perf_counter() - began
    scores, people = tested(run, setup.evaluate, setup.tested, views=training.on_views)
    if people:
        place = folder / PEOPLE
        place.mkdir(exist_ok=True)
        people.write(place / f"{training.key}.json")
    statement = read_statement(run)
    return {
        **scores,
        "epsilon": statement.epsilon if statement else None,
        "kind": statement.kind.value if statement else "none",
        "steps": _steps(run),
        "seconds": round(seconds, 1),
    }


def model_of(setup: Setup, training: Training, folder: Path) -> Path:
    """Folder of the model that a cell trained, or of the weights that all start from."""
    if training.method == START and not setup.pretrain:
        return _start(setup, folder)
    return folder / RUNS / training.key


def _start(setup: Setup, folder: Path) -> Path:
    first = setup.first(folder)
    return find_model(first) if first else shipped(setup.preset)


def _train(setup: Setup, training: Training, run: Path, folder: Path, command: str) -> None:
    config = private_stage(setup.config(training, folder), run, QUIET, command)
    if isinstance(config, Run):
        raise KeyboardInterrupt
    if run.exists() and not _begun(run):
        shutil.rmtree(run)
    if not run.exists():
        ended = train_run(config, run, QUIET, command=command)
    else:
        if (run / "config.json").exists():
            check_begun(run, config)
        if is_whole(run):
            return
        ended = resume_task(run, QUIET)
    if ended.interrupted:
        raise KeyboardInterrupt


def _begun(run: Path) -> bool:
    """True if a run can be resumed: it has a ledger, which counts spending, or a checkpoint."""
    return (run / "ledger.jsonl").exists() or any(run.glob("checkpoints/step-*"))


def _steps(run: Path) -> int:
    """The last step of the log; an incomplete last line is ignored."""
    taken = 0
    for text in file_text(run / "log.jsonl").splitlines() if (run / "log.jsonl").exists() else ():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if line.get("type") == "step":
            taken = max(taken, int(line["step"]))
    return taken
