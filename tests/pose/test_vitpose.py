"""ViTPose and HRNet as backbones: places, strategies, gradients, a private run."""

import json

import pytest
import timm
import torch
from torch import nn

import dpose_scene.data as synthetic_module
from dpose.cli import main
from dpose.pose.backbones import backbone_named
from dpose.pose.codec import codec_of
from dpose.pose.folder import load_model, save_model
from dpose.pose.heads import adapt_head, change_codec, resize
from dpose.pose.model import LIGHT, PoseConfig, PoseModel, apply_strategy, fold_batchnorm
from dpose.pose.timm_models import HighestBranch
from exact_units import check_exact, shake, units
from refusals import refused

TINY = "vitpose:24x4x3"
SIZE = (64, 32)


def tiny(codec="vitpose", **more):
    torch.manual_seed(0)
    return PoseModel(PoseConfig(TINY, SIZE, codec=codec, **more))


def narrow_hrnet():
    """An HRNet whose widths are tiny, in the place of timm's trunk."""
    stages = {
        f"stage{n}": {
            "num_modules": 1,
            "num_branches": n,
            "num_blocks": (1,) * n,
            "num_channels": tuple(4 * 2**k for k in range(n)),
            "block_type": "BASIC",
            "fuse_method": "SUM",
        }
        for n in (2, 3, 4)
    }
    first = {**stages["stage2"], "num_branches": 1, "num_blocks": (1,), "num_channels": (4,)}
    model = PoseModel(PoseConfig("timm:hrnet_w18_small", SIZE, skeleton="coco"))
    torch.manual_seed(0)
    whole = timm.models.hrnet.HighResolutionNet(
        {"stem_width": 8, "stage1": {**first, "block_type": "BOTTLENECK"}, **stages}, head=""
    )
    model.backbone = HighestBranch(whole)
    for module in model.backbone.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False
    model.head = model.codec.head(4, 17, model.config.backbone.map_size(SIZE))
    return model


# -- what they are


def test_a_vitpose_has_the_published_sizes():
    for name, millions in (("small", 21), ("base", 85)):
        config = PoseConfig(f"vitpose:{name}", skeleton="coco")
        assert (config.input_size, config.stride, config.upsample) == ((256, 192), 16, 4)
        assert (config.codec, config.sigma) == ("vitpose", 2.0)
        with torch.device("meta"):
            trunk = config.backbone.build(config.input_size, "folded", False)[0]
        assert sum(p.numel() for p in trunk.parameters()) // 10**6 == millions
    model = tiny()
    (maps,) = model(torch.zeros(2, 3, *SIZE))
    assert maps.shape == (2, 16, 16, 8)
    assert not list(model.backbone.buffers())
    assert PoseConfig.from_dict(json.loads(json.dumps(model.config.to_dict()))) == model.config


def test_patches_begin_two_pixels_outside_of_the_picture():
    model = tiny().eval()
    seen = []
    model.backbone.patch_embed.register_forward_hook(lambda _layer, args, out: seen.append(out))
    picture = torch.zeros(1, 3, *SIZE)
    picture[..., 13, 13] = 255.0  # the last pixel of the first patch on both axes
    model(picture)
    model(torch.zeros(1, 3, *SIZE))
    changed = (seen[0] != seen[1]).any(1)[0]
    assert changed.nonzero().tolist() == [[0, 0]]


