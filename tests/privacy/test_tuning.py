"""Private selection: the law of the number of trials, drawn exactly, and its price, above what can be learnt.

The price is held against the Renyi divergence itself: enumerated for small mechanisms, integrated for a Gaussian score.
Neither shares a line with dp-accounting. Faults of the mechanism (a public or a fixed number of trials, one trial paid
for all) must come out above the price, or the comparison shows nothing.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant
from scipy import integrate, special, stats

from dpose.privacy.accounting import Accountant, epsilon
from dpose.privacy.events import FLOATING, ROUNDED, SampledGaussian
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.privacy.statement import FLOATING_POINT_CAVEAT, Kind, PrivacyStatement
from dpose.privacy.trial_law import TrialLaw, below
from dpose.privacy.tuning import Tuning, calibrated, selection_epsilon
from refusals import refused
from tiers import rest_slow

LAWS = (
    "geometric:3",
    "geometric:10",
    "logarithmic:3",
    "logarithmic:10",
    "negative-binomial:0.5:5",
    "negative-binomial:0.01:5",
    "poisson:3",
    "poisson:10",
)
STEP = SampledGaussian(q=0.29, sigma=4.0, steps=42, sensitivity=1.0)
LONGEST = 4000


def stream(step=0, key=None):
    return AesNoise(key or Key.fresh()).stream(Purpose.TUNING, step)


def masses(law: TrialLaw, most=LONGEST):
    """P(K = k) for k = 0 ... most, by Definition 1 of the paper, in floating point."""
    mean, k = float(law.mean), np.arange(most + 1)
    if law.shape is None:
        return stats.poisson.pmf(k, mean)
    gamma, eta = float(law.gamma), float(law.shape)
    found = np.zeros(most + 1)
    if gamma == 1:
        found[1] = 1.0
        return found
    if eta == 0:
        found[1:] = (1 - gamma) ** k[1:] / (k[1:] * math.log(1 / gamma))
        return found
    factors = np.cumsum(np.log((np.arange(most) + eta) / (np.arange(most) + 1)))
    found[1:] = np.exp(k[1:] * math.log1p(-gamma) + factors) / (gamma**-eta - 1)
    return found


def slope(law, share):
    """E[K share^(K-1)], the derivative of the law's generating function."""
    p = masses(law)
    k = np.arange(len(p))
    return float((p[1:] * k[1:] * np.power(share, k[1:] - 1.0)).sum())


def divergence(p, q, order):
    """D_order(P || Q) of two distributions on the same finite set."""
    p, q = np.asarray(p), np.asarray(q)
    there = p > 0
    return float(special.logsumexp(order * np.log(p[there]) + (1 - order) * np.log(q[there])) / (order - 1))


def priced(rdp, law, orders):
    """dp-accounting's bound for a base mechanism of which only its Renyi divergences are known."""

    class Known(RdpAccountant):
        def _maybe_compose(self, event, count, do_compose):
            if isinstance(event, dp_event.NonPrivateDpEvent):
                if do_compose:
                    self._rdp = self._rdp + count * np.asarray(rdp)
                return None
            return super()._maybe_compose(event, count, do_compose)

    counting = Known(orders, NeighboringRelation.REPLACE_SPECIAL)
    shape = math.inf if law.shape is None else float(law.shape)
    counting.compose(dp_event.RepeatAndSelectDpEvent(dp_event.NonPrivateDpEvent(), float(law.mean), shape))
    return counting.rdp


# --- the law ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAWS)
def test_a_law_has_the_mean_it_is_named_for_or_a_little_less(name):
    law = TrialLaw.parse(name)
    p = masses(law)
    assert p.sum() == pytest.approx(1, abs=1e-9)
    mean = (np.arange(len(p)) * p).sum()
    assert mean <= float(law.mean) * (1 + 1e-12) + 1e-12
    assert mean == pytest.approx(float(law.mean), rel=1e-7)
    assert str(law) == name
    assert TrialLaw.from_dict(law.to_dict(), "here") == law


@pytest.mark.parametrize("name", LAWS)
def test_numbers_of_trials_are_drawn_by_their_law(name):
    law, source = TrialLaw.parse(name), stream(key=Key.from_seed(5))
    drawn = np.array([law.draw(source) for _ in range(2000)])
    p = masses(law)
    edges = [k for k in range(len(p)) if 2000 * p[k] >= 10]
    counts = np.array([(drawn == k).sum() for k in edges] + [(~np.isin(drawn, edges)).sum()])
    expected = np.array([p[k] for k in edges] + [1 - p[edges].sum()]) * 2000
    there = expected > 5
    statistic = ((counts - expected)[there] ** 2 / expected[there]).sum()
    assert stats.chi2.sf(statistic, there.sum() - 1) > 1e-6
    assert (drawn == 0).any() == (name == "poisson:3")


