"""Choosing among trials, from a grid to a run folder: one charge, no word of what lost, the same when it goes on."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from dataclasses import replace
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from dpose.account import Budget, State, budget_states, charge, charges, composed, groups, set_budget, spending
from dpose.account.words import datasets, lines_of
from dpose.cli import main
from dpose.privacy.accounting import Accountant, epsilon
from dpose.privacy.events import Renyi, SampledGaussian
from dpose.privacy.keys import keys_kept
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.privacy.protected import protect
from dpose.privacy.ranges import upper
from dpose.privacy.statement import software_versions
from dpose.privacy.trial_law import TrialLaw
from dpose.privacy.tuning import split_sides
from dpose.runs import group_scores as by_unit
from dpose.runs import tune
from dpose.runs.group_scores import noised_trial_score, unit_scores
from dpose.runs.tune import discard_tuning, explain_tuning, tune_runs
from dpose.runs.tune_config import TuningConfig
from dpose.runs.tune_problem import priced_trials
from dpose.runs.verify import verify_run
from dpose.training import run as loops
from quick import quick  # noqa: F401
from refusals import refused
from run_folders import sealed_again
from shades import Hits, Meter, Shades, ShadeTask, entered
from stored import pure, run_charge
from tiers import rest_slow

QUIET = Console(quiet=True)
LAW = TrialLaw.parse("geometric:3")
DELTA = 1e-4


@pytest.fixture(autouse=True)
def _task(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    entered(monkeypatch)


def grid(**changes):
    values = {
        "task": "shade",
        "data": {"private": "shades:600:1"},
        "plan": {"steps": 6, "expected_batch_size": 100, "clip_norm": 0.5},
        "optimizer": {"name": "adam", "schedule": "constant", "warmup": 0.0},
        "grid": {"optimizer": {"lr": [0.2, 1e-6]}, "plan": {"steps": [4, 6]}},
        **changes,
    }
    return TuningConfig.from_dict(values, epsilon=8.0, delta=DELTA)


def files_of(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def alone_of(statement):
    """Epsilon of the run that was chosen, had it been the only one."""
    return epsilon(statement.events, DELTA, accountant=Accountant.RDP)


def fixed(monkeypatch, count):
    """So many trials, whatever the law says: what the rest does must not depend on how they came about."""
    monkeypatch.setattr(TrialLaw, "draw", lambda self, stream: count)


def test_a_chosen_run_cannot_be_sealed_again_as_one_that_was_not_chosen(tmp_path, monkeypatch):
    fixed(monkeypatch, 1)
    out = tmp_path / "tuned"
    statement = tune_runs(grid(), LAW, out, QUIET).statement
    alone = replace(statement, tuning=None, epsilon=alone_of(statement))
    sealed_again(out, alone)
    with refused("tuning-differs"):
        verify_run(out, tmp_path / "elsewhere")
    quiet = replace(statement, caveats=statement.caveats[1:])
    sealed_again(out, quiet)
    with refused("statement-sentence-missing"):
        verify_run(out, tmp_path / "elsewhere")
    sealed_again(out, statement)
    verify_run(out, tmp_path / "elsewhere")


# --- the whole -------------------------------------------------------------------------------------------------------


def test_the_best_trial_becomes_a_run_whose_statement_carries_the_price(tmp_path, monkeypatch):
    fixed(monkeypatch, 5)
    out = tmp_path / "tuned"
    done = tune_runs(grid(), LAW, out, QUIET, command="dpose tune --config /secret/grid.yaml")
    found = verify_run(out)
    statement = found.statement
    assert statement == done.statement
    assert statement.epsilon == statement.tuning.epsilon(DELTA) <= 8.0
    assert found.spent == statement.epsilon
    assert alone_of(statement) < 0.8 * statement.epsilon
    assert any("secret number of trials (geometric:3)" in line for line in found.lines)
    assert statement.tuning.scored + statement.n == 600
    assert "How it was chosen:" in (out / "README.md").read_text()
    assert "private selection" in (out / "report.html").read_text()
    assert "/secret" not in (out / "config.json").read_text()

    entry, scores = charges()
    assert (entry.what, scores.what) == ("tuning", "scores of tuning")
    assert (entry.state, scores.state) == (State.COMMITTED, State.COMMITTED)
    assert [one_side.events for one_side in (entry, scores)] == [(Renyi(curve),) for curve in statement.tuning.curves()]
    sides = split_sides(protect(Shades(600, 1)), 0.2)
    for one_side, side in ((entry, sides.training), (scores, sides.scored)):
        assert [one.id for one in charges(of=side.identity.marks)] == [one_side.id]
        assert one_side.units == side.identity.units
    each = tuple(composed([one_side], DELTA) for one_side in (entry, scores))
    assert each == pytest.approx(statement.tuning.by_side(DELTA), rel=1e-12)
    assert spending(Neighbours("image"), DELTA, of=protect(Shades(600, 1)).identity.marks).epsilon == max(each)
    assert f"{upper(each[0])} for each image that was learnt from" in found.lines[1]
    many = composed([entry] * 2, DELTA)
    assert statement.epsilon < many < 2 * statement.epsilon
    other = replace(entry, id="0" * 32, events=statement.events)
    both = composed([entry, other], DELTA)
    assert composed([entry], DELTA) < both < statement.epsilon + alone_of(statement)
    assert composed([entry, replace(other, events=())], DELTA) == math.inf
    assert both < composed([entry, replace(other, relation=Relation.REPLACE)], DELTA) < math.inf
    # a later run that starts from these weights is told where they are from
    weights = (hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest(),)
    assert entry.weights == scores.weights == weights
    # and the account tells both sides as one
    (told,) = datasets()
    assert [line.entry.id for line in lines_of(told.entries)] == [entry.id, scores.id]
    assert told.answers[0].epsilon == max(each)
    assert [{one.id for one in group} for group in groups()] == [{entry.id, scores.id}]


@pytest.mark.slow
def test_the_better_setting_wins(tmp_path, monkeypatch):
    fixed(monkeypatch, 12)
    # of fresh noise the other one wins once in a while, as it must
    monkeypatch.setattr(Key, "fresh", lambda: Key.drawn(bytes(31) + b"1", seeded=False))
    monkeypatch.setattr(tune, "below", lambda count, stream: stream.bytes(1)[0] % count)
    out = tmp_path / "tuned"
    tune_runs(grid(), LAW, out, QUIET)
    run = json.loads((out / "config.json").read_text())["run"]
    assert run["optimizer"]["lr"] == 0.2  # the other one learns nothing
    (kept,) = (Path(tmp_path) / "state-home" / "dpose" / "runs").glob("*.json")
    assert json.loads(kept.read_text())["settings"]["optimizer"]["lr"] == 0.2


def test_nothing_is_told_of_what_lost(tmp_path, monkeypatch, capsys):
    """One trial and seven leave the same files and the same words."""
    left, said = [], []
    for count in (1, 7):
        fixed(monkeypatch, count)
        home, out = tmp_path / f"home-{count}", tmp_path / str(count) / "tuned"
        monkeypatch.setenv("XDG_STATE_HOME", str(home))
        monkeypatch.setattr(tune, "below", lambda count, stream: 0)
        tune_runs(grid(), LAW, out, Console(force_terminal=False, width=200))
        said.append(capsys.readouterr().out)
        names = {path.name for path in (home / "dpose" / "tuning").rglob("*")}
        entry, _ = charges()
        left.append(
            (
                files_of(out),
                sorted(len(list(p.parents)) for p in (home / "dpose").rglob("*.json")),
                {name for name in names if len(name) != 32},
                [line.split(",")[0] for line in (out / "log.jsonl").read_text().splitlines()],
                keys_kept(),
                len(list((home / "dpose" / "account").glob("*.json"))),
                entry.events,
            )
        )
    assert left[0] == left[1]
    assert left[0][2] == {".lock"}
    assert said[0] == said[1]
    assert "trial" in said[0]


def test_no_file_has_the_time_of_its_trial(tmp_path, monkeypatch):
    fixed(monkeypatch, 1)
    out, real, before = tmp_path / "tuned", tune._publish, []

    def publish(problem, state, known, work, *args):
        for path in work.rglob("*"):
            os.utime(path, (1e9, 1e9))
        before.append(time.time())
        real(problem, state, known, work, *args)

    monkeypatch.setattr(tune, "_publish", publish)
    tune_runs(grid(), LAW, out, QUIET)
    times = [path.stat().st_mtime for path in (out, *out.rglob("*"))]
    assert len(times) > 8
    assert min(times) >= before[0] - 1


def test_nothing_in_the_folder_has_the_day_or_the_command_of_its_trial(tmp_path, monkeypatch):
    """Which trial was chosen, and how many there were, would follow from either; so from other software."""
    fixed(monkeypatch, 3)
    out, calls = tmp_path / "tuned", []

    class Later(datetime):
        @classmethod
        def now(cls, zone=None):
            calls.append(zone)
            return datetime(2090, 1, len(calls), tzinfo=zone)

    monkeypatch.setattr("dpose.training.statement.datetime", Later)
    real = tune._trial

    def stopped(problem, setting, state, *args):
        if state.following == 1:
            raise KeyboardInterrupt
        return real(problem, setting, state, *args)

    with monkeypatch.context() as planted:
        planted.setattr(tune, "_trial", stopped)
        with pytest.raises(KeyboardInterrupt):
            tune_runs(grid(), LAW, out, QUIET, command="dpose tune --first")
    with monkeypatch.context() as planted:
        planted.setattr(tune, "software_versions", lambda: software_versions() | {"torch": "9.9"})
        with refused("tuning-of-other-software", where="torch"):
            tune_runs(grid(), LAW, out, QUIET)
    statement = tune_runs(grid(), LAW, out, QUIET, command="dpose tune --second").statement
    assert statement.deployment.date == datetime.now(UTC).date().isoformat()
    said = "".join(file.read_text() for file in out.rglob("*") if file.suffix in (".json", ".jsonl", ".md", ".html"))
    assert "2090-01" not in said
    assert "--first" in said
    assert "--second" not in said


def test_no_trial_returns_the_first_weights_under_the_same_price(tmp_path, monkeypatch):
    law, out = TrialLaw.parse("poisson:3"), tmp_path / "tuned"
    fixed(monkeypatch, 0)
    done = tune_runs(grid(), law, out, QUIET)
    statement = verify_run(out).statement
    assert statement.epsilon == statement.tuning.epsilon(DELTA)
    assert any("first weights, untrained" in caveat for caveat in done.statement.caveats)
    assert len(charges()) == 2
    assert keys_kept() == []


def test_trials_that_diverge_lose_and_are_not_told(tmp_path, monkeypatch):
    fixed(monkeypatch, 3)
    taken = []

    def diverging(self, *args):
        taken.append(1)
        raise loops.TrainingDivergedError("training-diverged", "training diverged at step 1")

    monkeypatch.setattr(loops.Run, "_step", diverging)
    out = tmp_path / "tuned"
    tune_runs(grid(), LAW, out, QUIET)
    assert len(taken) == 3
    assert any("none came to an end" in caveat for caveat in verify_run(out).statement.caveats)


# --- stopped, and on -------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for kill -9."""


