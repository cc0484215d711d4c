import copy
import io
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from rich.console import Console

from dpose.errors import DposeError
from dpose.media.images import read_image, write_image
from dpose.media.video import VideoReader, probe
from dpose.media.video_writer import video_file
from dpose.pose import people as module
from dpose.pose.boxes import DetectedBoxes, FixedBox, LabelledBoxes, whole_picture
from dpose.pose.data import open_labels
from dpose.pose.evaluate import score_results
from dpose.pose.export import OnnxModel
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.predict import for_prediction
from dpose.pose.skeletons import COCO, skeleton_of
from dpose.runs.annotate import LabelFiles, annotate, find_files, names_several
from dpose.runs.drawn_people import GAIT, Look
from quick import quick  # noqa: F401
from refusals import refused
from videos import info_for
from walkers import FIGURE, Walkers


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
    finder = module.ModelPeople(for_prediction(model)) if isinstance(model, PoseModel) else model
    labels = LabelFiles(**{n: options.pop(n) for n in ("json", "yolo", "label_studio") if n in options})
    look = options.pop("look", Look())
    look = replace(look, **{n: options.pop(n) for n in ("skeleton", "smooth") if n in options})
    files = find_files([str(s) for s in sources])
    return annotate(finder, files, out, boxes, labels=labels, look=look, console=quiet(), **options)


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
            with refused(("file-missing", "inputs-missing")):
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
        with refused("picture-cut-short"):
            run(model, [folder / "c.png"], tmp_path / "x.png")

    def test_nothing_usable_is_an_error(self, model, tmp_path):
        for name in ("a.png", "b.png"):
            (tmp_path / name).write_bytes(b"x")
        with refused("files-all-unusable", where="2 files"):
            run(model, [tmp_path], tmp_path / "out")

    def test_several_need_a_folder_and_no_source_is_overwritten(self, model, folder):
        with refused("out-not-folder", where="--out"):
            run(model, [folder], None)
        for out, people in ((folder / "b.png", None), (folder / "c.png", folder / "b.png")):
            with refused("original-overwritten"):
                run(model, [folder / "b.png"], out, json=people)
        write_image(folder / "b-pose.png", picture(0))
        with refused("original-overwritten", where="b-pose.png"):  # an original, and where another one is drawn
            run(model, [folder], folder)
        with refused("out-not-folder", where="z.jpg"):
            run(model, [folder / "b.png", folder / "7.jpg"], folder / "z.jpg")

    def test_no_other_picture_and_no_labels_are_replaced(self, model, folder, tmp_path):
        other = folder / "7.jpg"
        for given in ({"out": other}, {"out": tmp_path / "c.png", "json": other}):
            with refused("output-exists", where="7.jpg"):
                run(model, [folder / "b.png"], **given)
        with refused("output-exists", where="7.jpg"):
            run(model, [folder / "b.png", folder / "deep" / "b.png"], tmp_path / "drawn", json=other)
        for out in (None, tmp_path / "drawn"):
            for _ in range(2):  # the second time what the same command has drawn
                run(model, [folder / "b.png"], out)
        run(model, [folder / "b.png"], tmp_path / "c.png", yolo=tmp_path / "set")
        with refused("output-exists", where="labels/train/b.txt"):
            run(model, [folder / "b.png"], tmp_path / "d.png", yolo=tmp_path / "set")

    def test_the_file_that_says_where_people_are_is_not_replaced(self, model, folder, tmp_path):
        file = tmp_path / "found.json"
        file.write_text(json.dumps([{"image_id": 7, "category_id": 1, "bbox": [1, 2, 30, 40], "score": 0.9}]))
        for labels in ("json", "label_studio"):
            with refused("original-overwritten", where="found.json"):
                run(model, [folder / "7.jpg"], tmp_path / "drawn", DetectedBoxes(file), **{labels: file})

    def test_what_is_hidden_or_was_drawn_is_no_source(self, model, folder):
        write_image(folder / ".thumbs" / "b.png", picture(0))
        write_image(folder / ".b.png", picture(0))
        run(model, [folder], folder / "drawn")
        left = []
        names = [str(n) for _, n in find_files([str(folder)], left, folder / "drawn")]
        assert names == ["7.jpg", "b.png", "deep/b.png"]
        assert [p.name for p in left] == ["notes.txt"]
        names = [str(p.relative_to(folder)) for p, _ in find_files([f"{folder}/**/*.png"], out=folder / "drawn")]
        assert names == ["b.png", "deep/b.png"]


