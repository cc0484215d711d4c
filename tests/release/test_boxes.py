"""A box that moves through a clip: how much it changes, by brute force; what it costs, and how it is told."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dpose
from clips import write
from dpose.cli import main
from dpose.errors import DposeError
from dpose.media.video import frame_times, probe
from dpose.privacy.events import Laplace
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.ranges import most_frames
from dpose.privacy.statement import PrivacyStatement
from dpose.release.choosing import choose_grid, grid_choices
from dpose.release.colour import Colour
from dpose.release.colour_planes import make_planes
from dpose.release.config import Pixelization
from dpose.release.counting import charged_events, claimed_pixels
from dpose.release.explain import explain_release
from dpose.release.grid import Shape, even_edges, most_overlap, most_weight
from dpose.release.linear import LinearPlan
from dpose.release.operators import make_operator
from dpose.release.partition import BlockSums, RegionSums
from dpose.release.plans import bind, bind_video, release_statement
from dpose.release.recompute import compare_numbers, expected
from dpose.release.record import recorded_plan
from dpose.units import Unit
from plain_configs import plain_cells, plain_projection
from records import recorded
from refusals import refused


def near(width, height, frames=1):
    return Neighbours.of_box(width, height, frames)


def edges_of(sizes):
    return np.concatenate([[0], np.cumsum(sizes)])


def places(shape, width, height):
    """Where a box can lie in a frame, as slices."""
    for top, left in itertools.product(range(shape.height - height + 1), range(shape.width - width + 1)):
        yield slice(top, top + height), slice(left, left + width)


@example(sizes=[3, 4, 1, 3], length=6)  # the worst place ends at an edge, and does not begin at one
@example(sizes=[3, 1, 4, 3], length=6)  # or the other way round
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6), length=st.integers(1, 20))
def test_a_stretch_fills_pieces_most_where_an_end_meets_an_edge(sizes, length):
    owner = np.repeat(np.arange(len(sizes)), sizes)
    within = min(length, len(owner))
    found = [sum(np.bincount(owner[start : start + within]) ** 2) for start in range(len(owner) - within + 1)]
    assert most_overlap(edges_of(sizes), length) == max(found)


@given(weights=st.lists(st.integers(0, 9), min_size=1, max_size=8), length=st.integers(1, 9))
def test_the_heaviest_neighbouring_weights(weights, length):
    within = min(length, len(weights))
    wanted = max(sum(weights[i : i + within]) for i in range(len(weights) - within + 1))
    assert most_weight(np.array(weights, float), length) == pytest.approx(wanted)


@settings(deadline=None, max_examples=60)
@given(
    sides=st.tuples(*[st.integers(1, 9)] * 2),
    box=st.tuples(*[st.integers(1, 9)] * 2),
    block=st.integers(1, 6),
    channels=st.sampled_from([1, 3]),
)
def test_blocks_change_by_just_as_much_as_the_worst_box(sides, box, block, channels):
    shape, cells = Shape(1, *sides, channels), BlockSums(*sides, block, channels)
    width, height = min(box[0], shape.width), min(box[1], shape.height)
    one, squares = [], []
    for place in places(shape, width, height):
        white = np.zeros((*sides, channels), np.uint8)
        white[place] = 255
        moved = cells.apply(white)
        one.append(int(moved.sum()))
        squares.append(int((moved**2).sum()))
    bound = cells.sensitivity(near(*box))
    assert (bound.l1, bound.l2_squared) == (max(one), max(squares))
    filled = cells.sensitivity(Neighbours.of_pixels(width * height, "picture"))
    assert bound.l1 == filled.l1
    assert bound.l2_squared <= filled.l2_squared


def test_a_box_that_spans_blocks_does_less_than_as_many_pixels_anywhere():
    """20 x 20 over blocks of 16: (16^2 + 4^2)^2 against a full block and 144 pixels of another."""
    cells = BlockSums(64, 64, 16, 1)
    assert cells.sensitivity(near(20, 20)).l2_squared == 255**2 * 272**2
    assert cells.sensitivity(Neighbours.of_pixels(400, "picture")).l2_squared == 255**2 * (256**2 + 144**2)
    assert cells.sensitivity(near(10, 16)).l2_squared == 255**2 * 160**2  # within one block there is no difference


def test_ragged_edges_take_the_box_where_the_large_cells_are():
    """Cells of 2, 2 and 3 pixels: the worst stretch of 3 lies at the end, not at the beginning."""
    operator = make_operator("block", Shape(1, 7, 7, 1), 3, 3, 1)
    assert np.diff(even_edges(7, 3)).tolist() == [2, 2, 3]
    assert operator.bound_for(near(3, 3)).l2_squared == 255**2 * 9**2


@pytest.mark.parametrize("divided", [0, 1, 2])
def test_no_mask_lets_a_box_do_more_than_undivided_blocks(divided):
    rng = np.random.default_rng(divided)
    shape = Shape(1, 10, 9, 1)
    mask = [np.zeros, np.ones][divided]((3, 3), bool) if divided < 2 else rng.random((3, 3)) < 0.5
    cells = RegionSums(10, 9, 4, 2, mask)
    bound = cells.sensitivity(near(5, 3))
    for place in places(shape, 5, 3):
        white = np.zeros((10, 9, 1), np.uint8)
        white[place] = 255
        moved = cells.apply(white)
        assert (moved**2).sum() <= bound.l2_squared
        assert moved.sum() <= bound.l1


@pytest.mark.parametrize("delta", [0, 1e-5])
@pytest.mark.parametrize("subdivide", [1, 2])
def test_pixelized_clips_cost_no_more_than_is_claimed(delta, subdivide):
    """Every place of the box in every choice of T frames, by the sums that stages are released from."""
    config = plain_cells(2, "box:5x3/frames:2", 4, delta, subdivide, None if subdivide == 1 else "private")
    shape = Shape.of(9, 10, 3, frames=4)
    plan = bind(config, shape)
    worst = Fraction(0)
    for stage in plan.stages:
        cells = BlockSums(9, 10, 4 if stage.name == b"coarse" else 2, 3)
        cost = Fraction(0)
        for place in places(shape, 5, 3):
            white = np.zeros((9, 10, 3), np.uint8)
            white[place] = 255
            moved = cells.apply(white)
            if delta:
                here = Fraction(int((moved**2).sum())) / (2 * stage.event.variance)
            else:
                here = Fraction(int(moved.sum())) / stage.event.scale
            cost = max(cost, here)
        worst += 2 * cost  # any two of the four frames: noises are independent, so that frames add up
    spent = sum(
        (
            e.steps * (e.sensitivity / e.scale if isinstance(e, Laplace) else e.sensitivity_squared / (2 * e.variance))
            for e in plan.events
        ),
        Fraction(0),
    )
    assert worst == spent
    assert release_statement(plan, seeded=False).verify() <= 2


def groups_of(operator, clip):
    edges = even_edges(operator.shape.frames, operator.groups)
    return np.concatenate(
        [operator.apply(clip[a:b].sum(0, dtype=np.int64), int(b - a)) for a, b in itertools.pairwise(edges)]
    ).astype(float)


def moved_by(operator, frames, where, light):
    """How far values move if the boxes `where` of `frames` turn from dark to light."""
    shape = operator.shape
    one = np.zeros((shape.frames, shape.height, shape.width, shape.channels), np.uint8)
    other = one.copy()
    for frame, place in zip(frames, where, strict=True):
        one[frame][place] = 255 * light[place][..., None]
        other[frame][place] = 255 * (1 - light[place][..., None])
    return groups_of(operator, one) - groups_of(operator, other)


@pytest.mark.parametrize("name", ["block", "low-pass", "random"])
@pytest.mark.parametrize(("frames", "groups", "many"), [(3, 2, 2), (3, 1, 2), (3, 3, 2), (5, 2, 3), (4, 2, 1)])
def test_no_box_in_any_frames_changes_an_operator_more(name, frames, groups, many):
    """Every choice of frames, each with its own place of the box; white, and the operator's own signs."""
    shape = Shape(frames, 5, 4, 1)
    operator = make_operator(name, shape, 2, 2, groups, "a")
    bound = operator.bound_for(near(3, 2, many))
    rng = np.random.default_rng(0)
    lights = [np.ones((5, 4), int)]
    if name != "block":
        lights += [(np.outer(d, a) > 0).astype(int) for d in operator.down for a in operator.across]
        if operator.signs is not None:
            lights = [1 - abs(light - (operator.signs[..., 0] > 0)) for light in lights]
    most = total = 0.0
    everywhere = list(places(shape, 3, 2))
    for chosen in itertools.combinations(range(frames), many):
        ways = [[place] * many for place in everywhere]
        ways += [[everywhere[i] for i in rng.integers(0, len(everywhere), many)] for _ in range(20)]
        for where, light in itertools.product(ways, lights):
            moved = moved_by(operator, chosen, where, light)
            most, total = max(most, float(moved @ moved)), max(total, float(np.abs(moved).sum()))
    assert most <= float(bound.l2_squared) * (1 + 1e-12)
    if name == "block":
        assert (most, total) == (bound.l2_squared, bound.l1)
    else:
        assert most >= 0.2 * float(bound.l2_squared)


