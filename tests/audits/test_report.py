"""The report of an audit says what was claimed, what was found and what it cannot see, in one file."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from dpose.audits.findings import AuditFindings, AuditReport
from dpose.audits.report import LEAST, write_audit_report
from dpose.audits.trials import OperatingPoint, Trials
from dpose.media.images import decode_image
from dpose.privacy.tradeoff import gaussian
from run_folders import Page

HOSTILE = "<script>document.title='taken'</script>"
CURVE = (np.array([0.0, 0.001, 0.01, 0.5, 1.0]), np.array([0.0, 0.02, 0.2, 0.9, 1.0]))


def found(flagged=False, bound=1.5, points=True):
    rates = (
        OperatingPoint(0.001, Trials(2, 250), Trials(4, 4000)),
        OperatingPoint(0.01, Trials(20, 250), Trials(40, 4000)),
    )
    return AuditFindings(
        {"a test": bound, "another": None},
        ("trade-off curve",) if flagged else (),
        "sees every update",
        rates if points else (),
        CURVE,
        (),
    )


def report(**changes):
    values = {
        "title": "Audit of dp-sgd at epsilon 4",
        "claim": {
            "epsilon": 4.0,
            "delta": 1e-5,
            "method": "dp-sgd",
            "relation": "zero-out",
            "accountant": "pld",
            "unit": "image",
            "n": 1000,
            "event": {"q": 0.1, "sigma": 1.1, "steps": 20},
        },
        "threat_model": "white box: sees every noisy update",
        "canaries": {"kind": "gradient canaries", "count": 500},
        "seed": 7,
        "alpha": 0.05,
        "planted": "",
        "findings": found(),
        "controls": {"no noise": found(True, 7.5), "twice": found(True, 5.5)},
        "family": SimpleNamespace(claimed=gaussian(1.0), delta=1e-5),
        "notes": ("an audit shows a lower bound",),
        "code": {"dpose": "0.1.0", "source": "abc", "torch": "2.9"},
        **changes,
    }
    return AuditReport(**values)


@pytest.fixture
def page(tmp_path):
    def write(shown):
        write_audit_report(shown, tmp_path)
        return Page((tmp_path / "audit.html").read_text(encoding="utf-8"))

    return write


def words(page):
    return " ".join("".join(page.root.find("body").itertext()).split())


def test_the_claim_stands_beside_the_bound_and_the_controls_beside_the_run(page):
    shown = page(report())
    assert "Not refuted" in shown.words()
    assert "claimed: epsilon 4 shown: at least 1.5" in shown.words()
    for part in ("that is no proof", "seed 7", "source abc"):
        assert part in shown.words().lower()
    assert shown.table("bounds")[1:] == [
        ["a test", "4", "1.50", "7.50", "5.50"],
        ["another", "4", "–", "–", "–"],
        ["Verdict", "", "not refuted", "flagged", "flagged"],
    ]
    assert shown.table("bounds", 1)[1][:2] == ["0.1%", "0.8% (0.0 to 2.9)"]
    assert "Epsilon is at least 7.50; 8% found at 1% false alarms. flagged" in shown.words("controls")
    assert "White box: sees every noisy update." in shown.words("threat")
    assert "sigma1.1" in shown.words("threat").replace(" ", "")
    assert "500" in shown.words("threat")
    assert "shuffled-batches" in shown.words("blind")
    assert "tests/mutants/test_training.py::" in shown.words("blind")
    assert "an audit shows a lower bound" in shown.words("notes")
    charts = [svg for key in ("tradeoff", "controls") for svg in shown.sections()[key].iter("svg")]
    assert len(charts) == 3
    assert all("At 0.1% false alarms" in svg.get("aria-label") for svg in charts)


def test_an_audit_whose_controls_pass_says_that_it_sees_nothing(page):
    assert "sees nothing" not in page(report()).words()
    assert "sees nothing" not in page(report(controls={"no noise": found(True, 7.5), "twice": found()})).words()
    assert "sees nothing" not in page(report(controls={})).words()
    shown = page(report(controls={"no noise": found(), "twice": found()})).words()
    assert "This audit sees nothing" in shown
    assert "That is no proof" not in shown


def test_a_refuted_claim_is_flagged_at_the_top(page):
    shown = page(report(findings=found(True, 9.0), planted="no noise")).words()
    assert "Flagged: the claim is refuted" in shown
    assert "Refuted by: trade-off curve." in shown
    assert "A fault was planted on purpose: no noise." in shown


def test_a_fault_that_is_not_seen_says_so_and_missing_controls_are_no_secret(page):
    shown = page(
        report(planted="a shuffle", unseen="No audit sees this fault: why. tests/x.py rejects it.", controls={})
    )
    assert "No audit sees this fault: why." in shown.words()
    assert "it is unknown whether this audit could see anything" in shown.words("controls")


def test_what_comes_from_elsewhere_is_text(page):
    shown = page(report(title=HOSTILE, threat_model=HOSTILE, notes=(HOSTILE,), controls={HOSTILE: found()}))
    assert "<script" not in shown.text
    assert words(shown).count(HOSTILE) > 4


def test_text_picture_and_numbers_stand_beside_the_page(page, tmp_path):
    page(report(findings=found(True, float("inf"))))
    assert {path.name for path in tmp_path.iterdir()} == {"audit.html", "audit.md", "audit.json", "audit.png"}
    assert decode_image((tmp_path / "audit.png").read_bytes(), "audit.png").std() > 5
    numbers = json.loads((tmp_path / "audit.json").read_text())
    assert numbers["run"]["epsilon_lower_bounds"]["a test"] == float("inf")
    text = (tmp_path / "audit.md").read_text()
    for part in ("# Audit of dp-sgd at epsilon 4", "Flagged: the claim is refuted", "| a test | 4 | inf |"):
        assert part in text


def test_nothing_found_can_be_drawn(page):
    none = AuditFindings({"a test": 0.0}, (), "x", (), (np.array([0.0, 1.0]), np.array([0.0, 1.0])), ())
    assert "at least 0.00" in page(report(findings=none, controls={})).words()
    assert LEAST < 0.001


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_browser_finds_nothing_wrong(page, inspect, tmp_path, dark):
    page(report())
    seen = inspect(tmp_path, [("audit.html", 360)], dark=dark)
    assert not [line for line in seen.console if "audit.html" in line]
    (one,) = seen.pages
    assert "Audit of dp-sgd" in one["title"]
    assert (one["overflow"], one["scripts"], one["loaded"], one["faint"]) == (0, 0, [], [])
