"""Private clips: what is released is what was paid for; files keep their time, and no mistake leaves half a video."""

import itertools
import json
import math
import struct
from dataclasses import replace
from fractions import Fraction

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clips import write
from dpose.media.video import probe, read_frames
from dpose.privacy.accounting import Accountant, cost
from dpose.privacy.discrete import discrete_gaussian
from dpose.privacy.neighbours import ONE_FRAME, Neighbours, Relation
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.privacy.sections import About
from dpose.privacy.statement import Kind
from dpose.release import api, choosing, linear, mechanism
from dpose.release.config import Projection
from dpose.release.embed import read_sidecar, sidecar_of, write_sidecar
from dpose.release.explain import explain_release, noise_psnr
from dpose.release.grid import Shape
from dpose.release.items import Work
from dpose.release.jobs import Job, find_videos
from dpose.release.linear import LinearPlan, on_grid
from dpose.release.mechanism import GIVEN
from dpose.release.operators import Sensitivity
from dpose.release.plans import bind, video_shape
from dpose.release.projections import rounded_up
from dpose.release.verify import released_files, verify_release
from dpose_lab.baselines.video_dprp import DensePlan
from plain_configs import plain_projection
from public_doors import release_array, release_file, release_video
from records import recorded
from refusals import refused

SETTING = plain_projection(8, "1e-5", 4)


def clip_for(shape, seed=0):
    sizes = (shape.frames, shape.height, shape.width, shape.channels)
    return np.random.default_rng(seed).integers(0, 256, sizes).astype(np.uint8)


def rounded(plan, clip):
    """What the noise is added to, in units of the grid, all groups after each other."""
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mechanism, "discrete_gaussian", lambda variance, count, stream: np.zeros(count, np.int64))
        real = on_grid
        patch.setattr(linear, "on_grid", lambda values, grid: seen.append(real(values, grid)) or seen[-1])
        list(plan.released(plan.measured(iter(clip)), AesNoise(Key.fresh())))
    return np.concatenate(seen)


@st.composite
def plans(draw):
    shape = Shape(*(draw(st.integers(1, 4)) for _ in range(3)), draw(st.sampled_from([1, 3])))
    m = draw(st.integers(1, shape.pixels))
    near = draw(st.sampled_from([f"pixels:{m}", f"pixels:{m}/frame", "frame", "clip"]))
    norm = draw(st.sampled_from([None, 10, 200, 5000]))
    setting = plain_projection(
        draw(st.sampled_from([1, 8])),
        "1e-5",
        near,
        draw(st.sampled_from(["block", "low-pass", "random"])),
        k=draw(st.integers(shape.channels, shape.values)),
        pool=draw(st.integers(1, 4)),
        clip_norm=norm,
        clip_segment=norm is not None and draw(st.booleans()),
    )
    return LinearPlan.of(setting, shape, "a")


def neighbour(plan, clip, rng):
    """A clip that differs as the setting allows: extreme values, in one place or spread."""
    shape, setting = plan.shape, plan.config
    allowed = setting.neighbours.resolved(shape)
    m = allowed.m
    other = clip.copy().reshape(shape.frames, shape.pixels, shape.channels)
    kind = rng.integers(3)
    start = rng.integers(shape.pixels)
    together = (start + np.arange(min(m, shape.pixels))) % shape.pixels

    def value(count):
        if kind == 2:
            return rng.choice([0, 255], (count, shape.channels))
        return np.full((count, shape.channels), 255 * kind)

    if allowed.scope == "clip":
        flat = other.reshape(-1, shape.channels)
        begin, total = rng.integers(len(flat)), len(flat)
        near = (begin + np.arange(min(m, total))) % total
        places = near if rng.integers(2) else rng.permutation(total)[: len(near)]
        flat[places] = value(len(places))
    else:
        some = range(shape.frames) if allowed.scope == "frame" else [int(rng.integers(shape.frames))]
        for frame in some:
            other[frame, together] = value(len(together))
    return other.reshape(clip.shape)


@settings(deadline=None, max_examples=150)
@given(plan=plans(), seed=st.integers(0, 10**6))
def test_no_neighbour_moves_the_rounded_values_by_more_than_was_paid_for(plan, seed):
    """The path that runs: measured, clipped, rounded; compared with the event that the accountant counts."""
    rng = np.random.default_rng(seed)
    ground = rng.choice(["noise", "black", "white"])
    clip = clip_for(plan.shape, seed)
    if ground != "noise":
        clip[:] = 0 if ground == "black" else 255
    before = rounded(plan, clip)
    for _ in range(6):
        moved = rounded(plan, neighbour(plan, clip, rng)) - before
        assert int((moved * moved).sum()) <= plan.event.sensitivity_squared


@settings(deadline=None, max_examples=60)
@given(plan=plans())
def test_the_noise_is_enough_and_not_much_more(plan):

    spent = cost([plan.event], 1e-5, accountant=Accountant.GAUSSIAN)
    assert spent <= float(plan.config.epsilon)
    # a sigma of some grid steps is rounded up to a whole one
    root = math.isqrt(int(plan.event.variance))
    if root > 200:
        assert spent > 0.98 * float(plan.config.epsilon)


