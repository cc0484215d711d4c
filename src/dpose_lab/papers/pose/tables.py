"""Grids as tables: in the papers' layout with the paper's number, ours and the difference; and what each cell cost."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from dpose.privacy.ranges import as_given, upper
from dpose.report.results import Table
from dpose_lab.papers.experiment import Outcome
from dpose_lab.papers.pose.benchmarks import STRATEGIES, Design, references_of
from dpose_lab.papers.pose.printed import Line, Printed
from dpose_lab.papers.pose.settings import CEILING
from dpose_lab.papers.pose.training_cell import OWN_SETTINGS, RECOMMENDED, START, Training
from dpose_lab.papers.pose.variants import VARIANTS

PCKH_COLUMNS = ("Head", "Shoulder", "Elbow", "Wrist", "Hip", "Knee", "Ankle", "Mean", "Mean@0.1")
AP_COLUMNS = ("AP", "AP50", "AP75", "AP(M)", "AP(L)", "AR", "AR50", "AR75", "AR(M)", "AR(L)")
SHARP, VIEWS, UPRIGHT = "columns", "view_columns", "upright"
"""Kinds of a cell's scores: on sharp pictures, on public views, on upright people."""
NAMES = {"non-private": "non-private", "public-only": "public-only", START: "the starting model, as it is"}


@dataclass(frozen=True)
class Ours:
    """Outcomes of one setting, one per repetition.

    Attributes:
        outcomes: Outcomes, at least one.
    """

    outcomes: tuple[Outcome, ...]

    @property
    def status(self) -> str:
        """Status "done" if a repetition is done, otherwise the status of the first."""
        return "done" if any(o.status == "done" for o in self.outcomes) else self.outcomes[0].status

    def numbers(self, column: str, scores: str = SHARP, metric: str = "") -> list[float]:
        """Numbers of a column, one for every repetition that has one.

        Args:
            column: Column, such as "Mean".
            scores: `SHARP`, `VIEWS` or `UPRIGHT`.
            metric: Metric of the cells to use; "" for any.
        """
        done = [o.values for o in self.outcomes if o.status == "done"]
        numbers = [values.get(scores, {}).get(column) for values in done if metric in ("", values.get("metric"))]
        return [float(value) for value in numbers if value is not None]