def test_the_map_of_hrnet_is_timms_highest_branch():
    torch.manual_seed(0)
    theirs = timm.create_model("hrnet_w18_small", num_classes=0, head="").eval()
    model = PoseModel(PoseConfig("timm:hrnet_w18_small", (64, 96))).eval()
    assert model.config.stride, model.config.codec == (4, "heatmap")
    own = theirs.state_dict()
    model.backbone.load_state_dict({name: own[name] for name in model.backbone.state_dict()})
    x = torch.randn(2, 3, 64, 96)
    with torch.no_grad():
        branches = theirs.forward_features(x)
        assert torch.equal(model.backbone.forward_features(x), branches[0])
    assert model(torch.zeros(1, 3, 64, 96))[0].shape == (1, 16, 16, 24)
    # nothing is kept that the map does not come from
    model.train()(torch.rand(2, 3, 64, 96) * 255)[0].square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"preset": "vitpose:giant"}, ("preset-unknown", "vitpose:small")),
        ({"preset": "vitpose:24x4x5"}, ("preset-unknown",)),
        ({"preset": TINY, "input_size": (64, 40)}, ("input-size-unsupported", "of 16")),
        ({"preset": TINY, "codec": "blazepose"}, ("codec-unsupported", "blazepose")),
        ({"preset": "nano", "codec": "vitpose"}, ("codec-unsupported", "vitpose")),
        ({"preset": "timm:hrnet_w19"}, ("timm-model-unknown", "timm:hrnet_w18")),
        ({"preset": "timm:hrnet_w18", "stride": 32}, ("stride-unsupported", "stride 32")),
    ],
)
def test_configurations_that_cannot_be(values, says):
    with refused(*says) as error:
        PoseConfig(**values)
    assert "\n" not in error.value.line()


def test_what_a_network_cannot_be_built_for():
    with refused("input-size-unsupported"):
        PoseModel(PoseConfig("timm:hrnet_w18_small", (96, 72)))
    with refused("backbone-without-own-weights"):
        PoseModel(PoseConfig(TINY, SIZE), pretrained=True)
    with refused("pretrained-needs-batchnorm"):
        PoseModel(PoseConfig("timm:hrnet_w18_small", norm="group"), pretrained=True)
    with refused("input-size-fixed", where="64x32"):
        resize(tiny(), (64, 64), 16)


# -- places of cells


def ideal(made, places):
    """Maps whose peaks are where `places` are."""
    (height, width), n = made.input_size, made.ratio
    rows, columns = round(height / n), round(width / n)
    steps = {
        "corners": ((width - 1) / (columns - 1), (height - 1) / (rows - 1), 0.0),
        "first": (n, n, 0.0),
        "middle": (n, n, (n - 1) / 2),
    }[made.places]
    x = torch.arange(columns, dtype=torch.float64) * steps[0] + steps[2]
    y = torch.arange(rows, dtype=torch.float64) * steps[1] + steps[2]
    scale = torch.tensor(steps[:2]).double() * made.sigma
    far = ((x - places[..., 0, None]) / scale[0]) ** 2
    down = ((y - places[..., 1, None]) / scale[1]) ** 2
    return (torch.exp(-0.5 * (far[..., None, :] + down[..., :, None])),)


