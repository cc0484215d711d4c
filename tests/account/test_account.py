"""The account of private data: runs on the same pictures add up, whoever ran them; budgets refuse beforehand."""

import functools
import hashlib
import math
import threading
from dataclasses import replace

import numpy as np
import pytest

from dpose.account import (
    EVALUATION,
    PAGE,
    PIXEL,
    Budget,
    budget_states,
    budgets,
    charge,
    charges,
    composed,
    groups,
    lift_budget,
    lineage,
    note_weights,
    overlapping,
    set_budget,
    spending,
    unbounded,
)
from dpose.account.composition import CHOSEN, chosen_epsilon, chosen_share, renyi_cost
from dpose.errors import DposeError
from dpose.privacy.accounting import epsilon
from dpose.privacy.events import Approximate, Renyi, SampledGaussian
from dpose.privacy.marks import marks_of
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.renyi import order_of_budget
from refusals import refused
from stored import pure, release_charge, run_charge, zcdp
from tiers import rest_slow

EVENT = SampledGaussian(q=0.05, sigma=1.5, steps=100, sensitivity=1.0)
HERE = marks_of([f"picture {i}" for i in range(20)])
IMAGE = Neighbours("image")
THERE = marks_of([f"other {i}" for i in range(20)])


def entry(number=0, marks=HERE, **changes):
    return run_charge(number, marks, **{"events": (EVENT,), **changes})


def test_what_is_charged_is_read_back(where):
    first = entry(0, views="pixelize 86", start="f" * 64, weights=("a" * 64,), opened=THERE[:3])
    second = entry(1, THERE, what="audit", beyond=True, relation=Relation.REPLACE)
    charge(first, where, checked=False)
    charge(second, where, checked=False)
    assert charges(where) == [first, second]
    assert [e.id for e in charges(where, of=HERE)] == [first.id]
    assert [e.id for e in charges(where, of=THERE[5:])] == [second.id]
    assert overlapping(charges(where), THERE[:1]) == [replace(first, events=()), second]  # taken to be public


def test_a_second_charge_of_a_run_replaces_the_first(where):
    charge(entry(), where, checked=False)
    charge(entry(events=(replace(EVENT, steps=120),)), where, checked=False)
    assert [e.events[0].steps for e in charges(where)] == [120]


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ({"beyond": True}, {}),
        ({"unit": "image"}, {"unit": "subject"}),
        ({"unit": "subject"}, {"unit": "image"}),
        ({"unit": "video"}, {"unit": "subject"}),
        ({"relation": Relation.REPLACE}, {}),
        ({"unit": PIXEL, "within": "image"}, {"unit": PIXEL, "within": "video"}),
        ({"what": PAGE, "events": ()}, {"what": EVALUATION, "events": ()}),
        ({}, {"what": EVALUATION, "events": ()}),
        ({"events": ()}, {}),
        ({"start": "a" * 64}, {"start": ""}),
    ],
    ids=lambda changes: ", ".join(f"{k} {v}" for k, v in changes.items()) or "as it was",
)
def test_charged_again_a_charge_claims_no_more_than_before(where, first, again):
    """Read "beyond public views", each picture is bounded by nothing; charged again as each subject it became 5.1."""
    charge(entry(0, **first), where, checked=False)
    before = charges(where)
    for checked in (True, False):
        with refused(("charge-claim-differs", "charge-unbounded", "first-weights-differ")):
            charge(entry(0, **again), where, checked=checked)
    assert charges(where) == before


SMALL = pure(1.0)


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ((EVENT,), (replace(EVENT, steps=60),), (EVENT,)),
        ((EVENT,), (replace(EVENT, steps=60),) * 2, (replace(EVENT, steps=120),)),
        ((EVENT, EVENT), (EVENT,), (replace(EVENT, steps=200),)),
        ((EVENT,), (replace(EVENT, sigma=3.0),), (replace(EVENT, sigma=3.0), EVENT)),
        ((SMALL, SMALL), (SMALL,), (SMALL, SMALL)),
        ((SMALL,), (SMALL, SMALL), (SMALL, SMALL)),
        ((EVENT,), (SMALL,), (SMALL, EVENT)),
        ((EVENT,), (), ()),
    ],
)
def test_charged_again_events_only_grow(where, before, after, kept):
    """Two equal losses became one, and 100 steps beside twice 60 became 100."""
    charge(entry(0, events=before), where, checked=False)
    charge(entry(0, events=after), where, checked=False)
    (found,) = charges(where)
    assert found.events == kept


