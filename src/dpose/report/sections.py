"""What a run's page says: its guarantee, its curves, and what its public view gives away.

What is guaranteed: the plain fact at the top of the page, and the section that spells it out.

What may be shown of how a run went: curves by step, with the epsilon spent beside them.

What the public view gives away: attacks on it, measured once and kept beside this module with their command.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from dpose.privacy.attackers import FALSE_POSITIVES, true_positives
from dpose.privacy.ranges import as_given, between
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.privacy.tradeoff import approximate
from dpose.report.charts import POINTS, REFERENCE, bound_on_attacks, line_by_step
from dpose.report.inline import Strong, at_most, brief
from dpose.report.results import Block, Bullets, Command, Figure, Group, Numbers, Table, Text
from dpose.report.run import MethodFacts, RunRecord, Watched, mapping
from dpose.report.scores import standing

FILE = "public_view.json"
JOINT_NAMES = {"blur": "Gaussian blur", "pixelize": "pixelization"}
LINES = {
    "rank1": "Recognised, first guess of {identities} names",
    "attributes": "Looks told (mean average precision)",
    "auc": "Same person or two (area under ROC)",
}
TELLING = 4
"""Attributes that are named: those most above guessing."""


@cache
def measured() -> Mapping[str, Any]:
    """What `dpose attack view` left: figures, settings, versions, and the command that makes them again."""
    found: Mapping[str, Any] = json.loads((files("dpose.report") / FILE).read_text(encoding="utf-8"))
    return found


def given_away_section(run: RunRecord) -> tuple[Block, ...]:
    """Figures of attacks on the public view; nothing for methods that have none."""
    method = run.facts
    if method is None or not method.public_views:
        return ()
    found = measured()
    view = mapping(run.plan.get("public_view"))
    kind = str(view.get("kind") if view.get("kind") in JOINT_NAMES else "blur")
    return (
        Text((_lead(kind, found),), "lead"),
        _table(kind, found),
        _notes(kind, found),
        _width(kind, view.get("width"), found),
        PROVES,
        Command(found["command"]),
        _origin(found),
    )


PROVES = (
    "These attackers are small and learnt quickly; better ones find more. Where they fail, that proves nothing. What "
    "a guarantee of feature privacy covers is what a picture holds beyond its public view, and nothing in this section."
)


def _lead(kind: str, found: Mapping[str, Any]) -> str:
    rank = found["figures"]["rank1"]
    return (
        f"Every unit's public view ({JOINT_NAMES[kind]}) is taken as public, and it still shows people: of "
        f"{found['settings']['identities']} rendered people {_percent(rank[kind]['value'])} were recognised in it at "
        f"the first guess, where raw pictures gave {_percent(rank['raw']['value'])} and guessing gives "
        f"{_percent(rank['chance'])}."
    )


def _table(kind: str, found: Mapping[str, Any]) -> Table:
    other = next(name for name in JOINT_NAMES if name != kind)
    rows: list[tuple[str, ...]] = [
        (
            title.format(**found["settings"]),
            _spread(line[kind]),
            _spread(line[other]),
            _spread(line["raw"]),
            _percent(line["chance"]),
        )
        for title, line in ((LINES[name], found["figures"][name]) for name in LINES)
    ]
    rebuilt = found["reconstruction"]
    quality = (f"{rebuilt[name]['reconstructed']['psnr']['value']:.1f} dB" for name in (kind, other))
    rows.append(("Rebuilt by a small network (PSNR)", *quality, "", ""))
    head = ("The stronger attacker", f"{JOINT_NAMES[kind]} (this run)", JOINT_NAMES[other], "Raw pictures", "Guessing")
    return Table("", head, tuple(rows), "numbers tight")


def _notes(kind: str, found: Mapping[str, Any]) -> str:
    precision, share = found["attributes"][kind], found["share"]
    best = sorted(share, key=lambda name: share[name] - precision[name])[:TELLING]
    said = ", ".join(f"{n} ({_percent(precision[n])} against {_percent(share[n])} by guessing)" for n in best)
    return f"Told best from it, by average precision: {said}."


def _width(kind: str, width: Any, found: Mapping[str, Any]) -> str:
    own = float(found["widths"][kind] if width is None else width)
    if own == found["widths"][kind]:
        return ""
    less = "less" if own > found["widths"][kind] else "more"
    measured_at = f"Measured at width {found['widths'][kind]:g}."
    return f"{measured_at} This run's view has width {own:g}: expect it to give away {less}."


def _origin(found: Mapping[str, Any]) -> str:
    settings, versions = found["settings"], found["software"]
    learnt = settings["learn_from"]
    return (
        f"Measured on rendered people ({settings['data']}), by attackers who know {learnt['people']} other people with "
        f"{learnt['pictures']} pictures each; seed {settings['seed']}, dpose {versions['dpose']}, torch "
        f"{versions['torch']}. Real pictures may give away more or less."
    )


def _spread(value: Mapping[str, float]) -> str:
    return f"{_percent(value['value'])} ({between(value['low'], value['high'], places=1, times=100)})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


SERIES = {
    "public_loss": (
        "loss on public views",
        "Mean loss of each batch of public views, which the method does not protect.",
    ),
    "public_gradient_norm": ("norm of the public gradient", "Of the public views alone."),
    "loss": ("training loss", "Mean loss of each batch of what the run learns from. No epsilon is claimed for it."),
    "noisy_gradient_norm": (
        "norm of the noised gradient",
        "What the optimizer was given, noise included. Norms before the noise were not recorded: they would tell of "
        "the private data.",
    ),
    "lr": ("learning rate", "A setting; no data in it."),
}


NAMES = {
    "subspace_directions": "Directions of the subspace",
    "subspace_rank": "Numerical rank of the public gradients",
    "subspace_energy": "Share of the public gradients' energy in the subspace",
    "surviving_norm": "Share of the noisy update's norm that survives the projection",
    "subspace_age": "Age of the subspace, steps",
    "public_gradients_not_finite": "Public gradients left out as not finite",
}
"""Diagnostics in words; others are shown by their own names."""


def curves_section(run: RunRecord) -> tuple[Block, ...]:
    """Scores while training, then what each step showed."""
    figures = [found for watched in run.watched if (found := _watched_figure(run, watched))]
    for key, (title, says) in SERIES.items():
        points = run.series.get(key)
        if points:
            describes = f"The {title} over {len(points):,} steps, from {brief(points[0][1])} to {brief(points[-1][1])}."
            chart = line_by_step(points, describes, y_title=title, height=174 if key == "lr" else 214)
            says += _thinning(len(points)) if key != "lr" else ""
            figures.append(Figure("", (Strong(f"{title[:1].upper()}{title[1:]}. "), says), chart))
    if not figures:
        return ("The log holds no steps.",)
    return _progress(run), Group(tuple(figures), "charts")


def diagnostics_section(run: RunRecord) -> tuple[Block, ...]:
    """Each diagnostic by step, and its last value; empty where there is none."""
    if not run.diagnostics:
        return ()
    figures, rows = list[Figure](), list[tuple[str, ...]]()
    for name, points in run.diagnostics.items():
        words, (step, last) = _words(name), points[-1]
        chart = line_by_step(points, f"{words} by step, lately {brief(last)}.", height=174)
        figures.append(Figure("", (Strong(words),), chart))
        rows.append((words, f"{step:,}", brief(last)))
    table = Table("Last values", ("Diagnostic", "Step", "Value"), tuple(rows))
    return Group(tuple(figures), "charts"), table


def _watched_figure(run: RunRecord, watched: Watched) -> Figure | None:
    last = watched.moments[-1].score
    main = last.main
    known = [(m.step, value) for m in watched.moments if (value := m.score.columns.get(main)) is not None]
    if not known:
        return None
    spent = [(float(m.step), at_most(m.epsilon)) for m in watched.moments if m.epsilon is not None]
    title = last.main_name
    describes = (
        f"{title} on {watched.name}: {brief(known[0][1])} after {known[0][0]:,} steps, {brief(known[-1][1])} after "
        f"{known[-1][0]:,}."
    )
    scale = " The upper scale is the epsilon spent by then." if spent else ""
    chart = line_by_step(
        known,
        describes,
        y_title=", ".join(filter(None, (title, last.unit))),
        above=spent,
        above_title="epsilon spent",
        height=242 if spent else 214,
    )
    caption = (Strong("Score while training. "), f"{watched.name}.{scale} ", standing(run, watched.public))
    return Figure("", caption, chart)


def _progress(run: RunRecord) -> str:
    if run.planned_steps is None or not run.steps:
        return ""
    if run.steps >= run.planned_steps:
        return f"All {run.planned_steps:,} planned steps were taken."
    still = (
        " Epsilon is still the whole plan's: the reason to stop may have depended on what was seen."
        if run.statement is not None and run.statement.kind is Kind.PRIVATE
        else ""
    )
    return f"The run was stopped after {run.steps:,} of {run.planned_steps:,} planned steps.{still}"


def _thinning(count: int) -> str:
    return " The line is a mean over neighbouring steps, the band their lowest to highest." if count > POINTS else ""


def _words(name: str) -> str:
    spoken = NAMES.get(name, name.replace("_", " "))
    return spoken[:1].upper() + spoken[1:]


UNPROTECTED = "everything: what the run would otherwise protect may be learnt from it"
NO_STATEMENT = (
    "The run left no privacy statement: it is not finished, or it broke off. Until it has one, nothing is claimed "
    "for it."
)


def plain_fact(run: RunRecord) -> Group:
    """The guarantee, or that there is none, at the top of the page."""
    statement = run.statement
    if statement is None or statement.kind is not Kind.PRIVATE:
        public = f"It was trained on {run.data}, which are declared public." if run.data_are_public else ""
        return Group((Text(("No guarantee",), "fact"), _reason(statement), public), "panel none")
    found, beyond = statement.tpr_bound, _beyond(run)
    numbers = (
        ("epsilon", at_most(statement.epsilon or 0)),
        ("delta", at_most(statement.delta or 0.0)),
        ("for each", statement.unit),
    )
    tested = (
        f"Anyone who tests whether a given {statement.unit} was used{beyond}, with false alarms on "
        f"{FALSE_POSITIVES:.0%} of those that were not, finds at most {at_most(found, times=100)}% of those that "
        f"were. {_strength(statement)}"
    )
    views = f"The public views themselves, the labels, and whose {statement.unit}s were used are not protected."
    head = Text(("Differential privacy guarantee",), "eyebrow")
    return Group((head, Numbers(numbers, beyond.strip()), tested, views if beyond else ""), "panel private")


def guarantee_section(run: RunRecord) -> tuple[Block, ...]:
    """What is covered, what is not, what the number means, and the statement's own words."""
    statement = run.statement
    if statement is None:
        return (NO_STATEMENT,)
    said = statement.words()
    protects, leaves_open = _sides(statement, run.facts)
    sides = [
        Group((Bullets(items),), f"side {kind}", title)
        for title, items, kind in (("Protected", protects, "covered"), ("Not protected", leaves_open, "open"))
        if items
    ]
    lead = (*said.warnings, said.guarantee)
    words = Group(tuple(Text((text,), "lead") for text in lead if text))
    terms = [Group((Bullets(items),), title=title) for title, items in said.lists]
    return (
        Group((words, Group(tuple(sides))), "beside"),
        *_meaning(statement, _beyond(run), said.limit),
        *([Group(tuple(terms), "terms")] if terms else []),
    )


