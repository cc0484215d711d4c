"""The examples in public docstrings run as they stand."""

import doctest
from importlib import import_module

import pytest

MODULES = (
    "dpose.action.data.spec",
    "dpose.errors",
    "dpose.pose.data.spec",
    "dpose.privacy.accounting",
    "dpose.privacy.events",
    "dpose.privacy.gaussian",
    "dpose.privacy.ranges",
    "dpose.privacy.selection",
    "dpose.privacy.statement",
    "dpose.privacy.words",
    "dpose.runs.verify",
    "dpose.release.api",
    "dpose.privacy.neighbours",
    "dpose.privacy.ranges",
    "dpose.runs.config",
    "dpose.release.grid",
    "dpose.training.plan",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    found = doctest.testmod(import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted, "no example in it"
    assert not found.failed
