"""What data have given, drawn: a page of the account, for its owner.

Nothing of it stands in a run's folder, which leaves the house: which other runs have read some of the same pictures
follows from the pictures themselves, without noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from dpose.account import EVALUATION, BudgetState, Charge, Where, unbounded
from dpose.account.words import (
    PLANNED,
    DataSpending,
    answer_lines,
    answered,
    budget_lines,
    check_there,
    dataset_of,
    datasets,
    lines_of,
    picture_of,
    row_of,
    set_back_line,
)
from dpose.errors import DposeError
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.ranges import as_given, lower, upper
from dpose.report.charts import Spending, spending_over_time
from dpose.report.document import Report
from dpose.report.inline import Code
from dpose.report.results import Block, Bullets, Figure, Group, Numbers, Section, Table

POINTS = 24
"""The most points of a chart: each is a composition of all that came before it."""
HEAD = ("When", "What", "Neighbours", "Epsilon", "Delta", "State", "Results")
PARALLEL = (
    "A figure is of the picture that has given most: what shares no picture composes in parallel, because which "
    "pictures a run or a release read was settled by lists, and not by what is on them."
)
FILTER = (
    f"Figures that are {PLANNED} do not hold where runs were chosen after seeing results. A budget is kept by a "
    "filter, whose count is larger and holds for those, too."
)


def write_account_page(
    path: Path,
    data: str | None,
    picture: Path | None,
    delta: float | None,
    console: Console,
    requested: Sequence[Neighbours] = (),
    limit: int | None = None,
    where: Where = None,
) -> Path:
    """Write a page of what each dataset has given, over time and by artefact, with what is left.

    Args:
        path: The page.
        data: Of these data alone: NAME[:ROOT][:SPLIT].
        picture: Of this photo or clip alone.
        delta: The delta of the epsilons shown; None for the charges' own.
        console: Where progress goes.
        requested: For which neighbours; empty for what the charges are about.
        limit: Only so many units of `data`.
        where: The account.

    Returns:
        The page.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise DposeError("page-suffix-missing", "is no name of a page", str(path), "name it .html")
    from dpose.runs.account import identity_of_data, marks_of_file

    check_there(where)
    if picture is not None:
        found: tuple[DataSpending, ...] = (picture_of(picture.name, marks_of_file(picture), delta, requested, where),)
    elif data is not None:
        found = (dataset_of(data, identity_of_data(data, console, limit).marks, delta, requested, where),)
    else:
        found = datasets(delta, requested, where)
    report = account_report(found, where)
    (written,) = report.write(path.parent, page=path.name, text="")
    return written


def account_report(found: Sequence[DataSpending], where: Where = None) -> Report:
    """A page of datasets and what they have given."""
    sections = tuple(
        Section(f"data-{number}", one.name, dataset_blocks(one, where)) for number, one in enumerate(found)
    )
    artefacts = sum(len(one.entries) for one in found)
    return Report(
        "What private data have given",
        kind="dpose account",
        source="the account of private data",
        summary="Everything that read the same pictures adds up, no matter who ran it and what was published.",
        facts={"Datasets": f"{len(found):,}", "Runs, releases and scores": f"{artefacts:,}"},
        notes=(PARALLEL, FILTER, *filter(None, [set_back_line(where)]))
        if found
        else ("Nothing has been charged to this account yet.",),
        sections=sections,
    )


def dataset_blocks(one: DataSpending, where: Where = None) -> tuple[Block, ...]:
    """What one dataset has given: what is left of budgets, the figures, the chart, the artefacts.

    Args:
        one: It.
        where: The account.
    """
    left = [block for state in one.budgets for block in _left(state)]
    said = [line for answer in one.answers for line in answer_lines(answer)] if one.entries else []
    if not one.entries:
        return (*left, "Nothing has been taken yet.")
    chart = _chart(one, where)
    rows = tuple((*row_of(line), Code(", ".join(filter(None, line.folders)))) for line in lines_of(one.entries, where))
    artefacts = Table("By artefact, the oldest first", HEAD, rows, "numbers tight wrapped")
    words = Group(tuple(said), title="In all")
    beside = (Group((chart, words), "beside"),) if chart else (words,)
    return (*left, *beside, artefacts)


def _left(state: BudgetState) -> tuple[Block, ...]:
    limit = state.budget
    first, *rest = budget_lines(state)
    numbers = [("budget", as_given(limit.epsilon))]
    if not state.unbounded:
        left = 0.0 if state.closed else max(0.0, limit.epsilon - state.epsilon)
        numbers += [("spent", upper(state.epsilon)), ("left", lower(left))]
    style = "panel none" if state.unbounded or state.level >= 80 else "panel private"
    return (Group((Numbers(tuple(numbers), f"for {limit.neighbours.describe()}"), first, Bullets(rest)), style),)


def _chart(one: DataSpending, where: Where) -> Figure | None:
    """Epsilon after each artefact, for the first neighbours for which something has a bound."""
    requested = [state.budget.neighbours for state in one.budgets] + [answer.requested for answer in one.answers]
    of = {answer.requested: answer for answer in one.answers}
    chosen = next((a for a in requested if a in of and of[a].together), None)
    if chosen is None:
        return None
    delta = of[chosen].delta
    step = math.ceil(len(one.entries) / POINTS)
    rows: list[Spending] = []
    first, end = one.entries[0].at, one.entries[-1].at
    # a time as exact as tells the ends apart
    shown = slice(11, 19) if first[:13] == end[:13] else slice(11, 16) if first[:10] == end[:10] else slice(10)
    for count in [*range(step, len(one.entries), step), len(one.entries)]:
        last = one.entries[count - 1]
        bounded = [e for e in one.entries[:count] if _has_bound(e, chosen)]
        adds = any(_has_bound(e, chosen) for e in one.entries[max(0, count - step) : count])
        value = answered(bounded, [chosen], delta, where=where)[0].epsilon if adds else None
        rows.append(Spending(last.at[shown], last.what, value))
    limit = next((s.budget.epsilon for s in one.budgets if s.budget.neighbours == chosen), None)
    words = (
        f"What has been spent in all, after each artefact, for {chosen.describe()}: epsilon at delta "
        f"{as_given(delta)} of the picture that gave most, {PLANNED}. A cross has no bound."
    )
    if shown.start:
        words += f" Times are of {first[:10]}, UTC."
    if step > 1:
        words += f" Every {step:,} of them are one point."
    return Figure("", words, spending_over_time(rows, words, limit=limit))


def _has_bound(entry: Charge, requested: Neighbours) -> bool:
    return entry.what != EVALUATION and not unbounded(entry, requested.unit)
