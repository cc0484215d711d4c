"""The colours of pages and of the charts in them, on light paper and on dark."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

PALETTE: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "paper": ("#fbfaf8", "#14171a"),
        "raised": ("#ffffff", "#1b1f23"),
        "ink": ("#1d2329", "#e4e7ea"),
        "soft": ("#59626c", "#a2acb6"),
        "rule": ("#dcdfe1", "#343b42"),
        "grid": ("#e6e8e9", "#2a3036"),
        "base": ("#77818b", "#8f99a3"),
        "accent": ("#1b5e7b", "#86c5e0"),
        "wash": ("#eaf1f4", "#172a34"),
        "ruled-out": ("#dfe9ee", "#1b3542"),
        "warn": ("#97361f", "#f4a78f"),
        "warn-wash": ("#faeee9", "#36201a"),
        "slate": ("#22303c", "#cbd5e1"),
        "orange": ("#c2410c", "#fb923c"),
        "blue": ("#1d4ed8", "#7aa5ff"),
        "teal": ("#0d9488", "#2dd4bf"),
        "violet": ("#7c3aed", "#b79bff"),
        "amber": ("#b45309", "#f5b942"),
        "rose": ("#be185d", "#f783b5"),
        "olive": ("#4d7c0f", "#a3d65c"),
        "green": ("#15803d", "#4ade80"),
    }
)
"""By name: on light and on dark paper. No colour stands for two names: charts are told apart by it."""

LIGHT: Mapping[str, str] = MappingProxyType({name: light for name, (light, _) in PALETTE.items()})
SERIES = ("slate", "orange", "blue", "teal", "violet", "amber", "rose", "olive")
"""For lines that are told apart by colour, in this order."""
