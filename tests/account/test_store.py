"""The account on both engines: races, kills, keys, alterations; what every picture has spent, by brute force."""

import itertools
import math
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from dpose.account import (
    Budget,
    State,
    budget_states,
    budgets,
    charge,
    charge_all,
    charges,
    check_account,
    composed,
    conclude,
    lift_budget,
    set_budget,
    spending,
    unbounded,
    what_fits,
)
from dpose.account import composition as compositions
from dpose.account.charges import history, sets_of
from dpose.account.composition import renyi_cost
from dpose.account.store import AccountKey, opened
from dpose.errors import DposeError
from dpose.privacy.accounting import epsilon
from dpose.privacy.events import Approximate, Renyi, SampledGaussian
from dpose.privacy.marks import marks_of
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.renyi import ORDERS, order_of_budget, zcdp_epsilon
from dpose.runs.account import account_of
from refusals import refused
from stored import pure, run_charge, zcdp

EVENT = SampledGaussian(q=0.05, sigma=1.5, steps=100, sensitivity=1.0)
HERE = marks_of([f"picture {i}" for i in range(20)])


def entry(number=0, marks=HERE, **changes):
    return run_charge(number, marks, **{"events": (EVENT,), **changes})


def release(number=0, marks=HERE[:1], event=None, **changes):
    event = event or pure(0.5, pixels=16)
    own = {"what": "release", "unit": "pixel", "relation": Relation.REPLACE, "delta": 0.0, "area": 64}
    return entry(number, marks, **{**own, "events": (event,), **changes})


RACER = """
import secrets, sys
from dataclasses import replace
from pathlib import Path
from test_store import entry, place
from dpose.errors import DposeError
from dpose.account import charge
from stored import pure
from dpose.privacy.neighbours import Relation
from dpose.privacy.events import Laplace
where, attempts = place(sys.argv[1]), int(sys.argv[2])
for _ in range(attempts):
    name = secrets.token_hex(16)
    try:
        charge(entry(0, id=name, events=(pure(1.0),)), where)
    except DposeError as error:
        assert "would be passed" in error.line(), error
        continue
    print(name, flush=True)
"""


def place(text):
    return text if "://" in text else Path(text)


def race(where, processes, attempts, kill):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])}
    command = [sys.executable, "-c", RACER, str(where), str(attempts)]
    running = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    rng = random.Random(7)
    for process in running[:kill]:
        for _ in range(rng.randrange(1, 4)):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    told = []
    for number, process in enumerate(running):
        out, err = process.communicate()
        assert number < kill or process.returncode == 0, err
        told += out.split()
    return told


def test_racing_processes_never_spend_more_than_a_budget_whoever_is_killed(where):
    """Of what fits all is spent, and what was told to be reserved is in the account."""
    order, _ = order_of_budget(8.0, 1e-5)
    each = renyi_cost([pure(1.0)], order, replaces=False)[0]
    set_budget(Budget(8.0, 1e-5, "ward", HERE), where)
    cap = budget_states(where=where)[0].budget.cap
    told = race(where, 4, 12, kill=2)
    kept = charges(where)
    assert len(kept) == math.floor(cap / each) < 24
    assert set(told) <= {one.id for one in kept}
    assert budget_states(where=where)[0].spent == pytest.approx(each * len(kept))
    assert check_account(where) == ""


def test_the_filter_lets_in_what_brute_force_lets_in(where):
    """Every picture's divergences added up one by one, by formulas of their own, decide as the account does."""
    rng = np.random.default_rng(3)
    pictures = [f"p{i}" for i in range(6)]
    budget = Budget(6.0, 1e-5, "all", marks_of(pictures))
    set_budget(budget, where)
    order, cap = order_of_budget(6.0, 1e-5)
    spent, refused = dict.fromkeys(pictures, 0.0), 0
    for number in range(40):
        mine = [p for p in pictures if rng.random() < 0.4]
        if not mine:
            continue
        if rng.random() < 0.5:
            eps = float(rng.uniform(0.2, 1.0))
            event, cost = pure(eps), min(eps, order * eps**2 / 2)
        else:
            rho = float(rng.uniform(0.02, 0.2))
            event, cost = zcdp(rho), order * rho
        allowed = all(
            spent[p] + cost <= cap or (spent[p] == 0 and composed([entry(events=(event,))], 1e-5) <= 6.0) for p in mine
        )
        try:
            charge(entry(number, marks_of(mine), events=(event,)), where)
        except DposeError:
            assert not allowed
            refused += 1
            continue
        assert allowed
        for p in mine:
            spent[p] += cost
    assert refused > 5
    (state,) = budget_states(where=where)
    assert state.spent == pytest.approx(max(spent.values()), rel=1e-9)
    assert state.spent <= cap


