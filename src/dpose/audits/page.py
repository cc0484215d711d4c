"""The page of an audit: the claim beside what was found, the controls, and what the audit cannot see."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from dpose.audits.record import AttackedRun, AuditRecord, Share
from dpose.audits.tradeoff_chart import tradeoff_chart
from dpose.files import write_atomic
from dpose.privacy.rounding import between
from dpose.report.document import document, facts
from dpose.report.markup import Html, bullets, figure, paragraphs, scrolling_table, tag, together
from dpose.report.numbers import MISSING, at_least, at_most, day

FILE = "audit.html"


def write_audit(record: AuditRecord, folder: Path) -> Path:
    """Write `audit.html` into `folder`: one file that needs no other and loads nothing.

    Returns:
        The file.

    Raises:
        DposeError: it cannot be written.
    """
    path = folder / FILE
    write_atomic(path, render_audit(record, datetime.now(UTC)))
    return path


def render_audit(record: AuditRecord, now: datetime) -> str:
    """The page as text.

    Args:
        record: What is shown.
        now: The page's date.
    """
    sections = [
        ("bounds", "Claimed and found", _bounds(record)),
        ("tradeoff", "The whole trade-off", _tradeoff(record)),
        ("controls", "Controls", _controls(record)),
        ("threat", "Threat model", _threat(record)),
        ("blind", "What this audit cannot see", _blind(record)),
        ("notes", "How to read it", bullets(record.notes)),
    ]
    return document(
        f"{record.name}: {record.title}", _header(record, now), sections, now, f"the audit in {record.name}"
    )


def _header(record: AuditRecord, now: datetime) -> Html:
    run = record.run
    verdict = "Flagged: the claim is refuted" if run.flagged else "Not refuted"
    numbers = [
        tag("span", tag("small", name), " ", tag("b", value))
        for name, value in (
            ("claimed: epsilon", at_most(record.epsilon)),
            ("shown: at least", at_least(run.bound, places=2)),
        )
    ]
    said = (
        f"Refuted by: {', '.join(run.refuted_by)}."
        if run.flagged
        else "That is no proof: an audit bounds epsilon from below, and a lower bound below the claim leaves the claim "
        "standing and nothing more."
    )
    planted = f"A fault was planted on purpose: {record.planted}." if record.planted else ""
    shown = {"Audit": record.name, **record.origin, "Report of": day(now)}
    return tag(
        "header",
        tag("p", "dpose audit report", class_="eyebrow"),
        tag("h1", record.title),
        tag(
            "div",
            tag("p", verdict, class_="eyebrow"),
            tag("p", numbers[0], " ", numbers[1], class_="fact"),
            paragraphs(
                f"At delta {at_most(record.delta)}; all lower bounds together hold with confidence "
                f"{at_least(record.confidence, times=100)}%. {said}",
                planted,
                record.unseen,
            ),
            class_="panel none" if run.flagged else "panel private",
        ),
        facts(shown.items()),
    )


def _runs(record: AuditRecord) -> tuple[AttackedRun, ...]:
    return (record.run, *record.controls)


def _bounds(record: AuditRecord) -> Html:
    runs = _runs(record)
    bounds = [
        (test, at_most(record.epsilon), *(_bound(run.bounds.get(test)) for run in runs))
        for test in record.run.bounds
    ]
    verdicts = ("Verdict", "", *("flagged" if run.flagged else "not refuted" for run in runs))
    names = [run.name for run in runs]
    parts = [
        scrolling_table(
            "Lower bounds on epsilon, by test. All hold together at the stated confidence.",
            ["Epsilon is at least", "Claimed", *names],
            [*bounds, verdicts],
        )
    ]
    if record.run.rates:
        parts.append(
            scrolling_table(
                "Found at thresholds that were set on other samples, with 95 % intervals.",
                ["False alarms", *names],
                [
                    (_percent(rates.target), *(_share(run.rates[k].true) for run in runs))
                    for k, rates in enumerate(record.run.rates)
                ],
            )
        )
        parts.append(
            scrolling_table(
                "The epsilon that each of these implies by itself (95 %), if those counted fare independently.",
                ["False alarms", "Claimed", *names],
                [
                    (
                        _percent(rates.target),
                        at_most(record.epsilon),
                        *(_bound(run.rates[k].epsilon) for run in runs),
                    )
                    for k, rates in enumerate(record.run.rates)
                ],
            )
        )
    return together(parts)


def _tradeoff(record: AuditRecord) -> Html:
    words = [
        "Each point is a threshold: whoever scores above it is taken to have been in. Both axes are logarithmic, "
        "because a threat to one person lies where false alarms are rare.",
        f"The area that the claimed mechanism rules out is shaded; its edge is the whole curve of the accountant. The "
        f"dashed line near it is what epsilon {at_most(record.epsilon)} and delta {at_most(record.delta)} allow by "
        "themselves; the other one is guessing. Dots are thresholds set on other samples, with 95 % intervals both "
        "ways. A curve that touches the shaded area refutes nothing by itself: the tests above decide, which allow for "
        "chance.",
    ]
    chart = tradeoff_chart(record.run, record.allowed, record.pair, _describes(record.run))
    return tag(
        "div",
        figure(chart, tag("b", record.run.name), f": {record.run.what}"),
        tag("div", paragraphs(*words), bullets(_found(record.run))),
        class_="beside",
    )


def _found(run: AttackedRun) -> list[str]:
    return [
        f"At {_percent(rates.target)} false alarms ({_share(rates.false)} measured): {_share(rates.true)} found"
        for rates in run.rates[:2]
    ]


def _controls(record: AuditRecord) -> Html:
    if not record.controls:
        return paragraphs(
            "No controls were run. Without them nobody knows whether this audit could see anything."
        )
    charts = [
        figure(
            tradeoff_chart(run, record.allowed, record.pair, _describes(run), height=300),
            tag("b", run.name),
            f": {run.what}. Epsilon is at least {at_least(run.bound, places=2)}; {_at_one_percent(run)}. ",
            tag(
                "span",
                "flagged" if run.flagged else "not refuted",
                class_="mark" + (" warned" if run.flagged else ""),
            ),
        )
        for run in record.controls
    ]
    return together(
        [
            paragraphs(
                "The controls leak on purpose and read no private data. An audit that finds nothing in them is blind, "
                "and then its silence about the audited run means nothing."
            ),
            tag("div", *charts, class_="charts"),
        ]
    )


def _at_one_percent(run: AttackedRun) -> str:
    rates = next((r for r in run.rates if r.target == 0.01), None)
    return f"{100 * rates.true.rate:.0f}% found at 1% false alarms" if rates else "no thresholds were set"


def _threat(record: AuditRecord) -> Html:
    cards = [
        tag(
            "div",
            tag(
                "table",
                tag("caption", title),
                tag(
                    "tbody", *(tag("tr", tag("th", k, scope="row"), tag("td", v)) for k, v in values.items())
                ),
            ),
            class_="card",
        )
        for title, values in (("The claim", record.claim), ("Whom it looks for", record.canaries))
    ]
    model = record.threat_model[:1].upper() + record.threat_model[1:]
    return together([tag("p", f"{model}.", class_="lead"), tag("div", *cards, class_="cards")])


def _blind(record: AuditRecord) -> Html:
    if not record.blind:
        return Html("")
    rows = [(fault.name, fault.summary, fault.why, fault.check) for fault in record.blind]
    return together(
        [
            paragraphs(
                "These faults break a guarantee, or the use of one, and leave no trace that this audit could find. "
                "Tests of the code's structure reject them."
            ),
            scrolling_table(
                "Faults that are not seen",
                ["Fault", "What is wrong", "Why it is not seen", "Rejected by"],
                rows,
                class_="words",
            ),
        ]
    )


def _describes(run: AttackedRun) -> str:
    found = "; ".join(_found(run))
    return f"True against false positives of {run.name}, on logarithmic axes. {found}"


def _bound(value: float | None) -> str:
    return MISSING if value is None else at_least(value, places=2)


def _percent(rate: float) -> str:
    return f"{100 * rate:g}%"


def _share(share: Share) -> str:
    return f"{100 * share.rate:.1f}% ({between(share.low, share.high, places=1, times=100)})"
