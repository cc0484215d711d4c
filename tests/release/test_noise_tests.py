"""Sums without their noise are refuted, genuine ones practically never: laws by enumeration, levels by draws."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dpose
from dpose.privacy.discrete import MAX_SCALE
from dpose.privacy.events import Gaussian, Laplace
from dpose.privacy.noise import AesNoise, Key
from dpose.release import noise_tests
from dpose.release.archive import pack_archive, restore_file
from dpose.release.counting import PUBLIC
from dpose.release.grid import Shape
from dpose.release.noise_tests import (
    LEVEL,
    TESTS,
    binomial_tail,
    chernoff_bound,
    multiple_chance,
    noise_verdict,
    within,
)
from dpose.release.pixelization import PixelizationPlan
from dpose.release.plans import release_statement
from dpose.release.regions import PrivateRegions, PublicRegions
from dpose.release.verify import verify_release
from plain_configs import plain_cells
from public_doors import pixelize
from refusals import refused
from tiers import rest_slow

SCALES = [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(20)]
SIGMAS = [1, 2, 5, 20]


def gaussian(sigma):
    return Gaussian(Fraction(sigma**2), Fraction(1))


EVENTS = [*(Laplace(scale, Fraction(1)) for scale in SCALES), *map(gaussian, SIGMAS)]
RNG = np.random.default_rng(0)
SIDE = 48
DOWN, ACROSS = np.mgrid[:SIDE, :SIDE]
PICTURES = {
    "black": np.zeros((SIDE, SIDE), np.uint8),
    "white": np.full((SIDE, SIDE), 255, np.uint8),
    "checks of a pixel": (255 * ((DOWN + ACROSS) % 2)).astype(np.uint8),
    "checks of a block": (255 * ((DOWN // 4 + ACROSS // 4) % 2)).astype(np.uint8),
    "a slope": (5 * ACROSS).astype(np.uint8),
    "any": RNG.integers(0, 256, (SIDE, SIDE)).astype(np.uint8),
}
FORMS = {
    "grey": {"colour": "grey"},
    "rgb": {"colour": "rgb"},
    "ycc": {"colour": "ycc", "chroma": 1},
    "ycc, ragged": {"colour": "ycc", "chroma": 4, "block": 5},
    "two stages": {
        "colour": "ycc",
        "chroma": 2,
        "block": 6,
        "subdivide": 2,
        "regions": PrivateRegions(share=Fraction(1, 8)),
    },
    "public mask": {"colour": "rgb", "subdivide": 2, "regions": PublicRegions(DOWN < SIDE // 3)},
}


def colour(grey):
    return np.stack([grey, np.roll(grey, 1, 0), grey[::-1]], axis=2)


def plan_of(epsilon=2, delta=0, pixels="pixels:4", shape=(SIDE, SIDE), **more):
    block, mode = more.pop("block", 4), more.pop("chroma", None)
    config = replace(plain_cells(epsilon, pixels, block, delta=delta), **more, chroma=mode)
    return PixelizationPlan.of(config, Shape.of(*shape, 3))


def scaled(event, times):
    """The event of noise so many times as wide; next to none for 0."""
    if isinstance(event, Laplace):
        return replace(event, scale=event.scale * times or Fraction(1, 10**6))
    return replace(event, variance=event.variance * times**2 or Fraction(1, 10**6))


def released(plan, picture, seed, times=1):
    """A release by the plan, with so many times the noise."""
    stages = tuple(replace(stage, event=scaled(stage.event, Fraction(times))) for stage in plan.stages)
    return replace(plan, stages=stages).release(picture, AesNoise(Key.from_seed(seed)))


def values_of(seeds, picture="black", form="grey", times=1, **more):
    """All p-values of genuine releases, (seeds, tests), by tests that take their noise for so many times as wide."""
    plan, pixels = plan_of(**FORMS[form], **more), colour(PICTURES[picture])
    events = tuple(scaled(event, Fraction(times)) for event in plan.events)
    return np.array([[t.p for t in noise_tests.noise_tests(released(plan, pixels, s), events)] for s in seeds])


def law(event, far):
    """P(X = x) for |x| <= far, by summing what the definition says."""
    weight = (
        (lambda x: math.exp(-abs(x) / event.scale))
        if isinstance(event, Laplace)
        else (lambda x: math.exp(-(x**2) / (2 * event.variance)))
    )
    weights = np.array([weight(x) for x in range(-far, far + 1)])
    return weights / weights.sum()


FAR = 1000


class TestLaws:
    @pytest.mark.parametrize("event", EVENTS)
    @pytest.mark.parametrize("q", [2, 3, 5, 7, 100])
    def test_multiples(self, event, q):
        exact = law(event, FAR)[np.arange(-FAR, FAR + 1) % q == 0].sum()
        assert exact * (1 - 1e-13) <= multiple_chance(event, q) <= exact + 1e-11

    @pytest.mark.parametrize("event", EVENTS)
    def test_differences(self, event):
        one = law(event, FAR)
        both = np.convolve(one, one)
        for far in (0, 1, 2, 3, 7, 30, 100):
            exact = both[2 * FAR - far : 2 * FAR + far + 1].sum()
            # the closed form for Gaussian noise is a bound, and tight where noise is wide
            room = 0.06 / float(event.variance) if isinstance(event, Gaussian) else 0
            assert -1e-14 <= within(event, far) - exact <= 1e-11 + room * exact

    def test_sizes_at_both_ends(self):
        for scale in (Fraction(1, 10**400), Fraction(1, 1000), Fraction(MAX_SCALE)):
            event = Laplace(scale, Fraction(1))
            assert 0 < multiple_chance(event, 3) <= 1
            assert 0 < within(event, 0) <= within(event, 10) <= 1
            assert within(event, 50 * math.ceil(scale)) == 1
        half = within(Laplace(Fraction(MAX_SCALE), Fraction(1)), MAX_SCALE - 1)
        assert half == pytest.approx(1 - 3 * math.exp(-1) / 2, abs=1e-11)
        wide = Gaussian(Fraction(MAX_SCALE**2), Fraction(1))
        assert within(wide, MAX_SCALE) == pytest.approx(math.erf(0.5), abs=1e-11)
        assert within(wide, MAX_SCALE) > math.erf(0.5)
        # noise narrower than any release's: the bound is loose, and still one
        narrow = law(Gaussian(Fraction(1, 4), Fraction(1)), 50)
        assert (narrow**2).sum() <= within(Gaussian(Fraction(1, 4), Fraction(1)), 0) < 0.7
        assert multiple_chance(wide, 5) == pytest.approx(1 / 5, abs=1e-11)
        assert multiple_chance(Gaussian(Fraction(1, 10**6), Fraction(1)), 7) == 1

    @pytest.mark.parametrize("event", EVENTS)
    def test_moving_a_difference_makes_it_no_smaller(self, event):
        one = law(event, 200)
        both = np.convolve(one, one)
        total = np.concatenate([[0], both.cumsum()])
        for far in (0, 1, 2, 5, 20):
            centred = total[400 + far + 1] - total[400 - far]
            for moved in (1, 2, 3, 10, 50):
                assert total[400 + moved + far + 1] - total[400 + moved - far] <= centred + 1e-15


class TestTails:
    @pytest.mark.parametrize("chance", [Fraction(1, 3), Fraction(1, 7), Fraction(9, 10)])
    def test_hits(self, chance):
        count = 23
        for hits in range(count + 1):
            exact = sum(math.comb(count, k) * chance**k * (1 - chance) ** (count - k) for k in range(hits, count + 1))
            if hits > count * chance:
                assert binomial_tail(hits, count, float(chance)) == pytest.approx(float(exact), rel=1e-12)
            else:
                assert binomial_tail(hits, count, float(chance)) == 1
        assert binomial_tail(5, 5, 1.0) == 1

    def test_millions_of_tries(self):
        # normal in the middle: 6 deviations above
        found = binomial_tail(334833, 10**6, 1 / 3)
        assert found == pytest.approx(math.erfc(3.18 / math.sqrt(2)) / 2, rel=0.02)
        assert binomial_tail(10**6, 10**6, 1 / 3) == 0

    @pytest.mark.parametrize("count", [1, 2, 3, 5])
    def test_sums(self, count):
        """Against every outcome of a few pairs: never below the truth, and next to it at the end."""
        steps = np.array([0.2, 0.1, 0.3, 0.4])
        below = steps.cumsum()[:-1]
        totals = {}
        for each in itertools.product(range(4), repeat=count):
            totals[sum(each)] = totals.get(sum(each), 0) + math.prod(steps[step] for step in each)
        for total in range(3 * count + 1):
            exact = sum(chance for found, chance in totals.items() if found <= total)
            assert exact * (1 - 1e-12) <= chernoff_bound(total, count, below) <= 1
        assert chernoff_bound(0, count, below) == pytest.approx(0.2**count, rel=1e-9)
        assert chernoff_bound(3 * count, count, below) == 1

    def test_upper_bounds_stay_upper_bounds(self):
        below = np.array([0.3, 0.6, 0.8])
        for total in range(0, 30, 3):
            assert chernoff_bound(total, 10, below) <= chernoff_bound(total, 10, below + 0.05)
            assert chernoff_bound(total, 10, below) <= chernoff_bound(total + 1, 10, below)


class TestDifferences:
    """Each test is the sum of min(|difference|, cap) in sixteenths of its cap, against the law of its own noise."""

    @pytest.mark.parametrize("width", [16, 1])
    @pytest.mark.parametrize("make", [lambda w: Laplace(Fraction(w), Fraction(1)), gaussian])
    def test_sums_as_defined(self, make, width):
        event, far = make(width), np.array([0, 1, 2, 3, 5, 8, 15, 16, 17, 40, 63, 64, 1000])
        found = list(noise_tests._differences(far, event, "cells"))
        assert [float(cap) for cap in noise_tests.CAPS] == [1 / 64, 1 / 16, 1 / 4, 1, 4]
        for test, cap in zip(found, noise_tests.CAPS, strict=True):
            ends = [max(1, math.ceil(cap * width * step / 16)) for step in range(1, 17)]
            total = sum(sum(int(d) >= end for end in ends) for d in far)
            below = np.array([within(event, end - 1) for end in ends])
            assert test.p == chernoff_bound(total, len(far), below)
            assert test.least == chernoff_bound(0, len(far), below)
        if width == 16:
            whole = found[3]
            mean = np.minimum(far, 16).mean() / 16
            assert whole.found == f"13 differences of cells are {mean:.3g} scales on average, cut off at 1"


class TestLevel:
    """Genuine releases: p-values are no smaller than uniform numbers, whatever the picture."""

    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("picture", PICTURES)
    @pytest.mark.parametrize("delta", [0, 1e-5])
    def test_no_small_values(self, picture, form, delta):
        found = values_of(range(12), picture, form, delta=delta)
        assert found.shape[1] <= TESTS
        assert found.min() > 1e-5
        assert (found <= 0.1).mean(axis=0).max() <= 0.5

    @pytest.mark.parametrize("delta", [0, 1e-5])
    @pytest.mark.parametrize("form", rest_slow(["grey", "ycc"], 1))
    def test_shares_of_small_values(self, form, delta):
        found = values_of(range(150), "black", form, delta=delta)
        for level in (0.01, 0.05, 0.2):
            # five deviations of a share at its level
            allowed = level + 5 * math.sqrt(level * (1 - level) / len(found))
            assert (found <= level).mean(axis=0).max() <= allowed

    @pytest.mark.parametrize("delta", [0, 1e-5])
    @pytest.mark.parametrize(("times", "noticed"), [(2, True), (1, True), (Fraction(1, 2), False)])
    def test_another_law_would_be_noticed(self, times, noticed, delta):
        """Tests that take noise for twice as wide refute genuine ones; for half as wide, they never see anything."""
        found = values_of(range(40), times=times, delta=delta)
        if times == 2:
            assert found.min() <= LEVEL / TESTS
            return
        assert found.min() > 1e-5
        assert ((found <= 0.5).mean() > 0.05) == noticed

    @pytest.mark.parametrize(("p", "refuted"), [(LEVEL / 20, False), (LEVEL / TESTS / 1.01, True)])
    def test_every_test_has_its_share_of_the_level(self, monkeypatch, p, refuted):
        assert LEVEL == 1e-9
        plan = plan_of()
        found = released(plan, colour(PICTURES["any"]), 0)
        one = noise_tests.NoiseTest("a thing", p, 0.0)
        monkeypatch.setattr(noise_tests, "noise_tests", lambda *_: [replace(one, p=1.0), one])
        if refuted:
            with refused("noise-refuted", where="thing"):
                noise_verdict(found, plan.events, "a")
        else:
            assert "not refuted" in noise_verdict(found, plan.events, "a")

    def test_more_tests_than_any_release_has(self):
        for form, most in (("two stages", 34), ("ycc", 23), ("rgb", 10), ("public mask", 10)):
            plan = plan_of(delta=1e-5, **FORMS[form])
            found = released(plan, colour(PICTURES["any"]), 0)
            assert len(list(noise_tests.noise_tests(found, plan.events))) == most < TESTS


class TestRefuted:
    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("delta", [0, 1e-5])
    @pytest.mark.parametrize("times", [0, Fraction(1, 4)])
    def test_no_noise_and_a_quarter_of_it(self, form, delta, times):
        plan = plan_of(1, delta, **FORMS[form])
        smooth = colour((100 + 20 * np.sin(ACROSS / 9) + DOWN / 4).astype(np.uint8))
        genuine, bare = (released(plan, smooth, 3, share) for share in (1, times))
        assert "not refuted" in noise_verdict(genuine, plan.events, "a.npz")
        with refused("noise-refuted", where="a.npz"):
            noise_verdict(bare, plan.events, "a.npz")

    @pytest.mark.parametrize("form", ["ycc", "ycc, ragged", "two stages"])
    @pytest.mark.parametrize("delta", [0, 1e-5])
    def test_multiples_show_it_whatever_the_picture_is(self, form, delta):
        """All sums without noise, even of a picture of random pixels."""
        plan = plan_of(8, delta, **FORMS[form])
        bare = released(plan, colour(PICTURES["any"]), 0, 0)
        with refused("noise-refuted", where="multiples") as caught:
            noise_verdict(bare, plan.events, "a.npz")
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("delta", [0, 1e-5])
    def test_each_combination_by_its_own_multiples(self, delta):
        plan = plan_of(8, delta, colour="ycc", chroma=1)
        genuine, bare = (released(plan, colour(PICTURES["any"]), 0, share) for share in (1, 0))
        for place, q in enumerate((5, 7, 5) if delta else (3, 2)):
            name, column = ("chroma", place - 1) if place else ("luma", 0)
            mixed = genuine.sums[name].copy()
            mixed[:, column] = bare.sums[name][:, column]
            mixed = replace(genuine, sums={**genuine.sums, name: mixed})
            with refused("noise-refuted", where=f"144 of 144 sums ({name}) are multiples of {q};"):
                noise_verdict(mixed, plan.events, "a")

    def test_noise_in_one_stage_alone(self):
        plan = plan_of(1, **FORMS["two stages"])
        pixels = colour(PICTURES["a slope"])
        genuine, bare = (released(plan, pixels, 0, share) for share in (1, 0))
        for name in ("luma", "chroma"):
            mixed = replace(genuine, sums={**genuine.sums, name: bare.sums[name]})
            with refused("noise-refuted", where=f"({name})"):
                noise_verdict(mixed, plan.events, "a")

    def test_noise_that_repeats(self):
        """One draw for two neighbours leaves nothing of it in their difference."""
        plan = plan_of(colour="grey")
        found = released(plan, np.zeros((SIDE, SIDE, 3), np.uint8), 0)
        luma = found.sums["luma"].reshape(12, 12, 1)
        luma[:, 1::2] = luma[:, ::2]
        with refused("noise-refuted", where="neighbours across"):
            noise_verdict(found, plan.events, "a")


class TestPairs:
    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("shape", [(SIDE, SIDE), (49, 47), (48, 50), (51, 48)])
    def test_disjoint_and_of_one_area_in_one_stage(self, form, shape):
        more = FORMS[form]
        if isinstance(more.get("regions"), PublicRegions):
            more = more | {"regions": PublicRegions(RNG.random(shape) < 0.5)}
        layers = released(plan_of(shape=shape, **more), RNG.integers(0, 256, (*shape, 3)).astype(np.uint8), 1).layers
        # the sums of a picture of ones are areas
        ones = np.ones((*shape, 3), np.uint8)
        areas = {"luma": (layers.blocks if layers.staged else layers.cells).apply(ones)[:, 0]}
        areas |= {"chroma": layers.coarse.apply(ones)[:, 0]}
        if layers.staged:
            areas |= {"parts": layers.cells.apply(ones)[layers.cells.simple :, 0]}
        for name, (count, _) in layers.shapes().items():
            grids = list(noise_tests._grids(layers, name))
            used = np.sort(np.concatenate([rows[rows >= 0] for rows, _ in grids]))
            assert np.array_equal(used, np.arange(count))
            for axis in (0, 1):
                first, second = np.concatenate([noise_tests._pairs(*grid, axis) for grid in grids], axis=1)
                assert len({*first, *second}) == 2 * len(first) > 0
                assert np.array_equal(areas[name][first], areas[name][second])
                assert set(zip(first.tolist(), second.tolist(), strict=True)) == {
                    (int(rows[place]), int(rows[beside]))
                    for rows, sizes in grids
                    for place in np.ndindex(rows.shape)
                    if place[axis] % 2 == 0
                    and (beside := (place[0] + 1 - axis, place[1] + axis))[axis] < rows.shape[axis]
                    and min(rows[place], rows[beside]) >= 0
                    and sizes[place] == sizes[beside]
                }

    def test_they_do_not_depend_on_values(self):
        plan, other = plan_of(), colour(PICTURES["any"])
        layers = [released(plan, p, s).layers for p, s in ((other, 0), (255 - other, 1))]
        one, two = (
            [noise_tests._pairs(*g, axis) for g in noise_tests._grids(each, "luma") for axis in (0, 1)]
            for each in layers
        )
        assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


class TestNoVerdict:
    @pytest.mark.parametrize("shape", [(4, 4), (4, 8), (9, 4), (5, 7)])
    @pytest.mark.parametrize("colours", ["grey", "rgb", "ycc"])
    def test_too_few_cells(self, shape, colours):
        plan = plan_of(shape=shape, colour=colours, chroma=1 if colours == "ycc" else None)
        for times in (0, 1):
            found = released(plan, np.zeros((*shape, 3), np.uint8), 0, times)
            assert "too few cells" in noise_verdict(found, plan.events, "a")

    def test_one_stage_without_pairs(self):
        """No block is complex, or all are."""
        for threshold in (0.0, 1e9):
            regions = PrivateRegions(threshold=threshold)
            plan = plan_of(colour="ycc", chroma=1, subdivide=2, regions=regions)
            found = released(plan, colour(PICTURES["any"]), 0)
            assert "not refuted" in noise_verdict(found, plan.events, "a")

    def test_more_noise_than_any_picture(self):
        plan = plan_of(Fraction(1, 10**6), colour="ycc", chroma=1)
        found = released(plan, colour(PICTURES["any"]), 0)
        assert "not refuted" in noise_verdict(found, plan.events, "a")


class TestVerify:
    def written(self, folder, name, plan, picture, times):
        statement = release_statement(plan, seeded=False)
        statement = replace(statement, caveats=(*statement.caveats, PUBLIC))
        (folder / name).write_bytes(pack_archive(released(plan, picture, 0, times), statement))
        return folder / name

    def test_sums_without_noise_under_a_genuine_statement(self, tmp_path, capsys):
        from dpose.cli import main

        plan, flat = plan_of(), colour(PICTURES["a slope"])
        assert "the noise is not refuted" in verify_release(self.written(tmp_path, "a.npz", plan, flat, 1))[1]
        for times in (0, Fraction(1, 4)):
            path = self.written(tmp_path, "b.npz", plan, flat, times)
            with refused("noise-refuted", where="b.npz"):
                verify_release(path)
            assert main(["verify", str(path)]) == 2
            assert "[noise-refuted]" in capsys.readouterr().err
        assert main(["verify", str(tmp_path / "a.npz")]) == 0
        assert "the noise is not refuted" in capsys.readouterr().out.replace("\n", " ")

    def test_pictures_and_published_algorithms(self, tmp_path):
        made = pixelize(colour(PICTURES["any"]), 2, 4, 8)
        (tmp_path / "a.npz").write_bytes(pack_archive(made.frames[0], made.statement))
        for name in ("a.png", "b.jpg"):
            restore_file(tmp_path / "a.npz", tmp_path / name)
            assert "no verdict on the noise" in verify_release(tmp_path / name)[1]
        paper = pixelize(PICTURES["any"], 2, 4, 8, paper=1)
        (tmp_path / "c.npz").write_bytes(pack_archive(paper.frames[0], paper.statement))
        assert "nothing is claimed" in verify_release(tmp_path / "c.npz")[1]

    def test_seeds_have_noise_too(self, tmp_path):
        made = pixelize(colour(PICTURES["any"]), 2, 4, 4, colour="rgb", seed=1)
        path = tmp_path / "a.npz"
        path.write_bytes(pack_archive(made.frames[0], made.statement))
        assert "not refuted" in verify_release(path)[1]
        bare = replace(made.frames[0], sums={"luma": 0 * made.frames[0].sums["luma"]})
        path.write_bytes(pack_archive(bare, made.statement))
        with refused("noise-refuted"):
            verify_release(path)


def test_no_release_looks_at_its_own_noise():
    """Drawing again after a look would be rejection: what verifies is called by readers of files alone."""
    source = Path(dpose.__file__).parents[1]
    looking = set()
    for path in sorted(source.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if any(f"import {name}" in text or f", {name}" in text for name in ("verify_release", "noise_verdict")):
            looking.add(path.relative_to(source).as_posix())
    assert looking == {
        "dpose/cli/artefacts.py",
        "dpose/release/verify.py",
        "dpose/runs/statement_files.py",
        "dpose/studio/app.py",
        "dpose_lab/audits/release_files.py",
    }
