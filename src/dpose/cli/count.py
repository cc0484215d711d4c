"""`dpose count`: private statistics of what people do in video."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpose.cli.options import Settings, option, plain_console
from dpose.cli.release_options import ABOUT_CLASS, about_of
from dpose.errors import DposeError
from dpose.files import check_free

if TYPE_CHECKING:
    from rich.console import Console

    from dpose.measure.counter import CountRequest

COUNT = Settings(
    (("", "dpose.measure.config:CountConfig"), ABOUT_CLASS),
    {
        "queries": ("--query",),
        "window": (),
        "epsilon": (),
        "visible": (),
        "times": (),
        "delta": (),
        "chunk": (),
        "totals": (),
        "line": (),
        "masks": ("--mask",),
    },
    required=("queries", "epsilon"),
    texts=("queries", "times", "delta", "line", "masks"),
)


@dataclass(frozen=True)
class OfFiles:
    """Options for when files were filmed."""

    day: Annotated[str, option("Of files: the calendar day, for readers.")] = "day"
    start: Annotated[str, option("Of files: when they begin, after midnight, as 8h.")] = "0s"
    subjects: Annotated[Path | None, option("Who is seen when: CSV of subject,source,begin,end.")] = None


@dataclass(frozen=True)
class OfLive:
    """Options for a live source."""

    until: Annotated[str | None, option("Of a live source: when to stop, as 20h. Default: Ctrl-C.")] = None
    name: Annotated[str | None, option("Of a live source: what the account knows it by.")] = None


def count(
    sources: Annotated[
        list[str] | None,
        typer.Argument(help="Videos, folders of them, synthetic:films; or live: rtsp://..., /dev/video0, live:FILE."),
    ] = None,
    out: Annotated[Path | None, option("The folder to write.")] = None,
    *,
    settings: Annotated[dict[str, Any], COUNT],
    files: OfFiles,
    live: OfLive,
    protect: Annotated[str, option("Whom to hide: person, or subject:K by --subjects.")] = "person",
    explain: Annotated[bool, option("Say what the numbers will be worth; read nothing.", "--explain")] = False,
    again: Annotated[bool, option("Count once more what was counted; epsilons add up.", "--again")] = False,
) -> None:
    """Count what people do in video, by windows of a day, with noise that hides every person's stays in view.

    No frame, crop, track or pose is written: numbers with intervals, a plot and a statement.
    """
    from dpose.measure.config import CountConfig
    from dpose.measure.counter import CountRequest
    from dpose.measure.live import live_config
    from dpose.measure.plan import whole_day
    from dpose.measure.statement import drowned, explained
    from dpose.media.live import is_live

    preset, colon, chunks = protect.partition(":")
    if preset + colon not in ("person", "subject:"):
        raise DposeError(
            "protect-unknown", f"no preset is called {protect[:40]!r}", "--protect", "say person, or subject:K"
        )
    if colon:
        settings["subject_chunks"] = chunks
    about, console = about_of(settings), plain_console()
    config = CountConfig.of(**settings)
    lives = any(map(is_live, sources or ()))
    plan = whole_day(live_config(config), files.day, ("live",)) if lives else whole_day(config, files.day)
    if explain:
        for line in explained(plan):
            console.print(line, highlight=False, soft_wrap=True)
        return
    if not sources or out is None:
        raise DposeError("command-incomplete", "is missing", "--out" if sources else "sources", "or say --explain")
    request = CountRequest(config, files.day, again=again, about=about)
    if lives:
        for line in drowned(plan):
            console.print(f"Warning: {line}", highlight=False, soft_wrap=True)
        _count_live(sources, request, out, live, console)
    else:
        _count_files(sources, request, out, files, console)


def _count_files(sources: list[str], request: CountRequest, out: Path, files: OfFiles, console: Console) -> None:
    from rich.progress import Progress

    from dpose.measure.counter import count_footage
    from dpose.measure.sources import open_footage
    from dpose.measure.subjects import read_sightings
    from dpose.runs.annotate import bundled_predictor

    check_free(out)
    tell = partial(console.print, highlight=False, soft_wrap=True)
    footage = open_footage(sources, files.start)
    if files.subjects:
        sightings = read_sightings(files.subjects, [one.name for one in footage])
        request = replace(request, sightings=sightings)
    finder = bundled_predictor(flip_test=False).finder
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("counting", total=float(sum(one.end - one.begin for one in footage)))
        statement = count_footage(
            footage, request, out, finder, lambda done: bar.update(task, completed=float(done)), tell
        )
    console.print(statement.words().printed(), highlight=False)
    console.print(f"Written: {out}", soft_wrap=True)


def _count_live(sources: list[str], request: CountRequest, out: Path, live: OfLive, console: Console) -> None:
    from dpose.measure.live import count_live
    from dpose.measure.sources import open_live
    from dpose.privacy.ranges import parse_duration
    from dpose.runs.annotate import bundled_predictor

    source = open_live(sources, live.name)
    until = None if live.until is None else parse_duration(live.until, "--until")
    finder = bundled_predictor(flip_test=False).finder
    console.print("Counting, until " + (live.until or "Ctrl-C"), highlight=False)
    count_live(source, request, out, finder, until=until, tell=lambda line: console.print(line, highlight=False))
    console.print(f"Written: {out}", soft_wrap=True)