def test_a_picture_of_unknown_size_gets_none_by_being_charged_again(where):
    sizes = {"unit": PIXEL, "events": (pure(1.0, pixels=16),)}
    charge(entry(0, area=0, **sizes), where, checked=False)
    charge(entry(0, area=640, **sizes), where, checked=False)
    assert "was not recorded" in unbounded(charges(where)[0], "image")


def test_charges_come_in_the_order_in_which_they_came_whatever_clocks_said(where):
    late, early = entry(0, at="2026-03-01T00:00:00+00:00"), entry(1, at="2026-02-01T00:00:00+00:00")
    for one in (late, early):
        charge(one, where, checked=False)
    charge(
        replace(late, at="1970-01-01T00:00:00+00:00"), where, checked=False
    )  # it went on, after a clock was set back
    assert [e.id for e in charges(where)] == [late.id, early.id]


def test_what_a_run_has_read_stays_read(where):
    """A run that is taken up again with fewer pictures has seen the others all the same."""
    charge(entry(0, HERE, opened=marks_of(["shown", "picture 3"])), where, checked=False)
    charge(entry(0, THERE, opened=marks_of(["shown too"])), where, checked=False)
    (found,) = charges(where)
    assert overlapping([found], HERE[:1])
    assert overlapping([found], THERE[:1])
    assert overlapping([found], marks_of(["shown"]))[0].events == ()


def test_a_mark_is_eight_bytes_of_a_hash_for_this_use():
    """They stand in files that later versions read: one a picture, and always the same."""
    digests = [
        hashlib.blake2b(name.encode(), digest_size=8, person=b"dpose/account/1").digest()
        for name in ("picture 0", "picture 1")
    ]
    wanted = sorted(int.from_bytes(digest, "little") for digest in digests)
    found = marks_of(["picture 0", "picture 1"])
    assert found.tolist() == wanted
    assert found.dtype == np.uint64
    assert marks_of([]).shape == (0,)


def test_marks_tell_pictures_whatever_their_order_and_number():
    names = [f"picture {i}" for i in range(20)]
    assert (marks_of(names) == marks_of([*names[::-1], *names])).all()
    assert not np.isin(marks_of(names), THERE).any()


def test_runs_on_some_of_the_same_pictures_add_up():
    some = marks_of(["picture 3"])
    assert overlapping([entry(0), entry(1, THERE)], some) == [entry(0)]
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


def test_groups_are_joined_by_whoever_shares_a_picture(where):
    bridge = np.union1d(HERE[:1], THERE[:1])
    a, b, c, d = entry(0), entry(1, THERE), entry(2, bridge), entry(3, marks_of(["alone"]))
    for one in (a, b, d):
        charge(one, where, checked=False)
    assert groups(where) == [[a], [b], [d]]
    charge(c, where, checked=False)
    assert groups(where) == [[a, b, c], [d]]


def test_of_a_group_each_run_is_there_once(where):
    """Counted twice it would cost twice; left out it would cost nothing."""
    alike = [entry(k) for k in range(3)]
    for one in (alike[0], entry(3, THERE), *alike[1:]):
        charge(one, where, checked=False)
    charge(entry(1, np.union1d(HERE, marks_of(["later"])), units=20), where, checked=False)  # in two sets of one charge
    assert groups(where) == [alike, [entry(3, THERE)]]


def fits(*events, delta=1e-5, replaces=False):
    """The least budget whose filter lets all of these in, found without the account: by halving."""
    low, high = 0.01, 1000.0
    for _ in range(60):
        middle = (low * high) ** 0.5
        order, cap = order_of_budget(middle, delta)
        low, high = (low, middle) if renyi_cost(events, order, replaces=replaces)[0] <= cap else (middle, high)
    return high


def test_a_budget_refuses_beforehand(where):
    one, two = fits(EVENT), fits(EVENT, EVENT)
    set_budget(Budget((one + two) / 2, 1e-5, "ward", HERE), where)
    charge(entry(0), where, dry_run=True)
    charge(entry(0), where)
    charge(entry(0), where, dry_run=True)  # the same run, taken up again
    with refused("budget-exceeded"):
        charge(entry(1), where, dry_run=True)
    assert len(charges(where)) == 1
    charge(entry(1, THERE), where, dry_run=True)
    with refused("budget-charge-unbounded"):
        charge(entry(2, events=()), where, dry_run=True)


