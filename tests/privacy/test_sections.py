"""What a statement says besides: read back, held to the published schema, and no number in it better than the truth."""

import json
from dataclasses import fields, replace
from fractions import Fraction

import pytest
from jsonschema import Draft202012Validator, ValidationError

from dpose.errors import DposeError
from dpose.privacy.accounting import Accountant, epsilon
from dpose.privacy.attackers import bound_attackers
from dpose.privacy.events import ROUNDED, Gaussian, Laplace, SampledGaussian
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.sections import (
    UNSTATED,
    About,
    AuditResult,
    Deployment,
    GroupEpsilon,
    GroupResult,
    PlantedCanaries,
    PublicInput,
    Query,
    group_section,
)
from dpose.privacy.statement import SCHEMA, Kind, PrivacyStatement, statement_schema
from refusals import refused
from statements import of_a_picture

EVENT, DELTA = SampledGaussian(q=0.05, sigma=2.0, steps=30, sensitivity=1.0), 1e-5


@pytest.fixture(scope="module")
def full():
    claimed = epsilon([EVENT], DELTA)
    parts = {
        "deployment": Deployment.of(About(curator="Ward 7"), "the final weights", "2026-05-03"),
        "attackers": bound_attackers([EVENT], Relation.ZERO_OUT, DELTA),
        "groups": group_section([EVENT], DELTA, Relation.ZERO_OUT, claimed),
        "inputs": (PublicInput("the first weights", "ab" * 32, "Apache-2.0"),),
        "audits": (AuditResult("canaries in one run", "0.12", "0.95"),),
        "canaries": PlantedCanaries("gradient", "500", "ab" * 32),
        "results": (GroupResult("aid: wheelchair", "120", "PCKh@0.5", "70.1", "61.0"),),
        "side_channels": ("timing",),
        "signature": "privacy.json.sig",
    }
    return PrivacyStatement(
        Kind.PRIVATE,
        "image",
        Neighbours("image", Relation.ZERO_OUT),
        claimed,
        DELTA,
        Accountant.PLD,
        n=1000,
        events=(EVENT,),
        queries=(Query("PCKh", "ward", cost="epsilon 1", score="x.json"),),
        **parts,
    )


def edited(statement, **changes):
    return PrivacyStatement.from_json(json.dumps(statement.to_dict() | changes))


def test_all_of_it_reads_back_and_adds_up(full):
    assert PrivacyStatement.from_json(full.to_json()) == full
    assert full.verify() == full.epsilon
    Draft202012Validator(statement_schema()).validate(full.to_dict())


@pytest.mark.parametrize("number", [1, SCHEMA + 1])
def test_a_statement_of_another_schema_is_refused(full, number):
    with refused("statement-newer", where=f"schema {number}"):
        edited(full, schema=number)


def test_the_words_say_every_section(full):
    text = full.paragraph()
    for part in ("Ward 7", "2026-05-03", "Apache-2.0", "0.12", "aid: wheelchair", "61.0", "70.1 before", "timing"):
        assert part in text
    assert "not stated: who may have it; what it is for" in text
    assert "2: 1.3" in text
    assert "finds at most 1.517%" in text
    assert "finds at most" in replace(full, attackers=None, groups=()).paragraph()
    assert "1.517%" not in replace(full, attackers=None, groups=()).paragraph()


@pytest.mark.parametrize(("units", "said"), [(1000, "(10 of them:"), (4, "(4 of them:"), (1, "units share;")])
def test_no_more_units_share_something_than_there_are(full, units, said):
    assert said.replace("unit", full.unit) in replace(full, n=units).words().printed()


def test_the_words_say_which_noise_it_was(full):
    floating, exact = "in 64-bit floating point, which is not exact", "exactly: whole numbers"
    rounded = replace(full, events=(replace(EVENT, type=ROUNDED),), caveats=())
    for statement, said in ((full, floating), (rounded, exact)):
        assert f"How its noise was drawn:\n* {said}" in statement.paragraph()
    both = replace(full, events=(EVENT, replace(EVENT, type=ROUNDED))).paragraph()
    assert floating in both
    assert exact in both
    assert "noise was drawn" not in PrivacyStatement(Kind.NONE, "image").paragraph()


def test_the_words_say_who_loses_most(full):
    def told(*results):
        return replace(full, results=tuple(results)).paragraph()

    everybody = GroupResult("everybody", "983", "found, %", "26.8", "24.6")
    upright = GroupResult("posture: upright", "312", "found, %", "39.0", "36.5")
    small = GroupResult("size: small", "251", "found, %", "26.5", "24.5")
    words = "* the largest loss of any group: 2.5 points, posture: upright; everybody: 2.2"
    assert words in told(everybody, small, upright)
    for results in ([everybody], [small, upright], [everybody, replace(small, before="")]):
        assert "largest loss" not in told(*results)
    assert "largest loss" not in told(everybody, replace(small, before="much"))


