"""What is said, and when: settings that go wrong, clashes before the work, help for who types nothing."""

import numpy as np
import pytest

from dpose.cli import main
from dpose.media.images import encode_image, write_image
from labelled import coco


def said(capsys, *words):
    """The exit code, and what stands on standard output and standard error."""
    code = main(list(words))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "photo.png"
    write_image(path, np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8))
    return path


@pytest.mark.parametrize("words", [(), ("data",), ("statement",)])
def test_a_command_alone_is_help_and_no_error(capsys, words):
    code, out, err = said(capsys, *words)
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: dpose {' '.join([*words, '[OPTIONS] COMMAND'])}")
    assert len(out.splitlines()) > 5


def test_a_training_without_privacy_asks_for_it(capsys, tmp_path):
    code, _, err = said(capsys, "train", "--data", coco(tmp_path), "--out", str(tmp_path / "r"))
    assert code == 2
    assert "--epsilon and --delta" in err
    assert len(err.splitlines()) == 1


def test_a_batch_larger_than_the_data_is_said(capsys):
    words = ("plan", "--units", "100", "--epochs", "10", "--epsilon", "1", "--delta", "1e-5", "--batch-size")
    assert "512 is larger than the 100 units" in " ".join(said(capsys, *words, "512")[1].split())
    assert "is larger than" not in said(capsys, *words, "50")[1]


@pytest.mark.parametrize("delta", ["0.5", "0.2"])
def test_a_large_delta_of_a_release_is_refused(capsys, photo, tmp_path, delta):
    words = ("pixelize", str(photo), "--epsilon", "2", "--delta", delta, "--neighbours", "pixels:16", "--public")
    code, _, err = said(capsys, *words, "--out", str(tmp_path / "o.png"))
    assert code == 2
    assert "1e-5" in err


def test_what_a_folder_holds_besides_is_named_and_counted(capsys, photo, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    photo.rename(folder / "1.png")
    for name in ("notes.txt", "table.csv", ".hidden"):
        (folder / name).write_text("no picture")
    words = ("pixelize", str(folder), "--epsilon", "2", "--neighbours", "pixels:16", "--public")
    code, out, _ = said(capsys, *words, "--out", str(tmp_path / "o"))
    assert code == 0
    assert "2 (notes.txt, table.csv)" in out


def test_transparency_is_laid_on_white_and_said(capsys, tmp_path):
    pixels = np.dstack([np.full((48, 64, 3), 90, np.uint8), np.zeros((48, 64), np.uint8)])
    import cv2

    cv2.imwrite(str(tmp_path / "cut.png"), pixels)
    words = ("pixelize", str(tmp_path / "cut.png"), "--epsilon", "2", "--neighbours", "pixels:16", "--public")
    code, out, _ = said(capsys, *words, "--out", str(tmp_path / "o.png"))
    assert code == 0
    assert "transparent parts are laid on white" in out


def test_a_picture_of_any_suffix_is_released(capsys, photo, tmp_path):
    for name in ("photo.jfif", "noextension", "photo.jpe"):
        (tmp_path / name).write_bytes(encode_image(np.full((48, 64, 3), 90, np.uint8), ".jpg"))
        words = ("pixelize", str(tmp_path / name), "--epsilon", "2", "--neighbours", "pixels:16", "--public")
        assert said(capsys, *words, "--out", str(tmp_path / f"{name}.png"))[0] == 0
