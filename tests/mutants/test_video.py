"""Known faults of Video-DPRP and its like, planted in the code that runs: each is caught by the check meant for it.

Where seed 004's own algorithm has a fault that no plan of dpose's can have, the test shows that the algorithm as
printed does what docs/proofs/video.md says of it.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpose.privacy import gaussian
from dpose.privacy.accounting import Accountant, cost
from dpose.privacy.neighbours import ONE_FRAME
from dpose.privacy.noise import AesNoise, Key
from dpose.release import linear, mechanism, projections
from dpose.release.grid import Shape
from dpose.release.linear import Clipping, LinearPlan
from dpose.release.operators import Sensitivity
from dpose.release.plans import release_statement
from dpose.release.projections import BlockMeans, Separable
from dpose_lab.baselines.video_dprp import DensePlan, GaussianProjection, sigma_1, sigma_2
from plain_configs import plain_projection

SHAPE = Shape(4, 6, 6, 3)


def plan(neighbours, operator="block", shape=SHAPE, epsilon=8, **more):
    return LinearPlan.of(plain_projection(epsilon, "1e-5", neighbours, operator, **more), shape, "a")


def noise(seed=0):
    return AesNoise(Key.from_seed(seed))


def before_noise(chosen, clip):
    """What a release adds its noise to, in units of its grid."""
    seen = []

    def none(variance, count, stream):
        return np.zeros(count, np.int64)

    real = linear.on_grid
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mechanism, "discrete_gaussian", none)
        patch.setattr(linear, "on_grid", lambda values, grid: seen.append(real(values, grid)) or seen[-1])
        list(chosen.released(chosen.measured(iter(clip)), noise()))
    return np.concatenate([np.asarray(one, np.float64) for one in seen])


def neighbours_of(scope, m, shape, rng):
    """Masks of pixels that may differ: in one place, spread over frames, whole frames, everything."""
    total = shape.frames * shape.pixels
    masks = []
    if scope == "clip":
        for start in (0, total - m, int(rng.integers(total - m + 1))):
            masks.append(np.isin(np.arange(total), np.arange(start, start + m)))
        masks.append(np.isin(np.arange(total), rng.permutation(total)[:m]))
        side = math.isqrt(m)
        square = np.zeros((shape.frames, shape.height, shape.width), bool)
        square[0, :side, :side] = True
        masks.append(square.reshape(-1))
    else:
        frames = range(shape.frames) if scope == "frame" else [0, shape.frames - 1]
        one = [np.zeros((shape.frames, shape.pixels), bool) for _ in (range(1) if scope == "frame" else frames)]
        for number, frame in enumerate(frames):
            one[0 if scope == "frame" else number][frame, :m] = True
        masks += [mask.reshape(-1) for mask in one]
    return masks


def check_sensitivity():
    """Black against white, and the operator's own signs, on every kind of neighbour, operator and clipping."""
    rng = np.random.default_rng(0)
    cases = itertools.product(
        ("pixels:1", "pixels:4", "pixels:9", "pixels:4/frame", "frame", "clip"),
        ("block", "low-pass", "random"),
        ({"k": 27, "pool": 1}, {"k": 27, "pool": 4}, {"k": 108, "pool": 2}, {"k": 27, "pool": 2, "clip_norm": 120}),
    )
    for near, operator, more in cases:
        chosen = plan(near, operator, **more)
        neighbours = chosen.config.neighbours.resolved(SHAPE)
        signs = getattr(chosen.operator, "signs", None)
        for mask in neighbours_of(neighbours.scope, neighbours.m, SHAPE, rng):
            where = mask.reshape(SHAPE.frames, SHAPE.height, SHAPE.width, 1)
            for bright in (np.ones(SHAPE.values, bool).reshape(6, 6, 3), None if signs is None else signs > 0):
                if bright is None:
                    continue
                one = np.where(where & bright, 255, 0).astype(np.uint8)
                other = np.where(where & ~bright, 255, 0).astype(np.uint8)
                moved = before_noise(chosen, one) - before_noise(chosen, other)
                assert (moved**2).sum() <= chosen.event.sensitivity_squared

    # nearly grey and just below the norm: one bright pixel passes it
    chosen = plan("pixels:1", k=1, pool=1, shape=Shape(1, 24, 24, 1), clip_norm=90)
    one = np.full((1, 24, 24, 1), 131, np.uint8)
    other = one.copy()
    other[0, 0, 0] = 255
    moved = before_noise(chosen, one) - before_noise(chosen, other)
    assert (moved**2).sum() <= chosen.event.sensitivity_squared


