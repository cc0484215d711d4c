import cv2
import pytest

from dpose.cli import main


def test_a_sheet_shows_as_many_as_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["scene", "sheet", "--look", "ward", "--count", "5", "--columns", "3", "--out", "sheet.png"]) == 0
    assert cv2.imread("sheet.png").shape == (2 * 256, 3 * 192, 3)


@pytest.mark.parametrize(
    ("arguments", "word"), [(["--look", "night"], "night"), (["--split", "dev"], "dev"), (["--count", "0"], "count")]
)
def test_mistakes_are_told_in_a_line(tmp_path, monkeypatch, capsys, arguments, word):
    monkeypatch.chdir(tmp_path)
    assert main(["scene", "sheet", "--out", "sheet.png", *arguments]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert word in line
    assert not (tmp_path / "sheet.png").exists()
