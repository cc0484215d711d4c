"""The front door: shapes, types, budgets, words, and every mistake told in one line."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

import dpose
from dpose.errors import DposeError
from dpose.privacy.discrete import discrete_gaussian, discrete_laplace
from dpose.privacy.events import Gaussian, Laplace
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.privacy.renyi import zcdp_epsilon
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.release import api, pixelization
from dpose.release.colour import Colour
from dpose.release.grid import Shape
from dpose.release.mechanism import GIVEN, NoiseStage
from dpose.release.operators import Sensitivity
from dpose.release.partition import BlockSums
from dpose.release.pixelization import PixelizationPlan
from dpose.release.plans import bind
from dpose.release.regions import PrivateRegions, PublicRegions, onnx_segmenter, sobel_energy
from dpose.release.released import Layers, ReleasedSums
from plain_configs import plain_cells
from public_doors import pixelize
from refusals import refused

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (37, 50)).astype(np.uint8)
COLOUR = RNG.integers(0, 256, (37, 50, 3)).astype(np.uint8)
HALF = np.arange(50)[None, :].repeat(37, 0) < 25


@pytest.mark.parametrize(
    "picture", [GREY, COLOUR, GREY.astype(np.uint16) * 257, COLOUR[:, :, :1], np.stack([COLOUR, COLOUR])]
)
@pytest.mark.parametrize("tensor", [False, True])
def test_shape_type_and_device_stay(picture, tensor):
    given = torch.from_numpy(picture) if tensor else picture
    out = pixelize(given, 2, "pixels:4", 8).picture
    assert type(out) is type(given)
    assert tuple(out.shape) == picture.shape
    assert out.dtype == given.dtype


@pytest.mark.parametrize("regions", [None, "private", HALF])
def test_tensors_and_arrays_have_the_same_law(regions):
    more = {} if regions is None else {"subdivide": 4, "regions": regions}
    for picture in (GREY, COLOUR, GREY.astype(np.uint16)):
        one = pixelize(picture, 2, 4, 8, seed=5, **more)
        other = pixelize(torch.from_numpy(picture), 2, 4, 8, seed=5, **more)
        assert np.array_equal(one.picture, other.picture.numpy())
        assert one.statement == other.statement


def test_blocks_are_flat_and_averages_are_near_the_truth():
    out = pixelize(GREY, 1000, 1, 8, restore="none").picture
    for y in range(0, 37, 8):
        for x in range(0, 50, 8):
            cell, truth = out[y : y + 8, x : x + 8], GREY[y : y + 8, x : x + 8]
            assert len(np.unique(cell)) == 1
            # scale 0.255 on a sum of at least 10 pixels: seldom more than half a level
            assert abs(int(cell[0, 0]) - truth.mean()) < 2


def test_public_regions_are_finer_where_the_mask_says():
    out = pixelize(GREY, 1000, 1, 8, subdivide=4, regions=HALF, restore="none").picture
    assert len(np.unique(out[:8, 32:40])) == 1
    assert len(np.unique(out[:8, :8])) > 4


def test_private_regions_are_finer_where_the_release_has_edges():
    picture = np.zeros((64, 64), np.uint8)
    picture[24:40, 24:40] = 255
    private = PrivateRegions(threshold=20)
    (frame,) = pixelize(picture, 500, 1, 8, subdivide=4, regions=private).frames
    assert frame.cells.mask[2:6, 2:6].any()
    assert not frame.cells.mask[0].any()


def test_parts_of_private_regions_lie_about_their_own_block():
    """With next to no noise every part has its own mean, and none another block's."""
    slope = np.arange(0, 250, 5, dtype=np.uint8)[None].repeat(37, 0)
    private = PrivateRegions(quantile=0.0)
    (frame,) = pixelize(slope, 10**5, 1, 8, subdivide=2, regions=private, restore="none").frames
    assert frame.cells.mask.sum() > 20
    means = BlockSums(37, 50, 4).apply(slope) / BlockSums(37, 50, 4).areas[:, None]
    wrong = np.abs(frame.picture()[::4, ::4].reshape(-1) - means.reshape(-1))
    assert wrong[frame.cells._complex].max() < 3


