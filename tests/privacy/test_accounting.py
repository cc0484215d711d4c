"""Epsilon is dp-accounting's, and agrees with an integration of the definition sharing no code with it.

The worse direction of zero-out and add-or-remove is the removal: the unit is in P and not in Q.
"""

import json
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from dp_accounting import dp_event, privacy_accountant
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant
from scipy import integrate, interpolate, optimize
from scipy.stats import norm

from dpose.errors import DposeError
from dpose.privacy import calibration, memo
from dpose.privacy.accounting import Accountant, cost, epsilon, epsilon_curve, noise_multiplier
from dpose.privacy.events import Approximate, Laplace, SampledGaussian, event_from_dict, merge
from dpose.privacy.neighbours import Relation
from dpose.privacy.ranges import MAX_SIGMA, MIN_SIGMA, check_delta, check_epsilon
from refusals import refused
from tiers import rest_slow

NAMES = privacy_accountant.NeighboringRelation
LIBRARY = {
    Relation.ZERO_OUT: NAMES.REPLACE_SPECIAL,
    Relation.ADD_REMOVE: NAMES.ADD_OR_REMOVE_ONE,
    Relation.REPLACE: NAMES.REPLACE_ONE,
}
RUNS = (Accountant.PLD, Accountant.RDP)
PAIRS = [(a, r) for a in RUNS for r in Relation if (a, r) != (Accountant.RDP, Relation.REPLACE)]


def direct(events, delta, relation, accountant):
    """dp-accounting, called without any of dpose."""
    if accountant is Accountant.PLD:
        counting = PLDAccountant(LIBRARY[relation])
    else:
        counting = RdpAccountant(neighboring_relation=LIBRARY[relation])
    for q, sigma, steps in events:
        counting.compose(dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(sigma)), steps)
    return counting.get_epsilon(delta)


@pytest.mark.parametrize(("accountant", "relation"), PAIRS)
@pytest.mark.parametrize("runs", rest_slow([[(0.046, 3.0, 541)], [(0.1, 3.0, 40), (0.02, 2.0, 300)]]))
def test_epsilon_is_dp_accountings(accountant, relation, runs):
    events = [SampledGaussian(q, sigma, steps, sensitivity=7.0) for q, sigma, steps in runs]
    ours = epsilon(events, 1e-5, relation, accountant)
    assert ours == pytest.approx(direct(runs, 1e-5, relation, accountant), rel=1e-9)
    assert ours > 0


# The definition, integrated. delta_1(eps) is the mass of P above the threshold of the privacy loss less e^eps
# that of Q; delta_{k+1}(eps) = E_{x ~ P} delta_k(eps - L(x)), because the losses of independent steps add up.


def mixture(q, sigma, *centres):
    parts = [(1 - q, 0.0), (q, centres[0])] if centres else [(1.0, 0.0)]
    pdf = lambda x: sum(w * norm.pdf(x, c, sigma) for w, c in parts)  # noqa: E731
    cdf = lambda x: sum(w * norm.cdf(x, c, sigma) for w, c in parts)  # noqa: E731
    return pdf, cdf


def pair(direction, q, sigma):
    nothing, plus, minus = mixture(q, sigma), mixture(q, sigma, 1.0), mixture(q, sigma, -1.0)
    return {"remove": (plus, nothing), "add": (nothing, plus), "replace": (plus, minus)}[direction]


@cache
def curve(direction, q, sigma, steps):
    """A function: eps -> delta of `steps` compositions, vectorised."""
    (p, p_cdf), (r, r_cdf) = pair(direction, q, sigma)
    x = np.linspace(-14 * sigma - 1, 14 * sigma + 1, 2001)
    loss = np.log(p(x)) - np.log(r(x))
    rising = loss[-1] > loss[0]
    if not rising:
        x, loss = x[::-1], loss[::-1]
    weight = p(x) * abs(x[1] - x[0])

    def one(eps):
        edge = np.interp(eps, loss, x)
        above_p, above_r = p_cdf(edge), r_cdf(edge)
        if rising:
            above_p, above_r = 1 - above_p, 1 - above_r
        exact = above_p - np.exp(eps) * above_r
        # beyond the grid: the loss is bounded on one side, where all of P or none of it is above eps
        return np.where(eps < loss[0], 1 - np.exp(eps), np.where(eps > loss[-1], 0.0, exact))

    if steps == 1:
        return one
    before = curve(direction, q, sigma, steps - 1)
    if steps > 2:  # a table keeps the recursion from growing
        grid = np.linspace(-12, 12, 1601)
        before = interpolate.CubicSpline(grid, before(grid))
    return lambda eps: np.array([(weight * before(e - loss)).sum() for e in np.atleast_1d(eps)])