class TestJson:
    def test_it_is_cocos_form_with_the_joints_named(self, model, folder, tmp_path):
        run(model, [folder], tmp_path / "out", FixedBox((10, 10, 40, 50)), json=tmp_path / "r.json")
        document = json.loads((tmp_path / "r.json").read_text())
        assert [(i["id"], i["file_name"]) for i in document["images"]] == [
            (7, "7.jpg"),
            (1, "b.png"),
            (2, "deep/b.png"),
        ]
        person = document["annotations"][0]
        assert (person["image_id"], person["bbox"], len(person["keypoints"])) == (7, [10, 10, 30, 40], 51)
        assert 0 <= person["score"] <= 1
        assert document["categories"][0]["keypoints"][0] == "nose"

    def test_equal_names_of_two_folders_stay_two(self, model, folder, tmp_path):
        several = [folder / "b.png", folder / "deep" / "b.png"]
        done = run(model, several, tmp_path / "out", yolo=tmp_path / "y", json=tmp_path / "r.json")
        assert [image["file_name"] for image in done.document["images"]] == ["b.png", "deep/b.png"]
        labels = tmp_path / "y" / "labels" / "train"
        assert sorted(str(p.relative_to(labels)) for p in labels.rglob("*.txt")) == ["b.txt", "deep/b.txt"]

    def test_a_clash_of_labels_is_told_before_anything_is_done(self, model, folder, tmp_path):
        write_image(folder / "b.jpg", picture(0))
        with refused("picture-names-collide", where=("b.jpg and b.png",)):
            run(model, [folder], tmp_path / "out", yolo=tmp_path / "y")
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("name", ["r.json", "r.results.json"])
    def test_pycocotools_reads_it_as_labels_and_as_results(self, model, folder, tmp_path, name):
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval

        done = run(model, [folder], tmp_path / "out", FixedBox((10, 10, 40, 50)), json=tmp_path / name)
        written = json.loads((tmp_path / name).read_text())
        people = written if isinstance(written, list) else written["annotations"]
        assert isinstance(written, list) == (name == "r.results.json")
        labels = COCO()
        labels.dataset = copy.deepcopy(done.document)
        labels.createIndex()
        scored = COCOeval(labels, labels.loadRes(copy.deepcopy(people)), "keypoints")
        scored.evaluate()
        scored.accumulate()
        scored.summarize()
        assert scored.stats[0] == pytest.approx(1)
        assert {"id", "area", "iscrowd", "num_keypoints", "bbox"} <= people[0].keys()

    def test_a_box_outside_the_picture_is_refused(self, model, folder, tmp_path):
        with refused("box-outside-picture", where=("200,200,300,300", "80 x 60")):
            run(model, [folder / "b.png"], tmp_path / "x.png", FixedBox((200, 200, 300, 300)))

    def test_numbers_stay_different(self, model, tmp_path):
        for name in ("a.png", "1.png", "2.png", "01.png"):
            write_image(tmp_path / "in" / name, picture(0))
        done = run(model, [tmp_path / "in"], tmp_path / "out")
        ids = [i["id"] for i in done.document["images"]]
        assert len(set(ids)) == 4

    def test_it_can_be_scored(self, model, pose_fixtures, tmp_path):
        labels = open_labels(f"coco:{pose_fixtures}/coco")
        run(model, [pose_fixtures / "coco"], tmp_path / "out", LabelledBoxes(labels), json=tmp_path / "r.json")
        result, problems = score_results(tmp_path / "r.json", labels)
        assert (result.predictions, len(problems)) == (12, 0)


