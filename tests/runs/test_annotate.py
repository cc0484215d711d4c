import io
import json
from fractions import Fraction

import numpy as np
import pytest
import torch
from rich.console import Console

import dpose.runs.annotate as annotate_module
from dpose.errors import DposeError
from dpose.media.images import read_image, write_image
from dpose.media.video import VideoReader, probe
from dpose.media.video_writer import video_file
from dpose.pose.boxes import FixedBox, LabelledBoxes, whole_picture
from dpose.pose.data import open_labels
from dpose.pose.evaluate import score_results
from dpose.pose.export import OnnxModel
from dpose.pose.model import PoseConfig, PoseModel
from dpose.runs.annotate import annotate, find_files, names_several
from quick import quick  # noqa: F401
from videos import info_for


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return PoseModel(PoseConfig("nano", (64, 64), skeleton="coco")).eval()


def picture(seed, shape=(60, 80)):
    return np.random.default_rng(seed).integers(0, 256, (*shape, 3), np.uint8)


@pytest.fixture
def folder(tmp_path):
    source = tmp_path / "in"
    write_image(source / "b.png", picture(0))
    write_image(source / "7.jpg", picture(1))
    write_image(source / "deep" / "b.png", picture(2))
    (source / "notes.txt").write_text("no picture")
    return source


def clip(path, count=4):
    with video_file(path, info_for(Fraction(10), Fraction(1, 1000))) as writer:
        for k in range(count):
            writer.add(picture(k, (48, 64)), 100 * k)
    return path


def run(model, sources, out, boxes=whole_picture, **options):
    return annotate(model, find_files([str(s) for s in sources]), out, boxes, console=quiet(), **options)


def quiet():
    return Console(file=io.StringIO())


class TestFiles:
    def test_folders_globs_and_files_each_once(self, folder):
        names = [str(r) for _, r in find_files([str(folder)])]
        assert names == ["7.jpg", "b.png", "deep/b.png"]
        assert len(find_files([str(folder), str(folder / "*.png"), str(folder / "b.png")])) == 3
        assert [p.name for p, _ in find_files([str(folder / "**/*.png")])] == ["b.png", "b.png"]

    def test_what_names_nothing_is_refused(self, folder, tmp_path):
        (tmp_path / "empty").mkdir()
        for source in ("no.jpg", str(folder / "*.webp"), str(tmp_path / "empty")):
            with pytest.raises(DposeError, match=r"no such file|holds no picture"):
                find_files([source])

    def test_one_still_picture_is_not_several(self, folder):
        assert not names_several([str(folder / "b.png")])
        for sources in ([str(folder)], ["a.png", "b.png"], ["*.png"]):
            assert names_several(sources)


class TestPictures:
    def test_each_is_drawn_under_its_own_name(self, model, folder, tmp_path):
        done = run(model, [folder], tmp_path / "out")
        drawn = sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.*"))
        assert drawn == ["7-pose.jpg", "b-pose.png", "deep/b-pose.png"]
        assert (done.pictures, done.people, done.problems) == (3, 3, [])
        assert not np.array_equal(read_image(tmp_path / "out/b-pose.png"), picture(0))

    def test_equal_names_do_not_overwrite_each_other(self, model, folder, tmp_path):
        run(model, [folder / "b.png", folder / "deep" / "b.png"], tmp_path / "out")
        assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["b-pose-2.png", "b-pose.png"]

    def test_a_damaged_file_is_skipped_told_and_counted(self, model, folder, tmp_path):
        (folder / "c.png").write_bytes((folder / "b.png").read_bytes()[:200])
        done = run(model, [folder], tmp_path / "out")
        assert done.pictures == 3
        assert "c.png: the png file is cut short" in done.problems[0]
        assert done.lines()[-1] == "1 problem"
        with pytest.raises(DposeError, match="cut short"):
            run(model, [folder / "c.png"], tmp_path / "x.png")

    def test_nothing_usable_is_an_error(self, model, tmp_path):
        for name in ("a.png", "b.png"):
            (tmp_path / name).write_bytes(b"x")
        with pytest.raises(DposeError, match="not one of 2 files could be used"):
            run(model, [tmp_path], tmp_path / "out")

    def test_several_need_a_folder_and_no_source_is_overwritten(self, model, folder):
        with pytest.raises(DposeError, match="give a folder with --out"):
            run(model, [folder], None)
        with pytest.raises(DposeError, match="would replace its source"):
            run(model, [folder / "b.png"], folder / "b.png")