@pytest.mark.parametrize(
    "when",
    rest_slow(
        [1, 7, pytest.param(13, marks=pytest.mark.slow), "state", "score", "publish", "report", "clear"], 0, 3, 4, 5
    ),
)
def test_what_was_killed_goes_on_to_the_same_end_at_no_further_cost(tmp_path, monkeypatch, when):
    key = Key.fresh()
    monkeypatch.setattr(tune.Key, "fresh", classmethod(lambda cls: key))
    config = grid(grid={"optimizer": {"lr": [0.2, 0.1]}})
    fixed(monkeypatch, 4)

    def weights(home, out, kill):
        monkeypatch.setenv("XDG_STATE_HOME", str(home))
        if kill is not None:
            with monkeypatch.context() as planted:
                plant(planted, kill)
                with pytest.raises(Killed):
                    tune_runs(config, LAW, out, QUIET)
        tune_runs(config, LAW, out, QUIET)
        assert keys_kept() == []
        assert [entry.state for entry in charges()] == [State.COMMITTED] * 2
        assert not list((home / "dpose" / "tuning").rglob("trial-*"))
        assert verify_run(out).statement.tuning
        assert (out / "report.html").is_file()
        return (out / "model.safetensors").read_bytes()

    def plant(planted, kill):
        steps = iter(range(10_000))
        real = loops.Run._step

        def step(self, *args):
            if next(steps) == kill:
                raise Killed
            return real(self, *args)

        def killed(*args, **how):
            raise Killed

        if isinstance(kill, int):
            planted.setattr(loops.Run, "_step", step)
        elif kill == "state":
            planted.setattr(tune._State, "write", killed)
        else:
            names = {"score": "noised_trial_score", "publish": "keep_places", "report": "make_report"}
            planted.setattr(tune, names.get(kill, "_clear"), killed)

    whole = weights(tmp_path / "a", tmp_path / "one" / "tuned", None)
    assert weights(tmp_path / "b", tmp_path / "two" / "tuned", when) == whole


