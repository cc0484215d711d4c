"""The page of an audit says what was claimed, what was found and what it cannot see, in one file."""

import itertools
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from dpose.audits.page import write_audit
from dpose.audits.record import AttackedRun, AuditRecord, Blind, Rates, Share
from dpose.audits.tradeoff_chart import LEAST, tradeoff_chart

HOSTILE = "<script>document.title='taken'</script>"
GRID = np.geomspace(1e-4, 1, 60)
ALLOWED = tuple((float(f), float(min(1.0, 4 * f + 1e-3))) for f in GRID)
PAIR = tuple((float(f), float(min(1.0, 50 * f))) for f in GRID)
FOUND = ((0.0, 0.0), (0.001, 0.02), (0.01, 0.2), (0.5, 0.9), (1.0, 1.0))


def attacked(name, flagged=False, bound=1.5):
    rates = tuple(
        Rates(t, Share(t * 8, t * 4, min(1.0, t * 16), 250), Share(t, t / 2, t * 2, 4000), bound / 2)
        for t in (0.001, 0.01)
    )
    by = ("trade-off curve",) if flagged else ()
    return AttackedRun(name, "what was done", flagged, by, {"a test": bound, "another": None}, rates, FOUND)


def record(**changes):
    values = {
        "name": "audit",
        "title": "Audit of dp-sgd at epsilon 4",
        "epsilon": 4.0,
        "delta": 1e-5,
        "confidence": 0.95,
        "claim": {"epsilon": "4", "sigma": "1.1"},
        "threat_model": "white box: sees every noisy update",
        "canaries": {"kind": "gradient canaries", "count": "500"},
        "origin": {"Seed": "7", "dpose": "0.1.0, source abc"},
        "run": attacked("this run"),
        "controls": (attacked("control: no noise", True, 7.5), attacked("control: twice", True, 5.5)),
        "allowed": ALLOWED,
        "pair": PAIR,
        "blind": (Blind("shuffled-batches", "a shuffle", "it is secret", "tests/x.py::test[06]"),),
        "notes": ("an audit shows a lower bound",),
        **changes,
    }
    return AuditRecord(**values)


@pytest.fixture
def words(tmp_path):
    """`words(record)`: the text of its page; that it can be parsed is itself a test."""

    def read(shown):
        text = write_audit(shown, tmp_path).read_text(encoding="utf-8")
        closed = re.sub(r"<(img|meta|br)((?: [^>]*)?)>", r"<\1\2/>", text.removeprefix("<!DOCTYPE html>"))
        return " ".join("".join(ET.fromstring(closed).find("body").itertext()).split())

    return read


def test_the_claim_stands_beside_the_bound_and_the_controls_beside_the_run(words):
    text = words(record())
    assert "Not refuted" in text
    assert "claimed: epsilon 4 shown: at least 1.5" in text
    for part in ("That is no proof", "white box", "500", "Seed", "source abc", "control: no noise"):
        assert part.lower() in text.lower()
    assert "a test41.507.505.50" in text
    assert "0.1%0.8% (0.4 to 1.6)" in text
    assert "Epsilon is at least 7.50; 8% found at 1% false alarms. flagged" in text
    assert "shuffled-batchesa shuffleit is secrettests/x.py::test[06]" in text


def test_a_refuted_claim_is_flagged_at_the_top(words):
    text = words(record(run=attacked("this run", True, 9.0), planted="no noise", unseen=""))
    assert text.index("Flagged: the claim is refuted") < text.index("Claimed and found")
    assert "Refuted by: trade-off curve." in text
    assert "A fault was planted on purpose: no noise." in text


def test_a_fault_that_is_not_seen_says_so_and_missing_controls_are_no_secret(words):
    text = words(
        record(
            planted="a shuffle", unseen="No audit sees this fault: why. tests/x.py rejects it.", controls=()
        )
    )
    assert "No audit sees this fault: why." in text
    assert "nobody knows whether this audit could see anything" in text


def test_what_comes_from_elsewhere_is_text(words, tmp_path):
    words(record(title=HOSTILE, threat_model=HOSTILE, notes=(HOSTILE,)))
    assert "<script" not in (tmp_path / "audit.html").read_text()


def points(svg, kind):
    (d,) = [n.get("d") for n in ET.fromstring(svg).iter("path") if n.get("class") == kind]
    return [tuple(map(float, p)) for p in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", d)]


def test_a_decade_is_as_wide_as_the_next_and_an_empirical_curve_is_stairs():
    svg = tradeoff_chart(attacked("run"), ALLOWED, PAIR, "what it shows")
    line = points(svg, "line")
    at = {x for x, _ in line}
    x = sorted(at)
    assert x[2] - x[1] == pytest.approx((386 - 50) / np.log10(1 / LEAST), abs=0.3)  # from 0.1 % to 1 %
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in itertools.pairwise(line))
    assert ET.fromstring(svg).get("aria-label") == "what it shows"


def test_everything_is_drawn_within_the_axes():
    zero = Rates(0.001, Share(0.0, 0.0, 0.01, 250), Share(0.0, 0.0, 0.001, 4000), 0.0)
    svg = tradeoff_chart(replace(attacked("run"), rates=(zero,)), ALLOWED, PAIR, "x")
    for kind in ("line", "ruled-out"):
        assert all(49.9 <= x <= 386.1 and 33.9 <= y <= 308.1 for x, y in points(svg, kind))
    assert points(svg, "ruled-out")[0][0] == pytest.approx(50)  # the curve begins where the axis does


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_browser_finds_nothing_wrong(inspect, tmp_path, dark):
    write_audit(record(blind=(Blind("a" * 40, "b " * 60, "c " * 80, "tests/" + "d" * 90),)), tmp_path)
    seen = inspect(tmp_path, [("audit.html", width) for width in (1280, 768, 360)], dark=dark)
    assert not [line for line in seen.console if "audit.html" in line]
    for page in seen.pages:
        assert "Audit of dp-sgd" in page["title"]
        assert (page["overflow"], page["scripts"], page["loaded"], page["faint"]) == (0, 0, [], [])