class TestJson:
    def test_it_is_cocos_form_with_the_joints_named(self, model, folder, tmp_path):
        run(model, [folder], tmp_path / "out", FixedBox((10, 10, 40, 50)), results=tmp_path / "r.json")
        document = json.loads((tmp_path / "r.json").read_text())
        assert [(i["id"], i["file_name"]) for i in document["images"]] == [
            (7, "7.jpg"),
            (1, "b.png"),
            (2, "b.png"),
        ]
        person = document["annotations"][0]
        assert (person["image_id"], person["bbox"], len(person["keypoints"])) == (7, [10, 10, 30, 40], 51)
        assert 0 <= person["score"] <= 1
        assert document["categories"][0]["keypoints"][0] == "nose"

    def test_numbers_stay_different(self, model, tmp_path):
        for name in ("a.png", "1.png", "2.png", "01.png"):
            write_image(tmp_path / "in" / name, picture(0))
        done = run(model, [tmp_path / "in"], tmp_path / "out")
        ids = [i["id"] for i in done.document["images"]]
        assert len(set(ids)) == 4

    def test_it_can_be_scored(self, model, pose_fixtures, tmp_path):
        labels = open_labels(f"coco:{pose_fixtures}/coco")
        run(
            model,
            [pose_fixtures / "coco"],
            tmp_path / "out",
            LabelledBoxes(labels),
            results=tmp_path / "r.json",
        )
        result, problems = score_results(tmp_path / "r.json", labels)
        assert (result.predictions, len(problems)) == (12, 0)


class TestVideo:
    def test_a_video_keeps_its_frames_times_and_length(self, model, tmp_path):
        source = clip(tmp_path / "a.mp4")
        done = run(model, [source], tmp_path / "b.mp4", results=tmp_path / "r.json")
        one, two = source, tmp_path / "b.mp4"
        assert [t for _, t in VideoReader(one)] == [t for _, t in VideoReader(two)]
        assert (probe(one).rate, probe(one).length) == (probe(two).rate, probe(two).length)
        images = json.loads((tmp_path / "r.json").read_text())["images"]
        assert [(i["frame"], i["time"]) for i in images] == [(0, 0.0), (1, 0.1), (2, 0.2), (3, 0.3)]
        assert done.lines() == ["1 video of 4 frames drawn, 4 people"]

    def test_one_that_is_cut_short_is_drawn_as_far_as_it_goes_and_told(self, model, tmp_path):
        whole = clip(tmp_path / "a.mkv", 40).read_bytes()
        (tmp_path / "a.mkv").write_bytes(whole[: len(whole) // 2])
        done = run(model, [tmp_path / "a.mkv"], tmp_path / "b.mp4", FixedBox((1, 1, 30, 40)))
        assert 0 < done.frames < 40
        assert done.lines()[1].startswith(f"not whole: {tmp_path / 'a.mkv'}: {done.frames}")


@pytest.mark.slow
def test_a_long_video_is_predicted_by_onnx_runtime_where_it_is_installed(model, tmp_path, monkeypatch):
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name)
    source = clip(tmp_path / "clip.mp4")
    by_torch = run(model, [source], tmp_path / "torch").document
    asked, real = [], OnnxModel.forward
    monkeypatch.setattr(
        OnnxModel, "forward", lambda self, crops: asked.append(len(crops)) or real(self, crops)
    )
    monkeypatch.setattr(annotate_module, "MANY_FRAMES", 4)
    by_onnx = run(model, [source], tmp_path / "onnx").document
    assert sum(asked) == 4
    for a, b in zip(by_torch["annotations"], by_onnx["annotations"], strict=True):
        np.testing.assert_allclose(a["keypoints"], b["keypoints"], atol=2e-3)


def test_a_long_video_is_predicted_by_torch_where_the_export_is_another_model(model, tmp_path, monkeypatch):
    def differs(*_):
        raise DposeError("finds a joint elsewhere")

    monkeypatch.setattr("dpose.pose.export._onnx_bytes", differs)
    monkeypatch.setattr(annotate_module, "MANY_FRAMES", 4)
    assert run(model, [clip(tmp_path / "clip.mp4")], tmp_path / "out").frames == 4