def test_sets_of_any_overlap_are_told_apart_as_sets_are(where):
    rng = np.random.default_rng(5)
    pictures = [f"p{i}" for i in range(12)]
    read = []
    for number in range(9):
        mine = frozenset(p for p in pictures if rng.random() < 0.35) or frozenset(pictures[:1])
        read.append(mine)
        charge(entry(number, marks_of(mine)), where, checked=False)
    ids = [one.id for one in charges(where)]
    for asked in [*({p} for p in pictures), {"p1", "p7"}, {"nobody"}, {"nobody", "p2"}, set(pictures)]:
        wanted = [name for name, mine in zip(ids, read, strict=True) if mine & asked]
        assert [one.id for one in charges(where, of=marks_of(asked))] == wanted
        most = max(sum(p in mine for mine in read) for p in asked)
        found = spending(Neighbours("image"), 1e-5, where, of=marks_of(asked)).epsilon
        assert found == pytest.approx(epsilon([replace(EVENT, steps=100 * most)], 1e-5) if most else 0.0)
    with opened(where).transaction(write=False) as account:
        assert sets_of(account, marks_of(())) == frozenset()
    assert check_account(where) == ""


def test_people_are_added_up_whatever_pictures_share(where):
    """Two pictures of one person in two runs: nothing is parallel for the person."""
    charge(entry(0, marks_of(["a"]), unit="subject"), where, checked=False)
    charge(entry(1, marks_of(["b"]), unit="subject"), where, checked=False)
    both = marks_of(["a", "b"])
    one, two = epsilon([EVENT], 1e-5), epsilon([replace(EVENT, steps=200)], 1e-5)
    assert spending(Neighbours("image"), 1e-5, where, of=both).epsilon == pytest.approx(one)
    assert spending(Neighbours("subject"), 1e-5, where, of=both).epsilon == pytest.approx(two)


@pytest.mark.parametrize("first", [0, 1])
def test_a_budget_for_subjects_counts_what_runs_for_subjects_connect(where, first):
    """Somebody may be in all pictures of such a run: what another read of them counts, whichever came first."""
    a, b, c = (marks_of([name]) for name in "abc")
    runs = [
        entry(0, np.union1d(a, b), unit="subject", events=(pure(1.0),)),
        entry(1, np.union1d(b, c), unit="subject", events=(pure(1.0),)),
    ]
    set_budget(Budget(1.5, 1e-5, "a", a, Neighbours("subject")), where)
    charge(runs[first], where)
    with refused("budget-exceeded"):
        charge(runs[1 - first], where)
    (state,) = budget_states(where=where)
    assert state.fixed == pytest.approx(1.0 - first, abs=1e-4)  # b and c alone are connected with a by no run
    assert lift_budget(a, where)
    charge(runs[1 - first], where)
    with refused("budget-already-passed"):
        set_budget(Budget(1.5, 1e-5, "c", c, Neighbours("subject")), where)


# restating


