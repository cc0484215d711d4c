"""The account of private data, for people: what has read data that they name, what it took, what is left; budgets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from dpose.account import Budget, Charge, State, Where, budget_states, check_account, lift_budget, set_budget
from dpose.account.store import opened
from dpose.account.words import (
    PLANNED,
    DataSpending,
    answer_lines,
    budget_lines,
    check_there,
    dataset_of,
    datasets,
    lines_of,
    notes_of,
    picture_of,
    row_of,
    set_back_line,
)
from dpose.errors import DposeError, printable
from dpose.privacy.events import SampledGaussian
from dpose.privacy.marks import Marks
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.protected import Identity
from dpose.privacy.ranges import as_given, large_delta
from dpose.units import Unit

EXAMPLE = SampledGaussian(q=1.0, sigma=3.0, steps=1, sensitivity=1.0)
"""The run that illustrates a budget before anything was charged: steps of `EXAMPLE_BATCH` at this noise."""
EXAMPLE_BATCH = 2048


def account_of(
    data: str | None,
    delta: float | None,
    console: Console,
    requested: Sequence[Neighbours] = (),
    limit: int | None = None,
    where: Where = None,
) -> RenderableType:
    """What was taken from `data`, or from all data that the account knows of.

    Args:
        data: NAME[:ROOT][:SPLIT]; None for everything.
        delta: The delta of the epsilons shown; the largest of the runs' own by default.
        console: Where progress goes.
        requested: For which neighbours; empty for what the runs and releases are about.
        limit: Only so many units of `data`, chosen by name.
        where: The account.
    """
    check_there(where)
    if data is None:
        with console.status("reading the account"), _as_written(where):
            found = datasets(delta, requested, where)
            _refuse_altered(where)
        if not found:
            return Text(f"Nothing has been charged to this account yet: {opened(where).name}")
        return Group(*(_shown(one, where) for one in found))
    marks = identity_of_data(data, console, limit).marks
    with console.status("reading the account"), _as_written(where):
        one = dataset_of(data, marks, delta, requested, where)
        _refuse_altered(where)
    if not one.entries and not one.budgets:
        return Text(
            f"{printable(data)}: nothing that this account knows of has read any of these {len(marks):,} pictures."
        )
    return _shown(one, where)


def _refuse_altered(where: Where) -> None:
    """Refuse an account whose tables of pictures are not what was written, which a charge looks at in part alone."""
    if wrong := check_account(where):
        raise opened(where).altered(wrong)


@contextlib.contextmanager
def _as_written(where: Where) -> Iterator[None]:
    """Report an account whose tables do not hold what was written."""
    try:
        yield
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise opened(where).altered(f"its sets of pictures are not as they were written ({error!r:.80})") from error


def account_of_picture(
    file: Path, delta: float | None, console: Console, requested: Sequence[Neighbours] = (), where: Where = None
) -> RenderableType:
    """Which artefacts read one photo or clip, and one figure for each of the chosen neighbours."""
    check_there(where)
    with console.status("reading the file"):
        marks = marks_of_file(file)
    with console.status("reading the account"), _as_written(where):
        one = picture_of(str(file), marks, delta, requested, where)
    if not one.entries:
        lines = [
            f"{printable(str(file))}: nothing that this account knows of has read it ({opened(where).name}).",
            "It was looked for by its bytes and by its decoded pixels: a copy that was resized or compressed again "
            "is another picture.",
            *(line for state in one.budgets for line in budget_lines(state)),
        ]
        return Text("\n".join(lines))
    return _shown(one, where)


def marks_of_file(file: Path) -> Marks:
    """Marks of a photo or clip, as a release makes them: of its bytes, its decoded pixels, a clip's frames."""
    from dpose.media.kinds import kind_of, unknown_kind
    from dpose.media.video import probe
    from dpose.release.originals import picture_original, video_original

    kind = kind_of(file)
    if not kind:
        raise unknown_kind(file) if file.exists() else DposeError("file-missing", "there is no such file", str(file))
    return picture_original(file)[0].marks if kind == "picture" else video_original(probe(file)).marks


