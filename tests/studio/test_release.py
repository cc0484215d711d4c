"""From an opened picture to a verified release, without a browser; and what stands beside a preview."""

import math
import time

import numpy as np
import pytest

from clips import write
from dpose.errors import DposeError
from dpose.privacy.accounting import Relation
from dpose.privacy.odometer import PIXEL, Budget, charges, marks_of, set_budget
from dpose.privacy.statement import PrivacyStatement
from dpose.release.embed import read_stamp
from dpose.release.verify import verify_release
from dpose.studio import jobs, worker
from dpose.studio import preview as previews
from dpose.studio.settings import SEEN, drawn_box, up_the_ladder, wanted
from studios import photo


@pytest.fixture
def near(monkeypatch):
    """Jobs in this process: a process of its own takes two seconds to begin, and one test has it."""

    class Near:
        def __init__(self, work, task, cwd):
            self.work, self.task = work, task
            monkeypatch.chdir(cwd or ".")

        def lines(self):
            said = []
            monkeypatch.setattr(worker, "say", lambda **line: said.append(line))
            try:
                said.append({"done": worker.WORK[self.work](self.task)})
            except DposeError as error:
                said.append({"error": error.line()})
            yield from said

    monkeypatch.setattr(jobs, "Child", Near)


def ended(ask, job):
    for _ in range(400):
        (found,) = [one for one in ask("jobs")["jobs"] if one["id"] == job["id"]]
        if found["state"] not in ("waiting", "running"):
            return found
        time.sleep(0.05)
    raise AssertionError(found)


def test_sizes_go_up_a_public_ladder():
    for pixels in (1, 2, 3, 900, 1023, 1024, 1025, 10_000):
        m = up_the_ladder(pixels, 10**6)
        assert m >= pixels
        assert m & (m - 1) == 0
        assert m < 2 * pixels
    assert up_the_ladder(900, 1000) == 1000
    config = wanted({"hide": "box", "box": [10, 10, 30, 30]}, 120, 160, clip=False).config
    assert config.m == 1024
    box = wanted({"hide": "box", "box": [10, 10, 30, 50], "delta": "1e-5"}, 120, 160, clip=True).config.box
    assert (box.width, box.height, box.seconds) == (32, 64, 10)


def test_a_box_is_cut_to_the_picture():
    assert drawn_box([-5, 100, 30, 90], 120, 160) == (0, 100, 25, 120)
    for box in ([200, 0, 9, 9], [0, 0, 0, 5], [0, 0, math.nan, 5], "box", None, [1, 2, 3]):
        with pytest.raises(DposeError, match=r"box|draw"):
            drawn_box(box, 120, 160)


def test_a_preview_says_what_the_plan_says_and_takes_nothing(ask, opened):
    found = ask("preview", file=opened["id"], hide="box", box=[10, 10, 30, 30], epsilon="2", block=8)
    assert found["picture"].startswith("data:image/jpeg;base64,")
    assert found["block"] == 8
    by = {what: epsilon for what, epsilon, _ in found["epsilons"]}
    assert by["what is hidden"] == "2"
    assert float(by["the box you drew"]) == pytest.approx(2 * 900 / 1024, rel=1e-3)
    assert float(by["the box you drew"]) >= 2 * 900 / 1024  # an upper bound is rounded up
    assert any("protected with epsilon" in line for line in found["larger"])
    assert "gray levels of noise on a cell of 8 pixels" in found["visible"]
    assert charges() == []


def test_a_preview_draws_no_noise_of_a_release(ask, opened, monkeypatch):
    """A picture's noise comes from numpy; a fresh key would be one that a release could have had."""

    def none(*_):
        raise AssertionError("a preview took a key")

    monkeypatch.setattr(previews.Key, "fresh", none)
    assert "picture" in ask("preview", file=opened["id"], epsilon="2")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"epsilon": "0"}, "epsilon"),
        ({"epsilon": "x"}, "epsilon"),
        ({"epsilon": None}, "epsilon: must be a number"),
        ({"hide": "all"}, "hide"),
        ({"hide": "box"}, "no box yet"),
        ({"hide": "face", "face": "big"}, "face-size"),
        ({"block": 5000}, "block"),
        ({"block": "x"}, "block"),
        ({"delta": "2"}, "delta"),
        ({"restore": "magic"}, "restore"),
        ({"file": "none"}, "not open any more"),
    ],
)
def test_mistakes_are_told_as_on_the_command_line(ask, opened, settings, said):
    found = ask("preview", **{"file": opened["id"], "epsilon": "2", **settings})
    assert isinstance(found, str)
    assert said in found


@pytest.mark.parametrize("block", [1, 3, 8, 16])
def test_the_noise_of_a_preview_is_as_large_as_the_releases(tmp_path, block):
    """On a grey picture larger than the screen, where cells are taken together: deviations of what is shown."""
    flat = np.full((1500, 1800), 128, np.uint8)
    opened = previews.OpenedFile(
        "a",
        tmp_path / "a",
        tmp_path,
        {"kind": "picture", "height": 1500, "width": 1800, "channels": 1, "peak": 255},
    )
    opened.__dict__["pixels"] = flat
    asked = wanted(
        {"epsilon": str(round(721 / block**2, 4)), "block": block, "restore": "none"}, 1500, 1800, clip=False
    )
    plan = previews.plan_for(opened, asked.config)
    picture, _ = previews._of_picture(opened, plan)
    assert max(picture.shape) <= 1.6 * previews.SCREEN
    times = 1
    while block * times * previews.SCREEN / 1800 < 1:
        times *= 2
    expected = math.sqrt(plan.stages[0].variance) * times / (block * times) ** 2
    dots = max(1, round(block * times * previews.SCREEN / 1800))
    spread = picture[::dots, ::dots].astype(float).std()
    assert spread == pytest.approx(math.hypot(expected, 12**-0.5), rel=0.06)