def test_losses_are_restated_by_group_privacy_or_better():
    assert pure(0.5, 16).for_neighbours(Neighbours.of_pixels(17), 64).pure() == 1.0
    assert pure(0.5, 16).for_neighbours(Neighbours.of_pixels(16), 64).pure() == 0.5
    assert pure(0.5, 16).for_neighbours(Neighbours.of_pixels(3), 64).pure() == 0.5
    assert pure(0.5, 16).for_neighbours(Neighbours("image"), 65).pure() == 2.5
    assert pure(0.5, 16).for_neighbours(Neighbours.of_pixels(10**9), 64).pure() == 2.0  # no more than there are
    assert pure(0.5, 16).for_neighbours(Neighbours("image"), 0).pure() == math.inf
    assert pure(0.5, 16, ((64, 0.7),)).for_neighbours(Neighbours.of_pixels(50), 64).pure() == Fraction(0.7)
    assert pure(0.5, 16, ((0, 0.6),)).for_neighbours(Neighbours.of_pixels(40), 0).pure() == Fraction(0.6)
    assert pure(0.5).for_neighbours(Neighbours.of_pixels(5), 0).pure() == 0.5
    assert zcdp(0.1, 16).for_neighbours(Neighbours.of_pixels(48), 64).rho() == pytest.approx(0.9)
    twice = Approximate(0.5, 1e-6, 16).for_neighbours(Neighbours.of_pixels(32), 64)
    assert (twice.epsilon, twice.delta) == (1.0, pytest.approx(1e-6 * (1 + math.exp(0.5))))
    assert Approximate(0.5, 1e-3, 1).for_neighbours(Neighbours("image"), 10**6) == Approximate(math.inf, 1.0, 0)


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_group_privacy_bounds_real_mechanisms(steps):
    """Gaussians and Laplaces that are moved `steps` times as far, computed as what they are."""
    sigma, order = 2.0, 3.0
    rho = 1 / (2 * sigma**2)
    far = order * (steps / sigma) ** 2 / 2
    moved = zcdp(rho, 1).for_neighbours(Neighbours.of_pixels(steps), 10)
    assert renyi_cost([moved], order, replaces=True)[0] >= far * (1 - 1e-12)
    # randomised response on each of `steps` bits
    eps = 0.7
    yes = math.exp(eps) / (1 + math.exp(eps))
    outputs = itertools.product((0, 1), repeat=steps)
    total = sum(
        math.prod(yes if b else 1 - yes for b in out) ** order
        * math.prod(1 - yes if b else yes for b in out) ** (1 - order)
        for out in outputs
    )
    true = math.log(total) / (order - 1)
    assert renyi_cost([pure(eps, 1).for_neighbours(Neighbours.of_pixels(steps), 10)], order, replaces=True)[0] >= true


def _renyi_of_mixtures(order, q, first, second, sigma):
    """By adding up a fine grid: D(q N(first) + (1-q) N(0) | q N(second) + (1-q) N(0))."""
    x = np.linspace(-25 * sigma, 25 * sigma, 400_001)

    def log_density(mean):
        moved, still = -((x - mean) ** 2) / (2 * sigma**2), -(x**2) / (2 * sigma**2)
        return np.logaddexp(math.log(q) + moved, math.log1p(-q) + still) if q < 1 else moved

    area = (x[1] - x[0]) / (sigma * math.sqrt(2 * math.pi))
    total = np.exp(order * log_density(first) + (1 - order) * log_density(second)).sum() * area
    return math.log(float(total)) / (order - 1)


MIXED = [(0.05, 1.5, 2.0), (0.3, 1.0, 3.0), (1.0, 2.0, 4.0), (0.01, 0.8, 5.0)]


@pytest.mark.parametrize(("q", "sigma", "order"), MIXED)
def test_replacement_under_sampling_is_bounded(q, sigma, order):
    """The worst replacement moves a sum from one side to the other; its divergence by numerical integration."""
    event = SampledGaussian(q=q, sigma=sigma, steps=1, sensitivity=1.0)
    bound = renyi_cost([event], order, replaces=True)[0]
    for first, second in ((1.0, -1.0), (-1.0, 1.0), (1.0, 0.0), (1.0, 0.5)):
        assert bound >= _renyi_of_mixtures(order, q, first, second, sigma) * (1 - 1e-6)
    assert bound <= 2 * order / sigma**2 * (1 + 1e-12)
    alone = renyi_cost([event], order, replaces=False)[0]
    assert alone == pytest.approx(_renyi_of_mixtures(order, q, 1.0, 0.0, sigma), rel=1e-6)


def test_a_renyi_curve_bounds_upwards_alone():
    loss = Renyi(((2.0, 0.1), (8.0, 0.5)))
    assert (loss.at(1.5), loss.at(2.0), loss.at(3.0), loss.at(9.0)) == (0.1, 0.1, 0.5, math.inf)
    with refused("renyi-orders-invalid"):
        Renyi(((8.0, 0.1), (2.0, 0.5)))


