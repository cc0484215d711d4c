"""Budgets of private data, for whoever sets them: set or lifted by reading the data, and how they stand in words."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from dpose.account import (
    Budget,
    BudgetState,
    Charge,
    Where,
    budget_states,
    lift_budget,
    set_budget,
    what_fits,
)
from dpose.privacy.events import SampledGaussian
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.protected import Identity
from dpose.privacy.ranges import large_delta
from dpose.privacy.rounding import as_given, upper
from dpose.runs.spending import PLANNED
from dpose.units import Unit

EXAMPLE = SampledGaussian(q=1.0, sigma=3.0, steps=1, sensitivity=1.0)
"""What is told to fit where nothing like it was charged before: steps of `EXAMPLE_BATCH` at this noise."""
EXAMPLE_BATCH = 2048


def set_budget_of(
    data: str,
    epsilon: float,
    delta: float,
    console: Console,
    asked: Neighbours | None = None,
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
        asked: What it is for; by default a video where the data are videos, otherwise an image.
        owner: A word that whoever changes or lifts it must give; "" where anybody may.
        limit: Only so many units, chosen by name.
        where: The account.

    Raises:
        DposeError: the data cannot be read, a value is out of range, more is spent already, or an earlier budget is
            another owner's.
    """
    asked = asked or Neighbours(Unit.VIDEO if of_videos(data) else Unit.IMAGE)
    identity = identity_of_data(data, console, limit)
    marks = identity.marks
    made = Budget(epsilon, delta, data, marks, asked, owner)
    set_budget(made, where)
    what = "videos" if of_videos(data) else "pictures"
    lines = [
        f"{data}: nothing may take these {identity.units:,} {what} past epsilon {as_given(epsilon)} at delta "
        f"{as_given(delta)} for {asked.describe()}, all runs and releases together; what has no bound for that "
        "is refused: runs without noise or for a weaker unit, feature privacy, scores without noise."
    ]
    if owner:
        lines.append(
            "Only whoever gives its owner's name again may change or lift it with dpose. A name is no "
            "authentication: who may write to the account's database, and knows its key, can write anything."
        )
    lines += filter(None, [large_delta(delta, identity.units)])
    (state,) = budget_states(marks, where, exactly=True)
    lines += budget_lines(state, () if state.charges else (_example(asked, identity),))[1:]
    return "\n".join(lines)


def lift_budget_of(
    data: str, console: Console, *, owner: str = "", limit: int | None = None, where: Where = None
) -> str:
    """Lift the budget of `data`; what was done, in words.

    Raises:
        DposeError: the data cannot be read, or the budget is another owner's.
    """
    lifted = lift_budget(identity_of_data(data, console, limit).marks, where, owner)
    return f"{data}: " + ("the budget is lifted" if lifted else "there was no budget")


def budget_lines(state: BudgetState, like: tuple[Charge, ...] = ()) -> list[str]:
    """How a budget stands: what is spent and left, a warning from 50 per cent on, and what would still fit.

    Where something has no bound, that and no number.

    Args:
        state: It.
        like: What may be asked to fit; what was charged by default.
    """
    limit = state.budget
    of = f"epsilon {as_given(limit.epsilon)} at delta {as_given(limit.delta)}"
    said = f"Budget of {limit.data}: {of} for {limit.neighbours.describe()}; "
    if state.unbounded:
        counted = "; ".join(f"{n} x {why}" for why, n in state.unbounded.items())
        return [
            f"{said}what is spent has no bound: {counted}.",
            "Nothing more is let in until it is lifted.",
        ]
    said += f"{upper(state.epsilon)} is spent by the count of its filter, {upper(state.fixed)} {PLANNED}"
    if state.closed:
        return [f"{said}, by one charge that it was just large enough for: nothing more is let in."]
    lines = [f"{said} ({upper(state.used, places=0, times=100)} % of what it lets in is used)."]
    if state.level:
        lines.append(
            "WARNING: all of it is used; what comes next is refused."
            if state.level >= 100
            else f"WARNING: more than {state.level} % of it is used."
        )
    if fits := what_fits(state, like or state.charges):
        lines.append(f"What would fit, {fits}.")
    return lines


def _example(asked: Neighbours, identity: Identity) -> Charge:
    """A charge that was never made, for what would fit."""
    event = replace(EXAMPLE, q=min(1.0, EXAMPLE_BATCH / max(1, identity.units)))
    return Charge(
        id="",
        what="training",
        data="",
        folder="",
        at="",
        unit="image" if not asked.of_units else asked.unit,
        relation=asked.relation,
        delta=0.0,
        events=(event,),
        beyond=False,
        marks=identity.marks,
        units=identity.units,
    )


def identity_of_data(data: str, console: Console, limit: int | None = None) -> Identity:
    """Which pictures or videos `data` are, as a training run would read them (rendered ones: of preset `nano`).

    Args:
        data: NAME[:ROOT][:SPLIT].
        console: Where progress goes.
        limit: Only so many units, chosen by name.

    Raises:
        DposeError: they cannot be read.
    """
    # here and not above: models bring torch, which whoever lists the account should not have to load
    from dpose.action.data import VideoUnits, open_videos
    from dpose.action.model import ActionConfig
    from dpose.pose.data import open_data
    from dpose.pose.model import PoseConfig
    from dpose.privacy.protected import protect

    if of_videos(data):
        videos = open_videos(data, purpose="train", limit=limit)
        return protect(
            VideoUnits(videos, ActionConfig(videos.actions or ("",), "nano")), console=console
        ).identity
    size = PoseConfig(preset="nano").input_size
    units = open_data(data, purpose="train", input_size=size, limit=limit)
    return protect(units, console=console).identity


def of_videos(data: str) -> bool:
    """Whether `data` names videos."""
    from dpose.action.data.spec import SOURCES

    return data.partition(":")[0].partition(",")[0] in SOURCES
