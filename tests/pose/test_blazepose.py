"""BlazePose in torch gives what the published files give, and gradients of single units are exact."""

from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch.func import functional_call, grad, vmap

from convert_blazepose import BlazePose, set_scales
from dpose.files import SHIPPED
from dpose.pose import blazepose
from dpose.pose.blazepose import BlazePoseDetector, ScaledConv, Stage, fold_scales, refined
from dpose.pose.folder import find_model, load_model
from dpose.pose.predict import for_prediction
from pose.astronauts import astronauts

REFERENCE = Path(__file__).parent / "data" / "blazepose_litert.npz"
"""What LiteRT 2.3 gives for the published files of @mediapipe/pose 0.5.1675469404, rounded to hundredths."""


def inputs(side):
    return torch.from_numpy(astronauts(side)).permute(0, 3, 1, 2)


@pytest.fixture(scope="module")
def reference():
    with np.load(REFERENCE) as result:
        return dict(result)


@pytest.fixture
def tiny(monkeypatch):
    """The architecture of the largest network at a tenth of its width, with random weights and scales."""
    stages = (
        Stage(4, 3, 2, (3,), (4, 6)),
        Stage(6, 5, 2, ()),
        Stage(6, 3, 2, ()),
        Stage(8, 5, 1, ()),
        Stage(8, 5, 2, ()),
    )
    tower = ((6, 1), (8, 1), (8, 0), (8, 0), (8, 1))
    monkeypatch.setitem(blazepose.SIZES, "heavy", blazepose.TrunkSizes(4, stages, 6, tower, from_pyramid=True))
    torch.manual_seed(0)
    network = BlazePose("heavy").double()
    for layer in network.modules():
        if isinstance(layer, ScaledConv):
            layer.scale.copy_(torch.exp2(torch.randint(-2, 2, layer.scale.shape)))
    return network


@pytest.mark.parametrize("kind", ["lite", "full"])
def test_twenty_pictures_give_the_original_s_places_within_a_tenth_of_a_pixel(kind, reference):
    model = load_model(find_model(f"blazepose:{kind}"))
    with torch.inference_mode():
        coordinates, heat, presence = model(inputs(256))
    wanted = reference[kind] / 100
    assert len(wanted) == 20
    apart = np.abs(coordinates.numpy() - wanted)
    assert apart[..., :2].max() < 0.1
    assert apart[..., 3:].max() < 0.05
    assert np.abs(torch.sigmoid(presence).numpy() - reference[f"{kind}_presence"]).max() < 0.01
    assert np.abs(heat.numpy()[..., ::8, ::8] - reference[f"{kind}_heat"] / 100).max() < 0.05


def test_the_detector_gives_the_original_s_places_and_scores(reference):
    detector = BlazePoseDetector().eval()
    tensors = safetensors.torch.load_file(SHIPPED / "blazepose" / "detector.safetensors")
    detector.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    with torch.inference_mode():
        places, scores = detector(inputs(224).float() / 127.5 - 1)
    for result, score, wanted, sure in zip(places, scores, reference["places"], reference["scores"], strict=True):
        anchors = wanted[:, 0]
        assert np.abs(score[anchors].numpy() - sure).max() < 0.01
        assert np.abs(result[anchors].numpy() - wanted[:, 1:] / 100).max() < 0.1