def test_rounding_costs_next_to_nothing():
    shape = Shape(64, 60, 80, 3)
    for operator, more in (("low-pass", {}), ("random", {}), ("block", {"clip_norm": 3000})):
        plan = LinearPlan.of(plain_projection(8, "1e-5", 16, operator, k=600, pool=2, **more), shape, "a")
        free = math.sqrt(plan.operator.sensitivity(plan.config.neighbours.resolved(shape)).l2_squared) / float(
            plan.grid
        )
        free /= plan.operator.unit if more else 1
        assert 1 < math.sqrt(plan.event.sensitivity_squared) / free < 1.01


def test_whole_numbers_need_no_rounding():
    plan = LinearPlan.of(SETTING, Shape(8, 16, 16, 3))
    assert plan.grid == 1
    assert plan.event.sensitivity_squared == 255**2 * 3 * 16


def test_clipping_bounds_norms_and_keeps_what_is_below():
    shape = Shape(6, 8, 8, 1)
    clip = clip_for(shape)
    clip[3:] = 127
    for segment in (False, True):
        setting = plain_projection(8, "1e-5", "frame", "low-pass", k=16, pool=1, clip_norm=50, clip_segment=segment)
        plan = LinearPlan.of(setting, shape)
        values = rounded(plan, clip).reshape(6, -1) * float(plan.grid)
        norms = np.linalg.norm(values, axis=1)
        assert plan.clipping.groups == (64 if segment else 1)
        if segment:
            assert np.linalg.norm(values) == pytest.approx(50, rel=1e-3)
        else:
            assert norms[:3] == pytest.approx(50, rel=1e-3)
            assert norms[3:] == pytest.approx(0.5 * 8, rel=1e-2)  # 127 is half a level from grey
        assert math.sqrt(plan.event.sensitivity_squared) * float(plan.grid) == pytest.approx(100, rel=0.01)


def test_neighbours_in_many_parts_may_change_them_all():
    shape, norm = Shape(200, 8, 8, 1), 50.0
    wanted = {"pixels:3": 3, "pixels:60/frame": 200, "frame": 1, "clip": 200}
    for near, parts in wanted.items():
        setting = plain_projection(8, "1e-5", near, "block", k=4, pool=1, clip_norm=norm)
        clipping = LinearPlan.of(setting, shape).clipping
        assert clipping.changed(setting.neighbours.resolved(shape), 200) == pytest.approx(2 * norm * math.sqrt(parts))
        segment = LinearPlan.of(replace(setting, clip_segment=True), shape).clipping
        assert segment.changed(setting.neighbours.resolved(shape), 200) == pytest.approx(
            2 * norm * math.sqrt(min(parts, 4))  # 200 frames are 64 + 64 + 64 + 8
        )


def test_without_noise_the_picture_comes_back_as_fine_as_the_grid():
    shape = Shape(5, 12, 16, 3)
    smooth = np.linspace(40, 200, 16)[None, None, :, None] + np.linspace(0, 40, 12)[None, :, None, None]
    clip = np.broadcast_to(smooth, (5, 12, 16, 3)).round().astype(np.uint8)
    for operator, k in (("block", 3 * 12 * 16), ("low-pass", 3 * 12 * 16), ("random", 3 * 12 * 16), ("block", 144)):
        plan = LinearPlan.of(plain_projection(8, "1e-5", 1, operator, k=k, pool=1), shape, "a")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mechanism, "discrete_gaussian", lambda v, count, stream: np.zeros(count, np.int64))
            shown = np.stack(list(plan.run(iter(clip), AesNoise(Key.fresh()))))
        off = np.abs(shown.astype(int) - clip).max()
        assert off <= (1 if k > 144 else 12)


def test_clipped_and_without_noise_it_comes_back_too():
    """Groups of two and of three frames: what is subtracted before clipping is added behind it."""
    shape = Shape(5, 12, 16, 1)
    clip = np.broadcast_to(np.linspace(40, 200, 16)[None, None, :, None], (5, 12, 16, 1)).round().astype(np.uint8)
    config = plain_projection(8, "1e-5", 1, "block", k=12 * 16, pool=3, clip_norm=10**6, clip_segment=True)
    plan = LinearPlan.of(config, shape)
    assert sorted(plan.length(group) for group in range(plan.operator.groups)) == [2, 3]
    assert plan.clipping.groups >= 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mechanism, "discrete_gaussian", lambda v, count, stream: np.zeros(count, np.int64))
        shown = np.stack(list(plan.run(iter(clip), AesNoise(Key.fresh()))))
    assert np.abs(shown.astype(int) - clip).max() <= 1


def test_groups_are_blended_in_time():
    shape = Shape(10, 4, 4, 1)
    plan = LinearPlan.of(plain_projection(8, "1e-5", 1, k=1, pool=4), shape)
    assert plan.operator.groups == 2
    volume = 5 * 16
    shown = np.stack(list(plan.pictures(iter([np.array([50.0 * volume]), np.array([100.0 * volume])]))))
    assert shown[:, 0, 0, 0].tolist() == [50, 50, 50, 60, 70, 80, 90, 100, 100, 100]


