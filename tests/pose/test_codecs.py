"""Every codec: its loss, its places and what it is without the model, and in one."""

import functools
import json
import math
from types import MappingProxyType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, grad, vmap

from dpose.pose import export as export_module
from dpose.pose.backbones import BACKBONES, Backbone, register_backbone
from dpose.pose.codec import CODECS, codec_of, codecs_for, register_codec
from dpose.pose.folder import load_model, save_model
from dpose.pose.heads import adapt_head, change_codec, resize, temper
from dpose.pose.heatmap import HeatmapCodec, peaks
from dpose.pose.model import PoseConfig, PoseModel, apply_strategy, fold_batchnorm
from dpose.pose.predict import predict_image, predict_outputs
from dpose.pose.simcc import SimccCodec
from dpose.pose.skeletons import COCO, MPII
from dpose.pose.task import PoseMetric, PoseTask
from dpose.training.grad_sample import track
from dpose.training.gradients import trainable_params, unit_loss
from dpose.units import UnitBatch
from refusals import refused

SIZE = (64, 48)
OWN = ("simcc", "heatmap", "heatmap-deconv", "regression")
ERROR = {"simcc": 0.25, "heatmap": 1e-6, "heatmap-deconv": 1e-6, "regression": 1e-9}
"""Pixels, in float64: half a bin, or what arithmetic loses."""

every = pytest.mark.parametrize("name", OWN)
others = pytest.mark.parametrize("name", OWN[1:])


def config(name, **more):
    return PoseConfig("nano", SIZE, norm="folded", codec=name, **more)


def codec(name):
    return codec_of(config(name))


def ideal(name, places, size=SIZE):
    """What a perfect head gives for joints at `places` (N, J, 2), from what the codecs say of themselves."""
    made, (height, width) = codec_of(PoseConfig("nano", size, codec=name)), size
    if name == "simcc":
        x, y, _ = SimccCodec(size, 2.0, made.sigma, 1).encode(places, torch.ones(places.shape[:2]))
        return x.log().clamp(min=-200), y.log().clamp(min=-200)
    if name == "regression":
        return (places + 0.5) / torch.tensor([width, height]), torch.full(places.shape[:2], 9.0).to(places)
    pixels = [made.ratio * c + (made.ratio - 1) / 2 for c in range(round(height / made.ratio))]
    y = torch.tensor(pixels, dtype=places.dtype)[:, None]
    x = torch.tensor(pixels[: round(width / made.ratio)], dtype=places.dtype)
    far = (x - places[..., 0, None, None]) ** 2 + (y - places[..., 1, None, None]) ** 2
    return (torch.exp(-far / (2 * (made.sigma * made.ratio) ** 2)),)


def anywhere(seed, count=3, size=SIZE):
    """Places in the whole picture, up to its edges."""
    generator = torch.Generator().manual_seed(seed)
    corners = torch.tensor([[-0.5, -0.5], [size[1] - 0.5, size[0] - 0.5], [0, size[0] - 1]])
    places = torch.rand(count, 16, 2, generator=generator) * torch.tensor(size[::-1]) - 0.5
    places[:, :3] = corners
    return places.double()


@functools.cache
def shaken(name, strategy):
    """A float64 model none of whose tensors is at a value that hides its gradient."""
    torch.manual_seed(3)
    model = fold_batchnorm(PoseModel(PoseConfig("nano", SIZE, codec=name))).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    apply_strategy(model, strategy)
    return model.train()


def batch():
    generator = torch.Generator().manual_seed(1)
    places = torch.rand(3, 2, 16, 2, generator=generator) * 80 - 10  # some are outside
    visible = (torch.rand(3, 2, 16, generator=generator) < 0.7).float()
    places[visible == 0] = math.nan
    pictures = torch.randint(0, 256, (3, 2, 3, *SIZE), generator=generator, dtype=torch.uint8)
    weights = torch.tensor([[1.0, 1.0], [1.0, 0.5], [1.0, 0.0]])
    return UnitBatch(pictures, {"keypoints": places, "visible": visible}, weights)


