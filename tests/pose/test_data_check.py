import io
import json

import cv2
import numpy as np
import pytest
from PIL import Image as Pillow
from rich.console import Console

from dpose.media.images import encode_image
from dpose.pose.data import open_data
from dpose.pose.data.check import CheckWork, check_data, check_on_engine
from dying import Dying


def reported(report):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(report)
    return console.export_text()


@pytest.mark.parametrize(("name", "pictures", "people"), [("coco", 4, 12), ("mpii", 5, 5), ("humanart", 3, 4)])
def test_real_data_are_counted_and_drawn(pose_fixtures, name, pictures, people):
    units = open_data(f"{name}:{pose_fixtures}/{name}", purpose="train", input_size=(256, 192))
    seen = []
    report, sheet = check_data(units, lambda: seen.append(1))
    assert (report.pictures, report.people, len(seen)) == (pictures, people, pictures)
    assert sum(n * count for n, count in report.crowds) == people
    assert report.visible.max() <= people
    assert "No problems found" in reported(report)
    assert sheet.shape[1] > 190 * min(people, 8)
    assert (sheet == (255, 140, 60)).all(axis=2).sum() > 50  # a right side was drawn


def test_an_engines_workers_find_the_same(pose_fixtures, monkeypatch):
    monkeypatch.setattr("dpose.pose.data.check._AT_ONCE", 2)
    spec = f"mpii:{pose_fixtures}/mpii"
    units, moved = open_data(spec, purpose="train", input_size=(256, 192)), []
    checked = check_on_engine(units, CheckWork(spec), Dying({0}), lambda: moved.append(1))
    (one, sheet), (other, same) = check_data(units), check_data(units, checked=checked)
    assert len(moved) == 5
    assert reported(one) == reported(other)
    assert (sheet == same).all()


def test_joints_are_counted_by_name(pose_fixtures):
    units = open_data(f"mpii:{pose_fixtures}/mpii", purpose="train", input_size=(256, 192))
    report, _ = check_data(units)
    assert dict(zip(report.skeleton.joints, report.visible.tolist(), strict=True))["r_ankle"] == 3


def test_a_damaged_picture_is_told_and_the_rest_is_read(pose_fixtures, tmp_path):
    import shutil

    root = tmp_path / "mpii"
    root.mkdir()
    for path in (pose_fixtures / "mpii").iterdir():
        shutil.copyfile(path, root / path.name)
    broken = root / "052475643.jpg"
    broken.write_bytes(broken.read_bytes()[:5000])
    units = open_data(f"mpii:{root}", purpose="train", input_size=(256, 192))
    report, sheet = check_data(units)
    assert report.pictures == 4
    assert [str(p) for p in report.problems] == ["052475643.jpg: the jpeg file is cut short; skipped"]
    assert reported(report).rstrip().endswith("1 problem")
    assert sheet is not None


def test_pictures_of_every_kind_are_read_or_told_and_counted(tmp_path):
    """What a folder of strangers' pictures holds: deep, grey, CMYK, turned, animated; and what is no picture."""
    rng = np.random.default_rng(0)
    scene = cv2.GaussianBlur(rng.integers(0, 256, (90, 120, 3), np.uint8), (0, 0), 6)
    picture = Pillow.fromarray(scene)
    turn = Pillow.Exif()
    turn[0x0112] = 6
    frames = {"save_all": True, "append_images": [Pillow.fromarray(255 - scene)], "duration": 100}
    kinds = {
        "deep.png": lambda path: cv2.imwrite(str(path), scene[..., 0].astype(np.uint16) * 257),
        "grey.jpg": lambda path: picture.convert("L").save(path),
        "cmyk.jpg": lambda path: picture.convert("CMYK").save(path),
        "turned.jpg": lambda path: Pillow.fromarray(np.rot90(scene).copy()).save(path, exif=turn),
        "moving.webp": lambda path: picture.save(path, lossless=True, **frames),
        "moving.png": lambda path: picture.save(path, **frames),
        "Zo\u00eb.png": lambda path: picture.save(path),
        "moving.gif": lambda path: picture.save(path, **frames),
        "short.png": lambda path: path.write_bytes(encode_image(scene, ".png")[:-40]),
        "text.jpg": lambda path: path.write_text("not a picture"),
        "small.png": lambda path: picture.resize((60, 45)).save(path),
        "gone.png": lambda path: None,
    }
    (tmp_path / "images").mkdir()
    for name, make in kinds.items():
        make(tmp_path / "images" / name)
    point = [60.0, 45.0, 2]
    labels = {
        "images": [
            {"id": i, "file_name": name, "width": 120, "height": 90} for i, name in enumerate(kinds, 1)
        ],
        "annotations": [
            {"id": i, "image_id": i, "category_id": 1, "keypoints": point * 17, "num_keypoints": 17,
             "bbox": [20, 10, 80, 70], "area": 3000.0, "iscrowd": 0}
            for i in range(1, len(kinds) + 1)
        ],
        "categories": [{"id": 1, "name": "person"}],
    }  # fmt: skip
    (tmp_path / "person_keypoints_train2017.json").write_text(json.dumps(labels))
    units = open_data(f"coco:{tmp_path}", purpose="train", input_size=(64, 48))
    report, _ = check_data(units)
    assert (report.pictures, report.people) == (8, 8)
    read = {p.name: p.read()[0] for p in units.pictures[:8]}
    for name in ("cmyk.jpg", "turned.jpg", "moving.webp", "moving.png", "moving.gif"):
        assert np.abs(read[name].astype(int) - scene).mean() < 8, name  # of the moving ones the first frame
    for name in ("deep.png", "grey.jpg"):
        assert (read[name] == read[name][..., :1]).all(), name
    lines = reported(report)
    for line in (
        "image 12: the picture is missing (gone.png); skipped",
        "short.png: the png file is cut short; skipped",
        "text.jpg: not a readable picture: not a JPEG, PNG, WebP, BMP, TIFF, GIF, AVIF or HEIC picture; skipped",
        "small.png: is 60 x 45 pixels, but its labels are for 120 x 90; skipped",
    ):
        assert line in lines, line
    assert lines.rstrip().endswith("5 problems")  # with the missing picture's person


def test_rendered_data_can_be_checked_too():
    units = open_data("synthetic:studio:test", purpose="train", input_size=(64, 48), limit=3)
    report, sheet = check_data(units)
    assert (report.pictures, report.people) == (3, 3)
    assert np.isfinite(report.heights).all()
    assert sheet.shape[2] == 3