class Bits:
    """A stream of given bytes, over and over."""

    def __init__(self, byte):
        self.byte = byte

    def bytes(self, count):
        return bytes([self.byte]) * count


def test_a_poisson_number_is_where_the_bits_say():
    law = TrialLaw.parse("poisson:3")
    # e^-3 = 0.0498 = 0x0.0cbe...: below it no trial, above it one
    assert law.draw(Bits(0x0C)) == 0
    assert law.draw(Bits(0x0D)) == 1
    # 0x80 80 80 ... / 2^(8 n) = 0.50196; the sums of the law pass it at 3
    assert law.draw(Bits(0x80)) == int(stats.poisson.ppf(0x80 / 255, 3))


def test_a_law_of_mean_one_is_one_trial():
    for name in ("geometric:1", "logarithmic:1", "negative-binomial:0.5:1"):
        law = TrialLaw.parse(name)
        assert {law.draw(stream()) for _ in range(20)} == {1}
        # the theorem's constant is taken at the smallest order that there is, 1.1, and so is not quite nothing
        alone = epsilon([STEP], 1e-5, accountant=Accountant.RDP)
        assert alone <= selection_epsilon([STEP], law, 1e-5) < 1.2 * alone


def test_below_is_uniform_and_reaches_everything():
    source = stream(key=Key.from_seed(1))
    counts = np.bincount([below(5, source) for _ in range(5000)], minlength=5)
    assert counts.sum() == 5000
    assert stats.chisquare(counts).pvalue > 1e-6
    assert below(1, source) == 0
    assert {below(300, source) // 256 for _ in range(200)} == {0, 1}
    with pytest.raises(ValueError, match="nothing to choose"):
        below(0, source)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "geometric",
        "geometric:x",
        "geometric:0.5",
        "geometric:20000",
        "geometric:10:1",
        "poisson:0",
        "binomial:10",
        "negative-binomial:10",
        "negative-binomial:2:10",
        "negative-binomial:-0.5:10",
    ],
)
def test_what_is_no_law_is_refused(text):
    with refused(("eta-out-of-range", "trial-law-malformed", "trials-out-of-range"), where="--trials"):
        TrialLaw.parse(text)


def test_a_law_with_another_gamma_than_its_own_is_refused():
    law = TrialLaw.parse("logarithmic:10").to_dict()
    with refused("trial-law-parameters-wrong"):
        TrialLaw.from_dict({**law, "gamma": str(Fraction(law["gamma"]) / 2)}, "here")
    with refused("trial-law-parameters-wrong"):
        TrialLaw.from_dict({**law, "eta": "1"}, "here")


# --- the price -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAWS)
def test_one_setting_costs_what_dp_accounting_says(name):
    law = TrialLaw.parse(name)
    repeated = dp_event.RepeatAndSelectDpEvent(
        STEP.dp_event(), float(law.mean), math.inf if law.shape is None else float(law.shape)
    )
    theirs = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL).compose(repeated)
    assert selection_epsilon([STEP], law, 1e-5) == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-12)
    assert selection_epsilon([STEP], law, 1e-5) > epsilon([STEP], 1e-5, accountant=Accountant.RDP)


def test_a_grid_costs_what_its_dearest_setting_does_at_every_order():
    law = TrialLaw.parse("geometric:10")
    cheap, dear = replace(STEP, sigma=8.0), replace(STEP, q=0.02, sigma=0.8, steps=100)
    alone = [selection_epsilon([event], law, 1e-5) for event in (STEP, cheap, dear)]
    assert selection_epsilon([STEP, cheap], law, 1e-5) == alone[0]
    # two curves that cross: at every order the higher one counts, and that is dearer than either alone
    assert selection_epsilon([STEP, dear], law, 1e-5) > max(alone[0], alone[2])
    assert selection_epsilon([dear, STEP, dear], law, 1e-5) == selection_epsilon([STEP, dear], law, 1e-5)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("pair", rest_slow([pytest.param(pair) for pair in ((0.5, 0.7), (0.02, 0.05), (0.9, 0.95))]))
