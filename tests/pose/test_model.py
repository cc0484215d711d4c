"""The pose model: geometry, timm's weights, folding, strategies, the folder it is kept in."""

import functools
import json
import re

import pytest
import safetensors.torch
import timm
import torch
from timm.models.tiny_vit import Attention
from torch import nn

from dpose.pose import tinyvit
from dpose.pose.folder import load_model, save_model
from dpose.pose.model import PoseConfig, PoseModel, apply_strategy, fold_batchnorm
from refusals import refused

SMALL = (64, 48)


def shake(model: nn.Module, seed: int = 0) -> nn.Module:
    """Move every tensor away from where timm starts it (biases and some weights are 0 there)."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
                tensor += (0.05 * (noise.abs() if name.endswith("running_var") else noise)).to(tensor.dtype)
    return model


@functools.cache
def small(norm: str = "batch") -> PoseModel:
    torch.manual_seed(0)
    return shake(PoseModel(PoseConfig("nano", SMALL, norm=norm)))


def pictures(n: int, size=SMALL, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, 3, *size), generator=generator, dtype=torch.uint8)


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


# -- configuration


def test_defaults_are_the_papers_and_nanos():
    config = PoseConfig()
    assert (config.preset, config.input_size, config.split_ratio, config.sigma) == ("5m", (256, 192), 2.0, 6.0)
    nano = PoseConfig("nano")
    assert (nano.input_size, nano.sigma, nano.joints) == ((128, 96), 3.0, 16)
    # the same smoothing in pixels, whatever the bins
    assert PoseConfig(split_ratio=4).sigma == 12.0


def test_a_configuration_survives_json():
    config = PoseConfig("nano", SMALL, norm="group", split_ratio=1, sigma=2.5, upsample=1)
    assert PoseConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert PoseConfig.from_dict({"preset": "11m"}) == PoseConfig("11m")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"presett": "nano"}, ("setting-unknown", "preset")),
        ({"preset": "huge"}, ("preset-unknown",)),
        ({"preset": 5}, ("setting-invalid", "preset")),
        ({"norm": "layer"}, ("choice-unknown",)),
        ({"skeleton": "octopus"}, ("choice-unknown", "mpii")),
        ({"input_size": [250, 192]}, ("input-size-unsupported",)),
        ({"preset": "nano", "input_size": [128, 90]}, ("input-size-unsupported", "of 16")),
        ({"input_size": [256]}, ("input-size-unsupported",)),
        ({"input_size": 256}, ("setting-invalid", "input_size")),
        ({"split_ratio": 1.5}, (("split-ratio-out-of-range", "upsample-out-of-range"),)),
        ({"split_ratio": float("nan")}, (("split-ratio-out-of-range", "upsample-out-of-range"),)),
        ({"sigma": -1.0}, ("sigma-not-positive",)),
        ({"sigma": float("nan")}, ("sigma-not-positive",)),
        ({"upsample": -1}, (("split-ratio-out-of-range", "upsample-out-of-range"),)),
        ({"upsample": True}, ("setting-invalid", "upsample")),
    ],
)
def test_what_a_configuration_cannot_be(values, says):
    with refused(*says):
        PoseConfig.from_dict(values)


# -- geometry


def test_windows_tile_the_map():
    assert tinyvit.stage_maps(32, (256, 192)) == [(64, 48), (32, 24), (16, 12), (8, 6)]
    assert tinyvit.stage_maps(16, (128, 96)) == [(32, 24), (16, 12), (8, 6), (8, 6)]
    model = PoseModel(PoseConfig("5m"))
    assert [stage.blocks[0].window for stage in model.backbone.stages[1:]] == [(8, 8), (16, 12), (8, 6)]
    for extent in range(1, 100):
        for preferred in (8, 16):
            assert extent % tinyvit.fit_window(extent, preferred) == 0
    assert [tinyvit.fit_window(n, 8) for n in (6, 8, 12, 24, 36)] == [6, 8, 6, 8, 9]


@pytest.mark.parametrize(("preset", "millions"), [("5m", 5.25), ("11m", 10.73), ("21m", 20.80)])
def test_every_preset_runs_at_256x192(preset, millions):
    model = PoseModel(PoseConfig(preset)).eval()
    assert parameters(model) / 1e6 == pytest.approx(millions, abs=0.01)
    with torch.no_grad():
        x, y = model(pictures(1, (256, 192)))
    assert x.shape == (1, 16, 384)
    assert y.shape == (1, 16, 512)
    assert torch.isfinite(x).all()


def test_nano_is_small_and_its_head_sees_what_5ms_sees():
    nano, five = PoseModel(PoseConfig("nano")), PoseModel(PoseConfig("5m"))
    assert 0.8e6 < parameters(nano) < 1.3e6
    assert nano.head.x.in_features == five.head.x.in_features == 2 * 8 * 2 * 6
    assert (nano.head.x.out_features, nano.head.y.out_features) == (192, 256)
    x, y = nano.eval()(pictures(2, (128, 96)))
    assert x.shape == (2, 16, 192)
    assert y.shape == (2, 16, 256)


def test_the_heads_upsampling_is_the_configurations():
    # no upsampling: the size that the reference reports on 8x6 for 16 joints
    plain = PoseModel(PoseConfig("5m", upsample=1)).head
    assert parameters(plain) == 49_040
    assert PoseModel(PoseConfig("nano", SMALL, upsample=3)).head.x.in_features == 9 * 4 * 3


def test_pictures_of_another_size_are_refused():
    with refused("pictures-of-wrong-shape", where="(2, 3, 48, 64)"):
        small()(torch.zeros(2, 3, 48, 64))


# -- against timm


@pytest.mark.parametrize(
    ("side", "options"),
    [
        (128, {"window_sizes": [8, 8, 8, 4]}),  # maps 16, 8, 4: windows 8, 8, 4, exact for timm too
        (224, {}),  # as ImageNet's weights were trained: maps 28, 14, 7, windows 7, 14, 7
    ],
)
def test_the_backbone_is_timms_where_its_windows_are_square(side, options):
    size = (side, side)
    torch.manual_seed(0)
    theirs = shake(timm.create_model("tiny_vit_5m_224", num_classes=0, **options)).double()
    ours, norm, channels = tinyvit.build_backbone("5m", size, "batch", stride=32)
    state = theirs.state_dict()
    norm.load_state_dict({k: state.pop(f"head.norm.{k}") for k in ("weight", "bias")})
    ours.load_state_dict(state)  # strict: the names are timm's
    images = torch.randn(2, 3, *size, dtype=torch.float64)
    with torch.no_grad():
        expected = theirs.eval().forward_features(images)
        result = ours.double().eval().forward_features(images)
    assert result.shape == (2, channels, side // 32, side // 32)
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-10)


def test_a_rectangular_window_keeps_the_bias_of_every_offset():
    theirs = Attention(32, 16, 2, attn_ratio=1, resolution=(8, 8))
    nn.init.normal_(theirs.attention_biases)
    table = theirs.get_attention_biases(torch.device("cpu")).view(2, 8, 8, 8, 8)
    ours = tinyvit.WindowAttention(theirs, (8, 6))
    bias = ours.attention_biases[:, ours.offsets].view(2, 8, 6, 8, 6)
    assert torch.equal(bias, table[:, :, :6, :, :6])


def test_pretrained_weights_arrive(monkeypatch):
    torch.manual_seed(0)
    source = shake(timm.create_model("tiny_vit_5m_224", num_classes=0, window_sizes=[8, 8, 16, 8]))
    requests = []

    def create(name, pretrained, **options):
        requests.append((name, pretrained, options["window_sizes"]))
        return source

    monkeypatch.setattr(timm, "create_model", create)
    wanted = source.stages[3].blocks[1].mlp.fc1.weight.clone()
    table = source.stages[2].blocks[0].attn.attention_biases.view(5, 16, 16)[..., :12].clone()
    model = PoseModel(PoseConfig("5m"), pretrained=True)
    assert requests == [("tiny_vit_5m_224", True, [8, 8, 16, 8])]
    assert torch.equal(model.backbone.stages[3].blocks[1].mlp.fc1.weight, wanted)
    assert torch.equal(model.backbone.stages[2].blocks[0].attn.attention_biases.view(5, 16, 12), table)


def test_pretrained_weights_that_cannot_be_had(monkeypatch):
    def offline(*_args, **_options):
        raise OSError("no route to host")

    monkeypatch.setattr(timm, "create_model", offline)
    with refused("pretrained-weights-unavailable", where=("tiny_vit_5m_224", "route to host")):
        PoseModel(PoseConfig("5m"), pretrained=True)
    with refused("pretrained-weights-missing"):
        PoseModel(PoseConfig("nano"), pretrained=True)
    with refused("pretrained-needs-batchnorm"):
        PoseModel(PoseConfig("5m", norm="group"), pretrained=True)


# -- norms


def test_folding_is_exact_in_evaluation():
    model = shake(PoseModel(PoseConfig("nano", SMALL)).double(), seed=2).eval()
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("running_var"):
                buffer.mul_(3)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    folded = fold_batchnorm(model)
    with torch.no_grad():
        for a, b in zip(model(pictures(3)), folded(pictures(3)), strict=True):
            assert (a - b).norm() / a.norm() < 1e-10
            assert a.std() > 1e-3
    # the original is as it was, the copy is free of it
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert model.config.norm == "batch"
    assert folded.config == PoseConfig("nano", SMALL, norm="folded")
    # in training mode too nothing mixes
    folded.train()
    one, three = folded(pictures(3)[:1]), folded(pictures(3))
    torch.testing.assert_close(one[0][0], three[0][0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("norm", ["folded", "group"])
def test_no_batchnorm_is_left(norm):
    def mixing(model):
        return [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]

    assert mixing(small("batch"))
    assert not mixing(fold_batchnorm(small("batch")))
    assert not mixing(small(norm))


def test_group_norm_stands_where_batchnorm_stood():
    def count(model, kind):
        return sum(isinstance(layer, kind) for layer in model.modules())

    assert count(small("group"), nn.GroupNorm) == count(small("batch"), nn.BatchNorm2d) > 10
    assert all(m.num_channels == 8 * m.num_groups for m in small("group").modules() if isinstance(m, nn.GroupNorm))
    for preset in ("5m", "11m", "21m"):
        backbone, _, _ = tinyvit.build_backbone(preset, (256, 192), "group", stride=32)
        assert count(backbone, nn.GroupNorm) == 27


def test_a_folded_configuration_takes_folded_weights():
    folded = fold_batchnorm(small())
    again = PoseModel(folded.config)
    again.load_state_dict(folded.state_dict())
    for model in (again, folded):
        model.eval()
    assert torch.equal(again(pictures(2))[0], folded(pictures(2))[0])
    assert fold_batchnorm(folded).config == folded.config


# -- evaluation mode


def test_evaluation_follows_its_weights():
    """timm's attention keeps its biases from the first forward in evaluation mode; this one must not."""
    model, other = fold_batchnorm(small()).eval(), fold_batchnorm(shake(PoseModel(small().config), 9)).eval()
    with torch.no_grad():
        stale = model(pictures(2))
        expected = other(pictures(2))
        model.load_state_dict(other.state_dict())
        assert torch.equal(model(pictures(2))[0], expected[0])
        before = model(pictures(2))[0]
        for name, parameter in model.named_parameters():
            if name.endswith("attention_biases"):
                parameter += torch.randn_like(parameter)
        assert not torch.equal(model(pictures(2))[0], before)
    assert not torch.equal(stale[0], expected[0])


