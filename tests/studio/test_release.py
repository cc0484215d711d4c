"""From an opened picture to a verified release, without a browser; and what stands beside a preview."""

import math
import shutil
import time
from fractions import Fraction

import numpy as np
import pytest

from clips import write
from dpose.account import Budget, charges, set_budget
from dpose.errors import DposeError
from dpose.media.images import MAX_PIXELS
from dpose.privacy.marks import marks_of
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.statement import PrivacyStatement
from dpose.release.embed import read_stamp
from dpose.release.verify import verify_release
from dpose.studio import jobs, worker
from dpose.studio import opened as opened_files
from dpose.studio import preview as previews
from dpose.studio.jobs import Child, release_memory
from dpose.studio.roots import Roots
from dpose.studio.settings import SEEN, drawn_box, up_the_ladder, wanted
from refusals import refused
from studios import photo
from tiers import rest_slow


@pytest.fixture
def near(monkeypatch):
    """Jobs in this process: a process of its own takes two seconds to begin, and one test has it."""

    real = jobs.Child

    class Near:
        def __new__(cls, work, task, cwd=None):
            # what is decoded for a request meanwhile would be told into the job's lines
            return super().__new__(cls) if work == "release" else real(work, task, cwd=cwd)

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
    assert config.neighbours == Neighbours.of_pixels(1024)
    box = wanted({"hide": "box", "box": [10, 10, 30, 50], "delta": "1e-5"}, 120, 160, clip=True).config
    assert box.neighbours == Neighbours.of_box(32, 64, seconds=Fraction(10))


def test_a_box_is_cut_to_the_picture():
    assert drawn_box([-5, 100, 30, 90], 120, 160) == (0, 100, 25, 120)
    for box in ([200, 0, 9, 9], [0, 0, 0, 5], [0, 0, math.nan, 5], "box", None, [1, 2, 3]):
        with refused(("box-missing", "box-outside-picture", "setting-not-whole")):
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
        Roots(),
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
    set_budget(Budget(3.0, 1e-5, "ward", marks, Neighbours.of_pixels(16)))
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


def send(client, path, name=None):
    return client.put("/api/upload", params={"name": name or path.name}, content=path.read_bytes()).json()


@pytest.fixture
def within(folder):
    """A folder of a test's own below the studio's; gone with the test."""
    made = folder / "within"
    made.mkdir()
    yield made
    shutil.rmtree(made)


# --- what was opened is what is released


@pytest.mark.parametrize("name", rest_slow(["shown.jpg", "predicted.jpg", "pixels.npy.jpg"]))
def test_an_upload_keeps_its_bytes_whatever_it_is_called(ask, client, tmp_path, studio, near, name):
    """What the studio writes has a place of its own: of these names it writes files itself."""
    data = photo(tmp_path / "a.jpg", 900, 1600, seed=len(name)).read_bytes()
    (tmp_path / name).write_bytes(data)
    opened = send(client, tmp_path / name)
    assert (opened["height"], opened["width"]) == (900, 1600)
    held = studio.files.get(opened["id"])
    (held.room / "predicted.jpg").write_bytes(client.get(opened["shown"]).content)
    assert client.get(opened["shown"]).content != data
    assert held.source.read_bytes() == data
    done = ended(ask, ask("release", file=opened["id"], epsilon="2"))
    assert done["state"] == "done"
    # the account knows the upload, not its preview
    other = send(client, tmp_path / name, "other.jpg")
    assert ask("standing", file=other["id"], epsilon="2")["before"] == 1
    assert charges()[-1].data == name


def test_a_file_that_was_exchanged_since_it_was_opened_is_not_released(ask, within, studio, near):
    clip, picture = write(within / "b.mp4", frames=9), photo(within / "a.png", seed=3)
    other, files = (photo(within / "other.png", seed=4), sorted(studio.out.iterdir()) if studio.out.exists() else [])
    opened = [ask("open_file", place=f"0/within/{one.name}") for one in (picture, clip)]
    picture.write_bytes(other.read_bytes())
    write(clip, frames=9, rate=7)
    for one in opened:
        failed = ended(ask, ask("release", file=one["id"], epsilon="8", delta="1e-5"))
        assert (failed["state"], failed["files"]) == ("failed", [])
        assert "was changed since it was opened" in failed["said"]
    # what is told of a file again is of the one that was opened, too
    assert "was changed since" in ask("history", file=opened[1]["id"])
    # with the whole folder: the settings were chosen on a picture that is no more
    failed = ended(ask, ask("release", file=opened[0]["id"], epsilon="8", folder="0/within"))
    assert "a.png: was changed since it was opened" in failed["said"]
    # nor by a link, within the folders, to another picture of it
    picture.unlink()
    picture.symlink_to(other)
    for folder in (None, "0/within"):
        failed = ended(ask, ask("release", file=opened[0]["id"], epsilon="8", folder=folder))
        assert "a.png: was changed since it was opened" in failed["said"]
    assert charges() == []
    assert (sorted(studio.out.iterdir()) if studio.out.exists() else []) == files


