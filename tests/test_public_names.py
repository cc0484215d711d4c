"""The public names exist."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import dpose


@pytest.mark.parametrize("name", dpose.__all__)
def test_every_public_name_is_there_and_documented(name):
    assert getattr(dpose, name).__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="No dpose attribute trian"):
        dpose.trian  # noqa: B018


def test_no_public_name_is_two_things():
    """Commands apart, which are named as on the command line."""
    root, homes = Path(dpose.__file__).parent, defaultdict(list)
    for path in root.rglob("*.py"):
        if path.relative_to(root).parts[0] == "cli":
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(root)))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