def test_many_previews_keep_few_sums(ask, opened, studio):
    for block in (2, 3, 4, 5, 6, 8, 10):
        ask("preview", file=opened["id"], epsilon="2", block=block, restore="none")
    assert len(studio.files.get(opened["id"]).caches["sums"]) == previews.SUMS


def test_a_whole_release_in_a_process_of_its_own_verifies(ask, client, opened, studio):
    before = ask("standing", file=opened["id"], epsilon="2")
    assert before["before"] == 0
    settings = {"file": opened["id"], "hide": "box", "box": [10, 10, 30, 30], "epsilon": "2", "block": "auto"}
    done = ended(ask, ask("release", **settings))
    assert (done["state"], done["files"]) == ("done", ["000001.png", "000001.npz"])
    for name in done["files"]:
        statement, _ = verify_release(studio.out / name)
        assert SEEN in statement.caveats
        assert statement.neighbours.m == 1024
        assert client.get(f"/written/{done['id']}/{name}").content == (studio.out / name).read_bytes()
    assert ask("verify_job", job=done["id"])["holds"]
    (charge,) = charges()
    assert charge.what == "release"
    assert "add up" in done["statement"]


def test_a_second_release_has_to_be_asked_for(ask, opened, studio, near):
    settings = {"file": opened["id"], "hide": "box", "box": [10, 10, 30, 30], "epsilon": "2", "block": "auto"}
    assert ended(ask, ask("release", **settings))["state"] == "done"
    # the same again is done already; with other settings it is a second release, which has to be asked for
    again = ended(ask, ask("release", **settings))
    assert (again["state"], again["files"]) == ("done", [])
    assert "nothing spent" in again["lines"][0]
    told = ask("standing", **settings | {"epsilon": "1"})
    assert told["before"] == 1
    assert "together cost epsilon 3" in told["words"]
    refused = ended(ask, ask("release", **settings | {"epsilon": "1"}))
    assert refused["state"] == "failed"
    assert "released before" in refused["said"]
    both = ended(ask, ask("release", **settings | {"epsilon": "1", "again": True}))
    assert both["state"] == "done"
    statement, _ = read_stamp((studio.out / both["files"][0]).read_bytes(), "")
    assert isinstance(statement, PrivacyStatement)
    assert any(line.startswith("2 releases of this original") for line in statement.caveats)

    # and the account page knows
    assert len(ask("account")["datasets"]) == 1
    assert [row[3] for row in ask("history", file=opened["id"])["rows"]] == ["2", "1"]


def test_a_budget_is_told_and_kept(ask, studio, near):
    opened = ask("open_file", place="0/inner/b.png")
    marks = marks_of(studio.files.get(opened["id"]).facts["hashes"])
    set_budget(Budget(3.0, 1e-5, "ward", marks, PIXEL, Relation.REPLACE, 16))
    (state,) = ask("standing", file=opened["id"], epsilon="2")["budgets"]
    assert (state["epsilon"], state["spent"], state["left"], state["used"]) == ("3", "0", "3", 0.0)
    assert ended(ask, ask("release", file=opened["id"], epsilon="4"))["state"] == "failed"
    assert ended(ask, ask("release", file=opened["id"], epsilon="2", again=True))["state"] == "done"
    (state,) = ask("standing", file=opened["id"], epsilon="2")["budgets"]
    assert float(state["left"]) <= 1
    assert 0.6 < state["used"] <= 1
    assert any(one["budgets"] for one in ask("account")["datasets"])


def test_no_reservation_no_release(ask, client, tmp_path, monkeypatch, studio, near):
    """The account cannot be written: nothing is released, and the reason is told."""
    name = photo(tmp_path / "other.png", seed=7)
    opened = client.put("/api/upload", params={"name": "other.png"}, content=name.read_bytes()).json()
    monkeypatch.setenv("DPOSE_ACCOUNT", "sqlite:////proc/none/account.sqlite")
    files = sorted(studio.out.iterdir()) if studio.out.exists() else []
    done = ended(ask, ask("release", file=opened["id"], epsilon="2"))
    assert done["state"] == "failed"
    assert sorted(studio.out.iterdir() if studio.out.exists() else []) == files


def test_a_clip_is_previewed_and_released(ask, client, tmp_path, studio, near):
    data = write(tmp_path / "a.mp4", frames=24, size=(64, 48)).read_bytes()
    opened = client.put("/api/upload", params={"name": "a.mp4"}, content=data).json()
    assert (opened["kind"], opened["frames"]) == ("clip", 24)
    settings = {"file": opened["id"], "hide": "box", "box": [0, 0, 20, 20], "epsilon": "8", "delta": "1e-5"}
    found = ask("preview", **settings)
    assert "box of 24 x 24" in found["hidden"]
    assert "first frame" in found["note"]
    done = ended(ask, ask("release", **settings))
    assert done["state"] == "done"
    assert done["at"] == done["of"] == 24
    assert charges()[-1].data == "a.mp4"  # a copy's own folder says nothing to anybody
    statement, _ = verify_release(studio.out / done["files"][0])
    assert SEEN in statement.caveats
    assert statement.neighbours.box == (24, 24)


def test_a_clip_that_ends_early_is_told_and_leaves_nothing(ask, client, tmp_path, studio):
    data = write(tmp_path / "a.mp4", frames=60, size=(64, 48)).read_bytes()
    cut = client.put("/api/upload", params={"name": "cut.mp4"}, content=data[: len(data) // 2])
    assert cut.status_code == 400
    assert cut.json()["error"].startswith("cut.mp4")
