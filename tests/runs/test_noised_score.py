"""Scores of private data with noise: by unit, reserved first, and published with their price and nothing else."""

import io
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from rich.console import Console

from dpose.account import Budget, State, charges, set_budget, spending
from dpose.pose.metrics import SCORED, OKSResult, PCKh
from dpose.privacy.marks import marks_of
from dpose.privacy.merged import merge_units
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.noised_query import NoisedQuery
from dpose.privacy.scores import check_scores, noised_query_of, query_of
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.runs import config, noised_score, tasks
from dpose.runs.group_scores import capped, counts_of, main_share, unit_joints, unit_scores
from dpose.runs.noised_score import evaluate_noised
from dpose.runs.tasks import ScoredData, TaskEntry, register_task
from dpose.training.folder import write_run_folder
from dpose.units import View, pad_views
from quick import quick  # noqa: F401
from refusals import refused
from run_folders import sealed_again

QUIET = Console(quiet=True)
TENTH = Fraction(1, 10)


def person(found, missed, head=10.0):
    """A view with so many joints found and missed, all others unseen."""
    true, visible = np.zeros((16, 2), np.float32), np.zeros(16, np.float32)
    guess = true.copy()
    for place, joint in enumerate(SCORED[: found + missed]):
        visible[joint] = 1
        guess[joint] = 0 if place < found else 100
    target = {"guess": guess, "true": true, "visible": visible, "head": np.float32(head)}
    return View(np.zeros((2, 2, 3), np.uint8), target)


class People:
    """Units of given people; a unit is a list of (found, missed)."""

    unit = "image"

    def __init__(self, units, names=None):
        self.units, self.names = units, names or [f"u{i}" for i in range(len(units))]

    def __len__(self):
        return len(self.units)

    def unit_id(self, index):
        return self.names[index]

    def content_hashes(self, index):
        return (f"content of {self.names[index]}",)

    def load(self, index, rng):
        views = [person(*one) for one in self.units[index]]
        if len(views) > 8:  # as pictures of many people do it
            views = [views[i] for i in sorted(rng.choice(len(views), 8, replace=False))]
        return views


class Model(torch.nn.Module):
    def __init__(self, axes=2):
        super().__init__()
        self.axes = axes
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.batches = []

    def forward(self, inputs):
        self.batches.append(len(inputs))
        found = inputs.float().mean((1, 2, 3))
        return (found,) * self.axes if self.axes else found


class Found:
    def __init__(self):
        self.metric = PCKh()

    def update(self, outputs, targets):
        parts = [outputs] if isinstance(outputs, torch.Tensor) else outputs
        assert {len(part) for part in parts} == {len(targets["head"])}
        self.metric.update(*(targets[name].numpy() for name in ("guess", "true", "visible", "head")))

    def compute(self):
        return self.metric.compute()


class PeopleTask:
    name = "people"

    def collate(self, units):
        return pad_views(units)

    def metric(self):
        return Found()


UNITS = [[(3, 1)], [(2, 0), (1, 5)], [(0, 0)], [(0, 4)], [(14, 0)] * 3]


def scores(units, **how):
    return unit_scores(PeopleTask(), Model(), People(units, **how)).tolist()


def joints(units, most, **how):
    return unit_joints(PeopleTask(), Model(), People(units, **how), most).tolist()


def test_a_unit_scores_its_share_of_joints_found():
    assert scores(UNITS) == [0.75, 0.375, 0.0, 0.0, 1.0]
    # a person whose head length is unknown cannot be scored: nothing is visible there
    assert scores([[(3, 1, float("nan"))]]) == [0.0]


def test_every_unit_is_computed_alone():
    model = Model()
    unit_scores(PeopleTask(), model, People(UNITS))
    assert model.batches == [len(unit) for unit in UNITS]


