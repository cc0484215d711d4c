"""Releasing commands on files: the true ones stand, faults are flagged, and no account of ours counts it."""

import pytest

from dpose.cli import main
from dpose.privacy.keys import state_folder
from dpose_lab.audits.mechanism_audit import audit_release_command
from dpose_lab.audits.release_files import CELLS, COMMANDS, file_mechanism
from refusals import refused
from tiers import rest_slow

BUDGETS = {"pixelize": ("1", "0", 24 * CELLS), "release-video": ("4", "1e-5", 12 * CELLS)}


@pytest.mark.parametrize("fault", [None, "half-noise", "noise-missing"])
@pytest.mark.parametrize("name", rest_slow(COMMANDS))
def test_true_commands_stand_and_faults_are_flagged(name, fault):
    if name == "release-video" and fault == "noise-missing":
        pytest.skip("what half the noise shows, none shows")
    epsilon, delta, samples = BUDGETS[name]
    # a true claim is to be flagged almost never, a fault as often as users would see it
    alpha = 0.05 if fault else 1e-3
    found = audit_release_command(name, main, epsilon, delta, samples=samples, plant=fault, alpha=alpha)
    assert found.flagged == (fault is not None)
    assert bool(found.planted) == (fault is not None)
    assert found.samples == samples
    assert not (state_folder() / "account.sqlite").exists()


def test_the_whole_of_what_is_hidden_differs_between_the_inputs():
    with file_mechanism("pixelize", main, "1", plant="noise-missing") as mechanism:
        first, second = mechanism.first(CELLS), mechanism.second(CELLS)
    # one pixel of 64 by 255 gray levels, rounded
    assert set(first - second) == {4.0}


def test_mistakes_are_one_line(capsys):
    for arguments, words in (
        (["pixelise", "--epsilon", "1"], "choose one of pixelize"),
        (["pixelize", "--epsilon", "1", "--plant", "same-batch"], "choose one of half-noise"),
        (["pixelize", "--epsilon", "1", "--samples", "10"], "use at least 100"),
        (["release-video", "--epsilon", "1"], "release-video released 0 of 1 files"),
    ):
        assert main(["audit", "release", *arguments]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert words in line


def test_the_command_prints_what_it_found(capsys, tmp_path):
    asked = ["audit", "release", "pixelize", "--epsilon", "1", "--samples", "256", "--plant", "noise-missing"]
    assert main([*asked, "--out", str(tmp_path / "found.json")]) == 1
    assert "FLAGGED" in capsys.readouterr().out
    assert '"mechanism": "pixelize"' in (tmp_path / "found.json").read_text()


def test_without_a_command_there_is_nothing_to_audit():
    with refused("command-unknown"), file_mechanism("gaussian", main, "1"):
        pass
