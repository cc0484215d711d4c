"""Scores while training: post-processing of a public split, queries of a held-out one, and no effect on the weights."""

import json

import pytest
import torch
from rich.console import Console

from dots import train
from dpose.privacy.accounting import epsilon
from dpose.privacy.ledger import read_ledger
from dpose.privacy.verify import verify_run
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from dpose.training.validation import Validation, metric_of_views, moments

FAST = OptimizerConfig("adam", lr=0.3, schedule="constant", warmup=0.0)
PRIVATE = TrainingPlan(
    epsilon=8.0, delta=1e-4, steps=40, expected_batch_size=60, accountant="rdp", ema_decay=0.5
)
PLAIN = TrainingPlan(method="non-private", steps=40, expected_batch_size=60, ema_decay=0.5)


def run(dots, out, plan, watch=None, **options):
    return train(
        dots.task,
        dots.task.build_model(),
        private=dots.data(240),
        plan=plan,
        out=out,
        watch=watch,
        optimizer=FAST,
        state_dir=out.parent / "state",
        console=Console(quiet=True),
        **options,
    )


def scores(folder):
    lines = [json.loads(line) for line in (folder / "log.jsonl").open()]
    return [line for line in lines if line["type"] == "score"]


@pytest.mark.parametrize("plan", [PRIVATE, PLAIN], ids=["private", "plain"])
def test_the_scores_are_those_of_the_weights_that_would_be_released(dots, tmp_path, plan):
    seen = dots.data(50, seed=9)
    first = metric_of_views(dots.task, dots.task.build_model(), seen).to_dict()
    done = run(dots, tmp_path / "run", plan, Validation(seen, "dots, 50 units", public=True))
    lines = scores(tmp_path / "run")
    assert [line["step"] for line in lines] == [0, *range(4, 41, 4)]
    assert lines[0]["result"] == first
    assert lines[-1]["result"] == metric_of_views(dots.task, done.model, seen).to_dict()
    assert lines[-1]["result"]["accuracy"] > 0.9 > first["accuracy"]
    assert {line["data"] for line in lines} == {"dots, 50 units"}


def test_epsilon_stands_beside_each_score(dots, tmp_path):
    done = run(dots, tmp_path / "run", PRIVATE, Validation(dots.data(9, seed=9), "dots", public=True))
    (event,) = done.statement.events
    for line in scores(tmp_path / "run")[1:]:
        part = type(event)(event.q, event.sigma, line["step"], event.sensitivity)
        assert line["epsilon"] == pytest.approx(epsilon([part], 1e-4, "zero-out", "rdp"), rel=1e-9)
    assert scores(tmp_path / "run")[-1]["epsilon"] == pytest.approx(done.statement.epsilon)


def test_a_run_that_claims_nothing_spends_nothing(dots, tmp_path):
    run(dots, tmp_path / "run", PLAIN, Validation(dots.data(9, seed=9), "dots", public=True))
    assert {line["epsilon"] for line in scores(tmp_path / "run")} == {None}


@pytest.mark.parametrize("plan", [PRIVATE, PLAIN], ids=["private", "plain"])
def test_watching_changes_no_weight(dots, tmp_path, plan):
    watched = run(dots, tmp_path / "a", plan, Validation(dots.data(9, seed=9), "dots", public=True), seed=3)
    alone = run(dots, tmp_path / "b", plan, seed=3)
    assert torch.equal(watched.model.classify.weight, alone.model.classify.weight)


def test_held_out_private_data_are_a_query_that_the_ledger_and_the_statement_hold(dots, tmp_path):
    done = run(
        dots, tmp_path / "run", PRIVATE, Validation(dots.data(9, seed=9), "held-out dots", public=False)
    )
    (query,) = done.statement.queries
    assert (query.data, query.covered) == ("held-out dots", False)
    assert "NOT covered by epsilon" in (tmp_path / "run" / "README.md").read_text()
    entries = read_ledger(tmp_path / "run" / "ledger.jsonl")
    assert [e.type for e in entries].index("query") < [e.type for e in entries].index("reserve")
    verify_run(tmp_path / "run", tmp_path / "state")


def test_public_data_are_no_query(dots, tmp_path):
    done = run(dots, tmp_path / "run", PRIVATE, Validation(dots.data(9, seed=9), "dots", public=True))
    assert done.statement.queries == ()


def test_moments_are_few_and_end_with_the_last():
    assert moments([5, 10, 12]) == [5, 10, 12]
    many = moments(list(range(3, 61, 3)))
    assert (len(many), many[-1]) == (10, 60)
