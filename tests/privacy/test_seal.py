"""The seal says what an artefact is; what differs from it is refused and named."""

import json
from dataclasses import replace
from itertools import combinations

import pytest

from dpose.errors import DposeError
from dpose.privacy import entries as seals
from dpose.privacy.entries import GENESIS, Seal, open_seal, run_digests, sealed_alone
from dpose.privacy.statement import Kind, PrivacyStatement
from refusals import refused

STATEMENT = PrivacyStatement(
    Kind.NONE, "image", n=7, public=("the size",), conditional_on=("a mask",), caveats=("read me",)
)
SUMS = {"sums": "ab" * 32}
CHANGES = {
    "kind": {"kind": Kind.PAPER},
    "unit": {"unit": "crop"},
    "n": {"n": 8},
    "public": {"public": ()},
    "conditional_on": {"conditional_on": ()},
    "caveats": {"caveats": ("all is well",)},
    "software": {"software": {"dpose": "9"}},
    "release": {"release": {"block": "4"}},
    "plan_sha256": {"plan_sha256": "cd" * 32},
}


def test_a_seal_reads_back():
    seal = Seal.of(STATEMENT, SUMS, "ef" * 32)
    assert Seal.from_dict(json.loads(json.dumps(seal.to_dict())), "here") == seal
    with refused("seal-malformed"):
        Seal.from_dict({**seal.to_dict(), "more": 1}, "here")


@pytest.mark.parametrize("name", CHANGES)
def test_every_field_of_the_statement_is_bound(name):
    statement, line = sealed_alone(STATEMENT, SUMS)
    assert open_seal(statement, line, "a.png").digests == SUMS
    with refused("seal-value-differs", where=f"a.png: {name}"):
        open_seal(replace(statement, **CHANGES[name]), line, "a.png")


def test_of_several_fields_that_differ_the_first_by_name_is_told():
    """The same one in every process: sets of names are gone through in another order in each."""
    statement, line = sealed_alone(STATEMENT, SUMS)
    for one, other in combinations(CHANGES, 2):
        with pytest.raises(DposeError) as caught:
            open_seal(replace(statement, **CHANGES[one], **CHANGES[other]), line, "a.png")
        assert f" {min(one, other)} " in str(caught.value)
        assert f" {max(one, other)} " not in str(caught.value)


def test_long_values_are_told_cut_to_sixty_characters():
    line = sealed_alone(STATEMENT, SUMS)[1]
    for length in (58, 59):
        changed = replace(STATEMENT, plan_sha256="x" * length)
        with pytest.raises(DposeError) as caught:
            Seal.from_dict(json.loads(line)["event"], "here").check_statement(changed, "here")
        (told,) = (word for word in str(caught.value).split() if "xx" in word)
        assert told == ('"' + "x" * 58 + '"' if length == 58 else '"' + "x" * 56 + "...")


def test_the_order_in_which_files_are_found_is_not_sealed():
    digests = {"b": "00" * 32, "a": "11" * 32}
    one, other = (sealed_alone(STATEMENT, found) for found in (digests, dict(reversed(digests.items()))))
    assert one == other


def test_a_releases_seal_is_a_first_line_that_takes_no_step():
    statement, line = sealed_alone(STATEMENT, SUMS)
    said = json.loads(line)
    assert [said[name] for name in ("seq", "prev", "type", "first_step", "steps")] == [0, GENESIS, "seal", 0, 0]
    assert open_seal(statement, line.decode(), "a.png") == open_seal(statement, line, "a.png")


def test_a_statement_that_names_a_seal_fails_without_it():
    statement, line = sealed_alone(STATEMENT, SUMS)
    with refused("seal-missing"):
        open_seal(statement, b"", "a.png")
    with refused("ledger-entry-altered"):
        open_seal(statement, line.replace(b'"crop"', b'"crib"').replace(b"image", b"crops"), "a.png")
    _, other = sealed_alone(STATEMENT, {"sums": "00" * 32})
    with refused("seal-of-other-statement"):
        open_seal(statement, other, "a.png")


def test_digests_are_compared_by_name():
    seal = Seal.of(STATEMENT, SUMS)
    seal.check_digests(SUMS, "a.npz")
    with refused("seal-file-altered"):
        seal.check_digests({"sums": "00" * 32}, "a.npz")
    with refused("seal-item-added", where="log.jsonl"):
        seal.check_digests({"log.jsonl": "00" * 32}, "run")


def test_a_file_that_cannot_be_read_is_not_left_out(tmp_path, monkeypatch):
    """Left out, a log or a checkpoint would be neither sealed nor compared."""
    (tmp_path / "log.jsonl").write_text("{}")
    assert list(run_digests(tmp_path)) == ["log.jsonl"]

    def fails(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(seals, "file_digest", fails)
    with pytest.raises(DposeError) as caught:
        run_digests(tmp_path)
    assert "log.jsonl" in str(caught.value)