def exchanged_after(monkeypatch, exchange):
    """Exchange files when all are read and compared with the account, and before they are released."""
    from dpose.release import batch

    true = batch.skip_finished

    def skip_finished(*given, **named):
        found = true(*given, **named)
        exchange()
        return found

    monkeypatch.setattr(batch, "skip_finished", skip_finished)


def test_a_file_that_is_exchanged_while_its_release_begins_is_not_released(ask, within, folder, near, monkeypatch):
    picture, secret = photo(within / "a.png", seed=5), photo(within / "b.png", seed=6).read_bytes()
    opened = ask("open_file", place="0/within/a.png")
    exchanged_after(monkeypatch, lambda: picture.write_bytes(secret))
    failed = ended(ask, ask("release", file=opened["id"], epsilon="2"))
    assert "was changed while it was to be released" in failed["said"]
    assert charges() == []


def test_a_file_that_becomes_readable_while_its_release_begins_is_not_released(ask, within, near, monkeypatch):
    """It has no digest that its release could be held to, whatever is there by then."""
    photo(within / "a.png", seed=5)
    late, secret = within / "b.png", photo(within / "c.png", seed=6)
    content = secret.read_bytes()
    late.write_bytes(content[:99])
    secret.unlink()
    opened = ask("open_file", place="0/within/a.png")
    exchanged_after(monkeypatch, lambda: late.write_bytes(content))
    found = ended(ask, ask("release", file=opened["id"], epsilon="2", folder="0/within"))
    assert found["state"] == "failed"
    assert "b.png: was changed" in found["said"]
    assert any(found["said"].startswith(line) for line in found["lines"])  # other reasons may come after it
    assert found["files"] == ["000001.png", "000001.npz"] or len(found["files"]) == 2
    assert len(charges()) == 1


# --- folders


def test_a_folder_is_released_without_what_leads_out_of_it(ask, client, within, folder, tmp_path, near):
    secret = photo(tmp_path / "secret.png", seed=8)
    photo(within / "a.png", seed=5)
    (within / "inner").mkdir()
    photo(within / "inner" / "b.png", seed=6)
    (within / "inner" / "link.png").symlink_to(secret)
    (within / "known.png").symlink_to(folder / "ward.png")  # within the folders
    (within / "broken.png").write_bytes(b"none")
    opened = ask("open_file", place="0/within/a.png")
    found = ended(ask, ask("release", file=opened["id"], epsilon="2", folder="0/within"))
    assert any("link.png lies outside the folders" in line for line in found["lines"])
    assert len(found["files"]) == 6
    assert found["state"] == "failed"  # and says which could not be read; the others are released
    assert "broken.png: not a readable picture" in found["said"]
    assert len(charges()) == 3
    assert ask("standing", file=send(client, secret)["id"], epsilon="2")["before"] == 0


@pytest.mark.parametrize("early", [True, False])
def test_a_link_that_comes_since_leads_nowhere(ask, within, tmp_path, near, monkeypatch, early):
    """A file becomes a link out: after it was opened, or after it was read and before it is released."""
    secret, picture = photo(tmp_path / "secret.png", seed=8), photo(within / "a.png", seed=8)
    opened = ask("open_file", place="0/within/a.png")

    def exchange():
        picture.unlink()
        picture.symlink_to(secret)  # of the same bytes: the digest tells nothing

    if early:
        exchange()
    else:
        exchanged_after(monkeypatch, exchange)
    failed = ended(ask, ask("release", file=opened["id"], epsilon="2"))
    assert failed["state"] == "failed"
    assert "is gone, or lies outside the folders" in failed["said"]
    assert charges() == []


def test_no_worker_reads_outside_the_roots(folder, tmp_path):
    secret = photo(tmp_path / "secret.png", seed=8)
    (tmp_path / "room").mkdir()
    task = {"source": str(secret), "roots": [str(folder)], "digest": "", "room": str(tmp_path / "room")}
    for work in ("decode", "marks", "predict", "release"):
        settings = {"kind": "picture", "height": 120, "width": 160, "settings": {}, "out": str(tmp_path / "out")}
        with refused("file-gone", where="folders"):
            worker.WORK[work](task | settings)
    assert list((tmp_path / "room").iterdir()) == []


def test_no_worker_tells_of_other_bytes_than_were_opened(within):
    task = {
        "source": str(photo(within / "a.png")),
        "roots": [str(within)],
        "digest": "0" * 64,
        "run": "none",
        "out": "",
    }
    for work in ("marks", "predict"):
        with refused("file-changed"):
            worker.WORK[work](task)


