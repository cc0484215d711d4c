"""Whole pose models as other libraries write them: the same outputs, and one line for what is not known."""

import json

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
import torch.nn.functional as F
from torch import nn

from dpose.cli import main
from dpose.media.images import write_image
from dpose.pose import folder as folder_module
from dpose.pose.elsewhere import is_elsewhere
from dpose.pose.folder import find_model, load_model, save_model
from dpose.pose.model import PoseConfig, PoseModel, fold_batchnorm
from dpose.runs.build import backbone_file, build_model, check_seen, first_weights
from dpose.runs.config import RunConfig
from dpose.runs.places import shown_settings
from exact_units import shake
from refusals import refused
from tiers import rest_slow

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
HRNET = "td-hm_hrnet-w18s_8xb64-210e_coco-256x192-0123abcd.pth"
SMALL = (24, 2, 3)


def pictures(size=(256, 192)):
    generator = torch.Generator().manual_seed(2)
    return torch.randint(0, 256, (2, 3, *size), generator=generator, dtype=torch.uint8)


def normalised(images):
    return (images / 255 - MEAN) / STD


# -- transformers


def settings(width=24, depth=2, heads=3, simple=True, trunk=None, **more):
    own = {
        "model_type": "vitpose_backbone",
        "hidden_size": width,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "out_indices": [depth],
        "image_size": [256, 192],
        **(trunk or {}),
    }
    return {"model_type": "vitpose", "backbone_config": own, "use_simple_decoder": simple, **more}


def by_transformers_names(model):
    """The tensors of one of dpose's ViTPoses as transformers has them: the mapping backwards, written by hand."""
    result = {}
    for name, tensor in model.state_dict().items():
        name = name.replace("backbone.blocks.", "backbone.encoder.layer.")
        if ".attn.qkv." in name:
            for part, piece in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                result[name.replace("attn.qkv", f"attention.attention.{part}")] = piece.clone()
        elif name == "backbone.pos_embed":
            whole = torch.randn(1, 1, tensor.shape[2], dtype=tensor.dtype)
            result["backbone.embeddings.position_embeddings"] = torch.cat([whole, tensor - whole], 1)
        elif name.startswith("head.deconvolutions."):
            number = 1 + int(name.split(".")[2]) // 2
            if name.endswith("weight"):
                # a BatchNorm that undoes a factor of the kernel
                result[f"head.deconv{number}.weight"] = tensor * 4
                bias = model.head.get_parameter(name[5:].replace("weight", "bias"))
                result |= {
                    f"head.batchnorm{number}.weight": torch.full_like(bias, 0.5),
                    f"head.batchnorm{number}.bias": bias.detach() + 0.25,
                    f"head.batchnorm{number}.running_mean": torch.full_like(bias, 1.0),
                    f"head.batchnorm{number}.running_var": torch.full_like(bias, 4.0 - 1e-5),
                    f"head.batchnorm{number}.num_batches_tracked": torch.tensor(7),
                }
        else:
            for old, new in (
                ("backbone.patch_embed.", "backbone.embeddings.patch_embeddings.projection."),
                (".attn.proj.", ".attention.output.dense."),
                (".norm1.", ".layernorm_before."),
                (".norm2.", ".layernorm_after."),
                ("backbone.last_norm.", "backbone.layernorm."),
                ("head.joints.", "head.conv."),
            ):
                name = name.replace(old, new)
            result[name] = tensor
    return result


def write(folder, tensors, config):
    folder.mkdir(parents=True, exist_ok=True)
    content = {name: t.detach().contiguous() for name, t in tensors.items()}
    (folder / "model.safetensors").write_bytes(safetensors.torch.save(content))
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def vitpose(codec="vitpose"):
    torch.manual_seed(1)
    config = PoseConfig("vitpose:{}x{}x{}".format(*SMALL), skeleton="coco", codec=codec)
    return shake(PoseModel(config)).float()


@pytest.mark.parametrize("codec", ["vitpose", "vitpose-classic"])
def test_a_folder_of_transformers_names(tmp_path, codec):
    model = vitpose(codec)
    place = write(tmp_path / "m", by_transformers_names(model), settings(simple=codec == "vitpose"))
    result = load_model(place)
    assert result.config == model.config
    assert result.source == place
    with torch.no_grad():
        (ours,), (theirs,) = result(pictures()), model(pictures())
    # of the BatchNorm: (4 k x - 1) / 2 * 0.5 + bias + 0.25 = k x + bias
    assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()
    save_model(result, tmp_path / "own")  # and from there on it is dpose's
    assert torch.equal(load_model(tmp_path / "own")(pictures())[0], ours)


