"""The table of commands: each is imported and built when it is named, and `--help` lists it without that."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from dpose import extensions
from dpose.cli import app, main
from dpose.cli.app import OWN, CommandEntry, GroupEntry, root, table
from dpose.training.plan import TrainingPlan
from refusals import command_refused
from run_folders import finished_run


def command(words):
    found = root()
    for word in words.split():
        found = found.commands[word]
    return found


def fresh(*words):
    """The modules that `dpose WORDS` loads in a process of its own."""
    code = (
        "import contextlib, io, json, sys\n"
        "from dpose.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    assert main(json.loads(sys.argv[1])) == 0\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, json.dumps(words)], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("words", table())
def test_help_without_building_is_the_built_commands_own(words):
    entry, built = table()[words], command(words)
    assert " ".join(built.help.split()) == " ".join(entry.help.split())
    assert entry.help
    assert (isinstance(entry, GroupEntry)) == hasattr(built, "commands")


def test_every_group_above_a_command_is_in_the_table():
    for words in table():
        above = words.rpartition(" ")[0]
        assert not above or isinstance(table()[above], GroupEntry)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--version"], set()),
        (["--help"], set()),
        (["audit", "--help"], set()),
        (["attack", "--help"], set()),
        (["keys", "--help"], {"dpose.cli.artefacts"}),
    ],
)
def test_only_the_named_command_is_imported(words, named):
    loaded = fresh(*words)
    places = {entry.place.partition(":")[0] for entry in table().values() if isinstance(entry, CommandEntry)}
    # the table of rendered people's commands is in the module that has them
    assert loaded & (places - {"dpose_scene.commands"}) == named


def test_a_command_of_this_package_needs_no_other_package():
    loaded = fresh("keys", "--help")
    assert not any(name.startswith(("dpose_lab", "dpose_scene")) for name in loaded)


def test_a_misspelt_command_is_refused_and_the_nearest_named(capsys):
    assert main(["trian", "--data", "x"]) == 2
    shown = capsys.readouterr().err
    assert "No such command 'trian'" in shown
    assert "'train'" in shown
    assert main(["data check", "coco:/x"]) == 2
    assert "No such command 'data check'" in capsys.readouterr().err
    assert main(["audit", "membershp"]) == 2
    assert "'membership'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["help"], "'help'. Say dpose --help"),
        (["audit", "help"], "'help'. Say dpose audit --help"),
        (["video", "x"], "'video'. Did you mean 'release-video'?"),
        (["xyzzy"], "'xyzzy'. Say dpose --help"),
    ],
)
def test_what_is_no_command_is_refused_with_what_may_be_meant(words, said, capsys):
    assert main(words) == 2
    assert capsys.readouterr().err == f"dpose: No such command {said}\n"


@pytest.mark.parametrize(
    ("words", "place", "said"),
    [
        ("keys", "dpose.runs.keys.list_keys", ""),
        (
            "pixelize . --epsilon 1 --out x",
            "dpose.release.jobs.find_jobs",
            "; the same command goes on, and counts again what was in work",
        ),
    ],
)
def test_ctrl_c_is_told(words, place, said, capsys, monkeypatch):
    def stopped(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(place, stopped)
    assert main(words.split()) == 130
    assert capsys.readouterr().err == f"dpose: stopped{said}\n"


def test_another_package_adds_commands_and_replaces_none(monkeypatch):
    added = SimpleNamespace(
        COMMANDS={
            "verify": CommandEntry("there.is_no:such"),
            "keys-again": CommandEntry("dpose.cli.artefacts:keys", "--discard", heading="More"),
        }
    )
    monkeypatch.setattr(extensions, "extensions", lambda group: (added,))
    for kept in (app._beside, app._built):
        kept.cache_clear()
    try:
        assert table()["verify"] is OWN["verify"]
        assert command("keys-again").help == command("keys").help
        assert "reproduce" not in root().commands
    finally:
        for kept in (app._beside, app._built):
            kept.cache_clear()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["pixelize", "", "--epsilon", "2", "--out", "blank"], "paths"),
        (["predict", "photo.jpg", ""], "sources"),
        (["predict", "photo.jpg", "--out", ""], "--out"),
        (["verify", ""], "run"),
        (["studio", "--folder", ""], "--folder"),
        (["train", "--config", ""], "--config"),
    ],
)
def test_an_empty_name_is_not_the_folder_one_is_in(words, named, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "private.png").write_bytes(b"x")
    assert main(words) == 2
    said = f"dpose: {named}: is empty; give a name, or . for this folder [name-empty]\n"
    assert capsys.readouterr().err == said


OWN_PARTS = """
from dataclasses import replace
from dpose import register_method
from dpose.pose.backbones import Backbone, register_backbone
from dpose.pose.codec import RegressionCodec, register_codec
from dpose.pose.data import SOURCES
from dpose.training.methods import METHODS
register_method(replace(METHODS["dp-sgd"], name="mine-sgd"))
register_backbone(Backbone("mine-net", build=print, stride=16))
register_codec("mine-codec", RegressionCodec.of)
SOURCES["mine"] = SOURCES["coco"]
"""
ASK_FOR_OWN = """
from dpose.errors import DposeError
from dpose.pose.backbones import backbone_named
from dpose.pose.codec import codec_of
from dpose.pose.data import DataSpec
from dpose.pose.model import PoseConfig
from dpose.training.plan import TrainingPlan
for ask in (
    lambda: TrainingPlan(method="mine-sgd", epsilon=8, delta=1e-5),
    lambda: codec_of(PoseConfig("nano", codec="mine-codec")),
    lambda: backbone_named("mine-net"),
    lambda: DataSpec.parse("mine:/data"),
):
    try:
        ask()
        print("known")
    except DposeError as error:
        print(error.line())
"""


def test_what_a_package_registers_is_known_in_a_fresh_process_and_else_it_is_said_how(tmp_path):
    (tmp_path / "mine_parts.py").write_text(OWN_PARTS)

    def asked():
        done = subprocess.run(
            [sys.executable, "-c", ASK_FOR_OWN],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()

    assert all("if it is your own" in line and "extend.md" in line for line in asked()[:3])
    (tmp_path / "mine-1.dist-info").mkdir()
    (tmp_path / "mine-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (tmp_path / "mine-1.dist-info" / "entry_points.txt").write_text("[dpose.registrations]\nmine = mine_parts\n")
    assert asked() == ["known"] * 4


def test_runs_that_watched_no_score_are_compared_without_a_picture(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    finished_run(
        tmp_path / "a", tmp_path / "state", TrainingPlan(delta=1e-5, noise_multiplier=2.0, steps=9, unit="image")
    )
    assert main(["compare", "a", "a"]) == 0
    out = capsys.readouterr().out
    assert "dp-sgd" in out
    assert "No picture is drawn: no run watched a score" in out
    command_refused(capsys, ["compare", "a", "--out", "a.png"], "watched-scores-missing")
    assert not list(tmp_path.glob("*.png"))