@settings(deadline=None, max_examples=60)
@given(frames=st.integers(1, 30), pool=st.integers(1, 12))
def test_every_frame_is_shown_once_and_few_are_held(frames, pool):
    shape = Shape(frames, 3, 3, 1)
    plan = LinearPlan.of(plain_projection(8, "1e-5", 1, k=1, pool=pool), shape)
    taken = [0]

    def clip():
        for _ in range(frames):
            taken[0] += 1
            yield np.zeros((3, 3, 1), np.uint8)

    shown = 0
    for picture in plan.run(clip(), AesNoise(Key.fresh())):
        assert picture.shape == (3, 3, 1)
        shown += 1
        assert taken[0] - shown <= 3 * pool + 2
    assert shown == frames


def test_other_numbers_of_frames_are_refused():
    for declared, count in ((4, 3), (4, 5), (4, 0), (1, 0), (4, 40)):
        plan = LinearPlan.of(SETTING, Shape(declared, 8, 8, 1))
        with refused("video-length-differs"):
            list(plan.run(iter(np.zeros((count, 8, 8, 1), np.uint8)), AesNoise(Key.fresh())))


def test_no_frame_beyond_those_declared_is_measured():
    """Each group of frames is paid for; a file that goes on gets no more of them."""
    plan = LinearPlan.of(plain_projection(8, "1e-5", 4, k=4, pool=2), Shape(4, 8, 8, 1))
    measured = plan.measured(iter(np.zeros((40, 8, 8, 1), np.uint8)))
    assert plan.operator.groups == 2
    assert all(len(next(measured)) == plan.operator.outputs for _ in range(2))
    with refused("video-length-differs"):
        next(measured)


def test_a_segment_is_64_frames_however_many_groups_they_make():
    config = plain_projection(8, "1e-5", 4, k=4, pool=4, clip_norm=100, clip_segment=True)
    plan = LinearPlan.of(config, Shape(128, 8, 8, 1))
    assert (plan.operator.groups, plan.clipping.groups) == (32, 16)


@pytest.mark.parametrize(
    ("operator", "more"),
    [("random", {}), ("low-pass", {}), ("block", {"clip_norm": 100}), ("random", {"clip_norm": 9})],
)
def test_pure_privacy_is_for_whole_numbers_that_are_not_clipped(operator, more):
    """Their change in L1 norm is known; that of rounded or of clipped values is bounded in L2 norm alone."""
    still = Shape.of(32, 32, 1, 255)
    with refused("delta-missing"):
        LinearPlan.of(plain_projection(8, 0, 4, operator, k=4, **more), still, "a")
    LinearPlan.of(plain_projection(8, 0, 4, "block", k=4), still)


def test_more_noise_than_the_sampler_draws_is_refused_beforehand():
    with refused("epsilon-too-small"):
        LinearPlan.of(plain_projection("1e-16", 0, 4, "block", k=4), Shape.of(32, 32, 1, 255))


def test_a_plan_says_what_it_is_of():
    assert LinearPlan.of(SETTING, Shape(4, 8, 8, 1), "unheeded").choice == ""
    with pytest.raises(ValueError, match="plan of its own"):
        LinearPlan.of(plain_projection(8, "1e-5", "frame", paper=True), Shape(4, 8, 8, 1))


def test_frames_and_groups_have_noise_of_their_own():
    shape = Shape(6, 16, 16, 3)
    plan = LinearPlan.of(plain_projection(1, "1e-5", 16, k=768, pool=1), shape)
    grey = np.full((6, 16, 16, 3), 127, np.uint8)
    groups = list(plan.released(plan.measured(iter(grey)), AesNoise(Key.fresh())))
    for one, other in itertools.combinations(groups, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.2
    again = list(plan.released(plan.measured(iter(grey)), AesNoise(Key.fresh())))
    assert not np.array_equal(groups[0], again[0])


class TestSettings:
    @pytest.mark.parametrize(
        ("text", "scope", "m"),
        [
            ("pixels:16", "picture", 16),
            ("16", "picture", 16),
            ("pixels:3/frame", "frame", 3),
            ("frame", ONE_FRAME, None),
            ("clip", "clip", None),
        ],
    )
    def test_neighbours(self, text, scope, m):
        assert plain_projection(8, "1e-5", text).neighbours == Neighbours.of_pixels(m, scope)

    @pytest.mark.parametrize(
        ("more", "word"),
        [
            ({"delta": 0}, ("delta-out-of-range",)),
            ({"delta": "1.5"}, ("delta-out-of-range",)),
            ({"epsilon": 0}, ("epsilon-out-of-range",)),
            ({"epsilon": "many"}, ("fraction-malformed", "epsilon")),
            ({"neighbours": "pixels"}, ("neighbours-malformed",)),
            ({"neighbours": "pixels:0"}, ("m-not-positive",)),
            ({"operator": "wavelet"}, ("operator-unknown",)),
            ({"k": 0}, ("setting-not-positive", "k")),
            ({"pool": 0}, ("setting-not-positive", "pool")),
            ({"clip_norm": -1}, ("clip-norm-not-positive", "clip-norm")),
            ({"clip_segment": True}, ("clip-norm-missing",)),
            ({"paper": True, "neighbours": "pixels:16"}, ("neighbours-not-frame",)),
            ({"paper": True, "pool": 2}, ("paper-with-operator",)),
            ({"k": 3 * 64 + 1}, ("k-above-values", "192")),
            ({"k": 2}, ("k-below-channels", "least 3")),
            ({"neighbours": "pixels:65/frame"}, ("m-above-pixels", "64 pixels")),
        ],
    )
    def test_what_is_refused(self, more, word):
        values = {"epsilon": 8, "delta": "1e-5"} | more
        with refused(*word):
            LinearPlan.of(plain_projection(**values), Shape(2, 8, 8, 3))

    @pytest.mark.parametrize("near", ["pixels:1", "pixels:16", "pixels:16/frame", "frame", "clip"])
    @pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 21, 33, 3), (280, 256, 340, 3), (3, 2, 900, 3)])
    def test_the_grid_is_chosen_from_the_settings_alone(self, near, shape):
        clip = Shape(*shape)
        if near == "pixels:16/frame" and clip.pixels < 16:
            return
        plan = LinearPlan.of(plain_projection(8, "1e-5", near if clip.pixels >= 16 else 1), clip)
        operator = plan.operator
        assert 1 <= operator.rows <= clip.height
        assert 1 <= operator.groups <= clip.frames
        choices = choosing.grid_choices(plan.config, clip)
        taken = next(c for c in choices if c.grid == (operator.rows, operator.columns, operator.groups))
        assert taken.mse <= choosing.AS_GOOD * min(choice.mse for choice in choices)

    def test_k_is_used_and_never_passed(self):
        for k in (3, 100, 3072, 9999):
            plan = LinearPlan.of(plain_projection(8, "1e-5", 1, k=k, pool=1), Shape(2, 240, 320, 3))
            assert 0.85 * (k - 3) <= plan.operator.outputs <= k


