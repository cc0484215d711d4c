"""Labels, loss and decoding of SimCC, against plain numpy."""

import math

import numpy as np
import pytest
import torch
from torch.func import grad, vmap

from dpose.pose.simcc import SimccCodec, mirror_x
from dpose.pose.skeletons import MPII

SIZE = (64, 48)
K, SIGMA = 2.0, 3.0
BINS = (int(SIZE[1] * K), int(SIZE[0] * K))  # x, y


def encode(keypoints, visible, size, k, sigma):
    return SimccCodec(size, k, sigma, 1).encode(keypoints, visible)


def decode(x_logits, y_logits, k, sigma):
    return SimccCodec(SIZE, k, sigma, 1).decode((x_logits, y_logits))


def simcc_loss(x_logits, y_logits, keypoints, visible, k, sigma):
    return SimccCodec(SIZE, k, sigma, 1).loss((x_logits, y_logits), keypoints, visible)


def people(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    keypoints = rng.uniform((-0.5, -0.5), (SIZE[1] - 0.5, SIZE[0] - 0.5), (n, 16, 2))
    return torch.from_numpy(keypoints), torch.from_numpy(rng.random((n, 16)) < 0.7)


def logits(n: int, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    x, y = (torch.from_numpy(rng.normal(size=(n, 16, bins))) for bins in BINS)
    return x, y


def reference_loss(x_logits, y_logits, keypoints, visible):
    """The definition, one bin at a time of one joint at a time."""
    views = np.zeros(len(keypoints))
    for v in range(len(keypoints)):
        for j in range(16):
            if not visible[v, j]:
                continue
            for axis, scores in enumerate((x_logits[v, j], y_logits[v, j])):
                centre = round(float(keypoints[v, j, axis]) * K)
                label = np.array([math.exp(-((b - centre) ** 2) / (2 * SIGMA**2)) for b in range(len(scores))])
                label /= label.sum()
                log_model = scores - np.log(np.exp(scores).sum())
                views[v] += sum(p * (math.log(p) - q) for p, q in zip(label, log_model, strict=True) if p > 0)
    return views / 16


def test_labels_are_gaussians_of_sum_one_around_the_rounded_centre():
    keypoints = torch.tensor([[[10.3, 20.2], [0.0, 63.0]]], dtype=torch.float64)
    x, y, weight = encode(keypoints, torch.ones(1, 2), SIZE, K, SIGMA)
    assert x.shape == (1, 2, 96)
    assert y.shape == (1, 2, 128)
    assert x.argmax(-1).tolist() == [[21, 0]]  # 20.6 and 0
    assert y.argmax(-1).tolist() == [[40, 126]]  # 40.4 and 126
    assert weight.tolist() == [[1, 1]]
    torch.testing.assert_close(x.sum(-1), torch.ones(1, 2, dtype=torch.float64))
    # exp(-d^2 / (2 sigma^2)) at d = sigma
    assert float(x[0, 0, 24] / x[0, 0, 21]) == pytest.approx(math.exp(-0.5))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("bin_", "counts"),
    # +- 3 sigma is 9 bins: the window of bin -9 ends at bin 0, that of bin -10 outside
    [(-10, False), (-9, True), (0, True), ("last", True), ("last+9", True), ("last+10", False), (1e30, False)],
)
def test_a_joint_whose_whole_window_is_outside_does_not_count(axis, bin_, counts):
    if isinstance(bin_, str):
        bin_ = BINS[axis] - 1 + int(bin_.removeprefix("last") or 0)
    keypoints = torch.full((1, 1, 2), 20.0)
    keypoints[..., axis] = bin_ / K
    x, y, weight = encode(keypoints, torch.ones(1, 1), SIZE, K, SIGMA)
    assert weight.item() == float(counts)
    assert torch.isfinite(x).all()
    assert torch.isfinite(y).all()
    x_logits, y_logits = torch.zeros(1, 1, BINS[0]), torch.zeros(1, 1, BINS[1])
    assert (simcc_loss(x_logits, y_logits, keypoints, torch.ones(1, 1), K, SIGMA).item() > 0) == counts


def test_coordinates_of_invisible_joints_are_never_read():
    keypoints, visible = people(3)
    x_logits, y_logits = logits(3)
    expected = simcc_loss(x_logits, y_logits, keypoints, visible, K, SIGMA)
    for nonsense in (float("nan"), float("inf"), -1e30, 0.0):
        spoilt = torch.where(visible[..., None], keypoints, torch.tensor(nonsense, dtype=torch.float64))
        assert torch.equal(simcc_loss(x_logits, y_logits, spoilt, visible, K, SIGMA), expected)


@pytest.mark.parametrize("k", [1.0, 2.0, 3.0])
def test_round_trip_is_within_half_a_bin(k):
    keypoints = torch.rand(8, 16, 2, dtype=torch.float64) * torch.tensor([SIZE[1] - 1, SIZE[0] - 1])
    x, y, _ = encode(keypoints, torch.ones(8, 16), SIZE, k, SIGMA)
    result, scores = decode(x.log(), y.log(), k, SIGMA)
    assert (result - keypoints).abs().max() <= 0.5 / k + 1e-12
    assert scores.min() > 0.99


def test_the_loss_is_the_definition():
    keypoints, visible = people(5)
    x_logits, y_logits = logits(5)
    expected = reference_loss(x_logits.numpy(), y_logits.numpy(), keypoints.numpy(), visible.numpy())
    result = simcc_loss(x_logits, y_logits, keypoints, visible, K, SIGMA)
    assert result.shape == (5,)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12)


