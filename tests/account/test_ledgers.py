"""Copies of one ledger, one account: of all that go on, one at a time has a key, and together they keep to the plan."""

import platform
import shutil
import threading
from dataclasses import replace

import pytest

from dpose.account import charge, charges, check_account
from dpose.account.budgets import CountedSteps, LedgerTakenError, place_of
from dpose.privacy.events import SampledGaussian
from dpose.privacy.ledger import Ledger
from dpose.privacy.marks import marks_of
from refusals import refused
from stored import run_charge

PLAN, STEPS = "ab" * 32, 40
EVENT = SampledGaussian(q=0.05, sigma=1.5, steps=STEPS, sensitivity=1.0)
HERE = marks_of([f"picture {i}" for i in range(20)])


class Copies:
    """One ledger, begun and charged, and copies of it with state folders of their own."""

    def __init__(self, where, folder):
        self.where, self.folder, self.opened = where, folder, []
        ledger = Ledger.create(folder / "0.jsonl", PLAN, "key", folder / "state-0")
        self.entry = run_charge(0, HERE, id=ledger.run_id, events=(EVENT,), ledger=ledger.identity)
        self.first = self.steps(ledger, "0")
        assert self.first.take_up("key", 0, (), begun=False)

    def steps(self, ledger, place):
        self.opened.append(ledger)
        return CountedSteps(ledger, self.entry, STEPS, self.where, place)

    def copy(self, number, of=0):
        """A copy of the ledger as it is now."""
        path = self.folder / f"{number}.jsonl"
        shutil.copy(self.folder / f"{of}.jsonl", path)
        return self.steps(Ledger.append_to(path, self.folder / f"state-{number}"), str(number))

    @property
    def charged(self):
        (entry,) = charges(self.where)
        return entry.events[0].steps


@pytest.fixture
def copies(where, tmp_path):
    made = Copies(where, tmp_path)
    yield made
    for ledger in made.opened:
        ledger.close()


def test_a_copy_that_is_behind_has_no_key(copies):
    old = copies.copy(1)
    assert copies.first.reserve(EVENT, 0, 10) == 10
    assert not old.take_up("key", 0, range(100), begun=True)
    assert len(old.ledger.entries) == 1, "nothing is written where it may not go on"
    assert old.take_up("new", 0, (), begun=True)
    assert check_account(copies.where) == ""


def test_whoever_takes_a_ledger_up_first_has_its_key(copies):
    copies.first.reserve(EVENT, 0, 10)
    copies.first.commit(0, 10)
    one, two = copies.copy(1), copies.copy(2)
    assert one.take_up("key", 0, range(10), begun=True)
    assert not two.take_up("key", 0, range(10), begun=True)
    with pytest.raises(LedgerTakenError):
        copies.first.reserve(EVENT, 10, 10)
    assert copies.first.ledger.spent_steps == 10
    assert one.reserve(EVENT, 10, 10) == 10
    copies.first.commit(0, 10)  # what it had reserved before is still taken
    with pytest.raises(LedgerTakenError):
        copies.first.reserve(EVENT, 10, 1)


def test_steps_that_may_be_drawn_elsewhere_at_this_moment_are_nobody_elses(copies):
    copies.first.reserve(EVENT, 0, 10)
    elsewhere, known = copies.copy(1), range(9)
    assert not elsewhere.take_up("key", 0, known, begun=True)
    assert elsewhere.take_up("key", 0, range(10), begun=True), "all of them can be compared"
    elsewhere.reserve(EVENT, 10, 10)
    elsewhere.ledger.close()
    same = copies.copy(2, of=1)
    same._place = "1"
    assert same.take_up("key", 0, known, begun=True), "its lock tells that no process lives"


def test_no_step_before_a_keys_first_is_drawn_under_it(copies):
    copies.first.reserve(EVENT, 0, 10)
    assert copies.first.take_up("new", 5, (), begun=True)
    copies.first.reserve(EVENT, 5, 10)
    assert not copies.first.take_up("new", 4, range(20), begun=True)
    assert copies.first.take_up("new", 5, range(20), begun=True)


class Died(BaseException):
    pass


