"""`dpose count`: private statistics of what people do in video."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpose.cli.options import Settings, option, plain_console
from dpose.cli.release_options import ABOUT_CLASS, about_of
from dpose.errors import DposeError

if TYPE_CHECKING:
    from dpose.measure.config import CountConfig

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
        "rate": (),
        "totals": (),
        "line": (),
        "masks": ("--mask",),
        "floor": (),
    },
    required=("queries", "epsilon"),
    texts=("queries", "times", "delta", "line", "masks", "floor"),
)


def count(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Videos, folders of them, synthetic:films; one live source: rtsp://..., /dev/video0, live:FILE."
        ),
    ] = None,
    settings: Annotated[dict[str, Any], COUNT] = {},  # noqa: B006
    *,
    out: Annotated[Path | None, option("The folder to write.")] = None,
    protect: Annotated[str, option("Whom to hide: person, by --visible and --times.")] = "person",
    day: Annotated[str | None, option("The calendar day. Default: of a live source today, else day.")] = None,
    start: Annotated[str, option("When files begin, after midnight: 8h, 90min.")] = "0s",
    name: Annotated[str | None, option("Of a live source: what the account knows it by.")] = None,
    explain: Annotated[
        bool, option("Say what the numbers will be worth; read nothing.", "--explain")
    ] = False,
    again: Annotated[bool, option("Count once more; epsilons add up.", "--again")] = False,
) -> None:
    """Count what people do in video, by windows of a day, with noise that hides every person's stays in view.

    No frame, crop, track or pose is written: numbers with intervals, a plot and a statement.
    """
    from dpose.measure.config import CountConfig

    if protect != "person":
        raise DposeError(
            "protect-unknown", f"no preset is called {protect[:40]!r}", "--protect", "say person"
        )
    about = about_of(settings)
    config = CountConfig.of(**settings)
    if explain:
        _explain(config, day or "day")
        return
    if not sources or out is None:
        missing = "--out" if sources else "sources"
        raise DposeError(
            "command-incomplete", "name what to count, and a folder", missing, "or say --explain"
        )
    from rich.progress import Progress

    from dpose.measure.counter import count_footage
    from dpose.measure.sources import open_footage
    from dpose.runs.predict import bundled_predictor

    console = plain_console()
    if out.exists():
        raise DposeError(
            "output-exists", "already exists", str(out), "choose another --out, or remove it first"
        )
    footage = open_footage(sources, start)
    predictor = bundled_predictor(flip_test=False)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("counting", total=float(sum(one.end - one.begin for one in footage)))
        statement = count_footage(
            footage,
            config,
            out,
            predictor.finder,
            day=day or "day",
            again=again,
            about=about,
            progress=lambda done: bar.update(task, completed=float(done)),
        )
    console.print(statement.words().printed(), highlight=False)
    console.print(f"Written: {out}", soft_wrap=True)


def _explain(config: CountConfig, day: str) -> None:
    from dpose.measure.explain import explained
    from dpose.measure.plan import whole_day

    console = plain_console()
    for line in explained(whole_day(config, day)):
        console.print(line, highlight=False, soft_wrap=True)


def _day(given: str | None) -> str:
    """The day that is counted, a date of a live source."""
    try:
        return date.today().isoformat() if given is None else date.fromisoformat(given).isoformat()
    except ValueError as error:
        raise DposeError("day-malformed", f"{given!r} is no day", "--day", "say 2026-11-27") from error