def solve(direction, q, sigma, steps, delta):
    delta_at = curve(direction, q, sigma, steps)
    return optimize.brentq(lambda eps: float(delta_at(np.array([eps]))[0]) - delta, 0.0, 11.0, xtol=1e-8)


@pytest.mark.parametrize(("q", "sigma"), [(0.2, 1.0), (0.05, 0.8), (0.5, 2.0)])
@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
def test_the_integration_is_right_for_one_step(direction, q, sigma):
    # against quadrature of the hockey-stick divergence itself, with no threshold and no monotone loss
    (p, _), (r, _) = pair(direction, q, sigma)
    for eps in (0.1, 0.5, 1.0):
        found, _ = integrate.quad(
            lambda x, eps=eps: max(0.0, p(x) - math.exp(eps) * r(x)), -14 * sigma, 14 * sigma, limit=400
        )
        assert float(curve(direction, q, sigma, 1)(np.array([eps]))[0]) == pytest.approx(found, abs=2e-7)


@pytest.mark.parametrize("steps", rest_slow([1, 2, 3], 1))
@pytest.mark.parametrize(("q", "sigma"), [(0.2, 1.0), (0.05, 0.8)])
@pytest.mark.parametrize("relation", [Relation.ZERO_OUT, Relation.ADD_REMOVE])
def test_epsilon_is_what_the_definition_gives(relation, q, sigma, steps):
    delta = 1e-3
    removed = solve("remove", q, sigma, steps, delta)
    added = solve("add", q, sigma, steps, delta)
    assert removed > added  # a unit that vanishes shows more than one that appears
    ours = epsilon([SampledGaussian(q, sigma, steps, 1.0)], delta, relation)
    assert ours == pytest.approx(removed, abs=1e-6)


@pytest.mark.parametrize("steps", rest_slow([1, 2, 3], 1))
def test_replacement_is_two_opposite_shifts(steps):
    q, sigma, delta = 0.2, 1.5, 1e-3
    ours = epsilon([SampledGaussian(q, sigma, steps, 1.0)], delta, Relation.REPLACE)
    assert ours == pytest.approx(solve("replace", q, sigma, steps, delta), abs=1e-6)
    assert ours > epsilon([SampledGaussian(q, sigma, steps, 1.0)], delta, Relation.ZERO_OUT)
    # halving sigma under zero-out is another number, and no substitute
    halved = epsilon([SampledGaussian(q, sigma / 2, steps, 1.0)], delta, Relation.ZERO_OUT)
    assert abs(halved - ours) > 0.01


def test_rdp_bounds_pld_from_above():
    event = SampledGaussian(0.046, 1.5, 541, 1.0)
    assert epsilon([event], 4e-5, accountant=Accountant.RDP) > epsilon([event], 4e-5)


def test_no_sampling_is_the_plain_gaussian():
    # Balle and Wang 2018, Theorem 8, at sigma / sqrt(steps)
    sigma, steps, delta = 4.0, 9, 1e-5
    s = sigma / math.sqrt(steps)
    exact = optimize.brentq(
        lambda e: norm.cdf(1 / (2 * s) - e * s) - math.exp(e) * norm.cdf(-1 / (2 * s) - e * s) - delta, 0, 50
    )
    assert epsilon([SampledGaussian(1.0, sigma, steps, 1.0)], delta) == pytest.approx(exact, abs=1e-3)
    doubled = epsilon([SampledGaussian(1.0, 2 * sigma, steps, 1.0)], delta, Relation.REPLACE)
    assert doubled == pytest.approx(exact, abs=1e-3)


