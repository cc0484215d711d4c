"""What data have given in all, on a page of the account for its owner, and nowhere in a run's folder."""

import json
from xml.etree import ElementTree

from dpose.account import EVALUATION, Budget, charges, set_budget
from dpose.account.words import datasets
from dpose.report.charts import Spending, spending_over_time
from dpose.runs.account_page import account_report
from dpose.runs.reporting import write_run_report
from stored import WARD, charged, run_charge

RUN = f"{0:032x}"


def test_a_runs_report_is_the_same_whatever_else_the_account_has_of_its_pictures(tmp_path):
    config = {"task": "pose", "run_id": RUN, "run": {"data": {"private": "synthetic:ward"}, "plan": {}}}
    (tmp_path / "config.json").write_text(json.dumps(config))

    def report():
        return write_run_report(tmp_path).read_text(encoding="utf-8")

    charged(run_charge(0))
    alone = report()
    charged(run_charge(1, WARD[:3], data="secret name"), run_charge(2, what=EVALUATION, events=()))
    assert len(charges(of=WARD)) == 3
    assert report() == alone


def test_the_page_says_what_is_left_and_escapes_names():
    set_budget(Budget(8.0, 1e-5, "<b>ward", WARD))
    charged(run_charge(0, data="<b>ward"))
    page = account_report(datasets()).html()
    assert "<b>ward" not in page
    assert "left" in page
    ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])


def test_what_happened_on_one_day_is_told_by_the_hour_and_by_its_folder():
    at = [f"2026-10-01T0{hour}:30:00+00:00" for hour in (7, 9)]
    charged(*(run_charge(number, at=when, folder=f"runs/{number}") for number, when in enumerate(at)))
    page = account_report(datasets()).html()
    drawn = page[page.index("<svg") : page.index("</svg>")]
    assert "07:30" in drawn
    assert "09:30" in drawn
    assert "Times are of 2026-10-01, UTC." in page
    assert "<code>runs/0</code>" in page
    assert "<code>runs/1</code>" in page


def test_an_empty_account_has_a_page():
    assert "Nothing has been charged" in account_report(()).html()


def test_the_chart_takes_the_pages_colours():
    rows = [Spending("2026-10-01", "training", 2.0), Spending("2026-10-02", "evaluation", None)]
    drawn = spending_over_time(rows, "what it shows", limit=3.0)
    assert "var(--warn)" in drawn
    assert "#" not in drawn.replace('href="#', "").replace("url(#", "")
    assert "evaluation, no bound" in drawn
    assert "budget 3" in drawn
