"""The demo, end to end on a few pictures: two models, a table, a statement, and a run that verifies."""

import pytest
from rich.console import Console

import dpose.pose.data.synthetic as synthetic_module
from dpose.errors import DposeError
from dpose.experiments.demo import DELTA, EPSILON, Recipe, run_demo
from dpose.privacy.ledger import verify_run


@pytest.fixture(autouse=True)
def _small(monkeypatch, tmp_path):
    monkeypatch.setattr(synthetic_module, "SPLITS", {"train": 40, "val": 8, "test": 8, "public": 8})
    monkeypatch.chdir(tmp_path)


def test_the_demo_runs_and_adds_up(tmp_path):
    with (tmp_path / "printed.txt").open("w") as file:
        run = run_demo(None, None, Console(file=file, width=60), Recipe(1, 1, 20))
    printed = (tmp_path / "printed.txt").read_text()
    assert run.folder.as_posix() == "runs/demo"
    for words in (
        "public model",
        "private, epsilon 8",
        "ward:test",
        "Wrist",
        "epsilon",
        "dpose verify runs/demo",
    ):
        assert words in printed.replace("\n", " ")
    assert run.statement.kind == "private"
    assert run.statement.epsilon <= EPSILON
    assert run.statement.delta == DELTA
    assert verify_run(run.folder).spent <= EPSILON
    # the test split is read once a model, and the statement of the private one says so
    (query,) = verify_run(run.folder).statement.queries
    assert query.data.startswith("synthetic:ward:test")
    assert max(map(len, printed.splitlines())) <= 60


def test_it_never_writes_over_a_run(tmp_path):
    (tmp_path / "mine-public").mkdir()
    with pytest.raises(DposeError, match="already exists"):
        run_demo(tmp_path / "mine", None, Console(quiet=True))
    assert not (tmp_path / "mine").exists()