def test_a_unit_scores_the_same_whatever_the_others_are_and_wherever_it_stands():
    """One unit more, fewer or another moves its own score and no other; the ones of many views, too."""
    many = [[(k % 3, k % 4 + 1) for k in range(i, i + 12)] for i in range(4)]
    units, names = [*UNITS, *many], [f"n{i}" for i in range(9)]
    all_scores, all_joints = scores(units, names=names), joints(units, 5, names=names)
    for gone in range(len(units)):
        left = {"names": names[:gone] + names[gone + 1 :]}
        fewer = units[:gone] + units[gone + 1 :]
        assert scores(fewer, **left) == all_scores[:gone] + all_scores[gone + 1 :]
        assert joints(fewer, 5, **left) == all_joints[:gone] + all_joints[gone + 1 :]


@pytest.mark.parametrize("axes", [0, 1, 2])
def test_people_are_counted_one_by_one_whatever_a_model_gives(axes):
    """Each with the outputs that are its own (`Found` compares how many there are)."""
    counted = unit_joints(PeopleTask(), Model(axes), People(UNITS), 100)
    assert counted.tolist() == [np.sum(unit, axis=0).tolist() for unit in UNITS]


def test_what_counts_nothing_cannot_be_pooled(folder, monkeypatch):
    with refused("joints-to-pool-missing"):
        counts_of(Shares(50))
    monkeypatch.setattr(Found, "compute", lambda _: Shares(50))
    with refused("joints-to-pool-missing"):
        evaluate_noised(folder, "held-out", NoisedQuery(TENTH, joints=1), console=QUIET)
    assert charges() == []  # told before anything is spent
    assert evaluate_noised(folder, "held-out", NoisedQuery(TENTH), console=QUIET).metric.startswith("x, mean")


@pytest.mark.parametrize("most", [1, 2, 6, 100])
def test_at_most_so_many_joints_of_a_unit_count(most):
    for unit, (found, missed) in zip(UNITS, joints(UNITS, most), strict=True):
        whole = np.sum(unit, axis=0)
        assert found + missed == min(most, whole.sum())
        assert found <= whole[0]
        assert missed <= whole[1]


def test_which_joints_count_is_fair_and_fixed():
    things = {f"picture 0 {joint}": joint < 7 for joint in range(14)}
    assert capped(things, 5) == capped(things, 5)
    shares = [capped({f"p{k} 0 {j}": j < 7 for j in range(14)}, 5)[0] for k in range(400)]
    assert 2.3 < np.mean(shares) < 2.7  # the first five would all be found


def test_copies_are_one_unit():
    data = People([[(2, 0)], [(0, 2)], [(1, 1)]])
    merged = merge_units(data, [[0, 1], [2]])
    assert unit_scores(PeopleTask(), Model(), merged).tolist() == [0.5, 0.5]


class Shares:
    def __init__(self, value, unit="%"):
        self.value, self.unit = value, unit

    def to_dict(self):
        return {"metric": "x", "main": "a", "unit": self.unit, "columns": {"a": self.value}}


