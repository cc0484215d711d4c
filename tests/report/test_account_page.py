"""What data have given in all, on a page: of a run for whoever reads its report, and of the account for its owner."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from dpose.account import EVALUATION, Budget, set_budget
from dpose.account.words import datasets
from dpose.report.charts import Spending, spending_over_time
from dpose.report.document import Report
from dpose.report.results import Section
from dpose.runs.account_page import account_report, account_section
from dpose.runs.reading import read_run
from stored import WARD, charged, run_charge

RUN = f"{0:032x}"


def text_of(blocks):
    return Report("", "", "", sections=(Section("s", "s", blocks),)).markdown()


@pytest.fixture
def folder(tmp_path):
    config = {"task": "pose", "run_id": RUN, "run": {"data": {"private": "synthetic:ward"}, "plan": {}}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def test_a_run_says_what_else_has_read_its_data_and_not_where_or_as_what(folder):
    charged(run_charge(0), run_charge(1, WARD[:3], data="secret name"), run_charge(2, what=EVALUATION, events=()))
    shown = text_of(account_section(read_run(folder), folder))
    assert "2 others have read some of the same pictures" in shown
    assert "for a plan fixed beforehand" in shown
    assert "1 score without noise" in shown
    assert "secret" not in shown


def test_a_run_that_the_account_does_not_know(folder):
    charged(run_charge(1))
    assert "does not know this run" in text_of(account_section(read_run(folder), folder))


def test_nothing_else_has_read_them(folder):
    charged(run_charge(0))
    assert "Nothing else that the account knows of" in text_of(account_section(read_run(folder), folder))


def test_an_account_that_cannot_be_read_breaks_no_report(folder, monkeypatch):
    monkeypatch.setenv("DPOSE_ACCOUNT", "postgresql://nobody@127.0.0.1:1/none")
    assert "could not be read" in text_of(account_section(read_run(folder), folder))


def test_public_data_have_no_account(folder):
    run = read_run(folder)
    assert account_section(replace(run, sources=("synthetic:studio:train",), data_are_public=True), folder) == ()


def test_the_page_says_what_is_left_and_escapes_names():
    set_budget(Budget(8.0, 1e-5, "<b>ward", WARD))
    charged(run_charge(0, data="<b>ward"))
    page = account_report(datasets()).html()
    assert "<b>ward" not in page
    assert "left" in page
    ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])


def test_an_empty_account_has_a_page():
    assert "Nothing has been charged" in account_report(()).html()


def test_the_chart_takes_the_pages_colours():
    rows = [Spending("2026-10-01", "training", 2.0), Spending("2026-10-02", "evaluation", None)]
    drawn = spending_over_time(rows, "what it shows", limit=3.0)
    assert "var(--warn)" in drawn
    assert "#" not in drawn.replace('href="#', "").replace("url(#", "")
    assert "evaluation, no bound" in drawn
    assert "budget 3" in drawn
