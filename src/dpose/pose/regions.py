"""Which finder of people a model's crops are made with."""

from __future__ import annotations

from dpose.pose.data.units import Regions
from dpose.pose.model import PoseConfig


def regions_for(model: PoseConfig) -> Regions | None:
    """What finds where to crop people for a model; None where it takes the boxes as they are given.

    BlazePose has learnt from upright people alone: its detector says how they are turned.
    """
    if model.codec != "blazepose":
        return None
    from dpose.pose.blaze_detector import shipped_detector

    return shipped_detector()
