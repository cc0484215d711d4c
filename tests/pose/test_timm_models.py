"""Any of timm's models as a backbone: gradients, folding and strides, by rules that know no model's name."""

import json

import pytest
import timm
import torch
from torch import nn

from dpose.pose import timm_models
from dpose.pose.backbones import backbone_named, register_backbone
from dpose.pose.model import LIGHT, PoseConfig, PoseModel, apply_strategy, fold_batchnorm
from dpose.pose.norms import foldable, replace_batch_norms
from dpose.training.guards import check_model
from exact_units import check_exact, shake, units
from refusals import refused

QUICK = ("test_efficientnet", "test_resnet", "test_vit", "test_convnext")
"""Timm's own small ones, of four families."""

WHOLE = (
    "efficientnet_lite0",
    "mobilenetv3_small_100",
    "resnet18",
    "convnext_atto",
    "fastvit_t8",
    "vit_tiny_patch16_224",
    "mobilevitv2_050",
)


def built(preset, size, norm="batch", stride=0):
    torch.manual_seed(0)
    return shake(PoseModel(PoseConfig(preset, size, norm=norm, stride=stride)))


def check_family(preset, size, stride=0):
    """Folding is equal in evaluation, and every strategy's gradients of the folded model are exact."""
    model, batch = built(preset, size, stride=stride), units(size)
    folded = fold_batchnorm(model)
    with torch.no_grad():
        for a, b in zip(model(batch.inputs[0]), folded(batch.inputs[0]), strict=True):
            assert a.std() > 1e-4
            assert (a - b).norm() <= 1e-12 * a.norm()
    assert not list(folded.backbone.buffers()) or preset in ("nano", "5m", "11m", "21m")
    for strategy in ("light", "finetune", "full"):
        check_exact(folded, batch, strategy)


@pytest.mark.parametrize("name", QUICK)
def test_small_ones_of_four_families(name):
    check_family(f"timm:{name}", (32, 32) if name == "test_vit" else (64, 48))


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_whole_ones(name):
    check_family(f"timm:{name}", (64, 64) if name == "mobilevitv2_050" else (64, 48))


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "stride"), [("nano", 16), ("5m", 16), ("5m", 32), ("11m", 32), ("21m", 16)])
def test_every_tinyvit(preset, stride):
    check_family(preset, (64, 64), stride)


@pytest.mark.parametrize("name", ["test_efficientnet", pytest.param("fastvit_t8", marks=pytest.mark.slow)])
def test_group_norm_from_scratch(name):
    model = built(f"timm:{name}", (64, 48), "group")
    assert any(isinstance(m, nn.GroupNorm) for m in model.modules())
    check_exact(model, units((64, 48)), "scratch")


# -- the map


def test_the_last_layers_that_step_make_no_step():
    lite0 = PoseConfig("lite0")
    assert (lite0.stride, lite0.input_size, lite0.backbone.map_size(lite0.input_size)) == (16, (128, 96), (8, 6))
    for preset, stride, size in (
        ("timm:test_resnet", 32, (256, 192)),
        ("timm:test_resnet", 8, (64, 48)),
        ("5m", 16, (128, 96)),
    ):
        config = PoseConfig(preset, stride=stride)
        assert config.input_size == size
        model = PoseModel(config).eval()
        assert model(torch.zeros(1, 3, *size))[0].shape == (1, 16, 2 * size[1])
        assert model.head.x.in_features == 2 * 8 * 2 * 6


def test_a_pooling_that_makes_no_step_keeps_the_size_of_the_map():
    x = torch.randn(1, 2, 6, 8)
    for pool in (nn.MaxPool2d(2), nn.MaxPool2d((2, 2), 2), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2)):
        net = nn.Sequential(pool)
        timm_models._make_no_step(net, "0")
        assert net(x).shape == x.shape


@pytest.mark.slow
def test_a_head_that_makes_the_features_stays():
    model = PoseModel(PoseConfig("timm:selecsls42", (64, 48))).eval()
    assert model(torch.zeros(1, 3, 64, 48))[0].isfinite().all()


def test_only_a_norm_of_maps_is_put_behind_a_map():
    for norm, remaining in (
        (timm.layers.LayerNorm2d(4), True),
        (timm.layers.LayerNorm(4), False),
        (nn.LayerNorm(4), False),
    ):
        net = nn.Module()
        net.head = nn.Module()
        net.head.norm = norm
        assert (timm_models._head_norm(net) is norm) == remaining


def test_what_is_left_out_of_timms_model_does_not_change_its_features():
    theirs = timm.create_model("test_resnet", num_classes=0)
    ours, tail, channels = timm_models.build_timm("test_resnet", (64, 64), "batch", False, stride=32)
    missing, extra = ours.load_state_dict(theirs.state_dict(), strict=False)
    assert not missing
    assert not extra
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        result, wanted = tail(ours.eval().forward_features(x)), theirs.eval().forward_features(x)
    assert torch.equal(result, wanted)
    assert channels == result.shape[1]


def test_tokens_become_a_map_in_their_places():
    model = PoseModel(PoseConfig("timm:test_vit", (32, 64))).eval()
    assert model.norm.prefix == 1
    tokens = torch.arange(1 + 2 * 4).float()[None, :, None].expand(1, -1, 64)
    assert model.norm(tokens)[0, 0].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    # it is given colours as it was trained with them, and not as ImageNet's models mostly are
    assert model.config.backbone.mean == (0.5, 0.5, 0.5)
    assert model.mean.flatten().tolist() == [127.5] * 3


