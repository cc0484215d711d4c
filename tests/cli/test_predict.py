"""`dpose predict` from what is typed to what is written; people are found by a stand-in that needs no learning."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpose.runs.annotate as predict_module
from clips import write
from dpose.cli import main
from dpose.media.images import read_image, write_image
from dpose.media.video import VideoReader
from dpose.runs.annotate import Predictor
from walkers import Walkers


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def found(monkeypatch):
    """Sets where people stand; gives the stand-in."""

    def stand(*places):
        walkers = Walkers(list(places))
        monkeypatch.setattr(predict_module, "bundled_predictor", lambda flip_test: Predictor(walkers, "walkers"))
        return walkers

    return stand


def grey(path, size=(80, 160)):
    write_image(path, np.full((*size, 3), 90, np.uint8))
    return str(path)


def told(capsys, *words):
    """The exit code, and the lines on either stream."""
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out.strip().splitlines(), err.strip().splitlines()


def command_refused(capsys, *words):
    code, _, lines = told(capsys, *words)
    assert (code, len(lines)) == (2, 1), lines
    return lines[0]


class TestWithNothingElse:
    def test_a_picture(self, found, capsys, tmp_path):
        found((40, 40))
        code, lines, errors = told(capsys, "predict", grey(tmp_path / "a.png"))
        assert (code, errors) == (0, [])
        assert lines[0] == "Model: walkers, which comes with dpose"
        assert sum("l_ankle" in line for line in lines) == 1  # a table of the one person's joints
        assert lines[-1] == f"1 picture drawn into {tmp_path / 'a-pose.png'}, 1 person"
        assert (read_image("a-pose.png") != 90).any()

    def test_a_folder_of_pictures_and_videos(self, found, capsys, tmp_path):
        found((40, 40), (100, 40))
        Path("in").mkdir()
        grey(tmp_path / "in" / "a.png")
        write("in/b.mp4", size=(160, 80))
        code, lines, _ = told(capsys, "predict", "in", "--out", "out", "--json", "r.json")
        assert code == 0
        assert lines[-1] == "1 picture and 1 video of 9 frames drawn into out, 4 people"
        assert sorted(p.name for p in Path("out").iterdir()) == ["a-pose.png", "b-pose.mp4"]
        document = json.loads(Path("r.json").read_text())
        assert [a.get("track_id") for a in document["annotations"][:4]] == [None, None, 1, 2]
        assert all(0 <= a["score"] <= 1 for a in document["annotations"])
        assert len(document["categories"][0]["keypoints"]) == 17

    def test_a_file_that_is_skipped_is_told_and_ends_with_another_code(self, found, capsys, tmp_path):
        found((40, 40))
        grey(tmp_path / "a.png")
        Path("b.png").write_bytes(Path("a.png").read_bytes()[:-50])
        code, lines, errors = told(capsys, "predict", "a.png", "b.png", "--out", "out")
        assert (code, len(errors)) == (1, 1)
        assert "1 of 2 files" in errors[0]
        assert any(line.startswith("skipped: b.png") for line in lines)
        assert [p.name for p in Path("out").iterdir()] == ["a-pose.png"]

    def test_a_video(self, found, capsys):
        found((40, 40))
        write("b.mp4", size=(160, 80))
        code, lines, _ = told(capsys, "predict", "b.mp4", "--smooth")
        assert (code, lines[-1]) == (0, "1 video of 9 frames drawn into b-pose.mp4, 1 person")
        assert sum(1 for _ in VideoReader("b-pose.mp4")) == 9

    def test_what_an_option_did_not_do_is_said(self, found, capsys, tmp_path):
        """Of a box, where people are known, that is larger than the picture; and of a filter, of pictures."""
        found((40, 40))
        grey(tmp_path / "a.png")
        _, lines, _ = told(capsys, "predict", "a.png", "--box", "0,0,9999,60", "--smooth")
        height, width = read_image("a.png").shape[:2]
        assert lines[-2:] == [
            "nothing was smoothed: --smooth is for videos",
            f"a.png: the box reaches beyond its {width} x {height} pixels",
        ]

    def test_nobody_in_it(self, found, capsys, tmp_path):
        found()
        code, lines, errors = told(capsys, "predict", grey(tmp_path / "a.png"), "--json", "r.json")
        assert (code, errors) == (0, [])
        assert lines[1:] == [f"No people were found: 1 picture is written into {tmp_path / 'a-pose.png'} undrawn"]
        assert np.array_equal(read_image("a-pose.png"), read_image("a.png"))
        assert json.loads(Path("r.json").read_text())["annotations"] == []


class TestAskedFor:
    def test_a_skeleton(self, found, capsys, tmp_path):
        found((40, 40))
        _, lines, _ = told(capsys, "predict", grey(tmp_path / "a.png"), "--skeleton", "lsp")
        assert sum("head_top" in line for line in lines) == 1

    def test_skeletons_alone(self, found, capsys):
        found((40, 40))
        write("b.mp4", size=(160, 80))
        code, lines, _ = told(capsys, "predict", "b.mp4", "--canvas", "blank")
        assert code == 0
        assert "a way of walking can identify a person, and nothing is guaranteed" in lines[-1]

    def test_hidden_faces(self, found, capsys, tmp_path):
        found((40, 40), (100, 40))
        _, lines, _ = told(capsys, "predict", grey(tmp_path / "a.png"), "--hide-faces")
        assert lines[-1].startswith("2 faces hidden in 2 people; people who were not found keep their faces")

    def test_a_detector_says_where(self, found, capsys, tmp_path):
        pytest.importorskip("onnxruntime")
        from onnx_files import file

        boxes = np.array([[[8, 8, 24, 24, 0.9], [32, 8, 56, 32, 0.6]]], np.float32)
        file("d.onnx", {"dets": boxes, "labels": np.zeros((1, 2), np.int64)})
        walkers = found()
        picture = grey(tmp_path / "a.png")
        for least, count in ((0.5, 2), (0.7, 1)):
            _, lines, _ = told(capsys, "predict", picture, "--detector", "d.onnx", "--least", least)
            assert lines[0] == "Detector: d.onnx, read as rtmdet"
            assert len(walkers.calls[-1][0]) == count
        assert walkers.calls[0][0][0].corners == pytest.approx([20, 20, 60, 60])
        _, lines, _ = told(capsys, "predict", picture, "--detector", "d.onnx", "--detector-kind", "yolox")
        assert lines[0] == "Detector: d.onnx, read as yolox"


class TestBadInput:
    def test_each_is_told_in_one_line(self, found, capsys, tmp_path):
        found((40, 40))
        Path("empty").mkdir()
        Path("b.mp4").write_bytes(b"no video at all")
        tiny, picture = grey(tmp_path / "tiny.png", (20, 20)), grey(tmp_path / "a.png")
        assert "20 x 20 pixels are too few" in command_refused(capsys, "predict", tiny)
        assert "b.mp4" in command_refused(capsys, "predict", "b.mp4")
        assert "[inputs-missing]" in command_refused(capsys, "predict", "empty", "--out", "o")
        assert "no skeleton is called 'ape'" in command_refused(capsys, "predict", picture, "--skeleton", "ape")
        assert "[file-missing]" in command_refused(capsys, "predict", picture, "--detector", "absent.onnx")
        assert not list(Path().glob("*-pose*"))

    def test_a_detector_whose_outputs_are_not_known(self, found, capsys, tmp_path):
        pytest.importorskip("onnxruntime")
        from onnx_files import file

        found()
        file("d.onnx", {"logits": np.zeros((1, 300, 80), np.float32)})
        line = command_refused(capsys, "predict", grey(tmp_path / "a.png"), "--detector", "d.onnx")
        assert "logits (1, 300, 80)" in line
        assert "yolox, rtmdet, yolov8, ssd" in line


def test_the_guide_names_every_kind_of_detector():
    from dpose.pose.onnx_detector import WAYS

    guide = (Path(__file__).resolve().parents[2] / "docs" / "guide" / "predict.md").read_text()
    rows = [line for line in guide.splitlines() if line.startswith("| `")]
    for way in WAYS:
        assert any(row.startswith(f"| `{way.kind}` ") for row in rows), way.kind


def test_weights_that_come_with_dpose_are_named(tmp_path, capsys):
    write_image(tmp_path / "grey.png", np.full((64, 48, 3), 120, np.uint8))
    assert main(["predict", "blazepose:lite", str(tmp_path / "grey.png"), "--out", str(tmp_path / "o.png")]) == 0
    assert "No people were found" in capsys.readouterr().out
    assert main(["predict", "blazepose:heavy", str(tmp_path / "grey.png")]) == 2
    assert "tools/convert_blazepose.py" in capsys.readouterr().err