def test_of_several_experts_the_first_is_taken(tmp_path):
    model = vitpose()
    tensors = by_transformers_names(model)
    for block in range(SMALL[1]):
        name = f"backbone.encoder.layer.{block}.mlp."
        for kind in ("weight", "bias"):
            shared = tensors[f"{name}fc2.{kind}"]
            tensors[f"{name}fc2.{kind}"], tensors[f"{name}experts.0.{kind}"] = shared[:16], shared[16:]
            tensors[f"{name}experts.1.{kind}"] = torch.randn_like(shared[16:])
    more = {"num_experts": 2, "part_features": 8}
    result = load_model(write(tmp_path / "m", tensors, settings(trunk=more)))
    with torch.no_grad():
        assert (result(pictures())[0] - model(pictures())[0]).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("size", "simple", "experts"),
    rest_slow(
        [("small", True, 1), ("small", False, 1), ("base", True, 1), ("base", False, 1), ("small", True, 6)], 0, 4
    ),
)
def test_outputs_are_those_of_transformers(tmp_path, size, simple, experts):
    library = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    width, heads = {"small": (384, 12), "base": (768, 12)}[size]
    trunk = library.VitPoseBackboneConfig(
        hidden_size=width,
        num_hidden_layers=12,
        num_attention_heads=heads,
        out_indices=[12],
        num_experts=experts,
        part_features=width // 4,
    )
    config = library.VitPoseConfig(backbone_config=trunk, use_simple_decoder=simple, num_labels=17)
    theirs = library.VitPoseForPoseEstimation(config).eval()
    with torch.no_grad():
        for name, tensor in theirs.state_dict().items():
            if tensor.is_floating_point():
                noise = 0.02 * torch.randn_like(tensor)
                tensor += noise.abs() if name.endswith("running_var") else noise
    theirs.save_pretrained(tmp_path / "m")
    ours = load_model(tmp_path / "m")
    assert ours.config.preset == f"vitpose:{size}"
    of_coco = {"dataset_index": torch.zeros(2, dtype=torch.long)} if experts > 1 else {}
    with torch.no_grad():
        wanted = theirs(normalised(pictures()), **of_coco).heatmaps
        (result,) = ours(pictures())
    assert wanted.shape == (2, 17, 64, 48)
    assert wanted.std() > 0.1
    assert (result - wanted).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"scale_factor": 2}, ("tensor-unknown", "scale_factor")),
        ({"trunk": {"hidden_act": "relu"}}, ("tensor-unknown", "hidden_act")),
        ({"trunk": {"patch_size": [14, 14]}}, ("tensor-unknown", "patch_size")),
        ({"trunk": {"layer_norm_eps": 1e-3}}, ("tensor-unknown", "layer_norm_eps")),
        ({"trunk": {"out_indices": [1]}}, ("block-unsupported",)),
        ({"trunk": {"image_size": [256, 256]}}, ("tensor-of-wrong-shape", "pos_embed")),
        ({"trunk": {"num_attention_heads": 5}}, ("preset-unknown",)),
    ],
)
def test_other_configurations_are_refused_in_one_line(tmp_path, changes, says):
    place = write(tmp_path / "m", by_transformers_names(vitpose()), settings(**changes))
    with refused(*says) as error:
        load_model(place)
    assert "\n" not in error.value.line()


def test_other_tensors_are_refused_in_one_line(tmp_path):
    tensors = by_transformers_names(vitpose())
    joints = "head.conv.weight"
    for changed, says in (
        ({**tensors, "head.extra": torch.ones(1)}, ("tensor-unknown", "head.extra")),
        ({n: t for n, t in tensors.items() if n != joints}, ("tensor-missing", "head.joints.weight")),
        (
            tensors | {joints: torch.ones(14, 24, 3, 3), "head.conv.bias": torch.ones(14)},
            ("joints-unknown", "14 joints"),
        ),
        (tensors | {"head.conv.bias": torch.ones(16)}, ("tensor-of-wrong-shape",)),
    ):
        place = write(tmp_path / "m", changed, settings())
        with refused(*says) as error:
            load_model(place)
        assert "\n" not in error.value.line()
    (place / "model.safetensors").unlink()
    with refused("weights-missing", where="model.safetensors"):
        load_model(place)
    with refused("joints-unknown", where="ap10k's"):
        load_model(write(tmp_path / "vitpose-ap10k", tensors, settings()))


# -- OpenMMLab's files


def hrnet():
    """timm's smallest, with the last convolution of a heat map's head: what is compared with."""
    torch.manual_seed(0)
    trunk = timm.create_model("hrnet_w18_small", num_classes=0, head="").eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, tensor in trunk.state_dict().items():
            if tensor.is_floating_point():
                noise = 0.05 * torch.randn(tensor.shape, generator=generator)
                tensor += noise.abs() if name.endswith("running_var") else noise
    return trunk, nn.Conv2d(16, 17, 1)


