import json

import numpy as np
import pytest
import torch

from dpose.pose import export as module
from dpose.pose.export import export_onnx
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.predict import predict_outputs
from refusals import refused


def model_of(norm="batch"):
    torch.manual_seed(0)
    return PoseModel(PoseConfig("nano", (64, 64), skeleton="coco", norm=norm)).eval()


def pictures(count=3):
    return [np.random.default_rng(i).integers(0, 256, (50 + i, 70, 3), np.uint8) for i in range(count)]


@pytest.mark.slow
class TestExport:
    @pytest.fixture(scope="class")
    def made(self, tmp_path_factory):
        for name in ("onnx", "onnxscript", "onnxruntime"):
            pytest.importorskip(name)
        path = tmp_path_factory.mktemp("onnx") / "pose.onnx"
        done = export_onnx(model_of(), path, pictures(), {"dpose.privacy": "the statement"})
        return path, done

    def test_every_joint_is_where_the_models_is_for_any_number_of_real_pictures(self, made, pose_fixtures):
        import onnxruntime

        from dpose.media.images import read_image

        path, done = made
        assert (done.path, done.pictures) == (path, 3)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        crops = np.stack([module._crop(read_image(p), (64, 64)) for p in sorted(pose_fixtures.rglob("*.jpg"))])
        for batch in (crops[:1], crops[:2], crops):
            ours = predict_outputs(model_of(), torch.from_numpy(batch))
            theirs = session.run(["x_logits", "y_logits"], {"images": batch.astype(np.float32)})
            for a, b in zip(ours, theirs, strict=True):
                assert np.array_equal(a.argmax(-1).numpy(), b.argmax(-1))
                assert np.abs(a.numpy() - b).max() < 1e-3

    def test_the_preprocessing_is_in_the_file(self, made):
        import onnx

        facts = {p.key: p.value for p in onnx.load(made[0]).metadata_props}
        assert json.loads(facts["dpose.input"])["range"] == [0, 255]
        assert json.loads(facts["dpose.joints"])[0] == "nose"
        assert "argmax(x_logits) / 2" in facts["dpose.decode"]
        assert PoseConfig.from_dict(json.loads(facts["dpose.config"])) == model_of().config
        assert facts["dpose.privacy"] == "the statement"

    def test_a_file_that_finds_a_joint_elsewhere_is_not_written(self, made, tmp_path, monkeypatch):
        other, content = model_of(), made[0].read_bytes()
        with torch.no_grad():
            other.head.x.bias[3] += 100
        monkeypatch.setattr(module, "_onnx_bytes", lambda model, crops: content)
        with refused("export-differs"):
            export_onnx(other, tmp_path / "pose.onnx", pictures())
        assert not list(tmp_path.iterdir())


def test_no_file_is_overwritten(tmp_path):
    (tmp_path / "pose.onnx").write_text("mine")
    with refused("output-exists", where="choose another name"):
        module.export_run(tmp_path / "no-run", tmp_path / "pose.onnx", [])
    assert (tmp_path / "pose.onnx").read_text() == "mine"


def test_mistakes_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_require", lambda *names: None)
    with refused("onnx-suffix-missing"):
        export_onnx(model_of(), tmp_path / "pose.pt", pictures())
    with refused("export-pictures-missing"):
        export_onnx(model_of(), tmp_path / "pose.onnx", [])


def test_without_the_extra_it_says_what_to_install(tmp_path, monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refused("package-missing", where="onnxscript"):
        export_onnx(model_of(), tmp_path / "pose.onnx", pictures())
