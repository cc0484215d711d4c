"""Counts of files: charged first, written whole, and verified; what is altered is refused."""

import contextlib
import csv
import json
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from counted import Reader, count_folder, film
from dpose.account import Budget, charges, set_budget, spending
from dpose.cli import main
from dpose.files import folder_beside
from dpose.measure import NUMBERS, SEAL, STATEMENT, TABLE, counter
from dpose.measure.config import CountConfig
from dpose.measure.counter import CountRequest, Footage, count_footage, file_footage
from dpose.measure.folder import verify_folder
from dpose.measure.plan import Schedule, bind_count
from dpose.measure.sources import open_footage
from dpose.measure.statement import OWN
from dpose.measure.subjects import Sighting, read_sightings
from dpose.pose.postures import LYING
from dpose.privacy.marks import marks_of
from dpose.privacy.neighbours import ACCOUNT_FORMS, Neighbours
from dpose.privacy.statement import Kind
from dpose.release.counting import UNLINKED
from dpose.runs.annotate import Predictor
from helpers import clips
from refusals import refused


def config_of(queries="occupancy,entries", **given):
    return CountConfig.of(
        queries=queries,
        **{"window": "4s", "epsilon": "1", "rate": "1", "chunk": "2s", "visible": "1s", "times": 2, **given},
    )


def footage(counts=(1, 2, 1, 0, 3, 1), name="a film", begin=0):
    def frames():
        yield from film(counts, start=begin)

    return Footage(name, name, marks_of([name]), Fraction(begin), Fraction(begin + len(counts)), frames)


def counted(tmp_path, *sources, name="counts", **given):
    config = given.pop("config", config_of())
    out = tmp_path / name
    return out, count_footage(sources or [footage()], CountRequest(config, **given), out, Reader())


def test_a_count_verifies(tmp_path):
    out, statement = counted(tmp_path, day="2026-11-27")
    lines = "\n".join(verify_folder(out))
    assert "epsilon 1" in lines
    assert "2 of 2 windows" in lines
    assert statement.kind is Kind.PRIVATE
    assert statement.epsilon == 1
    assert sorted(path.name for path in out.iterdir()) == sorted([NUMBERS, TABLE, "counts.png", STATEMENT, SEAL])
    rows = list(csv.DictReader((out / TABLE).open()))
    assert [row["begin"] for row in rows if row["query"] == "entries"] == ["2026-11-27T00:00:00", "2026-11-27T00:00:04"]
    assert all(float(row["low"]) <= float(row["high"]) for row in rows)


def test_one_window_is_told_of_in_the_singular(tmp_path):
    out, _ = counted(tmp_path, footage((1, 2)))
    assert "1 of 1 window is shown, each once" in "\n".join(verify_folder(out))


def test_a_short_film_is_warned_of_before_it_is_charged_and_its_widest_interval_told(tmp_path):
    """Both follow from what is public: the schedule, and the numbers that were released."""
    lines, config = [], config_of(window="1h")
    count_footage(
        [footage()],
        CountRequest(config),
        tmp_path / "counts",
        Reader(),
        tell=lambda line: lines.append((len(charges()), line)),
    )
    before = [line for charged, line in lines if not charged]
    assert [line.partition(" are filmed")[0] for line in before] == [
        "Warning: occupancy: 6 of 3600 s",
        "Warning: entries: 6 of 3600 s",
    ]
    rows = list(csv.DictReader((tmp_path / "counts" / TABLE).open()))
    assert [line for charged, line in lines if charged] == [
        f"{row['query']}: the widest interval is {row['low']} to {row['high']} {row['unit']}" for row in rows
    ]


def test_a_place_that_cannot_be_written_costs_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    with refused("output-below-file", where="file/counts"):
        counted(tmp_path, name="file/counts")
    assert not charges()


def test_the_calendars_last_day_ends(tmp_path):
    out, _ = counted(tmp_path, footage(begin=86_394), day="9999-12-31")
    assert [row["end"] for row in csv.DictReader((out / TABLE).open())][-1] == "24:00:00"
    verify_folder(out)


def test_footage_whose_frames_the_account_does_not_know_says_so(tmp_path):
    out, statement = counted(tmp_path, replace(footage(), linked=False))
    assert UNLINKED in statement.caveats
    assert UNLINKED not in counted(tmp_path, footage(name="b"), name="b")[1].caveats
    verify_folder(out)


