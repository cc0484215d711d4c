"""First weights: what they have learnt from is part of a run's claim, and the account is asked before anything runs."""

import json
from dataclasses import replace

import pytest
import safetensors.torch
from rich.console import Console

from dots import train
from dpose import files
from dpose.account import TUNING, charges
from dpose.errors import DposeError
from dpose.files import file_digest
from dpose.known_sets import SetNames
from dpose.privacy.accounting import epsilon
from dpose.privacy.attackers import bound_attackers
from dpose.privacy.neighbours import BEYOND, Relation
from dpose.privacy.protected import protect
from dpose.privacy.sections import group_section
from dpose.privacy.statement import Kind
from dpose.runs.verify import verify_run
from dpose.tensors import digest_of_tensors
from dpose.training.first_weights import FirstWeights, digest_of_weights, inherited
from dpose.training.folder import read_statement
from dpose.training.plan import TrainingPlan
from dpose.training.public_view import PublicView
from dpose.training.run import Run
from dpose.training.trained_on import TrainedOn
from refusals import refused
from run_folders import sealed_again
from tiers import rest_slow

QUIET = Console(quiet=True)
BUDGET = {"epsilon": 8.0, "delta": 1e-3, "accountant": "rdp"}


def plan(method="dp-sgd", **values):
    budget = BUDGET if method not in ("non-private", "public-only") else {}
    view = PublicView("pixelize", 32)
    return TrainingPlan(method=method, epochs=1, expected_batch_size=10, public_view=view, **{**budget, **values})


@pytest.fixture
def run(dots, tmp_path):
    """Trains one after another; `start` names the run before."""

    def go(name, method="dp-sgd", start=None, data=None, seed=None, explicit=True, file=False, **values):
        model = dots.task.build_model()
        if start:
            from safetensors.torch import load_file

            model.load_state_dict(load_file(tmp_path / start / "model.safetensors"))
        said = FirstWeights.drawn() if start is None else tmp_path / start
        said = said / "model.safetensors" if file else said
        return train(
            dots.task, model, private=dots.data(40) if data is None else data, plan=plan(method, **values),
            out=tmp_path / name, seed=seed, console=QUIET, start=said if explicit else None, microbatch_size=16,
        )  # fmt: skip

    return go


def other(dots):
    return dots.data(40, seed=5)


@pytest.mark.parametrize("explicit", [True, False], ids=["named", "found by content"])
def test_weights_that_learnt_from_the_same_units_without_a_guarantee_are_refused(run, tmp_path, explicit):
    run("plain", "non-private")
    with refused("first-weights-unprotected", where="videos"):
        run("private", start="plain", explicit=explicit)
    assert not (tmp_path / "private").exists()
    assert len(charges()) == 1


@pytest.mark.parametrize("failing", [DposeError("disk-full", "no space is left"), KeyboardInterrupt()], ids=repr)
def test_of_a_run_that_fails_no_weights_are_left_that_the_account_does_not_know(dots, tmp_path, monkeypatch, failing):
    model, step = dots.task.build_model(), Run._step
    began = digest_of_weights(model)

    def steps(self, number):
        if number == 2:
            assert digest_of_weights(model) != began
            raise failing
        step(self, number)

    monkeypatch.setattr(Run, "_step", steps)
    with pytest.raises(type(failing)):
        train(
            dots.task, model, private=dots.data(40), plan=plan("non-private"), out=tmp_path / "plain", console=QUIET,
            start=FirstWeights.drawn(), microbatch_size=16,
        )  # fmt: skip
    assert digest_of_weights(model) == began


def test_so_are_those_that_another_program_saved_again(run, dots, tmp_path):
    """The bytes are others, the tensors are not."""
    run("plain", "non-private")
    released, again = tmp_path / "plain" / "model.safetensors", tmp_path / "again.safetensors"
    safetensors.torch.save_file(safetensors.torch.load_file(released), again, {"format": "pt"})
    assert file_digest(again) != file_digest(released) == digest_of_tensors(again)
    with refused("first-weights-unprotected"):
        train(
            dots.task, dots.task.build_model(), private=dots.data(40), plan=plan(), out=tmp_path / "private",
            console=QUIET, start=again, microbatch_size=16,
        )  # fmt: skip


