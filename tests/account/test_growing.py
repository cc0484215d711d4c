"""Charges in memory: packed, each as it was written, in mappings that never change and grow without being copied."""

import random
import tracemalloc
from collections import ChainMap

from dpose.account import Charge, charges
from dpose.account.budgets import charge
from dpose.account.charges import Charges, charge_from, charge_to_dict, grown, history
from dpose.account.store import JournalRow, opened
from dpose.privacy.marks import marks_of
from dpose.privacy.neighbours import Relation
from stored import pure


def a_charge(name, *pictures):
    given = (Relation.REPLACE, 0.0, (pure(2.0, 16, tuple((k, k / 8) for k in range(1, 9))),), False)
    return Charge(name, "release", "w", "out", "2026", "pixel", *given, marks=marks_of(pictures))


BODY = charge_to_dict(a_charge("a"), {})


def a_row(number, **changed):
    name = f"{random.Random(number).getrandbits(192):048x}"
    digests = {"outputs": [f"{random.Random(-number).getrandbits(256):064x}"], "sets": {str(number): name}}
    return JournalRow(number, "charge", name, {**BODY, "id": name, **digests, **changed}, "")


def test_it_is_a_dict_to_which_more_is_added_and_what_it_was_stays():
    rng = random.Random(0)
    mapping, plain, before = ChainMap(), {}, []
    for _ in range(300):
        more = {rng.randrange(500): rng.random() for _ in range(rng.randrange(1, 9))}
        before.append((mapping, dict(plain)))
        mapping, plain = grown(mapping, more), {**plain, **more}
        assert len(mapping) == len(plain)
    for made, expected in [*before[::37], (mapping, plain)]:
        assert list(made.items()) == list(expected.items()), "in the order in which they first came"
        assert 1000 not in made
    assert len(mapping.maps) < 10


def test_few_entries_are_copied_however_few_are_added_at_a_time():
    mapping, written = ChainMap(), 0
    for number in range(2000):
        before, mapping = mapping, grown(mapping, {number: number})
        written += sum(len(layer) for layer in mapping.maps if not any(layer is o for o in before.maps))
    assert len(mapping) == 2000
    assert 2000 <= written < 2000 * 12, "two million, were each mapping a copy"


def test_a_row_comes_back_as_it_was_in_the_place_of_the_first_of_its_name():
    rows = [a_row(number, data="ward/\udcff \u00e9", area=number) for number in (1, 7, 2**40)]
    again = JournalRow(2**40 + 1, "charge", rows[0].name, {**rows[0].body, "area": 5}, "")
    read = Charges().with_rows(rows[:2], None).with_rows([rows[2], again], None)
    for row, first in ((again, 1), (rows[1], 7), (rows[2], 2**40)):
        expected = charge_from(row, None, first)
        assert read[row.name] == expected
        assert read[row.name].stored == expected.stored
    assert [entry.seq for entry in read.values()] == [1, 7, 2**40]


def test_a_charge_in_memory_is_some_hundred_bytes():
    """It was five thousand: what a command keeps of every item that it has released."""
    rows = [a_row(number) for number in range(1, 1001)]
    tracemalloc.start()
    try:
        read = Charges().with_rows(rows, None)
        kept = tracemalloc.get_traced_memory()[0] / len(rows)
    finally:
        tracemalloc.stop()
    assert kept < 500
    assert [entry.id for entry in read.values()] == [row.name for row in rows]
    assert read[rows[7].name].stored.seq == 8


def test_many_pages_of_the_journal_are_read_as_one(tmp_path, monkeypatch):
    monkeypatch.setattr("dpose.account.store.ROWS_AT_ONCE", 3)
    for number in range(8):
        charge(a_charge(f"c{number % 5}", str(number)), tmp_path, checked=False)
    expected = {entry.id: entry.stored.sets for entry in charges(tmp_path)}
    with opened(tmp_path).transaction(write=False) as account:
        account.known = None
        again = history(account)
    assert again.seq == 8
    assert {name: entry.stored.sets for name, entry in again.charges.items()} == expected
    assert list(expected) == [f"c{k}" for k in range(5)]
