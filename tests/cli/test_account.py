"""`dpose account`: data, a picture, a budget, a page; each mistake is one line."""

import contextlib
import re
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from clips import write as write_clip
from dpose.account import EVALUATION, Budget, budgets, charges, conclude, set_budget
from dpose.account.store import close_connections
from dpose.cli import main
from dpose.media import write_image
from dpose.privacy.marks import marks_of
from dpose.privacy.neighbours import Neighbours
from dpose.runs.account import identity_of_data, marks_of_file
from dpose.studio.account_view import whole_account
from quick import quick  # noqa: F401
from refusals import refused
from stored import EVENT, WARD, charged, pure, release_charge, run_charge, union

STUDIO = "synthetic:ward:public"
QUIET = Console(quiet=True)


def says(capsys, *arguments):
    capsys.readouterr()
    assert main(["account", *map(str, arguments)]) == 0, capsys.readouterr().err
    return " ".join(capsys.readouterr().out.split())


def command_refused(capsys, *arguments):
    capsys.readouterr()
    assert main(["account", *map(str, arguments)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.fixture
def photo(tmp_path):
    file = tmp_path / "photos" / "a.png"
    file.parent.mkdir()
    write_image(file, np.random.default_rng(0).integers(0, 255, (48, 64, 3)).astype(np.uint8))
    return file


@pytest.fixture(scope="module")
def data_marks():
    return identity_of_data(STUDIO, QUIET, 4).marks


def test_an_empty_account_says_so(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert "Nothing has been charged" in says(capsys)
    assert "Nothing has been charged" in says(capsys, "show")


def test_data_a_part_of_them_and_all(capsys, data_marks):
    charged(run_charge(0, data_marks, data=STUDIO), run_charge(1, data_marks[:2], data=STUDIO))
    whole = says(capsys, STUDIO, "--limit", 4)
    assert whole == says(capsys, "show", STUDIO, "--limit", 4)
    assert "Each image, left blank: epsilon" in whole
    assert "for a plan fixed beforehand" in whole
    planned = float(re.search(r"left blank: epsilon ([\d.]+)", whole)[1])
    assert float(re.search(r"chosen after seeing earlier ones: epsilon ([\d.]+) at delta", whole)[1]) > planned
    assert "training" in says(capsys)
    told = [re.search(r"left blank: epsilon ([\d.]+)", says(capsys, STUDIO, "--limit", n))[1] for n in (4, 1)]
    assert float(told[1]) <= float(told[0])
    replaced = says(capsys, STUDIO, "--limit", 4, "--neighbours", "image:replace")
    assert float(re.search(r"exchanged for any other: epsilon ([\d.]+)", replaced)[1]) > float(told[0])


@pytest.mark.parametrize("delta", [1e-9, 1e-12])
def test_a_run_of_a_tiny_delta_is_listed(capsys, tmp_path, delta):
    """One such run made every later `dpose account` end with an error."""
    charged(run_charge(0, delta=delta))
    for shown in (says(capsys), says(capsys, "show", "--delta", delta), says(capsys, "--delta", 1e-9)):
        assert re.search(r"chosen after seeing earlier ones: epsilon [\d.]+ at delta", shown)
    says(capsys, "--html", tmp_path / "page.html")
    assert whole_account()["datasets"][0]["rows"]


def test_what_has_no_bound_has_none_for_what_was_chosen_after_it(capsys, data_marks):
    """A score without noise stands beside the figure of a fixed plan; of what was chosen by it nothing is known."""
    charged(run_charge(0, data_marks), run_charge(1, data_marks, events=(), what=EVALUATION))
    told = says(capsys, STUDIO, "--limit", 4)
    assert "left blank: epsilon" in told
    assert "chosen after seeing earlier ones: no bound is known." in told
    charged(run_charge(2, data_marks, events=()))
    assert "no bound" in (told := says(capsys, STUDIO, "--limit", 4))
    assert "chosen after seeing earlier ones: no bound is known." in told


def test_a_budget_of_a_large_delta_is_told_what_that_is(capsys):
    assert "Warning: delta 0.1 is above 1/(10 n)" in says(
        capsys, "budget", "set", STUDIO, "--limit", 4, "--epsilon", 9, "--delta", 0.1
    )
    assert "1/(10 n)" not in says(capsys, "budget", "set", STUDIO, "--limit", 4, "--epsilon", 9, "--delta", 0.02)


def test_a_picture_is_found_by_its_pixels_and_by_its_bytes(capsys, photo):
    by_file, by_pixels = (marks_of_file(photo)[k : k + 1] for k in (0, 1))
    charged(run_charge(0, union(WARD, by_file)), release_charge(1, by_pixels))
    shown = says(capsys, "--picture", photo, "--neighbours", "pixels:16")
    assert "training" in shown
    assert "release" in shown
    both = float(re.search(r"16 pixels of the picture: epsilon ([\d.]+)", shown)[1])
    assert both > 2  # what read it by one digest adds up with what read it by the other
    again = photo.with_name("b.png")
    again.write_bytes(photo.read_bytes())
    assert f"epsilon {both:g}" in says(capsys, "--picture", again, "--neighbours", "pixels:16")


def test_each_relation_asked_about_has_its_figure_or_the_reason_why_not(capsys, photo):
    charged(release_charge(0, marks_of_file(photo)))
    shown = says(capsys, "--picture", photo, "--neighbours", "pixels:64", "--neighbours", "subject")
    assert "64 pixels of the picture: epsilon 8 at" in shown
    assert "Each subject, left blank: no bound (1 x only the pixels of each image are protected" in shown
    shown = says(capsys, "--picture", photo)
    assert "16 pixels of the picture: epsilon 2 at" in shown
    assert "Each image, exchanged for any other: epsilon 384 at" in shown


def test_scores_and_runs_without_noise_are_never_nothing(capsys, photo):
    marks = marks_of_file(photo)
    charged(run_charge(0, marks, what=EVALUATION, events=()), run_charge(1, marks, events=()))
    shown = says(capsys, "--picture", photo)
    assert "1 score without noise" in shown
    assert "no bound (1 x no noise" in shown
    assert "epsilon 0 " not in shown


def test_a_picture_that_nothing_has_read(capsys, photo):
    charged(run_charge())
    shown = says(capsys, "--picture", photo)
    assert "nothing that this account knows of has read it" in shown


def test_a_budget_is_set_told_spent_and_lifted(capsys, data_marks):
    said = says(capsys, "budget", "set", STUDIO, "--epsilon", 8, "--delta", "1e-5", "--limit", 4)
    assert "What would fit, at epsilon 8 left:" in said
    assert "steps of 4 at sigma 3" in said
    assert "0 is spent" in says(capsys)
    charged(run_charge(0, data_marks, data=STUDIO))
    shown = says(capsys, STUDIO, "--limit", 4)
    assert "by the count of its filter" in shown
    assert re.search(r"at epsilon [\d.]+ left: \d+ steps of 1 at sigma 3", shown)
    assert "is lifted" in says(capsys, "budget", "lift", STUDIO, "--limit", 4)
    assert "no budget" in says(capsys, "budget", "lift", STUDIO, "--limit", 4)
    assert budgets() == []
    says(capsys, STUDIO, "--limit", 4, "--budget", 9)
    assert [one.epsilon for one in budgets()] == [9]
    says(capsys, STUDIO, "--limit", 4, "--no-budget")
    assert budgets() == []


@pytest.mark.parametrize(("runs", "level"), [(1, 0), (3, 50), (4, 80)])
def test_warnings_come_at_half_and_at_four_fifths(capsys, runs, level):
    set_budget(Budget(3.9, 1e-5, "ward", WARD))
    charged(*(run_charge(k) for k in range(runs)))
    found = re.search(r"WARNING: more than (\d+) %", says(capsys))
    assert (int(found[1]) if found else 0) == level


def test_a_budget_for_pixels(capsys, photo):
    set_budget(Budget(8, 1e-5, "photos", marks_of_file(photo), Neighbours.of_pixels(16)))
    charged(release_charge(0, marks_of_file(photo)))
    shown = says(capsys, "--picture", photo)
    assert "Budget of photos: epsilon 8 at delta 1e-05 for any 16 pixels of the picture" in shown
    assert re.search(r"one release of each image at [\d.]+ for 16 pixels", shown)


def test_only_its_owners_name_changes_a_budget(capsys):
    base = ("budget", "set", STUDIO, "--delta", "1e-5", "--limit", 4, "--epsilon")
    assert "no authentication" in says(capsys, *base, 8, "--owner", "anna")
    for arguments in ((*base, 9), (*base, 9, "--owner", "ben"), ("budget", "lift", STUDIO, "--limit", 4)):
        assert "[budget-of-other-owner]" in command_refused(capsys, *arguments)
    says(capsys, *base, 9, "--owner", "anna")
    assert [one.epsilon for one in budgets()] == [9]
    says(capsys, "budget", "lift", STUDIO, "--limit", 4, "--owner", "anna")


def test_a_folder_released_at_once_is_one_table_of_one_line(capsys):
    charged(
        *(release_charge(k, marks_of([f"picture {k}"]), at="2026-10-01T00:00:00+00:00", folder="out") for k in range(9))
    )
    shown = says(capsys)
    assert shown.count("9 x release") == 1
    assert "epsilon 2 at delta 1e-05 of the picture that gave most; 18 if all had read the same one" in shown


def test_a_table_of_80_columns_has_each_folder_on_a_line_of_its_own(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    run = run_charge(0, folder="/data/ward/runs/lspet-private-2026-10-01", beyond=True)
    stays = {"what": "count", "unit": "stay", "within": "stays:4/seconds:30", "events": (pure(1),), "delta": 0.0}
    count = run_charge(1, folder="/data/counts", **stays)
    release = release_charge(2, WARD[:1], folder="/data/" + "long/" * 14 + "a.png")
    charged(run, count, release)
    conclude({one.id: () for one in (run, count, release)})
    assert main(["account"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[:9] == [
        "ward, photos/2.png",
        "when        what      neighbours          epsilon  delta",
        "2026-10-01  training  image, zero-out *     1.639  1e-05",
        "            /data/ward/runs/lspet-private-2026-10-01",
        "2026-10-02  count     stays:4/seconds:30        1      0",
        "            /data/counts",
        "2026-10-03  release   16 pixels                 2      0",
        "            " + release.folder[:68],
        "            " + release.folder[68:],
    ]
    charged(run_charge(3))
    assert main(["account"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("delta  state")
    assert [line.split()[-1] for line in lines if line.startswith("2026")] == ["committed"] * 3 + ["reserved"]


def test_another_account_by_its_url(capsys, tmp_path, photo, monkeypatch):
    monkeypatch.setenv("DPOSE_ACCOUNT_KEY", "1" * 64)
    url = f"sqlite:///{tmp_path}/team.sqlite"
    charged(release_charge(0, marks_of_file(photo)), where=url)
    assert "release" in says(capsys, "--account", url)
    assert "release" in says(capsys, "--picture", photo, "--account", url)
    assert "Nothing" in says(capsys)
    monkeypatch.setenv("DPOSE_ACCOUNT", url)
    assert "release" in says(capsys)


def test_a_page_of_everything(capsys, tmp_path, photo, monkeypatch):
    set_budget(Budget(8, 1e-5, "ward", WARD))
    charged(run_charge(), release_charge(1, marks_of_file(photo)))
    says(capsys, "--html", tmp_path / "all.html")
    page = (tmp_path / "all.html").read_text()
    assert page.count("<svg") == 2
    assert "for a plan fixed beforehand" in page
    monkeypatch.chdir(tmp_path)
    says(capsys, "--html")
    assert (tmp_path / "account.html").read_text() == page
    says(capsys, "--picture", photo, "--html", tmp_path / "one.html")
    assert (tmp_path / "one.html").read_text().count("<svg") == 1


MISTAKES = {
    "a budget without data": (["--budget", "3"], "needs its data"),
    "set and lifted": (["ward", "--budget", "3", "--no-budget"], "is set or lifted"),
    "neighbours nobody knows": (["--neighbours", "imgae"], "did you mean image?"),
    "no pixels": (["--neighbours", "pixels:0"], "at least 1 pixel"),
    "delta of one": (["--delta", "1"], "above 0 and below 1"),
    "a part of nothing": (["--limit", "3"], "name them first"),
    "a picture of data": (["ward", "--picture", "a.png"], "by itself"),
    "no picture": (["--picture", "a.txt"], "neither picture nor video"),
    "a picture that is missing": (["--picture", "missing.png"], "missing.png"),
    "no file": (["--picture", "nowhere.png"], "nowhere.png: there is no such file [file-missing]"),
    "no page": (["--html", "page.pdf"], "name it .html"),
    "data nobody knows": (["lspett:/data"], "lspett"),
    "a unit without a budget": (["--unit", "image"], "budget set"),
    "no place": (["--account", "mysql://team"], "no place for an account"),
    "no server": (["--account", "postgresql://nobody@127.0.0.1:1/none"], "nothing private is read"),
    "a folder that is none": (["--account", "sqlite:////proc/none/a.sqlite"], "no account"),
    "no epsilon": (["budget", "set", "ward"], "--epsilon"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("text")
    arguments, words = MISTAKES[name]
    assert words in command_refused(capsys, *arguments)
    assert charges() == []


def test_a_budget_below_what_is_spent(capsys, data_marks):
    charged(run_charge(0, data_marks))
    line = command_refused(capsys, "budget", "set", STUDIO, "--epsilon", 0.01, "--delta", "1e-5", "--limit", 4)
    assert "more than a budget of epsilon 0.01 is spent already" in line
    assert budgets() == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("key", "0" * 64, "not the key of this account"), ("schema", "99", "set XDG_STATE_HOME")],
)
def test_an_account_that_is_not_for_this_dpose_is_refused(capsys, tmp_path, name, value, words):
    made, moved = tmp_path / "made.sqlite", tmp_path / "moved.sqlite"
    charged(run_charge(), where=f"sqlite:///{made}")
    close_connections(f"sqlite:///{made}")
    moved.write_bytes(made.read_bytes())  # of another name: what this process knows of the first it does not of this
    with contextlib.closing(sqlite3.connect(moved)) as database, database:
        database.execute("UPDATE meta SET value = ? WHERE name = ?", (value, name))
    assert words in command_refused(capsys, "--account", f"sqlite:///{moved}")


def test_the_refusal_of_a_run_says_what_would_fit():
    set_budget(Budget(2.0, 1e-5, "ward", WARD))
    charged(run_charge())
    many = run_charge(1, events=(replace(EVENT, steps=2000),))
    with refused("budget-exceeded", where="10 at sigma 3"):
        charged(many)


def test_a_clip_is_known_by_its_frames(capsys, tmp_path):
    """A frame that was released as a picture has given something of its clip, too."""
    file = write_clip(tmp_path / "clip.mp4", frames=3)
    marks = marks_of_file(file)
    assert len(marks) == 5  # its bytes, its pixels, and each frame's
    charged(
        release_charge(0, marks, within="video", area=3 * 48 * 64), run_charge(1, marks[:1]), run_charge(2, marks[1:2])
    )
    shown = says(capsys, "--picture", file, "--neighbours", "video:replace")
    assert "no bound (2 x only each image is protected" in shown
    assert says(capsys, "--picture", file, "--neighbours", "pixels:16").count("training") == 2