def check_noise():
    """What is added is whole numbers with the discrete Gaussian law of the event's variance, anew for every group."""
    shape = Shape(40, 16, 16, 3)
    chosen = plan("pixels:1", k=768, pool=1, shape=shape, epsilon=50)
    clip = np.full((40, 16, 16, 3), 127, np.uint8)
    added = np.stack(list(chosen.released(chosen.measured(iter(clip)), noise()))) - 127
    assert np.array_equal(added, np.rint(added))
    sigma = math.sqrt(chosen.event.variance)
    smooth = added.reshape(-1) + np.random.default_rng(0).random(added.size) - 0.5
    assert stats.kstest(smooth / sigma, "norm").pvalue > 1e-4  # scipy 1.18 takes no arguments for "norm"
    assert abs(added.var() / sigma**2 - 1) < 4 * math.sqrt(2 / added.size)
    for one, other in itertools.pairwise(added):
        assert (one == other).mean() < 0.2


def check_cost():
    """The statement's own arithmetic, against a hockey-stick divergence computed from the definition."""
    for near, operator in itertools.product(("pixels:4", "pixels:4/frame", "frame"), ("block", "low-pass")):
        chosen = plan(near, operator, k=27, pool=2, epsilon=2)
        assert release_statement(chosen, seeded=False).verify() <= 2
        mu = math.sqrt(chosen.event.sensitivity_squared / chosen.event.variance)
        delta = stats.norm.cdf(mu / 2 - 2 / mu) - math.exp(2) * stats.norm.cdf(-mu / 2 - 2 / mu)
        assert delta <= 1e-5
        assert cost([chosen.event], 1e-5, accountant=Accountant.GAUSSIAN) <= 2


def check_public():
    """What is shown is a function of the released values: clips with equal values and noise look the same."""
    chosen = plan("pixels:4", "low-pass", k=27, pool=2)
    rng = np.random.default_rng(3)
    target = [rng.standard_normal(chosen.operator.outputs) * 500 for _ in range(2)]
    shown = []
    for _ in range(2):
        clip = rng.integers(0, 256, (4, 6, 6, 3)).astype(np.uint8)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LinearPlan, "released", lambda self, measured, source: (list(measured), iter(target))[1])
            shown.append(np.stack(list(chosen.run(iter(clip), noise()))))
    assert np.array_equal(*shown)


CHECKS = (check_sensitivity, check_noise, check_cost, check_public)


def test_the_true_code_passes_every_check():
    for check in CHECKS:
        check()


def times(bound, factor):
    """A sensitivity with its square multiplied."""
    return Sensitivity(bound.l1, bound.l2_squared * factor)


def theta_without_sqrt_d(patch):
    """Seed 004: a frame moves the values by 255 / sqrt(k), as one pixel would on average."""
    for kind in (BlockMeans, Separable):
        real = kind.sensitivity

        def wrong(self, neighbours, real=real):
            if neighbours.scope == ONE_FRAME:
                return Sensitivity(None, Fraction(255**2, self.outputs))
            return real(self, neighbours)

        patch.setattr(kind, "sensitivity", wrong)


def colour_counted_once(patch):
    """An RGB pixel changes three values."""
    for kind in (BlockMeans, Separable):
        real = kind.sensitivity
        patch.setattr(
            kind, "sensitivity", lambda self, n, real=real: times(real(self, n), Fraction(1, self.shape.channels))
        )


def linear_where_pixels_share_a_cell(patch):
    """m pixels in one cell move one sum m times as far, not sqrt(m) times."""
    patch.setattr(projections, "largest_fill", lambda sizes, m: m)


def parallel_composition(patch):
    """m pixels of every frame accounted as m pixels of one."""
    for kind in (BlockMeans, Separable):
        real = kind.sensitivity

        def wrong(self, neighbours, real=real):
            from dataclasses import replace

            return real(self, replace(neighbours, scope=ONE_FRAME))

        patch.setattr(kind, "sensitivity", wrong)


def average_length_of_a_projection(patch):
    """A known projection taken as one that nobody knows: its average length, sqrt(k/d) of the input."""
    real = Separable.sensitivity

    def wrong(self, neighbours):
        return times(real(self, neighbours), Fraction(self.rows * self.columns, self.shape.pixels))

    patch.setattr(Separable, "sensitivity", wrong)


def clipping_before_the_projection(patch):
    """The clip itself is clipped instead of its projection: one bright pixel then darkens all the others."""
    real = LinearPlan.measured

    def clipped(self, frames):
        def darker(frame):
            length = np.linalg.norm(frame - 127.5)
            return np.rint(127.5 + (frame - 127.5) * min(1, self.clipping.norm / length)).astype(np.uint8)

        return real(self, map(darker, frames) if self.clipping else frames)

    patch.setattr(LinearPlan, "measured", clipped)


def no_clipping(patch):
    """The norm is accounted for, but nothing is clipped."""
    patch.setattr(Clipping, "apply", lambda self, values: values)


