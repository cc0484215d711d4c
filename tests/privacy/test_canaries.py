"""A commitment to canaries: it opens to one thing alone, and stands in the ledger before the first step."""

import json
import stat
from dataclasses import replace

import pytest

from dpose.privacy.canaries import Opening, keep_opening, kept_opening
from dpose.privacy.events import SampledGaussian
from dpose.privacy.ledger import Ledger, read_ledger
from dpose.privacy.sections import PlantedCanaries
from refusals import refused

MADE = {"parameter": "weight", "coordinates": [3, 1, 0, 2]}
OPENING = Opening("gradient", (True, False), MADE, (0.5, -0.25, 1.0, 0.0), bytes(range(32)))
CHANGES = {
    "kind": {"kind": "input"},
    "coins": {"coins": (True, True)},
    "made_from": {"made_from": {**MADE, "coordinates": [1, 3, 0, 2]}},
    "before": {"before": (0.5, -0.25, 1.0, 0.125)},
    "salt": {"salt": bytes(32)},
}


@pytest.mark.parametrize("name", CHANGES)
def test_nothing_else_opens_it(name):
    other = replace(OPENING, **CHANGES[name])
    assert other.commitment != OPENING.commitment
    with refused("opening-does-not-fit", where="here"):
        other.check(OPENING.committed, "here")
    OPENING.check(OPENING.committed, "here")


def test_other_words_beside_the_same_commitment_are_refused():
    with refused("opening-does-not-fit"):
        OPENING.check(PlantedCanaries("gradient", "3", OPENING.commitment), "here")


def test_it_reads_back_and_is_kept_for_its_owner_alone(tmp_path):
    assert Opening.of(json.loads(OPENING.to_json()), "here") == OPENING
    assert kept_opening("ab" * 16, tmp_path) is None
    keep_opening("ab" * 16, OPENING, tmp_path)
    assert kept_opening("ab" * 16, tmp_path) == OPENING
    assert stat.S_IMODE((tmp_path / "canaries" / f"{'ab' * 16}.json").stat().st_mode) == 0o600
    assert "coins" not in repr(OPENING)


@pytest.mark.parametrize(
    "change",
    [
        {"coins": "012"},
        {"coins": [1, 0]},
        {"salt": "00" * 31},
        {"salt": "no"},
        {"schema": 2},
        {"kind": "other"},
        {"before": [0.0]},
        {"before": [0.0, "1"]},
        {"before": [0.0, 1e999]},
        {"made_from": []},
        {"more": 1},
    ],
)
def test_what_is_no_opening_is_refused_in_one_line(change, tmp_path):
    file = tmp_path / "opening.json"
    file.write_text(json.dumps({**json.loads(OPENING.to_json()), **change}))
    with refused("opening-invalid", where="opening.json"):
        Opening.read(file)


def test_coins_and_salt_are_drawn_anew_and_fair():
    drawn = [Opening.drawn("gradient", 1000, {}, [0.0] * 1000) for _ in range(2)]
    assert drawn[0].salt != drawn[1].salt
    assert drawn[0].coins != drawn[1].coins
    for opening in drawn:
        assert 400 < sum(opening.coins) < 600  # six standard deviations
        word = sum(a != b for a, b in zip(opening.coins, opening.coins[1:], strict=False))
        assert 400 < word < 600


def test_a_ledger_takes_no_commitment_after_the_first_reservation(tmp_path):
    event = SampledGaussian(0.1, 1.0, 4, 1.0)
    with Ledger.create(tmp_path / "ledger.jsonl", "plan", "key", tmp_path) as ledger:
        ledger.canaries(OPENING.committed)
        ledger.reserve(event, 0, 4)
        with pytest.raises(ValueError, match="before the first step"):
            ledger.canaries(OPENING.committed)
    kinds = [entry.type.value for entry in read_ledger(tmp_path / "ledger.jsonl")]
    assert kinds == ["open", "canaries", "reserve"]


@pytest.mark.parametrize("change", [{"count": "0"}, {"count": "x"}, {"commitment": "AB" * 32}])
def test_a_section_holds_a_number_and_a_digest(change):
    with refused(("commitment-malformed", "count-not-whole"), where="canaries."):
        replace(OPENING.committed, **change)