def test_so_are_those_of_a_seeded_run(run):
    assert run("seeded", seed=3).statement.kind is Kind.SEEDED
    with refused("first-weights-unprotected"):
        run("private", start="seeded")
    assert run("again", start="seeded", seed=4).statement.kind is Kind.SEEDED  # which claims nothing


def test_a_choice_among_trials_is_refused_them_though_its_charge_has_no_events_yet(run, dots, tmp_path):
    run("plain", "non-private")
    marks = protect(dots.data(40)).identity.marks
    entry = replace(charges()[0], id="ab" * 16, what=TUNING[0], events=(), weights=(), marks=marks)
    with refused("first-weights-unprotected"):
        inherited(FirstWeights.of(tmp_path / "plain"), entry, plan(), charges())


def test_so_are_those_that_a_run_unknown_to_the_account_taught_on_the_same_set(run, tmp_path):
    """Both epsilons would add up, and the statement would count one of them."""
    statement = run("first").statement
    entry = charges()[0]
    mine = TrainedOn(protected=("lspet:private",))
    first = FirstWeights("1" * 64, "runs/first", statement, learnt=mine)
    same, other = (SetNames((name,), (name,), whole=True) for name in ("lspet:private", "lspet:public"))
    with refused("first-weights-run-unknown"):
        inherited(first, entry, plan(), [], names=same)
    assert not inherited(first, entry, plan(), [], names=other).events


def test_so_are_those_that_come_from_such_weights_by_other_runs(run, dots):
    run("plain", "non-private")
    run("between", start="plain", data=other(dots))
    with refused("first-weights-unprotected"):
        run("private", start="between")


def test_so_are_those_of_a_run_that_took_the_units_to_be_public(run, dots):
    subspace = {"kind": "public", "rank": 2, "units": 10, "refresh": 5}
    from dpose.training.methods import SubspaceConfig

    model = dots.task.build_model()
    private, public = other(dots), dots.data(40)
    public.unit_id = lambda index: f"public-{index}"
    done = train(
        dots.task, model, private=private, public=public, out="subspaced", console=QUIET, microbatch_size=16,
        plan=plan("pdp-sgd", subspace=SubspaceConfig(**subspace)), start=FirstWeights.drawn(),
    )  # fmt: skip
    with refused("first-weights-unprotected"):
        train(
            dots.task, done.model.train(), private=dots.data(40), plan=plan(), out="private", console=QUIET,
            start=done.folder, microbatch_size=16,
        )  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_where_there_was_a_guarantee_both_runs_count(run, tmp_path):
    first = run("first").statement
    both = run("second", start="first").statement
    assert len(both.events) == 2
    together = epsilon([*first.events, *both.events[:1]], 1e-3, accountant="rdp")
    assert both.epsilon == pytest.approx(together)
    assert both.epsilon > 1.2 * first.epsilon
    assert both.neighbours.scope == "unit"
    assert any("both runs' events count" in fact for fact in both.public)
    assert verify_run(tmp_path / "second").statement == both
    third = run("third", start="second").statement
    assert len(third.events) == 3
    assert third.epsilon > both.epsilon


def _taught_without_noise(tmp_path, name):
    """What a loop of one's own might write over a run's weights."""
    file = tmp_path / name / "model.safetensors"
    file.write_bytes(safetensors.torch.save({k: v + 0.5 for k, v in safetensors.torch.load_file(file).items()}))


def test_other_weights_in_a_runs_folder_are_not_what_it_released(run, tmp_path):
    run("first")
    _taught_without_noise(tmp_path, "first")
    with refused("first-weights-exchanged", "first/model.safetensors"):
        run("second", start="first")