# -- strategies


MATRIX = r"(qkv|proj|fc1|fc2|head\.x|head\.y)\.weight|attention_biases"


@pytest.mark.parametrize("norm", ["batch", "folded", "group"])
def test_what_each_strategy_trains(norm):
    model = PoseModel(PoseConfig("nano", SMALL, norm=norm))
    names = {name for name, _ in model.named_parameters()}
    outside = re.compile(r"backbone\.stages\.3\.|norm\.|head\.")
    layer_norm = re.compile(r"backbone\.stages\.[12]\.blocks\.\d\.(attn|mlp)\.norm\.(weight|bias)")
    expected = {n for n in names if outside.match(n) or layer_norm.fullmatch(n)}
    blocks = sum(len(model.backbone.stages[s].blocks) for s in (1, 2))
    assert sum(bool(layer_norm.fullmatch(n)) for n in names) == 4 * blocks

    assert apply_strategy(model, "finetune") == [n for n, _ in model.named_parameters() if n in expected]
    assert {n for n, p in model.named_parameters() if p.requires_grad} == expected
    light = set(apply_strategy(model, "light"))
    assert light == {n for n in names if not re.search(MATRIX, n)}
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) < 110_000
    for strategy in ("full", "scratch"):
        assert set(apply_strategy(model, strategy)) == names
        assert all(p.requires_grad for p in model.parameters())
    with refused("choice-unknown"):
        apply_strategy(model, "half")


