"""What a corpus would take: the model by hand, files of figures that are none, and the command."""

import json

import pytest

from dpose.cli import main
from dpose.release.capacity import SHIPPED, Corpus, CostLine, Figures, beyond, forecast
from refusals import refused


def sample(mechanism, width, height, seconds, frames=0):
    return {
        **{"mechanism": mechanism, "width": width, "height": height, "frames": frames, "items": 4},
        **{"worker_seconds": seconds, "command_seconds": 0.01, "bytes_in": 100.0},
        **{"bytes_out": 500.0, "mib": 200.0},
    }


def engine(name, start, command, worker):
    return {
        **{"engine": name, "items": 9, "start_seconds": start, "command_seconds": command},
        **{"worker_seconds": worker, "command_mib": 100.0, "engine_mib": 50.0},
        **{"account_bytes": 2000.0, "list_bytes": 100.0},
    }


FIGURES = {
    **{"schema": 1, "command": "a command", "date": "2026-01-01", "processor": "abacus", "cores": 2},
    **{"load": 0.0, "dpose": "0", "seed": 7},
    "samples": [
        sample("pixelize", 10, 10, 0.2),
        sample("pixelize", 30, 10, 0.4),
        sample("release-video", 10, 10, 3.0, frames=2),
    ],
    "engines": [engine("local", 2.0, 0.05, 0.25)],
}


@pytest.fixture
def file(tmp_path):
    def written(**changes):
        path = tmp_path / "figures.json"
        path.write_text(json.dumps(FIGURES | changes))
        return path

    return written


def test_the_model_by_hand(file):
    figures = Figures.read(file())
    rows = {(r.engine, r.workers): r for r in forecast(figures, Corpus(1000, 20, 10), (1, 4, 64), price=3.6)}
    alone = rows["none", 1]
    assert alone.seconds == pytest.approx(1000 * (0.3 + 0.01))
    assert len([key for key in rows if key[0] == "none"]) == 1
    item = 0.3 + 0.05  # its work, and what the engine's workers had above the smallest picture's
    assert rows["local", 1].seconds == pytest.approx(2 + 1000 * item)
    assert rows["local", 4].seconds == pytest.approx(2 + 1000 * item / 4)
    assert rows["local", 64].seconds == pytest.approx(2 + 1000 * 0.05), "the command is the limit"
    assert [rows["local", n].limit for n in (1, 4, 64)] == ["workers", "workers", "command"]
    assert rows["local", 64].useful == 7
    assert rows["local", 4].price == pytest.approx(3.6 * 4 * rows["local", 4].seconds / 3600)
    assert rows["local", 4].account_bytes == pytest.approx(2100 * 1000)
    assert alone.written_bytes == pytest.approx(500 * 1000)


def test_what_was_measured_and_what_is_extrapolated(file):
    figures = Figures.read(file())
    assert beyond(figures, Corpus(1, 20, 10)) == ""
    assert "300 pixels" not in beyond(figures, Corpus(1, 10, 30))
    assert "more than any" in beyond(figures, Corpus(1, 40, 10))
    assert "fewer than any" in beyond(figures, Corpus(1, 9, 10))
    with refused("mechanism-not-measured", where="obfuscate"):
        list(forecast(figures, Corpus(1, 9, 9, "obfuscate"), (1,)))


def test_a_line_never_goes_below_nothing():
    falling = CostLine.through([(100, 4.0), (300, 2.0)])
    assert falling.slope == 0
    assert falling.base > 0
    steep = CostLine.through([(100, 1.0), (200, 4.0)])
    assert steep.base == 0
    assert steep.at(200) > 0
    assert CostLine.through([(100, 1.0)]).at(9) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"schema": 2}, "schema 2"),
        ({"samples": []}, "holds no figures"),
        ({"samples": [sample("pixelize", 10, 10, float("inf"))]}, "worker_seconds"),
        ({"engines": "many"}, "holds no figures"),
    ],
)
def test_files_that_are_no_figures_are_told_in_one_line(file, capsys, changes, named):
    assert main(["plan", "--corpus", "10", "--measured", str(file(**changes))]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert named in line
    assert "figures.json" in line


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--units, --corpus"),
        (["--units", "9", "--corpus", "9"], "give one of them"),
        (["--corpus", "9", "--size", "wide"], "--size"),
        (["--corpus", "9", "--size", "0x9"], "--size"),
        (["--corpus", "9", "--workers", "2,few"], "--workers"),
        (["--corpus", "9", "--workers", "0"], "--workers"),
        (["--corpus", "9", "--frames", "3"], "--frames"),
        (["--corpus", "9", "--mechanism", "blur"], "--mechanism"),
        (["--corpus", "9", "--epsilon", "3"], "--corpus"),
        (["--corpus", "0"], "--corpus"),
        (["--units", "9", "--price-hour", "3"], "--corpus"),
    ],
)
def test_mistakes_are_told_in_one_line(capsys, arguments, named):
    assert main(["plan", *arguments]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert named in line


def test_a_million_pictures_by_the_figures_that_come_with_dpose(capsys, monkeypatch):
    assert main(["plan", "--corpus", "1000000", "--size", "1920x1080", "--price-hour", "0.04"]) == 0
    told = capsys.readouterr().out
    assert "1,000,000 items, 1920x1080, pixelize" in told
    assert "ray" in told
    assert "extrapolated" in told
    assert "price" in told
    monkeypatch.setenv("COLUMNS", "80")
    for mechanism in ("pixelize", "release-video"):
        given = ["--corpus", "1000000", "--price-hour", "0.04", "--mechanism", mechanism]
        assert main(["plan", *given]) == 0
        lines = capsys.readouterr().out.splitlines()
        rows = [line for line in lines if line.startswith("│")]
        assert len(rows) == 9  # each takes one line
        assert max(map(len, rows)) <= 80
        assert "…" not in "".join(lines)
    asked = ["plan", "--corpus", "9", "--size", "640x480", "--mechanism", "release-video", "--json"]
    assert main([*asked, "--workers", "1,3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["engine"], row["workers"]) for row in found["forecasts"]] == [
        ("none", 1),
        *[(name, count) for name in ("local", "ray") for count in (1, 3)],
    ]
    assert all(row["price"] is None for row in found["forecasts"])
    assert found["measured"] == Figures.read().source
    assert set(json.loads(SHIPPED.read_text())) == set(FIGURES)
