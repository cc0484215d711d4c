"""A bound is never written better than it is: costs up, what was shown down, and nowhere else to the nearest."""

import ast
import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dpose
from dpose.privacy.ranges import as_given, between, lower, upper

ROOT = Path(dpose.__file__).parent
NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.fractions(), st.integers(), st.floats(1e-12, 1e6)
)


def read(text: str) -> Fraction:
    return Fraction(text.replace(",", ""))


def plain(text: str) -> float:
    return float(text.replace(",", ""))


def at_least_as_much(text: str, value: float | Fraction) -> bool:
    """In the sense of floats for a float: what a program reads back."""
    return plain(text) >= value if isinstance(value, float) else read(text) >= value


def at_most_as_much(text: str, value: float | Fraction) -> bool:
    return plain(text) <= value if isinstance(value, float) else read(text) <= value


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (7.9954, "7.996", "7.995"),
        (0.8, "0.8", "0.8"),
        (0.1 + 0.2, "0.3001", "0.3"),
        (8.0, "8", "8"),
        (0, "0", "0"),
        (9.9999, "10", "9.999"),
        (99999.5, "100,000", "99,999"),
        (50_000, "50,000", "50,000"),
        (1e-5, "1e-05", "1e-05"),
        (4.00001e-5, "4.001e-05", "4e-05"),
        (9.99996e-5, "1e-04", "9.999e-05"),
        (0.0012345, "0.001235", "0.001234"),
        (Fraction(1, 3), "0.3334", "0.3333"),
        (Fraction(-1, 3), "-0.3333", "-0.3334"),
        (Fraction(10**30 + 1, 10**30), "1.001", "1"),
        (2e20, "2e+20", "2e+20"),
        (np.float32(0.1), "0.1001", "0.1"),
        (np.int64(1_234), "1,234", "1,234"),
        (math.inf, "inf", "inf"),
    ],
)
def test_up_and_down(value, up, down):
    assert (upper(value), lower(value)) == (up, down)


def test_places_and_multiples():
    assert (upper(1.0, places=4), upper(0.12341, places=3), lower(0.1, places=2)) == ("1.0000", "0.124", "0.10")
    assert upper(0.07, times=100) == "7"  # 100 * 0.07 is above 7 in floating point
    assert upper(0.0700001, places=1, times=100) == "7.1"
    assert between(0.1234, 0.4561, places=1, times=100) == "12.3 to 45.7"
    assert (as_given(8.0), as_given(0.123456789), as_given(1e-5)) == ("8", "0.123456789", "1e-05")


@given(NUMBERS, st.integers(1, 8), st.sampled_from([1, 100]))
@example(7.9954, 4, 1)
@example(0.07, 4, 100)
def test_what_is_read_back_bounds_the_number(value, digits, times):
    up, down = upper(value, digits, times=times), lower(value, digits, times=times)
    # a float is multiplied as the decimal it is written as
    exact = times * (Fraction(repr(value)) if isinstance(value, float) else Fraction(value))
    assert read(down) <= exact <= read(up)
    if times == 1 and math.isfinite(value):
        assert at_least_as_much(up, value)
        assert at_most_as_much(down, value)
    # and it is no worse than its last digit
    assert read(up) - read(down) <= abs(exact) * Fraction(10) ** (1 - digits)


@given(NUMBERS, st.integers(0, 8))
def test_what_is_read_back_bounds_the_number_in_places(value, places):
    up, down = upper(value, places=places), lower(value, places=places)
    exact = Fraction(repr(value)) if isinstance(value, float) else Fraction(value)
    assert read(down) <= exact <= read(up)
    assert read(up) - read(down) <= Fraction(1, 10**places)
    assert len(up.partition(".")[2]) == places


# what the source may not round to the nearest: a word of these in the expression, and digits in the format
BOUNDS = re.compile(
    r"epsilon|delta|sigma|noise|spent|cost|claim|bound|rho\b|variance|confidence|alpha|tpr_bound|true_positives"
    r"|recomputed|\.low\b|\.high\b|'low'|'high'"
)
HARMLESS = re.compile(r"bound\.(n|steps|divisor|plan)\b|noise_psnr|points\.(low|high)")
"""Counts, an estimate, and intervals of scores: they bound no guarantee."""
DIGITS = re.compile(r"\.\d+[gfeE%]|(?<![\w.])[gfeE%]$")
TO_NEAREST = {"round", "brief", "three", "percent", "_percent", "score", "format"}


def offences(source: str) -> list[str]:
    """Expressions in `source` that write a bound rounded to the nearest."""
    found = []
    for node in ast.walk(ast.parse(source)):
        shown = ""
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            parts = getattr(node.format_spec, "values", [])
            spec = "".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
            shown = ast.unparse(node.value) if DIGITS.search(spec) else ""
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TO_NEAREST:
            shown = ", ".join(ast.unparse(argument) for argument in node.args)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            text = isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
            shown = ast.unparse(node.right) if text else ""
        if BOUNDS.search(shown) and not HARMLESS.search(shown):
            found.append(f"{getattr(node, 'lineno', 0)}: {shown}")
    return found


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_bound_is_rounded_to_the_nearest(path):
    if path.name == "rounding.py":
        return
    assert offences(path.read_text()) == []


def test_the_rule_bites():
    for line in (
        'f"epsilon {statement.epsilon:.4g}"',
        'f"{float(bound.epsilon):g}"',
        'f"at {plan.delta:g}"',
        'f"sigma {event.sigma:.6g}"',
        'f"{100 * share.low:.1f} to {100 * share.high:.1f}"',
        "brief(record.epsilon)",
        "round(run.bound, 2)",
        'format(epsilon, ".3f")',
        '"%.3g" % epsilon',
        'f"{1 - alpha:.0%}"',
    ):
        assert offences(line), line
    for line in ('f"{bound.n:,}"', 'f"{upper(epsilon)}"', 'f"{bound.divisor:,.0f}"', 'f"{lr:g}"'):
        assert not offences(line), line