def test_numbers_are_near_where_noise_is_small(tmp_path):
    """At an epsilon that protects no one: occupancy is the mean of what was found."""
    out, _ = counted(tmp_path, config=config_of("occupancy", epsilon="1000"), seed=1)
    values = [w["values"][0]["value"] for w in json.loads((out / NUMBERS).read_text())["windows"]]
    assert values == pytest.approx([1.0, 2.0], abs=0.3)
    assert "nothing is guaranteed" in "\n".join(verify_folder(out))


def test_a_model_of_actions_takes_the_place_of_the_rules(tmp_path):
    """What it says of a pose is counted, from the pose alone; one that breaks leaves a chunk that counts as empty."""
    seen = []

    def model(pose, skeleton):
        seen.append((pose.keypoints.shape, len(skeleton)))
        return LYING

    def broken(pose, skeleton):
        raise ValueError("no such action")

    sums = []
    for name, posture in (("rules", None), ("model", model), ("broken", broken)):
        given = {} if posture is None else {"posture": posture}
        out, statement = counted(
            tmp_path, config=config_of("lying", epsilon="1000"), seed=1, name=name, again=True, **given
        )
        assert OWN in statement.conditional_on  # `Reader` is no finder of dpose's
        assert "nothing is guaranteed" in "\n".join(verify_folder(out))
        sums.append(sum(w["values"][0]["value"] for w in json.loads((out / NUMBERS).read_text())["windows"]))
    assert seen == [((17, 2), 17)] * 8
    assert sums == pytest.approx([0, 8, 0], abs=1)


def test_nothing_is_counted_before_it_is_charged(tmp_path):
    """The charge stands when the first frame is asked for, with the events of the plan."""
    seen = []

    def frames():
        seen.extend(charges())
        yield from film([1, 2])

    source = Footage("a film", "a film", marks_of(["a film"]), Fraction(0), Fraction(2), frames)
    _, statement = counted(tmp_path, source)
    (entry,) = seen
    assert (entry.what, entry.unit, entry.within) == ("count", "stay", "stays:2/seconds:1")
    assert entry.events == statement.events
    assert charges()[0].state == "committed"


def test_the_account_knows_what_stays_cost(tmp_path):
    counted(tmp_path)
    found = {
        word: spending(Neighbours.parse(word, ACCOUNT_FORMS), 1e-5, of=marks_of(["a film"])).epsilon
        for word in ("stays:2/seconds:1", "stays:1/seconds:1", "stays:4/seconds:1", "stays:2/seconds:5/2", "subject")
    }
    assert list(found.values()) == pytest.approx([1, 1, 2, 3, float("inf")], rel=1e-3)