def test_nor_are_they_where_no_seal_says_so(run, tmp_path):
    run("first")
    honest = run("second", start="first").statement
    _taught_without_noise(tmp_path, "first")
    ledger = tmp_path / "first" / "ledger.jsonl"
    lines = ledger.read_text(encoding="utf-8").splitlines(keepends=True)
    ledger.write_text("".join(line for line in lines if '"seal"' not in line), encoding="utf-8")
    third = run("third", start="first").statement
    assert third.epsilon == honest.epsilon  # the run beside them counts all the same
    assert not honest.conditional_on
    assert [line for line in third.conditional_on if "none of these" in line]
    assert verify_run(tmp_path / "third").statement == third


def test_an_event_that_is_taken_out_of_the_statement_alone_is_missed(run, tmp_path):
    run("first")
    both = run("second", start="first").statement
    own = both.events[:1]
    spent = epsilon(own, 1e-3, accountant="rdp")
    told = replace(
        both,
        events=own,
        epsilon=spent,
        attackers=bound_attackers(own, Relation.ZERO_OUT, 1e-3),
        groups=group_section(own, 1e-3, Relation.ZERO_OUT, spent),
    )
    sealed_again(tmp_path / "second", told)
    with refused("statement-section-unfounded"):
        verify_run(tmp_path / "second", tmp_path / "elsewhere")


@pytest.mark.parametrize("changed", ["unit", "relation"])
def test_guarantees_of_another_kind_are_not_added_up(run, dots, changed):
    run("first")
    data, plan = dots.data(40), {}
    if changed == "unit":
        data.unit = "subject"
    else:
        plan = {"relation": Relation.REPLACE, "accountant": "pld", "epsilon": 1.0}
    with refused("first-weights-other-guarantee"):
        run("second", start="first", data=data, **plan)


def test_a_feature_private_start_leaves_what_is_beyond_the_public_view(run):
    run("views", "fdp-sgd", data=square())
    found = run("second", start="views", data=square()).statement
    assert found.kind is Kind.PRIVATE
    assert found.neighbours.scope == BEYOND
    assert len(found.events) == 2
    assert any("also the public view that the first weights learnt from" in fact for fact in found.public)
    assert found.verify() is not None


def test_the_account_names_the_public_views_of_methods_that_learn_from_them(run):
    for method, views in (("fdp-sgd", "pixelize, width 32"), ("public-only", "pixelize, width 32"), ("dp-sgd", "")):
        before = {entry.id for entry in charges()}
        run(method, method, data=square())
        (entry,) = (entry for entry in charges() if entry.id not in before)
        assert entry.views == views


def test_without_a_guarantee_what_is_given_goes_on_and_nothing_private_is_called_public(
    run, dots, tmp_path, monkeypatch
):
    """Whoever starts from these weights takes as given what they were told with."""
    run("elsewhere", "non-private", data=other(dots))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    plain = run("plain", "non-private", start="elsewhere").statement
    (given,) = plain.conditional_on
    assert weights_digest_of(tmp_path / "elsewhere")[:16] in given
    assert plain.public == ()
    assert plain.kind is Kind.NONE
    views = run("views", "public-only", start="elsewhere", data=square()).statement
    assert views.kind is Kind.NONE
    assert given in views.conditional_on
    shown, *rest = views.public
    assert "public view" in shown
    assert rest, "what is known of the first weights"


def test_so_does_one_of_public_views_alone_without_an_event(run):
    run("views", "public-only", data=square())
    found = run("second", start="views", data=square()).statement
    assert (found.neighbours.scope, len(found.events)) == (BEYOND, 1)
    with refused("first-weights-from-public-views"):
        run("third", start="views", data=square(), relation=Relation.ADD_REMOVE, nominal_units=40)


def test_public_only_no_longer_says_that_the_pictures_had_no_influence(run):
    run("plain", "non-private", data=square())
    alone = run("alone", "public-only", data=square()).statement
    assert any("had no influence" in caveat for caveat in alone.caveats)
    after = run("after", "public-only", start="plain", data=square()).statement
    assert not any("had no influence" in caveat for caveat in after.caveats)
    with refused("first-weights-unprotected"):
        run("private", start="after", data=square())