def test_the_published_files_themselves_where_they_are_at_hand(tmp_path):
    """Needs what `tools/convert_blazepose.py` needs, the archive in this folder's parent, and ai-edge-litert."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    archive = next(Path.cwd().parent.glob("mediapipe-pose-0.5.1675469404.tgz"), None)
    if archive is None:
        pytest.skip("the archive of `npm pack @mediapipe/pose@0.5.1675469404` does not lie beside the source")
    import tarfile

    with tarfile.open(archive) as opened:
        content = opened.extractfile("package/pose_landmark_full.tflite").read()
    run = interpreter.Interpreter(model_content=content, num_threads=1)
    run.allocate_tensors()
    model = load_model(find_model("blazepose:full"))
    for picture in astronauts(256):
        run.set_tensor(run.get_input_details()[0]["index"], picture[None].astype(np.float32) / 255)
        run.invoke()
        outputs = [run.get_tensor(each["index"]) for each in run.get_output_details()]
        wanted = next(each for each in outputs if each.size == 195).reshape(39, 5)
        with torch.inference_mode():
            result = model(torch.from_numpy(picture).permute(2, 0, 1)[None])[0][0]
        assert np.abs(result.numpy() - wanted)[:, :2].max() < 0.1


def test_gradients_of_single_units_are_exact_and_depend_on_their_unit_alone(tiny):
    torch.manual_seed(1)
    pictures = torch.rand(3, 3, 256, 256, dtype=torch.float64)
    params = {name: p.detach() for name, p in tiny.named_parameters()}
    buffers = dict(tiny.named_buffers())

    def loss(params, picture):
        coordinates, heat, presence = functional_call(tiny, (params, buffers), (picture[None],))
        return coordinates.square().mean() + heat.square().mean() + presence.square().mean()

    result = vmap(grad(loss), in_dims=(None, 0))(params, pictures)
    for number, picture in enumerate(pictures):
        tiny.zero_grad()
        loss(dict(tiny.named_parameters()), picture).backward()
        for name, parameter in tiny.named_parameters():
            size = max(1.0, float(parameter.grad.abs().max()))
            assert (result[name][number] - parameter.grad).abs().max() < 1e-10 * size, name


def test_folding_the_scales_changes_nothing_but_speed(tiny):
    picture = torch.rand(2, 3, 256, 256, dtype=torch.float64)
    before = tiny(picture)
    fold_scales(tiny)
    fold_scales(tiny)  # once and no more
    for one, other in zip(before, tiny(picture), strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-9)
    shipped = load_model(find_model("blazepose:lite"))
    crop = inputs(256)[:1]
    folded = for_prediction(shipped)
    assert not any(layer.folded for layer in shipped.modules() if isinstance(layer, ScaledConv))
    assert torch.allclose(shipped(crop)[0], folded(crop)[0], atol=1e-2)


def test_scales_are_powers_of_two_near_each_channel_s_size_and_change_no_digit():
    torch.manual_seed(2)
    layer = ScaledConv(4, 5, 3)
    with torch.no_grad():
        layer.conv.weight.mul_(torch.tensor([1e-2, 0.05, 1.0, 30.0, 0.0]).view(-1, 1, 1, 1))
    weight, bias = layer.conv.weight.clone(), layer.conv.bias.clone()
    set_scales([layer])
    exponents = layer.scale.log2()
    assert torch.equal(exponents, exponents.round())
    assert torch.equal(layer.conv.weight * layer.scale.view(-1, 1, 1, 1), weight)
    assert torch.equal(layer.conv.bias * layer.scale, bias)
    sizes = layer.conv.weight[:4].flatten(1).square().mean(1).sqrt()
    assert ((sizes > 0.7) & (sizes < 1.42)).all()


def test_a_point_moves_to_its_heat_within_reach_and_stays_where_there_is_none():
    heat = torch.full((1, 3, 64, 64), -20.0)
    heat[0, 0, 30, 22] = heat[0, 0, 30, 23] = 4.0  # between two cells of a row
    heat[0, 1, 30, 22] = 4.0  # too far away
    points = torch.tensor([[[84.0, 118.0], [140.0, 120.0], [-3.0, 300.0]]])
    result = refined(points, heat)
    assert result[0, 0].tolist() == pytest.approx([90.0, 120.0], abs=1e-3)
    assert torch.equal(result[0, 1:], points[0, 1:])


def test_heat_at_the_border_is_averaged_over_the_cells_that_there_are():
    heat = torch.full((1, 1, 64, 64), -20.0)
    heat[0, 0, 0, 63] = 4.0
    assert refined(torch.tensor([[[255.0, 0.0]]]), heat)[0, 0].tolist() == pytest.approx([252.0, 0.0], abs=1e-3)


def test_depth_to_space_has_tensorflow_s_order():
    x = torch.arange(8.0).view(1, 8, 1, 1)
    assert blazepose._depth_to_space(x)[0].tolist() == [[[0, 2], [4, 6]], [[1, 3], [5, 7]]]