# --- jobs


def test_a_file_stays_open_until_its_last_job_is_done(ask, client, tmp_path, near, monkeypatch, studio):
    """Three jobs of one upload; when the first has ended, as many files are opened as are kept."""
    first, opens = jobs.Child.lines, []

    def lines(self):
        yield from first(self)
        while not opens:
            time.sleep(0.01)

    monkeypatch.setattr(jobs.Child, "lines", lines)
    opened = send(client, photo(tmp_path / "a.png", seed=9))
    three = [ask("release", file=opened["id"], epsilon=epsilon, again=True) for epsilon in ("2", "3", "4")]
    monkeypatch.setattr(opened_files, "KEPT", 1)
    opens.append(1)
    assert ended(ask, three[0])["state"] == "done"
    opens.clear()
    send(client, photo(tmp_path / "b.png", seed=10))
    send(client, photo(tmp_path / "c.png", seed=11))
    opens.append(1)
    assert [ended(ask, job)["state"] for job in three] == ["done"] * 3
    # and goes with the next one that is opened
    room = studio.files.get(opened["id"]).room
    send(client, photo(tmp_path / "b.png", seed=10))
    send(client, photo(tmp_path / "c.png", seed=11))
    assert not room.exists()
    with refused("file-not-open"):
        studio.files.hold(opened["id"], busy=True)


def test_a_release_has_a_limit_of_memory_and_says_when_it_is_hit(ask, opened, studio, within, monkeypatch):
    picture = photo(within / "large.png", 3000, 4000)
    task = {"source": str(picture), "roots": [str(within)], "kind": "picture", "height": 3000, "width": 4000}
    task |= {"digest": "", "settings": {"block": 1}, "out": str(within / "out"), "memory": 120 << 20}
    *_, last = Child("release", task).lines()
    assert "took more than the 120 MB of memory that its size allows" in last["error"]
    assert "\n" not in last["error"]
    tasks = []
    monkeypatch.setattr(
        studio.jobs, "add", lambda name, task, *_: tasks.append(task) or jobs.ReleaseJob("a", "a", task)
    )
    for folder in (None, "0/"):
        ask("release", file=opened["id"], epsilon="2", folder=folder)
        studio.files.hold(opened["id"], busy=False)
    sizes = [release_memory(pixels, clip=False) for pixels in (120 * 160, MAX_PIXELS)]
    assert [one["memory"] for one in tasks] == sizes


def test_the_limit_of_memory_is_well_above_what_a_release_takes_and_below_what_there_is(monkeypatch):
    machine = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1 << 28}
    monkeypatch.setattr("dpose.studio.jobs.os.sysconf", machine.get)
    monkeypatch.setattr("dpose.studio.jobs.os.cpu_count", lambda: 16)
    assert release_memory(MAX_PIXELS, clip=False) == (3 << 30) + 250 * MAX_PIXELS
    assert release_memory(10**6, clip=True) == (3 << 30) + (1000 + 16 * 20) * 10**6
    # measured, blocks of one pixel: below 100 bytes for each, beside 0.2 GB
    assert release_memory(MAX_PIXELS, clip=False) > 2 * (MAX_PIXELS * 100 + (200 << 20))
    machine["SC_PHYS_PAGES"] = 1 << 20
    assert release_memory(MAX_PIXELS, clip=False) == 3 << 30


def test_a_folder_is_released_with_the_settings_of_a_picture_in_it(ask, client, opened, within, tmp_path):
    """What was opened elsewhere is no preview of it, and a file under a folder's name was never opened."""
    photo(within / "a.png")
    sent = send(client, photo(tmp_path / "a.png"))
    clip = ask("open_file", place=f"0/within/{write(within / 'b.mp4').name}")
    for file, folder in ((opened, "0/within"), (opened, "0/within/a.png"), (sent, "0/"), (clip, "0/within")):
        found = ask("release", file=file["id"], epsilon="2", delta="1e-5", folder=folder)
        assert "settings of a picture in it" in found


# --- what pages show


def test_a_preview_is_another_one_each_time(ask, opened):
    """Its noise is thrown away and drawn anew: noise that is the same each time could be taken away from it."""
    two = [ask("preview", file=opened["id"], epsilon="2", block=8, restore="none")["picture"] for _ in range(2)]
    assert two[0] != two[1]


