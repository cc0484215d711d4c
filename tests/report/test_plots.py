"""Charts show their numbers, say in words what they show, and take the page's colours."""

import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpose.privacy.attackers import true_positives
from dpose.privacy.ranges import upper
from dpose.privacy.tradeoff import approximate
from dpose.report.charts import (
    MeasuredRates,
    Rates,
    attack_bound,
    bound_on_attacks,
    line_by_step,
    paired_dots,
    trade_off,
)
from dpose.report.inline import LIGHT, PALETTE
from dpose.report.plots import page_canvas, sheet, styled, svg
from dpose_lab.plots import DARK_INK, PALE_INK, bars, curves, heat_map

HOSTILE = '"><script>alert(1)</script> $\\frac{x}$ _\x00\u202e'
JOINTS = [("Head", 20.0, 80.0), ("Wrist", 60.0, 40.0), ("Hip", None, 50.0), ("Knee", None, None)]


def texts(drawn):
    return ["".join(node.itertext()).strip() for node in ET.fromstring(drawn).iter("text")]


def drawn_charts(text="x"):
    """A chart of every kind."""
    rising = ((0.0, 0.0), (0.2, 0.6), (1.0, 1.0))
    point = MeasuredRates((0.05, 0.1, 0.2), (0.3, 0.4, 0.5))
    figure, ((panel,),) = sheet(1, 1, text)
    heat_map(panel, {(1, 1): 0.1, (2, 1): 0.9}, ("b", (1, 2)), ("n", (1, 2)), text, (0, 1), ".1f", missing="not run")
    with styled():
        rates, axes = page_canvas(360)
        curve = Rates(rising, stairs=True)
        trade_off(axes, [curve], ruled_out=rising, measured=[point], least=1e-3, names=(text, text))
    return {
        "line": line_by_step([(1, 1.0), (2, 3.0)], text, y_title=text, above=[(1, text)], above_title=text),
        "bound": bound_on_attacks(approximate(8.0, 1e-5), text, text, approximate(1.0, 1e-5)),
        "trade-off": svg(rates, text),
        "joints": paired_dots([(text, 1.0, 2.0), *JOINTS], text, before=text, after=text, x_title=text),
        "curves": curves("c", text, [("r", "plain", rising)], rising, ("a", "b"), text, log_x=False).svg,
        "bars": bars("b", text, ["one", "two"], [("r", [0.1, 0.2]), ("guessing", [0.3, 0.4])], "y", text).svg,
        "heat": svg(figure, text),
    }


@pytest.mark.parametrize("kind", list(drawn_charts()))
def test_every_chart_takes_its_colours_from_the_page_and_loads_nothing(kind):
    drawn = drawn_charts("what it shows")[kind]
    root = ET.fromstring(drawn)
    assert (root.get("role"), root.get("aria-label")) == ("img", "what it shows")
    own = set(re.findall("#[0-9a-f]{6}", drawn))
    assert own <= {DARK_INK, PALE_INK} if kind != "heat" else own
    assert not own & (set(LIGHT.values()) - {"#ffffff"})
    assert set(re.findall(r"var\(--([\w-]+)\)", drawn)) <= set(PALETTE)
    assert not re.search(r"//\w|<script|<style|@import|href=\"(?!#)", drawn)
    # a text without a colour would be black on dark paper
    assert all("fill: " in node.get("style", "") for node in root.iter("text"))


def test_the_same_numbers_give_the_same_bytes():
    assert drawn_charts() == drawn_charts()


def test_no_two_names_share_a_colour():
    assert len(set(LIGHT.values())) == len(PALETTE)


def test_texts_in_charts_stay_texts():
    for kind in ("line", "bound", "trade-off", "joints"):
        drawn = drawn_charts(HOSTILE)[kind]
        assert "<script>" not in drawn
        assert ET.fromstring(drawn).get("aria-label").startswith('"><script>alert(1)</script> $')
        assert any("<script>" in text for text in texts(drawn)), kind


def test_a_line_has_its_last_value_and_its_titles():
    drawn = line_by_step([(0, 10.0), (50, 20.0), (100, 40.0)], "x", y_title="score, %")
    assert {"40", "score, %", "step", "0"} <= set(texts(drawn))


def test_a_long_line_is_thinned():
    drawn = line_by_step([(k, 5.0 + (-1) ** k) for k in range(1, 3001)], "x")
    assert len(drawn) < 30_000


def test_the_second_scale_keeps_its_last_label_and_leaves_room():
    above = [(float(k), f"e{k}") for k in range(0, 101, 5)]
    found = texts(line_by_step([(0, 1.0), (100, 2.0)], "x", above=above, above_title="epsilon spent"))
    labels = [text for text in found if re.fullmatch(r"e\d+", text)]
    assert "epsilon spent" in found
    assert "e100" in labels
    assert 3 <= len(labels) <= 7


@settings(deadline=None, max_examples=12)
@given(st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=30), st.integers(0, 10**6), st.integers(1, 1000))
def test_any_numbers_can_be_drawn(values, first, stride):
    ET.fromstring(line_by_step([(first + stride * k, v) for k, v in enumerate(values)], "x", y_title="y"))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 5000.0])
def test_the_bound_on_the_attacker_is_the_statements(epsilon):
    delta = 1e-5
    curve = approximate(epsilon, delta)
    for rate, found in attack_bound(curve):
        assert found == pytest.approx(true_positives(epsilon, delta, rate), abs=1e-12)
    for reference in (None, approximate(1.0, delta)):
        said = " ".join(texts(bound_on_attacks(curve, "image", "x", reference)))
        assert f"{upper(true_positives(epsilon, delta), times=100)}%" in said
        assert ("epsilon 1" in said) == (reference is not None)


def test_the_bound_bends_where_its_two_halves_meet():
    (_, (a, b), *_) = attack_bound(approximate(1.0, 0.0))
    assert a == pytest.approx(1 / (1 + math.e))
    assert b == pytest.approx(1 - a)


def test_joints_before_and_after():
    found = texts(paired_dots(JOINTS, "x", before="before", after="after", x_title="PCKh@0.5, %"))
    assert {"Head", "Knee", "80.0", "40.0", "50.0", "–", "before", "after", "PCKh@0.5, %"} <= set(found)
    alone = texts(paired_dots([("Head", None, 80.0)], "x", before="", after="this model", x_title="%"))
    assert "this model" in alone


def test_empty_cells_of_a_heat_map_say_so():
    assert texts(drawn_charts()["heat"]).count("not run") == 2
