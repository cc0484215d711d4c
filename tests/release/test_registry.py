"""One door for operators: what is registered is released, told and verified, and its sensitivity is held to account."""

from __future__ import annotations

import importlib.util
import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpose.cli import main
from dpose.media.images import encode_image
from dpose.privacy.accounting import Accountant
from dpose.privacy.events import Laplace
from dpose.privacy.neighbours import ONE_FRAME, Neighbours
from dpose.privacy.statement import Kind
from dpose.release.explain import explain_release
from dpose.release.grid import Shape, even_edges
from dpose.release.linear import LinearPlan
from dpose.release.operators import OPERATORS, make_operator, register_operator
from dpose.release.plans import bind, release_statement
from dpose.release.verify import verify_release
from plain_configs import plain_projection
from public_doors import pixelize, release_array, release_file
from refusals import refused

EXAMPLE = Path(__file__).parents[2] / "examples" / "row_sums.py"
PICTURE = np.random.default_rng(0).integers(0, 256, (24, 32, 3)).astype(np.uint8)
PURE = {"epsilon": 50, "delta": 0, "neighbours": "pixels:2", "operator": "row-sums"}


@pytest.fixture
def row_sums(monkeypatch):
    """The operator of the example, from outside the package, for one test."""
    known = dict(OPERATORS)
    spec = importlib.util.spec_from_file_location("row_sums", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, "row_sums", module)  # where its dataclass looks for names
    spec.loader.exec_module(module)
    module.register()
    yield module
    OPERATORS.clear()
    OPERATORS.update(known)


def groups_of(operator, clip):
    """The operator's values of all groups, one after the other."""
    edges = even_edges(operator.shape.frames, operator.groups)
    return np.concatenate(
        [operator.apply(clip[a:b].sum(0, dtype=np.int64), int(b - a)) for a, b in itertools.pairwise(edges)]
    ).astype(float)


def check_sensitivity(name):
    """Every set of m pixels, black against white and mixed, in a clip or in frames: no norm passes its bound."""
    shape = Shape(2, 2, 3, 3)
    pixels = shape.pixels
    for groups, m, scope in itertools.product((1, 2), (1, 2), ("clip", "frame", ONE_FRAME)):
        operator = make_operator(name, shape, 2, 2, groups, "text")
        bound = operator.sensitivity(Neighbours.of_pixels(m, scope))
        frames = {"clip": [range(2)], "frame": [range(2)], ONE_FRAME: [[0], [1]]}[scope]
        total = 2 * pixels if scope == "clip" else pixels
        for places in itertools.combinations(range(total), m):
            for some in frames:
                changed = np.zeros((2, pixels, 1), bool)
                if scope == "clip":
                    changed.reshape(-1)[list(places)] = True
                else:
                    for frame in some:
                        changed[frame, list(places)] = True
                for pattern in range(2):
                    light = np.where((np.arange(2 * pixels) * pattern) % 2 == 0, 255, 0)
                    light = light.reshape(2, pixels, 1)
                    one = np.where(changed, light, 90).repeat(3, 2).reshape(2, 2, 3, 3)
                    other = np.where(changed, 255 - light, 90).repeat(3, 2).reshape(2, 2, 3, 3)
                    moved = groups_of(operator, one.astype(np.uint8)) - groups_of(operator, other.astype(np.uint8))
                    assert (moved**2).sum() <= float(bound.l2_squared)
                    assert bound.l1 is None or np.abs(moved).sum() <= float(bound.l1)


def test_no_registered_operator_is_more_sensitive_than_it_says(row_sums):
    assert {"block", "low-pass", "random", "row-sums"} <= set(OPERATORS)
    for name in OPERATORS:
        check_sensitivity(name)


def test_a_bound_that_is_too_small_is_found_out(row_sums, monkeypatch):
    real = row_sums.RowSums.sensitivity

    def grey(self, neighbours):
        bound = real(self, neighbours)
        return type(bound)(bound.l1 / 3, bound.l2_squared / 3)

    monkeypatch.setattr(row_sums.RowSums, "sensitivity", grey)
    with pytest.raises(AssertionError):
        check_sensitivity("row-sums")


@pytest.mark.parametrize("delta", ["0", "1e-5"])
def test_a_picture_through_an_operator_from_outside(row_sums, tmp_path, capsys, delta):
    config = plain_projection(50, delta, "pixels:2", "row-sums")
    for image, suffix in ((PICTURE, ".png"), (PICTURE[:, :, 0], ".jpg")):
        release = release_array(image, config)
        assert release.picture.shape == image.shape
        assert release.statement.kind is Kind.PRIVATE
        assert 49 < release.statement.verify() <= 50
        file = tmp_path / f"private{suffix}"
        release.save(file)
        assert main(["verify", str(file)]) == 0
        assert "for 2 pixels" in " ".join(capsys.readouterr().out.split())
        # a mean of each row comes back, but for the noise
        rows = image.astype(float).reshape(24, 32, -1).mean(1)
        shown = release.picture.astype(float).reshape(24, 32, -1).mean(1)
        assert np.abs(rows - shown).mean() < 12