TINY = [1e-9 / 65, 1e-12, 1e-14]


@pytest.mark.parametrize("delta", TINY)
@pytest.mark.parametrize(("q", "sigma"), [(0.1, 3.0), (0.3, 1.2), (1.0, 4.0)])
def test_below_what_loss_distributions_resolve_the_least_cost_is_still_a_bound(q, sigma, delta):
    """The account asks at a 65th of delta, and was refused. Of one step the divergence is known in closed form."""
    event = SampledGaussian(q, sigma, 1, 1.0)
    found = cost([event], delta)
    edge = 0.5 + sigma**2 * math.log((math.exp(found) - 1 + q) / q)  # above it the loss is more than that
    kept = (1 - q - math.exp(found)) * norm.sf(edge / sigma)
    assert kept + q * norm.sf((edge - 1) / sigma) <= delta
    assert 0 < found <= epsilon([event], delta, accountant=Accountant.RDP)
    assert found <= cost([event], delta, Relation.REPLACE)


@pytest.mark.parametrize("delta", TINY)
@pytest.mark.parametrize("steps", [20, 541])
def test_the_least_cost_below_it_agrees_with_dp_accountings_rdp(steps, delta):
    event = SampledGaussian(0.1, 3.0, steps, 1.0)
    claimed = direct([(0.1, 3.0, steps)], delta, Relation.ZERO_OUT, Accountant.RDP)
    assert 0.95 * claimed < cost([event], delta) <= claimed * (1 + 1e-9)
    # a smaller delta costs more than the least that loss distributions resolve
    for relation in (Relation.ZERO_OUT, Relation.REPLACE):
        assert cost([event], delta, relation) > epsilon([event], 1e-10, relation)


def test_mixed_events_have_a_cost_below_it_too():
    event, pure = SampledGaussian(0.1, 3.0, 20, 1.0), Laplace(Fraction(10), Fraction(1))
    alone = cost([event], 1e-12)
    assert alone < cost([event, pure], 1e-12) <= alone + 0.1 + 1e-12
    assert alone < cost([event, Approximate(0.1, 1e-13)], 1e-12) < cost([event], 9e-13) + 0.2
    assert cost([pure, pure], 1e-12) == pytest.approx(0.2)
    assert math.isinf(cost([event, Approximate(0.1, 1e-11)], 1e-12))
    assert cost([], 1e-12) == cost([], 1e-12, Relation.REPLACE) == 0
    for delta in (0.0, math.nan):
        with refused("delta-out-of-range"):
            cost([event], delta)


def test_only_the_total_counts_not_its_split_into_events():
    whole = [SampledGaussian(0.05, 1.2, 100, 1.0)]
    parts = [SampledGaussian(0.05, 1.2, 30, 1.0), SampledGaussian(0.05, 1.2, 70, 1.0)]
    assert merge(parts) == tuple(whole)
    assert epsilon(parts, 1e-5) == epsilon(whole, 1e-5)
    assert epsilon([], 1e-5) == 0.0
    # other sensitivities are other mechanisms of equal cost
    assert len(merge([SampledGaussian(0.05, 1.2, 30, 1.0), SampledGaussian(0.05, 1.2, 70, 2.0)])) == 2


def test_epsilon_grows_with_steps_and_rate_and_falls_with_noise():
    base = epsilon([SampledGaussian(0.05, 2.0, 100, 1.0)], 1e-5)
    assert epsilon([SampledGaussian(0.05, 2.0, 200, 1.0)], 1e-5) > base
    assert epsilon([SampledGaussian(0.1, 2.0, 100, 1.0)], 1e-5) > base
    assert epsilon([SampledGaussian(0.05, 2.5, 100, 1.0)], 1e-5) < base
    assert epsilon([SampledGaussian(0.05, 2.0, 100, 1.0)], 1e-6) > base


@pytest.mark.parametrize("relation", list(Relation))
def test_a_hopeless_epsilon_is_infinite_and_quick(relation):
    assert epsilon([SampledGaussian(1.0, 0.2, 10_000, 1.0)], 1e-5, relation) == math.inf