def test_every_order_and_its_cap_come_from_a_public_rule():
    """And the cap is what the conversion lets through: converted back it is the budget."""
    assert list(ORDERS) == sorted(set(ORDERS))
    for eps, delta in ((0.1, 1e-5), (1.0, 1e-5), (8.0, 1e-6), (50.0, 1e-9)):
        order, cap = order_of_budget(eps, delta)
        back = cap + math.log((order - 1) / order) - (math.log(0.9 * delta) + math.log(order)) / (order - 1)
        assert back == pytest.approx(eps)
        # no order of the list gives Gaussians more room, and the best of all is not far away
        assert zcdp_epsilon(cap / order, delta) <= eps


def test_compositions_of_one_kind_are_their_own_and_mixed_ones_lie_between():
    assert composed([release(0), release(1)], 1e-5, Neighbours.of_pixels(16)) <= 1.0
    both = [release(0, event=zcdp(0.02, 16)), release(1, event=zcdp(0.03, 16))]
    assert composed(both, 1e-5, Neighbours.of_pixels(16)) == pytest.approx(zcdp_epsilon(0.05, 1e-5))
    mixed = [entry(0), release(1), *both]
    whole = composed(mixed, 1e-5, Neighbours("image"))
    alone = [composed([one], 1e-5, Neighbours("image")) for one in mixed]
    assert max(alone) < whole
    assert composed([release(0, event=Approximate(1.0, 1e-5, 0))] * 2, 1.5e-5) == math.inf
    assert math.isinf(composed([release(0, area=0)], 1e-5, Neighbours("image")))


@pytest.mark.parametrize(
    ("made", "unit", "why"),
    [
        (release(), "pixel", ""),
        (release(), "image", ""),
        (release(), "video", "only the pixels of each image"),
        (release(within="video"), "video", ""),
        (release(within="video"), "subject", "only the pixels of each video"),
        (release(area=0), "image", "how many the picture has"),
        (release(area=0, event=pure(1.0)), "image", ""),
        (entry(), "pixel", ""),
        (entry(unit="crop"), "pixel", "only each crop"),
        (release(events=()), "pixel", "no noise"),
    ],
)
def test_what_releases_bound(made, unit, why):
    assert (unbounded(made, unit) == "") == (why == "")
    assert why in unbounded(made, unit)


# reservations


def finished_alike(marks, settings, where):
    found = charges(where, of=marks)
    return [one for one in found if one.settings == settings and one.state is State.COMMITTED]


def test_a_release_is_reserved_committed_and_found_again(where):
    asked = release(0, settings="s" * 64)
    charge(asked, where)
    assert finished_alike(asked.marks, "s" * 64, where) == []  # a crash between: not finished, and counted
    assert spending(Neighbours.of_pixels(16), 1e-5, where, of=asked.marks).epsilon > 0.49
    conclude({asked.id: ("d" * 64,)}, where=where)
    (done,) = finished_alike(asked.marks, "s" * 64, where)
    assert (done.state, done.outputs) == (State.COMMITTED, ("d" * 64,))
    assert finished_alike(asked.marks, "t" * 64, where) == []
    assert finished_alike(HERE[1:], "s" * 64, where) == []
    with refused("charge-complete"):
        conclude({asked.id: ()}, State.FAILED, where)
    more = release(1)
    charge(more, where)
    conclude({more.id: ()}, State.FAILED, where)
    assert charges(where)[1].state is State.FAILED
    pixels = Neighbours.of_pixels(16)
    assert spending(pixels, 1e-5, where, of=asked.marks).epsilon == pytest.approx(1.0, abs=1e-3)
    again = spending(pixels, 1e-5, where, of=asked.marks, also=[release(2)])
    assert again.epsilon == pytest.approx(1.5, abs=1e-3)
    assert len(again.charges) == 2
    with refused("charge-unknown"):
        conclude({"f" * 32: ()}, where=where)