@pytest.mark.parametrize(
    ("result", "share"),
    [
        *[(Shares(50), 0.5), (Shares(0.5, ""), 0.5), (Shares(None), 0.0), (Shares(float("nan")), 0.0)],
        *[(Shares(300), 1.0), (OKSResult(np.array([0.25, 0.75]), 0), 0.5), (OKSResult(np.array([]), 1), 0.0)],
    ],
)
def test_any_metrics_main_number_is_a_share(result, share):
    assert main_share(result) == share


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model folder of a task whose data are `PEOPLE`."""
    known = dict(config.TASKS)
    monkeypatch.setattr(config, "TASKS", known)
    monkeypatch.setattr(tasks, "TASKS", known)

    def scored(folder, model, data, *, limit, detections, console):
        assert isinstance(model, Model)
        public = data == "public"
        units = People([*UNITS] * 20, [f"{data} {i}" for i in range(100)])
        task = None if data == "odd" else PeopleTask()
        return ScoredData(units, data, "image", public, data == "own", lambda m: None, ("secret counts",), task)

    register_task(TaskEntry("people", "image", None, scored, lambda path: Model(), str))
    statement = PrivacyStatement(Kind.NONE, "image")
    write_run_folder(tmp_path, Model(), {"task": "people"}, statement, run_id="ab" * 16)
    return tmp_path


def written(folder):
    return [json.loads(path.read_text()) for path in sorted((folder / "evaluations").glob("*.json"))]


@pytest.mark.parametrize(
    ("spoilt", "code"), [("card", "seal-file-altered"), ("parent", "output-below-file"), ("place", "output-exists")]
)
def test_a_score_that_could_not_be_kept_costs_nothing(folder, spoilt, code):
    out = None
    if spoilt == "card":
        (folder / "README.md").write_text("my own words")
    elif spoilt == "parent":
        (folder / "file").write_text("")
        out = folder / "file" / "score.json"
    else:
        out = folder / "evaluations"
        out.mkdir()
    with refused(code):
        evaluate_noised(folder, "held-out", NoisedQuery(Fraction(5)), out=out, console=QUIET)
    assert not charges()


ASKED = [
    NoisedQuery(Fraction(5), delta, relation, most)
    for delta in (None, 1e-5)
    for relation in Relation
    for most in (None, 14)
]


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_a_score_is_published_with_its_price_and_nothing_else(folder, asked):
    result = evaluate_noised(folder, "held-out", asked, console=QUIET)
    truth = (
        np.mean(scores(UNITS)) if asked.joints is None else np.divide(*np.sum(joints(UNITS, 14), 0) @ [[1, 1], [0, 1]])
    )
    assert result.ratio.low <= truth <= result.ratio.high or result.ratio.high - result.ratio.low < 0.2
    (content,) = written(folder)
    statement = PrivacyStatement.from_json(json.dumps(content["privacy"]))
    assert statement.verify() <= 5
    assert (statement.kind, statement.epsilon, statement.delta) == (Kind.PRIVATE, 5, asked.delta or 0)
    assert statement.neighbours.relation is asked.relation
    hidden = asked.relation is Relation.ADD_REMOVE
    assert (statement.n, content["units"]) == ((None, None) if hidden else (100, 100))
    # one number, its interval, and no count of people or joints; under add-or-remove not of units either
    assert set(content["result"]) == {"metric", "threshold", "main", "unit", "columns", "interval"}
    assert list(content["result"]["columns"]) == ["Mean"]
    told = json.dumps(content) + json.dumps([path.name for path in (folder / "evaluations").iterdir()])
    for path in ("privacy.json", "README.md"):
        told += (folder / path).read_text()
    assert ("100 units" in told) is not hidden
    assert "which people were scored" in told
    (query,) = json.loads((folder / "privacy.json").read_text())["queries"]
    assert query["cost"].startswith("epsilon 5 at delta")
    assert "it costs epsilon 5" in (folder / "README.md").read_text()
    assert "NOT covered" not in (folder / "README.md").read_text()


def test_a_score_is_bound_to_the_query_that_records_it(folder):
    for asked in ASKED[:2]:
        evaluate_noised(folder, "held-out", asked, console=QUIET)

    def queries():
        return PrivacyStatement.from_json((folder / "privacy.json").read_text()).queries

    def checked(some=None):
        return check_scores(folder, queries() if some is None else some)

    assert checked() == ["noised scores: 2, each costs its data what it says"]
    one, other = sorted((folder / "evaluations").iterdir())
    text = one.read_text()
    # its value, its data, its time, or all that makes it a noised score
    content = json.loads(text)
    for changed in (
        text.replace('"Mean": ', '"Mean": 1'),
        text.replace("held-out", "elsewhere"),
        text.replace("T", "t", 1),
        json.dumps({name: value for name, value in content.items() if name != "privacy"}),
    ):
        assert changed != text
        one.write_text(changed)
        with refused("score-altered"):
            checked()
    one.write_text(text)
    one.with_name("another.json").write_text(text)
    with refused("score-not-in-ledger", where="another.json"):
        checked()
    one.with_name("another.json").unlink()
    # a line that says another price, or of other data
    for name in ("cost", "data"):
        lied = [replace(query, **{name: "epsilon 0"}) for query in queries()]
        with refused("score-not-in-ledger"):
            checked(lied)
    other.unlink()
    assert checked()[-1] == f"not here any more, and not checked: the noised score evaluations/{other.name}"


@pytest.mark.parametrize("asked", [*ASKED, *(replace(one, joints=3) for one in ASKED[1::2])], ids=str)
def test_a_score_says_the_query_that_its_noise_is_for(folder, asked):
    """Noise for less at the same epsilon adds up by itself; it is noise of another query than the file's."""
    evaluate_noised(folder, "held-out", asked, console=QUIET)
    (content,) = written(folder)

    def read(content):
        return query_of(content, "a digest  a file")

    privacy = PrivacyStatement.from_json(json.dumps(content["privacy"]))
    found = noised_query_of(content, privacy)
    assert (found.relation, found.joints, found.delta) == (asked.relation, asked.joints, asked.delta)
    assert (found.l1, found.squared_l2) == (asked.l1, asked.squared_l2)
    assert read(content).cost
    for times in (2, 3):
        (event,) = content["privacy"]["events"]
        less = {
            name: str(Fraction(value) / (times if asked.delta is None else times**2))
            for name, value in event.items()
            if name not in ("type", "steps")
        }
        lied = {**content["privacy"], "events": [{**event, **less}]}
        PrivacyStatement.from_json(json.dumps(lied)).verify()
        with refused("score-of-another-query"):
            read({**content, "privacy": lied})
    release = content["privacy"]["release"]
    other = replace(asked, joints=5 if asked.joints is None else asked.joints + 1)
    said = {
        "query": other.describe("image"),
        "sensitivity": release["sensitivity"].replace(" in L1", "0 in L1"),
        "score": "y",
    }
    for name, value in said.items():
        lied = {**content["privacy"], "release": {**release, name: value}}
        with refused("score-of-another-query"):
            read({**content, "privacy": lied})
    with refused("score-of-another-query"):
        read({**content, "units": 99})