class TestLoss:
    @every
    @pytest.mark.parametrize("strategy", ["light", "full"])
    def test_per_unit_gradients_are_those_of_each_unit_alone(self, name, strategy):
        model, units = shaken(name, strategy), batch()
        params, loss = trainable_params(model), unit_loss(PoseTask(codec=model.codec), model)
        assert any(p.startswith("head.joints") for p in params)
        plain = vmap(grad(loss), in_dims=(None, 0, 0, 0))(params, units.inputs, units.targets, units.weights)
        book = track(loss, params, units.parts, products=False)
        assert book is not None, "a parameter's use escaped"
        fast = book.gradients(params)
        for unit in range(len(units)):
            leaves = {p: value.detach().requires_grad_() for p, value in params.items()}
            targets = {kind: value[unit] for kind, value in units.targets.items()}
            of_one = loss(leaves, units.inputs[unit], targets, units.weights[unit])
            alone = torch.autograd.grad(of_one, list(leaves.values()))
            for p, gradient in zip(leaves, alone, strict=True):
                assert gradient.isfinite().all()
                scale = max(1.0, float(gradient.abs().max()))
                for result in (plain, fast):
                    assert (result[p][unit] - gradient).abs().max() <= 1e-10 * scale, p
            assert sum(float(g.abs().max()) for p, g in zip(leaves, alone, strict=True) if "head" in p) > 0

    @every
    def test_places_of_invisible_joints_are_never_read(self, name):
        made, (places, spoilt) = codec(name), (anywhere(4), anywhere(4))
        visible = torch.ones(3, 16)
        visible[:, 5:9] = 0
        outputs = [o.requires_grad_() for o in ideal(name, anywhere(5))]
        expected = made.loss(tuple(outputs), places, visible)
        gradients = torch.autograd.grad(expected.sum(), outputs)
        for value in (math.nan, math.inf, 1e38):
            spoilt[:, 5:9] = value
            result = made.loss(tuple(outputs), spoilt, visible)
            assert torch.equal(result, expected)
            for a, b in zip(torch.autograd.grad(result.sum(), outputs), gradients, strict=True):
                assert torch.equal(a, b)

    @every
    def test_a_view_is_scored_from_itself_and_its_joints_each_alone(self, name):
        made, places, outputs = codec(name), anywhere(6), ideal(name, anywhere(7))
        together = made.loss(outputs, places, torch.ones(3, 16))
        alone = [
            made.loss(tuple(o[v : v + 1] for o in outputs), places[v : v + 1], torch.ones(1, 16)) for v in range(3)
        ]
        torch.testing.assert_close(together, torch.cat(alone))
        joints = [made.loss(outputs, places, torch.eye(16)[j].expand(3, 16)) for j in range(16)]
        torch.testing.assert_close(together, torch.stack(joints).sum(0))
        assert (made.loss(outputs, places, torch.zeros(3, 16)) == 0).all()

    @every
    def test_it_is_least_where_the_joint_is_found(self, name):
        made, places = codec(name), anywhere(8, 1)
        best = made.loss(ideal(name, places), places, torch.ones(1, 16))
        assert best < 0.001
        for step in ([2.0, 0.0], [0.0, -2.0]):
            moved = (places + torch.tensor(step)).clamp(min=-0.5)
            assert made.loss(ideal(name, moved), places, torch.ones(1, 16)) > best + 0.005

    @every
    def test_what_it_teaches_is_what_is_decoded(self, name):
        """Outputs alone, from nothing, down the loss."""
        made, places = codec(name), anywhere(9, 1)
        outputs = [torch.zeros_like(o).requires_grad_() for o in ideal(name, places)]
        optimizer = torch.optim.Adam(outputs, 0.1)
        for step in range(500):
            optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / 500)
            optimizer.zero_grad()
            made.loss(tuple(outputs), places, torch.ones(1, 16)).sum().backward()
            optimizer.step()
        result, scores = made.decode(tuple(o.detach() for o in outputs))
        assert (result - places).abs().max() <= max(ERROR[name], 0.05) + 0.25 * (name == "simcc")
        assert (scores > (0.75 if "heatmap" in name else 0.95)).all()

    @others
    def test_a_joint_outside_the_picture_has_no_weight(self, name):
        made, places = codec(name), anywhere(10, 1)
        outputs = ideal(name, anywhere(11, 1))
        for outside in ([-0.6, 5.0], [47.6, 5.0], [5.0, -0.6], [5.0, 63.6]):
            places[0, 4] = torch.tensor(outside)
            assert made.loss(outputs, places, torch.eye(16)[4:5]) == 0
        places[0, 4] = torch.tensor([47.4, 63.4])
        assert made.loss(outputs, places, torch.eye(16)[4:5]) > 0

    def test_a_map_of_zeros_has_the_loss_one_whatever_its_size(self):
        for size, upsample in ((SIZE, 1), ((256, 192), 4)):
            made = codec_of(PoseConfig("nano", size, codec="heatmap", upsample=upsample))
            middle = torch.tensor([size[1] / 2, size[0] / 2]).expand(1, 16, 2)
            maps = torch.zeros(1, 16, size[0] // 16 * upsample, size[1] // 16 * upsample)
            assert made.loss((maps,), middle, torch.ones(1, 16)).item() == pytest.approx(1, abs=0.1)

    def test_a_score_teaches_no_place(self):
        made, places = codec("regression"), anywhere(12, 1)
        shares, scores = (o.requires_grad_() for o in ideal("regression", anywhere(13, 1)))
        gradients = []
        for value in (-3.0, 3.0):
            loss = made.loss((shares, scores * 0 + value), places, torch.ones(1, 16))
            gradients.append(torch.autograd.grad(loss.sum(), shares)[0])
        assert torch.equal(*gradients)


class TestPlaces:
    @every
    @settings(max_examples=30, deadline=None)
    @given(seed=st.integers(0, 2**32))
    def test_what_was_encoded_is_decoded(self, name, seed):
        places = anywhere(seed)
        result, scores = codec(name).decode(ideal(name, places))
        inside = places.clamp(min=0) if name == "simcc" else places  # SimCC's first bin is the first pixel's middle
        assert (result - inside).abs().max() <= ERROR[name] + 1e-9
        assert result.dtype == scores.dtype == torch.float64
        assert (scores > 0.6).all()
        assert (scores <= 1).all()

    @every
    def test_scores_are_shares(self, name):
        torch.manual_seed(0)
        outputs = tuple(50 * torch.randn_like(o) for o in ideal(name, anywhere(1)))
        _, scores = codec(name).decode(outputs)
        assert ((scores >= 0) & (scores <= 1)).all()

    @every
    @settings(max_examples=30, deadline=None)
    @given(seed=st.integers(0, 2**32))
    def test_a_picture_and_its_mirror_image_give_one_answer(self, name, seed):
        places = anywhere(seed)
        partner = torch.tensor(MPII.flip_order)
        turned = places[:, partner] * torch.tensor([-1.0, 1.0]) + torch.tensor([SIZE[1] - 1.0, 0.0])
        outputs, mirrored = ideal(name, places), ideal(name, turned)
        made = codec(name)
        both, _ = made.decode(made.mirror(outputs, mirrored, partner))
        inside = places.clamp(min=0) if name == "simcc" else places
        inside = inside.clamp(max=torch.tensor([SIZE[1] - 0.5, SIZE[0] - 0.5]))
        assert (both - inside).abs().max() <= 2 * ERROR[name] + 1e-6
        back, _ = made.decode(made.mirror(mirrored, outputs, partner))
        again = back[:, partner] * torch.tensor([-1.0, 1.0]) + torch.tensor([SIZE[1] - 1.0, 0.0])
        assert (again - both).abs().max() <= 2 * ERROR[name] + 1e-6

    @every
    def test_a_models_places_are_turned_with_its_picture(self, name):
        model = shaken(name, "full")
        partner = torch.tensor(MPII.flip_order)
        crops = batch().inputs.flatten(0, 1)
        places, scores = model.codec.decode(predict_outputs(model, crops, flip_test=True))
        turned, same = model.codec.decode(predict_outputs(model, crops.flip(-1), flip_test=True))
        back = turned[:, partner] * torch.tensor([-1.0, 1.0]) + torch.tensor([SIZE[1] - 1.0, 0.0])
        # SimCC: the last bin lies beyond the last pixel and has no counterpart
        near = (back - places).abs().amax(-1) <= 1e-6
        assert near.double().mean() > (0.9 if name == "simcc" else 0.999)
        if name != "simcc":
            torch.testing.assert_close(same[:, partner], scores)

    def test_a_peak_at_the_border_and_one_that_has_no_top(self):
        maps = torch.zeros(1, 3, 5, 4, dtype=torch.float64)
        maps[0, 0] = 0.5  # flat: the first cell, not moved
        maps[0, 1, 4, 3] = 1.0
        maps[0, 2] = -1.0
        cells, values = peaks(maps)
        assert cells[0, 0].tolist() == [0, 0]
        assert (cells[0, 1] - torch.tensor([3.0, 4.0])).abs().max() <= 0.5
        assert cells[0, 2].tolist() == [0, 0]
        assert values[0].tolist() == [0.5, 1, -1]
        assert peaks(torch.eye(2)[None, None])[0].tolist() == [[[0, 0]]]  # too small for a parabola

    @every
    def test_chance_is_what_an_untrained_model_says(self, name):
        torch.manual_seed(0)
        model = PoseModel(PoseConfig("nano", norm="group", codec=name)).eval()
        with torch.no_grad():
            _, scores = model.codec.decode(model(torch.randint(0, 256, (4, 3, 128, 96))))
        assert 0 < model.codec.chance() < 0.2
        assert scores.median() < 2 * model.codec.chance()

    @every
    def test_the_metric_scores_decoded_places(self, name):
        places = anywhere(3).clamp(0, 45)
        metric = PoseMetric(codec(name))
        metric.update(
            ideal(name, places),
            {"keypoints": places, "labelled": torch.ones(3, 16), "head_length": torch.full((3,), 10.0)},
        )
        assert metric.compute().to_dict()["columns"]["Mean"] == 100


class TestModels:
    @every
    def test_a_tiny_one_learns_one_picture(self, name):
        torch.manual_seed(0)
        model = PoseModel(config(name)).train()
        task = PoseTask(codec=model.codec)
        generator = torch.Generator().manual_seed(2)
        picture = torch.randint(0, 256, (1, 3, *SIZE), generator=generator, dtype=torch.uint8)
        places = torch.rand(1, 16, 2, generator=generator) * torch.tensor([40.0, 56.0]) + 4
        targets = {"keypoints": places, "visible": torch.ones(1, 16)}
        optimizer = torch.optim.Adam(model.parameters(), 2e-3)
        for _ in range(60):
            optimizer.zero_grad()
            task.loss(model, {}, picture, targets).sum().backward()
            optimizer.step()
        result = predict_image(model.eval(), picture[0].permute(1, 2, 0).numpy())
        assert np.abs(result.keypoints - places[0].numpy()).mean() < 1.5
        assert np.median(result.scores) > 4 * model.codec.chance()

    @every
    def test_it_is_kept_in_a_folder(self, name, tmp_path):
        torch.manual_seed(1)
        model = PoseModel(config(name, skeleton="coco")).eval()
        save_model(model, tmp_path)
        again = load_model(tmp_path)
        assert (again.config, again.config.codec) == (model.config, name)
        pictures = torch.randint(0, 256, (2, 3, *SIZE), dtype=torch.uint8)
        for a, b in zip(model(pictures), again(pictures), strict=True):
            assert torch.equal(a, b)

    def test_a_folder_of_before_is_simccs(self, tmp_path):
        save_model(PoseModel(config("simcc")), tmp_path)
        values = json.loads((tmp_path / "config.json").read_text())["model"]
        assert set(values) == {
            *("preset", "input_size", "skeleton", "norm", "split_ratio", "sigma", "upsample", "stride")
        }
        assert load_model(tmp_path).config.codec == "simcc"
        assert PoseConfig("nano") == PoseConfig("nano", codec="simcc")

    @every
    def test_bf16_gives_nearly_the_same_loss(self, name):
        torch.manual_seed(0)
        model, units = PoseModel(config(name)).train(), batch()
        targets = {kind: value[0] for kind, value in units.targets.items()}
        exact, rough = (
            PoseTask(codec=model.codec, precision=p).loss(model, {}, units.inputs[0], targets)
            for p in ("float32", "bf16")
        )
        assert rough.dtype == torch.float32
        torch.testing.assert_close(rough, exact, rtol=0.02, atol=0.01)

    def test_a_task_of_another_codec_refuses(self):
        model, units = PoseModel(config("regression")), batch()
        targets = {kind: value[0] for kind, value in units.targets.items()}
        with refused("codec-differs", where="48 * shares"):
            PoseTask().loss(model, {}, units.inputs[0], targets)

    @pytest.mark.slow
    @every
    def test_onnx_runtime_gives_what_torch_gives(self, name, tmp_path, monkeypatch):
        for package in ("onnx", "onnxscript", "onnxruntime"):
            pytest.importorskip(package)
        import onnx
        import onnxruntime

        torch.manual_seed(0)
        model = PoseModel(PoseConfig("nano", (64, 64), codec=name)).eval()
        with torch.no_grad():
            model.head.joints.weight.normal_(std=0.2)
        pictures = [np.random.default_rng(i).integers(0, 256, (50 + i, 70, 3), np.uint8) for i in range(3)]
        done = export_module.export_onnx(model, tmp_path / "pose.onnx", pictures)
        assert done.apart < 1e-3
        session = onnxruntime.InferenceSession(done.path, providers=["CPUExecutionProvider"])
        assert tuple(output.name for output in session.get_outputs()) == model.codec.export_names
        crops = torch.randint(0, 256, (4, 3, 64, 64)).float()
        theirs = session.run(None, {"images": crops.numpy()})
        for a, b in zip(predict_outputs(model, crops), theirs, strict=True):
            assert np.abs(a.numpy() - b).max() < 1e-3
        facts = {p.key: p.value for p in onnx.load(done.path).metadata_props}
        assert facts["dpose.decode"] == model.codec.explain()
        assert all(output in facts["dpose.decode"] for output in model.codec.export_names)
        assert PoseConfig.from_dict(json.loads(facts["dpose.config"])) == model.config
        by_onnx = export_module.run_by_onnx(model, pictures)
        assert by_onnx is not None
        assert (
            np.abs(predict_image(by_onnx, pictures[0]).keypoints - predict_image(model, pictures[0]).keypoints).max()
            < 0.2
        )
        content = done.path.read_bytes()
        monkeypatch.setattr(export_module, "_onnx_bytes", lambda model, crops: content)
        with torch.no_grad():
            model.head.joints.weight.mul_(-1)
        with refused("export-differs"):
            export_module.export_onnx(model, tmp_path / "other.onnx", pictures)
        assert not (tmp_path / "other.onnx").exists()


class TestHeads:
    @others
    def test_joints_of_one_name_keep_their_places(self, name):
        torch.manual_seed(0)
        coco = PoseModel(config(name, skeleton="coco")).eval()
        mpii = adapt_head(coco, "mpii", torch.Generator().manual_seed(1))
        picture = torch.randint(0, 256, (1, 3, *SIZE), dtype=torch.uint8)
        with torch.no_grad():
            before, after = coco(picture), mpii(picture)
        shared = [j for j in MPII.joints if j in COCO.joints]
        assert len(shared) == 12
        for a, b in zip(before, after, strict=True):
            assert b.shape[1] == 16
            for joint in shared:
                mine, theirs = b[0, MPII.joints.index(joint)], a[0, COCO.joints.index(joint)]
                torch.testing.assert_close(mine, theirs)
        _, scores = mpii.codec.decode(after)
        fresh = [MPII.joints.index(j) for j in MPII.joints if j not in COCO.joints]
        assert scores[0, fresh].max() < 3 * mpii.codec.chance()  # fresh joints are not claimed to be known
        assert mpii.config.skeleton == "mpii"
        mpii.load_state_dict(PoseModel(mpii.config).state_dict())

    @others
    def test_another_size_needs_no_other_head(self, name):
        model = PoseModel(PoseConfig("lite0", (64, 64), norm="folded", codec=name))
        large = resize(model, (128, 96), 16)
        assert all(torch.equal(t, large.state_dict()[n]) for n, t in model.state_dict().items())
        assert large.config.sigma == PoseConfig("lite0", (128, 96), codec=name).sigma
        places, _ = large.codec.decode(large(torch.zeros(1, 3, 128, 96)))
        assert places.shape == (1, 16, 2)

    @others
    def test_there_are_no_logits_to_divide(self, name):
        with refused("temperature-without-bins", where=name):
            temper(PoseModel(config(name)), 1.5)

    @every
    def test_another_codec_on_the_same_backbone(self, name):
        torch.manual_seed(0)
        model = PoseModel(PoseConfig("nano", SIZE, norm="folded")).eval()
        made = change_codec(model, name)
        assert (made.config.codec, made.training) == (name, False)
        assert made.config == config(name)
        remaining = [n for n in model.state_dict() if not n.startswith("head.")]
        assert all(torch.equal(model.state_dict()[n], made.state_dict()[n]) for n in remaining)
        assert not torch.equal(model.head.joints.bias[:1], made.head.joints.bias[:1])


class Halves(HeatmapCodec):
    """A codec from outside: heat maps whose second output counts nothing."""

    export_names = ("maps", "nothing")
    joint_layers = MappingProxyType({})

    def head(self, channels, joints, map_size):
        return Both(super().head(channels, joints, map_size))

    def loss(self, outputs, keypoints, visible):
        return super().loss(outputs[:1], keypoints, visible)

    def decode(self, outputs):
        return super().decode(outputs[:1])

    def mirror(self, outputs, mirrored, partner):
        return *super().mirror(outputs[:1], mirrored[:1], partner), outputs[1]


class Both(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.whole = head

    def forward(self, features):
        """Of a backbone with this codec alone: two maps."""
        first = features[0] if isinstance(features, tuple) else features
        return *self.whole(first), first.mean(dim=(1, 2, 3))


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 16, 16)

    def forward_features(self, pictures):
        map_ = self.stem(pictures)
        return map_, map_


class TestFromOutside:
    @pytest.fixture
    def halves(self):
        register_codec("halves", Halves.of)
        yield "halves"
        del CODECS["halves"]

    @pytest.fixture
    def alone(self):
        """A backbone whose head is its own, and a codec for no other."""
        register_codec("own", Halves.of, maps=False)
        backbone = Backbone("two", lambda *how: (Two(), nn.Identity(), 8), 16, (64, 48), codecs=("own",))
        register_backbone(backbone)
        yield backbone
        del BACKBONES["two"], CODECS["own"]

    def test_any_backbone_can_have_it(self, halves, tmp_path):
        model = PoseModel(PoseConfig("nano", SIZE, norm="folded", codec=halves)).eval()
        save_model(model, tmp_path)
        assert load_model(tmp_path).config.codec == "halves"
        crops = torch.randint(0, 256, (2, 3, *SIZE), dtype=torch.uint8)
        assert len(predict_outputs(model, crops, flip_test=True)) == 2
        units = batch()
        loss = unit_loss(PoseTask(codec=model.codec), model)
        result = vmap(grad(loss), in_dims=(None, 0, 0, 0))(
            trainable_params(model.train()), units.inputs, units.targets, units.weights
        )
        assert all(g.isfinite().all() for g in result.values())
        with refused("codec-exists"):
            register_codec(halves, Halves.of)
        with refused("skeleton-unsupported", where=("halves", "mpii's")):
            adapt_head(model, "coco")

    def test_a_backbones_own_is_its_default_and_no_others(self, alone):
        assert codecs_for(alone) == ("own",)
        model = PoseModel(PoseConfig("two"))
        assert model.config.codec == "own"
        assert PoseConfig.from_dict(model.config.to_dict()) == model.config
        assert PoseConfig.from_dict({"preset": "two"}) == model.config
        maps, nothing = model(torch.zeros(2, 3, 64, 48))
        assert (maps.shape, nothing.shape) == ((2, 16, 8, 6), (2,))
        with refused("codec-unsupported", where=("two", "simcc")):
            PoseConfig("two", codec="simcc")
        with refused("codec-unsupported", where="nano"):
            PoseConfig("nano", codec="own")

    def test_a_backbone_that_prefers_another_still_reads_what_was_before_it_did(self):
        register_backbone(Backbone("maps", BACKBONES["nano"].build, 16, SIZE, codecs=("heatmap", "simcc")))
        try:
            assert PoseConfig("maps").codec == "heatmap"
            for name in ("heatmap", "simcc"):
                made = PoseConfig("maps", codec=name)
                assert PoseConfig.from_dict(made.to_dict()) == made
            assert PoseConfig.from_dict({"preset": "maps"}).codec == "simcc"
        finally:
            del BACKBONES["maps"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"codec": "heat"}, ("codec-unsupported", "heat")),
        ({"codec": "heatmap-deconv", "upsample": 3}, ("upsample-invalid",)),
        ({"codec": "heatmap", "sigma": -1.0}, ("sigma-not-positive",)),
        ({"codec": "regression", "sigma": math.nan}, ("sigma-not-positive",)),
        ({"codec": 3}, ("setting-invalid", "be 3")),
    ],
)
def test_what_is_not_possible_is_one_line(values, words):
    with refused(*words) as error:
        PoseConfig.from_dict({"preset": "nano", **values})
    assert "\n" not in error.value.line()


def test_transposed_convolutions_double_the_map():
    for upsample, count in ((1, 0), (2, 1), (4, 2)):
        model = PoseModel(config("heatmap-deconv", upsample=upsample))
        kinds = [m for m in model.head.modules() if isinstance(m, nn.ConvTranspose2d)]
        (maps,) = functional_call(model, {}, (torch.zeros(1, 3, *SIZE),))
        assert (len(kinds), maps.shape[2:]) == (count, (4 * upsample, 3 * upsample))
        assert model.codec.ratio == 16 / upsample
