"""Boxes of faces: found, written, corrected by a person, given back; then these alone are obscured."""

import csv
import json

import numpy as np
import pytest

from clips import write
from dpose.account import charges
from dpose.cli import main
from dpose.media.images import read_pixels, write_image
from dpose.media.video import probe, read_frames
from dpose.release.boxes import FoundBox, leave_open, matched, read_boxes, write_boxes
from dpose.release.faces import FaceFinder
from dpose.release.finding import find_boxes
from dpose.release.grid import Shape
from dpose.release.items import Work
from dpose.release.jobs import find_jobs
from dpose.release.obfuscate import Obfuscator
from dpose.release.originals import picture_original
from dpose.release.verify import verify_release
from refusals import command_refused, refused

BOXES = (FoundBox("a/1.png", 1, 0, 4, 6, 20, 10), FoundBox("b/1.png", 2, 0, 30, 20, 8, 9))
HEAD = "file,number,frame,left,top,width,height\n"


@pytest.fixture(autouse=True)
def _local(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def picture(path, seed=0, size=(48, 64)):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3)).astype(np.uint8)
    write_image(path, pixels)
    return path


@pytest.fixture
def two(tmp_path):
    return [picture(tmp_path / "in" / name / "1.png", seed) for seed, name in enumerate("ab")]


def changed(before, after):
    differs = (read_pixels(before) != read_pixels(after)).any(axis=2)
    rows, columns = np.nonzero(differs)
    return (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) if differs.any() else None


def test_a_preview_says_that_films_are_not_drawn(tmp_path, capsys, monkeypatch):
    finder = FaceFinder(Finds((10.0, 20.0, 20.0, 30.0)), "a finder for tests")
    monkeypatch.setattr("dpose.release.faces.face_finder", lambda model=None: finder)
    write(tmp_path / "c.mp4", frames=3)
    words = ["obfuscate", "c.mp4", "--method", "pixelate", "--boxes-out", "b.csv", "--preview", "look"]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "films are not drawn: 1 with boxes" in told
    assert "0 pictures" not in told
    assert not (tmp_path / "look").exists()


@pytest.mark.parametrize("name", ["boxes.json", "boxes.csv"])
def test_what_is_written_is_read(tmp_path, name):
    write_boxes(tmp_path / name, BOXES)
    assert read_boxes(tmp_path / name) == BOXES
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "data",
    [
        (HEAD + "a.png,1,0,4.2,6,20,10\n").encode("utf-8-sig"),
        (HEAD + "a.png,1,0,4.2,6,20,10\n").encode("utf-16"),
        (HEAD + "a.png,1,0,4.2,6,20,10\n").replace(",", ";").encode(),
        (HEAD + "a.png,1,0,4.2,6,20,10\n").replace(",", "\t").encode(),
        (HEAD + "a.png,1,0,4.2,6,20,10\n,,,,,,\n\n").replace("\n", "\r\n").encode(),
        b"height,width,top,left,file,who\n10,20,6,4.2,a.png,Ann\n",
        b"file;left;top;width;height\na.png;4,2;6;20;10\n",
    ],
)
def test_what_spreadsheets_make_of_it(tmp_path, data):
    (tmp_path / "b.csv").write_bytes(data)
    assert read_boxes(tmp_path / "b.csv") == (FoundBox("a.png", 1, 0, 4, 6, 21, 10),)


def test_json_by_hand(tmp_path):
    rows = [
        {"file": "in\\a.png", "left": "1", "top": 2.0, "width": 3, "height": 4},
        {"file": "b.png", "number": 1, "frame": None, "left": -1, "top": 0, "width": 3, "height": 4},
    ]
    (tmp_path / "b.json").write_text(json.dumps(rows))
    assert [(box.file, box.number) for box in read_boxes(tmp_path / "b.json")] == [("in/a.png", 2), ("b.png", 1)]


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("b.txt", "", "boxes-suffix-unknown"),
        ("b.json", "", "boxes-malformed"),
        ("b.json", "{}", "boxes-malformed"),
        ("b.json", "[1]", "boxes-malformed"),
        ("b.json", "[" * 100_000, "boxes-malformed"),
        ("b.csv", "", "boxes-malformed"),
        ("b.csv", "file,left\na,1\n", "boxes-malformed"),
        ("b.csv", HEAD + "a,1,0,x,0,1,1\n", "box-malformed"),
        ("b.csv", HEAD + "a,1,0,0,0,0,1\n", "box-malformed"),
        ("b.csv", HEAD + "a,1,0,0,0,nan,1\n", "box-malformed"),
        ("b.csv", HEAD + "a,1,-1,0,0,1,1\n", "box-malformed"),
        ("b.csv", HEAD + ",1,0,0,0,1,1\n", "box-malformed"),
        ("b.csv", HEAD + "a,1,0,0,0,1\n", "box-malformed"),
        ("b.csv", HEAD + "a,1,0,0,0,1,1\na,1,0,0,0,2,2\n", "box-number-twice"),
    ],
)
def test_what_is_no_box(tmp_path, name, text, code):
    (tmp_path / name).write_text(text)
    with refused(code, name):
        read_boxes(tmp_path / name)


