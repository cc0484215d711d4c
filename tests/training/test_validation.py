"""Scores: every view once, the model left as it was; while training, of a public split or queries of a held-out one."""

import json

import pytest
import torch
from rich.console import Console

from dots import train
from dpose.account import EVALUATION, State, charges
from dpose.account.charges import known_set
from dpose.account.store import opened
from dpose.privacy.accounting import epsilon
from dpose.privacy.ledger import read_ledger
from dpose.privacy.marks import marks_of
from dpose.runs.verify import verify_run
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from dpose.training.validation import Validation, metric_of_views, moments
from small_nano import small_nano  # noqa: F401
from tiers import rest_slow

FAST = OptimizerConfig("adam", lr=0.3, schedule="constant", warmup=0.0)
PRIVATE = TrainingPlan(epsilon=8.0, delta=1e-4, steps=40, expected_batch_size=60, accountant="rdp", ema_decay=0.5)
PLAIN = TrainingPlan(method="non-private", steps=40, expected_batch_size=60, ema_decay=0.5)


def run(dots, out, plan, watch=None, **options):
    return train(
        dots.task,
        dots.task.build_model(),
        private=dots.data(240),
        plan=plan,
        out=out,
        validation_data=watch,
        optimizer=FAST,
        state_dir=out.parent / "state",
        console=Console(quiet=True),
        **options,
    )


def scores(folder):
    lines = [json.loads(line) for line in (folder / "log.jsonl").open()]
    return [line for line in lines if line["type"] == "score"]


@pytest.mark.parametrize("plan", rest_slow([PRIVATE, PLAIN]), ids=["private", "plain"])
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


@pytest.mark.parametrize("plan", rest_slow([PRIVATE, PLAIN]), ids=["private", "plain"])
def test_watching_changes_no_weight(dots, tmp_path, plan):
    watched = run(dots, tmp_path / "a", plan, Validation(dots.data(9, seed=9), "dots", public=True), seed=3)
    alone = run(dots, tmp_path / "b", plan, seed=3)
    assert torch.equal(watched.model.classify.weight, alone.model.classify.weight)


def test_held_out_private_data_are_a_query_that_the_ledger_and_the_statement_hold(dots, tmp_path):
    done = run(dots, tmp_path / "run", PRIVATE, Validation(dots.data(9, seed=9), "held-out dots", public=False))
    (query,) = done.statement.queries
    assert (query.data, query.covered) == ("held-out dots", False)
    assert "NOT covered by epsilon" in (tmp_path / "run" / "README.md").read_text()
    entries = read_ledger(tmp_path / "run" / "ledger.jsonl")
    assert [e.type for e in entries].index("query") < [e.type for e in entries].index("reserve")
    verify_run(tmp_path / "run", tmp_path / "state")


def test_the_account_of_held_out_private_data_has_a_charge_of_its_own(dots, tmp_path):
    """A query without noise is bounded by nothing."""
    seen = dots.data(9, seed=9)
    run(dots, tmp_path / "run", PRIVATE, Validation(seen, "held-out dots", public=False))
    entries = charges(tmp_path / "state")
    (scored,) = (entry for entry in entries if entry.what == EVALUATION)
    (trained,) = (entry for entry in entries if entry.what != EVALUATION)
    assert (scored.data, scored.events, scored.state) == ("held-out dots", (), State.COMMITTED)
    assert scored.ledger == ""
    marks = marks_of({h for i in range(9) for h in seen.content_hashes(i)})
    with opened(tmp_path / "state").transaction(write=False) as account:
        assert scored.stored.sets == {known_set(account, marks)}
        assert not scored.stored.sets & trained.stored.sets
    run(dots, tmp_path / "plain", PLAIN, Validation(seen, "held-out dots", public=True))
    assert len(charges(tmp_path / "state")) == 3


def test_public_data_are_no_query(dots, tmp_path):
    done = run(dots, tmp_path / "run", PRIVATE, Validation(dots.data(9, seed=9), "dots", public=True))
    assert done.statement.queries == ()


def test_moments_are_few_and_end_with_the_last():
    assert moments([5, 10, 12]) == [5, 10, 12]
    many = moments(list(range(3, 61, 3)))
    assert (len(many), many[-1]) == (10, 60)


def test_every_view_counts_once(dots, monkeypatch):
    data = dots.data(23)
    seen = []
    metric = type(dots.task.metric())
    real = metric.update
    monkeypatch.setattr(metric, "update", lambda self, o, t: seen.append(len(o)) or real(self, o, t))
    model = dots.task.build_model()
    model.train()
    result = metric_of_views(dots.task, model, data, microbatch_size=7)
    assert sum(seen) == sum(len(v) for v in data.views)
    assert model.training

    right = total = 0
    with torch.no_grad():
        for views in data.views:
            for view in views:
                inputs = torch.from_numpy(view.image).movedim(-1, 0)[None]
                right += int(model(inputs).argmax() == int(view.target["way"]))
                total += 1
    assert result.accuracy == right / total


def test_weights_that_changed_are_the_ones_scored(dots):
    data = dots.data(40)
    model = dots.task.build_model()
    with torch.no_grad():
        model.classify.weight.zero_()
        model.classify.bias.copy_(torch.tensor([1.0, 0, 0, 0]))
    share = sum(int(v.target["way"]) == 0 for views in data.views for v in views) / sum(map(len, data.views))
    assert metric_of_views(dots.task, model, data).accuracy == share