@pytest.mark.parametrize(
    ("codec", "preset"),
    [
        ("vitpose", TINY),
        ("vitpose-classic", TINY),
        ("heatmap", TINY),
        *((name, "timm:hrnet_w18") for name in ("heatmap", "heatmap-msra", "heatmap-udp")),
    ],
)
def test_a_joint_is_found_where_the_labels_say_it_is(codec, preset):
    made = codec_of(PoseConfig(preset, (256, 192), codec=codec))
    places = 20 + 140 * torch.rand(4, 16, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    outputs = ideal(made, places)
    result, scores = made.decode(outputs)
    assert (result - places).abs().max() < 1e-6
    assert scores.min() > 0.9
    # the loss has the same cells in mind, and mirroring leaves joints where they are
    assert made.loss(outputs, places, torch.ones(4, 16)).max() < 1e-12
    partner = torch.arange(16).flip(0)
    turned = ideal(made, torch.stack([191 - places[..., 0], places[..., 1]], -1)[:, partner])
    both, _ = made.decode(made.mirror(outputs, turned, partner))
    assert (both - places).abs().max() < (0.05 if codec == "heatmap-msra" else 1e-6)
    assert "argmax" in made.explain()


def test_the_first_and_last_cell_of_udp_are_the_first_and_last_pixel():
    made = codec_of(PoseConfig("vitpose:small", (256, 192)))
    maps = torch.zeros(1, 16, 64, 48)
    maps[0, 0, 0, 0] = maps[0, 1, 63, 47] = 1.0
    result, _ = made.decode((maps,))
    assert torch.allclose(result[0, :2], torch.tensor([[0.0, 0.0], [191.0, 255.0]]), atol=1e-4)
    assert "191 / 47 * column" in made.explain()


# -- training


@pytest.mark.parametrize("codec", ["vitpose", "vitpose-classic", "simcc"])
@pytest.mark.parametrize("strategy", ["light", "finetune", "full"])
def test_gradients_of_units_of_a_vitpose(codec, strategy):
    model = shake(fold_batchnorm(tiny(codec)))
    check_exact(model, units(SIZE), strategy, plain=True)


@pytest.mark.parametrize("strategy", ["light", "finetune", "full"])
def test_gradients_of_units_of_an_hrnet(strategy):
    model = shake(narrow_hrnet())
    folded = fold_batchnorm(model)
    batch = units(SIZE, 17)
    with torch.no_grad():
        (a,), (b,) = model(batch.inputs[0]), folded(batch.inputs[0])
        assert a.std() > 1e-4
        assert (a - b).norm() <= 1e-12 * a.norm()
    assert not list(folded.backbone.buffers())
    check_exact(folded, batch, strategy, plain=True)


def test_strategies_by_rule():
    model = tiny()
    tuned = apply_strategy(model, "finetune")
    matrices = {name.split(".")[2] for name in tuned if ".mlp." in name}
    assert matrices == {"3"}  # of four blocks the last quarter
    assert "backbone.blocks.0.norm1.weight" in tuned  # every LayerNorm trains
    assert not {"backbone.pos_embed", "backbone.patch_embed.weight"} & set(tuned)
    assert "head.joints.weight" in tuned
    light = apply_strategy(model, "light")
    assert all(name.endswith(".bias") or "norm" in name or "joints" in name or "patch" in name for name in light)
    hrnet = fold_batchnorm(narrow_hrnet())
    tuned = apply_strategy(hrnet, "finetune")
    assert {name.split(".")[1] for name in tuned} == {"transition3", "stage4", "joints"}
    light = set(apply_strategy(hrnet, "light"))
    for name, parameter in hrnet.named_parameters():
        assert (name in light) == (name.endswith(".bias") or parameter.numel() <= LIGHT), name


def test_a_head_of_other_joints_or_of_another_codec():
    model = tiny("vitpose", skeleton="coco").eval()
    adapted = adapt_head(model, "mpii")
    pictures = torch.rand(2, 3, *SIZE) * 255
    with torch.no_grad():
        (theirs,), (ours,) = model(pictures), adapted(pictures)
    assert torch.allclose(ours[:, 10], theirs[:, 10])  # the right wrist has this number in both
    assert ours.shape[1] == 16
    changed = change_codec(model, "simcc")
    assert [tuple(o.shape) for o in changed(pictures)] == [(2, 17, 64), (2, 17, 128)]


@pytest.mark.slow
def test_a_private_run_of_two_steps_from_first_weights(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(synthetic_module, "SPLITS", {"train": 16, "val": 6, "test": 6, "public": 6})
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    save_model(tiny(skeleton="coco"), tmp_path / "first")
    message = ["--epsilon", "8", "--delta", "1e-3", "--batch-size", "8", "--epochs", "1", "--set", "seed=3"]
    run = str(tmp_path / "run")
    first = ["--init", str(tmp_path / "first"), "--data", "synthetic:ward", "--set", "data.validation_data=none"]
    assert main(["train", *first, *message, "--out", run]) == 0, capsys.readouterr().err
    assert main(["verify", run]) == 0
    assert "2 reserved steps" in capsys.readouterr().out
    trained = load_model(run)
    assert trained.config.preset == TINY
    before = load_model(tmp_path / "first").state_dict()
    moved = {n for n, t in trained.state_dict().items() if n in before and not torch.equal(t, before[n])}
    assert "backbone.blocks.3.mlp.fc1.weight" in moved
    assert "backbone.blocks.2.mlp.fc1.weight" not in moved
    assert main(["evaluate", run, "--data", "synthetic:ward:val"]) == 0


def test_names_of_families_are_not_given_away():
    from dpose.pose.backbones import register_backbone

    with refused("backbone-exists"):
        register_backbone(backbone_named("vitpose:base"))
