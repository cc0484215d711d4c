"""The whole page, and its way into the run folder."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from dpose.files import write_atomic
from dpose.report.document import document, facts
from dpose.report.markup import Html, paragraphs, tag, together
from dpose.report.numbers import day
from dpose.runs.report.curves import curves_section, diagnostics_section
from dpose.runs.report.guarantee import guarantee_section, plain_fact
from dpose.runs.report.pictures import Tile, tile_figures
from dpose.runs.report.public_view_leakage import given_away_section
from dpose.runs.report.reading import read_run
from dpose.runs.report.record import RunRecord
from dpose.runs.report.scores import joints_section, scores_section
from dpose.runs.report.settings import check_section, settings_section
from dpose.training.methods import METHODS


def write_run_report(
    folder: Path, *, tiles: Sequence[Tile] = (), pictures_of: str = "", no_pictures: str = ""
) -> Path:
    """Write `report.html` into a run folder: one file that needs no other and loads nothing.

    Args:
        folder: A run folder; log, scores and statement may be missing.
        tiles: Pictures of people who need no protection, or who agreed: they are shown as they are.
        pictures_of: The data that the pictures are of.
        no_pictures: Why there are none.

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
    path = folder / "report.html"
    pictures = _pictures(tiles, pictures_of, no_pictures)
    write_atomic(path, render_run_report(run, pictures, recomputed, datetime.now(UTC)))
    return path


def render_run_report(run: RunRecord, pictures: Html, recomputed: float | None, now: datetime) -> str:
    """The page as text.

    Args:
        run: What is shown.
        pictures: The content of the section of pictures.
        recomputed: Epsilon recomputed from the statement's events; None where there is none.
        now: The report's date.
    """
    sections = [
        ("guarantee", "What is guaranteed", guarantee_section(run)),
        ("given-away", "What the public view gives away", given_away_section(run)),
        ("scores", "Scores", scores_section(run)),
        ("curves", "While it trained", curves_section(run)),
        ("joints", "Joint by joint", joints_section(run)),
        ("pictures", "Pictures", pictures),
        ("diagnostics", "Diagnostics", diagnostics_section(run)),
        ("settings", "How it was made", settings_section(run)),
        ("check", "How to check the claim", check_section(run, recomputed)),
    ]
    return document(
        f"{run.name}: {_title(run)}", _header(run, now), sections, now, f"the run folder {run.name}"
    )


def _title(run: RunRecord) -> str:
    task = f"{run.task[:1].upper()}{run.task[1:]} model" if run.task else "Model"
    return f"{task}, {run.method} training" if run.method else task


def _sentence(text: str) -> str:
    # a method's name keeps its small letter
    named = text.split(",")[0] in METHODS
    return f"{text if named else text[:1].upper() + text[1:]}."


def _header(run: RunRecord, now: datetime) -> Html:
    method = METHODS.get(run.method)
    model = run.model.get("preset")
    size = run.model.get("input_size")
    if isinstance(size, list) and len(size) == 2:
        model = f"{model}, {size[0]} x {size[1]} pixels"
    units = "" if run.units is None else f"{run.units:,} {run.statement.unit if run.statement else 'unit'}s"
    about = [
        ("Run", run.name),
        ("Model", str(model or "")),
        ("Data", ", ".join(part for part in (run.data, units) if part)),
        ("Steps", f"{run.steps:,}" if run.steps else ""),
        ("Report of", day(now)),
    ]
    return tag(
        "header",
        tag("p", "dpose training report", class_="eyebrow"),
        tag("h1", _title(run)),
        tag("p", _sentence(method.summary), class_="summary") if method else Html(""),
        plain_fact(run),
        facts(about),
    )


def _pictures(tiles: Sequence[Tile], pictures_of: str, no_pictures: str) -> Html:
    if not tiles:
        return paragraphs(
            no_pictures or "No pictures were given to this report: a picture of private data is never shown."
        )
    named = f" of {pictures_of}" if pictures_of else ""
    says = (
        f"{len(tiles)} units{named}, chosen by name and not by how well they came out. Left: as labelled. Right: as "
        "the model finds it. Orange is the person's own right side, blue the left, green the middle."
    )
    return together([paragraphs(says), tag("div", *tile_figures(tiles), class_="tiles")])