def test_a_budget_may_be_used_up_and_not_passed(where):
    """To the last digit of it; what is refused is refused by the budget's own number, not by one near it."""
    two = fits(EVENT, EVENT)
    charge(entry(0), where, checked=False)
    set_budget(Budget(two * (1 + 1e-9), 1e-5, "ward", HERE), where)
    charge(entry(1), where, dry_run=True)
    set_budget(Budget(two * (1 - 1e-6), 1e-5, "ward", HERE), where)
    with refused("budget-exceeded"):
        charge(entry(1), where, dry_run=True)


def test_the_first_charge_of_a_picture_may_take_all_of_a_budget_by_its_own_epsilon(where):
    """A budget of 8 lets in one run that is planned for 8, and nothing after it."""
    alone = composed([entry(0)], 1e-5)
    assert alone < fits(EVENT)
    set_budget(Budget(alone, 1e-5, "ward", HERE), where)
    charge(entry(0), where)
    (state,) = budget_states(where=where)
    assert (state.closed, state.level, state.epsilon) == (True, 100, alone)
    tiny = replace(EVENT, sigma=1000.0, steps=1)
    with refused("budget-exceeded"):
        charge(entry(1, events=(tiny,)), where)
    charge(entry(1, THERE, events=(tiny,)), where)


def test_of_runs_that_start_together_one_gets_what_is_left(where):
    """Each alone would keep the budget."""
    set_budget(Budget(fits(EVENT) * 1.01, 1e-5, "ward", HERE), where)
    refused = []

    def start(number):
        try:
            charge(entry(number), where)
        except DposeError:
            refused.append(number)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 3
    assert len(charges(where)) == 1


def test_a_run_on_one_picture_of_the_budget_is_refused_too(where):
    set_budget(Budget(0.01, 1e-5, "ward", HERE), where)
    with refused("budget-exceeded", where="ward"):
        charge(entry(0, np.union1d(THERE, HERE[:1])), where, dry_run=True)


def test_budgets_are_replaced_and_lifted(where):
    set_budget(Budget(1.0, 1e-5, "ward", HERE), where)
    set_budget(Budget(2.0, 1e-6, "ward", HERE), where)
    assert budgets(where) == [Budget(2.0, 1e-6, "ward", HERE)]
    assert lift_budget(HERE, where)
    assert not lift_budget(HERE, where)
    assert budgets(where) == []


@pytest.mark.parametrize("values", [(0.0, 1e-5), (math.inf, 1e-5), (1.0, 0.0), (1.0, 1.0)])
def test_senseless_budgets_are_refused(where, values):
    with refused("budget-out-of-range"):
        set_budget(Budget(*values, "ward", HERE), where)


def test_an_audit_counts_as_any_run_does():
    both = composed([entry(0), entry(1, what="audit")], 1e-5)
    assert both == pytest.approx(epsilon([replace(EVENT, steps=200)], 1e-5), rel=1e-9)
    assert both > composed([entry(0)], 1e-5)


@pytest.mark.parametrize(
    ("changes", "unit", "why"),
    [
        ({}, "image", ""),
        ({"unit": "subject"}, "image", ""),
        ({"unit": "video"}, "image", ""),
        ({"unit": "crop"}, "crop", ""),
        ({"unit": "crop"}, "image", "only each crop is protected, and not each image"),
        ({"unit": "image"}, "subject", "only each image is protected, and not each subject"),
        ({"unit": "recording"}, "image", "only each recording is protected"),
        ({"beyond": True}, "image", "beyond their public views"),
        ({"events": ()}, "image", "no noise"),
        ({"events": (), "what": EVALUATION}, "image", "a score without noise"),
    ],
)
def test_what_a_budget_bounds_and_what_it_does_not(where, changes, unit, why):
    """Five runs for crops took 13.3 of a budget of 8 for pictures, and feature privacy was accepted."""
    asked = entry(0, **changes)
    assert unbounded(asked, unit).startswith(why) if not why else why in unbounded(asked, unit)
    assert bool(unbounded(asked, unit)) == bool(why)
    set_budget(Budget(1e6, 1e-5, "ward", HERE, Neighbours(unit)), where)
    if not why:
        charge(asked, where, dry_run=True)
        return
    with refused("budget-charge-unbounded") as caught:
        charge(asked, where, dry_run=True)
    assert why in caught.value.line()
    assert "--no-budget" in caught.value.line()
    return None


