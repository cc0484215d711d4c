"""Figures of a grid: PCKh by epsilon with error bars, and C by epsilon as heat maps."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, cast

from matplotlib.axes import Axes

from dpose.report.inline import LIGHT
from dpose.report.plots import sheet
from dpose.report.results import Figure
from dpose_lab.papers.experiment import Outcome
from dpose_lab.papers.pose.benchmarks import STRATEGIES, Design
from dpose_lab.papers.pose.settings import CEILING
from dpose_lab.papers.pose.tables import SHARP, VIEWS, Ours, Span, by_setting
from dpose_lab.papers.pose.training_cell import OWN_SETTINGS, RECOMMENDED, START, Training
from dpose_lab.plots import finish, heat_map, rendered

COLOURS = {
    "dp-sgd": LIGHT["blue"],
    "pdp-sgd": LIGHT["orange"],
    "subspace-sgd": LIGHT["amber"],
    "scaled-sgd": LIGHT["olive"],
    "fdp-sgd": LIGHT["violet"],
    "fpdp-sgd": LIGHT["green"],
    "dp-head": LIGHT["orange"],
    "adassp-head": LIGHT["violet"],
    RECOMMENDED: LIGHT["rose"],
    "non-private": LIGHT["slate"],
    "public-only": LIGHT["teal"],
    START: LIGHT["base"],
}
MARKS = {
    "dp-sgd": "o",
    "pdp-sgd": "s",
    "subspace-sgd": "P",
    "scaled-sgd": "X",
    "fdp-sgd": "^",
    "fpdp-sgd": "D",
    "dp-head": "v",
    "adassp-head": "<",
    RECOMMENDED: "*",
}

DOTS: Any = (0, (1, 1))
"""Style of a line beside the ceiling's, which has the same colour."""

Curves = Mapping[Training, float]


def grid_figures(design: Design, outcomes: Sequence[Outcome]) -> tuple[Figure, ...]:
    """Draw curves if there is a private number, and heat maps if our results have two C."""
    ours = by_setting(outcomes)
    paper = {
        Training(x.method, x.strategy, x.clip_norm, x.epsilon): x.values[_column(design)]
        for table in design.tables
        for x in table.lines
        if x.sure
    }
    drawn = []
    if any(t.private for t in (*paper, *_means(ours))):
        drawn.append(_curves(design, ours, paper))
    maps = _heat_maps(design, ours, paper)
    return (*drawn, *([maps] if maps else []))


def _curves(design: Design, ours: Mapping[Training, Ours], paper: Curves) -> Figure:
    means = _means(ours)
    private = [t for t in means if t.private]
    if any(t.strategy == OWN_SETTINGS for t in private):  # the recipe is drawn in that panel, too
        private = [t for t in private if t.method != RECOMMENDED]
    strategies = _present([t.strategy for t in private]) or _present([t.strategy for t in paper])
    numbers = {t.clip_norm for t in (*means, *paper) if t.private and t.strategy in strategies and t.clip_norm}
    # the recipe alone has no C in its row
    clip_norms: list[float | None] = [*sorted(numbers, reverse=True)] or [None]
    alone = len(clip_norms) == 1
    figure, axes = sheet(
        len(strategies),
        len(clip_norms),
        f"{design.name}: {_metric(design)} by epsilon",
        width=6.5 if alone else 3.5,
        height=3.8 if alone else 3.0,
    )
    for row, strategy in enumerate(strategies):
        for column, clip_norm in enumerate(clip_norms):
            panel = axes[row, column]
            ticks = _panel(panel, ours, paper, strategy, clip_norm)
            title = STRATEGIES[strategy] + (f", C = {clip_norm:g}" if clip_norm else "")
            panel.set_title(title, fontsize=9)
            label = "" if column else _metric(design)
            finish(panel, "epsilon", label, ticks=ticks, log_x=True)
    # one scale for all panels; from zero where the paper's numbers span most of it anyway
    low = 0.0 if paper else min(panel.get_ylim()[0] for panel in axes.flat)
    top = max(panel.get_ylim()[1] for panel in axes.flat)
    for panel in axes.flat:
        panel.set_ylim(low, top)
    handles = {label: h for a in axes.flat for h, label in zip(*a.get_legend_handles_labels(), strict=True)}
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=3 if alone else 4, fontsize=8, frameon=False
    )
    caption = f"{_metric(design)} by epsilon: ours solid; flat lines need no epsilon"
    if any(len(o.numbers(_column(design))) > 1 for o in ours.values()):
        caption += "; bars are standard deviations over repetitions"
    if paper:
        caption += "; the paper's dashed, on its own data and model"
    return rendered(f"{_file(design)}-curves", figure, caption)