def _sides(statement: PrivacyStatement, method: MethodFacts | None) -> tuple[Sequence[str], Sequence[str]]:
    """What is protected and what is not."""
    uncovered = [
        f"{query.what} of {query.data} ({query.purpose}): {query.coverage.replace('NOT', 'not')}"
        for query in statement.queries
        if not query.covered
    ]
    if statement.kind is not Kind.PRIVATE:
        protects = method.protects if method and not method.private and statement.kind is Kind.NONE else ()
        return protects, [*(method.leaves_open if method and not method.private else (UNPROTECTED,)), *uncovered]
    return (method.protects, [*method.leaves_open, *uncovered]) if method else ((), uncovered)


def _reason(statement: PrivacyStatement | None) -> str:
    if statement is None:
        return NO_STATEMENT
    reason = statement.words().no_guarantee
    return reason[:1].upper() + reason[1:]


def _beyond(run: RunRecord) -> str:
    """What a unit is protected beyond; empty where all of it is."""
    method = run.facts
    return " beyond its public view" if method and method.public_views else ""


def _strength(statement: PrivacyStatement) -> str:
    weak = statement.is_weak
    return "That is a weak guarantee, and the section below says what it is worth." if weak else ""


def _meaning(statement: PrivacyStatement, beyond: str, limit: str) -> tuple[Block, ...]:
    """The bound on an attacker, drawn; nothing where there is none."""
    if statement.kind is not Kind.PRIVATE or statement.epsilon is None or statement.delta is None:
        return ()
    epsilon, delta, unit = float(statement.epsilon), statement.delta, statement.unit
    found, strong = statement.tpr_bound, true_positives(REFERENCE, delta)
    known = statement.attackers is not None
    source = (
        "by the run's whole trade-off curve" if known else f"for epsilon {at_most(epsilon)} and delta {at_most(delta)}"
    )
    describes = (
        f"The most an attacker can find against the rate of false alarms, {source}. At {FALSE_POSITIVES:.0%} false "
        f"alarms: {at_most(found, times=100)}%. The diagonal is an "
        "attacker who learns nothing."
    )
    words = (
        f"Somebody holds the model and wants to know whether one given {unit} was used in training it{beyond}. "
        "Flagging more of them finds more, and raises more false alarms. An attacker who learns nothing from the "
        "model moves along the diagonal: what is found grows only as fast as the false alarms.",
        f"No attacker can get above the curve, {limit}. The area above it is ruled out. "
        "The nearer the curve is to the diagonal, the stronger the guarantee.",
        f"Here the bound at {FALSE_POSITIVES:.0%} false alarms is {at_most(found, times=100)}%."
        + (
            f" With epsilon {as_given(REFERENCE)} it would be {at_most(strong, times=100)}%."
            if epsilon > 1.5 * REFERENCE and not known
            else ""
        )
        + " It is a bound for the worst case: an attacker who knows every other "
        f"{unit} and everything about this one.",
    )
    curve = statement.attacker_curve()
    reference = approximate(REFERENCE, delta) if epsilon > 1.5 * REFERENCE and not known else None
    chart = bound_on_attacks(curve, unit, describes, reference)
    figure = Figure("", f"The bound on an attacker, {source}.", chart)
    return (Group((figure, Group(words, title="What the number means")), "beside"),)
