"""A statement says what it claims, reads back exactly, and does not pass if it does not add up."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

import dpose
from dpose.privacy.accounting import Accountant, epsilon
from dpose.privacy.attackers import true_positives
from dpose.privacy.events import ROUNDED, SampledGaussian
from dpose.privacy.neighbours import BEYOND, Neighbours, Relation
from dpose.privacy.ranges import MAX_SIGMA, MIN_SIGMA
from dpose.privacy.sections import Query
from dpose.privacy.statement import FLOATING_POINT_CAVEAT, Kind, PrivacyStatement
from dpose.privacy.words import WARNING
from refusals import refused
from statements import of_a_picture

EVENT = SampledGaussian(q=0.05, sigma=2.0, steps=30, sensitivity=1.0)
FULL = {
    "kind": Kind.PRIVATE,
    "unit": "image",
    "neighbours": Neighbours("image", Relation.ZERO_OUT),
    "epsilon": 1.5,
    "delta": 1e-5,
    "accountant": Accountant.PLD,
    "n": 1000,
    "public": ("the number of images, 1000",),
    "conditional_on": ("the public view of every image",),
    "events": (EVENT,),
    "queries": (Query("mean PCKh@0.5", "ward:val, 100 images"),),
    "caveats": ("timing is not covered",),
    "software": {"dpose": "0.1.0"},
    "ledger_head": "ab" * 32,
    "plan_sha256": "cd" * 32,
}


def statement(**changes) -> PrivacyStatement:
    return PrivacyStatement(**{**FULL, **changes})


def edited(**changes) -> str:
    return json.dumps({**json.loads(statement().to_json()), **changes})


def test_it_reads_back_as_it_was():
    assert PrivacyStatement.from_json(statement().to_json()) == statement()
    nothing = PrivacyStatement(Kind.NONE, "crop", n=3)
    assert PrivacyStatement.from_json(nothing.to_json()) == nothing


@given(
    q=st.floats(1e-9, 1.0),
    sigma=st.floats(MIN_SIGMA, MAX_SIGMA),
    steps=st.integers(1, 10**9),
    sensitivity=st.floats(1e-300, 1e300),
    claim=st.floats(1e-300, 1e300),
    delta=st.floats(1e-300, 1e-4),
    words=st.text(),
)
def test_numbers_and_words_survive_exactly(q, sigma, steps, sensitivity, claim, delta, words):
    made = statement(
        events=(SampledGaussian(q, sigma, steps, sensitivity),), epsilon=claim, delta=delta, public=(words,)
    )
    assert PrivacyStatement.from_json(made.to_json()) == made


def test_exact_quantities_are_strings():
    content = json.loads(statement().to_json())
    assert content["schema"] == 3
    assert content["epsilon"] == "1.5"
    assert content["delta"] == "1e-05"
    assert content["events"] == [
        {"type": "poisson-gaussian", "q": "0.05", "sigma": "2.0", "steps": 30, "sensitivity": "1.0"}
    ]
    assert content["neighbours"] == {"relation": "zero-out", "m": 1, "scope": "unit"}


@pytest.mark.parametrize("relation", list(Relation))
def test_verify_recomputes_epsilon(relation):
    true = epsilon([EVENT], 1e-5, relation)
    assert statement(neighbours=Neighbours("image", relation), epsilon=true).verify() == true
    assert statement(neighbours=Neighbours("image", relation), epsilon=2 * true).verify() == true
    for lie in (true * (1 - 1e-5), true / 2):
        with refused("statement-does-not-add-up"):
            statement(neighbours=Neighbours("image", relation), epsilon=lie).verify()


@pytest.mark.parametrize("field", ["epsilon", "delta", "sigma", "q", "steps", "accountant", "relation"])
def test_a_claim_made_prettier_by_hand_is_refused(field):
    true = epsilon([EVENT], 1e-5, accountant=Accountant.RDP)
    content = json.loads(statement(epsilon=true, accountant=Accountant.RDP).to_json())
    if field in ("epsilon", "delta"):
        content[field] = repr(float(content[field]) / 3)
    elif field == "accountant":  # the tighter accountant's claim under the looser one's name
        content["epsilon"] = repr(epsilon([EVENT], 1e-5))
    elif field == "relation":
        content["neighbours"]["relation"], content["accountant"] = "replace", "pld"
    else:
        event = content["events"][0]
        event.update({"sigma": {"sigma": "1.5"}, "q": {"q": "0.07"}, "steps": {"steps": 60}}[field])
    with refused("statement-does-not-add-up"):
        PrivacyStatement.from_json(json.dumps(content)).verify()


def test_only_a_claim_has_something_to_verify():
    assert PrivacyStatement(Kind.NONE, "image").verify() is None
    assert statement(kind=Kind.PAPER, epsilon=0.001).verify() is None
    with refused("statement-does-not-add-up"):
        statement(kind=Kind.SEEDED, epsilon=0.001).verify()


def test_an_infinite_cost_never_adds_up():
    with refused("statement-does-not-add-up"):
        statement(events=(SampledGaussian(1.0, 0.2, 10_000, 1.0),), epsilon=1e300).verify()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"schema": 4}, ("statement-newer",)),
        ({"schema": "1"}, ("statement-without-schema",)),
        ({"schema": True}, ("statement-without-schema",)),
        ({"kind": "secret"}, ("field-choice-unknown", "kind")),
        ({"unit": 3}, ("field-choice-unknown", "unit")),
        ({"neighbours": {"relation": "zero-out", "m": 1}}, ("field-names-wrong", "scope")),
        (
            {"neighbours": {"relation": "twins", "m": 1, "scope": "unit"}},
            ("field-choice-unknown", "neighbours.relation"),
        ),
        ({"neighbours": {"relation": "zero-out", "m": 0, "scope": "unit"}}, ("m-not-positive", "neighbours.m")),
        ({"neighbours": None}, ("statement-field-missing", "neighbours")),
        ({"neighbours": "zero-out"}, ("neighbours-unresolved", "neighbours")),
        ({"neighbours": [1]}, ("neighbours-unresolved", "neighbours")),
        ({"epsilon": 1.5}, ("decimal-malformed", "epsilon")),
        ({"epsilon": "inf"}, ("decimal-malformed", "epsilon")),
        ({"epsilon": "-1.0"}, ("epsilon-not-positive",)),
        ({"epsilon": None}, ("statement-field-missing",)),
        ({"delta": "0.5"}, ("delta-above-one-in-n",)),
        ({"delta": "1.5"}, ("delta-out-of-range",)),
        ({"accountant": "abacus"}, ("field-choice-unknown", "accountant")),
        ({"accountant": None}, ("statement-field-missing",)),
        ({"n": 0}, ("field-wrong", "n")),
        ({"n": 2.5}, ("field-wrong", "n")),
        ({"public": "everything"}, ("field-not-list", "public")),
        ({"public": [1]}, ("field-not-string", "public[0]")),
        ({"events": []}, ("statement-field-missing",)),
        ({"events": [{}]}, ("event-type-missing", "events[0]")),
        ({"events": [{**json.loads(edited())["events"][0], "steps": 10**400}]}, ("steps-not-positive", "2^53")),
        ({"queries": [{"what": "x"}]}, ("field-names-wrong", "queries[0]")),
        ({"queries": [{"what": "x", "data": "y", "purpose": "z", "covered": "no"}]}, ("field-wrong", "covered")),
        ({"software": []}, ("field-not-object", "software")),
        ({"software": {"dpose": 1}}, ("field-not-string", "software.dpose")),
        ({"ledger_head": None}, ("field-not-string", "ledger_head")),
        ({"mood": "good"}, ("field-names-wrong", "mood")),
    ],
)
def test_a_broken_statement_is_refused_and_the_field_named(changes, field):
    with refused(*field) as caught:
        PrivacyStatement.from_json(edited(**changes), "runs/x/privacy.json")
    assert str(caught.value).startswith("runs/x/privacy.json")
    assert "\n" not in str(caught.value)


def test_missing_fields_and_other_files_are_refused():
    content = json.loads(statement().to_json())
    del content["caveats"]
    with refused("field-names-wrong", where="caveats"):
        PrivacyStatement.from_json(json.dumps(content))
    for text in ("", "{", "[]", "3", "{}"):
        with refused(("statement-not-json", "statement-without-schema")):
            PrivacyStatement.from_json(text)


def test_none_claims_nothing():
    with refused("statement-none-claims"):
        statement(kind=Kind.NONE)


def test_gaussian_events_bring_their_caveat():
    made = statement(caveats=())
    assert FLOATING_POINT_CAVEAT in made.caveats
    exact = tuple(replace(event, type=ROUNDED) for event in made.events)
    assert FLOATING_POINT_CAVEAT not in statement(caveats=(), events=exact).caveats
    assert FLOATING_POINT_CAVEAT in statement(caveats=(), events=(*made.events, *exact)).caveats
    assert statement(caveats=(FLOATING_POINT_CAVEAT,)).caveats == (FLOATING_POINT_CAVEAT,)
    assert PrivacyStatement(Kind.NONE, "image").caveats == ()


@pytest.mark.parametrize("relation", list(Relation))
def test_the_paragraph_says_everything(relation):
    made = statement(neighbours=Neighbours("image", relation))
    text = made.paragraph()
    for part in (*made.public, *made.conditional_on, *made.caveats, "1.5", "1e-05", "1,000", "image"):
        assert part in text
    assert "mean PCKh@0.5, of ward:val, 100 images, reported only (NOT covered by epsilon)" in text
    assert {"zero-out": "left blank", "add-or-remove": "added or left out", "replace": "exchanged"}[
        relation.value
    ] in text
    assert "NOTHING IS GUARANTEED" not in text


UNLIMITED = re.compile(r"(however much|whatever) (they|anyone|somebody|he|she|it) comput|unlimited comput", re.I)
"""Words that a cipher's noise cannot keep."""


