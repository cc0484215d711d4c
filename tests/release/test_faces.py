"""Faces found by networks whose outputs are known, and held over frames where nothing is found; tiny made-up models."""

from __future__ import annotations

import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from clips import write
from dpose.cli import main
from dpose.media.video import probe
from dpose.release.embed import read_sidecar
from dpose.release.faces import CASCADE, FaceFinder, blazeface_faces, face_finder, held, onnx_finder, yunet_faces
from dpose.release.grid import Shape
from dpose.release.items import Work
from dpose.release.jobs import Job
from dpose.release.obfuscate import Obfuscator
from public_doors import obfuscate_file
from refusals import refused

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def saved(path, entry, nodes, outputs, constants, shapes=()):
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        nodes,
        "faces",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, entry)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    for output in graph.output:  # OpenCV wants shapes
        if output.name in shapes:
            output.CopyFrom(helper.make_tensor_value_info(output.name, TensorProto.FLOAT, shapes[output.name]))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, str(path))
    return path


def yunet(path, side=128):
    """Takes for a face, one grid cell large, what is blue: its input is BGR from 0 to 255."""
    from onnx import helper

    nodes, outputs = [helper.make_node("Gather", ["input", "first"], ["blue"], axis=1)], []
    constants = {"first": np.array([0]), "full": np.float32(255), "flat": np.array([1, -1, 1])}
    for stride in (8, 16, 32):
        cells, square = (side // stride) ** 2, [stride, stride]
        nodes += [
            helper.make_node("AveragePool", ["blue"], [f"mean{stride}"], kernel_shape=square, strides=square),
            helper.make_node("Div", [f"mean{stride}", "full"], [f"part{stride}"]),
            helper.make_node("Reshape", [f"part{stride}", "flat"], [f"cls_{stride}"]),
            helper.make_node("Identity", [f"cls_{stride}"], [f"obj_{stride}"]),
        ]
        # in the middle of its cell, as large as the cell
        constants[f"bbox_{stride}"] = np.tile(np.float32([0.5, 0.5, 0, 0]), (1, cells, 1))
        constants[f"kps_{stride}"] = np.zeros((1, cells, 10), np.float32)
        outputs += [f"{kind}_{stride}" for kind in ("cls", "obj", "bbox", "kps")]
    return saved(path, [1, 3, side, side], nodes, outputs, constants)


def blazeface(path, last=True):
    """Takes for a face of 32 pixels what is red: its input is RGB from -1 to 1, 128 x 128."""
    from onnx import helper

    axes = [0, 3, 1, 2] if last else [0, 1, 2, 3]
    nodes = [
        helper.make_node("Transpose", ["input"], ["planes"], perm=axes),
        helper.make_node("Gather", ["planes", "first"], ["red"], axis=1),
    ]
    parts = []
    for side in (16, 8):
        k = 128 // side
        nodes += [
            helper.make_node("AveragePool", ["red"], [f"mean{side}"], kernel_shape=[k, k], strides=[k, k]),
            helper.make_node("Mul", [f"mean{side}", "steep"], [f"logit{side}"]),
            helper.make_node("Reshape", [f"logit{side}", "flat"], [f"row{side}"]),
            helper.make_node("Expand", [f"row{side}", f"each{side}"], [f"many{side}"]),
            helper.make_node("Reshape", [f"many{side}", "flat"], [f"all{side}"]),
        ]
        parts.append(f"all{side}")
    nodes.append(helper.make_node("Concat", parts, ["classificators"], axis=1))
    constants = {
        "first": np.array([0]),
        "steep": np.float32(9),
        "flat": np.array([1, -1, 1]),
        "each16": np.array([1, 256, 2]),
        "each8": np.array([1, 64, 6]),
        "regressors": np.tile(np.float32([0, 0, 32, 32] + [0] * 12), (1, 896, 1)),
    }
    shape = [1, 128, 128, 3] if last else [1, 3, 128, 128]
    return saved(path, shape, nodes, ["regressors", "classificators"], constants)


def picture(height=128, width=128, top=32, left=64, side=32, colour=(0, 0, 255)):
    made = np.full((height, width, 3), 0, np.uint8)
    made[..., 1] = 120
    made[top : top + side, left : left + side] = colour
    return made


class TestNetworks:
    def test_yunet_finds_what_its_grids_say(self, tmp_path):
        find = onnx_finder(yunet(tmp_path / "y.onnx"))
        best = max(find(picture()), key=lambda place: place[2] - place[0])
        assert best == pytest.approx((32, 64, 64, 96))
        assert find(picture(colour=(255, 0, 0))) == []  # red is not blue

    def test_as_opencv_reads_it(self, tmp_path):
        """OpenCV's own decoder, on offsets and sizes that are not round."""
        rng = np.random.default_rng(3)
        outputs, side = {}, 96
        for stride in (8, 16, 32):
            cells = (side // stride) ** 2
            sure = np.arange(cells)[None, :, None] == {8: 80, 16: 10, 32: 2}[stride]  # far from each other
            for kind in ("cls", "obj"):
                outputs[f"{kind}_{stride}"] = (sure * rng.uniform(0.6, 1, sure.shape)).astype(np.float32)
            outputs[f"bbox_{stride}"] = rng.normal(0, 0.4, (1, cells, 4)).astype(np.float32)
            outputs[f"kps_{stride}"] = np.zeros((1, cells, 10), np.float32)
        # OpenCV runs no model without layers: these add the mean of a black picture
        nodes = [
            onnx.helper.make_node("GlobalAveragePool", ["input"], ["means"]),
            onnx.helper.make_node("Gather", ["means", "first"], ["mean"], axis=1),
            onnx.helper.make_node("Reshape", ["mean", "shape"], ["black"]),
        ]
        nodes += [onnx.helper.make_node("Add", ["black", f"{name}_of"], [name]) for name in outputs]
        constants = {f"{name}_of": value for name, value in outputs.items()}
        shapes = {name: value.shape for name, value in outputs.items()}
        constants |= {"shape": np.array([1, 1, 1]), "first": np.array([0])}
        path = saved(tmp_path / "o.onnx", [1, 3, side, side], nodes, list(outputs), constants, shapes)
        known = cv2.FaceDetectorYN.create(str(path), "", (side, side), 0.5, 0.3)
        _, faces = known.detect(np.zeros((side, side, 3), np.uint8))
        ours = sorted((x, y, x2 - x, y2 - y) for y, x, y2, x2 in yunet_faces(outputs, (side, side)))
        assert len(ours) == 3
        assert np.allclose(ours, sorted(map(tuple, faces[:, :4])), atol=1e-3)

    @pytest.mark.parametrize("last", [True, False])
    def test_blazeface_finds_what_its_anchors_say(self, tmp_path, last):
        find = onnx_finder(blazeface(tmp_path / "b.onnx", last))
        found = find(picture(colour=(255, 0, 0)))
        assert found
        tops, lefts = zip(*((top, left) for top, left, _, _ in found), strict=True)
        for top, left, bottom, right in found:
            assert (bottom - top, right - left) == pytest.approx((32, 32))
        assert min(abs(t - 32) for t in tops) <= 8
        assert min(abs(left - 64) for left in lefts) <= 8
        assert find(picture()) == []

    def test_blazeface_at_full_range(self):
        outputs = {"a": np.zeros((1, 2304, 16), np.float32), "b": np.full((1, 2304, 1), -20, np.float32)}
        outputs["b"][0, 48 * 5 + 7] = 3
        outputs["a"][0, 48 * 5 + 7, :4] = (1, 2, 20, 30)
        ((top, left, bottom, right),) = blazeface_faces(outputs, (192, 192))
        assert (left + right) / 2 == pytest.approx((7.5 / 48) * 192 + 1)
        assert (top + bottom) / 2 == pytest.approx((5.5 / 48) * 192 + 2)
        assert (right - left, bottom - top) == pytest.approx((20, 30))

    def test_frames_of_any_size_and_grey_ones_are_scaled(self, tmp_path):
        find = onnx_finder(yunet(tmp_path / "y.onnx"))
        best = max(find(picture(256, 512, 128, 256, 128)), key=lambda place: place[2] - place[0])
        assert best == pytest.approx((128, 256, 256, 384))
        assert onnx_finder(yunet(tmp_path / "y.onnx"))(np.zeros((40, 50, 1), np.uint8)) == []

    def test_of_two_that_overlap_one_is_left(self):
        outputs = {"a": np.zeros((1, 896, 16), np.float32), "b": np.full((1, 896, 1), -20, np.float32)}
        outputs["a"][..., 2:4] = 40
        outputs["b"][0, :2, 0] = (2, 3)  # both anchors of the first cell
        assert len(blazeface_faces(outputs, (128, 128))) == 1

    def test_what_is_no_detector(self, tmp_path, monkeypatch):
        path = tmp_path / "x.onnx"
        with refused("file-missing"):
            face_finder(path)
        path.write_bytes(b"not a model")
        with refused("onnx-unreadable"):
            face_finder(path)
        saved(path, [1, 3, 64, 64], [], ["a"], {"a": np.zeros((1, 7, 9), np.float32)})
        with refused("face-detector-unknown"):
            face_finder(path)
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        with refused("package-missing"):
            face_finder(path)

    def test_the_cascade_says_what_it_is(self):
        finder = face_finder()
        assert (finder.about, finder.digest) == (CASCADE, "")
        assert "fallback" in CASCADE


BOX, FAR = (10.0, 10.0, 30.0, 30.0), (60.0, 60.0, 80.0, 80.0)


class TestHeld:
    def test_a_find_holds_before_and_after(self):
        finds = [[]] * 5 + [[BOX]] + [[]] * 5
        shown = list(held(finds, 3))
        assert [len(places) for places in shown] == [0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0]
        assert shown[5] == [BOX]
        assert shown[7][0] == pytest.approx((8.8, 8.8, 31.2, 31.2))  # farther for every frame
        assert shown[7] == shown[3]

    def test_a_gap_is_closed_from_both_ends(self):
        finds = [[BOX]] + [[]] * 6 + [[BOX]]
        assert all(places for places in held(finds, 3))
        assert [bool(places) for places in held(finds, 2)] == [True] * 3 + [False] * 2 + [True] * 3

    def test_a_face_that_is_found_is_not_held_twice(self):
        moved = [[tuple(value + 2 * n for value in BOX)] for n in range(9)]
        assert list(held(moved, 4)) == moved

    def test_two_faces_are_two(self):
        finds = [[BOX, FAR], [], [BOX], []]
        assert [len(places) for places in held(finds, 2)] == [2, 2, 2, 1]
        assert list(held(finds, 0)) == finds
        assert list(held([], 3)) == []

    def test_it_takes_no_more_frames_than_it_holds(self):
        taken = []
        finds = (taken.append(n) or [] for n in range(50))
        for number, _ in enumerate(held(finds, 5)):
            assert len(taken) <= number + 6


class TestVideos:
    def finder(self, places):
        """Finds a face where `places` says so, frame by frame."""
        left = iter(places)
        return FaceFinder(lambda frame: next(left), "a finder for tests")

    def test_a_face_stays_blurred_where_the_finder_fails_and_frames_are_counted(self):
        rng = np.random.default_rng(0)
        frames = list(rng.integers(0, 256, (9, 40, 60, 3)).astype(np.uint8))
        finds = [[], [], [], [(10, 20, 30, 40)], [], [], [], [], []]
        work = Obfuscator("face-blur", Shape(9, 40, 60, 3), finder=self.finder(finds), hold=2)
        shown = list(work.run(iter(frames)))
        changed = [not np.array_equal(one, other) for one, other in zip(frames, shown, strict=True)]
        assert changed == [False, True, True, True, True, True, False, False, False]
        assert (work.faces, work.without, work.open) == (1, 8, 4)
        told = " ".join(work.caveats())
        assert "1 faces were found in 9 frames by a finder for tests; it found none in 8 frames" in told
        assert "in 4 nothing is blurred" in told

    def test_boxes_beyond_the_frame_are_cut(self):
        frame = np.full((40, 60, 3), 9, np.uint8)
        for place in (
            (-50.0, -50.0, 10.0, 10.0),
            (30.0, 50.0, 90.0, 99.0),
            (-9.0, -9.0, -1.0, -1.0),
            (50.0, 70.0, 60.0, 80.0),
        ):
            work = Obfuscator("face-blur", Shape(1, 40, 60, 3), finder=self.finder([[place]]))
            assert np.array_equal(work.apply(frame), frame)

    def test_the_statement_beside_a_video_counts_too(self, tmp_path):
        source = write(tmp_path / "a.mp4")
        finder = self.finder([[]] * 4 + [[(4, 4, 20, 20)]] + [[]] * 4)
        statement = obfuscate_file(probe(source), tmp_path / "b.mp4", "face-blur", finder=finder, hold=1)
        assert statement.release["frames without a find"] == "8"
        assert statement.release["frames without a blur"] == "6"
        assert statement.release["detector"] == "a finder for tests"
        assert "frames without a find: 8" in read_sidecar(tmp_path / "b.mp4")[0].paragraph()

    def test_the_command(self, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "400")
        write(tmp_path / "a.mp4", size=(64, 64))
        yunet(tmp_path / "y.onnx", 64)
        asked = ["obfuscate", "a.mp4", "--method", "face-blur", "--detector", "y.onnx", "--hold", "3"]
        assert main([*asked, "--out", "b.mp4"]) == 0
        assert "NOTHING IS GUARANTEED" in capsys.readouterr().out
        assert main(["statement", "show", "b.mp4"]) == 0
        told = capsys.readouterr().out
        assert "by the detector y.onnx (sha256" in told
        assert "hold: 3 frames" in told
        assert main([*asked, "--out", "b.mp4"]) == 0
        assert "nothing to do" in capsys.readouterr().out
        assert main(["obfuscate", "a.mp4", "--method", "blur", "--detector", "y.onnx", "--out", "c.mp4"]) == 2
        assert "only --method face-blur" in capsys.readouterr().err
        assert main(["obfuscate", "a.mp4", "--method", "face-blur", "--detector", "n.onnx", "--out", "c.mp4"]) == 2
        assert "[file-missing]" in capsys.readouterr().err

    def test_another_detector_is_another_release(self):
        finders = [FaceFinder(len, "a", digest) for digest in ("", "1", "2")]
        job = Job(Path("a.mp4"), Path("b.mp4"))

        def settings(method, finder, hold):
            return Work(None, method, finder, hold).settings(job, None)

        names = {settings("face-blur", finder, hold) for finder in finders for hold in (0, 14)}
        assert len(names) == 6
        assert settings("blur", finders[0], 3) == settings("blur", None, 14)