def test_a_budget_set_after_something_without_bound_was_read_says_so(where):
    """It would have said that nothing is spent."""
    charge(entry(0, events=(), what=EVALUATION), where, checked=False)
    set_budget(Budget(1e6, 1e-5, "ward", HERE), where)
    with refused("budget-read-unbounded", where="2026-10-01"):
        charge(entry(1), where, dry_run=True)


def test_pictures_taken_to_be_public_are_not_bounded(where):
    read = entry(0, THERE, opened=HERE)
    assert overlapping([read], HERE) == [replace(read, events=())]
    assert overlapping([read], THERE) == [read]
    set_budget(Budget(1e6, 1e-5, "ward", HERE), where)
    with refused("budget-charge-unbounded", where=("taken to", "public")):
        charge(read, where, dry_run=True)


def test_a_budget_is_for_a_unit(where):
    set_budget(Budget(1.0, 1e-5, "ward", HERE, Neighbours("subject")), where)
    assert budgets(where) == [Budget(1.0, 1e-5, "ward", HERE, Neighbours("subject"))]
    with refused("unit-unknown", where="person"):
        set_budget(Budget(1.0, 1e-5, "ward", HERE, Neighbours("person")), where)


def test_weights_are_noted_and_stay_with_their_run(where):
    charge(entry(0, start="f" * 64), where, checked=False)
    note_weights(entry(0).id, "a" * 64, where)
    note_weights(entry(0).id, "b" * 64, where)
    note_weights("0" * 31 + "9", "c" * 64, where)  # not of this account
    charge(entry(0, events=(replace(EVENT, steps=120),), start="f" * 64), where, checked=False)  # it went on
    (found,) = charges(where)
    assert found.weights == ("a" * 64, "b" * 64)
    assert found.events[0].steps == 120


def test_a_run_goes_on_from_the_first_weights_that_it_began_with(where):
    charge(entry(0, start="f" * 64), where, checked=False)
    with refused("first-weights-differ"):
        charge(entry(0, start="e" * 64), where, checked=False)


def test_weights_are_followed_to_all_runs_they_come_from():
    one = entry(0, weights=("a",))
    two = entry(1, weights=("b", "c"), start="a")
    three = entry(2, weights=("d",), start="b")
    loop = entry(3, weights=("e",), start="e")
    of_d, unknown = lineage(["d"], [one, two, three, loop])
    assert {e.id for e in of_d} == {one.id, two.id, three.id}
    assert unknown == []
    assert lineage(["e"], [loop]) == ([loop], [])
    assert lineage(["d"], [two, three]) == ([three, two], ["a"])
    assert lineage(["x", ""], [one]) == ([], ["x"])


def test_whatever_was_done_is_composed():
    """An audit has read the same people as a training run; only a score without noise has no epsilon to add."""
    two = epsilon([replace(EVENT, steps=200)], 1e-5)
    for what in ("training", "audit", "release", "tuning"):
        assert composed([entry(0), entry(1, what=what)], 1e-5) == pytest.approx(two, rel=1e-9)
    assert composed([entry(0, what="audit")], 1e-5) == pytest.approx(epsilon([EVENT], 1e-5), rel=1e-9)


def test_an_audit_counts_against_the_budget(where):
    set_budget(Budget(fits(EVENT) * 1.01, 1e-5, "ward", HERE), where)
    charge(entry(0, what="audit"), where)
    with refused("budget-exceeded"):
        charge(entry(1), where)


def chosen(*found, delta=1e-5, requested=IMAGE):
    alone = composed(found, chosen_share(delta), requested) if len(found) == 1 else math.inf
    return chosen_epsilon(found, delta, requested, alone)


@pytest.mark.parametrize(
    "asked", rest_slow([IMAGE, Neighbours("image", Relation.REPLACE), Neighbours.of_pixels(16)]), ids=str
)
@pytest.mark.parametrize(
    "made",
    [
        [entry(0)],
        [entry(0), entry(1)],
        [entry(k) for k in range(5)],
        [entry(0), release_charge(1, HERE, epsilon=0.01)],
        [release_charge(k, HERE, events=(zcdp(0.02, pixels=64),)) for k in range(3)],
        [release_charge(0, HERE, events=(Approximate(0.1, 1e-8),)), entry(1)],
    ],
    ids=["one", "two", "five", "pure", "zcdp", "approximate"],
)
def test_what_holds_for_runs_chosen_after_earlier_ones_is_what_a_budget_would_have_let_in(where, made, asked):
    """The figure is the least budget of the grid, at its share of delta, that admits them one after the other."""
    point = chosen(*made, requested=asked)
    assert point in CHOSEN
    assert point >= composed(made, 1e-5, asked)
    assert spending(asked, 1e-5, where, of=HERE, also=made).chosen == point

    def admit(epsilon):
        pictures = marks_of([f"of {epsilon}"])
        share = chosen_share(1e-5)
        set_budget(Budget(epsilon, share, "ward", pictures, asked), where)
        for one in made:
            name = hashlib.sha256(f"{epsilon} {one.id}".encode()).hexdigest()[:32]
            charge(replace(one, id=name, marks=pictures), where)

    admit(point)
    with refused(("budget-exceeded", "budget-too-small")):
        admit(CHOSEN[CHOSEN.index(point) - 1])


