"""Pose data as units: what a guarantee protects, with crops and labels."""

from dpose.pose.data.augment import Augment
from dpose.pose.data.spec import DataSpec, open_data
from dpose.pose.data.units import Person, Picture, PoseUnits, UnitKind

__all__ = ["Augment", "DataSpec", "Person", "Picture", "PoseUnits", "UnitKind", "open_data"]
