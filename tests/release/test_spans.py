"""Spans of a film are released as one clip, charged to the whole film, and say that a person chose them."""

import json
from fractions import Fraction

import numpy as np
import pytest

import dpose
from clips import write
from dpose.account import Budget, charges, set_budget
from dpose.cli import main
from dpose.media.spans import cut, spans_of
from dpose.media.video import probe, read_frames
from dpose.privacy.marks import marks_of
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.sections import About
from dpose.privacy.statement import PrivacyStatement
from dpose.release.batch import release_one
from dpose.release.counting import charged_events, together
from dpose.release.embed import read_sidecar, write_sidecar
from dpose.release.items import Work
from dpose.release.jobs import Job
from dpose.release.originals import video_original
from dpose.release.plans import bind_video
from dpose.release.verify import verify_release
from plain_configs import plain_cells, plain_projection
from refusals import command_refused, refused

CELLS = plain_cells(2, "pixels:4", 8)
VIDEO = plain_projection(8, "1e-5", 4)
CHOSEN = "a person chose which spans of the film are released"


@pytest.fixture
def film(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write(tmp_path / "a.mp4", frames=20, rate=8, size=(49, 33), pix_fmt="yuv444p")


def release(film, out, config, *pairs, **more):
    return release_one(Work(config, spans=spans_of(pairs), **more), Job(film, film.parent / out))


@pytest.mark.parametrize("config", [CELLS, VIDEO])
def test_spans_are_charged_to_the_whole_film_and_add_up(film, config):
    first = release(film, "b.mp4", config, (0, "0.5"), (1, "1.5"))
    with refused("released-before"):
        release(film, "c.mp4", config, ("1.75", None))
    second = release(film, "c.mp4", config, ("1.75", None), again=True)
    whole = release(film, "d.mp4", config, again=True)
    hashes = video_original(probe(film)).hashes
    found = list(charges(of=marks_of(hashes[:1])))
    for one in hashes:  # its bytes, its frames together, and each of them, also of those that were left out
        assert [entry.id for entry in charges(of=marks_of((one,)))] == [entry.id for entry in found]
    assert len(found) == 3
    assert {one.area for one in found} == {49 * 33 * 20}
    assert [one.odometer["releases"] for one in (first, second, whole)] == ["1", "2", "3"]
    assert float(first.odometer["epsilon"]) == float(first.epsilon)
    for count, one in ((2, second), (3, whole)):
        epsilon, _ = together(found[:count], 4)
        assert float(one.odometer["epsilon"]) == epsilon > float(one.epsilon)
        if config is CELLS:
            assert epsilon == 2 * count
    # the film under another name, and a picture that is one frame outside the spans, are known by the same marks
    frame = list(read_frames(probe(film)))[16].pixels
    with refused("released-before"):
        dpose.pixelize(frame, 1, "pixels:4", 8)


def test_a_budget_of_the_film_holds_for_its_spans(film):
    release(film, "b.mp4", CELLS, (0, 1))
    set_budget(Budget(3, 1e-5, "a film", video_original(probe(film)).marks, Neighbours.of_pixels(4)))
    with refused("budget-exceeded"):
        release(film, "c.mp4", CELLS, (1, 2), again=True)


@pytest.mark.parametrize("config", [CELLS, VIDEO])
def test_what_a_charge_of_spans_bounds(film, config):
    """As many pixels of the film as the spans have, and more, change no more than all of the spans."""
    spans = spans_of([("0.25", "0.5"), ("1.5", "1.75")])
    part = cut(probe(film), spans)
    plan = bind_video(config, part)
    assert plan.shape.frames == part.frames == 4
    (event, *_) = charged_events(plan, seeded=False)
    area = 49 * 33 * 20
    name = "sensitivity" if config is CELLS else "sensitivity_squared"
    bounds = [
        getattr(event.for_neighbours(Neighbours.of_pixels(pixels), area), name)
        for pixels in (1, 4, 64, 49 * 33 * 4, 49 * 33 * 9, area)
    ]
    assert bounds == sorted(bounds)
    assert bounds[3] == bounds[4] == bounds[5]
    if config is CELLS:  # 255 gray levels of each of three channels
        assert bounds[:4] == [255 * 3 * pixels for pixels in (1, 4, 64, 49 * 33 * 4)]


def test_the_same_spans_again_are_there_and_others_are_not(film):
    first = release(film, "b.mp4", CELLS, (0, "0.5"), ("0.25", 1))
    assert release(film, "b.mp4", CELLS, ("0:00", "0:01")) == first
    with refused("released-before"):
        release(film, "c.mp4", CELLS, (0, "0.9"))
    for pairs in ([], [(0, "0.9")]):
        with refused("output-exists"):
            release(film, "b.mp4", CELLS, *pairs, again=True)


@pytest.mark.parametrize("config", [CELLS, VIDEO])
def test_it_verifies_and_says_that_a_person_chose(film, config):
    statement = release(film, "b.mp4", config, ("0.5", 1), (2, 99))
    assert statement.release["spans"] == [["0.5", "1"], ["2", "99"]]
    (given,) = statement.conditional_on
    assert given.startswith(CHOSEN)
    assert "0.5 s to 1 s, 2 s to 99 s" in given
    assert CHOSEN in statement.paragraph()
    checked, line = verify_release(film.parent / "b.mp4")
    assert checked == statement
    assert "is claimed" in line
    assert statement.release["shape"]["frames"] == probe(film.parent / "b.mp4").frames == 8
    assert CHOSEN not in release(film, "c.mp4", config, again=True).paragraph()


def rewritten(path, change):
    statement, _ = read_sidecar(path)
    values = statement.to_dict()
    change(values)
    write_sidecar(path, path, PrivacyStatement.from_json(json.dumps(values)))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda s: s["release"].pop("spans"), "record-value-differs"),
        (lambda s: s["release"].update(spans=[["0", "1"]]), "record-sentence-left-out"),
        (lambda s: s["release"].update(spans=[["0.50", "1"]]), "record-value-differs"),
        (lambda s: s["release"].update(spans=[["1", "0.5"]]), "record-value-differs"),
        (lambda s: s["release"].update(spans="0.5"), "record-value-differs"),
        (lambda s: s["release"].update(spans=7), "record-value-differs"),
        (lambda s: s.update(conditional_on=[]), "record-sentence-left-out"),
        (lambda s: s["release"]["shape"].update(frames=20), "pixels-differ-from-statement"),
    ],
)
def test_a_statement_that_was_rewritten_is_refused(film, change, code):
    release(film, "b.mp4", CELLS, ("0.5", 1), public=True)
    path = film.parent / "b.mp4"
    rewritten(path, lambda values: None)
    verify_release(path)
    rewritten(path, change)
    with refused((code, "record-sentence-unfounded", "record-sentence-left-out")):
        verify_release(path)


