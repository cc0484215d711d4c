"""Numbers read as people write them, and are not rounded into something else."""

from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpose.report.inline import MINUS, MISSING, brief, change, day, percentage


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (7.993495, "7.993"),
        (1e-5, "1e-5"),
        (4e-05, "4e-5"),
        (0.001, "0.001"),
        (1234.4, "1,234"),
        (-2.5, f"{MINUS}2.5"),
        (-1e-7, f"{MINUS}1e-7"),
        (2e20, "2e20"),
    ],
)
def test_brief(value, shown):
    assert brief(value) == shown


def test_scores_and_changes():
    assert percentage(None) == MISSING
    assert percentage(0.0) == "0.0"
    assert change(33.2, 36.0) == "+2.8"
    assert change(36.0, 33.2) == f"{MINUS}2.8"
    assert change(None, 1.0) == change(1.0, None) == MISSING


@settings(deadline=None)
@given(st.floats(0, 100), st.floats(0, 100))
def test_a_change_is_the_difference_of_the_numbers_beside_it(before, after):
    shown = change(before, after).replace(MINUS, "-")
    assert float(shown) == pytest.approx(float(percentage(after)) - float(percentage(before)), abs=0.051)
    assert (shown == "0.0") == (percentage(before) == percentage(after))


def test_day():
    assert day(datetime(2026, 5, 3, 23, 59)) == "3 May 2026"