@pytest.mark.parametrize(
    ("wanted", "sigma"),
    [(1, 1), (2, 2), (15, 4), (16, 4), (16 + Fraction(1, 99), 5), (17, 5), (18, 5), (25, 5), (2**96, 2**48)],
)
def test_a_standard_deviation_is_the_smallest_whole_number_that_is_enough(monkeypatch, wanted, sigma):
    monkeypatch.setattr(pixelization, "zcdp_budget", lambda epsilon, delta: 0.5)
    bound = Sensitivity(Fraction(7), Fraction(3))
    event = pixelization._event(plain_cells(2, 4, 8, "1e-5"), bound, Fraction(3 * 2) / wanted, 2)
    assert event == Gaussian(Fraction(sigma**2), Fraction(3), 2)


def test_more_noise_than_sums_can_hold_is_refused(monkeypatch):
    monkeypatch.setattr(pixelization, "zcdp_budget", lambda epsilon, delta: 0.5)
    with refused("epsilon-too-small") as caught:
        pixelization._event(plain_cells(2, 4, 8, "1e-5"), Sensitivity(Fraction(1), Fraction(2**96 + 1)), Fraction(1), 1)
    assert "larger epsilon" in caught.value.fix


def test_levels_are_rounded_and_cut_off_at_black_and_white():
    sums = np.array([[-9], [-1], [0], [1], [2], [3], [509], [600]])
    cells = BlockSums(1, 16, 2)
    assert cells.areas.tolist() == [2] * 8
    layers = Layers(cells, Colour.of("rgb", 1, gaussian=False))
    levels = ReleasedSums(layers, {"luma": sums}, (1.0,)).values
    assert levels.reshape(-1).tolist() == [0, 0, 0, 1, 1, 2, 255, 255]


def test_fresh_noise_each_time_and_the_same_with_a_seed():
    assert not np.array_equal(pixelize(GREY, 1, 4, 8).picture, pixelize(GREY, 1, 4, 8).picture)
    one, other = pixelize(GREY, 1, 4, 8, seed=1), pixelize(GREY, 1, 4, 8, seed=1)
    assert np.array_equal(one.picture, other.picture)
    assert one.statement.kind is Kind.SEEDED
    assert one.statement.paragraph().startswith("NOTHING IS GUARANTEED")
    assert pixelize(GREY, 1, 4, 8).statement.kind is Kind.PRIVATE


def test_every_frame_and_stage_has_a_stream_of_its_own(monkeypatch):
    asked, real = [], AesNoise.stream

    def stream(self, *given):
        asked.append(given)
        return real(self, *given)

    monkeypatch.setattr(AesNoise, "stream", stream)
    PixelizationPlan.of(plain_cells(2, 4, 8), Shape.of(37, 50, 1, 255)).release(GREY, AesNoise(Key.fresh()))
    assert asked == [(Purpose.RELEASE, 0, b"coarse")]
    clip = np.stack([GREY] * 3)[..., None]
    for regions, stages in ((None, [b"coarse"]), (HALF, [b"coarse"]), ("private", [b"coarse", b"fine"])):
        asked.clear()
        pixelize(clip, 2, 4, 8, subdivide=1 if regions is None else 2, regions=regions)
        assert asked == [(Purpose.RELEASE, frame, name) for frame in range(3) for name in stages]


LAPLACE = Laplace(Fraction(51, 2), Fraction(255))
GAUSSIAN = Gaussian(Fraction(900), Fraction(255**2))


