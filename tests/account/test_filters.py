"""What a budget's filter lets in, and no more: its two limits, its way back to an epsilon, and the worst picture."""

import math
import sys

import pytest

from dpose.account.budgets import UNKNOWN, Budget, Share, _fits, _highest, _within, filter_epsilon
from dpose.privacy.marks import NO_MARKS
from dpose.privacy.renyi import converted, order_of_budget

BUDGET = Budget(2.0, 1e-5, "lspet", NO_MARKS)
CAP, FAILING = BUDGET.cap, 0.1 * BUDGET.delta


def test_a_budgets_filter_is_the_rule_for_its_epsilon_and_delta():
    assert (BUDGET.order, BUDGET.cap) == order_of_budget(2.0, 1e-5)


@pytest.mark.parametrize(("factor", "fits"), [(0.5, True), (1.0, True), (1 + 1e-10, True), (1 + 1e-8, False)])
def test_both_limits_hold_each_by_itself(factor, fits):
    for cost in ((CAP * factor, 0.0), (0.0, FAILING * factor), (CAP * factor, FAILING), (CAP, FAILING * factor)):
        assert _within(BUDGET, cost) == fits


def test_one_charge_alone_may_fit_by_its_own_epsilon_and_two_may_not(monkeypatch):
    over, asked, planned = (2 * CAP, 0.0), [], iter((1.5, 2.0, 2.0 * (1 + 1e-10), 2.0001))

    def composed(charges, delta, neighbours):
        asked.append((charges, delta, neighbours))
        return next(planned)

    # not by its path: the package has a function of the module's name
    monkeypatch.setattr(sys.modules[Budget.__module__], "composed", composed)
    assert [_fits(BUDGET, Share(frozenset(), ("one",), over)) for _ in range(4)] == [True, True, True, False]
    assert asked == [(("one",), 1e-5, BUDGET.neighbours)] * 4
    for charges in ((), ("one", "two")):
        assert not _fits(BUDGET, Share(frozenset(), charges, over))
        assert _fits(BUDGET, Share(frozenset(), charges, (CAP, 0.0)))


def test_the_stored_bound_is_that_of_the_worst_picture_and_closed_where_one_is():
    shares = [Share(frozenset(), (), cost) for cost in ((CAP / 2, 0.0), (0.0, FAILING / 2), (CAP / 4, FAILING))]
    assert _highest(BUDGET, shares) == (CAP / 2, FAILING)
    assert _highest(BUDGET, shares[:2]) == (CAP / 2, FAILING / 2)
    assert _highest(BUDGET, []) == (0.0, 0.0)
    closed = Share(frozenset(), ("one",), (2 * CAP, 0.0))
    assert _highest(BUDGET, [*shares, closed]) == UNKNOWN == (math.inf, math.inf)


def test_what_a_filter_has_spent_is_an_epsilon_at_the_budgets_delta():
    order, _ = order_of_budget(2.0, 1e-5)
    assert filter_epsilon((0.0, 0.0), 2.0, 1e-5) == 0.0
    assert filter_epsilon((CAP, FAILING), 2.0, 1e-5) == pytest.approx(2.0, rel=1e-12)
    assert filter_epsilon((CAP / 2, 0.0), 2.0, 1e-5) == pytest.approx(CAP / 2 + converted(order, 0.9e-5), rel=1e-12)
    assert filter_epsilon((0.0, FAILING), 2.0, 1e-5) == max(0.0, converted(order, 0.9e-5))
    assert filter_epsilon((0.0, FAILING * 1.001), 2.0, 1e-5) == math.inf
