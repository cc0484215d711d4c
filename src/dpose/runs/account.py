"""The account of private data, as a terminal shows it: what has read them, what it took, and what is left."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dpose.account import EVALUATION, PIXEL, State, Where, times_set_back
from dpose.account.store import VARIABLE, opened
from dpose.errors import DposeError
from dpose.privacy.marks import Marks
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.rounding import as_given, upper
from dpose.runs.budget import budget_lines, identity_of_data
from dpose.runs.spending import (
    PLANNED,
    Answer,
    ChargeLine,
    DataSpending,
    dataset_of,
    datasets,
    lines_of,
    picture_of,
)

CHOSEN = "For runs and releases chosen after seeing earlier ones"
"""What holds for those is told beside every figure for a plan fixed beforehand."""


def account_of(
    data: str | None,
    delta: float | None,
    console: Console,
    asked: Sequence[Neighbours] = (),
    limit: int | None = None,
    where: Where = None,
) -> RenderableType:
    """What was taken from `data`, or from all data that the account knows of.

    Args:
        data: NAME[:ROOT][:SPLIT]; None for everything.
        delta: At which epsilon is told; the largest of the runs' own by default.
        console: Where progress goes.
        asked: For which neighbours; empty for what the runs and releases are about.
        limit: Only so many units of `data`, chosen by name.
        where: The account.

    Raises:
        DposeError: the data or the account cannot be read.
    """
    check_there(where)
    if data is None:
        with console.status("reading the account"), _as_written(where):
            found = datasets(delta, asked, where)
        if not found:
            return Text(f"Nothing has been charged to this account yet: {opened(where).name}")
        return Group(*(_shown(one, where) for one in found))
    marks = identity_of_data(data, console, limit).marks
    with console.status("reading the account"), _as_written(where):
        one = dataset_of(data, marks, delta, asked, where)
    if not one.entries and not one.budgets:
        return Text(
            f"{data}: nothing that this account knows of has read any of these {len(marks):,} pictures."
        )
    return _shown(one, where)


@contextlib.contextmanager
def _as_written(where: Where) -> Iterator[None]:
    """What stands in an account's tables, and is no longer what was written, is told as that."""
    try:
        yield
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise opened(where).altered(
            f"its sets of pictures are not as they were written ({error!r:.80})"
        ) from error


def account_of_picture(
    file: Path, delta: float | None, console: Console, asked: Sequence[Neighbours] = (), where: Where = None
) -> RenderableType:
    """Which artefacts read one photo or clip, and one figure for each of the neighbours asked about.

    Args:
        file: It.
        delta: At which epsilon is told; the largest of the artefacts' own by default.
        console: Where progress goes.
        asked: For which neighbours; empty for those of the artefacts, and the whole picture.
        where: The account.

    Raises:
        DposeError: the file or the account cannot be read.
    """
    check_there(where)
    with console.status("reading the file"):
        marks = marks_of_file(file)
    with console.status("reading the account"), _as_written(where):
        one = picture_of(str(file), marks, delta, asked, where)
    if not one.entries:
        lines = [
            f"{file}: nothing that this account knows of has read it ({opened(where).name}).",
            "It was looked for by its bytes and by its decoded pixels: a copy that was resized or compressed again "
            "is another picture.",
            *(line for state in one.budgets for line in budget_lines(state)),
        ]
        return Text("\n".join(lines))
    return _shown(one, where)


def marks_of_file(file: Path) -> Marks:
    """Marks of a photo or clip, as a release makes them: of its bytes and its decoded pixels, and of a clip's frames.

    Raises:
        DposeError: it cannot be read, or is no picture or video.
    """
    from dpose.media.images import IMAGE_SUFFIXES
    from dpose.media.video import VIDEO_SUFFIXES, probe
    from dpose.release.originals import picture_original, video_original

    if file.suffix.lower() in IMAGE_SUFFIXES:
        return picture_original(file)[0].marks
    if file.suffix.lower() in VIDEO_SUFFIXES:
        return video_original(probe(file)).marks
    raise DposeError(
        "file-kind-unknown",
        "is no picture or video that dpose reads",
        str(file),
        f"give one of {', '.join((*IMAGE_SUFFIXES, *VIDEO_SUFFIXES))}",
    )


