"""What the public view gives away stands in the report of every run that uses one, and in no other."""

import pytest

from dpose.report.sections import LINES, measured
from dpose.training.public_view import WIDTHS

METHODS = {"fdp-sgd", "fpdp-sgd", "public-only"}


@pytest.mark.parametrize("method", sorted(METHODS))
def test_it_is_said_for_every_method_with_public_views(make_run, report, method):
    words = report(make_run(method).path).words("given-away")
    found = measured()
    assert f"{100 * found['figures']['rank1']['blur']['value']:.1f} % were recognised" in words
    assert found["command"] in words
    assert "that proves nothing" in words
    assert "expect it to give away" not in words


@pytest.mark.parametrize("method", ["dp-sgd", "pdp-sgd", "non-private"])
def test_it_is_not_said_for_others(make_run, report, method):
    assert "given-away" not in report(make_run(method).path).sections()


@pytest.mark.parametrize(("width", "less"), [(20.0, "less"), (5.0, "more")])
def test_another_width_is_named(make_run, report, width, less):
    view = {"kind": "pixelize", "width": width}
    words = report(make_run("public-only", plan={"public_view": view}).path).words("given-away")
    assert f"This run's view has width {width:g}: expect it to give away {less}" in words
    assert "pixelization (this run)" in words


def test_the_figures_are_of_the_views_that_are_used_and_lie_where_they_must():
    found = measured()
    assert found["widths"] == WIDTHS
    assert found["command"].startswith("dpose attack view --data synthetic:ward")
    assert found["settings"]["identities"] == 100
    for name in LINES:
        line = found["figures"][name]
        for kind in ("blur", "pixelize"):
            assert line["chance"] < line[kind]["low"] <= line[kind]["value"] <= line[kind]["high"]
            assert line[kind]["value"] <= line["raw"]["high"]