def test_the_paragraph_promises_no_more_than_a_cipher_keeps():
    for said in (statement(), of_a_picture()):
        text = said.paragraph()
        assert "cannot break" in text
        assert "AES-256" in text
        assert not UNLIMITED.search(text)


def test_no_page_and_no_module_promises_more_than_a_cipher_keeps():
    """The proofs may, where they say in the same breath that it is for ideal noise."""
    root = Path(dpose.__file__).parents[2]
    pages = [root / "README.md", *(root / "docs").glob("*.md"), *(root / "src").rglob("*.py")]
    assert [page.name for page in pages if UNLIMITED.search(" ".join(page.read_text().split()))] == []


@pytest.mark.parametrize("kind", [Kind.SEEDED, Kind.PAPER])
def test_the_paragraph_says_first_that_nothing_is_guaranteed(kind):
    text = statement(kind=kind).paragraph()
    assert text.startswith("NOTHING IS GUARANTEED")
    assert "would protect" in text
    assert "This protects" not in text


def test_a_statement_says_each_thing_once():
    """Of a key twice one reader of JSON takes the first and another the last: what is sealed is not what is read."""
    text = statement().to_json()
    with refused("statement-not-json", where="'epsilon' stands there twice"):
        PrivacyStatement.from_json(text.replace("{", '{\n  "epsilon": "0.01",', 1))


