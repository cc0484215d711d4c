"""Restoration is post-processing: it sees what was released and nothing else, and says what it did."""

import inspect
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest

from dpose.release import restoration
from dpose.release.archive import pack_archive, restore_file, unpack
from dpose.release.grid import Shape
from dpose.release.planes import Observed, Plane
from dpose.release.projections import BlockMeans
from dpose.release.restoration import FROM_RGB, OPENCV, TO_RGB, Restoration, halved, restored_clip
from dpose.release.verify import verify_release
from public_doors import pixelize
from refusals import refused

Y, X = np.mgrid[:96, :128]
SMOOTH = np.stack([60 + X, 200 - Y, 90 + 80 * ((Y - 48) ** 2 + (X - 64) ** 2 < 900)], axis=2).astype(np.uint8)


def observed(picture, block, deviation, colour="rgb", factor=1, peak=255, seed=0):
    """What a release with Gaussian noise of so many gray levels a cell shows."""
    rng, planes = np.random.default_rng(seed), []
    wide = picture.astype(np.float64) @ FROM_RGB.T if colour == "ycc" else picture
    for k in range(wide.shape[2]):
        side = block * factor if k else block
        tall, across = (np.arange(0, n, side) for n in wide.shape[:2])

        def sums(values, tall=tall, across=across):
            return np.add.reduceat(np.add.reduceat(values, tall, 0), across, 1)

        levels = sums(wide[..., k].astype(np.float64)) / sums(np.ones(wide.shape[:2]))
        noise = np.full(levels.shape, deviation, np.float32)
        planes.append(Plane((levels + noise * rng.standard_normal(levels.shape)).astype(np.float32), noise, side))
    names = {1: "grey", 3: colour}
    return Observed(tuple(planes), names[len(planes)], *picture.shape[:2], peak)


def error(one, other):
    return float(np.mean((one.astype(np.float64) - other) ** 2))


def test_luma_and_chroma_are_those_of_the_planes():
    assert np.allclose(TO_RGB @ FROM_RGB, np.eye(3), atol=1e-7)


@pytest.mark.parametrize("method", restoration.METHODS)
class TestEveryMethod:
    def test_it_sees_what_was_released_and_nothing_else(self, method):
        assert list(inspect.signature(Restoration(method).apply).parameters) == ["observed", "before", "after"]
        made = pixelize(SMOOTH, 20, 4, 8, restore=method, seed=1)
        released, statement = unpack(pack_archive(made.frames[0], made.statement), "a.npz")
        assert np.array_equal(released.picture(), made.picture)
        assert Restoration.read(statement.release["restoration"]) == Restoration.chosen(method)
        if method != "none":
            assert np.array_equal(Restoration(method).apply(made.frames[0].observed()), made.picture)

    @pytest.mark.parametrize("colour", ["rgb", "ycc"])
    @pytest.mark.parametrize("size", [(1, 50), (50, 1), (1, 1), (37, 50)])
    def test_shapes(self, method, size, colour):
        picture = SMOOTH[: size[0], : size[1]]
        block = min(8, *size)
        assert Restoration(method).apply(observed(picture, block, 5.0, colour)).shape == (*size, 3)
        grey = Restoration(method).apply(observed(picture[..., :1], block, 5.0))
        assert grey.shape == (*size, 1)
        assert grey.dtype == np.uint8

    def test_16_bits_are_the_same_picture(self, method):
        low, high = (
            Restoration(method).apply(observed(SMOOTH.astype(np.float64) * scale, 8, 10.0 * scale, peak=255 * scale))
            for scale in (1, 257)
        )
        assert (low.dtype, high.dtype) == (np.uint8, np.uint16)
        assert np.abs(high / 257 - low).max() < 1

    def test_next_to_no_noise_leaves_the_cells(self, method):
        shown = Restoration(method).apply(observed(SMOOTH, 4, 1e-3))
        assert error(shown, SMOOTH) < (40 if method == "none" else 30)

    def test_coarse_chroma(self, method):
        shown = Restoration(method).apply(observed(SMOOTH, 4, 2.0, "ycc", 4))
        assert error(shown, SMOOTH) < 130


