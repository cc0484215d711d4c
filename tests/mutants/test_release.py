"""Known faults of published pixelization, planted in the code that runs: each is caught by the check meant for it.

Every check looks at the real path, `PixelizationPlan.release`, and takes nothing for granted but the noise's law, which
tests/privacy/test_discrete.py enumerates and `noise_is_exact` counts.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.release import mechanism, partition, pixelization, released
from dpose.release.colour import Colour
from dpose.release.grid import Shape
from dpose.release.mechanism import NoiseStage
from dpose.release.partition import BlockSums
from dpose.release.pixelization import PixelizationPlan
from dpose.release.regions import PrivateRegions
from plain_configs import plain_cells

REGIONS = PrivateRegions(quantile=0.5)


def noise(seed=0):
    return AesNoise(Key.from_seed(seed))


def plan(height, width, block, channels=1, m=1, epsilon=2, **more):
    return PixelizationPlan.of(plain_cells(epsilon, m, block, **more), Shape.of(height, width, channels, 255))


def sums_of(chosen, picture):
    """What a release adds its noise to."""
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NoiseStage, "noised", lambda stage, sums, stream: seen.append(sums.copy()) or sums)
        chosen.release(picture, noise())
    return [one.astype(np.int64) for one in seen]


def check_sensitivity():
    """Brute force: change every set of m pixels (and every single channel value) of small pictures by any amount."""
    rng = np.random.default_rng(0)
    for (h, w), block, channels, m in itertools.product([(3, 4), (2, 3)], [1, 2], [1, 3], [1, 2]):
        chosen = plan(h, w, block, channels, m)
        (event,) = chosen.events
        for ground in (0, 1, None):
            shape = (h, w, channels)
            picture = rng.integers(0, 256, shape) if ground is None else np.full(shape, ground)
            before = sums_of(chosen, picture.astype(np.uint8))[0]
            for places in itertools.combinations(range(h * w), m):
                for value in (0, 255):
                    other = picture.copy().reshape(-1, channels)
                    other[list(places)] = value
                    after = sums_of(chosen, other.reshape(shape).astype(np.uint8))[0]
                    assert abs(after - before).sum() <= event.sensitivity


def law(chosen, picture, monkeypatch):
    """The released level's distribution for each cell, by running the release on every value of the noise.

    Cells are independent; the noise of all of them takes the same value at a time.
    """
    reach = 2000  # far beyond what it takes to whiten the largest cell
    found = []
    scales = []
    for value in range(-reach, reach + 1):

        def stub(scale, count, stream, value=value):
            scales.append(scale)
            return np.full(count, value, np.int64)

        monkeypatch.setattr(mechanism, "discrete_laplace", stub)
        found.append(chosen.release(picture, noise()).values.reshape(-1))
    (scale,) = set(scales)
    a = np.exp(-1 / np.longdouble(float(scale)))
    chance = (1 - a) / (1 + a) * a ** np.abs(np.arange(-reach, reach + 1))
    levels = np.zeros((256, len(found[0])), np.longdouble)
    for cell, column in enumerate(np.array(found).T):
        np.add.at(levels[:, cell], column, chance)
    return levels


def check_law(monkeypatch):
    """Two cells, one of them smaller: no output is more than e^epsilon times as likely under a neighbour."""
    chosen = plan(2, 3, 2, epsilon=16)  # areas 4 and 2, scale 255/16
    pictures = {
        "black": np.zeros((2, 3), np.uint8),
        "large cell": np.array([[255, 0, 0], [0, 0, 0]], np.uint8),
        "small cell": np.array([[0, 0, 255], [0, 0, 0]], np.uint8),
    }
    laws = {}
    for name, picture in pictures.items():
        with pytest.MonkeyPatch.context() as patch:
            laws[name] = law(chosen, picture, patch)
        assert np.allclose(laws[name].sum(axis=0), 1)
    limit = np.exp(np.longdouble(16)) * (1 + 1e-9)
    worst = 0
    for name in ("large cell", "small cell"):
        for p, q in ((laws["black"], laws[name]), (laws[name], laws["black"])):
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.where(p > 1e-16, p / q, 0)
            # the two cells' noises are independent: ratios multiply
            worst = max(worst, ratio[:, 0].max() * ratio[:, 1].max())
    assert worst <= limit
    assert worst > 0.9 * limit  # nor is budget thrown away: a clipped level shows the whole difference


def check_regions():
    """The mask is post-processing: if stage one releases the same for two pictures, their masks are the same."""
    rng = np.random.default_rng(1)
    chosen = plan(8, 8, 4, subdivide=2, regions=REGIONS)
    target = rng.integers(0, 255 * 16, 4)
    masks = []
    for _ in range(6):
        picture = rng.integers(0, 256, (8, 8)).astype(np.uint8)

        def coupled(stage, sums, stream):
            return target[:, None].copy() if stage.name == b"coarse" else sums

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(NoiseStage, "noised", coupled)
            masks.append(chosen.release(picture, noise()).cells.mask)
    assert all(np.array_equal(mask, masks[0]) for mask in masks)


def check_post_processing():
    """All that is shown is a function of noisy sums: where these are the same, so is the release."""
    public = np.arange(8)[None, :].repeat(8, 0) < 4
    for regions in (REGIONS, public):
        chosen = plan(8, 8, 4, subdivide=2, regions=regions)
        shown = []
        for fill in (0, 3, 90, 255):
            picture = np.random.default_rng(fill).integers(0, fill + 1, (8, 8)).astype(np.uint8)

            def coupled(stage, sums, stream):
                return np.random.default_rng(len(stage.name)).integers(0, 2000, sums.shape)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(NoiseStage, "noised", coupled)
                shown.append(chosen.release(picture, noise()).values)
        assert all(np.array_equal(values, shown[0]) for values in shown)


def check_noise():
    """What `NoiseStage.noised` adds is whole numbers with the discrete Laplace law of the event's scale."""
    stage = plan(4, 4, 4, epsilon=255).stages[0]
    assert stage.event.scale == 1
    drawn = stage.noised(np.zeros((200_000, 1), np.int64), noise().stream(Purpose.RELEASE))
    assert drawn.dtype == np.int64
    values = np.arange(-8, 9)
    a = math.exp(-1)
    expected = (1 - a) / (1 + a) * a ** abs(values)
    counts = np.array([(drawn == v).sum() for v in values])
    counts, expected = np.append(counts, drawn.size - counts.sum()), np.append(expected, 1 - expected.sum())
    assert stats.chisquare(counts, expected * drawn.size).pvalue > 1e-5


