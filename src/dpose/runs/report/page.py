"""The whole page, and its way into the run folder."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from dpose.report.document import Report
from dpose.report.numbers import day
from dpose.report.results import Block, Group, Section
from dpose.runs.report.account import account_section
from dpose.runs.report.curves import curves_section, diagnostics_section
from dpose.runs.report.guarantee import guarantee_section, plain_fact
from dpose.runs.report.pictures import PosePair, tiles_of
from dpose.runs.report.public_view_leakage import given_away_section
from dpose.runs.report.reading import read_run
from dpose.runs.report.record import RunRecord
from dpose.runs.report.scores import joints_section, scores_section
from dpose.runs.report.settings import check_section, settings_section
from dpose.training.methods import METHODS


def write_run_report(
    folder: Path,
    *,
    tiles: Sequence[PosePair] = (),
    pictures_of: str = "",
    no_pictures: str = "",
    mode: int = 0o644,
) -> Path:
    """Write `report.html` into a run folder: one file that needs no other and loads nothing.

    Args:
        folder: A run folder; log, scores and statement may be missing.
        tiles: Pictures of people who need no protection, or who agreed: they are shown as they are.
        pictures_of: The data that the pictures are of.
        no_pictures: Why there are none.
        mode: Who may read the file.

    Returns:
        The file.

    Raises:
        DposeError: `folder` holds no run, its statement is none or claims less than its events cost, or the file cannot
            be written.
        ValueError: a picture is not uint8 (H, W, 3).
    """
    run = read_run(folder)
    # a page that says "epsilon 8" in large letters must not take a file's word for it
    recomputed = run.statement.verify() if run.statement else None
    pictures = _pictures(tiles, pictures_of, no_pictures)
    report = run_report(run, pictures, recomputed, datetime.now(UTC), account_section(run, folder))
    (path,) = report.write(folder, page="report.html", text="", mode=mode)
    return path


def run_report(
    run: RunRecord,
    pictures: tuple[Block, ...],
    recomputed: float | None,
    now: datetime,
    account: tuple[Block, ...] = (),
) -> Report:
    """What is shown of a run.

    Args:
        run: What was read of its folder.
        pictures: The content of the section of pictures.
        recomputed: Epsilon recomputed from the statement's events; None where there is none.
        now: The report's date.
        account: The content of the section of what the run's data have given in all.
    """
    method = METHODS.get(run.method)
    model = run.model.get("preset")
    size = run.model.get("input_size")
    if isinstance(size, list) and len(size) == 2:
        model = f"{model}, {size[0]} x {size[1]} pixels"
    units = "" if run.units is None else f"{run.units:,} {run.statement.unit if run.statement else 'unit'}s"
    return Report(
        _title(run),
        kind="dpose training report",
        source=f"the run folder {run.name}",
        subject=run.name,
        summary=_sentence(method.summary) if method else "",
        panel=plain_fact(run),
        facts={
            "Run": run.name,
            "Model": str(model or ""),
            "Data": ", ".join(part for part in (run.data, units) if part),
            "Steps": f"{run.steps:,}" if run.steps else "",
            "Report of": day(now),
        },
        sections=(
            Section("guarantee", "What is guaranteed", guarantee_section(run)),
            Section("given-away", "What the public view gives away", given_away_section(run)),
            Section("account", "What its data have given in all", account),
            Section("scores", "Scores", scores_section(run)),
            Section("curves", "While it trained", curves_section(run)),
            Section("joints", "Joint by joint", joints_section(run)),
            Section("pictures", "Pictures", pictures),
            Section("diagnostics", "Diagnostics", diagnostics_section(run)),
            Section("settings", "How it was made", settings_section(run)),
            Section("check", "How to check the claim", check_section(run, recomputed)),
        ),
        now=now,
    )


def _title(run: RunRecord) -> str:
    task = f"{run.task[:1].upper()}{run.task[1:]} model" if run.task else "Model"
    return f"{task}, {run.method} training" if run.method else task


def _sentence(text: str) -> str:
    # a method's name keeps its small letter
    named = text.split(",")[0] in METHODS
    return f"{text if named else text[:1].upper() + text[1:]}."


def _pictures(pairs: Sequence[PosePair], pictures_of: str, no_pictures: str) -> tuple[Block, ...]:
    if not pairs:
        why = "No pictures were given to this report: a picture of private data is never shown."
        return (no_pictures or why,)
    named = f" of {pictures_of}" if pictures_of else ""
    says = (
        f"{len(pairs)} units{named}, chosen by name and not by how well they came out. Left: as labelled. Right: as "
        "the model finds it. Orange is the person's own right side, blue the left, green the middle."
    )
    return says, Group(tiles_of(pairs), "tiles")