def _shown(one: DataSpending, where: Where) -> RenderableType:
    lines = lines_of(one.entries, where)
    said = [line for answer in one.answers for line in answer_lines(answer)] if one.entries else []
    if one.entries:
        said.append(f"A figure of which nothing else is said is {PLANNED}.")
    said += notes_of(lines)
    for state in one.budgets:
        said += budget_lines(state)
    said += filter(None, [set_back_line(where)])
    text = Text("\n".join(said) + "\n")
    if not one.entries:
        return Group(Text(f"{printable(one.name)}: nothing has been taken yet."), text)
    rows = [("when", "what", "neighbours", "epsilon", "delta", "state"), *map(row_of, lines)]
    if all(line.entry.state is State.COMMITTED for line in lines):
        rows = [row[:-1] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [[f"{cell:{side}{w}}" for cell, side, w in zip(row, "<<<>><", widths, strict=False)] for row in rows]
    head, *below = (Text("  ".join(row).rstrip()) for row in aligned)
    head.stylize("bold")
    parts: list[RenderableType] = [Text(printable(one.name), "italic"), head]
    for row, line in zip(below, lines, strict=True):  # folders are too long for a column of 80
        folders = [Text(_short(folder), overflow="fold") for folder in line.folders if folder]
        parts += [row, *(Padding(folder, (0, 0, 0, widths[0] + 2), expand=False) for folder in folders)]
    return Group(*parts, Text(), text)


def _short(folder: str) -> str:
    try:
        return str(Path(folder).relative_to(Path.cwd()))
    except ValueError:
        return folder


def set_budget_of(
    data: str,
    epsilon: float,
    delta: float,
    console: Console,
    requested: Neighbours | None = None,
    *,
    owner: str = "",
    limit: int | None = None,
    where: Where = None,
) -> str:
    """Set the budget of `data`; what was done, in words.

    Args:
        data: NAME[:ROOT][:SPLIT], of poses or of videos.
        epsilon: Of everything together.
        delta: At which it is counted.
        console: Where progress goes.
        requested: What it is for; by default a video where the data are videos, otherwise an image.
        owner: A word that must be given to change or lift it; "" for none.
        limit: Only so many units, chosen by name.
        where: The account.
    """
    requested = requested or Neighbours(Unit.VIDEO if of_videos(data) else Unit.IMAGE)
    identity = identity_of_data(data, console, limit)
    marks = identity.marks
    made = Budget(epsilon, delta, data, marks, requested, owner)
    set_budget(made, where)
    what = "videos" if of_videos(data) else "pictures"
    lines = [
        f"{data}: nothing may take these {identity.units:,} {what} past epsilon {as_given(epsilon)} at delta "
        f"{as_given(delta)} for {requested.describe()}, all runs and releases together; what has no bound for that "
        "is refused: runs without noise or for a weaker unit, feature privacy, scores without noise."
    ]
    if owner:
        lines.append(
            "It can be changed or lifted with dpose only with its owner's name. A name is no "
            "authentication: who may write to the account's database, and knows its key, can write anything."
        )
    lines += filter(None, [large_delta(delta, identity.units)])
    (state,) = budget_states(marks, where, exactly=True)
    lines += budget_lines(state, () if state.charges else (_example(requested, identity),))[1:]
    return "\n".join(lines)


def lift_budget_of(
    data: str, console: Console, *, owner: str = "", limit: int | None = None, where: Where = None
) -> str:
    """Lift the budget of `data`; what was done, in words."""
    lifted = lift_budget(identity_of_data(data, console, limit).marks, where, owner)
    return f"{data}: " + ("the budget is lifted" if lifted else "there was no budget")


def _example(requested: Neighbours, identity: Identity) -> Charge:
    """A charge that was never made, for what would fit."""
    event = replace(EXAMPLE, q=min(1.0, EXAMPLE_BATCH / max(1, identity.units)))
    return Charge(
        id="",
        what="training",
        data="",
        folder="",
        at="",
        unit="image" if not requested.of_units else requested.unit,
        relation=requested.relation,
        delta=0.0,
        events=(event,),
        beyond=False,
        marks=identity.marks,
        units=identity.units,
    )


def identity_of_data(data: str, console: Console, limit: int | None = None) -> Identity:
    """Which pictures or videos `data` are, as a training run would read them (rendered ones: of preset `nano`)."""
    # here and not above: models bring torch, which listing the account does not need
    from dpose.action.data import VideoUnits, open_videos
    from dpose.action.model import ActionConfig
    from dpose.pose.data import open_data
    from dpose.pose.model import PoseConfig
    from dpose.privacy.protected import protect

    if of_videos(data):
        videos = open_videos(data, purpose="train", limit=limit)
        return protect(VideoUnits(videos, ActionConfig(videos.actions or ("",), "nano")), console=console).identity
    size = PoseConfig(preset="nano").input_size
    units = open_data(data, purpose="train", input_size=size, limit=limit)
    return protect(units, console=console).identity


def of_videos(data: str) -> bool:
    """Whether `data` names videos."""
    from dpose.action.data.spec import SOURCES

    return data.partition(":")[0].partition(",")[0] in SOURCES
