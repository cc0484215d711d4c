"""What a count guarantees, in the form of a statement, which `dpose verify` makes again from what it records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from dpose.errors import DposeError
from dpose.measure.config import CountConfig
from dpose.measure.plan import CountPlan, Schedule, bind_count
from dpose.privacy.intervals import CONFIDENCE, half_width, mean_error
from dpose.privacy.ranges import exact_text, upper
from dpose.privacy.statement import Kind, PrivacyStatement

PUBLIC = (
    "frame times, frame sizes and the number of sources",
    "the schedule of windows and chunks, the rate of frames, the ranges of all numbers, areas and lines",
    "declared names of live sources, and where their transport had gaps",
)
CONDITIONS = (
    "what a person changes in a frame is seen in the frames of that person's own stays alone",
    "no two recordings that are counted together show the same moment before one camera",
    "schedule, stays and ranges were declared before the footage was seen",
)
LABELLED = (
    "labels name everybody who is to be hidden wherever that person is seen or changes a frame",
    "labels are not hidden: whether somebody is named at more than {} chunks may show in which chunks are counted",
)
"""Conditions where subjects are known."""
OUTSIDE = (
    "exposure and focus that follow a person, a camera that moves, recording that motion triggers",
    "frames that a decoder makes of frames of other chunks, furniture that stays moved",
    "how busy the machine is, and how long a count takes",
    "recordings that are made of a live source, and its other names: the account knows neither",
)
MODEL = (
    "intervals are of the noise alone: what the model misses or invents is not in them, and what it finds of whom "
    "differs between people and places"
)


def count_statement(plan: CountPlan, *, seeded: bool = False) -> PrivacyStatement:
    """The statement of all windows and queries of a day together.

    Args:
        plan: The plan.
        seeded: Whether the noise came from a seed.
    """
    config, schedule = plan.config, plan.schedule
    labelled = [line.format(config.subject_chunks) for line in LABELLED if config.subject_chunks]
    return PrivacyStatement(
        Kind.SEEDED if seeded else Kind.PRIVATE,
        config.neighbours.unit,
        config.neighbours,
        config.epsilon,
        config.delta,
        plan.accountant,
        public=PUBLIC,
        conditional_on=(*CONDITIONS, *labelled),
        events=plan.events,
        caveats=(*longer_stays(plan), MODEL),
        release={
            "count": config.to_dict(),
            "schedule": schedule.to_dict(),
            "chunks touched": plan.touched,
            "chunks": plan.chunks,
        },
        side_channels=OUTSIDE,
    )


def longer_stays(plan: CountPlan) -> tuple[str, str, str]:
    """What somebody costs who is seen longer, all day, or on several days."""
    config = plan.config
    whom, seen = "", 2 * config.visible
    if config.subject_chunks:
        whom, seen = "whom no label names, by ", config.visible
    days = ", ".join(f"{n}: {upper(plan.cost_at(plan.touched, n))}" for n in (7, 30))
    return (
        f"{whom}{config.times} stays of {exact_text(seen)} seconds each: epsilon "
        f"{upper(plan.cost_at(plan.touched_by(config.times, seen)))}; in view all day, as a patient in bed: epsilon "
        f"{upper(plan.cost_at(plan.chunks))}",
        f"seen on so many days that are counted alike, epsilon of all together: {days}",
        "people who are seen together are hidden one by one: what is true of a group shows",
    )


def recorded_count(statement: PrivacyStatement, where: str) -> CountPlan:
    """The plan of a statement, from its record alone.

    Raises:
        DposeError: it records none.
    """
    record = statement.release
    if set(record) != {"count", "schedule", "chunks touched", "chunks"}:
        raise DposeError("statement-not-of-count", "its statement is of no count", where)
    config = CountConfig.read(record["count"], "release.count")
    return bind_count(config, Schedule.read(record["schedule"], "release.schedule"))


def check_recorded_count(statement: PrivacyStatement, where: str) -> CountPlan:
    """Refuse a statement that is not the one that follows from its record.

    Returns:
        The plan.

    Raises:
        DposeError: something differs; names it.
    """
    plan = recorded_count(statement, where)
    wanted = count_statement(plan, seeded=statement.kind is Kind.SEEDED)
    kept = ("software", "deployment", "odometer", "seal", "signature")
    wanted = replace(wanted, **{name: getattr(statement, name) for name in kept})
    found, needed = statement.to_dict(), wanted.to_dict()
    # the maker may warn of more
    found["caveats"] = [line for line in found["caveats"] if line in needed["caveats"]]
    for name in sorted({*found, *needed}):
        if found.get(name) != needed.get(name):
            raise DposeError(
                "record-value-differs",
                f"its {name} does not follow from what it records",
                where,
                "do not rely on it",
            )
    return plan


def expected_errors(plan: CountPlan) -> Sequence[tuple[str, float, float, str]]:
    """The mean error and the half width of the interval that noise gives each number of a window, with its unit."""
    found = []
    for name, mechanism in plan.mechanisms.items():
        divisor = plan.divisor(mechanism.query, plan.windows.start)
        size = Fraction(half_width(mechanism.event, 1 - CONFIDENCE)) / divisor
        found.append((name, mean_error(mechanism.event) / float(divisor), float(size), mechanism.query.unit))
    return found
