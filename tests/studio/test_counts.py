"""The counts page: what was published, of live sources the last day, and nothing of what does not hold."""

import json
from datetime import datetime
from fractions import Fraction

import pytest

from counted import count_folder
from dpose.measure import STATEMENT
from dpose.measure.config import CountConfig
from dpose.measure.live import live_config
from dpose.measure.plan import Schedule, bind_count, whole_day
from dpose.studio.counts_view import count_list
from dpose.studio.roots import Roots

CONFIG = CountConfig.of(queries="occupancy,falls", epsilon="1", window="1h", visible="30s", times=4)
NOW = datetime(2026, 11, 28, 12, 30)


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    made = tmp_path_factory.mktemp("counts")
    for day in ("2026-11-26", "2026-11-27", "2026-11-28"):
        count_folder(made / "corridor" / day, whole_day(live_config(CONFIG), day, ("corridor-3",)))
    count_folder(made / "film", bind_count(CONFIG, Schedule("day", 1, Fraction(0), Fraction(7200))))
    return made


def test_a_live_source_is_shown_for_a_day(counts):
    live, film = count_list(Roots.of([counts]), NOW)
    assert (live["name"], live["x"]) == ("corridor", "hours from now")
    assert live["said"][0].startswith("corridor-3, epsilon 1 a day for what any 4 stays")
    points = live["series"][0]["points"]
    # windows whose middle is less than a day ago, of three days
    assert [point[0] for point in points] == [k - 24 for k in range(24 + 12)]
    assert all(low <= value <= high for _, value, low, high in points)
    assert (film["name"], film["x"], len(film["series"][0]["points"])) == ("film", "hours since midnight", 2)


def test_what_does_not_hold_is_not_shown(counts, tmp_path):
    count_folder(tmp_path / "counts", bind_count(CONFIG, Schedule("day", 1, Fraction(0), Fraction(7200))))
    statement = tmp_path / "counts" / STATEMENT
    values = json.loads(statement.read_text())
    values["epsilon"] = "1/2"
    statement.write_text(json.dumps(values))
    (one,) = count_list(Roots.of([tmp_path]), NOW)
    assert one["series"] == []
    assert "does not follow" in one["said"][0]
    (tmp_path / "counts" / "link").symlink_to(counts)
    (one,) = count_list(Roots.of([tmp_path]), NOW)
    assert "links out of the folders" in one["said"][0]


def test_the_page_asks_for_them(ask, studio, counts, monkeypatch):
    assert ask("counts") == {"counts": [], "folders": 1}
    monkeypatch.setattr(studio, "roots", Roots.of([counts]))
    assert [one["name"] for one in ask("counts")["counts"]] == ["corridor", "film"]