def check_streams():
    """Frames, stages and cells have noise of their own."""
    chosen = PixelizationPlan.of(plain_cells("0.01", 1, 4, subdivide=2, regions=REGIONS), Shape.of(64, 64, 1, 255, 2))
    added = []
    real = NoiseStage.noised

    def watched(stage, sums, stream):
        noisy = real(stage, sums, stream)
        added.append((noisy - sums).reshape(-1))
        return noisy

    source = noise()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NoiseStage, "noised", watched)
        for frame in range(2):
            chosen.release(np.zeros((64, 64), np.uint8), source, frame)
    for one, other in itertools.combinations(added, 2):
        n = min(len(one), len(other))
        assert (one[:n] != other[:n]).mean() > 0.95
    assert len(set(added[0].tolist())) > 0.95 * len(added[0])


def test_the_true_code_passes_every_check(monkeypatch):
    check_sensitivity()
    check_law(monkeypatch)
    check_regions()
    check_post_processing()
    check_noise()
    check_streams()


def mirror_padding(patch):
    """Seed 002, Algorithms 2 and 3: pixels are mirrored to fill the last cells, and count again."""
    real = partition.block_sums

    def mirrored(pixels, block):
        h, w = pixels.shape[:2]
        return real(np.pad(pixels, ((0, -h % block), (0, -w % block), (0, 0)), mode="symmetric"), block)

    patch.setattr(partition, "block_sums", mirrored)


def partial_cells(patch):
    """Seed 002, Algorithm 1: the mean of a partial cell gets the noise of a whole one."""
    real = NoiseStage.noised
    areas = np.array([4, 2])

    def thinner(stage, sums, stream):
        noisy = real(stage, sums, stream) - sums
        return sums + noisy * areas[: len(sums)] // 4

    patch.setattr(NoiseStage, "noised", thinner)


def raw_mask(patch):
    """Seed 002, Algorithm 3: the regions come from the picture itself."""
    real = PixelizationPlan.release

    def release(self, picture, source, frame=0):
        own = partition.BlockSums(8, 8, 4).apply(picture) // 16
        blocks = PrivateRegions.blocks
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(PrivateRegions, "blocks", lambda self, released, cells: blocks(self, own, cells))
            return real(self, picture, source, frame)

    patch.setattr(PixelizationPlan, "release", release)