def by_setting(outcomes: Iterable[Outcome]) -> dict[Training, Ours]:
    """Group outcomes by the setting that they repeat."""
    groups: dict[Training, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(Training.of(outcome.cell.settings).setting, []).append(outcome)
    return {training: Ours(tuple(several)) for training, several in groups.items()}


@dataclass(frozen=True)
class Span:
    """Distance from the start to the ceiling, in points.

    Attributes:
        start: Score of the model that all start from.
        ceiling: Score of non-private training at its own settings.
    """

    start: float
    ceiling: float

    @classmethod
    def of(cls, ours: Mapping[Training, Ours], scores: str = SHARP) -> Span | None:
        """Make the range from means over joints; None if one was not run, or the ceiling is not higher."""
        ends = [
            result.numbers("Mean", scores) or result.numbers("AP", scores)
            for end in (Training(START, START), Training(CEILING, OWN_SETTINGS))
            for result in [ours.get(end, Ours(()))]
        ]
        if not all(ends):
            return None
        start, ceiling = map(statistics.mean, ends)
        return cls(start, ceiling) if ceiling > start else None

    def share(self, score: float) -> float:
        """Share of the distance that is recovered, in percent; below 0 for scores worse than the start."""
        return 100 * (score - self.start) / (self.ceiling - self.start)

    def score(self, share: float) -> float:
        """Score at a share in percent."""
        return self.start + share / 100 * (self.ceiling - self.start)


def grid_tables(design: Design, outcomes: Sequence[Outcome]) -> tuple[Table, ...]:
    """Tables of a grid: the papers' or the benchmark's own, of upright people if tested, and of costs."""
    ours = by_setting(outcomes)
    if not design.tables:
        ours = _of_interest(ours)
    tables = [_as_printed(table, ours, several=len(design.tables) > 1) for table in design.tables]
    metrics = {o.values["metric"] for o in outcomes if o.status == "done"}
    printed = {table.scored_by for table in design.tables}
    if not design.tables:
        tables.append(_plain(f"{design.name}: PCKh@0.5, percent", ours, SHARP))
    elif metrics - printed:
        tables.append(_plain(f"{design.name}: in the metric of these data, percent", ours, SHARP, done=True))
    if any(o.numbers("Mean", UPRIGHT) for o in ours.values()):
        tables.append(_plain(f"{design.name}: upright people alone, PCKh@0.5, percent", ours, UPRIGHT, done=True))
    return (*tables, _costs(outcomes))


def _of_interest(ours: Mapping[Training, Ours]) -> dict[Training, Ours]:
    """Drop strategies of which nothing was run and nothing is wanted."""
    met = {
        training.strategy
        for training, result in ours.items()
        # the recipe stands under a strategy that is not its own
        if training.method != RECOMMENDED and any(o.cell.wanted or o.status != "not run" for o in result.outcomes)
    }
    return {t: o for t, o in ours.items() if t.strategy in met or t.method == RECOMMENDED}


def _as_printed(table: Printed, ours: Mapping[Training, Ours], several: bool) -> Table:
    """Table of the paper's rows; further settings of ours follow those of the same C."""
    lines = {(_setting(line)): line for line in table.lines}
    methods = {line.method for line in table.lines}
    rows: list[tuple[str, ...]] = []
    width = len(table.columns)

    def section(title: str) -> None:
        rows.append((title, *("" for _ in range(width))))

    def add(title: str, training: Training, scores: str = SHARP) -> None:
        result = ours.get(training, Ours((_absent(training),)))
        rows.append((title, *(_compared(table, lines.get(training), result, c, scores) for c in table.columns)))

    if Training(START, START) in ours:
        add(NAMES[START], Training(START, START))
    for strategy in dict.fromkeys(line.strategy for line in table.lines):
        section(STRATEGIES[strategy])
        for method in references_of(methods):
            training = Training(method, strategy)
            if training.on_views:
                add(f"{method}, tested on sharp pictures", training)
                add(f"{method}, tested on public views", training, VIEWS)
            else:
                add(NAMES[method], training)
        mine = [t for t in (*lines, *ours) if t.strategy == strategy and t.method in methods and t.private]
        for clip_norm in dict.fromkeys(t.clip_norm for t in mine):
            section(f"C = {clip_norm:g}")
            same = sorted({t for t in mine if t.clip_norm == clip_norm})
            for training in same:
                add(f"epsilon = {as_given(training.epsilon or 0)}", training)
    name = f"seed {table.name[:3]}, {table.where}: {table.title}"
    what = "OKS AP" if table.scored_by == "OKS AP" else "PCKh@0.5"
    head = ("paper / ours / ours minus paper", *table.columns)
    return Table(f"{name} ({what}, percent; {next(iter(methods)) if several else table.name})", head, tuple(rows))


def _setting(line: Line) -> Training:
    return Training(line.method, line.strategy, line.clip_norm, line.epsilon)


def _absent(training: Training) -> Outcome:
    from dpose_lab.papers.experiment import Cell

    return Outcome(Cell(training.key, training.values))


def _compared(table: Printed, line: Line | None, ours: Ours, column: str, scores: str) -> str:
    """Format one cell: the paper's number, ours, and ours minus the paper's."""
    paper = line.values[column] if line else None
    digits = 1 if table.scored_by == "OKS AP" else 2
    first = "-" if paper is None else f"{paper:.{digits}f}"
    numbers = ours.numbers(column, scores, table.scored_by)
    if not numbers:
        status = "not run" if ours.status == "not run" else ours.status if ours.status == "failed" else "-"
        return f"{first} / {status}"
    mean = statistics.mean(numbers)
    text = f"{first} / {_spread(numbers)}"
    if paper is not None and line is not None and line.sure:
        text += f" / {mean - paper:+.2f}"
    return text


def _plain(title: str, ours: Mapping[Training, Ours], scores: str, done: bool = False) -> Table:
    """Table with a row per setting of our numbers; budgets at which a setting was not run share a row."""
    columns = _columns(ours.values(), scores)
    span = Span.of(ours, scores)
    rows = []
    for training, budgets, result in _gathered(ours):
        if done and result.status != "done":
            continue
        for kind, suffix in _kinds(training, scores):
            numbers = [result.numbers(column, kind) for column in columns]
            missing = "-" if result.status == "done" else result.status
            mean = result.numbers("Mean", kind) or result.numbers("AP", kind)
            share = (f"{span.share(statistics.mean(mean)):.0f} %" if mean else missing,) if span else ()
            name = f"{named(training)}{budgets}{suffix}"
            rows.append((name, *(_spread(n) if n else missing for n in numbers), *share))
    return Table(title, ("training", *columns, *(["recovered share"] if span else [])), tuple(rows))


def _gathered(ours: Mapping[Training, Ours]) -> Iterator[tuple[Training, str, Ours]]:
    """Yield settings in order; budgets at which one was not run are joined and follow those at which it was."""
    for alike, group in groupby(ours.items(), key=lambda item: replace(item[0], epsilon=None)):
        idle = []
        for training, result in group:
            if training.epsilon is not None and result.status == "not run":
                idle.append((training, result))
            else:
                yield training, "", result
        if len(idle) > 1:
            budgets = ", ".join(as_given(training.epsilon or 0) for training, _ in idle)
            yield alike, f", epsilon = {budgets}", idle[0][1]
        else:
            yield from ((training, "", result) for training, result in idle)


def _kinds(training: Training, scores: str) -> tuple[tuple[str, str], ...]:
    if training.on_views and scores == SHARP:
        return (SHARP, ", tested on sharp pictures"), (VIEWS, ", tested on public views")
    return ((scores, ""),)


def _columns(several: Iterable[Ours], scores: str) -> tuple[str, ...]:
    """Columns of the cells in the papers' order; a cell's file has them in alphabetical order."""
    done = [o.values.get(scores, {}) for ours in several for o in ours.outcomes if o.status == "done"]
    held = next((set(columns) for columns in done if columns), set(PCKH_COLUMNS))
    return tuple(name for name in (*PCKH_COLUMNS, *AP_COLUMNS) if name in held)


def _spread(numbers: Sequence[float]) -> str:
    mean = f"{statistics.mean(numbers):.2f}"
    return f"{mean} ± {statistics.stdev(numbers):.2f}" if len(numbers) > 1 else mean


def named(training: Training) -> str:
    """Describe a training in words."""
    if training.method == START:
        return NAMES[START]
    if (training.method, training.strategy) == (CEILING, OWN_SETTINGS):
        return "the ceiling: non-private, own settings"
    # a recipe has a strategy of its own
    parts = ["the recipe"] if training.method == RECOMMENDED else [training.method, training.strategy]
    if training.variant:
        parts = [VARIANTS[training.variant].title]
    if training.clip_norm is not None:
        parts.append(f"C = {training.clip_norm:g}")
    if training.epsilon is not None:
        parts.append(f"epsilon = {as_given(training.epsilon)}")
    return ", ".join(parts)


def _costs(outcomes: Sequence[Outcome]) -> Table:
    """Table of the epsilon and the time of each cell that was run."""
    rows = []
    for outcome in outcomes:
        if outcome.status == "failed":
            rows.append((outcome.cell.key, f"failed: {outcome.error}", "", "", "", ""))
        elif outcome.status == "done":
            values = outcome.values
            spent = values["epsilon"]
            rows.append(
                (
                    outcome.cell.key,
                    str(values["kind"]),
                    "-" if spent is None else upper(spent),
                    f"{values['steps']:,}",
                    f"{values['seconds']:.0f}",
                    f"{values['people']:,}" if "people" in values else "-",
                )
            )
    head = ("cell", "guarantee", "epsilon spent", "steps", "seconds", "people tested")
    return Table("the cells, and what each spent", head, tuple(rows))
