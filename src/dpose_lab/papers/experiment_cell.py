"""Running cells: each result is a file of its own, written atomically and reused by the next run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.files import explain_os_error, file_json, is_full, write_atomic
from dpose_lab.papers.experiment import Bound, Cell, Outcome, Values

SETTINGS = "settings.json"
CELLS = "cells"


def claim_folder(folder: Path, settings: Values) -> None:
    """Claim `folder` for results of `settings`, if it is not claimed already."""
    check_claim(folder, settings)
    path = folder / SETTINGS
    if not path.exists():
        write_atomic(path, _text(settings))


def check_claim(folder: Path, settings: Values) -> None:
    """Check that a folder can be claimed for `settings`; nothing is written."""
    path = folder / SETTINGS
    if path.exists():
        held = _read(path)
        if held != json.loads(_text(settings)):
            other = [name for name in {**held, **settings} if held.get(name) != settings.get(name)]
            raise DposeError(
                "results-of-other-settings",
                f"holds results of other settings ({', '.join(sorted(other)) or 'order'})",
                str(folder),
                "choose another --out, or give the same options",
            )
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DposeError(
            "results-folder-unknown", "is there already and holds no such results", str(folder), "choose another --out"
        )


def run_cells(bound: Bound, folder: Path, progress: Callable[[int], None] = lambda _: None) -> Iterator[Outcome]:
    """Run the wanted cells that have no result yet, one after the other.

    A failed cell is reported and tried again by the next run; the others are run all the same. A stop for any reason
    (Ctrl-C, a power cut, a full disk) loses the cell in progress and no other.

    Args:
        bound: The experiment with its data.
        folder: Folder claimed for the settings.
        progress: Called with the weight of finished work.

    Yields:
        Each cell's outcome, in order.
    """
    failed: set[str] = set()
    for cell in bound.cells:
        outcome = read_cell(folder, cell)
        if outcome.status == "done" or not cell.wanted:
            progress(cell.weight if cell.wanted else 0)
            yield outcome
            continue
        if cell.needs in failed:
            failed.add(cell.key)
            progress(cell.weight)
            yield unmet(cell)
            continue
        done = [0]

        def step(done: list[int] = done) -> None:
            done[0] += 1
            progress(1)

        outcome = run_cell(bound, folder, cell, step)
        if outcome.status == "failed":
            failed.add(cell.key)
        progress(cell.weight - done[0])
        yield outcome


def run_cell(bound: Bound, folder: Path, cell: Cell, step: Callable[[], None] = lambda: None) -> Outcome:
    """Run one cell and write its result.

    Args:
        bound: The experiment with its data.
        folder: Folder claimed for the settings.
        cell: One of its cells.
        step: Called `cell.weight` times.
    """
    try:
        values = bound.run(cell, step)
    except DposeError as error:
        if _full_disk(error):
            raise
        return Outcome(cell, "failed", error=error.line())
    except Exception as error:  # one broken cell must not stop the others
        full = _full_disk(error)
        if full:
            raise explain_os_error(full, folder) from error
        return Outcome(cell, "failed", error=" ".join(f"{type(error).__name__}: {error}".split()))
    write_atomic(_path(folder, cell), _text({"settings": cell.settings, "values": values}))
    return read_cell(folder, cell)


def unmet(cell: Cell) -> Outcome:
    """The outcome of a cell whose needed cell has failed."""
    return Outcome(cell, "failed", error=f"needs the cell {cell.needs}, which failed")


def _full_disk(error: BaseException | None) -> OSError | None:
    """The error in the chain of `error` that says that the disk is full."""
    while error is not None:
        if isinstance(error, OSError) and is_full(error):
            return error
        error = error.__cause__
    return None


def read_cell(folder: Path, cell: Cell) -> Outcome:
    """Read a cell's result; status "not run" if there is none."""
    path = _path(folder, cell)
    if not path.exists():
        return Outcome(cell)
    content = _read(path)
    if content.get("settings") != json.loads(_text(cell.settings)) or not isinstance(content.get("values"), dict):
        raise DposeError("result-of-other-cell", "is not the result of its cell", str(path), "delete it, and run again")
    return Outcome(cell, "done", content["values"])


def read_cells(folder: Path, cells: Sequence[Cell]) -> list[Outcome]:
    """Read the results of all cells, as far as they exist."""
    return [read_cell(folder, cell) for cell in cells]


def _path(folder: Path, cell: Cell) -> Path:
    return folder / CELLS / f"{cell.key}.json"


def _text(values: Any) -> str:
    return json.dumps(values, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _read(path: Path) -> dict[str, Any]:
    try:
        content = file_json(path)
    except (OSError, ValueError) as error:
        raise DposeError("result-unreadable", "cannot be read", str(path), "delete it, and run again") from error
    if not isinstance(content, dict):
        raise DposeError("result-unreadable", "cannot be read", str(path), "delete it, and run again")
    return content