def test_the_mean_divides_by_all_units_also_those_without_joints(folder):
    asked = NoisedQuery(Fraction(10_000))
    result = evaluate_noised(folder, "held-out", asked, console=QUIET)
    assert result.ratio.value == pytest.approx(np.mean(scores(UNITS)), abs=1e-3)


def test_every_run_is_another_release(folder):
    first, second = (evaluate_noised(folder, "held-out", NoisedQuery(TENTH), console=QUIET) for _ in range(2))
    assert first.ratio != second.ratio  # fresh noise: equal with probability below 1e-6
    assert len(written(folder)) == 2
    assert len({charge.id for charge in charges()}) == 2
    assert len(json.loads((folder / "privacy.json").read_text())["queries"]) == 2


def test_it_is_reserved_before_anything_is_computed(folder, monkeypatch):
    seen = []

    def computing(*args, **kwargs):
        seen.append(len(charges()))
        raise RuntimeError("a crash while computing")

    monkeypatch.setattr(noised_score, "unit_scores", computing)
    with pytest.raises(RuntimeError, match="a crash"):
        evaluate_noised(folder, "held-out", NoisedQuery(TENTH), console=QUIET)
    assert seen == [1]
    (charge,) = charges()  # what was reserved stays spent
    assert (charge.state, charge.delta) == (State.FAILED, 0)
    assert [event.pure() for event in charge.events] == [TENTH]


def test_a_delta_that_is_not_below_one_over_n_is_refused_before_it_is_charged(folder):
    """It was charged and computed, and then its statement was refused."""
    with refused("delta-above-one-in-n", where=("0.01", "100")):
        evaluate_noised(folder, "held-out", NoisedQuery(TENTH, 0.01), console=QUIET)
    assert charges() == []
    said = Console(file=io.StringIO(), width=200)
    for delta in (0.005, 0.001):
        evaluate_noised(folder, "held-out", NoisedQuery(Fraction(1), delta), console=said)
    assert said.file.getvalue().count("is above 1/(10 n)") == 1


