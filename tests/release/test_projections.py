"""Operators on clips: linear, each the transpose of its adjoint, and as sensitive as they say, by brute force."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpose.privacy.neighbours import ONE_FRAME, Neighbours
from dpose.release.grid import Shape, blend, blend_gain, centre, count_lengths, edge, even_edges, largest_fill
from dpose.release.linear import LinearPlan
from dpose.release.operators import make_operator
from dpose.release.projections import Separable
from dpose_lab.baselines.video_dprp import GaussianProjection
from plain_configs import plain_projection

NAMES = ("block", "low-pass", "random")


def near(m, scope):
    return Neighbours.of_pixels(m, scope)


@st.composite
def operators(draw, most=6):
    shape = Shape(*(draw(st.integers(1, most)) for _ in range(3)), draw(st.sampled_from([1, 3])))
    grid = (draw(st.integers(1, side)) for side in (shape.height, shape.width, shape.frames))
    return make_operator(draw(st.sampled_from(NAMES)), shape, *grid, choice="a")


def clip_for(shape, seed):
    sizes = (shape.frames, shape.height, shape.width, shape.channels)
    return np.random.default_rng(seed).integers(0, 256, sizes).astype(np.uint8)


def lengths(operator):
    return np.diff(even_edges(operator.shape.frames, operator.groups))


def values_of(operator, clip):
    """What the operator gives for every group, (groups, outputs)."""
    edges = even_edges(operator.shape.frames, operator.groups)
    sums = [clip[a:b].sum(axis=0, dtype=np.int64) for a, b in itertools.pairwise(edges)]
    return np.stack([operator.apply(s, t) for s, t in zip(sums, lengths(operator), strict=True)])


@settings(deadline=None, max_examples=80)
@given(operator=operators(), seed=st.integers(0, 9))
def test_it_is_linear_in_the_clip(operator, seed):
    one, other = clip_for(operator.shape, seed) // 2, clip_for(operator.shape, seed + 10) // 2
    nothing = values_of(operator, np.zeros_like(one))
    both = values_of(operator, one + other) - nothing
    assert np.allclose(both, values_of(operator, one) + values_of(operator, other) - 2 * nothing)


@settings(deadline=None, max_examples=80)
@given(operator=operators(), seed=st.integers(0, 9))
def test_the_adjoint_is_the_transpose(operator, seed):
    clip = clip_for(operator.shape, seed)
    forward = values_of(operator, clip) - values_of(operator, np.zeros_like(clip))
    values = np.random.default_rng(seed).standard_normal(forward.shape)
    back = np.concatenate(
        [np.repeat(operator.adjoint(v, t)[None], t, 0) for v, t in zip(values, lengths(operator), strict=True)]
    )
    assert (forward * values).sum() == pytest.approx((back * clip.astype(float)).sum(), rel=1e-4, abs=0.2)


@settings(deadline=None, max_examples=60)
@given(operator=operators(), seed=st.integers(0, 9))
def test_cells_are_a_partition_and_projections_have_orthonormal_rows(operator, seed):
    if isinstance(operator, Separable):
        for matrix in (operator.down, operator.across):
            assert np.allclose(matrix @ matrix.T, np.eye(len(matrix)), atol=1e-12)
        assert operator.column_norm <= 1 + 1e-12
        return
    clip = clip_for(operator.shape, seed)
    assert values_of(operator, clip).sum() == clip.sum(dtype=np.int64)
    assert operator.areas.sum() == operator.shape.pixels
    white = values_of(operator, np.full_like(clip, 255)).reshape(operator.groups, operator.rows, -1)
    areas = operator.areas.repeat(operator.shape.channels, 1)
    assert np.array_equal(white, 255 * areas[None] * lengths(operator)[:, None, None])


def signs(count):
    """Changes of `count` values: all up, all down, and mixed."""
    return itertools.product((255, -255), repeat=count)


def worst(operator, places, values):
    """The largest squared change of the output over neighbours that differ in these pixels, every channel alike."""
    shape, most = operator.shape, 0.0
    for change in values:
        clip = np.zeros((shape.frames * shape.pixels, shape.channels), np.int64)
        clip[list(places)] = np.array(change)[:, None]
        down, up = np.where(clip < 0, 255, 0), np.where(clip > 0, 255, 0)
        sizes = (shape.frames, shape.height, shape.width, shape.channels)
        moved = values_of(operator, up.reshape(sizes).astype(np.uint8)) - values_of(
            operator, down.reshape(sizes).astype(np.uint8)
        )
        most = max(most, float((moved.astype(float) ** 2).sum()))
    return most


@settings(deadline=None, max_examples=60)
@given(operator=operators(most=3), m=st.integers(1, 3))
def test_no_neighbouring_clip_changes_more(operator, m):
    """Every set of m pixels of the clip, in one cell, spread over cells and over groups, every pattern of signs."""
    total = operator.shape.frames * operator.shape.pixels
    bound = float(operator.sensitivity(near(m, "clip")).l2_squared)
    sets = list(itertools.combinations(range(total), min(m, total)))
    few = 60 if isinstance(operator, Separable) else 400  # sums need no patterns of signs: up is the worst
    some = sets if len(sets) <= few else [sets[i] for i in np.random.default_rng(0).choice(len(sets), few)]
    found = max(
        worst(operator, places, signs(len(places)) if isinstance(operator, Separable) else [(255,) * len(places)])
        for places in some
    )
    assert found <= bound * (1 + 1e-9)
    if m == 1 and isinstance(operator, Separable) and len(some) == total:
        assert found == pytest.approx(bound, rel=1e-5)  # exact for one pixel
    if not isinstance(operator, Separable) and math.comb(total, min(m, total)) <= 400:
        assert found == bound  # exact for any number


@settings(deadline=None, max_examples=40)
@given(operator=operators(most=3), m=st.integers(1, 2))
def test_no_neighbour_in_every_frame_or_in_one_frame_changes_more(operator, m):
    shape = operator.shape
    own = list(itertools.combinations(range(shape.pixels), min(m, shape.pixels)))
    one_bound = float(operator.sensitivity(near(m, ONE_FRAME)).l2_squared)
    all_bound = float(operator.sensitivity(near(m, "frame")).l2_squared)
    one = all_ = 0.0
    for places in own:
        patterns = list(signs(len(places))) if isinstance(operator, Separable) else [(255,) * len(places)]
        for frame in range(shape.frames):
            one = max(one, worst(operator, [frame * shape.pixels + p for p in places], patterns))
        everywhere = [f * shape.pixels + p for f in range(shape.frames) for p in places]
        all_ = max(all_, worst(operator, everywhere, [pattern * shape.frames for pattern in patterns]))
    assert one <= one_bound * (1 + 1e-9)
    assert all_ <= all_bound * (1 + 1e-9)
    if not isinstance(operator, Separable):
        assert one == one_bound
        assert all_ == all_bound
    elif m == 1:
        assert one == pytest.approx(one_bound, rel=1e-5)
        assert all_ == pytest.approx(all_bound, rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("groups", [5, 2])
def test_a_whole_frame_and_the_whole_clip(name, groups):
    """Black against white is the worst for sums and for the lowest frequencies; random signs know worse ones."""
    shape = Shape(5, 6, 8, 3)
    operator = make_operator(name, shape, 3, 4, groups, "a")
    black = np.zeros((5, 6, 8, 3), np.uint8)
    frame, clip = black.copy(), np.full_like(black, 255)
    pattern = np.where(operator.signs > 0, 255, 0) if name == "random" else 255
    frame[-1] = pattern
    clip[:] = pattern
    dark = 255 - clip if name == "random" else black
    one = float(((values_of(operator, frame) - values_of(operator, black)) ** 2).sum())
    all_ = float(((values_of(operator, clip) - values_of(operator, dark)) ** 2).sum())
    one_bound = float(operator.sensitivity(near(shape.pixels, ONE_FRAME)).l2_squared)
    all_bound = float(operator.sensitivity(near(5 * shape.pixels, "clip")).l2_squared)
    assert one <= one_bound * (1 + 1e-9)
    assert all_ <= all_bound * (1 + 1e-9)
    if name == "block":
        assert (one, all_) == (one_bound, all_bound)
    if name == "low-pass":
        assert all_ == pytest.approx(all_bound, rel=1e-5)


def test_pixels_spread_over_groups_cost_no_more_than_pixels_in_one():
    """Composition over disjoint groups: the sensitivity of a long clip is that of its worst group."""
    for name in NAMES:
        one = make_operator(name, Shape(4, 6, 6, 3), 3, 3, 1, "a")
        many = make_operator(name, Shape(4 * 50, 6, 6, 3), 3, 3, 50, "a")
        for m in (1, 3, 16, 64):
            assert many.sensitivity(near(m, "clip")).l2_squared == one.sensitivity(near(m, "clip")).l2_squared
        for scope in ("clip", "frame"):
            assert many.sensitivity(near(36, scope)).l2_squared >= one.sensitivity(near(36, scope)).l2_squared


def test_more_pixels_than_a_cell_holds():
    operator = make_operator("block", Shape(2, 4, 4, 1), 2, 2, 2)
    assert operator.sensitivity(near(4, "clip")).l2_squared == 255**2 * 16
    assert operator.sensitivity(near(6, "clip")).l2_squared == 255**2 * (16 + 4)
    assert operator.sensitivity(near(10**6, "clip")).l2_squared == 255**2 * 8 * 16
    assert operator.sensitivity(near(6, "frame")).l2_squared == 2 * 255**2 * (16 + 4)
    for name in NAMES:
        with pytest.raises(ValueError, match="no neighbours of a clip"):
            make_operator(name, Shape(2, 4, 4, 1), 2, 2, 2).sensitivity(near(4, "picture"))


@settings(deadline=None, max_examples=150)
@given(sizes=st.dictionaries(st.integers(1, 5), st.integers(1, 3), min_size=1, max_size=3), m=st.integers(0, 14))
def test_filling_the_largest_first_is_the_worst(sizes, m):
    cells = [size for size, count in sizes.items() for _ in range(count)]
    best = {0: 0}
    for size in cells:
        best = {
            used + k: max(
                [squares + k * k] + [best[u] + n * n for u in best for n in range(size + 1) if u + n == used + k]
            )
            for used, squares in best.items()
            for k in range(size + 1)
            if used + k <= m
        }
    assert largest_fill(sizes, m) == max(best.values())


@given(length=st.integers(1, 60), data=st.data())
def test_pieces_differ_by_at_most_one(length, data):
    parts = data.draw(st.integers(1, length))
    sizes = np.diff(even_edges(length, parts))
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 1
    assert dict(count_lengths(length, parts)) == {int(s): int((sizes == s).sum()) for s in set(sizes)}
    for group in range(parts):
        for frame in range(edge(group, length, parts), edge(group + 1, length, parts)):
            first, weight = blend(frame, group, length, parts)
            assert 0 <= weight < 1
            if weight:
                left, right = centre(first, length, parts), centre(first + 1, length, parts)
                assert left + weight * (right - left) == pytest.approx(frame)
            else:
                assert first in (0, parts - 1) or centre(first, length, parts) == frame
    assert 0.5 <= blend_gain(length, parts) <= 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("frames", [1, 12])
def test_noise_on_the_picture_is_what_was_said_beforehand(name, frames):
    from dpose.privacy.noise import AesNoise, Key

    shape = Shape(12, 48, 64, 3)
    setting = plain_projection(8, "1e-5", "pixels:4", name, k=12 * 16 * 3, pool=12 // frames)
    plan = LinearPlan.of(setting, shape, "a")
    grey = np.full((12, 48, 64, 3), 127, np.uint8)
    shown = []
    for seed in range(8):
        made = plan.released(plan.measured(iter(grey)), AesNoise(Key.from_seed(seed)))
        levels = [plan.operator.level(values, plan.length(n)) for n, values in enumerate(made)]
        shown += [plan.operator.picture(level) - 127 for level in levels]
    blended = math.sqrt(blend_gain(12, plan.operator.groups))
    assert np.std(shown) * blended == pytest.approx(plan.noise, rel=0.06)


def test_floating_point_stays_within_its_bound():
    shape = Shape(6, 40, 70, 3)
    for groups in (6, 2):
        operator = make_operator("low-pass", shape, 20, 30, groups)
        clip = clip_for(shape, 0)
        edges = even_edges(6, groups)
        for a, b in itertools.pairwise(edges):
            total = clip[a:b].sum(axis=0, dtype=np.int64)
            wide = total.astype(np.longdouble) - np.longdouble(127.5) * (b - a)
            exact = np.einsum(
                "rh,hwc,kw->rck", operator.down.astype(np.longdouble), wide, operator.across.astype(np.longdouble)
            ) / np.sqrt(np.longdouble(b - a))
            off = np.abs(exact.reshape(-1) - operator.apply(total, int(b - a))).max()
            assert 0 < off <= operator.blur(int(b - a))


def test_random_operators_follow_from_their_public_choice():
    shape = Shape(1, 8, 8, 3)
    one, same, other = (make_operator("random", shape, 4, 4, 1, c) for c in ("a", "a", "b"))
    assert np.array_equal(one.signs, same.signs)
    assert np.array_equal(one.down, same.down)
    assert not np.array_equal(one.signs, other.signs)
    assert abs(make_operator("random", Shape(1, 64, 64, 3), 4, 4, 1, "a").signs.mean()) < 0.05


def test_wrong_clips_and_grids_are_refused():
    operator = make_operator("block", Shape(1, 4, 4, 1), 2, 2, 1)
    for wrong in (np.zeros((4, 5, 1), np.uint8), np.zeros((4, 4, 1)), np.zeros((4, 4, 3), np.uint8)):
        with pytest.raises(ValueError, match="expected"):
            operator.apply(wrong, 1)
    for grid in ((5, 1, 1), (1, 5, 1), (1, 1, 2), (0, 1, 1)):
        with pytest.raises(ValueError, match="does not fit"):
            make_operator("block", Shape(1, 4, 4, 1), *grid)
    with pytest.raises(ValueError, match="no operator"):
        make_operator("wavelet", Shape(1, 4, 4, 1), 1, 1, 1)
    with pytest.raises(ValueError, match="at least 1"):
        Shape(0, 4, 4, 1)


class TestDense:
    SHAPE = Shape(2, 3, 2, 3)
    DENSE = GaussianProjection(SHAPE, 5, (1, 2))

    def matrix(self):
        return np.concatenate([part for _, part in self.DENSE.rows()]).astype(np.float64)

    def test_it_is_one_matrix(self):
        matrix = self.matrix()
        assert matrix.shape == (18, 5)
        flat = clip_for(self.SHAPE, 0).reshape(2, 18)
        assert np.allclose(self.DENSE.apply(flat), flat @ matrix, rtol=1e-5, atol=1e-3)
        assert np.allclose(self.DENSE.adjoint(np.eye(5, dtype=np.float32)), matrix.T, atol=1e-6)
        assert self.DENSE.gain == pytest.approx(np.linalg.norm(matrix, 2), rel=1e-5)
        assert self.DENSE.column_norm == pytest.approx(np.linalg.norm(matrix, axis=1).max(), rel=1e-5)

    def test_its_entries_have_variance_one_over_k(self):
        large = GaussianProjection(Shape(1, 60, 60, 3), 16, (3, 4))
        entries = np.concatenate([part.reshape(-1) for _, part in large.rows()])
        assert entries.mean() == pytest.approx(0, abs=0.002)
        assert entries.var() == pytest.approx(1 / 16, rel=0.02)
        assert large.gain == pytest.approx(1 + math.sqrt(10800 / 16), rel=0.1)

    @pytest.mark.parametrize("m", [1, 2])
    def test_no_neighbour_changes_more(self, m):
        matrix, bound = self.matrix(), float(self.DENSE.sensitivity(near(m, ONE_FRAME)).l2_squared)
        found = 0.0
        for pixels in itertools.combinations(range(6), m):
            places = [3 * p + c for p in pixels for c in range(3)]
            for change in signs(3 * m):
                found = max(found, float(((np.array(change) @ matrix[places]) ** 2).sum()))
        assert 0.2 * bound < found <= bound
        assert (
            self.DENSE.sensitivity(near(m, "clip")).l2_squared == self.DENSE.sensitivity(near(m, ONE_FRAME)).l2_squared
        )
        assert (
            self.DENSE.sensitivity(near(m, "frame")).l2_squared
            == 2 * self.DENSE.sensitivity(near(m, ONE_FRAME)).l2_squared
        )


# ------------------------------------------------------------------- cases that a draw of examples may leave out


UNEVEN = pytest.mark.parametrize(("frames", "groups"), [(3, 2), (5, 2), (5, 3), (7, 3), (4, 4), (4, 1)])
"""Groups whose lengths differ, and those whose lengths do not."""


@UNEVEN
@pytest.mark.parametrize("name", NAMES)
def test_one_pixel_of_an_uneven_group_is_bounded_exactly(name, frames, groups):
    """Of groups of two lengths the worst is the shorter where values are divided by its root: never the longer."""
    operator = make_operator(name, Shape(frames, 3, 2, 1), 2, 1, groups, choice="a")
    found = max(worst(operator, [place], [(255,)]) for place in range(frames * 6))
    for scope in ("clip", ONE_FRAME):
        assert found == pytest.approx(float(operator.sensitivity(near(1, scope)).l2_squared), rel=1e-5)


@UNEVEN
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("m", [1, 2, 3, 6, 7])
def test_sums_of_uneven_cells_are_bounded_exactly(frames, groups, channels, m):
    """The largest cells are filled first, in every one of the three scopes."""
    operator = make_operator("block", Shape(frames, 3, 2, channels), 2, 1, groups)
    of_frames, of_cells = sorted(lengths(operator)), [4, 2]  # two lines of two pixels, and one
    volumes = sorted((a * t for a in of_cells for t in of_frames), reverse=True)

    def filled(sizes, left):
        squares = 0
        for size in sizes:
            squares += min(size, left) ** 2
            left -= min(size, left)
        return squares

    per_frame = filled(of_cells, min(m, 6))
    squares = {
        "clip": filled(volumes, m),
        "frame": per_frame * sum(int(t) ** 2 for t in of_frames),
        ONE_FRAME: per_frame,
    }
    for scope, wanted in squares.items():
        if scope == "clip" or m <= 6:
            assert operator.sensitivity(near(m, scope)).l2_squared == 255**2 * channels * wanted


@UNEVEN
@pytest.mark.parametrize("name", ["low-pass", "random"])
@pytest.mark.parametrize("m", [1, 2, 6])
def test_projections_of_uneven_groups_say_what_the_proof_says(name, frames, groups, m):
    operator = make_operator(name, Shape(frames, 3, 2, 3), 2, 2, groups, choice="a")
    c, shortest = operator.column_norm, min(lengths(operator))
    squares = {
        "clip": min(m, m**2 * c**2 / shortest),
        "frame": frames * min(m, m**2 * c**2),
        ONE_FRAME: min(m, m**2 * c**2) / shortest,
    }
    for scope, wanted in squares.items():
        found = operator.sensitivity(near(m, scope)).l2_squared
        assert float(found) == pytest.approx(255**2 * 3 * wanted, rel=2e-6)
        assert found > 255**2 * 3 * wanted * (1 - 1e-15)


def test_another_scope_is_refused():
    for name in NAMES:
        with pytest.raises(ValueError, match="no neighbours of a clip"):
            make_operator(name, Shape(2, 2, 2, 1), 1, 1, 1, choice="a").sensitivity(near(1, "picture"))


@pytest.mark.parametrize("m", [1, 5, 12, 40])
def test_sums_change_in_l1_norm_by_all_that_all_pixels_change(m):
    """However large the cells are; on this hangs the scale of Laplace noise."""
    shape = Shape(3, 4, 3, 3)
    operator = make_operator("block", shape, 2, 2, 2)
    for scope, pixels in (("clip", min(m, 36)), ("frame", 3 * min(m, 12)), (ONE_FRAME, min(m, 12))):
        assert operator.sensitivity(near(m, scope)).l1 == 255 * 3 * pixels