def test_file_and_pixels_are_two_names_of_one_picture(where):
    """Another decoder, the same file; another file, the same pixels."""
    charge(release(0, marks_of(["file", "pixels"])), where, checked=False)
    charge(release(1, marks_of(["file", "pixels of another decoder"])), where, checked=False)
    charge(release(2, marks_of(["saved again", "pixels"])), where, checked=False)
    found = spending(Neighbours.of_pixels(16), 1e-5, where, of=marks_of(["file", "pixels"]))
    assert len(found.charges) == 3
    assert found.epsilon == pytest.approx(1.0, abs=1e-3)


def test_the_charges_of_a_picture_are_found_without_looking_at_the_others(where):
    rng, pictures = random.Random(5), [f"p{k}" for k in range(12)]
    read = dict[int, set[str]]()
    for step in range(40):
        number = rng.randrange(30)  # some are charged again, of more pictures
        some = set(rng.sample(pictures, rng.randrange(1, 4)))
        read[number] = read.get(number, set()) | some
        kind = {"opened": marks_of(some), "marks": marks_of(())} if number % 5 == 0 else {"marks": marks_of(some)}
        charge(entry(number, **kind), where, checked=False)
        if step % 7 == 0:
            forget(where)  # as another process, which reads the journal from its beginning
        for asked in ([rng.choice(pictures)], rng.sample(pictures, 5)):
            found = [found.id for found in charges(where, of=marks_of(asked))]
            assert set(found) == {entry(n).id for n, theirs in read.items() if theirs & set(asked)}
            every = [known.id for known in charges(where)]
            assert found == [name for name in every if name in found], "oldest first"

    class Looked(dict):
        count = 0

        def __getitem__(self, name):
            Looked.count += 1
            return super().__getitem__(name)

        def __iter__(self):
            raise AssertionError("all charges were looked at")

        values = items = keys = __iter__

    with opened(where).transaction(write=False) as account:
        known = history(account)
        sets = sets_of(account, marks_of(["p3"]))
        theirs = replace(known, charges=Looked(known.charges)).among(sets)
    assert len(theirs) == Looked.count < len(known.charges)


def test_a_view_is_of_one_moment_whatever_other_threads_read_meanwhile(where):
    charge(entry(0, HERE), where, checked=False)
    with opened(where).transaction(write=False) as view:
        assert view.head.seq == 1  # from here on it sees what was there now

        def another() -> None:
            charge(entry(1, HERE), where, checked=False)
            assert len(charges(where)) == 2

        thread = threading.Thread(target=another)
        thread.start()
        thread.join()
        assert history(view).seq == 1
        assert len(history(view).charges) == 1
    assert len(charges(where)) == 2


def test_all_are_reserved_or_none(where):
    set_budget(Budget(1.0, 1e-5, "ward", HERE, Neighbours.of_pixels(16)), where)
    with refused("budget-exceeded"):
        charge_all([release(k, event=pure(0.9, 16)) for k in range(3)], where)
    assert charges(where) == []
    charge_all([release(k, HERE[k : k + 1], pure(0.9, 16)) for k in range(3)], where)  # each another picture
    assert len(charges(where)) == 3


def test_a_budget_tells_where_it_stands_and_what_would_fit(where):
    set_budget(Budget(8.0, 1e-5, "ward", HERE), where)
    assert [state.level for state in budget_states(HERE, where)] == [0]
    for number in range(50):
        charge(entry(number, events=(pure(1.0),)), where)
        (state,) = budget_states(where=where)
        if state.used >= 0.8:
            break
    assert state.level == 80
    assert "left: 235 steps of 1 at sigma 1.5" in what_fits(state, [entry()])
    assert "steps at sampling rate 0.05 at" in what_fits(state, [entry(units=0)])
    found = re.search(r"one release of each image at (\S+) for 16 pixels", what_fits(state, [release(0)]))
    assert found
    fitting = float(found[1])
    charge(release(90, HERE, pure(fitting, 16)), where)
    with refused("budget-exceeded"):
        charge(release(91, HERE, pure(fitting, 16)), where)


def test_a_budget_below_what_is_spent_is_refused(where):
    for number in range(3):
        charge(entry(number), where, checked=False)
    with refused("budget-already-passed"):
        set_budget(Budget(1.0, 1e-5, "ward", HERE), where)
    assert budgets(where) == []


