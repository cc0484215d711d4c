"""Every command that the documentation shows is one: its options exist and take such values."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from dpose.cli.app import root

ROOT = Path(__file__).resolve().parents[2]


def commands():
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        for block in re.findall(r"```\w*\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                if line.removeprefix("    ").removeprefix("$ ").startswith("dpose "):
                    yield line


def parsed(line):
    """The command with its values, as `dpose` would understand the line; nothing runs."""
    command = root()
    context, arguments = None, shlex.split(line, comments=True)[1:]
    while hasattr(command, "commands"):
        name, command, arguments = command.resolve_command(typer.Context(command, parent=context), arguments)
    return command.make_context(name, list(arguments), parent=context)


@pytest.mark.parametrize("line", list(commands()))
def test_a_shown_command_is_understood(line):
    assert parsed(line).params


def test_one_that_is_misspelt_is_not():
    with pytest.raises(Exception, match="--epsilonn"):
        parsed("dpose train --data synthetic:ward --epsilonn 8")