class TestKnownSubjects:
    """A subject who is seen in all of a film is counted in one chunk of it."""

    @pytest.fixture
    def config(self):
        return config_of("occupancy", epsilon="1000", subject_chunks=1)

    def test_the_rest_is_dropped(self, tmp_path, config):
        labels = (Sighting("ann", 0, Fraction(0), Fraction(8)), Sighting("bob", 0, Fraction(6), Fraction(6)))
        out, statement = counted(tmp_path, footage((5,) * 8), config=config, sightings=labels, seed=1)
        assert statement.unit == statement.neighbours.unit == "subject"
        assert "each subject" in statement.neighbours.describe()
        assert "1 chunks" in " ".join(statement.conditional_on)
        # of two windows of four frames one chunk of two frames is left, with five people
        values = [w["values"][0]["value"] for w in json.loads((out / NUMBERS).read_text())["windows"]]
        assert sorted(values) == pytest.approx([0, 2.5], abs=0.3)
        assert verify_folder(out)

    def test_the_account_knows_stays(self, tmp_path, config):
        """Three chunks for a stay, two stays: six times what a subject costs, whatever is said of subjects."""
        labels = (Sighting("ann", 0, Fraction(0), Fraction(1)),)
        counted(tmp_path, footage((5,) * 40), config=config, sightings=labels)
        stays = Neighbours.parse("stays:2/seconds:1", ACCOUNT_FORMS)
        assert spending(stays, 1e-5, of=marks_of(["a film"])).epsilon == pytest.approx(4000)
        subject = Neighbours.parse("subject", ACCOUNT_FORMS)
        assert spending(subject, 1e-5, of=marks_of(["a film"])).epsilon == float("inf")

    def test_labels_and_their_number_belong_together(self, tmp_path, config):
        with refused("subjects-missing"):
            counted(tmp_path, config=config)
        with refused("subjects-missing"):
            counted(tmp_path, sightings=(Sighting("ann", 0, Fraction(0), Fraction(1)),))

    @pytest.mark.parametrize(
        ("text", "code", "where"),
        [
            ("name,when\nann,0\n", "columns-differ", "other columns"),
            ("subject,source,begin,end\nann,b.mp4,0,1\n", "source-unknown", "line 2"),
            ("subject,source,begin,end\nann,a.mp4,0,1\n,a.mp4,0,1\n", "name-missing", "line 3"),
            ("subject,source,begin,end\nann,a.mp4,2,1\n", "times-out-of-range", "line 2"),
            ("subject,source,begin,end\nann,a.mp4,2,25h\n", "times-out-of-range", "line 2"),
            ("subject,source,begin,end\nann,a.mp4,2\n", "times-out-of-range", "line 2"),
        ],
    )
    def test_labels_that_say_nothing(self, tmp_path, text, code, where):
        file = tmp_path / "seen.csv"
        file.write_text(text)
        with refused(f"subjects-{code}", where=where):
            read_sightings(file, ["/films/a.mp4"])
        with refused("subjects-unreadable"):
            read_sightings(tmp_path / "none.csv", [])

    def test_labels_as_they_are_written(self, tmp_path):
        file = tmp_path / "seen.csv"
        file.write_text("subject,source,begin,end\nann,a.mp4,8h,8.5h\nann ,a.mp4,9h,9.5h\n")
        assert read_sightings(file, ["/films/b.mp4", "/films/a.mp4"]) == (
            Sighting("ann", 1, Fraction(28_800), Fraction(30_600)),
            Sighting("ann", 1, Fraction(32_400), Fraction(34_200)),  # who is named with a blank behind is nobody else
        )

    def test_labels_of_another_time(self, tmp_path, config):
        with refused("subjects-outside-footage", where="--subjects"):
            counted(tmp_path, config=config, sightings=(Sighting("ann", 0, Fraction(9), Fraction(10)),))
        assert charges() == []


def test_a_second_count_is_refused(tmp_path):
    counted(tmp_path)
    with refused("counted-before", where="epsilon 2"):
        counted(tmp_path, name="again")
    with refused("output-exists"):
        counted(tmp_path, again=True)
    counted(tmp_path, name="again", again=True)
    assert spending(Neighbours.of_stays(2, Fraction(1)), 1e-5, of=marks_of(["a film"])).chosen == 2


def test_a_count_that_was_stopped_once_its_folder_stood_counts(tmp_path, monkeypatch):
    """Somebody may have seen it, though its charge was never committed."""
    with monkeypatch.context() as stopping:

        @contextlib.contextmanager
        def stopped(path):
            with folder_beside(path) as folder:
                yield folder
            raise KeyboardInterrupt

        stopping.setattr(counter, "folder_beside", stopped)
        with pytest.raises(KeyboardInterrupt):
            counted(tmp_path)
    assert (tmp_path / "counts" / NUMBERS).exists()
    assert charges()[0].state == "failed"
    with refused("counted-before", where="epsilon 2"):
        counted(tmp_path, name="again")


def test_a_statement_says_that_other_counts_are_not_in_it(tmp_path):
    _, statement = counted(tmp_path)
    assert any(line.startswith("other counts of the same footage") for line in statement.side_channels)


def test_a_budget_that_does_not_fit_the_day_is_refused_before_it_begins(tmp_path):
    set_budget(Budget(0.5, 1e-5, "a film", marks_of(["a film"]), Neighbours.of_stays(2, Fraction(1)), ""))

    def frames():
        raise AssertionError("a frame was read")
        yield

    source = Footage("a film", "a film", marks_of(["a film"]), Fraction(0), Fraction(2), frames)
    with refused("budget-exceeded"):
        counted(tmp_path, source)
    assert not (tmp_path / "counts").exists()


def test_nothing_is_left_of_a_count_that_fails(tmp_path):
    def frames():
        yield from film([1, 2])
        raise RuntimeError("the disk is gone")

    source = Footage("a film", "a film", marks_of(["a film"]), Fraction(0), Fraction(9), frames)
    with pytest.raises(RuntimeError):
        counted(tmp_path, source)
    assert list(tmp_path.iterdir()) == []
    assert charges()[0].state == "failed"
    counted(tmp_path)
    assert spending(Neighbours.of_stays(2, Fraction(1)), 1e-5, of=marks_of(["a film"])).chosen == 2


