"""How good releases are: four ways on photographs in colour, with what was aimed at beside what was found."""

import json
import urllib.request

import cv2
import numpy as np
import pytest
from rich.console import Console

from dpose.account import EXPERIMENT, charges
from dpose.media.images import decode_image
from dpose.privacy.marks import marks_of
from dpose.release.choosing import SIDES, decibels
from dpose.release.restoration import Restoration
from dpose_lab.papers import reproduce
from dpose_lab.papers.experiment import Request
from dpose_lab.papers.pixelization.measure import mse
from dpose_lab.papers.quality import drawn, measure, study
from dpose_lab.photos.photo import Photo, Photos
from dpose_lab.photos.spec import open_photos
from refusals import refused

QUIET = Console(quiet=True)


def picture(seed, side=48):
    """Smooth, in colour."""
    noise = np.random.default_rng(seed).integers(0, 256, (side, side, 3)).astype(np.uint8)
    return cv2.normalize(cv2.GaussianBlur(noise, (0, 0), 8), None, 0, 255, cv2.NORM_MINMAX)


@pytest.fixture
def small(monkeypatch):
    """One budget, small pictures in place of photographs, no films."""
    for module in (study, drawn):
        monkeypatch.setattr(module, "EPSILONS", ("2",))
    monkeypatch.setattr(study, "FILMS", ())
    monkeypatch.setattr(study, "SIZE", (48, 40))

    def read(index):
        image = picture(index)
        return Photo(f"p{index}", image[:, :, 0], colours=image)

    own = Photos("photographs of scikit-image", ("p0", "p1"), read)
    monkeypatch.setattr(
        "dpose_lab.papers.pixelization.data.open_photos",
        lambda spec, size, limit: own if spec == "skimage" else open_photos(spec, size, limit),
    )


class TestPhotographs:
    def test_they_come_with_scikit_image_and_nothing_is_fetched(self, monkeypatch):
        monkeypatch.setattr(urllib.request, "urlopen", None)
        photos = open_photos("skimage", (1, 1))
        assert photos.names == ("astronaut", "coffee", "chelsea", "rocket")
        assert [photos.load(k).colours.shape[2] for k in range(4)] == [3] * 4
        assert open_photos("skimage:coffee", (1, 1)).names == ("coffee",)
        with refused("data-root-unknown", where=("photograph", "cofee", "coffee")):
            open_photos("skimage:cofee", (1, 1))

    def test_rendered_people_have_colours_too(self):
        photo = open_photos("synthetic:studio:test", (32, 24), 1).load(0)
        assert photo.colours.shape == (32, 24, 3)
        assert photo.size == 4 * 32 * 24

    def test_none_of_them_is_charged_and_what_is_not_public_is(self, monkeypatch):
        monkeypatch.setattr(study, "SIZE", (16, 16))
        assert not list(study.quality_study(Request()).data.hashes())
        assert len(list(study.quality_study(Request(data=("synthetic:ward",), limit=2)).data.hashes())) == 2


class TestMeasure:
    def test_a_draw_is_the_same_again_and_draws_differ(self):
        image = picture(0)
        first, again, other = (measure.shown_picture("learned", "2", 16, "p", image, 0, draw) for draw in (0, 0, 1))
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)

    def test_the_oracle_takes_the_least_error_of_all_blocks(self):
        image = picture(0)
        found = measure.measured_picture("oracle", "2", "p", image, 0)
        each = {
            side: np.mean(
                [
                    decibels(mse(image, measure.shown_picture("oracle", "2", side, "p", image, 0, draw)))
                    for draw in range(measure.DRAWS)
                ]
            )
            for side in SIDES
            if measure.LEAST_BLOCK <= side <= 48
        }
        assert found["block"] == max(each, key=each.get)
        assert found["psnr"] == pytest.approx(max(each.values()))
        assert found["by_block"] == pytest.approx({str(side): level for side, level in each.items()})

    def test_what_each_way_is(self):
        configs = {way: measure.way_plan(way, "2", measure.Shape.of(48, 48, 3)).config for way in measure.WAYS}
        assert {way: config.colour for way, config in configs.items()} == {
            "former": "rgb",
            "oracle": "rgb",
            "tv": "ycc",
            "learned": "ycc",
        }
        assert [config.restoration.method for config in configs.values()] == ["none", "none", "tv", "learned"]
        assert configs["former"].block == 16
        assert configs["tv"].chosen
        assert configs["tv"].block == configs["learned"].block

    def test_a_film(self, monkeypatch):
        monkeypatch.setattr(measure, "FILM_SHAPE", measure.Shape(4, 32, 48, 3))
        monkeypatch.setattr(measure, "FORMER_GRID", (8, 12, 2))
        measure._film.cache_clear()
        found = {way: measure.measured_film(way, "walk", 0)["psnr"] for way in measure.FILM_WAYS}
        measure._film.cache_clear()
        assert len({round(value, 6) for value in found.values()}) == 3
        assert all(5 < value < 40 for value in found.values())


