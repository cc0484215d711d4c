"""`dpose reproduce` as it is typed."""

import cv2
import numpy as np
import pytest

from dpose.cli import main


@pytest.fixture(autouse=True)
def _local(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    (tmp_path / "seq" / "img1").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for frame in (1, 2):
        cv2.imwrite(f"seq/img1/{frame:06d}.png", rng.integers(0, 256, (140, 150)).astype(np.uint8))


def test_without_a_name_all_are_listed(capsys):
    assert main(["reproduce"]) == 0
    told = capsys.readouterr().out
    assert "002/figure1" in told
    assert "002/table5" in told


def test_a_table_and_what_stands_in_its_folder(capsys, tmp_path):
    asked = ["reproduce", "002/table5", "--data", "mot:seq", "--limit", "1", "--out", "t"]
    assert main(asked) == 0
    assert "Algorithm 1" in capsys.readouterr().out
    assert sorted(p.name for p in (tmp_path / "t").iterdir()) == [
        "cells",
        "index.html",
        "results.json",
        "results.md",
        "settings.json",
    ]
    assert main(asked) == 0
    capsys.readouterr()
    assert main([*asked[:-4], "--limit", "2", "--out", "t"]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert "other settings (photos)" in told[0]


def test_a_failed_cell_is_told_and_exits_with_1(capsys, tmp_path):
    cv2.imwrite("seq/img1/000001.png", np.zeros((15, 150), np.uint8))
    cv2.imwrite("seq/img1/000002.png", np.zeros((15, 150), np.uint8))
    assert main(["reproduce", "002/figure3", "--data", "mot:seq", "--out", "t"]) == 1
    assert "failed: 1-b16: block: a block of 16 is larger" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["002/figure9"], "002/figure1"),
        (["002/figure1", "--data", "mpii:x"], "mpii"),
        (["002/figure1", "--data", "mot:absent"], "absent"),
        (["002/figure1", "--data", "mot:seq", "--data", "mot:seq"], "twice"),
        (["002/figure5", "--data", "mot:seq"], "no masks"),
        (["002/figure1", "--data", "synthetic:beach"], "beach"),
        (["002/figure1", "--limit", "0"], "limit"),
        (["002/figure6", "--segmenter", "absent.onnx"], "absent.onnx"),
    ],
)
def test_mistakes_are_one_line(capsys, tmp_path, arguments, word):
    assert main(["reproduce", *arguments, "--out", "t"]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert word in told[0]
    assert not (tmp_path / "t").exists()