class TestWords:
    def test_noise_is_told_beforehand(self):
        text = "\n".join(explain_release(LinearPlan.of(SETTING, Shape(64, 240, 320, 3))))
        for words in ("64 frames, 320 x 240", "any 4 pixels of the clip", "gray levels a pixel", "PSNR of"):
            assert words in text
        assert "a face" in text
        assert "a whole frame has epsilon" in text
        assert "mostly noise" not in text
        assert noise_psnr(255) == 0

    def test_mostly_noise_is_warned_of(self):
        hopeless = plain_projection(8, "1e-5", "frame")
        text = "\n".join(explain_release(LinearPlan.of(hopeless, Shape(64, 240, 320, 3))))
        assert "WARNING: this will be mostly noise" in text
        assert "of any one frame" in text

    def test_larger_things_cost_more(self):
        for near in ("pixels:16", "pixels:16/frame", "frame"):
            plan = LinearPlan.of(plain_projection(8, "1e-5", near), Shape(64, 240, 320, 3))
            neighbours = plan.config.neighbours.resolved(plan.shape)
            own = plan.epsilon_for(neighbours.m, neighbours.scope)
            assert own == pytest.approx(8, rel=0.01)
            frame = plan.epsilon_for(240 * 320, ONE_FRAME)
            clip = plan.epsilon_for(64 * 240 * 320, "clip")
            assert plan.epsilon_for(10_000, ONE_FRAME) < frame < clip
            assert plan.epsilon_for(10_000, ONE_FRAME) < plan.epsilon_for(10_000, "frame") < clip

    def test_arrays(self):
        clip = clip_for(Shape(5, 16, 24, 3))
        made = release_array(clip, SETTING)
        assert made.picture.shape == clip.shape
        assert made.picture.dtype == np.uint8
        assert made.statement.kind is Kind.PRIVATE
        assert made.statement.accountant is Accountant.GAUSSIAN
        assert 7.9 < made.statement.verify() <= 8
        one, other = (release_array(clip, SETTING, seed=3) for _ in range(2))
        assert np.array_equal(one.picture, other.picture)
        assert one.statement.kind is Kind.SEEDED
        for wrong, word in (
            (clip.astype(float), "image-type-unsupported"),
            (clip.astype(np.uint16), "depth-unsupported"),
            (clip[:0], "image-empty"),
        ):
            with refused(word):
                release_array(wrong, SETTING)
        with refused("seed-with-noise"):
            release_array(clip, SETTING, seed=1, source=AesNoise(Key.fresh()))


class ByHand:
    """An operator whose numbers are easy: seven frames in groups of three, two and two."""

    shape, groups, outputs, unit = Shape(7, 4, 4, 1), 3, 3, 2.0

    def __init__(self, whole=False):
        self.whole = whole

    def bound_for(self, neighbours):
        return Sensitivity(None, Fraction(100))

    def blur(self, frames):
        assert frames == 3  # the longest group is blurred most
        return 0.25


