"""Small labelled folders in the formats that people bring, with a change a test makes to what they say."""

import copy
import json

import numpy as np
import yaml

from dpose.media.images import write_image

WIDTH, HEIGHT = 160, 120
JOINTS = [[40.0 + 2 * j, 15.0 + 5 * j, 1 + j % 2] for j in range(17)]
BOX = [20.0, 10.0, 60.0, 100.0]


def pictures(folder, names):
    """Pictures of one size, each of its own grey."""
    for level, name in enumerate(names, 1):
        write_image(folder / name, np.full((HEIGHT, WIDTH, 3), 40 * level, np.uint8))


def person(own, image, **changes):
    """An annotation in COCO's format."""
    made = {
        "id": own,
        "image_id": image,
        "category_id": 1,
        "bbox": list(BOX),
        "area": 3000.0,
        "iscrowd": 0,
        "num_keypoints": 17,
        "keypoints": [v for joint in JOINTS for v in joint],
    }
    return {**made, **changes}


def coco(root, change=lambda content: None, raw=lambda text: text.encode(), name="labels.json"):
    """Two pictures, the first with two people and the second with one; returns the spec."""
    names = ("1.png", "2.png")
    pictures(root / "images", names)
    content = {
        "images": [{"id": k, "file_name": n, "width": WIDTH, "height": HEIGHT} for k, n in enumerate(names, 1)],
        "annotations": [person(1, 1), person(2, 1), person(3, 2)],
        "categories": [{"id": 1, "name": "person"}],
    }
    content = copy.deepcopy(content)
    change(content)
    (root / name).write_bytes(raw(json.dumps(content)))
    return f"coco:{root}"


def line(joints=JOINTS, values=3, box=(0.3, 0.5, 0.4, 0.8)):
    """A person of YOLO-pose."""
    shares = [[x / WIDTH, y / HEIGHT, v][:values] for x, y, v in joints]
    return " ".join(f"{v:g}" for v in [0, *box, *(v for joint in shares for v in joint)])


def yolo(root, labels=None, encoding="utf-8", name="data.yaml", **settings):
    """Two pictures with a person each; returns the spec."""
    names = ("a.png", "b.png")
    pictures(root / "images" / "train", names)
    for picture in names:
        file = root / "labels" / "train" / f"{picture[0]}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text((labels or line()) + "\n", encoding=encoding)
    said = {"path": ".", "train": "images/train", "names": {0: "person"}, "kpt_shape": [17, 3], **settings}
    (root / name).write_text(yaml.safe_dump(said), encoding=encoding)
    return f"yolo:{root}"