def by_mmpose_names(trunk, last, head="head"):
    """As mmpose writes them: its last stage mixes for the highest branch alone."""
    tensors = {f"backbone.{name}": t for name, t in trunk.state_dict().items()}
    left_out = tuple(f"backbone.stage4.{len(trunk.stage4) - 1}.fuse_layers.{n}." for n in (1, 2, 3))
    tensors = {name: t for name, t in tensors.items() if not name.startswith(left_out)}
    return {**tensors, f"{head}.final_layer.weight": last.weight, f"{head}.final_layer.bias": last.bias}


@pytest.mark.parametrize("head", ["head", "keypoint_head"])
def test_an_hrnet_of_mmpose(tmp_path, head):
    trunk, last = hrnet()
    content = {
        "meta": {"cfg": "codec = dict(type='MSRAHeatmap')", "sigmas": np.ones(17), "lr": np.float64(0.1)},
        "state_dict": by_mmpose_names(trunk, last, head),
    }
    with torch.no_grad():
        wanted = F.conv2d(trunk.forward_features(normalised(pictures()))[0], last.weight, last.bias)
    for zipped in (True, False):  # openmmlab publishes files in the form of before torch 1.6
        torch.save(content, tmp_path / HRNET, _use_new_zipfile_serialization=zipped)
        result = load_model(tmp_path / HRNET)
        assert (result.config.preset, result.config.codec) == ("timm:hrnet_w18_small", "heatmap-msra")
        assert (result.config.input_size, result.config.skeleton) == ((256, 192), "coco")
        with torch.no_grad():
            for model in (result, fold_batchnorm(result)):
                assert (model(pictures())[0] - wanted).abs().max() < 1e-5 * wanted.abs().max()


def test_what_a_file_of_mmpose_says_by_its_name_and_settings(tmp_path):
    trunk, last = hrnet()
    tensors = by_mmpose_names(trunk, last)
    for name, config, codec, size in (
        ("hrnet_w32_coco_384x288_udp-0f89c63e.pth", "", "heatmap-udp", (384, 288)),
        ("mine.pth", "codec = dict(type='UDPHeatmap', sigma=2)", "heatmap-udp", (256, 192)),
        ("mine-20220909_100x75.pth", "", "heatmap-msra", (256, 192)),
    ):
        torch.save({"state_dict": tensors, "meta": {"config": config}}, tmp_path / name)
        result = load_model(tmp_path / name).config
        assert (result.codec, result.input_size) == (codec, size)


def test_a_file_of_tensors_alone(tmp_path):
    (tmp_path / "m.safetensors").write_bytes(safetensors.torch.save(by_mmpose_names(*hrnet())))
    assert load_model(tmp_path / "m.safetensors").config.preset == "timm:hrnet_w18_small"


@pytest.mark.parametrize("kind", ["mmpose", "published"])
@pytest.mark.parametrize("codec", ["vitpose", "vitpose-classic"])
def test_a_vitpose_of_mmpose_or_as_published(tmp_path, kind, codec, monkeypatch):
    model = vitpose(codec)
    monkeypatch.setattr("dpose.pose.elsewhere.VITPOSE_SIZES", {"small": SMALL})
    names = {
        "mmpose": (
            ("patch_embed.", "patch_embed.projection."),
            ("blocks.", "layers."),
            (".norm", ".ln"),
            (".mlp.fc1.", ".ffn.layers.0.0."),
            (".mlp.fc2.", ".ffn.layers.1."),
            ("last_norm.", "ln1."),
        ),
        "published": (("patch_embed.", "patch_embed.proj."),),
    }[kind]
    tensors = {}
    for name, tensor in by_transformers_names(model).items():
        if name.startswith("head."):
            for old, new in (
                ("conv.", "final_layer."),
                ("deconv1.", "deconv_layers.0."),
                ("batchnorm1.", "deconv_layers.1."),
                ("deconv2.", "deconv_layers.3."),
                ("batchnorm2.", "deconv_layers.4."),
            ):
                if name.startswith(f"head.{old}"):
                    name = name.replace(old, new, 1)
                    break
            tensors[name if kind == "mmpose" else f"keypoint_{name}"] = tensor
    for name, tensor in model.backbone.state_dict().items():
        for old, new in names:
            name = name.replace(old, new)
        tensors[f"backbone.{name}"] = tensor
    torch.save({"state_dict": tensors}, tmp_path / "vitpose-s.pth")
    monkeypatch.setattr(
        "dpose.pose.elsewhere.PoseConfig",
        lambda preset, *more, **named: PoseConfig(model.config.preset, *more, **named),
    )
    result = load_model(tmp_path / "vitpose-s.pth")
    with torch.no_grad():
        (ours,), (theirs,) = result(pictures()), model(pictures())
    assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()