def test_a_source_is_named_once(tmp_path):
    with refused("source-named-twice"):
        counted(tmp_path, footage(), footage())


class TestAltered:
    @pytest.fixture(scope="class")
    def made(self, tmp_path_factory):
        folder = tmp_path_factory.mktemp("made") / "counts"
        plan = bind_count(config_of("entries,falls", totals=True), Schedule("day", 2, Fraction(0), Fraction(12)))
        count_folder(folder, plan)
        return folder

    @pytest.fixture
    def out(self, made, tmp_path):
        return Path(shutil.copytree(made, tmp_path / "counts"))

    def change(self, file, change):
        values = json.loads(file.read_text())
        change(values)
        file.write_text(json.dumps(values))

    def test_as_it_is(self, out):
        assert verify_folder(out)

    @pytest.mark.parametrize("name", [NUMBERS, TABLE, "counts.png"])
    def test_a_byte(self, out, name):
        data = (out / name).read_bytes()
        (out / name).write_bytes(data.replace(b"\n", b"\n\n", 1))
        with refused(("seal-file-altered", "count-malformed"), where=name):
            verify_folder(out)

    @pytest.mark.parametrize("name", [NUMBERS, TABLE, "counts.png", STATEMENT, SEAL])
    def test_a_file_is_missing(self, out, name):
        (out / name).unlink()
        with refused(("count-unreadable", "file-unreadable")):
            verify_folder(out)

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            (lambda s: s.update(epsilon="0.5"), "record-value-differs"),
            (lambda s: s["release"]["count"].update(times=1), "record-value-differs"),
            (lambda s: s["release"]["count"].update(visible="1/2"), "visible-below-frame"),
            (lambda s: s["release"]["schedule"].update(sources=1), "record-value-differs"),
            (lambda s: s["neighbours"].update(m=9), "record-value-differs"),
            (lambda s: s["events"][0].update(scale="9999"), "record-value-differs"),
            (lambda s: s["caveats"].pop(0), "record-value-differs"),
            (lambda s: s["side_channels"].pop(), "record-value-differs"),
            (lambda s: s.update(odometer={"releases": "1"}), "record-value-differs"),
            (lambda s: s["conditional_on"].pop(), "record-value-differs"),
            (lambda s: s["release"].pop("chunks"), "statement-not-of-count"),
            (lambda s: s.update(seal="0" * 64), "seal-of-other-statement"),
            (lambda s: s["software"].update(dpose="9"), "seal-value-differs"),
        ],
    )
    def test_the_statement(self, out, change, code):
        self.change(out / STATEMENT, change)
        with refused(code):
            verify_folder(out)

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            (lambda n: n["windows"].append(n["windows"][0]), "windows-out-of-order"),
            (lambda n: n["windows"][0]["noised"]["entries"][0].__setitem__(0, 10**6), "seal-file-altered"),
            (lambda n: n["windows"][0].update(window=17), "count-malformed"),
            (lambda n: n["windows"][0]["noised"].pop("falls"), "count-malformed"),
            (lambda n: n.update(format="x"), "count-malformed"),
        ],
    )
    def test_the_numbers(self, out, change, code):
        self.change(out / NUMBERS, change)
        with refused(code):
            verify_folder(out)

    def test_a_genuine_one_beside_does_not_stand_for_it(self, made, out, capsys):
        """Neither in a folder of its own in it, nor in place of its numbers, nor beside a model."""
        days = out.parent
        shutil.copytree(made, days / "genuine")
        assert main(["verify", str(days)]) == 0
        printed = capsys.readouterr().out
        assert printed.count("the seal holds") == 2
        assert "genuine: the day costs" in printed
        shutil.copytree(made, out / "original")
        assert main(["verify", str(out)]) == 0
        (out / TABLE).write_bytes((out / TABLE).read_bytes() + b"1")
        assert main(["verify", str(out)]) == 2
        assert "[seal-file-altered]" in capsys.readouterr().err
        assert main(["verify", str(days)]) == 2  # in a day is another one, which nobody would have looked at
        assert "[count-beside-others]" in capsys.readouterr().err
        (out / NUMBERS).unlink()
        for name in (STATEMENT, SEAL, TABLE, "counts.png"):
            assert main(["verify", str(out)]) == 2
            code = "count-unreadable" if (out / SEAL).exists() else "count-beside-others"
            assert f"[{code}]" in capsys.readouterr().err
            (out / name).unlink()
        assert main(["verify", str(out)]) == 0  # a folder with a whole count in it, and nothing else
        (out / "model.safetensors").touch()
        for folder in (out, days):
            assert main(["verify", str(folder)]) == 2
            assert "[count-beside-others]" in capsys.readouterr().err