PEOPLE = marks_of(f"content of held-out {i}" for i in range(100))


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        (NoisedQuery(TENTH), TENTH),
        (NoisedQuery(TENTH, relation=Relation.ADD_REMOVE), TENTH),
        # a picture that is replaced moves found and missed by twice the cap
        (NoisedQuery(TENTH, joints=14), 2 * TENTH),
        (NoisedQuery(TENTH, joints=14, relation=Relation.REPLACE), TENTH),
    ],
    ids=str,
)
def test_the_account_counts_it_and_a_budget_lets_in_what_it_leaves(folder, asked, taken):
    set_budget(Budget(1.0, 1e-5, "held-out", PEOPLE))
    evaluate_noised(folder, "held-out", asked, console=QUIET)
    (charge,) = charges()
    assert ([event.pure() for event in charge.events], charge.state, charge.unit) == ([taken], State.COMMITTED, "image")
    assert spending(Neighbours("image", Relation.REPLACE), 1e-5, of=PEOPLE).epsilon == pytest.approx(
        float(taken), rel=1e-3
    )
    with refused("budget-exceeded"):
        evaluate_noised(folder, "held-out", replace(asked, epsilon=Fraction(3)), console=QUIET)
    assert len(written(folder)) == len(charges()) == 1


def test_gaussian_noise_enters_by_zcdp(folder):
    asked = NoisedQuery(Fraction(1), 1e-5, joints=3)
    evaluate_noised(folder, "held-out", asked, console=QUIET)
    (charge,) = charges()
    (loss,) = charge.events
    assert loss == asked.dearer
    assert loss.rho() >= 2 * Fraction(asked.squared_l2) / (2 * asked.event.variance)


@pytest.mark.parametrize("most", [None, 14])
def test_progress_does_not_tell_a_number_of_units_that_is_private(folder, most):
    for relation, told in ((Relation.ZERO_OUT, True), (Relation.ADD_REMOVE, False)):
        screen = io.StringIO()
        asked = NoisedQuery(TENTH, relation=relation, joints=most)
        evaluate_noised(folder, "held-out", asked, console=Console(file=screen, force_terminal=True))
        assert ("evaluating" in screen.getvalue()) is told
        assert "secret counts" not in screen.getvalue()


def test_the_report_is_made_again(folder, monkeypatch):
    made = []
    monkeypatch.setattr(noised_score, "make_report", lambda where, console: made.append((where, console)))
    evaluate_noised(folder, "held-out", NoisedQuery(TENTH), console=QUIET)
    assert made == []
    (folder / "report.html").touch()
    evaluate_noised(folder, "held-out", NoisedQuery(TENTH), console=QUIET)
    assert made == [(folder, QUIET)]


def test_noise_from_a_seed_guarantees_nothing(folder):
    source = AesNoise(Key.from_seed(1))
    evaluate_noised(folder, "held-out", NoisedQuery(TENTH), console=QUIET, noise=source)
    (content,) = written(folder)
    assert content["privacy"]["kind"] == "seeded"
    (query,) = json.loads((folder / "privacy.json").read_text())["queries"]
    assert "cost" not in query
    assert "NOT covered" in (folder / "README.md").read_text()
    (charge,) = charges()
    assert charge.events == ()


@pytest.mark.parametrize(
    ("data", "code"), [("public", "noise-unneeded"), ("odd", "unit-scores-missing"), ("own", "scored-data-protected")]
)
def test_what_has_no_price_is_refused_before_it_is_read(folder, data, code):
    if data == "own":
        sealed_again(folder, PrivacyStatement(Kind.PAPER, "image"))
    with refused(code):
        evaluate_noised(folder, data, NoisedQuery(TENTH), console=QUIET)
    assert charges() == []
    assert not (folder / "evaluations").exists()


def test_a_limit_under_add_or_remove_is_refused(folder, monkeypatch):
    from dpose.privacy.selection import Selection

    monkeypatch.setattr(People, "selection", Selection(5), raising=False)
    with refused("selection-not-stable", where=("image", "change 2")):
        evaluate_noised(folder, "x", NoisedQuery(TENTH, relation=Relation.ADD_REMOVE), console=QUIET)
    assert charges() == []


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"epsilon": Fraction(0)}, "epsilon-not-positive"),
        ({"delta": 1.5}, "delta-out-of-range"),
        ({"joints": 0}, "joints-per-unit-too-few"),
    ],
)
def test_bad_prices_are_refused(values, code):
    with refused(code):
        NoisedQuery(**{"epsilon": TENTH, **values})