def test_another_owners_budget_stays(where):
    set_budget(Budget(8.0, 1e-5, "ward", HERE, owner="kestrel"), where)
    for word in ("", "falcon"):
        with refused("budget-of-other-owner"):
            set_budget(Budget(80.0, 1e-5, "ward", HERE, owner=word), where)
        with refused("budget-of-other-owner"):
            lift_budget(HERE, where, word)
    charge(entry(), where)
    assert lift_budget(HERE, where, "kestrel")


def test_what_is_charged_past_a_budget_is_counted_all_the_same(where):
    """A run that lost steps and took them again has spent them, whatever anybody allowed."""
    set_budget(Budget(8.0, 1e-5, "ward", HERE), where)
    charge(entry(), where)
    charge(entry(events=(replace(EVENT, steps=10_000),)), where, checked=False)
    with refused("budget-exceeded"):
        charge(entry(1, events=(pure(1e-3),)), where)


# the key


def test_nothing_in_the_database_tells_a_picture(tmp_path):
    charge(entry(), tmp_path, checked=False)
    raw = b"".join(file.read_bytes() for file in tmp_path.glob("account.sqlite*"))
    rows = [value for (value,) in sqlite3.connect(tmp_path / "account.sqlite").execute("SELECT subject FROM subjects")]
    assert len(rows) == len(HERE)
    assert not set(rows) & {int(np.int64(mark.astype(np.int64))) for mark in HERE}
    assert not any(mark.tobytes() in raw for mark in HERE)
    key = (tmp_path / "account.key").read_text().strip()
    assert key.encode() not in raw
    assert bytes.fromhex(key) not in raw
    assert {file.stat().st_mode & 0o777 for file in tmp_path.glob("account.*")} == {0o600}


def test_keyed_hashes_differ_from_key_to_key_and_are_those_of_aes():
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    one, two = AccountKey(bytes(32)), AccountKey(bytes([1] * 32))
    assert not set(one.subjects(HERE).tolist()) & set(two.subjects(HERE).tolist())
    cipher = Cipher(algorithms.AES(one.derived("subjects")), modes.ECB()).encryptor()
    block = cipher.update(int(HERE[0]).to_bytes(8, "little") + bytes(8))
    assert one.hashes(HERE[:1]).tolist() == [int.from_bytes(block[:8], "little", signed=True)]


def forget(where):
    """What a new process would not know."""
    opened(where).ready = None
    opened(where).known = None


def test_a_wrong_or_lost_key_is_refused_and_never_read_as_nothing_spent(where, monkeypatch):
    monkeypatch.setenv("DPOSE_ACCOUNT_KEY", "ab" * 32)
    charge(entry(), where, checked=False)
    forget(where)
    monkeypatch.setenv("DPOSE_ACCOUNT_KEY", "ac" * 32)
    for ask in (lambda: charges(where), lambda: charge(entry(1), where), lambda: charges(where, of=HERE)):
        with refused("account-key-wrong"):
            ask()
    monkeypatch.setenv("DPOSE_ACCOUNT_KEY", "ab")
    with refused("account-key-malformed"):
        charges(where)
    monkeypatch.delenv("DPOSE_ACCOUNT_KEY")
    with refused("account-key-missing"):
        charges(where)
    monkeypatch.setenv("DPOSE_ACCOUNT_KEY", "ab" * 32)
    assert len(charges(where)) == 1


def test_an_account_that_is_gone_is_not_begun_anew(tmp_path):
    charge(entry(), tmp_path, checked=False)
    for file in tmp_path.glob("account.sqlite*"):
        file.unlink()
    forget(tmp_path)
    for ask in (lambda: charges(tmp_path), lambda: charge(entry(1), tmp_path)):
        with refused("account-set-back", where="here any more"):
            ask()


def test_to_ask_makes_no_account(tmp_path):
    assert charges(tmp_path) == []
    charge(entry(), tmp_path, dry_run=True)
    assert spending(Neighbours("image"), 1e-5, tmp_path, of=HERE).epsilon == 0
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_others_may_read_is_refused(tmp_path):
    charge(entry(), tmp_path, checked=False)
    forget(tmp_path)
    (tmp_path / "account.key").chmod(0o644)
    with refused("account-key-exposed"):
        charges(tmp_path)