def test_ctrl_c_stops_between_steps_and_the_same_command_goes_on(tmp_path, monkeypatch):
    fixed(monkeypatch, 2)
    out = tmp_path / "tuned"
    with monkeypatch.context() as planted:
        planted.setattr(loops.Run, "take_steps", lambda self: loops.Ended.INTERRUPTED)
        with pytest.raises(KeyboardInterrupt):
            tune_runs(grid(), LAW, out, QUIET)
    assert not out.exists()
    before = [entry.id for entry in charges()]
    assert keys_kept() == before[:1]
    with refused("tuning-of-other-settings"):
        tune_runs(grid(data={"private": "shades:600:2"}), LAW, out, QUIET)
    with refused("tuning-of-other-settings"):
        tune_runs(grid(), TrialLaw.parse("geometric:4"), out, QUIET)
    tune_runs(grid(), LAW, out, QUIET)
    assert [entry.id for entry in charges()] == before


def test_one_that_is_given_up_leaves_no_key_and_stays_charged(tmp_path, monkeypatch):
    out = tmp_path / "tuned"
    assert "no unfinished choice" in discard_tuning(out)
    with monkeypatch.context() as planted:
        planted.setattr(loops.Run, "take_steps", lambda self: loops.Ended.INTERRUPTED)
        with pytest.raises(KeyboardInterrupt):
            tune_runs(grid(), LAW, out, QUIET)
    assert "stays taken" in discard_tuning(out)
    assert keys_kept() == []
    assert len(charges()) == 2
    fixed(monkeypatch, 1)
    tune_runs(grid(), LAW, out, QUIET)  # another number of trials is another choice, and is paid for
    assert len(charges()) == 4


