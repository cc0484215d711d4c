"""What `dpose plan --expect` says: from settings alone, and nothing beyond what was measured."""

import pytest

from dpose.cli import main
from dpose.runs.expect import KNOWN_JOINTS, NEW_JOINTS, RECIPE, kept_share

CELLS = [(500, 8.06, 0.40), (1000, 4.23, 0.62), (2000, 2.23, 0.85), (8000, 4.23, 0.92), (64000, 0.66, 0.97)]
"""n, sigma and the share that was measured (docs/results.md), of joints that the model knows."""
NEW_CELLS = [(500, 8.06, 0.36), (500, 0.65, 0.93), (1000, 4.23, 0.72), (4000, 0.65, 1.0), (8000, 4.23, 1.0)]
"""The same of joints that it does not know, a share of what the same n bring without noise."""


TRAINED = [
    *[(268, 0.33), (1665, 0.50), (536, 0.34), (3330, 0.56), (1072, 0.45), (6661, 0.63)],
    *[(1137, 0.40), (2143, 0.48), (4010, 0.64), (13321, 0.66)],
]
"""n / sigma and the share of the recipe: of what training all weights of BlazePose lite brings on as many people."""


def test_the_law_of_the_recipe_holds_for_what_was_measured():
    for ratio, measured in TRAINED:
        low, high = RECIPE.range(ratio)
        assert low <= measured <= high
    assert RECIPE.range(200) is None
    assert RECIPE.range(20_000) is None


@pytest.mark.parametrize(("law", "cells"), [(KNOWN_JOINTS, CELLS), (NEW_JOINTS, NEW_CELLS)])
def test_the_laws_hold_for_what_was_measured(law, cells):
    for units, sigma, measured in cells:
        assert law.share(units / sigma) == pytest.approx(measured, abs=law.error)
        low, high = kept_share(units, sigma)
        assert low <= measured <= high


def test_more_people_or_less_noise_keep_more():
    shares = [kept_share(n, 4.0)[0] for n in (500, 1000, 4000, 16000)]
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]


def test_nothing_is_said_beyond_what_was_measured():
    assert kept_share(70, 4.0) is None
    assert kept_share(10**6, 1.0) is None


def said(capsys, *given):
    assert main(["plan", "--delta", "1e-5", "--expect", *given]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_command(capsys):
    whole = said(capsys, "--units", "7000", "--epsilon", "1")
    assert "With 7,000 units at epsilon 1 expect the recipe from BlazePose to keep 42 to 58 % of what" in whole
    assert "and dp-head alone (one step, 16 directions) 80 to 100 % of what its correction would" in whole
    assert "the recipe from BlazePose to keep" in said(capsys, "--units", "1000", "--epsilon", "1")
    alone = said(capsys, "--units", "500", "--epsilon", "1")
    assert "expect dp-head alone (one step, 8 directions) to keep 46 to 62 %" in alone
    assert "With so few units for that budget dp-head alone does no worse" in alone
    assert "Of the recipe too little was measured there." in said(capsys, "--units", "500", "--epsilon", "8")
    assert "units are too few" in said(capsys, "--units", "60", "--epsilon", "1")
    assert main(["plan", "--corpus", "10", "--expect"]) == 2


def test_a_plan_with_given_noise_is_told_by_its_epsilon(capsys):
    """Not by its noise, which is that of one of many steps."""
    given = said(capsys, "--units", "7000", "--set", "plan.noise_multiplier=2")
    epsilon = given.partition("at epsilon ")[2].partition(" ")[0]
    of_epsilon = said(capsys, "--units", "7000", "--epsilon", epsilon)
    assert given.partition("expect ")[2] == of_epsilon.partition("expect ")[2]


def test_where_the_number_of_units_is_private_the_nominal_one_counts(capsys):
    budget = ["--epsilon", "1", "--set", "plan.relation=add-or-remove", "--set", "plan.nominal_units=1000"]
    assert "With 1,000 units at epsilon 1" in said(capsys, "--units", "7000", *budget)


def test_without_noise_nothing_is_to_be_expected(capsys):
    assert main(["plan", "--units", "7000", "--method", "non-private", "--expect"]) == 2
    assert "budget-missing" in capsys.readouterr().err
