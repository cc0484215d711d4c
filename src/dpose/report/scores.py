"""Scores before and after, beside other models', and joint by joint."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.report.charts import paired_dots
from dpose.report.inline import Best, Code, Inline, Mark, Strong, Warned, at_most, change, day, percentage
from dpose.report.results import Block, Figure, Group, Table, Text
from dpose.report.run import Evaluation, RunRecord, Score, Watched

THIS = "this model"
BEFORE = "before training"


def scores_section(run: RunRecord) -> tuple[Block, ...]:
    """A table for each dataset that the model was scored on."""
    tables = [_watched_table(run, watched) for watched in run.watched if len(watched.moments) > 1]
    tables += [_evaluation_table(run, evaluation) for evaluation in run.evaluations]
    none = (
        "No scores were taken. ",
        Code("dpose evaluate"),
        " takes them: of public data freely, of held-out private data as a release that the statement lists.",
    )
    refused = (
        f"A score on {name} stands in the run folder and is left out here: these are the units that the run "
        "protects, and a score of them without noise is outside any guarantee."
        for name in run.refused
    )
    return Group(tuple(tables), "tables") if tables else Text(none), *refused


def joints_section(run: RunRecord) -> tuple[Block, ...]:
    """Before and after for each joint; empty where no joints were scored."""
    found = _pair(run)
    if found is None:
        return ()
    where, (old_name, old), (new_name, new) = found
    first = f"{new.threshold:g}" if new.threshold is not None else next(iter(new.joints))
    names = [(joint, _spoken(joint)) for joint in run.joint_order]

    def at(result: Score | None, threshold: str, joint: str) -> float | None:
        return result.joints.get(threshold, {}).get(joint) if result else None

    rows = [(spoken, at(old, first, joint), at(new, first, joint)) for joint, spoken in names]
    chart = paired_dots(
        rows,
        f"{new.metric}@{first} of each joint on {where}; the table beside it has the numbers.",
        before=old_name,
        after=new_name,
        x_title=f"{new.metric}@{first}, %",
    )
    columns = [(t, who, result) for t in new.joints for who, result in ((old_name, old), (new_name, new)) if result]
    table = Table(
        f"{new.metric} on {where}, %",
        ("Joint", *(f"@{t} {who}" for t, who, _ in columns)),
        tuple((spoken, *(percentage(at(result, t, joint)) for t, _, result in columns)) for joint, spoken in names),
        "numbers tight",
    )
    caption = f"{where}. A joint is found when it lies within {first} head lengths of its label."
    return (Group((Figure("", caption, chart), table), "beside"),)


def standing(run: RunRecord, public: bool, trained_on: bool = False) -> Inline:
    """A mark that says whether data are public or private, and what that means for their scores."""
    if public:
        return Mark("public data")
    if trained_on:
        return Warned("the training data themselves")
    if run.statement is not None and run.statement.kind is Kind.PRIVATE:
        return Warned("held-out private data: not covered by epsilon")
    return Mark("held-out data")


def _evaluation_standing(run: RunRecord, evaluation: Evaluation) -> Inline:
    privacy = evaluation.privacy
    if privacy is None:
        return standing(run, evaluation.public, evaluation.trained_on)
    return Mark(f"private data, with noise: epsilon {at_most(privacy.epsilon or 0)} for each {privacy.unit}")


def _price_of(evaluation: Evaluation, privacy: PrivacyStatement) -> tuple[str, ...]:
    """What a noised score means and costs."""
    if evaluation.interval is None:
        ends = ""
    else:
        low, high = map(percentage, evaluation.interval)
        ends = f"Without its noise the score lies between {low} and {high} with 95 % confidence; "
        ends += "which people were scored is not in that interval. "
    return (f"{ends}The score is a release of its own. ", privacy.words().guarantee)


def _watched_table(run: RunRecord, watched: Watched) -> Group:
    before, after = watched.moments[0], watched.moments[-1]
    rows = [
        (
            name,
            percentage(before.score.columns.get(name)),
            percentage(value),
            change(before.score.columns.get(name), value),
        )
        for name, value in after.score.columns.items()
    ]
    titles = [
        BEFORE.capitalize() if before.step == 0 else f"After step {before.step:,}",
        f"After step {after.step:,}",
        "Change",
    ]
    source = Text((watched.name, " ", standing(run, watched.public)), "source")
    table = Table(_what(after.score), (_heading(after.score), *titles), _weighted(rows, after.score))
    return Group((source, table), title="Before and after")


def _evaluation_table(run: RunRecord, evaluation: Evaluation) -> Group:
    models = [(THIS, evaluation.score), *evaluation.beside]
    lead = _clear_lead([result for _, result in models])
    rows: list[tuple[str, ...]] = []
    for name in evaluation.score.columns:
        cells: list[str] = [percentage(result.columns.get(name)) for _, result in models]
        if name == evaluation.score.main and lead is not None:
            cells[lead] = Best(cells[lead])
        rows.append((name, *cells))
    note = ""
    if len(models) > 1:
        note = (
            "The best mean is set in bold: it leads by more than chance among so many people would explain."
            if lead is not None
            else "No mean is set in bold: with so few people, chance alone may explain the lead."
        )
    count = "" if evaluation.units is None else f", {evaluation.units:,} units"
    when = "" if evaluation.at is None else f", {day(evaluation.at)}"
    where = f"{evaluation.data}{count}{when} "
    source = Text((where, _evaluation_standing(run, evaluation)), "source")
    head = (_heading(evaluation.score), *(name[:1].upper() + name[1:] for name, _ in models))
    table = Table(_what(evaluation.score), head, _weighted(rows, evaluation.score))
    said = (Text((note,), "note"),) if note else ()
    if evaluation.seen:
        said = (*said, Text((evaluation.seen,), "note"))
    if evaluation.privacy is not None:
        said = (*said, Text(_price_of(evaluation, evaluation.privacy), "note"))
    return Group((source, table, *said), "wide" if len(models) > 2 else "", "Evaluation")


def _clear_lead(results: Sequence[Score]) -> int | None:
    """Which model's mean is best by more than two standard errors of the difference; None if none is.

    A person counts as one observation, though there are up to fourteen joints to find: joints of one person come out
    well or badly together. So the error is overstated, the more so as the models are scored on the same people.
    """
    means = [result.columns.get(result.main) for result in results]
    people = min((result.people or 0 for result in results), default=0)
    known = [mean for mean in means if mean is not None]
    if people < 1 or len(known) < 2 or len(known) < len(means):
        return None
    best = max(range(len(known)), key=known.__getitem__)
    if not all(0 <= mean <= 100 for mean in known):
        return None

    def variance(mean: float) -> float:
        return mean / 100 * (1 - mean / 100) / people

    for other, mean in enumerate(known):
        margin = 100 * 2 * math.sqrt(variance(known[best]) + variance(mean))
        if other != best and known[best] - mean <= margin:
            return None
    return best


def _pair(run: RunRecord) -> tuple[str, tuple[str, Score | None], tuple[str, Score]] | None:
    """The data and the two results to lay side by side: before and after one training, or else beside another model."""
    for watched in run.watched:
        old, new = watched.moments[0].score, watched.moments[-1].score
        if new.joints and len(watched.moments) > 1:
            return watched.name, ("before", old), ("after", new)
    with_joints = [evaluation for evaluation in run.evaluations if evaluation.score.joints]
    for evaluation in sorted(with_joints, key=lambda e: not e.beside):
        old_name, other = evaluation.beside[0] if evaluation.beside else ("", None)
        where = f"{evaluation.data}, whole pictures" if evaluation.score.whole_pictures else evaluation.data
        return where, (old_name, other), (THIS, evaluation.score)
    return None


def _heading(result: Score) -> str:
    return ", ".join(filter(None, (result.title or "Score", result.unit)))


def _what(result: Score) -> str:
    parts = []
    if result.people is not None:
        parts.append(f"{result.people:,} people")
    if result.joints_seen is not None:
        parts.append(f"{result.joints_seen:,} visible joints")
    if result.whole_pictures:
        parts.append("whole pictures, no boxes used")
    return ", ".join(parts) or "Scores"


def _weighted(rows: Sequence[tuple[str, ...]], result: Score) -> tuple[tuple[str, ...], ...]:
    """The rows with the main one's title in bold."""
    return tuple((Strong(row[0]) if row[0] == result.main else row[0], *row[1:]) for row in rows)


def _spoken(joint: str) -> str:
    side = {"r_": "right ", "l_": "left "}.get(joint[:2], "")
    name = side + (joint[2:] if side else joint.replace("_", " "))
    return name[:1].upper() + name[1:]