@pytest.mark.parametrize("name", ["block", "low-pass", "random"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("frames", "groups"), [(7, 2), (5, 2), (4, 4)])
@pytest.mark.parametrize("many", [1, 2, 3])
def test_a_box_of_one_pixel_is_bounded_exactly(name, channels, frames, groups, many):
    """Where all its frames fit into the shortest group (of sums: the longest), or stand in groups of their own."""
    shape = Shape(frames, 3, 2, channels)
    operator = make_operator(name, shape, 2, 1, groups, "a")
    bound = operator.bound_for(near(1, 1, many))
    found = total = 0.0
    for place in places(shape, 1, 1):
        for chosen in itertools.combinations(range(frames), many):
            moved = moved_by(operator, chosen, [place] * many, np.ones((3, 2), int))
            found, total = max(found, float(moved @ moved)), max(total, float(np.abs(moved).sum()))
    if name == "block":
        assert (found, total) == (bound.l2_squared, bound.l1)
    elif many <= frames // groups or groups == frames:
        assert found == pytest.approx(float(bound.l2_squared), rel=1e-5)
    assert found <= bound.l2_squared


@settings(deadline=None, max_examples=60)
@given(
    sides=st.tuples(*[st.integers(1, 6)] * 3),
    grid=st.tuples(*[st.integers(1, 6)] * 3),
    box=st.tuples(*[st.integers(1, 6)] * 3),
    name=st.sampled_from(["block", "low-pass", "random"]),
)
def test_a_box_never_counts_for_more_than_its_pixels_anywhere_in_the_clip(sides, grid, box, name):
    """What an operator without a bound of its own falls back on holds for those that have one."""
    shape = Shape(*sides, 3)
    frames, rows, columns = (min(a, b) for a, b in zip(grid, sides, strict=True))
    operator = make_operator(name, shape, rows, columns, frames, "a")
    many, height, width = (min(a, b) for a, b in zip(box, sides, strict=True))
    boxed = near(width, height, many)
    anywhere = operator.sensitivity(Neighbours.of_pixels(boxed.m, "clip"))
    assert operator.bound_for(boxed).l2_squared <= anywhere.l2_squared * (1 + Fraction(1, 10**9))
    assert operator.sensitivity(boxed) == operator.bound_for(boxed)
    assert super(type(operator), operator).box_sensitivity(boxed) == anywhere


CORNERS = np.array(list(itertools.product((0, 255), repeat=3)), np.uint8)


def colourful(shape, frames, where, rng):
    """Two clips that differ in boxes: every corner against its opposite, then corners at random."""
    for corner in [*CORNERS[:4], None, None]:
        one = np.zeros((shape.frames, shape.height, shape.width, 3), np.uint8)
        other = one.copy()
        for frame, place in zip(frames, where, strict=True):
            colours = CORNERS[rng.integers(0, 8, one[frame][place].shape[:2])] if corner is None else corner
            one[frame][place], other[frame][place] = colours, 255 - colours
        yield one, other


class TestLumaAndChroma:
    @pytest.mark.parametrize("delta", [0, 1e-5])
    @pytest.mark.parametrize("factor", [1, 2])
    @pytest.mark.parametrize(("width", "height"), [(2, 2), (5, 3), (3, 7)])
    def test_pixelized_frames_change_by_no_more_than_is_claimed(self, delta, factor, width, height):
        shape = Shape.of(8, 9, 3, frames=2)
        config = plain_cells(2, f"box:{width}x{height}/frames:1", 3, delta, colour="ycc", chroma=factor)
        plan = bind(config, shape)
        bound = plan.sensitivity(b"coarse", config.neighbours.resolved(shape))
        layers, colour, rng = plan.layers, plan.colour, np.random.default_rng(0)
        most = total = 0
        for place in places(shape, width, height):
            for one, other in colourful(replace(shape, frames=1), [0], [place], rng):
                fine, coarse = (cells.apply(one[0]) - cells.apply(other[0]) for cells in (layers.cells, layers.coarse))
                moved = np.concatenate(
                    [(fine @ np.array(colour.luma).T).ravel(), (coarse @ np.array(colour.chroma).T).ravel()]
                )
                most, total = max(most, int(moved @ moved)), max(total, int(np.abs(moved).sum()))
        assert total == bound.l1
        assert 0.6 * bound.l2_squared <= most <= bound.l2_squared
        if (width, height) == (2, 2):
            assert most == bound.l2_squared
        assert plan.events[0].steps == 1

    @pytest.mark.parametrize("name", ["block", "low-pass", "random"])
    @pytest.mark.parametrize("factor", [1, 2])
    @pytest.mark.parametrize(("frames", "groups", "many"), [(3, 2, 2), (3, 1, 2), (3, 3, 1)])
    def test_no_box_in_any_frames_changes_an_operator_more(self, name, factor, frames, groups, many):
        shape, rng = Shape(frames, 5, 6, 3), np.random.default_rng(0)
        operator = make_planes(name, shape, (2, 4, groups), Colour.of("ycc", 3, gaussian=True), factor, "a")
        bound = operator.bound_for(near(3, 2, many))
        assert bound == operator.sensitivity(near(3, 2, many))
        everywhere, most = list(places(shape, 3, 2)), 0.0
        for chosen in itertools.combinations(range(frames), many):
            ways = [[place] * many for place in everywhere]
            ways += [[everywhere[i] for i in rng.integers(0, len(everywhere), many)] for _ in range(5)]
            for where in ways:
                for one, other in colourful(shape, chosen, where, rng):
                    moved = groups_of(operator, one) - groups_of(operator, other)
                    most = max(most, float(moved @ moved))
                    if name == "block":
                        assert np.abs(moved).sum() <= bound.l1
        assert most <= float(bound.l2_squared) * (1 + 1e-12)
        if name == "block":
            assert most >= 0.8 * float(bound.l2_squared)
        anywhere = operator.sensitivity(Neighbours.of_pixels(6 * many, "clip"))
        assert bound.l2_squared <= anywhere.l2_squared

    @pytest.mark.parametrize("name", ["block", "low-pass", "random"])
    @pytest.mark.parametrize(("frames", "groups", "many"), [(4, 2, 1), (4, 2, 2), (4, 4, 3)])
    def test_a_box_of_one_pixel_is_bounded_exactly(self, name, frames, groups, many):
        shape = Shape(frames, 4, 4, 3)
        operator = make_planes(name, shape, (2, 2, groups), Colour.of("ycc", 3, gaussian=True), 2, "a")
        bound, found = operator.bound_for(near(1, 1, many)), 0.0
        for place in places(shape, 1, 1):
            for chosen in itertools.combinations(range(frames), many):
                pairs = colourful(shape, chosen, [place] * many, np.random.default_rng(0))
                for one, other in itertools.islice(pairs, 4):
                    moved = groups_of(operator, one) - groups_of(operator, other)
                    found = max(found, float(moved @ moved))
        assert found <= bound.l2_squared
        if name == "block":
            assert found == bound.l2_squared
        elif name == "random":
            assert found == pytest.approx(float(bound.l2_squared), rel=1e-5)


class TestChosenCells:
    def test_blocks_follow_from_what_a_box_does(self):
        """The chosen block is the best of all; its box costs what is claimed and less than pixels anywhere."""
        shape = Shape.of(240, 320, 3, frames=20)
        boxed = bind(plain_cells(2, "box:50x40/frames:2", "auto", 1e-5, colour=None), shape)
        anywhere = bind(plain_cells(2, "pixels:4000", "auto", 1e-5, colour=None), shape)
        assert boxed.config.chosen
        assert boxed.config.block <= anywhere.config.block
        assert release_statement(boxed, seeded=False).verify() <= 2

    @pytest.mark.parametrize("operator", ["block", "random"])
    def test_an_operators_grid_does_too(self, operator):
        shape = Shape.of(240, 320, 3, frames=20)
        boxed, anywhere = (
            bind(plain_projection(8, "1e-5", hidden, operator, colour=None), shape, AesNoise(Key.fresh()))
            for hidden in ("box:50x40/frames:20", "pixels:40000")
        )
        best = {choice.grid: choice for choice in grid_choices(boxed.config, shape)}
        taken = (boxed.operator.rows, boxed.operator.columns, boxed.operator.groups)
        assert best[taken].mse == min(choice.mse for choice in best.values())
        others = grid_choices(anywhere.config, shape)
        assert best[taken].mse < min(choice.mse for choice in others)
        assert release_statement(boxed, seeded=False).verify() <= 8


def test_re_entry_counts_each_frame_may_stand_in_a_part_of_its_own():
    """Ten frames that are spread over the clip change ten clipped groups, not the five that lie side by side."""
    shape = Shape(40, 8, 8, 1)
    config = plain_projection(8, "1e-5", "box:8x8/frames:10", k=4, pool=2, clip_norm=50)
    plan = LinearPlan.of(config, shape)
    assert plan.clipping.changed(config.neighbours.resolved(shape), 20) == pytest.approx(100 * math.sqrt(10))
    one, other = np.full((2, 40, 8, 8, 1), 127, np.uint8)
    one[::4], other[::4] = 0, 255
    values = [
        np.concatenate([plan.clipping.apply([plan.operator.centred(v, 2)])[0] for v in plan.measured(clip)])
        for clip in (one, other)
    ]
    moved = (values[0] - values[1]) / float(plan.grid)
    clipped_side_by_side = 100 * math.sqrt(5) / float(plan.grid)
    assert clipped_side_by_side**2 < moved @ moved <= plan.event.sensitivity_squared


class TestTime:
    @given(
        rate=st.fractions(Fraction(1, 2), 120, max_denominator=1001), seconds=st.fractions(0, 4, max_denominator=1000)
    )
    @settings(deadline=None, max_examples=30)
    def test_at_a_constant_rate_it_is_the_floor_plus_one(self, rate, seconds):
        times = [number / rate for number in range(600)]
        assert most_frames(times, seconds) == min(600, math.floor(seconds * rate) + 1)

    def test_at_a_variable_rate_the_densest_stretch_counts(self):
        times = [Fraction(t) for t in (0, 2, 4, 5, Fraction(11, 2), 6, 9, 12)]
        assert most_frames(times, Fraction(1)) == 3
        assert most_frames(times, Fraction(2)) == 4
        assert most_frames(times, Fraction(0)) == 1
        assert most_frames(times, Fraction(100)) == 8
        box = Neighbours.of_box(2, 3, 4)
        assert box.timed(times) is box
        assert Neighbours.of_box(2, 3, seconds=Fraction(2)).timed(times).frames == 4

    @pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".avi"])
    def test_a_videos_own_time_stamps_are_read(self, tmp_path, suffix):
        codec = "mpeg4" if suffix == ".avi" else "libx264"
        info = probe(write(tmp_path / f"a{suffix}", frames=9, rate=6, codec=codec))
        times = frame_times(info)
        assert [time - times[0] for time in times] == pytest.approx([n / 6 for n in range(9)], abs=2e-3)
        plan = bind_video(plain_projection(8, "1e-5", "box:9x9/seconds:0.5"), info)
        assert plan.config.neighbours.resolved(plan.shape).frames == 4  # floor(0.5 * 6) + 1

    def test_a_variable_rate(self, tmp_path):
        stamps = [0, 1, 2, 10, 20, 30, 40, 50, 60]
        info = probe(write(tmp_path / "a.mkv", frames=9, rate=30, stamps=stamps))
        assert len(frame_times(info)) == 9
        plan = bind_video(plain_cells(8, "box:9x9/seconds:1/3"), info)
        assert plan.events[0].steps == 4
        assert "1/3 seconds in one piece are at most 4 frames" in release_statement(plan, seeded=False).paragraph()


