"""`dpose statement`: shown, checked, signed, verified and passed on; mistakes are one line and exit code 2."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import yaml

from dpose.cli import main
from dpose.errors import DposeError
from dpose.media import write_image
from dpose.privacy.accounting import Accountant, Event, Relation, epsilon
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.sections import About, Deployment, Sections, group_section
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.release.api import pixelize

EVENT, DELTA = Event(q=0.05, sigma=2.0, steps=30, sensitivity=1.0), 1e-5


@pytest.fixture
def folder(tmp_path):
    """A model folder without its ledger, as models are published."""
    claimed = epsilon([EVENT], DELTA)
    about = About(curator="Ward 7", contact="dpo@example.org", why_epsilon="our board allows no more")
    sections = Sections(
        Deployment.of(about, "the final weights", "2026-05-03"),
        groups=group_section([EVENT], DELTA, Relation.ZERO_OUT, claimed),
    )
    statement = PrivacyStatement(
        Kind.PRIVATE,
        "image",
        Neighbours(Relation.ZERO_OUT),
        claimed,
        DELTA,
        Accountant.PLD,
        n=1000,
        public=("the number of units, 1,000",),
        events=(EVENT,),
        seal="ab" * 32,
        sections=sections,
    )
    made = tmp_path / "ward-pose"
    made.mkdir()
    (made / "privacy.json").write_text(statement.to_json())
    (made / "config.json").write_text(json.dumps({"task": "pose", "run": {"plan": {"method": "dp-sgd"}}}))
    return made


def told(capsys, *arguments, code=0):
    assert main([str(a) for a in arguments]) == code
    found = capsys.readouterr()
    if code:
        assert len(found.err.strip().splitlines()) == 1
    return " ".join((found.err if code else found.out).split())


def test_it_is_shown_and_checked(folder, capsys):
    assert "Ward 7" in told(capsys, "statement", "show", folder)
    assert main(["statement", "show", str(folder / "privacy.json"), "--json"]) == 0
    assert capsys.readouterr().out == (folder / "privacy.json").read_text()
    assert "as schema 2 says" in told(capsys, "statement", "check", folder)
    assert json.loads(told(capsys, "statement", "schema"))["title"] == "dpose privacy statement"


def test_a_prettier_number_is_neither_checked_nor_signed_nor_exported(folder, tmp_path, capsys):
    values = json.loads((folder / "privacy.json").read_text())
    values["groups"][3]["epsilon"] = "0.5"
    (folder / "privacy.json").write_text(json.dumps(values))
    told(capsys, "statement", "key", tmp_path / "h.pem")
    for arguments in (("check",), ("sign", "--key", tmp_path / "h.pem"), ("export", "--registry")):
        verb, *more = arguments
        assert "groups: says less" in told(capsys, "statement", verb, folder, *more, code=2)
    assert not (folder / "privacy.json.sig").exists()


def test_it_is_signed_and_verified(folder, tmp_path, capsys):
    key = tmp_path / "h.pem"
    told(capsys, "statement", "key", key)
    told(capsys, "statement", "sign", folder, "--key", key)
    said = told(capsys, "statement", "verify", folder, "--key", f"{key}.pub")
    assert "the signature holds" in said
    assert "does not show that the statement is true" in said
    assert "its seal was not checked" in said
    changed = (folder / "privacy.json").read_text().replace("Ward 7", "Ward 8")
    (folder / "privacy.json").write_text(changed)
    said = told(capsys, "statement", "verify", folder, "--key", f"{key}.pub", code=2)
    assert "changed after it was signed" in said


def test_the_registry_gets_its_fields_and_nothing_made_up(folder, tmp_path, capsys):
    out = tmp_path / "entry.yaml"
    told(capsys, "statement", "export", folder, "--registry", "--out", out)
    entry = yaml.safe_load(out.read_text())
    assert set(entry) == {"url_slug", "status", "tier", "deployment"}
    assert (entry["url_slug"], entry["status"], entry["tier"]) == ("ward-pose-2026", "Draft", 2)
    said = entry["deployment"]
    assert set(said) == {
        "basic",
        "dp_variant",
        "privacy_loss",
        "deployment_model",
        "accounting",
        "implementation",
        "administrative",
    }
    assert said["basic"]["data_curators"] == ["Ward 7"]
    assert said["basic"]["intended_use"] == said["basic"]["data_product_region"] == "not stated"
    assert said["basic"]["publication_date"] == "2026-05-03"
    assert said["deployment_model"]["model_name"] == "Central"
    assert said["administrative"]["registry_authors"] == ["dpo@example.org"]
    spent = said["privacy_loss"]["privacy_parameters"]
    assert epsilon([EVENT], DELTA) <= spent["epsilon"] <= 1.001 * epsilon([EVENT], DELTA)
    assert spent["delta"] == DELTA


def test_a_released_picture_says_who_releases_it_and_what_several_times_as_much_costs(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    source, released = tmp_path / "street.png", tmp_path / "released.png"
    write_image(source, np.zeros((48, 64, 3), np.uint8))
    said = ("--curator", "Ward 7", "--contact", "dpo@example.org", "--why-epsilon", "our board's")
    told(capsys, "pixelize", source, "--epsilon", 2, "--out", released, *said)
    shown = told(capsys, "statement", "show", released)
    for word in ("Ward 7", "dpo@example.org", "our board's", "Several times as much", "32: 4, 48: 6"):
        assert word in shown
    assert shown.count("Several times as much") == 1
    assert "as schema 2 says" in told(capsys, "statement", "check", released)
    values = json.loads(_printed(capsys, "statement", "show", released, "--json"))
    assert [group["units"] for group in values["groups"]] == list(range(1, 11))
    assert values["groups"][9]["epsilon"] == "20.0"
    entry = yaml.safe_load(_printed(capsys, "statement", "export", released, "--registry"))
    assert entry["deployment"]["basic"]["publication_date"] == values["deployment"]["date"]
    assert entry["deployment"]["basic"]["data_curators"] == ["Ward 7"]
    assert entry["deployment"]["dp_variant"]["variant_name"] == "Pure DP"
    assert Fraction(str(entry["deployment"]["privacy_loss"]["privacy_parameters"]["epsilon"])) == 2
    key = tmp_path / "h.pem"
    told(capsys, "statement", "key", key)
    told(capsys, "statement", "sign", released, "--key", key)
    said = told(capsys, "statement", "verify", released, "--key", f"{key}.pub")
    assert "the signature holds" in said
    assert "the recorded noise costs epsilon 2" in said


def _printed(capsys, *arguments):
    capsys.readouterr()
    assert main(list(map(str, arguments))) == 0
    return capsys.readouterr().out


def test_the_cards_metadata_are_those_that_training_writes(folder, capsys):
    from dpose.training.folder import front_matter

    statement = PrivacyStatement.from_json((folder / "privacy.json").read_text())
    assert _printed(capsys, "statement", "export", folder, "--model-card") == front_matter(
        "pose", statement, "dp-sgd"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "no/such/run"),
        ("check", "."),
        ("export", "{folder}"),
        ("export", "{folder}", "--registry", "--model-card"),
        ("export", "{folder}/privacy.json", "--model-card"),
        ("sign", "{folder}", "--key", "no.pem"),
        ("verify", "{folder}", "--key", "no.pub"),
        ("key", "{folder}"),
    ],
)
def test_mistakes_are_told_in_a_line(folder, capsys, arguments):
    told(capsys, "statement", *(a.format(folder=folder) for a in arguments), code=2)


def test_what_guarantees_nothing_is_not_registered(folder, capsys):
    (folder / "privacy.json").write_text(PrivacyStatement(Kind.NONE, "image", seal="ab" * 32).to_json())
    said = told(capsys, "statement", "export", folder, "--registry", code=2)
    assert "guarantees nothing" in said
    assert "nothing is claimed" in told(capsys, "statement", "check", folder)


def test_a_picture_from_a_seed_has_no_date_and_can_be_made_again(tmp_path, capsys, monkeypatch):
    source = tmp_path / "street.png"
    write_image(source, np.zeros((48, 64, 3), np.uint8))
    for name in ("a", "b"):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / name / "state"))
        told(capsys, "pixelize", source, "--epsilon", 2, "--seed", 1, "--out", tmp_path / name / "out.png")
    assert (tmp_path / "a" / "out.png").read_bytes() == (tmp_path / "b" / "out.png").read_bytes()
    values = json.loads(_printed(capsys, "statement", "show", tmp_path / "a" / "out.png", "--json"))
    assert values["deployment"]["date"] == ""


def test_what_several_times_as_much_costs_cannot_be_made_prettier(tmp_path):
    made = pixelize(np.zeros((48, 64), np.uint8), 2, 16, 16, public=True).statement
    assert made.verify() == 2
    groups = tuple(replace(one, epsilon=min(one.epsilon, 5.0)) for one in made.sections.groups)
    for forged in (
        groups,
        made.sections.groups[:5],
        (*made.sections.groups[:9], replace(groups[9], units=11)),
    ):
        with pytest.raises(DposeError, match="groups: says less"):
            replace(made, sections=replace(made.sections, groups=forged)).verify()