@pytest.mark.parametrize(
    ("event", "draw", "parameter"),
    [(LAPLACE, discrete_laplace, LAPLACE.scale), (GAUSSIAN, discrete_gaussian, GAUSSIAN.variance)],
    ids=["laplace", "gaussian"],
)
def test_what_is_added_is_the_events_own_noise(event, draw, parameter):
    """Number for number what the sampler gives for the accounted parameter."""
    sums = np.arange(600, dtype=np.int64).reshape(200, 3)

    def stream():
        return AesNoise(Key.from_seed(1)).stream(Purpose.RELEASE)

    stage = NoiseStage(event, b"coarse")
    assert np.array_equal(stage.noised(sums, stream()), sums + draw(parameter, 600, stream()).reshape(200, 3))
    assert stage.variance == (2 * 25.5**2 if event is LAPLACE else 900)


def test_a_plan_is_of_the_mechanism_and_of_its_pictures_size():
    with pytest.raises(ValueError, match="plan of their own"):
        PixelizationPlan.of(plain_cells(2, 4, 8, paper=1), Shape.of(37, 50, 1, 255))
    with refused("block-larger-than-picture", where=("50 x", "x 37")):
        PixelizationPlan.of(plain_cells(2, 4, 38), Shape.of(37, 50, 1, 255))


def test_what_is_left_out_is_what_the_signature_says():
    """Sixteen pixels of a picture, luma and chroma over chosen blocks, Laplace noise on blocks of one size."""
    short = pixelize(COLOUR, 2, seed=1)
    long = pixelize(
        COLOUR, 2, "pixels:16", "auto", colour="ycc", delta=0, subdivide=1, regions=None, paper=None, seed=1
    )
    assert np.array_equal(short.picture, long.picture)
    assert short.statement == long.statement


def test_the_statement_tells_what_the_caller_and_the_key_add():
    """A key that somebody gave guarantees nothing, and what a caller knows of the picture is told."""
    given = pixelize(GREY, 1, 4, 8, source=AesNoise(Key(bytes(range(32)))), caveats=("it was scanned",))
    assert given.statement.kind is Kind.SEEDED
    assert {GIVEN, "it was scanned"} <= set(given.statement.caveats)
    paper = pixelize(GREY, 1, 4, 8, paper=1, caveats=("it was scanned",))
    assert "it was scanned" in paper.statement.caveats


def test_a_source_is_used_once():
    source = AesNoise(Key.fresh())
    pixelize(GREY, 1, 4, 8, source=source)
    with pytest.raises(RuntimeError, match="twice"):
        pixelize(GREY, 1, 4, 8, source=source)


