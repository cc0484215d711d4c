"""Detectors in ONNX files: tiny ones whose outputs are constants or simple functions of the picture."""

import builtins

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from dpose.pose.onnx_detector import KINDS, OnnxDetector, fit, grid_cells
from onnx_files import file, save
from refusals import refused

pytest.importorskip("onnxruntime")

IMAGE = np.full((50, 100, 3), 114, np.uint8)
"""As grey as the letterbox, so that where it lies makes no difference to an average."""


def boxes_in(path, image=IMAGE, **options):
    detector = OnnxDetector(path, **options)
    boxes = detector("a.png", -1, image)
    return detector.way, [b.corners.round(4).tolist() for b in boxes], [round(b.score, 4) for b in boxes]


def grid(size, classes=80):
    """YOLOX's output without anybody: (1, A, 5 + C)."""
    return np.zeros((1, grid_cells(size, (8, 16, 32)), 5 + classes), np.float32)


class TestYolox:
    def test_a_cell_is_put_into_the_grid_and_the_letterbox_taken_off(self, tmp_path):
        values = grid((64, 64))
        # the second grid, of stride 16, begins behind 8 * 8 cells: its row 1, column 2
        values[0, 64 + 1 * 4 + 2, :6] = [0.5, 0.25, np.log(2), np.log(0.5), 0.9, 0.8]
        values[0, 3, [4, 6]] = [0.9, 0.99]  # a bicycle
        way, (box,), (score,) = boxes_in(file(tmp_path / "d.onnx", {"output": values}))
        assert (way.kind, way.layout) == ("yolox", "grid")
        # middle (40, 20), sides 32 and 8 in the input; 100 x 50 fills its upper half at 0.64
        assert box == pytest.approx([24 / 0.64, 16 / 0.64, 56 / 0.64, 24 / 0.64])
        assert score == pytest.approx(0.72)

    def test_one_that_has_worked_the_grid_in(self, tmp_path):
        values = grid((64, 64))
        row, column = np.divmod(np.arange(84), 9)
        values[0, :, 0], values[0, :, 1], values[0, :, 2:4] = 7 * column, 7 * row, 6
        values[0, 40, :6] = [32, 16, 20, 10, 1, 0.7]
        _, (box,), _ = boxes_in(file(tmp_path / "d.onnx", {"output": values}))
        assert box == pytest.approx([22 / 0.64, 11 / 0.64, 42 / 0.64, 21 / 0.64])

    def test_one_person_found_twice_is_one_and_two_are_two(self, tmp_path):
        values = grid((64, 64), 1)
        for place, middle, score in ((0, 10.0, 0.6), (1, 10.5, 0.9), (2, 50.0, 0.7)):
            values[0, place, :6] = [middle / 8 - place, 2, np.log(1), np.log(2), score, 1]
        _, boxes, scores = boxes_in(file(tmp_path / "d.onnx", {"output": values}))
        assert scores == [0.9, 0.7]
        assert boxes[0][0] == pytest.approx((10.5 - 4) / 0.64, abs=1e-3)

    def test_a_grid_with_a_fourth_stride(self, tmp_path):
        values = np.zeros((1, grid_cells((128, 64), (8, 16, 32, 64)), 6), np.float32)
        values[0, -1] = [0.5, 0.5, 0, 0, 1, 1]
        _, (box,), _ = boxes_in(file(tmp_path / "d.onnx", {"o": values}, (128, 64)), np.zeros((128, 64, 3), np.uint8))
        assert box == [0, 64, 64, 128]


