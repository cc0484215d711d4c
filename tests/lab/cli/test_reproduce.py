"""`dpose reproduce` as it is typed."""

import cv2
import numpy as np
import pytest

from dpose.cli import main
from small_nano import small_nano  # noqa: F401


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
    assert "000/table2" in told
    assert "lspet-dp" in told


def test_the_list_is_wrapped_below_its_titles(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["reproduce"]) == 0
    lines = capsys.readouterr().out.splitlines()
    wrapped = [line for line in lines if line.startswith(" ")]
    assert wrapped
    assert all(line.startswith(" " * 19) for line in wrapped)
    assert all(line[17] in " n" and line[18] == " " for line in lines)  # the longest name ends in its 18th column


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


def test_a_cell_that_was_edited_is_told_in_one_line(capsys, tmp_path):
    asked = ["reproduce", "002/table5", "--data", "mot:seq", "--limit", "1", "--out", "t"]
    assert main(asked) == 0
    cell, *_ = (tmp_path / "t" / "cells").iterdir()
    cell.write_text(cell.read_text().replace('"median": ', '"median": null, "was": '))
    capsys.readouterr()
    assert main(asked) == 2
    (told,) = capsys.readouterr().err.strip().splitlines()
    assert "[result-unshowable]" in told


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
        (["002/figure1", "--core", "--methods", "dp-sgd"], "takes no --core, --methods"),
        (["002/figure1", "--processes", "2"], "takes no --processes"),
        (["002/figure1", "--segmenter", "absent.onnx"], "takes no --segmenter"),
        (["release-quality", "--quick", "--external", "blur:x"], "takes no --quick, --external"),
        (["release-utility", "--data", "synthetic:ward", "--data", "synthetic:studio"], "one --data"),
        (["release-actions", "--data", "synthetic-clips"], "it takes --limit, --seed, --quick"),
        (["000/table2", "--data-public"], "takes no --data-public"),
        (["000/table2", "--quick"], "--core"),
        (["ward-dp-1", "--set", "variants=full"], "ablation"),
        (["ward-dp-1-ablation", "--set", "variants=none"], "lr-third"),
        (["000/table2", "--epsilons", "0.2;0.8"], "0.2,0.8"),
        (["000/table2", "--epsilons", "0.2,-1"], "--epsilons"),
        (["000/table2", "--clip-norms", "small"], "--clip-norms"),
        (["000/table2", "--set", "strategies=freeze"], "finetune, full, scratch"),
        (["000/table2", "--methods", "sgd"], "fpdp-sgd"),
        (["000/table2", "--data", "mpii:absent"], "absent"),
        (["000/table2", "--data", "synthetic:ward", "--data", "synthetic:studio"], "one --data"),
        (["000/table2", "--init", "absent"], "absent"),
        (["000/table2", "--preset", "huge"], "preset"),
        (["000/table2", "--set", "epochs=0"], "epochs"),
        (["000/table2", "--set", "lr=0"], "learning rate"),
        (["000/table2", "--set", "optimizer=newton"], "newton"),
        (["000/table2", "--public", "nothing"], "nothing"),
        (["000/table2", "--set", "evaluate=nothing"], "nothing"),
        (["003/humanart-dp"], "--data"),
        (["lspet-dp"], "--data"),
    ],
)
def test_mistakes_are_one_line(capsys, tmp_path, arguments, word):
    assert main(["reproduce", *arguments, "--out", "t"]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert word in told[0]
    assert not (tmp_path / "t").exists()


@pytest.mark.slow
def test_a_grid_is_run_told_and_gone_on_with(capsys, tmp_path, monkeypatch):
    import dpose_scene.data as synthetic_module

    monkeypatch.setattr(synthetic_module, "SPLITS", {"train": 30, "val": 8, "test": 8, "public": 8})
    asked = ["reproduce", "000/table2", "--core", "--data", "synthetic:ward", "--preset", "nano"]
    asked += ["--methods", "dp-sgd", "--epsilons", "0.2", "--clip-norms", "0.1", "--set", "epochs=1", "--out", "t"]
    assert main(asked) == 0
    told = capsys.readouterr().out
    assert "dp-sgd-finetune-C0.1-eps0.2-run1: " in told
    assert "not run" in told
    assert main(["verify", "t/runs/dp-sgd-finetune-C0.1-eps0.2-run1"]) == 0
    before = (tmp_path / "t" / "results.json").read_text()
    assert main(asked) == 0
    assert (tmp_path / "t" / "results.json").read_text() == before
    capsys.readouterr()
    assert main([*asked, "--set", "lr=0.5"]) == 2
    assert "other settings (lr)" in capsys.readouterr().err
    # eight public units do not span fifty directions
    assert main([*asked[:-2], "--public", "synthetic:ward:public", "--methods", "pdp-sgd", "--out", "u"]) == 1
    assert "failed: pdp-sgd-finetune-C0.1-eps0.2-run1: " in " ".join(capsys.readouterr().out.split())
