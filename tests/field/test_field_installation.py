"""No advice to install `dpose` by its name alone: the index has no such project, and anybody could register it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    *(ROOT / "src").rglob("*.py"),
    *(file for file in (ROOT / "docs").rglob("*.md") if "lab" not in file.parts),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]
BY_NAME = re.compile(
    r"pip (?:install|download)(?![^`\n]*--no-index)[^`\n]*?[ '\"]dpose(?![\w.*/-]*(?:\.whl|@| @))\b(?!-\S*\.whl)"
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_nothing_says_to_install_it_by_name(file):
    found = [line for line in file.read_text(encoding="utf-8").splitlines() if BY_NAME.search(line)]
    assert not found


def test_what_is_looked_for():
    assert BY_NAME.search("pip install dpose")
    assert BY_NAME.search("pip install 'dpose[ray]'")
    assert not BY_NAME.search("pip install '.[ray]'")
    assert not BY_NAME.search("pip install dist/dpose-0.3.0-py3-none-any.whl")
