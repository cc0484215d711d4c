"""Every command that the documentation shows is one: its options exist and take such values."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from dpose.cli.app import root

ROOT = Path(__file__).resolve().parents[2]


PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"```\w*\n(.*?)```", re.DOTALL)


def commands():
    for page in PAGES:
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
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


def spans(page):
    """Commands within a sentence, of which some are shown in part."""
    for span in re.findall(r"`(dpose [^`]+)`", BLOCK.sub("", page.read_text(encoding="utf-8"))):
        yield " ".join(span.split())


def unknown_options(span):
    """Options of a command that it does not have."""
    command, words = root(), span.split()[1:]
    while hasattr(command, "commands") and words and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
    if hasattr(command, "commands"):  # a group's default, or all of its commands
        return []
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}
    return [word for word in words if word.startswith("--") and word.strip(",;.").partition("=")[0] not in known]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_options_of_commands_within_sentences_exist(page):
    assert {span: unknown for span in spans(page) if (unknown := unknown_options(span))} == {}


def test_one_that_does_not_is_noticed():
    assert unknown_options("dpose reproduce ward-dp --core --strategies own") == ["--strategies"]
    assert unknown_options("dpose train --data synthetic:ward --epsilon=8") == []


@pytest.mark.parametrize("line", list(commands()))
def test_a_shown_command_is_understood(line):
    assert parsed(line).params


def test_one_that_is_misspelt_is_not():
    with pytest.raises(Exception, match="--epsilonn"):
        parsed("dpose train --data synthetic:ward --epsilonn 8")