def clipping_counted_once(patch):
    """Neighbours in several frames change several clipped vectors."""
    patch.setattr(Clipping, "changed", lambda self, neighbours, groups: 2 * self.norm)


def blanking_for_replacing(patch):
    """C instead of 2 C: the bound for a frame that is blanked, not replaced."""
    patch.setattr(Clipping, "changed", lambda self, neighbours, groups: self.norm)


def rounding_for_nothing(patch):
    """A coarse grid whose rounding is not paid for."""
    patch.setattr(linear, "FINENESS", 1 / 64)

    def unpaid(operator, clipping, grid, neighbours):
        return Fraction(linear._change(operator, clipping, neighbours)) ** 2 / grid**2

    patch.setattr(linear, "squared_change", unpaid)


def repeated_noise(patch):
    """Every group draws the same bits."""
    real = mechanism.discrete_gaussian
    kept = {}

    def same(variance, count, stream):
        return kept.setdefault(count, real(variance, count, stream)).copy()

    patch.setattr(mechanism, "discrete_gaussian", same)


def noise_three_percent_short(patch):
    """A variance that is a little too small."""
    real = mechanism.discrete_gaussian
    patch.setattr(mechanism, "discrete_gaussian", lambda v, count, stream: real(v * Fraction(94, 100), count, stream))


def float_noise(patch):
    """Gaussian noise from a floating-point generator."""
    rng = np.random.default_rng(0)
    patch.setattr(mechanism, "discrete_gaussian", lambda v, count, stream: rng.normal(0, math.sqrt(v), count))


def a_budget_for_each_half(patch):
    """Noise for twice the budget, as if P and the rest had all of epsilon each."""
    real = linear.least_variance
    patch.setattr(linear, "least_variance", lambda squared, epsilon, delta: real(squared, 2 * epsilon, delta))


def the_original_shines_through(patch):
    """Restoration looks at the clip again."""
    real = LinearPlan.run

    def run(self, frames, source):
        kept = list(frames)
        for shown, frame in zip(real(self, iter(kept), source), kept, strict=True):
            yield np.where(frame > 250, frame, shown)

    patch.setattr(LinearPlan, "run", run)


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (theta_without_sqrt_d, check_sensitivity),
        (colour_counted_once, check_sensitivity),
        (linear_where_pixels_share_a_cell, check_sensitivity),
        (parallel_composition, check_sensitivity),
        (average_length_of_a_projection, check_sensitivity),
        (clipping_before_the_projection, check_sensitivity),
        (no_clipping, check_sensitivity),
        (clipping_counted_once, check_sensitivity),
        (blanking_for_replacing, check_sensitivity),
        (rounding_for_nothing, check_sensitivity),
        (repeated_noise, check_noise),
        (noise_three_percent_short, check_noise),
        (float_noise, check_noise),
        (a_budget_for_each_half, check_cost),
        (the_original_shines_through, check_public),
    ],
    ids=lambda value: value.__name__,
)
def test_the_fault_is_caught(fault, check):
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        with pytest.raises(Exception) as caught:  # noqa: PT011  (an AssertionError, or the claim's own refusal)
            check()
    assert "AssertionError" in caught.typename or "does not add up" in str(caught.value)