def test_what_rounding_costs_by_hand():
    near, fine = Neighbours.of_pixels(1, "clip"), Fraction(1, 2)
    free, whole, clipping = ByHand(), ByHand(whole=True), linear.Clipping(2.0, 2)
    # 10 is 20 steps; each of nine values is off by a step, and by twice a quarter
    assert linear.squared_change(free, None, fine, near) == rounded_up(26.0**2)
    assert linear.squared_change(whole, None, Fraction(5), near) == 4
    for clipped, most in ((clipping, 4.0), (linear.Clipping(200.0, 2), 5.0)):
        off = 0.25 * math.sqrt(6) + 22 * 2.0**-52 * clipped.norm
        wanted = rounded_up((most / 0.5 + 3 * (1 + 4 * off)) ** 2)
        for operator in (free, whole):
            found = linear.squared_change(operator, clipped, fine, near)
            assert float(found) == pytest.approx(float(wanted), rel=1e-15)
    # 256 * 3 steps, or more, in what may change
    assert linear.grid_for(free, None, near) == Fraction(1, 128)
    assert linear.grid_for(free, clipping, near) == Fraction(1, 256)
    assert linear.grid_for(whole, clipping, near) == Fraction(1, 256)
    assert linear.grid_for(whole, None, near) == 1


def test_values_go_to_the_nearest_multiple():
    assert on_grid(np.array([0.26, -0.76, 0.24, 7.0]), Fraction(1, 2)).tolist() == [1, -2, 0, 14]
    whole = np.array([3, -4])
    assert on_grid(whole, Fraction(1)) is whole


@pytest.mark.parametrize("more", [{}, {"clip_norm": 300}])
@pytest.mark.parametrize("operator", ["block", "low-pass"])
def test_the_noise_that_is_told_is_the_noise_that_is_drawn(operator, more):
    plan = LinearPlan.of(plain_projection(8, "1e-5", 4, operator, k=48, pool=2, **more), Shape(7, 8, 8, 3))
    steps = math.sqrt(plan.event.variance) * float(plan.grid)
    assert plan.sigma == pytest.approx(steps * (plan.operator.unit if more else 1))
    assert plan.noise == plan.operator.noise(plan.sigma)
    assert [plan.length(group) for group in range(plan.operator.groups)] == [1, 2, 2, 2]
    assert plan.shape == Shape(7, 8, 8, 3)


def test_clipping_scales_all_groups_by_one_number():
    values = [np.array([3.0, 0.0]), np.array([0.0, 4.0])]
    for norm, factor in ((10.0, 1), (5.0, 1), (2.5, 0.5)):
        for found, given_ in zip(linear.Clipping(norm, 2).apply(values), values, strict=True):
            assert found == pytest.approx(given_ * factor, rel=1e-15)


class TestWhatIsPassedOn:
    @pytest.mark.parametrize(
        "more",
        [
            {},
            {"neighbours": "pixels:4/frame", "operator": "low-pass", "k": 300, "pool": 2, "clip_norm": 900},
            {"operator": "random", "clip_norm": 70, "clip_segment": True, "seed": 5, "keep_sound": True},
            {"paper": True, "k": 60, "split": 0.3, "progress": list},
        ],
        ids=["as it is", "low-pass", "random", "paper"],
    )
    def test_a_videos_setting_reaches_the_mechanism(self, tmp_path, monkeypatch, more):
        source, asked = write(tmp_path / "a.mp4", sound=True), []
        monkeypatch.setattr(api, "release_one", lambda work, job, **rest: asked.append((work, job, rest)))
        release_video(source, tmp_path / "b.mp4", "1/3", "1e-5", **more)
        of_work = {n: more[n] for n in ("seed", "keep_sound", "again") if n in more}
        of_config = {n: v for n, v in more.items() if n not in (*of_work, "progress", "about")}
        work = Work(Projection.of("1/3", "1e-5", **of_config), public=True, **of_work)
        job = Job(source, tmp_path / "b.mp4", about=more.get("about", About()))
        assert asked == [(work, job, {"progress": more.get("progress")})]

    def test_a_files_sound_and_progress(self, tmp_path):
        source, told = write(tmp_path / "a.mp4", sound=True), []
        for keep in (False, True):
            out = tmp_path / f"{keep}.mp4"
            statement = release_file(probe(source), out, SETTING, keep_sound=keep, progress=lambda: told.append(1))
            assert probe(out).sound is keep
            assert any("decoded" in line for line in statement.caveats)
            assert bool(statement.conditional_on) is keep
        assert len(told) == 2 * 9
        release_file(probe(source), tmp_path / "c.mp4", SETTING)
        assert not probe(tmp_path / "c.mp4").sound

    def test_a_given_key_is_told(self):
        clip = clip_for(Shape(3, 16, 16, 3))
        made = release_array(clip, SETTING, source=AesNoise(Key(bytes(range(32)))))
        assert made.statement.kind is Kind.SEEDED
        assert GIVEN in made.statement.caveats

    @pytest.mark.parametrize("operator", ["block", "random"])
    @pytest.mark.parametrize("more", [{}, {"clip_norm": 300}, {"clip_norm": 300, "clip_segment": True}])
    def test_each_group_has_a_stream_of_its_own_and_the_choice_another(self, operator, more):
        shape, key = Shape(7, 8, 8, 3), Key.from_seed(2)
        setting = plain_projection(8, "1e-5", 4, operator, k=48, pool=2, **more)
        plan = bind(setting, shape, AesNoise(key))
        chosen = AesNoise(key).stream(Purpose.INIT, 0, b"projection").bytes(16).hex()
        assert plan.choice == (chosen if operator == "random" else "")
        clip, found = clip_for(shape), []
        without = rounded(plan, clip)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(linear, "on_grid", lambda values, grid: np.zeros(values.shape, np.int64))
            patch.setattr(type(plan.operator), "uncentred", lambda self, values, frames: values)
            found = list(plan.released(plan.measured(iter(clip)), AesNoise(key)))
        assert len(found) == plan.operator.groups > 2
        assert without.size == plan.operator.groups * plan.operator.outputs
        source = AesNoise(key)
        for group, values in enumerate(found):
            stream = source.stream(Purpose.RELEASE, group, b"projection")
            wanted = discrete_gaussian(plan.event.variance, plan.operator.outputs, stream)
            assert np.array_equal(values, wanted * float(plan.grid))