class TestWords:
    @pytest.mark.parametrize(
        "text",
        [
            "box:",
            "box:9",
            "box:9x9/frames:x",
            "box:9x9/frames:1.5",
            "box:-1x2/frames:3",
            "box:9x9/days:2",
            "box:9x9/seconds:",
        ],
    )
    def test_what_is_no_box(self, text):
        with refused("box-malformed"):
            plain_cells(1, text)

    @pytest.mark.parametrize(
        ("text", "code"),
        [
            ("box:9x9", "box-without-duration"),
            ("box:0x9/frames:1", "box-empty"),
            ("box:9x9/frames:0", "box-empty"),
            ("box:9x9/seconds:-1", "seconds-negative"),
        ],
    )
    def test_boxes_out_of_range(self, text, code):
        with refused(code):
            plain_projection(1, "1e-5", text)

    def test_a_picture_has_pixels_for_it_and_arrays_and_papers_none(self):
        grey = np.zeros((24, 24), np.uint8)
        picture = dpose.pixelize(grey, 1, "box:9x30/seconds:2", 8, public=True).statement
        assert picture.neighbours == Neighbours.of_pixels(9 * 24, "picture")
        assert any("9 x 30 has were asked for" in line for line in picture.caveats)
        with refused("frames-without-times"):
            dpose.pixelize(np.zeros((3, 24, 24, 1), np.uint8), 1, "box:9x9/seconds:1", 8, public=True)
        with refused("paper-with-box"):
            plain_cells(1, "box:9x9/frames:1", paper=1)
        with refused("m-not-of-box"):
            Pixelization(Fraction(1), neighbours=replace(Neighbours.of_box(2, 2, 1), m=16))

    def test_what_is_larger_than_the_clip_is_cut_to_it_and_said(self):
        plan = bind(plain_cells(1, "box:200x9/frames:50", 8), Shape.of(24, 32, 3, frames=5))
        statement = release_statement(plan, seeded=False)
        assert statement.neighbours == near(32, 9, 5)
        told = " ".join(statement.caveats)
        assert "200 x 9, is cut to the frame's size" in told
        assert "all 5 frames" in told
        assert "shadows" in told
        assert not bind(plain_cells(1, "box:9x9/frames:5", 8), plan.shape).config.neighbours.notes(plan.shape)

    @pytest.mark.parametrize("operator", ["pixelization", "block", "low-pass"])
    def test_the_statement_says_it_and_is_checked(self, operator):
        shape = Shape.of(24, 32, 3, frames=6)
        if operator == "pixelization":
            config = plain_cells(2, "box:9x5/frames:3", 8)
        else:
            config = plain_projection(2, "1e-5", "box:9x5/frames:3", operator)
        statement = release_statement(bind(config, shape), seeded=False)
        text = " ".join(statement.paragraph().split())
        assert "protects whatever one box of 9 x 5 pixels shows, which may lie anywhere in each frame, in any 3" in text
        again = PrivacyStatement.from_json(statement.to_json())
        assert again == statement
        assert json.loads(statement.to_json())["neighbours"] == {
            "relation": "replace",
            "m": 135,
            "scope": "box",
            "box": [9, 5],
            "frames": 3,
        }
        compare_numbers(again, expected(again, recorded_plan(again.release, "a")), "a")
        for other in (near(10, 5, 3), near(9, 5, 4), near(9, 5, 2), near(33, 5, 3), near(9, 5, 7)):
            changed = replace(again, neighbours=other)
            for forged in (changed, recorded(changed, {"config.neighbours": other.stated().to_dict()})):
                with refused(("record-sensitivity-smaller", "record-value-differs")):
                    compare_numbers(forged, expected(forged, recorded_plan(forged.release, "a")), "a")
        assert any("box of 9 x 5" in line for line in explain_release(bind(config, shape)))

    @pytest.mark.parametrize(
        "fields",
        [
            {"box": [9, 5]},
            {"frames": 3},
            {"box": [9], "frames": 3},
            {"box": [9, "5"], "frames": 3},
            {"box": [9, 5], "frames": 4},
            {"box": [9, -5], "frames": -3},
            {"box": [9, 5], "frames": True},
            {"box": 45, "frames": 3},
        ],
    )
    def test_a_box_that_does_not_add_up_is_refused(self, fields):
        config = plain_cells(2, "box:9x5/frames:3", 8)
        values = release_statement(bind(config, Shape.of(24, 32, 3, frames=6)), seeded=False).to_dict()
        values["neighbours"] = {"relation": "replace", "m": 135, "scope": "box"} | fields
        with pytest.raises(DposeError):
            PrivacyStatement.from_json(json.dumps(values))
        values["neighbours"] = {"relation": "replace", "m": 16, "scope": "clip"} | fields
        with refused(("box-not-allowed", "field-wrong", "field-names-wrong", "field-not-list")):
            PrivacyStatement.from_json(json.dumps(values))

    def test_neighbours_are_taken_as_values(self):
        config = plain_cells(2, near(9, 5, 3), 8)
        assert config == plain_cells(2, "box:9x5/frames:3", 8)
        with refused("box-not-allowed"):
            Neighbours(Unit.PIXEL, Relation.REPLACE, 16, "clip", (4, 4), 1)


