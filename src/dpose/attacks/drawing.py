"""Figures of attacks: one colour a release, plain attackers dashed, adaptive ones solid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpose.attacks.identities import PersonPictures, Picture
from dpose.attacks.transforms import Transform
from dpose.report.plots import INK, finish, pictures, png, sheet
from dpose.report.results import Drawing

COLOURS = ("#22303c", "#c2410c", "#2563eb", "#0d9488", "#7c3aed", "#b45309", "#be185d", "#4d7c0f")
CHANCE = "#9ca3af"
SAMPLES = 4
"""People in a sheet of pictures."""

Curve = tuple[Sequence[float], Sequence[float]]


def curves(
    name: str,
    title: str,
    rows: Sequence[tuple[str, str, Curve]],
    chance: Curve,
    axes_titles: tuple[str, str],
    caption: str,
    *,
    log_x: bool = False,
) -> Drawing:
    """Curves of rates, with what guessing gives in grey.

    Args:
        name: Of the file.
        title: Above the panel.
        rows: (release, attacker, curve); attackers are "plain" or "adaptive".
        chance: The curve of guessing.
        axes_titles: Below and beside.
        caption: What it shows.
        log_x: Whether the lower axis is logarithmic.
    """
    figure, axes = sheet(1, 1, title, width=10.0, height=4.4)
    panel = axes[0, 0]
    releases = list(dict.fromkeys(release for release, _, _ in rows))
    for release, attacker, (x, y) in rows:
        colour = COLOURS[releases.index(release) % len(COLOURS)]
        style = "--" if attacker == "plain" else "-"
        panel.plot(x, y, style, color=colour, lw=1.7, label=f"{release}; {attacker}")
    panel.plot(*chance, ":", color=CHANCE, lw=1.6, label="guessing")
    finish(panel, *axes_titles)
    panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, frameon=False, labelcolor=INK)
    if log_x:
        panel.set_xscale("log")
    panel.set_ylim(-0.01, 1.02)
    return Drawing(name, png(figure), caption)


def attack_bars(
    name: str,
    title: str,
    names: Sequence[str],
    rows: Sequence[tuple[str, Sequence[float]]],
    y_title: str,
    caption: str,
) -> Drawing:
    """Groups of bars, one a row; the last row is what guessing gives."""
    figure, axes = sheet(1, 1, title, width=max(7.0, 0.8 * len(names)), height=4.0)
    panel = axes[0, 0]
    width = 0.84 / len(rows)
    for k, (label, values) in enumerate(rows):
        colour = CHANCE if k == len(rows) - 1 else COLOURS[k % len(COLOURS)]
        at = np.arange(len(names)) + (k - (len(rows) - 1) / 2) * width
        panel.bar(at, values, width=0.92 * width, color=colour, label=label, zorder=2)
    finish(panel, "", y_title, legend=True, zero=True)
    panel.set_xticks(range(len(names)), list(names), rotation=28, ha="right", fontsize=8, color=INK)
    return Drawing(name, png(figure), caption)


def samples(originals: PersonPictures, shown: Sequence[tuple[Transform, PersonPictures]]) -> Drawing:
    """A few people as they are, and as each release shows them."""
    _, first = np.unique(originals.people, return_index=True)
    chosen = sorted(first.tolist())[:SAMPLES]
    panels: list[tuple[str, Picture]] = []
    for k in chosen:
        panels += [(short_title(one), album.pictures[k]) for one, album in shown]
    caption = "Pictures that are looked for: " + "; ".join(one.title for one, _ in shown)
    return Drawing("pictures", pictures(panels, len(shown)), caption)


def short_title(one: Transform) -> str:
    """A release's title, for above a small picture."""
    return (
        one.title.replace("dpose pixelize, ", "dp ")
        .replace("public view, ", "")
        .replace("Gaussian blur of", "blur of")
        .split(", sigma")[0]
    )