class TestBudget:
    @pytest.mark.parametrize("epsilon", ["2", 2, 2.0, Fraction(2), Decimal("2.0"), "20e-1", "4/2"])
    def test_epsilon_is_exact_however_it_is_written(self, epsilon):
        plan = PixelizationPlan.of(plain_cells(epsilon, "pixels:16", 16), Shape.of(1080, 1920, 3, 255))
        assert plan.events == (Laplace(Fraction(255 * 3 * 16, 2), Fraction(255 * 3 * 16)),)

    def test_a_float_stands_for_its_decimal(self):
        assert plain_cells(0.1, 1, 1).epsilon == Fraction(1, 10)

    def test_two_stages_share_and_frames_divide(self):
        regions = PrivateRegions(share=Fraction(1, 4))
        plan = PixelizationPlan.of(
            plain_cells(2, "pixels:4/frame", 8, subdivide=2, regions=regions), Shape.of(37, 50, 1, 255, 10)
        )
        scales = [event.scale for event in plan.events]
        assert scales == [255 * 4 * 10 / Fraction(1, 2), 255 * 4 * 10 / Fraction(3, 2)]
        whole = PixelizationPlan.of(plain_cells(2, "pixels:4", 8), Shape.of(37, 50, 1, 255, 10))
        assert whole.events[0].scale == 255 * 4 / Fraction(2)

    def test_gaussian_noise_fills_the_largest_cells_first(self):
        plan = PixelizationPlan.of(plain_cells(2, 100, 8, "1e-5"), Shape.of(37, 50, 3, 255))
        (event,) = plan.events
        assert event.sensitivity_squared == 255**2 * 3 * (64**2 + 36**2)
        claimed = zcdp_epsilon(event.sensitivity_squared / (2 * event.variance), 1e-5)
        assert 1.999 < claimed <= 2

    def test_pixels_of_a_clip_may_fill_the_largest_cell_of_many_frames(self):
        """Of a picture of 9 x 9 one cell has 64 pixels and the others 8, 8 and 1; ten frames have ten of each."""
        frames = PixelizationPlan.of(plain_cells(2, 130, 8, "1e-5"), Shape.of(9, 9, 3, 255, 10))
        assert frames.events[0].sensitivity_squared == 255**2 * 3 * (64**2 + 64**2 + 2**2)
        each = PixelizationPlan.of(plain_cells(2, "pixels:75/frame", 8, "1e-5"), Shape.of(9, 9, 3, 255, 10))
        assert each.events[0].sensitivity_squared == 255**2 * 3 * (64**2 + 8**2 + 3**2)
        assert (frames.events[0].steps, each.events[0].steps) == (1, 10)
        (event,) = PixelizationPlan.of(plain_cells(2, 130, 8), Shape.of(9, 9, 3, 255, 10)).events
        assert event == Laplace(Fraction(255 * 3 * 130, 2), Fraction(255 * 3 * 130), 1)

    def test_parts_have_noise_for_parts(self):
        regions = PrivateRegions(share=Fraction(1, 4))
        setting = plain_cells(2, 20, 8, "1e-5", subdivide=2, regions=regions)
        coarse, fine = PixelizationPlan.of(setting, Shape.of(37, 50, 1, 255)).events
        assert coarse.sensitivity_squared == 255**2 * 20**2
        assert fine.sensitivity_squared == 255**2 * (16**2 + 4**2)
        rho = [event.sensitivity_squared / (2 * event.variance) for event in (coarse, fine)]
        assert float(rho[1] / rho[0]) == pytest.approx(3, rel=0.01)

    def test_the_largest_noise_there_is(self):
        """64-bit sums hold a scale of 2^48, and no larger one."""
        smallest = Fraction(255 * 4, 2**48)
        (event,) = PixelizationPlan.of(plain_cells(smallest, 4, 8), Shape.of(37, 50, 1, 255)).events
        assert event.scale == 2**48
        with refused("epsilon-too-small"):
            PixelizationPlan.of(plain_cells(smallest * Fraction(999, 1000), 4, 8), Shape.of(37, 50, 1, 255))

    @pytest.mark.parametrize("delta", [0, 1e-5])
    @pytest.mark.parametrize("neighbours", ["pixels:4", "pixels:4/frame"])
    @pytest.mark.parametrize("regions", [None, "private", HALF])
    def test_every_statement_adds_up_and_reads_back(self, delta, neighbours, regions):
        more = {} if regions is None else {"subdivide": 2, "regions": regions}
        clip = np.stack([GREY, GREY, GREY])[..., None]
        for picture in (GREY, clip):
            statement = pixelize(picture, "0.3", neighbours, 8, delta=delta, **more).statement
            assert 0.2999 < statement.verify() <= 0.3
            assert PrivacyStatement.from_json(statement.to_json()) == statement