def check_there(where: Where = None) -> None:
    """Refuse to tell of an account that is named and not there: that nothing is spent would be a wrong answer.

    Raises:
        DposeError: it is a file that does not exist.
    """
    store = opened(where)
    named = where is not None or VARIABLE in os.environ
    if named and store.file is not None and not store.file.exists():
        raise DposeError(
            "account-missing", "there is no account here", store.name, "see that its name is right"
        )


def set_back_line(where: Where = None) -> str:
    """That the account was once set back and taken as it was; "" if it never was.

    Raises:
        DposeError: the account cannot be read.
    """
    times = times_set_back(where)
    how = "once" if times == 1 else f"{times} times"
    return f"The account was set back {how}: more may have been spent than it says." if times else ""


def _shown(one: DataSpending, where: Where) -> RenderableType:
    lines = lines_of(one.entries, where)
    said = [line for answer in one.answers for line in answer_lines(answer)] if one.entries else []
    if one.entries:
        said.append(f"A figure of which nothing else is said is {PLANNED}.")
    if any(line.entry.beyond for line in lines):
        said.append("* protects only what a picture holds beyond its public view and labels.")
    pending = sum(line.count for line in lines if line.entry.state is not State.COMMITTED)
    if any(line.entry.state is State.FAILED for line in lines):
        said.append("What failed counts: nobody knows what it had computed by then.")
    elif pending:
        said.append("What is reserved counts from the moment that it was: it may have been computed.")
    for state in one.budgets:
        said += budget_lines(state)
    said += filter(None, [set_back_line(where)])
    text = Text("\n".join(said) + "\n")
    if not one.entries:
        return Group(Text(f"{one.name}: nothing has been taken yet."), text)
    table = Table(title=one.name, title_justify="left")
    for column in ("when", "what", "neighbours", "epsilon", "delta", "state"):
        table.add_column(column, justify="right" if column in ("epsilon", "delta") else "left", no_wrap=True)
    table.add_column("where", overflow="fold")
    for line in lines:
        table.add_row(*row_of(line), "\n".join(map(_short, line.folders)))
    return Group(table, text)


def row_of(line: ChargeLine) -> tuple[str, ...]:
    """When, what, for which neighbours, epsilon, delta and state of charges told in one line."""
    entry = line.entry
    what = entry.what if line.count == 1 else f"{line.count:,} x {entry.what}"
    epsilon = "no noise" if entry.what == EVALUATION else "unbounded"
    return (
        entry.at[:10],
        what,
        _own_neighbours(line) + (" *" if entry.beyond else ""),
        upper(line.epsilon) if math.isfinite(line.epsilon) else epsilon,
        as_given(entry.delta) if entry.events else "",
        entry.state.value,
    )


def _own_neighbours(line: ChargeLine) -> str:
    entry = line.entry
    if entry.unit != PIXEL:
        return f"{entry.unit}, {entry.relation.value}"
    size = max((event.pixels for event in entry.events), default=0)
    return f"{size:,} pixels" if size else f"whole {entry.within}"


def answer_lines(answer: Answer) -> list[str]:
    """A figure in words; where something has no bound, which, and the sum of the rest."""
    of = answer.asked.describe()
    of, at = f"{of[:1].upper()}{of[1:]}", f"delta {as_given(answer.delta)}"
    lines = []
    if answer.unbounded:
        counted = "; ".join(f"{n} x {why}" for why, n in answer.unbounded.items())
        rest = (
            f" What has a bound, added up: epsilon {upper(answer.together)} at {at}."
            if answer.together
            else ""
        )
        lines.append(f"{of}: no bound ({counted}).{rest}")
    elif answer.together:
        said = f"{of}: epsilon {upper(answer.epsilon)} at {at}"
        if upper(answer.together) != upper(answer.epsilon):
            said += f" of the picture that gave most; {upper(answer.together)} if all had read the same one"
        lines.append(f"{said}.")
    else:
        lines.append(f"{of}: nothing with a bound has read them.")
    if answer.together or answer.unbounded or answer.scores:
        told = f"epsilon {upper(answer.chosen)} at {at}" if math.isfinite(answer.chosen) else "none"
        lines.append(f"{CHOSEN}: {told}.")
    if answer.scores:
        lines.append(f"Besides, {answer.scores} score{'' if answer.scores == 1 else 's'} without noise.")
    return lines


def _short(folder: str) -> str:
    try:
        return str(Path(folder).relative_to(Path.cwd()))
    except ValueError:
        return folder
