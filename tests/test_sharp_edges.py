"""The page of sharp edges names checks; each of them exists, and so does every check that an audit points at."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from dpose.audits.faults import FAULTS, UNSEEN
from dpose.cli.app import root
from dpose_lab.audits.mechanisms import MECHANISMS

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "sharp-edges.md").read_text(encoding="utf-8")
NAMES = [" ".join(name.split()) for name in re.findall(r"`([^`]+)`", PAGE)]
TESTS = sorted({name for name in NAMES if name.startswith("tests/")} | {u.check for u in UNSEEN.values()})
SYMBOLS = sorted({name for name in NAMES if re.fullmatch(r"dpose(\.\w+)+", name)})
COMMANDS = sorted({name for name in NAMES if re.match(r"dpose [a-z]", name)})


def missing(check: str) -> str:
    """What of "file::Class::test[parameter]" is not there; "" where all of it is."""
    name, _, parameter = check.partition("[")
    file, *inside = name.split("::")
    path = ROOT / file
    if not path.exists():
        return file
    text = path.read_text(encoding="utf-8")
    body = ast.parse(text).body
    for part in inside:
        found = [n for n in body if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == part]
        if not found:
            return part
        body = found[0].body
    wanted = parameter.removesuffix("]")
    return "" if f'"{wanted}"' in text or not wanted else wanted


def test_the_page_names_enough_to_be_worth_reading():
    assert len(TESTS) > 25
    assert len(SYMBOLS) > 5
    assert len(COMMANDS) > 3


@pytest.mark.parametrize("check", TESTS)
def test_every_test_it_names_is_there(check):
    assert missing(check) == ""


def test_a_name_that_is_not_there_is_noticed():
    file = "tests/mutants/test_training.py"
    assert missing("tests/mutants/test_nothing.py") == "tests/mutants/test_nothing.py"
    assert missing(f"{file}::test_that_never_was") == "test_that_never_was"
    assert missing(f"{file}::test_fault_is_rejected[99 no such fault]") == "99 no such fault"


@pytest.mark.parametrize("name", SYMBOLS)
def test_every_function_it_names_is_there(name):
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return
    raise AssertionError(name)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_it_names_is_there(command):
    here = root()
    for word in command.split()[1:]:
        commands = getattr(here, "commands", None)
        if commands is None or word.startswith("-"):
            break
        assert word in commands, command
        here = commands[word]


def test_every_mutant_of_a_release_it_names_is_there():
    source = (ROOT / "tests" / "mutants" / "test_release.py").read_text(encoding="utf-8")
    named = {name for name in NAMES if re.fullmatch(r"[a-z]+(_[a-z]+)+", name)}
    assert named
    for name in named:
        assert f"({name}, check_" in source, name


def test_every_fault_it_names_can_be_planted():
    known = {*FAULTS, *(fault for _, faults in MECHANISMS.values() for fault in faults)}
    named = set(re.findall(r"--plant ([a-z-]+)", PAGE))
    assert named
    assert named <= known
