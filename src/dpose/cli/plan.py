"""`dpose plan`: what a training's budget means before it is spent; what a release of a corpus would take."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpose.cli.options import TRAIN, Settings, option, plain_console, unset
from dpose.cli.settings import checked
from dpose.errors import DposeError

if TYPE_CHECKING:
    from rich.table import Table

    from dpose.release.capacity import Forecast

PLAN = Settings(
    (("plan.", "dpose.training.plan:TrainingPlan"),),
    {path: names for path, names in TRAIN.named.items() if path.startswith("plan.")},
)


@dataclass(frozen=True)
class CorpusOptions:
    """A corpus, and who would release it."""

    corpus: Annotated[int | None, option("How many pictures or videos: time, memory, disk and cost.", min=1)] = None
    size: Annotated[str | None, option("Of each, WxH in pixels.")] = unset("1920x1080")
    mechanism: Annotated[str | None, option("pixelize, release-video or obfuscate.")] = unset("pixelize")
    frames: Annotated[int | None, option("Of each video.", min=1)] = unset("250")
    workers: Annotated[str | None, option("Comma-separated numbers.")] = unset("1,2,8,64")
    price_hour: Annotated[
        float | None, option("Of one processor for an hour, in your money: adds what it costs.", min=0)
    ] = None
    measured: Annotated[Path | None, option("Figures of your machine, by benchmarks/figures.py.")] = unset(
        "those that come with dpose"
    )
    json: Annotated[bool, option("With --corpus: print JSON.", "--json")] = False


def plan(
    *,
    units: Annotated[int | None, option("Of a training: how many units (pictures) there are.", min=1)] = None,
    expect: Annotated[
        bool, option("Say what to expect of the recipe and of dp-head, from settings alone.", "--expect")
    ] = False,
    settings: Annotated[dict[str, Any], PLAN],
    corpus: CorpusOptions,
) -> None:
    """What noise a budget asks for, what it costs, what is protected and what is not. Reads no data.

    With --corpus: how long a release of so many pictures or videos would take, by engine and number of workers.
    """
    if (units is None) == (corpus.corpus is None):
        raise DposeError("plan-kind-unclear", "plans a training or a release", "--units, --corpus", "give one of them")
    if corpus.corpus is not None:
        if settings or expect:
            raise DposeError(
                "option-of-trainings", "a corpus has no such plan", "--corpus", "leave the options of trainings out"
            )
        _plan_corpus(corpus)
        return
    assert units is not None
    from dpose.runs.explain import explain_plan
    from dpose.training.plan import TrainingPlan

    if corpus != CorpusOptions():
        given = next(each for each in fields(corpus) if getattr(corpus, each.name) != each.default)
        name = f"--{given.name.replace('_', '-')}"
        raise DposeError("option-needs-corpus", "is for --corpus", name, "leave it out, or give --corpus")
    console = plain_console()
    given = settings.get("plan", {})
    if given.get("relation") == "add-or-remove":
        given.setdefault("nominal_units", units)
    chosen = checked(TrainingPlan, given, "plan.")
    with console.status("calibrating"):
        if expect:
            from dpose.runs.expect import expectation

            expected = expectation(chosen, units)
        text = explain_plan(chosen, units)
    console.print(text, highlight=False, soft_wrap=False)
    if expect:
        console.print(f"\n{expected}", highlight=False)


def _plan_corpus(corpus_options: CorpusOptions) -> None:
    from dpose.release.capacity import FRAMES, SHIPPED, Corpus, Figures, beyond, forecast

    assert corpus_options.corpus is not None
    size = re.fullmatch(r"(\d{1,6})[xX](\d{1,6})", corpus_options.size or "1920x1080")
    if size is None or not int(size[1]) * int(size[2]):
        said = f"must be WxH in pixels, not {corpus_options.size!r}"
        raise DposeError("size-malformed", said, "--size", "say --size 1920x1080")
    mechanism = corpus_options.mechanism or "pixelize"
    if corpus_options.frames is not None and mechanism == "pixelize":
        fix = "say --mechanism release-video with it"
        raise DposeError("frames-of-pictures", "pictures have none", "--frames", fix)
    corpus = Corpus(corpus_options.corpus, int(size[1]), int(size[2]), mechanism, corpus_options.frames or FRAMES)
    figures = Figures.read(corpus_options.measured or SHIPPED)
    rows = list(forecast(figures, corpus, _counts(corpus_options.workers or "1,2,8,64"), corpus_options.price_hour))
    far = beyond(figures, corpus)
    if corpus_options.json:
        found = {"corpus": asdict(corpus), "measured": figures.source, "extrapolated": far}
        typer.echo(json.dumps({**found, "forecasts": [row.to_dict() for row in rows]}, indent=1))
        return
    console = plain_console()
    videos = "" if mechanism == "pixelize" else f" of {corpus.frames:,} frames"
    title = f"{corpus.items:,} items{videos}, {corpus.width}x{corpus.height}, {mechanism}"
    console.print(_table(title, rows))
    first = rows[0]
    lines = [
        f"On disk: originals {_bytes(first.read_bytes)}, each read twice; released files "
        f"{_bytes(first.written_bytes)}; account and list {_bytes(first.account_bytes)}.",
        *(["An asterisk: the command itself is the limit; more workers are of no use."] if _any_limit(rows) else []),
        *([far] if far else []),
        f"Measured on {figures.source}.",
        "Each worker has a processor to itself, and disk and network keep up: docs/guide/planning.md.",
    ]
    console.print("\n".join(lines), soft_wrap=True)


def _table(title: str, rows: Sequence[Forecast]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    columns = ("engine", "workers", "time", "items/s", "cpu h", "command", "each worker")
    priced = rows[0].price is not None
    for column in (*columns, *(("price",) if priced else ())):
        table.add_column(column, justify="left" if column == "engine" else "right")
    for row in rows:
        table.add_row(
            row.engine,
            f"{row.workers}{'*' if row.limit == 'command' else ''}",
            _time(row.seconds),
            f"{row.rate:,.3g}",
            _short(row.processor_seconds / 3600, 1),
            _bytes(row.command_bytes),
            _bytes(row.worker_bytes),
            *((_short(row.price, 2),) if row.price is not None else ()),
        )
    return table


def _any_limit(rows: Sequence[Forecast]) -> bool:
    return any(row.limit == "command" for row in rows)


def _counts(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) < 10**6 for part in parts):
        fix = "write numbers with commas between them: 1,2,8,64"
        raise DposeError("workers-malformed", f"cannot be {text!r}", "--workers", fix)
    return tuple(dict.fromkeys(map(int, parts)))


def _time(seconds: float) -> str:
    for name, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{_short(seconds / length, 1)} {name}"
    return f"{seconds:,.0f} s"


def _short(value: float, places: int) -> str:
    return f"{value:,.{places if value < 1000 else 0}f}"


def _bytes(count: float) -> str:
    for name, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if count >= size:
            return f"{count / size:,.3g} {name}"
    return f"{count / 1000:,.3g} kB"