def test_the_price_bounds_what_enumeration_finds(name, pair):
    """Two settings, scores in three values; every outcome of up to four trials by hand, of more by their maximum."""
    law = TrialLaw.parse(name)
    orders = [1.5, 2, 3, 5, 8, 16, 32, 64]

    def trial(share):
        # outcomes in the order of their scores: (setting, score)
        tops, middles = (share / 10, share), (0.3 * (1 - share), 0.2)
        out = []
        for setting in (0, 1):
            top = tops[setting]
            middle = min(middles[setting], 1 - top)
            out.append((0.5 * (1 - top - middle), 0.5 * middle, 0.5 * top))
        flat = [out[s][v] for v in range(3) for s in (0, 1)]
        return np.array(flat)

    def chosen(p):
        weight = masses(law)
        ends = np.cumsum(p)
        starts = ends - p
        total = np.zeros(len(p))
        for k in range(1, 5):
            for outcome in itertools.product(range(len(p)), repeat=k):
                total[max(outcome)] += weight[k] * math.prod(p[list(outcome)])
        for k in range(5, LONGEST):
            if weight[k] > 0:
                total += weight[k] * (ends**k - np.maximum(starts, 0) ** k)
        return np.append(total, weight[0])  # no trial: the public default

    one, other = trial(pair[0]), trial(pair[1])
    for p, q in ((one, other), (other, one)):
        base = [max(divergence(p, q, order), divergence(q, p, order)) for order in orders]
        bound = priced(base, law, orders)
        true = [divergence(chosen(p), chosen(q), order) for order in orders]
        assert np.all(np.array(true) <= bound + 1e-9), (true, bound)
        assert max(true) > 0


@pytest.mark.parametrize(
    "name", rest_slow(["geometric:10", "logarithmic:10", "negative-binomial:0.5:5", "poisson:10"], 1, 2)
)
def test_the_price_bounds_what_integration_finds(name):
    """A score alone, N(0, 1) against N(1/3, 1): the best of K has density E[K F^(K-1)] times that of one."""
    law, shift = TrialLaw.parse(name), 1 / 3
    orders = [1.5, 2.0, 4.0, 8.0, 16.0]
    bound = priced([order * shift**2 / 2 for order in orders], law, orders)
    ys = np.linspace(-9, 10, 1201)
    p0 = masses(law)[0]

    def log_density(mean):
        shares = stats.norm.cdf(ys, mean)
        return np.log([slope(law, share) for share in shares]) + stats.norm.logpdf(ys, mean)

    zero, moved = log_density(0.0), log_density(shift)
    for one, other in ((zero, moved), (moved, zero)):
        assert integrate.simpson(np.exp(one), x=ys) == pytest.approx(1 - p0, abs=1e-6)
        for order, most in zip(orders, bound, strict=True):
            whole = integrate.simpson(np.exp(order * one + (1 - order) * other), x=ys) + p0
            true = math.log(whole) / (order - 1)
            assert 0 < true <= most
    # one trial's price is below what the best of K tells: to charge one for all is a fault that this test sees
    best = max(math.log(integrate.simpson(np.exp(2 * a - b), x=ys) + p0) for a, b in ((zero, moved), (moved, zero)))
    assert best > 2 * shift**2 / 2


def rare(share):
    """A trial that mostly fails: the fewer failures in a row, the likelier the one neighbour."""
    return np.array([1 - share, share])


@pytest.mark.parametrize("name", ["geometric:10", "logarithmic:10", "poisson:10"])
def test_a_number_of_trials_that_is_fixed_or_public_costs_more_than_the_price(name):
    law, order = TrialLaw.parse(name), 64.0
    one, other = rare(0.1), rare(0.3)
    orders = [1.5, 2, 3, 5, 8, 16, 32, 64]
    base = [max(divergence(one, other, a), divergence(other, one, a)) for a in orders]
    bound = float(priced(base, law, orders)[-1])

    def best_of(p, k):
        return np.array([p[0] ** k, 1 - p[0] ** k])

    weight = masses(law)
    many = 40 if law.shape is not None else 60
    secret = divergence(
        sum(weight[k] * best_of(one, k) for k in range(LONGEST)),
        sum(weight[k] * best_of(other, k) for k in range(LONGEST)),
        order,
    )
    fixed = divergence(best_of(one, many), best_of(other, many), order)
    shown = np.concatenate([weight[k] * best_of(one, k) for k in range(100)])
    shown_other = np.concatenate([weight[k] * best_of(other, k) for k in range(100)])
    assert secret <= bound
    assert fixed > bound
    assert divergence(shown, shown_other, order) > bound


def test_a_score_without_noise_has_no_price():
    with refused("noise-out-of-range"):
        SampledGaussian(1.0, 0.0, 1, 1 / 100)


@pytest.mark.parametrize("name", rest_slow(["geometric:10", "logarithmic:3", "poisson:10"]))
def test_noise_is_calibrated_for_everything(name):
    law, kinds = TrialLaw.parse(name), [(0.29, 42), (0.05, 400), (0.29, 42), (1.0, 1)]
    sigmas = calibrated(law, 4.0, 1e-5, kinds)
    assert sigmas[0] == sigmas[2]
    events = [SampledGaussian(q, sigma, steps, 1.0) for (q, steps), sigma in zip(kinds, sigmas, strict=True)]
    assert 3.99 <= selection_epsilon(events, law, 1e-5) <= 4.0
    assert all(selection_epsilon([event], law, 1e-5) > 3.5 for event in events)