def test_pictures_without_people_are_named(folder, tmp_path):
    finder = Walkers(lambda calls: [(20, 20)] if calls == 2 else [])
    said, empty = run(finder, [folder], tmp_path / "out").lines()
    assert said == f"3 pictures drawn into {tmp_path / 'out'}, 1 person"
    assert empty == f"no people were found in 2: {folder / '7.jpg'}, {folder / 'b.png'}"


class TestVideo:
    def test_a_video_keeps_its_frames_times_and_length(self, model, tmp_path):
        source = clip(tmp_path / "a.mp4")
        done = run(model, [source], tmp_path / "b.mp4", json=tmp_path / "r.json")
        one, two = source, tmp_path / "b.mp4"
        assert [t for _, t in VideoReader(one)] == [t for _, t in VideoReader(two)]
        assert (probe(one).rate, probe(one).length) == (probe(two).rate, probe(two).length)
        images = json.loads((tmp_path / "r.json").read_text())["images"]
        assert [(i["frame"], i["time"]) for i in images] == [(0, 0.0), (1, 0.1), (2, 0.2), (3, 0.3)]
        assert done.lines() == [f"1 video of 4 frames drawn into {tmp_path / 'b.mp4'}, 1 person"]

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
    monkeypatch.setattr(OnnxModel, "forward", lambda self, crops: asked.append(len(crops)) or real(self, crops))
    monkeypatch.setattr(module, "MANY_FRAMES", 4)
    by_onnx = run(model, [source], tmp_path / "onnx").document
    assert sum(asked) == 4
    for a, b in zip(by_torch["annotations"], by_onnx["annotations"], strict=True):
        np.testing.assert_allclose(a["keypoints"], b["keypoints"], atol=2e-3)


def test_a_long_video_is_predicted_by_torch_where_the_export_is_another_model(model, tmp_path, monkeypatch):
    def differs(*_):
        raise DposeError("export-differs", "finds a joint elsewhere")

    monkeypatch.setattr("dpose.pose.export._onnx_bytes", differs)
    monkeypatch.setattr(module, "MANY_FRAMES", 4)
    assert run(model, [clip(tmp_path / "clip.mp4")], tmp_path / "out").frames == 4