class TestAccount:
    @pytest.mark.parametrize("delta", [0, 1e-5])
    def test_it_is_charged_for_all_its_pixels_wherever_they_lie(self, delta):
        shape = Shape.of(24, 32, 3, frames=6)
        plan = bind(plain_cells(2, "box:9x5/frames:3", 8, delta), shape)
        (charged,) = charged_events(plan, seeded=False)
        assert claimed_pixels(plan) == charged.pixels == 135
        if delta:
            assert charged.rho() >= sum(e.steps * e.sensitivity_squared / (2 * e.variance) for e in plan.events)
        else:
            assert charged.pure() == 2

    def test_two_releases_of_one_clip_add_up(self):
        clip = np.random.default_rng(0).integers(0, 256, (4, 24, 32, 3)).astype(np.uint8)
        dpose.pixelize(clip, 1, "box:9x5/frames:3", 8)
        second = dpose.pixelize(clip, 1, "box:9x5/frames:3", 8, again=True)
        assert second.statement.odometer["epsilon"] == "2.0"
        assert second.statement.odometer["pixels"] == "135"


def test_a_video_through_the_commands(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    write(tmp_path / "a.mp4")
    asked = ["--epsilon", "8", "--neighbours", "box:16x24/seconds:0.5"]
    for command in (["release-video", "a.mp4", "--delta", "1e-5"], ["pixelize", "a.mp4", "--block", "8"]):
        assert main([*command, *asked, "--explain"]) == 0
        assert "box of 16 x 24 pixels shows" in capsys.readouterr().out
        out = f"{command[0]}.mp4"
        assert main([*command, *asked, "--again", "--out", out]) == 0
        assert "in any 4 frames of the clip" in capsys.readouterr().out
        assert main(["statement", "show", out]) == 0
        told = capsys.readouterr().out
        assert "in any 4 frames of the clip" in told
        assert "0.5 seconds in one piece are at most 4 frames" in told
        assert main(["verify", out]) == 0
        assert "for whatever one box of 16 x 24 pixels shows" in capsys.readouterr().out
        sidecar = Path(f"{out}.privacy.json")
        assert json.loads(sidecar.read_text())["neighbours"]["frames"] == 4
    assert main(["pixelize", "a.mp4", "--epsilon", "1", "--neighbours", "box:9x9", "--out", "x.mp4"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_where_noise_drowns_all_but_the_longest_waves_cells_are_wide():
    """One pixel's cells are as good to a linear guess; to whoever looks at them they are noise of 700 gray levels."""
    config = plain_projection(16, "1e-4", "box:40x100/frames:1", colour="ycc")
    shape = Shape(24, 120, 160, 3)
    taken, least = choose_grid(config, shape), min(choice.mse for choice in grid_choices(config, shape))
    assert taken.block > 4
    assert taken.mse <= 1.001 * least
