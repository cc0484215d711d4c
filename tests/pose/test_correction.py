"""The linear correction: nothing until it is solved, exact statistics of single people, and a solution that helps."""

import numpy as np
import pytest
import torch
from torch.func import functional_call, grad, vmap

from dpose.pose.codec import base_of
from dpose.pose.correction import FAR, CorrectedHead
from dpose.pose.folder import load_model, save_model
from dpose.pose.heads import fit_directions, with_correction
from dpose.pose.model import PoseConfig, PoseModel, apply_strategy
from dpose.pose.task import PoseTask
from dpose.training.closed_form import SecondMoment
from refusals import refused

K = 4
WEIGHT = "head.moves.weight"
CODECS = ["simcc", "heatmap", "regression"]


def crops(count, seed=0):
    return torch.randint(0, 256, (count, 3, 128, 96), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def people(model, count, seed=0, off=2.0):
    """Crops whose labels lie `off` pixels beside what the model finds, at random but for a constant."""
    pictures = crops(count, seed)
    with torch.no_grad():
        places, _ = base_of(model.codec).decode(model(pictures)[: len(base_of(model.codec).export_names)])
    draws = torch.Generator().manual_seed(seed + 1)
    labels = places + off + torch.randn(places.shape, generator=draws)
    visible = (torch.rand(places.shape[:2], generator=draws) > 0.2).float()
    return pictures, labels, visible


@pytest.fixture(scope="module", params=CODECS)
def base(request):
    torch.manual_seed(0)
    return PoseModel(PoseConfig("nano", norm="group", codec=request.param)).eval()


@pytest.fixture(scope="module")
def corrected(base):
    model = with_correction(base, K)
    fit_directions(model, [people(model, 24)])
    apply_strategy(model, "head")
    return model


def test_nothing_moves_before_it_is_solved(base, corrected):
    pictures = crops(3, 7)
    with torch.no_grad():
        before, after = base(pictures), corrected(pictures)
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=False))
        assert all(
            torch.equal(a, b) for a, b in zip(base.codec.decode(before), corrected.codec.decode(after), strict=True)
        )


def test_the_correction_alone_trains(corrected):
    assert apply_strategy(corrected, "head") == [WEIGHT]


def test_the_head_alone_trains_where_there_is_no_correction(base):
    model = PoseModel(base.config)
    names = apply_strategy(model, "head")
    assert names
    assert all(name.startswith("head.") for name in names)


def test_a_units_gradient_is_its_statistic(corrected):
    """At weights of 0 it is -r z^T / J, r cut off at FAR: written out by hand."""
    pictures, labels, visible = people(corrected, 5, seed=3, off=4.0)
    task = PoseTask(corrected.config.skeleton, corrected.codec)
    params = {WEIGHT: corrected.head.moves.weight.detach().clone()}

    def loss(p, x, k, v):
        return task.loss(corrected, p, x[None], {"keypoints": k[None], "visible": v[None]}).sum()

    rows = [grad(loss)(params, *one)[WEIGHT] for one in zip(pictures, labels, visible, strict=True)]
    codec, head = corrected.codec, corrected.head
    assert isinstance(head, CorrectedHead)
    with torch.no_grad():
        outputs = functional_call(corrected, params, (pictures,))
        x = codec.features(outputs[:-1])
        z = torch.cat([(x - head.mean) @ head.basis, torch.ones(5, 1)], 1) / head.facts[0]
        r = (labels - base_of(codec).decode(outputs[:-1])[0]) / 128
        r = torch.where(visible[..., None] > 0, r, torch.zeros(()))
        r = r * (FAR / r.norm(dim=-1, keepdim=True).clamp_min(FAR))
    for row, one, products in zip(rows, r, z, strict=True):
        expected = -torch.outer(one.flatten(), products) / codec.joints
        assert torch.allclose(row, expected, rtol=1e-3, atol=1e-5)
    together = vmap(grad(loss), in_dims=(None, 0, 0, 0))(params, pictures, labels, visible)[WEIGHT]
    assert torch.allclose(together, torch.stack(rows), rtol=1e-3, atol=1e-5)


def test_the_correction_does_not_reach_the_base(corrected):
    """Whatever its weights are, the gradients of the base are those of the base's own loss."""
    pictures, labels, visible = people(corrected, 2)
    model = with_correction(PoseModel(PoseConfig("nano", norm="group", codec=corrected.config.codec)), K)
    torch.nn.init.normal_(model.head.moves.weight)
    outputs = model(pictures)
    model.codec.loss(outputs, labels, visible).sum().backward()
    found = model.head.base.get_parameter(next(n for n, _ in model.head.base.named_parameters())).grad.clone()
    model.zero_grad()
    base_of(model.codec).loss(model(pictures)[:-1], labels, visible).sum().backward()
    own = model.head.base.get_parameter(next(n for n, _ in model.head.base.named_parameters())).grad
    assert torch.allclose(found, own, atol=1e-7)


