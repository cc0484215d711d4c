"""Paper mode runs the algorithms as printed, and its multiplier is the true one: by brute force."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dpose.errors import DposeError
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.statement import Kind
from dpose.release.grid import Shape
from dpose.release.partition import BlockSums
from dpose.release.regions import PaperRegions, mirrored
from dpose_lab.baselines.pixelization import PaperPlan, multiplier
from plain_configs import plain_cells
from public_doors import pixelize

RNG = np.random.default_rng(3)
PICTURE = RNG.integers(0, 256, (19, 23)).astype(np.uint8)
MASK = np.arange(23)[None, :].repeat(19, 0) < 12


class Quiet:
    """A generator whose Laplace noise is zero, and which remembers the scales it was asked for."""

    def __init__(self):
        self.scales = []

    def laplace(self, centre, scale, size):
        self.scales.append(scale)
        return np.zeros(size)


def noiseless(picture, monkeypatch, **settings):
    quiet = Quiet()
    plan = PaperPlan.of(plain_cells(2, 16, **settings), Shape.of(*picture.shape[:2], 1, 255))
    monkeypatch.setattr("dpose.privacy.noise.Stream.generator", lambda stream: quiet)
    return plan.release(picture, AesNoise(Key.from_seed(1))).picture()[:, :, 0], quiet.scales


def loop(picture, b):
    """Algorithm 1, line by line, without its noise."""
    out = np.zeros(picture.shape)
    for r in range(0, picture.shape[0], b):
        for c in range(0, picture.shape[1], b):
            out[r : r + b, c : c + b] = picture[r : r + b, c : c + b].mean()
    return out


def test_algorithm_1_is_the_printed_loop(monkeypatch):
    out, scales = noiseless(PICTURE, monkeypatch, block=5, paper=1)
    assert np.array_equal(out, np.rint(loop(PICTURE, 5)))
    assert set(scales) == {255 * 16 / 25 / 2}


def test_algorithm_2_is_the_loop_on_the_padded_picture(monkeypatch):
    out, scales = noiseless(PICTURE, monkeypatch, block=5, paper=2)
    padded = mirrored(PICTURE[:, :, None], 5)[:, :, 0]
    assert padded.shape == (20, 25)
    assert np.array_equal(padded[:, 23:], np.pad(PICTURE, ((0, 1), (0, 0)), mode="symmetric")[:, :-3:-1])
    assert np.array_equal(out, np.rint(loop(padded, 5))[:19, :23])
    assert set(scales) == {255 * 16 / 25 / 2}


def test_algorithm_3_divides_complex_blocks(monkeypatch):
    out, scales = noiseless(PICTURE, monkeypatch, block=6, paper=3, subdivide=3, regions=PaperRegions(MASK))
    padded = mirrored(PICTURE[:, :, None], 6)[:, :, 0]
    coarse, fine = np.rint(loop(padded, 6)), np.rint(loop(padded, 2))
    want = np.where(np.arange(24)[None, :] < 12, fine, coarse)[:19, :23]
    assert np.array_equal(out, want)
    assert scales == [255 * 16 / 36 / 2, 255 * 16 / 4 / 2]


def test_algorithm_3_with_one_part_is_algorithm_2_where_nothing_is_complex(monkeypatch):
    nothing = PaperRegions(np.zeros_like(MASK))
    three, _ = noiseless(PICTURE, monkeypatch, block=6, paper=3, subdivide=2, regions=nothing)
    two, _ = noiseless(PICTURE, monkeypatch, block=6, paper=2)
    assert np.array_equal(three, two)


@pytest.mark.parametrize("paper", [1, 2])
@pytest.mark.parametrize(("height", "width", "block"), [(4, 4, 2), (4, 5, 3), (5, 7, 4), (3, 4, 3), (5, 5, 4)])
@pytest.mark.parametrize("m", [1, 2])
def test_the_multiplier_is_exact(paper, height, width, block, m):
    """The largest change of the averages in units of the noise's assumption, over all sets of m pixels."""

    def averages(picture):
        if paper == 2:
            picture = mirrored(picture[:, :, None], block)[:, :, 0]
        out = []
        for r in range(0, picture.shape[0], block):
            for c in range(0, picture.shape[1], block):
                cell = picture[r : r + block, c : c + block]
                out.append(Fraction(int(cell.sum()), cell.size))
        return out

    black = np.zeros((height, width), np.int64)
    worst = Fraction(0)
    for places in itertools.combinations(range(height * width), m):
        other = black.copy().reshape(-1)
        other[list(places)] = 255
        worst = max(worst, sum(averages(other.reshape(height, width))))
    setting = plain_cells(1, m, block, paper=paper)
    assert multiplier(setting, BlockSums(height, width, block), m) == worst / Fraction(255 * m, block**2)


@pytest.mark.parametrize(
    ("paper", "width", "height", "block", "times"),
    [(1, 1920, 1080, 16, 2), (2, 1920, 1080, 16, 2), (1, 768, 576, 20, 3.125), (2, 768, 576, 20, 4)],
)
def test_known_multipliers(paper, width, height, block, times):
    setting = plain_cells(1, 16, block, paper=paper)
    assert multiplier(setting, BlockSums(height, width, block), 16) == times
    assert multiplier(setting, BlockSums(height, width, block, channels=3), 16) == 3 * times


def test_the_statement_says_what_does_not_hold():
    statement = pixelize(PICTURE, "0.5", 4, 5, paper=2).statement
    assert statement.kind is Kind.PAPER
    assert statement.epsilon is None
    assert statement.verify() is None
    text = statement.paragraph()
    assert text.startswith("NOTHING IS GUARANTEED")
    assert "claims epsilon 0.5" in text
    assert "mirrored" in text
    assert "4 times the claim for the worst pixel" in text
    assert "floating point" in text
    assert "3 times the claim" in pixelize(np.stack([PICTURE] * 3, 2), 1, 4, 5, paper=1).statement.paragraph()
    raw = pixelize(PICTURE, 1, 4, 6, paper=3, subdivide=2, regions=PaperRegions(MASK)).statement.paragraph()
    assert "no (epsilon, delta) guarantee holds at all" in raw
    clip = pixelize(np.stack([PICTURE] * 7)[..., None], 1, 4, 5, paper=2).statement.paragraph()
    assert "cost 7 times" in clip


def test_a_mask_from_the_picture_itself():
    out = pixelize(PICTURE, 500, 1, 6, paper=3, subdivide=2, regions=PaperRegions())
    assert out.frames[0].cells.mask.any()
    assert out.statement.release["config"]["regions"] == {"kind": "paper"}


@pytest.mark.parametrize(
    "changes",
    [
        {"paper": 4},
        {"paper": 0},
        {"paper": 3},
        {"paper": 2, "delta": 1e-5},
        {"paper": 1, "subdivide": 2, "regions": "private"},
        {"subdivide": 2, "regions": PaperRegions()},
        {"paper": 3, "subdivide": 2, "regions": PaperRegions(MASK[1:])},
    ],
)
def test_what_does_not_go_together(changes):
    with pytest.raises(DposeError):
        pixelize(PICTURE, **{"epsilon": 1, "neighbours": 4, "block": 6, **changes})