def test_frozen_first_layers_have_no_backward():
    model = fold_batchnorm(small()).train()
    apply_strategy(model, "finetune")
    carries = {}
    for stage, layer in enumerate(model.backbone.stages):
        layer.register_forward_hook(lambda _m, _i, out, stage=stage: carries.update({stage: out.requires_grad}))
    model(pictures(1))
    assert carries == {0: False, 1: True, 2: True, 3: True}


# -- dtypes and normalisation


def test_the_normalisation_is_imagenets_and_not_trained():
    model = PoseModel(PoseConfig("nano", SMALL))
    seen = []
    model.backbone.patch_embed.register_forward_pre_hook(lambda _module, args: seen.append(args[0]))
    model(torch.full((1, 3, *SMALL), 255, dtype=torch.uint8))
    mean, std = torch.tensor(timm.data.IMAGENET_DEFAULT_MEAN), torch.tensor(timm.data.IMAGENET_DEFAULT_STD)
    torch.testing.assert_close(seen[0][0, :, 0, 0], (1 - mean) / std)
    assert not {"mean", "std"} & ({n for n, _ in model.named_parameters()} | set(model.state_dict()))


def test_float64_goes_all_the_way():
    x, y = PoseModel(PoseConfig("nano", SMALL, norm="group")).double()(pictures(1))
    assert x.dtype == y.dtype == torch.float64