class TestStudy:
    def test_all_of_it(self, small, tmp_path):
        out = tmp_path / "out"
        outcomes = reproduce.reproduce("release-quality", Request(limit=1), out, QUIET)
        assert {o.status for o in outcomes} == {"done"}, [o.error for o in outcomes if o.error]
        assert charges() == []
        text = (out / "results.md").read_text()
        assert "made by: dpose reproduce release-quality --limit 1; noise from seed 0, 3 draws" in text
        assert "### photographs of scikit-image, 2: PSNR, dB" in text
        assert "### rendered people, studio:test, 40 x 48, 1: PSNR, dB" in text
        assert "keeps epsilon A / 16, a face of 100 x 100 at epsilon 2 1,250" in text
        shown = decode_image((out / "five-budgets.jpg").read_bytes(), "five-budgets.jpg")
        assert shown.std() > 10
        settings = json.loads((out / "results.json").read_text())["settings"]
        assert (settings["seed"], settings["weights"]) == (0, Restoration.chosen("learned").weights)

    def test_numbers_of_a_set_are_there_once_all_its_pictures_are(self, small):
        bound = study.quality_study(Request(limit=1))
        cells = bound.cells
        outcomes = [study.Outcome(cell) for cell in cells]
        values = {"psnr": 20.0, "psnr_sd": 0.1, "mse": 650.0, "ssim": 0.5, "block": 16, "chroma": 1}
        values["by_block"] = {"16": 18.0, "20": 18.25}
        outcomes[0] = study.Outcome(cells[0], "done", values)
        findings = bound.show(outcomes)
        assert findings.tables[0].rows[0][1:] == ("-",) * 9
        assert findings.tables[2].rows[0][2] == "20.00 (16)"
        assert not findings.files
        gains = [study.Outcome(cell, "done", {**values, "psnr": 18.4}) for cell in cells]
        gains = [study.Outcome(o.cell, "done", values) if o.cell.settings.get("way") == "learned" else o for o in gains]
        row = study._Scores(study.ShownOutcomes(gains), 0, 2).gains("x").rows[0]
        assert row[5:] == ("18.25 (20)", "+1.60, above the floor", "+1.6 to +1.6", "+1.75, above the floor", "+1.60")

    @pytest.mark.parametrize(
        ("gain", "told"), [(2.0, "reached"), (1.998, "reached"), (1.5, "above the floor"), (1.49, "missed")]
    )
    def test_what_is_missed_is_called_so(self, gain, told):
        assert study._goal([gain], study.AIM, study.FLOOR) == f"{gain:+.2f}, {told}"

    def test_private_pictures_are_reserved(self, small, tmp_path, monkeypatch):
        monkeypatch.setattr(reproduce, "run_cells", lambda *given: [])
        data = ("synthetic:ward",)
        bound = study.quality_study(Request(data=data, limit=1))
        reproduce.reproduce("release-quality", Request(data=data, limit=1), tmp_path / "out", QUIET)
        assert [(entry.what, entry.data) for entry in charges()] == [(EXPERIMENT, "synthetic:ward")]
        assert charges(of=marks_of(list(bound.data.hashes())))

    def test_weights_that_are_not_the_ones_are_not_measured(self, monkeypatch):
        monkeypatch.setattr(Restoration, "chosen", lambda method: Restoration("tv", note="weights altered"))
        with refused("restoration-missing"):
            study.quality_study(Request())