def test_a_statement_of_nothing_says_so_and_no_more():
    text = PrivacyStatement(Kind.NONE, "image", n=7, caveats=("trained on public data",)).paragraph()
    assert text.startswith("NOTHING IS GUARANTEED")
    assert "epsilon" not in text
    assert "trained on public data" in text


def test_a_query_is_added():
    query = Query("loss", "ward:test", "chose the weights", covered=False)
    more = statement().with_query(query)
    assert more.queries == (*statement().queries, query)
    assert "chose the weights" in more.paragraph()


@pytest.mark.parametrize("sigma", [0.7, 1.0, 3.0])
def test_no_attack_on_a_gaussian_beats_the_bound(sigma):
    # the best attack there is: a threshold on one release, whose trade-off curve is known exactly
    for delta in (1e-5, 1e-2):
        claim = epsilon([SampledGaussian(1.0, sigma, 1, 1.0)], delta)
        for alarms in (1e-4, 0.01, 0.2, 0.7):
            best = norm.sf(norm.isf(alarms) - 1 / sigma)
            bound = true_positives(claim, delta, alarms)
            assert best <= bound + 1e-9
            assert bound <= 1


def test_the_bound_is_the_published_formula():
    assert true_positives(0.0, 0.0) == 0.01
    assert true_positives(math.log(2), 0.001) == pytest.approx(0.021)
    assert true_positives(5.0, 0.0) == pytest.approx(1 - math.exp(-5) * 0.99)
    assert true_positives(10_000.0, 0.0) == 1.0


def test_what_is_printed_begins_with_what_restricts_the_guarantee():
    """A warning stands before the sentence that it restricts, in what is printed and in the whole statement."""
    warned = statement(caveats=("a small thing", f"{WARNING}a face keeps epsilon 5,000"))
    for text in (warned.words().printed(), warned.paragraph()):
        assert text.startswith(f"{WARNING}a face keeps epsilon 5,000")
        assert text.count(WARNING) == 1
        assert text.index(WARNING) < text.index("This protects")
    assert "a small thing" not in warned.words().printed()
    assert len(warned.words().printed().splitlines()) <= 4
    weak = statement(epsilon=50.0, events=(replace(EVENT, sigma=0.3),)).words().printed()
    assert "That is a weak guarantee" in weak


def test_what_is_printed_names_what_is_not_hidden():
    text = statement(conditional_on=("the mask is public",)).words().printed()
    assert "Not hidden: what is true of the private data as a whole; what several images share" in text
    assert "Taken as given: the mask is public." in text
    assert statement(kind=Kind.SEEDED).words().printed().startswith("NOTHING IS GUARANTEED")
    beyond = statement(neighbours=Neighbours("image", Relation.ZERO_OUT, 1, BEYOND))
    assert "Not hidden: the public views and labels" in beyond.words().printed()
    assert "beyond its public view" in beyond.words().printed()
    read = Query("accuracy", "the private test set", "to choose the weights")
    assert statement(queries=(read,)).words().printed().count("accuracy of the private test set") == 1