class Thing:
    def __reduce__(self):
        return (print, ("this must not be printed",))


def test_files_that_are_none_of_it(tmp_path, capsys):
    trunk, last = hrnet()
    tensors = by_mmpose_names(trunk, last)
    file = tmp_path / "m.pth"
    torch.save({"state_dict": tensors, "meta": {"hook": Thing()}}, file)
    assert not is_elsewhere(file)
    other = {f"backbone.layer1.{n}.conv1.weight": torch.ones(1) for n in range(2)}
    for content, says in (
        ({n.replace("stage4", "stage5"): t for n, t in tensors.items()}, ("model-unknown",)),
        (other | {"head.final_layer.weight": torch.ones(17, 1, 1, 1)}, ("model-unknown",)),
        ({n: t for n, t in tensors.items() if "stage4.0.branches.0.0" not in n}, ("hrnet-size-unknown",)),
        ({n: t for n, t in tensors.items() if "final_layer.bias" not in n}, ("tensor-missing", "head.joints.bias")),
    ):
        torch.save({"state_dict": content}, file)
        assert is_elsewhere(file)
        with refused(*says) as error:
            load_model(file)
        assert "\n" not in error.value.line()
    torch.save(trunk.state_dict(), file)  # of a backbone alone
    assert not is_elsewhere(file)
    assert not is_elsewhere(tmp_path / "missing.pth")
    assert "printed" not in capsys.readouterr().out


# -- a run's first weights


def config(init, private="synthetic:ward", **more):
    plan = {"method": "dp-sgd", "epsilon": 8.0, "delta": 1e-2}
    return RunConfig.from_dict({"data": {"private": private}, "plan": plan, "model": {"init": init, **more}})


def test_a_private_run_folds_and_knows_what_the_file_is_called(tmp_path):
    file = tmp_path / HRNET
    torch.save({"state_dict": by_mmpose_names(*hrnet())}, file)
    assert backbone_file(config(str(file))) is None
    assert first_weights(config(str(file))) == file
    model, start, message = build_model(config(str(file)))
    assert (model.config.norm, model.config.codec) == ("folded", "heatmap-msra")
    assert (start.name, start.learnt.datasets) == (HRNET, ("coco",))
    assert not start.learnt.known
    assert message == ["the head was adapted from coco's joints to mpii's"]
    model, _, _ = build_model(config(str(file), codec="simcc", input_size="128x96"))
    assert (model.config.codec, model.config.input_size) == ("simcc", (128, 96))
    other = file.rename(tmp_path / "hrnet_w32_mpii_256x256-6c4f923f_20200812.pth")
    with refused("first-weights-learnt-from-units", where="MPII"):
        check_seen(config(str(other), "mpii:mpii:train"))


def test_a_name_on_the_hub(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    place = tmp_path / "models--lab--vitpose-coco-aic-mpii" / "snapshots" / "0123abcd"
    write(place, by_transformers_names(vitpose()), settings())
    (place / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    requests = []
    monkeypatch.setattr(hub, "snapshot_download", lambda name, **more: requests.append(name) or str(place))
    folder_module._on_hub.cache_clear()
    name = "hf:lab/vitpose-coco-aic-mpii"
    assert find_model(name) == place
    model, start, _ = build_model(config(name))
    assert requests == ["lab/vitpose-coco-aic-mpii"]
    assert model.config.skeleton == "mpii"
    assert (start.name, start.licence) == (name, "apache-2.0")
    assert start.learnt.datasets == ("coco", "aic", "mpii")
    assert shown_settings(config(name))["model"]["init"] == name
    with refused("first-weights-learnt-from-units", where="MPII"):
        check_seen(config(name, "mpii:mpii:train"))
    folder_module._on_hub.cache_clear()


def test_the_hub_out_of_reach_is_one_line(monkeypatch):
    hub = pytest.importorskip("huggingface_hub")

    def fails(*args, **more):
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(hub, "snapshot_download", fails)
    folder_module._on_hub.cache_clear()
    with refused("hub-fetch-failed", where=("route", "lab/vitpose --local-dir")) as error:
        first_weights(config("hf:lab/vitpose"))
    assert "\n" not in error.value.line()


def test_predict_takes_a_folder_and_a_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "vit", by_transformers_names(vitpose()), settings())
    torch.save({"state_dict": by_mmpose_names(*hrnet())}, HRNET)
    write_image(tmp_path / "p.png", np.zeros((64, 48, 3), np.uint8))
    for model in ("vit", HRNET):
        assert main(["predict", model, "p.png", "--box", "4,4,40,60"]) == 0
        assert "l_ankle" in capsys.readouterr().out
    torch.save({"x": torch.ones(1)}, "other.pth")
    assert main(["predict", "other.pth", "p.png"]) == 2
    assert "is this a model folder?" in capsys.readouterr().err