# what is wrong with a database


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DELETE FROM journal WHERE seq = 1", "is not as it was written"),
        ("DELETE FROM journal WHERE seq = 3", "missing at the end"),
        ("UPDATE journal SET body = REPLACE(body, '1.5', '9.5') WHERE seq = 2", "is not as it was written"),
        ("UPDATE meta SET value = '2 ' || (SELECT mac FROM journal WHERE seq = 2) WHERE name = 'head'", "were added"),
        ("UPDATE sets SET digest = 'x'", "is another one"),
        ("DELETE FROM subjects WHERE subject IN (SELECT MIN(subject) FROM subjects)", "lost or won"),
        ("UPDATE subjects SET subject = 17 WHERE subject IN (SELECT MIN(subject) FROM subjects)", "set 1"),
        ("DELETE FROM meets", "which sets"),
        ("INSERT INTO meets VALUES (1, 17)", "which sets"),
    ],
)
def test_what_was_altered_by_hand_is_found(where, statement, said, capsys):
    for number in range(3):
        charge(entry(number), where, checked=False)
    forget(where)
    with opened(where).transaction() as account:
        account.run(statement)
    assert said in check_account(where)
    if "journal" in statement:
        with refused("account-altered"):
            charges(where)
    with refused(("account-altered", "account-set-back")):
        account_of(None, None, Console(quiet=True), where=where)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM budgets",
        "UPDATE budgets SET spent = '-1.0'",
        "DELETE FROM meets",
        "DELETE FROM journal WHERE kind = 'budget'",
        "UPDATE journal SET kind = 'charge' WHERE kind = 'budget'",
        "UPDATE journal SET kind = 'lift' WHERE kind = 'budget'",
        "UPDATE journal SET name = 'budget 999' WHERE kind = 'budget'",
    ],
)
@pytest.mark.parametrize("later", [False, True])
def test_who_writes_sql_without_the_key_switches_no_budget_off(where, statement, later):
    """Which budgets stand is in the journal; what is spent of each, and that each set meets itself, is looked for."""
    set_budget(Budget(1.0, 1e-5, "ward", HERE), where)
    if later:  # so that the budget's row is not the journal's last, which is looked at anyway
        charge(entry(0, marks_of(["of nobody else"])), where)
    with refused("budget-exceeded"):
        charge(entry(1, events=(pure(2.0),)), where)
    forget(where)
    with opened(where).transaction() as account:
        account.run(statement)
    with refused("account-altered"):
        charge(entry(2, events=(pure(0.1),)), where)


@pytest.mark.parametrize("moved", ["set_id = 999", "name = 'budget 999'"])
def test_a_budget_is_found_wherever_its_bound_stands(where, moved):
    set_budget(Budget(1.0, 1e-5, "ward", HERE), where)
    with opened(where).transaction() as account:
        account.run(f"UPDATE budgets SET {moved}")
    with refused(("budget-exceeded", "account-altered")):
        charge(entry(1, events=(pure(2.0),)), where)


def test_pairs_of_sets_that_were_taken_out_are_missed(where):
    """One charge's alone: no budget of other pictures is asked, until the account is looked at."""
    charge(entry(0), where, checked=False)
    charge(entry(1, HERE[:3]), where, checked=False)
    assert check_account(where) == ""
    with opened(where).transaction() as account:
        account.run("DELETE FROM meets WHERE one <> other")
    assert "which sets" in check_account(where)


def test_a_bound_that_was_lowered_by_hand_is_found(where):
    set_budget(Budget(8.0, 1e-5, "ward", HERE), where)
    charge(entry(), where)
    with opened(where).transaction() as account:
        account.run("UPDATE budgets SET spent = '-1.0'")
    with refused("account-altered"):
        charge(entry(1), where)


def test_a_composition_that_somebody_else_wrote_is_computed_anew(where):
    charge(entry(), where, checked=False)
    true = spending(Neighbours("image"), 1e-5, where, of=HERE)
    with opened(where).transaction() as account:  # of a fixed plan at delta, and at the share of it of a filter
        assert account.run("UPDATE compositions SET value = '0.001'") == 2
    assert spending(Neighbours("image"), 1e-5, where, of=HERE) == true


