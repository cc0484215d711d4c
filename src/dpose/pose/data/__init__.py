"""Pose data as units: what a guarantee protects, with crops and labels."""

from dpose.pose.data.augment import Augment
from dpose.pose.data.labels import LabelledPerson, LabelledPicture, Labels, PoseDataset
from dpose.pose.data.pictures import Person, Picture
from dpose.pose.data.spec import SOURCES, DataSpec, open_data, open_labels, open_several
from dpose.pose.data.units import PoseUnits, SubjectUnits, UnitKind

__all__ = [
    "SOURCES",
    "Augment",
    "DataSpec",
    "LabelledPerson",
    "LabelledPicture",
    "Labels",
    "Person",
    "Picture",
    "PoseDataset",
    "PoseUnits",
    "SubjectUnits",
    "UnitKind",
    "open_data",
    "open_labels",
    "open_several",
]
