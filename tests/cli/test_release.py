"""The release commands as they are typed: what is written, what is told, and one line for every mistake."""

import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from dpose.cli import main

PICTURE = cv2.GaussianBlur(
    np.random.default_rng(0).integers(0, 256, (96, 128, 3)).astype(np.uint8), (0, 0), 4
)
ROOT = Path(__file__).resolve().parents[2]
BASIC = ["--epsilon", "2", "--neighbours", "pixels:16", "--block", "16"]


@pytest.fixture(autouse=True)
def _local(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    cv2.imwrite("a.png", PICTURE)


def refused(capsys, arguments, *words):
    code = main([str(a) for a in arguments])
    lines = capsys.readouterr().err.strip().splitlines()
    assert code == 2, lines
    assert len(lines) == 1, lines
    for word in words:
        assert word in lines[0]


def shown(capsys):
    """What was printed, without line breaks."""
    return " ".join(capsys.readouterr().out.split())


def test_pixelize_restore_verify(capsys, tmp_path):
    assert main(["pixelize", "a.png", *BASIC, "--out", "out/"]) == 0
    told = shown(capsys)
    assert "This protects any 16 pixels of the picture" in told
    assert "an object of 100 x 100 pixels (a face) is protected with epsilon 1,250" in told
    regions = ["--epsilon", "2", "--block", "32", "--subdivide", "4", "--regions", "private"]
    assert main(["pixelize", "a.png", *regions, "--out", "out2"]) == 0
    assert "How it was released:" in shown(capsys)
    assert main(["restore", "out2/a.npz", "b.png"]) == 0
    assert np.array_equal(cv2.imread("b.png"), cv2.imread("out2/a.png"))
    capsys.readouterr()
    for target in ("out", "out2", "b.png", "out2/a.npz"):
        assert main(["verify", target]) == 0
    assert shown(capsys).count("is claimed") == 6


def test_public_masks_and_paper_mode(capsys):
    cv2.imwrite("mask.png", np.where(np.arange(128) < 64, 255, 0).astype(np.uint8)[None].repeat(96, 0))
    more = ["--epsilon", "2", "--block", "16", "--subdivide", "4"]
    assert main(["pixelize", "a.png", *more, "--regions", "public:mask.png", "--out", "public"]) == 0
    assert "was not made from this picture" in shown(capsys)
    assert (
        main(["pixelize", "a.png", *more, "--regions", "paper:mask.png", "--paper", "3", "--out", "paper"])
        == 0
    )
    assert "NOTHING IS GUARANTEED" in shown(capsys)
    assert main(["verify", "paper"]) == 0
    assert "nothing is claimed" in shown(capsys)


def test_explain_releases_nothing(capsys, tmp_path):
    assert main(["pixelize", "a.png", *BASIC, "--explain"]) == 0
    assert "gray levels on a cell's average" in shown(capsys)
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]


def test_a_seed_takes_the_guarantee_away(capsys):
    assert main(["pixelize", "a.png", *BASIC, "--seed", "1", "--out", "out"]) == 0
    assert "NOTHING IS GUARANTEED" in shown(capsys)


def test_a_folder_says_that_epsilons_add_up(capsys):
    cv2.imwrite("b.png", PICTURE)
    assert main(["pixelize", ".", *BASIC, "--out", "out", "--rename"]) == 0
    told = shown(capsys)
    assert "epsilons add up" in told
    assert told.count("This protects any") == 1


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (["--epsilon", "0"], ["epsilon"]),
        (["--epsilon", "nan"], ["epsilon"]),
        (["--epsilon", "-1"], ["epsilon"]),
        (["--epsilon", "1e99"], ["epsilon"]),
        (["--neighbours", "pixels:0"], ["neighbours"]),
        (["--neighbours", "pixels:99999999"], ["a.png", "only 12,288 pixels"]),
        (["--neighbours", "people:1"], ["people:1"]),
        (["--block", "0"], ["block"]),
        (["--block", "97"], ["a.png", "larger than the picture"]),
        (["--subdivide", "3", "--regions", "private"], ["subdivide", "1, 2, 4, 8, 16"]),
        (["--subdivide", "2"], ["regions"]),
        (["--subdivide", "2", "--regions", "public:small.png"], ["a.png", "mask has 5 x 4"]),
        (["--subdivide", "2", "--regions", "public:absent.png"], ["absent.png"]),
        (["--subdivide", "2", "--regions", "secret"], ["secret"]),
        (["--subdivide", "2", "--regions", "paper:small.png"], ["paper"]),
        (["--subdivide", "2", "--regions", "private", "--segmenter", "absent.onnx"], ["absent.onnx"]),
        (["--subdivide", "2", "--regions", "private", "--stage-one", "1"], ["share"]),
        (["--subdivide", "2", "--regions", "private", "--quantile", "1"], ["quantile"]),
        (["--threshold", "3"], ["--regions private"]),
        (["--delta", "1"], ["delta"]),
        (["--paper", "4"], ["paper"]),
        (["--out", "x.gif"], []),
    ],
)
def test_bad_options(capsys, tmp_path, changed, words):
    cv2.imwrite("small.png", np.zeros((4, 5), np.uint8))
    if changed == ["--out", "x.gif"]:
        (tmp_path / "x.gif").write_text("a file where a folder should be")
    refused(capsys, ["pixelize", "a.png", *BASIC, "--out", "out", *changed], *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("shape", "words"), [((1, 1), ["larger than the picture"]), ((1, 300), ["larger than the picture"])]
)
def test_pictures_that_are_too_small(capsys, tmp_path, shape, words):
    cv2.imwrite("tiny.png", np.zeros(shape, np.uint8))
    refused(capsys, ["pixelize", "tiny.png", *BASIC, "--out", "out"], "tiny.png", *words)
    assert not (tmp_path / "out").exists()


def test_broken_files(capsys, tmp_path):
    (tmp_path / "cut.png").write_bytes((tmp_path / "a.png").read_bytes()[:-50])
    (tmp_path / "cut.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    for name in ("cut.png", "cut.mp4", "absent.png"):
        refused(capsys, ["pixelize", name, *BASIC, "--out", "out"], name)
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file()]
    main(["pixelize", "a.png", *BASIC, "--out", "good"])
    data = bytearray((tmp_path / "good" / "a.npz").read_bytes())
    data[len(data) // 2] ^= 0x40
    (tmp_path / "bad.npz").write_bytes(data)
    capsys.readouterr()
    refused(capsys, ["restore", "bad.npz", "x.png"], "bad.npz")
    refused(capsys, ["restore", "absent.npz", "x.png"], "absent.npz")
    refused(capsys, ["restore", "good/a.npz", "x.gif"], "x.gif")
    refused(capsys, ["verify", "a.png"], "carries no privacy statement")
    refused(capsys, ["verify", "bad.npz"], "bad.npz")
    assert not (tmp_path / "x.png").exists()


def test_out_is_needed(capsys):
    refused(capsys, ["pixelize", "a.png", *BASIC], "--out")


def test_help_needs_no_torch():
    code = (
        "import sys, dpose.cli; code = dpose.cli.main(['pixelize', '--help']); "
        "sys.exit(code or ('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "--neighbours" in done.stdout
