"""The pages as a real browser shows them: light and dark, on a desk and on a telephone.

One width and one dark pass in every run; the others rarely break.
"""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from dpose.report.page import PosePair
from dpose.runs.reporting import write_run_report
from tiers import rest_slow

WIDTHS = (360, 768, 1280)
SLOW = pytest.mark.slow
HOSTILE = "<script>document.title='taken'</script><img src=x onerror=alert(1)>"

FAULTS = {
    "clean.html": "<p>nothing is wrong</p>",
    "torn.html": '<img src="data:image/png;base64,AAAA" alt="a torn picture">',
    "wide.html": '<div style="width:2000px">wide</div>',
    "boxed.html": '<div style="overflow-x:auto"><div style="width:2000px">wide, in a box</div></div>',
    "throws.html": "<p>text</p><script>throw new Error('boom')</script>",
    "fetches.html": '<p>text</p><link rel="stylesheet" href="http://elsewhere.invalid/style.css">',
    "faint.html": '<p style="color:#999;background:#fff">pale</p>',
    "dark-faint.html": "<style>@media (prefers-color-scheme: dark){p{color:#333;background:#000}}</style><p>text</p>",
}


@pytest.fixture(scope="module")
def pages(make_run_in, steps, tmp_path_factory):
    """A folder of reports, and of pages with a fault each."""
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (256, 192, 3), np.uint8) for _ in range(4)]
    tiles = [PosePair(f"unit-{k}-{'long' * 20}", pictures[k], pictures[k + 1]) for k in range(3)]
    full = make_run_in(folder, name="full", run={"command": "dpose train " + "--a-rather-long-option value " * 9})
    full.log(*steps(20), {"type": "diagnostics", "step": 4, "subspace_rank": 97.0})
    full.scored(0, 0.2, 0.0).scored(10, 0.5, 5.1).scored(20, 0.6, 7.9)
    others = [{"name": f"another model {k}", "result": full_result()} for k in range(4)]
    full.evaluated(share=0.6, beside=others).evaluated("synthetic:studio:val")
    hostile = make_run_in(
        folder, name="hostile", run={"command": HOSTILE}, caveats=(HOSTILE,), config={"task": HOSTILE}
    )
    plain = make_run_in(folder, "non-private", name="plain")
    plain.log(*({"type": "step", "step": k, "lr": 1e-3, "loss": 3.0 / k} for k in range(1, 500)))
    bare = make_run_in(folder, name="bare", statement=False)
    write_run_report(full.path, tiles=tiles, pictures_of="synthetic:ward:public")
    for run in (hostile, plain, bare):
        write_run_report(run.path)
    planted = (plain.path / "report.html").read_text().replace("<main>", "<main><script>document.title=1</script>", 1)
    (folder / "planted.html").write_text(planted)
    for name, body in FAULTS.items():
        (folder / name).write_text(f'<!DOCTYPE html><meta charset="utf-8"><title>a fault</title><body>{body}</body>')
    return folder


@pytest.fixture(scope="module")
def look(inspect, pages):
    """`look(widths, dark)`: findings by (page, width), and the console's lines."""

    @cache
    def looked(widths, dark):
        reports = [f"{name}/report.html" for name in ("full", "hostile", "plain", "bare")]
        wanted = [(page, width) for page in reports for width in widths]
        found = inspect(pages, [*wanted, *((page, 360) for page in (*FAULTS, "planted.html"))], dark=dark)
        return SimpleNamespace(pages={(p["page"], p["width"]): p for p in found.pages}, console=found.console)

    return looked


def full_result():
    joints = {"r_ankle": 10.0, "l_ankle": 20.0, "head_top": None}
    return {
        "metric": "PCKh",
        "threshold": 0.5,
        "columns": {"Head": None, "Ankle": 15.0, "Mean": 15.0, "Mean@0.1": 2.0},
        "joints": {"0.5": joints, "0.1": joints},
        "people": 400,
    }


@pytest.mark.parametrize(
    ("widths", "dark"),
    rest_slow(
        [
            (WIDTHS[:1], False),
            (WIDTHS[:1], True),
            pytest.param(WIDTHS[1:], False, marks=SLOW),
            pytest.param(WIDTHS[1:], True, marks=SLOW),
        ]
    ),
)
def test_nothing_is_wrong_with_a_report(look, widths, dark):
    seen = look(widths, dark)
    for name in ("full", "hostile", "plain", "bare"):
        for width in widths:
            page = seen.pages[f"{name}/report.html", width]
            assert page["dark"] is dark
            assert "training" in page["title"]
            assert page["images"] == (6 if name == "full" else 0)
            assert (page["broken"], page["overflow"], page["scripts"]) == ([], 0, 0), (name, width)
            assert (page["loaded"], page["faint"]) == ([], []), (name, width)
    assert not [line for line in seen.console if "report.html" in line]


def test_a_script_that_slips_into_a_report_does_not_run(look):
    seen = look(WIDTHS[:1], False)
    page = seen.pages["planted.html", 360]
    assert page["scripts"] == 1
    assert "training" in page["title"]
    assert [line for line in seen.console if "planted.html" in line and "Content Security Policy" in line]


def test_the_inspector_finds_each_fault(look):
    seen = look(WIDTHS[:1], False)
    for name in FAULTS:
        page = seen.pages[name, 360]
        assert bool(page["broken"]) == (name == "torn.html"), name
        assert bool(page["overflow"]) == (name == "wide.html"), name
        assert bool(page["scripts"]) == (name == "throws.html"), name
        assert bool(page["loaded"]) == (name == "fetches.html"), name
        assert bool(page["faint"]) == (name == "faint.html"), name
        assert any(name in line for line in seen.console) == (name == "throws.html"), name
    assert look(WIDTHS[:1], True).pages["dark-faint.html", 360]["faint"]
