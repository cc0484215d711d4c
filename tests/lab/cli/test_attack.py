"""`dpose attack` as it is typed: a folder with a page each time, mistakes in one line, nothing half-written."""

import json
from pathlib import Path

import pytest

from dpose.cli import main
from dpose_lab.attacks import reid as reid_module
from quick import quick  # noqa: F401
from refusals import command_refused

SMALL = [
    "--data",
    "synthetic:ward",
    "--identities",
    "4",
    "--learn-from",
    "12",
    "--set",
    "learn_pictures=2",
    "--set",
    "size=64x64",
]
FILES = {"index.html", "results.json", "results.md", "pictures.png"}


@pytest.fixture(autouse=True)
def _local(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")


def results(name):
    with open(f"{name}/results.json") as file:
        return json.load(file)


def test_reid_by_both_attackers_over_a_grid(capsys, tmp_path):
    grid = ["--block", "8,16", "--epsilon", "0.5", "--epsilon", "5", "--restore", "none,learned"]
    assert main(["attack", "reid", *SMALL, *grid, "--out", "r"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "An attack that fails proves nothing" in told
    assert "do not promise that a person is not recognised" in told
    assert "epsilon 0.5 comes to 2,048 and epsilon 5 comes to 20,480" in told
    assert "Pictures made so protect no one" in told
    assert {"cmc.png"} | FILES == {path.name for path in (tmp_path / "r").iterdir()}
    found = results("r")
    rows = [(row["key"], row["attacker"]) for row in found["results"]["rows"]]
    assert len(rows) == 1 + 2 * 8
    assert rows[0] == ("raw", "plain")
    assert sum(key.endswith("-learned") for key, _ in rows) == 8
    assert found["settings"]["restorations"] == ["none", "learned"]
    assert "restored as their names say" in told
    assert found["results"]["chance"]["rank1"] == 0.25
    assert found["software"]["dpose"]
    page = (tmp_path / "r" / "index.html").read_text()
    assert "the stronger one counts" in page
    assert 'src="data:' in page
    assert "http" not in page.split("</head>")[1]
    command_refused(capsys, ["attack", "reid", *SMALL, "--out", "r"], "[output-exists]")


def test_slices_are_attacked_by_one_who_has_the_originals_too(capsys):
    asked = ["--release", "ldp-slicing,ldp-slicing-unpruned", "--epsilon", "20", "--originals", "--attacker", "plain"]
    assert main(["attack", "reid", *SMALL, *asked, "--out", "o"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Of raw pictures" in told
    rows = results("o")["results"]["rows"]
    assert [(row["key"], row["attacker"]) for row in rows] == [
        ("raw", "plain"), ("ldp-slicing-e20", "plain"), ("ldp-slicing-e20", "originals"),
        ("ldp-slicing-unpruned-e20", "plain"), ("ldp-slicing-unpruned-e20", "originals"),
    ]  # fmt: skip
    assert [row["guarantee"] for row in rows[1::2]] == [
        "epsilon 80 for pictures that differ in at most one pixel; the paper counts 20, for one pixel of the pruned "
        "picture",
        "epsilon 20 for pictures that differ in at most one pixel",
    ]
    assert rows[2]["rank1"]["value"] == rows[4]["rank1"]["value"] == 1
    assert 1 < rows[2]["epsilon_at_least"] < 20 * 64 * 64


def test_all_four_on_the_public_view(capsys, tmp_path):
    assert main(["attack", "view", *SMALL[:-2], "--epochs", "1", "--set", "size=128x96", "--out", "v"]) == 0
    assert {path.name for path in (tmp_path / "v").iterdir()} == {
        "attributes", "linkage", "public-view.json", "reconstruct", "reid",
    }  # fmt: skip
    for name in ("attributes", "linkage", "reconstruct", "reid"):
        assert {path.name for path in (tmp_path / "v" / name).iterdir()} >= FILES
    found = json.loads((tmp_path / "v" / "public-view.json").read_text())
    assert set(found["figures"]) == {"rank1", "attributes", "auc"}
    for line in found["figures"].values():
        assert {"raw", "chance", "blur", "pixelize"} == set(line)
        for view in ("raw", "blur", "pixelize"):
            assert 0 <= line[view]["low"] <= line[view]["value"] <= line[view]["high"] <= 1


def test_clips_are_linked_both_ways_of_counting_pixels(capsys):
    asked = ["attack", "linkage", *SMALL, "--frames", "2", "--epsilon", "1", "--attacker", "plain", "--out", "l"]
    assert main(asked) == 0
    _, whole, each = results("l")["results"]["rows"]
    assert whole["guarantee"].startswith("epsilon 1 ")
    assert "pixels:1 in all" in whole["release"]
    assert each["guarantee"].startswith("epsilon 1/2 ")
    assert "pixels:1 in every frame" in each["release"]


def test_stopped_by_ctrl_c_nothing_is_left(monkeypatch, capsys, tmp_path):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(reid_module, "search", stop)
    assert main(["attack", "reid", *SMALL, "--out", "s"]) == 130
    assert not any(path.is_dir() for path in tmp_path.iterdir())
    assert main(["attack", "view", *SMALL, "--out", "s"]) == 130
    assert not any(path.is_dir() for path in tmp_path.iterdir())


def test_stopped_in_a_grid_what_is_done_is_kept(monkeypatch, capsys):
    attacked, true = [], reid_module.searched

    def searched(shown, *others):
        if len(attacked) == 3:
            raise KeyboardInterrupt
        attacked.append(shown.key)
        return true(shown, *others)

    monkeypatch.setattr(reid_module, "searched", searched)
    assert main(["attack", "reid", *SMALL, "--block", "4,8,16", "--attacker", "plain", "--out", "s"]) == 130
    assert "Not attacked: dpose pixelize, b 16, learned, epsilon 5 (stopped)" in " ".join(
        capsys.readouterr().out.split()
    )
    found = results("s")
    assert [row["key"] for row in found["results"]["rows"]] == attacked
    assert [one["why"] for one in found["not_attacked"]] == ["stopped"]


def test_an_unknown_restoration_is_one_line(capsys):
    command_refused(
        capsys, ["attack", "reid", *SMALL, "--restore", "magic", "--out", "u"], "restore", "learned, tv, none"
    )
    assert not Path("u").exists()


@pytest.mark.parametrize("attack", ["reid", "reconstruct", "attributes", "linkage"])
def test_what_cannot_be_released_is_said_and_the_rest_attacked(capsys, attack):
    grid = ["--block", "8,128", "--subdivide", "1,16", "--epsilon", "5"]
    clips = ["--frames", "2"] if attack == "linkage" else []
    assert main(["attack", attack, *SMALL, *grid, *clips, "--out", "g"]) == 1
    told = " ".join(capsys.readouterr().out.split())
    found = results("g")
    released = {row["key"] for row in found["results"]["rows"]} - {"raw"}
    assert {key.rsplit("-e", 1)[0] for key in released} == {"dp-b8-n1"}
    why = {one["key"].rsplit("-e", 1)[0]: one["why"] for one in found["not_attacked"]}
    assert set(why) == {"dp-b8-n16", "dp-b128-n1", "dp-b128-n16"}
    assert "cannot be divided into 16" in why["dp-b8-n16"]
    assert "larger than the picture" in why["dp-b128-n1"]
    assert why["dp-b8-n16"] in told
    assert "not attacked: " + why["dp-b8-n16"] in (Path("g") / "results.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "lspet:/data/lspet"], ("no people called 'lspet'",)),
        (["--data", "synthetic:ward:train"], ("cannot attack the split", "the attacker knows the rest")),
        (["--data", "synthetic:street"], ("street", "ward")),
        (["--data", "folder:nowhere"], ("no such folder",)),
        ([*SMALL, "--release", "blur"], ("no release called 'blur'", "gaussian-blur")),
        ([*SMALL, "--attacker", "lazy"], ("plain, adaptive",)),
        ([*SMALL, "--block", "8,x"], ("--block", "whole numbers")),
        ([*SMALL, "--block", "8", "--subdivide", "3"], ("cannot be divided",)),
        ([*SMALL, "--block", "128"], ("larger than the picture",)),
        ([*SMALL, "--epsilon", "5,none"], ("none",)),
        ([*SMALL, "--epsilon", "0"], ("epsilon",)),
        ([*SMALL, "--neighbours", "pixels:1/frame"], ("no frames",)),
        ([*SMALL[:-1], "size=63x64"], ("multiples of 8",)),
        ([*SMALL[:-1], "size=big"], ("HEIGHTxWIDTH",)),
        ([*SMALL, "--embedder", "nothing.onnx"], ("nothing.onnx",)),
    ],
)
def test_mistakes_are_one_line(capsys, tmp_path, arguments, words):
    command_refused(capsys, ["attack", "reid", *arguments, "--out", "x"], *words)
    assert not list(tmp_path.iterdir())