def test_kept_open_by_number():
    assert leave_open(BOXES, "2") == BOXES[:1]
    assert leave_open(BOXES, "2, 1") == ()
    for wrong in ("3", "1,x", "0", "1-2"):
        with refused("box-number-unknown"):
            leave_open(BOXES, wrong)


def test_boxes_find_their_files(two, tmp_path):
    jobs = find_jobs(["in"], tmp_path / "out", archives=False)
    given, left = matched(BOXES, jobs)
    assert [given[str(path)] for path in two] == [BOXES[:1], BOXES[1:]]
    assert left == ()
    for name in ("in/a/1.png", str(two[0]), "elsewhere/a/1.png"):
        found, _ = matched([FoundBox(name, 1, 0, 0, 0, 1, 1)], jobs)
        assert [len(found[str(path)]) for path in two] == [1, 0]
    with refused("box-file-ambiguous"):
        matched([FoundBox("1.png", 1, 0, 0, 0, 1, 1)], jobs)
    with refused("box-files-unknown"):
        matched([FoundBox("c.png", 1, 0, 0, 0, 1, 1)], jobs)
    assert matched([*BOXES, FoundBox("c.png", 3, 0, 0, 0, 1, 1)], jobs)[1] == ("c.png",)


@pytest.mark.parametrize("method", ["blur", "pixelate", "face-blur"])
def test_these_boxes_alone_are_obscured(two, tmp_path, capsys, method):
    write_boxes(tmp_path / "b.csv", BOXES)
    done = main(["obfuscate", "in", "--method", method, "--boxes", "b.csv", "--out", "out", "--keep-names"])
    assert done == 0
    for path, box in zip(two, BOXES, strict=True):
        out = tmp_path / "out" / path.relative_to(tmp_path / "in")
        left, top, right, bottom = changed(path, out)
        assert box.left <= left < right <= box.left + box.width
        assert box.top <= top < bottom <= box.top + box.height
        statement, line = verify_release(out)
        assert statement.kind.value == "none"
        assert "nothing is claimed" in line
        assert any("1 boxes are obscured, as they were given" in text for text in statement.caveats)
        (charge,) = charges(of=picture_original(path)[0].marks)
        assert charge.events == ()
    assert not list(tmp_path.rglob("*.npz"))
    # other boxes are another release
    write_boxes(tmp_path / "c.csv", BOXES[:1])
    again = ["obfuscate", "in/a", "--method", method, "--boxes", "c.csv", "--out", "out2"]
    command_refused(capsys, again, "released-before")


def test_kept_and_bare_files_are_said(two, tmp_path, capsys):
    write_boxes(tmp_path / "b.json", BOXES)
    words = ["obfuscate", "in", "--method", "blur", "--boxes", "b.json", "--keep", "1", "--out", "out", "--keep-names"]
    assert main(words) == 0
    assert "without a box, and shown as they are: 1 (in/a/1.png)" in capsys.readouterr().out
    assert changed(two[0], tmp_path / "out/a/1.png") is None
    assert changed(two[1], tmp_path / "out/b/1.png")


def test_a_box_outside_costs_its_file_alone(two, tmp_path, capsys):
    write_boxes(tmp_path / "b.csv", [BOXES[0], FoundBox("b/1.png", 2, 0, 64, 0, 5, 5)])
    words = ["obfuscate", "in", "--method", "blur", "--boxes", "b.csv", "--out", "out"]
    command_refused(capsys, words, "box-outside-picture", "box 2", "1 of 2 files", code=1)
    assert len(list((tmp_path / "out").iterdir())) == 1
    for frame, method, code in ((0, "isr-16x12", "boxes-without-place"), (3, "blur", "box-outside-picture")):
        with refused(code):
            Obfuscator(method, Shape(3, 48, 64, 3), boxes=[FoundBox("a", 1, frame, 0, 0, 9, 9)])
    shown = Obfuscator("blur", Shape(1, 48, 64, 3), boxes=[FoundBox("a", 1, 0, -5, -5, 900, 900)])
    frame = read_pixels(two[0])
    assert (next(iter(shown.run([frame]))) != frame).any(axis=2).mean() > 0.9  # what reaches beyond is cut


class Finds:
    """Finds one place in every picture."""

    def __init__(self, place):
        self.place = place

    def __call__(self, frame):
        return [self.place]