def test_a_training_protects_units_and_nothing_else(full):
    for scope in ("picture", "clip", "anything"):
        with refused("scope-not-of-training", where="neighbours.scope"):
            edited(full, neighbours={"relation": "zero-out", "m": 1, "scope": scope})


def test_nothing_is_made_up():
    said = About().to_dict()
    assert {said.pop("curator"), *said.values()} == {"unknown", UNSTATED}


@pytest.mark.parametrize("field", ["gaussian_mu", "found", "groups", "one", "units", "short", "none"])
def test_numbers_made_prettier_by_hand_are_refused(full, field):
    attackers, groups = full.to_dict()["attackers"], full.to_dict()["groups"]
    if field == "gaussian_mu":
        attackers["gaussian_mu"] = "0.05"
    elif field == "found":
        attackers["tpr_bound"][2]["tpr"] = "0.0101"
    elif field == "groups":
        groups[4]["epsilon"] = "1.0"
    elif field == "one":
        groups[0]["epsilon"] = "0.1"
    elif field == "units":
        groups[4]["units"] = 50
    elif field == "short":
        groups.pop()
    else:
        attackers["tpr_bound"].pop(2)
    with refused(("attacker-bound-invalid", "attacker-bound-too-small", "groups-understated")):
        edited(full, attackers=attackers, groups=groups).verify()


def test_a_worse_number_may_stand_there(full):
    groups = full.to_dict()["groups"]
    groups[4]["epsilon"] = None
    groups[5]["epsilon"] = "99.0"
    assert edited(full, groups=groups).verify() == full.epsilon


def test_sections_that_follow_from_nothing_are_refused(full):
    release = of_a_picture(groups=full.groups)
    with refused("sections-not-computable"):
        release.verify()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("deployment", {"curator": "x"}),
        ("groups", {}),
        ("groups", [{"units": 0, "epsilon": "1.0"}]),
        ("groups", [{"units": True, "epsilon": "1.0"}]),
        ("groups", [{"units": 1, "epsilon": 1.0}]),
        ("inputs", [{"what": "x"}]),
        ("audits", [{"what": "x", "epsilon": "inf", "confidence": "0.9"}]),
        ("audits", [{"what": "x", "epsilon": "1.0", "confidence": "1.5"}]),
        ("side_channels", "timing"),
        ("signature", 3),
        ("sections", {}),
    ],
)
def test_a_broken_section_is_refused_in_one_line(full, name, wrong):
    with pytest.raises(DposeError, match=name) as caught:
        edited(full, **{name: wrong})
    assert "\n" not in str(caught.value)


def test_the_published_schema_knows_every_field_and_no_other(full):
    published = statement_schema()
    Draft202012Validator.check_schema(published)
    assert set(published["properties"]) == {"schema", *(f.name for f in fields(PrivacyStatement))}
    assert published["properties"]["schema"]["const"] == SCHEMA
    parts = published["$defs"]
    assert set(parts["Kind"]["enum"]) == {kind.value for kind in Kind}
    assert set(parts["Accountant"]["enum"]) == set(Accountant)
    for kind in (Deployment, PublicInput, AuditResult, GroupResult, GroupEpsilon):
        assert set(parts[kind.__name__]["required"]) == {f.name for f in fields(kind)}
    assert set(parts["AttackerBound"]["required"]) == set(full.attackers.to_dict())
    assert set(full.to_dict()) == set(published["properties"]) - {
        "release",
        "odometer",
        "artefact_sha256",
        "seal",
        "tuning",
    }


@pytest.mark.parametrize(
    ("name", "wrong"), [("schema", 2), ("kind", "secret"), ("epsilon", 1.5), ("mood", "x"), ("n", 0)]
)
def test_the_published_schema_refuses_what_dpose_does(full, name, wrong):
    validator = Draft202012Validator(statement_schema())
    validator.validate(full.to_dict())
    validator.validate(PrivacyStatement(Kind.NONE, "image").to_dict())
    with pytest.raises(ValidationError):
        validator.validate(full.to_dict() | {name: wrong})


def test_a_release_says_what_several_times_its_pixels_cost():
    laplace = Laplace(scale=Fraction(2040), sensitivity=Fraction(4080))
    pure = of_a_picture(events=(laplace,), release={"mechanism": "cells"})
    (line,) = pure.words().several
    assert "32: 4, 48: 6," in line
    assert line.endswith("160: 20")
    gaussian = Gaussian(Fraction(10_000**2), Fraction(4080**2))
    zcdp = replace(pure, epsilon=5.0, delta=1e-5, accountant=Accountant.ZCDP, events=(gaussian,))
    twice = zcdp.cost([Gaussian(gaussian.variance, 4 * gaussian.sensitivity_squared)])
    assert f"32: {twice:.2f}"[:7] in zcdp.words().several[0]
    assert replace(pure, release={}).words().several == ()