def test_what_a_job_wrote_is_served_and_nothing_else_of_the_folder(ask, client, opened, studio, near):
    first, second = (
        ended(ask, ask("release", file=opened["id"], epsilon=epsilon, again=True)) for epsilon in ("2", "3")
    )
    (studio.out / "000009.png").write_bytes(b"another's")
    for job in (first, second):
        for name, link in zip(job["files"], job["links"], strict=True):
            found = client.get(link)
            assert found.content == (studio.out / name).read_bytes()
            assert found.headers["content-disposition"].startswith("attachment")
        assert client.get(job["links"][0] + "&show").headers["content-disposition"].startswith("inline")
        assert client.get(job["links"][1] + "&show").headers["content-disposition"].startswith("attachment")
    for name in ("000009.png", *second["files"], "..%2f000009.png"):
        found = client.get(f"/written/{first['id']}/{name}")
        assert found.status_code in (400, 404)
        assert b"another's" not in found.content
    (studio.out / first["files"][0]).unlink()
    assert client.get(first["links"][0]).json()["code"] == "file-missing"


def test_a_release_that_was_altered_does_not_verify(ask, opened, studio, near):
    done = ended(ask, ask("release", file=opened["id"], epsilon="2", again=True))
    good = ask("verify_job", job=done["id"])
    assert good["holds"]
    assert len(good["lines"]) == 2
    archive = studio.out / done["files"][1]
    archive.write_bytes(archive.read_bytes()[:-20])
    found = ask("verify_job", job=done["id"])
    assert not found["holds"]
    assert len(found["lines"]) == 2
    assert str(studio.out) not in " ".join(found["lines"])


def test_only_what_is_finished_is_verified(ask, opened, studio):
    job = jobs.ReleaseJob("unfinished", "a.png", {}, state="running")
    studio.jobs._jobs[job.id] = job
    assert "is not finished" in ask("verify_job", job=job.id)
    del studio.jobs._jobs[job.id]


def test_a_worker_limits_itself_before_it_reads_anything(monkeypatch):
    """Memory that it may write to, and processor time; no core is left of a process that held a picture."""
    resource, calls = pytest.importorskip("resource"), []
    monkeypatch.setattr(resource, "setrlimit", lambda *call: calls.append(call))
    worker.limit(5 << 20, 7)
    core = (resource.RLIMIT_CORE, (0, 0))
    assert calls == [(resource.RLIMIT_DATA, (5 << 20, 5 << 20)), (resource.RLIMIT_CPU, (7, 7)), core]
    calls.clear()
    worker.limit(0, 0)
    assert calls == [core]


def test_a_model_is_tried_on_what_was_opened(ask, opened, client, tmp_path, studio, within, monkeypatch):
    """A worker is asked that holds the file to its digest and roots; what it draws lies where the studio writes."""
    tasks = []

    def answer(work, task, **limits):
        tasks.append((work, task, limits))
        return {"joints": [], "hashes": ["a", "b"]}

    monkeypatch.setattr("dpose.studio.jobs.answer", answer)
    (within / "config.json").touch()
    found = ask("predict", run="0/within", file=opened["id"], box=[-5, 1, 50, 60])
    ((work, task, limits),) = tasks
    held = studio.files.get(opened["id"])
    assert (work, task["run"], task["box"]) == ("predict", str(within), (0, 1, 45, 61))
    assert (task["source"], task["digest"]) == (str(held.source), held.facts["hashes"][0])
    assert task["roots"] == [str(root) for root in studio.roots.folders]
    assert limits == {"seconds": 180, "memory": 0}
    (held.room / "predicted.jpg").write_bytes(b"drawn")
    assert task["out"] == str(held.room / "predicted.jpg")
    assert client.get(found["picture"], headers={"x-dpose-studio": ""}).content == b"drawn"
    (held.room / "predicted.jpg").unlink()
    assert ask("predict", run="0/within", file=opened["id"])["joints"] == []
    assert tasks[-1][1]["box"] is None

    # of a clip the account's page asks for all digests, once; no model is tried on one
    clip = send(client, write(tmp_path / "a.mp4", frames=9))
    assert "is a clip" in ask("predict", run="0/within", file=clip["id"])
    del tasks[:]
    for _ in range(2):
        assert ask("history", file=clip["id"])["rows"] == []
    ((work, task, limits),) = tasks
    held = studio.files.get(clip["id"])
    assert (work, limits) == ("marks", {"seconds": 600})
    assert task == {"source": str(held.source), "roots": [str(held.source.parent)], "digest": held.facts["digest"]}
    assert held.facts["hashes"] == ["a", "b"]


def test_a_clips_marks_are_the_ones_it_is_released_under(tmp_path):
    for path in (write(tmp_path / "a.mp4", frames=9), photo(tmp_path / "a.png")):
        from dpose.files import file_digest

        task = {"source": str(path), "roots": [str(tmp_path)], "digest": file_digest(path)}
        hashes = worker.WORK["marks"](task)["hashes"]
        assert hashes[0] == file_digest(path)
        assert len(hashes) == (11 if path.suffix == ".mp4" else 2)