def test_other_units_are_a_public_fact_and_the_start_is_called_what_it_is(run, dots):
    run("plain", "non-private", data=other(dots))
    found = run("private", start="plain").statement
    assert any("learnt from none of the videos" in fact for fact in found.public)
    assert found.conditional_on == ()
    assert any("trained without a guarantee: the data" in caveat for caveat in found.caveats)
    assert not any("taken to be public" in text for text in (*found.caveats, *found.public))
    run("seeded", data=other(dots), seed=1)
    of_seeded = run("again", start="seeded").statement
    assert any("noise from a seed: the data" in caveat for caveat in of_seeded.caveats)


def test_what_the_account_does_not_know_is_taken_as_given(run, tmp_path, monkeypatch):
    run("plain", "non-private")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    found = run("private", start="plain").statement
    digest = weights_digest_of(tmp_path / "plain")[:16]
    (given,) = found.conditional_on
    assert given == (
        f"none of these videos were among those that the first weights (sha256 {digest}...) learnt from, "
        "beyond what their own statement covers"
    )
    after = run("after", start="private").statement  # the chain still ends in the unknown
    assert any(digest in given for given in after.conditional_on)
    assert len(after.events) == 2


def weights_digest_of(folder):
    from dpose.files import file_digest

    return file_digest(folder / "model.safetensors")


def test_of_a_model_of_which_nothing_is_said_its_weights_are_taken_as_given(run, dots):
    found = run("private", explicit=False).statement
    assert found.conditional_on == ("the videos had no influence on the weights that training began with",)
    assert run("drawn").statement.conditional_on == ()


def test_a_file_of_weights_and_fetched_ones(run, dots, tmp_path):
    run("plain", "non-private")
    model = dots.task.build_model()
    with refused("first-weights-unprotected"):
        train(
            dots.task, model, private=dots.data(40), plan=plan(), out="a", console=QUIET,
            start=tmp_path / "plain" / "model.safetensors",
        )  # fmt: skip
    fetched = FirstWeights(name="somewhere", given="nobody of these was photographed there")
    done = train(dots.task, model, private=dots.data(40), plan=plan(), out="b", console=QUIET, start=fetched)
    assert done.statement.conditional_on == ("nobody of these was photographed there",)
    with refused("weights-missing"):
        train(dots.task, model, private=dots.data(40), plan=plan(), out="c", console=QUIET, start="nowhere")


@pytest.mark.parametrize(
    "given", rest_slow([pytest.param(()), pytest.param(("the photographs that they saw show none of the units",))], 1)
)
def test_of_weights_that_come_with_dpose_their_own_statement_says_what_is_taken_as_given(
    run, dots, tmp_path, monkeypatch, given
):
    run("plain", "non-private", data=other(dots))
    shipped = tmp_path / "shipped" / "ours"
    shipped.mkdir(parents=True)
    weights = (tmp_path / "plain" / "model.safetensors").read_bytes()
    (shipped / "model.safetensors").write_bytes(weights)
    statement = read_statement(tmp_path / "plain")
    (shipped / "privacy.json").write_text(replace(statement, conditional_on=given).to_json())
    monkeypatch.setattr(files, "SHIPPED", shipped.parent)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    found = run("shipped/private", start="shipped/ours").statement
    assert found.conditional_on == given
    (fact,) = (fact for fact in found.public if "come with dpose" in fact)
    assert weights_digest_of(shipped)[:16] in fact
    assert ("taken as given" in fact) == bool(given)
    # and where they stand at the end of a chain
    after = run("after", start="shipped/private").statement
    assert after.conditional_on == given
    assert verify_run(tmp_path / "after").statement == after
    # of a file alone there is no statement, and the account tells the chain
    alone = run("alone", start="shipped/private", file=True).statement
    assert set(alone.conditional_on) == set(given)