@pytest.mark.parametrize(
    "other",
    rest_slow([Renyi(tuple((float(a), 0.02 * a) for a in range(2, 200))), zcdp(0.02), EVENT], 1),
    ids=["selection", "zcdp", "training"],
)
def test_the_delta_of_an_approximate_loss_is_no_longer_there_for_the_others(other):
    """Of 1e-5 they leave 1e-7; at the whole of it everything would be cheaper."""
    leaking = [entry(0, events=(Approximate(0.05, 3.3e-6),) * 3), entry(1, events=(other,))]
    tight = [entry(0, events=(pure(0.05),) * 3), entry(1, events=(other,))]
    assert composed(leaking, 1e-5) > 0.99 * composed(tight, 1e-7) > 1.05 * composed(tight, 1e-5)


def test_a_budget_keeps_a_tenth_of_its_delta_for_approximate_losses(where):
    set_budget(Budget(50.0, 1e-5, "ward", HERE), where)
    for number in range(2):
        charge(entry(number, events=(Approximate(0.1, 5e-7),)), where)
    with refused("budget-exceeded"):
        charge(entry(2, events=(Approximate(0.1, 1e-8),)), where)


def test_the_filters_that_are_asked_together_share_delta():
    assert len(CHOSEN) * chosen_share(1e-5) == pytest.approx(1e-5)
    assert (CHOSEN[0], CHOSEN[-1], len(CHOSEN)) == (1 / 32, 2048, 65)


def test_pure_losses_cost_their_sum_whoever_chose_them():
    releases = [release_charge(k, HERE, epsilon=0.3) for k in range(4)]
    assert chosen(*releases, requested=Neighbours.of_pixels(16)) == pytest.approx(1.2, rel=1e-12)
    assert chosen() == 0


def test_what_no_filter_lets_in_has_no_figure(where):
    leaks = entry(0, events=(Approximate(0.1, 0.11 * chosen_share(1e-5)),))
    assert math.isinf(chosen(leaks, leaks))
    assert chosen(leaks) < 1  # alone, it keeps its own delta
    charged = [entry(0), entry(1, events=(), what=EVALUATION)]
    for one in charged:
        charge(one, where)
    found = spending(IMAGE, 1e-5, where, of=HERE)
    assert math.isinf(found.chosen)
    assert math.isfinite(found.epsilon)


def test_an_adaptive_analyst_gains_nothing_beyond_the_figure_and_delta():
    """The best of all ways to choose after each output, and to stop: P(S) is at most the mean of exp(figure) and delta.

    Every mechanism is the one that dominates its (epsilon, delta): nothing that keeps those shows more.
    """
    delta = 0.05
    kinds = [Approximate(0.4, 1e-5), Approximate(1.1, 3e-5), pure(0.7), pure(2.0)]

    @functools.cache
    def figure(counts):
        events = [event for event, count in zip(kinds, counts, strict=True) for _ in range(count)]
        return chosen(*(entry(k, events=(event,)) for k, event in enumerate(events)), delta=delta)

    def outputs(event):
        leak, grown = getattr(event, "delta", 0.0), math.exp(getattr(event, "epsilon", event.pure()))
        more, less = (1 - leak) * grown / (1 + grown), (1 - leak) / (1 + grown)
        return [(leak, 0.0), (more, less), (less, more), (0.0, leak)]

    def best(counts, p, q, left):
        at = figure(counts)
        found = max(0.0, p - math.exp(at) * q) if math.isfinite(at) else 0.0
        for k, event in enumerate(kinds if left else ()):
            after = tuple(count + (k == j) for j, count in enumerate(counts))
            found = max(found, sum(best(after, p * a, q * b, left - 1) for a, b in outputs(event)))
        return found

    assert 0 < best((0,) * len(kinds), 1.0, 1.0, 4) <= delta
