"""Release algorithms of papers as printed: the entry point of the group `dpose.operators`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dpose.release.published import PublishedPlan
from dpose_lab.baselines.pixelization import PaperPlan
from dpose_lab.baselines.video_dprp import DensePlan

PUBLISHED: Mapping[str, Callable[..., PublishedPlan]] = {"pictures": PaperPlan.of, "videos": DensePlan.of}
"""Makers of plans from a `Pixelization` (pictures) or a `Projection` (videos) and a `Shape`."""
