"""The demo, end to end on a few pictures: a run, a table, a statement, a report, and a run that verifies."""

import json
import os

import pytest
from rich.console import Console

import dpose_scene.data as synthetic_module
from dpose.cli import main
from dpose.runs.demo import DELTA, EPSILON, NEXT, DemoRecipe, run_demo
from dpose.runs.verify import verify_run
from refusals import refused
from small_nano import PREAMBLE, small_nano  # noqa: F401
from zygote import run as run_program

SMALL = {"train": 40, "val": 8, "test": 8, "public": 8}
RECIPE = DemoRecipe(epochs=1, batch_size=20)


@pytest.fixture(autouse=True)
def _small(monkeypatch, tmp_path):
    monkeypatch.setattr(synthetic_module, "SPLITS", SMALL)
    monkeypatch.chdir(tmp_path)


def test_the_demo_runs_and_adds_up(tmp_path):
    with (tmp_path / "printed.txt").open("w") as file:
        run = run_demo(None, None, Console(file=file, width=60), RECIPE)
    printed = (tmp_path / "printed.txt").read_text()
    assert run.folder.as_posix() == "runs/demo"
    for words in (
        "public weights",
        "epsilon 1",
        "gained",
        "ward:test",
        "Wrist",
        "epsilon",
        "dpose verify runs/demo",
        "runs/demo/report.html",
        "Try next:  dpose predict",
    ):
        assert words in printed.replace("\n", " ")
    found = verify_run(run.folder)
    assert found.statement.kind == "private"
    assert found.spent <= found.statement.epsilon <= EPSILON
    assert found.statement.delta == DELTA
    # the test split is read once, and the statement says so
    (query,) = found.statement.queries
    assert query.data.startswith("synthetic:ward:test")
    (evaluation,) = (json.loads(p.read_text()) for p in (run.folder / "evaluations").iterdir())
    assert [other["name"] for other in evaluation["beside"]] == ["public weights"]
    report = (run.folder / "report.html").read_text().lower()
    for words in ("public weights", "synthetic:ward:test", "data:image/"):
        assert words in report
    lines = [line for line in printed.splitlines() if not line.startswith(("Look at", "Check the", "The ", "Try next"))]
    assert max(map(len, lines)) <= 60
    assert "\x1b" not in printed


@pytest.mark.parametrize("command", NEXT)
def test_what_it_says_to_try_next_is_a_command(command, capsys):
    assert main([command.split()[1], "--help"]) == 0
    assert command.split()[1] in capsys.readouterr().out


@pytest.mark.slow
def test_a_seed_reproduces_it_and_says_so(tmp_path):
    runs = [run_demo(tmp_path / name, 4, Console(quiet=True), RECIPE) for name in "ab"]
    assert runs[0].statement.kind == "seeded"
    a, b = ((run.folder / "model.safetensors").read_bytes() for run in runs)
    assert a == b
    assert "NOTHING IS GUARANTEED" in (runs[0].folder / "README.md").read_text()


@pytest.mark.slow
def test_output_to_a_file_without_a_display(tmp_path):
    """As a newcomer's log file gets it: no colour codes, no bars drawn over and over, no empty lines in rows."""
    script = (
        "import dpose_scene.data as s, sys, dpose.runs.demo as d\n"
        f"s.SPLITS = {SMALL!r}\n"
        "d.DemoRecipe.__init__.__defaults__ = (1.0, 20, 3e-3, 0.9)\n"
        "from dpose.cli import main\n"
        "sys.exit(main(['demo', '--out', 'piped']))\n"
    )
    keep = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "TERM", "BROWSER")}
    done = run_program(PREAMBLE + script, cwd=tmp_path, env={**keep, "COLUMNS": "100"})
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout
    assert "\n\n\n" not in done.stdout
    assert (tmp_path / "piped" / "report.html").exists()


def test_it_never_writes_over_a_run(tmp_path):
    (tmp_path / "mine").mkdir()
    with refused("output-exists"):
        run_demo(tmp_path / "mine", None, Console(quiet=True))
    assert not list((tmp_path / "mine").iterdir())