def detail_taken_from_the_picture(patch):
    """How much of the parts' differences is shown is decided by the true differences, not by the noisy ones."""
    exact, shrink = pixelization._combined, released.shrunk
    seen = []

    def watched(cells, picture, rows):
        seen.append(exact(cells, picture, rows))
        return seen[-1]

    def peeking(*given, **more):
        return shrink(*given, **more) * (seen[-1].std() > 100)

    patch.setattr(pixelization, "_combined", watched)
    patch.setattr(released, "shrunk", peeking)


def colour_counted_once(patch):
    """An RGB pixel changes three values, not one."""
    patch.setattr(Colour, "change_l1", property(lambda self: 1))


def rounding_before_noise(patch):
    """Means are rounded to gray levels, then the noise is added."""
    real = BlockSums.apply

    def rounded(self, picture):
        areas = self.areas[:, None]
        return (2 * real(self, picture) + areas) // (2 * areas) * areas

    patch.setattr(BlockSums, "apply", rounded)


def float_laplace(patch):
    """Floating-point Laplace noise: its low bits tell sums apart."""
    rng = np.random.default_rng(0)
    patch.setattr(mechanism, "discrete_laplace", lambda scale, count, stream: rng.laplace(0, float(scale), count))


def rounded_float_laplace(patch):
    """The same rounded to whole numbers: another law than the one that was proved."""
    rng = np.random.default_rng(0)

    def drawn(scale, count, stream):
        return np.rint(rng.laplace(0, float(scale), count)).astype(np.int64)

    patch.setattr(mechanism, "discrete_laplace", drawn)


def noise_three_percent_short(patch):
    """A scale that is a little too small."""
    real = mechanism.discrete_laplace
    patch.setattr(
        mechanism, "discrete_laplace", lambda scale, count, stream: real(scale * Fraction(97, 100), count, stream)
    )


def one_stream_for_all(patch):
    """Every frame and stage draws the same bits."""
    patch.setattr(AesNoise, "stream", lambda self, *a, **k: AesNoise(Key.from_seed(0))._fresh(), raising=False)
    stream = AesNoise._subkey

    def fresh(self):
        from dpose.privacy.noise import Stream

        return Stream(stream(self, Purpose.RELEASE, 0, b""))

    patch.setattr(AesNoise, "_fresh", fresh, raising=False)


def whole_budget_for_each_stage(patch):
    """Two stages that each spend all of epsilon."""
    real = pixelization._event
    patch.setattr(pixelization, "_event", lambda setting, bound, share, steps: real(setting, bound, Fraction(1), steps))


def check_cost():
    """The statement's own arithmetic: two stages, a clip, m pixels in every frame."""
    from dpose.release.plans import release_statement

    for frames, neighbours in ((None, "pixels:4"), (7, "pixels:4"), (7, "pixels:4/frame")):
        for delta in (0, 1e-5):
            for regions in ({}, {"subdivide": 2, "regions": REGIONS}):
                chosen = PixelizationPlan.of(
                    plain_cells("0.7", neighbours, 4, delta, **regions), Shape.of(9, 13, 3, 255, frames)
                )
                spent = release_statement(chosen, seeded=False).verify()
                assert 0.699 < spent <= 0.7


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (mirror_padding, check_sensitivity),
        (colour_counted_once, check_sensitivity),
        (rounding_before_noise, check_sensitivity),
        (partial_cells, check_law),
        (raw_mask, check_regions),
        (raw_mask, check_post_processing),
        (detail_taken_from_the_picture, check_post_processing),
        (float_laplace, check_noise),
        (rounded_float_laplace, check_noise),
        (noise_three_percent_short, check_noise),
        (one_stream_for_all, check_streams),
        (whole_budget_for_each_stage, check_cost),
    ],
    ids=lambda value: value.__name__,
)
def test_the_fault_is_caught(fault, check, monkeypatch):
    arguments = [monkeypatch] if check is check_law else []
    check(*arguments)
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        with pytest.raises(Exception) as caught:  # noqa: PT011  (an AssertionError, or the claim's own refusal)
            check(*arguments)
    assert "AssertionError" in caught.typename or "does not add up" in str(caught.value)