class TestCommand:
    @pytest.fixture(autouse=True)
    def reader(self, monkeypatch):
        monkeypatch.setattr("dpose.runs.annotate.bundled_predictor", lambda flip_test: Predictor(Reader(), "reader"))

    def run(self, *arguments):
        return main(["count", *map(str, arguments)])

    BASE = ("--query", "occupancy", "--window", "2s", "--epsilon", "1", "--visible", "1s", "--times", "1")

    def test_files_and_folders(self, tmp_path, capsys):
        for name in ("a", "b"):
            clips.write(tmp_path / f"{name}.mp4", frames=18 if name == "a" else 27)
        out = tmp_path / "counts"
        assert self.run(tmp_path, *self.BASE, "--start", "8h", "--day", "2026-11-27", "--out", out) == 0
        assert main(["verify", str(out)]) == 0
        printed = capsys.readouterr().out
        assert "stay of at most 1 seconds" in " ".join(printed.split())
        assert printed.startswith("Warning: occupancy: a window's noise is within")
        assert "\noccupancy: the widest interval is 0 to " in printed
        record = json.loads((out / STATEMENT).read_text())["release"]["schedule"]
        assert (record["sources"], record["begin"], record["end"]) == (2, "28800", "28804.5")
        assert main(["account"]) == 0
        assert "stays:1/seconds:1" in " ".join(capsys.readouterr().out.split())
        # one of them again, wherever it lies and whatever it is called
        (tmp_path / "a.mp4").rename(tmp_path / "c.mp4")
        assert self.run(tmp_path / "c.mp4", *self.BASE, "--out", tmp_path / "again") == 2
        assert "[counted-before]" in capsys.readouterr().err

    def test_known_subjects(self, tmp_path, capsys):
        clips.write(tmp_path / "a.mp4")
        (tmp_path / "seen.csv").write_text("subject,source,begin,end\nann,a.mp4,0,1\n")
        given = ("--protect", "subject:2", "--subjects", tmp_path / "seen.csv", "--out", tmp_path / "counts")
        assert self.run(tmp_path / "a.mp4", *self.BASE, *given) == 0
        assert "each single subject" in " ".join(capsys.readouterr().out.split())
        assert main(["verify", str(tmp_path / "counts")]) == 0
        assert "each subject" in " ".join(capsys.readouterr().out.split())

    def test_explain_reads_nothing(self, capsys):
        assert self.run("no/such/file", *self.BASE, "--explain") == 0
        printed = capsys.readouterr().out
        assert "right within 2 people" in printed
        assert charges() == []

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            (("none.mp4",), "file-missing"),
            ((".",), "inputs-missing"),
            (("synthetic:dragons",), "data-unknown"),
            (("synthetic:films:0",), "films-out-of-range"),
            ((), "command-incomplete"),
            (("a.mp4", "--protect", "face"), "protect-unknown"),
            (("a.mp4", "--protect", "subject"), "protect-unknown"),
            (("a.mp4", "--protect", "subject:x"), "count-not-whole"),
            (("a.mp4", "--protect", "subject:2"), "subjects-missing"),
            (("a.mp4", "--start", "86400s"), "schedule-leaves-day"),
            (("a.mp4", "--chunk", "4s"), "chunk-not-of-window"),
            (("a.mp4", "--visible", "0.1s"), "visible-below-frame"),
            (("a.mp4", "--set", "most.falls=2"), "query-not-counted"),
        ],
    )
    def test_one_line_for_a_mistake(self, arguments, code, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        if "a.mp4" in arguments:
            clips.write(tmp_path / "a.mp4")
        assert self.run(*self.BASE, *arguments, "--out", "counts") == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert f"[{code}]" in line
        assert not (tmp_path / "counts").exists()


def test_a_rendered_day():
    (day,) = open_footage(["synthetic:films:1"], "0s")
    frames = day.frames()
    times = [next(frames).time for _ in range(3)]
    assert times == [0, Fraction(1, 2), 1]
    assert day.end == 86_400


def test_a_file_that_changes_is_refused(tmp_path):
    path = clips.write(tmp_path / "a.mp4")
    one = file_footage(path, Fraction(0))
    clips.write(path, frames=7)
    with refused("file-changed"):
        next(iter(one.frames()))
