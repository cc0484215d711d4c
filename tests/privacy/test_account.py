"""The account of private data: runs on the same pictures add up, whoever ran them; budgets refuse beforehand."""

import math
import threading
from dataclasses import replace

import numpy as np
import pytest

from dpose.errors import DposeError
from dpose.privacy.account import (
    EVALUATION,
    Budget,
    Charge,
    budgets,
    charge,
    charges,
    check_budgets,
    claim,
    composed,
    groups,
    lift_budget,
    marks_of,
    set_budget,
    touching,
)
from dpose.privacy.accounting import Event, Relation, epsilon

EVENT = Event(q=0.05, sigma=1.5, steps=100, sensitivity=1.0)
HERE = marks_of([f"picture {i}" for i in range(20)])
THERE = marks_of([f"other {i}" for i in range(20)])


def entry(number=0, marks=HERE, **changes):
    return replace(
        Charge(
            id=f"{number:032x}",
            what="training",
            data="ward",
            folder="/runs/a",
            at=f"2026-01-0{number + 1}T00:00:00+00:00",
            unit="image",
            relation=Relation.ZERO_OUT,
            delta=1e-5,
            events=(EVENT,),
            beyond=False,
            marks=marks,
        ),
        **changes,
    )


def test_what_is_charged_is_read_back(tmp_path):
    first, second = entry(0), entry(1, THERE, what="audit", beyond=True, relation=Relation.REPLACE)
    charge(second, tmp_path)
    charge(first, tmp_path)
    assert charges(tmp_path) == [first, second]
    assert all((a.marks == b.marks).all() for a, b in zip(charges(tmp_path), [first, second], strict=True))
    for file in (tmp_path / "account").iterdir():
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_second_charge_of_a_run_replaces_the_first(tmp_path):
    charge(entry(), tmp_path)
    charge(entry(events=(replace(EVENT, steps=120),)), tmp_path)
    assert [e.events[0].steps for e in charges(tmp_path)] == [120]


def test_marks_tell_pictures_whatever_their_order_and_number():
    names = [f"picture {i}" for i in range(20)]
    assert (marks_of(names) == marks_of([*names[::-1], *names])).all()
    assert not np.isin(marks_of(names), THERE).any()


def test_runs_on_some_of_the_same_pictures_add_up():
    some = marks_of(["picture 3"])
    assert touching([entry(0), entry(1, THERE)], some) == [entry(0)]
    three = [entry(i) for i in range(3)]
    assert composed(three, 1e-5) == pytest.approx(epsilon([replace(EVENT, steps=300)], 1e-5), rel=1e-9)
    assert composed(three, 1e-5) > composed(three[:1], 1e-5)
    assert composed([], 1e-5) == 0


def test_the_weakest_relation_rules():
    mixed = [entry(0), entry(1, relation=Relation.REPLACE)]
    both = replace(EVENT, steps=200)
    assert composed(mixed, 1e-5) == pytest.approx(epsilon([both], 1e-5, relation=Relation.REPLACE), rel=1e-9)


def test_a_run_without_noise_is_bounded_by_nothing_and_a_score_is_left_out():
    assert math.isinf(composed([entry(0), entry(1, events=())], 1e-5))
    scored = [entry(0), entry(1, events=(), what=EVALUATION)]
    assert composed(scored, 1e-5) == composed(scored[:1], 1e-5)


def test_groups_are_joined_by_whoever_shares_a_picture():
    bridge = np.union1d(HERE[:1], THERE[:1])
    a, b, c, d = entry(0), entry(1, THERE), entry(2, bridge), entry(3, marks_of(["alone"]))
    assert groups([a, b, d]) == [[a], [b], [d]]
    assert groups([a, b, c, d]) == [[a, b, c], [d]]


def test_a_budget_refuses_beforehand(tmp_path):
    one, two = composed([entry(0)], 1e-5), composed([entry(0), entry(1)], 1e-5)
    set_budget(Budget((one + two) / 2, 1e-5, "ward", HERE), tmp_path)
    check_budgets(entry(0), tmp_path)
    charge(entry(0), tmp_path)
    check_budgets(entry(0), tmp_path)  # the same run, taken up again
    with pytest.raises(DposeError, match=f"{one:.4g} is spent, with this run {two:.4g}"):
        check_budgets(entry(1), tmp_path)
    check_budgets(entry(1, THERE), tmp_path)
    with pytest.raises(DposeError, match="inf"):
        check_budgets(entry(2, events=()), tmp_path)


def test_of_runs_that_start_together_one_gets_what_is_left(tmp_path):
    """Each alone would keep the budget."""
    set_budget(Budget(composed([entry(0)], 1e-5) * 1.01, 1e-5, "ward", HERE), tmp_path)
    refused = []

    def start(number):
        try:
            claim(entry(number), tmp_path)
        except DposeError:
            refused.append(number)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 3
    assert len(charges(tmp_path)) == 1


def test_a_run_on_one_picture_of_the_budget_is_refused_too(tmp_path):
    set_budget(Budget(0.01, 1e-5, "ward", HERE), tmp_path)
    with pytest.raises(DposeError, match="ward"):
        check_budgets(entry(0, np.union1d(THERE, HERE[:1])), tmp_path)


def test_budgets_are_replaced_and_lifted(tmp_path):
    set_budget(Budget(1.0, 1e-5, "ward", HERE), tmp_path)
    set_budget(Budget(2.0, 1e-6, "ward", HERE), tmp_path)
    assert budgets(tmp_path) == [Budget(2.0, 1e-6, "ward", HERE)]
    assert lift_budget(HERE, tmp_path)
    assert not lift_budget(HERE, tmp_path)
    assert budgets(tmp_path) == []


@pytest.mark.parametrize("values", [(0.0, 1e-5), (math.inf, 1e-5), (1.0, 0.0), (1.0, 1.0)])
def test_senseless_budgets_are_refused(tmp_path, values):
    with pytest.raises(DposeError, match="a budget needs"):
        set_budget(Budget(*values, "ward", HERE), tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 2}', '{"schema": 1}'])
def test_a_broken_account_is_not_passed_over(tmp_path, content):
    """Runs that it holds would be forgotten."""
    charge(entry(), tmp_path)
    (tmp_path / "account" / "x.json").write_text(content)
    with pytest.raises(DposeError, match=r"x\.json"):
        charges(tmp_path)


def test_whatever_was_done_is_composed():
    """An audit has read the same people as a training run; only a score without noise has no epsilon to add."""
    two = epsilon([replace(EVENT, steps=200)], 1e-5)
    for what in ("training", "audit", "release", "tuning"):
        assert composed([entry(0), entry(1, what=what)], 1e-5) == pytest.approx(two, rel=1e-9)
    assert composed([entry(0, what="audit")], 1e-5) == pytest.approx(epsilon([EVENT], 1e-5), rel=1e-9)


def test_an_audit_counts_against_the_budget(tmp_path):
    alone = composed([entry(0)], 1e-5)
    set_budget(Budget(alone * 1.01, 1e-5, "ward", HERE), tmp_path)
    claim(entry(0, what="audit"), tmp_path)
    with pytest.raises(DposeError, match="would be passed"):
        claim(entry(1), tmp_path)
