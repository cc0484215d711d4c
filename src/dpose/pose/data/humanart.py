"""Human-Art (Ju et al., CVPR 2023): people in photographs, paintings, sculptures and drawings, in COCO's format.

The folder is the dataset's own, called `HumanArt`: `annotations/training_humanart_coco.json`,
`annotations/validation_humanart.json`, `images/2D_virtual_human/...`. Its labels name pictures from the folder above,
"HumanArt/images/..."; those of its training file that are COCO's, "coco/train2017/...", are looked for there too. The
17 joints are COCO's, with COCO's sigmas; its own 21 (`keypoints_21`, with fingers and toes) are not used. A picture's
`category` ("acrobatics", "digital art"; twenty of them) is what tables of scenarios are split by.
"""

from __future__ import annotations

from pathlib import Path

from dpose.pose.data import coco
from dpose.pose.data.files import LabelFile, PictureFinder
from dpose.pose.data.labels import Labels, photographs
from dpose.pose.skeletons import COCO

LABEL_FILE = LabelFile(
    {
        "train": ("annotations/training_humanart_coco.json", "annotations/training_humanart.json"),
        "val": ("annotations/validation_humanart.json",),
    },
    b"{",
    "give the folder HumanArt that holds annotations/ and images/",
)


def read_humanart(root: Path, split: str, annotations: str = "", pictures: bool = True) -> Labels:
    """The labels of one split of Human-Art (`dpose.pose.data.coco.read_coco`)."""
    path, note = LABEL_FILE.find(root, split, annotations)
    above = root.resolve().parent
    bases = [(above / "HumanArt", "HumanArt/"), (above / "coco", "coco/")]
    # the same folder under another name, and pictures unpacked without the folders above them
    bases += [(root, "HumanArt/"), (root, "HumanArt/images/"), (root / "images", ""), (root, "")]
    return coco.parse_coco(
        path,
        PictureFinder(bases),
        name=f"humanart:{split}",
        notes=(note,) if note else (),
        group_key="category",
        skeleton=COCO,  # its categories name its own 21
        pictures=pictures,
    )


DATASET = photographs(read_humanart, skeleton=COCO, label_file=LABEL_FILE, oks=True)