@pytest.mark.parametrize(("accountant", "relation"), PAIRS)
@pytest.mark.parametrize(("target", "q", "steps"), [(0.8, 1024 / 22146, 541), (1.0, 0.05, 200), (0.5, 1.0, 20)])
def test_calibrated_noise_meets_the_budget_and_wastes_little(accountant, relation, target, q, steps):
    sigma = noise_multiplier(target, 4e-5, q, steps, relation, accountant)
    spent = epsilon([SampledGaussian(q, sigma, steps, 1.0)], 4e-5, relation, accountant)
    assert target * (1 - 1e-3) <= spent <= target


@pytest.mark.parametrize("target", [0.2, 0.8])
def test_pld_needs_less_noise_than_rdp(target):
    # seed 000's setting: MPII, batch 1024, 25 epochs
    q, steps = 1024 / 22146, math.ceil(25 * 22146 / 1024)
    by_pld = noise_multiplier(target, 4e-5, q, steps)
    by_rdp = noise_multiplier(target, 4e-5, q, steps, accountant=Accountant.RDP)
    assert 0.88 < by_pld / by_rdp < 0.95


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def counted(monkeypatch):
    calls = []
    solve_ = calibration.least_noise
    monkeypatch.setattr(calibration, "least_noise", lambda *a, **more: calls.append(1) or solve_(*a, **more))
    return calls


ASK = (1.0, 1e-5, 0.05, 50, Relation.ZERO_OUT, Accountant.RDP)


def test_the_second_call_does_not_calibrate_again(cache_folder, monkeypatch):
    calls = counted(monkeypatch)
    first = noise_multiplier(*ASK)
    assert calls
    calls.clear()
    assert noise_multiplier(*ASK) == first
    assert not calls
    for other in (
        (1.1, *ASK[1:]),
        (1.0, 2e-5, *ASK[2:]),
        (*ASK[:2], 0.06, *ASK[3:]),
        (*ASK[:3], 51, *ASK[4:]),
        (*ASK[:4], Relation.ADD_REMOVE, Accountant.RDP),
        (*ASK[:5], Accountant.PLD),
    ):
        calls.clear()
        noise_multiplier(*other)
        assert calls, f"{other} was answered from another question's entry"


def test_another_dp_accounting_calibrates_again(cache_folder, monkeypatch):
    noise_multiplier(*ASK)
    monkeypatch.setattr(memo, "version_of", lambda name: "99.0")
    calls = counted(monkeypatch)
    noise_multiplier(*ASK)
    assert calls


def entry_file(folder):
    (file,) = folder.rglob("*.json")
    return file


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: "[]",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"answer": "', '"answer": "0'),
        lambda text: text.replace('"answer": "', '"answer": "nan'),
        lambda text: text.replace('"answer": "', '"answer": "no number '),
    ],
)
def test_a_damaged_entry_is_ignored(damage, cache_folder, monkeypatch):
    sigma = noise_multiplier(*ASK)
    file = entry_file(cache_folder)
    file.write_text(damage(file.read_text()))
    calls = counted(monkeypatch)
    assert noise_multiplier(*ASK) == sigma
    assert calls


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert noise_multiplier(*ASK) == noise_multiplier(*ASK)


def test_a_forged_entry_cannot_weaken_a_claim(cache_folder):
    sigma = noise_multiplier(*ASK)
    file = entry_file(cache_folder)
    entry = json.loads(file.read_text())
    forged = {"asked": entry["asked"], "answer": repr(sigma / 2)}
    file.write_text(json.dumps({**forged, "sha256": memo._digest(forged)}))
    planted = noise_multiplier(*ASK)
    assert planted == sigma / 2  # the forgery is believed as a suggestion ...
    spent = epsilon([SampledGaussian(0.05, planted, 50, 1.0)], 1e-5, accountant=Accountant.RDP)
    assert spent > 1.5  # ... and the claim, which is computed, shows it