class TestFiles:
    @pytest.mark.parametrize("operator", ["block", "low-pass", "random"])
    @pytest.mark.parametrize("near", ["pixels:16", "pixels:2/frame", "frame"])
    def test_a_video_and_its_statement(self, tmp_path, operator, near):
        source = write(tmp_path / "a.mp4", sound=True)
        statement = release_video(source, tmp_path / "b.mp4", 8, "1e-5", near, operator, clip_norm=900)
        before, after = probe(source), probe(tmp_path / "b.mp4")
        assert (after.width, after.height, after.frames) == (48, 32, 9)
        assert (after.rate, after.sound) == (before.rate, False)
        assert statement.kind is Kind.PRIVATE
        carried, line = verify_release(tmp_path / "b.mp4")
        assert carried == statement
        assert "8 is claimed" in line
        assert released_files(tmp_path).released[1:] == [tmp_path / "b.mp4"]

    def test_uneven_time_stamps_stay(self, tmp_path):
        stamps = [0, 3, 4, 9, 10, 11, 20]
        source = write(tmp_path / "a.mkv", frames=7, stamps=stamps, rate=10)
        release_video(source, tmp_path / "b.mp4", 8, "1e-5")
        info = probe(tmp_path / "b.mp4")
        assert [round(float(f.pts * info.time_base * 10)) for f in read_frames(info)] == stamps
        verify_release(tmp_path / "b.mp4")

    @pytest.mark.parametrize("size", [(33, 21), (1, 1), (64, 21)])
    @pytest.mark.parametrize("frames", [1, 3])
    def test_odd_sizes_and_single_frames(self, tmp_path, size, frames):
        source = write(tmp_path / "a.mp4", frames=frames, size=size, pix_fmt="yuv444p")
        release_video(source, tmp_path / "b.mp4", 8, "1e-5", 1)
        after = probe(tmp_path / "b.mp4")
        grown = tuple(side + side % 2 for side in size)
        assert (after.width, after.height, after.frames) == (*grown, frames)
        verify_release(tmp_path / "b.mp4")

    def test_a_turned_video_is_released_as_it_is_shown(self, tmp_path):
        source = write(tmp_path / "a.mp4", size=(64, 32))
        data = bytearray(source.read_bytes())
        matrix = (0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30)
        struct.pack_into(">9i", data, data.index(b"tkhd") + 44, *matrix)
        source.write_bytes(data)
        statement = release_video(source, tmp_path / "b.mp4", 8, "1e-5")
        assert (statement.release["shape"]["width"], statement.release["shape"]["height"]) == (32, 64)
        after = probe(tmp_path / "b.mp4")
        assert (after.width, after.height, after.display.upright) == (32, 64, True)
        verify_release(tmp_path / "b.mp4")

    def test_grey_videos(self, tmp_path):
        source = write(tmp_path / "a.mkv", codec="ffv1", pix_fmt="gray")
        statement = release_video(source, tmp_path / "b.mkv", 8, "1e-5", 4)
        assert statement.release["shape"]["channels"] == 1
        assert statement.events[0].sensitivity_squared == 255**2 * 16

    def test_sound_that_is_kept_is_named(self, tmp_path):
        source = write(tmp_path / "a.mp4", sound=True)
        statement = release_video(source, tmp_path / "b.mp4", 8, "1e-5", keep_sound=True)
        assert probe(tmp_path / "b.mp4").sound
        assert "is not protected at all" in statement.paragraph()

    @pytest.mark.parametrize(
        ("damage", "code"),
        [
            (("file", ""), "file-of-other-statement"),
            (("epsilon", '"epsilon": "4.0"'), "file-of-other-statement"),
            (("sidecar", ""), "statement-missing"),
        ],
    )
    def test_a_changed_video_is_refused(self, tmp_path, damage, code):
        target = tmp_path / "b.mp4"
        release_video(write(tmp_path / "a.mp4"), target, 8, "1e-5")
        sidecar = tmp_path / "b.mp4.privacy.json"
        if damage[0] == "file":
            target.write_bytes(target.read_bytes() + b"\0")
        elif damage[0] == "epsilon":
            sidecar.write_text(sidecar.read_text().replace('"epsilon": "8.0"', damage[1]))
        else:
            sidecar.unlink()
        with refused(code):
            verify_release(target)

    @pytest.mark.parametrize(
        ("changes", "word"),
        [
            (
                {"config.grid": [32, 48, 9]},
                ("record-value-differs", "step"),
            ),  # all frequencies: another grid to round to, and more values
            ({"config.grid": [6, 16, 5]}, (("record-sensitivity-smaller", "record-value-differs"),)),
            ({"step": "1/1000000"}, ("record-value-differs", "step")),
            ({"step": "0"}, ("record-value-differs", "step")),
            ({"shape.frames": 90}, ("pixels-differ-from-statement", "frames 9")),
            ({"shape.height": 30}, ("pixels-differ-from-statement", "size 48x32")),
            ({"config.operator": "magic"}, ("record-operator-unknown",)),
            ({"config.grid": [1, 100, 1]}, ("record-incomplete",)),
            ({"config.grid": [1, 1]}, ("record-incomplete",)),
            ({"config.grid": [6.0, 16, 5]}, ("record-incomplete",)),
            ({"config.clip_norm": "inf"}, ("record-incomplete",)),
            ({"config.clip_norm": "1e6"}, ("record-incomplete", "three values alike")),
            (
                {"config.clip_norm": "1e6", "config.colour": "rgb", "config.chroma": None},
                (("record-sensitivity-smaller", "record-value-differs"),),
            ),
            ({"config.clip_segment": True}, ("record-incomplete",)),
            ({"config.clip_segment": 0}, ("record-incomplete",)),
            ({"shape.channels": 4}, ("record-incomplete",)),
            ({"shape.channels": True}, ("record-incomplete",)),
            ({"shape.channels": 1}, ("record-incomplete", "no chroma")),
            ({"shape.channels": 1, "config.colour": "grey", "config.chroma": None}, ("channels-differ",)),
            ({"shape.frames": None}, ("pixels-differ-from-statement", "frames 9")),
            ({"config.operator": "pixelization"}, ("record-incomplete",)),
            ({"choice": "00"}, ("record-value-differs", ("choice", "nothing"))),
            ({"mood": "good"}, ("record-value-differs", ("mood", "good", "nothing"))),
            ({"neighbours": 64, "config.neighbours.m": 64}, (("record-sensitivity-smaller", "record-value-differs"),)),
            ({"neighbours": 4, "config.neighbours.m": 4}, ("record-value-differs", "step")),
            ({"neighbours": 4}, ("record-value-differs", "neighbours")),
            ({"config.neighbours.m": 4}, ("record-value-differs", "step")),
            ({"scope": "picture"}, ("record-value-differs", "neighbours")),
            ({"config.neighbours.scope": "picture"}, ("record-value-differs", "scope")),
            ({"event": 0.5}, ("record-sensitivity-smaller",)),
            ({"variance": 2}, ("record-value-differs", "variance")),
            ({"variance": "1.0001"}, ("record-value-differs", "variance")),
            ({"event": "0.9999"}, ("record-sensitivity-smaller",)),
            ({"steps": 2}, ("record-value-differs", ("steps 2", "but 1"))),
            ({"events": 2}, ("record-events-differ", ("2 events", "not 1"))),
            ({"epsilon": 9.0}, ("record-value-differs", "epsilon")),
            ({"epsilon": 9.0, "config.epsilon": "9"}, ("record-value-differs", "variance")),
            ({"unit": "image"}, ("record-value-differs", "unit")),
            ({"accountant": "zcdp"}, ("statement-does-not-add-up",)),
        ],
        ids=lambda value: value if isinstance(value, str) else next(iter(value)),
    )
    def test_a_forged_record_is_found_out(self, tmp_path, changes, word):
        """Digests and seals are no signature: a forger computes new ones. The rest must still be consistent."""
        target = tmp_path / "b.mp4"
        made = release_video(write(tmp_path / "a.mp4"), target, 8, "1e-5", 16, "low-pass", k=300, pool=2)
        verify_release(target)
        more = dict(changes)
        (event,) = made.events
        share, factor = Fraction(more.pop("event", 1)), Fraction(more.pop("variance", 1))
        changed = replace(
            event,
            sensitivity_squared=event.sensitivity_squared * share,
            variance=event.variance * factor,
            steps=more.pop("steps", 1),
        )
        events = (changed,) * more.pop("events", 1)
        near = replace(made.neighbours, m=more.pop("neighbours", 16), scope=more.pop("scope", made.neighbours.scope))
        if "unit" in more:
            near = Neighbours(more["unit"], Relation.REPLACE)
        claimed = more.pop("epsilon", 100.0 if len(events) > 1 or changed.steps > 1 else 8.0)
        forged = replace(
            made,
            events=events,
            neighbours=near,
            epsilon=claimed,
            unit=more.pop("unit", "pixel"),
            accountant=more.pop("accountant", made.accountant),
            seal="",
        )
        forged = recorded(forged, more)
        write_sidecar(target, target, forged)
        with refused(*word) as caught:
            verify_release(target)
        assert "\n" not in str(caught.value)

    def test_a_seed_makes_it_repeatable_and_says_so(self, tmp_path):
        source = write(tmp_path / "a.mp4")
        for name in ("b.mp4", "c.mp4"):
            statement = release_video(source, tmp_path / name, 8, "1e-5", 4, "random", seed=5)
        assert (tmp_path / "b.mp4").read_bytes() == (tmp_path / "c.mp4").read_bytes()
        assert statement.kind is Kind.SEEDED
        assert "nothing is guaranteed" in verify_release(tmp_path / "c.mp4")[1]
        carried = json.loads((tmp_path / "c.mp4.privacy.json").read_text())
        assert len(carried["release"]["choice"]) == 32

    def test_paper_mode(self, tmp_path):
        target = tmp_path / "b.mp4"
        statement = release_video(write(tmp_path / "a.mp4"), target, 8, "1e-4", paper=True, k=60)
        assert statement.kind is Kind.PAPER
        assert "NOTHING IS GUARANTEED" in statement.paragraph()
        assert "nothing is claimed" in verify_release(target)[1]
        plan = DensePlan.of(plain_projection(8, "1e-4", paper=True, k=60), video_shape(probe(target)))
        assert any("takes minutes" in line for line in explain_release(plan))
        with refused("k-above-values", where=("a.mp4", "4,608")):
            release_video(tmp_path / "a.mp4", tmp_path / "c.mp4", 8, "1e-4", paper=True, k=4609)