class TestRtmdet:
    def outputs(self):
        boxes = np.array([[[10, 10, 30, 30, 0.9], [5, 5, 20, 20, 0.8], [0, 0, 9, 9, 0.3]]], np.float32)
        return {"dets": boxes, "labels": np.array([[0, 2, 0]], np.int64)}

    def test_people_are_label_0(self, tmp_path):
        path = file(tmp_path / "d.onnx", self.outputs())
        way, boxes, scores = boxes_in(path)
        assert way.kind == "rtmdet"
        assert boxes == [pytest.approx([10 / 0.64, 10 / 0.64, 30 / 0.64, 30 / 0.64])]
        assert scores == [0.9]
        assert boxes_in(path, least=0.2)[2] == [0.9, 0.3]

    def test_another_detector_written_so_is_named(self, tmp_path):
        path = file(tmp_path / "d.onnx", self.outputs())
        assert boxes_in(path, kind="yolox")[0].mean == (0, 0, 0)
        with refused("detector-kind-differs"):
            OnnxDetector(path, kind="yolov8")

    def test_nobody_is_found_in_an_empty_list(self, tmp_path):
        nothing = {"dets": np.zeros((1, 0, 5), np.float32), "labels": np.zeros((1, 0), np.int64)}
        assert boxes_in(file(tmp_path / "d.onnx", nothing))[1] == []


class TestYolov8:
    def test_a_column_a_cell_and_the_picture_in_the_middle(self, tmp_path):
        values = np.zeros((1, 84, 189), np.float32)
        values[0, :5, 7] = [48, 48, 24, 12, 0.8]
        values[0, [0, 1, 2, 3, 5], 9] = [48, 48, 24, 12, 0.9]  # something else
        way, (box,), (score,) = boxes_in(file(tmp_path / "d.onnx", {"output0": values}, (96, 96)))
        assert (way.kind, way.layout) == ("yolov8", "columns")
        # 96 x 48 pixels lie in the middle of 96 x 96
        assert box == pytest.approx([36 / 0.96, (42 - 24) / 0.96, 60 / 0.96, (54 - 24) / 0.96])
        assert score == pytest.approx(0.8)

    def test_of_a_model_of_poses_the_box_is_taken(self, tmp_path):
        values = np.zeros((1, 56, 189), np.float32)
        values[0, :5, 7] = [32, 32, 20, 16, 0.8]
        values[0, 5:, 7] = 50  # joints, larger than any share
        assert len(boxes_in(file(tmp_path / "d.onnx", {"output0": values}, (96, 96)))[1]) == 1

    def test_classes_are_counted_and_called_as_the_file_says(self, tmp_path):
        values = np.zeros((1, 56, 189), np.float32)
        values[0, :7, 7] = [32, 32, 20, 16, 0.1, 0.8, 50]  # the rest is no class
        names = {0: "dog", 1: "person"}
        assert boxes_in(file(tmp_path / "d.onnx", {"output0": values}, (96, 96), names=names))[2] == [0.8]
        with refused("detector-without-person", where="2 classes"):
            OnnxDetector(file(tmp_path / "e.onnx", {"output0": values}, (96, 96), names={0: "dog", 1: "cat"}))

    @pytest.mark.parametrize("columns", [6, 57])
    def test_suppressed_inside(self, tmp_path, columns):
        values = np.zeros((1, 300, columns), np.float32)
        values[0, :2, :6] = [[0, 24, 48, 72, 0.9, 0], [0, 24, 48, 72, 0.8, 7]]
        way, boxes, _ = boxes_in(file(tmp_path / "d.onnx", {"output0": values}, (96, 96)))
        assert (way.layout, boxes) == ("rows", [[0, 0, 50, 50]])


