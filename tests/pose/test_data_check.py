import io

import numpy as np
import pytest
from rich.console import Console

from dpose.pose.data import open_data
from dpose.pose.data.check import check_data


def told(report):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(report)
    return console.export_text()


@pytest.mark.parametrize(
    ("name", "pictures", "people"), [("coco", 4, 12), ("mpii", 5, 5), ("humanart", 3, 4)]
)
def test_real_data_are_counted_and_drawn(pose_fixtures, name, pictures, people):
    units = open_data(f"{name}:{pose_fixtures}/{name}", purpose="train", input_size=(256, 192))
    seen = []
    report, sheet = check_data(units, lambda: seen.append(1))
    assert (report.pictures, report.people, len(seen)) == (pictures, people, pictures)
    assert sum(n * count for n, count in report.crowds) == people
    assert report.visible.max() <= people
    assert "No problems found" in told(report)
    assert sheet.shape[1] > 190 * min(people, 8)
    assert (sheet == (255, 140, 60)).all(axis=2).sum() > 50  # a right side was drawn


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
    assert "1 problems" in told(report)
    assert sheet is not None


def test_rendered_data_can_be_checked_too():
    units = open_data("synthetic:studio:test", purpose="train", input_size=(64, 48), limit=3)
    report, sheet = check_data(units)
    assert (report.pictures, report.people) == (3, 3)
    assert np.isfinite(report.heights).all()
    assert sheet.shape[2] == 3
