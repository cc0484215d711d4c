"""Options that several commands share: a group of them stands in a command where its parameter stood."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from dpose.cli import main
from dpose.cli.options import expand_groups


@dataclass(frozen=True)
class Place:
    root: Annotated[str, typer.Option()]
    depth: Annotated[int, typer.Option(min=1)] = 2


@pytest.fixture
def command():
    app, calls = typer.Typer(), []

    @app.command()
    @expand_groups
    def walk(
        name: Annotated[str, typer.Option()], place: Place, *, fast: Annotated[bool, typer.Option()] = False
    ) -> None:
        """Walk there."""
        calls.append((name, place, fast))

    return typer.main.get_command(app), calls


def test_a_group_of_options_is_unfolded_where_it_stood_and_folded_for_the_call(command):
    walk, calls = command
    assert [option.name for option in walk.params][:4] == ["name", "root", "depth", "fast"]
    assert walk.help == "Walk there."
    walk.main(["--root", "here", "--name", "a"], standalone_mode=False)
    walk.main(["--name", "b", "--fast", "--root", "there", "--depth", "3"], standalone_mode=False)
    assert calls == [("a", Place("here"), False), ("b", Place("there", 3), True)]


@pytest.mark.parametrize("given", [["--name", "a"], ["--name", "a", "--root", "r", "--depth", "0"]])
def test_an_option_of_a_group_keeps_its_rules(command, given):
    walk, calls = command
    with pytest.raises(typer.BadParameter.__mro__[2]):
        walk.main(given, standalone_mode=False)
    assert not calls


def test_a_help_that_no_terminal_limits_fits_forty_lines(capsys, monkeypatch):
    lengths = []
    for columns in (None, "80"):
        monkeypatch.delenv("COLUMNS", raising=False)
        if columns:
            monkeypatch.setenv("COLUMNS", columns)
        assert main(["pixelize", "--help"]) == 0
        lengths.append(len(capsys.readouterr().out.strip().splitlines()))
    assert lengths[0] <= 40 < lengths[1]


def test_help_says_which_commands_are_of_research(capsys):
    for words, own, others in ((["--help"], "train", "reproduce"), (["audit", "--help"], "claim", "mechanism")):
        assert main(words) == 0
        product, _, research = capsys.readouterr().out.partition("Research (dpose_lab):")
        assert f"\n  {own} " in product
        assert f"\n  {others} " in research
