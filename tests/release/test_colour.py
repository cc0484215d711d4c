"""Luma and chroma: what neighbours change at most, by brute force; and what a release of them says of itself."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archives import npy, rebuilt
from clips import write as write_clip
from dpose.errors import DposeError
from dpose.privacy.neighbours import ONE_FRAME, Neighbours
from dpose.release import pixelization
from dpose.release.archive import pack_archive, restore_file, unpack
from dpose.release.choosing import LUMA, Channel, best_choice, curve_lines, grid_choices
from dpose.release.colour import Colour, as_rgb
from dpose.release.colour_planes import make_planes
from dpose.release.embed import read_sidecar, stamped_picture
from dpose.release.explain import explain_release
from dpose.release.grid import Shape
from dpose.release.linear import LinearPlan
from dpose.release.pixelization import PixelizationPlan, cell_choices, choose_cells
from dpose.release.record import recorded_plan
from dpose.release.verify import verify_release
from plain_configs import plain_cells, plain_projection
from public_doors import pixelize, release_video
from records import recorded
from refusals import refused
from tiers import rest_slow

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (45, 61, 3)).astype(np.uint8)
GREY = COLOUR[:, :, 0]
MASK = np.arange(61)[None, :].repeat(45, 0) < 30
CORNERS = [np.array(corner) for corner in itertools.product((-1, 0, 1), repeat=3)]
KINDS = [("ycc", False), ("ycc", True), ("grey", False), ("rgb", True)]


def near(m, scope="picture"):
    return Neighbours.of_pixels(m, scope)


def plan_for(shape, m, block, *, colour="ycc", delta=0, chroma=None, **more):
    chroma = (chroma or 1) if colour == "ycc" else None
    config = plain_cells(1, m, block, delta, colour=colour, chroma=chroma, **more)
    return PixelizationPlan.of(config, shape)


def sums_of(plan, picture, layers=None):
    """Everything that the first stage (or a given partition) sums, as one vector."""
    layers = layers or plan.layers
    parts = [layers.cells.apply(picture) @ np.array(plan.colour.luma).T]
    if plan.colour.chroma:
        parts.append(layers.coarse.apply(picture) @ np.array(plan.colour.chroma).T)
    return np.concatenate([part.reshape(-1) for part in parts])


class TestOnePixel:
    @pytest.mark.parametrize(("name", "gaussian"), KINDS)
    def test_real_pixels_never_change_more_than_the_corners(self, name, gaussian):
        colour = Colour.of(name, 3, gaussian=gaussian)
        rows = np.array(colour.rows)
        steps = np.array([0, 1, 64, 127, 200, 254, 255])
        pixels = np.array(list(itertools.product(steps, repeat=3)))
        moved = (pixels[:, None] - pixels[None]).reshape(-1, 3) @ rows.T
        assert np.abs(moved).sum(1).max() == 255 * colour.change_l1
        assert (moved**2).sum(1).max() == 255**2 * colour.change_squared[0]
        chroma = moved[:, len(colour.luma) :]
        assert (chroma**2).sum(1).max(initial=0) == 255**2 * colour.change_squared[1]

    def test_by_hand(self):
        """Corners: white for black moves Y4 by 4; magenta for green Cg2 by 4; yellow for blue all three by 2."""
        assert Colour.of("ycc", 3, gaussian=False).change_l1 == max(3 * 4, 3 * 2 + 2 * 2 + 2, 4)
        squares = max((5 * 4) ** 2, (5 * 2) ** 2 + (7 * 2) ** 2 + (5 * 2) ** 2, (5 * 4) ** 2)
        chroma = max((7 * 2) ** 2 + (5 * 2) ** 2, (5 * 4) ** 2)
        assert Colour.of("ycc", 3, gaussian=True).change_squared == (squares, chroma)
        assert Colour.of("grey", 3, gaussian=False).change_l1 == 4
        assert Colour.of("rgb", 3, gaussian=False).change_l1 == 3

    def test_chroma_costs_nothing(self):
        """Luma has the noise that a grey picture has: its scale over what it is multiplied by."""
        grey, ycc = (plan_for(Shape.of(32, 32, 3), 16, 8, colour=name) for name in ("grey", "ycc"))
        assert ycc.events[0].scale / ycc.colour.scales[0] == grey.events[0].scale / grey.colour.scales[0]
        alone = plan_for(Shape.of(32, 32, 1), 16, 8, colour="rgb")
        assert grey.events[0].scale / 4 == alone.events[0].scale

    def test_words_and_back(self):
        for name, gaussian in KINDS[:3]:
            colour = Colour.of(name, 3, gaussian=gaussian)
            assert Colour.recorded(name, colour.text) == colour
        for name, text in (
            ("ycc", "1 x (R + 2G + B)"),
            ("rgb", ""),
            ("ycc", Colour("ycc", 3, (0, 1, 1)).text),
            ("grey", ""),
        ):
            with pytest.raises(ValueError, match="no combinations"):
                Colour.recorded(name, text)

    def test_colours_come_back(self):
        pixels = COLOUR.astype(np.float32)
        rows = np.array(Colour("ycc", 3, (1, 1, 1)).rows)
        planes = pixels @ rows.T / np.array([4, 1, 2])
        assert as_rgb(planes.astype(np.float32)) == pytest.approx(pixels, abs=1e-3)


class TestSmallPictures:
    """Every place of m pixels and every corner of what they change by, on pictures with ragged edges."""

    @pytest.mark.parametrize("delta", [0, 1e-5])
    @pytest.mark.parametrize(("chroma", "masked"), [(1, False), (2, False), (2, True)])
    @pytest.mark.parametrize("m", [1, 2])
    def test_no_neighbour_changes_more(self, delta, chroma, masked, m):
        height, width, block = 3, 3, 2
        plan = plan_for(Shape.of(height, width, 3), m, block, delta=delta, chroma=chroma)
        layers = plan.layers
        if masked:
            layers = replace(layers, subdivide=2, mask=np.eye(2, dtype=bool))
        rows = [np.array(r) for r in plan.colour.rows]
        fine, coarse = owners(layers.cells, height, width), owners(layers.coarse, height, width)
        l1 = l2 = 0
        for places in itertools.combinations_with_replacement(range(height * width), m):
            if len(set(places)) < m:
                continue
            for change in itertools.product(CORNERS, repeat=m):
                moved = {}
                for place, d in zip(places, change, strict=True):
                    for number, row in enumerate(rows):
                        key = (number, (coarse if number else fine)[place])
                        moved[key] = moved.get(key, 0) + int(row @ d)
                l1 = max(l1, sum(map(abs, moved.values())))
                l2 = max(l2, sum(v * v for v in moved.values()))
        bound = plan.sensitivity(b"coarse", near(m), layers.cells)
        assert 255 * l1 == bound.l1
        assert 255**2 * l2 <= bound.l2_squared
        if not masked:
            assert 255**2 * l2 == bound.l2_squared  # m pixels fit into one cell: nothing is given away

    @settings(deadline=None, max_examples=60)
    @given(data=st.data())
    def test_what_is_really_summed(self, data):
        """Two pictures through the operators that a release uses, of any sizes, with masks and 16 bits."""
        height, width, block = (data.draw(st.integers(1, n)) for n in (9, 9, 4))
        block = min(block, height, width)
        deep, delta = data.draw(st.booleans()), data.draw(st.sampled_from([0, 1e-5]))
        peak = 65535 if deep else 255
        plan = plan_for(
            Shape.of(height, width, 3, peak),
            1,
            block,
            colour=data.draw(st.sampled_from(["ycc", "grey", "rgb"])),
            delta=delta,
            chroma=data.draw(st.sampled_from([1, 2, 4])),
        )
        m = data.draw(st.integers(1, height * width))
        rng = np.random.default_rng(data.draw(st.integers(0, 99)))
        one = rng.choice([0, peak], (height, width, 3)).astype(np.uint16 if deep else np.uint8)
        other, places = one.copy(), rng.permutation(height * width)[:m]
        other.reshape(-1, 3)[places] = peak - one.reshape(-1, 3)[places]
        moved = (sums_of(plan, one) - sums_of(plan, other)).astype(object)
        bound = plan.sensitivity(b"coarse", near(m))
        assert np.abs(moved).sum() <= bound.l1
        assert (moved**2).sum() <= bound.l2_squared

    def test_pixels_that_share_a_chroma_cell_alone(self):
        """Four yellow pixels in four of luma's cells and one of chroma's: their chroma adds up, and counts."""
        plan = plan_for(Shape.of(2, 2, 3), 4, 1, delta=1e-5, chroma=2)
        blue, yellow = np.zeros((2, 2, 3), np.uint8), np.full((2, 2, 3), 255, np.uint8)
        blue[..., 2], yellow[..., 2] = 255, 0
        moved = sums_of(plan, blue) - sums_of(plan, yellow)
        bound = plan.sensitivity(b"coarse", near(4)).l2_squared
        luma_alone = plan.colour.change_squared[0] * 4 * 255**2
        assert luma_alone < (moved**2).sum() <= bound


def owners(cells, height, width):
    """The cell of every pixel, by the operator itself."""
    one = replace(cells, channels=1)
    found = []
    for place in range(height * width):
        picture = np.zeros((height, width), np.uint8)
        picture.reshape(-1)[place] = 1
        found.append(int(one.apply(picture)[:, 0].argmax()))
    return found


class TestOperators:
    @pytest.mark.parametrize("name", ["block", "low-pass", "random"])
    @pytest.mark.parametrize("scope", ["clip", "frame", ONE_FRAME])
    @pytest.mark.parametrize("m", [1, 2, 5])
    def test_no_neighbouring_clip_changes_more(self, name, scope, m):
        shape = Shape(4, 6, 8, 3)
        for factor, groups in ((1, 4), (2, 2), (2, 3)):
            colour = Colour.of("ycc", 3, gaussian=True)
            operator = make_planes(name, shape, (4, 4, groups), colour, factor, "a")
            bound = float(operator.sensitivity(near(m, scope)).l2_squared)
            worst = 0.0
            rng = np.random.default_rng(m)
            for _ in range(60):
                moved = np.zeros((4, 6, 8, 3), np.int64)
                frames = {"clip": rng.integers(0, 4, m), "frame": range(4)}.get(scope, [1])
                change, alike = rng.choice([-255, 255], 3), rng.random() < 0.7
                spread = rng.random() < 0.5
                places = rng.permutation(48)[:m] if spread else np.array([0, 1, 8, 9, 2])[:m]
                for number, frame in enumerate(frames):
                    here = places[number : number + 1] if scope == "clip" else places
                    for place in here:
                        d = change if alike else rng.choice([-255, 255], 3)
                        moved[frame].reshape(-1, 3)[place] = d
                total, at = 0.0, 0
                for group in range(groups):
                    stop = (group + 1) * 4 // groups
                    part = moved[at:stop].sum(axis=0)
                    nothing = operator.apply(np.zeros_like(part), stop - at)
                    total += float(((operator.apply(part, stop - at) - nothing) ** 2).sum())
                    at = stop
                worst = max(worst, total)
            assert worst <= bound * (1 + 1e-9)
            assert worst > 0.2 * bound

    @pytest.mark.parametrize(("colour", "factor"), [("ycc", 2), ("grey", 1)])
    def test_planes_of_a_group(self, colour, factor):
        shape = Shape(2, 8, 12, 3)
        operator = make_planes("block", shape, (4, 6, 1), Colour.of(colour, 3, gaussian=True), factor)
        total = np.broadcast_to(np.array([200, 100, 40]) * 2, (8, 12, 3)).astype(np.int64)
        seen = operator.observed(operator.apply(total, 2), 2, 60.0)
        assert seen.colour == colour
        assert seen.even
        for plane, level, scale in zip(seen.planes, (110, 160, -20), operator.colour.scales, strict=False):
            assert plane.levels == pytest.approx(level)
            side = 2 if plane is seen.planes[0] else 2 * factor
            assert plane.deviation == pytest.approx(60 / (scale * side**2 * 2))
        other = make_planes("low-pass", shape, (4, 6, 1), Colour.of(colour, 3, gaussian=True), factor)
        assert other.observed(other.apply(total, 2), 2, 60.0) is None

    def test_transposed_is_transposed(self):
        shape = Shape(2, 4, 6, 3)
        operator = make_planes("block", shape, (2, 2, 1), Colour.of("ycc", 3, gaussian=True), 2)
        x, y = RNG.integers(0, 9, (4, 6, 3)), RNG.integers(0, 9, operator.outputs)
        assert (operator.apply(x, 2) * y).sum() == (x * operator.adjoint(y, 2)).sum()

    @pytest.mark.parametrize("name", ["block", "low-pass", "random"])
    @pytest.mark.parametrize("colour", ["ycc", "grey"])
    def test_a_smooth_clip_comes_back(self, name, colour):
        shape = Shape(2, 8, 8, 3)
        frame = np.broadcast_to(np.array([200, 100, 40]), (8, 8, 3)).astype(np.int64)
        operator = make_planes(name, shape, (8, 8, 2), Colour.of(colour, 3, gaussian=True), 1, "a")
        shown = operator.picture(operator.level(operator.apply(frame, 1), 1))
        wanted = frame if colour == "ycc" else np.full((8, 8, 3), (200 + 2 * 100 + 40) / 4)
        assert shown == pytest.approx(wanted, abs=0.01)

    def test_a_grid_that_does_not_divide(self):
        with pytest.raises(ValueError, match="as coarse"):
            make_planes("block", Shape(1, 9, 9, 3), (3, 4, 1), Colour.of("ycc", 3, gaussian=True), 2)

    def test_no_bound_is_made_up_for_another_operator(self):
        """Nor for one plane of another kind among known ones."""
        shape, colour = Shape(1, 8, 8, 3), Colour.of("ycc", 3, gaussian=True)
        known = {name: make_planes(name, shape, (4, 4, 1), colour, 1) for name in ("block", "low-pass")}
        for operator in known.values():
            luma, *chroma = operator.planes
            for planes in ((object(), *chroma), (luma, chroma[0], object())):
                other = replace(operator, planes=planes)
                for bound in (other.sensitivity, other.box_sensitivity):
                    with pytest.raises(ValueError, match="no bound for luma and chroma"):
                        bound(near(1, "clip"))


class TestReleases:
    @pytest.mark.parametrize("colour", ["ycc", "grey", "rgb"])
    @pytest.mark.parametrize("delta", [0, 1e-5])
    @pytest.mark.parametrize("regions", rest_slow([None, "private", MASK], 0, 2))
    @pytest.mark.parametrize("deep", [False, True])
    def test_pictures_archives_and_statements(self, tmp_path, colour, delta, regions, deep):
        picture = COLOUR.astype(np.uint16) * 257 if deep else COLOUR
        more = {} if regions is None else {"subdivide": 2, "regions": regions}
        made = pixelize(picture, 10**4, 2, 4, colour=colour, delta=delta, chroma=None, restore="none", **more)
        (frame,) = made.frames
        assert made.picture.shape == picture.shape
        assert made.picture.dtype == picture.dtype
        observed = frame.observed()
        assert observed.colour == colour
        for name, data in {
            "a.png": stamped_picture(frame, ".png", made.statement),
            "a.npz": pack_archive(frame, made.statement),
        }.items():
            (tmp_path / name).write_bytes(data)
            _, line = verify_release(tmp_path / name)
            assert "is claimed" in line
        assert "not checked" not in line
        released, _ = unpack((tmp_path / "a.npz").read_bytes(), "a")
        assert np.array_equal(released.picture(), made.picture)
        for plane, other in zip(released.observed().planes, observed.planes, strict=True):
            assert np.array_equal(plane.levels, other.levels)
            assert np.array_equal(plane.deviation, other.deviation)
        # hardly any noise: the mean colour of a block, or its luma
        top = picture[:4, 40:44].reshape(-1, 3).mean(0)
        wanted = top if colour != "grey" else np.full(3, (top @ [1, 2, 1]) / 4)
        if frame.layers.factor == 1 and regions is None:
            assert made.picture[0, 40] == pytest.approx(wanted, abs=2 * (257 if deep else 1))

    def test_planes_are_what_was_summed(self):
        made = pixelize(COLOUR, 10**5, 1, 4, colour="ycc", chroma=2)
        y, co, cg = made.frames[0].observed().planes
        assert (y.block, co.block, cg.block) == (4, 8, 8)
        block = COLOUR[:8, :8].reshape(-1, 3).astype(float).mean(0)
        assert co.levels[0, 0] == pytest.approx(block[0] - block[2], abs=0.1)
        assert cg.levels[0, 0] == pytest.approx((2 * block[1] - block[0] - block[2]) / 2, abs=0.1)
        small = COLOUR[:4, :4].reshape(-1, 3).astype(float).mean(0)
        assert y.levels[0, 0] == pytest.approx(small @ [1, 2, 1] / 4, abs=0.1)
        event = made.statement.events[0]
        assert y.deviation[0, 0] == pytest.approx(2**0.5 * float(event.scale) / (16 * 12), rel=1e-5)
        assert cg.deviation[0, 0] == pytest.approx(2**0.5 * float(event.scale) / (64 * 2), rel=1e-5)
        assert y.deviation[-1, -1] > y.deviation[0, 0]  # fewer pixels

    def test_the_noise_is_what_planes_say(self):
        flat = np.full((64, 64, 3), 128, np.uint8)
        made = pixelize(flat, 1, 1, 2, colour="ycc", chroma=1, seed=0)
        for plane, level in zip(made.frames[0].observed().planes, (128, 0, 0), strict=True):
            scores = (plane.levels - level) / plane.deviation
            assert abs(scores.mean()) < 0.12
            assert 0.9 < scores.std() < 1.1

    @pytest.mark.parametrize("neighbours", ["pixels:4", "pixels:4/frame"])
    def test_clips(self, neighbours):
        clip = np.stack([COLOUR] * 3)
        made = pixelize(clip, 5, neighbours, 4, colour="ycc")
        assert made.picture.shape == clip.shape
        assert len(made.frames) == 3
        plan = recorded_plan(made.statement.release, "a")
        assert plan.events == made.statement.events
        assert plan.events[0].steps == (3 if "frame" in neighbours else 1)

    def test_tensors_are_summed_alike(self):
        torch = pytest.importorskip("torch")
        one = pixelize(COLOUR, 5, 4, 4, colour="ycc", chroma=2, seed=3)
        other = pixelize(torch.from_numpy(COLOUR), 5, 4, 4, colour="ycc", chroma=2, seed=3)
        assert np.array_equal(other.picture.numpy(), one.picture)

    @pytest.mark.parametrize("more", [{}, {"operator": "low-pass"}, {"colour": "grey"}, {"colour": "rgb"}])
    def test_videos(self, tmp_path, more):
        target = tmp_path / "b.mp4"
        release_video(write_clip(tmp_path / "a.mp4"), target, 8, "1e-5", 4, **more)
        statement, _ = read_sidecar(target)
        assert statement.release["config"]["colour"] == more.get("colour", "ycc")
        _, line = verify_release(target)
        assert "is claimed" in line

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("colour", "grey"),
            ("colour", "rgb"),
            ("colour", "secret"),
            ("colour", None),
            ("chroma", 3),
            ("chroma", None),
            ("chosen", ["by looking at the picture"]),
            ("chosen", ["chroma", "block"]),
        ],
    )
    def test_prettier_records_are_refused(self, tmp_path, name, value):
        made = pixelize(COLOUR, 5, 4, "auto", colour="ycc", delta=0)
        changed = recorded(made.statement, {f"config.{name}": value})
        (tmp_path / "a.png").write_bytes(stamped_picture(made.frames[0], ".png", changed))
        codes = ("record-incomplete", "record-sensitivity-smaller", "record-block-not-chosen")
        with refused(codes, where="a.png"):
            verify_release(tmp_path / "a.png")

    @pytest.mark.parametrize("times", [(4, 2, 1), (3, 3, 1), (1, 5, 5)])
    def test_an_archive_of_other_multiples_is_refused(self, tmp_path, times):
        """The multiples are those of the configured colour; a configuration does not say any."""
        made = pixelize(COLOUR, 5, 4, 8, colour="ycc", chroma=2)
        (frame,) = made.frames
        other = replace(frame, layers=replace(frame.layers, colour=Colour("ycc", 3, times)))
        (tmp_path / "a.npz").write_bytes(pack_archive(other, made.statement))
        with refused("pixels-differ-from-statement", where="combinations"):
            verify_release(tmp_path / "a.npz")

    def test_an_archive_of_other_layers(self, tmp_path):
        made = pixelize(COLOUR, 5, 4, 8, colour="ycc", chroma=2)
        data = pack_archive(made.frames[0], made.statement)
        chroma = made.frames[0].sums["chroma"]
        for more in (chroma[:-1], chroma[:, :1], chroma.astype(float)):
            with refused("archive-damaged"):
                unpack(rebuilt(data, chroma=npy(more)), "a")


class TestWhatIsAsked:
    def test_grey_pictures_stay_grey(self):
        assert pixelize(GREY, 2, 4, 8).statement.release["config"]["colour"] == "grey"
        with refused("chroma-of-grey"):
            pixelize(GREY, 2, 4, 8, colour="ycc")
        assert pixelize(GREY, 2, 4, 8, chroma=2).picture.shape == GREY.shape

    @pytest.mark.parametrize(
        "more",
        [
            {"colour": "hsv"},
            {"chroma": 3},
            {"chroma": True},
            {"colour": "rgb", "chroma": 2},
            {"paper": 1, "colour": "ycc"},
            {"block": "large"},
            {"block": 0},
        ],
    )
    def test_what_is_refused(self, more):
        with pytest.raises(DposeError):
            pixelize(COLOUR, **({"epsilon": 2, "neighbours": 4, "block": 8} | more))

    def test_what_is_clipped_has_three_values(self):
        config = plain_projection(8, "1e-5", colour=None, clip_norm=100)
        assert config.colour == "rgb"
        with refused("colour-unsupported"):
            plain_projection(8, "1e-5", colour="ycc", clip_norm=100)
        grey = plain_projection(8, "1e-5", colour="grey", clip_norm=100)
        assert LinearPlan.of(grey, Shape(4, 8, 8, 1)).clipping
        with refused("colour-unsupported"):
            LinearPlan.of(grey, Shape(4, 8, 8, 3))

    @pytest.mark.parametrize("shape", [(1, 40), (40, 1), (1, 1), (5, 3)])
    def test_tiny_pictures(self, shape):
        picture = RNG.integers(0, 256, (*shape, 3)).astype(np.uint8)
        assert pixelize(picture, 2, 1).picture.shape == picture.shape


class TestChoice:
    def test_it_follows_from_public_numbers(self):
        """Two pictures of one size have nothing in common, and the same cells."""
        dark, busy = np.zeros((64, 64, 3), np.uint8), RNG.integers(0, 256, (64, 64, 3)).astype(np.uint8)
        one, other = (pixelize(picture, 2, 4).statement.release for picture in (dark, busy))
        assert one == other
        assert one["config"]["chosen"] == ["block", "chroma"]
        assert one["config"]["restoration"]["method"] == "learned"
        assert pixelize(dark, 2, 4, 8, colour="rgb").statement.release["config"]["chosen"] == []

    @pytest.mark.parametrize("more", [{}, {"delta": 1e-5}, {"colour": "grey"}, {"restore": "none"}])
    @pytest.mark.parametrize("block", ["1", "5", "8", "16", "40"])
    def test_what_is_said_to_be_chosen_is_chosen_again(self, tmp_path, block, more):
        made = pixelize(COLOUR, 2, 4, int(block), **{"colour": "ycc", **more})
        honest = pixelize(COLOUR, 2, 4, **{"colour": "ycc", **more})
        chosen = honest.statement.release["config"]["chosen"]
        if int(block) == honest.statement.release["config"]["block"]:
            made = honest
        statement = recorded(made.statement, {"config.chosen": chosen})
        path = tmp_path / "a.png"
        path.write_bytes(stamped_picture(made.frames[0], ".png", statement))
        if made is honest:
            verify_release(path)
            return
        with refused("record-block-not-chosen", where=f"block {block}"):
            verify_release(path)

    def test_what_was_fixed_is_not_said_to_be_chosen(self, tmp_path):
        made = pixelize(COLOUR, 2, 4, 16, colour="ycc")
        assert made.statement.release["config"]["chosen"] == ["chroma"]
        made.save(tmp_path / "a.png")
        verify_release(tmp_path / "a.png")
        boxed = pixelize(COLOUR, 2, "box:9x9/frames:1", subdivide=2, regions="private")
        boxed.save(tmp_path / "b.png")
        verify_release(tmp_path / "b.png")

    def test_a_choice_that_is_as_good_but_for_last_digits_is_one(self, monkeypatch):
        """Just below the factor at which a wider block is as good, and just above it, either is the chosen one."""
        shape, asked = Shape.of(48, 64, 3), plain_cells(2, 4, "auto", colour="ycc")
        fine = choose_cells(asked, shape)
        choices = cell_choices(asked, shape)
        wider = [choice.painted for choice in choices if choice.block > fine.side]
        factor = min(wider) / min(choice.painted for choice in choices)
        below, above = (choose_cells(asked, shape, factor * (1 + by)) for by in (-1e-12, 1e-12))
        assert below.side < above.side
        for by, found in ((-1e-12, [True, True]), (1e-12, [True, True]), (1e-6, [False, True])):
            monkeypatch.setattr(pixelization, "AS_GOOD", factor * (1 + by))
            assert [pixelization.is_chosen(one, shape) for one in (below, above)] == found

    def test_a_picture_restored_another_way_keeps_its_cells(self, tmp_path):
        made = pixelize(COLOUR, 2, 4)
        made.save(tmp_path / "a.npz")
        for method in ("tv", "none", "learned"):
            restore_file(tmp_path / "a.npz", tmp_path / f"{method}.png", method)
            verify_release(tmp_path / f"{method}.png")

    def test_more_budget_gives_smaller_blocks(self):
        shape = Shape.of(480, 640, 3)
        for delta in (0, 1e-5):
            sides = [
                choose_cells(plain_cells(epsilon, 16, "auto", delta, colour=None), shape).side
                for epsilon in ("1/2", 1, 2, 5, 8, 100)
            ]
            assert sides == sorted(sides, reverse=True)
            assert sides[0] > sides[-1]
        grey = choose_cells(plain_cells(2, 16, "auto", colour=None), Shape.of(480, 640, 1))
        assert (grey.colour, grey.chroma) == ("grey", None)

    def test_it_divides_as_asked(self):
        made = pixelize(COLOUR, 2, 4, subdivide=3, regions="private")
        assert made.statement.release["config"]["block"] % 3 == 0
        with refused("subdivide-without-block", where="into 64"):
            pixelize(COLOUR, 2, 4, subdivide=64, regions="private")

    def test_an_error_is_never_less_than_what_is_left_out(self):
        for block in (1, 4, 16):
            exact = Channel(LUMA, block, 0.0)
            noisy = Channel(LUMA, block, 20.0)
            assert exact.mse(256) <= exact.mse(256, restored=False) + 1e-6
            assert exact.mse(256) < noisy.mse(256) < noisy.mse(256, restored=False)
        assert Channel(LUMA, 1, 0.0).mse(256) == pytest.approx(0, abs=2)
        everything = Channel(LUMA, 1, 10.0**6).mse(256)
        assert everything == pytest.approx(Channel(LUMA, 64, 10.0**6).mse(256), rel=0.01)

    def test_the_prior_predicts_its_own_pictures(self):
        """Pictures drawn from the power law and painted: the error is the expected one."""
        side, block, deviation = 128, 4, 12.0
        rng = np.random.default_rng(0)
        lengths = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.fftfreq(side)[None, :])
        power = LUMA[0][0] * np.maximum(lengths, 1 / (2 * side)) ** -LUMA[0][1]
        errors = []
        for _ in range(8):
            picture = np.fft.ifft2(np.fft.fft2(rng.normal(0, 1, (side, side))) * np.sqrt(power)).real
            means = picture.reshape(side // block, block, -1, block).mean((1, 3))
            noisy = means + rng.normal(0, deviation, means.shape)
            errors.append(np.mean((noisy.repeat(block, 0).repeat(block, 1) - picture) ** 2))
        assert np.mean(errors) == pytest.approx(Channel(LUMA, block, deviation).mse(side, restored=False), rel=0.1)

    def test_clips_are_chosen_in_space_and_time(self):
        shape = Shape(64, 240, 320, 3)
        low, high = (LinearPlan.of(plain_projection(e, "1e-5", 16, colour="ycc"), shape).operator for e in (1, 1000))
        assert low.rows * low.groups < high.rows * high.groups
        fixed = LinearPlan.of(plain_projection(8, "1e-5", 16, colour="ycc", pool=4, k=600), shape)
        assert fixed.operator.groups == 16
        assert fixed.operator.outputs <= 600

    def test_the_curve_is_told(self):
        config = plain_cells(2, 16, "auto", colour=None)
        plan = PixelizationPlan.of(config, Shape.of(480, 640, 3))
        text = "\n".join(explain_release(plan))
        assert "expected PSNR" in text
        assert text.count("<- taken") == 1
        assert f"block {plan.config.side:>3}" in text.split(" <- taken")[0].splitlines()[-1]
        choices = cell_choices(config, plan.shape)
        assert best_choice(choices, restored=False).block >= best_choice(choices).block
        assert len(curve_lines(choices, (plan.config.side, plan.config.chroma, 1))) > 10
        video = LinearPlan.of(plain_projection(8, "1e-5", 16, colour="ycc"), Shape(64, 240, 320, 3))
        assert "<- taken" in "\n".join(explain_release(video))
        assert len(grid_choices(video.config, video.shape)) > 10