def test_how_a_budget_stands_is_computed_once(where, monkeypatch):
    """Loss distributions of many kinds of runs take seconds."""
    set_budget(Budget(8.0, 1e-5, "ward", HERE), where)
    charge(entry(), where)
    states = budget_states(where=where)
    forget(where)
    monkeypatch.setattr(compositions, "composed", None)
    assert budget_states(where=where) == states


def test_a_newer_schema_and_an_account_that_cannot_be_reached(where, tmp_path):
    charge(entry(), where, checked=False)
    with opened(where).transaction() as account:
        account.set_meta("schema", "2")
    forget(where)
    with refused("account-newer", where="set XDG_STATE_HOME"):
        charges(where)
    for address in ("me:secret@127.0.0.1:1/none", "me:s3@secret@127.0.0.1:1/none", "127.0.0.1:1/none?password=secret"):
        with refused(("account-unusable", "account-place-malformed")) as told:
            charges(f"postgresql+psycopg://{address}")
        assert "secret" not in told.value.line()
    for malformed in ("mysql://somewhere/x", "postgresql:/me:secret@h/none", "me:secret@h/none"):
        with refused("account-place-malformed") as told:
            charges(malformed)
        assert "secret" not in told.value.line()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "account.sqlite").write_bytes(b"no database at all, and long enough to be read as one" * 9)
    with refused("account-altered", where="database any more"):
        charges(tmp_path / "broken")


def test_an_account_in_a_folder_of_other_things_closes_itself_alone(tmp_path):
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "tool").write_text("#!/bin/sh")
    for path, mode in ((home, 0o755), (home / "bin", 0o2775), (home / "bin" / "tool", 0o755)):
        path.chmod(mode)
    before = [path.stat().st_mode for path in (home, home / "bin", home / "bin" / "tool")]
    url = f"sqlite:///{home}/ward.sqlite"
    for _ in range(2):
        charge(entry(), url, checked=False)
        forget(url)
        assert (home / "ward.sqlite").stat().st_mode & 0o777 == 0o600
        (home / "ward.sqlite").chmod(0o644)
    assert len(charges(url)) == 1
    assert [path.stat().st_mode for path in (home, home / "bin", home / "bin" / "tool")] == before


def test_a_relative_path_is_one_account_wherever_the_work_is_done(tmp_path, monkeypatch):
    """What names it for jobs, too, is refused; what names it for one command is made absolute."""
    monkeypatch.chdir(tmp_path)
    assert opened("sqlite:///ward.sqlite").url == f"sqlite:///{tmp_path}/ward.sqlite"
    monkeypatch.setenv("DPOSE_ACCOUNT", "sqlite:///ward.sqlite")
    with refused("account-place-relative", where=f"sqlite:///{tmp_path}/ward.sqlite"):
        charges()


def test_an_account_of_a_build_with_other_tables_says_what_to_do(tmp_path):
    charge(entry(), tmp_path, checked=False)
    with opened(tmp_path).transaction() as account:
        account.run("ALTER TABLE journal RENAME COLUMN body TO content")
    forget(tmp_path)
    with refused("account-unusable", where="set XDG_STATE_HOME"):
        charges(tmp_path)


def test_a_full_disk_is_one_line(tmp_path):
    charge(entry(), tmp_path, checked=False)
    with opened(tmp_path).transaction() as account:
        pages = account.rows("PRAGMA page_count")[0][0]
        account.rows(f"PRAGMA max_page_count = {pages}")  # of this connection, which is used again
    with refused("disk-full"):
        charge(entry(1, marks_of(map(str, range(50_000)))), tmp_path, checked=False)
    assert len(charges(tmp_path)) == 1


def test_who_writes_waits_before_anything_is_read(where):
    """Else two could decide by the same reading."""
    charge(entry(0), where)
    inside, done = threading.Event(), threading.Event()

    def other():
        with opened(where).transaction():
            inside.set()
        done.set()

    waiting = threading.Thread(target=other)
    with opened(where).transaction():
        waiting.start()
        assert not inside.wait(0.3)
    waiting.join()
    assert done.is_set()