def test_the_loss_is_zero_at_the_labels_and_without_visible_joints():
    keypoints, _ = people(4)
    x, y, _ = encode(keypoints, torch.ones(4, 16), SIZE, K, SIGMA)
    floor = torch.finfo(x.dtype).tiny  # far bins underflow to 0, and 0 * log(0) is nan
    x, y = x.clamp_min(floor).log(), y.clamp_min(floor).log()
    perfect = simcc_loss(x, y, keypoints, torch.ones(4, 16), K, SIGMA)
    assert perfect.abs().max() < 1e-12
    unseen = simcc_loss(*logits(4), keypoints, torch.zeros(4, 16), K, SIGMA)
    assert torch.equal(unseen, torch.zeros(4, dtype=torch.float64))


def test_joints_add_up_whatever_is_visible():
    # divided by J, not by what is visible: the losses of the joints one by one sum to the loss of all
    keypoints, _ = people(2)
    x_logits, y_logits = logits(2)
    alone = sum(simcc_loss(x_logits, y_logits, keypoints, torch.eye(16)[j].expand(2, 16), K, SIGMA) for j in range(16))
    together = simcc_loss(x_logits, y_logits, keypoints, torch.ones(2, 16), K, SIGMA)
    torch.testing.assert_close(alone, together, rtol=1e-12, atol=0)


def test_vmap_of_grad_is_softmax_minus_label():
    keypoints, visible = people(6)
    x_logits, y_logits = logits(6)

    def loss(x, y, k, v):
        return simcc_loss(x[None], y[None], k[None], v[None], K, SIGMA)[0]

    result = vmap(grad(loss))(x_logits, y_logits, keypoints, visible)
    labels, _, weight = encode(keypoints, visible, SIZE, K, SIGMA)
    expected = weight[..., None] * (x_logits.softmax(-1) - labels) / 16
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-15)


def test_scores_are_bounded_and_mean_what_they_say():
    x, y = torch.zeros(1, 1, 96), torch.zeros(1, 1, 128)
    x[..., 40] = 1e4  # all of x in one bin, nothing known of y
    keypoints, score = decode(x, y, K, SIGMA)
    assert keypoints.tolist() == [[[20.0, 0.0]]]
    assert score.item() == pytest.approx(10 / 128)  # bins 0 to 9 of the flat axis
    y[..., 60] = 1e4
    assert decode(x, y, K, SIGMA)[1].item() == 1.0
    labels_x, labels_y, _ = encode(torch.full((1, 1, 2), 20.0), torch.ones(1, 1), SIZE, K, SIGMA)
    as_taught = decode(labels_x.log(), labels_y.log(), K, SIGMA)[1]
    # bins within 9 of the centre are the Gaussian within 9.5 bins
    assert as_taught.item() == pytest.approx(math.erf(9.5 / SIGMA / math.sqrt(2)), abs=1e-4)


@pytest.mark.parametrize("k", [1.0, 2.0, 3.0])
def test_mirroring_logits_undoes_mirroring_the_picture(k):
    keypoints = torch.rand(4, 16, 2, dtype=torch.float64) * torch.tensor([SIZE[1] - 1, SIZE[0] - 1])
    keypoints = (keypoints * k).round() / k  # on bins: rounding to a bin is not what is tested
    order = torch.tensor(MPII.flip_order)
    mirrored = keypoints[:, order].clone()
    mirrored[..., 0] = SIZE[1] - 1 - mirrored[..., 0]

    def x_logits(points):
        # unnormalised, so that no bin knows of the others
        return -((torch.arange(SIZE[1] * k) - points[..., :1] * k) ** 2)

    turned, known = mirror_x(x_logits(mirrored), order, k)
    assert known.sum() == SIZE[1] * k - (k - 1)
    torch.testing.assert_close(turned[..., known], x_logits(keypoints)[..., known])
    assert (turned[..., ~known] == 0).all()