class TestRefusals:
    """One line that names the file, and nothing written."""

    def refused(self, folder, source, code, where=None, **more):
        before = sorted(p.name for p in folder.rglob("*"))
        with refused(code, where) as caught:
            release_video(source, folder / "out" / "b.mp4", **({"epsilon": 8, "delta": "1e-5"} | more))
        assert "\n" not in caught.value.line()
        left = sorted(p.name for p in folder.rglob("*") if p.is_file())
        assert left == [name for name in before if (folder / name).is_file()]

    def test_what_is_no_video(self, tmp_path):
        (tmp_path / "empty.mp4").write_bytes(b"")
        (tmp_path / "text.mp4").write_text("no video")
        for name in ("empty.mp4", "text.mp4", "absent.mp4"):
            code = "file-missing" if name == "absent.mp4" else "video-undecodable"
            self.refused(tmp_path, tmp_path / name, code, name)

    def test_sound_alone(self, tmp_path):
        write(tmp_path / "a.mp4", sound=True)
        with av.open(str(tmp_path / "a.mp4")) as given, av.open(str(tmp_path / "tone.mp4"), "w") as out:
            stream = out.add_stream_from_template(given.streams.audio[0])
            for packet in given.demux(given.streams.audio[0]):
                if packet.dts is not None:
                    packet.stream = stream
                    out.mux(packet)
        self.refused(tmp_path, tmp_path / "tone.mp4", "video-missing-in-file")

    @pytest.mark.parametrize("name", ["a.avi", "a.mkv"])
    def test_a_video_that_ends_early(self, tmp_path, name):
        source = write(tmp_path / name, frames=60, codec="mpeg4" if name == "a.avi" else "libx264")
        data = source.read_bytes()
        source.write_bytes(data[: len(data) * 6 // 10])
        self.refused(tmp_path, source, ("video-cut-short", "video-length-differs", "video-undecodable"), name)

    def test_k_beyond_the_frame_and_m_beyond_the_clip(self, tmp_path):
        source = write(tmp_path / "a.mp4")
        self.refused(tmp_path, source, "k-above-values", ("a.mp4", "4,609"), k=4609)
        self.refused(tmp_path, source, "m-above-pixels", "a.mp4", neighbours="pixels:99999")
        self.refused(tmp_path, source, "delta-out-of-range", delta=0)
        self.refused(tmp_path, source, "delta-out-of-range", delta=2)

    def test_other_files_among_the_videos(self, tmp_path):
        folder = tmp_path / "in"
        folder.mkdir()
        for name in ("a.mp4", "b.mp4"):
            write(folder / name)
        (folder / "notes.txt").write_text("passed over")
        (folder / "c.png").write_bytes(b"passed over too")
        found = find_videos([str(folder)], tmp_path / "out", keep_names=True)
        assert [job.source.name for job, _ in found] == ["a.mp4", "b.mp4"]
        release_file(found[0][1], found[0][0].target, SETTING)
        assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["a.mp4", "a.mp4.privacy.json"]
        (folder / "d.mp4").write_text("a text by the name of a video")
        *_, (_, error) = find_videos([str(folder)], tmp_path / "other")
        with refused("video-undecodable", where="d.mp4"):
            raise error
        for wrong, word in (
            ("notes.txt", "file-kind-unknown"),
            ("c.png", "file-kind-unknown"),
            ("*.avi", "file-missing"),
        ):
            with refused(word):
                find_videos([str(folder / wrong)], tmp_path / "other")
        with refused("inputs-missing"):
            find_videos([str(_pictures(tmp_path))], tmp_path)


def _pictures(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"")
    return folder


def test_a_statement_reads_back(tmp_path):
    statement = release_video(write(tmp_path / "a.mp4"), tmp_path / "b.mp4", "1/3", "1e-5")
    assert read_sidecar(tmp_path / "b.mp4")[0] == statement
    sidecar = sidecar_of(tmp_path / "b.mp4")
    sidecar.write_text(sidecar.read_text().replace("{", '{\n  "epsilon": "0.01",', 1))
    with refused("statement-malformed", where="twice"):  # of which readers of JSON take the first or the last
        read_sidecar(tmp_path / "b.mp4")