def test_painted_cells_have_one_colour():
    shown = Restoration("none").apply(observed(SMOOTH, 16, 3.0, "ycc", 2))
    assert all((shown[y : y + 16, x : x + 16] == shown[y, x]).all() for y in (0, 16) for x in (0, 16, 48))


def test_the_more_is_known_the_better():
    seen = observed(SMOOTH, 4, 30.0)
    errors = [error(Restoration(method).apply(seen), SMOOTH) for method in ("none", "tv", "learned")]
    assert errors[0] > 2 * errors[1] > 2 * errors[2]


def test_it_does_not_look_sharper_than_it_knows():
    """Of noise alone it makes next to no contrast, and no less of a picture as noise grows than is left of it."""
    flat = np.full((96, 128, 3), 128, np.uint8)
    assert np.std(Restoration("learned").apply(observed(flat, 4, 60.0))) < 8
    contrast = [np.std(Restoration("learned").apply(observed(SMOOTH, 4, level))) for level in (1.0, 60.0, 600.0)]
    assert contrast[0] > contrast[1] > contrast[2]


def test_cells_with_more_noise_than_was_learned_are_taken_together():
    seen = observed(SMOOTH[:45, :51], 2, 40.0, "ycc", 2)
    wide = halved(seen)
    assert [plane.block for plane in wide.planes] == [4, 8, 8]
    assert wide.planes[0].deviation[0, 0] == pytest.approx(20)
    assert np.allclose(
        wide.planes[0].levels[:-1, :-1], seen.planes[0].levels[:22, :24].reshape(11, 2, 12, 2).mean((1, 3))
    )
    shown = Restoration("learned").apply(observed(SMOOTH, 1, 900.0))
    assert error(shown, SMOOTH) < error(np.full_like(SMOOTH, 128), SMOOTH)


def test_tiles_change_nothing(monkeypatch):
    seen = observed(np.random.default_rng(1).integers(0, 256, (170, 190, 3), dtype=np.uint8), 1, 40.0)
    whole = restoration.by_network(seen)
    monkeypatch.setattr(restoration, "TILE", 96)
    assert np.abs(restoration.by_network(seen) - whole).max() < 0.05


class TestClips:
    def test_a_window_of_three(self):
        read, shown = [], []

        def groups():
            for k in range(4):
                read.append(k)
                yield k

        for made in restored_clip(groups(), lambda *given: given):
            shown.append(made)
            assert len(read) <= made[0] + 2
        assert shown == [(0, None, 1), (1, 0, 2), (2, 1, 3), (3, 2, None)]
        assert list(restored_clip(iter([7]), lambda *given: given)) == [(7, None, None)]

    def test_frames_around_it_help(self):
        before, here, after = (observed(SMOOTH, 4, 40.0, seed=k) for k in range(3))
        learned = Restoration("learned")
        assert error(learned.apply(here, before, after), SMOOTH) < error(learned.apply(here), SMOOTH)

    def test_cells_that_divide_a_frame_evenly(self):
        shape = Shape(2, 50, 70, 3)
        operator = BlockMeans(shape, 6, 9, 1)
        frame = np.ascontiguousarray(SMOOTH[:50, :70]).astype(np.int64)
        seen = operator.observed(operator.apply(2 * frame, 2).astype(np.float64), 2, 10.0)
        assert seen.even
        assert np.allclose(seen.planes[0].deviation, 10 / (2 * operator.areas))
        for method in restoration.METHODS:
            assert error(Restoration(method).apply(seen), SMOOTH[:50, :70]) < 150


