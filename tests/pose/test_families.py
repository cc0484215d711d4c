"""Every family of timm's models takes two private steps, or is refused in one line: what the guide's table says."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("backbones_tried", ROOT / "benchmarks" / "backbones.py")
backbones = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(backbones)

USED = ("resnet", "vision_transformer", "efficientnet", "mobilenetv3", "convnext", "regnet", "mobilevit")
USED += ("fastvit", "ghostnet", "efficientvit_mit")
"""The ten families that are used most: from scratch, where every layer has gradients of single units."""


def cases():
    for line in (ROOT / "docs" / "benchmarks" / "backbones.jsonl").read_text().splitlines():
        row = json.loads(line)
        for strategy, result in row["results"].items():
            quick = row["family"] in USED and strategy == "scratch"
            marks = () if quick else pytest.mark.slow
            yield pytest.param(row["model"], strategy, result, id=f"{row['model']}-{strategy}", marks=marks)


@pytest.mark.parametrize(("model", "strategy", "result"), cases())
def test_a_family_trains_as_the_guide_says(model, strategy, result):
    size, actual = backbones.tried(f"timm:{model}", strategy)
    # whether last bits depend on the other units of a micro-batch is a fact about one processor
    sizes = [shown.removesuffix(backbones.ALONE) for shown in (size, result["size"])]
    assert sizes[0] == sizes[1]
    assert actual == result["result"]


def test_the_table_is_that_of_the_rows_and_has_no_defect():
    page = (ROOT / "docs" / "guide" / "backbones.md").read_text()
    for line in (ROOT / "docs" / "benchmarks" / "backbones.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert backbones.table_row(row) in page.splitlines()
        assert "DEFECT" not in line