@pytest.fixture
def dying(monkeypatch):
    """A process that dies when its ledger has a line and the account does not know it yet."""

    def of(done, *given, **named):
        def die(self, account):
            raise Died

        with monkeypatch.context() as patch:
            patch.setattr(CountedSteps, "_note", die)
            with pytest.raises(Died):
                done(*given, **named)

    return of


def test_a_copy_that_died_as_it_took_up_is_not_the_one_that_did(copies, dying):
    one, two = copies.copy(1), copies.copy(2)
    dying(two.take_up, "key", 0, (), begun=True)
    assert one.take_up("key", 0, (), begun=True)
    assert not two.take_up("key", 0, (), begun=True), "its line is not the other one's"


def test_a_line_that_the_account_does_not_know_reserved_nothing(copies, dying):
    """Its copy goes on, and the line counts."""
    dying(copies.first.reserve, EVENT, 0, 10)
    assert copies.first.ledger.spent_steps == 10
    copies.first.ledger.close()
    again = copies.copy(1)
    assert again.take_up("key", 0, (), begun=True)
    assert again.total == 10


def test_copies_together_keep_to_the_plan(copies):
    copies.first.reserve(EVENT, 0, 15)
    one, two = copies.copy(1), copies.copy(2)
    assert one.take_up("one", 10, (), begun=True)
    assert two.take_up("two", 0, (), begun=True)
    assert one.reserve(EVENT, 10, 10) == 10
    assert two.reserve(EVENT, 0, 10) == 10
    assert copies.first.reserve(EVENT, 10, 10) == 10, "five of them again, under the same key"
    assert one.reserve(EVENT, 20, 10) == 0
    assert one.total == copies.charged == STEPS


def test_what_passes_the_plan_is_charged(copies):
    copies.first.reserve(EVENT, 0, 30)
    copies.first.ledger.close()
    with (copies.folder / "0.jsonl").open("ab") as file:
        file.write(b'{"seq":')
    again = copies.copy(1)
    assert copies.charged == STEPS
    assert again.take_up("key", 0, range(100), begun=True)
    assert again.total == copies.charged == 60
    assert again.reserve(EVENT, 0, 10) == 0


def test_another_ledger_of_one_name_is_refused(copies):
    for other in ("", "cd" * 32):
        for checked in (False, True):
            with refused("account-ledger-differs"):
                charge(replace(copies.entry, ledger=other), copies.where, checked=checked)


def test_every_folder_of_a_run_is_listed(copies):
    for folder in ("/two", "/one", "/two"):
        charge(replace(copies.entry, folder=folder), copies.where, checked=False)
    (entry,) = charges(copies.where)
    assert entry.folders == ("/two", "/one", copies.entry.folder)


def test_of_copies_that_race_one_has_the_key_and_none_passes_the_plan(copies):
    copies.first.reserve(EVENT, 0, 4)
    racing = [copies.copy(number) for number in range(1, 6)]
    had, taken = [], []

    def go_on(number, steps):
        key = "key" if steps.take_up("key", 0, range(4), begun=True) else f"key {number}"
        had.append(key)
        if key != "key":
            assert steps.take_up(key, 0, (), begun=True)
        done = 0
        while count := steps.reserve(EVENT, done, 3):
            taken.extend((key, step) for step in range(done, done + count))
            done += count

    threads = [threading.Thread(target=go_on, args=pair) for pair in enumerate(racing)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert had.count("key") == 1
    assert len({*taken, *(("key", step) for step in range(4))}) == STEPS == copies.charged


def test_a_place_is_a_state_folder_and_no_copy_of_it(tmp_path, monkeypatch):
    first = place_of(tmp_path / "state")
    assert place_of(tmp_path / "state") == first
    (tmp_path / "state").rename(tmp_path / "before")
    shutil.copytree(tmp_path / "before", tmp_path / "state")
    assert place_of(tmp_path / "state") != first
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "before").rename(tmp_path / "state")
    assert place_of(tmp_path / "state") == first
    monkeypatch.setattr(platform, "node", lambda: "another machine")
    assert place_of(tmp_path / "state") != first