def _panel(
    panel: Axes, ours: Mapping[Training, Ours], paper: Curves, strategy: str, clip_norm: float | None
) -> list[float]:
    """One strategy and C; the epsilons that are drawn."""
    ticks: set[float] = set()
    for method, colour in COLOURS.items():
        chosen = [
            t
            for t in (*ours, *paper)
            if t.method == method
            and (t.strategy == strategy or (method == RECOMMENDED and strategy == OWN_SETTINGS))
            and t.clip_norm in (clip_norm, None)
        ]
        printed = sorted((t.epsilon, paper[t]) for t in set(chosen) if t in paper and t.epsilon)
        mine = [(t, _numbers(ours[t])) for t in sorted(set(chosen)) if t in ours and _numbers(ours[t])]
        if printed:
            panel.plot(*zip(*printed, strict=True), "--", color=colour, lw=1.1, alpha=0.7, label=f"{method}, paper")
        if mine and method in MARKS:
            x = [t.epsilon or 0.0 for t, _ in mine]
            y = [statistics.mean(n) for _, n in mine]
            spread = [statistics.stdev(n) if len(n) > 1 else 0.0 for _, n in mine]
            panel.errorbar(
                x,
                y,
                yerr=spread if any(spread) else None,
                color=colour,
                marker=MARKS[method],
                markersize=4,
                lw=1.5,
                capsize=2.5,
                label=method,
            )
        ticks |= {e for e, _ in printed} | {t.epsilon for t, _ in mine if t.epsilon}
    span = None if strategy == "scratch" else Span.of(ours)
    own = strategy == OWN_SETTINGS
    for training, scores, style, label in (
        *([(Training(CEILING, OWN_SETTINGS), SHARP, "-", "ceiling")] if span or own else []),
        *([] if own else [(Training(CEILING, strategy), SHARP, DOTS if span else "-", CEILING)]),
        (Training("public-only", strategy), SHARP, "-", "public-only, sharp pictures"),
        (Training("public-only", strategy), VIEWS, ":", "public-only, public views"),
        *([] if strategy == "scratch" else [(Training(START, START), SHARP, "-.", "starting model")]),
    ):
        numbers = _numbers(ours[training], scores) if training in ours else []
        if numbers:
            value = statistics.mean(numbers)
            colour, (low, high) = COLOURS[training.method], panel.get_ylim()
            if scores == VIEWS and not paper and value < low - (high - low):
                # a scale that holds it would take more than half of the panel
                panel.plot([], [], ls=style, color=colour, lw=1.1, label=f"{label}: {value:.1f}, below")
            else:
                panel.axhline(value, color=colour, ls=style, lw=1.1, label=label)
    if span:
        right = panel.secondary_yaxis("right", functions=cast("Any", (span.share, span.score)))
        right.set_ylabel("recovered share, percent", fontsize=8)
        right.tick_params(labelsize=8)
    return _apart(sorted(ticks))


def _apart(ticks: Sequence[float]) -> list[float]:
    """Select ticks that leave room for their labels on a logarithmic axis."""
    spaced: list[float] = []
    for tick in ticks:
        if not spaced or tick / spaced[-1] > 1.3:
            spaced.append(tick)
    return spaced


def _heat_maps(design: Design, ours: Mapping[Training, Ours], paper: Curves) -> Figure | None:
    means = {t: statistics.mean(_numbers(o)) for t, o in ours.items() if t.clip_norm and _numbers(o)}
    panels = list(dict.fromkeys((t.method, t.strategy) for t in means))
    if len({t.clip_norm for t in means}) < 2:
        return None  # one C by epsilon is a curve, and is drawn as one
    clip_norms = sorted({t.clip_norm for t in means if t.clip_norm})
    epsilons = sorted({t.epsilon for t in means if t.epsilon})
    sources: list[tuple[str, Curves]] = [("ours", means)]
    if paper:
        sources.append(("the paper's", paper))
    figure, axes = sheet(
        len(panels), len(sources), f"{design.name}: {_metric(design)} by C and epsilon", width=4.2, height=1.9
    )
    shown = [v for _, values in sources for t, v in values.items() if (t.method, t.strategy) in panels]
    span = min(shown), max(shown)  # one for all panels, or noise would look like an effect
    for row, (method, strategy) in enumerate(panels):
        for column, (whose, values) in enumerate(sources):
            heat_map(
                axes[row, column],
                {
                    (e, c): values[t]
                    for e in epsilons
                    for c in clip_norms
                    if (t := Training(method, strategy, c, e)) in values
                },
                ("epsilon", epsilons),
                ("C", clip_norms),
                f"{method}, {strategy}: {whose}",
                span,
                ".1f",
                missing="not run",
            )
    caption = f"{_metric(design)} by clipping norm C and epsilon, one scale of colours" + (
        "; the paper's for the same settings, on its own data and model" if paper else ""
    )
    return rendered(f"{_file(design)}-heat", figure, caption)


def _numbers(ours: Ours, scores: str = SHARP) -> list[float]:
    return ours.numbers("Mean", scores) or ours.numbers("AP", scores)


def _means(ours: Mapping[Training, Ours]) -> list[Training]:
    return [training for training, o in ours.items() if _numbers(o)]


def _present(strategies: Sequence[str]) -> list[str]:
    return [strategy for strategy in STRATEGIES if strategy in strategies]


def _column(design: Design) -> str:
    return "AP" if any(table.scored_by == "OKS AP" for table in design.tables) else "Mean"


def _metric(design: Design) -> str:
    return "AP (percent)" if _column(design) == "AP" else "mean PCKh@0.5 (percent)"


def _file(design: Design) -> str:
    return design.name.replace("/", "-")
