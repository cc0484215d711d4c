"""What a count guarantees and is worth, by arithmetic alone.

The guarantee has the form of a statement, which `dpose verify` makes again from what it records.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

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
OWN = "the finder or posture model that was given keeps nothing of one chunk of footage for another"
"""The condition where either is the caller's own."""
OUTSIDE = (
    "exposure and focus that follow a person, a camera that moves, recording that motion triggers",
    "frames that a decoder makes of frames of other chunks, furniture that stays moved",
    "how busy the machine is, and how long a count takes",
    "recordings that are made of a live source, and its other names: the account knows neither",
    "other counts of the same footage: this is the cost of one alone, and what all of them cost is in their account",
)
MODEL = (
    "intervals are of the noise alone: what the model misses or invents is not in them, and what it finds of whom "
    "differs between people and places"
)
WISH = 2
"""What a number of a window should be right within."""
WINDOWS = (60, 600, 3600, 14_400, 86_400)
CHUNKS = (1, 2, 5, 10, 30, 60, 300)
"""Windows and chunks, in seconds, that are tried for that."""


def count_statement(plan: CountPlan, *, seeded: bool = False, own: bool = False) -> PrivacyStatement:
    """The statement of all windows and queries of a day together; of noise from a seed, that nothing is guaranteed.

    `own` says that finder or posture are the caller's (`dpose.measure.chunks.is_own`).
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
        conditional_on=(*CONDITIONS, *labelled, *([OWN] if own else [])),
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


def check_recorded_count(statement: PrivacyStatement, where: str) -> CountPlan:
    """The plan that a statement records, if the statement is the one that follows from its record.

    Raises:
        DposeError: it records none, or something differs; names it.
    """
    record = statement.release
    if set(record) != {"count", "schedule", "chunks touched", "chunks"}:
        raise DposeError("statement-not-of-count", "its statement is of no count", where)
    config = CountConfig.read(record["count"], "release.count")
    plan = bind_count(config, Schedule.read(record["schedule"], "release.schedule"))
    wanted = count_statement(plan, seeded=statement.kind is Kind.SEEDED, own=OWN in statement.conditional_on)
    kept = ("software", "deployment", "seal", "signature")
    wanted = replace(wanted, **{name: getattr(statement, name) for name in kept})
    found, needed = statement.to_dict(), wanted.to_dict()
    # the maker may warn of more
    found["caveats"] = [line for line in found["caveats"] if line in needed["caveats"]]
    for name in sorted({*found, *needed}):
        if found.get(name) != needed.get(name):
            raise DposeError(
                "record-value-differs", f"its {name} does not follow from what it records", where, "do not rely on it"
            )
    return plan


def expected_errors(plan: CountPlan) -> dict[str, tuple[float, float, str]]:
    """By query, the mean error and the half width of the interval that noise gives a window's number, and its unit."""
    found = {}
    for name, mechanism in plan.mechanisms.items():
        divisor = float(plan.divisor(mechanism.query, plan.windows.start))
        size = half_width(mechanism.event, 1 - CONFIDENCE) / divisor
        found[name] = (mean_error(mechanism.event) / divisor, size, mechanism.query.unit)
    return found


def explained(plan: CountPlan) -> Iterator[str]:
    """What a plan is worth, line by line: whom it hides, which errors to expect, what would be better.

    Nothing is read for it.
    """
    config = plan.config
    yield f"Hidden: {config.neighbours.describe()}, with epsilon {upper(config.epsilon)} a day" + (
        f" and delta {config.delta}" if config.delta else ""
    )
    whose = "Of a subject's day are counted" if config.subject_chunks else "Those stays touch"
    yield (
        f"{whose} at most {plan.touched:,} chunks of {exact_text(config.chunk)} s; noise is for all of them, in every "
        "window"
    )
    for line in (*longer_stays(plan), *OUTSIDE[:1]):
        yield f"Less hidden: {line}"
    yield f"Expected of a window of {exact_text(config.window)} s that is filmed throughout, before anything is read:"
    for name, (mean, within, unit) in expected_errors(plan).items():
        yield f"  {name}: off by {mean:.3g} {unit} on average, by at most {within:.3g} in 95 % of the windows"
        yield f"    right within {WISH} {unit} in 95 %: {_better(plan, name, within)}"


def drowned(plan: CountPlan) -> Iterator[str]:
    """Warnings about queries whose noise is as wide as the range of a window's number, from the schedule alone."""
    length, ends = plan.config.window, {*plan.windows[:2], plan.windows[-1]}  # those between are like the second
    filmed = sorted((end - begin, window) for window in ends for begin, end in [plan.filmed(window)])
    for name, mechanism in plan.mechanisms.items():
        for seconds, window in (filmed[-1], filmed[0]):
            within = half_width(mechanism.event, 1 - CONFIDENCE) / float(plan.divisor(mechanism.query, window))
            if 2 * within >= (most := plan.largest(mechanism, window)):
                part = f"{float(seconds):.3g} of {exact_text(length)} s are filmed: " if seconds < length else ""
                yield (
                    f"{name}: {part}a window's noise is within {within:.3g} {mechanism.query.unit} in 95 % of such "
                    f"windows, and its number is at most {most:.3g}: it says little. --explain names better settings."
                )
                break


def _better(plan: CountPlan, name: str, now: float) -> str:
    """The settings nearest to the plan's that would give a window's number within `WISH`."""
    if now <= WISH:
        return "as it is"
    ways = [f"epsilon {upper(plan.config.epsilon * Fraction(now / WISH).limit_denominator(100), 2)}"]
    for what, sizes in (("window", WINDOWS), ("chunk", CHUNKS)):
        for size in sizes:
            changed: dict[str, Any] = {what: Fraction(size)}
            with contextlib.suppress(DposeError):  # a chunk that divides no window
                other = bind_count(replace(plan.config, **changed), plan.schedule)
                if expected_errors(other)[name][1] <= WISH:
                    ways.append(f"{what} {size} s")
                    break
    several = len(plan.config.queries) > 1
    return ", or ".join([*ways, *(["fewer queries"] if several else [])])