def test_the_example_runs(row_sums, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.png").write_bytes(encode_image(PICTURE, ".png"))
    row_sums.main("in.png")
    assert "private.png: the recorded noise costs epsilon 1, 1 is claimed" in capsys.readouterr().out


def test_pure_privacy_is_exact(row_sums):
    plan = bind(plain_projection(**PURE), Shape.of(24, 32, 3))
    assert isinstance(plan, LinearPlan)
    assert plan.accountant is Accountant.PURE
    assert plan.event == Laplace(Fraction(255 * 3 * 2, 50), Fraction(255 * 3 * 2))
    statement = release_statement(plan, seeded=False)
    assert (statement.epsilon, statement.delta) == (Fraction(50), 0)
    text = "\n".join(explain_release(plan))
    assert "the mean of each row; 1 x 24\n" in text
    assert "picture, 32 x 24, colour" in text
    assert f"the picture as a whole has epsilon {50 * 24 * 32 // 2:,}" in text


def test_a_forged_release_of_it_is_refused(row_sums, tmp_path, monkeypatch):
    release = release_array(PICTURE, plain_projection(**PURE))
    file = tmp_path / "a.png"
    release.save(file)
    real = row_sums.RowSums.sensitivity

    def wider(self, neighbours):
        bound = real(self, neighbours)
        return type(bound)(2 * bound.l1, 4 * bound.l2_squared)

    monkeypatch.setattr(row_sums.RowSums, "sensitivity", wider)
    with refused("record-sensitivity-smaller"):
        verify_release(file)
    monkeypatch.undo()
    verify_release(file)
    del OPERATORS["row-sums"]
    with refused("record-operator-unknown", where=("a.png", "row-sums")):
        verify_release(file)


@pytest.mark.parametrize("change", [lambda values: values / 2, lambda values: values[1:]], ids=["halves", "fewer"])
def test_values_that_were_not_announced_get_no_noise(row_sums, monkeypatch, change):
    """Rounding would cost something that the sensitivity does not count."""
    real = row_sums.RowSums.apply
    monkeypatch.setattr(row_sums.RowSums, "apply", lambda self, total, frames: change(real(self, total, frames)))
    with pytest.raises(ValueError, match=r"announced 72 whole numbers"):
        release_array(PICTURE, plain_projection(**PURE))


def test_a_video_through_it(row_sums, tmp_path):
    from clips import write
    from dpose.media.video import probe

    config = plain_projection(500, "1e-5", 1, "row-sums")
    release_file(probe(write(tmp_path / "a.mp4")), tmp_path / "b.mp4", config)
    verify_release(tmp_path / "b.mp4")
    with refused("delta-out-of-range"):
        release_file(probe(tmp_path / "a.mp4"), tmp_path / "c.mp4", plain_projection(**PURE))


def test_what_cannot_be_had_is_refused(row_sums):
    with refused("operator-exists", where="block"):
        register_operator("block", lambda *given: None, "")
    for name in ("low-pass", "random"):
        with refused("delta-missing"):
            release_array(PICTURE, plain_projection(1, 0, operator=name, k=30, pool=1))
    with refused("depth-unsupported"):
        release_array(PICTURE.astype(np.uint16), plain_projection(**PURE))
    with pytest.raises(ValueError, match="give a source"):
        bind(plain_projection(1, "1e-5", operator="random"), Shape.of(24, 32))
    release = pixelize(np.stack([PICTURE] * 2), 1, 4, 8)
    with refused("clip-saved-as-picture", where="release_video"):
        release.save("a.png")


def test_a_picture_through_the_operators_of_clips(tmp_path):
    for name in ("block", "low-pass", "random"):
        release = release_array(PICTURE, plain_projection(20, "1e-5", 1, name))
        release.save(tmp_path / f"{name}.png")
        verify_release(tmp_path / f"{name}.png")
        assert release.statement.neighbours.scope == "picture"


def test_pixelized_pictures_are_saved_too(tmp_path):
    release = pixelize(PICTURE, 2, 4, 8)
    for name in ("a.png", "a.npz", "b.jpg"):
        release.save(tmp_path / name)
        verify_release(tmp_path / name)
