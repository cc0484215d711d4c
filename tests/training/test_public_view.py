"""The public view: what it loses is lost, it is computed once, from the canonical crop, and the same everywhere."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.func import functional_call

from dpose.training.gradients import per_unit_gradients, trainable_params
from dpose.training.public_view import PUBLIC, REACH, PublicView, PublicViews, Residual, ResidualViews
from dpose.units import MAX_VIEWS, View, pad_views
from dpose_scene.render import render_person
from refusals import refused

KINDS = ("blur", "pixelize")


def texture(size, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)


def psnr(a, b):
    return 10 * np.log10(255**2 / np.mean((np.asarray(a, float) - b) ** 2))


def float_blur(extent, sigma):
    """One axis of the blur without sampling and rounding: a square matrix."""
    distance = np.abs(np.arange(extent) - np.arange(extent)[:, None]) / sigma
    weights = np.where(distance <= REACH, np.exp(-(distance**2) / 2), 0)
    return weights / weights.sum(1, keepdims=True)


def both_axes(rows, columns, image):
    return np.einsum("ih,hwc,jw->ijc", rows, image, columns)


# what is lost


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "grid"), [((256, 192), (26, 19)), ((128, 96), (26, 19)), ((384, 288), (26, 19))])
def test_the_grid_at_the_sizes_of_models(kind, size, grid):
    grid = grid if kind == "blur" else (16, 12)
    view = PublicView(kind)
    assert view.grid(size) == grid
    low = view.low(texture(size))
    assert (low.shape, low.dtype) == ((*grid, 3), np.uint8)
    assert f"{grid[0]}x{grid[1]} points" in view.describe(size)


@pytest.mark.parametrize("kind", KINDS)
def test_the_view_is_a_function_of_its_grid(kind):
    view, image = PublicView(kind), texture((128, 96))
    assert np.array_equal(view(image), view.restore(view.low(image), (128, 96)))
    assert view(image).shape == image.shape


def test_pictures_that_differ_only_beyond_the_blur_have_one_view():
    flat = np.full((128, 96, 3), 128, np.uint8)
    board = flat + np.where(np.indices((128, 96)).sum(0) % 2, 40, -40)[..., None].astype(np.int16)
    view = PublicView()
    assert np.array_equal(view(flat), view(board.astype(np.uint8)))


def test_what_happens_within_a_block_stays_there():
    view, image, rng = PublicView("pixelize"), texture((70, 53)), np.random.default_rng(1)
    shuffled = image.copy()
    side = round(16 * 70 / 256)
    for y in range(0, 70, side):
        for x in range(0, 53, side):
            block = shuffled[y : y + side, x : x + side]
            block[:] = rng.permutation(block.reshape(-1, 3)).reshape(block.shape)
    assert not np.array_equal(image, shuffled)
    assert np.array_equal(view(image), view(shuffled))


def test_a_blur_can_be_undone_in_floating_point_and_this_one_cannot():
    image = render_person("ward", 3, size=(64, 48)).image.astype(float)
    rows, columns = float_blur(64, 2.5), float_blur(48, 2.5)
    blurred = both_axes(rows, columns, image)
    undo_y, undo_x = np.linalg.inv(rows), np.linalg.inv(columns)
    assert psnr(both_axes(undo_y, undo_x, blurred), image) > 100
    view = PublicView()  # the same sigma at this height
    low = view.low(image.astype(np.uint8))
    public = view.restore(low, (64, 48)).astype(float)
    # the same attack on psi, and the best linear one on its grid, say no more than psi does
    assert psnr(both_axes(undo_y, undo_x, public).clip(0, 255), image) < 12
    step_y, step_x = linear_map(view, 64, len(low)), linear_map(view, 48, low.shape[1])
    best = both_axes(np.linalg.pinv(step_y), np.linalg.pinv(step_x), low.astype(float)).clip(0, 255)
    assert psnr(best, image) < psnr(public, image) + 1 < 30


def linear_map(view, extent, cells):
    """One axis of the grid without rounding, measured: the response to a bright line."""
    size = (64, 48)
    axis = 0 if extent == size[0] else 1
    response = np.zeros((cells, extent))
    for at in range(extent):
        line = np.zeros((*size, 3), np.uint8)
        line[(slice(None),) * axis + (at,)] = 255
        response[:, at] = view.low(line).mean(axis=(1 - axis, 2)) / 255
    return response


@pytest.mark.parametrize("kind", KINDS)
def test_pictures_too_small_to_lose_anything_are_refused(kind):
    for size in ((16, 12), (6, 6), (1, 1)):
        with refused("public-view-width-unsuitable"):
            PublicView(kind).low(texture(size))
    with refused("public-view-width-unsuitable"):
        PublicView(kind, width=200.0).low(texture((256, 192)))
    assert PublicView(kind, width=128.0).low(texture((6, 6))).shape == (2, 2, 3)


# what it looks like


def test_the_blurred_grid_is_the_blur_it_stands_for():
    image = render_person("ward", 1, size=(128, 96)).image
    blurred = both_axes(float_blur(128, 5.0), float_blur(96, 5.0), image.astype(float))
    assert psnr(PublicView()(image), blurred) > 40


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [0, 1, 127, 254, 255])
@pytest.mark.parametrize("size", [(128, 96), (101, 67), (61, 250)])
def test_a_constant_picture_stays_constant(kind, value, size):
    image = np.full((*size, 3), value, np.uint8)
    assert np.array_equal(PublicView(kind)(image), image)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mirrored_picture_has_a_mirrored_view(kind):
    image = texture((128, 96))
    view = PublicView(kind)
    assert np.array_equal(view(image[:, ::-1]), view(image)[:, ::-1])


def test_block_means_are_exact_and_rounded_half_up():
    image = texture((96, 80))
    low = PublicView("pixelize").low(image)  # blocks of 6, the last column of blocks has 2
    for r in range(16):
        for c in range(14):
            block = image[6 * r : 6 * r + 6, 6 * c : 6 * c + 6].astype(int)
            count = block.shape[0] * block.shape[1]
            assert np.array_equal(low[r, c], (2 * block.sum((0, 1)) + count) // (2 * count))


@pytest.mark.parametrize("kind", KINDS)
def test_a_clip_is_treated_frame_by_frame(kind):
    clip = np.stack([texture((128, 96), seed) for seed in range(3)])
    view = PublicView(kind)
    assert np.array_equal(view(clip), np.stack([view(frame) for frame in clip]))
    assert view.low(clip).shape == (3, *view.grid((128, 96)), 3)


def test_every_thread_and_layout_gives_the_same_bits():
    image = render_person("studio", 5, size=(128, 96)).image
    view = PublicView()
    expected = view(image)
    with ThreadPoolExecutor(8) as pool:
        assert all(np.array_equal(got, expected) for got in pool.map(view, [image] * 32))
    assert np.array_equal(view(np.asfortranarray(image)), expected)
    digest = hashlib.sha256(PublicView().low(texture((128, 96))).tobytes()).hexdigest()
    assert digest == "ec04b420965124fbb96ae2239a2466b12789c95078fd9f5b9e8fb9768d4ed1ab"


def test_errors():
    with refused("public-view-unknown"):
        PublicView("smear")
    for width in (0.0, -1.0, float("nan"), float("inf")):
        with refused("public-view-width-not-positive"):
            PublicView(width=width)
    view = PublicView()
    for bad in (np.zeros((128, 96, 3)), np.zeros((128, 96), np.uint8), np.zeros((128, 96, 4), np.uint8)):
        with pytest.raises(ValueError, match="expected uint8"):
            view.low(bad)
    with pytest.raises(ValueError, match="not of a picture"):
        view.restore(np.zeros((4, 4, 3), np.uint8), (128, 96))


# datasets


class Shifts:
    """Units of 1 + i % 3 pictures; augmentation shifts and mirrors. Counts how often it is asked."""

    def __init__(self, n=6, size=(64, 48), most=3):
        self.size = size
        self.views = [
            [View(texture(size, 10 * i + j), {"x": np.float32(j)}, 1.0 + j) for j in range(1 + i % most)]
            for i in range(n)
        ]
        self.requested = []

    def __len__(self):
        return len(self.views)

    unit = "image"

    def unit_id(self, index):
        return f"unit-{index}"

    def content_hashes(self, index):
        return tuple(hashlib.sha256(v.image.tobytes()).hexdigest() for v in self.views[index])

    def canonical(self, index):
        self.requested.append(index)
        return list(self.views[index])

    def augmented(self, view, rng):
        shift, mirror = int(rng.integers(-5, 6)), bool(rng.integers(2))
        image = np.roll(view.image, shift, axis=1)[:, :: -1 if mirror else 1]
        return replace(view, image=image, target={"x": view.target["x"] + np.float32(shift)})

    def load(self, index, rng):
        return [self.augmented(v, rng) for v in self.canonical(index)]


def test_psi_comes_before_augmentation_and_is_computed_once():
    data = Shifts()
    units = PublicViews(data)
    looked = {}
    for seed in range(20):
        for view in units.load(2, np.random.default_rng(seed)):
            looked.setdefault(float(view.weight), []).append(view.image)
    assert data.requested == [2]
    psi = PublicView()
    for j, original in enumerate(data.views[2]):
        public = psi(original.image)
        of_public = [data.augmented(replace(original, image=public), Fixed(s, m)) for s in range(-5, 6) for m in (0, 1)]
        allowed = {view.image.tobytes() for view in of_public}
        seen = {image.tobytes() for image in looked[1.0 + j]}
        assert seen <= allowed
        assert len(seen) > 3


class Fixed:
    """A generator that draws one shift and one side."""

    def __init__(self, shift, mirror):
        self.values = [shift, mirror]

    def integers(self, *bounds):
        return self.values.pop(0)


def test_a_changed_picture_with_an_equal_grid_changes_nothing():
    """The invariance that feature privacy is conditional on, through the whole dataset."""
    a, b = Shifts(), Shifts()
    flat = np.full((64, 48, 3), 128, np.int16)
    board = flat + np.where(np.indices((64, 48)).sum(0) % 2, 60, -60)[..., None]
    a.views[0] = [View(flat.astype(np.uint8), {"x": np.float32(0)})]
    b.views[0] = [View(board.astype(np.uint8), {"x": np.float32(0)})]
    assert a.content_hashes(0) != b.content_hashes(0)
    for seed in range(5):
        one, other = (PublicViews(d).load(0, np.random.default_rng(seed))[0] for d in (a, b))
        assert np.array_equal(one.image, other.image)


def test_labels_weights_and_names_are_the_units_own():
    data = Shifts()
    units = PublicViews(data)
    assert len(units) == len(data)
    for i in range(len(data)):
        assert (units.unit_id(i), units.content_hashes(i)) == (data.unit_id(i), data.content_hashes(i))
        for public, original in zip(units.canonical(i), data.views[i], strict=True):
            assert (public.target, public.weight) == (original.target, original.weight)
            assert np.array_equal(public.image, PublicView()(original.image))


def test_threads_share_one_set_of_grids():
    data = Shifts(3)
    units = PublicViews(data)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda s: units.load(s % 3, np.random.default_rng(s // 3)), range(60)))
    before = len(data.requested)
    again = [units.load(s % 3, np.random.default_rng(s // 3)) for s in range(60)]
    assert len(data.requested) == before
    for one, other in zip(found, again, strict=True):
        assert all(np.array_equal(a.image, b.image) for a, b in zip(one, other, strict=True))


def test_a_picture_and_its_public_view_share_their_draw():
    data = Shifts()
    public = PublicViews(data)
    units = ResidualViews(public)
    for seed in range(10):
        views = units.load(2, np.random.default_rng(seed))
        shown = public.load(2, np.random.default_rng(seed))
        for view, other, original in zip(views, shown, data.views[2], strict=True):
            assert np.array_equal(view.target[PUBLIC], other.image)
            shift = float(view.target["x"] - original.target["x"])
            undone = np.roll(original.image, int(shift), axis=1)
            assert any(np.array_equal(view.image, side) for side in (undone, undone[:, ::-1]))
            assert other.target["x"] == view.target["x"]
    assert len(units) == len(data)
    assert (units.unit_id(1), units.content_hashes(1)) == (data.unit_id(1), data.content_hashes(1))


def test_different_seeds_draw_differently():
    units = PublicViews(Shifts())
    seen = {units.load(0, np.random.default_rng(s))[0].image.tobytes() for s in range(20)}
    assert len(seen) > 5


def test_a_unit_with_many_views_shows_eight_of_them():
    data = Shifts(1)
    data.views[0] = [View(texture((64, 48), j), {"x": np.float32(0)}, 1.0 + j) for j in range(20)]
    units = ResidualViews(PublicViews(data))
    views = units.load(0, np.random.default_rng(0))
    weights = [v.weight for v in views]
    assert len(views) == MAX_VIEWS
    assert weights == sorted(set(weights))
    other = units.load(0, np.random.default_rng(1))
    assert [v.weight for v in other] != weights


def test_canonical_views_that_come_and_go_are_noticed():
    data = Shifts()
    units = ResidualViews(PublicViews(data))
    units.load(2, np.random.default_rng(0))
    data.views[2] = data.views[2][:1]
    with pytest.raises(ValueError, match="had 3 canonical views and now has 1"):
        units.load(2, np.random.default_rng(0))


# the residual loss


class Sums(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 1).double()

    def forward(self, inputs):
        return self.linear((inputs.double() ** 2).flatten(2).mean(2) / 255**2)[:, 0]


class SumsTask:
    name = "sums"

    def build_model(self, config=None):
        torch.manual_seed(0)
        return Sums()

    def loss(self, model, params, inputs, targets):
        return (functional_call(model, dict(params), (inputs,)) - targets["x"].double()).square()

    def collate(self, units):
        return pad_views(units)

    def metric(self):
        return "metric"


def gradient_of(task, units, model):
    return per_unit_gradients(task, model, trainable_params(model), task.collate(units))


def test_the_residual_gradient_is_the_difference_of_two(dots):
    data = Shifts()
    public = PublicViews(data)
    plain, residual = SumsTask(), Residual(SumsTask())
    model = residual.build_model(None)
    assert (residual.name, residual.metric()) == ("sums", "metric")
    both = [ResidualViews(public).load(i, np.random.default_rng(i)) for i in range(6)]
    bare = [[replace(v, target={"x": v.target["x"]}) for v in views] for views in both]
    shown = [public.load(i, np.random.default_rng(i)) for i in range(6)]
    got = gradient_of(residual, both, model)
    of_x, of_psi = gradient_of(plain, bare, model), gradient_of(plain, shown, model)
    for name, value in got.items():
        torch.testing.assert_close(value, of_x[name] - of_psi[name], rtol=1e-9, atol=1e-12)
        assert value.abs().max() > 0


def test_the_residual_of_a_picture_that_is_its_own_public_view_is_zero():
    data = Shifts(1)
    flat = np.full((64, 48, 3), 77, np.uint8)
    data.views[0] = [View(flat, {"x": np.float32(1)})]
    residual = Residual(SumsTask())
    views = ResidualViews(PublicViews(data)).load(0, np.random.default_rng(0))
    gradients = gradient_of(residual, [views], residual.build_model(None))
    assert all(float(g.abs().max()) == 0 for g in gradients.values())


def test_the_residual_of_clips(dots):
    """Time and channels move as the task's own collate moves them."""
    task = Residual(dots.task)
    clip = np.stack([texture((6, 6), s) for s in range(4)])
    views = [View(clip, {"way": np.int64(1), PUBLIC: clip.copy()})] * 2
    batch = task.collate([views])
    assert torch.equal(batch.targets[PUBLIC], batch.inputs)
    model = task.build_model(None)
    gradients = per_unit_gradients(task, model, trainable_params(model), batch)
    assert all(float(g.abs().max()) == 0 for g in gradients.values())