def test_weights_that_come_without_a_statement_are_weights_from_elsewhere(run, dots, tmp_path, monkeypatch):
    run("plain", "non-private", data=other(dots))
    (tmp_path / "plain" / "privacy.json").unlink()
    monkeypatch.setattr(files, "SHIPPED", tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    assert run("private", start="plain").statement.conditional_on


def test_account_and_seal_know_the_weights_by_their_digest(run, tmp_path):
    done = run("first")
    (first,) = charges()
    assert first.weights == (weights_digest_of(done.folder),) == (digest_of_weights(done.model),)
    run("second", start="first")
    (second,) = (entry for entry in charges() if entry.id != first.id)  # both may be of one second
    assert second.start == first.weights[0]
    seal = (tmp_path / "second" / "ledger.jsonl").read_text().splitlines()[-1]
    assert json.loads(seal)["event"]["first_weights"] == first.weights[0]


def test_no_mark_and_no_digest_of_a_picture_stands_in_the_folder(run, tmp_path, dots):
    run("first")
    run("second", start="first")
    from dpose.privacy.marks import marks_of

    hashes = {h for i in range(40) for h in dots.data(40).content_hashes(i)}
    marks = [str(int(mark)) for mark in marks_of(hashes)]
    for file in (tmp_path / "second").rglob("*"):
        if file.is_file() and file.suffix != ".safetensors":
            text = file.read_text()
            assert not any(found in text for found in (*hashes, *marks))


def square():
    """Clips whose frames are large enough for a public view."""
    import numpy as np

    from dots import Dots

    data = Dots(40)
    data.views = [
        [replace(view, image=np.kron(view.image, np.ones((1, 8, 8, 1), np.uint8))) for view in views]
        for views in data.views
    ]
    data.augmented = lambda view, rng: view
    return data


def test_a_statement_names_what_is_public_with_digest_and_licence(dots, tmp_path):
    """Units that a method is fitted on, those that a run without privacy trains on, first weights; no private units."""
    from dpose.training.methods import SubspaceConfig

    def go(name, method, private, start=None, **said):
        model = dots.task.build_model()
        subspace = {"subspace": SubspaceConfig("public", rank=2, units=10)} if method == "pdp-sgd" else {}
        done = train(
            dots.task, model, private=private, out=tmp_path / name, console=QUIET, microbatch_size=16,
            plan=plan(method, **subspace), start=start or FirstWeights.drawn(), **said,
        )  # fmt: skip
        assert verify_run(tmp_path / name).statement == done.statement
        return done.statement.inputs

    public = dots.data(20, seed=9)
    public.unit_id = lambda index: f"public-{index}"
    assert go("plain", "non-private", dots.data(40)) == ()
    assert go("private", "dp-sgd", dots.data(40, seed=2), public_licence="MIT", data_is_public=True) == ()
    (learnt,) = go("public", "non-private", public, public_licence="CC-BY-4.0", data_is_public=True)
    digest = protect(public).identity.digest.hex()
    assert (learnt.what, learnt.sha256, learnt.licence) == ("20 units that it was trained on", digest, "CC-BY-4.0")
    start = replace(FirstWeights.of(tmp_path / "public"), stated="MIT")
    first, behind = go("second", "dp-sgd", dots.data(40, seed=3), start)
    assert (first.what, first.sha256, first.licence) == ("the first weights", start.digest, "MIT")
    assert behind == replace(learnt, what=f"behind the first weights, as their statement says: {learnt.what}")
    assert go("third", "dp-sgd", dots.data(40, seed=4), FirstWeights.of(tmp_path / "second"))[1:] == (
        replace(first, what=f"behind the first weights, as their statement says: {first.what}"),
        behind,
    )
    fitted, *_ = go("fitted", "pdp-sgd", dots.data(40, seed=5), public=public, public_licence="CC0-1.0")
    assert (fitted.what, fitted.sha256, fitted.licence) == ("20 units that pdp-sgd is fitted on", digest, "CC0-1.0")
