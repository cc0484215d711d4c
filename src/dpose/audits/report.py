"""What an audit found, on disk: the claim beside it, the controls, and what the audit cannot see."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes

from dpose.audits.faults import UNSEEN
from dpose.audits.findings import BLIND, AuditFindings, AuditReport
from dpose.audits.trials import OperatingPoint, Trials
from dpose.privacy.ranges import between, lower, upper
from dpose.privacy.tradeoff import Floats, TradeOff, approximate
from dpose.report.charts import MeasuredRates, Rates, trade_off
from dpose.report.document import Report
from dpose.report.inline import LIGHT, MISSING, Mark, Strong, Warned, at_least, at_most, day
from dpose.report.plots import Curve, page_canvas, png, sheet, styled, svg
from dpose.report.results import Block, Bullets, Figure, Group, Numbers, Section, Table, Text, cards

GRID = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 161)])
"""False-positive rates at which a claimed curve is drawn."""
LEAST = 5e-4
"""Lower end of the logarithmic axes."""
REPORTED = 2
"""Operating points that are drawn: those at the lowest false-positive rates."""
RUN = "this run"
COLOURS = ("orange", "blue", "teal", "violet")
NAMES = ("false alarms, of those that were not in", "found, of those that were in")


def write_audit_report(report: AuditReport, folder: Path) -> None:
    """Write audit.html, audit.json, audit.md and audit.png into `folder`."""
    shown = audit_report(report, folder.name, datetime.now(UTC))
    shown.write(folder, page="audit.html", text="audit.md")


def audit_report(report: AuditReport, name: str, now: datetime) -> Report:
    """The audit as it is shown.

    Args:
        report: What was found.
        name: Of its folder.
        now: The page's date.
    """
    seed = "none: keys from the operating system" if report.seed is None else str(report.seed)
    return Report(
        report.title,
        kind="dpose audit report",
        source=f"the audit in {name}",
        subject=name,
        panel=_verdict(report),
        facts={
            "Audit": name,
            "Seed": seed,
            "dpose": f"{report.code['dpose']}, source {report.code['source']}",
            "torch": report.code["torch"],
            "Report of": day(now),
        },
        sections=(
            Section("bounds", "Claimed and found", _bounds(report)),
            Section("tradeoff", "The whole trade-off", _trade_off(report)),
            Section("controls", "Controls", _controls(report)),
            Section("threat", "Threat model", _threat(report)),
            Section("blind", "What this audit cannot see", _blind()),
            Section("notes", "How to read it", (Bullets(tuple(report.notes)),)),
        ),
        files={
            # a bound may be infinite, which the values of other reports may not be
            "audit.json": (json.dumps(report.to_dict(), indent=1) + "\n").encode(),
            "audit.png": _picture(report),
        },
        now=now,
    )


def _verdict(report: AuditReport) -> Group:
    found = report.findings
    said = (
        f"Refuted by: {', '.join(found.refuted)}."
        if found.flagged
        else "That is no proof: an audit bounds epsilon from below, and a lower bound below the claim leaves the claim "
        "standing and nothing more."
    )
    if report.blind and not found.flagged:
        said = BLIND
    return Group(
        (
            Text(("Flagged: the claim is refuted" if found.flagged else "Not refuted",), "eyebrow"),
            Numbers(
                (
                    ("claimed: epsilon", at_most(report.claim["epsilon"])),
                    ("shown: at least", at_least(found.bound, places=2)),
                )
            ),
            f"At delta {at_most(report.family.delta)}; all lower bounds together hold with confidence "
            f"{at_least(1 - report.alpha, times=100)}%. {said}",
            f"A fault was planted on purpose: {report.planted}." if report.planted else "",
            report.unseen,
        ),
        "panel none" if found.flagged else "panel private",
    )


def _runs(report: AuditReport) -> dict[str, AuditFindings]:
    return {RUN: report.findings, **{f"control: {name}": found for name, found in report.controls.items()}}


def _bounds(report: AuditReport) -> tuple[Block, ...]:
    runs, claimed = _runs(report), at_most(report.claim["epsilon"])
    bounds = [
        (test, claimed, *(_bound(found.bounds.get(test)) for found in runs.values())) for test in report.findings.bounds
    ]
    verdicts = ("Verdict", "", *(_flag(found) for found in runs.values()))
    tables = [
        Table(
            "Lower bounds on epsilon, by test. All hold together at the stated confidence.",
            ("Epsilon is at least", "Claimed", *runs),
            (*bounds, verdicts),
        )
    ]
    if points := report.findings.points:
        rates = [
            (_percent(point.target), *(_share(found.points[k].true) for found in runs.values()))
            for k, point in enumerate(points)
        ]
        implied = [
            (
                _percent(point.target),
                claimed,
                *(_bound(found.points[k].epsilon(report.family.delta)) for found in runs.values()),
            )
            for k, point in enumerate(points)
        ]
        tables += [
            Table(
                "Found at thresholds that were set on other samples, with 95 % intervals.",
                ("False alarms", *runs),
                tuple(rates),
            ),
            Table(
                "The epsilon that each of these implies by itself (95 %), if those counted fare independently.",
                ("False alarms", "Claimed", *runs),
                tuple(implied),
            ),
        ]
    return tuple(tables)


def _trade_off(report: AuditReport) -> tuple[Block, ...]:
    words = (
        "Each point is a threshold: a person who scores above it is taken to have been in. Both axes are logarithmic, "
        "because a threat to one person lies where false alarms are rare.",
        "The area that the claimed mechanism rules out is shaded; its edge is the whole curve of the accountant. The "
        f"dashed line near it is what epsilon {at_most(report.claim['epsilon'])} and delta "
        f"{at_most(report.family.delta)} allow by themselves; the other one is guessing. Dots are thresholds set on "
        "other samples, with 95 % intervals both ways. A curve that touches the shaded area refutes nothing by itself: "
        "the tests above decide, which allow for chance.",
    )
    found = report.findings
    what = f": {report.planted or 'as it was trained'}; the adversary {found.adversary}"
    figure = Figure("", (Strong(RUN), what), _chart(report, RUN, found, 360))
    return (Group((figure, Group((*words, Bullets(_found(found))))), "beside"),)


def _controls(report: AuditReport) -> tuple[Block, ...]:
    if not report.controls:
        return ("No controls were run. Without them it is unknown whether this audit could see anything.",)
    figures = [
        Figure(
            "",
            (
                Strong(f"control: {name}"),
                f": {name}, on purpose; the adversary {found.adversary}. Epsilon is at least "
                f"{at_least(found.bound, places=2)}; {_at_one_percent(found)}. ",
                (Warned if found.flagged else Mark)(_flag(found)),
            ),
            _chart(report, f"control: {name}", found, 300),
        )
        for name, found in report.controls.items()
    ]
    return (
        "The controls leak on purpose and read no private data. An audit that finds nothing in them is blind, and then "
        "its silence about the audited run means nothing.",
        Group(tuple(figures), "charts"),
    )


def _threat(report: AuditReport) -> tuple[Block, ...]:
    claim = report.claim
    event: Mapping[str, object] = claim.get("event") or {}
    shown = {
        "epsilon": at_most(claim["epsilon"], 6),
        "delta": at_most(float(claim["delta"])),
        "method": str(claim["method"]),
        "neighbours": str(claim["relation"]),
        "accountant": str(claim["accountant"]),
        "unit": str(claim["unit"]),
        "units": f"{claim['n']:,}",
        **{key: str(event[key]) for key in ("q", "sigma", "steps") if key in event},
    }
    canaries = {key: f"{value:,}" if isinstance(value, int) else str(value) for key, value in report.canaries.items()}
    model = report.threat_model[:1].upper() + report.threat_model[1:]
    return (
        Text((f"{model}.",), "lead"),
        Group((cards("The claim", shown), cards("Whom it looks for", canaries)), "cards"),
    )


def _blind() -> tuple[Block, ...]:
    rows = tuple((name, fault.summary, fault.why, fault.check) for name, fault in UNSEEN.items())
    head = ("Fault", "What is wrong", "Why it is not seen", "Rejected by")
    return (
        "These faults break a guarantee, or the use of one, and leave no trace that this audit could find. "
        "Tests of the code's structure reject them.",
        Table("Faults that are not seen", head, rows, "words"),
    )


def _chart(report: AuditReport, name: str, found: AuditFindings, height: int) -> Markup:
    """What an attack found, under what is ruled out by the whole curve and by (epsilon, delta) alone."""
    allowed, pair = _claimed(report)
    curves = (
        Rates(((0, 0), (1, 1)), colour="base", style="--", width=1),
        Rates(pair, colour="base", style="--", width=1),
        Rates(allowed, colour="base", width=1.5),
        Rates(_points(found.curve), stairs=True),
    )
    with styled():
        figure, axes = page_canvas(height)
        measured = [_measured(point, "accent") for point in found.points]
        trade_off(axes, curves, ruled_out=allowed, measured=measured, least=LEAST, names=NAMES)
        return svg(figure, f"True against false positives of {name}, on logarithmic axes. {'; '.join(_found(found))}")


def _picture(report: AuditReport) -> bytes:
    """All runs in one PNG: what was found on logarithmic axes, and the lower bounds on epsilon beside it."""
    figure, ((left, right),) = sheet(1, 2, "", width=5.5, height=4.9)
    allowed, pair = _claimed(report)
    claim, runs = report.claim, dict(zip(COLOURS, _runs(report).items(), strict=False))
    label = f"most at epsilon {upper(claim['epsilon'])}, delta {upper(claim['delta'])}"
    trade_off(
        left,
        (
            Rates(pair, label, "ink", "--", 1.2),
            Rates(allowed, "most with the claimed noise and sampling", "ink", "-", 1.6),
            Rates(((0, 0), (1, 1)), "guessing", "base", ":", 1),
            *(
                Rates(_points(found.curve), name, colour, width=2 if name == RUN else 1.2, stairs=True)
                for colour, (name, found) in runs.items()
            ),
        ),
        ruled_out=allowed,
        measured=[_measured(p, colour) for colour, (_, found) in runs.items() for p in found.points[:REPORTED]],
        least=LEAST,
        names=NAMES,
    )
    left.legend(loc="lower right", fontsize=8, frameon=True, framealpha=0.95)
    _bars(right, report, runs)
    verdict = "FLAGGED: the claim is refuted" if report.findings.flagged else "not refuted"
    planted = f" (planted: {report.planted})" if report.planted else ""
    figure.suptitle(f"{report.title}\n{verdict}{planted}", color=LIGHT["ink"], fontsize=12)
    return png(figure)


def _bars(axes: Axes, report: AuditReport, runs: Mapping[str, tuple[str, AuditFindings]]) -> None:
    """The lower bounds on epsilon, by test and run."""
    claimed = report.claim["epsilon"]
    edge = max([claimed, *(bound for _, found in runs.values() if math.isfinite(bound := found.bound))])
    tests = [test for test, value in report.findings.bounds.items() if value is not None]
    height = 0.8 / len(runs)
    for k, (colour, (name, found)) in enumerate(runs.items()):
        bounds = [found.bounds[test] or 0.0 for test in tests]
        rows = np.arange(len(tests)) + (k - (len(runs) - 1) / 2) * height
        axes.barh(rows, np.minimum(bounds, edge), height=0.9 * height, color=LIGHT[colour], label=name, zorder=2)
        for row, bound in zip(rows, bounds, strict=True):
            axes.text(min(bound, edge), row, f" {lower(bound, places=2)}", va="center", fontsize=8)
    axes.axvline(claimed, color=LIGHT["ink"], lw=1.4, ls="--", zorder=3)
    axes.text(claimed, 1, "claimed", fontsize=8, ha="center", va="bottom", transform=axes.get_xaxis_transform())
    folded = [test.replace(" in ", "\nin ").replace(", ", ",\n", 2) for test in tests]
    axes.set_yticks(range(len(tests)), folded, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.18 * edge)
    axes.set_xlabel(f"epsilon is at least (confidence {lower(1 - report.alpha)})")
    axes.legend(loc="lower right", fontsize=8, frameon=True, framealpha=0.95)


def _claimed(report: AuditReport) -> tuple[Curve, Curve]:
    """The most that the claimed mechanism allows, and the most that epsilon and delta alone allow."""
    pair = approximate(float(report.claim["epsilon"]), report.family.delta)
    return _drawn(report.family.claimed), _drawn(pair)


def _drawn(curve: TradeOff) -> Curve:
    return _points((GRID, curve.power(GRID)))


def _points(rates: tuple[Floats, Floats]) -> Curve:
    return list(zip(rates[0].tolist(), rates[1].tolist(), strict=True))


def _measured(point: OperatingPoint, colour: str) -> MeasuredRates:
    (low, high), (left, right) = point.true.interval(0.05), point.false.interval(0.05)
    return MeasuredRates((left, point.false.rate, right), (low, point.true.rate, high), colour)


def _found(found: AuditFindings) -> list[str]:
    return [
        f"At {_percent(point.target)} false alarms ({_share(point.false)} measured): {_share(point.true)} found"
        for point in found.points[:REPORTED]
    ]


def _at_one_percent(found: AuditFindings) -> str:
    point = next((p for p in found.points if p.target == 0.01), None)
    return f"{100 * point.true.rate:.0f}% found at 1% false alarms" if point else "no thresholds were set"


def _flag(found: AuditFindings) -> str:
    return "flagged" if found.flagged else "not refuted"


def _bound(value: float | None) -> str:
    return MISSING if value is None else at_least(value, places=2)


def _percent(rate: float) -> str:
    return f"{100 * rate:g}%"


def _share(trials: Trials) -> str:
    low, high = trials.interval(0.05)
    return f"{100 * trials.rate:.1f}% ({between(low, high, places=1, times=100)})"
