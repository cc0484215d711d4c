"""Charts put numbers where they belong, and say in words what they show."""

import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpose.privacy.rounding import upper
from dpose.privacy.wording import true_positives
from dpose.report.charts import POINTS, WIDTH, attack_chart, joints_chart, line_chart

HOSTILE = '"><script>alert(1)</script>'


def parsed(svg):
    return ET.fromstring(svg)


def texts(svg):
    return ["".join(node.itertext()) for node in parsed(svg).iter("text")]


def paths(svg, kind):
    found = [node.get("d") for node in parsed(svg).iter("path") if node.get("class") == kind]
    return [[tuple(map(float, pair)) for pair in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", d)] for d in found]


def dots(svg, kind):
    return [
        (float(c.get("cx")), float(c.get("cy"))) for c in parsed(svg).iter("circle") if c.get("class") == kind
    ]


def test_a_line_rises_as_its_numbers_do():
    svg = line_chart([(0, 10.0), (50, 20.0), (100, 40.0)], "what it shows", y_title="score, %")
    (line,) = paths(svg, "line")
    (x0, y0), (x1, y1), (x2, y2) = line
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert (y0 - y1) * 2 == pytest.approx(
        y1 - y2, abs=0.4
    )  # upwards is smaller, and 20 is twice 10 apart from 40
    assert dots(svg, "dot") == line
    assert "40" in texts(svg)
    assert "score, %" in texts(svg)
    assert parsed(svg).get("aria-label") == "what it shows"
    assert parsed(svg).get("role") == "img"


def test_axes_begin_at_zero():
    svg = line_chart([(10, 95.0), (20, 99.0)], "x")
    assert texts(svg).count("0") == 2  # of both axes
    (first, *_), bottom = paths(svg, "line")[0], paths(svg, "axis")[0][0][1]
    assert bottom - first[1] > 100  # 95 stands high above it


def test_a_long_line_is_a_mean_in_a_band():
    points = [(k, 5.0 + (-1) ** k) for k in range(1, 3001)]
    svg = line_chart(points, "x")
    (line,), (band,) = paths(svg, "line"), paths(svg, "band")
    assert len(line) <= POINTS
    assert max(y for _, y in line) - min(y for _, y in line) < 8
    assert max(y for _, y in band) - min(y for _, y in band) > 20
    assert len(svg) < 20_000


def test_the_second_scale_keeps_its_last_label_and_its_distance():
    above = [(float(k), f"{k / 10:g}") for k in range(0, 101, 5)]
    svg = line_chart([(0, 1.0), (100, 2.0)], "x", above=above, above_title="epsilon spent")
    y = min(float(t.get("y")) for t in parsed(svg).iter("text") if t.text == "10")
    scale = [float(t.get("x")) for t in parsed(svg).iter("text") if float(t.get("y")) == y]
    assert "epsilon spent" in texts(svg)
    assert 3 <= len(scale) <= 8
    assert min(abs(a - b) for a in scale for b in scale if a != b) >= 50


@settings(deadline=None)
@given(
    st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=30),
    st.integers(0, 10**6),
    st.integers(1, 1000),
)
def test_any_numbers_stay_on_the_picture(values, first, stride):
    svg = line_chart([(first + stride * k, v) for k, v in enumerate(values)], "x", y_title="y")
    for x, y in paths(svg, "line")[0]:
        assert math.isfinite(x)
        assert 0 <= x <= WIDTH
        assert 0 <= y <= 214


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 8.0, 50.0, 5000.0])
def test_the_bound_on_the_attacker_is_the_statements(epsilon):
    delta = 1e-5
    svg = attack_chart(epsilon, delta, "image", "x")
    diagonal = paths(svg, "diagonal")[0]
    (left, bottom), (right, top) = diagonal

    def number(point):
        return (point[0] - left) / (right - left), (bottom - point[1]) / (bottom - top)

    for point in [*paths(svg, "line")[0], *dots(svg, "dot")]:
        rate, found = number(point)
        # the picture has tenths of a unit; a steep bound moves far within one
        near = [true_positives(epsilon, delta, min(1.0, max(0.0, rate + e))) for e in (-3e-4, 3e-4)]
        assert near[0] - 1e-3 <= found <= near[1] + 1e-3
    assert f"{upper(true_positives(epsilon, delta), times=100)}%" in " ".join(texts(svg))
    assert bool(paths(svg, "reference")) == (epsilon > 1.5)


def test_the_bound_bends_where_its_two_halves_meet():
    line = paths(attack_chart(1.0, 0.0, "image", "x"), "line")[0]
    (left, bottom), (right, top) = paths(attack_chart(1.0, 0.0, "image", "x"), "diagonal")[0]
    a = (line[1][0] - left) / (right - left)
    b = (bottom - line[1][1]) / (bottom - top)
    assert a == pytest.approx(1 / (1 + math.e), abs=1e-3)
    assert b == pytest.approx(1 - a, abs=1e-3)


def test_joints_before_and_after():
    rows = [("Head", 20.0, 80.0), ("Wrist", 60.0, 40.0), ("Hip", None, 50.0), ("Knee", None, None)]
    svg = joints_chart(rows, "x", before="before", after="after", x_title="PCKh@0.5, %")
    hollow, full = dots(svg, "hollow"), dots(svg, "dot")
    assert len(hollow) == 1 + 2  # one in the legend
    assert len(full) == 1 + 3
    assert full[1][0] > hollow[1][0]
    assert full[2][0] < hollow[2][0]
    assert full[1][1] == hollow[1][1] < full[2][1]
    assert {"Head", "Knee", "80.0", "40.0", "50.0", "–", "before", "after"} <= set(texts(svg))


@pytest.mark.parametrize(("value", "end"), [(0.0, 1), (99.0, 100), (100.0, 100), (130.0, 150)])
def test_the_joints_axis_holds_them_and_ends_with_a_hundred_percent(value, end):
    svg = joints_chart([("Head", 0.0, value)], "x", before="before", after="after", x_title="%")
    assert dots(svg, "dot")[1][0] <= WIDTH
    assert max(float(t) for t in texts(svg) if t.isdigit()) == end


def test_without_a_before_there_is_no_hollow_dot():
    svg = joints_chart([("Head", None, 80.0)], "x", before="", after="this model", x_title="%")
    assert dots(svg, "hollow") == []


def test_texts_in_charts_are_escaped():
    joints = joints_chart([(HOSTILE, 1.0, 2.0)], HOSTILE, before=HOSTILE, after=HOSTILE, x_title=HOSTILE)
    line = line_chart([(1, 1.0)], HOSTILE, y_title=HOSTILE, above=[(1, HOSTILE)], above_title=HOSTILE)
    for svg in (joints, line, attack_chart(1.0, 0.0, HOSTILE, HOSTILE)):
        assert "<script>" not in svg
        assert parsed(svg).get("aria-label") == HOSTILE