def test_the_key_of_one_that_cannot_be_read_goes_too(tmp_path, monkeypatch):
    out, states = tmp_path / "tuned", Path(os.environ["XDG_STATE_HOME"]) / "dpose" / "tuning"
    for damage in (lambda text: text.replace('"schema": 1', '"schema": 2'), lambda text: text[:100]):
        with monkeypatch.context() as planted:
            planted.setattr(loops.Run, "take_steps", lambda self: loops.Ended.INTERRUPTED)
            with pytest.raises(KeyboardInterrupt):
                tune_runs(grid(), LAW, out, QUIET)
        (file,) = states.rglob("tuning.json")
        file.write_text(damage(file.read_text()))
        with refused("tuning-state-unreadable"):
            tune_runs(grid(), LAW, out, QUIET)
        assert "and their key are deleted" in discard_tuning(out)
        assert keys_kept() == []


def test_a_failing_disk_does_not_name_the_trial(tmp_path, monkeypatch):
    fixed(monkeypatch, 1)
    failing = OSError(5, "Input/output error", "trial-0")
    monkeypatch.setattr(tune, "train", lambda *args, **kwargs: (_ for _ in ()).throw(failing))
    with refused("trial-not-finished", where="Input/output error") as told:
        tune_runs(grid(), LAW, tmp_path / "tuned", QUIET)
    assert "trial-0" not in told.value.line()


def test_a_budget_refuses_before_anything_is_trained(tmp_path, monkeypatch):
    whole = protect(Shades(600, 1))
    set_budget(Budget(4.0, DELTA, "shades", whole.identity.marks))
    monkeypatch.setattr(tune, "_trials", None)
    with refused("budget-exceeded"):
        tune_runs(grid(), LAW, tmp_path / "tuned", QUIET)
    assert charges() == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"grid": {"plan": {"method": ["dp-sgd", "pdp-sgd"]}}}, "public-data-missing"),
        (
            {
                "data": {"private": "shades:600:1", "public": "shades:8:7"},
                "grid": {"plan": {"method": ["dp-sgd", "pdp-sgd"]}},
            },
            "public-units-too-few",
        ),
    ],
)
def test_a_setting_that_no_trial_can_be_taken_with_costs_nothing(tmp_path, changes, code):
    """Whichever trial would draw it: all settings are looked at before anything is charged."""
    with refused(code):
        tune_runs(grid(**changes), LAW, tmp_path / "tuned", QUIET)
    assert not charges()
    assert not keys_kept()