class TestSsd:
    def test_tensorflows(self, tmp_path):
        outputs = {
            "detection_boxes:0": np.array([[[0.2, 0.1, 0.8, 0.5], [0, 0, 1, 1], [0, 0, 1, 1]]], np.float32),
            "detection_classes:0": np.array([[1, 3, 1]], np.float32),
            "detection_scores:0": np.array([[0.9, 0.8, 0.7]], np.float32),
            "num_detections:0": np.array([2], np.float32),
        }
        path = file(tmp_path / "d.onnx", outputs, ("h", "w"), last=True, kind=TensorProto.UINT8)
        way, boxes, _ = boxes_in(path)
        assert (way.kind, way.layout) == ("ssd", "named")
        assert boxes == [pytest.approx([10, 10, 50, 40])]

    def test_shares_of_classes_with_a_background(self, tmp_path):
        for classes, person in ((2, 1), (21, 15), (81, 1)):
            scores = np.zeros((1, 3000, classes), np.float32)
            scores[0, :, 0] = 1
            scores[0, 5, [0, person]] = [0.2, 0.8]
            boxes = np.full((1, 3000, 4), 0.5, np.float32)
            boxes[0, 5] = [0.1, 0.2, 0.5, 1.3]
            way, corners, _ = boxes_in(file(tmp_path / "d.onnx", {"scores": scores, "boxes": boxes}))
            assert (way.layout, corners) == ("scored", [pytest.approx([10, 10, 50, 50], abs=1e-3)])

    def test_suppressed_inside(self, tmp_path):
        outputs = {
            "bboxes": np.array([[[0.1, 0.2, 0.5, 0.8], [0, 0, 1, 1]]], np.float32),
            "labels": np.array([[1, 4]], np.int64),
            "scores": np.array([[0.9, 0.9]], np.float32),
        }
        way, corners, _ = boxes_in(file(tmp_path / "d.onnx", outputs))
        assert (way.layout, corners) == ("labelled", [pytest.approx([10, 10, 50, 40], abs=1e-3)])


class TestWhatTheFileSees:
    """A detector whose one box is as wide as a mean of what it is shown, in a colour."""

    def shown(self, tmp_path, kind, image, channel=0):
        nodes = [
            helper.make_node("ReduceMean", ["image"], ["mean"], axes=[2, 3], keepdims=0),
            helper.make_node("Gather", ["mean", "channel"], ["one"], axis=1),
            helper.make_node("Mul", ["one", "unit"], ["wide"]),
            helper.make_node("Add", ["wide", "box"], ["flat"]),
            helper.make_node("Reshape", ["flat", "shape"], ["dets"]),
        ]
        constants = {
            "channel": np.array(channel, np.int64),
            "unit": np.array([0, 0, 1, 0, 0], np.float32),
            "box": np.array([0, 0, 1000, 30, 0.9], np.float32),
            "shape": np.array([1, 1, 5], np.int64),
            "labels": np.zeros((1, 1), np.int64),
        }
        made = [
            helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))
            for name, array in constants.items()
        ]
        path = save(
            tmp_path / "d.onnx",
            made + nodes,
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 64, 64])],
            [
                helper.make_tensor_value_info("dets", TensorProto.FLOAT, [1, 1, 5]),
                helper.make_tensor_value_info("labels", TensorProto.INT64, [1, 1]),
            ],
        )
        # as if the picture were thousands of pixels wide: the box is not cut
        detector = OnnxDetector(path, kind=kind)
        values = detector._run(detector._normalised(fit(image, (64, 64), detector.way.fit)[0]))["dets"]
        return float(values[0, 0, 2]) - 1000

    def test_colours_and_normalisation_are_the_kinds(self, tmp_path):
        image = np.zeros((64, 64, 3), np.uint8)
        image[...] = (200, 100, 50)
        assert self.shown(tmp_path, "yolox", image, 0) == pytest.approx(50, abs=0.01)
        assert self.shown(tmp_path, "yolox", image, 2) == pytest.approx(200, abs=0.01)
        assert self.shown(tmp_path, "rtmdet", image, 2) == pytest.approx((200 - 123.675) / 58.395, abs=1e-3)
        assert self.shown(tmp_path, "rtmdet", image, 0) == pytest.approx((50 - 103.53) / 57.375, abs=1e-3)

    def test_what_is_beside_the_picture_is_grey(self, tmp_path):
        black = np.zeros((32, 64, 3), np.uint8)
        assert self.shown(tmp_path, "yolox", black) == pytest.approx(57, abs=0.01)