def test_a_configuration_without_a_stride_has_the_backbones():
    assert PoseConfig.from_dict({"preset": "nano"}) == PoseConfig("nano", stride=16)
    again = PoseConfig.from_dict(json.loads(json.dumps(PoseConfig("5m", stride=16).to_dict())))
    assert again == PoseConfig("5m", (128, 96), stride=16)


def test_weights_drawn_do_not_depend_on_what_was_asked_before():
    timm_models.described.cache_clear()
    backbone_named.__globals__["_of_timm"].cache_clear()
    first, again = (built("timm:test_efficientnet", (32, 32)).state_dict() for _ in range(2))
    assert all(torch.equal(again[name], tensor) for name, tensor in first.items())


# -- strategies


def test_strategies_by_rule():
    model = fold_batchnorm(PoseModel(PoseConfig("timm:test_efficientnet")))
    names = [name for name, _ in model.named_parameters()]
    tuned = apply_strategy(model, "finetune")
    assert tuned == names[names.index(tuned[0]) :]  # what stands before the last stage is frozen
    assert tuned[0].startswith("backbone.blocks.4.")
    light = set(apply_strategy(model, "light"))
    for name, parameter in model.named_parameters():
        small = name.endswith(".bias") or (parameter.ndim == 4 and parameter.numel() <= LIGHT)
        assert (name in light) == small, name
    vit = PoseModel(PoseConfig("timm:test_vit"))
    blocks = len(vit.backbone.blocks)
    tuned = apply_strategy(vit, "finetune")
    assert {n.split(".")[2] for n in tuned if ".blocks." in n and ".mlp." in n} == {
        str(n) for n in range(3 * blocks // 4, blocks)
    }
    assert "backbone.blocks.0.norm1.weight" in tuned  # every LayerNorm trains
    assert "backbone.pos_embed" not in tuned


# -- what reads what


class Tangled(nn.Module):
    """Convolutions that one BatchNorm alone reads, and ones that it does not."""

    def __init__(self):
        super().__init__()
        self.plain, self.bn0 = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.shared, self.bn1 = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.twice, self.bn2 = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.standard, self.bn3 = timm.layers.ScaledStdConv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.bn4 = nn.BatchNorm2d(4)

    def forward(self, x):
        x = self.bn0(self.plain(x)).relu()
        y = self.shared(x)
        x = self.bn1(y) + y
        x = self.bn2(self.twice(self.twice(x).relu()))
        x = self.bn3(self.standard(x))
        return self.bn4(x.relu())


@pytest.mark.parametrize("norm", ["folded", "group"])
def test_only_what_one_batchnorm_alone_reads_is_folded(norm):
    torch.manual_seed(0)
    net, x = shake(Tangled()), torch.randn(2, 3, 6, 5, dtype=torch.float64)
    expected = net(x)
    net.train()
    assert foldable(net, lambda: net(x)) == {"bn0": "plain"}
    assert net.training
    assert torch.equal(net.eval()(x), expected)  # looking wrote no statistics
    replace_batch_norms(net, norm, lambda: net(x))
    assert not list(net.buffers())
    check_model(net)
    if norm == "folded":
        assert isinstance(net.bn0, nn.Identity)
        torch.testing.assert_close(net.train()(x), expected, rtol=1e-12, atol=1e-12)


def test_a_batchnorm_that_nothing_can_stand_for():
    for net in (nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, track_running_stats=False)), nn.BatchNorm1d(4)):
        with refused("norm-not-replaceable"):
            replace_batch_norms(nn.Sequential(net), "folded", lambda: None)


# -- what is refused


class Body(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.body, self.layer = nn.Conv2d(3, 4, 8, 8), layer

    def forward_features(self, x):
        return self.layer(self.body(x))


class Mixing(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (lambda: nn.InstanceNorm2d(4, track_running_stats=True), ("model-stores-state", "layer.running_mean")),
        (
            lambda: nn.utils.parametrizations.spectral_norm(nn.Conv2d(4, 4, 1)),
            ("model-stores-state", "layer.parametrizations"),
        ),
        (lambda: nn.utils.spectral_norm(nn.Conv2d(4, 4, 1)), ("model-stores-state", "layer.weight_u")),
        (Mixing, ("model-mixes-units",)),
        (lambda: nn.Dropout(0.5), ("model-mixes-units",)),
    ],
)
def test_what_mixes_or_stores_is_refused(layer, words):
    with refused(*words):
        timm_models._refuse_mixing("odd", Body(layer()), (32, 32))
    timm_models._refuse_mixing("fine", Body(nn.GroupNorm(1, 4)), (32, 32))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"preset": "timm:efficientnet_lite9"}, ("timm-model-unknown", "timm:efficientnet_lite")),
        ({"preset": "timm:"}, ("timm-model-unknown",)),
        ({"preset": "timm:pit_ti_224"}, ("feature-map-missing",)),
        ({"preset": "lite0", "input_size": (120, 96)}, ("input-size-unsupported", ("16 for", "lite0"))),
        ({"preset": "lite0", "stride": 12}, ("stride-unsupported", "stride 12")),
        ({"preset": "timm:test_vit", "stride": 32}, ("stride-unsupported", ("stride 32", "from 16"))),
        ({"preset": "nano", "stride": 8}, ("stride-unsupported", "stride 8")),
    ],
)
def test_configurations_that_cannot_be(values, words):
    with refused(*words) as error:
        PoseConfig(**values)
    assert "\n" not in error.value.line()


def test_a_model_that_cannot_take_the_size_says_so():
    with refused("input-size-unsupported", where="64x32"):
        PoseModel(PoseConfig("timm:mixer_s32_224", (64, 32)))


def test_names_of_timm_are_not_given_away():
    with refused("backbone-exists"):
        register_backbone(backbone_named("lite0"))
    assert backbone_named("timm:tiny_vit_5m_224").name == "5m"