def test_a_budget_equal_to_the_claim_is_enough_and_one_below_is_not(tmp_path, monkeypatch):
    """Of the filter: a first charge may fit by its own epsilon; both sides are first charges of their pictures."""
    fixed(monkeypatch, 1)
    out, marks = tmp_path / "tuned", protect(Shades(600, 1)).identity.marks
    claim = priced_trials(grid(), LAW, 480, 120)[1].epsilon(DELTA)
    set_budget(Budget(claim * (1 - 1e-3), DELTA, "shades", marks))
    with refused("budget-exceeded"):
        tune_runs(grid(), LAW, out, QUIET)
    assert charges() == []  # neither side
    discard_tuning(out)
    set_budget(Budget(claim, DELTA, "shades", marks))
    assert tune_runs(grid(), LAW, out, QUIET).statement.epsilon == claim
    (state,) = budget_states()
    assert state.fixed == pytest.approx(claim)
    for picture in marks[::100]:  # nothing more is let in, on either side
        with refused("budget-exceeded"):
            charge(run_charge(9, marks[marks == picture], events=(pure(1e-3),)))


def test_units_of_several_pictures_are_charged_once_at_the_dearer_side(tmp_path, monkeypatch):
    """The account would add both sides up for a person."""
    monkeypatch.setattr(Shades, "unit", "subject")
    monkeypatch.setattr(Shades, "subjects", lambda self, index: (f"{self.seed}-{index}",))
    fixed(monkeypatch, 1)
    config = grid(plan={"steps": 6, "expected_batch_size": 100, "clip_norm": 0.5, "unit": "subject"})
    statement = tune_runs(config, LAW, tmp_path / "tuned", QUIET).statement
    (entry,) = charges()
    assert entry.events == (Renyi(statement.tuning.curve()),)
    # the sides' curves cross
    assert statement.epsilon <= composed([entry], DELTA) <= 1.05 * statement.epsilon


# --- the mechanism of one trial --------------------------------------------------------------------------------------


def test_settings_keys_and_noise_of_trials_are_apart(tmp_path, monkeypatch):
    fixed(monkeypatch, 6)
    seen, scores = [], []
    real_train, real_score = tune.train, tune.noised_trial_score

    def train(*args, **how):
        seen.append((how["options"].trial.key.secret, how["optimizer"].lr, how["plan"].steps))
        assert not how["options"].trial.key.seeded
        assert how["plan"].noise_multiplier is not None
        return real_train(*args, **how)

    def score(task, model, units, event, stream):
        found = real_score(task, model, units, event, stream)
        scores.append(found - np.mean(unit_scores(task, model, units)))
        return found

    monkeypatch.setattr(tune, "train", train)
    monkeypatch.setattr(tune, "noised_trial_score", score)
    tune_runs(grid(), LAW, tmp_path / "tuned", QUIET)
    assert len({secret for secret, _, _ in seen}) == 6
    assert len({round(noise, 12) for noise in scores}) == 6
    assert all(noise != 0 for noise in scores)