class TestThePapersAlgorithm:
    """What seed 004's algorithm does as printed; none of it is what it claims."""

    SHAPE = Shape(8, 16, 20, 3)
    K = 60

    def dense(self, key=(1, 2)):
        return GaussianProjection(self.SHAPE, self.K, key)

    def matrix(self, key=(1, 2)):
        return np.concatenate([part for _, part in self.dense(key).rows()]).astype(np.float64)

    def test_theta_is_not_the_sensitivity_of_a_frame(self):
        """One frame, black or white: the projection moves by about 255 sqrt(d), where theta says 255 / sqrt(k)."""
        clip = np.zeros((8, self.SHAPE.values), np.uint8)
        other = clip.copy()
        other[3] = 255
        moved = np.linalg.norm(self.dense().apply(other) - self.dense().apply(clip))
        theta = 255 / math.sqrt(self.K)
        assert moved == pytest.approx(255 * math.sqrt(self.SHAPE.values), rel=0.3)
        assert moved > 0.7 * theta * math.sqrt(self.SHAPE.values * self.K)
        # with the noise of Theorem 3 an attacker need not guess: the true epsilon, at the claimed delta
        mu = moved / sigma_1(self.K, 6.4, 8e-5)
        assert gaussian.gaussian_epsilon(mu, 8e-5) > 1000 * 6.4

    def test_the_covariance_is_quadratic(self):
        """A change twice as large moves P^T P four times as far; a linear sensitivity knows nothing of it."""
        dense = self.dense()
        found = []
        for level in (60, 120, 240):
            clip = np.zeros((8, self.SHAPE.values), np.uint8)
            clip[3] = level
            row = dense.apply(clip)
            found.append(float(np.linalg.norm(row.T @ row)))
        assert found[1] == pytest.approx(4 * found[0], rel=1e-3)
        assert found[2] == pytest.approx(16 * found[0], rel=1e-3)
        assert found[2] > 1e6 * 255 / math.sqrt(self.K)
        assert found[2] / sigma_2(self.K, 1.6, 2e-5) > 1e5  # so many standard deviations away

    def test_a_quadratic_form_changes_more_where_there_is_more(self):
        """The same small change of one frame, on a dark and on a bright one: a linear query moves alike."""
        dense, moved = self.dense(), []
        for ground in (0, 200):
            before = np.full((1, self.SHAPE.values), ground, np.uint8)
            after = before + np.uint8(10)
            one, other = dense.apply(before), dense.apply(after)
            moved.append(np.linalg.norm(other.T @ other - one.T @ one))
        assert moved[1] > 20 * moved[0]

    def test_a_known_projection_has_longer_neighbours_than_a_fresh_one(self):
        """Theorem 3 bounds |delta R| for an R drawn after delta. A cached R can be searched for the worst delta."""
        matrix = self.matrix()
        top = np.linalg.svd(matrix, full_matrices=False)[0][:, 0]
        worst = 255 * np.sign(top)
        tail = math.log(2 / 8e-5)
        promised = math.sqrt(self.K + 2 * math.sqrt(self.K * tail) + 2 * tail) / math.sqrt(self.K)

        def stretch(change, projection):
            return np.linalg.norm(change @ projection) / np.linalg.norm(change)

        fresh = [stretch(worst, self.matrix((7, n))) for n in range(20)]
        assert max(fresh) < promised
        assert stretch(worst, matrix) > 1.5 * promised
        assert stretch(top, matrix) == pytest.approx(self.dense().gain, rel=1e-4)
        assert self.dense().gain == pytest.approx(1 + math.sqrt(self.SHAPE.values / self.K), rel=0.1)

    def test_sensitivity_as_if_the_projection_were_fresh_is_caught(self):
        from dpose.privacy.neighbours import Neighbours

        dense, matrix = self.dense(), self.matrix()
        frame = Neighbours.of_pixels(self.SHAPE.pixels, ONE_FRAME)
        top = np.linalg.svd(matrix, full_matrices=False)[0][:, 0]
        moved = float(np.linalg.norm(255 * np.sign(top) @ matrix) ** 2)
        assert moved <= dense.sensitivity(frame).l2_squared
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(GaussianProjection, "gain", 1.0)  # what a fresh R does to a change, on average
            assert moved > self.dense().sensitivity(frame).l2_squared

    def test_the_split_of_the_budget_does_nothing(self):
        """V cancels: whatever is spent on the covariance, the same picture comes out of the same noisy P."""
        clip = np.random.default_rng(0).integers(0, 256, (8, self.SHAPE.values)).astype(np.uint8)
        dense = self.dense()
        projected, gram = dense.apply(clip).astype(np.float64), dense.gram.astype(np.float64)

        def restored(split, kept, covariance_seed):
            chosen = DensePlan(plain_projection(8, "1e-4", paper=True, k=self.K), self.SHAPE, self.K, split, kept)
            first, second = chosen.sigmas

            class Draws:
                """The same noise on P up to its scale, other noise on the covariance."""

                def standard_normal(self, size, dtype):
                    own = size == projected.shape
                    rng = np.random.default_rng(1 if own else covariance_seed)
                    return rng.standard_normal(size) * (1 / first if own else 1)

            return chosen.weights(projected, gram, Draws()), second

        (one, small), (other, large) = restored(0.8, None, 2), restored(0.2, None, 99)
        assert large != small
        assert np.abs(one - other).max() < 1e-6 * np.abs(one).max()
        # only where V is cut does it matter
        (cut, _), (cut_too, _) = restored(0.8, 5, 2), restored(0.8, 30, 2)
        assert np.abs(cut - cut_too).max() > 1e-3 * np.abs(one).max()

    def test_all_of_the_budget_on_p_is_better_than_the_split(self):
        half, whole = (
            DensePlan(plain_projection(8, "1e-4", paper=True), self.SHAPE, 60, b).sigmas[0] for b in (0.8, 0.999)
        )
        assert whole < half


def test_the_step_from_discrete_to_gaussian_is_on_the_safe_side():
    """A variance counted whole, without what smoothing takes off, claims less than a coarse grid costs."""
    squared, variance = Fraction(10_000), Fraction(100)
    honest = gaussian_cost_of(squared, variance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaussian, "SMOOTHING", 0)
        assert gaussian_cost_of(squared, variance) < honest


def gaussian_cost_of(squared, variance):
    return gaussian.discrete_epsilon(gaussian.discrete_mu([(squared, variance, 1)]), 1e-5)
