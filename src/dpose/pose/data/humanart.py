"""Human-Art (Ju et al., CVPR 2023): people in photographs, paintings, sculptures and drawings, in COCO's format.

The folder is the dataset's own, called `HumanArt`: `annotations/training_humanart_coco.json`,
`annotations/validation_humanart.json`, `images/2D_virtual_human/...`. Its labels name pictures from the folder above,
"HumanArt/images/..."; those of its training file that are COCO's, "coco/train2017/...", are looked for there too. The
17 joints are COCO's, with COCO's sigmas; its own 21 (`keypoints_21`, with fingers and toes) are not used. A picture's
`category` ("acrobatics", "digital art"; twenty of them) is what tables of scenarios are split by.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dpose.pose.data.augment import Augment
from dpose.pose.data.coco import units_of
from dpose.pose.data.coco_labels import CocoSet, parse_coco
from dpose.pose.data.files import PictureFinder, find_annotations
from dpose.pose.data.units import PoseUnits, UnitKind
from dpose.pose.skeletons import COCO

ANNOTATIONS: Mapping[str, tuple[str, ...]] = {
    "train": ("annotations/training_humanart_coco.json", "annotations/training_humanart.json"),
    "val": ("annotations/validation_humanart.json",),
}
_GET_IT = "give the folder HumanArt that holds annotations/ and images/"


def open_humanart(
    root: Path,
    split: str,
    *,
    input_size: tuple[int, int],
    augment: Augment | None = None,
    unit: UnitKind = "image",
    annotations: str = "",
) -> PoseUnits:
    """One split of Human-Art: a picture with all its people a unit (`dpose.pose.data.coco.open_coco`)."""
    return units_of(
        read_humanart(root, split, annotations), input_size=input_size, augment=augment, unit=unit
    )


def read_humanart(root: Path, split: str, annotations: str = "", pictures: bool = True) -> CocoSet:
    """The labels of one split of Human-Art; without `pictures` those of absent pictures too."""
    path, note = humanart_annotations(root, split, annotations)
    above = root.resolve().parent
    bases = [(above, "HumanArt/"), (above, "coco/")]
    # the same folder under another name, and pictures unpacked without the folders above them
    own = [(root, "HumanArt/"), (root, "HumanArt/images/"), (root / "images", ""), (root, "")]
    return parse_coco(
        path,
        PictureFinder([*((base / prefix.rstrip("/"), prefix) for base, prefix in bases), *own]),
        name=f"humanart:{split}",
        notes=(note,) if note else (),
        group_key="category",
        skeleton=COCO,  # its categories name its own 21
        pictures=pictures,
    )


def humanart_annotations(root: Path, split: str, annotations: str = "") -> tuple[Path, str]:
    """The label file of a split of Human-Art, and a note where it has an unusual name."""
    return find_annotations(root, ANNOTATIONS[split], annotations, b"{", _GET_IT)