def test_without_a_guarantee_it_is_said_too(film):
    statement = release_one(
        Work(method="blur", spans=spans_of([(1, 2)]), public=True), Job(film, film.parent / "b.mp4")
    )
    assert any(line.startswith(CHOSEN) for line in statement.caveats)
    assert statement.release["spans"] == [["1", "2"]]
    assert verify_release(film.parent / "b.mp4")[0] == statement


def test_seconds_of_a_box_are_counted_in_what_is_released(film):
    config = plain_cells(8, "box:9x9/seconds:0.5")
    assert bind_video(config, probe(film)).config.neighbours.frames == 5
    part = cut(probe(film), spans_of([(0, "0.25"), (1, "1.25")]))
    assert bind_video(config, part).config.neighbours.frames == 4


def test_from_python(film):
    statement = dpose.release_video(
        film, "b.mp4", 8, "1e-5", spans=[("0:01", None), (0, 0.5)], about=About(), public=True
    )
    assert statement.release["spans"] == [["0", "0.5"], ["1", "end"]]
    with refused("span-reversed"):
        dpose.release_video(film, "c.mp4", 8, "1e-5", spans=[(2, 1)])


COMMANDS = {
    "release-video": ["--epsilon", "8", "--delta", "1e-5"],
    "pixelize": ["--epsilon", "2", "--block", "8"],
    "obfuscate": ["--method", "pixelate"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_on_the_command_line(film, capsys, command):
    more = COMMANDS[command]
    spans = ["--from", "0.5", "--to", "0:01", "--from", "0.75", "--to", "1.5"]
    assert main([command, str(film), *more, *spans, "--public", "--out", "b.mp4"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "8 of 20 frames, from 0.5 s to 1.5 s; the rest is left out" in said
    assert "Spans that overlap or touch are taken as one" in said
    assert probe("b.mp4").frames == 8
    assert main(["verify", "b.mp4"]) == 0
    for wrong, words in (
        (["--from", "2", "--to", "1"], ["span-reversed"]),
        (["--from", "x"], ["span-malformed"]),
        (["--from", "1", "--from", "2", "--to", "3"], ["span-unpaired", "2 spans begin and 1 end"]),
        (["--from", "3"], ["span-without-frames", "2.5 s"]),
    ):
        command_refused(capsys, [command, str(film), *more, *wrong, "--public", "--out", "c.mp4"], *words)
    assert not list(film.parent.glob("*c.mp4*"))


def test_a_picture_has_no_spans(film, capsys, tmp_path):
    dpose_picture = tmp_path / "still.png"
    from dpose.media.images import write_image

    write_image(dpose_picture, np.zeros((32, 32, 3), np.uint8))
    arguments = ["pixelize", str(dpose_picture), "--epsilon", "2", "--from", "1", "--out", "o.png"]
    command_refused(capsys, arguments, "span-of-picture", "still.png")
    assert not (tmp_path / "o.png").exists()


def test_fractions_of_a_second_are_exact(film):
    assert spans_of([("0.1", None)])[0].start == Fraction(1, 10)
