"""What reads the labels of datasets, and files of predictions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from dpose.action.data.sources import VideoFile
from dpose.action.data.spec import open_ucf101
from dpose.pose.boxes import read_detections
from dpose.pose.data.coco import read_coco, read_humanart
from dpose.pose.data.lspet import _read_labels
from dpose.pose.data.mpii import read_mpii
from dpose.pose.data.yolo import read_yolo
from dpose.pose.evaluate import _json_points, _mat_points
from dpose_lab.photos.celeba import open_celeba
from dpose_lab.photos.mot import open_mot
from fuzzing import samples
from fuzzing.mutations import any_json, any_mat, any_text, any_yaml
from fuzzing.reader import Reader

YOLO_FILE = b"train: images\nval: images\nnames: ['person']\nkpt_shape: [3, 3]\nflip_idx: [1, 0, 2]\n"
YOLO_LINE = b"0 0.5 0.5 0.4 0.6 0.4 0.3 2 0.6 0.3 1 0 0 0\n"


def inside(paths: Iterable[Path | None], folder: Path) -> str:
    """That all of these paths lie in a folder; the canaries of a traversal do not.

    Raises:
        AssertionError: one does not.
    """
    outside = [path for path in paths if path is None or not path.resolve().is_relative_to(folder.resolve())]
    assert not outside, f"led out of the folder: {outside}"
    return ""


def put_coco(root: Path, labels: bytes) -> None:
    """A COCO folder of two pictures."""
    picture = samples.pictures()[".png"]
    samples.put(root, {f"train2017/{i}.png": picture for i in (1, 2)} | {f"val2017/{i}.png": picture for i in (1, 2)})
    for split in ("train", "val"):
        samples.put(root, {f"annotations/person_keypoints_{split}2017.json": labels})


def put_mpii(root: Path, labels: bytes, boxes: bytes) -> None:
    """An MPII folder of two pictures."""
    picture = samples.pictures()[".png"]
    samples.put(root, {f"images/{i}.png": picture for i in (1, 2)})
    samples.put(root, {"annot/train.json": labels, "annot/valid.json": labels, "annot/gt_valid.mat": boxes})


def put_yolo(root: Path, described: bytes = YOLO_FILE, line: bytes = YOLO_LINE) -> None:
    """A YOLO folder of one picture."""
    samples.put(root, {"images/a.png": samples.pictures()[".png"], "labels/a.txt": line, "data.yaml": described})


def mpii_boxes() -> bytes:
    """Head boxes of the people of `samples.mpii`."""
    joints = np.stack([[2.0 + np.arange(16), 1.0 + np.arange(16)]] * 2).transpose(2, 1, 0)
    return samples.mat(headboxes_src=np.arange(8.0).reshape(2, 2, 2), pos_gt_src=joints)


def _coco() -> Reader:
    def read(path: Path) -> str:
        put_coco(path.parent, path.read_bytes())
        return inside((picture.path for picture in read_coco(path.parent, "train").pictures), path.parent)

    return Reader({".json": samples.coco()}, any_json, read)


def _humanart() -> Reader:
    def read(path: Path) -> str:
        root = path.parent / "HumanArt"
        picture = samples.pictures()[".png"]
        samples.put(root, {f"images/a/{i}.png": picture for i in (1, 2)})
        samples.put(root, {"annotations/training_humanart.json": path.read_bytes()})
        return inside((picture.path for picture in read_humanart(root, "train").pictures), path.parent)

    return Reader({".json": samples.coco(("HumanArt/images/a/1.png", "HumanArt/images/a/2.png"))}, any_json, read)


def _mpii() -> Reader:
    def read(path: Path) -> str:
        own = path.read_bytes()
        labels = own if path.suffix == ".json" else samples.mpii()
        put_mpii(path.parent, labels, own if path.suffix == ".mat" else mpii_boxes())
        return inside((picture.path for picture in read_mpii(path.parent, "val").pictures), path.parent)

    return Reader({".json": samples.mpii(), ".mat": mpii_boxes()}, {".json": any_json, ".mat": any_mat}, read)


def _yolo() -> Reader:
    def read(path: Path) -> str:
        own = path.read_bytes()
        put_yolo(path.parent, **({"described": own} if path.suffix == ".yaml" else {"line": own}))
        read_yolo(path.parent, "train")
        return ""

    return Reader({".yaml": YOLO_FILE, ".txt": YOLO_LINE}, {".yaml": any_yaml, ".txt": any_text}, read)


def _lspet() -> Reader:
    def read(path: Path) -> str:
        _read_labels(path, {"train": (1, 3)})
        return ""

    return Reader({".mat": samples.mat(joints=np.ones((14, 3, 3)))}, any_mat, read)


def _predictions() -> Reader:
    people = np.arange(64.0).reshape(2, 16, 2)
    files = {".mat": samples.mat(preds=people), ".json": json.dumps(people.tolist()).encode()}

    def read(path: Path) -> str:
        (_mat_points if path.suffix == ".mat" else _json_points)(path)
        return ""

    return Reader(files, {".mat": any_mat, ".json": any_json}, read)


DETECTIONS = json.dumps(
    [{"image_id": i, "category_id": 1, "bbox": [2.0, 1.0, 20.0, 16.0], "score": 0.9} for i in (1, 2)]
).encode()


def _detections() -> Reader:
    def read(path: Path) -> str:
        read_detections(path)
        return ""

    return Reader({".json": DETECTIONS}, any_json, read)


def _lists() -> Reader:
    """Boxes and descriptions of MOT's sequences, identities of CelebA, lists of UCF101."""
    files = {
        ".mot": b"1,-1,10,10,20,20,1,1,1\n2,-1,12,10,20,20,1,1,1\n",
        ".ini": b"[Sequence]\nname=a\nimDir=img1\nframeRate=30\nimExt=.png\n",
        ".celeba": b"000001.jpg 17\n000002.jpg 18\n",
        ".ucf": b"A/v_A_g01_c01.avi 1\nA/v_A_g02_c01.avi 1\n",
    }

    def read(path: Path) -> str:
        root, own, picture = path.parent, path.read_bytes(), samples.pictures()[".png"]
        if path.suffix == ".celeba":
            samples.put(root, {"img_align_celeba/000001.jpg": picture, "identity_CelebA.txt": own})
            open_celeba(root)
        elif path.suffix == ".ucf":
            samples.put(root, {"UCF-101/A/v_A_g01_c01.avi": samples.clips()[".avi"]})
            lists = {"classInd.txt": b"1 A\n", "trainlist01.txt": own}
            samples.put(root / "ucfTrainTestlist", lists)
            found = open_ucf101(root, "train").videos
            return inside((one.source.path if isinstance(one.source, VideoFile) else None for one in found), root)
        else:
            samples.put(root, {"img1/000001.png": picture, "gt/gt.txt": files[".mot"]})
            samples.put(root, {"seqinfo.ini": files[".ini"]})
            path.rename(root / ("seqinfo.ini" if path.suffix == ".ini" else "gt/gt.txt"))
            open_mot(root)
        return ""

    return Reader(files, any_text, read)


READERS: Mapping[str, Callable[[], Reader]] = {
    "coco": _coco, "humanart": _humanart, "mpii": _mpii, "yolo": _yolo, "lspet": _lspet,
    "predictions": _predictions, "detections": _detections, "lists": _lists,
}  # fmt: skip
