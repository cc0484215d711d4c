"""A score of somebody's predictions tells of the labels: it is charged as any score of them is."""

import json
import shutil

import pytest
from rich.console import Console

from dpose.errors import DposeError
from dpose.privacy.odometer import EVALUATION, Budget, State, charges, set_budget
from dpose.runs.budget import identity_of_data
from dpose.runs.scoring import score_file
from quick import quick  # noqa: F401


@pytest.fixture
def coco(pose_fixtures, tmp_path):
    """A copy of real data, and one prediction."""
    root = shutil.copytree(pose_fixtures / "coco", tmp_path / "coco")
    image = json.loads((root / "test_coco.json").read_text())["images"][0]["id"]
    found = [{"image_id": image, "category_id": 1, "keypoints": [10.0, 10.0, 1.0] * 17, "score": 0.5}]
    (tmp_path / "found.json").write_text(json.dumps(found))
    return root


def scored(root):
    data = f"coco:{root},annotations=test_coco.json"
    return score_file(root.parent / "found.json", data, Console(quiet=True))


def test_it_is_charged_to_its_pictures_and_a_budget_refuses_it(coco):
    scored(coco)
    (charge,) = charges()
    assert (charge.what, charge.state) == (EVALUATION, State.COMMITTED)
    assert charge.stored.marks >= 4
    marks = identity_of_data(f"coco:{coco}:val,annotations=test_coco.json", Console(quiet=True)).marks
    set_budget(Budget(1.0, 1e-5, "coco", marks[:1]))
    with pytest.raises(DposeError, match="budget"):
        scored(coco)