def test_rdp_has_no_bound_for_replacement():
    for q in (0.1, 1.0):
        with refused("replace-without-rdp-bound"):
            epsilon([SampledGaussian(q, 1.0, 10, 1.0)], 1e-5, Relation.REPLACE, Accountant.RDP)
    with refused("replace-without-rdp-bound"):
        noise_multiplier(1.0, 1e-5, 0.1, 10, Relation.REPLACE, Accountant.RDP)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: check_epsilon(0.0), "epsilon-not-positive"),
        (lambda: check_epsilon(math.nan), "epsilon-not-positive"),
        (lambda: check_delta(0.0), "delta-out-of-range"),
        (lambda: check_delta(1.0), "delta-out-of-range"),
        (lambda: check_delta(1e-322), "delta-too-small"),
        (lambda: check_delta(0.01, 100), "delta-above-one-in-n"),
        (lambda: SampledGaussian(0.0, 1.0, 1, 1.0), "sampling-rate-out-of-range"),
        (lambda: SampledGaussian(1.5, 1.0, 1, 1.0), "sampling-rate-out-of-range"),
        (lambda: SampledGaussian(0.5, 1.0, 0, 1.0), "steps-not-positive"),
        (lambda: SampledGaussian(0.5, 1.0, 1.5, 1.0), "steps-not-positive"),
        (lambda: SampledGaussian(0.5, 1.0, True, 1.0), "steps-not-positive"),
        (lambda: SampledGaussian(0.5, MIN_SIGMA / 2, 1, 1.0), "noise-out-of-range"),
        (lambda: SampledGaussian(0.5, MAX_SIGMA * 2, 1, 1.0), "noise-out-of-range"),
        (lambda: SampledGaussian(0.5, math.nan, 1, 1.0), "noise-out-of-range"),
        (lambda: SampledGaussian(0.5, 1.0, 1, 0.0), "sensitivity-not-positive"),
        (lambda: SampledGaussian(0.5, 1.0, 1, 1.0, type="magic"), "field-choice-unknown"),
        (lambda: epsilon([SampledGaussian(0.5, 1.0, 1, 1.0)], 1e-12), "delta-below-accountant"),
        (lambda: noise_multiplier(1000.0, 1e-5, 0.1, 10), "epsilon-too-large"),
        (lambda: noise_multiplier(1e-9, 1e-10, 1.0, 10**6, accountant=Accountant.RDP), "epsilon-unreachable"),
    ],
)
def test_impossible_values_are_refused_in_one_line(call, code):
    with refused(code) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_delta_below_one_over_n_is_fine():
    check_delta(0.009, 100)


def test_events_survive_json_exactly():
    event = SampledGaussian(1024 / 22146, 1 / 3, 541, 0.1 + 0.2)
    text = json.dumps(event.to_dict())
    assert event_from_dict(json.loads(text), kind=SampledGaussian) == event
    assert json.loads(text)["q"] == repr(1024 / 22146)


@pytest.mark.parametrize(
    "change", [{"q": 0.5}, {"q": "half"}, {"q": "1e999"}, {"steps": "3"}, {"sigma": "nan"}, {"type": 3}, {"extra": 1}]
)
def test_broken_events_are_refused(change):
    good = SampledGaussian(0.5, 1.0, 3, 1.0).to_dict()
    with pytest.raises(DposeError):
        event_from_dict({**good, **change}, kind=SampledGaussian)
    del good["q"]
    with refused("field-names-wrong"):
        event_from_dict(good, kind=SampledGaussian)


@pytest.mark.parametrize("accountant", RUNS)
@pytest.mark.parametrize("q", [0.05, 1.0])
def test_the_curve_is_epsilon_at_each_number_of_steps(accountant, q):
    event = SampledGaussian(q=q, sigma=1.1 if q < 1 else 20.0, steps=99, sensitivity=1.0)
    points = [0, 1, 12, 40]
    curve = epsilon_curve(event, 1e-5, Relation.ZERO_OUT, points, accountant)
    assert curve[0] == 0
    for steps, found in zip(points[1:], curve[1:], strict=True):
        whole = epsilon([SampledGaussian(q, event.sigma, steps, 1.0)], 1e-5, Relation.ZERO_OUT, accountant)
        assert found == pytest.approx(whole, rel=2e-3)


def test_a_curve_has_no_negative_steps():
    with refused("steps-negative"):
        epsilon_curve(SampledGaussian(0.1, 1.0, 1, 1.0), 1e-5, Relation.ZERO_OUT, [-1])
