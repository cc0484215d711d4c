"""The picture of an audit: what was found, beside what the claim allows."""

from __future__ import annotations

import io

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from dpose.audits.findings import AuditFindings, AuditReport
from dpose.audits.tradeoff import approximate
from dpose.privacy.rounding import lower, upper

LEAST = 5e-4
"""Where the logarithmic axes begin."""
INK, RUN, CONTROLS = "#22303c", "#c2410c", ("#2563eb", "#0d9488", "#7c3aed")
FORBIDDEN, ALLOWED = "#e5e7eb", "#f6f7f9"


def picture(report: AuditReport) -> bytes:
    """A PNG: true against false positives on logarithmic axes, and the lower bounds on epsilon beside it.

    The shaded area is what the claim rules out: dark for (epsilon, delta), light for the rest of its curve.
    """
    figure = Figure(figsize=(11.0, 5.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(1.55, 1))
    _curves(left, report)
    _bounds(right, report)
    verdict = "FLAGGED: the claim is refuted" if report.findings.flagged else "not refuted"
    if report.planted:
        verdict += f" (planted: {report.planted})"
    figure.suptitle(f"{report.title}\n{verdict}", color=INK, fontsize=12)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": ""})
    return buffer.getvalue()


def _curves(axes: Axes, report: AuditReport) -> None:
    fpr = np.geomspace(LEAST, 1.0, 300)
    claim = report.claim
    pair = approximate(claim["epsilon"], claim["delta"]).power(fpr)
    exact = report.family.claimed.power(fpr)
    axes.fill_between(fpr, exact, 1.0, color=ALLOWED, zorder=0)
    axes.fill_between(fpr, pair, 1.0, color=FORBIDDEN, zorder=1)
    label = f"most at epsilon {upper(claim['epsilon'])}, delta {upper(claim['delta'])}"
    axes.plot(fpr, pair, color=INK, lw=1.2, ls="--", label=label, zorder=2)
    axes.plot(fpr, exact, color=INK, lw=1.6, label="most with the claimed noise and sampling", zorder=2)
    axes.plot(fpr, fpr, color="#9ca3af", lw=1.0, ls=":", label="guessing", zorder=2)
    runs = {"this run": report.findings, **report.controls}
    for colour, (name, found) in zip((RUN, *CONTROLS), runs.items(), strict=False):
        label = name if name == "this run" else f"control: {name}"
        axes.step(
            *found.curve,
            where="post",
            color=colour,
            lw=2.0 if name == "this run" else 1.2,
            label=label,
            zorder=3,
        )
        _points(axes, found, colour)
    axes.set(xscale="log", yscale="log", xlim=(LEAST, 1.0), ylim=(LEAST, 1.15))
    axes.set_xlabel("false positives: canaries left out, taken to be in")
    axes.set_ylabel("true positives: canaries in, found")
    percent = FuncFormatter(lambda value, _: f"{100 * value:g} %")
    axes.xaxis.set_major_formatter(percent)
    axes.yaxis.set_major_formatter(percent)
    axes.legend(loc="lower right", fontsize=8, framealpha=0.95)
    _plain(axes)


def _points(axes: Axes, found: AuditFindings, colour: str) -> None:
    """The reported operating points, with 95 % intervals both ways."""
    for point in found.points[:2]:
        x, y = max(point.false.rate, LEAST), max(point.true.rate, LEAST)
        ends = [np.clip(trials.interval(0.05), LEAST, 1.0) for trials in (point.false, point.true)]
        widths = [[[max(0.0, v - e[0])], [max(0.0, e[1] - v)]] for v, e in zip((x, y), ends, strict=True)]
        axes.errorbar(
            x,
            y,
            xerr=widths[0],
            yerr=widths[1],
            fmt="o",
            ms=4,
            color=colour,
            elinewidth=1,
            capsize=2,
            zorder=4,
        )


def _bounds(axes: Axes, report: AuditReport) -> None:
    runs = {"this run": report.findings, **report.controls}
    tests = [test for test, value in report.findings.bounds.items() if value is not None]
    height = 0.8 / len(runs)
    for k, (colour, (name, found)) in enumerate(zip((RUN, *CONTROLS), runs.items(), strict=False)):
        values = [found.bounds[test] or 0.0 for test in tests]
        rows = np.arange(len(tests)) + (k - (len(runs) - 1) / 2) * height
        axes.barh(rows, values, height=0.9 * height, color=colour, label=name, zorder=2)
        for row, value in zip(rows, values, strict=True):
            axes.text(value, row, f" {lower(value, places=2)}", va="center", fontsize=8, color=INK)
    axes.axvline(report.claim["epsilon"], color=INK, lw=1.4, ls="--", zorder=3)
    axes.text(report.claim["epsilon"], -0.62, " claimed", fontsize=8, color=INK, va="center")
    axes.set_yticks(
        range(len(tests)), [test.replace(" in ", "\nin ").replace(", ", ",\n", 2) for test in tests]
    )
    axes.invert_yaxis()
    most = max([report.claim["epsilon"], *(run.bound for run in runs.values())])
    axes.set_xlim(0, 1.18 * most)
    axes.set_xlabel(f"epsilon is at least (confidence {lower(1 - report.alpha)})")
    axes.legend(loc="lower right", fontsize=8, framealpha=0.95)
    _plain(axes)


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, colors=INK)
    axes.grid(True, which="major", color="#e5e7eb", lw=0.6, zorder=0)
    axes.xaxis.label.set(color=INK, fontsize=9)
    axes.yaxis.label.set(color=INK, fontsize=9)