class TestStatement:
    def test_an_objects_epsilon_is_always_there(self):
        big = np.zeros((200, 300), np.uint8)
        text = pixelize(big, 5, "pixels:1", 16).statement.paragraph()
        assert "an object of 100 x 100 pixels (a face) is protected with epsilon 50,000" in text
        clip = np.zeros((4, 200, 300, 1), np.uint8)
        text = pixelize(clip, 5, "pixels:1", 16).statement.paragraph()
        assert "50,000 for each frame it appears in" in text
        assert "in all 4 frames that object has epsilon 200,000" in text

    def test_a_gaussian_object_is_calibrated_again(self):
        plan = PixelizationPlan.of(plain_cells(1, 16, 16, 1e-6), Shape.of(200, 300, 1, 255))
        rho = 255**2 * (39 * 256**2 + 16**2) / (2 * plan.events[0].variance)
        assert plan.object_epsilon(10_000) == pytest.approx(zcdp_epsilon(rho, 1e-6))

    def test_an_object_is_in_both_stages(self):
        regions = PrivateRegions(share=Fraction(1, 4))
        private = plain_cells(2, 16, 8, "1e-5", subdivide=2, regions=regions)
        plan = PixelizationPlan.of(private, Shape.of(37, 50, 3, 255))
        coarse, fine = (event.variance for event in plan.events)
        bounds = (64**2 + 36**2) / (2 * coarse) + (6 * 16**2 + 4**2) / (2 * fine)
        assert plan.object_epsilon(100) == pytest.approx(zcdp_epsilon(255**2 * 3 * bounds, 1e-5))
        assert plan.object_epsilon(100, 3) == pytest.approx(zcdp_epsilon(3 * 255**2 * 3 * bounds, 1e-5))

    def test_public_and_private_masks_are_told_apart(self):
        public = pixelize(GREY, 2, 4, 8, subdivide=2, regions=HALF).statement
        private = pixelize(GREY, 2, 4, 8, subdivide=2, regions="private").statement
        assert public.release["config"]["regions"]["kind"] == "public"
        assert any("was not made from this picture" in line for line in public.conditional_on)
        assert len(public.events) == 1
        assert private.release["config"]["regions"]["kind"] == "private"
        assert not private.conditional_on
        assert len(private.events) == 2

    def test_neighbours_are_pixels_of_the_clip_or_of_each_frame(self):
        clip = np.zeros((2, 9, 9, 3), np.uint8)
        assert pixelize(clip, 2, "pixels:4", 4).statement.neighbours == Neighbours.of_pixels(4, "clip")
        assert pixelize(clip, 2, "pixels:4/frame", 4).statement.neighbours.scope == "frame"
        assert pixelize(GREY, 2, "pixels:4/frame", 4).statement.neighbours.scope == "picture"


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "word"),
        [
            (
                {"epsilon": 0},
                (("epsilon-out-of-range", "fraction-malformed", "setting-not-finite", "setting-not-number"),),
            ),
            (
                {"epsilon": -1},
                (("epsilon-out-of-range", "fraction-malformed", "setting-not-finite", "setting-not-number"),),
            ),
            (
                {"epsilon": math.nan},
                (("epsilon-out-of-range", "fraction-malformed", "setting-not-finite", "setting-not-number"),),
            ),
            (
                {"epsilon": math.inf},
                (("epsilon-out-of-range", "fraction-malformed", "setting-not-finite", "setting-not-number"),),
            ),
            (
                {"epsilon": "two"},
                (("epsilon-out-of-range", "fraction-malformed", "setting-not-finite", "setting-not-number"),),
            ),
            ({"epsilon": "1e-300"}, ("epsilon-too-small",)),
            (
                {"epsilon": 10**7},
                (("epsilon-out-of-range", "fraction-malformed", "setting-not-finite", "setting-not-number"),),
            ),
            (
                {"epsilon": True},
                (("epsilon-out-of-range", "fraction-malformed", "setting-not-finite", "setting-not-number"),),
            ),
            ({"delta": 1}, ("delta-out-of-range",)),
            ({"delta": -1e-5}, ("delta-out-of-range",)),
            ({"delta": "1e-280", "epsilon": "1e-20"}, ("epsilon-unreachable",)),
            (
                {"neighbours": "pixels:0"},
                (("m-not-positive", "neighbours-malformed", "neighbours-not-pixels"), "neighbours"),
            ),
            (
                {"neighbours": "pixels:-3"},
                (("m-not-positive", "neighbours-malformed", "neighbours-not-pixels"), "neighbours"),
            ),
            ({"neighbours": "pixels:9999"}, ("m-above-pixels", "1,850")),
            (
                {"neighbours": "persons:1"},
                (("m-not-positive", "neighbours-malformed", "neighbours-not-pixels"), "neighbours"),
            ),
            (
                {"neighbours": Neighbours("image", Relation.ZERO_OUT)},
                (("m-not-positive", "neighbours-malformed", "neighbours-not-pixels"), "neighbours"),
            ),
            ({"block": 0}, (("block-not-positive", "setting-not-whole"), "block")),
            ({"block": -4}, (("block-not-positive", "setting-not-whole"), "block")),
            ({"block": 38}, ("block-larger-than-picture",)),
            ({"block": 4.0}, (("block-not-positive", "setting-not-whole"), "block")),
            ({"subdivide": 0}, ("subdivide-not-positive", "subdivide")),
            ({"subdivide": 3, "regions": "private"}, ("subdivide-not-divisor",)),
            ({"subdivide": 2}, (("regions-unknown", "regions-with-subdivide"),)),
            ({"regions": "private"}, ("regions-with-subdivide", "subdivi")),
            ({"subdivide": 2, "regions": "secret"}, (("regions-unknown", "regions-with-subdivide"),)),
            ({"subdivide": 2, "regions": HALF[:, 1:]}, ("mask-size-differs", ("49 x", "x 37"))),
            ({"subdivide": 2, "regions": COLOUR}, ("mask-of-wrong-shape", "mask")),
            ({"subdivide": 2, "regions": np.full((37, 50), np.nan)}, ("mask-not-finite",)),
            ({"seed": 1, "source": AesNoise(Key.fresh())}, ("seed-with-noise",)),
        ],
    )
    def test_settings_out_of_range(self, changes, word):
        with refused(*word) as caught:
            pixelize(GREY, **{"epsilon": 2, "neighbours": 4, "block": 8, **changes})
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        "picture",
        [
            GREY.astype(np.float32),
            np.full((9, 9), np.nan),
            torch.zeros(9, 9),
            GREY.astype(np.int64),
            GREY > 3,
            GREY[:0],
            np.zeros((3, 9, 9), np.uint8),
            np.zeros((9, 9, 4), np.uint8),
            np.zeros(9, np.uint8),
            [[1, 2], [3, 4]],
            None,
        ],
    )
    def test_what_is_no_picture(self, picture):
        with pytest.raises(DposeError, match="image"):
            pixelize(picture, 2, 1, 1)

    def test_the_smallest_pictures(self):
        one = np.full((1, 1), 7, np.uint8)
        assert pixelize(one, 2, 1, 1).picture.shape == (1, 1)
        assert pixelize(GREY[:1], 2, 1, 1).picture.shape == (1, 50)
        for picture, m, block in ((one, 16, 1), (one, 1, 16), (GREY[:1], 1, 2)):
            with refused(("block-larger-than-picture", "m-above-pixels")):
                pixelize(picture, 2, m, block)