def looking(place=(10.0, 20.0, 20.0, 30.0), **more):
    return Work(method="face-blur", detector=FaceFinder(Finds(place), "a finder for tests"), hold=1, **more)


def test_what_was_found_and_given_back_is_what_would_have_been_blurred(two, tmp_path):
    film = write(tmp_path / "in" / "c.mp4", frames=5)
    (tmp_path / "in" / "bad.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    jobs = find_jobs(["in"], tmp_path / "out", archives=False)
    failed, work = [], looking()
    boxes = find_boxes(work, jobs, failed.append, lambda: None)
    assert [error.code for error in failed] != []
    assert [(b.file, b.number, b.frame) for b in boxes] == [
        ("a/1.png", 1, 0),
        ("b/1.png", 2, 0),
        *(("c.mp4", 3 + frame, frame) for frame in range(5)),
    ]
    assert not list(charges(of=picture_original(two[0])[0].marks))  # nothing was released
    frames = [frame.pixels for frame in read_frames(probe(film))]
    shape = Shape(5, 32, 48, 3)
    found = list(Obfuscator("face-blur", shape, finder=work.finder, hold=1).run(iter(frames)))
    given = list(Obfuscator("face-blur", shape, boxes=boxes[2:]).run(iter(frames)))
    assert np.array_equal(found, given)


def test_the_command_finds_draws_and_obscures(two, tmp_path, capsys, monkeypatch):
    finder = FaceFinder(Finds((10.0, 20.0, 20.0, 30.0)), "a finder for tests")
    monkeypatch.setattr("dpose.release.faces.face_finder", lambda model=None: finder)
    words = ["obfuscate", "in", "--method", "pixelate", "--boxes-out", "b.csv"]
    assert main([*words, "--preview", "look"]) == 0
    assert "2 boxes in 2 of 2 files, in b.csv" in capsys.readouterr().out
    assert not (tmp_path / "released").exists()
    assert [row["file"] for row in csv.DictReader((tmp_path / "b.csv").open())] == ["a/1.png", "b/1.png"]
    assert (read_pixels(tmp_path / "look/a/1.png.png") != read_pixels(two[0])).any()
    assert (tmp_path / "look/a/1.png.png").stat().st_mode & 0o77 == 0  # nothing is obscured in it
    command_refused(capsys, [*words, "--out", "out"], "output-exists", "b.csv")
    (tmp_path / "b.csv").unlink()
    assert main([*words, "--out", "out", "--keep-names"]) == 0
    assert changed(two[0], tmp_path / "out/a/1.png") == (19, 9, 31, 21)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--method", "blur", "--keep", "1", "--out", "o"], "option-needs-another"),
        (["--method", "face-blur", "--preview", "p", "--out", "o"], "option-needs-another"),
        (["--method", "blur", "--boxes", "b.csv", "--boxes-out", "c.csv", "--out", "o"], "boxes-both-ways"),
        (["--method", "blur", "--boxes", "none.csv", "--out", "o"], "file-missing"),
        (["--method", "blur", "--boxes-out", "c.xml", "--out", "o"], "boxes-suffix-unknown"),
        (["--method", "blur", "--detector", "x.onnx", "--out", "o"], "detector-without-faces"),
        (["--method", "blur"], "out-missing"),
        (["--method", "blur", "--from", "1", "--out", "o"], "span-of-picture"),
    ],
)
def test_mistakes_are_one_line(two, tmp_path, capsys, words, code):
    write_boxes(tmp_path / "b.csv", BOXES)
    command_refused(capsys, ["obfuscate", "in", *words], code)


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
@pytest.mark.parametrize("method", ["isr-16x12", "blur", "pixelate"])
def test_one_picture_of_any_kind(tmp_path, method, suffix):
    deep = np.random.default_rng(0).integers(0, 65_536, (31, 45)).astype(np.uint16)
    write_image(tmp_path / "a.png", deep)
    assert main(["obfuscate", "a.png", "--method", method, "--out", f"o{suffix}"]) == 0
    shown = read_pixels(tmp_path / f"o{suffix}")
    assert shown.shape == (31, 45)
    assert shown.dtype == np.uint8
    assert verify_release(tmp_path / f"o{suffix}")[0].release["shape"] == {"frames": None, "height": 31, "width": 45}


def test_a_picture_that_was_exchanged_is_found_out(two, tmp_path):
    assert main(["obfuscate", str(two[0]), "--method", "blur", "--out", "o.png"]) == 0
    data = (tmp_path / "o.png").read_bytes()
    other = picture(tmp_path / "x.png", 9).read_bytes()
    assert data[:8] == other[:8]
    at = data.index(b"IDAT") + 10
    (tmp_path / "o.png").write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with refused(("file-of-other-statement", "picture-damaged", "picture-undecodable", "statement-unreadable")):
        verify_release(tmp_path / "o.png")