def test_the_score_has_the_noise_that_is_paid_for(monkeypatch):
    units, model, event = Shades(90), Meter(), SampledGaussian(1.0, 3.0, 1, 1 / 90)
    shares = unit_scores(ShadeTask(), model, units)
    assert len(shares) == 90
    monkeypatch.setattr(by_unit, "unit_scores", lambda *args: shares)
    noise = AesNoise(Key.from_seed(3))
    found = [noised_trial_score(ShadeTask(), model, units, event, noise.stream(Purpose.SCORE, i)) for i in range(400)]
    assert np.mean(found) == pytest.approx(np.mean(shares), abs=4 * 3 / 90 / 20)
    assert np.std(found) == pytest.approx(3 / 90, rel=0.15)
    with pytest.raises(ValueError, match="moves by more"):
        noised_trial_score(
            ShadeTask(), model, units, replace(event, sensitivity=1 / 180), noise.stream(Purpose.SCORE, 999)
        )


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -5.0, 250.0, 60.0])
def test_a_unit_moves_the_score_by_no_more_than_one_nth_whatever_its_metric_says(monkeypatch, value):
    class Odd:
        def update(self, outputs, targets):
            pass

        def compute(self):
            found = Hits(0.0)
            object.__setattr__(found, "to_dict", lambda: {"main": "x", "unit": "%", "columns": {"x": value}})
            return found

    monkeypatch.setattr(ShadeTask, "metric", lambda self: Odd())
    shares = unit_scores(ShadeTask(), Meter(), Shades(5))
    assert all(0 <= share <= 1 for share in shares)
    expected = {None: 0.0, -5.0: 0.0, 250.0: 1.0, 60.0: 0.6}.get(value, 0.0)
    assert shares.tolist() == [expected] * 5


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.9])
def test_sides_share_nobody_and_depend_on_names_alone(share):
    units = Shades(300, 4)
    whole = protect(units)
    sides = split_sides(whole, share)
    one, other = sides.training, sides.scored
    assert one.identity.units + other.identity.units == 300
    assert not np.isin(one.identity.marks, other.identity.marks).any()
    people = [{data.subjects(i) for i in range(len(data))} for data in (one.data, other.data)]
    assert not people[0] & people[1]
    assert share * 300 <= other.identity.units < share * 300 + 3

    # other pictures under the same names fall on the same sides
    changed = Shades(300, 4)
    changed.greys = 255 - changed.greys
    again = split_sides(protect(changed), share).scored.data
    assert [again.unit_id(i) for i in range(len(again))] == [other.data.unit_id(i) for i in range(len(other.data))]


def test_sides_are_two():
    units = Shades(3)  # all of one person
    with refused("units-left-none"):
        split_sides(protect(units), 0.5)


# --- the grid --------------------------------------------------------------------------------------------------------


def test_a_grid_is_all_combinations_and_the_noise_makes_them_cost_the_same():
    config = grid()
    assert [dict(setting) for setting in config.settings] == [
        {"optimizer.lr": lr, "plan.steps": steps} for lr in ("0.2", "1e-06") for steps in ("4", "6")
    ]
    assert [(run.optimizer.lr, run.plan.steps) for run in config.runs] == [
        (lr, steps) for lr in (0.2, 1e-6) for steps in (4, 6)
    ]
    assert {run.plan.epsilon for run in config.runs} == {8.0}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"grid": None}, ("grid-missing",)),
        ({"grid": {"data": {"private": ["a", "b"]}}}, ("grid-part-unknown",)),
        ({"grid": {"plan": {"epsilon": [1, 2]}}}, ("grid-setting-fixed",)),
        ({"grid": {"optimizer": {"lr": 0.1}}}, ("grid-values-missing",)),
        ({"grid": {"optimizer": {"lr": [0.1, 0.1]}}}, ("grid-value-twice",)),
        ({"grid": {"optimizer": {"lr": [date(2020, 1, 1)]}}}, ("grid-value-unusable",)),
        ({"grid": {"optimizer": {"lr": [[b"1"]]}}}, ("grid-value-unusable",)),
        ({"grid": {"optimizer": {"lrr": [0.1]}}}, ("setting-unknown",)),
        ({"grid": {"plan": {"method": ["dp-sgd", "non-private"]}}}, ("method-without-tuning-price",)),
        ({"grid": {"plan": {"method": ["fdp-sgd"]}}}, ("method-without-tuning-price",)),
        ({"grid": {"plan": {"steps": list(range(1, 1002))}}}, ("grid-too-large", "1,000")),
        ({"seed": 3}, ("tuning-with-seed",)),
        ({"recipe": "recommended"}, ("tuning-with-recipe",)),
        ({"plan": {"accountant": "pld"}}, ("tuning-accountant-unbounded", "PLD")),
        ({"plan": {"relation": "replace", "accountant": "rdp"}}, ("tuning-relation-unbounded", "replace")),
        ({"plan": {"relation": "add-or-remove", "nominal_units": 600}}, ("tuning-relation-unbounded", "add-or-remove")),
        ({"score_share": 1.0}, ("score-share-out-of-range", "score_share")),
        ({"plan": "dp-sgd"}, ("section-not-mapping",)),
    ],
)
def test_what_cannot_be_chosen_from_is_refused_in_a_line(changes, said):
    with refused(*said) as caught:
        grid(**changes)
    assert "\n" not in caught.value.line()