# -- the folder


def test_a_model_comes_back_bit_for_bit(tmp_path):
    for norm in ("batch", "folded", "group"):
        folder = tmp_path / norm
        save_model(small(norm), folder)
        assert sorted(p.name for p in folder.iterdir()) == ["config.json", "model.safetensors"]
        loaded = load_model(folder)
        assert loaded.config == small(norm).config
        assert not loaded.training
        state = loaded.state_dict()
        assert state.keys() == small(norm).state_dict().keys()
        assert all(torch.equal(state[name], tensor) for name, tensor in small(norm).state_dict().items())


def test_a_runs_configuration_is_left_alone(tmp_path):
    run = json.dumps({"task": "pose", "model": small().config.to_dict(), "seed": 3})
    (tmp_path / "config.json").write_text(run)
    save_model(small(), tmp_path)
    assert (tmp_path / "config.json").read_text() == run
    with refused("model-of-other-kind"):
        save_model(small("group"), tmp_path)


def test_half_precision_weights_load_into_float32(tmp_path):
    save_model(small("folded"), tmp_path)
    path = tmp_path / "model.safetensors"
    halves = {name: t.half() for name, t in small("folded").state_dict().items()}
    path.write_bytes(safetensors.torch.save(halves))
    state = load_model(tmp_path).state_dict()
    assert {t.dtype for t in state.values()} == {torch.float32}
    assert all(torch.equal(state[name], half.float()) for name, half in halves.items())


def _damage(path, how):
    tensors = dict(small("folded").state_dict())
    raw = safetensors.torch.save(tensors)
    if how == "cut":
        path.write_bytes(raw[:-100])
    elif how == "header":
        path.write_bytes(b"\xff" * 8 + raw[8:])
    elif how == "pickle":
        torch.save(tensors, path)
    elif how == "gone":
        path.unlink()
    elif how == "shape":
        path.write_bytes(safetensors.torch.save({**tensors, "head.x.bias": torch.zeros(7)}))
    elif how == "type":
        path.write_bytes(safetensors.torch.save({**tensors, "head.x.bias": torch.zeros(96, dtype=torch.int32)}))
    elif how == "extra":
        path.write_bytes(safetensors.torch.save({**tensors, "teeth": torch.zeros(1)}))
    elif how == "nan":
        tensors["head.x.bias"] = tensors["head.x.bias"].index_fill(0, torch.tensor([3]), float("nan"))
        path.write_bytes(safetensors.torch.save(tensors))
    elif how == "missing":
        path.write_bytes(safetensors.torch.save({k: v for k, v in tensors.items() if k != "head.x.bias"}))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("cut", ("weights-damaged",)),
        ("header", ("weights-damaged",)),
        ("pickle", ("weights-damaged",)),
        ("gone", ("file-unreadable",)),
        ("shape", ("tensor-of-wrong-shape", ("head.x.bias", "7", "96"))),
        ("type", ("tensor-of-wrong-type", ("head.x.bias", "torch.int32"))),
        ("extra", ("tensor-unknown", "teeth")),
        ("nan", ("tensor-not-finite", "head.x.bias")),
        ("missing", ("tensor-missing", "head.x.bias")),
    ],
)
def test_weights_that_are_not_this_models(tmp_path, how, says):
    save_model(small("folded"), tmp_path)
    _damage(tmp_path / "model.safetensors", how)
    with refused(*says) as caught:
        load_model(tmp_path)
    assert str(tmp_path / "model.safetensors") in caught.value.line()


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_is_not_there(tmp_path, device):
    save_model(small("folded"), tmp_path)
    with refused("device-unavailable", where=f"device {device}"):
        load_model(tmp_path, device=device)


def test_models_of_ones_own_are_told_what_to_do():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    for call in (fold_batchnorm, lambda one: apply_strategy(one, "light")):
        with refused("model-not-pose", where=("Sequential", "nn.GroupNorm in place of BatchNorm")):
            call(model)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, ("file-unreadable",)),
        ("{", ("json-invalid",)),
        ("[]", ("config-without-model",)),
        ('{"task": "pose"}', ("config-without-model",)),
        ('{"task": "action", "model": {}}', ("model-of-other-task",)),
        ('{"task": "pose", "model": {"presets": "5m"}}', ("setting-unknown", "preset")),
    ],
)
def test_a_configuration_file_that_is_not_a_models(tmp_path, text, says):
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with refused(*says) as caught:
        load_model(tmp_path)
    assert str(tmp_path / "config.json") in caught.value.line()