class TestRegions:
    def test_sobel_energy_by_hand(self):
        flat = np.full((4, 5, 1), 9, np.uint8)
        assert not sobel_energy(flat).any()
        slope = np.arange(5, dtype=np.uint8)[None, :, None].repeat(4, 0)
        assert (sobel_energy(slope)[:, 1:-1] == 64).all()
        assert (sobel_energy(slope.transpose(1, 0, 2))[1:-1] == 64).all()
        assert (sobel_energy(slope.repeat(3, 2)) == 3 * sobel_energy(slope)).all()

    def test_a_threshold_counts_gray_levels_a_block(self):
        slope = np.arange(0, 50, 10, dtype=np.uint8).repeat(3)[:, None]  # columns of one row, then the next
        blocks = BlockSums(3, 5, 1)
        values = slope.reshape(5, 3).T.reshape(-1, 1)
        assert PrivateRegions(threshold=9.9).blocks(values, blocks)[:, 1:-1].all()
        assert not PrivateRegions(threshold=10.1).blocks(values, blocks).any()

    def test_masks_of_any_scale_mean_the_same(self):
        half = PublicRegions.from_array(HALF)
        for mask in (HALF.astype(np.uint8), HALF * 255, HALF.astype(np.float32), HALF * np.uint8(200)):
            assert np.array_equal(PublicRegions.from_array(mask).pixels, half.pixels)
            assert PublicRegions.from_array(mask).sha256 == half.sha256

    def test_a_block_is_complex_where_at_least_half_of_it_is(self):
        mask = np.zeros((4, 6), bool)
        mask[:2, :4] = True
        mask[0, 4:] = True
        assert PublicRegions(mask).blocks(4, 6, 4).tolist() == [[True, False]]

    def test_a_segmenter_sees_only_the_released_picture(self):
        seen = []

        def segment(picture):
            seen.append(picture)
            return picture[:, :, 0] > 100

        (frame,) = pixelize(GREY, 2, 4, 8, subdivide=2, regions=PrivateRegions(segmenter=segment)).frames
        for y in range(0, 37, 8):
            for x in range(0, 50, 8):
                assert len(np.unique(seen[0][y : y + 8, x : x + 8])) == 1
        assert np.array_equal(frame.cells.mask, PublicRegions(seen[0][:, :, 0] > 100).blocks(37, 50, 8))

    @pytest.mark.parametrize("share", [0, 1, 2])
    def test_a_share_leaves_both_stages_something(self, share):
        with refused("share-out-of-range", where="share"):
            PrivateRegions(share=Fraction(share))

    def test_an_onnx_segmenter(self, tmp_path):
        onnx = pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
        helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
        node = helper.make_node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=1)
        graph = helper.make_graph(
            [node],
            "mean",
            [helper.make_tensor_value_info("x", float32, [1, 3, "h", "w"])],
            [helper.make_tensor_value_info("y", float32, [1, 1, "h", "w"])],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.save(model, str(tmp_path / "mean.onnx"))
        segment = onnx_segmenter(tmp_path / "mean.onnx")
        chance = segment(COLOUR)
        assert chance.shape == (37, 50)
        assert np.allclose(chance, COLOUR.mean(axis=2) / 255, atol=1e-5)
        (tmp_path / "broken.onnx").write_bytes(b"no model")
        for code, broken in (("onnx-unreadable", "broken.onnx"), ("file-missing", "absent.onnx")):
            with refused(code, where=broken):
                onnx_segmenter(tmp_path / broken)


def test_the_public_name():
    assert dpose.pixelize is api.pixelize


def test_a_plan_knows_whether_it_is_of_a_picture_or_of_a_clip():
    config = plain_cells(1, 1, 16)
    assert bind(config, Shape.of(32, 32, 1, 255)).frames is None
    assert bind(config, Shape.of(32, 32, 1, 255, 1)).frames == 1
    assert bind(config, Shape.of(32, 32, 1, 255, 5)).frames == 5


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: dpose.pixelize(GREY, 2, neighbors="pixels:3000", public=True), "did you mean neighbours?"),
        (lambda: pixelize(GREY, 2, detla=1e-5), "did you mean delta?"),
        (lambda: pixelize(GREY, 2, agian=True), "did you mean again?"),
        (lambda: dpose.release_video("a.mp4", "b.mp4", 8, 1e-5, neighbor="clip"), "did you mean neighbours?"),
        (lambda: dpose.release_video("a.mp4", "b.mp4", 8, 1e-5, kepp_sound=True), "did you mean keep_sound?"),
        (lambda: dpose.Pixelization.of(2, detla=1e-5), "did you mean delta?"),
        (lambda: dpose.Pixelization.of(2, neighbors="pixels:3000"), "did you mean neighbours?"),
        (lambda: dpose.Projection.of(2, 1e-5, zzz=1), "known are colour, "),
    ],
)
def test_a_misspelt_keyword_is_not_passed_over(call, hint):
    """It would leave the default in force, which may hide less."""
    with refused("setting-unknown", where=hint):
        call()
