"""Released files are numbered; which is which stays with the user; numbering goes on and overwrites nothing."""

import json
import stat

import numpy as np
import pytest

from clips import write as write_clip
from dpose.cli import main
from dpose.media.images import write_image
from dpose.release.jobs import first_number, known_names, names_file, remember_names
from refusals import refused

PICTURE = np.full((32, 48, 3), 90, np.uint8)
BASIC = ["--epsilon", "2", "--neighbours", "pixels:4", "--block", "16"]
VIDEO = ["--epsilon", "8", "--delta", "1e-5", "--neighbours", "pixels:4"]


@pytest.fixture(autouse=True)
def _local(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for shade, name in enumerate(("mrs-smith-ward-7.png", "deep/mr-jones.jpg")):
        write_image(tmp_path / "in" / name, PICTURE + np.uint8(20 * shade))
    write_clip(tmp_path / "in" / "night-shift.mp4")


def test_no_name_travels_unless_it_is_asked_for(tmp_path, capsys):
    assert main(["pixelize", "in", *BASIC, "--out", "out"]) == 0
    found = sorted(p.name for p in (tmp_path / "out").rglob("*"))
    assert [name for name in found if name.endswith(".npz")] == ["000001.npz", "000002.npz"]
    assert [name for name in found if name.endswith(".mp4")] == ["000003.mp4"]
    for path in (tmp_path / "out").iterdir():
        for word in ("smith", "ward", "jones", "night"):
            assert word not in path.name
            assert word.encode() not in path.read_bytes()
    assert str(names_file(tmp_path / "out")) in capsys.readouterr().out
    assert main(["pixelize", "in", *BASIC, "--keep-names", "--again", "--out", "kept"]) == 0
    assert (tmp_path / "kept" / "deep" / "mr-jones.npz").is_file()
    assert "public with the files" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["release-video", *VIDEO], ["obfuscate", "--method", "blur"]])
def test_videos_too(tmp_path, command):
    name, *options = command
    assert main([name, "in", *options, "--out", "out"]) == 0
    pictures = [] if name == "release-video" else ["000001.png", "000002.png"]
    film = f"{len(pictures) + 1:06d}.mp4"
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [*pictures, film, f"{film}.privacy.json"]
    assert known_names(tmp_path / "out")[film[:6]].endswith("night-shift.mp4")


def test_which_is_which_stays_with_the_user(tmp_path):
    main(["pixelize", "in", *BASIC, "--out", "out"])
    file = names_file(tmp_path / "out")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert tmp_path / "out" not in file.parents
    content = json.loads(file.read_text())
    assert content["names"] == {
        "000001": str(tmp_path / "in/deep/mr-jones.jpg"),
        "000002": str(tmp_path / "in/mrs-smith-ward-7.png"),
        "000003": str(tmp_path / "in/night-shift.mp4"),
    }


def test_numbering_goes_on_and_overwrites_nothing(tmp_path):
    for _ in range(2):
        main(["pixelize", "in/mrs-smith-ward-7.png", *BASIC, "--public", "--out", "out"])
    first = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert sorted(first) == ["000001.npz", "000001.png", "000002.npz", "000002.png"]
    main(["release-video", "in", *VIDEO, "--out", "out"])
    assert (tmp_path / "out" / "000003.mp4").is_file()
    for name, content in first.items():
        assert (tmp_path / "out" / name).read_bytes() == content
    # a number that was given away is not given again, even where its file is gone
    (tmp_path / "out" / "000003.mp4").unlink()
    (tmp_path / "out" / "000003.mp4.privacy.json").unlink()
    assert first_number(tmp_path / "out") == 4
    # nor is one of a file that nobody remembers
    (tmp_path / "out" / "000009.png").write_bytes(b"")
    assert first_number(tmp_path / "out") == 10


def test_a_name_that_the_user_gave_is_used(tmp_path):
    assert main(["pixelize", "in/mrs-smith-ward-7.png", *BASIC, "--out", "x.png"]) == 0
    assert (tmp_path / "x.png").is_file()
    assert not known_names(tmp_path)


def test_explaining_writes_no_names(tmp_path):
    assert main(["pixelize", "in", *BASIC, "--explain"]) == 0
    assert main(["release-video", "in", *VIDEO, "--explain"]) == 0
    assert not names_file(tmp_path / "released").parent.exists()


def test_two_commands_at_once_share_no_number(tmp_path):
    remember_names(tmp_path / "out", {"000001": str(tmp_path / "a.png")})
    with refused("release-number-taken"):
        remember_names(tmp_path / "out", {"000001": str(tmp_path / "b.png")})
    assert known_names(tmp_path / "out") == {"000001": str(tmp_path / "a.png")}