class TestWeights:
    @pytest.fixture(params=["missing", "altered"])
    def broken(self, request, tmp_path, monkeypatch):
        path = tmp_path / "cells.onnx.xz"
        if request.param == "altered":
            path.write_bytes(restoration.WEIGHTS.read_bytes()[:-1] + b"x")
        monkeypatch.setattr(restoration, "WEIGHTS", path)
        return request.param

    def test_they_are_small_and_whole(self):
        assert restoration.WEIGHTS.stat().st_size < 2_000_000
        assert restoration.restoration_digest() == restoration.SHA256
        assert restoration.SHA256 in (restoration.WEIGHTS.parent / "README.md").read_text()

    def test_total_variation_takes_their_place_and_says_so(self, broken, tmp_path):
        found = Restoration.chosen("learned")
        assert (found.method, found.weights) == ("tv", "")
        assert broken in found.note
        made = pixelize(SMOOTH, 20, 4, 8)
        assert any(broken in line for line in made.statement.caveats)
        assert np.array_equal(made.picture, Restoration("tv").apply(made.frames[0].observed()))
        assert "scikit-image" in made.statement.software
        made.save(tmp_path / "a.png")
        assert verify_release(tmp_path / "a.png")

    @pytest.mark.parametrize(
        ("method", "named"), [("learned", {OPENCV}), ("tv", {OPENCV, "scikit-image"}), ("none", set())]
    )
    def test_a_statement_names_the_packages_that_restored(self, method, named, tmp_path):
        made = pixelize(SMOOTH, 20, 4, 8, restore=method)
        assert named == set(made.statement.software) & {OPENCV, "scikit-image"}
        assert all(made.statement.software[name] == version(name) for name in named)
        old = {name: text for name, text in made.statement.software.items() if name not in named}
        replace(made, statement=replace(made.statement, software=old)).save(tmp_path / "a.npz")
        assert verify_release(tmp_path / "a.npz")

    def test_verify_says_what_it_could_not_check(self, tmp_path, monkeypatch):
        made = pixelize(SMOOTH, 20, 4, 8)
        made.save(tmp_path / "a.png")
        made.save(tmp_path / "a.npz")
        assert "not checked" not in verify_release(tmp_path / "a.png")[1]
        monkeypatch.setattr(restoration, "WEIGHTS", tmp_path / "none")
        assert "weights are missing" in verify_release(tmp_path / "a.png")[1]
        assert verify_release(tmp_path / "a.npz")
        with refused("restoration-weights-missing"):
            restore_file(tmp_path / "a.npz", tmp_path / "b.png")

    def test_other_weights_than_the_recorded_ones(self):
        with refused("restoration-weights-missing"):
            Restoration("learned", "0" * 64).apply(observed(SMOOTH, 8, 1.0))


class TestRecords:
    @pytest.mark.parametrize("method", restoration.METHODS)
    def test_sums_are_restored_another_way(self, tmp_path, method):
        made = pixelize(SMOOTH, 20, 4, 8)
        made.save(tmp_path / "a.npz")
        told = restore_file(tmp_path / "a.npz", tmp_path / "a.png", method)
        assert told.release["restoration"]["method"] == method
        assert told.release["config"] == made.statement.release["config"]
        assert "not checked" not in verify_release(tmp_path / "a.png")[1]

    def test_a_restored_picture_that_is_not_the_archives(self, tmp_path):
        made, other = (pixelize(SMOOTH, 20, 4, 8, seed=k) for k in range(2))
        made.save(tmp_path / "a.npz")
        other.save(tmp_path / "a.png")
        assert "another release's" in verify_release(tmp_path / "a.png")[1]
        fake = replace(made.frames[0])
        fake.__dict__["_shown"] = fake.__dict__["_made"] = other.picture
        replace(made, frames=(fake,)).save(tmp_path / "a.png")
        with refused("archive-does-not-follow"):
            verify_release(tmp_path / "a.png")

    def test_records_are_read_back(self):
        for method in restoration.METHODS:
            found = Restoration.chosen(method)
            assert Restoration.read(found.to_dict()) == found
        weights = {"weights": "0" * 64}
        for values in (
            None,
            "none",
            {},
            {"method": "learned"},
            {"method": "learned", "weights": "12"},
            {"method": "learned", "weights": 12},
            {"method": "magic"},
            {"method": ["tv"]},
            {"method": "tv", **weights},
            {"method": "tv", "weights": ""},
            {"method": "learned", **weights, "note": ""},
        ):
            with refused("record-restoration-unknown"):
                Restoration.read(values)
        with refused("restoration-unknown", where="magic"):
            Restoration.chosen("magic")
        with refused("restoration-unknown", where="magic"):
            Restoration("magic").apply(observed(SMOOTH, 8, 1.0))

    def test_a_papers_picture_is_painted(self):
        assert "restoration" not in pixelize(SMOOTH, 2, 4, 8, paper=1).statement.release