@pytest.mark.parametrize("relation", [Relation.REPLACE, Relation.ADD_REMOVE])
def test_other_relations_are_refused(relation):
    with refused("tuning-relation-unbounded", where=relation.value):
        selection_epsilon([STEP], TrialLaw.parse("geometric:3"), 1e-5, relation)


# --- the statement ---------------------------------------------------------------------------------------------------


def tuning(**changes):
    values = {
        "law": TrialLaw.parse("geometric:3"),
        "settings": ({"optimizer.lr": "0.001"}, {"optimizer.lr": "0.003"}),
        "events": (STEP, replace(STEP, sigma=5.0)),
        "score": SampledGaussian(1.0, 4.0, 1, 1 / 200),
        "scored": 200,
    }
    return Tuning(**{**values, **changes})


def statement(chosen=None, **changes):
    chosen = chosen or tuning()
    values = {
        "kind": Kind.PRIVATE,
        "unit": "image",
        "neighbours": Neighbours("image", Relation.ZERO_OUT),
        "epsilon": chosen.epsilon(1e-5),
        "delta": 1e-5,
        "accountant": Accountant.RDP,
        "n": 800,
        "events": (STEP,),
        "tuning": chosen,
    }
    return PrivacyStatement(**{**values, **changes})


def test_a_statement_of_a_choice_is_read_back_and_adds_up():
    written = statement()
    found = PrivacyStatement.from_json(written.to_json())
    assert found == written
    assert found.verify() == pytest.approx(written.epsilon)
    words = found.paragraph()
    assert found.tuning is not None
    for setting in found.tuning.settings:
        assert all(f"{name} {value}" in words for name, value in setting.items()), "the grid is told whole"
    assert "among the 1,000 private ones" in words
    assert "the best of a random number of trials (law geometric:3)" in words


def test_a_score_whose_noise_was_of_floating_point_says_so():
    exact = replace(STEP, type=ROUNDED)
    for kind, told in ((FLOATING, True), (ROUNDED, False)):
        chosen = tuning(events=(exact,) * 2, score=SampledGaussian(1.0, 4.0, 1, 1 / 200, type=kind))
        made = statement(chosen, events=(exact,))
        assert (FLOATING_POINT_CAVEAT in made.paragraph()) is told
        assert FLOATING_POINT_CAVEAT not in made.caveats, "what was sealed stays as it was"


def test_the_claim_is_the_larger_of_the_two_sides():
    quiet, loud = (
        tuning(score=SampledGaussian(1.0, 40.0, 1, 1 / 200)),
        tuning(score=SampledGaussian(1.0, 0.5, 1, 1 / 200)),
    )
    assert quiet.epsilon(1e-5) == quiet.by_side(1e-5)[0] > quiet.by_side(1e-5)[1]
    assert loud.epsilon(1e-5) == loud.by_side(1e-5)[1] > loud.by_side(1e-5)[0]


def test_a_statement_that_claims_one_trial_is_refused():
    cheap = epsilon([STEP], 1e-5, accountant=Accountant.RDP)
    with refused("statement-does-not-add-up"):
        statement(epsilon=cheap).verify()
    with refused("statement-does-not-add-up"):
        statement(tuning(law=TrialLaw.parse("geometric:10")), epsilon=tuning().epsilon(1e-5)).verify()


@pytest.mark.parametrize(
    "event", [replace(STEP, sigma=3.9), replace(STEP, steps=43), replace(STEP, q=0.3)], ids=["sigma", "steps", "q"]
)
def test_a_run_that_is_of_no_setting_is_refused(event):
    with refused("tuning-events-outside-grid"):
        statement(events=(event,)).verify()
    assert statement().cost((replace(STEP, steps=20),)) == statement().epsilon


def test_pld_and_other_relations_are_refused_in_statements():
    with refused("tuning-accountant-unbounded", where="PLD"):
        statement(accountant=Accountant.PLD)
    with refused("tuning-relation-unbounded", where="replace"):
        statement(neighbours=Neighbours("image", Relation.REPLACE))
    with refused("tuning-of-non-private"):
        statement(kind=Kind.SEEDED)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scored", 0),
        ("scored", 100),
        ("events", (STEP,)),
        ("score", SampledGaussian(1.0, 4.0, 2, 1 / 200)),
        ("score", SampledGaussian(0.5, 4.0, 1, 1 / 200)),
    ],
)
def test_a_tuning_that_contradicts_itself_is_refused(field, value):
    with refused(("scored-not-positive", "tuning-events-differ", "tuning-score-invalid"), where="tuning"):
        tuning(**{field: value})