def test_directions_are_whitened_on_public_people(corrected):
    with torch.no_grad():
        x = corrected.codec.features(corrected(people(corrected, 24)[0])[:-1])
        z = (x - corrected.head.mean) @ corrected.head.basis
    moment = z.T @ z / len(z)
    assert torch.allclose(moment, torch.diag(moment.diagonal()), atol=1e-3)
    assert (moment.diagonal() <= 1.001).all()


def test_a_solution_takes_a_constant_error_away(corrected):
    """Labels lie beside the joints by the same amount everywhere: the constant direction finds it."""
    pictures, labels, visible = people(corrected, 64, seed=9, off=3.0)
    head, codec = corrected.head, corrected.codec
    outputs = corrected(pictures)
    codec.loss(outputs, labels, visible).mean().backward()
    gradient = head.moves.weight.grad.clone()
    corrected.zero_grad()
    solution = head.solve(gradient, 0.0, 64)
    with torch.no_grad():
        moves = functional_call(corrected, {WEIGHT: solution}, (pictures,))[-1] * 128
        moved = codec.decode((*outputs[:-1], moves / 128))[0]
        seen = visible > 0
        before = (labels - codec.decode(outputs)[0])[seen].norm(dim=-1).mean()
        after = (labels - moved)[seen].norm(dim=-1).mean()
    assert after < 0.6 * before
    drowned = head.solve(gradient, 1e3, 64)
    assert torch.equal(drowned, torch.zeros_like(drowned))


def test_the_gradient_of_the_moment_is_the_second_moment(corrected):
    """Of each person by itself, and of no label: written out by hand."""
    pictures, head = crops(5, 4), corrected.head
    task = SecondMoment(PoseTask(corrected.config.skeleton, corrected.codec))
    params = {WEIGHT: torch.randn_like(head.moves.weight)}
    rows = vmap(grad(lambda p, x: task.loss(corrected, p, x[None], {}).sum()), in_dims=(None, 0), randomness="same")(
        params, pictures
    )[WEIGHT]
    with torch.no_grad():
        z = head.directed(corrected(pictures)[:-1])
    expected = torch.einsum("ni,nj->nij", z, z) * (head.facts[0] ** 2 / (K + 1))
    assert torch.allclose(rows[:, : K + 1], expected, rtol=1e-3, atol=1e-5)
    assert not rows[:, K + 1 :].any()


def test_a_private_moment_takes_the_place_of_the_public_one(corrected):
    """The public one gives the same weights; of people who vary three times as much a third."""
    head, scale = corrected.head, float(corrected.head.facts[0])
    gradient = torch.randn(head.moves.weight.shape, generator=torch.Generator().manual_seed(0))
    public = torch.zeros_like(gradient)
    public[: K + 1] = torch.eye(K + 1) / (K + 1)
    plain = head.solve(gradient, 0.0, 10**9)
    assert torch.allclose(head.solve(gradient, 0.0, 10**9, public), plain, rtol=1e-4)
    assert torch.allclose(head.solve(gradient, 0.0, 10**9, 3 * public), plain / 3, rtol=1e-4)
    # a moment that is noise alone does not blow the weights up: no direction counts for less than the noise
    drowned = head.solve(gradient, 1.0, 10**9, -public)
    bound = head.solve(gradient, 0.0, 10**9).norm() / (2 * (K + 1)) ** 0.5
    assert scale > 0
    assert drowned.norm() <= bound


def test_it_is_saved_with_the_model(corrected, tmp_path):
    torch.nn.init.normal_(corrected.head.moves.weight)
    save_model(corrected, tmp_path)
    again = load_model(tmp_path)
    with torch.no_grad():
        for a, b in zip(corrected(crops(2)), again(crops(2)), strict=True):
            assert torch.equal(a, b)
    torch.nn.init.zeros_(corrected.head.moves.weight)


def test_a_mirrored_crop_is_moved_the_other_way(corrected):
    partner = torch.arange(corrected.config.joints)
    with torch.no_grad():
        outputs = corrected(crops(2))
        moved = (*outputs[:-1], torch.full_like(outputs[-1], 0.1))
        codec = corrected.codec
        averaged = codec.mirror(moved, moved, partner)[-1]
    assert torch.allclose(averaged[..., 0], torch.zeros(()), atol=1e-7)
    assert torch.allclose(averaged[..., 1], torch.tensor(0.1))


def test_what_is_refused(corrected):
    with refused("model-corrected-already"):
        with_correction(corrected, K)
    with refused("directions-out-of-range"):
        PoseConfig("nano", directions=2 * corrected.config.joints + 1)
    assert "directions" not in PoseConfig("nano").to_dict()
    assert PoseConfig.from_dict(corrected.config.to_dict()) == corrected.config


def test_public_people_who_show_no_joint_do_not_magnify_it():
    torch.manual_seed(0)
    model = with_correction(PoseModel(PoseConfig("nano", norm="group")).eval(), K)
    pictures, labels, visible = people(model, 16)
    visible[:, 3] = 0
    assert (
        fit_directions(model, [(pictures[:8], labels[:8], visible[:8]), (pictures[8:], labels[8:], visible[8:])]) == 16
    )
    rates = model.head.facts[2:]
    assert rates[3] == pytest.approx(1 / 8)
    assert np.isfinite(rates.numpy()).all()