def test_several_processes_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tune, "process_group", lambda: SimpleNamespace(count=2))
    with refused("tuning-with-processes"):
        tune_runs(grid(), LAW, tmp_path / "a", QUIET)
    assert charges() == []


def test_private_data_are_not_watched(tmp_path):
    with refused("tuning-watches-private"):
        tune_runs(grid(data={"private": "shades:600:1", "validation_data": "held-out"}), LAW, tmp_path / "a", QUIET)
    assert charges() == []


@pytest.mark.parametrize("side", ["training", "scored"])
@pytest.mark.parametrize("kind", ["shades", "again", "others"])
@pytest.mark.parametrize("used", ["validation_data", "public"])
def test_units_of_either_side_are_neither_watched_nor_public(tmp_path, monkeypatch, used, kind, side):
    """Of the trials' side they were found in the first trial: charged, and then never finished."""
    sides = split_sides(protect(Shades(600, 1)), 0.2)
    own = getattr(sides, side).data
    kept = [int(own.unit_id(index).rpartition("-")[2]) for index in range(len(own))]
    opened = Shades.opened

    def some(spec):
        whole = opened(spec.removeprefix("side-"))
        return Some(whole, kept[:6]) if spec.startswith("side-") else whole

    monkeypatch.setattr(Shades, "opened", some)
    values = {"data": {"private": "shades:600:1", used: f"side-{kind}:600:1"}}
    if used == "public":
        scales = {"method": "scaled-sgd", "subspace": {"kind": "public", "units": 4, "rank": 2}}
        values["plan"] = {"steps": 6, "expected_batch_size": 100, "clip_norm": 0.5, **scales}
    how = {"shades": "is a picture of", "again": "looks like a picture of", "others": "shows the person of"}
    with refused(f"{used}-unit-private".replace("validation_data-", "watched-"), where=how[kind]) as caught:
        tune_runs(grid(**values), LAW, tmp_path / "a", QUIET)
    assert "a trial" not in caught.value.line()
    assert charges() == []


class Some:
    """Some of the units."""

    unit = "image"

    def __init__(self, data, indices):
        self.data, self.indices = data, indices

    def __len__(self):
        return len(self.indices)

    def unit_id(self, index):
        return self.data.unit_id(self.indices[index])

    def content_hashes(self, index):
        return self.data.content_hashes(self.indices[index])

    def fingerprints(self, index):
        return self.data.fingerprints(self.indices[index])

    def subjects(self, index):
        return self.data.subjects(self.indices[index])

    def load(self, index, rng):
        return self.data.load(self.indices[index], rng)


def test_curves_show_no_epsilon_of_one_trial(tmp_path, monkeypatch):
    fixed(monkeypatch, 1)
    out = tmp_path / "tuned"
    tune_runs(grid(data={"private": "shades:600:1", "validation_data": "shades:20:99"}), LAW, out, QUIET)
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    scores = [line for line in lines if line["type"] == "score"]
    assert scores
    assert all(line["epsilon"] is None for line in scores)


def test_what_it_would_cost_is_told_beforehand(capsys):
    Console(width=200).print(explain_tuning(grid(), LAW, QUIET))
    said = capsys.readouterr().out
    assert "geometric:3, 3 in expectation" in said
    assert "about 480 units and is scored on about 120" in said
    assert "together cost" in said
    assert charges() == []


def test_the_command_says_what_is_missing(tmp_path, capsys):
    assert main(["tune", "--out", str(tmp_path / "a")]) == 2
    assert "[grid-missing]" in capsys.readouterr().err
    file = tmp_path / "grid.yaml"
    file.write_text("data: {private: synthetic:ward}\ngrid: {optimizer: {lr: [0.1]}}\n")
    assert main(["tune", "--config", str(file), "--out", str(tmp_path / "a"), "--delta", "1e-5"]) == 2
    assert "epsilon" in capsys.readouterr().err
    assert Fraction(3) == LAW.mean