class TestPeople:
    """What is drawn and written of several people, whoever found them."""

    @pytest.fixture
    def grey(self, tmp_path):
        write_image(tmp_path / "two.png", np.full((80, 160, 3), 90, np.uint8))
        return tmp_path / "two.png"

    def document(self, grey, tmp_path, places=((40, 40), (110, 42)), **options):
        (tmp_path / "o.png").unlink(missing_ok=True)
        run(Walkers(places), [grey], tmp_path / "o.png", json=tmp_path / "r.json", **options)
        return json.loads((tmp_path / "r.json").read_text())

    def test_everybody_is_drawn_and_written_with_cocos_joints(self, grey, tmp_path):
        document = self.document(grey, tmp_path)
        drawn = read_image(tmp_path / "o.png")
        for x in (40, 110):
            assert (drawn[10:70, x - 20 : x + 20] != 90).any()
        assert (drawn[:, 62:88] == 90).all()
        (category,) = document["categories"]
        assert category["keypoints"] == list(COCO.joints)
        assert not {"derived", "missing"} & set(category)
        one, two = document["annotations"]
        assert [one["image_id"], two["image_id"]] == [1, 1]
        assert (one["score"], one["num_keypoints"]) == (0.8, 17)
        assert one["keypoints"][:2] == [40, 22]  # the nose
        assert two["keypoints"][-3:-1] == [106, 62]  # the right ankle
        # around all joints that were found, which reach from (30, 21) to (50, 60), and a little more
        assert one["bbox"] == pytest.approx([28.4, 17.88, 23.2, 45.24])
        assert "track_id" not in one

    def test_derived_points_are_marked_and_missing_ones_are_nowhere(self, grey, tmp_path):
        document = self.document(grey, tmp_path, skeleton="lsp")
        (category,) = document["categories"]
        assert category["derived"] == ["neck", "head_top"]
        points = np.reshape(document["annotations"][0]["keypoints"], (-1, 3))
        neck, shoulders, ears = points[category["keypoints"].index("neck")], 40 - 11, 40 - 18
        assert neck[:2] == pytest.approx([40, shoulders + 0.25 * (ears - shoulders)])
        assert self.document(grey, tmp_path, skeleton="mpii")["categories"][0]["derived"] == [
            "pelvis", "thorax", "upper_neck", "head_top",
        ]  # fmt: skip
        assert len(self.document(grey, tmp_path, skeleton="own")["annotations"][0]["keypoints"]) == 99

    def test_what_the_model_has_not_is_0_0_0_and_not_drawn(self, tmp_path, grey):
        torch.manual_seed(0)
        mpii = PoseModel(PoseConfig("nano", (64, 64), skeleton="mpii")).eval()
        run(
            mpii, [grey], tmp_path / "o.png", skeleton="coco", json=tmp_path / "r.json",
            yolo=tmp_path / "y", label_studio=tmp_path / "l.json",
        )  # fmt: skip
        document = json.loads((tmp_path / "r.json").read_text())
        assert document["categories"][0]["missing"] == list(COCO.joints[:5])
        (person,) = document["annotations"]
        assert person["keypoints"][:15] == [0] * 15
        assert person["num_keypoints"] == 12
        (line,) = (tmp_path / "y/labels/train/two.txt").read_text().splitlines()
        assert line.split()[5:20] == ["0"] * 15
        (task,) = json.loads((tmp_path / "l.json").read_text())
        shown = {r["value"]["keypointlabels"][0] for r in task["predictions"][0]["result"][1:]}
        assert shown
        assert not shown & set(COCO.joints[:5])

    def test_exports_follow_the_skeleton(self, grey, tmp_path):
        self.document(grey, tmp_path, skeleton="mpii", yolo=tmp_path / "y", label_studio=tmp_path / "l.json")
        assert "kpt_shape: [16, 3]" in (tmp_path / "y/data.yaml").read_text()
        assert len((tmp_path / "y/labels/train/two.txt").read_text().splitlines()) == 2
        (task,) = json.loads((tmp_path / "l.json").read_text())
        labels = [r["value"].get("keypointlabels", [""])[0] for r in task["predictions"][0]["result"]]
        assert "upper_neck" in labels

    def test_given_boxes_are_the_people_and_stay_their_boxes(self, grey, tmp_path):
        document = self.document(grey, tmp_path, boxes=FixedBox((100, 10, 140, 70)))
        (person,) = document["annotations"]
        assert person["bbox"] == [100, 10, 40, 60]
        assert person["keypoints"][:2] == [120, 22]

    def test_nobody_is_said_and_the_picture_is_written_undrawn(self, grey, tmp_path):
        done = run(Walkers([]), [grey], tmp_path / "o.png", json=tmp_path / "r.json")
        assert done.lines() == [f"No people were found: 1 picture is written into {tmp_path / 'o.png'} undrawn"]
        assert np.array_equal(read_image(tmp_path / "o.png"), read_image(grey))
        document = json.loads((tmp_path / "r.json").read_text())
        assert (len(document["images"]), document["annotations"]) == (1, [])

    def test_a_crowd_of_forty(self, tmp_path):
        write_image(tmp_path / "crowd.png", np.full((300, 400, 3), 90, np.uint8))
        places = [(20 + 40 * (k % 10), 40 + 60 * (k // 10)) for k in range(40)]
        document = self.document(tmp_path / "crowd.png", tmp_path, places)
        assert len({tuple(a["bbox"]) for a in document["annotations"]}) == 40

    def test_joints_far_outside_and_people_without_any(self, grey, tmp_path):
        # the figure lies beside the picture: its region alone says where
        (person,) = self.document(grey, tmp_path, [(-300, 40)])["annotations"]
        assert all(np.isfinite(person["bbox"]))
        assert person["keypoints"][0] == -300

    def test_a_skeleton_that_is_none_or_has_nothing_of_the_finders(self, grey, tmp_path):
        with refused("skeleton-unknown"):
            self.document(grey, tmp_path, skeleton="ape")

    def test_a_picture_of_twenty_pixels_is_refused(self, tmp_path, model):
        write_image(tmp_path / "t.png", picture(0, (20, 20)))
        with refused("picture-too-small", where="20 x"):
            run(model, [tmp_path / "t.png"], tmp_path / "o.png")
        write_image(tmp_path / "in" / "b.png", picture(0))
        write_image(tmp_path / "in" / "t.png", picture(0, (20, 20)))
        assert "too few" in run(model, [tmp_path / "in"], tmp_path / "out").problems[0]


class TestTracks:
    def walk(self, k):
        """Two who walk towards each other, the second missed in three frames; from frame 12 on there is a third."""
        people = [(30 + 4 * k, 40)]
        people += [] if 5 <= k < 8 else [(130 - 4 * k, 42)]
        return people + ([(30, 90)] if k >= 12 else [])

    @pytest.fixture
    def film(self, tmp_path):
        with video_file(tmp_path / "a.mp4", info_for(Fraction(10), Fraction(1, 1000), (120, 160))) as writer:
            for k in range(20):
                writer.add(np.full((120, 160, 3), 90, np.uint8), 100 * k)
        return tmp_path / "a.mp4"

    def test_people_keep_their_numbers(self, film, tmp_path):
        walkers = Walkers(self.walk)
        done = run(walkers, [film], tmp_path / "b.mp4", json=tmp_path / "r.json")
        document = json.loads((tmp_path / "r.json").read_text())
        frames = {image["id"]: image["frame"] for image in document["images"]}
        assert len(frames) == 20
        for person in document["annotations"]:
            x, y = person["keypoints"][:2]
            k = frames[person["image_id"]]
            if y > 60:
                assert person["track_id"] == 3
            elif k not in (12, 13):  # where they pass each other
                first = abs(x - (30 + 4 * k)) < 1
                assert person["track_id"] == (1 if first else 2)
        assert done.lines() == [f"1 video of 20 frames drawn into {tmp_path / 'b.mp4'}, 3 people"]
        # the finder is shown everybody who is followed, also through the frames in which the second was missed
        assert walkers.calls[0][1] is None
        assert [len(before) for _, before in walkers.calls[1:]] == [2] * 12 + [3] * 7
        assert walkers.calls[7][1][1].pose.keypoints[0][0] == 130 - 4 * 4

    def test_each_video_begins_anew(self, film, tmp_path):
        walkers = Walkers([(40, 40)])
        (tmp_path / "in").mkdir()
        for name in ("a.mp4", "b.mp4"):
            (tmp_path / "in" / name).write_bytes(film.read_bytes())
        done = run(walkers, [tmp_path / "in"], tmp_path / "out")
        assert {a["track_id"] for a in done.document["annotations"]} == {1}
        assert walkers.calls[20][1] is None
        assert len(walkers.calls[19][1]) == 1
        assert done.people == 2

    def test_the_number_is_drawn(self, film, tmp_path):
        run(Walkers([(80, 60)]), [film], tmp_path / "b.mp4")
        frame, _ = next(iter(VideoReader(tmp_path / "b.mp4")))
        # a light plate above the head, where no skeleton is
        assert frame[: 60 - 21, 70:90].max() > 200

    def test_boxes_that_are_given_are_asked_for_and_nothing_of_before(self, film, tmp_path):
        walkers = Walkers([])
        run(walkers, [film], tmp_path / "b.mp4", FixedBox((10, 10, 50, 70)))
        assert all(len(boxes) == 1 and before is None for boxes, before in walkers.calls)

    def test_smoothed_joints_shake_less_and_only_when_asked(self, film, tmp_path):
        rng = np.random.default_rng(0)
        shaken = rng.normal(60, 1, (20, 2))

        def nose_paths(**options):
            out = tmp_path / f"{len(options)}.mp4"
            done = run(Walkers(lambda k: [shaken[k]]), [film], out, **options)
            return np.array([a["keypoints"][:2] for a in done.document["annotations"]])

        plain, smooth = nose_paths(), nose_paths(smooth=True)
        np.testing.assert_allclose(plain, shaken + FIGURE[0], atol=1e-3)
        assert np.diff(smooth, axis=0).std() < 0.6 * np.diff(plain, axis=0).std()


class TestLooks:
    def test_a_blank_canvas_has_the_skeletons_alone_and_warns(self, tmp_path):
        write_image(tmp_path / "a.png", picture(0, (80, 160)))
        done = run(Walkers([(40, 40)]), [tmp_path / "a.png"], tmp_path / "o.png", look=Look(blank=True))
        drawn = read_image(tmp_path / "o.png")
        assert (drawn[:, 80:] == drawn[0, 0]).all()
        assert (drawn[15:65, 25:55] != drawn[0, 0]).any()
        assert GAIT in done.lines()
        assert "identify" in GAIT

    def test_what_is_behind_a_blank_canvas_makes_no_difference(self, tmp_path):
        for seed in (0, 1):
            write_image(tmp_path / f"{seed}.png", picture(seed, (80, 160)))
            run(Walkers([(40, 40)]), [tmp_path / f"{seed}.png"], tmp_path / f"o{seed}.png", look=Look(blank=True))
        assert (tmp_path / "o0.png").read_bytes() == (tmp_path / "o1.png").read_bytes()

    def test_faces_are_hidden_counted_and_nothing_is_promised(self, tmp_path):
        image = picture(0, (80, 160))
        write_image(tmp_path / "a.png", image)
        done = run(
            Walkers([(40, 40), (110, 40)]), [tmp_path / "a.png"], tmp_path / "o.png",
            look=Look(threshold=1.0, hide_faces=True),
        )  # fmt: skip
        drawn = read_image(tmp_path / "o.png")
        for x in (40, 110):
            assert (drawn[20:24, x - 2 : x + 3] == 128).all()
        assert np.array_equal(drawn[50:, 70:90], image[50:, 70:90])
        assert done.lines()[1].startswith("2 faces hidden in 2 people; people who were not found keep their faces")
        assert "nothing is guaranteed" in done.lines()[1]

    def test_in_a_video_a_person_has_a_face_in_every_frame(self, tmp_path):
        done = run(
            Walkers([(30, 24)]), [clip(tmp_path / "a.mp4")], tmp_path / "b.mp4", look=Look(hide_faces=True), smooth=True
        )
        assert (done.faces, done.people) == (4, 1)

    def test_a_model_without_a_head_is_refused(self, tmp_path, model):
        class Owls(Walkers):
            skeleton = skeleton_of(["beak", "left_wing", "right_wing"])

        with refused("head-joints-missing"):
            run(Owls([]), [clip(tmp_path / "a.mp4")], tmp_path / "b.mp4", look=Look(hide_faces=True))
        with refused("model-joints-missing", where="beak"):
            run(Owls([]), [clip(tmp_path / "a.mp4")], tmp_path / "b.mp4", skeleton="coco")


def test_a_video_that_cannot_be_read_is_told(tmp_path, model):
    (tmp_path / "a.mp4").write_bytes(b"nothing of the kind")
    with refused("video-undecodable", where="a.mp4"):
        run(model, [tmp_path / "a.mp4"], tmp_path / "b.mp4")
