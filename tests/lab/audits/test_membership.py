"""A membership audit: whole runs with whole accounts, and a report that says what was spent and what is not covered."""

import json
from types import SimpleNamespace

import pytest
from rich.console import Console

import dpose_scene.data as synthetic_module
from dpose.errors import DposeError
from dpose.privacy.accounting import epsilon
from dpose.privacy.ranges import upper
from dpose.privacy.statement import PrivacyStatement
from dpose.runs.config import RunConfig
from dpose.runs.verify import verify_run
from dpose_lab.audits.membership import MembershipAudit, audit_membership, epsilon_together
from refusals import refused
from small_nano import small_nano  # noqa: F401

UNITS, SHADOWS, TARGETS = 10, 4, 1
PLAN = {"noise_multiplier": 1.0, "delta": 1e-3, "steps": 2, "expected_batch_size": 5, "accountant": "rdp"}


def configured(seed=None, **changes):
    values = {
        "data": {"private": "synthetic:ward", "limit": UNITS, "validation_data": "none"},
        "model": {"preset": "nano"},
        "plan": PLAN,
        "seed": seed,
    }
    return RunConfig.from_dict({**values, **changes})


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """An audit that later tests only read."""
    folder = tmp_path_factory.mktemp("membership")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic_module, "SPLITS", {"train": 40, "val": 4, "test": 4, "public": 4})
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        audit = MembershipAudit(SHADOWS, TARGETS, controls=False, workers=1)
        report = audit_membership(configured(), audit, folder / "out", Console(quiet=True))
        runs = sorted((folder / "out" / "runs").iterdir())
        verified = [verify_run(run).spent for run in runs]
    return SimpleNamespace(report=report, out=folder / "out", runs=runs, verified=verified)


def statement(run):
    return PrivacyStatement.from_json((run / "privacy.json").read_text())


@pytest.mark.slow
def test_every_run_is_fully_accounted_and_the_sum_is_named(done):
    assert len(done.runs) == SHADOWS + TARGETS
    (event,) = statement(done.runs[0]).events
    each = epsilon([event], 1e-3, accountant="rdp")
    assert done.verified == pytest.approx([each] * len(done.runs))
    cost = done.report.claim["epsilon_together"]
    assert cost == pytest.approx(epsilon([event] * len(done.runs), 1e-3, accountant="rdp"))
    assert cost > each
    for run in done.runs:
        assert statement(run).n == UNITS
        assert any(f"together they cost epsilon {upper(cost)}" in text for text in statement(run).caveats)
    page = (done.out / "audit.html").read_text()
    assert f"{upper(cost)} by all {len(done.runs)}" in page


def test_what_the_attack_read_is_a_query_outside_epsilon(done):
    for run in done.runs:
        (query,) = statement(run).queries
        assert not query.covered
        assert query.what == "losses of the units themselves"
        assert "synthetic:ward" in query.data
    assert "epsilon does not cover this report" in (done.out / "audit.html").read_text()


def test_the_report_counts_each_unit_in_each_attacked_run(done):
    found = json.loads((done.out / "audit.json").read_text())
    assert found["canaries"]["count"] == UNITS * TARGETS
    rates = found["run"]["operating_points"]
    assert [point["target_fpr"] for point in rates[:2]] == [0.001, 0.01]
    assert {point["tpr"]["total"] + point["fpr"]["total"] for point in rates} == {UNITS * TARGETS}
    assert found["run"]["epsilon_lower_bounds"]["trade-off curve, independent canaries"] is None
    assert not found["run"]["flagged"]


def test_runs_cost_more_together_than_one():
    bound = configured().plan.bind(UNITS)
    costs = [epsilon_together(bound, runs) for runs in (1, 2, 20)]
    assert costs[0] == pytest.approx(bound.epsilon)
    assert costs[0] < costs[1] < costs[2] < 20 * costs[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"plan": {"method": "non-private"}}, ("claim-missing",)),
        ({"plan": {**PLAN, "method": "fdp-sgd"}}, ("method-without-canaries", "attacked by these shadows")),
        ({"plan": {**PLAN, "accountant": "pld", "relation": "replace"}}, ("relation-unsupported",)),
    ],
)
def test_runs_whose_members_are_no_secret_are_refused(changes, words, tmp_path):
    with refused(*words):
        audit_membership(configured(**changes), MembershipAudit(), tmp_path / "out", Console(quiet=True))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("values", [{"shadows": 3}, {"targets": 0}, {"alpha": 1.0}, {"workers": 0}])
def test_numbers_that_show_nothing_are_refused(values):
    with pytest.raises(DposeError, match="--"):
        MembershipAudit(**values)
