"""The commands for videos as they are typed: what is told, what is written, one line for a mistake."""

from pathlib import Path

import pytest

from clips import write
from dpose.cli import main
from dpose.media.video import probe

BASIC = ["--epsilon", "8", "--delta", "1e-5", "--neighbours", "pixels:4"]


@pytest.fixture(autouse=True)
def _local(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    write(Path("a.mp4"))


def shown(capsys):
    """What was printed, without line breaks."""
    return " ".join(capsys.readouterr().out.split())


def test_release_and_verify(capsys):
    assert main(["release-video", "a.mp4", *BASIC, "--out", "b.mp4"]) == 0
    told = shown(capsys)
    before, after = told.split("This protects any 4 pixels of the clip")
    assert "gray levels a pixel" in before
    assert "a whole frame has epsilon" in before
    assert "a.mp4 -> b.mp4, b.mp4.privacy.json" in after
    assert main(["verify", "b.mp4"]) == 0
    assert "8 is claimed" in shown(capsys)


def test_what_is_the_same_of_several_videos_is_said_once(capsys):
    for name in ("a", "b"):
        write(Path(f"{name}.mp4"), size=(160, 120), codec="mpeg4" if name == "b" else "libx264")
    assert main(["release-video", "a.mp4", "b.mp4", *BASIC, "--explain"]) == 0
    explained = shown(capsys)
    assert explained.count("gray levels a pixel") == explained.count("WARNING") == 1
    assert explained.endswith("b.mp4: as a.mp4")
    assert main(["release-video", "a.mp4", "b.mp4", *BASIC, "--out", "out"]) == 0
    told = shown(capsys)
    assert told.count("gray levels a pixel") == told.count("WARNING") == 1
    assert "b.mp4 -> out/000002.mp4" in told


def test_explain_releases_nothing(capsys, tmp_path):
    assert (
        main(["release-video", "a.mp4", "--epsilon", "1", "--delta", "1e-5", "--neighbours", "frame", "--explain"]) == 0
    )
    assert "WARNING: this will be mostly noise" in shown(capsys)
    assert [p.name for p in tmp_path.iterdir()] == ["a.mp4"]


def test_folders_operators_and_clipping(capsys):
    Path("in/deep").mkdir(parents=True)
    for name, size in (("in/a.mp4", (48, 32)), ("in/deep/b.mkv", (64, 32))):
        write(Path(name), size=size)
    Path("in/notes.txt").write_text("passed over")
    more = [
        "--operator",
        "low-pass",
        "--set",
        "k=300",
        "--set",
        "pool=2",
        "--set",
        "clip_norm=2000",
        "--set",
        "clip_segment=true",
    ]
    assert main(["release-video", "in", *BASIC, *more, "--out", "out"]) == 0
    assert "Each file has this epsilon for itself" in shown(capsys)
    assert sorted(p.name for p in Path("out").iterdir()) == [
        "000001.mp4",
        "000001.mp4.privacy.json",
        "000002.mp4",
        "000002.mp4.privacy.json",
    ]
    assert main(["verify", "out"]) == 0


def test_paper_mode(capsys):
    paper = ["release-video", "a.mp4", "--set", "paper=true", "--set", "k=60", "--epsilon", "8", "--delta", "1e-4"]
    assert main([*paper, "--out", "b.mp4"]) == 0
    told = shown(capsys)
    assert "NOTHING IS GUARANTEED" in told
    assert "quadratic in the pixels" in told
    assert main(["verify", "b.mp4"]) == 0
    assert "nothing is claimed" in shown(capsys)


def test_obfuscation_says_that_it_guarantees_nothing(capsys):
    for method in ("isr-16x12", "blur", "pixelate"):
        more = ["--again", "--seed", "1"]
        assert main(["obfuscate", "a.mp4", "--method", method, "--out", f"{method}.mp4", *more]) == 0
        assert "NOTHING IS GUARANTEED" in shown(capsys)
        assert probe(f"{method}.mp4").frames == 9
        assert main(["verify", f"{method}.mp4"]) == 0
        assert "nothing is claimed" in shown(capsys)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["release-video", "a.mp4", *BASIC], ["--out"]),
        (["release-video", "absent.mp4", *BASIC, "--out", "b.mp4"], ["absent.mp4"]),
        (["release-video", "text.mp4", *BASIC, "--out", "b.mp4"], ["text.mp4"]),
        (["release-video", "empty.mp4", *BASIC, "--out", "b.mp4"], ["empty.mp4"]),
        (["release-video", "notes.txt", *BASIC, "--out", "b.mp4"], ["notes.txt", "neither picture nor video"]),
        (["release-video", "a.mp4", *BASIC, "--out", "a.mp4"], ["overwrite an original"]),
        (["release-video", "a.mp4", *BASIC, "--out", "b.avi"], ["b.avi"]),
        (["release-video", "a.mp4", *BASIC, "--set", "k=9999", "--out", "b.mp4"], ["a.mp4", "9,999 values", "4,608"]),
        (["release-video", "a.mp4", "--epsilon", "8", "--delta", "0", "--out", "b.mp4"], ["delta", "0"]),
        (["release-video", "a.mp4", "--epsilon", "8", "--delta", "1.5", "--out", "b.mp4"], ["delta"]),
        (["release-video", "a.mp4", "--epsilon", "-1", "--delta", "1e-5", "--out", "b.mp4"], ["epsilon"]),
        (["release-video", "a.mp4", *BASIC, "--operator", "magic", "--out", "b.mp4"], ["operator", "low-pass"]),
        (["release-video", "a.mp4", *BASIC, "--set", "paper=true", "--out", "b.mp4"], ["neighbours", "one frame"]),
        (["obfuscate", "a.mp4", "--method", "mosaic", "--out", "b.mp4"], ["method", "face-blur"]),
        (["obfuscate", "a.mp4", "--method", "blur"], ["--out"]),
    ],
)
def test_one_line_for_every_mistake(capsys, tmp_path, arguments, words):
    Path("text.mp4").write_text("no video")
    Path("empty.mp4").write_bytes(b"")
    Path("notes.txt").write_text("no video either")
    before = sorted(p.name for p in tmp_path.iterdir())
    assert main(arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    for word in words:
        assert word in lines[0]
    left = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert sorted(p.name for p in left) == before


def test_a_file_without_video_stops_none_of_the_others(capsys):
    Path("in").mkdir()
    write(Path("in/b.mp4"), frames=8, size=(64, 48))
    for name in ("a.mp4", "c.mp4"):
        Path("in", name).write_text("no video")
    asked = ["release-video", "in", *BASIC]
    assert main([*asked, "--explain"]) == 0
    assert "skipped: in/a.mp4: " in shown(capsys)
    assert main([*asked, "--out", "out"]) == 1
    out, error = capsys.readouterr()
    assert "not released: in/a.mp4: " in out
    assert "not released: in/c.mp4: " in out
    assert "2 of 3 files were not released" in error
    (line,) = [line for line in out.splitlines() if " -> " in line]
    assert all(Path(name).exists() for name in line.partition(" -> ")[2].split(", "))
    Path("in/b.mp4").unlink()
    assert main([*asked, "--out", "none"]) == 2
    out, error = capsys.readouterr()
    assert out.count("not released: ") == 2
    assert "2 of 2 files were not released" in error
    assert not Path("none").exists()


def test_a_video_that_ends_early_leaves_nothing(capsys, tmp_path):
    source = write(Path("cut.avi"), frames=60, codec="mpeg4")
    source.write_bytes(source.read_bytes()[:-4000])
    assert main(["release-video", "cut.avi", *BASIC, "--out", "out/b.mp4"]) == 2
    assert "cut.avi" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == ["a.mp4", "cut.avi"]