class TestFit:
    @pytest.mark.parametrize("how", ["corner", "middle", "stretch"])
    def test_a_place_goes_there_and_back(self, how):
        image = np.zeros((90, 201, 3), np.uint8)
        image[40:50, 100:120] = 255
        out, zoom, shift = fit(image, (128, 96), how)
        rows, columns = np.nonzero(out[..., 0] > 200)
        assert (columns.min() - shift[0]) / zoom[0] == pytest.approx(100, abs=2.2)
        assert (columns.max() + 1 - shift[0]) / zoom[0] == pytest.approx(120, abs=2.2)
        assert (rows.min() - shift[1]) / zoom[1] == pytest.approx(40, abs=2.2)


class TestRefused:
    def test_outputs_that_are_not_known_are_named_with_the_kinds(self, tmp_path):
        # RT-DETR's: boxes and logits, which are no shares
        outputs = {"pred_boxes": np.full((1, 300, 4), 0.5, np.float32), "logits": np.full((1, 300, 80), -3, np.float32)}
        with refused("detector-kind-differs") as message:
            OnnxDetector(file(tmp_path / "d.onnx", outputs))
        for word in ("pred_boxes (1, 300, 4)", "logits (1, 300, 80)", *KINDS, "--detector-kind"):
            assert word in message.value.line()
        assert "\n" not in message.value.line()

    @pytest.mark.parametrize(
        "shapes",
        [
            [(1, 25200, 85)],  # YOLOv5 at 640: three boxes a cell
            [(1, 8400, 4), (1, 8400, 80)],  # YOLO-NAS
            [(1, 1000)],
            [(1, 17, 64, 48)],
            [(2, 84, 8400)],
        ],
    )
    def test_these_are_not_known(self, tmp_path, shapes):
        outputs = {f"o{n}": np.full(shape, 0.4, np.float32) for n, shape in enumerate(shapes)}
        with refused("detector-kind-differs"):
            OnnxDetector(file(tmp_path / "d.onnx", outputs, (640, 640)))

    def test_boxes_in_pixels_are_no_shares(self, tmp_path):
        outputs = {
            "boxes": np.full((1, 4, 4), 50, np.float32),
            "labels": np.ones((1, 4), np.int64),
            "scores": np.ones((1, 4), np.float32),
        }
        with refused("detector-kind-differs"):
            OnnxDetector(file(tmp_path / "d.onnx", outputs))

    def test_what_takes_more_than_a_picture(self, tmp_path):
        path = file(tmp_path / "d.onnx", {"o": grid((64, 64))}, more_inputs=["scale_factor"])
        with refused("onnx-input-wrong", where=("image", "2")):
            OnnxDetector(path)

    def test_no_file_and_no_model(self, tmp_path):
        with refused("file-missing"):
            OnnxDetector(tmp_path / "d.onnx")
        (tmp_path / "d.onnx").write_bytes(b"no model")
        with refused("onnx-unreadable"):
            OnnxDetector(tmp_path / "d.onnx")
        with refused("detector-kind-unknown", where="dino"):
            OnnxDetector(tmp_path / "d.onnx", kind="dino")

    def test_without_onnxruntime(self, tmp_path, monkeypatch):
        real = builtins.__import__

        def without(name, *more):
            if name == "onnxruntime":
                raise ImportError(name)
            return real(name, *more)

        monkeypatch.setattr(builtins, "__import__", without)
        with refused("package-missing", where="pip install onnxruntime"):
            OnnxDetector(tmp_path / "d.onnx")


def test_nonsense_and_what_lies_outside_is_left_out(tmp_path):
    boxes = np.array(
        [[[np.nan, 0, 9, 9, 0.9], [70, 0, 90, 9, 0.9], [10, 10, 10, 20, 0.9], [-9, -9, 32, 16, 1.5]]], np.float32
    )
    outputs = {"dets": boxes, "labels": np.zeros((1, 4), np.int64)}
    _, corners, scores = boxes_in(file(tmp_path / "d.onnx", outputs))
    assert corners == [[0, 0, 50, 25]]
    assert scores == [1.0]
